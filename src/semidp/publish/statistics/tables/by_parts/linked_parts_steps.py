"""Linked tables by parts, steps of a release: measured at the cut, in each part, then
made to agree and fitted together.

Noise is calibrated to both kinds as a whole, so that the guarantee is that of one measurement of
all residuals, whoever draws them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.branch_noise import BranchNoise
from semidp.promise.mechanisms.mechanism import Measurement
from semidp.promise.noise.randomness import Randomness
from semidp.promise.progress import Progress
from semidp.promise.schema.counts import Table
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import View
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.branches import Cut
from semidp.promise.spaces.dataspace import Dataspace
from semidp.publish.linked_mechanism import LinkedMechanism
from semidp.publish.results.cells import Columns
from semidp.publish.sources.linked_records import LinkedReader, LinkedSource
from semidp.publish.sources.reader import Reader
from semidp.publish.statistics.parts import PartTask, part_path
from semidp.publish.statistics.protocol.results import mechanism_fields
from semidp.publish.statistics.tables.by_parts.linked_parts_published import (
    CutKind,
    LinkedPartsTables,
    both_vectors,
    cut_kinds,
)
from semidp.publish.statistics.tables.by_parts.measured_first import (
    MeasuredFirstSteps,
    MeasuredFirstWork,
)
from semidp.publish.statistics.tables.by_parts.part_measurement import (
    counted_tables,
    counts_at_cut,
    read_noisy,
    refuse_overflow,
    stored_measurement,
)
from semidp.publish.statistics.tables.by_parts.separate_fits import MOST_TOGETHER, Fits
from semidp.publish.statistics.tables.by_parts.stored_fits import read_fits, store_fits
from semidp.publish.statistics.tables.linked_published import (
    LINKED_MEASUREMENTS,
    LinkedFits,
    linked_columns,
    linked_fits,
    published_linked,
)
from semidp.publish.statistics.tables.linked_request import LinkedTablesRequest

# --- the work of one part -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PartOfKind:
    """Work of one part for one kind of linked records.

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
        """Return the task of the part with the features, cut and totals of this kind alone."""
        # Computed features of units are declared beside the plan's, which the task has cut.
        taken = {feature.name for feature in task.declared}
        computed = [feature for feature in self.declared if feature.name not in taken]
        declared = (*task.declared, *computed)
        return replace(task, schema=self.schema, cut=self.cut, exact=self.exact, declared=declared)


@dataclass(frozen=True, eq=False, kw_only=True)
class LinkedPartsWork(MeasuredFirstWork):
    """Work of one part for linked tables: count both kinds and add noise, then write rows of tables
    that were fitted in one piece.

    Parameters
    ----------
    kinds
        Members and units of the part.
    """

    kinds: tuple[PartOfKind, PartOfKind] = field(repr=False)
    measurements: ClassVar[str] = LINKED_MEASUREMENTS

    @property
    def has_noise(self) -> bool:
        """Whether members or units are measured in the part."""
        return any(kind.noise is not None for kind in self.kinds)

    def measure_noisy_counts(self, task: PartTask, source: LinkedSource | None) -> Columns | None:
        """Count the members and units of a part, and add noise to the residuals of both."""
        drawn = [np.zeros(0, np.int64)]
        records = (None, None) if source is None else (source.members, source.units)
        for kind, of_kind in zip(self.kinds, records, strict=True):
            counted = counted_tables(kind.task(task), kind.features, kind.expected, of_kind)
            if kind.noise is None:
                continue
            # Kind and path are parts of the key: with one source they would have the same noise.
            randomness = task.randomness.part(self.request.name, kind.counted, *task.path)
            drawn += [part.ravel() for part in kind.noise.measure(counted, randomness).values()]
        if not self.has_noise:
            return None
        spaces = [None if kind.noise is None else kind.noise.space for kind in self.kinds]
        return linked_columns(spaces, np.concatenate(drawn))


# --- before and after the parts -------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class KindTablesAtCut:
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
    def read(cls, kind: CutKind, public: Dataspace, reader: Reader) -> "KindTablesAtCut":
        """Read the tables of one kind at the cut; refuse numbers now that a part would refuse after
        the charge.
        """
        refuse_overflow(kind.noise.space, public.n)
        views = kind.mechanism_above_cut.space.views
        tables = reader.tables(kind.schema.list_view_names(view) for view in views)
        return cls(kind, dict(zip(views, tables, strict=True)), public, reader.declared)

    def values(self) -> NDArray[np.int64]:
        """Return the residuals at the cut and above."""
        return self.kind.mechanism_above_cut.space.measure(list(self.tables.values()))

    def part(self, node: int) -> PartOfKind:
        """Return the work of one part for this kind."""
        kind = self.kind
        expected = counts_at_cut(kind.tables_below_cut, kind.schema, kind.cut, self.tables, node)
        schema, exact = kind.cut.branch(kind.schema, node), kind.cut.exact(self.public, node)
        features = tuple(table.features for table in kind.tables_below_cut)
        return PartOfKind(
            counted=kind.counted,
            schema=schema,
            cut=kind.cut,
            exact=exact,
            declared=self.declared,
            features=features,
            expected=expected,
            noise=kind.branch(node),
        )


