"""What a release publishes for each request: a table, a statistic by groups, a regression.

Each is a frozen value that knows its files and its JSON form, and can be read back from them. Everything here may be
published: it is a measurement, or follows from measurements and public values.
"""

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from semidp.engines import Outcome
from semidp.engines.columns import Labels
from semidp.exact import plain
from semidp.fit import fit_table
from semidp.grouped import (
    Comparison,
    Estimates,
    GroupQuantiles,
    GroupSums,
    Intervals,
    LinearFit,
    LogisticFit,
    most_rank_error,
)
from semidp.guarantees import Guarantee
from semidp.mechanisms import (
    CLAIMS,
    LaplaceMechanism,
    Measurement,
    Mechanism,
    NoNoise,
    ResidualMechanism,
    interval_factor,
)
from semidp.plots import estimates_plot, heatmap
from semidp.progress import Progress
from semidp.queries import ProductSpace, RankSpace, product_space
from semidp.release.cells import Columns, Form, StoredFiles, csv_bytes, named_files
from semidp.release.confidence import columns_of, read_intervals, stated
from semidp.release.frames import Framed, Sheet
from semidp.release.scope import Scope
from semidp.spaces import Margin
from semidp.tables import Schema, Table
from semidp.tradeoff import ZCDP, Gaussian, Tradeoff, approximate, tradeoff_from_json

if TYPE_CHECKING:
    from semidp.release.requests import GroupRequest, QuantileRequest, RegressionRequest


INTERVALS_BELOW = 10**6
"""Tables of so many cells and more are written without the ends of intervals."""


class FitKind(StrEnum):
    """What is published: whole numbers that add up, real ones that do, or the measurement itself.

    >>> FitKind("real")
    <FitKind.real: 'real'>
    """

    integer = "integer"
    real = "real"
    none = "none"


@dataclass(frozen=True)
class Noise:
    """How something was measured: the mechanism, its scale, what it claims, and the loss it was expected to cost.

    `expected_l2` is the root of the expected squared distance between the measurement and the truth; `naive_l2` is
    the same for ordinary differential privacy pushed to the same guarantee by group privacy.
    """

    mechanism: str
    scale: float
    claim: str
    expected_l2: float
    naive_l2: float | None

    def __post_init__(self) -> None:
        numbers = (self.scale, self.expected_l2, 0.0 if self.naive_l2 is None else self.naive_l2)
        if not isinstance(self.mechanism, str) or self.claim not in tuple(CLAIMS) or not all(map(_is_size, numbers)):
            raise ValueError("noise has the name of a mechanism, a claim, and numbers of at least 0")

    @property
    def absent(self) -> bool:
        """Whether the exact totals fix everything, so that no noise was needed."""
        return self.mechanism == NoNoise.name


