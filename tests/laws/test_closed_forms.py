"""Closed forms under exchange against the moves themselves, on all small structures.

A closed form holds where its conditions do: nothing of the outcome is published, and every count is
large enough for all records that move. Those of units where one member is exchanged hold where the
exact totals of members have features of their units alone. The moves are those of `exchange_moves`, which
`test_exchange_costs` and `test_published_outcomes` compare with listed exchanges.
"""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from semidp.promise.mechanisms.exponential import rank_space
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import Chain, Grid
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.costs import ExchangeCosts
from semidp.promise.sensitivity.described_moves import list_exchanges, list_partitions
from semidp.promise.sensitivity.distribution_space import distribution_space
from semidp.promise.sensitivity.exchange_tables import ExchangeTable
from semidp.promise.sensitivity.linked_products import UnitCosts
from semidp.promise.sensitivity.moments import moment_space
from semidp.promise.sensitivity.norms import ReleasedTable
from semidp.promise.sensitivity.orthogonal_parts import Residuals
from semidp.promise.sensitivity.outcome_moves import OutcomeMoves
from semidp.promise.sensitivity.outcome_spaces import outcome_exchange, sum_space
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.exchange_blocks import Blocks
from semidp.promise.spaces.linked import Link, LinkedDataspace
from semidp.publish.statistics.regression.designs import Design

NAMES = "abcd"


def public_of(sizes, exact):
    """Features of these sizes with large counts, some of them exact."""
    levels = [[f"{name}{k}" for k in range(size)] for name, size in zip(NAMES, sizes, strict=False)]
    schema = Schema([Feature(name, each) for name, each in zip(NAMES, levels, strict=False)])
    return Dataspace.from_table(
        Table(schema, np.full(sizes, 20)), [Margin(NAMES[k]) for k in exact]
    )


STRUCTURES = [
    (sizes, exact)
    for count in (1, 2, 3)
    for sizes in itertools.combinations_with_replacement((2, 3, 4), count)
    for exact in itertools.chain.from_iterable(
        itertools.combinations(range(count), k) for k in range(count + 1)
    )
]


@pytest.mark.few(16)
@pytest.mark.parametrize(("sizes", "exact"), STRUCTURES)
def test_norms_of_tables(sizes, exact):
    public = public_of(sizes, exact)
    released = (1,) * len(sizes)
    found = ExchangeTable(
        Blocks.from_dataspace(public), ReleasedTable.from_dataspace(public, released)
    ).result
    margins = tuple(tuple(int(k == j) for j in range(len(sizes))) for k in exact)
    costs = ExchangeCosts(Residuals(Grid.flat(sizes)), margins, len(exact) + 1)
    # a table is the sum of its residuals, each spread over the levels that it does not name
    spread = {}
    for view in itertools.product((0, 1), repeat=len(sizes)):
        if any(view) and view not in margins:
            unnamed = (size for size, depth in zip(sizes, view, strict=True) if not depth)
            spread[view] = Fraction(math.prod(unnamed))
    square = costs.joint(spread) if spread else 0.0
    assert found.norms.l2_squared == pytest.approx(square, rel=1e-9, abs=1e-9)


GROUPS = [sizes for count in (1, 2, 3) for sizes in itertools.product((1, 2, 3), repeat=count)]


@pytest.mark.few(12)
@pytest.mark.parametrize("sizes", GROUPS)
@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_norms_of_outcomes(sizes, steps):
    every = range(len(sizes))
    public = public_of(sizes, every)
    exchange, outcome = outcome_exchange(public), Outcome("y", 0, steps, steps)
    margins = [Margin(NAMES[k]) for k in every]
    chains = tuple(Chain.flat(size) for size in (*sizes, steps + 1))
    blocks = [{k: 1} for k in every]
    moves = OutcomeMoves(chains, blocks, len(sizes), [range(steps + 1)], blocks)
    assert sum_space(public, exchange, outcome, margins).norms == moves.sum_norms
    assert rank_space(public, exchange, outcome, margins).norms == moves.replaced_norms
    space = distribution_space(public, exchange, outcome, margins)
    square = moves.largest_square(space.tree.gram, space.tree.farthest)
    assert space.l2_squared == square
    if sizes[0] > 1:
        design = Design.from_schema(public.schema, [NAMES[0]])
        moments = moment_space(public, exchange, outcome, design)
        rows = moments.rows_by_cell
        assert moments.norms == moves.moment_norms(rows)


def test_a_wrong_closed_form_is_seen():
    public = public_of((2, 3), (0, 1))
    outcome, margins = Outcome("y", 0, 3, 3), [Margin("a"), Margin("b")]
    chains = tuple(Chain.flat(size) for size in (2, 3, 4))
    fewer = OutcomeMoves(chains, [{0: 1}, {1: 1}], 2, [range(4)], [{0: 1}])
    exchange = outcome_exchange(public)
    assert sum_space(public, exchange, outcome, margins).norms != fewer.sum_norms
    assert rank_space(public, exchange, outcome, margins).norms != fewer.replaced_norms


