"""Steps of tables by parts: before the parts, in each part, and after them.

*Joint*: all parts are measured, assembled and published as in one piece; each part holds its rows.
This is used if an estimate or a fit depends on all parts together: with noise on single cells (pure
ε, or a named mechanism), with cells that structural zeros or empty joint cells make impossible,
with totals that cross parts or form a cycle, and for linked files. Every number is the one that a
release without parts publishes from the same measurement. *Separate*: each part is estimated and
fitted by itself.

The records of each part are counted, and the noisy counts are stored once. The first attempt at a
part stores the file. Other attempts at the same part read it and draw nothing,
so all attempts write the same numbers.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from semidp.errors import DataError, InputError, Refused
from semidp.promise.confidential import Confidential, reveal
from semidp.promise.files import link
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.branch_noise import BranchNoise, Cut
from semidp.promise.mechanisms.mechanism import CellByCell, Mechanism
from semidp.promise.noise.randomness import Randomness
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import View, trimmed_view
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.products import ProductSpace
from semidp.promise.spaces.dataspace import Dataspace
from semidp.publish.folders import Unfinished, durable
from semidp.publish.half_widths import INTERVALS_BELOW, table_half_widths
from semidp.publish.results.columns import Columns, read_parquet
from semidp.publish.results.published_table import FitKind, Fitted, PublishedTable, StoredFit
from semidp.publish.sources.opening import Source
from semidp.publish.sources.reader import Reader
from semidp.publish.statistics.parts import (
    STATE,
    Part,
    PartTable,
    PartTask,
    part_path,
)
from semidp.publish.statistics.protocol.requests import (
    Published,
    Request,
    RequestMeasurement,
    StepsByParts,
)
from semidp.publish.statistics.tables.asked import TablesAsked, measurements_stem
from semidp.publish.statistics.tables.cut_tables import (
    CutKind,
    TableBlocks,
    residual_columns,
)
from semidp.publish.statistics.tables.fitting import (
    MOST_TOGETHER,
    CutFit,
    PartFit,
    fit_product,
    nearest_whole,
)
from semidp.publish.statistics.tables.linked_published import PublishedLinked
from semidp.publish.statistics.tables.published import PublishedTables
from semidp.publish.statistics.tables.separate import (
    RowAtCut,
    SeparateTables,
    begin_separate,
    build_part,
    estimate_part,
    fit_nobody,
)

_LARGEST = 2**62
_CHANGED = (
    "the records of a part do not add up to what was read first: nothing may write to the data"
    " meanwhile"
)


@frozen(eq=False)
class PartBlock:
    """One kind of record in one part: its counts and its noise.

    Parameters
    ----------
    key
        Separates its source of noise from that of the other kind.
    schema, cut, exact
        The features of its records in the part, where they are cut, and what is published below.
    declared
        Its features as they were declared, of all parts.
    features, expected
        Of each table below the cut its features, and the confidential counts at the cut, as they
        were read first. The records of the part must add up to them.
    noise
        The noise on its residuals or cells; None if no record is possible, or nothing is requested.
    """

    key: tuple[str, ...]
    schema: Schema = field(repr=False)
    cut: Cut
    exact: Dataspace = field(repr=False)
    declared: tuple[Feature, ...] = field(repr=False)
    features: tuple[tuple[str, ...], ...]
    expected: tuple[NDArray[np.int64], ...] = field(repr=False)
    noise: BranchNoise | Mechanism | None = field(repr=False)

    def count(self, task: PartTask, source: Source | None) -> list[Table]:
        """Return the confidential tables; refuse records that changed since the tables at the cut
        were read.
        """
        if source is None:
            schemas = [self.schema.restrict(names) for names in self.features]
            counted = [Table(schema, np.zeros(schema.shape, np.int64)) for schema in schemas]
        else:
            # Computed features of units are declared next to the plan's, which the task has cut.
            taken = {feature.name for feature in task.declared}
            computed = [feature for feature in self.declared if feature.name not in taken]
            declared = (*task.declared, *computed)
            counted = Reader(self.schema, source, declared).tables(self.features)
        grid = self.schema.grid
        for table, names, at_first in zip(counted, self.features, self.expected, strict=True):
            view = self.schema.view(names)
            above = trimmed_view(self.cut.coarsen_view(view), view)
            at_cut = grid.coarsen(view).sum(table.counts, above)
            # The message names no count, because these are the confidential ones.
            if not np.array_equal(at_cut.ravel(), at_first.ravel()):
                raise DataError(_CHANGED)
            if self.exact.margins and not self.exact.restrict_features(names).contains(table):
                raise DataError(_CHANGED)
        return counted

    def add_noise(self, counted: Sequence[Table], randomness: Randomness) -> NDArray[np.int64]:
        """Return the numbers that are measured of the confidential tables, with noise."""
        pieces = [np.zeros(0, np.int64)]
        if isinstance(self.noise, BranchNoise):
            drawn = self.noise.measure(counted, randomness)
            pieces += [part.ravel() for part in drawn.values()]
        elif self.noise is not None:
            cells = counted[0].counts.astype(np.int64)
            if isinstance(self.noise, CellByCell):
                cells = cells + self.noise.sampler.sample(cells.shape, randomness)
            else:
                cells = np.zeros_like(cells)  # exact totals fix them, and say what they are
            pieces.append(cells.ravel())
        return np.concatenate(pieces)


@frozen(eq=False, kw_only=True)
class PartMeasurement:
    """Work of one part for a request: count its records, add noise, and store that once.

    Parameters
    ----------
    request
        What is asked for.
    blocks
        The kinds of record in the part: one, or members and units.
    """

    request: Request | TablesAsked
    blocks: tuple[PartBlock, ...] = field(repr=False)

    @property
    def has_noise(self) -> bool:
        """Whether anything is measured in the part; not if it can hold no record."""
        return any(block.noise is not None for block in self.blocks)

    def is_measured(self, task: PartTask) -> bool:
        """Whether an earlier attempt has stored the measurement, if there is one."""
        return not self.has_noise or stored_path(task.work, self.request, task.path).exists()

    def reads(self, task: PartTask) -> bool:
        """Whether no attempt has stored what is measured."""
        # Records are counted even if nobody can be, so some which appear there are refused.
        return not self.has_noise or not self.is_measured(task)

    def measure(self, task: PartTask, source: Any, attempt: Path) -> None:
        """Count the records of a part and store the counts with noise, unless an earlier attempt
        did: a second draw would be another measurement, which was not charged.
        """
        if not self.reads(task):
            return
        sources = [source]
        if len(self.blocks) > 1:
            sources = [None, None] if source is None else [source.members, source.units]
        vectors = []
        for block, records in zip(self.blocks, sources, strict=True):
            counted = block.count(task, records)
            # Kind and path are parts of the key: with one source they would have the same noise.
            randomness = task.randomness.part(self.request.name, *block.key, *task.path)
            vectors.append(block.add_noise(counted, randomness))
        if self.has_noise:
            stored = stored_path(task.work, self.request, task.path)
            _store_once(task, Columns({}, {"noisy": np.concatenate(vectors)}), stored, attempt)

    def write(self, task: PartTask, attempt: Path) -> list[PartTable]:
        """Write nothing: the rows of the part follow when all parts are measured."""
        return []


@frozen(eq=False)
class TablesAtCut:
    """The confidential tables of one kind of record at the cut, and what its parts need.

    Parameters
    ----------
    kind
        The kind, cut.
    tables
        Its tables at the cut.
    public
        What is published of it exactly.
    declared
        Its features as they were declared.
    """

    kind: CutKind
    tables: Mapping[View, Table] = field(repr=False)
    public: Dataspace = field(repr=False)
    declared: tuple[Feature, ...] = field(repr=False)

    @classmethod
    def read(cls, kind: CutKind, public: Dataspace, reader: Reader) -> "TablesAtCut":
        """Read the tables of one kind at the cut; refuse now any numbers that a part would refuse
        after the charge.
        """
        if kind.residuals is not None:
            _refuse_overflow(kind.residuals.space, public.n)
        finest = [kind.schema.view(table.features) for table in kind.asked]
        views = list(dict.fromkeys(map(kind.cut.coarsen_view, finest)))
        tables = reader.tables(kind.schema.list_view_names(view) for view in views)
        return cls(kind, dict(zip(views, tables, strict=True)), public, reader.declared)

    def values(self) -> NDArray[np.int64]:
        """Return the residuals at the cut and above; none where cells are measured, in the
        parts.
        """
        if self.kind.above is None:
            return np.zeros(0, np.int64)
        return self.kind.above.space.measure(list(self.tables.values()))

    def part(self, node: int) -> PartBlock:
        """Return what is counted of this kind in one part."""
        kind, grid = self.kind, self.kind.schema.grid
        expected = []
        for table in kind.below:
            view = kind.cut.coarsen_view(kind.schema.view(table.features))
            counts = self.tables[view].counts.reshape(grid.compute_margin_shape(view))
            expected.append(kind.cut.row(grid, view, counts, node))
        return PartBlock(
            key=kind.key,
            schema=kind.cut.branch(kind.schema, node),
            cut=kind.cut,
            exact=kind.cut.exact(self.public, node),
            declared=self.declared,
            features=tuple(table.features for table in kind.below),
            expected=tuple(expected),
            noise=kind.noise(node),
        )


def _refuse_overflow(space: ProductSpace, n: int | None) -> None:
    """Refuse residuals of n records that 62 bits may not hold.

    A part that found an overflow would find it after the budget was charged.
    """
    for view in space.measured_residuals:
        # No entry of a residual exceeds n times its scale, because its weights lie in [-1, 1].
        if (n or 0) * space.residuals.largest_scale(view) >= _LARGEST:
            raise Refused(
                "the counts times the numbers of levels do not fit in 62 bits: release smaller"
                " tables"
            )


def _store_once(task: PartTask, columns: Columns, stored: Path, attempt: Path) -> None:
    """Store the measurement of an attempt, unless another attempt was first: then this one's draw
    is dropped.
    """
    fresh = attempt / stored.name
    columns.write(fresh)
    # On disk before it has its name: an empty file would stand for a measurement.
    durable(attempt)
    Unfinished(task.work, task.run_name).check()
    # A link to a taken name fails: one attempt wins, and all of them read its numbers.
    with contextlib.suppress(FileExistsError):
        link(fresh, stored)
    fresh.unlink()


def stored_path(work: Path, request: Request | TablesAsked, path: Sequence[str]) -> Path:
    """Return where the folder of an unfinished release keeps the measurement of a request in one
    part.
    """
    # Labels may hold any character, and a digest is a name that every file system takes.
    place = json.dumps([request.name, *path])
    key = hashlib.sha256(place.encode()).hexdigest()
    return work / STATE / f"{key}.parquet"


def read_stored(stored: Path) -> NDArray[np.int64]:
    """Read the noisy values that one part of an unfinished release has stored."""
    try:
        noisy: NDArray[np.int64] = read_parquet(stored, ["noisy"])["noisy"]
    except (ValueError, OSError):
        raise DataError(
            "what was measured of a part is damaged: discard the unfinished release"
        ) from None
    return noisy


@frozen(eq=False)
class TablesMeasurement(RequestMeasurement):
    """The measurement of tables, in one piece or assembled from blocks.

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
    names: Mapping[str, tuple[str, ...]] = field(factory=dict)
    agreeing: tuple[int, int] | None = None

    def publish(
        self, request: Any, scope: Scope, counts: Sequence[Any], progress: Progress
    ) -> Published:
        """Return the tables, with their whole numbers where those were fitted before."""
        result: Any = super().publish(request, scope, counts, progress)
        stated: dict[str, Any] = {"noisy": self.measurement.noisy}
        if self.blocks is not None:
            overview = compute_overview(result, self.blocks, self.names)
            stated["blocks"] = evolve(self.blocks, overview=overview)
        if self.agreeing is not None:
            stated["stated"] = self.agreeing
        published: Published = evolve(result, **stated)
        return published


class CutSteps(StepsByParts):
    """Steps of tables by parts, however published: everything at the cut and above is measured
    first.

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
        values = Confidential(np.concatenate([kind.values() for kind in at_cut]))
        super().__init__(request, mechanism, values, stems, foreseen)
        self.at_cut = at_cut

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
        Tables at the cut that are published next to those that were asked for, by their features.
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
        """Assemble the measurements of all parts, and publish them as in one piece."""
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
    """Return tables at the cut that were not requested, as sums of those that reach below it.

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
            f"no table is finer than {blocks.depth!r}, so there is nothing to release part by part"
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


@frozen(eq=False, kw_only=True)
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
            residual_columns([noise.space], noisy).write(attempt / file)
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

    _result: SeparateTables | None = None
    _fit: CutFit | None = None

    @property
    def result(self) -> SeparateTables:
        """The result so far."""
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
            overview.append(evolve(table, counts=counts.reshape(table.schema.shape), fitted=how))
        done = evolve(result, overview=tuple(overview), parts=tuple(parts))
        below = [table for part in parts for table in part.tables]
        expected = done.compute_expected_l2(below)
        return evolve(done, noise=evolve(done.noise, expected_l2=expected))
