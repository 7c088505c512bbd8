"""Claims that a review found stronger than the truth, or nearly so: each stays fixed."""

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest

from semidp.errors import AdjacencyUnknown, InputError
from semidp.promise.exact import round_down, round_up
from semidp.promise.mechanisms.additive import RoundedGaussianMechanism
from semidp.promise.mechanisms.examples import two_way
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema, StructuralZero, Table
from semidp.promise.sensitivity.moments import moment_space
from semidp.promise.sensitivity.query_space import ExplicitSpace
from semidp.promise.sensitivity.table_spaces import TableSpace
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.semi_adjacency import semi_adjacency
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.statistics.regression.designs import Design


def test_a_design_in_another_order_does_not_halve_the_noise() -> None:
    # Rows were matched with counts by position: the longest row, (d, f), was taken for the empty
    # cell (c, m).
    arm, sex = Feature("arm", "cd"), Feature("sex", "fm")
    public = Dataspace.from_table(
        Table(Schema([arm, sex]), [[5, 0], [5, 5]]), [Margin("arm", "sex")]
    )
    outcome = Outcome("score", 0, 1, steps=1)
    designs = [
        Design.from_schema(
            Schema(order), ["arm"], scores={"sex": [5, 0]}, interactions=[("arm", "sex")]
        )
        for order in ([arm, sex], [sex, arm])
    ]
    assert moment_space(public, Ball(2), outcome, designs[0]).l2_squared == 4 * (1 + 1 + 25 + 25)
    with pytest.raises(InputError, match="in the same order"):
        moment_space(public, Ball(2), outcome, designs[1])
    with pytest.raises(InputError, match="in the same order"):
        designs[1].gram(public)


def test_a_design_may_not_declare_structural_zeros_that_the_counts_do_not() -> None:
    features = [Feature("arm", "cd"), Feature("sex", "fm")]
    public = Dataspace.from_table(Table(Schema(features), [[5, 5], [5, 5]]), [Margin("arm", "sex")])
    forbidden = Schema(features, [StructuralZero.from_pattern({"arm": "d", "sex": "f"})])
    design = Design.from_schema(forbidden, ["arm"], scores={"sex": [5, 0]})
    with pytest.raises(InputError, match="structural zeros"):
        moment_space(public, Ball(2), Outcome("score", 0, 1, steps=1), design)


@pytest.mark.parametrize(("kind", "size"), [(np.int8, 100), (np.int32, 2**20), (np.int64, 2**40)])
def test_squares_of_an_explicit_space_do_not_wrap(kind: type, size: int) -> None:
    space = ExplicitSpace(
        np.array([[size, -size]], dtype=kind), Dataspace.from_description("two"), Ball(1)
    )
    assert (space.l1, space.l2_squared, space.linf) == (2 * size, 2 * size**2, size)


def test_moves_of_unsigned_vectors_have_negatives() -> None:
    space = ExplicitSpace(
        np.array([[3, 0]], dtype=np.uint8), Dataspace.from_description("two"), Ball(1)
    )
    assert [move.tolist() for move in space.moves()] == [[3, 0], [-3, 0]]


def test_an_unsigned_query_is_measured_in_whole_numbers() -> None:
    # uint64 + int64 is float64 in numpy: what was published would have been rounded in a way that
    # depends on the data.
    space, table = two_way()
    mechanism = RoundedGaussianMechanism.calibrate(space, Budget.gdp(1))
    noisy = mechanism.measure(table.counts.astype(np.uint64), SeededRandomness(1)).noisy
    assert noisy.dtype == np.int64
    assert np.array_equal(noisy, mechanism.measure(table.counts, SeededRandomness(1)).noisy)


def test_numbers_beyond_floats_round_outwards() -> None:
    assert round_up(Fraction(10**400)) == math.inf
    assert round_down(Fraction(-(10**400))) == -math.inf
    assert math.isfinite(round_down(Fraction(10**400)))