@dataclass(frozen=True, eq=False, kw_only=True)
class Published:
    """What all published results share.

    Parameters
    ----------
    name
        What it is called, and its files.
    noise
        How it was measured.
    guarantee
        What its measurement guarantees.
    advertised
        What the same noise would be said to give for one record if the exact totals were forgotten.
    private
        Whether its randomness was secure.
    """

    key: ClassVar[str]

    name: str
    noise: Noise
    guarantee: Guarantee
    advertised: Tradeoff | None
    private: bool

    def files(self, form: Form | None = None) -> dict[str, bytes | Columns]:
        """Return the files that hold it; cells and measurements in this form, or in what their number suggests."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """Return everything that is not in the files, as plain values."""
        return {
            "name": self.name,
            "noise": asdict(self.noise),
            "guarantee": self.guarantee.tradeoff.to_json(),
            "advertised": self.advertised.to_json() if self.advertised else None,
            "private": self.private,
        }


def measured_by(name: str, mechanism: Mechanism, private: bool) -> dict[str, Any]:
    """The fields that all results take from a mechanism."""
    noise = Noise(
        mechanism=NoNoise.name if mechanism.space.is_zero else mechanism.name,
        scale=mechanism.scale,
        claim=mechanism.claim,
        expected_l2=mechanism.expected_l2,
        naive_l2=None if mechanism.space.is_zero else mechanism.naive_l2,
    )
    return {
        "name": name,
        "noise": noise,
        "guarantee": mechanism.guarantee,
        "advertised": advertised(mechanism),
        "private": private,
    }


def read_back(entry: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
    """The fields that all results have in JSON."""
    if not isinstance(entry["private"], bool):
        raise ValueError("a result is private or not")
    return {
        "name": entry["name"],
        "noise": Noise(**entry["noise"]),
        "guarantee": Guarantee(scope.dataspace, scope.adjacency, tradeoff_from_json(entry["guarantee"])),
        "advertised": tradeoff_from_json(entry["advertised"]) if entry["advertised"] else None,
        "private": entry["private"],
    }


def advertised(mechanism: Mechanism) -> Tradeoff | None:
    """Return what the same noise would be said to give for one record if the exact totals were forgotten.

    The noise that hides a move of squared length Δ2² at mu hides one record, of squared length 2, at ``mu √(2/Δ2²)``;
    Laplace noise at epsilon and Δ1 hides one record at ``2 epsilon/Δ1``; noise on residuals at their costs for one.
    """
    space, tradeoff = mechanism.space, mechanism.tradeoff
    if space.is_zero:
        return None
    if isinstance(mechanism, ResidualMechanism):
        cost = mechanism.forgotten
        return ZCDP(cost / 2) if mechanism.law == "discrete" else Gaussian(cost)
    share = Fraction(space.naive.l2_squared, space.l2_squared)
    if isinstance(tradeoff, ZCDP):
        return ZCDP(tradeoff.rho * share)
    if isinstance(tradeoff, Gaussian):
        return Gaussian(tradeoff.mu_squared * share)
    epsilon = tradeoff.implied_epsilon()
    if isinstance(mechanism, LaplaceMechanism) and epsilon is not None:
        return approximate(epsilon * Fraction(space.naive.l1, space.l1))
    return None


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
        if not texts or not isinstance(self.optimal, bool) or not all(map(_is_size, map(abs, (self.loss, self.bound)))):
            raise ValueError("a fit has a kind, a method, two distances, whether it is optimal, and a note")


class CellTable(Framed):
    """A published table, however it was measured: counts, their estimates and standard errors, a cell each."""

    schema: Schema
    counts: NDArray[Any]
    standard_errors: NDArray[np.float64]

    if TYPE_CHECKING:  # a field of one kind of table, derived in the other

        @property
        def estimate(self) -> NDArray[np.float64]:
            """The unbiased estimate, a real number a cell."""

    @property
    def reach(self) -> float:
        """How many standard errors to each side the 95% interval of an estimate has."""
        raise NotImplementedError

    def keeps(self, scope: Scope) -> bool:
        """Whether the published whole numbers, none of them negative, have every exact total."""
        if self.counts.dtype.kind != "i":  # no table of whole numbers was found, and the note says so
            return True
        public = scope.dataspace.over(self.schema.names)
        return bool(self.counts.min() >= 0) and public.contains(Table(self.schema, self.counts))

    def columns(self) -> Columns:
        """Return the published counts and estimates: a row a cell."""
        return _cells_of(self.schema, self.counts, self.estimate, self.standard_errors, self.reach)

    @property
    def level_columns(self) -> int:
        """How many columns of the file hold levels."""
        return len(self.schema.names)

    def plot(self, axes: Any = None) -> Any:
        """Draw the counts as shades, on matplotlib axes where given; return the figure."""
        return heatmap(self.schema, self.counts, axes)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PublishedTable(CellTable, Published):
    """One published table.

    Parameters
    ----------
    schema
        Its features and levels.
    counts
        What is published: whole numbers unless the plan asked for real ones.
    noisy, projected
        The measurement as drawn, and with the invariants put back: the unbiased estimate.
    standard_errors
        Of the estimate, cell by cell, from the noise alone. They do not belong to the fitted counts.
    fitted
        How the counts were made from the measurement.
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

    schema: Schema
    counts: NDArray[Any] = field(repr=False)
    noisy: NDArray[Any] = field(repr=False)
    projected: NDArray[np.float64] = field(repr=False)
    standard_errors: NDArray[np.float64] = field(repr=False)
    fitted: Fitted
    residuals: ResidualMechanism | None = field(default=None, repr=False)

    @property
    def estimate(self) -> NDArray[np.float64]:
        """The unbiased estimate, a real number a cell."""
        return self.projected

    @property
    def reach(self) -> float:
        """How many standard errors to each side the 95% interval of an estimate has."""
        return interval_factor(self.noise.mechanism)

    def __repr__(self) -> str:
        what = f"{' × '.join(self.schema.names)}, {self.schema.size:,} cells"
        return f"PublishedTable({self.name!r}: {what}, {self.noise.mechanism})"

    def files(self, form: Form | None = None) -> dict[str, bytes | Columns]:
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
        assert scope.dataspace.schema is not None
        schema = scope.dataspace.schema.restrict(entry["features"])
        published, measurements = table_stems(entry["name"])
        cells = read_cells(files, published, schema, interval_factor(entry["noise"]["mechanism"]))
        residuals = None
        if entry["noise"]["mechanism"] == ResidualMechanism.name:
            space = product_space(scope.dataspace, scope.adjacency, [entry["features"]])
            residuals = residuals_from_json(entry, space)
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
            projected=estimate.astype(float),
            standard_errors=cells["standard_error"].astype(float),
            fitted=Fitted(**entry["fit"]),
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
    assert public.schema is not None
    residuals = mechanism if isinstance(mechanism, ResidualMechanism) else None
    measure, estimate = measured.noisy, measured.projected
    if residuals is not None:
        (estimate,) = residuals.space.estimates(measured.projected)
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
        projected=estimate,
        standard_errors=mechanism.standard_errors() if residuals is None else residuals.table_errors(0),
        fitted=how,
        residuals=residuals,
        **measured_by(name, mechanism, measured.private),
    )


