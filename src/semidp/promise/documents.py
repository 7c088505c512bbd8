"""Small documents: JSON and TOML text, read strictly and written plainly; and regular files of a
folder, read whole, in blocks for a digest, or as a document.

Links that lead out of the folder are refused, since folders come from strangers, too.
"""

import hashlib
import json
import math
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from semidp.errors import InputError
from semidp.promise.system import open_for_reading

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def from_json(content: bytes | str) -> Any:
    """Return the value of a JSON text; a `ValueError` where it is none, also where it is nested too
    deeply.

    A key that stands twice is refused: readers differ in which of the two they take. JSON has no
    NaN and no infinity, and numbers beyond floating point are refused: whoever reads a value may
    then compare it and calculate with it. Exact numbers are written as text.

    >>> from_json("[" * 100000)
    Traceback (most recent call last):
    ValueError: nested too deeply
    >>> from_json('{"epsilon": 9, "epsilon": 1}')
    Traceback (most recent call last):
    ValueError: a key stands twice
    >>> from_json('{"loss": NaN}')
    Traceback (most recent call last):
    ValueError: NaN is no number of JSON
    """
    try:
        value = json.loads(
            content,
            object_pairs_hook=_refuse_duplicate_keys,
            parse_constant=_no_number,
            parse_float=_finite,
            parse_int=_parse_finite_int,
        )
        if _SURROGATE.search(content if isinstance(content, str) else content.decode()):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("a text holds half of a character") from None
    return value


def _refuse_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError("a key stands twice")
    return document


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _parse_finite_int(text: str) -> int:
    _finite(text)
    return int(text)


def from_toml(text: str) -> dict[str, Any]:
    """Return what a TOML text holds; a `ValueError` where it is none, also where it is nested too
    deeply.

    >>> from_toml("count = 'people'")
    {'count': 'people'}
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def toml_text(document: Mapping[str, Any]) -> str:
    """Write plain values as TOML: first the single values, then each list of mappings as an array
    of tables.

    >>> print(toml_text({"count": "people", "feature": [{"name": "sex", "levels": ["f", "m"]}]}))
    count = "people"
    <BLANKLINE>
    [[feature]]
    name = "sex"
    levels = ["f", "m"]
    <BLANKLINE>
    """
    arrays = {key: value for key, value in document.items() if _is_array_of_tables(value)}
    lines = [_toml_pair(key, value) for key, value in document.items() if key not in arrays]
    for key, entries in arrays.items():
        for entry in entries:
            pairs = [_toml_pair(name, item) for name, item in entry.items()]
            lines += ["", f"[[{key}]]", *pairs]
    return "\n".join(lines).lstrip("\n") + "\n"


def _is_array_of_tables(value: object) -> bool:
    """Whether a value is a list of mappings, which TOML writes as tables."""
    if not value or not isinstance(value, list):
        return False
    return all(isinstance(entry, Mapping) for entry in value)


def _toml_pair(key: str, value: object) -> str:
    letters = key.replace("_", "").replace("-", "")
    if not (key.isascii() and letters.isalnum()):
        key = json.dumps(key, ensure_ascii=False)
    return f"{key} = {_toml_value(value)}"


def _toml_value(value: object) -> str:
    # JSON's strings, numbers, truth values and lists are TOML's too.
    if isinstance(value, Mapping):
        pairs = [_toml_pair(name, item) for name, item in value.items()]
        return f"{{{', '.join(pairs)}}}"
    return json.dumps(value, ensure_ascii=False)


LARGEST = 2**30
"""Bytes of the largest file that is read whole."""

_BLOCK = 2**22  # bytes of a file that are hashed at once


def read_plain(path: Path, within: Path | None = None) -> bytes:
    """Return the content of a regular file. Pipes and devices, which may never end, and files that
    are too large are refused.

    It must not lead out of the folder `within` by a link. What cannot be read is an `OSError`.

    >>> read_plain(Path(os.devnull))
    Traceback (most recent call last):
    semidp.errors.InputError: /dev/null is not a regular file
    """
    with open(regular_file(path, within), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        # A file may grow while it is read, so that its size is no limit by itself.
        content = file.read(LARGEST + 1) if size <= LARGEST else b""
        if max(size, len(content)) > LARGEST:
            raise InputError(
                f"{path} is larger than {LARGEST >> 20} MB, which no such file that semidp"
                " writes is"
            )
        return content


def regular_file(path: Path, within: Path | None = None) -> int:
    """Open a regular file for reading, as `read_plain` does, and return its handle; it may be of
    any size.
    """
    if within is not None and not Path(os.path.realpath(path)).is_relative_to(
        os.path.realpath(within)
    ):
        raise InputError(f"{path} is a link that leads out of its folder")
    handle = open_for_reading(path)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InputError(f"{path} is not a regular file")
    return handle


def digest(path: Path, within: Path | None = None, most: int = 64 * LARGEST) -> str:
    """Return the SHA-256 of a regular file of at most `most` bytes, read in parts.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "x").write_bytes(b"abc")
    ...     digest(Path(folder) / "x")[:8]
    'ba7816bf'
    """
    hashed = hashlib.sha256()
    with open(regular_file(path, within), "rb") as file:
        if os.fstat(file.fileno()).st_size > most:
            raise InputError(
                f"{path} is larger than {most >> 20} MB, which no such file that semidp writes is"
            )
        while block := file.read(_BLOCK):
            hashed.update(block)
    return hashed.hexdigest()


def read_document(path: Path) -> Mapping[str, Any]:
    """Return the JSON object that a file holds, and nothing where there is no such file.

    >>> read_document(Path("nowhere.json"))
    {}
    """
    try:
        document = from_json(read_plain(path)) if is_plain_file(path) else {}
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def is_plain_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
