"""Curves with corners: (epsilon, delta) and its groups, with corners known as balls, and piecewise
linear curves with exact corners.

A corner is kept as (size, power) = (1 - alpha, 1 - f(alpha)) of a test, where small numbers keep
their precision and ``delta(eps) = max over corners of power - e^eps size``. Corners may be given
directly, as a privacy profile, or as code: all of it is rational arithmetic, including groups and
symmetrization.
"""

import itertools
import math
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from attrs import frozen

from semidp.errors import InputError
from semidp.promise.ball_arithmetic import RealBall, ball, precision, round_ball_down, round_ball_up
from semidp.promise.exact import Number, exact, format_rounded_up, nonnegative, plain, round_up
from semidp.promise.tradeoff.function import (
    ROUNDOFF,
    Floats,
    Order,
    Tradeoff,
    exp_down,
    group_size,
    proportion,
    pure_rho,
    read_up,
    strength,
)

BITS = 320  # of precision for corners; enough to tell e^eps from 1 down to eps = 1e-60

_NEARLY = Fraction(1, 1 << 100)
_LINES = 1024  # of a group's curve that are kept


class Cornered(Tradeoff):
    """A curve known by the corners (size, power) of its power function, in floats that claim a
    little less.
    """

    @property
    @abstractmethod
    def _outer(self) -> tuple[Floats, Floats]:
        """Sizes that are rounded down and powers that are rounded up; where these pass 1, the curve
        ends.
        """

    def _values(self, alpha: Floats) -> Floats:
        sizes, powers = self._outer
        power_at = np.minimum(np.interp(1 - alpha, sizes, powers), 1.0)
        values: Floats = 1 - power_at * (1 + 4 * ROUNDOFF) - ROUNDOFF
        # then f is the inverse of the power function, which is precise where f is small
        if self.is_symmetric:
            rising, first = np.unique(powers, return_index=True)
            inverse = np.interp(alpha, rising, sizes[first])
            values = np.maximum(values, inverse * (1 - 8 * ROUNDOFF))
        return values


class Polygon(Cornered):
    """A curve through finitely many corners, from (size, power) = (0, p) to (1, 1)."""

    @cached_property
    def _corners(self) -> list[tuple[RealBall, RealBall]]:
        """Balls around the (size, power) of each corner, sizes increasing from 0 to 1."""
        with precision(BITS):
            return self._compute_corners()

    @abstractmethod
    def _compute_corners(self) -> list[tuple[RealBall, RealBall]]: ...

    @cached_property
    def _outer(self) -> tuple[Floats, Floats]:
        # Smaller sizes and larger powers: a test that is better than the true one, so less is
        # claimed.
        sizes = [max(round_ball_down(size), 0.0) for size, _ in self._corners]
        powers = [min(round_ball_up(power), 1.0) for _, power in self._corners]
        return np.array(sizes), np.array(powers)

    def _delta(self, epsilon: Fraction) -> float:
        first = round_ball_up(self._corners[0][1])
        # Beyond the steepest slope only the power at size 0 is left.
        steepest = self._steepest()
        if steepest is not None and epsilon >= steepest:
            return first
        with precision(BITS):
            factor = ball(epsilon).exp()
            inner = self._corners[1:-1]
            gaps = [round_ball_up(power - factor * size) for size, power in inner]
        return max([first, *gaps, 0.0])

    def epsilon(self, delta: Number) -> float:
        target = proportion(delta, "delta")
        with precision(BITS):
            goal = ball(target)
            if self._corners[0][1] > goal:
                return math.inf
            largest = 0.0
            for size, power in self._corners[1:]:
                # delta(epsilon) <= delta at a corner iff e^epsilon >= (power - delta) / size
                ratio = (power - goal) / size
                if not ratio <= 1:
                    largest = max(largest, read_up(round_ball_up(ratio.log())))
        steepest = self._steepest()
        return largest if steepest is None else min(largest, round_up(steepest))

    def _steepest(self) -> Fraction | None:
        """Return an epsilon beyond which delta no longer falls, if one is known exactly."""
        return None

    def _landmarks(self) -> Floats:
        sizes, powers = self._outer
        with np.errstate(divide="ignore", invalid="ignore"):
            slopes = np.log(np.diff(powers) / np.diff(sizes))
        kinks = slopes[np.isfinite(slopes) & (slopes > 0)]
        last = float(kinks.max()) if kinks.size else 0.0
        between = np.linspace(0, last, 65)
        marks = np.concatenate([[0.0], kinks, between, [2 * last + 1]])
        return np.unique(marks)

    def _deltas(self, epsilons: Floats) -> Floats:
        sizes, powers = self._outer
        # delta(epsilon) is the largest gap between the power function and the line of slope
        # e^epsilon.
        best: Floats = np.full(epsilons.shape, powers[0])
        factor = exp_down(epsilons)
        inner = zip(sizes[1:-1], powers[1:-1], strict=True)
        for size, power in inner:
            gap = power - factor * size + ROUNDOFF * power
            best = np.maximum(best, gap)
        return np.clip(best, 0.0, 1.0)


