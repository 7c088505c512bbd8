"""Lines that are followed at the same time: they share no cell and keep totals, and a step leaves
the law of a line as it is.
"""

import math

import numpy as np
import pytest
import scipy

from semidp.inference.lattice_chains import (
    EntryLikelihood,
    LatticeChains,
    ListedCells,
    ParallelMoves,
    count_rounds,
    drawn_lines,
    open_differences,
    sample_steps,
)
from semidp.inference.markov import Chains, swaps
from semidp.promise.noise.distributions import DiscreteGaussian
from semidp.promise.schema.margins import Chain

FALSE_ALARM = 1e-6
"""How often a right sampler fails a test of its law."""


def chains_with(shape: tuple[int, ...], margins: list[list[int]]) -> Chains:
    named = {axis for margin in margins for axis in margin}
    free = tuple(axis for axis in range(len(shape)) if axis not in named)
    return Chains(
        shape, tuple(swaps(len(shape), margins)), free, lambda counts, cells: 0.0 * counts, 1.0
    )


def measured_cells(cells: int) -> EntryLikelihood:
    unit = np.eye(cells, dtype=np.int64)
    noisy = np.zeros(cells, dtype=np.int64)
    return EntryLikelihood(unit, noisy, (DiscreteGaussian(4),), np.zeros(cells, dtype=np.intp))


@pytest.mark.parametrize(
    ("shape", "margins"),
    [((4, 2, 3), [[0], [1], [2]]), ((3, 2, 5), [[0, 1], [1, 2]]), ((3, 4), [[0]]), ((2, 3), [])],
)
def test_lines_of_swaps_share_no_cell_and_keep_totals(
    shape: tuple[int, ...], margins: list[list[int]]
) -> None:
    chains = chains_with(shape, margins)
    source = np.random.default_rng(1)
    for moves in chains.moves:
        lines = moves.lines(20, source)
        assert lines.shape[1] == moves.count > 0
        for places in lines:
            assert len(np.unique(places)) == places.size
            for cells in places:
                change = np.zeros(shape, dtype=np.int64)
                np.add.at(change.reshape(-1), cells, moves.signs)
                for margin in [[], *margins]:
                    summed = tuple(axis for axis in range(len(shape)) if axis not in margin)
                    assert not change.sum(axis=summed).any()


