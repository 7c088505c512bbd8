"""Whether the noise, the fits, the files and the parts of one result follow from its budget and its
noisy values.

Everything else in a result is published again from its measurement, and the folder is compared
with that. One function serves every kind. A CSV file that semidp wrote is a function of its
columns, so its digest is enough. Parquet files are compared column by column.
"""

import csv
import hashlib
import io
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, evolve, field
from numpy.typing import ArrayLike, NDArray

from semidp.promise.documents import read_plain
from semidp.promise.mechanisms.branch_noise import Cut
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.tradeoff.function import Tradeoff
from semidp.publish.release_value import ReleaseValue
from semidp.publish.residual_mechanism import ResidualMechanism
from semidp.publish.results.columns import Columns, Form, different_column, equal_numbers
from semidp.publish.results.grids import edge_cells
from semidp.publish.results.published_table import FittedTable, PublishedTable
from semidp.publish.selection import NAMES
from semidp.publish.statistics.parts import (
    PARTS,
    Part,
    Partition,
    PartTable,
    part_folder,
    part_path,
)
from semidp.publish.statistics.protocol.requests import CLOSE, Published, Request, noise_name


@define(eq=False)
class Findings:
    """The findings of a recheck so far.

    Parameters
    ----------
    same_software
        Whether the solvers are those that made the release, as it says: then ties are broken the
        same way.
    """

    same_software: bool = False
    wrong: list[str] = field(factory=list)
    trusted: dict[str, list[str]] = field(factory=dict)

    def trust(self, what: str, *fields: str) -> None:
        """Note that something is taken on trust."""
        if fields:
            self.trusted.setdefault(what, []).extend(fields)


def compare_guarantees(stated: Tradeoff, proven: Tradeoff) -> str | None:
    """Say how a stated guarantee differs from the proven one; None if it does not."""
    if not no_stronger(stated, proven):
        return "a stronger guarantee"
    if not no_stronger(proven, stated):
        return "a weaker guarantee"
    return None


