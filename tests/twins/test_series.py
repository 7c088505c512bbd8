"""Twin runs over the periods of a series: what a ledger states is what a person can lose."""

import random
from fractions import Fraction
from itertools import combinations

import pytest
from attrs import evolve

import semidp
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.accounting.periods import Attendance
from semidp.promise.accounting.series import Series
from semidp.promise.tradeoff.budget import Budget
from tests.twins.people import World
from tests.twins.plans import FLAT, build_case, draw_records
from tests.twins.twin_runs import compare_numbers, compare_public

SPENT = {"2026Q1": "1/2", "2026Q2": "1/8", "2026Q3": "1", "2026Q4": "1/4"}
"""What a table of each quarter may spend, in rho."""


@pytest.mark.parametrize("relation", ["ball", "exchange"])
def test_a_person_in_two_quarters_loses_what_the_ledger_states(relation, tmp_path):
    """A pair differs in each period in which the person takes part, by a pair of that period."""
    names, leaves = (("sex",), ("ward",)), (FLAT["sex"], FLAT["ward"])
    world, rng = World(names, leaves, (((0, 1),), ((1, 1),))), random.Random(3)
    series = Series("quarter", Attendance(2), exact=(("sex",), ("ward",)))
    books = [tmp_path / "one.json", tmp_path / "two.json"]
    for book in books:
        Ledger.create(book, Budget.zcdp(3), series=series)
    costs = []
    for period, rho in SPENT.items():
        records = draw_records(rng, world, 14)
        request, texts = semidp.table("sex", "ward"), frozenset({"sex", "ward"})
        case = build_case(world, records, relation, [request], {"rho": rho}, ("tables",), texts)
        claims = case.claims(case.run(case.start, 1).document)
        pair = case.pairs(claims, rng).find_worst(claims.height, 4, 200)[0]
        runs = []
        for book, side in zip(books, (pair.first, pair.second), strict=True):
            options = {**case.options, "ledger": book, "period": period}
            runs.append((side, evolve(case, options=options).run(side, 1)))
        compare_public(case, runs[0][1], runs[1][1])
        costs.append(compare_numbers(case, claims, *runs) * Fraction(rho))
    stated = [Ledger(book).series_account().find_worst()[0] for book in books]
    assert stated[0] == stated[1] == Fraction(3, 2)
    worst = max(map(sum, combinations(costs, 2)))
    assert worst == pytest.approx(float(stated[0]), rel=0.01)  # attained, and not exceeded
    assert max(map(sum, combinations(costs, 3))) > 1.1 * stated[0]  # three would be too many
