"""The semi-private test of an odds ratio, of a 2×2 table or common to strata: p-values, power and
intervals, and the distribution of x11 behind them.

Everything here is a function of public numbers: the margins, the noise distribution, and a
published U = x11 + noise (the sum of x11 over strata). Given the margins, x11 has Fisher's
noncentral hypergeometric distribution, accurate in its far tails. Drawing U from confidential data
lives in `odds_ratio`.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from enum import StrEnum
from functools import cache, cached_property, reduce
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError, Refused, SchemaError
from semidp.promise.exact import format_value
from semidp.promise.mechanisms.canonical_cell import CellSpace
from semidp.promise.noise.canonical import CanonicalNoise, Normal, Tulap
from semidp.promise.schema.schema import Schema
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.publish.written_values import check_level

# nats below the mode at which a probability leaves the window: e^-700 is about 1e-304
_TAIL = 700.0


@frozen(eq=False, slots=False)
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

        Only positive numbers are added up, so every probability keeps its relative accuracy: a
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


@frozen(slots=False)
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

    def __attrs_post_init__(self) -> None:
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
        """Whether the margins leave only one table, so there is nothing to test."""
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


@frozen
class Strata:
    """The public margins of one 2×2 table per stratum, and the sum of their counts, ``T = Σ_k
    x11k``.

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
            if levels == 3 and feature.null_level is not None:
                raise SchemaError(
                    f"an odds ratio needs two levels of {name!r}, and missing values are a third:"
                    f" leave them out (⟨where {name} IS NOT NULL⟩, without null_level)"
                )
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


_BLOCK = 2_000_000  # entries of one (statistics × counts) array
_FARTHEST = 1400.0  # |log odds ratio| past which an end of an interval is 0 or infinity
_SHORTCUT = 32  # from so many statistics on, the knots pay
_ZOOM = np.linspace(-1.0, 1.0, 33)


class Alternative(StrEnum):
    """The alternative of the test: an odds ratio above 1, below 1, or either.

    >>> Alternative("two-sided")
    <Alternative.TWO_SIDED: 'two-sided'>
    """

    GREATER = "greater"
    LESS = "less"
    TWO_SIDED = "two-sided"

    @classmethod
    def _missing_(cls, value: object) -> "Alternative":
        raise InputError(f"the alternative must be {', '.join(cls)}, not {value!r}")


@frozen
class Interval:
    """A confidence interval for the odds ratio: the values that the test does not reject.

    An inversion is `empty` when U lies so far outside the counts that the margins allow that every
    odds ratio is rejected; both ends are then infinity (U too large) or 0 (U too small), the limit
    that fits best.

    >>> 2.0 in Interval(0.5, math.inf, level=0.95)
    True
    """

    low: float
    high: float
    level: float
    empty: bool = False

    def __contains__(self, odds_ratio: float) -> bool:
        return not self.empty and self.low <= odds_ratio <= self.high

    def to_json(self) -> dict[str, Any]:
        """Return the interval as plain values; an infinite end is null.

        >>> Interval(0.5, math.inf, level=0.95).to_json()
        {'low': 0.5, 'high': None, 'level': 0.95, 'empty': False}
        """
        return {
            "low": _finite(self.low),
            "high": _finite(self.high),
            "level": self.level,
            "empty": self.empty,
        }


