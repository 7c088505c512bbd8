"""The law of x11 in a 2×2 table with known margins: Fisher's noncentral hypergeometric distribution.

`TwoByTwo` is the public totals; `TwoByTwo.law(odds_ratio)` is the distribution of the one free count, accurate in its
far tails. Noise and tests live beside this module.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError

_TAIL = 700.0  # nats below the mode at which a probability leaves the window: e^-700 is about 1e-304


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

    @property
    def mean(self) -> float:
        """The expectation."""
        return float(self.first + self.pmf @ np.arange(len(self.pmf)))

    def mirrored(self) -> "IntegerLaw":
        """Return the law of -H.

        >>> IntegerLaw(2, np.array([0.25, 0.75])).mirrored().first
        -3
        """
        return IntegerLaw(-self.last, self.pmf[::-1])


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
        if not (0 <= self.row <= self.n and 0 <= self.column <= self.n):
            raise InputError("the margins of a 2×2 table must lie between 0 and the number of records n")

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
        """Return the distribution of x11 given the margins, ``P(H = x) ∝ C(t1·, x) C(t2·, t·1 - x) ω^x``.

        Sums of log-ratios outward from the mode keep the relative error near 1e-12 where log-gamma functions would
        lose half of the digits for a million records; probabilities under 1e-300 are left out (Cho and Awan,
        section on semi-private UMPU testing).

        Examples
        --------
        >>> TwoByTwo(2, 2, 4).law().pmf.round(4)
        array([0.1667, 0.6667, 0.1667])
        >>> TwoByTwo(2, 2, 4).law(odds_ratio=4.0).pmf.round(4)
        array([0.0303, 0.4848, 0.4848])
        """
        if not odds_ratio > 0 or not math.isfinite(odds_ratio):
            raise InputError(f"an odds ratio must be a positive number, not {odds_ratio}")
        return self._central if odds_ratio == 1 else self.law_at(math.log(odds_ratio))

    @cached_property
    def _central(self) -> IntegerLaw:
        return self.law_at(0.0)

    def law_at(self, log_odds: float) -> IntegerLaw:
        """Return the same distribution for an odds ratio given by its logarithm.

        >>> TwoByTwo(2, 2, 4).law_at(-800.0).pmf.round(4)
        array([1.])
        """
        mode = self._mode(log_odds)
        first, last = self._window(mode)
        x = np.arange(first, last, dtype=np.float64)
        steps = np.log((self.row - x) * (self.column - x)) - np.log((x + 1) * (self.n - self.row - self.column + x + 1))
        steps += log_odds
        height = np.zeros(last - first + 1)
        centre = mode - first
        height[centre + 1 :] = np.cumsum(steps[centre:])
        height[:centre] = -np.cumsum(steps[:centre][::-1])[::-1]
        kept = np.flatnonzero(height > height.max() - _TAIL)
        weights = np.exp(height[kept[0] : kept[-1] + 1])
        pmf = weights / weights.sum()
        pmf.setflags(write=False)
        return IntegerLaw(first + int(kept[0]), pmf)

    def _mode(self, log_odds: float) -> int:
        """The x after which the probabilities fall: their ratio decreases in x, so bisection finds it."""
        low, high = self.low, self.high
        while low < high:
            x = (low + high) // 2
            if self._log_ratio(x) + log_odds > 0:
                low = x + 1
            else:
                high = x
        return low

    def _log_ratio(self, x: int) -> float:
        rest = self.n - self.row - self.column
        return math.log((self.row - x) * (self.column - x)) - math.log((x + 1) * (rest + x + 1))

    def _window(self, mode: int) -> tuple[int, int]:
        """A range that holds every probability above e^-700 of the largest; the curvature at the mode sets it."""
        cells = (mode, self.row - mode, self.column - mode, self.n - self.row - self.column + mode)
        spread = math.sqrt(1 / sum(1 / (cell + 1) for cell in cells))
        reach = int(40 * spread) + 800
        return max(self.low, mode - reach), min(self.high, mode + reach)
