"""The guarantee of swapping: the tradeoff function of all strata, or a lower bound on an attacker's
success.

Match × swapped and match × held totals stay exact: these are the datasets D_t. One person who
changes takes one or two others of the same stratum along (a = 3), so strata never add up; the
worst of them counts. `swap_laws` has the distribution of a stratum after swapping, `distinguishing`
turns distributions into curves.
"""

import itertools
import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import cached_property

import numpy as np
from attrs import frozen

from semidp.assess.distinguishing import (
    Corner,
    Frontier,
    advantage,
    corners_between,
    curve_through,
)
from semidp.assess.swap_laws import (
    RECORDS,
    CellLaw,
    Grid,
    Stratum,
    Swap,
    list_tables,
    swapped_law,
)
from semidp.errors import InputError
from semidp.promise.progress import Progress, silent
from semidp.promise.tradeoff.function import Floats
from semidp.promise.tradeoff.polygons import PiecewiseLinear

MOST_WORK = 2e11
"""The most multiplications for all strata together, about a minute; strata beyond are only
attacked.
"""

_MOST_CHOICES = 20_000  # ways to choose records, over all tables of a stratum that is listed
_LISTED_WORK = 1e6  # what one of these ways counts as, in multiplications
_SMALLEST = 100  # strata without a proof that are all attacked; of the larger ones about as many
_ATTACKED = 3  # true cells at which a stratum is attacked that is too large for a proof
_MOST_CELLS = 200  # cells that are attacked


@frozen
class StratumLoss:
    """What is known about one stratum.

    Parameters
    ----------
    stratum
        Its totals.
    curve
        The tradeoff function, the least over all neighboring tables; None if there are too many
        to be sure.
    attack
        The advantage of the best attacker if there is a curve, else a lower
        bound.
    least_error, most_error
        The smallest and largest root mean square error of a published cell over all true
        tables.
    epsilon
        The exact pure epsilon, if all tables were listed.
    """

    stratum: Stratum
    curve: PiecewiseLinear | None
    attack: float
    least_error: float
    most_error: float
    epsilon: float | None = None


@frozen
class SwapAssessment:
    """The guarantee of swapping in all strata together.

    Parameters
    ----------
    swap
        How records are swapped.
    strata
        What is known about each distinct stratum, worst first.
    fixed
        How many strata have nothing to hide, because their totals reveal them.
    largest
        The number of records of the largest stratum that is not fixed.
    longest_cycle
        The most records that move in one stratum: 2, or 3 if a cycle of three is possible in one of
        them.
    passed_over
        How many distinct strata were neither proved nor attacked, because there are too many.
    """

    swap: Swap
    strata: tuple[StratumLoss, ...]
    fixed: int
    largest: int
    longest_cycle: int
    passed_over: int = 0

    @property
    def worst(self) -> StratumLoss:
        """The stratum in which an attacker gains most."""
        return self.strata[0]

    @property
    def attack(self) -> float:
        """A lower bound on the attacker's advantage."""
        return self.worst.attack

    @property
    def is_proved(self) -> bool:
        """Whether every stratum has its exact curve."""
        return not self.passed_over and all(loss.curve is not None for loss in self.strata)

    @cached_property
    def curve(self) -> PiecewiseLinear | None:
        """The tradeoff function of all strata: the greatest below the curve of each; None unless
        all are proved.
        """
        corners: list[Corner] = []
        if self.passed_over:
            return None
        for loss in self.strata:
            if loss.curve is None:
                return None
            pairs = zip(loss.curve.alphas, loss.curve.values, strict=True)
            corners += [(1 - alpha, 1 - value) for alpha, value in pairs]
        return curve_through(corners)

    def gaussian_error(self, mu: float) -> float:
        """Return the standard error of a cell of the worst stratum with Gaussian noise that keeps
        the same totals.

        ``Δ2/μ · √((1 - 1/r)(1 - 1/c))``: noise only in the directions that the totals leave free,
        scaled to the farthest neighbors, Δ2 = 2 for two records that change places and √6 for a
        cycle of three.
        """
        stratum = self.worst.stratum
        distance = math.sqrt(2 * self.longest_cycle)
        # of each side one value is fixed by the others: the noise of a cell shrinks as much
        rows = 1 - 1 / len(stratum.hold)
        columns = 1 - 1 / len(stratum.over)
        return distance / mu * math.sqrt(rows * columns)


