"""The posterior of the true counts: integer tables with the exact totals, weighted by the noise
likelihood.

A Markov chain moves through the tables that have the exact totals of a released table: by swaps of
records if these are decomposable, else as in `lattice_chains`. Answers are given only if many
chains from distant starts agree. `measured` provides the published measurements.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.inference.answers import cell_rows
from semidp.inference.lattice_chains import (
    Chains,
    ParallelMoves,
    Siblings,
    difference_moves,
    level_offsets,
    open_differences,
)
from semidp.inference.likelihoods import join_likelihoods, noisy_counts, possible_cells, unlike
from semidp.inference.measured import fitted_counts, measured_table
from semidp.promise.noise.randomness import Randomness, SystemRandomness, generator
from semidp.promise.schema.margins import View, list_axes, maximal, meet, trimmed_view
from semidp.promise.schema.schema import Schema
from semidp.promise.spaces.dataspace import RECORD, Dataspace
from semidp.publish.residual_mechanism import ResidualMechanism
from semidp.publish.results.published_table import PublishedTable
from semidp.publish.written_values import check_level

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

_CHAINS = 64
_MOST_CELLS = 4096
_MOST_FEATURES = 8
_MOST_LATTICE_CELLS = 512
_AT_A_PRICE = (
    "To reach every table with the exact totals, chains may pass through tables with negative or"
    " impossible counts. These are not counted."
)
_UNUSED = (
    "What {name!r} measured with {noise} noise is not used: the posterior is computed for Gaussian,"
    " lattice and Laplace noise in cells and for noise on residuals."
)
_LARGEST_R = 1.01  # of the potential scale reduction
_LEAST_SIZE = 1000  # effective draws of every mean
_LEAST_HALF = 2  # draws in half a chain, without which it has no variance


@frozen
class RecordSwap:
    """Two records that agree on some axes exchange their levels on others: it keeps every exact
    total.

    Parameters
    ----------
    exchanged
        The axes on which the records exchange their levels.
    shared
        The axes on which they must agree.
    """

    exchanged: tuple[int, ...]
    shared: tuple[int, ...]


def swaps(axes: int, margins: Iterable[Iterable[int]]) -> list[RecordSwap]:
    """Swaps that keep margins, each given by its axes: a Markov basis if the margins are
    decomposable (Dobra, 2003).

    Two records exchange B and agree on G. A margin M is kept if it lies in B or outside it, or
    if the records agree on its part in B or on its part outside.

    >>> [(swap.exchanged, swap.shared) for swap in swaps(2, [[0], [1]])]
    [((0,), ())]
    >>> [(swap.exchanged, swap.shared) for swap in swaps(3, [[0, 1], [1, 2]])]  # A and C given B
    [((0,), (1,))]
    """
    every = frozenset(range(axes))
    sets = [frozenset(margin) for margin in margins]
    choices: set[tuple[frozenset[int], frozenset[int]]] = set()
    for size in range(1, axes):
        for exchanged in map(frozenset, itertools.combinations(range(axes), size)):
            straddling = [margin for margin in sets if margin & exchanged and margin - exchanged]
            for inside in itertools.product((True, False), repeat=len(straddling)):
                shared: frozenset[int] = frozenset()
                for margin, within in zip(straddling, inside, strict=True):
                    shared |= margin & exchanged if within else margin - exchanged
                moved, left = exchanged - shared, every - exchanged - shared
                # Exchanging the others instead gives the same two records.
                if moved and left:
                    choices.add((min(moved, left, key=sorted), shared))
    # A swap that asks for more agreement than another of the same axes is part of that one.
    least = []
    for moved, shared in choices:
        weaker = [other for axes, other in choices if axes == moved and other < shared]
        if not weaker:
            least.append(RecordSwap(tuple(sorted(moved)), tuple(sorted(shared))))
    return sorted(least, key=lambda swap: (swap.exchanged, swap.shared))


def swap_moves(shape: Sequence[int], margins: Sequence[Sequence[int]]) -> tuple[ParallelMoves, ...]:
    """Return the lines that keep decomposable margins, each given by its axes: those of every swap,
    and of every axis that no margin names. Features of one level leave none.
    """

    def list_siblings(axes: Sequence[int]) -> Siblings:
        # all combinations of levels, in one family
        offsets = level_offsets(shape, axes)
        return Siblings(offsets, np.zeros(len(offsets), dtype=np.intp))

    every = []
    for swap in swaps(len(shape), margins):
        fixed = {*swap.exchanged, *swap.shared}
        free_axes = [axis for axis in range(len(shape)) if axis not in fixed]
        # Two records that agree on what they exchange, or on all else, would only trade places:
        # they differ in both.
        compared = (list_siblings(swap.exchanged), list_siblings(free_axes))
        every.append(ParallelMoves(compared, level_offsets(shape, swap.shared)))
    for moved in set(range(len(shape))).difference(*margins):
        offsets = level_offsets(shape, [axis for axis in range(len(shape)) if axis != moved])
        every.append(ParallelMoves((list_siblings([moved]),), offsets))
    return tuple(moves for moves in every if moves.count)


@frozen
class Mixing:
    """Whether chains agree.

    Parameters
    ----------
    reduction
        The largest potential scale reduction R of all cells, from halves of the chains (Gelman and
        Rubin, 1992): near 1 if the chains have forgotten their starts.
    size
        The smallest effective sample size of a cell, from the spread of the chains'
        means.
    steps
        How often each chain moved.
    """

    reduction: float
    size: float
    steps: int

    @property
    def is_mixed(self) -> bool:
        """Whether the chains have mixed, so answers may be given."""
        return self.reduction <= _LARGEST_R and self.size >= _LEAST_SIZE


def mixing(draws: NDArray[Any], steps: int) -> Mixing:
    """Compare the halves of chains; `draws` has shape (times, chains, cells).

    >>> source = np.random.default_rng(1)
    >>> mixing(source.normal(size=(200, 64, 3)), 200).is_mixed
    True
    >>> apart = source.normal(size=(200, 64, 3)) + np.arange(64)[:, None]
    >>> mixing(apart, 200).is_mixed
    False
    """
    half = len(draws) // 2
    if half < _LEAST_HALF:
        return Mixing(math.inf, 0.0, steps)
    parts = np.concatenate([draws[:half], draws[half : 2 * half]], axis=1).astype(np.float64)
    means = parts.mean(axis=0)
    within = parts.var(axis=0, ddof=1).mean(axis=0)
    between = means.var(axis=0, ddof=1)
    varied = within + between > 0
    if not varied.any():
        return Mixing(1.0, math.inf, steps)
    # A cell that never moves within chains and differs between them has not mixed at all.
    ratio = np.divide(between, within, out=np.full(within.shape, np.inf), where=within > 0)
    reduction = float(np.sqrt((half - 1) / half + ratio[varied]).max())
    # A mean of m independent draws has the variance V/m: m is V over the variance between chains,
    # times their number.
    variance = (within + between)[varied]
    sizes = parts.shape[1] * variance / np.maximum(between[varied], 1e-300)
    return Mixing(reduction, float(sizes.min()), steps)


@frozen(eq=False)
class Posterior:
    """The posterior of the counts of a table, given everything published about it.

    Parameters
    ----------
    table, noise, schema
        Which table, the law of its noise, its features and levels.
    mean, error, low, high, level
        For every cell the mean and standard deviation, and an interval with at least this
        probability.
    mixing
        The diagnostics of the chains.
    notes
        What a reader must know.
    """

    table: str
    noise: str
    schema: Schema
    mean: Floats = field(repr=False)
    error: Floats = field(repr=False)
    low: Floats = field(repr=False)
    high: Floats = field(repr=False)
    level: float
    mixing: Mixing
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The levels of each cell, its mean and the ends of its interval."""
        return cell_rows(self.schema, (self.mean, self.low, self.high))

    def to_json(self) -> dict[str, Any]:
        """Return the posterior as plain values."""
        names = [*self.schema.names, "mean", "low", "high"]
        return {
            "table": self.table,
            "noise": self.noise,
            "level": self.level,
            "prior": "uniform on the tables with the exact totals",
            "mixing": {
                "reduction": self.mixing.reduction,
                "size": self.mixing.size,
                "steps": self.mixing.steps,
            },
            "cells": [dict(zip(names, row, strict=True)) for row in self.rows],
            "notes": list(self.notes),
        }


