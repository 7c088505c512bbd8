"""Folders that appear only when they are complete, and the folder of a release that outlasts its
run.
"""

import contextlib
import errno
import functools
import json
import os
import secrets
import shlex
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from semidp.errors import InputError, Occupied, SemidpError
from semidp.promise.documents import from_json, is_litter, is_plain_file, read_document
from semidp.promise.files import (
    PATIENCE,
    UNFINISHED,
    claim_destination,
    copy_permissions,
    discard_scrap,
    may_exist,
    move_file,
    notes_path,
    old_path,
    plain_errors,
    rename,
    replace,
    scrap_beside,
    sweep,
    unfinished_folders,
    unfinished_stem,
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
    """Yield an empty folder that becomes `path` when the block succeeds, and vanishes when it
    fails.

    Whatever is at `path` is replaced only under the conditions of `check_place`, checked before and
    after the block. The old folder stays until the new one takes its place by two renames; a
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
    """Make the content of a folder survive a power failure."""
    sync_files(folder)
    sync_folder(folder.parent)


def check_place(
    path: Path,
    *,
    force: bool = False,
    ours: Callable[[Path], Collection[str]] = lambda folder: (),
    inputs: Iterable[str | Path] = (),
) -> None:
    """Refuse an output folder without a name of its own, or with content that nobody agreed to
    lose.

    Parameters
    ----------
    path
        The output folder, which must be missing or empty.
    force
        Also replace a folder in which every file is one of `ours`.
    ours
        Which files of a folder were written by the kind of run that would replace them.
    inputs
        Files that are still needed: a folder that holds one of these is never replaced, nor is the
        current folder.

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
    """Move a complete folder to `path`, which must be missing or empty; with `force` its content is
    moved to `old` meanwhile.
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
    return (name in known or is_litter(entry)) and is_plain_file(entry)


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


_RUN = "run"  # the key of a note under which the run is named that it is about


@frozen
class Unfinished:
    """A folder that outlasts its run, with a note that identifies the run and its progress.

    The folder is named after its run. A leftover process of a discarded or finished run finds no
    folder of that name, so it can add nothing to a later run.

    Parameters
    ----------
    folder
        The folder that becomes the destination when it is complete.
    run_name
        A random name, drawn once, and kept by every run that continues with the folder.
    """

    folder: Path
    run_name: str

    @classmethod
    def new(cls, path: Path) -> "Unfinished":
        """Return the folder of a new run for the destination `path`, without creating
        it.
        """
        run_name = secrets.token_hex(8)
        return cls(path.with_name(f"{unfinished_stem(path)}-{run_name}"), run_name)

    @classmethod
    def from_notes(cls, path: Path) -> "Unfinished | None":
        """Return what a run for `path` has left to continue from; None if its folder is already
        in place.
        """
        notes = notes_path(path)
        with plain_errors(path):
            folders, run_name = unfinished_folders(path), _read_note(notes).get(_RUN)
        if not isinstance(run_name, str):
            if folders and may_exist(notes):  # it is never half written
                raise InputError(
                    f"{notes}, which says how far {path} came, is damaged: discard what is"
                    " unfinished"
                )
            return None
        folder = cls(path.with_name(f"{unfinished_stem(path)}-{run_name}"), run_name)
        return folder if folder.folder in folders else None

    @property
    def notes(self) -> Path:
        """The file next to the folder that holds the note."""
        return self.folder.with_name(f"{self.folder.name.removesuffix(f'-{self.run_name}')}.json")

    def read_notes(self) -> Mapping[str, Any]:
        """Return the note of this run: empty if it is about another run, or
        gone.
        """
        document = read_document(self.notes)
        # A note that cannot be read is not gone: what it holds must not be written over.
        if not document and may_exist(self.notes):
            raise InputError(f"cannot read {self.notes}, which says how far this run came")
        return document if document.get(_RUN) == self.run_name else {}

    @property
    def is_kept(self) -> bool:
        """Whether there is something to continue from; also true if the note cannot be
        read, so nothing is lost.
        """
        return (
            may_exist(self.notes)
            and read_document(self.notes).get(_RUN, self.run_name) == self.run_name
        )

    def check(self) -> None:
        """Refuse to continue in a folder whose run was discarded or is over, also on another
        machine.
        """
        if not self.read_notes():
            raise InputError(
                "the run that this part belongs to was discarded or is over: nothing of it is"
                " stored"
            )

    def begin(self, facts: Mapping[str, Any]) -> None:
        """Note that there is something to continue from; refuse if another run has just done
        so.
        """
        with self._write_scrap({**facts, _RUN: self.run_name}) as scrap:
            move_file(scrap, self.notes)

    def note(self, **facts: Any) -> None:
        """Add facts to the note, which is complete at any time."""
        self.check()
        with self._write_scrap({**self.read_notes(), **facts, _RUN: self.run_name}) as scrap:
            replace(scrap, self.notes)

    def forget(self) -> None:
        """Withdraw the note: there is nothing to continue from."""
        self.notes.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _write_scrap(self, document: Mapping[str, Any]) -> Iterator[Path]:
        stem = self.notes.name.removesuffix(f".{UNFINISHED}.json")
        scrap = self.notes.with_name(f"{stem}.{secrets.token_hex(4)}")
        try:
            with open(scrap, "x", encoding="utf-8") as file:
                json.dump(document, file)
                file.flush()
                os.fsync(file.fileno())
            yield scrap
            sync_folder(scrap.parent)
        finally:
            scrap.unlink(missing_ok=True)


@contextlib.contextmanager
def lasting_folder(
    path: str | Path,
    *,
    resume: bool = False,
    force: bool = False,
    ours: Callable[[Path], Collection[str]] = lambda folder: (),
    inputs: Iterable[str | Path] = (),
    clear: Callable[[Path], None] = lambda folder: None,
) -> Iterator[Unfinished]:
    """Yield a folder that becomes `path` when the block succeeds, and stays for a later run when
    it fails.

    It stays only once `Unfinished.begin` has noted it, and then only `discard_unfinished` removes
    it. Whenever a run is killed, `path` is unchanged or the new folder, or `recover` restores it.

    Parameters
    ----------
    path, force, ours, inputs
        As for `new_folder`.
    resume
        Continue with the folder that an earlier run has left; refuse to begin a new one.
    clear
        Removes, when the folder is whole, what only an unfinished one needs.

    Examples
    --------
    >>> import tempfile
    >>> root = tempfile.TemporaryDirectory()
    >>> with (
    ...     contextlib.suppress(ZeroDivisionError),
    ...     lasting_folder(f"{root.name}/release") as left,
    ... ):
    ...     left.begin({})
    ...     1 / 0
    >>> with lasting_folder(f"{root.name}/release", resume=True) as left:
    ...     (left.folder / "whole").touch()
    >>> os.listdir(root.name), os.listdir(f"{root.name}/release")
    (['release'], ['whole'])
    >>> root.cleanup()
    """
    path = Path(path)
    check = functools.partial(check_place, path, force=force, ours=ours, inputs=list(inputs))
    check()
    with _to_be_finished(path), held_place(path, check):
        left = Unfinished.from_notes(path)
        if left is not None and not resume:
            raise InputError(
                f"an earlier run has left {path} unfinished: finish it, or discard what it has left"
            )
        if resume and left is None:
            raise InputError(f"there is no unfinished release at {path}: nothing to resume")
        if left is None:
            _remove_unfinished(path)
            left = Unfinished.new(path)
            left.folder.mkdir()
        try:
            yield left
            sync_files(left.folder)
            check()
            clear(left.folder)
            # The old folder gets a name that no other run has used. Were a run killed between the
            # renames, the old folder would be put back, and this one would still be there to go on
            # with.
            put_in_place(left.folder, path, force, old_path(scrap_beside(path)))
        except KeyboardInterrupt:
            if left.folder.exists():
                raise  # else the folder is in place already, and nothing is left to interrupt
        finally:
            # The folder may be in place, and nothing that fails from here on makes that untrue.
            with contextlib.suppress(OSError):
                if not left.is_kept:
                    shutil.rmtree(left.folder, ignore_errors=True)
                elif not left.folder.exists():
                    left.forget()  # a note without its folder says nothing


def is_unfinished(path: str | Path) -> bool:
    """Whether a run has left something for `path` that can be resumed or discarded."""
    path = Path(path)
    try:
        return may_exist(notes_path(path)) and bool(unfinished_folders(path))
    except OSError:  # which is no proof that nothing is there
        return True


def discard_unfinished(
    path: str | Path, before: Callable[[Mapping[str, Any]], None] = lambda noted: None
) -> Mapping[str, Any]:
    """Remove what an unfinished run for `path` has left, and return what it had noted; refuse if
    there is nothing.

    `before` is given the note, and may refuse while everything is still there.

    >>> discard_unfinished("nowhere/release")
    Traceback (most recent call last):
    semidp.errors.InputError: there is no unfinished release at nowhere/release: nothing\
 to discard
    """
    path = Path(path)
    if not is_unfinished(path):
        raise InputError(f"there is no unfinished release at {path}: nothing to discard")
    with plain_errors(path), claim_destination(path, timeout=PATIENCE):
        noted = _read_note(notes_path(path))
        before(noted)
        _remove_unfinished(path)
    return noted


def _read_note(notes: Path) -> dict[str, Any]:
    """Return a note, empty if there is none or it is damaged; an `OSError` if it cannot be read."""
    if not may_exist(notes):
        return {}
    try:
        noted = from_json(notes.read_bytes())
    except ValueError:
        return {}
    return noted if isinstance(noted, dict) else {}


def _remove_unfinished(path: Path) -> None:
    """Remove every unfinished folder of `path`, and the note; the lock is held."""
    for folder in unfinished_folders(path):
        aside = scrap_beside(path)  # under that name nobody goes on with half of it
        rename(folder, aside)
        discard_scrap(aside)
    notes_path(path).unlink(missing_ok=True)


@contextlib.contextmanager
def _to_be_finished(path: Path) -> Iterator[None]:
    """Say with an error that there is something to go on with."""
    try:
        yield
    except SemidpError as error:
        if is_unfinished(path) and not error.needs:
            error.needs, error.names = UNFINISHED, (shlex.quote(str(path)),)
        raise
