"""How what exact numbers give away is said and drawn: rows for a terminal, a section of the report,
a notice before a release is charged, and a picture of the widths of bounds.
"""

from typing import Any

import numpy as np

from semidp.assess.disclosure.findings import (
    WORST,
    Answer,
    Disclosure,
    DisclosureStatement,
    FindingKind,
    TotalChange,
)
from semidp.assess.disclosure.published_counts import UNBOUNDED
from semidp.promise.exact import count_noun, list_some
from semidp.promise.guarantee import Scope
from semidp.promise.spaces.dataspace import Dataspace, list_column_margins
from semidp.promise.spaces.linked import LinkedDataspace
from semidp.publish.plotting import ORANGE, Figure, drawing, flatten_table
from semidp.publish.results.grids import Section

HEADING = "What the exact totals give away"
_ABOUT = (
    "The guarantee compares datasets that have the same exact totals. It says nothing about what"
    " these totals prove by themselves. This part does, from the totals alone, without any noisy"
    " number."
)
_MOST_DRAWN = 10_000
_DRAWN_IN_REPORT = 600
_SHADES = 12
_NAMED = 40
_MOST_TOTALS = 2**20
_MOST_MARGINS = 40

_WORDS: dict[FindingKind, tuple[str, str]] = {
    FindingKind.everybody: (
        "group in which everybody has the same value",
        "groups in which everybody has the same value",
    ),
    FindingKind.coalition: (
        "group whose members can work out the value of all others",
        "groups whose members can work out the value of all others",
    ),
    FindingKind.recovered: ("hidden cell recovered exactly", "hidden cells recovered exactly"),
    FindingKind.within: (
        "hidden cell recovered approximately",
        "hidden cells recovered approximately",
    ),
    FindingKind.alone: ("cell that holds exactly one record", "cells that hold exactly one record"),
    FindingKind.fixed: ("unpublished cell known exactly", "unpublished cells known exactly"),
    FindingKind.exists: (
        "unpublished cell known to hold somebody",
        "unpublished cells known to hold somebody",
    ),
    FindingKind.anybody: (
        "possible group whose members would all have the same value",
        "possible groups whose members would all have the same value",
    ),
    FindingKind.nobody: (
        "combination that nobody has, though no published number says so",
        "combinations that nobody has, though no published number says so",
    ),
}


def count_statements(numbers: dict[FindingKind, int]) -> str:
    """Say how much is certain.

    >>> count_statements({FindingKind.everybody: 1, FindingKind.alone: 2})
    '1 group in which everybody has the same value; 2 cells that hold exactly one record'
    """
    said = [count_noun(numbers[kind], *words) for kind, words in _WORDS.items() if kind in numbers]
    return "; ".join(said) or "nothing"


def state(statement: DisclosureStatement) -> str:
    """Say what a statement says, without its proof."""
    levels = statement.cell
    where = ", ".join(f"{name} {level}" for name, level in levels.items()) or "all records"
    if statement.value is not None:
        group = [f"{name} {level}" for name, level in levels.items() if name != statement.value]
        who = ", ".join(group) or "all records"
        what = f"{statement.value} {levels[statement.value]}"
        if statement.kind is FindingKind.coalition:
            members = count_noun(statement.insiders or 0, "member")
            return f"{who}: {members} without {what} would know that all others have it"
        if statement.kind is FindingKind.anybody:
            return f"whoever is in {who} has {what}"
        return f"everybody in {who} has {what} ({_span(statement)})"
    if statement.kind is FindingKind.nobody:
        return f"nobody is in {where}"
    if statement.kind is FindingKind.alone:
        return f"one record alone in {where}"
    if statement.kind is FindingKind.asked:
        return f"{where}: {_span(statement)}, {statement.answer}"
    return f"{where}: {_span(statement)}"


def _span(statement: DisclosureStatement) -> str:
    if statement.upper is None:
        text = f"{statement.lower:,} or more"
    elif statement.lower == statement.upper:
        return f"{statement.lower:,}"
    else:
        text = f"{statement.lower:,} to {statement.upper:,}"
    return text if statement.sharp else f"{text} (outer bounds)"


