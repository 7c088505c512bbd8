"""Norms of a released table under exchange adjacency: closed forms, and exact values by agreement
patterns.

An exchange is ``e_y - e_x + Σ_j (e_{r_j'} - e_{r_j})``, with the records that `described_moves`
describes. For each block, and for all unpublished features together, the search chooses which
records agree there; two records fall into one cell of the table if they agree everywhere. So the
search runs over agreements, never over cells.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import islice, product
from operator import mul

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.promise.schema.margins import Counts, Totals, View, list_axes, meet
from semidp.promise.sensitivity.described_moves import (
    ALTERNATIVE,
    Block,
    ExchangeMove,
    Handover,
    list_exchanges,
)
from semidp.promise.sensitivity.norms import ReleasedTable, TableNorms
from semidp.promise.sensitivity.patterns import LARGEST_A, Norms
from semidp.promise.sensitivity.probes import Probes, SelfCheckError, draw_exchanges
from semidp.promise.spaces.exchange_blocks import Blocks

_MOST_PATTERNS = 2_000_000  # combinations of agreements that are looked at: a few seconds
_MOST_ASSIGNMENTS = 2_000_000  # ways to place the records of an exchange in one block
_MOST_MOVES = 20_000_000  # combinations of records that are listed, times cells: a few seconds
_MOST_LEVELS = 4_096  # of what nobody publishes, where exchanges are listed
_CHUNK = 2**24  # cells of tables held at once
_MOST_BLOCKS = 8  # whose exchanges are listed one by one
_MOST_CELLS = 40  # of a joint block that is seen below what is published of it

Value = tuple[int, ...]  # what the table sees of a record in a block: an offset for each feature
Values = tuple[Value, ...]  # of the person before and after, then of each other record


@frozen(eq=False)
class SeenBlock:
    """One published block as a released table sees it; or all that lies in no block, as one cell.

    Parameters
    ----------
    axes
        Its features, as exchanges name them: one for the whole block where the table sees no more
        of it than is published.
    depths
        The published depth of each; none for what lies in no block.
    counts
        The published counts of its cells; only cells with records are listed.
    nodes
        For each cell the published node of each feature.
    seen
        For each cell and feature the offsets in the flat table that a record there can have: one
        unless the table is finer.
    """

    axes: tuple[int, ...]
    depths: tuple[int, ...]
    counts: tuple[int, ...]
    nodes: tuple[Value, ...] = field(repr=False)
    seen: tuple[tuple[tuple[int, ...], ...], ...] = field(repr=False)

    @property
    def published(self) -> Block:
        """The block as exchanges are described."""
        return dict(zip(self.axes, self.depths, strict=True))

    @property
    def alike(self) -> bool:
        """Whether the cells may be permuted."""
        return len(self.axes) == 1

    def first_value(self, cell: int) -> Value:
        """Return what the table sees of the first record that a cell can hold."""
        return tuple(options[0] for options in self.seen[cell])

    @property
    def finer(self) -> bool:
        """Whether the table tells apart records of one cell."""
        return any(len(options) > 1 for cell in self.seen for options in cell)

    def assignments(self, move: ExchangeMove, *, every: bool) -> Iterator[Values]:
        """Yield the values of the records of an exchange in this block: up to renaming, or every
        one of them.

        t must hold all records before the exchange together.
        """
        for cells in self._cells(move, every):
            for seen in self._children(cells, every):
                yield read_letters(move, seen)

    def _kind(self, cell: int, size: int) -> tuple[int, ...]:
        """Key of a cell. Cells with the same key may be permuted: they have the same count and
        numbers of nodes, as far as `size` records can tell.

        Records beyond `size`, and nodes beyond one for each record and one more, change no
        agreement.
        """
        nodes = [min(len(options), size + 1) for options in self.seen[cell]]
        return (min(self.counts[cell], size), *nodes)

    def _cells(self, move: ExchangeMove, every: bool) -> Iterator[tuple[int, ...]]:
        """Yield cells for the letters of an exchange that t can hold."""
        letters, size = move.letters, len(move.records)
        kinds = [self._kind(cell, size) for cell in range(len(self.counts))]
        rules = []
        for rule in move.rules:
            one, other = sorted(map(letters.index, rule.letters))
            rules.append((one, other, self.axes.index(rule.axis), rule.equal))

        def keeps_rules(chosen: tuple[int, ...], cell: int) -> bool:
            for one, other, place, equal in rules:
                if other == len(chosen):
                    same = self.nodes[chosen[one]][place] == self.nodes[cell][place]
                    if same != equal:
                        return False
            return True

        def grow(chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
            if len(chosen) == len(letters):
                yield chosen
                return
            before = [
                cell for letter, cell in zip(letters, chosen, strict=False) if letter != ALTERNATIVE
            ]
            # a cell cannot hold more records before the exchange than t counts there
            full = [before.count(cell) == count for cell, count in enumerate(self.counts)]
            is_before = letters[len(chosen)] != ALTERNATIVE
            fresh = set()
            for cell in range(len(self.counts)):
                if (is_before and full[cell]) or not keeps_rules(chosen, cell):
                    continue
                # Of several unused cells of one kind the first stands for all of them.
                if cell not in chosen and self.alike and not every:
                    if kinds[cell] in fresh:
                        continue
                    fresh.add(kinds[cell])
                yield from grow((*chosen, cell))

        yield from grow(())

    def _children(self, cells: Sequence[int], every: bool) -> Iterator[tuple[Value, ...]]:
        """Yield what the table sees of records in these cells. Children of a node count up to
        renaming, unless `every`.
        """
        width = len(self.axes)
        places = len(cells) * width

        def grow(chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
            if len(chosen) == places:
                yield chosen
                return
            record, axis = divmod(len(chosen), width)
            used = {*chosen[axis::width]}
            new = False
            for child in self.seen[cells[record]][axis]:
                # Children that no record has yet may be renamed: the first of them stands for all.
                if not every and child not in used:
                    if new:
                        continue
                    new = True
                yield from grow((*chosen, child))

        for flat in grow(()):
            starts = range(0, places, width)
            yield tuple(flat[start : start + width] for start in starts)


def read_letters(move: ExchangeMove, seen: Sequence[Value]) -> Values:
    """Return the values of the records of an exchange, given those of its letters."""
    value_of = dict(zip(move.letters, seen, strict=True))
    values = []
    for record in move.records:
        for letters in (record.before, record.after):
            values.append(tuple(value_of[letter][k] for k, letter in enumerate(letters)))
    return tuple(values)


@frozen(slots=False, eq=False)
class ExchangeTable:
    """A released table under exchange adjacency.

    >>> from semidp.promise.spaces.dataspace import Dataspace, Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> schema = Schema([Feature("sex", "fm"), Feature("region", "nsw"), Feature("ill", "yn")])
    >>> public = Dataspace.from_table(
    ...     Table(schema, np.full((2, 3, 2), 5)), [Margin("sex"), Margin("region")]
    ... )
    >>> blocks = Blocks.from_dataspace(public)
    >>> tables = [ReleasedTable.from_dataspace(public, view) for view in ((1, 1, 1), (1, 1, 0))]
    >>> [ExchangeTable(blocks, table).result.norms.l2_squared for table in tables]
    [8, 4]
    """

    blocks: Blocks
    table: ReleasedTable

    @cached_property
    def _strides(self) -> dict[int, int]:
        """For each feature of the table, how far apart two neighboring nodes are in the flat
        table.
        """
        shape = self.table.grid.shape
        axes = enumerate(list_axes(self.table.released))
        return {axis: math.prod(shape[place + 1 :]) for place, axis in axes}

    @cached_property
    def seen_blocks(self) -> tuple[SeenBlock, ...]:
        """The blocks in which the table sees two levels or more."""
        blocks = (self._seen_block(margin) for margin in self.blocks.margins)
        return tuple(block for block in blocks if block is not None)

    def _seen_block(self, margin: Totals) -> SeenBlock | None:
        """One margin as the table sees it; None if the table sees a single level of it."""
        released = self.table.released
        axes = tuple(axis for axis in list_axes(margin.view) if released[axis])
        if not axes:
            return None
        view = margin.view
        if not self._splits(margin.view, axes):
            # What the table does not see of a block is summed away: fewer cells with the same
            # agreements.
            view = meet(margin.view, released)
        counts = self.blocks.structure.grid.sum(margin.counts, view, margin.view)
        positive = tuple(counts[counts > 0].tolist())
        # nobody can hand over another level of a block that has only one
        if len(positive) < 2:
            return None
        features = list_axes(view)
        nodes = [tuple(cell) for cell in np.argwhere(counts).tolist()]
        seen = []
        for cell in nodes:
            places = zip(features, cell, strict=True)
            seen.append(tuple(self._offsets(axis, view[axis], node) for axis, node in places))
        block = SeenBlock(
            features, tuple(view[axis] for axis in features), positive, tuple(nodes), tuple(seen)
        )
        if block.finer or block.alike:
            return block
        # Whoever hands over has x's whole cell then: the cells are the levels of one feature.
        cells = tuple((cell,) for cell in range(len(positive)))
        offsets = []
        for options in seen:
            whole_offset = sum(along_axis[0] for along_axis in options)
            offsets.append(((whole_offset,),))
        return SeenBlock(features[:1], (1,), positive, cells, tuple(offsets))

    def _splits(self, published: View, axes: Iterable[int]) -> bool:
        """Whether the table tells apart records that share a published node of one of the
        features.
        """
        structure, released = self.blocks.structure, self.table.released
        for axis in axes:
            depth = published[axis]
            if (
                released[axis] > depth
                and (structure.branches(axis, released[axis], depth) > 1).any()
            ):
                return True
        return False

    def _offsets(self, axis: int, depth: int, node: int) -> tuple[int, ...]:
        """Offsets in the flat table, from `_start` on, where a record of a published node can be;
        0 for a feature that the table does not have.
        """
        if not self.table.released[axis]:
            return (0,)
        first = self._list_inhabited_nodes(axis)[0]
        in_sight = self._in_sight(axis, depth, node)
        return tuple(self._strides[axis] * (each - first) for each in in_sight)

    def _in_sight(self, axis: int, depth: int, node: int) -> tuple[int, ...]:
        """Nodes at the table's depth where a record of a published node can be.

        Its only ancestor there if the table is coarser than what is published, else its descendants
        that can occur.
        """
        structure, released = self.blocks.structure, self.table.released[axis]
        chain = structure.grid.chains[axis]
        # A coarser table sees one ancestor of the node.
        if released <= depth:
            return (chain.ancestor(depth, node, released),)
        below = chain.slice_descendants(depth, node, released)
        inhabited = structure.inhabited_nodes(axis, released)[below]
        return tuple((below.start + np.flatnonzero(inhabited)).tolist())

    def _levels(self, most: int) -> tuple[int, ...]:
        """Offsets in the flat table of the levels that can occur outside the blocks: the first
        `most` of them.
        """
        released = self.table.released
        every_axis = range(len(released))
        outside = [axis for axis in every_axis if axis not in self.blocks.axes]
        axes = [axis for axis in outside if released[axis]]
        if self._zeros_outside(outside):
            cells = self._possible_levels(axes)
        else:
            inhabited = (self._list_inhabited_nodes(axis) for axis in axes)
            cells = product(*inhabited)
        strides = [self._strides[axis] for axis in axes]
        first_cells = islice(cells, most)
        return tuple(sum(map(mul, cell, strides)) for cell in first_cells)

    def _zeros_outside(self, outside: Iterable[int]) -> bool:
        """Whether a structural zero names a feature outside the blocks."""
        schema = self.blocks.structure.schema
        for zero in schema.structural_zeros:
            view = schema.view(name for name, _ in zero.levels)
            if any(view[axis] for axis in outside):
                return True
        return False

    def _possible_levels(self, axes: Sequence[int]) -> Iterable[Sequence[int]]:
        """Combinations of levels of some features that a record can have."""
        structure = self.blocks.structure
        inhabited = structure.grid.find_inhabited_cells(
            structure.schema.possible, structure.margins
        )
        assert inhabited is not None, "asked beside structural zeros"
        depths = enumerate(self.table.released)
        view = tuple(depth if axis in axes else 0 for axis, depth in depths)
        levels: list[list[int]] = np.argwhere(structure.grid.sum(inhabited, view)).tolist()
        return levels

    def _list_inhabited_nodes(self, axis: int) -> list[int]:
        """Nodes of a feature, at the table's depth, that can hold a record."""
        nodes = self.blocks.structure.inhabited_nodes(axis, self.table.released[axis])
        indices: list[int] = np.flatnonzero(nodes).tolist()
        return indices

    def _parts(self, most: int) -> tuple[SeenBlock, ...]:
        """The blocks in sight, then everything outside of blocks as one part."""
        levels = self._levels(most)
        outside = len(self.table.released)
        n = self.blocks.structure.n
        return (*self.seen_blocks, SeenBlock((outside,), (), (n,), ((0,),), ((levels,),)))

    @cached_property
    def _exchanges(self) -> list[ExchangeMove]:
        """The kinds of exchanges that the blocks in sight and what lies outside can tell apart."""
        blocks = [block.published for block in self.seen_blocks]
        axes = [axis for part in self._parts(1) for axis in part.axes]
        moves = list_exchanges(blocks, axes)
        return [move for move in moves if len(move.records) <= self.blocks.structure.n]

    @property
    def reach(self) -> int:
        """The most records of one exchange that the table can see change."""
        return min(len(self.seen_blocks) + 1, self.blocks.structure.n)

    @cached_property
    def bound(self) -> Norms:
        """Upper bound of the norms: what holds for exchanges with q blocks in sight, and what holds
        for any q+1 records.
        """
        any_records = self.table.certify_norms(self.reach, self.blocks.margins)
        blocks = self.table.blocks
        if blocks is not None and self.reach <= LARGEST_A:
            any_records = any_records.least(blocks.norms(self.reach)[0])
        return self._plain.least(any_records)

    @property
    def _plain(self) -> Norms:
        """``Δ1 <= 2(q+1), Δ2² <= q²+q+2, Δ∞ <= max(1, q)``; with nothing unpublished in sight
        ``q²-q+6`` and ``q-1``.

        Δ2² is 2(q+1) and twice the pairs of records that coincide. Two carriers never coincide both
        before and after: at most q(q-1)/2 pairs. y is none of the carriers afterwards, and x none
        of them before.

        Where the table sees nothing but blocks, q carriers that all coincide before are y, which
        appears: at most ``q²-q+2``. Otherwise let b < q be the most that coincide (before, say).
        Each other one coincides afterwards with at most one of them, so (b-1)(q-b) pairs, at
        least q-2 of them for b > 1, do not coincide at all. Fewer carriers than blocks give at most
        ``q²-q+2`` again, and two carriers 6.
        """
        q = len(self.seen_blocks)
        if not self._blocks_alone:
            return _norms_by_margins(q)
        if q <= 1:
            return Norms(0, 0, 0)
        l2_squared = 6 if q == 2 else q * q - q + 6
        return Norms(2 * (q + 1), l2_squared, q - 1)

    @cached_property
    def _blocks_alone(self) -> bool:
        """Whether the table sees blocks and nothing else, and no block more finely than it is
        published.
        """
        return not any(block.finer for block in self.seen_blocks) and len(self._levels(2)) < 2

    @cached_property
    def result(self) -> TableNorms:
        """The norms, exact if `exact` says so, and a move that attains Δ2.

        They are used only if they lie between what drawn exchanges attain and the proven bound for
        every exchange.
        """
        norms = self._search()
        # Two checks that share no step with the search: drawn exchanges from below, a proof from
        # above.
        if norms.norms.most(self._probes.norms) != norms.norms:
            raise SelfCheckError("an exchange moves the table by more than its norms")
        if norms.norms.least(self._proved_norms) != norms.norms:
            raise SelfCheckError("the norms of a table are above what is proved for exchanges")
        return norms

    @cached_property
    def _probes(self) -> Probes:
        """Some exchanges of this table, drawn by the definition."""
        return draw_exchanges(self.blocks, self.table.released)

    @property
    def _proved_norms(self) -> Norms:
        """``Δ1 <= 2(q+1), Δ2² <= q²+q+2, Δ∞ <= max(1, q)`` for a table with features of q published
        margins.

        `_plain` refines it by what `seen` says of the blocks; this looks at the margins alone.
        """
        touched = [meet(margin.view, self.table.released) for margin in self.blocks.margins]
        return _norms_by_margins(sum(map(any, touched)))

    def _search(self) -> TableNorms:
        nothing_seen = not self.seen_blocks and len(self._levels(2)) < 2
        if self.blocks.structure.n == 0 or nothing_seen:
            return TableNorms(Norms(0, 0, 0), True, "the published statistics fix the table")
        closed = self._closed_form()
        if closed is not None:
            return closed
        listed = self._by_patterns()
        return TableNorms(self.bound, False, "bound for exchanges") if listed is None else listed

    def _closed_form(self) -> TableNorms | None:
        """Norms by a move that attains the bound; None if t does not hold the records of that
        move.

        With something unpublished in sight: q carriers of y's published values, alike in another
        unpublished one. With blocks alone and q >= 3: q-1 carriers r that differ from y only in the
        last block, where they have x's value; the carrier of the last block afterwards is what the
        first of them is.
        """
        placements = self._place_letters()
        if placements is None:
            return None
        blocks, differing = [], []
        values: list[list[Value]] = []
        for block, cells in zip(self.seen_blocks, placements, strict=True):
            x, y = (block.nodes[cell] for cell in cells[:2])
            nodes = zip(block.axes, x, y, strict=True)
            blocks.append(block.published)
            differing.append([axis for axis, ours, theirs in nodes if ours != theirs])
            values.append([block.first_value(cell) for cell in cells])
        # x and y have one unpublished level, all others another
        levels = self._levels(2)
        values.append([levels[:1]] * 2 + [levels[-1:]] * len(blocks))
        parts = self._parts(2)
        axes = tuple(axis for part in parts for axis in part.axes)
        own_carriers: dict[int | None, int] = {number: number for number in range(len(blocks))}
        exchange = Handover(blocks, differing, own_carriers, axes).describe()
        records = []
        for part, mine in zip(parts, values, strict=True):
            records.append(read_letters(exchange.restrict(part.axes), mine))
        move = self._table(records)
        if Norms.from_vectors(move[None]) != self._plain:
            return None
        return TableNorms(self._plain, True, "closed form for exchanges", move)

    def _place_letters(self) -> list[list[int]] | None:
        """Cells of x, y and each carrier, block by block; None if counts are too small."""
        q, alone = len(self.seen_blocks), self._blocks_alone
        if (q < 3) if alone else (len(self._levels(2)) < 2):
            return None
        placements = []
        for number, block in enumerate(self.seen_blocks):
            pair = _rich(block, q, 2 if alone else 1)
            if pair is None:
                return None
            common, rare = pair
            person, carriers = [rare, common], [common] * q
            if alone and number in (0, q - 1):
                carriers[-1] = rare
            if alone and number == q - 1:
                person.reverse()
            placements.append([*person, *carriers])
        return placements

    def _by_patterns(self) -> TableNorms | None:
        """Exact norms: the largest over all agreements of the records of an exchange. None if
        there are too many to look at.
        """
        listed_cells = [len(block.counts) for block in self.seen_blocks if not block.alike]
        if len(self.seen_blocks) > 6 or max(listed_cells, default=0) > _MOST_CELLS:
            return None
        best, widest, work = Norms(0, 0, 0), None, 0
        for move in self._exchanges:
            options = []
            for part in self._parts(len(move.records) + 1):
                along = move.restrict(part.axes)
                option = _agreements(part.assignments(along, every=False))
                if option is None:
                    return None
                options.append(option)
            # Records are one cell where they agree in every part: masks of agreeing pairs are
            # intersected.
            reached: dict[int, tuple[Values, ...]] = {-1: ()}
            for option in options:
                work += len(reached) * len(option)
                if work > _MOST_PATTERNS:
                    return None
                reached = _intersections(reached, option)
            for agreement, parts in reached.items():
                norms = _pattern_norms(agreement, 2 * len(move.records))
                if norms.l2_squared > best.l2_squared:
                    widest = parts
                best = best.most(norms)
        worst = None if widest is None else self._table(widest)
        return TableNorms(best, True, "agreement patterns of exchanges", worst)

    def moves(self) -> Iterator[Counts]:
        """Yield the elements of S without zero, each once; refuse where they are too many to list.

        A caller that takes all of them (for a hull, or costs of residuals) gets a check that no
        drawn exchange is missing.
        """
        listed = set()
        shape = self.table.grid.shape
        for parts in self._choices():
            for move in self._tables(parts):
                for signed in (move, -move):
                    if signed.tobytes() not in listed:
                        listed.add(signed.tobytes())
                        yield signed.astype(np.int64).reshape(shape)
        probes = (move.astype(np.int8).tobytes() for move in self._probes.moves(shape))
        if any(probe not in listed for probe in probes):
            raise SelfCheckError("an exchange is missing from the list of exchanges of a table")

    def _choices(self) -> list[list[list[Values]]]:
        """For each kind of exchange, the values that records can have in each block and outside;
        refused where there are too many.
        """
        parts = self._parts(_MOST_LEVELS + 1)
        cells = math.prod(self.table.grid.shape)
        work, choices = 0, []
        too_many = Refused(
            "the exchanges of this table are too many to list: release fewer features, or use"
            " another mechanism"
        )
        if len(parts[-1].seen[0][0]) > _MOST_LEVELS or len(self.seen_blocks) > _MOST_BLOCKS:
            raise too_many

        @cache
        def options(number: int, along: ExchangeMove) -> list[Values]:
            every = parts[number].assignments(along, every=True)
            return list(islice(every, _MOST_ASSIGNMENTS))

        for move in self._exchanges:
            numbered = enumerate(parts)
            chosen = [options(number, move.restrict(part.axes)) for number, part in numbered]
            sizes = [len(values) for values in chosen]
            work += math.prod(sizes) * cells
            if work > _MOST_MOVES or max(sizes) == _MOST_ASSIGNMENTS:
                raise too_many
            choices.append(chosen)
        return choices

    def _positions(self, parts: Sequence[Sequence[Values]]) -> list[NDArray[np.intp]]:
        """For each part, offsets of all records in the flat table: one row for each choice of
        values.
        """
        positions = []
        for part in parts:
            rows = [list(map(sum, values)) for values in part]
            positions.append(np.array(rows, dtype=np.intp))
        return positions

    @cached_property
    def _start(self) -> int:
        """Offset of the first cell that can hold a record, as far as blocks say so."""
        axes = {*list_axes(self.table.released)} & self.blocks.axes
        return sum(self._list_inhabited_nodes(axis)[0] * self._strides[axis] for axis in axes)

    def _tables(self, parts: Sequence[Sequence[Values]]) -> Iterator[NDArray[np.int8]]:
        """Yield the differences of tables for every choice of values in all parts: flat, and
        without zero.
        """
        if not all(parts):
            return
        size = math.prod(self.table.grid.shape)
        first, *smaller = sorted(self._positions(parts), key=len, reverse=True)
        records = first.shape[1]
        # Cells of the smaller parts in every combination; the largest part is added chunk by chunk.
        combined = np.full((1, records), self._start, dtype=np.intp)
        for position in smaller:
            sums = combined[:, None] + position[None]
            combined = sums.reshape(-1, records)
        step = max(1, _CHUNK // (len(combined) * size))
        for begin in range(0, len(first), step):
            chunk = first[begin : begin + step]
            cells = (chunk[:, None] + combined[None]).reshape(-1, records)
            rows = np.arange(len(cells))
            tables = np.zeros((len(cells), size), dtype=np.int8)
            for record in range(records):
                tables[rows, cells[:, record]] += 1 if record % 2 else -1
            yield from np.unique(tables[tables.any(axis=1)], axis=0)

    def _table(self, parts: Sequence[Values]) -> Counts:
        """Write records, given part by part, as a difference of tables."""
        single_choices = [[part] for part in parts]
        offsets = [position[0] for position in self._positions(single_choices)]
        cells = self._start + sum(offsets)
        signs = np.resize([-1, 1], len(parts[0]))
        result = np.zeros(math.prod(self.table.grid.shape), dtype=np.int64)
        np.add.at(result, cells, signs)
        return result.reshape(self.table.grid.shape)


def _rich(block: SeenBlock, most: int, next_most: int) -> tuple[int, int] | None:
    """The two cells of a block with the largest counts; None unless these are at least `most` and
    `next_most`.
    """
    order = sorted(range(len(block.counts)), key=block.counts.__getitem__, reverse=True)
    first, second = order[:2]
    enough = block.counts[first] >= most and block.counts[second] >= next_most
    return (first, second) if enough else None


def _norms_by_margins(q: int) -> Norms:
    """``Δ1 <= 2(q+1), Δ2² <= q²+q+2, Δ∞ <= max(1, q)``: what q margins in sight allow."""
    return Norms(2 * (q + 1), q * q + q + 2, max(1, q))


def _intersections(
    reached: Mapping[int, tuple[Values, ...]], option: Mapping[int, Values]
) -> dict[int, tuple[Values, ...]]:
    """Combine every agreement of the parts so far with every agreement of one more part; each with
    values that give it.
    """
    agreements = {}
    for so_far, parts in reached.items():
        for mask, values in option.items():
            agreements[so_far & mask] = (*parts, values)
    return agreements


def _agreements(assignments: Iterable[Values]) -> dict[int, Values] | None:
    """Each agreement that occurs, with values that give it; None if assignments are too many.

    A search that was cut short would miss agreements, and call norms exact that are too small.
    """
    agreements = {}
    for number, values in enumerate(assignments):
        if number == _MOST_ASSIGNMENTS:
            return None
        agreements[_agreement(values)] = values
    return agreements


def _agreement(values: Values) -> int:
    """Pairs of records that have equal values, as bits."""
    bits, place = 0, 0
    for i, one in enumerate(values):
        for other in values[:i]:
            bits |= (one == other) << place
            place += 1
    return bits


def _pattern_norms(agreement: int, records: int) -> Norms:
    """Norms of a move, from the pairs of its records that agree in every part. Records at even
    places vanish, those at odd ones appear.
    """
    cells = [0] * records
    for record in range(records):
        # Bits of the pairs (record, earlier) follow each other, record by record.
        bits = agreement >> (record * (record - 1) // 2)
        earlier = (other for other in range(record) if bits >> other & 1)
        first = next(earlier, record)
        cells[first] += 1 if record % 2 else -1
    return Norms.from_vectors(np.array([cells]))
