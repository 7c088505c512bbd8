"""The two adjacencies and the two kinds of datasets: what they answer, against lists of small
cases.
"""

import itertools
import random
from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest
from attrs import frozen

from semidp import Ball, Dataspace, Exchange, Feature, InputError, Margin, Schema, Table
from semidp.assess.adjacent_datasets import datasets, is_adjacent, list_neighbors
from semidp.promise.documents import Encodable
from semidp.promise.exact import bisection, whole_bisection
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import DescribedDatasets
from semidp.promise.spaces.linked import datasets_from_json
from semidp.promise.spaces.protection import Protection

SCHEMA = Schema([Feature("sex", "fm"), Feature("ill", "yn")])
TABLES = [[[1, 0], [0, 1]], [[1, 1], [0, 1]]]
MARGINS = [(), (Margin("sex"),), (Margin("sex"), Margin("ill"))]


def small_spaces() -> Iterator[Dataspace]:
    for counts, margins in itertools.product(TABLES, MARGINS):
        yield Dataspace.from_table(Table(SCHEMA, counts), margins)


def pairs(adjacency: Adjacency, space: Dataspace) -> set[tuple[object, object]]:
    """Every pair of adjacent datasets of a small space."""
    return {
        (one, other) for one in datasets(space) for other in list_neighbors(adjacency, one, space)
    }


@pytest.mark.parametrize("adjacency", [Ball(0), Ball(3), Exchange(0), Exchange(2)], ids=repr)
def test_what_is_written_is_read_back(adjacency: Adjacency) -> None:
    assert Adjacency.from_json(adjacency.to_json()) == adjacency
    assert Adjacency.from_kind(adjacency.kind, adjacency.a) == adjacency
    assert Adjacency.from_json(adjacency.to_json()) == adjacency


def test_what_is_read_is_the_class_that_attrs_made_last() -> None:
    """attrs makes a class with slots anew; its first form is found until garbage is collected."""
    forms = []

    def remember(form: type) -> type:
        forms.append(form)
        return form

    @frozen
    class Shape(Encodable):
        pass

    @frozen
    @remember
    class Square(Shape):
        side: int
        kind: ClassVar[str] = "square"

    assert Shape.__subclasses__() == [*forms, Square]
    assert Shape.from_json({"kind": "square", "side": 2}) == Square(2)


def test_a_ball_is_no_exchange() -> None:
    assert Ball(2) != Exchange(2)
    assert len({Ball(2), Exchange(2), Ball(2)}) == 2
    assert Ball(2).to_json() == {"kind": "ball", "a": 2}
    with pytest.raises(InputError, match="ball or exchange"):
        Adjacency.from_kind("sphere", 2)
    with pytest.raises(TypeError):
        Adjacency(2)  # type: ignore[abstract]


def test_what_is_covered_is_among_the_pairs() -> None:
    """Where one relation covers another, every pair of the other is a pair of the first; never so
    by accident.
    """
    covered = missed = 0
    for space in small_spaces():
        relations = {
            one: pairs(one, space)
            for one in (Ball(1), Ball(2), Ball(3), Exchange.from_dataspace(space))
        }
        for one, other in itertools.product(relations, repeat=2):
            inside = relations[other] <= relations[one]
            if one.covers(space, other, space):
                covered += 1
                assert inside, (space, one, other)
            missed += not inside
    assert covered > 40
    assert missed > 2


def is_minimal(
    one: Sequence[object], other: Sequence[object], possible: Collection[Sequence[object]]
) -> bool:
    """Whether no part of the changes keeps the exact totals (the neighbours of
    `he2014blowfish`).
    """
    changed = [place for place, record in enumerate(one) if record != other[place]]
    for size in range(1, len(changed)):
        for part in itertools.combinations(changed, size):
            halfway = tuple(
                other[place] if place in part else record for place, record in enumerate(one)
            )
            if halfway in possible:
                return False
    return True


def test_exchanges_are_minimal_changes_and_not_all_of_them() -> None:
    """A circle of three people who hand on their published values is a minimal change and no
    exchange.
    """
    circle = Dataspace.from_table(
        Table(Schema([Feature("ward", "xyz")]), [1, 1, 1]), [Margin("ward")]
    )
    minimal = exchanged = spaces = 0
    for space in (*small_spaces(), circle):
        possible = {tuple(one) for one in datasets(space)}
        exchange = Exchange.from_dataspace(space)
        for one in possible:
            for other in list_neighbors(exchange, one, space):
                assert is_minimal(one, other, possible), (one, other)
                exchanged += one != tuple(other)
        for first, second in itertools.permutations(possible, 2):
            minimal += is_minimal(first, second, possible)
        spaces += 1
    assert spaces == 7
    assert 300 < exchanged < minimal
    around = (("x",), ("y",), ("z",)), (("y",), ("z",), ("x",))
    assert is_minimal(*around, {tuple(one) for one in datasets(circle)})
    assert not is_adjacent(Exchange.from_dataspace(circle), *around, circle)


