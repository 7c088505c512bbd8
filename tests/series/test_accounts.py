"""The ledger of a series: every charge and refusal equals a naive recomputation."""

import contextlib
import itertools
import json
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import semidp as sd
from semidp import Budget, BudgetExceeded, Dataspace, InputError, Ledger, Refused
from semidp.cli import run
from semidp.promise.accounting.ledger import Session
from semidp.promise.accounting.periods import Attendance, Periods, format_period, read_period
from semidp.promise.accounting.series import Series, SeriesAccount
from semidp.promise.guarantee import Guarantee
from semidp.promise.spaces.adjacency import Ball, Exchange
from semidp.promise.spaces.protection import Protection
from semidp.promise.tradeoff.budget import approximate, gaussian, zcdp

FIRST = read_period("2025Q1", "quarter")
LAST = 6  # quarters that a random series is about
STATES = Dataspace.from_description("state totals")


def promise(rho: Fraction, records: int = 1) -> Guarantee:
    return Guarantee(STATES, Ball(2 * records, Protection("person", records)), zcdp(rho))


def is_admissible(attendance: Attendance, periods: tuple[int, ...]) -> bool:
    """Whether one person may be in all of some periods, by the words of the definition."""
    if attendance.pattern:
        stretches, day = [], 0
        for place, length in enumerate(attendance.pattern):
            stretches += [day + step for step in range(length)] if place % 2 == 0 else []
            day += length
        earliest = min(periods, default=0) - day
        return any(
            all(period - start in stretches for period in periods)
            for start in range(earliest, max(periods, default=0) + 1)
        )
    if attendance.most is None:
        return True
    if attendance.consecutive:
        return not periods or max(periods) - min(periods) < attendance.most
    return len(periods) <= attendance.most


def worst_by_hand(attendance: Attendance, costs: list[tuple[range, Fraction]]) -> Fraction:
    """The largest sum over all admissible sets among all quarters, none left out."""
    worst = Fraction(0)
    calendar = range(FIRST, FIRST + LAST)
    for size in range(LAST + 1):
        for periods in itertools.combinations(calendar, size):
            if is_admissible(attendance, periods):
                met = (cost for drawn, cost in costs if {*drawn} & {*periods})
                worst = max(worst, sum(met, Fraction(0)))
    return worst


ATTENDANCES = st.one_of(
    st.builds(Attendance, st.integers(1, 4)),
    st.builds(Attendance, st.integers(1, 4), st.just(True)),
    st.builds(Attendance, pattern=st.sampled_from([(1,), (2, 1, 1), (1, 2, 1), (1, 1, 1, 1, 1)])),
    st.just(Attendance()),
)
CHARGES = st.lists(
    st.tuples(st.integers(0, LAST - 1), st.integers(1, 3), st.integers(1, 4)), max_size=8
)


@given(ATTENDANCES, CHARGES)
def test_charges_and_refusals_equal_a_naive_recomputation(attendance, charges):
    account = SeriesAccount(Budget.zcdp(1), Series("quarter", attendance))
    made: list[tuple[range, Fraction]] = []
    for start, length, tenths in charges:
        drawn = range(FIRST + start, min(FIRST + start + length, FIRST + LAST))
        cost = Fraction(tenths, 10)
        periods = Periods("quarter", tuple(drawn))
        try:
            account = account.add_charge(promise(cost, len(drawn)), "a table", (), periods)
        except BudgetExceeded:
            assert worst_by_hand(attendance, [*made, (drawn, cost)]) > 1
            continue
        made.append((drawn, cost))
        worst, where = account.find_worst()
        assert worst == worst_by_hand(attendance, made) <= 1
        assert is_admissible(attendance, where)
    for number in range(FIRST, FIRST + LAST):
        left = account.remaining(number)
        probe = Fraction(0) if left is None else left.rho
        assert worst_by_hand(attendance, [*made, (range(number, number + 1), probe)]) <= 1
        beyond = [*made, (range(number, number + 1), probe + Fraction(1, 1000))]
        assert worst_by_hand(attendance, beyond) > 1


def test_many_choices_of_periods_are_bounded_and_never_below():
    account = SeriesAccount(Budget.zcdp(100), Series("quarter", Attendance(5)))
    for start in range(30):
        periods = Periods("quarter", (FIRST + start,))
        account = account.add_charge(
            promise(Fraction(start, 10) or Fraction(1, 10)), "", (), periods
        )
    assert account.find_worst()[0] == Fraction(29 + 28 + 27 + 26 + 25, 10)
    pooled = Periods("quarter", tuple(range(FIRST, FIRST + 4)))
    with_pool = account.add_charge(promise(Fraction(7), 4), "", (), pooled)
    assert with_pool.find_worst()[0] >= Fraction(29 + 28 + 27 + 26, 10) + 7


