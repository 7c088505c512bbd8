"""Fits where a feature is a chain of depths: parents with unequal numbers of children, published at
any depth.
"""

import itertools
import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from semidp.promise.schema.margins import (
    Chain,
    Grid,
    Totals,
    View,
    common_part,
    is_within_view,
    junction_order,
)
from semidp.publish.fitting.real import Infeasible, pose, project, water_level
from semidp.publish.fitting.tables import fit_totals
from tests.fit.cases import tables_with, totals_of

ONE_ONE = Chain(2, ((0, 1), (0, 1)))
TWO_ONE = Chain(3, ((0, 2), (0, 1, 2)))
ONE_THREE = Chain(4, ((0, 1), (0, 1, 2, 3)))
ONE_TWO_ONE = Chain(4, ((0, 1, 3), (0, 1, 2, 3)))
THREE_DEPTHS = Chain(4, ((0, 3), (0, 1, 3), (0, 1, 2, 3)))
PAIR = Chain.flat(2)
GRIDS = {
    "one child each": Grid((ONE_ONE, PAIR)),
    "two and one": Grid((TWO_ONE, PAIR)),
    "one and three": Grid((ONE_THREE, PAIR)),
    "three parents": Grid((PAIR, ONE_TWO_ONE)),
    "three depths": Grid((THREE_DEPTHS, PAIR)),
    "two others": Grid((TWO_ONE, PAIR, PAIR)),
    "two hierarchies": Grid((TWO_ONE, TWO_ONE)),
}


def published(grid: Grid) -> Iterator[list[View]]:
    """Every set of one to three margins of which none contains another."""
    views = list(itertools.product(*(range(depth + 1) for depth in grid.full)))
    for size in (1, 2, 3):
        for chosen in itertools.combinations(views, size):
            if not any(
                is_within_view(one, other) for one, other in itertools.permutations(chosen, 2)
            ):
                yield list(chosen)


CASES = [(name, views) for name, grid in GRIDS.items() for views in published(grid)]


def assert_has(counts: NDArray[np.int64], grid: Grid, totals: list[Totals]) -> None:
    assert counts.dtype == np.int64
    assert (counts >= 0).all()
    for total in totals:
        assert np.array_equal(grid.sum(counts, total.view), total.counts)


@pytest.mark.few(40)
@pytest.mark.parametrize(("name", "views"), CASES, ids=lambda part: str(part).replace(" ", ""))
def test_no_table_is_closer(name: str, views: list[View]) -> None:
    grid = GRIDS[name]
    rng = np.random.default_rng([3, len(name), *np.ravel(views)])
    for scale in (0.4, 3.0):
        hidden = rng.multinomial(
            rng.integers(1, 5), rng.dirichlet(np.ones(np.prod(grid.shape)))
        ).reshape(grid.shape)
        noisy = hidden + rng.normal(0.0, scale, grid.shape)
        totals = totals_of(hidden, views, grid)
        fit = fit_totals(noisy, grid, totals)
        assert fit.counts is not None
        assert_has(fit.counts, grid, totals)
        least = min(float(((table - noisy) ** 2).sum()) for table in tables_with(grid, totals))
        assert fit.loss == pytest.approx(least, rel=1e-9, abs=1e-6)
        assert fit.optimal
        methods = {1: "thresholds", 2: "flow"}
        last = "nested flows" if junction_order(views) else "integer program"
        assert fit.method == methods.get(len(views), last)
        problem = pose(grid, noisy, totals)
        real = project(problem)
        assert all(
            np.allclose(grid.sum(real.table, total.view), total.counts, atol=1e-8)
            for total in totals
        )
        assert problem.loss(real.table) == pytest.approx(real.bound, rel=1e-6, abs=1e-6)
        assert fit.bound <= least + 1e-9


def test_every_kind_of_publication_is_among_the_cases() -> None:
    shapes = {
        (len(views), junction_order(views) is None, any(common_part(views) or ()))
        for _, views in CASES
    }
    assert {
        (1, False, False),
        (2, False, False),
        (2, False, True),
        (3, False, True),
        (3, True, False),
    } <= shapes


def test_what_is_declared_impossible_stays_empty() -> None:
    grid, rng = GRIDS["two others"], np.random.default_rng(23)
    possible = np.ones(grid.shape, dtype=bool)
    possible[0, 0], possible[2, :, 1] = False, False
    for views in (
        [(1, 0, 0)],
        [(1, 1, 0), (2, 0, 0)],
        [(1, 0, 0), (0, 1, 0), (0, 0, 1)],
        [(1, 1, 0), (0, 1, 1)],
    ):
        for _ in range(5):
            hidden = rng.poisson(0.5, grid.shape) * possible
            noisy = hidden + rng.normal(0.0, 2.0, grid.shape)
            totals = totals_of(hidden, views, grid)
            fit = fit_totals(noisy, grid, totals, possible)
            assert fit.counts is not None
            assert_has(fit.counts, grid, totals)
            assert not fit.counts[~possible].any()
            least = min(
                float(((table - noisy) ** 2).sum()) for table in tables_with(grid, totals, possible)
            )
            assert fit.loss == pytest.approx(least, abs=1e-6)


