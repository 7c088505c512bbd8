"""Tail bounds in the convex order, for sums whose law depends on totals that nobody knows.

X is below Y in the convex order if ``E φ(X) <= E φ(Y)`` for every convex φ: equal means, and Y
spreads more. The order is kept by sums of independent numbers, and for each unknown total a law can
be found that is above those of all plausible totals. Laws live on the multiples of a step; what
lies between two of them is split, which spreads it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from semidp.promise.noise.distributions import CountNoise

Floats = NDArray[np.float64]

_POINTS = 1 << 15
# standard deviations to each side: Laplace noise lies further out once in 10^14 draws
_REACH = 24.0
# steps of normal noise that are added: the Fourier series then ends before its last frequency
_SMOOTHING = 3.0
_NUMERICAL = 1e-9  # rounding and what lies outside of the circle
_NEAR = 0.05  # standard deviations: no line starts closer to the bound than this
_WINDOW = 14.0  # standard deviations of a hypergeometric law that are looked at, and 40 more
_UNSEEN = 1e-25  # of the largest probability: less is left out
_MOST_TOTALS = 64  # beyond these, totals are taken block by block


@dataclass(frozen=True, eq=False)
class GridLaw:
    """A law with mean 0 on the multiples of a step.

    Parameters
    ----------
    step
        The distance of neighbouring points.
    start
        The number of the first point: it lies at ``start * step``.
    masses
        The probabilities from there on.
    """

    step: float
    start: int
    masses: Floats = field(repr=False)

    @classmethod
    def split(cls, values: Floats, masses: Floats, step: float) -> "GridLaw":
        """Put each value on its two neighbours in the grid, so that the mean stays: a law above in
        the convex order.

        >>> GridLaw.split(np.array([-0.25, 0.75]), np.array([0.75, 0.25]), 1.0).masses.tolist()
        [0.1875, 0.625, 0.1875]
        """
        places = values / step
        below = np.floor(places)
        share = places - below
        start = int(below.min())
        index = below.astype(np.int64) - start
        size = int(index.max()) + 2
        grid = np.bincount(index, masses * (1 - share), size) + np.bincount(
            index + 1, masses * share, size
        )
        return cls(step, start, np.asarray(grid))

    @property
    def values(self) -> Floats:
        """The points of the law."""
        return np.asarray(self.step * (self.start + np.arange(len(self.masses))), dtype=np.float64)

    @property
    def variance(self) -> float:
        """The variance of the law."""
        return float(self.masses @ self.values**2)

    def excesses(self, start: int, size: int) -> Floats:
        """``E (X - a)_+`` in steps, for a at `size` points of the grid. They must reach beyond the
        end of the law.
        """
        masses = np.zeros(size)
        first = self.start - start
        masses[first : first + len(self.masses)] = self.masses
        # What lies above a counts once for each step between: two sums from the right.
        above = np.cumsum(masses[::-1])[::-1] - masses
        return np.asarray(np.cumsum(above[::-1])[::-1])


def above_all(laws: Sequence[GridLaw]) -> GridLaw:
    """The least law above all of some, in the convex order: the largest of their mean excesses
    belongs to a law.

    The mean excess ``a ↦ E (X - a)_+`` is convex, and so is the largest of several; its second
    differences are the masses.

    >>> one = GridLaw(1.0, -1, np.array([0.5, 0.0, 0.5]))
    >>> other = GridLaw(1.0, -2, np.array([0.1, 0.0, 0.8, 0.0, 0.1]))
    >>> above_all([one, other]).masses.round(3).tolist()
    [0.1, 0.3, 0.2, 0.3, 0.1]
    """
    if len(laws) == 1:
        return laws[0]
    start = min(law.start for law in laws) - 1
    end = max(law.start + len(law.masses) for law in laws) + 1
    largest = laws[0].excesses(start, end - start)
    for law in laws[1:]:
        largest = np.maximum(largest, law.excesses(start, end - start))
    masses = np.maximum(largest[2:] - 2 * largest[1:-1] + largest[:-2], 0.0)
    return GridLaw(laws[0].step, start + 1, masses / masses.sum())


def sum_comonotone(laws: Sequence[GridLaw], weights: Sequence[float]) -> GridLaw:
    """The law of a weighted sum whose terms rise and fall together: above that of every other
    dependence.

    Quantiles add up (Dhaene and others, 2002). Weights are positive.

    >>> coin = GridLaw(1.0, -1, np.array([0.5, 0.0, 0.5]))
    >>> sum_comonotone([coin, coin], [1.0, 2.0]).masses.tolist()
    [0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5]
    """
    step = laws[0].step
    if len(laws) == 1 and weights[0] == 1:
        return laws[0]
    heights = [np.cumsum(law.masses) for law in laws]
    ends = np.unique(np.concatenate([*heights, [0.0, 1.0]]).clip(0.0, 1.0))
    masses = np.diff(ends)
    middles = (ends[1:] + ends[:-1]) / 2
    values = np.zeros(len(middles))
    for law, height, weight in zip(laws, heights, weights, strict=True):
        index = np.minimum(np.searchsorted(height, middles), len(height) - 1)
        values += weight * law.values[index]
    trimmed = GridLaw.split(values, masses, step)
    used = np.flatnonzero(trimmed.masses)
    return GridLaw(step, trimmed.start + int(used[0]), trimmed.masses[used[0] : used[-1] + 1])


def hypergeometric(n: int, marked: int, drawn: int, scale: float, step: float) -> GridLaw:
    """The number of marked records among those drawn, less its mean, times a scale.

    >>> hypergeometric(4, 2, 2, 1.0, 1.0).masses.round(4).tolist()  # 1, 4, 1 of 6
    [0.1667, 0.6667, 0.1667, 0.0]
    """
    least, most = max(0, drawn + marked - n), min(drawn, marked)
    mean = marked * drawn / n
    spread = math.sqrt(hypergeometric_variance(n, marked, drawn))
    # Far out the law is below every number that floating point holds beside 1.
    low = max(least, math.floor(mean - _WINDOW * spread - 40))
    high = min(most, math.ceil(mean + _WINDOW * spread + 40))
    x = np.arange(low, high, dtype=np.float64)
    ratios = (marked - x) * (drawn - x) / ((x + 1) * (n - marked - drawn + x + 1))
    logs = np.concatenate([[0.0], np.cumsum(np.log(ratios))])
    masses = np.exp(logs - logs.max())
    values = scale * (np.arange(low, high + 1) - mean)
    seen = masses > _UNSEEN
    return GridLaw.split(values[seen], masses[seen] / masses[seen].sum(), step)


def hypergeometric_variance(n: int, marked: int, drawn: int) -> float:
    """``n p q · t (n - t) / (n (n - 1))`` for p the share of marked records and t drawn ones.

    >>> hypergeometric_variance(4, 2, 2)
    0.333...
    """
    return marked * (n - marked) * drawn * (n - drawn) / (n * n * max(n - 1, 1))


def above_totals(n: int, marked: int, least: int, most: int, step: float) -> GridLaw:
    """A law above that of the centred number of marked records, for every number of drawn ones from
    least to most.

    Drawn one by one, the centred number divided by ``n - t`` is a martingale, so that t records lie
    below ``(n - t) / (n - t')`` times those of a larger t'; in the same way from the other end.
    Where there are many totals, one for each block is enough, times that factor.
    """
    totals = _blocks(n, least, most)
    return above_all([hypergeometric(n, marked, drawn, factor, step) for drawn, factor in totals])


def _blocks(n: int, least: int, most: int) -> list[tuple[int, float]]:
    """Totals with factors whose laws are above those of all totals from least to most.

    >>> _blocks(10, 2, 4)
    [(2, 1.0), (3, 1.0), (4, 1.0)]
    >>> len(_blocks(10_000, 0, 10_000)) <= 130
    True
    """
    if most - least < _MOST_TOTALS:
        return [(total, 1.0) for total in range(least, most + 1)]
    chosen = []
    width = math.ceil((most - least + 1) / _MOST_TOTALS)
    middle = n // 2
    # Below the middle a block is held by its largest total, above it by its least one.
    for first in range(least, min(most, middle) + 1, width):
        last = min(first + width - 1, most, middle)
        chosen.append((last, (n - first) / (n - last)))
    for first in range(max(least, middle + 1), most + 1, width):
        last = min(first + width - 1, most)
        chosen.append((first, last / first))
    return chosen


@dataclass(frozen=True, eq=False)
class NoiseTerms:
    """Independent whole-number noise with weights.

    Parameters
    ----------
    terms
        The law of a number, its weight, and how many there are of it.
    """

    terms: tuple[tuple[CountNoise, float, int], ...]

    @classmethod
    def from_weights(
        cls, laws: Sequence[CountNoise], which: NDArray[np.intp], weights: Floats
    ) -> "NoiseTerms":
        """Collect equal weights of one law; their signs do not matter, since every law here is
        symmetric.
        """
        sizes = np.abs(weights).round(13)
        terms = []
        for number, law in enumerate(laws):
            values, counts = np.unique(sizes[which == number], return_counts=True)
            for value, count in zip(values.tolist(), counts.tolist(), strict=True):
                if value:
                    terms.append((law, value, count))
        return cls(tuple(terms))

    @property
    def variance(self) -> float:
        """The variance of the sum."""
        return sum(count * weight**2 * law.variance for law, weight, count in self.terms)

    def bound_size(self, miss: float) -> float:
        """A number that the sum exceeds in size with probability at most `miss`: Chernoff's bound
        at some rates.
        """
        if not self.terms:
            return 0.0
        spread = math.sqrt(self.variance)
        best = math.inf
        for rate in np.geomspace(0.05 / spread, 50 / spread, 60).tolist():
            exponent = sum(
                count * law.log_moment(rate * weight) for law, weight, count in self.terms
            )
            best = min(best, (exponent + math.log(2 / miss)) / rate)
        return best

    def transform(self, frequency: Floats) -> Floats:
        """The characteristic function of the sum."""
        product = np.ones(len(frequency))
        for law, weight, count in self.terms:
            factor = law.characteristic(weight * frequency)
            product *= np.sign(factor) ** (count % 2) * np.abs(factor) ** count
        return product


def choose_step(variance: float) -> float:
    """The step of a grid for a sum of about this variance."""
    # A sum that cannot vary still needs a step.
    return 2 * _REACH * math.sqrt(max(variance, 1e-12)) / _POINTS


@dataclass(frozen=True, eq=False)
class SumLaw:
    """The law of a sum of independent numbers on a grid, the mean of which is 0 and lies in the
    middle.

    Parameters
    ----------
    step
        The distance of neighbouring points.
    masses
        Their probabilities.
    """

    step: float
    masses: Floats = field(repr=False)

    @classmethod
    def from_terms(cls, laws: Iterable[GridLaw], noise: NoiseTerms, step: float) -> "SumLaw":
        """Add independent numbers and noise.

        Normal noise of a few steps is added, and the grid spreads what lies between its points:
        both only raise the law in the convex order.
        """
        angles = np.linspace(0.0, math.pi, _POINTS // 2 + 1)
        # The mean-preserving split of the noise to the grid is a hat around each point.
        hats = np.sinc(angles / (2 * math.pi)) ** 2
        smooth = np.exp(-((_SMOOTHING * angles) ** 2) / 2)
        transform = (noise.transform(angles / step) * hats * smooth).astype(np.complex128)
        for law in laws:
            circle = np.zeros(_POINTS)
            np.add.at(circle, (law.start + np.arange(len(law.masses))) % _POINTS, law.masses)
            transform *= np.fft.rfft(circle)
        return cls(step, np.maximum(np.fft.fftshift(np.fft.irfft(transform, _POINTS)), 0.0))

    @cached_property
    def points(self) -> Floats:
        """Where the masses lie."""
        places = np.arange(len(self.masses), dtype=np.float64) - len(self.masses) // 2
        return np.asarray(self.step * places)

    @cached_property
    def variance(self) -> float:
        """The variance of the sum."""
        return float(self.masses @ self.points**2)

    def bound_upper_tail(self, bound: float) -> float:
        """A bound of ``P(X >= s)`` for every X below this law W in the convex order.

        The line through (a, 0) and (s, 1) lies above the step at s, and its positive part is
        convex: ``P(X >= s) <= E (W - a)_+ / (s - a)`` for every a < s. The least of these counts:
        the mean of the largest W, a share p of them, is s (Shaked and Shanthikumar, 2007).

        >>> law = SumLaw.from_terms(
        ...     [hypergeometric(40, 20, 20, 1.0, choose_step(3.0))],
        ...     NoiseTerms(()),
        ...     choose_step(3.0),
        ... )
        >>> (
        ...     law.bound_upper_tail(0.0),
        ...     0.00018 < law.bound_upper_tail(6.0) < 0.0002,
        ... )  # P(X >= 6) is 0.00018
        (1.0, True)
        """
        # One step less makes up for rounding.
        distances = bound - self.step - self.points
        usable = int(np.count_nonzero(distances >= _NEAR * math.sqrt(self.variance)))
        if not usable:
            return 1.0
        least = float((self._excess[:usable] / distances[:usable]).min())
        return min(1.0, least + _NUMERICAL)

    def bound_lower_tail(self, bound: float) -> float:
        """A bound of ``P(X <= s)``, in the same way."""
        return self._mirror_law.bound_upper_tail(-bound)

    @cached_property
    def _excess(self) -> Floats:
        """``E (W - a)_+`` for a at every point."""
        above = np.cumsum(self.masses[::-1])[::-1] - self.masses
        return np.asarray(self.step * np.cumsum(above[::-1])[::-1])

    @cached_property
    def _mirror_law(self) -> "SumLaw":
        # The middle of an even number of points is mirrored onto itself: the first point has no
        # partner.
        masses = np.concatenate([[0.0], self.masses[:0:-1]])
        return SumLaw(self.step, masses)
