"""The joint cost of residuals against every move of small random structures: ball, exchange, joint
and nested margins.

The moves are listed here by their definitions alone, whatever the counts of a dataspace, so that
every bound that a claim may rest on is held against the largest cost of a move that exists.
"""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from semidp.errors import Refused
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import Chain, Grid, is_within_view, list_axes, maximal
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.costs import BallCosts, ExchangeCosts, MoveList
from semidp.promise.sensitivity.joint_costs import (
    JointBound,
    ListedMoves,
    PatternMoves,
    ResidualGroup,
    SumOfCosts,
    precisions,
)
from semidp.promise.sensitivity.orthogonal_parts import Residuals, list_coarser_views
from semidp.promise.sensitivity.products import product_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.publish.placement import allocate, lower_bound, solve

FLAT = [Chain.flat(2), Chain.flat(3), Chain.flat(4)]
NESTED = [
    Chain(4, ((0, 2), (0, 1, 2, 3))),
    Chain(3, ((0, 2), (0, 1, 2))),
    Chain(4, ((0, 1), (0, 1, 2, 3))),
]


@pytest.mark.parametrize("a", [1, 2, 3])
def test_what_too_few_records_can_change_is_not_published_exactly(a):
    """Three margins in a circle: four records change, or none."""
    schema = Schema([Feature(name, "xy") for name in "abc"])
    circle = [Margin("a", "b"), Margin("b", "c"), Margin("a", "c")]
    public = Dataspace.from_table(Table(schema, np.ones((2, 2, 2), dtype=int)), circle)
    with pytest.raises(Refused, match="would be released exactly"):
        assert product_space(public, Ball(a), [["a", "b", "c"]]).cost
    assert product_space(public, Ball(4), [["a", "b", "c"]]).cost == {(1, 1, 1): 8}


@pytest.mark.parametrize("value", [1e-6, 1.0, 8.000000123, 1e5])
def test_costs_beyond_small_fractions_are_rounded_up(value):
    """By more than the sum can be off."""
    costs = BallCosts(Residuals(Grid.flat((97, 89, 83, 79, 2))), (), 2)
    rounded = costs._round_up(value, (1, 1, 1, 1, 1))
    assert Fraction(value) * (1 + Fraction(1, 10**9)) <= rounded
    assert rounded <= Fraction(value) * (1 + Fraction(2, 10**9)) + Fraction(2, 2**30)


@pytest.mark.parametrize("size", [1, 2, 3, 40])
def test_bounds_hold_in_exact_arithmetic(size):
    """What is added for rounding is at least what rounding has taken away."""
    generator = np.random.default_rng(size)
    for _ in range(200):
        costs, tau = generator.random(size), generator.random(size)
        exact = sum(map(Fraction.__mul__, map(Fraction, costs), map(Fraction, tau)))
        together = SumOfCosts(costs)
        assert Fraction(together.worst(tau)[0]) + Fraction(together.slack(tau)) >= exact
        alone = [
            ResidualGroup((number,), (SumOfCosts(costs[number : number + 1]),))
            for number in range(size)
        ]
        assert Fraction(JointBound(tuple(alone)).upper(tau)) >= exact


@pytest.mark.parametrize("times", [1, 2])
def test_listed_moves_have_no_more_records_than_their_rounding_is_for(times):
    move = np.array([[[2, -2], [-2, 2]]]) * times
    listed = MoveList(move, (1, 1))
    costs = BallCosts(Residuals(Grid.flat((2, 2))), ((1, 0), (0, 1)), 4, listed, times)
    (bound,) = costs.bounds(((1, 1),))
    (part,) = bound.groups[0].parts
    assert isinstance(part, ListedMoves)
    assert np.abs(move).sum() <= part.records
    assert part.worst(np.ones(1))[0] == (move**2).sum()


