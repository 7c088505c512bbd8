"""``semidp resume`` and ``semidp discard``: finish a release that ended early, or write it off."""

import contextlib
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import semidp.cli._options as o
from semidp.cli._command import argument, command, option
from semidp.cli._output import echo, in_place, print_json, print_rows, progress_bar
from semidp.cli.release import ask_password, carry_out, print_release
from semidp.errors import InputError
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.files import may_exist
from semidp.publish.folders import Unfinished, discard_unfinished, is_unfinished
from semidp.publish.plan import Plan
from semidp.publish.plan_settings import build_run_options, open_data
from semidp.publish.release_files import REPORT
from semidp.publish.settings import Given
from semidp.publish.signing import Approval

OUT = argument("The folder that the release was to be written to.", "OUT")


@command
def resume(
    *,
    out: Path = OUT,
    data: str | None = argument(
        "The data, if some parts were not measured and no local file holds them.",
        "[DATA]",
        None,
    ),
    ledger: Path | None = option("The ledger of the release, if it was moved."),
    # what it was begun with says how its files are read
    printing: o.Printing,
) -> None:
    """Finish a release that was killed or failed: nothing is drawn or charged a second time.

    Measurements are stored before anything is published, so a release in one piece needs no
    data. A release by parts reads the parts again that were not measured; their records must be
    the same.
    """
    left = Unfinished.from_notes(out)
    if left is None:
        raise InputError(f"there is no unfinished release at {out}: nothing to resume")
    noted = left.read_notes()
    said = noted.get("command") or {}
    if not isinstance(said, dict):
        raise InputError(f"the note of the unfinished {out} is damaged: discard it")
    book = o.open_ledger(_find_ledger(noted, said, ledger), printing.quiet)
    approval = None
    if said.get("approved") is not None:
        approval = Approval(Path(said["plan"]), Path(said["approved"]))
        approval.check_plan(Plan.from_json(noted["asked"]))
    begun = Given({"seed": said.get("seed"), "sign": said.get("sign")})
    options = replace(
        build_run_options(begun, password=ask_password),
        ledger=book,
        out=out,
        force=noted.get("force") is True,
        jobs=said.get("jobs") or 1,
        resume=True,
    )
    with progress_bar(printing.quiet) as progress, _open_records(noted, said, data) as source:
        done, told = carry_out(None, source, options, None, printing, progress, approval)
    with in_place(f"the release {out}"):
        if not printing.silent:
            print_release(done, printing, str(out / REPORT), told)
            if done.plan.microdata is not None and not printing.json:
                again = f"semidp synthesize {shlex.quote(str(out))} --out people.csv"
                print_rows([("records", f"{again} writes them at no further cost")])


def _find_ledger(noted: Any, said: dict[str, Any], given: Path | None) -> Path | None:
    """Return the ledger that a run was begun with; None where it had none."""
    if given is not None:
        return given
    if noted.get("ledger") is None and noted.get("charging") is None:
        return None
    path = said.get("ledger")
    if path is None:
        raise InputError("the release was begun with a ledger: give it, with --ledger FILE")
    return Path(path)


def _open_records(
    noted: Any, said: dict[str, Any], given: str | None
) -> contextlib.AbstractContextManager[Any]:
    """Open the records of a run that has not measured all of them; yields None for one that has."""
    if noted.get("measured") is True and noted.get("partition") is None:
        return contextlib.nullcontext()
    data = said.get("data") if given is None else given
    if data is None:
        raise InputError(
            "not all of this release is measured: give its records again, after the folder"
        )
    plan = Plan.from_json(noted["asked"])
    begun = Given({name: said.get(name) for name in (*o.FILES, "units")})
    return open_data(begun, plan, data)


@command
def discard(
    *,
    out: Path = OUT,
    ledger: Path | None = option("The ledger of the release, if it was moved."),
    printing: o.Printing,
) -> None:
    """Write off a release that was not finished: remove what it has left, and tell its ledger.

    What was charged stays charged: noise may have been drawn and seen.
    """
    noted: Any = {}
    numbers: list[int] = []

    def write_off(note: Any) -> None:
        # Before anything is removed: what could not be written off can be discarded again.
        said = note.get("command") or {}
        path = ledger or (Path(said["ledger"]) if said.get("ledger") else None)
        if path is not None and may_exist(path):
            numbers.extend(Ledger(path).write_off(str(out.absolute()), note.get("run")))

    if is_unfinished(out) or ledger is None:
        noted = discard_unfinished(out, write_off)
    else:
        write_off({})
    if not noted and not numbers:
        raise InputError(f"{ledger} has no charge for {out} that no release has claimed")
    charged = bool(numbers) or noted.get("ledger") is not None
    if printing.json:
        print_json({"discarded": str(out), "charged": charged, "written_off": numbers})
        return
    stands = "; what it was charged stays charged" if charged else ""
    echo(f"discarded  what was unfinished of {out}: nothing was released{stands}")


def _is_left(place: Path, run_name: str) -> bool:
    """Whether what is unfinished at a place is of one run; what cannot be read may be."""
    try:
        left = Unfinished.from_notes(place)
    except InputError:
        return True
    return left is not None and left.run_name == run_name


def explain_unclaimed(book: Ledger) -> list[dict[str, Any]]:
    """Return the charges of a ledger that no release has claimed, each with how it is finished or
    written off.
    """
    unclaimed = []
    for number, charge in enumerate(book.account().charges, start=1):
        run = charge.run or {}
        place = run.get("place")
        is_busy = place is not None and is_unfinished(place)
        left = place is not None and is_busy and _is_left(Path(place), run["name"])
        is_open = charge.run is not None and run["measured"] is None
        if run.get("written_off") is True or not (is_open or left):
            continue
        folder, file = shlex.quote(str(place)), shlex.quote(str(book.path))
        if place is None:
            how = "it was kept in no folder, and cannot be finished"
        elif left:
            how = f"semidp resume {folder} finishes it, semidp discard {folder} writes it off"
        else:
            how = f"nothing of it is left: semidp discard {folder} --ledger {file} writes it off"
            if is_busy:  # it would be discarded, too
                how += ", once the unfinished release there is finished"
        unclaimed.append({"number": number, "label": charge.label, "place": place, "how": how})
    return unclaimed
