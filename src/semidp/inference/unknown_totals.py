"""Association where one of the two features has noisy totals: any number of levels, strata and
scores.

The exact feature centres the statistic, so that its mean is 0 whatever the unknown totals are. How
far it spreads is bounded over all plausible totals in the convex order (`convex_bounds`), stratum
by stratum: they need not be tried together, and nothing is simulated.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.inference.convex_bounds import (
    GridLaw,
    NoiseTerms,
    SumLaw,
    above_totals,
    choose_step,
    hypergeometric_variance,
    sum_comonotone,
)
from semidp.inference.crossed_table import CrossedTable
from semidp.inference.measured import MeasuredTable
from semidp.promise.mechanisms.mechanism import CellByCell, NoNoise
from semidp.promise.mechanisms.residual_laws import SharedNoise
from semidp.publish.statistics.odds_ratio.umpu import Alternative

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

MISS = 0.001
"""How often the intervals of the noisy totals miss; it is added to the p-value."""

_MOST_LAWS = 60_000  # hypergeometric laws of one test: a minute
_NOTHING = "the exact totals (and scores) leave only one value of the statistic: nothing is tested"


@dataclass(frozen=True, eq=False)
class ScoreQuestion:
    """One association that is looked for: scores of both features, common to some strata.

    Parameters
    ----------
    exact, noisy
        The scores of the levels of the feature with exact and of that with noisy totals.
    strata
        The numbers of the strata that are added up.
    """

    exact: Floats
    noisy: Floats
    strata: tuple[int, ...]


@dataclass(frozen=True)
class ScoreCuts:
    """Scores as a sum of steps: ``score = least + Σ height · [level in the upper part]``.

    >>> cuts = ScoreCuts.from_scores(np.array([1.0, 4.0, 2.0]))
    >>> cuts.heights, cuts.uppers
    ((1.0, 2.0), ((False, True, True), (False, True, False)))
    """

    heights: tuple[float, ...]
    uppers: tuple[tuple[bool, ...], ...]

    @classmethod
    def from_scores(cls, scores: Floats) -> "ScoreCuts":
        """Cut scores between each two neighbours."""
        values = np.unique(scores)
        uppers = tuple(tuple((scores >= value).tolist()) for value in values[1:])
        return cls(tuple(np.diff(values).tolist()), uppers)


@dataclass(frozen=True, eq=False)
class BoundedTest:
    """What a question says: its signed statistic, and bounds of the probabilities beyond it on
    either side.

    Parameters
    ----------
    z
        The sum of scores in units of the standard deviation of the law that bounds it.
    greater, less
        Bounds of the probabilities of a sum at least as large, and at most as large.
    """

    z: float
    greater: float
    less: float

    def p_value(self, alternative: Alternative) -> float:
        """Valid for every plausible total."""
        if alternative is Alternative.GREATER:
            return self.greater
        if alternative is Alternative.LESS:
            return self.less
        return min(1.0, 2 * min(self.greater, self.less))


@dataclass(frozen=True, eq=False)
class UnknownTotals:
    """A noisy table by groups of exact size, by levels with noisy totals and by strata.

    With R the exact sizes of the groups of stratum k and n their sum, a question with scores u, v
    has the sum ``S_k = Σ (u_i - Σ R u / n) v_j y_ij``. Under independence its mean is 0 for all
    totals of the levels, and it is the sum over cuts of u and v of centred hypergeometric numbers,
    plus noise. Each of these is bounded over the plausible totals of its cut; cuts of one stratum
    are added as if they rose and fell together, strata independently.

    Parameters
    ----------
    estimate
        The noisy counts, (groups, levels, strata).
    sizes
        The exact sizes of the groups, (groups, strata).
    noise_of
        Gives for weights of that shape the noise of the weighted sum.
    questions
        All that will be asked: the intervals of the totals must hold for all of them at once.
    """

    estimate: Floats = field(repr=False)
    sizes: Counts = field(repr=False)
    collect_noise: Callable[[Floats], NoiseTerms] = field(repr=False)
    questions: tuple[ScoreQuestion, ...] = field(repr=False)

    @cached_property
    def ranges(self) -> dict[tuple[tuple[bool, ...], int], tuple[int, int]]:
        """For each cut of the levels and each stratum the totals that are plausible, all at once
        but for `MISS`.
        """
        cuts: dict[tuple[tuple[bool, ...], int], None] = {}
        for question in self.questions:
            for upper in ScoreCuts.from_scores(question.noisy).uppers:
                cuts |= {(upper, stratum): None for stratum in question.strata}
        plausible = {}
        for upper, stratum in cuts:
            weights = np.zeros(self.estimate.shape)
            weights[:, list(upper), stratum] = 1.0
            centre = float((weights * self.estimate).sum())
            half = self.collect_noise(weights).bound_size(MISS / len(cuts))
            n = int(self.sizes[:, stratum].sum())
            # An interval beyond all totals has missed: which ones are tried then does not matter.
            low = min(max(math.ceil(centre - half - 1e-6), 0), n)
            high = max(min(math.floor(centre + half + 1e-6), n), low)
            plausible[upper, stratum] = (low, high)
        return plausible

    def answer(self, question: ScoreQuestion) -> BoundedTest:
        """Ask one question."""
        weights = self.weights(question)
        law = self.law(question, weights)
        statistic = float((weights * self.estimate).sum())
        z = statistic / math.sqrt(law.variance)
        return BoundedTest(z, law.bound_upper_tail(statistic), law.bound_lower_tail(statistic))

    def law(self, question: ScoreQuestion, weights: Floats) -> SumLaw:
        """A law above that of the weighted sum with its noise, in the convex order, for all
        plausible totals.
        """
        noise = self.collect_noise(weights)
        scales = {stratum: self._scale(weights, question, stratum) for stratum in question.strata}
        varied = [stratum for stratum in question.strata if scales[stratum] > 0]
        if not varied:
            raise Refused(_NOTHING)
        spread = sum(
            self._largest_spread(question, stratum, scales[stratum]) ** 2 for stratum in varied
        )
        step = choose_step(spread + noise.variance)
        laws = [self._law(question, stratum, scales[stratum], step) for stratum in varied]
        return SumLaw.from_terms(laws, noise, step)

    def p_value(self, alternative: Alternative) -> tuple[float, list[BoundedTest]]:
        """The least p-value times the number of questions, plus the chance that a total was missed;
        all answers. Strata in which nothing can vary are not asked.
        """
        # Where only one table is possible nothing is asked, and that is public.
        questions = [question for question in self.questions if self.weights(question).any()]
        if not questions:
            raise Refused(_NOTHING)
        work = 0
        for question in questions:
            cuts = len(ScoreCuts.from_scores(question.exact).heights)
            for upper in ScoreCuts.from_scores(question.noisy).uppers:
                for stratum in question.strata:
                    low, high = self.ranges[upper, stratum]
                    work += cuts * min(high - low + 1, 130)
        if work > _MOST_LAWS:
            raise Refused(
                f"{len(questions):,} questions with so many plausible totals take too long:"
                " publish the totals exactly, or ask of fewer levels or strata"
            )
        answers = [self.answer(question) for question in questions]
        least = min(answer.p_value(alternative) for answer in answers)
        return min(1.0, MISS + len(answers) * least), answers

    def weights(self, question: ScoreQuestion) -> Floats:
        """Weights of the cells in the statistic.

        A stratum has the weight ``H / (H + N)``, with N the variance of its noise and H the
        hypergeometric one for equal totals of the levels: the true ones are not known, and
        estimates would depend on the noise.
        """
        weights = np.zeros(self.estimate.shape)
        for stratum in question.strata:
            sizes = self.sizes[:, stratum].astype(np.float64)
            n = sizes.sum()
            if n < 2:
                continue
            centred = question.exact - sizes @ question.exact / n
            part = np.zeros(self.estimate.shape)
            part[:, :, stratum] = np.outer(centred, question.noisy - question.noisy.min())
            variance = float(sizes @ centred**2 * question.noisy.var() * n / (n - 1))
            if variance > 0:
                share = 1.0
                if len(question.strata) > 1:
                    share = variance / (variance + self.collect_noise(part).variance)
                weights += share * part
        return weights

    def _scale(self, weights: Floats, question: ScoreQuestion, stratum: int) -> float:
        """What a stratum is multiplied by in the statistic."""
        span = float(np.ptp(question.exact) * np.ptp(question.noisy))
        used = weights[:, :, stratum]
        # The corner of the largest scores less that of the smallest: both differences are scores
        # times the scale.
        top, bottom = int(question.exact.argmax()), int(question.exact.argmin())
        last, first = int(question.noisy.argmax()), int(question.noisy.argmin())
        corners = used[top, last] - used[top, first] - used[bottom, last] + used[bottom, first]
        return float(corners / span)

    def _parts(
        self, question: ScoreQuestion, stratum: int
    ) -> list[tuple[float, int, tuple[int, int]]]:
        """Height, exact size and plausible totals of every pair of cuts."""
        parts = []
        exact, noisy = ScoreCuts.from_scores(question.exact), ScoreCuts.from_scores(question.noisy)
        for height, upper in zip(exact.heights, exact.uppers, strict=True):
            size = int(self.sizes[list(upper), stratum].sum())
            for rise, levels in zip(noisy.heights, noisy.uppers, strict=True):
                parts.append((height * rise, size, self.ranges[levels, stratum]))
        return parts

    def _largest_spread(self, question: ScoreQuestion, stratum: int, scale: float) -> float:
        n = int(self.sizes[:, stratum].sum())
        spread = 0.0
        for height, size, (low, high) in self._parts(question, stratum):
            nearest = min(max(n // 2, low), high)
            spread += height * math.sqrt(hypergeometric_variance(n, size, nearest))
        return scale * spread

    def _law(self, question: ScoreQuestion, stratum: int, scale: float, step: float) -> GridLaw:
        """Law that lies above that of one stratum's sum in the convex order, for all plausible
        totals.
        """
        n = int(self.sizes[:, stratum].sum())
        laws, heights = [], []
        for height, size, (low, high) in self._parts(question, stratum):
            laws.append(above_totals(n, size, low, high, step))
            heights.append(scale * height)
        return sum_comonotone(laws, heights)


def noise_terms(asked: CrossedTable, weights: Floats) -> NoiseTerms:
    """The noise of one weighted sum of the cells of a released table, where it is a sum of
    independent numbers.
    """
    measured = asked.measured
    pulled = asked.pull_weights(weights[None])[0]
    if isinstance(measured, MeasuredTable):
        mechanism = measured.mechanism
        if isinstance(mechanism, NoNoise):
            return NoiseTerms(())
        if isinstance(mechanism, SharedNoise):
            laws, which = mechanism.entry_laws
            entries = mechanism.combination({measured.number: pulled})
            return NoiseTerms.from_weights(laws, which.ravel(), entries.ravel())
        if isinstance(mechanism, CellByCell):
            cells = mechanism.space.project(pulled).ravel()
            return NoiseTerms.from_weights(
                [mechanism.sampler], np.zeros(len(cells), dtype=np.intp), cells
            )
    raise Refused(
        "with noisy totals of many levels or strata the noise must be drawn number by number"
        f" (Gaussian or Laplace noise in cells, or a product), not {measured.noise_name} noise:"
        " publish the totals exactly"
    )


def unknown_totals(
    asked: CrossedTable, rows_exact: bool, questions: tuple[ScoreQuestion, ...]
) -> UnknownTotals:
    """A released table as these tests see it: the feature with exact totals stands first."""
    if rows_exact:
        estimate, sizes = asked.estimate, asked.row_totals
    else:
        estimate, sizes = asked.estimate.swapaxes(0, 1), asked.column_totals

    def collect_noise(weights: Floats) -> NoiseTerms:
        return noise_terms(asked, weights if rows_exact else weights.swapaxes(0, 1))

    return UnknownTotals(estimate, sizes, collect_noise, questions)


def cut_scores(levels: int, scores: Sequence[float] | None) -> list[Floats]:
    """The scores that a feature is asked about: its own, those of two levels, or each level against
    the others.

    >>> [each.tolist() for each in cut_scores(2, None)], len(cut_scores(3, None))
    ([[0.0, 1.0]], 3)
    """
    if scores is not None:
        return [np.asarray(scores, dtype=np.float64)]
    if levels == 2:
        return [np.array([0.0, 1.0])]
    return list(np.eye(levels))


def asked_questions(
    exact: Sequence[Floats], noisy: Sequence[Floats], strata: int, pooled: bool
) -> tuple[ScoreQuestion, ...]:
    """Every pair of scores, in all strata together or in each."""
    every = tuple(range(strata))
    groups = [every] if pooled else [(stratum,) for stratum in every]
    questions = []
    for one in exact:
        for other in noisy:
            questions += [ScoreQuestion(one, other, group) for group in groups]
    return tuple(questions)
