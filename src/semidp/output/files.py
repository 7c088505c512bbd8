"""Writing files so that nobody ever sees half of one, and nothing is lost that nobody agreed to
lose.

Everything is written under a dot name beside its destination and moved into place. Whoever writes
holds a lock for the destination; what a killed run leaves behind is recovered or removed by a later
run, once its lock is free. Nothing here knows what the files hold.
"""

import contextlib
import errno
import functools
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semidp.core.documents import from_json
from semidp.errors import InputError, Occupied, SemidpError

_SCRAP = re.compile(
    r"\.semidp-(?P<name>.+)\.(?:[0-9a-f]{8}(?:\.old)?|unfinished\.(?:old|json)|lock)", re.DOTALL
)
_OLD = ".old"
_UNFINISHED = "unfinished"  # what lasts when a run ends before its folder is whole
_RUN = "run"  # the key of a note under which the run is named that it is about
LARGEST = 2**30
"""Bytes of the largest file that is read whole."""
_BLOCK = 2**22  # bytes of a file that are hashed at once
# file systems take names of 255 bytes, and a scrap's name has 21 more than its tag
_LONGEST_TAG = 200
_HASHED = "sha256-"
_SETTLED = 600.0
"""Seconds for which a scrap is left alone even if its lock is free: a lock may not reach every
machine of a volume."""
_PATIENCE = 3.0
"""Seconds to wait for a destination that another run holds: long enough for one that only removes
scraps."""


def replace_file(
    path: str | Path, content: bytes | str | Iterable[bytes], *, force: bool = True
) -> None:
    """Write `content` to `path`, whole or not at all; without `force` only where there is nothing
    yet.

    Large content may come in parts. A file that is replaced passes its permissions on.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     replace_file(Path(folder) / "a.txt", "exact")
    ...     (Path(folder) / "a.txt").read_text()
    ...     replace_file(Path(folder) / "a.txt", "other", force=False)
    Traceback (most recent call last):
    semidp.errors.Occupied: ...a.txt already exists
    """
    path = Path(path)
    whole = content.encode() if isinstance(content, str) else content
    parts = [whole] if isinstance(whole, bytes) else whole
    with _plainly(path), _claimed(path, timeout=-1):
        _sweep(path)
        scrap = _scrap_beside(path)
        try:
            with open(scrap, "xb") as file:
                # Before the content, so that nobody reads it who may not read the file it replaces.
                _like(path, scrap)
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            if force:
                os.replace(scrap, path)
            else:
                _move_file(scrap, path)
            _sync_folder(path.parent)
        finally:
            scrap.unlink(missing_ok=True)


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
    with _place(path, check):
        scrap = _scrap_beside(path)
        scrap.mkdir()
        _like(path, scrap)
        try:
            yield scrap
            _sync(scrap)
            # Asked again: others may have put files there while the new ones were written.
            check()
            _into_place(scrap, path, force, _old_of(scrap))
        except KeyboardInterrupt:
            if scrap.exists():
                raise  # else the folder is in place already, and nothing is left to interrupt
        finally:
            # else nothing is at `path`, and this one is still to be recovered
            if not _old_of(scrap).exists():
                shutil.rmtree(scrap, ignore_errors=True)