def test_a_window_budget_never_runs_out(tmp_path: Path):
    book = Ledger.create(
        tmp_path / "ledger.json",
        Budget.zcdp(1),
        series=Series("month", Attendance(4, consecutive=True)),
    )
    start = read_period("2020-11", "month")
    for number in range(start, start + 24):
        period = format_period(number, "month")
        book.charge(promise(Fraction(1, 4)), "a month", period=period)
        if number < start + 3:
            continue
        with pytest.raises(BudgetExceeded, match=period):
            book.charge(promise(Fraction(1, 1000)), "too much", period=period)
    account = book.series_account()
    assert account.remaining(start + 24) == Budget.zcdp("1/4")
    assert [str(each) for each in account.counting_with(start + 24)] == [
        "2022-08",
        "2022-09",
        "2022-10",
    ]


def test_gaussian_budgets_add_up_in_squares():
    account = SeriesAccount(Budget.gdp(1), Series("year", Attendance(2, consecutive=True)))
    for year in range(2020, 2030):
        guarantee = Guarantee(STATES, Ball(2), gaussian("0.7"))
        account = account.add_charge(guarantee, "", (), Periods("year", (year,)))
    total = account.total()
    assert total is not None
    assert total.tradeoff == gaussian("0.7").compose(gaussian("0.7"))
    assert total.periods == (2020, 2021)


def test_other_curves_have_a_budget_for_each_period():
    series = Series("year", Attendance(4, consecutive=True))
    account = SeriesAccount(Budget.approximate(4, "4e-6"), series)
    assert account.each == Budget.approximate(1, "1e-6")
    full = Guarantee(STATES, Ball(2), approximate(1, "1e-6"))
    for year in (2020, 2024, 2021):
        account = account.add_charge(full, "", (), Periods("year", (year,)))
    with pytest.raises(BudgetExceeded, match="for 2021"):
        account.add_charge(
            Guarantee(STATES, Ball(2), approximate("0.01", "1e-9")),
            "",
            (),
            Periods("year", (2021,)),
        )
    total = account.total()
    assert total is not None
    assert total.tradeoff.delta(4) <= 4e-6 * (1 + 1e-9)
    with pytest.raises(InputError, match="exceed the budget"):
        SeriesAccount(
            Budget.approximate(4, "4e-6"),
            Series("year", Attendance(4), each=Budget.approximate(2, "1e-6")),
        )
    with pytest.raises(InputError, match="needs a bound"):
        SeriesAccount(Budget.pure(4), Series("year", Attendance()))


def test_what_does_not_add_up_is_refused():
    account = SeriesAccount(Budget.zcdp(9), Series("quarter", Attendance(3)))
    first = Periods.from_text("2026Q1", "quarter")
    account = account.add_charge(promise(Fraction(1)), "", (), first)
    others = (
        (Guarantee(STATES, Exchange(2, Protection("person", 1)), zcdp(1)), "two promises"),
        (Guarantee(STATES, Ball(2, Protection("patient", 1)), zcdp(1)), "patient"),
        (Guarantee(STATES, Ball(2), zcdp(1)), "no recorded id"),
        (
            Guarantee(
                Dataspace.from_description("county totals"),
                Ball(2, Protection("person", 1)),
                zcdp(1),
            ),
            "exact totals of every period",
        ),
    )
    for guarantee, sentence in others:
        with pytest.raises(Refused, match=sentence):
            account.add_charge(guarantee, "", (), Periods.from_text("2026Q2", "quarter"))
    pooled = Periods.from_text("2025Q2..2026Q1", "quarter")
    with pytest.raises(Refused, match="3 or more as most="):
        account.add_charge(promise(Fraction(1), 2), "", (), pooled)
    assert len(account.add_charge(promise(Fraction(1), 3), "", (), pooled).charges) == 2


def test_corrected_data_are_charged_to_their_own_period():
    account = SeriesAccount(Budget.zcdp(9), Series("quarter", Attendance(1)))
    for text, worst in (("2026Q1", 1), ("2026Q2", 1), ("2026Q1r1", 2), ("2026Q1r2", 3)):
        account = account.add_charge(
            promise(Fraction(1)), "", (), Periods.from_text(text, "quarter")
        )
        assert account.find_worst()[0] == worst


