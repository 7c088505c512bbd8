"""Families of moves: every combination of patterns of agreement, a choice for each feature.

For records with signs s a residual has ``|H_d M_d m|² = s' (∘_i K_i) s``, the entrywise product of
the kernels of the features that d names. So the cost ``Σ_d τ_d |H_d M_d m|²`` of all combinations
at once is a product of small matrices with the table of the τ_d, one entry of the kernels after the
other. `bound_form` finds the largest value of such a form, or a number that it never exceeds. Which
patterns there are is in `described_moves`.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from semidp.promise.schema.margins import Floats, View
from semidp.promise.sensitivity.described_moves import (
    BallMove,
    FeatureMove,
    Pattern,
    Tree,
    patterns,
)

MOST_WORK = 320_000_000  # values of combinations times entries of kernels: some seconds
_MOST_HELD = 2**20  # combinations whose values are held at once
_MOST_OPTIONS = 6_000  # of features that one margin ties together
_MOST_KEYS = 2**20  # ways in which residuals may name the features
_UNIT = 2.0**-52


@frozen(eq=False)
class Factor:
    """Some features whose patterns are chosen together: one alone, or those that margins tie.

    Parameters
    ----------
    places
        Which features, by their places among those looked at.
    kernels
        For each of them an array: option, depth, and the entries of the kernel.
    """

    places: tuple[int, ...]
    kernels: tuple[Floats, ...] = field(repr=False)

    @property
    def options(self) -> int:
        """How many choices there are."""
        return len(self.kernels[0])

    def product(self, depths: Sequence[int]) -> Floats:
        """Return the product of the kernels at some depths, 0 for none: option, entry."""
        result = np.ones((self.options, self.kernels[0].shape[2]))
        for kernels, depth in zip(self.kernels, depths, strict=True):
            if depth:
                result = result * kernels[:, depth - 1]
        return result

    def names(self, views: Sequence[View]) -> list[View]:
        """Return the depths at which each residual names the features of the factor."""
        names = []
        for view in views:
            names.append(tuple(view[place] for place in self.places))
        return names


@frozen(slots=False, eq=False)
class Family:
    """Moves as combinations: records that appear (+1) and vanish (-1), and for each feature the
    patterns in which they may agree.

    Parameters
    ----------
    signs
        The signs of the records.
    factors
        The features, each in one of them.
    scale
        By what the square of a move is multiplied: a² where a move is a sum of a moves of these.
    kept_margins
        Whether every move keeps every margin; otherwise there are more moves than need be hidden.

    Examples
    --------
    >>> two = Tree(((2,),), 0)
    >>> family = Family.from_ball_move([two], BallMove(1), [])
    >>> family.most([(1,)], np.array([1.0]))[0]  # one record, two levels
    2.0
    """

    signs: NDArray[np.int64] = field(repr=False)
    factors: tuple[Factor, ...] = field(repr=False)
    scale: int = 1
    kept_margins: bool = True

    @classmethod
    def from_ball_move(
        cls,
        trees: Sequence[Tree],
        move: BallMove,
        margins: Sequence[View],
        first: int = 0,
        scale: int = 1,
    ) -> "Family | None":
        """Return the moves of the ball that keep the margins; None if a feature has too many
        patterns.

        A margin over several features is kept as a whole where its combinations are few, else
        feature by feature, which only adds moves.

        Parameters
        ----------
        trees
            The features; what is published of each alone is kept.
        move
            How many records there are.
        margins
            Further margins, as depths in the trees.
        first
            The depth from which on there are kernels.
        scale
            As for the family.
        """
        # a margin of one feature is kept by the patterns of that feature already
        tied = [margin for margin in margins if np.count_nonzero(margin) > 1]
        if tied and any(patterns(tree, move, first, True) is None for tree in trees):
            return cls._mark_relaxed(Family.from_ball_move(trees, move, [], first, scale))
        parts = _components(len(trees), tied)
        options: list[tuple[Pattern, ...]] = []
        for place, tree in enumerate(trees):
            apart = any(place in part and len(part) > 1 for part in parts)
            choices = patterns(tree, move, first, apart)
            if choices is None:
                return None
            options.append(choices)
        signs = np.array(move.signs)
        reduced = _most_alike(options)
        factors: list[Factor] = []
        for part in parts:
            inside = []
            for margin in tied:
                if any(margin[place] for place in part):
                    inside.append(margin)
            factors += _factors(part, options, inside, signs, reduced)
        return cls(signs, tuple(factors), scale, len(factors) == len(parts))

    @staticmethod
    def _mark_relaxed(family: "Family | None") -> "Family | None":
        """Mark a family that keeps joint margins only feature by feature, and so has more moves
        than need be hidden.
        """
        return None if family is None else evolve(family, kept_margins=False)

    @classmethod
    def exchanges(
        cls, trees: Sequence[Tree], moves: Sequence[FeatureMove], firsts: Sequence[int]
    ) -> "Family | None":
        """Return the exchanges of one kind, described feature by feature; None if there are too
        many. `firsts` has for each feature the depth from which on there are kernels.
        """
        factors = []
        for place, (tree, move, first) in enumerate(zip(trees, moves, firsts, strict=True)):
            options = patterns(tree, move, first)
            # without its shape a tree has fewer patterns, which cover all of its moves
            if options is None and tree.shape is not None:
                options = patterns(tree.free, move, first)
            if options is None:
                return None
            factors.append(Factor((place,), (_stack_kernels(options),)))
        return cls(np.array(moves[0].signs), tuple(factors))

    def times(self, square: int) -> "Family":
        """Return the family with every square multiplied by `square`: moves that are made several
        times in a row.

        >>> family = Family.from_ball_move([Tree(((2,),), 0)], BallMove(1), [])
        >>> family.times(9).most([(1,)], np.array([1.0]))[0]
        18.0
        """
        return evolve(self, scale=square * self.scale)

    @cached_property
    def _entries(self) -> tuple[NDArray[np.intp], Floats]:
        """Places in a kernel that must be multiplied out, and the weight of each in the sum ``s' K
        s``.
        """
        size = len(self.signs)
        rows, columns = np.triu_indices(size)
        # kernels are symmetric: half of the entries do, those off the diagonal twice
        weights = self.signs[rows] * self.signs[columns] * np.where(rows == columns, 1, 2)
        flat = rows * size + columns
        stacked = []
        for factor in self.factors:
            for kernels in factor.kernels:
                stacked.append(kernels[:, :, flat].reshape(-1, len(flat)))
        # entries that are equal in every kernel are added up once: those of a record with itself,
        # mostly
        _, chosen, group = np.unique(
            np.vstack(stacked), axis=1, return_index=True, return_inverse=True
        )
        total = np.zeros(len(chosen))
        np.add.at(total, group.ravel(), weights)
        kept = total != 0
        return flat[chosen[kept]], total[kept]

    @property
    def combinations(self) -> int:
        """How many combinations of options there are."""
        return math.prod(factor.options for factor in self.factors)

    @property
    def work(self) -> int:
        """How many values are computed to find the most costly combination."""
        return self.combinations * len(self._entries[0]) if self.combinations else 0

    def slack(self, views: Sequence[View], tau: Floats) -> float:
        """Return a bound on the rounding error of `most`: terms are at most τ, and each is summed
        once.
        """
        terms = len(self.signs) ** 2 * float(tau.sum())
        # one rounding for each operation that a term goes through
        steps = len(views) + 4 * len(self.factors) + len(self.signs) ** 2 + 16
        return self.scale * terms * steps * _UNIT

    def most(self, views: Sequence[View], tau: Floats) -> tuple[float, Floats]:
        """Return ``max Σ_d τ_d |H_d M_d m|²`` over the family, and the squares of that move.

        The views are depths in the features looked at. The value is that of floating point; it is
        off by at most `slack`.
        """
        if not self.combinations:
            return 0.0, np.zeros(len(views))
        table = _Arranged.from_family(self, views, tau)
        best, chosen = -math.inf, [0] * len(self.factors)
        for outer, values in table.values():
            place = int(values.argmax())
            value = float(values.flat[place])
            if value > best:
                best = value
                inner = np.unravel_index(place, values.shape)
                chosen = table.order(outer, [int(option) for option in inner])
        return best * self.scale, self.squares(views, chosen)

    def bound(self, view: View, floor: float = 0.0) -> float:
        """Return ``max |H_d M_d m|²`` of one residual, at least `floor`; an upper bound of it where
        the moves are too many to compare.

        The value is that of floating point; it is off by at most `slack`.
        """
        if not self.combinations:
            return floor
        entries, weights = self._entries
        sets = []
        for factor in self.factors:
            depths = [view[place] for place in factor.places]
            sets.append(np.unique(factor.product(depths)[:, entries], axis=0))
        return max(floor, self.scale * bound_form(sets, weights, floor / self.scale))

    def squares(self, views: Sequence[View], chosen: Sequence[int]) -> Floats:
        """Return ``|H_d M_d m|²`` of the move with chosen options, times the scale, for each
        view.
        """
        entries, weights = self._entries
        result = []
        for view in views:
            product = np.ones(len(entries))
            for factor, option in zip(self.factors, chosen, strict=True):
                for place, kernels in zip(factor.places, factor.kernels, strict=True):
                    if view[place]:
                        product = product * kernels[option, view[place] - 1, entries]
            result.append(float(product @ weights))
        return self.scale * np.array(result)

    def climb(
        self, views: Sequence[View], tau: Floats, generator: np.random.Generator, starts: int
    ) -> tuple[float, Floats]:
        """Return a costly move and its squares, by hill climbing: one feature after the other at
        its best, from many starts.

        What is found is a move of the family, so its cost is a lower bound of `most`.
        """
        table = _Arranged.from_family(self, views, tau)
        best, squares = -math.inf, np.zeros(len(views))
        for _ in range(starts):
            chosen = [int(generator.integers(factor.options)) for factor in self.factors]
            value, chosen = table.climb(chosen)
            if value > best:
                best, squares = value, self.squares(views, chosen)
        return best * self.scale, squares


@frozen(eq=False)
class _Arranged:
    """The residuals of a family as arrays for tensor products: their τ with an axis for each
    factor, and a matrix for each factor.

    A matrix has a row for each option, a column for each way in which residuals name the features
    of the factor, and a layer for each entry of the kernels.
    """

    values_of_tau: Floats = field(repr=False)
    matrices: list[Floats] = field(repr=False)
    weights: Floats = field(repr=False)
    sequence: list[int]
    outside: int

    @classmethod
    def from_family(cls, family: Family, views: Sequence[View], tau: Floats) -> "_Arranged":
        """Arrange the residuals for a family; the factor with most options comes last."""
        entries, weights = family._entries
        sizes = [factor.options for factor in family.factors]
        sequence = sorted(range(len(sizes)), key=sizes.__getitem__)
        matrices, positions, shape = [], [], []
        for number in sequence:
            factor = family.factors[number]
            names = factor.names(views)
            different = sorted(set(names))
            layers = [factor.product(depths)[:, entries] for depths in different]
            matrices.append(np.stack(layers, axis=1))
            positions.append([different.index(name) for name in names])
            shape.append(len(different))
        table = np.zeros(shape)
        np.add.at(table, tuple(np.array(position) for position in positions), tau)
        # the first factors are walked through one option at a time, so memory stays small
        outside, held = 0, math.prod(sizes)
        while held > _MOST_HELD and outside < len(sequence) - 1:
            held //= sizes[sequence[outside]]
            outside += 1
        return cls(table, matrices, weights, sequence, outside)

    def order(self, outer: Sequence[int], inner: Sequence[int]) -> list[int]:
        """Return options in the order of the family's factors."""
        chosen = [0] * len(self.sequence)
        for number, option in zip(self.sequence, [*outer, *inner], strict=True):
            chosen[number] = option
        return chosen

    def values(self) -> Iterator[tuple[tuple[int, ...], Floats]]:
        """Yield each choice of options of the first factors, with the costs of all choices of the
        other factors.
        """
        first, inner = self.matrices[: self.outside], self.matrices[self.outside :]
        for outer in itertools.product(*(range(len(matrix)) for matrix in first)):
            shape = tuple(len(matrix) for matrix in inner)
            total = np.zeros(shape)
            for layer, weight in enumerate(self.weights):
                part = self.values_of_tau
                for matrix, option in zip(first, outer, strict=True):
                    part = np.tensordot(matrix[option, :, layer], part, axes=(0, 0))
                for matrix in inner:
                    part = np.tensordot(part, matrix[:, :, layer], axes=(0, 1))
                total += weight * part
            yield outer, total

    def climb(self, options: list[int]) -> tuple[float, list[int]]:
        """Improve options, given in the order of the family, one factor at a time."""
        chosen = [options[number] for number in self.sequence]
        best = -math.inf
        while True:
            before = best
            for place, matrix in enumerate(self.matrices):
                beside = self._compute_column_coefficients(place, chosen)
                values = np.einsum("okl,kl,l->o", matrix, beside, self.weights)
                chosen[place] = int(values.argmax())
                best = float(values[chosen[place]])
            if best <= before * (1 + 1e-9) + 1e-12:
                return best, self.order((), chosen)

    def _compute_column_coefficients(self, free: int, chosen: Sequence[int]) -> Floats:
        """Coefficients of the columns of the factor `free` where all others have chosen options:
        column, layer.
        """
        layers = len(self.weights)
        part = np.broadcast_to(self.values_of_tau[..., None], (*self.values_of_tau.shape, layers))
        axis = 0
        for place, matrix in enumerate(self.matrices):
            if place == free:
                axis = 1
                continue
            rows = matrix[chosen[place]]
            moved = np.moveaxis(part, axis, 0)
            sides = (len(rows),) + (1,) * (moved.ndim - 2) + (layers,)
            part = (moved * rows.reshape(sides)).sum(axis=0)
        return np.asarray(part)


