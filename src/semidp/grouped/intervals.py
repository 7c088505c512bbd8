"""Confidence intervals for sums, means, differences and coefficients: from the noise alone, or with sampling error.

The noise alone asks what the records themselves have: its law is known, so that the interval needs no assumption. With
sampling error it is the population that the records were drawn from. The two are different questions, and an interval
says which of them it answers.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.exact import Number, exact, number, plain
from semidp.mechanisms import LaplaceMechanism, Mechanism

Floats = NDArray[np.float64]

LEVEL = Fraction(95, 100)
"""The level of an interval unless given."""

_GRID = 8192  # points at which the characteristic function of Laplace noise is taken
_FARTHEST = 160.0  # in units of its standard deviation
_HALVINGS = 40


class About(StrEnum):
    """What an interval is about: the records, or the population that they were drawn from.

    >>> [str(about) for about in About]
    ['noise', 'noise and sampling']
    """

    noise = "noise"
    sampling = "noise and sampling"


@dataclass(frozen=True, eq=False)
class Intervals:
    """An interval for each of several numbers.

    Parameters
    ----------
    names
        What each number is of: the levels of a group or of two, or the name of a coefficient.
    values, lower, upper
        The estimates and the ends of the intervals; infinite where the noise leaves an end open.
    level
        The probability that an interval holds what it is about, or that all of them do where they are simultaneous.
    about
        Whether that is a number of the records (noise alone) or of their population (noise and sampling).
    simultaneous
        Whether the level is that of all intervals together.
    """

    names: tuple[tuple[str, ...], ...]
    values: Floats = field(repr=False)
    lower: Floats = field(repr=False)
    upper: Floats = field(repr=False)
    level: Fraction = LEVEL
    about: About = About.noise
    simultaneous: bool = False

    @classmethod
    def around(
        cls,
        names: Iterable[tuple[str, ...]],
        values: Floats,
        half: Floats,
        level: Fraction,
        sampling: bool,
        simultaneous: bool,
    ) -> "Intervals":
        """Return intervals that reach as far to each side of their values."""
        about = About.sampling if sampling else About.noise
        return cls(tuple(names), values, values - half, values + half, level, about, simultaneous)

    def rows(self) -> Iterator[tuple[tuple[str, ...], float, float, float]]:
        """Yield each name with its estimate and the ends of its interval."""
        yield from zip(self.names, self.values.tolist(), self.lower.tolist(), self.upper.tolist(), strict=True)

    def to_json(self) -> dict[str, Any]:
        """Return the intervals as plain values, None for an end that is open or a number that does not exist."""
        return {
            "names": [list(name) for name in self.names],
            "values": [finite(value) for value in self.values.tolist()],
            "lower": [finite(value) for value in self.lower.tolist()],
            "upper": [finite(value) for value in self.upper.tolist()],
            "level": number(self.level),
            "about": str(self.about),
            "simultaneous": self.simultaneous,
        }


def level_of(value: Number) -> Fraction:
    """Return a level of confidence, between 0 and 1.

    >>> level_of("0.9")
    Fraction(9, 10)
    >>> level_of(95)
    Traceback (most recent call last):
    semidp.errors.InputError: the level of an interval lies between 0 and 1, not 95
    """
    level = exact(value, "the level of an interval")
    if not 0 < level < 1:
        raise InputError(f"the level of an interval lies between 0 and 1, not {value}")
    return level


def _truth(value: bool) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"whether an interval is wanted is true or false, not {value!r}")
    return value


@attrs.frozen
class Confidence:
    """The intervals of a request: those of the noise alone always, and what else is asked for.

    Parameters
    ----------
    level
        The probability that an interval holds what it is about.
    sampling
        Whether intervals for the population that the records were drawn from are given besides.
    simultaneous
        Whether the level is that of all intervals of a set together.
    differences
        Whether intervals for the differences of groups are given too.

    Examples
    --------
    >>> Confidence("0.9", sampling=True).to_json()
    {'level': '0.9', 'sampling': True}
    """

    level: Fraction = attrs.field(default=LEVEL, converter=level_of)
    sampling: bool = attrs.field(default=False, converter=_truth)
    simultaneous: bool = attrs.field(default=False, converter=_truth)
    differences: bool = attrs.field(default=False, converter=_truth)

    keys: ClassVar[tuple[str, ...]] = ("level", "sampling", "simultaneous", "differences")

    def to_json(self) -> dict[str, Any]:
        """Return what was asked for beyond the usual, as plain values."""
        flags = {key: True for key in self.keys[1:] if getattr(self, key)}
        return {**({} if self.level == LEVEL else {"level": plain(self.level)}), **flags}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Confidence":
        """Read the keys that `to_json` writes; others are left alone."""
        return cls(**{key: value[key] for key in cls.keys if key in value})


def each_level(level: Fraction, count: int, mechanism: Mechanism, simultaneous: bool) -> float:
    """Return the level that each of several intervals needs.

    Symmetric intervals of normal errors hold together at least as often as independent ones would, whatever their
    correlation (Šidák 1967), so that each needs ``level^{1/k}``; other noise uses Bonferroni's ``1 - (1 - level)/k``.
    """
    if not simultaneous or count <= 1:
        return float(level)
    if isinstance(mechanism, LaplaceMechanism):
        return 1 - float(1 - level) / count
    return math.exp(math.log(level) / count)


def half_widths(
    mechanism: Mechanism, weights: Sequence[Floats], level: float, sampling: Sequence[Floats] | None = None
) -> Floats:
    """Return h with ``P(|Σ w_i N_i + E| <= h) >= level`` for the noise N_i of single entries of a mechanism's query.

    A rounded Gaussian number is at most half a step from a normal one, and the distance of a discrete Laplace number
    from 0 exceeds that of a continuous one by at most half a step in distribution; so half a step of the heaviest entry
    is added to the quantile of the continuous law. That is proven for one entry; for several it is a continuity
    correction. Sums of Laplace noise are inverted from their characteristic function, ``Π 1/(1 + b² w_i² t²)``.

    Parameters
    ----------
    mechanism
        What measured the query.
    weights
        For each interval the weights of the entries, those that are not zero, after projection.
    level
        The level of each interval.
    sampling
        For each interval the variances of the normal error E, all as likely; none for the noise alone.

    Examples
    --------
    >>> from semidp.mechanisms import choose
    >>> from semidp.mechanisms.examples import two_way
    >>> from semidp.tradeoff import Budget
    >>> mechanism = choose(two_way()[0], Budget.gdp(1))  # scale 2
    >>> half_widths(mechanism, [np.ones(1)], 0.95).round(3).tolist()  # 1.96 · 2.02 + 1/2
    [4.46...]
    """
    laplace = isinstance(mechanism, LaplaceMechanism)
    found = []
    for position, part in enumerate(weights):
        squares = np.zeros(1) if sampling is None else np.asarray(sampling[position], dtype=np.float64)
        step = float(np.abs(part).max(initial=0.0)) / 2 if mechanism.variance else 0.0
        if not mechanism.variance or not part.any():
            found.append(_normal(squares, level))
        elif laplace and len(part) == 1 and not squares.any():
            found.append(step - mechanism.scale * abs(float(part[0])) * math.log1p(-level))
        elif laplace:
            scales = mechanism.scale * np.abs(part)
            total = math.sqrt(2 * float(scales @ scales) + float(squares.mean()))
            share = tuple((scales / total).round(12).tolist()), tuple((squares / total**2).round(12).tolist())
            found.append(step + total * _laplace(*share, level))
        else:
            found.append(step + _normal(squares + mechanism.variance * float(part @ part), level))
    return np.array(found)


def _normal(variances: Floats, level: float) -> float:
    """Return h with ``P(|E| <= h) = level`` for a normal E whose variance is any of several, all as likely."""
    from scipy.special import ndtr, ndtri

    first = float(ndtri((1 + level) / 2)) * math.sqrt(float(variances.max()))
    if not first or float(variances.min()) == float(variances.max()):
        return first
    deviations = np.sqrt(np.maximum(variances, variances.max() * 1e-12))
    return _solve(lambda h: float(np.mean(1 - 2 * ndtr(-h / deviations))), level, first)


@lru_cache(maxsize=4096)
def _laplace(scales: tuple[float, ...], variances: tuple[float, ...], level: float) -> float:
    """Return h with ``P(|Σ b_i L_i + E| <= h) = level`` for standard Laplace L_i and a normal E, of variance 1."""
    t = (np.arange(_GRID) + 0.5) * (_FARTHEST / _GRID)
    curve = np.exp(-np.log1p(np.multiply.outer(np.array(scales) ** 2, t**2)).sum(axis=0))
    curve = curve * np.exp(-np.multiply.outer(np.array(variances), t**2) / 2).mean(axis=0)
    weights = curve / t * (t[1] - t[0]) * (2 / math.pi)
    return _solve(lambda h: float(np.sin(t * h) @ weights), level, 1.0)


def _solve(coverage: Callable[[float], float], level: float, start: float) -> float:
    """Return where a growing function reaches a level, from above."""
    low, high = 0.0, start
    while coverage(high) < level:
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if coverage(middle) < level else (low, middle)
    return high


def finite(value: float) -> float | None:
    """Return a number, and None for one that JSON does not have."""
    return value if math.isfinite(value) else None
