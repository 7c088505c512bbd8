"""Groups whose counts are public, and the settings of every statistic of a private outcome: its
groups, its bounds, its intervals.
"""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.exact import number, plain
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.schema.outcome import ALL_RECORDS, Outcome
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.outcome_spaces import GroupedSpace, answered_cells
from semidp.promise.spaces.dataspace import Margin
from semidp.publish.results.role_columns import Role, RoleColumn
from semidp.publish.statistics.outcomes.noise_law import LEVEL as USUAL_LEVEL
from semidp.publish.statistics.outcomes.noise_law import About, Confidence, Intervals
from semidp.publish.statistics.outcomes.request import (
    GroupedRequest,
    OutcomeRequest,
    StatisticRequest,
    binary_outcome,
    group_margins,
)
from semidp.publish.statistics.protocol.statistic import Chosen, Panel, Setting, Shape

Integers = NDArray[np.int64]


@frozen(slots=False, eq=False)
class ByBlocks:
    """A measurement by sets of groups whose counts are public; the set may be left out if
    there is only one.
    """

    mechanism: Mechanism
    measurement: Measurement

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of what was measured."""
        return self.mechanism.guarantee

    @property
    def private(self) -> bool:
        """Whether the randomness was secure."""
        return self.measurement.private

    @property
    def space(self) -> GroupedSpace:
        """The groups, and what the noise is calibrated to."""
        raise NotImplementedError

    def groups(self, block: Margin | None = None) -> tuple[tuple[str, ...], ...]:
        """Return the levels of each group of a set, in the order of its cells; only groups
        of those who answered, if no others are measured.
        """
        schema, block = self._public(block)
        if not block.names:
            return (("all",),)
        part = schema.restrict(block.names)
        paths = [feature.paths() for feature in part.features]
        # Cells come in the schema's order, but a row's levels in the block's, which is what its
        # columns are headed by.
        places = [
            (part.axis(name), part.feature(name).names.index(name)) for name in self.columns(block)
        ]
        cells = list(np.ndindex(*part.shape))
        if self.space.answered is not None:
            held = answered_cells(schema, block, self.space.answered)
            cells = list(itertools.compress(cells, held.tolist()))
        groups = []
        for index in cells:
            groups.append(tuple(paths[axis][index[axis]][depth] for axis, depth in places))
        return tuple(groups)

    def columns(self, block: Margin | None = None) -> tuple[str, ...]:
        """Return the names of the levels of a group: the set's features, a nested one with its
        whole path. Having answered is not a level.
        """
        schema, block = self._public(block)
        names = [name for name in block.names if name != self.space.answered]
        own_names = {name: schema.feature(name).names for name in names}
        return tuple(
            dict.fromkeys(
                part for name, path in own_names.items() for part in path[: path.index(name) + 1]
            )
        )

    def _public(self, block: Margin | None) -> tuple[Schema, Margin]:
        schema = self.space.dataspace.schema
        return schema, self.space.blocks[self._number(block)]

    def _number(self, block: Margin | None) -> int:
        blocks = self.space.blocks
        if block is None and len(blocks) == 1:
            return 0
        if block not in blocks:
            raise InputError(f"say by which groups: {', '.join(map(str, blocks))}")
        return blocks.index(block)


@frozen(slots=False)
class EvenGroup:
    """A group with records spread evenly over the steps of a grid.

    Parameters
    ----------
    size
        Its number of records.
    steps
        How many steps lie between the bounds of the outcome.

    Examples
    --------
    >>> group = EvenGroup(10, 3)
    >>> group.histogram.tolist(), group.rank(Fraction(1, 2)), group.place(5)
    ([2, 3, 2, 3], 5, 1)
    """

    size: int
    steps: int

    @classmethod
    def typical(cls, sizes: Integers, steps: int) -> "EvenGroup":
        """Return the group of median size among those with records; one record where no group has
        any.

        >>> EvenGroup.typical(np.array([400, 0, 10, 30]), 100).size
        30
        """
        occupied = np.sort(sizes[sizes > 0])
        if not len(occupied):
            return cls(1, steps)
        return cls(int(occupied[len(occupied) // 2]), steps)

    @cached_property
    def up_to(self) -> Integers:
        """The records up to each value of the grid."""
        values = np.arange(1, self.steps + 2, dtype=np.int64)
        return np.asarray(self.size * values // (self.steps + 1))

    @cached_property
    def histogram(self) -> Integers:
        """The records at each value of the grid."""
        return np.diff(self.up_to, prepend=0)

    def rank(self, probability: Fraction) -> int:
        """Return the rank ``⌈q n⌉`` of a quantile, at least 1."""
        return max(math.ceil(probability * self.size), 1)

    def place(self, rank: int) -> int:
        """Return the step at which the record of a rank lies."""
        return int(np.searchsorted(self.up_to, rank))


_BY_GROUP = ("mean", "sum", "proportion", "median", "quantile", "distribution")
_REGRESSIONS = ("regress", "logistic")
_WITH_INTERVALS = ("mean", "sum", "proportion", *_REGRESSIONS)

GROUP = Setting(
    "group",
    "The groups of a mean, median or the like; their counts become exact.",
    Shape.features,
    "A[,B]",
    Panel.groups,
    key="[[group]] by",
    label="by groups, whose counts become exact",
    several=True,
    needs=_BY_GROUP,
)
BOUNDS = Setting(
    "bounds",
    "Clip a private column to these bounds. They are declared, never read from the data.",
    Shape.lists,
    "COLUMN=0,100",
    Panel.groups,
    key="[[group]] bounds",
    label="clipped to",
    example="income=0,100000",
    needs=(*_BY_GROUP, *_REGRESSIONS),
)
GRID = Setting(
    "grid",
    "How many steps lie between the bounds (default: fine steps, or steps of 1).",
    Shape.texts,
    "COLUMN=STEPS",
    key="[[group]] grid",
    label="in so many steps",
    example="income=1000",
    needs=(*_BY_GROUP, *_REGRESSIONS),
)
STEP = Setting(
    "step",
    "The unit of a private column, such as 1 for whole numbers.",
    Shape.texts,
    "COLUMN=1",
    Panel.groups,
    key="[[group]] step",
    label="in units of",
    example="days=1",
    needs=(*_BY_GROUP, *_REGRESSIONS),
)
LEVEL = Setting(
    "level",
    "The level of confidence intervals (default 0.95).",
    Shape.text,
    "NUMBER",
    key="[[group]] level",
    label="intervals at level",
    example="0.95",
    needs=(*_WITH_INTERVALS, "distribution", "odds_ratio"),
)
SAMPLING = Setting(
    "sampling",
    "Also publish intervals for the population that the records were sampled from.",
    Shape.tick,
    key="[[group]] sampling",
    label="also for the population that the records were drawn from",
    needs=(*_WITH_INTERVALS, "quantile_level"),
)
SIMULTANEOUS = Setting(
    "simultaneous",
    "Let the level hold for all intervals of a set together.",
    Shape.tick,
    key="[[group]] simultaneous",
    label="the level is that of all intervals together",
    needs=_WITH_INTERVALS,
)
DIFFERENCES = Setting(
    "differences",
    "Also publish intervals for the difference of every two groups.",
    Shape.tick,
    key="[[group]] differences",
    label="also differences of each two groups",
    needs=("mean", "sum", "proportion"),
)


def read_outcome(
    chosen: Chosen, column: str, asked: type[OutcomeRequest], *, binary: bool = False
) -> Outcome:
    """Return a column with its declared bounds and grid, or with the default grid of the statistic.
    Zeros and ones need neither.
    """
    bounds, grid, step = (chosen.of_column(field, column) for field in (BOUNDS, GRID, STEP))
    if binary:
        return binary_outcome(column)
    return asked.declare_outcome(column, bounds, grid or None, step or None)


def read_groups(chosen: Chosen) -> tuple[Margin, ...]:
    """Return the groups by which something is published; everyone together if none are named."""
    return group_margins(chosen[GROUP])


def read_confidence(chosen: Chosen, *, differences: bool) -> Confidence:
    """Return the chosen intervals; only groups have differences."""
    level = chosen[LEVEL]
    return Confidence(
        USUAL_LEVEL if level is None else level,
        chosen[SAMPLING],
        chosen[SIMULTANEOUS],
        differences and chosen[DIFFERENCES],
    )


# --- the other way: what would have been chosen ---------------------------------------------------


def outcome_values(request: OutcomeRequest) -> dict[str, Any]:
    """Return the choices about an outcome with bounds."""
    outcome = request.outcome
    values: dict[str, Any] = {
        BOUNDS.name: {outcome.column: (plain(outcome.lower), plain(outcome.upper))}
    }
    if outcome.steps != request.usual_steps(outcome.lower, outcome.upper):
        values[GRID.name] = {outcome.column: str(outcome.steps)}
    return values


def group_values(by: tuple[Margin, ...]) -> dict[str, Any]:
    """Return the choices about groups."""
    sets = tuple(margin.names for margin in by if margin != Margin(ALL_RECORDS))
    return {GROUP.name: sets} if sets else {}


def confidence_values(confidence: Confidence) -> dict[str, Any]:
    """Return the choices about intervals; nothing for the default."""
    values: dict[str, Any] = {}
    if confidence.level != Confidence().level:
        values[LEVEL.name] = plain(confidence.level)
    for field in (SAMPLING, SIMULTANEOUS, DIFFERENCES):
        if getattr(confidence, field.name):
            values[field.name] = True
    return values


STATISTIC_MEANINGS = {
    "mean": "the mean, from noisy sums",
    "sum": "the noisy sum",
    "proportion": "the share of ones, from noisy sums",
}
"""The meaning of the column of a statistic by groups, for the description of its file."""
ZEROS_AND_ONES = "Each record counted as 0 or 1."
"""The sentence about an outcome that is a yes or no."""
BOUNDS_CAPTION = (
    "Estimates with two standard errors of the noise to each side. A declared bound that lies in"
    " the picture is a dotted line."
)
_ENDS = {
    About.noise: ("", "the value of these records"),
    About.sampling: ("population_", "the population that the records were drawn from"),
}
"""The names of the ends of an interval in a file, and its target."""


# --- columns


def count_column(request: GroupedRequest, counts: NDArray[np.int64]) -> RoleColumn:
    """Return the exact numbers of records of groups: of those who answered, if the statistic is
    about them.
    """
    if request.answered is None:
        return RoleColumn("count", Role.count, counts, heading="count (exact)")
    return RoleColumn(
        "count",
        Role.count,
        counts,
        heading="answered (exact)",
        text=lambda count: f"{count:,} answered",
    )


def interval_columns(
    intervals: Sequence[Intervals], before: str = "", called: str = ""
) -> list[RoleColumn]:
    """Return the columns that hold the ends of intervals.

    Parameters
    ----------
    intervals
        The intervals of one estimate.
    before, called
        The prefix of the column names, and the name of the estimate, if a file has
        several.
    """
    columns = []
    for part in intervals:
        start, what = _ENDS[part.about]
        name, of_what = (before, f"the {called}") if called else (start, what)
        for end, role in ((part.lower, Role.lower), (part.upper, Role.upper)):
            meaning = f"the {role.value} end of an interval for {of_what}"
            heading = f"{called}, {role.value}" if called else ""
            columns.append(RoleColumn(f"{name}{role.value}", role, end, meaning, heading))
    return columns


def describe_intervals(intervals: Sequence[Intervals]) -> list[dict[str, Any]]:
    """Return what intervals are about, as plain values; their ends are in files."""
    described = []
    for part in intervals:
        entry = {
            "level": number(part.level),
            "about": str(part.about),
            "simultaneous": part.simultaneous,
            "exact": part.exact,
            "columns": [column.name for column in interval_columns([part])],
        }
        described.append(entry)
    return described


def pair_column_names(names: Sequence[str]) -> list[str]:
    """Return the names of the levels of two groups, each a different one.

    >>> pair_column_names(["ward"]), pair_column_names(["x", "other_x"])
    (['ward', 'other_ward'], ['x', 'other_x', 'other_other_x', 'other_other_other_x'])
    """
    counted = list(names)
    for name in names:
        other = f"other_{name}"
        while other in counted:
            other = f"other_{other}"
        counted.append(other)
    return counted


def faint_estimates(
    request: StatisticRequest, values: NDArray[np.float64], errors: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Return where noise dominates an estimate.

    It is smaller than two standard errors; or, of a mean, two standard errors to each side are half
    of its bounds.
    """
    bounds = float(request.outcome.upper - request.outcome.lower)
    small = np.abs(values) < 2 * errors
    # A mean may be anywhere between the bounds: half of them says next to nothing.
    return small if request.statistic == "sum" else small | (4 * errors >= bounds / 2)


