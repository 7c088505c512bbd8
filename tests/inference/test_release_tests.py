"""Tests of independence on published releases: random tables, sizes under every noise, and what is
refused.
"""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from semidp import Budget, Feature, Plan, Release, run
from semidp.errors import InputError, Refused
from semidp.inference.independence import independence_test, random_tables
from semidp.inference.linear_estimates import simulated_bound
from semidp.inference.measured import Measured, measured_table
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.schema import StructuralZero
from semidp.publish import TableRequest, TablesRequest

FALSE_ALARM = 1e-6


def all_tables(rows: Sequence[int], columns: Sequence[int]) -> list[tuple[int, ...]]:
    """Every table with these margins, flat."""
    cells = len(rows) * len(columns)
    found = []
    for flat in itertools.product(range(max(rows) + 1), repeat=cells):
        table = np.array(flat).reshape(len(rows), len(columns))
        if table.sum(axis=1).tolist() == list(rows) and table.sum(axis=0).tolist() == list(columns):
            found.append(flat)
    return found


@pytest.mark.parametrize(
    ("rows", "columns"), [((2, 2), (1, 2, 1)), ((3, 1, 1), (2, 3)), ((2, 1, 1), (1, 2, 1))]
)
def test_random_tables_have_the_multivariate_hypergeometric_law(
    rows: tuple[int, ...], columns: tuple[int, ...]
) -> None:
    draws, source = 60_000, np.random.default_rng(5)
    tables = random_tables(np.array(rows)[:, None], np.array(columns)[:, None], draws, source)[
        ..., 0
    ]
    n = sum(rows)
    for flat in all_tables(rows, columns):
        top = math.prod(map(math.factorial, (*rows, *columns)))
        share = Fraction(top, math.factorial(n) * math.prod(map(math.factorial, flat)))
        seen = int((tables.reshape(draws, -1) == flat).all(axis=1).sum())
        assert (
            min(binom.cdf(seen, draws, float(share)), binom.sf(seen - 1, draws, float(share)))
            > FALSE_ALARM
        )


def test_random_tables_keep_the_margins_of_every_stratum() -> None:
    source = np.random.default_rng(1)
    rows, columns = np.array([[3, 0, 9], [4, 5, 0], [0, 2, 1]]), np.array([[2, 7, 4], [5, 0, 6]])
    tables = random_tables(rows, columns, 50, source)
    assert (tables >= 0).all()
    assert (tables.sum(axis=2) == rows).all()
    assert (tables.sum(axis=1) == columns).all()


def test_the_p_value_counts_the_published_table_and_ties() -> None:
    rows = columns = np.array([[2], [2]])
    estimate = np.array([[1.0, 1.0], [1.0, 1.0]])[..., None]

    def none(count: int, randomness: Any) -> np.ndarray:
        return np.zeros((count, 2, 2, 1))

    found = independence_test(
        estimate, rows, columns, np.zeros((2, 2, 1)), none, 99, SeededRandomness(1)
    )
    assert found == (0.0, 4, 1.0)
    extreme = independence_test(
        estimate * [[[2]], [[0]]] + [[[0]], [[0]]],
        rows,
        columns,
        np.zeros((2, 2, 1)),
        none,
        99,
        SeededRandomness(1),
    )
    assert extreme[2] >= 1 / 100
    with pytest.raises(InputError, match="at least 19"):
        independence_test(
            estimate, rows, columns, np.zeros((2, 2, 1)), none, 3, SeededRandomness(1)
        )


def test_a_bound_holds_as_often_as_it_says() -> None:
    """All ranks of a further number are equally likely: 100 of 100 + 1 places, 95 of them
    within.
    """
    source = np.random.default_rng(3)
    numbers = source.standard_exponential((4000, 100))
    held = np.mean([one[0] <= simulated_bound(one[1:], 0.95) for one in numbers])
    assert abs(held - 0.95) < 5 * math.sqrt(0.95 * 0.05 / 4000)
    assert simulated_bound(np.zeros(5), 0.95) == math.inf


# Sizes, by the mechanism of each release: the data are drawn again from the null hypothesis and
# measured again.

MECHANISMS = [
    ("gaussian", Budget.gdp("0.3")),
    ("gaussian", Budget.zcdp("0.05")),
    ("laplace", Budget.pure("0.7")),
    ("lattice", Budget.zcdp("0.05")),
    ("l2", Budget.pure("0.7")),
    ("knorm", Budget.pure("0.7")),
]


