"""Tables that records are compared with, and moves of records that keep every exact total.

A record is a row of codes, one for each feature. Its cell in a table is a sum of numbers that are
looked up, one for each feature, so nested depths cost nothing extra. A move exchanges values
of two records, or gives one record another value. Two records that exchange the features B keep a
margin M if M lies inside B or outside it, or if they agree on its part in B or on its part outside.
Records that must agree form a stratum: a view that both share. `record_search` decides which
records change.
"""

import itertools
import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.promise.schema.margins import Grid, View, join, list_axes, minimal
from semidp.publish.residual_mechanism import SharedNoise

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Codes = NDArray[np.unsignedinteger]


@frozen(eq=False)
class TargetTable:
    """A published table that records should match closely.

    Parameters
    ----------
    name, view
        Its name, and the depth at which it names each feature.
    estimate, errors
        The estimate of each cell and its standard error; cells with an error of 0 follow from exact
        totals.
    shared
        The noise that it shares with other tables, and its number there.
    """

    name: str
    view: View
    estimate: Floats = field(repr=False)
    errors: Floats = field(repr=False)
    shared: tuple[SharedNoise, int] | None = field(default=None, repr=False)


@frozen
class TableDistance:
    """The distance of the counts of records from the estimates of a table, in standard errors.

    Parameters
    ----------
    name, features
        Which table.
    rms, largest
        The root mean square over its noisy cells, and the largest. The truth itself has an expected
        mean square of 1.
    cells
        How many cells have noise.

    Examples
    --------
    >>> TableDistance("sex-age", ("sex", "age"), 0.8, 2.5, 12).text
    'sex-age 0.80 (largest 2.5)'
    """

    name: str
    features: tuple[str, ...]
    rms: float
    largest: float
    cells: int

    @property
    def text(self) -> str:
        """The table with both distances."""
        return f"{self.name} {self.rms:.2f} (largest {self.largest:.1f})"


@frozen(slots=False, eq=False)
class Layout:
    """The cells of several margins in one vector, and where a record falls in each.

    Parameters
    ----------
    grid
        The features.
    views
        The margins.

    Examples
    --------
    >>> layout = Layout(Grid.flat((2, 3)), [(1, 1), (0, 1)])
    >>> (
    ...     layout.cells(np.array([[1, 2]], dtype=np.uint8), 0),
    ...     layout.cells(np.array([[1, 2]], dtype=np.uint8), 1),
    ... )
    (array([5]), array([8]))
    """

    grid: Grid
    views: Sequence[View]

    @cached_property
    def bounds(self) -> Numbers:
        """Where the cells of each margin begin in the vector, and the end."""
        sizes = [self.grid.count_margin_cells(view) for view in self.views]
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    @cached_property
    def members(self) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """For each margin the first of its features; for those the axis, and the start of its
        numbers in the last.
        """
        first, axes, starts, numbers = [0], [], [], []
        length = 0
        for table, view in enumerate(self.views):
            step = self.grid.count_margin_cells(view)
            offset = int(self.bounds[table])
            for axis in list_axes(view):
                chain = self.grid.chains[axis]
                step //= chain.size(view[axis])
                axes.append(axis)
                starts.append(length)
                # The offset of the whole margin is part of the numbers of its first feature.
                numbers.append(chain.find_leaf_ancestors(view[axis]) * step + offset)
                offset = 0
                length += chain.leaves
            first.append(len(axes))
        flat = np.concatenate([np.zeros(0, dtype=np.int64), *numbers]).astype(np.int64)
        return (
            np.array(first),
            np.array(axes, dtype=np.int64),
            np.array(starts, dtype=np.int64),
            flat,
        )

    def cells(self, codes: Codes, table: int) -> Numbers:
        """Return the cell of each record in one margin."""
        first, axes, starts, numbers = self.members
        # Sums of small lookups: a cell is never computed by multiplying codes.
        total = np.zeros(len(codes), dtype=np.int64)
        for member in range(first[table], first[table + 1]):
            total += numbers[starts[member] + codes[:, axes[member]].astype(np.int64)]
        return total

    def counts(self, codes: Codes) -> Numbers:
        """Count records in the cells of every margin."""
        counts = np.zeros(int(self.bounds[-1]), dtype=np.int64)
        for table, (start, end) in enumerate(zip(self.bounds[:-1], self.bounds[1:], strict=True)):
            counts[start:end] = np.bincount(self.cells(codes, table) - start, minlength=end - start)
        return counts

    def find_changed_margins(self, axes: Sequence[int]) -> Numbers:
        """Return the margins that change when records exchange some features: they name one of
        these and another feature.
        """
        moved = set(axes)
        chosen = []
        for table, view in enumerate(self.views):
            inside = moved & set(list_axes(view))
            if inside and inside != set(list_axes(view)):
                chosen.append(table)
        return np.array(chosen, dtype=np.int64)

    def find_naming_margins(self, axis: int) -> Numbers:
        """Return the margins that name a feature."""
        chosen = [table for table, view in enumerate(self.views) if view[axis]]
        return np.array(chosen, dtype=np.int64)


