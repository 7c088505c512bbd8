"""The interface of every engine and its error messages; records in memory; how database addresses
differ from files.

`Records` is the contract that DuckDB and Ibis fulfill; `Key` and `Measure` say what to group by and
what to add up. Turning the answer into a `Table` is done once, in the package itself, for all
engines alike. No message contains the password of an address. In memory are a `Table` as records,
data that can be read only once (streams, relations) as an Arrow table, and counts of many sets of
columns from chunks of coded records: columns with few levels are counted in bundles, whose joint
counts are summed to the sets at the end.
"""

import contextlib
import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from operator import itemgetter
from typing import Any, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

import numpy as np
from attrs import field as field_of
from attrs import frozen
from numpy.typing import NDArray

from semidp.errors import DataError, InputError, SchemaError, SemidpError
from semidp.promise.schema.features import missing_values, value_text
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Table, no_column

LARGEST_COUNT = 2**53  # a count is checked as a double, which is exact below this

SETS_AT_ONCE = 24  # sets of keys that one query groups by
KEYS_AT_ONCE = 30  # PostgreSQL tells no more of them apart

NO_FOLDERS = "only files lie in folders, so only they can have partitions: leave the partitions out"

# What a bin's key may say instead of the bin's number.
BELOW = -1
NOT_A_NUMBER = -2

# What may be wrong with what a record adds, worst last.
FINE, BAD_COUNT, MISSING_OUTCOME, BAD_OUTCOME = range(4)

Result = TypeVar("Result")


@frozen
class Key:
    """A column to group by: its values as they are, or the number of the bin that they fall in."""

    column: str
    edges: tuple[float, ...] | None = None


@frozen
class Measure:
    """The contribution of a row to its group: 1 or its count, times 1 or its quantized outcome."""

    count: str | None = None
    outcome: Outcome | None = None


@frozen(eq=False)
class CodedColumn:
    """A column of few distinct values: the values, and for each group the position of its
    own.

    >>> CodedColumn.from_values(["f", None, "f"]).codes
    array([0, 1, 0])
    """

    values: Sequence[Any] = field_of(repr=False)
    codes: NDArray[np.intp] = field_of(repr=False)

    @classmethod
    def from_values(cls, column: Sequence[Any]) -> "CodedColumn":
        """Return a column with one value per group."""
        code_of: dict[Any, int] = {}
        codes = [code_of.setdefault(value, len(code_of)) for value in column]
        return cls(list(code_of), np.array(codes, dtype=np.intp))


@frozen(eq=False)
class CodedGroups:
    """The answer of an engine: each key's column, the total of each group, and its worst
    fault.
    """

    keys: tuple[CodedColumn, ...]
    totals: NDArray[np.int64] = field_of(repr=False)
    fault: int

    @classmethod
    def from_columns(cls, columns: Sequence[Sequence[Any]]) -> "CodedGroups":
        """Return groups from lists of keys, totals and faults."""
        *keys, totals, faults = columns
        return cls(
            tuple(map(CodedColumn.from_values, keys)),
            whole_totals(totals),
            max(faults, default=FINE),
        )


def whole_totals(totals: Sequence[Any]) -> NDArray[np.int64]:
    """Return totals as 64-bit integers; refuse larger ones, which an engine may give as
    missing.

    >>> whole_totals([3, 2**70])
    Traceback (most recent call last):
    semidp.errors.DataError: the totals sum to more than 2^62, which exact arithmetic here does not
    cover
    """
    missing = np.ma.getmaskarray(totals).any() if isinstance(totals, np.ndarray) else None in totals
    with contextlib.suppress(OverflowError):
        if not missing:
            numbers = np.asarray(totals, dtype=np.int64)
            low, high = int((numbers & (2**32 - 1)).sum()), int((numbers >> 32).sum())
            if (high << 32) + low < 2**62:
                return numbers
    raise DataError("the totals sum to more than 2^62, which exact arithmetic here does not cover")


@frozen(eq=False)
class Coded:
    """Records of which every key is coded by the position of its value in a list."""

    values: Sequence[Sequence[Any]] = field_of(repr=False)
    """For each key its distinct values, None for a missing one."""
    chunks: Callable[[int], Iterator[list[NDArray[np.unsignedinteger[Any]]]]] = field_of(repr=False)
    """Yields the codes of all keys, so many records at a time."""


