"""Two rates compared: their difference, their ratio or their odds ratio, with intervals.

For the population that the records were sampled from, a value is kept if the score of the two noisy
binomial counts does not reject it (Miettinen and Nurminen, 1985, with the noise in the variance).
For these records only the noise distribution matters. `measured` selects the cells of the groups.
"""

import math
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import numpy as np
import scipy
from attrs import frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.inference.answers import Covers, IntervalEstimate
from semidp.inference.linear_estimates import simulated_bound
from semidp.publish.statistics.outcomes.noise_law import count_as_large

Floats = NDArray[np.float64]

_GRID = 129  # places from 0 to 1 at which values are tried first
_STEPS = 44  # halvings of an interval: below the last digit of what is printed
_EDGE = 1e-12  # how near to 0 and 1 a rate may come


class RateMeasure(StrEnum):
    """How two rates are compared.

    >>> str(RateMeasure("odds-ratio"))
    'odds-ratio'
    """

    DIFFERENCE = "difference"
    RISK_RATIO = "risk-ratio"
    ODDS_RATIO = "odds-ratio"

    @classmethod
    def _missing_(cls, value: object) -> "RateMeasure":
        raise InputError(f"rates are compared by {', '.join(cls)}, not by {value!r}")

    @property
    def null(self) -> float:
        """The value for equal rates."""
        return 0.0 if self is RateMeasure.DIFFERENCE else 1.0

    def compare(self, one: Any, other: Any) -> Any:
        """The value for two rates.

        >>> float(RateMeasure.ODDS_RATIO.compare(0.5, 0.2))
        4.0
        """
        if self is RateMeasure.DIFFERENCE:
            return one - other
        with np.errstate(divide="ignore", invalid="ignore"):
            if self is RateMeasure.RISK_RATIO:
                return np.divide(one, other)
            return np.divide(one * (1 - other), other * (1 - one))

    def first_rate(self, value: Any, second: Any) -> tuple[Any, Any]:
        """The first rate that gives this value with the second one, and its derivative in
        the second.
        """
        if self is RateMeasure.DIFFERENCE:
            return second + value, np.ones_like(second)
        if self is RateMeasure.RISK_RATIO:
            return value * second, value * np.ones_like(second)
        below = 1 - second + value * second
        return value * second / below, value / below**2

    def second_rates(self, value: Any) -> tuple[Any, Any]:
        """The least and the largest second rate for which the first one is a rate too."""
        zero = np.zeros_like(value)
        if self is RateMeasure.DIFFERENCE:
            return np.maximum(zero, -value), np.minimum(1 + zero, 1 - value)
        if self is RateMeasure.RISK_RATIO:
            return zero, 1 / np.maximum(value, 1.0)
        return zero, 1 + zero


