"""What a stratum looks like after swapping: the exact laws of its table and of one of its cells.

Within a stratum every record is chosen with the swap rate, independently, and the chosen exchange
the values of the features that are swapped over. Small strata are listed, in fractions; a cell of a
stratum of any size has its law in floats with a stated error. What follows for privacy is in
`swapping`.
"""

import itertools
import math
import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from fractions import Fraction
from functools import cache

import attrs
import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike, NDArray

from semidp.assess.distinguishing import sum_masses
from semidp.errors import InputError
from semidp.promise.exact import Number, exact
from semidp.promise.tradeoff.function import ROUNDOFF, Floats

RECORDS = 3
"""How many records change together under the totals that swapping keeps: a person and at most two
others."""

_MOST_TABLES = 120  # of a stratum that are listed
_REACH = 7.5  # standard deviations that are kept of a law

Grid = tuple[tuple[int, ...], ...]
"""A table of a stratum: one row per held value, one column per swapped value."""

Integers = NDArray[np.int64]


class SwapRule(StrEnum):
    """How the chosen records exchange their values.

    ``shuffle``: by any permutation, each as likely as any other. ``derange``: by a permutation that
    leaves no record its own value's place, and nobody is chosen alone (the Permutation Swapping
    Algorithm of bailie2026refreshment).
    """

    shuffle = "shuffle"
    derange = "derange"

    @classmethod
    def _missing_(cls, value: object) -> None:
        rules = " or ".join(cls)
        raise InputError(f"chosen records exchange values by {rules}, not {str(value)[:40]!r}")


def _rate(value: Number) -> Fraction:
    rate = exact(value, "the swap rate")
    if not 0 < rate <= 1:
        raise InputError(f"the swap rate must lie above 0 and be at most 1, not {value}")
    return rate


@frozen
class Swap:
    """A way to swap: how likely a record is chosen, and how the chosen exchange their values.

    The rate is public and not computed from the data, and records are chosen independently of their
    values: targeted swapping, which prefers records at risk, is not covered.

    >>> Swap("0.1").published_epsilon(1000)
    9.105...
    >>> Swap(0)
    Traceback (most recent call last):
    semidp.errors.InputError: the swap rate must lie above 0 and be at most 1, not 0
    """

    rate: Fraction = attrs.field(converter=_rate)
    rule: SwapRule = attrs.field(converter=SwapRule, default=SwapRule.shuffle)

    def published_epsilon(self, largest: int) -> float:
        """Return the epsilon that Bailie, Gong and Meng prove for each record that differs (their
        Theorem 1).

        ``ln(b + 1) - ln o`` up to the rate ``√(b+1)/(√(b+1) + 1)`` and ``ln o`` beyond it, with o =
        p/(1 - p) and b the size of the largest stratum in which records differ. It is about
        derangements. Two datasets with the same totals differ in two records or more, so two
        persons who change places cost twice this.

        >>> # Their Table 2
        >>> (Swap("0.01").published_epsilon(264_331), Swap("0.5").published_epsilon(264_331))
        (17.08..., 12.48...)
        """
        if largest < 2:
            return 0.0
        if self.rate == 1:
            return math.inf
        odds = math.log(self.rate / (1 - self.rate))
        return max(math.log(largest + 1) - odds, odds)


def _totals(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted((int(value) for value in values if value), reverse=True))


@frozen
class Stratum:
    """The exact totals of one stratum: how many records have each held value, and each swapped one.

    >>> Stratum([6, 0, 6], [8, 4])
    Stratum(hold=(6, 6), over=(8, 4))
    >>> Stratum([6, 6], [5])
    Traceback (most recent call last):
    semidp.errors.InputError: the totals of a stratum count different numbers of records by held and
    by swapped values
    """

    hold: tuple[int, ...] = attrs.field(converter=_totals)
    over: tuple[int, ...] = attrs.field(converter=_totals)

    def __attrs_post_init__(self) -> None:
        if sum(self.hold) != sum(self.over):
            raise InputError(
                "the totals of a stratum count different numbers of records by held and by swapped"
                " values"
            )

    @classmethod
    def from_totals(cls, by_held: ArrayLike, by_swapped: ArrayLike) -> "list[Stratum]":
        """Return the strata of two tables of totals, one row per stratum; those without records are
        left out.

        >>> Stratum.from_totals([[2, 1], [0, 0]], [[1, 1, 1], [0, 0, 0]])
        [Stratum(hold=(2, 1), over=(1, 1, 1))]
        """
        held = np.asarray(by_held).tolist()
        swapped = np.asarray(by_swapped).tolist()
        strata = list(map(cls, held, swapped))
        return [stratum for stratum in strata if stratum.n]

    @property
    def n(self) -> int:
        """The number of records."""
        return sum(self.hold)

    @property
    def is_fixed(self) -> bool:
        """Whether the totals give the whole table, so swapping hides nothing."""
        return min(len(self.hold), len(self.over)) < 2

    @property
    def is_two_by_two(self) -> bool:
        """Whether one cell gives the whole table."""
        return len(self.hold) == len(self.over) == 2

    @property
    def longest_cycle(self) -> int:
        """How many records move at most where three change: three if both sides have three values,
        else two.
        """
        return min(len(self.hold), len(self.over), RECORDS)