def test_a_residual_that_no_listed_move_changes_is_refused():
    """All pairs exact, and two records: no table moves, and none would be fixed by the totals."""
    listed = MoveList(np.zeros((1, 2, 2, 2), dtype=int), (1, 1, 1))
    pairs = ((1, 1, 0), (1, 0, 1), (0, 1, 1))
    costs = BallCosts(Residuals(Grid.flat((2, 2, 2))), pairs, 2, listed)
    with pytest.raises(Refused, match="give a larger a"):
        costs.cost((1, 1, 1))


@pytest.mark.parametrize("count", [1, 10, 1000])
def test_the_rounding_of_a_sum_is_bounded(count):
    """At most count + 1 roundings of 2**-53 each, and no more than that matters."""
    costs, tau = np.full(count, 0.3), np.full(count, 0.7)
    part = SumOfCosts(costs)
    value, _ = part.worst(tau)
    assert (count + 1) * 2.0**-53 * value <= part.slack(tau) <= 1e-9 * value


def test_a_table_moves_by_no_more_than_all_records_that_it_sees():
    """Of linked members: five who go from one cell to another move it by 5 and 5."""
    costs = ExchangeCosts(Residuals(Grid.flat((2,))), (), 5, inherited=frozenset({0}))
    assert costs._certify_cost((1,)) == 2 * 5**2


def random_grid(generator, most):
    """Two to four features, some nested, with few cells."""
    while True:
        count = int(generator.integers(2, 5))
        chains = []
        for _ in range(count):
            shelf = NESTED if generator.random() < 0.25 else FLAT
            chains.append(shelf[int(generator.integers(len(shelf)))])
        if math.prod(chain.leaves for chain in chains) <= most:
            return Grid(tuple(chains))


def random_margins(generator, grid, disjoint):
    """Up to three margins over one or two features, at random depths."""
    margins, used = [], set()
    for _ in range(int(generator.integers(0, 4))):
        chosen = generator.permutation(len(grid.chains))[: int(generator.integers(1, 3))]
        if disjoint and used & {*chosen.tolist()}:
            continue
        used |= {*chosen.tolist()}
        view = [0] * len(grid.chains)
        for axis in chosen:
            view[axis] = int(generator.integers(1, grid.chains[axis].depth + 1))
        margins.append(tuple(view))
    return tuple(maximal(margins))


def random_views(generator, grid, margins):
    """The residuals of one to three random tables that no margin fixes."""
    residuals, views = Residuals(grid), set()
    for _ in range(int(generator.integers(1, 4))):
        table = tuple(int(generator.integers(0, depth + 1)) for depth in grid.full)
        views |= {
            view for view in list_coarser_views(table) if any(view) and residuals.varies(view)
        }
    return tuple(
        sorted(
            view for view in views if not any(is_within_view(view, margin) for margin in margins)
        )
    )


def kernel(grid, view):
    """The matrix of |H_d M_d m|² as a form of the cells."""
    result = np.ones((1, 1))
    for chain, depth in zip(grid.chains, view, strict=True):
        part = np.ones((chain.leaves, chain.leaves))
        if depth:
            nodes, parents = (
                chain.find_leaf_ancestors(depth),
                (chain.find_leaf_ancestors(depth - 1) if depth > 1 else np.zeros(chain.leaves)),
            )
            siblings = np.array([len({*nodes[parents == parent].tolist()}) for parent in parents])
            part = (parents[:, None] == parents) * (
                (nodes[:, None] == nodes) - 1 / siblings[:, None]
            )
        result = np.kron(result, part)
    return result


def ball_moves(grid, margins, a):
    """Every difference of two multisets of a cells with the same margins, one of each pair of
    signs.
    """
    cells = math.prod(grid.shape)
    labels = [grid.labels(margin) for margin in margins]
    groups: dict[tuple, list] = {}
    for chosen in itertools.combinations_with_replacement(range(cells), a):
        key = tuple(tuple(sorted(label[list(chosen)].tolist())) for label in labels)
        groups.setdefault(key, []).append(np.bincount(chosen, minlength=cells))
    moves = []
    for members in groups.values():
        tables = np.array(members)
        for number in range(len(tables)):
            moves.append(tables[number + 1 :] - tables[number])
    return np.unique(np.concatenate(moves), axis=0)


