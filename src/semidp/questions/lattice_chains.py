"""Chains on the tables with exact totals of any shape: circles, structural zeros, nested features,
noise on residuals.

Moves that keep totals in a circle do not connect the tables without negative counts. Here chains
may pass through tables with negative counts, or counts in impossible cells, at a price; only tables
without any are kept.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from semidp.core.margins import Chain, View, named, within
from semidp.errors import Refused

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

_FAR = 12.0  # standard deviations up to which the law of a number is listed
_WINDOW = 6.0  # typical distances in which a step is looked for
_ANYWHERE = 2**40  # further than any window
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
        if any(view) and not any(within(view, margin) for margin in margins):
            unseen.append(view)
    least = []
    for view in unseen:
        coarser = [other for other in unseen if other != view and within(other, view)]
        if not coarser:
            least.append(view)
    return least


def slice_steps(
    gain: Callable[[Counts], Floats],
    room: tuple[Counts, Counts],
    reach: float,
    source: np.random.Generator,
) -> Counts:
    """How far each chain moves along its line, by slice sampling on whole numbers (Neal, 2003).

    A window of a fixed length is laid over 0 at random. Numbers of it are tried at random until one
    gains more than the logarithm of a uniform number; what is not taken cuts the window on its
    side. The numbers that are taken have the law of the likelihood on the line.

    Parameters
    ----------
    gain
        By how much the log-likelihood exceeds the present one when each chain moves so far.
    room
        How far down and up each chain can go.
    reach
        A typical distance; the window is a few times as long.
    source
        Random numbers.

    Examples
    --------
    >>> source, place = np.random.default_rng(1), np.zeros(4000, dtype=np.int64)
    >>> for _ in range(20):
    ...     room = (-place, 9 - place)  # from 0 to 9, each half as likely as the one before
    ...     place += slice_steps(lambda k: -k * np.log(2), room, 3.0, source)
    >>> round(float((place == 0).mean()), 1), int(place.max())
    (0.5, 9)
    """
    count = len(room[0])
    length = math.ceil(_WINDOW * max(reach, 1.0))
    start = -source.integers(0, length + 1, count)
    low = np.maximum(room[0], start)
    high = np.minimum(room[1], start + length)
    level = np.log(source.random(count))
    taken = np.zeros(count, dtype=np.int64)
    open_chains = high > low
    while open_chains.any():
        tried = low + (source.random(count) * (high - low + 1)).astype(np.int64)
        tried = np.where(open_chains, tried, taken)
        # The present place always gains enough, so that the window cannot become empty.
        enough = (tried == 0) | (gain(tried) >= level)
        taken = np.where(open_chains & enough, tried, taken)
        open_chains &= ~enough
        low = np.where(open_chains & (tried < 0), tried + 1, low)
        high = np.where(open_chains & (tried > 0), tried - 1, high)
    return taken


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
    def listed(self) -> Floats:
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

    def errors(self, tables: Counts) -> Counts:
        """What the noise was if these were the tables, one row a table."""
        return np.asarray(self.noisy - tables @ self.columns)

    def of(self, errors: Counts) -> Floats:
        """Log-likelihoods of such noise, up to a constant."""
        return np.asarray(self.logs(errors, np.arange(len(self.noisy))).sum(axis=1))

    def logs(self, errors: Counts, numbers: NDArray[np.intp]) -> Floats:
        """Log-likelihoods of the noise of some of the measured numbers, each by itself."""
        law = self.which[numbers]
        last = self.listed.shape[1] - 1
        sizes = np.abs(errors)
        near = self.listed[law, np.minimum(sizes, last)]
        beyond = np.maximum(sizes - last, 0)
        slope = self.listed[law, last] - self.listed[law, last - 1]
        return np.asarray(near + slope * beyond)


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
    def fixed(self) -> bool:
        """Whether only one table has the totals."""
        return not self.differences

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

        None in place of those where some chain has held too few. With `flat` there is no
        likelihood.
        """
        state = self._start(tables, flat)
        count, cells = tables.shape
        kept = np.zeros((keep, count, cells), dtype=np.int64)
        held = np.zeros(count, dtype=np.int64)
        every = max(1, steps // keep) if keep else 0
        for _ in range(steps * (_MOST_WAIT if keep else 1)):
            self._step(state, source, flat)
            if keep:
                # Only steps at possible tables count: watched there, the chains are Markov chains
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
        logs = np.zeros(len(tables)) if flat else self.likelihood.of(errors)
        every_cell = np.broadcast_to(np.arange(tables.shape[1]), tables.shape)
        excess = self._excess(tables, every_cell).sum(axis=1)
        return _ChainState(tables.copy(), errors, logs, excess)

    def _step(self, state: "_ChainState", source: np.random.Generator, flat: bool) -> None:
        """Move every chain along a difference, as far as its slice says."""
        count = len(state.tables)
        view = self.differences[int(source.integers(len(self.differences)))]
        cells, signs = self._cells(view, count, source)
        before = np.take_along_axis(state.tables, cells, axis=1)
        held = self._excess(before, cells).sum(axis=1)
        # What one step along the line adds to each measured number.
        line = np.einsum("nc,ncm->nm", signs, self.likelihood.columns[cells])

        def paid(amounts: Counts) -> Counts:
            after = before + amounts[:, None] * signs
            return np.asarray(self._excess(after, cells).sum(axis=1) - held)

        def likelihoods(amounts: Counts) -> Floats:
            if flat:
                return state.logs
            return self.likelihood.of(state.errors - amounts[:, None] * line)

        def gain(amounts: Counts) -> Floats:
            return likelihoods(amounts) - state.logs - self.price * paid(amounts)

        far = np.where(signs[:, 0] != 0, _ANYWHERE, 0)
        amounts = slice_steps(gain, (-far, far), self.reach, source)
        state.excess = state.excess + paid(amounts)
        state.logs = likelihoods(amounts)
        state.errors = state.errors - amounts[:, None] * line
        after = before + amounts[:, None] * signs
        np.put_along_axis(state.tables, cells, after, axis=1)

    def _excess(self, counts: Counts, cells: Counts) -> Counts:
        """What is negative, or stands in an impossible cell."""
        return np.where(self.possible[cells], np.maximum(-counts, 0), np.abs(counts))

    def _cells(self, view: View, count: int, source: np.random.Generator) -> tuple[Counts, Counts]:
        """Flat cells of a difference and their signs, one row a chain; signs of 0 where it
        vanishes.
        """
        firsts = [source.integers(0, size, count) for size in self.shape]
        seconds = {}
        real = np.ones(count, dtype=np.int64)
        for axis in named(view):
            start, size = self._families[axis, view[axis] - 1]
            place = (source.random(count) * size[firsts[axis]]).astype(np.int64)
            seconds[axis] = start[firsts[axis]] + place
            real &= seconds[axis] != firsts[axis]
        corners, signs = [], []
        for choice in itertools.product((0, 1), repeat=len(seconds)):
            corner = list(firsts)
            for axis, second in zip(seconds, choice, strict=True):
                if second:
                    corner[axis] = seconds[axis]
            corners.append(np.ravel_multi_index(tuple(corner), self.shape))
            signs.append((-1) ** sum(choice))
        return np.stack(corners, axis=1), np.array(signs) * real[:, None]

    @cached_property
    def _families(self) -> dict[tuple[int, int], tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """For each feature and depth, where the leaves below the ancestor of each leaf begin, and
        how many they are.
        """
        families = {}
        for axis, chain in enumerate(self.chains):
            for depth in range(chain.depth):
                ancestor = chain.above(depth)
                start = np.asarray(chain.starts[depth - 1] if depth else (0,))[ancestor]
                size = np.bincount(ancestor)[ancestor]
                families[axis, depth] = (start, size)
        return families