def list_tables(stratum: Stratum) -> list[Grid] | None:
    """Return all tables with the totals of a stratum, None if they are too many to list.

    >>> len(list_tables(Stratum([1, 1, 1], [1, 1, 1])))
    6
    >>> list_tables(Stratum([500, 500], [400, 300, 300])) is None
    True
    """
    every = _tables(stratum.hold, stratum.over)
    listing = list(itertools.islice(every, _MOST_TABLES + 1))
    return listing if len(listing) <= _MOST_TABLES else None


def _tables(rows: tuple[int, ...], columns: tuple[int, ...]) -> Iterator[Grid]:
    """Iterate over the tables with these row and column totals."""
    if len(rows) == 1:
        yield (columns,)
        return
    for row in _rows(rows[0], columns):
        left = tuple(map(operator.sub, columns, row))
        for below in _tables(rows[1:], left):
            yield (row, *below)


def _rows(total: int, columns: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Iterate over the rows with this total that take no more from a column than it has."""
    if len(columns) == 1:
        if total <= columns[0]:
            yield (total,)
        return
    # what the other columns cannot take, the first one must
    least = max(total - sum(columns[1:]), 0)
    most = min(total, columns[0])
    for cell in range(least, most + 1):
        for tail in _rows(total - cell, columns[1:]):
            yield (cell, *tail)


def choice_weights(n: int, swap: Swap) -> list[Fraction]:
    """Return the weight of each number of records that are chosen and then permuted uniformly; they
    add up to 1.

    For ``shuffle`` it is the binomial law. A uniform derangement of k records is a signed mixture
    of uniform permutations of its subsets, ``d(k) D_S = Σ over T in S of (-1)^(k-|T|) |T|! U_T``
    (inclusion and exclusion of the fixed points), so ``derange`` has weights too, some of them
    below 0.

    >>> choice_weights(2, Swap("1/2")), choice_weights(2, Swap("1/2", "derange"))
    ([Fraction(1, 4), Fraction(1, 2), Fraction(1, 4)], [Fraction(1, 1), Fraction(-1, 1), Fraction(1,
    1)])
    """
    p = swap.rate
    chosen = []
    for k in range(n + 1):
        chosen.append(p**k * (1 - p) ** (n - k))
    if swap.rule is SwapRule.shuffle:
        return [math.comb(n, k) * chance for k, chance in enumerate(chosen)]
    # nobody is chosen alone: the choice is made again
    alone = n * chosen[1] if n else Fraction(0)
    weights = []
    for t in range(n + 1):
        total = Fraction(0)
        for k in range(t, n + 1):
            if k != 1:
                # k - t of the k chosen records are fixed points that are taken out again
                fixed = k - t
                ways = math.comb(n - t, fixed) * (-1) ** fixed
                total += ways * chosen[k] / derangements(k)
        arrangements = math.comb(n, t) * math.factorial(t)
        weights.append(arrangements * total / (1 - alone))
    return weights


@cache
def derangements(k: int) -> int:
    """Return the number of permutations of k records that leave none in its place.

    >>> [derangements(k) for k in range(6)]
    [1, 0, 1, 2, 9, 44]
    """
    count = 1
    for size in range(1, k + 1):
        count = size * count + (-1) ** size
    return count


def swapped_law(table: Grid, swap: Swap) -> dict[Grid, Fraction]:
    """Return the exact law of the published table of a stratum, given the true one.

    All ways to choose records are gone through by how many of each cell are chosen; a uniform
    permutation of the chosen S gives the table U with the probability
    ``Π rows! Π columns! / (|S|! Π U!)``.

    >>> law = swapped_law(((1, 0), (0, 1)), Swap("1/2"))
    >>> law[((0, 1), (1, 0))]
    Fraction(1, 8)
    """
    n = sum(map(sum, table))
    weights = choice_weights(n, swap)
    width = len(table[0])
    cells = [cell for row in table for cell in row]
    law: dict[Grid, Fraction] = defaultdict(Fraction)
    for chosen in itertools.product(*(range(cell + 1) for cell in cells)):
        size = sum(chosen)
        ways = math.prod(map(math.comb, cells, chosen))
        chance = weights[size] * ways / math.comb(n, size)
        rows, columns = _sums(_grid(chosen, width))
        left = list(map(operator.sub, cells, chosen))
        for permuted, probability in _list_permutations(rows, columns):
            published = list(map(operator.add, left, permuted))
            law[_grid(published, width)] += chance * probability
    return dict(law)


def _sums(grid: Grid) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Row and column totals of a table."""
    rows = tuple(map(sum, grid))
    columns = tuple(map(sum, zip(*grid, strict=True)))
    return rows, columns


@cache
def _list_permutations(
    rows: tuple[int, ...], columns: tuple[int, ...]
) -> list[tuple[tuple[int, ...], Fraction]]:
    """Tables of the chosen records after a uniform permutation of their swapped values, with
    probabilities.
    """
    arrangements = _factorials(rows) * _factorials(columns)
    permutations = math.factorial(sum(rows))
    outcomes = []
    for table in _tables(rows, columns):
        cells = tuple(cell for row in table for cell in row)
        ways = arrangements // _factorials(cells)
        outcomes.append((cells, Fraction(ways, permutations)))
    return outcomes


def _factorials(counts: Iterable[int]) -> int:
    return math.prod(map(math.factorial, counts))


def _grid(cells: Sequence[int], width: int) -> Grid:
    starts = range(0, len(cells), width)
    return tuple(tuple(cells[start : start + width]) for start in starts)


@frozen(eq=False)
class CellLaw:
    """The law of one published cell, given the true one, for all true cells.

    Of n records r have the held value and c the swapped one. The random permutation treats all
    records alike, so the records that have the swapped value afterwards are, given how many of
    them are new, a uniform choice. With e leavers the cell loses a hypergeometric number and gains
    another: ``cell + Hyp(n - c, r - cell, e) - Hyp(c, cell, e)``.

    Parameters
    ----------
    n, r, c
        The totals.
    first
        The least number of leavers that is kept.
    leavers
        The law of the number of leavers, from `first` on.
    """

    n: int
    r: int
    c: int
    first: int
    leavers: Floats

    @classmethod
    def from_totals(cls, n: int, r: int, c: int, swap: Swap) -> "CellLaw":
        """Return the law for these totals, its leavers counted once for all true cells.

        >>> law = CellLaw.from_totals(12, 6, 6, Swap("0.25"))
        >>> round(float(law.row(3)[1].sum()), 9)
        1.0
        """
        first, leavers = leaver_law(n, c, swap)
        return cls(n, r, c, first, leavers)

    @property
    def lowest(self) -> int:
        """The least that the cell can be."""
        return max(self.r + self.c - self.n, 0)

    @property
    def highest(self) -> int:
        """The most that the cell can be."""
        return min(self.r, self.c)

    @property
    def relative_error(self) -> float:
        """A bound on the relative error of each probability, from the round-off of logarithms of
        factorials.
        """
        size = float(_log_factorials(self.n)[self.n]) + 1
        return 128 * ROUNDOFF * size

    def lost(self, masses: Floats) -> float:
        """A bound on the probability of what is left out of a row."""
        kept = float(masses.sum()) * (1 - self.relative_error)
        return max(1 - kept, 0.0)

    @property
    def work(self) -> float:
        """About how many multiplications all rows take."""
        middle = (self.lowest + self.highest) // 2
        lost, gained = self._windows(middle)
        rows = self.highest - self.lowest + 1
        products = len(lost) * len(gained)
        return float(rows) * len(self.leavers) * products

    def row(self, cell: int) -> tuple[int, Floats]:
        """Return the law of the published cell for one true cell: the least value, and
        probabilities from there on.
        """
        losers, gainers = self._windows(cell)
        leavers = self.first + np.arange(len(self.leavers))[:, None]
        lost = _hypergeometric(self.c, cell, leavers, losers)
        gained = _hypergeometric(self.n - self.c, self.r - cell, leavers, gainers)
        # losses and gains are independent once the number of leavers is known
        weighted = lost * self.leavers[:, None]
        together = weighted.T @ gained
        change = gainers - losers[:, None]
        least = int(change.min())
        masses = sum_masses((change - least).ravel(), together.ravel())
        return cell + least, masses

    def _windows(self, cell: int) -> tuple[Integers, Integers]:
        """Numbers of records that the cell may lose and gain, but for a negligible probability."""
        last = self.first + len(self.leavers) - 1
        lost = _window(self.c, cell, self.first, last)
        gained = _window(self.n - self.c, self.r - cell, self.first, last)
        return lost, gained


def _window(population: int, marked: int, fewest: int, most: int) -> Integers:
    """Likely numbers of marked ones among draws of `fewest` to `most` without replacement."""
    share = marked / population if population else 0.0
    spread = _reach(most * share * (1 - share))
    forced = fewest - (population - marked)
    low = max(0, forced, math.floor(fewest * share - spread))
    high = min(marked, most, math.ceil(most * share + spread))
    return np.arange(low, high + 1)


def leaver_law(n: int, c: int, swap: Swap) -> tuple[int, Floats]:
    """Return the law of how many of c records with a value have lost it after swapping: first
    number, probabilities.

    Of the c records u are chosen, of the others v. Given both, e of the u leave with probability
    ``C(u, e) C(v, e) / C(u + v, u)`` for a uniform permutation. Among derangements,
    ``C(u, e) C(v, e) E(u, e) E(v, e) / d(u + v)`` have e leavers, E(u, e) the number of
    permutations of u things of which u - e given ones stay nowhere in place.

    >>> first, law = leaver_law(2, 1, Swap("1/2"))
    >>> first, law.round(6).tolist()
    (0, [0.875, 0.125])
    """
    p = float(swap.rate)
    inside = _binomial_window(c, p)
    outside = _binomial_window(n - c, p)
    low, high = _leaver_window(inside, outside)
    leavers = np.arange(low, high + 1)
    fewest, most = _least(inside, outside), _most(inside, outside)
    sizes = np.arange(fewest, most + 1)
    # 1/(u + v)! without its exponential part, which goes to u and v: nothing overflows then
    typical = max(round(n * p), 1)
    tilt = math.log(typical)
    factorials = _log_factorials(n)
    scale = typical * tilt - factorials[typical]
    chosen = np.exp(sizes * tilt - factorials[sizes] - scale)
    within = _log_ways(c, inside, leavers, p, tilt)
    beyond = _log_ways(n - c, outside, leavers, p, tilt)
    if swap.rule is SwapRule.derange:
        shares = _compute_unfixed_shares(n, leavers)
        every = shares.none_fixed[sizes]
        # a record that is chosen alone has no derangement, and the choice is made again
        chosen = np.divide(chosen, every, out=np.zeros_like(chosen), where=every > 0)
        alone = n * p * (1 - p) ** (n - 1)
        chosen /= 1 - alone
        within = within + shares.logarithms(inside)
        beyond = beyond + shares.logarithms(outside)
    law = np.zeros(len(leavers))
    for place, rows in enumerate(zip(within, beyond, strict=True)):
        tops = [float(row.max()) for row in rows]
        if min(tops) == -math.inf:
            continue
        # the ways to choose u inside and v outside, by u + v
        here = np.exp(rows[0] - tops[0])
        elsewhere = np.exp(rows[1] - tops[1])
        ways = np.convolve(here, elsewhere)
        size = math.exp(sum(tops) + scale)
        law[place] = size * float(ways @ chosen)
    return low, law


def _least(inside: Integers, outside: Integers) -> int:
    return int(inside[0]) + int(outside[0])


def _most(inside: Integers, outside: Integers) -> int:
    return int(inside[-1]) + int(outside[-1])


def _log_ways(n: int, chosen: Integers, leavers: Integers, p: float, tilt: float) -> Floats:
    """Logarithm of ``Bin(n, p)(u) C(u, e) u! e^(-u tilt)``, a row for each number e of leavers;
    -inf for e above u.
    """
    rows = leavers[:, None]
    possible = rows <= chosen
    ways = _log_choose(chosen, np.minimum(rows, chosen))
    by_chosen = _log_factorials(n)[chosen] + _log_binomial(n, chosen, p)
    ways = ways + by_chosen - chosen * tilt
    return np.where(possible, ways, -np.inf)


@frozen(eq=False)
class _Unfixed:
    """Shares of permutations without certain fixed points.

    ``some_fixed[u, i]``: of permutations of u things, the share in which all but e_i given ones
    move; ``none_fixed[k]``: the share of derangements among permutations of k things.
    """

    some_fixed: Floats
    none_fixed: Floats

    def logarithms(self, chosen: Integers) -> Floats:
        """Logarithms of `some_fixed`, a row for each number of leavers and a column for each number
        of chosen ones.
        """
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.some_fixed[chosen]).T)


