"""What exact totals allow: valid for every table in every small structure, sharp where that is
claimed.
"""

import itertools

import numpy as np
import pytest

from semidp.assess.adjacent_datasets import enumerate_tables
from semidp.inference.cell_bounds import CellBounds, whole_interval
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import is_within_view, join, junction_order, maximal, meet
from semidp.promise.schema.schema import Schema, StructuralZero, Table
from semidp.promise.spaces.dataspace import Dataspace, Margin

TREE = Feature.from_paths(["state", "county"], [("s", "x"), ("s", "y"), ("t", "z")])
SCHEMAS = [
    Schema([Feature("a", "01"), Feature("b", "01")]),
    Schema([Feature("a", "01"), Feature("b", "012")]),
    Schema([Feature("a", "01"), Feature("b", "01"), Feature("c", "01")]),
    Schema([TREE, Feature("c", "01")]),
]


def all_margins(schema):
    """Every set of at most three margins of a schema, joint and nested ones included, none within
    another.
    """
    names = [list(feature.names) for feature in schema.features]
    depths = itertools.product(*(range(len(own) + 1) for own in names))
    single = [
        [name for own, depth in zip(names, chosen, strict=True) for name in own[:depth]]
        for chosen in depths
    ]
    single = [margin for margin in single if margin]
    for size in range(4):
        for chosen in itertools.combinations(single, size):
            if not any(set(one) < set(other) for one in chosen for other in chosen):
                yield chosen


def structures(schema, source, most):
    """Random tables of few records with every set of margins, and every table of D_t."""
    for margins in all_margins(schema):
        counts = source.multinomial(
            int(source.integers(2, 6)), np.full(schema.size, 1 / schema.size)
        )
        public = Dataspace.from_table(
            Table(schema, counts.reshape(schema.shape)), [Margin(*margin) for margin in margins]
        )
        tables = list(
            itertools.islice((table.counts for table in enumerate_tables(public)), most + 1)
        )
        if len(tables) <= most:
            yield public, np.stack(tables)


def views_of(schema):
    return [
        view
        for view in itertools.product(*(range(depth + 1) for depth in schema.grid.full))
        if any(view)
    ]


def separators_missing(public, view):
    """How many separators of decomposable margins a table lacks; None where the margins are not
    decomposable.
    """
    order = junction_order(maximal(total.view for total in public.published_totals))
    if order is None:
        return None
    known, missing = order[0] if order else view, set()
    for clique in order[1:]:
        shared = meet(known, clique)
        if not is_within_view(shared, view):
            missing.add(shared)
        known = join(known, clique)
    return len(missing)


def obvious_lower(public, view):
    """``max(0, Σ t_j - (k - 1) n)`` over all margins, whether they name the whole table or not."""
    grid, total = public.schema.grid, 0
    rolled = {}
    for known in public.published_totals:
        shared = meet(known.view, view)
        if any(shared):
            rolled[shared] = known.sum_to_view(grid, shared)
    for shared in maximal(rolled):
        total = total + grid.spread(rolled[shared].counts, shared, view)
    return np.maximum(0, total - max(len(maximal(rolled)) - 1, 0) * public.n) * np.ones(
        grid.compute_margin_shape(view), dtype=int
    )


def compare(rounds, seed, schemas=SCHEMAS):
    """Compare bounds with the tables themselves; return how much was compared."""
    source = np.random.default_rng(seed)
    counted = dict.fromkeys(("checked", "sharp", "loose", "cells", "false_lower"), 0)
    for schema, _ in itertools.product(schemas, range(rounds)):
        for public, tables in structures(schema, source, 3000):
            for view in views_of(schema):
                seen = np.stack([schema.grid.sum(table, view) for table in tables])
                least, most = seen.min(axis=0), seen.max(axis=0)
                bounds = CellBounds.from_dataspace(public, schema.list_view_names(view))
                assert (bounds.lower <= least).all(), (public, view)
                assert (bounds.upper >= most).all(), (public, view)
                missing = separators_missing(public, view)
                if missing is not None and missing <= 1:
                    assert (bounds.lower == least).all(), (public, view, bounds.lower, least)
                    assert (bounds.upper == most).all(), (public, view, bounds.upper, most)
                counted["sharp" if missing is not None and missing <= 1 else "loose"] += 1
                counted["false_lower"] += bool((obvious_lower(public, view) > least).any())
                counted["checked"] += 1
                counted["cells"] += least.size
                chosen = source.integers(2, size=least.shape)
                sums = (seen * chosen).reshape(len(seen), -1).sum(axis=1)
                low, high = bounds.span(chosen)
                assert low <= sums.min() <= sums.max() <= high, (public, view)
    return counted


def test_bounds_hold_in_every_table_and_are_attained_where_they_are_said_to_be() -> None:
    counted = compare(1, 6)
    assert counted["checked"] > 150
    assert counted["sharp"] > 100
    assert counted["loose"] > 0
    assert counted["false_lower"] > 3, (
        "the twin: the obvious lower bound is false where margins leave a feature out"
    )


@pytest.mark.long
def test_bounds_hold_in_thousands_of_structures() -> None:
    counted = compare(25, 7)
    four = compare(1, 8, [Schema([Feature(name, "01") for name in "abcd"])])
    assert four["checked"] > 1000
    assert counted["checked"] > 5000
    assert counted["cells"] > 15_000
    assert counted["false_lower"] > 50


def test_impossible_cells_hold_nobody() -> None:
    zero = StructuralZero.from_pattern({"a": "0", "b": "1"})
    schema = Schema([Feature("a", "01"), Feature("b", "01")], [zero])
    public = Dataspace.from_table(Table(schema, [[3, 0], [1, 2]]), [Margin("a")])
    assert CellBounds.from_dataspace(public, ["a", "b"]).upper.tolist() == [[3, 0], [3, 3]]


@pytest.mark.parametrize(
    ("low", "high", "span", "expected"),
    [
        (-3.0, 39.7, (0, 3), (0, 3)),
        (0.4, 2.6, (0, 3), (1, 2)),
        (7.2, 9.9, (0, 3), (3, 3)),
        (-9.0, -4.0, (1, 3), (1, 1)),
        (2.9999999, 3.0000001, (0, 9), (3, 3)),
    ],
)
def test_intervals_are_cut_to_whole_numbers_that_are_possible(low, high, span, expected) -> None:
    assert whole_interval(low, high, span) == expected
