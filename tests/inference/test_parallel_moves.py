"""Lines that are followed at the same time: they share no cell and keep totals, and a step leaves
the law of a line as it is.
"""

import math

import numpy as np
import pytest
import scipy

from semidp.inference.lattice_chains import (
    EntryLikelihood,
    ListedCells,
    ParallelMoves,
    count_rounds,
    difference_moves,
    drawn_lines,
    open_differences,
    sample_steps,
)
from semidp.inference.markov import swap_moves
from semidp.promise.noise.distributions import DiscreteGaussian
from semidp.promise.schema.margins import Chain

FALSE_ALARM = 1e-6
"""How often a right sampler fails a test of its law."""


@pytest.mark.parametrize(
    ("shape", "margins"),
    [((4, 2, 3), [[0], [1], [2]]), ((3, 2, 5), [[0, 1], [1, 2]]), ((3, 4), [[0]]), ((2, 3), [])],
)
def test_lines_of_swaps_share_no_cell_and_keep_totals(
    shape: tuple[int, ...], margins: list[list[int]]
) -> None:
    source = np.random.default_rng(1)
    for moves in swap_moves(shape, margins):
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
    differences = open_differences((2, 1), [(1, 1), (2, 0)])
    (moves,) = difference_moves((county, Chain.flat(2)), differences)
    pairs = set()
    for line in moves.lines(200, np.random.default_rng(1)).reshape(-1, 4):
        pairs.add(tuple(sorted(set((line // 2).tolist()))))
    assert pairs == {(1, 2), (3, 4), (3, 5), (4, 5)}
    assert moves.count == 2  # of three districts one is left out


def test_a_feature_of_one_level_leaves_no_lines() -> None:
    assert not swap_moves((1, 3), [[0], [1]])
    assert swap_moves((2, 3), [[0], [1]])


@pytest.mark.parametrize("at_once", [True, False])
def test_rounds_follow_as_many_lines_as_steps_are_asked_for(at_once: bool) -> None:
    kinds = swap_moves((4, 2, 3), [[0], [1], [2]])
    source = np.random.default_rng(1)
    rounds = count_rounds(kinds, 4000) if at_once else 4000
    lines = 0
    for places, signs in drawn_lines(kinds, rounds, 2, source, at_once=at_once):
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
    """Only they are followed at the same time; what they say of a table is the sum over its
    cells.
    """
    law = DiscreteGaussian(9)
    # Two numbers of the first cell, one of the second with weight 2, none of the third; and a sum.
    matrix = np.array([[1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 2, 0]])
    likelihood = EntryLikelihood(matrix, np.array([3, 5, 8, 4]), (law,), np.zeros(4, dtype=np.intp))
    single, summed = likelihood.split()
    assert single.noisy.tolist() == [3, 5, 4]
    assert summed.noisy.tolist() == [8]
    tables = np.random.default_rng(1).integers(0, 90, (40, 3))
    cells = np.broadcast_to(np.arange(3), tables.shape)
    whole = single.evaluate(single.errors(tables))
    np.testing.assert_allclose(single.of_cells(tables, cells).sum(axis=1), whole)
    assert not single.of_cells(tables, cells)[:, 2].any()
    both = whole + summed.evaluate(summed.errors(tables))
    np.testing.assert_allclose(likelihood.evaluate(likelihood.errors(tables)), both)


def test_lines_of_one_chain_are_drawn_alone_where_sums_were_measured() -> None:
    (moves,) = swap_moves((2, 6), [[0], [1]])
    assert isinstance(moves, ParallelMoves)
    assert moves.count == 3
    lines = moves.one_line(600, np.random.default_rng(1))
    assert lines.shape == (600, 1, 4)
    columns = {tuple(sorted(set((line % 6).tolist()))) for line in lines[:, 0]}
    assert len(columns) == math.comb(6, 2)
