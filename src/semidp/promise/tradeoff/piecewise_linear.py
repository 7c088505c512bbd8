"""Piecewise linear curves with exact corners: given as such, as a privacy profile, or as code.

Everything here is rational arithmetic, groups and symmetrisation included; what polygons have in
common is in polygons.
"""

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from semidp.errors import InputError
from semidp.promise.ball_arithmetic import RealBall, ball, precision
from semidp.promise.exact import Number, exact, nonnegative, plain, round_up
from semidp.promise.tradeoff.function import Floats, Order, Tradeoff, group_size, proportion
from semidp.promise.tradeoff.polygons import BITS, Polygon, lowest

_GRID = 1 << 200  # denominators of corners that stand for irrational ones
_NOISE = 1e-9  # what rounding inside a user's function may do to its values

Corner = tuple[Fraction, Fraction]


@dataclass(frozen=True)
class PiecewiseLinear(Polygon):
    """The curve through exact corners ``(alphas[i], values[i])``, from alpha 0 to alpha 1.

    >>> curve = PiecewiseLinear((0, Fraction(1, 2), 1), (0, Fraction(1, 4), 1))
    >>> curve(0.75), curve.group(2)(0.75), curve.is_symmetric
    (0.624..., 0.437..., False)
    """

    alphas: tuple[Fraction, ...]
    values: tuple[Fraction, ...]

    def __post_init__(self) -> None:
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

    def to_json(self) -> dict[str, Any]:
        alphas = [*map(plain, self.alphas)]
        values = [*map(plain, self.values)]
        return {"kind": "piecewise", "alphas": alphas, "values": values}

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
    """Return the curve through the given corners, exactly; refuse what is not a tradeoff function.

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


def from_function(f: Callable[[Floats], npt.ArrayLike], points: int = 1024) -> PiecewiseLinear:
    """Return a curve just below a function given as code, after checking that it can be a tradeoff
    function.

    The function is asked for its values at about `points` alphas, down to 1e-15 from 0 and from 1.
    Between them a convex function lies above its neighbouring chords, extended, and those are what
    is returned.

    Parameters
    ----------
    f
        Takes an array of alphas and returns as many values. Values may be off by 1e-9 through
        rounding.
    points
        How many alphas to look at.

    Examples
    --------
    >>> curve = from_function(lambda a: a**2)
    >>> curve(0.5) <= 0.25, 0.25 - curve(0.5) < 1e-4
    (True, True)
    >>> from_function(lambda a: a * float("nan"))
    Traceback (most recent call last):
    semidp.errors.InputError: not a tradeoff function: a value is not a number
    """
    # Cosines are dense near both ends, where curves bend most; powers of ten go on from there.
    ends = np.geomspace(1e-15, 0.5, points // 4)
    cosines = np.cos(np.linspace(0, np.pi, points // 2))
    middle = (1 - cosines) / 2
    grid = np.unique(np.concatenate([middle, ends, 1 - ends]))
    grid[0] = 0.0
    values = np.asarray(f(grid), dtype=np.float64)
    if values.shape != grid.shape:
        raise InputError(
            "not a tradeoff function: it must return one value for each alpha of an array"
        )
    if np.isnan(values).any():
        raise InputError("not a tradeoff function: a value is not a number")
    clipped = np.clip(values, 0.0, grid)
    hull = np.array(lower_hull(list(zip(grid, clipped, strict=True))))
    largest_so_far = np.maximum.accumulate(values)
    hull_alphas, hull_values = hull.T
    convex = np.interp(grid, hull_alphas, hull_values)
    laws = {"f(x) <= x": values > grid + _NOISE, "f(x) >= 0": values < -_NOISE}
    laws["f nondecreasing"] = values < largest_so_far - _NOISE
    laws["f convex"] = values > convex + _NOISE
    for law, fails in laws.items():
        if fails.any():
            first = grid[int(np.argmax(fails))]
            raise InputError(f"not a tradeoff function: {law} fails at alpha = {first:.6g}")
    exact_points = [(Fraction(alpha), Fraction(value)) for alpha, value in hull.tolist()]
    return _from_corners(_below_chords(lower_hull(exact_points)))


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
    """Above zero where the path from a over b to c turns left."""
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


def _below_chords(corners: list[Corner]) -> list[Corner]:
    """Return corners of a polygon that lies below every convex function through the given points.

    Between two points a convex function is above both neighbouring chords, extended. At the two
    ends only one neighbour exists; the other bound is that f does not fall.
    """
    if len(corners) < 3:
        if corners[-1][1] == 0:
            return [corners[0], (Fraction(1), Fraction(0))]
        return corners
    pairs = list(itertools.pairwise(corners))
    slopes = []
    for (a0, v0), (a1, v1) in pairs:
        slopes.append((v1 - v0) / (a1 - a0))
    result = [corners[0]]
    for i, ((a0, v0), (a1, v1)) in enumerate(pairs):
        left = slopes[i - 1] if i else Fraction(0)  # f is nondecreasing
        if i + 1 == len(slopes):  # beyond the last chord the curve may rise at once, at alpha = 1
            result.append((a1, v0 + left * (a1 - a0)))
            continue
        right = slopes[i + 1]
        # where the chord from the left and the one from the right meet
        meeting = a1
        if left != right:
            rise = v1 - v0 - right * (a1 - a0)
            meeting = a0 + rise / (left - right)
        result.append((meeting, v0 + left * (meeting - a0)))
        result.append((a1, v1))
    return lower_hull(_increasing(result))


def _increasing(corners: list[Corner]) -> list[Corner]:
    """Corners without those that lie no further than the one before."""
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