def fits(family: Family, views: Sequence[View], most: int = MOST_WORK) -> bool:
    """Whether finding the most costly move of a family takes at most `most` values."""
    keys = 1
    for factor in family.factors:
        keys *= len(set(factor.names(views)))
    return keys <= _MOST_KEYS and family.work <= most


def _stack_kernels(options: Sequence[Pattern]) -> Floats:
    """The kernels of patterns as an array: pattern, depth, entry."""
    if not options:
        return np.zeros((0, 1, 1))
    kernels = np.stack([pattern.kernels for pattern in options])
    return kernels.reshape(*kernels.shape[:2], -1)


def _components(features: int, margins: Sequence[View]) -> list[tuple[int, ...]]:
    """Groups of features that margins tie together, directly or through others."""
    group = list(range(features))
    for margin in margins:
        joined = {group[place] for place, depth in enumerate(margin) if depth}
        group = [min(joined) if number in joined else number for number in group]
    members: dict[int, list[int]] = {}
    for place in range(features):
        members.setdefault(group[place], []).append(place)
    return [tuple(places) for places in members.values()]


def _most_alike(options: Sequence[tuple[Pattern, ...]]) -> tuple[int, set[int]]:
    """Return the feature whose patterns fall into the fewest kinds, and one pattern of each kind.

    Records of the same sign may change places without changing a cost. So of one feature, and of
    one only, a pattern of each kind stands for all of that kind.
    """
    best, most_saved = -1, 0.0
    representatives: set[int] = set()
    for place, choices in enumerate(options):
        firsts: dict[object, int] = {}
        for number, pattern in enumerate(choices):
            firsts.setdefault(pattern.kind, number)
        saved = len(choices) / len(firsts) if choices else 0.0
        if saved > most_saved:
            best, most_saved = place, saved
            representatives = {*firsts.values()}
    return best, representatives


