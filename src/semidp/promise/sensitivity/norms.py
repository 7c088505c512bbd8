"""The choice of method for the norms of a released table, and whether they are
attained.

Norms are exact by record patterns if the margins allow it, else by listing a small dataspace; else
they are a certified bound, which is exact after all if a known move attains it. The methods
themselves are in `patterns` and `moves`.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from attrs import field, frozen

from semidp.errors import Refused
from semidp.promise.schema.margins import (
    LARGEST_MASK,
    Counts,
    Grid,
    Mask,
    Totals,
    View,
    finest,
    is_within_view,
    join,
    meet,
    trimmed_view,
    variables,
)
from semidp.promise.sensitivity.moves import ListedTables, cube_move, four_cell_move
from semidp.promise.sensitivity.patterns import LARGEST_A, BlockTable, Norms, certified_norms
from semidp.promise.sensitivity.probes import SelfCheckError, draw_exchanges
from semidp.promise.spaces.dataspace import Dataspace
from semidp.promise.spaces.exchange_blocks import Blocks
from semidp.promise.spaces.structure import Structure

LARGEST_PROGRAM = 20_000  # cells of a table that an integer program looks for


@frozen(eq=False)
class TableNorms:
    """Norms of a released table's sensitivity space, and how they were found.

    Parameters
    ----------
    norms
        Δ1, Δ2² and Δ∞, or upper bounds of them.
    exact
        Whether some pair of adjacent datasets attains them.
    method
        The name of the method, for the report.
    move
        A difference of adjacent tables that attains Δ2, where one is known.
    only
        The released table itself, where the published statistics allow a single one.
    """

    norms: Norms
    exact: bool
    method: str
    move: Counts | None = field(default=None, repr=False)
    only: Counts | None = field(default=None, repr=False)

    def repeat_moves(self, times: int) -> "TableNorms":
        """Return the norms for `times` moves in a row: upper bounds, since t may not hold all of
        them.

        >>> TableNorms(Norms(4, 8, 2), True, "closed form").repeat_moves(5)
        TableNorms(norms=Norms(l1=20, l2_squared=200, linf=10), exact=False, method='5 times the
        closed form')
        """
        if times == 1:
            return self
        move = None if self.move is None else times * self.move
        method = f"{times} times the {self.method}"
        return TableNorms(self.norms.multiply(times), False, method, move, self.only)


@frozen(slots=False, eq=False)
class ReleasedTable:
    """A table to be released: its view of the schema, and the margins of it that follow from what
    is published.

    `visible` and `grid` are those of the released table: features that it does not have are left
    out.
    """

    dataspace: Dataspace
    structure: Structure
    released: View
    visible: tuple[Totals, ...]

    @classmethod
    def from_dataspace(cls, dataspace: Dataspace, released: View) -> "ReleasedTable":
        """Restrict what is published to the released features."""
        structure = Structure.from_dataspace(dataspace)
        visible = []
        for total in finest(structure.grid, structure.margins, lambda view: meet(view, released)):
            visible.append(Totals(trimmed_view(total.view, released), total.counts))
        return cls(dataspace, structure, released, tuple(visible))

    @cached_property
    def grid(self) -> Grid:
        """The cells of the released table."""
        return self.structure.grid.coarsen(self.released)

    @cached_property
    def blocks(self) -> BlockTable | None:
        """The released table as blocks of counts, if its margins are disjoint apart from a common
        part.
        """
        return BlockTable.from_margins(self.grid, self.visible, self.structure.n, self.possible)

    @cached_property
    def possible(self) -> Mask | None:
        """Mask of the cells of the released table that its own structural zeros allow; None if
        all are.
        """
        schema = self.structure.schema
        return schema.restrict(schema.list_view_names(self.released)).possible

    @cached_property
    def varying(self) -> frozenset[tuple[int, int]]:
        """Each (feature, depth) of the released table that has a choice."""
        return self.structure.varying & variables(self.released)

    def certify_norms(self, a: int, margins: Sequence[Totals], even: bool = False) -> Norms:
        """Return the bound on the norms for a records that the pattern of margins alone gives."""
        sets = [variables(margin.view) & self.varying for margin in margins]
        return certified_norms(a, self.varying, sets, even)

    @property
    def lifts(self) -> bool:
        """Whether every move of the released table that its own margins allow comes from a move of
        the records.

        True if no structural zero interferes, and the whole table is released or the margins are
        disjoint apart from a common part that is released: the features that are left out can then
        always be filled in, block by block.
        """
        if self.structure.zeros_matter:
            return False
        if self.released == self.structure.grid.full:
            return True
        common = self.structure.common
        return common is not None and is_within_view(common, self.released)

    def realisable(self, move: Counts) -> bool:
        """Whether t allows a move: some table of D_t holds the records that vanish.

        For decomposable margins each margin of them must be at most t; else an integer program
        looks for the table.
        """
        if self.possible is not None and move[~self.possible].any():
            return False
        # the records that vanish, which some table of D_t must hold
        gone = np.maximum(-move, 0)
        for margin in self.visible:
            if (self.grid.sum(gone, margin.view) > margin.counts).any():
                return False
        return self.structure.decomposable or self._completes(gone)

    def _completes(self, gone: Counts) -> bool:
        """Whether some table of whole numbers holds these records and has the published margins."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        # what is not known to be attained only makes a norm an upper bound
        if gone.size > LARGEST_PROGRAM:
            return False
        views = [margin.view for margin in self.visible]
        operator = self.grid.operator(views, np.ones(self.grid.shape, dtype=bool))
        totals = np.concatenate([margin.counts.ravel() for margin in self.visible])
        solved = milp(
            np.zeros(gone.size),
            constraints=LinearConstraint(operator, totals, totals),
            integrality=np.ones(gone.size, dtype=np.int64),
            bounds=Bounds(gone.ravel(), np.inf),
            options={"time_limit": 10.0},
        )
        if solved.x is None:
            return False
        # The solver works in floats: only a whole table that passes both checks exactly counts.
        table = np.rint(solved.x).astype(np.int64)
        holds_records = (table >= gone.ravel()).all()
        return bool(holds_records and (operator @ table == totals).all())


def find_norms(table: ReleasedTable, a: int) -> TableNorms:
    """Return the norms of S_a of a released table, exact where possible.

    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(
    ...     Schema([Feature("sex", "fm"), Feature("region", "nsw")]), [[1, 2, 3], [4, 5, 6]]
    ... )
    >>> public = Dataspace.from_table(table, [Margin("sex"), Margin("region")])
    >>> found = find_norms(ReleasedTable.from_dataspace(public, (1, 1)), 3)
    >>> found.norms, found.exact, found.method
    (Norms(l1=4, l2_squared=4, linf=1), True, 'record patterns')
    """
    # no more records can differ than there are
    a = min(a, table.structure.n)
    result = _search(table, a)
    # A lower and an upper bound that share no step with the search hold it in between.
    if result.norms.most(_probe_norms(table, a)) != result.norms:
        raise SelfCheckError(
            "records that keep every exact total move the table by more than its norms"
        )
    upper = table.certify_norms(a, table.structure.margins, _even(table))
    if result.exact and result.norms.least(upper) != result.norms:
        raise SelfCheckError("the norms of a table are above what is proved for so many records")
    return result


def _probe_norms(table: ReleasedTable, a: int) -> Norms:
    """What drawn exchanges of at most a records attain: a lower bound that shares no step with the
    search.

    Exchanges of so many records are pairs of A_a. None are drawn where margins overlap or
    structural zeros exist.
    """
    if table.structure.schema.structural_zeros:
        return Norms(0, 0, 0)
    try:
        blocks = Blocks.from_dataspace(table.dataspace)
    except Refused:
        return Norms(0, 0, 0)
    return draw_exchanges(blocks, table.released).limit_records(a).norms


def _search(table: ReleasedTable, a: int) -> TableNorms:
    structure = table.structure
    open_part = structure.canonical(table.released)
    published = any(is_within_view(open_part, margin.view) for margin in structure.margins)
    if published or not any(open_part):
        return TableNorms(Norms(0, 0, 0), True, "the published statistics fix the table")
    upper = table.certify_norms(a, structure.margins, _even(table))
    blocks = table.blocks
    if blocks is not None and a <= LARGEST_A:
        norms, move = blocks.norms(a)
        sure = blocks.free_everywhere or not blocks.free
        if table.lifts and sure and not (structure.schema.structural_zeros and blocks.free):
            return TableNorms(norms, True, "record patterns", move)
        upper = upper.least(norms)
    tables = ListedTables.from_dataspace(table.dataspace, table.released)
    if tables is not None:
        norms, move = tables.norms(a)
        return TableNorms(norms, True, "listing of all tables", move, tables.only)
    # No method is exact here: a bound is, after all, if some move attains it.
    attained, move = _find_attained_norms(table, a)
    return TableNorms(upper, attained == upper, "certified bound", move)


def _even(table: ReleasedTable) -> bool:
    """Whether the positive part is always even: two disjoint blocks that cover the table, one of
    them of two levels.
    """
    structure, varying = table.structure, table.varying
    sets = [variables(margin.view) & varying for margin in structure.margins]
    published = [variable for part in sets for variable in part]
    disjoint = len(published) == len({*published})
    if sum(map(bool, sets)) != 2 or not disjoint or not varying <= {*published}:
        return False
    levels = []
    for margin, part in zip(structure.margins, sets, strict=True):
        if part:
            visible = margin.sum_to_view(structure.grid, meet(margin.view, table.released))
            levels.append(visible.levels)
    return min(levels) == 2


def _find_attained_norms(table: ReleasedTable, a: int) -> tuple[Norms, Counts | None]:
    """Norms that known moves attain, and the move with the largest Δ2: a small pattern, repeated.

    Where moves of the released table need not come from moves of the records, a larger table is
    tried: with the common part of the margins, or with all features.
    """
    structure = table.structure
    more = structure.common
    if more is None or structure.schema.structural_zeros:
        more = structure.grid.full
    whole = ReleasedTable.from_dataspace(table.dataspace, join(table.released, more))
    best, widest = Norms(0, 0, 0), None
    largest = max(LARGEST_MASK, math.prod(table.grid.shape))
    if not whole.lifts or math.prod(whole.grid.shape) > largest:
        return best, widest
    shown = trimmed_view(table.released, whole.released)
    for move in _known_moves(whole, a):
        if whole.realisable(move):
            released = whole.grid.sum(move, shown).reshape(table.grid.shape)
            norms = Norms.from_vectors(released[None])
            if norms.l2_squared > best.l2_squared:
                widest = released
            best = best.most(norms)
    return best, widest


def _known_moves(table: ReleasedTable, a: int) -> Iterator[Counts]:
    """Moves that are easy to write down, repeated as often as a records allow."""
    blocks = table.blocks
    if blocks is not None:
        # A pattern counts on a free feature at every level, or on none at all.
        sure = blocks.free_everywhere or not blocks.free
        largest = min(a, LARGEST_A) if sure else 0
        for s in range(1, largest + 1):
            move = blocks.norms(s)[1]
            if move is not None:
                yield move * (a // s)
    elif table.released == table.structure.grid.full:
        simplest = four_cell_move if table.structure.decomposable else cube_move
        move = simplest(table.grid, table.visible)
        if move is not None:
            records = int(np.maximum(move, 0).sum())
            yield move * (a // records)
