"""Let any access to the files of a folder fail, once or from then on, as sqlite's tests do.

Every function of `os` that semidp reaches files by, every open file and every lock counts its
accesses. DuckDB's own reads are not among them; the files that it writes are one access each.
"""

import builtins
import contextlib
import fcntl
import io
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb

from semidp.publish.results import columns

BY_PATH = (
    *("stat", "lstat", "mkdir", "rmdir", "rename", "replace", "link", "unlink", "remove"),
    *("listdir", "scandir", "chmod", "open", "utime", "statvfs", "readlink", "access"),
)
_readlink = os.readlink


class Accesses:
    """Count of the accesses to a folder. At each of them `fail_at` says which error it ends with,
    if any; accesses after it fail too if the error is lasting.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.seen = 0
        self.error: tuple[int, bool] | None = None

    def fail_at(self, what: str) -> tuple[int, bool] | None:
        """The error that an access ends with, and whether it lasts; None if it succeeds."""
        return None

    def meet(self, what: str, *paths: Any) -> None:
        """Count an access to some paths, or fail it."""
        if not any(map(self.is_inside, paths)):
            return
        self.seen += 1
        if self.error is None:
            self.error = self.fail_at(what)
        elif not self.error[1]:
            return
        if self.error is not None:
            raise self.make_error(self.error[0])

    def make_error(self, code: int) -> OSError:
        return OSError(code, os.strerror(code))

    def is_inside(self, path: Any) -> bool:
        if isinstance(path, int):
            try:
                path = _readlink(f"/proc/self/fd/{path}")
            except OSError:
                return False
        if not isinstance(path, (str, bytes, os.PathLike)):
            return False
        return os.path.abspath(os.fsdecode(path)).startswith(self.folder)


class FailingFile(io.FileIO):
    """An open file whose every read, write and end is an access."""

    accesses: Accesses

    def write(self, data: Any) -> int:
        self.accesses.meet("write", self.name)
        return super().write(data)

    def readinto(self, buffer: Any) -> int:
        self.accesses.meet("read", self.name)
        return super().readinto(buffer) or 0

    def readall(self) -> bytes:
        self.accesses.meet("read", self.name)
        return super().readall()

    def close(self) -> None:
        open_before = not self.closed
        super().close()
        if open_before and self.writable_before:
            self.accesses.meet("close", self.name)

    writable_before = False


@contextlib.contextmanager
def failing(accesses: Accesses) -> Iterator[None]:
    """Count, and fail, the accesses of a block."""
    with contextlib.ExitStack() as patched:
        for name in BY_PATH:
            patched.enter_context(mock.patch.object(os, name, _counted(name, accesses)))
        for module, name in ((os, "fsync"), (os, "fchmod"), (fcntl, "flock")):
            patched.enter_context(
                mock.patch.object(module, name, _counted(name, accesses, module, paths=1))
            )
        opener = _opener(accesses)
        patched.enter_context(mock.patch.object(builtins, "open", opener))
        patched.enter_context(mock.patch.object(io, "open", opener))
        patched.enter_context(mock.patch.object(columns, "_copy", _copying(accesses)))
        yield


def _counted(name: str, accesses: Accesses, module: Any = os, paths: int = 2) -> Callable[..., Any]:
    real = getattr(module, name)

    def function(*arguments: Any, **options: Any) -> Any:
        # A lock ends with its process, whatever becomes of the attempt to free it.
        if arguments[1:2] != (fcntl.LOCK_UN,) or name != "flock":
            accesses.meet(name, *arguments[:paths])
        return real(*arguments, **options)

    return function


def _opener(accesses: Accesses) -> Callable[..., Any]:
    real = io.open

    def opened(
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        if not accesses.is_inside(file) or isinstance(file, int):
            return real(file, mode, buffering, encoding, errors, newline, closefd, opener)
        accesses.meet("open", file)
        raw = FailingFile(file, mode.replace("b", "").replace("t", ""))
        raw.accesses = accesses
        raw.writable_before = raw.writable()
        buffered: Any
        if raw.writable() and raw.readable():
            buffered = io.BufferedRandom(raw)
        elif raw.writable():
            buffered = io.BufferedWriter(raw)
        else:
            buffered = io.BufferedReader(raw)
        if "b" in mode:
            return raw if buffering == 0 else buffered
        return io.TextIOWrapper(buffered, encoding, errors, newline)

    return opened


def _copying(accesses: Accesses) -> Callable[..., Any]:
    real = columns._copy

    def copy(connection: Any, path: Path, *rest: Any) -> None:
        try:
            accesses.meet("write by DuckDB", path)
        except OSError:
            path.touch()  # what a full disk leaves of a file
            raise duckdb.IOException("Could not write to file") from None
        real(connection, path, *rest)

    return copy


def is_same_tree(one: Path, other: Path) -> bool:
    """Whether two folders hold the same files."""
    return _tree(one) == _tree(other)


def _tree(folder: Path) -> dict[str, bytes]:
    found = {}
    for path in sorted(folder.rglob("*")):
        if stat.S_ISREG(path.lstat().st_mode):
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found
