"""``semidp release``, ``show``, ``synthesize`` and ``demo``: the main job, its result again, records, a first look."""

import os
import shlex
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import typer
from attrs import asdict, astuple, evolve

from semidp.cli import _options as o
from semidp.cli._command import command, flag, option
from semidp.cli._output import (
    Format,
    asides,
    charge_said,
    echo,
    in_place,
    naming_options,
    print_json,
    print_rows,
    progress_bar,
    told_of,
)
from semidp.core.exact import plain
from semidp.core.tradeoff.budget import Budget
from semidp.errors import InputError
from semidp.mechanisms.mechanism import Mechanism
from semidp.mechanisms.selection import NAMES, with_exact_claim
from semidp.output.cells import Form, form_named
from semidp.output.files import check_place, discard_unfinished, document_at, is_unfinished, new_folder
from semidp.publishing.needs import Needs, declared_needs, memory_from, needs_of, part_needs, size_text
from semidp.publishing.parts.by_partition import Whole, prepare_parts, run_partitioned
from semidp.publishing.pipeline import Prepared, prepare, run
from semidp.publishing.plan import Plan
from semidp.publishing.rechecking.release_check import Recheck, load_consistent, recheck
from semidp.publishing.release import REPORT, Release, release_files
from semidp.publishing.signing import Signer
from semidp.publishing.signing import verify as verify_signature
from semidp.questions.synthesis import about_file, check_records
from semidp.report.outlook import Outlook, forecast, stated_text
from semidp.report.sentences import (
    budget_parts,
    strength,
    summary,
    together_text,
    weakness,
)
from semidp.sources.opening import local_paths
from semidp.statistics.registry import result_readers

_SHOWN_FIELDS = 4  # of those that are taken on trust, in print
DISAGREES = 1
"""The exit code where a release or a ledger contradicts what it should follow from."""


