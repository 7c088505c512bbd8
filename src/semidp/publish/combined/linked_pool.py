"""Residuals of members and units that several releases measured: averages, then the agreement of
both kinds, once.

What was measured stays as it was: both kinds are made to agree after the average, so that the
correction is that of constrained least squares (docs/linked.md, docs/combine.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from numpy.typing import ArrayLike

from semidp.promise.mechanisms.linked_noise import LinkedMechanism
from semidp.promise.schema.margins import Floats, View
from semidp.promise.sensitivity.linked_products import LinkedSpace
from semidp.promise.sensitivity.products import ProductSpace
from semidp.publish.combined.residual_pool import ResidualPool


@dataclass(frozen=True, eq=False)
class PooledLinked(ResidualPool):
    """The noise of linked tables that several releases measured; tables of members are numbered
    first.
    """

    space: LinkedSpace

    @property
    def kinds_of_records(self) -> tuple[ProductSpace, ...]:
        """The residuals of members, then those of units."""
        return self.space.kinds

    @cached_property
    def mechanism(self) -> LinkedMechanism:
        """The variances of the averages of both kinds, and how these are made to agree."""
        return LinkedMechanism(self.space, self.pool_residuals(0), self.pool_residuals(1))

    @cached_property
    def residuals(self) -> tuple[dict[View, Floats], dict[View, Floats]]:
        """The averaged residuals of both kinds, which agree."""
        return self.mechanism.agreement.residuals(
            self.average_residuals(0), self.average_residuals(1)
        )

    def combination(self, weights: Mapping[int, ArrayLike]) -> Floats:
        """Return weights on every number that was drawn, from weights on cells."""
        first = len(self.space.members.views)
        tables: tuple[dict[int, ArrayLike], dict[int, ArrayLike]] = ({}, {})
        for number, cells in weights.items():
            which = int(number >= first)
            tables[which][number - which * first] = cells
        gathered = []
        for kind, of_kind in zip(self.space.kinds, tables, strict=True):
            gathered.append(kind.gather_weights(of_kind))
        return self.on_numbers(self.mechanism.agreement.weights(*gathered))
