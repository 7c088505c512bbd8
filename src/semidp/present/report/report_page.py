"""The report as one self-contained HTML page: pictures inline, no request, a script only to search
long tables.

`GLOSSARY` has the words of a report, each in a few sentences. The same list is the page
docs/glossary.md.
"""

import functools
from collections.abc import Sequence
from importlib.resources import files
from itertools import islice
from typing import Any
from urllib.parse import quote

import numpy as np

from semidp.present.disclosure_words import disclosure_sections
from semidp.present.report import sentences
from semidp.present.report.sections import place_sections, record_sections
from semidp.promise.exact import plain
from semidp.promise.guarantee import Scope
from semidp.publish.plotting import svg, tradeoff_plot
from semidp.publish.presentation import report_words
from semidp.publish.release_files import ReleaseFiles
from semidp.publish.results.grids import LISTED_ROWS, Section, first_cells
from semidp.publish.results.texts import more, name_tradeoff
from semidp.publish.statistics.protocol.requests import Published
from semidp.publish.witness import find_witness

GLOSSARY: tuple[tuple[str, str], ...] = (
    (
        "record, feature, level, cell",
        (
            "A record is what the data say about one person. A feature is a column of the data that"
            " tables count, such as region. Its levels are the values that it may take. A cell of a"
            " table is one combination of levels."
        ),
    ),
    (
        "exact statistic",
        (
            "A total that is published as it is, without noise. Every reader of the release knows"
            " it for certain. So it is not protected, and neither is anything that follows from"
            " it."
        ),
    ),
    (
        "margin",
        (
            "The totals of one feature, or of several features together: for example how many"
            " people there are in each region."
        ),
    ),
    (
        "noise",
        (
            "Random numbers that are added before publication. The probabilities with which they"
            " are drawn (their law) are public, so that everybody can compute how far off a"
            " published number may be. The numbers that were drawn stay secret."
        ),
    ),
    (
        "count and estimate",
        (
            "Estimates are the measured numbers, adjusted so that they have the exact totals:"
            " right on average, not always whole, perhaps negative. Counts are the nearest whole"
            " numbers, none negative, that add up to every exact total."
        ),
    ),
    (
        "fit",
        (
            "How counts are found that lie near the estimates and have every exact total. The"
            " report names the method: thresholds, flow, nested flows, rounding, integer program or"
            " projection."
        ),
    ),
    (
        "standard error",
        (
            "How far off an estimate typically is, from the noise alone. About two thirds of the"
            " estimates are nearer to the truth than one standard error, and about 95% nearer than"
            " two."
        ),
    ),
    (
        "noise dominates (≈)",
        (
            "A count is marked if it is smaller than the half-width of its 95% interval, which is"
            " about two standard errors. The true count may well be zero. Do not read such a count"
            " by itself."
        ),
    ),
    (
        "differential privacy",
        (
            "A promise that noise can keep: what is published would look much the same if one"
            " record had been different. Exact totals would show that one record alone is"
            " different. So the promise here compares only datasets that agree with the exact"
            " totals."
        ),
    ),
    (
        "privacy budget",
        (
            "How much all releases of the same data may tell an attacker, stated as μ, ρ or ε. A"
            " smaller budget protects better and needs more noise."
        ),
    ),
    (
        "adjacency",
        (
            "Which pairs of datasets the promise compares: how many records may differ between the"
            " two, and in what way. The ball and the exchange are two kinds of adjacency."
        ),
    ),
    (
        "a(t)",
        (
            "The number of records that must change together in the worst case, so that one"
            " person could have been somebody else while every exact total stays as it is. Without"
            " exact totals it is 1."
        ),
    ),
    (
        "ball, or any a records",
        (
            "A promise about all pairs of datasets that agree with the exact totals and differ in"
            " at most a records, whoever these belong to."
        ),
    ),
    (
        "exchange",
        (
            "A promise about pairs of datasets in which one person's record is different, and a"
            " few others only hand over the published values that the person takes. For example,"
            " if you had lived in the north, somebody from the north would have lived where you"
            " live now, and would be the same otherwise. It promises less about groups of people,"
            " and needs less noise."
        ),
    ),
    (
        "one patient with up to 5 stays",
        (
            "A promise about a person with several records: all of them may be different at once."
            " How many records a person may have is declared and public. Data in which somebody"
            " has more are refused, and nobody is dropped."
        ),
    ),
    (
        "unit, member",
        (
            "Two words for linked files. A unit is, for example, a household; its members are the"
            " persons who live in it. A promise about whole units names how many members may"
            " differ, and how many units: in their own features, in their size, in all."
        ),
    ),
    (
        "best attacker, false alarms",
        (
            "The attacker knows two possible datasets and wants to tell from the release which of"
            " them is true. A false alarm is to name the second when the first is true. A miss is"
            " to name the first when the second is true. Somebody who only guesses, and accepts 5%"
            " false alarms, names the second in 5% of the cases where it is true. The guarantee"
            " says how often the best attacker can do so with the release."
        ),
    ),
    (
        "μ, Gaussian differential privacy",
        (
            "A measure of protection: telling the two datasets apart is as hard as telling"
            " whether one number was drawn from a normal distribution with mean 0 or with mean μ,"
            " both with variance 1. Smaller is safer. GDP here is short for Gaussian differential"
            " privacy."
        ),
    ),
    (
        "ρ, zero-concentrated differential privacy (zCDP)",
        (
            "Another measure of protection. Gaussian noise with μ has ρ = μ²/2. Budgets in ρ add"
            " up. Smaller is safer."
        ),
    ),
    (
        "ε and δ",
        (
            "The most common measure of protection: whatever is published, it is at most e^ε"
            " times as likely under one dataset as under the other, except for a probability δ."
            " Smaller is safer. It is written (ε, δ)-DP: (6, 1e-9)-DP means ε = 6 and δ ="
            " 0.000000001."
        ),
    ),
    (
        "sensitivity Δ1, Δ2, Δ∞",
        (
            "How far a table can move between two datasets that are compared. Δ1 adds up the"
            " changes of all cells. Δ2 is the root of the sum of their squares. Δ∞ is the largest"
            " change of one cell. The noise is scaled to one of them."
        ),
    ),
    (
        "mechanism, scale",
        (
            "A mechanism is the way in which noise is drawn, such as Laplace, Gaussian or K-norm"
            " noise. Its scale says how wide the noise is."
        ),
    ),
    (
        "residual",
        (
            "What a table says beyond its own totals. For sex by region it is what is left when"
            " the totals of sex and of region are taken away. Tables that share a budget are put"
            " together from residuals, each of which is measured once."
        ),
    ),
    (
        "exact claim, ideal claim",
        (
            "An exact claim holds for the whole numbers that the computer drew. An ideal claim is"
            " proved for real numbers; the computer rounded what it drew."
        ),
    ),
    (
        "ledger",
        (
            "A file that adds up what all releases of the same data have cost, and refuses a"
            " release that would exceed the budget."
        ),
    ),
)
"""Each term with what it means."""


