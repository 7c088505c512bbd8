"""An outcome that is also an exact feature, or whose coarser levels are exact: an exchange hands it
over, so that more values change.
"""

import random
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve
from tests.laws.listed_exchanges import (
    Axis,
    draw_axis,
    draw_blocks,
    images,
    list_record_moves,
    small_enough,
)

import semidp
from semidp.assess import worst_pair
from semidp.assess.adjacent_datasets import list_neighbors
from semidp.assess.pairs import worst_histograms
from semidp.errors import DataError
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.exponential import PermuteAndFlip, exponential_mechanism, rank_space
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.answered_space import answered_space
from semidp.promise.sensitivity.distribution_space import ValueTree, distribution_space
from semidp.promise.sensitivity.moments import moment_space
from semidp.promise.sensitivity.outcome_moves import OutcomeMoves, find_moves
from semidp.promise.sensitivity.outcome_spaces import outcome_exchange, sum_space
from semidp.promise.sensitivity.patterns import Norms
from semidp.promise.spaces.adjacency import Exchange
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.plan import Plan
from semidp.publish.statistics.regression.designs import Design

WARD = [Margin("ward")]
AGES = Outcome("age", 0, 2, steps=2)
# One record a ward and an age: whoever takes both needs two carriers.
PEOPLE = [("a", "0"), ("b", "1"), ("c", "2")]


def public(*margins: str) -> Dataspace:
    schema = Schema([Feature("ward", "abc"), Feature("age", "012")])
    counts = np.zeros(schema.shape, dtype=np.int64)
    for k in range(3):
        counts[k, k] = 1
    return Dataspace.from_table(Table(schema, counts), map(Margin, margins))


def most_replaced(dataspace: Dataspace) -> int:
    """The most ages that one exchange replaces in wards, by the definition."""
    exchange = Exchange.from_dataspace(dataspace)
    before = Counter(PEOPLE)
    most = 0
    for after in list_neighbors(exchange, PEOPLE, dataspace):
        # wards keep their sizes, so that each age that leaves is replaced by one that comes
        most = max(most, (before - Counter(after)).total())
    return most


def test_handing_over_an_exact_age_replaces_a_third_value() -> None:
    alone = public("ward")
    claimed = rank_space(alone, outcome_exchange(alone), AGES, WARD).l1
    assert most_replaced(alone) == claimed == 2
    # The norm of two would be charged here, and three ages change.
    assert most_replaced(public("ward", "age")) == 3 > claimed


def test_the_third_value_is_charged_for() -> None:
    both = public("ward", "age")
    exchange = outcome_exchange(both)
    assert rank_space(both, exchange, AGES, WARD).l1 == 3
    assert not sum_space(both, exchange, AGES, WARD).exact


def draw_world(rng: random.Random) -> tuple[list[Axis], list[dict[int, int]], list[int]]:
    """Features of which the last is the outcome, in an exact total; and the values of its
    leaves.
    """
    while True:
        axes = [draw_axis(rng) for _ in range(rng.choice([1, 2, 2, 3]))]
        blocks = draw_blocks(rng, axes, range(len(axes)))
        exact = any(len(axes) - 1 in block for block in blocks)
        if exact and small_enough(axes, blocks, 0, 10_000):
            return axes, blocks, rng.sample(range(10), len(axes[-1].paths))


def draw_sets(rng: random.Random, blocks: list[dict[int, int]]) -> list[dict[int, int]]:
    """Sets of groups, each inside an exact total."""
    sets = []
    for block in rng.sample(blocks, rng.randint(1, len(blocks))):
        sets.append({k: rng.randint(1, depth) for k, depth in block.items() if rng.random() < 0.7})
    return sets


def norms_of(vectors: np.ndarray) -> Norms:
    sizes = np.abs(vectors)
    largest = (sizes.sum(axis=1).max(), (vectors**2).sum(axis=1).max(), sizes.max())
    return Norms(*(round(float(value)) for value in largest))


