"""``semidp release``, ``show``, ``synthesize`` and ``demo``: the main job, its result again, records, a first look."""

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer
from attrs import evolve

from semidp.accounting.ledger import Ledger
from semidp.cli import _options as o
from semidp.cli._output import Format, complain, echo, in_place, naming_options, print_json, progress_bar
from semidp.engines import Source, local_paths
from semidp.errors import InputError
from semidp.exact import plain
from semidp.files import check_place, document_at, new_folder
from semidp.grouped import most_rank_error
from semidp.mechanisms import NAMES, ResidualMechanism
from semidp.noise import SeededRandomness, SystemRandomness
from semidp.release import (
    REPORT,
    Form,
    GroupRequest,
    Model,
    Plan,
    Prepared,
    ProductRequest,
    QuantileRequest,
    RegressionRequest,
    Release,
    Statistic,
    form_named,
    prepare,
    release_files,
    run,
    run_partitioned,
)
from semidp.release.by_partition import Whole, prepare_parts
from semidp.release.needs import Needs, declared_needs, memory_from, needs_of, part_needs, size_text
from semidp.release.partitions import tables_asked
from semidp.release.recheck import disagreements
from semidp.release.signing import Signer
from semidp.release.signing import verify as verify_signature
from semidp.release.synthesis import about_file, check_records
from semidp.report import (
    announced_text,
    budget_parts,
    forecast,
    forecast_text,
    implied,
    product_errors,
    product_lines,
    strength,
    summary,
    together_text,
)

_CHARGED = "the ledger was charged all the same"
DISAGREES = 1
"""The exit code where a release or a ledger contradicts what it should follow from."""

Out = Annotated[Path | None, typer.Option("--out", help="The folder to write: it is made, whole or not at all.")]
MechanismOption = Annotated[
    str,
    typer.Option("--mechanism", help=f"How to draw the noise: auto, {', '.join(NAMES)}.", metavar="NAME"),
]
FitOption = Annotated[
    str,
    typer.Option(
        "--fit",
        help="Publish the measurements as whole numbers, as real ones (both with the exact totals), or as they are.",
        metavar="integer|real|none",
    ),
]
PlanOption = Annotated[
    Path | None, typer.Option("--plan", help="A plan (TOML or JSON), instead of --table and --invariant.")
]
Sign = Annotated[
    Path | None,
    typer.Option("--sign", help="Sign every file with this secret key of minisign (extra: sign).", metavar="KEY"),
]
Write = Annotated[
    str | None,
    typer.Option(
        "--write",
        help="How to write tables: CSV, or Parquet, which is used from a million cells on unless said.",
        metavar="csv|parquet",
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        help="The memory that may be used; that of the machine or container unless said.",
        metavar="8GB",
    ),
]
PartitionOption = Annotated[
    str | None,
    typer.Option(
        "--partition",
        help="Release part by part: a depth of a nested feature, such as state. Only tables, and no pure epsilon.",
        metavar="DEPTH",
    ),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", help="With --partition: how many parts at a time, each in a process.", min=1)
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Finish a release by --partition that ended early, from the same records; nothing is drawn again.",
    ),
]
Discard = Annotated[
    bool, typer.Option("--discard", help="Remove what a release by --partition that ended early has left.")
]
Verify = Annotated[
    Path | None,
    typer.Option("--verify", help="First verify the signature with this public key of minisign.", metavar="KEY.pub"),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be released and with what noise; draw and write nothing.")
]


