"""What every engine must answer, and the words in which it may fail; what tells database addresses
from files.

`Records` is the contract that DuckDB and Ibis fulfil; `Key` and `Measure` say what to group by and
what to add up. Turning the answer into a `Table` is done once, in the package itself, for all
engines alike. No text holds the password of an address.
"""

import contextlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as field_of
from operator import itemgetter
from typing import Any, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

from semidp.errors import DataError, InputError, SchemaError, SemidpError
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import no_column

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


@dataclass(frozen=True)
class Key:
    """A column to group by: its values as they are, or the number of the bin that they fall in."""

    column: str
    edges: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Measure:
    """What one row adds to its group: 1 or its count, times 1 or its quantised outcome."""

    count: str | None = None
    outcome: Outcome | None = None


@dataclass(frozen=True, eq=False)
class CodedColumn:
    """A column of few distinct values: those, and for each group the position of its own among
    them.

    >>> CodedColumn.from_values(["f", None, "f"]).codes
    array([0, 1, 0])
    """

    values: Sequence[Any] = field_of(repr=False)
    codes: NDArray[np.intp] = field_of(repr=False)

    @classmethod
    def from_values(cls, column: Sequence[Any]) -> "CodedColumn":
        """Return a column that holds a value a group."""
        code_of: dict[Any, int] = {}
        codes = [code_of.setdefault(value, len(code_of)) for value in column]
        return cls(list(code_of), np.array(codes, dtype=np.intp))


@dataclass(frozen=True, eq=False)
class CodedGroups:
    """What an engine found: each key's column, what the records of each group add up to, and the
    worst fault.
    """

    keys: tuple[CodedColumn, ...]
    totals: NDArray[np.int64] = field_of(repr=False)
    fault: int

    @classmethod
    def from_columns(cls, columns: Sequence[Sequence[Any]]) -> "CodedGroups":
        """Return groups that are given value by value: the keys, the totals, the fault of each."""
        *keys, totals, faults = columns
        return cls(
            tuple(map(CodedColumn.from_values, keys)),
            whole_totals(totals),
            max(faults, default=FINE),
        )


def whole_totals(totals: Sequence[Any]) -> NDArray[np.int64]:
    """Return totals as whole numbers of 64 bits; refuse larger ones, which an engine may give as
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


@dataclass(frozen=True, eq=False)
class Coded:
    """Records of which every key is coded by the position of its value in a list."""

    values: Sequence[Sequence[Any]] = field_of(repr=False)
    """For each key its distinct values, None for a missing one."""
    chunks: Callable[[int], Iterator[list[NDArray[np.unsignedinteger[Any]]]]] = field_of(repr=False)
    """Yields the codes of all keys, so many records at a time."""


class Records(ABC):
    """The records of one source, after its WHERE: what an engine must answer."""

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
        """Return the most records that share a value of `column`; 0 where there are none."""

    @abstractmethod
    def only(self, values: Mapping[str, Sequence[Any]]) -> "Records":
        """Return the records of which each of these columns holds one of its values, as `grouped`
        returns them.

        They are to be read before `only` is called again, and while these are open; to close them
        is not needed.
        """

    def grouped_sets(
        self, sets: Sequence[Sequence[Key]], measure: Measure, limits: Sequence[int]
    ) -> Iterator[CodedGroups]:
        """Yield what `grouped` returns for each of several sets of keys, from as few readings as
        the engine can.

        Where there are more groups than the limits allow together, at least one set has more than
        its own.
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
        """Return the groups of several sets of the keys from one reading, or None where the engine
        cannot.

        A row says first which keys are not grouped by, as a number in binary; then come keys, total
        and fault.
        """
        return None

    def encode_records(self, keys: Sequence[Key], limits: Sequence[int], most: int) -> Coded | None:
        """Return the keys' values as small numbers, or None where the engine does not bring records
        here.

        Nothing is coded where the keys have more values than `limits` allow together, or the codes
        take more than `most` bytes.
        """
        return None

    def take_snapshot(self, columns: Sequence[str] | None) -> "Records":
        """Return records of these columns (all by default) that stay as they are now: one snapshot
        for every answer.

        They are to be closed instead of the ones that they were made from; these, where they cannot
        change.
        """
        return self

    def frame(self, columns: Sequence[str]) -> Any:
        """Return some columns in memory, as a frame that DuckDB reads."""
        raise InputError("a table of counts holds no records that could be linked: give records")

    def spark_frame(self) -> Any | None:
        """Return the records as a Spark data frame; None where Spark does not hold them."""
        return None

    def close(self) -> None:  # noqa: B027 - what is in memory has nothing to close
        """Let go of the file or connection."""


def batches(sets: Sequence[Sequence[Key]]) -> Iterator[list[int]]:
    """Yield the numbers of sets that are grouped by in one query: few, and of few keys.

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
    """Return what `action` returns, or raise `failure` (built when needed) with no trace of what
    went wrong inside.

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
    """Whether a text is meant as a database address, well formed or not, and not as a file.

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
