"""Norms of a released table under exchange adjacency: closed forms, and exact values by agreement patterns.

An exchange is ``e_y - e_x + Σ_j (e_{r_j'} - e_{r_j})``: the person, and a carrier for the blocks in which x and y
differ. Each block, and all unpublished features together, say which of these records agree there; two records are one
cell of the table where all of them say so. So the search runs over agreements, never over cells.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import islice, product
from operator import mul

import numpy as np
from numpy.typing import NDArray

from semidp.core.margins import Counts, meet, named
from semidp.core.spaces.exchange_blocks import Blocks, servings
from semidp.errors import Refused
from semidp.queries.bounds import Norms
from semidp.queries.norms import ReleasedTable, TableNorms
from semidp.queries.patterns import LARGEST_A
from semidp.queries.probes import Probes, SelfCheckError, drawn

_MOST_PATTERNS = 2_000_000  # combinations of agreements that are looked at: a few seconds
_MOST_MOVES = 20_000_000  # combinations of records that are listed, times cells: a few seconds
_MOST_LEVELS = 4_096  # of what nobody publishes, where exchanges are listed
_CHUNK = 2**24  # cells of tables held at once
_MOST_CELLS = 40  # of a joint block that is seen below what is published of it

Value = tuple[int, ...]  # the nodes of a record that the table sees of a block
Values = tuple[Value, ...]  # of x, y and then each carrier before and after


@dataclass(frozen=True, eq=False)
class SeenBlock:
    """One published block as a released table sees it; all that lies in no block is one with a single cell.

    Parameters
    ----------
    axes
        The features of the table that it is about; none for what lies in no block.
    counts
        The published counts of its cells; only cells with records are listed.
    nodes
        For each cell the published node of each feature.
    seen
        For each cell and feature the nodes of the table below it that can occur: one unless the table is finer.
    alike
        Whether the cells may be permuted: a block with one feature, or one that the table sees no finer.
    """

    axes: tuple[int, ...]
    counts: tuple[int, ...]
    nodes: tuple[Value, ...] = field(repr=False)
    seen: tuple[tuple[tuple[int, ...], ...], ...] = field(repr=False)
    alike: bool

    def assignments(self, carriers: int, server: int | None, *, every: bool) -> Iterator[Values]:
        """Iterate over what x, y and the carriers can have here, up to renaming unless `every` is asked for.

        t must hold x and all carriers together. The carrier that serves the block has y's cell and takes x's nodes on
        the features that differ.
        """
        for chosen in self._cells(carriers + 1, server, every):
            x, others = chosen[0], chosen[1:]
            y = x if server is None else others[server]
            for kids in self._children((x, y, *others), every):
                values = [kids[0], kids[1]]
                for number, (cell, own) in enumerate(zip(others, kids[2:], strict=True)):
                    after = own
                    if number == server:
                        differ = [one != other for one, other in zip(self.nodes[x], self.nodes[cell], strict=True)]
                        after = tuple(a if d else b for a, b, d in zip(kids[0], own, differ, strict=True))
                    values += [own, after]
                yield tuple(values)

    def _cells(self, size: int, server: int | None, every: bool) -> Iterator[tuple[int, ...]]:
        """The cells of x and the carriers: within t, and x elsewhere than the carrier that serves."""
        kinds = [
            (min(count, size), tuple(min(len(nodes), size + 1) for nodes in seen))
            for count, seen in zip(self.counts, self.seen, strict=True)
        ]

        def grow(chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
            if len(chosen) == size:
                yield chosen
                return
            fresh = set()
            for cell, count in enumerate(self.counts):
                used = chosen.count(cell)
                if used >= count or (server is not None and len(chosen) == server + 1 and cell == chosen[0]):
                    continue
                if not used and self.alike and not every:
                    if kinds[cell] in fresh:
                        continue
                    fresh.add(kinds[cell])
                yield from grow((*chosen, cell))

        yield from grow(())

    def _children(self, cells: Sequence[int], every: bool) -> Iterator[tuple[Value, ...]]:
        """What the table sees of records in these cells; children of a node up to renaming, unless `every`."""
        places = [(record, axis) for record in range(len(cells)) for axis in range(len(self.seen[0]))]

        def grow(chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
            if len(chosen) == len(places):
                yield chosen
                return
            record, axis = places[len(chosen)]
            options = self.seen[cells[record]][axis]
            new = False
            for child in options:
                if not every and not any(
                    child == other and axis == place[1] for other, place in zip(chosen, places, strict=False)
                ):
                    if new:
                        continue
                    new = True
                yield from grow((*chosen, child))

        width = len(self.seen[0])
        for flat in grow(()):
            yield tuple(flat[start : start + width] for start in range(0, len(flat), width))


@dataclass(frozen=True, eq=False)
class ExchangeTable:
    """A released table under exchange adjacency.

    >>> from semidp.core.spaces.dataspace import Dataspace, Margin
    >>> from semidp.core.tables.features import Feature
    >>> from semidp.core.tables.schema import Schema
    >>> from semidp.core.tables.counts import Table
    >>> schema = Schema([Feature("sex", "fm"), Feature("region", "nsw"), Feature("ill", "yn")])
    >>> public = Dataspace.of(Table(schema, np.full((2, 3, 2), 5)), [Margin("sex"), Margin("region")])
    >>> blocks = Blocks.of(public)
    >>> tables = [ReleasedTable.of(public, view) for view in ((1, 1, 1), (1, 1, 0))]
    >>> [ExchangeTable(blocks, table).result.norms.l2_squared for table in tables]
    [8, 4]
    """

    blocks: Blocks
    table: ReleasedTable

    @cached_property
    def _strides(self) -> dict[int, int]:
        """For each feature of the table, how far apart two neighbouring nodes are in the flat table."""
        axes, shape = named(self.table.released), self.table.grid.shape
        return {axis: math.prod(shape[place + 1 :]) for place, axis in enumerate(axes)}

    @cached_property
    def seen(self) -> tuple[SeenBlock, ...]:
        """The blocks in which the table sees two levels or more."""
        structure, grid, released = self.blocks.structure, self.blocks.structure.grid, self.table.released
        found = []
        for margin in self.blocks.margins:
            axes = tuple(axis for axis in named(margin.view) if released[axis])
            if not axes:
                continue
            finer = [axis for axis in axes if released[axis] > margin.view[axis]]
            view = margin.view
            if all((structure.branches(axis, released[axis], margin.view[axis]) <= 1).all() for axis in finer):
                view = meet(margin.view, released)  # what the table does not see of a block is summed away
            counts = grid.sum(margin.counts, view, margin.view)
            cells = [dict(zip(named(view), map(int, cell), strict=True)) for cell in np.argwhere(counts)]
            nodes = tuple(tuple(cell[axis] for axis in axes) for cell in cells)
            seen = tuple(tuple(self._in_sight(axis, view[axis], cell[axis]) for axis in axes) for cell in cells)
            if len(cells) > 1:
                alike = len(named(view)) == 1 or all(len(nodes) == 1 for cell in seen for nodes in cell)
                found.append(SeenBlock(axes, tuple(counts[counts > 0].tolist()), nodes, seen, alike))
        return tuple(found)

    def _in_sight(self, axis: int, depth: int, node: int) -> tuple[int, ...]:
        """The nodes at the table's depth that a record at a published node can have.

        Its only ancestor there if the table is coarser than what is published, else its descendants that can occur.
        """
        chain, released = self.blocks.structure.grid.chains[axis], self.table.released[axis]
        if released <= depth:
            return (chain.ancestor(depth, node, released),)
        below, inhabited = chain.below(depth, node, released), self.blocks.structure.inhabited_nodes(axis, released)
        return tuple(child for child in range(below.start, below.stop) if inhabited[child])

    def _levels(self, most: int) -> tuple[int, ...]:
        """What can occur outside the blocks, the first `most` levels of it: where each lies in the flat table."""
        structure, released = self.blocks.structure, self.table.released
        outside = [axis for axis in range(len(released)) if axis not in self.blocks.axes]
        axes = [axis for axis in outside if released[axis]]
        zeros = [structure.schema.view(name for name, _ in zero.levels) for zero in structure.schema.structural_zeros]
        cells: Iterable[Sequence[int]]
        if any(view[axis] for view in zeros for axis in outside):
            there = structure.grid.inhabited(structure.schema.possible, structure.margins)
            assert there is not None
            view = tuple(depth if axis in axes else 0 for axis, depth in enumerate(released))
            cells = np.argwhere(structure.grid.sum(there, view)).tolist()
        else:
            inhabited = (structure.inhabited_nodes(axis, released[axis]) for axis in axes)
            cells = product(*(np.flatnonzero(nodes).tolist() for nodes in inhabited))
        strides = [self._strides[axis] for axis in axes]
        return tuple(sum(map(mul, cell, strides)) for cell in islice(cells, most))

    def _parts(self, most: int) -> tuple[SeenBlock, ...]:
        """The blocks in sight, and after them what lies outside."""
        outside = SeenBlock((), (self.blocks.structure.n,), ((0,),), ((self._levels(most),),), True)
        return (*self.seen, outside)

    @property
    def reach(self) -> int:
        """The most records of one exchange that the table can see change."""
        return min(len(self.seen) + 1, self.blocks.structure.n)

    @cached_property
    def bound(self) -> Norms:
        """What holds for exchanges with q blocks in sight, and what holds for any q+1 records."""
        any_records = self.table.certified(self.reach, self.blocks.margins)
        blocks = self.table.blocks
        if blocks is not None and self.reach <= LARGEST_A:
            any_records = any_records.least(blocks.norms(self.reach)[0])
        return self._plain.least(any_records)

    @property
    def _plain(self) -> Norms:
        """``Δ1 <= 2(q+1), Δ2² <= q²+q+2, Δ∞ <= max(1, q)``; with nothing unpublished in sight ``q²-q+6`` and ``q-1``.

        Δ2² is 2(q+1) and twice the pairs of records that coincide. Two carriers never coincide both before and after:
        at most q(q-1)/2 pairs. y is none of the carriers afterwards, and x none of them before.

        Where the table sees nothing but blocks, q carriers that all coincide before are y, which appears: at most
        ``q²-q+2``. Otherwise let b < q be the most that coincide (before, say). Each other one coincides afterwards
        with at most one of them, so that (b-1)(q-b) pairs, at least q-2 of them for b > 1, do not coincide at all.
        Fewer carriers than blocks give at most ``q²-q+2`` again, and two carriers 6.
        """
        q = len(self.seen)
        if not self._blocks_alone:
            return Norms(2 * (q + 1), q * q + q + 2, max(1, q))
        if q <= 1:
            return Norms(0, 0, 0)
        return Norms(2 * (q + 1), 6 if q == 2 else q * q - q + 6, q - 1)

    @cached_property
    def _blocks_alone(self) -> bool:
        """Whether the table sees nothing but blocks, none of them below what is published of it."""
        no_finer = all(len(nodes) == 1 for block in self.seen for cell in block.seen for nodes in cell)
        return no_finer and len(self._levels(2)) < 2

    @cached_property
    def result(self) -> TableNorms:
        """The norms, exact where `exact` says so, and a move that attains Δ2.

        They are not used unless they lie between what drawn exchanges attain and what is proved for every exchange.
        """
        found = self._search()
        if found.norms.most(self._probes.norms) != found.norms:
            raise SelfCheckError("an exchange moves the table by more than its norms")
        if found.norms.least(self._proved) != found.norms:
            raise SelfCheckError("the norms of a table are above what is proved for exchanges")
        return found

    @cached_property
    def _probes(self) -> Probes:
        """Some exchanges of this table, drawn by the definition."""
        return drawn(self.blocks, self.table.released)

    @property
    def _proved(self) -> Norms:
        """``Δ1 <= 2(q+1), Δ2² <= q²+q+2, Δ∞ <= max(1, q)`` for a table with features of q published margins.

        `_plain` refines it by what `seen` says of the blocks; this looks at the margins alone.
        """
        q = sum(any(meet(margin.view, self.table.released)) for margin in self.blocks.margins)
        return Norms(2 * (q + 1), q * q + q + 2, max(1, q))

    def _search(self) -> TableNorms:
        structure = self.blocks.structure
        if structure.n == 0 or (not self.seen and len(self._levels(2)) < 2):
            return TableNorms(Norms(0, 0, 0), True, "the published statistics fix the table")
        closed = self._closed_form()
        if closed is not None:
            return closed
        listed = self._by_patterns()
        return TableNorms(self.bound, False, "bound for exchanges") if listed is None else listed

    def _closed_form(self) -> TableNorms | None:
        """A move that attains the bound, where t holds its records.

        With something unpublished in sight: q carriers of y's published values, alike in another unpublished one. With
        blocks alone and q >= 3: q-1 carriers r that differ from y only in the last block, where they have x's value;
        the carrier of the last block afterwards is what the first of them is.
        """
        move = self._blocks_move() if self._blocks_alone else self._free_move()
        if move is None or Norms.of(move[None]) != self._plain:
            return None
        return TableNorms(self._plain, True, "closed form for exchanges", move)

    def _free_move(self) -> Counts | None:
        q, free = len(self.seen), self._levels(2)
        rich = [_rich(block, q, 1) for block in self.seen]
        if len(free) < 2 or not all(rich):
            return None
        parts = []
        for number, (block, pair) in enumerate(zip(self.seen, rich, strict=True)):
            assert pair is not None
            (y, cell), (x, other) = ((tuple(nodes[0] for nodes in block.seen[place]), place) for place in pair)
            differ = [a != b for a, b in zip(block.nodes[other], block.nodes[cell], strict=True)]
            taken = tuple(a if d else b for a, b, d in zip(x, y, differ, strict=True))
            parts.append((x, y, *(value for j in range(q) for value in (y, taken if j == number else y))))
        return self._table([*parts, ((free[0],),) * 2 + ((free[1],),) * (2 * q)])

    def _blocks_move(self) -> Counts | None:
        q = len(self.seen)
        rich = [_rich(block, q, 2) for block in self.seen]
        if q < 3 or not all(rich):
            return None
        parts = []
        for number, (block, pair) in enumerate(zip(self.seen, rich, strict=True)):
            assert pair is not None
            common, rare = (tuple(nodes[0] for nodes in block.seen[place]) for place in pair)
            x, y = (common, rare) if number == q - 1 else (rare, common)
            before = [common] * (q - 1) + [rare if number in (0, q - 1) else common]
            after = [x if j == number else value for j, value in enumerate(before)]
            parts.append((x, y, *(value for both in zip(before, after, strict=True) for value in both)))
        return self._table([*parts, (self._levels(1),) * (2 * q + 2)])

    def _by_patterns(self) -> TableNorms | None:
        """The largest norms over all agreements of the records of an exchange; None where there are too many."""
        if any(not block.alike and len(block.counts) > _MOST_CELLS for block in self.seen) or len(self.seen) > 6:
            return None
        best, widest, work = Norms(0, 0, 0), None, 0
        for servers, carriers in servings(len(self.seen)):
            if carriers + 1 > self.blocks.structure.n:
                continue
            options = []
            for part, server in zip(self._parts(carriers + 2), (*servers, None), strict=True):
                some = islice(part.assignments(carriers, server, every=False), _MOST_PATTERNS)
                options.append({_agreement(values): values for values in some})
            reached: dict[int, tuple[Values, ...]] = {-1: ()}
            for option in options:
                work += len(reached) * len(option)
                if work > _MOST_PATTERNS:
                    return None
                reached = {
                    known & mask: (*so_far, values)
                    for known, so_far in reached.items()
                    for mask, values in option.items()
                }
            for agreement, parts in reached.items():
                norms = _pattern_norms(agreement, 2 * (carriers + 1))
                if norms.l2_squared > best.l2_squared:
                    widest = parts
                best = best.most(norms)
        return TableNorms(
            best, True, "agreement patterns of exchanges", None if widest is None else self._table(widest)
        )

    def moves(self) -> Iterator[Counts]:
        """Iterate over the elements of S without zero, each once; refuse where they are too many to list.

        Whoever takes all of them (a hull, the costs of residuals) knows that none of the drawn exchanges is missing.
        """
        listed = set()
        shape = self.table.grid.shape
        for parts in self._choices():
            for move in self._tables(parts):
                for signed in (move, -move):
                    if signed.tobytes() not in listed:
                        listed.add(signed.tobytes())
                        yield signed.astype(np.int64).reshape(shape)
        if any(move.astype(np.int8).tobytes() not in listed for move in self._probes.moves(shape)):
            raise SelfCheckError("an exchange is missing from the list of exchanges of a table")

    def _choices(self) -> list[list[list[Values]]]:
        """For each choice of carriers, what the records can have in each block and outside; refused where too many."""
        parts, work, found = self._parts(_MOST_LEVELS + 1), 0, []
        too_many = Refused(
            "the exchanges of this table are too many to list: release fewer features, or use another mechanism"
        )
        if len(parts[-1].seen[0][0]) > _MOST_LEVELS:
            raise too_many

        @cache
        def options(number: int, carriers: int, server: int | None) -> list[Values]:
            return list(islice(parts[number].assignments(carriers, server, every=True), _MOST_PATTERNS))

        for servers, carriers in servings(len(self.seen)):
            if carriers + 1 <= self.blocks.structure.n:
                chosen = [options(number, carriers, server) for number, server in enumerate((*servers, None))]
                work += math.prod(map(len, chosen)) * math.prod(self.table.grid.shape)
                if work > _MOST_MOVES or max(map(len, chosen)) == _MOST_PATTERNS:
                    raise too_many
                found.append(chosen)
        return found

    def _positions(self, parts: Sequence[Sequence[Values]]) -> list[NDArray[np.intp]]:
        """For each part, a row for each choice of values in it: how far each record lies from the first cell."""
        strides = [*([self._strides[axis] for axis in block.axes] for block in self.seen), [1]]
        return [
            np.array([[sum(map(mul, value, steps)) for value in values] for values in part], dtype=np.intp)
            for steps, part in zip(strides, parts, strict=True)
        ]

    @cached_property
    def _start(self) -> int:
        """The first cell with the only node that can occur of each block of which the table sees one level."""
        structure, released = self.blocks.structure, self.table.released
        alone = {*named(released)} & self.blocks.axes - {axis for block in self.seen for axis in block.axes}
        return sum(
            int(structure.inhabited_nodes(axis, released[axis]).argmax()) * self._strides[axis] for axis in alone
        )

    def _tables(self, parts: Sequence[Sequence[Values]]) -> Iterator[NDArray[np.int8]]:
        """The differences of tables that some choice of values in every part gives, flat, without zero."""
        if not all(parts):
            return
        size = math.prod(self.table.grid.shape)
        first, *others = sorted(self._positions(parts), key=len, reverse=True)
        rest = np.full((1, first.shape[1]), self._start, dtype=np.intp)
        for position in others:
            rest = (rest[:, None] + position[None]).reshape(-1, first.shape[1])
        step = max(1, _CHUNK // (len(rest) * size))
        for begin in range(0, len(first), step):
            cells = (first[begin : begin + step, None] + rest[None]).reshape(-1, first.shape[1])
            tables = np.zeros((len(cells), size), dtype=np.int8)
            for record in range(cells.shape[1]):
                tables[np.arange(len(cells)), cells[:, record]] += 1 if record % 2 else -1
            yield from np.unique(tables[tables.any(axis=1)], axis=0)

    def _table(self, parts: Sequence[Values]) -> Counts:
        """Write records, given part by part, as a difference of tables."""
        cells = self._start + sum(position[0] for position in self._positions([[part] for part in parts]))
        result = np.zeros(math.prod(self.table.grid.shape), dtype=np.int64)
        np.add.at(result, cells, np.resize([-1, 1], len(parts[0])))
        return result.reshape(self.table.grid.shape)


def _rich(block: SeenBlock, most: int, next_most: int) -> tuple[int, int] | None:
    """The two cells of a block with the largest counts, if these are at least so large."""
    order = sorted(range(len(block.counts)), key=block.counts.__getitem__, reverse=True)
    there = block.counts[order[0]] >= most and block.counts[order[1]] >= next_most
    return (order[0], order[1]) if there else None


def _agreement(values: Values) -> int:
    """The pairs of records that agree, as bits."""
    bits, place = 0, 0
    for i, one in enumerate(values):
        for other in values[:i]:
            bits |= (one == other) << place
            place += 1
    return bits


def _pattern_norms(agreement: int, records: int) -> Norms:
    """The norms of a move from the pairs of its records that agree everywhere; even places vanish, odd ones appear."""
    cells = [0] * records
    for i in range(records):
        first = next((j for j in range(i) if agreement >> (i * (i - 1) // 2 + j) & 1), i)
        cells[first] += 1 if i % 2 else -1
    return Norms.of(np.array([cells]))