def exchange_moves(grid, margins):
    """Every exchange: x, y, and for each block in which they differ a carrier with y's tuple
    there.
    """
    cells = list(itertools.product(*(range(chain.leaves) for chain in grid.chains)))
    place = {cell: number for number, cell in enumerate(cells)}
    nodes = [
        [None, *(chain.find_leaf_ancestors(depth).tolist() for depth in range(1, chain.depth + 1))]
        for chain in grid.chains
    ]

    def node(cell, margin, axis):
        return nodes[axis][margin[axis]][cell[axis]]

    moves = set()
    for x, y in itertools.permutations(cells, 2):
        differ = []
        for margin in margins:
            axes = [
                axis for axis in list_axes(margin) if node(x, margin, axis) != node(y, margin, axis)
            ]
            if axes:
                differ.append((margin, axes))
        carriers = []
        for margin, _ in differ:
            carriers.append(
                [
                    c
                    for c in cells
                    if all(node(c, margin, i) == node(y, margin, i) for i in list_axes(margin))
                ]
            )
        shared = [*range(len(differ))]
        for chosen in itertools.product(*carriers):
            # who serves: each block another record, or records with the same values are one record
            for people in itertools.product(*(range(number + 1) for number in shared)):
                if any(chosen[number] != chosen[person] for number, person in enumerate(people)):
                    continue
                change = Counter({place[y]: 1})
                change[place[x]] -= 1
                after: dict[int, list] = {}
                for number, person in enumerate(people):
                    record = after.setdefault(person, list(chosen[person]))
                    for axis in differ[number][1]:
                        record[axis] = x[axis]
                for person, record in after.items():
                    change[place[tuple(record)]] += 1
                    change[place[chosen[person]]] -= 1
                moves.add(tuple(sorted((cell, count) for cell, count in change.items() if count)))
    table = np.zeros((len(moves), len(cells)), dtype=np.int64)
    for number, move in enumerate(moves):
        for cell, count in move:
            table[number, cell] = count
    return table


def squares_of(grid, views, moves):
    """|H_d M_d m|² of every move (row) and residual (column)."""
    columns = []
    for view in views:
        form = kernel(grid, view)
        columns.append(((moves @ form) * moves).sum(axis=1))
    return np.stack(columns, axis=1)


def held_against(costs, views, squares, generator, ratios):
    """Hold every bound against the listed moves at random τ; note how much of it is attained."""
    attained = squares.max(axis=0)
    kept = [number for number, value in enumerate(attained) if value > 1e-9]
    views, squares = tuple(views[number] for number in kept), squares[:, kept]
    if not views:
        return 0
    for number, view in enumerate(views):
        assert squares[:, number].max() <= float(costs.cost(view)) * (1 + 1e-9)
    checked = 0
    for _ in range(3):
        sigma2 = {
            view: Fraction(int(1000 * math.exp(generator.normal())) + 1, 1000) for view in views
        }
        tau = precisions(views, sigma2)
        true = float((squares @ tau).max())
        assert true <= costs.joint(sigma2)
        for bound in costs.bounds(views):
            for group in bound.groups:
                some = list(group.numbers)
                sup = float((squares[:, some] @ tau[some]).max())
                for part in group.parts:
                    value, slope = part.worst(tau[some])
                    assert sup <= value + part.slack(tau[some])
                    assert value == pytest.approx(float(slope @ tau[some]), rel=1e-9)
                    checked += 1
                    exact = isinstance(part, PatternMoves) and part.exact
                    name = (
                        "all patterns"
                        if exact
                        else "sum"
                        if isinstance(part, SumOfCosts)
                        else "paired or wider"
                    )
                    ratios.setdefault(name, []).append(sup / value)
        ratios.setdefault("joint cost", []).append(true / costs.joint(sigma2))
    return checked


