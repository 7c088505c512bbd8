"""The report as one self-contained HTML page: pictures inline, no request, a script only to search long tables."""

import functools
import math
from collections.abc import Sequence
from importlib.resources import files
from itertools import islice
from typing import Any
from urllib.parse import quote

import numpy as np

from semidp.core.exact import plain
from semidp.core.scope import Scope
from semidp.core.spaces.dataspace import Dataspace
from semidp.output.cells import Form
from semidp.output.plots.figures import loss_plot, tradeoff_plot
from semidp.output.plots.style import svg
from semidp.publishing.release import Release
from semidp.report import outcome_sentences as outcomes
from semidp.report import sentences
from semidp.report.cells import FOLDED_CELLS, branches, error_text, grid, more, number_text, scale_text
from semidp.statistics.outcomes.intervals import Intervals
from semidp.statistics.outcomes.published import columns_of
from semidp.statistics.protocol import Published
from semidp.statistics.quantiles.published import PublishedQuantiles
from semidp.statistics.regression.published import PublishedRegression
from semidp.statistics.sums.published import PublishedGroups
from semidp.statistics.tables.published import ProductTable, PublishedProduct, PublishedTable

_SHOWN = 1000  # rows of a list
_LONG = 25  # rows from which on a table is searched
_SEARCHED = 'class="find"'
_NAMED_TABLES = 4
_SHOWN_MOVES = 12
_SHOWN_TABLES = 6  # of those that share a budget, with all their counts


def html(release: Release, title: str | None = None) -> str:
    """Return the report of a release as HTML.

    Parameters
    ----------
    release
        What `run` returned or `Release.load` read.
    title
        The heading; by default it names the tables.
    """
    scope, moved, explanation = release.scope, moves(release.scope), release.guarantee.explain()
    advertised = sentences.forgotten(scope.dataspace, (result.advertised for result in release.results))
    curves = {f"this release ({scope.adjacency.words.used})": release.guarantee.tradeoff}
    if advertised is not None:
        curves["if the totals were forgotten"] = advertised
    rendered: str = _template().render(
        title=title or f"{_listed(release)}: what is exact, what is protected",
        created=release.created.replace("T", " ").removesuffix("+00:00") + " UTC",
        versions=release.versions,
        private=release.private,
        exact=sentences.exact_part(scope.dataspace),
        noisy=sentences.noisy_part(release),
        strength=sentences.strength(release.guarantee, release.plan.report_delta),
        warnings=(*scope.warnings, *scope.disclosures, *sentences.apart(release)),
        explanation=[explanation.protected, explanation.attacker],
        curve=_picture(tradeoff_plot(curves)),
        advertised=advertised is not None,
        advertised_name=sentences.name_of(advertised) if advertised else None,
        adjacency_heading=sentences.why_heading(scope),
        adjacency=[*sentences.why_together(scope), *sentences.implied(release)],
        also_known=sentences.also_known(release),
        moves=moved[:_SHOWN_MOVES],
        more_moves=max(len(moved) - _SHOWN_MOVES, 0),
        tables=[_table(table, release.form) for table in release.alone],
        sections=[
            *([] if release.product is None else _product(release.product, release)),
            *_partitioned(release),
            *(section for group in release.groups for section in _sections(group)),
            *(_regression(regression) for regression in release.regressions),
            *(section for quantile in release.quantiles for section in _quantiles(quantile)),
        ],
        limits=sentences.limits(release),
        details=_details(release),
        published=_totals(scope.dataspace),
        long=_LONG,
        files=[(name, quote(name), what) for name, what in sentences.files(release)],
    )
    page = rendered.lstrip()
    script = f"<script>{search_script()}</script>\n" if _SEARCHED in page else ""
    return page.replace("</body>", f"{script}</body>")