def drawn_bounds(request: StatisticRequest) -> tuple[float, float] | None:
    """Return the bounds to draw: those of a record or a mean; a sum may lie far beyond
    them.
    """
    if request.statistic == "sum":
        return None
    return float(request.outcome.lower), float(request.outcome.upper)


# --- sentences


def faint_reason(request: StatisticRequest) -> str:
    """Say why noise dominates a group."""
    vague = (
        "" if request.statistic == "sum" else ", or its range of 95% is half of the declared bounds"
    )
    return f"the estimate is smaller than two standard errors{vague}"


def clipped_text(outcome: Outcome) -> str:
    """Describe how an outcome was clipped and rounded.

    >>> clipped_text(Outcome("score", 0, 10, 20))
    "Each record's score was clipped to the declared bounds 0 and 10 and rounded to steps of 0.5"
    """
    return (
        f"Each record's {outcome.column} was clipped to the declared bounds {plain(outcome.lower)}"
        f" and {plain(outcome.upper)} and rounded to steps of {plain(outcome.width)}"
    )


def added_up_text(request: StatisticRequest) -> str:
    """Describe what each record adds to a sum: zeros and ones are neither clipped nor rounded."""
    if request.binary:
        return ZEROS_AND_ONES
    return f"{clipped_text(request.outcome)} before it was added up."


