"""``semidp census``: what the 2020 US Census redistricting file (P.L. 94-171) guarantees, its state totals exact."""

import contextlib
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

from semidp.cli import _options as o
from semidp.cli._command import command, option
from semidp.cli._output import echo, grid, in_place, naming_options, print_json
from semidp.cli.reproduce import study_files, write_study
from semidp.core.guarantee import Guarantee
from semidp.output.files import new_folder
from semidp.studies.base import Tidy

EPSILONS = ("formula", "zCDP", "Gaussian")
"""Three epsilons of the same rho: the paper's formula, the tight conversion, and that of Gaussian noise."""


@command
def census(
    *,
    out: Path | None = option("Also write census.csv and census.png to this folder.", "DIR"),
    force: bool = o.FORCE,
    printing: o.Printing,  # nothing here to silence: --quiet is taken so that every command takes it
) -> None:
    """Say what the 2020 Census redistricting file (P.L. 94-171) guarantees, as announced and with exact totals."""
    from semidp.studies import census as study

    table = study.compute()
    effective = study.guarantee()
    if out is not None:
        with naming_options(force), new_folder(out, force=force, ours=study_files) as folder:
            write_study(folder, "census", study, table)
    with in_place(f"the folder {out}") if out is not None else contextlib.nullcontext():
        if printing.json:
            print_json(
                {
                    "invariant": study.STATE_TOTALS,
                    "a": effective.adjacency.a,
                    "report_delta": study.DELTA,
                    "rows": [_plainly(row) for row in table.records()],
                    "file": "P.L. 94-171, persons",
                    "costs": [_plainly(row) for row in study.costs().records()],
                    "guarantee": effective.to_json(),
                    "explanation": str(effective.explain()),
                    "exchange": {
                        "guarantee": study.exchange_guarantee().to_json(),
                        "explanation": str(study.exchange_guarantee().explain()),
                    },
                    "notes": list(study.NOTES),
                }
            )
        else:
            _print(table, effective)
            if out is not None:
                echo(f"\n{out / 'census.csv'}\n{out / 'census.png'}")


def _plainly(row: dict[str, Any]) -> dict[str, Any]:
    """Give rho as a number, and exactly as text: production settings are fractions without an end."""
    rest = {key: float(value) if isinstance(value, Fraction) else value for key, value in row.items() if key != "delta"}
    return rest | {"rho_exact": str(row["rho"])}


def _epsilons(row: dict[str, Any]) -> tuple[str, str, str]:
    """The paper's epsilon to the nearest digit, as it prints it; the tight ones rounded up."""
    tight, gaussian = (f"{math.ceil(row[name] * 1e5) / 1e5:.5f}" for name in ("epsilon_tight", "epsilon_gaussian"))
    return f"{row['epsilon_paper']:.5f}", tight, gaussian


def _moves(rows: list[dict[str, Any]]) -> Any:
    """What one move costs under either adjacency, with the condition where there is one."""
    found = grid(("adjacency",), ("rho", *EPSILONS), ["holds"])
    for row in rows:
        condition = f"nominal: if {row['condition']}" if row["condition"] else "whatever the shares are"
        found.add_row(row["adjacency"], f"{math.ceil(row['rho'] * 100) / 100:.2f}", *_epsilons(row), condition)
    return found


def _queries() -> Any:
    """What one exchange costs in each level, and why."""
    from semidp.studies import census as study

    found = grid(("level", "query"), ("announced", "times", "rho"), ["because"])
    for row in study.costs_by_level().records():
        announced, rho = (f"{math.ceil(row[name] * 10**4) / 10**4:.4f}" for name in ("announced", "rho"))
        found.add_row(row["level"].replace("_", " "), row["query"], announced, str(row["factor"]), rho, row["reason"])
    return found


def _print(table: Tidy, effective: Guarantee) -> None:
    from rich.console import Console

    from semidp.studies import census as study

    shares = grid(("tables", "setting", "level"), ("k", "rho", *EPSILONS))
    before: tuple[Any, ...] = ()
    nominal = [row for row in table.records() if row["condition"] or row["adjacency"] == "exchange"]
    for row in table.records():
        if row in nominal:
            continue
        group = (row["tables"], row["setting"], row["level"])
        shown = group if group != before else ("", "", "")
        shares.add_row(*shown, str(row["a"]), f"{float(row['rho']):.4f}", *_epsilons(row))
        before = group
    paper = table.where(tables="persons", setting="rounded", level="all", a=2).records()
    console = Console(highlight=False)
    console.print("The 2020 Census redistricting file (P.L. 94-171).")
    console.print(
        "Any k records at once (ball). k = 1: as announced; 2: with exact states; 3: with one more exact margin."
    )
    console.print(
        "Epsilon at delta = 1e-10, three times: by the formula of the paper; tight for zCDP, which is proved for the "
        "discrete noise of the production run; exact for Gaussian noise.\n"
    )
    console.print(shares)
    console.print("\nWhat one move costs in the persons file (P.L. 94-171): rho rounded up, epsilon of rho itself.\n")
    console.print(_moves([*paper, *nominal]))
    console.print(
        "\nUnder exchange, by level and query, if the production shares by query hold (each query: --format json):\n"
    )
    console.print(_queries())
    exchange = study.exchange_guarantee()
    console.print(f"\nBall, rho = 10.24. {effective.explain()}\n", markup=False)
    console.print(f"Exchange, rho = 5.12. {exchange.explain().protected}\n", markup=False)
    for note in study.NOTES:
        console.print(f"- {note}", markup=False)
