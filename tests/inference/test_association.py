"""Pooled tests and tests of ordered features: exact by enumeration, classical without noise, more
powerful.
"""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binomtest

from semidp import Budget, Feature, Plan, run
from semidp.errors import InputError, Refused
from semidp.inference.association import ScoreTest, noise_covariances, score_test
from semidp.inference.independence import crossed_table, random_tables
from semidp.promise.noise.randomness import Randomness, SeededRandomness, generator
from semidp.publish import TableRequest
from semidp.publish.statistics.odds_ratio.umpu import Alternative

TWO = np.array([[1.0], [2.0]])
THREE = np.array([[1.0], [2.0], [4.0]])
NOMINAL = np.eye(3)[:, 1:]

Law = dict[tuple[int, ...], Fraction]


def tables_with(rows: tuple[int, ...], columns: tuple[int, ...]) -> Law:
    """Every table with these margins, flat, and its hypergeometric probability."""
    n = sum(rows)
    law: Law = {}
    for flat in itertools.product(range(max(rows) + 1), repeat=len(rows) * len(columns)):
        table = np.array(flat).reshape(len(rows), len(columns))
        if tuple(table.sum(axis=1)) == rows and tuple(table.sum(axis=0)) == columns:
            top = math.prod(map(math.factorial, (*rows, *columns)))
            law[flat] = Fraction(top, math.factorial(n) * math.prod(map(math.factorial, flat)))
    assert sum(law.values()) == 1
    return law


def moves(r: int, c: int) -> Law:
    """A small noise law: no move, or one of the four-cell moves that keep both margins."""
    law: Law = {(0,) * (r * c): Fraction(1, 2)}
    every = []
    for i, k in itertools.permutations(range(r), 2):
        for j, m in itertools.combinations(range(c), 2):
            move = np.zeros((r, c), dtype=int)
            move[i, j] = move[k, m] = 1
            move[i, m] = move[k, j] = -1
            every.append(tuple(move.ravel().tolist()))
    for move in every:
        law[move] = Fraction(1, 2 * len(every))
    return law


class Small:
    """A test in a space that can be enumerated: two strata of the same shape, each with noise of
    its own.
    """

    def __init__(
        self, test: ScoreTest, margins: list[tuple[tuple[int, ...], tuple[int, ...]]]
    ) -> None:
        self.test = test
        self.rows = np.array([rows for rows, _ in margins]).T
        self.columns = np.array([columns for _, columns in margins]).T
        self.shape = (len(self.rows), len(self.columns), len(margins))
        self.moves = moves(*self.shape[:2])
        self.tables = [tables_with(*each) for each in margins]
        steps = np.array(list(self.moves), dtype=float)
        shares = np.array([float(share) for share in self.moves.values()])
        sums = steps @ test.weights.reshape(test.size, -1).T
        one = np.einsum("n,na,nb->ab", shares, sums, sums)
        self.noise = np.stack([one] * len(margins))

    def law(self, noisy: bool) -> dict[tuple[int, ...], Fraction]:
        """The law of the table that is seen, all strata in a row."""
        law: Law = {(): Fraction(1)}
        for tables in self.tables:
            seen: Law = {}
            for (flat, share), (move, chance) in itertools.product(
                tables.items(), self.moves.items()
            ):
                if noisy or not any(move):
                    where = tuple(x + m for x, m in zip(flat, move, strict=True))
                    weight = share * chance if noisy else share
                    seen[where] = seen.get(where, Fraction(0)) + weight
            law = {(*a, *b): p * q for a, p in law.items() for b, q in seen.items()}
        return law

    def statistic(self, flat: tuple[int, ...], direction: float) -> float:
        r, c, k = self.shape
        table = np.array(flat, dtype=float).reshape(k, r, c).transpose(1, 2, 0)
        mean = self.rows[:, None] * self.columns[None] / self.rows.sum(axis=0)
        transforms, _ = self.test.transforms(
            self.test.covariances(self.rows, self.columns), self.noise
        )
        cells = np.einsum("pkd,dij->pijk", transforms, self.test.weights)
        parts = np.einsum("pijk,ijk->p", cells, table - mean)
        return float(round(direction * parts[0], 9) if direction else round((parts**2).sum(), 9))

    def law_of(self, cells: np.ndarray) -> Callable[[int, Randomness], np.ndarray]:
        steps = np.array(list(self.moves), dtype=float)
        shares = np.array([float(share) for share in self.moves.values()])

        def draw(count: int, randomness: Randomness) -> np.ndarray:
            source = generator(randomness)
            total = np.zeros((count, len(cells)))
            for stratum in range(self.shape[2]):
                picked = steps[source.choice(len(steps), count, p=shares)]
                total += picked @ cells[..., stratum].reshape(len(cells), -1).T
            return total

        return draw


