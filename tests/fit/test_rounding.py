"""The linear-time fit: totals exact on every structure it accepts, its loss held against flows,
programs and bounds.
"""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from semidp.promise.progress import silent
from semidp.promise.schema.margins import Chain, Grid, View, common_part
from semidp.publish.fitting import tables
from semidp.publish.fitting.integer import fit_nested, improve, round_table, roundable, transport
from semidp.publish.fitting.real import Newton, Problem, lagrangian, pose, project
from semidp.publish.fitting.tables import fit_table, fit_totals
from tests.fit.cases import margins_exact, space_of, tables_with, totals_of
from tests.fit.test_nested import GRIDS, published

FLAT = Grid.flat((4, 3, 5))
PLACES = Grid((Chain(9, ((0, 1, 5), tuple(range(9)))), Chain.flat(3), Chain.flat(4)))
STRUCTURES = [
    (FLAT, [(1, 0, 0), (0, 1, 0), (0, 0, 1)]),
    (FLAT, [(1, 1, 0), (0, 0, 1)]),
    (PLACES, [(1, 0, 0), (0, 1, 0), (0, 0, 1)]),
    (PLACES, [(2, 0, 0), (1, 1, 0), (1, 0, 1)]),
    (PLACES, [(1, 1, 0), (1, 0, 1)]),
    *(
        (grid, views)
        for grid in GRIDS.values()
        for views in published(grid)
        if len(views) > 1 and common_part(views) is not None
    ),
]


def counts_of(problem: Problem) -> NDArray[np.int64]:
    found = round_table(problem, project(problem))
    assert found is not None
    counts, _ = found
    assert counts.dtype == np.int64
    assert (counts >= 0).all()
    assert not counts[~problem.allowed].any()
    assert all(not gap.any() for gap in problem.missing(counts))
    return counts


@pytest.mark.few(2)
@pytest.mark.parametrize("scale", [0.3, 3.0, 1e3])
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "real"])
def test_the_repair_always_ends_with_the_totals(scale: float, whole: bool) -> None:
    rng = np.random.default_rng([37, int(scale), whole])
    for grid, views in STRUCTURES:
        for mean in (0.2, 5.0):
            hidden = rng.poisson(mean, grid.shape)
            noise = rng.normal(0.0, scale, grid.shape)
            problem = pose(
                grid, hidden + (np.rint(noise) if whole else noise), totals_of(hidden, views, grid)
            )
            counts = counts_of(problem)
            assert (
                problem.loss(counts)
                >= lagrangian(problem, project(problem).levels) * (1 - 1e-9) - 1e-6
            )


def test_the_whole_bound_is_below_every_table_and_above_the_real_one() -> None:
    grid, views, rng = GRIDS["two and one"], [(1, 0), (0, 1)], np.random.default_rng(41)
    for _ in range(20):
        hidden = rng.poisson(0.7, grid.shape)
        totals = totals_of(hidden, views, grid)
        problem = pose(grid, hidden + rng.normal(0.0, 2.0, grid.shape), totals)
        levels = [level + rng.normal(0.0, 0.2, level.shape) for level in project(problem).levels]
        least = min(problem.loss(table) for table in tables_with(grid, totals))
        assert (
            lagrangian(problem, levels) <= lagrangian(problem, levels, whole=True) <= least + 1e-9
        )


@pytest.mark.few(3)
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "real"])
@pytest.mark.parametrize(
    ("grid", "views"),
    [
        (Grid.flat((40, 30, 20)), [(1, 0, 0), (0, 1, 0), (0, 0, 1)]),
        (Grid((Chain(2_000, ((0, 10, 900), tuple(range(2_000)))), Chain.flat(3), Chain.flat(4))), [
            (1, 0, 0),
            (0, 1, 0),
            (0, 0, 1),
        ]),
        (Grid((Chain(2_000, ((0, 700, 1_500), tuple(range(2_000)))), Chain.flat(3), Chain.flat(4))), [
            (2, 0, 0),
            (1, 1, 0),
            (1, 0, 1),
        ]),
    ],
    ids=["one-way", "state, sex, age", "county, state x sex, state x age"],
)  # fmt: skip
def test_it_comes_as_close_as_nested_flows(grid: Grid, views: list[View], whole: bool) -> None:
    rng = np.random.default_rng(43)
    hidden = rng.poisson(rng.gamma(1.0, 1.0, grid.shape))
    noise = rng.normal(0.0, 8.0**0.5, grid.shape)
    problem = pose(
        grid, hidden + (np.rint(noise) if whole else noise), totals_of(hidden, views, grid)
    )
    start = project(problem)
    flows = fit_nested(problem, start.table)
    assert flows is not None
    flows = improve(problem, start, flows, np.inf)
    assert problem.loss(counts_of(problem)) <= 1.004 * problem.loss(flows)