@pytest.mark.parametrize("text", ["2026", "2026Q5", "2026Q2..2026Q1", "Q1", "", "2026Q1r0", "1Q1"])
def test_what_is_no_quarter_is_refused(text):
    with pytest.raises(InputError, match=r"quarter|ends before"):
        Periods.from_text(text, "quarter")


def test_two_objects_charge_one_file_and_a_forged_series_is_refused(tmp_path: Path):
    path = tmp_path / "ledger.json"
    Ledger.create(path, Budget.zcdp(1), series=Series("quarter", Attendance(2)))
    for text in ("2026Q2", "2026Q1"):
        Ledger(path).charge(promise(Fraction(1, 2)), text, period=text)
    assert [charge.label for charge in Ledger(path).account().charges] == ["2026Q2", "2026Q1"]
    with pytest.raises(InputError, match="name the period"):
        Ledger(path).charge(promise(Fraction(1, 2)), "no period")
    document = json.loads(path.read_text())
    document["series"]["attendance"]["most"] = 1
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="was changed"):
        Ledger(path).account()


def charge_quarter(path: str) -> bool:
    try:
        Ledger(path).charge(promise(Fraction(1, 5)), "a table", period="2026Q1")
    except BudgetExceeded:
        return False
    return True


def test_two_processes_at_once_never_overspend_a_period(tmp_path: Path):
    path = tmp_path / "ledger.json"
    Ledger.create(path, Budget.zcdp(1), series=Series("quarter", Attendance(2)))
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        made = list(pool.map(charge_quarter, [str(path)] * 12))
    assert sum(made) == 5
    assert Ledger(path).series_account().find_worst()[0] == 1


def test_a_run_that_was_killed_after_its_charge_is_charged_once(tmp_path: Path):
    path = tmp_path / "ledger.json"
    book = Ledger.create(path, Budget.zcdp(1), series=Series("quarter", Attendance(2)))
    first = Session()
    book.charge(promise(Fraction(1, 2)), "a table", session=first, period="2026Q1")
    later = Session(run=first.run, earlier=(first.name,))
    entry = Ledger(path).charge(promise(Fraction(1, 2)), "a table", session=later, period="2026Q1")
    assert entry["number"] == 1
    Ledger(path).finish(later, 64 * "d")
    assert len(Ledger(path).account().charges) == 1


def test_a_year_of_weeks_is_pooled_without_listing_all_choices():
    account = SeriesAccount(Budget.zcdp(1), Series("week", Attendance(26)))
    weeks = Periods.from_text("2026-W01..2026-W52", "week")
    account = account.add_charge(promise(Fraction(1, 10), 26), "a year", (), weeks)
    assert account.find_worst()[0] == Fraction(1, 10)


def test_a_period_counts_with_the_most_expensive_others_where_choices_are_not_listed():
    """Of 30 quarters a person is in 10; the one that is asked about is cheap, and is among them."""
    account = SeriesAccount(Budget.zcdp(1000), Series("quarter", Attendance(10)))
    for k in range(1, 31):
        period = Periods("quarter", (FIRST + k,))
        account = account.add_charge(promise(Fraction(k)), "a table", (), period)
    largest, periods = account.find_worst(within=FIRST + 1)
    assert largest == 1 + sum(range(22, 31))
    assert periods == (FIRST + 1, *range(FIRST + 22, FIRST + 31))
    assert account.find_worst()[0] == sum(range(21, 31))


def test_corrected_data_of_other_levels_are_charged_apart(tmp_path):
    """A residual was centered over the levels that its totals leave; without these there are more."""
    book = Ledger.create(
        tmp_path / "book.json", Budget.zcdp(9), series=Series("year", Attendance())
    )
    schema = sd.Schema([sd.Feature("sex", "fm"), sd.Feature("kind", "xyz")])
    data, tables = {"sex": [*"ffm"], "kind": [*"xyx"]}, [sd.table("sex", "kind"), sd.table("sex")]
    settings = {"rho": 1, "schema": schema, "ledger": book, "period": "2026"}
    sd.release(data, *tables, exact=["kind"], **settings)
    with pytest.raises(Refused, match=r"charged apart, as 2026r1"):
        sd.release(data, *tables, exact=["sex"], **settings)


