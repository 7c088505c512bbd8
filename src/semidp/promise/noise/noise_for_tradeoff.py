"""Which canonical noise serves which tradeoff function.

Closed forms where they exist; every other f is replaced by a polygon that lies just above it, so
that the noise is exact and protects a little more than f says. The distributions themselves are in
`canonical`.
"""

from fractions import Fraction

import numpy as np
import scipy

from semidp.errors import Refused
from semidp.promise.ball_arithmetic import ball, precision
from semidp.promise.exact import bisection, whole_bisection
from semidp.promise.noise.canonical import CanonicalNoise, Floats, Normal, Recursive, Tulap
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.piecewise_linear import PiecewiseLinear, lower_hull
from semidp.promise.tradeoff.polygons import Approximate
from semidp.promise.tradeoff.smooth import Gaussian

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
    f everywhere and within 1e-5 of it, so that the noise is hardly wider. A zCDP budget is met by
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
    >>> from semidp.promise.tradeoff.curves import approximate, gaussian
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

    Gaussian, (ε, δ) and polygons are met as they are. Of a curve that is known by numbers, or that
    follows from zCDP without implying it back, only the polygon of chords is claimed.

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

    Chords of a convex curve lie above it. The curve is looked at on its lower half, lifted by more
    than its rounding error, reflected, and the lower hull taken in exact arithmetic, so that
    symmetry holds exactly.

    >>> from semidp.promise.tradeoff.curves import zcdp
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
    # a mapping, so that a corner that comes twice (δ = 0) counts once
    corners = {zero: zero, delta: zero, 1 - c: c, one: 1 - delta}
    single = PiecewiseLinear(tuple(corners), tuple(corners.values()))
    return single.group(f.size)
