"""How often the test finds an odds ratio: power, required sample size, and two tests to compare
with.

The comparison is the randomised Fisher test without privacy, and the naive approach: a table made
noisy by ordinary privacy and the group argument, then the classical test. Pictures are in `plots`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.promise.exact import whole_bisection
from semidp.promise.noise.canonical import Recursive, canonical_noise, find_claimable_curve
from semidp.promise.noise.randomness import Randomness, SeededRandomness, generator
from semidp.promise.spaces.adjacency import Adjacency, Ball
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.polygons import Approximate
from semidp.promise.tradeoff.smooth import Gaussian
from semidp.publish.statistics.odds_ratio.hypergeometric import Strata, TwoByTwo
from semidp.publish.statistics.odds_ratio.umpu import Alternative, UmpuTest
from semidp.publish.written_values import check_level

_LARGEST = 10**8
_LONGEST = 100
_TWO_MARGINS = Ball(3)
_PRIVATE, _PUBLIC = "semi-private UMPU", "without privacy (UMPU)"
_NAIVE, _CORRECTED = "naive, classical critical value", "naive, corrected to size alpha"


def power(
    margins: TwoByTwo | Strata,
    privacy: Tradeoff | Budget,
    odds_ratio: float,
    *,
    alpha: float = 0.05,
    alternative: Alternative = Alternative.TWO_SIDED,
    adjacency: Adjacency = _TWO_MARGINS,
) -> float:
    """Return the probability that the semi-private test rejects ω = 1 when ω is `odds_ratio`, given
    the margins.

    Parameters
    ----------
    margins
        The public margins, of one table or of strata.
    adjacency
        How many records move together: a(t) = 3 with no exact statistics but the margins, and more
        with others. The noise is stretched by floor(a/2).

    Examples
    --------
    >>> margins = TwoByTwo(200, 200, 400)
    >>> for a in (3, 4):
    ...     print(round(power(margins, Budget.pure(1), 2.0, adjacency=Ball(a)), 4))
    0.9138
    0.8558
    """
    noise = canonical_noise(privacy, _moves(adjacency))
    return UmpuTest(margins, noise).power(odds_ratio, alpha, alternative)


def sample_size(
    odds_ratio: float,
    privacy: Tradeoff | Budget | None,
    *,
    target: float = 0.8,
    alpha: float = 0.05,
    alternative: Alternative = Alternative.TWO_SIDED,
    row_share: float = 0.5,
    column_share: float = 0.5,
    adjacency: Adjacency = _TWO_MARGINS,
) -> int:
    """Return from how many records on the test has the power `target` at an odds ratio: that many,
    and any more.

    The margins are taken at their shares of n, rounded to whole records, and the power would grow
    with n but for that rounding. Along all n that round alike (n, n + d, n + 2d, …, with d the
    common denominator of the shares) it does grow, so that bisection finds an n that suffices, and
    the last n within the next d that does not is the last of all. Where d is above 100, the next
    100 are looked at.

    Parameters
    ----------
    odds_ratio
        The odds ratio to find; on the side of 1 that the alternative names.
    privacy
        The guarantee, or None for the test without privacy.
    row_share, column_share
        The shares of records in the first row and in the first column.
    adjacency
        How many records move together, see `power`.

    Examples
    --------
    >>> sample_size(2.0, Budget.pure(1)), sample_size(2.0, None)
    (292, 265)
    """
    check_level(target, "the power")
    check_level(row_share, "the row share")
    check_level(column_share, "the column share")
    alternative = Alternative(alternative)
    _check_side(odds_ratio, alternative)
    if target <= alpha:
        raise InputError(f"the power must be above alpha, and {target} is not above {alpha}")
    # Uniform noise randomises the test without privacy, so that its size is alpha exactly, like
    # that of the private test it is compared with.
    noise = Recursive.none() if privacy is None else canonical_noise(privacy, _moves(adjacency))

    def enough(n: int) -> bool:
        row = round(row_share * n)
        column = round(column_share * n)
        margins = TwoByTwo(row, column, n)
        if margins.degenerate:
            return False
        test = UmpuTest(margins, noise)
        return test.power(odds_ratio, alpha, alternative) >= target

    # Doubling and bisection find an n that suffices next to one that does not. That is not yet the
    # answer: rounded margins let the power dip again for larger n.
    high = 4
    while not enough(high):
        high *= 2
        if high > _LARGEST:
            raise Refused(
                f"more than {_LARGEST:,} records would be needed: ask for less power or a weaker"
                " guarantee"
            )
    low = high // 2 if high > 4 else 1
    low, high = whole_bisection(lambda n: not enough(n), low, high)
    row_fraction = Fraction(row_share).limit_denominator(_LONGEST)
    column_fraction = Fraction(column_share).limit_denominator(_LONGEST)
    period = math.lcm(row_fraction.denominator, column_fraction.denominator)
    # n + d rounds as n does and has more power, so a period without a failure means that none
    # follows.
    last_failure, n = low, high
    # python rounds halves to even: twice the period
    while n - last_failure <= min(2 * period, _LONGEST):
        if not enough(n):
            last_failure = n
        n += 1
    return last_failure + 1


def _moves(adjacency: Adjacency) -> int:
    """By how much x11 can change."""
    # Which exchanges there are depends on what is exact, which the margins alone do not say.
    if not adjacency.protects_groups or adjacency.a < 2:
        raise InputError(
            "the power before any data needs how many records move together, at least 2: see"
            " planned_test"
        )
    return adjacency.swaps


@dataclass(frozen=True)
class PowerCurves:
    """Power against the odds ratio, one curve for each test. The value at ω = 1 is the size of the
    test.

    >>> list(
    ...     power_curves(TwoByTwo(50, 50, 100), Budget.pure(1), [1.0, 2.0], replicates=100).curves
    ... )[:2]
    ['semi-private UMPU', 'without privacy (UMPU)']
    """

    margins: TwoByTwo
    odds_ratios: NDArray[np.float64]
    curves: dict[str, NDArray[np.float64]]
    alpha: float
    alternative: Alternative

    def to_json(self) -> dict[str, Any]:
        """Return the curves as plain values."""
        margins = {"row": self.margins.row, "column": self.margins.column, "n": self.margins.n}
        power = {name: curve.tolist() for name, curve in self.curves.items()}
        return {
            "margins": margins,
            "odds_ratios": self.odds_ratios.tolist(),
            "power": power,
            "alpha": self.alpha,
            "alternative": str(self.alternative),
        }


def power_curves(
    margins: TwoByTwo,
    privacy: Tradeoff | Budget,
    odds_ratios: Sequence[float],
    *,
    alpha: float = 0.05,
    alternative: Alternative = Alternative.GREATER,
    replicates: int = 20_000,
    randomness: Randomness | None = None,
) -> PowerCurves:
    """Return the power of the semi-private test, of the test without privacy, and of the naive
    approach.

    The naive approach is simulated, for (ε, δ) and Gaussian guarantees: independent Laplace noise
    of scale 2a/ε, or normal noise with ``σ = √2 a/μ``, in all four cells (a = 3), then the
    classical test of the log odds ratio. Its size is not alpha, so a second curve uses the critical
    value that makes it so.

    >>> found = power_curves(TwoByTwo(100, 100, 200), Budget.pure(1), [1.0, 3.0], replicates=2000)
    >>> float(found.curves["semi-private UMPU"][0].round(6))
    0.05
    """
    check_level(alpha, "alpha")
    alternative = Alternative(alternative)
    grid = np.asarray(odds_ratios, dtype=np.float64)
    tests = {
        _PRIVATE: UmpuTest(margins, canonical_noise(privacy)),
        _PUBLIC: UmpuTest(margins, Recursive.none()),
    }
    curves = {}
    for name, test in tests.items():
        powers = [test.power(float(w), alpha, alternative) for w in grid]
        curves[name] = np.array(powers)
    spread = _naive_spread(find_claimable_curve(privacy), a=3)
    if spread is not None:
        # A simulation is no release: a fixed seed gives the same curves every time.
        source = generator(SeededRandomness(0) if randomness is None else randomness)
        curves |= _naive_curves(margins, spread, grid, alpha, alternative, replicates, source)
    return PowerCurves(margins, grid, curves, alpha, alternative)


def _check_side(odds_ratio: float, alternative: Alternative) -> None:
    if alternative is Alternative.GREATER:
        on_its_side = odds_ratio > 1
    elif alternative is Alternative.LESS:
        on_its_side = 0 < odds_ratio < 1
    else:
        on_its_side = odds_ratio > 0 and odds_ratio != 1
    if not on_its_side or not math.isfinite(odds_ratio):
        raise InputError(
            f"the alternative {alternative} never finds an odds ratio of {odds_ratio}: give the"
            " other side"
        )


def _naive_spread(f: Tradeoff, a: int) -> tuple[str, float] | None:
    """The noise that ordinary privacy, pushed to a records by the group argument, puts into each
    cell.
    """
    if isinstance(f, Gaussian):
        return "normal", math.sqrt(2 / f.mu_squared) * a
    if isinstance(f, Approximate) and f.size == 1 and f.epsilon0 > 0:
        return "laplace", 2 * a / float(f.epsilon0)
    return None


def _naive_curves(
    margins: TwoByTwo,
    spread: tuple[str, float],
    odds_ratios: NDArray[np.float64],
    alpha: float,
    alternative: Alternative,
    replicates: int,
    source: np.random.Generator,
) -> dict[str, NDArray[np.float64]]:
    """How often the classical test of noisy tables rejects: log odds ratio over its error, with 1/2
    in each cell.
    """
    signs = np.array([1.0, -1.0, -1.0, 1.0])
    remaining = margins.n - margins.row - margins.column
    noise_name, scale = spread
    draw_noise = getattr(source, noise_name)

    def evidence(odds_ratio: float) -> NDArray[np.float64]:
        law = margins.law(odds_ratio)
        x = source.choice(law.values, size=replicates, p=law.pmf)
        cells = np.stack([x, margins.row - x, margins.column - x, remaining + x])
        noise = draw_noise(scale=scale, size=cells.shape)
        # Noise makes counts negative, which have no logarithm: cut at 0 and add the usual half.
        noisy = np.maximum(cells + noise, 0.0) + 0.5
        error = np.sqrt((1 / noisy).sum(axis=0))
        z: NDArray[np.float64] = np.asarray(signs @ np.log(noisy) / error)
        if alternative is Alternative.TWO_SIDED:
            return np.abs(z)
        return -z if alternative is Alternative.LESS else z

    null = evidence(1.0)
    tail = alpha / 2 if alternative is Alternative.TWO_SIDED else alpha
    # The classical error leaves the noise out, so its critical value has the wrong size. The
    # quantile of the simulated null is what a fair comparison needs.
    limits = {
        _NAIVE: -float(scipy.special.ndtri(tail)),
        _CORRECTED: float(np.quantile(null, 1 - alpha)),
    }
    evidences = [evidence(float(odds_ratio)) for odds_ratio in odds_ratios]
    curves = {}
    for name, limit in limits.items():
        rejected = [np.mean(each > limit) for each in evidences]
        curves[name] = np.array(rejected)
    return curves
