"""Noisy totals of many levels and strata: laws above all others by enumeration, the size, twins
that must fail.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from semidp import Budget, Feature, Plan, run
from semidp.errors import InputError, Refused
from semidp.inference.independence import MISS
from semidp.inference.linear_estimates import DrawnNumbers, SumErrors
from semidp.inference.unknown_totals import (
    GridLaw,
    NoiseTerms,
    ScoreQuestion,
    SumLaw,
    UnknownTotals,
    above_all,
    above_totals,
    asked_questions,
    hypergeometric,
    sum_comonotone,
)
from semidp.promise.noise.distributions import DiscreteGaussian
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import TableRequest, TablesRequest
from semidp.publish.half_widths import Weighted
from semidp.publish.statistics.odds_ratio.umpu import Alternative

NOISE = DiscreteGaussian(Fraction(2))
REACH = 4  # the noise is cut here: what is enumerated spreads less than what is bounded
STEPS = np.arange(-REACH, REACH + 1)
SHARES = NOISE.pmf(STEPS) / NOISE.pmf(STEPS).sum()


def centred(n: int, marked: int, drawn: int) -> tuple[np.ndarray, np.ndarray]:
    """Values and probabilities of the centred number of marked records, by counting."""
    x = np.arange(max(0, drawn + marked - n), min(drawn, marked) + 1)
    ways = [math.comb(marked, int(k)) * math.comb(n - marked, drawn - int(k)) for k in x]
    return x - marked * drawn / n, np.array(ways) / math.comb(n, drawn)


def excess(values: np.ndarray, masses: np.ndarray, at: np.ndarray) -> np.ndarray:
    return np.maximum(values - at[:, None], 0.0) @ masses


def test_fewer_records_lie_below_more_times_a_factor_and_not_without_it() -> None:
    """The martingale: t drawn records against (n - t)/(n - t') times t' drawn ones, in the convex
    order.
    """
    points = np.linspace(-6, 6, 241)
    checked = broken = 0
    for n in (5, 8, 11):
        for marked, few, many in itertools.product(range(1, n), range(1, n), range(1, n)):
            if few >= many:
                continue
            below = excess(*centred(n, marked, few), points)
            values, masses = centred(n, marked, many)
            assert (below <= excess(values * (n - few) / (n - many), masses, points) + 1e-12).all()
            checked += 1
            broken += bool((below > excess(values, masses, points) + 1e-9).any())
    assert checked > 300
    assert broken > 50  # the twin: without the factor


def test_the_law_of_many_totals_is_above_each_of_them() -> None:
    step, n, marked = 0.01, 500, 200
    law = above_totals(n, marked, 40, 320, step)
    assert law.masses.sum() == pytest.approx(1)
    assert float(law.masses @ law.values) == pytest.approx(0, abs=1e-6)
    points = np.linspace(-60, 60, 121)
    limit = excess(law.values, law.masses, points)
    for drawn in range(40, 321, 20):
        each = hypergeometric(n, marked, drawn, 1.0, step)
        assert (excess(each.values, each.masses, points) <= limit + 1e-8).all()
    # It is not much wider than the widest: 64 blocks cost little.
    assert law.variance < 1.06 * hypergeometric(n, marked, 250, 1.0, step).variance
    # The twin: a single total in the middle of few is not above those at the ends.
    few, other = hypergeometric(11, 3, 5, 1.0, step), hypergeometric(11, 3, 6, 1.0, step)
    gap = excess(other.values, other.masses, points / 20) - excess(
        few.values, few.masses, points / 20
    )
    assert (gap > 1e-6).any()
    both = above_all([few, other])
    assert (
        excess(both.values, both.masses, points / 20) + 1e-9
        >= excess(few.values, few.masses, points / 20)
    ).all()


def test_terms_that_rise_together_are_above_every_other_dependence() -> None:
    source, step = np.random.default_rng(1), 1.0
    points = np.linspace(-8, 8, 65)
    one = GridLaw(step, -1, np.array([0.5, 0.25, 0.0, 0.25]))
    other = GridLaw(step, -2, np.array([0.2, 0.1, 0.4, 0.2, 0.1]))
    law = sum_comonotone([one, other], [1.0, 1.0])
    limit = excess(law.values, law.masses, points)
    assert law.variance == pytest.approx(float(law.masses @ law.values**2))
    above = 0
    for _ in range(50):
        # A random joint law with these margins, by fitting a random table in proportion.
        joint = source.exponential(size=(4, 5)) ** 3
        for _ in range(400):
            joint *= (one.masses / np.maximum(joint.sum(axis=1), 1e-300))[:, None]
            joint *= other.masses / joint.sum(axis=0)
        sums = (one.values[:, None] + other.values).ravel()
        assert (excess(sums, joint.ravel(), points) <= limit + 1e-6).all()
        above += bool((excess(sums, joint.ravel(), points) < limit - 1e-3).any())
    assert above == 50


# --- the size in small spaces, every table and every noise ----------------------------------------


def tables_of(sizes: tuple[int, ...], totals: tuple[int, ...]) -> list[tuple[np.ndarray, float]]:
    """Every table with these margins and its probability under independence."""
    rows = []
    for size in sizes:
        rows.append(
            [
                row
                for row in itertools.product(range(size + 1), repeat=len(totals))
                if sum(row) == size
            ]
        )
    every = []
    for chosen in itertools.product(*rows):
        table = np.array(chosen)
        if tuple(table.sum(axis=0)) == totals:
            logs = sum(math.lgamma(k + 1) for k in (*sizes, *totals))
            logs -= math.lgamma(sum(sizes) + 1) + sum(math.lgamma(k + 1) for k in table.ravel())
            every.append((table, math.exp(logs)))
    return every


def noise_of(weights: np.ndarray) -> NoiseTerms:
    """Rows are exact: every level but the last has noise, and the last has what they leave."""
    free = (weights[:, :-1] - weights[:, -1:]).ravel()
    drawn = DrawnNumbers([NOISE], np.zeros(len(free), dtype=np.intp), np.ones(len(free)))
    return NoiseTerms(SumErrors(1, ((drawn, free[None]),)).terms(0))


class Space:
    """A small space: exact group sizes by stratum, levels with noisy totals, one question."""

    def __init__(self, sizes: np.ndarray, question: ScoreQuestion, levels: int) -> None:
        self.sizes, self.question, self.levels = sizes, question, levels
        self.laws: dict[tuple, SumLaw] = {}
        self.p_values: dict[tuple, float] = {}
        self.keys: dict[tuple, tuple] = {}
        empty = np.zeros((len(sizes), levels, sizes.shape[1]))
        self.weights = UnknownTotals(empty, sizes, noise_of, (question,)).weights(question)

    def p_value(self, forgotten: bool, noisy: tuple[int, ...], value: float) -> float:
        """Of a sum of scores, where the noisy totals (of all levels but the last, by stratum) are
        these.
        """
        if (forgotten, noisy) in self.keys:
            key = self.keys[forgotten, noisy]
            law = self.laws[key]
            if (*key, value) not in self.p_values:
                self.p_values[*key, value] = MISS + min(
                    1.0, 2 * min(law.bound_upper_tail(value), law.bound_lower_tail(value))
                )
            return self.p_values[*key, value]
        estimate = np.zeros(self.weights.shape)
        estimate[0, :-1] = np.array(noisy).reshape(self.levels - 1, -1)
        estimate[:, -1] = self.sizes - estimate[:, :-1].sum(axis=1)
        test = UnknownTotals(estimate, self.sizes, noise_of, (self.question,))
        key = (forgotten, *test.ranges.values())
        if key not in self.laws:
            if forgotten:
                ranges = test.ranges
                test = UnknownTotals(
                    estimate, self.sizes, lambda each: NoiseTerms(()), (self.question,)
                )
                test.__dict__["ranges"] = ranges
            self.laws[key] = test.law(self.question, self.weights)
        self.keys[forgotten, noisy] = key
        return self.p_value(forgotten, noisy, value)

    def sizes_at(
        self, totals: np.ndarray, levels: tuple[float, ...], forgotten: bool
    ) -> np.ndarray:
        """How often the p-value is at most each level, where the true totals (levels × strata) are
        these.
        """
        groups, strata = self.sizes.shape
        parts = [
            tables_of(tuple(self.sizes[:, k].tolist()), tuple(totals[:, k].tolist()))
            for k in range(strata)
        ]
        cells = groups * (self.levels - 1) * strata
        errors = np.array(list(itertools.product(STEPS, repeat=cells))).reshape(
            -1, groups, self.levels - 1, strata
        )
        shares = np.array(list(itertools.product(SHARES, repeat=cells))).prod(axis=1)
        seen_law: dict[tuple, float] = {}
        for chosen in itertools.product(*parts):
            table = np.stack([each for each, _ in chosen], axis=2).astype(float)
            chance = math.prod(share for _, share in chosen)
            seen = np.repeat(table[None], len(errors), axis=0)
            seen[:, :, :-1] += errors
            seen[:, :, -1] -= errors.sum(axis=2)
            sums = seen[:, :, :-1].sum(axis=1).reshape(len(errors), -1)
            values = np.einsum("nijk,ijk->n", seen, self.weights).round(8)
            rows, place = np.unique(np.column_stack([sums, values]), axis=0, return_inverse=True)
            masses = np.bincount(place.ravel(), shares)
            for row, mass in zip(rows.tolist(), masses.tolist(), strict=True):
                seen_law[tuple(row)] = seen_law.get(tuple(row), 0.0) + chance * mass
        assert sum(seen_law.values()) == pytest.approx(1)
        size = np.zeros(len(levels))
        for (*noisy, value), share in seen_law.items():
            p = self.p_value(forgotten, tuple(int(total) for total in noisy), value)
            size += share * (np.array(levels) >= p)
        return size


LEVELS = (0.01, 0.03, 0.05, 0.1, 0.2, 0.4)
SPACES = {
    "three groups in order": (
        Space(
            np.array([[3], [4], [3]]),
            ScoreQuestion(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0]), (0,)),
            2,
        ),
        [np.array([[5], [5]]), np.array([[2], [8]])],
    ),
    "two strata, pooled": (
        Space(
            np.array([[4, 3], [3, 4]]),
            ScoreQuestion(np.array([0.0, 1.0]), np.array([0.0, 1.0]), (0, 1)),
            2,
        ),
        [np.array([[3, 4], [4, 3]]), np.array([[1, 6], [6, 1]]), np.array([[2, 2], [5, 5]])],
    ),
    "three ordered levels": (
        Space(
            np.array([[6], [5]]),
            ScoreQuestion(np.array([0.0, 1.0]), np.array([1.0, 2.0, 4.0]), (0,)),
            3,
        ),
        [np.array([[4], [4], [3]]), np.array([[7], [2], [2]])],
    ),
}


QUICK, *SLOW = SPACES


@pytest.mark.parametrize(
    "name", [QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in SLOW)]
)
def test_the_size_is_at_most_the_level_for_every_total_and_the_twin_exceeds_it(name: str) -> None:
    space, true_totals = SPACES[name]
    checked, largest = 0, np.zeros(len(LEVELS))
    for totals in true_totals:
        size = space.sizes_at(totals, LEVELS, forgotten=False)
        assert (size <= np.array(LEVELS) + 1e-9).all(), (totals, size)
        largest = np.maximum(largest, size)
        checked += len(LEVELS)
    assert checked >= 12
    assert largest[-1] > 0.05  # it does reject
    # The twin forgets the noise in the reference.
    exceeded = [
        space.sizes_at(totals, LEVELS, forgotten=True) > np.array(LEVELS) + 1e-6
        for totals in true_totals
    ]
    assert np.any(exceeded)


# --- releases -------------------------------------------------------------------------------------


def people(n: int = 1200, slope: float = 0.25) -> dict[str, list[str]]:
    """Ordered a, b that rises with it, in strata of a town; c has two levels and rises with a."""
    source = np.random.default_rng(5)
    a = source.integers(0, 4, n)
    b = np.clip(np.rint(source.normal(1 + slope * a, 0.8)), 0, 2).astype(int)
    c = (source.random(n) < 0.3 + 0.1 * a).astype(int)
    town = source.integers(0, 5, n)
    return {
        name: [f"{name}{value}" for value in values]
        for name, values in zip("abct", (a, b, c, town), strict=True)
    }


FEATURES = [
    Feature(name, [f"{name}{k}" for k in range(size)])
    for name, size in (("a", 4), ("b", 3), ("c", 2), ("t", 5))
]


def released(
    table: list[str], exact: list, mechanism: str = "gaussian", budget: Budget | None = None
):
    request = TableRequest(table, Budget.gdp(1) if budget is None else budget, mechanism)
    return run(Plan([request], exact, FEATURES), people(), SeededRandomness(3))


@pytest.mark.long
def test_questions_to_releases_with_noisy_totals() -> None:
    release = released(["a", "b", "t"], [["a", "t"]])
    seed = SeededRandomness(1)
    trend = release.test("a", "b", ["t"], ordered=["a", "b"], pooled=True, randomness=seed)
    assert trend.noisy_totals == ("b",)
    assert trend.draws == 0
    assert trend.z is not None
    assert trend.z > 3
    assert trend.p_value < 0.01
    assert "for all plausible totals" in trend.notes[0]
    one_sided = release.test("a", "b", ["t"], ordered=["a", "b"], pooled=True, alternative="less")
    assert one_sided.p_value > 0.5
    # The other way round it is the same question.
    turned = release.test("b", "a", ["t"], ordered=["a", "b"], pooled=True)
    assert turned.p_value == pytest.approx(trend.p_value, rel=1e-6)
    general = release.test("a", "b", ["t"], pooled=True)
    assert general.degrees == 12
    assert general.p_value < 0.01
    each = release.test("a", "b", ["t"])
    assert each.degrees == 60
    assert each.z is None
    assert each.to_json()["noisy_totals"] == ["b"]


def test_a_stratum_in_which_nothing_varies_is_not_asked() -> None:
    """It refused the whole test."""
    sizes = np.array([[20, 0, 3], [20, 0, 0]])
    estimate = np.zeros((2, 2, 3))
    estimate[:, 1, 0] = (4.0, 17.0)
    estimate[:, 0] = sizes - estimate[:, 1]
    two = [np.array([0.0, 1.0])]
    every = asked_questions(two, two, 3, pooled=False)
    p, answers = UnknownTotals(estimate, sizes, noise_of, every).p_value(Alternative.TWO_SIDED)
    alone = asked_questions(two, two, 1, pooled=False)
    single = UnknownTotals(estimate[..., :1], sizes[:, :1], noise_of, alone)
    assert len(answers) == 1
    # The intervals of the totals share the chance to miss among three strata.
    assert p == pytest.approx(single.p_value(Alternative.TWO_SIDED)[0], rel=0.2)
    assert p < 0.05
    with pytest.raises(Refused, match="nothing is tested"):
        UnknownTotals(estimate[..., 1:], sizes[:, 1:], noise_of, every[:2]).p_value(
            Alternative.TWO_SIDED
        )


def test_few_totals_are_all_tried_also_for_scores_and_three_levels() -> None:
    release = released(["a", "c"], ["a"])
    trend = release.test("a", "c", ordered=["a"], draws=199, randomness=SeededRandomness(1))
    assert trend.draws == 199
    assert trend.p_value == pytest.approx(MISS + 1 / 200)
    assert "plausible totals" in trend.notes[0]
    assert release.test("c", "a", ordered=["a"], alternative="less", draws=199).p_value > 0.5
    fine = released(["a", "b"], ["a"], budget=Budget.gdp(4))
    answer = fine.test("a", "b", draws=99, randomness=SeededRandomness(1))
    assert answer.draws == 99
    assert answer.p_value == pytest.approx(MISS + 1 / 100)


def test_products_are_asked_too() -> None:
    pairs = TablesRequest([TableRequest(["a", "b"]), TableRequest(["b", "t"])], Budget.gdp("0.2"))
    release = run(Plan([pairs], ["a"], FEATURES), people(), SeededRandomness(3))
    answer = release.test("a", "b", ordered=["a", "b"])
    assert answer.draws == 0
    assert answer.p_value < 0.05


def test_what_is_not_bounded_is_refused_in_a_sentence() -> None:
    both = released(["a", "b"], [], budget=Budget.gdp("0.1"))
    with pytest.raises(Refused, match="both noisy"):
        both.test("a", "b")
    lattice = released(["a", "b", "t"], [["a", "t"]], "lattice", Budget.zcdp("0.5"))
    with pytest.raises(Refused, match="number by number"):
        lattice.test("a", "b", ["t"], pooled=True)
    release = released(["a", "b", "t"], [["a", "t"]])
    with pytest.raises(InputError, match="no direction"):
        release.test("a", "b", ["t"], alternative="greater")


def test_the_bounds_of_two_sides_are_those_of_a_mirrored_law() -> None:
    law = SumLaw.from_terms(
        [hypergeometric(12, 3, 4, 1.0, 0.01)], NoiseTerms((Weighted(NOISE, Fraction(1), 1),)), 0.01
    )
    mirrored = SumLaw.from_terms(
        [hypergeometric(12, 9, 4, 1.0, 0.01)], NoiseTerms((Weighted(NOISE, Fraction(1), 1),)), 0.01
    )
    for bound in (0.7, 1.5, 3.0):
        assert law.bound_upper_tail(bound) == pytest.approx(
            mirrored.bound_lower_tail(-bound), rel=1e-6
        )
    assert Alternative("two-sided") is Alternative.TWO_SIDED