def compare(rng: random.Random, seen: Counter[str]) -> None:
    axes, blocks, values = draw_world(rng)
    cells, moves, pairs = list_record_moves(axes, blocks)
    if not len(moves):
        return
    sets, axis = draw_sets(rng, blocks), len(axes) - 1
    depth = next(block[axis] for block in blocks if axis in block)
    levels: dict[object, list[int]] = {}
    for path, value in zip(axes[axis].paths, values, strict=True):
        levels.setdefault(path[:depth], []).append(value)
    found = OutcomeMoves(
        tuple(a.chain for a in axes), blocks, axis, [*map(sorted, levels.values())], sets
    )
    of_cell = np.array([values[cell[axis]] for cell in cells])
    histogram = np.eye(10)[of_cell]
    groups = []
    for chosen in sets:
        view = tuple(chosen.get(k, 0) for k in range(len(axes)))
        groups.append(images(axes, cells, view, centered=False))
    sums = np.concatenate([moves @ (g * of_cell[:, None]) for g in groups], axis=1)
    assert found.sum_norms == norms_of(sums)
    by_value = [np.einsum("mc,cg,cv->mgv", moves, g, histogram) for g in groups]
    replaced = np.concatenate([np.abs(change).sum(axis=2) / 2 for change in by_value], axis=1)
    assert found.replaced_norms == norms_of(replaced)
    tree = ValueTree(10)
    halves = [change @ tree.differences(np.eye(10, dtype=np.int64)) for change in by_value]
    together = np.concatenate([half.reshape(len(moves), -1) for half in halves], axis=1)
    assert found.largest_square(tree.gram, tree.farthest) == norms_of(together).l2_squared
    others = [block for block in blocks if axis not in block]
    if others:
        view = tuple(others[0].get(k, 0) for k in range(len(axes)))
        at = images(axes, cells, view, centered=False)
        rows = np.array([[rng.randint(-2, 2) for _ in range(2)] for _ in range(at.shape[1])])
        inhabited = rows[at.any(axis=0)]
        moments = moves @ ((at @ rows) * of_cell[:, None])
        assert found.moment_norms(inhabited.astype(object)) == norms_of(moments)
        seen["regressions"] += 1
    seen["worlds"] += 1
    seen["pairs"] += pairs
    seen["coarser"] += depth < axes[axis].depth


@pytest.mark.parametrize("worlds", [40, pytest.param(2_000, marks=pytest.mark.long)])
def test_norms_are_those_of_the_worst_exchange(worlds: int) -> None:
    rng, seen = random.Random(5), Counter[str]()
    for _ in range(worlds):
        compare(rng, seen)
    print(dict(seen))
    assert seen["worlds"] > worlds / 2
    assert min(seen["coarser"], seen["regressions"]) > worlds / 10


