"""Linked tables by parts, steps of a release: measured at the cut, in each part, then
made to agree and fitted together.

Noise is calibrated to both kinds as a whole, so that the guarantee is that of one measurement of
all residuals, whoever draws them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from semidp.core.margins import View
from semidp.core.progress import Progress
from semidp.core.scope import Scope
from semidp.core.spaces.dataspace import Dataspace
from semidp.core.tables.counts import Table
from semidp.core.tables.features import Feature
from semidp.core.tables.schema import Schema
from semidp.errors import DataError, InputError, Refused
from semidp.mechanisms.branch_noise import BranchNoise
from semidp.mechanisms.linked_noise import LinkedMechanism
from semidp.noise.randomness import Randomness
from semidp.output.cells import Columns
from semidp.output.columns import read_parquet
from semidp.output.published_table import PublishedTable
from semidp.queries.branches import Cut
from semidp.sources.linked_records import LinkedReader, LinkedSource
from semidp.sources.reader import Reader
from semidp.statistics.parts import STATE, Part, PartTable, PartTask, part_path
from semidp.statistics.protocol.results import measured_by
from semidp.statistics.tables.by_parts.linked_parts_published import (
    CutKind,
    LinkedPartsTables,
    both_vectors,
    cut_kinds,
)
from semidp.statistics.tables.by_parts.part_measurement import (
    counted_tables,
    store_once,
    stored_measurement,
)
from semidp.statistics.tables.by_parts.separate_fits import MOST_TOGETHER, Fits
from semidp.statistics.tables.by_parts.stored_fits import read_fits, store_fits
from semidp.statistics.tables.linked_published import (
    LINKED_MEASUREMENTS,
    LinkedFits,
    linked_columns,
    linked_fits,
    published_linked,
)
from semidp.statistics.tables.linked_request import LinkedTablesRequest

_LARGEST = 2**62


# --- the work of one part -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PartOfKind:
    """What one kind of linked records has in one part.

    Parameters
    ----------
    counted
        Which kind it is.
    schema, cut, exact
        The features of its records in the part, where they are cut, and what is published below.
    declared
        Its features as they were declared, of all parts.
    features, expected
        Of each table below the cut its features, and the confidential counts at the cut, as they
        were read first.
    noise
        The noise below the cut; None where nobody can be, or nothing is asked for there.
    """

    counted: str
    schema: Schema = field(repr=False)
    cut: Cut
    exact: Dataspace = field(repr=False)
    declared: tuple[Feature, ...] = field(repr=False)
    features: tuple[tuple[str, ...], ...]
    expected: tuple[NDArray[np.int64], ...] = field(repr=False)
    noise: BranchNoise | None = field(repr=False)

    def task(self, task: PartTask) -> PartTask:
        """Return the task of the part, as it is for this kind alone."""
        # Computed features of units are declared beside the plan's, which the task has cut.
        taken = {feature.name for feature in task.declared}
        others = [feature for feature in self.declared if feature.name not in taken]
        declared = (*task.declared, *others)
        return replace(task, schema=self.schema, cut=self.cut, exact=self.exact, declared=declared)


@dataclass(frozen=True, eq=False)
class LinkedPartsWork:
    """What linked tables have in one part: counts of both kinds with noise, then rows of tables
    that were fitted in one piece.

    Parameters
    ----------
    request
        What is asked for.
    kinds
        Members and units of the part.
    rows, measured
        What is written; None while the part is only measured.
    """

    request: LinkedTablesRequest
    kinds: tuple[PartOfKind, PartOfKind] = field(repr=False)
    rows: tuple[PublishedTable, ...] | None = field(default=None, repr=False)
    measured: Columns | None = field(default=None, repr=False)

    def stored(self, task: PartTask) -> Path:
        """Return the file of what is measured in a part."""
        return stored_measurement(task.work, self.request, task.path)

    @property
    def _has_noise(self) -> bool:
        return any(kind.noise is not None for kind in self.kinds)

    def is_measured(self, task: PartTask) -> bool:
        """Whether an earlier attempt has stored what is measured; nothing is where nobody can
        be.
        """
        return not self._has_noise or self.stored(task).exists()

    def reads(self, task: PartTask) -> bool:
        """Whether the part is still to be measured."""
        return self.rows is None and not (self._has_noise and self.stored(task).exists())

    def measure(self, task: PartTask, source: LinkedSource | None, attempt: Path) -> None:
        """Count the members and units of a part and store them with noise, unless an attempt did so
        before.
        """
        # A second draw would be another measurement, which nobody was charged for.
        if not self.reads(task):
            return
        drawn = [np.zeros(0, np.int64)]
        records = (None, None) if source is None else (source.members, source.units)
        for kind, of_kind in zip(self.kinds, records, strict=True):
            counted = counted_tables(kind.task(task), kind.features, kind.expected, of_kind)
            if kind.noise is None:
                continue
            randomness = task.randomness.part(self.request.name, kind.counted, *task.path)
            drawn += [part.ravel() for part in kind.noise.measure(counted, randomness).values()]
        if self._has_noise:
            spaces = [None if kind.noise is None else kind.noise.space for kind in self.kinds]
            columns = linked_columns(spaces, np.concatenate(drawn))
            store_once(task, columns, self.stored(task), attempt)

    def write(self, task: PartTask, attempt: Path) -> list[PartTable]:
        """Write the rows of the part and its measurement; return how its tables came out."""
        assert self.rows is not None
        for table in self.rows:
            table.columns().write(attempt / f"{table.name}.{task.form}")
        if self.measured is not None:
            self.measured.write(attempt / f"{LINKED_MEASUREMENTS}.{task.form}")
        return [PartTable.of(table) for table in self.rows]


# --- before and after the parts -------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class AtCut:
    """The confidential tables of one kind at the cut, and what reads and publishes it below.

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
    def read(cls, kind: CutKind, public: Dataspace, reader: Reader) -> "AtCut":
        """Read the tables of one kind at the cut; refuse numbers that a part would refuse when all
        is charged.
        """
        space = kind.noise.space
        for view in space.measured:
            if (public.n or 0) * space.residuals.largest_scale(view) >= _LARGEST:
                raise Refused(
                    "the counts times the numbers of levels do not fit in 62 bits: release smaller"
                    " tables"
                )
        views = kind.above.space.views
        tables = reader.tables(kind.schema.named(view) for view in views)
        return cls(kind, dict(zip(views, tables, strict=True)), public, reader.declared)

    def values(self) -> NDArray[np.int64]:
        """Return the residuals at the cut and above."""
        return self.kind.above.space.measure(list(self.tables.values()))

    def part(self, node: int) -> PartOfKind:
        """Return what the kind has in one part."""
        kind, grid = self.kind, self.kind.schema.grid
        expected = []
        for table in kind.below:
            view = kind.cut.above(kind.schema.view(table.features))
            counts = self.tables[view].counts.reshape(grid.shape_of(view))
            expected.append(kind.cut.row(grid, view, counts, node))
        schema, exact = kind.cut.branch(kind.schema, node), kind.cut.exact(self.public, node)
        features = tuple(table.features for table in kind.below)
        return PartOfKind(
            counted=kind.counted,
            schema=schema,
            cut=kind.cut,
            exact=exact,
            declared=self.declared,
            features=features,
            expected=tuple(expected),
            noise=kind.branch(node),
        )


