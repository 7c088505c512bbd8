"""Sums and moments of a private outcome under exchange adjacency, against brute force over all
datasets.
"""

import itertools

import numpy as np
import pytest

from semidp import Dataspace, Exchange, Feature, Margin, Outcome, Schema, Table
from semidp.assess import adjacent_datasets
from semidp.assess.adjacent_datasets import ListedExchanges
from semidp.assess.worst_moves import worst_move
from semidp.errors import Refused
from semidp.promise.sensitivity.moments import moment_space
from semidp.promise.sensitivity.outcome_spaces import outcome_exchange, sum_space
from semidp.promise.sensitivity.patterns import Norms
from semidp.publish.statistics.regression.designs import Coding, Design
from semidp.publish.statistics.regression.fits import regression_routes, route_values

STEPS = 2
OUTCOME = Outcome("y", 0, 1, steps=STEPS)


def pairs(public: Dataspace):
    """All exchanges of records with their outcome, which is one more feature that nobody
    publishes.
    """
    whole = Schema(
        (*public.schema.features, Feature("y", [str(step) for step in range(STEPS + 1)]))
    )
    blocks = ListedExchanges.from_dataspace(
        Dataspace.from_totals(
            whole, dict(zip(public.margins, public.totals, strict=True)), public.n
        )
    )
    for dataset in adjacent_datasets.datasets(blocks.dataspace):
        X = blocks.encode_records(dataset)
        for Y in blocks.neighbours(X):
            yield X, Y


def norms_of(differences: list[np.ndarray]) -> Norms:
    sizes = np.abs(np.array(differences))
    return Norms(int(sizes.sum(axis=1).max()), int((sizes**2).sum(axis=1).max()), int(sizes.max()))


def sums(schema: Schema, groups: list[Margin], records) -> np.ndarray:
    found = []
    for group in groups:
        axes = [schema.names.index(name) for name in group.names]
        table = np.zeros([schema.shape[axis] for axis in axes], dtype=np.int64)
        for record in records:
            table[tuple(record[axis] for axis in axes)] += record[-1]
        found.append(table.ravel())
    return np.concatenate(found)


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("counts", "margins", "groups", "squares"),
    [
        ([2, 1], ["a"], [["a"]], 2),
        ([3], ["a"], [["a"]], 1),
        ([[1, 1], [1, 0]], ["a", "b"], [["a"], ["b"]], 4),
        ([[1, 1], [1, 0]], ["a", "b"], [["b"]], 2),
        ([[1, 0], [1, 1]], [["a", "b"]], [["a"]], 2),
        ([[2, 0], [1, 0]], ["a", "b"], [["a"], ["b"]], 2),
        ([[2, 0], [1, 0]], ["a", "b"], [[]], 1),
    ],
)
def test_sums_by_published_groups(counts, margins, groups, squares: int) -> None:
    counts = np.array(counts)
    schema = Schema(
        [
            Feature("ab"[axis], [str(i) for i in range(size)])
            for axis, size in enumerate(counts.shape)
        ]
    )
    public = Dataspace.from_table(
        Table(schema, counts), [Margin.from_names(margin) for margin in margins]
    )
    by = [Margin(*names) for names in groups]
    space = sum_space(public, outcome_exchange(public), OUTCOME, by)
    differences = [sums(schema, by, Y) - sums(schema, by, X) for X, Y in pairs(public)]
    assert len(differences) > 20
    assert space.norms == norms_of(differences)
    assert space.l2_squared == squares * STEPS**2
    worst = worst_move(space)
    assert any(np.array_equal(worst, difference) for difference in differences)
    assert (worst**2).sum() == space.l2_squared


@pytest.mark.parametrize("coding", list(Coding))
@pytest.mark.parametrize(
    ("shape", "margins"), [((2,), ["a"]), ((3,), ["a"]), ((2, 2), [["a", "b"]])]
)
def test_regressions_on_one_block(coding: Coding, shape: tuple[int, ...], margins) -> None:
    names = "ab"[: len(shape)]
    schema = Schema(
        [
            Feature(name, [str(i) for i in range(size)])
            for name, size in zip(names, shape, strict=True)
        ]
    )
    counts = np.ones(shape, dtype=np.int64)
    if len(shape) == 2:
        counts[0, 0] = 0
    public = Dataspace.from_table(
        Table(schema, counts), [Margin.from_names(margin) for margin in margins]
    )
    design = Design.from_schema(schema, list(names), coding=coding)
    rows = dict(zip(itertools.product(*map(range, shape)), design.rows().astype(int), strict=True))
    space = moment_space(public, outcome_exchange(public), OUTCOME, design)

    def moments(records):
        return sum(rows[record[:-1]] * record[-1] for record in records)

    differences = [moments(Y) - moments(X) for X, Y in pairs(public)]
    assert space.exact
    assert space.norms == norms_of(differences)
    assert any(np.array_equal(worst_move(space), difference) for difference in differences)


def test_what_is_not_public_is_refused() -> None:
    schema = Schema([Feature("a", "01"), Feature("b", "01")])
    public = Dataspace.from_table(Table(schema, [[2, 2], [2, 2]]), [Margin("a"), Margin("b")])
    with pytest.raises(Refused, match="not published"):
        sum_space(public, outcome_exchange(public), OUTCOME, [Margin("a", "b")])
    with pytest.raises(Refused, match="not published"):
        moment_space(
            public, outcome_exchange(public), OUTCOME, Design.from_schema(schema, ["a", "b"])
        )
    overlapping = Schema([Feature(name, "01") for name in "abc"])
    joint = Dataspace.from_table(
        Table(overlapping, np.full((2, 2, 2), 2)), [Margin("a", "b"), Margin("b", "c")]
    )
    with pytest.raises(Refused, match="share no feature"):
        sum_space(joint, Exchange(3), OUTCOME, [Margin("a", "b")])


def test_whatever_a_regression_measures_moves_no_farther_than_is_said() -> None:
    """Cells, terms and combinations of columns for main effects of two factors whose joint counts
    are one block.
    """
    counts = np.array([[1, 1], [1, 0]])
    schema = Schema([Feature("a", "01"), Feature("b", "01")])
    public = Dataspace.from_table(Table(schema, counts), [Margin("a", "b")])
    design = Design.from_schema(schema, ["a"])
    whole = Design.from_schema(schema, ["a", "b"])
    every = [(X, Y) for X, Y in pairs(public)]
    for model in (design, whole):
        for route in regression_routes(public, outcome_exchange(public), OUTCOME, model):
            moved = [
                route_values(route, model, sums(schema, [Margin(*model.features)], Y))
                - route_values(route, model, sums(schema, [Margin(*model.features)], X))
                for X, Y in every
            ]
            found = norms_of(moved)
            assert found.l2_squared <= route.l2_squared
            assert found.l1 <= route.l1
            # and not much less: the bound is no idle one
            assert found.l2_squared > route.l2_squared / 2.1