def assess_swapping(
    swap: Swap, strata: Iterable[Stratum], progress: Progress = silent
) -> SwapAssessment:
    """Return what swapping guarantees next to the totals that it keeps exact.

    Strata of two held and two swapped values have an exact law, and small others are listed, cycles
    of three included. For the rest only a lower bound is known, from an attacker who looks at one
    cell.

    Parameters
    ----------
    swap
        The rate and the rule.
    strata
        The totals of every stratum.
    progress
        Called with progress.

    Raises
    ------
    InputError
        If the totals of every stratum reveal it, so there is nothing to guarantee.

    Examples
    --------
    >>> assessment = assess_swapping(Swap("0.25"), [Stratum([6, 6], [6, 6])])
    >>> assessment.is_proved, round(assessment.attack, 3)
    (True, 0.65)
    """
    every = list(strata)
    hiding = [stratum for stratum in every if not stratum.is_fixed]
    if not hiding:
        raise InputError(
            "the exact totals give every stratum away, because each has one held or one swapped"
            " value only: swapping changes nothing here"
        )
    distinct = sorted(set(hiding), key=lambda stratum: (stratum.n, stratum.hold, stratum.over))
    losses = []
    unproved = []
    work = 0.0
    for done, stratum in enumerate(distinct):
        progress("strata", done, len(distinct))
        cost, prove = _proof(stratum, swap)
        # the small ones come first: what does not fit any more is attacked
        if prove is not None and work + cost <= MOST_WORK:
            work += cost
            losses.append(prove())
        else:
            unproved.append(stratum)
    # any of them will do for an attack: the smallest, where most is gained, and some of every size
    smallest, larger = unproved[:_SMALLEST], unproved[_SMALLEST:]
    step = max(len(larger) // _SMALLEST, 1)
    tried = smallest + larger[::step]
    for done, stratum in enumerate(tried):
        progress("attacks", done, len(tried))
        losses.append(attack_stratum(stratum, swap))
    losses.sort(key=lambda loss: -loss.attack)
    largest = max(stratum.n for stratum in hiding)
    cycle = max(stratum.longest_cycle for stratum in hiding)
    fixed = len(every) - len(hiding)
    passed_over = len(unproved) - len(tried)
    return SwapAssessment(swap, tuple(losses), fixed, largest, cycle, passed_over)


def _proof(stratum: Stratum, swap: Swap) -> tuple[float, Callable[[], StratumLoss] | None]:
    """How many multiplications a proof takes and how to get it, None if none is possible."""
    tables = list_tables(stratum)
    if tables is not None:
        choices = sum(map(_choices, tables))
        if choices <= _MOST_CHOICES:
            return _LISTED_WORK * choices, lambda: compute_exact_loss(stratum, swap)
    if not stratum.is_two_by_two:
        return 0.0, None
    law = _corner_law(stratum, swap)
    return law.work, lambda: compute_cell_loss(stratum, swap)


def _choices(table: Grid) -> int:
    """How many ways there are to choose records, told apart by their cells alone."""
    sizes = [cell + 1 for row in table for cell in row]
    return math.prod(sizes)


def _corner_law(stratum: Stratum, swap: Swap) -> CellLaw:
    """Law of the cell of the rarer held and the rarer swapped value, which gives a table of two by
    two.
    """
    held, swapped = stratum.hold[1], stratum.over[1]
    return CellLaw.from_totals(stratum.n, held, swapped, swap)


def compute_exact_loss(stratum: Stratum, swap: Swap) -> StratumLoss:
    """Return the exact curve of a small stratum: the least over all pairs of tables at most three
    records apart.

    >>> loss = compute_exact_loss(Stratum([2, 1, 1], [2, 1, 1]), Swap("0.3"))
    >>> round(loss.attack, 3)
    0.91
    """
    tables = list_tables(stratum)
    if tables is None:
        raise InputError("the stratum has too many tables to list")
    laws = [swapped_law(table, swap) for table in tables]
    corners: list[Corner] = []
    epsilon = 0.0
    # both directions of every pair: the curve must hold for each
    for one, other in itertools.combinations(range(len(tables)), 2):
        if _count_differences(tables[one], tables[other]) > RECORDS:
            continue
        corners += corners_between(laws[one], laws[other])
        corners += corners_between(laws[other], laws[one])
        epsilon = max(epsilon, _pure_epsilon(laws[one], laws[other]))
    curve = curve_through(corners)
    errors = list(map(_error, tables, laws))
    return StratumLoss(stratum, curve, advantage(curve), min(errors), max(errors), epsilon)


def _count_differences(one: Grid, other: Grid) -> int:
    """How many records differ between two tables of the same totals."""
    cells = zip(itertools.chain(*one), itertools.chain(*other), strict=True)
    gaps = [abs(before - after) for before, after in cells]
    return sum(gaps) // 2


def _pure_epsilon(first: dict[Grid, Fraction], second: dict[Grid, Fraction]) -> float:
    largest = Fraction(1)
    nothing = Fraction(0)
    for outcome in {*first, *second}:
        chances = first.get(outcome, nothing), second.get(outcome, nothing)
        likely, unlikely = max(chances), min(chances)
        if likely and not unlikely:
            return math.inf
        # derangements have outcomes of probability 0 among those that are listed
        if likely:
            largest = max(largest, likely / unlikely)
    return math.log(largest)


def _error(table: Grid, law: dict[Grid, Fraction]) -> float:
    """Root mean square error of a published cell, over all cells of the table."""
    truth = list(itertools.chain(*table))
    total = Fraction(0)
    for published, probability in law.items():
        cells = zip(itertools.chain(*published), truth, strict=True)
        squares = [(new - cell) ** 2 for new, cell in cells]
        total += probability * sum(squares)
    return math.sqrt(total / len(truth))


def compute_cell_loss(stratum: Stratum, swap: Swap) -> StratumLoss:
    """Return the curve of a stratum of two held and two swapped values: the least over all true
    cells.

    >>> loss = compute_cell_loss(Stratum([100, 100], [120, 80]), Swap("0.1"))
    >>> round(loss.attack, 3), round(loss.least_error, 2), round(loss.most_error, 2)
    (0.249, 1.48, 4.11)
    """
    if not stratum.is_two_by_two:
        raise InputError(
            "one cell gives the whole stratum only where there are two held and two swapped values"
        )
    law = _corner_law(stratum, swap)
    frontier = Frontier()
    errors = []
    lost = 0.0
    before: tuple[int, Floats] | None = None
    for cell in range(law.lowest, law.highest + 1):
        row = law.row(cell)
        errors.append(_cell_error(cell, row))
        lost = max(lost, law.lost(row[1]))
        if before is not None:
            frontier.add(*_align_laws(before, row))
        before = row
    curve = frontier.curve(law.relative_error, lost)
    return StratumLoss(stratum, curve, advantage(curve), min(errors), max(errors))


def _cell_error(cell: int, law: tuple[int, Floats]) -> float:
    """Root mean square error of a published cell."""
    first, masses = law
    errors = first - cell + np.arange(len(masses))
    return math.sqrt(float(errors**2 @ masses))


def _align_laws(one: tuple[int, Floats], other: tuple[int, Floats]) -> tuple[Floats, Floats]:
    """Two laws of whole numbers on the same numbers."""
    first = min(one[0], other[0])
    ends = [start + len(masses) for start, masses in (one, other)]
    laws = []
    for start, masses in (one, other):
        before = start - first
        after = max(ends) - start - len(masses)
        laws.append(np.pad(masses, (before, after)))
    return laws[0], laws[1]


def attack_stratum(stratum: Stratum, swap: Swap) -> StratumLoss:
    """Return a lower bound on the attacker's advantage in a stratum of any size, from a single
    cell.

    Any true cell but the largest has a neighbor that is one more: somebody of the same held value
    and somebody of the same swapped value change places. So the distance of these two distributions
    bounds the protection from above.

    >>> loss = attack_stratum(Stratum([3, 3, 3], [3, 3, 3]), Swap("0.3"))
    >>> loss.curve is None, round(loss.attack, 3)  # 0.838 is possible, see `listed`
    (True, 0.698)
    """
    pairs = sorted({(r, c) for r in stratum.hold for c in stratum.over})
    step = max(len(pairs) // _MOST_CELLS, 1)
    best = 0.0
    errors = []
    for r, c in pairs[::step]:
        law = CellLaw.from_totals(stratum.n, r, c, swap)
        cells = np.linspace(law.lowest, law.highest - 1, _ATTACKED).astype(int)
        for cell in sorted(set(cells.tolist())):
            row = law.row(cell)
            errors.append(_cell_error(cell, row))
            first, second = _align_laws(row, law.row(cell + 1))
            gained = float(np.abs(first - second).sum() / 2)
            # rounded down: an attack must not be overstated
            uncertain = law.lost(first) + law.lost(second) + law.relative_error
            best = max(best, gained - uncertain)
    return StratumLoss(stratum, None, best, min(errors), max(errors))
