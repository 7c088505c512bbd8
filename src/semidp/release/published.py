"""What a release publishes for each request: a table, a statistic by groups, a regression.

Each is a frozen value that knows its files and its JSON form, and can be read back from them. Everything here may be
published: it is a measurement, or follows from measurements and public values.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from semidp.engines.columns import Labels
from semidp.exact import positive
from semidp.fit import fit_table
from semidp.guarantees import Guarantee
from semidp.mechanisms import (
    CLAIMS,
    LaplaceMechanism,
    Measurement,
    Mechanism,
    NoNoise,
    ResidualMechanism,
)
from semidp.mechanisms.branches import BranchNoise
from semidp.plots import heatmap
from semidp.progress import Progress
from semidp.queries import ProductSpace, QuerySpace, product_space
from semidp.release.cells import TABLE_NUMBERS, Columns, Form, Framed, StoredFiles, named_files
from semidp.release.scope import Scope
from semidp.tables import Schema, Table
from semidp.tradeoff import ZCDP, Gaussian, Tradeoff, approximate, tradeoff_from_json

if TYPE_CHECKING:
    from semidp.release.requests import Request


LAWS = ("discrete", "rounded")
"""The laws of noise on residuals, as release.json names them."""

INTERVALS_BELOW = 10**6
"""Tables of so many cells and more are written without the ends of intervals."""
_DIGITS = 1e6  # to which the ends of intervals are rounded outward


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
        if not isinstance(self.mechanism, str) or self.claim not in tuple(CLAIMS) or not all(map(is_size, numbers)):
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

    def space(self, request: "Request", scope: Scope) -> QuerySpace:
        """Return the query space in which it was measured."""
        return request.space(scope)

    def files(self, form: Form | None = None) -> dict[str, Columns]:
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


def measured_by(name: str, mechanism: Mechanism, private: bool, expected_l2: float | None = None) -> dict[str, Any]:
    """The fields that all results take from a mechanism; its own expected loss unless another is given."""
    noise = Noise(
        mechanism=NoNoise.name if mechanism.space.is_zero else mechanism.name,
        scale=mechanism.scale,
        claim=mechanism.claim,
        expected_l2=mechanism.expected_l2 if expected_l2 is None else expected_l2,
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

    noisy: NDArray[Any] = field(repr=False)
    residuals: ResidualMechanism | None = field(default=None, repr=False)

    @property
    def projected(self) -> NDArray[np.float64]:
        """The unbiased estimate, a real number a cell."""
        return self.estimate

    def __repr__(self) -> str:
        what = f"{' × '.join(self.schema.names)}, {self.schema.size:,} cells"
        return f"PublishedTable({self.name!r}: {what}, {self.noise.mechanism})"

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
        assert scope.dataspace.schema is not None
        schema = scope.dataspace.schema.restrict(entry["features"])
        published, measurements = table_stems(entry["name"])
        cells = read_cells(files, published, schema)
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

    Coarse noise puts much of its probability on the ends themselves, which must not be missed by a rounding error.

    >>> [end.tolist() for end in interval_ends(np.array([2 / 3]), np.array([1 / 3]))]
    [[0.333333], [1.0]]
    """
    return np.floor((estimate - half_widths) * _DIGITS) / _DIGITS, np.ceil((estimate + half_widths) * _DIGITS) / _DIGITS


def is_size(value: object) -> bool:
    """Whether a value is a number of at least 0, infinity included."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= math.inf


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
    if not np.allclose(below, above, rtol=1e-6, atol=3 / _DIGITS) or (below < 0).any():
        raise ValueError("the intervals are not those of the estimates")
    return np.asarray(np.minimum(below, above), dtype=np.float64)


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
    squares = {space.schema.view(part["features"]): positive(part["sigma2"], "σ²") for part in entry["residuals"]}
    if set(squares) != set(space.measured):
        raise ValueError("the residuals are not those of the plan")
    precision, law, saved = entry["precision"], entry["law"], entry["saved_by_joint_sensitivity"]
    if law not in LAWS:
        raise ValueError("the noise of residuals has a law")
    if not is_size(saved) or saved >= 1:
        raise ValueError("what the joint sensitivity saved is a part of the variance")
    return ResidualMechanism(space, squares, positive(precision, "the precision"), law, saved)


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
