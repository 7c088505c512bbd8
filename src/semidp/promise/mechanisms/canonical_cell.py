"""The count x11 of a 2×2 table as a query, and the canonical noise that measures it.

Both margins of the table are public (within strata), so only x11 needs protection.
"""

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import Refused
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.noise.canonical import CanonicalNoise, canonical_noise, find_claimable_curve
from semidp.promise.noise.randomness import Randomness
from semidp.promise.schema.margins import Floats
from semidp.promise.schema.schema import Table
from semidp.promise.sensitivity.patterns import Norms
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.sensitivity.table_spaces import sensitivity_space
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Datasets, Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.composition import tradeoff_from_json
from semidp.promise.tradeoff.function import Tradeoff

_FINEST = 32  # bits after the point: rounding then moves a probability by less than 1e-9
_SIGNIFICANT = 51  # of the 53 bits of a float, so u and u ± half a step are floats


@frozen(slots=False)
class CellSpace(QuerySpace):
    """S of x11, the count of the first level of both features, summed over strata.

    Any a records that keep both margins change x11 by at most floor(a/2), and by no more than the
    margins allow. An exchange changes it as it changes a cell of the table.

    Parameters
    ----------
    dataspace, adjacency
        What is public, and which datasets are adjacent.
    row, column, strata
        The two features, and those within whose combinations their margins are public.

    Examples
    --------
    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.spaces.dataspace import Dataspace
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> schema = Schema([Feature("sex", "fm"), Feature("vote", "yn")])
    >>> public = Dataspace.from_table(
    ...     Table(schema, [[5, 3], [4, 9]]), [Margin("sex"), Margin("vote")]
    ... )
    >>> CellSpace(public, Ball(3), "sex", "vote").linf
    1
    """

    dataspace: Datasets
    adjacency: Adjacency
    row: str
    column: str
    strata: tuple[str, ...] = ()

    exact_claims_only: ClassVar[bool] = True
    exact = False
    method = "half of the records that change, within the room that the margins leave"
    shape = (1,)
    dimension = 1

    @cached_property
    def margins(self) -> tuple[tuple[int, int, int], ...]:
        """The public margins of each stratum: the records of the first row, of the first column,
        and all.
        """
        row = self.totals(self.row).reshape(2, -1)
        first_column = self.totals(self.column).reshape(2, -1)[0]
        return tuple(zip(row[0].tolist(), first_column.tolist(), row.sum(0).tolist(), strict=True))

    @property
    def low(self) -> int:
        """The smallest x11 that the margins allow."""
        return sum(max(0, row + column - n) for row, column, n in self.margins)

    @property
    def high(self) -> int:
        """The largest x11 that the margins allow."""
        return sum(min(row, column) for row, column, _ in self.margins)

    def totals(self, name: str) -> NDArray[np.int64]:
        """Return the public margin of a feature within strata, the feature first."""
        names = (name, *self.strata)
        return transpose_counts(self.dataspace.value(Margin(*names)), names)

    @property
    def _margins_public(self) -> bool:
        rows = Margin(self.row, *self.strata)
        columns = Margin(self.column, *self.strata)
        return self.dataspace.publishes(rows) and self.dataspace.publishes(columns)

    @cached_property
    def norms(self) -> Norms:
        """The largest change of x11; at least 1, even if the margins fix x11 and the noise
        protects nobody.
        """
        # With both margins fixed, x11 moves by d only if all four cells do: that takes 2d records.
        # The same holds for the sum over strata, stratum by stratum.
        if self._margins_public and self.adjacency.protects_groups:
            moves = min(self.adjacency.a // 2, self.high - self.low)
        else:
            # Without public margins, or under exchange, the largest change of any cell of the table
            # bounds that of x11.
            moves = sensitivity_space(self.dataspace, self.adjacency, (self.row, self.column)).linf
        largest = max(moves, 1)
        return Norms(largest, largest**2, largest)

    def refuse_idle(self) -> None:
        """Refuse a number of records too small for any change with both margins
        fixed.
        """
        if self.adjacency.a < 2 and self.low < self.high:
            raise Refused(
                f"a = {self.adjacency.a} protects nothing here, since no fewer than two records can"
                " change with both margins fixed: leave the adjacency out, or give a number of at"
                " least 2"
            )

    @property
    def naive(self) -> Norms:
        """One record changes x11 by one."""
        return Norms(1, 1, 1)

    def project(self, values: ArrayLike) -> Floats:
        """Return the count as it is: it is free."""
        return self.check_shape(values).astype(np.float64)

    def fixed_part(self) -> Floats:
        """Return 0: nothing of the count is fixed."""
        return np.zeros(1)

    def variances(self) -> Floats:
        """Return 1: the noise is not projected."""
        return np.ones(1)

    def query(self) -> dict[str, Any]:
        """Return the query as a ledger records it."""
        strata = {"strata": list(self.strata)} if self.strata else {}
        return {"kind": "cell", "features": [self.row, self.column], "cell": [0, 0], **strata}


def recorded_cell(query: Mapping[str, Any], dataspace: Datasets, adjacency: Adjacency) -> CellSpace:
    """Return the space of a recorded x11 under any exact statistics."""
    rows, columns = query["features"]
    return CellSpace(dataspace, adjacency, rows, columns, tuple(query.get("strata", ())))


def transpose_counts(table: Table, names: tuple[str, ...]) -> NDArray[np.int64]:
    """Return the counts of a table with its axes in a given order; a nested feature has one axis,
    however many of its names are given.
    """
    return table.counts.transpose([*dict.fromkeys(map(table.schema.axis, names))])


@frozen(slots=False, eq=False)
class CanonicalMechanism(Mechanism):
    """x11 plus canonical noise, drawn exactly on a grid of 2^-bits (Cho and Awan, construction of
    canonical noise).

    Parameters
    ----------
    space
        The query, what is public and which datasets are adjacent.
    curve
        The tradeoff function f for which the noise is canonical.
    moves
        By how much x11 may move at the cost of one f. If it can move further, f is composed as
        often as needed.

    Examples
    --------
    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp.promise.spaces.dataspace import Dataspace
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> schema = Schema([Feature("sex", "fm"), Feature("vote", "yn")])
    >>> public = Dataspace.from_table(
    ...     Table(schema, [[5, 3], [4, 9]]), [Margin("sex"), Margin("vote")]
    ... )
    >>> space = CellSpace(public, Ball(3), "sex", "vote")
    >>> mechanism = CanonicalMechanism.calibrate(space, Budget.pure(1))
    >>> mechanism.tradeoff.epsilon(0), mechanism.bits
    (1.0, 32)
    """

    curve: Tradeoff
    moves: int

    name: ClassVar[str] = "canonical"
    budget_kinds: ClassVar[tuple[str, ...]] = ("zcdp", "gdp", "pure", "approximate")

    @classmethod
    def calibrate(cls, space: QuerySpace, budget: Budget) -> Self:
        """Return the canonical noise of a budget, stretched by how far x11 can move."""
        return cls(space, find_claimable_curve(budget), space.linf)

    @property
    def cell(self) -> CellSpace:
        """The query as what it is."""
        assert isinstance(self.space, CellSpace)
        return self.space

    @cached_property
    def noise_law(self) -> CanonicalNoise:
        """The distribution of the noise."""
        return canonical_noise(self.curve, self.moves)

    @cached_property
    def bits(self) -> int:
        """How many bits U has after the point: as many as a float holds besides n and the noise, at
        most 32.
        """
        deviations = math.ceil(64 * self.noise_law.standard_deviation)
        # The grid follows from public numbers alone, so its fineness tells nothing about x11.
        reach = (self.space.dataspace.n or 0) + deviations
        return max(0, min(_FINEST, _SIGNIFICANT - reach.bit_length()))

    @property
    def scale(self) -> float:
        """The standard deviation of the noise."""
        return float(self.noise_law.standard_deviation)

    @property
    def variance(self) -> float:
        """The variance of the noise."""
        return self.scale**2

    @property
    def tradeoff(self) -> Tradeoff:
        """f, or f composed ceil(Δ/moves) times where x11 can move by Δ: such a change is a chain of
        smaller ones.
        """
        times = -(-self.space.linf // self.moves)
        return self.curve if times <= 1 else self.curve.group(times)

    @property
    def law_details(self) -> dict[str, str]:
        """The curve f as numbers, and how far x11 may move at the cost of one f."""
        numbers = {k: str(v) for k, v in self.curve.to_json().items() if k not in ("kind", "group")}
        return {**numbers, "moves": str(self.moves)}

    def noises(self, count: int, randomness: Randomness) -> NDArray[np.int64]:
        """Draw the noise in steps of the grid."""
        steps = [self.noise_law.grid_steps(self.bits, randomness) for _ in range(count)]
        return np.array(steps, dtype=np.int64).reshape(count, 1)

    def _add(self, values: NDArray[np.int64], noise: NDArray[Any]) -> NDArray[Any]:
        """Add noise to x11 in steps of the grid; no bit depends on floating-point arithmetic with
        x11.
        """
        return np.asarray((values << self.bits) + noise)

    def measure_many(
        self, values: NDArray[np.int64], count: int, randomness: Randomness
    ) -> NDArray[np.float64]:
        """Return `count` independent draws of U for one x11: for audits and studies."""
        return self.publish(super().measure_many(values, count, randomness))

    def publish(self, noisy: NDArray[Any]) -> NDArray[np.float64]:
        """Return U in counts of records."""
        return np.asarray(noisy / 2.0**self.bits, dtype=np.float64)

    def record(self) -> dict[str, Any]:
        """Return what a ledger keeps: the query, the curve, and how far x11 may move for it."""
        noise = {"law": self.name, "curve": self.curve.to_json(), "moves": self.moves}
        return {"query": self.space.query(), "noise": noise}

    @classmethod
    def from_record(cls, space: QuerySpace, noise: Mapping[str, Any]) -> Self:
        """Return the mechanism of a recorded noise, under any exact statistics and adjacency."""
        curve, moves = tradeoff_from_json(noise["curve"]), noise["moves"]
        if not isinstance(moves, int) or isinstance(moves, bool) or moves < 1:
            raise ValueError("x11 moves by a whole number of records")
        return cls(space, curve, moves)
