"""One part: its records are counted, the noisy counts are stored once, and its tables follow.

The first attempt at a part takes the name of the stored file. Another attempt at the same part
reads it and draws nothing, so that all attempts write the same numbers.
"""

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import DataError, InputError, Refused
from semidp.promise.files import link
from semidp.promise.mechanisms.branch_noise import BranchNoise, Cut
from semidp.promise.mechanisms.mechanism import CellByCell, Mechanism
from semidp.promise.mechanisms.residual_laws import residual_variance
from semidp.promise.noise.randomness import Randomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import View, trimmed_view
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.products import ProductSpace
from semidp.promise.spaces.dataspace import Dataspace
from semidp.publish.folders import Unfinished, durable
from semidp.publish.half_widths import INTERVALS_BELOW, branch_half_widths
from semidp.publish.results.cells import Columns
from semidp.publish.results.columns import read_parquet
from semidp.publish.results.published_table import FitKind, Fitted, PublishedTable, StoredFit
from semidp.publish.sources.opening import Source
from semidp.publish.sources.reader import Reader
from semidp.publish.statistics.parts import (
    STATE,
    Partition,
    PartTable,
    PartTask,
    refuse_changed,
)
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.tables.asked import TableRequest, TablesAsked
from semidp.publish.statistics.tables.by_parts.cut_tables import CutKind, split_residuals

_LARGEST = 2**62
_CHANGED = (
    "the records of a part do not add up to what was read first: nothing may write to the data"
    " meanwhile"
)


@dataclass(frozen=True, eq=False)
class PartBlock:
    """One kind of record in one part: what is counted there, and its noise.

    Parameters
    ----------
    key
        Tells its source of noise from that of another kind.
    schema, cut, exact
        The features of its records in the part, where they are cut, and what is published below.
    declared
        Its features as they were declared, of all parts.
    features, expected
        Of each table below the cut its features, and the confidential counts at the cut, as they
        were read first. The records of the part must add up to them.
    noise
        The noise on its residuals or cells; None where nobody can be, or nothing is asked for.
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
            # Computed features of units are declared beside the plan's, which the task has cut.
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


@dataclass(frozen=True, eq=False, kw_only=True)
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
        """Whether anything is measured in the part. Nothing is where it can hold no record."""
        return any(block.noise is not None for block in self.blocks)

    def is_measured(self, task: PartTask) -> bool:
        """Whether an earlier attempt has stored the measurement, if there is one."""
        return not self.has_noise or stored_path(task.work, self.request, task.path).exists()

    def reads(self, task: PartTask) -> bool:
        """Whether no attempt has stored what is measured."""
        # Records are counted even where nobody can be, so that some which appear there are refused.
        return not self.has_noise or not self.is_measured(task)

    def measure(self, task: PartTask, source: Any, attempt: Path) -> None:
        """Count the records of a part and store the counts with noise, unless an earlier attempt
        did: a second draw would be another measurement, which nobody was charged for.
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


