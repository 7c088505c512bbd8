"""What a release says of tables that share a budget: their errors, and how they fit together."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
    table_title,
)
from semidp.publish.results.texts import error_text, more, name_tradeoff, within_text
from semidp.publish.statistics.tables.error_words import (
    ERRORS_TEXT,
    FEW_TABLES,
    HEADINGS,
    error_lines,
    misses_totals,
)

if TYPE_CHECKING:
    from semidp.publish.statistics.tables.published import PublishedTables

_NAMED_TABLES = 4  # in the heading of a report
_LISTED_TABLES = 40
_NAMED_OTHERS = 3


def title(product: "PublishedTables") -> str:
    """Name the tables, or their number where they are many."""
    if len(product.tables) > _NAMED_TABLES:
        return f"{len(product.tables)} tables"
    return ", ".join(table_title(table) for table in product.tables)


def noisy_lines(product: "PublishedTables") -> list[str]:
    """Say how many cells each table has; where tables are many, how many they have together."""
    tables = product.tables
    if len(tables) <= FEW_TABLES:
        return [
            f"{table_title(table)}: {count_noun(table.schema.size, 'cell')}, together with the"
            " other tables"
            for table in tables
        ]
    cells = sum(table.schema.size for table in tables)
    return [f"{len(tables):,} tables, which add up: {cells:,} cells"]


@dataclass(frozen=True)
class ErrorsOfTable:
    """A table whose residuals are measured: its name, features and cells, and how far off they
    are.
    """

    name: str
    features: tuple[str, ...]
    cells: int
    errors: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        # Large tables have no intervals.
        widths = {
            name: self.errors[name] for name in ("narrowest", "widest") if name in self.errors
        }
        return {
            "name": self.name,
            "features": list(self.features),
            "cells": self.cells,
            "smallest_standard_error": self.errors["smallest"],
            "largest_standard_error": self.errors["largest"],
            "rms_standard_error": self.errors["standard_error"],
            **widths,
        }

    def line(self) -> str:
        """Say how large the errors are."""
        low = error_text(self.errors["smallest"])
        high = error_text(self.errors["largest"])
        span = high if low == high else f"{low} to {high}"
        errors = f"standard error {span} per cell"
        if "widest" in self.errors:
            errors += f", 95% {within_text(self.errors, error_text)}"
        return f"{self.name}: {errors}, {count_noun(self.cells, 'cell')}"


def mechanism_lines(
    tables: Sequence[ErrorsOfTable], mechanism: ResidualMechanism, what: str
) -> list[str]:
    """Say how large the errors of each table are whose residuals are measured, and what joint
    sensitivity saved.
    """
    if not mechanism.sigma2:
        return ["no noise: the exact totals fix every table"]
    first = (
        f"noise on {mechanism.name} (what each table has beyond its totals) for {what},"
        f" {mechanism.claim} claim"
    )
    if mechanism.saved:
        first += f"; measuring them together saved {mechanism.saved:.0%} of the variance"
    return [first, *near_least(mechanism), *(table.line() for table in tables)]


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
    return Details("the tables that share a budget", "exact noise on each residual")


def file_words(product: "PublishedTables", form: Form | None) -> list[tuple[str, str]]:
    """Say what the files hold: those of the first tables, and the measurements."""
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
    requested = {table.name for table in product.request.tables if table.fit == "integer"}
    missing = [table.name for table in product.tables if table.fitted.kind != "integer"]
    return [misses_totals(name) for name in missing if name in requested]
