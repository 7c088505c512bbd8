"""How many values one exchange, or a ball of records, replaces in groups: by the definition, in
small worlds.

The definition is written down here again, without `exchange_blocks`: a record is its group in each
set and its value.
"""

import itertools
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.grouped.test_quantiles import held, law

from semidp import run
from semidp.assess.adjacent_datasets import ListedExchanges, Records
from semidp.cli import run as command
from semidp.errors import SemidpError
from semidp.promise.mechanisms.exponential import (
    ExponentialMechanism,
    PermuteAndFlip,
    RankSpace,
    exponential_mechanism,
    rank_space,
)
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Feature, Nest
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.outcome_spaces import SumSpace, outcome_exchange, sum_space
from semidp.promise.sensitivity.patterns import Norms
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.plan import Plan
from semidp.publish.statistics.quantiles import QuantileRequest

Record = tuple[int, ...]  # a level of each feature with two levels, then the value
Dataset = tuple[Record, ...]
BUDGETS = (Budget.pure(1), Budget.zcdp("1/50"), Budget.gdp("1/4"))


def space_of(
    records: int, several: int, single: int, steps: int, a: int | None = None
) -> RankSpace:
    """The space of `several` published features with levels 0 and 1, one record at 1, and `single`
    of one level.
    """
    two = [Feature(f"two{k}", "01") for k in range(several)]
    one = [Feature(f"one{k}", "0") for k in range(single)]
    schema = Schema((*two, *one))
    counts = np.zeros(schema.shape, dtype=np.int64)
    counts[(0,) * (several + single)] = records - 1
    counts[(1,) * several + (0,) * single] += 1
    blocks = [Margin(feature.name) for feature in schema.features]
    public = Dataspace.from_table(Table(schema, counts), blocks)
    adjacency = outcome_exchange(public) if a is None else Ball(a)
    return rank_space(public, adjacency, Outcome("y", 0, 1, steps), blocks)


def datasets(records: int, several: int, steps: int) -> list[Dataset]:
    """Every dataset in which one record has level 1 of each feature with two levels."""
    values = list(itertools.product(range(steps + 1), repeat=records))
    holders = list(itertools.product(range(records), repeat=several))
    return [
        tuple((*(int(holder == i) for holder in chosen), value[i]) for i in range(records))
        for chosen in holders
        for value in values
    ]


def exchanges(dataset: Dataset, steps: int) -> Iterator[Dataset]:
    """What arises from a dataset by the definition: one person moves, and a carrier for each
    feature that changes.
    """
    several = len(dataset[0]) - 1
    for i, x in enumerate(dataset):
        for y in itertools.product(*[(0, 1)] * several, range(steps + 1)):
            changed = [k for k in range(several) if x[k] != y[k]]
            carriers = [
                [j for j, r in enumerate(dataset) if j != i and r[k] == y[k]] for k in changed
            ]
            for chosen in itertools.product(*carriers):
                after = [list(record) for record in dataset]
                after[i] = list(y)
                for k, j in zip(changed, chosen, strict=True):
                    after[j][k] = x[k]
                yield tuple(map(tuple, after))


def histograms(dataset: Dataset, single: int, steps: int) -> np.ndarray:
    """A row for each group of each set, as a mechanism takes them."""
    several = len(dataset[0]) - 1
    rows = np.zeros((2 * several + single, steps + 1), dtype=np.int64)
    for record in dataset:
        for k in range(several):
            rows[2 * k + record[k], record[-1]] += 1
        rows[2 * several :, record[-1]] += 1
    return rows


def most_replaced(
    pairs: Iterator[tuple[Dataset, Dataset]], single: int, steps: int
) -> tuple[int, int, int]:
    """The largest Σ k_g and Σ k_g² over pairs, and how many pairs there were."""
    l1 = l2 = count = 0
    for one, other in pairs:
        change = histograms(one, single, steps) - histograms(other, single, steps)
        replaced = np.abs(change).sum(axis=1) // 2
        l1, l2, count = max(l1, int(replaced.sum())), max(l2, int((replaced**2).sum())), count + 1
    return l1, l2, count


def neighbours(records: int, several: int, steps: int) -> Iterator[tuple[Dataset, Dataset]]:
    for dataset in datasets(records, several, steps):
        for other in exchanges(dataset, steps):
            yield dataset, other