def test_steps_of_exchanges_join_any_records() -> None:
    """Datasets of D_t that differ in a records are joined by at most a exchanges."""
    joined = 0
    for space in small_spaces():
        exchange = Exchange.from_dataspace(space)
        near = {one: {*list_neighbors(exchange, one, space)} for one in datasets(space)}
        for one in near:
            reached = {one}
            for a in (1, 2, 3):
                reached |= {there for here in reached for there in near[here]}
                assert exchange.steps(Ball(a)) == a
                assert {*list_neighbors(Ball(a), one, space)} <= reached
                joined += 1
    assert joined > 100
    assert Ball(2).steps(Ball(4)) is None
    assert Exchange(2).steps(Exchange(3)) is None


def test_swaps_are_the_largest_change_of_a_cell_between_exact_margins() -> None:
    both = [Margin("sex"), Margin("ill")]
    attained = 0
    for counts in ([[1, 1], [1, 1]], [[2, 0], [0, 2]], [[2, 1], [0, 1]]):
        space = Dataspace.from_table(Table(SCHEMA, counts), both)
        for relation in (Ball(2), Ball(3), Ball(4), Exchange.from_dataspace(space)):
            largest = 0
            for one, other in pairs(relation, space):
                change = list(other).count(("f", "y")) - list(one).count(("f", "y"))
                largest = max(largest, abs(change))
            # fewer where a row or a column holds fewer records
            row, column, n = sum(counts[0]), counts[0][0] + counts[1][0], space.n
            room = min(row, column) - max(0, row + column - n)
            assert largest == min(relation.swaps, room), (counts, relation)
            attained += largest == relation.swaps
    assert attained >= 10


def test_each_relation_returns_its_own_answer() -> None:
    for relation, answer in ((Ball(2), 1), (Exchange(2), 2)):
        assert relation.by_kind(ball=1, exchange=2) == answer
    patient = Protection("patient", 3)
    assert (Ball(6, patient).most_moves, Ball(6, patient).records_per_move) == (1, 6)
    assert (Exchange(6, patient).most_moves, Exchange(6, patient).records_per_move) == (3, 2)


@pytest.mark.parametrize("seed", range(20))
def test_records_of_a_ball_change_sums_most(seed: int) -> None:
    rng = random.Random(seed)
    sizes = np.array([rng.randrange(4) for _ in range(rng.randint(1, 4))], dtype=np.int64)
    a = rng.randrange(5)
    choices = itertools.product(*(range(size + 1) for size in sizes))
    best = max((sum(k * k for k in taken) for taken in choices if sum(taken) <= a), default=0)
    (move,) = Ball(a).changed_sums([sizes])
    assert (move <= sizes).all()
    assert move.sum() == min(a, sizes.sum())
    assert (move * move).sum() == best
    assert sorted(Ball(a).replaced_values([sizes])) == sorted(move[move > 0].tolist())


def test_described_datasets_know_themselves_alone() -> None:
    named, same = Dataspace.from_description("state totals"), DescribedDatasets("state totals")
    known = Dataspace.from_table(Table(SCHEMA, TABLES[0]), [Margin("sex")])
    assert named == same
    assert named.union(same) == named
    assert datasets_from_json(named.to_json()) == named
    assert datasets_from_json(known.to_json()) == known
    assert known != named
    assert known.union(named) is None
    assert named.union(known) is None
    assert named.with_features(SCHEMA) is None
    assert not named.is_within(known)
    assert not known.is_within(named)
    with pytest.raises(InputError, match="sex is not published"):
        named.value(Margin("sex"))
    with pytest.raises(InputError, match="needs a description"):
        DescribedDatasets("")


@pytest.mark.parametrize("threshold", [Fraction(0), Fraction(1, 3), Fraction(5, 7), Fraction(1)])
def test_bisection_closes_in_on_the_threshold(threshold: Fraction) -> None:
    low, high = bisection(lambda x: x < threshold, Fraction(0), Fraction(1), halvings=20)
    assert high - low == Fraction(1, 2**20)
    assert low <= threshold <= high


@pytest.mark.parametrize("threshold", range(1, 18))
def test_bisection_of_whole_numbers_ends_at_neighbours(threshold: int) -> None:
    asked: list[int] = []

    def below(n: int) -> bool:
        asked.append(n)
        return n < threshold

    assert whole_bisection(below, 0, 17) == (threshold - 1, threshold)
    assert len(asked) <= 5
