"""Residuals that several releases measured: entry by entry the average, weighted by precision.

A product of tables measures residuals themselves. A table with noise of variance σ² on its cells
measures each residual d below it with variance σ² times the cells that are added up, where siblings
have equally many of its cells below them (docs/combine.md). Then the noise of different residuals
is uncorrelated, and nothing larger than the largest table is needed. Linked members and units are
made to agree once, after the average, so that the correction is that of constrained least squares
(docs/linked.md).
"""

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semidp.errors import Refused
from semidp.promise.mechanisms.linked_noise import LinkedMechanism
from semidp.promise.mechanisms.mechanism import CellByCell
from semidp.promise.mechanisms.residual_laws import SharedNoise
from semidp.promise.mechanisms.residual_noise import ResidualMechanism
from semidp.promise.noise.distributions import CountNoise, joined_laws
from semidp.promise.noise.randomness import Randomness
from semidp.promise.schema.margins import Floats, View, list_axes
from semidp.promise.sensitivity.linked_products import LinkedSpace
from semidp.promise.sensitivity.products import ProductSpace
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.sensitivity.residuals import list_coarser_views
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.function import Tradeoff

POOLED = "combination"
"""What the noise of an average of several measurements is called."""
_PLACES = 2**40  # parts of one in which a variance is kept as a fraction


@dataclass(frozen=True, eq=False)
class ResidualMeasurement:
    """What one release measured of the residuals of one kind of records.

    Parameters
    ----------
    which
        The kind: 0 for records or members, 1 for units.
    space
        The residuals of that kind in all releases together.
    """

    which: int
    space: ProductSpace

    @property
    @abstractmethod
    def size(self) -> int:
        """How many numbers were drawn."""

    @property
    @abstractmethod
    def laws(self) -> tuple[list[CountNoise], NDArray[np.intp]]:
        """Distinct laws of the noise, and the number of the law of each number that was drawn."""

    @property
    @abstractmethod
    def scales(self) -> NDArray[np.int64]:
        """What each number was multiplied by before it was measured."""

    @property
    @abstractmethod
    def views(self) -> Sequence[View]:
        """The residuals that it measures, among those of all releases."""

    @abstractmethod
    def residual(self, view: View) -> Floats:
        """Return a residual as measured."""

    @abstractmethod
    def variances(self, view: View) -> Floats:
        """Return the variance of each entry of a residual before it is centred."""

    @abstractmethod
    def pull_weights(self, view: View, weights: Floats) -> tuple[slice, Floats]:
        """Return the weights on numbers that were drawn, from those on a centred residual: which
        numbers, and their weights.
        """


