"""Writing files so that nobody ever sees half of one.

Everything is written under a dot name beside its destination and moved into place; what a killed run leaves behind
has a dot name and is removed by the next run. Nothing here knows what the files hold.
"""

import contextlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from semidp.errors import InputError

_SCRAP = ".semidp-{name}.{process}.{token}"


def replace_file(path: str | Path, content: bytes | str) -> None:
    """Write `content` to `path`, whole or not at all.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     replace_file(Path(folder) / "a.txt", "exact")
    ...     (Path(folder) / "a.txt").read_text()
    'exact'
    """
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    with _plainly(path):
        _sweep(path)
        scrap = _scrap_beside(path)
        try:
            with open(scrap, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(scrap, path)
            _sync_entry(path)
        finally:
            scrap.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(path: str | Path, *, force: bool = False, inputs: Iterable[str | Path] = ()) -> Iterator[Path]:
    """Yield an empty folder that becomes `path` when the block ends well, and vanishes when it does not.

    An existing `path` is refused unless it is an empty folder; with `force` it is moved aside first and removed last,
    but never if `inputs` are in it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     with new_folder(Path(root) / "release") as folder:
    ...         _ = (folder / "table.csv").write_text("count")
    ...     sorted(file.name for file in Path(root).rglob("*"))
    ['release', 'table.csv']
    """
    path = Path(path)
    check_vacant(path, force)
    for needed in inputs:
        if path.exists() and path.resolve() in (Path(needed).resolve(), *Path(needed).resolve().parents):
            raise InputError(f"{path} holds {needed}, which --force would remove: choose another --out")
    with _plainly(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        scrap = _scrap_beside(path)
        scrap.mkdir()
        try:
            yield scrap
            _sync(scrap)
            if path.exists():
                old = _scrap_beside(path)
                os.rename(path, old)
                os.rename(scrap, path)
                shutil.rmtree(old) if old.is_dir() else old.unlink()
            else:
                os.rename(scrap, path)
        finally:
            shutil.rmtree(scrap, ignore_errors=True)


def check_vacant(path: Path, force: bool) -> None:
    """Refuse a folder to write that has no name of its own, or holds something that nobody agreed to replace.

    >>> check_vacant(Path("."), force=True)
    Traceback (most recent call last):
    semidp.errors.InputError: . is not a name for a new folder: give one such as --out release
    """
    if path.name in ("", ".."):
        raise InputError(f"{path} is not a name for a new folder: give one such as --out release")
    with _plainly(path):
        empty = path.is_dir() and not path.is_symlink() and not any(path.iterdir())
    if path.exists() and not empty and not force:
        raise InputError(f"{path} already exists: choose another --out, or replace it with --force")


def toml_text(document: Mapping[str, Any]) -> str:
    """Write plain values as TOML: first the single values, then each list of mappings as an array of tables.

    >>> print(toml_text({"count": "people", "feature": [{"name": "sex", "levels": ["f", "m"]}]}))
    count = "people"
    <BLANKLINE>
    [[feature]]
    name = "sex"
    levels = ["f", "m"]
    <BLANKLINE>
    """
    arrays = {key: value for key, value in document.items() if value and isinstance(value, list) and _mappings(value)}
    lines = [_toml_pair(key, value) for key, value in document.items() if key not in arrays]
    for key, entries in arrays.items():
        for entry in entries:
            lines += ["", f"[[{key}]]", *(_toml_pair(name, item) for name, item in entry.items())]
    return "\n".join(lines).lstrip("\n") + "\n"


def _mappings(values: list[Any]) -> bool:
    return all(isinstance(value, Mapping) for value in values)


def _toml_pair(key: str, value: object) -> str:
    # JSON's strings, numbers, truth values and lists are TOML's too.
    bare = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return f"{key if bare else json.dumps(key, ensure_ascii=False)} = {json.dumps(value, ensure_ascii=False)}"


@contextlib.contextmanager
def _plainly(path: Path) -> Iterator[None]:
    """Turn what the operating system says into one sentence; its own text may hold less and never more."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"cannot write {path}: {reason.lower()}") from None


def _scrap_beside(path: Path) -> Path:
    return path.with_name(_SCRAP.format(name=path.name, process=os.getpid(), token=secrets.token_hex(4)))


def _sweep(path: Path) -> None:
    """Remove what runs that no longer live have left beside `path`."""
    if not path.parent.is_dir():
        return
    pattern = re.compile(re.escape(f".semidp-{path.name}.") + r"(\d+)\.[0-9a-f]{8}")
    for scrap in path.parent.iterdir():
        match = pattern.fullmatch(scrap.name)
        if match and not _alive(int(match[1])):
            if scrap.is_dir():
                shutil.rmtree(scrap, ignore_errors=True)
            else:
                scrap.unlink(missing_ok=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _sync_entry(path: Path) -> None:
    """Make a move into place outlast a power failure, where the system can open folders."""
    if hasattr(os, "O_DIRECTORY"):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _sync(folder: Path) -> None:
    for file in folder.rglob("*"):
        if file.is_file():
            with open(file, "rb") as handle:
                os.fsync(handle.fileno())
