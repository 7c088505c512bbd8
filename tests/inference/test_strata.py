"""The exact Cochran-Mantel-Haenszel test: its law, its sensitivity and its privacy on every small
case.
"""

import itertools
import json
import math
from collections.abc import Iterator
from fractions import Fraction
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linprog

from semidp.assess.adjacent_datasets import enumerate_tables
from semidp.cli import run
from semidp.errors import DataError, InputError, Refused, SchemaError
from semidp.promise.noise.canonical import Normal, Recursive, Tulap, canonical_noise
from semidp.promise.noise.randomness import SeededRandomness, generator
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.tradeoff.budget import Budget, approximate, gaussian
from semidp.promise.tradeoff.function import Tradeoff
from semidp.publish.statistics.odds_ratio.measured_ratio import OddsRatioResult, planned_test
from semidp.publish.statistics.odds_ratio.umpu import Alternative, Strata, TwoByTwo, UmpuTest
from semidp.publish.tested_table import odds_ratio_test

SCHEMA = Schema(
    [Feature("gender", ["f", "m"]), Feature("admit", ["yes", "no"]), Feature("dept", ["A", "B"])]
)
SMALL = (
    [[[2, 1], [1, 1]], [[1, 1], [1, 2]]],
    [[[1, 0], [1, 2]], [[2, 1], [0, 2]]],
    [[[3, 1], [0, 1]], [[0, 1], [2, 1]]],
)


def spaces() -> Iterator[Dataspace]:
    for counts in SMALL:
        yield Dataspace.from_table(
            Table(SCHEMA, counts), [Margin("gender", "dept"), Margin("admit", "dept")]
        )


def berkeley() -> Table:
    schema = Schema(
        [
            Feature("gender", ["Male", "Female"]),
            Feature("admit", ["Admitted", "Rejected"]),
            *DEPARTMENTS,
        ]
    )
    rows = (
        (files("semidp") / "data" / "ucb_admissions.csv").read_text(encoding="utf-8").splitlines()
    )
    names = rows[0].split(",")
    frame = {name: [row.split(",")[place] for row in rows[1:]] for place, name in enumerate(names)}
    return Table.from_frame(
        frame | {"count": [int(count) for count in frame["count"]]}, schema, count="count"
    )


DEPARTMENTS = [Feature("dept", "ABCDEF")]


def random_strata(seed: int, most: int = 10) -> Strata:
    source = generator(SeededRandomness(seed))
    tables = []
    for _ in range(int(source.integers(1, 4))):
        n = int(source.integers(1, most + 1))
        tables.append(TwoByTwo(int(source.integers(0, n + 1)), int(source.integers(0, n + 1)), n))
    return Strata(tuple(tables))


@pytest.mark.parametrize("seed", range(12))
def test_the_law_is_that_of_every_combination_of_tables(seed: int) -> None:
    strata = random_strata(seed)
    for odds in (Fraction(1), Fraction(5, 2)):
        weights: dict[int, Fraction] = {}
        ranges = [range(table.low, table.high + 1) for table in strata.tables]
        for counts in itertools.product(*ranges):
            weight = Fraction(1)
            for x, table in zip(counts, strata.tables, strict=True):
                weight *= (
                    math.comb(table.row, x)
                    * math.comb(table.n - table.row, table.column - x)
                    * odds**x
                )
            weights[sum(counts)] = weights.get(sum(counts), Fraction(0)) + weight
        law, total = strata.law(float(odds)), sum(weights.values())
        assert list(law.values) == sorted(weights)
        np.testing.assert_allclose(
            law.pmf, [float(weights[t] / total) for t in sorted(weights)], rtol=1e-13
        )


def test_the_convolution_keeps_its_digits_far_out() -> None:
    """Fifty strata that are alike: the smallest sum has the probability of one stratum to the power
    of fifty.
    """
    one = TwoByTwo(5, 4, 9)
    law = Strata((one,) * 50).law()
    exact = Fraction(math.comb(5, 0) * math.comb(4, 4), math.comb(9, 4)) ** 50
    assert law.first == 0
    assert math.isclose(law.pmf[0], float(exact), rel_tol=1e-12)
    assert exact < 1e-100