@pytest.mark.few(8)
@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize(
    ("several", "single"), [(p, q) for p in range(4) for q in range(4) if p + q]
)
def test_an_exchange_replaces_as_many_values_as_is_said(
    several: int, single: int, steps: int
) -> None:
    """2p + p' from three values on, max(2p, p + p') with two: attained, and never exceeded."""
    records = 2 if several == 3 or steps == 3 else 3
    l1, l2, count = most_replaced(neighbours(records, several, steps), single, steps)
    space = space_of(records, several, single, steps)
    assert count > 8
    assert (l1, l2) == (space.l1, space.l2_squared)
    assert l1 == (2 * several + single if steps > 1 else max(2 * several, several + single))
    assert space.exact


def test_the_norms_of_sums_are_too_small_for_ranks() -> None:
    """The twin: what was claimed before fails wherever a set with several groups meets one with a
    single group.
    """
    short = 0
    for several, single in itertools.product((1, 2), (1, 2, 3)):
        l1, _, _ = most_replaced(neighbours(2, several, 2), single, 2)
        short += l1 > max(2 * several, several + single)
    assert short == 6


@pytest.mark.few(12)
@pytest.mark.parametrize("a", [1, 2])
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize(
    ("several", "single"), [(p, q) for p in range(3) for q in range(3) if p + q]
)
def test_a_ball_replaces_as_many_values_as_is_said(
    several: int, single: int, steps: int, a: int
) -> None:
    """a(p + p') values: every two datasets of three records that are a records apart."""
    every = datasets(3, several, steps)
    pairs = (
        (one, other)
        for one, other in itertools.combinations(every, 2)
        if sum(x != y for x, y in zip(one, other, strict=True)) <= a
    )
    l1, l2, count = most_replaced(pairs, single, steps)
    space = space_of(3, several, single, steps, a)
    assert count >= 3
    assert l1 == space.l1 == a * (several + single)
    assert l2 == space.l2_squared


def test_the_definition_here_is_that_of_the_library() -> None:
    """Two features and the value: the same pairs as `Blocks.neighbours` lists."""
    space = space_of(3, 2, 0, 2)
    schema = space.dataspace.schema
    whole = Schema((*schema.features, Feature("y", "012")))
    public = dict(zip(space.dataspace.margins, space.dataspace.totals, strict=True))
    blocks = ListedExchanges.from_dataspace(Dataspace.from_totals(whole, public, 3))
    pairs = {frozenset(pair) for pair in neighbours(3, 2, 2) if pair[0] != pair[1]}
    again = {frozenset((X, Y)) for X in datasets(3, 2, 2) for Y in blocks.neighbours(X)}
    assert len(pairs) > 1000
    assert pairs == again


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_the_law_of_medians_by_state_and_nation_is_within_the_claim(budget: Budget) -> None:
    """States of two and one, four values, every exchange: the joint law of the three medians."""
    space = space_of(3, 1, 1, 3)
    mechanism = exponential_mechanism(space, budget)
    assert isinstance(mechanism, ExponentialMechanism)
    kinds = {
        one.tobytes(): one for dataset in datasets(3, 1, 3) for one in [histograms(dataset, 1, 3)]
    }
    laws = {key: law(mechanism, one) for key, one in kinds.items()}
    pairs = {
        (histograms(one, 1, 3).tobytes(), histograms(other, 1, 3).tobytes())
        for one, other in neighbours(3, 1, 3)
    }
    pairs = {(one, other) for one, other in pairs if one != other}
    assert len(pairs) > 500
    assert all(held(mechanism, laws[one], laws[other]) for one, other in pairs)


def medians_by_state_and_nation() -> tuple[RankSpace, np.ndarray, np.ndarray]:
    """Two states of 40, values from 0 to 20: v = 0 becomes w = 1 in the one, w becomes v' = 20 in
    the other.
    """
    schema = Schema([Feature.from_paths(["nation", "state"], [("z", "x"), ("z", "y")])])
    public = Dataspace.from_table(Table(schema, [40, 40]), [Margin("state")])
    blocks = [Margin("state"), Margin("nation")]
    space = rank_space(public, outcome_exchange(public), Outcome("score", 0, 20, 20), blocks)
    one = np.zeros((3, 21), dtype=np.int64)
    one[0, [0, 1]] = 12, 28
    one[1, [0, 1, 20]] = 8, 14, 18
    other = one.copy()
    other[0, [0, 1]] += -1, 1
    other[1, [1, 20]] += -1, 1
    for rows in (one, other):
        rows[2] = rows[0] + rows[1]
    return space, one, other


