"""``semidp ledger``: open a ledger with its budget, or see what one has spent."""

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

from semidp.accounting.ledger import Ledger
from semidp.cli import _options as o
from semidp.cli._output import Format, in_place, print_json
from semidp.exact import plain, rounded_up
from semidp.release import Plan
from semidp.report import name_of
from semidp.tradeoff import Budget, Tradeoff

LedgerFile = Annotated[Path, typer.Argument(help="The ledger's file.", metavar="FILE")]


def ledger(
    file: LedgerFile,
    epsilon: o.Epsilon = None,
    rho: o.Rho = None,
    mu: o.Mu = None,
    delta: o.Delta = None,
    report_delta: o.ReportDelta = None,
    format: o.FormatOption = Format.text,
    quiet: o.Quiet = False,  # nothing here to silence: taken so that every command takes it
) -> None:
    """Show what a ledger has spent; with a budget, open a new one."""
    target = o.target_of(None, report_delta)
    if any((epsilon, rho, mu, delta)):
        budget, target = o.budget_of(epsilon, rho, mu, delta, report_delta)
        book = Ledger.create(file, budget)
        with in_place(f"the ledger {file}"):
            _print(book, format, target)
    else:
        _print(Ledger(file), format, target)


def _print(book: Ledger, format: Format, target: Fraction | None) -> None:
    document = _document(book, target)
    if format is Format.json:
        print_json(document)
        return
    typer.echo(f"budget     {book.account().budget}")
    typer.echo(f"under      {document['invariant'] or 'nothing charged yet'}")
    for charge in document["charges"]:
        typer.echo(f"charged    {charge['time']}  {charge['label']}")
    if document["spent"]:
        typer.echo(f"spent      {document['spent']} (had composition come first: {document['composition_first']})")


def _document(book: Ledger, target: Fraction | None) -> dict[str, Any]:
    account, total, other = book.account(), book.total(), book.composition_first()
    return {
        "budget": account.budget.numbers(),
        "invariant": account.dataspace.summary() if account.dataspace else None,
        "a": account.adjacency.a if account.adjacency else None,
        "charges": [charge.to_json() for charge in account.charges],
        "spent": _named(total.tradeoff, account.budget, target) if total else None,
        "composition_first": _named(other.tradeoff, account.budget, target) if other else None,
    }


def _named(curve: Tradeoff, budget: Budget, target: Fraction | None = None) -> str:
    """Name a curve, or restate it at the target, which is the delta of the budget unless given.

    >>> from semidp.tradeoff import approximate
    >>> _named(approximate(1, "1e-6"), Budget.approximate(2, "1e-6"))
    '(1, 1e-6)-DP'
    """
    delta = target or budget.delta or Plan().report_delta
    restated = f"({rounded_up(curve.epsilon(delta))}, {plain(delta)})-DP"
    name = name_of(curve)
    if name is None:
        return restated
    return name if target is None else f"{name}, which is {restated}"