@frozen(slots=False, eq=False)
class Goal:
    """The goal of records: tables to match closely, and cells that no record may enter.

    The distance is ``Σ w (x - y)²`` over all cells, x the count, y the estimate and ``w = 1/s²``
    with the standard error s. For the truth it is about the number of noisy cells.

    Parameters
    ----------
    grid, tables
        The features, and the target tables.
    forbidden
        Margins with a mask of cells that cannot occur.
    """

    grid: Grid
    tables: tuple[TargetTable, ...]
    forbidden: tuple[tuple[View, NDArray[np.bool_]], ...] = ()

    @cached_property
    def layout(self) -> Layout:
        """The cells of the tables, and after them of the margins with impossible cells."""
        views = [table.view for table in self.tables]
        return Layout(self.grid, [*views, *(view for view, _ in self.forbidden)])

    @cached_property
    def weights(self) -> Floats:
        """One over the variance of each cell's estimate; 0 if exact totals fix it, and for
        impossible cells.
        """
        parts = [np.zeros(0)]
        for table in self.tables:
            errors = table.errors.ravel()
            # Errors that are zero but for rounding belong to cells that exact totals fix.
            noisy = errors > 1e-9 * max(float(errors.max(initial=0.0)), 1e-300)
            parts.append(np.divide(1.0, errors**2, out=np.zeros(errors.shape), where=noisy))
        parts += [np.zeros(mask.size) for _, mask in self.forbidden]
        return np.concatenate(parts)

    @cached_property
    def estimates(self) -> Floats:
        """The estimate of each cell."""
        parts = [np.zeros(0), *(table.estimate.ravel() for table in self.tables)]
        parts += [np.zeros(mask.size) for _, mask in self.forbidden]
        return np.concatenate(parts)

    @cached_property
    def noisy_cells(self) -> int:
        """How many cells have noise: what the squared distance of the truth is expected to be."""
        return int((self.weights > 0).sum())

    def slopes(self, counts: Numbers) -> Floats:
        """Return how the distance changes with each count: ``2 w (x - y)``, infinite where no
        record may be.
        """
        slopes = 2 * self.weights * (counts - self.estimates)
        # Impossible cells stand after those of the tables.
        start = int(self.layout.bounds[len(self.tables)])
        for _, mask in self.forbidden:
            end = start + mask.size
            slopes[start:end][mask.ravel()] = math.inf
            start = end
        return np.asarray(slopes)

    def distance(self, slopes: Floats) -> float:
        """Return the distance, from the `slopes` of the counts."""
        noisy = self.weights > 0
        squares = slopes[noisy] ** 2 / self.weights[noisy]
        return float(squares.sum() / 4)

    def share(self, slopes: Floats) -> float:
        """Return the distance relative to that explained by noise: the root mean square in standard
        errors.
        """
        return math.sqrt(self.distance(slopes) / self.noisy_cells) if self.noisy_cells else 0.0

    def distances(
        self, counts: Numbers, names: Sequence[tuple[str, ...]]
    ) -> tuple[TableDistance, ...]:
        """Return how far counts are from each table; `names` are the features of each."""
        answers = []
        off = np.abs(counts - self.estimates) * np.sqrt(self.weights)
        for number, (table, features) in enumerate(zip(self.tables, names, strict=True)):
            cells = slice(self.layout.bounds[number], self.layout.bounds[number + 1])
            noisy = off[cells][self.weights[cells] > 0]
            rms = math.sqrt((noisy**2).mean()) if noisy.size else 0.0
            largest = float(noisy.max(initial=0.0))
            answers.append(TableDistance(table.name, features, rms, largest, noisy.size))
        return tuple(answers)


