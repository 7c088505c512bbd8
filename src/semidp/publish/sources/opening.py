"""Opening files, data frames and databases, and tables of counts from them.

DuckDB reads CSV, Parquet and data frames; Ibis reads its own tables and database addresses. Both
implement one contract (`contract.py`); declared levels, bins, nulls and errors are handled once,
here.
"""

import glob
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Self
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from semidp.errors import DataError, InputError
from semidp.promise.schema.features import (
    TRUTH,
    Feature,
    advise_numbers,
    missing_value,
    value_text,
)
from semidp.promise.schema.outcome import ALL_LEVEL, ALL_RECORDS, Outcome
from semidp.promise.schema.schema import Schema, Table, refuse_cells
from semidp.publish.sources.contract import (
    BAD_COUNT,
    BAD_OUTCOME,
    LARGEST_COUNT,
    MISSING_OUTCOME,
    NO_FOLDERS,
    NOT_A_NUMBER,
    Coded,
    CodedColumn,
    CodedGroups,
    Codes,
    Key,
    Measure,
    Records,
    TableRecords,
    Tabulation,
    is_address,
    materialize,
    require,
    without_mixtures,
)
from semidp.publish.sources.data_files import (
    is_windows,
    is_workbook,
    sheet_columns,
    windows_columns,
)
from semidp.publish.sources.readings import (
    EVERYONE,
    ColumnReading,
    check_readings,
    declared_kinds,
)

KEEPS_NOTHING = (
    "the WHERE keeps no record: check its condition, and how the values in it are written"
)
MAX_LEVELS = 10_000  # a column with more distinct values is hardly a feature
_MOST_CODED = 2**30  # bytes of codes that are held at once; beyond, a database's way is taken
_LARGE = 10**6  # cells of a table that is counted from coded records
_MOST_LISTED = 10**4  # levels of a feature that a query lists to code them
_ROWS_AT_ONCE = 2**18
_LARGEST = 2**62
MAX_GROUPS = 2**31 - 1  # the largest LIMIT that every engine takes
MISSING = "present"
"""The value of `DataError.needs` if an outcome has missing values."""
_SERVERS = ("postgres", "postgresql", "spark")  # their addresses name no file


