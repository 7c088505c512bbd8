"""What a release publishes of tables: counts, estimates, standard errors, measurements.

A published table is a frozen value that knows its files and its JSON form, and is read back from them. Everything here
may be published: it is a measurement, or follows from measurements and public values.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semidp.core.exact import positive
from semidp.core.margins import junction_order, maximal
from semidp.core.progress import Progress
from semidp.core.scope import Scope
from semidp.core.tables.counts import Table
from semidp.core.tables.schema import Schema
from semidp.errors import InputError
from semidp.fitting.tables import fit_table
from semidp.mechanisms.accuracy import INTERVALS_BELOW
from semidp.mechanisms.branch_noise import BranchNoise
from semidp.mechanisms.mechanism import Measurement, Mechanism
from semidp.mechanisms.placement import Objective, Workload
from semidp.mechanisms.residual_noise import ResidualMechanism
from semidp.output.cells import TABLE_NUMBERS, Columns, Form, Framed, StoredFiles, named_files
from semidp.output.columns import Labels
from semidp.output.plots.figures import heatmap
from semidp.output.sections import Details, Section
from semidp.queries.products import ProductSpace, product_space
from semidp.statistics.protocol import Published, ResultCheck, budget_of, is_size, measured_by, read_back
from semidp.statistics.tables import product_words, words
from semidp.statistics.tables.error_words import CellErrors, cautions, every_error

if TYPE_CHECKING:
    from semidp.statistics.protocol import Request
    from semidp.statistics.tables.request import TablesRequest


RESIDUAL_FIELDS = ("precision", "law", "residuals")
"""The fields of release.json that state the noise of residuals."""

LAWS = ("discrete", "rounded")
"""The laws of noise on residuals, as release.json names them."""

_DIGITS = 1e6  # to which the ends of intervals are rounded outward
_SLACK = 1e-3  # of the last digit, which is more than a rounding error


class FitKind(StrEnum):
    """What is published: whole numbers that add up, real ones that do, or the measurement itself.

    >>> FitKind("real")
    <FitKind.real: 'real'>
    """

    integer = "integer"
    real = "real"
    none = "none"


# --- tables ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fitted:
    """How the published table was made from the measurement: post-processing of public values only."""

    kind: str
    method: str
    loss: float
    bound: float
    optimal: bool
    note: str

    def __post_init__(self) -> None:
        texts = isinstance(self.method, str) and isinstance(self.note, str) and self.kind in list(FitKind)
        if not texts or not isinstance(self.optimal, bool) or not all(map(is_size, map(abs, (self.loss, self.bound)))):
            raise ValueError("a fit has a kind, a method, two distances, whether it is optimal, and a note")


@dataclass(frozen=True, eq=False, repr=False)
class CellTable(Framed):
    """A published table, however it was measured, a number a cell.

    Parameters
    ----------
    name, schema
        What it is called, its features and levels.
    counts
        What is published: whole numbers, unless the plan asked for others or none exist, as `fitted` says.
    estimate
        The unbiased estimate, a real number a cell.
    standard_errors
        Of the estimate, cell by cell, from the noise alone. They do not belong to the fitted counts.
    fitted
        How the counts were made from the measurement.
    half_widths
        How far the estimate is off at most in 95% of all draws, cell by cell, from the law of the noise; None for
        tables of a million cells and more.
    """

    name: str
    schema: Schema
    counts: NDArray[Any] = field(repr=False)
    estimate: NDArray[np.float64] = field(repr=False)
    standard_errors: NDArray[np.float64] = field(repr=False)
    fitted: Fitted
    half_widths: NDArray[np.float64] | None = field(default=None, repr=False)

    def keeps(self, scope: Scope) -> bool:
        """Whether the published whole numbers, none of them negative, have every exact total."""
        if self.counts.dtype.kind != "i":  # no table of whole numbers was found, and the note says so
            return True
        public = scope.dataspace.over(self.schema.names)
        return bool(self.counts.min() >= 0) and public.contains(Table(self.schema, self.counts))

    def columns(self) -> Columns:
        """Return a row a cell: the count, the estimate and its standard error, the ends of its 95% interval.

        The interval is from the noise alone and never clipped. Tables of a million cells and more leave it out.
        """
        numbers = [self.counts, self.estimate, self.standard_errors]
        if self.half_widths is not None:
            numbers += interval_ends(self.estimate, self.half_widths)
        return Columns.of_cells(self.schema, dict(zip(TABLE_NUMBERS, numbers, strict=False)))

    def plot(self, axes: Any = None) -> Any:
        """Draw the counts as shades, on matplotlib axes where given; return the figure."""
        return heatmap(self.schema, self.counts, axes)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PublishedTable(CellTable, Published):
    """One published table.

    Parameters
    ----------
    schema, counts, estimate, standard_errors, fitted
        As for every table; `projected` is the estimate, the measurement with the invariants put back.
    noisy
        The measurement as drawn.
    residuals
        The noise of every residual, where those were measured and not the cells; `noisy` are then residuals.

    Examples
    --------
    >>> import semidp
    >>> request = semidp.TableRequest(["sex", "region"], semidp.Budget.gdp(1))
    >>> plan = semidp.Plan([request], [["sex", "region"]])
    >>> table = semidp.run(plan, {"sex": ["f", "m"], "region": ["n", "s"]}).tables[0]
    >>> table.counts.tolist(), table.noise.mechanism  # all of it is exact here
    ([[1, 0], [0, 1]], 'no noise')
    """

    key: ClassVar[str] = "tables"
    counts_cells: ClassVar[bool] = True
    compared_fields: ClassVar[tuple[str, ...]] = RESIDUAL_FIELDS
    derived_fields: ClassVar[tuple[str, ...]] = (*Published.derived_fields, "saved_by_joint_sensitivity")

    noisy: NDArray[Any] = field(repr=False)
    residuals: ResidualMechanism | None = field(default=None, repr=False)

    @property
    def projected(self) -> NDArray[np.float64]:
        """The unbiased estimate, a real number a cell."""
        return self.estimate

    def __repr__(self) -> str:
        what = f"{' × '.join(self.schema.names)}, {self.schema.size:,} cells"
        return f"PublishedTable({self.name!r}: {what}, {self.noise.mechanism})"

    def title(self) -> str:
        """Name the table by its features."""
        return words.table_title(self)

    def noisy_lines(self) -> list[str]:
        """Say how many cells have noise."""
        return words.noisy_lines(self)

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return the mechanism with its expected loss, for a terminal."""
        return words.summary_lines(self)

    def sections(self, form: Form | None = None) -> list[Section]:
        """Return its section of the report."""
        return [words.section(self, form)]

    def details(self) -> Details:
        """Say how it was measured and fitted."""
        return words.details(self)

    def file_words(self, form: Form | None = None) -> list[tuple[str, str]]:
        """Say what its two files hold."""
        return words.file_words(self, form)

    def named(self) -> dict[str, Framed]:
        """Return the table under its name."""
        return {self.name: self}

    def by_features(self) -> dict[tuple[str, ...], Framed]:
        """Return the table by its features."""
        return {self.schema.names: self}

    def claim_text(self) -> str:
        """Say whether the claim is about the numbers that were drawn."""
        return words.claim_text(self)

    @property
    def fixed(self) -> bool:
        """Whether exact totals fix every cell."""
        return self.noise.absent

    def warnings(self) -> list[str]:
        """Say that whole numbers were asked for and there are none."""
        return words.warnings(self)

    def cautions(self) -> list[str]:
        """Say that noise dominates many of its cells."""
        return cautions([CellErrors.of(self)], [self.title()])

    @classmethod
    def said_of_several(cls, results: "Sequence[PublishedTable]") -> list[str]:
        """Say that tables with budgets of their own were measured one by one."""
        return words.apart(results)

    def recalibrated(self, request: "Request", scope: Scope) -> Mechanism:
        """Return its mechanism, calibrated anew: on its residuals where those were measured."""
        if self.noise.mechanism != ResidualMechanism.name:
            return super().recalibrated(request, scope)
        product = product_space(scope.dataspace, scope.adjacency, [request.features])
        return ResidualMechanism.calibrate(product, budget_of(request))

    def drawn_by(self, needed: Mechanism) -> Mechanism | None:
        """Return the mechanism whose noise was drawn: on residuals as it states it."""
        return super().drawn_by(needed) if self.residuals is None else within_claim(self.residuals)

    def faults(self, mechanism: Mechanism) -> Iterator[str]:
        """Say where it records another mechanism, or less noise, than the one that its plan gives."""
        yield from super().faults(mechanism)
        if self.residuals is not None and isinstance(mechanism, ResidualMechanism):
            yield from residual_faults(self.residuals, mechanism)

    def stated_mechanism(self, check: ResultCheck) -> Mechanism | None:
        """Return the mechanism with the noise that it states; None where its budget gives another."""
        from semidp.statistics.tables.recheck import compare_residuals

        needed = check.mechanism
        if not isinstance(needed, ResidualMechanism):
            return super().stated_mechanism(check)
        assert self.residuals is not None  # a table whose noise is on residuals says how much
        return compare_residuals(check, self.residuals, needed)

    def recheck(self, check: ResultCheck, mechanism: Mechanism) -> "PublishedTable":
        """Compare estimates, errors and whole numbers; return the table as it is computed again."""
        from semidp.statistics.tables.recheck import recheck_table

        return recheck_table(self, check, mechanism)

    def holds_noise(self, column: str) -> bool:
        """Whether a column of its files holds what was measured: noisy counts, or residuals."""
        return column in ("noisy_count", "noisy")

    def fitted_cells(self, request: "Request", scope: Scope) -> int:
        """Return how many cells the table has that was asked for."""
        return scope.dataspace.schema.restrict(request.features).size

    def files(self, form: Form | None = None) -> dict[str, Columns]:
        """Return the published counts with the estimates, and the measurements, one row a cell."""
        measurements = (
            Columns.of_cells(self.schema, {"noisy_count": self.noisy})
            if self.residuals is None
            else residual_columns(self.residuals, self.noisy)
        )
        return named_files(dict(zip(table_stems(self.name), (self.columns(), measurements), strict=True)), form)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the cells, which are in the CSV files, as plain values."""
        measured = {} if self.residuals is None else residuals_json(self.residuals)
        return {**super().to_json(), **measured, "features": list(self.schema.names), "fit": asdict(self.fitted)}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any], scope: Scope, files: StoredFiles) -> "PublishedTable":
        """Read what `to_json` and `files` wrote."""
        schema = scope.dataspace.schema.restrict(entry["features"])
        published, measurements = table_stems(entry["name"])
        cells = read_cells(files, published, schema)
        residuals = None
        if entry["noise"]["mechanism"] == ResidualMechanism.name:
            space = product_space(scope.dataspace, scope.adjacency, [entry["features"]])
            residuals = residuals_from_json(entry, space, Workload.of(space, None, Objective.total))
            measured = {"noisy_count": read_residuals(files, measurements, space)}
        else:
            measured = read_cells(files, measurements, schema)
        estimate = cells.get("estimate", measured.get("projected"))  # earlier versions had it beside the measurement
        if estimate is None:
            raise ValueError("a table has estimates")
        return cls(
            schema=schema,
            counts=cells["count"],
            noisy=measured["noisy_count"],
            estimate=estimate.astype(float),
            standard_errors=cells["standard_error"].astype(float),
            fitted=Fitted(**entry["fit"]),
            half_widths=read_half_widths(cells),
            residuals=residuals,
            **read_back(entry, scope),
        )


def table_stems(name: str) -> tuple[str, str]:
    """Return what the files of a table are called, but for their endings: its published counts, and its measurements.

    >>> table_stems("table"), table_stems("income")
    (('table', 'measurements'), ('income', 'income-measurements'))
    """
    return name, "measurements" if name == "table" else f"{name}-measurements"


def published_table(
    name: str,
    features: Sequence[str],
    kind: FitKind,
    mechanism: Mechanism,
    measured: Measurement,
    scope: Scope,
    progress: Progress,
) -> PublishedTable:
    """Fit what is published to a measurement: from here on all is post-processing of public values."""
    public = scope.dataspace.over(features)
    residuals = mechanism if isinstance(mechanism, ResidualMechanism) else None
    measure, estimate = measured.noisy, measured.projected
    if residuals is not None:
        (estimate,) = residuals.estimates(measured.projected)
        measure = estimate
    if kind is FitKind.none:
        counts: NDArray[Any] = estimate
        how = Fitted(str(kind), "none", 0.0, 0.0, True, "The measurement itself is published.")
    else:
        fit = fit_table(measure, public, kind="real" if kind is FitKind.real else "integer", progress=progress)
        found = fit.values if fit.counts is None else fit.counts
        assert found is not None
        counts, how = found, Fitted(str(kind), fit.method, fit.loss, fit.bound, fit.optimal, fit.note)
    return PublishedTable(
        schema=public.schema,
        counts=counts,
        noisy=measured.noisy,
        estimate=estimate,
        standard_errors=mechanism.standard_errors() if residuals is None else residuals.table_errors(0),
        fitted=how,
        half_widths=_half_widths(mechanism) if public.schema.size < INTERVALS_BELOW else None,
        residuals=residuals,
        **measured_by(name, mechanism, measured.private),
    )


def _half_widths(mechanism: Mechanism) -> NDArray[np.float64]:
    return mechanism.table_half_widths(0) if isinstance(mechanism, ResidualMechanism) else mechanism.half_widths


def interval_ends(
    estimate: NDArray[np.float64], half_widths: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the ends of intervals, rounded outward to six digits after the point.

    Coarse noise puts much of its probability on the ends themselves, which must not be missed by a rounding error. An
    end that lies on such a digit but for a rounding error (a thousandth of it) is that digit: the same ends come out
    whatever the order of additions, and no count, which is a whole number, lies between.

    >>> [end.tolist() for end in interval_ends(np.array([2 / 3]), np.array([1 / 3]))]
    [[0.333333], [1.0]]
    """
    low = np.floor((estimate - half_widths) * _DIGITS + _SLACK) / _DIGITS
    high = np.ceil((estimate + half_widths) * _DIGITS - _SLACK) / _DIGITS
    return low + 0.0, high + 0.0  # no zero has a sign