@command
def release(
    *,
    data: str = o.DATA,
    table: o.Texts = o.TABLE,
    invariant: o.Texts = o.INVARIANT,
    out: Path | None = option("The folder to write: it is made, whole or not at all."),
    asking: o.Asking,
    spending: o.Spending,
    target_error: o.Texts = option(
        "Instead of a budget: the largest standard error that a table may have; repeat it. The least mu is found.",
        "A,B=NUMBER",
    ),
    plan: Path | None = option("A plan (TOML or JSON), instead of --table and --invariant."),
    mechanism: str = option(f"How to draw the noise: auto, {', '.join(NAMES)}.", "NAME", default="auto"),
    claim: o.Text = option("Use only mechanisms whose claim holds for the numbers that are drawn: exact.", "exact"),
    fit: str = option(
        "Publish the measurements as whole numbers, as real ones (both with the exact totals), or as they are.",
        "integer|real|none",
        default="integer",
    ),
    comparing: o.Comparing,
    declaring: o.Declaring,
    opening: o.Opening,
    ledger: Path | None = o.LEDGER,
    label: o.Text = option("What the ledger calls this charge.", "TEXT"),
    seed: int | None = o.SEED,
    sign: Path | None = option("Sign every file with this secret key of minisign (extra: sign).", "KEY"),
    write: o.Text = option(
        "How to write tables: CSV, or Parquet, which is used from a million cells on unless said.", "csv|parquet"
    ),
    memory: o.Text = option("The memory that may be used; that of the machine or container unless said.", "8GB"),
    partition: o.Text = option(
        "Release part by part: a depth of a nested feature, such as state. Only tables, and no pure epsilon.", "DEPTH"
    ),
    jobs: int | None = option("With --partition: how many parts at a time, each in a process.", min=1),
    resume: bool = flag(
        "--resume",
        "Finish a release by --partition that ended early, from the same records; nothing is drawn again.",
    ),
    discard: bool = flag(
        "--discard", "Remove what a release by --partition that ended early has left, and do nothing else."
    ),
    dry_run: bool = flag("--dry-run", "Say what would be released and with what noise; draw and write nothing."),
    force: bool = o.FORCE,
    printing: o.Printing,
) -> None:
    """Publish a table with noise beside exact totals: a folder with the table, its guarantee and a report.

    --force replaces a folder that holds a release (or nothing) and no other file. Once the folder is in place the exit
    code is 0, even if stdout takes no more.
    """
    base = asking.asked(o.described(declaring, opening, comparing))
    if target_error and any((spending.epsilon, spending.rho, spending.mu)):
        raise InputError("--target-error finds the budget: leave --epsilon, --rho and --mu out, or leave it out")
    beside = (
        table,
        invariant,
        comparing != o.Comparing(),
        *astuple(asking),
        base != Plan(),
        mechanism != "auto",
        claim,
        fit != "integer",
    )
    if plan is None:
        if not (table or asking.all_pairs is not None or base.requests):
            raise InputError("say what to release: --table a,b, or --group a with --mean b (or --plan FILE)")
        if target_error and (asking.objective or asking.share):
            raise InputError(
                "--objective and --share divide a budget, and --target-error finds one: leave one of them out"
            )
        budget, target = (None, spending.target) if target_error else spending.budget()
        wanted = o.plan_of(
            base,
            table or (),
            invariant or (),
            budget=budget,
            report_delta=target,
            mechanism=mechanism,
            fit=fit,
            asking=asking,
        )
        wanted = evolve(o.with_targets(wanted, target_error), claim=claim)
    elif any(beside):
        raise InputError(
            "--plan already says what to release and how: beside it, give only a budget, --out, --ledger and --seed"
        )
    else:
        wanted = _read(plan, spending, target_error)
    declaring.check_used(wanted)
    if out is None and not dry_run:
        raise InputError("say where to write the release: --out FOLDER (or --dry-run to write nothing)")
    if partition is None and (jobs is not None or resume or discard):
        raise InputError("--jobs, --resume and --discard are for a release by parts: give --partition DEPTH too")
    if resume and discard:
        raise InputError("--resume finishes what --discard removes: give one of them")
    if discard:
        if out is None or dry_run:
            raise InputError("--discard removes what is unfinished: say of which --out FOLDER, and leave --dry-run out")
        _discard(out, printing)
        return
    inputs = [
        Path(item)
        for item in (*local_paths(data, opening.from_table), plan, declaring.schema, ledger, sign)
        if item is not None
    ]
    if out is not None and not dry_run:
        with naming_options(force):
            check_place(out, force=force, ours=release_files, inputs=inputs)
    form = None if write is None else form_named(write)
    usable = None if memory is None else memory_from(memory)
    foreseen = declared_needs(wanted, form)
    if foreseen is not None and partition is None:
        foreseen.refuse_memory(usable)
    randomness = o.randomness_of(seed)
    signer = Signer(sign, _password) if sign is not None else None
    told: list[str] = []

    def tell(sentences: Sequence[str]) -> None:
        printing.warn(sentences)
        told.extend(sentences)

    with progress_bar(printing.quiet) as progress, opening.source(wanted, data, quiet=printing.quiet) as source:
        if dry_run:
            if partition is None:
                prepared = prepare(wanted, source, memory=usable)
                takes = needs_of(prepared.plan, prepared.scope.dataspace.schema)
                _rehearse(wanted, prepared, takes, printing)
            else:
                whole = prepare_parts(wanted, source, partition, jobs=jobs or 1, memory=usable)
                takes = part_needs(whole.plan, whole.schema, whole.cut, jobs or 1, form or Form.parquet)
                _rehearse(wanted, whole, takes, printing)
            return
        assert out is not None
        book = o.ledger_of(ledger, printing.quiet)
        common: dict[str, Any] = {
            "randomness": randomness,
            "ledger": book,
            "label": label,
            "memory": usable,
            "form": form,
        }
        asides.append(told_of(out))
        with charge_said(book), naming_options(force):
            if partition is not None:
                asides.append(lambda: _unfinished_text(out))
                done = run_partitioned(
                    wanted,
                    source,
                    out,
                    partition,
                    jobs=jobs or 1,
                    resume=resume,
                    force=force,
                    inputs=inputs,
                    finish=(lambda folder, passing: None) if signer is None else signer.sign,
                    tell=tell,
                    progress=progress,
                    **common,
                )
            else:
                with new_folder(out, force=force, ours=release_files, inputs=inputs) as folder:
                    done = run(wanted, source, folder=folder, progress=progress, **common)
                    done.write_files(folder, progress)
                    if signer is not None:
                        signer.sign(folder)
    with in_place(f"the release {out}"):
        print_rows(() if printing.json else _found_budget(wanted, done.plan))
        _print(done, printing, str(out / REPORT), told)


