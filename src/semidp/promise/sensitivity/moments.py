"""How far X'y of a regression can be apart while the published counts stay."""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.promise.exact import Number, exact, plain
from semidp.promise.schema.margins import Counts
from semidp.promise.schema.outcome import Outcome
from semidp.promise.sensitivity.designs import Column, Design
from semidp.promise.sensitivity.outcome_spaces import (
    LARGEST_FACTOR,
    OutcomeSpace,
    outcome_datasets,
    recorded_outcome,
)
from semidp.promise.sensitivity.patterns import Norms
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Datasets, Dataspace, Margin
from semidp.promise.spaces.structure import Structure

_MOST_ROWS = 512  # of a design, for which all pairs are compared


@frozen(slots=False)
class MomentSpace(OutcomeSpace):
    """S_a of ``X'y = Σ z(x_i) y_i`` for a design with public moments; build it with `moment_space`.

    Let two datasets of D_t differ in the records I, |I| <= a. Since Σz is a function of the
    published counts, it does not change, and neither does its part over I, so that y may be centred
    at B/2: the difference is ``Σ_I z_i'(y_i' - B/2) - z_i (y_i - B/2)``, and no term is longer than
    ``‖z_i'‖ B/2 + ‖z_i‖ B/2``. Hence ``Δ <= a B max‖z‖`` in any norm, attained by a records of the
    longest row whose outcomes go from 0 to B. Without a public Σz the difference can be twice as
    long, so such designs are refused.

    *Exchanges.* Public X'X under blocks without a common feature makes z a function of one block.
    The person and the carrier then change X'y by ``z_y (v' - w) + z_x (w - v)``:
    ``Δ = B max(max‖z‖, max‖z_x - z_y‖)``, which is what one record does where nothing is public.

    Examples
    --------
    >>> from semidp.promise.spaces.adjacency import Ball
    >>> from semidp import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.counts import Table
    >>> arms = Table(Schema([Feature("arm", ["control", "treated"])]), [30, 20])
    >>> public = Dataspace.from_table(arms, [Margin("arm")])
    >>> design = Design.from_schema(arms.schema, ["arm"])
    >>> space = moment_space(public, Ball(2), Outcome("score", 0, 1, steps=100), design)
    >>> space.l1, space.l2_squared == (2 * 100) ** 2 * 2
    (400, True)

    Combinations of the columns have public moments like the columns themselves, so the same holds
    for ``C X'y`` with the rows C z: `combination` is C, a row a measured number, with whole C z.
    Without it, the columns are measured.
    """

    design: Design
    combination: tuple[tuple[Fraction, ...], ...] = ()

    method = "longest row of a design with public moments"

    def query(self) -> dict[str, Any]:
        """Return the outcome, the columns of the design, and how they are combined where they
        are.
        """
        columns = []
        for column in self.design.columns:
            values = [plain(value) for value in column.values]
            columns.append(
                {"name": column.name, "features": list(column.features), "values": values}
            )
        recorded = {"kind": "moments", **self._outcome_json(), "columns": columns}
        if self.combination:
            recorded["combination"] = [list(map(plain, row)) for row in self.combination]
        return recorded

    @property
    def sets(self) -> tuple[Margin, ...]:
        """The cells of the design."""
        return (Margin(*self.design.features),)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of columns of the design, or of their combinations."""
        return (len(self.combination or self.design.columns),)

    @property
    def naive(self) -> Norms:
        """The norms for one record where no count is public: its row and its outcome change at
        once.
        """
        rows = self._rows
        norms = Norms.from_vectors(rows)
        if len(rows) > _MOST_ROWS:
            # Too many pairs to compare: a difference of two rows is at most twice the longest one.
            norms = norms.multiply(2)
        else:
            for row in rows:
                norms = norms.most(Norms.from_vectors(rows - row))
        return norms.multiply(self.outcome.steps)

    @cached_property
    def norms(self) -> Norms:
        """Δ1, Δ2² and Δ∞ in steps of the grid, times the design's multiplier."""
        find = self.adjacency.by_kind(ball=self._ball_norms, exchange=self._exchange_norms)
        return find()

    def _ball_norms(self) -> Norms:
        """So many outcomes of the longest row change."""
        return Norms.from_vectors(self._rows).multiply(self.movable * self.outcome.steps)

    def _exchange_norms(self) -> Norms:
        """The person's row and outcome change, as often as a person has records."""
        times = self.adjacency.times
        moves = self.exact_moves
        if moves is None:
            return self.naive.multiply(times)
        design = {*self.dataspace.schema.axes(self.design.features)}
        if any(moves.axis in block and design & {*block} for block in moves.blocks):
            # each record that changes moves X'y by no more than one that nothing ties
            return self.naive.multiply(times * (len(moves.blocks) + 1))
        return moves.moment_norms(self._rows).multiply(times)

    @property
    def exact(self) -> bool:
        """Whether the rows were compared, under exchange; else whether a longest rows exist is not
        looked into.
        """
        alone = self.adjacency.by_kind(ball=False, exchange=self.adjacency.times == 1)
        return alone and len(self._rows) <= _MOST_ROWS and self.exact_moves is None

    @property
    def dimension(self) -> int:
        """The number of columns: a design of full rank leaves all of them free."""
        return self.shape[0] if self.dataspace.n else 0

    def worst_move(self) -> Counts | None:
        """Return as many of the longest rows as a cell can hold, and under exchange the longest
        difference of two.
        """
        if not len(self._rows):
            return None
        if self.exact_moves is not None:

            def measure(change: Counts, values: Counts) -> NDArray[np.object_]:
                return np.asarray(change @ values @ self.rows_by_cell)

            return measure(*self.find_change(self.exact_moves, measure)).astype(np.int64)
        find = self.adjacency.by_kind(ball=self._ball_moves, exchange=self._exchanges)
        moves = find()
        if moves is None:
            return None
        steps = self.outcome.steps
        longest = moves[int((moves * moves).sum(axis=1).argmax())]
        return np.array([int(value) * steps for value in longest], dtype=np.int64)

    def _ball_moves(self) -> NDArray[np.object_] | None:
        """Each row as many times as records can share it; None where that is not known."""
        records = self._records
        return None if records is None else self._rows * records[:, None]

    def _exchanges(self) -> NDArray[np.object_] | None:
        """Rows and differences of two, as often as a person has records; None for many rows."""
        rows = self._rows
        if len(rows) > _MOST_ROWS:
            return None
        differences = [rows - row for row in rows]
        return np.concatenate([rows, *differences]) * self.adjacency.times

    @property
    def _records(self) -> NDArray[np.object_] | None:
        """How many of the records that may move can share each row; None where margins tie the
        factors otherwise.

        A dataset with k records in a cell exists where every margin of the factors counts k there,
        if these margins are decomposable and no published margin ties them to other features.
        """
        features = self.design.features
        if not features:
            return np.array([self.movable], dtype=object)
        space = self.dataspace.restrict_features(features)
        structure = Structure.from_dataspace(space)
        if structure.zeros_matter or not structure.decomposable:
            return None
        inside = {*space.schema.names}
        ties = []
        for margin in self.dataspace.margins:
            if {*margin.names} & inside and {*margin.names} - inside:
                ties.append(margin)
        if ties and len(space.margins) > 1:
            return None
        grid = space.schema.grid
        most = np.full(grid.compute_margin_shape(grid.full), self.movable, dtype=np.int64)
        for total in space.published_totals:
            most = np.minimum(most, grid.spread(total.counts, total.view))
        return most.ravel()[self.design.inhabited_mask(self.dataspace)].astype(object)

    @cached_property
    def _rows(self) -> NDArray[np.object_]:
        return self.rows_by_cell[self.design.inhabited_mask(self.dataspace)]

    @property
    def regular(self) -> bool:
        """Whether X'y follows from what is measured: the columns, or as many combinations that do
        not cancel.
        """
        if not self.combination:
            return True
        matrix = np.array(self.combination, dtype=object).astype(np.float64)
        return bool(matrix.shape[0] == matrix.shape[1] == np.linalg.matrix_rank(matrix))

    @cached_property
    def rows_by_cell(self) -> NDArray[np.object_]:
        """What an outcome of one step adds to each measured number, in whole numbers, for each cell
        of the design.
        """
        if not self.combination:
            return self.design.rows()
        rows, shared = _combine_rows(self.design, self.combination)
        return np.asarray(rows // shared)


def moment_space(
    dataspace: Datasets,
    adjacency: Adjacency,
    outcome: Outcome,
    design: Design,
    combination: Sequence[Sequence[Number]] = (),
) -> MomentSpace:
    """Return the sensitivity space of X'y, for a design whose moments Σz and X'X are public; refuse
    any other.

    Parameters
    ----------
    dataspace, adjacency, outcome
        As for `sum_space`.
    design
        The columns X.
    combination
        A matrix C of which C X'y is measured instead; C z must be whole for every combination of
        levels.
    """
    public = outcome_datasets(dataspace, adjacency)
    design.check_public(public)
    factors = tuple(tuple(map(exact, row)) for row in combination)
    if any(len(row) != len(design.columns) for row in factors):
        raise InputError("a combination of columns needs a number for each column of the design")
    if any(abs(value) > LARGEST_FACTOR for row in factors for value in row):
        raise InputError("the numbers of a combination of columns lie between -1e300 and 1e300")
    if factors:
        rows, shared = _combine_rows(design, factors)
        if (rows % shared).any():
            raise InputError(
                "a combination of columns must be whole for every combination of levels"
            )
    return MomentSpace(public, adjacency, outcome, design, factors)


def _combine_rows(
    design: Design, combination: Sequence[Sequence[Fraction]]
) -> tuple[NDArray[np.object_], int]:
    """Return C z for each cell as whole numbers over a shared denominator."""
    shared = math.lcm(*(value.denominator for row in combination for value in row))
    factors = np.array(combination, dtype=object) * shared
    whole = np.vectorize(int, otypes=[object])(factors)
    return np.asarray(design.rows() @ whole.T), shared * design.multiplier


def recorded_moments(
    query: Mapping[str, Any], dataspace: Datasets, adjacency: Adjacency
) -> MomentSpace:
    """Return the space of moments that `MomentSpace.query` wrote."""
    if not isinstance(dataspace, Dataspace):
        raise Refused("a dataspace that is only described has no design: it cannot be recomputed")
    columns = []
    for column in query["columns"]:
        values = tuple(exact(value) for value in column["values"])
        columns.append(Column(column["name"], tuple(column["features"]), values))
    design = Design(dataspace.schema, tuple(columns))
    return moment_space(
        dataspace, adjacency, recorded_outcome(query), design, query.get("combination", ())
    )
