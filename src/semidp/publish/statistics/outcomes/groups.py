"""Groups whose counts are public, and what can be chosen of every statistic of a private outcome:
its groups, its bounds, its intervals.
"""

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.exact import plain
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.schema.outcome import ALL_RECORDS, Outcome
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.outcome_spaces import GroupedSpace, answered_cells
from semidp.promise.spaces.dataspace import Margin
from semidp.publish.statistics.outcomes.noise_law import LEVEL as USUAL_LEVEL
from semidp.publish.statistics.outcomes.noise_law import Confidence
from semidp.publish.statistics.outcomes.request import OutcomeRequest, binary_outcome, group_margins
from semidp.publish.statistics.setting import Chosen, Panel, Setting, Shape

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ByBlocks:
    """What was measured by sets of groups whose counts are public; a set may be left out where
    there is one.
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
        """Return the levels of each group of a set, in the order of its cells; of those who
        answered, where no others are measured.
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
        return tuple(
            tuple(paths[axis][index[axis]][depth] for axis, depth in places) for index in cells
        )

    def columns(self, block: Margin | None = None) -> tuple[str, ...]:
        """Return the names of what a group's levels are: the set's features, a nested one with its
        whole path. That everybody answered is no level.
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


@dataclass(frozen=True)
class EvenGroup:
    """A group whose records lie evenly on the steps of a grid.

    Parameters
    ----------
    size
        How many records it has.
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


def read_outcome(chosen: Chosen, column: str, asked: type[OutcomeRequest]) -> Outcome:
    """Return a column with the bounds and the grid that are declared for it, or what is asked of it
    has unless declared.
    """
    bounds, grid, step = (chosen.of_column(field, column) for field in (BOUNDS, GRID, STEP))
    return asked.declare_outcome(column, bounds, grid or None, step or None)


def read_binary_outcome(chosen: Chosen, column: str) -> Outcome:
    """Return a column of zeros and ones, which needs no bounds."""
    for field in (BOUNDS, GRID, STEP):
        chosen.of_column(field, column)  # bounds are of no use here, and do no harm
    return binary_outcome(column)


def read_groups(chosen: Chosen) -> tuple[Margin, ...]:
    """Return the groups by which something is published; everyone together if none are named."""
    return group_margins(chosen.sets(GROUP))


def read_confidence(chosen: Chosen, *, differences: bool) -> Confidence:
    """Return the intervals that are chosen; only groups have differences."""
    level = chosen.text(LEVEL)
    return Confidence(
        USUAL_LEVEL if level is None else level,
        chosen.is_ticked(SAMPLING),
        chosen.is_ticked(SIMULTANEOUS),
        differences and chosen.is_ticked(DIFFERENCES),
    )


# --- the other way: what would have been chosen ---------------------------------------------------


def outcome_values(request: OutcomeRequest) -> dict[str, Any]:
    """Return what is chosen of an outcome with bounds."""
    outcome = request.outcome
    values: dict[str, Any] = {
        BOUNDS.name: {outcome.column: (plain(outcome.lower), plain(outcome.upper))}
    }
    if outcome.steps != request.usual_steps(outcome.lower, outcome.upper):
        values[GRID.name] = {outcome.column: str(outcome.steps)}
    return values


def group_values(by: tuple[Margin, ...]) -> dict[str, Any]:
    """Return what is chosen of groups."""
    sets = tuple(margin.names for margin in by if margin != Margin(ALL_RECORDS))
    return {GROUP.name: sets} if sets else {}


def confidence_values(confidence: Confidence) -> dict[str, Any]:
    """Return what is chosen of intervals; nothing for the usual ones."""
    values: dict[str, Any] = {}
    if confidence.level != Confidence().level:
        values[LEVEL.name] = plain(confidence.level)
    for field in (SAMPLING, SIMULTANEOUS, DIFFERENCES):
        if getattr(confidence, field.name):
            values[field.name] = True
    return values
