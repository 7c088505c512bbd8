"""Choice of a mechanism, by name or by the least expected loss within the budget, and the
alternatives that its noise is compared with.

The choice depends on the public totals, the adjacency, the budget and the schema, through the
sensitivity space, never on the data. Each mechanism states its own guarantee. The alternatives at
the same guarantee are ordinary differential privacy, tables measured one by one, and the least
variance of any additive Gaussian noise; no claim rests on them.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import singledispatch

import numpy as np

from semidp.errors import InputError, Refused
from semidp.promise.accounting.recorded_queries import FOR_RELEASES
from semidp.promise.mechanisms.additive import (
    DiscreteGaussianMechanism,
    L2Mechanism,
    LaplaceMechanism,
    LatticeGaussianMechanism,
    NormalNoise,
    RoundedGaussianMechanism,
)
from semidp.promise.mechanisms.canonical_cell import CanonicalMechanism
from semidp.promise.mechanisms.knorm import KNormMechanism
from semidp.promise.mechanisms.linked_noise import LinkedNoise
from semidp.promise.mechanisms.mechanism import Mechanism, NoNoise
from semidp.promise.noise.canonical import canonical_noise
from semidp.promise.schema.margins import Floats, View, join, junction_order, list_axes
from semidp.promise.sensitivity.costs import BallCosts
from semidp.promise.sensitivity.orthogonal_parts import list_coarser_views
from semidp.promise.sensitivity.products import ProductSpace, product_space
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.sensitivity.table_spaces import TableSpace, sensitivity_space
from semidp.promise.tradeoff.budget import Budget
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
    """Return the cost of one record of each kind under noise on residuals if links and exact totals
    were ignored.
    """
    raise TypeError("only noise on residuals has costs")


@naive_cost.register
def _(mechanism: LinkedNoise) -> Fraction:
    return sum((naive_cost(part) for part in mechanism.parts if part.sigma2), Fraction(0))


@naive_cost.register
def _(mechanism: ResidualMechanism) -> Fraction:
    """Cost of one record if the exact totals were ignored: ``Σ k/σ²`` with the costs k of one
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

    Each table needs noise for its own Δ2², under the same adjacency. None if the tables are
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

    None if no lower bound is proved (`least_total`), and where the noise was not
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
    published count is at least the number of records that move. Otherwise, or without a finite
    bound, None.
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


EXACT: tuple[type[Mechanism], ...] = (
    RoundedGaussianMechanism,
    DiscreteGaussianMechanism,
    LaplaceMechanism,
)
"""Mechanisms for sums of an outcome: whole-number noise and exact claims only."""

EXACT_NAMES = ("gaussian", "laplace")
"""Names of the exact mechanisms in a plan."""

NAMES: dict[str, tuple[type[Mechanism], ...]] = {
    "gaussian": (RoundedGaussianMechanism, DiscreteGaussianMechanism),
    "laplace": (LaplaceMechanism,),
    "knorm": (KNormMechanism,),
    "l2": (L2Mechanism,),
    "lattice": (LatticeGaussianMechanism,),
}
"""Mechanisms by their names in a plan and on the command line."""


_MOST_CELLS, _MOST_EXCHANGED, _MOST_FEATURES = 4096, 24, 6  # of a table whose residuals are tried
_WORTH = 0.95
_FINE = 4  # σ² from which noise on the lattice has the variance of noise in single cells
# cells up to which it is tried: the order of its draws takes 200 bytes each
_MOST_ON_LATTICE = 200_000

AUTO = "auto"
"""Name, in a plan, of the mechanism with the least expected loss."""


def option_name(mechanism: Mechanism) -> str:
    """Return the name of a mechanism in a plan and on the command line.

    >>> from semidp.promise.mechanisms.examples import two_way
    >>> option_name(choose(two_way()[0], Budget.gdp(1)))
    'gaussian'
    """
    for name, laws in NAMES.items():
        if type(mechanism) in laws:
            return name
    return mechanism.name


def available(space: QuerySpace, budget: Budget) -> tuple[Mechanism, ...]:
    """Return every mechanism for releases that satisfies a budget on a space, by increasing
    expected loss.

    Noise on the lattice comes before the next best only if it saves a twentieth of the variance,
    as for `choose`. A mechanism that does not support the space (too large, or of the wrong shape)
    is left out.

    >>> from semidp.promise.mechanisms.examples import two_way
    >>> space, _ = two_way()
    >>> for mechanism in available(space, Budget.zcdp("0.5")):
    ...     print(
    ...         mechanism.name,
    ...         mechanism.scale,
    ...         round(mechanism.expected_l2, 3),
    ...         mechanism.claim,
    ...     )
    discrete gaussian 2.0 2.828 exact
    lattice gaussian 2.0 2.828 exact
    """
    mechanisms, _ = _attempts(space, budget, FOR_RELEASES)
    if len(mechanisms) > 1:
        best, second, *later = mechanisms
        if isinstance(best, LatticeGaussianMechanism) and not _worth(best, second):
            return second, best, *later
    return mechanisms


