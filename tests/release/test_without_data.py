"""A scope without data: from public totals it is that of the data, and without them it is on the
safe side of all.
"""

import itertools

import numpy as np
import pytest

from semidp import Dataspace, Feature, Margin, Plan, Schema, Table
from semidp.errors import AdjacencyUnknown, Refused
from semidp.promise.guarantee import Scope
from semidp.promise.sensitivity.table_spaces import sensitivity_space
from semidp.promise.spaces.adjacency import Adjacency, Ball, Exchange
from semidp.promise.spaces.semi_adjacency import semi_adjacency
from semidp.publish import TableRequest
from semidp.publish.survey import any_totals, public_scope, survey

SCHEMA = Schema([Feature("sex", "fm"), Feature("region", "nsw")])
MARGINS = [[], ["sex"], ["region"], ["sex", "region"]]


def squares(scope: Scope, names: tuple[str, ...]) -> tuple[float, float, float]:
    norms = sensitivity_space(scope.dataspace, scope.adjacency, names).norms
    return (norms.l1, norms.l2_squared, norms.linf)


def every_table(most: int) -> list[Table]:
    """All tables of a 2 x 3 schema with at most `most` records in each of the first four cells."""
    rows = itertools.product(range(most + 1), repeat=4)
    return [Table(SCHEMA, np.array([*row, 1, most]).reshape(2, 3)) for row in rows if sum(row)]


def exceeded(margins: list[str], scope: Scope, names: tuple[str, ...]) -> bool:
    """Whether some totals need more noise than a scope without totals says."""
    bound = squares(scope, names)
    for table in every_table(2):
        space = Dataspace.from_table(table, [Margin(name) for name in margins])
        ball = Ball(semi_adjacency(space).bound)
        adjacency = ball if scope.adjacency.protects_groups else Exchange.from_dataspace(space)
        assert adjacency.a <= scope.adjacency.a or scope.adjacency.a < len(margins) + 1
        if adjacency.a > scope.adjacency.a:
            adjacency = Ball(scope.adjacency.a)
        try:
            norms = sensitivity_space(space, adjacency, names).norms
        except Refused:
            continue
        if any(
            one > other
            for one, other in zip((norms.l1, norms.l2_squared, norms.linf), bound, strict=True)
        ):
            return True
    return False


@pytest.mark.few(1)
@pytest.mark.parametrize("adjacency", ["worst-case", "exchange"])
@pytest.mark.parametrize("names", [("sex", "region"), ("region",)])
@pytest.mark.parametrize("margins", MARGINS)
def test_no_totals_need_more_than_is_said_without_them(
    margins: list[str], names: tuple[str, ...], adjacency: str
) -> None:
    plan = Plan([TableRequest(names)], margins, adjacency=adjacency)
    scope = any_totals(plan, SCHEMA)
    assert scope.adjacency == Adjacency.from_kind(
        "exchange" if adjacency == "exchange" else "ball", len(margins) + 1
    )
    assert not exceeded(margins, scope, names)


def test_totals_below_a_would_promise_too_much() -> None:
    scope = any_totals(Plan([TableRequest(["sex", "region"])], ["sex"]), SCHEMA)
    sparse = Dataspace.from_table(Table(SCHEMA, [[1, 0, 0], [1, 0, 0]]), [Margin("sex")])
    assert exceeded(
        ["sex"], Scope(sparse, scope.semi_adjacency, scope.adjacency), ("sex", "region")
    )


def test_public_totals_say_what_the_data_say() -> None:
    people = {"sex": [*"ffmmfmm"], "region": [*"nswnsnn"]}
    plan = Plan([TableRequest(["sex", "region"])], ["sex", "region"])
    from semidp.publish.sources.opening import open_source

    with open_source(people) as source:
        scope = survey(plan, source)[0]
    assert public_scope(plan, scope.dataspace) == scope


def test_what_cannot_be_known_without_totals() -> None:
    three = Schema([*SCHEMA.features, Feature("age", "yom")])
    pairs = [["sex", "region"], ["region", "age"], ["sex", "age"]]
    large = Schema([Feature(name, "0123") for name in "abc"])
    with pytest.raises(AdjacencyUnknown):
        any_totals(Plan(invariants=[["a", "b"], ["b", "c"], ["a", "c"]]), large)
    given = any_totals(Plan(invariants=[["a", "b"], ["b", "c"], ["a", "c"]], adjacency=4), large)
    assert "could not be checked" in given.warnings[0]
    with pytest.raises(Refused, match="share no feature"):
        any_totals(Plan(invariants=[["a", "b"], ["b", "c"]], adjacency="exchange"), large)
    assert any_totals(Plan(invariants=pairs, adjacency=2), three).warnings