def smallest_codes(largest: int) -> type[np.unsignedinteger]:
    """Return the smallest type of codes up to `largest`: one byte per value where no feature has
    over 256 levels.

    >>> smallest_codes(255).__name__, smallest_codes(256).__name__
    ('uint8', 'uint16')
    """
    for kind in (np.uint8, np.uint16):
        if largest <= np.iinfo(kind).max:
            return kind
    return np.uint32


_MOST_CHOICES = 64  # ways to agree that are looked at for one set of features
_MOST_MOVES = 256


@frozen
class RecordMove:
    """A kind of move between two records of one stratum.

    Parameters
    ----------
    axes
        The features whose values move.
    stratum
        What both records share, at which depth.
    both
        Whether two records exchange the values; else one record takes another value of one feature.
    depth
        The depth of that feature in the records; 0 for exchanges.

    Examples
    --------
    >>> moves = record_moves(Grid.flat((2, 2, 2)), [(1, 1, 0)], (1, 1, 1))
    >>> [(move.axes, move.stratum) for move in moves if move.both]
    [((0,), (0, 1, 0)), ((1,), (1, 0, 0)), ((2,), (0, 0, 0)), ((0, 1), (0, 0, 0))]
    """

    axes: tuple[int, ...]
    stratum: View
    both: bool
    depth: int = 0


def record_moves(grid: Grid, margins: Sequence[View], used: View) -> list[RecordMove]:
    """Return moves that keep margins: exchanges of single features and of all features of a margin,
    and free changes.

    A feature that no margin names, or only at a coarser depth, may also change in one record alone.

    Parameters
    ----------
    grid
        The features.
    margins
        The exact totals, none inside another.
    used
        The depth at which each feature is known in the records.
    """
    singles = [(axis,) for axis in list_axes(used)]
    blocks = [list_axes(margin) for margin in margins if len(list_axes(margin)) > 1]
    moves: list[RecordMove] = []
    for axes in dict.fromkeys([*singles, *blocks]):
        for stratum in _strata(margins, axes, len(used)):
            # Records that agree on a whole feature do not exchange it: a smaller set of features
            # says the same.
            if all(stratum[axis] < used[axis] for axis in axes):
                moves.append(RecordMove(axes, stratum, True))
    # Below the depth at which totals name a feature, or without any, a record may change by itself.
    nothing = grid.nothing
    fixed = join(nothing, *margins) if margins else nothing
    for (axis,) in singles:
        if fixed[axis] < used[axis]:
            moves.append(
                RecordMove((axis,), grid.build_feature_view(axis, fixed[axis]), False, used[axis])
            )
    return moves[:_MOST_MOVES]


def _strata(margins: Sequence[View], axes: tuple[int, ...], features: int) -> list[View]:
    """Coarsest views that two records must share, so exchanging `axes` keeps every margin."""
    inside: list[View] = []
    outside: list[View] = []
    for margin in margins:
        # Records keep this margin if they agree on either side of it.
        part = list(margin)
        beyond = list(margin)
        for axis in range(features):
            side = beyond if axis in axes else part
            side[axis] = 0
        if any(part) and any(beyond):
            inside.append(tuple(part))
            outside.append(tuple(beyond))
    nothing = (0,) * features
    views: set[View] = set()
    # The first choice is to agree on everything outside; past the limit no other is looked at.
    for choice in itertools.islice(
        itertools.product(*zip(outside, inside, strict=True)), _MOST_CHOICES
    ):
        views.add(join(nothing, *choice) if choice else nothing)
    # A finer stratum than another holds fewer pairs, and none that the other does not.
    return minimal(sorted(views))