# --- files ----------------------------------------------------------------------------------------------------------


def read_cells(files: StoredFiles, name: str, schema: Schema) -> dict[str, NDArray[Any]]:
    """Return the columns of a table's file, in the shape of the schema."""
    columns = files.numbers(name, len(schema.names))
    found = {key: column.reshape(schema.shape) for key, column in columns.items()}
    if not all((np.abs(column) < 2.0**63).all() for column in found.values()):  # false of what is not a number, too
        raise ValueError("a cell does not hold a number")
    return found


def read_half_widths(cells: Mapping[str, NDArray[Any]]) -> NDArray[np.float64] | None:
    """Return the half-widths of the intervals of a table's file; refuse those that are not around the estimates."""
    if "estimate_low" not in cells:
        return None
    below, above = cells["estimate"] - cells["estimate_low"], cells["estimate_high"] - cells["estimate"]
    narrower = np.minimum(below, above)
    # An end on a digit may lie inside of an estimate that is on it too but for a rounding error: see `interval_ends`.
    if not np.allclose(below, above, rtol=1e-6, atol=3 / _DIGITS) or (narrower < -1 / _DIGITS).any():
        raise ValueError("the intervals are not those of the estimates")
    return np.asarray(np.maximum(narrower, 0.0), dtype=np.float64)