class LinkedPartsSteps:
    """Linked tables that are measured in parts and fitted in one piece, on their way through a
    release.

    Parameters
    ----------
    request, mechanism
        What is asked for, and its noise: that of the whole.
    depth
        The name of the depth of the cut.
    scope
        What is public.
    at_cut
        Members and units at the cut.
    """

    stems: Sequence[str] = ()
    together = True

    def __init__(
        self,
        request: LinkedTablesRequest,
        mechanism: LinkedMechanism,
        depth: str,
        scope: Scope,
        at_cut: tuple[AtCut, AtCut],
    ) -> None:
        self.request = request
        self.mechanism = mechanism
        self.depth = depth
        self.scope = scope
        self.at_cut = at_cut
        self.values = np.concatenate([kind.values() for kind in at_cut])
        self._noisy = self.values[:0]
        self._private = False
        self._done: LinkedPartsTables | None = None

    @property
    def kinds(self) -> tuple[CutKind, CutKind]:
        """Members and units, cut."""
        return self.at_cut[0].kind, self.at_cut[1].kind

    def foreseen(self) -> list[str]:
        """Everything is published as in a release without parts."""
        return []

    def drawn(self, randomness: Randomness) -> NDArray[np.int64]:
        """Add the noise to the residuals at the cut and above."""
        noise = []
        for kind in self.kinds:
            source = randomness.part(self.request.name, "above", kind.counted)
            noise.append(kind.above.noise_by_residual(source))
        return self.values + np.concatenate(noise)

    def begin(self, noisy: NDArray[np.int64], private: bool) -> None:
        """Take what was measured before the parts."""
        if noisy.shape != self.values.shape or noisy.dtype != np.int64:
            raise ValueError("the measurements are not those of the plan")
        self._noisy, self._private = noisy, private

    def part_work(self, node: int) -> LinkedPartsWork:
        """Return what is to be done in one part: to measure it, or to write its rows."""
        members, units = self.at_cut
        work = LinkedPartsWork(self.request, (members.part(node), units.part(node)))
        if self._done is None:
            return work
        rows, measured = tuple(self._done.rows(node)), self._done.measured_in(node)
        return replace(work, rows=rows, measured=measured)

    def settle(self, number: int, work: Path, progress: Progress) -> None:
        """Put the measurements of all parts together, make both kinds agree and fit whole numbers,
        or read the fits made before.

        Parameters
        ----------
        number
            Which request of the plan it is.
        work
            The folder of the unfinished release.
        progress
            Told what is going on.
        """
        vector = self._assembled(work)
        measured = self.mechanism.measured_again(vector, self._private)
        stored = work / STATE / f"fit-{number}.npz"
        try:
            # A search may end elsewhere now, and parts that are written hold the first result.
            fits = self._split(read_fits(stored))
        except FileNotFoundError:
            fits = linked_fits(self.request, self.mechanism, measured, progress)
            store_fits(stored, self._joined(fits))
        whole = published_linked(self.request, self.mechanism, measured, progress, fits)
        stated = measured_by(self.request.name, self.mechanism, self._private)
        self._done = LinkedPartsTables(
            request=self.request,
            mechanism=self.mechanism,
            noisy=whole.noisy,
            members=whole.members,
            units=whole.units,
            fitted_units=whole.fitted_units,
            depth=self.depth,
            **stated,
        )

    def _joined(self, fits: LinkedFits) -> Fits:
        """The fits of both kinds by their views, with the number of the kind before each."""
        joined: Fits = {}
        for kind, space in enumerate(self.mechanism.space.kinds):
            for view, fit in zip(space.views, fits[kind], strict=True):
                joined[(kind, *view)] = fit
        return joined

    def _split(self, joined: Fits) -> LinkedFits:
        """The inverse of `_joined`."""
        members, units = self.mechanism.space.kinds
        of_members = [joined[(0, *view)] for view in members.views]
        return of_members, [joined[(1, *view)] for view in units.views]

    def _assembled(self, work: Path) -> NDArray[np.int64]:
        """Return the measurement of the whole, read from what every part has stored."""
        schema, cut = self.kinds[0].schema, self.kinds[0].cut
        measured = {}
        for node in range(cut.chain(schema).size(cut.depth)):
            if any(kind.branch(node) is not None for kind in self.kinds):
                file = stored_measurement(work, self.request, part_path(schema, cut, node))
                measured[node] = _read_noisy(file)
        return both_vectors(self.kinds, self._noisy, measured)

    def published(self, parts: Sequence[Part], work: Path, progress: Progress) -> LinkedPartsTables:
        """Return what is published, when all parts are written."""
        assert self._done is not None
        return replace(self._done, parts=tuple(parts))