def ball_case(generator, ratios):
    grid = random_grid(generator, 18)
    margins = random_margins(generator, grid, disjoint=False)
    a = (
        int(generator.integers(1, 4))
        if math.prod(grid.shape) <= 12
        else int(generator.integers(1, 3))
    )
    views = random_views(generator, grid, margins)
    moves = ball_moves(grid, margins, a) if views else np.zeros((0, 1))
    if not len(moves) or not views:
        return 0
    costs = BallCosts(Residuals(grid), margins, a)
    return held_against(costs, views, squares_of(grid, views, moves), generator, ratios)


def exchange_case(generator, ratios):
    grid = random_grid(generator, 12)
    margins = random_margins(generator, grid, disjoint=True)
    if any(Grid(grid.chains).count_margin_cells(margin) < 2 for margin in margins):
        return 0
    views = random_views(generator, grid, margins)
    if not views:
        return 0
    costs = ExchangeCosts(Residuals(grid), margins, len(margins) + 1)
    return held_against(
        costs, views, squares_of(grid, views, exchange_moves(grid, margins)), generator, ratios
    )


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("case", [ball_case, exchange_case])
def test_no_move_of_a_random_structure_costs_more_than_any_bound(case, seed):
    generator, ratios = np.random.default_rng(seed), {}
    checked = sum(case(generator, ratios) for _ in range(50))
    assert checked > 50
    exact = ratios["all patterns"]
    assert len(exact) > 10
    assert min(exact) > 0.95


@pytest.mark.long
@pytest.mark.parametrize("case", [ball_case, exchange_case])
def test_no_move_of_thousands_of_structures_costs_more_than_any_bound(case):
    generator, ratios = np.random.default_rng(99), {}
    checked = sum(case(generator, ratios) for _ in range(1500))
    # Structures without moves count nothing: 6,924 of the ball are left, and more of exchanges.
    assert checked > 5_000
    assert min(ratios["all patterns"]) > 0.95


def test_a_cost_that_is_too_small_is_caught():
    """The twin: with one record less in the patterns some structure exceeds the bound."""
    grid = Grid.flat((2, 3))
    squares = squares_of(grid, ((0, 1), (1, 1)), ball_moves(grid, ((1, 0),), 2))
    short = BallCosts(Residuals(grid), ((1, 0),), 1)
    with pytest.raises(AssertionError):
        held_against(short, ((0, 1), (1, 1)), squares, np.random.default_rng(1), {})


def test_the_program_reaches_the_best_of_a_grid_search():
    """Three residuals, all moves listed: no τ on a fine grid beats the solution, nor its lower
    bound.
    """
    grid = Grid.flat((2, 3))
    views = ((0, 1), (1, 0), (1, 1))
    squares = squares_of(grid, views, ball_moves(grid, (), 2))
    gains = np.array([2.0, 1.0, 3.0])

    def oracle(tau):
        values = squares @ tau
        return float(values.max()), squares[int(values.argmax())]

    start = 1 / np.array(allocate(squares.max(axis=0).tolist(), gains.tolist(), 1.0))
    solution = solve(gains, oracle, start, 200, 1e-5)
    assert oracle(solution.tau)[0] == pytest.approx(1)
    shares = np.linspace(-1, 1, 41)
    tried = 0
    for one, two in itertools.product(shares, shares):
        tau = solution.tau * np.exp(np.array([one, two, 0.0]))
        total = float((gains / tau).sum()) * oracle(tau)[0]
        assert total >= solution.least
        assert total >= solution.total * (1 - 1e-4)
        tried += 1
    assert tried == 41**2
    assert solution.least <= solution.total <= solution.least * 1.0001


def test_a_lower_bound_holds_for_any_weights():
    generator = np.random.default_rng(5)
    for _ in range(200):
        cuts, gains = generator.uniform(0, 3, size=(4, 3)), generator.uniform(0.1, 2, size=3)
        bound = lower_bound(cuts, gains, generator.uniform(0, 1, size=4))
        tau = generator.uniform(0.01, 1, size=3)
        tau /= (cuts @ tau).max()
        assert bound <= float((gains / tau).sum())
    # nothing is known of the second
    assert lower_bound(np.array([[1.0, 0.0]]), np.ones(2), np.ones(1)) == 0
