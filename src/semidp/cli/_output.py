"""What every command prints with: results on stdout, progress and warnings on stderr, and a log.

The library raises facts; which options mend them is said here. ``--log FILE`` keeps what was asked
for, what was said on stderr, and how it ended, a line each with the time. Nothing is logged that is
not also printed or typed: no data, and no password, even where one was typed into an address.
"""

import contextlib
import json
import math
import os
import re
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import typer

from semidp._version import __version__
from semidp.errors import InputError, Occupied, SemidpError
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.exact import number
from semidp.promise.progress import Progress, silent
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.tradeoff.function import Tradeoff
from semidp.publish.pipeline import charge_note, charge_told
from semidp.publish.results.texts import align_columns
from semidp.publish.settings import name_options
from semidp.publish.sources.conditions import quote_column
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


SCHEMA_VERSION = 1
"""The version of every JSON document that the command line prints; it grows when a field changes
its meaning."""


class Format(StrEnum):
    """How a command prints its result."""

    text = "text"
    json = "json"


# What a terminal may take for a command, or what changes the order in which it shows other
# characters.
_COMMANDS = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]"
)


_LONG_WORD = re.compile(r"\S{1000,}")  # nobody reads it, and to look for passwords takes minutes


def harmless(text: str) -> str:
    """Return text with every character that a terminal may obey written out, as JSON would write
    it.

    Levels, names and warnings come from files of strangers.

    >>> print(harmless("\\x1b[2Jsouth"))
    \\u001b[2Jsouth
    """
    return _COMMANDS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def echo(text: str = "", *, err: bool = False) -> None:
    """Print lines that a terminal shows as they are."""
    # Levels and names come from files: whoever prints them here cannot forget to defuse them.
    shown = harmless(text)
    if err:
        # An address may have been typed where a file or a name belongs.
        shown = _LONG_WORD.sub(lambda match: match[0][:40].partition(":")[0] + "…", shown)
        shown = "\n".join(map(mask_passwords, shown.split("\n")))
    typer.echo(shown, err=err)
    if err:
        run_log.say(shown)


def print_rows(rows: Iterable[tuple[str, str]], width: int = 10) -> None:
    """Print lines that start with what they are about.

    >>> print_rows([("exact", "sex"), ("budget", "mu = 1")])
    exact      sex
    budget     mu = 1
    """
    for name, text in rows:
        echo(f"{name:<{width}} {text}")


def say(text: str) -> None:
    """Print sentences, wrapped for the terminal."""
    from rich.console import Console

    Console(highlight=False).print(harmless(text), markup=False)


def found_out(curve: Tradeoff, false_alarms: float) -> str:
    """Return how often the best attacker with a share of `false_alarms` finds out, in percent,
    rounded up.

    >>> from semidp.promise.tradeoff.budget import gaussian
    >>> found_out(gaussian(1), 0.05)
    '26.0%'
    """
    # The argument of a curve is one less the type I error.
    power = 1 - float(curve(1 - false_alarms))
    thousandths = math.ceil(power * 1000 - 1e-6)
    return f"{min(thousandths, 1000) / 10:.1f}%"


