"""Published tables on a page: their counts, how far the estimates may be off, and what they are
called.
"""

from collections.abc import Sequence
from urllib.parse import quote

from semidp.promise.spaces.dataspace import Datasets, Dataspace
from semidp.promise.spaces.linked import UNIT
from semidp.publish.results.cells import Form
from semidp.publish.results.grids import FOLDED_CELLS, branches, faint_cells, grid
from semidp.publish.results.published_table import PublishedTable
from semidp.publish.results.sections import PageCells
from semidp.publish.results.texts import error_text

SHOWN_TABLES = 6
"""So many of the tables that share a budget are on the page with all their counts."""


def table_title(table: PublishedTable) -> str:
    """Name a table by its features."""
    return " by ".join(table.as_asked().schema.names)


def _counted_title(table: PublishedTable) -> str:
    """Name a table by its features; one that counts units of linked files says so."""
    title = table_title(table)
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
        heading=f"Published counts: {_counted_title(table)}",
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