@frozen(eq=False)
class NoisyRates:
    """Noisy counts of cases and of records in two groups without a common record, with the
    covariance of the noise.

    Parameters
    ----------
    cases, records
        Of the two groups, in the last axis; any leading axes are further questions.
    covariance
        Of the noise of (cases 1, records 1, cases 2, records 2).
    cluster
        The most records of one person, see `answers`.

    Examples
    --------
    >>> rates = NoisyRates(np.array([10.0, 6.0]), np.array([40.0, 60.0]), np.zeros((4, 4)))
    >>> round(float(rates.score(RateMeasure.DIFFERENCE, np.array(0.0))), 4)  # Pearson's statistic
    4.0179
    """

    cases: Floats
    records: Floats
    covariance: Floats
    cluster: int = 1

    def score(self, measure: RateMeasure, value: Floats) -> Floats:
        """The score statistic of a value: approximately χ² with one degree of freedom at the true
        value.

        With rates p1, p2 that have this value, residuals ``r_i = y_i - p_i m_i`` and their
        covariance ``V = diag(m_i p_i (1 - p_i)) + Cov(noise of r)`` (the first times the size of a
        cluster), p2 solves ``d'V⁻¹r = 0`` for
        ``d_i = m_i dp_i/dp2``, and the statistic is ``(c'r)² / c'Vc`` with ``c = (d2, -d1)``, which
        then is ``r'V⁻¹r``. Without noise p2 is the maximum of the likelihood and the statistic
        Pearson's.
        """
        low, high = measure.second_rates(np.asarray(value, dtype=np.float64))
        low, high = low + _EDGE, high - _EDGE
        shape = np.broadcast_shapes(self.cases.shape[:-1], np.shape(value))
        low, high = (np.broadcast_to(end, shape).copy() for end in (low, high))

        def is_below(second: Floats) -> NDArray[np.bool_]:
            # The sign of the quasi-score says on which side of the second rate the estimate lies.
            return self._parts(measure, value, second)[1] > 0

        for _ in range(_STEPS):
            middle = (low + high) / 2
            rising = is_below(middle)
            low, high = np.where(rising, middle, low), np.where(rising, high, middle)
        return self._parts(measure, value, (low + high) / 2)[0]

    def _parts(self, measure: RateMeasure, value: Floats, second: Floats) -> tuple[Floats, Floats]:
        """The statistic and ``d'V⁻¹r`` at a second rate."""
        first, slope = measure.first_rate(value, second)
        first = np.clip(first, _EDGE, 1 - _EDGE)
        y1, y2 = self.cases[..., 0], self.cases[..., 1]
        m1, m2 = self.records[..., 0], self.records[..., 1]
        r1 = y1 - first * m1
        r2 = y2 - second * m2
        # The covariance of the residuals: sampling on the diagonal, and the noise of cases and
        # records.
        noise = self._noise(first, second)
        v1 = self.cluster * m1 * first * (1 - first) + noise[0]
        v2 = self.cluster * m2 * second * (1 - second) + noise[1]
        both = noise[2]
        determinant = np.maximum(v1 * v2 - both**2, 1e-300)
        d1, d2 = m1 * slope, m2
        # The contrast (d2, -d1) is what the second rate leaves free: one degree, even if that
        # rate ends at 0 or 1.
        contrast = d2 * r1 - d1 * r2
        spread = d2**2 * v1 - 2 * d1 * d2 * both + d1**2 * v2
        size = contrast**2 / np.maximum(spread, 1e-300)
        one = v2 * r1 - both * r2
        other = v1 * r2 - both * r1
        push = (d1 * one + d2 * other) / determinant
        return np.asarray(size), np.asarray(push)

    def _noise(self, first: Floats, second: Floats) -> tuple[Floats, Floats, Floats]:
        """Variances and covariance of the noise of ``y_i - p_i m_i``."""
        c = self.covariance
        one = c[0, 0] - 2 * first * c[0, 1] + first**2 * c[1, 1]
        other = c[2, 2] - 2 * second * c[2, 3] + second**2 * c[3, 3]
        cases = c[0, 2] - second * c[0, 3]
        records = c[1, 2] - second * c[1, 3]
        return one, other, cases - first * records

    def estimate(self, measure: RateMeasure) -> Floats:
        """The value of the noisy rates; infinite or not a number if they have none."""
        rates = self.cases / self.records
        return np.asarray(measure.compare(rates[..., 0], rates[..., 1]))

    def inside(self, measure: RateMeasure) -> Floats:
        """A value that no level rejects: that of the rates cut to [0, 1]."""
        rates = np.clip(self.cases / self.records, 1e-6, 1 - 1e-6)
        return np.asarray(measure.compare(rates[..., 0], rates[..., 1]))

    def interval(self, measure: RateMeasure, level: float) -> tuple[float, float]:
        """The values whose score is within the quantile of χ², from the lowest to the largest; of a
        single question.
        """
        bound = float(scipy.special.ndtri((1 + level) / 2)) ** 2
        centre = float(_to_unit(measure, self.inside(measure)))

        def accepts_places(places: Floats) -> Any:
            return self.score(measure, _from_unit(measure, places)) <= bound

        # Where noise is larger than counts, values far from the estimate may be kept again.
        grid = np.append(np.linspace(1e-9, 1 - 1e-9, _GRID), centre)
        places = grid[np.append(np.asarray(accepts_places(grid[:-1])), True)]
        low = _last_kept(accepts_places, float(places.min()), 0.0, 64)
        high = _last_kept(accepts_places, float(places.max()), 1.0, 64)
        return float(_from_unit(measure, low)), float(_from_unit(measure, high))

    def p_value(self, measure: RateMeasure) -> Floats:
        """Of equal rates."""
        size = self.score(measure, np.full(self.cases.shape[:-1], measure.null))
        return np.asarray(2 * scipy.special.ndtr(-np.sqrt(size)))

    def standard_error(self, measure: RateMeasure) -> float:
        """Of the estimate, by the derivatives in the two rates; of a single question."""
        rates = np.clip(self.cases / self.records, 0.0, 1.0)
        one, other = rates.tolist()
        gradient = np.array([1.0, -1.0])
        if measure is not RateMeasure.DIFFERENCE:
            value = float(measure.compare(one, other))
            steps = (
                [one, -other]
                if measure is RateMeasure.RISK_RATIO
                else [one * (1 - one), -other * (1 - other)]
            )
            if not math.isfinite(value) or 0.0 in steps:
                return math.inf
            gradient = value / np.array(steps)
        lines = np.zeros((2, 4))
        lines[0, :2] = 1.0, -one
        lines[1, 2:] = 1.0, -other
        sampling = self.cluster * self.records * rates * (1 - rates)
        variance = lines @ self.covariance @ lines.T + np.diag(sampling)
        gradient = gradient / self.records
        return math.sqrt(max(float(gradient @ variance @ gradient), 0.0))


def _to_unit(measure: RateMeasure, value: Any) -> Floats:
    """A value as a place from 0 to 1."""
    return np.asarray((value + 1) / 2 if measure is RateMeasure.DIFFERENCE else value / (1 + value))


def _from_unit(measure: RateMeasure, place: Any) -> Floats:
    """The value at a place from 0 to 1."""
    if measure is RateMeasure.DIFFERENCE:
        return np.asarray(2 * place - 1)
    with np.errstate(divide="ignore"):
        return np.asarray(np.divide(place, 1 - place))


