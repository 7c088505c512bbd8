"""Which mechanism: by its name, or by the least expected loss among those that satisfy the budget.

The choice reads the public totals, the adjacency, the budget and the schema, through the
sensitivity space, and never the data. Each mechanism states its own guarantee.
"""

import math

from semidp.errors import InputError, Refused
from semidp.promise.accounting.recorded_queries import FOR_RELEASES
from semidp.promise.mechanisms.additive import (
    DiscreteGaussianMechanism,
    L2Mechanism,
    LaplaceMechanism,
    LatticeGaussianMechanism,
    RoundedGaussianMechanism,
)
from semidp.promise.mechanisms.knorm import KNormMechanism
from semidp.promise.mechanisms.mechanism import Mechanism, NoNoise
from semidp.promise.sensitivity.products import product_space
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.sensitivity.table_spaces import TableSpace
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.residual_mechanism import ResidualMechanism

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
    """Return every mechanism for releases that satisfies a budget on a space, the least expected
    loss first.

    Noise on the lattice comes before the next best only where it saves a twentieth of the variance,
    as for `choose`. A mechanism that cannot serve the space (too large, or not of a shape it knows)
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
        What is measured, and what may be spent.
    among
        What is chosen from.

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
    """Return noise on the residuals of one table of counts where it saves a twentieth of a
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
    # Pricing residuals takes long, and is left out where it is known to gain little.
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

    With one residual that varies, its squared length is that of the move, so that its noise needs
    the same σ² where the norms are attained. What it may save is the rounding of the noise, at most
    1/12 a cell, which is little beside σ² >= 4.
    """
    normal = (
        isinstance(best, (DiscreteGaussianMechanism, RoundedGaussianMechanism))
        and best.sigma2 >= _FINE
    )
    return normal and space.exact and space.one_residual


def table_mechanism(space: QuerySpace, budget: Budget, name: str = AUTO) -> Mechanism:
    """Return how one table is measured: as `select_mechanism` says, or on its residuals where that
    saves a twentieth.

    Both announce their total variance from public values. Below a twentieth the table is measured
    cell by cell, which serves later computations better.

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
        What would be used.
    budget
        What may be spent.
    name
        The mechanism that was asked for.

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
    """Return a mechanism by its short name. Where the public totals fix the table, it adds no
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

    Only mechanisms with exact claims serve: the rounded Gaussian for GDP, the discrete Gaussian for
    zCDP, the discrete Laplace for pure budgets, the best of the three for (ε, δ).

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
