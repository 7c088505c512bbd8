"""Tables whose parts are estimated and fitted one by one: what is done before the parts, in each
part, and after them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from semidp.promise.confidential import Confidential, reveal
from semidp.promise.mechanisms.branch_noise import BranchNoise, mechanism_above
from semidp.promise.mechanisms.residual_noise import ResidualMechanism
from semidp.promise.noise.randomness import Randomness
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.schema import Schema
from semidp.promise.spaces.dataspace import Dataspace
from semidp.publish.results.published_table import FitKind, StoredFit
from semidp.publish.statistics.parts import Part, PartTable, PartTask
from semidp.publish.statistics.tables.asked import TablesAsked, measurements_stem
from semidp.publish.statistics.tables.by_parts.measuring import (
    PartMeasurement,
    TablesAtCut,
    read_stored,
    stored_path,
)
from semidp.publish.statistics.tables.by_parts.part_tables import (
    RowAtCut,
    build_part,
    estimate_part,
    fit_nobody,
)
from semidp.publish.statistics.tables.by_parts.separate import SeparateTables, begin_separate
from semidp.publish.statistics.tables.by_parts.separate_fits import CutFit, PartFit
from semidp.publish.statistics.tables.fitting import fit_product, nearest_whole
from semidp.publish.statistics.tables.residual_files import residual_columns


@dataclass(frozen=True, eq=False, kw_only=True)
class SeparateWork(PartMeasurement):
    """Work of one part for a request: measure it, fit its tables to what is settled at the cut, and
    write both.

    Parameters
    ----------
    request, blocks
        As for a part that is only measured.
    rows
        The tables at the cut, of this part.
    fit
        How its tables are fitted; None while the part is only measured.
    """

    request: TablesAsked
    rows: tuple[RowAtCut, ...] = field(repr=False)
    fit: PartFit | None = field(repr=False)

    def write(self, task: PartTask, attempt: Path) -> list[PartTable]:
        """Write the tables of a part and its measurement; return how the tables came out."""
        (block,) = self.blocks
        noise, asked = block.noise, [row.asked for row in self.rows]
        if isinstance(noise, BranchNoise):
            assert self.fit is not None, "a part that is measured is fitted"
            # Every attempt publishes what the first one stored.
            noisy = read_stored(stored_path(task.work, self.request, task.path))
            estimated = estimate_part(noise, noisy, self.rows)
            estimates = [estimate for estimate, _ in estimated]
            fits = fit_part(block.schema, block.exact, self.rows, self.fit, estimates)
            file = f"{measurements_stem(self.request)}.{task.form}"
            residual_columns(noise, noisy).write(attempt / file)
            tables = build_part(block.schema, asked, noise, estimated, fits)
        else:
            fits = fit_nobody(block.schema, asked)
            tables = build_part(block.schema, asked, None, None, fits)
        for table in tables:
            table.columns().write(attempt / f"{table.name}.{task.form}")
        return [PartTable.from_table(table) for table in tables]


def fit_part(
    schema: Schema,
    exact: Dataspace,
    rows: Sequence[RowAtCut],
    fit: PartFit,
    estimates: list[NDArray[np.float64]],
) -> list[StoredFit]:
    """Fit the tables of one part to what is settled at the cut, and to its exact totals.

    Parameters
    ----------
    schema, exact
        The features of the part's records, and what is published below the cut.
    rows
        What is asked for of each table.
    fit
        The order of the fits, and the totals at the cut.
    estimates
        For each table its estimate in this part.
    """
    fit_kinds = [row.asked.fit for row in rows]
    # A table that was given up binds no other one: they would inherit what it misses.
    for number in fit.unfitted:
        fit_kinds[number] = FitKind.none
    fitted = fit_product(
        schema.grid,
        [schema.view(row.asked.features) for row in rows],
        [*fit.totals, *exact.published_totals],
        estimates,
        fit_kinds,
        silent,
        order=fit.order,
        first=fit.first,
        time_limit=fit.seconds,
    )
    for number in fit.unfitted:
        fitted[number] = nearest_whole(estimates[number])
    return fitted


class SeparateSteps:
    """Steps of a release by parts for a request whose parts are published one by one.

    Parameters
    ----------
    request, mechanism
        What is asked for, and its noise: that of the whole, at the cut, above and below.
    at_cut
        The confidential tables at the cut.
    stems
        What the tables at the cut are called.
    foreseen
        What may be published otherwise than was asked for.
    """

    is_fitted_jointly = False

    def __init__(
        self,
        request: TablesAsked,
        mechanism: ResidualMechanism,
        at_cut: TablesAtCut,
        stems: Sequence[str],
        foreseen: Iterable[str],
    ) -> None:
        self.request = request
        self.mechanism = mechanism
        self.at_cut = at_cut
        self.stems = stems
        self._foreseen = list(foreseen)
        self.values = Confidential(at_cut.values())
        self._result: SeparateTables | None = None
        self._fit: CutFit | None = None

    @property
    def result(self) -> SeparateTables:
        """Result as far as it is known."""
        assert self._result is not None, "asked for after the cut was measured"
        return self._result

    def foreseen(self) -> list[str]:
        """Say what may be published otherwise than was asked for."""
        return self._foreseen

    def add_noise(self, randomness: Randomness) -> NDArray[np.int64]:
        """Add the noise to the residuals at the cut and above."""
        noise = mechanism_above(self.mechanism, self.at_cut.kind.cut)
        return reveal(self.values) + noise.noise_by_residual(randomness.part(self.request.name))

    def begin(self, noisy: NDArray[np.int64], private: bool) -> None:
        """Compute the estimates at the cut. The counts follow when the parts are done."""
        cut = self.at_cut.kind.cut
        self._result = begin_separate(self.request, self.mechanism, cut, noisy, private, self.stems)

    def settle(self, work: Path, progress: Progress) -> None:
        """Settle the whole numbers at the cut that the parts need."""
        self._fit = self.result.settle_cut(progress)

    def part_work(self, node: int) -> SeparateWork:
        """Return the work of one part. Until fits are settled, a part is only measured."""
        kind = self.at_cut.kind
        fit = None
        if self._fit is not None:
            views = [kind.schema.view(table.features) for table in kind.below]
            fit = self._fit.part(kind.schema.grid, kind.cut, node, views)
        return SeparateWork(
            request=self.request,
            blocks=(self.at_cut.part(node),),
            rows=tuple(self.result.rows(node)),
            fit=fit,
        )

    def build_result(self, parts: Sequence[Part], work: Path, progress: Progress) -> SeparateTables:
        """Return what is published, when all parts are done."""
        assert self._fit is not None, "published after the cut was fitted"
        result = self.result
        fits = result.fit_overview(self._fit, parts, work, progress)
        overview = []
        for table, (counts, how) in zip(result.overview, fits, strict=True):
            overview.append(replace(table, counts=counts.reshape(table.schema.shape), fitted=how))
        done = replace(result, overview=tuple(overview), parts=tuple(parts))
        below = [table for part in parts for table in part.tables]
        expected = done.compute_expected_l2(below)
        return replace(done, noise=replace(done.noise, expected_l2=expected))
