"""How the published margins of a dataspace overlap: which of them constrain the data, the slices
they leave, and the values of margins under which most can change.

Margins that somebody else knows or publishes are often known only by their features. A claim about
them must hold for all their possible values: `widest_space` has the values that allow all moves.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.promise.schema.margins import (
    LARGEST_MASK,
    Counts,
    Grid,
    Totals,
    View,
    common_part,
    finest,
    is_within_view,
    join,
    junction_order,
    list_axes,
)
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.spaces.dataspace import Dataspace, Margin, normalize_margins

MOST_BLOCKS = 6  # 63 patterns; the program has a row for each of the 203 partitions of six blocks
# beyond this the program runs on scaled counts, so solver tolerances cannot matter
_LARGEST_COUNT = 100_000
_INFEASIBLE = 2  # scipy's status code for a program proven infeasible

BlockSet = frozenset[int]
BlockSets = tuple[BlockSet, ...]


@frozen(slots=False, eq=False)
class Structure:
    """The margins of a dataspace, and the properties that decide which method applies.

    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Table
    >>> places = Feature.from_paths(["state", "county"], [("s", "a"), ("s", "b"), ("t", "c")])
    >>> table = Table(Schema([places, Feature("sex", "fm")]), [[5, 5], [5, 5], [7, 7]])
    >>> structure = Structure.from_dataspace(
    ...     Dataspace.from_table(table, [Margin("state"), Margin("county"), Margin("sex")])
    ... )
    >>> [total.view for total in structure.margins], structure.common
    ([(2, 0), (0, 1)], (0, 0))
    """

    schema: Schema
    n: int
    margins: tuple[Totals, ...]

    @classmethod
    def from_dataspace(cls, dataspace: Dataspace) -> "Structure":
        """Analyze a dataspace."""
        return cls(dataspace.schema, dataspace.n, dataspace.published_totals)

    @property
    def grid(self) -> Grid:
        """The cells of the whole table."""
        return self.schema.grid

    @cached_property
    def choices(self) -> tuple[tuple[bool, ...], ...]:
        """For each feature and each of its depths, whether some inhabited node above has two nodes
        that can occur.
        """
        choices = []
        for axis, full in enumerate(self.grid.full):
            depths = range(1, full + 1)
            choices.append(tuple(bool((self.branches(axis, depth) > 1).any()) for depth in depths))
        return tuple(choices)

    @cached_property
    def varying(self) -> frozenset[tuple[int, int]]:
        """Each (feature, depth) that has a choice."""
        varying = set()
        for axis, depths in enumerate(self.choices):
            for depth, choice in enumerate(depths, start=1):
                if choice:
                    varying.add((axis, depth))
        return frozenset(varying)

    def branches(self, axis: int, depth: int, above: int | None = None) -> NDArray[np.int64]:
        """Return how many nodes of a depth can occur below each inhabited node above (one depth up
        unless said).
        """
        above = depth - 1 if above is None else above
        firsts = self.grid.chains[axis].first(above, depth)
        inhabited = self.inhabited_nodes(axis, depth).astype(np.int64)
        counts = np.add.reduceat(inhabited, firsts)
        return np.asarray(counts[counts > 0])

    def inhabited_nodes(self, axis: int, depth: int) -> NDArray[np.bool_]:
        """Return for each node of a feature whether published counts let it hold a record."""
        chain = self.grid.chains[axis]
        inhabited = np.ones(chain.size(depth), dtype=bool)
        for margin in self.margins:
            published = margin.view[axis]
            if not published:
                continue
            counts = margin.sum_to_view(
                self.grid, self.grid.build_feature_view(axis, published)
            ).counts
            # A finer margin is summed up to the depth; a coarser one lets all its descendants
            # occur.
            if published >= depth:
                inhabited &= np.add.reduceat(counts, chain.first(depth, published)) > 0
            else:
                inhabited &= np.repeat(counts > 0, chain.children(published, depth))
        return inhabited

    def canonical(self, view: View) -> View:
        """Return the coarsest equivalent view: depths without a choice are dropped at the end of
        a chain.

        Views of one class are mapped to one of them, in a way that keeps their order.
        """
        coarsest = []
        for choices, named_depth in zip(self.choices, view, strict=True):
            with_choice = [depth for depth in range(1, named_depth + 1) if choices[depth - 1]]
            coarsest.append(max(with_choice, default=0))
        return tuple(coarsest)

    @cached_property
    def published_view(self) -> View:
        """The join of all published views."""
        return join(self.grid.nothing, *(margin.view for margin in self.margins))

    @cached_property
    def essential(self) -> tuple[Totals, ...]:
        """Margins that constrain the data: cut down to where they leave a choice, without
        nested ones.
        """
        return finest(self.grid, self.margins, self.canonical)

    @cached_property
    def zeros_matter(self) -> bool:
        """Whether structural zeros forbid more than the published margins do.

        They do not if every combination of published levels that the margins allow can be completed
        by unpublished ones: a zero inside a margin is an empty cell there.
        """
        zeros = [self.schema.view(dict(zero.levels)) for zero in self.schema.structural_zeros]
        if all(self._inside_margin(view) for view in zeros):
            return False
        if not self.grid.holds(LARGEST_MASK):
            return True
        possible = self.schema.possible_cells
        # Published cells that some possible record completes, or that a margin leaves empty anyway.
        completable = self.grid.sum(possible.astype(np.int64), self.published_view) > 0
        for margin in self.margins:
            empty = self.grid.spread(margin.counts == 0, margin.view, self.published_view)
            completable = completable | empty
        return not bool(completable.all())

    def _inside_margin(self, view: View) -> bool:
        """Whether a published margin is at least as fine as a view."""
        return any(is_within_view(view, margin.view) for margin in self.margins)

    @cached_property
    def common(self) -> View | None:
        """View that all essential margins share, if these are disjoint apart from it; else None."""
        if not self.essential:
            return self.grid.nothing
        return common_part([margin.view for margin in self.essential])

    @cached_property
    def decomposable(self) -> bool:
        """Whether the essential margins have a junction tree."""
        return junction_order([margin.view for margin in self.essential]) is not None


@frozen(slots=False, eq=False)
class Slices:
    """Margins that are disjoint apart from a common part Z: for each level z of Z, blocks of
    published counts.

    Parameters
    ----------
    grid
        The cells of the table.
    common
        The view Z.
    margins
        The published margins, each at least as fine as Z.

    Examples
    --------
    >>> rows, columns = Totals((1, 0), np.array([[2], [1]])), Totals((0, 1), np.array([[2, 1]]))
    >>> list(Slices(Grid.flat((2, 2)), (0, 0), (rows, columns)).candidates())
    [(0, (1, 1), 2, False)]
    """

    grid: Grid
    common: View
    margins: tuple[Totals, ...] = field(repr=False)

    @cached_property
    def homes(self) -> list[NDArray[np.intp]]:
        """For each margin the level of Z that each of its cells lies in, flattened."""
        return [self.grid.labels(self.common, margin.view) for margin in self.margins]

    @cached_property
    def sizes(self) -> Counts:
        """The number of records at each level of Z."""
        first = self.margins[0]
        sizes = self.grid.sum(first.counts, self.common, first.view)
        return np.asarray(sizes.ravel())

    def largest(self, number: int, a: int) -> Counts:
        """Return the largest counts of a block at each level of Z: a matrix of at most a columns,
        capped at a.
        """
        counts = self.margins[number].counts.ravel()
        home = self.homes[number]
        # Sorted by level of Z, and within a level by count, the largest first.
        order = np.lexsort((-counts, home))
        counts, home = counts[order], home[order]
        # The place of each cell among those of its level of Z, the largest count first.
        rank = np.arange(len(home)) - np.searchsorted(home, home)
        kept = (rank < a) & (counts > 0)
        levels = self.grid.count_margin_cells(self.common)
        largest = np.zeros((levels, a), dtype=np.int64)
        largest[home[kept], rank[kept]] = np.minimum(counts[kept], a)
        used = int((largest > 0).any(axis=0).sum())
        return largest[:, : max(used, 1)]

    def rows(self, z: int) -> list[tuple[NDArray[np.intp], Counts]]:
        """Return the cells of each margin at one level of Z: their positions and counts."""
        rows = []
        for margin, home in zip(self.margins, self.homes, strict=True):
            cells = np.flatnonzero(home == z)
            rows.append((cells, margin.counts.ravel()[cells]))
        return rows

    def candidates(self) -> Iterator[tuple[int, tuple[int, ...], int, bool]]:
        """Yield levels of Z where y may lie, with what decides how many records must move; most
        choices first.

        That is the smallest positive count of each block that leaves a choice there, sorted, how
        many other records are there, and whether x lies elsewhere. Levels that are alike in all
        this are tried once.
        """
        inhabited = np.flatnonzero(self.sizes)
        several = len(inhabited) > 1
        rarest = [self._rarest_of_all(number) for number in range(len(self.margins))]
        # no choice counts as 0: sorted to the front
        keys = np.sort(np.stack(rarest, axis=1), axis=1)[inhabited]
        # Levels of Z with the same rarest counts and as many records are one case.
        with_sizes = np.hstack([keys, self.sizes[inhabited, None]])
        _, first = np.unique(with_sizes, axis=0, return_index=True)
        choices = (keys > 0).sum(axis=1).tolist()
        for place in sorted(first.tolist(), key=lambda place: (-choices[place], place)):
            z, key = int(inhabited[place]), keys[place]
            # x itself is one of the records at z unless it lies elsewhere.
            others_at_z = int(self.sizes[z]) - int(not several)
            rarest_counts = tuple(key[key > 0].tolist())
            yield z, rarest_counts, others_at_z, several

    def _rarest_of_all(self, number: int) -> Counts:
        """The smallest positive count of a block at each level of Z; 0 if the block leaves no
        choice there.
        """
        counts = self.margins[number].counts.ravel()
        home = self.homes[number]
        size = self.grid.count_margin_cells(self.common)
        positive = counts > 0
        rarest = np.full(size, np.iinfo(np.int64).max)
        np.minimum.at(rarest, home[positive], counts[positive])
        levels = np.bincount(home[positive], minlength=size)
        return np.where(levels > 1, rarest, 0)


@frozen
class Cover:
    """The largest size of a smallest cover: proven bounds, and the records of one smallest cover of
    size `least`.
    """

    least: int
    most: int
    agree: tuple[BlockSet, ...]  # the blocks on which each record of the cover agrees with y
    parts: tuple[BlockSet, ...]  # the blocks that it is needed for: disjoint, together all


@cache
def worst_cover(rarest: tuple[int, ...], others: int) -> Cover:
    """Return the size of the smallest cover of all blocks in the worst dataset.

    Block b has ``rarest[b]`` records that agree with y, all among `others`. If Σ rarest <= others
    they can all be different, and each block needs a record of its own. If not, a cover of size k
    or more exists iff the records can be given patterns (sets of blocks on which they agree with y)
    such that no k - 1 of them together are all blocks.

    >>> (
    ...     worst_cover((1, 1), 2).least,
    ...     worst_cover((2, 2), 3).least,
    ...     worst_cover((1, 1, 1), 2).least,
    ... )
    (2, 1, 2)
    """
    blocks = len(rarest)
    if blocks <= 1 or sum(rarest) <= others:
        single = tuple(frozenset({b}) for b in range(blocks))
        return Cover(blocks, blocks, single, single)
    everything = (frozenset(range(blocks)),)
    if blocks > MOST_BLOCKS:
        return Cover(1, blocks - 1, everything, everything)
    scale = -(-max(rarest) // _LARGEST_COUNT)
    most = blocks - 1
    for size in range(blocks - 1, 1, -1):
        rounded_up = [-(-count // scale) for count in rarest]
        solved = _program(rounded_up, others // scale, size, whole=True)
        if solved:
            used = {}
            for pattern, value in solved.items():
                if round(value) > 0:
                    used[pattern] = scale * round(value)
            cover = _smallest_cover(list(used), blocks)
            if len(cover[0]) >= size and _fits(used, rarest, others):
                return Cover(size, most, *cover)
        # unscaled, the program was the question itself; scaled, real numbers of records are a
        # relaxation of it
        if scale > 1:
            shares = [count / scale for count in rarest]
            solved = _program(shares, others / scale, size, whole=False)
        if solved is None:
            most = size - 1
    return Cover(1, most, everything, everything)


def _fits(used: dict[BlockSet, int], rarest: tuple[int, ...], others: int) -> bool:
    """Whether the records exist, in whole numbers: enough carriers for every block, and not too
    many in all.
    """
    if sum(used.values()) > others:
        return False
    for block, needed in enumerate(rarest):
        carriers = [count for pattern, count in used.items() if block in pattern]
        carried = sum(carriers)
        if carried < needed:
            return False
    return True


def _program(
    rarest: Sequence[float], others: float, size: int, whole: bool
) -> dict[BlockSet, float] | None:
    """Numbers of records by pattern such that no size - 1 patterns in use cover all blocks.

    None if that is impossible, empty if the solver could not decide.

    A pattern is open (z = 1) if records with it, or with a larger one, exist; open patterns are
    closed under subsets, so a cover by fewer than `size` of them exists iff a partition of the
    blocks into fewer than `size` open ones does.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    blocks = len(rarest)
    patterns = [_block_set(code, blocks) for code in range(1, 1 << blocks)]
    place = {pattern: i for i, pattern in enumerate(patterns)}
    count = len(patterns)
    rows: list[np.ndarray] = []
    tops: list[float] = []

    def at_most(top: float, *entries: tuple[int, float]) -> None:
        row = np.zeros(2 * count)
        for column, value in entries:
            row[column] += value
        rows.append(row)
        tops.append(top)

    # The first half of the columns counts records by pattern, the second half says which patterns
    # are open.
    at_most(others, *((i, 1.0) for i in range(count)))
    for b, needed in enumerate(rarest):
        carriers = [place[pattern] for pattern in patterns if b in pattern]
        at_most(needed, *((column, 1.0) for column in carriers))
        at_most(-needed, *((column, -1.0) for column in carriers))
    for pattern in patterns:
        records, opened = place[pattern], count + place[pattern]
        largest = max(rarest[b] for b in pattern)
        at_most(0, (records, 1.0), (opened, -largest))
        if len(pattern) > 1:
            for b in pattern:
                smaller = count + place[pattern - {b}]
                at_most(0, (opened, 1.0), (smaller, -1.0))
    for parts in _partitions(list(range(blocks))):
        if len(parts) < size:
            columns = [count + place[part] for part in parts]
            at_most(len(parts) - 1, *((column, 1.0) for column in columns))
    ones = np.ones(count)
    integral = np.concatenate([np.full(count, int(whole)), ones])
    upper = np.concatenate([np.full(count, others), ones])
    # Any feasible solution will do: nothing is minimized.
    costs = np.zeros(2 * count)
    constraint = LinearConstraint(np.array(rows), -np.inf, np.array(tops))
    bounds = Bounds(0, upper)
    solved = milp(costs, constraints=constraint, integrality=integral, bounds=bounds)
    if solved.x is None:
        return None if solved.status == _INFEASIBLE else {}
    return {pattern: float(solved.x[i]) for pattern, i in place.items()}


