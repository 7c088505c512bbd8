"""Scores of an attacker: a score is a name and a function that gives each output one number.

Any score gives a valid attack; good ones only make it stronger. `attack` decides which of them to
use, and at which threshold, on outputs that are not counted. Noise may hide the size of a number
and still reveal the table by its digits: by a value that only one table can give, by a grid that
starts elsewhere, by the last bits of a float.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.assess.pairs import Pair

Floats = NDArray[np.float64]

GRID = 2.0**-20
"""Distances of real-valued outputs are read in multiples of this; their lower digits are compared
below."""

MODULI = (2, 3, 5, 7, 11, 13)
"""Noise in multiples of one of these, or of their multiples, is detected."""

_MOST_CELLS = 16  # that learned scores look at one by one
_RIDGE = 1e-6  # of the number of outputs: enough for features that are multiples of each other
# of the logistic regression: at most so many, until the mean likelihood gains no more
_STEPS, _GAIN = 30, 1e-8


class Batch:
    """Outputs y relative to the pair (x, x'): differences and distances, computed once for all
    scores.

    Outputs run along the last axis, so sums over cells are sums of long rows.

    >>> Batch(Pair([2, 0], [1, 1]), np.array([[2, 0], [1, 1]])).distances[1].tolist()
    [[2.0, 0.0], [1.4142135623730951, 0.0], [1.0, 0.0]]
    """

    def __init__(self, pair: Pair, outputs: NDArray[np.generic]) -> None:
        self.outputs = np.ascontiguousarray(np.moveaxis(outputs, 0, -1))
        # Whole numbers stay whole, so remainders and equalities are exact.
        y = self.outputs
        if y.dtype.kind == "f":
            y = np.rint(y / GRID) * GRID
        from_first = y - pair.first[..., None]
        self.exact = (from_first, y - pair.second[..., None])
        self.pair = pair

    @property
    def raw_outputs(self) -> NDArray[Any]:
        """The outputs in the units that they came in, digit by digit: the unit of a pair is a power
        of two.
        """
        unit = self.pair.unit
        return self.outputs if unit == 1.0 else self.outputs * unit

    @cached_property
    def differences(self) -> tuple[Floats, Floats]:
        """The outputs less the first table, and less the second."""
        one, other = self.exact
        return one.astype(np.float64), other.astype(np.float64)

    @cached_property
    def distances(self) -> tuple[Floats, Floats]:
        """A row for each of `norms`: the distances to the first table, and to the second."""
        one, other = map(_distances, self.differences)
        return one, other

    def residues(self, cells: NDArray[np.intp], modulus: int) -> Floats:
        """Return ``cos 2π(y - x')/k - cos 2π(y - x)/k`` for some cells: large where y - x' is a
        multiple of k.

        >>> pair = Pair([2, 0], [1, 1])
        >>> Batch(pair, np.array([[2, 0], [1, 1]])).residues(np.array([0]), 2).tolist()
        [[-2.0, 2.0]]
        """
        move = self.pair.move.ravel()[cells, None]
        turn = np.pi / modulus * move
        from_first, _ = self.exact
        by_cell = from_first.reshape(-1, from_first.shape[-1])
        remainders = np.mod(by_cell[cells], modulus)

        def agreement(remainders: NDArray[Any]) -> Floats:
            # cos(a - 2t) - cos(a) = 2 sin(t) sin(a - t)
            angle = 2 * np.pi / modulus * remainders
            values = 2 * np.sin(turn) * np.sin(angle - turn)
            # Rounded, so the same residue gives the same number, whatever the batch.
            return np.asarray(values.round(9))

        if remainders.dtype.kind == "f":
            return agreement(remainders)
        # Whole numbers have few remainders: compute each once and look it up.
        by_remainder = agreement(np.arange(modulus))
        return np.take_along_axis(by_remainder, remainders.astype(np.intp), axis=1)


@frozen
class Score:
    """A name, and a function that gives each output of a batch one number.

    A score with a `handicap` is chosen only if it promises that many standard deviations more
    than others.
    """

    name: str
    of: Callable[[Batch], Floats] = field(repr=False)
    handicap: float = 0.0

    def __call__(self, batch: Batch) -> Floats:
        """Return a number for each output."""
        return self.of(batch)


def select_cells(pair: Pair) -> NDArray[np.intp]:
    """Return the cells that learned scores look at one by one: those that the move changes most,
    then others.

    >>> select_cells(Pair([2, 0, 7], [1, 3, 7])).tolist()
    [1, 0, 2]
    """
    sizes = np.abs(pair.move).ravel()
    return np.argsort(-sizes, kind="stable")[:_MOST_CELLS]


def norms(pair: Pair) -> tuple[str, ...]:
    """Return the names of the distances of a batch.

    >>> norms(Pair([1, 0], [0, 1]))
    ('l1', 'l2', 'l∞')
    """
    axes = pair.first.ndim
    if axes < 2:
        return ("l1", "l2", "l∞")
    lines = [f"line (axis {axis + 1})" for axis in range(axes)]
    return ("l1", "l2", "l∞", *lines, "longest line")


def signed_scores(pair: Pair) -> tuple[Score, ...]:
    """Return scores of all cells together that are large where an output looks like the second
    table.

    The projection on the move is sufficient for Gaussian noise. For noise of density
    ``∝ exp(-‖v‖)`` it is the difference of the distances ‖y - x‖ - ‖y - x'‖: in l1, l2, l∞, and the
    largest l1 of a line of the table, which is the K-norm of small tables.

    >>> pair = Pair([2, 0], [1, 1])
    >>> [
    ...     (score.name, score(Batch(pair, np.array([[1, 1]]))).round(3).tolist())
    ...     for score in signed_scores(pair)
    ... ][:2]
    [('projection on the move', [0.707]), ('l1 distances', [2.0])]
    """
    move = pair.direction

    def projection(batch: Batch) -> Floats:
        from_first, from_second = batch.differences
        doubled = (from_first + from_second).reshape(len(move), -1)
        return np.asarray(move @ doubled / 2)

    def logs(batch: Batch) -> Floats:
        from_first, from_second = batch.distances
        return np.asarray(np.log1p(from_first[1]) - np.log1p(from_second[1]))

    def nearer(row: int) -> Callable[[Batch], Floats]:
        def compare_distances(batch: Batch) -> Floats:
            from_first, from_second = batch.distances
            return np.asarray(from_first[row] - from_second[row])

        return compare_distances

    distances = []
    for row, name in enumerate(norms(pair)):
        distances.append(Score(f"{name} distances", nearer(row)))
    return (Score("projection on the move", projection), *distances, Score("log distances", logs))


def residue_scores(pair: Pair) -> tuple[Score, ...]:
    """Return for each modulus how well all cells of an output agree with the second table, and not
    with the first.

    >>> pair = Pair([2, 0], [1, 1])
    >>> parity = residue_scores(pair)[0]
    >>> parity.name, parity(Batch(pair, np.array([[4, 2], [3, 5]]))).tolist()
    ('residues modulo 2', [-4.0, 4.0])
    """
    cells = np.flatnonzero(pair.move)

    def residues(modulus: int) -> Callable[[Batch], Floats]:
        return lambda batch: batch.residues(cells, modulus).sum(axis=0)

    useful = [modulus for modulus in MODULI if (pair.move % modulus).any()]
    return tuple(Score(f"residues modulo {modulus}", residues(modulus)) for modulus in useful)


def distance_scores(pair: Pair) -> tuple[Score, ...]:
    """Return closeness to each of the two tables: it finds noise that is concentrated too much at
    zero.
    """

    def near(which: int, row: int) -> Callable[[Batch], Floats]:
        return lambda batch: -batch.distances[which][row]

    scores = []
    for which, table in enumerate(("first", "second")):
        for row, name in enumerate(norms(pair)):
            text = f"{name} distance to the {table} table"
            scores.append(Score(text, near(which, row)))
    return tuple(scores)


@frozen
class Lesson:
    """A score to be learned: its features, one row each, and the combinations of them to use.

    It is a weighted sum of the rows that `combined` gives for features of mean 0 and variance 1.
    """

    name: str
    features: Callable[[Batch], Floats] = field(repr=False)
    combined: Callable[[Floats], Floats] = field(repr=False)

    def fit_score(self, first: Floats, second: Floats) -> Score:
        """Fit a logistic regression of "which table?" on features of outputs of the first and of
        the second table.
        """
        rows = np.hstack([first, second])
        centre = rows.mean(axis=1, keepdims=True)
        spread = np.maximum(rows.std(axis=1, keepdims=True), 1e-12)
        counts = [first.shape[1], second.shape[1]]
        answers = np.repeat([0.0, 1.0], counts)
        weights = logistic(self.combined((rows - centre) / spread), answers)

        def score(batch: Batch) -> Floats:
            standardised = (self.features(batch) - centre) / spread
            return np.asarray(weights @ self.combined(standardised))

        return Score(self.name, score)


def lessons(pair: Pair) -> tuple[Lesson, ...]:
    """Return the scores to learn: one of the signed scores and their products, and one of single
    cells.

    A cell of the move is seen as y, as |y - x| - |y - x'|, and by its parity.

    >>> pair = Pair([2, 0, 7], [1, 1, 7])
    >>> # The third cell stays
    >>> [lesson.features(Batch(pair, np.array([[1, 1, 5]]))).shape for lesson in lessons(pair)]
    [(5, 1), (6, 1)]
    """
    scores = signed_scores(pair)
    cells = select_cells(pair)[: np.count_nonzero(pair.move)]

    def stack_scores(batch: Batch) -> Floats:
        return np.vstack([score(batch) for score in scores])

    def single(batch: Batch) -> Floats:
        one, other = (_by_cell(table)[cells] for table in batch.differences)
        nearness = np.abs(one) - np.abs(other)
        return np.vstack([one + other, nearness, batch.residues(cells, 2)])

    of_scores = Lesson("learned score", stack_scores, _products)
    return of_scores, Lesson("learned score of cells", single, _add_constant)


def logistic(design: Floats, answers: Floats) -> Floats:
    """Return the weights of a logistic regression on the rows of `design`, by Newton's method with
    a slight ridge.

    >>> weights = logistic(np.array([[1.0, 1, 1, 1], [0, 1, 2, 3]]), np.array([0.0, 1, 0, 1]))
    >>> bool(weights[1] > 0)
    True
    """
    from scipy.linalg import solve
    from scipy.special import expit

    weights = np.zeros(len(design))
    outputs = design.shape[1]
    ridge = _RIDGE * outputs * np.eye(len(weights))
    for _ in range(_STEPS):
        guess = expit(weights @ design)
        curvature = (design * (guess * (1 - guess))) @ design.T + ridge
        slope = design @ (answers - guess) - ridge @ weights
        step = solve(curvature, slope, assume_a="pos")
        # Separable outputs have no finite maximum: a step is at most 10 in any weight.
        longest = max(float(np.abs(step).max()), 1e-12)
        weights += step * min(1.0, 10.0 / longest)
        if step @ slope < _GAIN * outputs:
            break
    return weights


def _by_cell(tables: NDArray[Any]) -> NDArray[Any]:
    """Tables with outputs along the last axis: one row per cell."""
    return tables.reshape(-1, tables.shape[-1])


def _add_constant(rows: Floats) -> Floats:
    constant = np.ones((1, rows.shape[1]))
    return np.vstack([constant, rows])


def _products(rows: Floats) -> Floats:
    """The rows and ``z_i |z_j|``: products that keep the sign of the first."""
    one, other = np.triu_indices(len(rows))
    products = rows[one] * np.abs(rows)[other]
    return np.vstack([_add_constant(rows), products])


def _distances(differences: Floats) -> Floats:
    size = np.abs(differences)
    cells = tuple(range(size.ndim - 1))
    l1 = size.sum(axis=cells)
    l2 = np.sqrt((size**2).sum(axis=cells))
    rows = [l1, l2, size.max(axis=cells)]
    if len(cells) > 1:
        lines = []
        for axis in cells:
            across = tuple(other for other in cells if other != axis)
            lines.append(size.sum(axis=across).max(axis=0))
        rows += [*lines, np.max(lines, axis=0)]
    return np.stack(rows)


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

Rows = NDArray[np.generic]  # one row per cell, a column an output
_Keys = Callable[[Rows], Rows]


@frozen(eq=False)
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
