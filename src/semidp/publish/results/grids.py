"""Published counts laid out as a table for readers: which feature goes across, the text and the
shade of each cell.

A table with a nested feature is cut into one table for each of its coarsest nodes, with subtotals.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise, product
from typing import Any
from urllib.parse import quote

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from semidp.promise.schema.features import Feature
from semidp.promise.spaces.dataspace import Datasets, Dataspace, Margin
from semidp.promise.spaces.linked import UNIT
from semidp.publish.results.columns import Form
from semidp.publish.results.published_table import PublishedTable
from semidp.publish.results.texts import count_text, error_text

SHOWN_CELLS = 600  # beyond this many cells numbers help nobody, and a picture must do
# so many cells of a nested table are on the page, folded by parent; beyond it only subtotals
FOLDED_CELLS = 20_000
_UNFOLDED_CELLS = 120
_LISTED_NODES = 20_000  # of a larger table, over all of its parts
_ACROSS = 12  # columns that a page holds side by side


@frozen
class Cell:
    """One published count with the standard error of its estimate, as text; `shade` runs from 0 to
    1.

    It is `faint` if the count is smaller than the half-width of its 95% interval: mostly noise. It
    is `exact` if the estimate has no error.
    """

    count: str
    error: str
    shade: float
    faint: bool
    exact: bool


@frozen
class Total:
    """A sum of published counts as text; `exact` if it follows from the exact totals."""

    count: str
    exact: bool


@frozen
class Row:
    """One line of the table: the levels that start here, each with the number of lines it spans,
    the cells, their sum.

    A block of lines ends with the sums of its columns as `subtotals`, unless it has a single line.
    """

    heads: tuple[tuple[str, int], ...]
    cells: tuple[Cell, ...]
    total: Total
    subtotals: tuple[Total, ...] = ()


@frozen
class CellGrid:
    """A table of published counts: the features down the side, one feature across (or none), the
    lines, their sums.

    The last of `totals` is that of the whole table if a feature runs across.
    """

    side: tuple[str, ...]
    across: str | None
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    totals: tuple[Total, ...]


@frozen
class Branch:
    """The content below one of the coarsest nodes: its name, its subtotal, and its table.

    A table that is too large for a page is replaced by the names and totals of the nodes at the
    next depth, or the first of them if they are many; `unlisted` counts those left out.
    """

    name: str
    total: Total
    grid: CellGrid | None
    unfolded: bool
    nodes: tuple[tuple[str, Total], ...] = ()
    unlisted: int = 0


@frozen(eq=False)
class _Numbers:
    """The numbers of a table that a page shows, cell by cell."""

    counts: NDArray[Any]
    errors: NDArray[np.float64]
    faint: NDArray[np.bool_]

    def part(self, place: tuple[slice, ...]) -> "_Numbers":
        """Return those of some cells."""
        return _Numbers(self.counts[place], self.errors[place], self.faint[place])

    def lines(self, across: int | None, columns: int) -> "_Numbers":
        """Return them line by line, with one axis across."""
        arrays: list[Any] = [self.counts, self.errors, self.faint]
        if across is not None:
            arrays = [np.moveaxis(array, across, -1) for array in arrays]
        return _Numbers(*(array.reshape(-1, columns) for array in arrays))


@frozen
class _Sums:
    """Which sums of a table's cells are exact, by the axes that they are not taken over."""

    public: Dataspace
    names: tuple[str, ...]
    top: str | None = None
    """The depth at which a nested feature is cut, to which all of its sums belong."""

    def total(self, count: Any, axes: Iterable[int], *depths: str) -> Total:
        """Return a sum of counts for one level of each of these axes, and of these depths."""
        names = {*(self.names[axis] for axis in axes), *depths}
        names |= set() if self.top is None else {self.top}
        # what the data are not declared to hold is no part of an exact total
        is_public = names <= {*self.public.schema.names}
        return Total(count_text(count), is_public and self.public.publishes(Margin(*sorted(names))))


