"""Synthetic records: a row of codes each, as a data frame or as files with what is known about
them, and one answer from several files.

Files appear only when complete, and are replaced only by files of the same kind. The error of an
answer from several files includes the noise of the release.
"""

import hashlib
import itertools
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError, Occupied, Refused
from semidp.inference.records.record_cells import TableDistance
from semidp.inference.records.record_search import Ending
from semidp.promise.documents import read_document
from semidp.promise.exact import format_value
from semidp.promise.files import replace_file
from semidp.promise.schema.margins import View
from semidp.promise.schema.schema import Schema
from semidp.publish.results.columns import DataFrames, csv_bytes, import_optional
from semidp.publish.written_values import check_level

if TYPE_CHECKING:
    import pandas


_AT_ONCE = 2**16  # lines that are written together


@frozen(eq=False)
class SyntheticRecords(DataFrames):
    """Synthetic records, one per line. No line is a person: records are made to fit published
    counts.

    Parameters
    ----------
    schema
        The features of a record.
    view
        The depth at which each feature is known; 0 if no table has it.
    places
        For each feature, the first leaf of every record's node at that depth; one byte per value up
        to 256 levels.
    distances
        For each table the distance of its counts from the published estimates, in standard errors.
    unlinked
        Pairs of features that no table and no exact total has together: records have no direct
        information about their association.
    ending
        Why the search for closer records ended.
    hidden
        Depths that are not columns of the records, such as bins of levels.

    Examples
    --------
    >>> import semidp
    >>> requests = [
    ...     semidp.publish.TableRequest(["sex", "age"]),
    ...     semidp.publish.TableRequest(["age", "ill"]),
    ... ]
    >>> plan = semidp.Plan(requests, ["sex"], levels_from_data=True).with_budget(
    ...     semidp.Budget.gdp(1)
    ... )
    >>> people = {"sex": [*"ffmmf"], "age": [*"yoyoo"], "ill": [*"nnyny"]}
    >>> records = semidp.run(plan, people).records()
    >>> records.columns, len(records), sorted(row[0] for row in records.rows())
    (('sex', 'age', 'ill'), 5, ['f', 'f', 'f', 'm', 'm'])
    >>> records.unlinked, str(records.ending)
    ((('sex', 'ill'),), 'matched')
    """

    schema: Schema
    view: View
    places: tuple[NDArray[np.unsignedinteger], ...] = field(repr=False)
    distances: tuple[TableDistance, ...] = ()
    unlinked: tuple[tuple[str, str], ...] = ()
    ending: Ending = Ending.MATCHED
    hidden: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The features, a nested one with every depth that is known and not hidden."""
        names: list[str] = []
        for feature, depth in zip(self.schema.features, self.view, strict=True):
            names += feature.names[:depth]
        return tuple(name for name in names if name not in self.hidden)

    def __len__(self) -> int:
        """The number of records."""
        return len(self.places[0])

    def encode_columns(self) -> Iterator[tuple[str, list[str], NDArray[np.intp]]]:
        """Yield each column: its name, its labels, and for each record the number of its label."""
        for axis, (feature, depth) in enumerate(zip(self.schema.features, self.view, strict=True)):
            paths = feature.paths()
            for level, name in enumerate(feature.names[:depth]):
                if name in self.hidden:
                    continue
                # One label may stand below several parents.
                numbers: dict[str, int] = {}
                of_leaf = [numbers.setdefault(path[level], len(numbers)) for path in paths]
                yield name, list(numbers), np.array(of_leaf, dtype=np.intp)[self.places[axis]]

    def to_dict(self) -> dict[str, list[str]]:
        """Return the columns as lists of labels."""
        columns = {}
        for name, labels, codes in self.encode_columns():
            columns[name] = np.array(labels, dtype=object)[codes].tolist()
        return columns

    def to_pandas(self) -> "pandas.DataFrame":
        """Return a pandas data frame of categories (needs pandas)."""
        pandas = import_optional("pandas")
        columns = {
            name: pandas.Categorical.from_codes(codes, labels)
            for name, labels, codes in self.encode_columns()
        }
        return pandas.DataFrame(columns)

    def rows(self, start: int = 0, end: int | None = None) -> Iterator[tuple[str, ...]]:
        """Yield the levels of each record."""
        columns = []
        for axis, (feature, depth) in enumerate(zip(self.schema.features, self.view, strict=True)):
            if depth:
                shown = [name not in self.hidden for name in feature.names[:depth]]
                paths = [tuple(itertools.compress(path, shown)) for path in feature.paths()]
                columns.append([paths[leaf] for leaf in self.places[axis][start:end].tolist()])
        for parts in zip(*columns, strict=True):
            yield tuple(label for part in parts for label in part)

    def csv(self) -> Iterator[bytes]:
        """Yield the file of the records, some lines at a time."""
        yield csv_bytes(self.columns, ())
        for start in range(0, len(self), _AT_ONCE):
            first, *following = self.rows(start, start + _AT_ONCE)
            yield csv_bytes(first, following)


@frozen
class CombinedEstimate:
    """An answer from several files, with its interval.

    Parameters
    ----------
    value, standard_error
        The mean of the answers, and its standard error.
    low, high, level
        The interval by Student's t, and its level.
    between, within
        The variance of the answers between files, and the mean of the variances that came with them
        (0 without).
    degrees
        The degrees of freedom of t.
    """

    value: float
    standard_error: float
    low: float
    high: float
    level: float
    between: float
    within: float
    degrees: float


def combine_estimates(
    estimates: ArrayLike, variances: ArrayLike | None = None, *, level: float = 0.95
) -> CombinedEstimate:
    """Combine the answers from several files of synthetic records into one.

    With m files whose answers q vary by B between files, the mean has the variance ``(1 + 1/m) B``:
    once the noise of the release, which B estimates, and its m-th part for the draws. With the
    variances u of sampling it is ``ū + (1 + 1/m) B``, and the interval is for the population that
    the records were sampled from (Rubin, 1987). The degrees of freedom are
    ``(m - 1)(1 + ū/((1 + 1/m) B))²``. Files that are samples themselves need a different rule
    (Raghunathan, Reiter and Rubin, 2003); these files keep the exact totals.

    Parameters
    ----------
    estimates
        The answer from each file: a count, a rate, a mean, a coefficient.
    variances
        The squared standard error from a standard analysis of each file; None if the interval is
        for these records and not for a population.
    level
        The confidence level.

    Examples
    --------
    >>> answer = combine_estimates([10.0, 12.0, 11.0, 9.0, 13.0])
    >>> answer.value, round(answer.standard_error, 4), answer.degrees
    (11.0, 1.7321, 4.0)
    >>> wider = combine_estimates([10.0, 12.0, 11.0, 9.0, 13.0], [4.0] * 5)
    >>> round(wider.standard_error, 4), wider.degrees > 4
    (2.6458, True)
    """
    check_level(level, "the confidence level")
    answers = _numbers(estimates, "the estimates")
    files = len(answers)
    if files < 2:
        raise InputError(
            "answers are combined from two files or more: one file does not show how much noise"
            " there is"
        )
    within = 0.0
    if variances is not None:
        squares = _numbers(variances, "the variances")
        if len(squares) != files or min(squares) < 0:
            raise InputError(
                f"give {files} variances, one for each estimate, none of them negative"
            )
        within = float(np.mean(squares))
    # Files vary by the noise of the release once more, so their variance estimates it.
    between = float(np.var(answers, ddof=1))
    # equal answers may differ by rounding
    if between <= (1e-12 * max(map(abs, answers))) ** 2:
        raise Refused(
            f"the answers from all {files} files are the same, so they do not show how much noise"
            " there is: ask the release for an interval, or use one file alone if the answer"
            " follows from exact totals"
        )
    noise = (1 + 1 / files) * between
    error = math.sqrt(within + noise)
    degrees = (files - 1) * (1 + within / noise) ** 2
    value = float(np.mean(answers))
    reach = _t_quantile(degrees, level) * error
    return CombinedEstimate(
        value, error, value - reach, value + reach, level, between, within, degrees
    )


def _t_quantile(degrees: float, level: float) -> float:
    from scipy import special

    return float(special.stdtrit(degrees, (1 + level) / 2))


def _numbers(values: ArrayLike, what: str) -> Sequence[float]:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{what} are numbers, one a file") from None
    if array.ndim != 1 or not np.isfinite(array).all():
        raise InputError(f"{what} are finite numbers, one a file")
    return [float(value) for value in array]


MOST_FILES = 1000
"""More files add no information about the noise."""

KIND = "semidp synthetic records"
"""The kind of document in the file next to records."""


def save_records(
    records: SyntheticRecords, path: Path | str, about: Mapping[str, Any], *, force: bool = False
) -> dict[str, Any]:
    """Write records to a CSV file with a description next to it; return the latter.

    The description is written first and holds the digest of the records. `force` replaces
    records that were written by this function, and no other file.
    """
    path = Path(path)
    beside = about_file(path)
    check_records(path, force=force)
    # The digest is known before the accompanying file, which is written first.
    digest = hashlib.sha256()
    for part in records.csv():
        digest.update(part)
    document = {
        "kind": KIND,
        "schema_version": 1,
        "file": path.name,
        "sha256": digest.hexdigest(),
        **about,
    }
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    replace_file(beside, text, force=force or _is_ours(beside))
    replace_file(path, records.csv(), force=force)
    return document


def check_records(path: Path, *, force: bool = False) -> None:
    """Refuse a path for records that holds something that nobody agreed to lose."""
    beside = about_file(path)
    if os.path.lexists(beside) and not _is_ours(beside):
        raise Occupied(f"{beside} already exists, and was not written with records")
    if os.path.lexists(path) and (path.is_symlink() or not path.is_file() or not _is_ours(beside)):
        raise Occupied(f"{path} already exists, and holds no records that were put together here")
    if os.path.lexists(path) and not force:
        raise Occupied(f"{path} already exists", replaceable=True)


def about_file(path: Path) -> Path:
    """Return the path of the description of records, next to theirs.

    >>> about_file(Path("people.csv")).name
    'people.about.json'
    """
    return _check_file_name(path).with_name(f"{path.stem}.about.json")


def _check_file_name(path: Path) -> Path:
    """Return a path that ends in the name of a file, or refuse it."""
    if path.name in ("", ".."):
        raise Occupied(f"{path} is not a name for a new file")
    return path


def _is_ours(beside: Path) -> bool:
    return read_document(beside).get("kind") == KIND


def numbered_files(path: Path, files: int) -> list[Path]:
    """Return the names of several files of records: one keeps its name, others are numbered.

    >>> [each.name for each in numbered_files(Path("people.csv"), 2)]
    ['people-1.csv', 'people-2.csv']
    """
    if isinstance(files, bool) or not isinstance(files, int) or not 1 <= files <= MOST_FILES:
        raise InputError(f"the number of files is 1 to {MOST_FILES:,}, not {format_value(files)}")
    if files == 1:
        return [path]
    numbers = range(1, files + 1)
    return [
        _check_file_name(path).with_name(f"{path.stem}-{number}{path.suffix}") for number in numbers
    ]
