"""Measured residuals in files, and tables that are cut at a depth of a nested feature: a block of
noisy numbers at the cut and above, and one below each node.

Noise is calibrated to the whole. Blocks only determine who draws which part of it: the guarantee is
that of one measurement. This module has the tables of one kind of record, the division of their
measurement into blocks and its reassembly, and the rows of each part.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from semidp.errors import DataError, InputError
from semidp.promise.exact import positive
from semidp.promise.mechanisms.branch_noise import BranchNoise, BranchSpace, Cut, mechanism_above
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.schema.margins import View, list_axes
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.linked_products import LinkedSpace
from semidp.promise.sensitivity.orthogonal_parts import kept_nodes
from semidp.promise.sensitivity.products import ProductSpace
from semidp.promise.spaces.dataspace import RECORD
from semidp.promise.spaces.linked import MEMBER, UNIT
from semidp.publish.linked_mechanism import LinkedMechanism
from semidp.publish.placement import Workload
from semidp.publish.residual_mechanism import ResidualMechanism
from semidp.publish.results.columns import Columns, Labels, StoredFiles
from semidp.publish.results.published_table import PublishedTable, is_size
from semidp.publish.statistics.tables.asked import TableRequest

RESIDUAL_FIELDS = ("precision", "law", "residuals")
"""The fields of release.json that state the noise of residuals."""

RESIDUAL_MEANINGS = {
    "residual": "the features whose residual was measured",
    "scale": "what the entry was multiplied by before noise was added",
}
"""The meaning of the columns of measured residuals, for the description of their file."""

LAWS = ("discrete", "rounded")
"""The laws of noise on residuals, as release.json names them."""


def residuals_json(mechanism: ResidualMechanism) -> dict[str, Any]:
    """Return the noise of every residual as plain values."""
    # σ² is written as an exact fraction, so the claim is checked for the noise that was drawn.
    schema = mechanism.space.schema
    return {
        "precision": str(mechanism.precision),
        "law": mechanism.law,
        "saved_by_joint_sensitivity": mechanism.saved,
        "residuals": [
            {"features": list(schema.list_view_names(view)), "sigma2": str(square)}
            for view, square in mechanism.sigma2.items()
        ],
    }


def residuals_from_json(
    entry: Mapping[str, Any], space: ProductSpace, workload: Workload | None = None
) -> ResidualMechanism:
    """Read what `residuals_json` wrote; refuse residuals that are not those of the space."""
    squares = {
        space.schema.view(part["features"]): positive(part["sigma2"], "σ²")
        for part in entry["residuals"]
    }
    # A residual that is left out here would be taken for one without noise, and cost nothing.
    if set(squares) != set(space.measured_residuals):
        raise ValueError("the residuals are not those of the plan")
    squares = {view: squares[view] for view in space.measured_residuals}
    precision, law, saved = entry["precision"], entry["law"], entry["saved_by_joint_sensitivity"]
    if law not in LAWS:
        raise ValueError("the noise of residuals has a law")
    if not is_size(saved) or saved >= 1:
        raise ValueError("what the joint sensitivity saved is a part of the variance")
    return ResidualMechanism(
        space, squares, positive(precision, "the precision"), law, saved, workload
    )


def residual_columns(
    spaces: Sequence[ProductSpace | BranchSpace | None], noisy: NDArray[np.int64]
) -> Columns:
    """Return the measured residuals, one row per entry: of one kind of record, or of members and
    units.

    A kind of which nothing was measured has no space.
    """
    names, kinds, sizes = list[str](), list[str](), list[int]()
    scales = [np.zeros(0, np.int64)]
    for kind, space in zip((MEMBER, UNIT), spaces, strict=False):
        if space is None:
            continue
        scales.append(space.scales)
        for view, part in space.parts.items():
            names.append(" × ".join(space.schema.list_view_names(view)))
            kinds.append(kind)
            sizes.append(part.stop - part.start)
    which = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    entries = np.concatenate([np.zeros(0, np.int64), *(np.arange(size) for size in sizes)])
    labels = {"residual": Labels(names or ["none"], codes=which)}
    meanings = RESIDUAL_MEANINGS
    if len(spaces) > 1:
        labels = {"kind": Labels(kinds or ["none"], codes=which), **labels}
        meanings = {**meanings, "kind": "the kind of record whose residual was measured"}
    numbers = {"entry": entries, "scale": np.concatenate(scales), "noisy": noisy}
    # the rows of one residual share their label
    return Columns(labels, numbers, meanings, key=())


def read_residuals(
    files: StoredFiles, name: str, space: ProductSpace | LinkedSpace
) -> NDArray[np.int64]:
    """Read what `residual_columns` wrote; refuse measurements that are not of the space."""
    labels = 2 if isinstance(space, LinkedSpace) else 1
    noisy: NDArray[np.int64] = files.numbers(name, labels)["noisy"]
    if noisy.shape != tuple(space.shape) or noisy.dtype != np.int64:
        raise ValueError("the measurements are not those of the plan")
    return noisy


Integers = NDArray[np.int64]
_OTHER = "the measurements of a part are not those of the plan"


@frozen(slots=False, eq=False)
class CutKind:
    """Tables of one kind of record and their noise, cut.

    Parameters
    ----------
    counted
        The kind of record.
    mechanism
        The noise of the whole: on residuals, or cell by cell.
    schema, cut
        The features of such a record, and where they are cut.
    asked
        The tables.
    key
        Separates its sources of noise from those of the other kind.
    """

    counted: str
    mechanism: Mechanism = field(repr=False)
    schema: Schema = field(repr=False)
    cut: Cut
    asked: tuple[TableRequest, ...]
    key: tuple[str, ...] = ()

    @property
    def residuals(self) -> ResidualMechanism | None:
        """The noise on residuals; None if cells are measured."""
        return self.mechanism if isinstance(self.mechanism, ResidualMechanism) else None

    @cached_property
    def above(self) -> ResidualMechanism | None:
        """The noise at the cut and above; None if cells are measured, all of them below."""
        return None if self.residuals is None else mechanism_above(self.residuals, self.cut)

    @cached_property
    def below(self) -> tuple[TableRequest, ...]:
        """The tables that reach below the cut. Their rows are in the parts."""
        views = [self.schema.view(table.features) for table in self.asked]
        pairs = zip(self.asked, views, strict=True)
        return tuple(table for table, view in pairs if self.cut.reaches(view))

    @property
    def nodes(self) -> int:
        """The number of parts."""
        return self.cut.chain(self.schema).size(self.cut.depth)

    def noise(self, node: int) -> BranchNoise | Mechanism | None:
        """Return the noise below one node; None if the node can hold no record, or nothing is
        asked for below it.
        """
        if not self.below:
            return None
        if self.residuals is None:
            return self.mechanism
        return BranchNoise.from_mechanism(self.residuals, self.cut, node)

    def count_entries(self, node: int) -> int:
        """Return how many numbers are measured below one node."""
        noise = self.noise(node)
        if noise is None:
            return 0
        if isinstance(noise, BranchNoise):
            return int(noise.space.scales.size)
        return self._cells(node).size

    def _cells(self, node: int) -> Schema:
        """Cells of the one table below a node whose cells are measured."""
        (table,) = self.asked
        return self.cut.branch(self.schema, node).restrict(table.features)

    @property
    def size_above(self) -> int:
        """How many numbers are measured at the cut and above."""
        return 0 if self.above is None else int(self.above.space.scales.size)

    # --- one vector, and blocks of it

    def join(self, above: Integers, below: Mapping[int, Integers]) -> Integers:
        """Return the whole measurement, as in one piece.

        A residual of an only child is zero, and no part measures it: its entries stay 0.
        """
        if self.residuals is None or self.above is None:
            return self._join_cells(below)
        space = self.residuals.space
        vector = np.zeros(space.shape, dtype=np.int64)
        for view, part in self.above.space.parts.items():
            vector[space.parts[view]] = above[part]
        for node, measured in below.items():
            noise = self.noise(node)
            if isinstance(noise, BranchNoise):
                for view, values in split_residuals(noise.space, measured).items():
                    # A slice reshaped is a view of the vector: what is set in it is set there.
                    whole = vector[space.parts[view]].reshape(space.residuals.shape(view))
                    whole[self._place(space, node, view)] = values
        return vector

    def _join_cells(self, below: Mapping[int, Integers]) -> Integers:
        (asked,) = self.asked
        view = self.schema.view(asked.features)
        whole = np.zeros(self.schema.grid.compute_margin_shape(view), dtype=np.int64)
        for node, values in below.items():
            row = self.cut.row(self.schema.grid, view, whole, node)
            if values.size != row.size or values.dtype != np.int64:
                raise DataError(_OTHER)
            row[...] = values.reshape(row.shape)
        return whole.reshape(self.schema.restrict(asked.features).shape)

    def take_above(self, whole: Integers) -> Integers:
        """Return what was measured at the cut and above, of the whole measurement."""
        pieces = [np.zeros(0, np.int64)]
        if self.residuals is not None and self.above is not None:
            parts = self.residuals.space.parts
            pieces += [whole[parts[view]] for view in self.above.space.parts]
        return np.concatenate(pieces)

    def take_below(self, whole: Integers, node: int) -> Integers:
        """Return what was measured below one node, of the whole measurement."""
        noise = self.noise(node)
        pieces = [np.zeros(0, np.int64)]
        if isinstance(noise, BranchNoise) and self.residuals is not None:
            space = self.residuals.space
            for view in noise.space.parts:
                values = whole[space.parts[view]].reshape(space.residuals.shape(view))
                pieces.append(values[self._place(space, node, view)].ravel())
        elif noise is not None:
            view = self.schema.view(self.asked[0].features)
            grid = self.schema.grid
            cells = whole.reshape(grid.compute_margin_shape(view))
            pieces.append(self.cut.row(grid, view, cells, node).ravel())
        return np.concatenate(pieces)

    def _place(self, space: ProductSpace, node: int, view: View) -> tuple[slice, ...]:
        """Indices of one part's entries in a residual of the whole. Nodes that can hold no record
        are left out.
        """
        chain = self.cut.chain(self.schema)
        depth = view[self.cut.axis]
        held = kept_nodes(chain, space.inhabited_leaves[self.cut.axis], depth)
        below = chain.slice_descendants(self.cut.depth, node, depth)
        # residuals leave out empty nodes, so places are counted among the others
        start = int(held[: below.start].sum())
        stop = start + int(held[below].sum())
        axes_before = list_axes(view).index(self.cut.axis)
        return (*[slice(None)] * axes_before, slice(start, stop))


def split_residuals(space: BranchSpace, vector: Integers) -> dict[View, Integers]:
    """Split the measurement of a part into its residuals; refuse one that does not fit this
    space.
    """
    if vector.shape != space.shape or vector.dtype != np.int64:
        raise DataError(_OTHER)
    residuals = {}
    for view, part in space.parts.items():
        residuals[view] = vector[part].reshape(space.residuals.shape(view))
    return residuals


def cut_plain(
    tables: Sequence[TableRequest], mechanism: Mechanism, schema: Schema, cut: Cut
) -> tuple[CutKind]:
    """Return tables of records of one kind, cut."""
    return (CutKind(RECORD, mechanism, schema, cut, tuple(tables)),)


def cut_linked(
    members: Sequence[TableRequest],
    units: Sequence[TableRequest],
    mechanism: LinkedMechanism,
    depth: str,
) -> tuple[CutKind, CutKind]:
    """Return linked tables of both kinds, cut at the depth named `depth`; refuse a depth that only
    one of them has.
    """
    schemas = [kind.schema for kind in mechanism.space.kinds]
    names = [name for feature in schemas[1].features for name in feature.names[:-1]]
    if depth not in names:
        raise InputError(
            f"{depth!r} is not a depth of a nested feature of units, by which members and units are"
            " released part by part",
            needs="partition",
        )
    cuts = [Cut.from_name(schema, depth) for schema in schemas]
    return (
        CutKind(MEMBER, mechanism.members, schemas[0], cuts[0], tuple(members), (MEMBER,)),
        CutKind(UNIT, mechanism.units, schemas[1], cuts[1], tuple(units), (UNIT,)),
    )


@frozen(eq=False)
class TableBlocks:
    """The layout of the tables of a request and their measurement in the folders of parts.

    The release itself holds everything at the cut and above; each part holds its rows and its
    block.

    Parameters
    ----------
    kinds
        The kinds of record, cut: one, or members and units.
    stem
        The name of the files of measurements, without their ending.
    overview
        Tables at the cut that were not requested, summed from those that reach below it.
    """

    kinds: tuple[CutKind, ...]
    stem: str
    overview: tuple[PublishedTable, ...] = field(default=(), repr=False)

    @property
    def schema(self) -> Schema:
        """The features of the first kind, which the parts are named by."""
        return self.kinds[0].schema

    @property
    def cut(self) -> Cut:
        """Where the first kind is cut."""
        return self.kinds[0].cut

    @property
    def depth(self) -> str:
        """The name of the depth of the cut."""
        return self.cut.name(self.schema)

    @property
    def parts(self) -> int:
        """The number of parts."""
        return self.kinds[0].nodes

    @property
    def below(self) -> tuple[str, ...]:
        """The names of the tables that reach below the cut."""
        return tuple(table.name for kind in self.kinds for table in kind.below)

    def hold(self, tables: Sequence[PublishedTable]) -> tuple[PublishedTable, ...]:
        """Return the tables whose cells are in the files of the release itself."""
        uncut = [table for table in tables if table.name not in self.below]
        return (*self.overview, *uncut)

    def rows(self, tables: Sequence[PublishedTable], node: int) -> list[PublishedTable]:
        """Return the rows that one part has of every table that reaches below the cut."""
        below = [table for table in tables if table.name in self.below]
        return [select_part_rows(table, self.depth, node) for table in below]

    def join(self, above: Integers, below: Mapping[int, Integers]) -> Integers:
        """Return the measurement of the whole, from that at the cut and above and those of the
        parts; refuse what does not fit the plan.
        """
        sizes = [kind.size_above for kind in self.kinds]
        pieces = [_cut_vector(above, sizes)]
        pieces += [_cut_vector(vector, self._sizes(node)) for node, vector in below.items()]
        joined = []
        for number, kind in enumerate(self.kinds):
            of_kind = dict(zip(below, [each[number] for each in pieces[1:]], strict=True))
            joined.append(kind.join(pieces[0][number], of_kind))
        return joined[0] if len(joined) == 1 else np.concatenate(joined)

    def _sizes(self, node: int) -> list[int]:
        return [kind.count_entries(node) for kind in self.kinds]

    def _of_kinds(self, noisy: Integers) -> list[Integers]:
        """The whole measurement, kind by kind."""
        if len(self.kinds) == 1:
            return [noisy]
        return _cut_vector(noisy, [math.prod(kind.mechanism.space.shape) for kind in self.kinds])

    def columns_above(self, noisy: Integers) -> Columns | None:
        """Return what was measured at the cut and above, as its file has it; None if cells are
        measured.
        """
        noises = [kind.above for kind in self.kinds]
        pairs = zip(self.kinds, self._of_kinds(noisy), strict=True)
        vectors = [kind.take_above(vector) for kind, vector in pairs]
        return _columns(noises, vectors)

    def columns_below(self, noisy: Integers, node: int) -> Columns | None:
        """Return what was measured in one part, as its file has it; None if the part can hold no
        record.
        """
        pairs = zip(self.kinds, self._of_kinds(noisy), strict=True)
        vectors = [kind.take_below(vector, node) for kind, vector in pairs]
        noises = [kind.noise(node) for kind in self.kinds]
        if len(self.kinds) == 1 and self.kinds[0].residuals is None:
            rows = self.kinds[0]._cells(node)
            return Columns.of_cells(rows, {"noisy_count": vectors[0].reshape(rows.shape)})
        return _columns(noises, vectors)

    def read(self, files: StoredFiles, parts: Sequence[StoredFiles]) -> Integers:
        """Read the measurement of the whole from the files of a release and of its parts."""
        kind = self.kinds[0]
        if kind.residuals is None:
            labels, column = len(kind.schema.restrict(kind.asked[0].features).names), "noisy_count"
            above = np.zeros(0, np.int64)
        else:
            labels, column = len(self.kinds), "noisy"
            above = files.numbers(self.stem, labels)[column]
        below = {}
        for node, part in enumerate(parts):
            if any(self._sizes(node)):
                below[node] = part.numbers(self.stem, labels)[column]
        return self.join(above, below)


def _cut_vector(vector: Integers, sizes: Sequence[int]) -> list[Integers]:
    """Return a vector in pieces; refuse one of another size."""
    if vector.shape != (sum(sizes),) or vector.dtype != np.int64:
        raise DataError(_OTHER)
    return np.split(vector, np.cumsum(sizes)[:-1])


def _columns(
    noises: Sequence[BranchNoise | Mechanism | None], vectors: Sequence[Integers]
) -> Columns | None:
    """Return measured residuals as a file has them; None if nothing was measured."""
    if all(noise is None for noise in noises):
        return None
    spaces: list[Any] = [None if noise is None else noise.space for noise in noises]
    return residual_columns(spaces, np.concatenate(vectors))


def select_part_rows(table: PublishedTable, depth: str, node: int) -> PublishedTable:
    """Return the rows of a table that belong to one part, with the distance of these rows from what
    was fitted.

    Parameters
    ----------
    table
        The whole table, which reaches below the cut.
    depth, node
        The name of the depth of the cut, and which part.
    """
    cut = Cut.from_name(table.schema, depth)
    rows = cut.branch(table.schema, node)
    grid = table.schema.grid

    def select_cells(values: NDArray[Any]) -> NDArray[Any]:
        part = cut.row(grid, grid.full, values.reshape(table.schema.shape), node)
        return np.ascontiguousarray(part).reshape(rows.shape)

    counts, estimate = select_cells(table.counts), select_cells(table.estimate)
    loss = 0.0
    if table.fitted.method != "none":
        loss = float(np.square(counts - estimate).sum())
    # A lower bound on the distance of the whole table bounds no single part, so a part states none.
    fitted = evolve(table.fitted, loss=loss, bound=0.0)
    half_widths = None if table.half_widths is None else select_cells(table.half_widths)
    errors = select_cells(table.standard_errors)
    return PublishedTable(
        table.name, rows, counts, estimate, errors, fitted, half_widths, counted=table.counted
    )
