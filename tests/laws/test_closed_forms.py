"""Closed forms under exchange against the moves themselves, on all small structures.

A closed form holds where its conditions do: nothing of the outcome is published, and every count is
large enough for all records that move. The moves are those of `exchange_moves`, which
`test_exchange_costs` and `test_published_outcomes` compare with listed exchanges.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from semidp.promise.schema.counts import Table
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import Chain, Grid
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.costs import ExchangeCosts
from semidp.promise.sensitivity.exchange_tables import ExchangeTable
from semidp.promise.sensitivity.norms import ReleasedTable
from semidp.promise.sensitivity.outcome_moves import OutcomeMoves
from semidp.promise.sensitivity.residuals import Residuals
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.exchange_blocks import Blocks
from semidp.promise.spaces.outcome_adjacency import outcome_exchange
from semidp.publish.sources.contract import Outcome
from semidp.publish.statistics.distribution.distribution_space import distribution_space
from semidp.publish.statistics.outcomes.spaces import sum_space
from semidp.publish.statistics.quantiles.ranks import rank_space
from semidp.publish.statistics.regression.designs import Design
from semidp.publish.statistics.regression.moments import moment_space

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
