"""Swapping: its laws by all choices and all permutations, its curves by all tests, and the real
procedure drawn.
"""

import itertools
import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from semidp.assess import Stratum, Swap, SwapRule, assess_swapping
from semidp.assess.distinguishing import corners_between, curve_between, curve_through
from semidp.assess.swap_laws import (
    CellLaw,
    Grid,
    choice_weights,
    leaver_law,
    list_tables,
    swapped_law,
)
from semidp.assess.swapping import attack_stratum, compute_cell_loss, compute_exact_loss
from semidp.errors import InputError

FALSE_ALARM = 1e-6
RULES = list(SwapRule)
SMALL = [
    Stratum([1, 1], [1, 1]),
    Stratum([2, 1], [2, 1]),
    Stratum([2, 2], [2, 2]),
    Stratum([3, 2], [4, 1]),
    Stratum([2, 2], [2, 1, 1]),
    Stratum([1, 1, 1], [1, 1, 1]),
    Stratum([2, 1, 1], [2, 1, 1]),
]
RATES = [Fraction(1, 10), Fraction(1, 2), Fraction(9, 10), Fraction(1)]


def records_of(table: Grid) -> list[tuple[int, int]]:
    cells = itertools.product(range(len(table)), range(len(table[0])))
    return [(row, column) for row, column in cells for _ in range(table[row][column])]


def by_all_permutations(table: Grid, swap: Swap) -> dict[Grid, Fraction]:
    """The law of the published table from the definition: every set of records, every permutation
    of it.
    """
    records = records_of(table)
    n, p = len(records), swap.rate
    law: dict[Grid, Fraction] = defaultdict(Fraction)
    for size in range(n + 1):
        for chosen in itertools.combinations(range(n), size):
            permutations = list(itertools.permutations(chosen))
            if swap.rule is SwapRule.derange:
                moving = (
                    each
                    for each in permutations
                    if all(a != b for a, b in zip(chosen, each, strict=True))
                )
                permutations = list(moving)
            if not permutations:
                continue
            chance = p**size * (1 - p) ** (n - size) / len(permutations)
            for permuted in permutations:
                values = [column for _, column in records]
                for place, source in zip(chosen, permuted, strict=True):
                    values[place] = records[source][1]
                grid = [[0] * len(table[0]) for _ in table]
                for (row, _), column in zip(records, values, strict=True):
                    grid[row][column] += 1
                law[tuple(map(tuple, grid))] += chance
    total = sum(law.values())  # of derangements less than 1: who is chosen alone is chosen again
    return {outcome: chance / total for outcome, chance in law.items()}


@pytest.mark.parametrize("rule", RULES)
def test_the_law_is_that_of_all_choices_and_permutations(rule: SwapRule) -> None:
    compared = 0
    for stratum, rate in itertools.product(SMALL, RATES):
        swap = Swap(rate, rule)
        for table in list_tables(stratum) or ():
            expected = by_all_permutations(table, swap)
            law = {
                outcome: chance for outcome, chance in swapped_law(table, swap).items() if chance
            }
            assert law == {outcome: chance for outcome, chance in expected.items() if chance}
            compared += 1
    assert compared > 100


@pytest.mark.parametrize("rule", RULES)
def test_the_curve_is_the_least_over_all_pairs_of_tables(rule: SwapRule) -> None:
    pairs = 0
    for stratum, rate in itertools.product(SMALL, RATES[:3]):
        swap = Swap(rate, rule)
        tables = list_tables(stratum) or []
        laws = [by_all_permutations(table, swap) for table in tables]
        loss = compute_exact_loss(stratum, swap)
        corners = []
        for one, other in itertools.permutations(range(len(tables)), 2):
            apart = (
                sum(
                    abs(a - b)
                    for a, b in zip(sum(tables[one], ()), sum(tables[other], ()), strict=True)
                )
                // 2
            )
            if apart <= 3:
                corners += corners_between(laws[one], laws[other])
                assert loss.curve is not None
                exact = curve_between(laws[one], laws[other])
                assert all(
                    loss.curve.evaluate_exactly(alpha) <= value
                    for alpha, value in zip(exact.alphas, exact.values, strict=True)
                )
                pairs += 1
        assert loss.curve == curve_through(corners)
    assert pairs > 200


