"""The interface of query spaces: how far apart two values of a query can be while everything
published stays fixed.

A `QuerySpace` belongs to a query, a dataspace and an adjacency; mechanisms are calibrated from it
and from nothing else. Count tables are in `table_spaces`, sums of an outcome in
`outcome_spaces`; `ExplicitSpace` is any list of vectors. A `Pair` is two values that an audit
compares.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
from attrs import evolve, field, frozen, has
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError, Refused
from semidp.promise.schema.margins import Floats
from semidp.promise.schema.schema import Table
from semidp.promise.sensitivity.moves import ListedTables
from semidp.promise.sensitivity.patterns import Norms
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Datasets, Dataspace


@frozen(eq=False)
class MatrixForm:
    """A table as a matrix of the cells that can occur: published rows, and columns that are
    published or free.

    ``table.ravel()[form.cells]`` is the matrix; assigning to ``table.ravel()[form.cells]`` puts it
    back.
    """

    cells: NDArray[np.intp] = field(repr=False)
    columns_published: bool


@frozen(eq=False)
class RowsForm:
    """The cells that can occur, row after row, where only the totals of rows are published and
    lengths differ.

    Rows of one cell are left out: their total fixes them.
    """

    cells: NDArray[np.intp] = field(repr=False)
    lengths: tuple[int, ...]
    totals: tuple[int, ...]


class QuerySpace(ABC):
    """S = {φ(X) - φ(X') : X, X' adjacent in D_t} of a whole-number query φ (Cho and Awan, Section
    4.1).

    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.sensitivity.table_spaces import sensitivity_space
    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(Schema([Feature("sex", "fm"), Feature("region", "ns")]), [[5, 3], [4, 9]])
    >>> space: QuerySpace = sensitivity_space(Dataspace.from_table(table, [Margin("sex")]), Ball(2))
    >>> space.l1, space.l2_squared, space.linf
    (4, 8, 2)
    """

    dataspace: Datasets
    adjacency: Adjacency

    exact_claims_only: ClassVar[bool] = False
    """Whether only mechanisms with exact claims may measure the query."""

    @property
    def unit(self) -> Fraction:
        """The value of one unit of the query, in the units of the data."""
        return Fraction(1)

    @property
    def law_details(self) -> dict[str, str]:
        """Exact numbers next to the scale that say what was measured, as release.json has them."""
        return {}

    of_counts: ClassVar[bool] = False
    """Whether the query is a table of counts, so published totals constrain its values."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of the query's values."""

    @property
    @abstractmethod
    def norms(self) -> Norms:
        """Δ1, Δ2² and Δ∞: attained where `exact`, else proven upper bounds."""

    @property
    @abstractmethod
    def naive(self) -> Norms:
        """The norms for one record if only n is public, as in ordinary differential
        privacy.
        """

    @property
    @abstractmethod
    def exact(self) -> bool:
        """Whether the three norms are attained."""

    @property
    @abstractmethod
    def method(self) -> str:
        """How the norms were found."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """The number of free directions of the query under what is published: the rank of P."""

    @abstractmethod
    def project(self, values: ArrayLike) -> Floats:
        """Return P v: the projection on the differences that what is published allows."""

    @abstractmethod
    def fixed_part(self) -> Floats:
        """Return (I - P) φ: the part of the query that is fixed by what is published, computed from
        that alone.
        """

    @abstractmethod
    def variances(self) -> Floats:
        """Return the diagonal of P: the variance of each entry of projected unit noise."""

    def query(self) -> dict[str, Any] | None:
        """Return the query alone as plain values, which `query_space` reads; None if it has no
        such form.
        """
        return None

    @property
    def l1(self) -> int:
        """Δ1, the largest sum of absolute differences."""
        return self.norms.l1

    @property
    def l2_squared(self) -> int:
        """Δ2², the largest sum of squared differences."""
        return self.norms.l2_squared

    @property
    def l2(self) -> float:
        """Δ2, for display; calibration uses `l2_squared`, which is whole."""
        return math.sqrt(self.l2_squared)

    @property
    def linf(self) -> int:
        """Δ∞, the largest difference of one entry."""
        return self.norms.linf

    @property
    def is_zero(self) -> bool:
        """Whether S = {0}: what is published fixes the query, which is then published exactly."""
        return self.l2_squared == 0

    def project_noisy_values(self, noisy: NDArray[Any]) -> Floats:
        """Return ``P·noisy`` plus the fixed part."""
        return self.project(noisy) + self.fixed_part()

    def published_variances(self) -> Floats:
        """Return the variance of each published entry for unit noise."""
        return self.variances()

    def matrix(self) -> MatrixForm | None:
        """Return the query as a matrix of counts between published margins, if it is one; else
        None.
        """
        return None

    def rows(self) -> RowsForm | None:
        """Return the query as rows of counts with published totals, if it is that but not a matrix;
        else None.
        """
        return None

    def moves(self) -> Iterator[NDArray[Any]]:
        """Iterate over the elements of S without zero; refuse where they are too many to list."""
        raise Refused("the differences of this query are too many to list: use the norms")

    def listing(self) -> ListedTables | None:
        """Return every table of a small dataspace, for queries that are tables; else None."""
        return None

    def released_space(self) -> Dataspace:
        """Return what is published about a table of counts alone; refuse other queries."""
        raise InputError(
            "this query is not a table of counts: nothing is published about its values"
        )

    def values(self, table: Table) -> NDArray[np.int64]:
        """Return the query's values from a confidential table; refuse where the query is not a
        table of counts.
        """
        raise InputError("this query is not a table of counts: measure its values")

    def compute_weighted_variance(self, weights: ArrayLike) -> float:
        """Return w'Pw = |P w|²: the variance of the weighted sum of the entries of projected unit
        noise.
        """
        return float((self.project(weights) ** 2).sum())

    @property
    def reach(self) -> int:
        """The most records that the query can see change between adjacent datasets."""
        a, n = self.adjacency.a, self.dataspace.n
        return a if n is None else min(a, n)

    def under(self, adjacency: Adjacency) -> "QuerySpace":
        """Return the space of the same query and dataspace under another adjacency; refuse where S
        is only a list of vectors.
        """
        if not has(type(self)):
            raise Refused(
                "the vectors that were given are those of one adjacency: list them again for the"
                " other"
            )
        space: QuerySpace = evolve(cast(Any, self), adjacency=adjacency)
        return space

    def check_shape(self, values: ArrayLike) -> NDArray[Any]:
        """Return values as an array; refuse another shape than the query's."""
        array, shape = np.asarray(values), tuple(self.shape)
        if array.shape != shape:
            raise InputError(f"the values have shape {array.shape}, but the query has {shape}")
        return array


class ExplicitSpace(QuerySpace):
    """The space of any whole-number query, given as a list of its vectors (Cho and Awan, Section
    4).

    Parameters
    ----------
    vectors
        The differences φ(X) - φ(X') of adjacent datasets, whole numbers of one shape. Their
        negatives are included without being listed. That the list is complete is the caller's
        claim.
    dataspace, adjacency
        The datasets that the list is about, and which of them are adjacent.
    fixed
        The part of the query that no vector moves, (I - P) φ, where that is public. Without it
        measurements are published as they are drawn, not projected.

    Examples
    --------
    >>> from semidp.promise.spaces.adjacency import Ball
    >>> space = ExplicitSpace(
    ...     [[1, -1, 0], [0, 1, -1]], Dataspace.from_description("five people"), Ball(1)
    ... )
    >>> space.l1, space.l2_squared, space.linf, space.dimension
    (2, 2, 1, 2)
    >>> space.project([3, 0, 0]).round(9).tolist()
    [2.0, -1.0, -1.0]
    """

    exact = True
    method = "the vectors that were given"

    def __init__(
        self,
        vectors: Sequence[ArrayLike],
        dataspace: Datasets,
        adjacency: Adjacency,
        fixed: ArrayLike | None = None,
    ) -> None:
        arrays = [np.asarray(vector) for vector in vectors]
        if not arrays or any(array.shape != arrays[0].shape or array.ndim == 0 for array in arrays):
            raise InputError("a query space needs at least one vector, all of the same shape")
        stacked = np.stack(arrays)
        if stacked.dtype.kind not in "iu":
            whole = (
                stacked.dtype.kind == "f"
                and np.isfinite(stacked).all()
                and (stacked == np.rint(stacked)).all()
            )
            if not whole or np.abs(stacked).max(initial=0) >= 2.0**53:
                raise InputError(
                    "the vectors of a query space must be whole numbers: scale the query, or"
                    " round it"
                )
        if stacked.dtype.kind == "u" and stacked.max(initial=0) >= 2**63:
            raise InputError("the whole numbers of a query space must fit in 64 bits")
        self.vectors: NDArray[np.int64] = stacked.astype(np.int64)
        self.vectors.setflags(write=False)
        self.dataspace, self.adjacency = dataspace, adjacency
        self.fixed = None if fixed is None else self.check_shape(fixed).astype(np.float64)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the query's values."""
        return self.vectors.shape[1:]

    @cached_property
    def norms(self) -> Norms:
        """Δ1, Δ2² and Δ∞ of the listed vectors, in whole numbers without a limit."""
        # squares of 64-bit integers would wrap and look small
        return Norms.from_vectors(self.vectors.astype(object))

    @property
    def naive(self) -> Norms:
        """The norms themselves: what one record does alone is not known about a list of vectors."""
        return self.norms

    @property
    def dimension(self) -> int:
        """The dimension of the span of S."""
        return len(self.basis)

    @cached_property
    def basis(self) -> Floats:
        """An orthonormal basis of the span, a row for each vector, from the singular value
        decomposition.
        """
        _, values, rows = np.linalg.svd(self._flat.astype(np.float64), full_matrices=False)
        if not values[0]:
            return np.asarray(rows[:0])
        # Singular values below this are zero, up to rounding.
        rounding = values[0] * max(self._flat.shape) * np.finfo(float).eps
        return np.asarray(rows[values > rounding])

    def project(self, values: ArrayLike) -> Floats:
        """Project onto the span."""
        array = self.check_shape(values).astype(np.float64)
        return np.asarray(self.basis.T @ (self.basis @ array.ravel())).reshape(self.shape)

    def fixed_part(self) -> Floats:
        """Return the part that no vector moves; refuse where it was not given."""
        if self.fixed is None:
            raise InputError(
                "the part of the query that does not move was not given: give it as fixed"
            )
        return self.fixed

    def project_noisy_values(self, noisy: NDArray[Any]) -> Floats:
        """Return the noisy values, projected where the rest is known."""
        return (
            noisy.astype(np.float64) if self.fixed is None else super().project_noisy_values(noisy)
        )

    def published_variances(self) -> Floats:
        """Return the variance of each published entry for unit noise: one where nothing is
        projected.
        """
        return np.ones(self.shape) if self.fixed is None else self.variances()

    def variances(self) -> Floats:
        """Return the diagonal of the projection."""
        return np.asarray((self.basis**2).sum(axis=0)).reshape(self.shape)

    def moves(self) -> Iterator[NDArray[np.int64]]:
        """Iterate over the vectors and their negatives, without zero."""
        for vector in self.vectors:
            if vector.any():
                yield vector
                yield -vector

    @property
    def _flat(self) -> NDArray[np.int64]:
        return self.vectors.reshape(len(self.vectors), -1)
