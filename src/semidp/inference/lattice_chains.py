"""Markov chains on the tables with given exact totals, their moves, many at a time, and the
likelihood of measurements.

A line adds k to some cells and takes k from others, so exact totals stay; lines that share no
cell move together. With totals that form a cycle, structural zeros, nested features or noise on
residuals, chains may pass through tables with negative counts, or counts in impossible cells, at a
price; only tables without any are kept. `likelihoods` collects the measurements of a release.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.promise.schema.margins import Chain, View, is_within_view, list_axes, minimal

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Places = NDArray[np.intp]
CellLaw = Callable[[Counts, Counts], Floats]
"""The log of the likelihood of counts in cells (by their flat numbers), up to a constant."""
Gain = Callable[[Counts, Places], Floats]
"""The gain in log-likelihood from following some lines: steps, of shape (tries, lines), and
the numbers of these lines."""

_WINDOW = 6.0  # typical distances in which a step is looked for
_MOST_LISTED = 2**20  # counts of cells whose worth is listed
_TRIES = 8  # numbers that are tried at once on a line
_ROUNDS = 64  # whose lines are drawn together
_MANY_CELLS = 2**20  # of lines that are drawn together
_MANY_TRIES = 4096  # numbers that are tried at once on all lines: few lines are tried more often


@frozen(slots=False, eq=False)
class Siblings:
    """Levels of one feature, or of several at once, that are compared in pairs within families.

    Parameters
    ----------
    offsets
        The offset of each level in the flat number of a cell.
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


@frozen(slots=False, eq=False)
class ParallelMoves:
    """Lines of one kind: products of differences of siblings, at every level of the other features.

    Parameters
    ----------
    compared
        Sets of siblings of different features; a line has two levels of each.
    offsets
        The offsets of the levels of all other features.

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
        """The signs with which the cells of a line change."""
        choices = itertools.product((0, 1), repeat=len(self.compared))
        return np.array([(-1) ** sum(choice) for choice in choices])

    def lines(self, chains: int, source: np.random.Generator) -> Places:
        """Flat cells of lines that share no cell, (chains, lines, cells of a line).

        They do not depend on the tables. Every pair of siblings has positive probability.
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
        """One line per chain, uniformly chosen, (chains, 1, cells of a line)."""
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
    table, so those of many rounds are drawn together.
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
    """The number of rounds to follow a number of lines, all lines of a random kind in each.

    >>> pair = Siblings(np.array([0, 4]), np.zeros(2, dtype=np.intp))
    >>> count_rounds([ParallelMoves((pair,), np.arange(4))], 100)  # four lines a round
    25
    """
    return math.ceil(steps * len(kinds) / sum(moves.count for moves in kinds))


def level_offsets(shape: Sequence[int], axes: Sequence[int]) -> Places:
    """The offset of each combination of levels of some axes in the flat number of a cell.

    >>> level_offsets((2, 3, 4), (0, 2)).tolist()
    [0, 1, 2, 3, 12, 13, 14, 15]
    """
    flat = np.arange(math.prod(shape)).reshape(shape)
    index = tuple(slice(None) if axis in axes else 0 for axis in range(len(shape)))
    return np.asarray(flat[index].ravel())


def window_length(reach: float) -> int:
    """The largest step along a line, if typical distances are `reach`."""
    return math.ceil(_WINDOW * max(reach, 1.0))


class ListedCells:
    """The log-likelihood of each count of each cell, in a list, because chains need it all the
    time.

    Parameters
    ----------
    law
        Log-likelihoods of counts in cells, up to a constant.
    cells
        How many cells a table has.
    span
        The least and the largest count from which lines are followed by the list; other values, and
        lists that would be too long, are computed on demand.
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
        The gain in log-likelihood over the current one.
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
        # The present place always gains enough, so the window cannot become empty.
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
    """The least depths at which no margin sees the differences of a table.

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


