"""``semidp show``, ``check`` and ``plan``: whether a release follows from what it states, whether
its guarantee does, and whether it is what was approved.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import typer
from attrs import evolve

import semidp.cli._options as o
from semidp.cli._command import argument, command, flag, option
from semidp.cli._output import (
    echo,
    naming_options,
    print_json,
    print_rows,
)
from semidp.cli.release import ask_password, print_release
from semidp.errors import InputError
from semidp.present.card import ReleaseCard, describe_release
from semidp.present.release import Release
from semidp.promise.exact import list_some
from semidp.promise.files import lies_inside, replace_file
from semidp.promise.spaces.dataspace import Dataspace, normalize_margins
from semidp.publish.plan import Plan
from semidp.publish.plan_settings import (
    read_places,
)
from semidp.publish.recheck import Recheck, load_consistent, recheck
from semidp.publish.release_files import REPORT, read_release_document
from semidp.publish.resources import refuse_map
from semidp.publish.results.place_maps import PlaceMap
from semidp.publish.settings import Given
from semidp.publish.signing import (
    Approval,
    Signer,
    approval_path,
    approved_lines,
    make_keys,
    sign_plan,
)
from semidp.publish.signing import verify as verify_signature

_SHOWN_FIELDS = 4  # of those that are taken on trust, in print
DISAGREES = 1
"""The exit code where a release or a ledger contradicts what it should follow from."""


@command
def show(
    *,
    folder: Path = o.RELEASE,
    verify: Path | None = option(
        "First verify the signature with this public key of minisign.", "KEY.pub"
    ),
    map: Path | None = o.MAP,
    map_key: o.Text = o.MAP_KEY,
    page: Path | None = option(
        "Write the report with these maps to this file, outside of the release.", "HTML"
    ),
    card: bool = flag(
        "--card",
        "Print a card instead: what NIST SP 800-226 asks about a privacy claim, and an entry for"
        " the public registry of deployments. What only you know is left blank.",
    ),
    printing: o.Printing,
) -> None:
    """Print what a release holds and guarantees.

    What it states is computed again from its plan, its exact totals and its noisy values. If
    something does not follow, it says so, and the exit code is 1. What nothing here confirms is
    listed as taken on trust; a signature says whose word it is.
    """
    if verify is not None:
        # First: nothing of a folder that somebody has changed should be read, or printed.
        verify_signature(folder, verify)
    done = Release.load(folder)
    rechecked = recheck(done, read_release_document(folder), folder)
    more: dict[str, Any] = {
        "disagreements": list(rechecked.disagreements),
        "taken_on_trust": [trust.to_json() for trust in rechecked.trusted],
        "verified": verify is not None,
    }
    places = read_places(Given({"map": map, "map_key": map_key}))
    _check_page(folder, page, places)
    if card:
        if places is not None:
            raise InputError("a card has no map: ask for one of them")
        _print_card(
            describe_release(done, rechecked, None if verify is None else str(verify)), printing
        )
        return
    if places is not None:
        refuse_map(places, done.scope.dataspace)
    print_release(done, printing, str(folder / REPORT), word="report", **more)
    _draw_page(done, page, places)
    if not printing.json:
        signed = [] if verify is None else [("signed", f"every file, by the key {verify}")]
        wrong = [("disagrees", sentence) for sentence in rechecked.disagreements]
        drawn = [] if page is None else [("written", str(page))]
        print_rows([*drawn, *signed, *wrong, *_on_trust(rechecked, verify)])
    if rechecked.disagreements:
        raise typer.Exit(DISAGREES)


def _print_card(card: ReleaseCard, printing: o.Printing) -> None:
    """Print a card; the release may be one that contradicts itself."""
    if printing.json:
        print_json(card.to_json())
    else:
        echo(card.markdown())
    if card.faults:
        raise typer.Exit(DISAGREES)


def _check_page(folder: Path, page: Path | None, places: PlaceMap | None) -> None:
    """Refuse a map without a page or a page without a map, and a page that may not be written."""
    if (page is None) != (places is None):
        raise InputError(
            "--map FILE and --page HTML go together: the report with maps is a page of its own"
        )
    # A file more in the folder would be one that release.json does not list.
    if page is not None and (lies_inside(page, folder) or page.exists()):
        raise InputError("choose a --page that is not there yet, outside of the release")


def _draw_page(done: Release, page: Path | None, places: PlaceMap | None) -> None:
    """Write the report with maps to a file outside of the release, which stays as it is."""
    if page is None:
        return
    mapped = evolve(done, presentation=evolve(done.presentation, places=places))
    replace_file(page, mapped.report_html(), force=False)


def _on_trust(found: Recheck, key: Path | None) -> list[tuple[str, str]]:
    """Say what was not computed again, and whose word it is."""
    whose = "unverified word of whoever made this folder"
    if key is not None:
        whose = f"word of whoever holds the key {key}"
    rows = [("on trust", f"nothing here confirms the following; it is the {whose}:")]
    for trust in found.trusted:
        rows.append(("", f"- {trust.what} ({list_some(trust.fields, _SHOWN_FIELDS)})"))
    return rows


CHECKER = Path(__file__).parent.parent / "checker" / "semidp_check.py"


@command
def check(
    *,
    folder: Path = o.RELEASE,
    seconds: float = option(
        "Time limit for listing datasets, and for hunting a pair that refutes the claim.",
        "N",
        default=10.0,
    ),
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


PLAN = argument("A plan file (TOML or JSON).", "PLAN")


@command
def keys(
    *,
    key: Path = argument("The secret key to write; the public one is KEY.pub.", "KEY"),
    printing: o.Printing,
) -> None:
    """Make a pair of keys: the secret one signs plans and releases, the public one verifies them.

    They are keys of minisign (Ed25519). The password comes from the terminal, or from
    SEMIDP_SIGN_PASSWORD; an empty one leaves the secret key unencrypted.
    """
    public = make_keys(key, _new_password)
    if printing.json:
        print_json({"secret": str(key), "public": str(public)})
    elif not printing.quiet:
        print_rows(
            [("secret", f"{key}: keep it to yourself"), ("public", f"{public}: hand it out")]
        )


def _new_password() -> str:
    password = os.environ.get("SEMIDP_SIGN_PASSWORD")
    if password is not None:
        return password
    # A prompt that nobody sees would wait for ever.
    if sys.stdin is None or not sys.stdin.isatty():
        raise InputError(
            "give a password for the secret key in SEMIDP_SIGN_PASSWORD (empty for none), or at a"
            " terminal"
        )
    return str(
        typer.prompt(
            "password (empty for none)",
            default="",
            show_default=False,
            hide_input=True,
            confirmation_prompt=True,
            err=True,
        )
    )


@command
def sign(
    *,
    plan: Path = PLAN,
    key: Path = option("The secret key of whoever approves.", "KEY", default=...),
    totals: list[Path] | None = option(
        "A CSV file of exact totals that the data must have (default: any totals); repeat it.",
        "FILE",
    ),
    force: bool = o.FORCE,
    printing: o.Printing,
) -> None:
    """Approve a plan before data are read: sign everything that it says.

    Writes PLAN.approval, what is approved as JSON, and its signature PLAN.approval.minisig. `semidp
    release --plan PLAN --approved KEY.pub` carries out nothing else.
    """
    asked, held = o.read_plan_file(plan, "PLAN", {})
    named = _read_named(totals, asked) if totals else None
    signer = Signer(key, ask_password)
    with naming_options(force, "PLAN"):
        document = sign_plan(plan, asked, Given(held), signer, named, force=force)
    place = str(approval_path(plan))
    if printing.json:
        print_json({"written": place, **document})
    elif not printing.quiet:
        print_rows([*approved_lines(asked, document), ("written", place)])


def _read_named(paths: list[Path], plan: Plan) -> Dataspace:
    """Read the totals that an approval names: those of the plan, and no others."""
    if plan.units is not None:
        raise InputError("--totals are not for plans of linked files: approve the plan alone")
    space = o.read_totals(paths, plan)
    if {*space.margins} != {*normalize_margins(space.schema, plan.invariants)}:
        margins = "; ".join(map(str, plan.invariants)) or "no margin"
        raise InputError(f"--totals holds other totals than the plan publishes exactly: {margins}")
    return space


@command
def check_approval(
    *,
    plan: Path = PLAN,
    key: Path = argument("The public key of whoever approved it.", "KEY.pub"),
    release: Path | None = argument("A release that claims to follow it.", "[RELEASE]", None),
    printing: o.Printing,
) -> None:
    """Say whether a plan file, and a release, are what was approved.

    Compares the plan of a release and its exact totals, and not its title and notes.
    """
    approval = Approval(plan, key)
    asked, held = o.read_plan_file(plan, "PLAN", {})
    approval.check_plan(asked, Given(held))
    rows = [("approved", f"{plan}, by the key {key}")]
    document: dict[str, Any] = {"plan": str(plan), "key": str(key), "release": None}
    if release is not None:
        done = load_consistent(Release, release)
        if not done.private:
            raise InputError(
                f"{release} is not private: an approved plan is carried out with secret noise"
            )
        approval.check_release(asked, done.plan, done.scope, by_parts=done.partition is not None)
        document["release"] = str(release)
        rows.append(("follows", f"{release}: its plan and its exact totals are those approved"))
    if printing.json:
        print_json({"approved": True, **document})
    else:
        print_rows(rows)
