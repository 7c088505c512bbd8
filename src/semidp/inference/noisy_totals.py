"""Independence where the totals of a feature are noisy too, and few: valid, by the least favourable
totals.

Given the true totals the law of a table of independent features is known; an interval says which
totals are plausible. The largest p-value over those, plus the chance that the interval misses, is a
p-value (Berger and Boos, 1994). Awan and Wang (2024) treat general models in the same spirit, by
repro samples. Where there are too many totals to try them all, see `unknown_totals`.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from semidp.inference.cell_bounds import CellBounds, whole_interval
from semidp.inference.crossed_table import CrossedTable
from semidp.inference.independence import check_draws, random_tables, simulated_bound
from semidp.inference.measured import select_public
from semidp.inference.unknown_totals import MISS
from semidp.promise.noise.randomness import Randomness
from semidp.promise.spaces.dataspace import Margin
from semidp.publish.statistics.odds_ratio.umpu import Alternative

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

_MOST_TOTALS = 4000  # combinations of totals that are tried
_MOST_LISTED = 50_000  # before impossible ones are left out
_MOST_DRAWS = 999  # tables for each combination, where there are many


@dataclass(frozen=True)
class TotalsTest:
    """The statistic of independence for hypothetical totals, and its simulated law.

    The noisy table is first brought to the totals: with row totals R and column totals C of n
    records, the noise of its own totals is taken out in proportion,
    ``z = y - R(y_+ - C)/n - (y_ᐧ - R)C/n``. The statistic is ``Σ (z - RC/n)² / (v + τ²)``, with the
    hypergeometric variance v and the variance τ² of the noise.

    Parameters
    ----------
    noise
        The variances τ² of the noise of the cells, of shape (r, c).
    errors
        Simulated noise of tables, of shape (draws, r, c).
    seed
        Of the simulated tables: the same for all totals, so that their p-values differ by the
        totals alone.
    """

    noise: Floats
    errors: Floats
    seed: int

    def statistics(self, tables: Floats, rows: Counts, columns: Counts) -> Floats:
        """The statistic of each table for these totals."""
        n = float(rows.sum())
        mean = np.outer(rows, columns) / n
        spread = mean * np.outer(n - rows, n - columns) / (n * max(n - 1, 1))
        variance = spread + self.noise + 1e-12
        off = (remove_excess(tables, rows, columns) - mean) ** 2 / variance
        return np.asarray(off.sum(axis=(1, 2)))

    def p_value(self, table: Floats, rows: Counts, columns: Counts) -> float:
        """Of independence with these totals, by Monte Carlo."""
        seen = float(self.statistics(table[None], rows, columns)[0])
        source = np.random.default_rng(self.seed)
        tables = random_tables(rows[:, None], columns[:, None], len(self.errors), source)[..., 0]
        drawn = self.statistics(tables + self.errors, rows, columns)
        # The published table is one of those that are equally likely, and ties count.
        larger = int(np.count_nonzero(drawn >= seen * (1 - 1e-9)))
        return (1 + larger) / (1 + len(drawn))


@dataclass(frozen=True)
class ScoredTotalsTest(TotalsTest):
    """The same for sums of scores: the largest of them, each in units of its standard deviation.

    Parameters
    ----------
    row_scores, column_scores
        One row a sum: of shapes (sums, r) and (sums, c).
    noise_of_sums
        The variances of the noise of the sums.
    alternative
        Whether sums above 0, below 0 or both count.
    """

    row_scores: Floats
    column_scores: Floats
    noise_of_sums: Floats
    alternative: Alternative

    def sums(self, tables: Floats, rows: Counts, columns: Counts) -> Floats:
        """The sums of scores of each table less their means, in standard deviations, one row a
        table.
        """
        n = float(rows.sum())
        off = remove_excess(tables, rows, columns) - np.outer(rows, columns) / n
        totals = np.einsum("qi,nij,qj->nq", self.row_scores, off, self.column_scores)
        one = _variances(self.row_scores, rows)
        other = _variances(self.column_scores, columns)
        variances = one * other / max(n - 1, 1) + self.noise_of_sums + 1e-12
        return np.asarray(totals / np.sqrt(variances))

    def statistics(self, tables: Floats, rows: Counts, columns: Counts) -> Floats:
        """The largest sum of each table, in the direction that is asked for."""
        sums = self.sums(tables, rows, columns)
        if self.alternative is Alternative.GREATER:
            return np.asarray(sums.max(axis=1))
        if self.alternative is Alternative.LESS:
            return np.asarray(-sums.min(axis=1))
        return np.asarray(np.abs(sums).max(axis=1))


def remove_excess(tables: Floats, rows: Counts, columns: Counts) -> Floats:
    """Tables without what their own totals have too much: it is taken out in proportion."""
    n = float(rows.sum())
    by_column = tables.sum(axis=1, keepdims=True) - columns
    by_row = tables.sum(axis=2, keepdims=True) - rows[:, None]
    both = by_column.sum(axis=2, keepdims=True)
    excess = rows[:, None] * by_column + by_row * columns - both * np.outer(rows, columns) / n
    return np.asarray(tables - excess / n)


def _variances(scores: Floats, totals: Counts) -> Floats:
    """``Σ R (u - ū)²`` for each row of scores."""
    means = scores @ totals / max(float(totals.sum()), 1.0)
    return np.asarray(((scores - means[:, None]) ** 2) @ totals)


def least_favourable(
    totals: Sequence[tuple[Counts, Counts]], p_value: Callable[[Counts, Counts], float]
) -> tuple[float, tuple[Counts, Counts]]:
    """Return the largest p-value over plausible totals plus `MISS`, and the totals that have it.

    Valid: let t be the true totals and C the plausible ones. Then
    ``P(p <= α) <= P(t not in C) + P(p(t) + MISS <= α) <= MISS + (α - MISS)``.
    """
    largest, best = 0.0, totals[0]
    for rows, columns in totals:
        value = p_value(rows, columns)
        if value > largest:
            largest, best = value, (rows, columns)
    return min(largest + MISS, 1.0), best


@dataclass(frozen=True)
class TriedTotals:
    """The answer of a test that tries every plausible total.

    Parameters
    ----------
    statistic
        For the totals with the largest p-value.
    z
        The sum of scores for these, where there is one.
    p_value, draws
        The largest p-value plus `MISS`, and how many tables were simulated for each total.
    note
        What a reader must know.
    """

    statistic: float
    z: float | None
    p_value: float
    draws: int
    note: str


ScoresOfSums = tuple[Floats, Floats]
"""Scores of rows and of columns, one row a sum."""


def tried_totals(
    release: "ReleaseValue",
    asked: CrossedTable,
    sides: tuple[bool, bool],
    scores: ScoresOfSums | None,
    alternative: Alternative,
    draws: int,
    randomness: Randomness,
) -> TriedTotals | None:
    """Test independence, or sums of scores, for every plausible total; None where these are too
    many to try.
    """
    check_draws(draws)
    r, c, _ = asked.shape
    cells = np.eye(r * c).reshape(-1, r, c, 1)
    asked.check_size(len(cells))
    law = asked.noise_law(cells)
    # The interval of the totals and the reference of the statistic have draws of their own.
    errors = law(max(draws, 9999), randomness).reshape(-1, r, c)
    row_sets = _plausible(release, asked, 0, errors.sum(axis=2), sides[0])
    column_sets = _plausible(release, asked, 1, errors.sum(axis=1), sides[1])
    if row_sets is None or column_sets is None or len(row_sets) * len(column_sets) > _MOST_TOTALS:
        return None
    totals = list(itertools.product(row_sets, column_sets))
    count = min(draws, _MOST_DRAWS) if len(totals) > 20 else draws
    variances = asked.noise_variances(cells).reshape(r, c)
    reference = law(count, randomness).reshape(-1, r, c)
    seed = int(randomness.words(1)[0])
    test = TotalsTest(variances, reference, seed)
    if scores is not None:
        centred = [side - side.mean(axis=1, keepdims=True) for side in scores]
        weights = np.einsum("qi,qj->qij", *centred)[..., None]
        of_sums = asked.noise_variances(weights)
        test = ScoredTotalsTest(variances, reference, seed, *scores, of_sums, alternative)
    estimate = asked.estimate[..., 0]
    p, (rows, columns) = least_favourable(
        totals, lambda one, other: test.p_value(estimate, one, other)
    )
    statistic = float(test.statistics(estimate[None], rows, columns)[0])
    z = None
    if isinstance(test, ScoredTotalsTest) and len(test.row_scores) == 1:
        z = float(test.sums(estimate[None], rows, columns)[0, 0])
    noisy = [
        name for name, exact in zip((asked.rows, asked.columns), sides, strict=True) if not exact
    ]
    note = (
        f"The totals of {' and '.join(noisy)} are noisy: p is the largest over {len(totals):,}"
        f" plausible totals, plus {MISS:g} for the chance that these miss (Berger and Boos)."
    )
    return TriedTotals(statistic, z, p, count, note)


def _plausible(
    release: "ReleaseValue", asked: CrossedTable, side: int, errors: Floats, exact: bool
) -> list[Counts] | None:
    """Totals of rows (side 0) or columns (1) that the noise does not rule out; the exact ones where
    published.

    None where there are too many.
    """
    if exact:
        published = asked.column_totals if side else asked.row_totals
        return [published[:, 0]]
    name = asked.columns if side else asked.rows
    public = select_public(release, asked.measured)
    n = int(public.n or 0)
    sums = asked.estimate.sum(axis=(1 - side, 2))
    bounds = CellBounds.from_dataspace(public, (name,))
    # Both sides may be noisy: each side misses half as often; the last level is what the others
    # leave.
    miss = MISS / (2 * (len(sums) - 1))
    ranges = []
    for level in range(len(sums) - 1):
        half = simulated_bound(np.abs(errors[:, level]), 1 - miss)
        span = (int(bounds.lower[level]), int(bounds.upper[level]))
        low, high = whole_interval(float(sums[level]) - half, float(sums[level]) + half, span)
        ranges.append(range(int(low), int(high) + 1))
    if math.prod(len(each) for each in ranges) > _MOST_LISTED:
        return None
    totals = []
    for firsts in itertools.product(*ranges):
        last = n - sum(firsts)
        if int(bounds.lower[-1]) <= last <= int(bounds.upper[-1]):
            totals.append(np.array([*firsts, last]))
    if not totals:
        # The intervals have missed, and which totals are tried then does not matter.
        totals = [_nearest(sums, n)]
    return totals


def _nearest(sums: Floats, n: int) -> Counts:
    """Whole numbers in proportion to noisy sums that add up to n."""
    positive = np.maximum(sums, 0.0) + 1e-9
    ends = np.rint(np.cumsum(positive) / positive.sum() * n).astype(np.int64)
    return np.diff(np.concatenate([[0], ends]))


def exact_sides(release: "ReleaseValue", asked: CrossedTable) -> tuple[bool, bool]:
    """Whether the totals of rows and of columns are exact, within strata."""
    public = select_public(release, asked.measured)
    rows, columns = (Margin(side, *asked.strata) for side in (asked.rows, asked.columns))
    return public.publishes(rows), public.publishes(columns)