@frozen
class UmpuTest:
    """The most powerful unbiased semi-private test of ``ω = x11 x22 / (x12 x21)`` given the
    margins.

    ``U = x11 + N`` with canonical noise N; ``p = E[F(H - U)]`` with H hypergeometric, and given the
    table the test rejects with probability ``F(x11 - m(t))`` (Cho and Awan, theorem on the
    semi-private UMPU test; the paper's text defines the inverse of ω, its likelihood and test use
    this one). With strata x11 is the sum over them and H the sum of independent hypergeometric
    numbers. One-sided tests are UMPU if the noise has sensitivity 1, that is, if no further
    invariant raises a(t) above 3 (docs/inference_checks.md has the proof for strata).

    The two-sided test is unbiased: it rejects outside (c1, c2) with ``g(c1) = g(c2)``,
    ``g(u) = Cov(H, F(H - u))``, where the power has its minimum alpha at ω = 1. `two_sided` is the
    most powerful one at a single level; it needs another statistic than U. Noise that is stretched
    and not normal has no such pairs: two equal tails there.

    Parameters
    ----------
    margins
        The public margins, of one table or of several strata.
    noise
        The distribution of N.
    grid
        The width of the grid that U was rounded to; 0 for a U with all its digits. A p-value is the
        probability of the published U or a more extreme one, so a grid makes it valid exactly and
        larger by at most ``grid · max F'``.

    Examples
    --------
    >>> from fractions import Fraction
    >>> test = UmpuTest(TwoByTwo(row=40, column=50, n=100), Tulap(Fraction(1)))
    >>> float(test.p_value(24.0).round(4)), float(test.p_value(24.0, Alternative.LESS).round(4))
    (0.0781, 0.9219)
    """

    margins: TwoByTwo | Strata
    noise: CanonicalNoise
    grid: float = 0.0

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.margins, (TwoByTwo, Strata)):
            raise InputError(
                "the margins of a test are TwoByTwo(row, column, n), such as TwoByTwo(200, 200,"
                f" 400), or Strata of them, not {format_value(self.margins)}"
            )
        if self.margins.degenerate:
            raise Refused(
                "these margins leave only one 2×2 table (a row or column is empty), so there is no"
                " odds ratio to test: choose features that both vary"
            )

    @property
    def is_two_sided_unbiased(self) -> bool:
        """Whether the two-sided test is unbiased: not where the noise is stretched and not
        normal.
        """
        return self.noise.sensitivity == 1 or isinstance(self.noise, Normal)

    def p_value(
        self, u: ArrayLike, alternative: Alternative = Alternative.GREATER, odds_ratio: float = 1.0
    ) -> NDArray[np.float64]:
        """Return the p-value of each published u against the null hypothesis ω = `odds_ratio`.

        Under that odds ratio the p-values are uniform. Relative accuracy is kept far into the tail.
        """
        statistics = np.asarray(u, dtype=np.float64)
        law = self.margins.law(odds_ratio)
        return self._p_value(statistics, Alternative(alternative), law)

    def _p_value(
        self, u: NDArray[np.float64], alternative: Alternative, law: IntegerLaw
    ) -> NDArray[np.float64]:
        # The published u stands for all U that round to it. Counting from the near edge of its grid
        # cell takes in every one of them, so rounding never makes a p-value too small.
        half_cell = self.grid / 2
        if alternative is Alternative.GREATER:
            return _exceedance(law, self.noise, u - half_cell)
        if alternative is Alternative.LESS:
            return _exceedance(law.mirror(), self.noise, -u - half_cell)
        if self.is_two_sided_unbiased:
            return self._balance(law).p_value(u, half_cell)
        # No unbiased pair of thresholds exists here: both one-sided tests run at half of alpha.
        greater = self._p_value(u, Alternative.GREATER, law)
        less = self._p_value(u, Alternative.LESS, law)
        smaller = np.minimum(greater, less)
        return np.asarray(np.minimum(1.0, 2 * smaller))

    def _balance(self, law: IntegerLaw) -> "_Balance":
        return _Balance(law, self.noise, self.margins.high)

    def threshold(self, alpha: float, alternative: Alternative = Alternative.GREATER) -> float:
        """Return m(t): the test rejects at level alpha where U before rounding is beyond it.

        ``E[F(H - m)] = alpha`` for a U with all its digits; on a grid the next edge between two
        grid points.
        """
        check_level(alpha, "alpha")
        alternative = Alternative(alternative)
        if alternative is Alternative.TWO_SIDED:
            raise InputError("a two-sided test has two thresholds: ask for thresholds")
        sign = 1.0
        law = self.margins.law()
        if alternative is Alternative.LESS:
            sign = -1.0
            law = law.mirror()

        # Logarithms are compared, so a tiny alpha is met to relative accuracy.
        def excess(m: float) -> float:
            size = float(_exceedance(law, self.noise, np.asarray(m)))
            return _log(size) - _log(alpha)

        reach = self.noise.standard_deviation + math.sqrt(len(law.pmf)) + 1
        exact_threshold = _zero(excess, law.mean, reach)
        return sign * self._edge(exact_threshold)

    def thresholds(self, alpha: float) -> tuple[float, float]:
        """Return c1 and c2: the two-sided test rejects at level alpha where U before rounding is
        outside of them.

        >>> from fractions import Fraction
        >>> low, high = UmpuTest(TwoByTwo(row=20, column=50, n=100), Tulap(Fraction(1))).thresholds(
        ...     0.05
        ... )
        >>> round(low, 3), round(high, 3)
        (5.177, 14.823)
        """
        if not self.is_two_sided_unbiased:
            lower = self.threshold(alpha / 2, Alternative.LESS)
            return lower, self.threshold(alpha / 2)
        check_level(alpha, "alpha")
        balance = self._balance(self.margins.law())
        low, high = balance.thresholds(alpha)
        return -self._edge(-low), self._edge(high)

    def _edge(self, m: float) -> float:
        """The next edge between two grid points, upwards."""
        if not self.grid:
            return m
        cells = math.ceil(m / self.grid + 0.5) - 0.5
        return cells * self.grid

    def rejection(
        self, x11: ArrayLike, alpha: float, alternative: Alternative = Alternative.GREATER
    ) -> NDArray[np.float64]:
        """Return the probability that the test rejects at level alpha, given x11:
        ``F(x11 - m(t))``.

        >>> from fractions import Fraction
        >>> test = UmpuTest(TwoByTwo(row=2, column=2, n=4), Tulap(Fraction(1)))
        >>> test.rejection([0, 1, 2], 0.05).round(4)
        array([0.0156, 0.0423, 0.1151])
        """
        alternative = Alternative(alternative)
        x = np.asarray(x11, dtype=np.float64)
        if alternative is Alternative.TWO_SIDED:
            low, high = self.thresholds(alpha)
            above = self.noise.cdf(x - high)
            return above + self.noise.cdf(low - x)
        distance = x - self.threshold(alpha, alternative)
        if alternative is Alternative.LESS:
            distance = -distance
        return self.noise.cdf(distance)

    def power(
        self, odds_ratio: float, alpha: float, alternative: Alternative = Alternative.GREATER
    ) -> float:
        """Return the probability that the test rejects when ω is `odds_ratio`.

        >>> from fractions import Fraction
        >>> test = UmpuTest(TwoByTwo(row=200, column=200, n=400), Tulap(Fraction(1)))
        >>> round(test.power(1.0, 0.05), 6), round(test.power(2.0, 0.05), 4)
        (0.05, 0.9549)
        """
        law = self.margins.law(odds_ratio)
        rejections = self.rejection(law.values, alpha, alternative)
        return min(1.0, float(law.pmf @ rejections))

    def two_sided(self, alpha: float) -> "TwoSidedTest":
        """Return the most powerful unbiased two-sided test at one level, which needs a statistic of
        its own.
        """
        check_level(alpha, "alpha")
        return TwoSidedTest.from_margins(self.margins, self.noise, alpha)

    def confidence_interval(
        self, u: float, level: float = 0.95, alternative: Alternative = Alternative.TWO_SIDED
    ) -> Interval:
        """Return the odds ratios that the test at level ``1 - level`` does not reject.

        Two-sided: of the unbiased test (two equal tails if there is none). Greater (less): a
        lower (upper) confidence limit. Every odds ratio is covered with probability `level`, empty
        intervals counted as misses, and at most ``grid · max F'`` more on a grid.

        >>> from fractions import Fraction
        >>> test = UmpuTest(TwoByTwo(row=200, column=200, n=400), Tulap(Fraction(1)))
        >>> interval = test.confidence_interval(115.0)
        >>> round(interval.low, 3), round(interval.high, 3)
        (1.213, 2.768)
        >>> test.confidence_interval(400.0)
        Interval(low=inf, high=inf, level=0.95, empty=True)
        """
        check_level(level, "the confidence level")
        alternative = Alternative(alternative)
        if alternative is Alternative.TWO_SIDED and self.is_two_sided_unbiased:
            low, high = self._unbiased_ends(u, 1 - level)
        else:
            ends = 2 if alternative is Alternative.TWO_SIDED else 1
            alpha = (1 - level) / ends
            low, high = -math.inf, math.inf
            if alternative is not Alternative.LESS:
                low = self._limit(u, alpha, Alternative.GREATER)
            if alternative is not Alternative.GREATER:
                high = self._limit(u, alpha, Alternative.LESS)
        if low == math.inf or high == -math.inf:
            end = math.inf if low == math.inf else 0.0
            return Interval(end, end, level, empty=True)
        return Interval(_exponential(low), _exponential(high), level)

    def _limit(self, u: float, alpha: float, side: Alternative) -> float:
        """The log odds ratio at which the one-sided p-value of u equals alpha; ±infinity where it
        never does.
        """
        sign = 1.0 if side is Alternative.GREATER else -1.0
        # The one-sided p-value is monotone in ω, so its limits at 0 and infinity tell whether it
        # crosses alpha at all; without a crossing the confidence limit is infinite.
        best, worst = self.margins.high, self.margins.low
        if side is Alternative.LESS:
            best, worst = worst, best
        if self._only(best, u, side) <= alpha:
            return sign * math.inf
        if self._only(worst, u, side) > alpha:
            return -sign * math.inf

        def excess(log_odds: float) -> float:
            law = self.margins.law_for_log_odds(sign * log_odds)
            p_value = float(self._p_value(np.asarray(u), side, law))
            return _log(p_value) - _log(alpha)

        return sign * _log_odds(excess)

    def _only(self, x11: int, u: float, side: Alternative) -> float:
        """The p-value where x11 is certain: the limit for an odds ratio of 0 or infinity."""
        return float(self._p_value(np.asarray(u), side, IntegerLaw(x11, np.ones(1))))

    def _unbiased_ends(self, u: float, alpha: float) -> tuple[float, float]:
        """The log odds ratios between which the unbiased test does not reject u; both the same
        infinity for none.

        The p-value rises with ω up to where u is the middle of the acceptance region, and falls
        from there.
        """
        laws = _Laws(self.margins)

        @cache
        def excess(log_odds: float) -> float:
            law = laws.law_for_log_odds(log_odds)
            return _log(float(self._p_value(np.asarray(u), Alternative.TWO_SIDED, law))) - _log(
                alpha
            )

        def accepts_limit(sign: float) -> bool:
            certain = self.margins.high if sign > 0 else self.margins.low
            return self._only(certain, u, Alternative.TWO_SIDED) > alpha

        # A mean at the very end of the counts needs an infinite odds ratio, so the search starts at
        # least half a count inside.
        low = self.margins.low + 0.5
        high = self.margins.high - 0.5
        if u > high and not accepts_limit(1.0):
            return math.inf, math.inf
        if u < low and not accepts_limit(-1.0):
            return -math.inf, -math.inf
        inside = self._centre(min(max(u, low), high), laws)
        # For u beyond the counts the starting point itself may be rejected: walk towards the limit
        # that fits until an odds ratio is kept.
        step = 1.0 if u > high else -1.0
        while excess(inside) <= 0:
            inside += step
            if abs(inside) > _FARTHEST:
                return (inside, math.inf) if step > 0 else (-math.inf, inside)
            step *= 2
        # where x11 is about normal, the ends lie two such steps away: d E[x11] / d log ω = Var(x11)
        variance = laws.law_for_log_odds(inside).variance
        spread = math.sqrt(variance + self.noise.standard_deviation**2)
        step = spread / max(variance, 0.01)

        def end(way: float) -> float:
            if accepts_limit(way):
                return math.copysign(math.inf, way)
            return _zero(excess, inside, way * step, _FARTHEST)

        return end(-1.0), end(1.0)

    def _centre(self, u: float, laws: "_Laws") -> float:
        """The log odds ratio under which x11 has the mean u."""
        return _log_odds(lambda log_odds: laws.law_for_log_odds(log_odds).mean - u)