PLACES = Feature.from_paths(["state", "county"], [("a", "x"), ("a", "y"), ("b", "z"), ("b", "w")])
TENURE = Feature("tenure", ["own", "rent"])
DEPTHS = {"state": (0, 1), "county": (0, 2), "tenure": (1, 1), "sex": (2, 1)}
UNIT = 3
"""A feature that members inherit and no total has: which unit they live in."""


def list_unit_changes(exact):
    """How the units that an exchange of one member touches may change: by how much each grows, and
    which of them agree in their published features.
    """
    found = set()
    blocks = [dict(DEPTHS[name] for name in exact)] if exact else []
    for move in list_exchanges(blocks, [0, 1, 2, UNIT], [0, 1, UNIT]):
        homes = [(record.before[UNIT], record.after[UNIT]) for record in move.records]
        letters = sorted({letter for home in homes for letter in home})
        rules = [rule for rule in move.rules if rule.axis < 2]
        # letters may stand for one unit, unless their published features differ
        for classes in list_partitions(len(letters)):
            unit_of = dict(zip(letters, classes, strict=True))
            agree = set()
            for rule in rules:
                pair = tuple(unit_of[letter] for letter in rule.letters)
                agree.add((rule.axis, *pair, rule.depth, rule.equal))
            if not any(one == other and not equal for _, one, other, _, equal in agree):
                grows = Counter(dict.fromkeys(classes, 0))
                grows.update(unit_of[after] for _, after in homes)
                grows.subtract(unit_of[before] for before, _ in homes)
                found.add((tuple(grows[unit] for unit in sorted(grows)), frozenset(agree)))
    return found


def largest_change_of_units(changes, view, sizes, kinds):
    """The largest Δ2² of units by place, tenure, size and kind at the depths of a view, over all
    ways in which the described changes may happen to units.
    """
    own = [(PLACES.path(leaf), (tenure,)) for leaf in range(4) for tenure in TENURE.levels]
    largest = 0
    for grows, agree in changes:
        for units in itertools.product(own, repeat=len(grows)):
            if any(
                (units[one][axis][:depth] == units[other][axis][:depth]) != equal
                for axis, one, other, depth, equal in agree
            ):
                continue
            options = []
            for (place, tenure), growth in zip(units, grows, strict=True):
                mine = set()
                for size, *both in itertools.product(range(sizes), range(kinds), range(kinds)):
                    if 0 <= size + growth < sizes:
                        seen = place[: view[0]], tenure[: view[1]]
                        after = (*seen, (size + growth) * view[2], both[1] * view[3])
                        mine.add(((*seen, size * view[2], both[0] * view[3]), after))
                options.append(mine)
            for chosen in itertools.product(*options):
                change = Counter(after for _, after in chosen)
                change.subtract(before for before, _ in chosen)
                largest = max(largest, sum(count**2 for count in change.values()))
    return largest


def unit_costs(exact):
    members = Table(Schema([PLACES, TENURE, Feature("sex", "fm")]), np.full((4, 2, 2), 9))
    homes = Table(
        Schema([PLACES, TENURE, Feature("size", "123"), Feature("kind", "pq")]),
        np.full((4, 2, 3, 2), 3),
    )
    persons = Dataspace.from_table(members, [Margin(*exact)] if exact else [])
    link = Link("member", 1, 3, ("size", "kind"))
    public = LinkedDataspace.joining(persons, Dataspace.from_table(homes, []), link)
    return UnitCosts(public, Residuals(homes.schema.grid), True)


INHERITED = [(), ("state",), ("county",), ("tenure",), ("state", "tenure"), ("county", "tenure")]


@pytest.mark.few(2)
@pytest.mark.parametrize("own", [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)])
@pytest.mark.parametrize("exact", [*INHERITED, ("sex",), ("state", "sex")])
def test_norms_of_unit_tables(exact, own):
    """They are attained where the exact total of members has features of their units alone; with
    features of their own it is a bound.
    """
    costs, changes = unit_costs(exact), list_unit_changes(exact)
    for derived in ((1, 0), (0, 1), (1, 1)):
        view = (*own, *derived)
        axes = frozenset(axis for axis in (2, 3) if view[axis])
        closed, largest = costs._sharper(view, axes), largest_change_of_units(changes, view, 3, 2)
        assert (largest <= closed) if "sex" in exact else (largest == closed)


def test_units_that_a_carrier_leaves_are_seen():
    changes = {change for change in list_unit_changes(("state",)) if len(change[0]) < 3}
    view = (0, 0, 0, 1)
    assert largest_change_of_units(changes, view, 3, 2) < unit_costs(("state",))._sharper(view, {3})