CASES = {
    "pooled 2 × 2": Small(ScoreTest(TWO, TWO, True), [((3, 2), (2, 3)), ((2, 4), (4, 2))]),
    "added 2 × 2": Small(ScoreTest(TWO, TWO, False), [((3, 2), (2, 3)), ((2, 2), (3, 1))]),
    "trend 2 × 3": Small(ScoreTest(TWO, THREE, True), [((4, 3), (2, 3, 2))]),
    "linear 3 × 3": Small(ScoreTest(THREE, THREE, True), [((2, 2, 1), (2, 1, 2))]),
    "mean scores 3 × 2": Small(ScoreTest(NOMINAL, TWO, True), [((2, 3, 1), (3, 3))]),
    "pooled general 3 × 2": Small(
        ScoreTest(NOMINAL, TWO, True), [((1, 2, 1), (2, 2)), ((2, 1, 1), (1, 3))]
    ),
}
DIRECTIONS = {Alternative.GREATER: 1.0, Alternative.LESS: -1.0, Alternative.TWO_SIDED: 0.0}


def exact_p_values(
    small: Small, direction: float, noisy: bool
) -> tuple[list[float], list[Fraction], list[Fraction]]:
    """For everything that can be seen its statistic, its probability, and its p-value under a
    reference law.
    """
    seen = small.law(noisy=True)
    reference: dict[float, Fraction] = {}
    for flat, share in small.law(noisy).items():
        value = small.statistic(flat, direction)
        reference[value] = reference.get(value, Fraction(0)) + share
    statistics = [small.statistic(flat, direction) for flat in seen]
    tails: dict[float, Fraction] = {}
    for value in set(statistics):
        tails[value] = sum(
            (share for other, share in reference.items() if other >= value), Fraction(0)
        )
    return statistics, list(seen.values()), [tails[value] for value in statistics]


DIRECTED = [
    (name, alternative)
    for name, small in CASES.items()
    for alternative in Alternative
    if alternative is Alternative.TWO_SIDED or (small.test.size == 1 and small.test.pooled)
]


@pytest.mark.few(6)
@pytest.mark.parametrize(("name", "alternative"), DIRECTED)
def test_the_size_is_at_most_the_level_and_is_not_where_noise_is_forgotten(
    name: str, alternative: Alternative
) -> None:
    small, direction = CASES[name], DIRECTIONS[alternative]
    _, shares, p_values = exact_p_values(small, direction, noisy=True)
    assert sum(shares) == 1
    levels = sorted(set(p_values))
    assert len(levels) > 4
    for level in levels:
        assert sum(share for share, p in zip(shares, p_values, strict=True) if p <= level) == level
    _, _, wrong = exact_p_values(small, direction, noisy=False)
    small_levels = [level for level in set(wrong) if 0 < level <= Fraction(1, 4)]
    excess = [
        sum(share for share, p in zip(shares, wrong, strict=True) if p <= level) - level
        for level in small_levels
    ]
    assert max(excess) > Fraction(1, 50)