def release_of(
    mechanism: str, budget: Budget, shape: tuple[int, int], n: int
) -> tuple[Measured, np.ndarray, np.ndarray]:
    """A measured table with public margins, and the margins."""
    source = np.random.default_rng(len(mechanism) * 1000 + shape[1])
    people = {
        name: [f"{name}{level}" for level in source.integers(0, size, n)]
        for name, size in zip("rc", shape, strict=True)
    }
    features = [
        Feature(name, [f"{name}{level}" for level in range(size)])
        for name, size in zip("rc", shape, strict=True)
    ]
    plan = Plan([TableRequest(["r", "c"], budget, mechanism)], ["r", "c"], features)
    measured = measured_table(run(plan, people), ("r", "c"))
    rows, columns = (
        measured.estimate.sum(axis=axis).round().astype(np.int64)[:, None] for axis in (1, 0)
    )
    return measured, rows, columns


def size_at(
    measured: Measured, rows: np.ndarray, columns: np.ndarray, alpha: float, runs: int, ignore: bool
) -> float:
    """How often the test rejects at alpha where the features are independent; with the noise
    ignored if asked.

    One set of simulated statistics serves all runs: the size given that set is a Beta number around
    alpha, which 4999 draws keep within 0.0125 of 0.05 except once in a million.
    """
    shape = measured.schema.shape
    errors = measured.weigh_noise(np.eye(measured.estimate.size).reshape(-1, *shape))
    law = errors.draw
    n = float(rows.sum())
    mean = rows * columns.T / n
    variance = mean * (n - rows) / n * (n - columns.T) / (n - 1)
    noise = errors.standard_errors.reshape(shape) ** 2
    source = np.random.default_rng(9)

    def statistics(count: int, seed: int, noisy: bool) -> np.ndarray:
        off = random_tables(rows, columns, count, source)[..., 0] - mean
        if noisy:
            off = off + law(count, SeededRandomness(seed)).reshape(-1, *shape)
        return (off**2 / (variance + (0 if ignore else noise))).sum(axis=(1, 2))

    reference = np.sort(statistics(4999, 1, not ignore))
    seen = statistics(runs, 2, True)
    p = (1 + len(reference) - np.searchsorted(reference, seen * (1 - 1e-9))) / (1 + len(reference))
    return float(np.mean(p <= alpha))


@pytest.mark.parametrize(("mechanism", "budget"), MECHANISMS)
def test_the_size_is_nominal_under_every_noise_and_not_where_it_is_ignored(
    mechanism: str, budget: Budget
) -> None:
    shape = (2, 3) if mechanism == "knorm" else (3, 4)
    measured, rows, columns = release_of(mechanism, budget, shape, 150)
    assert abs(size_at(measured, rows, columns, 0.05, 5000, ignore=False) - 0.05) < 0.02
    assert size_at(measured, rows, columns, 0.05, 1000, ignore=True) > 0.15


def three_way(n: int = 240, seed: int = 1) -> dict[str, list[str]]:
    source = np.random.default_rng(seed)
    stratum = source.integers(0, 2, n)
    share = np.where(stratum == 1, 0.8, 0.2)
    rows, columns = (source.random(n) < share, source.random(n) < share)
    return {
        "r": [f"r{int(value)}" for value in rows],
        "c": [f"c{int(value)}" for value in columns],
        "k": [f"k{int(value)}" for value in stratum],
    }


def test_strata_explain_an_association() -> None:
    """Rows and columns depend on the stratum alone: associated without it, independent given it."""
    plan = Plan([TableRequest(["r", "c", "k"], Budget.gdp(1))], [["r", "k"], ["c", "k"]])
    release = run(plan, three_way(), SeededRandomness(1))
    given = release.test("r", "c", ["k"], randomness=SeededRandomness(2))
    alone = release.test("r", "c", randomness=SeededRandomness(2))
    assert given.p_value > 0.05
    assert alone.p_value == 0.0001
    assert given.notes == ()
    assert "r × k" in alone.notes[0]
    assert given.expected == 8
    assert given.to_json()["strata"] == ["k"]


def test_products_are_tested_by_their_estimates() -> None:
    data = three_way()
    asked = TablesRequest([TableRequest(["r", "c"]), TableRequest(["c", "k"])], Budget.gdp(1))
    plan = Plan([asked], invariants=["r", "c", "k"])
    release = run(plan, data, SeededRandomness(4))
    found = release.test("r", "c", randomness=SeededRandomness(1))
    assert found.table == "r-c"
    assert found.noise == "residuals"
    assert found.p_value < 0.01
    measured = measured_table(release, ("r", "c"))
    np.testing.assert_array_equal(measured.estimate, release["r-c"].estimate)
    weights = np.eye(4).reshape(-1, 2, 2)
    drawn = measured.simulate_errors(weights, 20_000, SeededRandomness(2))
    np.testing.assert_allclose(drawn.std(axis=0), measured.errors(weights), rtol=0.05)
    # the margins are exact
    np.testing.assert_allclose(drawn.reshape(-1, 2, 2).sum(axis=1), 0, atol=1e-9)


