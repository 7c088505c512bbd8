"""Writing files so that nobody ever sees half of one, and nothing is lost without
consent.

Everything is written under a dot name next to its destination and moved into place. The writer
holds a lock for the destination; what a killed run leaves behind is recovered or removed by a later
run, once its lock is free. Nothing here knows the content of the files.
"""

import contextlib
import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from semidp.errors import InputError, Occupied
from semidp.promise.system import copy_group, sync_folder

_SCRAP = re.compile(
    r"\.semidp-(?P<name>.+)\.(?:[0-9a-f]{8}(?:\.old)?|unfinished\.json|lock)", re.DOTALL
)

_OLD = ".old"

UNFINISHED = "unfinished"  # what remains if a run ends before its folder is complete

# file systems take names of 255 bytes, and a scrap's name has 21 more than its tag
_LONGEST_TAG = 200

_HASHED = "sha256-"

# the errors of file systems without flock
_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}

_SETTLED = 600.0
"""Seconds for which a scrap is left alone even if its lock is free: a lock may not reach every
machine of a volume."""

PATIENCE = 3.0
"""Seconds to wait for a destination that another run holds: long enough for one that only removes
scraps."""


def replace_file(
    path: str | Path, content: bytes | str | Iterable[bytes], *, force: bool = True
) -> None:
    """Write `content` to `path`, whole or not at all; without `force` only if there is nothing
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
    with plain_errors(path), claim_destination(path, timeout=-1):
        sweep(path)
        scrap = scrap_beside(path)
        try:
            with open(scrap, "xb") as file:
                # Before the content, so nobody reads it who may not read the file it replaces.
                copy_permissions(path, scrap)
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            if force:
                replace(scrap, path)
            else:
                move_file(scrap, path)
            sync_folder(path.parent)
        finally:
            scrap.unlink(missing_ok=True)


def unfinished_folders(path: Path) -> list[Path]:
    """Return the folders of unfinished runs for `path`: one, and those of runs killed before they
    noted theirs.

    A folder that cannot be listed is an error: treating it as empty would forget runs that were
    paid for.
    """
    pattern = re.compile(re.escape(f"{unfinished_stem(path)}-") + "[0-9a-f]{16}")
    try:
        entries = sorted(path.parent.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    named = [entry for entry in entries if pattern.fullmatch(entry.name)]
    return [entry for entry in named if entry.is_dir() and not entry.is_symlink()]


def notes_path(path: Path) -> Path:
    return path_beside(path, f"{unfinished_stem(path)}.json")


def path_beside(path: Path, name: str) -> Path:
    """Return the path of this name next to another; refuse one that has no name, such as a dot."""
    if not path.name:
        raise InputError(f"{path} is not the name of a file or folder: give it by its name")
    return path.with_name(name)


def unfinished_stem(path: Path) -> str:
    return f".semidp-{scrap_tag(path)}.{UNFINISHED}"


def recover(path: str | Path) -> None:
    """Finish the work of a run that was killed after moving the old `path` away and before putting
    the new one there.

    The new folder was complete before the old one was touched, so it takes its place; if only the
    old one is left, it returns. Nothing happens if `path` exists or the file system cannot be
    written.

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
    with contextlib.suppress(InputError, OSError), claim_destination(path, timeout=PATIENCE):
        _recover(path)


