"""A series of releases in words: whom it protects, what was spent, and what the next period may
spend.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from attrs import evolve, frozen

from semidp.errors import InputError
from semidp.present.forecasts import comparison, forecast
from semidp.promise.accounting.period_totals import list_missing, list_totals
from semidp.promise.accounting.periods import Attendance, format_period
from semidp.promise.accounting.series import SeriesAccount
from semidp.promise.exact import format_rounded_up, plain
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.pipeline import calibrate
from semidp.publish.plan import Plan
from semidp.publish.release_value import ReleaseValue
from semidp.publish.results.texts import name_tradeoff

NOT_WHEN = "It protects what a person's records say, not in which periods the person takes part."


def describe_series(account: SeriesAccount) -> dict[str, Any]:
    """Return what a ledger of a series says, as plain values: sentences, and numbers for
    machines.
    """
    unit, total = account.series.unit, account.total()
    spent = [
        {"period": str(cost.periods), "cost": name_tradeoff(cost.spent) or "a curve"}
        for cost in account.costs
    ]
    following = account.next_period
    document: dict[str, Any] = {
        "unit": unit,
        "protects": f"{account.describe()}. {NOT_WHEN}",
        "budget": str(account.budget),
        "spent": spent,
        "counted": [*_list_counted(account)],
        "worst": None,
        "next_period": None,
        "next": "",
        "warning": warn_of_constants(account),
    }
    if total is not None:
        periods = [format_period(number, unit) for number in total.periods]
        cost = name_tradeoff(total.tradeoff)
        if cost is None:
            delta = account.budget.delta or Plan().report_delta
            bound = format_rounded_up(total.tradeoff.epsilon(delta))
            cost = f"at most ({bound}, {plain(delta)})-DP"
        document["worst"] = {"cost": cost, "periods": periods}
    if following is not None:
        name, left = format_period(following, unit), account.remaining(following)
        counting = ", ".join(map(str, account.counting_with(following)))
        may = "nothing" if left is None else str(round_budget_down(left))
        also = f"; still counted: {counting}" if counting else ""
        document |= {"next_period": name, "next": f"{name} may spend {may}{also}"}
    return document


def round_budget_down(budget: Budget) -> Budget:
    """Return a budget that can be typed: at most five decimals where its own text is long.

    >>> print(round_budget_down(Budget.gdp(Fraction(2, 3))), round_budget_down(Budget.gdp("0.5")))
    mu = 0.66666 (Gaussian DP) mu = 0.5 (Gaussian DP)
    """
    keys = budget.keys()
    if len(keys) > 1:
        return budget
    ((name, text),) = keys.items()
    short = Fraction(int(Fraction(text) * 10**5), 10**5)
    shown = text if short == 0 or ("/" not in text and len(text) < 12) else plain(short)
    return Budget.from_plan_keys({name: shown}) or budget


def _list_counted(account: SeriesAccount) -> Iterator[str]:
    """Say which data count as if further totals were exact in them."""
    for periods, of_periods in sorted(account.accounts.items()):
        missing = list_missing(of_periods, account.margins or ())
        if missing:
            yield f"{periods} as if {list_totals(missing)} were exact, too"


def warn_of_constants(account: SeriesAccount) -> str:
    """Warn of columns with exact totals that never change, unless it was said which do not."""
    margins = account.margins
    if not margins or account.series.constant or account.attendance.bound is None:
        return ""
    named = ", ".join(str(margin) for margin in margins)
    return (
        f"A column with exact totals ({named}) may never change for a person, as sex or year of"
        " birth. Then somebody else's records may have to differ in every period, which this bound"
        " does not cover. Declare such a column as constant when you open the ledger: all periods"
        " are then charged."
    )


@frozen
class SeriesPlan:
    """What one way to spend a series' budget buys in each period.

    Parameters
    ----------
    name
        What is done.
    budget
        What each period may spend.
    errors
        For each statistic its expected error, in words.
    """

    name: str
    budget: Budget
    errors: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        """The plan in one line."""
        errors = "; ".join(f"{name}: {error}" for name, error in self.errors)
        return f"{self.name}: {round_budget_down(self.budget)} each period; {errors}"

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return {"name": self.name, "budget": self.budget.numbers(), "errors": dict(self.errors)}


def share_budget(account: SeriesAccount, attendance: Attendance) -> Budget:
    """Return an equal share of the budget for each period that a person may be in."""
    if account.each is not None:
        return account.each
    if attendance.bound is None:
        raise InputError(
            "this series has no bound on the periods of a person, so that no share lasts: name"
            " what each period shall spend"
        )
    return account.budget.split_evenly(attendance.bound)


def plan_next(account: SeriesAccount, release: ReleaseValue) -> Plan:
    """Return the plan of the next period, like a release of an earlier one, with an equal share of
    the budget, or with what is left if that is less.
    """
    following = account.next_period
    budget = share_budget(account, account.attendance)
    if following is None:
        return _with_budget(release.plan, budget)
    period = format_period(following, account.series.unit)
    left = account.remaining(following)
    if left is None:
        raise InputError(f"earlier periods leave nothing for {period}")
    if account.each is None and account.measure(left.tradeoff()) < account.measure(
        budget.tradeoff()
    ):
        budget = left
    return evolve(_with_budget(release.plan, budget), period=period)


def _with_budget(plan: Plan, budget: Budget) -> Plan:
    """The plan with an equal share of a budget for each request; tables share one."""
    without = [request.with_budget(None) for request in plan.requests]
    bare = evolve(plan, requests=without)
    return bare.with_budget(budget.split_evenly(len(bare.requests)))


def plan_series(account: SeriesAccount, release: ReleaseValue) -> Iterator[SeriesPlan]:
    """Yield ways to spend the budget, with the errors that a release of an earlier period lets one
    expect.
    """
    attendance, plan = account.attendance, release.plan
    yield _foresee("as declared", plan, share_budget(account, attendance), release)
    bound = attendance.bound or 0
    if account.each is None and bound > 1:
        half = Attendance(bound // 2)
        unit = account.series.unit
        name = f"at most {bound // 2} {unit}{'s' if bound > 3 else ''} per person"
        yield _foresee(name, plan, share_budget(account, half), release)
    if len(plan.requests) > 1:
        left = plan.requests[-1]
        fewer = evolve(plan, requests=plan.requests[:-1])
        budget = share_budget(account, attendance)
        yield _foresee(f"without {left.name}", fewer, budget, release)


def _foresee(name: str, plan: Plan, budget: Budget, release: ReleaseValue) -> SeriesPlan:
    """What a plan with this budget would publish, from public numbers."""
    outlook = forecast(calibrate(_with_budget(plan, budget), release.scope))
    labels = {each.label for each in outlook.forecasts}
    rows = [(label, texts[0]) for label, texts in comparison([outlook]) if label in labels]
    return SeriesPlan(name, budget, tuple(rows))
