"""Canonical noise: the distributions that meet a tradeoff function f exactly, neither more nor
less.

`Tulap` for (ε, δ), `Normal` for Gaussian privacy, and `Recursive` for any symmetric polygon by the
paper's recursion. `canonical_noise` chooses for a given f: a closed form if there is one; any other
f is replaced by a polygon just above it, so the noise is exact and protects slightly more than f.
The test that uses them is in `umpu`.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError, Refused
from semidp.promise.ball_arithmetic import ball, precision
from semidp.promise.exact import bisection, whole_bisection
from semidp.promise.noise.inversion import LazyUniform
from semidp.promise.noise.randomness import Randomness, Stream, uniforms
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.polygons import Approximate, PiecewiseLinear, lower_hull
from semidp.promise.tradeoff.smooth import Gaussian

Floats = NDArray[np.float64]
_NARROWEST = Fraction(1, 10_000)  # of 1 - 2c, the probability of [-1/2, 1/2]


@frozen(slots=False)
class CanonicalNoise(ABC):
    """Noise N with a continuous cdf F, symmetric about 0, for which ``F(x - 1) = f(F(x))`` wherever
    that is positive.

    Added to a count that moves by at most `sensitivity` between adjacent datasets,
    ``sensitivity · N`` gives f exactly where the move is largest, and at least f elsewhere (Cho and
    Awan, definition of canonical noise).

    Parameters
    ----------
    sensitivity
        By how much the count can move; the noise is stretched by it.
    """

    sensitivity: int = field(default=1, kw_only=True)

    def __attrs_post_init__(self) -> None:
        number = self.sensitivity
        is_whole = isinstance(number, int) and not isinstance(number, bool)
        if not is_whole or number < 1:
            raise InputError(
                "the sensitivity of the count must be a whole number of at least 1:"
                f" {self.sensitivity}"
            )

    def cdf(self, x: ArrayLike) -> Floats:
        """Return ``P(noise <= x)``, accurate in the lower tail; the upper tail is ``cdf(-x)`` by
        symmetry.
        """
        x = np.asarray(x, dtype=np.float64)
        return self._unit_cdf(x / self.sensitivity)

    def quantile(self, w: ArrayLike) -> Floats:
        """Return the x with ``cdf(x) = w``."""
        w = np.asarray(w, dtype=np.float64)
        lower = self._lower_quantile(np.minimum(w, 1 - w))
        return np.where(w <= 0.5, lower, -lower) * self.sensitivity

    def sample(self, size: int, randomness: Randomness) -> Floats:
        """Draw real-valued noise by inverse transform. Floating point: for studies, never for a
        release.
        """
        return self.quantile(uniforms(size, randomness))

    def lattice(self, start: ArrayLike, count: int) -> Floats:
        """Return ``cdf(start + i)`` for i = 0, …, count - 1, one row for each start."""
        start = np.atleast_1d(np.asarray(start, dtype=np.float64))
        out = np.empty((len(start), count))
        for residue in range(min(self.sensitivity, count)):
            columns = out[:, residue :: self.sensitivity]
            unit_start = (start + residue) / self.sensitivity
            columns[:] = self._unit_lattice(unit_start, columns.shape[1])
        return out

    def grid_steps(self, bits: int, randomness: Randomness) -> int:
        """Draw ``round(noise · 2^bits)`` exactly.

        Random bits w1 w2 … name an ever smaller interval of probabilities; ball arithmetic encloses
        its quantiles, and drawing stops when all of them round to the same whole number. No
        floating-point number is involved.
        """
        drawn = LazyUniform(0, 0, Stream(randomness))
        while True:
            drawn.extend()
            denominator = 1 << drawn.bits
            with precision(3 * drawn.bits + 2 * bits + 64):
                lower = self._nearest_step(Fraction(drawn.top, denominator), bits)
                upper = self._nearest_step(Fraction(drawn.top + 1, denominator), bits)
            if lower is not None and lower == upper:
                return lower

    @cached_property
    def reach(self) -> float:
        """Largest noise in floats: ``cdf(-reach)`` is below the smallest number above 0.

        A tenth beyond R, where ``F(-R) = 1e-300``: F falls by ``f(w)/w`` a step, which falls with w
        since f is convex with f(0) = 0, so ``F(-1.1 R)`` is about ``F(-R)^1.1 = 1e-330`` or
        less.

        >>> round(Normal(Fraction(1)).reach, 1)
        41.8
        """
        return -1.1 * float(self.quantile(1e-300)) + self.sensitivity

    @property
    def standard_deviation(self) -> float:
        """The standard deviation of the noise, from the quantiles of equal shares of
        probability.
        """
        share = (np.arange(20_000) + 0.5) / 40_000
        squares = self._lower_quantile(share) ** 2
        return self.sensitivity * float(np.sqrt(np.mean(squares)))

    @abstractmethod
    def _lower(self, x: Floats) -> Floats:
        """F(x) for x <= 0 and sensitivity 1."""

    @abstractmethod
    def _lower_quantile(self, w: Floats) -> Floats:
        """The quantile for w <= 1/2 and sensitivity 1."""

    @abstractmethod
    def _ball_quantile(self, w: Any) -> Any:
        """A ball around the quantile of the ball w <= 1/2, or None if the working precision does
        not decide.
        """

    def _nearest_step(self, w: Fraction, bits: int) -> int | None:
        """The whole number next to ``2^bits`` times the quantile of w, or None if precision does
        not decide.
        """
        if w in (0, 1):
            return None
        quantile = self._ball_quantile(ball(min(w, 1 - w)))
        if quantile is None:
            return None
        signed = quantile if 2 * w <= 1 else -quantile
        # floor(x + 1/2): None unless all numbers of the ball round to the same one
        stretched = signed * (self.sensitivity << bits)
        rounded = (stretched + ball(Fraction(1, 2))).floor()
        step = rounded.unique_fmpz()
        return None if step is None else int(step)

    def _unit_cdf(self, x: Floats) -> Floats:
        lower = self._lower(-np.abs(x))
        return np.where(x <= 0, lower, 1 - lower)

    def _unit_lattice(self, start: Floats, count: int) -> Floats:
        return self._unit_cdf(start[:, None] + np.arange(count))


@frozen(slots=False)
class Tulap(CanonicalNoise):
    """The only canonical noise for (ε, δ): truncated uniform-Laplace.

    For δ = 0 it is a discrete Laplace number plus a uniform one on [-1/2, 1/2]; with ``b = e^-ε``
    and r the integer nearest to x <= 0, ``F(x) = e^{ε r} (b + (x - r + 1/2)(1 - b)) / (1 + b)``.
    For δ > 0 that is cut off at the probabilities q/2 and 1 - q/2, ``q = 2δb / (1 - b + 2δb)``
    (Awan and Slavković).

    Examples
    --------
    >>> noise = Tulap(Fraction(1))
    >>> noise.cdf([-1.5, -0.5, 0.5]).round(4)
    array([0.0989, 0.2689, 0.7311])
    >>> bool(np.isclose(noise.cdf(-2.2), np.exp(-1) * noise.cdf(-1.2)))
    True
    """

    epsilon: Fraction
    delta: Fraction = Fraction(0)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.epsilon <= 0 or not 0 <= self.delta < 1:
            raise InputError("Tulap noise needs epsilon above 0 and delta at least 0 and below 1")

    @cached_property
    def _parts(self) -> tuple[float, float, float, float]:
        """ε, b, 1 - b and 1/(1 - q), each to full relative accuracy."""
        epsilon = float(self.epsilon)
        b = math.exp(-epsilon)
        # expm1 keeps the digits of 1 - b where epsilon is small.
        complement = -math.expm1(-epsilon)
        stretch = 1 + 2 * float(self.delta) * b / complement
        return epsilon, b, complement, stretch

    @property
    def standard_deviation(self) -> float:
        """The root of ``2b/(1-b)² + 1/12`` for δ = 0, numerically otherwise."""
        _, b, complement, _ = self._parts
        if self.delta:
            return super().standard_deviation
        discrete_variance = 2 * b / complement**2
        return self.sensitivity * math.sqrt(discrete_variance + 1 / 12)

    def _lower(self, x: Floats) -> Floats:
        epsilon, b, complement, stretch = self._parts
        nearest = np.rint(x)
        inside = x - nearest
        slope = complement / (1 + b)
        level = 0.5 + slope * inside
        if self.delta == 0:
            return np.asarray(np.exp(epsilon * nearest) * level)
        tilted = slope * inside
        below_half = np.expm1(epsilon * nearest) * level + tilted
        return np.maximum(0.5 + stretch * below_half, 0.0)

    def _lower_quantile(self, w: Floats) -> Floats:
        epsilon, b, complement, stretch = self._parts
        uncut_level = 0.5 + (w - 0.5) / stretch if self.delta else w
        uncut = uncut_level * (1 + b)
        nearest = -np.floor(np.log(uncut) / -epsilon)
        raised = uncut * np.exp(-epsilon * nearest)
        inside = (raised - b) / complement
        return np.asarray(nearest - 0.5 + inside)

    def _ball_quantile(self, w: Any) -> Any:
        epsilon, delta = ball(self.epsilon), ball(self.delta)
        b = (-epsilon).exp()
        scaled_delta = 2 * delta * b
        q = scaled_delta / (1 - b + scaled_delta)
        uncut_level = q / 2 + (1 - q) * w
        uncut = uncut_level * (1 + b)
        depth = (-uncut.log() / epsilon).floor().unique_fmpz()
        if depth is None:
            return None
        whole = ball(int(depth))
        raised = uncut * (epsilon * whole).exp()
        inside = (raised - b) / (1 - b)
        return inside - whole - ball(Fraction(1, 2))


@frozen(slots=False)
class Normal(CanonicalNoise):
    """The canonical noise of Gaussian privacy: N(0, 1/μ²).

    >>> Normal(Fraction(4)).cdf([-2.0, 0.0, 2.0]).round(4)
    array([0.1587, 0.5   , 0.8413])
    """

    variance: Fraction
    """1/μ², exact: μ itself may be the root of a fraction."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.variance <= 0:
            raise InputError("the variance of the noise must be above 0")

    @cached_property
    def _sigma(self) -> float:
        return math.sqrt(self.variance)

    @property
    def standard_deviation(self) -> float:
        """``sensitivity/μ``."""
        return self.sensitivity * self._sigma

    def _lower(self, x: Floats) -> Floats:
        return np.asarray(scipy.special.ndtr(x / self._sigma))

    def _lower_quantile(self, w: Floats) -> Floats:
        return np.asarray(scipy.special.ndtri(w) * self._sigma)

    def _ball_quantile(self, w: Any) -> Any:
        root_of_two_variances = (2 * ball(self.variance)).sqrt()
        return -(2 * w).erfcinv() * root_of_two_variances


