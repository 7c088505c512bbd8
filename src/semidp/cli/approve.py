"""``semidp plan``: keys, approvals of plans, and whether a release is what was approved."""

import os
import sys
from pathlib import Path
from typing import Any

import typer

import semidp.cli._options as o
from semidp.cli._command import argument, command, option
from semidp.cli._output import naming_options, print_json, print_rows
from semidp.cli.release import ask_password
from semidp.errors import InputError
from semidp.present.release import Release
from semidp.promise.spaces.dataspace import Dataspace, normalize_margins
from semidp.publish.plan import Plan
from semidp.publish.recheck import load_consistent
from semidp.publish.settings import Given
from semidp.publish.signing import (
    Approval,
    Signer,
    approval_path,
    approved_lines,
    make_keys,
    sign_plan,
)

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
    public = make_keys(key, _new_password())
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
        "A CSV file of exact totals that the data must have; repeat it. Any unless given.", "FILE"
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

    The plan of a release and its exact totals are compared; what is said beside the numbers is not.
    """
    approval = Approval(plan, key)
    asked, held = o.read_plan_file(plan, "PLAN", {})
    approval.check_plan(asked, Given(held))
    rows = [("approved", f"{plan}, by the key {key}")]
    found: dict[str, Any] = {"plan": str(plan), "key": str(key), "release": None}
    if release is not None:
        done = load_consistent(Release, release)
        if not done.private:
            raise InputError(
                f"{release} is not private: an approved plan is carried out with secret noise"
            )
        approval.check_release(asked, done.plan, done.scope, by_parts=done.partition is not None)
        found["release"] = str(release)
        rows.append(("follows", f"{release}: its plan and its exact totals are those approved"))
    if printing.json:
        print_json({"approved": True, **found})
    else:
        print_rows(rows)
