"""Exact choice among values by their distance from a target: in proportion to
``exp(-rate · d)``, or by flips.

The distances are whole numbers and the rate is a fraction. A uniform number is compared with
weights that are enclosed between two integers; if that does not decide, more bits are drawn and the
weights computed more precisely.
"""

from abc import ABC, abstractmethod
from fractions import Fraction
from functools import lru_cache, partial
from itertools import accumulate
from operator import mul

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.promise.ball_arithmetic import RealBall, ball, precision
from semidp.promise.exact import positive
from semidp.promise.noise.inversion import LazyUniform
from semidp.promise.noise.randomness import Randomness, Stream

_BITS = 64
_AT_ONCE = 1 << 18  # words of flips that are held at a time


def _rate(value: Fraction) -> Fraction:
    return positive(value, "the rate of a choice")


@frozen
class Choice(ABC):
    """A distribution on positions of values with integer distances.

    Parameters
    ----------
    rate
        The exact rate at which the probability falls with the distance.
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

    def draw_from(self, distances: NDArray[np.int64], stream: Stream) -> int:
        """Return the position of one value."""
        return int(self.draw_many(distances, 1, stream)[0])

    @abstractmethod
    def draw_many(
        self, distances: NDArray[np.int64], count: int, stream: Stream
    ) -> NDArray[np.int64]:
        """Return the positions of `count` independent choices, drawn exactly."""

    def _weights(self, distances: NDArray[np.int64]) -> NDArray[np.float64]:
        excess = distances - distances.min()
        return np.asarray(np.exp(-float(self.rate) * excess))


@frozen
class ExponentialChoice(Choice):
    """The exponential mechanism (McSherry and Talwar 2007): ``P(v) ∝ exp(-rate · d(v))``.

    Examples
    --------
    >>> from semidp.promise.noise.randomness import SeededRandomness
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

    def draw_many(
        self, distances: NDArray[np.int64], count: int, stream: Stream
    ) -> NDArray[np.int64]:
        """Return the positions of `count` choices: the distance by inversion, then one of the
        values at that distance.
        """
        excess = distances - distances.min()
        steps, places, counts = np.unique(excess, return_inverse=True, return_counts=True)
        bits = min(self.bits, 64)
        words = stream.words(count) >> np.uint64(64 - bits)
        first, beyond = self._certain(steps.tolist(), counts.tolist(), bits)
        chosen = np.searchsorted(first, words, side="right") - 1
        has_next = chosen < len(steps) - 1
        undecided = (words >= beyond[chosen]) & has_next
        for draw in np.flatnonzero(undecided).tolist():
            u = LazyUniform(int(words[draw]), bits, stream)
            chosen[draw] = self._step(steps.tolist(), counts.tolist(), u)
        # the values of the first distance, then those of the second, …
        order = np.argsort(places, kind="stable")
        before = np.cumsum(counts) - counts
        position = before[chosen] + _below_each(counts[chosen], stream)
        return np.asarray(order[position], dtype=np.int64)

    def _certain(
        self, steps: list[int], counts: list[int], bits: int
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """For each distance the first word that chooses it for certain, and the first word beyond
        that may choose another.

        Words in between choose the distance whatever their further bits are; all others are decided
        by more bits. Distances that no word of so few bits chooses for certain are left out. Beyond
        the last there is no word.
        """
        low, high = self._cumulative(steps, counts, bits)
        # C_k/T lies between low_k/high_total and high_k/low_total, whatever the weights are
        total_low, total_high = low[-1], high[-1]
        # rounded up, rounded down: words in between are certain
        first = [0]
        for above in high[:-1]:
            first.append(-(-(above << bits) // total_low))
        beyond = [(below << bits) // total_high for below in low[:-1]]
        beyond.append(0)
        reachable = sum(word < 1 << bits for word in first)
        first_words = np.array(first[:reachable], dtype=np.uint64)
        return first_words, np.array(beyond[:reachable], dtype=np.uint64)

    def _cumulative(
        self, steps: list[int], counts: list[int], bits: int
    ) -> tuple[list[int], list[int]]:
        """Return whole numbers below and above the cumulative weights times 2^bits."""
        ends = [_weight(self.rate, step, bits) for step in steps]
        lows = [low for low, _ in ends]
        highs = [high for _, high in ends]
        low = list(accumulate(map(mul, lows, counts)))
        high = list(accumulate(map(mul, highs, counts)))
        return low, high

    def _step(self, steps: list[int], counts: list[int], u: LazyUniform) -> int:
        """Position of the distance that a uniform number chooses, in proportion to its count times
        ``exp(-rate · distance)``.
        """
        while True:
            low, high = self._cumulative(steps, counts, u.bits)
            scale = 1 << u.bits
            last = len(steps) - 1
            from_below, from_above = u.top * low[-1], (u.top + 1) * high[-1]
            for position in range(len(steps)):
                # u lies in [top, top + 1)/2^bits: at or above C_{k-1}/T, and below C_k/T
                after = position == 0 or from_below >= high[position - 1] * scale
                before = position == last or from_above <= low[position] * scale
                if after and before:
                    return position
            u.extend()


@frozen
class FlippedChoice(Choice):
    """Permute and flip (McKenna and Sheldon 2020): a value stays with
    ``w = exp(-rate · (d - min d))``; one of these.

    In a random order the first value that stays is equally likely any of those that stay. This is
    the distribution of the value with the largest ``E_v - rate · d(v)``, E_v independent and
    exponential, and its mean distance is never larger than that of `ExponentialChoice` with the
    same rate.

    Examples
    --------
    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> choice = FlippedChoice(Fraction(2))
    >>> choice.probabilities(np.array([1, 0, 1])).round(3).tolist()
    [0.065, 0.871, 0.065]
    >>> choice.draw(np.array([1, 0, 1]), SeededRandomness(1)) in (0, 1, 2)
    True
    """

    def probabilities(self, distances: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return ``w_v ∫ Π_{u ≠ v} (1 - t w_u) dt`` over t from 0 to 1: a polynomial, by
        Gauss-Legendre nodes.
        """
        weights = self._weights(distances)
        # exact for polynomials of degree len(weights)
        degree = len(weights) // 2 + 1
        nodes, shares = np.polynomial.legendre.leggauss(degree)
        t = (nodes[:, None] + 1) / 2
        gone = 1 - t * weights
        all_gone = np.exp(np.log(gone).sum(axis=1))
        integrals = shares / 2 * all_gone @ (1 / gone)
        return np.asarray(weights * integrals)

    def draw_many(
        self, distances: NDArray[np.int64], count: int, stream: Stream
    ) -> NDArray[np.int64]:
        """Return the positions of `count` choices: flip for all values, then take one of those
        that stay.
        """
        rows = max(1, _AT_ONCE // len(distances))
        parts = []
        for start in range(0, count, rows):
            missing = count - start
            parts.append(self._flip(distances, min(rows, missing), stream))
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def _flip(self, distances: NDArray[np.int64], count: int, stream: Stream) -> NDArray[np.int64]:
        steps, places = np.unique(distances - distances.min(), return_inverse=True)
        # this word is decided by more bits, so ends of 2^bits fit next to words
        most = (1 << self.bits) - 1
        ends = [_weight(self.rate, step, self.bits) for step in steps.tolist()]
        capped = np.minimum(np.array(ends, dtype=object), most)
        low, high = capped.astype(np.uint64).T[:, places]
        shift = np.uint64(64 - self.bits)
        flat_words = stream.words(count * len(places))
        words = flat_words.reshape(count, -1) >> shift
        stays = words < low
        undecided = (words >= low) & ((words < high) | (words == most))
        draws, values = np.nonzero(undecided)
        for draw, place in zip(draws.tolist(), values.tolist(), strict=True):
            step = int(steps[places[place]])
            u = LazyUniform(int(words[draw, place]), self.bits, stream)
            # the nearest values stay for certain
            share = partial(_share, self.rate, step)
            stays[draw, place] = step == 0 or u.is_below(share)
        left = np.cumsum(stays, axis=1)
        taken = _below_each(left[:, -1], stream)
        is_reached = left > taken[:, None]
        return np.asarray(is_reached.argmax(axis=1), dtype=np.int64)


def _share(rate: Fraction, step: int) -> RealBall:
    return (-ball(rate * step)).exp()


@lru_cache(maxsize=1 << 16)
def _weight(rate: Fraction, step: int, bits: int) -> tuple[int, int]:
    """Return whole numbers around ``2^bits exp(-rate · step)``."""
    if step == 0:
        return 1 << bits, 1 << bits
    with precision(bits + 64):
        value = _share(rate, step) * (1 << bits)
        low = value.lower().floor()
        high = value.upper().ceil()
        return int(low.unique_fmpz()), int(high.unique_fmpz())


def _below_each(limits: NDArray[np.int64], stream: Stream) -> NDArray[np.int64]:
    """Uniform whole numbers, each below its limit, by rejection.

    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> drawn = _below_each(np.array([1, 5, 5]), Stream(SeededRandomness(3)))
    >>> bool((drawn < [1, 5, 5]).all())
    True
    """
    bits = []
    for limit in limits.tolist():
        bits.append(max((limit - 1).bit_length(), 1))
    shifts = 64 - np.array(bits, dtype=np.uint64)
    values = np.zeros(len(limits), dtype=np.int64)
    undecided = np.arange(len(limits))
    while undecided.size:
        words = stream.words(len(undecided))
        values[undecided] = (words >> shifts[undecided]).astype(np.int64)
        # Rejection keeps the law uniform: a value beyond its limit is drawn again.
        undecided = undecided[values[undecided] >= limits[undecided]]
    return values