def residuals_json(mechanism: ResidualMechanism) -> dict[str, Any]:
    """Return the noise of every residual as plain values."""
    schema = mechanism.space.schema
    return {
        "precision": str(mechanism.precision),
        "law": mechanism.law,
        "saved_by_joint_sensitivity": mechanism.saved,
        "residuals": [
            {"features": list(schema.named(view)), "sigma2": str(square)} for view, square in mechanism.sigma2.items()
        ],
    }


def within_claim(recorded: ResidualMechanism) -> ResidualMechanism | None:
    """Return recorded noise on residuals, if it costs no more than it claims; else None."""
    return recorded if recorded.spent <= recorded.precision else None


def residual_faults(recorded: ResidualMechanism, needed: ResidualMechanism) -> Iterator[str]:
    """Say where less noise is recorded than the claim needs: it may be placed otherwise than it would be today."""
    if recorded.spent > max(recorded.precision, needed.precision):
        yield "it records less noise on some residual than its plan needs"


def residuals_from_json(
    entry: Mapping[str, Any], space: ProductSpace, workload: Workload | None = None
) -> ResidualMechanism:
    """Read what `residuals_json` wrote; refuse residuals that are not those of the space."""
    squares = {space.schema.view(part["features"]): positive(part["sigma2"], "σ²") for part in entry["residuals"]}
    if set(squares) != set(space.measured):
        raise ValueError("the residuals are not those of the plan")
    precision, law, saved = entry["precision"], entry["law"], entry["saved_by_joint_sensitivity"]
    if law not in LAWS:
        raise ValueError("the noise of residuals has a law")
    if not is_size(saved) or saved >= 1:
        raise ValueError("what the joint sensitivity saved is a part of the variance")
    return ResidualMechanism(space, squares, positive(precision, "the precision"), law, saved, workload)