@dataclass(frozen=True, eq=False)
class MeasuredResiduals(ResidualMeasurement):
    """Residuals that were measured themselves, by a release of linked tables or by a product.

    Parameters
    ----------
    mechanism
        Their noise.
    noisy
        The measured vector.
    """

    mechanism: ResidualMechanism
    noisy: NDArray[np.int64] = field(repr=False)

    def __post_init__(self) -> None:
        theirs = self.mechanism.space.schema
        for feature in theirs.features:
            name = feature.names[-1]
            levels = np.arange(len(feature.levels))
            before = self.mechanism.space.trim(levels, theirs.view([name]))
            # Residuals are centred over the levels in use: those of all releases must be the same.
            if not np.array_equal(before, self.space.trim(levels, self.space.schema.view([name]))):
                refuse_empty(name)

    @property
    def size(self) -> int:
        """How many numbers were drawn."""
        return self.mechanism.space.scales.size

    @property
    def laws(self) -> tuple[list[CountNoise], NDArray[np.intp]]:
        """Distinct laws of the noise, and the number of the law of each number that was drawn."""
        return self.mechanism.entry_laws

    @property
    def scales(self) -> NDArray[np.int64]:
        """What each number was multiplied by before it was measured."""
        return self.mechanism.space.scales

    @cached_property
    def _source(self) -> dict[View, View]:
        """For each residual its view among the features of the release."""
        schema = self.mechanism.space.schema
        return {self.space.schema.view(schema.list_view_names(view)): view for view in self._parts}

    @property
    def _parts(self) -> Mapping[View, slice]:
        return self.mechanism.space.parts

    @property
    def views(self) -> Sequence[View]:
        """The residuals that it measures, among those of all releases."""
        return [*self._source]

    def _order(self, view: View) -> list[int]:
        """Axes of the array of the release, in the order of all features together."""
        schema, source = self.mechanism.space.schema, self._source[view]
        names = [schema.features[axis].names[source[axis] - 1] for axis in list_axes(source)]
        places = [self.space.schema.axis(name) for name in names]
        return [int(place) for place in np.argsort(places)]

    def _arrange_values(self, view: View, values: NDArray[Any]) -> Floats:
        source = self._source[view]
        shaped = values[self._parts[source]].reshape(self.mechanism.space.residuals.shape(source))
        return np.transpose(shaped, self._order(view))

    def residual(self, view: View) -> Floats:
        """Return a residual as measured."""
        return self._arrange_values(view, self.noisy / self.scales)

    def variances(self, view: View) -> Floats:
        """Return the variance of each entry of a residual before it is centred."""
        return self._arrange_values(view, self.mechanism.variances / self.scales.astype(float) ** 2)

    def pull_weights(self, view: View, weights: Floats) -> tuple[slice, Floats]:
        """Return the weights on numbers that were drawn, from those on a centred residual."""
        part = self._parts[self._source[view]]
        back = np.transpose(weights, np.argsort(self._order(view)))
        return part, back.ravel() / self.scales[part]


@dataclass(frozen=True, eq=False)
class MeasuredCells(ResidualMeasurement):
    """A table with independent noise on its cells, where siblings have equally many cells below
    them.

    Parameters
    ----------
    mechanism
        Its noise.
    view
        The table among all features.
    cells
        The noisy cells of levels that can hold a record, in the order of all features.
    """

    mechanism: CellByCell
    view: View
    cells: NDArray[np.int64] = field(repr=False)

    @property
    def size(self) -> int:
        """How many numbers were drawn."""
        return self.cells.size

    @property
    def laws(self) -> tuple[list[CountNoise], NDArray[np.intp]]:
        """The distribution of the noise, the same for every cell."""
        return [self.mechanism.sampler], np.zeros(self.size, dtype=np.intp)

    @property
    def scales(self) -> NDArray[np.int64]:
        """Ones: cells are measured as they are."""
        return np.ones(self.size, dtype=np.int64)

    @property
    def views(self) -> Sequence[View]:
        """Every residual below the table."""
        return list(list_coarser_views(self.view))

    def _sum_cells(self, values: NDArray[Any], view: View) -> Floats:
        table = self.space.residuals.table(values, self.view, view)
        return np.asarray(table, dtype=np.float64).reshape(self.space.residuals.shape(view))

    def residual(self, view: View) -> Floats:
        """Return the sums of cells of which the residual is what centring leaves."""
        return self._sum_cells(self.cells, view)

    def variances(self, view: View) -> Floats:
        """Return σ² times the number of cells that are added up."""
        return self.mechanism.variance * self._sum_cells(np.ones(self.cells.shape), view)

    def pull_weights(self, view: View, weights: Floats) -> tuple[slice, Floats]:
        """Return the weights of cells: each has that of the sum it is part of."""
        labels = self.space.residuals.grid.labels(view, self.view)
        return slice(0, self.size), weights.ravel()[labels]


def refuse_empty(name: str) -> NoReturn:
    """Refuse a release that does not know of an empty level, or knows of one more."""
    raise Refused(
        f"{name!r} has a level that only some of these releases show to be empty: residuals are"
        " averaged where all know of the same levels"
    )


@dataclass(frozen=True, eq=False)
class PooledResiduals(ResidualMechanism):
    """The noise of averaged residuals of one kind, as far as variances go.

    Its law is that of no single number: `PooledLinked` has it.
    """

    pooled: Floats = field(kw_only=True, repr=False)

    @property
    def variances(self) -> Floats:
        """The variance of the average in each entry of the vector."""
        return self.pooled

    @property
    def samplers(self) -> NoReturn:
        """None: an average of several numbers has a law of its own."""
        raise Refused("averaged residuals are not drawn by one law")


