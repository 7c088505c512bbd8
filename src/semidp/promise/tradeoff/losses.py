"""Privacy-loss distributions on a grid, with every rounding error counted against the claim.

Discretisation is "connect the dots" (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022), as in
dp-accounting; what is added here is a proven bound on the round-off of every step, which
dp-accounting does not give.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from semidp.promise.tradeoff.function import ROUNDOFF, Floats

_TAIL = 1e-18  # mass moved to an infinite loss at the end of each distribution
_DIRECT = 1 << 21  # products up to which a plain convolution is as fast as a Fourier transform
_PEAKS = 32
_TINY = 1e-300


@dataclass(frozen=True)
class Losses:
    """Masses of the privacy loss at ``(lowest + i) · step``, and at infinity, under the second
    dataset.
    """

    step: float
    lowest: int
    masses: Floats
    infinite: float

    @classmethod
    def from_deltas(cls, deltas: Callable[[Floats], Floats], step: float, reach: float) -> "Losses":
        """Return masses on the grid whose delta(epsilon) is at least `deltas`, with equality on the
        grid.

        For a symmetric curve: the loss -l then has e^-l times the mass of l, and the mass at 0 is
        ``1 - delta(0) - 2 (delta(0) - delta(step))/(e^step - 1)``. Losses beyond `reach` become
        infinite. Rounding only ever adds mass, so that the total may exceed 1 a little, and every
        delta with it.

        >>> half = Losses.from_deltas(lambda e: np.maximum(-np.expm1((e - 1) / 2), 0), 0.25, 1.0)
        >>> round(float(half.masses.sum() + half.infinite), 12)
        1.0
        """
        # A hair fewer cells, so that a reach on the grid is not rounded up to one more.
        cells = reach / step * (1 - 4 * ROUNDOFF)
        top = max(math.ceil(cells), 1)
        grid: Floats = np.arange(top + 1, dtype=np.float64) * step
        # the differences below lose about u/step of relative precision: pay for it in advance
        margin = 1 + 4 * ROUNDOFF * (1 + 1 / step)
        values = np.minimum(deltas(grid) * margin, 1.0)
        # delta(epsilon) falls: what rounding raised further out is raised here too
        from_above = np.maximum.accumulate(values[::-1])
        values = from_above[::-1]
        falls = -np.diff(values)
        upper = np.empty(top)
        growth = math.expm1(step)
        upper[-1] = falls[-1] / -math.expm1(-step)
        # the second difference of delta, in steps of e^epsilon, is the mass at a loss
        bends = np.maximum(falls[:-1] * math.exp(step) - falls[1:], 0.0)
        upper[:-1] = bends / growth
        mirrored = upper * np.exp(-grid[1:])
        lower = mirrored[::-1] * (1 + 4 * ROUNDOFF)
        middle = max(1 - values[0] - 2 * falls[0] / growth, 0.0)
        middle += 8 * ROUNDOFF * (1 + values[0] / step)
        masses = np.concatenate([lower, [middle], upper])
        return cls(step, -top, masses, float(values[-1]))

    @classmethod
    def from_corners(cls, sizes: Floats, powers: Floats, step: float) -> "Losses":
        """Return masses on the grid for a power function with the given corners.

        Each edge is one loss, the logarithm of its slope. Off the grid it is split over both
        neighbours so that both datasets keep its probability. Rounding shifts a mass by a few units
        at most, paid at infinity.

        >>> coin = Losses.from_corners(
        ...     np.array([0.0, 0.25, 1.0]), np.array([0.0, 0.75, 1.0]), math.log(3)
        ... )
        >>> coin.masses.round(6).tolist(), coin.lowest, coin.infinite < 1e-14
        ([0.25, 0.0, 0.75, 0.0], -1, True)
        """
        q, p = np.diff(powers), np.diff(sizes)
        # an edge that rises straight up is an infinite loss
        vertical = (p <= 0) & (q > 0)
        straight_up = float(q[vertical].sum())
        infinite = float(powers[0]) + straight_up
        held = (q > 0) & (p > 0)
        q, p = q[held], p[held]
        log_q, log_p = np.log(q), np.log(p)
        losses = log_q - log_p
        unsure = ROUNDOFF * (2 - log_q - log_p)  # both logarithms are negative
        nearest = np.rint(losses / step)
        on_grid = np.abs(losses - nearest * step) < 2 * unsure
        below = np.where(on_grid, nearest, np.floor(losses / step)).astype(np.int64)
        # the share of the upper neighbour that keeps both probabilities
        excess = np.expm1(below * step - losses)
        upwards = excess / math.expm1(-step)
        share = np.where(on_grid, 0.0, np.clip(upwards, 0.0, 1.0))
        lowest = int(below.min(initial=0))
        size = int(below.max(initial=0)) - lowest + 2
        cells = below - lowest
        staying = q * (1 - share)
        masses: Floats = np.bincount(cells, staying, size).astype(np.float64)
        masses += np.bincount(cells + 1, q * share, size)
        rounding = 4 * float(np.sum(q * unsure))
        return cls(step, lowest, masses, infinite + rounding)

    def convolve(self, other: "Losses") -> "Losses":
        """Return the distribution of the sum of two independent losses, never below the true one in
        effect.

        A plain convolution of nonnegative numbers errs by a relative bound, paid by a factor. A
        Fourier transform errs in the l2 norm by at most 7 u log2(N) per transform (Higham 2002,
        Theorem 24.2); the l1 error, at most sqrt(N) times as large, is added to the mass at
        infinity. The few largest masses are convolved directly: without them the norms, and the
        bound, are a hundred times smaller.
        """
        short, long = sorted((self.masses, other.masses), key=len)
        lost = 0.0
        if len(short) * len(long) <= _DIRECT:
            margin = 1 + (len(short) + 4) * ROUNDOFF
            masses = np.convolve(short, long) * margin
        else:
            x, x_peaks = _without_peaks(short)
            y, y_peaks = _without_peaks(long)
            masses, lost = _transform(x, y)
            for i in x_peaks:
                masses[i : i + len(long)] += short[i] * long
            for j in y_peaks:
                masses[j : j + len(short)] += long[j] * x
            masses *= 1 + 4 * _PEAKS * ROUNDOFF
        infinite = self.infinite + other.infinite + lost
        lowest = self.lowest + other.lowest
        return Losses(self.step, lowest, masses, infinite).trim_tails(_TAIL)

    def trim_tails(self, mass: float) -> "Losses":
        """Move an upper tail of at most `mass` to infinity, and a lower one up to the lowest loss
        kept.
        """
        size = len(self.masses)
        left = int(np.searchsorted(np.cumsum(self.masses), mass))
        from_above = np.cumsum(self.masses[::-1])
        right = size - int(np.searchsorted(from_above, mass))
        left = min(left, size - 1)
        right = max(right, left + 1)
        masses = self.masses[left:right].copy()
        masses[0] += self.masses[:left].sum()
        # the sum of the tail may be rounded down: pay for it
        margin = 1 + size * ROUNDOFF
        tail = float(self.masses[right:].sum()) * margin
        return Losses(self.step, self.lowest + left, masses, self.infinite + tail)

    def power_curve(self) -> tuple[Floats, Floats]:
        """Return corners (sizes, powers) of the best test between the two datasets: sizes too
        small, powers too big.

        Powers may pass 1, where the curve ends.

        >>> sizes, powers = Losses(1.0, -1, np.array([0.25, 0.75]), 0.0).power_curve()
        >>> powers.round(3).tolist(), sizes.round(3).tolist()
        ([0.0, 0.75, 1.0], [0.0, 0.75, 1.43])
        """
        held = self.masses > 0
        masses = self.masses[held][::-1]
        # the largest loss first: the best test rejects there
        positions = self.lowest + np.arange(len(self.masses))
        every_loss = positions * self.step
        losses = every_loss[held][::-1]
        largest = np.abs(losses).max(initial=0.0)
        slack = (len(masses) + 16 + largest) * ROUNDOFF
        with np.errstate(over="ignore"):  # sizes beyond 1 are never looked at
            sums = np.cumsum(masses * np.exp(-losses))
            sizes = np.minimum(sums * (1 - slack), 2.0)
        powers = (np.cumsum(masses) + self.infinite) * (1 + slack)
        sizes[sizes < _TINY] = 0.0  # too small to be precise
        first_power = self.infinite * (1 + slack)
        return np.append(0.0, sizes), np.append(first_power, powers)


def convolve_all(parts: Sequence[Losses]) -> Losses:
    """Return the distribution of the sum of all losses, shortest first so that long arrays meet
    rarely.

    >>> pair = Losses(1.0, 0, np.array([0.5, 0.5]), 0.0)
    >>> convolve_all([pair] * 3).masses.round(3).tolist()
    [0.125, 0.375, 0.375, 0.125]
    """
    order = itertools.count()
    # The counter breaks ties, so that losses themselves are never compared.
    heap = [(len(part.masses), next(order), part) for part in parts]
    heapq.heapify(heap)
    while len(heap) > 1:
        _, _, one = heapq.heappop(heap)
        _, _, two = heapq.heappop(heap)
        total = one.convolve(two)
        heapq.heappush(heap, (len(total.masses), next(order), total))
    return heap[0][2]


def _without_peaks(x: Floats) -> tuple[Floats, list[int]]:
    """Return `x` without its largest masses, and where they were."""
    top = np.arange(len(x))
    if len(x) > _PEAKS:
        top = np.argpartition(x, -_PEAKS)[-_PEAKS:]
    peaks = top[x[top] > 16 / len(x)]
    remainder = x.copy()
    remainder[peaks] = 0.0
    return remainder, peaks.tolist()


def _transform(x: Floats, y: Floats) -> tuple[Floats, float]:
    """Return the convolution of `x` and `y` by Fourier transform, and a bound on its error in the
    l1 norm.
    """
    length = len(x) + len(y) - 1
    size = scipy.fft.next_fast_len(length, real=True)
    product = scipy.fft.rfft(x, size) * scipy.fft.rfft(y, size)
    masses: Floats = scipy.fft.irfft(product, size)[:length]
    x_term = float(np.linalg.norm(x)) * float(y.sum())
    y_term = float(np.linalg.norm(y)) * float(x.sum())
    norms = x_term + y_term + float(np.linalg.norm(masses))
    # Higham's bound in the l2 norm, times sqrt(size) for the l1 norm
    l2_bound = math.sqrt(size) * 4 * ROUNDOFF
    error = l2_bound * math.log2(size) * norms
    return np.maximum(masses, 0.0), error
