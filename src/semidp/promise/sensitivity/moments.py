"""How far apart X'y of a regression can be while the published counts stay fixed.

A `PublicDesign` knows its rows z(x) in whole numbers, and whether published counts fix X'X. It
holds no outcome and draws no noise.
"""

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
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.outcome_spaces import (
    LARGEST_FACTOR,
    OutcomeSpace,
    outcome_datasets,
    recorded_outcome,
)
from semidp.promise.sensitivity.patterns import Norms
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import (
    Datasets,
    Dataspace,
    Margin,
    normalize_margins,
)

LARGEST_DESIGN = 2**18
"""The most combinations of levels that a design may have."""


@frozen
class Column:
    """A column of a design: a function of some features.

    Parameters
    ----------
    name
        The name of its coefficient.
    features
        The features that it depends on, in the schema's order; none for the intercept. A depth of a
        nested feature is one: its levels are those of that depth.
    values
        Its value for each combination of their levels, the last feature fastest.
    """

    name: str
    features: tuple[str, ...]
    values: tuple[Fraction, ...]


@frozen(slots=False)
class PublicDesign:
    """The columns of a regression on categorical features.

    Parameters
    ----------
    schema
        The schema that the features belong to.
    columns
        The columns; `Design` of `publish` builds the usual ones.

    Examples
    --------
    >>> from semidp.promise.schema.features import Feature
    >>> schema = Schema([Feature("arm", ["control", "drug"])])
    >>> ones, drug = Column("ones", (), (Fraction(1),)), Column("drug", ("arm",), (-1, 1))
    >>> PublicDesign(schema, (ones, drug)).rows().tolist()
    [[1, -1], [1, 1]]
    """

    schema: Schema
    columns: tuple[Column, ...]

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        if not self.columns:
            raise InputError("a design needs at least one column")
        if len(set(self.names)) < len(self.names):
            raise InputError("a design names a column twice: leave one of them out")
        for column in self.columns:
            view = self.schema.view(column.features)
            names = tuple(name for name in self.schema.names if name in column.features)
            cells = self.schema.grid.count_margin_cells(view)
            if names != column.features or len(column.values) != cells:
                raise InputError(
                    f"column {column.name!r} needs its features in the schema's order and a value"
                    " for each combination of their levels"
                )
        if self.schema.grid.count_margin_cells(self.schema.view(self.features)) > LARGEST_DESIGN:
            raise Refused(
                f"the design has more than {LARGEST_DESIGN:,} combinations of levels: use fewer"
                " features"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def features(self) -> tuple[str, ...]:
        """The features that any column depends on, in the schema's order."""
        used = {name for column in self.columns for name in column.features}
        return tuple(name for name in self.schema.names if name in used)

    @cached_property
    def multiplier(self) -> int:
        """The least number that turns every value of every column into a whole one."""
        return math.lcm(*(value.denominator for column in self.columns for value in column.values))

    def rows(self) -> NDArray[np.object_]:
        """Return `multiplier` times z for each combination of the features' levels, in exact whole
        numbers.
        """
        columns = [self._spread_column(column, self.features) for column in self.columns]
        return np.stack(columns, axis=1)

    def inhabited_mask(self, dataspace: Dataspace) -> NDArray[np.bool_]:
        """Return a mask of the combinations of levels that may hold a record, by the published
        counts and structural zeros.
        """
        if not self.features:
            return np.array([bool(dataspace.n)])
        part = self.schema.restrict(self.features)
        if not dataspace.n:
            return np.zeros(part.size, dtype=bool)
        occur = part.grid.find_inhabited_cells(
            part.possible, dataspace.restrict_features(self.features).published_totals
        )
        if occur is None:
            return np.ones(part.size, dtype=bool)
        return np.asarray(occur.ravel())

    def missing(self, dataspace: Dataspace) -> tuple[Margin, ...]:
        """Return the margins that are missing for Σz and X'X to be public; none if they
        are.
        """
        # An entry of X'X is a sum over the cells of all features of its two columns.
        unpublished = []
        for position, column in enumerate(self.columns):
            for other in self.columns[position:]:
                features = {*column.features, *other.features}
                margin = Margin(*(name for name in self.schema.names if name in features))
                if not dataspace.publishes(margin):
                    unpublished.append(margin)
        if not any(margin.names for margin in unpublished):
            return ()
        return normalize_margins(self.schema, unpublished)

    def check_public(self, dataspace: Dataspace) -> None:
        """Refuse a design whose moments the published counts do not fix, naming what is missing.

        >>> from semidp.promise.schema.features import Feature
        >>> from semidp.promise.schema.schema import Table
        >>> table = Table(Schema([Feature("arm", "cd"), Feature("sex", "fm")]), [[5, 5], [5, 5]])
        >>> arm, sex = (Column(name, (name,), (0, 1)) for name in ("arm", "sex"))
        >>> design = PublicDesign(table.schema, (arm, sex))
        >>> design.check_public(Dataspace.from_table(table, [Margin("arm", "sex")]))
        >>> design.check_public(Dataspace.from_table(table, [Margin("arm"), Margin("sex")]))
        Traceback (most recent call last):
        semidp.errors.Refused: the moments of this design are not public, since the counts of arm ×
        sex are not
        published: publish them, or leave the columns that need them out (exact=[('arm', 'sex')])
        """
        missing = self.missing(dataspace)
        if missing:
            named = ", ".join(map(str, missing))
            raise Refused(
                f"the moments of this design are not public, since the counts of {named} are not"
                " published: publish them, or leave the columns that need them out",
                needs="margin",
                names=missing[0].names,
            )
        # Rows are matched with published counts by position: another order of features would pair
        # the wrong ones.
        counted = dataspace.schema
        used = self.features
        if counted is not None and used and counted.restrict(used) != self.schema.restrict(used):
            raise InputError(
                f"the design and the published counts must declare {', '.join(self.features)}"
                " alike, in the same order and with the same levels and structural zeros: build"
                " the design on the schema of the counts"
            )

    def _spread_column(self, column: Column, names: Sequence[str]) -> NDArray[np.object_]:
        """Return `multiplier` times a column over the cells of the margin of `names`, flattened."""
        multiples = [int(value * self.multiplier) for value in column.values]
        whole = np.array(multiples, dtype=object)
        return whole[label_cells(self.schema, column.features, names)]


def label_cells(schema: Schema, coarse: Sequence[str], fine: Sequence[str]) -> NDArray[np.intp]:
    """Return for each cell of the margin of `fine`, flattened, its cell in the coarser margin of
    `coarse`.
    """
    return schema.grid.labels(schema.view(coarse), schema.view(fine))


MOST_ROWS = 512  # of a design, for which all pairs are compared


@frozen(slots=False)
class MomentSpace(OutcomeSpace):
    """S_a of ``X'y = Σ z(x_i) y_i`` for a design with public moments; build it with `moment_space`.

    Let two datasets of D_t differ in the records I, |I| <= a. Since Σz is a function of the
    published counts, it does not change, and neither does its part over I, so y may be centered
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
    >>> from semidp.promise.schema.schema import Table
    >>> arms = Table(Schema([Feature("arm", ["control", "treated"])]), [30, 20])
    >>> public = Dataspace.from_table(arms, [Margin("arm")])
    >>> ones, treated = Column("ones", (), (1,)), Column("treated", ("arm",), (0, 1))
    >>> design = PublicDesign(arms.schema, (ones, treated))
    >>> space = moment_space(public, Ball(2), Outcome("score", 0, 1, steps=100), design)
    >>> space.l1, space.l2_squared == (2 * 100) ** 2 * 2
    (400, True)

    Combinations of the columns have public moments like the columns themselves, so the same holds
    for ``C X'y`` with the rows C z: `combination` is C, a row a measured number, with whole C z.
    Without it, the columns are measured.
    """

    design: PublicDesign
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
        rows = self.inhabited_rows
        norms = Norms.from_vectors(rows)
        if len(rows) > MOST_ROWS:
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
        return Norms.from_vectors(self.inhabited_rows).multiply(self.movable * self.outcome.steps)

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
        return moves.moment_norms(self.inhabited_rows).multiply(times)

    @property
    def exact(self) -> bool:
        """Whether the rows were compared, under exchange; else whether a longest rows exist is not
        looked into.
        """
        alone = self.adjacency.by_kind(ball=False, exchange=self.adjacency.times == 1)
        return alone and len(self.inhabited_rows) <= MOST_ROWS and self.exact_moves is None

    @property
    def dimension(self) -> int:
        """The number of columns: a design of full rank leaves all of them free."""
        return self.shape[0] if self.dataspace.n else 0

    @cached_property
    def inhabited_rows(self) -> NDArray[np.object_]:
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
    design: PublicDesign,
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
    design: PublicDesign, combination: Sequence[Sequence[Fraction]]
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
    design = PublicDesign(dataspace.schema, tuple(columns))
    return moment_space(
        dataspace, adjacency, recorded_outcome(query), design, query.get("combination", ())
    )