@pytest.mark.parametrize("kind", [Ball, Exchange])
def test_pooled_data_have_all_records_of_each_period(kind):
    """Two records in each of two years are four of one person in both, whatever came first."""

    def promise_for(records: int) -> Guarantee:
        return Guarantee(STATES, kind(2 * records, Protection("person", records)), zcdp("0.01"))

    series = Series("year", Attendance(2))
    charges = [(promise_for(2), Periods("year", years)) for years in ((1,), (2,), (1, 2))]
    for order in itertools.permutations(charges):
        account = SeriesAccount(Budget.zcdp(1), series)
        for guarantee, periods in order[:2]:
            with contextlib.suppress(Refused):
                account = account.add_charge(guarantee, "a table", (), periods)
        refused = order[:2] if len(account.charges) < 2 else order
        with pytest.raises(Refused, match="may have"):
            account.add_charge(refused[-1][0], "a table", (), refused[-1][1])
    account = SeriesAccount(Budget.zcdp(1), series)
    for guarantee, periods in (*charges[:2], (promise_for(4), charges[2][1])):
        account = account.add_charge(guarantee, "a table", (), periods)
    assert len(account.charges) == 3


@pytest.mark.parametrize("pattern", ["²-1-1", "1234567-1-1", "900-200-900", "4-8", "0-1-1"])
def test_patterns_that_are_none_are_refused(tmp_path: Path, capsys, pattern):
    path = tmp_path / "ledger.json"
    asked = ["ledger", str(path), "--rho", "1", "--series", "week", "--pattern", pattern]
    assert run(asked) == 2
    assert "pattern" in capsys.readouterr().err
    assert not path.exists()


def test_linked_files_of_several_periods_are_not_pooled():
    """A home with 4 members in each of 2 quarters is 2 homes with 8 members in both."""
    homes = {"home": [f"h{number}" for number in range(12)], "tenure": [*"ror"] * 4}
    people = {"home": [f"h{number // 2}" for number in range(24)], "sex": [*"fm"] * 12}
    made = sd.release(
        people,
        sd.table("sex"),
        sd.table("units:tenure"),
        units=homes,
        link="home",
        most_members=4,
        protect="unit",
        exact=["units:tenure"],
        levels={"sex": ["f", "m"]},
        levels_from_data=True,
        rho="0.1",
    )
    account = SeriesAccount(Budget.zcdp(9), Series("quarter", Attendance(2)))
    pooled = Periods.from_text("2026Q1..2026Q2", "quarter")
    with pytest.raises(Refused, match="each period by itself"):
        account.add_charge(made.guarantee, "homes", (), pooled)
    single = Periods.from_text("2026Q1", "quarter")
    assert account.add_charge(made.guarantee, "homes", (), single).charges


def test_pooled_data_protect_a_record_of_each_period():
    """A person in two quarters has two records in both, and any 1 record is no promise to them."""
    account = SeriesAccount(Budget.zcdp(9), Series("quarter", Attendance(2)))
    pooled = Periods.from_text("2026Q1..2026Q4", "quarter")
    guarantees = [Guarantee(STATES, Ball(a, Protection("person", 4)), zcdp("0.1")) for a in (1, 2)]
    with pytest.raises(Refused, match=r"protects any 1 record .*, and its periods together more"):
        account.add_charge(guarantees[0], "a table", (), pooled)
    assert account.add_charge(guarantees[1], "a table", (), pooled).charges


def test_a_period_with_fewer_helpers_is_not_said_to_have_those_of_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the rarest totals overlap, two records change together instead of three. The period is
    charged for two, and the ledger said that a person with two others is protected in it.
    """
    header, ledger = "sex,region,age", str(tmp_path / "quarters.json")
    three = [f"{s},{r},{a}" for s in "ffm" for r in "nns" for a in "xy" for _ in range(3)]
    two = ["f,n,x", "f,s,y", "m,n,x", "m,s,x"]
    opened = "--rho 1 --series quarter --each-person 2 --exact sex --exact region"
    assert run(["ledger", ledger, *opened.split()]) == 0
    levels = "--levels sex=f,m --levels region=n,s --levels age=x,y"
    words = f"--table sex,region,age --exact sex --exact region --rho 1/8 --quiet {levels}"
    said = []
    for number, lines in enumerate((three, two), 1):
        data, out = tmp_path / f"{number}.csv", str(tmp_path / f"r{number}")
        data.write_text("\n".join([header, *lines]) + "\n")
        period = ["--ledger", ledger, "--period", f"2026Q{number}", "--out", out]
        assert run(["release", str(data), *words.split(), *period]) == 0
        capsys.readouterr()
        assert run(["ledger", ledger]) == 0
        said.append(capsys.readouterr().out)
    assert "each with up to 2 others of that quarter" in said[0]
    assert "up to 2 others" not in said[1]
    assert "each with as many others of that quarter as its releases say" in said[1]