@pytest.mark.parametrize("cases", [50, pytest.param(300, marks=pytest.mark.long)])
def test_norms_and_a_are_never_below_the_truth_whatever_is_hidden_or_impossible(cases: int) -> None:
    # Random schemas with structural zeros and features that are not released, against every dataset
    # there is.
    source, seen = random.Random(20), 0
    while seen < cases:
        case = _case(source)
        if case is None:
            continue
        seen += 1
        dataspace, released, a, tables = case
        shape, axes = dataspace.schema.shape, dataspace.schema.axes(released)
        hidden = tuple(axis for axis in range(len(shape)) if axis not in axes)
        seen_tables = (
            tables.reshape(-1, *shape)
            .sum(axis=tuple(axis + 1 for axis in hidden))
            .reshape(len(tables), -1)
        )
        moves = np.concatenate(
            [
                seen_tables[np.abs(tables - table).sum(axis=1) <= 2 * a] - here
                for table, here in zip(tables, seen_tables, strict=True)
            ]
        )
        true = (
            int(np.abs(moves).sum(axis=1).max()),
            int((moves**2).sum(axis=1).max()),
            int(np.abs(moves).max()),
        )
        space = TableSpace(dataspace, Ball(a), dataspace.schema.restrict(released))
        said = (space.l1, space.l2_squared, space.linf)
        assert all(bound >= norm for bound, norm in zip(said, true, strict=True))
        assert not space.exact or said == true
        listed = [tuple(move.ravel().tolist()) for move in space.moves()]
        assert len(listed) == len({*listed})
        assert {*listed} == {tuple(move) for move in moves.tolist() if any(move)}, (
            "S and nothing else"
        )
        form = space.matrix()
        if form is not None:  # noise on the lattice must reach every move
            inside = moves[:, form.cells.ravel()].reshape(-1, *form.cells.shape)
            assert np.abs(inside).sum() == np.abs(moves).sum()
            assert not inside.sum(axis=2).any()
            assert not (form.columns_published and inside.sum(axis=1).any())
        try:
            assert semi_adjacency(dataspace).bound >= _worst_case(tables)
        except AdjacencyUnknown:
            continue


def _case(source: random.Random) -> tuple[Dataspace, list[str], int, np.ndarray] | None:
    sizes = [source.choice([1, 2, 2, 3]) for _ in range(source.choice([2, 3, 3]))]
    names = "ABC"[: len(sizes)]
    zeros = []
    for _ in range(source.choice([0, 1, 2])):
        parts = source.sample(range(len(sizes)), source.choice([1, 2]))
        zeros.append(
            StructuralZero.from_pattern({names[i]: str(source.randrange(sizes[i])) for i in parts})
        )
    features = [
        Feature(name, [str(k) for k in range(size)])
        for name, size in zip(names, sizes, strict=True)
    ]
    schema = Schema(features, zeros)
    possible = np.flatnonzero(
        np.ones(schema.shape, dtype=bool) if schema.possible is None else schema.possible
    )
    n = source.choice([2, 3, 4])
    if len(possible) < 2 or math.comb(len(possible) + n - 1, n) > 800:
        return None
    chosen_lists = itertools.combinations_with_replacement(possible.tolist(), n)
    records = [np.bincount(chosen, minlength=schema.size) for chosen in chosen_lists]
    margins = [
        Margin(*source.sample(names, source.choice([1, 1, 2])))
        for _ in range(source.choice([0, 1, 2, 3]))
    ]
    table = Table(schema, source.choice(records).reshape(schema.shape))
    dataspace = Dataspace.from_table(table, margins)
    every = (Table(schema, counts.reshape(schema.shape)) for counts in records)
    tables = np.array([other.counts.ravel() for other in every if dataspace.contains(other)])
    released = source.sample(names, source.randint(1, len(names)))
    return dataspace, released, source.choice([1, 2, 3, 4, 7]), tables


def _worst_case(tables: np.ndarray) -> int:
    """The most records that must change, over tables, records x and values y that occur."""
    worst = 0
    for table in tables:
        for x in np.flatnonzero(table):
            for y in np.flatnonzero((tables > 0).any(axis=0)):
                if x != y:
                    change = table - tables[tables[:, y] > 0]
                    change[:, x] -= 1
                    change[:, y] += 1
                    worst = max(worst, 1 + int(np.abs(change).sum(axis=1).min()) // 2)
    return worst