def _factors(
    part: tuple[int, ...],
    options: Sequence[tuple[Pattern, ...]],
    margins: Sequence[View],
    signs: NDArray[np.int64],
    reduced: tuple[int, set[int]],
) -> list[Factor]:
    """One factor for features that margins tie; one for each feature where the tied ones have too
    many options.
    """
    in_order, representatives = reduced
    numbers, stacked = [], []
    for place in part:
        every = sorted(representatives) if place == in_order else range(len(options[place]))
        numbers.append(np.array(every, dtype=np.intp))
        stacked.append(_stack_kernels(options[place]))
    rows = (
        _find_balanced_combinations(part, options, numbers, margins, signs)
        if len(part) > 1
        else numbers[:1]
    )
    if rows is None:
        # feature by feature there are more moves than the margins allow, which is safe
        alone = zip(part, stacked, numbers, strict=True)
        return [Factor((place,), (kernels[row],)) for place, kernels, row in alone]
    chosen = tuple(kernels[row] for kernels, row in zip(stacked, rows, strict=True))
    return [Factor(part, chosen)]


def _find_balanced_combinations(
    part: tuple[int, ...],
    options: Sequence[tuple[Pattern, ...]],
    numbers: Sequence[NDArray[np.intp]],
    margins: Sequence[View],
    signs: NDArray[np.int64],
) -> list[NDArray[np.intp]] | None:
    """Combinations of patterns that keep every margin, as an array of pattern numbers for each
    feature; None if there are too many.

    The records at the joint node of a record are those that have its node on every feature of the
    margin; their signs sum to zero.
    """
    rows = [np.zeros(1, dtype=np.intp)]
    for position, place in enumerate(part):
        if len(rows[0]) * len(numbers[position]) > 50 * _MOST_OPTIONS:
            return None
        repeats = len(numbers[position])
        longer = [np.repeat(row, repeats) for row in rows]
        longer.append(np.tile(numbers[position], len(rows[0])))
        kept = np.ones(len(longer[0]), dtype=bool)
        later = part[position + 1 :]
        for margin in margins:
            # a margin is looked at once its last feature is there
            if margin[place] and not any(margin[other] for other in later):
                same = _same_node(margin, part, options, longer[1:])
                kept &= ~((same @ signs).any(axis=1))
        # the first row is a placeholder, so there is one before the first feature
        rows = [row[kept] for row in longer]
    chosen = rows[1:]
    return chosen if len(chosen[0]) <= _MOST_OPTIONS else None


