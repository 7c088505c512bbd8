"""Intervals of single cells: their level is that of the law of the noise, summed exactly in small
spaces.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from semidp.promise.mechanisms.additive import (
    DiscreteGaussianMechanism,
    L2Mechanism,
    LaplaceMechanism,
    RoundedGaussianMechanism,
)
from semidp.promise.mechanisms.branch_noise import BranchNoise, Cut
from semidp.promise.mechanisms.knorm import KNormMechanism
from semidp.promise.noise.distributions import DiscreteGaussian, DiscreteLaplace, RoundedGaussian
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import Chain, Grid
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.orthogonal_parts import build_projector
from semidp.promise.sensitivity.products import product_space
from semidp.promise.sensitivity.table_spaces import sensitivity_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.half_widths import (
    LOG_CONCAVE,
    Weighted,
    branch_half_widths,
    cell_half_widths,
    half_width,
    half_widths,
    normal_half_width,
    projection_patterns,
    residual_half_widths,
    table_half_widths,
)
from semidp.publish.noise_laws import bound_log_moment, find_near_normal, transform_law
from semidp.publish.product_estimates import combine_cells
from semidp.publish.residual_mechanism import ResidualMechanism

# what intervals were made of before
NORMAL, LAPLACE = 1.959963984540054, math.log(20) / math.sqrt(2)


def flat(shape, margins, a=3):
    names = "abcd"[: len(shape)]
    schema = Schema(
        [
            Feature(name, [f"{name}{i}" for i in range(size)])
            for name, size in zip(names, shape, strict=True)
        ]
    )
    return sensitivity_space(
        Dataspace.from_table(Table(schema, np.full(shape, 9)), [Margin(*m) for m in margins]),
        Ball(a),
    )


def law_of_sum(terms):
    """The probabilities of Σ weight · number on the multiples of the common denominator, by
    convolution.
    """
    common = math.lcm(*(weight.denominator for _, weight in terms))
    total = np.array([1.0])
    for law, weight in terms:
        step = abs(int(weight * common))
        if step == 0:
            continue
        last = 1
        while law.pmf(np.array([last]))[0] > 1e-13:
            last += 1
        spaced = np.zeros(2 * last * step + 1)
        spaced[::step] = law.pmf(np.arange(-last, last + 1))
        total = np.convolve(total, spaced)
    return total, common


def coverage(terms, half):
    """P(|S| <= half), and a little more for equality."""
    masses, common = law_of_sum(terms)
    places = (np.arange(len(masses)) - len(masses) // 2) / common
    return float(masses[np.abs(places) <= half + 1e-9].sum())


def row_of(space, cell):
    """The weights of one cell's error, from the projection of a unit."""
    unit = np.zeros(space.shape)
    unit.flat[cell] = 1
    return [
        Fraction(float(weight)).limit_denominator(10**4) for weight in space.project(unit).ravel()
    ]


SPACES = {
    "2 x 2": ((2, 2), "ab"),
    "2 x 3": ((2, 3), "ab"),
    "3 x 3": ((3, 3), "ab"),
    "2 x 3, rows": ((2, 3), "a"),
    "two levels": ((2,), ""),
    "2 x 2 x 2": ((2, 2, 2), "abc"),
}
SCALES = [
    *((DiscreteGaussianMechanism, Budget.zcdp(rho)) for rho in ("1/2", 1, 2, 4, 8, 20)),
    *((RoundedGaussianMechanism, Budget.gdp(mu)) for mu in (1, 2, 4, 8)),
    *((LaplaceMechanism, Budget.pure(epsilon)) for epsilon in (2, 5, 10)),
]


