"""The algebra of linear estimates: weighted sums of measured numbers with known noise
distributions.

Every estimate here is ``Σ c y`` over measured numbers y, plus a part that exact totals fix, so its
error is ``Σ c · noise``. The weights c give its standard error, its covariances with others, its
law and its draws. `SumErrors` holds the weights of several sums on all noise. `LinearEstimates`
turn weights on cells of tables into these, for one release or a combination of several.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.promise.mechanisms.knorm import KNormMechanism
from semidp.promise.mechanisms.mechanism import CellByCell, Mechanism, NoNoise
from semidp.promise.noise.distributions import CountNoise
from semidp.promise.noise.randomness import Randomness, SystemRandomness
from semidp.publish.half_widths import Weighted, half_widths
from semidp.publish.residual_mechanism import SharedNoise

Floats = NDArray[np.float64]

_BLOCK = 4_000_000  # numbers that are drawn at once
_DRAWS = 4000  # of noise without terms, for half-widths
_NOTHING = 1e-12  # a weight that floating point has left if there is none
_FIXED = 1e-9  # of the noise in its cells: what is left of the error of a sum that totals fix


@frozen(slots=False, eq=False)
class DrawnNumbers:
    """Whole numbers that were drawn independently.

    Parameters
    ----------
    laws, which
        Distinct laws, and the number of the law of each.
    scales
        The factor by which each was multiplied before it was measured.
    mechanism, entries
        The mechanism that drew them, and which of its entries they are; None if several did.

    Examples
    --------
    >>> from semidp.promise.noise.distributions import DiscreteGaussian
    >>> drawn = DrawnNumbers([DiscreteGaussian(4)], np.zeros(3, dtype=int), np.ones(3))
    >>> drawn.covariance(np.array([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])).round(6).tolist()
    [[12.0, 4.0], [4.0, 4.0]]
    """

    laws: Sequence[CountNoise]
    which: NDArray[np.intp]
    scales: NDArray[Any]
    mechanism: SharedNoise | None = None
    entries: NDArray[np.intp] | None = None

    @cached_property
    def _variances(self) -> Floats:
        return np.array([law.variance for law in self.laws])[self.which]

    def clean(self, weights: Floats) -> Floats:
        """Set to zero the weights that are only rounding errors."""
        return np.where(np.abs(weights) * self.scales < _NOTHING, 0.0, weights)

    def variances(self, weights: Floats) -> Floats:
        """Variances of the noise of weighted sums."""
        return np.asarray((weights**2 * self._variances).sum(axis=1))

    def covariance(self, weights: Floats) -> Floats:
        """Covariance matrix of the noise of weighted sums."""
        return np.asarray((weights * self._variances) @ weights.T)

    def draw(self, weights: Floats, count: int, randomness: Randomness) -> Floats:
        """Draw the noise of weighted sums, (count, sums), only for numbers with a weight."""
        # drawing exact noise is what takes time
        used = np.flatnonzero(weights.any(axis=0))
        seen = weights[:, used].T
        rows = []
        for at_once in blocks(count, max(seen.shape)):
            rows.append(self._sample(used, at_once, randomness) @ seen)
        return np.concatenate(rows)

    def _sample(self, used: NDArray[np.intp], count: int, randomness: Randomness) -> Floats:
        if self.mechanism is not None and self.entries is not None:
            return self.mechanism.draw_entries(self.entries[used], count, randomness).astype(float)
        which = self.which[used]
        values = np.zeros((count, len(used)))
        for number in np.unique(which):
            places = np.flatnonzero(which == number)
            values[:, places] = self.laws[number].sample((count, places.size), randomness)
        return values

    def terms(self, weights: Floats) -> dict[tuple[CountNoise, float], int]:
        """Laws and sizes of the weights of one sum, with how many numbers have each.

        Signs do not matter, since every law is symmetric.
        """
        counts: dict[tuple[CountNoise, float], int] = {}
        sizes = np.abs(weights)
        for number in np.unique(self.which[sizes > 0]):
            of_law = sizes[(self.which == number) & (sizes > 0)]
            # Weights that are equal by symmetry differ in their last digits.
            rounded = [float(f"{size:.10g}") for size in of_law]
            for size, often in zip(*np.unique(rounded, return_counts=True), strict=True):
                key = (self.laws[number], float(size))
                counts[key] = counts.get(key, 0) + int(often)
        return counts


@frozen(eq=False)
class DrawnTable:
    """A table whose noise was drawn at once, and projected to the exact totals.

    Parameters
    ----------
    mechanism
        Its mechanism. Weights are those of its cells.
    """

    mechanism: Mechanism

    def clean(self, weights: Floats) -> Floats:
        """Return the weights as they are."""
        return weights

    def _project(self, weights: Floats) -> Floats:
        space = self.mechanism.space
        return np.stack([space.project(each).ravel() for each in weights])

    def variances(self, weights: Floats) -> Floats:
        """Variances of the noise of weighted sums; 0 if exact totals fix one."""
        errors = np.array([self.mechanism.standard_error(each) for each in weights])
        squares = np.square(weights).reshape(len(weights), -1).sum(axis=1)
        # exact totals leave rounding errors of sums that they fix
        noticeable = errors > _FIXED * np.sqrt(self.mechanism.variance * squares)
        return np.where(noticeable, errors**2, 0.0)

    def covariance(self, weights: Floats) -> Floats:
        """Covariance matrix of the noise of weighted sums."""
        mechanism = self.mechanism
        variances = self.variances(weights)
        if not isinstance(mechanism, KNormMechanism):
            pulled = self._project(weights)
            matrix = mechanism.variance * (pulled @ pulled.T)
        elif mechanism.unrounded_variance is not None:
            pulled = self._project(weights)
            rounding = np.stack([mechanism.rounding_terms(each) for each in weights])
            matrix = mechanism.unrounded_variance * (pulled @ pulled.T) + rounding @ rounding.T
        else:
            # Noise that differs between directions is taken apart pair by pair.
            matrix = np.zeros((len(weights), len(weights)))
            for one in range(len(weights)):
                for other in range(one):
                    # Cov(A, B) = (Var(A + B) - Var(A - B))/4
                    both = np.stack([weights[one] + weights[other], weights[one] - weights[other]])
                    more, less = self.variances(both)
                    matrix[one, other] = matrix[other, one] = (more - less) / 4
        np.fill_diagonal(matrix, variances)
        return np.asarray(matrix)

    def draw(self, weights: Floats, count: int, randomness: Randomness) -> Floats:
        """Draw the noise of weighted sums, (count, sums)."""
        zeros = np.zeros(self.mechanism.space.shape, dtype=np.int64)
        seen = self._project(weights).T
        rows = []
        for at_once in blocks(count, max(seen.shape)):
            drawn = self.mechanism.measure_many(zeros, at_once, randomness)
            rows.append(drawn.reshape(at_once, -1).astype(np.float64) @ seen)
        return np.concatenate(rows)

    def terms(self, weights: Floats) -> dict[tuple[CountNoise, float], int]:
        """Laws and sizes of the weights of one sum; refused if cells were not drawn one by
        one.
        """
        if not isinstance(self.mechanism, CellByCell):
            raise Refused(f"{self.mechanism.name} noise is not drawn number by number")
        pulled = self._project(weights[None])[0]
        which = np.zeros(pulled.size, dtype=np.intp)
        cells = DrawnNumbers([self.mechanism.sampler], which, np.ones(pulled.size))
        return cells.terms(cells.clean(pulled))


Drawn = DrawnNumbers | DrawnTable


@frozen(eq=False)
class SumErrors:
    """The errors of several weighted sums: their weights on all noise.

    Parameters
    ----------
    sums
        How many sums there are.
    parts
        The drawn numbers, each with its weights, whose first axis counts the sums.
    """

    sums: int
    parts: tuple[tuple[Drawn, Floats], ...] = field(default=(), repr=False)

    def __attrs_post_init__(self) -> None:
        cleaned = tuple((drawn, drawn.clean(weights)) for drawn, weights in self.parts)
        object.__setattr__(self, "parts", cleaned)

    @property
    def standard_errors(self) -> Floats:
        """Standard error of each sum, from the noise alone."""
        variances = np.zeros(self.sums)
        for drawn, weights in self.parts:
            variances += drawn.variances(weights)
        return np.sqrt(variances)

    @property
    def covariance(self) -> Floats:
        """Covariance matrix of the sums."""
        matrix = np.zeros((self.sums, self.sums))
        for drawn, weights in self.parts:
            matrix += drawn.covariance(weights)
        return matrix

    def draw(self, count: int, randomness: Randomness) -> Floats:
        """Draw the errors of the sums, one row per draw."""
        total = np.zeros((count, self.sums))
        for drawn, weights in self.parts:
            total += drawn.draw(weights, count, randomness)
        return total

    def select(self, rows: Sequence[int]) -> "SumErrors":
        """Return the errors of some of the sums."""
        chosen = [*rows]
        return SumErrors(len(chosen), tuple((drawn, each[chosen]) for drawn, each in self.parts))

    def join(self, other: "SumErrors") -> "SumErrors":
        """Return the errors of the sums of two, or of their differences: each law is symmetric."""
        return SumErrors(self.sums, (*self.parts, *other.parts))

    def weigh(self, weights: Floats) -> "SumErrors":
        """Return the errors of weighted sums of these sums, one for each row of weights."""
        parts = ((drawn, np.tensordot(weights, each, axes=1)) for drawn, each in self.parts)
        return SumErrors(len(weights), tuple(parts))

    def half_widths(self, level: float, randomness: Randomness | None = None) -> Floats:
        """Return the half-width of each sum with probability `level`: by its distribution, or by
        simulation if it has no `terms`.
        """
        if self.is_independent:
            return np.array(half_widths([self.terms(row) for row in range(self.sums)], level))
        source = SystemRandomness() if randomness is None else randomness
        draws = np.abs(self.draw(_DRAWS, source))
        return np.array([simulated_bound(draws[:, row], level) for row in range(self.sums)])

    @property
    def is_independent(self) -> bool:
        """Whether all noise was drawn number by number, so every sum has `terms`."""
        for drawn, _ in self.parts:
            if isinstance(drawn, DrawnTable) and not isinstance(drawn.mechanism, CellByCell):
                return False
        return True

    def terms(self, number: int) -> tuple[Weighted, ...]:
        """The error of one sum as independent numbers with weights."""
        counts: dict[tuple[CountNoise, float], int] = {}
        for drawn, weights in self.parts:
            for key, count in drawn.terms(weights[number]).items():
                counts[key] = counts.get(key, 0) + count
        in_order = sorted(counts.items(), key=lambda item: (str(item[0][0]), item[0][1]))
        return tuple(Weighted(law, Fraction(size), count) for (law, size), count in in_order)


class LinearEstimates(ABC):
    """Tables whose cells are weighted sums of measured numbers; tables are identified by number."""

    @abstractmethod
    def noise_name(self, table: int) -> str:
        """The name of the noise of a table."""

    @abstractmethod
    def weigh_noise(self, weights: Mapping[int, Floats]) -> SumErrors:
        """Return the errors of sums over cells of several tables.

        Parameters
        ----------
        weights
            For each table that is summed weights of shape (sums, *cells).
        """

    def is_slow(self, table: int) -> bool:
        """Whether the noise of a table is slow to draw."""
        return False


def weigh_mechanism(mechanism: Mechanism, weights: Mapping[int, Floats]) -> SumErrors:
    """Return the errors of sums over the tables that one mechanism measured, by their numbers.

    >>> from semidp.promise.mechanisms.examples import two_way
    >>> from semidp.promise.mechanisms.additive import RoundedGaussianMechanism
    >>> from semidp.promise.tradeoff.budget import Budget
    >>> mechanism = RoundedGaussianMechanism.calibrate(two_way()[0], Budget.gdp(1))
    >>> women = np.array([[[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]])
    >>> weigh_mechanism(mechanism, {0: women}).standard_errors.tolist()  # an exact total
    [0.0]
    """
    sums = len(next(iter(weights.values())))
    if isinstance(mechanism, NoNoise):
        return SumErrors(sums)
    if not isinstance(mechanism, SharedNoise):
        (of_cells,) = weights.values()
        return SumErrors(sums, ((DrawnTable(mechanism), of_cells),))
    # Other tables of the same noise may have many more numbers.
    reached = mechanism.find_reached_entries([*weights])
    rows = []
    for number in range(sums):
        one = {table: stacked[number] for table, stacked in weights.items()}
        rows.append(mechanism.combination(one)[reached])
    laws, which = mechanism.entry_laws
    scales = mechanism.entry_scales[reached]
    drawn = DrawnNumbers(laws, which[reached], scales, mechanism, reached)
    return SumErrors(sums, ((drawn, np.stack(rows)),))


def blocks(draws: int, size: int) -> list[int]:
    """Return how many to draw at a time, so a block of tables of that size fits in memory.

    >>> blocks(10, 2_000_000)
    [2, 2, 2, 2, 2]
    """
    at_once = max(1, min(draws, _BLOCK // max(size, 1)))
    return [at_once] * (draws // at_once) + ([draws % at_once] if draws % at_once else [])


def simulated_bound(sizes: Floats, level: float) -> float:
    """Return a bound for a further number of the same distribution, with probability `level` over
    it and the draws.

    It is the ``ceil((1 + draws) level)``-th smallest of the simulated sizes: all orders are equally
    likely.

    >>> simulated_bound(np.arange(99.0), 0.95)
    94.0
    """
    rank = math.ceil((1 + len(sizes)) * level - 1e-9)
    return float(np.partition(sizes, rank - 1)[rank - 1]) if rank <= len(sizes) else math.inf