@frozen(order=False)
class Approximate(Polygon):
    """(epsilon, delta)-DP for one record, seen by a group of `size` records.

    For one record ``f(a) = max(0, 1 - delta - e^eps (1 - a), e^-eps (a - delta))``. For k records
    ``f∘…∘f`` is the maximum of 0 and the k + 1 lines that apply the steep piece k - j times and
    then the flat piece j times (the other orders are never higher): strictly more private than (k
    eps, delta (e^{k eps} - 1)/(e^eps - 1)).

    >>> pair = Approximate(Fraction(1)).group(2)
    >>> pair.epsilon(0), pair.compare(Approximate(Fraction(2))).name
    (2.0, 'STRONGER')
    >>> print(pair)
    Approximate(epsilon = 1, delta = 0 for each of 2 records)
    """

    kind = "approximate"
    json_keys: ClassVar[Mapping[str, str | None]] = {
        "epsilon0": "epsilon",
        "delta0": "delta",
        "size": "group",
    }
    epsilon0: Fraction
    delta0: Fraction = Fraction(0)
    size: int = 1

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "epsilon0", strength(self.epsilon0, "epsilon"))
        object.__setattr__(self, "delta0", proportion(self.delta0, "delta"))
        object.__setattr__(self, "size", group_size(self.size))
        strength(self.epsilon0 * self.size, "epsilon for the whole group")

    def group(self, k: int) -> "Approximate":
        return Approximate(self.epsilon0, self.delta0, self.size * group_size(k))

    def implied_rho(self) -> Fraction | None:
        return None if self.delta0 else pure_rho(self.epsilon0 * self.size)

    def implied_epsilon(self) -> Fraction | None:
        return None if self.delta0 else self.epsilon0 * self.size

    @property
    def is_trivial(self) -> bool:
        return self.epsilon0 == 0 and self.delta0 == 0

    def __str__(self) -> str:
        epsilon, delta = format_rounded_up(self.epsilon0), format_rounded_up(self.delta0)
        numbers = f"epsilon = {epsilon}, delta = {delta}"
        together = "" if self.size == 1 else f" for each of {self.size} records"
        return f"Approximate({numbers}{together})"

    def _steepest(self) -> Fraction:
        return self.epsilon0 * self.size

    def _compute_corners(self) -> list[tuple[RealBall, RealBall]]:
        """Return the corners of the lowest of the lines power_j + slope_j · size and 1.

        Some lines are dropped for very large groups: a higher curve only claims less.
        """
        one = ball(1)
        step = ball(self.epsilon0)
        numbers: Iterable[int] = range(self.size + 1)
        if self.size > _LINES:
            numbers = sorted({round(i * self.size / _LINES) for i in range(_LINES + 1)})
        lines = [(one, ball(min(self.size * self.delta0, Fraction(1))))]
        if self.epsilon0:
            lines = [self._line(j, step) for j in numbers]
        first, corners = lowest([*lines, (ball(0), one)])
        nearly_one = ball(1 - _NEARLY)
        if any(not (size < 1 or size > nearly_one) for size, _ in corners):
            return [(ball(0), one), (one, one)]  # beyond the range of the arithmetic: claim nothing
        inner = [corner for corner in corners if corner[0] < 1]
        return [(ball(0), first), *inner, (one, one)]

    def _line(self, j: int, step: RealBall) -> tuple[RealBall, RealBall]:
        """Return slope and power at size 0 of the line with j flat pieces outside k - j steep
        ones.
        """
        # each piece loses delta0, shrunk or grown by the pieces that are applied after it
        terms = geometric(self.size - j, step) + geometric(j, step)
        lost = ball(self.delta0) * terms
        flat = -j * step
        slope = ((self.size - 2 * j) * step).exp()
        return slope, flat.exp() * lost - flat.expm1()