def posterior(
    release: "ReleaseValue",
    table: str | None = None,
    *,
    level: float = 0.95,
    steps: int | None = None,
    randomness: Randomness | None = None,
) -> Posterior:
    """Return the posterior of the true counts of a released table, at no cost in privacy.

    The prior is uniform on the tables of nonnegative whole numbers with the exact totals. 64 chains
    start far apart and run until they agree; otherwise the answer is refused.

    Parameters
    ----------
    release
        A release with a table of counts.
    table
        Which table (default: the smallest).
    level
        The probability of the intervals.
    steps
        How often each chain moves (default: up to some hundred times the number of cells).
    randomness
        For the chains (default: the operating system).

    Examples
    --------
    >>> import semidp
    >>> people = {"sex": [*"ffm"] * 9, "vote": [*"yny"] * 9}
    >>> plan = semidp.Plan(
    ...     [semidp.publish.TableRequest(["sex", "vote"], semidp.Budget.gdp(1))], ["sex", "vote"]
    ... )
    >>> answer = posterior(semidp.run(plan, people))
    >>> bool((answer.low >= 0).all()), answer.mean.sum(axis=1).round(6).tolist()
    (True, [18.0, 9.0])
    """
    check_level(level, "the level")
    if release.scope.dataspace.kinds != (RECORD,):
        raise Refused("posteriors of linked members and units are not built: use intervals")
    published = _asked_table(release, table)
    start = fitted_counts(release, published.name)
    chains, noise, notes = build_chains(release, published)
    source = generator(SystemRandomness() if randomness is None else randomness)
    draws, state = run_chains(chains, start.ravel(), source, steps)
    if not state.is_mixed:
        raise Refused(
            f"the chains do not agree after {state.steps:,} steps (R = {state.reduction:.3f},"
            f" {state.size:.0f} effective draws): no posterior is given; ask for more steps, or for"
            " a smaller table"
        )
    flat = draws.reshape(-1, draws.shape[2])
    low, high = shortest_intervals(flat, level)
    shape = published.schema.shape
    return Posterior(
        published.name,
        noise,
        published.schema,
        flat.mean(axis=0).reshape(shape),
        flat.std(axis=0).reshape(shape),
        low.reshape(shape),
        high.reshape(shape),
        level,
        state,
        notes,
    )


