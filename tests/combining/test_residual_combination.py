"""Many features, or two large nested ones: averages residual by residual are the estimate of the
dense block.
"""

import numpy as np
import pytest

import semidp
from semidp import Budget, Plan, Release, combine
from semidp.errors import InputError, Refused
from semidp.inference.combined.combination import Combination
from semidp.inference.combined.releases_together import find_combination, join_totals
from semidp.inference.combined.residual_combination import ResidualCombination, is_large
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import TableRequest, TablesRequest

WIDE = Budget.zcdp("1/100")
PLACES = [("n", "n1"), ("n", "n2"), ("n", "n3"), ("s", "s1")]
TRADES = [("a", "a1"), ("a", "a2"), ("b", "b1"), ("c", "c1"), ("c", "c2"), ("c", "c3")]
EVEN = [("x", "x1"), ("x", "x2"), ("y", "y1"), ("y", "y2")]


def people(seed: int, records: int = 300) -> dict[str, list[str]]:
    rng = np.random.default_rng(seed)
    data: dict[str, list[str]] = {"sex": rng.choice([*"fm"], records).tolist()}
    for names, paths in (
        (("region", "place"), PLACES),
        (("branch", "trade"), TRADES),
        (("half", "quarter"), EVEN),
    ):
        chosen = rng.integers(0, len(paths), records)
        for depth, name in enumerate(names):
            data[name] = [paths[number][depth] for number in chosen]
    return data


NESTS = [
    semidp.Nest(["region", "place"]),
    semidp.Nest(["branch", "trade"]),
    semidp.Nest(["half", "quarter"]),
]


def released(tables: list[list[str]], exact: list, seed: int, cells: bool = False) -> Release:
    requests: list = [TablesRequest([TableRequest(names) for names in tables], WIDE)]
    if cells:
        requests = [TableRequest(names, WIDE, mechanism="gaussian") for names in tables]
    plan = Plan(requests, exact, nests=NESTS, levels_from_data=True)
    return semidp.run(plan, people(1), SeededRandomness(seed))


SETS = {
    "two products": lambda: [
        released([["place", "trade"], ["trade", "sex"]], ["region"], 1),
        released([["place", "branch"], ["sex"]], ["branch"], 2),
    ],
    "a product and cells": lambda: [
        released([["place", "trade"], ["half"]], ["sex"], 3),
        released([["sex", "quarter"]], [], 4, cells=True),
        released([["sex"], ["quarter", "trade"]], [], 5),
    ],
    "three of one": lambda: [
        released([["place", "branch"], ["sex"]], ["place"], seed) for seed in (6, 7, 8)
    ],
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", SETS)
def test_averages_are_the_estimate_of_the_dense_block(name: str) -> None:
    releases = tuple(SETS[name]())
    dataspace = join_totals(releases)
    dense, averaged = Combination(releases, dataspace), ResidualCombination(releases, dataspace)
    assert dense.listed_tables == averaged.listed_tables
    compared = 0
    for number in range(len(dense.listed_tables)):
        values, errors = dense.table_estimates(number)
        again, errors_again = averaged.table_estimates(number)
        np.testing.assert_allclose(again, values, rtol=1e-9, atol=1e-7)
        np.testing.assert_allclose(errors_again, errors, rtol=1e-7, atol=1e-7)
        weights = np.random.default_rng(number).normal(size=values.shape)
        by_number = {number: weights[None]}
        (expected,) = dense.weigh_noise(by_number).standard_errors
        (found,) = averaged.weigh_noise(by_number).standard_errors
        assert found == pytest.approx(expected, rel=1e-7)
        compared += values.size
    assert compared > 13


@pytest.mark.long
def test_half_widths_are_those_of_the_dense_block() -> None:
    releases = tuple(SETS["two products"]())
    dataspace = join_totals(releases)
    dense, averaged = Combination(releases, dataspace), ResidualCombination(releases, dataspace)
    compared = 0
    for number in range(len(dense.listed_tables)):
        widths, again = dense.table_half_widths(number), averaged.table_half_widths(number)
        assert widths is not None
        assert again is not None
        np.testing.assert_allclose(again, widths, rtol=0.01, atol=1e-9)
        compared += widths.size
    assert compared > 30


def test_a_wrong_weight_is_caught() -> None:
    """Twin: an average that ignores precision differs from the dense block."""
    first = released([["place", "branch"], ["sex"]], ["sex"], 3)
    tables = [TableRequest(["place", "branch"]), TableRequest(["sex"])]
    plan = Plan(
        [TablesRequest(tables, Budget.zcdp("1/10"))],
        ["sex"],
        nests=NESTS,
        levels_from_data=True,
    )
    releases = (first, semidp.run(plan, people(1), SeededRandomness(9)))
    values, _ = Combination(releases, join_totals(releases)).table_estimates(0)
    plain = sum(release.tables[0].estimate for release in releases) / 2
    averaged = ResidualCombination(releases, join_totals(releases))
    assert np.abs(plain - values).max() > 0.1
    np.testing.assert_allclose(averaged.table_estimates(0)[0], values, atol=1e-7)


def large(seed: int, tables: list[list[str]], exact: list) -> Release:
    """2,100 places and 2,500 trades in branches of unequal size."""
    rng = np.random.default_rng(5)
    branch = np.sort(rng.integers(0, 40, 2500))
    trade = rng.integers(0, 2500, 20_000)
    trade[:2500] = np.arange(2500)
    place = rng.integers(0, 2100, 20_000)
    place[:2100] = np.arange(2100)
    data = {
        "region": [f"r{number % 7}" for number in place],
        "place": [f"p{number:04}" for number in place],
        "branch": [f"b{branch[number]:02}" for number in trade],
        "trade": [f"t{number:04}" for number in trade],
    }
    plan = Plan(
        [TablesRequest([TableRequest(names) for names in tables], Budget.zcdp(1))],
        exact,
        nests=NESTS[:2],
        levels_from_data=True,
    )
    return semidp.run(plan, data, SeededRandomness(seed))


@pytest.mark.long
def test_two_large_nested_features_are_combined() -> None:
    """2,500 trades by 2,100 places: the dense block would have 2,100 cells at each trade."""
    releases = [
        large(1, [["place", "branch"], ["trade"]], ["region"]),
        large(2, [["region", "trade"], ["place"]], ["region"]),
    ]
    assert is_large(join_totals(releases))
    both = combine(*releases)
    assert isinstance(find_combination(both), ResidualCombination)
    compared = 0
    for table in both.tables:
        for release in releases:
            for one in release.tables:
                if one.name == table.name:
                    assert (table.standard_errors <= one.standard_errors + 1e-9).all()
                    compared += one.standard_errors.size
        assert table.keeps(both.scope.dataspace)
    assert compared > 100_000


def test_what_residuals_do_not_decide_is_refused() -> None:
    uneven = released([["place"]], [], 4, cells=True)
    product = released([["place", "branch"], ["half"]], ["sex"], 3)
    releases = (uneven, product)
    with pytest.raises(Refused, match="siblings have more or fewer cells"):
        ResidualCombination(releases, join_totals(releases)).table_estimates(0)
    twice = (product, product)
    with pytest.raises(InputError, match="the same measurement"):
        ResidualCombination(twice, join_totals(twice)).table_estimates(0)
