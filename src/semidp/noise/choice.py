"""Exact choice among values by their distance from what is wanted: in proportion to ``exp(-rate · d)``, or by flips.

The distances are whole numbers and the rate is a fraction. A uniform number is compared with weights that are known
between two whole numbers; where that does not decide, more bits are drawn and the weights computed to more.
"""

from abc import ABC, abstractmethod
from fractions import Fraction
from functools import lru_cache, partial
from itertools import accumulate
from operator import mul

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.ball_arithmetic import RealBall, ball, precision
from semidp.exact import positive
from semidp.noise.inversion import LazyUniform
from semidp.noise.randomness import Randomness, Stream

_BITS = 64


def _rate(value: Fraction) -> Fraction:
    return positive(value, "the rate of a choice")


@frozen
class Choice(ABC):
    """A law of positions among values with whole distances.

    Parameters
    ----------
    rate
        How fast the probability falls with the distance, exact.
    bits
        Bits of the first comparison. Tests make them few so that more are often needed.
    """

    rate: Fraction = field(converter=_rate)
    bits: int = _BITS

    @abstractmethod
    def probabilities(self, distances: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the probability of each position, in floats: for display and for tests."""

    def draw(self, distances: NDArray[np.int64], randomness: Randomness) -> int:
        """Return the position of one value, drawn exactly."""
        return self.draw_from(distances, Stream(randomness))

    @abstractmethod
    def draw_from(self, distances: NDArray[np.int64], stream: Stream) -> int:
        """Return the position of one value."""

    def _weights(self, distances: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(np.exp(-float(self.rate) * (distances - distances.min())))


@frozen
class ExponentialChoice(Choice):
    """The exponential mechanism's law (McSherry and Talwar 2007): ``P(v) ∝ exp(-rate · d(v))``.

    Examples
    --------
    >>> from semidp.noise.randomness import SeededRandomness
    >>> choice = ExponentialChoice(Fraction(2))
    >>> choice.probabilities(np.array([1, 0, 1])).round(3).tolist()
    [0.107, 0.787, 0.107]
    >>> choice.draw(np.array([1, 0, 1]), SeededRandomness(1)) in (0, 1, 2)
    True
    """

    def probabilities(self, distances: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the weights over their sum."""
        weights = self._weights(distances)
        return np.asarray(weights / weights.sum())

    def draw_from(self, distances: NDArray[np.int64], stream: Stream) -> int:
        """Return the position of one value: first its distance by inversion, then one of the values there."""
        steps, counts = np.unique(distances - distances.min(), return_counts=True)
        step = self._step(steps.tolist(), counts.tolist(), stream)
        there = np.flatnonzero(distances - distances.min() == step)
        return int(there[_below(len(there), stream)])

    def _step(self, steps: list[int], counts: list[int], stream: Stream) -> int:
        """Return a distance with probability proportional to how many have it times ``exp(-rate · distance)``."""
        u = LazyUniform(stream.word() >> (64 - min(self.bits, 64)), min(self.bits, 64), stream)
        while True:
            ends = [_weight(self.rate, step, u.bits) for step in steps]
            low, high = (list(accumulate(map(mul, side, counts))) for side in zip(*ends, strict=True))
            scale = 1 << u.bits
            for position, step in enumerate(steps):
                # C_k/T lies between low_k/high_total and high_k/low_total, whatever the weights are
                after = position == 0 or u.top * low[-1] >= high[position - 1] * scale
                before = position == len(steps) - 1 or (u.top + 1) * high[-1] <= low[position] * scale
                if after and before:
                    return step
            u.extend()


@frozen
class FlippedChoice(Choice):
    """Permute and flip (McKenna and Sheldon 2020): a value stays with ``w = exp(-rate · (d - min d))``; one of these.

    In a random order the first value that stays is any of those that stay, each as likely. It is the law of the value
    with the largest ``E_v - rate · d(v)``, E_v independent and exponential, and its mean distance is never larger than
    that of `ExponentialChoice` with the same rate.

    Examples
    --------
    >>> from semidp.noise.randomness import SeededRandomness
    >>> choice = FlippedChoice(Fraction(2))
    >>> choice.probabilities(np.array([1, 0, 1])).round(3).tolist()
    [0.065, 0.871, 0.065]
    >>> choice.draw(np.array([1, 0, 1]), SeededRandomness(1)) in (0, 1, 2)
    True
    """

    def probabilities(self, distances: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return ``w_v ∫ Π_{u ≠ v} (1 - t w_u) dt`` over t from 0 to 1: a polynomial, by Gauss-Legendre nodes."""
        weights = self._weights(distances)
        nodes, shares = np.polynomial.legendre.leggauss(len(weights) // 2 + 1)
        gone = 1 - (nodes[:, None] + 1) / 2 * weights
        return np.asarray(weights * (shares / 2 * np.exp(np.log(gone).sum(axis=1)) @ (1 / gone)))

    def draw_from(self, distances: NDArray[np.int64], stream: Stream) -> int:
        """Return the position of one value: flip for all, then take one of those that stay."""
        steps, places = np.unique(distances - distances.min(), return_inverse=True)
        most = (1 << self.bits) - 1  # this word is decided by more bits, so that ends of 2^bits fit beside words
        ends = np.array([_weight(self.rate, step, self.bits) for step in steps.tolist()], dtype=object)
        low, high = np.minimum(ends, most).astype(np.uint64).T[:, places]
        words = stream.words(len(places)) >> np.uint64(64 - self.bits)
        stays = words < low
        for place in np.flatnonzero((words >= low) & ((words < high) | (words == most))).tolist():
            step, u = int(steps[places[place]]), LazyUniform(int(words[place]), self.bits, stream)
            stays[place] = step == 0 or u.is_below(partial(_share, self.rate, step))
        left = np.flatnonzero(stays)
        return int(left[_below(len(left), stream)])


def _share(rate: Fraction, step: int) -> RealBall:
    return (-ball(rate * step)).exp()


@lru_cache(maxsize=1 << 16)
def _weight(rate: Fraction, step: int, bits: int) -> tuple[int, int]:
    """Return whole numbers around ``2^bits exp(-rate · step)``."""
    if step == 0:
        return 1 << bits, 1 << bits
    with precision(bits + 64):
        value = _share(rate, step) * (1 << bits)
        return int(value.lower().floor().unique_fmpz()), int(value.upper().ceil().unique_fmpz())


def _below(count: int, stream: Stream) -> int:
    """Return a uniform whole number below `count`, by rejection.

    >>> from semidp.noise.randomness import SeededRandomness
    >>> 0 <= _below(5, Stream(SeededRandomness(3))) < 5
    True
    """
    bits = max((count - 1).bit_length(), 1)
    while True:
        found = stream.word() >> (64 - bits)
        if found < count:
            return found