def _read_noisy(stored: Path) -> NDArray[np.int64]:
    try:
        return read_parquet(stored, ["noisy"])["noisy"]
    except (ValueError, OSError):
        raise DataError(
            "what was measured of a part is damaged: discard the unfinished release"
        ) from None


def linked_parts_steps_of(
    request: LinkedTablesRequest,
    mechanism: LinkedMechanism,
    cut: Cut,
    scope: Scope,
    reader: LinkedReader,
) -> LinkedPartsSteps:
    """Read both kinds at the cut; refuse tables that are too large to be fitted in one piece.

    Parameters
    ----------
    request, mechanism
        What is asked for, and its noise.
    cut, scope
        Where members are taken apart, and what is public.
    reader
        Reads the records of both kinds.
    """
    members = mechanism.space.members.schema
    depth = members.features[cut.axis].names[cut.depth - 1]
    kinds = cut_kinds(request, mechanism, depth)
    if not any(kind.below for kind in kinds):
        raise InputError(
            f"no table is finer than {depth!r}, so that there is nothing to release part by part"
        )
    cells = 0
    for space in mechanism.space.kinds:
        cells += sum(map(space.schema.grid.size_of, space.views))
    if cells > MOST_TOGETHER:
        raise Refused(
            "linked tables are fitted in one piece, because members and units agree in all parts,"
            f" and {cells:,} cells are too many for that (at most {MOST_TOGETHER:,}): release"
            " coarser tables"
        )
    public = mechanism.space.dataspace
    of_members, of_units = kinds
    at_cut = (
        AtCut.read(of_members, public.members, reader.members),
        AtCut.read(of_units, public.units, reader.units),
    )
    return LinkedPartsSteps(request, mechanism, depth, scope, at_cut)
