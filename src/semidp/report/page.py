"""The report as one self-contained HTML page: no script, no request, pictures inline."""

from importlib.resources import files
from itertools import islice
from typing import Any

import numpy as np

from semidp.exact import plain
from semidp.invariants import Dataspace
from semidp.plots import heatmap, loss_plot, moves_plot, svg, tradeoff_plot
from semidp.release import Published, Release
from semidp.report import words

_SHOWN_TOTALS = 40


def html(release: Release, title: str | None = None) -> str:
    """Return the report of a release as HTML.

    Parameters
    ----------
    release
        What `run` returned or `Release.load` read.
    title
        The heading; by default it names the tables.
    """
    from jinja2 import Environment, select_autoescape
    from markupsafe import Markup

    environment = Environment(autoescape=select_autoescape(default=True), trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(files("semidp.report").joinpath("report.html.j2").read_text(encoding="utf-8"))
    picture = {name: Markup(svg(figure)) if figure else None for name, figure in _figures(release).items()}
    scope = release.scope
    return template.render(
        title=title or f"{_listed(release)}: what is exact, what is protected",
        created=release.created.replace("T", " ").removesuffix("+00:00") + " UTC",
        versions=release.versions,
        private=release.private,
        exact=words.exact_part(scope.dataspace),
        noisy=words.noisy_part(release),
        strength=words.strength(release.guarantee.tradeoff, release.plan.report_delta),
        warnings=(*scope.warnings, *scope.disclosures),
        explanation=release.guarantee.explain().split("\n\n")[:2],
        curve=picture["curve"],
        advertised=len(_curves(release)) > 1,
        a=scope.adjacency.a,
        adjacency=words.why_together(scope),
        witness=picture["witness"],
        witness_caption=(
            "An example that follows from the published totals alone: the person in question (orange) becomes somebody "
            "else, and the others (blue) change so that every published total stays the same."
        ),
        tables=[_table(table, picture) for table in release.tables],
        limits=words.limits(release),
        details=_details(release),
        published=_totals(scope.dataspace),
    )


def _listed(release: Release) -> str:
    names = [" by ".join(table.schema.names) for table in release.tables]
    text = ", ".join(names)
    return text[:1].upper() + text[1:]


def _curves(release: Release) -> dict[str, Any]:
    a = release.scope.adjacency.a
    curves = {f"this release, {a} record{'s' if a != 1 else ''} together": release.guarantee.tradeoff}
    known = [table.advertised for table in release.tables]
    if all(curve is not None for curve in known) and release.scope.dataspace.margins:
        first, *others = [curve for curve in known if curve is not None]
        curves["as if no total were public"] = first.compose(*others) if others else first
    return curves


def _figures(release: Release) -> dict[str, Any]:
    figures: dict[str, Any] = {"curve": tradeoff_plot(_curves(release)), "witness": _witness(release)}
    for table in release.tables:
        figures[f"heatmap {table.name}"] = heatmap(table.schema, table.counts, table.standard_errors)
        figures[f"loss {table.name}"] = None
        if table.noise.naive_l2 is not None:
            losses = {"this release": table.noise.expected_l2, "ordinary DP,\nsame guarantee": table.noise.naive_l2}
            figures[f"loss {table.name}"] = loss_plot(losses)
    return figures


def _witness(release: Release) -> Any:
    semi = release.scope.semi_adjacency
    if semi is None or semi.witness is None or not semi.witness.others:
        return None
    moves = [(semi.witness.record, semi.witness.wants), *semi.witness.others]
    names = ["the person", *(f"record {position}" for position in range(2, len(moves) + 1))]
    before, after = ([" · ".join(record) for record in side] for side in zip(*moves, strict=True))
    return moves_plot(before, after, names)


def _table(table: Published, picture: dict[str, Any]) -> dict[str, Any]:
    errors = table.standard_errors
    return {
        "heading": f"Published counts: {' by '.join(table.schema.names)}",
        "summary": words.table_summary(table),
        "heatmap": picture[f"heatmap {table.name}"],
        "caption": (
            "Published counts, and below each the standard error of its measurement. The error belongs to the "
            f"measurement before fitting; the largest is {float(np.max(errors, initial=0)):.3g}."
        ),
        "cells": f"{table.schema.size:,}",
        "file": f"{table.name}.csv",
        "loss": picture[f"loss {table.name}"],
        "loss_caption": (
            "Root mean squared distance between the measurement and the true table, known before any noise was drawn, "
            "next to ordinary differential privacy pushed to the same guarantee by group privacy."
        ),
    }


def _details(release: Release) -> list[tuple[str, str]]:
    scope = release.scope
    semi = scope.semi_adjacency
    rows = [("Records (public)", f"{scope.dataspace.n:,}"), ("Adjacency used", f"a = {scope.adjacency.a}")]
    if semi is not None:
        worst = semi.worst_case if semi.worst_case is not None else f"at most {semi.bound}"
        rows.append(("a(t), worst case", f"{worst} ({semi.method})"))
        if semi.definition is not None:
            rows.append(("a(t), the paper's definition read literally", str(semi.definition)))
    for table in release.tables:
        name = " by ".join(table.schema.names)
        rows += [
            (f"Mechanism of {name}", f"{table.noise.mechanism}, scale {table.noise.scale:.6g}"),
            ("Kind of claim", words.CLAIMS[table.noise.claim]),
            ("Guarantee", words.strength(table.guarantee.tradeoff, release.plan.report_delta)[-1]),
            ("Fit", f"{table.fitted.kind}: {table.fitted.method}"),
        ]
    rows += [
        ("Reporting δ", plain(release.plan.report_delta)),
        ("Ledger", "charged" if release.ledger else "none"),
        ("Versions", ", ".join(f"{name} {number}" for name, number in release.versions.items())),
    ]
    return rows


def _totals(dataspace: Dataspace) -> list[dict[str, Any]]:
    tables = []
    for total in dataspace.totals:
        levels = [feature.levels for feature in total.schema.features]
        cells = (
            (*(part[position] for part, position in zip(levels, index, strict=True)), f"{int(count):,}")
            for index, count in np.ndenumerate(total.counts)
        )
        rows = list(islice(cells, _SHOWN_TOTALS))
        more = total.counts.size - len(rows)
        tables.append({"columns": total.schema.names, "rows": rows, "more": f"{more:,}" if more else ""})
    return tables