@pytest.mark.parametrize("rule", RULES)
def test_the_cell_of_any_stratum_has_the_law_of_the_listed_one(rule: SwapRule) -> None:
    compared = 0
    for stratum in (
        Stratum([3, 2, 2], [4, 2, 1]),
        Stratum([6, 4], [7, 3]),
        Stratum([3, 3, 3], [3, 3, 3]),
    ):
        for rate in ("0.05", "0.3", "1"):
            swap = Swap(rate, rule)
            law = CellLaw.from_totals(stratum.n, stratum.hold[0], stratum.over[0], swap)
            for table in (list_tables(stratum) or [])[::5]:
                expected: dict[int, Fraction] = defaultdict(Fraction)
                for published, chance in swapped_law(table, swap).items():
                    expected[published[0][0]] += chance
                first, masses = law.row(table[0][0])
                got = {first + place: mass for place, mass in enumerate(masses.tolist())}
                for cell in {*expected, *got}:
                    assert got.get(cell, 0.0) == pytest.approx(float(expected[cell]), abs=1e-12)
                    compared += 1
    assert compared > 200


@pytest.mark.parametrize("rule", RULES)
def test_the_curve_of_one_cell_is_the_exact_one_and_claims_no_more(rule: SwapRule) -> None:
    compared = 0
    slack = Fraction(1, 10**11)
    for stratum in (Stratum([6, 6], [6, 6]), Stratum([9, 3], [7, 5]), Stratum([10, 6], [12, 4])):
        for rate in ("0.01", "0.25", "0.8"):
            exact, claimed = (
                compute_exact_loss(stratum, Swap(rate, rule)).curve,
                compute_cell_loss(stratum, Swap(rate, rule)).curve,
            )
            assert exact is not None
            assert claimed is not None
            for alpha in {*exact.alphas, *claimed.alphas}:
                assert claimed.evaluate_exactly(alpha) <= exact.evaluate_exactly(alpha)
                # both errors of a test are off by next to nothing
                before = max(alpha - slack, Fraction(0))
                assert claimed.evaluate_exactly(alpha) >= exact.evaluate_exactly(before) - slack
                compared += 1
    assert compared > 50


def by_mixture(n: int, r: int, c: int, cell: int, p: Fraction) -> dict[int, Fraction]:
    """The law of one cell from who is chosen (binomial in each cell) and what comes back
    (hypergeometric).
    """
    cells = (cell, r - cell, c - cell, n - r - c + cell)
    chances = [[math.comb(m, k) * p**k * (1 - p) ** (m - k) for k in range(m + 1)] for m in cells]
    chosen: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    for both, held, swapped, neither in itertools.product(*(range(m + 1) for m in cells)):
        numbers = (both, both + held, both + swapped, both + held + swapped + neither)
        picked = zip(chances, (both, held, swapped, neither), strict=True)
        chosen[numbers] += math.prod((row[k] for row, k in picked), start=Fraction(1))
    law: dict[int, Fraction] = defaultdict(Fraction)
    for (both, held, swapped, size), chance in chosen.items():
        for back in range(max(0, held + swapped - size), min(held, swapped) + 1):
            ways = math.comb(held, back) * math.comb(size - held, swapped - back)
            law[cell - both + back] += chance * Fraction(ways, math.comb(size, swapped))
    return law


@pytest.mark.parametrize(
    ("n", "r", "c", "cell", "rate"),
    [(20, 10, 10, 5, "0.1"), (24, 9, 12, 3, "0.25"), (20, 7, 9, 0, "0.01")],
)
def test_round_off_stays_within_its_bound(n: int, r: int, c: int, cell: int, rate: str) -> None:
    law = CellLaw.from_totals(n, r, c, Swap(rate))
    first, masses = law.row(cell)
    exact = by_mixture(n, r, c, cell, Fraction(rate))
    compared = 0
    for value, chance in exact.items():
        if 0 <= value - first < len(masses) and chance > Fraction(1, 10**200):
            assert abs(masses[value - first] / float(chance) - 1) <= law.relative_error
            compared += 1
    assert compared >= min(r, c)
    missing = 1 - sum(chance for value, chance in exact.items() if 0 <= value - first < len(masses))
    assert missing <= law.lost(masses) < 1e-11


def drawn(cell: int, n: int, r: int, c: int, swap: Swap, draws: int, seed: int) -> np.ndarray:
    """Published cells of the real procedure: records chosen one by one, their values permuted."""
    source = np.random.default_rng(seed)
    held = np.arange(n) < r
    value = np.concatenate([np.arange(r) < cell, np.arange(n - r) < c - cell])
    cells = np.empty(draws, dtype=int)
    for draw in range(draws):
        while True:
            chosen = np.flatnonzero(source.random(n) < float(swap.rate))
            if swap.rule is SwapRule.shuffle or len(chosen) != 1:
                break
        permuted = source.permutation(chosen)
        while swap.rule is SwapRule.derange and (permuted == chosen).any():
            permuted = source.permutation(chosen)
        swapped = value.copy()
        swapped[chosen] = value[permuted]
        cells[draw] = (held & swapped).sum()
    return cells


