"""What a release says of a table with a budget of its own.

Tables that share a budget are in `product_words`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from semidp.promise.exact import count_noun
from semidp.publish.plotting import loss_plot
from semidp.publish.results.cells import Form
from semidp.publish.results.sections import Details, Section, page_cells, table_title
from semidp.publish.results.texts import CLAIM_TEXTS, scale_text
from semidp.publish.statistics.tables.error_words import NONE_FOUND, error_lines

if TYPE_CHECKING:
    from semidp.publish.statistics.tables.published import PublishedTables

_LOSS_CAPTION = (
    "The picture shows how far the measurement is expected to be from the true table: the root of"
    " the mean of the sum of squares over all cells. This is known before any noise is drawn. The"
    " other bar is ordinary differential privacy, with enough noise to give the same guarantee for"
    " as many records (group privacy)."
)
_FOR_STUDIES = (
    "for studies: the proof is for real-valued noise, and floating-point numbers are published as"
    " drawn"
)


def title(result: "PublishedTables") -> str:
    """Name the one table by its features."""
    return table_title(result.only)


def noisy_lines(result: "PublishedTables") -> list[str]:
    """Say how many cells have noise."""
    if result.noise.absent:
        return [f"nothing of {title(result)}: the exact totals fix the whole table"]
    return [f"{title(result)}: {count_noun(result.only.schema.size, 'cell')}"]


def summary_lines(result: "PublishedTables") -> list[tuple[str, str]]:
    """Return how wrong a cell is, and the mechanism, for a terminal."""
    noise = result.noise
    how = f"{noise.mechanism}, scale {scale_text(noise.scale)}"
    if result.residuals is not None:
        # Residuals have a scale each: what they are says more than the largest of those.
        how = "noise on residuals (what the table has beyond its totals)"
    more_error = noise.naive_l2 / noise.expected_l2 if noise.naive_l2 and noise.expected_l2 else 1.0
    if more_error >= 1.05:
        how += (
            f"; ordinary differential privacy has {more_error:.2g} times the error at the same"
            " guarantee"
        )
    return [*error_lines(result.cell_errors()), ("mechanism", how)]


def section(result: "PublishedTables", form: Form | None) -> Section:
    """Return the section of a table: its counts, and its expected loss beside ordinary differential
    privacy.
    """
    naive = result.noise.naive_l2
    figure = None
    if naive is not None:
        figure = loss_plot(
            {"this release": result.noise.expected_l2, "ordinary DP,\nsame guarantee": naive}
        )
    cells = page_cells(result.only, result.guarantee.dataspace, result.noise.absent, form)
    return Section(
        heading=cells.heading,
        paragraphs=[table_summary(result)],
        cells=cells,
        figure=figure,
        figure_label="Expected loss of this release compared with ordinary differential privacy",
        caption=_LOSS_CAPTION,
    )


def table_summary(result: "PublishedTables") -> str:
    """Say how one table was made."""
    table, noise = result.only, result.noise
    if noise.absent:
        return (
            "The exact totals fix every cell of this table, so it is published exactly and needs no"
            " noise."
        )
    how = (
        "The measurement is the true table with noise added to it"
        f" ({noise.mechanism} mechanism, scale {scale_text(noise.scale)})"
    )
    if result.residuals is not None:
        how = (
            "The measurement has noise in its residuals, which are what the table says beyond its"
            f" own totals ({len(result.residuals.sigma2)} of them, each with a scale of its own)"
        )
    if table.fitted.kind == "none":
        return (
            f"{how}. The measurement itself is published: counts may be negative, and exact totals"
            " are met up to rounding."
        )
    if table.counts.dtype.kind == "i":
        made = "Each count is a whole number, none is negative, and every exact total is met."
    else:
        made = "No count is negative, but counts need not be whole."
        # A fit that was ended early may miss totals: its note says so.
        made += " Every exact total is met up to rounding." if table.fitted.optimal else ""
    fitted = "The counts are fitted to the measurement."
    return f"{how}. {fitted} {made} {table.fitted.note}".strip()


def details(result: "PublishedTables") -> Details:
    """Say how a table was measured and fitted."""
    fitted = result.only.fitted
    fit = ("Fit", f"{fitted.kind}: {fitted.method}")
    return Details(title(result), f"scale {scale_text(result.noise.scale)}", (fit,))


def file_words(result: "PublishedTables", form: Form | None) -> list[tuple[str, str]]:
    """Say what the two files of a table hold."""
    counts, measurements = result.files(form)
    return [
        (counts, f"the published counts of {title(result)}, one row per cell"),
        (measurements, f"the measurements of {title(result)} before fitting, for statisticians"),
    ]


def claim_text(result: "PublishedTables") -> str:
    """Say whether the claim is about the numbers that were drawn: floating-point numbers have no
    proof.
    """
    if result.noisy.dtype.kind != "i":
        return _FOR_STUDIES
    return CLAIM_TEXTS[result.noise.claim]


def none_found(name: str) -> str:
    """Say that a table was asked for in whole numbers and has none."""
    return f"{NONE_FOUND} {name!r}: its counts are real numbers."


def explain_separate_budgets(results: Sequence["PublishedTables"]) -> list[str]:
    """Say that tables with budgets of their own were measured one by one."""
    if len(results) < 2:
        return []
    return [
        f"{len(results)} tables were measured one by one, each with a budget of its own: what is"
        " not exact and occurs in two of them is two numbers."
    ]