@frozen(slots=False)
class Recursive(CanonicalNoise):
    """The canonical noise of a symmetric piecewise-linear f, by the paper's recursion.

    With c the solution of ``f(1 - c) = c``: linear from c at -1/2 to 1 - c at 1/2, and
    ``F(x) = f(F(x + 1))`` below.

    Parameters
    ----------
    alphas, values
        The corners of f from (0, 0) to (1, f(1)), exact, convex, and symmetric under
        ``(x, y) -> (1 - y, 1 - x)``.

    Examples
    --------
    >>> third = Fraction(1, 3)
    >>> noise = Recursive((Fraction(0), 2 * third, Fraction(1)), (Fraction(0), third, Fraction(1)))
    >>> noise.c
    Fraction(1, 3)
    >>> noise.cdf([-1.5, -0.5, 0.0]).round(4)
    array([0.1667, 0.3333, 0.5   ])
    """

    alphas: tuple[Fraction, ...]
    values: tuple[Fraction, ...]

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if 1 - 2 * self.c < _NARROWEST:
            raise Refused(
                "this guarantee is so strong that its canonical noise, which is built step by step,"
                " would take too many steps: ask for Gaussian or (epsilon, delta) privacy, whose"
                " noise has a closed form"
            )

    @classmethod
    def none(cls) -> "Recursive":
        """Return the noise of f = 0, uniform on [-1/2, 1/2]: the randomised test without privacy.

        >>> Recursive.none().cdf([-0.5, 0.25])
        array([0.  , 0.75])
        """
        zero, one = Fraction(0), Fraction(1)
        return cls((zero, one), (zero, zero))

    @cached_property
    def c(self) -> Fraction:
        """The solution of ``f(1 - c) = c``."""
        corners = zip(self.alphas, self.values, strict=True)
        for (x0, y0), (x1, y1) in pairwise(corners):
            # the first edge that reaches the line x + y = 1
            if x1 + y1 >= 1:
                step = x1 - x0 + y1 - y0
                share = (1 - x0 - y0) / step
                return y0 + share * (y1 - y0)
        raise AssertionError("a polygon that ends at alpha = 1 meets the line x + y = 1")

    @cached_property
    def _floats(self) -> tuple[Floats, Floats, float]:
        alphas = np.array(self.alphas, dtype=float)
        values = np.array(self.values, dtype=float)
        return alphas, values, float(self.c)

    def _apply(self, w: Floats) -> Floats:
        alphas, values, _ = self._floats
        return np.asarray(np.interp(w, alphas, values))

    def _start(self, x: Floats) -> Floats:
        c = self._floats[2]
        return c * (0.5 - x) + (1 - c) * (x + 0.5)

    def _lower(self, x: Floats) -> Floats:
        nearest = np.rint(x)
        depth = -nearest.ravel()
        level = self._start(x - nearest).ravel()
        # The deepest first: those that need another application of f are then a leading run.
        order = np.argsort(-depth, kind="stable")
        level, sorted_depth = level[order], depth[order]
        for step in range(int(sorted_depth[0]) if depth.size else 0):
            active = int(np.searchsorted(-sorted_depth, -step, side="left"))
            level[:active] = self._apply(level[:active])
            if not level[:active].any():
                break
        out = np.empty_like(level)
        out[order] = level
        return out.reshape(x.shape)

    def _unit_lattice(self, start: Floats, count: int) -> Floats:
        nearest = np.rint(start)
        positions = np.arange(count) + nearest[:, None]
        offset = positions.astype(np.int64)
        length = int(np.abs(offset).max()) + 1
        # F(x) for x > 0 is 1 - F(-x), so one chain goes down from each side.
        both_sides = np.concatenate([start - nearest, nearest - start])
        down, up = np.split(self._chain(both_sides, length), 2)
        below = np.take_along_axis(down, np.maximum(-offset, 0), axis=1)
        above = 1 - np.take_along_axis(up, np.maximum(offset, 0), axis=1)
        return np.where(offset <= 0, below, above)

    def _chain(self, inside: Floats, length: int) -> Floats:
        """F(inside - j) for j < length; under its first corner f is a straight line, so the rest is
        geometric.
        """
        alphas, values, _ = self._floats
        slope = values[1] / alphas[1]
        out = np.empty((len(inside), length))
        level = self._start(inside)
        for j in range(length):
            out[:, j] = level
            if level.max() <= alphas[1]:
                powers = slope ** np.arange(length - j)
                out[:, j:] = level[:, None] * powers
                break
            level = self._apply(level)
        return out

    def _lower_quantile(self, w: Floats) -> Floats:
        _, _, c = self._floats
        xs, ys = (np.array(part, dtype=float) for part in self._rising)
        level = np.array(w, dtype=float)
        depth = np.zeros(np.shape(w))
        while (low := (level < c) & (level > 0)).any():
            # At least the next float, so the loop ends where f is nearly the identity.
            raised = np.interp(level[low], xs, ys)
            level[low] = np.maximum(raised, np.nextafter(level[low], 1))
            depth[low] += 1
        with np.errstate(invalid="ignore"):
            unit = (level - 0.5) / (1 - 2 * c)
            return np.asarray(np.clip(unit, -0.5, 0.5) - depth)

    @cached_property
    def _rising(self) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]]:
        """The corners of the inverse of f on (0, f(1)]: where f is flat at 0 it starts at the right
        end.
        """
        zeros = [i for i, value in enumerate(self.values) if value == 0]
        flat = zeros[-1]
        return self.values[flat:], self.alphas[flat:]

    def _ball_quantile(self, w: Any) -> Any:
        xs, ys = self._rising
        near = [float(x) for x in xs]
        c = ball(self.c)
        depth = 0
        while w < c:
            # The edge is guessed in floats and then certified by the ball.
            guess = bisect_right(near, float(w.mid())) - 1
            i = min(max(guess, 0), len(xs) - 2)
            left, right = xs[i], xs[i + 1]
            if not (w >= ball(left) and w <= ball(right)):
                return None
            rise = ys[i + 1] - ys[i]
            slope = rise / (right - left)
            w = ball(ys[i]) + (w - ball(left)) * ball(slope)
            depth += 1
        if not w >= c:
            return None
        above_middle = w - ball(Fraction(1, 2))
        return above_middle / (1 - 2 * c) - depth