def _same_node(
    margin: View,
    part: tuple[int, ...],
    options: Sequence[tuple[Pattern, ...]],
    rows: Sequence[NDArray[np.intp]],
) -> NDArray[np.bool_]:
    """Whether two records share a node of a joint margin, for each combination of patterns:
    combination, record, record.
    """
    records = len(options[part[0]][0].same[0])
    same = np.ones((len(rows[0]), records, records), dtype=bool)
    # There are rows only for the features so far: later ones are not named by the margin.
    for row, place in zip(rows, part, strict=False):
        if margin[place]:
            nodes = np.stack([pattern.same[margin[place] - 1] for pattern in options[place]])
            same &= nodes[row]
    return same


_MOST_ROWS = 200_000  # products of vectors that are held, of one half of the features
_MOST_ENTRIES = 30_000_000  # of these
_MOST_WORK = 2_000_000_000  # multiplications: about a second
_CHUNK = 4_000_000


def bound_form(sets: Sequence[Floats], weights: Floats, floor: float = 0.0) -> float:
    """Return ``max Σ_j w_j Π_f k_fj`` over one vector k_f of each set, at least `floor`.

    The features are divided into two halves, and all products of one half are compared with all of
    the other. If these are too many, vectors are chosen feature by feature, the rest of each
    product is taken at its largest, and what cannot exceed `floor` is dropped: the result is then
    an upper bound.

    >>> pair = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> bound_form([pair, pair], np.array([3.0, 5.0]))
    5.0
    """
    if not len(weights) or not all(map(len, sets)):
        return floor
    halves: list[list[Floats]] = [[], []]
    sizes = [1, 1]
    for vectors in sorted(sets, key=len, reverse=True):
        smaller = int(sizes[1] < sizes[0])
        halves[smaller].append(vectors)
        sizes[smaller] *= len(vectors)
    first, second = (_multiply(half, len(weights)) for half in halves)
    if first is not None and second is not None:
        work = len(first) * len(second) * len(weights)
        if work <= _MOST_WORK:
            return max(floor, _largest_pair(first * weights, second))
    return _bound_branches(sorted(sets, key=len), weights, floor)