class _Laws:
    """Laws of x11 for many odds ratios. Each is a tilt of the last one computed, as long as that
    covers its mass.

    A law holds the counts above e^-700 of the largest probability. Its tilt lacks none above e^-500
    where both ends of it are that small, or are the ends of all counts, since probabilities fall
    ever faster from the mode.
    """

    def __init__(self, margins: TwoByTwo | Strata) -> None:
        self._margins = margins
        self._base = margins.law_for_log_odds(0.0)
        self._log_odds = 0.0

    def law_for_log_odds(self, log_odds: float) -> IntegerLaw:
        """Return the law for an odds ratio given by its logarithm."""
        law = self._base.tilt(log_odds - self._log_odds)
        small = law.pmf.max() * math.exp(-500.0)
        # A tilt cannot bring back counts that the base left out: where a cut end still carries
        # weight, the law is recomputed.
        cut_below = law.first > self._margins.low and law.pmf[0] > small
        cut_above = law.last < self._margins.high and law.pmf[-1] > small
        if cut_below or cut_above:
            law = self._base = self._margins.law_for_log_odds(log_odds)
            self._log_odds = log_odds
        return law


@frozen(slots=False)
class _Balance:
    """The pairs c1 < c2 with ``g(c1) = g(c2)``, ``g(u) = Cov(H, F(H - u))``, which rises up to
    `mode`, then falls.

    ``g'(u) = -(density of U at u) (E[H | U = u] - E[H])``, and the posterior mean increases in u:
    neighboring counts have a likelihood ratio of ``1/f'(F(x + 1 - u))`` for canonical noise, and f
    is convex. Outside (c1, c2) the test has the rejection probability
    ``ψ(x) = F(x - c2) + F(c1 - x)`` with ``Cov(H, ψ(H)) = g(c2) - g(c1) = 0``, which is the
    derivative of its power at the null hypothesis (Lehmann and Romano, section 4.2).
    """

    law: IntegerLaw
    noise: CanonicalNoise
    top: int

    @cached_property
    def _weights(self) -> IntegerLaw:
        if len(self.law.pmf) > 1:
            return self.law.upper_moments
        # the limit for ω of 0 or infinity
        at_top = self.law.first == self.top
        return IntegerLaw(self.law.first - at_top, np.ones(1))

    def _height(self, u: ArrayLike) -> NDArray[np.float64]:
        """``log g(u)`` up to a constant: every step of F is taken in its lower tail."""
        at = np.asarray(u, dtype=np.float64)
        heights = np.empty(at.shape)
        # Above the mean F(x - u) lies in its lower tail, below it that of the mirrored law does.
        # Near 1 the difference of two values of F would lose its digits.
        upper = at > self._weights.mean
        sides = (
            (upper, self._weights, at - 1),
            (~upper, self._weights.mirror(), -at),
        )
        for side, law, start in sides:
            if side.any():
                ends = np.stack([start[side], start[side] + 1])
                low, high = _exceedance(law, self.noise, ends)
                heights[side] = low - high
        return np.log(np.maximum(heights, 1e-320))

    @cached_property
    def _centre(self) -> float:
        """A point near the mode."""
        return self._weights.mean + 0.5

    @cached_property
    def mode(self) -> float:
        """Where g is largest: by ever finer grids around the best point."""
        centre = self._centre
        noise = self.noise.standard_deviation
        spread = math.sqrt(self._weights.variance + noise**2)
        reach = 1 + min(len(self._weights.pmf), 4 * spread)
        while reach > 1e-9 * (1 + abs(centre)):
            points = centre + reach * _ZOOM
            highest = self._height(points).argmax()
            centre = float(points[highest])
            reach = reach * (_ZOOM[1] - _ZOOM[0])
        return centre

    def _partner(self, u: NDArray[np.float64], inside: float) -> NDArray[np.float64]:
        """The other end of each pair, from a point between the two ends."""
        height = self._height(u)
        # g has one peak, so the partner lies on its other side: double the distance until g has
        # fallen below its value at u.
        other_side = np.where(u > inside, -1.0, 1.0)
        far = inside + other_side * (np.abs(u - inside) + 1)
        while np.any(short := self._height(far) > height):
            doubled = inside + 2 * (far - inside)
            far = np.where(short, doubled, far)
        start = np.full(u.shape, inside)
        return _roots(lambda c: self._height(c) - height, start, far)

    def p_value(self, u: NDArray[np.float64], half: float = 0.0) -> NDArray[np.float64]:
        """The probability of U at u or beyond, or at its partner or beyond; u the point next to the
        mode of a cell.

        A point that g puts below `_centre` has the mode on the center's side, since g has one peak:
        then the center lies between the point and its partner, and next to the mode is next to the
        center. Else the mode is computed.
        """
        flat = np.atleast_1d(u)
        inside = self._centre
        # Of u's grid cell the point next to the center counts: the p-value then covers all U in the
        # cell.
        near = np.clip(inside, flat - half, flat + half)
        if np.any(self._height(near) >= self._height(inside)):
            inside = self.mode
            near = np.clip(inside, flat - half, flat + half)
        other = self._partner(near, inside)
        high = np.maximum(near, other)
        low = np.minimum(near, other)
        above = _exceedance(self.law, self.noise, high)
        below = _exceedance(self.law.mirror(), self.noise, -low)
        return np.minimum(1.0, above + below).reshape(u.shape)

    def thresholds(self, alpha: float) -> tuple[float, float]:
        """The pair outside of which U falls with probability alpha."""

        def excess(u: float) -> float:
            return _log(float(self.p_value(np.asarray(u)))) - _log(alpha)

        step = self.noise.standard_deviation + math.sqrt(self.law.variance)
        high = _zero(excess, self.mode, step)
        partners = self._partner(np.array([high]), self.mode)
        return float(partners[0]), high


