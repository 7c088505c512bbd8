"""How published margins hang together: what they imply, their common part, their junction tree.

Everything here is a function of the schema and the published values. What follows for a(t) lives in `semi`, what
follows for norms and projections in `sensitivity`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from semidp.invariants.spaces import Dataspace
from semidp.tables import Schema

Axes = tuple[int, ...]
Counts = NDArray[np.int64]

LARGEST_MASK = 2**25  # cells for which the possible ones are worked out


@dataclass(frozen=True, eq=False)
class Published:
    """One margin with all that it implies: its axes in the schema and its counts."""

    axes: Axes
    counts: Counts = field(repr=False)

    def over(self, axes: Axes) -> Counts:
        """Sum the counts down to some of the margin's axes."""
        dropped = tuple(place for place, axis in enumerate(self.axes) if axis not in axes)
        summed: Counts = self.counts.sum(axis=dropped)
        return summed


@dataclass(frozen=True, eq=False)
class Structure:
    """The margins of a dataspace, nested features merged, and the questions that decide which method applies.

    >>> from semidp.invariants import Margin
    >>> from semidp.tables import Feature, StructuralZero, Table
    >>> zeros = [{"county": "c", "state": "s"}, {"county": ["a", "b"], "state": "t"}]
    >>> features = [Feature("state", "st"), Feature("county", "abc"), Feature("sex", "fm")]
    >>> schema = Schema(features, [StructuralZero.of(zero) for zero in zeros])
    >>> counts = np.zeros((2, 3, 2), dtype=int)
    >>> counts[0, :2], counts[1, 2] = 5, 7
    >>> public = Dataspace.of(Table(schema, counts), [Margin("state"), Margin("county"), Margin("sex")])
    >>> structure = Structure.of(public)
    >>> [margin.axes for margin in structure.margins], structure.zeros_matter
    ([(0, 1), (2,)], False)
    """

    schema: Schema
    n: int
    margins: tuple[Published, ...]

    @classmethod
    def of(cls, dataspace: Dataspace) -> "Structure":
        """Analyse a dataspace that has a schema."""
        assert dataspace.schema is not None
        assert dataspace.n is not None
        schema = dataspace.schema
        determined = determined_axes(schema)
        found: dict[Axes, Published] = {}
        for margin, total in zip(dataspace.margins, dataspace.totals, strict=True):
            closed = closed_under(schema, Published(schema.axes(margin.names), total.counts), determined)
            found[closed.axes] = closed
        kept = [axes for axes in sorted(found) if not any({*axes} < {*other} for other in found)]
        return cls(schema, dataspace.n, tuple(found[axes] for axes in kept))

    @cached_property
    def varying(self) -> frozenset[int]:
        """The features that have at least two levels which can occur."""
        levels = list(self.schema.shape)
        for margin in self.margins:
            for axis in margin.axes:
                levels[axis] = min(levels[axis], int((margin.over((axis,)) > 0).sum()))
        return frozenset(axis for axis, count in enumerate(levels) if count > 1)

    @cached_property
    def unpublished(self) -> Axes:
        """The features that nothing publishes."""
        published = {axis for margin in self.margins for axis in margin.axes}
        return tuple(axis for axis in range(len(self.schema.shape)) if axis not in published)

    @cached_property
    def essential(self) -> tuple[Published, ...]:
        """The margins over varying features only, nested ones dropped: what really constrains the data."""
        found = {}
        for margin in self.margins:
            axes = tuple(axis for axis in margin.axes if axis in self.varying)
            if axes:
                found[axes] = Published(axes, margin.over(axes))
        return tuple(found[axes] for axes in sorted(found) if not any({*axes} < {*other} for other in found))

    @cached_property
    def zeros_matter(self) -> bool:
        """Whether structural zeros forbid more than the published margins do.

        They do not if every combination of published levels that the margins allow can be completed by unpublished
        ones: a zero inside a margin is an empty cell there, and an unpublished county follows its state.
        """
        zeros = [{*self.schema.axes(name for name, _ in zero.levels)} for zero in self.schema.structural_zeros]
        if all(any(axes <= {*margin.axes} for margin in self.margins) for axes in zeros):
            return False
        if self.schema.size > LARGEST_MASK:
            return True
        possible = self.schema.possible
        assert possible is not None
        completable = possible.any(axis=self.unpublished, keepdims=True)
        for margin in self.margins:
            sides = [size if axis in margin.axes else 1 for axis, size in enumerate(self.schema.shape)]
            completable = completable | (margin.counts == 0).reshape(sides)
        return not bool(completable.all())

    @cached_property
    def common(self) -> Axes | None:
        """The axes shared by all essential margins, if these are disjoint apart from them; else None."""
        return common_part([margin.axes for margin in self.essential])

    @cached_property
    def decomposable(self) -> bool:
        """Whether the essential margins have a junction tree."""
        return running_intersection([margin.axes for margin in self.essential]) is not None


