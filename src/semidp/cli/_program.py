"""The program: its commands with their examples, and how it ends.

A command raises `SemidpError` for everything a user can mend; here it becomes one sentence and exit
code 2. Nothing else an exception says is printed, because messages of drivers and parsers quote
data. Typer words a command line that cannot be read for programmers ("Input should be a valid
integer"); that is reworded here.
"""

import contextlib
import functools
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer

from semidp._version import __version__
from semidp.cli._command import refuse_missing_values, refuse_unreadable_words
from semidp.cli._output import (
    append_hint,
    complain,
    echo,
    interrupt_notes,
    interrupted_text,
    over,
    run_log,
    silence_stdout,
)
from semidp.cli.analyze import analyze, compare
from semidp.cli.audit import audit
from semidp.cli.census import ESTIMATE_EXAMPLES, census, estimate, reproduce
from semidp.cli.disclosure import disclosure
from semidp.cli.explore import explore
from semidp.cli.guarantee import guarantee
from semidp.cli.intervals import intervals, model
from semidp.cli.ledger import ledger
from semidp.cli.release import check, combine, demo, release, show
from semidp.cli.resume import discard, resume
from semidp.cli.synthesize import synthesize
from semidp.cli.test import odds_ratio
from semidp.errors import SemidpError
from semidp.publish.statistics.registry import chosen_fields

_NUMBERS = ("Input should be greater", "Input should be less", "Input should be a valid integer")
"""How Typer begins what it says of a number that is none, too small or too large."""


def usage_sentence(error: typer.TyperException) -> str:
    """Return what is wrong with a command line, and where its options are explained."""
    sentence = _reword_error(error).rstrip(".")
    context = getattr(error, "ctx", None)
    if context is None:
        return sentence
    return f"{sentence}; see '{context.command_path} --help'"


def _reword_error(error: typer.TyperException) -> str:
    sentence = error.format_message() if hasattr(error, "format_message") else str(error)
    parameter = getattr(error, "param", None)
    said = str(getattr(error, "message", ""))
    if parameter is not None and said.startswith(_NUMBERS):
        return f"{parameter.opts[0]} takes {_numbers(parameter)}"
    return sentence.replace("Value error, ", "")


def _numbers(parameter: Any) -> str:
    """Say which whole numbers an option takes."""
    low, high = parameter.min, parameter.max
    if low is None and high is None:
        return "a whole number"
    if high is None:
        return f"a whole number from {low} on"
    return f"a whole number from {low} to {high}"


app = typer.Typer(
    name="semidp",
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

INTERRUPTED = 130
CLOSED_PIPE = 141
_SIGNALLED = 128  # what a shell adds to the number of the signal that ended a command
# no SIGHUP on Windows
_ENDING = (signal.SIGINT, signal.SIGTERM, *filter(None, [getattr(signal, "SIGHUP", None)]))
_PATIENCE = 1.5
"""Seconds that an interrupted command is given to end by itself."""
_interrupts: list[int] = []
"""The interrupts that have arrived; a library may have turned one into an error of its own, such as
a failed import."""


def _version(wanted: bool) -> None:
    if wanted:
        echo(f"semidp {__version__}")
        raise typer.Exit


@app.callback()
def semidp(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")
    ] = False,
    # Taken out of the arguments before they are read, wherever it stands: here for the help alone.
    log: Annotated[
        str | None, typer.Option(metavar="FILE", help="Log what any command was asked and said.")
    ] = None,
) -> None:
    """Publish some statistics exactly and the rest with noise, with a guarantee that is honest
    about both.
    """


