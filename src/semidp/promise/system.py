"""What differs between operating systems: signals, forks, folders that can be opened, permissions.

Locks come from `filelock`, which knows the systems. Nothing else in the package asks which
system it runs on, or what that system offers.
"""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ENDING_SIGNALS: tuple[signal.Signals, ...] = tuple(
    signal.Signals[name]
    for name in ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
    if hasattr(signal, name)
)
"""The signals that end a command, as far as the system has them."""


def run_after_fork(function: Callable[[], None]) -> None:
    """Call a function in every forked child, on systems that fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


@contextlib.contextmanager
def hide_interrupts() -> Iterator[None]:
    """Start processes in the block that never see an interrupt from the terminal.

    Where the system has no signal masks, workers ignore interrupts from their first line on
    (`ignore_terminal`).
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # its own start would let interrupts through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_terminal() -> None:
    """Ignore what a terminal sends to all its processes: the parent decides."""
    for number in ENDING_SIGNALS:
        if number is not signal.SIGTERM:
            signal.signal(number, signal.SIG_IGN)


def die_with_parent() -> None:
    """Let the system kill this process when its parent ends, where it can (Linux).

    It then kills even a solver that lets no thread of Python run.
    """
    if sys.platform == "linux":
        kill_with_parent = 1  # PR_SET_PDEATHSIG
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(kill_with_parent, int(signal.SIGKILL), 0, 0, 0)


def open_for_reading(path: Path) -> int:
    """Open a file without waiting, even if it is a pipe that nobody writes to; return its handle.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     os.close(open_for_reading(Path(file.name)))
    """
    return os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))


def sync_folder(folder: Path) -> None:
    """Make moves in a folder survive a power failure, if the system can open folders."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def copy_group(group: int, path: Path) -> None:
    """Give a file or folder to a group, if the system has groups and allows it."""
    if hasattr(os, "chown"):
        with contextlib.suppress(OSError):
            os.chown(path, -1, group)
