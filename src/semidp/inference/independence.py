"""Independence in a noisy table with public margins: exact by Monte Carlo, at no cost in privacy.

Given the margins a table of independent features is multivariate hypergeometric, stratum by
stratum, and the noise of a published table has a known law: so has their sum. What was published,
and by which noise, is the business of `release`.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.promise.noise.randomness import Randomness, generator

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
_BLOCK = 4_000_000  # numbers that are drawn at once
_MOST_RECORDS = 10**9  # of the sampler


@dataclass(frozen=True)
class Independence:
    """A test of independence on published noisy counts.

    Parameters
    ----------
    rows, columns, strata
        The features: independent are rows and columns, given the strata where there are any.
    table, noise
        Which published table was tested, and the law of its noise.
    statistic
        The sum of squared distances from the expected counts, each in units of its variance under
        independence, noise included.
    expected
        The mean of the statistic under independence: the number of cells that can vary.
    p_value
        ``(1 + number of simulated statistics at least as large) / (1 + draws)``.
    draws
        How many were simulated.
    notes
        What a reader must know.
    noisy_totals
        The features whose totals are noisy: the p-value then is the largest over plausible totals.
    """

    rows: str
    columns: str
    strata: tuple[str, ...]
    table: str
    noise: str
    statistic: float
    expected: int
    p_value: float
    draws: int
    notes: tuple[str, ...] = ()
    noisy_totals: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the test as plain values."""
        lists = {name: list(getattr(self, name)) for name in ("strata", "notes", "noisy_totals")}
        return asdict(self) | lists


def random_tables(rows: Counts, columns: Counts, count: int, source: np.random.Generator) -> Counts:
    """Draw tables of independent rows and columns given their margins, cell by cell from
    hypergeometric laws.

    Parameters
    ----------
    rows, columns
        The margins, one column a stratum: shapes (r, k) and (c, k).

    Returns
    -------
    Tables of shape (count, r, c, k).

    Examples
    --------
    >>> tables = random_tables(
    ...     np.array([[3], [2]]), np.array([[4], [1]]), 2, np.random.default_rng(0)
    ... )
    >>> tables.sum(axis=1)[..., 0].tolist(), tables.sum(axis=2)[..., 0].tolist()
    ([[4, 1], [4, 1]], [[3, 2], [3, 2]])
    """
    if int(rows.sum(axis=0).max(initial=0)) >= _MOST_RECORDS:
        raise Refused(
            "tables with a stratum of 10^9 records or more are not simulated: test a coarser"
            " question"
        )
    left = np.broadcast_to(columns, (count, *columns.shape)).copy()
    tables = np.zeros((count, len(rows), *columns.shape), dtype=np.int64)
    for i, total in enumerate(rows[:-1]):
        need = np.broadcast_to(total, (count, len(total))).copy()
        pool = left.sum(axis=1)
        for j in range(len(columns) - 1):
            pool -= left[:, j]
            drawn = source.hypergeometric(left[:, j], pool, need)
            tables[:, i, j] = drawn
            need -= drawn
        tables[:, i, -1] = need
        left -= tables[:, i]
    tables[:, -1] = left
    return tables


def independence_test(
    estimate: Floats,
    rows: Counts,
    columns: Counts,
    variances: Floats,
    errors: Callable[[int, Randomness], Floats],
    draws: int,
    randomness: Randomness,
) -> tuple[float, int, float]:
    """Return the statistic, its mean under independence and the p-value of a noisy table with
    public margins.

    ``Σ (y - e)² / (v + τ²)`` with e the means given the margins, v the hypergeometric variance and
    τ² that of the noise. The published and the simulated statistics are exchangeable under
    independence, whatever the law of the noise, so that ``(1 + #{S* >= S}) / (1 + draws)`` is a
    valid p-value for every number of draws (Davison and Hinkley, section 4.2).

    Parameters
    ----------
    estimate, variances
        The noisy table and the variances of its noise, of shape (r, c, k) with k strata.
    rows, columns
        The public margins, of shapes (r, k) and (c, k).
    errors
        Draws the noise of that many tables.
    """
    check_draws(draws)
    n = rows.sum(axis=0)
    size = np.maximum(n, 1).astype(np.float64)
    mean = rows[:, None] * (columns[None] / size)
    spread = mean * (n - rows)[:, None] / size * (n - columns)[None] / np.maximum(n - 1, 1)
    free = spread > 0
    if not free.any():
        raise Refused(
            "the margins leave only one table (in every stratum), so that there is nothing to test"
        )
    scale = np.where(free, 1 / np.where(free, spread + variances, 1.0), 0.0)
    statistic = float(((estimate - mean) ** 2 * scale).sum())
    source, larger = generator(randomness), 0
    bound = statistic * (1 - 1e-9)  # equal statistics may differ in their last digits
    for count in blocks(draws, estimate.size):
        off = random_tables(rows, columns, count, source) - mean + errors(count, randomness)
        larger += int(np.count_nonzero((off**2 * scale).sum(axis=(1, 2, 3)) >= bound))
    return statistic, int(free.sum()), (1 + larger) / (1 + draws)


def check_draws(draws: int) -> None:
    """Refuse fewer draws than a test at 0.05 needs."""
    if draws < 19:
        raise InputError(f"a Monte Carlo test needs at least 19 draws, such as 9999, not {draws}")


def blocks(draws: int, size: int) -> list[int]:
    """Return how many to draw at a time, so that a block of tables of that size fits in memory.

    >>> blocks(10, 2_000_000)
    [2, 2, 2, 2, 2]
    """
    at_once = max(1, min(draws, _BLOCK // max(size, 1)))
    return [at_once] * (draws // at_once) + ([draws % at_once] if draws % at_once else [])


def simulated_bound(sizes: Floats, level: float) -> float:
    """Return a bound that a further number of the same law stays within with probability `level`,
    counting the draws.

    It is the ``ceil((1 + draws) level)``-th smallest of the simulated sizes: all orders are equally
    likely.

    >>> simulated_bound(np.arange(99.0), 0.95)
    94.0
    """
    rank = math.ceil((1 + len(sizes)) * level - 1e-9)
    return float(np.partition(sizes, rank - 1)[rank - 1]) if rank <= len(sizes) else math.inf