BANDS = Feature.from_paths(["band", "age"], [(str(age // 5), str(age)) for age in range(10)])


def draw_records() -> dict[str, list[str]]:
    generator = np.random.default_rng(3)
    ages = generator.integers(0, 10, 400)
    return {
        "sex": generator.choice(["f", "m"], 400).tolist(),
        "age": ages.astype(str).tolist(),
        "band": (ages // 5).astype(str).tolist(),
    }


def bands() -> tuple[Dataspace, Exchange]:
    table = Table(Schema([Feature("sex", "fm"), BANDS]), np.full((2, 10), 30))
    public = Dataspace.from_table(table, [Margin("sex"), Margin("band")])
    return public, outcome_exchange(public)


def test_a_mean_beside_exact_bands_of_the_same_column_is_charged_in_full() -> None:
    public, exchange = bands()
    age, by = Outcome("age", 0, 9, steps=9), [Margin("sex")]
    assert sum_space(public, exchange, age, by).l2_squared == 250
    assert rank_space(public, exchange, age, by).l2_squared == 5
    assert distribution_space(public, exchange, age, by).l2_squared == 35
    design = Design.from_schema(public.schema, ["sex"])
    assert moment_space(public, exchange, age, design).l2_squared == 185
    # with bands not exact, a carrier keeps its age
    alone = Dataspace.from_table(Table(public.schema, np.full((2, 10), 30)), by)
    assert sum_space(alone, outcome_exchange(alone), age, by).l2_squared == 162


def test_an_audit_compares_the_worst_exchange() -> None:
    public, exchange = bands()
    age, sex, band = Outcome("age", 0, 9, steps=9), Margin("sex"), Margin("band")
    design = Design.from_schema(public.schema, ["sex"])
    for space in (
        sum_space(public, exchange, age, [sex]),
        sum_space(public, exchange, age, [sex, band]),
        distribution_space(public, exchange, age, [sex]),
        moment_space(public, exchange, age, design),
    ):
        move = np.abs(worst_pair(space).move)
        assert (move**2).sum() == space.l2_squared
        assert move.sum() <= space.l1
        assert move.max() <= space.linf
    answered = answered_space(public, exchange, age, [sex])
    assert 0.99 < (worst_pair(answered).move ** 2).sum() / answered.l2_squared <= 1
    # one record of a kind: what is compared is one of the exchanges that there are
    few = Dataspace.from_table(Table(public.schema, np.eye(2, 10, 2, dtype=int)), [sex, band])
    move = worst_pair(sum_space(few, exchange, age, [sex])).move
    axes = [Axis.flat(2), Axis.nested([[0] * 5] * 2)]
    cells, moves, _ = list_record_moves(axes, [{0: 1}, {1: 1}])
    ages = images(axes, cells, (1, 0), centered=False) * np.array([[cell[1]] for cell in cells])
    assert any(np.array_equal(each, move) for each in moves @ ages)


@pytest.mark.parametrize("by", [["sex"], ["band"], ["sex", "band"]])
def test_an_audit_of_ranks_replaces_as_many_values_as_an_exchange(by: list[str]) -> None:
    public, exchange = bands()
    space = rank_space(public, exchange, Outcome("age", 0, 9, steps=9), [*map(Margin, by)])
    one, other = worst_histograms(exponential_mechanism(space, Budget.pure(1)))
    replaced = np.abs(one - other).sum(axis=1) // 2
    # by band one value: others keep theirs, and a pair with two would convict what is right
    assert (replaced.sum(), (replaced**2).sum()) == (space.l1, space.l2_squared)


def test_values_that_labels_do_not_tell_may_be_anything() -> None:
    ages = Feature.from_paths(["band", "age"], [("a", "one"), ("a", "two"), ("b", "ten")])
    table = Table(Schema([Feature("sex", "fm"), ages]), np.full((2, 3), 30))
    public = Dataspace.from_table(table, [Margin("sex"), Margin("band")])
    space = sum_space(public, outcome_exchange(public), Outcome("age", 0, 9, 9), [Margin("sex")])
    # the person and the carrier of the band end in one group: 18² + 9²
    assert space.l2_squared == 18**2 + 9**2


def test_a_release_beside_exact_bands_spends_what_it_claims() -> None:
    records = draw_records()
    mean = semidp.mean("age", by="sex", bounds=(0, 9))
    plan = Plan([mean], ["sex", "band"], [BANDS], adjacency="exchange")
    prepared = semidp.prepare(plan.with_budget(semidp.Budget.gdp(1)), records)
    (mechanism,) = prepared.mechanisms
    # in years: Δ2² = 250 at mu = 1
    sigma = mechanism.scale * float(mechanism.space.unit)
    assert sigma**2 == pytest.approx(250, rel=1e-3)


@pytest.mark.parametrize("budget", [Budget.gdp(1), Budget.pure(1)], ids=["gdp", "pure"])
@pytest.mark.parametrize("sets", ["s", "b", "s b", "sb", "s sb", "b sb"])
def test_an_exact_band_does_not_say_who_answered(sets: str, budget: Budget) -> None:
    """With private answers, levels say nothing of a value: what is charged is attained."""
    names = {"s": "sex", "b": "band"}
    by = [Margin(*map(names.__getitem__, chosen)) for chosen in sets.split()]
    ages = Feature("band", "ab").above_outcome("age")
    exact, blocks = [Margin("sex"), Margin("band")], [{0: 1}, {1: 1}]
    if "sb" in sets:
        exact, blocks = [Margin("sex", "band")], [{0: 1, 1: 1}]
    public = Dataspace.from_table(Table(Schema([Feature("sex", "fm"), ages]), [[9] * 2] * 2), exact)
    age = Outcome("age", 0, 9, 9)
    space = answered_space(public, outcome_exchange(public), age, by, budget)
    # in each band some have no value, some the lowest and some the highest
    axes = [Axis.flat(2), Axis.nested([[0, 0, 0], [0, 0, 0]])]
    cells, moves, pairs = list_record_moves(axes, blocks)
    answered = np.array([cell[1] % 3 > 0 for cell in cells], dtype=np.int64)
    steps = np.array([(0, 0, 9)[cell[1] % 3] for cell in cells])
    groups = []
    for chosen in sets.split():
        view = (int("s" in chosen), int("b" in chosen))
        groups.append(images(axes, cells, view, centered=False).astype(int))
    every = np.concatenate(groups, axis=1)
    numbers = [moves @ (every * values[:, None]) for values in (answered, steps)]
    moved = norms_of(np.array([space.pairs(*pair) for pair in zip(*numbers, strict=True)]))
    assert pairs > 500
    assert moved.linf <= space.norms.linf
    if budget.kind == "pure":
        assert moved.l1 == space.norms.l1
    else:
        # the weight of an answer is a whole number
        assert 0.99 * space.l2_squared < moved.l2_squared <= space.l2_squared
    # with one value for each level it would be too little, and by band nothing
    levels = find_moves(public, age, by)
    assert levels is not None
    alone = evolve(levels, values=[[0], [9]]).replaced_norms
    assert alone.l2_squared * (2 * space.half) ** 2 < moved.l2_squared


def test_a_level_with_one_value_does_not_say_who_answered() -> None:
    table = Table(Schema([Feature("sex", "fm"), Feature("age", "01")]), [[9] * 2] * 2)
    public = Dataspace.from_table(table, [Margin("sex"), Margin("age")])
    sets = [Margin("sex"), Margin("age")]
    space = answered_space(public, outcome_exchange(public), Outcome("age", 0, 1, 1), sets)
    axes = [Axis.flat(2), Axis.nested([[0, 0], [0, 0]])]
    cells, moves, _ = list_record_moves(axes, [{0: 1}, {1: 1}])
    answered = np.array([cell[1] % 2 for cell in cells])
    ages = np.array([cell[1] // 2 * (cell[1] % 2) for cell in cells])
    views = [(1, 0), (0, 1)]
    groups = [images(axes, cells, view, centered=False).astype(int) for view in views]
    every = np.concatenate(groups, axis=1)
    numbers = [moves @ (every * values[:, None]) for values in (answered, ages)]
    moved = norms_of(np.array([space.pairs(*pair) for pair in zip(*numbers, strict=True)]))
    assert 0 < moved.l2_squared <= space.l2_squared
    assert 0 < moved.l1 <= space.l1
    assert space.exact_moves is not None
    # of the values none, 0 and 1
    values = np.eye(3)[(ages + 1) * answered]
    changes = np.einsum("mc,cg,cv->mgv", moves, every, values)
    assert space.exact_moves.replaced_norms == norms_of(np.abs(changes).sum(axis=2) / 2)


def test_a_regression_on_what_is_exact_together_with_its_outcome_is_charged() -> None:
    """Whoever hands over sex and band leaves an age behind that is any of the band."""
    ages = Feature.from_paths(["band", "age"], [(str(age // 9), str(age)) for age in range(10)])
    table = Table(Schema([Feature("sex", "fm"), ages]), np.full((2, 10), 30))
    public = Dataspace.from_table(table, [Margin("sex", "band")])
    design = Design.from_schema(public.schema, ["sex"])
    space = moment_space(public, outcome_exchange(public), Outcome("age", 0, 9, steps=9), design)
    axes = [Axis.flat(2), Axis.nested([[0] * 9, [0]])]
    cells, moves, _ = list_record_moves(axes, [{0: 1, 1: 1}])
    rows = np.array([[1, cell[0]] for cell in cells])
    moved = norms_of(moves @ (rows * np.array([[cell[1]] for cell in cells])))
    # half of what one record moves where nothing ties it would not do
    assert space.naive.l2_squared / 4 < moved.l2_squared <= space.l2_squared
    assert moved.l1 <= space.l1
    assert moved.linf <= space.linf


def test_a_share_of_one_value_of_a_binned_column_is_charged() -> None:
    table = Table(Schema([Feature("sex", "fm"), Feature("age", bins=[5, 8, 10])]), [[9] * 2] * 2)
    public = Dataspace.from_table(table, [Margin("sex", "age")])
    share = Outcome("age=8", 0, 1, 1)
    # two records of one cell, or the person alone: a bin does not say who is 8
    assert sum_space(public, outcome_exchange(public), share, [Margin("sex")]).l2_squared == 2


def test_a_level_of_missing_values_is_no_bin() -> None:
    ages = Feature("age", bins=[0, 5, 10], null_level="unknown")
    public = Dataspace.from_table(Table(Schema([ages]), [3, 3, 3]), [Margin("age")])
    found = find_moves(public, Outcome("age", 0, 10, 10), [Margin()])
    assert found is not None
    assert [*map(list, found.values)] == [[*range(6)], [*range(5, 11)], [*range(11)]]


def test_outcomes_that_contradict_their_declared_bands_are_refused() -> None:
    nested = Feature.from_paths(["band", "age"], [("a", "1"), ("b", "8")])
    mean = semidp.mean("age", by="band", bounds=(0, 9))
    plan = Plan([mean], ["band"], [nested], adjacency="exchange").with_budget(Budget.gdp(1))
    records = {"band": ["a", "a", "b"], "age": ["1", "1", "8"]}
    assert semidp.prepare(plan, records).mechanisms[0].space.l2_squared == 0
    # an age that no band declares: exact bands would not say the sum
    for ages in (["1", "3", "8"], ["1", "8", "8"]):
        with pytest.raises(DataError, match="age"):
            semidp.prepare(plan, {**records, "age": ages})


def test_a_ledger_knows_that_an_exact_band_is_one_of_an_outcome(tmp_path: Path) -> None:
    records = draw_records()
    sexes = Feature("sex", "fm")
    mean = Plan([semidp.mean("age", by="sex", bounds=(0, 9))], ["sex"], adjacency="exchange")
    totals = {}
    for band in (BANDS, Feature("band", "01")):
        book = Ledger.create(tmp_path / f"{len(band.names)}.json", Budget.gdp(3))
        table = Plan([semidp.table("band", "sex")], ["band"], [band, sexes], adjacency="exchange")
        for plan in (table, mean):
            semidp.run(plan.with_budget(Budget.gdp(1)), records, semidp.RunOptions(ledger=book))
        total = book.total()
        assert total is not None
        totals[len(band.names)] = float(total.tradeoff.mu)
    # of a band that is no part of the age, its carrier keeps the age: 162. Of a part, 18² + 9².
    assert totals[1] ** 2 == pytest.approx(2, rel=1e-3)
    assert totals[2] ** 2 == pytest.approx(1 + 405 / 162, rel=1e-3)


def test_a_ledger_counts_such_a_charge_for_all_records_that_change(tmp_path: Path) -> None:
    alone, both = public("ward"), public("ward", "age")
    budget = Budget.pure(1)
    drawn = PermuteAndFlip.calibrate(rank_space(alone, outcome_exchange(alone), AGES, WARD), budget)
    published = Guarantee(both, outcome_exchange(both), budget.tradeoff())
    book = Ledger.create(tmp_path / "ledger.json", Budget.pure(3))
    book.charge(drawn.guarantee, "ages are private", [drawn.record()])
    book.charge(published, "ages are exact")
    # three values of one choice each, where two were paid for
    spent = [charge.spent.implied_epsilon() for charge in book.account().charges]
    assert spent == [Fraction(3, 2), 1]
    right = Ledger.create(tmp_path / "right.json", Budget.pure(3))
    right.charge(drawn.guarantee, "ages are private", [drawn.record()])
    held = right.total()
    assert held is not None
    assert held.tradeoff.implied_epsilon() == 1