def p_value(cells: np.ndarray, law: tuple[int, np.ndarray]) -> float:
    first, masses = law
    expected = masses * len(cells)
    likely = expected >= 10
    counts = np.bincount(np.clip(cells - first, 0, len(masses) - 1), minlength=len(masses))
    observed = np.append(counts[likely], counts[~likely].sum())
    wanted = np.append(expected[likely], max(len(cells) - expected[likely].sum(), 1e-9))
    return float(stats.chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue)


@pytest.mark.parametrize("rule", RULES)
def test_the_real_procedure_has_the_law_and_a_wrong_rate_is_caught(rule: SwapRule) -> None:
    n, r, c, cell = 200, 90, 120, 70
    cells = drawn(cell, n, r, c, Swap("0.1", rule), 20_000, seed=17)
    assert p_value(cells, CellLaw.from_totals(n, r, c, Swap("0.1", rule)).row(cell)) > FALSE_ALARM
    for wrong in ("0.09", "0.11"):
        assert (
            p_value(cells, CellLaw.from_totals(n, r, c, Swap(wrong, rule)).row(cell)) < FALSE_ALARM
        )
    # and the rule matters, too
    other = next(each for each in RULES if each is not rule)
    assert p_value(cells, CellLaw.from_totals(n, r, c, Swap("0.1", other)).row(cell)) < FALSE_ALARM


def test_the_advantage_depends_on_the_true_cell() -> None:
    tables = sorted(list_tables(Stratum([6, 6], [6, 6])) or [])
    laws = [swapped_law(table, Swap("0.25")) for table in tables]
    gains = [curve_between(*pair).delta(0) for pair in itertools.pairwise(laws)]
    assert gains[0] == gains[-1] == pytest.approx(0.50, abs=0.005)
    assert max(gains) == gains[2] == pytest.approx(0.65, abs=0.005)


def test_cycles_of_three_are_worse_and_a_lumped_table_only_an_attack() -> None:
    ones = ((1, 1, 1), (1, 1, 1), (1, 1, 1))
    swap = Swap("0.3")
    tables = list_tables(Stratum([3, 3, 3], [3, 3, 3])) or []
    truth = swapped_law(ones, swap)
    gains: dict[int, float] = {2: 0.0, 3: 0.0}
    for table in tables:
        apart = int(np.abs(np.array(table) - 1).sum()) // 2
        if apart in gains:
            gains[apart] = max(
                gains[apart], curve_between(truth, swapped_law(table, swap)).delta(0)
            )
    assert gains == {2: pytest.approx(0.765, abs=5e-4), 3: pytest.approx(0.829, abs=5e-4)}
    first, second = (CellLaw.from_totals(9, 3, 3, swap).row(cell) for cell in (1, 2))
    lumped = compute_cell_loss(Stratum([6, 3], [6, 3]), swap)
    assert first[0] == second[0] == 0
    assert np.abs(first[1] - second[1]).sum() / 2 == pytest.approx(0.679, abs=5e-4)
    assert lumped.attack < gains[2]


def test_an_attack_is_never_better_than_the_truth() -> None:
    compared = 0
    for stratum in (*SMALL, Stratum([2, 2, 1], [2, 2, 1]), Stratum([4, 2], [3, 2, 1])):
        for rule, rate in itertools.product(RULES, ("0.1", "0.5")):
            swap = Swap(rate, rule)
            assert (
                0
                <= attack_stratum(stratum, swap).attack
                <= compute_exact_loss(stratum, swap).attack
            )
            compared += 1
    assert compared == 36


@pytest.mark.parametrize(
    ("largest", "rate", "epsilon"),
    [
        *[
            (264_331, rate, epsilon)
            for rate, epsilon in (("0.01", 17.08), ("0.05", 15.43), ("0.1", 14.68), ("0.5", 12.48))
        ],
        *[
            (13_475_623, "0.05", 19.36),
            (13_475_623, "0.5", 16.42),
            (4_549, "0.05", 11.37),
            (4_549, "0.5", 8.42),
        ],
    ],
)
def test_the_published_epsilons(largest: int, rate: str, epsilon: float) -> None:
    """Tables 2 and 5 of bailie2026refreshment."""
    assert Swap(rate).published_epsilon(largest) == pytest.approx(epsilon, abs=0.006)