# --- groups ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PublishedGroups(Published):
    """One published statistic of an outcome by groups.

    Parameters
    ----------
    request
        What was asked for: statistic, outcome, groups.
    estimates
        The statistic of each set of groups, with exact counts and the standard errors of the noise.
    comparisons
        Whether the means of each set differ by more than sampling and noise explain.
    columns
        The features of each set of groups; a nested one with its whole path.
    noisy
        The noisy sums as drawn, in steps of the grid above the lower bound, set after set.
    intervals, differences
        For each set the intervals of its estimates, and of their differences where asked for: of the noise alone, and
        for the population. None in a release of an earlier version.

    Examples
    --------
    >>> import semidp
    >>> passed = semidp.GroupRequest("proportion", semidp.Outcome("passed", 0, 1, 1), [["ward"]], semidp.Budget.gdp(1))
    >>> plan = semidp.Plan(groups=[passed], invariants=["ward"])
    >>> release = semidp.run(plan, {"ward": ["a", "a", "b"], "passed": [1, 0, 1]})
    >>> release.groups[0].estimates[0].counts.tolist()  # exact; the proportions are not
    [2, 1]
    """

    key: ClassVar[str] = "groups"

    request: "GroupRequest"
    estimates: tuple[Estimates, ...]
    comparisons: tuple[Comparison, ...]
    columns: tuple[tuple[str, ...], ...]
    noisy: NDArray[np.int64] = field(repr=False)
    intervals: tuple[tuple[Intervals, ...], ...] = ()
    differences: tuple[tuple[Intervals, ...], ...] = ()

    @property
    def outcome(self) -> Outcome:
        """The outcome with its bounds and grid."""
        return self.request.outcome

    @property
    def label_columns(self) -> tuple[int, ...]:
        """How many columns of each file hold levels: those of a group, and of two where they are compared."""
        own = [len(names) for names in self.columns]
        return (*own, *(2 * names for names in own if self.differences))

    def sheets(self) -> tuple[Sheet, ...]:
        """Return each set of groups for data frames, called after its file, and their differences where asked for."""
        return tuple(
            Sheet(file.removesuffix(".csv"), content, own)
            for (file, content), own in zip(self.files().items(), self.label_columns, strict=True)
            if isinstance(content, bytes)
        )

    def plot(self, axes: Any = None, by: int = 0) -> Any:
        """Draw the estimates of one set of groups with two standard errors to each side; return the figure."""
        part = self.estimates[by]
        held = np.isfinite(part.values)
        labels = [" · ".join(levels) for levels, kept in zip(part.groups, held, strict=True) if kept]
        what = f"{self.request.statistic} of {self.outcome.column}"
        bounds = None if self.request.statistic == "sum" else (float(self.outcome.lower), float(self.outcome.upper))
        values, errors = part.values[held].tolist(), part.standard_errors[held].tolist()
        return estimates_plot(labels, values, errors, what, bounds, axes)

    def __repr__(self) -> str:
        sets = "; ".join(" × ".join(names) for names in self.columns)
        return f"PublishedGroups({self.name!r}: by {sets}, {self.noise.mechanism})"

    def _repr_html_(self) -> str:
        return "".join(part._repr_html_() for part in self.sheets())

    def files(self, form: Form | None = None) -> dict[str, bytes | Columns]:
        """Return a CSV file for each set: levels, exact count, estimate, standard error, intervals, noisy steps."""
        found: dict[str, bytes | Columns] = {}
        start = 0
        several = zip(self.request.files, self.columns, self.estimates, self.intervals or repeat(()), strict=False)
        for file, names, part, intervals in several:
            steps = self.noisy[start : start + len(part.groups)].tolist()
            ends = columns_of(intervals)
            rows = (
                [*levels, count, *map(_cell, (*numbers, *limits)), step]
                for (levels, count, *numbers), step, *limits in zip(part.rows(), steps, *ends.values(), strict=True)
            )
            header = [*names, "count", str(self.request.statistic), "standard_error", *ends, "noisy_steps"]
            found[file], start = csv_bytes(header, rows), start + len(part.groups)
        others = self.request.files[len(self.estimates) :]
        for file, names, intervals in zip(others, self.columns, self.differences, strict=False):
            ends = columns_of(intervals)
            header = [*names, *(f"other_{name}" for name in names), "difference", *ends]
            limits = zip(intervals[0].names, intervals[0].values, *ends.values(), strict=True)
            found[file] = csv_bytes(header, ([*levels, *map(_cell, numbers)] for levels, *numbers in limits))
        return found

    def to_json(self) -> dict[str, Any]:
        """Return everything but the estimates, which are in the CSV files, as plain values."""
        return {
            **super().to_json(),
            "files": list(self.request.files),
            "unit": float(self.outcome.width),
            "comparisons": [{**asdict(comparison), "p_value": comparison.p_value} for comparison in self.comparisons],
            **({"intervals": stated(self.intervals[0])} if self.intervals else {}),
        }

    @classmethod
    def from_json(
        cls, entry: Mapping[str, Any], request: "GroupRequest", scope: Scope, files: Mapping[str, bytes]
    ) -> "PublishedGroups":
        """Read what `to_json` and `files` wrote."""
        told, level = entry.get("intervals", ()), request.confidence.level
        sets, others = request.files[: len(request.by)], request.files[len(request.by) :]
        parts = [_read_groups(files[file], 2 * len(told)) for file in sets]
        gaps = [_read_numbers(files[file], 1 + 2 * len(told)) for file in others]
        return cls(
            request=request,
            estimates=tuple(_with_rounding(estimates, request) for _, estimates, _, _ in parts),
            columns=tuple(names for names, _, _, _ in parts),
            comparisons=tuple(
                Comparison(c["statistic"], c["degrees"], c["pooled"], c.get("sampling_sd"), c.get("widened"))
                for c in entry["comparisons"]
            ),
            noisy=np.concatenate([steps for _, _, steps, _ in parts]),
            intervals=tuple(read_intervals(told, one.groups, one.values, ends, level) for _, one, _, ends in parts)
            if told
            else (),
            differences=tuple(
                read_intervals(told, names, numbers[:, 0], numbers[:, 1:], level) for names, numbers in gaps
            ),
            **read_back(entry, scope),
        )