def geometric(terms: int, step: RealBall) -> RealBall:
    """Return ``1 + e^step + … + e^{(terms-1) step}``, exact for no term and for one."""
    if terms < 2:
        return ball(terms)
    return (terms * step).expm1() / step.expm1()


def lowest(lines: Iterable[tuple[Any, Any]]) -> tuple[Any, list[tuple[Any, Any]]]:
    """Return the power at size 0 and the corners (size, power) of the lowest of lines (slope, power
    at size 0).

    Lines come steepest first, in fractions or in balls. One is dropped where balls cannot prove it
    lowest somewhere: a higher curve only claims less.

    >>> lowest(
    ...     [
    ...         (Fraction(2), Fraction(0)),
    ...         (Fraction(1), Fraction(1, 4)),
    ...         (Fraction(0), Fraction(1)),
    ...     ]
    ... )
    (Fraction(0, 1), [(Fraction(1, 4), Fraction(1, 2)), (Fraction(3, 4), Fraction(1, 1))])
    """
    corners: list[tuple[Any, Any]] = []
    kept: list[tuple[Any, Any]] = []
    for slope, power in lines:
        while kept and not power > kept[-1][1]:  # lower at size 0 and flatter: always lower
            kept.pop()
            del corners[-1:]
        line = (slope, power)
        while corners and not _meeting(kept[-1], line) > corners[-1][0]:
            kept.pop()
            corners.pop()
        if kept:
            size = _meeting(kept[-1], line)
            corners.append((size, power + slope * size))
        kept.append(line)
    return kept[0][1], corners


def _meeting(steep: tuple[Any, Any], flat: tuple[Any, Any]) -> Any:
    """The size at which two lines (slope, power at size 0) meet."""
    (steep_slope, steep_power), (flat_slope, flat_power) = steep, flat
    return (flat_power - steep_power) / (steep_slope - flat_slope)


_GRID = 1 << 200  # denominators of corners that stand for irrational ones

Corner = tuple[Fraction, Fraction]