_LONG = 25  # rows from which on a table is searched
_MOST_COLUMNS = 8  # of a list that is no wider than the text
_SEARCHED = 'class="find"'
_SHOWN_MOVES = 12


def html(release: ReleaseFiles, title: str | None = None, further: Sequence[Section] = ()) -> str:
    """Return the report of a release as HTML.

    Parameters
    ----------
    release
        What `run` returned or `Release.load` read.
    title
        The heading; by default it names the tables.
    further
        Sections that somebody has asked for, after those of the results.
    """
    scope, stated = release.scope, release.stated
    moved = [] if stated is None else moves(scope)
    shown = release.presentation
    advertised = release.naive_tradeoff
    curves = (
        {}
        if stated is None
        else {f"this release ({report_words(scope.adjacency).used})": stated.tradeoff}
    )
    if advertised is not None:
        curves["if the totals were ignored"] = advertised
    rendered: str = _template().render(
        title=title
        or shown.title
        or f"{sentences.name_results(release)}: what is exact, what is protected",
        shown=shown,
        created=release.created.replace("T", " ").removesuffix("+00:00") + " UTC",
        versions=release.versions,
        private=release.private,
        exact=sentences.exact_part(scope.dataspace, scope),
        who="one record" if scope.protection is None else scope.protection.who,
        noisy=sentences.noisy_part(release),
        strength=sentences.release_strength(release),
        warnings=(
            *scope.warnings,
            *sentences.together_disclosed(scope.disclosures),
            *sentences.cautions(release),
            *sentences.said_of_several(release),
        ),
        explanation=sentences.explain_protection(release),
        curve=tradeoff_plot(curves) if curves else None,
        advertised=advertised is not None,
        advertised_name=name_tradeoff(advertised) if advertised else None,
        adjacency_heading=None if stated is None else sentences.why_heading(scope),
        adjacency=(
            []
            if stated is None
            else [
                *sentences.explain_joint_moves(scope),
                *sentences.explain_other_adjacency(release),
            ]
        ),
        also_known=sentences.also_known(release),
        moves=moved[:_SHOWN_MOVES],
        more_moves=max(len(moved) - _SHOWN_MOVES, 0),
        results=[*record_sections(release), *_result_sections(release)],
        further=[*_parts_sections(release), *disclosure_sections(scope), *further],
        limits=sentences.limits(release),
        details=_details(release),
        published=_totals(release),
        long=_LONG,
        most=_MOST_COLUMNS,
        glossary=GLOSSARY,
        files=[(name, quote(name), what) for name, what in sentences.files(release)],
    )
    page = rendered.lstrip()
    script = f"<script>{search_script()}</script>\n" if _SEARCHED in page else ""
    # Labels are escaped, on the page and in its figures, so that the page has this tag once.
    return page.replace("</body>", f"{script}</body>")