def _multiply(sets: Sequence[Floats], width: int) -> Floats | None:
    """All distinct products of one vector of each set; None if there are too many."""
    most = min(_MOST_ROWS, _MOST_ENTRIES // width)
    total = np.ones((1, width))
    for vectors in sets:
        if len(total) * len(vectors) > most:
            return None
        total = _unique((total[:, None] * vectors[None]).reshape(-1, width))
    return total


def _largest_pair(first: Floats, second: Floats) -> float:
    step = max(1, _CHUNK // len(second))
    starts = range(0, len(first), step)
    return max(float((first[start : start + step] @ second.T).max()) for start in starts)


def _bound_branches(sets: Sequence[Floats], weights: Floats, floor: float) -> float:
    width = len(weights)
    partial, least = np.ones((1, width)), math.inf
    for number, vectors in enumerate(sets):
        low, high = _ranges(sets[number + 1 :], width)
        kept, largest, count = [], floor, 0
        step = max(1, _CHUNK // (len(vectors) * width))
        for start in range(0, len(partial), step):
            longer = (partial[start : start + step, None] * vectors[None]).reshape(-1, width)
            upper = np.maximum(longer * (weights * low), longer * (weights * high)).sum(axis=1)
            largest = max(largest, float(upper.max()))
            open_branches = longer[upper > floor]
            count += len(open_branches)
            if count <= _MOST_ROWS:
                kept.append(open_branches)
        least = min(least, largest)
        if not count:
            return floor
        if count > _MOST_ROWS:
            return least
        partial = _unique(np.concatenate(kept))
    return least


def _ranges(sets: Sequence[Floats], width: int) -> tuple[Floats, Floats]:
    """The smallest and the largest product of one vector of each set, entry by entry."""
    low = high = np.ones(width)
    for vectors in sets:
        ends = [end * kernel for end in (low, high) for kernel in (vectors.min(0), vectors.max(0))]
        low, high = np.min(ends, axis=0), np.max(ends, axis=0)
    return low, high


def _unique(rows: Floats) -> Floats:
    """Rows that differ by more than their rounding errors."""
    _, first = np.unique(np.round(rows, 10), axis=0, return_index=True)
    return rows[first]
