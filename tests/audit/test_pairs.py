"""The pair of an audit lies in D_t, is as far apart as may be, and knows nothing but the public
totals.
"""

import numpy as np
import pytest

from semidp.assess import Pair, worst_pair
from semidp.errors import InputError, Refused
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, StructuralZero, Table
from semidp.promise.sensitivity.table_spaces import sensitivity_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin

from .conftest import a_space

RNG = np.random.default_rng(4)
TABLES = {
    "2x2": ([[3, 1], [0, 2]], ["A", "B"], 3, None),
    "3x3": (RNG.integers(0, 9, (3, 3)), ["A", "B"], 3, None),
    "tight 3x3": (np.eye(3, dtype=int), ["A", "B"], 3, None),
    "rows": (RNG.integers(1, 9, (3, 4)), ["B"], 2, None),
    "total": (RNG.integers(1, 9, (3, 4)), [], 1, None),
    "one-way": (RNG.integers(1, 9, (2, 3, 4)), ["A", "B", "C"], 4, None),
    "chain": (RNG.integers(1, 9, (2, 3, 4)), ["AB", "BC"], 3, None),
    "no three-way": (RNG.integers(1, 4, (2, 2, 2)), ["AB", "BC", "AC"], 5, None),
    "joint": (RNG.integers(0, 9, (2, 3, 4)), ["AC", "B"], 3, None),
    "part released": (RNG.integers(1, 9, (2, 3, 4)), ["A", "B", "C"], 4, "AB"),
    "empty level": ([[4, 0, 3], [0, 0, 0], [2, 0, 1]], ["A", "B"], 3, None),
}


@pytest.mark.parametrize("name", TABLES)
def test_both_tables_have_the_public_totals_and_differ_by_the_worst_move(name: str) -> None:
    counts, margins, a, released = TABLES[name]
    space = a_space(counts, margins, a, released)
    pair = worst_pair(space)
    whole = Table(space.dataspace.schema, np.array(counts))
    for values in (pair.first, pair.second):
        assert (values >= 0).all()
        table = Table(space.schema, values)
        for margin in space.dataspace.margins:
            shared = [found for found in margin.names if found in space.schema.names]
            if shared:
                assert table.margin(shared) == whole.margin(shared)
        assert table.n == whole.n
    assert pair.records <= a
    if space.exact:
        assert int((pair.move**2).sum()) == space.l2_squared


def test_two_tables_with_the_same_totals_give_the_same_pair() -> None:
    one = worst_pair(a_space([[3, 1], [0, 2]], ["A", "B"], 3))
    other = worst_pair(a_space([[1, 3], [2, 0]], ["A", "B"], 3))
    assert np.array_equal(one.first, other.first)
    assert np.array_equal(one.second, other.second)


def test_impossible_cells_stay_empty() -> None:
    features = (Feature("A", "abc"), Feature("B", "xyz"))
    schema = Schema(features, (StructuralZero.from_pattern({"A": "a", "B": "x"}),))
    table = Table(schema, [[0, 2, 3], [4, 1, 1], [2, 2, 2]])
    space = sensitivity_space(Dataspace.from_table(table, [Margin("A"), Margin("B")]), Ball(3))
    pair = worst_pair(space)
    assert pair.first[0, 0] == pair.second[0, 0] == 0


def test_a_table_that_is_published_exactly_has_no_pair() -> None:
    with pytest.raises(Refused, match="no second table"):
        worst_pair(a_space([[3, 1], [0, 2]], ["AB"], 2))


@pytest.mark.parametrize(("first", "second"), [([1, 2], [1]), ([1.5], [2]), ([1], [1]), (1, 2)])
def test_what_is_not_a_pair_is_refused(first: object, second: object) -> None:
    with pytest.raises(InputError, match="pair"):
        Pair(first, second)  # type: ignore[arg-type]
