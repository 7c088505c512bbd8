"""Where noise is placed: the figures of the convex program, and the lower bound that no Gaussian
noise goes below.
"""

import itertools

import numpy as np
import pytest

from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.products import product_space
from semidp.promise.spaces.adjacency import Ball, Exchange
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.semi_adjacency import semi_adjacency
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.placement import Objective, Workload
from semidp.publish.residual_mechanism import ResidualMechanism
from semidp.publish.selection import find_excess_variance, least_total
from tests.products.test_joint_costs import ball_moves


def built(sizes, margins, exchange=False, order=2, records=6):
    """All tables of some order, with as many records in every cell."""
    schema = Schema(
        [Feature(f"f{i}", [str(j) for j in range(size)]) for i, size in enumerate(sizes)]
    )
    exact = [Margin(*(f"f{i}" for i in names)) for names in margins]
    public = Dataspace.from_table(Table(schema, np.full(sizes, records)), exact)
    adjacency = Exchange.from_dataspace(public) if exchange else Ball(semi_adjacency(public).bound)
    tables = [
        [f"f{i}" for i in chosen] for chosen in itertools.combinations(range(len(sizes)), order)
    ]
    return product_space(public, adjacency, tables)


FIGURES = [
    ((2, 5, 7, 9, 16), [[0], [1]], False, 57_600),
    ((2, 5, 7, 9, 16), [[0], [1]], True, 10_440),
    ((2, 5, 7), [[0], [1]], False, 1_234),
    ((4, 2, 2, 2), [[0], [1]], False, 854),
    ((4, 2, 2, 2), [[0], [1]], True, 248),
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("sizes", "margins", "exchange", "most"), FIGURES)
def test_all_pairs_need_no_more_than_the_convex_program_found(sizes, margins, exchange, most):
    space = built(sizes, margins, exchange)
    mechanism = ResidualMechanism.calibrate(space, Budget.gdp(1))
    assert mechanism.workload is not None
    total = mechanism.workload.total(mechanism.sigma2)
    assert 0.98 * most < total <= most
    assert mechanism.spent <= mechanism.precision
    assert find_excess_variance(mechanism) is not None
    assert -1e-6 <= find_excess_variance(mechanism) < 0.02


def test_a_joint_margin_is_taken_as_what_it_is():
    """Taken as two margins of one feature each, the three residuals would cost a third more."""
    space = built((2, 3, 2), [[0], [1, 2]], order=3)
    mechanism = ResidualMechanism.calibrate(space, Budget.gdp(1))
    alone = ResidualMechanism.calibrate(space, Budget.gdp(1), joint=False)
    assert mechanism.workload is not None
    assert mechanism.workload.total(mechanism.sigma2) < 0.68 * mechanism.workload.total(
        alone.sigma2
    )


@pytest.mark.parametrize(
    ("sizes", "margins"), [((2, 3), [[0]]), ((2, 2, 2), [[0]]), ((2, 2, 2), [[0], [1]])]
)
def test_no_gaussian_noise_on_the_cells_goes_below_the_lower_bound(sizes, margins):
    """Any covariance, scaled until every move is hidden: its total variance is at least what is
    stated.
    """
    space = built(sizes, margins)
    mechanism = ResidualMechanism.calibrate(space, Budget.gdp(1))
    assert mechanism.workload is not None
    least = least_total(mechanism.workload, mechanism.sigma2)
    assert least is not None
    grid = space.residuals.grid
    moves = ball_moves(
        grid, [margin.view for margin in space.dataspace.published_totals], space.adjacency.a
    )
    vectors = np.linalg.svd(moves.astype(float), full_matrices=False)[2]
    basis = vectors[: np.linalg.matrix_rank(moves)]
    sums = [
        np.stack(
            [grid.sum(unit.reshape(sizes), view).ravel() for unit in np.eye(basis.shape[1])], 1
        )
        for view in space.views
    ]
    inside = [matrix @ basis.T for matrix in sums]
    reduced = moves @ basis.T
    generator, totals = np.random.default_rng(4), []
    for _ in range(300):
        root = generator.normal(size=(len(basis), len(basis))) * generator.uniform(0, 1)
        covariance = np.eye(len(basis)) + root @ root.T
        precision = np.linalg.inv(covariance)
        worst = float(((reduced @ precision) * reduced).sum(axis=1).max())
        totals.append(worst * sum(float(np.trace(part @ covariance @ part.T)) for part in inside))
    assert min(totals) >= least * (1 - 1e-6)
    assert mechanism.workload.total(mechanism.sigma2) <= min(totals)


def test_no_lower_bound_is_stated_where_its_conditions_do_not_hold():
    rare = built((2, 3), [[0]], records=1)
    counts = np.array([[1, 0, 0], [4, 4, 4]])
    few = Dataspace.from_table(Table(rare.schema, counts), [Margin("f0")])
    circle = built((2, 2, 2), [[0, 1], [1, 2], [0, 2]], order=3)
    uneven = Schema(
        [
            Feature.from_paths(["state", "county"], [("s", "a"), ("s", "b"), ("t", "c")]),
            Feature("sex", "fm"),
        ]
    )
    nested = Dataspace.from_table(Table(uneven, np.full((3, 2), 9)), [Margin("state")])
    spaces = [
        product_space(few, Ball(2), [["f0", "f1"]]),
        circle,
        product_space(nested, Ball(2), [["county", "sex"]]),
    ]
    for space in spaces:
        mechanism = ResidualMechanism.calibrate(space, Budget.gdp(1))
        assert find_excess_variance(mechanism) is None
    whole = built((2, 3), [[0]])
    largest = Workload.from_weights(whole, None, Objective.largest)
    sigma2 = ResidualMechanism.calibrate(whole, Budget.gdp(1)).sigma2
    assert least_total(largest, sigma2) is None
    assert find_excess_variance(ResidualMechanism.calibrate(whole, Budget.gdp(1))) is not None
