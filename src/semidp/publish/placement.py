"""Placement of the noise of a product: how much each residual gets, for the best
tables.

Proposals are floating-point σ² with cost one; `residual_noise` scales them to a budget and
certifies them. The closed form uses the cost of each residual; the joint cost of all of them allows
less noise, and a convex program places it still better if that gains half a percent: from gains v
(what unit noise in a residual adds to all tables) and bounds on the joint cost of all residuals.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from attrs import frozen

from semidp.errors import InputError
from semidp.promise.schema.margins import Floats, View
from semidp.promise.sensitivity.joint_costs import JointBound
from semidp.promise.sensitivity.products import ProductSpace
from semidp.publish.product_estimates import compute_cell_variances

Oracle = Callable[[Floats], tuple[float, Floats]]
"""Cost of noise: for τ = 1/σ² the largest ``q·τ`` over all moves, and the q of that move."""

_SHARE_ROUNDS = 400
_SHARE_CLOSE = 1e-3
_STEPS = 2_000  # of the program that has the cuts so far
_TINY = 1e-300


def allocate(costs: Sequence[float], gains: Sequence[float], precision: float) -> list[float]:
    """Return the σ² that minimize ``Σ v σ²`` among those with ``Σ k/σ² <= precision``.

    The precision is μ² for GDP and 2ρ for zCDP. ``σ_d² = sqrt(k_d/v_d) Σ sqrt(v k) / precision``,
    by the inequality of Cauchy and Schwarz; the minimum is ``(Σ sqrt(v k))² / precision``. With the
    costs of add/remove adjacency it is the allocation of ResidualPlanner (xiao2023optimal).

    >>> [round(x, 9) for x in allocate([2.0, 8.0], [1.0, 1.0], 1.0)]
    [6.0, 12.0]
    """
    pairs = list(zip(costs, gains, strict=True))
    total = sum(math.sqrt(k * v) for k, v in pairs)
    return [math.sqrt(k / v) * total / precision for k, v in pairs]


def allocate_largest(costs: Sequence[float], gains: Floats, precision: float) -> list[float]:
    """Return σ² whose largest ``Σ_d V_wd σ_d²`` over tables w is within 0.1% of the least possible.

    The dual weighs the tables: for each weighting the best noise is `allocate`; weights grow where
    the error is largest until the largest error and the weighted one agree.

    >>> gains = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> [round(x, 2) for x in allocate_largest([2.0, 2.0], gains, 1.0)]
    [4.0, 4.0]
    """
    weights = np.full(len(gains), 1 / len(gains))
    best, squares = math.inf, [0.0] * len(costs)
    for _ in range(_SHARE_ROUNDS):
        pulled = np.maximum(weights @ gains, 1e-12 * gains.max())
        sigma2 = allocate(costs, pulled.tolist(), precision)
        errors = gains @ np.array(sigma2)
        if errors.max() < best:
            best, squares = float(errors.max()), sigma2
        if best <= (1 + _SHARE_CLOSE) * float(weights @ errors):
            break
        weights = weights * errors
        weights = weights / weights.sum()
    return squares


@frozen(eq=False)
class Solution:
    """Noise under a joint cost of at most one.

    Parameters
    ----------
    tau
        1/σ² of each residual, such that the oracle's cost is one.
    total
        ``Σ v/τ``.
    least
        A lower bound of the total for any noise that hides the moves found by the oracle.
    """

    tau: Floats
    total: float
    least: float


def solve(gains: Floats, oracle: Oracle, start: Floats, rounds: int, close: float) -> Solution:
    """Minimize ``Σ v/τ`` among the τ that cost at most one, by cutting planes (kelley1960cutting).

    Every move from the oracle is a cut ``q·τ <= 1``. The program with the cuts so far has the dual
    ``max 2 Σ sqrt(v Q'λ) - Σ λ``; its solution goes to the oracle, which returns another move. The
    first cuts are the worst moves of each residual alone, and that of `start`.

    Parameters
    ----------
    gains, oracle
        v, and the cost.
    start
        The initial τ.
    rounds
        The largest number of moves to ask for, besides those of single residuals.
    close
        The required closeness of the total to its lower bound.

    Examples
    --------
    Two residuals, of which no move touches both: each may cost as much as the whole budget.

    >>> def oracle(tau):
    ...     worst = int(tau[1] > tau[0])
    ...     return float(tau[worst]), np.eye(2)[worst]
    >>> solution = solve(np.array([1.0, 4.0]), oracle, np.array([0.5, 0.5]), 50, 1e-4)
    >>> solution.tau.round(3), round(solution.total, 3), round(solution.least, 3)
    (array([1., 1.]), 5.0, 5.0)
    """
    units = np.eye(len(gains)) * float(start.mean())
    cuts = [oracle(unit)[1] for unit in units]
    cost, squares = oracle(start)
    cuts.append(squares)
    total = float((gains / start).sum()) * cost
    best = Solution(start / cost, total, 0.0)
    if not (np.array(cuts).max(axis=0) > 0).all():
        return best  # some residual is touched by no move: the program would take its noise away
    weights = np.ones(len(cuts))
    for _ in range(rounds):
        rows = np.array(cuts)
        weights = _dual(rows, gains, weights)
        least = max(best.least, lower_bound(rows, gains, weights))
        pulled = np.maximum(rows.T @ weights, _TINY)
        tau = np.sqrt(gains / pulled)
        cost, squares = oracle(tau)
        # Divided by its cost any τ is allowed, so this total can be reached.
        total = float((gains / tau).sum()) * cost
        if np.isfinite(total) and total < best.total:
            best = Solution(tau / cost, total, least)
        best = Solution(best.tau, best.total, least)
        if best.total <= (1 + close) * least:
            break
        cuts.append(squares)
        # The old weights are a good start for the next program; the new cut gets a typical one.
        weights = np.append(weights, weights.mean())
    return best


def lower_bound(cuts: Floats, gains: Floats, weights: Floats) -> float:
    """Return a lower bound of ``Σ v/τ`` for every τ > 0 with ``q·τ <= 1`` for each cut q.

    For any weights λ >= 0, ``(Σ sqrt(v Q'λ))² / Σ λ``: by Cauchy and Schwarz it is at most
    ``Σ v/τ · λ'Qτ / Σ λ``. Rounded down; 0 if no cut touches some residual.

    >>> lower_bound(np.array([[2.0, 8.0]]), np.array([1.0, 1.0]), np.array([1.0]))
    17.9999999...
    """
    is_weighting = (weights >= 0).all() and weights.sum() > 0
    if not is_weighting or not (cuts.max(axis=0) > 0).all():
        return 0.0
    pulled = np.maximum(cuts.T @ weights, 0.0)
    root_sum = float(np.sqrt(gains * pulled).sum())
    value = root_sum**2 / float(weights.sum())
    return value * (1 - 1e-9) if math.isfinite(value) else 0.0


def _dual(cuts: Floats, gains: Floats, start: Floats) -> Floats:
    """Return weights of the cuts, near the best; every weighting gives a valid lower bound."""
    from scipy.optimize import minimize

    # in units of the best multiple of the start, the weights are of order one
    pulled = np.maximum(cuts.T @ start, _TINY)
    root_sum = np.sqrt(gains * pulled).sum()
    unit = max(float(root_sum / start.sum()) ** 2, _TINY)
    root_unit = math.sqrt(unit)

    def negative(weights: Floats) -> tuple[float, Floats]:
        slopes = np.maximum(cuts.T @ weights, 1e-14)
        roots = np.sqrt(gains * slopes)
        value = 2 * roots.sum() / root_unit - weights.sum()
        gradient = cuts @ np.sqrt(gains / slopes) / root_unit - 1
        return -float(value), -gradient

    bounds = [(0, None)] * len(start)
    options: Any = {"maxiter": _STEPS, "maxfun": 2 * _STEPS, "ftol": 1e-13, "gtol": 1e-8}
    solved = minimize(negative, start, jac=True, bounds=bounds, method="L-BFGS-B", options=options)
    weights: Floats = np.maximum(solved.x, 0.0)
    if np.isfinite(weights).all() and weights.sum() > 0:
        return weights * unit
    return start


_WORTH = 0.995  # the share of the variance from which on the program takes the closed form's place
CLOSE = 1e-3  # how near the program comes to its own lower bound
ROUNDS = 80
_MOST_RESIDUALS = 400
_MOST_WORK = 4_000_000_000  # values of combinations over all moves that the program asks for


class Objective(StrEnum):
    """The objective of the placement of noise.

    >>> [str(objective) for objective in Objective]
    ['total', 'largest']
    """

    total = "total"
    largest = "largest"


@frozen(slots=False, eq=False)
class Workload:
    """The tables, weights and objective for which the noise of a product is placed.

    Parameters
    ----------
    space
        The residuals of the product.
    weights
        How much the variance of each table counts.
    objective
        The total variance of all tables, or the largest standard error.
    """

    space: ProductSpace
    weights: tuple[float, ...]
    objective: Objective = Objective.total

    @classmethod
    def from_weights(
        cls, space: ProductSpace, weights: Sequence[float] | None, objective: Objective
    ) -> "Workload":
        """Check the weights, one per table; without weights all tables count equally."""
        tables = len(space.views)
        chosen = [1.0] * tables
        if weights is not None:
            chosen = [float(weight) for weight in weights]
        positive = all(math.isfinite(weight) and weight > 0 for weight in chosen)
        if len(chosen) != tables or not positive:
            raise InputError("every table of a product has one weight, a positive number")
        return cls(space, tuple(chosen), objective)

    @cached_property
    def gains(self) -> Floats:
        """Variance that unit noise in each residual adds: to the weighted total, or to each table's
        largest.
        """
        if self.objective is Objective.largest:
            return self._largest_gains()
        gains = []
        for view in self.space.measured_residuals:
            of_tables = []
            for number in self.space.holders[view]:
                gain = self.space.residuals.gain(view, self.space.views[number])
                of_tables.append(self.weights[number] * gain)
            gains.append(sum(of_tables))
        return np.array(gains)

    def _largest_gains(self) -> Floats:
        """For each table the largest variance of a cell for unit noise in each residual."""
        space = self.space
        place = {view: number for number, view in enumerate(space.measured_residuals)}
        rows = np.zeros((len(space.views), len(space.measured_residuals)))
        for number, weight in enumerate(self.weights):
            for view in space.inside[number]:
                unit, part = np.zeros(space.shape), space.parts[view]
                unit[part] = space.scales[part].astype(float) ** 2
                largest = float(compute_cell_variances(space, unit, number).max())
                rows[number, place[view]] = weight * largest
        return np.asarray(rows[rows.any(axis=1)])

    def total(self, sigma2: Mapping[View, Fraction] | Mapping[View, float]) -> float:
        """Return the value of the objective for some noise, without the rounding to whole numbers.

        >>> from semidp.promise.mechanisms.examples import two_way
        >>> from semidp.promise.sensitivity.products import product_space
        >>> both, table = two_way()
        >>> space = product_space(both.dataspace, both.adjacency, [table.schema.names])
        >>> Workload.from_weights(space, None, Objective.total).total(
        ...     {(1, 1): 4.0}
        ... )  # two degrees of freedom
        8.0
        """
        squares = np.array([float(sigma2[view]) for view in self.space.measured_residuals])
        if not len(squares):
            return 0.0
        return float(np.max(self.gains @ squares))


def closed_form(workload: Workload) -> dict[View, float]:
    """Return the best σ² whose costs, residual by residual, sum to one (`allocate`)."""
    measured = workload.space.measured_residuals
    costs = [float(workload.space.cost[view]) for view in measured]
    if not costs:
        return {}
    if workload.objective is Objective.total:
        squares = allocate(costs, workload.gains.tolist(), 1.0)
    else:
        squares = allocate_largest(costs, workload.gains, 1.0)
    return dict(zip(measured, squares, strict=True))


def place_noise(workload: Workload) -> dict[View, float]:
    """Return the best σ² that the search finds, with a joint cost of about one.

    This is the closed form scaled down by what the joint cost saves, or the solution of the convex
    program ``min Σ v/τ`` with ``Σ τ_d |H_d M_d m|² <= 1`` for every move m (docs/products.md),
    where that needs at most 99.5% of it.
    """
    key = ("placed", workload.weights, workload.objective)
    if key not in workload.space.result_cache:
        workload.space.result_cache[key] = _search_placement(workload)
    noise: dict[View, float] = workload.space.result_cache[key]
    return noise


def _search_placement(workload: Workload) -> dict[View, float]:
    measured = workload.space.measured_residuals
    start = 1 / np.array(list(closed_form(workload).values()))
    # every bound holds, so the least of them may be used
    bounds = workload.space.costs.bounds(measured)
    costs = [bound.upper(start) for bound in bounds]
    best = start / min(costs)
    if workload.objective is Objective.total:
        limit = _WORTH * float((workload.gains / best).sum())
        for bound in bounds:
            tau = _solve_program(workload, bound.choose_parts(start), start)
            total = float((workload.gains / tau).sum())
            if total <= limit:
                best, limit = tau, total
    return dict(zip(measured, (1 / best).tolist(), strict=True))


def _solve_program(workload: Workload, bound: JointBound, start: Floats) -> Floats:
    """Return τ of the convex program under one bound, or the start scaled where it is too much
    work.
    """
    # the program asks for the worst move of each residual first, and then once a round
    calls = len(start) + ROUNDS
    cost = bound.worst(start)[0]
    too_long = len(start) > _MOST_RESIDUALS or bound.work * calls > _MOST_WORK
    if bound.is_sum or len(start) < 2 or too_long:
        return start / cost
    return solve(workload.gains, bound.worst, start / cost, ROUNDS, CLOSE).tau