def grid(table: PublishedTable, public: Dataspace) -> CellGrid | None:
    """Lay out a published table with one feature across and the others down the side; None if it
    is too large.

    The feature across is the one with the most levels that still fit side by side, the last of
    equals. `public` says which sums are exact.
    """
    if table.schema.size > SHOWN_CELLS:
        return None
    features = [_flat(feature) for feature in table.schema.features]
    names = tuple(feature.name for feature in table.schema.features)
    return _laid_out(features, _numbers(table), _Sums(public, names))


def branches(table: PublishedTable, public: Dataspace) -> tuple[Branch, ...]:
    """Cut a published table at the coarsest depth of its first nested feature; empty if it has
    none. `public` says which sums are exact.
    """
    features = table.schema.features
    nested = [axis for axis, feature in enumerate(features) if feature.above]
    if not nested:
        return ()
    axis = nested[0]
    numbers, size = _numbers(table), table.schema.size
    top, paths = features[axis].depths[0], features[axis].paths()
    below = " · ".join(features[axis].names[1:])
    sides = [_flat(feature) for feature in features]
    sums = _Sums(public, tuple(feature.name for feature in features), top.name)
    parts = []
    for name, (start, end) in zip(top.labels, pairwise((*top.starts, len(paths))), strict=True):
        here = numbers.part((slice(None),) * axis + (slice(start, end),))
        laid_out = None
        if size <= FOLDED_CELLS:
            # The coarsest label stands above the table of its branch.
            labels = [" · ".join(path[1:]) for path in paths[start:end]]
            sides[axis] = Feature(below, tuple(labels))
            laid_out = _laid_out(sides, here, sums, down=axis)
        total = sums.total(here.counts.sum().item(), ())
        if laid_out is not None:
            parts.append(Branch(name, total, laid_out, size <= _UNFOLDED_CELLS))
            continue
        # At least ten nodes of every part, however many parts there are.
        most = max(10, _LISTED_NODES // len(top.labels))
        nodes = _nodes_below(features[axis], here.counts, axis, (start, end), sums)
        unlisted = max(0, len(nodes) - most)
        parts.append(Branch(name, total, None, False, nodes[:most], unlisted))
    return tuple(parts)


def _nodes_below(
    feature: Feature, counts: NDArray[Any], axis: int, leaves: tuple[int, int], sums: _Sums
) -> tuple[tuple[str, Total], ...]:
    """Return the nodes at the second depth over some leaves, each with the sum of its counts."""
    start, end = leaves
    second = feature.depths[1]
    starts = np.asarray(second.starts)
    inside = np.flatnonzero((starts >= start) & (starts < end))
    across = tuple(place for place in range(counts.ndim) if place != axis)
    by_leaf = counts.sum(axis=across)
    counted = np.add.reduceat(by_leaf, starts[inside] - start)
    labels = [second.labels[place] for place in inside.tolist()]
    totals = [sums.total(count, (), second.name) for count in counted.tolist()]
    return tuple(zip(labels, totals, strict=True))


def faint_cells(table: PublishedTable) -> NDArray[np.bool_]:
    """Return the cells whose count is smaller than the half-width of its interval: mostly noise.

    Large tables have no intervals: two standard errors stand for them.
    """
    # Files hold the ends of intervals to six digits: a count on the very edge is told apart alike
    # before and after.
    return np.asarray(table.counts < _half_widths(table) - 3e-6)


def edge_cells(table: PublishedTable) -> NDArray[np.bool_]:
    """Return the cells whose count is the half-width of its interval up to rounding."""
    return np.asarray(np.abs(table.counts - _half_widths(table)) < 1e-5)


def _half_widths(table: PublishedTable) -> NDArray[np.float64]:
    return 2 * table.standard_errors if table.half_widths is None else table.half_widths


def _numbers(table: PublishedTable) -> _Numbers:
    return _Numbers(table.counts, table.standard_errors, faint_cells(table))


def _flat(feature: Feature) -> Feature:
    """Return a feature whose levels are whole paths, for a reader."""
    if not feature.above:
        return feature
    paths = [" · ".join(path) for path in feature.paths()]
    return Feature(" · ".join(feature.names), tuple(paths))


def _laid_out(
    features: list[Feature], numbers: _Numbers, sums: _Sums, down: int | None = None
) -> CellGrid:
    """Lay out counts with one feature across, never the one that is to run down."""
    chosen = _across(features, down)
    axes = [position for position in range(len(features)) if position != chosen]
    side = [features[position] for position in axes]
    across: str | None = None
    columns: tuple[str, ...] = ("count",)
    if chosen is not None:
        across, columns = features[chosen].name, features[chosen].levels
    lines = numbers.lines(chosen, len(columns))
    largest = max(float(np.max(lines.counts, initial=0)), 1.0)
    # A block of lines belongs to one level of the first feature; one block, or blocks of a line,
    # need no subtotals.
    block = math.prod(len(feature.levels) for feature in side[1:])
    has_subtotals = 1 < block < len(lines.counts)
    rows = []
    for line, heads in enumerate(_heads(side)):
        ends_block = has_subtotals and (line + 1) % block == 0
        subtotals: tuple[Total, ...] = ()
        if ends_block:
            subtotals = _totals(lines.counts[line + 1 - block : line + 1], chosen, sums, axes[:1])
        total = sums.total(lines.counts[line].sum().item(), axes)
        rows.append(Row(heads, _cells(lines, line, largest), total, subtotals))
    names = tuple(feature.name for feature in side)
    totals = _totals(lines.counts, chosen, sums, ())
    return CellGrid(names, across, columns, tuple(rows), totals)


def _cells(lines: _Numbers, line: int, largest: float) -> tuple[Cell, ...]:
    """Return the cells of one line."""
    columns = zip(
        lines.counts[line].tolist(),
        lines.errors[line].tolist(),
        lines.faint[line].tolist(),
        strict=True,
    )
    cells = []
    for count, error, faint in columns:
        # The root keeps small counts apart next to a few large ones.
        shade = math.sqrt(max(count, 0) / largest)
        exact = error == 0
        cells.append(Cell(count_text(count), error_text(error), round(shade, 3), faint, exact))
    return tuple(cells)


def _totals(counts: Any, chosen: int | None, sums: _Sums, axes: Sequence[int]) -> tuple[Total, ...]:
    """Return the sums of columns for one level of each of some axes, and their sum where a feature
    runs across.
    """
    columns = counts.sum(axis=0)
    across = [] if chosen is None else [chosen]
    totals = [sums.total(total, (*axes, *across)) for total in columns.tolist()]
    if chosen is not None:
        totals.append(sums.total(columns.sum().item(), axes))
    return tuple(totals)


def _across(features: list[Feature], down: int | None) -> int | None:
    """Return the position of the feature across, or None for a table of one feature, which runs
    down the page.
    """
    if len(features) == 1:
        return None
    sizes = {
        position: len(feature.levels)
        for position, feature in enumerate(features)
        if position != down
    }
    fitting = [position for position, size in sizes.items() if size <= _ACROSS]
    if not fitting:
        return min(sizes, key=lambda position: sizes[position])
    return max(fitting, key=lambda position: (sizes[position], position))


def _heads(side: list[Feature]) -> list[tuple[tuple[str, int], ...]]:
    """Return the heads of each line: a level is written where it starts, and spans the lines it
    holds for.
    """
    spans = []
    for depth in range(len(side)):
        spans.append(math.prod(len(feature.levels) for feature in side[depth + 1 :]))
    heads = []
    for line, levels in enumerate(product(*(feature.levels for feature in side))):
        starting = [
            (level, span) for level, span in zip(levels, spans, strict=True) if line % span == 0
        ]
        heads.append(tuple(starting))
    return heads


LISTED_ROWS = 1000
"""The most rows of a list on the page; the files hold all."""


@frozen(kw_only=True)
class PageCells:
    """The counts of a table as a page shows them: numbers, folded by parent, a heat map, or only
    the file.

    Parameters
    ----------
    heading
        What the table is called.
    grid, branches, heatmap
        The first of them that there is, is shown.
    top
        The coarsest depth, by which `branches` are cut.
    caption
        The errors of the counts.
    cells
        The number of cells.
    file, link
        The file that holds all of them, and its address.
    """

    heading: str
    grid: CellGrid | None
    branches: tuple[Branch, ...]
    heatmap: Any
    top: str
    caption: str
    cells: str
    file: str
    link: str


@frozen(kw_only=True)
class Section:
    """A section of the report with its own heading; empty parts are not shown.

    Parameters
    ----------
    heading, paragraphs
        Its heading and text.
    cells
        The counts of the table that it is about.
    figure, figure_label, caption
        A matplotlib figure, its alternative text (default: the heading), and its
        caption.
    columns, rows, names
        A list as texts, whose first `names` columns are words.
    empty
        Groups that hold no record.
    tables
        The counts of further tables.
    """

    heading: str
    paragraphs: Sequence[str] = ()
    cells: PageCells | None = None
    figure: Any = None
    figure_label: str | None = None
    caption: str = ""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    names: int = 1
    empty: Sequence[str] = ()
    tables: Sequence[PageCells] = ()


@frozen
class Details:
    """How a result was measured, for specialists.

    Parameters
    ----------
    what
        The subject: the mechanism of `what`.
    how
        Its noise, after the name of the mechanism.
    further
        Further facts, each with its name.
    """

    what: str
    how: str
    further: tuple[tuple[str, str], ...] = ()


SHOWN_TABLES = 6
"""The most tables sharing a budget whose counts are on the page."""


def table_title(table: PublishedTable) -> str:
    """Name a table by its features; one that counts units of linked files says so."""
    title = " by ".join(table.as_asked().schema.names)
    return f"units by {title}" if table.counted == UNIT else title


def page_cells(
    table: PublishedTable, public: Datasets, absent: bool, form: Form | None
) -> PageCells:
    """Return the counts of a table as a page shows them; `public` says which sums are exact, and
    `absent` that there is no noise in them.
    """
    laid_out = table.as_asked()
    assert isinstance(public, Dataspace)
    about = public.for_kind(table.counted)
    parts = branches(laid_out, about)
    cells = None if parts else grid(laid_out, about)
    shown = bool(cells or parts)
    nested = [feature for feature in table.schema.features if feature.above]
    file = f"{table.name}.{table.columns().form(form)}"
    return PageCells(
        heading=f"Published counts: {table_title(table)}",
        grid=cells,
        branches=parts,
        # Where numbers are too many, shades must do.
        heatmap=None if shown else table.plot(),
        top=nested[0].names[0] if nested else "",
        caption=errors_caption(table, absent, shown),
        cells=f"{table.schema.size:,}",
        file=file,
        link=quote(file),
    )


def first_cells(
    tables: Sequence[PublishedTable], public: Datasets, absent: bool, form: Form | None
) -> list[PageCells]:
    """Return the counts of the first tables, as far as they fit on a page."""
    fitting = [table for table in tables[:SHOWN_TABLES] if table.schema.size <= FOLDED_CELLS]
    return [page_cells(table, public, absent, form) for table in fitting]


def counts_sections(
    heading: str,
    tables: Sequence[PublishedTable],
    public: Datasets,
    absent: bool,
    form: Form | None,
) -> list[Section]:
    """Return the section of the counts of the first tables; none where none fits on a page."""
    cells = first_cells(tables, public, absent, form)
    return [Section(heading=heading, tables=cells)] if cells else []


def errors_caption(table: PublishedTable, absent: bool, shown: bool) -> str:
    """Describe the errors of the estimates; `shown` means that each error is below its count."""
    if absent:
        return (
            "Published counts, which follow from the exact totals: there is no noise and no error."
        )
    below = ", and below each the standard error of its estimate" if shown else ""
    largest = error_text(float(table.standard_errors.max(initial=0.0)))
    caption = (
        f"Published counts{below}. The largest standard error is {largest}. Counts were fitted to"
        " the estimates, so this is not their error. The file has both. Counts make a table that"
        " adds up. For sums of your own take estimates: sums of small counts are too large on"
        " average."
    )
    low = faint_cells(table)
    if not low.any():
        return caption
    mark = " (marked ≈)" if shown else ""
    limit = (
        "two standard errors"
        if table.half_widths is None
        else "the half-width of their 95% interval"
    )
    dominated = f"Noise dominates {int(low.sum()):,} of {low.size:,} counts{mark}"
    return f"{caption} {dominated}: they are smaller than {limit}."
