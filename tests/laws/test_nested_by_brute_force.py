"""Every dataset of every small dataspace with a nested feature, published at every depth, against
the definitions.

The brute force is that of `test_invariants_by_brute_force`; here the cells are paths, and a margin
is what a path shows of itself at each depth.
"""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from semidp.errors import Refused
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import View, is_within_view
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.table_spaces import sensitivity_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.semi_adjacency import semi_adjacency
from tests.laws.test_invariants_by_brute_force import (
    brute_a,
    brute_norms,
    check_bounds,
    check_witness,
)

SEX = Feature("sex", "fm")


def places(*children: int) -> Feature:
    """Parents with these numbers of children."""
    counties = [(f"s{i}", f"c{i}{j}") for i, size in enumerate(children) for j in range(size)]
    return Feature.from_paths(["state", "county"], counties)


TRACTS = Feature.from_paths(
    ["state", "county", "tract"],
    [("s", "c", "t"), ("s", "c", "u"), ("s", "d", "v"), ("r", "e", "w")],
)
JOBS = Feature.from_paths(["field", "job"], [("f", "i"), ("f", "j"), ("g", "k")])
SCHEMAS = {
    "one child each": (Schema([places(1, 1), SEX]), 5),
    "two and one": (Schema([places(2, 1), SEX]), 4),
    "two and two": (Schema([places(2, 2), SEX]), 3),
    "three and one, sex first": (Schema([SEX, places(3, 1)]), 3),
    "three parents": (Schema([places(1, 2, 1), SEX]), 3),
    "alone": (Schema([places(2, 1, 1)]), 5),
    "two others": (Schema([places(2, 1), SEX, Feature("age", "yo")]), 2),
    "three depths": (Schema([TRACTS, SEX]), 3),
    "two hierarchies": (Schema([places(2, 1), JOBS]), 3),
}


def published(schema: Schema) -> Iterator[list[View]]:
    """Every set of up to three margins of which none contains another, and nothing but n."""
    yield []
    views = list(itertools.product(*(range(depth + 1) for depth in schema.grid.full)))[1:]
    for size in (1, 2, 3):
        for chosen in itertools.combinations(views, size):
            if not any(
                is_within_view(one, other) for one, other in itertools.permutations(chosen, 2)
            ):
                yield list(chosen)


CASES = [(name, views) for name, (schema, _) in SCHEMAS.items() for views in published(schema)]


def shown(schema: Schema, view: View) -> np.ndarray:
    """Number what each cell shows of itself in a margin, from its labels alone."""
    paths = [feature.paths() for feature in schema.features]
    cells = [
        tuple(
            paths[axis][leaf][:depth]
            for axis, (leaf, depth) in enumerate(zip(cell, view, strict=True))
        )
        for cell in np.ndindex(*schema.shape)
    ]
    numbers = {cell: number for number, cell in enumerate(dict.fromkeys(cells))}
    return np.array([numbers[cell] for cell in cells])


