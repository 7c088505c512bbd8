"""Schemas with more features than an array has axes: only single tables and margins are held as
arrays.
"""

import itertools

import numpy as np
import pytest

from semidp import Ball, Budget, Feature, Plan, Release, run
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.schema import Table
from semidp.promise.spaces.dataspace import Margin
from semidp.promise.spaces.semi_adjacency import semi_adjacency
from semidp.publish import TableRequest, TablesRequest
from semidp.publish.pipeline import prepare

NAMES = [f"q{number}" for number in range(100)]


def answers(n: int = 200) -> dict[str, list[str]]:
    rng = np.random.default_rng(3)
    return {
        name: [str(level) for level in rng.integers(2 + place % 3, size=n)]
        for place, name in enumerate(NAMES)
    }


def declared() -> list[Feature]:
    return [
        Feature(name, [str(level) for level in range(2 + place % 3)])
        for place, name in enumerate(NAMES)
    ]


def wanted() -> list[TableRequest]:
    """A table of each feature with the next one, so that every feature is used."""
    return [TableRequest([one, other]) for one, other in itertools.pairwise(NAMES)]


@pytest.mark.long
@pytest.mark.parametrize("adjacency", ["worst-case", "exchange"])
def test_a_product_of_a_hundred_features_is_released_saved_and_read_back(tmp_path, adjacency):
    public = [Margin(NAMES[0]), Margin(NAMES[40], NAMES[41]), Margin(NAMES[99])]
    plan = Plan(
        [TablesRequest(wanted(), Budget.gdp(1))],
        invariants=public,
        features=declared(),
        adjacency=adjacency,
    )
    data = answers()
    release = run(plan, data, SeededRandomness(1))
    tables = release.tables
    assert len(tables) == 99
    for left, right in itertools.pairwise(tables):  # the feature that both have
        assert np.array_equal(left.counts.sum(axis=0), right.counts.sum(axis=1))
        np.testing.assert_allclose(left.estimate.sum(axis=0), right.estimate.sum(axis=1), atol=1e-8)
    first = [data[NAMES[0]].count(level) for level in ("0", "1")]
    assert tables[0].counts.sum(axis=1).tolist() == first
    both = Table.from_frame(data, release.scope.dataspace.schema.restrict([NAMES[40], NAMES[41]]))
    assert np.array_equal(tables[40].counts, both.counts)
    release.save(tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "The first 40 tables are listed; 59 more are in the files." in page
    assert "q98-q99.csv" not in page
    again = Release.load(tmp_path / "out")
    assert np.array_equal(again.results[0].noisy, release.results[0].noisy)
    assert again.scope.dataspace == release.scope.dataspace


def test_the_noise_of_a_table_does_not_depend_on_features_that_nobody_asked_for():
    """A schema of three features and one of a hundred give the same costs and the same noise to the
    same tables.
    """
    few = NAMES[:3]
    data = answers()
    tables = [TableRequest(few[:2]), TableRequest(few[1:])]
    squares = []
    for request in (tables, [*tables, TableRequest(NAMES[50:52])]):
        others = () if len(request) == 2 else NAMES[3:]
        plan = Plan(
            [TablesRequest(request, Budget.gdp(1))],
            invariants=[Margin(few[0])],
            features=[
                feature for feature in declared() if feature.name in few or feature.name in others
            ],
        )
        mechanism = prepare(plan, data).mechanisms[0]
        cost = {
            tuple(mechanism.space.schema.list_view_names(view)): k
            for view, k in mechanism.space.cost.items()
        }
        squares.append({names: k for names, k in cost.items() if set(names) <= set(few)})
    assert squares[0] == squares[1]


def test_the_semi_adjacent_parameter_of_seventy_published_features_has_its_bound():
    data = answers()
    plan = Plan([TableRequest(NAMES[:2], Budget.zcdp(1))], NAMES[:70], declared())
    scope = prepare(plan, data).scope
    assert scope.adjacency == Ball(scope.semi_adjacency.bound)
    assert 2 < semi_adjacency(scope.dataspace).bound <= 71


def test_many_features_need_no_exact_total():
    names = [f"f{number}" for number in range(14)]
    data = {name: ["a", "b", "b"] for name in names}
    plan = Plan(
        [TableRequest([name], name=name) for name in names],
        features=[Feature(name, [*"abcdefgh"]) for name in names],
    )
    release = run(plan.with_budget(Budget.zcdp(1)), data)
    assert len(release.tables) == len(names)
