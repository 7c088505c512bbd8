"""Private medians and quantiles by group beside exact group sizes, and what a release publishes of
them.

The proof and the exact choice are in `promise.mechanisms.exponential`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.exact import count_noun, plain
from semidp.promise.mechanisms.exponential import ExponentialMechanism, RankSpace, farthest_rank
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.spaces.dataspace import Margin
from semidp.publish.results.role_columns import Role, RoleColumn, Sheet, label_columns
from semidp.publish.results.texts import number_text, scale_text
from semidp.publish.statistics.outcomes.groups import ByBlocks
from semidp.publish.statistics.outcomes.noise_law import About, Intervals
from semidp.publish.statistics.outcomes.words import (
    answered_text,
    clipped_text,
    count_column,
    interval_columns,
    interval_paragraphs,
    quantile_heading,
    quantiles_text,
    set_text,
    whose,
)
from semidp.publish.statistics.protocol.statistic import (
    PublishedStatistic,
    Sentences,
    publish_statistic,
)

if TYPE_CHECKING:
    from semidp.publish.statistics.quantiles.kind import QuantileRequest

Floats = NDArray[np.float64]
MEDIAN = Fraction(1, 2)
"""The quantile that is chosen unless others are named."""


@dataclass(frozen=True, eq=False)
class GroupQuantiles(ByBlocks):
    """Quantiles of an outcome by group. Nothing in it is confidential.

    Examples
    --------
    >>> import semidp as sd
    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> records = {
    ...     "ward": np.repeat(["a", "b"], 500),
    ...     "days": np.r_[np.arange(500) / 100, 5 + np.arange(500) / 100],
    ... }
    >>> days = sd.Outcome("days", 0, 10, 100)
    >>> request = sd.publish.QuantileRequest(
    ...     days, [["ward"]], ["1/2"], sd.Budget.gdp(1), mechanism="selection"
    ... )
    >>> prepared = sd.prepare(sd.Plan([request], ["ward"]), records)
    >>> (mechanism,), (values,) = prepared.mechanisms, prepared.values
    >>> found = GroupQuantiles(mechanism, mechanism.measure(values, SeededRandomness(1)))
    >>> for (ward,), count, median in found.rows():
    ...     print(ward, count, round(median))
    a 500 2
    b 500 8
    >>> found.guarantee.adjacency.a, found.private
    (2, False)
    """

    @property
    def space(self) -> RankSpace:
        """The groups, and what was chosen in each."""
        assert isinstance(self.mechanism.space, RankSpace)
        return self.mechanism.space

    def values(self, block: Margin | None = None) -> Floats:
        """Return the quantiles of a set, a row a group, in the order of their probabilities; NaN
        without records.

        Choices of one group are put in order, which costs nothing and only helps.
        """
        return np.sort(self._chosen_values(block)[:, :, 0], axis=1)

    def intervals(self, block: Margin | None = None) -> tuple[Intervals, ...]:
        """Return an interval for each quantile, group after group; refuse where none were asked
        for.

        Ends lie half a step of the grid beyond the chosen values, since records were rounded to
        them. An end at a bound of the outcome says no more than that: the group is too small for a
        rank so far away.
        """
        space = self.space
        if space.level is None:
            raise InputError(
                "no intervals were chosen with the quantiles: ask for them with a level"
            )
        values, chosen = self.values(block), self._chosen_values(block)
        about = About.sampling if space.sampling else About.noise
        # Ends are chosen independently of the quantile and may fall on its wrong side: they are
        # moved outwards only, which loses no coverage.
        groups = self.groups(block)
        half = float(space.outcome.width / 2)
        bounds = float(space.outcome.lower), float(space.outcome.upper)
        intervals = []
        for k in range(len(space.probabilities)):
            quantile = values[:, k]
            lower = np.maximum(np.minimum(chosen[:, k, 1], quantile) - half, bounds[0])
            upper = np.minimum(np.maximum(chosen[:, k, 2], quantile) + half, bounds[1])
            intervals.append(Intervals(groups, quantile, lower, upper, space.level, about))
        return tuple(intervals)

    def rows(self, block: Margin | None = None) -> Iterator[tuple[Any, ...]]:
        """Yield each group with its exact count and its quantiles."""
        counts = self.space.counts[self._number(block)].ravel().tolist()
        rows = self.values(block).tolist()
        for group, count, values in zip(self.groups(block), counts, rows, strict=True):
            yield group, count, *values

    def _chosen_values(self, block: Margin | None) -> Floats:
        """The chosen values in units of the outcome: groups, quantiles, and the quantile with its
        ends.
        """
        space, number = self.space, self._number(block)
        ends = np.cumsum([0, *(counts.size for counts in space.counts)])
        shape = (len(space.sizes), len(space.probabilities), -1)
        steps = self.measurement.projected.reshape(shape)
        outcome = space.outcome
        exact_values = [outcome.lower + outcome.width * step for step in range(outcome.steps + 1)]
        grid = np.array([float(value) for value in exact_values])
        of_block = steps[ends[number] : ends[number + 1]]
        values = grid[of_block.astype(np.int64)]
        # A group without records has no quantile.
        occupied = space.counts[number].ravel() > 0
        return np.where(occupied[:, None, None], values, np.nan)


def most_rank_error(mechanism: Mechanism) -> int | None:
    """Return by how many ranks a chosen value is off at most, with probability 0.95; None without
    noise.
    """
    return farthest_rank(mechanism, 0.05) if isinstance(mechanism, ExponentialMechanism) else None


def publish_quantiles(request: "QuantileRequest", found: GroupQuantiles) -> PublishedStatistic:
    """Return quantiles in units of the outcome, with their intervals."""
    mechanism = found.mechanism
    rank_error = most_rank_error(mechanism)
    # Without the measure of its budget: GDP means another thing to most.
    law = mechanism.name.partition(" (")[0]
    how = f"selection by the {law} mechanism"
    if rank_error is not None:
        how += f", {ranks_text(rank_error)}"
    named = quantiles_text(request.outcome.column, request.probabilities)
    sets = " and by ".join(map(set_text, request.shown_sets))
    sentences = Sentences(
        title=f"{named} by {sets}{whose(request)}",
        noise="exact choices",
        mechanism=mechanism.name if mechanism.space.is_zero else how,
        paragraphs=_paragraphs(request, found, law, rank_error),
        faint="a choice there may be off by a quarter of the records to each side",
    )
    facts = {
        "files": list(request.files),
        "unit": float(request.outcome.width),
        "rank_error": rank_error,
        "about": None if request.level is None else str(found.intervals(request.by[0])[0].about),
    }
    sheets = [_sheet(request, found, number, rank_error) for number in range(len(request.by))]
    return publish_statistic(request, found, sentences, sheets, facts)


def _sheet(
    request: "QuantileRequest", found: GroupQuantiles, number: int, rank_error: int | None
) -> Sheet:
    """The file of one set of groups: exact counts, quantiles with their intervals, chosen steps."""
    block = request.by[number]
    counts = found.space.counts[number].ravel()
    values = found.values(block)
    intervals = () if request.level is None else found.intervals(block)
    numbers: list[RoleColumn] = []
    for place, probability in enumerate(request.probabilities):
        name = f"q{plain(probability)}"
        called = quantile_heading(name)
        numbers.append(
            RoleColumn(
                name,
                Role.estimate,
                values[:, place],
                f"the chosen {called}",
                called,
                number_text,
            )
        )
        numbers += interval_columns(intervals[place : place + 1], f"{name}_", called)
    steps = np.asarray(found.measurement.noisy).reshape(-1, len(numbers))
    start = sum(part.size for part in found.space.counts[:number])
    chosen = [
        RoleColumn(
            f"steps_{column.name}",
            Role.noisy,
            steps[start : start + len(counts), place],
            f"the chosen {column.title}, in steps of the grid",
        )
        for place, column in enumerate(numbers)
    ]
    shown = request.shown_sets[number]
    named = quantiles_text(request.outcome.column, request.probabilities)
    what = f"{named} by {set_text(shown)}{whose(request)}"
    faint = np.zeros(len(counts), dtype=bool)
    if rank_error is not None:
        # 95% of choices lie within no less than half of the records of such a group.
        faint = (counts > 0) & (counts <= 4 * rank_error)
    return Sheet(
        name=request.file_stems[number],
        role_columns=(
            *label_columns(found.columns(block), found.groups(block)),
            count_column(request, counts),
            *numbers,
            *chosen,
        ),
        words=f"the {what}, one row a group",
        heading=f"Published {what}",
        faint=faint,
    )


def ranks_text(ranks: int) -> str:
    """Say how far off a choice is.

    >>> ranks_text(1234)
    'at most 1,234 records from the true one, in 95% of choices'
    """
    return f"at most {count_noun(ranks, 'record')} from the true one, in 95% of choices"


def _paragraphs(
    request: "QuantileRequest", found: GroupQuantiles, law: str, rank_error: int | None
) -> tuple[str, ...]:
    """Say how quantiles were chosen, how far they may be off, and what their intervals are
    about.
    """
    if rank_error is None:
        return ()
    paragraphs = [
        *answered_text(request),
        f"{clipped_text(request.outcome)}. In each group a value was chosen at random ({law}"
        " mechanism). To make another value the quantile, some records would have to be replaced."
        " A value that needs fewer of them was more likely to be chosen: a factor e = 2.7 for every"
        f" {scale_text(found.mechanism.scale)} of them. In the same way the true quantile was more"
        " likely if more records would have to be replaced before another value is the quantile."
        " With 95% probability the number of records between a chosen value and the true quantile"
        f" of its group is at most {rank_error:,}, whatever the data.",
    ]
    if request.level is not None:
        # All intervals are of one kind: the first says what all are about.
        paragraphs += interval_paragraphs(found.intervals(request.by[0])[:1])
        paragraphs.append(
            "The ends of an interval were chosen in the same way, at ranks so far below and above"
            " that they rarely pass the quantile, and moved outward by half a step of the grid, by"
            " which values were rounded. Where an end is a declared bound, the group is"
            " too small for such a rank."
        )
    return tuple(paragraphs)
