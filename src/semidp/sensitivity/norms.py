"""Which method finds the norms of a sensitivity space, and whether they are attained.

Exact by record patterns where the margins allow it, else by listing a small dataspace, else a certified bound, which is
exact after all if a known move attains it. The methods themselves live in `patterns`, `listing` and `bounds`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from semidp.invariants import Dataspace
from semidp.invariants.structure import LARGEST_MASK, Axes, Published, Structure
from semidp.sensitivity.bounds import Norms, certified_norms
from semidp.sensitivity.exchange import cube, exchange
from semidp.sensitivity.listing import Listing
from semidp.sensitivity.patterns import LARGEST_A, BlockTable
from semidp.sensitivity.projection import LeastSquaresProjection

Counts = NDArray[np.int64]

LARGEST_PROGRAM = 20_000  # cells of a table that an integer program looks for


@dataclass(frozen=True, eq=False)
class Found:
    """The norms, whether they are attained, how they were found, and a move (and the only table, if there is one)."""

    norms: Norms
    exact: bool
    method: str
    move: Counts | None = field(default=None, repr=False)
    only: Counts | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class Question:
    """A released table: its axes in the schema, and the margins of it that follow from what is published."""

    dataspace: Dataspace
    structure: Structure
    released: Axes
    visible: tuple[Published, ...]

    @classmethod
    def of(cls, dataspace: Dataspace, released: Axes) -> "Question":
        """Restrict what is published to the released features; axes of `visible` are those of the released table."""
        structure = Structure.of(dataspace)
        found: dict[Axes, Published] = {}
        for margin in structure.margins:
            shared = tuple(axis for axis in margin.axes if axis in released)
            axes = tuple(released.index(axis) for axis in shared)
            found[axes] = Published(axes, margin.over(shared))
        kept = [axes for axes in sorted(found) if axes and not any({*axes} < {*other} for other in found)]
        return cls(dataspace, structure, released, tuple(found[axes] for axes in kept))

    @property
    def shape(self) -> Axes:
        """The shape of the released table."""
        return tuple(self.structure.schema.shape[axis] for axis in self.released)

    @cached_property
    def blocks(self) -> BlockTable | None:
        """The released table as blocks of counts, if its margins are disjoint apart from a common part."""
        axes, values = [margin.axes for margin in self.visible], [margin.counts for margin in self.visible]
        return BlockTable.of(self.shape, axes, values, self.structure.n, self.possible)

    @cached_property
    def possible(self) -> NDArray[np.bool_] | None:
        """Which cells of the released table its own structural zeros allow, or None where all are."""
        schema = self.structure.schema
        return schema.restrict(schema.names[axis] for axis in self.released).possible

    @property
    def lifts(self) -> bool:
        """Whether every move of the released table that its own margins allow comes from a move of the records.

        True if no structural zero interferes, and the whole table is released or the margins are disjoint apart from a
        common part that is released: the features left out then follow their blocks.
        """
        if self.structure.zeros_matter:
            return False
        if len(self.released) == len(self.structure.schema.shape):
            return True
        common = self.structure.common
        return common is not None and {*common} <= {*self.released}

    def realisable(self, move: Counts) -> bool:
        """Whether t allows a move: whether some table of D_t holds the records that vanish.

        For decomposable margins each margin of them must be at most t; else an integer program looks for the table.
        """
        if self.possible is not None and move[~self.possible].any():
            return False
        gone = np.maximum(-move, 0)
        sums = []
        for margin in self.visible:
            dropped = tuple(axis for axis in range(move.ndim) if axis not in margin.axes)
            sums.append((margin, gone.sum(axis=dropped)))
        if any((used > margin.counts).any() for margin, used in sums):
            return False
        return self.structure.decomposable or self._completes(gone)

    def _completes(self, gone: Counts) -> bool:
        """Whether a table of whole numbers that holds these records has the published margins."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        if gone.size > LARGEST_PROGRAM:
            return False
        operator = LeastSquaresProjection(
            self.shape, tuple(margin.axes for margin in self.visible), np.ones(self.shape, dtype=bool)
        ).operator
        wanted = np.concatenate([margin.counts.ravel() for margin in self.visible])
        solved = milp(
            np.zeros(gone.size),
            constraints=LinearConstraint(operator, wanted, wanted),
            integrality=np.ones(gone.size, dtype=np.int64),
            bounds=Bounds(gone.ravel(), np.inf),
            options={"time_limit": 10.0},
        )
        if solved.x is None:
            return False
        table = np.rint(solved.x).astype(np.int64)
        return bool((table >= gone.ravel()).all() and (operator @ table == wanted).all())