@dataclass(frozen=True)
class Unfinished:
    """A folder that outlasts its run, and a note beside it that says which run it is of and how far
    that came.

    The folder is named after its run. A process that is left over from a run that was discarded or
    is finished finds no folder of that name any more, so that it can add nothing to a later run.

    Parameters
    ----------
    folder
        What becomes the destination when it is whole.
    run
        A random name, drawn once, and kept by whoever goes on with the folder.
    """

    folder: Path
    run: str

    @classmethod
    def new(cls, path: Path) -> "Unfinished":
        """Return the folder of a run that begins now, for the destination `path`; it is not made
        here.
        """
        run = secrets.token_hex(8)
        return cls(path.with_name(f"{_unfinished_stem(path)}-{run}"), run)

    @classmethod
    def left(cls, path: Path) -> "Unfinished | None":
        """Return what a run for `path` has left to go on with; None where its folder is in place
        already.
        """
        notes, folders = _notes(path), _unfinished_folders(path)
        run = document_at(notes).get(_RUN)
        if not isinstance(run, str):
            if folders and os.path.lexists(notes):  # it is never half written
                raise InputError(
                    f"{notes}, which says how far {path} came, is damaged: discard what is"
                    " unfinished"
                )
            return None
        folder = cls(path.with_name(f"{_unfinished_stem(path)}-{run}"), run)
        return folder if folder.folder in folders else None

    @property
    def notes(self) -> Path:
        """The file beside the folder that holds the note."""
        return self.folder.with_name(f"{self.folder.name.removesuffix(f'-{self.run}')}.json")

    def noted(self) -> Mapping[str, Any]:
        """Return what is noted of this run: nothing where the note is about another one, or
        gone.
        """
        document = document_at(self.notes)
        return document if document.get(_RUN) == self.run else {}

    @property
    def is_kept(self) -> bool:
        """Whether there is something to go on with: also where the note cannot be read, so that
        nothing is lost.
        """
        return (
            os.path.lexists(self.notes) and document_at(self.notes).get(_RUN, self.run) == self.run
        )

    def check(self) -> None:
        """Refuse to go on in a folder whose run was discarded or is over, also on another
        machine.
        """
        if not self.noted():
            raise InputError(
                "the run that this part belongs to was discarded or is over: nothing of it is"
                " stored"
            )

    def begin(self, facts: Mapping[str, Any]) -> None:
        """Note that there is something to go on with from now on; refuse where another run has just
        done so.
        """
        with self._written({**facts, _RUN: self.run}) as scrap:
            _move_file(scrap, self.notes)

    def note(self, **facts: Any) -> None:
        """Add facts to the note, which is whole at any time."""
        self.check()
        with self._written({**self.noted(), **facts, _RUN: self.run}) as scrap:
            os.replace(scrap, self.notes)

    def forget(self) -> None:
        """Take the note back: there is nothing to go on with."""
        self.notes.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _written(self, document: Mapping[str, Any]) -> Iterator[Path]:
        stem = self.notes.name.removesuffix(f".{_UNFINISHED}.json")
        scrap = self.notes.with_name(f"{stem}.{secrets.token_hex(4)}")
        try:
            with open(scrap, "x", encoding="utf-8") as file:
                json.dump(document, file)
                file.flush()
                os.fsync(file.fileno())
            yield scrap
            _sync_folder(scrap.parent)
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
    with _to_be_finished(path), _place(path, check):
        left = Unfinished.left(path)
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
            _sync(left.folder)
            check()
            clear(left.folder)
            # The old folder gets a name that no other run has used. Were a run killed between the
            # renames, the old folder would be put back, and this one would still be there to go on
            # with.
            _into_place(left.folder, path, force, _old_of(_scrap_beside(path)))
        except KeyboardInterrupt:
            if left.folder.exists():
                raise  # else the folder is in place already, and nothing is left to interrupt
        finally:
            if not left.is_kept:
                shutil.rmtree(left.folder, ignore_errors=True)
            elif not left.folder.exists():
                with contextlib.suppress(OSError):  # a note without its folder says nothing
                    left.forget()


def is_unfinished(path: str | Path) -> bool:
    """Whether a run has left something for `path` that can be gone on with or discarded."""
    path = Path(path)
    return os.path.lexists(_notes(path)) and bool(_unfinished_folders(path))


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
    with _plainly(path), _claimed(path, timeout=_PATIENCE):
        noted = document_at(_notes(path))
        _remove_unfinished(path)
    return noted


