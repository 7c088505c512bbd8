"""Requests for tables of counts: one table, or several that share a budget and agree with each
other.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.confidential import Confidential
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.branch_noise import Cut
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.progress import Progress
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.products import NotTogether, ProductSpace, product_space
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.sensitivity.table_spaces import sensitivity_space
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.placement import Objective, Workload
from semidp.publish.residual_mechanism import ResidualMechanism
from semidp.publish.results.published_table import StoredFit, file_stem
from semidp.publish.results.texts import scale_text
from semidp.publish.selection import AUTO, select_mechanism, table_mechanism
from semidp.publish.sources.reader import Reader, conceal
from semidp.publish.statistics.protocol.requests import (
    Forecast,
    Request,
    StepsByParts,
    noise_values,
    read_entries,
    require_budget,
)
from semidp.publish.statistics.tables.asked import (
    NO_OBJECTIVE,
    TableRequest,
    TablesAsked,
    largest_excess,
    measurements_stem,
    with_numbers,
)
from semidp.publish.statistics.tables.fitting import exact_totals
from semidp.publish.statistics.tables.published import (
    PublishedTables,
    published_table,
    published_tables,
)
from semidp.publish.statistics.tables.words import (
    TableForecast,
    forecasts,
    mechanism_lines,
    together_words,
)
from semidp.publish.written_values import texts

if TYPE_CHECKING:
    from semidp.publish.statistics.tables.cut_tables import TableBlocks

# mechanisms that draw the noise of every cell by itself, as a part can
_CELL_BY_CELL = ("gaussian", "laplace")


@frozen
class TablesRequest(TablesAsked):
    """Tables from one budget: a single one, or several that are measured together and all add up.

    The request of a plan for tables. Each of its tables is described by a `TableRequest`.

    Parameters
    ----------
    tables
        The tables, without budgets of their own; unnamed ones of several are called after their
        features.
    budget
        The budget of all of them. Several tables share zCDP, GDP or (ε, δ); pure ε is divided
        among them.
    objective
        Whether to minimize the total variance of all tables (each times its weight), or the largest
        standard error.

    Examples
    --------
    >>> tables = [TableRequest(["sex", "age"]), TableRequest(["sex", "region"], weight=4)]
    >>> request = TablesRequest(tables, Budget.gdp(1))
    >>> [table.name for table in request.tables], request.files[:2]
    (['sex-age', 'sex-region'], ('sex-age.csv', 'sex-region.csv'))
    """

    @classmethod
    def from_table(cls, table: TableRequest) -> "TablesRequest":
        """Return the request for one table, with the budget that the table has."""
        return cls((evolve(table, budget=None),), table.budget) if table.budget else cls((table,))

    def space(self, scope: Scope) -> QuerySpace:
        """Return the space of the table, or the residuals of several."""
        if self.is_single_table:
            return sensitivity_space(
                scope.dataspace.for_kind(self.counted), scope.adjacency, self.only.features
            )
        return self.residual_space(scope)

    def residual_space(self, scope: Scope) -> ProductSpace:
        """Return the residuals of all tables, on which several tables, or one by parts, are
        measured.
        """
        public = scope.dataspace.for_kind(self.counted)
        return product_space(public, scope.adjacency, [table.features for table in self.tables])

    def calibrate(self, space: QuerySpace) -> Mechanism:
        """Return the mechanism asked for, or the one of least announced variance; several tables
        have residual ones.
        """
        if self.is_single_table:
            return table_mechanism(space, require_budget(self), self.mechanism)
        return self.residual_mechanism(space)

    def workload(self, scope: Scope) -> Workload:
        """Return the workload for placing noise on residuals."""
        weights = [float(table.weight) for table in self.tables]
        return Workload.from_weights(self.residual_space(scope), weights, self.objective)

    def residual_mechanism(self, space: QuerySpace) -> ResidualMechanism:
        """Place the noise on the residuals."""
        weights = [float(table.weight) for table in self.tables]
        budget = require_budget(self)
        return ResidualMechanism.calibrate(space, budget, weights=weights, objective=self.objective)

    def forecast(self, mechanism: Mechanism, scope: Scope) -> tuple[Forecast, ...]:
        """Forecast the errors of each table, with its expected counts."""
        return forecasts(self.tables, mechanism, scope)

    def noise_lines(self, mechanism: Mechanism, foreseen: Sequence[TableForecast]) -> list[str]:
        """Say with what noise the tables would be measured."""
        what = together_words(len(self.tables))
        if self.is_single_table:
            what = " by ".join(self.only.features)
        if isinstance(mechanism, ResidualMechanism):
            return mechanism_lines([table.shared_line() for table in foreseen], mechanism, what)
        scale = scale_text(mechanism.scale * float(mechanism.space.unit))
        distance = f"expected distance of the whole table {mechanism.expected_l2:,.1f}"
        noise = f"scale {scale}, {distance}, {mechanism.claim} claim"
        return [f"{mechanism.name} for {what}: {table.line()}, {noise}" for table in foreseen]

    def noise_json(self, mechanism: Mechanism, foreseen: Sequence[TableForecast]) -> dict[str, Any]:
        """Return the noise and the tables that are foreseen, as plain values."""
        if self.is_single_table:
            return {**foreseen[0].to_json(), **noise_values(mechanism)}
        return {**noise_values(mechanism), "tables": [table.shared_json() for table in foreseen]}

    def read(
        self, reader: Reader, scope: Scope, space: QuerySpace
    ) -> Confidential[NDArray[np.int64]]:
        """Return the counts of the table, or residuals where those are measured."""
        if self.is_single_table:
            return conceal(self.name, space.values(reader.table(self.only.features)))
        assert isinstance(space, ProductSpace)
        tables = reader.tables(table.features for table in self.tables)
        return conceal(self.name, space.measure(tables))

    def publish(
        self,
        mechanism: Mechanism,
        measured: Measurement,
        scope: Scope,
        progress: Progress,
        stored: Sequence[StoredFit] = (),
    ) -> PublishedTables:
        """Fit whole numbers with the exact totals to the measurement, unless they are stored."""
        if self.is_single_table:
            return published_table(self, mechanism, measured, scope, progress, stored)
        assert isinstance(mechanism, ResidualMechanism)
        return published_tables(self, mechanism, measured, scope, progress, stored)

    def published_schema(self, table: TableRequest, scope: Scope) -> Schema:
        """Return the features of one of its tables."""
        return scope.dataspace.schema.restrict(table.features)

    # --- Parts ------------------------------------------------------------------------------------

    def refuse_parts(self) -> None:
        """Refuse what cannot be released part by part, in a sentence.

        >>> TablesRequest.from_table(TableRequest(["county"], Budget.pure(1), "l2")).refuse_parts()
        Traceback (most recent call last):
        semidp.errors.InputError: l2 noise is drawn for all cells of 'table' at once, so no part can
        draw its ...
        """
        for table in self.tables:
            if table.mechanism not in (AUTO, ResidualMechanism.name, *_CELL_BY_CELL):
                raise InputError(
                    f"{table.mechanism} noise is drawn for all cells of {table.name!r} at once, so"
                    " no part can draw its own: leave the mechanism out, or choose"
                    f" {' or '.join(_CELL_BY_CELL)}"
                )

    def parts_space(self, scope: Scope) -> QuerySpace:
        """Return what parts measure: residuals, or the cells of a table for pure ε or a named
        mechanism.
        """
        # A named mechanism adds its noise to cells, and no noise on residuals gives pure epsilon.
        named = self.mechanism in _CELL_BY_CELL
        if self.is_single_table and (
            named or (self.budget is not None and self.budget.kind == "pure")
        ):
            return self.space(scope)
        try:
            return self.residual_space(scope)
        except NotTogether:
            if not self.is_single_table:
                raise
            return self.space(scope)  # whose cells are measured in any case

    def parts_calibrate(self, space: QuerySpace) -> Mechanism:
        """Return the noise that parts can draw."""
        if isinstance(space, ProductSpace):
            return self.residual_mechanism(space)
        budget = require_budget(self)
        # What auto chooses elsewhere may draw all cells at once, which no part can do by itself.
        usual = "laplace" if budget.kind == "pure" else "gaussian"
        return select_mechanism(space, budget, usual if self.mechanism == AUTO else self.mechanism)

    def cut_blocks(
        self, mechanism: Mechanism, depth: str, scope: Scope, requests: Sequence[Request]
    ) -> "tuple[TableBlocks, dict[str, tuple[str, ...]]]":
        """Return how tables that are published together lie in parts, and the tables at the cut
        that are published next to them, by name.
        """
        from semidp.publish.statistics.tables.cut_tables import TableBlocks, cut_plain
        from semidp.publish.statistics.tables.separate import name_unasked

        schema = scope.dataspace.schema
        cut = Cut.from_name(schema, depth)
        blocks = TableBlocks(
            cut_plain(self.tables, mechanism, schema, cut), measurements_stem(self)
        )
        # Cells that cannot be filled move the estimates of all parts, and those above with them.
        if not isinstance(mechanism, ResidualMechanism) or mechanism.space.impossible:
            return blocks, {}
        return blocks, name_unasked(self, requests, schema, cut)

    def steps_by_parts(
        self,
        mechanism: Mechanism,
        cut: Cut,
        scope: Scope,
        requests: Sequence[Request],
        reader: Reader,
    ) -> StepsByParts | None:
        """Return how the tables are measured at the cut, in each part, and put together; None if
        none of them reaches below the cut.
        """
        from semidp.publish.statistics.tables import fitting, part_steps, separate
        from semidp.publish.statistics.tables.part_steps import TablesAtCut

        schema = scope.dataspace.schema
        blocks, names = self.cut_blocks(mechanism, cut.name(schema), scope, requests)
        if not blocks.below:
            return None
        foreseen: list[str] = []
        if isinstance(mechanism, ResidualMechanism) and not mechanism.space.impossible:
            views = separate.fitted_views(self, schema)
            exact = [total.view for total in exact_totals(mechanism.space)]
            circles = fitting.circles_met(schema.grid, views, exact, cut)
            foreseen += separate.foresee_cycles(self, circles, schema)
            if not fitting.needs_joint_fit(schema.grid, views, exact, cut):
                at_cut = TablesAtCut.read(blocks.kinds[0], scope.dataspace, reader)
                at_cut_names = separate.overview_names(requests, schema, cut)[self.name]
                stems = [name for name, _ in at_cut_names]
                return part_steps.SeparateSteps(self, mechanism, [at_cut], stems, foreseen)
        readers = [(scope.dataspace, reader)]
        return part_steps.prepare_joint_steps(
            self, mechanism, scope, blocks, readers, names, foreseen
        )

    def with_mechanism(self, name: str) -> "TablesRequest":
        """Return the request with another mechanism for its tables."""
        return evolve(self, tables=[evolve(table, mechanism=name) for table in self.tables])

    def dividing(self, budget: Budget) -> "tuple[TablesRequest, ...]":
        """Return requests that spend a budget together: pure epsilon is split evenly, any other is
        shared.
        """
        if self.is_single_table or budget.kind != "pure":
            return (evolve(self, budget=budget),)
        # Pure epsilon is split evenly before anything is measured: no objective could move it.
        if self.objective is not Objective.total:
            raise InputError(NO_OBJECTIVE)
        return tuple(
            TablesRequest((table,), budget.split_evenly(len(self.tables))) for table in self.tables
        )

    def as_separate_requests(self) -> "tuple[TablesRequest, ...]":
        """Return a request for each table with an equal part of the budget; weights are
        ignored.
        """
        part = require_budget(self).split_evenly(len(self.tables))
        return tuple(TablesRequest((evolve(table, weight=1),), part) for table in self.tables)

    # --- Target errors ----------------------------------------------------------------------------

    def without_targets(self) -> "TablesRequest":
        """Return the same tables, ready to be given a budget."""
        return evolve(self, tables=[evolve(table, target_error=None) for table in self.tables])

    def with_target_errors(self, option: str, errors: Mapping[str, str]) -> "TablesRequest":
        """Return the request with the errors that an option names for some of its tables."""
        return evolve(self, tables=with_numbers(self.tables, "target_error", option, errors))

    def excess(self, mechanism: Mechanism) -> float:
        """Return by what factor the worst error of a table exceeds its target."""
        if isinstance(mechanism, ResidualMechanism):
            return largest_excess(self.tables, mechanism.table_errors)
        return largest_excess(self.tables, lambda number: mechanism.standard_errors())

    # --- Plan files -------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return the request as plain values: the entry of one table, or what a plan has at its top
        and its tables.
        """
        if self.is_single_table:
            return (
                evolve(self.only, budget=self.budget).to_json()
                if self.budget
                else self.only.to_json()
            )
        spent = {} if self.budget is None else self.budget.keys()
        aim = {} if self.objective is Objective.total else {"objective": str(self.objective)}
        return {**spent, **aim, "table": [table.to_json() for table in self.tables]}


