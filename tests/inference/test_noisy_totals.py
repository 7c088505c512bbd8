"""Independence with noisy totals: the size by enumeration, a twin that takes noisy totals for
exact, real tables.
"""

import itertools
import math

import numpy as np
import pytest

from semidp import Budget, Feature, Plan, run
from semidp.errors import InputError
from semidp.inference.independence import MISS, TotalsTest, least_favourable, random_tables
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import TableRequest

ROWS = np.array([4, 3])
STEPS = {-1: 0.3, 0: 0.4, 1: 0.3}


def small_test() -> TotalsTest:
    variance = sum(step**2 * share for step, share in STEPS.items())
    return TotalsTest(np.full((2, 2), variance), np.zeros((1, 2, 2)), 0)


def seen_tables(cases: int) -> dict[tuple[int, ...], float]:
    """All noisy tables with their probabilities, where the true totals of the first column are
    `cases`.

    Row totals are exact: each row has noise of its own, +e in the first column and -e in the
    second.
    """
    n = int(ROWS.sum())
    law: dict[tuple[int, ...], float] = {}
    for x in range(max(0, cases - ROWS[1]), min(ROWS[0], cases) + 1):
        share = math.comb(ROWS[0], x) * math.comb(ROWS[1], cases - x) / math.comb(n, cases)
        for a, b in itertools.product(STEPS, STEPS):
            table = (x + a, ROWS[0] - x - a, cases - x + b, ROWS[1] - cases + x - b)
            law[table] = law.get(table, 0.0) + share * STEPS[a] * STEPS[b]
    return law


def test_the_size_is_at_most_the_level_for_every_true_total() -> None:
    """Enumerated p-values for each total; the largest over all totals within the reach of the
    noise.
    """
    test, n = small_test(), int(ROWS.sum())
    laws = {cases: seen_tables(cases) for cases in range(1, n)}
    statistics, tails = {}, {}
    for cases, law in laws.items():
        columns = np.array([cases, n - cases])
        every = {table for other in laws.values() for table in other}
        stacked = np.array(sorted(every), dtype=float).reshape(-1, 2, 2)
        values = dict(
            zip(sorted(every), test.statistics(stacked, ROWS, columns).round(9), strict=True)
        )
        statistics[cases] = values
        tails[cases] = {
            table: sum(share for other, share in law.items() if values[other] >= values[table])
            for table in every
        }

    def p_value(table: tuple[int, ...]) -> float:
        near = [cases for cases in laws if abs(cases - table[0] - table[2]) <= 2]
        totals = [(ROWS, np.array([cases, n - cases])) for cases in near]
        return least_favourable(totals, lambda rows, columns: tails[int(columns[0])][table])[0]

    checked = 0
    for law in laws.values():
        assert sum(law.values()) == pytest.approx(1)
        p = {table: p_value(table) for table in law}
        for level in sorted({value for value in p.values() if value < 1}):
            size = sum(share for table, share in law.items() if p[table] <= level)
            assert size <= level + 1e-9
            checked += 1
    assert checked > 20


def sizes(runs: int, cases: int, sigma: float, known: bool) -> float:
    """How often independence is rejected at 0.05 where it holds; the twin takes noisy totals for
    the truth.
    """
    source, rows, n = np.random.default_rng(cases), np.array([60, 40]), 100
    rejected = 0
    errors = np.zeros((199, 2, 2))
    draws = source.normal(0, sigma, (199, 2))
    if known:
        errors[:, :, 0], errors[:, :, 1] = draws, -draws
    test = TotalsTest(np.full((2, 2), sigma**2 if known else 0.0), errors, 1)
    reach = math.ceil(3.5 * sigma * math.sqrt(2)) if known else 0
    for _ in range(runs):
        table = random_tables(rows[:, None], np.array([[cases], [n - cases]]), 1, source)[
            0, ..., 0
        ].astype(float)
        error = source.normal(0, sigma, 2)
        table += np.stack([error, -error], axis=1)
        centre = int(np.clip(round(table[:, 0].sum()), 1, n - 1))
        plausible = range(max(1, centre - reach), min(n - 1, centre + reach) + 1)
        totals = [(rows, np.array([value, n - value])) for value in plausible]
        p, _ = least_favourable(
            totals, lambda one, other, seen=table: test.p_value(seen, one, other)
        )
        rejected += p <= 0.05
    return rejected / runs


@pytest.mark.long
def test_the_size_holds_and_that_of_the_twin_does_not() -> None:
    for cases in (8, 50):
        assert sizes(120, cases, 3.0, True) <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 120)
        assert sizes(120, cases, 3.0, False) > 0.15


def titanic(table: list[str], exact: list, mu: object, seed: int = 1):
    import csv
    from importlib.resources import files

    data: dict[str, list[str]] = {name: [] for name in ("class", "sex", "survived")}
    for line in csv.DictReader((files("semidp") / "data" / "titanic.csv").read_text().splitlines()):
        for name, values in data.items():
            values.extend([line[name]] * int(line["count"]))
    plan = Plan([TableRequest(table, Budget.gdp(mu))], exact, [Feature("survived", ["No", "Yes"])])
    return run(plan, data, SeededRandomness(seed))


def test_class_and_survival_with_exact_class_and_sex() -> None:
    release = titanic(["class", "sex", "survived"], ["class", "sex"], 1)
    answer = release.test("class", "survived", draws=999, randomness=SeededRandomness(1))
    assert answer.noisy_totals == ("survived",)
    assert answer.p_value == pytest.approx(MISS + 1 / 1000)
    assert "plausible totals" in answer.notes[0]
    assert answer.to_json()["noisy_totals"] == ["survived"]


def test_many_totals_are_bounded_and_few_are_tried() -> None:
    data = {"a": [*"xyz"] * 20, "b": [*"pq"] * 30}
    features = [Feature("a", ["x", "y", "z"]), Feature("b", ["p", "q"])]
    plan = Plan([TableRequest(["a", "b"], Budget.gdp(1))], ["b"], features)
    noisy = run(plan, data, SeededRandomness(1))
    bounded = noisy.test("a", "b", draws=99)
    assert bounded.noisy_totals == ("a",)
    assert bounded.p_value > 0.05
    swapped = Plan([TableRequest(["a", "b"], Budget.gdp(1))], ["a"], features)
    other = run(swapped, data, SeededRandomness(1))
    assert other.test("a", "b", draws=199).p_value > 0.05
    with pytest.raises(InputError, match="no direction"):
        other.test("a", "b", alternative="greater")