@frozen
class TwoSidedTest:
    """The most powerful unbiased two-sided test at one level: reject where ``V = |x11 - k| + N`` is
    at least m.

    The rejection probability ``F(|x11 - k| - m)`` grows on both sides of k as fast as the guarantee
    allows; k and m are the solution of ``E φ = alpha`` and ``Cov(H, φ) = 0`` (after Awan and
    Slavković, 2020, for binomial data). V answers this one question: the sign and an interval need
    U.

    >>> from fractions import Fraction
    >>> plain = UmpuTest(TwoByTwo(200, 200, 400), Tulap(Fraction(1)))
    >>> best = plain.two_sided(0.05)
    >>> round(best.power(2.0), 4), round(plain.power(2.0, 0.05, Alternative.TWO_SIDED), 4)
    (0.9138, 0.9138)
    """

    margins: TwoByTwo | Strata
    noise: CanonicalNoise
    k: float
    m: float

    @classmethod
    def from_margins(
        cls, margins: TwoByTwo | Strata, noise: CanonicalNoise, alpha: float
    ) -> "TwoSidedTest":
        """Return the test of size alpha."""
        law = margins.law()
        values = law.values
        moments = law.pmf * (values - law.mean)
        step = noise.standard_deviation + math.sqrt(law.variance) + 1

        def rejection(k: float, m: float) -> NDArray[np.float64]:
            return noise.cdf(np.abs(values - k) - m)

        def edge(k: float) -> float:
            def excess(m: float) -> float:
                size = float(law.pmf @ rejection(k, m))
                return _log(size) - _log(alpha)

            return _zero(excess, 0.0, step)

        def slope(k: float) -> float:
            return float(moments @ rejection(k, edge(k)))

        # At either end of the counts |x - k| is monotone in x, so the covariance has opposite signs
        # there and a zero lies between.
        k = _root(slope, law.first - 0.5, law.last + 0.5)
        return cls(margins, noise, k, edge(k))

    def rejection(self, x11: ArrayLike) -> NDArray[np.float64]:
        """Return the probability that the test rejects, given x11: ``F(|x11 - k| - m)``."""
        distance = np.abs(np.asarray(x11, dtype=np.float64) - self.k)
        return self.noise.cdf(distance - self.m)

    def power(self, odds_ratio: float) -> float:
        """Return the probability that the test rejects when ω is `odds_ratio`."""
        law = self.margins.law(odds_ratio)
        return min(1.0, float(law.pmf @ self.rejection(law.values)))


