"""Whether the files of a release hold the columns that it states: names, labels and numbers, and
nothing else; and whether its parts follow from what was measured in them.

A CSV file that semidp wrote is a function of its columns, so that its digest is enough. Parquet
files are compared column by column.
"""

import csv
import hashlib
import io
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.promise.documents import read_plain
from semidp.promise.mechanisms.branch_noise import Cut
from semidp.publish.rechecking.result_check import trust_fit
from semidp.publish.release_value import ReleaseValue
from semidp.publish.results.cells import Columns, Form
from semidp.publish.results.columns import different_column, equal_numbers
from semidp.publish.results.published_table import PublishedTable
from semidp.publish.statistics.parts import (
    PARTS,
    Part,
    StoredPartition,
    part_folder,
    part_path,
)
from semidp.publish.statistics.protocol.results import Published
from semidp.publish.statistics.recheck_findings import Findings, close


def compare_parts(release: ReleaseValue, findings: Findings) -> None:
    """Compare the files of every part, and what the list of parts says of them."""
    partition = release.partition
    if partition is None:
        return
    if not isinstance(partition, StoredPartition):
        findings.wrong.append("it states parts that are not there")
        return
    changed = partition.find_changed_file()
    if changed is not None:
        findings.wrong.append(f"it states another {changed} than the folder has")
        return
    schema = release.scope.dataspace.schema
    cut = Cut.from_name(schema, partition.depth)
    nodes = cut.chain(schema).size(cut.depth)
    if len(partition.parts) != nodes:
        findings.wrong.append(f"it states {len(partition.parts)} parts, and there are {nodes}")
        return
    trust_fit(findings, f"{PARTS} tables.fitted")
    for node, part in enumerate(partition.parts):
        place = part_folder(schema, cut, node)
        if (part.path, part.folder) != (part_path(schema, cut, node), place):
            findings.wrong.append(f"it states another place than {place} in {part.folder}")
            continue
        for result in release.results:
            try:
                said = _compare_part(release, partition, result, node, part)
            except (ValueError, KeyError, OSError, IndexError, StopIteration):
                said = ["files that are damaged"]
            findings.wrong += [
                f"{result.name!r} states {each} in {part.folder}" for each in dict.fromkeys(said)
            ]


def _compare_part(
    release: ReleaseValue, partition: StoredPartition, result: Published, node: int, part: Part
) -> list[str]:
    """Return what one part states of a result that does not follow."""
    names, stem = result.part_stems()
    if not names:
        return []
    stored = partition.files(part)
    tables, measured = result.publish_part(stored, node, part)
    said = list(result.part_faults(node, tables))
    # Where the counts do not add up, that is said, and not what else follows from them.
    if said:
        return said
    columns = {table.name: table.columns() for table in tables}
    if measured is not None and stem is not None:
        columns[stem] = measured
    for name, content in columns.items():
        file = f"{name}.{release.form}"
        if file not in part.files:
            said.append(f"no {file}")
            continue
        said += file_differences(stored.folder, file, content, part.files[file])
    for table in tables:
        said += _compare_list(part, table)
    return said


def _compare_list(part: Part, table: PublishedTable) -> list[str]:
    """Compare what the list of parts says of one table."""
    told = next((told for told in part.tables if told.name == table.name), None)
    if told is None:
        return []  # told when the lists of all parts are compared
    loss = 0.0
    if table.fitted.method != "none":
        loss = float(((table.counts - table.estimate) ** 2).sum())
    # A loss of rounding errors is small beside the variance of the noise.
    variance = float((table.standard_errors**2).sum())
    if not close([told.fitted.loss, variance], [loss, variance]):
        return [f"another distance of {table.name} from what was measured than it has"]
    if told.fitted.kind != table.fitted.kind:
        return [f"another kind of numbers of {table.name} than it has"]
    return [] if told.matches_errors(table) else [f"other errors of {table.name} than it has"]


def file_differences(folder: Path, name: str, columns: Columns, digest: str) -> Iterator[str]:
    """Yield the columns of a file that are not those of the release.

    Parameters
    ----------
    folder, name
        Where the file is.
    columns
        What it should hold: labels by the schema, numbers as they were read.
    digest
        Its SHA-256.
    """
    if name.endswith(f".{Form.parquet}"):
        different = different_column(folder / name, columns.labels, columns.numbers)
        if different is not None:
            yield f"another column {different!r} in {name} than follows"
        return
    hashed = hashlib.sha256()
    for part in columns.csv():
        hashed.update(part)
    if hashed.hexdigest() == digest:
        return
    different = _different(read_plain(folder / name, folder), columns)
    if different is not None:
        yield f"another column {different!r} in {name} than follows"
    else:
        yield f"numbers in {name} that are not written as a release writes them"


def _different(content: bytes, columns: Columns) -> str | None:
    """Return the first column of a CSV file that is not as expected; None where only the way of
    writing differs.
    """
    header, *rows = csv.reader(io.StringIO(content.decode()))
    labels = list(columns.labels)
    if header[: len(labels)] != labels or len(rows) != columns.rows:
        return next(
            (name for name, in_file in zip(labels, header, strict=False) if name != in_file),
            header[0],
        )
    if any(len(row) != len(header) for row in rows):
        return header[-1]
    for place, (name, column) in enumerate(columns.labels.items()):
        if [row[place] for row in rows] != column.column(columns.rows).tolist():
            return name
    numbers: Mapping[str, NDArray[Any]] = columns.numbers
    for place, name in enumerate(header[len(labels) :], start=len(labels)):
        held = numbers.get(name)
        if held is None or not _equal([row[place] for row in rows], held):
            return name
    return next((name for name in numbers if name not in header), None)


def _equal(texts: list[str], held: NDArray[Any]) -> bool:
    try:
        numbers = np.array([float(text) if text else math.nan for text in texts])
    except ValueError:
        return False
    closed = np.where(np.isfinite(held), held, np.nan) if held.dtype.kind == "f" else held
    return equal_numbers(numbers, closed.astype(float))
