"""What a release says of a table with a budget of its own, and of the cells of any table.

Tables that share a budget are in `product_words`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from semidp.output.cells import Form
from semidp.output.grids import FOLDED_CELLS, branches, faint_cells, grid
from semidp.output.plots.figures import loss_plot
from semidp.output.sections import Details, PageCells, Section
from semidp.output.texts import CLAIM_TEXTS, error_text, scale_text
from semidp.statistics.tables.error_words import CellErrors, error_lines

if TYPE_CHECKING:
    from semidp.statistics.tables.published import CellTable, PublishedTable

SHOWN_TABLES = 6
"""So many of the tables that share a budget are on the page with all their counts."""

NONE_FOUND = "No whole numbers with all totals were found for the table"
"""How a warning begins that a table misses some of its totals."""

_LOSS_CAPTION = (
    "Root mean squared distance between the measurement and the true table, known before any noise was drawn, next to "
    "ordinary differential privacy pushed to the same guarantee by group privacy."
)
_FOR_STUDIES = "for studies: the proof is for real-valued noise, and floating-point numbers are published as drawn"


def table_title(table: "CellTable") -> str:
    """Name a table by its features."""
    return " by ".join(table.schema.names)


def noisy_lines(table: "PublishedTable") -> list[str]:
    """Say how many cells have noise."""
    title = table_title(table)
    if table.noise.absent:
        return [f"nothing of {title}: the exact totals fix the whole table"]
    return [f"{title}: {table.schema.size:,} cells"]


def summary_lines(table: "PublishedTable") -> list[tuple[str, str]]:
    """Return how wrong a cell is, and the mechanism, for a terminal."""
    noise = table.noise
    how = f"{noise.mechanism}, scale {scale_text(noise.scale)}"
    more_error = noise.naive_l2 / noise.expected_l2 if noise.naive_l2 and noise.expected_l2 else 1.0
    if more_error >= 1.05:
        how += f"; ordinary DP at the same guarantee has {more_error:.2g} times the error"
    return [*error_lines([CellErrors.of(table)]), ("mechanism", how)]


def section(table: "PublishedTable", form: Form | None) -> Section:
    """Return the section of a table: its counts, and its expected loss beside ordinary differential privacy."""
    naive = table.noise.naive_l2
    figure = None
    if naive is not None:
        figure = loss_plot({"this release": table.noise.expected_l2, "ordinary DP,\nsame guarantee": naive})
    cells = page_cells(table, table.noise.absent, form)
    return Section(
        heading=cells.heading,
        paragraphs=[table_summary(table)],
        cells=cells,
        figure=figure,
        figure_label="Expected loss of this release beside ordinary differential privacy",
        caption=_LOSS_CAPTION,
    )


def table_summary(table: "PublishedTable") -> str:
    """Say how one table was made."""
    if table.noise.absent:
        return "The exact totals fix every cell of this table, so it is published exactly and needs no noise."
    how = f"Measured with the {table.noise.mechanism} mechanism (scale {scale_text(table.noise.scale)})"
    if table.residuals is not None:
        how = f"Measured on {len(table.residuals.sigma2)} residuals, each with noise of its own"
    if table.fitted.kind == "none":
        return (
            f"{how}. This is the measurement itself: counts may be negative, and exact totals are met up to rounding."
        )
    if table.counts.dtype.kind == "i":
        made = "Each count is a whole number, none is negative, and every exact total is met."
    else:
        made = "No count is negative, but counts need not be whole."
        # A fit that was ended early may miss totals: its note says so.
        made += " Every exact total is met up to rounding." if table.fitted.optimal else ""
    return f"{how} and fitted to the exact totals. {made} {table.fitted.note}".strip()


def page_cells(table: "CellTable", absent: bool, form: Form | None) -> PageCells:
    """Return the counts of a table as a page shows them; `absent` says that there is no noise in them."""
    parts = branches(table)
    cells = None if parts else grid(table)
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


def first_cells(tables: Sequence["CellTable"], absent: bool, form: Form | None) -> list[PageCells]:
    """Return the counts of the first tables, as far as they fit on a page."""
    fitting = [table for table in tables[:SHOWN_TABLES] if table.schema.size <= FOLDED_CELLS]
    return [page_cells(table, absent, form) for table in fitting]


def errors_caption(table: "CellTable", absent: bool, shown: bool) -> str:
    """Say how far the estimates may be off; `shown` says that each error stands below its count."""
    if absent:
        return "Published counts, which follow from the exact totals: there is no noise and no error."
    below = ", and below each the standard error of its estimate" if shown else ""
    largest = error_text(float(table.standard_errors.max(initial=0.0)))
    caption = (
        f"Published counts{below}. A standard error belongs to the estimate, which the file has beside the count, and "
        f"not to the fitted count; the largest is {largest}."
    )
    low = faint_cells(table)
    if not low.any():
        return caption
    mark = " (marked ≈)" if shown else ""
    limit = "two standard errors" if table.half_widths is None else "the half-width of their 95% interval"
    dominated = f"Noise dominates {int(low.sum()):,} of {low.size:,} counts{mark}"
    return f"{caption} {dominated}: they are smaller than {limit}."


def details(table: "PublishedTable") -> Details:
    """Say how a table was measured and fitted."""
    fit = ("Fit", f"{table.fitted.kind}: {table.fitted.method}")
    return Details(table_title(table), f"scale {scale_text(table.noise.scale)}", (fit,))


def file_words(table: "PublishedTable", form: Form | None) -> list[tuple[str, str]]:
    """Say what the two files of a table hold."""
    counts, measurements = table.files(form)
    title = table_title(table)
    return [
        (counts, f"the published counts of {title}, one row a cell"),
        (measurements, f"the measurements of {title} before fitting, for statisticians"),
    ]


def claim_text(table: "PublishedTable") -> str:
    """Say whether the claim is about the numbers that were drawn: floating-point numbers have no proof."""
    if table.noisy.dtype.kind != "i":
        return _FOR_STUDIES
    return CLAIM_TEXTS[table.noise.claim]


def warnings(table: "PublishedTable") -> list[str]:
    """Say that a table was asked for in whole numbers and has none."""
    if table.fitted.kind != "integer" or table.counts.dtype.kind == "i":
        return []
    return [f"{NONE_FOUND} {table.name!r}: its counts are real numbers."]


def misses_totals(name: str, where: str = "") -> str:
    """Say that a table, everywhere or in some parts, has no whole numbers with all its totals."""
    return f"{NONE_FOUND} {name!r}{where}: its counts there are whole and not negative, but miss some totals."


def apart(tables: Sequence["PublishedTable"]) -> list[str]:
    """Say that tables with budgets of their own were measured one by one."""
    if len(tables) < 2:
        return []
    return [
        f"{len(tables)} tables were measured one by one, each with a budget of its own: what is not exact and "
        "occurs in two of them is two numbers."
    ]
