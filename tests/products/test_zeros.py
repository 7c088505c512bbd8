"""Products with structural zeros and empty joint cells: costs against brute force, zeros set in the
residuals.
"""

import itertools
import math

import numpy as np
import pytest

from semidp.assess.adjacent_datasets import ListedExchanges, enumerate_tables
from semidp.errors import Refused
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, StructuralZero, Table
from semidp.promise.sensitivity.costs import BallCosts, ExchangeCosts
from semidp.promise.sensitivity.products import product_space
from semidp.promise.spaces.adjacency import Ball, Exchange
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.semi_adjacency import semi_adjacency
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.half_widths import table_half_widths
from semidp.publish.product_estimates import combine_cells, compute_cell_variances, estimate_tables
from semidp.publish.residual_mechanism import ResidualMechanism
from tests.sum_errors import error_of_sum

AGE, STATUS = (
    Feature("age", ["child", "adult", "old"]),
    Feature("status", ["single", "married", "widowed"]),
)
SEX = Feature("sex", "fm")
UNMARRIED = StructuralZero.from_pattern({"age": "child", "status": ["married", "widowed"]})
_MOST_TABLES = 120  # of a dataspace whose pairs are all looked at
PAIRS = [["age", "status"], ["status", "sex"], ["age", "sex"]]


def people(records, seed, schema):
    """A random table of some records, none in an impossible cell."""
    generator = np.random.default_rng(seed)
    possible = np.ones(schema.shape, dtype=bool) if schema.possible is None else schema.possible
    cells = np.flatnonzero(possible)
    counts = np.zeros(math.prod(schema.shape), dtype=np.int64)
    np.add.at(counts, generator.choice(cells, size=records), 1)
    return Table(schema, counts.reshape(schema.shape))


def random_space(generator, exchange):
    """A product with random zeros and margins over few records; None where there is no freedom or
    no promise.
    """
    count = int(generator.integers(2, 4))
    features = [
        Feature(f"f{i}", [str(j) for j in range(int(generator.integers(2, 4)))])
        for i in range(count)
    ]
    zeros = []
    for _ in range(int(generator.integers(1, 3))):
        chosen = sorted(generator.permutation(count)[:2].tolist())
        zeros.append(
            StructuralZero.from_pattern(
                {features[i].name: str(int(generator.integers(2))) for i in chosen}
            )
        )
    schema = Schema(features, tuple(zeros) if generator.random() < 0.7 else ())
    if math.prod(schema.shape) > 12 or (schema.possible is not None and not schema.possible.any()):
        return None
    table = people(int(generator.integers(2, 5)), generator.integers(10**6), schema)
    names, margins = [feature.name for feature in features], []
    for _ in range(int(generator.integers(0, 3))):
        margins.append(
            Margin(*sorted(generator.permutation(names)[: int(generator.integers(1, 3))].tolist()))
        )
    margins = list(dict.fromkeys(margins))
    public = Dataspace.from_table(table, margins)
    if len(list(itertools.islice(enumerate_tables(public), _MOST_TABLES + 1))) > _MOST_TABLES:
        return None
    tables = [list(pair) for pair in itertools.combinations(names, 2)]
    if count == 3 and generator.random() < 0.4:
        tables.append(names)
    try:
        adjacency = (
            Exchange.from_dataspace(public) if exchange else Ball(semi_adjacency(public).bound)
        )
        if adjacency.a > 3:  # patterns of eight records take seconds
            return None
        space = product_space(public, adjacency, tables)
        costs = space.cost
    except Refused:
        return None
    return space if costs else None


def vectors(space):
    """Every table of D_t with its vector, through the very function that measures data."""
    for table in enumerate_tables(space.dataspace):
        yield (
            table,
            space.measure(
                [table.margin(space.schema.list_view_names(view)) for view in space.views]
            ),
        )


def ball_pairs(space):
    every = list(vectors(space))
    for (one, x), (other, y) in itertools.combinations(every, 2):
        if np.abs(one.counts - other.counts).sum() <= 2 * space.adjacency.a:
            yield y - x