def shortest_intervals(draws: Counts, level: float) -> tuple[Floats, Floats]:
    """For each column the shortest interval of whole numbers that holds this share of its draws.

    Of several as short the one with the most draws; of those the lowest. If a distribution is
    monotone, the interval begins or ends at its mode, which equal tails would cut off.

    >>> draws = np.array([[0, 3], [0, 4], [1, 5], [6, 5]])
    >>> [ends.tolist() for ends in shortest_intervals(draws, 0.75)]
    [[0.0, 4.0], [1.0, 5.0]]
    """
    needed = math.ceil(len(draws) * level - 1e-9)
    low, high = [], []
    for column in draws.T:
        values, counts = np.unique(column, return_counts=True)
        below = np.concatenate([[0], np.cumsum(counts)])
        # From each value on, the first one up to which there are enough draws.
        last = np.searchsorted(below, below[:-1] + needed)
        starts = np.flatnonzero(last <= len(values))
        ends = last[starts] - 1
        widths = values[ends] - values[starts]
        share = below[ends + 1] - below[starts]
        best = np.lexsort((starts, -share, widths))[0]
        low.append(values[starts[best]])
        high.append(values[ends[best]])
    return np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)


def _asked_table(release: "ReleaseValue", name: str | None) -> PublishedTable:
    """The table of a given name, or the smallest that has noise."""
    asked = measured_table(release, (), name)
    for table in release.tables:
        if table.name == asked.name:
            return table
    raise AssertionError("a measured table is published")


