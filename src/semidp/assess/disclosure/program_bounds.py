"""Bounds by programs: linear programs for what must hold, integer tables for what can.

Columns are the cells that can hold a record, rows the published sums. A linear program is solved
from the solution of the last one, and its dual is checked in whole numbers. Every integer table
that is found shows what all cells can be; where a bound is still not attained, CP-SAT decides in
whole numbers.

`ConformingTables` are the tables that agree with everything published. They use the cheapest method
for a bound: a formula, a flow, steps of arithmetic, or programs, within their `Effort`. Whatever is
not settled is marked, never guessed.
"""

import math
import time
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from attrs import define, field, frozen

from semidp.assess.disclosure.closed_bounds import LARGEST_ARRAY, Bounds, close_bounds, is_closed
from semidp.assess.disclosure.published_counts import (
    CONTRADICTION,
    UNBOUNDED,
    Narrowing,
    PublishedCounts,
)
from semidp.errors import DataError
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.margins import (
    Counts,
    Mask,
    View,
    is_within_view,
    join,
    junction_order,
    meet,
)

_MOST_DENOMINATOR = 12
_TOLERANCE = 1e-6


@frozen
class Effort:
    """The limit of work for bounds; without `seconds` it does not depend on the machine.

    Parameters
    ----------
    cells
        The largest table whose cells are all examined.
    views
        The most tables of groups and values to examine.
    columns
        The most cells of a program for single cells.
    crossing
        The most cells of a program for all of its cells.
    solves
        The most linear programs.
    search
        The work of CP-SAT in its own units, about seconds: the same on every machine.
    seconds
        An additional time limit.
    """

    cells: int = 2**20
    views: int = 256
    columns: int = 200_000
    crossing: int = 8_000
    solves: int = 1_000_000
    search: float = 1_000.0
    seconds: float | None = None

    def start(self) -> "Clock":
        """Return a clock that counts the work."""
        return Clock(self, time.monotonic())


QUICK = Effort(cells=2**16, views=64, columns=600, crossing=600, solves=1_200, search=1.0)
"""For pages and notices: quick, and the same on every machine."""


@define
class Clock:
    """The remaining work."""

    effort: Effort
    began: float
    solves: int = 0
    searched: float = 0.0

    @property
    def seconds_left(self) -> float | None:
        """The time that is left, if it is limited."""
        if self.effort.seconds is None:
            return None
        return self.effort.seconds - (time.monotonic() - self.began)

    @property
    def is_over(self) -> bool:
        """Whether no work is left."""
        left = self.seconds_left
        return self.solves >= self.effort.solves or (left is not None and left <= 0)

    @property
    def search_left(self) -> float:
        """The work of CP-SAT that is left."""
        return 0.0 if self.is_over else self.effort.search - self.searched


@frozen
class Certificate:
    """Published numbers that prove a bound, each with a factor over a common denominator.

    The bound is ``Σ factor · number / denominator``, rounded to the inside.
    """

    terms: tuple[tuple[int, View, int, int], ...]
    denominator: int
    value: Fraction


@frozen(eq=False)
class _ProgramRows:
    """Rows of a program: sums of columns, the cell that each is of (-1: none), and its bounds."""

    matrix: Any
    names: list[tuple[View, int]]
    lower: Counts
    upper: Counts
    gap: Counts


