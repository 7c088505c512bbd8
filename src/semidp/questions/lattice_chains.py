"""Chains on the tables with exact totals of any shape: circles, structural zeros, nested features,
noise on residuals.

Moves that keep totals in a circle do not connect the tables without negative counts. Here chains
may pass through tables with negative counts, or counts in impossible cells, at a price; only tables
without any are kept.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from semidp.core.margins import Chain, View, named, within

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

_FAR = 12.0  # standard deviations up to which the law of a number is listed
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
    return [
        view
        for view in unseen
        if not any(other != view and within(other, view) for other in unseen)
    ]


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


@dataclass(frozen=True, eq=False)
class LatticeChains:
    """Metropolis chains on all tables of whole numbers with given totals, negative counts at a
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
        The largest step is the largest power of 2 up to this.
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
        current = tables.copy()
        count = len(current)
        errors = self.likelihood.errors(current)
        logs = np.zeros(count) if flat else self.likelihood.of(errors)
        excess = self._excess(
            current, np.broadcast_to(np.arange(current.shape[1]), current.shape)
        ).sum(axis=1)
        kept = np.zeros((keep, count, current.shape[1]), dtype=np.int64)
        held = np.zeros(count, dtype=np.int64)
        every = max(1, steps // keep) if keep else 0
        powers = max(0, int(math.log2(max(self.reach, 1.0))))
        for _ in range(steps * (_MOST_WAIT if keep else 1)):
            view = self.differences[int(source.integers(len(self.differences)))]
            cells, signs = self._cells(view, count, source)
            change = signs * (2 ** source.integers(0, powers + 1, count))[:, None]
            before = np.take_along_axis(current, cells, axis=1)
            paid = (self._excess(before + change, cells) - self._excess(before, cells)).sum(axis=1)
            moved = errors - np.einsum("nc,ncm->nm", change, self.likelihood.columns[cells])
            new = np.zeros(count) if flat else self.likelihood.of(moved)
            accepted = np.log(source.random(count)) < new - logs - self.price * paid
            np.put_along_axis(
                current, cells, np.where(accepted[:, None], before + change, before), axis=1
            )
            errors[accepted] = moved[accepted]
            logs = np.where(accepted, new, logs)
            excess = np.where(accepted, excess + paid, excess)
            if keep:
                # Only steps at possible tables count: watched there, the chains are Markov chains
                # too.
                at = excess == 0
                held += at
                due = np.flatnonzero(at & (held % every == 0) & (held <= keep * every))
                kept[held[due] // every - 1, due] = current[due]
                if (held >= keep * every).all():
                    break
        if keep and not (held >= keep * every).all():
            return current, None
        return current, kept

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
