"""Quantiles by exact group: the joint guarantee by brute force, exact choices, intervals, and a
release of them.
"""

import itertools
import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from tests.grouped.measuring import quantiles

from semidp import RunOptions, run
from semidp.assess import adjacent_datasets
from semidp.assess.adjacent_datasets import ListedExchanges
from semidp.cli import run as command
from semidp.errors import InputError, Refused
from semidp.present.release import Release
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.accounting.recorded_queries import mechanism_from_record
from semidp.promise.mechanisms.exponential import (
    EXPONENTIAL,
    ExponentialMechanism,
    RankSpace,
    exponential_mechanism,
    farthest_rank,
    rank_scores,
    rank_space,
)
from semidp.promise.noise.choice import ExponentialChoice, FlippedChoice
from semidp.promise.noise.randomness import SeededRandomness, Stream, SystemRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.outcome_spaces import outcome_exchange
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.protection import Protection
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.smooth import Gaussian
from semidp.publish.plan import Plan
from semidp.publish.recheck import disagreements
from semidp.publish.statistics.quantiles import GroupQuantiles, QuantileRequest

BUDGETS = (Budget.pure("1/2"), Budget.zcdp("1/50"), Budget.gdp("1/4"))
WARD = Margin("A")


def world(*sizes: int) -> Dataspace:
    schema = Schema((Feature("A", [str(k) for k in range(len(sizes))]),))
    return Dataspace.from_table(Table(schema, np.array(sizes)), [WARD])


def law(mechanism: ExponentialMechanism, histograms: np.ndarray) -> np.ndarray:
    """The joint distribution of all choices of all groups."""
    space, choice = mechanism.rank_space, mechanism.law(mechanism.rate)
    joint = np.ones(1)
    for histogram, ranks in zip(histograms, space.ranks(mechanism.rate).tolist(), strict=True):
        for rank in ranks:
            if 1 <= rank <= histogram.sum():
                joint = np.multiply.outer(
                    joint, choice.probabilities(rank_scores(histogram, rank))
                ).ravel()
    return joint


def told_apart(one: np.ndarray, other: np.ndarray) -> tuple[float, float, float]:
    """The least ε, ρ and μ that two distributions satisfy: log ratios, Rényi divergences, and the
    error curve.
    """
    loss = np.log(one / other)
    epsilon = float(np.abs(loss).max())
    rho = max(
        float(np.log((one**a * other ** (1 - a)).sum()) / (a - 1) / a)
        for a in (1.0001, 2.0, 8.0, 32.0)
    )
    order = np.argsort(-loss)
    false, found = np.cumsum(other[order])[:-1], np.cumsum(one[order])[:-1]
    mu = float(
        np.max(
            stats.norm.ppf(np.clip(found, 0, 1)) - stats.norm.ppf(np.clip(false, 1e-300, 1)),
            initial=0.0,
        )
    )
    return epsilon, rho, mu


def held(
    mechanism: ExponentialMechanism, one: np.ndarray, other: np.ndarray, wrong: float = 1.0
) -> bool:
    """Whether two distributions are as close as a mechanism says, or were its scale wrong by a
    factor.
    """
    epsilon, rho, mu = told_apart(one, other)
    curve = mechanism.tradeoff
    slack = 1 + 1e-9
    if curve.implied_epsilon() is not None:
        return epsilon <= float(curve.implied_epsilon()) / wrong * slack
    if isinstance(curve, Gaussian):
        return mu**2 <= float(curve.mu_squared) / wrong**2 * slack + 1e-12
    return rho <= float(curve.implied_rho()) / wrong**2 * slack + 1e-12