@dataclass(frozen=True, eq=False)
class ResidualPool(SharedNoise):
    """The noise of residuals that several releases measured, as weights on every number that was
    drawn.

    Parameters
    ----------
    space
        The residuals of all releases together.
    measured
        What every release measured.
    """

    name: ClassVar[str] = POOLED

    measured: tuple[ResidualMeasurement, ...]

    @property
    @abstractmethod
    def kinds_of_records(self) -> tuple[ProductSpace, ...]:
        """The residuals of each kind of records."""

    @cached_property
    def _by_view(self) -> tuple[dict[View, list[int]], ...]:
        """For each kind and residual the measurements that measured it, by their numbers."""
        sources: list[dict[View, list[int]]] = []
        for kind in self.kinds_of_records:
            sources.append({view: [] for view in kind.measured_residuals})
        for number, one in enumerate(self.measured):
            for view in one.views:
                # What all releases together fix exactly is not averaged.
                if view in sources[one.which]:
                    sources[one.which][view].append(number)
        return tuple(sources)

    def counting(self, which: int, view: View) -> list[tuple[ResidualMeasurement, int, Floats]]:
        """Measurements of a residual, each with the index of its first number and the weight of
        each entry: its precision.
        """
        numbers = self._by_view[which][view]
        precisions = [1 / self.measured[number].variances(view) for number in numbers]
        total = np.sum(precisions, axis=0)
        answers = []
        for number, precision in zip(numbers, precisions, strict=True):
            start = int(self._starts[number])
            answers.append((self.measured[number], start, precision / total))
        return answers

    def average_residuals(self, which: int) -> Floats:
        """The averaged residuals of one kind, as a vector times the scales."""
        kind = self.kinds_of_records[which]
        vector = np.zeros(kind.scales.size)
        for view, part in kind.parts.items():
            average = np.zeros(kind.residuals.shape(view))
            for one, _, share in self.counting(which, view):
                average += share * one.residual(view)
            vector[part] = average.ravel() * kind.scales[part]
        return vector

    def pool_residuals(self, which: int) -> PooledResiduals:
        """The variances of the averaged residuals of one kind."""
        kind = self.kinds_of_records[which]
        variances = np.zeros(kind.scales.size)
        squares = {}
        for view, part in kind.parts.items():
            entries = np.zeros(kind.residuals.shape(view))
            for one, _, share in self.counting(which, view):
                entries += share**2 * one.variances(view)
            variances[part] = entries.ravel() * kind.scales[part].astype(float) ** 2
            mean = max(round(float(entries.mean()) * _PLACES), 1)
            squares[view] = Fraction(mean, _PLACES)
        return PooledResiduals(kind, squares, Fraction(1), "rounded", pooled=variances)

    def on_numbers(self, weights: Sequence[Mapping[View, Floats]]) -> Floats:
        """Weights on every number that was drawn, from weights on the residuals of each kind."""
        result = np.zeros(int(self._starts[-1]))
        for which, on_residuals in enumerate(weights):
            for view, values in on_residuals.items():
                centred = self.kinds_of_records[which].residuals.center(view, values)
                for one, start, share in self.counting(which, view):
                    part, pulled = one.pull_weights(view, share * centred)
                    result[start + part.start : start + part.stop] += pulled
        return result

    @cached_property
    def _starts(self) -> NDArray[np.intp]:
        """Index of the first number of each measurement among all numbers."""
        return np.cumsum([0, *(one.size for one in self.measured)])

    @cached_property
    def entry_laws(self) -> tuple[list[CountNoise], NDArray[np.intp]]:
        """Distinct laws of the noise, and the number of the law of each number that was drawn."""
        return joined_laws(one.laws for one in self.measured)

    @cached_property
    def entry_variances(self) -> Floats:
        """The variance of every number that was drawn."""
        laws, which = self.entry_laws
        return np.array([law.variance for law in laws])[which]

    @cached_property
    def entry_scales(self) -> NDArray[np.int64]:
        """What each number was multiplied by before it was measured."""
        return np.concatenate([one.scales for one in self.measured])

    def estimates(self, values: ArrayLike) -> list[Floats]:
        """Refuse: estimates are those of the average, `residuals`."""
        raise Refused("a combination is estimated from the releases that it is of")

    def find_reached_entries(self, tables: Sequence[int]) -> NDArray[np.intp]:
        """Return every number that was drawn."""
        return np.arange(int(self._starts[-1]))

    def draw_entries(
        self, entries: NDArray[np.intp], count: int, randomness: Randomness
    ) -> NDArray[np.int64]:
        """Draw the noise of some numbers alone, for many measurements at once."""
        laws, which = self.entry_laws
        chosen = which[entries]
        values = np.zeros((count, len(chosen)), dtype=np.int64)
        for number in np.unique(chosen):
            at = np.flatnonzero(chosen == number)
            values[:, at] = laws[number].sample((count, at.size), randomness)
        return values

    @property
    def scale(self) -> float:
        """The largest standard deviation of an averaged residual."""
        kinds = range(len(self.kinds_of_records))
        return max(self.pool_residuals(which).scale for which in kinds)

    @property
    def variance(self) -> float:
        """The mean variance of a number that was drawn."""
        return float(self.entry_variances.mean())

    @property
    def tradeoff(self) -> Tradeoff:
        """Refused: nothing is drawn here; the guarantee is that of the releases."""
        raise Refused("a combination guarantees what its releases do together")

    def noises(self, count: int, randomness: Randomness) -> NDArray[np.int64]:
        """Draw every number."""
        return self.draw_entries(self.find_reached_entries([]), count, randomness)

    @classmethod
    def calibrate(cls, space: QuerySpace, budget: Budget) -> Self:
        """Refuse: what was measured already is not calibrated."""
        raise Refused("a combination is of what was measured, and not calibrated")


