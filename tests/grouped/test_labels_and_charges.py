"""Statistics by group, looked at by a sceptic: labels, attained norms, and what an event does not
say.
"""

import csv
import io
import itertools

import numpy as np
import pytest
from tests.grouped.measuring import sums

from semidp import Ball, Budget, Dataspace, Margin, Plan, run
from semidp.assess.adjacent_datasets import enumerate_tables
from semidp.assess.events import dp_sgd, event_tradeoff
from semidp.assess.worst_moves import worst_move
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.outcome_spaces import sum_space
from semidp.publish import GroupRequest, TableRequest


def test_levels_stand_under_the_feature_that_they_belong_to():
    """Groups named against the schema's order once had their columns headed the wrong way round."""
    records = {
        "a": ["x", "x", "y", "y"] * 10,
        "b": ["p", "q", "p", "q"] * 10,
        "won": [1, 0, 0, 0] * 10,
    }
    won = GroupRequest("proportion", Outcome("won", 0, 1, 1), [["b", "a"]], Budget.gdp(1))
    # mentioned first, so the schema's order is a, b
    table = TableRequest(["a", "b"], Budget.gdp(1))
    release = run(Plan([table, won], invariants=[Margin("a", "b")]), records)
    (content,) = release.groups[0].files().values()
    rows = list(csv.DictReader(io.StringIO(b"".join(content.csv()).decode())))
    assert [(row["a"], row["b"]) for row in rows] == [
        ("x", "p"),
        ("x", "q"),
        ("y", "p"),
        ("y", "q"),
    ]
    assert release.groups[0].estimates[0].groups[1] == ("q", "x")


def test_blocks_tied_by_a_margin_across_them_do_not_claim_attained_norms():
    """AB and CD beside BC: how their cells go together is partly public, so the bound need not be
    reached.
    """
    schema = Schema([Feature(name, "01") for name in "ABCD"])
    counts = np.zeros(schema.shape, dtype=np.int64)
    for cell, count in (((0, 0, 0, 0), 1), ((0, 0, 1, 1), 2), ((1, 1, 1, 1), 1)):
        counts[cell] = count
    table, blocks = Table(schema, counts), [Margin("A", "B"), Margin("C", "D")]
    tied = Dataspace.from_table(table, [*blocks, Margin("B", "C")])
    space = sum_space(tied, Ball(3), Outcome("y", 0, 1, 1), blocks)
    assert space.l2_squared == 18
    assert _farthest(tied, 3) < 18
    assert not space.exact
    assert worst_move(space) is None
    assert sum_space(
        Dataspace.from_table(table, blocks), Ball(3), Outcome("y", 0, 1, 1), blocks
    ).exact


def _farthest(dataspace: Dataspace, a: int) -> int:
    """max Σ k² over the cells of AB and of CD that any `a` records of any dataset can lie in:
    outcomes from 0 to 1.
    """
    farthest = 0
    for table in enumerate_tables(dataspace):
        records = [
            cell for cell in np.ndindex(*table.schema.shape) for _ in range(table.counts[cell])
        ]
        for chosen in itertools.combinations(records, a):
            sums = [[cell[part] for cell in chosen] for part in (slice(0, 2), slice(2, 4))]
            farthest = max(farthest, sum(cells.count(c) ** 2 for cells in sums for c in set(cells)))
    return farthest


@pytest.mark.long
def test_a_mixture_of_gaussians_says_nothing_about_how_several_records_are_sampled():
    """The event is one record's, so groups of several get f∘f; Poisson sampling says more, and gets
    more.
    """
    dp_event = pytest.importorskip("dp_accounting").dp_event
    mixture = dp_event.SelfComposedDpEvent(
        dp_event.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.9, 0.1]), 3
    )
    once, twice = event_tradeoff(mixture, 1), event_tradeoff(mixture, 2)
    for epsilon in ("0.5", "1", "2"):
        assert twice.delta(epsilon) >= once.group(2).delta(epsilon)
        assert twice.delta(epsilon) > event_tradeoff(dp_sgd(1.0, 0.1, 3), 2).delta(epsilon)


@pytest.mark.parametrize("published", [[Margin("A"), Margin("B")], [Margin("A", "B")]])
@pytest.mark.parametrize(
    "blocks", [[Margin("A")], [Margin("B"), Margin("A")], [Margin("A"), Margin()]]
)
def test_no_pair_of_datasets_is_farther_apart_than_the_norms_say(published, blocks):
    """All datasets of three records with two binary features and a yes-or-no outcome, every pair,
    every a.
    """
    schema = Schema([Feature("A", "01"), Feature("B", "01")])
    spaces: dict[bytes, list[tuple[tuple[int, int, int], ...]]] = {}
    for records in itertools.product(itertools.product((0, 1), repeat=3), repeat=3):
        table = _table(schema, records)
        key = b"".join(table.margin(margin.names).counts.tobytes() for margin in published)
        spaces.setdefault(key, []).append(records)
    for members in spaces.values():
        public = Dataspace.from_table(_table(schema, members[0]), published)
        sums = np.array([_sums(records, blocks) for records in members])
        apart = (np.array(members)[:, None] != np.array(members)[None]).any(axis=-1).sum(axis=-1)
        moved = np.abs(sums[:, None] - sums[None])
        for a in (1, 2, 3):
            space, near = (
                sum_space(public, Ball(a), Outcome("y", 0, 1, 1), blocks),
                moved[apart <= a],
            )
            found = (near.sum(axis=1).max(), (near**2).sum(axis=1).max(), near.max())
            claimed = (space.l1, space.l2_squared, space.linf)
            assert (
                found == claimed
                if space.exact
                else all(f <= c for f, c in zip(found, claimed, strict=True))
            )


def _table(schema: Schema, records: tuple[tuple[int, int, int], ...]) -> Table:
    counts = np.zeros(schema.shape, dtype=np.int64)
    for a, b, _ in records:
        counts[a, b] += 1
    return Table(schema, counts)


def _sums(records: tuple[tuple[int, int, int], ...], blocks: list[Margin]) -> list[int]:
    found = []
    for block in blocks:
        axes = ["AB".index(name) for name in block.names]
        for cell in np.ndindex(*(2 for _ in axes)):
            found.append(
                sum(record[2] for record in records if tuple(record[axis] for axis in axes) == cell)
            )
    return found


def test_means_without_error_are_not_compared() -> None:
    records = {"ward": np.repeat(["a", "b"], 50), "days": np.repeat([2, 8], 50)}
    outcome = Outcome("days", 0, 10, 10)
    found = sums(records, outcome, ["ward"], Budget.gdp(10**6), randomness=SeededRandomness(1))
    assert found.compare().degrees == 0
    assert found.compare().pooled == 5
    assert found.compare(sampling=True).degrees == 1
