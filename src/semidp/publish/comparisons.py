"""What noise is compared with: ordinary differential privacy, tables measured one by one, and the
least that any additive Gaussian noise needs.

Nothing here is claimed: these are numbers of other noise at the same guarantee.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import singledispatch

import numpy as np

from semidp.errors import Refused
from semidp.promise.mechanisms.additive import NormalNoise
from semidp.promise.mechanisms.canonical_cell import CanonicalMechanism
from semidp.promise.mechanisms.linked_noise import LinkedNoise
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.noise.canonical import canonical_noise
from semidp.promise.schema.margins import Floats, View, join, junction_order, list_axes
from semidp.promise.sensitivity.costs import BallCosts
from semidp.promise.sensitivity.orthogonal_parts import list_coarser_views
from semidp.promise.sensitivity.products import ProductSpace
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.sensitivity.table_spaces import sensitivity_space
from semidp.publish.placement import CLOSE, ROUNDS, Objective, Workload, solve
from semidp.publish.residual_mechanism import ResidualMechanism

_MOST_COMPARED = 64  # tables that are compared with measuring each by itself
_MOST_SEARCHED = 64  # residuals of a product for which a lower bound is looked for
_MOST_AXES = 8  # features whose moves are searched for a lower bound
_STARTS = 6  # of every search for a costly move


@singledispatch
def naive_loss(mechanism: Mechanism) -> float:
    """Return the least expected loss of ordinary differential privacy at the guarantee of a
    mechanism: what it saves.

    One record has the norms `naive` of the space, and group privacy multiplies them by a. For pure
    ε the best of three: Laplace noise in all d entries, ``sqrt(2d) aΔ1/ε``; the l2 mechanism,
    ``sqrt(d(d+1)) aΔ2/ε``; the l∞ mechanism, ``sqrt(d(d+1)(d+2)/3) aΔ∞/ε``. Else Gaussian noise,
    ``sqrt(d/2ρ) aΔ2``.

    >>> from semidp.promise.mechanisms.additive import RoundedGaussianMechanism
    >>> from semidp.promise.tradeoff.budget import Budget
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> mechanism = RoundedGaussianMechanism.calibrate(two_way()[0], Budget.gdp(1))
    >>> mechanism.expected_l2 < naive_loss(mechanism)
    True
    """
    space, epsilon = mechanism.space, mechanism.tradeoff.implied_epsilon()
    once, a = space.naive, space.adjacency.a
    d = math.prod(space.shape)
    if epsilon is not None:
        laplace = 2 * once.l1**2
        l2 = (d + 1) * once.l2_squared
        cube = (d + 1) * (d + 2) / 3
        linf = cube * once.linf**2
        root = math.sqrt(d * min(laplace, l2, linf))
        return root * a / float(epsilon)
    rho = mechanism.tradeoff.implied_rho()  # half of mu squared, for a Gaussian
    assert rho is not None, "every mechanism claims pure epsilon, mu or rho"
    return naive_normal_loss(space, rho)


@naive_loss.register
def _(mechanism: NormalNoise) -> float:
    """Ordinary noise at this ρ, which is half of μ²."""
    rho = Fraction(mechanism.space.l2_squared) / (2 * mechanism.sigma2)
    return naive_normal_loss(mechanism.space, rho)


@naive_loss.register
def _(mechanism: CanonicalMechanism) -> float:
    """The naive mechanism of a single count is canonical too, at the cost of a records."""
    records = max(mechanism.space.adjacency.a, 1)
    return float(canonical_noise(mechanism.curve, records).standard_deviation)


@naive_loss.register
def _(mechanism: LinkedNoise) -> float:
    return math.hypot(*(naive_loss(part) for part in mechanism.parts))


@naive_loss.register
def _(mechanism: ResidualMechanism) -> float:
    """`expected_l2` of ordinary differential privacy, brought to this guarantee by group
    privacy.

    The better of two: noise on the same residuals, and noise on the cells of each table with
    the best split.
    """
    free = BallCosts(mechanism.space.residuals, (), 1)
    a = mechanism.space.adjacency.a
    needed = [view for view in mechanism.space.needed_residuals if any(view)]
    costs = [float(free.cost(view)) * a**2 for view in needed]
    gains = dict.fromkeys(needed, 0.0)
    for table in mechanism.space.views:
        for view in list_coarser_views(table):
            if view in gains:
                gains[view] += mechanism.space.residuals.gain(view, table)
    roots = []
    for cost, gain in zip(costs, gains.values(), strict=True):
        roots.append(math.sqrt(cost * gain))
    together = sum(roots)
    cells = [math.prod(mechanism.space.residuals.shape(view)) for view in mechanism.space.views]
    one_by_one = a * sum(math.sqrt(2 * size) for size in cells)
    return min(together, one_by_one) / math.sqrt(mechanism.precision)


def naive_normal_loss(space: QuerySpace, rho: Fraction) -> float:
    """Return the expected loss of ordinary Gaussian noise that group privacy brings to ρ for all a
    records.
    """
    cells = math.prod(space.shape)
    square = cells * space.naive.l2_squared / (2 * rho)
    return space.adjacency.a * math.sqrt(square)


@singledispatch
def naive_cost(mechanism: Mechanism) -> Fraction:
    """Return what one record of each kind costs of noise on residuals if the links and the exact
    totals were forgotten.
    """
    raise TypeError("only noise on residuals has costs")


@naive_cost.register
def _(mechanism: LinkedNoise) -> Fraction:
    return sum((naive_cost(part) for part in mechanism.parts if part.sigma2), Fraction(0))


@naive_cost.register
def _(mechanism: ResidualMechanism) -> Fraction:
    """Cost of one record if the exact totals were forgotten: ``Σ k/σ²`` with the costs k of one
    record.
    """
    free = BallCosts(mechanism.space.residuals, (), 1)
    spent = 0
    for view, square in mechanism.sigma2.items():
        # rounded up, in multiples of one small unit
        spent += math.ceil(free.cost(view) / square * 2**40)
    return Fraction(spent, 2**40)


def find_separate_loss(mechanism: ResidualMechanism) -> float | None:
    """`expected_l2` of tables measured one by one at this guarantee, with the best split of the
    budget.

    Each table needs noise for its own Δ2², under the same adjacency. None where the tables are
    too many to ask.
    """
    views, space = mechanism.space.views, mechanism.space
    cells = sum(math.prod(space.residuals.shape(view)) for view in views)
    if len(views) > _MOST_COMPARED or cells > 10**6:
        return None
    alone = []
    try:
        for view in views:
            names = space.schema.list_view_names(view)
            alone.append(sensitivity_space(space.dataspace, space.adjacency, names))
    except Refused:
        return None
    parts = []
    for table in alone:
        if not table.is_zero:
            variance = float(table.variances().sum()) * table.l2_squared
            parts.append(math.sqrt(variance))
    return sum(parts) / math.sqrt(mechanism.precision)


def find_excess_variance(mechanism: ResidualMechanism) -> float | None:
    """Excess of the total variance over what any additive Gaussian mechanism needs: 0.02 for
    two percent.

    None where no lower bound is proved (`least_total`), and where the noise was not
    placed for the total.
    """
    if mechanism.workload is None or not mechanism.sigma2:
        return None
    least = least_total(mechanism.workload, mechanism.sigma2)
    if least is None:
        return None
    total = mechanism.workload.total(mechanism.sigma2)
    return total * float(mechanism.precision) / least - 1


def least_total(workload: Workload, sigma2: Mapping[View, Fraction]) -> float | None:
    """Return a lower bound of the total variance of any additive Gaussian mechanism, at a cost of
    one.

    It holds for linear unbiased estimates of the tables under the same promise. If all levels can
    be exchanged, averaging a mechanism over their permutations leaves one of independent residuals
    (docs/products.md), and moves that exist bound the noise of those from below. So features are
    flat or have equal branching, margins are decomposable, no joint cell is impossible, and every
    published count is at least the number of records that move. None elsewhere, and where no finite
    bound was found.
    """
    space = workload.space
    if workload.objective is not Objective.total or not _all_levels_alike(space):
        return None
    measured = space.measured_residuals
    axes = sorted({axis for view in measured for axis in list_axes(view)})
    if len(measured) > _MOST_SEARCHED or len(axes) > _MOST_AXES:
        return None
    families = space.costs.families(axes, join(*measured))
    if not families or not all(family.kept_margins for family in families):
        return None
    depths = []
    for view in measured:
        depths.append(tuple(view[axis] for axis in axes))
    local = tuple(depths)
    generator = np.random.default_rng(0)  # public values only

    # The moves found need not be the worst ones: every move that exists gives a lower bound.
    def costly(tau: Floats) -> tuple[float, Floats]:
        climbs = [family.climb(local, tau, generator, _STARTS) for family in families]
        return max(climbs, key=lambda climb: climb[0])

    tau = np.array([1 / float(sigma2[view]) for view in measured])
    least = solve(workload.gains, costly, tau, ROUNDS // 2, CLOSE).least
    return least if least > 0 else None


def _all_levels_alike(space: ProductSpace) -> bool:
    """Whether every permutation of levels keeps the set of moves: only published depths tell levels
    apart.
    """
    dataspace = space.dataspace
    for chain in space.residuals.grid.chains:
        for depth in range(chain.depth):
            children = chain.children(depth, depth + 1)
            if (children != children[0]).any():
                return False
    views = [margin.view for margin in dataspace.published_totals]
    if space.schema.structural_zeros or (views and junction_order(views) is None):
        return False
    # whether one person can have so many records depends on how many persons there are
    if space.costs.times > 1:
        return False
    # where fewer records have some published value, not every move of so many exists
    records = space.adjacency.by_kind(ball=space.costs.a, exchange=len(views) + 1)
    for margin in dataspace.published_totals:
        counts = space.trim(margin.counts, margin.view).astype(np.int64)
        if (counts < records).any():
            return False
    return bool(dataspace.n is not None and dataspace.n >= records)