@pytest.mark.few(7)
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize(
    ("sizes", "a"), [((2, 1), 1), ((2, 1), 2), ((1, 1, 1), 3), ((3,), 1), ((5,), 1)]
)
def test_all_groups_together_are_as_private_as_is_said(
    everything, table, budget, sizes, a: int
) -> None:
    """Every two datasets of three (or five) records, values 0, 1, 2: the joint law of the medians
    of all groups.
    """
    found = everything(table(np.array(sizes), "A"), [WARD], 2)
    space = rank_space(found.dataspace, Ball(a), Outcome("y", 0, 1, 2), [WARD])
    mechanism = exponential_mechanism(space, budget)
    assert isinstance(mechanism, ExponentialMechanism)
    cells = found.x * 3 + found.y
    histograms = np.array(
        [np.bincount(row, minlength=3 * len(sizes)).reshape(-1, 3) for row in cells]
    )
    kinds, where = np.unique(histograms.reshape(len(cells), -1), axis=0, return_inverse=True)
    laws = [law(mechanism, kind.reshape(-1, 3)) for kind in kinds]
    seen = set()
    for i, row in enumerate(cells):
        for other in np.unique(where[(cells != row).sum(axis=1) <= a]):
            seen.add((int(where[i]), int(other)))
    assert len(seen) > len(kinds)
    assert all(held(mechanism, laws[one], laws[other]) for one, other in seen if one != other)


@pytest.mark.parametrize(
    ("budget", "gaps"),
    [
        (Budget.pure(1), (1, 1500)),
        (Budget.zcdp("1/200"), (600, 600)),
        (Budget.gdp("1/10"), (600, 600)),
    ],
)
def test_the_scale_is_not_larger_than_it_must_be(budget: Budget, gaps: tuple[int, int]) -> None:
    """The value 0 of {0, s, s} becomes the largest: ranks fall by one on both sides of the median,
    range 2 rate.
    """
    below, above = gaps
    steps = below + above + 2
    space = rank_space(world(3), Ball(1), Outcome("y", 0, 1, steps), [WARD])
    mechanism = exponential_mechanism(space, budget)
    assert isinstance(mechanism, ExponentialMechanism)
    one, other = np.zeros((2, 1, steps + 1), dtype=np.int64)
    one[0, [0, below + 1]] = 1, 2
    other[0, [below + 1, steps]] = 2, 1
    laws = law(mechanism, one), law(mechanism, other)
    assert held(mechanism, *laws)
    assert not held(mechanism, *laws, wrong=1.3)


@pytest.mark.few(2)
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize(
    ("counts", "margins", "by"),
    [([2, 1], ["a"], [["a"]]), ([[1, 1], [1, 0]], ["a", "b"], [["a"], ["b"]])],
)
def test_exchanges_are_as_private_as_is_said(budget: Budget, counts, margins, by) -> None:
    counts = np.array(counts)
    schema = Schema(
        [
            Feature("ab"[axis], [str(i) for i in range(size)])
            for axis, size in enumerate(counts.shape)
        ]
    )
    public = Dataspace.from_table(
        Table(schema, counts), [Margin.from_names(margin) for margin in margins]
    )
    groups = [Margin(*names) for names in by]
    space = rank_space(public, outcome_exchange(public), Outcome("y", 0, 1, 2), groups)
    assert space.l1 == space.l2_squared == 2 * len(groups)
    mechanism = exponential_mechanism(space, budget)
    assert isinstance(mechanism, ExponentialMechanism)
    whole = Schema((*schema.features, Feature("y", ["0", "1", "2"])))
    blocks = ListedExchanges.from_dataspace(
        Dataspace.from_totals(
            whole, dict(zip(public.margins, public.totals, strict=True)), public.n
        )
    )
    axes = [[schema.names.index(name) for name in group.names] for group in groups]

    def histograms(records) -> np.ndarray:
        parts = []
        for group in axes:
            part = np.zeros((*(schema.shape[axis] for axis in group), 3), dtype=np.int64)
            for record in records:
                part[(*(record[axis] for axis in group), record[-1])] += 1
            parts.append(part.reshape(-1, 3))
        return np.concatenate(parts)

    seen: dict[tuple[bytes, bytes], tuple[np.ndarray, np.ndarray]] = {}
    for dataset in adjacent_datasets.datasets(blocks.dataspace):
        X = blocks.encode_records(dataset)
        one = histograms(X)
        for Y in blocks.neighbours(X):
            other = histograms(Y)
            seen[one.tobytes(), other.tobytes()] = one, other
    laws = {key: law(mechanism, one) for (key, _), (one, _) in seen.items()}
    assert len(seen) > 20
    assert all(held(mechanism, laws[one], laws[other]) for one, other in seen if other in laws)