def build_chains(
    release: "ReleaseValue", published: PublishedTable
) -> tuple[Chains, str, tuple[str, ...]]:
    """Chains that reach every table with the exact totals, the name of the noise, and what a reader
    must know.
    """
    public = release.scope.dataspace
    schema = published.schema
    cells = schema.size
    if cells > _MOST_CELLS or len(schema.shape) > _MOST_FEATURES:
        raise Refused(
            f"the posterior is computed for at most {_MOST_CELLS:,} cells: ask for a coarser table"
        )
    errors = published.standard_errors[published.standard_errors > 0]
    if not errors.size:
        raise Refused(f"{published.name!r} is published exactly, and has no posterior")
    reach = float(np.median(errors))
    concerned = [reading for reading in noisy_counts(release) if reading.concerns(schema, public)]
    used = [reading for reading in concerned if reading.usable(schema)]
    if not used:
        raise Refused(unlike(concerned[0].mechanism))
    notes = [
        _UNUSED.format(name=reading.name, noise=reading.mechanism.name)
        for reading in concerned
        if reading not in used
    ]
    if len(used) > 1:
        notes.append(f"{len(used)} measurements with independent noise are used together.")
    noise = ", ".join(dict.fromkeys(reading.mechanism.name for reading in used))
    margins = table_margins(public, schema)
    flat = all(len(feature.names) == 1 for feature in schema.features)
    in_cells = not any(isinstance(reading.mechanism, ResidualMechanism) for reading in used)
    plain = flat and schema.possible is None and in_cells
    axes = [list(list_axes(margin)) for margin in margins]
    has_swaps = plain and _decomposable([frozenset(margin) for margin in axes])
    if not has_swaps and cells > _MOST_LATTICE_CELLS:
        raise Refused(
            "with totals that form a cycle, structural zeros, nested features or noise on residuals"
            f" the posterior is computed for at most {_MOST_LATTICE_CELLS} cells, and"
            f" {published.name!r} has {cells:,}"
        )
    likelihood = join_likelihoods(reading.entries(schema) for reading in used)
    if has_swaps:
        moves = swap_moves(schema.shape, axes)
        return Chains(schema.shape, moves, likelihood, reach), noise, tuple(notes)
    depths = tuple(chain.depth for chain in schema.grid.chains)
    moves = difference_moves(schema.grid.chains, open_differences(depths, margins))
    notes.append(_AT_A_PRICE)
    possible = possible_cells(public, schema)
    return Chains(schema.shape, moves, likelihood, reach, possible), noise, tuple(notes)


def table_margins(public: Dataspace, schema: Schema) -> list[View]:
    """The exact totals summed to the features of a table, at its depths, without those that others
    contain.
    """
    view = public.schema.view(schema.names)
    shared = [meet(total.view, view) for total in public.published_totals]
    return maximal(trimmed_view(each, view) for each in shared)


def run_chains(
    chains: Chains,
    start: Counts,
    source: np.random.Generator,
    steps: int | None = None,
) -> tuple[Counts, Mixing]:
    """Run chains from distant starts until they agree; return their draws and how well they
    agree.
    """
    cells = math.prod(chains.shape)
    if chains.is_fixed:
        return np.broadcast_to(start, (2, _CHAINS, cells)).copy(), Mixing(1.0, math.inf, 0)
    tables = np.broadcast_to(start, (_CHAINS, cells)).copy()
    # One half starts at the fit, the other where a walk without a likelihood has led.
    wandered, _ = chains.run(tables[_CHAINS // 2 :], 20 * cells + 200, source, flat=True)
    tables[_CHAINS // 2 :] = wandered
    length = 40 * cells + 2000 if steps is None else steps
    tries = 5 if steps is None else 1
    done = 0
    draws = tables[None]
    for _ in range(tries):
        # What came before is forgotten: as much again is kept.
        tables, _ = chains.run(tables, length if done == 0 else 0, source)
        tables, kept = chains.run(tables, length, source, keep=100)
        done += length
        # Chains that hardly hold a table without negative counts say nothing.
        state = Mixing(math.inf, 0.0, done)
        if kept is not None:
            draws = kept
            state = mixing(draws, done)
        if state.is_mixed:
            break
        length *= 2
    return draws, state


def _decomposable(margins: list[frozenset[int]]) -> bool:
    """Whether margins can be taken off one by one, what each shares with the others lying in one of
    them.

    >>> _decomposable([frozenset({0, 1}), frozenset({1, 2})])
    True
    >>> _decomposable([frozenset({0, 1}), frozenset({1, 2}), frozenset({0, 2})])
    False
    """
    left = list(margins)
    while len(left) > 1:
        for margin in left:
            other_margins = [other for other in left if other is not margin]
            shared = margin & frozenset().union(*other_margins)
            if any(shared <= other for other in other_margins):
                left = other_margins
                break
        else:
            return False
    return True