def test_the_published_epsilon_holds_and_the_exact_one_hardly_moves() -> None:
    swap = Swap("0.2", "derange")
    exact = {
        n: compute_exact_loss(Stratum([n // 2, n // 2], [n // 2, n // 2]), swap)
        for n in (8, 12, 16, 20)
    }
    for n, loss in exact.items():
        assert loss.epsilon is not None
        assert loss.epsilon <= 2 * swap.published_epsilon(n)
    assert exact[20].epsilon - exact[8].epsilon < 0.11  # type: ignore[operator]
    assert exact[20].attack < 0.85 * exact[8].attack


def test_the_published_epsilon_holds_for_cycles_of_three() -> None:
    for stratum in (
        Stratum([1, 1, 1], [1, 1, 1]),
        Stratum([2, 2, 1], [2, 2, 1]),
        Stratum([2, 1, 1], [2, 2]),
    ):
        for rate in ("0.1", "0.5", "0.95"):
            swap = Swap(rate, "derange")
            epsilon = compute_exact_loss(stratum, swap).epsilon
            assert epsilon is not None
            assert epsilon <= stratum.longest_cycle * swap.published_epsilon(stratum.n) + 1e-9


def test_a_simple_formula_for_epsilon_is_no_bound() -> None:
    """``2 ln((2 - p)/p)`` holds for two records alone, not for larger strata."""
    formula = 2 * math.log((2 - 0.5) / 0.5)
    epsilons = [
        compute_exact_loss(Stratum([half, half], [half, half]), Swap("1/2")).epsilon
        for half in (1, 5, 8)
    ]
    assert epsilons[0] is not None
    assert epsilons[0] < formula
    assert all(epsilon is not None and epsilon > formula for epsilon in epsilons[1:])


def test_weights_add_up_and_leavers_too() -> None:
    checked = 0
    for n, rate, rule in itertools.product((2, 3, 7, 30), ("0.1", "0.9"), RULES):
        swap = Swap(rate, rule)
        assert sum(choice_weights(n, swap)) == 1
        _, law = leaver_law(n, n // 2, swap)
        assert law.sum() == pytest.approx(1, abs=1e-12)
        checked += 1
    assert checked == 16


def test_strata_do_not_add_up_and_the_worst_counts() -> None:
    small, large = Stratum([6, 6], [6, 6]), Stratum([50, 50], [50, 50])
    swap = Swap("0.25")
    together = assess_swapping(swap, [large, small, small, Stratum([5], [3, 2])])
    assert together.fixed == 1
    assert together.largest == 100
    assert [loss.stratum for loss in together.strata] == [small, large]
    assert together.attack == compute_exact_loss(small, swap).attack
    alone = compute_exact_loss(small, swap).curve
    assert together.curve is not None
    assert alone is not None
    assert all(
        together.curve.evaluate_exactly(alpha) <= alone.evaluate_exactly(alpha)
        for alpha in alone.alphas
    )


def test_what_is_too_large_is_only_attacked() -> None:
    assessment = assess_swapping(
        Swap("0.1"), [Stratum([40, 30, 30], [50, 50]), Stratum([4, 4], [4, 4])]
    )
    assert not assessment.is_proved
    assert assessment.curve is None
    assert assessment.longest_cycle == 2


@pytest.mark.long
def test_of_very_many_strata_some_are_passed_over() -> None:
    strata = [Stratum([20 + k, 20, 20], [20 + k, 20, 20]) for k in range(450)]
    assessment = assess_swapping(Swap("0.1"), strata)
    assert assessment.passed_over == 450 - len(assessment.strata) > 100
    assert strata[0] in [loss.stratum for loss in assessment.strata]
    assert not assessment.is_proved
    assert assessment.curve is None


def test_noise_for_a_cycle_of_three_is_wider() -> None:
    two = assess_swapping(Swap("0.3"), [Stratum([2, 2], [2, 2])])
    three = assess_swapping(Swap("0.3"), [Stratum([2, 2, 1], [2, 2, 1])])
    assert two.gaussian_error(1) == pytest.approx(1)
    assert three.gaussian_error(1) == pytest.approx(math.sqrt(6) * 2 / 3)


def test_totals_that_give_everything_away_are_refused() -> None:
    with pytest.raises(InputError, match="swapping changes nothing here"):
        assess_swapping(Swap("0.1"), [Stratum([4, 2], [6]), Stratum([3], [1, 2])])