def test_medians_by_state_and_nation_at_epsilon_1() -> None:
    """Issue 26, item 2: the claim was 1 and the truth 1.496; now the claim holds, and is close to
    the truth.
    """
    space, one, other = medians_by_state_and_nation()
    assert (space.l1, space.l2_squared, space.linf) == (3, 3, 1)
    mechanism = exponential_mechanism(space, Budget.pure(1))
    assert isinstance(mechanism, ExponentialMechanism)
    loss = np.abs(np.log(law(mechanism, one) / law(mechanism, other))).max()
    assert 0.95 < loss <= 1
    before = PermuteAndFlip(space, Fraction(1, 4))  # 1 / 2Σk with the norm of sums, 2
    loss = np.abs(np.log(law(before, one) / law(before, other))).max()
    assert loss > 1.4879
    assert before.tradeoff.implied_epsilon() == Fraction(3, 2)


def drawn_world(
    source: np.random.Generator,
) -> tuple[ListedExchanges, RankSpace, SumSpace, Records] | None:
    """Features flat and nested, blocks one-way and joint at any depth, and sets of groups that
    these publish.
    """
    kinds = [
        lambda k: Feature(f"f{k}", "01"),
        lambda k: Feature(f"f{k}", "012"),
        lambda k: Feature(f"f{k}", "0"),
        lambda k: Feature.from_paths([f"s{k}", f"c{k}"], [("0", "00"), ("0", "01"), ("1", "10")]),
        lambda k: Feature.from_paths([f"n{k}", f"s{k}"], [("0", "00"), ("0", "01")]),
    ]
    features = [kinds[source.integers(len(kinds))](k) for k in range(source.integers(1, 4))]
    whole = Schema([*features, Feature("y", "012")])
    leaves = [len(feature.levels) for feature in whole.features]
    people = int(source.integers(2, 5))
    records = tuple(tuple(int(source.integers(size)) for size in leaves) for _ in range(people))
    blocks: list[list[str]] = [[] for _ in features]
    for feature in features:
        if source.random() < 0.85:
            blocks[source.integers(len(blocks))].append(str(source.choice(feature.names)))
    published = [Margin(*names) for names in blocks if names]
    counts = np.zeros(whole.shape, dtype=np.int64)
    for record in records:
        counts[record] += 1
    public = Dataspace.from_table(Table(whole, counts), published)
    names = [name for feature in features for name in feature.names]
    sets = [Margin(*chosen) for size in (1, 2) for chosen in itertools.combinations(names, size)]
    sets = [margin for margin in sets if public.publishes(margin)]
    if not sets:
        return None
    chosen = [sets[k] for k in source.permutation(len(sets))[: source.integers(1, 4)]]
    try:
        found = ListedExchanges.from_dataspace(public)
        outcome = Outcome("score", 0, 2, 2)
        adjacency = outcome_exchange(public)
        return (
            found,
            rank_space(public, adjacency, outcome, chosen),
            sum_space(public, adjacency, outcome, chosen),
            records,
        )
    except SemidpError:
        return None


