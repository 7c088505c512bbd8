"""Separate parts, steps of a release: what is done before the parts, for each part, and after them.

Every table is measured at the cut and above first. Below, each part has work of its own, in
`separate_work`. Noise is calibrated to the whole product, so that the guarantee is that of one
measurement of all residuals, whoever draws them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.branch_noise import BranchNoise, mechanism_above
from semidp.promise.mechanisms.residual_noise import ResidualMechanism
from semidp.promise.noise.randomness import Randomness
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.counts import Table
from semidp.promise.schema.margins import View
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.branches import Cut
from semidp.publish.results.published_table import FitKind
from semidp.publish.sources.reader import Reader
from semidp.publish.statistics.parts import STATE, Part, part_path
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.protocol.results import mechanism_fields
from semidp.publish.statistics.tables.by_parts.part_measurement import (
    counts_at_cut,
    read_measurement,
    refuse_overflow,
    split_residuals,
    stored_measurement,
)
from semidp.publish.statistics.tables.by_parts.separate_fits import CutFit, circles_met
from semidp.publish.statistics.tables.by_parts.separate_published import (
    SeparateTables,
    fitted_requests,
    fitted_views,
    overview_names,
)
from semidp.publish.statistics.tables.by_parts.separate_work import SeparateWork
from semidp.publish.statistics.tables.by_parts.stored_fits import read_fits, store_fits
from semidp.publish.statistics.tables.fitting import exact_totals, fitted_tables
from semidp.publish.statistics.tables.request import TablesRequest


class SeparateSteps:
    """Steps of a release by parts for a request whose parts are estimated separately.

    Parameters
    ----------
    request, mechanism
        What is asked for, and its noise: that of the whole, at the cut, above and below.
    cut
        Where tables are taken apart.
    names
        Its tables at the cut, by what their files are called.
    expected
        The confidential tables at the cut.
    values
        The residuals of those, which are measured first.
    """

    def __init__(
        self,
        request: TablesRequest,
        mechanism: ResidualMechanism,
        cut: Cut,
        names: Sequence[tuple[str, View]],
        expected: Mapping[View, Table],
        values: NDArray[np.int64],
    ) -> None:
        self.request = request
        self.mechanism = mechanism
        self.cut = cut
        self.names = names
        self.expected = expected
        self.values = values
        self._result: SeparateTables | None = None
        self._fit: CutFit | None = None

    @property
    def schema(self) -> Schema:
        """The features of a record."""
        return self.mechanism.space.schema

    @property
    def result(self) -> SeparateTables:
        """Result as far as it is known."""
        assert self._result is not None, "asked for after the cut was measured"
        return self._result

    @property
    def stems(self) -> list[str]:
        """Names of its files at the cut, without their endings."""
        return [name for name, _ in self.names]

    def foreseen(self) -> Iterator[str]:
        """Name the tables for which whole numbers are not promised, because their totals are not
        decomposable (docs/products.md).
        """
        exact = [total.view for total in exact_totals(self.mechanism.space)]
        circles = circles_met(
            self.schema.grid, fitted_views(self.request, self.schema), exact, self.cut
        )
        for table in fitted_requests(self.request):
            if self.schema.view(table.features) in circles:
                yield (
                    f"The totals of the table {table.name!r}, exact ones and those that other"
                    " tables fix, hang together in a circle, so that no whole numbers may have all"
                    " of them: then other tables follow from it, or it misses some."
                )

    def add_noise(self, randomness: Randomness) -> NDArray[np.int64]:
        """Add the noise to the residuals at the cut and above."""
        noise = mechanism_above(self.mechanism, self.cut)
        return self.values + noise.noise_by_residual(randomness.part(self.request.name))

    def begin(self, noisy: NDArray[np.int64], private: bool) -> SeparateTables:
        """Compute the estimates at the cut. The counts follow when the parts are done."""
        above = mechanism_above(self.mechanism, self.cut)
        if noisy.shape != above.space.shape or noisy.dtype != np.int64:
            raise ValueError("the measurements are not those of the plan")
        unfitted = [FitKind.none] * len(self.names)
        self._result = SeparateTables(
            request=self.request,
            residuals=self.mechanism,
            cut=self.cut,
            noisy=noisy,
            overview=fitted_tables(above, above.publish(noisy), self.stems, unfitted, silent),
            # what it costs is known when all is done
            **mechanism_fields(self.request.name, self.mechanism, private, 0.0),
        )
        return self._result

    @property
    def is_fitted_jointly(self) -> bool:
        """Whether all parts are measured before any is fitted."""
        return self.result.is_fitted_jointly

    def settle(self, number: int, work: Path, progress: Progress) -> None:
        """Settle the whole numbers at the cut that the parts need, or fit all parts together from
        their measurements.

        A search with a time limit may end elsewhere when a run is resumed. So a fit of all parts is
        stored, and all parts of a release are of the same one.

        Parameters
        ----------
        number
            Which request of the plan it is.
        work
            The folder of the unfinished release.
        progress
            Told what is going on.
        """
        if not self.is_fitted_jointly:
            self._fit = self.result.settle_cut(progress)
            return
        stored = work / STATE / f"fit-{number}.npz"
        try:
            fits = read_fits(stored)
        except FileNotFoundError:
            estimates = self.result.estimates_below(partial(self._stored_part, work))
            fits = self.result.fitted_whole(estimates, progress)
            store_fits(stored, fits)
        self._fit = CutFit.in_one_piece(fits, self.cut)

    def _stored_part(
        self, work: Path, node: int, noise: BranchNoise
    ) -> dict[View, NDArray[np.int64]]:
        """Read the stored measurement below one node."""
        file = stored_measurement(work, self.request, part_path(self.schema, self.cut, node))
        return split_residuals(noise.space, read_measurement(file, noise.space))

    def part_work(self, node: int) -> SeparateWork:
        """Return the work of one part. Until fits are settled, a part is only measured."""
        rows = self.result.rows(node)
        views = [self.schema.view(row.asked.features) for row in rows]
        asked = [row.asked for row in rows]
        expected = counts_at_cut(asked, self.schema, self.cut, self.expected, node)
        how = None if self._fit is None else self._fit.part(self.schema.grid, self.cut, node, views)
        return SeparateWork(self.request, tuple(rows), expected, self.result.part_noise(node), how)

    def build_result(self, parts: Sequence[Part], work: Path, progress: Progress) -> SeparateTables:
        """Return what is published, when all parts are done."""
        assert self._fit is not None, "published after the cut was fitted"
        result = self.result
        fits = result.overview_fits(self._fit, parts, work, progress)
        overview = []
        for table, (counts, how) in zip(result.overview, fits, strict=True):
            overview.append(replace(table, counts=counts.reshape(table.schema.shape), fitted=how))
        done = replace(result, overview=tuple(overview), parts=tuple(parts))
        below = [table for part in parts for table in part.tables]
        return replace(done, noise=replace(done.noise, expected_l2=done.expected_l2(below)))


def prepare_separate_steps(
    request: TablesRequest,
    mechanism: ResidualMechanism,
    cut: Cut,
    scope: Scope,
    requests: Sequence[Request],
    reader: Reader,
) -> SeparateSteps:
    """Read the tables of a request at the cut; refuse numbers now that a part would refuse after
    the charge.

    Parameters
    ----------
    request, mechanism
        What is asked for, and its noise.
    cut, scope
        Where tables are taken apart, and what is public.
    requests
        Every request of the plan: no two files may have one name.
    reader
        Reads the records.
    """
    space = mechanism.space
    refuse_overflow(space, scope.dataspace.n)
    above = mechanism_above(mechanism, cut).space
    tables = reader.tables(space.schema.list_view_names(view) for view in above.views)
    expected = dict(zip(above.views, tables, strict=True))
    names = overview_names(requests, space.schema, cut)[request.name]
    return SeparateSteps(request, mechanism, cut, names, expected, above.measure(tables))
