"""Synthetic records: a row of codes each, as a data frame or as lines of a file, and what is known
of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.inference.records.record_cells import TableDistance
from semidp.inference.records.record_search import Ending
from semidp.promise.schema.margins import View
from semidp.promise.schema.schema import Schema
from semidp.publish.results.cells import csv_bytes

if TYPE_CHECKING:
    import pandas
    import polars

_AT_ONCE = 2**16  # lines that are written together


@dataclass(frozen=True, eq=False)
class SyntheticRecords:
    """Synthetic records, one a line. No line is a person: what is published are counts, and records
    are made to fit.

    Parameters
    ----------
    schema
        The features of a record.
    view
        The depth at which each feature is known; 0 where no table has it.
    places
        For each feature, the first leaf of every record's node at that depth; a byte a value up to
        256 levels.
    distances
        For each table how far its counts are from the published estimates, in standard errors.
    unlinked
        Pairs of features that no table and no exact total has together: between them records know
        nothing directly.
    ending
        Why the search for closer records ended.

    Examples
    --------
    >>> import semidp
    >>> requests = [semidp.TableRequest(["sex", "age"]), semidp.TableRequest(["age", "ill"])]
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

    @property
    def columns(self) -> tuple[str, ...]:
        """The features, a nested one with every depth that is known."""
        names: list[str] = []
        for feature, depth in zip(self.schema.features, self.view, strict=True):
            names += feature.names[:depth]
        return tuple(names)

    def __len__(self) -> int:
        """The number of records."""
        return len(self.places[0])

    def encode_columns(self) -> Iterator[tuple[str, list[str], NDArray[np.intp]]]:
        """Yield each column: its name, its labels, and for each record the number of its label."""
        for axis, (feature, depth) in enumerate(zip(self.schema.features, self.view, strict=True)):
            paths = feature.paths()
            for level, name in enumerate(feature.names[:depth]):
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
        pandas = _frames("pandas")
        columns = {
            name: pandas.Categorical.from_codes(codes, labels)
            for name, labels, codes in self.encode_columns()
        }
        return pandas.DataFrame(columns)

    def to_polars(self) -> "polars.DataFrame":
        """Return a polars data frame (needs polars)."""
        return _frames("polars").DataFrame(self.to_dict())

    def rows(self, start: int = 0, end: int | None = None) -> Iterator[tuple[str, ...]]:
        """Yield the levels of each record."""
        columns = []
        for axis, (feature, depth) in enumerate(zip(self.schema.features, self.view, strict=True)):
            if depth:
                paths = [path[:depth] for path in feature.paths()]
                columns.append([paths[leaf] for leaf in self.places[axis][start:end].tolist()])
        for parts in zip(*columns, strict=True):
            yield tuple(label for part in parts for label in part)

    def csv(self) -> Iterator[bytes]:
        """Yield the file of the records, some lines at a time."""
        yield csv_bytes(self.columns, ())
        for start in range(0, len(self), _AT_ONCE):
            first, *following = self.rows(start, start + _AT_ONCE)
            yield csv_bytes(first, following)


def _frames(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise InputError(f"{name} is not installed: install it, or use to_dict()") from None
