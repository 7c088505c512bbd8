"""What ledgers add up and compare, at the edges where a mutant survived all other tests."""

from fractions import Fraction
from pathlib import Path

import pytest

import semidp
from semidp import Budget, BudgetExceeded, Ledger, Refused
from semidp.promise.accounting.account import fits
from semidp.promise.accounting.periods import Attendance
from semidp.promise.accounting.series import Series
from semidp.promise.tradeoff.budget import zcdp
from semidp.promise.tradeoff.smooth import Laplace

pytestmark = [pytest.mark.long, pytest.mark.mutants]


def test_one_curve_is_compared_with_a_budget_in_mu_and_several_are_not() -> None:
    small, large = Laplace(Fraction(1, 10)), Laplace(Fraction(3))
    assert fits([small], Budget.gdp(1))
    assert not fits([large], Budget.gdp(1))
    with pytest.raises(Refused):
        fits([zcdp("1/100"), zcdp("1/100")], Budget.gdp(1))


def test_squares_of_mu_fill_the_window_of_a_person(tmp_path: Path) -> None:
    """9 = 3 squared, and not 6, is what two of the quarters may spend together."""
    series = Series("quarter", Attendance(2), exact=(("sex",),))
    book = tmp_path / "book.json"
    Ledger.create(book, Budget.gdp(3), series=series)
    data = {"sex": list("ffmmfm") * 5, "ward": list("aabbc") * 6}
    every = {"exact": ["sex"], "levels": {"ward": ["a", "b", "c"]}, "ledger": book}
    for period, mu in (("2026Q1", 2), ("2026Q2", 2), ("2026Q3", 1)):
        semidp.release(data, semidp.table("sex", "ward"), mu=mu, period=period, **every)
    worst = Ledger(book).series_account().find_worst()
    assert worst[0] == 8
    with pytest.raises(BudgetExceeded):
        semidp.release(data, semidp.table("sex", "ward"), mu="2.1", period="2026Q3", **every)
    semidp.release(data, semidp.table("sex", "ward"), mu=1, period="2026Q1", **every)
    assert Ledger(book).series_account().find_worst()[0] == 9
