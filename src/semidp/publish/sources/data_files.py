"""CSV and Parquet files on disk: which files a name means, their headers, and what keeps one from
being read.

No message quotes what a file holds. The files are read in `duck_files`.
"""

import codecs
import contextlib
import csv
import glob
import gzip
import itertools
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from semidp.errors import DataError, InputError
from semidp.promise.exact import is_unicode

_DELIMITERS = ",;\t|"

_SUFFIXES = {".csv": "CSV", ".tsv": "CSV", ".txt": "CSV", ".parquet": "Parquet", ".pq": "Parquet"}

_FOREIGN = {
    **dict.fromkeys((".xls", ".xlsb", ".ods", ".numbers"), "a workbook of another kind than .xlsx"),
    **dict.fromkeys(
        (".dta", ".sav", ".por", ".sas7bdat", ".xpt", ".rds", ".rdata"),
        "a file of a statistics program",
    ),
    **dict.fromkeys((".json", ".jsonl", ".ndjson", ".xml"), "a file of nested records"),
    **dict.fromkeys((".zip", ".7z", ".bz2", ".xz", ".zst", ".tar"), "an archive"),
    **dict.fromkeys((".feather", ".arrow", ".orc", ".avro"), "a columnar file other than Parquet"),
}

# xlsx and zip, xls, 7z, Parquet
_ARCHIVES = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"7z\xbc\xaf\x27\x1c", b"PAR1")

_MOST_LINES = 5_000_000  # that are looked at for a record that is longer or shorter than the header

_LONGEST_LINE = 16_777_216


def list_files(pattern: str) -> tuple[list[str], str]:
    """Return the files that `pattern` names, and whether they are CSV or Parquet."""
    if Path(pattern).is_dir():
        files = _folder(Path(pattern))
    else:
        files = [pattern] if Path(pattern).exists() else sorted(glob.glob(pattern, recursive=True))
    if not files:
        raise InputError(f"there is no file {pattern}")
    folders = [file for file in files if Path(file).is_dir()]
    if folders:
        raise InputError(
            f"{pattern} matches the folder {folders[0]}: name files, or one folder of Parquet files"
        )
    kinds = {_kind(file) for file in files}
    if len(kinds) > 1:
        raise InputError(f"{pattern} matches both CSV and Parquet files: name one kind")
    for file in files:
        if not Path(file).is_file():
            raise InputError(
                f"{file} is no regular file, and data are read more than once: copy them to a file"
            )
        if not os.access(file, os.R_OK):
            raise InputError(f"the file {file} may not be read: check its permissions")
    paths = [os.path.abspath(file) for file in files]
    for path in paths:
        if not is_unicode(path):
            raise InputError(f"the file name {path!a} is not UTF-8: rename it")
    return paths, kinds.pop()


def _is_hidden(path: Path) -> bool:
    """Whether a file or a folder above it is hidden, as those that Spark leaves beside its data."""
    return any(part.startswith(("_", ".")) for part in path.parts)


def _folder(folder: Path) -> list[str]:
    """Return the data files of a folder of Parquet files; those with _ or . before their names are
    no data.
    """
    if (folder / "release.json").exists():
        raise InputError(f"{folder} is a release, not data: name the records that it was made from")
    below = [
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in (*_SUFFIXES, ".gz") and path.is_file()
    ]
    seen = [path for path in below if not _is_hidden(path.relative_to(folder))]
    if not any(_SUFFIXES.get(path.suffix.lower()) == "Parquet" for path in seen):
        raise InputError(
            f"the folder {folder} holds no Parquet file: name its files, as in '{folder / '*.csv'}'"
        )
    return sorted(str(path) for path in seen)


def _kind(file: str) -> str:
    suffix = _suffix(file)
    if suffix in _FOREIGN:
        raise InputError(
            f"{file} is {_FOREIGN[suffix]}, which semidp does not read: save it as CSV (UTF-8) or"
            " Parquet"
        )
    if suffix not in _SUFFIXES:
        raise InputError(
            f"the name {file} does not say what it holds: end it in .csv, .tsv, .csv.gz or .parquet"
        )
    return _SUFFIXES[suffix]


def _suffix(file: str) -> str:
    suffixes = [suffix.lower() for suffix in Path(file).suffixes if suffix.lower() != ".gz"]
    return suffixes[-1] if suffixes else ""


def read_stamp(file: str) -> tuple[int, ...]:
    """Return what changes when a file is written to or replaced."""
    with contextlib.suppress(OSError):
        stat = os.stat(file)
        return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns
    return ()