def rank_distances(histogram: NDArray[np.int64], rank: int) -> NDArray[np.int64]:
    """For each step the fewest values that must be replaced to make it the rank-th smallest."""
    return np.maximum(rank_scores(histogram, rank), 0)


def test_distances_count_the_records_to_replace() -> None:
    """By brute force over all data of four values from 0 to 3."""
    every = list(itertools.product(range(4), repeat=4))
    for values, rank in itertools.product(
        [(0, 0, 2, 3), (1, 1, 1, 1), (0, 1, 2, 3), (0, 3, 3, 3)], range(1, 5)
    ):
        found = rank_distances(np.bincount(values, minlength=4), rank)
        for v in range(4):
            fewest = min(
                sum(x != y for x, y in zip(values, other, strict=True))
                for other in every
                if sorted(other)[rank - 1] == v
            )
            assert found[v] == fewest


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", [ExponentialChoice, FlippedChoice])
@pytest.mark.parametrize("bits", [1, 3, 64])
def test_choices_are_drawn_with_their_probabilities(kind, bits: int) -> None:
    """With few bits most draws need more of them, and the law is the same; one false alarm in a
    million.
    """
    distances = np.array([3, 1, 0, 2, 2, 7, 1, 40]) - 2
    choice = kind(Fraction(1), bits=bits)
    source = SeededRandomness(bits)
    drawn = np.bincount(
        [choice.draw(distances, source) for _ in range(4000)], minlength=len(distances)
    )
    expected = 4000 * choice.probabilities(distances)
    kept = expected > 5
    assert expected.sum() == pytest.approx(4000)
    assert (
        stats.chi2.sf(((drawn - expected)[kept] ** 2 / expected[kept]).sum(), kept.sum() - 1) > 1e-6
    )
    other = FlippedChoice if kind is ExponentialChoice else ExponentialChoice
    for law in (kind(Fraction(13, 10)), other(Fraction(1))):
        wrong = 4000 * law.probabilities(distances)
        assert (
            stats.chi2.sf(((drawn - wrong)[kept] ** 2 / wrong[kept]).sum(), kept.sum() - 1) < 1e-6
        )
    assert choice.draw(np.array([5]), SystemRandomness()) == 0
    many = np.bincount(choice.draw_many(distances, 4000, Stream(source)), minlength=len(distances))
    assert (
        stats.chi2.sf(((many - expected)[kept] ** 2 / expected[kept]).sum(), kept.sum() - 1) > 1e-6
    )
    one, again = (SeededRandomness(9), SeededRandomness(9))
    assert choice.draw(distances, one) == choice.draw_many(distances, 1, Stream(again))[0]


@pytest.mark.parametrize("kind", [ExponentialChoice, FlippedChoice])
def test_far_values_and_tiny_rates_are_drawn_too(kind) -> None:
    choice = kind(Fraction(1, 10**6))
    found = {choice.draw(np.array([0, 10**5]), SeededRandomness(seed)) for seed in range(30)}
    assert found == {0, 1}
    assert kind(Fraction(50)).draw(np.array([10**9, 0]), SeededRandomness(1)) == 1
    assert kind(Fraction(1, 10**25)).draw(np.array([1, 0]), SeededRandomness(1)) in (0, 1)
    with pytest.raises(InputError):
        kind(Fraction(0))


def test_flips_are_a_random_order_whose_first_that_stays_is_taken() -> None:
    """The probabilities by all orders of four values, and that no distance is larger on average
    than by weights.
    """
    rate, distances = Fraction(7, 10), np.array([0, 2, 1, 1])
    w, found = np.exp(-float(rate) * distances), np.zeros(4)
    for order in itertools.permutations(range(4)):
        passed = 1.0
        for v in order:
            found[v] += passed * w[v] / 24
            passed *= 1 - w[v]
    flipped = FlippedChoice(rate).probabilities(distances)
    np.testing.assert_allclose(flipped, found, rtol=1e-12)
    source = np.random.default_rng(3)
    for _ in range(200):
        drawn = source.integers(0, 12, source.integers(2, 30))
        best, plain = (
            kind(rate).probabilities(drawn) @ drawn for kind in (FlippedChoice, ExponentialChoice)
        )
        assert best <= plain + 1e-12