def group_table_requests(
    asked: Sequence[TableRequest | TablesRequest],
) -> tuple[TablesRequest, ...]:
    """Return the requests for tables of a plan: those with a budget, then one for all
    without.

    >>> both = group_table_requests(
    ...     [TableRequest(["sex"]), TableRequest(["age"]), TableRequest(["sex"], Budget.gdp(1))]
    ... )
    >>> [[table.name for table in request.tables] for request in both]
    [['table'], ['sex', 'age']]
    """
    alone: list[TablesRequest] = []
    shared: list[TablesRequest] = []
    waiting: list[TableRequest] = []
    objective = Objective.total
    for item in asked:
        request = TablesRequest.from_table(item) if isinstance(item, TableRequest) else item
        if request.budget is None:
            waiting += request.tables
            objective = request.objective if request.objective is not Objective.total else objective
        elif request.is_single_table:
            alone.append(request)
        else:
            shared.append(request)
    # All of them would have the same name and the same file of measurements.
    if len(shared) > 1:
        raise InputError(
            "some tables of the plan share a budget already: give the others budgets of their own"
        )
    open_request = [TablesRequest(waiting, None, objective)] if waiting else []
    return (*alone, *shared, *open_request)


PLAN_KEYS = ("epsilon", "delta", "rho", "mu", "objective", "all_of", "order", "table")
"""The keys for tables at the top of a plan file: their shared budget, and how they share it."""