def diagnose_csv(file: str) -> str | None:
    """Say what keeps a CSV file from being read, if that can be seen: its encoding, or its records.

    At most so many characters are looked at. A data file holds what may be in no message, so that
    neither a value nor the number of a line is said.
    """
    if _SUFFIXES.get(_suffix(file)) != "CSV" or not os.path.exists(file):
        return None
    name = os.path.basename(file)
    try:
        with gzip.open(file) if file.lower().endswith(".gz") else open(file, "rb") as binary:
            start = binary.read(4096)
        if not start.strip():
            return f"{name} is empty: it needs a header that names its columns, and records"
        if start.startswith(_ARCHIVES):
            return (
                f"{name} is a workbook or an archive and no text, whatever its name says: save it"
                " as CSV (UTF-8)"
            )
        if (
            start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
            or start.count(0) > len(start) // 4
        ):
            return f"{name} is text in UTF-16: save it as UTF-8, or say so (--encoding utf-16)"
        return _diagnose_ragged(file, name)
    except UnicodeDecodeError:
        return (
            f"{name} holds text that is not UTF-8, but Latin-1 or Windows-1252 perhaps: save it as"
            " UTF-8, or say so (--encoding latin-1 or windows-1252)"
        )
    except (OSError, EOFError, zlib.error):
        return f"{name} could not be read to its end: check that it is whole"
    except (ValueError, csv.Error, StopIteration):
        return None


def _diagnose_ragged(file: str, name: str) -> str | None:
    """Say so where a record has another number of values than the header has names."""
    delimiter = detect_delimiter(file)
    with _open_text(file) as text:
        lines = itertools.takewhile(bool, iter(lambda: text.readline(_LONGEST_LINE), ""))
        rows = csv.reader(itertools.islice(lines, _MOST_LINES), delimiter=delimiter, strict=True)
        names = next(rows)
        try:
            if any(row and len(row) != len(names) for row in rows):
                return (
                    f"{name} has records with more or fewer values than its header has names: put"
                    " text that holds the delimiter in quotes, and keep one record a line"
                )
        except csv.Error:
            return (
                f"{name} has a quote that is not closed, or text after one: write a quote inside a"
                " value twice"
            )
    return None


_ENCODINGS = {
    "utf-8": ("utf-8-sig", "utf-8"),
    "latin-1": ("latin-1", "latin-1"),
    "utf-16": ("utf-16", "utf-16"),
}


def encoding_names(name: str | None) -> tuple[str, str]:
    """Return what Python and DuckDB call an encoding."""
    if name is None:
        return _ENCODINGS["utf-8"]
    usual = (
        name.lower().replace("_", "-").replace("iso-8859-1", "latin-1").replace("latin1", "latin-1")
    )
    if usual not in _ENCODINGS:
        every = ", ".join(_ENCODINGS)
        raise InputError(
            f"CSV files are read in {every}, windows-1252, not {name[:40]!r}: save the file as"
            " UTF-8"
        )
    return _ENCODINGS[usual]


def _open_text(file: str, encoding: str = "utf-8-sig") -> TextIO:
    if file.lower().endswith(".gz"):
        return gzip.open(file, "rt", encoding=encoding, newline="")
    return open(file, encoding=encoding, newline="")


def detect_delimiter(file: str, encoding: str = "utf-8-sig") -> str:
    """Return the delimiter that the header of a CSV file uses most, outside quotes."""
    with _open_text(file, encoding) as text:
        header = text.readline(_LONGEST_LINE)
    if not header.strip():
        raise ValueError("a CSV file needs a header")
    bare = "".join(header.split('"')[::2])
    return max(_DELIMITERS, key=bare.count)


def read_header(file: str, delimiter: str, encoding: str = "utf-8-sig") -> list[str]:
    with _open_text(file, encoding) as text:
        names = next(
            csv.reader(iter(lambda: text.readline(_LONGEST_LINE), ""), delimiter=delimiter)
        )
    if any("\x00" in name for name in names):
        raise ValueError("no text in UTF-8, though its bytes could be")
    return [name.strip() for name in names]  # as DuckDB does


def common_header(headers: Sequence[list[str]], pattern: str) -> list[str]:
    """Return the names in the headers of CSV files, which must be the same in each."""
    if any(header != headers[0] for header in headers):
        raise DataError(
            f"the files of {pattern} have different headers: name files with the same columns in"
            " one order"
        )
    return headers[0]


def _partition_keys(file: Path) -> list[str]:
    """Return the columns that the folders above a file name, such as sex of sex=f."""
    keys = []
    for folder in file.parent.parts:
        key, equals, _ = folder.partition("=")
        if equals:
            keys.append(key)
    return keys


def partition_columns(files: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the columns that folders such as sex=f give to every file, and that the files
    themselves lack.
    """
    keys = [_partition_keys(Path(file)) for file in files]
    if any(set(those) != set(keys[0]) for those in keys):
        raise InputError(
            "the files lie in folders of different partitions: each needs the same, such as"
            " sex=f/region=n"
        )
    lower_names = {name.lower() for name in names}
    return [key for key in dict.fromkeys(keys[0]) if key and key.lower() not in lower_names]
