"""The odds ratio common to strata where one of the two features has noisy totals: an interval that
holds for all of them.

The statistic is that of the pooled test in `unknown_totals`. Its law depends on the odds ratio and
on the totals: given these, counts are noncentral hypergeometric. Stratum by stratum a law above
those of all plausible totals bounds the tails, and the odds ratios that are not rejected are the
interval. Exact totals are the business of `common_odds`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.inference.convex_bounds import GridLaw, NoiseTerms, SumLaw, above_all, choose_step
from semidp.inference.unknown_totals import MISS, ScoreQuestion, UnknownTotals
from semidp.promise.exact import bisection
from semidp.publish.statistics.odds_ratio.hypergeometric import IntegerLaw, TwoByTwo

Floats = NDArray[np.float64]

_FARTHEST = 40.0  # log odds ratio at which a table has no other choice left
_FIRST_STEP = 0.25  # away from the estimate, in the search for an end; doubled each time
_HALVINGS = 9  # of the last step: an end is off by less than a hundredth of its distance
_MOST_MASSES = 3_000_000  # probabilities of all laws for one odds ratio: two minutes in all
_UNSEEN = 1e-25  # of the largest probability: less is left out


def end_beyond(kept: Callable[[float], bool], start: float, direction: int) -> float:
    """The last log odds ratio that is kept from start on, upward (1) or downward (-1), rounded
    outward; infinite where all are, and at the other end where none is.

    >>> round(end_beyond(lambda x: x < 1, 0.0, direction=1), 2)
    1.0
    >>> end_beyond(lambda x: True, 0.0, direction=-1)
    -inf
    """
    if not kept(start):
        return math.copysign(math.inf, -direction)
    inside, step = start, _FIRST_STEP
    while direction * inside < _FARTHEST:
        outside = inside + direction * step
        if not kept(outside):
            # The second of the two is the first that is not kept.
            return bisection(kept, inside, outside, halvings=_HALVINGS)[1]
        inside, step = outside, 2 * step
    return math.copysign(math.inf, direction)


@dataclass(frozen=True)
class BoundedStratum:
    """One stratum: groups of exact size, and a range of totals of the level that is counted.

    Parameters
    ----------
    n, group
        The number of records, and of those in the group whose cases are counted.
    low, high
        The least and the largest plausible number of cases.
    scale
        What the stratum is multiplied by in the statistic.

    Examples
    --------
    >>> stratum = BoundedStratum(10, 5, 3, 6, 1.0)
    >>> laws = stratum.laws(0.0)  # independence: the mean is 0 for all totals
    >>> [round(stratum.mean(law, total), 9) for total, law in laws]
    [0.0, 0.0, 0.0, 0.0]
    """

    n: int
    group: int
    low: int
    high: int
    scale: float

    def laws(self, log_odds: float) -> list[tuple[int, IntegerLaw]]:
        """The law of the cases in the group for every plausible total."""
        every = []
        for total in range(self.low, self.high + 1):
            law = TwoByTwo(self.group, total, self.n).law_for_log_odds(log_odds)
            every.append((total, law))
        return every

    def mean(self, law: IntegerLaw, total: int) -> float:
        """The mean of the cases, less those that independence has: times the scale."""
        return self.scale * (law.mean - self.group * total / self.n)

    def bound_laws(self, laws: list[tuple[int, IntegerLaw]], centre: float, step: float) -> GridLaw:
        """A law above those of all totals: no increasing convex function has a larger mean under
        one of these.
        """
        grids = []
        for total, law in laws:
            values = self.scale * (law.values - self.group * total / self.n) - centre
            used = law.pmf > _UNSEEN * law.pmf.max()
            masses = law.pmf[used] / law.pmf[used].sum()
            grids.append(GridLaw.split(values[used], masses, step))
        return above_all(grids)


def bounding_law(
    strata: Sequence[BoundedStratum], noise: NoiseTerms, log_odds: float
) -> tuple[SumLaw, float]:
    """A law above that of the sum of strata and noise for all plausible totals, less its mean; and
    that mean.
    """
    # Strata of the same size and range have the same laws.
    laws = {stratum: stratum.laws(log_odds) for stratum in dict.fromkeys(strata)}
    means, spreads = {}, {}
    for stratum, every in laws.items():
        means[stratum] = max(stratum.mean(law, total) for total, law in every)
        spreads[stratum] = stratum.scale**2 * max(law.variance for _, law in every)
    step = choose_step(noise.variance + sum(spreads[stratum] for stratum in strata))
    bounds = {
        stratum: stratum.bound_laws(every, means[stratum], step) for stratum, every in laws.items()
    }
    law = SumLaw.from_terms([bounds[stratum] for stratum in strata], noise, step)
    return law, sum(means[stratum] for stratum in strata)


@dataclass(frozen=True, eq=False)
class NoisyOdds:
    """The pooled sum of 2 × 2 strata whose groups have exact sizes and whose levels have noisy
    totals: bounds of its tails for every odds ratio.

    ``S = Σ w_k (y22k - R2k/n_k (y12k + y22k))``. Given the totals t and the odds ratio, x22k has
    Fisher's noncentral hypergeometric law, which grows with the odds ratio. The bound of
    ``P(S >= s)`` therefore grows with it too, and what is kept is an interval.

    Parameters
    ----------
    totals
        The noisy table; groups with exact sizes stand first.
    """

    totals: UnknownTotals = field(repr=False)

    @cached_property
    def question(self) -> ScoreQuestion:
        """The question of the pooled test."""
        (question,) = self.totals.questions
        return question

    @cached_property
    def weights(self) -> Floats:
        """Weights of the cells, from public numbers alone."""
        return self.totals.weights(self.question)

    @cached_property
    def statistic(self) -> float:
        """S of the published table."""
        return float((self.weights * self.totals.estimate).sum())

    @cached_property
    def noise(self) -> NoiseTerms:
        """The noise of S."""
        return self.totals.collect_noise(self.weights)

    @cached_property
    def upper(self) -> tuple[BoundedStratum, ...]:
        """The strata as they count the second group: S is large where it has many cases."""
        return self._strata(group=1)

    @cached_property
    def lower(self) -> tuple[BoundedStratum, ...]:
        """The strata as they count the first group: -S is large where it has many cases."""
        return self._strata(group=0)

    def _strata(self, group: int) -> tuple[BoundedStratum, ...]:
        strata = []
        upper_level = (False, True)
        for number in self.question.strata:
            sizes = self.totals.sizes[:, number]
            n = int(sizes.sum())
            # The weights of the two groups sum to that of a case that changes its group.
            scale = float(self.weights[1, 1, number] - self.weights[0, 1, number])
            if n < 2 or not sizes.all() or scale <= 0:
                continue
            low, high = self.totals.ranges[upper_level, number]
            strata.append(BoundedStratum(n, int(sizes[group]), low, high, scale))
        return tuple(strata)

    def tails(self, log_odds: float) -> tuple[float, float]:
        """Bounds of the probabilities of a sum at least as large and at most as large, for all
        plausible totals.
        """
        return self._bound_upper_tail(log_odds), self._bound_lower_tail(log_odds)

    def _bound_upper_tail(self, log_odds: float) -> float:
        law, mean = bounding_law(self.upper, self.noise, log_odds)
        return law.bound_upper_tail(self.statistic - mean)

    def _bound_lower_tail(self, log_odds: float) -> float:
        # For the other group the odds ratio is turned over.
        law, mean = bounding_law(self.lower, self.noise, -log_odds)
        return law.bound_upper_tail(-self.statistic - mean)

    def interval(self, level: float) -> tuple[float, float]:
        """The odds ratios that neither tail rejects; ends are rounded outward.

        A tail rejects at ``(1 - level - MISS) / 2``: the rest is the chance that a true total is
        not plausible.
        """
        least = (1 - level - MISS) / 2
        if least <= 0:
            raise InputError(
                f"with noisy totals the level must be below {1 - MISS:g}: the plausible totals"
                f" themselves miss with probability {MISS:g}"
            )
        self.check_work()

        def not_too_small(log_odds: float) -> bool:
            return self._bound_upper_tail(log_odds) > least

        def not_too_large(log_odds: float) -> bool:
            return self._bound_lower_tail(log_odds) > least

        # The bounds are 1 at the estimate, where the published sum is the mean of plausible totals.
        start = min(max(self.log_estimate, -_FARTHEST), _FARTHEST)
        low = end_beyond(not_too_small, start, direction=-1)
        high = end_beyond(not_too_large, start, direction=1)
        return math.exp(low), math.exp(high)

    def check_work(self) -> None:
        """Refuse what cannot vary, and what takes too long."""
        if not self.upper:
            raise Refused(
                "the exact totals leave only one table in every stratum: every odds ratio fits"
            )
        work = 0
        for stratum in self.upper:
            largest = TwoByTwo(stratum.group, (stratum.low + stratum.high) // 2, stratum.n)
            width = min(largest.high - largest.low + 1, 40 * math.isqrt(stratum.n) + 40)
            work += (stratum.high - stratum.low + 1) * width
        if work > _MOST_MASSES:
            raise Refused(
                "so many totals are plausible that an interval takes too long: publish the totals"
                " exactly, or ask semidp model for the odds ratio as a coefficient"
            )

    @cached_property
    def log_estimate(self) -> float:
        """The log odds ratio for which S has the published value as its mean, if the totals are
        those in the middle of the plausible ones; infinite where none has.
        """
        middles = [(stratum, (stratum.low + stratum.high) // 2) for stratum in self.upper]

        def reaches(log_odds: float) -> bool:
            mean = 0.0
            for stratum, total in middles:
                law = TwoByTwo(stratum.group, total, stratum.n).law_for_log_odds(log_odds)
                mean += stratum.mean(law, total)
            return mean >= self.statistic

        if reaches(-_FARTHEST):
            return -math.inf
        if not reaches(_FARTHEST):
            return math.inf
        return bisection(reaches, _FARTHEST, -_FARTHEST, halvings=24)[0]
