"""The promise of a series, against every pair of small histories, listed from its definition.

A history has a dataset for each period. Two are compared if one person's records differ, in an
admissible set of periods, and others change only within those periods, as each period's own
promise allows. The listing shares no code with the ledger.
"""

import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import logsumexp

import semidp as sd
from semidp.promise import Mechanism
from semidp.promise.accounting.periods import Attendance, Periods
from semidp.promise.accounting.series import Series, SeriesAccount
from semidp.promise.mechanisms.additive import RoundedGaussianMechanism
from semidp.promise.tradeoff.budget import approximate
from semidp.publish import TableRequest
from tests.test_adaptive_budgets import fits_kindly, list_outcomes

CELLS = tuple(itertools.product("fm", "xyz"))  # sex is exact, the second feature is not
Record = tuple[str, str]


def calibrate(sexes: str, mu: Fraction, adjacency: str) -> Mechanism:
    """Gaussian noise for a table of one period with these sexes."""
    schema = sd.Schema([sd.Feature("sex", "fm"), sd.Feature("kind", "xyz")])
    cells = [[sexes.count(sex), 0, 0] for sex in "fm"]
    space = sd.Dataspace.from_table(sd.Table(schema, cells), [sd.Margin("sex")])
    pairs = sd.Ball(2) if adjacency == "worst-case" else sd.Exchange(2)
    return RoundedGaussianMechanism.calibrate(sd.sensitivity_space(space, pairs), sd.Budget.gdp(mu))


def list_datasets(sexes: str) -> list[tuple[Record, ...]]:
    """Every dataset of named people with these totals of sex."""
    totals = sorted(sexes)
    found = itertools.product(CELLS, repeat=len(sexes))
    return [data for data in found if sorted(sex for sex, _ in data) == totals]


def list_pairs(sexes: str, person: int, a: int, adjacency: str) -> list[tuple[int, ...]]:
    """Squared distance of the tables of every pair that one period's promise compares, where it is
    about this person.
    """
    distances = []
    datasets = list_datasets(sexes)
    for before, after in itertools.product(datasets, repeat=2):
        changed = [place for place in range(len(sexes)) if before[place] != after[place]]
        if adjacency == "worst-case":
            compared = len(changed) <= a
        else:
            compared = is_exchange(before, after, person) or is_exchange(after, before, person)
        if compared:
            moved = (before.count(cell) - after.count(cell) for cell in CELLS)
            distances.append(sum(step**2 for step in moved))
    return distances


def is_exchange(before: tuple[Record, ...], after: tuple[Record, ...], person: int) -> bool:
    """Whether a person takes another record, and one other hands over the sex that is taken."""
    changed = [place for place in range(len(before)) if before[place] != after[place]]
    helpers = [place for place in changed if place != person]
    if before[person][0] == after[person][0]:
        return not helpers
    if len(helpers) != 1:
        return False
    (helper,) = helpers
    handed = (before[person][0], before[helper][1])
    return before[helper][0] == after[person][0] and after[helper] == handed


# people 0..4, and who is in which period: overlapping, one in all three
MEMBERS = ((0, 1, 2), (0, 2, 3), (0, 3, 4))
SEXES = ("ffm", "fmm", "fmm")


def admissible_sets(attendance: Attendance) -> list[tuple[int, ...]]:
    """Sets of the three periods by the words of the definition."""
    sets = []
    for size in range(1, 4):
        for periods in itertools.combinations(range(3), size):
            if attendance.most is not None:
                span = periods[-1] - periods[0] + 1 if attendance.consecutive else len(periods)
                if span > attendance.most:
                    continue
            sets.append(periods)
    return sets


