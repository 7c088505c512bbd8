"""Periods with other exact totals, counted as if all were exact in each: every pair, listed."""

import contextlib
import itertools
from fractions import Fraction

import pytest

import semidp as sd
from semidp.promise import Attendance, Mechanism, Series
from semidp.promise.accounting.periods import Periods
from semidp.promise.accounting.series import SeriesAccount
from semidp.publish import TableRequest

CELLS = tuple(itertools.product("fm", "yo", "xz"))
NAMES = ("sex", "age", "kind")
Record = tuple[str, str, str]


def prepare(
    records: str,
    exact: list[str],
    table: list[str],
    adjacency: str,
    levels: str = "xz",
    sexes: str = "fm",
    most: int | None = None,
) -> tuple[sd.Guarantee, list[Mechanism]]:
    """A table of one period with these totals; each letter of `records` is a record's sex."""
    n = len(records)
    data = {"sex": [*records], "age": [*"yoyyoy"[:n]], "kind": [*"xzxxzx"[:n]]}
    features = [sd.Feature("sex", sexes), sd.Feature("age", "yo"), sd.Feature("kind", levels)]
    used = [one for one in features if one.name in {*exact, *table}]
    request, whose = TableRequest(table, sd.Budget.gdp(1)), None if most is None else "person"
    plan = sd.Plan([request], exact, used, adjacency=adjacency, id=whose, most=most)
    persons = {"person": [number // (most or 1) for number in range(n)]}
    prepared = sd.prepare(plan, persons | {one.name: data[one.name] for one in used})
    return prepared.guarantee, list(prepared.mechanisms)


def is_exchange(before: tuple[Record, ...], after: tuple[Record, ...], exact: list[int]) -> bool:
    """Whether the first person takes another record, and others only hand over exact values."""
    taken = [place for place in exact if before[0][place] != after[0][place]]
    for helpers in itertools.product((1, 2), repeat=len(taken)):
        changed = [list(record) for record in before]
        changed[0] = list(after[0])
        for place, helper in zip(taken, helpers, strict=True):
            changed[helper][place] = before[0][place]
        has_values = all(
            before[helper][place] == after[0][place]
            for place, helper in zip(taken, helpers, strict=True)
        )
        if has_values and tuple(map(tuple, changed)) == after:
            return True
    return False


def find_largest_move(exact: list[str], table: list[str], a: int, adjacency: str) -> int:
    """Largest squared distance of a table between datasets that agree on totals of any values."""
    places = [NAMES.index(name) for name in exact]
    shown = [NAMES.index(name) for name in table]
    by_totals: dict[tuple[tuple[str, ...], ...], list[tuple[Record, ...]]] = {}
    for data in itertools.product(CELLS, repeat=3):
        totals = tuple(tuple(sorted(one[place] for one in data)) for place in places)
        by_totals.setdefault(totals, []).append(data)
    largest = 0
    for datasets in by_totals.values():
        for before, after in itertools.product(datasets, repeat=2):
            if adjacency == "exchange":
                if not is_exchange(before, after, places):
                    continue
            elif sum(one != other for one, other in zip(before, after, strict=True)) > a:
                continue
            moved: dict[tuple[str, ...], int] = {}
            for records, step in ((before, 1), (after, -1)):
                for record in records:
                    cell = tuple(record[place] for place in shown)
                    moved[cell] = moved.get(cell, 0) + step
            largest = max(largest, sum(step**2 for step in moved.values()))
    return largest


@pytest.mark.parametrize("adjacency", ["worst-case", "exchange"])
@pytest.mark.parametrize("table", [["sex", "kind"], ["age", "kind"], ["sex", "age"]])
def test_every_period_counts_as_if_all_totals_were_exact(adjacency, table):
    """2020 publishes sex, 2021 sex and age. The twin counts 2020 as it was charged."""
    account = SeriesAccount(sd.Budget.gdp(9), Series("year", Attendance(1)))
    guarantee, mechanisms = prepare("ffm", ["sex"], table, adjacency)
    records = [mechanism.record() for mechanism in mechanisms]
    account = account.add_charge(guarantee, "first", records, Periods("year", (2020,)))
    variance = float(mechanisms[0].scale) ** 2
    alone = float(account.find_worst()[0])
    later, others = prepare("fmm", ["sex", "age"], ["age", "kind"], adjacency)
    account = account.add_charge(
        later, "second", [one.record() for one in others], Periods("year", (2021,))
    )
    stated = float(account.measure(account.costs[0].spent))
    own = find_largest_move(["sex"], table, 2, adjacency) / variance
    under_all = find_largest_move(["sex", "age"], table, 3, adjacency) / variance
    assert max(own, under_all) <= stated * (1 + 1e-9)
    assert own <= alone * (1 + 1e-9)
    if adjacency == "worst-case" and "kind" in table:
        assert under_all > alone * (1 + 1e-9)  # the twin
        assert under_all >= stated * 0.99
    helpers = 2
    assert f"each with up to {helpers} others" in account.describe()


def test_a_column_with_one_level_elsewhere_may_have_more_in_a_period_without_it():
    """2021 has women alone, and their number; 2020 has no column of sexes, and may have both."""
    account = SeriesAccount(sd.Budget.gdp(9), Series("year", Attendance(1)))
    guarantee, mechanisms = prepare("ffm", [], ["kind"], "worst-case")
    account = add(account, guarantee, mechanisms, 2020)
    alone = float(account.find_worst()[0])
    account = add(account, *prepare("fff", ["sex"], ["kind"], "worst-case", sexes="f"), 2021)
    stated = float(account.measure(account.costs[0].spent))
    truth = find_largest_move(["sex"], ["kind"], 2, "worst-case") / float(mechanisms[0].scale) ** 2
    assert alone * (1 + 1e-9) < truth <= stated * (1 + 1e-9)  # alone: the twin
    # 2020 is counted with one other person, 2021 with none.
    assert [each.a for each in account.promises] == [2, 1]
    assert "each with as many others of that year as its releases say" in account.describe()


def test_a_nested_column_with_one_child_elsewhere_may_have_more():
    """2021 has one county of one state; 2020 has states alone, and may have more counties."""
    county = sd.Feature.from_paths(["state", "county"], [("A", "a1")])
    account = SeriesAccount(sd.Budget.gdp(9), Series("year", Attendance(1)))
    for year, feature, exact in ((2020, sd.Feature("state", "A"), []), (2021, county, ["county"])):
        data = {"state": [*"AAA"], "county": ["a1"] * 3, "kind": [*"xzx"]}
        features = [feature, sd.Feature("kind", "xz")]
        plan = sd.Plan([TableRequest(["kind"], sd.Budget.gdp(1))], exact, features)
        used = {name: data[name] for one in features for name in one.names}
        prepared = sd.prepare(plan, used)
        account = add(account, prepared.guarantee, list(prepared.mechanisms), year)
    assert account.counted[Periods("year", (2020,))].adjacency == sd.Ball(2)


def test_totals_that_are_known_by_name_are_the_same_in_every_period():
    named = sd.Guarantee(
        sd.Dataspace.from_description("state totals"), sd.Ball(2), sd.Budget.gdp(1).tradeoff()
    )
    flat = prepare("ffm", ["sex"], ["kind"], "worst-case")
    for order in (((named, []), flat), (flat, (named, []))):
        account = SeriesAccount(sd.Budget.gdp(9), Series("year", Attendance(1)))
        account = add(account, *order[0], 2020)
        with pytest.raises(sd.Refused, match="the exact totals of every period"):
            add(account, *order[1], 2021)


def test_the_order_of_periods_does_not_matter_and_declared_totals_count_at_once():
    first = prepare("ffm", ["sex"], ["sex", "kind"], "worst-case")
    second = prepare("fmm", ["sex", "age"], ["age", "kind"], "worst-case")
    costs = []
    for declared in (None, (("sex",), ("age",))):
        for order in ((first, second), (second, first)):
            account = SeriesAccount(sd.Budget.gdp(9), Series("year", Attendance(1), declared))
            if declared and order[0] is first:
                with pytest.raises(sd.Refused, match="no release has a column 'age'"):
                    add(account, *first, 2020)
                continue
            for guarantee, mechanisms in order:
                account = add(account, guarantee, mechanisms, 2020 + (guarantee is second[0]))
            costs.append([account.measure(cost.spent) for cost in account.costs])
    assert costs == [costs[0]] * 3
    assert costs[0][0] == Fraction(18, 8) * costs[0][1]


def add(
    account: SeriesAccount, guarantee: sd.Guarantee, mechanisms: list[Mechanism], *years: int
) -> SeriesAccount:
    records = [mechanism.record() for mechanism in mechanisms]
    return account.add_charge(guarantee, "a table", records, Periods("year", years))


def test_a_table_that_further_totals_would_fix_still_costs_what_it_told():
    """Ages were noisy in 2020. That they are exact in 2021 gives nothing of 2020 away for free."""
    account = SeriesAccount(sd.Budget.gdp(9), Series("year", Attendance(1)))
    account = add(account, *prepare("ffm", ["sex"], ["age"], "worst-case"), 2020)
    before = account.find_worst()[0]
    account = add(account, *prepare("fmm", ["age"], ["sex"], "worst-case"), 2021)
    assert account.counted[Periods("year", (2020,))].semi_first().is_trivial
    assert account.measure(account.costs[0].spent) == before > 0


def test_a_union_that_exceeds_the_budget_is_refused():
    account = SeriesAccount(sd.Budget.gdp(1), Series("year", Attendance(1)))
    account = add(account, *prepare("ffm", ["sex"], ["sex", "kind"], "worst-case"), 2020)
    with pytest.raises(sd.BudgetExceeded, match="in 2020"):
        add(account, *prepare("fmm", ["sex", "age"], ["age", "kind"], "worst-case"), 2021)


def test_charges_without_their_queries_are_not_counted_under_more():
    account = SeriesAccount(sd.Budget.gdp(9), Series("year", Attendance(1)))
    guarantee, _ = prepare("ffm", ["sex"], ["sex", "kind"], "worst-case")
    account = account.add_charge(guarantee, "first", (), Periods("year", (2020,)))
    with pytest.raises(sd.Refused, match="publish age exactly in 2020 as well"):
        add(account, *prepare("fmm", ["sex", "age"], ["age", "kind"], "worst-case"), 2021)


def test_pooled_totals_are_sums_of_exact_totals():
    """Kinds x and z in each year, and p, q and r in both together, would tell people apart."""
    series = Series("year", Attendance(1))
    single = prepare("ffm", ["kind"], ["sex", "kind"], "worst-case")
    alike = prepare("ffm", ["kind"], ["sex", "kind"], "worst-case", "pxz")
    data = {"kind": [*"pqr"], "sex": [*"ffm"]}
    plan = sd.Plan(
        [TableRequest(["sex", "kind"], sd.Budget.gdp(1))], ["kind"], [sd.Feature("sex", "fm")]
    )
    prepared = sd.prepare(plan, data)
    other = prepared.guarantee, list(prepared.mechanisms)
    no_totals = prepare("ffm", ["sex"], ["sex", "kind"], "worst-case")
    for first, second in (((2020,), (2020, 2021)), ((2020, 2021), (2020,))):
        singles = {first: single, second: single}
        account = add(SeriesAccount(sd.Budget.gdp(9), series), *singles[first], *first)
        assert add(account, *alike, *second).charges
        with pytest.raises(sd.Refused, match="other levels"):
            add(account, *other, *second)
        if first == (2020,):
            with pytest.raises(sd.Refused, match="sex is not exact in one of them"):
                add(account, *no_totals, *second)


def test_pooled_records_of_those_who_stayed_are_refused():
    """Exact totals of people who are in both years tell apart histories that the series compares."""
    years = {2020: [*"ffm"], 2021: [*"ffm"]}  # the first and the last are the same people
    stayed = [years[year][person] for year in years for person in (0, 2)]
    histories = [
        (one, other)
        for one in set(itertools.permutations(years[2020]))
        for other in set(itertools.permutations(years[2021]))
    ]
    women = {sum(sexes[at] == "f" for sexes in pair for at in (0, 2)) for pair in histories}
    everybody = {sum(sex == "f" for sexes in pair for sex in sexes) for pair in histories}
    assert (women, everybody) == ({2, 3, 4}, {4})
    series, ask = Series("year", Attendance(2)), (["sex"], ["sex", "kind"], "worst-case")
    singles = {year: prepare(sexes, *ask, most=1) for year, sexes in years.items()}
    pooled = {False: prepare(stayed, *ask, most=2), True: prepare("ffmffm", *ask, most=2)}
    for place, is_whole in itertools.product(range(3), pooled):
        order = [((year,), singles[year]) for year in years]
        order.insert(place, ((2020, 2021), pooled[is_whole]))
        account = SeriesAccount(sd.Budget.gdp(99), series)
        with contextlib.nullcontext() if is_whole else pytest.raises(sd.Refused, match="add up"):
            for periods, made in order:
                account = add(account, *made, *periods)
        assert (len(account.charges) == 3) == is_whole


def test_pooled_records_may_be_those_before_a_correction():
    series, ask = Series("year", Attendance(2)), (["sex"], ["sex", "kind"], "worst-case")
    charges = [("2020", "ffm"), ("2021", "ffm"), ("2020r1", "fmm")]
    account = SeriesAccount(sd.Budget.gdp(99), series)
    for text, sexes in charges:
        guarantee, _ = prepare(sexes, *ask, most=1)
        account = account.add_charge(guarantee, "", (), Periods.from_text(text, "year"))
    for sexes, fits in (("ffmffm", True), ("fmmffm", True), ("mmmffm", False)):
        made = prepare(sexes, *ask, most=2)
        with contextlib.nullcontext() if fits else pytest.raises(sd.Refused, match="sex does not"):
            add(account, *made, 2020, 2021)


def test_a_constant_column_without_exact_totals_is_refused():
    series = Series("year", Attendance(2), None, ("sxe",))
    with pytest.raises(sd.Refused, match="'sxe' never changes"):
        add(
            SeriesAccount(sd.Budget.gdp(9), series),
            *prepare("ffm", ["sex"], ["kind"], "worst-case"),
            2020,
        )