def residual_columns(mechanism: ResidualMechanism | BranchNoise, noisy: NDArray[np.int64]) -> Columns:
    """Return the measured residuals, one row an entry."""
    space = mechanism.space
    sizes = [part.stop - part.start for part in space.parts.values()]
    names = [" × ".join(space.schema.named(view)) for view in space.parts] or ["none"]
    entries = np.concatenate([np.zeros(0, np.int64), *(np.arange(size) for size in sizes)])
    return Columns(
        {"residual": Labels(names, codes=np.repeat(np.arange(len(sizes), dtype=np.int32), sizes))},
        {"entry": entries, "scale": space.scales, "noisy": noisy},
    )


def read_residuals(files: StoredFiles, name: str, space: ProductSpace) -> NDArray[np.int64]:
    """Read what `residual_columns` wrote; refuse measurements that are not of the space."""
    noisy: NDArray[np.int64] = files.numbers(name, 1)["noisy"]
    if noisy.shape != space.shape or noisy.dtype != np.int64:
        raise ValueError("the measurements are not those of the plan")
    return noisy


MEASUREMENTS = "product-measurements"


class ProductTable(CellTable):
    """One table of a published product: its estimate, and whole numbers, agree with those of the other tables."""

    def to_json(self) -> dict[str, Any]:
        """Return everything but the cells, as plain values."""
        return {
            "name": self.name,
            "features": list(self.schema.names),
            "largest_standard_error": float(self.standard_errors.max(initial=0.0)),
            "fit": asdict(self.fitted),
        }

    @classmethod
    def read(cls, files: StoredFiles, name: str, schema: Schema, fitted: Fitted) -> "ProductTable":
        """Read the file of a table."""
        cells = read_cells(files, name, schema)
        estimate, errors = cells["estimate"].astype(float), cells["standard_error"].astype(float)
        return cls(name, schema, cells["count"], estimate, errors, fitted, read_half_widths(cells))

    def __repr__(self) -> str:
        return f"ProductTable({self.name!r}: {' × '.join(self.schema.names)}, {self.schema.size:,} cells)"