@pytest.mark.parametrize("name", CASES)
def test_simulated_p_values_are_the_enumerated_ones(name: str) -> None:
    small = CASES[name]
    statistics, _, p_values = exact_p_values(small, 0.0, noisy=True)
    source, draws, checked = np.random.default_rng(1), 4999, 0
    r, c, k = small.shape
    every = list(small.law(noisy=True))
    for place in source.choice(len(every), 6, replace=False):
        table = np.array(every[place], dtype=float).reshape(k, r, c).transpose(1, 2, 0)
        statistic, _, _, p = score_test(
            small.test,
            table,
            (small.rows, small.columns),
            small.noise,
            small.law_of,
            Alternative.TWO_SIDED,
            draws,
            SeededRandomness(int(place)),
        )
        truth = float(p_values[place])
        assert statistic == pytest.approx(statistics[place], abs=1e-8)
        assert abs(p - truth) < 5 * math.sqrt(truth * (1 - truth) / draws) + 2 / draws
        checked += 1
    assert checked == 6


def no_noise(cells: np.ndarray) -> Callable[[int, Randomness], np.ndarray]:
    return lambda count, randomness: np.zeros((count, len(cells)))


def classical(test: ScoreTest, table: np.ndarray) -> float:
    """The statistic without noise."""
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    noise = np.zeros((table.shape[2], test.size, test.size))
    found = score_test(
        test,
        table.astype(float),
        (rows, columns),
        noise,
        no_noise,
        Alternative.TWO_SIDED,
        99,
        SeededRandomness(1),
    )
    return found[0]


def test_without_noise_it_is_mantel_haenszel_armitage_and_linear_by_linear() -> None:
    source = np.random.default_rng(3)
    tables = source.integers(2, 30, (2, 2, 5))
    n = tables.sum(axis=(0, 1))
    rows, columns = tables.sum(axis=1), tables.sum(axis=0)
    off = (tables[0, 0] - rows[0] * columns[0] / n).sum()
    variance = (rows[0] * rows[1] * columns[0] * columns[1] / (n**2 * (n - 1))).sum()
    assert classical(ScoreTest(TWO, TWO, True), tables) == pytest.approx(off**2 / variance)
    # Linear by linear is (n - 1) r² with r the correlation of the scores (Mantel, 1963).
    one = source.integers(1, 9, (4, 3, 1))
    scores, other = np.array([1.0, 2, 3, 4]), np.array([1.0, 2, 4])
    weights = one[..., 0].ravel()
    x, y = np.repeat(scores, 3), np.tile(other, 4)
    covariance = np.cov(x, y, fweights=weights)
    r = covariance[0, 1] / math.sqrt(covariance[0, 0] * covariance[1, 1])
    ours = classical(ScoreTest(scores[:, None], other[:, None], True), one)
    assert ours == pytest.approx((weights.sum() - 1) * r**2)
    # General association of one table is (n - 1)/n times Pearson's statistic.
    mean = np.outer(one[..., 0].sum(axis=1), one[..., 0].sum(axis=0)) / weights.sum()
    pearson = ((one[..., 0] - mean) ** 2 / mean).sum()
    general = classical(ScoreTest(np.eye(4)[:, 1:], np.eye(3)[:, 1:], True), one)
    assert general == pytest.approx(pearson * (weights.sum() - 1) / weights.sum())


def strata_release(mu: str, strata: int, each: int, odds: float, seed: int):
    """A release of strata with a common odds ratio and exact margins within strata."""
    source = np.random.default_rng(seed)
    rows = np.tile(np.arange(each) % 2, strata)
    stratum = np.repeat(np.arange(strata), each)
    chance = np.where(rows == 0, odds / (1 + odds), 0.5)
    columns = (source.random(strata * each) > chance).astype(int)
    data = {
        "r": rows.astype(str),
        "c": columns.astype(str),
        "k": [f"{value:02}" for value in stratum],
    }
    features = [Feature("r", ["0", "1"]), Feature("c", ["0", "1"])]
    plan = Plan([TableRequest(["r", "c", "k"], Budget.gdp(mu))], [["r", "k"], ["c", "k"]], features)
    return run(plan, {name: list(values) for name, values in data.items()}, SeededRandomness(seed))