@define(slots=False, eq=False)
class Program:
    """The conforming tables as whole numbers that satisfy linear equations.

    Parameters
    ----------
    counts
        What is published.
    narrowed
        Bounds that hold already.
    asked
        The finest view whose cells will be requested; if it lies within a published table and the
        margins are decomposable, one block of columns per table is enough.
    """

    counts: PublishedCounts
    narrowed: Narrowing
    asked: View
    clock: Clock
    seen: list[Counts] = field(factory=list)

    @cached_property
    def blocks(self) -> list[View]:
        """The tables whose cells are columns: all cliques in junction order, or one crossing."""
        cliques = junction_order(self.counts.cliques)
        zeros = self.counts.schema.structural_zeros
        needed = [self.asked, *(self.counts.schema.view(dict(zero.levels)) for zero in zeros)]

        def is_inside(view: View) -> bool:
            return any(is_within_view(view, clique) for clique in self.counts.cliques)

        if cliques is not None and all(map(is_inside, needed)):
            return cliques
        return [join(self.counts.crossing, *needed)]

    @property
    def size(self) -> int:
        """The number of columns."""
        return self._starts[-1]

    @cached_property
    def _cells(self) -> list[Counts]:
        """The flat cells of each block that can hold a record."""
        grid = self.counts.grid
        open_by_view = []
        for block in self.blocks:
            open_cells = self.counts.possible(block)
            for view, upper in self.narrowed.upper.items():
                if is_within_view(view, block):
                    open_cells = open_cells & (grid.spread(upper, view, block) > 0)
            open_by_view.append(np.flatnonzero(open_cells))
        return open_by_view

    @cached_property
    def _starts(self) -> list[int]:
        sizes = [0, *(len(cells) for cells in self._cells)]
        return [int(start) for start in np.cumsum(sizes)]

    @cached_property
    def _system(self) -> _ProgramRows:
        """What the columns must satisfy: published sums, and what blocks share."""
        from scipy import sparse

        grid = self.counts.grid
        parts: list[_ProgramRows] = []
        for table in self.counts.tables:
            gap = np.zeros(table.lower.shape, dtype=np.int64) if table.gap is None else table.gap
            lower, upper = table.lower.ravel(), table.upper.ravel()
            told = np.flatnonzero((lower > 0) | (upper < UNBOUNDED) | (gap.ravel() > 0))
            names = [(table.view, int(cell)) for cell in told]
            matrix = self.locate(table.view)[told]
            parts.append(_ProgramRows(matrix, names, lower[told], upper[told], gap.ravel()[told]))
        for place, block in enumerate(self.blocks[1:], start=1):
            shared = meet(block, join(*self.blocks[:place]))
            parent = next(
                earlier for earlier in range(place) if is_within_view(shared, self.blocks[earlier])
            )
            matrix = self._sum_block(place, shared) - self._sum_block(parent, shared)
            zeros = np.zeros(grid.count_margin_cells(shared), dtype=np.int64)
            parts.append(_ProgramRows(matrix, [(shared, -1)] * len(zeros), zeros, zeros, zeros))
        return _ProgramRows(
            sparse.csr_array(sparse.vstack([part.matrix for part in parts])),
            [name for part in parts for name in part.names],
            np.concatenate([part.lower for part in parts]),
            np.concatenate([part.upper for part in parts]),
            np.concatenate([part.gap for part in parts]),
        )

    def locate(self, view: View) -> Any:
        """Return the matrix that sums columns to the cells of a view."""
        for place, block in enumerate(self.blocks):
            if is_within_view(view, block):
                return self._sum_block(place, view)
        raise ValueError("the program has no block for this view")

    def _sum_block(self, place: int, view: View) -> Any:
        from scipy import sparse

        cells = self._cells[place]
        labels = self.counts.grid.labels(view, self.blocks[place])[cells]
        columns = self._starts[place] + np.arange(len(cells))
        shape = (self.counts.grid.count_margin_cells(view), self._starts[-1])
        return sparse.csr_array((np.ones(len(cells), dtype=np.int64), (labels, columns)), shape)

    # --- linear programs --------------------------------------------------------------------------

    @cached_property
    def _linear(self) -> Any:
        from ortools.linear_solver import pywraplp

        solver = pywraplp.Solver.CreateSolver("GLOP")
        system = self._system
        rows = system.matrix
        columns = [solver.NumVar(0, solver.infinity(), "") for _ in range(rows.shape[1])]
        constraints = []
        for row in range(rows.shape[0]):
            high = float(self._system.upper[row])
            high = solver.infinity() if high >= UNBOUNDED else high
            constraint = solver.Constraint(float(self._system.lower[row]), high)
            for place in range(rows.indptr[row], rows.indptr[row + 1]):
                constraint.SetCoefficient(columns[rows.indices[place]], float(rows.data[place]))
            constraints.append(constraint)
        return solver, columns, constraints

    def _solve_linear(
        self, chosen: Counts, sense: int
    ) -> tuple[Fraction, Certificate | None] | None:
        """Return an outer bound of a sum of columns, at least (sense 1) or at most (-1), with its
        proof; None if there is none.
        """
        from ortools.linear_solver import pywraplp

        solver, columns, constraints = self._linear
        objective = solver.Objective()
        objective.Clear()
        for column in chosen:
            objective.SetCoefficient(columns[column], float(sense))
        objective.SetMinimization()
        self.clock.solves += 1
        status = solver.Solve()
        if status == pywraplp.Solver.INFEASIBLE and not self.seen:
            self.search(None, sense)  # in whole numbers: refuses what contradicts itself
        if status != pywraplp.Solver.OPTIMAL:
            return None
        solution = np.array([column.solution_value() for column in columns])
        whole = np.rint(solution).astype(np.int64)
        if np.abs(solution - whole).max(initial=0.0) < _TOLERANCE:
            self._remember(whole)
        duals = np.array([constraint.dual_value() for constraint in constraints])
        certificate = self._certify(duals, chosen, sense)
        if certificate is not None:
            return sense * certificate.value, certificate
        # Without an exact proof the solver's tolerance is given away.
        value = objective.Value()
        slack = _TOLERANCE * (1 + abs(value)) + 1e-9 * float(self._system.lower.max(initial=0))
        return sense * Fraction(value - slack), None

    def _certify(self, duals: Any, chosen: Counts, sense: int) -> Certificate | None:
        """Return the proof that a dual solution is, checked in whole numbers."""
        costs = np.zeros(self._system.matrix.shape[1], dtype=np.int64)
        costs[chosen] = sense
        for denominator in range(1, _MOST_DENOMINATOR + 1):
            scaled = duals * denominator
            factors = np.rint(scaled).astype(np.int64)
            if np.abs(scaled - factors).max(initial=0.0) > 1e-5 * denominator:
                continue
            reduced = denominator * costs - self._system.matrix.T @ factors
            used = np.flatnonzero(factors)
            numbers = np.where(factors > 0, self._system.lower, self._system.upper)[used]
            if (reduced < 0).any() or (numbers >= UNBOUNDED).any():
                continue
            terms = []
            for row, number in zip(used.tolist(), numbers.tolist(), strict=True):
                view, cell = self._system.names[row]
                terms.append((int(factors[row]), view, cell, int(number)))
            total = sum(factor * number for factor, _, _, number in terms)
            return Certificate(tuple(terms), denominator, Fraction(total, denominator))
        return None

    def prove(self, view: View, cell: int, sense: int) -> Certificate | None:
        """Return the published numbers that prove an outer bound of a cell."""
        if self.clock.is_over:
            return None
        solution = self._solve_linear(self._columns(self.locate(view), cell), sense)
        return None if solution is None else solution[1]

    @staticmethod
    def _columns(sums: Any, cell: int) -> Counts:
        return np.asarray(sums.indices[sums.indptr[cell] : sums.indptr[cell + 1]])

    def _remember(self, table: Counts) -> None:
        """Keep an integer table if it conforms, which is checked in whole numbers."""
        if self._conforms(table):
            self.seen.append(table)

    def _conforms(self, table: Counts) -> bool:
        sums = self._system.matrix @ table
        in_gap = (self._system.gap > 0) & (sums > 0) & (sums < self._system.gap)
        within = (sums >= self._system.lower) & (sums <= self._system.upper)
        return bool((table >= 0).all() and within.all() and not in_gap.any())

    # --- whole numbers ----------------------------------------------------------------------------

    @cached_property
    def _integer(self) -> Any:
        from ortools.sat.python import cp_model

        model = cp_model.CpModel()
        system = self._system
        rows = system.matrix
        top = np.minimum(self._system.upper, UNBOUNDED)
        # A cell is at most the least published sum that holds it.
        limits = np.full(rows.shape[1], UNBOUNDED, dtype=np.int64)
        for row in range(rows.shape[0]):
            if self._system.names[row][1] >= 0:
                held = rows.indices[rows.indptr[row] : rows.indptr[row + 1]]
                limits[held] = np.minimum(limits[held], top[row])
        columns = [model.new_int_var(0, int(limit), "") for limit in limits]
        for row in range(rows.shape[0]):
            span = slice(rows.indptr[row], rows.indptr[row + 1])
            weights = rows.data[span].tolist()
            total = cp_model.LinearExpr.weighted_sum(
                [columns[column] for column in rows.indices[span]], weights
            )
            low, high = int(self._system.lower[row]), int(top[row])
            gap = int(self._system.gap[row])
            if gap:
                domain = cp_model.Domain.from_intervals([[0, 0], [gap, high]])
                model.add_linear_expression_in_domain(total, domain)
            if low > 0 or high < UNBOUNDED:
                model.add_linear_constraint(total, low, high)
        return model, columns

    def search(self, chosen: Counts | None, sense: int) -> tuple[int, int] | None:
        """Return the best value of a sum that was found, and a proven bound of it; None if none
        was found in the time that is left.
        """
        from ortools.sat.python import cp_model

        if self.clock.search_left <= 0:
            return None
        model, columns = self._integer
        model.clear_objective()
        if chosen is not None:
            objective = cp_model.LinearExpr.sum([columns[column] for column in chosen])
            (model.minimize if sense > 0 else model.maximize)(objective)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        # The presolve of ortools 9 aborts the whole process on a rare small model, and is no
        # faster here.
        solver.parameters.cp_model_presolve = False
        solver.parameters.random_seed = 1
        solver.parameters.max_deterministic_time = self.clock.search_left
        left = self.clock.seconds_left
        if left is not None:
            solver.parameters.max_time_in_seconds = max(left, 0.01)
        status = solver.solve(model)
        self.clock.searched += solver.response_proto.deterministic_time
        if status == cp_model.INFEASIBLE:
            raise DataError(CONTRADICTION)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        table = np.array([solver.value(column) for column in columns], dtype=np.int64)
        self._remember(table)
        if chosen is None:
            return 0, 0
        best = int(table[chosen].sum())
        proven = best if status == cp_model.OPTIMAL else round(solver.best_objective_bound)
        return best, proven

    # --- bounds -----------------------------------------------------------------------------------

    def bound(
        self, view: View, cells: Iterable[int] | None = None, progress: Progress = silent
    ) -> Bounds:
        """Return the bounds of the cells of a view; of some alone, where these are given."""
        grid = self.counts.grid
        shape = grid.compute_margin_shape(view)
        sums = self.locate(view)
        lower, upper = self._start(view)
        least = np.full(lower.shape, UNBOUNDED, dtype=np.int64)
        most = np.full(lower.shape, -1, dtype=np.int64)
        shown = 0
        chosen = list(range(len(lower))) if cells is None else list(cells)

        def look() -> None:
            """Take in the integer tables that were found since the last time."""
            nonlocal shown
            for table in self.seen[shown:]:
                values = np.minimum(sums @ table, UNBOUNDED)
                np.minimum(least, values, out=least)
                np.maximum(most, values, out=most)
            shown = len(self.seen)

        # One table first: it shows that there is one, and what many cells can be.
        if not self.seen:
            self.search(None, 1)
        look()
        for place, (cell, sense) in enumerate((c, s) for s in (1, -1) for c in chosen):
            progress("bounding cells", place, 2 * len(chosen))
            ends, seen = (lower, least) if sense > 0 else (upper, most)
            if ends[cell] == seen[cell] or self.clock.is_over:
                continue
            solution = self._solve_linear(self._columns(sums, cell), sense)
            look()
            if solution is None:
                continue
            if sense > 0:
                lower[cell] = max(lower[cell], math.ceil(solution[0]))
            else:
                upper[cell] = min(upper[cell], math.floor(solution[0]))
        for place, (cell, sense) in enumerate((c, s) for s in (1, -1) for c in chosen):
            progress("looking for tables", place, 2 * len(chosen))
            ends, seen = (lower, least) if sense > 0 else (upper, most)
            if ends[cell] == seen[cell]:
                continue
            searched = self.search(self._columns(sums, cell), sense)
            look()
            if searched is not None and sense > 0:
                lower[cell] = max(lower[cell], searched[1])
            elif searched is not None:
                upper[cell] = min(upper[cell], searched[1])
        # Nothing was found: no table is in hand, and neither end is attained.
        none = most < 0
        least = np.where(none, upper + 1, least)
        most = np.where(none, lower - 1, most)
        low, high, seen_low, seen_high = (
            values.reshape(shape) for values in (lower, upper, least, most)
        )
        return Bounds(view, low, high, seen_low, seen_high, "program")

    def _start(self, view: View) -> tuple[Counts, Counts]:
        """The bounds of a view that follow step by step."""
        grid = self.counts.grid
        lower = np.zeros(grid.compute_margin_shape(view), dtype=np.int64)
        upper = np.where(self.counts.possible(view), UNBOUNDED, 0).astype(np.int64)
        for other in self.narrowed.lower:
            if other == view or is_within_view(view, other):
                low = grid.sum(self.narrowed.lower[other], view, other)
                high = np.minimum(grid.sum(self.narrowed.upper[other], view, other), UNBOUNDED)
                lower, upper = np.maximum(lower, low), np.minimum(upper, high)
            elif is_within_view(other, view):
                upper = np.minimum(upper, grid.spread(self.narrowed.upper[other], other, view))
        return np.array(lower).ravel(), np.array(upper).ravel()

    def find_tables(self, view: View, cell: int) -> list[Counts]:
        """Return two conforming tables of the first block that differ in a cell, if they are in
        hand.
        """
        sums = self.locate(view)
        chosen = self._columns(sums, cell)
        tables: dict[int, Counts] = {}
        for table in self.seen:
            tables.setdefault(int(table[chosen].sum()), table)
        if len(tables) < 2:
            return []
        return [tables[min(tables)], tables[max(tables)]]

    def list_cells(self, table: Counts) -> Iterator[tuple[View, int, int]]:
        """Yield the block, the cell and the count of everything in a table that is not empty."""
        for place, block in enumerate(self.blocks):
            part = table[self._starts[place] : self._starts[place + 1]]
            for cell, count in zip(self._cells[place].tolist(), part.tolist(), strict=True):
                if count:
                    yield block, cell, count


