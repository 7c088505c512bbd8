"""``semidp release``, ``resume``, ``discard`` and ``combine``: the main job, finished or written
off where it ended early, and one release from several.
"""

import contextlib
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from attrs import evolve

import semidp.cli._options as o
from semidp.cli._command import argument, command, option
from semidp.cli._output import (
    charge_said,
    echo,
    grid,
    in_place,
    interrupt_notes,
    naming_options,
    print_grid,
    print_json,
    print_rows,
    progress_bar,
    watch_folder,
)
from semidp.errors import InputError
from semidp.present.disclosure_words import disclosure_notice
from semidp.present.forecasts import DryRun, found_budget, rehearse
from semidp.present.release import Release
from semidp.present.report.sections import list_unmatched_places
from semidp.present.report.sentences import cautions, summary, together_disclosed, weakness
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.files import may_exist
from semidp.promise.guarantee import Scope
from semidp.promise.progress import Progress
from semidp.promise.spaces.linked import UNIT
from semidp.publish.folders import Unfinished, check_place, discard_unfinished, is_unfinished
from semidp.publish.pipeline import RunOptions, run_plan
from semidp.publish.plan import Plan
from semidp.publish.plan_settings import (
    build_plan,
    build_run_options,
    open_data,
    password_of_environment,
    with_targets,
)
from semidp.publish.recheck import load_consistent
from semidp.publish.release_files import REPORT, release_files
from semidp.publish.resources import declared_needs
from semidp.publish.settings import DESCRIBING, SPENDING, Given, name_options
from semidp.publish.signing import Approval
from semidp.publish.sources.opening import Source, local_paths
from semidp.publish.statistics.protocol.statistic import Chosen, build_requests, statistic_settings


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
    running = evolve(build_run_options(settings, password=ask_password), ledger=None, inputs=inputs)
    foreseen = declared_needs(plan, running.written_as)
    # Declared levels already say how large the tables are: refuse before the data are read.
    if foreseen is not None and settings["partition"] is None:
        foreseen.refuse_memory(running.memory)
    with progress_bar(printing.quiet) as progress, open_data(settings, plan, data) as source:
        if settings["dry_run"]:
            rehearsal = rehearse(plan, source, running, settings["partition"])
            if approval is not None:
                approval.check_totals(rehearsal.prepared.scope.dataspace)
            _print_dry_run(rehearsal, printing)
            return
        # Opened after the dry run has left, which charges nothing.
        running = evolve(
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
        options = evolve(options, tell=tell, review=review, progress=progress)
        return run_plan(Release, plan, source, options, partition), told


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
        "Write the combination to this folder: a release like any other.", "FOLDER", default=...
    ),
    force: bool = o.FORCE,
    printing: o.Printing,
) -> None:
    """Combine several releases of the same records into one, at no cost in privacy.

    Each table gets the best linear unbiased estimate from all measurements, its standard
    errors, and whole numbers that match the exact totals of all releases. Distributions
    of one outcome on the same grid and lines are combined likewise. Linked members and units are
    made to agree again. The guarantee is that of all releases together. The folder holds the
    releases, too, so that `semidp show` computes everything again; `intervals`, `test`, `model` and
    `synthesize` read it like any release.
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
        echo("Largest standard error of a cell: of the best release, and of all together.\n")
        print_grid(table)
        echo()
    echo(summary(combination, str(out / REPORT)))


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
    ledger: Path | None = option("The ledger of the release, if it was moved.", "FILE"),
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
    options = evolve(
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
                known = said.get("records")
                records = known if isinstance(known, dict) else {}
                place = Path(records.get("out") or out.with_name(f"{out.name}_records.csv"))
                again = write_synthesize(out, place, records.get("files") or 1)
                print_rows([("records", f"{again} writes them at no further cost")])


def write_synthesize(folder: Path, out: Path, files: int) -> str:
    """Return the command that writes the records of a release."""
    several = () if files == 1 else ("--files", str(files))
    return shlex.join(["semidp", "synthesize", str(folder), "--out", str(out), *several])


def _find_ledger(noted: Any, said: dict[str, Any], given: Path | None) -> Path | None:
    """Return the ledger that a run was begun with; None where it had none."""
    if given is not None:
        return given
    if noted.get("ledger") is None and noted.get("charging") is None:
        return None
    path = said.get("ledger")
    if path is None:
        raise InputError("the release was begun with a ledger: give it, with --ledger FILE")
    if not os.path.lexists(path):
        raise InputError(f"the ledger {path} was moved: say where it is, with --ledger FILE")
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
    ledger: Path | None = option("The ledger of the release, if it was moved.", "FILE"),
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