def open_source(
    data: Any,
    *,
    table: str | None = None,
    count: str | None = None,
    where: str | None = None,
    id: str | None = None,
    most: int | None = None,
    hive_partitions: bool = False,
    allow_empty: bool = False,
    read_as: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    encoding: str | None = None,
    header_rows: int | None = None,
    na: str | Sequence[str] = (),
) -> "Source":
    """Open a source of records.

    Parameters
    ----------
    data
        The path of a CSV or Parquet file, a glob of them, or a folder of Parquet files (a file that
        exists is that file, whatever its name holds); a workbook (.xlsx, needs openpyxl); a data
        frame (pandas, polars, Arrow), a DuckDB relation or anything else with the Arrow C stream
        interface, which is read into memory once, or a mapping of names to columns; a `Table`; an
        Ibis table; or a database address such as ``postgres://user@host/database`` (the password
        comes from the environment, SEMIDP_PASSWORD or what the driver reads, and never from the
        address), ``spark://host:7077``, or ``spark://local`` for Spark in this process. Every value
        of a CSV file and of a workbook is text, and an empty one is missing.
    table
        The table to read at a database address, or the sheet of a workbook; on Spark also the path
        of Parquet files.
    count
        The column of counts, if each row stands for several records.
    where
        A condition that keeps some of the records: comparisons, AND, OR, NOT, IN, BETWEEN, LIKE and
        IS NULL. It means the same in every engine and depends on the record alone. A column that is
        compared with a number is read as numbers, and one that is compared with text as text;
        arithmetic and functions need a declared type (`read_as`).
    id
        The column that names the person. Every person may have one record, and no record may lack
        a person; this is checked on opening.
    most
        How many records a person may have, if more than one. Data in which somebody has more are
        refused, and the number of persons (`Source.persons`) becomes public.
    hive_partitions
        Read folders such as ``sex=f/`` as values of a column that the files lack.
    allow_empty
        Accept files without any record, which are refused otherwise: they are often the trace of a
        failed copy.
    read_as
        How the values of columns are written: dates by ``"day"``, ``"month"``, ``"quarter"`` or
        ``"year"``; numbers as ``"1.234,5"``, ``"1,234.5"``, ``"1 234,5"``, ``"1'234.5"`` or
        ``"1234,5"``. Only for files and data frames. ``"integer"``, ``"decimal"`` or ``"text"``
        declares the type of a column in conditions.
    encoding
        The encoding of CSV files: ``"utf-8"`` (default), ``"latin-1"`` or ``"utf-16"``.
    header_rows
        How many rows of a sheet name its columns (default: 1). Names below a merged heading start
        with it.
    na
        Codes that stand for a missing value in every column, such as ``["NA", "-9"]``.

    Examples
    --------
    >>> from importlib.resources import files
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> with open_source(files("semidp") / "data" / "ucb_admissions.csv", count="count") as source:
    ...     genders = source.levels("gender")
    ...     table = source.counts(Schema([Feature("gender", genders)]))
    >>> genders, table.counts
    (('Female', 'Male'), array([1835, 2691]))
    """
    if count is not None and id is not None:
        raise InputError(
            "a row with a count stands for several people, so count and id cannot both be given"
        )
    if most is not None and id is None:
        raise InputError(
            "the most records of a person needs the id column that says whose a record is"
        )
    readings = check_readings(read_as) if read_as else ()
    codes = _read_codes(na)
    records = _records(
        data, table, where, hive_partitions, allow_empty, readings, encoding, header_rows, codes
    )
    source = Source(records, count, where, id, most, readings)
    source.allow_empty = allow_empty
    if isinstance(data, (str, os.PathLike)):
        # Without the id: it is checked once here, and not again by every worker.
        source.again = partial(
            open_source,
            os.fspath(data),
            table=table,
            count=count,
            where=where,
            hive_partitions=hive_partitions,
            allow_empty=allow_empty,
            read_as=readings,
            encoding=encoding,
            header_rows=header_rows,
            na=codes,
        )
    try:
        source._check()
    # an interrupt too: nobody else knows of the connection yet
    except BaseException:
        source.close()
        raise
    return source


def one_thread() -> None:
    """Make every source that this process opens from now on use one thread, for processes that
    share a machine.
    """
    from semidp.publish.sources import duck

    duck.SETTINGS["threads"] = "1"


def local_paths(data: str, table: str | None = None) -> list[str]:
    """Return the local files and folders that `open_source` would read, whether or not they hold
    data.

    The file of a database may be read from an address in more than one way; all that exist are
    returned.

    >>> local_paths("postgres://user@host/release", "people")
    []
    """
    names = [data]
    if "://" in data:
        scheme, _, place = data.partition("://")
        place = unquote(place.partition("?")[0])
        names = [] if scheme in _SERVERS else [place, place.lstrip("/")]
        # Spark reads Parquet files by their path
        names += [table] if table is not None and "/" in table else []
    matches: list[str] = []
    for name in names:
        matches += [name, *glob.glob(name, recursive=True)]
    distinct = dict.fromkeys(filter(None, matches))
    return [name for name in distinct if os.path.lexists(name)]