def describe_change(change: TotalChange) -> str:
    """Say what would be certain without a total."""
    numbers = "nothing" if not change.numbers else count_statements(change.numbers)
    if not change.instead:
        return f"without {change.without}: {numbers}"
    return f"with {', '.join(change.instead)} instead of {change.without}: {numbers}"


def _write_cell(row: dict[str, Any]) -> str:
    levels = ", ".join(str(level) for name, level in row.items() if name != "count")
    return f"{levels} {row['count']:,}"


def disclosure_rows(found: Disclosure) -> list[tuple[str, str]]:
    """Write what published numbers give away for a terminal."""
    names = [" × ".join(found.counts.schema.list_view_names(view)) for view in found.counts.cliques]
    rows = [("published", "; ".join(filter(None, names)) or "only the number of records")]
    for answer in found.answers:
        rows.append(("asked", state(answer)))
        rows += [("", sentence) for sentence in answer.proof]
        for number, table in enumerate(answer.examples, start=1):
            cells = list_some(table, 8, "; ", _write_cell)
            rows.append(("", f"table {number} that agrees: {cells}"))
        if answer.answer is Answer.undecided:
            rows.append(("", "no two tables that differ were found in the time given"))
    rows.append(("certain", count_statements(found.numbers)))
    rows += [("cells", text) for text in _cell_words(found)]
    for statement in found.statements:
        rows.append((str(statement.kind), state(statement)))
        rows += [("", sentence) for sentence in statement.proof]
        if len(statement.tables) > 1:
            rows.append(("", f"from {' and '.join(statement.tables)} together"))
    left = sum(found.numbers.values()) - len(found.statements)
    if left > 0:
        rows.append(("more", f"{left:,} further statements are counted above and not listed"))
    rows += [("certain", describe_change(change)) for change in found.changes]
    return rows


def _cell_words(found: Disclosure) -> list[str]:
    """Say how many cells of the crossing are settled."""
    cells = found.findings.count_cells()
    names = " × ".join(found.counts.schema.list_view_names(found.counts.crossing))
    if cells is None:
        return [f"{names} has too many cells to look at each"]
    if not names:
        return []
    text = (
        f"{names}: {count_noun(cells['cells'], 'cell')}, {cells['certain']:,} certain,"
        f" {cells['not certain']:,} not certain, {cells['undecided']:,} undecided"
    )
    outer = cells["cells"] - cells["sharp"]
    return [f"{text}; {outer:,} with outer bounds only" if outer else text]


_reviewed: list[tuple[Dataspace, Disclosure]] = []
"""The totals that were looked at last: the notice, the report and the page ask for the same."""


def review_totals(dataspace: Dataspace) -> Disclosure | None:
    """Return what exact totals give away, by quick work; None if nothing but the number of records
    is exact, or if they are too many.
    """
    if not list_column_margins(dataspace) or _are_many(dataspace):
        return None
    for totals, review in _reviewed:
        if totals is dataspace:
            return review
    review = Disclosure.from_dataspace(dataspace)
    _reviewed[:] = [(dataspace, review)]
    return review


def _are_many(dataspace: Dataspace) -> bool:
    cells = sum(total.counts.size for total in dataspace.totals)
    many = cells > _MOST_TOTALS or len(dataspace.totals) > _MOST_MARGINS
    return many or dataspace.n >= UNBOUNDED


def disclosure_paragraphs(scope: Scope, found: Disclosure) -> list[str]:
    """Return what the section says before its list."""
    paragraphs = [_ABOUT]
    numbers = found.numbers
    if numbers:
        paragraphs.append(f"This is certain: {count_statements(numbers)}.")
    else:
        paragraphs.append("Nothing about a single person or group was found to be certain.")
    if scope.protection is not None:
        paragraphs.append(f"All of it is about single {scope.protection.records}.")
    cells = found.findings.count_cells()
    if isinstance(scope.dataspace, LinkedDataspace):
        paragraphs.append("Only the totals of members were looked at, not those of units.")
    elif cells is None or cells["undecided"]:
        paragraphs.append(
            "Not every cell was decided here; semidp disclosure looks further, as long as it is"
            " given time."
        )
    if numbers:
        changes = [describe_change(change) for change in found.changes]
        if changes:
            paragraphs.append(f"What would be certain {'; '.join(changes)}.")
    return paragraphs