def grid_fact(outcome: Outcome) -> tuple[tuple[str, str], ...]:
    """Say on which grid a statistic was measured, for specialists."""
    plural = "s" if outcome.steps > 1 else ""
    return (("Grid", f"{outcome.steps:,} step{plural} of {plain(outcome.width)}"),)


def interval_paragraphs(intervals: Sequence[Intervals]) -> list[str]:
    """Say what the intervals next to estimates are about."""
    return [_interval_text(part) for part in intervals]


def _interval_text(part: Intervals) -> str:
    share = f"{'' if part.exact else 'about '}{float(100 * part.level):g}%"
    together = f"with {share} probability each"
    if part.simultaneous:
        together = f"all at once, with {share} probability"
    if part.about is About.noise:
        return (
            f"The intervals from lower to upper hold the values of these records, {together}. They"
            " allow for the noise, and for rounding to the grid."
        )
    law = ": the law of a noisy count of ones was inverted" if part.exact else ""
    return (
        "The intervals for the population allow for sampling too. They hold the values of the"
        f" population that the records were drawn from, {together}{law}."
    )


def statistic_text(request: StatisticRequest) -> str:
    """Name a statistic and its column: mean of score."""
    return f"{request.statistic} of {request.outcome.column}"


def whose(request: GroupedRequest) -> str:
    """Describe whom a statistic is about, after its groups; nothing if everybody."""
    return "" if request.answered is None else ", of those who answered"


