"""``semidp compare``: two or more plans side by side, before either is carried out."""

from pathlib import Path
from typing import Annotated, Any

import typer

from semidp.cli import _options as o
from semidp.cli._output import Format, harmless, print_json
from semidp.cli._totals import without_data
from semidp.errors import InputError
from semidp.release import Plan, Scope, calibrate
from semidp.release.scope import survey
from semidp.report import comparison, forecast

Plans = Annotated[list[Path], typer.Argument(help="Two plans or more (TOML or JSON).", metavar="PLAN PLAN...")]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        help="The data, as for release; only what a plan publishes exactly is read. Else --totals, or any totals.",
        metavar="DATA",
    ),
]


def compare(
    plans: Plans,
    data: DataOption = None,
    totals: o.TotalsFiles = None,
    from_table: o.FromTable = None,
    hive_partitions: o.HivePartitions = False,
    allow_empty: o.AllowEmpty = False,
    epsilon: o.Epsilon = None,
    rho: o.Rho = None,
    mu: o.Mu = None,
    delta: o.Delta = None,
    format: o.FormatOption = Format.text,
    quiet: o.Quiet = False,
) -> None:
    """Put plans side by side: the error of every table, the guarantee, and what it would be said to be.

    A budget here is for plans that have none. Nothing is drawn, spent or written.
    """
    if len(plans) < 2:
        raise InputError("give two plans or more to compare")
    if data is not None and totals:
        raise InputError("the totals are read from the data: give --data or --totals, not both")
    found = []
    for path in plans:
        plan = o.read_plan(path, "compare")
        if any((epsilon, rho, mu, delta)) and not all(request.budget for request in plan.requests):
            plan = plan.with_budget(o.budget_of(epsilon, rho, mu, delta)[0])
        scope, known = _scope(plan, data, totals or (), from_table, hive_partitions, allow_empty)
        o.warn_all([f"{path}: {text}" for text in (*scope.warnings, *scope.disclosures)], quiet)
        seen = forecast(calibrate(plan, scope))
        found.append(
            {"plan": str(path), **seen, **({} if known else {"n": None}), "totals": "known" if known else "any"}
        )
    if format is Format.json:
        print_json({"plans": found})
    else:
        _print(found)


def _scope(
    plan: Plan, data: str | None, totals: Any, from_table: str | None, hive_partitions: bool, allow_empty: bool
) -> tuple[Scope, bool]:
    if data is None:
        return without_data(plan, totals, o.Declared(plan.features, plan.structural_zeros, plan.nests))
    with o.source_of(plan, data, from_table, hive_partitions=hive_partitions, allow_empty=allow_empty) as source:
        return survey(plan, source)[0], True


def _print(plans: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="", padding=(0, 2, 1, 0))
    table.add_column("")
    for plan in plans:
        table.add_column(harmless(Path(plan["plan"]).name))
    for name, cells in comparison(plans):
        table.add_row(name, *map(harmless, cells))
    Console(highlight=False, markup=False).print(table)
