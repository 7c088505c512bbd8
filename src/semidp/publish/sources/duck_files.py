"""CSV files, Parquet files and folders of them, opened as records in DuckDB.

Nothing is guessed of a file: levels are text as it stands.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from semidp.errors import DataError, InputError
from semidp.publish.sources.data_files import (
    common_header,
    detect_delimiter,
    encoding_names,
    list_files,
    partition_columns,
    read_header,
)
from semidp.publish.sources.duck import (
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
)
from semidp.publish.sources.duck_conditions import kept_records
from semidp.publish.sources.readings import ColumnReading

# Levels are text as it stands ("01" is not "1"). Nothing is guessed, skipped, padded or taken for a
# comment.
_CSV = (
    """header = true, quote = '"', escape = '"', nullstr = '', skip = 0, comment = '', """
    "strict_mode = true, "
    "null_padding = false, ignore_errors = false, max_line_size = 16777216"
)

_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


Reading = Callable[[Callable[[], Any]], Any]
"""Returns what an action reads, or says which file has what trouble."""


def records_of_files(
    pattern: str,
    where: str | None,
    *,
    hive_partitions: bool = False,
    allow_empty: bool = False,
    readings: Sequence[ColumnReading] = (),
    declared: Mapping[str, str] | None = None,
    encoding: str | None = None,
) -> DuckRecords:
    """Open a CSV or Parquet file, every file that a glob matches, or a folder of Parquet files."""
    files, kind = list_files(pattern)
    if encoding is not None and kind != "CSV":
        raise InputError("an encoding is for CSV files: leave it out")
    trouble = f"{pattern} could not be read as {kind}: check that the file is whole"
    read: Reading = partial(read_or_explain, files, trouble)
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
        raw = _reader(kind, files, folders, options)
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
            return DuckRecords(connection, files, untyped)
        return kept_records(connection, where, untyped, declared or {}, files)


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
    first, every = (
        dict(run_query(connection, f"SELECT column_name, column_type FROM (DESCRIBE {reader})"))
        for reader in (
            f"SELECT * FROM {_reader('Parquet', files, [], how)}" for how in ((), together)
        )
    )
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