def test_ties_make_the_quantile_likelier_and_change_nothing_else() -> None:
    """Scores are distances but for the wanted value, whose score is at most 0: any data, any
    rank.
    """
    source = np.random.default_rng(6)
    for _ in range(300):
        histogram = source.integers(0, 5, 8)
        if not histogram.sum():
            continue
        rank = int(source.integers(1, histogram.sum() + 1))
        scores, away = rank_scores(histogram, rank), rank_distances(histogram, rank)
        (wanted,) = np.flatnonzero(scores <= 0)
        assert wanted == np.repeat(np.arange(8), histogram)[rank - 1]
        others = np.arange(8) != wanted
        np.testing.assert_array_equal(scores[others], away[others])
        below = rank - 1 - (np.cumsum(histogram) - histogram)[wanted]
        assert scores[wanted] == -min(below, histogram[wanted] - 1 - below)


def test_scores_move_by_at_most_one_for_each_replaced_value() -> None:
    """All data of four values from 0 to 3; twice the score does not pass, nor does the count of the
    value itself.
    """
    every = [np.array(values) for values in itertools.product(range(4), repeat=4)]
    histograms = [np.bincount(values, minlength=4) for values in every]
    for rank in range(1, 5):
        scores = np.array([rank_scores(histogram, rank) for histogram in histograms])
        moved = np.array([[int((one != other).sum()) for other in every] for one in every])
        change = np.abs(scores[:, None] - scores[None]).max(axis=2)
        assert (change <= moved).all()
        assert (2 * change > moved).any()
        tied = scores - np.array(histograms)
        assert (np.abs(tied[:, None] - tied[None]).max(axis=2) > moved).any()


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_budgets_are_met_and_never_exceeded(budget: Budget) -> None:
    for level in (None, "0.9"):
        space = rank_space(
            world(30, 20), Ball(2), Outcome("y", 0, 1, 100), [WARD], ["1/4", "1/2"], level=level
        )
        mechanism = exponential_mechanism(space, budget)
        assert space.choices == (2 if level is None else 6)
        assert (space.l1, space.l2_squared) == (2 * space.choices, 4 * space.choices)
        spent, allowed = mechanism.tradeoff, budget.tradeoff()
        assert str(spent.compare(allowed)) in ("equal", "stronger", "Order.EQUAL", "Order.STRONGER")
        assert spent.epsilon("1e-6") == pytest.approx(allowed.epsilon("1e-6"), rel=1e-6)
    spread = exponential_mechanism(space, Budget.approximate(1, "1e-6"))
    assert spread.tradeoff.epsilon("1e-6") <= 1 + 1e-9


@pytest.mark.parametrize("budget", [Budget.pure(1), Budget.zcdp("1/200"), Budget.gdp("1/10")])
def test_a_smaller_scale_promises_less(budget: Budget) -> None:
    space = rank_space(world(30, 20), Ball(2), Outcome("y", 0, 9, 9), [Margin("A")])
    mechanism = exponential_mechanism(space, budget)
    sharper = mechanism.with_less_noise(Fraction(1, 2))
    assert sharper.scale == pytest.approx(mechanism.scale / 2)
    assert mechanism.scale >= 1 / mechanism.rate
    assert sharper.tradeoff.epsilon("1e-6") > mechanism.tradeoff.epsilon("1e-6")
    # exp(-rate |k|) over whole k, as far as sums show
    k = np.arange(-4000, 4001)
    law = np.exp(-float(mechanism.rate) * np.abs(k))
    assert mechanism.variance == pytest.approx((k**2 * law).sum() / law.sum(), rel=0.02)
    last = mechanism.restore_measurement(np.array([[0], [9]]), True)
    assert last.noisy.max() == space.outcome.steps


def test_quantiles_of_several_sets_of_groups() -> None:
    records = {
        "a": np.repeat(["x", "y"], [60, 40]),
        "b": np.tile(["f", "m"], 50),
        "y": np.r_[np.arange(60), np.arange(40)],
    }
    found = quantiles(
        records,
        Outcome("y", 0, 60, 60),
        ["a", "b"],
        Budget.gdp(200),
        ["1/4", "1/2", "3/4"],
        randomness=SeededRandomness(1),
    )
    assert found.values(Margin("a"))[0] == pytest.approx([14, 29, 44], abs=1.5)
    assert found.values(Margin("b")).shape == (2, 3)
    assert (np.diff(found.values(Margin("b")), axis=1) >= 0).all()
    with pytest.raises(InputError, match="say by which groups"):
        found.values()
    with pytest.raises(InputError, match="ask for them with a level"):
        found.intervals(Margin("a"))