def test_one_stratum_is_the_two_by_two_test() -> None:
    for margins, noise in itertools.product(
        (TwoByTwo(40, 50, 100), TwoByTwo(3, 5, 9)), (Tulap(Fraction(1)), Normal(Fraction(4)))
    ):
        one, other = UmpuTest(margins, noise), UmpuTest(Strata((margins,)), noise)
        u = np.linspace(margins.low - 3, margins.high + 3, 9)
        for side in Alternative:
            np.testing.assert_array_equal(one.p_value(u, side), other.p_value(u, side))
            assert one.power(2.0, 0.05, side) == other.power(2.0, 0.05, side)
            assert one.confidence_interval(
                float(u[4]), alternative=side
            ) == other.confidence_interval(float(u[4]), alternative=side)


def pairs(space: Dataspace, most: int) -> Iterator[tuple[int, int, int]]:
    """The distance of any two tables of D_t that are at most `most` records apart, and the sum T in
    each.
    """
    tables = [table.counts for table in enumerate_tables(space)]
    for one, other in itertools.combinations(tables, 2):
        distance = int(np.abs(one - other).sum()) // 2
        if distance <= most:
            yield distance, int(one[0, 0].sum()), int(other[0, 0].sum())


def test_a_records_move_the_sum_by_at_most_half_of_them() -> None:
    reached = set()
    for space in spaces():
        for distance, one, other in pairs(space, 8):
            assert abs(one - other) <= distance // 2
            reached.add((distance, abs(one - other)))
    assert {(2, 1), (4, 2)} <= reached


