"""Noise of a product below one node of a cut. It is drawn and put together with what was measured
above, residual by residual, so that nothing larger than the tables of one branch is held.

It is the noise of the whole product's mechanism in the entries of the branch; the guarantee is that
mechanism's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from semidp.promise.mechanisms.residual_laws import (
    residual_noise,
)
from semidp.promise.mechanisms.residual_noise import ResidualMechanism
from semidp.promise.noise.randomness import Randomness
from semidp.promise.schema.counts import Table
from semidp.promise.schema.margins import View
from semidp.promise.sensitivity.branches import (
    BranchSpace,
    Cut,
    branch_space,
    families_above,
    space_above,
)

Floats = NDArray[np.float64]


def mechanism_above(mechanism: ResidualMechanism, cut: Cut) -> ResidualMechanism:
    """Return the noise of a product at a cut and above it: the same σ² for the residuals of that
    part.
    """
    space = space_above(mechanism.space, cut)
    sigma2 = {view: mechanism.sigma2[view] for view in space.measured_residuals}
    return ResidualMechanism(space, sigma2, mechanism.precision, mechanism.law, mechanism.saved)


@dataclass(frozen=True, eq=False)
class BranchNoise:
    """The noise on the residuals below one node of a cut, with the σ² and the law of the whole
    product's mechanism.

    Parameters
    ----------
    space
        The residuals below the node.
    sigma2
        σ² of every residual of the whole product: the errors of the tables come from those above
        the cut as well.
    law
        The law of the noise.
    families
        The sizes of the families of the node and of its ancestors, the coarsest first.
    """

    space: BranchSpace
    sigma2: Mapping[View, Fraction]
    law: str
    families: tuple[int, ...]

    @classmethod
    def from_mechanism(
        cls, mechanism: ResidualMechanism, cut: Cut, node: int
    ) -> "BranchNoise | None":
        """Return the noise of one branch of a product; None where the branch can hold no record."""
        space = branch_space(mechanism.space, cut, node)
        if space is None:
            return None
        families = families_above(mechanism.space, cut, node)
        return cls(space, mechanism.sigma2, mechanism.law, families)

    def measure(
        self, tables: Sequence[Table], randomness: Randomness
    ) -> dict[View, NDArray[np.int64]]:
        """Return each residual of the confidential tables, times its scale and with noise: this may
        be published.
        """
        space, residuals = self.space, self.space.residuals
        cut = []
        for table, view in zip(tables, space.views, strict=True):
            cut.append(space.trim(table.counts, view).astype(np.int64))
        noisy = {}
        for view, holders in space.holders.items():
            # Every table that holds the residual gives the same one, and the smallest is the
            # quickest.
            place = min(holders, key=lambda number: cut[number].size)
            residual = residuals.table(cut[place], space.views[place], view)
            values = residuals.compute_integer_residual(view, residual)
            source = randomness.part(*space.schema.list_view_names(view))
            scale = residuals.scale(view)
            noise = residual_noise(self.law, self.sigma2[view], scale, source)
            noisy[view] = values + noise
        return noisy