def _block_set(code: int, blocks: int) -> BlockSet:
    """The blocks whose bits are set in a whole number."""
    return frozenset(b for b in range(blocks) if code >> b & 1)


def _smallest_cover(
    patterns: list[BlockSet], blocks: int
) -> tuple[tuple[BlockSet, ...], tuple[BlockSet, ...]]:
    """Return a smallest cover of the blocks by the patterns, and what each of them adds to the
    earlier ones.
    """
    # Blocks covered so far, by which patterns, and what each of these added; one more pattern a
    # round.
    reached: dict[BlockSet, tuple[BlockSets, BlockSets]] = {frozenset(): ((), ())}
    everything = frozenset(range(blocks))
    while everything not in reached:
        longer: dict[BlockSet, tuple[BlockSets, BlockSets]] = {}
        for covered, (used, added) in reached.items():
            for pattern in patterns:
                step = ((*used, pattern), (*added, pattern - covered))
                longer.setdefault(covered | pattern, step)
        reached = longer
    return reached[everything]


def _partitions(items: list[int]) -> Iterator[list[BlockSet]]:
    """Iterate over the set partitions of a list."""
    if not items:
        yield []
        return
    first = items[0]
    for parts in _partitions(items[1:]):
        yield [frozenset({first}), *parts]
        for i, part in enumerate(parts):
            larger = part | {first}
            yield [*parts[:i], larger, *parts[i + 1 :]]