def exchange_pairs(space):
    blocks = ListedExchanges.from_dataspace(space.dataspace)
    known = {table.counts.tobytes(): vector for table, vector in vectors(space)}
    for table in enumerate_tables(space.dataspace):
        cells = np.argwhere(table.counts)
        records = tuple(
            tuple(map(int, cell)) for cell in cells for _ in range(int(table.counts[tuple(cell)]))
        )
        for neighbour in blocks.neighbours(records):
            counts = np.zeros(space.schema.shape, dtype=np.int64)
            np.add.at(counts, tuple(zip(*neighbour, strict=True)), 1)
            yield known[counts.tobytes()] - known[table.counts.tobytes()]


def loss(mechanism, difference):
    """μ² that one difference costs, from the vector that is published and the noise that is
    drawn.
    """
    total = 0.0
    for view, part in mechanism.space.parts.items():
        square = float(((difference[part] / mechanism.space.scales[part]) ** 2).sum())
        total += square / float(mechanism.sigma2[view])
    return total


def checked_space(space, exchange, ratios):
    """The loss of the noise over all pairs is at most the claim, listed or not; return how many
    pairs there were.
    """
    differences = list(exchange_pairs(space) if exchange else ball_pairs(space))
    if not differences:
        return 0
    kind = ExchangeCosts if exchange else BallCosts
    unlisted = kind(space.costs.residuals, space.costs.margins, space.costs.a)
    for joint in (True, False):
        mechanism = ResidualMechanism.calibrate(space, Budget.gdp(1), joint=joint)
        worst = max(loss(mechanism, difference) for difference in differences)
        assert worst <= 1
        assert worst <= unlisted.joint(mechanism.sigma2)
        if joint and space.costs.moves is not None:
            ratios.append(worst)
    for view, part in space.parts.items():
        largest = max(float(((d[part] / space.scales[part]) ** 2).sum()) for d in differences)
        assert largest <= float(unlisted.cost(view)) + 1e-9
        assert largest <= float(space.cost[view]) + 1e-9
    return len(differences)


@pytest.mark.parametrize("exchange", [False, True])
def test_no_pair_of_datasets_with_zeros_costs_more_than_the_claim(exchange):
    generator, ratios, pairs, structures = np.random.default_rng(7), [], 0, 0
    while structures < 20:
        space = random_space(generator, exchange)
        if space is not None and (count := checked_space(space, exchange, ratios)):
            pairs, structures = pairs + count, structures + 1
    assert pairs > 200
    assert len(ratios) > 10
    assert min(ratios) > 0.95


@pytest.mark.long
@pytest.mark.parametrize("exchange", [False, True])
def test_no_pair_of_hundreds_of_structures_with_zeros_costs_more_than_the_claim(exchange):
    generator, ratios, structures = np.random.default_rng(70), [], 0
    while structures < 500:
        space = random_space(generator, exchange)
        structures += space is not None and checked_space(space, exchange, ratios) > 0
    assert min(ratios) > 0.95


def families(margins, seed=3, records=400):
    schema = Schema([AGE, STATUS, SEX], (UNMARRIED,))
    table = people(records, seed, schema)
    public = Dataspace.from_table(table, [Margin(*names) for names in margins])
    space = product_space(public, Ball(semi_adjacency(public).bound), PAIRS)
    return table, ResidualMechanism.calibrate(space, Budget.gdp(1))


def dense(mechanism):
    """The weights of all cells of all tables on the vector, and which of these cells are
    impossible.
    """
    space, rows, zero = mechanism.space, [], []
    for number, view in enumerate(space.views):
        shape = space.schema.grid.compute_margin_shape(view)
        for cell in range(math.prod(shape)):
            unit = np.zeros(math.prod(shape))
            unit[cell] = 1.0
            rows.append(combine_cells(space, {number: unit.reshape(shape)}))
            zero.append(cell in space.impossible.get(number, ()))
    return np.array(rows), np.array(zero)