@dataclass(frozen=True, eq=False)
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
        """Read the tables of one kind at the cut; refuse numbers now that a part would refuse after
        the charge.
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


Floats = NDArray[np.float64]


class TableOfParts(PublishedTable):
    """A table whose cells are read from the folders of the parts when they are asked for.

    Parameters
    ----------
    name, schema
        Its name and its features.
    partition
        The parts, and where they are.
    """

    def __init__(self, name: str, schema: Schema, partition: Partition) -> None:
        keep = object.__setattr__  # as in every frozen value
        keep(self, "name", name)
        keep(self, "schema", schema)
        keep(self, "_partition", partition)

    @cached_property
    def _cells(self) -> Mapping[str, NDArray[Any]]:
        """All columns of numbers, put together from the parts."""
        partition: Partition = self.__dict__["_partition"]
        if partition.place is None:
            raise InputError(
                f"the cells of {self.name!r} are in the folder of the release, which is not known"
            )
        cut, grid = Cut.from_name(self.schema, partition.depth), self.schema.grid
        cells: dict[str, NDArray[Any]] = {}
        for node, part in enumerate(partition.parts):
            # The folder may have changed since the release was opened.
            refuse_changed(partition.place, part.digests, "the release was written")
            rows = cut.branch(self.schema, node)
            fitted = part.find_fit(self.name)
            table = PublishedTable.read(partition.files(part), self.name, rows, fitted)
            for name in ("counts", "estimate", "standard_errors", "half_widths"):
                column = getattr(table, name)
                if column is None:
                    continue
                # Counts of a part without whole numbers are real ones, and so are those of the
                # whole table then.
                before = cells.get(name, np.zeros(self.schema.shape, column.dtype))
                kind = np.result_type(before.dtype, column.dtype)
                cells[name] = before.astype(kind, copy=False)
                row = cut.row(grid, grid.full, cells[name], node)
                row[...] = column.reshape(row.shape)
        return cells

    @cached_property
    def fitted(self) -> Fitted:
        """How the counts were made from the measurement, in all parts."""
        partition: Partition = self.__dict__["_partition"]
        fits = [part.find_fit(self.name) for part in partition.parts]
        not_whole = [fit.kind for fit in fits if fit.kind != FitKind.integer]
        methods = dict.fromkeys(fit.method for fit in fits)
        notes = dict.fromkeys(fit.note for fit in fits if fit.note)
        return Fitted(
            # One part without whole numbers is enough for the table to have none with all totals.
            kind=not_whole[0] if not_whole else str(FitKind.integer),
            method=", ".join(methods),
            # Parts hold different cells, so squared distances and their lower bounds add up.
            loss=sum(fit.loss for fit in fits),
            bound=sum(fit.bound for fit in fits),
            optimal=all(fit.optimal for fit in fits),
            note=" ".join(notes),
        )

    @cached_property
    def counts(self) -> NDArray[Any]:
        """Published counts, of all parts."""
        return self._cells["counts"]

    @cached_property
    def estimate(self) -> Floats:
        """The unbiased estimate, in all parts."""
        return self._cells["estimate"]

    @cached_property
    def standard_errors(self) -> Floats:
        """The standard errors of the estimate, in all parts."""
        return self._cells["standard_errors"]

    @cached_property
    def half_widths(self) -> Floats | None:
        """Half-widths of the 95% intervals; None where a part is too large to have them."""
        return self._cells.get("half_widths")


@dataclass(frozen=True, eq=False)
class RowAtCut:
    """The cells at the cut, for one part, of a table that reaches below it: the estimate, its
    variance, and the published whole numbers (None where there are none).
    """

    asked: TableRequest
    estimate: Floats = field(repr=False)
    variance: Floats = field(repr=False)
    counts: NDArray[np.int64] | None = field(repr=False)


_EMPTY = Fitted(
    "integer", "thresholds", 0.0, 0.0, True, "Nobody is there, as the exact totals say."
)


def estimate_branch_tables(
    branch: BranchNoise,
    noisy: Mapping[View, NDArray[np.int64]],
    above: Sequence[tuple[Floats, Floats]],
) -> list[tuple[Floats, Floats]]:
    """Return the estimate of each table and the variance of each of its cells, from the
    residuals below the cut.

    `above` has for each table its estimate at the cut for this node, and the variance of that.
    """
    space, residuals = branch.space, branch.space.residuals
    estimates, variances = [], []
    for number, (row, square) in enumerate(above):
        estimates.append(np.array(space.divide_below_cut(row, number)))
        variances.append(np.array(space.divide_below_cut(square, number, 2)))
    for number, view in enumerate(space.views):
        for small, exact_part in space.exact_residuals.items():
            depths = zip(small, view, strict=True)
            if all(one <= other for one, other in depths):
                estimates[number] += residuals.spread(exact_part, small, view)
    for small, holders in space.holders.items():
        scale = residuals.scale(small)
        centred = residuals.center(small, noisy[small] / scale)
        variance_before = residual_variance(branch.law, branch.sigma2[small], scale)
        centred_variance = residuals.centred_variance(small, variance_before)
        for number in holders:
            view = space.views[number]
            estimates[number] += residuals.spread(centred, small, view)
            variances[number] += residuals.spread(centred_variance, small, view, power=2)
    tables = []
    for number, view in enumerate(space.views):
        estimate = space.restore_full_table(estimates[number], view)
        tables.append((estimate, space.restore_full_table(variances[number], view)))
    return tables


def estimate_part(
    noise: BranchNoise, noisy: NDArray[np.int64], rows: Sequence[RowAtCut]
) -> list[tuple[Floats, Floats]]:
    """Return the estimates and variances of the tables of one part, from what was measured in it
    and at the cut.
    """
    above = [(row.estimate, row.variance) for row in rows]
    return estimate_branch_tables(noise, split_residuals(noise.space, noisy), above)


def build_part(
    schema: Schema,
    asked: Sequence[TableRequest],
    noise: BranchNoise | None,
    estimated: Sequence[tuple[Floats, Floats]] | None,
    fits: Sequence[StoredFit],
) -> list[PublishedTable]:
    """Return the tables of one part with their whole numbers. Where nobody can be, there is no
    noise, and nothing is estimated.
    """
    half_widths = None if noise is None else branch_half_widths(noise, INTERVALS_BELOW)
    tables = []
    for number, (table, (counts, how)) in enumerate(zip(asked, fits, strict=True)):
        rows = schema.restrict(table.features)
        zero = np.zeros(rows.shape)
        estimate, variance = (zero, zero) if estimated is None else estimated[number]
        half = zero if half_widths is None else half_widths[number]
        cells, errors = counts.reshape(rows.shape), np.sqrt(variance)
        tables.append(PublishedTable(table.name, rows, cells, estimate, errors, how, half))
    return tables


def fit_nobody(schema: Schema, asked: Sequence[TableRequest]) -> list[StoredFit]:
    """Return the whole numbers of a part where nobody can be."""
    shapes = [schema.restrict(table.features).shape for table in asked]
    return [(np.zeros(shape, dtype=np.int64), _EMPTY) for shape in shapes]
