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

from semidp.errors import Refused
from semidp.inference.parallel_moves import (
    ListedCells,
    ParallelMoves,
    Places,
    Siblings,
    count_rounds,
    drawn_lines,
    level_offsets,
    sample_steps,
    window_length,
)
from semidp.promise.schema.margins import Chain, View, is_within_view, list_axes, minimal

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

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
        others = [axis for axis in range(len(self.shape)) if not view[axis]]
        return ParallelMoves(tuple(compared), level_offsets(self.shape, others))

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