def common_part(margins: Sequence[Axes]) -> Axes | None:
    """Return the axes that all margins share, if they are disjoint apart from those; else None.

    >>> common_part([(0, 1), (1, 2)]), common_part([(0,), (2,)]), common_part([(0, 1), (1, 2), (2, 3)])
    ((1,), (), None)
    """
    if len(margins) < 2:
        return ()
    shared = set.intersection(*map(set, margins))
    rest = [axis for margin in margins for axis in margin if axis not in shared]
    return tuple(sorted(shared)) if len(rest) == len({*rest}) else None


def running_intersection(margins: Sequence[Axes]) -> list[Axes] | None:
    """Order the margins so that each meets the earlier ones inside one of them; None if they are not decomposable.

    A junction tree is a spanning tree of largest intersections: Prim's algorithm builds one if there is any, and its
    order has the running intersection property.

    >>> running_intersection([(0, 1), (2, 3), (1, 2)])
    [(0, 1), (1, 2), (2, 3)]
    >>> running_intersection([(0, 1), (1, 2), (0, 2)]) is None
    True
    """
    left = list(margins)
    ordered = [left.pop(0)] if left else []
    while left:
        best = max(left, key=lambda margin: max(len({*margin} & {*other}) for other in ordered))
        left.remove(best)
        met = {*best} & {axis for other in ordered for axis in other}
        if not any(met <= {*other} for other in ordered):
            return None
        ordered.append(best)
    return ordered


def determined_axes(schema: Schema) -> dict[int, set[int]]:
    """Return, for each feature, those that it determines by declared structural zeros (a county its state).

    Only zeros that name exactly two features count, and each level must leave exactly one level of the other.

    >>> from semidp.tables import Feature, StructuralZero
    >>> zeros = [{"county": "c", "state": "s"}, {"county": ["a", "b"], "state": "t"}]
    >>> schema = Schema([Feature("state", "st"), Feature("county", "abc")], [StructuralZero.of(zero) for zero in zeros])
    >>> determined_axes(schema)
    {1: {0}}
    """
    pairs: dict[tuple[int, int], NDArray[np.bool_]] = {}
    for zero in schema.structural_zeros:
        if len(zero.levels) == 2:
            one, other = schema.axes(name for name, _ in zero.levels)
            allowed = pairs.setdefault((one, other), np.ones((schema.shape[one], schema.shape[other]), dtype=bool))
            levels = {schema.axis(name): named for name, named in zero.levels}
            codes = [[schema.features[axis].levels.index(level) for level in levels[axis]] for axis in (one, other)]
            allowed[np.ix_(*codes)] = False
    found: dict[int, set[int]] = {}
    for (one, other), allowed in pairs.items():
        if (allowed.sum(axis=1) == 1).all():
            found.setdefault(one, set()).add(other)
        if (allowed.sum(axis=0) == 1).all():
            found.setdefault(other, set()).add(one)
    return found


def closed_under(schema: Schema, margin: Published, determined: dict[int, set[int]]) -> Published:
    """Add the features that those of a margin determine; its counts follow."""
    for axis in margin.axes:
        for implied in sorted(determined.get(axis, set()) - {*margin.axes}):
            pair = schema.restrict([schema.names[axis], schema.names[implied]])
            assert pair.possible is not None
            allowed = pair.possible if axis < implied else pair.possible.T
            axes = tuple(sorted((*margin.axes, implied)))
            sides = [schema.shape[axis] if a == axis else 1 for a in margin.axes]
            levels = [(margin.counts * allowed[:, level].reshape(sides)) for level in range(schema.shape[implied])]
            return closed_under(schema, Published(axes, np.stack(levels, axis=axes.index(implied))), determined)
    return margin
