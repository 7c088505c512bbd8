"""Regressions on any design that are measured and not published, as `semidp.grouped` asks for them.

What is published is named beside the design. Squares by cell measure the spread of the population.
"""

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.moments import Design, MomentSpace
from semidp.promise.sensitivity.outcome_spaces import SumSpace, sum_space
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.dataspace import Margin
from semidp.publish.sources.reader import Reader
from semidp.publish.statistics.outcomes.spread import read_square_sums, square_space
from semidp.publish.statistics.regression.request import RegressionRequest


@frozen
class DesignedRegression(RegressionRequest):
    """A regression on any design, of which only what `public` names is published."""

    given: Design | None = None
    public: tuple[Margin, ...] = ()

    def __attrs_post_init__(self) -> None:
        """Take any design: the query space refuses what does not follow from what is public."""

    @property
    def features(self) -> tuple[str, ...]:
        """The published features, in their order."""
        return tuple(dict.fromkeys(name for margin in self.public for name in margin.names))

    @property
    def exact_margins(self) -> tuple[Margin, ...]:
        """What is published."""
        return self.public

    def design(self, scope: Scope) -> Design:
        """Return the design on the schema of the data."""
        return self._design_on(scope.dataspace.schema)

    def measured_design(self, mechanism: Mechanism) -> Design:
        """Return the design on the schema of what was measured."""
        space = mechanism.space
        assert isinstance(space, (SumSpace, MomentSpace))
        return self._design_on(space.dataspace.schema)

    def _design_on(self, schema: Schema) -> Design:
        """Return the given design, or that of the main effects of the factors."""
        if self.given is None:
            return Design.from_schema(schema, self.factors)
        if self.factors:
            raise InputError("give factors or a design, not both")
        for name in self.given.features:
            # Other levels would be other columns of X, and the fit would be wrong without a word.
            if self.given.schema.feature(name) != schema.feature(name):
                raise InputError(
                    f"the design has other levels of {name!r} than the data: declare the feature"
                    " alike for both"
                )
        return self.given


@frozen
class SumsByCell(DesignedRegression):
    """The sums by the cells of a design, which X'y follows from."""

    def space(self, scope: Scope) -> QuerySpace:
        """Return the space of the sums by cell; refuse cells whose counts are not published."""
        model = self.design(scope)
        # refuses moments that are not public, and columns that depend on each other
        model.gram(scope.dataspace)
        cells = Margin(*model.features)
        if not scope.dataspace.publishes(cells):
            raise Refused(
                f"the spread is measured by {cells}, whose counts are not published: publish them,"
                " or give no spread_budget",
                needs="margin",
                names=cells.names,
            )
        return sum_space(scope.dataspace, scope.adjacency, self.outcome, (cells,))


@frozen
class SquaresByCell(DesignedRegression):
    """Sums of squares by the cells of a design."""

    def space(self, scope: Scope) -> QuerySpace:
        """Return the space of the squares."""
        return square_space(scope, self.outcome, (Margin(*self.design(scope).features),))

    def read(self, reader: Reader, scope: Scope, space: QuerySpace) -> NDArray[np.int64]:
        """Return the confidential sums of squares."""
        return read_square_sums(reader, self.outcome, (Margin(*self.design(scope).features),))
