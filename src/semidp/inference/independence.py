"""Tests of independence in a noisy table: exact by Monte Carlo, at no cost in privacy.

Every test of a release starts from a `CrossedTable`: noisy counts by rows, columns and strata, with
its exact margins. Given the margins a table of independent features is multivariate hypergeometric,
stratum by stratum, and the noise of a published table has a known distribution, so their sum does
too. If the totals of a feature are noisy too, and few, an interval gives the plausible totals. The
largest p-value over those, plus the probability that the interval misses, is a p-value (Berger and
Boos, 1994). Awan and Wang (2024) treat general models in the same spirit, by repro samples. If
there are too many totals to try them all, see `unknown_totals`.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.inference.cell_bounds import CellBounds, whole_interval
from semidp.inference.linear_estimates import (
    SumErrors,
    blocks,
    simulated_bound,
)
from semidp.inference.measured import (
    Measured,
    clustering,
    level_codes,
    measured_table,
    select_public,
)
from semidp.promise.documents import Encodable
from semidp.promise.noise.randomness import Randomness, generator
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.protection import refuse_dependent
from semidp.publish.statistics.odds_ratio.umpu import Alternative
from semidp.publish.statistics.outcomes.noise_law import count_as_large

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

MISS = 0.001
"""The probability that the intervals of noisy totals miss; it is added to the p-value."""

# entries of the matrix from the cells of a table to the sums that are asked for
_LARGEST = 50_000_000


@frozen(slots=False)
class CrossedTable:
    """A measured table summed to rows × columns × strata, with its exact margins in every stratum.

    Parameters
    ----------
    rows, columns, strata
        The features of the test.
    measured
        The published table, with its noise distribution.
    public
        The exact totals.
    """

    rows: str
    columns: str
    strata: tuple[str, ...]
    measured: Measured = field(repr=False)
    public: Dataspace = field(repr=False)

    @property
    def named(self) -> dict[str, Any]:
        """The common part of every answer: the features, the table, and its noise."""
        features = {"rows": self.rows, "columns": self.columns, "strata": self.strata}
        return {**features, "table": self.measured.name, "noise": self.measured.noise_name}

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """Numbers of rows, columns and combinations of strata."""
        _, sizes = level_codes(self.measured.schema, (self.rows, self.columns, *self.strata))
        # All combinations of strata are one axis.
        return sizes[0], sizes[1], math.prod(sizes[2:])

    @cached_property
    def exact(self) -> tuple[bool, bool]:
        """Whether the totals of rows and of columns are exact, within strata."""
        rows, columns = (Margin(side, *self.strata) for side in (self.rows, self.columns))
        return self.public.publishes(rows), self.public.publishes(columns)

    @property
    def noisy_names(self) -> tuple[str, ...]:
        """The features whose totals are noisy."""
        names = zip((self.rows, self.columns), self.exact, strict=True)
        return tuple(name for name, exact in names if not exact)

    @cached_property
    def row_totals(self) -> Counts:
        """The exact totals of rows, one column per stratum; 0 if they are noisy."""
        return self._totals(0)

    @cached_property
    def column_totals(self) -> Counts:
        """The exact totals of columns, one column per stratum; 0 if they are noisy."""
        return self._totals(1)

    def _totals(self, side: int) -> Counts:
        levels = (self.shape[side], self.shape[2])
        if not self.exact[side]:
            return np.zeros(levels, dtype=np.int64)
        name = (self.rows, self.columns)[side]
        return exact_totals(self.public, (name, *self.strata)).reshape(levels)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know: exact totals of rows or columns that no test conditions on."""
        used = ({self.rows, *self.strata}, {self.columns, *self.strata})
        unused = []
        for margin in self.public.margins:
            names = {*margin.names}
            if names & {self.rows, self.columns} and not any(names <= side for side in used):
                unused.append(str(margin))
        if not unused:
            return ()
        return (f"The test does not condition on further exact totals: {', '.join(unused)}.",)

    @cached_property
    def codes(self) -> NDArray[np.intp]:
        """For each cell of the published table the flat number of its cell in `shape`."""
        names = (self.rows, self.columns, *self.strata)
        codes, _ = level_codes(self.measured.schema, names)
        return codes

    @cached_property
    def estimate(self) -> Floats:
        """The noisy counts in `shape`."""
        # Features that the test does not name are summed.
        counts = self.measured.estimate.ravel()
        flat = np.bincount(self.codes, weights=counts, minlength=math.prod(self.shape))
        return np.asarray(flat.reshape(self.shape), dtype=np.float64)

    def pull_weights(self, weights: Floats) -> Floats:
        """Weights on the cells of the published table, from weights on the cells of `shape`.

        The first axis counts the weighted sums.
        """
        self.check_size(len(weights))
        flat = weights.reshape(len(weights), -1)
        return flat[:, self.codes].reshape(len(weights), *self.measured.schema.shape)

    def check_size(self, sums: int) -> None:
        """Refuse more weighted sums of cells than fit in memory."""
        if sums * self.codes.size > _LARGEST:
            raise Refused("this table has too many cells for a simulation: test a coarser one")

    def weigh_noise(self, weights: Floats) -> SumErrors:
        """The errors of weighted sums of the cells of `shape`."""
        return self.measured.weigh_noise(self.pull_weights(weights))


