"""How much noise each residual gets: closed forms, and the convex program of the joint cost.

Everything here works on plain numbers: gains v (what unit noise in a residual adds to all tables),
costs, and bounds of what all residuals cost together. What comes out is a proposal in floating
point; `residuals` makes it exact and keeps it within the budget.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Oracle = Callable[[Floats], tuple[float, Floats]]
"""Cost of noise: for τ = 1/σ² the largest ``q·τ`` over all moves, and the q of that move."""

_ROUNDS = 400
_CLOSE = 1e-3
_STEPS = 2_000  # of the program that has the cuts so far
_TINY = 1e-300


def allocate(costs: Sequence[float], gains: Sequence[float], precision: float) -> list[float]:
    """Return the σ² that minimise ``Σ v σ²`` among those with ``Σ k/σ² <= precision``.

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
    for _ in range(_ROUNDS):
        pulled = np.maximum(weights @ gains, 1e-12 * gains.max())
        sigma2 = allocate(costs, pulled.tolist(), precision)
        errors = gains @ np.array(sigma2)
        if errors.max() < best:
            best, squares = float(errors.max()), sigma2
        if best <= (1 + _CLOSE) * float(weights @ errors):
            break
        weights = weights * errors
        weights = weights / weights.sum()
    return squares


@dataclass(frozen=True, eq=False)
class Solution:
    """Noise under a joint cost of at most one.

    Parameters
    ----------
    tau
        1/σ² of each residual, such that the oracle's cost is one.
    total
        ``Σ v/τ``.
    least
        A lower bound of the total for any noise that hides the moves which the oracle showed.
    """

    tau: Floats
    total: float
    least: float


def solve(gains: Floats, oracle: Oracle, start: Floats, rounds: int, close: float) -> Solution:
    """Minimise ``Σ v/τ`` among the τ that cost at most one, by cutting planes (kelley1960cutting).

    Every move that the oracle shows is a cut ``q·τ <= 1``. The program with the cuts so far has the
    dual ``max 2 Σ sqrt(v Q'λ) - Σ λ``; its solution is offered to the oracle, which shows another
    move. The first cuts are the worst moves of each residual alone, and that of `start`.

    Parameters
    ----------
    gains, oracle
        v, and the cost.
    start
        τ to begin with.
    rounds
        How many moves are asked for at most, apart from those of single residuals.
    close
        How near the total must come to its lower bound.

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
        # Divided by its cost any τ is allowed, so that this total can be reached.
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
    ``Σ v/τ · λ'Qτ / Σ λ``. Rounded down; 0 where no cut touches some residual.

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