def choose(
    space: QuerySpace, budget: Budget, among: tuple[type[Mechanism], ...] = FOR_RELEASES
) -> Mechanism:
    """Return the mechanism with the least expected loss, ``sqrt(E‖P·noise‖²)``, that satisfies a
    budget on a space.

    Parameters
    ----------
    space, budget
        The query space, and the budget.
    among
        The candidates.

    Examples
    --------

    >>> from semidp.promise.mechanisms.examples import two_way
    >>> choose(two_way()[0], Budget.gdp(1)).name
    'rounded gaussian'
    """
    # Lattice noise is tried last, and only against coarse noise: see `_on_lattice`.
    laws = tuple(law for law in among if law is not LatticeGaussianMechanism)
    mechanisms, refusals = _attempts(space, budget, laws)
    if not mechanisms:
        raise refusals[0]
    return _on_lattice(space, budget, mechanisms[0]) or mechanisms[0]


def _on_lattice(
    space: QuerySpace, budget: Budget, best: Mechanism
) -> LatticeGaussianMechanism | None:
    """Lattice noise where it saves a twentieth of the variance: coarse noise only.

    It is drawn more slowly than noise in single cells, and a ledger knows it under fewer other
    exact totals.
    """
    if (
        not isinstance(best, (DiscreteGaussianMechanism, RoundedGaussianMechanism))
        or best.sigma2 >= _FINE
    ):
        return None
    too_large = math.prod(space.shape) > _MOST_ON_LATTICE
    if too_large or budget.kind not in LatticeGaussianMechanism.budget_kinds:
        return None
    try:
        lattice = LatticeGaussianMechanism.calibrate(space, budget)
    except Refused:  # other exact totals than one margin, or two that cover the table
        return None
    return lattice if _worth(lattice, best) else None


def _worth(other: Mechanism, best: Mechanism) -> bool:
    """Whether a mechanism saves a twentieth of another's variance."""
    return other.expected_l2**2 <= _WORTH * best.expected_l2**2


def _attempts(
    space: QuerySpace, budget: Budget, laws: tuple[type[Mechanism], ...]
) -> tuple[tuple[Mechanism, ...], list[Refused]]:
    if space.is_zero:
        return (NoNoise.calibrate(space, budget),), []
    mechanisms, refusals = [], []
    for law in laws:
        if budget.kind in law.budget_kinds:
            try:
                mechanisms.append(law.calibrate(space, budget))
            except Refused as refusal:
                refusals.append(refusal)
    return tuple(sorted(mechanisms, key=lambda mechanism: mechanism.expected_l2)), refusals


def residual_plan(space: QuerySpace, budget: Budget, best: Mechanism) -> ResidualMechanism | None:
    """Return noise on the residuals of one table of counts if it saves a twentieth of a
    mechanism's variance.

    It is tried for Gaussian noise and for tables that are small enough to price their residuals at
    once.

    >>> from semidp.promise.mechanisms.examples import two_way
    >>> space, _ = two_way()
    >>> # One residual: the same noise
    >>> residual_plan(space, Budget.gdp(1), choose(space, Budget.gdp(1))) is None
    True
    """
    if (
        not isinstance(space, TableSpace)
        or space.is_zero
        or budget.kind not in ResidualMechanism.budget_kinds
    ):
        return None
    largest = space.adjacency.by_kind(ball=_MOST_CELLS, exchange=_MOST_EXCHANGED)
    if space.schema.size > largest or len(space.schema.features) > _MOST_FEATURES:
        return None
    # Pricing residuals takes long, and is left out if it is known to gain little.
    if _one_residual_suffices(space, best):
        return None
    try:
        product = product_space(space.dataspace, space.adjacency, [space.schema.names])
        mechanism = ResidualMechanism.calibrate(product, budget)
    except Refused:  # structural zeros, joint margins with empty cells
        return None
    return mechanism if _worth(mechanism, best) else None


def _one_residual_suffices(space: TableSpace, best: Mechanism) -> bool:
    """Whether noise on residuals is known to save less than a twentieth of the variance before any
    is priced.

    With one residual that varies, its squared length is that of the move, so its noise needs
    the same σ² where the norms are attained. What it may save is the rounding of the noise, at most
    1/12 a cell, which is little compared with σ² >= 4.
    """
    normal = (
        isinstance(best, (DiscreteGaussianMechanism, RoundedGaussianMechanism))
        and best.sigma2 >= _FINE
    )
    return normal and space.exact and space.one_residual


