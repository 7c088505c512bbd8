"""Folders that are written whole or not at all, in a place where nothing is lost that nobody agreed
to lose.

Locks, scraps and single files are in `promise.files`.
"""

import contextlib
import errno
import functools
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from semidp.errors import Occupied
from semidp.promise.documents import is_plain_file
from semidp.promise.files import (
    PATIENCE,
    claim_destination,
    copy_permissions,
    discard_scrap,
    old_path,
    plain_errors,
    rename,
    scrap_beside,
    sweep,
)
from semidp.promise.system import sync_folder


@contextlib.contextmanager
def new_folder(
    path: str | Path,
    *,
    force: bool = False,
    ours: Callable[[Path], Collection[str]] = lambda folder: (),
    inputs: Iterable[str | Path] = (),
) -> Iterator[Path]:
    """Yield an empty folder that becomes `path` when the block ends well, and vanishes when it does
    not.

    What is at `path` is replaced under the conditions of `check_place` only, which are asked before
    and after the block. The old folder stays until the new one takes its place by two renames; a
    run that is killed between the two is finished by `recover`. One run at a time writes to a path.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     with new_folder(Path(root) / "release") as folder:
    ...         _ = (folder / "table.csv").write_text("count")
    ...     sorted(file.name for file in Path(root).rglob("*"))
    ['release', 'table.csv']
    """
    path = Path(path)
    check = functools.partial(check_place, path, force=force, ours=ours, inputs=list(inputs))
    check()
    with held_place(path, check):
        scrap = scrap_beside(path)
        scrap.mkdir()
        copy_permissions(path, scrap)
        try:
            yield scrap
            sync_files(scrap)
            # Asked again: others may have put files there while the new ones were written.
            check()
            put_in_place(scrap, path, force, old_path(scrap))
        except KeyboardInterrupt:
            if scrap.exists():
                raise  # else the folder is in place already, and nothing is left to interrupt
        finally:
            # The folder may be in place, and nothing that fails from here on makes that untrue.
            with contextlib.suppress(OSError):
                # else nothing is at `path`, and this one is still to be recovered
                if not old_path(scrap).exists():
                    shutil.rmtree(scrap, ignore_errors=True)


@contextlib.contextmanager
def held_place(path: Path, check: Callable[[], None]) -> Iterator[None]:
    """Hold the place of a folder to write, swept and checked."""
    with plain_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with claim_destination(path, timeout=PATIENCE):
            sweep(path)
            check()
            yield


def durable(folder: Path) -> None:
    """Make what was written into a folder outlast a power failure."""
    sync_files(folder)
    sync_folder(folder.parent)


def check_place(
    path: Path,
    *,
    force: bool = False,
    ours: Callable[[Path], Collection[str]] = lambda folder: (),
    inputs: Iterable[str | Path] = (),
) -> None:
    """Refuse a folder to write that has no name of its own, or holds something that nobody agreed
    to lose.

    Parameters
    ----------
    path
        The folder to write. Nothing may be there, or an empty folder.
    force
        Also replace a folder in which every file is one of `ours`.
    ours
        Which files of a folder were written by the kind of run that would replace them.
    inputs
        What is still needed: a folder that holds one of these is never replaced, nor is the current
        folder.

    Examples
    --------
    >>> check_place(Path("."), force=True)
    Traceback (most recent call last):
    semidp.errors.Occupied: . is not a name for a new folder
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (Path(folder) / "notes.txt").touch()
    ...     check_place(Path(folder), force=True)
    Traceback (most recent call last):
    semidp.errors.Occupied: ... holds notes.txt, which would be lost
    """
    if path.name in ("", ".."):
        raise Occupied(f"{path} is not a name for a new folder")
    if "\x00" in str(path):
        raise Occupied("the name of the new folder holds a character that no file name has")
    with plain_errors(path):
        if needed := _first_inside(path, inputs):
            raise Occupied(f"{path} holds {needed}, which this run needs")
        if _first_inside(path, [Path.cwd()]):
            raise Occupied(f"{path} is the current folder or holds it")
        if path.is_symlink():
            raise Occupied(
                f"{path} is a symbolic link, and neither it nor what it points to is replaced"
            )
        if not path.exists():
            return
        if not path.is_dir():
            raise Occupied(f"{path} is not a folder, and would be lost")
        our_folder = ours(path)
        entries = sorted(path.iterdir())
        foreign = [entry.name for entry in entries if not _is_known(entry, entry.name, our_folder)]
        if foreign:
            raise Occupied(f"{path} holds {_abbreviate_names(foreign)}, which would be lost")
        if entries and not force:
            raise Occupied(f"{path} already exists", replaceable=True)


def put_in_place(scrap: Path, path: Path, force: bool, old: Path) -> None:
    """Move a whole folder to `path`: onto nothing or an empty folder; with `force` what is there is
    `old` meanwhile.
    """
    if force and path.is_dir() and any(path.iterdir()):
        try:
            rename(path, old)
            _move_folder(scrap, path)
        except BaseException:
            # Whatever stops the run between the two renames, the old folder comes back.
            if scrap.exists() and old.exists() and not os.path.lexists(path):
                rename(old, path)
            raise
        discard_scrap(old)
    else:
        _move_folder(scrap, path)
    with contextlib.suppress(OSError):  # it is in place, whatever the system says of its disk
        sync_folder(path.parent)


def _move_folder(scrap: Path, path: Path) -> None:
    """Rename a folder that is not empty onto nothing or an empty folder; the system refuses
    anything else.
    """
    if os.name == "nt" and path.is_dir() and not any(path.iterdir()):
        os.rmdir(path)  # where even an empty folder is in the way
    try:
        rename(scrap, path)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR) and os.path.lexists(path):
            raise Occupied(f"{path} came into being while this run was at work") from None
        raise


def _first_inside(folder: Path, items: Iterable[str | Path]) -> str | Path | None:
    """Return the first of `items` that is `folder` or lies in it, by its name or through links."""

    @functools.cache
    def same(place: Path) -> bool:
        with contextlib.suppress(OSError):
            return place == absolute or os.path.samefile(place, folder)
        return False

    absolute = Path(os.path.abspath(folder))
    for item in items:
        for place in map(Path, (os.path.abspath(item), os.path.realpath(item))):
            if any(map(same, (place, *place.parents))):
                return item
    return None


def _is_known(entry: Path, name: str, known: Collection[str]) -> bool:
    """Whether an entry of a folder is a file of a known name, or a folder of nothing but such
    files.
    """
    if entry.is_dir() and not entry.is_symlink():
        inside = list(entry.iterdir())
        return bool(inside) and all(
            _is_known(below, f"{name}/{below.name}", known) for below in inside
        )
    return name in known and is_plain_file(entry)


def _abbreviate_names(names: list[str]) -> str:
    first = names[0] if names[0].isprintable() else ascii(names[0])
    return first if len(names) == 1 else f"{first} and {len(names) - 1} more"


def sync_files(folder: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def one(file: Path) -> None:
        with open(file, "r+b") as handle:  # some systems sync only what could be written
            os.fsync(handle.fileno())

    files = [file for file in folder.rglob("*") if file.is_file()]
    try:
        # a disk takes many files at once in little more time than one
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(one, files))
    except RuntimeError:  # the system starts no more threads
        for file in files:
            one(file)
    sync_folder(folder)