class Source:
    """An open source of records: its columns, levels, grouped counts and sums. Use it in a ``with``
    block.

    `count`, `where`, `id` and `most` were given on opening and are already applied to its
    records.

    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> with open_source({"sex": ["f", "m", "m"]}) as source:
    ...     source.columns(), source.counts(Schema([Feature("sex", ["f", "m"])])).counts
    (('sex',), array([1, 2]))
    """

    def __init__(
        self,
        records: Records,
        count: str | None = None,
        where: str | None = None,
        id: str | None = None,
        most: int | None = None,
        read_as: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self._records = records
        self.count = count
        self.where = where
        self.id = id
        self.most = most
        self.read_as = read_as
        self.persons: int | None = None
        """The number of persons, if each may have several records. It is then public."""
        self.allow_empty = False
        self.again: Callable[[], Source] | None = None
        """Opens the same records in another process, without checking ids again.

        None where no address names the records.
        """

    @property
    def untyped_columns(self) -> frozenset[str]:
        """The columns without a type, as those of a CSV file."""
        return self._records.untyped_columns

    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns, in order."""
        return tuple(self._records.columns)

    def levels(self, name: str) -> tuple[str, ...]:
        """Return the levels that occur, numbers in numeric order and before text.

        Truth values, in any case, are the pair false and true, even if only one
        occurs.

        Levels are data: use them only for a feature that an invariant publishes, or state
        the disclosure.
        """
        require(self._records.columns, name)
        # Two beyond the limit: one for missing values, and one that shows that there are too many.
        (column,) = self._records.group_records([Key(name)], Measure(), MAX_LEVELS + 2).keys
        levels = {text for text in map(value_text, column.values) if text is not None}
        if len(levels) > MAX_LEVELS:
            raise DataError(
                f"column {name!r} has more than {MAX_LEVELS:,} distinct values: give it bins, or"
                " declare its levels"
            )
        if not levels:
            raise self._no_levels(name)
        if {level.lower() for level in levels} <= set(TRUTH):
            return TRUTH
        return tuple(sorted(levels, key=_numbers_first))

    def paths(self, names: Sequence[str], null_level: str | None = None) -> list[tuple[str, ...]]:
        """Return the levels that occur at nested depths, coarse to fine, in order; as many as there
        are.

        They are data, like levels, and so are their positions.

        >>> with open_source({"state": ["b", "a", "b"], "county": ["10", "7", "9"]}) as source:
        ...     source.paths(["state", "county"])
        [('a', '7'), ('b', '9'), ('b', '10')]
        """
        for name in names:
            require(self._records.columns, name)
        keys = [Key(name) for name in names]
        groups = self._records.group_records(keys, Measure(), MAX_GROUPS)
        texts = []
        for column in groups.keys:
            level_texts = [value_text(value) or null_level for value in column.values]
            texts.append([level_texts[code] for code in column.codes.tolist()])
        rows = {row for row in zip(*texts, strict=True) if None not in row}
        any_missing = any(None in column for column in texts)
        if len(rows) < len(texts[0]) and any_missing:
            raise missing_value(names[-1])
        if not rows:
            raise self._no_levels(names[-1])
        return sorted(rows, key=lambda row: tuple(map(_numbers_first, row)))

    def _no_levels(self, name: str) -> DataError:
        if self.where is not None:
            records, _, _ = self._records.occurrences(name)
            if records == 0:
                return DataError(KEEPS_NOTHING)
        return DataError(f"column {name!r} holds no value, so it has no levels: declare them")

    def counts(self, schema: Schema) -> Table:
        """Count the records of each cell of `schema`; other columns are ignored.

        Missing values (unless the feature has a null level), values that are not a declared level,
        counts that are not whole, and counts in impossible cells raise `DataError`, which names the
        feature and never a value.
        """
        if _is_large(schema):
            return self.tables([schema])[0]
        return Table(schema, self._totals(schema, None))

    def tables(self, schemas: Sequence[Schema]) -> list[Table]:
        """Count the records over several sets of features, as `counts` does for each, from as few
        readings as possible.

        Local records are coded once and counted here in chunks; a database groups by many sets in
        one query.

        >>> from semidp.promise.schema.features import Feature
        >>> from semidp.promise.schema.schema import Schema
        >>> sex, age = Feature("sex", "fm"), Feature("age", "yo")
        >>> with open_source({"sex": ["f", "m", "m"], "age": ["y", "o", "o"]}) as source:
        ...     [
        ...         table.counts.tolist()
        ...         for table in source.tables([Schema([sex]), Schema([sex, age])])
        ...     ]
        [[1, 2], [[1, 0], [0, 2]]]
        """
        for schema in schemas:
            refuse_cells(schema.shape)
        one_record_a_row = self.count is None
        counts_of_schemas = None
        # Groups of many cells take more room here than the codes of their records.
        if one_record_a_row and (len(schemas) > 1 or any(map(_is_large, schemas))):
            counts_of_schemas = self._count_coded(schemas)
        if counts_of_schemas is None:
            keys = [self._keys(schema.features) for schema in schemas]
            limits = [_limit(schema) for schema in schemas]
            answers = self._records.grouped_sets(keys, Measure(self.count), limits)
            counts_of_schemas = []
            for schema, schema_keys, groups in zip(schemas, keys, answers, strict=True):
                counts_of_schemas.append(self._cells(schema, schema_keys, groups, None))
        pairs = zip(schemas, counts_of_schemas, strict=True)
        return [Table(schema, counts) for schema, counts in pairs]

    def _count_coded(self, schemas: Sequence[Schema]) -> list[NDArray[np.int64]] | None:
        """Count coded records in chunks; None if the engine does not bring them here."""
        of_schemas: dict[Feature, None] = {}
        for schema in schemas:
            of_schemas |= dict.fromkeys(schema.features)
        features = list(of_schemas)
        keys = {feature: self._keys([feature]) for feature in features}
        most: dict[Key, int] = {}
        for feature in features:
            most |= dict.fromkeys(keys[feature], _most_values(feature))
        coded = self._records.encode_records(list(most), list(most.values()), _MOST_CODED)
        if coded is None:
            return None
        where = {key: number for number, key in enumerate(most)}
        levels = []
        for feature in features:
            columns = {key.column: where[key] for key in keys[feature]}
            levels.append(_Levels(feature, columns, coded))
        place = {feature: number for number, feature in enumerate(features)}
        sizes = [len(feature.levels) for feature in features]
        sets = [tuple(map(place.__getitem__, schema.features)) for schema in schemas]
        counts = Tabulation(sizes, sets)
        for chunk in coded.chunks(_ROWS_AT_ONCE):
            counts.add([part.encode_chunk(chunk) for part in levels])
        return counts.tables()

    def sums(self, schema: Schema, outcome: Outcome) -> NDArray[np.int64]:
        """Sum the quantized `outcome` over the records of each cell, in steps of its grid.

        >>> from semidp.promise.schema.features import Feature
        >>> from semidp.promise.schema.schema import Schema
        >>> records = {"ward": np.array(["a", "a", "b"]), "score": np.array([50.0, 120.0, 7.4])}
        >>> with open_source(records) as source:
        ...     source.sums(
        ...         Schema([Feature("ward", ["a", "b"])]), Outcome("score", 0, 100, steps=100)
        ...     )
        array([150,   7])
        """
        require(self._records.columns, outcome.column, number_for="an outcome must")
        return self._totals(schema, outcome)

    def hold(self, names: Sequence[str] | None = None) -> None:
        """Read these columns (all by default) from one snapshot from now on.

        Counts and sums of one release must be about the same records. Files are checked for
        changes, PostgreSQL at an address keeps one transaction open; for others the columns are
        copied to a temporary table.

        >>> with open_source({"sex": ["f", "m"]}) as source:
        ...     source.hold(["sex"])
        """
        for name in names or ():
            require(self._records.columns, name)
        held = self._records.take_snapshot(names)
        if held is not self._records:
            self._records = held
            # The copy may hold other records than those that were checked before.
            self._check()

    def branches(self, feature: Feature, depth: int) -> dict[int, dict[str, list[Any]]]:
        """For each node at a depth of a nested feature that holds records, return the values of
        columns that select it.

        >>> places = Feature.from_paths(["state", "county"], [("a", "x"), ("a", "y"), ("b", "z")])
        >>> with open_source({"state": ["a", "b", "a"], "county": ["x", "z", "y"]}) as source:
        ...     found = source.branches(places.cut_to_depth(1), 1)
        ...     found[1], source.only(found[0]).counts(Schema([places])).counts
        ({'state': ['b']}, array([1, 1, 0]))
        """
        keys = self._keys([feature])
        groups = self._records.group_records(keys, Measure(), MAX_GROUPS)
        read = {key.column: column for key, column in zip(keys, groups.keys, strict=True)}
        leaves = _codes(feature, read)
        starts = feature.chain.starts[depth - 1]
        nodes = (np.searchsorted(starts, leaves, side="right") - 1).tolist()
        values_by_node: dict[int, dict[str, dict[Any, None]]] = {}
        for name, column in read.items():
            for node, code in zip(nodes, column.codes.tolist(), strict=True):
                values_by_column = values_by_node.setdefault(node, {})
                # the keys of a dictionary: each value once, in the order of the groups
                values_by_column.setdefault(name, {})[column.values[code]] = None
        branches = {}
        for node, values_by_column in values_by_node.items():
            branches[node] = {name: list(values) for name, values in values_by_column.items()}
        return branches

    def only(self, values: Mapping[str, Sequence[Any]]) -> "Source":
        """Return the records of one branch (see `branches`), to be read before the next is asked
        for.
        """
        kept = self._records.only(values)
        return Source(kept, self.count, self.where, self.id, self.most, self.read_as)

    def frame(self, names: Sequence[str]) -> Any:
        """Return some columns in memory, to be joined with those of another source."""
        for name in names:
            require(self._records.columns, name)
        return self._records.frame(names)

    def spark_frame(self) -> Any | None:
        """Return the records as a Spark data frame; None if Spark does not hold them."""
        return self._records.spark_frame()

    def close(self) -> None:
        """Close the file or connection, unless it was opened elsewhere."""
        self._records.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Source(columns: {', '.join(self.columns())})"

    def _check(self) -> None:
        id = self.id
        if self.count is not None:
            require(self._records.columns, self.count, number_for="a count column must")
        if id is not None:
            require(self._records.columns, id)
            records, present, distinct = self._records.occurrences(id)
            if present < records:
                raise DataError(
                    f"the id column {id!r} has missing values: every record needs the id of its"
                    " person"
                )
            if self.most is not None:
                self._check_most(id, self.most)
                self.persons = distinct
            elif distinct < present:
                raise DataError(
                    f"the id column {id!r} names someone twice, and the guarantee covers one record"
                    " per person: keep or combine one record of each, or say with ⟨most⟩ how many"
                    " records a person may have"
                )

    def _check_most(self, id: str, most: int) -> None:
        """Refuse data in which a person has more records than were declared; how many do is
        confidential.
        """
        if self._records.most_alike(id) > most:
            times, records = (
                ("once", "one record") if most == 1 else (f"{most} times", f"{most} records")
            )
            raise DataError(
                f"the id column {id!r} names someone more than {times}, and the guarantee covers up"
                f" to {records} per person: give a larger ⟨most⟩ (nobody is dropped)"
            )

    def _totals(self, schema: Schema, outcome: Outcome | None) -> NDArray[np.int64]:
        refuse_cells(schema.shape)
        keys = self._keys(schema.features)
        measure = Measure(self.count, outcome)
        groups = self._records.group_records(keys, measure, _limit(schema))
        return self._cells(schema, keys, groups, outcome)

    def _keys(self, features: Sequence[Feature]) -> list[Key]:
        columns = self._records.columns
        keys: list[Key] = []
        for feature in features:
            needs = None if feature.bins is None else "bins need"
            require(columns, feature.name, number_for=needs)
            # coarser depths tell apart leaves that are named alike, where the data have them
            coarser = feature.names[:-1]
            keys += [Key(name) for name in coarser if name in columns]
            keys.append(Key(feature.name, None if feature.bins is None else feature.edges))
        return keys

    def _cells(
        self, schema: Schema, keys: Sequence[Key], groups: CodedGroups, outcome: Outcome | None
    ) -> NDArray[np.int64]:
        """Put groups into the cells of a schema; refuse what does not fit."""
        read = {key.column: column for key, column in zip(keys, groups.keys, strict=True)}
        codes = tuple(_codes(feature, read) for feature in schema.features)
        _refuse(groups.fault, self.count, outcome)
        cells = np.zeros(schema.size, dtype=np.int64)
        np.add.at(cells, np.ravel_multi_index(codes, schema.shape), groups.totals)
        return cells.reshape(schema.shape)


class _Levels:
    """The level of each record along one feature, from the codes of its columns."""

    def __init__(self, feature: Feature, columns: Mapping[str, int], coded: Coded) -> None:
        self.feature = feature
        self.columns = columns
        self.values = coded.values
        every: dict[str, CodedColumn] = {}
        for name, place in columns.items():
            values = coded.values[place]
            every[name] = CodedColumn(values, np.arange(len(values)))
        self._level = _codes(feature, every) if len(columns) == 1 else None
        self._leaves: dict[tuple[int, ...], int] = {}

    def encode_chunk(self, chunk: Sequence[NDArray[Any]]) -> Codes:
        """Return the levels of a chunk of records; paths of nested features are looked up as they
        occur.
        """
        if self._level is not None:
            (only_place,) = self.columns.values()
            return np.asarray(self._level[chunk[only_place]])
        columns: dict[str, CodedColumn] = {}
        for name, place in self.columns.items():
            columns[name] = CodedColumn(self.values[place], chunk[place])
        first, where = _distinct(list(columns.values()))
        steps = [column.codes[first].tolist() for column in columns.values()]
        paths = list(zip(*steps, strict=True))
        new = [number for number, path in enumerate(paths) if path not in self._leaves]
        if new:
            new_columns: dict[str, CodedColumn] = {}
            for name, column in columns.items():
                new_columns[name] = CodedColumn(column.values, column.codes[first[new]])
            new_paths = [paths[number] for number in new]
            new_leaves = _codes(self.feature, new_columns).tolist()
            self._leaves |= dict(zip(new_paths, new_leaves, strict=True))
        leaves = np.array([self._leaves[path] for path in paths], dtype=np.intp)
        return leaves[where]


def _is_large(schema: Schema) -> bool:
    """Whether a table is better counted from coded records than from groups."""
    levels = max(len(feature.levels) for feature in schema.features)
    return schema.size >= _LARGE and levels <= _MOST_LISTED


def _limit(schema: Schema) -> int:
    """More groups than this can only come from undeclared values, one of which is then among those
    fetched.
    """
    return min(math.prod(map(_most_values, schema.features)) + 1, MAX_GROUPS)


def _most_values(feature: Feature) -> int:
    """How many values can stand for declared levels: missing in three ways, and truth in any
    capitals.
    """
    capitals = 0
    if not set(TRUTH).isdisjoint(feature.levels):
        capitals = sum(2 ** len(word) for word in TRUTH)
    return len(feature.levels) + 3 + capitals


def _read_codes(na: str | Sequence[str]) -> tuple[str, ...]:
    """Return the codes of missing values.

    >>> _read_codes("NA, -9"), _read_codes(["NA", "."])
    (('NA', '-9'), ('NA', '.'))
    """
    codes = []
    for text in na if isinstance(na, Iterable) and not isinstance(na, str) else (na,):
        codes += [code.strip() for code in str(text).split(",")]
    if not all(codes):
        raise InputError("⟨na⟩ lists codes such as NA,-9; an empty value is missing anyway")
    return tuple(codes)


def _records(
    data: Any,
    table: str | None,
    where: str | None,
    hive_partitions: bool,
    allow_empty: bool,
    read_as: Sequence[tuple[str, str]],
    encoding: str | None,
    header_rows: int | None,
    na: Sequence[str],
) -> Records:
    kind = type(data).__module__.partition(".")[0]
    address = isinstance(data, str) and is_address(data)
    named = isinstance(data, (str, os.PathLike))
    is_file = named and not address
    sheets = is_file and is_workbook(os.fspath(data))
    in_database = address or kind in ("ibis", "pyspark")
    if table is not None and not address and not sheets:
        raise InputError(
            f"the table {table!r} can be chosen only at a database address such as"
            " postgres://user@host/db, or in a workbook"
        )
    if hive_partitions and not named:
        raise InputError(NO_FOLDERS)
    readings = [reading for pair in read_as if not (reading := ColumnReading(*pair)).keeps_values]
    declared = declared_kinds(read_as) if read_as else {}
    if where is None and len(readings) < len(read_as):
        (unused, how), *_ = [pair for pair in read_as if ColumnReading(*pair).keeps_values]
        raise InputError(
            f"{unused!r} is declared as {how}, which only a condition asks for: leave it out"
        )
    if encoding is not None and (sheets or not is_file):
        raise InputError("an encoding is for CSV files: leave it out")
    if header_rows is not None and not sheets:
        raise InputError("⟨header_rows⟩ is for workbooks: leave it out")
    if na and (in_database or isinstance(data, Table)):
        raise InputError("⟨na⟩ is for files and data frames: write NULL for these codes in a view")
    of_columns = [reading for reading in readings if reading.how != EVERYONE]
    if (of_columns and in_database) or (readings and isinstance(data, Table)):
        raise InputError(
            "columns of a database or a table are read as they are stored: convert them in a view"
        )
    if in_database:
        from semidp.publish.sources.ibis import IbisRecords

        if address:
            in_table = IbisRecords.from_address(
                data, table, where, declared, hive_partitions=hive_partitions
            )
        else:
            of_kind = IbisRecords.from_table if kind == "ibis" else IbisRecords.of_spark
            in_table = of_kind(data, where, declared)
        return in_table.with_constant(ALL_RECORDS, ALL_LEVEL) if readings else in_table
    from semidp.publish.sources.duck_files import records_of_files

    if sheets or (encoding is not None and is_windows(encoding)):
        path = os.fspath(data)
        columns = sheet_columns(path, table, header_rows) if sheets else windows_columns(path)
        if not allow_empty and not any(map(len, columns.values())):
            raise DataError(
                f"{path} holds no record: check that it is whole, or allow empty files",
                needs="empty",
            )
        return _frame_records(columns, where, list(columns), readings, declared, na)
    if isinstance(data, (str, os.PathLike)):
        return records_of_files(
            os.fspath(data),
            where,
            hive_partitions=hive_partitions,
            allow_empty=allow_empty,
            readings=readings,
            declared=declared,
            encoding=encoding,
            na=na,
        )
    if isinstance(data, Table):
        if where is not None:
            raise InputError(
                "a table holds counts and no records that a WHERE could keep: leave it out"
            )
        return TableRecords(data)
    is_pandas = kind == "pandas" and hasattr(data, "columns")
    if (is_pandas and np.dtype(object) in set(data.dtypes)) or isinstance(data, Mapping):
        frame, mixed = without_mixtures(data)
        return _frame_records(frame, where, mixed, readings, declared, na)
    frame = data if kind == "pandas" else materialize(data)
    return _frame_records(frame, where, (), readings, declared, na)


def _frame_records(
    frame: Any,
    where: str | None,
    untyped: Sequence[str],
    readings: Sequence[ColumnReading],
    declared: Mapping[str, str],
    na: Sequence[str],
) -> Records:
    """Open a data frame; `untyped` columns have no type, as those of a CSV file."""
    from semidp.publish.sources.duck import DuckRecords, frame_connection

    connection = frame_connection(frame, readings, na)
    if where is None:
        return DuckRecords(connection, untyped=untyped)
    from semidp.publish.sources.duck_files import kept_records

    return kept_records(connection, where, untyped, declared)


def _codes(feature: Feature, columns: Mapping[str, CodedColumn]) -> NDArray[np.intp]:
    """Return each group's position among the feature's levels; refuse missing and undeclared
    values.
    """
    if len(feature.names) > 1:
        depths = [name for name in feature.names if name in columns]
        return _locate_leaves(feature, {name: columns[name] for name in depths})
    column = columns[feature.name]
    if feature.bins is None:
        texts = [value_text(value) for value in column.values]
        if not texts:
            return column.codes
        codes_of_values = feature.codes(np.array(texts, dtype=object))
        return codes_of_values[column.codes]
    if NOT_A_NUMBER in column.values:
        # Quantiles read an outcome as a feature of its values, so "has bins" would puzzle.
        raise DataError(
            f"the values of {feature.name!r} are not all numbers: {advise_numbers(feature.name)}"
        )
    # a missing value stands in the first bin until its own level replaces it below
    bin_numbers = [0 if value is None else value for value in column.values]
    bins = feature.in_bins(np.array(bin_numbers, dtype=np.intp))
    if None in column.values:
        missing = column.values.index(None)
        bins[missing] = feature.levels.index(feature.missing_level())
    return bins[column.codes]


def _locate_leaves(feature: Feature, columns: Mapping[str, CodedColumn]) -> NDArray[np.intp]:
    """Return the leaf of each group; every path is looked up once."""
    first, numbers = _distinct(list(columns.values()))
    texts = {}
    for name, column in columns.items():
        level_texts = [value_text(value) for value in column.values]
        texts[name] = [level_texts[code] for code in column.codes[first].tolist()]
    return feature.locate_leaves(texts)[numbers] if len(first) else numbers


def _distinct(columns: Sequence[CodedColumn]) -> tuple[Codes, Codes]:
    """Return one place of each distinct row of codes, and which of them every row is.

    >>> _distinct([CodedColumn("ab", np.array([1, 0, 1])), CodedColumn("xyz", np.array([2, 0, 2]))])
    (array([1, 2]), array([1, 0, 1]))
    """
    numbers = np.zeros(len(columns[0].codes), dtype=np.intp)
    size = 1
    for column in columns:
        values = max(len(column.values), 1)
        # the rows so far are renumbered, so no product overflows
        if size * values > _LARGEST:
            distinct, numbers = np.unique(numbers, return_inverse=True)
            size = len(distinct)
        numbers = numbers * values + column.codes
        size *= values
    distinct, numbers = np.unique(numbers, return_inverse=True)
    first = np.zeros(len(distinct), dtype=np.intp)
    first[numbers] = np.arange(len(numbers))
    return first, numbers


def _refuse(fault: int, count: str | None, outcome: Outcome | None) -> None:
    if fault == BAD_COUNT:
        raise DataError(
            f"the count column {count!r} must hold whole numbers from 0 to below {LARGEST_COUNT}"
            " and no missing values: write them as 1200, without separators and units. Survey"
            " weights are not counts, and are refused: one person would stand for as many as the"
            " weight says, and move a total by as much"
        )
    if fault == BAD_OUTCOME and outcome is not None:
        raise DataError(
            f"the outcome {outcome.column!r} has values that are not numbers:"
            f" {advise_numbers(outcome.column)}"
        )
    if fault == MISSING_OUTCOME and outcome is not None:
        raise DataError(
            f"the outcome {outcome.column!r} has missing values: fill them in, or keep only the"
            " records that have one",
            needs=MISSING,
            names=(outcome.column,),
        )


def _numbers_first(text: str) -> tuple[bool, float, str]:
    try:
        number = float(text)
    except ValueError:
        return (True, 0.0, text)
    return (False, number, text) if math.isfinite(number) else (True, 0.0, text)