COMMANDS: dict[Callable[..., None], tuple[str, tuple[str, ...]]] = {
    analyze: (
        "what publishing these totals exactly would mean",
        ("semidp analyze people.csv --table sex,region --exact sex --exact region",),
    ),
    release: (
        "publish exact totals and a noisy table, with a report",
        (
            (
                "semidp release people.csv --table sex,region --exact sex --exact region"
                " --mu 1 --out release"
            ),
            (
                "semidp release people.csv --group region --mean age --bounds age=0,100 --rho 0.5"
                " --out means"
            ),
        ),
    ),
    resume: (
        "finish a release that was killed or failed, at no further cost",
        ("semidp resume release",),
    ),
    discard: (
        "write off a release that was not finished",
        ("semidp discard release",),
    ),
    disclosure: (
        "what exact totals or published tables give away",
        (
            "semidp disclosure people.csv --exact sex,region --exact region,smoker",
            "semidp disclosure --totals sexes.csv --totals regions.csv",
            "semidp disclosure table.csv --suppressed c --below 5 --total Total",
        ),
    ),
    explore: (
        "a page that shows what a plan would publish",
        ("semidp explore people.csv",),
    ),
    compare: (
        "plans side by side: errors and guarantees",
        ("semidp compare plan1.toml plan2.toml --data people.csv",),
    ),
    odds_ratio: (
        "a test of association: private in data, free in a release",
        (
            "semidp test people.csv --rows sex --columns smoker --epsilon 1",
            "semidp test people.csv --rows sex --columns smoker --strata region --mu 1",
            "semidp test release --rows sex --columns region",
        ),
    ),
    intervals: (
        "intervals for what a release published",
        (
            "semidp intervals release",
            "semidp intervals release --of sex=f --among region=n --sampling",
        ),
    ),
    model: (
        "a logistic or log-linear model of what a release published",
        ('semidp model release "sex ~ region"',),
    ),
    guarantee: (
        "what an existing release really guarantees",
        (
            "semidp guarantee --rho 2.56 --a 2 --report-delta 1e-10",
            "semidp guarantee --epsilon 1 --delta 1e-6 --exact sex --levels sex=f,m",
            "semidp guarantee --epsilon 1 --totals sexes.csv --totals regions.csv",
            "semidp guarantee --noise-multiplier 1.1 --sampling 0.01 --steps 500 --a 2",
            "semidp guarantee release --also-known smoker --levels smoker=y,n",
            (
                "semidp guarantee --swap 0.1 --match sex --swap-over region --hold smoker --data"
                " people.csv"
            ),
            "semidp guarantee --ptable ptable.csv --cells 40",
        ),
    ),
    audit: (
        "attack a release, and see whether its claim survives",
        ("semidp audit release --samples 20000",),
    ),
    ledger: (
        "open a ledger, or see what one has spent",
        ("semidp ledger privacy.json --rho 1", "semidp ledger privacy.json"),
    ),
    combine: (
        "one estimate from several releases of the same records",
        ("semidp combine release june --out both",),
    ),
    check: (
        "whether its guarantee follows from the definitions",
        ("semidp check release",),
    ),
    show: ("what a release holds and guarantees", ("semidp show release",)),
    synthesize: (
        "records with the exact totals of a release, near its tables",
        (
            "semidp synthesize release --out synthetic.csv",
            "semidp synthesize release --out several.csv --files 5",
        ),
    ),
    census: (
        "what the 2020 Census file P.L. 94-171 guarantees",
        ("semidp census --out census",),
    ),
    reproduce: (
        "the paper's figures, as published and corrected",
        ("semidp reproduce adjacency census --out studies",),
    ),
    demo: ("a full release of an embedded real table", ("semidp demo --out demo",)),
}
"""Each command, what it answers, and examples for its help; the tests run them."""


def _with_estimates() -> typer.Typer:
    """``semidp census``, which is a command by itself, with the command ``estimate`` below it."""
    group = typer.Typer(
        callback=census,
        invoke_without_command=True,
        rich_markup_mode=None,
        subcommand_metavar="[estimate FOLDER ...]",
    )
    lines = ("For example:", *(f"  {example}" for example in ESTIMATE_EXAMPLES))
    answer = "estimates for any area from the noisy measurements"
    group.command("estimate", short_help=answer, epilog="\b\n" + "\n".join(lines))(estimate)
    return group


for command, (answer, examples) in COMMANDS.items():
    name = "test" if command is odds_ratio else None
    # A paragraph that starts with \b keeps its lines, so that an example can be pasted.
    epilog = "\b\n" + "\n".join(("For example:", *(f"  {example}" for example in examples)))
    if command is census:
        app.add_typer(_with_estimates(), name="census", short_help=answer, epilog=epilog)
    else:
        app.command(name, short_help=answer, epilog=epilog)(command)


def main() -> None:
    """Run the command line and leave with its exit code.

    It is 0 once what was asked for is done, 1 where an audit convicts, or where a release or a
    ledger contradicts what it should follow from, 2 for what the user can mend, 3 where an audit is
    inconclusive or a check confirms less than is stated, 70 for an error of the program, 130 after
    an interrupt, 143 after SIGTERM, 129 after SIGHUP, and 141 where the reader of stdout has gone
    and nothing else was asked for.
    """
    _open_closed_streams()
    for number in _ENDING:
        # A shell starts background commands with SIGINT ignored, and that is kept.
        if signal.getsignal(number) not in (signal.SIG_IGN, None):
            signal.signal(number, _interrupt)
    _watch_interrupts()
    code = run(sys.argv[1:])
    if code:
        silence_stdout()
    # then a solver may be at work in a thread, for which Python would wait
    if code and _interrupts:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


