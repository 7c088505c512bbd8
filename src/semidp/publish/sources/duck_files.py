"""CSV files, Parquet files and folders of them, opened as records in DuckDB; conditions and
aggregates for DuckDB, as `condition_sql` writes them, checked against the values.

Nothing is guessed about a file: levels are text as written.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from semidp.errors import DataError, InputError
from semidp.publish.sources.condition_sql import (
    DAY,
    DIALECTS,
    DOUBLE,
    OTHER,
    SINGLE,
    UNTYPED,
    ExpressionWriter,
)
from semidp.publish.sources.conditions import (
    DATE,
    DECIMAL,
    INTEGER,
    TEXT,
    TRUTH,
    list_columns,
    read_aggregate,
    read_condition,
)
from semidp.publish.sources.data_files import (
    common_header,
    detect_delimiter,
    encoding_names,
    list_files,
    partition_columns,
    read_header,
)
from semidp.publish.sources.duck import (
    FAILED,
    WHOLE_TYPES,
    DuckRecords,
    closed_on_error,
    confine,
    connect,
    is_number,
    literal,
    quoted_name,
    quoted_text,
    read_or_explain,
    refuse_like_names,
    refuse_many_columns,
    refuse_misfits,
    run_query,
    selected_columns,
    source_columns,
    without_codes,
)
from semidp.publish.sources.readings import ColumnReading

_TYPES = {
    **dict.fromkeys((*WHOLE_TYPES, *(f"U{kind}" for kind in WHOLE_TYPES[:-1])), INTEGER),
    "FLOAT": SINGLE,
    "DOUBLE": DOUBLE,
    "UHUGEINT": DECIMAL,
    "BOOLEAN": TRUTH,
    "VARCHAR": TEXT,
    "UUID": TEXT,
    "DATE": DAY,
    "TIMESTAMP": DATE,
    "TIMESTAMP_NS": DATE,
}


def kept_records(
    connection: Any,
    where: str,
    untyped: Collection[str],
    declared: Mapping[str, str],
    files: Sequence[str] = (),
    encoding: str | None = None,
) -> DuckRecords:
    """Return the records of the view `source` that `where` keeps.

    Parameters
    ----------
    connection
        A database with the view; closed if the condition is refused.
    where
        One condition on the record.
    untyped
        Columns without a type, as those of CSV files.
    declared
        The declared types of columns.
    files, encoding
        The files that the view reads, and their encoding where it was said.
    """
    with closed_on_error(connection):
        stored = stored_kinds(connection, "source", untyped)
        tree = read_condition(where, stored)
        writer = ExpressionWriter(DIALECTS["duckdb"], stored, declared)
        condition = writer.write_condition(tree)
        refuse_values(connection, "source", writer, files)
        return DuckRecords(connection, files, untyped, condition, encoding)


def aggregated_columns(aggregates: Mapping[str, str], columns: Collection[str]) -> list[str]:
    """Return the columns of members that some aggregates use; refuse a text that is not an
    aggregate of members.

    Parameters
    ----------
    aggregates
        The SQL of each derived feature, by name.
    columns
        The columns of members, without the link.

    Examples
    --------
    >>> aggregated_columns({"children": "count(*) FILTER (WHERE age < 18)"}, ["age", "sex"])
    ['age']
    >>> aggregated_columns({"age": "age"}, ["age"])
    Traceback (most recent call last):
    semidp.errors.InputError: the aggregate of 'age' aggregates nothing: write one such as max(age)
    """
    used: dict[str, None] = {}
    for name, text in aggregates.items():
        used |= dict.fromkeys(list_columns(read_aggregate(name, text, columns)))
    return list(used)


def written_aggregates(
    connection: Any,
    aggregates: Mapping[str, str],
    relation: str,
    untyped: Collection[str],
    declared: Mapping[str, str],
) -> list[str]:
    """Return the SQL of aggregates over a relation; refuse values that do not fit.

    Parameters
    ----------
    connection, relation
        The database, and the members in it.
    aggregates
        The SQL of each derived feature, by name.
    untyped, declared
        The columns without a type, and what columns were declared to hold.
    """
    stored = stored_kinds(connection, relation, untyped)
    expressions = []
    for name, text in aggregates.items():
        place = f"the aggregate of {name!r}"
        used = {column: kind for column, kind in declared.items() if column in stored}
        writer = ExpressionWriter(DIALECTS["duckdb"], stored, used, place)
        expressions.append(writer.write_aggregate(read_aggregate(name, text, stored)))
        refuse_values(connection, relation, writer, ())
    return expressions


def stored_kinds(connection: Any, relation: str, untyped: Collection[str]) -> dict[str, str]:
    """Return the type of each column of a relation."""
    rows = run_query(connection, f"SELECT column_name, column_type FROM (DESCRIBE {relation})")
    kinds = {}
    for name, kind in rows:
        if name in untyped and kind == "VARCHAR":
            kinds[name] = UNTYPED
        # a type that ends with ] is a list, which no condition reads
        elif kind.startswith(("DECIMAL", "ENUM")) and not kind.endswith("]"):
            kinds[name] = TEXT if kind.startswith("ENUM") else DECIMAL
        else:
            kinds[name] = _TYPES.get(kind, OTHER)
    return kinds


def refuse_values(
    connection: Any, relation: str, writer: ExpressionWriter, files: Sequence[str]
) -> None:
    """Refuse values that an expression cannot read; none is quoted."""
    if not writer.misfits:
        return
    tests = ", ".join(f"bool_or({misfit})" for misfit in writer.misfits)
    query = partial(run_query, connection, f"SELECT {tests} FROM {relation}")
    (misfits,) = read_or_explain(files, FAILED, query)
    for wrong, sentence in zip(misfits, writer.misfits.values(), strict=True):
        if wrong:
            raise DataError(sentence)


# Levels are text as it stands ("01" is not "1"). Nothing is guessed, skipped, padded or taken for a
# comment.
_CSV = (
    """header = true, quote = '"', escape = '"', nullstr = '', skip = 0, comment = '', """
    "strict_mode = true, "
    "null_padding = false, ignore_errors = false, max_line_size = 16777216"
)

_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


Reading = Callable[[Callable[[], Any]], Any]
"""Returns what an action reads, or reports which file has what problem."""


def records_of_files(
    pattern: str,
    where: str | None,
    *,
    hive_partitions: bool = False,
    allow_empty: bool = False,
    readings: Sequence[ColumnReading] = (),
    declared: Mapping[str, str] | None = None,
    encoding: str | None = None,
    na: Sequence[str] = (),
) -> DuckRecords:
    """Open a CSV or Parquet file, every file that a glob matches, or a folder of Parquet files."""
    files, kind = list_files(pattern)
    if encoding is not None and kind != "CSV":
        raise InputError("an encoding is for CSV files: leave it out")
    trouble = f"{pattern} could not be read as {kind}: check that the file is whole"
    read: Reading = partial(read_or_explain, files, trouble, encoding=encoding)
    connection = connect()
    with closed_on_error(connection):
        confine(connection, files)
        if kind == "CSV":
            names, options = _csv_header(files, pattern, encoding, read)
        else:
            names = read(lambda: _parquet_header(connection, files))
            options = read(lambda: _parquet_options(connection, files, pattern))
        refuse_many_columns(names, pattern)
        folders = partition_columns(files, names) if hive_partitions else []
        every_name = [*names, *folders]
        raw = without_codes(_reader(kind, files, folders, options), every_name, na)
        view = f"CREATE VIEW source AS SELECT {selected_columns(readings, every_name)} FROM {raw}"
        read(lambda: connection.execute(view))
        added = [part.column for part in readings if part.adds]
        refuse_like_names(connection, [*every_name, *added], pattern)
        for reading in readings:
            refuse_misfits(connection, reading, raw, read)
        if not allow_empty:
            # A CSV file without a record may have lost them; of Parquet files one may be empty.
            batches = [[file] for file in files] if kind == "CSV" else [files]
            for batch in batches:
                _refuse_empty(connection, kind, batch, options, pattern, read)
        untyped = source_columns(connection) if kind == "CSV" else folders
        if where is None:
            return DuckRecords(connection, files, untyped, encoding=encoding)
        return kept_records(connection, where, untyped, declared or {}, files, encoding)


def _csv_header(
    files: Sequence[str], pattern: str, encoding: str | None, read: Reading
) -> tuple[list[str], tuple[str, ...]]:
    """Return the names of the columns of CSV files, and the options that DuckDB reads them with."""
    python, duck = encoding_names(encoding)
    delimiter = read(lambda: detect_delimiter(files[0], python))
    headers = [read(partial(read_header, file, delimiter, python)) for file in files]
    names = common_header(headers, pattern)
    separated = f"delim = {quoted_text(delimiter)}"
    return names, (separated, f"encoding = '{duck}'", _CSV, "all_varchar = true")


def _refuse_empty(
    connection: Any,
    kind: str,
    files: Sequence[str],
    options: Sequence[str],
    pattern: str,
    read: Reading,
) -> None:
    """Refuse files that hold no record."""
    first = f"SELECT 1 FROM {_reader(kind, files, [], options)} LIMIT 1"
    if read(partial(run_query, connection, first)):
        return
    holder = files[0] if len(files) == 1 else pattern
    raise DataError(
        f"{holder} holds no record: check that it is whole, or allow empty files", needs="empty"
    )


def _parquet_header(connection: Any, files: Sequence[str]) -> list[str]:
    """Return the names of the columns in the first of some Parquet files, as they are in the
    file.
    """
    sql = (
        "SELECT name, coalesce(num_children, 0) FROM"
        f" parquet_schema({quoted_text(literal(files[0]))})"
    )
    _, *nodes = run_query(connection, sql)
    names: list[str] = []
    inside = 0  # how many nodes are still to come below the last column
    for name, children in nodes:
        if inside == 0:
            names.append(name)
        inside += children - (inside > 0)
    return names


def _parquet_options(connection: Any, files: Sequence[str], pattern: str) -> tuple[str, ...]:
    """Return how Parquet files are read whose columns differ in type, as those that pandas writes
    with and without missing values do: as numbers that hold both.

    DuckDB would convert every file to the types of the first, and round 52.5 to 52 for it.
    """
    together = ("union_by_name = true",)

    def read_kinds(options: Sequence[str]) -> dict[str, str]:
        reader = f"SELECT * FROM {_reader('Parquet', files, [], options)}"
        query = f"SELECT column_name, column_type FROM (DESCRIBE {reader})"
        return dict(run_query(connection, query))

    first, every = read_kinds(()), read_kinds(together)
    changed = [name for name, kind in first.items() if every[name] != kind]
    if not changed:
        return ()
    numbers = all(is_number(every[name]) and first[name] != "BOOLEAN" for name in changed)
    if first.keys() != every.keys() or not numbers:
        raise DataError(
            f"the files of {pattern} hold the column {changed[0]!r} in different types: write them"
            " with the same"
        )
    return together


def _reader(kind: str, files: Sequence[str], folders: Sequence[str], options: Sequence[str]) -> str:
    """Return the SQL that reads these files; the names of their folders are columns where that is
    asked for.
    """
    names = f"[{', '.join(quoted_text(literal(file)) for file in files)}]"
    place = "_" * (1 + max(map(len, folders), default=0)) + "file"
    path = [f"filename = {quoted_text(place)}"] if folders else []
    call = (
        f"read_{kind.lower()}({', '.join([names, *options, *path, 'hive_partitioning = false'])})"
    )
    if not folders:
        return call
    values = [
        f"nullif(url_decode(regexp_extract({place}, {quoted_text(_folder_value(key))}, 1)),"
        f" '{_HIVE_NULL}') AS {quoted_name(key)}"
        for key in folders
    ]
    return f"(SELECT * EXCLUDE ({place}), {', '.join(values)} FROM {call})"


def _folder_value(key: str) -> str:
    r"""Return the expression for what a path says of a key.

    >>> re.search(_folder_value("sex"), "/data/sex=f/people.csv").group(1)
    'f'
    """
    return rf"[/\\]{re.escape(key)}=([^/\\]*)[/\\]"
