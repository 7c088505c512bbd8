"""``semidp ledger``: open a ledger with its budget, or see what one has spent."""

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

import semidp.cli._options as o
from semidp.cli._command import argument, command, flag
from semidp.cli._output import in_place, kind_and_a, print_json, print_rows
from semidp.cli.release import DISAGREES
from semidp.cli.resume import explain_unclaimed
from semidp.errors import InputError
from semidp.present.release import Release
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.exact import format_rounded_up, plain
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.function import Tradeoff
from semidp.publish.plan import Plan
from semidp.publish.results.texts import name_tradeoff


@command
def ledger(
    *,
    file: Path = argument("The ledger's file.", "FILE"),
    releases: list[Path] | None = argument(
        "With --check: folders that `semidp release` wrote.", "[RELEASE]...", None
    ),
    check: bool = flag("--check", "Compare the charges with the releases that they were made for."),
    options: Annotated[o.Options, (*o.BUDGET, "report_delta")],
    # nothing here to silence: --quiet is taken so that every command takes it
    printing: o.Printing,
) -> None:
    """Show what a ledger has spent; with a budget, open a new one.

    With --check, say of each release whether its charge, and all before it, are still there as they
    were made, for this guarantee and this noise alone: the exit code is 1 where one is not.
    """
    target = options.report_delta
    if check or releases:
        if not (check and releases) or options.spends:
            raise InputError("compare a ledger with releases: semidp ledger FILE --check RELEASE…")
        _compare(Ledger(file), releases, printing)
        return
    if options.spends:
        # A ledger opens by its budget alone: it never gets one by being charged.
        book = Ledger.create(file, options.budget())
        with in_place(f"the ledger {file}"):
            _print(book, printing, target)
    else:
        _print(Ledger(file), printing, target)


def _print(book: Ledger, printing: o.Printing, target: Fraction | None) -> None:
    document = _document(book, target)
    if printing.json:
        print_json(document)
        return
    pairs = book.account().adjacency
    kind = ""
    if pairs is not None and not pairs.protects_groups:
        kind = f"; for {pairs}, not for any {pairs.words.noun}"
    elif pairs is not None and pairs.units is not None:
        kind = f"; for {pairs}"
    rows = [
        ("budget", str(book.account().budget)),
        ("under", f"{document['invariant'] or 'nothing charged yet'}{kind}"),
    ]
    for charge in document["charges"]:
        fixed = f" (cannot be recomputed: {charge['fixed']})" if charge["fixed"] else ""
        before = (
            f", as charged {charge['as_charged']}" if charge["as_charged"] != charge["cost"] else ""
        )
        rows.append(
            ("charged", f"{charge['time']}  {charge['cost']}{before}  {charge['label']}{fixed}")
        )
    for charge in document["unclaimed"]:
        label = f"charge {charge['number']} ({charge['label']})"
        rows.append(("unclaimed", f"{label} became no release: {charge['how']}"))
    if document["spent"]:
        # The paper's other order is never better; it shows what the order is worth.
        first = f"(had composition come first: {document['composition_first']})"
        rows.append(("spent", f"{document['spent']} {first}"))
    print_rows(rows)


def _document(book: Ledger, target: Fraction | None) -> dict[str, Any]:
    account, total, other = book.own_account(), book.total(), book.composition_first()
    return {
        "budget": account.budget.numbers(),
        "invariant": account.dataspace.summary() if account.dataspace else None,
        "a": account.adjacency.a if account.adjacency else None,
        "adjacency": kind_and_a(account.adjacency) if account.adjacency else None,
        "charges": [
            {
                **charge.to_json(),
                "cost": _name_curve(charge.spent, account.budget, target),
                "as_charged": _name_curve(
                    charge.tradeoff.group(charge.group), account.budget, target
                ),
                "fixed": charge.fixed_reason,
            }
            for charge in account.charges
        ],
        "unclaimed": explain_unclaimed(book),
        "spent": _name_curve(total.tradeoff, account.budget, target) if total else None,
        "composition_first": _name_curve(other.tradeoff, account.budget, target) if other else None,
    }


def _compare(book: Ledger, releases: list[Path], printing: o.Printing) -> None:
    account, results = book.account(), {}
    paid: dict[int, tuple[str, str]] = {}
    for folder in releases:
        release, name = Release.load(folder), str(folder)
        noise = release.measured_digest
        # The release keeps the hash of its charge, so that a charge removed later is missed here.
        said = account.disagreement(release.ledger, release.stated, noise)
        if said is None and release.ledger is not None:
            number = release.ledger["number"]
            first, other = paid.setdefault(number, (noise, name))
            if first != noise:
                said = f"charge {number} of the ledger is that of {other}, which holds other noise"
        results[name] = said
    if printing.json:
        agree = [
            {"release": name, "agrees": said is None, "said": said}
            for name, said in results.items()
        ]
        print_json({"charges": len(account.charges), "releases": agree})
    else:
        print_rows(
            ("agrees" if said is None else "disagrees", f"{name}{f': {said}' if said else ''}")
            for name, said in results.items()
        )
    if any(results.values()):
        raise typer.Exit(DISAGREES)


def _name_curve(curve: Tradeoff, budget: Budget, target: Fraction | None = None) -> str:
    """Name a curve, or restate it at the target, which is the delta of the budget unless given.

    >>> from semidp.promise.tradeoff.curves import approximate
    >>> _name_curve(approximate(1, "1e-6"), Budget.approximate(2, "1e-6"))
    '(1, 1e-6)-DP'
    """
    delta = target or budget.delta or Plan().report_delta
    restated = f"({format_rounded_up(curve.epsilon(delta))}, {plain(delta)})-DP"
    name = name_tradeoff(curve)
    if name is None:
        return restated
    return name if target is None else f"{name}, which is {restated}"
