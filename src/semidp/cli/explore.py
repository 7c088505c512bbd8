"""``semidp explore``: a page of this machine that shows what a plan would publish before anything is spent."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from attrs import evolve

from semidp.cli import _options as o
from semidp.cli._output import echo
from semidp.cli._totals import totals_of, without_data
from semidp.engines import Source, local_paths
from semidp.errors import InputError
from semidp.files import check_place, new_folder
from semidp.release import Plan, Release, Scope, release_files, run
from semidp.release.scope import survey

if TYPE_CHECKING:
    from semidp.explore import Desk

Port = Annotated[
    int, typer.Option("--port", help="Where to listen on 127.0.0.1; any free one unless given.", min=0, max=65535)
]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Only print the address; open no browser.")]
PlanStart = Annotated[
    Path | None, typer.Option("--plan", help="The plan to start with (TOML or JSON).", metavar="FILE")
]


def explore(
    data: o.OptionalData = None,
    port: Port = 0,
    no_browser: NoBrowser = False,
    plan: PlanStart = None,
    schema: o.SchemaFile = None,
    levels: o.Levels = None,
    bins: o.Bins = None,
    null_level: o.NullLevels = None,
    nest: o.Nests = None,
    totals: o.TotalsFiles = None,
    count: o.Count = None,
    from_table: o.FromTable = None,
    where: o.Where = None,
    identity: o.Identity = None,
    hive_partitions: o.HivePartitions = False,
    allow_empty: o.AllowEmpty = False,
    ledger: o.Ledger = None,
) -> None:
    """Open a page that shows what a plan would publish: its errors, its guarantee, what each choice costs.

    It is served to this machine only. Its address, with the token that opens it, is the only line on stdout; an
    interrupt ends it. Without data it works from declared levels and public --totals.
    """
    try:
        import starlette as _starlette  # noqa: F401
        import uvicorn as _uvicorn  # noqa: F401
    except ImportError:
        raise InputError("the page needs Starlette and uvicorn: install semidp[explore]") from None
    declared = o.declared_features(schema, levels, bins, null_level, nest)
    if data is not None and totals:
        raise InputError("the totals are read from the data: give DATA or --totals, not both")
    first = _first(plan, declared, count, where, identity)
    if data is None:
        desk = _without_data(first, totals or ())
    else:
        desk = _with_data(data, first, from_table, hive_partitions, allow_empty, ledger)
    from semidp.explore.server import serve

    serve(desk, port, browser=not no_browser, announce=_announce)


def _announce(address: str) -> None:
    import sys

    echo(address)
    sys.stdout.flush()


def _first(
    path: Path | None, declared: o.Declared | None, count: str | None, where: str | None, identity: str | None
) -> Plan:
    if path is None:
        found = declared or o.Declared()
        return Plan(
            (), (), found.features, found.structural_zeros, nests=found.nests, count=count, where=where, id=identity
        )
    if declared is not None or any((count, where, identity)):
        raise InputError("--plan already says how the data are read: leave the other options out")
    return o.read_plan(path, "--plan")


def _with_data(
    data: str, first: Plan, from_table: str | None, hive_partitions: bool, allow_empty: bool, ledger: Path | None
) -> "Desk":
    from semidp.explore import Desk

    def source(plan: Plan) -> Source:
        return o.source_of(plan, data, from_table, hive_partitions=hive_partitions, allow_empty=allow_empty)

    def scope(plan: Plan) -> Scope:
        with source(plan) as opened:
            return survey(plan, opened)[0]

    def carry_out(plan: Plan, folder: Path) -> Release:
        inputs = [*local_paths(data, from_table), *([] if ledger is None else [str(ledger)])]
        check_place(folder, force=False, ours=release_files, inputs=inputs)
        book = o.ledger_of(ledger, quiet=True)
        with source(plan) as opened, new_folder(folder, force=False, ours=release_files, inputs=inputs) as new:
            done = run(plan, opened, ledger=book)
            done.write_files(new)
        return done

    with source(first) as opened:
        columns = opened.columns()
    return Desk(columns, scope, first, source=data, carry_out=carry_out)


def _without_data(first: Plan, totals: Sequence[Path]) -> "Desk":
    from semidp.explore import Desk

    declared = o.Declared(first.features, first.structural_zeros, first.nests)
    space = totals_of(totals, declared) if totals else None
    schema = space.schema if space is not None else declared.schema()
    if schema is None:
        raise InputError("give DATA, or what is public without it: --schema FILE or --levels, and --totals FILE")
    if space is not None and not first.invariants:
        first = evolve(first, invariants=space.margins)

    def scope(plan: Plan) -> Scope:
        return without_data(plan, totals, o.Declared(plan.features, plan.structural_zeros, plan.nests))[0]

    return Desk(schema.names, scope, first)
