"""The published result of a request for tables: one table, or several from one measurement.

The result is a frozen value that knows its files and its JSON form, and is read back from them.
Everything here may be published: it is a measurement, or follows from measurements and public
values. The tables are in `publish.results`.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from attrs import asdict, field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.progress import Progress
from semidp.promise.schema.margins import junction_order, maximal
from semidp.promise.sensitivity.products import product_space
from semidp.publish.fitting.tables import fit_table
from semidp.publish.half_widths import INTERVALS_BELOW, cell_half_widths
from semidp.publish.residual_mechanism import ResidualMechanism
from semidp.publish.results.columns import Columns, Form
from semidp.publish.results.grids import Section
from semidp.publish.results.published_table import (
    FitKind,
    Fitted,
    FittedTable,
    PublishedTable,
    StoredFit,
)
from semidp.publish.selection import find_separate_loss
from semidp.publish.statistics.parts import BY_PARTS
from semidp.publish.statistics.protocol.requests import (
    Trust,
    mechanism_fields,
    require_budget,
)
from semidp.publish.statistics.tables import words
from semidp.publish.statistics.tables.asked import TableRequest, TablesAsked
from semidp.publish.statistics.tables.cut_tables import (
    RESIDUAL_FIELDS,
    residual_columns,
    residuals_json,
)
from semidp.publish.statistics.tables.fitting import fitted_tables
from semidp.publish.statistics.tables.words import PublishedCells

if TYPE_CHECKING:
    from semidp.publish.statistics.protocol.requests import Request

ALONE, SHARED = "tables", "products"
"""The keys of its lists in release.json: of tables with their own budgets, and of those that share
one."""

_FOR_STUDIES = (
    "for studies: the proof is for real-valued noise, and floating-point numbers are published as"
    " drawn"
)
IN_ONE_PIECE = "in_one_piece"
"""The field of release.json that tells tables by parts that were published together from those
whose parts were fitted one by one."""


@frozen(slots=False, eq=False, kw_only=True, repr=False)
class PublishedTables(PublishedCells):
    """The tables of one request, all from one measurement.

    Parameters
    ----------
    request
        What was asked for.
    noisy
        What was measured, as drawn: noisy counts of one table, or residuals times their scales.
    tables
        The published tables.
    residuals
        The noise of every residual, if residuals were measured and not cells.
    one_by_one_l2
        The expected distance from the truth of tables measured one by one at the same guarantee;
        None if unknown.

    Examples
    --------
    >>> import semidp
    >>> tables = [
    ...     semidp.publish.TableRequest(["sex", "age"]),
    ...     semidp.publish.TableRequest(["sex", "region"]),
    ... ]
    >>> plan = semidp.Plan(
    ...     [semidp.publish.TablesRequest(tables, semidp.Budget.gdp(1))],
    ...     ["sex"],
    ...     levels_from_data=True,
    ... )
    >>> people = {"sex": [*"ffmmf"], "age": [*"yoyoo"], "region": [*"nnsns"]}
    >>> result = semidp.run(plan, people).results[0]
    >>> result.noise.mechanism, [table.counts.sum(axis=1).tolist() for table in result.tables]
    ('residuals', [[3, 2], [3, 2]])
    """

    key: ClassVar[str] = ALONE
    counts_cells: ClassVar[bool] = True
    compared_fields: ClassVar[tuple[str, ...]] = (*RESIDUAL_FIELDS, "one_by_one_l2")

    request: TablesAsked
    tables: tuple[PublishedTable, ...]
    residuals: ResidualMechanism | None = field(default=None, repr=False)
    one_by_one_l2: float | None = None

    @property
    def list_key(self) -> str:
        """The list of release.json that it is in: that of single tables, of tables that share a
        budget, or of those by parts.
        """
        if self.depth is not None:
            return BY_PARTS
        return ALONE if self.request.is_single_table else SHARED

    @property
    def only(self) -> PublishedTable:
        """The table of a request for one."""
        (table,) = self.tables
        return table

    @property
    def noise_of_residuals(self) -> ResidualMechanism:
        """The noise of every residual of tables that are measured on residuals."""
        assert self.residuals is not None, "asked of tables that are measured on residuals"
        return self.residuals

    @property
    def decomposable(self) -> bool:
        """Whether one population certainly has all tables and exact totals: a junction tree joins
        them.
        """
        space = self.noise_of_residuals.space
        views = [*space.views, *(total.view for total in space.dataspace.published_totals)]
        return junction_order(maximal(views)) is not None

    def __repr__(self) -> str:
        names = ", ".join(table.name for table in self.request.tables)
        return f"PublishedTables({names}; {self.noise.mechanism})"

    # --- what others find in it

    def every_table(self) -> tuple[PublishedTable, ...]:
        """Return every table that was asked for."""
        return self.tables

    def residual_noise(self) -> ResidualMechanism | None:
        """Return the noise of its residuals, where those were measured."""
        return self.residuals

    def table(self, name: str) -> PublishedTable:
        """Return a table by its name."""
        for table in self.tables:
            if table.name == name:
                return table
        names = ", ".join(table.name for table in self.tables)
        raise InputError(f"there is no table {name!r}; there are {names}")

    # --- what is said about it

    def mechanism_lines(self) -> list[str]:
        """Say with what noise the tables were measured, for a terminal."""
        if self.request.is_single_table:
            return [words.describe_noise(self)]
        together = words.together_words(len(self.tables))
        return words.mechanism_lines((), self.noise_of_residuals, together)

    def sections(self, form: Form | None = None) -> list[Section]:
        """Return its sections of the report."""
        if self.depth is not None:
            return [self.parts_section()]
        return words.tables_sections(self, form)

    def claim_text(self) -> str:
        """Say whether the claim covers the numbers actually sampled: floating-point numbers have
        no proof.
        """
        return _FOR_STUDIES if self.noisy.dtype.kind != "i" else super().claim_text()

    @classmethod
    def said_of_several(cls, results: "Sequence[PublishedTables]") -> list[str]:
        """Say that tables with budgets of their own were measured one by one."""
        results = [result for result in results if result.list_key == ALONE]
        if len(results) < 2:
            return []
        return [
            f"{len(results)} tables were measured one by one, each with a budget of its own: what"
            " is not exact and occurs in two of them is two numbers."
        ]

    # --- computed again

    def recalibrate(self, request: "Request", scope: Scope) -> Mechanism:
        """Return its mechanism, recalibrated: on its residuals where those were measured."""
        if self.list_key == BY_PARTS:
            return request.parts_calibrate(request.parts_space(scope))
        if not self.request.is_single_table:
            return request.calibrate(request.space(scope))
        if self.noise.mechanism != ResidualMechanism.name:
            return super().recalibrate(request, scope)
        # The noise was drawn on residuals, whatever `auto` would choose for this table today.
        product = product_space(scope.dataspace, scope.adjacency, [request.features])
        return ResidualMechanism.calibrate(product, require_budget(request))

    def sampling_mechanism(self, needed: Mechanism) -> Mechanism | None:
        """Return the mechanism whose noise was drawn: on residuals as it states it."""
        if self.residuals is None:
            return super().sampling_mechanism(needed)
        recorded = self.residuals
        return recorded if recorded.spent <= recorded.precision else None

    def fitted_tables(self) -> list[FittedTable]:
        """Return its tables with what they were fitted to: their estimates, or noisy cells."""
        if self.request.is_single_table:
            measure = self.noisy if self.residuals is None else self.only.estimate
            return [FittedTable(self.only, measure, f"{self.list_key}.fit")]
        place = f"{self.list_key}.tables.fit"
        return [FittedTable(table, table.estimate, place) for table in self.tables]

    def trust_assumptions(self, request: "Request") -> Iterator[Trust]:
        """Yield what is taken on trust about it besides its noisy values: the decision where to add
        noise.
        """
        yield from super().trust_assumptions(request)
        # Noise on residuals is checked by what it costs. Weights say which tables it should spare.
        if self.residuals is not None and len(self.tables) > 1:
            yield Trust("how tables that share a budget were weighted", ("plan.table.weight",))

    def measurements(self) -> Columns | None:
        """Return what was measured: one row per cell, or one row per entry of a residual."""
        if self.blocks is not None:
            return self.blocks.columns_above(self.noisy)
        if self.residuals is None:
            return Columns.of_cells(self.only.schema, {"noisy_count": self.noisy})
        return residual_columns([self.residuals.space], self.noisy)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the cells and the measurements, as plain values."""
        measured = {} if self.residuals is None else residuals_json(self.residuals)
        if self.blocks is not None:
            overview = [table.to_json() for table in self.blocks.overview]
            measured |= {IN_ONE_PIECE: True, "overview": overview}
        if self.request.is_single_table:
            features = list(self.only.schema.names)
            return {
                **super().to_json(),
                **measured,
                "features": features,
                "fit": asdict(self.only.fitted),
            }
        loss = sum(table.fitted.loss for table in self.tables)
        bound = sum(table.fitted.bound for table in self.tables)
        values = {**super().to_json(), **measured}
        values["one_by_one_l2"] = self.one_by_one_l2
        values["decomposable"] = self.decomposable
        values["whole_numbers"] = {"loss": loss, "real_valued_bound": bound}
        values["tables"] = [table.to_json() for table in self.tables]
        return values