class OnResiduals(Published):
    """Tables that state the noise of their residuals: how that is compared with what their plan needs."""

    mechanism: ResidualMechanism

    def drawn_by(self, needed: Mechanism) -> Mechanism | None:
        """Return the noise of its residuals as it states it."""
        return within_claim(self.mechanism)

    def faults(self, mechanism: Mechanism) -> Iterator[str]:
        """Say where it records another mechanism, or less noise, than the one that its plan gives."""
        yield from super().faults(mechanism)
        if isinstance(mechanism, ResidualMechanism):
            yield from residual_faults(self.mechanism, mechanism)

    def stated_mechanism(self, check: ResultCheck) -> Mechanism | None:
        """Return the noise of its residuals as it states it; None where its budget gives another."""
        from semidp.statistics.tables.recheck import compare_residuals

        assert isinstance(check.mechanism, ResidualMechanism)
        return compare_residuals(check, self.mechanism, check.mechanism)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PublishedProduct(OnResiduals):
    """The tables of a product, all from one measurement.

    Parameters
    ----------
    request
        What was asked for.
    mechanism
        The noise of every residual.
    noisy
        The measured residuals as drawn, times their scales.
    tables
        The published tables.
    one_by_one_l2
        The expected distance from the truth of tables measured one by one at the same guarantee; None where unknown.

    Examples
    --------
    >>> from semidp import TablesRequest
    >>> import semidp
    >>> wanted = [semidp.TableRequest(["sex", "age"]), semidp.TableRequest(["sex", "region"])]
    >>> asked = TablesRequest(wanted, semidp.Budget.gdp(1))
    >>> plan = semidp.Plan([asked], ["sex"], levels_from_data=True)
    >>> people = {"sex": [*"ffmmf"], "age": [*"yoyoo"], "region": [*"nnsns"]}
    >>> product = semidp.run(plan, people).product
    >>> [table.counts.sum(axis=1).tolist() for table in product.tables]
    [[3, 2], [3, 2]]
    """

    key: ClassVar[str] = "products"
    counts_cells: ClassVar[bool] = True
    noise_fields: ClassVar[tuple[str, ...]] = (*Published.noise_fields, "one_by_one_l2")
    compared_fields: ClassVar[tuple[str, ...]] = RESIDUAL_FIELDS
    derived_fields: ClassVar[tuple[str, ...]] = (
        *Published.derived_fields,
        *("one_by_one_l2", "saved_by_joint_sensitivity", "decomposable", "whole_numbers"),
    )

    request: "TablesRequest"
    mechanism: ResidualMechanism = field(repr=False)
    noisy: NDArray[np.int64] = field(repr=False)
    tables: tuple[ProductTable, ...]
    one_by_one_l2: float | None = None

    @property
    def decomposable(self) -> bool:
        """Whether one population is certain to have all tables and exact totals: a junction tree joins them."""
        space = self.mechanism.space
        views = [*space.views, *(total.view for total in space.dataspace.published)]
        return junction_order(maximal(views)) is not None

    def __repr__(self) -> str:
        return f"PublishedProduct({', '.join(table.name for table in self.tables)})"

    def recalibrated(self, request: "Request", scope: Scope) -> Mechanism:
        """Return the noise of its residuals, placed anew."""
        return request.calibrate(request.space(scope))

    def recheck(self, check: ResultCheck, mechanism: Mechanism) -> "PublishedProduct":
        """Compare estimates, errors and whole numbers; return the tables as they are computed again."""
        from semidp.statistics.tables.recheck import recheck_product

        return recheck_product(self, check, mechanism)

    def fitted_cells(self, request: "Request", scope: Scope) -> int:
        """Return how many cells the tables have."""
        return sum(table.schema.size for table in self.tables)

    def table(self, name: str) -> ProductTable:
        """Return a table by its name."""
        for table in self.tables:
            if table.name == name:
                return table
        raise InputError(f"there is no table {name!r}; there are {', '.join(table.name for table in self.tables)}")

    def estimate(self, weights: Mapping[str, ArrayLike]) -> tuple[float, float]:
        """Return a weighted sum of cells, across tables by their names, and its exact standard error."""
        places = {table.name: number for number, table in enumerate(self.tables)}
        given = {places[self.table(name).name]: np.asarray(w, dtype=np.float64) for name, w in weights.items()}
        error = self.mechanism.combination_error(given)
        return sum(float((self.tables[number].estimate * w).sum()) for number, w in given.items()), error

    def title(self) -> str:
        """Name the tables, or their number where they are many."""
        return product_words.title(self)

    def noisy_lines(self) -> list[str]:
        """Say how many cells each table has."""
        return product_words.noisy_lines(self)

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return the errors of each table, for a terminal."""
        return product_words.summary_lines(self)

    def sections(self, form: Form | None = None) -> list[Section]:
        """Return two sections of the report: the errors, and how the tables fit together."""
        return product_words.sections(self, form)

    def details(self) -> Details:
        """Say how they were measured."""
        return product_words.details(self)

    def file_words(self, form: Form | None = None) -> list[tuple[str, str]]:
        """Say what their files hold."""
        return product_words.file_words(self, form)

    def named(self) -> dict[str, Framed]:
        """Return each table under its name."""
        return {table.name: table for table in self.tables}

    def by_features(self) -> dict[tuple[str, ...], Framed]:
        """Return each table by its features."""
        return {table.schema.names: table for table in self.tables}

    @property
    def fixed(self) -> bool:
        """Whether exact totals fix every table."""
        return self.noise.absent

    def warnings(self) -> list[str]:
        """Name the tables that have no whole numbers with all totals."""
        return product_words.warnings(self)

    def cautions(self) -> list[str]:
        """Name tables in many of whose cells noise dominates."""
        titles = [words.table_title(table) for table in self.tables]
        return cautions(every_error(self.tables), titles)

    def files(self, form: Form | None = None) -> dict[str, Columns]:
        """Return a file for each table, and the measured residuals."""
        return named_files(
            {
                **{table.name: table.columns() for table in self.tables},
                MEASUREMENTS: residual_columns(self.mechanism, self.noisy),
            },
            form,
        )

    def to_json(self) -> dict[str, Any]:
        """Return everything but the cells and the measurements, as plain values."""
        return {
            **super().to_json(),
            **residuals_json(self.mechanism),
            "one_by_one_l2": self.one_by_one_l2,
            "decomposable": self.decomposable,
            "whole_numbers": {
                "loss": sum(table.fitted.loss for table in self.tables),
                "real_valued_bound": sum(table.fitted.bound for table in self.tables),
            },
            "tables": [table.to_json() for table in self.tables],
        }

    @classmethod
    def from_json(
        cls, entry: Mapping[str, Any], request: "TablesRequest", scope: Scope, files: StoredFiles
    ) -> "PublishedProduct":
        """Read what `to_json` and `files` wrote."""
        space = request.residual_space(scope)
        weights = [float(table.weight) for table in request.tables]
        mechanism = residuals_from_json(entry, space, Workload.of(space, weights, request.objective))
        noisy = read_residuals(files, MEASUREMENTS, space)
        alone = entry.get("one_by_one_l2")
        if alone is not None and not (isinstance(alone, (int, float)) and alone >= 0):
            raise ValueError("a distance is a number of at least 0")
        tables = [
            ProductTable.read(files, table.name, space.schema.restrict(table.features), Fitted(**part["fit"]))
            for part, table in zip(entry["tables"], request.tables, strict=True)
        ]
        return cls(
            request=request,
            mechanism=mechanism,
            noisy=noisy,
            tables=tuple(tables),
            one_by_one_l2=alone,
            **read_back(entry, scope),
        )
