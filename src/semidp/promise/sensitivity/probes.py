"""Exchanges drawn from the definition, record by record, to check norms and lists of
exchanges.

`exchange_tables` finds norms by the agreements of blocks. This module shares no step with it:
records are leaves of the whole chains, blocks are the published margins as they are, and a table
sees what lies above the leaves. So norms that are too small because exchanges were left out are
caught before any noise is scaled to them.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import combinations

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.promise.schema.margins import (
    LARGEST_MASK,
    Chain,
    Counts,
    Mask,
    Shape,
    Totals,
    View,
    list_axes,
    meet,
)
from semidp.promise.sensitivity.patterns import Norms
from semidp.promise.spaces.exchange_blocks import Blocks
from semidp.promise.spaces.structure import Structure

_DRAWS = 512
# beyond, few draws are near the worst exchange, and all pairs of records are compared
_MOST_BLOCKS = 8

Nodes = NDArray[np.intp]
Truths = NDArray[np.bool_]


class SelfCheckError(RuntimeError):
    """Two independent computations contradict each other: a bug, so nothing is
    claimed.
    """


@frozen(slots=False, eq=False)
class Probes:
    """Some exchanges as a table sees them; see `draw_exchanges`.

    Parameters
    ----------
    nodes
        For each exchange, record and feature of the table, the node. The records are x, y, then
        each carrier before and after.
    signs
        For each exchange and record -1 if it vanishes, 1 if it appears, 0 if a carrier is not
        needed.

    Examples
    --------
    >>> from semidp.promise.spaces.dataspace import Dataspace, Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> schema = Schema([Feature("sex", "fm"), Feature("region", "nsw"), Feature("ill", "yn")])
    >>> public = Dataspace.from_table(
    ...     Table(schema, np.full((2, 3, 2), 5)), [Margin("sex"), Margin("region")]
    ... )
    >>> draw_exchanges(Blocks.from_dataspace(public), (1, 1, 1)).norms
    Norms(l1=6, l2_squared=8, linf=2)
    """

    nodes: Nodes = field(repr=False)
    signs: NDArray[np.int64] = field(repr=False)

    @classmethod
    def empty(cls, axes: int) -> "Probes":
        """Return no exchange of records with so many features."""
        nodes = np.zeros((0, 2, axes), dtype=np.intp)
        return cls(nodes, np.zeros((0, 2), dtype=np.int64))

    @cached_property
    def norms(self) -> Norms:
        """The norms that these exchanges attain: lower bounds of Δ1, Δ2² and Δ∞."""
        draws, records = self.signs.shape
        if not draws:
            return Norms(0, 0, 0)
        same = np.ones((draws, records, records), dtype=bool)
        for axis in range(self.nodes.shape[2]):
            same &= _pairwise_equal(self.nodes[:, :, axis])
        cells = (same * self.signs[:, None, :]).sum(axis=2)  # for each record the count of its cell
        earlier = np.tril(np.ones((records, records), dtype=bool), -1)
        cells[(same & earlier).any(axis=2)] = 0  # each cell counts once, with its first record
        return Norms.from_vectors(cells)

    def limit_records(self, records: int) -> "Probes":
        """The exchanges that change at most `records` records: pairs of the ball A_records."""
        # each record that changes counts twice: it vanishes and it appears
        kept = np.abs(self.signs).sum(axis=1) <= 2 * records
        return Probes(self.nodes[kept], self.signs[kept])

    def keep_axes(self, axes: Iterable[int]) -> "Probes":
        """The exchanges in which no record changes along these features."""
        before, after = self.nodes[:, ::2], self.nodes[:, 1::2]
        kept = (before == after)[:, :, sorted(axes)].all(axis=(1, 2))
        return Probes(self.nodes[kept], self.signs[kept])

    def moves(self, shape: Shape) -> Iterator[Counts]:
        """Yield the differences of tables that these exchanges make; zero is left out."""
        for nodes, signs in zip(self.nodes, self.signs, strict=True):
            move = np.zeros(shape, dtype=np.int64)
            np.add.at(move, tuple(nodes.T), signs)
            if move.any():
                yield move


def draw_exchanges(blocks: Blocks, released: View) -> Probes:
    """Draw exchanges that t allows; none where the blocks in sight are too many.

    The generator has a fixed seed: only public values are looked at, and the same question has the
    same answer.
    """
    structure = blocks.structure
    margins = _disjoint(structure.margins) or structure.essential
    in_sight = []
    for margin in margins:
        if any(meet(margin.view, released)) and margin.levels > 1:
            in_sight.append(margin)
    axes = list_axes(released)
    checkable = not structure.schema.structural_zeros or structure.grid.holds(LARGEST_MASK)
    if structure.n == 0 or len(in_sight) > _MOST_BLOCKS or not checkable:
        return Probes.empty(len(axes))
    before, after, carries, allowed = _Draw(structure, margins, in_sight).exchanges()
    pairs = np.stack([before, after], axis=2)[allowed]
    records = pairs.reshape(len(pairs), -1, pairs.shape[3])
    signs = np.stack([-carries, carries], axis=2)[allowed]
    seen = []
    for axis in axes:
        node_of_leaf = structure.grid.chains[axis].find_leaf_ancestors(released[axis])
        seen.append(node_of_leaf[records[:, :, axis]])
    return Probes(np.stack(seen, axis=2), signs.reshape(len(pairs), -1))


def largest_residual(blocks: Blocks, view: View, records: int, kept: Sequence[Mask]) -> float:
    """Return the largest ``|H_d M_d m|²`` of drawn exchanges m of at most `records` records: a
    lower bound of k_d.

    `kept` has for each feature the leaves that can hold a record.
    """
    probes = draw_exchanges(blocks, view).limit_records(records)
    chains = blocks.structure.grid.chains
    return float(residual_squares(chains, probes, view, view, kept).max(initial=0.0))


def residual_squares(
    chains: Sequence[Chain], probes: Probes, released: View, view: View, kept: Sequence[Mask]
) -> NDArray[np.float64]:
    """Return ``|H_d M_d m|²`` of every exchange m, as a table at least as deep as d sees it.

    ``s' (∘_i K_i) s`` with signs s and, for each feature of d,
    ``K = 1[same parent] (1[same node] - 1/c)`` for records with c inhabited siblings.
    """
    signs = probes.signs.astype(np.float64)
    products = signs[:, :, None] * signs[:, None, :]
    for axis in list_axes(view):
        chain, depth = chains[axis], view[axis]
        firsts = chain.first(depth - 1, depth)
        inhabited = np.unique(chain.find_leaf_ancestors(depth)[kept[axis]])
        homes = np.searchsorted(firsts, inhabited, side="right") - 1
        siblings = np.bincount(homes, minlength=len(firsts))
        nodes = probes.nodes[:, :, list_axes(released).index(axis)]
        if depth < released[axis]:
            nodes = np.searchsorted(chain.first(depth, released[axis]), nodes, side="right") - 1
        parents = np.searchsorted(firsts, nodes, side="right") - 1
        share = 1 / siblings[parents][:, :, None]
        products *= _pairwise_equal(parents) * (_pairwise_equal(nodes) - share)
    return np.asarray(products.sum(axis=(1, 2)))


def _pairwise_equal(codes: Nodes) -> Truths:
    """Whether two records have equal codes, for each draw: draw, record, record."""
    equal: Truths = codes[:, :, None] == codes[:, None, :]
    return equal


def _disjoint(margins: Sequence[Totals]) -> tuple[Totals, ...]:
    """The published margins; none where a feature is in two of them."""
    axes = [{*list_axes(margin.view)} for margin in margins]
    shared = any(one & other for one, other in combinations(axes, 2))
    return () if shared else tuple(margins)


class _Draw:
    """One round of draws: x, y and a carrier for each block in sight, as leaves of every
    feature.
    """

    def __init__(
        self, structure: Structure, margins: Sequence[Totals], in_sight: Sequence[Totals]
    ) -> None:
        self.structure, self.margins, self.in_sight = structure, margins, in_sight
        self.generator = np.random.default_rng(0)

    def exchanges(self) -> tuple[Nodes, Nodes, NDArray[np.int64], Truths]:
        """Return the leaves of the person and the carriers before and after, who takes part, and
        whether t allows each draw.
        """
        cells, servers = self._cells(), self._servers()
        x, y = cells[:, 0], cells[:, 1]
        rows = np.arange(_DRAWS)
        carries = np.zeros((_DRAWS, len(self.in_sight) + 1), dtype=np.int64)
        carries[:, 0] = 1
        for block in range(len(self.in_sight)):
            differ = rows[x[:, block] != y[:, block]]
            server = servers[differ, block]
            cells[differ, server + 2, block] = y[differ, block]  # a carrier has y's whole tuple
            carries[differ, server + 1] = 1
        leaves = self._leaves(cells)
        # y is what the person becomes, and no record of its own before
        before = np.delete(leaves, 1, axis=1)
        after = before.copy()
        after[:, 0] = leaves[:, 1]
        for block, margin in enumerate(self.in_sight):
            both = cells[:, :2, block]
            nodes = np.unravel_index(both, margin.counts.shape)
            for axis, node in zip(list_axes(margin.view), nodes, strict=True):
                some = rows[node[:, 0] != node[:, 1]]
                server = servers[some, block] + 1
                after[some, server, axis] = leaves[some, 0, axis]  # it takes x's leaf
        held = np.delete(cells, 1, axis=1)
        allowed = self._holds(held, carries > 0) & self._possible(before, after)
        return before, after, carries, allowed

    def _cells(self) -> Nodes:
        """Cells of x, y and the carriers in each block: common ones or any. Carriers are often
        where x or y is.
        """
        carriers = len(self.in_sight)
        cells = np.zeros((_DRAWS, carriers + 2, carriers), dtype=np.intp)
        for block, margin in enumerate(self.in_sight):
            counts = margin.counts.ravel()
            inhabited = np.flatnonzero(counts)
            commonest_first = np.argsort(-counts[inhabited], kind="stable")
            common = inhabited[commonest_first[:3]]
            anywhere = self.generator.choice(inhabited, size=(_DRAWS, carriers + 2))
            among_common = self.generator.choice(common, size=(_DRAWS, carriers + 2))
            rich = self.generator.random((_DRAWS, 1)) < 0.5
            chosen = np.where(rich, among_common, anywhere)
            # Carriers: two in five where x is, two in five where y is, the others anywhere.
            place = self.generator.integers(5, size=(_DRAWS, carriers))
            x, y, anyone = chosen[:, :1], chosen[:, 1:2], chosen[:, 2:]
            carrier_cells = np.where(place < 2, x, np.where(place < 4, y, anyone))
            cells[:, :, block] = np.hstack([x, y, carrier_cells])
        return cells

    def _servers(self) -> Nodes:
        """Number of the carrier that serves each block: one each, or any of them."""
        carriers = len(self.in_sight)
        each = np.broadcast_to(np.arange(carriers), (_DRAWS, carriers))
        shared = self.generator.integers(max(carriers, 1), size=(_DRAWS, carriers))
        one_each = self.generator.random((_DRAWS, 1)) < 0.5
        return np.where(one_each, each, shared)

    def _leaves(self, cells: Nodes) -> Nodes:
        """Leaves of every record: the first or the last possible one below each published node.

        These two differ at every depth at which anything below the node does. Carriers are alike in
        half of the draws.
        """
        draws, records, _ = cells.shape
        axes = len(self.structure.grid.chains)
        last = self.generator.random((draws, records, axes)) < 0.5
        alike = self.generator.random(draws) < 0.5
        last[alike, 2:] = last[alike, 2:3]
        nodes = np.zeros((draws, records, axes), dtype=np.intp)
        depths = [0] * axes
        for margin in self.margins:
            if margin in self.in_sight:
                codes = cells[:, :, self.in_sight.index(margin)]
            else:
                # The table does not see it: everybody has the same.
                first_cell = int(np.flatnonzero(margin.counts)[0])
                codes = np.full((draws, records), first_cell)
            node_codes = np.unravel_index(codes, margin.counts.shape)
            for axis, node in zip(list_axes(margin.view), node_codes, strict=True):
                nodes[:, :, axis] = node
                depths[axis] = margin.view[axis]
        for axis, depth in enumerate(depths):
            chain = self.structure.grid.chains[axis]
            leaves = np.flatnonzero(self.structure.inhabited_nodes(axis, chain.depth))
            homes = chain.find_leaf_ancestors(depth)[leaves]
            node = nodes[:, :, axis]
            first = leaves[np.searchsorted(homes, node, side="left")]
            final = leaves[np.searchsorted(homes, node, side="right") - 1]
            nodes[:, :, axis] = np.where(last[:, :, axis], final, first)
        return nodes

    def _holds(self, cells: Nodes, takes_part: Truths) -> Truths:
        """Whether t holds the records of each draw that vanish: every cell of a block has as many
        as are taken.
        """
        result = np.ones(len(cells), dtype=bool)
        for block, margin in enumerate(self.in_sight):
            codes = cells[:, :, block]
            alongside = _pairwise_equal(codes) & takes_part[:, None, :]
            used = alongside.sum(axis=2)
            enough = used <= margin.counts.ravel()[codes]
            result &= (enough | ~takes_part).all(axis=1)
        return result

    def _possible(self, *records: Nodes) -> Truths:
        """Whether structural zeros allow all records of each draw."""
        possible = self.structure.schema.possible
        result = np.ones(_DRAWS, dtype=bool)
        if possible is None:
            return result
        for leaves in records:
            cells = tuple(np.moveaxis(leaves, 2, 0))
            result &= possible[cells].all(axis=1)
        return result