def spaces(schema: Schema, views: list[View], n: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield every D_t: its labelled datasets, and their tables."""
    data = np.array(list(itertools.product(range(schema.size), repeat=n)), dtype=np.int8)
    tables = np.stack([(data == cell).sum(axis=1) for cell in range(schema.size)], axis=1)
    keys = [np.zeros((len(data), 1), dtype=int)]
    for view in views:
        cells = shown(schema, view)
        keys += [
            tables[:, cells == level].sum(axis=1, keepdims=True) for level in range(cells.max() + 1)
        ]
    _, which = np.unique(np.hstack(keys), axis=0, return_inverse=True)
    for rows in np.split(
        np.argsort(which.ravel(), kind="stable"), np.cumsum(np.bincount(which.ravel()))[:-1]
    ):
        yield data[rows], tables[rows]


@pytest.mark.few(2)
@pytest.mark.parametrize(("name", "views"), CASES, ids=lambda part: str(part).replace(" ", ""))
def test_a_norms_and_projection_in_every_space(name: str, views: list[View]) -> None:
    schema, largest = SCHEMAS[name]
    margins = [Margin(*schema.list_view_names(view)) for view in views]
    dense = {}
    for n in range(1, largest + 1):
        for data, tables in spaces(schema, views, n):
            public = Dataspace.from_table(Table(schema, tables[0].reshape(schema.shape)), margins)
            found = semi_adjacency(public)
            worst, definition = brute_a(data, tables)
            assert found.bound >= worst
            if found.worst_case is not None:
                assert (found.worst_case, found.bound) == (worst, worst)
                check_witness(public, found)
            if found.definition is not None:
                assert found.definition == definition
            single = bool((tables == tables[0]).all())
            for a, norms in enumerate(brute_norms(data, tables, n)):
                if norms[0] == 0 and not single:
                    with pytest.raises(Refused, match="larger a"):
                        sensitivity_space(public, Ball(a))
                    continue
                space = sensitivity_space(public, Ball(a))
                assert space.exact
                assert (space.l1, space.l2_squared, space.linf) == norms
                assert space.is_zero == single
                check_bounds(public, a, norms)
            if not single:
                check_projection(space, public, tables, dense)


def check_projection(space, public: Dataspace, tables: np.ndarray, known: dict) -> None:
    """P is the projection onto differences that no published total sees, on the cells that some
    dataset fills.
    """
    schema = public.schema
    domain = tables.any(axis=0)
    key = domain.tobytes()
    if key not in known:
        rows = [np.ones(schema.size)]
        for margin in public.margins:
            cells = shown(schema, schema.view(margin.names))
            rows += [(cells == level).astype(float) for level in range(cells.max() + 1)]
        _, values, vectors = np.linalg.svd(np.array(rows)[:, domain])
        null = np.zeros((len(vectors) - int((values > 1e-9).sum()), schema.size))
        null[:, domain] = vectors[int((values > 1e-9).sum()) :]
        known[key] = null.T @ null
    projection = known[key]
    noise = np.random.default_rng(len(known)).normal(size=schema.size)
    assert np.allclose(
        space.project(noise.reshape(schema.shape)).ravel(), projection @ noise, atol=1e-9
    )
    assert np.allclose(space.variances().ravel(), np.diag(projection), atol=1e-9)
    assert space.dimension == round(np.trace(projection))
    fixed = tables[0] - projection @ tables[0]
    assert np.allclose(space.fixed_part().ravel(), fixed, atol=1e-9)


RELEASED = [
    (name, views, released)
    for name in ("two and one", "three depths", "two others")
    for views in published(SCHEMAS[name][0])
    for released in itertools.product(*(range(depth + 1) for depth in SCHEMAS[name][0].grid.full))
    if any(released) and released != SCHEMAS[name][0].grid.full
]


@pytest.mark.few(20)
@pytest.mark.parametrize(
    ("name", "views", "released"), RELEASED, ids=lambda part: str(part).replace(" ", "")
)
def test_norms_of_a_table_released_at_another_depth(
    name: str, views: list[View], released: View
) -> None:
    """Published at one depth and released at another: never less than the brute force, equal where
    said to be.
    """
    schema, n = SCHEMAS[name][0], 2 if name == "two others" else 3
    cells = shown(schema, released)
    for data, tables in spaces(schema, views, n):
        public = Dataspace.from_table(
            Table(schema, tables[0].reshape(schema.shape)),
            [Margin(*schema.list_view_names(view)) for view in views],
        )
        seen = np.stack(
            [tables[:, cells == level].sum(axis=1) for level in range(cells.max() + 1)], axis=1
        )
        for a, norms in enumerate(brute_norms(data, seen, n)):
            if norms[0] == 0:
                continue
            space = sensitivity_space(public, Ball(a), schema.list_view_names(released))
            found = (space.l1, space.l2_squared, space.linf)
            assert (
                np.array_equal(found, norms) if space.exact else np.all(np.asarray(found) >= norms)
            )
