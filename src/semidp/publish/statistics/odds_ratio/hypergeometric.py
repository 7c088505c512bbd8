"""The law of x11 in a 2×2 table with known margins: Fisher's noncentral hypergeometric
distribution; and of its sum.

`TwoByTwo` is the public totals; `TwoByTwo.law(odds_ratio)` is the distribution of the one free
count, accurate in its far tails. `Strata` is one such table a stratum, with the sum of their
counts. Noise and tests live beside this module.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError, Refused, SchemaError
from semidp.promise.mechanisms.canonical_cell import CellSpace
from semidp.promise.schema.schema import Schema
from semidp.promise.spaces.dataspace import Dataspace, Margin

# nats below the mode at which a probability leaves the window: e^-700 is about 1e-304
_TAIL = 700.0


@dataclass(frozen=True)
class IntegerLaw:
    """A distribution on consecutive integers: ``P(H = first + i) = pmf[i]``.

    >>> IntegerLaw(2, np.array([0.25, 0.75])).mean
    2.75
    """

    first: int
    pmf: NDArray[np.float64]

    @property
    def last(self) -> int:
        """The largest value with positive probability."""
        return self.first + len(self.pmf) - 1

    @property
    def values(self) -> NDArray[np.int64]:
        """The integers that carry probability."""
        return np.arange(self.first, self.last + 1)

    @cached_property
    def mean(self) -> float:
        """The expectation."""
        steps = np.arange(len(self.pmf))
        return float(self.first + np.sum(self.pmf * steps))

    @property
    def variance(self) -> float:
        """The variance."""
        return float(np.sum(self.pmf * self._deviations**2))

    @property
    def _deviations(self) -> NDArray[np.float64]:
        """The distances of the values from the mean."""
        steps = np.arange(len(self.pmf), dtype=np.float64)
        return steps - (self.mean - self.first)

    def mirror(self) -> "IntegerLaw":
        """Return the law of -H.

        >>> IntegerLaw(2, np.array([0.25, 0.75])).mirror().first
        -3
        """
        return IntegerLaw(-self.last, self.pmf[::-1])

    def plus(self, other: "IntegerLaw") -> "IntegerLaw":
        """Return the law of the sum of two independent numbers, by direct convolution.

        Only positive numbers are added up, so that every probability keeps its relative accuracy: a
        sum of w products has a relative error of at most ``(w + 1) 2^-52``. Probabilities under
        e^-700 of the largest are left out.

        >>> coin = IntegerLaw(0, np.array([0.5, 0.5]))
        >>> coin.plus(coin).pmf
        array([0.25, 0.5 , 0.25])
        """
        pmf = np.convolve(self.pmf, other.pmf)
        smallest_kept = pmf.max() * math.exp(-_TAIL)
        kept = np.flatnonzero(pmf > smallest_kept)
        first = self.first + other.first + int(kept[0])
        return IntegerLaw(first, pmf[kept[0] : kept[-1] + 1])

    def tilt(self, log_ratio: float) -> "IntegerLaw":
        """Return the law with ``P(x) e^{θ x}`` in proportion: laws of x11 for all odds ratios are
        tilts of one.

        >>> one, other = TwoByTwo(2, 2, 4).law(), TwoByTwo(2, 2, 4).law(odds_ratio=4.0)
        >>> bool(np.allclose(one.tilt(math.log(4.0)).pmf, other.pmf))
        True
        """
        height = np.log(self.pmf) + log_ratio * np.arange(len(self.pmf))
        below_mode = np.maximum(height - height.max(), -_TAIL)
        weights = np.exp(below_mode)
        return IntegerLaw(self.first, weights / weights.sum())

    @property
    def upper_moments(self) -> "IntegerLaw":
        """``W(x) ∝ E[(H - μ) 1{H > x}]`` for x from the first value to the last but one, scaled to
        sum 1.

        By summation by parts ``Cov(H, G(H)) = Var(H) Σ W(x) (G(x + 1) - G(x))`` for any function G;
        every W is summed from the side on which all terms have one sign.

        >>> IntegerLaw(0, np.array([0.25, 0.5, 0.25])).upper_moments.pmf
        array([0.5, 0.5])
        """
        moments = self.pmf * self._deviations
        above = np.cumsum(moments[:0:-1])[::-1]
        below = -np.cumsum(moments[:-1])
        weights = np.where(moments[1:] > 0, above, below)
        return IntegerLaw(self.first, np.maximum(weights, 0.0) / weights.sum())


@dataclass(frozen=True)
class TwoByTwo:
    """The public margins of a 2×2 table: row total t1·, column total t·1, and n.

    The first declared level of each feature is level 1, so the free count x11 lies between
    ``low = max(0, t1· + t·1 - n)`` and ``high = min(t1·, t·1)``.

    >>> margins = TwoByTwo(row=7, column=5, n=10)
    >>> margins.low, margins.high, margins.degenerate
    (2, 5, False)
    """

    row: int
    column: int
    n: int

    def __post_init__(self) -> None:
        row_fits = 0 <= self.row <= self.n
        column_fits = 0 <= self.column <= self.n
        if not row_fits or not column_fits:
            raise InputError(
                "the margins of a 2×2 table must lie between 0 and the number of records n"
            )

    @property
    def low(self) -> int:
        """The smallest x11 that the margins allow."""
        return max(0, self.row + self.column - self.n)

    @property
    def high(self) -> int:
        """The largest x11 that the margins allow."""
        return min(self.row, self.column)

    @property
    def degenerate(self) -> bool:
        """Whether the margins leave only one table, so that there is nothing to test."""
        return self.low == self.high

    def law(self, odds_ratio: float = 1.0) -> IntegerLaw:
        """Return the distribution of x11 given the margins,
        ``P(H = x) ∝ C(t1·, x) C(t2·, t·1 - x) ω^x``.

        Sums of log-ratios outward from the mode keep the relative error near 1e-12 where log-gamma
        functions would lose half of the digits for a million records; probabilities under 1e-300
        are left out (Cho and Awan, section on semi-private UMPU testing).

        Examples
        --------
        >>> TwoByTwo(2, 2, 4).law().pmf.round(4)
        array([0.1667, 0.6667, 0.1667])
        >>> TwoByTwo(2, 2, 4).law(odds_ratio=4.0).pmf.round(4)
        array([0.0303, 0.4848, 0.4848])
        """
        if not odds_ratio > 0 or not math.isfinite(odds_ratio):
            raise InputError(f"an odds ratio must be a positive number, not {odds_ratio}")
        if odds_ratio == 1:
            return self._central
        return self.law_for_log_odds(math.log(odds_ratio))

    @cached_property
    def _central(self) -> IntegerLaw:
        return self.law_for_log_odds(0.0)

    def law_for_log_odds(self, log_odds: float) -> IntegerLaw:
        """Return the same distribution for an odds ratio given by its logarithm.

        >>> TwoByTwo(2, 2, 4).law_for_log_odds(-800.0).pmf.round(4)
        array([1.])
        """
        mode = self._mode(log_odds)
        first, last = self._window(mode)
        x = np.arange(first, last, dtype=np.float64)
        remaining = self.n - self.row - self.column
        # P(H = x + 1) / P(H = x) at ω = 1 is that of the two pairs of cells that a step changes.
        leaving = (self.row - x) * (self.column - x)
        entering = (x + 1) * (remaining + x + 1)
        steps = log_odds + np.log(leaving / entering)
        height = np.zeros(last - first + 1)
        centre = mode - first
        height[centre + 1 :] = np.cumsum(steps[centre:])
        downward = steps[:centre][::-1]
        height[:centre] = -np.cumsum(downward)[::-1]
        # Smaller weights come close to the smallest normal float, below which digits are lost.
        kept = np.flatnonzero(height > height.max() - _TAIL)
        weights = np.exp(height[kept[0] : kept[-1] + 1])
        pmf = weights / weights.sum()
        pmf.setflags(write=False)
        return IntegerLaw(first + int(kept[0]), pmf)

    def _mode(self, log_odds: float) -> int:
        """The x after which the probabilities fall: their ratio decreases in x, so bisection finds
        it.
        """
        remaining = self.n - self.row - self.column

        def falls(x: int) -> bool:
            leaving = math.log((self.row - x) * (self.column - x))
            entering = math.log((x + 1) * (remaining + x + 1))
            return leaving - entering + log_odds <= 0

        return self.low + bisect_left(range(self.low, self.high), True, key=falls)

    def _window(self, mode: int) -> tuple[int, int]:
        """A range that holds every probability above e^-700 of the largest; the curvature at the
        mode sets it.
        """
        remaining = self.n - self.row - self.column
        cells = (mode, self.row - mode, self.column - mode, remaining + mode)
        curvature = sum(1 / (cell + 1) for cell in cells)
        spread = math.sqrt(1 / curvature)
        # Forty standard deviations take a normal tail to e^-800. Cells of few records have longer
        # tails, like Poisson's, for which 800 further counts are room.
        reach = int(40 * spread) + 800
        return max(self.low, mode - reach), min(self.high, mode + reach)


@dataclass(frozen=True)
class Strata:
    """The public margins of one 2×2 table a stratum, and the sum of their counts, ``T = Σ_k x11k``.

    Given all of the margins and a common odds ratio ω, T is sufficient for ω; its law is the
    convolution of those of the strata (Cochran, Mantel and Haenszel). One stratum is its 2×2 table.

    >>> strata = Strata((TwoByTwo(2, 2, 4), TwoByTwo(1, 2, 3)))
    >>> strata.low, strata.high, strata.n
    (0, 3, 7)
    >>> strata.law().pmf.round(4)
    array([0.0556, 0.3333, 0.5   , 0.1111])
    """

    tables: tuple[TwoByTwo, ...]

    @property
    def low(self) -> int:
        """The smallest sum that the margins allow."""
        return sum(table.low for table in self.tables)

    @property
    def high(self) -> int:
        """The largest sum that the margins allow."""
        return sum(table.high for table in self.tables)

    @property
    def n(self) -> int:
        """The number of records."""
        return sum(table.n for table in self.tables)

    @property
    def degenerate(self) -> bool:
        """Whether the margins leave only one table in every stratum."""
        return self.low == self.high

    def law(self, odds_ratio: float = 1.0) -> IntegerLaw:
        """Return the distribution of the sum given the margins and the common odds ratio."""
        return _sum_law([table.law(odds_ratio) for table in self.tables])

    def law_for_log_odds(self, log_odds: float) -> IntegerLaw:
        """Return the same distribution for an odds ratio given by its logarithm."""
        return _sum_law([table.law_for_log_odds(log_odds) for table in self.tables])


def margins_of(space: CellSpace) -> TwoByTwo | Strata:
    """Return the margins that a test of x11 conditions on."""
    tables = tuple(TwoByTwo(*stratum) for stratum in space.margins)
    return Strata(tables) if space.strata else tables[0]


def _sum_law(laws: list[IntegerLaw]) -> IntegerLaw:
    """The law of the sum of independent numbers; the shortest are convolved first, which costs
    least.
    """
    by_length = sorted(laws, key=lambda law: len(law.pmf))
    return reduce(IntegerLaw.plus, by_length)


def refuse_untestable(schema: Schema, dataspace: Dataspace, rows: str, columns: str) -> None:
    """Refuse features without two levels, impossible cells, and a table that is itself exact.

    Parameters
    ----------
    schema
        The features of the table that is tested.
    dataspace
        What is public.
    rows, columns
        The two features.
    """
    for name in (rows, columns):
        (feature,) = schema.restrict([name]).features  # a depth of a nested feature counts as one
        levels = len(feature.levels)
        if levels != 2:
            raise SchemaError(
                f"an odds ratio needs two levels of {name!r}, not {levels}: keep the records of"
                " two levels, merge numbers into two bins, or declare two levels",
                needs="two levels",
            )
    if schema.possible is not None:
        raise Refused(
            "a 2×2 table with an impossible cell (a structural zero) has no odds ratio to test"
        )
    # An exact joint table gives x11 away: noise would protect nothing and only blur the test.
    if dataspace.publishes(Margin(rows, columns)):
        raise Refused(
            f"the table of {rows} and {columns} is itself published exactly: test it without"
            " noise, or leave that invariant out"
        )