@pytest.mark.parametrize(
    ("whole", "short"), [(True, 0.004), (False, 0.0002)], ids=["whole", "real"]
)
def test_a_large_table_is_rounded_and_says_how_far_it_may_be(whole: bool, short: float) -> None:
    rng = np.random.default_rng(47)
    hidden = rng.poisson(rng.gamma(1.0, 1.0, (70, 60, 50)))
    noise = rng.normal(0.0, 8.0**0.5, hidden.shape)
    noisy = hidden + (np.rint(noise) if whole else noise)
    space = space_of(hidden, "A B C")
    fit = fit_table(noisy, space)
    assert (fit.method, fit.optimal) == ("rounding", False)
    assert fit.counts is not None
    assert margins_exact(fit.counts, space)
    assert fit.loss == pytest.approx(float(((fit.counts - noisy) ** 2).sum()))
    assert 0 < fit.gap < 0.05
    if "less than" not in fit.note:
        assert float(fit.note.split("at most ")[1].split("%")[0]) / 100 <= short


def test_a_large_table_with_noise_that_dwarfs_its_counts() -> None:
    rng = np.random.default_rng(53)
    hidden = rng.poisson(0.3, (70, 60, 50))
    grid = Grid.flat(hidden.shape)
    totals = totals_of(hidden, [(1, 0, 0), (0, 1, 0), (0, 0, 1)])
    fit = fit_totals(rng.normal(0.0, 100.0, hidden.shape), grid, totals)
    assert fit.counts is not None
    assert (fit.counts >= 0).all()
    assert all(np.array_equal(grid.sum(fit.counts, total.view), total.counts) for total in totals)
    assert fit.gap < 0.01


def test_many_records_move_between_few_places() -> None:
    """Two parents of 3,000 and 5 children under two sexes: all moves between them go through two
    places.
    """
    grid, rng = (
        Grid((Chain(3_005, ((0, 3_000), tuple(range(3_005)))), Chain.flat(2))),
        np.random.default_rng(59),
    )
    hidden = rng.poisson(1.0, grid.shape)
    problem = pose(grid, np.full(grid.shape, 7), totals_of(hidden, [(1, 0), (0, 1)], grid))
    assert problem.loss(counts_of(problem)) <= 1.0001 * problem.loss(transport(problem)[0])


def test_what_cannot_be_repaired_is_not_rounded() -> None:
    grid = Grid.flat((30, 30, 30))
    hidden = np.ones(grid.shape, dtype=np.int64)
    possible = hidden > 0
    one_way, joint = [(1, 0, 0), (0, 1, 0), (0, 0, 1)], [(1, 1, 0), (0, 1, 1)]
    assert roundable(pose(grid, hidden, totals_of(hidden, one_way)))
    assert not roundable(pose(grid, hidden, totals_of(hidden, [*joint, (1, 0, 1)])))
    assert not roundable(pose(grid, hidden, totals_of(hidden, joint)))  # a total for every 15 cells
    possible[0, 0, 0] = False
    assert not roundable(pose(grid, hidden, totals_of(hidden * possible, one_way), possible))


def test_two_margins_of_a_large_table_are_rounded_close_to_the_flow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(11)
    hidden = rng.poisson(0.3, (450, 450))
    noisy = hidden + np.rint(rng.normal(0.0, 2.4, hidden.shape)).astype(np.int64)
    grid, totals = Grid.flat(hidden.shape), totals_of(hidden, [(1, 0), (0, 1)])
    exact = fit_totals(noisy, grid, totals)
    monkeypatch.setattr(tables, "LARGE_FLOW", hidden.size)
    rounded = fit_totals(noisy, grid, totals)
    assert (exact.method, rounded.method) == ("flow", "rounding")
    assert rounded.counts is not None
    assert all((grid.sum(rounded.counts, total.view) == total.counts).all() for total in totals)
    assert exact.loss <= rounded.loss <= 1.001 * exact.loss
    assert "Closer tables may exist" in rounded.note


def test_gradients_end_before_rounding_takes_over() -> None:
    # Long after they have met the equations, steps along the kernel of the matrix would grow.
    rng = np.random.default_rng(3)
    hidden = rng.poisson(0.3, (300, 300))
    grid = Grid.flat(hidden.shape)
    problem = pose(
        grid,
        hidden + np.rint(rng.normal(0.0, 2.4, hidden.shape)),
        totals_of(hidden, [(1, 0), (0, 1)]),
    )
    newton = Newton(problem, math.inf, silent)
    levels = [np.zeros(total.counts.shape) for total in problem.totals]
    missing = newton.missing(levels)
    # what rounding leaves of small gaps: those of rows and columns no longer have the same sum
    missing[0] += 1e-7 * np.abs(missing[0]).max()
    way, met = newton.gradients(newton.active(levels), missing)
    assert met
    assert max(np.abs(part).max() for part in way) < 10