_LIFT = 1 + 2.0**-36  # more than rounding inside f can take away
# normal quantiles at which a curve is looked at: from 6e-16 to 1 - 6e-16
_ALPHAS = (-8.0, 8.0, 0.002)
# how far a chord may rise above the curve: absolutely, and as a share of small values
_GAP, _TAIL_GAP = 1e-5, 1e-2
_RATIONAL = 1 << 200  # denominator of a fraction just below e^ε


def canonical_noise(privacy: Tradeoff | Budget, sensitivity: int = 1) -> CanonicalNoise:
    """Return the canonical noise for a guarantee: Tulap for (ε, δ), normal for Gaussian privacy,
    recursive otherwise.

    A polygon is met exactly. Any other curve is met by the polygon of its chords, which is at least
    f everywhere and within 1e-5 of it, so the noise is hardly wider. A zCDP budget is met by
    normal noise with variance 1/(2ρ), which is ρ-zCDP (Cho and Awan, construction of canonical
    noise).

    Parameters
    ----------
    privacy
        A budget or any nontrivial tradeoff function; one that is not symmetric is made so, which
        loses nothing.
    sensitivity
        By how much the count can move between adjacent datasets.

    Examples
    --------
    >>> from semidp.promise.tradeoff.budget import approximate, gaussian
    >>> canonical_noise(approximate("0.5"))
    Tulap(sensitivity=1, epsilon=Fraction(1, 2), delta=Fraction(0, 1))
    >>> canonical_noise(gaussian(2), sensitivity=3)
    Normal(sensitivity=3, variance=Fraction(1, 4))
    >>> pair = canonical_noise(approximate(1).group(2))
    >>> float(pair.cdf(-0.5).round(4))
    0.1839
    """
    f = find_claimable_curve(privacy).symmetric()
    if f.is_trivial:
        raise Refused(
            "perfect privacy would need infinite noise: ask for a guarantee that allows some"
            " information"
        )
    if isinstance(f, Gaussian):
        return Normal(1 / f.mu_squared, sensitivity=sensitivity)
    # Tulap needs ε above 0 and δ below 1; groups and the ends are polygons
    if isinstance(f, Approximate) and f.size == 1 and f.epsilon0 > 0 and f.delta0 < 1:
        return Tulap(f.epsilon0, f.delta0, sensitivity=sensitivity)
    polygon = polygon_above(f)
    return Recursive(polygon.alphas, polygon.values, sensitivity=sensitivity)