def find_norms(question: Question, a: int) -> Found:
    """Return the norms of S_a of a released table, exact where possible.

    >>> from semidp.invariants import Margin
    >>> from semidp.tables import Feature, Schema, Table
    >>> table = Table(Schema([Feature("sex", "fm"), Feature("region", "nsw")]), [[1, 2, 3], [4, 5, 6]])
    >>> public = Dataspace.of(table, [Margin("sex"), Margin("region")])
    >>> found = find_norms(Question.of(public, (0, 1)), 3)
    >>> found.norms, found.exact, found.method
    (Norms(l1=4, l2_squared=4, linf=1), True, 'record patterns')
    """
    structure = question.structure
    a = min(a, structure.n)
    margins = [margin.axes for margin in question.visible]
    varying = {place for place, axis in enumerate(question.released) if axis in structure.varying}
    if not varying or any(varying <= {*axes} for axes in margins):
        return Found(Norms(0, 0, 0), True, "the published statistics fix the table")
    upper = certified_norms(
        a, map(str, varying), [frozenset(map(str, {*axes} & varying)) for axes in margins], _even(question, varying)
    )
    blocks = question.blocks
    if blocks is not None and a <= LARGEST_A:
        norms, move = blocks.norms(a)
        if question.lifts and not (structure.schema.structural_zeros and blocks.free):
            return Found(norms, True, "record patterns", move)
        upper = upper.least(norms)
    listing = Listing.of(question.dataspace, question.released)
    if listing is not None:
        norms, move = listing.norms(a)
        return Found(norms, True, "listing of all tables", move, listing.only)
    attained, move = _attained(question, a)
    return Found(upper, attained == upper, "certified bound", move)


def _even(question: Question, varying: set[int]) -> bool:
    """Whether the positive part is always even: two disjoint blocks that cover the table, one of them of two levels."""
    blocks = [margin for margin in question.visible if {*margin.axes} & varying]
    axes = [axis for margin in blocks for axis in margin.axes]
    if len(blocks) != 2 or len(axes) != len({*axes}) or not varying <= {*axes}:
        return False
    return min(int((margin.counts > 0).sum()) for margin in blocks) == 2


def _attained(question: Question, a: int) -> tuple[Norms, Counts | None]:
    """The norms that known moves attain, and the one with the largest Δ2: a small pattern, several times over.

    Where moves of the released table need not come from moves of the records, a larger table is tried: with the
    common part of the margins, or with all features.
    """
    structure = question.structure
    everything = structure.common is None or bool(structure.schema.structural_zeros)
    more = range(len(structure.schema.shape)) if everything else structure.common or ()
    whole = Question.of(question.dataspace, tuple(sorted({*question.released, *more})))
    hidden = tuple(place for place, axis in enumerate(whole.released) if axis not in question.released)
    best, widest = Norms(0, 0, 0), None
    if not whole.lifts or math.prod(whole.shape) > max(LARGEST_MASK, math.prod(question.shape)):
        return best, widest
    for move in _known_moves(whole, a):
        if whole.realisable(move):
            seen = move.sum(axis=hidden)
            size = np.abs(seen)
            found = Norms(int(size.sum()), int((size**2).sum()), int(size.max()))
            if found.l2_squared > best.l2_squared:
                widest = seen
            best = best.most(found)
    return best, widest


def _known_moves(question: Question, a: int) -> Iterator[Counts]:
    blocks = question.blocks
    if blocks is not None:
        for s in range(1, min(a, LARGEST_A) + 1):
            move = blocks.norms(s)[1]
            if move is not None:
                yield move * (a // s)
    elif len(question.released) == len(question.structure.schema.shape):
        found = exchange if question.structure.decomposable else cube
        move = found(question.shape, question.visible)
        if move is not None:
            yield move * (a // int(np.maximum(move, 0).sum()))