def search(worlds: int, seed: int) -> tuple[int, int, int]:
    """Walk through random worlds by exchanges; return worlds, pairs, and worlds where the norms of
    sums fall short.
    """
    source = np.random.default_rng(seed)
    seen = pairs = short = 0
    while seen < worlds:
        drawn = drawn_world(source)
        if drawn is None:
            continue
        blocks, ranks, sums, dataset = drawn
        views = [blocks.structure.schema.view(margin.names) for margin in ranks.blocks]
        most = 0

        def by_group(records: Records, views=views, blocks=blocks) -> Counter[tuple[Any, ...]]:
            return Counter(
                (number, blocks.nodes(record, view), record[-1])
                for number, view in enumerate(views)
                for record in records
            )

        for _ in range(4):
            here = by_group(dataset)
            others = sorted(blocks.neighbours(dataset))
            for other in others:
                there = by_group(other)
                moved, added = Counter[tuple[Any, ...]](), Counter[tuple[Any, ...]]()
                for key in here.keys() | there.keys():
                    change = there[key] - here[key]
                    moved[key[:2]] += max(change, 0)
                    added[key[:2]] += change * key[2]
                assert sum(moved.values()) <= ranks.l1
                assert sum(k * k for k in moved.values()) <= ranks.l2_squared
                assert sum(map(abs, added.values())) <= sums.l1
                assert sum(change**2 for change in added.values()) <= sums.l2_squared
                assert max(map(abs, added.values())) <= sums.linf
                most = max(most, sum(moved.values()))
                pairs += 1
            if not others:
                break
            dataset = others[source.integers(len(others))]
        short += most > ranks.sums.l1
        seen += 1
    return seen, pairs, short


def test_random_worlds_move_no_farther_than_is_said() -> None:
    """Ranks and sums by several sets of one block, coarser or joint; the norms of sums fall short
    for ranks.
    """
    worlds, pairs, short = search(25, seed=26)
    assert worlds == 25
    assert pairs > 3_000
    assert short > 0


@pytest.mark.long
def test_many_random_worlds_move_no_farther_than_is_said() -> None:
    worlds, pairs, short = search(400, seed=27)
    assert worlds == 400
    assert pairs > 50_000
    assert short > 10


class _BeforeCorrection:
    """What version 0.1 took for the norms of ranks: those of sums."""

    norms = property(lambda space: Norms(space.sums.l1, space.sums.l2_squared, space.sums.linf))


@pytest.fixture
def wrong_norms(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Within the test, until undone, ranks have the norms of sums."""
    monkeypatch.setattr(RankSpace, "norms", _BeforeCorrection.norms)
    yield monkeypatch
    monkeypatch.undo()


def medians(budget: Budget) -> tuple[Plan, dict[str, list[str] | list[int]]]:
    """The plan of issue 26, item 2, and records for it."""
    request = QuantileRequest(Outcome("score", 0, 20, 20), [["state"], ["nation"]], budget=budget)
    plan = Plan(
        [request], invariants=["state"], adjacency="exchange", nests=[Nest(("nation", "state"))]
    )
    records = {
        "nation": ["z"] * 80,
        "state": ["x"] * 40 + ["y"] * 40,
        "score": [0] * 12 + [1] * 28 + [0] * 8 + [1] * 14 + [20] * 18,
    }
    return plan, records


@pytest.mark.few(1)
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_a_release_with_the_norms_of_sums_disagrees(
    budget: Budget,
    wrong_norms: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan, records = medians(budget)
    run(plan, records).save(tmp_path / "old")
    wrong_norms.undo()
    run(plan, records).save(tmp_path / "new")
    assert command(["show", str(tmp_path / "old")]) == 1
    assert "states noise.rate" in capsys.readouterr().out
    assert command(["show", str(tmp_path / "new")]) == 0


def test_the_first_and_the_last_record_are_looked_for():
    """Ranks 1 and n read the data: with little noise they are the least and the largest value."""
    table = Table(Schema([Feature("g", "ab")]), [10, 10])
    public = Dataspace.from_table(table, [Margin("g")])
    ends = (Fraction(1, 10), Fraction(19, 20))
    space = rank_space(public, Ball(2), Outcome("y", 0, 20, 20), [Margin("g")], ends)
    mechanism = exponential_mechanism(space, Budget.pure(400))
    rows = np.zeros((2, 21), dtype=np.int64)
    rows[0, [7, 9]], rows[1, [3, 12]] = 5, 5
    assert space.ranks(mechanism.rate).tolist() == [[1, 10], [1, 10]]
    assert mechanism.measure(rows, SeededRandomness(1)).noisy.tolist() == [7, 9, 3, 12]


def test_choices_are_numbered_group_after_group() -> None:
    space = space_of(4, 2, 0, 3)
    several = rank_space(
        space.dataspace, Ball(1), space.outcome, space.blocks, ["1/4", "1/2", "3/4"]
    )
    assert (len(several.sizes), several.choices, several.shape) == (4, 3, (12,))