@functools.cache
def _template() -> Any:
    """The page without its content, compiled once a process."""
    from jinja2 import Environment, select_autoescape

    # Levels, titles and notes may come from strangers: none of them may become markup.
    environment = Environment(
        autoescape=select_autoescape(default=True), trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["drawn"] = _render_figure
    return environment.from_string(
        files("semidp.present.report").joinpath("report.html.j2").read_text(encoding="utf-8")
    )


def search_script() -> str:
    """Return what searches long tables: the only script of a report, and only where there is
    something to search.
    """
    return files("semidp.present.report").joinpath("search.js").read_text(encoding="utf-8")


def _render_figure(figure: Any) -> Any:
    """Return a figure as part of the page."""
    from markupsafe import Markup

    return Markup(svg(figure))


def _result_sections(release: ReleaseFiles) -> list[Section]:
    """Return the sections of all results: what a reader came for, with its errors."""
    sections = []
    for result in release.results:
        sections += result.sections(release.form)
    return [*sections, *place_sections(release)]


def moves(scope: Scope) -> list[dict[str, Any]]:
    """Return the witness of a(t), one entry a record."""
    semi = scope.semi_adjacency
    witness = find_witness(semi) if scope.adjacency.protects_groups else None
    if witness is None or not witness.others:
        return []
    # The example is built from the published totals alone, so that it discloses nothing.
    records = [(witness.record, witness.wants), *witness.others]
    return [
        {
            "who": "the person" if position == 1 else f"record {position}",
            "levels": list(zip(witness.features, before, after, strict=True)),
        }
        for position, (before, after) in enumerate(records, start=1)
    ]


def _parts_sections(release: ReleaseFiles) -> list[Section]:
    """Return the section that lists the parts of a release, with the counts of all tables at the
    cut; none where the release was carried out in one piece.
    """
    partition = release.partition
    if partition is None:
        return []
    depth, parts = partition.depth, partition.parts
    rows = []
    for part in parts[:LISTED_ROWS]:
        rows.append((" · ".join(part.path), part.folder, ", ".join(part.files)))
    by_parts = [result for result in release.results if result.part_stems()[0]]
    overview = [table for result in by_parts for table in result.held_tables()]
    section = Section(
        heading=f"Parts: one for every {depth}",
        paragraphs=more("are listed", len(rows), len(parts), "parts.json"),
        columns=(depth, "folder", "files"),
        rows=rows,
        names=2,
        tables=first_cells(overview, release.scope.dataspace, False, release.form),
    )
    return [section]


def _details(release: ReleaseFiles) -> list[tuple[str, str]]:
    scope = release.scope
    semi = scope.semi_adjacency
    rows = [("Records (public)", f"{scope.dataspace.n:,}")]
    if scope.protection is not None:
        rows = [(f"{scope.protection.records.capitalize()} (public)", f"{scope.dataspace.n:,}")]
        if scope.persons is not None:  # linked units are counted among the exact totals
            rows.append((f"{scope.protection.units.capitalize()} (public)", f"{scope.persons:,}"))
        rows.append(("Promise", scope.protection.who))
    if release.stated is not None:
        rows.append(("Adjacency used", report_words(scope.adjacency).used))
    if semi is not None:
        worst = semi.worst_case if semi.worst_case is not None else f"at most {semi.bound}"
        rows.append(("a(t), worst case", f"{worst} ({semi.method})"))
        if semi.definition is not None:
            rows.append(("a(t), the paper's definition read literally", str(semi.definition)))
    for result in release.results:
        rows += _mechanism(release, result)
    rows += [("Budget", part) for part in sentences.budget_parts(release.plan)]
    rows += [
        ("Reporting δ", plain(release.plan.report_delta)),
        ("Ledger", "charged" if release.ledger else "none"),
        ("Versions", ", ".join(f"{name} {number}" for name, number in release.versions.items())),
    ]
    return rows


def _mechanism(release: ReleaseFiles, result: Published) -> list[tuple[str, str]]:
    """Return how one of the results was measured; the guarantee of the only one stands at the top
    of the page.
    """
    details = result.details()
    rows = [
        (f"Mechanism of {details.what}", f"{result.noise.mechanism}, {details.how}"),
        ("Kind of claim", result.claim_text()),
    ]
    if len(release.results) > 1:
        rows.append(
            ("Guarantee", sentences.strength(result.guarantee, release.plan.report_delta)[-1])
        )
    return [*rows, *details.further]


def _totals(release: ReleaseFiles) -> list[dict[str, Any]]:
    """Return the first rows of every exact total, with the file that holds all of them."""
    tables = []
    for total, file in release.exact_files():
        schema, counts = total.table.schema, total.table.counts
        paths = [feature.paths() for feature in schema.features]
        rows = []
        for index, count in islice(np.ndenumerate(counts), LISTED_ROWS):
            labels = [
                label for path, leaf in zip(paths, index, strict=True) for label in path[leaf]
            ]
            rows.append((*labels, f"{int(count):,}"))
        more = counts.size - len(rows)
        tables.append(
            {
                "columns": (*schema.names, total.counted),
                "rows": rows,
                "more": f"{more:,}" if more else "",
                "file": file,
                "link": quote(file),
            }
        )
    return tables
