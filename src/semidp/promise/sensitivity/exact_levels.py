"""Outcomes that exact totals also have as a feature: which values each published level allows."""

import bisect
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from semidp.errors import InputError
from semidp.promise.exact import exact
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import list_axes
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.outcome_moves import OutcomeMoves
from semidp.promise.sensitivity.residuals import trim_grid
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.structure import Structure

_ROUNDING = Fraction(1, 2**40)  # of floating point, relative to the bounds

SQUARED = " squared"
"""What the outcome is called that adds the squares of a column: its name, and this."""


def find_moves(
    dataspace: Dataspace, outcome: Outcome, sets: Iterable[Margin]
) -> OutcomeMoves | None:
    """Return the exchanges of records that carry an outcome; None if no exact total has it.

    Parameters
    ----------
    dataspace
        What is published.
    outcome
        The outcome, with its bounds and grid.
    sets
        The sets of groups.

    Examples
    --------
    >>> from semidp.promise.schema.counts import Table
    >>> ages = Feature.from_paths(
    ...     ["band", "age"], [("young", "1"), ("young", "2"), ("old", "8"), ("old", "9")]
    ... )
    >>> schema = Schema([Feature("sex", "fm"), ages])
    >>> public = Dataspace.from_table(
    ...     Table(schema, np.ones((2, 4), int)), [Margin("sex"), Margin("band")]
    ... )
    >>> find_moves(public, Outcome("age", 0, 10, 10), [Margin("sex")]).values
    [[1, 2], [8, 9]]
    >>> find_moves(public, Outcome("income", 0, 10, 10), [Margin("sex")]) is None
    True
    """
    schema = dataspace.schema
    name, level = _split_column(schema, outcome.column)
    owner = next((f for f in schema.features if name in {*f.names, *dict(f.finer)}), None)
    if owner is None:
        return None
    axis = schema.axis(owner.name)
    views = [margin.view for margin in dataspace.published_totals]
    published = max((view[axis] for view in views), default=0)
    if not published:
        return None
    structure = Structure.from_dataspace(dataspace)
    full = schema.grid.full
    kept = [structure.inhabited_nodes(place, depth) for place, depth in enumerate(full)]
    node_of = schema.grid.chains[axis].find_leaf_ancestors(published)
    nodes: dict[int, set[int] | range] = {}
    for leaf in np.flatnonzero(kept[axis]).tolist():
        found = _allowed_values(owner, name, leaf, outcome, level)
        nodes[int(node_of[leaf])] = _merge(nodes.get(int(node_of[leaf]), range(0)), found)
    blocks = [{place: view[place] for place in list_axes(view)} for view in views]
    groups = []
    for block in sets:
        view = schema.view(block.names)
        groups.append({place: view[place] for place in list_axes(view)})
    values = [_in_order(found) for found in nodes.values()]
    return OutcomeMoves(trim_grid(schema.grid, kept).chains, blocks, axis, values, groups)


def _split_column(schema: Schema, column: str) -> tuple[str, str | None]:
    """The column that an outcome is about, and the level whose share it is."""
    name = column.removesuffix(SQUARED)
    if name in schema.names or "=" not in name:
        return name, None
    name, _, level = name.partition("=")
    return name, level


def _allowed_values(
    feature: Feature, name: str, leaf: int, outcome: Outcome, level: str | None
) -> set[int] | range:
    """The values, in steps, of records at a leaf: any, if labels do not say."""
    # a histogram that is cut at lines has more cells than steps
    anything = range((len(outcome.edges) if outcome.cuts else outcome.steps) + 1)
    if outcome.column.endswith(SQUARED) or (feature.bins is not None and level is not None):
        return anything
    # what comes after the bins is the level of missing values
    if feature.bins is not None and leaf + 1 < len(feature.bins):
        low, high = feature.bins[leaf : leaf + 2]
        return range(_nearest_steps(low, outcome)[0], _nearest_steps(high, outcome)[-1] + 1)
    values: set[int] = set()
    for label in _allowed_labels(feature, name, leaf):
        if level is not None:
            values |= {*_nearest_steps(int(label == level), outcome)}
            continue
        try:
            values |= {*_nearest_steps(exact(label), outcome)}
        except InputError:  # a missing value, or a word
            return anything
    return values or anything


def _allowed_labels(feature: Feature, name: str, leaf: int) -> tuple[str, ...]:
    """The labels of an outcome that a leaf allows; none where they are not public."""
    if name in feature.names:
        return (feature.path(leaf)[feature.names.index(name)],)
    below = dict(feature.finer)[name]
    return below[leaf] if below else ()


def _nearest_steps(value: Fraction | float, outcome: Outcome) -> list[int]:
    """The step that a value is rounded to, or its cell in a histogram with lines: two next to a
    boundary, where engines that compute in floating point may take either.
    """
    clipped = Fraction(min(max(value, outcome.lower), outcome.upper))
    error = (outcome.upper - outcome.lower) * _ROUNDING
    steps = set()
    for near in (clipped - error, clipped + error):
        if outcome.cuts:
            steps.add(bisect.bisect_right(outcome.edges, near))
        else:
            step = math.floor((near - outcome.lower) / outcome.width + Fraction(1, 2))
            steps.add(min(max(step, 0), outcome.steps))
    return sorted(steps)


def _merge(one: set[int] | range, other: set[int] | range) -> set[int] | range:
    whole = max(one, other, key=len)
    return whole if isinstance(whole, range) and len(whole) > 1 else {*one, *other}


def _in_order(values: set[int] | range) -> Sequence[int]:
    return values if isinstance(values, range) else sorted(values)
