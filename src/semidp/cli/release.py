"""``semidp release``, ``show``, ``check`` and ``combine``: the main job, its result again, what
the checker says of it, one release from several.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
from attrs import evolve

import semidp.cli._options as o
from semidp.cli._command import argument, command, flag, option
from semidp.cli._output import (
    charge_said,
    echo,
    grid,
    in_place,
    interrupt_notes,
    naming_options,
    print_json,
    print_rows,
    progress_bar,
    watch_folder,
)
from semidp.errors import InputError
from semidp.present.card import ReleaseCard, describe_release
from semidp.present.disclosure_words import disclosure_notice
from semidp.present.dry_run import DryRun, found_budget, rehearse
from semidp.present.release import Release
from semidp.present.report.place_sections import list_unmatched_places
from semidp.present.report.sentences import cautions, summary, together_disclosed, weakness
from semidp.promise.files import replace_file
from semidp.promise.guarantee import Scope
from semidp.promise.progress import Progress
from semidp.promise.spaces.linked import UNIT
from semidp.publish.folders import check_place, is_unfinished
from semidp.publish.pipeline import RunOptions, run_plan
from semidp.publish.plan import Plan
from semidp.publish.plan_settings import (
    build_plan,
    build_run_options,
    open_data,
    password_of_environment,
    read_places,
    with_targets,
)
from semidp.publish.recheck import Recheck, load_consistent, recheck
from semidp.publish.release_files import REPORT, read_release_document, release_files
from semidp.publish.resources import declared_needs, refuse_map
from semidp.publish.results.place_maps import PlaceMap
from semidp.publish.settings import DESCRIBING, SPENDING, Given, name_options
from semidp.publish.signing import Approval
from semidp.publish.signing import verify as verify_signature
from semidp.publish.sources.opening import Source, local_paths
from semidp.publish.statistics.protocol.statistic import Chosen, build_requests, statistic_settings

_SHOWN_FIELDS = 4  # of those that are taken on trust, in print
DISAGREES = 1
"""The exit code where a release or a ledger contradicts what it should follow from."""


@command
def release(
    *,
    data: str = o.DATA,
    options: o.Options,
    printing: o.Printing,
) -> None:
    """Publish tables and statistics with noise, next to totals that stay exact.

    Writes a folder with the tables, the guarantee and a report. Options that are not listed here
    are keys of a plan file (docs/plan.md), and --set KEY=VALUE gives any of them.
    """
    plan, settings = _load_plan(options)
    approval = _check_approved(plan, settings)
    out = settings["out"]
    if out is None and not settings["dry_run"]:
        raise InputError(
            "say where to write the release: --out FOLDER (or --dry-run to write nothing)"
        )
    inputs = _list_inputs(data, plan, settings)
    # A place that cannot be written is refused before anything is read or charged.
    if not settings["dry_run"]:
        with naming_options(settings["force"]):
            check_place(out, force=settings["force"], ours=release_files, inputs=inputs)
    running = replace(
        build_run_options(settings, password=ask_password), ledger=None, inputs=inputs
    )
    foreseen = declared_needs(plan, running.written_as)
    # Declared levels already say how large the tables are: refuse before the data are read.
    if foreseen is not None and settings["partition"] is None:
        foreseen.refuse_memory(running.memory)
    with progress_bar(printing.quiet) as progress, open_data(settings, plan, data) as source:
        if settings["dry_run"]:
            found = rehearse(plan, source, running, settings["partition"])
            if approval is not None:
                approval.check_totals(found.prepared.scope.dataspace)
            _print_dry_run(found, printing)
            return
        # Opened after the dry run has left, which charges nothing.
        running = replace(
            running,
            ledger=o.open_ledger(settings["ledger"], printing.quiet),
            command=o.note_command(data, settings),
        )
        done, told = carry_out(
            plan, source, running, settings["partition"], printing, progress, approval
        )
    # The release exists now: what goes wrong from here on is about printing alone.
    with in_place(f"the release {out}"):
        if printing.silent:
            mark_not_private(done)
            return
        print_rows(() if printing.json else found_budget(plan, done.plan))
        print_release(done, printing, str(out / REPORT), told)


def _print_dry_run(found: DryRun, printing: o.Printing) -> None:
    """Say what a release would publish."""
    printing.warn(found.warnings)
    if printing.json:
        print_json(found.to_json())
        return
    print_rows((name, name_options(text)) for name, text in found.rows())
    echo("nothing was drawn or written")


def _check_approved(plan: Plan, given: Given) -> Approval | None:
    """Refuse a plan that was not approved as it is; None where no approval is asked for."""
    if given["approved"] is None:
        return None
    if given["seed"] is not None:
        raise InputError("an approved plan is carried out with secret noise: leave --seed out")
    approval = Approval(given["plan"], given["approved"])
    approval.check_plan(plan, given)
    return approval


def _list_inputs(data: str, plan: Plan, given: Given) -> list[Path]:
    """Return the files that are still needed, which a folder that is replaced must not hold."""
    units = given["units"] or (plan.units.source if plan.units is not None else None)
    paths = [*local_paths(data, given["from_table"])]
    paths += [] if units is None else local_paths(units, given["units_from"])
    named = (given[name] for name in ("plan", "approved", "schema", "ledger", "sign"))
    return [Path(item) for item in (*paths, *named) if item is not None]


def _load_plan(options: o.Options) -> tuple[Plan, Given]:
    """Return the plan of the file that --plan names, or else the one that the options describe; and
    all settings.
    """
    settings = options.given
    if settings["plan"] is not None:
        return _read_plan(options)
    requests = build_requests(Chosen(settings.choices()))
    if not requests:
        raise InputError(
            "say what to release: --table a,b, or --group a with --mean b (or --plan FILE)"
        )
    if not settings.has("target_error"):
        options.budget()
    return build_plan(settings, requests), settings


def _read_plan(options: o.Options) -> tuple[Plan, Given]:
    """Return the plan of a file, with the budget or the errors that are given with it."""
    settings = options.given
    rows = {row.name: row for row in (*DESCRIBING, *SPENDING)}
    rows |= statistic_settings()
    changes: dict[str, Any] = {}
    # What is set to its default is not in `settings`, and changes a plan that says otherwise.
    for name in dict.fromkeys((*settings, *sorted(options.named))):
        if name not in rows or name in ("units", *o.BUDGET, "target_error"):
            continue
        key = rows[name].key or ""
        if name == "report_delta":
            changes[key] = settings[name]
            continue
        # A plan is published as it stands: only who says so changes one of its keys.
        if name not in options.assigned:
            raise InputError(
                f"--plan already says what to release and how: leave {rows[name].option} out, or"
                f" change the plan with --set {name}=…"
            )
        if not key.isidentifier():
            entry = key or "the budgets"
            raise InputError(
                f"--plan already says what to release and how: change {entry} in the plan file"
            )
        changes[key] = settings[name]
    plan, held = o.read_plan_file(settings["plan"], "--plan", changes)
    settings = Given({**held, **settings})
    if options.spends:
        # A second budget would replace what the plan says, or be ignored: both are surprises.
        if all(request.budget for request in plan.requests):
            raise InputError(
                "the plan gives every table its budget already: leave the budget out, here or there"
            )
        delta = options.report_delta or plan.report_delta
        plan = evolve(plan.with_budget(options.budget()), report_delta=delta)
    return with_targets(plan, settings["target_error"]).with_values_read(), settings


def carry_out(
    plan: Plan | None,
    source: Source | None,
    options: RunOptions,
    partition: str | None,
    printing: o.Printing,
    progress: Progress,
    approval: Approval | None = None,
) -> tuple[Release, list[str]]:
    """Carry out a plan, or go on with one; return the release, and the warnings that were printed
    on the way.
    """
    told: list[str] = []

    def tell(sentences: Sequence[str]) -> None:
        printing.warn(together_disclosed(sentences))
        told.extend(sentences)

    def review(scope: Scope) -> Sequence[str]:
        if approval is not None:
            approval.check_totals(scope.dataspace)
        return () if plan is None else disclosure_notice(scope)

    out = Path(options.out or "")
    interrupt_notes.append(watch_folder(out))
    with charge_said(options.book), naming_options(options.force):
        interrupt_notes.append(lambda: _unfinished_text(out))
        options = replace(options, tell=tell, review=review, progress=progress)
        return run_plan(Release, plan, source, options, partition), told


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

    What it states is computed again from its plan, its exact totals and its noisy values; where
    something does not follow, that is said, and the exit code is 1. What nothing follows from is
    listed as taken on trust: a signature says whose word it is.
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
    if page is not None and (folder.resolve() in page.resolve().parents or page.exists()):
        raise InputError("choose a --page that is not there yet, outside of the release")


def _draw_page(done: Release, page: Path | None, places: PlaceMap | None) -> None:
    """Write the report with maps to a file outside of the release, which stays as it is."""
    if page is None:
        return
    mapped = replace(done, presentation=replace(done.presentation, places=places))
    replace_file(page, mapped.report_html(), force=False)


def _on_trust(found: Recheck, key: Path | None) -> list[tuple[str, str]]:
    """Say what was not computed again, and whose word it is."""
    whose = "unverified word of whoever made this folder"
    if key is not None:
        whose = f"word of whoever holds the key {key}"
    rows = [("on trust", f"nothing here confirms the following; it is the {whose}:")]
    for trust in found.trusted:
        shown = ", ".join(trust.fields[:_SHOWN_FIELDS])
        further = len(trust.fields) - _SHOWN_FIELDS
        rows.append(
            ("", f"- {trust.what} ({shown}{f' and {further:,} more' if further > 0 else ''})")
        )
    return rows


def _unfinished_text(out: Path) -> str | None:
    """Say of an interrupted release how to go on with it."""
    if not is_unfinished(out):
        return None
    folder = shlex.quote(str(out))
    return (
        f"what was measured is kept: semidp resume {folder} finishes it at no further cost, semidp"
        f" discard {folder} writes it off"
    )


def ask_password() -> str:
    """Return the password of a secret key, from the environment or the terminal."""
    # A prompt that nobody sees would wait for ever.
    if "SEMIDP_SIGN_PASSWORD" in os.environ or sys.stdin is None or not sys.stdin.isatty():
        return password_of_environment()
    # No option takes the password: other users see the words of a command, and logs keep them.
    return str(typer.prompt("password of the secret key", hide_input=True, err=True))


def mark_not_private(done: Release) -> None:
    """Say on stderr that a release is not private: who asked for silence must know it, too."""
    if not done.private:
        echo(
            "warning: not private: drawn with a seed or by a mechanism meant for studies.", err=True
        )


def print_release(
    done: Release,
    printing: o.Printing,
    where: str,
    told: Sequence[str] = (),
    word: str = "written",
    **more: Any,
) -> None:
    """Print what a release holds, and its warnings but for those that were told already; `word`
    says how its report is at `where`.
    """
    every = (
        *list_unmatched_places(done),
        *done.scope.warnings,
        *weakness(done.stated),
        *done.scope.disclosures,
        *cautions(done),
    )
    printing.warn(together_disclosed([said for said in every if said not in told]))
    if printing.json:
        errors = [entry for result in done.results for entry in result.errors_json()]
        print_json({**done.to_json(), "errors": errors, "report": where, **more})
    else:
        echo(summary(done, where, word))


@command
def combine(
    *,
    folders: list[Path] = argument(
        "Folders that `semidp release` wrote, at least two.", "RELEASE..."
    ),
    out: Path = option(
        "Write the combination to this folder: a release like any other.", "DIR", default=...
    ),
    force: bool = o.FORCE,
    printing: o.Printing,
) -> None:
    """Combine several releases of the same records into one, at no cost in privacy.

    Each table gets the best linear unbiased estimate from all measurements, its standard
    errors, and whole numbers that match the exact totals of all releases. So do distributions
    of one outcome on the same grid and lines. Linked members and units are made to agree again. The
    guarantee is that of all releases together. The folder holds the releases, too, so that `semidp
    show` computes everything again; `intervals`, `test`, `model` and `synthesize` read it like any
    release.
    """
    from semidp.inference.combined.releases_together import combine_releases

    # Numbers that do not follow from their measurements are refused before anything is combined.
    releases = [load_consistent(Release, folder) for folder in folders]
    combination = combine_releases(releases)
    with naming_options(force):
        combination.save(out, force=force)
    printing.warn((*combination.scope.warnings, *combination.scope.disclosures))
    with in_place(f"the folder {out}"):
        if printing.json:
            print_json({**combination.to_json(), "report": str(out / REPORT)})
        else:
            _print_combination(combination, out)


def _print_combination(combination: Release, out: Path) -> None:
    from rich.console import Console

    table = grid(("table",), ("before", "together"))
    for one in combination.tables:
        errors = []
        for release in combination.sources:
            for published in release.tables:
                same_records = (published.counted == UNIT) == (one.counted == UNIT)
                if same_records and set(published.schema.names) == set(one.schema.names):
                    errors.append(float(published.standard_errors.max(initial=0.0)))
        largest = float(one.standard_errors.max(initial=0.0))
        # Compared with the best single release, not the worst: the gain is not flattered.
        whose = "units: " if one.counted == UNIT else ""
        label = whose + " × ".join(one.schema.names)
        table.add_row(label, f"{min(errors):.4g}", f"{largest:.4g}")
    if combination.tables:
        console = Console(highlight=False)
        console.print(
            "Largest standard error of a cell: of the best release, and of all together.\n"
        )
        console.print(table)
        echo("")
    echo(summary(combination, str(out / REPORT)))


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