def published_groups(request: "GroupRequest", found: GroupSums) -> PublishedGroups:
    """Return sums, or means and proportions over exact counts, with intervals."""
    total = request.statistic == "sum"
    statistic, wanted = found.sums if total else found.means, request.confidence
    every = found.sum_intervals if total else found.mean_intervals
    return PublishedGroups(
        request=request,
        estimates=tuple(_with_rounding(statistic(block), request) for block in request.by),
        comparisons=tuple(_comparison(found, number) for number in range(len(request.by))),
        columns=tuple(map(found.columns, request.by)),
        noisy=np.asarray(found.measurement.noisy, dtype=np.int64),
        intervals=tuple(_both(every, found, block, request) for block in request.by),
        differences=tuple(_both(found.difference_intervals, found, block, request) for block in request.by)
        if wanted.differences
        else (),
        **measured_by(request.name, found.mechanism, found.private),
    )


def _both(intervals: Any, found: GroupSums, block: Margin, request: "GroupRequest") -> tuple[Intervals, ...]:
    """Return the intervals of the noise alone, and those for the population where asked for."""
    wanted = request.confidence
    spreads = [None, found.widest_sd(block)] if wanted.sampling else [None]
    return tuple(
        intervals(block, level=wanted.level, sampling_sd=spread, simultaneous=wanted.simultaneous) for spread in spreads
    )