def release(
    data: o.Data,
    table: o.TableOption = None,
    invariant: o.Invariants = None,
    out: Out = None,
    group: o.Groups = None,
    mean: o.Means = None,
    sum: o.Sums = None,
    proportion: o.Proportions = None,
    median: o.Medians = None,
    quantile: o.Quantiles = None,
    quantile_level: o.QuantileLevel = None,
    all_pairs: o.AllPairs = None,
    weight: o.Weights = None,
    objective: o.ObjectiveOption = None,
    share: o.Shares = None,
    regress: o.Regress = None,
    logistic: o.Logistic = None,
    on: o.On = None,
    bounds: o.Bounds = None,
    grid: o.Grid = None,
    level: o.Level = None,
    sampling: o.Sampling = False,
    simultaneous: o.Simultaneous = False,
    differences: o.Differences = False,
    epsilon: o.Epsilon = None,
    rho: o.Rho = None,
    mu: o.Mu = None,
    delta: o.Delta = None,
    report_delta: o.ReportDelta = None,
    target_error: o.TargetErrors = None,
    plan: PlanOption = None,
    mechanism: MechanismOption = "auto",
    fit: FitOption = "integer",
    adjacency: o.AdjacencyOption = None,
    a: o.AOption = None,
    schema: o.SchemaFile = None,
    levels: o.Levels = None,
    bins: o.Bins = None,
    null_level: o.NullLevels = None,
    nest: o.Nests = None,
    levels_from_data: o.LevelsFromData = False,
    count: o.Count = None,
    from_table: o.FromTable = None,
    where: o.Where = None,
    identity: o.Identity = None,
    hive_partitions: o.HivePartitions = False,
    allow_empty: o.AllowEmpty = False,
    ledger: o.Ledger = None,
    label: o.Label = None,
    seed: o.Seed = None,
    sign: Sign = None,
    write: Write = None,
    memory: Memory = None,
    partition: PartitionOption = None,
    jobs: Jobs = None,
    resume: Resume = False,
    discard: Discard = False,
    dry_run: DryRun = False,
    force: o.Force = False,
    format: o.FormatOption = Format.text,
    quiet: o.Quiet = False,
) -> None:
    """Publish a table with noise beside exact totals: a folder with the table, its guarantee and a report.

    --force replaces a folder that holds a release (or nothing) and no other file. Once the folder is in place the exit
    code is 0, even if stdout takes no more.
    """
    quantiles = o.quantiles_of(group, median, quantile, bounds, grid, quantile_level, sampling)
    chosen = [request.outcome.column for request in quantiles]
    groups, regressions = o.confidence_of(
        level,
        sampling,
        simultaneous,
        differences,
        o.groups_of(
            group,
            {Statistic.mean: mean, Statistic.sum: sum, Statistic.proportion: proportion},
            bounds,
            grid,
            others=[*(regress or ()), *(logistic or ()), *chosen],
            alone=not quantiles,
        ),
        o.regressions_of({Model.linear: regress, Model.logistic: logistic}, on, bounds, grid),
        quantile_level is not None,
    )
    wanted = _plan(
        plan,
        table,
        invariant,
        o.declared_features(schema, levels, bins, null_level, nest),
        budget=(epsilon, rho, mu, delta, report_delta),
        mechanism=mechanism,
        fit=fit,
        adjacency=(adjacency, a),
        reading=(count, where, identity),
        levels_from_data=levels_from_data,
        groups=groups,
        regressions=regressions,
        quantiles=quantiles,
        all_pairs=all_pairs,
        targets=target_error,
        sharing=(weight, objective, share),
    )
    o.all_used(wanted, levels, bins, null_level, nest)
    if out is None and not dry_run:
        raise InputError("say where to write the release: --out FOLDER (or --dry-run to write nothing)")
    inputs = [Path(item) for item in (*local_paths(data, from_table), plan, schema, ledger, sign) if item is not None]
    if out is not None and not dry_run:
        with naming_options(force):
            check_place(out, force=force, ours=release_files, inputs=inputs)
    form = None if write is None else form_named(write)
    usable = None if memory is None else memory_from(memory)
    if partition is None and (jobs is not None or resume or discard):
        raise InputError("--jobs, --resume and --discard are for a release by parts: give --partition DEPTH too")
    if resume and discard:
        raise InputError("--resume finishes what --discard removes: give one of them")
    foreseen = declared_needs(wanted, form)
    if foreseen is not None and partition is None:
        foreseen.refuse_memory(usable)
    randomness = SystemRandomness() if seed is None else SeededRandomness(seed)
    signer = Signer(sign, _password) if sign is not None else None
    with (
        progress_bar(quiet) as progress,
        o.source_of(wanted, data, from_table, hive_partitions=hive_partitions, allow_empty=allow_empty) as source,
    ):
        if dry_run:
            if partition is None:
                _rehearse(wanted, source, usable, format, quiet)
            else:
                _rehearse_parts(
                    prepare_parts(wanted, source, partition, jobs=jobs or 1, memory=usable), jobs, form, format, quiet
                )
            return
        assert out is not None
        book = o.ledger_of(ledger, quiet)
        common: dict[str, Any] = {
            "randomness": randomness,
            "ledger": book,
            "label": label,
            "memory": usable,
            "form": form,
        }
        with _honest_about(book), naming_options(force):
            if partition is not None:
                done = run_partitioned(
                    wanted,
                    source,
                    out,
                    partition,
                    jobs=jobs or 1,
                    resume=resume,
                    discard=discard,
                    force=force,
                    inputs=inputs,
                    finish=(lambda folder, passing: None) if signer is None else signer.sign,
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
        for line in _found_budget(wanted, done.plan) if format is Format.text else ():
            echo(line)
        _print(done, format, str(out / REPORT), quiet)


def show(
    folder: Annotated[Path, typer.Argument(help="A folder that `semidp release` wrote.", metavar="RELEASE")],
    format: o.FormatOption = Format.text,
    verify: Verify = None,
    quiet: o.Quiet = False,
) -> None:
    """Print what a release holds and guarantees.

    All that it states is computed again from its plan, its exact totals and its noisy values; where something does not
    follow, that is said, and the exit code is 1.
    """
    if verify is not None:
        verify_signature(folder, verify)
    done = Release.load(folder)
    said = disagreements(done, document_at(folder / "release.json"))
    _print(done, format, str(folder / REPORT), quiet, {"disagreements": list(said), "verified": verify is not None})
    if verify is not None and format is Format.text:
        echo(f"signed     every file, by the key {verify}")
    if said:
        for sentence in said if format is Format.text else ():
            echo(f"disagrees  {sentence}")
        raise typer.Exit(DISAGREES)


def synthesize(
    folder: Annotated[Path, typer.Argument(help="A folder that `semidp release` wrote.", metavar="RELEASE")],
    out: Annotated[Path | None, typer.Option("--out", help="The CSV file to write, one record a line.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Match records the same way again.", min=0)] = None,
    force: o.Force = False,
    format: o.FormatOption = Format.text,
    quiet: o.Quiet = False,
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
        done = Release.load(folder)
        o.warn_all((*done.scope.warnings, *done.scope.disclosures), quiet)
        randomness = SystemRandomness() if seed is None else SeededRandomness(seed)
        about = done.save_records(out, force=force, randomness=randomness)
    with in_place(f"the file {out}"):
        if format is Format.json:
            print_json({**about, "out": str(out), "about": str(about_file(out))})
            return
        tables = "; ".join(" by ".join(table["features"]) for table in about["tables"])
        echo(f"records    {about['records']:,}, of {', '.join(about['columns'])}")
        echo(f"they have  {tables}: every published count, and every exact total")
        echo("budget     none is spent: they follow from the published numbers")
        if not done.private:
            echo("NOT PRIVATE: the release was drawn with a seed or by a mechanism meant for studies.")
        echo(f"written    {out}, and what it is in {about_file(out)}")


def demo(
    out: Annotated[Path, typer.Option("--out", help="The folder to write; an earlier demo is replaced.")] = Path(
        "build/demo"
    ),
    format: o.FormatOption = Format.text,
    quiet: o.Quiet = False,
) -> None:
    """Release the pupils of 420 California school districts who qualify for reduced-price meals; enrolment is exact."""
    data = str(files("semidp") / "data" / "california_schools.csv")
    words = [
        *("--nest", "county,district", "--table", "district,meals", "--invariant", "district"),
        *("--levels", "meals=no,yes", "--count", "count", "--mu", "1", "--out", str(out), "--force"),
    ]
    people = format is Format.text
    if people:
        echo(f"$ semidp release california_schools.csv {shlex.join(words)}\n")
    release(
        data,
        nest=["county,district"],
        table=["district,meals"],
        invariant=["district"],
        levels=["meals=no,yes"],
        count="count",
        mu="1",
        out=out,
        force=True,
        format=format,
        quiet=quiet,
    )
    if people:
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


@contextlib.contextmanager
def _honest_about(book: Ledger | None) -> Iterator[None]:
    """Say so where a release fails after its ledger was charged: noise may have been drawn, so the charge stands."""
    before = len(book.account().charges) if book else 0
    try:
        yield
    except BaseException as error:
        if not book or len(book.account().charges) == before:
            raise
        if not isinstance(error, InputError):
            complain(_CHARGED)
            raise
        raise InputError(f"{error}; {_CHARGED}", needs=error.needs, names=error.names) from None


def _plan(
    path: Path | None,
    table: list[str] | None,
    invariant: list[str] | None,
    declared: Any,
    *,
    budget: tuple[str | None, str | None, str | None, str | None, str | None],
    mechanism: str,
    fit: str,
    adjacency: tuple[str | None, str | None],
    reading: tuple[str | None, str | None, str | None],
    levels_from_data: bool,
    groups: tuple[GroupRequest, ...],
    regressions: tuple[RegressionRequest, ...],
    quantiles: tuple[QuantileRequest, ...],
    all_pairs: str | None,
    targets: list[str] | None,
    sharing: tuple[list[str] | None, str | None, list[str] | None],
) -> Plan:
    if targets and any(budget[:3]):
        raise InputError("--target-error finds the budget: leave --epsilon, --rho and --mu out, or leave it out")
    if path is not None:
        asked = (table, all_pairs, groups, regressions, quantiles, *sharing)
        others = (*asked, invariant, declared, *reading, *adjacency, levels_from_data)
        if any(others) or (mechanism, fit) != ("auto", "integer"):
            raise InputError(
                "--plan already says what to release and how: beside it, give only a budget, --out, --ledger and --seed"
            )
        wanted = o.read_plan(path, "--plan")
        if targets or not any(budget[:-1]):
            return evolve(
                o.with_targets(wanted, targets), report_delta=o.target_of(*budget[-2:]) or wanted.report_delta
            )
        if all(request.budget for request in wanted.requests):
            raise InputError("the plan gives every table its budget already: leave the budget out, here or there")
        spend, report_delta = o.budget_of(*budget)
        return evolve(wanted.with_budget(spend), report_delta=report_delta or wanted.report_delta)
    if not table and all_pairs is None and not groups and not regressions and not quantiles:
        raise InputError("say what to release: --table a,b, or --group a with --mean b (or --plan FILE)")
    weights, objective, shares = sharing
    if targets and (objective or shares):
        raise InputError("--objective and --share divide a budget, and --target-error finds one: leave one of them out")
    share, reported = (None, o.target_of(*budget[-2:])) if targets else o.budget_of(*budget)
    count, where, identity = reading
    wanted = o.plan_of(
        table,
        invariant,
        declared,
        adjacency=o.adjacency_of(*adjacency),
        count=count,
        where=where,
        identity=identity,
        levels_from_data=levels_from_data,
        budget=share,
        report_delta=reported,
        mechanism=mechanism,
        fit=fit,
        groups=groups,
        regressions=regressions,
        quantiles=quantiles,
        all_pairs=all_pairs,
        weights=weights,
        objective=objective,
        shares=shares,
    )
    return o.with_targets(wanted, targets)


def _rehearse(plan: Plan, source: Source, memory: int | None, format: Format, quiet: bool) -> None:
    prepared = prepare(plan, source, memory=memory)
    scope = prepared.scope
    o.warn_all((*scope.warnings, *scope.disclosures), quiet)
    if format is Format.json:
        print_json(_rehearsal(prepared))
        return
    seen = forecast(prepared)
    expected = {table["name"]: table for table in seen["tables"]}
    echo(f"exact      {scope.dataspace.summary()}")
    for line in (*_found_budget(plan, prepared.plan), *(f"budget     {part}" for part in budget_parts(prepared.plan))):
        echo(line)
    for request, mechanism in prepared.parts:
        if isinstance(mechanism, ResidualMechanism):
            for line in product_lines(request, mechanism):
                echo(f"would use  {line}")
            continue
        if isinstance(request, QuantileRequest):
            ranks = most_rank_error(mechanism)
            echo(f"would use  {mechanism.name} for {request.name}: at most {ranks:,} ranks off in 95% of choices")
            continue
        unit, counts = float(mechanism.space.unit), mechanism.space.of_counts
        what = " by ".join(request.features) if counts else f"the sums behind {request.name}"
        errors = f"{forecast_text(expected[request.name])}, " if counts else ""
        loss = f", expected distance of the whole table {mechanism.expected_l2:,.1f}" if counts else " in each"
        echo(
            f"would use  {mechanism.name} for {what}: {errors}scale {mechanism.scale * unit:.4g}{loss}, "
            f"{mechanism.claim} claim"
        )
    echo(f"adjacency  {together_text(scope)}")
    for sentence in strength(prepared.guarantee, plan.report_delta):
        echo(f"strength   {sentence}")
    if seen["announced"] is not None:
        echo(f"announced  {announced_text(seen)} if the exact totals were forgotten")
    for sentence in implied(prepared) if scope.adjacency.is_exchange else ():
        echo(f"otherwise  {sentence}")
    takes = _takes(prepared)
    echo(
        f"would take about {size_text(takes.memory)} of memory, {size_text(takes.disk)} of disk and "
        f"{takes.seconds:,.0f} s beside reading"
    )
    echo("nothing was drawn or written")


def _rehearse_parts(whole: Whole, jobs: int | None, form: Form | None, format: Format, quiet: bool) -> None:
    """Say what a release part by part would do, from public values."""
    plan, scope, schema = whole.plan, whole.scope, whole.schema
    o.warn_all((*scope.warnings, *scope.disclosures), quiet)
    takes = part_needs(plan, schema, whole.cut, jobs or 1, form or Form.parquet)
    tables: list[dict[str, Any]] = [
        {"name": table.name, "features": list(own.names), "cells": own.size, "rms_standard_error": error}
        for request, mechanism in zip(whole.requests, whole.mechanisms, strict=True)
        for number, table in enumerate(tables_asked(request))
        for own, error in [(schema.restrict(table.features), mechanism.rms_error(number))]
    ]
    if format is Format.json:
        curve = whole.guarantee.tradeoff
        print_json(
            {
                "dry_run": True,
                "n": scope.dataspace.n,
                "plan": plan.to_json(),
                "partition": {"depth": whole.partition, "parts": whole.nodes},
                "a": scope.adjacency_json(),
                "guarantee": curve.to_json(),
                "epsilon": curve.epsilon(plan.report_delta),
                "report_delta": plan.report_delta,
                "budget": plan.budget and plan.budget.numbers(),
                "tables": tables,
                "needs": takes.to_json(),
                "disclosures": scope.disclosures,
                "warnings": scope.warnings,
            }
        )
        return
    echo(f"exact      {scope.dataspace.summary()}")
    for part in budget_parts(plan):
        echo(f"budget     {part}")
    for table in tables:
        echo(
            f"would use  residuals for {' by '.join(table['features'])}: standard error "
            f"{table['rms_standard_error']:.1f} in each of {table['cells']:,} cells"
        )
    echo(f"partition  {whole.nodes:,} parts, one for every {whole.partition}, of up to {takes.largest:,} cells")
    echo(f"adjacency  {together_text(scope)}")
    for sentence in strength(whole.guarantee, plan.report_delta):
        echo(f"strength   {sentence}")
    echo(
        f"would take about {size_text(takes.memory)} of memory, {size_text(takes.disk)} of disk and "
        f"{takes.seconds:,.0f} s beside reading"
    )
    echo("nothing was drawn or written")


def _takes(prepared: Prepared) -> Needs:
    assert prepared.scope.dataspace.schema is not None
    return needs_of(prepared.plan, prepared.scope.dataspace.schema, False)


def _found_budget(asked: Plan, carried_out: Plan) -> list[str]:
    """Say which budget meets the target errors."""
    wanted = [table for table in asked.tables if table.target_error is not None]
    errors = [f"{plain(table.target_error)} in {' by '.join(table.features)}" for table in wanted if table.target_error]
    found = {str(request.budget) for request in carried_out.requests if request not in asked.requests}
    return [f"budget     {', '.join(found)}: the least for a standard error of {', '.join(errors)}"] if errors else []


def _rehearsal(prepared: Prepared) -> dict[str, Any]:
    plan, scope, curve = prepared.plan, prepared.scope, prepared.guarantee.tradeoff
    expected = forecast(prepared)
    tables = {table["name"]: table for table in expected["tables"]}

    def measured(key: str) -> list[dict[str, Any]]:
        return [
            {
                "name": request.name,
                "budget": request.budget and request.budget.numbers(),
                **(tables[request.name] if key == "table" else {}),
                "noise": mechanism.to_json(),
                **({} if mechanism.space.of_counts else {"unit": float(mechanism.space.unit)}),
            }
            for request, mechanism in prepared.parts
            if request.key == key
        ]

    return {
        "dry_run": True,
        "n": scope.dataspace.n,
        "plan": plan.to_json(),
        "a": scope.adjacency_json(),
        "guarantee": curve.to_json(),
        "epsilon": curve.epsilon(plan.report_delta),
        "report_delta": plan.report_delta,
        "budget": plan.budget and plan.budget.numbers(),
        "tables": measured("table"),
        "products": [
            {**part, "tables": [{**table, **tables[table["name"]]} for table in product_errors(request, mechanism)]}
            for part, (request, mechanism) in zip(
                measured("product"), [pair for pair in prepared.parts if pair[0].key == "product"], strict=True
            )
            if isinstance(request, ProductRequest)
        ],
        "groups": measured("group"),
        "regressions": measured("regression"),
        "needs": _takes(prepared).to_json(),
        "quantiles": measured("quantile"),
        "announced": expected["announced"],
        "disclosures": scope.disclosures,
        "warnings": scope.warnings,
    }


def _print(
    done: Release, format: Format, where: str, quiet: bool, more: Mapping[str, Any] = MappingProxyType({})
) -> None:
    o.warn_all((*done.scope.warnings, *done.scope.disclosures), quiet)
    if format is Format.json:
        print_json({**done.to_json(), "report": where, **more})
    else:
        echo(summary(done, where))