@frozen(slots=False, eq=False)
class EntryLikelihood:
    """Measured integers, each a weighted sum of the cells plus its own noise.

    Parameters
    ----------
    matrix
        The weights, (numbers, cells).
    noisy
        What was measured.
    laws, which
        The noise distributions, and the index of the distribution of each number.
    """

    matrix: Any = field(repr=False)
    noisy: Counts = field(repr=False)
    laws: tuple[NoiseLaw, ...] = field(repr=False)
    which: NDArray[np.intp] = field(repr=False)

    @cached_property
    def weights(self) -> "scipy.sparse.csr_array":
        """The weights, without the zeros: most numbers are measured of few cells."""
        weights = scipy.sparse.csr_array(self.matrix)
        weights.eliminate_zeros()
        return weights

    @cached_property
    def columns(self) -> Counts:
        """The weights of each cell, (cells, numbers)."""
        return np.ascontiguousarray(self.weights.T.toarray())

    def split(self) -> "tuple[EntryLikelihood, EntryLikelihood]":
        """Return the measurements of single cells, and those of sums of several."""
        single = np.diff(self.weights.indptr) <= 1
        return self._select(np.flatnonzero(single)), self._select(np.flatnonzero(~single))

    def _select(self, numbers: Places) -> "EntryLikelihood":
        return EntryLikelihood(
            self.weights[numbers], self.noisy[numbers], self.laws, self.which[numbers]
        )

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
    def cell_numbers(self) -> tuple[Places, Counts]:
        """For each cell the numbers that have a weight on it, and their weights, (cells, most
        numbers of a cell).

        Cells with fewer numbers than others have some with weight 0.
        """
        by_cell = self.weights.tocsc()
        counts = np.diff(by_cell.indptr)
        listed = np.arange(int(counts.max(initial=0)))
        is_listed = listed < counts[:, None]
        places = np.where(is_listed, by_cell.indptr[:-1, None] + listed, 0)
        numbers = by_cell.indices[places].astype(np.intp)
        return numbers, np.where(is_listed, by_cell.data[places], 0).astype(np.int64)

    def errors(self, tables: Counts) -> Counts:
        """The noise implied by these tables, one row per table."""
        return np.asarray(self.noisy - (self.weights @ tables.T).T)

    def evaluate(self, errors: Counts) -> Floats:
        """Log-likelihoods of such noise, up to a constant."""
        return np.asarray(self.logs(errors, np.arange(len(self.noisy))).sum(axis=-1))

    def of_cells(self, counts: Counts, cells: Places) -> Floats:
        """Log-likelihoods of counts in cells, each by itself, up to a constant; for numbers that
        were measured of one cell.
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

    def find_changes(self, cells: Places, signs: Counts) -> tuple[Places, Counts]:
        """Return the numbers that lines change, (lines, numbers), and what one step adds to each.

        Parameters
        ----------
        cells, signs
            The cells of each line, (lines, cells of a line), and how they change.
        """
        numbers, weights = self.cell_numbers
        if cells.shape[1] * numbers.shape[1] >= len(self.noisy):
            every = np.broadcast_to(np.arange(len(self.noisy)), (len(cells), len(self.noisy)))
            return every, np.einsum("c,ncm->nm", signs, self.columns[cells])
        seen = numbers[cells].reshape(len(cells), -1)
        steps = (weights[cells] * signs[:, None]).reshape(seen.shape)
        same = seen[:, :, None] == seen[:, None, :]
        # A number that several of the cells are in counts once, by the first of them.
        is_first = same.argmax(axis=2) == np.arange(seen.shape[1])
        return seen, np.where(is_first, (same * steps[:, None, :]).sum(axis=2), 0)


class FollowedSums:
    """Measured sums of cells while chains move, one line each, with the implied noise in each
    table.

    Parameters
    ----------
    likelihood
        What was measured.
    tables
        The current tables.
    """

    def __init__(self, likelihood: EntryLikelihood, tables: Counts) -> None:
        self._likelihood = likelihood
        self._errors = likelihood.errors(tables)
        self._rows = np.arange(len(tables))[:, None]

    def gain(self, cells: Places, signs: Counts) -> Gain:
        """The gain in log-likelihood of each table along a line, given by its cells and their
        signs.
        """
        self._numbers, self._along = self._likelihood.find_changes(cells, signs)
        numbers, along = self._numbers, self._along
        before = self._errors[self._rows, numbers]
        present = self._likelihood.logs(before, numbers)

        def gain(amounts: Counts, lines: Places) -> Floats:
            after = before[lines] - amounts[..., None] * along[lines]
            more = self._likelihood.logs(after, numbers[lines]) - present[lines]
            return np.asarray((more * (along[lines] != 0)).sum(axis=-1))

        return gain

    def move(self, amounts: Counts) -> None:
        """Follow the last requested lines by the given steps."""
        np.add.at(self._errors, (self._rows, self._numbers), -amounts[:, None] * self._along)


@frozen(slots=False, eq=False)
class Chains:
    """Chains on the tables with given totals, by slice sampling along lines.

    A step follows a line k times: it exchanges the levels of k pairs of records, or moves k records
    along an axis of no total. Which cells change does not depend on the table; k is drawn from the
    slice of those whose likelihood exceeds a random share of the present one (Neal, 2003). So the
    chains have the posterior under a uniform prior on the tables as their law.

    Where totals are not decomposable, such moves do not connect the tables without negative counts.
    Then the law is ``likelihood · exp(-price · v)``, v the sum of negative and impossible counts.
    It is positive on every table of whole numbers with the totals. Differences at the least open
    depths generate all of them: products of ``e_l - e_first`` along trees are a basis of all
    tables, a margin is one-to-one on those that it sees, and every other one is a sum of
    differences at least depths. So the chains reach every table, whatever the totals are, and the
    tables with v = 0 among theirs have the posterior.

    Parameters
    ----------
    shape
        The shape of the table.
    moves
        Lines that keep the totals.
    likelihood
        What was measured.
    reach
        A typical error of a cell: k is searched up to a few times as far.
    possible
        The cells that may hold records, flat, for chains that pass through other tables at a price;
        None for those that never do.
    """

    shape: tuple[int, ...]
    moves: tuple[ParallelMoves, ...]
    likelihood: EntryLikelihood
    reach: float
    possible: NDArray[np.bool_] | None = field(default=None, repr=False)

    @property
    def is_fixed(self) -> bool:
        """Whether only one table has the totals."""
        return not self.moves

    @cached_property
    def price(self) -> float:
        """The price of a negative count: higher if many cells may be negative at the same
        time.
        """
        return 0.5 + math.log(math.prod(self.shape)) / 2

    def run(
        self,
        tables: Counts,
        steps: int,
        source: np.random.Generator,
        *,
        flat: bool = False,
        keep: int = 0,
    ) -> tuple[Counts, Counts | None]:
        """Move every table; return the final tables, and `keep` possible tables of each chain on
        the way.

        Lines that share no cell are followed at the same time where cells were measured one by one:
        each of them is a step. None in place of the tables where some chain has held too few. With
        `flat`, every table is as likely as any other: for starts that are far apart.
        """
        current = tables.copy()
        count, size = tables.shape
        cells, sums = self.likelihood.split()
        followed = FollowedSums(sums, current) if len(sums.noisy) and not flat else None
        rounds = steps if followed is not None else count_rounds(self.moves, steps)
        law = self._list_cells(tables, None if flat else cells)
        excess = self._excess(current, np.broadcast_to(np.arange(size), current.shape)).sum(axis=1)
        kept = np.zeros((keep, count, size), dtype=np.int64)
        held = np.zeros(count, dtype=np.int64)
        every = max(1, rounds // keep) if keep else 0
        most = rounds * (_MOST_WAIT if keep else 1)
        drawn = drawn_lines(self.moves, most, count, source, at_once=followed is None)
        for places, signs in drawn:
            excess += self._move(current, places, signs, law, followed, source)
            if keep:
                # Only rounds at possible tables count: watched there, the chains are Markov chains
                # too.
                at = excess == 0
                held += at
                due = np.flatnonzero(at & (held % every == 0) & (held <= keep * every))
                kept[held[due] // every - 1, due] = current[due]
                if (held >= keep * every).all():
                    break
        return current, kept if (held >= keep * every).all() else None

    def _move(
        self,
        current: Counts,
        places: Places,
        signs: Counts,
        law: "ListedCells",
        followed: FollowedSums | None,
        source: np.random.Generator,
    ) -> Counts:
        """Change the cells of lines by k times their signs; return how much more of each table is
        impossible. With sums there is one line per table.

        The law of the cells is a product, so no line changes what another one gains.
        """
        chains = len(current)
        cells = places.reshape(-1, len(signs))
        before = np.take_along_axis(current, places.reshape(chains, -1), axis=1)
        before = before.reshape(cells.shape)
        gains = [law.gain(cells, before, signs)]
        if followed is not None:
            gains.append(followed.gain(cells, signs))

        def gain(amounts: Counts, lines: Places) -> Floats:
            first, *others = (each(amounts, lines) for each in gains)
            return sum(others, first)

        far = np.full(len(cells), _ANYWHERE)
        room = (-far, far)
        if self.possible is None:
            # So many records can leave the cells that lose some, one way and the other.
            room = (-before[:, signs > 0].min(axis=1), before[:, signs < 0].min(axis=1))
        amounts = sample_steps(gain, room, self.reach, source)
        if followed is not None:
            followed.move(amounts)
        after = before + amounts[:, None] * signs
        np.put_along_axis(current, places.reshape(chains, -1), after.reshape(chains, -1), axis=1)
        paid = self._excess(after, cells) - self._excess(before, cells)
        return np.asarray(paid.reshape(chains, -1).sum(axis=1))

    def _list_cells(self, tables: Counts, likelihood: EntryLikelihood | None) -> "ListedCells":
        """What counts are worth in single cells: likelihood and price."""

        def law(counts: Counts, cells: Counts) -> Floats:
            price: Floats = np.asarray(-self.price * self._excess(counts, cells))
            return price if likelihood is None else price + likelihood.of_cells(counts, cells)

        largest = int(tables.sum(axis=1).max())
        if self.possible is None:
            return ListedCells(law, tables.shape[1], (0, largest))
        # Hardly any count is much below 0 or above the number of records.
        span = (-_OVER, largest + _OVER)
        return ListedCells(law, tables.shape[1], span, window_length(self.reach))

    def _excess(self, counts: Counts, cells: Counts) -> Counts:
        """What is negative, or stands in an impossible cell."""
        if self.possible is None:
            return np.zeros_like(counts)
        return np.where(self.possible[cells], np.maximum(-counts, 0), np.abs(counts))


def difference_moves(
    chains: Sequence[Chain], differences: Iterable[View]
) -> tuple[ParallelMoves, ...]:
    """Return the lines of differences: two levels of each feature that one compares, which agree
    one depth above.

    Parameters
    ----------
    chains
        The depths of each feature.
    differences
        Which are compared, such as `open_differences`; those that no two levels have leave none.
    """
    shape = tuple(chain.leaves for chain in chains)
    every = []
    for view in differences:
        compared = []
        for axis in list_axes(view):
            family = chains[axis].find_leaf_ancestors(view[axis] - 1)
            compared.append(Siblings(level_offsets(shape, [axis]), np.asarray(family)))
        free_axes = [axis for axis in range(len(shape)) if not view[axis]]
        every.append(ParallelMoves(tuple(compared), level_offsets(shape, free_axes)))
    return tuple(moves for moves in every if moves.count)