def _with_rounding(estimates: Estimates, request: "GroupRequest") -> Estimates:
    """Say by how much the grid can have moved each estimate: zeros and ones lie on it."""
    half = 0.0 if request.statistic == "proportion" else float(request.outcome.width) / 2
    each = estimates.counts if request.statistic == "sum" else np.ones(len(estimates.groups))
    return replace(estimates, rounding=np.asarray(half * each, dtype=np.float64))


def _comparison(found: GroupSums, number: int) -> Comparison:
    """Compare the means of one set, with the largest spread that they allow; nothing where there is no record.

    Readers ask about the population that the records come from: without sampling any two groups differ.
    """
    block = found.blocks[number]
    compared = found.compare(block, sampling_sd=found.widest_sd(block))
    return compared if math.isfinite(compared.pooled) else Comparison(0.0, 0, 0.0)


# --- regressions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PublishedRegression(Framed, Published):
    """One published regression.

    Parameters
    ----------
    request
        What was asked for: outcome, factors, model.
    terms, coefficients, standard_errors
        The coefficients with the standard errors of the noise alone.
    noisy
        What was measured as drawn, in steps of the grid above the lower bound.
    query
        What was measured: sums by group, or combinations of the columns. None where it was X'y itself, times the
        design's multiplier, as in releases of earlier versions.
    intervals
        Those of the noise alone, and those for the population where asked for.

    Examples
    --------
    >>> import semidp
    >>> request = semidp.RegressionRequest(semidp.Outcome("days", 0, 10, 10), ["arm"], semidp.Budget.gdp(1))
    >>> plan = semidp.Plan(regressions=[request], invariants=["arm"])
    >>> release = semidp.run(plan, {"arm": ["a", "a", "b"], "days": [7, 4, 2]})
    >>> release.regressions[0].terms
    ('intercept', 'arm=b')
    """

    key: ClassVar[str] = "regressions"

    request: "RegressionRequest"
    terms: tuple[str, ...]
    coefficients: NDArray[np.float64] = field(repr=False)
    standard_errors: NDArray[np.float64] = field(repr=False)
    noisy: NDArray[np.int64] = field(repr=False)
    query: Mapping[str, Any] | None = None
    intervals: tuple[Intervals, ...] = ()

    def rows(self) -> Iterator[tuple[str, float, float]]:
        """Yield each term with its coefficient and standard error."""
        yield from zip(self.terms, self.coefficients.tolist(), self.standard_errors.tolist(), strict=True)

    def files(self, form: Form | None = None) -> dict[str, bytes | Columns]:
        """Return the coefficients, a row each, and the measurements."""
        coefficients, measurements = self.request.files
        if self.query is None:
            return {coefficients: self.csv()}
        return {
            coefficients: self.csv(),
            measurements: csv_bytes(["entry", "noisy_steps"], enumerate(self.noisy.tolist())),
        }

    def csv(self) -> bytes:
        """Return the file of the coefficients: a row each."""
        ends = columns_of(self.intervals) if self.query is not None else {"noisy_steps": self.noisy}
        lines = zip(self.rows(), *ends.values(), strict=True)
        rows = ([*row, *map(_cell, more)] for row, *more in lines)
        return csv_bytes(["term", "coefficient", "standard_error", *ends], rows)

    @property
    def level_columns(self) -> int:
        """The terms."""
        return 1

    def plot(self, axes: Any = None) -> Any:
        """Draw the coefficients with two standard errors to each side; return the figure."""
        terms, values, errors = zip(*self.rows(), strict=True)
        return estimates_plot(terms, values, errors, "coefficient", None, axes)

    def __repr__(self) -> str:
        return f"PublishedRegression({self.name!r}: {len(self.terms):,} coefficients, {self.noise.mechanism})"

    def to_json(self) -> dict[str, Any]:
        """Return everything but the numbers in the CSV files, as plain values."""
        if self.query is None:
            return super().to_json()
        return {**super().to_json(), "query": dict(self.query), "intervals": stated(self.intervals)}

    @classmethod
    def from_json(
        cls, entry: Mapping[str, Any], request: "RegressionRequest", scope: Scope, files: Mapping[str, bytes]
    ) -> "PublishedRegression":
        """Read what `to_json` and `files` wrote."""
        told, measured = entry.get("intervals", ()), entry.get("query")
        if measured is not None and not isinstance(measured, Mapping):
            raise ValueError("what was measured is a query")
        names, numbers = _read_numbers(files[request.files[0]], 2 + (2 * len(told) if measured else 1))
        return cls(
            request=request,
            terms=tuple(name for (name,) in names),
            coefficients=numbers[:, 0],
            standard_errors=numbers[:, 1],
            noisy=_last_column(files[request.files[0 if measured is None else 1]]),
            query=measured,
            intervals=read_intervals(told, names, numbers[:, 0], numbers[:, 2:], request.confidence.level),
            **read_back(entry, scope),
        )