def published_table(
    request: TablesAsked,
    mechanism: Mechanism,
    measured: Measurement,
    scope: Scope,
    progress: Progress,
    stored: Sequence[StoredFit] = (),
) -> PublishedTables:
    """Fit one table to its measurement, unless its fit is stored; from here on only
    public values are used.
    """
    asked = request.only
    public = scope.dataspace.restrict_features(asked.features)
    residuals = mechanism if isinstance(mechanism, ResidualMechanism) else None
    measure, estimate = measured.noisy, measured.projected
    # Noise on residuals leaves no noisy cells, so the estimates are what is fitted.
    if residuals is not None:
        (estimate,) = residuals.estimates(measured.projected)
        measure = estimate
    if stored and asked.fit is not FitKind.none:
        ((counts, how),) = stored
    else:
        counts, how = _fit_counts(asked, measure, estimate, scope, progress)
    if residuals is None:
        errors = mechanism.standard_errors()
    else:
        errors = residuals.table_errors(0)
    half_widths = None
    if public.schema.size < INTERVALS_BELOW:
        half_widths = cell_half_widths(mechanism)
    table = PublishedTable(asked.name, public.schema, counts, estimate, errors, how, half_widths)
    as_asked = table.asked_as(asked.features)
    stated = mechanism_fields(asked.name, mechanism, measured.private)
    return PublishedTables(
        request=request,
        noisy=measured.noisy,
        tables=(as_asked,),
        residuals=residuals,
        **stated,
    )