@functools.cache
def _template() -> Any:
    """The page without its content, compiled once a process."""
    from jinja2 import Environment, select_autoescape

    environment = Environment(autoescape=select_autoescape(default=True), trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(files("semidp.report").joinpath("report.html.j2").read_text(encoding="utf-8"))


def search_script() -> str:
    """Return what searches long tables: the only script of a report, and only where there is something to search."""
    return files("semidp.report").joinpath("search.js").read_text(encoding="utf-8")


def _picture(figure: Any) -> Any:
    """Return a figure as part of the page; None where there is nothing to draw."""
    from markupsafe import Markup

    return figure and Markup(svg(figure))


def _listed(release: Release) -> str:
    names = [" by ".join(table.schema.names) for table in release.alone]
    if release.product is not None:
        several = [" by ".join(table.schema.names) for table in release.product.tables]
        names += several if len(several) <= _NAMED_TABLES else [f"{len(several)} tables"]
    names += [" by ".join(table.features) for result in release.partitioned for table in result.below][:_NAMED_TABLES]
    regressions = [outcomes.regressed(regression) for regression in release.regressions]
    quantiles = [outcomes.quantiled(quantile) for quantile in release.quantiles]
    text = ", ".join([*names, *(outcomes.titled(group) for group in release.groups), *regressions, *quantiles])
    return text[:1].upper() + text[1:]


def moves(scope: Scope) -> list[dict[str, Any]]:
    """Return the witness of a(t), one entry a record."""
    semi = scope.semi_adjacency
    if not scope.adjacency.protects_groups or semi is None or semi.witness is None or not semi.witness.others:
        return []
    witness = semi.witness
    records = [(witness.record, witness.wants), *witness.others]
    return [
        {
            "who": "the person" if position == 1 else f"record {position}",
            "levels": list(zip(witness.features, before, after, strict=True)),
        }
        for position, (before, after) in enumerate(records, start=1)
    ]


def _table(table: PublishedTable, form: Form | None) -> dict[str, Any]:
    naive, losses = table.noise.naive_l2, {"this release": table.noise.expected_l2}
    return {
        **_cells(table, table.noise.absent, form),
        "summary": sentences.table_summary(table),
        "loss": None if naive is None else _picture(loss_plot({**losses, "ordinary DP,\nsame guarantee": naive})),
        "loss_caption": (
            "Root mean squared distance between the measurement and the true table, known before any noise was drawn, "
            "next to ordinary differential privacy pushed to the same guarantee by group privacy."
        ),
    }


def _cells(table: PublishedTable | ProductTable, absent: bool, form: Form | None) -> dict[str, Any]:
    """Return the counts of a table as a page shows them: as numbers, folded by parent, as shades, or only the file."""
    parts, file = branches(table), f"{table.name}.{table.columns().form(form)}"
    cells = None if parts else grid(table)
    return {
        "heading": f"Published counts: {' by '.join(table.schema.names)}",
        "grid": cells,
        "branches": parts,
        "top": next((feature.names[0] for feature in table.schema.features if feature.above), ""),
        "heatmap": None if cells or parts else _picture(table.plot()),
        "caption": sentences.errors_caption(table, absent, bool(cells or parts)),
        "cells": f"{table.schema.size:,}",
        "file": file,
        "link": quote(file),
    }


def _sections(group: PublishedGroups) -> list[dict[str, Any]]:
    """Return a section for each set of groups, the first with what is said of the measurement."""
    sections = []
    what = f"{group.request.statistic} of {group.outcome.column}"
    for number, (by, part) in enumerate(zip(group.request.by, group.estimates, strict=True)):
        labels = [" · ".join(levels) for levels in part.groups]
        ends = columns_of(group.intervals[number] if group.intervals else ())
        filled = [row for row in zip(labels, part.rows(), *ends.values(), strict=True) if row[1][1]]
        rows = [
            (label, f"{count:,}", *map(number_text, (value, error)), *map(_end, limits))
            for label, (_, count, value, error), *limits in filled[:_SHOWN]
        ]
        sections.append(
            {
                "heading": f"Published {what} by {' and '.join(by.names)}",
                "paragraphs": [
                    *(outcomes.group_paragraphs(group) if number == 0 else ()),
                    *more("groups are shown", len(rows), len(filled)),
                ],
                "figure": _picture(group.plot(by=number)),
                "caption": "Estimates with two standard errors of the noise to each side. A declared bound that lies "
                "in the picture is a dotted line.",
                "columns": (
                    " · ".join(by.names),
                    "count (exact)",
                    str(group.request.statistic),
                    "standard error",
                    *map(_heading, ends),
                ),
                "rows": rows,
                "empty": [label for label, count in zip(labels, part.counts, strict=True) if not count],
            }
        )
        if group.differences:
            sections.append(_differences(f"{what} by {' and '.join(by.names)}", group.differences[number]))
    return sections


def _product(product: PublishedProduct, release: Release) -> list[dict[str, Any]]:
    """Return the sections of tables that share a budget: their errors, how they fit together, their counts."""
    losses = sentences.product_losses(product)
    said, rows = sentences.fits_together(product)
    every = len(product.tables)
    first = {
        "heading": "Published tables from one budget",
        "paragraphs": [
            *sentences.product_paragraphs(product),
            *more("tables are listed", min(every, _SHOWN), every, "the files"),
        ],
        "figure": _picture(loss_plot(losses)) if len(losses) > 1 and product.mechanism.sigma2 else None,
        "caption": sentences.losses_caption(product, release.scope),
        "columns": ("table", "cells", "standard error", "largest", "fit"),
        "rows": [
            (
                table.name,
                f"{table.schema.size:,}",
                *(error_text(errors[size]) for size in ("standard_error", "largest")),
                table.fitted.method,
            )
            for number, table in enumerate(product.tables[:_SHOWN])
            for errors in [sentences.table_errors(product.mechanism, number)]
        ],
    }
    second = {
        "heading": "How the tables fit together",
        "paragraphs": [said, *more("tables are listed", len(rows), every, "the files")],
        "columns": ("table", "has the same numbers as other tables in", "exact in it"),
        "rows": rows,
        "names": 3,
        "tables": _first_cells(product.tables, product.noise.absent, release.form),
    }
    return [first, second]


def _first_cells(tables: Sequence[ProductTable], absent: bool, form: Form | None) -> list[dict[str, Any]]:
    """Return the counts of the first tables, as far as they fit on a page."""
    return [_cells(table, absent, form) for table in tables[:_SHOWN_TABLES] if table.schema.size <= FOLDED_CELLS]


def _partitioned(release: Release) -> list[dict[str, Any]]:
    """Return the sections of tables released part by part, with their counts at the partition's depth."""
    if release.partition is None:
        return []
    depth, parts = release.partition.depth, release.partition.parts
    found: list[dict[str, Any]] = []
    for result in release.partitioned:
        tables = sentences.part_errors(release, result)
        found.append(
            {
                "heading": f"Published tables, by {depth}",
                "paragraphs": [
                    f"Every table was first measured at the depth of {depth} and above, and totals that cross parts "
                    f"were divided there. Below, each {depth} was measured and fitted by itself, from its own records "
                    "and from these public numbers. All noise was calibrated to the whole, so that there is one "
                    f"guarantee. What a finer table counts by {depth} is the sum of its parts.",
                    *(note for table in tables for note in table.notes),
                ],
                "columns": ("table", "cells", "parts", "standard error", "largest"),
                "rows": [
                    (
                        " by ".join(table.features),
                        f"{table.cells:,}",
                        f"{table.parts:,}",
                        *map(error_text, (table.rms, table.largest)),
                    )
                    for table in tables
                ],
            }
        )
    shown, overview = parts[:_SHOWN], [table for result in release.partitioned for table in result.overview]
    return [
        *found,
        {
            "heading": f"Parts: one for every {depth}",
            "paragraphs": more("are listed", len(shown), len(parts), "parts.json"),
            "columns": (depth, "folder", "files"),
            "rows": [(" · ".join(part.path), part.folder, ", ".join(part.files)) for part in shown],
            "names": 2,
            "tables": _first_cells(overview, False, release.form),
        },
    ]


def _regression(regression: PublishedRegression) -> dict[str, Any]:
    ends = columns_of(regression.intervals)
    return {
        "heading": f"Published {outcomes.regressed(regression)}",
        "paragraphs": outcomes.regression_paragraphs(regression),
        "figure": _picture(regression.plot()),
        "caption": "Coefficients with two standard errors of the noise to each side.",
        "columns": ("term", "coefficient", "standard error", *map(_heading, ends)),
        "rows": [
            (term, *map(number_text, numbers), *map(_end, limits))
            for (term, *numbers), *limits in zip(regression.rows(), *ends.values(), strict=True)
        ],
    }


def _quantiles(quantile: PublishedQuantiles) -> list[dict[str, Any]]:
    """Return a section for each set of groups, the first with what is said of the choices."""
    sections = []
    for position, by in enumerate(quantile.request.by):
        rows = [
            (" · ".join(levels), f"{count:,}", *map(number_text, numbers))
            for levels, count, numbers in islice(quantile.rows(position), _SHOWN)
        ]
        sections.append(
            {
                "heading": f"Published {outcomes.quantiled(quantile)}"
                if position == 0
                else f"The same by {' and '.join(by.names)}",
                "paragraphs": [
                    *(outcomes.quantile_paragraphs(quantile) if position == 0 else ()),
                    *more("groups are shown", len(rows), len(quantile.groups[position])),
                ],
                "columns": (" · ".join(by.names), "count (exact)", *map(_heading, quantile.headings)),
                "rows": rows,
            }
        )
    return sections


def _differences(what: str, intervals: Sequence[Intervals]) -> dict[str, Any]:
    """Return a section with the differences of groups, the first few."""
    first, ends = intervals[0], columns_of(intervals)
    half = len(first.names[0]) // 2 if first.names else 0
    rows = [
        (" · ".join(name[:half]), " · ".join(name[half:]), number_text(value), *map(_end, limits))
        for name, value, *limits in islice(zip(first.names, first.values, *ends.values(), strict=True), _SHOWN)
    ]
    return {
        "heading": f"Differences of the {what}",
        "paragraphs": [
            "The first group less the second.",
            *outcomes.interval_paragraphs(intervals),
            *more("pairs are shown", len(rows), len(first.names)),
        ],
        "columns": ("group", "other group", "difference", *map(_heading, ends)),
        "rows": rows,
    }


def _heading(column: str) -> str:
    return column.replace("_", ", ")


def _end(value: float) -> str:
    return "open" if math.isinf(value) else number_text(value)


def _details(release: Release) -> list[tuple[str, str]]:
    scope = release.scope
    semi = scope.semi_adjacency
    rows = [("Records (public)", f"{scope.dataspace.n:,}"), ("Adjacency used", scope.adjacency.words.used)]
    if semi is not None:
        worst = semi.worst_case if semi.worst_case is not None else f"at most {semi.bound}"
        rows.append(("a(t), worst case", f"{worst} ({semi.method})"))
        if semi.definition is not None:
            rows.append(("a(t), the paper's definition read literally", str(semi.definition)))
    for table in release.alone:
        how = f"scale {scale_text(table.noise.scale)}"
        rows += _mechanism(release, table, " by ".join(table.schema.names), how)
        rows.append(("Fit", f"{table.fitted.kind}: {table.fitted.method}"))
    if release.product is not None:
        rows += _mechanism(release, release.product, "the tables that share a budget", "exact noise on each residual")
    for result in release.partitioned:
        rows += _mechanism(release, result, result.name, "exact noise on each residual, part by part")
    for group in release.groups:
        how = f"scale {scale_text(group.noise.scale)} steps"
        rows += _mechanism(release, group, outcomes.titled(group), how)
        steps = group.outcome.steps
        rows.append(("Grid", f"{steps:,} step{'s' if steps > 1 else ''} of {plain(group.outcome.width)}"))
    for quantile in release.quantiles:
        rows += _mechanism(release, quantile, f"the {outcomes.quantiled(quantile)}", "exact choices")
    for regression in release.regressions:
        rows += _mechanism(release, regression, f"the {outcomes.regressed(regression)}", "in steps of X'y")
    rows += [("Budget", part) for part in sentences.budget_parts(release.plan)]
    rows += [
        ("Reporting δ", plain(release.plan.report_delta)),
        ("Ledger", "charged" if release.ledger else "none"),
        ("Versions", ", ".join(f"{name} {number}" for name, number in release.versions.items())),
    ]
    return rows


def _mechanism(release: Release, result: Published, what: str, how: str) -> list[tuple[str, str]]:
    """Return how one of the results was measured; the guarantee of the only one stands at the top of the page."""
    guarantee = ("Guarantee", sentences.strength(result.guarantee, release.plan.report_delta)[-1])
    return [
        (f"Mechanism of {what}", f"{result.noise.mechanism}, {how}"),
        ("Kind of claim", sentences.claim(result)),
        *([guarantee] if len(release.results) > 1 else []),
    ]


def _totals(dataspace: Dataspace) -> list[dict[str, Any]]:
    tables = []
    for total in dataspace.totals:
        paths = [feature.paths() for feature in total.schema.features]
        cells = (
            (*(label for part, leaf in zip(paths, index, strict=True) for label in part[leaf]), f"{int(count):,}")
            for index, count in np.ndenumerate(total.counts)
        )
        rows = list(islice(cells, _SHOWN))
        more = total.counts.size - len(rows)
        tables.append({"columns": (*total.schema.names, "count"), "rows": rows, "more": f"{more:,}" if more else ""})
    return tables