def read_tables(document: Mapping[str, Any]) -> list[TablesRequest]:
    """Read the tables of a plan file: those with budgets of their own, and those that share the one
    at the top.
    """
    tables = [TableRequest.from_json(entry) for entry in read_entries(document, "table")]
    tables += list_all_tables(read_entries(document, "all_of"), document.get("order"))
    budget = Budget.from_plan_keys(document)
    objective = document.get("objective")
    requests = [TablesRequest.from_table(table) for table in tables if table.budget]
    without = [table for table in tables if not table.budget]
    if budget is None:
        if objective is not None:
            raise InputError(
                "an objective is for tables that share a budget: also give epsilon, rho or mu"
            )
        return [*requests, *([TablesRequest(without)] if without else [])]
    if not without:
        raise InputError(
            "the plan has a budget for tables that share it, but each has its own: leave one of"
            " them out"
        )
    if objective is not None and (len(without) < 2 or budget.kind == "pure"):
        raise InputError(NO_OBJECTIVE)
    sharing = TablesRequest(without, None, Objective.total if objective is None else objective)
    return [*requests, *sharing.dividing(budget)]


def write_tables(requests: Sequence[TablesRequest]) -> dict[str, Any]:
    """Return tables as a plan file has them: what they share at its top, then an entry for each."""
    top: dict[str, Any] = {}
    entries: list[dict[str, Any]] = []
    for request in requests:
        document = request.to_json()
        if request.is_single_table:
            entries.append(document)
        else:
            entries += document.pop("table")
            top |= document
    return {**top, "table": entries}


def list_all_tables(features: Iterable[str], order: int | None = None) -> list[TableRequest]:
    """Return the tables over all sets of `order` features (2 unless said); none for no features.

    >>> [table.name for table in list_all_tables(["sex", "age", "region"])]
    ['sex-age', 'sex-region', 'age-region']
    """
    names = texts(features, "the features of which all tables are wanted")
    size = 2 if order is None else order
    if order is not None and not names:
        raise InputError("an order needs the features of which all tables are wanted: give all_of")
    if not names:
        return []
    if size == 2 and len(names) < 2:
        raise InputError(
            f"a table for each pair of features needs two or more, not {names[0]} alone"
        )
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= len(names):
        raise InputError(
            f"the order of all tables of {len(names)} features is a whole number from 1 to"
            f" {len(names)}"
        )
    return [
        TableRequest(chosen, name=file_stem(chosen))
        for chosen in itertools.combinations(names, size)
    ]
