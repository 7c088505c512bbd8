"""``semidp ledger``: open a ledger with its budget, or see what one has spent."""

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

from semidp.accounting.ledger import Ledger
from semidp.cli import _options as o
from semidp.cli._output import Format, echo, in_place, print_json
from semidp.cli.release import DISAGREES
from semidp.errors import InputError
from semidp.exact import plain, rounded_up
from semidp.release import Plan, Release
from semidp.report import name_of
from semidp.tradeoff import Budget, Tradeoff

Releases = Annotated[
    list[Path] | None, typer.Argument(help="With --check: folders that `semidp release` wrote.", metavar="[RELEASE]...")
]
Check = Annotated[bool, typer.Option("--check", help="Compare the charges with the releases that they were made for.")]
LedgerFile = Annotated[Path, typer.Argument(help="The ledger's file.", metavar="FILE")]


def ledger(
    file: LedgerFile,
    releases: Releases = None,
    check: Check = False,
    epsilon: o.Epsilon = None,
    rho: o.Rho = None,
    mu: o.Mu = None,
    delta: o.Delta = None,
    report_delta: o.ReportDelta = None,
    format: o.FormatOption = Format.text,
    quiet: o.Quiet = False,  # nothing here to silence: taken so that every command takes it
) -> None:
    """Show what a ledger has spent; with a budget, open a new one.

    With --check, say of each release whether its charge, and all before it, are still there as they were made: the exit
    code is 1 where one is not.
    """
    target = o.target_of(None, report_delta)
    if check or releases:
        if not (check and releases) or any((epsilon, rho, mu, delta)):
            raise InputError("compare a ledger with releases: semidp ledger FILE --check RELEASE…")
        _compare(Ledger(file), releases, format)
        return
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
    echo(f"budget     {book.account().budget}")
    pairs = book.account().adjacency
    kind = f"; for {pairs}, not for any records" if pairs is not None and pairs.is_exchange else ""
    echo(f"under      {document['invariant'] or 'nothing charged yet'}{kind}")
    for charge in document["charges"]:
        fixed = f" (cannot be recomputed: {charge['fixed']})" if charge["fixed"] else ""
        before = f", as charged {charge['as_charged']}" if charge["as_charged"] != charge["cost"] else ""
        echo(f"charged    {charge['time']}  {charge['cost']}{before}  {charge['label']}{fixed}")
    if document["spent"]:
        echo(f"spent      {document['spent']} (had composition come first: {document['composition_first']})")


def _document(book: Ledger, target: Fraction | None) -> dict[str, Any]:
    account, total, other = book.account(), book.total(), book.composition_first()
    return {
        "budget": account.budget.numbers(),
        "invariant": account.dataspace.summary() if account.dataspace else None,
        "a": account.adjacency.a if account.adjacency else None,
        "adjacency": {"kind": str(account.adjacency.kind), "a": account.adjacency.a} if account.adjacency else None,
        "charges": [
            {
                **charge.to_json(),
                "cost": _named(charge.spent, account.budget, target),
                "as_charged": _named(charge.tradeoff.group(charge.group), account.budget, target),
                "fixed": charge.fixed,
            }
            for charge in account.charges
        ],
        "spent": _named(total.tradeoff, account.budget, target) if total else None,
        "composition_first": _named(other.tradeoff, account.budget, target) if other else None,
    }


def _compare(book: Ledger, releases: list[Path], format: Format) -> None:
    account, found = book.account(), {}
    for folder in releases:
        found[str(folder)] = account.disagreement(Release.load(folder).ledger)
    if format is Format.json:
        agree = [{"release": name, "agrees": said is None, "said": said} for name, said in found.items()]
        print_json({"charges": len(account.charges), "releases": agree})
    else:
        for name, said in found.items():
            echo(f"{'agrees' if said is None else 'disagrees':<10} {name}{f': {said}' if said else ''}")
    if any(found.values()):
        raise typer.Exit(DISAGREES)


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
