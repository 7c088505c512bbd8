"""How far a level total can move while everything published stays."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike, NDArray

from semidp.promise.sensitivity.patterns import Norms
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Dataspace, Margin

Floats = NDArray[np.float64]


@frozen(slots=False)
class LevelTotalSpace(QuerySpace):
    """S of ``Σ_i place(x_i)``, places of the L levels from 0 to L - 1.

    If two datasets differ in at most a records, their totals differ by at most ``a (L - 1)``. Where
    the counts of the feature are exact, the total follows from them: ``Σ_k k n_k``.
    """

    dataspace: Dataspace
    adjacency: Adjacency
    feature: str

    exact_claims_only: ClassVar[bool] = True
    method = "records that may differ, times the farthest two levels"
    shape = (1,)

    @property
    def _margin(self) -> Margin:
        return Margin(self.feature)

    @property
    def _levels(self) -> int:
        return self.dataspace.schema.restrict([self.feature]).size

    @property
    def _fixed(self) -> bool:
        return self.dataspace.publishes(self._margin)

    @property
    def norms(self) -> Norms:
        """The largest change of the one number."""
        largest = 0 if self._fixed else self.reach * (self._levels - 1)
        return Norms(largest, largest**2, largest)

    @property
    def naive(self) -> Norms:
        """The same for one record."""
        largest = self._levels - 1
        return Norms(largest, largest**2, largest)

    @property
    def exact(self) -> bool:
        """Whether the norms are attained: where nothing but n is published, all records may go from
        end to end.
        """
        return self._fixed or not self.dataspace.margins

    @property
    def dimension(self) -> int:
        """One number, or none that is free."""
        return 0 if self.is_zero else 1

    def project(self, values: ArrayLike) -> Floats:
        """Return the number as it is, or nothing of it where it is fixed."""
        free = 0.0 if self.is_zero else 1.0
        return self.check_shape(values).astype(np.float64) * free

    def fixed_part(self) -> Floats:
        """Return the total where the exact counts fix it."""
        if not self.is_zero or not self._fixed:
            return np.zeros(1)
        counts = self.dataspace.value(self._margin).counts
        return np.array([float((counts * np.arange(counts.size)).sum())])

    def variances(self) -> Floats:
        """Return the variance of the number for unit noise."""
        return np.full(1, float(self.dimension))

    def query(self) -> dict[str, Any]:
        """Return the query as a ledger records it."""
        return {"kind": "level total", "feature": self.feature}


def recorded_total(
    query: Mapping[str, Any], dataspace: Dataspace, adjacency: Adjacency
) -> LevelTotalSpace:
    """Return the space of a recorded query under any exact statistics."""
    return LevelTotalSpace(dataspace, adjacency, query["feature"])