def even_space(schema: Schema, margins: Iterable[Margin], each: int) -> Dataspace:
    """Return the dataspace of the table with `each` records in every possible cell.

    Without structural zeros the table itself is not written down: it may be large where its margins
    are not.

    >>> from semidp.promise.schema.features import Feature
    >>> schema = Schema([Feature("sex", "fm"), Feature("region", "nsw")])
    >>> even_space(schema, [Margin("sex")], 2).value(Margin("sex")).counts.tolist()
    [6, 6]
    """
    if schema.structural_zeros:
        counts = each * np.asarray(schema.possible, dtype=np.int64)
        return Dataspace.from_table(Table(schema, counts), margins)
    values = {}
    for margin in normalize_margins(schema, margins):
        part = schema.restrict(margin.names)
        cells_below = schema.grid.count_finer_cells(schema.view(margin.names))
        values[margin] = Table(part, np.full(part.shape, each) * cells_below)
    return Dataspace.from_totals(schema, values, each * schema.size)


def widest_space(schema: Schema, margins: Iterable[Margin], known: Dataspace, a: int) -> Dataspace:
    """Return a dataspace with S_a(t) ⊆ S_a(t0) for every t of the margins that agrees with what is
    known about it.

    t0 has at least `a` records in every cell that the known values leave possible. Let X, X' be
    adjacent in D_t. At most a of their records differ, and every cell of t0 holds as many; the rest
    of t0 is filled up with records that both share. So X, X' become adjacent datasets of D_t0 (any
    a records, or exchanges: carriers are among those that differ), and a query that sums over
    records has the same difference. Margins that share no feature are filled up one by one, because
    records can be put together from any of theirs; with structural zeros only the whole table will
    do.

    Parameters
    ----------
    schema
        The features of a record.
    margins
        What is exact.
    known
        Values that are known about it: where they are 0 nobody can be.
    a
        How many records may differ.

    Examples
    --------
    >>> from semidp.promise.schema.features import Feature
    >>> schema = Schema([Feature("sex", "fmx"), Feature("region", "nsw")])
    >>> known = Dataspace.from_totals(
    ...     schema, {Margin("sex"): Table(schema.restrict(["sex"]), [4, 1, 0])}
    ... )
    >>> [
    ...     total.counts.tolist()
    ...     for total in widest_space(schema, [Margin("sex"), Margin("region")], known, 3).totals
    ... ]
    [[6, 3, 0], [3, 3, 3]]
    """
    kept = normalize_margins(schema, margins)
    # With structural zeros only the whole table will do.
    groups = [list(kept)] if schema.structural_zeros else _group_connected_margins(schema, kept)
    filled = [_fill_possible_cells(schema, together, known, a) for together in groups]
    n = max((int(counts.sum()) for _, counts in filled), default=0)
    values: dict[Margin, Table] = {}
    for together, (part, counts) in zip(groups, filled, strict=True):
        # All groups describe the same records: the largest cell takes what is missing to the same
        # n.
        flat = counts.ravel()
        flat[int(flat.argmax())] += n - int(flat.sum())
        table = Table(part, counts)
        values |= {margin: table.margin(margin.names) for margin in together}
    return Dataspace.from_totals(schema, values, n)