def published_regression(request: "RegressionRequest", fit: LinearFit | LogisticFit) -> PublishedRegression:
    """Return coefficients with the standard errors of the noise alone, and intervals."""
    wanted = request.confidence
    level, together = wanted.level, wanted.simultaneous
    if isinstance(fit, LinearFit):
        errors, intervals = fit.standard_errors(), [fit.intervals(level, simultaneous=together)]
        if wanted.sampling:
            intervals.append(fit.intervals(level, residual_sd=fit.widest_sd(), simultaneous=together))
    else:
        errors = fit.standard_errors(sampling=False)
        kinds = (False, True) if wanted.sampling else (False,)
        intervals = [fit.intervals(level, sampling=sampling, simultaneous=together) for sampling in kinds]
    return PublishedRegression(
        request=request,
        terms=fit.names,
        coefficients=fit.coefficients,
        standard_errors=errors,
        noisy=np.asarray(fit.moments.measurement.noisy, dtype=np.int64),
        query=fit.moments.space.query(),
        intervals=tuple(intervals),
        **measured_by(request.name, fit.moments.mechanism, fit.private),
    )


# --- quantiles ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class PublishedQuantiles(Published):
    """Published quantiles of an outcome by groups.

    Parameters
    ----------
    request
        What was asked for: outcome, groups, probabilities.
    groups, columns, counts
        For each set the levels of its groups, what they are levels of, and the exact number of records.
    values
        For each set the quantiles, a row a group.
    intervals
        For each set an interval for each quantile, where asked for.
    noisy
        The steps as chosen, group after group: each quantile, with the two ends of its interval where asked for.
    rank_error
        By how many ranks a choice is off at most, with 95% probability; None where there is no record.

    Examples
    --------
    >>> import semidp
    >>> request = semidp.QuantileRequest(semidp.Outcome("days", 0, 10, 10), [["ward"]], budget=semidp.Budget.gdp(1))
    >>> plan = semidp.Plan(quantiles=[request], invariants=["ward"])
    >>> release = semidp.run(plan, {"ward": ["a", "a", "b"], "days": [7, 4, 2]})
    >>> release.quantiles[0].counts[0].tolist()
    [2, 1]
    """

    key: ClassVar[str] = "quantiles"

    request: "QuantileRequest"
    groups: tuple[tuple[tuple[str, ...], ...], ...]
    columns: tuple[tuple[str, ...], ...]
    counts: tuple[NDArray[np.int64], ...] = field(repr=False)
    values: tuple[NDArray[np.float64], ...] = field(repr=False)
    intervals: tuple[tuple[Intervals, ...], ...]
    noisy: NDArray[np.int64] = field(repr=False)
    rank_error: int | None

    def rows(self, number: int) -> Iterator[tuple[tuple[str, ...], int, list[float]]]:
        """Yield each group of a set with its exact count and its numbers: a quantile, its interval, the next."""
        parts = []
        for k in range(len(self.request.probabilities)):
            parts.append(self.values[number][:, k])
            parts += [end for part in self.intervals[number][k : k + 1] for end in (part.lower, part.upper)]
        for group, count, *numbers in zip(self.groups[number], self.counts[number].tolist(), *parts, strict=True):
            yield group, count, [float(value) for value in numbers]

    @property
    def headings(self) -> list[str]:
        """What the numbers of a row are called: q0.5, q0.5_lower, q0.5_upper."""
        ends = ("", "_lower", "_upper") if self.request.level is not None else ("",)
        return [f"q{plain(q)}{end}" for q in self.request.probabilities for end in ends]

    def sheets(self) -> tuple[Sheet, ...]:
        """Return each set of groups for data frames, called after its file."""
        return tuple(
            Sheet(file.removesuffix(".csv"), content, len(names))
            for (file, content), names in zip(self.files().items(), self.columns, strict=True)
            if isinstance(content, bytes)
        )

    def __repr__(self) -> str:
        sets = "; ".join(" × ".join(names) for names in self.columns)
        return f"PublishedQuantiles({self.name!r}: by {sets}, {self.noise.mechanism})"

    def _repr_html_(self) -> str:
        return "".join(part._repr_html_() for part in self.sheets())

    def files(self, form: Form | None = None) -> dict[str, bytes | Columns]:
        """Return a CSV file for each set: levels, exact count, quantiles with their intervals, chosen steps."""
        found: dict[str, bytes | Columns] = {}
        chosen = len(self.headings)
        steps = self.noisy.reshape(-1, chosen).tolist()
        for number, (file, names) in enumerate(zip(self.request.files, self.columns, strict=True)):
            header = [*names, "count", *self.headings, *(f"steps_{name}" for name in self.headings)]
            mine, steps = steps[: len(self.groups[number])], steps[len(self.groups[number]) :]
            rows = zip(self.rows(number), mine, strict=True)
            lines = ([*group, count, *map(_cell, numbers), *drawn] for (group, count, numbers), drawn in rows)
            found[file] = csv_bytes(header, lines)
        return found

    def to_json(self) -> dict[str, Any]:
        """Return everything but the numbers in the CSV files, as plain values."""
        return {
            **super().to_json(),
            "files": list(self.request.files),
            "unit": float(self.request.outcome.width),
            "rank_error": self.rank_error,
            "about": None if self.request.level is None else str(self.intervals[0][0].about),
        }

    @classmethod
    def from_json(
        cls, entry: Mapping[str, Any], request: "QuantileRequest", scope: Scope, files: Mapping[str, bytes]
    ) -> "PublishedQuantiles":
        """Read what `to_json` and `files` wrote: the chosen steps, from which the rest follows."""
        chosen = len(request.probabilities) * (1 if request.level is None else 3)
        noisy = []
        for file in request.files:
            _, *rows = list(csv.reader(io.StringIO(files[file].decode())))
            noisy += [int(cell) for row in rows for cell in row[len(row) - chosen :]]
        steps, rank_error = np.array(noisy, dtype=np.int64), entry["rank_error"]
        if not (rank_error is None or isinstance(rank_error, int)) or steps.min(initial=0) < 0:
            raise ValueError("quantiles are steps of the grid, with an error in ranks")
        found = cls(**_quantiles(request, scope, steps), rank_error=rank_error, **read_back(entry, scope))
        if found.files() != {file: files[file] for file in request.files}:
            raise ValueError("quantiles follow from their steps")
        return found


