"""``semidp ledger``: open a ledger with its budget, or see what one has spent."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

import semidp.cli._options as o
from semidp.cli._command import argument, command, flag, option
from semidp.cli._output import in_place, kind_and_a, print_json, print_rows
from semidp.cli.release import DISAGREES
from semidp.cli.resume import explain_unclaimed
from semidp.errors import InputError
from semidp.present.release import Release
from semidp.present.series_words import describe_series
from semidp.promise.accounting.account import find_disagreement
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.accounting.periods import Attendance
from semidp.promise.accounting.series import Series, SeriesAccount
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
    unit: o.Text = option(
        "Open it for releases of several periods: year, quarter, month or week.", "UNIT", "--series"
    ),
    each_person: int | None = option("The most periods that one person is in.", "N", min=1),
    consecutive: bool = flag(
        "--consecutive", "These lie within so many consecutive calendar periods."
    ),
    pattern: o.Text = option("The periods of a panel: in, out, in.", "4-8-4"),
    invariant: o.Texts = option(
        "Exact totals that periods may publish; repeat it.", "A[,B]", "--exact"
    ),
    constant: o.Texts = option("A column that never changes for a person; repeat it.", "COLUMN"),
    each_period: o.Text = option(
        "For a series in epsilon: what each period may spend.", "EPSILON[,DELTA]"
    ),
    check: bool = flag("--check", "Compare the charges with the releases that they were made for."),
    options: Annotated[o.Options, (*o.BUDGET, "report_delta")],
    # nothing here to silence: --quiet is taken so that every command takes it
    printing: o.Printing,
) -> None:
    """Show what a ledger has spent; with a budget, open a new one.

    With --check, say for each release whether its charge and all earlier ones are unchanged,
    and whether the charge is for its guarantee and its noise. The exit code is 1 if one is not.
    """
    target = options.report_delta
    declared = _declare_series(
        unit, each_person, consecutive, pattern, invariant, constant, each_period
    )
    if declared is not None and not options.spends:
        raise InputError("a series is opened with its budget: add --rho, --mu or --epsilon")
    if check or releases:
        if not (check and releases) or options.spends:
            raise InputError("compare a ledger with releases: semidp ledger FILE --check RELEASE…")
        _compare(Ledger(file), releases, printing)
        return
    if options.spends:
        # A ledger opens by its budget alone: it never gets one by being charged.
        book = Ledger.create(file, options.budget(), series=declared)
        with in_place(f"the ledger {file}"):
            _print(book, printing, target)
    else:
        _print(Ledger(file), printing, target)


def _declare_series(
    unit: str | None,
    each_person: int | None,
    consecutive: bool,
    pattern: str | None,
    exact: list[str] | None,
    constant: list[str] | None,
    each_period: str | None,
) -> Series | None:
    """What the options declare of a series; None for a ledger about one dataset."""
    further = (each_person, consecutive, pattern, exact, constant, each_period)
    if unit is None:
        if any(further):
            raise InputError("these options open a series: say by which unit, with --series")
        return None
    lengths = tuple(map(_read_length, pattern.split("-"))) if pattern else ()
    each = None
    if each_period is not None:
        epsilon, _, delta = each_period.partition(",")
        each = Budget.approximate(epsilon, delta) if delta else Budget.pure(epsilon)
    margins = None if exact is None else tuple(tuple(names.split(",")) for names in exact)
    attendance = Attendance(each_person, consecutive, lengths)
    return Series(unit, attendance, margins, tuple(constant or ()), each)


def _read_length(text: str) -> int:
    if not text.isdecimal() or len(text) > 6:
        raise InputError("--pattern is numbers of periods in, out, in, such as 4-8-4")
    return int(text)


def _print(book: Ledger, printing: o.Printing, target: Fraction | None) -> None:
    if isinstance(book.account(), SeriesAccount):
        _print_series(book, printing)
        return
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
        ("exact", f"{document['invariant'] or 'set by the first charge'}{kind}"),
    ]
    for charge in document["charges"]:
        fixed = f" (cannot be recomputed: {charge['fixed']})" if charge["fixed"] else ""
        before = (
            f", as charged {charge['as_charged']}" if charge["as_charged"] != charge["cost"] else ""
        )
        rows.append(
            ("charged", f"{charge['time']}  {charge['cost']}{before}  {charge['label']}{fixed}")
        )
    rows += _list_unclaimed(document["unclaimed"])
    if document["spent"]:
        # The paper's other order is never better; it shows what the order is worth.
        first = f"(if added up for one record first: {document['composition_first']})"
        rows.append(("spent", f"{document['spent']} {first}"))
    print_rows(rows)


def _list_unclaimed(charges: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Say which charges became no release, and how to finish them."""
    lines = []
    for charge in charges:
        label = f"charge {charge['number']} ({charge['label']})"
        lines.append(("unclaimed", f"{label} became no release: {charge['how']}"))
    return lines


def _print_series(book: Ledger, printing: o.Printing) -> None:
    account = book.series_account()
    document = {**describe_series(account), "unclaimed": explain_unclaimed(book)}
    if printing.json:
        print_json({**document, "budget": account.budget.numbers()})
        return
    rows = [("budget", document["budget"]), ("protects", document["protects"])]
    rows += [("charged", f"{each['period']}  {each['cost']}") for each in document["spent"]]
    rows += [("counted", each) for each in document["counted"]]
    rows += _list_unclaimed(document["unclaimed"])
    if document["worst"] is not None:
        periods = ", ".join(document["worst"]["periods"])
        where = f" for a person in {periods}" if periods else ""
        rows.append(("spent", f"{document['worst']['cost']}{where}"))
    if document["next"]:
        rows.append(("next", document["next"]))
    if document["warning"]:
        rows.append(("warning", document["warning"]))
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
        said = find_disagreement(account, release.ledger, release.stated, noise)
        if said is None and release.ledger is not None:
            number = release.ledger["number"]
            first, other = paid.setdefault(number, (noise, name))
            charged = account.charges[number - 1].periods
            if charged is not None and release.plan.period != str(charged):
                said = (
                    f"charge {number} of the ledger is for {charged}, and it names another period"
                )
            elif first != noise:
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

    >>> from semidp.promise.tradeoff.budget import approximate
    >>> _name_curve(approximate(1, "1e-6"), Budget.approximate(2, "1e-6"))
    '(1, 1e-6)-DP'
    """
    delta = target or budget.delta or Plan().report_delta
    restated = f"({format_rounded_up(curve.epsilon(delta))}, {plain(delta)})-DP"
    name = name_tradeoff(curve)
    if name is None:
        return restated
    return name if target is None else f"{name}, which is {restated}"