class Records(ABC):
    """The records of one source, after its WHERE: the interface of an engine."""

    columns: Mapping[str, bool]
    """Every column's name, and whether its values can be read as numbers."""
    untyped_columns: frozenset[str] = frozenset()
    """The columns without a type: those of CSV files and workbooks, and those that folders name."""

    @abstractmethod
    def group_records(self, keys: Sequence[Key], measure: Measure, limit: int) -> CodedGroups:
        """Return at most `limit` groups, columnwise.

        The key of a bin is its number, None for a missing value, `BELOW` or `NOT_A_NUMBER`.
        """

    @abstractmethod
    def occurrences(self, column: str) -> tuple[int, int, int]:
        """Return the numbers of records, of values of `column` that are present, and of distinct
        ones.
        """

    @abstractmethod
    def most_alike(self, column: str) -> int:
        """Return the most records that share a value of `column`; 0 if there are none."""

    @abstractmethod
    def only(self, values: Mapping[str, Sequence[Any]]) -> "Records":
        """Return the records of which each of these columns holds one of its values, as `grouped`
        returns them.

        They must be read before `only` is called again, and while these are open; they need not be
        closed.
        """

    def grouped_sets(
        self, sets: Sequence[Sequence[Key]], measure: Measure, limits: Sequence[int]
    ) -> Iterator[CodedGroups]:
        """Yield what `grouped` returns for each of several sets of keys, from as few readings as
        possible.

        If there are more groups than the limits allow together, at least one set exceeds its own
        limit.
        """
        for batch in batches(sets):
            keys = list(dict.fromkeys(key for number in batch for key in sets[number]))
            places = [list(map(keys.index, sets[number])) for number in batch]
            rows = self.read_grouping_sets(
                keys, places, measure, sum(limits[number] for number in batch)
            )
            if rows is None:
                yield from (
                    self.group_records(sets[number], measure, limits[number]) for number in batch
                )
                continue
            groups: dict[int, list[Sequence[Any]]] = {}
            for row in rows:
                groups.setdefault(int(row[0]), []).append(row)
            for positions in places:
                # A set is known by the keys that it lacks: a bit each, as GROUPING has it.
                lacking = sum(1 << place for place in range(len(keys)) if place not in positions)
                rows_of_set = groups.get(lacking, [])
                columns = (*(1 + place for place in positions), -2, -1)
                values = [list(map(itemgetter(column), rows_of_set)) for column in columns]
                yield CodedGroups.from_columns(values)

    def read_grouping_sets(
        self, keys: Sequence[Key], sets: Sequence[Sequence[int]], measure: Measure, limit: int
    ) -> Sequence[Sequence[Any]] | None:
        """Return the groups of several sets of the keys from one reading, or None if the engine
        cannot.

        A row says first which keys are not grouped by, as a number in binary; then come keys, total
        and fault.
        """
        return None

    def encode_records(self, keys: Sequence[Key], limits: Sequence[int], most: int) -> Coded | None:
        """Return the keys' values as small numbers, or None if the engine does not bring records
        here.

        Nothing is coded where the keys have more values than `limits` allow together, or the codes
        take more than `most` bytes.
        """
        return None

    def take_snapshot(self, columns: Sequence[str] | None) -> "Records":
        """Return records of these columns (all by default) that stay as they are now: one snapshot
        for every answer.

        Close them instead of the originals. If the originals cannot change, they are returned
        themselves.
        """
        return self

    def frame(self, columns: Sequence[str]) -> Any:
        """Return some columns in memory, as a frame that DuckDB reads."""
        raise InputError("a table of counts holds no records that could be linked: give records")

    def spark_frame(self) -> Any | None:
        """Return the records as a Spark data frame; None if Spark does not hold them."""
        return None

    def close(self) -> None:  # noqa: B027 - what is in memory has nothing to close
        """Close the file or connection."""


def batches(sets: Sequence[Sequence[Key]]) -> Iterator[list[int]]:
    """Yield the numbers of sets to group by in one query: few sets, with few keys.

    >>> list(batches([[Key("a"), Key("b")]] * 30))[1]
    [24, 25, 26, 27, 28, 29]
    """
    batch: list[int] = []
    keys_so_far: set[Key] = set()
    for number, keys in enumerate(sets):
        if batch and (len(batch) == SETS_AT_ONCE or len(keys_so_far | {*keys}) > KEYS_AT_ONCE):
            yield batch
            batch, keys_so_far = [], set()
        batch.append(number)
        keys_so_far |= {*keys}
    if batch:
        yield batch


def grouping_sets(names: Sequence[str], sets: Sequence[Sequence[int]]) -> tuple[str, str]:
    """Return in SQL which columns a group lacks, as a number in binary, and the different sets to
    group by.

    >>> grouping_sets(["a", "b"], [[0], [1, 0], [0, 1]])
    ('CAST(GROUPING(a) AS BIGINT) * 1 + CAST(GROUPING(b) AS BIGINT) * 2', 'GROUPING SETS ((a), (a,
    b))')
    """
    absent = " + ".join(
        f"CAST(GROUPING({name}) AS BIGINT) * {1 << place}" for place, name in enumerate(names)
    )
    different = dict.fromkeys(tuple(sorted(places)) for places in sets)
    parts = []
    for places in different:
        grouped = ", ".join(names[place] for place in places)
        parts.append(f"({grouped})")
    return absent, f"GROUPING SETS ({', '.join(parts)})"


def require(columns: Mapping[str, bool], name: str, *, number_for: str | None = None) -> None:
    """Refuse a column that is missing, or that cannot hold the numbers needed for `number_for`."""
    if name not in columns:
        raise no_column(name, columns)
    if number_for is not None and not columns[name]:
        raise SchemaError(
            f"column {name!r} does not hold numbers, which {number_for}: convert it, in a view say"
        )


