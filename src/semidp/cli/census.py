"""``semidp census``: what the 2020 US Census redistricting file (P.L. 94-171) guarantees, its state totals exact."""

import contextlib
import math
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

from semidp.cli._options import Force, FormatOption, Quiet
from semidp.cli._output import Format, echo, in_place, output_folder, print_json
from semidp.cli.reproduce import study_files, write_study
from semidp.guarantees import Guarantee
from semidp.reproduction import Tidy

Picture = Annotated[
    Path | None, typer.Option("--out", help="Also write census.csv and census.png to this folder.", metavar="DIR")
]


def census(
    out: Picture = None,
    force: Force = False,
    format: FormatOption = Format.text,
    quiet: Quiet = False,  # nothing here to silence: taken so that every command takes it
) -> None:
    """Say what the 2020 Census redistricting file (P.L. 94-171) guarantees, as announced and with exact totals."""
    from semidp.reproduction import census as study

    table = study.compute()
    effective = study.guarantee()
    if out is not None:
        with output_folder(out, force, study_files) as folder:
            write_study(folder, "census", study, table)
    with in_place(f"the folder {out}") if out is not None else contextlib.nullcontext():
        _show(table, effective, out, format)


def _show(table: Tidy, effective: Guarantee, out: Path | None, format: Format) -> None:
    from semidp.reproduction import census as study

    if format is Format.json:
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
                "notes": list(study.NOTES),
            }
        )
    else:
        _print(table, str(effective.explain()), study.NOTES)
        if out is not None:
            echo(f"\n{out / 'census.csv'}\n{out / 'census.png'}")


def _plainly(row: dict[str, Any]) -> dict[str, Any]:
    """Give rho as a number, and exactly as text: production settings are fractions without an end."""
    rest = {key: float(value) if isinstance(value, Fraction) else value for key, value in row.items() if key != "delta"}
    return rest | {"rho_exact": str(row["rho"])}


def _moves(rows: list[dict[str, Any]]) -> Any:
    """The rows of exchange, and of the ball where an exact statistic fixes a query, with their conditions."""
    from rich.table import Table

    grid = Table(box=None, pad_edge=False, header_style="")
    grid.add_column("adjacency")
    for name in ("rho", "epsilon (paper)", "epsilon (tight)"):
        grid.add_column(name, justify="right")
    grid.add_column("if")
    for row in rows:
        rho = f"{math.ceil(row['rho'] * 100) / 100:.2f}"
        epsilons = (f"{row['epsilon_paper']:.5f}", f"{math.ceil(row['epsilon_tight'] * 1e5) / 1e5:.5f}")
        grid.add_row(row["adjacency"], rho, *epsilons, row["condition"] or "(no condition)")
    return grid


def _print(table: Tidy, explanation: str, notes: tuple[str, ...]) -> None:
    from rich.console import Console
    from rich.table import Table

    grid = Table(box=None, pad_edge=False, header_style="")
    for name in ("tables", "setting", "level"):
        grid.add_column(name)
    for name in ("k", "rho", "epsilon (paper)", "epsilon (tight)"):
        grid.add_column(name, justify="right")
    before: tuple[Any, ...] = ()
    nominal = [row for row in table.records() if row["condition"] or row["adjacency"] == "exchange"]
    for row in table.records():
        if row in nominal:
            continue
        group = (row["tables"], row["setting"], row["level"])
        shown = group if group != before else ("", "", "")
        # The paper's epsilon to the nearest digit, as it prints it; the tight one rounded up.
        epsilons = (f"{row['epsilon_paper']:.5f}", f"{math.ceil(row['epsilon_tight'] * 1e5) / 1e5:.5f}")
        grid.add_row(*shown, str(row["a"]), f"{float(row['rho']):.4f}", *epsilons)
        before = group
    console = Console(highlight=False)
    console.print("The 2020 Census redistricting file (P.L. 94-171).")
    console.print("k = 1: as announced; k = 2: with exact state populations; k = 3: with one more exact margin.")
    console.print("Epsilon at delta = 1e-10.\n")
    console.print(grid)
    console.print("\nWhat one move costs in the persons tables (rho rounded up):\n")
    console.print(_moves(nominal))
    console.print(f"\n{explanation}\n", markup=False)
    for note in notes:
        console.print(f"- {note}", markup=False)
