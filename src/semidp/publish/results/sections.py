"""Sections of a page: words, numbers and figures of a result, and how a page shows tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from semidp.promise.spaces.dataspace import Datasets, Dataspace
from semidp.promise.spaces.linked import UNIT
from semidp.publish.results.cells import Form
from semidp.publish.results.grids import FOLDED_CELLS, Branch, CellGrid, branches, faint_cells, grid
from semidp.publish.results.published_table import PublishedTable
from semidp.publish.results.texts import error_text

LISTED_ROWS = 1000
"""So many rows of a list are on the page; the files hold all."""


@dataclass(frozen=True, kw_only=True)
class PageCells:
    """The counts of a table as a page shows them: as numbers, folded by parent, as shades, or only
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
        How far the counts may be off.
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


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the report under a heading of its own; what is left out is not shown.

    Parameters
    ----------
    heading, paragraphs
        What it is about.
    cells
        The counts of the table that it is about.
    figure, figure_label, caption
        A matplotlib figure, what it is called for those who do not see it (the heading unless
        given), and its caption.
    columns, rows, names
        A list as texts, of which the first `names` columns are words.
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


@dataclass(frozen=True)
class Details:
    """How something was measured, for specialists.

    Parameters
    ----------
    what
        What was measured: the mechanism of `what`.
    how
        With what noise, after the name of the mechanism.
    further
        Further facts, each with its name.
    """

    what: str
    how: str
    further: tuple[tuple[str, str], ...] = ()


SHOWN_TABLES = 6
"""So many of the tables that share a budget are on the page with all their counts."""


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
    """Say how far the estimates may be off; `shown` says that each error stands below its count."""
    if absent:
        return (
            "Published counts, which follow from the exact totals: there is no noise and no error."
        )
    below = ", and below each the standard error of its estimate" if shown else ""
    largest = error_text(float(table.standard_errors.max(initial=0.0)))
    caption = (
        f"Published counts{below}. The largest standard error is {largest}. It is the error of the"
        " estimate, not of the count, which was fitted to the estimate. The file has both. Counts"
        " are for a table that adds up. To add up small cells yourself, take the estimates: small"
        " counts are too large on average."
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