def grid(
    left: Sequence[str], right: Sequence[str] = (), last: Sequence[str] = (), **settings: Any
) -> Any:
    """Return an empty table of Rich, with columns of words, of numbers, and of words at the end."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="", **settings)
    for name in left:
        table.add_column(name)
    for name in right:
        table.add_column(name, justify="right")
    for name in last:
        table.add_column(name)
    return table


def print_grid(table: Any) -> None:
    """Print a table of `grid`; square brackets in it are no markup."""
    from rich.console import Console

    Console(highlight=False, markup=False).print(table)


def print_columns(rows: Sequence[Sequence[str]], words: int = 1) -> None:
    """Print lines with so many columns of words, and of numbers after them; and an empty line."""
    for line in align_columns(rows, words):
        echo(line)
    echo()


def print_json(document: dict[str, Any]) -> None:
    """Print a result for machines, with its `schema_version` first."""
    echo(
        json.dumps(
            plain_values({"schema_version": SCHEMA_VERSION, **document}),
            indent=2,
            ensure_ascii=False,
        )
    )


def kind_and_a(adjacency: Adjacency) -> dict[str, Any]:
    """Return an adjacency for machines.

    >>> from semidp.promise.spaces.adjacency import Ball
    >>> kind_and_a(Ball(3))
    {'kind': 'ball', 'a': 3}
    """
    return adjacency.to_json()


def plain_values(value: Any) -> Any:
    """Turn arrays, fractions and infinities into what JSON can hold.

    >>> plain_values({"rho": Fraction(2, 5), "l2": np.float64(2.0), "bound": math.inf})
    {'rho': 0.4, 'l2': 2.0, 'bound': None}
    """
    if isinstance(value, dict):
        return {str(key): plain_values(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_values(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain_values(value.tolist())
    if isinstance(value, np.generic):
        return plain_values(value.item())
    if isinstance(value, Fraction):
        return number(value)
    # JSON has no infinity: a bound that is none becomes null.
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def notice(sentence: str) -> None:
    """Print what is going on on stderr."""
    echo(f"semidp: {sentence}", err=True)


@contextlib.contextmanager
def naming_options(force: bool, option: str = "--out") -> Iterator[None]:
    """Say with which options to write elsewhere, where something is in the way."""
    try:
        yield
    except Occupied as error:
        replacing = ", or replace it with --force" if error.replaceable and not force else ""
        raise InputError(f"{error.message}: choose another {option}{replacing}") from None


@contextlib.contextmanager
def in_place(what: str) -> Iterator[None]:
    """Print about something that has been written: a full or closed stdout is said on stderr, and
    is no failure.
    """
    # The result is in place: an interrupt from here on must not be told as a loss.
    over.set()
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, KeyboardInterrupt, SystemExit) as error:
        silence_stdout()
        # Rich's name for it: exit 1
        reason = "interrupted" if isinstance(error, KeyboardInterrupt) else "broken pipe"
        if isinstance(error, OSError):
            reason = (error.strerror or type(error).__name__).lower()
        complain(f"{what} is in place; not all could be printed about it: {reason}")


def silence_stdout() -> None:
    """Send what is still to be printed nowhere, so that the end of the process does not fail on
    it.
    """
    # Python flushes stdout when it ends, and would fail there on a closed pipe.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(sentence: str) -> None:
    """Print one line on stderr, if it takes one."""
    with contextlib.suppress(OSError):
        echo(f"semidp: {' '.join(sentence.split())}", err=True)


interrupt_notes: list[Callable[[], str | None]] = []
"""What to say of a command that is interrupted, each from what is on disk at that moment."""
over = threading.Event()
"""Set once a command has nothing left that an interrupt could stop, or has said that it was
interrupted."""


def interrupted_text() -> str:
    """Return what is said of an interrupted command: one sentence.

    >>> interrupted_text()
    'interrupted; no release was written'
    """
    said = [aside() for aside in interrupt_notes] or ["no release was written"]
    return "; ".join(["interrupted", *(sentence for sentence in said if sentence)])


def watch_folder(folder: Path) -> Callable[[], str]:
    """Return what says, at any later moment, whether a new folder has taken its place."""

    def identity() -> int | None:
        try:
            return folder.stat().st_ino
        except OSError:
            return None

    # The name may have been taken before: only another folder at it is the new release.
    before = identity()
    return lambda: (
        "no release was written"
        if identity() in (None, before)
        else f"the release {folder} is in place"
    )


@contextlib.contextmanager
def charge_said(book: Ledger | None) -> Iterator[None]:
    """Say so where a release fails after it has charged its ledger.

    What others charge meanwhile is not told, nor what an earlier run of the same release was
    charged.
    """
    if book is not None:
        book.account()  # a file that holds no ledger is refused before anything is read
    before = () if book is None else book.own_charges

    def note_charge() -> str | None:
        return charge_note(book, before)

    # An interrupt may leave without unwinding, so what it says is prepared beforehand.
    interrupt_notes.append(note_charge)
    try:
        with charge_told(book):
            yield
    except KeyboardInterrupt:
        raise  # what is aside is said with the interrupt
    except SemidpError as error:
        interrupt_notes.remove(note_charge)
        note = note_charge()
        if note is None:
            raise
        raise InputError(f"{error.message}; {note}", needs=error.needs, names=error.names) from None
    except BaseException:
        interrupt_notes.remove(note_charge)
        note = note_charge()
        if note is not None:
            complain(note)
        raise
    interrupt_notes.remove(note_charge)


@contextlib.contextmanager
def progress_bar(quiet: bool = False) -> Iterator[Progress]:
    """Yield a `Progress` that draws a bar on a terminal, and is silent anywhere else."""
    if quiet or not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def report(task: str, done: float, total: float | None) -> None:
            # What follows the colon changes on the way; the bar stays one.
            name = task.partition(":")[0]
            if name not in tasks:
                tasks[name] = bars.add_task(task, total=total)
            bars.update(tasks[name], description=task, completed=done, total=total)

        yield report


HINTS = {
    "levels": "⟨levels {first}=a,b⟩ or --schema FILE, ⟨exact {first}⟩, or --levels-from-data",
    "nested levels": (
        "--schema FILE with a tree or a lookup, ⟨exact {first}⟩, or --levels-from-data"
    ),
    "repeated names": '--schema FILE with nest and names = "repeat" for {all}',
    "margin": "⟨exact {all}⟩",
    "own columns": "⟨exact units:{all}⟩, or ⟨derived {last}⟩",
    "adjacency": "--adjacency N",
    "bounds": "⟨bounds {first}=0,100⟩",
    "grid": "⟨grid {first}=100⟩",
    "table": "--table a,b",
    "group": "--group a",
    "factors": "--on a,b",
    "quantile level": "--set quantile_level=0.95",
    "request": "--table a,b, --group a --mean b, or --regress b --on a",
    "from": "--from TABLE",
    "sheet": "--from SHEET",
    "declared levels": (
        "⟨levels {first}=a,b⟩ names all of them, in the letters and capitals of the data; codes of"
        " missing values are --set na=NA,-9; --where leaves out rows such as totals"
    ),
    "bins": "⟨bins {first}=,0,18,⟩ has no lower and no upper end",
    "null level": (
        "⟨null_level {first}=unknown⟩, with ⟨levels {first}=a,b⟩ or ⟨bins {first}=0,18,65⟩; or"
        " leave these rows out, such as a row of totals: ⟨where {column} IS NOT NULL⟩; fill merged"
        " cells in first"
    ),
    "empty": "--set allow_empty=true",
    "two levels": "--where, --bins or --levels",
    "memory": "--partition, --table with fewer features or at a coarser depth, or --set memory=8GB",
    "partition": "--nest state,county --partition state",
    "period": "--period {first}",
    "unfinished": "semidp resume {first} or semidp discard {first}",
    "ledger": "semidp ledger FILE --rho 1",
    "linked files": "--units-out FILE",
}
"""What `SemidpError.needs` says, and the options that mend it."""


def append_hint(error: SemidpError) -> str:
    """Return the sentence of an error with the options that mend it.

    >>> append_hint(SemidpError("a(t) is not known: give a", needs="adjacency"))
    'a(t) is not known: give a (--adjacency N)'
    >>> append_hint(SemidpError("they overlap", needs="margin", names=("age class", "sex")))
    "they overlap (--exact 'age class,sex')"
    """
    sentence, hint = name_options(error.message), HINTS.get(error.needs)
    if hint is None:
        return sentence
    first = error.names[0] if error.names else ""
    last = error.names[-1] if error.names else ""
    every = ",".join(error.names)
    named = hint.format(first=first, last=last, all=every, column=quote_column(first))
    return f"{sentence} ({name_options(named)})"


def check_picture(path: Path | None) -> None:
    """Refuse a picture of a kind that is not drawn, before anything is computed."""
    if path is not None and path.suffix not in (".png", ".svg"):
        raise InputError("--picture writes a .png or a .svg file")