def _quantiles(request: "QuantileRequest", scope: Scope, noisy: NDArray[np.int64]) -> dict[str, Any]:
    """Return what follows from the chosen steps."""
    space = request.space(scope)
    chosen = Measurement(noisy, noisy.astype(np.float64), "", "exact", False)
    found = GroupQuantiles(NoNoise(space), chosen)
    assert isinstance(space, RankSpace)
    return {
        "request": request,
        "groups": tuple(found.groups(block) for block in request.by),
        "columns": tuple(found.columns(block) for block in request.by),
        "counts": tuple(counts.ravel() for counts in space.counts),
        "values": tuple(found.values(block) for block in request.by),
        "intervals": tuple(found.intervals(block) if request.level is not None else () for block in request.by),
        "noisy": noisy,
    }


def published_quantiles(request: "QuantileRequest", found: GroupQuantiles, scope: Scope) -> PublishedQuantiles:
    """Return quantiles in units of the outcome, with their intervals."""
    mechanism = found.mechanism
    return PublishedQuantiles(
        **_quantiles(request, scope, found.measurement.noisy),
        rank_error=most_rank_error(mechanism),
        name=request.name,
        noise=Noise(mechanism.name, mechanism.scale, mechanism.claim, mechanism.expected_l2, None),
        guarantee=mechanism.guarantee,
        advertised=None,
        private=found.private,
    )