@frozen(eq=False)
class RecordStrata:
    """Records by stratum: an order of their numbers, and where each stratum begins in it.

    Parameters
    ----------
    order
        The records, stratum by stratum; empty if there is one stratum, of all records as they
        stand.
    starts
        Where each stratum begins, and the end.
    """

    order: NDArray[np.integer]
    starts: Numbers


def build_strata(grid: Grid, codes: Codes, view: View) -> RecordStrata:
    """Return records by what they share at a view, in linear time.

    >>> strata = build_strata(
    ...     Grid.flat((2, 2)), np.array([[1, 0], [0, 0], [1, 1]], dtype=np.uint8), (1, 0)
    ... )
    >>> strata.order.tolist(), strata.starts.tolist()
    ([1, 0, 2], [0, 1, 3])
    """
    count = len(codes)
    if not any(view):
        return RecordStrata(np.zeros(0, dtype=np.int32), np.array([0, count], dtype=np.int64))
    keys = stratum_keys(grid, codes, view)
    if grid.count_margin_cells(view) > 2**16:
        _, keys = np.unique(keys, return_inverse=True)
    # Sorting numbers of 16 bits takes linear time.
    sizes = np.bincount(keys)
    few = len(sizes) <= 2**16
    narrow = keys.astype(np.uint16) if few else keys
    order: NDArray[np.integer] = np.argsort(narrow, kind="stable")
    if count < 2**31:
        order = order.astype(np.int32)
    ends = np.cumsum(sizes[sizes > 0])
    return RecordStrata(order, np.append(0, ends).astype(np.int64))


def proposed_values(grid: Grid, codes: Codes, move: RecordMove, draw: np.random.Generator) -> Codes:
    """Return for each record a different value of a feature, below the same node of the stratum.

    Half of them are those of other records, so frequent values are proposed often. The others
    are arbitrary values: a value that no record has could not return otherwise.

    >>> move = RecordMove((0,), (0, 0), False, 1)
    >>> codes = np.zeros((100, 2), dtype=np.uint8)
    >>> np.unique(
    ...     proposed_values(Grid.flat((3, 2)), codes, move, np.random.default_rng(1))
    ... ).tolist()
    [0, 1, 2]
    """
    (axis,) = move.axes
    chain = grid.chains[axis]
    coarse, fine = move.stratum[axis], move.depth
    node = chain.find_leaf_ancestors(coarse)[codes[:, axis]]
    choices = chain.children(coarse, fine)[node]
    child = chain.first(coarse, fine)[node] + (draw.random(len(codes)) * choices).astype(np.intp)
    values = np.asarray(chain.starts[fine - 1])[child].astype(codes.dtype)
    strata = build_strata(grid, codes, move.stratum)
    order = strata.order if len(strata.order) else np.arange(len(codes))
    sizes = np.diff(strata.starts)
    stratum = np.repeat(np.arange(len(sizes)), sizes)
    place = (draw.random(len(codes)) * sizes[stratum]).astype(np.intp)
    partners = order[strata.starts[:-1][stratum] + place]
    # A stratum is as likely to be copied as to be redrawn.
    copied = draw.random(len(codes)) < 0.5
    values[order[copied]] = codes[partners[copied], axis]
    return values


def stratum_keys(grid: Grid, codes: Codes, view: View) -> Numbers:
    """Number what records have at a view: one number for each combination of nodes."""
    keys = np.zeros(len(codes), dtype=np.int64)
    for axis in list_axes(view):
        chain = grid.chains[axis]
        keys = keys * chain.size(view[axis]) + chain.find_leaf_ancestors(view[axis])[codes[:, axis]]
    return keys
