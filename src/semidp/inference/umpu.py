"""The semi-private test of the odds ratio of a 2×2 table: p-values, thresholds, power and intervals.

Everything here is a function of public numbers: the margins, the noise distribution, and a published U = x11 + noise.
Drawing U from confidential data lives in `odds_ratio`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError, Refused
from semidp.inference.canonical import CanonicalNoise, Tulap
from semidp.inference.hypergeometric import IntegerLaw, TwoByTwo

_BLOCK = 2_000_000  # entries of one (statistics × counts) array
_FARTHEST = 1400.0  # |log odds ratio| past which an end of an interval is 0 or infinity
_SHORTCUT = 32  # from so many statistics on, the knots pay


class Alternative(StrEnum):
    """What the test looks for: an odds ratio above 1, below 1, or either.

    >>> Alternative("two-sided")
    <Alternative.TWO_SIDED: 'two-sided'>
    """

    GREATER = "greater"
    LESS = "less"
    TWO_SIDED = "two-sided"

    @classmethod
    def _missing_(cls, value: object) -> "Alternative":
        raise InputError(f"the alternative must be {', '.join(cls)}, not {value!r}")


@dataclass(frozen=True)
class Interval:
    """A confidence interval for the odds ratio: the values that the test does not reject.

    An inversion is `empty` when U lies so far outside the counts that the margins allow that every odds ratio is
    rejected; both ends are then infinity (U too large) or 0 (U too small), the limit that fits best.

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
        ends = [end if math.isfinite(end) else None for end in (self.low, self.high)]
        return {"low": ends[0], "high": ends[1], "level": self.level, "empty": self.empty}