def answered_text(request: GroupedRequest) -> list[str]:
    """Say who answered, and that their number is exact; nothing if a statistic is of
    everybody.
    """
    if request.answered is None:
        return []
    source = request.outcome.column.partition("=")[0]
    return [
        f"Records without a value of {source} did not answer. How many answered in each group is"
        " published exactly, and what is published here is of those."
    ]


def groups_text(sets: Sequence[Margin], joint: str = ", ") -> str:
    """Name the groups of a statistic.

    >>> groups_text([Margin("school", "year"), Margin("sex")], " and by ")
    'by school and year and by sex'
    >>> groups_text([Margin(ALL_RECORDS)])
    'over all records'
    """
    if tuple(sets) == (Margin(ALL_RECORDS),):
        return f"over {ALL_RECORDS}"
    return f"by {joint.join(' and '.join(by.names) for by in sets)}"


def quantile_heading(name: str) -> str:
    """Return the heading of the column of a quantile.

    >>> quantile_heading("q0.5"), quantile_heading("q0.1")
    ('median', 'quantile 0.1')
    """
    return "median" if name == "q0.5" else f"quantile {name[1:]}"


def quantiles_text(column: str, probabilities: Sequence[Fraction]) -> str:
    """Name the quantiles of an outcome.

    >>> (
    ...     quantiles_text("score", [Fraction(1, 2)]),
    ...     quantiles_text("score", [Fraction(1, 4), Fraction(3, 4)]),
    ... )
    ('median of score', 'quantiles at 0.25, 0.75 of score')
    """
    if list(probabilities) == [Fraction(1, 2)]:
        return f"median of {column}"
    name = "quantile" if len(probabilities) == 1 else "quantiles"
    listed = ", ".join(map(plain, probabilities))
    return f"{name} at {listed} of {column}"
