"""``semidp check``: run the checker, a program of one file that shares no code with the rest."""

import subprocess
import sys
from pathlib import Path

import typer

import semidp.cli._options as o
from semidp.cli._command import command, option
from semidp.cli._output import echo
from semidp.errors import InputError

CHECKER = Path(__file__).parent.parent / "checker" / "semidp_check.py"


@command
def check(
    *,
    folder: Path = o.RELEASE,
    seconds: float = option("How long to list datasets and to hunt for a pair.", "N", default=10.0),
    printing: o.Printing,
) -> None:
    """Recompute what a release guarantees, from the definitions alone. Exit code 0: confirmed, 1:
    false, 3: weaker than stated, or not covered.

    The checker reads the plan, the exact totals, the laws of the noise and the stated guarantee
    from release.json. It does not ask whether the files follow from the noise (`semidp show` does),
    nor whether the guarantee was charged (`semidp ledger --check`).
    """
    if not seconds > 0:
        raise InputError(f"--seconds takes a number above 0, not {seconds:g}")
    options = [str(folder), "--seconds", repr(seconds), "--format", printing.format.value]
    done = subprocess.run(
        [sys.executable, "-S", "-I", str(CHECKER), *options],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode == 2:
        raise InputError(done.stderr.strip().removeprefix("semidp_check: "))
    if done.returncode not in (0, 1, 3):
        raise RuntimeError("the checker ended with an error of its own")
    echo(done.stdout.rstrip("\n"))
    if done.returncode:
        raise typer.Exit(done.returncode)
