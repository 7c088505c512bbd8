"""What a release says of tables that were carried out part by part."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from semidp.promise.exact import count_noun
from semidp.publish.results.cells import Form
from semidp.publish.results.published_table import Fitted
from semidp.publish.results.sections import Section, table_title
from semidp.publish.statistics.parts import Part, PartTable
from semidp.publish.statistics.tables.asked import TableRequest
from semidp.publish.statistics.tables.error_words import (
    ERRORS_TEXT,
    HEADINGS,
    CellErrors,
    error_lines,
    misses_totals,
)

if TYPE_CHECKING:
    from semidp.publish.statistics.tables.by_parts.separate import SeparateTables

_NAMED_TABLES = 4  # in the heading of a report
_NAMED_PARTS = 5  # in a warning
_NOTES = 3  # of fits, in a report


@dataclass(frozen=True)
class PartErrors:
    """A requested table: its features, the parts that hold its cells, its errors over all of them,
    and notes on its fits.
    """

    features: tuple[str, ...]
    parts: int
    errors: CellErrors
    notes: tuple[str, ...]

    @property
    def title(self) -> str:
        """The table, named by its features."""
        return " by ".join(self.features)


def part_errors(result: "SeparateTables") -> list[PartErrors]:
    """Return the errors of every table that was released part by part, over all parts."""
    below = {table.name for table in result.tables_below_cut}
    errors = []
    for table in result.request.tables:
        measure = _below_cut if table.name in below else _at_cut
        errors.append(measure(result, table))
    return errors


def _below_cut(result: "SeparateTables", table: TableRequest) -> PartErrors:
    """Errors of a table that reaches below the cut: those of its parts together."""
    pieces = []
    for part in result.parts:
        pieces += [piece for piece in part.tables if piece.name == table.name]
    schema = result.noise_of_residuals.space.schema.restrict(table.features)
    errors = _errors_from_parts(table.name, schema.size, pieces)
    fits = [piece.fitted for piece in pieces]
    return PartErrors(schema.names, len(fits), errors, _notes(fits))


def _errors_from_parts(name: str, size: int, pieces: Sequence[PartTable]) -> CellErrors:
    """Errors of a table, from what its parts state."""
    dominated = sum(piece.cells.dominated for piece in pieces)
    noisy = sum(piece.cells.noisy for piece in pieces)
    smallest = [piece.cells.smallest_standard_error for piece in pieces if piece.cells.noisy]
    variance = sum(piece.variance for piece in pieces)
    errors = {
        "standard_error": math.sqrt(variance / max(noisy, 1)),
        "smallest": min(smallest, default=0.0),
        "largest": max(piece.largest_standard_error for piece in pieces),
    }
    return CellErrors(name, size, errors, dominated, noisy)


def _at_cut(result: "SeparateTables", table: TableRequest) -> PartErrors:
    """Errors of a table at the cut or above it."""
    overview = next(each for each in result.overview if each.name == table.name)
    schema = result.noise_of_residuals.space.schema.restrict(table.features)
    return PartErrors(schema.names, 1, CellErrors.from_table(overview), _notes([overview.fitted]))


def _notes(fits: Sequence[Fitted]) -> tuple[str, ...]:
    """Notes on fits that may not be the closest."""
    # Many parts have the same note: it is said once.
    notes = dict.fromkeys(fit.note for fit in fits if not fit.optimal and fit.note)
    return tuple(notes)[:_NOTES]


def title(result: "SeparateTables") -> str:
    """Name the first tables that reach below the cut."""
    return ", ".join(
        " by ".join(table.features) for table in result.tables_below_cut[:_NAMED_TABLES]
    )


def noisy_lines(result: "SeparateTables") -> list[str]:
    """Say how many cells each table has, in how many parts."""
    lines = []
    for table in part_errors(result):
        # A table at the cut or above it is in one piece.
        parts = f" in {table.parts:,} parts" if table.parts > 1 else ""
        lines.append(f"{table.title}: {count_noun(table.errors.cells, 'cell')}{parts}")
    return lines


def summary_lines(result: "SeparateTables") -> list[tuple[str, str]]:
    """Return the errors of each table over all parts, for a terminal."""
    return [
        *error_lines(result.cell_errors()),
        ("mechanism", "noise on residuals (what each table has beyond its totals), part by part"),
    ]


def section(result: "SeparateTables") -> Section:
    """Return the section of tables released part by part, with their errors over all parts."""
    depth = result.depth
    paragraphs = [
        f"Every table was first measured at the depth of {depth} and above. Totals of several"
        f" parts together were divided between the parts there. Below that depth, each {depth} was"
        " measured and fitted by itself, from its own records and from these public numbers. All"
        " noise was calibrated to the whole, so that there is one guarantee. What a finer table"
        f" counts by {depth} is the sum of its parts."
    ]
    rows = []
    for table in part_errors(result):
        paragraphs += table.notes
        _, cells, *errors = table.errors.row()
        rows.append((table.title, cells, f"{table.parts:,}", *errors))
    paragraphs.append(ERRORS_TEXT)
    first, cells_heading, *error_headings = HEADINGS
    return Section(
        heading=f"Published tables, by {depth}",
        paragraphs=paragraphs,
        columns=(first, cells_heading, "parts", *error_headings),
        rows=rows,
    )


def file_words(result: "SeparateTables", form: Form | None) -> list[tuple[str, str]]:
    """Say what the files at the cut hold."""
    *names, measurements = result.files(form)
    words = []
    for file, table in zip(names, result.overview, strict=True):
        words.append((file, f"the counts of {table_title(table)}, with estimates and errors"))
    words.append(
        (measurements, "the measured residuals at this depth and above, for statisticians")
    )
    return words


def warnings(result: "SeparateTables") -> list[str]:
    """Name the tables that were asked for in whole numbers and have none with all totals, and in
    which parts.
    """
    above = {table.name: table.fitted for table in result.overview}
    below = {table.name for table in result.tables_below_cut}
    told = []
    for table in result.request.tables:
        if table.fit != "integer":
            continue
        if table.name not in below:
            told += [] if above[table.name].kind == "integer" else [misses_totals(table.name)]
            continue
        missed = [part for part in result.parts if part.find_fit(table.name).kind != "integer"]
        if missed:
            told.append(misses_totals(table.name, f" in {_some_parts(missed)}"))
    return told


def _some_parts(parts: Sequence[Part]) -> str:
    names = [" · ".join(part.path) for part in parts[:_NAMED_PARTS]]
    left = len(parts) - _NAMED_PARTS
    more_parts = f" and {left:,} more parts" if left > 0 else ""
    return ", ".join(names) + more_parts
