"""Curves with corners, and the first of them: (epsilon, delta) and its groups, with corners known
as balls.

A corner is kept as (size, power) = (1 - alpha, 1 - f(alpha)) of a test, where small numbers keep
their precision and ``delta(eps) = max over corners of power - e^eps size``. Curves with corners
given by the user are in `piecewise_linear`.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from semidp.promise.ball_arithmetic import RealBall, ball, precision, round_ball_down, round_ball_up
from semidp.promise.exact import Number, format_rounded_up, plain, round_up
from semidp.promise.tradeoff.function import (
    ROUNDOFF,
    Floats,
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
        # Smaller sizes and larger powers: a test that is better than the true one, so that less is
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
        """Return an epsilon beyond which delta no longer falls, where one is known exactly."""
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


@dataclass(frozen=True)
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

    epsilon0: Fraction
    delta0: Fraction = Fraction(0)
    size: int = 1

    def __post_init__(self) -> None:
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

    def to_json(self) -> dict[str, Any]:
        parameters = {"epsilon": plain(self.epsilon0), "delta": plain(self.delta0)}
        return {"kind": "approximate", **parameters, "group": self.size}

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
            return [(ball(0), one), (one, one)]  # beyond arithmetic: claim nothing
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
