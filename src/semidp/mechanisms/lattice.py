"""The lattice mechanism: Gaussian noise on whole tables, whole numbers that change no published total.

For tables under two margins (joint margins count as one side, and they may share features) or under one. Other
invariants are served by the mechanisms that project.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.mechanisms.base import Mechanism, check_request, check_scale, root_up
from semidp.mechanisms.gaussian import rho_within
from semidp.noise import LatticeGaussian, OneSidedLatticeGaussian, Randomness
from semidp.sensitivity import SensitivitySpace
from semidp.tradeoff import ZCDP, Budget, Tradeoff

Axes = tuple[int, ...]
Law = LatticeGaussian | OneSidedLatticeGaussian
Place = tuple[int, NDArray[np.intp], NDArray[np.intp]]

_NO_VARIANCE = 1e-6  # a cell that can move has a diagonal entry of P of at least 1/4


@dataclass(frozen=True, eq=False)
class LatticeGaussianMechanism(Mechanism):
    """Noise ``P(v) ∝ exp(-‖v‖²/2σ²)`` over whole-number tables with zero margins: zCDP with ``ρ = Δ2²/(2σ²)``.

    A shift by an element of the lattice costs what it costs the discrete Gaussian. The measurement consists of whole
    numbers with every published total exact, and it is unbiased. Its errors are stated by their upper bound ``σ²P``,
    which is met to one part in a million from σ = 2 on.

    Parameters
    ----------
    space
        The sensitivity space of the table.
    sigma2
        The parameter σ² of the noise, exact, at least 1/4.

    Examples
    --------
    >>> from semidp.mechanisms.examples import two_way
    >>> from semidp.noise import SeededRandomness
    >>> space, table = two_way()
    >>> mechanism = LatticeGaussianMechanism.calibrate(space, Budget.zcdp("0.5"))
    >>> mechanism.sigma2
    Fraction(4, 1)
    >>> noisy = mechanism.apply(table, SeededRandomness(1)).noisy
    >>> (noisy.sum(axis=0) == table.counts.sum(axis=0)).all() and (noisy.sum(axis=1) == table.counts.sum(axis=1)).all()
    np.True_
    """

    sigma2: Fraction

    name: ClassVar[str] = "lattice gaussian"
    kinds: ClassVar[tuple[str, ...]] = ("zcdp", "approximate")

    @classmethod
    def calibrate(cls, space: SensitivitySpace, budget: Budget) -> Self:
        """Return the mechanism with ``σ² = Δ2²/(2ρ)``; refuse invariants that are not one or two margins."""
        check_request(cls, space, budget)
        sides(space)
        mechanism = cls(space, check_scale(Fraction(space.l2_squared) / (2 * rho_within(budget))))
        mechanism._blocks  # noqa: B018  (the samplers refuse a σ that is too small for them)
        return mechanism

    @property
    def scale(self) -> float:
        """σ, rounded up."""
        return root_up(self.sigma2)

    @property
    def variance(self) -> float:
        """σ², an upper bound: the covariance is σ²P less a positive semidefinite matrix."""
        return float(self.sigma2)

    @property
    def tradeoff(self) -> Tradeoff:
        """zCDP with ``ρ = Δ2²/(2σ²)``, exact."""
        return ZCDP(Fraction(self.space.l2_squared) / (2 * self.sigma2))

    def noise(self, randomness: Randomness) -> NDArray[np.int64]:
        """Draw tables of whole numbers with zero margins, one for each level of what the margins share."""
        common, rows, columns = sides(self.space)
        order = (*common, *rows, *columns)
        shape = [self.space.shape[axis] for axis in order]
        noise = np.zeros(self._stack, dtype=np.int64)
        for law, places in self._blocks.items():
            if isinstance(law, LatticeGaussian):
                tables = law.sample_many(len(places), randomness)
            else:
                tables = law.sample(randomness)[None]  # rows are independent: one draw for all
            for (level, across, down), table in zip(places, tables, strict=True):
                noise[level][np.ix_(across, down)] = table
        return np.ascontiguousarray(np.transpose(noise.reshape(shape), np.argsort(order)))

    def publish(self, noisy: NDArray[Any]) -> NDArray[np.float64]:
        """Return the noisy table as it is: its totals are exact already."""
        return noisy.astype(np.float64)

    @property
    def _stack(self) -> tuple[int, int, int]:
        """The table as a stack of matrices: levels of the common features, rows, columns."""
        shape = self.space.shape
        common, rows, columns = (math.prod(shape[axis] for axis in axes) for axes in sides(self.space))
        return common, rows, columns

    @cached_property
    def _blocks(self) -> dict[Law, list[Place]]:
        """The laws to draw from, and where in the stack there is something to draw from each."""
        common, rows, columns = sides(self.space)
        moves = np.transpose(self.space.variances(), (*common, *rows, *columns)).reshape(self._stack) > _NO_VARIANCE
        kind = LatticeGaussian if len(visible_margins(self.space)) == 2 else OneSidedLatticeGaussian
        blocks: dict[Law, list[Place]] = {}
        for level, matrix in enumerate(moves):
            across, down = np.flatnonzero(matrix.any(axis=1)), np.flatnonzero(matrix.any(axis=0))
            if across.size:
                blocks.setdefault(kind(across.size, down.size, self.sigma2), []).append((level, across, down))
        return blocks


def visible_margins(space: SensitivitySpace) -> list[Axes]:
    """Return the axes of the released table whose totals are public, nested ones dropped.

    >>> from semidp.mechanisms.examples import two_way
    >>> visible_margins(two_way()[0])
    [(0,), (1,)]
    """
    seen = {
        space.schema.axes(name for name in margin.names if name in space.schema.names)
        for margin in space.dataspace.margins
    }
    return sorted(axes for axes in seen if axes and not any(set(axes) < set(other) for other in seen))


def sides(space: SensitivitySpace) -> tuple[Axes, Axes, Axes]:
    """Return the axes that the two published margins share, those of the rows, and those of the columns.

    With one published margin its axes are the rows and the others the columns; with none, all are columns.

    >>> from semidp.mechanisms.examples import two_way
    >>> sides(two_way()[0])
    ((), (0,), (1,))
    """
    margins, everything = visible_margins(space), set(range(len(space.shape)))
    if space.schema.structural_zeros or len(margins) > 2 or (len(margins) == 2 and set().union(*margins) < everything):
        raise Refused(
            "lattice gaussian serves tables under one margin, or under two that cover every feature, without "
            "structural zeros: use discrete gaussian"
        )
    first = set(margins[0]) if margins else set()
    second = set(margins[1]) if len(margins) == 2 else everything - first
    shared = first & second
    return tuple(sorted(shared)), tuple(sorted(first - shared)), tuple(sorted(second - shared))
