"""What grouped statistics are compared with: ordinary differential privacy, where group counts are private too.

Counts and sums both get noise, and the budget is split between them. These are for studies: real-valued noise, marked
not private, and nothing here is ever chosen for a release.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError
from semidp.noise import Randomness, generator
from semidp.tradeoff import Budget

Floats = NDArray[np.float64]


def baseline_means(
    counts: ArrayLike, totals: ArrayLike, budget: Budget, *, width: float = 1.0, a: int = 2, randomness: Randomness
) -> Floats:
    """Return group means as ordinary differential privacy gives them: a noisy sum over a noisy count.

    At μ for groups of `a` records, one record gets μ/a by group privacy and each of the two queries μ/(a√2). Replacing
    a record moves it between groups, so counts have sensitivity √2 and sums of an outcome in [0, width] √2·width: the
    noise has standard deviations ``2a/μ`` and ``2a·width/μ``. With a = 2 this is μ/(2√2) each; a = 1 is ordinary DP.

    Parameters
    ----------
    counts, totals
        The true group counts, and the true sums of the outcome above its lower bound.
    budget
        A GDP budget.
    width
        The width of the outcome's bounds.
    a
        How many records the guarantee shall cover.
    randomness
        Where random words come from.

    Returns
    -------
    Means above the lower bound. A count below 1 counts as 1.

    Examples
    --------
    >>> from semidp.noise import SeededRandomness
    >>> baseline_means([50, 50], [20, 30], Budget.gdp(100), randomness=SeededRandomness(1)).round(1).tolist()
    [0.4, 0.6]
    """
    sigma = 2 * a / _mu(budget)
    source = generator(randomness)
    noisy_counts = np.asarray(counts, dtype=np.float64) + sigma * source.standard_normal(np.shape(counts))
    noisy_totals = np.asarray(totals, dtype=np.float64) + sigma * width * source.standard_normal(np.shape(totals))
    return np.asarray(noisy_totals / np.maximum(noisy_counts, 1.0))


def baseline_regression(
    rows: ArrayLike, outcomes: ArrayLike, budget: Budget, *, bound: float = 1.0, a: int = 2, randomness: Randomness
) -> Floats:
    """Return regression coefficients as ordinary differential privacy gives them: noisy X'X and noisy X'y.

    Each gets μ/(a√2) for one record, as in `baseline_means`. With rows of length at most 1, replacing a record moves
    X'X by at most √2 in Frobenius norm; with outcomes between -bound and bound it moves X'y by at most 2·bound. The
    noisy X'X is made positive definite by raising its eigenvalues to at least the noise's standard deviation.

    Parameters
    ----------
    rows
        The design, one row a record, of length at most 1.
    outcomes
        The outcomes, centred so that they lie between -bound and bound.
    budget
        A GDP budget.
    bound
        The bound of the outcomes.
    a
        How many records the guarantee shall cover.
    randomness
        Where random words come from.

    Examples
    --------
    >>> from semidp.noise import SeededRandomness
    >>> rows = np.array([[1, -1], [1, 1]] * 200) / math.sqrt(2)
    >>> found = baseline_regression(rows, 0.3 * rows[:, 1], Budget.gdp(100), randomness=SeededRandomness(1))
    >>> np.abs(found).round(1).tolist()
    [0.0, 0.3]
    """
    x, y = np.asarray(rows, dtype=np.float64), np.asarray(outcomes, dtype=np.float64)
    if np.linalg.norm(x, axis=1).max(initial=0) > 1 + 1e-9 or np.abs(y).max(initial=0) > bound * (1 + 1e-9):
        raise InputError("the baseline needs rows of length at most 1 and outcomes within the bound: scale them")
    sigma = a * math.sqrt(2) / _mu(budget)
    source = generator(randomness)
    size = x.shape[1]
    # noise on the upper triangle, off-diagonal entries halved in variance: each counts twice in the Frobenius norm
    upper = np.triu(source.standard_normal((size, size)), 1) / math.sqrt(2)
    noise = upper + upper.T + np.diag(source.standard_normal(size))
    gram = x.T @ x + sigma * math.sqrt(2) * noise
    values, vectors = np.linalg.eigh(gram)
    moments = x.T @ y + sigma * 2 * bound * source.standard_normal(size)
    return np.asarray(vectors @ ((vectors.T @ moments) / np.maximum(values, sigma * math.sqrt(2))))


def _mu(budget: Budget) -> float:
    if budget.mu is None:
        raise InputError("the baselines are Gaussian: give a GDP budget")
    return float(budget.mu)