@frozen(slots=False, order=False)
class PiecewiseLinear(Polygon):
    """The curve through exact corners ``(alphas[i], values[i])``, from alpha 0 to alpha 1.

    >>> curve = PiecewiseLinear((0, Fraction(1, 2), 1), (0, Fraction(1, 4), 1))
    >>> curve(0.75), curve.group(2)(0.75), curve.is_symmetric
    (0.624..., 0.437..., False)
    """

    kind = "piecewise"
    alphas: tuple[Fraction, ...]
    values: tuple[Fraction, ...]

    def __attrs_post_init__(self) -> None:
        alphas = tuple(exact(alpha, "alpha") for alpha in self.alphas)
        values = tuple(exact(value, "a value of f") for value in self.values)
        _check_shape(alphas, values)
        # without corners on straight lines
        kept = lower_hull(list(zip(alphas, values, strict=True)))
        object.__setattr__(self, "alphas", tuple(alpha for alpha, _ in kept))
        object.__setattr__(self, "values", tuple(value for _, value in kept))

    def evaluate_exactly(self, alpha: Fraction) -> Fraction:
        """Return ``f(alpha)`` exactly.

        >>> PiecewiseLinear((0, Fraction(1, 3), 1), (0, 0, 1)).evaluate_exactly(Fraction(1, 2))
        Fraction(1, 4)
        """
        return _interpolate(alpha, self.alphas, self.values)

    def group(self, k: int) -> "PiecewiseLinear":
        result = self
        for _ in range(group_size(k) - 1):
            result = self._compose_after(result)
        return result

    def _compose_after(self, inner: "PiecewiseLinear") -> "PiecewiseLinear":
        top = inner.values[-1]
        # f∘g bends where g does, and where g reaches a bend of f.
        pulled = [inner._evaluate_inverse(alpha) for alpha in self.alphas if 0 < alpha < top]
        alphas = sorted({*inner.alphas, *pulled})
        values = tuple(self.evaluate_exactly(inner.evaluate_exactly(alpha)) for alpha in alphas)
        return PiecewiseLinear(tuple(alphas), values)

    def _evaluate_inverse(self, value: Fraction) -> Fraction:
        zeros = [i for i, value in enumerate(self.values) if value == 0]
        start = max(zeros, default=0)
        return _interpolate(value, self.values[start:], self.alphas[start:])

    def symmetric(self) -> "PiecewiseLinear":
        other = self._reflection
        alphas = sorted({*self.alphas, *other.alphas})
        places = [
            (alpha, self.evaluate_exactly(alpha), other.evaluate_exactly(alpha)) for alpha in alphas
        ]
        corners = [(alpha, max(values)) for alpha, *values in places]
        for (low, ours, theirs), (high, ours_next, theirs_next) in itertools.pairwise(places):
            left, right = ours - theirs, ours_next - theirs_next
            if left * right < 0:  # both are straight here, and meet
                alpha = low + (high - low) * left / (left - right)
                corners.append((alpha, self.evaluate_exactly(alpha)))
        return _from_corners(sorted(corners))

    def compare(self, other: Tradeoff) -> Order:
        if not isinstance(other, PiecewiseLinear):
            return super().compare(other)
        alphas = {*self.alphas, *other.alphas}
        gaps = [self.evaluate_exactly(alpha) - other.evaluate_exactly(alpha) for alpha in alphas]
        return Order.from_comparison(below=min(gaps) < 0, above=max(gaps) > 0)

    @property
    def is_symmetric(self) -> bool:
        return self._reflection == self

    @property
    def is_trivial(self) -> bool:
        return self.alphas == self.values

    def _delta(self, epsilon: Fraction) -> float:
        if epsilon == 0:
            corners = zip(self.alphas, self.values, strict=True)
            return round_up(max(alpha - value for alpha, value in corners))
        return super()._delta(epsilon)

    @cached_property
    def _reflection(self) -> "PiecewiseLinear":
        reflected = []
        for alpha, value in zip(self.alphas, self.values, strict=True):
            reflected.append((1 - value, 1 - alpha))
        corners = reflected[::-1]
        if corners[0][0] > 0:  # f(1) < 1: the inverse is 0 up to 1 - f(1)
            corners.insert(0, (Fraction(0), Fraction(0)))
        # a flat start of f reflects to a vertical end at alpha = 1; the curve keeps its lower value
        return _from_corners(_increasing(corners))

    def _compute_corners(self) -> list[tuple[RealBall, RealBall]]:
        corners = []
        for alpha, value in zip(self.alphas, self.values, strict=True):
            size, power = 1 - alpha, 1 - value
            corners.append((ball(size), ball(power)))
        return corners[::-1]


def piecewise(alphas: Iterable[Number], values: Iterable[Number]) -> PiecewiseLinear:
    """Return the exact curve through the given corners; refuse corners of no tradeoff function.

    >>> piecewise([0, 0.5, 1], [0, 0.6, 1])
    Traceback (most recent call last):
    semidp.errors.InputError: not a tradeoff function: f(x) <= x fails at alpha = 0.5
    """
    exact_alphas = tuple(exact(alpha, "alpha") for alpha in alphas)
    exact_values = tuple(exact(value, "a value of f") for value in values)
    return PiecewiseLinear(exact_alphas, exact_values)


