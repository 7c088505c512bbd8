"""Files of synthetic records, and beside each what it is: written whole or not at all, replaced
only by their like.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from semidp.errors import InputError, Occupied
from semidp.inference.records.synthetic import SyntheticRecords
from semidp.promise.exact import format_value
from semidp.promise.files import replace_file
from semidp.promise.plain_reading import read_document

MOST_FILES = 1000
"""More files say nothing more of the noise."""

KIND = "semidp synthetic records"
"""What the file beside records says they are."""


def save_records(
    records: SyntheticRecords, path: Path | str, about: Mapping[str, Any], *, force: bool = False
) -> dict[str, Any]:
    """Write records to a CSV file, and beside it what they are; return the latter.

    The file beside is written first and holds the digest of the records. With `force` records are
    replaced that were written by this function, and no other file.
    """
    path = Path(path)
    beside = about_file(path)
    check_records(path, force=force)
    # The digest is known before the file beside, which is written first.
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
    """Refuse a place for records where something is that nobody agreed to lose."""
    beside = about_file(path)
    if os.path.lexists(beside) and not _is_ours(beside):
        raise Occupied(f"{beside} already exists, and was not written beside records")
    if os.path.lexists(path) and (path.is_symlink() or not path.is_file() or not _is_ours(beside)):
        raise Occupied(f"{path} already exists, and holds no records that were put together here")
    if os.path.lexists(path) and not force:
        raise Occupied(f"{path} already exists", replaceable=True)


def about_file(path: Path) -> Path:
    """Return the file that says what records are, beside theirs.

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
