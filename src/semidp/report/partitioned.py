"""What is said of tables that were released part by part: in the terminal, and on the page.

Neither grows with the cells: tables are shown as they are at the partition's depth, parts by what became of them.
"""

import math
from dataclasses import dataclass
from typing import Any

from semidp.release import PartitionedTables, Release
from semidp.release.partitions import tables_asked
from semidp.report.cells import error_text, more

_SHOWN_PARTS = 1000


@dataclass(frozen=True)
class TableErrors:
    """A table that was asked for: its cells, the parts they lie in, and its errors over all of them."""

    features: tuple[str, ...]
    cells: int
    parts: int
    rms: float
    largest: float
    notes: tuple[str, ...]


def errors_of(release: Release, result: PartitionedTables) -> list[TableErrors]:
    """Return the errors of every table of a result, over all parts."""
    assert release.partition is not None
    schema, found = result.mechanism.space.schema, []
    below = {table.name for table in result.below}
    for table in tables_asked(result.request):
        own = schema.restrict(table.features)
        if table.name in below:
            parts = [part for each in release.partition.parts for part in each.tables if part.name == table.name]
            variance = sum(part.variance for part in parts)
            largest = max(part.largest_standard_error for part in parts)
            fits = [part.fitted for part in parts]
        else:
            at_cut = next(known for known in result.overview if known.name == table.name)
            variance, fits = float((at_cut.standard_errors**2).sum()), [at_cut.fitted]
            largest = float(at_cut.standard_errors.max(initial=0.0))
        notes = dict.fromkeys(fit.note for fit in fits if not fit.optimal and fit.note)
        found.append(
            TableErrors(
                own.names,
                own.size,
                len(fits),
                math.sqrt(variance / own.size),
                largest,
                tuple(notes)[:3],
            )
        )
    return found


def noisy_lines(release: Release) -> list[str]:
    """Name the tables, their cells and their parts."""
    return [
        f"{' by '.join(table.features)}: {table.cells:,} cells"
        + (f" in {table.parts:,} parts" if table.parts > 1 else "")
        for result in release.partitioned
        for table in errors_of(release, result)
    ]


def mechanism_lines(release: Release) -> list[str]:
    """Say how the tables were measured."""
    return [
        f"residuals, {' by '.join(table.features)}: standard error {error_text(table.rms)}, largest "
        f"{error_text(table.largest)}"
        for result in release.partitioned
        for table in errors_of(release, result)
    ]


def file_lines(release: Release) -> list[tuple[str, str]]:
    """Name the files, those of the first part for all of them."""
    found = []
    for result in release.partitioned:
        *tables, measurements = result.files(release.form)
        for name, table in zip(tables, result.overview, strict=True):
            found.append((name, f"the counts of {' by '.join(table.schema.names)}, with estimates and errors"))
        found.append((measurements, "the measured residuals at this depth and above, for statisticians"))
    if release.partition is not None:
        first = release.partition.parts[0]
        for name in first.files:
            found.append((f"{first.folder}/{name}", f"the same of one {release.partition.depth}, in every detail"))
        found.append(("parts.json", f"every {release.partition.depth} and its files, for machines"))
    return found


def sections(release: Release) -> list[dict[str, Any]]:
    """Return what the page says of tables released part by part, without their cells."""
    if release.partition is None:
        return []
    depth = release.partition.depth
    found: list[dict[str, Any]] = []
    for result in release.partitioned:
        tables = errors_of(release, result)
        notes = [note for table in tables for note in table.notes]
        found.append(
            {
                "heading": f"Published tables, by {depth}",
                "paragraphs": [
                    f"Every table was first measured and fitted at the depth of {depth} and above, under all exact "
                    f"totals. Below, each {depth} was measured and fitted by itself, from its own records and from "
                    "these public numbers. All noise was calibrated to the whole, so that there is one guarantee.",
                    *notes,
                ],
                "columns": ("table", "cells", "parts", "standard error", "largest"),
                "rows": [
                    (
                        " by ".join(table.features),
                        f"{table.cells:,}",
                        f"{table.parts:,}",
                        error_text(table.rms),
                        error_text(table.largest),
                    )
                    for table in tables
                ],
            }
        )
    parts = release.partition.parts
    shown = parts[:_SHOWN_PARTS]
    found.append(
        {
            "heading": f"Parts: one for every {depth}",
            "paragraphs": more("are listed", len(shown), len(parts), "parts.json"),
            "columns": (depth, "folder", "files"),
            "rows": [(" · ".join(part.path), part.folder, ", ".join(part.files)) for part in shown],
            "names": 2,
        }
    )
    return found
