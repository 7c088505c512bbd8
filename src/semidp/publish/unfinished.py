"""Folders that outlast a run that ends early, so that a later run goes on with them.

A note beside the folder says which run it is of and how far that came. How folders take their
places is in `files`.
"""

import contextlib
import functools
import json
import os
import secrets
import shlex
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semidp.errors import InputError, SemidpError
from semidp.promise.documents import read_document
from semidp.promise.files import (
    PATIENCE,
    UNFINISHED,
    claim_destination,
    discard_scrap,
    may_exist,
    move_file,
    notes_path,
    old_path,
    plain_errors,
    rename,
    replace,
    scrap_beside,
    unfinished_folders,
    unfinished_stem,
)
from semidp.promise.system import sync_folder
from semidp.publish.folders import check_place, held_place, put_in_place, sync_files

_RUN = "run"  # the key of a note under which the run is named that it is about


@dataclass(frozen=True)
class Unfinished:
    """A folder that outlasts its run, with a note of the run it belongs to and how far that came.

    The folder is named after its run. A process that is left over from a run that was discarded or
    is finished finds no folder of that name any more, so that it can add nothing to a later run.

    Parameters
    ----------
    folder
        What becomes the destination when it is whole.
    run_name
        A random name, drawn once, and kept by whoever goes on with the folder.
    """

    folder: Path
    run_name: str

    @classmethod
    def new(cls, path: Path) -> "Unfinished":
        """Return the folder of a run that begins now, for the destination `path`; it is not made
        here.
        """
        run_name = secrets.token_hex(8)
        return cls(path.with_name(f"{unfinished_stem(path)}-{run_name}"), run_name)

    @classmethod
    def from_notes(cls, path: Path) -> "Unfinished | None":
        """Return what a run for `path` has left to go on with; None where its folder is in place
        already.
        """
        notes, folders = notes_path(path), unfinished_folders(path)
        run_name = read_document(notes).get(_RUN)
        if not isinstance(run_name, str):
            if folders and os.path.lexists(notes):  # it is never half written
                raise InputError(
                    f"{notes}, which says how far {path} came, is damaged: discard what is"
                    " unfinished"
                )
            return None
        folder = cls(path.with_name(f"{unfinished_stem(path)}-{run_name}"), run_name)
        return folder if folder.folder in folders else None

    @property
    def notes(self) -> Path:
        """The file beside the folder that holds the note."""
        return self.folder.with_name(f"{self.folder.name.removesuffix(f'-{self.run_name}')}.json")

    def read_notes(self) -> Mapping[str, Any]:
        """Return what is noted of this run: nothing where the note is about another one, or
        gone.
        """
        document = read_document(self.notes)
        # A note that cannot be read is not gone: what it holds must not be written over.
        if not document and may_exist(self.notes):
            raise InputError(f"cannot read {self.notes}, which says how far this run came")
        return document if document.get(_RUN) == self.run_name else {}

    @property
    def is_kept(self) -> bool:
        """Whether there is something to go on with: also where the note cannot be read, so that
        nothing is lost.
        """
        return (
            may_exist(self.notes)
            and read_document(self.notes).get(_RUN, self.run_name) == self.run_name
        )

    def check(self) -> None:
        """Refuse to go on in a folder whose run was discarded or is over, also on another
        machine.
        """
        if not self.read_notes():
            raise InputError(
                "the run that this part belongs to was discarded or is over: nothing of it is"
                " stored"
            )

    def begin(self, facts: Mapping[str, Any]) -> None:
        """Note that there is something to go on with from now on; refuse where another run has just
        done so.
        """
        with self._write_scrap({**facts, _RUN: self.run_name}) as scrap:
            move_file(scrap, self.notes)

    def note(self, **facts: Any) -> None:
        """Add facts to the note, which is whole at any time."""
        self.check()
        with self._write_scrap({**self.read_notes(), **facts, _RUN: self.run_name}) as scrap:
            replace(scrap, self.notes)

    def forget(self) -> None:
        """Take the note back: there is nothing to go on with."""
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
    """Yield a folder that becomes `path` when the block ends well, and stays for a later run when
    it does not.

    It stays only once `Unfinished.begin` has noted it, and then no run removes it but by
    `discard_unfinished`. Whenever a run is killed, `path` is what it was or the new folder, or
    `recover` makes it what it was.

    Parameters
    ----------
    path, force, ours, inputs
        As for `new_folder`.
    resume
        Go on with the folder that an earlier run has left; refuse to begin another.
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
            raise InputError(f"there is no unfinished {path} to go on with")
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
    """Whether a run has left something for `path` that can be gone on with or discarded."""
    path = Path(path)
    return os.path.lexists(notes_path(path)) and bool(unfinished_folders(path))


def discard_unfinished(path: str | Path) -> Mapping[str, Any]:
    """Remove what an unfinished run for `path` has left, and return what it had noted; refuse where
    there is nothing.

    >>> discard_unfinished("nowhere/release")
    Traceback (most recent call last):
    semidp.errors.InputError: there is no unfinished nowhere/release to discard
    """
    path = Path(path)
    if not is_unfinished(path):
        raise InputError(f"there is no unfinished {path} to discard")
    with plain_errors(path), claim_destination(path, timeout=PATIENCE):
        noted = read_document(notes_path(path))
        _remove_unfinished(path)
    return noted


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
