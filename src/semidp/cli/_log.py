"""``--log FILE``: what was asked for, what was said on stderr, and how it ended, a line each with
the time.

Nothing is logged that is not also printed or typed: no data, and no password, even where one was
typed into an address.
"""

import re
import shlex
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from semidp._version import __version__
from semidp.errors import InputError
from semidp.publish.sources.contract import mask_passwords

_OPTION = "--log"
_LINE = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00 ")


class RunLog:
    """The file that one command is logged to; without one nothing is written."""

    def __init__(self) -> None:
        self._file: Path | None = None
        self._started = 0.0

    def open(self, arguments: Sequence[str]) -> list[str]:
        """Find the file among the arguments of a command, say what was asked for, and return the
        asked.

        >>> RunLog().open(["show", "release"])
        ['show', 'release']
        >>> RunLog().open(["show", "--log"])
        Traceback (most recent call last):
        semidp.errors.InputError: --log takes the name of a file
        """
        asked: list[str] = []
        names: list[str] = []
        # Taken out by hand, before the options are read: a mistake in those is logged, too.
        words = iter(arguments)
        for word in words:
            if word == _OPTION:
                names.append(next(words, ""))
            elif word.startswith(f"{_OPTION}="):
                names.append(word.partition("=")[2])
            else:
                asked.append(word)
        self._file, self._started = None, time.monotonic()
        if not names:
            return asked
        if len(names) > 1:
            raise InputError("--log is given twice: keep one")
        # A word that begins with a dash is the next option: the file was forgotten.
        if not names[0] or names[0].startswith("-"):
            raise InputError("--log takes the name of a file")
        try:
            _refuse_other_files(Path(names[0]))
            self._file = Path(names[0])
            # Before the command runs: what cannot be logged is refused while nothing is spent.
            self._write(f"semidp {__version__}: semidp {shlex.join(map(mask_passwords, asked))}")
        except OSError:
            self._file = None
            raise InputError(f"cannot write to the log {names[0]}") from None
        return asked

    def say(self, text: str) -> None:
        """Log what was printed on stderr; a log that takes no more is no reason to fail."""
        try:
            for line in text.splitlines():
                self._write(line)
        except OSError:
            self._file = None

    def close(self, code: int) -> None:
        """Say how the command ended."""
        self.say(f"exit code {code} after {time.monotonic() - self._started:.1f} s")
        self._file = None

    def _write(self, line: str) -> None:
        if self._file is None:
            return
        # Opened anew for each line, so that nothing is lost where the command is killed.
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with self._file.open("a", encoding="utf-8") as file:
            file.write(f"{now} {line}\n")


def _refuse_other_files(path: Path) -> None:
    """Refuse to add lines to a file that does not begin as a log does."""
    if not path.is_file():  # new, or a stream such as /dev/stderr
        return
    with path.open("rb") as file:
        start = file.read(32)
    if start and not _LINE.match(start):
        raise InputError(f"{path} is not a log of semidp: name a new file for --log")


run_log = RunLog()
"""The log of the command that runs."""