def test_the_noise_covariance_of_a_release_is_that_of_its_draws() -> None:
    release = strata_release("0.5", 3, 20, 1.0, 1)
    asked = crossed_table(release, "r", "c", ["k"], None)
    test = ScoreTest(TWO, TWO, True)
    covariances = noise_covariances(asked, test)
    weights = np.einsum("dij,kl->kdijl", test.weights, np.eye(3))[:, 0]
    drawn = asked.weigh_noise(weights).draw(20_000, SeededRandomness(1))
    np.testing.assert_allclose(drawn.var(axis=0), covariances[:, 0, 0], rtol=0.06)


@pytest.mark.long
def test_pooling_finds_a_common_odds_ratio_that_the_omnibus_test_misses() -> None:
    """Thirty strata of thirty, odds ratio 1.6 (docs/inference_checks.md has a table of powers)."""
    pooled, omnibus = [], []
    for seed in range(40):
        release = strata_release("1", 30, 30, 1.6, seed)
        settings = {"draws": 99, "randomness": SeededRandomness(seed)}
        pooled.append(release.test("r", "c", ["k"], pooled=True, **settings).p_value <= 0.05)
        omnibus.append(release.test("r", "c", ["k"], **settings).p_value <= 0.05)
    # Were the powers equal, who of the two finds it alone would be a fair coin: one in a thousand
    # by chance.
    alone = sum(one and not other for one, other in zip(pooled, omnibus, strict=True))
    other_alone = sum(other and not one for one, other in zip(pooled, omnibus, strict=True))
    assert binomtest(alone, alone + other_alone, alternative="greater").pvalue <= 0.001
    assert binomtest(other_alone, alone + other_alone, alternative="greater").pvalue > 0.001


def test_a_direction_is_that_of_the_odds_ratio() -> None:
    release = strata_release("2", 6, 60, 3.0, 1)
    both = release.test("r", "c", ["k"], pooled=True, draws=999)
    above = release.test("r", "c", ["k"], pooled=True, alternative="greater", draws=999)
    below = release.test("r", "c", ["k"], pooled=True, alternative="less", draws=999)
    assert both.z > 3
    assert both.statistic == pytest.approx(both.z**2)
    assert (above.p_value, below.p_value) == (0.001, 1.0)
    assert both.sense == "r = 1 goes with c = 1"
    assert "Cochran-Mantel-Haenszel" in both.method
    assert both.to_json()["alternative"] == "two-sided"
    # Scores that fall turn z over, and not what is said of the levels.
    turned = release.test("r", "c", ["k"], ordered={"r": [2, 1]}, pooled=True, draws=99)
    assert turned.z == pytest.approx(-both.z)
    assert turned.sense == "r = 0 goes with c = 0"
    both_turned = {"r": [2, 1], "c": [5, -5]}
    twice = release.test("r", "c", ["k"], ordered=both_turned, pooled=True, draws=99)
    assert twice.sense == "r = 0 goes with c = 0"
    assert twice.z == pytest.approx(both.z)


def ordinal_release(budget: Budget, seed: int, slope: float = 0.35):
    source = np.random.default_rng(seed)
    dose = source.integers(0, 6, 400)
    answer = np.clip(np.rint(1.5 + slope * (dose - 2.5) + source.normal(0, 1.2, 400)), 0, 3).astype(
        int
    )
    data = {"dose": [f"d{value}" for value in dose], "answer": [f"a{value}" for value in answer]}
    return run(Plan([TableRequest(["dose", "answer"], budget)], ["dose", "answer"]), data)


