"""What follows step by step: a sum is its parts added up, a part is the sum less the other parts.

Bounds of all published tables (and of their crossing, where it is small) narrow each other until
nothing changes. Every step is kept, so that a bound can be explained by those before it, never by
itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from semidp.assess.disclosure.published_counts import UNBOUNDED, KnownTable, PublishedCounts
from semidp.errors import DataError
from semidp.promise.schema.margins import Counts, Mask, View, is_within_view, meet

MOST_SWEEPS = 200
LOWER, UPPER = 0, 1

CONTRADICTION = (
    "no table of counts agrees with all of these numbers: they contradict each other, or the rules"
    " for suppressed and rounded cells are not those of these tables"
)


@dataclass(frozen=True, eq=False)
class Step:
    """Bounds that one rule moved: those of `cells` (flat) of a view, from what another view says.

    `whole` is the coarser view of the two: where it is `view` itself, parts were added up.
    """

    view: View
    side: int
    cells: Counts
    values: Counts
    whole: View
    part: View


@dataclass(eq=False)
class Narrowing:
    """Bounds of several views that narrow each other.

    >>> from semidp import Dataspace, Feature, Margin, Schema, Table
    >>> table = Table(Schema([Feature("ward", "AB"), Feature("ill", "yn")]), [[5, 0], [0, 3]])
    >>> margins = [Margin("ward"), Margin("ill")]
    >>> space = Dataspace.from_table(table, margins)
    >>> narrowed = Narrowing.from_counts(PublishedCounts.from_dataspace(space), [(1, 1)])
    >>> narrowed.lower[(1, 1)].tolist(), narrowed.upper[(1, 1)].tolist()
    ([[2, 0], [0, 0]], [[5, 3], [3, 3]])
    """

    counts: PublishedCounts
    lower: dict[View, Counts]
    upper: dict[View, Counts]
    steps: list[Step] = field(default_factory=list)

    @classmethod
    def from_counts(cls, counts: PublishedCounts, further: Sequence[View] = ()) -> "Narrowing":
        """Narrow what is published, with further views that nothing is published of."""
        views = dict.fromkeys(known.view for known in counts.tables)
        for one in list(views):
            for other in list(views):
                views.setdefault(meet(one, other))
        views |= dict.fromkeys(further)
        lower, upper = {}, {}
        for view in views:
            shape = counts.grid.compute_margin_shape(view)
            lower[view] = np.zeros(shape, dtype=np.int64)
            upper[view] = np.where(counts.possible(view), UNBOUNDED, 0).astype(np.int64)
        found = cls(counts, lower, upper)
        for known in counts.tables:
            # A table with some cells left out says nothing of those.
            found.lower[known.view] = np.maximum(found.lower[known.view], known.lower)
            found.upper[known.view] = np.minimum(found.upper[known.view], known.upper)
        found._check()
        found._run()
        return found

    def _check(self) -> None:
        for view, lower in self.lower.items():
            if (lower > self.upper[view]).any():
                raise DataError(CONTRADICTION)

    def _run(self) -> None:
        views = list(self.lower)
        pairs = [
            (whole, part)
            for whole in views
            for part in views
            if whole != part and is_within_view(whole, part)
        ]
        # Sums of few parts first: they make short proofs.
        cells = self.counts.grid.count_margin_cells
        pairs.sort(key=lambda pair: cells(pair[1]) / cells(pair[0]))
        for whole, part in pairs:
            self._subtract_upper(whole, part)
        for _ in range(MOST_SWEEPS):
            before = len(self.steps)
            # Proofs are shortest if upper bounds spread first, and lower ones follow from them.
            for rule in (self._subtract_lower, self._subtract_upper, self._add_up):
                for whole, part in pairs:
                    rule(whole, part)
            self._fill_gaps()
            self._check()
            if len(self.steps) == before:
                return

    def _add_up(self, whole: View, part: View) -> None:
        """Narrow a sum by its parts."""
        grid = self.counts.grid
        lower = grid.sum(self.lower[part], whole, part)
        upper = np.minimum(grid.sum(self.upper[part], whole, part), UNBOUNDED)
        self._move(whole, LOWER, lower, whole, part)
        self._move(whole, UPPER, upper, whole, part)

    def _subtract_lower(self, whole: View, part: View) -> None:
        """A part is at least its sum less the most of the other parts."""
        grid = self.counts.grid
        high = self.upper[part]
        others = grid.spread(grid.sum(high, whole, part), whole, part) - high
        least = grid.spread(self.lower[whole], whole, part) - others
        self._move(part, LOWER, least, whole, part)

    def _subtract_upper(self, whole: View, part: View) -> None:
        """A part is at most its sum less the least of the other parts."""
        grid = self.counts.grid
        low = self.lower[part]
        others = grid.spread(grid.sum(low, whole, part), whole, part) - low
        most = grid.spread(self.upper[whole], whole, part)
        most = np.where(most >= UNBOUNDED, UNBOUNDED, most - others)
        self._move(part, UPPER, most, whole, part)

    def _fill_gaps(self) -> None:
        """A cell that is 0 or at least k, and cannot be one of the two, is the other."""
        for known in self.counts.tables:
            if known.gap is None:
                continue
            view = known.view
            some = (known.gap > 0) & (self.lower[view] > 0)
            self._move(view, LOWER, np.where(some, known.gap, 0), view, view)
            none = (known.gap > 0) & (self.upper[view] < known.gap)
            self._move(view, UPPER, np.where(none, 0, UNBOUNDED), view, view)

    def _move(self, view: View, side: int, values: Counts, whole: View, part: View) -> None:
        bounds = (self.lower, self.upper)[side]
        old = bounds[view]
        better: Mask = values > old if side == LOWER else values < old
        if not better.any():
            return
        bounds[view] = np.where(better, values, old)
        cells = np.flatnonzero(better)
        self.steps.append(Step(view, side, cells, values.ravel()[cells], whole, part))

    def find_step(self, view: View, side: int, cell: int, before: int) -> tuple[int, Step] | None:
        """Return the last step earlier than `before` that moved a bound; None if none did."""
        for place in range(min(before, len(self.steps)) - 1, -1, -1):
            step = self.steps[place]
            if step.view != view or step.side != side:
                continue
            position = int(np.searchsorted(step.cells, cell))
            if position < len(step.cells) and step.cells[position] == cell:
                return place, step
        return None

    def find_value(self, view: View, side: int, cell: int, before: int) -> int:
        """Return a bound as it was before a step."""
        found = self.find_step(view, side, cell, before)
        if found is not None:
            step = found[1]
            return int(step.values[np.searchsorted(step.cells, cell)])
        start = UNBOUNDED if self.counts.possible(view).ravel()[cell] else 0
        value = start if side == UPPER else 0
        for known in self.list_tables(view):
            told = (known.lower, known.upper)[side].ravel()[cell]
            value = int(min(value, told) if side == UPPER else max(value, told))
        return value

    def list_tables(self, view: View) -> Iterator[KnownTable]:
        """Yield the published tables over a view."""
        for known in self.counts.tables:
            if known.view == view:
                yield known