def _last_kept(kept: Callable[[Floats], Any], inside: float, end: float, points: int) -> float:
    """The last place that is kept on the way from one inside to an end; the end itself if all are.

    A grid of so many points is refined around the first that is not kept, until it is as fine as
    floating point asks.
    """
    near, far = inside, abs(end - 1e-9)  # the end itself is no value of a ratio
    whole = True
    for _ in range(math.ceil(30 * math.log(2) / math.log(points))):
        places = near + (far - near) * np.arange(1, points + 1) / points
        refused = np.flatnonzero(~np.asarray(kept(places)))
        if not len(refused):
            return end if whole else far
        whole = False
        first = int(refused[0])
        near = float(places[first - 1]) if first else near
        far = float(places[first])
    return far


def sampled_comparison(rates: NoisyRates, measure: RateMeasure, level: float) -> IntervalEstimate:
    """Compare two population rates by a difference or a ratio: the values that their joint score
    keeps, noise and sampling.

    `answers.mover_difference` is for differences alone and joins the two rates' own intervals,
    without a search.

    >>> rates = NoisyRates(np.array([10.0, 6.0]), np.array([40.0, 60.0]), np.zeros((4, 4)))
    >>> answer = sampled_comparison(rates, RateMeasure.RISK_RATIO, 0.95)
    >>> answer.value, round(answer.low, 3), round(answer.high, 3)
    (2.5, 1.019, 6.177)
    """
    if (rates.records <= 0).any():
        ends = (-1.0, 1.0) if measure is RateMeasure.DIFFERENCE else (0.0, math.inf)
        return IntervalEstimate(math.nan, math.inf, *ends, level, Covers.both, False, 1.0)
    low, high = rates.interval(measure, level)
    value = float(rates.estimate(measure))
    error = rates.standard_error(measure)
    p = float(rates.p_value(measure))
    return IntervalEstimate(value, error, low, high, level, Covers.both, False, p)


def fixed_risk_ratio(
    rates: tuple[float, float], errors: tuple[Floats, Floats], error: float, level: float
) -> IntervalEstimate:
    """Compare two rates of these records among exact numbers of records by their ratio: exact for
    the noise.

    R is kept where ``|y1/n1 - R y2/n2|`` is within what the noise of ``x1/n1 - R x2/n2`` explains
    (Fieller). If the second rate may be 0, the ratios that are kept reach to infinity; they may
    leave out some in the middle, which the interval then holds too.
    """
    top, bottom = rates
    first, second = errors

    def kept_one(ratio: float) -> bool:
        if math.isinf(ratio):
            return abs(bottom) <= simulated_bound(np.abs(second), level)
        return abs(top - ratio * bottom) <= simulated_bound(np.abs(first - ratio * second), level)

    def accepts_places(places: Floats) -> Any:
        ratios = _from_unit(RateMeasure.RISK_RATIO, places)
        return np.array([kept_one(float(ratio)) for ratio in ratios])

    # The search starts at a ratio that is kept: with much noise both rates may be negative.
    if kept_one(math.inf):
        low, high = 0.0 if kept_one(0.0) else _last_kept(accepts_places, 1.0 - 1e-9, 0.0, 4), 1.0
    else:
        start = top / bottom if bottom and top / bottom > 0 else 0.0
        centre = float(_to_unit(RateMeasure.RISK_RATIO, start))
        low, high = (_last_kept(accepts_places, centre, end, 4) for end in (0.0, 1.0))
    least, most = (float(_from_unit(RateMeasure.RISK_RATIO, end)) for end in (low, high))
    value = top / bottom if bottom else math.nan
    p = (1 + count_as_large(np.abs(first - second), abs(top - bottom))) / (1 + len(first))
    # Where noise makes the ratio negative, derivatives say nothing of its error.
    error = error if value >= 0 else math.inf
    return IntervalEstimate(value, error, least, most, level, Covers.noise, True, p)


def from_two_rates(
    one: IntervalEstimate, other: IntervalEstimate, measure: RateMeasure, level: float
) -> IntervalEstimate:
    """Compare two rates of these records by their intervals at ``(1 + level) / 2``: at least
    `level` (Bonferroni).

    >>> rate = IntervalEstimate(0.5, 0.1, 0.4, 0.6, 0.975, Covers.noise, True)
    >>> half = IntervalEstimate(0.25, 0.1, 0.2, 0.3, 0.975, Covers.noise, True)
    >>> answer = from_two_rates(rate, half, RateMeasure.RISK_RATIO, 0.95)
    >>> round(answer.low, 4), round(answer.high, 4)
    (1.3333, 3.0)
    """
    value = float(measure.compare(one.value, other.value))
    low = float(measure.compare(one.low, other.high))
    high = float(measure.compare(one.high, other.low))
    # 0/0 says nothing about a ratio.
    low, high = (0.0 if math.isnan(low) else low), (math.inf if math.isnan(high) else high)
    return IntervalEstimate(
        value, math.nan, low, high, level, Covers.noise, one.exact and other.exact
    )
