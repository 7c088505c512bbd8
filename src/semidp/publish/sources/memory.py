"""What is in memory: a `Table` as records, what can be read only once (streams, relations) as an
Arrow table, and counts of many sets of columns at once from chunks of coded records.

Columns with few levels are counted in bundles, whose joint counts are summed down to the sets at
the end: no database, only arithmetic.
"""

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.schema.features import missing_values, value_text
from semidp.promise.schema.schema import Table
from semidp.publish.sources.contract import CodedGroups, Key, Measure, Records, quietly

_FRAMES = ("pandas", "polars")


class TableRecords(Records):
    """The records that a `Table` counts.

    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> table = Table(Schema([Feature("sex", "fm"), Feature("region", "ns")]), [[1, 0], [2, 3]])
    >>> TableRecords(table).group_records([Key("sex")], Measure(), 10).totals
    array([1, 5])
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self.columns: Mapping[str, bool] = dict.fromkeys(table.schema.names, False)

    def group_records(self, keys: Sequence[Key], measure: Measure, limit: int) -> CodedGroups:
        """Group by `keys`; see the contract. A table has no column of counts and no outcome."""
        part = self._table.margin([key.column for key in keys])
        cells = np.nonzero(part.counts)
        columns: dict[str, list[str]] = {}
        for feature, leaves in zip(part.schema.features, cells, strict=True):
            paths = feature.paths()
            for place, name in enumerate(feature.names):
                columns[name] = [paths[leaf][place] for leaf in leaves[:limit].tolist()]
        totals = part.counts[cells][:limit].tolist()
        return CodedGroups.from_columns(
            [*(columns[key.column] for key in keys), totals, [0] * len(totals)]
        )

    def occurrences(self, column: str) -> tuple[int, int, int]:
        """Count records, present values and distinct values; see the contract."""
        counts = self._table.margin([column]).counts
        return self._table.n, self._table.n, int((counts > 0).sum())

    def most_alike(self, column: str) -> int:
        """Return the largest count of a level; see the contract."""
        return int(self._table.margin([column]).counts.max(initial=0))

    def only(self, values: Mapping[str, Sequence[Any]]) -> "TableRecords":
        """Return the records with some levels alone; see the contract."""
        schema = self._table.schema
        counts = self._table.counts.copy()
        for name, kept_labels in values.items():
            axis, below = schema.axis(name), schema.feature(name).leaves_below(name)
            kept = {leaf for label in kept_labels for leaf in below.get(label, ())}
            gone = [leaf for leaf in range(schema.shape[axis]) if leaf not in kept]
            counts[(slice(None),) * axis + (gone,)] = 0
        return TableRecords(Table(schema, counts))


def without_mixtures(data: Any) -> tuple[Any, list[str]]:
    """Return a mapping of columns, or a pandas frame, with columns of values of several types as
    text, value by value; and their names.

    Else NumPy or DuckDB chooses a type for all values, and 1.0 is written otherwise beside "x".

    >>> without_mixtures({"x": [1.0, "x", None], "y": [1, 2]})
    ({'x': array(['1', 'x', None], dtype=object), 'y': array([1, 2])}, ['x'])
    """
    is_frame = not isinstance(data, Mapping)
    columns = dict(data.items())
    if is_frame:
        columns = {
            name: column
            for name, column in columns.items()
            if isinstance(name, str) and column.dtype == np.dtype(object)
        }
    read = {name: _of_one_type(column) for name, column in columns.items()}
    mixed = [name for name, (_, is_mixed) in read.items() if is_mixed]
    uniform = {name: values for name, (values, _) in read.items()}
    return data.assign(**uniform) if is_frame else uniform, mixed


def _of_one_type(column: Any) -> tuple[NDArray[Any], bool]:
    """Return a column, as text where its values are of several types, and whether they are.

    Decimals become text too: DuckDB cuts them to the digits of a sample.
    """
    if getattr(column, "dtype", np.dtype(object)).kind != "O" or np.ndim(column) != 1:
        return np.asarray(column), False
    values = np.empty(len(column), dtype=object)
    values[:] = column
    kinds = {type(value) for value in values[~missing_values(values)]}
    if len(kinds) > 1 and kinds <= {int, float, np.int64, np.float64}:
        return values.astype(float), False
    if len(kinds) > 1 or kinds == {Decimal}:
        values[:] = [value_text(value) for value in values]
        return values, True
    return np.asarray(column), False


def materialize(data: Any) -> Any:
    """Return data that can be read again and again: streams, lazy frames and DuckDB relations are
    read once, here.

    Whatever exports the Arrow C stream interface is taken; data frames and Arrow tables are
    returned as they are.
    """
    root = type(data).__module__.partition(".")[0]
    if root == "polars" and hasattr(data, "collect"):
        return quietly(
            data.collect, InputError("the lazy frame could not be computed: collect it first")
        )
    if root in _FRAMES or hasattr(data, "num_rows") or not hasattr(data, "__arrow_c_stream__"):
        return data
    unreadable = InputError(
        f"a {type(data).__name__} could not be read: give a path, a data frame (pandas, polars,"
        " Arrow) or an Ibis table"
    )
    try:
        import pyarrow
    except ImportError:
        raise InputError(
            f"a {type(data).__name__} is read through Arrow: install pyarrow"
        ) from None
    return quietly(lambda: pyarrow.table(data), unreadable)


_BUNDLE = 2**7  # cells of a bundle of columns
_JOINT = 2**15  # cells that are counted together: what a processor's cache holds
_ROWS = 2**16  # records whose codes are at hand at once

Codes = NDArray[np.intp]


class Tabulation:
    """The counts of sets of columns, a number of records after another.

    >>> counts = Tabulation((2, 3), [(0, 1), (1,)])
    >>> counts.add([np.array([0, 1, 1]), np.array([2, 2, 0])])
    >>> [table.tolist() for table in counts.tables()]
    [[[0, 0, 1], [1, 0, 1]], [1, 0, 2]]
    """

    def __init__(self, sizes: Sequence[int], sets: Sequence[tuple[int, ...]]) -> None:
        self.sizes, self.sets = tuple(sizes), list(sets)
        self._bundles = _bundle_columns(self.sizes, self.sets)
        home = {column: number for number, bundle in enumerate(self._bundles) for column in bundle}
        # for each set the columns that are counted together for it
        self._joint: list[tuple[int, ...]] = []
        # those that are made of whole bundles
        self._whole: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for columns in self.sets:
            bundles = sorted({home[column] for column in columns})
            together = tuple(column for number in bundles for column in self._bundles[number])
            if self._cells(together) <= _JOINT:
                self._joint.append(together)
                self._whole[together] = [self._bundles[number] for number in bundles]
            else:
                self._joint.append(columns)
        self._counts = {
            joint: np.zeros(self._cells(joint), dtype=np.int64) for joint in self._joint
        }

    def add(self, columns: Sequence[Codes]) -> None:
        """Count some records, of which each column gives the code of the level."""
        for start in range(0, len(columns[0]) if columns else 0, _ROWS):
            part = [column[start : start + _ROWS] for column in columns]
            codes = {}
            for bundle in self._bundles:
                codes[bundle] = self._code([part[column] for column in bundle], bundle)
            # new arrays of this size cost more than the sums
            scratch = np.empty(len(part[0]), dtype=np.intp)
            for joint, counts in self._counts.items():
                if joint in self._whole:
                    bundles = self._whole[joint]
                    sizes = [self._cells(bundle) for bundle in bundles]
                    index = ravel_codes([codes[bundle] for bundle in bundles], sizes, scratch)
                    counts += np.bincount(index, minlength=counts.size)
                else:
                    cells, occurrences = np.unique(
                        self._code([part[c] for c in joint], joint), return_counts=True
                    )
                    counts[cells] += occurrences

    def tables(self) -> list[NDArray[np.int64]]:
        """Return the counts of each set, an axis a column in its order."""
        tables = []
        for columns, joint in zip(self.sets, self._joint, strict=True):
            counts = self._counts[joint].reshape([self.sizes[column] for column in joint])
            left = [column for column in joint if column in columns]
            summed = counts.sum(
                axis=tuple(place for place, column in enumerate(joint) if column not in columns)
            )
            tables.append(
                np.ascontiguousarray(summed.transpose([left.index(column) for column in columns]))
            )
        return tables

    def _cells(self, columns: Sequence[int]) -> int:
        return math.prod(self.sizes[column] for column in columns)

    def _code(self, codes: Sequence[Codes], columns: Sequence[int]) -> Codes:
        return ravel_codes(codes, [self.sizes[column] for column in columns])


def _bundle_columns(sizes: Sequence[int], sets: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Put columns together as they occur, as long as their joint counts stay few."""
    bundles: list[tuple[int, ...]] = []
    room = 0
    for column in dict.fromkeys(column for columns in sets for column in columns):
        if bundles and sizes[column] <= room:
            bundles[-1] = (*bundles[-1], column)
            room //= sizes[column]
        else:
            bundles.append((column,))
            room = _BUNDLE // sizes[column]
    return bundles


def ravel_codes(codes: Sequence[Codes], sizes: Sequence[int], out: Codes | None = None) -> Codes:
    """Return the flat positions of rows of codes, in an array that is at hand where there is one.

    >>> ravel_codes([np.array([1, 0]), np.array([2, 1])], [2, 3])
    array([5, 1])
    """
    flat = codes[0]
    for code, size in zip(codes[1:], sizes[1:], strict=True):
        flat = np.multiply(flat, size, out=out)
        flat += code
    return flat