@command
def show(
    *,
    folder: Path = o.RELEASE,
    format: Format = o.FORMAT,
    verify: Path | None = option("First verify the signature with this public key of minisign.", "KEY.pub"),
    deep: bool = flag("--deep", "Fit tables of more than two million cells again, too."),
    quiet: bool = o.QUIET,
) -> None:
    """Print what a release holds and guarantees.

    What it states is computed again from its plan, its exact totals and its noisy values; where something does not
    follow, that is said, and the exit code is 1. What nothing follows from is listed as taken on trust: a signature
    says whose word it is.
    """
    printing = o.Printing(format, quiet)
    if verify is not None:
        verify_signature(folder, verify)
    done = Release.load(folder)
    found = recheck(done, document_at(folder / "release.json"), folder, deep=deep)
    more: dict[str, Any] = {
        "disagreements": list(found.disagreements),
        "taken_on_trust": [trust.to_json() for trust in found.trusted],
        "verified": verify is not None,
    }
    _print(done, printing, str(folder / REPORT), **more)
    if not printing.json:
        signed = [] if verify is None else [("signed", f"every file, by the key {verify}")]
        wrong = [("disagrees", sentence) for sentence in found.disagreements]
        print_rows([*signed, *wrong, *_on_trust(found, verify)])
    if found.disagreements:
        raise typer.Exit(DISAGREES)


def _on_trust(found: Recheck, key: Path | None) -> list[tuple[str, str]]:
    """Say what was not computed again, and whose word it is."""
    whose = "of whoever made this folder, which is not verified" if key is None else f"of whoever holds the key {key}"
    rows = [("on trust", f"what nothing here confirms is the word {whose}:")]
    for trust in found.trusted:
        shown = ", ".join(trust.fields[:_SHOWN_FIELDS])
        others = len(trust.fields) - _SHOWN_FIELDS
        rows.append(("", f"- {trust.what} ({shown}{f' and {others:,} more' if others > 0 else ''})"))
    return rows


@command
def synthesize(
    *,
    folder: Path = o.RELEASE,
    out: Path | None = option("The CSV file to write, one record a line."),
    seed: int | None = option("Match records the same way again.", min=0),
    force: bool = o.FORCE,
    printing: o.Printing,
) -> None:
    """Write synthetic records that have every published table of a release and every exact total, to the person.

    Only the published numbers are used: no budget is spent. A file beside the records says what they are. Refused
    where the tables and the exact totals are not decomposable, because records with all of them may not exist. --force
    replaces records that this command wrote, and no other file.
    """
    if out is None:
        raise InputError("say where to write the records: --out people.csv")
    if folder.resolve() in out.resolve().parents:
        raise InputError("a release is read again as it was written: choose an --out outside of its folder")
    with naming_options(force):
        check_records(out, force=force)
        done = load_consistent(folder, fits=True)
        printing.warn((*done.scope.warnings, *done.scope.disclosures))
        about = done.save_records(out, force=force, randomness=o.randomness_of(seed))
    with in_place(f"the file {out}"):
        if printing.json:
            print_json({**about, "out": str(out), "about": str(about_file(out))})
            return
        tables = "; ".join(" by ".join(table["features"]) for table in about["tables"])
        echo(f"records    {about['records']:,}, of {', '.join(about['columns'])}")
        echo(f"they have  {tables}: every published count, and every exact total")
        echo("budget     none is spent: they follow from the published numbers")
        if not done.private:
            echo("NOT PRIVATE: the release was drawn with a seed or by a mechanism meant for studies.")
        echo(f"written    {out}, and what it is in {about_file(out)}")