MOST_TABLES = 500
"""The most published tables that can be combined."""


@define(slots=False, eq=False)
class ConformingTables:
    """All tables of counts that agree with what is published.

    Parameters
    ----------
    counts
        What is published.
    effort
        The limit of work for programs, over all questions.
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
    effort: Effort = field(factory=Effort)
    progress: Progress = silent
    _kept: dict[View, Bounds] = field(factory=dict, init=False)
    _partial: dict[View, tuple[set[int], Bounds]] = field(factory=dict, init=False)
    _programs: dict[View, Program] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
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
        """Return bounds on each cell of a view."""
        if view not in self._kept:
            self._kept[view] = self._bound(view, None)
        return self._kept[view]

    def bound_cells(self, view: View, cells: Iterable[int]) -> Bounds:
        """Return bounds, computed with effort only for some cells."""
        if view in self._kept and self._kept[view].method != "steps":
            return self._kept[view]
        chosen = set(cells)
        if view not in self._partial or not chosen <= self._partial[view][0]:
            self._partial[view] = chosen, self._bound(view, sorted(chosen))
        return self._partial[view][1]

    def recall(self, view: View, cell: int) -> Bounds:
        """Return the best known bounds of a cell, or compute them."""
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
        """Return the program for the cells of a view; None if it is too large."""
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
