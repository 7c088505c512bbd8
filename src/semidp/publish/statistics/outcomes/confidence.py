"""Confidence intervals for sums, means, differences and coefficients: from the noise alone, or with
sampling error.

The noise alone asks what the records themselves have: its law is known, so that the interval needs
no assumption. With sampling error it is the population that the records were drawn from. The two
are different questions, and an interval says which of them it answers.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any, ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.exact import number, parse_level, plain
from semidp.promise.mechanisms.additive import LaplaceMechanism
from semidp.promise.mechanisms.mechanism import Mechanism

Floats = NDArray[np.float64]

LEVEL = Fraction(95, 100)
"""The level of an interval unless given."""


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
        The probability that an interval holds what it is about, or that all of them do where they
        are simultaneous.
    about
        Whether that is a number of the records (noise alone) or of their population (noise and
        sampling).
    simultaneous
        Whether the level is that of all intervals together.
    exact
        Whether the level is kept by the law of what was drawn; else it is kept about, as far as a
        sum of records is close to normal.
    caution
        When the level is not kept, where that must be said.
    """

    names: tuple[tuple[str, ...], ...]
    values: Floats = field(repr=False)
    lower: Floats = field(repr=False)
    upper: Floats = field(repr=False)
    level: Fraction = LEVEL
    about: About = About.noise
    simultaneous: bool = False
    exact: bool = True
    caution: str = ""

    @classmethod
    def around(
        cls,
        names: Iterable[tuple[str, ...]],
        values: Floats,
        half: Floats,
        level: Fraction,
        simultaneous: bool,
    ) -> "Intervals":
        """Return intervals of the noise alone, which reach as far to each side of their values."""
        return cls(
            tuple(names), values, values - half, values + half, level, About.noise, simultaneous
        )

    def rows(self) -> Iterator[tuple[tuple[str, ...], float, float, float]]:
        """Yield each name with its estimate and the ends of its interval."""
        yield from zip(
            self.names, self.values.tolist(), self.lower.tolist(), self.upper.tolist(), strict=True
        )

    def to_json(self) -> dict[str, Any]:
        """Return the intervals as plain values, None for an end that is open or a number that does
        not exist.
        """
        return {
            "names": [list(name) for name in self.names],
            "values": [finite(value) for value in self.values.tolist()],
            "lower": [finite(value) for value in self.lower.tolist()],
            "upper": [finite(value) for value in self.upper.tolist()],
            "level": number(self.level),
            "about": str(self.about),
            "simultaneous": self.simultaneous,
            "exact": self.exact,
            **({"caution": self.caution} if self.caution else {}),
        }


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

    level: Fraction = attrs.field(default=LEVEL, converter=parse_level)
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


def each_level(
    level: Fraction, count: int, mechanism: Mechanism, simultaneous: bool, *, sampling: bool = False
) -> float:
    """Return the level that each of several intervals needs.

    Symmetric intervals of normal errors hold together at least as often as independent ones would,
    whatever their correlation (Šidák 1967), so that each needs ``level^{1/k}`` for Gaussian noise
    alone; other noise, and intervals with sampling, use Bonferroni's ``1 - (1 - level)/k``.
    """
    if not simultaneous or count <= 1:
        return float(level)
    if sampling or isinstance(mechanism, LaplaceMechanism):
        return 1 - float(1 - level) / count
    return math.exp(math.log(level) / count)


def finite(value: float) -> float | None:
    """Return a number, and None for one that JSON does not have."""
    return value if math.isfinite(value) else None