def crossed_table(
    release: "ReleaseValue",
    rows: str,
    columns: str,
    strata: Iterable[str],
    table: str | None,
) -> CrossedTable:
    """Find the table that has the features of a test."""
    strata = tuple(strata)
    names = (rows, columns, *strata)
    measured = measured_table(release, names, table)
    terms = " * ".join(names)
    simpler = " + ".join(" * ".join((side, *strata)) for side in (rows, columns))
    instead = f"semidp model RELEASE '~ {terms}' --against '~ {simpler}'"
    refuse_dependent(clustering(release, measured), instead)
    public = select_public(release, measured)
    if len({measured.schema.axis(name) for name in names}) < len(names):
        raise InputError("rows, columns and strata must be different features, each named once")
    if measured.schema.possible is not None:
        raise Refused(
            "with impossible cells (structural zeros) independence has no meaning here: test a part"
            " without"
        )
    return CrossedTable(rows, columns, strata, measured, public)


def exact_totals(public: Dataspace, names: Sequence[str]) -> Counts:
    """The exact totals of some features, flat, in their order."""
    total = public.value(Margin(*names))
    codes, sizes = level_codes(total.schema, names)
    flat = np.zeros(math.prod(sizes), dtype=np.int64)
    np.add.at(flat, codes, total.counts.ravel())
    return flat


_MOST_RECORDS = 10**9  # of the sampler


@frozen
class Independence(Encodable):
    """A test of independence on published noisy counts.

    Parameters
    ----------
    rows, columns, strata
        The features: independent are rows and columns, given the strata if there are any.
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


def random_tables(rows: Counts, columns: Counts, count: int, source: np.random.Generator) -> Counts:
    """Draw tables of independent rows and columns given their margins, cell by cell from
    hypergeometric laws.

    Parameters
    ----------
    rows, columns
        The margins, one column per stratum: shapes (r, k) and (c, k).

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
    independence, whatever the law of the noise, so ``(1 + #{S* >= S}) / (1 + draws)`` is a
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
            "the margins leave only one table (in every stratum), so there is nothing to test"
        )
    scale = np.where(free, 1 / np.where(free, spread + variances, 1.0), 0.0)
    statistic = float(((estimate - mean) ** 2 * scale).sum())
    source, larger = generator(randomness), 0
    for count in blocks(draws, estimate.size):
        tables = random_tables(rows, columns, count, source)
        off = tables - mean + errors(count, randomness).reshape(tables.shape)
        larger += count_as_large((off**2 * scale).sum(axis=(1, 2, 3)), statistic)
    return statistic, int(free.sum()), (1 + larger) / (1 + draws)


def check_draws(draws: int) -> None:
    """Refuse fewer draws than a test at 0.05 needs."""
    if draws < 19:
        raise InputError(f"a Monte Carlo test needs at least 19 draws, such as 9999, not {draws}")


_MOST_TOTALS = 4000  # combinations of totals that are tried
_MOST_LISTED = 50_000  # before impossible ones are left out
_MOST_DRAWS = 999  # tables for each combination, if there are many


@frozen(eq=False)
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
        Of the simulated tables: the same for all totals, so their p-values differ by the
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
        larger = count_as_large(drawn, seen)
        return (1 + larger) / (1 + len(drawn))