@dataclass(frozen=True)
class UmpuTest:
    """The most powerful unbiased semi-private test of ``ω = x11 x22 / (x12 x21)`` given the margins.

    ``U = x11 + N`` with canonical noise N; ``p = E[F(H - U)]`` with H hypergeometric, and given the table the test
    rejects with probability ``F(x11 - m(t))`` (Cho and Awan, theorem on the semi-private UMPU test; the paper's text
    defines the inverse of ω, its likelihood and test use this one). One-sided tests are UMPU where the noise has
    sensitivity 1, that is where no further invariant raises a(t) above 3. The two-sided p-value is twice the smaller
    one: exactly uniform at ω = 1, not claimed to be most powerful.

    Parameters
    ----------
    margins
        The public margins.
    noise
        The distribution of N.
    grid
        The width of the grid that U was rounded to; 0 for a U with all its digits. A p-value is the probability
        of the published U or a more extreme one, so a grid makes it valid exactly and larger by at most
        ``grid · max F'``.

    Examples
    --------
    >>> from fractions import Fraction
    >>> test = UmpuTest(TwoByTwo(row=40, column=50, n=100), Tulap(Fraction(1)))
    >>> float(test.p_value(24.0).round(4)), float(test.p_value(24.0, Alternative.LESS).round(4))
    (0.0781, 0.9219)
    """

    margins: TwoByTwo
    noise: CanonicalNoise
    grid: float = 0.0

    def __post_init__(self) -> None:
        if self.margins.degenerate:
            raise Refused(
                "these margins leave only one 2×2 table (a row or column is empty), so there is no odds ratio to test: "
                "choose features that both vary"
            )

    def p_value(
        self, u: ArrayLike, alternative: Alternative = Alternative.GREATER, odds_ratio: float = 1.0
    ) -> NDArray[np.float64]:
        """Return the p-value of each published u against the null hypothesis ω = `odds_ratio`.

        Under that odds ratio the p-values are uniform. Relative accuracy is kept far into the tail.
        """
        return self._p_value(np.asarray(u, dtype=np.float64), Alternative(alternative), self.margins.law(odds_ratio))

    def _p_value(self, u: NDArray[np.float64], alternative: Alternative, law: IntegerLaw) -> NDArray[np.float64]:
        if alternative is Alternative.GREATER:
            return _exceedance(law, self.noise, u - self.grid / 2)
        if alternative is Alternative.LESS:
            return _exceedance(law.mirrored(), self.noise, -u - self.grid / 2)
        greater, less = (self._p_value(u, side, law) for side in (Alternative.GREATER, Alternative.LESS))
        return np.asarray(np.minimum(1.0, 2 * np.minimum(greater, less)))

    def threshold(self, alpha: float, alternative: Alternative = Alternative.GREATER) -> float:
        """Return m(t): the test rejects at level alpha where U before rounding is beyond it.

        ``E[F(H - m)] = alpha`` for a U with all its digits; on a grid the next edge between two grid points.
        """
        check_level(alpha, "alpha")
        alternative = Alternative(alternative)
        if alternative is Alternative.TWO_SIDED:
            raise InputError("a two-sided test has two thresholds: ask for greater and less at alpha/2")
        law = self.margins.law()
        sign = 1.0 if alternative is Alternative.GREATER else -1.0
        m = _threshold(law if sign > 0 else law.mirrored(), self.noise, alpha)
        if self.grid:
            m = (math.ceil(m / self.grid + 0.5) - 0.5) * self.grid
        return sign * m

    def rejection(
        self, x11: ArrayLike, alpha: float, alternative: Alternative = Alternative.GREATER
    ) -> NDArray[np.float64]:
        """Return the probability that the test rejects at level alpha, given x11: ``F(x11 - m(t))``.

        >>> from fractions import Fraction
        >>> test = UmpuTest(TwoByTwo(row=2, column=2, n=4), Tulap(Fraction(1)))
        >>> test.rejection([0, 1, 2], 0.05).round(4)
        array([0.0156, 0.0423, 0.1151])
        """
        alternative = Alternative(alternative)
        x = np.asarray(x11, dtype=np.float64)
        if alternative is Alternative.TWO_SIDED:
            return self.rejection(x, alpha / 2, Alternative.GREATER) + self.rejection(x, alpha / 2, Alternative.LESS)
        distance = x - self.threshold(alpha, alternative)
        return self.noise.cdf(distance if alternative is Alternative.GREATER else -distance)

    def power(self, odds_ratio: float, alpha: float, alternative: Alternative = Alternative.GREATER) -> float:
        """Return the probability that the test rejects when ω is `odds_ratio`.

        >>> from fractions import Fraction
        >>> test = UmpuTest(TwoByTwo(row=200, column=200, n=400), Tulap(Fraction(1)))
        >>> round(test.power(1.0, 0.05), 6), round(test.power(2.0, 0.05), 4)
        (0.05, 0.9549)
        """
        law = self.margins.law(odds_ratio)
        return min(1.0, float(law.pmf @ self.rejection(law.values, alpha, alternative)))

    def confidence_interval(
        self, u: float, level: float = 0.95, alternative: Alternative = Alternative.TWO_SIDED
    ) -> Interval:
        """Return the odds ratios that the test at level ``1 - level`` does not reject.

        Two-sided: equal tails. Greater (less): a lower (upper) confidence limit. Every odds ratio is covered with
        probability `level`, empty intervals counted as misses, and at most ``grid · max F'`` more on a grid.

        >>> from fractions import Fraction
        >>> test = UmpuTest(TwoByTwo(row=200, column=200, n=400), Tulap(Fraction(1)))
        >>> interval = test.confidence_interval(115.0)
        >>> round(interval.low, 3), round(interval.high, 3)
        (1.212, 2.765)
        >>> test.confidence_interval(400.0)
        Interval(low=inf, high=inf, level=0.95, empty=True)
        """
        check_level(level, "the confidence level")
        alternative = Alternative(alternative)
        alpha = (1 - level) / (2 if alternative is Alternative.TWO_SIDED else 1)
        low = high = None
        if alternative is not Alternative.LESS:
            low = self._limit(u, alpha, Alternative.GREATER)
        if alternative is not Alternative.GREATER:
            high = self._limit(u, alpha, Alternative.LESS)
        if low == math.inf or high == -math.inf:
            end = math.inf if low == math.inf else 0.0
            return Interval(end, end, level, empty=True)
        ends = (-math.inf if low is None else low, math.inf if high is None else high)
        return Interval(_exponential(ends[0]), _exponential(ends[1]), level)

    def _limit(self, u: float, alpha: float, side: Alternative) -> float:
        """The log odds ratio at which the one-sided p-value of u equals alpha; ±infinity where it never does."""
        sign = 1.0 if side is Alternative.GREATER else -1.0
        best, worst = (self.margins.high, self.margins.low)[:: int(sign)]
        if self._only(best, u, side) <= alpha:
            return sign * math.inf
        if self._only(worst, u, side) > alpha:
            return -sign * math.inf

        def excess(log_odds: float) -> float:
            return _log(float(self._p_value(np.asarray(u), side, self.margins.law_at(sign * log_odds)))) - _log(alpha)

        ends = _bracket(excess)
        return sign * (_root(excess, *ends) if ends else math.copysign(_FARTHEST, -excess(_FARTHEST)))

    def _only(self, x11: int, u: float, side: Alternative) -> float:
        """The p-value where x11 is certain: the limit for an odds ratio of 0 or infinity."""
        return float(self._p_value(np.asarray(u), side, IntegerLaw(x11, np.ones(1))))


