"""The exact methods against brute force: no table of a small dataspace is closer than the fitted
one.
"""

import numpy as np
import pytest

from semidp.promise.schema.margins import Chain, Grid, Totals
from semidp.promise.schema.schema import StructuralZero
from semidp.publish.fitting.integer import transport
from semidp.publish.fitting.real import RealFit, approach, pose
from semidp.publish.fitting.tables import fit_alike, fit_table, fit_totals
from tests.fit.cases import all_tables, least_loss, margins_exact, space_of, totals_of

EXACT = [
    ((5,), "", "thresholds"),
    ((3, 3), "", "thresholds"),
    ((3, 3), "A", "thresholds"),
    ((3, 2, 2), "AB", "thresholds"),
    ((2, 2), "A B", "flow"),
    ((2, 3), "A B", "flow"),
    ((3, 3), "A B", "flow"),
    ((2, 2, 2), "A B", "flow"),
    ((2, 2, 2), "AB C", "flow"),
    ((2, 2, 2), "AB BC", "flow"),
    ((2, 2, 3), "AC BC", "flow"),
    ((2, 2, 2, 2), "AB BC", "flow"),
    ((2, 2, 2, 2), "AB CD", "flow"),
    ((2, 2, 2), "A B C", "nested flows"),
    ((3, 2, 2), "A B C", "nested flows"),
    ((2, 2, 2), "AB BC AC", "integer program"),
    ((3, 3, 2), "AB BC AC", "integer program"),
    ((2, 2, 2, 2), "AB BC CD", "nested flows"),
    ((2, 2, 2, 2), "ABD BCD ACD", "integer program"),
]
SCALES = [0.4, 2.0, 30.0]


@pytest.mark.few(6)
@pytest.mark.parametrize(("shape", "margins", "method"), EXACT)
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "real"])
def test_no_table_is_closer(shape: tuple[int, ...], margins: str, method: str, whole: bool) -> None:
    rng = np.random.default_rng([7, *shape, whole])
    for trial in range(12):
        hidden = rng.multinomial(
            rng.integers(1, 9), rng.dirichlet(np.ones(np.prod(shape)))
        ).reshape(shape)
        noise = rng.normal(0.0, SCALES[trial % 3], shape)
        noisy = hidden + (np.rint(noise) if whole else noise)
        space = space_of(hidden, margins)
        fit = fit_table(noisy, space)
        assert fit.counts is not None
        assert margins_exact(fit.counts, space)
        assert fit.loss == pytest.approx(least_loss(noisy, space), rel=1e-9, abs=1e-6)
        assert fit.loss == pytest.approx(float(((fit.counts - noisy) ** 2).sum()))
        assert fit.optimal
        assert fit.method == method
        assert fit.bound <= fit.loss


def test_every_2x2_table_of_up_to_four_records() -> None:
    rng = np.random.default_rng(11)
    for n in range(5):
        for cells in all_tables(space_of(np.array([[n, 0], [0, 0]]), "")):
            noisy = cells + rng.normal(0.0, 2.0, (2, 2))
            space = space_of(cells, "A B")
            fit = fit_table(noisy, space)
            assert fit.loss == pytest.approx(least_loss(noisy, space), abs=1e-6)


def test_ties_at_half_a_record_are_broken_exactly() -> None:
    """Noisy values of exactly one half leave many optima; the fit is one of them, and costs are
    compared exactly.
    """
    space = space_of(np.array([[2, 1, 0], [0, 1, 1], [1, 0, 3]]), "A B")
    noisy = np.full((3, 3), 0.5)
    assert fit_table(noisy, space).loss == least_loss(noisy, space)


def test_impossible_cells_stay_empty_at_the_optimum() -> None:
    rng = np.random.default_rng(13)
    zero = StructuralZero.from_pattern({"A": "0", "B": ["1", "2"]})
    for margins in ("", "A", "A B", "A B C", "AB C", "AB BC AC"):
        for _ in range(6):
            hidden = rng.poisson(0.6, (2, 3, 2))
            hidden[0, 1:] = 0
            noisy = hidden + rng.normal(0.0, 3.0, hidden.shape)
            space = space_of(hidden, margins, [zero])
            fit = fit_table(noisy, space)
            assert fit.counts is not None
            assert margins_exact(fit.counts, space)
            assert fit.loss == pytest.approx(least_loss(noisy, space), abs=1e-6)