@contextlib.contextmanager
def hold_lock(file: Path, timeout: float = -1, guarded: Path | None = None) -> Iterator[None]:
    """Hold the lock file `file`, and leave it in place. Wait at most `timeout` seconds, or forever
    if negative.

    The operating system frees the lock when a process ends, however it ends. Anybody who may write
    the `guarded` file may take its lock. An `OSError` if the lock cannot be taken, a `TimeoutError`
    if somebody else holds it for too long.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, hold_lock(Path(folder) / "lock"):
    ...     with hold_lock(Path(folder) / "lock", timeout=0):
    ...         pass
    Traceback (most recent call last):
    TimeoutError: another process holds the lock
    """
    from filelock import FileLock, Timeout

    if not file.parent.is_dir():  # some versions of the package would create the folder
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    # the package takes a folder where nothing can be made, such as /proc, for a lock that is held
    try:
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o666))
    except FileNotFoundError:
        raise OSError(errno.EACCES, "no file can be made in that folder") from None
    except PermissionError:
        if not file.exists():
            raise
        raise PermissionError(
            errno.EACCES, f"its lock {file} belongs to somebody else: ask for its permissions"
        ) from None
    if guarded is not None:
        copy_permissions(guarded, file)
        with contextlib.suppress(OSError):  # a file that is read-only still has a lock to take
            file.chmod(stat.S_IMODE(file.stat().st_mode) & 0o666 | 0o600)
    # Without locks the package would fall back to a file that a killed run leaves locked.
    lock = FileLock(file, fallback_to_soft=False)
    try:
        lock.acquire(timeout=timeout, poll_interval=0.01)
    except Timeout:
        raise TimeoutError("another process holds the lock") from None
    except (OSError, NotImplementedError) as error:
        if isinstance(error, OSError) and error.errno not in _NO_LOCKS:
            raise
        raise OSError(
            errno.ENOTSUP, "its file system has no file locks: choose a place on another one"
        ) from None
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def plain_errors(path: Path) -> Iterator[None]:
    """Turn an error of the operating system into one sentence, which may say less but never
    more.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"cannot write {path}: {reason.lower()}") from None


@contextlib.contextmanager
def claim_destination(path: Path, timeout: float) -> Iterator[None]:
    """Hold the lock for a destination. The last holder removes its file, so no folder fills
    with locks.

    A waiting process may be left with the lock of a file that is gone. Two then write at once, each
    under a name of its own, and the moves into place still decide.
    """
    file = path.with_name(f".semidp-{scrap_tag(path)}.lock")
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(hold_lock(file, timeout, path))
        except TimeoutError:
            raise Occupied(f"another run is writing {path}") from None
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                file.unlink()


def rename(source: Path, target: Path) -> None:
    """Rename a file or folder. The result counts, not what the system reports.

    A file server may rename, lose its answer, and refuse the same request when it is repeated.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     _ = (Path(root) / "scrap").write_text("whole")
    ...     rename(Path(root) / "scrap", Path(root) / "table.csv")
    ...     (Path(root) / "table.csv").read_text()
    'whole'
    """
    moved = source.lstat()
    try:
        os.rename(source, target)
    except OSError:
        if os.path.lexists(source) or not _is_same(target, moved):
            raise


def replace(source: Path, target: Path) -> None:
    """Replace a file by another; see `rename`."""
    moved = source.lstat()
    try:
        os.replace(source, target)
    except OSError:
        if os.path.lexists(source) or not _is_same(target, moved):
            raise


def link(source: Path, target: Path) -> None:
    """Give a file a second, unused name; see `rename`."""
    try:
        os.link(source, target)
    except OSError:
        if not _is_same(target, source.lstat()):
            raise


def real_path(path: str | Path) -> Path:
    """Return where a path leads, through links; links that lead to each other are an error later.

    (`Path.resolve` raises a `RuntimeError` there.)
    """
    return Path(os.path.realpath(path))


def lies_inside(path: Path, folder: Path) -> bool:
    """Whether a path leads into a folder, through links."""
    return real_path(folder) in real_path(path).parents


def may_exist(path: Path) -> bool:
    """Whether something is at a path, as far as the system tells: an error does not prove that
    nothing is.
    """
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _is_same(path: Path, known: os.stat_result) -> bool:
    """Whether a path is a file or folder that was seen before."""
    try:
        return os.path.samestat(path.lstat(), known)
    except OSError:
        return False


def move_file(scrap: Path, path: Path) -> None:
    """Give a file an unused name."""
    try:
        link(scrap, path)
    except OSError:  # the name is taken, or the file system has no second names
        if os.path.lexists(path):
            raise Occupied(f"{path} already exists", replaceable=True) from None
        rename(scrap, path)


def _recover(path: Path) -> None:
    """See `recover`; the lock is held."""
    olds = list(_scraps(path, _OLD))
    if os.path.lexists(path) or not olds:
        return
    # A run that was killed after the second rename leaves its old folder too, and nothing new: that
    # one was replaced long ago. So a run with both folders comes first, and the newest of several.
    old = max(olds, key=lambda scrap: (_replacement_folder(scrap) is not None, _write_time(scrap)))
    rename(_replacement_folder(old) or old, path)
    discard_scrap(old)


def _replacement_folder(old: Path) -> Path | None:
    """The whole folder that was to replace `old`, if the run was killed before it did."""
    new = old.with_name(old.name.removesuffix(_OLD))
    return new if new.is_dir() else None


def _write_time(folder: Path) -> int:
    """When files were last put into a folder; a rename does not change it."""
    return folder.lstat().st_mtime_ns


def sweep(path: Path) -> None:
    """Recover or remove what runs have left in the folder of `path`, whose lock is held.

    A scrap is removed when it is old enough and the lock for its destination is free, which holding
    the lock proves.
    """
    names = {
        match["name"]
        for entry in list_entries(path.parent)
        if (match := _SCRAP.fullmatch(entry.name))
    }
    for name in sorted(names):
        destination = path.with_name(name)
        # Somebody else's scraps: if they can be neither locked nor removed, they stay.
        with contextlib.suppress(InputError, OSError):
            if name == scrap_tag(path):
                _clean(path)
            elif not name.startswith(_HASHED):  # whose destination only a run for it knows
                # which also removes a lock that a killed run has left
                with claim_destination(destination, timeout=0):
                    _clean(destination)


def _clean(path: Path) -> None:
    """Recover or remove what runs for `path` have left; its lock is held."""
    _recover(path)
    # of a run that is over, or was discarded
    if os.path.lexists(notes_path(path)) and not unfinished_folders(path):
        notes_path(path).unlink()
    for scrap in _scraps(path):
        if _is_settled(scrap):
            discard_scrap(scrap)


def discard_scrap(scrap: Path) -> None:
    """Remove a scrap. One that could be recovered is renamed first, so half of it is never
    recovered.
    """
    with contextlib.suppress(OSError):
        if scrap.name.endswith(_OLD):
            aside = scrap.with_name(
                f"{scrap.name.removesuffix(_OLD).rpartition('.')[0]}.{secrets.token_hex(4)}"
            )
            rename(scrap, aside)
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
    ending = re.escape(suffix) if suffix else f"(?:{re.escape(_OLD)})?"
    pattern = re.compile(re.escape(f".semidp-{scrap_tag(path)}.") + f"[0-9a-f]{{8}}{ending}")
    return (entry for entry in list_entries(path.parent) if pattern.fullmatch(entry.name))


def list_entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def scrap_beside(path: Path) -> Path:
    return path.with_name(f".semidp-{scrap_tag(path)}.{secrets.token_hex(4)}")


def old_path(scrap: Path) -> Path:
    return scrap.with_name(scrap.name + _OLD)


def scrap_tag(path: Path) -> str:
    """Return the tag of scraps for a destination: its name, or a hash if that is too
    long.
    """
    if len(os.fsencode(path.name)) <= _LONGEST_TAG:
        return path.name
    return _HASHED + hashlib.sha256(os.fsencode(path.name)).hexdigest()


def copy_permissions(old: Path, new: Path) -> None:
    """Give a new file or folder the permissions of the one it will replace, and its group where the
    system lets us.
    """
    with contextlib.suppress(OSError):
        old_status = old.stat()
        copy_group(old_status.st_gid, new)
        new.chmod(stat.S_IMODE(old_status.st_mode))