def brief_rows(found: Disclosure) -> list[tuple[str, str]]:
    """Write the counts, the worst statements and what would change, for `semidp analyze`."""
    rows = [("gives away", f"the exact totals by themselves: {count_statements(found.numbers)}")]
    for statement in found.statements[:WORST]:
        rows.append(("", f"{state(statement)}. {' '.join(statement.proof)}"))
    if found.numbers:
        rows += [("", describe_change(change)) for change in found.changes]
    return rows


def disclosure_sections(scope: Scope) -> list[Section]:
    """Return the section of the report; none where only the number of records is exact."""
    review = review_totals(scope.dataspace)
    if review is None:
        said = "The exact totals are too many to look at here: semidp disclosure reads them."
        many = _are_many(scope.dataspace)
        return [Section(heading=HEADING, paragraphs=[_ABOUT, said])] if many else []
    rows = [(state(each), " ".join(each.proof)) for each in review.statements[:WORST]]
    return [
        Section(
            heading=HEADING,
            paragraphs=disclosure_paragraphs(scope, review),
            columns=("certain", "why") if rows else (),
            rows=rows,
            names=2,
            figure=width_figure(review, _DRAWN_IN_REPORT),
            figure_label="Widths of the bounds of every cell, with certain cells marked",
            caption=(
                "The lighter a cell, the less is left open about its count. Certain cells are"
                " marked with a dot."
            ),
        )
    ]


def disclosure_notice(scope: Scope) -> list[str]:
    """Return a warning before a release is charged, where its exact totals reveal somebody's
    value; they alone are read.
    """
    review = review_totals(scope.dataspace)
    if review is None or not review.reveals:
        return []
    worst = review.statements[0]
    return [
        "The exact totals reveal values by themselves, whatever the noise:"
        f" {count_statements(review.numbers)}. For example, {state(worst)}. semidp disclosure says"
        " why, and which total to leave out."
    ]


def width_figure(found: Disclosure, most: int = _MOST_DRAWN) -> Figure | None:
    """Draw the width of the bounds of every cell of the crossing; certain cells are marked.

    None where there is nothing to draw: one feature, or too many cells.
    """
    crossing = found.counts.crossing
    bounds = found.findings.crossing_bounds
    if bounds is None or sum(depth > 0 for depth in crossing) < 2 or bounds.lower.size > most:
        return None
    from matplotlib import colormaps

    schema = found.counts.schema.restrict(found.counts.schema.list_view_names(crossing))
    widths = np.where(bounds.upper >= UNBOUNDED, np.nan, bounds.upper - bounds.lower)
    matrix, rows, columns = flatten_table(schema, widths.reshape(schema.shape))
    height = float(np.clip(1.4 + 0.26 * len(rows), 2.4, 8.0))
    with drawing(float(np.clip(2.4 + 0.2 * len(columns), 4.4, 9.0)), height) as (figure, axes):
        # Shapes and few shades: a picture of points would be an image inside the report.
        shades = colormaps["Blues"].resampled(_SHADES)
        mesh = axes.pcolormesh(matrix, cmap=shades, vmin=0, vmax=max(np.nanmax(matrix), 1))
        down, across = np.nonzero(matrix == 0)
        size = float(np.clip(420 / max(matrix.shape), 4, 60))
        axes.scatter(
            across + 0.5, down + 0.5, s=size, color=ORANGE, edgecolors="white", linewidths=0.6
        )
        for put, labels, turn in ((axes.set_yticks, rows, 0), (axes.set_xticks, columns, 90)):
            named = labels if len(labels) <= _NAMED else []
            put(np.arange(len(named)) + 0.5, named, fontsize=8, rotation=turn)
        axes.invert_yaxis()
        axes.grid(visible=False)
        figure.colorbar(mesh, ax=axes, label="width of the bounds")
    return figure