def check_level(value: float, name: str) -> None:
    """Refuse a probability that is not strictly between 0 and 1.

    >>> check_level(95, "the confidence level")
    Traceback (most recent call last):
    semidp.errors.InputError: the confidence level must lie between 0 and 1, such as 0.05 or 0.95, not 95
    """
    if not 0 < value < 1:
        raise InputError(f"{name} must lie between 0 and 1, such as 0.05 or 0.95, not {value}")


def _exceedance(law: IntegerLaw, noise: CanonicalNoise, u: NDArray[np.float64]) -> NDArray[np.float64]:
    """``P(H + N >= u) = E[F(H - u)]`` for each u."""
    flat = u.ravel()
    if isinstance(noise, Tulap) and noise.delta == 0 and noise.sensitivity == 1 and flat.size >= _SHORTCUT:
        return _by_knots(law, float(noise.epsilon), flat).reshape(u.shape)
    out = np.empty(flat.shape)
    rows = max(1, _BLOCK // len(law.pmf))
    for start in range(0, flat.size, rows):
        part = slice(start, start + rows)
        out[part] = noise.lattice(law.first - flat[part], len(law.pmf)) @ law.pmf
    return np.minimum(out, 1.0).reshape(u.shape)


def _by_knots(law: IntegerLaw, epsilon: float, u: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same for Tulap noise with δ = 0, where it is linear in u between half-integers.

    Two first-order filters give the knots; beyond the last one (and for the complement below the first one) a step
    of 1 multiplies by ``b = e^-ε``. Every number is a positive combination, so relative accuracy is kept.
    """
    from scipy.signal import lfilter

    b = math.exp(-epsilon)
    edge = b / (1 + b)  # F(-1/2)
    p = law.pmf
    below = np.append(0.0, lfilter([1.0], [1.0, -b], p))  # sum over h < k of b^(k-1-h) p_h
    above = np.append(lfilter([1.0], [1.0, -b], p[::-1])[::-1], 0.0)  # sum over h >= k of b^(h-k) p_h
    upper = np.append(np.cumsum(p[::-1])[::-1], 0.0)
    knots = edge * below + upper - edge * above  # at u = first - 1/2 + k
    place = u - (law.first - 0.5)
    whole = np.floor(place)
    share = place - whole
    k = whole.astype(np.int64)
    inner = np.clip(k, 0, len(p) - 1)
    between = (1 - share) * knots[inner] + share * knots[inner + 1]
    past = np.exp(-epsilon * np.maximum(k - len(p), 0)) * (1 - share + share * b) * knots[-1]
    before = 1 - np.exp(-epsilon * np.maximum(-1 - k, 0)) * (share + (1 - share) * b) * edge * above[0]
    return np.asarray(np.where(k >= len(p), past, np.where(k < 0, before, between)))


def _threshold(law: IntegerLaw, noise: CanonicalNoise, alpha: float) -> float:
    def excess(m: float) -> float:
        return _log(float(_exceedance(law, noise, np.asarray(m)))) - _log(alpha)

    centre, reach = law.mean, noise.standard_deviation + math.sqrt(len(law.pmf)) + 1
    low, high = centre - reach, centre + reach
    while excess(low) <= 0:
        low -= (reach := 2 * reach)
    while excess(high) > 0:
        high += (reach := 2 * reach)
    return _root(excess, low, high)


def _bracket(excess: Callable[[float], float]) -> tuple[float, float] | None:
    """Two points around the zero of an increasing function, or None where it lies too far out."""
    sign = -1.0 if excess(0.0) > 0 else 1.0
    near, far = 0.0, 1.0
    while sign * excess(sign * far) <= 0:
        if far >= _FARTHEST:
            return None
        near, far = far, 2 * far
    return (sign * near, sign * far) if sign > 0 else (sign * far, sign * near)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    from scipy.optimize import brentq

    return float(brentq(function, low, high, xtol=1e-13, rtol=1e-14, maxiter=500))


def _log(x: float) -> float:
    return math.log(max(x, 1e-320))


def _exponential(x: float) -> float:
    return math.exp(x) if x < 709 else math.inf
