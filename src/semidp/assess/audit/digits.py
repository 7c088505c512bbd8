"""Which values occur, and with which digits: what an attacker learns from the numbers as they were
printed.

Noise may hide how large a number is and betray the table all the same: by a value that only one
table can give, by a grid that starts elsewhere, by the last bits of a float. Each score here is
learned from outputs that are not counted.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from semidp.assess.audit.scores import Batch, Floats, Score, select_cells

GRIDS = (1.0, 0.5, 0.25, 0.1, 0.05, 0.01, 0.005, 0.001, 1e-4, 1e-5, 2.0**-4, 2.0**-8)
"""Real outputs are divided by each of these, and by the least distance of two of them, and
remainders compared."""

_BINS = 16  # of a remainder
_BYTES = 6  # of the binary digits of a float, the last ones first
_DIGITS = 53  # binary digits of a float
_ZERO = 1100  # stands for the lowest digit of 0, which has none: beyond that of any float
_SIZES = 32  # ranges of sizes, equally frequent
_ROUNDING = 1e-9  # of the spread of outputs: a smaller distance is one of rounding, and no grid
# the luckiest of many scores without a leak promises so much more than it keeps, about
_HANDICAP = 2.0
_NEAREST = 1 << 14  # outputs among which the least distance is sought

Rows = NDArray[np.generic]  # a row a cell, a column an output
_Keys = Callable[[Rows], Rows]


@dataclass(frozen=True)
class _Frequencies:
    """For each cell the keys that occurred at least twice, in order, and the log ratios of their
    frequencies.
    """

    keys: tuple[Rows, ...]
    losses: tuple[Floats, ...]

    @classmethod
    def from_rows(cls, first: Rows, second: Rows) -> "_Frequencies":
        """Count keys under the first and the second table; one more of each keeps ratios finite.

        >>> frequencies = _Frequencies.from_rows(np.array([[1, 1, 1, 2]]), np.array([[2, 2, 2, 3]]))
        >>> frequencies.keys[0].tolist(), frequencies.losses[0].round(2).tolist()
        ([1, 2], [-1.39, 0.69])
        """
        keys, losses = [], []
        for one, other in zip(first, second, strict=True):
            distinct, where = np.unique(np.concatenate([one, other]), return_inverse=True)
            where_first, where_second = np.split(where, [len(one)])
            first_counts = np.bincount(where_first, minlength=len(distinct))
            second_counts = np.bincount(where_second, minlength=len(distinct))
            often = first_counts + second_counts >= 2
            keys.append(distinct[often])
            ratios = (second_counts[often] + 1) / (first_counts[often] + 1)
            losses.append(np.log(ratios))
        return cls(tuple(keys), tuple(losses))

    def score(self, rows: Rows) -> Floats:
        """Return the sum of the log ratios of each output; a key that was not seen counts 0."""
        total = np.zeros(rows.shape[1])
        for row, keys, losses in zip(rows, self.keys, self.losses, strict=True):
            if keys.size:
                last = len(keys) - 1
                place = np.minimum(np.searchsorted(keys, row), last)
                total += np.where(keys[place] == row, losses[place], 0.0)
        return total


def digit_scores(first: Rows, second: Rows) -> tuple[Score, ...]:
    """Return scores learned from outputs of the first and of the second table: by values,
    remainders and bits.

    >>> words = np.random.default_rng(1)
    >>> one, other = (
    ...     words.normal(0, 1, (1, 2000)).round(2),
    ...     words.normal(0, 1, (1, 2000)).round(2) + 0.005,
    ... )
    >>> [score.name for score in digit_scores(one, other)][:3]
    ['values that occur', 'remainders modulo 1', 'remainders modulo 0.5']
    """
    if not first.shape[0]:
        return ()
    scores = [_learn_score("values that occur", _same, first, second)]
    if first.dtype.kind == "f":
        grids = [(f"remainders modulo {grid:g}", grid) for grid in GRIDS]
        for name, grid in _grids(first, second):
            grids.append((f"remainders modulo the grid of the {name} table", grid))
        kinds = [(name, _remainders(grid)) for name, grid in grids]
        for place in range(_BYTES):
            kinds.append((f"binary digits, byte {place + 1} from the last", _byte(place)))
        kinds.append(("the lowest binary digit", lowest_digits))
        kinds.append(("the lowest binary digit and the size", _digits_and_sizes(first, second)))
        scores += [_learn_score(name, keys, first, second, _HANDICAP) for name, keys in kinds]
    return tuple(scores)


def _learn_score(name: str, keys: _Keys, first: Rows, second: Rows, handicap: float = 0.0) -> Score:
    frequencies = _Frequencies.from_rows(keys(first), keys(second))
    return Score(name, lambda batch: frequencies.score(keys(select_outputs(batch))), handicap)


def select_outputs(batch: Batch) -> Rows:
    """Return the outputs in the cells that are looked at, as they were given."""
    outputs = batch.raw_outputs
    by_cell = outputs.reshape(-1, outputs.shape[-1])
    return by_cell[select_cells(batch.pair)]


def _same(rows: Rows) -> Rows:
    return rows


def _remainders(grid: float) -> _Keys:
    """Remainders in bins, of which the first lies around 0: a multiple that rounding made a little
    less is in it.
    """

    def keys(rows: Rows) -> Rows:
        turns = rows.astype(np.float64) / grid
        fractions = turns - np.floor(turns)
        return np.asarray(np.rint(fractions * _BINS) % _BINS)

    return keys


def _byte(place: int) -> _Keys:
    def keys(rows: Rows) -> Rows:
        bits = np.ascontiguousarray(rows, dtype=np.float64).view(np.uint64)
        shifted = bits >> np.uint64(8 * place)
        return np.asarray(shifted & np.uint64(255))

    return keys


def lowest_digits(rows: Rows) -> Rows:
    """Return the place e of the lowest binary digit: a value is an odd multiple of 2^e.

    A sum in floating point has no digits below those of its parts (Mironov 2012). So small values
    of 0 + noise have digits that 1 + noise never has.

    >>> lowest_digits(np.array([[0.75, 6.0, 0.0]])).tolist()
    [[-2, 1, 1100]]
    """
    mantissas, exponents = np.frexp(rows.astype(np.float64))
    whole = np.abs(np.ldexp(mantissas, _DIGITS)).astype(np.int64)
    lowest = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    return np.where(whole == 0, _ZERO, exponents - _DIGITS + lowest)


def _digits_and_sizes(first: Rows, second: Rows) -> _Keys:
    """The same within ranges of sizes: which digits are possible depends on the size of the noise.

    The ranges of each cell are learned from the outputs of both tables.
    """
    levels = np.arange(1, _SIZES) / _SIZES
    edges = [np.quantile(row, levels) for row in np.hstack([first, second])]

    def keys(rows: Rows) -> Rows:
        sizes = [np.searchsorted(edge, row) for edge, row in zip(edges, rows, strict=True)]
        return np.asarray(lowest_digits(rows) * _SIZES + np.stack(sizes))

    return keys


def _grids(first: Rows, second: Rows) -> list[tuple[str, float]]:
    """The least distance of two outputs of each table, where it is more than rounding."""
    grids = []
    for name, rows in (("first", first), ("second", second)):
        gaps = []
        for row in rows.astype(np.float64):
            values = np.unique(row[:_NEAREST])
            apart = np.diff(values)
            spread = values[-1] - values[0]
            apart = apart[apart > _ROUNDING * spread]
            gaps.append(float(apart.min(initial=np.inf)))
        if np.isfinite(min(gaps)):
            grids.append((name, min(gaps)))
    return grids