def find_claimable_curve(privacy: Tradeoff | Budget) -> Tradeoff:
    """Return the tradeoff function that the noise for `privacy` meets, and that may be claimed.

    Gaussian, (ε, δ) and polygons are met exactly. For a curve known only numerically, or one that
    follows from zCDP without implying it, only the polygon of chords is claimed.

    >>> find_claimable_curve(Budget.zcdp("1/2"))
    Gaussian(mu_squared=Fraction(1, 1))
    """
    if isinstance(privacy, Budget):
        if privacy.rho is not None:
            return Gaussian(2 * privacy.rho)
        return privacy.tradeoff()
    f = privacy.symmetric()
    has_exact_noise = isinstance(f, (Gaussian, Approximate, PiecewiseLinear))
    return f if f.is_trivial or has_exact_noise else polygon_above(f)


def polygon_above(f: Tradeoff) -> PiecewiseLinear:
    """Return a symmetric polygon that is at least f everywhere, and f itself where f is one.

    Chords of a convex curve lie above it. The curve is evaluated on its lower half, lifted by more
    than its rounding error, reflected, and the lower hull taken in exact arithmetic, so
    symmetry holds exactly.

    >>> from semidp.promise.tradeoff.budget import zcdp
    >>> polygon = polygon_above(zcdp(1))
    >>> polygon.is_symmetric, bool(np.all(polygon([0.1, 0.5, 0.9]) >= zcdp(1)([0.1, 0.5, 0.9])))
    (True, True)
    """
    if isinstance(f, PiecewiseLinear):
        return f.symmetric()
    if isinstance(f, Approximate):
        return _approximate_above(f)
    f = f.symmetric()
    c = _fixed_point(f)
    start = (Fraction(0), Fraction(0))
    kink = (1 - Fraction(c), Fraction(c))
    lower_half = [start, *_few_points(f, 1 - c), kink]
    reflected = [(1 - y, 1 - x) for x, y in lower_half]
    hull = lower_hull(sorted({*lower_half, *reflected}))
    alphas = tuple(x for x, _ in hull)
    return PiecewiseLinear(alphas, tuple(y for _, y in hull))


