"""Measurement of one part: its records are counted, and the noisy counts are stored once.

The first attempt at a part takes the name of the stored file. Another attempt at the same part
reads it and draws nothing, so that all attempts write the same numbers.
"""

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import DataError, Refused
from semidp.promise.files import link
from semidp.promise.mechanisms.branch_noise import BranchNoise, Cut
from semidp.promise.mechanisms.mechanism import CellByCell, Mechanism
from semidp.promise.noise.randomness import Randomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import View, trimmed_view
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.products import ProductSpace
from semidp.promise.spaces.dataspace import Dataspace
from semidp.publish.folders import durable
from semidp.publish.results.cells import Columns
from semidp.publish.results.columns import read_parquet
from semidp.publish.sources.opening import Source
from semidp.publish.sources.reader import Reader
from semidp.publish.statistics.parts import STATE, PartTable, PartTask
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.tables.asked import TablesAsked
from semidp.publish.statistics.tables.by_parts.cut_tables import CutKind
from semidp.publish.unfinished import Unfinished

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