@pytest.mark.parametrize("scale", [1.0, 20.0, 1e5])
def test_a_flow_finds_the_optimum_from_a_bad_start(scale: float) -> None:
    """Multipliers that are far off leave the first flow far off, or without an answer; later ones
    make up for it.
    """
    rng = np.random.default_rng(19)
    for _ in range(10):
        hidden = rng.poisson(rng.gamma(0.5, 8.0, (6, 5, 3)))
        noisy = hidden + np.rint(rng.normal(0.0, scale, hidden.shape))
        problem = pose(Grid.flat(hidden.shape), noisy, totals_of(hidden, [(1, 0, 1), (0, 1, 1)]))
        good = approach(problem)
        bad = [rng.normal(0.0, 5.0, level.shape) for level in good.levels]
        counts, proved = transport(problem, RealFit(problem, tuple(bad), 0.0, 0.0))
        assert proved
        assert problem.loss(counts) == problem.loss(transport(problem, good)[0])


def test_the_brute_force_counts_what_is_known() -> None:
    """2 x 2 tables with margins (2, 2) and (2, 2): three of them."""
    assert len(list(all_tables(space_of(np.array([[1, 1], [1, 1]]), "A B")))) == 3


@pytest.mark.parametrize("shape", [(40, 30), (6, 5, 40)])
def test_no_cycle_of_single_records_improves_a_flow(shape: tuple[int, ...]) -> None:
    """Shortest paths over single-record moves, independent of the solver: a negative cycle would be
    an improvement.
    """
    rng = np.random.default_rng(17)
    for scale in (0.7, 3.0, 1e4):
        hidden = rng.poisson(rng.gamma(0.5, 3.0, shape))
        noisy = hidden + np.rint(rng.normal(0.0, scale, shape))
        margins = "A B" if len(shape) == 2 else "AC BC"
        fit = fit_table(noisy, space_of(hidden, margins))
        assert fit.counts is not None
        for group in range(shape[2] if len(shape) == 3 else 1):
            at = (slice(None), slice(None), group)[: len(shape)]
            counts, values = fit.counts[at], noisy[at]
            add = 2 * (counts - values) + 1
            drop = np.where(counts > 0, -2 * (counts - 1 - values) - 1, np.inf)
            rows, columns = np.zeros(shape[0]), np.zeros(shape[1])
            for _ in range(shape[0] + shape[1] + 1):
                columns_now = np.minimum(columns, (rows[:, None] + add).min(axis=0))
                rows_now = np.minimum(rows, (columns_now[None, :] + drop).min(axis=1))
                settled = np.array_equal(rows, rows_now) and np.array_equal(columns, columns_now)
                rows, columns = rows_now, columns_now
            assert settled


def test_tables_that_are_fitted_together_are_those_that_are_fitted_alone() -> None:
    """One and two margins, ordinary and nested features: the same counts, losses and bounds."""
    rng = np.random.default_rng(5)
    for grid, views in [
        (Grid.flat((3, 4)), [(1, 0), (0, 1)]),
        (Grid.flat((3, 4)), [(1, 0)]),
        (Grid((Chain(5, ((0, 2), (0, 1, 2, 3, 4))), Chain.flat(3))), [(1, 1), (2, 0)]),
        (Grid.flat((4,)), [(0,)]),
    ]:
        tables = rng.integers(0, 4, size=(12, *grid.shape))
        noisy = list(tables + rng.normal(0, 2, size=tables.shape))
        totals = [[Totals(view, grid.sum(table, view)) for view in views] for table in tables]
        together = fit_alike(noisy, grid, totals)
        for fit, values, margins in zip(together, noisy, totals, strict=True):
            alone = fit_totals(values, grid, margins)
            assert fit.counts is not None
            assert fit.loss == pytest.approx(alone.loss)
            assert fit.bound == pytest.approx(alone.bound, rel=1e-6, abs=1e-9)
            assert (fit.method, fit.optimal, fit.note) == (alone.method, True, alone.note)
            assert all(
                np.array_equal(grid.sum(fit.counts, total.view), total.counts) for total in margins
            )
