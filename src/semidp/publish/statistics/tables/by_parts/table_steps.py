"""Steps of tables by parts: what is done before the parts, in each part, and after them.

*Joint*: all parts are measured, put together and published as in one piece; each part holds its
rows. So it is where an estimate or a fit depends on all parts together: with noise on single cells
(pure ε, or a mechanism that is named), with cells that structural zeros or empty joint cells make
impossible, with totals that cross parts or form a cycle, and for linked files. Every number is the
one that a release without parts publishes of the same measurement.
*Separate*: each part is estimated and fitted by itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.promise.confidential import Confidential, reveal
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.branch_noise import BranchNoise
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.noise.randomness import Randomness
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.schema import Schema
from semidp.promise.spaces.dataspace import Dataspace
from semidp.publish.half_widths import INTERVALS_BELOW, table_half_widths
from semidp.publish.results.published_table import FitKind, Fitted, PublishedTable, StoredFit
from semidp.publish.sources.reader import Reader
from semidp.publish.statistics.parts import Part, PartTable, PartTask, part_path
from semidp.publish.statistics.protocol.requests import Request, RequestMeasurement
from semidp.publish.statistics.protocol.results import Published
from semidp.publish.statistics.tables.asked import TablesAsked, measurements_stem
from semidp.publish.statistics.tables.by_parts.cut_tables import (
    CutKind,
    TableBlocks,
    residual_columns,
)
from semidp.publish.statistics.tables.by_parts.part_tables import (
    PartMeasurement,
    RowAtCut,
    TablesAtCut,
    build_part,
    estimate_part,
    fit_nobody,
    read_stored,
    stored_path,
)
from semidp.publish.statistics.tables.by_parts.separate import SeparateTables, begin_separate
from semidp.publish.statistics.tables.by_parts.separate_fits import MOST_TOGETHER, CutFit, PartFit
from semidp.publish.statistics.tables.fitting import fit_product, nearest_whole
from semidp.publish.statistics.tables.linked_published import PublishedLinked
from semidp.publish.statistics.tables.published import PublishedTables


@dataclass(frozen=True, eq=False)
class TablesMeasurement(RequestMeasurement):
    """What was measured of tables, in one piece or in blocks that are put together.

    Parameters
    ----------
    mechanism, measurement
        How it was measured, and what came out.
    blocks, names
        How the tables lie in parts, if they do, and the tables at the cut that nobody asked for.
    agreeing
        Where sizes of units are coded: for how many places both kinds agree, and how many there
        are. The counts by single sizes are not published.
    """

    blocks: TableBlocks | None = None
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    agreeing: tuple[int, int] | None = None

    def publish(
        self, request: Any, scope: Scope, counts: Sequence[Any], progress: Progress
    ) -> Published:
        """Return the tables, with their whole numbers where those were fitted before."""
        result: Any = super().publish(request, scope, counts, progress)
        stated: dict[str, Any] = {"noisy": self.measurement.noisy}
        if self.blocks is not None:
            overview = compute_overview(result, self.blocks, self.names)
            stated["blocks"] = replace(self.blocks, overview=overview)
        if self.agreeing is not None:
            stated["stated"] = self.agreeing
        published: Published = replace(result, **stated)
        return published


class CutSteps:
    """Steps of tables by parts, however they are published: what is at the cut and above is
    measured first.

    Parameters
    ----------
    request, mechanism
        What is asked for, and its noise: that of the whole.
    at_cut
        The confidential tables at the cut, kind by kind.
    stems
        What the tables at the cut are called that the plan does not name.
    foreseen
        What may be published otherwise than was asked for.
    """

    def __init__(
        self,
        request: Any,
        mechanism: Any,
        at_cut: Sequence[TablesAtCut],
        stems: Iterable[str],
        foreseen: Iterable[str],
    ) -> None:
        self.request = request
        self.mechanism = mechanism
        self.at_cut = at_cut
        self.stems = list(stems)
        self.foreseen = list(foreseen)
        self.values = Confidential(np.concatenate([kind.values() for kind in at_cut]))

    def add_noise(self, randomness: Randomness) -> NDArray[np.int64]:
        """Add the noise to the residuals at the cut and above."""
        noise = [np.zeros(0, np.int64)]
        for kind in self.at_cut:
            if kind.kind.above is not None:
                key = ("above", *kind.kind.key) if kind.kind.key else ()
                source = randomness.part(self.request.name, *key)
                noise.append(kind.kind.above.noise_by_residual(source))
        return reveal(self.values) + np.concatenate(noise)


class JointSteps(CutSteps):
    """Steps of a release by parts for a request whose parts are measured first and published
    together.

    Parameters
    ----------
    request, mechanism, at_cut, foreseen
        As for all tables by parts.
    scope, blocks
        What is public, and how the request is cut; its overview is still empty.
    names
        Tables at the cut that are published beside those that were asked for, by their features.
    """

    is_fitted_jointly = True

    def __init__(
        self,
        request: Request,
        mechanism: Mechanism,
        scope: Scope,
        blocks: TableBlocks,
        at_cut: Sequence[TablesAtCut],
        names: Mapping[str, tuple[str, ...]],
        foreseen: Iterable[str] = (),
    ) -> None:
        super().__init__(request, mechanism, at_cut, names, foreseen)
        self.scope = scope
        self.blocks = blocks
        self.names = names
        self._noisy = np.zeros(0, np.int64)
        self._private = False
        self._whole: Published | None = None

    def begin(self, noisy: NDArray[np.int64], private: bool) -> None:
        """Take the measurement that was made before the parts."""
        sizes = [kind.size_above for kind in self.blocks.kinds]
        if noisy.shape != (sum(sizes),) or noisy.dtype != np.int64:
            raise ValueError("the measurements are not those of the plan")
        self._noisy, self._private = noisy, private

    def part_work(self, node: int) -> PartMeasurement:
        """Return the work of measuring one part."""
        blocks = tuple(kind.part(node) for kind in self.at_cut)
        return PartMeasurement(request=self.request, blocks=blocks)

    def settle(self, work: Path, progress: Progress) -> None:
        """Put the measurements of all parts together, and publish them as one piece does."""
        below = {}
        for node in range(self.blocks.parts):
            if any(kind.count_entries(node) for kind in self.blocks.kinds):
                path = part_path(self.blocks.schema, self.blocks.cut, node)
                below[node] = read_stored(stored_path(work, self.request, path))
        vector = self.blocks.join(self._noisy, below)
        measured = self.mechanism.restore_measurement(vector, self._private)
        whole = TablesMeasurement(self.mechanism, measured, self.blocks, self.names)
        self._whole = whole.publish(self.request, self.scope, (), progress)

    def build_result(self, parts: Sequence[Part], work: Path, progress: Progress) -> Published:
        """Return what is published."""
        assert self._whole is not None, "published after it was fitted"
        return self._whole


def compute_overview(
    whole: PublishedTables | PublishedLinked,
    blocks: TableBlocks,
    names: Mapping[str, tuple[str, ...]],
) -> tuple[PublishedTable, ...]:
    """Return tables at the cut, which nobody asked for, as sums of those that reach below it.

    Parameters
    ----------
    whole, blocks
        The published tables, and how they are cut.
    names
        What the tables are called, and their features.
    """
    kind = blocks.kinds[0]
    overview: list[PublishedTable] = []
    if kind.above is None:  # cells were measured
        return ()
    for name, features in names.items():
        view = kind.schema.view(features)
        schema = kind.schema.restrict(features)
        number = kind.above.space.views.index(view)
        finer = [
            table
            for asked, table in zip(kind.asked, whole.tables, strict=True)
            if kind.cut.coarsen_view(kind.schema.view(asked.features)) == view
        ]
        # Of tables that are the same at the cut, one in whole numbers is preferred.
        table = next((one for one in finer if one.fitted.kind == FitKind.integer), finer[0])
        counts = _sum_cells(table, schema, table.counts)
        estimate = _sum_cells(table, schema, table.estimate)
        loss = 0.0 if table.fitted.method == "none" else float(np.square(counts - estimate).sum())
        how = Fitted(table.fitted.kind, "sums of the parts", loss, 0.0, False, "")
        half_widths = None
        if schema.size < INTERVALS_BELOW:
            half_widths = table_half_widths(kind.above, number)
        errors = kind.above.table_errors(number)
        overview.append(PublishedTable(name, schema, counts, estimate, errors, how, half_widths))
    return tuple(overview)


def _sum_cells(table: PublishedTable, schema: Schema, cells: NDArray[Any]) -> NDArray[Any]:
    """Sum the cells of a table to a coarser schema of the same features."""
    view = table.schema.view(schema.names)
    return table.schema.grid.sum(cells, view).reshape(schema.shape)


def prepare_joint_steps(
    request: Request,
    mechanism: Mechanism,
    scope: Scope,
    blocks: TableBlocks,
    readers: Sequence[tuple[Any, Reader]],
    names: Mapping[str, tuple[str, ...]],
    foreseen: Iterable[str] = (),
) -> JointSteps:
    """Read the tables of a request at the cut; refuse tables that are too large to be fitted in one
    piece.

    Parameters
    ----------
    request, mechanism, scope, blocks, names, foreseen
        As for `JointSteps`.
    readers
        Of each kind of record what is public, and what reads it.
    """
    if not blocks.below:
        raise InputError(
            f"no table is finer than {blocks.depth!r}, so that there is nothing to release part by"
            " part"
        )
    cells = 0
    for kind in blocks.kinds:
        cells += sum(kind.schema.restrict(table.features).size for table in kind.asked)
    if cells > MOST_TOGETHER:
        raise Refused(
            f"{request.name!r} is fitted in one piece, because its numbers follow from all parts"
            f" together, and {cells:,} cells are too many for that (at most {MOST_TOGETHER:,}):"
            " release coarser tables"
        )
    at_cut = []
    for kind, (public, reader) in zip(blocks.kinds, readers, strict=True):
        at_cut.append(TablesAtCut.read(kind, public, reader))
    return JointSteps(request, mechanism, scope, blocks, at_cut, names, foreseen)


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


class SeparateSteps(CutSteps):
    """Steps of a release by parts for a request whose parts are published one by one."""

    is_fitted_jointly = False
    _result: SeparateTables | None = None
    _fit: CutFit | None = None

    @property
    def result(self) -> SeparateTables:
        """Result as far as it is known."""
        assert self._result is not None, "asked for after the cut was measured"
        return self._result

    @property
    def kind(self) -> CutKind:
        """The tables, cut."""
        return self.at_cut[0].kind

    def begin(self, noisy: NDArray[np.int64], private: bool) -> None:
        """Compute the estimates at the cut. The counts follow when the parts are done."""
        self._result = begin_separate(
            self.request, self.mechanism, self.kind.cut, noisy, private, self.stems
        )

    def settle(self, work: Path, progress: Progress) -> None:
        """Settle the whole numbers at the cut that the parts need."""
        self._fit = self.result.settle_cut(progress)

    def part_work(self, node: int) -> SeparateWork:
        """Return the work of one part. Until fits are settled, a part is only measured."""
        kind, fit = self.kind, None
        if self._fit is not None:
            views = [kind.schema.view(table.features) for table in kind.below]
            fit = self._fit.part(kind.schema.grid, kind.cut, node, views)
        return SeparateWork(
            request=self.request,
            blocks=(self.at_cut[0].part(node),),
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
