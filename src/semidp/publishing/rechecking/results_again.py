"""One result of a release, computed again from its noisy values by the mechanism that its budget gives."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, cast

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from semidp.core.progress import silent
from semidp.mechanisms.base import Measurement, Mechanism, NoNoise
from semidp.mechanisms.gaussian import LatticeGaussianMechanism
from semidp.mechanisms.pure import KNormMechanism
from semidp.mechanisms.residuals import ResidualMechanism
from semidp.mechanisms.selection import AUTO, NAMES
from semidp.output.cells import StoredFiles
from semidp.publishing.parts.cut_fits import CutFit
from semidp.publishing.parts.partitions import (
    PartitionedTables,
    PartTable,
)
from semidp.publishing.rechecking.findings import Findings, close, different_columns
from semidp.publishing.rechecking.parts_again import PartCheck, published_whole, refitted_whole
from semidp.publishing.rechecking.refit import SECONDS, FittedTable, fit_again, intervals_hold, note_fits
from semidp.publishing.release import Release
from semidp.publishing.side_information import CLOSE
from semidp.queries.products import ProductSpace
from semidp.statistics.protocol import Published, Request, measured_by
from semidp.statistics.quantiles.published import PublishedQuantiles
from semidp.statistics.regression.published import PublishedRegression
from semidp.statistics.sums.published import PublishedGroups
from semidp.statistics.tables.fitting import fit_product, totals_of
from semidp.statistics.tables.published import (
    CellTable,
    FitKind,
    Fitted,
    ProductTable,
    PublishedProduct,
    PublishedTable,
)
from semidp.statistics.tables.request import ProductRequest, TableRequest

Floats = NDArray[np.float64]

_Outcome = PublishedGroups | PublishedRegression | PublishedQuantiles
_LOOSE = 1e-4  # relative: what an iteration ends with on another machine


@dataclass(eq=False)
class ResultCheck:
    """One result beside its request, and the mechanism that its budget gives."""

    findings: Findings
    release: Release
    request: Request
    result: Published
    needed: Mechanism

    def wrong(self, said: str) -> None:
        """Note something that this result states."""
        self.findings.wrong.append(f"{self.result.name!r} states {said}")

    def compared(self) -> Published:
        """Compare the numbers of the result; return it as it is computed again, but for how it was fitted."""
        result, mechanism = self.result, self.needed
        before = len(self.findings.wrong)
        self._noise()
        said = self.findings.guarantee(result.guarantee.tradeoff, mechanism.tradeoff)
        if said is not None:
            self.wrong(f"{said} than its noise gives")
        if result.noise.mechanism != _noise_name(mechanism):
            return result
        if isinstance(mechanism, ResidualMechanism):
            if not self._residuals(mechanism):
                return result
            mechanism = mechanism if self.findings.current else _stated_residuals(result)
        elif not close(result.noise.scale, mechanism.scale):
            if self.findings.current or result.noise.scale < mechanism.scale:
                if len(self.findings.wrong) == before:
                    self.wrong(f"noise of scale {result.noise.scale:.6g}, and its budget gives {mechanism.scale:.6g}")
                return result
            # An earlier version used more noise, and all else follows from that.
            mechanism = _with_scale(mechanism, result.noise.scale)
        if isinstance(result, PartitionedTables):
            return self._partitioned(result)
        if isinstance(result, (PublishedTable, PublishedProduct)):
            return self._tables(result, mechanism)
        return self._outcome(mechanism)

    def _noise(self) -> None:
        noise, mechanism = self.result.noise, self.needed
        if noise.mechanism != _noise_name(mechanism):
            self.wrong(f"{noise.mechanism} noise, where its totals leave {_noise_name(mechanism)}")
        asked = self.request.mechanism
        kinds = NAMES.get(asked, ())
        if asked != AUTO and not mechanism.space.is_zero and noise.mechanism not in [kind.name for kind in kinds]:
            self.wrong(f"{noise.mechanism} noise, and its plan asks for {asked}")
        if not noise.scale >= mechanism.scale * (1 - CLOSE):
            self.wrong(f"noise of scale {noise.scale:.6g}, and its budget needs {mechanism.scale:.6g}")
        if noise.claim != mechanism.claim:
            self.wrong(f"an {noise.claim} claim, and {mechanism.name} noise makes an {mechanism.claim} one")

    def _residuals(self, needed: ResidualMechanism) -> bool:
        """Compare the noise of each residual with what the budget needs; whether all else can follow from it."""
        stated, current, before = _stated_residuals(self.result), self.findings.current, len(self.findings.wrong)
        squares = [(float(stated.sigma2[view]), float(square)) for view, square in needed.sigma2.items()]
        if any(mine < least * (1 - CLOSE) for mine, least in squares):
            self.wrong("less noise on a residual than its budget needs")
        elif current and not all(close(mine, least) for mine, least in squares):
            self.wrong("more noise on a residual than its budget gives")
        looser = not current and stated.precision < needed.precision
        if stated.law != needed.law or (stated.precision != needed.precision and not looser):
            self.wrong("another guarantee for its residuals than its budget gives")
        return len(self.findings.wrong) == before

    # --- tables

    def _tables(self, result: PublishedTable | PublishedProduct, mechanism: Mechanism) -> Published:
        """Compare estimates, errors and whole numbers of tables that were released whole."""
        plain = _without_fits(self.request)
        again = plain.publish(mechanism, _measurement(result, mechanism), self.release.scope, silent)
        if isinstance(result, PublishedTable):
            assert isinstance(again, PublishedTable)
            if not self.findings.current and isinstance(mechanism, LatticeGaussianMechanism):
                again = _with_earlier_errors(again, result, mechanism)
            measured = "counts" if result.residuals is None else "residuals"
            self._cells(result, again, f"estimates that do not follow from the noisy {measured}", "standard errors")
            self._fixed(result, mechanism)
            measure: NDArray[Any] = result.noisy if result.residuals is None else again.estimate
            self._fit_alone(result, measure)
            return replace(again, counts=result.counts, fitted=result.fitted)
        assert isinstance(again, PublishedProduct)
        for table, found in zip(result.tables, again.tables, strict=True):
            wrong = f"estimates of {table.name} that do not follow from its measurements"
            self._cells(table, found, wrong, f"standard errors of {table.name}")
        self._fit_together(result, [table.estimate for table in again.tables])
        pairs = zip(again.tables, result.tables, strict=True)
        kept = [replace(found, counts=table.counts, fitted=table.fitted) for found, table in pairs]
        return replace(again, tables=tuple(kept))

    def _cells(self, table: CellTable, again: CellTable, estimates: str, errors: str) -> None:
        if not close(table.estimate, again.estimate):
            self.wrong(estimates)
        if not close(table.standard_errors, again.standard_errors):
            self.wrong(f"{errors} that its noise does not have")
        elif not intervals_hold(table, again.half_widths, self.findings.current):
            self.wrong(f"{errors.replace('standard errors', 'intervals')} that its noise does not have")

    def _fixed(self, result: PublishedTable, mechanism: Mechanism) -> None:
        """Compare a measurement with the totals that it has by itself: noise without margins, or none at all."""
        space = self.release.scope.dataspace.over(result.schema.names)
        if mechanism.space.is_zero and not isinstance(mechanism, ResidualMechanism):
            if not np.array_equal(result.noisy, np.rint(mechanism.space.fixed_part())):
                self.wrong("a measurement that is not what its exact totals fix")
        elif isinstance(mechanism, (KNormMechanism, LatticeGaussianMechanism)):
            grid = result.schema.grid
            if not all(np.array_equal(grid.sum(result.noisy, total.view), total.counts) for total in space.published):
                self.wrong(f"a measurement without the exact totals, which {mechanism.name} noise keeps")

    def _fit_alone(self, result: PublishedTable, measure: NDArray[Any]) -> None:
        assert isinstance(self.request, TableRequest)
        kind, again = self.request.fit, None
        if kind is FitKind.none:
            note = "The measurement itself is published."
            again = (result.estimate, Fitted(str(kind), "none", 0.0, 0.0, True, note))
            measure = result.estimate
        elif self.findings.refits:
            again = fit_again(measure, result.schema.names, kind, self.release.scope)
        name = f"{result.name}.{result.columns().form(self.release.form)}"
        table = FittedTable("the table", name, result, measure)
        note_fits(self.findings, result.name, f"{result.key}.fit", [table], None if again is None else [again])

    def _fit_together(self, result: PublishedProduct, estimates: list[Floats]) -> None:
        kinds = [table.fit for table in result.request.tables]
        self._fit_tables("products.tables.fit", result.mechanism.space, result.tables, estimates, kinds)

    def _fit_tables(
        self,
        place: str,
        space: ProductSpace,
        tables: Sequence[ProductTable],
        estimates: list[Floats],
        kinds: list[FitKind],
    ) -> None:
        """Compare tables that were fitted one after the other."""
        fits = None
        if self.findings.refits:
            limit = max(SECONDS / len(estimates), 0.3)
            grid, totals = space.schema.grid, totals_of(space)
            fits = fit_product(grid, space.views, totals, estimates, kinds, silent, time_limit=limit)
        beside = []
        for table, estimate in zip(tables, estimates, strict=True):
            file = f"{table.name}.{table.columns().form(self.release.form)}"
            beside.append(FittedTable(table.name, file, table, estimate))
        note_fits(self.findings, self.result.name, place, beside, fits)

    # --- statistics of outcomes

    def _outcome(self, mechanism: Mechanism) -> Published:
        result = self.result
        assert isinstance(result, _Outcome)
        again = self.request.publish(mechanism, _measurement(result, mechanism), self.release.scope, silent)
        assert isinstance(again, _Outcome)
        if isinstance(again, PublishedGroups) and not self.findings.current and not result.intervals:
            again = replace(again, intervals=(), differences=())
        elif isinstance(again, PublishedRegression) and getattr(result, "query", None) is None:
            if self.findings.current:
                self.wrong("nothing of what was measured for it")
                return result
            if again.request.binary:
                self.findings.earlier(f"{result.name}.csv")
                return result  # an earlier version fitted otherwise
            again = replace(again, query=None, intervals=())
        if mechanism.space.is_zero and not np.array_equal(result.noisy, again.noisy):
            self.wrong("a measurement that is not what its exact totals fix")
        self._columns(again)
        return again

    def _columns(self, again: Published) -> None:
        """Compare the columns of all files of a statistic."""
        stated, found = self.result.files(), again.files()
        sums, loose = "noisy sums", CLOSE
        if isinstance(again, PublishedRegression):
            sums, loose = "noisy values", _LOOSE
        first = {"count", "term", *(label for columns in found.values() for label in columns.labels)}
        for name, columns in found.items():
            for column in different_columns(stated[name], columns, loose):
                if column in first and not isinstance(again, PublishedRegression):
                    self.wrong("groups or counts that its exact totals do not have")
                elif column in ("coefficient", "term") or (column, sums) == ("standard_error", "noisy values"):
                    self.wrong(f"coefficients or standard errors that do not follow from its {sums}")
                elif column in ("mean", "sum", "proportion", "standard_error"):
                    self.wrong(f"estimates or standard errors that do not follow from its {sums}")
                elif not self.findings.current:
                    self.findings.earlier(f"{name} {column}")
                elif isinstance(again, PublishedQuantiles):
                    self.wrong("quantiles that do not follow from its choices")
                else:
                    self.wrong(f"intervals that do not follow from its {sums}")

    # --- parts

    def _partitioned(self, result: PartitionedTables) -> Published:
        """Compare the tables at the cut, then every part with what was measured in it and with the tables above."""
        before = len(self.findings.wrong)
        above = result.above
        estimates = above.space.estimates(above.publish(result.noisy))
        for number, (table, estimate) in enumerate(zip(result.overview, estimates, strict=True)):
            if not close(table.estimate, estimate):
                self.wrong(f"estimates of {table.name} that do not follow from its measurements")
            if not close(table.standard_errors, above.table_errors(number)):
                self.wrong(f"standard errors of {table.name} that its noise does not have")
            elif not intervals_hold(table, _overview_widths(above, number, table), self.findings.current):
                self.wrong(f"intervals of {table.name} that its noise does not have")
        fit = self._cut_fit(result) if self.findings.refits and len(self.findings.wrong) == before else None
        below = self._parts(result, fit)
        if below is not None:
            self._fit_overview(result, fit)
        expected = result.noise.expected_l2
        if below is not None and len(self.findings.wrong) == before:
            expected = result.expected_l2(below)
            if not close(result.noise.expected_l2, expected):
                self.wrong(f"an expected loss of {result.noise.expected_l2:.6g}, and its noise has {expected:.6g}")
        mechanism = self.needed if self.findings.current else result.mechanism
        assert isinstance(mechanism, ResidualMechanism)
        told = measured_by(result.name, mechanism, result.private, expected)
        return replace(result, mechanism=mechanism, **told)

    def _cut_fit(self, result: PartitionedTables) -> CutFit | None:
        """Fit again what the parts are fitted to, or the parts themselves; None where their files cannot be read."""
        partition = self.release.partition
        if not result.together:
            return result.settled(silent)
        if partition is None or partition.place is None:
            return None
        try:
            return refitted_whole(result, partition, SECONDS)
        except (ValueError, KeyError, OSError, IndexError):
            return None  # what is damaged is told when the parts are compared

    def _fit_overview(self, result: PartitionedTables, fit: CutFit | None) -> None:
        """Compare the tables at the cut with those that the cut and the parts give."""
        partition, fits = self.release.partition, None
        if fit is not None and partition is not None and partition.place is not None:
            fits = result.overview_fits(fit, partition.parts, partition.place, silent)
        beside = []
        for table in result.overview:
            file = f"{table.name}.{table.columns().form(self.release.form)}"
            beside.append(FittedTable(table.name, file, table, table.estimate))
        note_fits(self.findings, self.result.name, "partitioned.overview.fit", beside, fits)

    def _parts(self, result: PartitionedTables, fit: CutFit | None) -> list[PartTable] | None:
        """Compare every part; return how its tables came out, or None where a part is not sound."""
        partition = self.release.partition
        if partition is None or partition.place is None:
            self.wrong("parts that are not there")
            return None
        changed = partition.changed()
        if changed is not None:
            self.wrong(f"another {changed} than the folder has")
            return None
        schema = result.mechanism.space.schema
        nodes = result.cut.chain(schema).size(result.cut.depth)
        if len(partition.parts) != nodes:
            self.wrong(f"{len(partition.parts)} parts, and there are {nodes}")
            return None
        below: list[PartTable] = []
        sound = True
        farther: list[str] = []
        if fit is not None and fit.together is not None:
            same, farther = published_whole(self.findings, result, partition, fit)
            fit = fit if same else None
        for node, part in enumerate(partition.parts):
            files = StoredFiles(partition.place / part.folder, tuple(part.files))
            before = len(self.findings.wrong)
            try:
                below += PartCheck(self.findings, result, self.release.form, node, part, files, fit).compared()
            except (ValueError, KeyError, OSError, IndexError, StopIteration):
                self.wrong(f"files that are damaged in {part.folder}")
            sound = sound and len(self.findings.wrong) == before
        if sound:
            self.findings.wrong += farther
        return below if sound and not farther else None


def _with_earlier_errors(
    again: PublishedTable, result: PublishedTable, mechanism: LatticeGaussianMechanism
) -> PublishedTable:
    """Return a table with the errors that earlier versions stated for lattice noise, where it does: an upper bound."""
    if not close(result.noise.expected_l2, mechanism.largest_l2):
        return again
    larger = again.standard_errors * (mechanism.largest_l2 / mechanism.expected_l2)
    return replace(again, standard_errors=larger, noise=replace(again.noise, expected_l2=mechanism.largest_l2))


def _overview_widths(above: ResidualMechanism, number: int, table: CellTable) -> Floats | None:
    """Return the half-widths of the intervals of a table at the cut, where it has intervals."""
    return None if table.half_widths is None else above.table_half_widths(number)


def _stated_residuals(result: Published) -> ResidualMechanism:
    """Return the noise of residuals as a result states it."""
    if isinstance(result, PublishedTable):
        assert result.residuals is not None  # a table whose noise is on residuals says how much
        return result.residuals
    assert isinstance(result, (PublishedProduct, PartitionedTables))
    return result.mechanism


def _noise_name(mechanism: Mechanism) -> str:
    """Return what a release calls the noise of a mechanism."""
    return NoNoise.name if mechanism.space.is_zero else mechanism.name


def _without_fits(request: Request) -> Request:
    """Return a request for the same tables whose estimates are published as they are: fits are compared apart."""
    if isinstance(request, ProductRequest):
        return cast(Request, evolve(request, tables=[evolve(table, fit=FitKind.none) for table in request.tables]))
    assert isinstance(request, TableRequest)
    return cast(Request, evolve(request, fit=FitKind.none))


def _measurement(result: Any, mechanism: Mechanism) -> Measurement:
    """Return what was measured as the mechanism would have returned it."""
    if isinstance(result, PublishedQuantiles):
        estimate = result.noisy.astype(np.float64)
    elif mechanism.space.is_zero and not isinstance(mechanism, ResidualMechanism):
        return mechanism.measure(result.noisy)
    else:
        estimate = mechanism.publish(result.noisy)
    return Measurement(result.noisy, estimate, mechanism.name, mechanism.claim, result.private)


def _with_scale(mechanism: Mechanism, scale: float) -> Mechanism:
    """Return a mechanism whose noise is larger, by its scale: each has one exact parameter, a power of that."""
    share = Fraction(scale) / Fraction(mechanism.scale)
    powers = {"sigma2": 2, "b2": 2, "b": 1, "epsilon": -1, "rate": -1}
    numbers = {name: value for name, value in vars(mechanism).items() if isinstance(value, Fraction)}
    larger: Any = {name: value * share ** powers[name] for name, value in numbers.items()}
    return replace(mechanism, **larger)
