"""What is known about a table: sums of its cells, each exactly or within an interval; and what
follows step by step.

Exact totals are sums with one value. A rounded or suppressed cell of a published table is a sum
with an interval, by the rule that its publisher states (`ReadingRules`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from attrs import define, evolve, field, frozen

from semidp.errors import DataError, InputError
from semidp.promise.schema.margins import (
    LARGEST_MASK,
    Counts,
    Grid,
    Mask,
    View,
    is_within_view,
    join,
    list_axes,
    maximal,
    meet,
)
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.spaces.dataspace import Dataspace

UNBOUNDED = 2**40
"""Stands for "no upper bound": larger counts are not supported."""

EXACT_TOTALS = "the exact totals"


@frozen(eq=False)
class KnownTable:
    """What one published table says about each of its cells.

    Parameters
    ----------
    view
        The features of the table, and their depths.
    lower, upper
        The least and the largest count of each cell; both are the count where it is published.
    gap
        For a cell that is 0 or at least some number (secondary suppression), that number; else 0.
    hidden
        The cells that were published suppressed or rounded.
    source
        The name of the table.
    """

    view: View
    lower: Counts = field(repr=False)
    upper: Counts = field(repr=False)
    gap: Counts | None = field(default=None, repr=False)
    hidden: Mask | None = field(default=None, repr=False)
    source: str = EXACT_TOTALS

    @property
    def is_exact(self) -> bool:
        """Whether every count is published."""
        return bool((self.lower == self.upper).all())

    def subtract(self, known: Counts) -> "KnownTable":
        """Return what is known about the other records, given those that somebody knows."""
        if (self.upper < known).any():
            raise DataError(
                f"more records are known than {self.source} allow in a cell: are they of the same"
                " people?"
            )
        lower = np.maximum(self.lower - known, 0)
        upper = np.where(self.upper >= UNBOUNDED, self.upper, self.upper - known)
        gap = self.gap
        if gap is not None:
            # A cell with a known record is not empty, so the other branch holds.
            met = (gap > 0) & (known > 0)
            lower = np.where(met, np.maximum(lower, gap - known), lower)
            gap = np.where(met, 0, gap)
        return evolve(self, lower=lower, upper=upper, gap=gap)


@frozen(slots=False, eq=False)
class PublishedCounts:
    """Everything that is known about one set of records, and the cells that can hold one.

    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.spaces.dataspace import Margin
    >>> table = Table(Schema([Feature("sex", "fm"), Feature("ill", "yn")]), [[2, 1], [0, 4]])
    >>> space = Dataspace.from_table(table, [Margin("sex"), Margin("ill")])
    >>> counts = PublishedCounts.from_dataspace(space)
    >>> counts.crossing, [known.lower.tolist() for known in counts.tables]
    ((1, 1), [7, [3, 4], [2, 5]])
    """

    schema: Schema
    tables: tuple[KnownTable, ...]
    _sums: dict[View, Counts | None] = field(factory=dict, init=False, repr=False)
    _masks: dict[View, Mask] = field(factory=dict, init=False, repr=False)

    @classmethod
    def from_dataspace(cls, dataspace: Dataspace) -> "PublishedCounts":
        """Return the information in exact totals."""
        n = np.array(dataspace.n, dtype=np.int64)
        tables = [KnownTable(dataspace.schema.grid.nothing, n, n)]
        for total in dataspace.published_totals:
            tables.append(KnownTable(total.view, total.counts, total.counts))
        return cls(dataspace.schema, tuple(tables))

    @property
    def grid(self) -> Grid:
        """The cells and their margins."""
        return self.schema.grid

    @cached_property
    def crossing(self) -> View:
        """Every published feature at its deepest published depth."""
        return join(*(table.view for table in self.tables))

    @cached_property
    def cliques(self) -> list[View]:
        """The views of the tables that no other one contains; that of n where there is no other."""
        return maximal(table.view for table in self.tables) or [self.grid.nothing]

    @cached_property
    def is_exact(self) -> bool:
        """Whether every published number is exact, and every margin of a clique follows."""
        by_view = {table.view: table for table in self.tables if table.is_exact}
        return all(view in by_view for view in self.cliques) and all(
            table.is_exact for table in self.tables
        )

    def find_exact(self, view: View) -> Counts | None:
        """Return the counts of a view that follow from one exact table; None if none has it."""
        if view not in self._sums:
            self._sums[view] = None
            for table in self.tables:
                if is_within_view(view, table.view) and table.is_exact:
                    self._sums[view] = self.grid.sum(table.lower, view, table.view)
                    break
        return self._sums[view]

    def require_exact(self, view: View) -> Counts:
        """Return the counts of a view that lies within an exact table."""
        counts = self.find_exact(view)
        if counts is None:
            raise InputError("these counts do not follow from one exact table")
        return counts

    def possible(self, view: View) -> Mask:
        """Return the cells of a view that no declared structural zero rules out.

        Of very many cells only the zeros that lie within the view are looked at.
        """
        if view not in self._masks:
            zeros = self.schema.structural_zeros
            mask = np.ones(self.grid.compute_margin_shape(view), dtype=bool)
            if zeros and self.schema.size <= LARGEST_MASK:
                mask = np.asarray(self.grid.sum(self.schema.possible_cells, view) > 0)
            elif zeros and any(view):
                inside = self.schema.restrict(self.schema.list_view_names(view))
                mask = inside.possible_cells.reshape(mask.shape)
            self._masks[view] = mask
        return self._masks[view]

    def find_coarser(self, view: View, cell: int, coarser: View) -> int:
        """Return the cell of a coarser view that holds a cell of a view."""
        nodes = np.unravel_index(cell, self.grid.compute_margin_shape(view))
        place = dict(zip(list_axes(view), nodes, strict=True))
        position = [
            self.grid.chains[axis].ancestor(view[axis], int(place[axis]), coarser[axis])
            for axis in list_axes(coarser)
        ]
        shape = self.grid.compute_margin_shape(coarser)
        return int(np.ravel_multi_index(position, shape)) if position else 0

    def list_parts(self, view: View, cell: int, finer: View) -> list[int]:
        """Return the cells of a finer view that lie in a cell of a view."""
        nodes = np.unravel_index(cell, self.grid.compute_margin_shape(view))
        place = dict(zip(list_axes(view), nodes, strict=True))
        ranges = []
        for axis in list_axes(finer):
            chain = self.grid.chains[axis]
            node = int(place.get(axis, 0))
            below = chain.slice_descendants(view[axis], node, finer[axis])
            ranges.append(np.arange(below.start, below.stop))
        if not ranges:
            return [0]
        shape = self.grid.compute_margin_shape(finer)
        return [int(flat) for flat in np.ravel_multi_index(np.ix_(*ranges), shape).ravel()]

    def without_view(self, view: View, instead: Iterable[View] = ()) -> "PublishedCounts":
        """Return what is known if one exact table is not published, or only some of its margins."""
        kept = [table for table in self.tables if table.view != view]
        counts = self.require_exact(view)
        for coarser in instead:
            summed = self.grid.sum(counts, coarser, view)
            kept.append(KnownTable(coarser, summed, summed))
        return PublishedCounts(self.schema, tuple(kept))

    def subtract(self, records: Table) -> "PublishedCounts":
        """Return what is known about all records but some, which somebody knows."""
        grid = self.grid
        remaining = [table.subtract(grid.sum(records.counts, table.view)) for table in self.tables]
        return PublishedCounts(self.schema, tuple(remaining))

    def name_cell(self, view: View, flat: int) -> dict[str, str]:
        """Return the levels of one cell of a view, by feature."""
        shape = self.grid.compute_margin_shape(view)
        position = iter(np.unravel_index(flat, shape))
        levels = {}
        for feature, depth in zip(self.schema.features, view, strict=True):
            if not depth:
                continue
            node = int(next(position))
            leaf = feature.depths[depth - 1].starts[node]
            for name, label in zip(feature.names[:depth], feature.path(leaf)[:depth], strict=True):
                levels[name] = label
        return levels

    def locate_cell(self, levels: Mapping[str, str]) -> tuple[View, int]:
        """Return the view of a cell that a user names, and its position there."""
        view = self.schema.view(levels)
        position = []
        for axis, depth in enumerate(view):
            if not depth:
                continue
            feature = self.schema.features[axis]
            labels = [
                dict(zip(feature.names, feature.path(start), strict=True))
                for start in feature.depths[depth - 1].starts
            ]
            named = {name: level for name, level in levels.items() if name in feature.names}
            fitting = [node for node, path in enumerate(labels) if named.items() <= path.items()]
            if len(fitting) != 1:
                few = "no" if not fitting else "more than one"
                written = ", ".join(f"{name}={level}" for name, level in named.items())
                raise InputError(f"{few} level is called {written}")
            position.append(fitting[0])
        shape = self.grid.compute_margin_shape(view)
        return view, int(np.ravel_multi_index(position, shape)) if position else 0


ROUNDINGS = ("random", "conventional", "half-up", "half-down", "half-even")
ZEROS = ("maybe", "shown", "suppressed")


@frozen
class ReadingRules:
    """How the cells of a published table are read.

    Parameters
    ----------
    suppressed
        The marks of suppressed cells.
    secondary
        The marks of cells that were suppressed only to protect others, if these have separate
        marks.
    below
        The threshold: primary suppressed cells are smaller.
    shared_mark
        Whether the marks `suppressed` are also used for secondary cells.
    zeros
        ``shown``: zeros are never suppressed. ``suppressed``: zeros count as small. ``maybe``:
        zeros are not small, but may be suppressed to protect others.
    rounded
        The base to which published numbers are rounded.
    rounding
        ``random`` (the widest, and default), ``conventional`` (ties unknown), ``half-up``,
        ``half-down`` or ``half-even``.
    zeros_kept
        Whether a positive count is never published as 0.

    Examples
    --------
    >>> ReadingRules(suppressed=("c",), below=5).read_cell("c")
    (1, 4, 0)
    >>> ReadingRules(rounded=5, rounding="conventional").read_cell("10")
    (8, 12, 0)
    >>> ReadingRules(secondary=("x",), below=5).read_cell("x")[2]
    5
    """

    suppressed: tuple[str, ...] = ()
    secondary: tuple[str, ...] = ()
    below: int | None = None
    shared_mark: bool = False
    zeros: str = "maybe"
    rounded: int | None = None
    rounding: str = "random"
    zeros_kept: bool = False

    def __attrs_post_init__(self) -> None:
        if self.zeros not in ZEROS:
            raise InputError(f"⟨zeros⟩ is {', '.join(ZEROS)}, not {self.zeros!r}")
        if self.rounding not in ROUNDINGS:
            raise InputError(f"⟨rounding⟩ is {', '.join(ROUNDINGS)}, not {self.rounding!r}")
        if self.below is not None and self.below < 1:
            raise InputError("⟨below⟩ is a threshold of at least 1")
        if self.rounded is not None and self.rounded < 1:
            raise InputError("⟨rounded⟩ is a base of at least 1")
        if self.secondary and self.below is None:
            raise InputError("⟨secondary⟩ marks need the threshold ⟨below⟩")
        if set(self.secondary) & set(self.suppressed):
            raise InputError("a mark is either ⟨suppressed⟩ or ⟨secondary⟩: say which")

    def read_cell(self, text: str) -> tuple[int, int, int] | None:
        """Return the least count, the largest and the gap of a cell; None if it is not readable."""
        if text in self.secondary:
            return self._read_secondary()
        if text in self.suppressed:
            return self._read_primary()
        digits = text.replace(",", "") if "," in text else text
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 12):
            return None
        count = int(digits)
        if self.rounded is None or self.rounded == 1:
            return count, count, 0
        return self._read_rounded(count, self.rounded)

    def _read_primary(self) -> tuple[int, int, int]:
        least = 1 if self.zeros == "shown" else 0
        if self.below is None or self.shared_mark:
            return least, UNBOUNDED, 0
        if self.zeros != "suppressed":
            least = 1
        if self.below <= least:
            raise InputError(f"no count is small: ⟨below⟩ {self.below} leaves none to suppress")
        return least, self.below - 1, 0

    def _read_secondary(self) -> tuple[int, int, int]:
        least = self.below or 0
        return (0, UNBOUNDED, least) if self.zeros == "maybe" else (least, UNBOUNDED, 0)

    def _read_rounded(self, count: int, base: int) -> tuple[int, int, int]:
        if count % base:
            raise DataError(
                f"a published number is not a multiple of {base}: is ⟨rounded⟩ right for this"
                " table?"
            )
        if count == 0 and self.zeros_kept:
            return 0, 0, 0
        down, up = self._reach(count, base)
        lower = max(count - down, 0)
        if self.zeros_kept and count == base:
            lower = 1
        return lower, count + up, 0

    def _reach(self, count: int, base: int) -> tuple[int, int]:
        """How far below and above a rounded number the count may lie."""
        if self.rounding == "random":
            return base - 1, base - 1
        if base % 2:
            return (base - 1) // 2, (base - 1) // 2
        half = base // 2
        even = (count // base) % 2 == 0
        return {
            "conventional": (half, half),
            "half-up": (half, half - 1),
            "half-down": (half - 1, half),
            "half-even": (half, half) if even else (half - 1, half - 1),
        }[self.rounding]

    def describe(self) -> list[str]:
        """Describe in sentences how cells are read."""
        said = []
        if self.suppressed:
            lower, upper, _ = self._read_primary()
            said.append(f"{_list_marks(self.suppressed)} means {_range_text(lower, upper)}.")
        if self.secondary:
            lower, upper, gap = self._read_secondary()
            text = f"0, or {gap} and more" if gap else _range_text(lower, upper)
            said.append(f"{_list_marks(self.secondary)} means {text}.")
        if self.rounded is not None:
            kept = ", and a positive count is never 0" if self.zeros_kept else ""
            said.append(f"Numbers are rounded to {self.rounded} ({self.rounding}){kept}.")
        return said


def _list_marks(marks: Sequence[str]) -> str:
    return " or ".join(repr(mark) for mark in marks)


def _range_text(lower: int, upper: int) -> str:
    """Write an interval of counts.

    >>> _range_text(1, 4), _range_text(5, UNBOUNDED)
    ('1 to 4', '5 and more')
    """
    if upper >= UNBOUNDED:
        return f"{lower:,} and more"
    return f"{lower:,}" if lower == upper else f"{lower:,} to {upper:,}"


MOST_SWEEPS = 200
LOWER, UPPER = 0, 1

CONTRADICTION = (
    "no table of counts agrees with all of these numbers: they contradict each other, or the rules"
    " for suppressed and rounded cells are not those of these tables"
)


@frozen(eq=False)
class Step:
    """Bounds that one rule moved: those of `cells` (flat) of a view, derived from another view.

    `whole` is the coarser view of the two: where it is `view` itself, parts were added up.
    """

    view: View
    side: int
    cells: Counts
    values: Counts
    whole: View
    part: View


@define(eq=False)
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
    steps: list[Step] = field(factory=list)

    @classmethod
    def from_counts(cls, counts: PublishedCounts, further: Sequence[View] = ()) -> "Narrowing":
        """Narrow the published bounds, with further unpublished views."""
        views = dict.fromkeys(table.view for table in counts.tables)
        for one in list(views):
            for other in list(views):
                views.setdefault(meet(one, other))
        views |= dict.fromkeys(further)
        lower, upper = {}, {}
        for view in views:
            shape = counts.grid.compute_margin_shape(view)
            lower[view] = np.zeros(shape, dtype=np.int64)
            upper[view] = np.where(counts.possible(view), UNBOUNDED, 0).astype(np.int64)
        narrowed = cls(counts, lower, upper)
        for table in counts.tables:
            # A table with some cells left out says nothing of those.
            narrowed.lower[table.view] = np.maximum(narrowed.lower[table.view], table.lower)
            narrowed.upper[table.view] = np.minimum(narrowed.upper[table.view], table.upper)
        narrowed._check()
        narrowed._run()
        return narrowed

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
        siblings = grid.spread(grid.sum(high, whole, part), whole, part) - high
        least = grid.spread(self.lower[whole], whole, part) - siblings
        self._move(part, LOWER, least, whole, part)

    def _subtract_upper(self, whole: View, part: View) -> None:
        """A part is at most its sum less the least of the other parts."""
        grid = self.counts.grid
        low = self.lower[part]
        siblings = grid.spread(grid.sum(low, whole, part), whole, part) - low
        most = grid.spread(self.upper[whole], whole, part)
        most = np.where(most >= UNBOUNDED, UNBOUNDED, most - siblings)
        self._move(part, UPPER, most, whole, part)

    def _fill_gaps(self) -> None:
        """A cell that is 0 or at least k, and cannot be one of the two, is the other."""
        for table in self.counts.tables:
            if table.gap is None:
                continue
            view = table.view
            some = (table.gap > 0) & (self.lower[view] > 0)
            self._move(view, LOWER, np.where(some, table.gap, 0), view, view)
            none = (table.gap > 0) & (self.upper[view] < table.gap)
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
        reason = self.find_step(view, side, cell, before)
        if reason is not None:
            step = reason[1]
            return int(step.values[np.searchsorted(step.cells, cell)])
        start = UNBOUNDED if self.counts.possible(view).ravel()[cell] else 0
        value = start if side == UPPER else 0
        for table in self.list_tables(view):
            told = (table.lower, table.upper)[side].ravel()[cell]
            value = int(min(value, told) if side == UPPER else max(value, told))
        return value

    def list_tables(self, view: View) -> Iterator[KnownTable]:
        """Yield the published tables over a view."""
        for table in self.counts.tables:
            if table.view == view:
                yield table