def test_that_bound_needs_both_margins_of_every_stratum() -> None:
    free = Dataspace.from_table(Table(SCHEMA, SMALL[0]), [Margin("gender", "dept"), Margin("dept")])
    assert any(abs(one - other) > distance // 2 for distance, one, other in pairs(free, 2))


CURVES: dict[str, Tradeoff] = {
    "pure": approximate(1),
    "approximate": approximate("0.5", "0.02"),
    "normal": gaussian(1),
}


def worst_excess(space: Dataspace, f: Tradeoff, a: int, stretch: int) -> float:
    """By how much φ(X) exceeds 1 - f(1 - φ(X')) on the worst pair, for all three alternatives."""
    margins = planned_test(space, "gender", "admit", f, strata=["dept"], adjacency=Ball(a)).margins
    test = UmpuTest(margins, canonical_noise(f, stretch))
    x = np.arange(margins.low, margins.high + 1)
    worst = 0.0
    for side in Alternative:
        phi = dict(zip(x.tolist(), test.rejection(x, 0.1, side), strict=True))
        for _, one, other in pairs(space, a):
            for p, q in ((phi[one], phi[other]), (phi[other], phi[one])):
                worst = max(worst, float(p - (1 - f(1 - q))))
    return worst


@pytest.mark.parametrize("name", CURVES)
def test_the_test_satisfies_f_on_every_pair_of_small_tables(name: str) -> None:
    for space, a in itertools.product(spaces(), (2, 3, 4, 5)):
        assert worst_excess(space, CURVES[name], a, a // 2) < 1e-12


def test_that_check_convicts_noise_that_was_not_stretched() -> None:
    assert max(worst_excess(space, CURVES["pure"], 4, 1) for space in spaces()) > 0.01


@pytest.mark.parametrize("seed", range(8))
def test_the_size_is_alpha_for_strata(seed: int) -> None:
    strata = random_strata(seed)
    if strata.degenerate:
        with pytest.raises(Refused, match="only one"):
            UmpuTest(strata, Tulap(Fraction(1)))
        return
    for f, alpha, side in itertools.product(CURVES.values(), (0.05, 0.01), Alternative):
        assert math.isclose(
            UmpuTest(strata, canonical_noise(f)).power(1.0, alpha, side), alpha, rel_tol=1e-9
        )


@pytest.mark.parametrize(
    "tables", [((2, 2, 4), (2, 3, 6)), ((1, 2, 4), (3, 3, 5)), ((1, 1, 2), (2, 1, 4), (2, 2, 4))]
)
def test_no_semi_private_test_of_the_strata_has_more_power(
    tables: tuple[tuple[int, int, int], ...],
) -> None:
    """A linear program over all functions of all strata, not of their sum alone."""
    strata = Strata(tuple(TwoByTwo(*table) for table in tables))
    cells = list(itertools.product(*(range(table.low, table.high + 1) for table in strata.tables)))
    place, grow = {cell: number for number, cell in enumerate(cells)}, math.e
    rows, limits = [], []
    for one, other in itertools.permutations(cells, 2):
        if sum(abs(x - y) for x, y in zip(one, other, strict=True)) == 1:
            reject, accept = np.zeros(len(cells)), np.zeros(len(cells))
            reject[place[one]], reject[place[other]] = 1, -grow
            accept[place[one]], accept[place[other]] = grow, -1
            rows += [reject, accept]
            limits += [0.0, grow - 1]

    def joint(odds: float) -> np.ndarray:
        laws = [table.law(odds) for table in strata.tables]
        return np.array(
            [
                math.prod(law.pmf[x - law.first] for law, x in zip(laws, cell, strict=True))
                for cell in cells
            ]
        )

    for alpha, odds in ((0.05, 2.0), (0.2, 6.0)):
        found = linprog(
            -joint(odds), A_ub=rows, b_ub=limits, A_eq=joint(1.0)[None], b_eq=[alpha], bounds=(0, 1)
        )
        assert UmpuTest(strata, Tulap(Fraction(1))).power(odds, alpha) == pytest.approx(
            -found.fun, abs=1e-7
        )


def test_power_is_how_often_the_test_of_strata_rejects() -> None:
    strata, draws = (
        Strata((TwoByTwo(30, 25, 60), TwoByTwo(10, 40, 80), TwoByTwo(20, 20, 40))),
        20_000,
    )
    test = UmpuTest(strata, Tulap(Fraction(1)))
    laws = [table.law(1.8) for table in strata.tables]
    source = generator(SeededRandomness(3))
    total = sum(source.choice(law.values, draws, p=law.pmf) for law in laws)
    u = total + test.noise.sample(draws, SeededRandomness(4))
    for side in (Alternative.GREATER, Alternative.TWO_SIDED):
        expected = test.power(1.8, 0.05, side)
        share = np.mean((u < test.thresholds(0.05)[0]) | (u > test.thresholds(0.05)[1]))
        found = share if side is Alternative.TWO_SIDED else np.mean(test.p_value(u) <= 0.05)
        assert found == pytest.approx(expected, abs=5 * math.sqrt(expected / draws))


def test_admission_given_department_beside_the_classical_test() -> None:
    """Given the department there is hardly an association; without the departments there is a
    strong one.
    """
    table = berkeley()
    space = Dataspace.from_table(table, [Margin("gender", "dept"), Margin("admit", "dept")])
    classical = UmpuTest(
        planned_test(space, "gender", "admit", Budget.pure(1), strata=["dept"]).margins,
        Recursive.none(),
    )
    x11 = float(table.counts[0, 0].sum())
    exact = float(classical.p_value(x11, Alternative.TWO_SIDED))
    # the chi-squared test of Mantel and Haenszel has p = 0.23 with continuity correction
    assert 0.2 < exact < 0.25
    interval = classical.confidence_interval(x11)
    # theirs: 0.7719 to 1.0603
    assert (interval.low, interval.high) == pytest.approx((0.772, 1.060), abs=0.01)
    result = odds_ratio_test(table, Budget.pure(1), strata=["dept"], randomness=SeededRandomness(3))
    assert result.guarantee.adjacency == Ball(3)
    assert result.test.noise.sensitivity == 1
    assert abs(result.u - x11) < 12
    assert result.p_value > 0.05
    wider = result.confidence_interval()
    assert wider.high / wider.low > interval.high / interval.low
    alone = odds_ratio_test(
        table.margin(["gender", "admit"]), Budget.pure(1), randomness=SeededRandomness(3)
    )
    assert alone.u == result.u  # the same count and the same noise; another law of it
    assert alone.p_value < 1e-10


def test_a_result_is_read_back_from_its_json() -> None:
    result = odds_ratio_test(
        berkeley(), Budget.gdp(1), strata=["dept"], alternative=Alternative.LESS
    )
    document = json.loads(json.dumps(result.to_json()))
    assert document["strata"] == ["dept"]
    assert np.shape(document["margins"]["rows"]["counts"]) == (2, 6)
    again = OddsRatioResult.from_json(document)
    assert again == result
    assert again.p_value == result.p_value
    assert result.most_powerful
    assert result.is_unbiased


def test_the_axes_of_the_table_may_come_in_any_order() -> None:
    table = berkeley()
    turned = Table(
        Schema([DEPARTMENTS[0], *table.schema.features[:2]]), np.moveaxis(table.counts, 2, 0)
    )
    one, other = (
        odds_ratio_test(counts, Budget.pure(1), strata=["dept"], randomness=SeededRandomness(1))
        for counts in (table, turned)
    )
    assert (one.u, one.margins, one.p_value) == (other.u, other.margins, other.p_value)


@pytest.mark.parametrize("strata", ["county", "state,county"])
def test_strata_may_be_nested(
    strata: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same as where the places are flat: a nested feature has one axis and two names."""
    rows, generator = ["state,county,sex,ok"], np.random.default_rng(1)
    for state, county, sex, ok in generator.integers(0, [2, 3, 2, 2], (200, 4)):
        rows.append(f"{state},{state}{county},{'fm'[sex]},{'ny'[ok]}")
    (tmp_path / "people.csv").write_text("\n".join(rows) + "\n")
    words = ["release", str(tmp_path / "people.csv"), "--epsilon", "1", "--seed", "1"]
    words += ["--format", "json", "--force", "--out", str(tmp_path / "tested")]
    found = []
    for asked in (["county"], [strata, "--nest", "state,county"]):
        assert run([*words, "--odds-ratio", f"sex,ok,{asked[0]}", *asked[1:]]) == 0
        (document,) = json.loads(capsys.readouterr().out)["odds_ratios"]
        found.append([document[key] for key in ("u", "p_value", "x11")])
    assert found[0] == found[1]


def test_what_cannot_be_stratified_is_refused() -> None:
    table = Table(SCHEMA, SMALL[0])
    with pytest.raises(SchemaError, match="no feature 'ward'"):
        odds_ratio_test(table, Budget.pure(1), strata=["ward"])
    with pytest.raises(SchemaError, match="two features besides strata, not 1"):
        odds_ratio_test(table, Budget.pure(1), strata=["dept", "admit"])
    one_way = Dataspace.from_table(table, [Margin("gender"), Margin("admit"), Margin("dept")])
    with pytest.raises(InputError, match="is not published"):
        odds_ratio_test(table, Budget.pure(1), strata=["dept"], dataspace=one_way)
    known = Dataspace.from_table(
        table, [Margin("gender", "dept"), Margin("admit", "dept"), Margin("gender", "admit")]
    )
    with pytest.raises(Refused, match="published exactly"):
        odds_ratio_test(table, Budget.pure(1), strata=["dept"], dataspace=known, adjacency=Ball(5))
    other = Dataspace.from_table(
        Table(SCHEMA, SMALL[1]), [Margin("gender", "dept"), Margin("admit", "dept")]
    )
    with pytest.raises(DataError, match="are not those of the table"):
        odds_ratio_test(table, Budget.pure(1), strata=["dept"], dataspace=other)
