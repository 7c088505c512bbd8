"""Costs under exchange against every exchange of small worlds, for plain records and linked
members: equal, one residual by itself and several together.
"""

import random
from collections import Counter
from fractions import Fraction

import pytest

from semidp.errors import Refused
from semidp.promise.schema.margins import Chain, Grid
from semidp.promise.sensitivity import costs as costs_module
from semidp.promise.sensitivity import described_moves as exchange_moves
from semidp.promise.sensitivity import families
from semidp.promise.sensitivity.costs import ExchangeCosts
from semidp.promise.sensitivity.orthogonal_parts import Residuals
from tests.laws.listed_exchanges import (
    Axis,
    all_views,
    draw_axis,
    draw_blocks,
    images,
    list_member_moves,
    list_record_moves,
    small_enough,
)


def draw_world(rng, linked):
    """Features, exact totals, and how many features are those of units."""
    while True:
        inherited = rng.choice([1, 1, 2]) if linked else 0
        axes = [draw_axis(rng) for _ in range(inherited + rng.choice([1, 2, 2]))]
        blocks = []
        joint = [k for k in range(len(axes)) if linked and rng.random() < 0.5]
        if any(k < inherited for k in joint):
            blocks.append({k: rng.randint(1, axes[k].depth) for k in joint})
        else:
            joint = []
        own = [k for k in range(inherited, len(axes)) if k not in joint]
        blocks += draw_blocks(rng, axes, own)
        if small_enough(axes, blocks, inherited, 20_000 if linked else 15_000):
            return axes, blocks, inherited


def costs_of(axes, blocks, inherited):
    margins = tuple(tuple(block.get(k, 0) for k in range(len(axes))) for block in blocks)
    reach = 1 + len(blocks)
    if inherited:
        reach = 2 + sum(any(k >= inherited for k in block) for block in blocks)
    grid = Grid(tuple(axis.chain for axis in axes))
    return ExchangeCosts(Residuals(grid), margins, reach, inherited=frozenset(range(inherited)))


def compare(rng, linked, seen):
    axes, blocks, inherited = draw_world(rng, linked)
    if inherited:
        cells, moves, pairs = list_member_moves(axes, blocks, inherited)
    else:
        cells, moves, pairs = list_record_moves(axes, blocks)
    costs = costs_of(axes, blocks, inherited)
    squares = {}
    for view in all_views(axes):
        entries = ((moves @ images(axes, cells, view, centered=True)) ** 2).sum(axis=1)
        if entries.max(initial=0.0) > 1e-9:
            squares[view] = entries
            assert float(costs.cost(view)) == pytest.approx(entries.max(), abs=1e-9), (
                view,
                axes,
                blocks,
            )
            seen["costs"] += 1
    if squares:
        some = rng.sample(sorted(squares), min(4, len(squares)))
        sigma2 = {view: Fraction(rng.choice([1, 3, 8]), rng.choice([1, 2])) for view in some}
        true = sum(squares[view] / float(sigma2[view]) for view in some).max()
        assert costs.joint(sigma2) == pytest.approx(true, rel=1e-6), (sigma2, axes, blocks)
        seen["joint"] += 1
    seen["worlds"] += 1
    seen["pairs"] += pairs
    seen["nested"] += any(axis.depth > 1 for axis in axes)
    seen["joint totals"] += any(len(block) > 1 for block in blocks)


def compare_many(linked, worlds):
    rng, seen = random.Random(7 + linked), Counter()
    for _ in range(worlds):
        compare(rng, linked, seen)
    return seen


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("worlds", [20, pytest.param(2_000, marks=pytest.mark.long)])
def test_costs_are_those_of_the_worst_exchange(linked, worlds):
    seen = compare_many(linked, worlds)
    print(dict(seen))
    assert seen["costs"] > worlds
    assert min(seen["nested"], seen["joint totals"], seen["joint"]) > worlds / 8


TWO, PLACES = Axis.flat(2), Axis.nested([[0, 0], [0, 0]])
FOUND = {
    # features, those of units, exact totals, residual, true cost; the first two numbers were 1, 4
    "exact sex × group, sex × age": ((TWO, TWO, PLACES), 1, [{1: 1, 2: 1}], (0, 1, 2), 4),
    "exact state × sex, county × age": ((PLACES, TWO, TWO), 1, [{0: 1, 1: 1}], (2, 0, 1), 5),
    "exact zone × sex, tenure × age": ((TWO, TWO, TWO, TWO), 2, [{0: 1, 2: 1}], (0, 1, 0, 1), 9),
    "exact state × tenure and sex, county × sex": (
        (PLACES, TWO, TWO),
        2,
        [{0: 1, 1: 1}, {2: 1}],
        (2, 0, 1),
        9,
    ),
    "exact state × tenure × sex, county × age": (
        (PLACES, TWO, TWO, TWO),
        2,
        [{0: 1, 1: 1, 2: 1}],
        (2, 0, 0, 1),
        9,
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_costs_that_closed_forms_understated(name):
    axes, inherited, blocks, view, true = FOUND[name]
    assert costs_of(list(axes), blocks, inherited).cost(view) == true


def test_a_wide_tree_costs_nearly_as_much_as_without_end():
    counties, ages = Axis.nested([[0] * 50] * 2), Axis.flat(50)
    cost = costs_of([counties, TWO, ages], [{0: 1, 1: 1}], 1).cost((2, 0, 1))
    assert float(cost) == pytest.approx(5.96)


def test_a_county_is_seen_with_its_state():
    """Residuals of counties compare them with others of their state alone: without states, two who
    go from one state to another would cost more than they do.
    """
    county = Chain(3, ((0, 2), (0, 1, 2)))
    costs = ExchangeCosts(Residuals(Grid((county, Chain.flat(3)))), ((2, 0), (0, 1)), 3)
    assert costs.cost((2, 1)) == 4


def drop_rooms(moves):
    """Exchanges without whoever lives in y's unit."""
    return [move for move in moves if not any("y" in record.before for record in move.records)]


def keep_places(moves):
    """Exchanges in which carriers keep the place that they should take from the person."""
    return [exchange_moves.ExchangeMove(move.axes, move.records[:1], move.rules) for move in moves]


@pytest.mark.parametrize("wrong", [drop_rooms, keep_places])
def test_a_wrong_description_is_caught(monkeypatch, wrong):
    right = exchange_moves.list_exchanges
    monkeypatch.setattr(costs_module, "list_exchanges", lambda *given: wrong(right(*given)))
    with pytest.raises(AssertionError):
        compare_many(True, 40)


def test_many_patterns_give_a_bound_that_is_no_smaller(monkeypatch):
    rng, compared, looser = random.Random(3), 0, 0
    for _ in range(20):
        axes, blocks, inherited = draw_world(rng, True)
        right, bounded = costs_of(axes, blocks, inherited), costs_of(axes, blocks, inherited)
        for view in all_views(axes):
            try:
                exact = right.cost(view)
            except Refused:  # what exact totals fix
                continue
            with monkeypatch.context() as patch:
                patch.setattr(families, "_MOST_WORK", 0)
                patch.setattr(families, "_MOST_ROWS", 3)
                high = bounded.cost(view)
            assert high >= exact
            compared += 1
            looser += high > exact
    assert compared > 40
    assert looser > 0
