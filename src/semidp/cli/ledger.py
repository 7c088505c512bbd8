"""``semidp ledger``, ``series`` and ``change``: open a ledger or see what it has spent, what each
period of a series may spend, and what changed between periods.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

import semidp.cli._options as o
from semidp.cli._command import argument, command, flag, option
from semidp.cli._output import (
    check_picture,
    grid,
    harmless,
    in_place,
    kind_and_a,
    print_grid,
    print_json,
    print_rows,
)
from semidp.cli.release import explain_unclaimed
from semidp.cli.verify import DISAGREES
from semidp.errors import InputError
from semidp.inference.period_changes import (
    ChangedRow,
    Changes,
    ChangeTest,
    compare_releases,
)
from semidp.present.release import Release
from semidp.present.series_words import describe_series, plan_next, plan_series
from semidp.promise.accounting.account import find_disagreement
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.accounting.periods import Attendance
from semidp.promise.accounting.series import Series, SeriesAccount
from semidp.promise.exact import format_rounded_up, plain
from semidp.promise.files import real_path, replace_file
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.function import Tradeoff
from semidp.publish.plan import Plan
from semidp.publish.plotting import encode_picture
from semidp.publish.recheck import load_consistent
from semidp.publish.results.texts import end_texts, name_tradeoff, rounded_text


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
        "--consecutive",
        "All periods of one person lie within N consecutive ones (N of --each-person).",
    ),
    pattern: o.Text = option("A rotating panel: 4 periods in, 8 out, 4 in.", "4-8-4"),
    invariant: o.Texts = option(
        "Exact totals that periods may publish; repeat it.", "A[,B]", "--exact"
    ),
    constant: o.Texts = option(
        "A column of exact totals that never changes for a person; repeat it.", "COLUMN"
    ),
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
        spent, first = document["spent"], document["composition_first"]
        more = "" if first == spent else f" (adding up for one record first would give {first})"
        rows.append(("spent", f"{spent}{more}"))
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
    worst = _list_unclaimed(document["unclaimed"])
    if document["worst"] is not None:
        periods = ", ".join(document["worst"]["periods"])
        where = f" for a person in {periods}" if periods else ""
        worst.append(("spent", f"{document['worst']['cost']}{where}"))
    print_rows(_series_rows(document, "charged", worst, []))


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


_SHOWN = 40  # rows of a printed answer


@command
def change(
    *,
    releases: list[Path] = argument(
        "Folders of releases, the earliest period first.", "RELEASE RELEASE..."
    ),
    names: o.Text = option(
        "What the periods are called, if the releases do not say.", "A,B,...", "--names"
    ),
    level: str = option("The confidence level of each interval.", "NUMBER", default="0.95"),
    out: Path | None = option("Write all changes to this CSV file.", "FILE"),
    picture: Path | None = option("Draw a statistic over the periods (.png or .svg).", "FILE"),
    statistic: o.Text = option("Which statistic to draw.", "NAME"),
    seed: int | None = option("The seed of the simulation.", "N"),
    printing: o.Printing,
) -> None:
    """Say what changed from one release to the next: differences and ratios with intervals.

    The intervals allow for the noise of both releases. They are about the records of the periods,
    not about a population. It costs no privacy.
    """
    check_picture(picture)
    if len({real_path(folder) for folder in releases}) < len(releases):
        raise InputError("a release is named twice: name one of each period")
    loaded = [load_consistent(Release, folder) for folder in releases]
    called = None if names is None else names.split(",")
    if called is not None and len(called) != len(loaded):
        raise InputError(f"--names has {len(called)} names for {len(loaded)} releases")
    randomness = None if seed is None else SeededRandomness(seed)
    changes = compare_releases(loaded, called, o.parse_real(level, "--level"), randomness)
    if out is not None:
        replace_file(out, changes.csv())
    if picture is not None:
        replace_file(picture, encode_picture(changes.plot(statistic), picture))
    if printing.json:
        print_json(changes.to_json())
    else:
        _print_changes(changes)


def _print_changes(found: Changes) -> None:
    """Print the first changes as a grid, the tests, and rows without a partner."""
    headings = ("before", "after", "change", "ratio")
    table = grid(("statistic", "row", "to"), headings)
    for row in found.rows[:_SHOWN]:
        table.add_row(*map(harmless, _change_texts(row)))
    print_grid(table)
    left = len(found.rows) - _SHOWN
    lines = [("more", f"{left:,} further rows: --out FILE writes all of them")] if left > 0 else []
    lines += [("test", _test_text(test)) for test in found.tests]
    if found.unmatched:
        name, labels, only = found.unmatched[0]
        example = f"{name} {labels} is only in {', '.join(only)}"
        lines.append(("unmatched", f"{len(found.unmatched):,} rows, such as: {example}"))
    lines += [("left out", f"{name}: {reason}") for name, reason in found.left_out]
    if lines:
        print_rows(lines)


def _change_texts(row: ChangedRow) -> tuple[str, ...]:
    """Cells of the grid: a difference and a ratio with their intervals in brackets."""
    error = (row.upper - row.lower) / 4
    before, after, change = (
        rounded_text(value, error) for value in (row.before, row.after, row.difference)
    )
    if row.exact:
        change, ratio = f"{change} exactly", _ratio_text(row.ratio)
    else:
        lower, upper = end_texts({"lower": row.lower, "upper": row.upper}, error)
        change = f"{change} ({lower} to {upper})"
        ends = f"{_ratio_text(row.ratio_lower)} to {_ratio_text(row.ratio_upper)}"
        ratio = f"{_ratio_text(row.ratio)} ({ends})"
    return row.statistic, str(row.labels), row.end, before, after, change, ratio


def _ratio_text(ratio: float) -> str:
    """A ratio with two decimals; no end where it may be any number, and nothing where there is
    none.

    >>> _ratio_text(1.634), _ratio_text(math.inf), _ratio_text(math.nan)
    ('1.63', '∞', '-')
    """
    if math.isnan(ratio):
        return "-"
    return f"{ratio:.2f}" if math.isfinite(ratio) else "∞" if ratio > 0 else "-∞"


def _test_text(test: ChangeTest) -> str:
    p_value = f"p = {test.p_value:.4f}" if test.p_value >= 0.0005 else "p < 0.0005"
    return f"{test.statistic}, {test.start} to {test.end}: {p_value} if nothing changed"


@command
def series(
    *,
    file: Path = argument("The ledger of the series.", "LEDGER"),
    release: Path | None = argument(
        "A release of an earlier period, to plan the next one like it.", "[RELEASE]", None
    ),
    write: Path | None = option("Write the plan of the next period to this file.", "FILE"),
    printing: o.Printing,
) -> None:
    """Say what each period of a series may spend, and what error that buys.

    Only public numbers are used: the ledger, and a release of an earlier period. Nothing is spent.
    """
    account = Ledger(file).series_account()
    document = describe_series(account)
    like = None if release is None else load_consistent(Release, release)
    if write is not None and like is None:
        raise InputError("--write needs a release that the next period shall be like")
    plans = [] if like is None else list(plan_series(account, like))
    if write is not None and like is not None:
        replace_file(write, plan_next(account, like).to_toml())
    if printing.json:
        print_json({**document, "plans": [plan.to_json() for plan in plans]})
        return
    planned = [("plan", plan.text) for plan in plans]
    if plans:
        name = write or Path("next.toml")
        period = document["next_period"]
        first = "" if write else f"semidp series {file} {release} --write {name}; "
        told = f"{first}semidp release DATA --plan {name} --ledger {file} --out {period}"
        planned.append(("command", told))
    print_rows(_series_rows(document, "spent", [], planned))


def _series_rows(
    document: Mapping[str, Any],
    cost: str,
    worst: Sequence[tuple[str, str]],
    planned: Sequence[tuple[str, str]],
) -> list[tuple[str, str]]:
    """Lines about a series: what each period was charged, under the name `cost`, and the next."""
    rows = [("budget", document["budget"]), ("protects", document["protects"])]
    rows += [(cost, f"{each['period']}  {each['cost']}") for each in document["spent"]]
    rows += [("counted", each) for each in document["counted"]]
    rows += worst
    if document["next"]:
        rows.append(("next", document["next"]))
    rows += planned
    if document["warning"]:
        rows.append(("warning", document["warning"]))
    return rows