def _compute_unfixed_shares(n: int, free: Integers) -> _Unfixed:
    """Shares by Euler's difference table, ``E(u, e) = (u-1) E(u-1, e) + (u-e-1) E(u-2, e)``, all
    terms positive.
    """
    columns = np.append(free, 0)
    shares = np.ones((n + 1, len(columns)))
    for u in range(1, n + 1):
        share = shares[u - 1] * (u - 1) / u
        if u > 1:
            weight = (u - 1 - columns) / (u * (u - 1))
            share = share + weight * shares[u - 2]
        # with nothing left that must move, every permutation will do
        shares[u] = np.where(columns >= u, 1.0, share)
    return _Unfixed(shares[:, :-1], shares[:, -1])


def _binomial_window(n: int, p: float) -> Integers:
    """Likely numbers of chosen records; all of them at rate 1."""
    if p == 1:
        return np.array([n])
    mean = n * p
    spread = _reach(mean * (1 - p))
    low = max(0, math.floor(mean - spread))
    high = min(n, math.ceil(mean + spread))
    return np.arange(low, high + 1)


def _reach(variance: float) -> float:
    """How far from its mean a law is kept: some standard deviations, and a little more for small
    means.
    """
    return _REACH * (math.sqrt(variance) + 2)


def _leaver_window(inside: Integers, outside: Integers) -> tuple[int, int]:
    """Numbers of leavers that are likely for some number of chosen ones, inside and outside."""
    low, high = math.inf, 0.0
    for u in inside[[0, -1]].tolist():
        for v in outside[[0, -1]].tolist():
            mean = u * v / max(u + v, 1)
            spread = _reach(mean / 4)
            low = min(low, mean - spread)
            high = max(high, mean + spread)
    most = min(int(inside[-1]), int(outside[-1]))
    return max(0, math.floor(low)), min(most, math.ceil(high))


