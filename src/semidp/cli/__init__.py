"""The command line: parse, call, print. One file a command; what they share is in `_options` and `_output`.

A command raises `SemidpError` for everything a user can mend; here it becomes one sentence and exit code 2. Nothing
else an exception says is printed, because messages of drivers and parsers quote data.
"""

import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Annotated

import typer

from semidp._version import __version__
from semidp.cli.analyze import analyze
from semidp.cli.audit import audit
from semidp.cli.census import census
from semidp.cli.guarantee import guarantee
from semidp.cli.ledger import ledger
from semidp.cli.release import demo, release, show
from semidp.cli.reproduce import reproduce
from semidp.cli.test import odds_ratio
from semidp.engines.contract import QUERY_THREAD
from semidp.errors import SemidpError

app = typer.Typer(
    name="semidp",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

INTERRUPTED = 130


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"semidp {__version__}")
        raise typer.Exit


@app.callback()
def semidp(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Publish some statistics exactly and the rest with noise, with a guarantee that is honest about both."""


COMMANDS: dict[Callable[..., None], tuple[str, tuple[str, ...]]] = {
    analyze: (
        "what publishing these totals exactly would mean",
        ("semidp analyze people.csv --table sex,region --invariant sex --invariant region",),
    ),
    release: (
        "publish exact totals and a noisy table, with a report",
        (
            "semidp release people.csv --table sex,region --invariant sex --invariant region --mu 1 --out release",
            "semidp release people.csv --group region --mean age --bounds age=0,100 --rho 0.5 --out means",
        ),
    ),
    odds_ratio: (
        "a private test of association in a 2x2 table",
        ("semidp test people.csv --rows sex --columns smoker --epsilon 1",),
    ),
    guarantee: ("what an existing release really guarantees", ("semidp guarantee --rho 2.56 --a 2 --delta 1e-10",)),
    audit: ("attack a release, and see whether its claim survives", ("semidp audit release --samples 20000",)),
    ledger: (
        "open a ledger, or see what one has spent",
        ("semidp ledger privacy.json --rho 1", "semidp ledger privacy.json"),
    ),
    show: ("what a release holds and guarantees", ("semidp show release",)),
    census: ("what the 2020 Census products guarantee", ("semidp census --out census",)),
    reproduce: (
        "the paper's figures, as published and corrected",
        ("semidp reproduce adjacency census --out studies",),
    ),
    demo: ("a full release of an embedded real table", ("semidp demo --out demo",)),
}
"""Each command, what it answers, and examples for its help; the tests run them."""

for command, (answer, examples) in COMMANDS.items():
    name = "test" if command is odds_ratio else None
    # A paragraph that starts with \b keeps its lines, so that an example can be pasted.
    epilog = "\b\n" + "\n".join(("For example:", *(f"  {example}" for example in examples)))
    app.command(name, short_help=answer, epilog=epilog)(command)
app.command("odds-ratio", hidden=True)(odds_ratio)


def main() -> None:
    """Run the command line and leave with its exit code: 0, 2 for what the user can mend, 130 when interrupted."""
    code = run(sys.argv[1:])
    if any(thread.name == QUERY_THREAD for thread in threading.enumerate()):  # given up: it does not end by itself
        sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code.

    >>> run(["--version"])
    semidp ...
    0
    """
    try:
        result = app(args=arguments or ["--help"], prog_name="semidp", standalone_mode=False)
        if result == INTERRUPTED:  # Typer turns the interrupt into its exit code
            raise KeyboardInterrupt
        return result if isinstance(result, int) else 0
    except SemidpError as error:
        return _complain(str(error))
    except typer.TyperException as error:
        return _complain(_usage(error))
    except (typer.Abort, KeyboardInterrupt):
        _complain("interrupted; no release was written")
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # what it says is about the system; a file name in it is not repeated
        return _complain(f"the operating system refused: {(error.strerror or type(error).__name__).lower()}")
    except MemoryError:
        return _complain("not enough memory for this table: use fewer features or coarser levels")
    except Exception as error:
        if os.environ.get("SEMIDP_DEBUG"):
            raise
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(place.filename)}:{place.lineno}"
        # The message itself may quote data, so only its kind and place are shown.
        return _complain(f"internal error ({type(error).__name__} at {where}); please report it") and 70


def _complain(sentence: str) -> int:
    typer.echo(f"semidp: {' '.join(sentence.split())}", err=True)
    return 2


def _usage(error: typer.TyperException) -> str:
    sentence = error.format_message() if hasattr(error, "format_message") else str(error)
    sentence = sentence.rstrip(".").replace("Value error, ", "")
    context = getattr(error, "ctx", None)
    return f"{sentence}; see '{context.command_path} --help'" if context is not None else sentence