def differences(stated: Any, again: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the fields in which plain values differ, with both values; numbers may differ by
    rounding.

    >>> list(differences({"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 3}}))
    [('b.c', 2, 3)]
    """
    if isinstance(stated, Mapping) and isinstance(again, Mapping):
        for key in dict.fromkeys((*again, *stated)):
            yield from differences(
                stated.get(key), again.get(key), f"{path}.{key}" if path else str(key)
            )
    # Lists of different lengths have no pairs: they are one difference, told below.
    elif isinstance(stated, list) and isinstance(again, list) and len(stated) == len(again):
        for one, other in zip(stated, again, strict=True):
            yield from differences(one, other, path)
    elif not same(stated, again):
        yield path, stated, again


def short(value: Any) -> str:
    """Return a value for a sentence, cut to sixty characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def no_stronger(stated: Tradeoff, proven: Tradeoff) -> bool:
    """Whether a stated curve claims no more than the proven one."""
    return stated == proven or proven >= stated


def close(one: ArrayLike, other: ArrayLike, tolerance: float = CLOSE) -> bool:
    """Whether two arrays agree up to rounding, relative to the largest number of the second.

    >>> close([1.0, 1e6], [1.5, 1e6]), close([1.0, 2.0], [1.5, 2.0])
    (True, False)
    """
    left, right = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    if left.shape != right.shape:
        return False
    # Small numbers carry the rounding of the large ones that they were computed with.
    size = float(np.nanmax(np.abs(right), initial=0.0))
    return bool(
        np.allclose(left, right, rtol=tolerance, atol=tolerance * max(size, 1e-300), equal_nan=True)
    )


def same(one: Any, other: Any) -> bool:
    """Whether two plain values are the same, up to rounding of numbers.

    >>> same({"rho": 0.5}, {"rho": 0.5 + 1e-12}), same(True, 1)
    (True, False)
    """
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    # Python takes True for 1, and a reader does not.
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=CLOSE)
    return bool(one == other)


_FIT_FIELDS = ("method", "bound", "optimal", "note")
"""The statements about a fit that only fitting again could confirm."""
_CLOSE_TABLES = (
    "which of several close tables was published; its totals and its distance from what was"
    " measured are right"
)


def check_result(
    release: ReleaseValue, request: Request, result: Published, findings: Findings
) -> Mechanism:
    """Note the statements of a result that contradict its budget and noisy values; return the
    mechanism that its budget gives.
    """
    needed = result.recalibrate(request, release.scope)
    said = [*compare_noise(release, request, result, needed)]
    # What less noise gives is wrong all over: that is said, and not what follows from it.
    if not said:
        said += _compare_totals(release, result, needed)
        said += check_fits(result.fitted_tables(), release.form, findings)
    findings.wrong += [f"{result.name!r} states {each}" for each in said]
    return needed


def compare_noise(
    release: ReleaseValue, request: Request, result: Published, needed: Mechanism
) -> Iterator[str]:
    """Report a noise distribution, scale, claim or guarantee that differs from plan and
    budget.
    """
    noise, name = result.noise, noise_name(needed)
    if noise.mechanism != name:
        yield f"{noise.mechanism} noise, where its totals leave {name}"
    # Some requests name the kind of statistic that answers them instead: a quantile a selection.
    served = [law.name for law in NAMES.get(request.mechanism, ())]
    # Where exact totals fix everything, no noise is drawn whatever was asked for.
    if served and not needed.space.is_zero and noise.mechanism not in served:
        yield f"{noise.mechanism} noise, and its plan asks for {request.mechanism}"
    if noise.claim == "ideal" and release.plan.claim is not None:
        yield "an ideal claim, and its plan asks for exact ones"
    if noise.claim != needed.claim:
        yield f"an {noise.claim} claim, and {needed.name} noise makes an {needed.claim} one"
    said = compare_guarantees(result.guarantee.tradeoff, needed.tradeoff)
    if said is not None:
        yield f"{said} than its noise gives"
    stated = result.residual_noise()
    if isinstance(stated, ResidualMechanism) and isinstance(needed, ResidualMechanism):
        yield from _compare_residuals(stated, needed)
    elif noise.mechanism == name and not close(noise.scale, needed.scale):
        verb = "needs" if noise.scale < needed.scale * (1 - CLOSE) else "gives"
        yield f"noise of scale {noise.scale:.6g}, and its budget {verb} {needed.scale:.6g}"


def _compare_residuals(stated: ResidualMechanism, needed: ResidualMechanism) -> Iterator[str]:
    """Say where the noise of residuals is not what the budget gives.

    Noise may be placed in several ways, and another computer may end elsewhere: what it costs is
    compared.
    """
    squares = [(float(stated.sigma2[view]), float(least)) for view, least in needed.sigma2.items()]
    same = all(close(square, least) for square, least in squares)
    if stated.spent > stated.precision:
        yield "less noise on a residual than its budget needs"
    elif not same and not stated.serves_like(needed):
        yield "more noise on a residual than its budget gives"
    elif same and not close(stated.saved, needed.saved):
        yield "another saving by the joint sensitivity of its residuals than they have"
    if (stated.law, stated.precision) != (needed.law, needed.precision):
        yield "another guarantee for its residuals than its budget gives"


def _compare_totals(release: ReleaseValue, result: Published, needed: Mechanism) -> Iterator[str]:
    """Compare a measurement with the totals that it has by itself: noise that keeps the totals, or
    none at all.
    """
    if needed.space.is_zero:
        if not np.array_equal(result.noisy, result.measurement(needed).noisy):
            yield "a measurement that is not what its exact totals fix"
    elif needed.keeps_totals:
        # Such noise has zero margins, so a measurement without the totals was not drawn by it.
        (table,) = result.every_table()
        schema = table.schema
        for total in release.scope.dataspace.restrict_features(schema.names).published_totals:
            if not np.array_equal(schema.grid.sum(result.noisy, total.view), total.counts):
                yield f"a measurement without the exact totals, which {needed.name} noise keeps"
                return


def check_fits(
    tables: Iterable[FittedTable], form: Form | None, findings: Findings
) -> Iterator[str]:
    """Report a wrong stated distance between whole numbers and what they were fitted to; note what
    is taken on trust about fits.

    Parameters
    ----------
    tables
        The tables. That they have the exact totals was seen when they were loaded.
    form
        How their cells are written.
    findings
        Where to note what is taken on trust.
    """
    for one in tables:
        table, stated = one.table, one.table.fitted
        if stated.method == "none":
            continue
        gaps = np.asarray(table.counts, np.float64) - one.measure.reshape(table.counts.shape)
        loss = float(np.square(gaps).sum())
        if not close([stated.loss, 1.0], [loss, 1.0]):
            yield (
                f"that {table.name} has a distance (loss) of {stated.loss:.6g} from what was"
                f" measured, which is {loss:.6g}"
            )
        elif stated.bound > stated.loss * (1 + CLOSE) + CLOSE:
            yield (
                f"a bound of {stated.bound:.6g} for the distance of {table.name}, which has a"
                " smaller one"
            )
        file = f"{table.name}.{table.columns().form(form)}"
        trust_fit(findings, one.field, f"{file} count")


def trust_fit(findings: Findings, field: str, *counts: str) -> None:
    """Note what is taken on trust about a fit: a field of release.json or of the list of parts."""
    findings.trust(_CLOSE_TABLES, *counts, *(f"{field}.{key}" for key in _FIT_FIELDS))


def compare_parts(release: ReleaseValue, findings: Findings) -> None:
    """Compare the files of every part, and their entries in the list of parts."""
    partition = release.partition
    if partition is None:
        return
    if partition.place is None:
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
    release: ReleaseValue, partition: Partition, result: Published, node: int, part: Part
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
    # A loss of rounding errors is small compared with the variance of the noise.
    variance = float((table.standard_errors**2).sum())
    if not close([told.fitted.loss, variance], [loss, variance]):
        return [f"another distance of {table.name} from what was measured than it has"]
    if told.fitted.kind != table.fitted.kind:
        return [f"another kind of numbers of {table.name} than it has"]
    return [] if matches_errors(told, table) else [f"other errors of {table.name} than it has"]


def matches_errors(told: PartTable, table: PublishedTable) -> bool:
    """Whether the stated errors of a table in a part are those of its cells."""
    follows = PartTable.from_table(table)
    if not close(
        [told.largest_standard_error, told.variance],
        [follows.largest_standard_error, follows.variance],
    ):
        return False
    # Files hold the ends of intervals to six digits. A whole number is told apart alike before
    # and after; a real one on the edge may not be.
    edges = 0 if table.counts.dtype.kind == "i" else int(edge_cells(table).sum())
    stated, counted = told.cells, follows.cells
    return (
        stated.noisy == counted.noisy
        and abs(stated.dominated - counted.dominated) <= edges
        and close([stated.smallest_standard_error], [counted.smallest_standard_error])
    )


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
    content = read_plain(folder / name, folder)
    found = _compare_columns(content, columns)
    if isinstance(found, str):
        yield f"another column {found!r} in {name} than follows"
    elif b"".join(found.csv()) != content:
        yield f"numbers in {name} that are not written as a release writes them"


def _compare_columns(content: bytes, columns: Columns) -> Columns | str:
    """Return the first column of a CSV file that is not as expected; the columns with the numbers
    of the file if all are.
    """
    labels = list(columns.labels)
    first = next(iter([*labels, *columns.numbers]))
    try:
        header, *rows = csv.reader(io.StringIO(content.decode()))
    except (ValueError, csv.Error):  # no text, an empty one, or none that is read by lines
        return first
    if header[: len(labels)] != labels or len(rows) != columns.rows:
        return next(
            (name for name, in_file in zip(labels, header, strict=False) if name != in_file), first
        )
    if any(len(row) != len(header) for row in rows):
        return header[-1]
    for place, (name, column) in enumerate(columns.labels.items()):
        if [row[place] for row in rows] != column.column(columns.rows).tolist():
            return name
    numbers: dict[str, NDArray[Any]] = {}
    for place, name in enumerate(header[len(labels) :], start=len(labels)):
        held = columns.numbers.get(name)
        read = None if held is None else _read_equal([row[place] for row in rows], held)
        if read is None:
            return name
        numbers[name] = read
    missing = [name for name in columns.numbers if name not in numbers]
    return missing[0] if missing else evolve(columns, numbers=numbers)


def _read_equal(texts: list[str], held: NDArray[Any]) -> NDArray[Any] | None:
    """Return the numbers of a column as the file has them; None if they are not those expected."""
    try:
        numbers = np.array([float(text) if text else math.nan for text in texts])
    except ValueError:
        return None
    closed = np.where(np.isfinite(held), held, np.nan) if held.dtype.kind == "f" else held
    if not equal_numbers(numbers, closed):
        return None
    return numbers if held.dtype.kind == "f" else held
