"""Moves of Markov chains on tables, many at a time: lines that share no cell, and how far each is
followed.

A line adds k to some cells and takes k from others, so that exact totals stay. Which tables the
chains are on, and what makes a table likely, is the business of `markov` and `lattice_chains`.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Places = NDArray[np.intp]
CellLaw = Callable[[Counts, Counts], Floats]
"""The log of the likelihood of counts in cells (by their flat numbers), up to a constant."""
Gain = Callable[[Counts, Places], Floats]
"""By how much the log-likelihood rises when some lines are followed so far: amounts, of shape
(tries, lines), and the numbers of these lines."""

_WINDOW = 6.0  # typical distances in which a step is looked for
_MOST_LISTED = 2**20  # counts of cells whose worth is listed
_TRIES = 8  # numbers that are tried at once on a line
_ROUNDS = 64  # whose lines are drawn together
_MANY_CELLS = 2**20  # of lines that are drawn together
_MANY_TRIES = 4096  # numbers that are tried at once on all lines: few lines are tried more often


@dataclass(frozen=True, eq=False)
class Siblings:
    """Levels of one feature, or of several at once, that are compared in pairs within families.

    Parameters
    ----------
    offsets
        Where each level stands: what it adds to the flat number of a cell.
    family
        The family of each level, in ascending order; only levels of one family are compared.
    """

    offsets: Places = field(repr=False)
    family: Places = field(repr=False)

    @cached_property
    def places(self) -> tuple[Places, Places]:
        """Places of the first and the second of each pair, when families are shuffled within
        themselves.
        """
        firsts: list[int] = []
        _, starts, sizes = np.unique(self.family, return_index=True, return_counts=True)
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
            # Of an odd number of levels one is left out.
            firsts += range(start, start + size - 1, 2)
        return np.array(firsts, dtype=np.intp), np.array(firsts, dtype=np.intp) + 1

    def pairs(self, chains: int, source: np.random.Generator) -> tuple[Places, Places]:
        """Offsets of pairs that share no level, drawn at random for each chain, (chains, pairs)."""
        keys = self.family + source.random((chains, len(self.family)))
        shuffled = self.offsets[np.argsort(keys, axis=1)]
        first, second = self.places
        return shuffled[:, first], shuffled[:, second]


@dataclass(frozen=True, eq=False)
class ParallelMoves:
    """Lines of one kind: products of differences of siblings, at every level of what is left.

    Parameters
    ----------
    compared
        Sets of siblings of different features; a line has two levels of each.
    offsets
        Where the levels of all other features stand.

    Examples
    --------
    Two rows and two columns of a 2 × 2 table that are exchanged, at each of three other levels:

    >>> rows = Siblings(np.array([0, 6]), np.zeros(2, dtype=np.intp))
    >>> columns = Siblings(np.array([0, 3]), np.zeros(2, dtype=np.intp))
    >>> moves = ParallelMoves((rows, columns), np.arange(3))
    >>> cells = moves.lines(1, np.random.default_rng(1))
    >>> cells.shape, sorted(cells.ravel().tolist()) == list(range(12)), moves.signs.tolist()
    ((1, 3, 4), True, [1, -1, -1, 1])
    """

    compared: tuple[Siblings, ...]
    offsets: Places = field(repr=False)

    @property
    def count(self) -> int:
        """How many lines there are at a time."""
        pairs = [len(siblings.places[0]) for siblings in self.compared]
        return math.prod(pairs) * len(self.offsets)

    @cached_property
    def signs(self) -> Counts:
        """By which sign the cells of a line change."""
        choices = itertools.product((0, 1), repeat=len(self.compared))
        return np.array([(-1) ** sum(choice) for choice in choices])

    def lines(self, chains: int, source: np.random.Generator) -> Places:
        """Flat cells of lines that share no cell, (chains, lines, cells of a line).

        They do not depend on the tables. Every pair of siblings has a chance.
        """
        # One axis for the pairs of each set of siblings, one for the other features, and at the
        # end one of two for each set: which of the pair it is.
        sets = len(self.compared)
        cells = self.offsets.reshape(1, *[1] * sets, -1, *[1] * sets)
        for number, siblings in enumerate(self.compared):
            pairs = np.stack(siblings.pairs(chains, source), axis=-1)
            shape = [chains] + [1] * (2 * sets + 1)
            shape[1 + number] = pairs.shape[1]
            shape[2 + sets + number] = 2
            cells = cells + pairs.reshape(shape)
        return np.asarray(cells.reshape(chains, self.count, 2**sets))

    def one_line(self, chains: int, source: np.random.Generator) -> Places:
        """One line a chain, each as likely as any other, (chains, 1, cells of a line)."""
        lines = self.lines(chains, source)
        chosen = source.integers(0, lines.shape[1], chains)
        return np.asarray(lines[np.arange(chains), chosen][:, None])


def drawn_lines(
    kinds: Sequence[ParallelMoves],
    rounds: int,
    chains: int,
    source: np.random.Generator,
    *,
    at_once: bool,
) -> Iterator[tuple[Places, Counts]]:
    """Yield for each round the lines of a random kind, (chains, lines, cells of a line), and their
    signs.

    With `at_once` they are all lines that share no cell, else one a chain. No line depends on a
    table, so that those of many rounds are drawn together.
    """
    largest = max(moves.count * len(moves.signs) for moves in kinds)
    together = min(_ROUNDS, max(1, _MANY_CELLS // (chains * largest)))
    for begun in range(0, rounds, together):
        chosen = source.integers(len(kinds), size=min(together, rounds - begun))
        drawn = []
        for number, moves in enumerate(kinds):
            draw = moves.lines if at_once else moves.one_line
            times = int((chosen == number).sum())
            lines = draw(times * chains, source)
            drawn.append(iter(lines.reshape(times, chains, *lines.shape[1:])))
        for number in chosen.tolist():
            yield next(drawn[number]), kinds[number].signs


def count_rounds(kinds: Sequence[ParallelMoves], steps: int) -> int:
    """In how many rounds so many lines are followed, all lines of a random kind in each.

    >>> pair = Siblings(np.array([0, 4]), np.zeros(2, dtype=np.intp))
    >>> count_rounds([ParallelMoves((pair,), np.arange(4))], 100)  # four lines a round
    25
    """
    return math.ceil(steps * len(kinds) / sum(moves.count for moves in kinds))


def level_offsets(shape: Sequence[int], axes: Sequence[int]) -> Places:
    """What each combination of levels of some axes adds to the flat number of a cell.

    >>> level_offsets((2, 3, 4), (0, 2)).tolist()
    [0, 1, 2, 3, 12, 13, 14, 15]
    """
    flat = np.arange(math.prod(shape)).reshape(shape)
    index = tuple(slice(None) if axis in axes else 0 for axis in range(len(shape)))
    return np.asarray(flat[index].ravel())


def window_length(reach: float) -> int:
    """How far a line is followed at most, where typical distances are `reach`."""
    return math.ceil(_WINDOW * max(reach, 1.0))


class ListedCells:
    """What each count of each cell is worth, in a list: chains ask for it all the time.

    Parameters
    ----------
    law
        Log-likelihoods of counts in cells, up to a constant.
    cells
        How many cells a table has.
    span
        The least and the largest count from which lines are followed by the list; from others, and
        where the list would be too long, what is asked for is computed.
    margin
        How far beyond the span lines are followed.

    Examples
    --------
    >>> listed = ListedCells(lambda counts, cells: -1.0 * counts * cells, 3, (0, 9))
    >>> cells, counts = np.array([[1, 2]]), np.array([[4, 5]])
    >>> gain = listed.gain(cells, counts, np.array([1, -1]))
    >>> gain(np.array([[2]]), np.array([0])).tolist()  # 6 and 3 are worth 2 more than 4 and 5
    [[2.0]]
    """

    def __init__(self, law: CellLaw, cells: int, span: tuple[int, int], margin: int = 0) -> None:
        self._law = law
        self._span = span
        self._first = span[0] - margin
        self._width = span[1] + margin - self._first + 1
        self._worth: Floats | None = None
        if cells * self._width <= _MOST_LISTED:
            counts, every = np.meshgrid(self._first + np.arange(self._width), np.arange(cells))
            self._worth = law(counts, every).ravel()

    def gain(self, cells: Places, before: Counts, signs: Counts) -> Gain:
        """What lines gain when they are followed; cells and their counts, (lines, cells of a
        line).
        """
        worth = self._worth
        if worth is None or before.min() < self._span[0] or before.max() > self._span[1]:
            return self._build_gain(cells, before, signs)
        # Cells of a line come first: numpy adds fastest over a first axis.
        starts = (cells * self._width + (before - self._first)).T
        present = worth[starts].sum(axis=0)
        ways = signs[:, None, None]

        def gain(amounts: Counts, lines: Places) -> Floats:
            places = starts[:, None, lines] + ways * amounts
            return np.asarray(worth[places].sum(axis=0) - present[lines])

        return gain

    def _build_gain(self, cells: Places, before: Counts, signs: Counts) -> Gain:
        present = self._law(before, cells).sum(axis=-1)

        def gain(amounts: Counts, lines: Places) -> Floats:
            after = before[lines] + amounts[..., None] * signs
            return np.asarray(self._law(after, cells[lines]).sum(axis=-1) - present[lines])

        return gain


def sample_steps(
    gain: Gain, room: tuple[Counts, Counts], reach: float, source: np.random.Generator
) -> Counts:
    """How far each line is followed, by slice sampling on whole numbers (Neal, 2003).

    A window of a fixed length is laid over 0 at random. Several numbers of it are tried at once,
    and the first is taken that gains more than the logarithm of a uniform number. If there is
    none, the window is cut on both sides at what was tried nearest to 0, and others are tried. Any
    two numbers of a slice lead to each other equally often: a window that holds both is as likely
    from either, and so are the numbers that are tried and cut it. So the numbers that are taken
    have the law of the likelihood on the line.

    Parameters
    ----------
    gain
        By how much the log-likelihood exceeds the present one.
    room
        How far down and up each line can be followed.
    reach
        A typical distance; the window is a few times as long.
    source
        Random numbers.

    Examples
    --------
    >>> source, place = np.random.default_rng(1), np.zeros(4000, dtype=np.int64)
    >>> for _ in range(20):
    ...     room = (-place, 9 - place)  # from 0 to 9, each half as likely as the one before
    ...     place += sample_steps(lambda k, lines: -k * np.log(2), room, 3.0, source)
    >>> round(float((place == 0).mean()), 1), int(place.max())
    (0.5, 9)
    """
    count = len(room[0])
    length = window_length(reach)
    start = -source.integers(0, length + 1, count)
    low = np.maximum(room[0], start)
    high = np.minimum(room[1], start + length)
    level = -source.standard_exponential(count)
    taken = np.zeros(count, dtype=np.int64)
    lines = np.flatnonzero(high > low)
    while lines.size:
        tries = min(_TRIES, max(1, _MANY_TRIES // lines.size))
        first, last = low[lines], high[lines]
        uniform = source.random((tries, lines.size))
        tried = first + (uniform * (last - first + 1)).astype(np.int64)
        # The present place always gains enough, so that the window cannot become empty.
        enough = (tried == 0) | (gain(tried, lines) >= level[lines])
        best = enough.argmax(axis=0)
        every = np.arange(lines.size)
        taken[lines] = np.where(enough[best, every], tried[best, every], 0)
        missed = ~enough[best, every]
        lines, tried = lines[missed], tried[:, missed]
        low[lines] = np.where(tried < 0, tried + 1, first[missed]).max(axis=0)
        high[lines] = np.where(tried > 0, tried - 1, last[missed]).min(axis=0)
    return taken