def test_ordered_features_have_scores_and_one_degree_of_freedom() -> None:
    release = ordinal_release(Budget.gdp(2), 1)
    found = release.test("dose", "answer", ordered=["dose", "answer"], draws=999)
    assert found.degrees == 1
    assert found.z > 3
    assert found.ordered == (
        ("dose", (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)),
        ("answer", (1.0, 2.0, 3.0, 4.0)),
    )
    assert found.p_value == 0.001
    one = release.test("dose", "answer", ordered={"dose": [0, 1, 2, 4, 8, 16]}, draws=999)
    assert one.degrees == 3
    assert one.z is None
    assert "mean scores of dose by the levels of answer" in one.method
    shifted = {"dose": [10, 20, 30, 40, 50, 60], "answer": [5, 6, 7, 8]}
    assert release.test("dose", "answer", ordered=shifted, draws=99).statistic == pytest.approx(
        found.statistic
    )


@pytest.mark.parametrize("unit", [1e-300, 1e150, 1e300])
def test_the_unit_of_scores_does_not_matter(unit: float) -> None:
    """Squares of large scores are infinite: nothing simulated would then count as large."""
    release = ordinal_release(Budget.gdp(1), 3, slope=0.0)
    settings = {"draws": 99, "randomness": SeededRandomness(4)}
    plain = release.test("dose", "answer", ordered=["dose", "answer"], **settings)
    scores = {"dose": [unit * k for k in range(6)], "answer": None}
    settings["randomness"] = SeededRandomness(4)
    scaled = release.test("dose", "answer", ordered=scores, **settings)
    assert scaled.z == pytest.approx(plain.z)
    assert scaled.p_value == plain.p_value
    # The values that were given are said.
    assert dict(scaled.ordered)["dose"] == tuple(scores["dose"])


def test_scores_beyond_floating_point_are_refused() -> None:
    test = ScoreTest(np.array([[1e300], [-1e300]]), np.array([[1.0], [2.0]]), pooled=True)
    margins = (np.array([[3], [3]]), np.array([[2], [4]]))
    estimate = np.array([[[2.0], [1.0]], [[0.0], [3.0]]])
    with np.errstate(all="ignore"), pytest.raises(InputError, match="give smaller ones"):
        score_test(
            test,
            estimate,
            margins,
            np.ones((1, 1, 1)),
            no_noise,
            Alternative.TWO_SIDED,
            99,
            SeededRandomness(1),
        )


def test_what_has_no_meaning_is_refused() -> None:
    release = ordinal_release(Budget.gdp(1), 2)
    for settings, why in (
        ({"ordered": ["town"]}, "only rows and columns can be ordered"),
        ({"ordered": {"dose": [1, 2]}}, "6 levels and 2 scores"),
        ({"ordered": {"dose": [1] * 6}}, "not all equal"),
        ({"ordered": {"dose": [1, 2, 3, 4, 5, math.inf]}}, "finite"),
        ({"pooled": True}, "pooled over strata"),
        ({"alternative": "greater"}, "no direction"),
        ({"alternative": "greater", "ordered": ["dose"]}, "no direction"),
        ({"alternative": "more"}, "must be greater"),
        ({"ordered": ["dose"], "draws": 5}, "at least 19"),
    ):
        with pytest.raises(InputError, match=why):
            release.test("dose", "answer", **settings)
    constant = Plan(
        [TableRequest(["r", "c"], Budget.gdp(1))], ["r", "c"], [Feature("r", ["a", "b"])]
    )
    with pytest.raises(Refused, match="nothing to test"):
        run(constant, {"r": ["a"] * 4, "c": ["x", "y"] * 2}).test("r", "c", ordered=["r"])


def test_empty_strata_and_single_records_do_not_count() -> None:
    """A stratum of one record varies in nothing: its noise must not reach the statistic."""
    rows = np.array([[3, 1, 0], [3, 0, 0]])
    columns = np.array([[2, 1, 0], [4, 0, 0]])
    test = ScoreTest(TWO, TWO, True)
    noise = np.full((3, 1, 1), 2.0)
    transforms, degrees = test.transforms(test.covariances(rows, columns), noise)
    assert degrees == 1
    assert transforms[0, 0, 0] != 0
    np.testing.assert_array_equal(transforms[0, 1:], 0)
    assert random_tables(rows, columns, 5, np.random.default_rng(1)).sum() == 5 * 7
