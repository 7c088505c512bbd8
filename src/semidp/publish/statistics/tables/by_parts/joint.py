"""Tables that are measured in parts and published as in one piece: each part holds its rows.

So it is where an estimate or a fit depends on all parts together: with noise on single cells (pure
ε, or a mechanism that is named), with cells that structural zeros or empty joint cells make
impossible, with totals that cross parts or form a cycle, and for linked files. Every number is the
one that a release without parts publishes of the same measurement.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.promise.confidential import Confidential, reveal
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.noise.randomness import Randomness
from semidp.promise.progress import Progress
from semidp.promise.schema.schema import Schema
from semidp.publish.half_widths import INTERVALS_BELOW, table_half_widths
from semidp.publish.results.published_table import FitKind, Fitted, PublishedTable
from semidp.publish.sources.reader import Reader
from semidp.publish.statistics.parts import Part, part_path
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.tables.by_parts.cut_tables import TableBlocks
from semidp.publish.statistics.tables.by_parts.measuring import (
    PartMeasurement,
    TablesAtCut,
    read_stored,
    stored_path,
)
from semidp.publish.statistics.tables.by_parts.separate_fits import MOST_TOGETHER
from semidp.publish.statistics.tables.linked_published import PublishedLinked
from semidp.publish.statistics.tables.published import PublishedTables


class JointSteps:
    """Steps of a release by parts for a request whose parts are measured first and published
    together.

    Parameters
    ----------
    request, mechanism, scope
        What is asked for, its noise (that of the whole), and what is public.
    blocks
        How the request is cut; its overview is still empty.
    at_cut
        The confidential tables at the cut, kind by kind.
    names
        Tables at the cut that are published beside those that were asked for, by their features.
    foreseen
        What may be published otherwise than was asked for.
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
        self.request = request
        self.mechanism = mechanism
        self.scope = scope
        self.blocks = blocks
        self.at_cut = at_cut
        self.names = names
        self._foreseen = list(foreseen)
        residuals = np.concatenate([kind.values() for kind in at_cut])
        self.values = Confidential(residuals)
        self._shape = residuals.shape
        self._noisy = np.zeros(0, np.int64)
        self._private = False
        self._whole: PublishedTables | PublishedLinked | None = None

    @property
    def stems(self) -> list[str]:
        """What the tables at the cut are called that nobody asked for."""
        return list(self.names)

    def foreseen(self) -> list[str]:
        """Say what may be published otherwise than was asked for."""
        return self._foreseen

    def add_noise(self, randomness: Randomness) -> NDArray[np.int64]:
        """Add the noise to the residuals at the cut and above."""
        noise = [np.zeros(0, np.int64)]
        for kind in self.blocks.kinds:
            if kind.above is not None:
                key = ("above", *kind.key) if kind.key else ()
                source = randomness.part(self.request.name, *key)
                noise.append(kind.above.noise_by_residual(source))
        return reveal(self.values) + np.concatenate(noise)

    def begin(self, noisy: NDArray[np.int64], private: bool) -> None:
        """Take the measurement that was made before the parts."""
        if noisy.shape != self._shape or noisy.dtype != np.int64:
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
        whole = self.request.publish(self.mechanism, measured, self.scope, progress)
        assert isinstance(whole, PublishedTables | PublishedLinked), "tables were asked for"
        overview = compute_overview(whole, self.blocks, self.names)
        self._whole = replace(whole, blocks=replace(self.blocks, overview=overview))

    def build_result(
        self, parts: Sequence[Part], work: Path, progress: Progress
    ) -> PublishedTables | PublishedLinked:
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