@frozen(eq=False)
class ScoredTotalsTest(TotalsTest):
    """The same for sums of scores: the largest of them, each in units of its standard deviation.

    Parameters
    ----------
    row_scores, column_scores
        One row per sum: of shapes (sums, r) and (sums, c).
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
        """The sums of scores of each table less their means, in standard deviations, one row
        per table.
        """
        n = float(rows.sum())
        off = remove_excess(tables, rows, columns) - np.outer(rows, columns) / n
        totals = np.einsum("qi,nij,qj->nq", self.row_scores, off, self.column_scores)
        one = _variances(self.row_scores, rows)
        other = _variances(self.column_scores, columns)
        variances = one * other / max(n - 1, 1) + self.noise_of_sums + 1e-12
        return np.asarray(totals / np.sqrt(variances))

    def statistics(self, tables: Floats, rows: Counts, columns: Counts) -> Floats:
        """The largest sum of each table, in the requested direction."""
        sums = self.sums(tables, rows, columns)
        if self.alternative is Alternative.GREATER:
            return np.asarray(sums.max(axis=1))
        if self.alternative is Alternative.LESS:
            return np.asarray(-sums.min(axis=1))
        return np.asarray(np.abs(sums).max(axis=1))


def remove_excess(tables: Floats, rows: Counts, columns: Counts) -> Floats:
    """Tables with the excess of their own totals removed in proportion."""
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
    """Return the largest p-value over plausible totals plus `MISS`, and the totals that attain it.

    Valid: let t be the true totals and C the plausible ones. Then
    ``P(p <= α) <= P(t not in C) + P(p(t) + MISS <= α) <= MISS + (α - MISS)``.
    """
    largest, best = 0.0, totals[0]
    for rows, columns in totals:
        value = p_value(rows, columns)
        if value > largest:
            largest, best = value, (rows, columns)
    return min(largest + MISS, 1.0), best


@frozen
class TriedTotals:
    """The result of a test that tries every plausible total.

    Parameters
    ----------
    statistic
        For the totals with the largest p-value.
    z
        The sum of scores for these, if there is one.
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
"""Scores of rows and of columns, one row per sum."""


def tried_totals(
    asked: CrossedTable,
    scores: ScoresOfSums | None,
    alternative: Alternative,
    draws: int,
    randomness: Randomness,
) -> TriedTotals | None:
    """Test independence, or sums of scores, for every plausible total; None if these are too
    many to try.
    """
    check_draws(draws)
    r, c, _ = asked.shape
    cells = np.eye(r * c).reshape(-1, r, c, 1)
    asked.check_size(len(cells))
    noise = asked.weigh_noise(cells)
    # The interval of the totals and the reference of the statistic have draws of their own.
    errors = noise.draw(max(draws, 9999), randomness).reshape(-1, r, c)
    row_sets = _plausible(asked, 0, errors.sum(axis=2))
    column_sets = _plausible(asked, 1, errors.sum(axis=1))
    if row_sets is None or column_sets is None or len(row_sets) * len(column_sets) > _MOST_TOTALS:
        return None
    totals = list(itertools.product(row_sets, column_sets))
    count = min(draws, _MOST_DRAWS) if len(totals) > 20 else draws
    variances = noise.standard_errors.reshape(r, c) ** 2
    reference = noise.draw(count, randomness).reshape(-1, r, c)
    seed = int(randomness.words(1)[0])
    test = TotalsTest(variances, reference, seed)
    if scores is not None:
        centred = [side - side.mean(axis=1, keepdims=True) for side in scores]
        weights = np.einsum("qi,qj->qij", *centred)[..., None]
        of_sums = asked.weigh_noise(weights).standard_errors ** 2
        test = ScoredTotalsTest(variances, reference, seed, *scores, of_sums, alternative)
    estimate = asked.estimate[..., 0]
    p, (rows, columns) = least_favourable(
        totals, lambda one, other: test.p_value(estimate, one, other)
    )
    statistic = float(test.statistics(estimate[None], rows, columns)[0])
    z = None
    if isinstance(test, ScoredTotalsTest) and len(test.row_scores) == 1:
        z = float(test.sums(estimate[None], rows, columns)[0, 0])
    note = (
        f"The totals of {' and '.join(asked.noisy_names)} are noisy: p is the largest over"
        f" {len(totals):,} plausible totals, plus {MISS:g} for the chance that these miss (Berger"
        " and Boos)."
    )
    return TriedTotals(statistic, z, p, count, note)


def _plausible(asked: CrossedTable, side: int, errors: Floats) -> list[Counts] | None:
    """Totals of rows (side 0) or columns (1) that the noise does not rule out; the exact ones where
    published.

    None if there are too many.
    """
    if asked.exact[side]:
        published = asked.column_totals if side else asked.row_totals
        return [published[:, 0]]
    name = asked.columns if side else asked.rows
    n = int(asked.public.n or 0)
    sums = asked.estimate.sum(axis=(1 - side, 2))
    bounds = CellBounds.from_dataspace(asked.public, (name,))
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