def _open_closed_streams() -> None:
    """Stand in for streams that were closed before the start: stdout then fails like a full one,
    stderr takes all.

    Their numbers must not go to files that are opened later, which would receive what is printed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # takes the lowest number that is free
            os.open(os.devnull, os.O_RDWR if number == 2 else os.O_RDONLY)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  (for as long as we run)
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  (for as long as we run)


def _interrupt(number: int, frame: Any) -> NoReturn:
    _interrupts.append(number)
    raise KeyboardInterrupt


def _watch_interrupts() -> None:
    """Leave in time, too, where an interrupt meets a computation that goes on for long.

    Python runs `_interrupt` between two of its own steps, and one step may be a solver at work for
    a minute. Where a thread runs the solver, Python waits for the thread. So the system also writes
    the signal to a socket, and a thread of ours reads it. To leave as if killed is safe at any
    moment: what is unfinished is found by the next run.
    """
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    try:
        signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    except ValueError:  # not the main thread, which signals would go to
        return
    try:
        threading.Thread(target=_leave_in_time, args=(ours, theirs), daemon=True).start()
    except RuntimeError:  # no more threads: an interrupt may take longer
        signal.set_wakeup_fd(-1)
        ours.close()
        theirs.close()


def _leave_in_time(ours: socket.socket, _kept_open: socket.socket) -> None:
    while number := int.from_bytes(ours.recv(1)):
        if number not in _ENDING:
            continue
        # The orderly end comes first: it closes what is open and puts the terminal right.
        time.sleep(_PATIENCE)
        # else a server has its own way to end
        if not over.is_set() and signal.getsignal(number) is _interrupt:
            if sys.stderr is not None and sys.stderr.isatty():
                sys.stderr.write("\x1b[?25h")  # a progress bar may have hidden the cursor
            complain(interrupted_text())
            os._exit(_SIGNALLED + number)


@functools.cache
def _program(fields: tuple[str, ...]) -> Any:
    """Return the commands with their options, read off the functions once for the fields that
    statistics declare.
    """
    for command in COMMANDS:
        if hasattr(command, "declare"):
            command.declare()
    return typer.main.get_command(app)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code.

    >>> run(["--version"])
    semidp ...
    0
    """
    # One process may run several commands: nothing of the last one is said of this one.
    interrupt_notes.clear()
    over.clear()
    code = _run(arguments)
    run_log.close(code)
    return code


def _run(arguments: list[str]) -> int:
    try:
        refuse_unreadable_words(arguments)
        arguments = run_log.open(arguments)
        program = _program(tuple(chosen_fields()))
        refuse_missing_values(program, arguments)
        result = program(args=arguments or ["--help"], prog_name="semidp", standalone_mode=False)
        if result == INTERRUPTED:  # Typer turns the interrupt into its exit code
            raise KeyboardInterrupt
        over.set()
        if sys.stdout is not None:
            sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        if _interrupts or isinstance(error, (typer.Abort, KeyboardInterrupt)):
            over.set()
            complain(interrupted_text())
            return _SIGNALLED + _interrupts[0] if _interrupts else INTERRUPTED
        return _failure(error)


def _failure(error: Exception | SystemExit) -> int:
    """Say what went wrong in one sentence, and return the exit code for it."""
    # Only messages of our own are printed in full: they quote no data.
    if isinstance(error, SemidpError):
        return _complain(append_hint(error))
    if isinstance(error, typer.TyperException):
        return _complain(usage_sentence(error))
    # the latter is what Typer makes of the former
    if isinstance(error, (BrokenPipeError, SystemExit)):
        return CLOSED_PIPE
    # what it says is about the system; a file name in it is not repeated
    if isinstance(error, OSError):
        return _complain(
            f"the operating system refused: {(error.strerror or type(error).__name__).lower()}"
        )
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        return _complain(
            "the operating system starts no more threads: end other programs, or raise the limit"
            " of processes (ulimit -u)"
        )
    if isinstance(error, MemoryError):
        return _complain("not enough memory for this table: use fewer features or coarser levels")
    # Whoever sets this sees the message with the data in it, and has asked to.
    if os.environ.get("SEMIDP_DEBUG"):
        raise error
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{os.path.basename(place.filename)}:{place.lineno}"
    # The message itself may quote data, so only its kind and place are shown.
    return _complain(f"internal error ({type(error).__name__} at {where}); please report it") and 70


def _complain(sentence: str) -> int:
    complain(sentence)
    return 2