def test_a_water_level_stands_where_a_sorted_list_says() -> None:
    """Held, Wolfe and Crowder (1974): the level is the mean shortfall of the largest values, as
    many as stay wet.
    """
    grid, rng = Grid((Chain(9, ((0, 1, 5), tuple(range(9)))),)), np.random.default_rng(29)
    for scale in (1.0, 1e3, 1e9):
        values, totals = rng.normal(0.0, scale, 9), rng.integers(1, 50, 3)
        levels = water_level(grid, values, Totals((1,), totals))
        for part, total, level in zip(np.split(values, [1, 5]), totals, levels, strict=True):
            largest = np.sort(part)[::-1]
            heights = (total - largest.cumsum()) / np.arange(1, len(part) + 1)
            wet = np.flatnonzero(largest + heights > 0).max()
            assert level == pytest.approx(heights[wet], rel=1e-9)


def random_places(rng: np.random.Generator, parents: int, children: int) -> Chain:
    """One parent holds a third of all children: an array padded to its size would be large."""
    cuts = 1 + rng.choice(children * 2 // 3 - 1, parents - 2, replace=False)
    return Chain(children, ((0, *sorted(cuts.tolist()), children * 2 // 3), tuple(range(children))))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "views",
    [
        [(1, 0, 0)],
        [(1, 1, 0), (2, 0, 0)],
        [(1, 0, 0), (0, 1, 0)],
        [(1, 0, 0), (0, 1, 0), (0, 0, 1)],
        [(1, 1, 0), (1, 0, 1), (2, 0, 0)],
    ],
    ids=[
        "states",
        "state x sex, county",
        "state, sex",
        "state, sex, age",
        "state x sex, state x age, county",
    ],
)
def test_memory_grows_with_the_cells_that_exist(views: list[View]) -> None:
    """One of 600 parents has a third of 6,000 children: padded, an array takes 58 MB, and 600 x
    6,000 takes 29 MB.
    """
    rng = np.random.default_rng(31)
    grid = Grid((random_places(rng, 600, 6_000), Chain.flat(2), Chain.flat(3)))
    hidden = rng.poisson(rng.gamma(1.0, 1.0, grid.shape))
    noisy = hidden + np.rint(rng.normal(0.0, 8.0**0.5, grid.shape))
    totals = totals_of(hidden, views, grid)
    # imports
    fit_totals(noisy[:1, :1, :1], Grid.flat((1, 1, 1)), totals_of(hidden[:1, :1, :1], [(0, 0, 0)]))
    tracemalloc.start()
    try:
        fit = fit_totals(noisy, grid, totals)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert fit.counts is not None
    assert_has(fit.counts, grid, totals)
    assert 0 < fit.gap < 0.1
    assert peak < 28e6


def test_totals_that_contradict_each_other_are_infeasible() -> None:
    """Tables fitted before may fix margins that no table has: always the same exception, and at
    once.
    """
    states = Grid((TWO_ONE, PAIR, PAIR))
    hidden = np.arange(12).reshape(states.shape)
    good = totals_of(hidden, [(2, 0, 0), (1, 1, 0)], states)
    uneven = [Totals((2, 0, 0), good[0].counts[::-1].copy()), good[1]]
    triangle = [
        Totals((2, 1, 0), np.array([[[1], [0]], [[0], [1]], [[0], [0]]])),
        Totals((2, 0, 1), np.array([[[1, 0]], [[0, 1]], [[0, 0]]])),
        Totals((1, 1, 1), np.array([[[0, 1], [1, 0]], [[0, 0], [0, 0]]])),
    ]
    negative = [Totals((1, 0, 0), np.array([-1, 67]).reshape(2, 1, 1))]
    for totals in (uneven, triangle, negative):
        with pytest.raises(Infeasible):
            fit_totals(np.zeros(states.shape), states, totals)


def test_a_problem_falls_apart_by_parents() -> None:
    grid = GRIDS["three depths"]
    hidden = np.arange(8).reshape(4, 2)
    problem = pose(grid, hidden + 0.0, totals_of(hidden, [(2, 1), (3, 0)], grid))
    levels = [grid.sum(hidden, view) + 0.5 for view in problem.views]
    parts = list(problem.parts(levels))
    assert [part.grid.shape for _, part, _ in parts] == [(1, 2), (2, 2), (1, 2)]
    for block, part, own in parts:
        here = hidden[block.margin_slices(grid.full)]
        assert all(not gap.any() for gap in part.missing(here))
        assert (
            part.lift_cells(own) == problem.lift_cells(levels)[block.margin_slices(grid.full)]
        ).all()
