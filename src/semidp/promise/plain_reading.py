"""Reading of regular files that lie in a folder: whole, in blocks for a digest, or as a document.

Links that lead out of the folder are refused, since folders come from strangers, too.
"""

import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from semidp.errors import InputError
from semidp.promise.documents import from_json

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
    # To open a pipe would otherwise wait for somebody who writes to it.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
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