def quietly(
    action: Callable[[], Result], failure: SemidpError | Callable[[], SemidpError]
) -> Result:
    """Return what `action` returns, or raise `failure` (built when needed) without any trace of
    the original error.

    The messages of engines and drivers quote data. They are dropped here, not chained: not even the
    exception's context keeps one.

    >>> from semidp.errors import DataError
    >>> quietly(lambda: int("a secret"), DataError("the data could not be read"))
    Traceback (most recent call last):
    semidp.errors.DataError: the data could not be read
    """
    # Not `raise ... from None`: that hides the cause from a printed traceback, but keeps it as the
    # error's context.
    try:
        return action()
    except (SemidpError, MemoryError):
        raise
    except Exception:
        pass
    raise failure if isinstance(failure, SemidpError) else failure()


FILE_SCHEMES = ("duckdb", "sqlite")  # their addresses are paths
_MALFORMED = "the database address is malformed: write it as postgres://user@host:5432/database"
_SECRET = re.compile(r"(passw(or)?d|passphrase|pwd|secret|token|(private|access)_key)\s*=", re.I)
_KEYS = re.compile(r"\b(host|server|user|uid|dbname|database)\s*=", re.I)
# A scheme, or a user where the scheme was forgotten; one letter is a drive of Windows.
_BEFORE = re.compile(r"(?<![\w+.%-])[\w+.%-]{2,}:(?=//|\S*@|/[^/\s:]*:\S)")
_HIDDEN = "***"


def is_address(data: str) -> bool:
    """Whether a text is meant as a database address, well formed or not, rather than a file.

    >>> [is_address(data) for data in ("postgres://me@host/db", "postgres:/me:x@host/db", "p.csv")]
    [True, True, False]
    """
    return "://" in data or (mask_passwords(data) != data and not os.path.lexists(data))


def address_parts(address: str) -> SplitResult:
    """Return the parts of a database address; refuse one that may hold a password."""
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        raise InputError(_MALFORMED) from None
    if ":" in unquote(parts.netloc.rpartition("@")[0]) or _SECRET.search(unquote(address)):
        raise InputError(
            "the database address holds a password: leave it out, and set SEMIDP_PASSWORD instead"
        )
    # A slash, a ? or a # in a password ends the part of the address in which passwords are found.
    cut_short = "@" in parts.path + parts.query + parts.fragment
    if "://" not in address or (cut_short and parts.scheme not in FILE_SCHEMES):
        raise InputError(_MALFORMED)
    return parts


def mask_passwords(text: str) -> str:
    """Return a text without the rest of an address that `address_parts` refuses, or of keys such as
    ``host=h password=x``.

    >>> mask_passwords("semidp release postgres://me:x@host/db")
    'semidp release postgres:***'
    >>> mask_passwords("cannot open postgres://me@host:5432/db")
    'cannot open postgres://me@host:5432/db'
    """
    before = _BEFORE.search(text)
    if before is not None:
        try:
            address_parts(text[before.start() :])
        except InputError:
            return text[: before.end()] + _HIDDEN
    secret = _SECRET.search(text) if _KEYS.search(text) else None
    return text if secret is None else text[: secret.end()] + _HIDDEN


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

    Otherwise NumPy or DuckDB chooses a type for all values, and 1.0 is written differently next to
    "x".

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
    if isinstance(column, np.ma.MaskedArray):  # NumPy would show what is hidden
        shown = column.data.astype(object)
        shown[np.ma.getmaskarray(column)] = None
        column = shown
    kind = getattr(getattr(column, "dtype", None), "kind", "O")
    if kind != "O" or np.ndim(column) != 1:
        return np.asarray(column), False
    values = np.empty(len(column), dtype=object)
    values[:] = column
    kinds = {type(value) for value in values[~missing_values(values)]}
    if len(kinds) > 1 and kinds <= {int, float, np.int64, np.float64}:
        with contextlib.suppress(OverflowError):
            return values.astype(float), False
    if len(kinds) > 1 or kinds == {Decimal}:
        values[:] = [value_text(value) for value in values]
        return values, True
    return np.asarray(column), False


def materialize(data: Any) -> Any:
    """Return data that can be read repeatedly: streams, lazy frames and DuckDB relations are read
    once, here.

    Anything that exports the Arrow C stream interface is accepted; data frames and Arrow
    tables are returned unchanged.
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
    """The counts of sets of columns, accumulated chunk by chunk.

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
        """Count some records, given as columns of level codes."""
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
        """Return the counts of each set, one axis per column in its order."""
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
    """Return the flat positions of rows of codes, reusing an array if there is one.

    >>> ravel_codes([np.array([1, 0]), np.array([2, 1])], [2, 3])
    array([5, 1])
    """
    flat = codes[0]
    for code, size in zip(codes[1:], sizes[1:], strict=True):
        flat = np.multiply(flat, size, out=out)
        flat += code
    return flat