def measured_cells(
    which: int,
    space: ProductSpace,
    mechanism: CellByCell,
    names: Sequence[str],
    noisy: NDArray[np.int64],
) -> MeasuredCells:
    """Return a table with noise on its cells as a measurement of residuals; refuse it where
    siblings have unequal numbers of cells below them.

    Parameters
    ----------
    which, space
        The kind that it counts, and its residuals in all releases together.
    mechanism
        Its noise.
    names, noisy
        The features of its axes, and its noisy cells.
    """
    schema = space.schema
    view = schema.view(names)
    axes = [schema.axis(name) for name in names]
    for axis in axes:
        if not _is_even(space, axis, view[axis]):
            raise Refused(
                f"a table with noise on its cells over {schema.features[axis].name!r} has no single"
                " variance for each of its residuals, as siblings have more or fewer cells below"
                " them: publish it with other tables, so that residuals are measured"
            )
    ordered = np.transpose(noisy, np.argsort(axes))
    cells = space.trim(ordered, view).astype(np.int64)
    return MeasuredCells(which, space, mechanism, view, cells)


def _is_even(space: ProductSpace, axis: int, depth: int) -> bool:
    """Whether siblings have equally many nodes of a depth below them, at every depth above it."""
    chain = space.residuals.grid.chains[axis]
    for above in range(1, depth):
        below_each = chain.children(above, depth)
        parents = np.repeat(np.arange(chain.size(above - 1)), chain.children(above - 1, above))
        for parent in range(chain.size(above - 1)):
            if len(np.unique(below_each[parents == parent])) > 1:
                return False
    return True


def measurement_digest(part: ResidualMeasurement) -> str:
    """Hash of a measurement: what was drawn, and of which residuals."""
    hashed = hashlib.sha256(f"{part.which}".encode())
    for view in sorted(part.views):
        hashed.update(repr(view).encode())
        hashed.update(np.ascontiguousarray(part.residual(view), dtype=float).tobytes())
        hashed.update(np.ascontiguousarray(part.variances(view), dtype=float).tobytes())
    return hashed.hexdigest()


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
