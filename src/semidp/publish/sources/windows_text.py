"""Records in a CSV file in the encoding of Windows, which DuckDB does not know: read as text,
whole, into memory.
"""

import csv
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import DataError

_CALLED = {"windows-1252", "windows1252", "cp1252", "cp-1252", "ansi"}
_DELIMITERS = ",;\t|"


def is_windows(encoding: str | None) -> bool:
    """Whether an encoding is that of Windows in Western Europe and America.

    >>> is_windows("Windows-1252"), is_windows("latin-1"), is_windows(None)
    (True, False, False)
    """
    return encoding is not None and encoding.lower().replace("_", "-") in _CALLED


def windows_columns(path: str) -> dict[str, NDArray[Any]]:
    """Return the columns of a CSV file in Windows-1252 as text; nothing between two delimiters is
    missing.

    Parameters
    ----------
    path
        One file with a header.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "x.csv")
    ...     with open(path, "wb") as file:
    ...         _ = file.write("Straße,€\\nKöln,5\\n".encode("cp1252"))
    ...     windows_columns(path)
    {'Straße': array(['Köln'], dtype=object), '€': array(['5'], dtype=object)}
    """
    if not os.path.isfile(path) or not path.lower().endswith((".csv", ".txt", ".tsv")):
        raise DataError(f"{path} is not one CSV file: files in Windows-1252 are read one by one")
    try:
        with open(path, encoding="cp1252", newline="") as file:
            first = file.readline()
            # Text between quotes may hold any delimiter.
            bare = "".join(first.split('"')[::2])
            file.seek(0)
            header, *rows = csv.reader(
                file, delimiter=max(_DELIMITERS, key=bare.count), strict=True
            )
    except (UnicodeDecodeError, csv.Error, ValueError):
        raise DataError(
            f"{path} could not be read as CSV in Windows-1252: check that the file is whole"
        ) from None
    names = [name.strip() for name in header]
    if len(set(names)) < len(names) or not all(names):
        raise DataError(f"two columns of {path} have one name, or one has none: name every column")
    records = [row for row in rows if row]
    if any(len(row) != len(names) for row in records):
        raise DataError(
            f"a row of {path} has more or fewer values than the header: check that the file is"
            " whole"
        )
    columns = {}
    for place, name in enumerate(names):
        columns[name] = np.array([row[place] or None for row in records], dtype=object)
    return columns
