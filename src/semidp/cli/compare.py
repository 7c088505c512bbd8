"""``semidp compare``: two or more plans side by side, before either is carried out."""

from pathlib import Path
from typing import Annotated

import semidp.cli._options as o
from semidp.cli._command import argument, command, option
from semidp.cli._output import grid, harmless, print_json
from semidp.cli._totals import build_scope
from semidp.errors import InputError
from semidp.present.report.outlook import Outlook, comparison, forecast
from semidp.publish.pipeline import calibrate


@command
def compare(
    *,
    plans: list[Path] = argument("Two plans or more (TOML or JSON).", "PLAN PLAN..."),
    data: o.Text = option(
        "The data, as for release; only what a plan publishes exactly is read. Else --totals, or"
        " any totals.",
        "DATA",
    ),
    totals: list[Path] | None = o.TOTALS,
    opening: Annotated[o.Opening, o.FILES],
    spending: Annotated[o.Spending, ("epsilon", "rho", "mu", "delta")],
    printing: o.Printing,
) -> None:
    """Put plans side by side: the error of every table, the guarantee, and what it would be said to
    be.

    A budget here is for plans that have none. Nothing is drawn, spent or written.
    """
    if len(plans) < 2:
        raise InputError("give two plans or more to compare")
    if data is not None and totals:
        raise InputError("the totals are read from the data: give --data or --totals, not both")
    named: list[tuple[str, Outlook]] = []
    documents = []
    for path in plans:
        plan = o.read_plan(path, "compare")
        # A plan that states its budget keeps it: that is what is compared.
        if spending.is_given and not all(request.budget for request in plan.requests):
            plan = plan.with_budget(spending.budget()[0])
        with o.about_file(path):
            scope, invariants = build_scope(plan, data, opening, totals or (), quiet=printing.quiet)
        printing.warn([f"{path}: {text}" for text in (*scope.warnings, *scope.disclosures)])
        with o.about_file(path):
            seen = forecast(calibrate(plan, scope))
        named.append((path.name, seen))
        # Where any totals are meant, the number of records is one of many.
        records = {} if invariants else {"n": None}
        documents.append(
            {
                "plan": str(path),
                **seen.document,
                **records,
                "totals": "known" if invariants else "any",
            }
        )
    if printing.json:
        print_json({"plans": documents})
    else:
        _print(named)


def _print(plans: list[tuple[str, Outlook]]) -> None:
    from rich.console import Console

    names = [harmless(name) for name, _ in plans]
    table = grid(["", *names], padding=(0, 2, 1, 0))
    for label, cells in comparison([seen for _, seen in plans]):
        table.add_row(harmless(label), *map(harmless, cells))
    Console(highlight=False, markup=False).print(table)
