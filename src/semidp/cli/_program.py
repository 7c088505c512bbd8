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
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn

import typer

from semidp._version import __version__
from semidp.cli._command import (
    JobGroup,
    PanelCommand,
    refuse_misplaced_options,
    refuse_missing_values,
    refuse_unreadable_words,
)
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
from semidp.cli.analyze import analyze, compare, explore
from semidp.cli.assess import cell_keys, opendp, swap
from semidp.cli.audit import audit
from semidp.cli.census import ESTIMATE_EXAMPLES, census, estimate, reproduce
from semidp.cli.demo import demo, schema
from semidp.cli.disclosure import disclosure
from semidp.cli.guarantee import guarantee
from semidp.cli.intervals import intervals, model
from semidp.cli.ledger import change, ledger, series
from semidp.cli.records import microdata, synthesize
from semidp.cli.release import combine, discard, release, resume
from semidp.cli.test import association
from semidp.cli.verify import check, check_approval, keys, show, sign
from semidp.errors import SemidpError
from semidp.promise.system import ENDING_SIGNALS
from semidp.publish.statistics.protocol.statistic import statistic_settings

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
    if parameter is not None and said.startswith("Input should be a valid number"):
        return f"{parameter.opts[0]} takes a number"
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
    cls=JobGroup,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

INTERRUPTED = 130
CLOSED_PIPE = 141
_SIGNALLED = 128  # what a shell adds to the number of the signal that ended a command
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
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    # Taken out of the arguments before they are read, wherever it stands: here for the help alone.
    log: Annotated[
        str | None, typer.Option(metavar="FILE", help="Add what was asked and said to this file.")
    ] = None,
) -> None:
    """Publish some statistics exactly and the rest with noise, with a guarantee that is honest
    about both.
    """


JOBS = {
    "Plan": (analyze, explore, compare, schema),
    "Publish": (release, resume, discard, demo, ledger, series, combine, synthesize, microdata),
    "Ask a release": (intervals, association, model, change),
    "Check a promise": (show, check, audit, guarantee, disclosure),
    "Studies": (census, reproduce),
}
"""What commands are for, in the order of the help; `assess` is a group of its own."""