@pytest.mark.parametrize("margins", [[["sex"]], [["age"], ["sex"]], [["age", "status"]], []])
def test_conditioning_is_constrained_least_squares(margins):
    """Minimise the noise that explains the measurement among those whose impossible cells are
    zero.
    """
    table, mechanism = families(margins)
    space = mechanism.space
    exact = [table.margin(space.schema.list_view_names(view)) for view in space.views]
    noisy = space.measure(exact) + mechanism.noises(1, SeededRandomness(5))[0]
    weights, zero = dense(mechanism)
    plain = np.concatenate([values.ravel() for values in estimate_tables(space, noisy)])
    # the multiplier form: x = z - V L' λ with L x = 0 at the impossible cells
    rows = weights[zero]
    spread = rows * mechanism.variances
    multipliers = np.linalg.lstsq(spread @ rows.T, plain[zero], rcond=1e-9)[0]
    expected = plain - weights @ (mechanism.variances * (rows.T @ multipliers))
    estimates = np.concatenate([values.ravel() for values in mechanism.estimates(noisy)])
    assert np.allclose(estimates, expected, atol=1e-7)
    assert (estimates[zero] == 0).all()
    solved = (
        weights
        - (weights * mechanism.variances)
        @ rows.T
        @ np.linalg.pinv(spread @ rows.T, rcond=1e-9)
        @ rows
    )
    variances = np.concatenate(
        [mechanism.cell_variances(number).ravel() for number in range(len(space.views))]
    )
    assert np.allclose(variances, solved**2 @ mechanism.variances, atol=1e-7)
    plain_variances = np.concatenate(
        [compute_cell_variances(space, mechanism.variances, n).ravel() for n in range(3)]
    )
    assert (variances <= plain_variances + 1e-9).all()
    assert zero.any()


def test_estimates_with_zeros_are_unbiased_agree_and_have_their_variance():
    table, mechanism = families([["sex"]])
    space = mechanism.space
    exact = [table.margin(space.schema.list_view_names(view)) for view in space.views]
    vector = space.measure(exact)
    draws = mechanism.noises(400, SeededRandomness(8))
    every = [
        np.stack(tables)
        for tables in zip(*(mechanism.estimates(vector + z) for z in draws), strict=True)
    ]
    for number, estimates in enumerate(every):
        errors = estimates - exact[number].counts
        allowed = mechanism.table_errors(number) / math.sqrt(400)
        assert (np.abs(errors.mean(axis=0)) <= 5 * allowed + 1e-9).all()
        assert np.allclose(
            errors.var(axis=0), mechanism.cell_variances(number), rtol=0.45, atol=1e-9
        )
        inside = (np.abs(errors) <= table_half_widths(mechanism, number) + 1e-9).mean(axis=0)
        assert inside.min() > 0.90
    assert np.allclose(every[0].sum(axis=1), every[1].sum(axis=2))  # statuses, of both tables
    assert np.allclose(every[1].sum(axis=1), every[2].sum(axis=1))  # sexes are exact
    assert (every[0][:, 0, 1:] == 0).all()
    difference = {0: np.ones((3, 3)) * [[0], [1], [0]], 2: -np.ones((3, 2)) * [[0], [1], [0]]}
    assert error_of_sum(mechanism, difference) == pytest.approx(0, abs=1e-9)


def test_coarse_noise_keeps_its_intervals():
    """σ near 1, where the law itself is used: at least 95% of all draws lie inside, up to chance at
    1e-6.
    """
    schema = Schema([AGE, STATUS], (UNMARRIED,))
    public = Dataspace.from_table(people(60, 1, schema), [Margin("age")])
    space = product_space(public, Ball(semi_adjacency(public).bound), [["age", "status"]])
    mechanism = ResidualMechanism.calibrate(space, Budget.gdp(6))
    draws = 4000
    zeros = np.zeros(space.shape)
    known = mechanism.estimates(zeros)[0]
    errors = np.stack(
        [mechanism.estimates(z)[0] - known for z in mechanism.noises(draws, SeededRandomness(3))]
    )
    inside = (np.abs(errors) <= table_half_widths(mechanism, 0) + 1e-9).mean(axis=0)
    assert inside.min() >= 0.95 - 5 * math.sqrt(0.05 * 0.95 / draws)
    # children are single, and as many as the total says
    assert table_half_widths(mechanism, 0)[0, 0] == 0