def test_lines_compare_every_pair_of_siblings_and_no_others() -> None:
    """Districts within counties of one, two and three districts, by two levels."""
    county = Chain(6, ((0, 1, 3), (0, 1, 2, 3, 4, 5)))
    shape = (county, Chain.flat(2))
    differences = tuple(open_differences((2, 1), [(1, 1), (2, 0)]))
    chains = LatticeChains(shape, differences, np.ones(12, bool), measured_cells(12), 1.0)
    (moves,) = chains.moves
    pairs = set()
    for line in moves.lines(200, np.random.default_rng(1)).reshape(-1, 4):
        pairs.add(tuple(sorted(set((line // 2).tolist()))))
    assert pairs == {(1, 2), (3, 4), (3, 5), (4, 5)}
    assert moves.count == 2  # of three districts one is left out


def test_a_feature_of_one_level_leaves_no_lines() -> None:
    assert chains_with((1, 3), [[0], [1]]).is_fixed
    assert not chains_with((2, 3), [[0], [1]]).is_fixed


@pytest.mark.parametrize("at_once", [True, False])
def test_rounds_follow_as_many_lines_as_steps_are_asked_for(at_once: bool) -> None:
    chains = chains_with((4, 2, 3), [[0], [1], [2]])
    source = np.random.default_rng(1)
    rounds = count_rounds(chains.moves, 4000) if at_once else 4000
    lines = 0
    for places, signs in drawn_lines(chains.moves, rounds, 2, source, at_once=at_once):
        assert places.shape[0] == 2
        assert places.shape[2] == len(signs)
        lines += places.shape[1]
    # Kinds are drawn at random: with more or fewer lines than on average.
    assert abs(lines - 4000) <= (0 if not at_once else 800)


def law_of(weights: np.ndarray, places: np.ndarray, lines: np.ndarray, tried: np.ndarray):
    """Gains of steps from places on a line of these weights."""
    after = places[lines] + tried
    return np.log(weights[after]) - np.log(weights[places[lines]])


@pytest.mark.parametrize("lines", [50, 50_000])
def test_a_step_leaves_the_law_of_a_line_as_it_is(lines: int) -> None:
    """Two hills with a valley between; few lines are tried often at once, many one number at a
    time.
    """
    weights = np.array([4.0, 2.0, 0.1, 0.5, 3.0, 1.0, 0.2, 0.1])
    chances = weights / weights.sum()
    source = np.random.default_rng(3)
    after, moved = [], 0
    for _ in range(50_000 // lines):
        places = source.choice(len(weights), lines, p=chances)
        steps = sample_steps(
            lambda tried, which, at=places: law_of(weights, at, which, tried),
            (-places, len(weights) - 1 - places),
            1.0,
            source,
        )
        after.append(places + steps)
        moved += int((steps != 0).sum())
    counts = np.bincount(np.concatenate(after), minlength=len(weights))
    assert scipy.stats.chisquare(counts, chances * counts.sum()).pvalue > FALSE_ALARM
    assert moved > 10_000
    # The twin: weights that are sharper by a fifth are another law.
    sharper = weights**1.2 / (weights**1.2).sum()
    assert scipy.stats.chisquare(counts, sharper * counts.sum()).pvalue < FALSE_ALARM


def test_a_window_that_is_cut_where_nothing_was_tried_is_caught() -> None:
    """The twin of the step: a sampler that takes the best of its tries has another law."""
    weights = np.array([4.0, 2.0, 0.1, 0.5, 3.0, 1.0, 0.2, 0.1])
    chances = weights / weights.sum()
    source = np.random.default_rng(3)
    places = source.choice(len(weights), 50_000, p=chances)
    tried = source.integers(0, len(weights), (8, 50_000)) - places
    gains = law_of(weights, places, np.arange(50_000), tried)
    best = gains.argmax(axis=0)
    after = places + tried[best, np.arange(50_000)]
    counts = np.bincount(after, minlength=len(weights))
    assert scipy.stats.chisquare(counts, chances * counts.sum()).pvalue < FALSE_ALARM


def test_what_is_listed_is_what_is_computed() -> None:
    """Also from counts that the list lacks, where the list would be too long, and not with the
    counts of another cell.
    """

    def law(counts: np.ndarray, cells: np.ndarray) -> np.ndarray:
        return -((counts - 3.0 * cells) ** 2) / 7

    def exact(start: np.ndarray, change: np.ndarray) -> np.ndarray:
        after = start + change
        return (law(after, cells) - law(start, cells)).sum(axis=-1)

    source = np.random.default_rng(1)
    signs = np.array([1, -1, -1, 1])
    cells = np.stack([source.permutation(9)[:4] for _ in range(30)])
    before = source.integers(0, 40, cells.shape)
    amounts = source.integers(-15, 16, (3, 30))
    lines = np.arange(30)
    for counts, span in ((before, (0, 40)), (before - 30, (0, 40)), (before, (0, 2**22))):
        gain = ListedCells(law, 9, span, 15).gain(cells, counts, signs)
        more = exact(counts, amounts[..., None] * signs)
        np.testing.assert_allclose(gain(amounts, lines), more, atol=1e-9)
        some = gain(amounts[:, 7:9], lines[7:9])
        np.testing.assert_allclose(some, more[:, 7:9], atol=1e-9)
        assert np.abs(gain(amounts, lines[::-1].copy()) - more).max() > 0.1


def test_cells_measured_one_by_one_are_told_from_sums() -> None:
    """Only then lines are followed at the same time; the likelihood of a table is the sum over its
    cells.
    """
    law = DiscreteGaussian(9)
    # Two numbers of the first cell, one of the second with weight 2, none of the third.
    matrix = np.array([[1, 0, 0], [1, 0, 0], [0, 2, 0]])
    single = EntryLikelihood(matrix, np.array([3, 5, 4]), (law,), np.zeros(3, dtype=np.intp))
    assert single.cell_by_cell
    tables = np.random.default_rng(1).integers(0, 90, (40, 3))
    cells = np.broadcast_to(np.arange(3), tables.shape)
    whole = single.evaluate(single.errors(tables))
    np.testing.assert_allclose(single.of_cells(tables, cells).sum(axis=1), whole)
    assert not single.of_cells(tables, cells)[:, 2].any()
    summed = EntryLikelihood(
        np.array([[1, 1, 0]]), np.array([3]), (law,), np.zeros(1, dtype=np.intp)
    )
    assert not summed.cell_by_cell


def test_lines_of_one_chain_are_drawn_alone_where_sums_were_measured() -> None:
    (moves,) = chains_with((2, 6), [[0], [1]]).moves
    assert isinstance(moves, ParallelMoves)
    assert moves.count == 3
    lines = moves.one_line(600, np.random.default_rng(1))
    assert lines.shape == (600, 1, 4)
    columns = {tuple(sorted(set((line % 6).tolist()))) for line in lines[:, 0]}
    assert len(columns) == math.comb(6, 2)