@pytest.mark.parametrize("sampling", [False, True])
def test_intervals_hold_the_quantile_of_the_records_or_of_the_population(sampling: bool) -> None:
    """200 releases: conservative, since a bound on all values is used; a bracket of no width does
    not hold.
    """
    source, hits, narrow, q = np.random.default_rng(4), 0.0, 0.0, Fraction(3, 10)
    outcome, public = Outcome("y", 0, 100, 100), world(400, 90)
    space = rank_space(public, Ball(2), outcome, [WARD], [q], level="0.9", sampling=sampling)
    mechanism = exponential_mechanism(space, Budget.gdp(4))
    truth = stats.norm.ppf(float(q), 50, 15)
    for seed in range(200):
        values = [np.clip(np.rint(source.normal(50, 15, n)), 0, 100).astype(int) for n in (400, 90)]
        histograms = np.stack([np.bincount(part, minlength=101) for part in values])
        found = GroupQuantiles(mechanism, mechanism.measure(histograms, SeededRandomness(seed)))
        (interval,) = found.intervals()
        own = np.array([sorted(part)[math.ceil(q * len(part)) - 1] for part in values])
        wanted = np.rint(truth) if sampling else own
        hits += float(np.mean((interval.lower <= wanted) & (wanted <= interval.upper)))
        narrow += float(np.mean(found.values()[:, 0] == wanted))
    assert hits / 200 >= 0.9
    assert narrow / 200 < 0.8


def test_ranks_are_whole_and_groups_that_are_too_small_have_open_intervals() -> None:
    outcome = Outcome("y", 0, 10, 10)
    space = rank_space(world(5, 0, 1000), Ball(2), outcome, [WARD], ["1/2"], level="0.95")
    mechanism = exponential_mechanism(space, Budget.zcdp(1))
    assert isinstance(mechanism, ExponentialMechanism)
    ranks = space.ranks(mechanism.rate)
    assert ranks[0].tolist() == [3, 0, 6]
    assert ranks[1].tolist() == [0, 0, 1]
    assert 0 < ranks[2][1] < 500 < ranks[2][2] <= 1000
    histograms = np.zeros((3, 11), dtype=np.int64)
    histograms[0, 4], histograms[2, 7] = 5, 1000
    found = GroupQuantiles(mechanism, mechanism.measure(histograms, SeededRandomness(1)))
    (interval,) = found.intervals()
    assert (interval.lower[0], interval.upper[0]) == (0, 10)
    assert math.isnan(found.values()[1, 0])
    assert found.values()[2, 0] == 7
    for bad in (histograms[:2], histograms + 1, histograms.astype(float)):
        with pytest.raises(InputError, match="histogram"):
            mechanism.measure(bad)
    with pytest.raises(InputError, match="no noise is added"):
        mechanism.noise(SeededRandomness(1))