def _remove_unfinished(path: Path) -> None:
    """Remove every unfinished folder of `path`, and the note; the lock is held."""
    for folder in _unfinished_folders(path):
        aside = _scrap_beside(path)  # under that name nobody goes on with half of it
        os.rename(folder, aside)
        _discard(aside)
    _notes(path).unlink(missing_ok=True)


def _unfinished_folders(path: Path) -> list[Path]:
    """Return the folders of unfinished runs for `path`: one, and those of runs killed before they
    noted theirs.
    """
    pattern = re.compile(re.escape(f"{_unfinished_stem(path)}-") + "[0-9a-f]{16}")
    named = [entry for entry in _entries(path.parent) if pattern.fullmatch(entry.name)]
    return [entry for entry in named if entry.is_dir() and not entry.is_symlink()]


def _notes(path: Path) -> Path:
    return path.with_name(f"{_unfinished_stem(path)}.json")


def _unfinished_stem(path: Path) -> str:
    return f".semidp-{_tag(path)}.{_UNFINISHED}"


@contextlib.contextmanager
def _place(path: Path, check: Callable[[], None]) -> Iterator[None]:
    """Hold the place of a folder to write, swept and checked."""
    with _plainly(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _claimed(path, timeout=_PATIENCE):
            _sweep(path)
            check()
            yield


@contextlib.contextmanager
def _to_be_finished(path: Path) -> Iterator[None]:
    """Say with an error that there is something to go on with."""
    try:
        yield
    except SemidpError as error:
        if is_unfinished(path):
            error.needs = error.needs or _UNFINISHED
        raise


def durable(folder: Path) -> None:
    """Make what was written into a folder outlast a power failure."""
    _sync(folder)
    _sync_folder(folder.parent)


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
    with _plainly(path):
        if needed := _held(path, inputs):
            raise Occupied(f"{path} holds {needed}, which this run needs")
        if _held(path, [Path.cwd()]):
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
            raise Occupied(f"{path} holds {_listed(foreign)}, which would be lost")
        if entries and not force:
            raise Occupied(f"{path} already exists", replaceable=True)


def recover(path: str | Path) -> None:
    """Finish what a run left that was killed when it had moved the old `path` away and not yet put
    the new one there.

    The new folder was whole before the old one was touched, so it takes its place; the old one does
    where only that is left. Nothing happens where `path` exists, nor where the file system cannot
    be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     (Path(root) / ".semidp-release.0123abcd.old").mkdir()
    ...     recover(Path(root) / "release")
    ...     [folder.name for folder in Path(root).iterdir()]
    ['release']
    """
    path = Path(path)
    if os.path.lexists(path) or not any(_scraps(path, _OLD)):
        return
    with contextlib.suppress(InputError, OSError), _claimed(path, timeout=_PATIENCE):
        _recover(path)


@contextlib.contextmanager
def locked(file: Path, timeout: float = -1) -> Iterator[None]:
    """Hold the lock that is the file `file`, which stays; wait for it for `timeout` seconds, or for
    ever if negative.

    The operating system frees the lock when a process ends, however it ends. An `OSError` if it
    cannot be had, a `TimeoutError` if somebody else holds it for too long.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, locked(Path(folder) / "lock"):
    ...     with locked(Path(folder) / "lock", timeout=0):
    ...         pass
    Traceback (most recent call last):
    TimeoutError: another process holds the lock
    """
    from filelock import FileLock, Timeout

    if not file.parent.is_dir():  # some versions of the package would make the folder
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    # the package takes a folder where nothing can be made, such as /proc, for a lock that is held
    try:
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o644))
    except FileNotFoundError:
        raise OSError(errno.EACCES, "no file can be made in that folder") from None
    lock = FileLock(file)
    try:
        lock.acquire(timeout=timeout, poll_interval=0.01)
    except Timeout:
        raise TimeoutError("another process holds the lock") from None
    except NotImplementedError:
        raise OSError(errno.ENOTSUP, "the file system has no locks") from None
    try:
        yield
    finally:
        lock.release()


