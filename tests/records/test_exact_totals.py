"""Exact totals to the person, and nothing impossible: in random structures, by both ways to visit
pairs.
"""

from collections import Counter

import numpy as np
import pytest

from semidp.inference.records import record_search
from semidp.inference.records.record_assembly import swapped_records
from semidp.inference.records.record_cells import Goal, TargetTable, record_moves
from semidp.inference.records.record_search import (
    Approach,
    RecordState,
    Sweep,
    compiled_sweep,
    pair_sweep,
    vector_sweep,
)
from semidp.inference.records.synthetic import SyntheticRecords
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.spaces.dataspace import Dataspace, Margin
from tests.records.structures import impossible, kept, random_structure

QUICK = 40
ALL = 500


def codes_of(records: SyntheticRecords) -> np.ndarray:
    return np.stack(records.places, axis=1)


def check(seed: int, sweep: Sweep) -> frozenset[str]:
    structure = random_structure(seed)
    records = swapped_records(structure.numbers, SeededRandomness(seed), sweep=sweep)
    assert kept(structure.numbers, codes_of(records)), f"structure {seed}"
    return structure.kinds


def check_all(seeds: range, sweep: Sweep) -> Counter:
    kinds = Counter()
    for seed in seeds:
        kinds.update(check(seed, sweep))
    return kinds


def test_exact_totals_are_kept_in_random_structures() -> None:
    kinds = check_all(range(QUICK), compiled_sweep)
    assert min(kinds[kind] for kind in ("joint", "nested", "zeros", "circle of tables")) >= 5


def test_numpy_keeps_them_too() -> None:
    check_all(range(QUICK, QUICK + 20), vector_sweep)


@pytest.mark.long
def test_exact_totals_are_kept_in_all_structures() -> None:
    kinds = check_all(range(QUICK, ALL), compiled_sweep)
    assert min(kinds[kind] for kind in ("joint", "nested", "zeros", "circle of tables")) >= 100
    assert kinds["circle of exact totals"] >= 50


def test_the_check_catches_a_record_that_changed() -> None:
    caught = 0
    for seed in range(10):
        numbers = random_structure(seed).numbers
        codes = codes_of(swapped_records(numbers, SeededRandomness(seed), seconds=0.05))
        axis = next(axis for axis, depth in enumerate(numbers.margins[0]) if depth)
        chain = numbers.dataspace.schema.grid.chains[axis]
        nodes = chain.find_leaf_ancestors(numbers.margins[0][axis])
        other = np.flatnonzero(nodes != nodes[codes[0, axis]])
        if other.size:
            codes[0, axis] = other[0]
            assert not kept(numbers, codes)
            caught += 1
    assert caught >= 8


def test_impossible_combinations_would_arise_without_care() -> None:
    """The same structures without their zeros make records that the check of zeros finds."""
    careless = 0
    for seed in range(QUICK):
        structure = random_structure(seed)
        if "zeros" not in structure.kinds:
            continue
        numbers = structure.numbers
        grid = numbers.dataspace.schema.grid
        codes = np.stack(np.unravel_index(np.arange(np.prod(grid.shape)), grid.shape), axis=1)
        careless += bool(impossible(numbers, codes).any())
    assert careless >= 5


@pytest.mark.few(1)
@pytest.mark.parametrize("sweep", [compiled_sweep, vector_sweep])
def test_records_come_at_least_as_near_as_the_truth(sweep: Sweep) -> None:
    """The truth has the exact totals, too: a search that ends further from the estimates than it is
    stuck.

    Where exact totals hang together in a circle, swaps of two records do not reach everything.
    """
    compared = 0
    for seed in range(40):
        structure = random_structure(seed)
        if "circle of exact totals" in structure.kinds:
            continue
        numbers = structure.numbers
        records = swapped_records(numbers, SeededRandomness(seed), sweep=sweep)
        goal = Goal(numbers.dataspace.schema.grid, numbers.targets)
        ours = goal.distance(goal.slopes(goal.layout.counts(codes_of(records))))
        truth = goal.distance(goal.slopes(goal.layout.counts(structure.truth)))
        assert ours <= truth * (1 + 1e-9), f"structure {seed}"
        compared += 1
    assert compared >= 30


def test_a_value_that_no_record_has_comes_back() -> None:
    """The start has no record of a level, and its table wants some: one record alone must be able
    to take it.
    """
    schema = Schema([Feature("sex", "fm"), Feature("job", "abc")])
    dataspace = Dataspace.from_totals(
        schema, {Margin("sex"): Table(schema.restrict(["sex"]), [30, 30])}
    )
    table = TargetTable("t", (1, 1), np.array([[10.0, 10.0, 10.0]] * 2), np.ones((2, 3)))
    goal = Goal(schema.grid, (table,))
    moves = record_moves(schema.grid, [(1, 0)], (1, 1))
    for sweep in (compiled_sweep, vector_sweep):
        codes = np.stack([np.repeat([0, 1], 30), np.zeros(60)], axis=1).astype(np.uint8)
        state = RecordState(goal, codes)
        Approach(sweep).run(state, moves, np.random.default_rng(1))
        assert goal.layout.counts(state.codes).tolist() == [10] * 6
    assert dataspace.n == 60


def test_the_slopes_follow_the_records() -> None:
    """What is kept up move by move is what counting the records gives."""
    for sweep in (compiled_sweep, vector_sweep):
        numbers = random_structure(3).numbers
        grid = numbers.dataspace.schema.grid
        codes = codes_of(swapped_records(numbers, SeededRandomness(3), seconds=1e-9))
        state = RecordState(Goal(grid, numbers.targets), codes)
        moves = record_moves(grid, numbers.margins, numbers.used)
        made = sum(sweep(state, move, np.random.default_rng(4)) for move in moves)
        assert made > 10
        assert np.allclose(state.slopes, state.goal.slopes(state.counts), atol=1e-9)


def test_plain_python_and_compiled_code_say_the_same() -> None:
    numbers = random_structure(3).numbers
    grid = numbers.dataspace.schema.grid
    codes = codes_of(swapped_records(numbers, SeededRandomness(3), seconds=1e-9))
    moves = record_moves(grid, numbers.margins, numbers.used)
    ends = []
    for kernel in (pair_sweep, None):
        with pytest.MonkeyPatch.context() as patch:
            if kernel is not None:
                patch.setattr(record_search, "_compile_sweep", lambda: pair_sweep)
            state = RecordState(Goal(grid, numbers.targets), codes.copy())
            draw = np.random.default_rng(5)
            for move in moves:
                compiled_sweep(state, move, draw)
            ends.append(state.codes)
    assert np.array_equal(*ends)
    assert not np.array_equal(ends[0], codes)