def table_mechanism(space: QuerySpace, budget: Budget, name: str = AUTO) -> Mechanism:
    """Return the mechanism of one table: that of `select_mechanism`, or noise on its residuals if
    that saves a twentieth.

    Both total variances follow from public values. Below a twentieth the table is measured cell by
    cell, which suits later computations better.

    >>> from semidp.promise.mechanisms.examples import two_way
    >>> table_mechanism(two_way()[0], Budget.gdp(1)).name
    'rounded gaussian'
    """
    mechanism = select_mechanism(space, budget, name)
    other = residual_plan(space, budget, mechanism) if name == AUTO else None
    return mechanism if other is None else other


def with_exact_claim(mechanism: Mechanism, budget: Budget, name: str = AUTO) -> Mechanism:
    """Return a mechanism if its claim is exact, else the best one with an exact claim; refuse one
    asked for by name.

    A claim is exact if it holds for the numbers that the computer draws, and ideal if its proof is
    for real numbers.

    Parameters
    ----------
    mechanism
        The preferred mechanism.
    budget
        The budget.
    name
        The name of the mechanism in the request.

    Examples
    --------
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> best = choose(two_way()[0], Budget.pure(1))
    >>> best.claim, with_exact_claim(best, Budget.pure(1)).name
    ('ideal', 'laplace')
    """
    if mechanism.claim == "exact":
        return mechanism
    if name != AUTO:
        raise InputError(
            f"the plan asks for exact claims, and {name} noise makes an ideal one: leave the"
            f" mechanism out, or choose {' or '.join(EXACT_NAMES)}"
        )
    exact = tuple(law for law in FOR_RELEASES if law.claim == "exact")
    best = choose(mechanism.space, budget, exact)
    return residual_plan(mechanism.space, budget, best) or best


def calibrate_mechanism(name: str, space: QuerySpace, budget: Budget) -> Mechanism:
    """Return a mechanism by its short name. If the public totals fix the table, it adds no
    noise.

    ``gaussian`` is the discrete Gaussian for a zCDP budget and the rounded one for the others.

    >>> from semidp.promise.mechanisms.examples import two_way
    >>> calibrate_mechanism("laplace", two_way()[0], Budget.pure(1)).scale
    4.0
    """
    if name not in NAMES:
        raise InputError(f"there is no mechanism {name!r}; there are {', '.join(NAMES)}")
    if space.is_zero:
        return NoNoise.calibrate(space, budget)
    fitting = [law for law in NAMES[name] if budget.kind in law.budget_kinds]
    # Where none of them serves the budget, the first refuses and says what would.
    return (fitting or NAMES[name])[0].calibrate(space, budget)


def outcome_mechanism(space: QuerySpace, budget: Budget, name: str = AUTO) -> Mechanism:
    """Return the mechanism with the least expected loss that satisfies a budget, or the one of a
    given name.

    Only mechanisms with exact claims are used: the rounded Gaussian for GDP, the discrete Gaussian
    for zCDP, the discrete Laplace for pure budgets, the best of the three for (ε, δ).

    >>> from semidp.promise.schema.outcome import Outcome
    >>> from semidp.promise.sensitivity.outcome_spaces import sum_space
    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.spaces.dataspace import Dataspace, Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> wards = Table(Schema([Feature("ward", ["a", "b"])]), [30, 20])
    >>> public = Dataspace.from_table(wards, [Margin("ward")])
    >>> space = sum_space(public, Ball(2), Outcome("score", 0, 1, steps=100), [Margin("ward")])
    >>> outcome_mechanism(space, Budget.gdp(1)).scale
    200.0
    """
    if space.is_zero:
        return NoNoise.calibrate(space, budget)
    if name in EXACT_NAMES:
        return calibrate_mechanism(name, space, budget)
    if name != AUTO:
        raise InputError(
            f"there is no mechanism {name!r} for sums of an outcome; there are auto,"
            f" {', '.join(EXACT_NAMES)}"
        )
    laws = [law for law in EXACT if budget.kind in law.budget_kinds]
    mechanisms = [law.calibrate(space, budget) for law in laws]
    return min(mechanisms, key=lambda mechanism: mechanism.expected_l2)


def select_mechanism(space: QuerySpace, budget: Budget, name: str = AUTO) -> Mechanism:
    """Return the mechanism called `name`, or the one with the least expected loss. Only public
    values decide.

    >>> from semidp.promise.mechanisms.examples import two_way
    >>> select_mechanism(two_way()[0], Budget.gdp(1)).name
    'rounded gaussian'
    """
    if space.exact_claims_only:
        return outcome_mechanism(space, budget, name)
    return choose(space, budget) if name == AUTO else calibrate_mechanism(name, space, budget)