@pytest.mark.parametrize("adjacency", ["worst-case", "exchange"])
@pytest.mark.parametrize(
    "attendance",
    [Attendance(1), Attendance(2), Attendance(2, consecutive=True), Attendance()],
    ids=["1", "2", "window of 2", "any"],
)
def test_no_pair_of_histories_loses_more_than_is_stated(adjacency, attendance):
    mus = (Fraction(1, 2), Fraction(1), Fraction(3, 4))
    account = SeriesAccount(sd.Budget.gdp(9), Series("year", attendance))
    variances, sizes = [], []
    for year, (sexes, mu) in enumerate(zip(SEXES, mus, strict=True)):
        mechanism = calibrate(sexes, mu, adjacency)
        variances.append(float(mechanism.scale) ** 2)
        sizes.append(mechanism.guarantee.adjacency.a)
        account = account.add_charge(mechanism.guarantee, "", (), Periods("year", (2020 + year,)))
    stated = float(account.find_worst()[0])
    largest, compared = 0.0, 0
    for person in range(5):
        for periods in admissible_sets(attendance):
            losses = []
            for period in periods:
                if person not in MEMBERS[period]:
                    break
                place = MEMBERS[period].index(person)
                distances = list_pairs(SEXES[period], place, sizes[period], adjacency)
                compared += len(distances)
                losses.append(max(distances) / variances[period])
            else:
                # Datasets of different periods are independent, so that the worst pairs meet.
                largest = max(largest, sum(losses))
    assert compared > 1000
    assert largest <= stated * (1 + 1e-9)
    assert largest >= stated * 0.99  # attained: sigma is rounded up by less than that
    # the twin: one period less than a person may be in states too little
    fewer = Attendance(1) if attendance.bound != 1 else None
    if fewer is not None:
        claimed = float(
            SeriesAccount(account.budget, Series("year", fewer), account.accounts).find_worst()[0]
        )
        assert largest > claimed * (1 + 1e-9)


def adaptive_loss(alpha: float, first: float, spend) -> float:
    """Rényi divergence of two releases, the second with a budget that the first decides."""
    outputs = np.arange(-400.0, 402.0)
    one, other = -(outputs**2) / (2 * first), -((outputs - 1) ** 2) / (2 * first)
    one, other = one - logsumexp(one), other - logsumexp(other)
    later = np.array([(alpha - 1) * alpha * spend(int(out)) for out in outputs])
    return float(logsumexp(alpha * one + (1 - alpha) * other + later)) / (alpha - 1)


@pytest.mark.parametrize("alpha", [1.5, 2, 4, 16])
def test_budgets_may_follow_from_earlier_outputs(alpha):
    rho, first = 0.5, 4.0  # the first release of variance 4 spends 1/8, so that 3/8 are left
    left = rho - 1 / (2 * first)
    assert adaptive_loss(alpha, first, lambda out: left if out > 0 else left / 7) <= alpha * rho
    # the twin: a series that forgets the first release on one path
    assert adaptive_loss(alpha, first, lambda out: rho if out < 1 else left) > alpha * rho


EACH = sd.Budget.approximate("0.5", "0.1")
MENU = [approximate("0.5"), approximate("0.5", "0.1"), approximate("0", "0.1")]
OUTCOMES = [list_outcomes(curve) for curve in MENU]


@functools.cache
def is_allowed(spent: tuple[int, ...]) -> bool:
    return fits_kindly([MENU[number] for number in spent], EACH)


def find_worst_delta(
    spent: tuple[tuple[int, ...], ...], epsilon: float, weight: tuple[float, float] = (1.0, 1.0)
) -> float:
    """The delta of whoever chooses each period and mechanism from all results before."""
    worst = max(weight[0] - math.exp(epsilon) * weight[1], 0.0)
    for period, number in itertools.product(range(2), range(len(MENU))):
        own = (*spent[period], number)
        if len(spent[0]) + len(spent[1]) < 3 and is_allowed(own):
            after = 0.0
            for one, other in OUTCOMES[number]:
                path = weight[0] * one, weight[1] * other
                now = (own, spent[1]) if period == 0 else (spent[0], own)
                after += find_worst_delta(now, epsilon, path) if path[0] else 0.0
            worst = max(worst, after)
    return worst


def test_periods_in_epsilon_may_be_spent_in_turns():
    series = Series("year", Attendance(2), each=EACH)
    stated = SeriesAccount(sd.Budget.approximate(1, "0.2"), series)._compose_each(EACH)
    for epsilon in (0.25, 0.5, 1.0):
        worst = find_worst_delta(((), ()), epsilon)
        assert worst <= stated.delta(epsilon) * (1 + 1e-9)
        assert worst > EACH.tradeoff().delta(epsilon) * (1 + 1e-9)  # the twin: one period alone
    assert worst >= 0.9 * stated.delta(epsilon)


