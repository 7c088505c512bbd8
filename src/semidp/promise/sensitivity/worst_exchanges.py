"""Which exchange moves statistics of an outcome with exact levels far: the pair of an audit."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.promise.schema.margins import Counts, list_axes
from semidp.promise.sensitivity.exchange_moves import ALTERNATIVE, ExchangeMove, list_exchanges
from semidp.promise.sensitivity.outcome_moves import OutcomeMoves
from semidp.promise.spaces.dataspace import Dataspace
from semidp.promise.spaces.structure import Structure

_STARTS = 30  # exchanges of one kind that are drawn
_MOST_TRIED = 12  # values of one published level

Change = tuple[Counts, Counts]
"""The change of the histograms of some values, a row a group of each set, and these values."""

Measure = Callable[[Counts, Counts], NDArray[Any]]
"""A statistic of such histograms."""

Nodes = dict[str, dict[int, int]]
"""The published nodes of each letter by feature."""


@dataclass(frozen=True, eq=False)
class DrawnExchanges:
    """Exchanges that the published counts hold, drawn and improved.

    Parameters
    ----------
    moves
        The exchanges, with the values that each published level of the outcome allows.
    dataspace
        What is published.
    times
        How often an exchange is made.
    """

    moves: OutcomeMoves
    dataspace: Dataspace
    times: int = 1

    def find_change(self, measure: Measure) -> Change:
        """Return the change that moves a statistic as far as was found."""
        generator = np.random.default_rng(0)
        blocks = self.moves.blocks
        best, farthest = np.zeros((self._starts[-1], len(self._values)), dtype=np.int64), 0.0
        for move in list_exchanges(blocks, [axis for block in blocks for axis in block]):
            for _ in range(_STARTS):
                nodes = self._draw_nodes(move, generator)
                if nodes is None:
                    continue
                change = self._choose_values(move, nodes, measure, generator)
                square = _square(measure(change, self._values))
                if square > farthest:
                    best, farthest = change, square
        return self.times * best, self._values

    @cached_property
    def _cells(self) -> list[list[tuple[dict[int, int], int]]]:
        """For each block its cells with records: the node of each feature, and the most exchanges
        that they hold.
        """
        blocks = []
        for total in self.dataspace.published_totals:
            places = np.argwhere(total.counts).tolist()
            counts = total.counts[total.counts > 0] // self.times
            nodes = [dict(zip(list_axes(total.view), place, strict=True)) for place in places]
            blocks.append(list(zip(nodes, counts.tolist(), strict=True)))
        return blocks

    @cached_property
    def _allowed(self) -> Mapping[int, Counts]:
        """Some of the values that each published node of the outcome allows, its ends among
        them.
        """
        axis = self.moves.axis
        depth = next(block[axis] for block in self.moves.blocks if axis in block)
        nodes = np.flatnonzero(
            Structure.from_dataspace(self.dataspace).inhabited_nodes(axis, depth)
        )
        some = {}
        for node, values in zip(nodes.tolist(), self.moves.values, strict=True):
            places = np.linspace(0, len(values) - 1, min(len(values), _MOST_TRIED)).astype(int)
            some[node] = np.array([values[place] for place in places.tolist()])
        return some

    @cached_property
    def _values(self) -> Counts:
        return np.unique(np.concatenate([*self._allowed.values()]))

    @cached_property
    def _starts(self) -> list[int]:
        """The first row of each set of groups, and the number of all rows."""
        chains = self.dataspace.schema.grid.chains
        starts = [0]
        for group in self.moves.sets:
            sizes = [chains[axis].size(depth) for axis, depth in group.items()]
            starts.append(starts[-1] + int(np.prod(sizes, dtype=np.int64)))
        return starts

    def _draw_nodes(self, move: ExchangeMove, generator: np.random.Generator) -> Nodes | None:
        """Nodes of all letters that keep the rules; None where the draw led nowhere."""
        placed: Nodes = {letter: {} for letter in move.letters}
        for cells in self._cells:
            held = Counter[int]()
            for letter, nodes in placed.items():
                fitting = []
                for number, (cell, count) in enumerate(cells):
                    free = letter == ALTERNATIVE or held[number] < count
                    if free and _keeps_rules(move, placed, letter, cell):
                        fitting.append(number)
                if not fitting:
                    return None
                chosen = int(generator.choice(fitting))
                held[chosen] += letter != ALTERNATIVE
                nodes.update(cells[chosen][0])
        return placed

    def _rows(self, nodes: Mapping[int, int]) -> list[int]:
        """The rows of the groups of one record, one of each set."""
        chains = self.dataspace.schema.grid.chains
        published = {axis: depth for block in self.moves.blocks for axis, depth in block.items()}
        rows = []
        for start, group in zip(self._starts, self.moves.sets, strict=False):
            row = 0
            for axis, depth in group.items():
                node = chains[axis].ancestor(published[axis], nodes[axis], depth)
                row = row * chains[axis].size(depth) + node
            rows.append(start + row)
        return rows

    def _choose_values(
        self,
        move: ExchangeMove,
        nodes: Nodes,
        measure: Measure,
        generator: np.random.Generator,
    ) -> Counts:
        """Improve the values of the letters one by one; return the change of the histograms."""
        axis = self.moves.axis
        entries = []
        for record in move.records:
            for sign, letters in ((-1, record.before), (1, record.after)):
                by_axis = dict(zip(move.axes, letters, strict=True))
                rows = self._rows({k: nodes[letter][k] for k, letter in by_axis.items()})
                entries.append((sign, by_axis[axis], rows))

        def change_of(columns: Mapping[str, int]) -> Counts:
            change = np.zeros((self._starts[-1], len(self._values)), dtype=np.int64)
            for sign, letter, rows in entries:
                change[rows, columns[letter]] += sign
            return change

        allowed = {
            letter: np.searchsorted(self._values, self._allowed[place[axis]]).tolist()
            for letter, place in nodes.items()
        }
        chosen = {letter: int(generator.choice(each)) for letter, each in allowed.items()}
        farthest, improved = _square(measure(change_of(chosen), self._values)), True
        while improved:
            improved = False
            for letter, each in allowed.items():
                for column in each:
                    other = {**chosen, letter: column}
                    square = _square(measure(change_of(other), self._values))
                    if square > farthest:
                        chosen, farthest, improved = other, square, True
        return change_of(chosen)


def _keeps_rules(move: ExchangeMove, placed: Nodes, letter: str, cell: Mapping[int, int]) -> bool:
    """Whether a letter may have the nodes of a cell next to the letters that were placed."""
    for rule in move.rules:
        if rule.axis in cell and letter in rule.letters:
            other = rule.letters[rule.letters[0] == letter]
            at = placed[other].get(rule.axis)
            if at is not None and (at == cell[rule.axis]) != rule.equal:
                return False
    return True


def _square(vector: NDArray[Any]) -> float:
    return float(np.square(vector.astype(np.float64)).sum())
