"""The tables that agree with everything published, and what any of their cells can be.

`ConformingTables` picks the cheapest way to a bound: a formula, a flow, steps of arithmetic, or
programs, as far as its `Effort` reaches. What is not settled then is marked, never guessed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from semidp.assess.disclosure.closed_bounds import LARGEST_ARRAY, Bounds, close_bounds, is_closed
from semidp.assess.disclosure.program_bounds import Clock, Effort, Program
from semidp.assess.disclosure.published_counts import UNBOUNDED, Narrowing, PublishedCounts
from semidp.errors import DataError
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.margins import Mask, View, is_within_view, join

MOST_TABLES = 500
"""So many published tables can be looked at together."""


@dataclass(eq=False)
class ConformingTables:
    """All tables of counts that agree with what is published.

    Parameters
    ----------
    counts
        What is published.
    effort
        How much work programs may take, all questions together.
    progress
        Told how far the work is.

    Examples
    --------
    >>> from semidp import Dataspace, Feature, Margin, Schema, Table
    >>> schema = Schema([Feature("a", "xy"), Feature("b", "xy"), Feature("c", "xy")])
    >>> table = Table(schema, [[[1, 0], [0, 1]], [[0, 1], [1, 0]]])
    >>> pairs = [Margin("a", "b"), Margin("b", "c"), Margin("a", "c")]
    >>> counts = PublishedCounts.from_dataspace(Dataspace.from_table(table, pairs))
    >>> bounds = ConformingTables(counts).bound((1, 1, 1))
    >>> bounds.lower.tolist()[0], bounds.upper.tolist()[0], bool(bounds.sharp.all())
    ([[0, 0], [0, 0]], [[1, 1], [1, 1]], True)
    """

    counts: PublishedCounts
    effort: Effort = field(default_factory=Effort)
    progress: Progress = silent
    _kept: dict[View, Bounds] = field(default_factory=dict, init=False)
    _partial: dict[View, tuple[set[int], Bounds]] = field(default_factory=dict, init=False)
    _programs: dict[View, Program] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        largest = max(int(table.lower.max(initial=0)) for table in self.counts.tables)
        if largest >= UNBOUNDED:
            raise DataError(f"counts of {UNBOUNDED:,} and more are not looked at")
        if len(self.counts.tables) > MOST_TABLES:
            raise DataError(f"more than {MOST_TABLES} tables at once are not looked at")

    @cached_property
    def clock(self) -> Clock:
        """The work that is left for programs."""
        return self.effort.start()

    @cached_property
    def is_closed(self) -> bool:
        """Whether formulas and flows are sharp for these totals."""
        return is_closed(self.counts)

    @cached_property
    def narrowing(self) -> Narrowing:
        """What follows step by step; the crossing takes part where it is small enough."""
        crossing = self.counts.crossing
        small = self.counts.grid.count_margin_cells(crossing) <= self.effort.cells
        return Narrowing.from_counts(self.counts, [crossing] if small else [])

    def bound(self, view: View) -> Bounds:
        """Return what each cell of a view lies between."""
        if view not in self._kept:
            self._kept[view] = self._bound(view, None)
        return self._kept[view]

    def bound_cells(self, view: View, cells: Iterable[int]) -> Bounds:
        """Return bounds of which only those of some cells were worked for."""
        if view in self._kept and self._kept[view].method != "steps":
            return self._kept[view]
        chosen = set(cells)
        if view not in self._partial or not chosen <= self._partial[view][0]:
            self._partial[view] = chosen, self._bound(view, sorted(chosen))
        return self._partial[view][1]

    def recall(self, view: View, cell: int) -> Bounds:
        """Return the best bounds of a cell that were worked out, or work for it alone."""
        if view in self._partial and cell in self._partial[view][0]:
            return self._partial[view][1]
        return self._kept[view] if view in self._kept else self.bound_cells(view, [cell])

    def _bound(self, view: View, cells: Iterable[int] | None) -> Bounds:
        exact = self.counts.find_exact(view)
        if exact is not None:
            return Bounds(view, exact, exact, exact, exact, "published")
        if self.is_closed:
            closed = close_bounds(self.counts, view)
            if closed is not None:
                return closed
        program = self.find_program(view)
        most = self.effort.crossing if cells is None else self.effort.columns
        if program is not None and program.size <= most:
            return program.bound(view, cells, self.progress)
        return self._bound_by_steps(view)

    def find_program(self, view: View) -> Program | None:
        """Return the program for the cells of a view; None where it is too large."""
        program = Program(self.counts, self.narrowing, view, self.clock)
        # All cliques together serve every view within one of them.
        several = len(program.blocks) > 1
        key = tuple(-1 for _ in view) if several else program.blocks[0]
        program = self._programs.setdefault(key, program)
        cells = sum(self.counts.grid.count_margin_cells(block) for block in program.blocks)
        if cells > LARGEST_ARRAY or program.size > self.effort.columns:
            return None
        return program

    def _bound_by_steps(self, view: View) -> Bounds:
        """Outer bounds from sums and differences; no table is in hand."""
        grid = self.counts.grid
        further = view if grid.count_margin_cells(view) <= self.effort.cells else None
        narrowed = self.narrowing
        if further is not None and further not in narrowed.lower:
            narrowed = Narrowing.from_counts(self.counts, [further])
        shape = grid.compute_margin_shape(view)
        lower = np.zeros(shape, dtype=np.int64)
        upper = np.full(shape, UNBOUNDED, dtype=np.int64)
        if view in narrowed.lower:
            lower, upper = narrowed.lower[view], narrowed.upper[view]
        else:
            for other, most in narrowed.upper.items():
                if is_within_view(other, view):
                    upper = np.minimum(upper, grid.spread(most, other, view))
        return Bounds(view, lower, upper, upper + 1, lower - 1, "steps")

    def find_support(self, view: View) -> Mask:
        """Return the cells that hold a record in some conforming table, as far as is known."""
        whole = self.counts.crossing
        if view in self._kept or self.is_closed or whole not in self._kept:
            return np.asarray(self.bound(view).upper > 0)
        if not is_within_view(view, whole):
            return np.asarray(self.bound(join(view, whole)).upper > 0)
        # A sum is 0 exactly where all its cells are.
        return np.asarray(self.counts.grid.sum(self._kept[whole].upper > 0, view, whole) > 0)