def _fill_possible_cells(
    schema: Schema, together: Sequence[Margin], known: Dataspace, a: int
) -> tuple[Schema, NDArray[np.int64]]:
    """A records in every cell of some margins together that the known values leave possible."""
    names = schema.names
    if not schema.structural_zeros:
        names = tuple(name for margin in together for name in margin.names)
    part = schema.restrict(names)
    if part.size > LARGEST_MASK:
        raise Refused(
            f"the totals of {', '.join(map(str, together))} have too many cells: give their values"
        )
    inside = {}
    for margin, total in zip(known.margins, known.totals, strict=True):
        if any(margin.is_within(whole) for whole in together):
            inside[margin] = total
    published = Dataspace.from_totals(part, inside, known.n).published_totals
    possible = part.grid.find_inhabited_cells(part.possible, published)
    # A records a cell hold every record that two adjacent datasets differ in (see `widest_space`).
    counts = np.full(part.shape, a, dtype=np.int64)
    if possible is not None:
        counts = np.where(possible, counts, 0)
    return part, counts


def _group_connected_margins(schema: Schema, margins: Iterable[Margin]) -> list[list[Margin]]:
    """Return margins in groups that share no feature."""
    groups: list[tuple[set[int], list[Margin]]] = []
    for margin in margins:
        axes, mine = set(list_axes(schema.view(margin.names))), [margin]
        for other in [group for group in groups if group[0] & axes]:
            groups.remove(other)
            axes = axes | other[0]
            mine = [*other[1], *mine]
        groups.append((axes, mine))
    return [mine for _, mine in groups]
