"""Shares, quantiles and bands of distributions by group: how often they hold, and how wide they are
beside choices.

Seeds are fixed, and thresholds leave four standard errors of the number of groups that are
simulated.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.grouped.measuring import two_wards
from tests.rescaled import with_scale

from semidp.errors import InputError
from semidp.promise.mechanisms.exponential import exponential_mechanism, rank_space
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.distribution_space import (
    DistributionSpace,
    distribution_space,
)
from semidp.promise.spaces.adjacency import Adjacency, Ball, Exchange
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.selection import select_mechanism
from semidp.publish.statistics.distribution.published import (
    GroupDistributions,
    band_half_widths,
    count_up_to,
    in_order,
    pointwise_half_widths,
)
from semidp.publish.statistics.outcomes.noise_law import LEVEL
from semidp.publish.statistics.quantiles import GroupQuantiles

Q = [Fraction(1, 10), Fraction(1, 2), Fraction(9, 10)]


def groups_of(
    groups: int, size: int, steps: int, adjacency: Adjacency | None = None
) -> DistributionSpace:
    """Many groups of one size, values from 0 to `steps`."""
    schema = Schema([Feature("group", map(str, range(groups)))])
    public = Dataspace.from_table(Table(schema, np.full(groups, size)), [Margin("group")])
    outcome = Outcome("y", 0, steps, steps)
    return distribution_space(public, adjacency or Ball(2), outcome, [Margin("group")])


def histograms(values: np.ndarray, steps: int) -> np.ndarray:
    return np.stack([np.bincount(row, minlength=steps + 1) for row in values])


def normal(groups: int, size: int, steps: int, seed: int) -> np.ndarray:
    """Values around 0.4 of the range, with a standard deviation of an eighth of it."""
    drawn = np.random.default_rng(seed).normal(0.4 * steps, steps / 8, (groups, size))
    return np.clip(np.rint(drawn), 0, steps).astype(np.int64)


def true_quantile(values: np.ndarray, probability: Fraction) -> np.ndarray:
    """The ⌈q n⌉-th smallest value of each row."""
    rank = max(math.ceil(probability * values.shape[1]), 1)
    return np.sort(values, axis=1)[:, rank - 1]


def measured(
    space: DistributionSpace, mechanism: Mechanism, rows: np.ndarray, seed: int
) -> GroupDistributions:
    return GroupDistributions(
        mechanism, mechanism.measure(space.apply_query(rows), SeededRandomness(seed))
    )


def held(found: GroupDistributions, values: np.ndarray, rows: np.ndarray) -> dict[str, float]:
    """How often intervals of single counts, bands, and intervals of quantiles hold the truth."""
    truth = np.cumsum(rows, axis=1)[:, :-1]
    lower, upper = found.bounds()
    low, high = found.band()
    inside = (lower - 1e-9 <= truth) & (truth <= upper + 1e-9)
    within = (low - 1e-9 <= truth) & (truth <= high + 1e-9)
    shares = {"count": float(inside.mean()), "band": float(within.all(axis=1).mean())}
    for probability, part in zip(Q, found.quantiles(Q), strict=True):
        quantile = true_quantile(values, probability)
        shares[f"q{float(probability):g}"] = float(
            ((part.lower <= quantile) & (quantile <= part.upper)).mean()
        )
    return shares


def test_without_noise_everything_is_true() -> None:
    """At an enormous budget the noise is 0: quantiles and shares are those of the records."""
    space = groups_of(20, 50, 12)
    values = normal(20, 50, 12, seed=1)
    rows = histograms(values, 12)
    found = measured(space, select_mechanism(space, Budget.gdp(10**4)), rows, seed=1)
    assert found.up_to().tolist() == np.cumsum(rows, axis=1)[:, :-1].tolist()
    for probability, part in zip(Q, found.quantiles(Q), strict=True):
        assert part.lower.tolist() == np.maximum(part.values - 0.5, 0).tolist()
        assert part.upper.tolist() == np.minimum(part.values + 0.5, 12).tolist()
        assert part.values.tolist() == true_quantile(values, probability).tolist()
    shares = found.shares_below("4.5")
    assert shares.values.tolist() == ((values < 4.5).sum(axis=1) / 50).tolist()


@pytest.mark.parametrize("values", ["normal", "uniform", "heaped", "one"])
def test_the_width_of_issue_29_and_the_level(values: str) -> None:
    """n = 400, 128 values, mu = 1, any two records: the interval of a median is less than half of
    the chosen one.
    """
    groups, size, steps = 300, 400, 127
    space = groups_of(groups, size, steps)
    source = np.random.default_rng(3)
    drawn = {
        "normal": normal(groups, size, steps, seed=2),
        "uniform": source.integers(0, steps + 1, (groups, size)),
        "heaped": 10 * source.integers(0, 12, (groups, size)),
        "one": np.full((groups, size), 77),
    }[values]
    rows = histograms(drawn, steps)
    mechanism = select_mechanism(space, Budget.gdp(1))
    assert mechanism.scale == 8  # Δ2² = 2²(2·7 + 2)
    found = measured(space, mechanism, rows, seed=4)
    shares = held(found, drawn, rows)
    slack = 4 * math.sqrt(0.95 * 0.05 / groups)
    assert all(share > 0.95 - slack for share in shares.values()), shares
    if values != "normal":
        return
    (median,) = found.quantiles(["1/2"])
    ranks = rank_space(
        space.dataspace, space.adjacency, space.outcome, space.blocks, ["1/2"], level=LEVEL
    )
    chooser = exponential_mechanism(ranks, Budget.gdp(1))
    (chosen,) = GroupQuantiles(chooser, chooser.measure(rows, SeededRandomness(5))).intervals()
    width, other = (
        float((median.upper - median.lower).mean()),
        float((chosen.upper - chosen.lower).mean()),
    )
    # half a step to each side is that of rounding
    assert 2.2 < width - 1 < 3.2
    assert 6.5 < other - 1 < 8.5
    assert shares["q0.5"] >= 0.96


def test_a_chosen_median_alone_is_closer() -> None:
    """One point alone: a median without an interval is better chosen."""
    groups, size, steps = 300, 400, 127
    space = groups_of(groups, size, steps)
    values = normal(groups, size, steps, seed=6)
    rows, truth = histograms(values, steps), true_quantile(values, Fraction(1, 2))
    found = measured(space, select_mechanism(space, Budget.gdp(1)), rows, seed=7)
    ranks = rank_space(space.dataspace, space.adjacency, space.outcome, space.blocks)
    chooser = exponential_mechanism(ranks, Budget.gdp(1))
    chosen = GroupQuantiles(chooser, chooser.measure(rows, SeededRandomness(8))).values()[:, 0]
    errors = [
        float(np.abs(point - truth).mean())
        for point in (found.quantiles(["1/2"])[0].values, chosen)
    ]
    assert errors[1] < 0.6 * errors[0]


@pytest.mark.parametrize("budget", [Budget.gdp(1), Budget.zcdp("1/2"), Budget.pure(2)], ids=str)
@pytest.mark.parametrize("adjacency", [Ball(2), Exchange(2)], ids=str)
def test_levels_are_kept_by_all_laws_of_noise(budget: Budget, adjacency: Adjacency) -> None:
    groups, size, steps = 400, 90, 20
    space = groups_of(groups, size, steps, adjacency)
    values = normal(groups, size, steps, seed=9)
    rows = histograms(values, steps)
    shares = held(measured(space, select_mechanism(space, budget), rows, seed=10), values, rows)
    slack = 4 * math.sqrt(0.95 * 0.05 / groups)
    assert len(shares) == 5
    assert all(share > 0.95 - slack for share in shares.values()), shares
    assert shares["band"] < 0.99


def test_a_level_stated_from_half_the_noise_is_found_out() -> None:
    """The twin: intervals for noise of half the scale hold far less often, all of them."""
    groups, size, steps = 400, 90, 20
    space = groups_of(groups, size, steps)
    values = np.random.default_rng(11).integers(0, steps + 1, (groups, size))
    rows = histograms(values, steps)
    mechanism = select_mechanism(space, Budget.gdp(1))
    noisy = mechanism.measure(space.apply_query(rows), SeededRandomness(12))
    shares = held(
        GroupDistributions(with_scale(mechanism, mechanism.scale / 2), noisy), values, rows
    )
    slack = 4 * math.sqrt(0.95 * 0.05 / groups)
    assert all(share < 0.95 - slack for share in shares.values()), shares


def test_coarse_noise_needs_its_own_law() -> None:
    """z·sd holds 0.888 of the time where noise is coarse; the law of the noise
    does not.
    """
    space = two_wards(1, Ball(1))
    worst = 1.0
    for hundredths in range(20, 90, 5):
        mechanism = with_scale(select_mechanism(space, Budget.gdp(1)), hundredths / 100)
        law = mechanism.sampler
        places = np.arange(-60, 61)
        chances = np.array([float(law.pmf(int(place))) for place in places])
        (half,) = pointwise_half_widths(mechanism, LEVEL)
        assert chances[np.abs(places) / 2 <= half + 1e-12].sum() >= 0.95
        worst = min(worst, float(chances[np.abs(places) <= 1.96 * math.sqrt(law.variance)].sum()))
    assert worst < 0.93  # the twin


def test_half_widths_hold_as_often_as_the_law_says() -> None:
    """200,000 draws of the errors at every value of a small tree: the level within four standard
    errors.
    """
    space = groups_of(1, 100, 10)
    mechanism = select_mechanism(space, Budget.gdp(3))
    errors = count_up_to(
        space.tree, mechanism.noises(200_000, SeededRandomness(13)), np.zeros(200_000)
    )
    slack = 4 * math.sqrt(0.95 * 0.05 / 200_000)
    inside = (np.abs(errors) <= pointwise_half_widths(mechanism, LEVEL) + 1e-9).mean(axis=0)
    assert (inside > 0.95 - slack).all()
    assert (inside < 0.97).all()
    together = (np.abs(errors) <= band_half_widths(mechanism, LEVEL)).all(axis=1).mean()
    assert 0.95 - slack < together < 0.965


def test_a_band_is_a_band() -> None:
    """It grows, lies within 0 and n, and holds the estimate; intervals hold theirs."""
    space = groups_of(50, 30, 40)
    rows = histograms(normal(50, 30, 40, seed=14), 40)
    found = measured(space, select_mechanism(space, Budget.gdp(1)), rows, seed=15)
    low, high = found.band()
    estimate = found.up_to()
    for curve in (low, estimate, high):
        assert (np.diff(curve, axis=1) >= 0).all()
        assert curve.min() >= 0
        assert curve.max() <= 30
    lower, upper = found.bounds()
    for one, other in ((low, estimate), (estimate, high), (lower, estimate), (estimate, upper)):
        assert (one <= other).all()
    for part in found.quantiles(Q):
        assert (part.lower <= part.values).all()
        assert (part.values <= part.upper).all()


def test_counts_that_are_in_order_stay() -> None:
    rows = np.cumsum(np.random.default_rng(16).integers(0, 3, (20, 9)), axis=1).astype(float)
    assert in_order(rows, np.full(20, 100)).tolist() == rows.tolist()


def test_groups_without_records_have_no_quantiles() -> None:
    schema = Schema([Feature("ward", ["a", "b"])])
    public = Dataspace.from_table(Table(schema, [30, 0]), [Margin("ward")])
    space = distribution_space(public, Ball(1), Outcome("score", 0, 3, 3), [Margin("ward")])
    rows = np.array([[5, 10, 10, 5], [0, 0, 0, 0]])
    found = measured(space, select_mechanism(space, Budget.gdp(1)), rows, seed=17)
    (median,) = found.quantiles(["1/2"])
    assert np.isfinite(median.values).tolist() == [True, False]
    assert np.isfinite(found.shares_below(2).values).tolist() == [True, False]
    assert found.unbiased_counts()[1].tolist() == [0, 0, 0]


def test_what_is_no_quantile_is_refused() -> None:
    space = two_wards(3)
    found = measured(
        space,
        select_mechanism(space, Budget.gdp(1)),
        np.array([[30, 0, 0, 0], [20, 0, 0, 0]]),
        seed=18,
    )
    for probability in (0, 1, "3/2"):
        with pytest.raises(InputError, match="between 0 and 1"):
            found.quantiles([probability])
    with pytest.raises(InputError, match="a line lies above 0"):
        found.shares_below(0)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_an_interval_of_a_quantile_is_never_empty(size: int) -> None:
    """Tiny groups under heavy noise: the rank of the quantile is between 1 and n, so that some
    value is possible.
    """
    space = groups_of(300, size, 9)
    values = np.random.default_rng(19).integers(0, 10, (300, size))
    found = measured(
        space, select_mechanism(space, Budget.gdp("1/4")), histograms(values, 9), seed=20
    )
    for probability, part in zip(Q, found.quantiles(Q), strict=True):
        truth = true_quantile(values, probability)
        assert (part.lower <= part.upper).all()
        assert ((part.lower <= truth) & (truth <= part.upper)).mean() > 0.9