def _log_binomial(n: int, counts: Integers, p: float) -> Floats:
    if p == 1:
        return np.zeros(len(counts))
    chosen = counts * math.log(p)
    left = (n - counts) * math.log1p(-p)
    return np.asarray(_log_choose(n, counts) + chosen + left)


def _hypergeometric(population: int, marked: int, draws: Integers, hits: Integers) -> Floats:
    """Probability of `hits` marked ones among draws without replacement; 0 if that is
    impossible.
    """
    missed = draws - hits
    unmarked = population - marked
    enough = (hits <= marked) & (missed <= unmarked)
    possible = enough & (missed >= 0) & (draws <= population)
    ways = _log_choose(marked, np.clip(hits, 0, marked))
    ways = ways + _log_choose(unmarked, np.clip(missed, 0, unmarked))
    chance = ways - _log_choose(population, np.clip(draws, 0, population))
    return np.exp(np.where(possible, chance, -np.inf))


def _log_choose(n: Integers | int, k: Integers) -> Floats:
    table = _log_factorials(int(np.max(n, initial=1)))
    return np.asarray(table[n] - table[k] - table[n - k])


@cache
def _log_factorials(n: int) -> Floats:
    """Logarithms of 0!, 1!, …, at least up to n!."""
    from scipy.special import gammaln

    # one table for each power of two, so few are made
    size = 1 << n.bit_length()
    return np.asarray(gammaln(np.arange(size + 1) + 1.0))