def _exceedance(
    law: IntegerLaw, noise: CanonicalNoise, u: NDArray[np.float64]
) -> NDArray[np.float64]:
    """``P(H + N >= u) = E[F(H - u)]`` for each u; farther off than the noise reaches F is 0 or 1 in
    floats.
    """
    flat = u.ravel()
    if flat.size >= _SHORTCUT and isinstance(noise, Tulap) and _is_linear_between_halves(noise):
        return _by_knots(law, float(noise.epsilon), flat).reshape(u.shape)
    out = np.empty(flat.shape)
    # In sorted order the statistics of a block share one short window of counts. Below the window F
    # is 0, and above it F is 1, so those counts need no array.
    order = np.argsort(flat)
    rows = max(1, _BLOCK // len(law.pmf))
    for start in range(0, flat.size, rows):
        part = order[start : start + rows]
        near = flat[part[0]] - noise.reach - law.first
        far = flat[part[-1]] + noise.reach - law.first
        window = np.clip([math.floor(near), math.ceil(far) + 1], 0, len(law.pmf))
        first, end = window.tolist()
        inner = law.pmf[first:end]
        steps = noise.lattice(law.first + first - flat[part], len(inner))
        out[part] = steps @ inner + law.pmf[end:].sum()
    return np.minimum(out, 1.0).reshape(u.shape)


def _is_linear_between_halves(noise: Tulap) -> bool:
    """Whether E[F(H - u)] is linear in u between half-integers: not with δ, nor where the noise is
    stretched.
    """
    return noise.delta == 0 and noise.sensitivity == 1


def _by_knots(law: IntegerLaw, epsilon: float, u: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same for Tulap noise with δ = 0, where it is linear in u between half-integers.

    Two first-order filters give the knots; beyond the last one (and for the complement below the
    first one) a step of 1 multiplies by ``b = e^-ε``. Every number is a positive combination, so
    relative accuracy is kept.
    """
    from scipy.signal import lfilter

    b = math.exp(-epsilon)
    edge = b / (1 + b)  # F(-1/2)
    p = law.pmf
    reversed_p = p[::-1]
    # sum over h < k of b^(k-1-h) p_h
    below = np.append(0.0, lfilter([1.0], [1.0, -b], p))
    # sum over h >= k of b^(h-k) p_h
    filtered = lfilter([1.0], [1.0, -b], reversed_p)
    above = np.append(filtered[::-1], 0.0)
    upper = np.append(np.cumsum(reversed_p)[::-1], 0.0)
    knots = edge * below + upper - edge * above  # at u = first - 1/2 + k
    place = u - (law.first - 0.5)
    whole = np.floor(place)
    share = place - whole
    k = whole.astype(np.int64)
    inner = np.clip(k, 0, len(p) - 1)
    between = (1 - share) * knots[inner] + share * knots[inner + 1]
    # Whole steps beyond the knots are powers of b, and the step that u lies in is linear.
    decay_past = np.exp(-epsilon * np.maximum(k - len(p), 0))
    past = decay_past * (1 - share + share * b) * knots[-1]
    decay_before = np.exp(-epsilon * np.maximum(-1 - k, 0))
    before = 1 - decay_before * (share + (1 - share) * b) * edge * above[0]
    inside_or_before = np.where(k < 0, before, between)
    return np.asarray(np.where(k >= len(p), past, inside_or_before))


def _log_odds(rising: Callable[[float], float]) -> float:
    """The log odds ratio at which a rising function is 0; ±`_FARTHEST` where that lies farther
    out.
    """
    sign = -1.0 if rising(0.0) > 0 else 1.0
    near, far = 0.0, 1.0
    while sign * rising(sign * far) <= 0:
        if far >= _FARTHEST:
            return sign * _FARTHEST
        near, far = far, 2 * far
    low, high = sorted((sign * near, sign * far))
    return _root(rising, low, high)


def _zero(
    falling: Callable[[float], float], start: float, step: float, farthest: float = math.inf
) -> float:
    """The zero of a function that falls in the direction of `step`, by growing steps; ±`farthest`
    for one beyond.
    """
    falling = cache(falling)
    sign = 1.0 if falling(start) > 0 else -1.0
    near = start
    step = sign * step
    while sign * falling(near + step) > 0:
        near = near + step
        step = 2 * step
        if abs(near) > farthest:
            return math.copysign(farthest, step)
    low, high = sorted((near, near + step))
    return _root(falling, low, high)


def _roots(
    function: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    inside: NDArray[np.float64],
    far: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The zero of each function between points where it is not negative and not positive (regula
    falsi, Illinois).
    """
    one, other = function(inside), function(far)
    moved = np.zeros(inside.shape)
    for _ in range(200):
        gap = one - other
        divisor = np.where(gap > 0, gap, 1.0)
        secant = np.clip(one / divisor, 0.0, 1.0)
        # Two equal values have no secant: halve the stretch instead.
        share = np.where(gap > 0, secant, 0.5)
        new = inside + share * (far - inside)
        value = function(new)
        up = value > 0
        # An end that stays twice in a row counts half (Illinois): plain regula falsi would creep
        # towards the zero from one side.
        halved_one = np.where(moved == -1, one / 2, one)
        halved_other = np.where(moved == 1, other / 2, other)
        one = np.where(up, value, halved_one)
        other = np.where(up, halved_other, value)
        inside = np.where(up, new, inside)
        far = np.where(up, far, new)
        moved = np.where(up, 1, -1)
        at_zero = np.abs(value) < 1e-13
        together = np.abs(far - inside) < 1e-13 * (1 + np.abs(far))
        if np.all(at_zero | together):
            break
    return np.asarray(new)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    from scipy.optimize import brentq

    return float(brentq(function, low, high, xtol=1e-13, rtol=1e-14, maxiter=500))


def _finite(end: float) -> float | None:
    """An end of an interval for JSON, which knows no infinity."""
    return end if math.isfinite(end) else None


def _log(x: float) -> float:
    # A probability that underflowed to 0 still needs a finite logarithm: root finders go by its
    # sign.
    return math.log(max(x, 1e-320))


def _exponential(x: float) -> float:
    # Python's exp raises an error where the odds ratio is infinite in floats.
    return math.exp(x) if x < 709 else math.inf