def _few_points(f: Tradeoff, end: float) -> list[tuple[Fraction, Fraction]]:
    """Points just above the curve up to `end` whose chords stay within the gaps: each point is the
    farthest that its predecessor allows.
    """
    alphas = scipy.special.ndtr(np.arange(*_ALPHAS))
    alphas = np.append(alphas[alphas < end], end)
    values = np.minimum(np.asarray(f(alphas)) * _LIFT, alphas)
    is_positive = values > 0
    alphas, values = alphas[is_positive], values[is_positive]
    kept = [0] if alphas.size else []
    while kept and kept[-1] < alphas.size - 1:
        kept.append(_farthest(alphas, values, kept[-1]))
    points = []
    for i in kept[:-1]:
        alpha = Fraction(float(alphas[i]))
        points.append((alpha, Fraction(float(values[i]))))
    return points


def _farthest(alphas: Floats, values: Floats, start: int) -> int:
    """The last index whose chord from `start` stays close to the curve: doubling, then
    bisection.
    """

    def close(end: int) -> bool:
        inside = slice(start, end + 1)
        ends = [start, end]
        curve = values[inside]
        chord = np.interp(alphas[inside], alphas[ends], values[ends])
        allowed = np.minimum(_GAP, _TAIL_GAP * curve)
        return bool(np.all(chord - curve <= allowed))

    low, high = start + 1, start + 2
    last = alphas.size - 1
    while high <= last and close(high):
        low, high = high, start + 2 * (high - start)
    high = min(high, last + 1)
    low, _ = whole_bisection(close, low, high)
    return low


def _fixed_point(f: Tradeoff) -> float:
    """A number just above the c with ``f(1 - c) = c``, where a symmetric curve may have a kink."""

    def is_below(c: float) -> bool:
        at_end = float(f(np.array([1 - c]))[0])
        return at_end * _LIFT > c

    _, high = bisection(is_below, 0.0, 0.5, halvings=60)
    return high


def _approximate_above(f: Approximate) -> PiecewiseLinear:
    """The group of (ε, δ) with a fraction just below e^ε in place of e^ε, composed exactly."""
    with precision(512 + 4 * int(f.epsilon0)):
        power = ball(f.epsilon0).exp() * _RATIONAL
        numerator = int(power.lower().floor().unique_fmpz())
        growth = max(Fraction(numerator, _RATIONAL), Fraction(1))
    delta = f.delta0
    c = (1 - delta) / (1 + growth)
    zero, one = Fraction(0), Fraction(1)
    # a mapping, so a corner that comes twice (δ = 0) counts once
    corners = {zero: zero, delta: zero, 1 - c: c, one: 1 - delta}
    single = PiecewiseLinear(tuple(corners), tuple(corners.values()))
    return single.group(f.size)