class LinkedPartsSteps(MeasuredFirstSteps[LinkedPartsTables]):
    """Steps of a release by parts for linked tables, which are measured in parts and fitted in one
    piece.

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

    mechanism: LinkedMechanism

    def __init__(
        self,
        request: LinkedTablesRequest,
        mechanism: LinkedMechanism,
        depth: str,
        scope: Scope,
        at_cut: tuple[KindTablesAtCut, KindTablesAtCut],
    ) -> None:
        values = np.concatenate([kind.values() for kind in at_cut])
        super().__init__(mechanism, values)
        self.request = request
        self.depth = depth
        self.scope = scope
        self.at_cut = at_cut

    @property
    def kinds(self) -> tuple[CutKind, CutKind]:
        """Members and units, each cut."""
        return self.at_cut[0].kind, self.at_cut[1].kind

    def add_noise(self, randomness: Randomness) -> NDArray[np.int64]:
        """Add the noise to the residuals at the cut and above."""
        noise = []
        for kind in self.kinds:
            source = randomness.part(self.request.name, "above", kind.counted)
            noise.append(kind.mechanism_above_cut.noise_by_residual(source))
        return self.values + np.concatenate(noise)

    def measuring(self, node: int) -> LinkedPartsWork:
        """Return the work of measuring one part."""
        members, units = self.at_cut
        kinds = members.part(node), units.part(node)
        return LinkedPartsWork(request=self.request, kinds=kinds)

    def fit_tables(
        self, measured: Measurement, stored: Path, progress: Progress
    ) -> LinkedPartsTables:
        """Make both kinds agree, with the stored whole numbers; fit and store them where there are
        none.
        """
        try:
            fits = self._split(read_fits(stored))
        except FileNotFoundError:
            fits = linked_fits(self.request, self.mechanism, measured, progress)
            store_fits(stored, self._join_fits(fits))
        whole = published_linked(self.request, self.mechanism, measured, progress, fits)
        stated = mechanism_fields(self.request.name, self.mechanism, self._private)
        return LinkedPartsTables(
            request=self.request,
            mechanism=self.mechanism,
            noisy=whole.noisy,
            members=whole.members,
            units=whole.units,
            fitted_units=whole.fitted_units,
            depth=self.depth,
            **stated,
        )

    def _join_fits(self, fits: LinkedFits) -> Fits:
        """Fits of both kinds by their views; the number of the kind comes before the view."""
        joined: Fits = {}
        for kind, space in enumerate(self.mechanism.space.kinds):
            for view, fit in zip(space.views, fits[kind], strict=True):
                joined[(kind, *view)] = fit
        return joined

    def _split(self, joined: Fits) -> LinkedFits:
        """The inverse of `_join_fits`."""
        members, units = self.mechanism.space.kinds
        of_members = [joined[(0, *view)] for view in members.views]
        return of_members, [joined[(1, *view)] for view in units.views]

    def assemble_measurement(self, work: Path) -> NDArray[np.int64]:
        """Return the residuals of both kinds, from what every part has stored."""
        schema, cut = self.kinds[0].schema, self.kinds[0].cut
        measured = {}
        for node in range(cut.chain(schema).size(cut.depth)):
            if any(kind.branch(node) is not None for kind in self.kinds):
                file = stored_measurement(work, self.request, part_path(schema, cut, node))
                measured[node] = read_noisy(file)
        return both_vectors(self.kinds, self._noisy, measured)


def prepare_linked_parts_steps(
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
    depth = cut.name(mechanism.space.members.schema)
    kinds = cut_kinds(request, mechanism, depth)
    if not any(kind.tables_below_cut for kind in kinds):
        raise InputError(
            f"no table is finer than {depth!r}, so that there is nothing to release part by part"
        )
    cells = 0
    for space in mechanism.space.kinds:
        cells += sum(map(space.schema.grid.count_margin_cells, space.views))
    if cells > MOST_TOGETHER:
        raise Refused(
            "linked tables are fitted in one piece, because members and units agree in all parts,"
            f" and {cells:,} cells are too many for that (at most {MOST_TOGETHER:,}): release"
            " coarser tables"
        )
    public = mechanism.space.dataspace
    of_members, of_units = kinds
    at_cut = (
        KindTablesAtCut.read(of_members, public.members, reader.members),
        KindTablesAtCut.read(of_units, public.units, reader.units),
    )
    return LinkedPartsSteps(request, mechanism, depth, scope, at_cut)