def from_profile(points: Iterable[tuple[Number, Number]]) -> PiecewiseLinear:
    """Return the best curve for a mechanism that is (epsilon, delta)-DP at each of the given
    points.

    ``f(a) = max(0, 1 - delta_i - e^eps_i (1 - a), e^-eps_i (a - delta_i))`` over all points i, with
    irrational corners rounded down on a grid of 2^-200 (Dong, Roth and Su 2022, Proposition 6).

    >>> curve = from_profile([(1, "1e-6"), ("1/2", "1e-3")])
    >>> curve.delta("1/2") - 1e-3 < 1e-12, curve.is_symmetric
    (True, True)
    """
    pairs = []
    for e, d in points:
        pairs.append((nonnegative(e, "epsilon"), proportion(d, "delta")))
    if not pairs:
        raise InputError("a privacy profile needs at least one pair (epsilon, delta)")
    # power <= slope · size + delta, with the slope rounded up: claims a little less
    with precision(BITS):
        lines = [(_ceiling(ball(e).exp()), d) for e, d in pairs]
    lines.sort(reverse=True)
    zero, one = Fraction(0), Fraction(1)
    first, corners = lowest([*lines, (zero, one)])
    inner = [corner for corner in corners if corner[0] < 1]
    ends = [(zero, first), *inner, (one, one)]
    curve = [(1 - size, 1 - power) for size, power in reversed(ends)]
    return _from_corners(curve).symmetric()


def _check_shape(alphas: Sequence[Fraction], values: Sequence[Fraction]) -> None:
    as_many = len(alphas) == len(values) >= 2
    if not as_many or alphas[0] != 0 or alphas[-1] != 1:
        raise InputError(
            "a piecewise linear curve needs as many values as alphas, from alpha = 0 to alpha = 1"
        )
    if any(low >= high for low, high in itertools.pairwise(alphas)):
        raise InputError("the alphas of a piecewise linear curve must increase")

    corners = list(zip(alphas, values, strict=True))
    slopes = []
    for (a0, v0), (a1, v1) in itertools.pairwise(corners):
        slopes.append(((v1 - v0) / (a1 - a0), a1))
    turns = itertools.pairwise(slopes)
    laws = {"f(x) <= x": [alpha for alpha, value in corners if value > alpha]}
    laws["f(x) >= 0"] = [alpha for alpha, value in corners if value < 0]
    laws["f nondecreasing"] = [alpha for slope, alpha in slopes if slope < 0]
    laws["f convex"] = [alpha for (before, alpha), (after, _) in turns if before > after]
    for law, fails in laws.items():
        if fails:
            raise InputError(f"not a tradeoff function: {law} fails at alpha = {plain(fails[0])}")


def _turn(a: tuple[Any, Any], b: tuple[Any, Any], c: tuple[Any, Any]) -> Any:
    """Above zero if the path from a over b to c turns left."""
    (ax, ay), (bx, by) = a, b
    cx, cy = c
    return (bx - ax) * (cy - by) - (by - ay) * (cx - bx)


def lower_hull(points: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Return the corners of the largest convex function below sorted points, none of them on a
    straight line.
    """
    hull: list[tuple[Any, Any]] = []
    for point in points:
        while len(hull) > 1 and _turn(hull[-2], hull[-1], point) <= 0:
            hull.pop()
        hull.append(point)
    return hull


def _increasing(corners: list[Corner]) -> list[Corner]:
    """Corners without those that lie no farther than the one before."""
    kept = corners[:1]
    for before, corner in itertools.pairwise(corners):
        if corner[0] > before[0]:
            kept.append(corner)
    return kept


def _interpolate(x: Fraction, xs: Sequence[Fraction], ys: Sequence[Fraction]) -> Fraction:
    # the segment that holds x; beyond the ends the last one is extended
    right = min(max(bisect_left(xs, x), 1), len(xs) - 1)
    left = right - 1
    rise, run = ys[right] - ys[left], xs[right] - xs[left]
    return ys[left] + rise * (x - xs[left]) / run


def _ceiling(x: RealBall) -> Fraction:
    """Return a fraction with denominator 2^200 that is at least the number in the ball."""
    mantissa, exponent = x.upper().man_exp()
    power = Fraction(2) ** int(exponent)
    value = Fraction(int(mantissa)) * power
    return Fraction(math.ceil(value * _GRID), _GRID)


def _from_corners(corners: list[Corner]) -> PiecewiseLinear:
    alphas, values = zip(*corners, strict=True)
    return PiecewiseLinear(alphas, values)