def _is_size(value: object) -> bool:
    """Whether a value is a number of at least 0, infinity included."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= math.inf


# --- files ----------------------------------------------------------------------------------------------------------


def _cells_of(
    schema: Schema, counts: NDArray[Any], estimate: NDArray[Any], standard_errors: NDArray[Any], reach: float
) -> Columns:
    """Return a table, one row a cell: its count, the estimate and its standard error, the ends of a 95% interval.

    The interval is the estimate's, `reach` standard errors to each side, from the noise alone and never clipped. Tables
    of a million cells and more leave it out.
    """
    columns = {"count": counts, "estimate": estimate, "standard_error": standard_errors}
    if schema.size < INTERVALS_BELOW:
        ends = {"estimate_low": estimate - reach * standard_errors, "estimate_high": estimate + reach * standard_errors}
        columns = {**columns, **ends}
    return Columns.of_cells(schema, columns)


def read_cells(files: StoredFiles, name: str, schema: Schema, reach: float | None = None) -> dict[str, NDArray[Any]]:
    """Return the columns of a table's file, in the shape of the schema; refuse intervals that are off."""
    columns = files.numbers(name, len(schema.names))
    found = {key: column.reshape(schema.shape) for key, column in columns.items()}
    if not all((np.abs(column) < 2.0**63).all() for column in found.values()):  # false of what is not a number, too
        raise ValueError("a cell does not hold a number")
    if reach is not None and "estimate_low" in found:
        middle, spread = found["estimate"], reach * found["standard_error"]
        for end, expected in ((found["estimate_low"], middle - spread), (found["estimate_high"], middle + spread)):
            if not np.allclose(end, expected, rtol=1e-9, atol=1e-9):
                raise ValueError("the intervals are not those of the estimates")
    return found


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


def residuals_from_json(entry: Mapping[str, Any], space: ProductSpace) -> ResidualMechanism:
    """Read what `residuals_json` wrote; refuse residuals that are not those of the space."""
    squares = {space.schema.view(part["features"]): Fraction(part["sigma2"]) for part in entry["residuals"]}
    if set(squares) != set(space.measured):
        raise ValueError("the residuals are not those of the plan")
    return ResidualMechanism(
        space, squares, Fraction(entry["precision"]), entry["law"], entry["saved_by_joint_sensitivity"]
    )


def residual_columns(mechanism: ResidualMechanism, noisy: NDArray[np.int64]) -> Columns:
    """Return the measured residuals, one row an entry."""
    space = mechanism.space
    sizes = [part.stop - part.start for part in space.parts.values()]
    names = [" × ".join(space.schema.named(view)) for view in space.parts]
    return Columns(
        {"residual": Labels(names, codes=np.repeat(np.arange(len(sizes), dtype=np.int32), sizes))},
        {
            "entry": np.concatenate([np.arange(size) for size in sizes] or [np.arange(0)]),
            "scale": np.asarray(space.scales, dtype=np.int64),
            "noisy": np.asarray(noisy, dtype=np.int64),
        },
    )


def read_residuals(files: StoredFiles, name: str, space: ProductSpace) -> NDArray[np.int64]:
    """Read what `residual_columns` wrote; refuse measurements that are not of the space."""
    noisy: NDArray[np.int64] = files.numbers(name, 1)["noisy"]
    if noisy.shape != space.shape or noisy.dtype != np.int64:
        raise ValueError("the measurements are not those of the plan")
    return noisy


def _cell(value: float) -> float | str:
    """Write a number, and nothing for one that does not exist or an end that is open."""
    return float(value) if math.isfinite(value) else ""


def _read_numbers(content: bytes, count: int) -> tuple[tuple[tuple[str, ...], ...], NDArray[np.float64]]:
    """Return the texts of each row, and its last numbers, where an empty cell is none."""
    _, *rows = list(csv.reader(io.StringIO(content.decode())))
    numbers = [[float(cell) if cell else math.nan for cell in row[len(row) - count :]] for row in rows]
    if any(cell and not math.isfinite(float(cell)) for row in rows for cell in row[len(row) - count :]):
        raise ValueError("a cell does not hold a number")
    return tuple(tuple(row[: len(row) - count]) for row in rows), np.array(numbers, dtype=np.float64).reshape(-1, count)


def _read_groups(
    content: bytes, ends: int
) -> tuple[tuple[str, ...], Estimates, NDArray[np.int64], NDArray[np.float64]]:
    header, *rows = list(csv.reader(io.StringIO(content.decode())))
    features = len(header) - 4 - ends
    groups, columns = _read_numbers(content, 4 + ends)
    counts = np.array([int(row[features]) for row in rows], dtype=np.int64)
    estimates = Estimates(groups, counts, columns[:, 1], columns[:, 2])
    return tuple(header[:features]), estimates, _last_column(content), columns[:, 3 : 3 + ends]


def _last_column(content: bytes) -> NDArray[np.int64]:
    """Return the whole numbers of the last column."""
    _, *rows = list(csv.reader(io.StringIO(content.decode())))
    return np.array([int(row[-1]) for row in rows], dtype=np.int64)
