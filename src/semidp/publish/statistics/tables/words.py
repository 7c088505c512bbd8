"""What a release says of tables: of one with a budget of its own, or of several that share one and
fit together.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from semidp.promise.exact import count_noun
from semidp.promise.mechanisms.residual_noise import ResidualMechanism
from semidp.promise.schema.margins import View, maximal, meet
from semidp.publish.comparisons import find_excess_variance
from semidp.publish.plotting import loss_plot
from semidp.publish.presentation import report_words
from semidp.publish.results.cells import Form
from semidp.publish.results.sections import (
    LISTED_ROWS,
    Details,
    Section,
    counts_sections,
    page_cells,
    table_title,
)
from semidp.publish.results.texts import CLAIM_TEXTS, error_text, more, name_tradeoff, scale_text
from semidp.publish.statistics.tables.error_words import (
    ERRORS_TEXT,
    FEW_TABLES,
    HEADINGS,
    NONE_FOUND,
    error_lines,
    misses_totals,
)

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
_NAMED_TABLES = 4  # in the heading of a report
_LISTED_TABLES = 40
_NAMED_OTHERS = 3


def title(product: "PublishedTables") -> str:
    """Name the tables, or their number where they are many."""
    if len(product.tables) > _NAMED_TABLES:
        return f"{len(product.tables)} tables"
    return ", ".join(table_title(table) for table in product.tables)


def noisy_lines(product: "PublishedTables") -> list[str]:
    """Say how many cells with noise each table has; where tables are many, all of them together."""
    tables = product.tables
    if product.request.is_single_table:
        if product.noise.absent:
            return [f"nothing of {title(product)}: the exact totals fix the whole table"]
        return [f"{title(product)}: {count_noun(product.only.schema.size, 'cell')}"]
    if len(tables) <= FEW_TABLES:
        return [
            f"{table_title(table)}: {count_noun(table.schema.size, 'cell')}, together with the"
            " other tables"
            for table in tables
        ]
    cells = sum(table.schema.size for table in tables)
    return [f"{len(tables):,} tables, which add up: {cells:,} cells"]


def mechanism_lines(tables: Sequence[str], mechanism: ResidualMechanism, what: str) -> list[str]:
    """Say how residuals are measured, what joint sensitivity saved, and how large the errors of
    each table are.
    """
    if not mechanism.sigma2:
        return ["no noise: the exact totals fix every table"]
    first = (
        f"noise on {mechanism.name} (what each table has beyond its totals) for {what},"
        f" {mechanism.claim} claim"
    )
    if mechanism.saved:
        first += f"; measuring them together saved {mechanism.saved:.0%} of the variance"
    return [first, *near_least(mechanism), *tables]


def near_least(mechanism: ResidualMechanism) -> list[str]:
    """Say how near the noise comes to what no Gaussian noise can go below, where a lower bound is
    proved.
    """
    above = find_excess_variance(mechanism)
    if above is None:
        return []
    # Rounded up, so that the noise never looks nearer to the least than is proved.
    share = math.ceil(max(above, 0.0) * 1000) / 1000
    return [
        f"total variance at most {share:.1%} above the least that any additive Gaussian noise with"
        " unbiased estimates needs under this promise"
    ]


def together_words(tables: int) -> str:
    """Say how many tables share a budget."""
    return f"{count_noun(tables, 'table')} from one budget"


def summary_lines(product: "PublishedTables") -> list[tuple[str, str]]:
    """Return how wrong the cells of each table are, and the mechanism, for a terminal."""
    if product.request.is_single_table:
        return [*error_lines(product.cell_errors()), ("mechanism", _describe_noise(product))]
    how = mechanism_lines((), product.noise_of_residuals, together_words(len(product.tables)))
    lines = [("mechanism", line) for line in how]
    if not product.noise_of_residuals.sigma2:
        return lines
    return [*error_lines(product.cell_errors()), *lines]


def sections(product: "PublishedTables", form: Form | None) -> list[Section]:
    """Return the sections of tables that share a budget: their errors, how they fit together, their
    counts.

    The errors of many tables stand at the top of the page.
    """
    if product.request.is_single_table:
        return [_single_section(product, form)]
    public, absent = product.guarantee.dataspace, product.noise.absent
    counts = counts_sections("The published tables", product.tables, public, absent, form)
    errors = [_errors_section(product)]
    many = len(product.tables) > FEW_TABLES
    first = [*errors, *counts] if many else [*counts, *errors]
    return [*first, _measured_section(product), _together_section(product)]


def _errors_section(product: "PublishedTables") -> Section:
    """Return the list of tables with their errors."""
    every = len(product.tables)
    rows = []
    for errors in product.cell_errors()[:LISTED_ROWS]:
        rows.append(errors.row())
    paragraphs = [ERRORS_TEXT]
    paragraphs += more("tables are listed", len(rows), every, "the files")
    return Section(
        heading="How wrong the tables are",
        paragraphs=paragraphs,
        columns=HEADINGS,
        rows=rows,
    )


def _measured_section(product: "PublishedTables") -> Section:
    """Return how the tables were measured, beside what other ways would have cost."""
    losses = product_losses(product)
    # One bar has nothing to be compared with.
    drawn = len(losses) > 1 and product.noise_of_residuals.sigma2
    return Section(
        heading="Published tables from one budget",
        paragraphs=product_paragraphs(product),
        figure=loss_plot(losses) if drawn else None,
        caption=losses_caption(product),
    )


def _together_section(product: "PublishedTables") -> Section:
    every = len(product.tables)
    shown = min(every, _LISTED_TABLES)
    rows = [_overlaps(product, number) for number in range(shown)]
    paragraphs = [_decomposable_text(product)]
    paragraphs += more("tables are listed", shown, every, "the files")
    return Section(
        heading="How the tables fit together",
        paragraphs=paragraphs,
        columns=("table", "has the same numbers as other tables in", "exact in it"),
        rows=rows,
        names=3,
    )


def product_paragraphs(product: "PublishedTables") -> list[str]:
    """Say how the tables hang together and how far they may be off."""
    mechanism = product.noise_of_residuals
    if product.noise.absent:
        return ["The exact totals fix every table: no noise was needed."]
    paragraphs = [
        (
            "The tables share one budget. They are put together from residuals: a residual is what"
            " a table says beyond its own totals. Noise was added to"
            f" {count_noun(len(mechanism.sigma2), 'residual')}, once to each; the exact totals fix"
            " the others. So"
            " a number that occurs in two tables is the same number in both. Estimates are"
            " unbiased, that is, right on average, and their standard errors are those of the noise"
            " alone. The counts are whole numbers, fitted to the estimates from the coarsest table"
            " to the finest. A count may lie outside its interval, which belongs to the estimate."
        ),
    ]
    if mechanism.saved:
        paragraphs.append(
            "No change of the records moves every residual as far as it can go. All residuals"
            f" together therefore needed {mechanism.saved:.0%} less variance than if the worst"
            " change of each had been added up."
        )
    paragraphs += [f"The noise has a {sentence}." for sentence in near_least(mechanism)]
    whole = [table for table in product.tables if table.fitted.kind == "integer"]
    if whole:
        away = math.sqrt(sum(table.fitted.loss for table in whole))
        least = math.sqrt(sum(table.fitted.bound for table in whole))
        paragraphs.append(
            f"The whole numbers lie {error_text(away)} from the estimates (the root of the sum of"
            " squares over all cells). Numbers that are not negative and have the same totals, but"
            f" need not be whole, would lie at least {error_text(least)} away."
        )
    for table in product.tables:
        if not table.fitted.optimal:
            paragraphs.append(f"{table.name}: {table.fitted.note}")
    return paragraphs


def product_losses(product: "PublishedTables") -> dict[str, float]:
    """Return the expected distance from the truth beside tables one by one and ordinary
    differential privacy.
    """
    losses = {"this release": product.noise.expected_l2}
    if product.one_by_one_l2:
        losses["one by one,\nsame promise"] = product.one_by_one_l2
    if product.noise.naive_l2:
        losses["ordinary DP,\ngroup privacy"] = product.noise.naive_l2
    return losses


def losses_caption(product: "PublishedTables") -> str:
    """Name the promise of each number in the picture of losses."""
    adjacency, curve = product.guarantee.adjacency, name_tradeoff(product.guarantee.tradeoff)
    records = count_noun(adjacency.a, adjacency.words.one, adjacency.words.noun)
    keep = "it keeps" if adjacency.a == 1 else "they keep"
    promise = report_words(adjacency).promise
    alone = " The tables measured one by one, with the best split of the budget, promise the same."
    if product.one_by_one_l2 is None:
        alone = ""
    return (
        "The picture shows how far all estimates together are expected to be from the true tables:"
        " the root of the mean of the sum of squares over all cells. This is known before any noise"
        f" is drawn. This release promises {curve} for {promise}.{alone} Ordinary differential"
        f" privacy promises it for any {records}, whether {keep} the totals or not. For that it"
        " needs more noise than for one record (group privacy)."
    )


def _overlaps(product: "PublishedTables", number: int) -> tuple[str, str, str]:
    """Say of one table what it shares with which others, and what of it is exact."""
    space, named = (
        product.noise_of_residuals.space,
        product.noise_of_residuals.space.schema.list_view_names,
    )
    view = space.views[number]
    shared: dict[View, list[str]] = {}
    for other, table in enumerate(product.tables):
        overlap = meet(view, space.views[other])
        # Two tables without a common feature share the number of records alone.
        if other != number and any(overlap):
            shared.setdefault(overlap, []).append(table.name)
    agrees = []
    for overlap, names in shared.items():
        agrees.append(f"{' by '.join(named(overlap))} ({_some(names)})")
    totals = maximal(meet(view, total.view) for total in space.dataspace.published_totals)
    exact = [" by ".join(named(total)) for total in totals if any(total)]
    # Every table has the number of records in common with every other.
    agrees_text = "; ".join(agrees) or "only the number of records"
    exact_text = "; ".join(exact) or "only the number of records"
    return product.tables[number].name, agrees_text, exact_text


def _some(names: Sequence[str]) -> str:
    if len(names) <= _NAMED_OTHERS:
        return ", ".join(names)
    return f"{', '.join(names[:2])} and {len(names) - 2} more"


def _decomposable_text(product: "PublishedTables") -> str:
    if product.decomposable:
        return (
            "The tables and the exact totals are decomposable: there is a set of records that has"
            " all of them."
        )
    return (
        "The tables agree wherever they overlap. But they hang together in a circle (they are not"
        " decomposable), so perhaps no set of records has all of them."
    )


def details(product: "PublishedTables") -> Details:
    """Say how tables that share a budget were measured."""
    if product.request.is_single_table:
        fitted = product.only.fitted
        fit = ("Fit", f"{fitted.kind}: {fitted.method}")
        return Details(title(product), f"scale {scale_text(product.noise.scale)}", (fit,))
    return Details("the tables that share a budget", "exact noise on each residual")


def file_words(product: "PublishedTables", form: Form | None) -> list[tuple[str, str]]:
    """Say what the files hold: those of the first tables, and the measurements."""
    if product.request.is_single_table:
        counts, measured = product.files(form)
        return [
            (counts, f"the published counts of {title(product)}, one row per cell"),
            (measured, f"the measurements of {title(product)} before fitting, for statisticians"),
        ]
    *names, measurements = product.files(form)
    words = []
    for file, table in zip(names[:_LISTED_TABLES], product.tables, strict=False):
        words.append(
            (file, f"the counts of {table_title(table)}, with estimates and their standard errors")
        )
    left = names[_LISTED_TABLES:]
    if left:
        words.append(
            (left[0], f"the same of the next table, and so on: {count_noun(len(left), 'file')}")
        )
    words.append((measurements, "the measured residuals of all tables, for statisticians"))
    return words


def warnings(product: "PublishedTables") -> list[str]:
    """Name the tables that were asked for in whole numbers and have none with all totals."""
    if product.request.is_single_table:
        table = product.only
        missed = table.fitted.kind == "integer" and table.counts.dtype.kind != "i"
        return [f"{NONE_FOUND} {table.name!r}: its counts are real numbers."] if missed else []
    requested = {table.name for table in product.request.tables if table.fit == "integer"}
    missing = [table.name for table in product.tables if table.fitted.kind != "integer"]
    return [misses_totals(name) for name in missing if name in requested]


def _describe_noise(result: "PublishedTables") -> str:
    """Name the mechanism of one table, and what ordinary differential privacy would need."""
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
    return how


def _single_section(result: "PublishedTables", form: Form | None) -> Section:
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


def claim_text(result: "PublishedTables") -> str:
    """Say whether the claim is about the numbers that were drawn: floating-point numbers have no
    proof.
    """
    if result.noisy.dtype.kind != "i":
        return _FOR_STUDIES
    return CLAIM_TEXTS[result.noise.claim]


def explain_separate_budgets(results: Sequence["PublishedTables"]) -> list[str]:
    """Say that tables with budgets of their own were measured one by one."""
    if len(results) < 2:
        return []
    return [
        f"{len(results)} tables were measured one by one, each with a budget of its own: what is"
        " not exact and occurs in two of them is two numbers."
    ]