def _fit_counts(
    asked: TableRequest,
    measure: NDArray[Any],
    estimate: NDArray[np.float64],
    scope: Scope,
    progress: Progress,
) -> tuple[NDArray[Any], Fitted]:
    """Return the published counts of one table, and how they were made from what was measured."""
    kind = asked.fit
    if kind is FitKind.none:
        return estimate, Fitted(
            str(kind), "none", 0.0, 0.0, True, "The measurement itself is published."
        )
    public = scope.dataspace.restrict_features(asked.features)
    fit = fit_table(measure, public, progress=progress)
    counts = fit.values if fit.counts is None else fit.counts
    assert counts is not None, "a fit holds whole numbers or real ones"
    how = Fitted(str(kind), fit.method, fit.loss, fit.bound, fit.optimal, fit.note)
    return counts, how


def published_tables(
    request: TablesAsked,
    mechanism: ResidualMechanism,
    measured: Measurement,
    scope: Scope,
    progress: Progress,
    stored: Sequence[StoredFit] = (),
) -> PublishedTables:
    """Return several published tables, assembled from the measured residuals; their fits may be
    stored.
    """
    names = [table.name for table in request.tables]
    fit_kinds = [table.fit for table in request.tables]
    tables = fitted_tables(mechanism, measured.projected, names, fit_kinds, progress, stored)
    shown = []
    for table, asked in zip(tables, request.tables, strict=True):
        shown.append(table.asked_as(asked.features))
    noisy = np.asarray(measured.noisy, dtype=np.int64)
    stated = mechanism_fields(request.name, mechanism, measured.private)
    return PublishedTables(
        request=request,
        residuals=mechanism,
        noisy=noisy,
        tables=tuple(shown),
        one_by_one_l2=find_separate_loss(mechanism),
        **stated,
    )
