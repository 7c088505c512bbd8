"""Independence where the totals of a feature are noisy too: valid in finite samples, by the least favourable totals.

Given the true totals the law of a table of independent features is known; an interval says which totals are
plausible. The largest p-value over those, plus the chance that the interval misses, is a p-value (Berger and Boos,
1994). Awan and Wang (2024) treat general models in the same spirit, by repro samples.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from semidp.core.spaces.cell_bounds import CellBounds, whole_interval
from semidp.core.spaces.dataspace import Margin
from semidp.errors import Refused
from semidp.noise.randomness import Randomness
from semidp.questions.crossed import CrossedTable
from semidp.questions.independence import Independence, check_draws, random_tables, simulated_bound

if TYPE_CHECKING:
    from semidp.publishing.release import Release

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

MISS = 0.001
"""How often the interval of the noisy totals misses; it is added to the p-value."""

_MOST_TOTALS = 4000  # combinations of totals that are tried
_MOST_DRAWS = 999  # tables for each combination, where there are many


@dataclass(frozen=True)
class TotalsTest:
    """The statistic of independence for hypothetical totals, and its simulated law.

    The noisy table is first brought to the totals: with row totals R and column totals C of n records, the noise of its
    own totals is taken out in proportion, ``z = y - R(y_+ - C)/n - (y_ᐧ - R)C/n``. The statistic is
    ``Σ (z - RC/n)² / (v + τ²)``, with the hypergeometric variance v and the variance τ² of the noise.

    Parameters
    ----------
    noise
        The variances τ² of the noise of the cells, of shape (r, c).
    errors
        Simulated noise of tables, of shape (draws, r, c).
    seed
        Of the simulated tables: the same for all totals, so that their p-values differ by the totals alone.
    """

    noise: Floats
    errors: Floats
    seed: int

    def statistics(self, tables: Floats, rows: Counts, columns: Counts) -> Floats:
        """The statistic of each table for these totals."""
        n = float(rows.sum())
        mean = np.outer(rows, columns) / n
        spread = mean * np.outer(n - rows, n - columns) / (n * max(n - 1, 1))
        # What the table's own totals have too much is taken out in proportion.
        by_column = tables.sum(axis=1, keepdims=True) - columns
        by_row = tables.sum(axis=2, keepdims=True) - rows[:, None]
        both = by_column.sum(axis=2, keepdims=True)
        excess = rows[:, None] * by_column + by_row * columns - both * mean
        level = tables - excess / n
        variance = spread + self.noise + 1e-12
        off = (level - mean) ** 2 / variance
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


def noisy_totals_test(
    release: "Release", asked: CrossedTable, exact_sides: tuple[bool, bool], draws: int, randomness: Randomness
) -> Independence:
    """Test independence where the totals of one feature, or of both, are noisy and have two levels."""
    check_draws(draws)
    names = (asked.rows, asked.columns)
    for name, exact, levels in zip(names, exact_sides, asked.shape, strict=False):
        if not exact and levels > 2:
            raise Refused(
                f"the totals of {name} are noisy, and {levels} levels have too many plausible totals to try them all: "
                f"publish the totals of {name} exactly, or ask of two levels"
            )
    r, c, _ = asked.shape
    cells = np.eye(r * c).reshape(-1, r, c, 1)
    asked.check_size(len(cells))
    law = asked.noise_law(cells)
    # The interval of the totals and the reference of the statistic have draws of their own.
    errors = law(max(draws, 9999), randomness).reshape(-1, r, c)
    row_sets = _plausible(release, asked, 0, errors.sum(axis=2), exact_sides[0])
    column_sets = _plausible(release, asked, 1, errors.sum(axis=1), exact_sides[1])
    totals = list(itertools.product(row_sets, column_sets))
    if len(totals) > _MOST_TOTALS:
        raise Refused(f"{len(totals):,} totals are plausible beside this noise, too many to try: publish them exactly")
    count = min(draws, _MOST_DRAWS) if len(totals) > 20 else draws
    variances = asked.noise_variances(cells).reshape(r, c)
    reference = law(count, randomness).reshape(-1, r, c)
    seed = int(randomness.words(1)[0])
    test = TotalsTest(variances, reference, seed)
    estimate = asked.estimate[..., 0]
    p, (rows, columns) = least_favourable(totals, lambda one, other: test.p_value(estimate, one, other))
    statistic = float(test.statistics(estimate[None], rows, columns)[0])
    noisy = tuple(name for name, exact in zip(names, exact_sides, strict=True) if not exact)
    notes = (
        f"The totals of {' and '.join(noisy)} are noisy: p is the largest over {len(totals):,} plausible totals, "
        f"plus {MISS:g} for the chance that these miss (Berger and Boos).",
        *asked.notes,
    )
    return Independence(
        asked.rows,
        asked.columns,
        (),
        asked.measured.name,
        asked.measured.noise_name,
        statistic,
        r * c,
        p,
        count,
        notes,
        noisy,
    )


def _plausible(release: "Release", asked: CrossedTable, side: int, errors: Floats, exact: bool) -> list[Counts]:
    """Totals of rows (side 0) or columns (1) that the noise does not rule out; the exact ones where published."""
    if exact:
        published = asked.column_totals if side else asked.row_totals
        return [published[:, 0]]
    name = asked.columns if side else asked.rows
    n = int(release.scope.dataspace.n or 0)
    sums = asked.estimate.sum(axis=(1 - side, 2))
    # Both sides may be noisy: each interval misses half as often.
    half = simulated_bound(np.abs(errors[:, 0]), 1 - MISS / 2)
    bounds = CellBounds.of(release.scope.dataspace, (name,))
    span = (int(bounds.lower[0]), int(bounds.upper[0]))
    centre = float(sums[0])
    low, high = whole_interval(centre - half, centre + half, span)
    return [np.array([value, n - value]) for value in range(int(low), int(high) + 1)]


def exact_sides(release: "Release", rows: str, columns: str, strata: tuple[str, ...]) -> tuple[bool, bool]:
    """Whether the totals of rows and of columns are exact, within strata."""
    public = release.scope.dataspace
    return public.publishes(Margin(rows, *strata)), public.publishes(Margin(columns, *strata))