@pytest.mark.few(1)
@pytest.mark.parametrize("name", SPACES)
def test_every_interval_has_its_level_by_the_law_of_the_noise(name) -> None:
    space = flat(*SPACES[name])
    checked, short = 0, []
    for kind, budget in SCALES:
        mechanism = kind.calibrate(space, budget)
        reach = LAPLACE if kind is LaplaceMechanism else NORMAL
        for cell in (0, math.prod(space.shape) - 1):
            terms = [(mechanism.sampler, weight) for weight in row_of(space, cell)]
            half = float(cell_half_widths(mechanism).flat[cell])
            assert coverage(terms, half) >= 0.95 - 1e-9, (budget, cell)
            assert half == 0 or coverage(terms, half * 0.99) < 0.95 + 3e-4, (
                budget,
                cell,
                "wider than it need be",
            )
            short.append(coverage(terms, reach * float(mechanism.standard_errors().flat[cell])))
            checked += 1
    assert checked == 2 * len(SCALES)
    assert min(short) < 0.945, (
        "the twin: normal and Laplace quantiles of the standard error are no 95%"
    )


@pytest.mark.parametrize(
    ("name", "a", "rho", "share"), [("2 x 2", 2, 8, 0.9054), ("two levels", 1, 2, 0.8815)]
)
def test_the_coverages_that_were_found_by_attack(name, a, rho, share) -> None:
    noise = DiscreteGaussianMechanism.calibrate(flat(*SPACES[name], a=a), Budget.zcdp(rho))
    terms = [(noise.sampler, weight) for weight in row_of(noise.space, 0)]
    assert coverage(terms, NORMAL * float(noise.standard_errors().flat[0])) == pytest.approx(
        share, abs=1e-4
    )
    assert coverage(terms, float(cell_half_widths(noise).flat[0])) >= 0.95


@pytest.mark.parametrize("budget", [Budget.zcdp(2), Budget.zcdp(16), Budget.gdp(4)], ids=str)
def test_cells_put_together_from_residuals_have_their_level(budget) -> None:
    schema = Schema(
        [
            Feature.from_paths(["state", "county"], [("s", "x"), ("s", "y"), ("t", "z")]),
            Feature("sex", "fm"),
        ]
    )
    public = Dataspace.from_table(Table(schema, np.full(schema.shape, 9)), [Margin("state")])
    space = product_space(public, Ball(2), [["county", "sex"], ["state", "sex"]])
    mechanism = ResidualMechanism.calibrate(space, budget)
    laws, which = mechanism.samplers
    checked = 0
    for number, view in enumerate(space.views):
        halves = table_half_widths(mechanism, number)
        for cell in range(halves.size):
            unit = np.zeros(space.schema.grid.compute_margin_shape(view))
            unit.flat[cell] = 1
            weights = combine_cells(space, {number: unit})
            terms = [
                (laws[which[place]], Fraction(float(weight)).limit_denominator(10**4))
                for place, weight in enumerate(weights)
            ]
            assert coverage(terms, float(halves.flat[cell])) >= 0.95 - 1e-9
            checked += 1
    assert checked == 10


@pytest.mark.parametrize("law", ["discrete", "rounded"])
@pytest.mark.parametrize("square", [Fraction(1, 4), Fraction(1), Fraction(7, 4), Fraction(3)])
def test_an_only_child_has_the_error_of_its_parent(law, square) -> None:
    """States with one, two and three counties: noise below σ² = 2 has no normal number beside it,
    and a weight of 0 makes nothing of an infinite distance.
    """
    counties = np.array([[1, 2, 2, 3, 3, 3]])
    alone = residual_half_widths(law, {(1,): square}, [counties])
    assert alone[0] == 0
    assert np.isfinite(alone).all()
    assert (alone[1:] > 0).all()
    # Beside a feature of two levels that is measured for each county, an only child has its noise.
    noise = {(1, 0): square, (0, 1): square, (1, 1): square}
    crossed = residual_half_widths(law, noise, [counties, np.array([[2, 2]])])
    sampler = {"discrete": DiscreteGaussian, "rounded": RoundedGaussian}[law](4 * square)
    quarter = Fraction(1, 4)
    shared = [Weighted(sampler, quarter, 1), Weighted(sampler, -quarter, 1)]
    assert np.isfinite(crossed).all()
    assert crossed[0] == pytest.approx(half_width(shared, 0.95), rel=1e-6)