@command
def demo(
    *,
    out: Path = option("The folder to write; an earlier demo is replaced.", default=Path("build/demo")),
    printing: o.Printing,
) -> None:
    """Release the pupils of 420 California school districts who qualify for reduced-price meals; enrolment is exact."""
    data = str(files("semidp") / "data" / "california_schools.csv")
    words = [
        *("--nest", "county,district", "--table", "district,meals", "--invariant", "district"),
        *("--levels", "meals=no,yes", "--count", "count", "--mu", "1", "--out", str(out), "--force"),
    ]
    if not printing.json:
        echo(f"$ semidp release california_schools.csv {shlex.join(words)}\n")
    release(
        data=data,
        nest=["county,district"],
        table=["district,meals"],
        invariant=["district"],
        levels=["meals=no,yes"],
        count="count",
        mu="1",
        out=out,
        force=True,
        **asdict(printing),
    )
    if not printing.json:
        with in_place(f"the release {out}"):
            echo(f"\nOpen {out / REPORT} in a browser; the table is in {out / 'table.csv'}.")


def _password() -> str:
    """Return the password of a secret key: from SEMIDP_SIGN_PASSWORD, or from who sits at the terminal."""
    known = os.environ.get("SEMIDP_SIGN_PASSWORD")
    if known is not None:
        return known
    if sys.stdin is None or not sys.stdin.isatty():
        raise InputError("the secret key is encrypted: give its password in SEMIDP_SIGN_PASSWORD, or at a terminal")
    return str(typer.prompt("password of the secret key", hide_input=True, err=True))


def _discard(out: Path, printing: o.Printing) -> None:
    """Remove what an unfinished release has left, and say so."""
    charged = discard_unfinished(out).get("ledger") is not None
    if printing.json:
        print_json({"discarded": str(out), "charged": charged})
        return
    stands = "; what it was charged stays charged" if charged else ""
    echo(f"discarded  what was unfinished of {out}: nothing was released{stands}")


def _unfinished_text(out: Path) -> str | None:
    """Say of an interrupted release by parts how to go on with it."""
    kept = "what was measured is kept: --resume finishes it at no further cost, --discard removes it"
    return kept if is_unfinished(out) else None


def _read(path: Path, spending: o.Spending, targets: o.Texts) -> Plan:
    """Return the plan of a file, with the budget or the errors that are asked for beside it."""
    wanted = o.read_plan(path, "--plan")
    if targets or not spending.given:
        return evolve(o.with_targets(wanted, targets), report_delta=spending.target or wanted.report_delta)
    if all(request.budget for request in wanted.requests):
        raise InputError("the plan gives every table its budget already: leave the budget out, here or there")
    budget, target = spending.budget()
    return evolve(wanted.with_budget(budget), report_delta=target or wanted.report_delta)


def _rehearse(asked: Plan, found: Prepared | Whole, takes: Needs, printing: o.Printing) -> None:
    """Say what a release, in one piece or part by part, would do: from public values."""
    plan, scope, curve = found.plan, found.scope, found.guarantee.tradeoff
    warnings = (*scope.warnings, *weakness(found.guarantee))
    printing.warn((*warnings, *scope.disclosures))
    if printing.json:
        partition = {"partition": {"depth": found.partition, "parts": found.nodes}} if isinstance(found, Whole) else {}
        print_json(
            {
                "dry_run": True,
                "n": scope.dataspace.n,
                "plan": plan.to_json(),
                **partition,
                "a": scope.adjacency_json(),
                "guarantee": curve.to_json(),
                "epsilon": curve.epsilon(plan.report_delta),
                "report_delta": plan.report_delta,
                "budget": plan.budget and plan.budget.numbers(),
                **(_part_tables(found, takes) if isinstance(found, Whole) else _measured(found, takes)),
                "disclosures": scope.disclosures,
                "warnings": warnings,
            }
        )
        return
    rows = [("exact", scope.dataspace.summary())]
    rows += [] if isinstance(found, Whole) else _found_budget(asked, plan)
    rows += [("budget", part) for part in budget_parts(plan)]
    strengths = [("strength", sentence) for sentence in strength(found.guarantee, plan.report_delta)]
    adjacency = [("adjacency", together_text(scope)), *strengths]
    if isinstance(found, Whole):
        for table in _part_tables(found, takes)["tables"]:
            error = f"standard error {table['rms_standard_error']:.1f} in each of {table['cells']:,} cells"
            rows.append(("would use", f"residuals for {' by '.join(table['features'])}: {error}"))
        parts = f"{found.nodes:,} parts, one for every {found.partition}, of up to {takes.largest:,} cells"
        rows += [("partition", parts), *adjacency]
    else:
        seen = forecast(found)
        rows += [*_uses(found, seen), *adjacency]
        if seen.document["announced"] is not None:
            rows.append(("announced", f"{stated_text(seen.document, 'announced')} if the exact totals were forgotten"))
        rows += [("otherwise", sentence) for sentence in seen.document["otherwise"]]
    space = f"{size_text(takes.memory)} of memory, {size_text(takes.disk)} of disk"
    print_rows([*rows, ("would take", f"about {space} and {takes.seconds:,.0f} s beside reading")])
    echo("nothing was drawn or written")


