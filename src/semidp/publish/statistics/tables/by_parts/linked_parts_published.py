"""Linked tables by parts, the published result: members and units, measured part by part, put
together and made to agree; parts hold their rows.

What one piece publishes of the same measurement is what is published here, number by number. The
steps that make it are in `linked_parts_steps`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from semidp.errors import DataError, InputError
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.branch_noise import BranchNoise, mechanism_above
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.mechanisms.residual_noise import ResidualMechanism
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.branches import Cut
from semidp.promise.sensitivity.products import ProductSpace
from semidp.promise.spaces.linked import MEMBER, UNIT
from semidp.publish.linked_mechanism import LinkedMechanism
from semidp.publish.results.cells import Columns, Form, StoredFiles, named_files
from semidp.publish.results.published_table import Fitted, PublishedTable
from semidp.publish.results.sections import Details, Section
from semidp.publish.statistics.parts import Part, Partition
from semidp.publish.statistics.protocol.rechecks import ResultCheck
from semidp.publish.statistics.protocol.results import Published, read_back
from semidp.publish.statistics.tables.by_parts import parts_words
from semidp.publish.statistics.tables.by_parts.assembled_measurement import (
    branch_vector,
    whole_vector,
)
from semidp.publish.statistics.tables.by_parts.part_measurement import split_residuals
from semidp.publish.statistics.tables.by_parts.table_of_parts import (
    BY_PARTS,
    TableOfParts,
    cut_up,
    files_of_parts,
    in_memory,
    placed_tables,
    read_rows,
    select_part_rows,
    tables_below,
    uncut,
)
from semidp.publish.statistics.tables.linked_published import (
    KINDS,
    LINKED_MEASUREMENTS,
    PublishedLinked,
    linked_columns,
    linked_noise_from_json,
    published_schema,
)
from semidp.publish.statistics.tables.request import TableRequest

if TYPE_CHECKING:
    from semidp.publish.statistics.tables.linked_request import LinkedTablesRequest


# --- both kinds, cut ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CutKind:
    """One kind of linked records, cut at a depth of the places that both kinds have.

    Parameters
    ----------
    counted
        Which kind it is.
    noise
        The noise of all of its residuals.
    cut
        Where the depth is among its features.
    asked
        Its tables.
    """

    counted: str
    noise: ResidualMechanism = field(repr=False)
    cut: Cut
    asked: tuple[TableRequest, ...]

    @property
    def schema(self) -> Schema:
        """Features of this kind."""
        return self.noise.space.schema

    @property
    def mechanism_above_cut(self) -> ResidualMechanism:
        """Noise of this kind at the cut and above."""
        return mechanism_above(self.noise, self.cut)

    @property
    def tables_below_cut(self) -> tuple[TableRequest, ...]:
        """Tables of this kind that reach below the cut. Their rows are in the parts."""
        return tables_below(self.asked, self.schema, self.cut)

    def branch(self, node: int) -> BranchNoise | None:
        """Noise of this kind below one node; None where the node can hold no record, or nothing is
        asked for below it.
        """
        return (
            BranchNoise.from_mechanism(self.noise, self.cut, node)
            if self.tables_below_cut
            else None
        )


def cut_kinds(
    request: "LinkedTablesRequest", mechanism: LinkedMechanism, depth: str
) -> tuple[CutKind, CutKind]:
    """Return both kinds, cut at the depth named `depth`; refuse a depth that only one of them
    has.
    """
    members, units = mechanism.space.kinds
    names = [name for feature in units.schema.features for name in feature.names[:-1]]
    if depth not in names:
        raise InputError(
            f"{depth!r} is no depth of a nested feature of units, by which members and units are"
            " released part by part",
            needs="partition",
        )
    of_members, of_units = Cut.from_name(members.schema, depth), Cut.from_name(units.schema, depth)
    return (
        CutKind(MEMBER, mechanism.members, of_members, request.members),
        CutKind(UNIT, mechanism.units, of_units, request.units),
    )


def split_parts(
    branches: "tuple[BranchNoise | None, BranchNoise | None]", noisy: NDArray[np.int64]
) -> list[Mapping[Any, NDArray[np.int64]]]:
    """Split the measurement of one part into the residuals of members and of units; refuse one that
    does not fit the plan.
    """
    residuals: list[Mapping[Any, NDArray[np.int64]]] = []
    start = 0
    for noise in branches:
        if noise is None:
            residuals.append({})
            continue
        stop = start + noise.space.scales.size
        residuals.append(split_residuals(noise.space, noisy[start:stop]))
        start = stop
    if start != noisy.size:
        raise DataError("the measurements of a part are not those of the plan")
    return residuals


def both_vectors(
    kinds: tuple[CutKind, CutKind],
    above: NDArray[np.int64],
    measured: Mapping[int, NDArray[np.int64]],
) -> NDArray[np.int64]:
    """Return the measurement of both kinds as one vector, as one piece measures it.

    Parameters
    ----------
    kinds
        Both kinds, cut.
    above
        What was measured at the cut and above, members first.
    measured
        For each part, by its node, what was measured in it.
    """
    members, units = kinds
    first = members.mechanism_above_cut.space.scales.size
    of_members: dict[int, Any] = {}
    of_units: dict[int, Any] = {}
    for node, noisy in measured.items():
        branches = (members.branch(node), units.branch(node))
        of_members[node], of_units[node] = split_parts(branches, noisy)
    vectors = [
        whole_vector(members.noise, members.cut, above[:first], of_members),
        whole_vector(units.noise, units.cut, above[first:], of_units),
    ]
    return np.concatenate(vectors)


# --- what is published ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class LinkedPartsTables(PublishedLinked):
    """Linked tables that were measured in parts; each part holds its rows of them.

    Parameters
    ----------
    request, mechanism, noisy, members, units
        As for linked tables in one piece: the measurement of all parts, put together.
    depth
        The name of the depth at which both kinds were cut.
    parts
        The parts of the release, when all of them are done.
    stated
        For how many places a release that was read says that both kinds agree, and how many there
        are: counting them takes the cells of all parts.
    """

    key: ClassVar[str] = BY_PARTS

    depth: str
    parts: tuple[Part, ...] = field(default=(), repr=False)
    stated: tuple[int, int] | None = None

    @property
    def agreeing(self) -> tuple[int, int]:
        """At how many places the whole numbers of both kinds agree, and how many places there
        are.
        """
        return super().agreeing if self.stated is None else self.stated

    @property
    def cut_kinds(self) -> tuple[CutKind, CutKind]:
        """Members and units, each cut at the depth."""
        return cut_kinds(self.request, self.mechanism, self.depth)

    @property
    def schema(self) -> Schema:
        """Features of members. They include the places of the parts."""
        return self.mechanism.space.members.schema

    @property
    def cut(self) -> Cut:
        """Cut of the members."""
        return self.cut_kinds[0].cut

    @property
    def tables_below_cut(self) -> tuple[TableRequest, ...]:
        """Tables of both kinds that reach below the cut. Their rows are in the parts."""
        members, units = self.cut_kinds
        return (*members.tables_below_cut, *units.tables_below_cut)

    def held_tables(self) -> tuple[PublishedTable, ...]:
        """Return the tables that do not reach below the cut. Their cells are in the files of the
        release itself.
        """
        return uncut(self.tables, self.tables_below_cut)

    def with_partition(self, partition: Partition) -> "LinkedPartsTables":
        """Return the result with tables that are read from the folders of the parts."""
        members = placed_tables(self.members, self.tables_below_cut, partition)
        units = placed_tables(self.units, self.tables_below_cut, partition)
        agreeing = self.agreeing
        return replace(self, members=members, units=units, parts=partition.parts, stated=agreeing)

    def part_stems(self) -> tuple[list[str], str]:
        """Return the names of the tables in a part, and the name of the file with its
        measurement.
        """
        return [table.name for table in self.tables_below_cut], LINKED_MEASUREMENTS

    def tables_of_part(self, files: StoredFiles, node: int, part: Part) -> list[PublishedTable]:
        """Read the rows of one part."""
        tables = cut_up(self.tables, self.tables_below_cut)
        return read_rows(files, tables, self.depth, node, part)

    def rows(self, node: int) -> list[PublishedTable]:
        """Return the rows that one part has of every table that reaches below the cut."""
        tables = cut_up(self.tables, self.tables_below_cut)
        return [select_part_rows(table, self.depth, node) for table in tables]

    def measured_columns(self, node: int) -> Columns | None:
        """Return the measurement of one part, as its file has it; None where the part can hold no
        record.
        """
        pieces: list[NDArray[np.int64]] = []
        spaces: list[ProductSpace | None] = []
        halves = self.mechanism.space.split(self.noisy)
        for kind, half in zip(self.cut_kinds, halves, strict=True):
            noise = kind.branch(node)
            spaces.append(None if noise is None else noise.space)
            if noise is not None:
                pieces.append(branch_vector(kind.noise, kind.cut, node, noise, half))
        return linked_columns(spaces, np.concatenate(pieces)) if pieces else None

    # --- what is said of it

    def noisy_lines(self) -> list[str]:
        """Say how many cells each table has, in how many parts."""
        return parts_words.linked_lines(self)

    def sections(self, form: Form | None = None) -> list[Section]:
        """Return the sections of one piece, and how parts were measured."""
        return [*super().sections(form), parts_words.linked_section(self)]

    def details(self) -> Details:
        """Say how they were measured."""
        return Details(
            "the linked tables",
            "exact noise on each residual of members and of units, part by part; put together and"
            " fitted in one piece",
        )

    def file_words(self, form: Form | None = None) -> list[tuple[str, str]]:
        """Say what the files of the release itself hold."""
        words = "the linked tables, as far as they are not cut by"
        return [(file, f"{words} {self.depth}") for file in self.files(form)]

    def files(self, form: Form | None = None) -> dict[str, Columns]:
        """Return the tables that are not cut, and the residuals that were measured at the cut and
        above.
        """
        columns = {table.name: table.columns() for table in self.held_tables()}
        spaces = [kind.mechanism_above_cut.space for kind in self.cut_kinds]
        pieces = [np.zeros(0, np.int64)]
        halves = self.mechanism.space.split(self.noisy)
        for kind, space, half in zip(self.cut_kinds, spaces, halves, strict=True):
            pieces += [half[kind.noise.space.parts[view]] for view in space.parts]
        columns[LINKED_MEASUREMENTS] = linked_columns(spaces, np.concatenate(pieces))
        return named_files(columns, form)

    # --- computed again

    def recheck(self, check: ResultCheck, mechanism: Mechanism) -> "LinkedPartsTables":
        """Compare the tables with those that follow from the measurement of all parts, then every
        part with its rows.
        """
        from semidp.publish.statistics.tables.by_parts.assembled_recheck import recheck_assembled

        return recheck_assembled(self, check, mechanism)

    def in_one_piece(self) -> PublishedLinked:
        """Return the same result as a release without parts holds it, with every cell in memory."""
        kinds = []
        for tables in (self.members, self.units):
            kinds.append(tuple(map(in_memory, tables)))
        return PublishedLinked(
            request=self.request,
            mechanism=self.mechanism,
            noisy=self.noisy,
            members=kinds[0],
            units=kinds[1],
            fitted_units=self.fitted_units,
            name=self.name,
            noise=self.noise,
            guarantee=self.guarantee,
            advertised=self.advertised,
            private=self.private,
        )

    def with_recomputed_numbers(self, again: Published) -> "LinkedPartsTables":
        """Return this result with the recomputed numbers of `again`, a result in one piece."""
        assert isinstance(again, PublishedLinked)
        return replace(
            self,
            mechanism=again.mechanism,
            members=again.members,
            units=again.units,
            stated=None,
            noise=again.noise,
            guarantee=again.guarantee,
            advertised=again.advertised,
        )


# --- reading --------------------------------------------------------------------------------------


def read_linked_by_parts(
    entry: Mapping[str, Any],
    request: "LinkedTablesRequest",
    partition: Partition,
    scope: Scope,
    files: StoredFiles,
) -> LinkedPartsTables:
    """Read linked tables that were measured in parts."""
    mechanism = linked_noise_from_json(entry, request.space(scope))
    kinds = cut_kinds(request, mechanism, partition.depth)
    above = files.numbers(LINKED_MEASUREMENTS, 2)["noisy"]
    size = sum(kind.mechanism_above_cut.space.scales.size for kind in kinds)
    if above.shape != (size,) or above.dtype != np.int64:
        raise ValueError("the measurements are not those of the plan")
    measured = {}
    for node, part in enumerate(files_of_parts(partition, files.folder)):
        if any(kind.branch(node) is not None for kind in kinds):
            measured[node] = part.numbers(LINKED_MEASUREMENTS, 2)["noisy"]
    tables = []
    for key, kind, space in zip(KINDS, kinds, mechanism.space.kinds, strict=True):
        of_kind = []
        for stated, asked in zip(entry[key]["tables"], kind.asked, strict=True):
            schema = published_schema(request, space, asked)
            fitted = Fitted(**stated["fit"])
            if asked in kind.tables_below_cut:
                table: PublishedTable = TableOfParts(
                    asked.name, schema, partition, kind.counted, fitted
                )
            else:
                table = PublishedTable.read(files, asked.name, schema, fitted, kind.counted)
            of_kind.append(table)
        tables.append(tuple(of_kind))
    return LinkedPartsTables(
        request=request,
        mechanism=mechanism,
        noisy=both_vectors(kinds, above, measured),
        members=tables[0],
        units=tables[1],
        depth=partition.depth,
        parts=partition.parts,
        stated=(_require_integer(entry["agreeing"]), _require_integer(entry["places"])),
        **read_back(entry, scope),
    )


def _require_integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("places are counted in whole numbers")
    return value