def read_plain(path: Path, within: Path | None = None) -> bytes:
    """Return the content of a regular file: no pipe or device, which may never end, and none that
    is too large.

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
    """Return the SHA-256 of a regular file of at most so many bytes, read in parts.

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


def document_at(path: Path) -> Mapping[str, Any]:
    """Return the JSON object that a file holds, and nothing where there is no such file.

    >>> document_at(Path("nowhere.json"))
    {}
    """
    try:
        document = from_json(read_plain(path)) if _is_plain_file(path) else {}
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


@contextlib.contextmanager
def _plainly(path: Path) -> Iterator[None]:
    """Turn what the operating system says into one sentence; its own text may hold less and never
    more.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"cannot write {path}: {reason.lower()}") from None


@contextlib.contextmanager
def _claimed(path: Path, timeout: float) -> Iterator[None]:
    """Hold the lock for a destination. Its file goes with the last holder, so that no folder fills
    with locks.

    A waiting process may be left with the lock of a file that is gone. Two then write at once, each
    under a name of its own, and the moves into place still decide.
    """
    file = path.with_name(f".semidp-{_tag(path)}.lock")
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(locked(file, timeout))
        except TimeoutError:
            raise Occupied(f"another run is writing {path}") from None
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                file.unlink()


def _into_place(scrap: Path, path: Path, force: bool, old: Path) -> None:
    """Move a whole folder to `path`: onto nothing or an empty folder; with `force` what is there is
    `old` meanwhile.
    """
    if force and path.is_dir() and any(path.iterdir()):
        try:
            os.rename(path, old)
            _move_folder(scrap, path)
        except BaseException:
            # Whatever stops the run between the two renames, the old folder comes back.
            if scrap.exists() and old.exists() and not os.path.lexists(path):
                os.rename(old, path)
            raise
        _discard(old)
    else:
        _move_folder(scrap, path)
    with contextlib.suppress(OSError):  # it is in place, whatever the system says of its disk
        _sync_folder(path.parent)


def _move_folder(scrap: Path, path: Path) -> None:
    """Rename a folder that is not empty onto nothing or an empty folder; the system refuses
    anything else.
    """
    if os.name == "nt" and path.is_dir() and not any(path.iterdir()):
        os.rmdir(path)  # where even an empty folder is in the way
    try:
        os.rename(scrap, path)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR) and os.path.lexists(path):
            raise Occupied(f"{path} came into being while this run was at work") from None
        raise


def _move_file(scrap: Path, path: Path) -> None:
    """Give a file a name that nothing has."""
    try:
        os.link(scrap, path)
    except OSError:  # the name is taken, or the file system has no second names
        if os.path.lexists(path):
            raise Occupied(f"{path} already exists", replaceable=True) from None
        os.rename(scrap, path)


def _recover(path: Path) -> None:
    """See `recover`; the lock is held."""
    for old in _scraps(path, _OLD):
        if os.path.lexists(path):
            return
        new = old.with_name(old.name.removesuffix(_OLD))
        # version 0.2 gave an unfinished folder that name
        whole = new.is_dir() and not new.name.endswith(_UNFINISHED)
        os.rename(new if whole else old, path)
        _discard(old)


def _sweep(path: Path) -> None:
    """Recover or remove what runs have left in the folder of `path`, whose lock is held.

    A scrap goes when it is old enough and the lock for its destination is free: to hold that lock
    is to know it.
    """
    names = {
        match["name"] for entry in _entries(path.parent) if (match := _SCRAP.fullmatch(entry.name))
    }
    for name in sorted(names):
        destination = path.with_name(name)
        # Somebody else's scraps: who can neither lock nor remove them leaves them.
        with contextlib.suppress(InputError, OSError):
            if name == _tag(path):
                _clean(path)
            elif not name.startswith(_HASHED):  # whose destination only a run for it knows
                # which also removes a lock that a killed run has left
                with _claimed(destination, timeout=0):
                    _clean(destination)


def _clean(path: Path) -> None:
    """Recover or remove what runs for `path` have left; its lock is held."""
    _recover(path)
    # of a run that is over, or was discarded
    if os.path.lexists(_notes(path)) and not _unfinished_folders(path):
        _notes(path).unlink()
    for scrap in _scraps(path):
        if _is_settled(scrap):
            _discard(scrap)


def _discard(scrap: Path) -> None:
    """Remove a scrap; one that could be recovered gets another name first, so that half of it never
    is.
    """
    with contextlib.suppress(OSError):
        if scrap.name.endswith(_OLD):
            aside = scrap.with_name(
                f"{scrap.name.removesuffix(_OLD).rpartition('.')[0]}.{secrets.token_hex(4)}"
            )
            os.rename(scrap, aside)
            scrap = aside
        if scrap.is_dir() and not scrap.is_symlink():
            shutil.rmtree(scrap, ignore_errors=True)
        else:
            scrap.unlink(missing_ok=True)


def _is_settled(scrap: Path) -> bool:
    try:
        return time.time() - scrap.lstat().st_mtime > _SETTLED
    except OSError:
        return False


def _scraps(path: Path, suffix: str = "") -> Iterator[Path]:
    """Yield the scraps of runs for the destination `path`, those with a suffix only if one is
    given.
    """
    old = f"(?:[0-9a-f]{{8}}|{_UNFINISHED}){re.escape(_OLD)}"
    kind = old if suffix == _OLD else f"(?:[0-9a-f]{{8}}|{old})"
    pattern = re.compile(re.escape(f".semidp-{_tag(path)}.") + kind)
    return (entry for entry in _entries(path.parent) if pattern.fullmatch(entry.name))


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _scrap_beside(path: Path) -> Path:
    return path.with_name(f".semidp-{_tag(path)}.{secrets.token_hex(4)}")


def _old_of(scrap: Path) -> Path:
    return scrap.with_name(scrap.name + _OLD)


def _tag(path: Path) -> str:
    """Return what scraps for a destination are called after: its name, or a hash where that would
    get too long.
    """
    if len(os.fsencode(path.name)) <= _LONGEST_TAG:
        return path.name
    return _HASHED + hashlib.sha256(os.fsencode(path.name)).hexdigest()


def _held(folder: Path, items: Iterable[str | Path]) -> str | Path | None:
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


def _like(old: Path, new: Path) -> None:
    """Give a new file or folder the permissions of the one it will replace, and its group where the
    system lets us.
    """
    with contextlib.suppress(OSError):
        old_status = old.stat()
        if hasattr(os, "chown"):
            with contextlib.suppress(OSError):
                os.chown(new, -1, old_status.st_gid)
        new.chmod(stat.S_IMODE(old_status.st_mode))


def _is_known(entry: Path, name: str, known: Collection[str]) -> bool:
    """Whether an entry of a folder is a file of a known name, or a folder of nothing but such
    files.
    """
    if entry.is_dir() and not entry.is_symlink():
        inside = list(entry.iterdir())
        return bool(inside) and all(
            _is_known(below, f"{name}/{below.name}", known) for below in inside
        )
    return name in known and _is_plain_file(entry)


def _is_plain_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _listed(names: list[str]) -> str:
    first = names[0] if names[0].isprintable() else ascii(names[0])
    return first if len(names) == 1 else f"{first} and {len(names) - 1} more"


def _sync_folder(folder: Path) -> None:
    """Make moves in a folder outlast a power failure, where the system can open folders."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _sync(folder: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def one(file: Path) -> None:
        with open(file, "r+b") as handle:  # some systems sync only what could be written
            os.fsync(handle.fileno())

    # a disk takes many files at once in little more time than one
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, [file for file in folder.rglob("*") if file.is_file()]))
    _sync_folder(folder)