@pytest.mark.parametrize(
    ("size", "most", "q", "level", "steps", "rate", "sampling"),
    [
        (400, 1, "1/2", "0.9", 100, "3/4", False),
        (401, 1, "1/3", "0.95", 1000, "1/5", False),
        (90, 1, "1/10", "0.5", 2, "5", False),
        (400, 1, "1/2", "0.9", 100, "3/4", True),
        (401, 3, "1/4", "0.95", 50, "2", True),
        (95, 2, "9/10", "0.8", 30, "1", True),
        (12, 5, "1/2", "0.9", 10, "1", True),
        (1, 1, "1/2", "0.9", 10, "1", True),
    ],
)
def test_the_ends_of_an_interval_look_for_ranks_by_their_definition(
    size: int, most: int, q: str, level: str, steps: int, rate: str, sampling: bool
) -> None:
    """Written without the package: as many ranks apart as leave each end its share of what may be
    missed, and the order statistics that hold the quantile of a population.
    """
    public, outcome = world(size, 2 * size), Outcome("y", 0, 1, steps)
    people = Ball(2 * most, Protection("patient", most) if most > 1 else None)
    space = rank_space(public, people, outcome, [WARD], [q], level=level, sampling=sampling)
    share = (1 - Fraction(level)) / (4 if sampling else 2)
    apart = next(t for t in range(1000) if steps * math.exp(-Fraction(rate) * (t + 1)) <= share)
    assert space.interval_rank_offset(Fraction(rate), Fraction(level)) == apart
    for n, found in zip((size, 2 * size), space.ranks(Fraction(rate)).tolist(), strict=True):
        p, middle = Fraction(q), max(1, math.ceil(Fraction(q) * n))
        low = high = middle
        if sampling:
            persons = max(1, n // most)  # at worst the records of a person are alike
            below = list(
                itertools.accumulate(
                    math.comb(persons, k) * p**k * (1 - p) ** (persons - k)
                    for k in range(persons + 1)
                )
            )
            fewest = next(k for k, chance in enumerate(below) if chance >= share)
            highest = next(k for k, chance in enumerate(below) if chance >= 1 - share)
            low = math.floor(Fraction(fewest * n, persons))
            high = math.ceil(Fraction(highest * n, persons)) + 1
        assert found == [middle, max(low - apart, 0), min(high + apart, n + 1)]


def test_a_choice_is_seldom_farther_off_than_is_said() -> None:
    space = rank_space(world(2000), Ball(2), Outcome("y", 0, 1, 1000), [WARD])
    mechanism = exponential_mechanism(space, Budget.zcdp(1))
    assert isinstance(mechanism, ExponentialMechanism)
    histogram = np.bincount(np.arange(2000) // 2, minlength=1001)
    off = rank_distances(histogram, 1000)[
        mechanism.measure_many(histogram[None], 200, SeededRandomness(2)).ravel()
    ]
    assert (off <= farthest_rank(mechanism, 0.05)).mean() >= 0.95


@pytest.mark.parametrize("kind", EXPONENTIAL)
def test_what_a_ledger_keeps_is_enough_to_compute_the_guarantee_again(
    kind: type[ExponentialMechanism],
) -> None:
    public = world(30, 20)
    space = rank_space(
        public, Ball(2), Outcome("y", 0, 1, 10), [WARD], ["0.1", "0.9"], level="0.9", sampling=True
    )
    mechanism = kind(space, Fraction(1, 7))
    again = mechanism_from_record(mechanism.record(), public, Ball(2))
    assert again.tradeoff == mechanism.tradeoff
    assert isinstance(again.space, RankSpace)
    assert again.space.sampling
    assert (
        mechanism_from_record(mechanism.record(), public, Ball(4)).tradeoff
        == mechanism.under(Ball(4)).tradeoff
    )
    damaged = {**mechanism.record(), "noise": {"law": "laplace", "b": "4"}}
    with pytest.raises(InputError, match="damaged"):
        mechanism_from_record(damaged, public, Ball(2))


def test_requests_are_checked() -> None:
    outcome = Outcome("y", 0, 1, 10)
    for bad in ([], [0], [1], ["0.5", "0.5"], ["0.9", "0.1"], "0.5"):
        with pytest.raises(InputError):
            QuantileRequest(outcome, [["a"]], bad)
    with pytest.raises(InputError, match="named twice"):
        QuantileRequest(outcome, [["a"], ["a"]])
    with pytest.raises(InputError, match="no secret"):
        QuantileRequest(outcome, [["y"]])
    with pytest.raises(InputError, match="give their level"):
        QuantileRequest(outcome, [["a"]], sampling=True)
    with pytest.raises(Refused, match="not published"):
        rank_space(
            Dataspace.from_table(
                Table(Schema((Feature("A", "xy"), Feature("B", "xy"))), [[2, 2], [2, 2]]),
                [Margin("A")],
            ),
            Ball(2),
            outcome,
            [Margin("B")],
        )


def pupils() -> dict[str, np.ndarray]:
    source = np.random.default_rng(1)
    return {
        "state": np.repeat(["x", "x", "y"], [200, 150, 250]),
        "county": np.repeat(["1", "2", "3"], [200, 150, 250]),
        "score": source.normal(50, 15, 600).clip(0, 100).round(1),
    }


def test_a_release_of_quantiles_reads_back_and_follows_from_its_steps(tmp_path: Path) -> None:
    score = Outcome("score", 0, 100, 200)
    request = QuantileRequest(
        score, [["county"]], ["1/4", "1/2"], Budget.zcdp(1), level="0.9", sampling=True
    )
    plan = Plan([request], invariants=["county"])
    assert Plan.from_toml(plan.to_toml()) == plan
    assert request.name == "quantiles-score"
    book = Ledger.create(tmp_path / "ledger.json", Budget.zcdp(2))
    made = run(plan, pupils(), RunOptions(randomness=SeededRandomness(3), ledger=book))
    made.save(tmp_path / "out")
    again = Release.load(tmp_path / "out")
    assert again.guarantee.tradeoff == made.guarantee.tradeoff
    (found,) = again.quantiles
    assert found.estimates[0].to_dict() == made.quantiles[0].estimates[0].to_dict()
    document = json.loads((tmp_path / "out" / "release.json").read_text())
    assert document["quantiles"][0]["about"] == "noise and sampling"
    assert disagreements(again, document) == ()
    (charge,) = book.account().charges
    assert charge.tradeoff.epsilon("1e-6") <= Budget.zcdp(1).tradeoff().epsilon("1e-6")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "quantiles at 0.25, 0.5 of score by county" in page
    assert "records would have to be replaced" in page
    lines = (tmp_path / "out" / "quantiles-score.csv").read_text().splitlines()
    assert lines[0].startswith("county,count,q0.25,q0.25_lower,q0.25_upper,q0.5")
    changed = [lines[0], lines[1].replace("1,200,", "1,201,", 1), *lines[2:]]
    (tmp_path / "out" / "quantiles-score.csv").write_text("\n".join(changed) + "\n")
    with pytest.raises(InputError, match="was changed"):
        Release.load(tmp_path / "out")


def test_the_command_line_chooses_quantiles_by_state_beside_exact_counties(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pupils.csv"
    data = pupils()
    lines = (",".join(map(str, row)) for row in zip(*data.values(), strict=True))
    file.write_text("\n".join([",".join(data), *lines]) + "\n")
    shared = [
        "release",
        str(file),
        "--bounds",
        "score=0,100",
        "--set",
        "grid=score=1000",
        "--nest",
        "state,county",
    ]
    asked = [
        "--group",
        "state",
        "--invariant",
        "county",
        "--median",
        "score",
        "--quantile",
        "score=0.9",
    ]
    assert command([*shared, *asked, "--mu", "100", "--out", str(tmp_path / "out"), "--quiet"]) == 0
    rows = [
        row.split(",")
        for row in (tmp_path / "out" / "quantiles-score.csv").read_text().splitlines()
    ]
    assert rows[0][:4] == ["state", "count", "q0.5", "q0.9"]
    assert all(cell == str(round(float(cell), 1)) for row in rows[1:] for cell in row[2:4])
    for row in rows[1:]:
        own = np.sort(data["score"][data["state"] == row[0]])
        assert float(row[2]) == pytest.approx(own[math.ceil(0.5 * len(own)) - 1], abs=1)
        assert float(row[3]) == pytest.approx(own[math.ceil(0.9 * len(own)) - 1], abs=1.5)
    capsys.readouterr()
    assert command([*shared, *asked, "--rho", "1", "--dry-run", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["quantiles"][0]["noise"]["name"] == "exponential (zCDP)"
    assert command([*shared, *asked, "--epsilon", "1", "--dry-run", "--format", "json"]) == 0
    assert (
        json.loads(capsys.readouterr().out)["quantiles"][0]["noise"]["name"] == "permute and flip"
    )
    for wrong, said in (
        (
            ["--group", "state", "--mean", "score", "--mu", "1", "--set", "quantile_level=0.9"],
            "works only with --median",
        ),
        (
            ["--group", "state", "--median", "score", "--set", "quantile_level=2", "--mu", "1"],
            "between 0 and 1",
        ),
        (["--group", "state", "--mu", "1"], "--median"),
        (
            ["--group", "state", "--median", "score", "--set", "mechanism=laplace", "--mu", "1"],
            "leave --set mechanism=… out",
        ),
    ):
        assert command([*shared, *wrong, "--out", str(tmp_path / "no")]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