def test_the_cells_of_a_part_have_the_intervals_of_the_whole() -> None:
    places = [
        ("s", "x", "1"),
        ("s", "x", "2"),
        ("s", "y", "3"),
        ("t", "z", "4"),
        ("t", "z", "5"),
        ("t", "z", "6"),
    ]
    schema = Schema(
        [Feature.from_paths(["state", "county", "tract"], places), Feature("sex", "fm")]
    )
    counts = np.full(schema.shape, 9)
    counts[1] = 0  # a tract without anybody
    public = Dataspace.from_table(Table(schema, counts), [Margin("tract")])
    space = product_space(public, Ball(2), [["tract", "sex"], ["county", "sex"], ["sex"]])
    mechanism = ResidualMechanism.calibrate(space, Budget.zcdp(6))
    checked = 0
    for depth, nodes in (
        ("state", [slice(0, 3), slice(3, 6)]),
        ("county", [slice(0, 2), slice(2, 3), slice(3, 6)]),
    ):
        cut = Cut.from_name(schema, depth)
        for node, leaves in enumerate(nodes):
            noise = BranchNoise.from_mechanism(mechanism, cut, node)
            assert noise is not None
            whole = table_half_widths(mechanism, 0)[leaves]
            np.testing.assert_allclose(branch_half_widths(noise, 10**6)[0], whole, rtol=1e-9)
            checked += 1
    assert checked == 5


def test_patterns_are_the_rows_of_the_projection() -> None:
    """All margins of small trees and flat features, whole or with cells that cannot occur."""
    source = np.random.default_rng(4)
    trees = [
        Chain(5, ((0, 3), (0, 1, 2, 3, 4))),
        Chain(4, ((0, 1), (0, 1, 2, 3))),
        Chain.flat(3),
        Chain.flat(2),
    ]
    checked = 0
    for chains in itertools.product(trees, repeat=2):
        grid = Grid(chains)
        views = list(itertools.product(*(range(chain.depth + 1) for chain in chains)))
        for _ in range(6):
            margins = [views[number] for number in source.integers(len(views), size=2)]
            domain = None
            if source.integers(2):
                keep = [source.integers(5, size=chain.leaves) > 0 for chain in chains]
                domain = np.logical_and.outer(*keep)
            found = projection_patterns(build_projector(grid, margins, domain))
            assert found is not None
            for cell in range(math.prod(grid.shape)):
                unit = np.zeros(grid.shape)
                unit.flat[cell] = 1
                row = build_projector(grid, margins, domain).project(unit).ravel()
                expected = np.sort(row[np.abs(row) > 1e-12])
                weights = found.weights[int(found.which.flat[cell])]
                actual = np.sort(
                    np.concatenate([[], *([float(w)] * n for w, n in weights.items())])
                )
                np.testing.assert_allclose(actual, expected, atol=1e-9)
                checked += 1
    assert checked > 1000


@pytest.mark.parametrize(
    "law",
    [
        *(DiscreteGaussian(Fraction(variance)) for variance in ("1/9", 3)),
        *(RoundedGaussian(Fraction(variance)) for variance in ("1/5", 7)),
        *(DiscreteLaplace(Fraction(scale)) for scale in ("1/3", 6)),
    ],
    ids=str,
)
def test_laws_know_their_transforms_and_their_tails(law) -> None:
    places = np.arange(-400, 401)
    masses = law.pmf(places)
    for frequency in (-40.0, -3.2, 0.0, 0.4, 3.14, 9.0):
        expected = float((masses * np.cos(frequency * places)).sum())
        assert float(transform_law(law, np.array([frequency]))[0]) == pytest.approx(
            expected, abs=1e-12
        )
    for rate in (0.01, 0.1):
        assert (
            bound_log_moment(law, rate)
            >= math.log(float((masses * np.exp(rate * places)).sum())) - 1e-12
        )
    terms = [Weighted(law, Fraction(2, 5), 1), Weighted(law, Fraction(-1, 10), 3)]
    assert (
        coverage([(law, Fraction(2, 5)), *[(law, Fraction(-1, 10))] * 3], half_width(terms)) >= 0.95
    )