@pytest.mark.parametrize(("mechanism", "budget"), MECHANISMS)
def test_the_simulated_noise_is_that_of_the_release(mechanism: str, budget: Budget) -> None:
    """The same words give the same noise to a release and to a simulation of it."""
    data = three_way(60)
    plan = Plan([TableRequest(["r", "c"], budget, mechanism, "none")], ["r", "c"])
    release = run(plan, data, SeededRandomness(7))
    pairs = list(zip(data["r"], data["c"], strict=True))
    truth = np.array([[pairs.count((r, c)) for c in ("c0", "c1")] for r in ("r0", "r1")])
    measured = measured_table(release, ("r", "c"))
    cells = np.eye(4).reshape(-1, 2, 2)
    drawn = measured.simulate_errors(cells, 1, SeededRandomness(7)).reshape(2, 2)
    np.testing.assert_allclose(measured.estimate - truth, drawn, atol=1e-9)
    many = measured.simulate_errors(cells, 4000, SeededRandomness(8))
    np.testing.assert_allclose(many.std(axis=0), measured.errors(cells), rtol=0.15)


def test_a_larger_table_is_summed_and_a_saved_release_answers_alike(tmp_path: Path) -> None:
    plan = Plan(
        [TableRequest(["r", "c", "k"], Budget.zcdp("0.5"))], ["r", "c"], levels_from_data=True
    )
    release = run(plan, three_way(), SeededRandomness(5))
    release.save(tmp_path / "release")
    again = Release.load(tmp_path / "release")
    one, other = (each.test("r", "c", randomness=SeededRandomness(6)) for each in (release, again))
    assert one == other
    assert one.table == "table"


def test_a_table_that_the_totals_fix_is_tested_without_noise() -> None:
    plan = Plan([TableRequest(["r", "c"], Budget.gdp(1))], [["r", "c"]])
    found = run(plan, three_way()).test("r", "c", randomness=SeededRandomness(1))
    assert found.noise == "no noise"
    assert found.p_value == 0.0001


def test_nested_features_are_tested_at_their_depth() -> None:
    places = Feature.from_paths(
        ["state", "county"], [("a", "x"), ("a", "y"), ("b", "z"), ("b", "w")]
    )
    source = np.random.default_rng(2)
    picked = source.integers(0, 4, 200)
    data = {
        "state": [("a", "a", "b", "b")[place] for place in picked],
        "county": [("x", "y", "z", "w")[place] for place in picked],
        "vote": [("n", "y")[int(place > 1)] for place in picked],
    }
    plan = Plan([TableRequest(["county", "vote"], Budget.gdp(1))], ["county", "vote"], [places])
    release = run(plan, data, SeededRandomness(1))
    assert release.test("state", "vote", randomness=SeededRandomness(1)).p_value == 0.0001
    assert release.test("county", "vote", randomness=SeededRandomness(1)).expected == 8
    with pytest.raises(InputError, match="different features"):
        release.test("county", "vote", ["state"])


def test_what_has_no_exact_test_is_refused() -> None:
    data = three_way()
    plan = Plan([TableRequest(["r", "c", "k"], Budget.gdp(1))], ["r", "k"], levels_from_data=True)
    release = run(plan, data)
    with pytest.raises(Refused, match="totals of r by k and of c by k are both noisy"):
        release.test("r", "c", ["k"])
    with pytest.raises(InputError, match="no table with r, town; its tables: table: r, c, k"):
        release.test("r", "town")
    with pytest.raises(InputError, match="no table 'other'"):
        release.test("r", "c", table="other")
    with pytest.raises(InputError, match="different features"):
        release.test("r", "r")
    zeros = Plan(
        [TableRequest(["r", "c"], Budget.gdp(1))],
        ["r", "c"],
        [Feature("r", ["r0", "r1"]), Feature("c", ["c0", "c1"])],
        structural_zeros=[StructuralZero.from_pattern({"r": "r0", "c": "c1"})],
    )
    odd = {"r": ["r0", "r1", "r1"], "c": ["c0", "c1", "c0"]}
    with pytest.raises(Refused, match="impossible cells"):
        run(zeros, odd).test("r", "c")
    constant = Plan(
        [TableRequest(["r", "c"], Budget.gdp(1))], ["r", "c"], [Feature("r", ["r0", "r1"])]
    )
    with pytest.raises(Refused, match="only one table"):
        run(constant, {"r": ["r0"] * 4, "c": ["a", "b"] * 2}).test("r", "c")
