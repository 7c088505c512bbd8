"""Chains on the tables with exact totals of any shape: circles, structural zeros, nested features,
noise on residuals; and their moves, many at a time.

A line adds k to some cells and takes k from others, so that exact totals stay; lines that share no
cell move together. Moves that keep totals in a circle do not connect the tables without negative
counts. Here chains may pass through tables with negative counts, or counts in impossible cells, at
a price; only tables without any are kept. What makes a table likely is the business of `markov`.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.promise.schema.margins import Chain, View, is_within_view, list_axes, minimal

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


_FAR = 12.0  # standard deviations up to which the law of a number is listed
_ANYWHERE = 2**40  # further than any window
_OVER = 32  # counts below 0, or above the number of records, that chains often hold
_LARGEST_NOISE = 10**6  # standard deviation up to which laws are listed
_LEAST = 1e-300  # a probability whose logarithm is exact
_MOST_WAIT = 6  # times the steps asked for, until chains have held enough tables


class NoiseLaw(Protocol):
    """A symmetric law of whole numbers."""

    @property
    def variance(self) -> float:
        """The variance."""

    def pmf(self, k: NDArray[Any], /) -> Floats:
        """Probabilities of some whole numbers."""


def open_differences(depths: View, margins: Sequence[View]) -> list[View]:
    """The least depths at which differences of a table are not seen by any margin.

    A difference at depths d compares, along every feature with ``d > 0``, two values that agree one
    depth above; a margin sees it where it names all these depths.

    >>> open_differences((1, 1, 1), [(1, 1, 0), (0, 1, 1)])
    [(1, 0, 1)]
    >>> # A circle: cubes of eight cells
    >>> open_differences((1, 1, 1), [(1, 1, 0), (0, 1, 1), (1, 0, 1)])
    [(1, 1, 1)]
    >>> open_differences((2, 1), [(1, 1), (2, 0)])  # counties within states
    [(2, 1)]
    """
    every = itertools.product(*(range(depth + 1) for depth in depths))
    unseen = []
    for view in every:
        if any(view) and not any(is_within_view(view, margin) for margin in margins):
            unseen.append(view)
    return minimal(unseen)


@dataclass(frozen=True, eq=False)
class EntryLikelihood:
    """Measured whole numbers, each a weighted sum of the cells plus noise of its own.

    Parameters
    ----------
    matrix
        The weights, (numbers, cells).
    noisy
        What was measured.
    laws, which
        The laws of the noise, and for each number which it has.
    """

    matrix: Counts = field(repr=False)
    noisy: Counts = field(repr=False)
    laws: tuple[NoiseLaw, ...] = field(repr=False)
    which: NDArray[np.intp] = field(repr=False)

    @cached_property
    def columns(self) -> Counts:
        """The weights of each cell, (cells, numbers)."""
        return np.ascontiguousarray(self.matrix.T)

    @cached_property
    def log_laws(self) -> Floats:
        """Logarithms of the laws, (laws, sizes): further out they fall on like a straight line.

        That far out is less than exp(-16) of the law, and chains only pass there on their way.
        """
        largest = max((math.sqrt(law.variance) for law in self.laws), default=0.0)
        if largest > _LARGEST_NOISE:
            raise Refused(
                f"noise of standard deviation {largest:.3g} says nothing that chains could use: the"
                " posterior is computed for less noise"
            )
        sizes = np.arange(math.ceil(_FAR * largest) + 20)
        logs = np.zeros((len(self.laws), len(sizes)))
        for number, law in enumerate(self.laws):
            reach = min(len(sizes), math.ceil(_FAR * math.sqrt(law.variance)) + 8)
            chances = law.pmf(sizes[:reach])
            # A law that is known up to some number falls on from there.
            known_sizes = np.flatnonzero(chances > _LEAST)
            reach = int(known_sizes[-1]) + 1
            near = np.log(chances[:reach])
            logs[number, :reach] = near
            slope = min(float(near[-1] - near[-2]), -1e-3) if reach > 1 else -_FAR
            logs[number, reach:] = near[-1] + slope * np.arange(1, len(sizes) - reach + 1)
        return logs

    @cached_property
    def slopes(self) -> Floats:
        """How much each law falls with every number beyond the list."""
        return np.asarray(self.log_laws[:, -1] - self.log_laws[:, -2])

    @cached_property
    def cell_by_cell(self) -> bool:
        """Whether every number is measured of one cell: then the cells of a table are
        independent.
        """
        return bool(((self.matrix != 0).sum(axis=1) <= 1).all())

    @cached_property
    def cell_numbers(self) -> tuple[Places, Counts]:
        """For each cell the numbers that have a weight on it, and their weights, (cells, most
        numbers of a cell).

        Cells with fewer numbers than others have some with weight 0.
        """
        concerned = self.columns != 0
        most = int(concerned.sum(axis=1).max(initial=0))
        numbers = np.argsort(~concerned, axis=1, kind="stable")[:, :most]
        return numbers, np.take_along_axis(self.columns, numbers, axis=1)

    def errors(self, tables: Counts) -> Counts:
        """What the noise was if these were the tables, one row a table."""
        return np.asarray(self.noisy - tables @ self.columns)

    def evaluate(self, errors: Counts) -> Floats:
        """Log-likelihoods of such noise, up to a constant."""
        return np.asarray(self.logs(errors, np.arange(len(self.noisy))).sum(axis=-1))

    def of_cells(self, counts: Counts, cells: Places) -> Floats:
        """Log-likelihoods of counts in cells, each by itself, up to a constant; see
        `cell_by_cell`.
        """
        numbers, weights = self.cell_numbers
        numbers, weights = numbers[cells], weights[cells]
        errors = self.noisy[numbers] - weights * counts[..., None]
        return np.asarray((self.logs(errors, numbers) * (weights != 0)).sum(axis=-1))

    def logs(self, errors: Counts, numbers: Places) -> Floats:
        """Log-likelihoods of the noise of some of the measured numbers, each by itself."""
        law = self.which[numbers]
        last = self.log_laws.shape[1] - 1
        sizes = np.abs(errors)
        near = self.log_laws[law, np.minimum(sizes, last)]
        beyond = np.maximum(sizes - last, 0)
        return np.asarray(near + self.slopes[law] * beyond)


@dataclass(eq=False)
class _ChainState:
    """State of all chains: tables, what the noise would be, its log-likelihood, and the excess of
    impossible counts.
    """

    tables: Counts
    errors: Counts
    logs: Floats
    excess: Counts


@dataclass(frozen=True, eq=False)
class LatticeChains:
    """Chains on all tables of whole numbers with given totals, negative counts at a
    price.

    The law is ``likelihood · exp(-price · v)``, v the sum of what is negative or impossible. It is
    positive on every table of whole numbers with the totals. Differences at the least open depths
    generate all of them: products of ``e_l - e_first`` along trees are a basis of all tables, a
    margin is one-to-one on those that it sees, and every other one is a sum of differences at least
    depths. So the chains reach every table, whatever the totals are, and the tables with v = 0
    among theirs have the posterior under a uniform prior.

    Parameters
    ----------
    chains
        The depths of each feature.
    differences
        The least open depths.
    possible
        The cells that may hold records, flat.
    likelihood
        What was measured.
    reach
        A typical error of a cell: steps are looked for up to a few times as far away.
    """

    chains: tuple[Chain, ...]
    differences: tuple[View, ...]
    possible: NDArray[np.bool_] = field(repr=False)
    likelihood: EntryLikelihood = field(repr=False)
    reach: float

    @property
    def shape(self) -> tuple[int, ...]:
        """The leaves of each feature."""
        return tuple(chain.leaves for chain in self.chains)

    @property
    def is_fixed(self) -> bool:
        """Whether only one table has the totals."""
        return not self.moves

    @cached_property
    def moves(self) -> tuple[ParallelMoves, ...]:
        """Lines of every difference that two levels have."""
        every = [self._moves(view) for view in self.differences]
        return tuple(moves for moves in every if moves.count)

    def _moves(self, view: View) -> ParallelMoves:
        """Lines of a difference: two levels of each feature that it compares, which agree one depth
        above.
        """
        compared = []
        for axis in list_axes(view):
            family = self.chains[axis].find_leaf_ancestors(view[axis] - 1)
            compared.append(Siblings(level_offsets(self.shape, [axis]), np.asarray(family)))
        free_axes = [axis for axis in range(len(self.shape)) if not view[axis]]
        return ParallelMoves(tuple(compared), level_offsets(self.shape, free_axes))

    @cached_property
    def price(self) -> float:
        """What a negative count costs: more where there are many cells that may be negative at the
        same time.
        """
        return 0.5 + math.log(len(self.possible)) / 2

    def run(
        self,
        tables: Counts,
        steps: int,
        source: np.random.Generator,
        *,
        flat: bool = False,
        keep: int = 0,
    ) -> tuple[Counts, Counts | None]:
        """Move every table; return where they end, and `keep` possible tables of each chain on the
        way.

        Lines that share no cell are followed at the same time where cells were measured one by one:
        each of them is a step. None in place of the tables where some chain has held too few. With
        `flat` there is no likelihood.
        """
        state = self._start(tables, flat)
        count, cells = tables.shape
        at_once = self.likelihood.cell_by_cell or flat
        rounds = count_rounds(self.moves, steps) if at_once else steps
        law = self._list_cells(tables, flat)
        kept = np.zeros((keep, count, cells), dtype=np.int64)
        held = np.zeros(count, dtype=np.int64)
        every = max(1, rounds // keep) if keep else 0
        most = rounds * (_MOST_WAIT if keep else 1)
        for places, signs in drawn_lines(self.moves, most, count, source, at_once=at_once):
            if at_once:
                self._all_lines(state, places, signs, law, source)
            else:
                self._one_line(state, places[:, 0], signs, source)
            if keep:
                # Only rounds at possible tables count: watched there, the chains are Markov chains
                # too.
                at = state.excess == 0
                held += at
                due = np.flatnonzero(at & (held % every == 0) & (held <= keep * every))
                kept[held[due] // every - 1, due] = state.tables[due]
                if (held >= keep * every).all():
                    break
        if keep and not (held >= keep * every).all():
            return state.tables, None
        return state.tables, kept

    def _start(self, tables: Counts, flat: bool) -> "_ChainState":
        errors = self.likelihood.errors(tables)
        logs = np.zeros(len(tables)) if flat else self.likelihood.evaluate(errors)
        every_cell = np.broadcast_to(np.arange(tables.shape[1]), tables.shape)
        excess = self._excess(tables, every_cell).sum(axis=1)
        return _ChainState(tables.copy(), errors, logs, excess)

    def _all_lines(
        self,
        state: "_ChainState",
        places: Places,
        signs: Counts,
        law: ListedCells,
        source: np.random.Generator,
    ) -> None:
        """Follow lines that share no cell, each as far as its slice says.

        The law of a table is a product over its cells, so that no line changes what another one
        gains. Errors and log-likelihoods of the state are not kept up.
        """
        count = len(state.tables)
        cells = places.reshape(-1, len(signs))
        before = np.take_along_axis(state.tables, places.reshape(count, -1), axis=1)
        before = before.reshape(cells.shape)
        far = np.full(len(cells), _ANYWHERE)
        gain = law.gain(cells, before, signs)
        amounts = sample_steps(gain, (-far, far), self.reach, source)
        after = before + amounts[:, None] * signs
        paid = self._excess(after, cells) - self._excess(before, cells)
        state.excess = state.excess + paid.reshape(count, -1).sum(axis=1)
        np.put_along_axis(state.tables, places.reshape(count, -1), after.reshape(count, -1), axis=1)

    def _list_cells(self, tables: Counts, flat: bool) -> ListedCells:
        """What counts are worth where cells were measured one by one: likelihood and price."""

        def law(counts: Counts, cells: Counts) -> Floats:
            price: Floats = np.asarray(-self.price * self._excess(counts, cells))
            return price if flat else price + self.likelihood.of_cells(counts, cells)

        # Hardly any count is much below 0 or above the number of records.
        span = (-_OVER, int(tables.sum(axis=1).max()) + _OVER)
        return ListedCells(law, tables.shape[1], span, window_length(self.reach))

    def _one_line(
        self, state: "_ChainState", cells: Places, signs: Counts, source: np.random.Generator
    ) -> None:
        """Follow one line of each chain, as far as its slice says."""
        count = len(state.tables)
        before = np.take_along_axis(state.tables, cells, axis=1)
        held = self._excess(before, cells).sum(axis=1)
        # What one step along the line adds to each measured number.
        along = np.einsum("c,ncm->nm", signs, self.likelihood.columns[cells])

        def paid(amounts: Counts, lines: Places) -> Counts:
            after = before[lines] + amounts[..., None] * signs
            return np.asarray(self._excess(after, cells[lines]).sum(axis=-1) - held[lines])

        def likelihoods(amounts: Counts, lines: Places) -> Floats:
            return self.likelihood.evaluate(state.errors[lines] - amounts[..., None] * along[lines])

        def gain(amounts: Counts, lines: Places) -> Floats:
            more = likelihoods(amounts, lines) - state.logs[lines]
            return more - self.price * paid(amounts, lines)

        far = np.full(count, _ANYWHERE)
        amounts = sample_steps(gain, (-far, far), self.reach, source)
        every = np.arange(count)
        state.excess = state.excess + paid(amounts, every)
        state.logs = likelihoods(amounts, every)
        state.errors = state.errors - amounts[:, None] * along
        after = before + amounts[:, None] * signs
        np.put_along_axis(state.tables, cells, after, axis=1)

    def _excess(self, counts: Counts, cells: Counts) -> Counts:
        """What is negative, or stands in an impossible cell."""
        return np.where(self.possible[cells], np.maximum(-counts, 0), np.abs(counts))