def test_a_discrete_gaussian_is_a_normal_number_moved_by_at_most_one() -> None:
    from scipy.stats import norm

    checked = 0
    for variance in (2, 3, 8, 50, 400):
        law, sigma = DiscreteGaussian(Fraction(variance)), math.sqrt(variance)
        places = np.arange(1, math.ceil(30 * sigma))
        tails = law.pmf(places)[::-1].cumsum()[::-1]
        seen = places[: math.ceil(8 * sigma)]
        assert (norm.sf(seen / sigma) <= tails[: len(seen)] * (1 + 1e-9)).all()
        assert (tails[: len(seen)] <= norm.sf((seen - 1) / sigma) * (1 + 1e-9)).all()
        checked += len(seen)
    assert checked > 200
    assert find_near_normal(DiscreteGaussian(Fraction(1))) is None
    wide = [Weighted(DiscreteGaussian(Fraction(10**6)), Fraction(1), 1)]
    assert half_width(wide) <= 1.005 * (normal_half_width(wide) or 0) <= 1.01 * half_width(wide)
    assert half_widths([[]]) == [0.0]


def test_no_symmetric_log_concave_law_is_wider_than_the_bound() -> None:
    """Random concave logarithms, and cut exponentials, of which the worst is near 4.5; normal
    quantiles would fail.
    """
    source, found = np.random.default_rng(2), []
    edges = np.linspace(0, 1, 4001)
    middles = (edges[1:] + edges[:-1]) / 2

    def reach(logarithm):
        density = np.exp(logarithm - logarithm.max())
        shares = density / density.sum()
        return np.interp(0.95, np.cumsum(shares), edges[1:]) / math.sqrt(
            float((shares * middles**2).sum())
        )

    for rate in np.linspace(0.1, 40, 400):
        found.append(reach(-rate * middles))
    for _ in range(2000):
        starts, slopes = np.sort(source.random(3)), source.gamma(0.5, 10, size=3)
        start = source.integers(2) * starts[0]
        found.append(
            reach(
                -sum(
                    s * np.maximum(middles - (start if i == 0 else at), 0)
                    for i, (s, at) in enumerate(zip(slopes, starts, strict=True))
                )
            )
        )
    assert max(found) < LOG_CONCAVE
    assert max(found) > 2.16 > NORMAL


@pytest.mark.few(2)
@pytest.mark.parametrize("epsilon", [1, 5])
@pytest.mark.parametrize("kind", [KNormMechanism, L2Mechanism])
def test_noise_in_all_directions_has_its_level_too(kind, epsilon) -> None:
    """5,000 fresh draws: five binomial standard deviations below 0.95 have a false alarm rate below
    1e-6.
    """
    for name in ("2 x 3", "2 x 3, rows"):
        mechanism = kind.calibrate(flat(*SPACES[name]), Budget.pure(epsilon))
        zeros = np.zeros(mechanism.space.shape, dtype=np.int64)
        noisy = mechanism.measure_many(zeros, 5_000, SeededRandomness(11))
        errors = np.abs(
            np.stack([mechanism.publish(each) for each in noisy]) - mechanism.publish(zeros)
        )
        held = (errors <= cell_half_widths(mechanism) + 1e-9).mean(axis=0)
        assert held.min() > 0.95 - 5 * math.sqrt(0.95 * 0.05 / 5_000)


@pytest.mark.parametrize("level", [0.95, 0.9999, 0.99999, 0.999999, 1 - 1e-9])
def test_levels_near_one_hold_too(level: float) -> None:
    """Beyond 0.99999 nothing was left of the level, and the half-width was next to 0."""
    law = DiscreteGaussian(Fraction(4))
    values = np.arange(-80, 81)
    chances = np.exp(-(values**2) / 8.0)
    chances /= chances.sum()
    width = half_width([Weighted(law, Fraction(1), 1)], level)
    assert chances[np.abs(values) > width].sum() <= 1 - level
    assert width <= 40