def _uses(prepared: Prepared, seen: Outlook) -> list[tuple[str, str]]:
    """Say what noise each request would have."""
    rows, instead = [], []
    for (request, mechanism), foreseen in zip(prepared.parts, seen.by_request, strict=True):
        rows += [("would use", line) for line in request.noise_lines(mechanism, foreseen)]
        if mechanism.claim != "exact" and request.budget is not None:
            instead.append(("otherwise", _exact_instead(mechanism, request.budget)))
    return [*rows, *instead]


def _exact_instead(mechanism: Mechanism, budget: Budget) -> str:
    """Say what the best mechanism with an exact claim would cost."""
    exact = with_exact_claim(mechanism, budget)
    share = exact.expected_l2 / mechanism.expected_l2 - 1
    return (
        f"with --claim exact: {exact.name}, expected distance of the whole table {exact.expected_l2:,.1f} "
        f"({share:.0%} more); {mechanism.name} noise makes an ideal claim, whose proof is for real numbers"
    )


def _part_tables(whole: Whole, takes: Needs) -> dict[str, Any]:
    """Return the tables of a release part by part, and what it takes."""
    tables = [
        {"name": table.name, "features": list(own.names), "cells": own.size, "rms_standard_error": error}
        for request, mechanism in zip(whole.requests, whole.mechanisms, strict=True)
        for number, table in enumerate(request.tables)
        for own, error in [(whole.schema.restrict(table.features), mechanism.rms_error(number))]
    ]
    return {"tables": tables, "needs": takes.to_json()}


def _found_budget(asked: Plan, carried_out: Plan) -> list[tuple[str, str]]:
    """Say which budget meets the target errors."""
    errors = [
        f"{plain(table.target_error)} in {' by '.join(table.features)}" for table in asked.tables if table.target_error
    ]
    found = {str(request.budget) for request in carried_out.requests if request not in asked.requests}
    least = f"{', '.join(found)}: the least for a standard error of {', '.join(errors)}"
    return [("budget", least)] if errors else []


def _measured(prepared: Prepared, takes: Needs) -> dict[str, Any]:
    """Return what each request would publish and with what noise, and what it takes."""
    seen = forecast(prepared)
    lists: dict[str, list[dict[str, Any]]] = {name: [] for name in result_readers()}
    for (request, mechanism), foreseen in zip(prepared.parts, seen.by_request, strict=True):
        budget = request.budget and request.budget.numbers()
        noise = request.noise_json(mechanism, foreseen)
        lists.setdefault(f"{request.key}s", []).append({"name": request.name, "budget": budget, **noise})
    return {**lists, "needs": takes.to_json(), "announced": seen.document["announced"]}


def _print(done: Release, printing: o.Printing, where: str, told: Sequence[str] = (), **more: Any) -> None:
    """Print what a release holds, and its warnings but for those that were told already."""
    every = (*done.scope.warnings, *weakness(done.guarantee), *done.scope.disclosures)
    printing.warn([said for said in every if said not in told])
    if printing.json:
        print_json({**done.to_json(), "report": where, **more})
    else:
        echo(summary(done, where))