def test_a_constant_feature_with_exact_totals_charges_all_periods():
    """People s and s + 1 are in period s, one is f and one m: all histories with constant sexes."""
    periods = 5
    histories = []
    for sexes in itertools.product("fm", repeat=periods + 1):
        if all({sexes[s], sexes[s + 1]} == {*"fm"} for s in range(periods)):
            histories.append([(sexes[s], sexes[s + 1]) for s in range(periods)])
    first, second = histories  # the only two
    assert all(one != other for one, other in zip(first, second, strict=True))
    guarantee = calibrate("fm", Fraction(1), "worst-case").guarantee
    bounds = {}
    for constant in ((), ("sex",)):
        series = Series("year", Attendance(2), (("sex",),), constant)
        account = SeriesAccount(sd.Budget.gdp(9), series)
        for year in range(periods):
            account = account.add_charge(guarantee, "", (), Periods("year", (2020 + year,)))
        bounds[constant] = account.find_worst()[0]
    assert bounds == {(): 2, ("sex",): periods}


def test_constant_features_may_need_more_others_than_a_promise_has():
    """Charging all periods bounds pairs of the promise. Other histories can be further apart."""
    members = ((0, 1), (0, 2), (1, 2, 3, 4))  # everybody in at most two periods
    sexes = "fmmff"  # of each person, in all periods
    totals = [sorted(sexes[person] for person in period) for period in members]
    changes = []
    for other in itertools.product("fm", repeat=5):
        alike = [
            sorted(other[person] for person in period) == t
            for period, t in zip(members, totals, strict=True)
        ]
        if all(alike) and other[0] != sexes[0]:
            changes.append([sum(other[p] != sexes[p] for p in period) for period in members])
    assert changes == [[2, 2, 4]]  # the only history in which person 0 has the other sex
    assert calibrate("fm", Fraction(1), "worst-case").guarantee.adjacency.a == 2


def test_totals_of_other_features_are_refused_in_later_periods():
    account = SeriesAccount(sd.Budget.gdp(9), Series("year", Attendance(2), (("sex",),)))
    account = account.add_charge(
        calibrate("ffm", Fraction(1), "worst-case").guarantee, "", (), Periods("year", (2020,))
    )
    plan = sd.Plan([TableRequest(["sex", "kind"], sd.Budget.gdp(1))], ["sex", "kind"])
    other = sd.prepare(plan, {"sex": [*"ffm"], "kind": [*"xyz"]}).guarantee
    with pytest.raises(sd.Refused, match="leave out kind"):
        account.add_charge(other, "", (), Periods("year", (2021,)))
    plan = sd.Plan([TableRequest(["kind"], sd.Budget.gdp(1))], [], [sd.Feature("kind", "xyz")])
    other = sd.prepare(plan, {"kind": [*"xyz"]}).guarantee
    with pytest.raises(sd.Refused, match="publish sex exactly in 2021 as well"):
        account.add_charge(other, "", (), Periods("year", (2021,)))


@pytest.mark.parametrize(("exact", "constant"), [("county", "state"), ("state", "county")])
def test_a_constant_state_or_county_charges_all_periods(exact, constant):
    """Exact counties publish their states; a county that never changes keeps its state."""
    county = sd.Feature.from_paths(["state", "county"], [("A", "a1"), ("A", "a2"), ("B", "b1")])
    plan = sd.Plan(
        [TableRequest(["county", "kind"], sd.Budget.gdp(1))],
        [exact],
        [county, sd.Feature("kind", "xyz")],
    )
    data = {"county": ["a1", "a2", "b1"], "kind": [*"xyz"]}
    guarantee = sd.prepare(plan, data).guarantee
    account = SeriesAccount(sd.Budget.gdp(9), Series("year", Attendance(2), None, (constant,)))
    for year in (2020, 2021, 2022):
        account = account.add_charge(guarantee, "", (), Periods("year", (year,)))
    assert account.attendance.bound is None
    assert account.find_worst()[0] == 3


@pytest.mark.parametrize("exact", [None, (("sex",),)])
def test_pooled_data_of_constant_features_have_records_of_all_periods(exact):
    plan = sd.Plan(
        [TableRequest(["sex", "kind"], sd.Budget.gdp(1))], ["sex"], [sd.Feature("kind", "xyz")]
    )
    guarantee = sd.prepare(plan, {"sex": [*"ffm"], "kind": [*"xyz"]}).guarantee
    account = SeriesAccount(sd.Budget.gdp(9), Series("year", Attendance(1), exact, ("sex",)))
    with pytest.raises(sd.Refused, match="may have 2 records"):
        account.add_charge(guarantee, "", (), Periods("year", (2020, 2021)))