COMMANDS: dict[Callable[..., None], tuple[str, tuple[str, ...]]] = {
    analyze: (
        "what publishing some totals exactly means",
        ("semidp analyze people.csv --table sex,region --exact sex --exact region",),
    ),
    release: (
        "publish tables and statistics, with a report",
        (
            (
                "semidp release people.csv --table sex,region --exact sex --exact region"
                " --mu 1 --out release"
            ),
            (
                "semidp release people.csv --group region --mean age --bounds age=0,100 --rho 0.5"
                " --out means"
            ),
            (
                "semidp release people.csv --odds-ratio sex,smoker,region --epsilon 1"
                " --out association"
            ),
        ),
    ),
    resume: (
        "finish a release that was killed or failed",
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
    keys: (
        "make keys that approve plans and sign releases",
        ("semidp plan keys officer.key",),
    ),
    sign: (
        "approve a plan before data are read",
        ("semidp plan sign plan1.toml --key officer.key",),
    ),
    check_approval: (
        "whether a plan and a release were approved",
        ("semidp plan check plan1.toml officer.key.pub",),
    ),
    explore: (
        "a page that shows what a plan would publish",
        ("semidp explore people.csv",),
    ),
    compare: (
        "plans side by side: errors and guarantees",
        ("semidp compare plan1.toml plan2.toml --data people.csv",),
    ),
    schema: (
        "the JSON Schema of a plan, a release, a ledger or totals",
        ("semidp schema release",),
    ),
    association: (
        "whether two features of a release are associated",
        ("semidp test release --rows sex --columns region",),
    ),
    intervals: (
        "intervals for what a release published",
        (
            "semidp intervals release",
            "semidp intervals release --of sex=f --among region=n --sampling",
        ),
    ),
    model: (
        "a logistic or log-linear model of a released table",
        ('semidp model release "sex ~ region"',),
    ),
    guarantee: (
        "what a release with exact totals really guarantees",
        (
            "semidp guarantee --rho 2.56 --adjacency 2 --report-delta 1e-10",
            "semidp guarantee --epsilon 1 --delta 1e-6 --exact sex --levels sex=f,m",
            "semidp guarantee --epsilon 1 --totals sexes.csv --totals regions.csv",
            "semidp guarantee release --also-known smoker --levels smoker=y,n",
        ),
    ),
    swap: (
        "what swapping records guarantees",
        ("semidp assess swap people.csv --rate 0.1 --match sex --over region --hold smoker",),
    ),
    cell_keys: (
        "what cell keys publish about one person",
        ("semidp assess cell-keys ptable.csv --cells 40",),
    ),
    opendp: (
        "a release of OpenDP, dp-accounting or DP-SGD",
        (
            (
                "semidp assess opendp --noise-multiplier 1.1 --sampling 0.01 --steps 500"
                " --adjacency 2"
            ),
        ),
    ),
    audit: (
        "attack a release, and see whether its claim survives",
        ("semidp audit release --samples 20000",),
    ),
    ledger: (
        "one budget for all releases of the same data",
        (
            "semidp ledger privacy.json --rho 1",
            "semidp ledger privacy.json",
            "semidp ledger quarters.json --rho 1 --series quarter --each-person 8 --consecutive",
        ),
    ),
    series: (
        "what each period of a series may spend",
        ("semidp series quarters.json",),
    ),
    change: (
        "what changed between releases of several periods",
        ("semidp change release june",),
    ),
    combine: (
        "one estimate from several releases",
        ("semidp combine release june --out both",),
    ),
    check: (
        "whether the guarantee follows from the definitions",
        ("semidp check release",),
    ),
    show: ("what a release holds, computed again", ("semidp show release",)),
    synthesize: (
        "records that fit a release",
        (
            "semidp synthesize release --out synthetic.csv",
            "semidp synthesize release --out several.csv --files 5",
        ),
    ),
    microdata: (
        "from data to synthetic records in one step",
        ("semidp microdata people.csv --exact sex --levels-from-data --rho 1 --out made.csv",),
    ),
    census: (
        "what the 2020 Census file P.L. 94-171 guarantees",
        ("semidp census --out census",),
    ),
    reproduce: (
        "the paper's figures, as published and corrected",
        ("semidp reproduce adjacency census --out studies",),
    ),
    demo: (
        "a first release, of data in the package",
        ("semidp demo", "semidp demo --data people.csv"),
    ),
}
"""Each command, what it answers, and examples for its help; the tests run them."""


def _write_epilog(examples: Sequence[str]) -> str:
    # A paragraph that starts with \b keeps its lines, so that an example can be pasted.
    return "\b\n" + "\n".join(("For example:", *(f"  {example}" for example in examples)))


def _with_estimates() -> typer.Typer:
    """``semidp census``, which is a command by itself, with the command ``estimate`` below it."""
    group = typer.Typer(
        callback=census,
        invoke_without_command=True,
        rich_markup_mode=None,
        subcommand_metavar="[estimate FOLDER ...]",
    )
    answer = "estimates for any area from the noisy measurements"
    epilog = _write_epilog(ESTIMATE_EXAMPLES)
    group.command("estimate", cls=PanelCommand, short_help=answer, epilog=epilog)(estimate)
    return group


def _add_commands() -> None:
    for job, commands in JOBS.items():
        for command in commands:
            answer, examples = COMMANDS[command]
            named: dict[str, Any] = {"short_help": answer, "epilog": _write_epilog(examples)}
            if command is census:
                app.add_typer(_with_estimates(), name="census", rich_help_panel=job, **named)
            else:
                name = "test" if command is association else None
                app.command(name, cls=PanelCommand, rich_help_panel=job, **named)(command)
    assess = typer.Typer(
        rich_markup_mode=None,
        help="Say what swapping, cell keys or another tool guarantees, or gives away.",
    )
    for command in (swap, cell_keys, opendp):
        answer, examples = COMMANDS[command]
        assess.command(cls=PanelCommand, short_help=answer, epilog=_write_epilog(examples))(command)
    approvals = typer.Typer(
        rich_markup_mode=None,
        help="Approve a plan before data are read, so that nothing else is carried out.",
    )
    for name, command in (("keys", keys), ("sign", sign), ("check", check_approval)):
        answer, examples = COMMANDS[command]
        approvals.command(
            name, cls=PanelCommand, short_help=answer, epilog=_write_epilog(examples)
        )(command)
    app.add_typer(
        approvals,
        name="plan",
        short_help="approve plans before data are read",
        rich_help_panel="Plan",
    )
    answer = "what swapping, cell keys or another tool gives away"
    app.add_typer(assess, name="assess", short_help=answer, rich_help_panel="Check a promise")


_add_commands()


def main() -> None:
    """Run the command line and leave with its exit code.

    It is 0 once what was asked for is done, 1 where an audit convicts, or where a release or a
    ledger contradicts what it should follow from, 2 for what the user can mend, 3 where an audit is
    inconclusive or a check confirms less than is stated, 70 for an error of the program, 130 after
    an interrupt, 143 after SIGTERM, 129 after SIGHUP, and 141 where the reader of stdout has gone
    and nothing else was asked for.
    """
    _open_closed_streams()
    for number in ENDING_SIGNALS:
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
        if number not in ENDING_SIGNALS:
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
        program = _program(tuple(statistic_settings()))
        refuse_misplaced_options(program, arguments)
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
