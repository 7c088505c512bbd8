"""The l2 mechanism inside the subspace of tables with zero published margins, for pure budgets.

Real-valued by nature, so that its claim is one of ideal arithmetic; what it releases is rounded to whole numbers.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from semidp.exact import sqrt_up
from semidp.mechanisms.base import LAPLACE_REACH, ClaimKind, Mechanism, check_request, check_scale, epsilon_of, root_up
from semidp.noise import Randomness, uniforms
from semidp.queries import QuerySpace
from semidp.tradeoff import Budget, Tradeoff, approximate


@dataclass(frozen=True, eq=False)
class L2Mechanism(Mechanism):
    """Noise of density ``∝ exp(-‖v‖/b)`` on the subspace: pure ε with ``ε = Δ2/b``.

    The length is Gamma(s) times b and the direction uniform in the subspace of dimension s, so that
    ``E‖v‖² = b² s(s+1)``. Rounding each cell to a whole number adds about 1/12 to the variance, which the errors
    include.

    Parameters
    ----------
    space
        The sensitivity space of the table.
    b2
        The square of the scale b, exact.

    Examples
    --------
    >>> from semidp.mechanisms.examples import two_way
    >>> space, table = two_way()
    >>> mechanism = L2Mechanism.calibrate(space, Budget.pure(1))
    >>> mechanism.scale, round(mechanism.expected_l2, 4)  # √(2 (4·3 + 1/12))
    (2.0, 4.916)
    >>> mechanism.apply(table).noisy.dtype
    dtype('int64')
    """

    b2: Fraction

    name: ClassVar[str] = "l2"
    kinds: ClassVar[tuple[str, ...]] = ("pure", "approximate")
    reach: ClassVar[float] = LAPLACE_REACH
    claim: ClassVar[ClaimKind] = "ideal"

    @classmethod
    def calibrate(cls, space: QuerySpace, budget: Budget) -> Self:
        """Return the mechanism with ``b = Δ2/ε``; a δ in the budget is not used."""
        check_request(cls, space, budget)
        return cls(space, check_scale(Fraction(space.l2_squared) / epsilon_of(budget) ** 2))

    @property
    def scale(self) -> float:
        """b, rounded up."""
        return root_up(self.b2)

    @property
    def variance(self) -> float:
        """``b² (s+1)``, the squared length shared among s dimensions, and 1/12 for the rounding."""
        return float(self.b2 * (self.space.dimension + 1) + Fraction(1, 12))

    @property
    def tradeoff(self) -> Tradeoff:
        """Pure ε with ``ε = Δ2/b``, rounded up where it is not rational; in ideal arithmetic."""
        return approximate(sqrt_up(Fraction(self.space.l2_squared) / self.b2))

    def noise(self, randomness: Randomness) -> NDArray[np.float64]:
        """Draw a uniform direction in the subspace, and a Gamma(s) length as a sum of exponentials."""
        return np.asarray(self.noises(1, randomness)[0])

    def noises(self, count: int, randomness: Randomness) -> NDArray[np.float64]:
        """Draw for many measurements at once."""
        normals = scipy.special.ndtri(uniforms(count * math.prod(self.space.shape), randomness))
        directions = self._project(normals.reshape(count, *self.space.shape)).reshape(count, -1)
        exponentials = np.log(uniforms(count * self.space.dimension, randomness)).reshape(count, -1)
        lengths = -self.scale * exponentials.sum(axis=1) / np.linalg.norm(directions, axis=1)
        return np.asarray((directions * lengths[:, None]).reshape(count, *self.space.shape))

    def _project(self, tables: NDArray[np.float64]) -> NDArray[np.float64]:
        """Project each table: many small ones by the matrix of the projection, whose columns are projected cells."""
        cells = math.prod(self.space.shape)
        if cells >= len(tables):
            return np.stack([self.space.project(table) for table in tables])
        columns = np.stack([self.space.project(cell.reshape(self.space.shape)) for cell in np.eye(cells)])
        return np.asarray((tables.reshape(-1, cells) @ columns.reshape(cells, -1)).reshape(tables.shape))
