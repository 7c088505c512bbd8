"""Tests of association if one of the two features has noisy totals: any number of levels, strata
and scores.

The exact feature centers the statistic, so its mean is 0 whatever the unknown totals are. Its
spread is bounded over all plausible totals in the convex order, stratum by stratum: they need not
be tried together, and nothing is simulated. X is below Y in the convex order if ``E φ(X) <= E
φ(Y)`` for every convex φ: equal means, and Y spreads more. Sums of independent numbers keep the
order, and for each unknown total there is a distribution above those of all plausible totals.
Distributions live on the multiples of a step; mass between two of them is split, which spreads it.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.inference.independence import MISS, CrossedTable
from semidp.publish.half_widths import Weighted
from semidp.publish.noise_laws import bound_log_moment, transform_law
from semidp.publish.statistics.odds_ratio.umpu import Alternative

Floats = NDArray[np.float64]

_POINTS = 1 << 15
# standard deviations to each side: Laplace noise lies further out once in 10^14 draws
_REACH = 24.0
# steps of normal noise that are added: the Fourier series then ends before its last frequency
_SMOOTHING = 3.0
_NUMERICAL = 1e-9  # rounding and what lies outside of the circle
_NEAR = 0.05  # standard deviations: no line starts closer to the bound than this
_WINDOW = 14.0  # standard deviations of a hypergeometric law that are looked at, and 40 more
_UNSEEN = 1e-25  # of the largest probability: less is left out
_MOST_TOTALS = 64  # beyond these, totals are taken block by block


@frozen(eq=False)
class GridLaw:
    """A law with mean 0 on the multiples of a step.

    Parameters
    ----------
    step
        The distance of neighboring points.
    start
        The number of the first point: it lies at ``start * step``.
    masses
        The probabilities from there on.
    """

    step: float
    start: int
    masses: Floats = field(repr=False)

    @classmethod
    def split(cls, values: Floats, masses: Floats, step: float) -> "GridLaw":
        """Put each value on its two neighbors in the grid, so the mean stays: a law above in
        the convex order.

        >>> GridLaw.split(np.array([-0.25, 0.75]), np.array([0.75, 0.25]), 1.0).masses.tolist()
        [0.1875, 0.625, 0.1875]
        """
        places = values / step
        below = np.floor(places)
        share = places - below
        start = int(below.min())
        index = below.astype(np.int64) - start
        size = int(index.max()) + 2
        grid = np.bincount(index, masses * (1 - share), size) + np.bincount(
            index + 1, masses * share, size
        )
        return cls(step, start, np.asarray(grid))

    @property
    def values(self) -> Floats:
        """The points of the law."""
        return np.asarray(self.step * (self.start + np.arange(len(self.masses))), dtype=np.float64)

    @property
    def variance(self) -> float:
        """The variance of the law."""
        return float(self.masses @ self.values**2)

    def excesses(self, start: int, size: int) -> Floats:
        """``E (X - a)_+`` in steps, for a at `size` points of the grid. They must reach beyond the
        end of the law.
        """
        masses = np.zeros(size)
        first = self.start - start
        masses[first : first + len(self.masses)] = self.masses
        # What lies above a counts once for each step between: two sums from the right.
        above = np.cumsum(masses[::-1])[::-1] - masses
        return np.asarray(np.cumsum(above[::-1])[::-1])


def above_all(laws: Sequence[GridLaw]) -> GridLaw:
    """The least law above several, in the convex order: the largest of their mean excesses
    belongs to a law.

    The mean excess ``a ↦ E (X - a)_+`` is convex, and so is the largest of several; its second
    differences are the masses.

    >>> one = GridLaw(1.0, -1, np.array([0.5, 0.0, 0.5]))
    >>> other = GridLaw(1.0, -2, np.array([0.1, 0.0, 0.8, 0.0, 0.1]))
    >>> above_all([one, other]).masses.round(3).tolist()
    [0.1, 0.3, 0.2, 0.3, 0.1]
    """
    if len(laws) == 1:
        return laws[0]
    start = min(law.start for law in laws) - 1
    end = max(law.start + len(law.masses) for law in laws) + 1
    largest = laws[0].excesses(start, end - start)
    for law in laws[1:]:
        largest = np.maximum(largest, law.excesses(start, end - start))
    masses = np.maximum(largest[2:] - 2 * largest[1:-1] + largest[:-2], 0.0)
    return GridLaw(laws[0].step, start + 1, masses / masses.sum())


def sum_comonotone(laws: Sequence[GridLaw], weights: Sequence[float]) -> GridLaw:
    """The law of a weighted sum whose terms rise and fall together: above that of every other
    dependence.

    Quantiles add up (Dhaene and others, 2002). Weights are positive.

    >>> coin = GridLaw(1.0, -1, np.array([0.5, 0.0, 0.5]))
    >>> sum_comonotone([coin, coin], [1.0, 2.0]).masses.tolist()
    [0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5]
    """
    step = laws[0].step
    if len(laws) == 1 and weights[0] == 1:
        return laws[0]
    heights = [np.cumsum(law.masses) for law in laws]
    ends = np.unique(np.concatenate([*heights, [0.0, 1.0]]).clip(0.0, 1.0))
    masses = np.diff(ends)
    middles = (ends[1:] + ends[:-1]) / 2
    values = np.zeros(len(middles))
    for law, height, weight in zip(laws, heights, weights, strict=True):
        index = np.minimum(np.searchsorted(height, middles), len(height) - 1)
        values += weight * law.values[index]
    trimmed = GridLaw.split(values, masses, step)
    used = np.flatnonzero(trimmed.masses)
    return GridLaw(step, trimmed.start + int(used[0]), trimmed.masses[used[0] : used[-1] + 1])


def hypergeometric(n: int, marked: int, drawn: int, scale: float, step: float) -> GridLaw:
    """The number of marked records among those drawn, less its mean, times a scale.

    >>> hypergeometric(4, 2, 2, 1.0, 1.0).masses.round(4).tolist()  # 1, 4, 1 of 6
    [0.1667, 0.6667, 0.1667, 0.0]
    """
    least, most = max(0, drawn + marked - n), min(drawn, marked)
    mean = marked * drawn / n
    spread = math.sqrt(hypergeometric_variance(n, marked, drawn))
    # Far out the law is below every number that matters next to 1 in floating point.
    low = max(least, math.floor(mean - _WINDOW * spread - 40))
    high = min(most, math.ceil(mean + _WINDOW * spread + 40))
    x = np.arange(low, high, dtype=np.float64)
    ratios = (marked - x) * (drawn - x) / ((x + 1) * (n - marked - drawn + x + 1))
    logs = np.concatenate([[0.0], np.cumsum(np.log(ratios))])
    masses = np.exp(logs - logs.max())
    values = scale * (np.arange(low, high + 1) - mean)
    seen = masses > _UNSEEN
    return GridLaw.split(values[seen], masses[seen] / masses[seen].sum(), step)


def hypergeometric_variance(n: int, marked: int, drawn: int) -> float:
    """``n p q · t (n - t) / (n (n - 1))`` for p the share of marked records and t drawn ones.

    >>> hypergeometric_variance(4, 2, 2)
    0.333...
    """
    return marked * (n - marked) * drawn * (n - drawn) / (n * n * max(n - 1, 1))


def above_totals(n: int, marked: int, least: int, most: int, step: float) -> GridLaw:
    """A law above that of the centered number of marked records, for every number of drawn ones
    from least to most.

    Drawn one by one, the centered number divided by ``n - t`` is a martingale, so t records lie
    below ``(n - t) / (n - t')`` times those of a larger t'; in the same way from the other end.
    If there are many totals, one for each block is enough, times that factor.
    """
    totals = _blocks(n, least, most)
    return above_all([hypergeometric(n, marked, drawn, factor, step) for drawn, factor in totals])


def _blocks(n: int, least: int, most: int) -> list[tuple[int, float]]:
    """Totals with factors whose laws are above those of all totals from least to most.

    >>> _blocks(10, 2, 4)
    [(2, 1.0), (3, 1.0), (4, 1.0)]
    >>> len(_blocks(10_000, 0, 10_000)) <= 130
    True
    """
    if most - least < _MOST_TOTALS:
        return [(total, 1.0) for total in range(least, most + 1)]
    chosen = []
    width = math.ceil((most - least + 1) / _MOST_TOTALS)
    middle = n // 2
    # Below the middle a block is held by its largest total, above it by its least one.
    for first in range(least, min(most, middle) + 1, width):
        last = min(first + width - 1, most, middle)
        chosen.append((last, (n - first) / (n - last)))
    for first in range(max(least, middle + 1), most + 1, width):
        last = min(first + width - 1, most)
        chosen.append((first, last / first))
    return chosen


@frozen(eq=False)
class NoiseTerms:
    """Independent whole-number noise with weights."""

    terms: tuple[Weighted, ...]

    @property
    def variance(self) -> float:
        """The variance of the sum."""
        return sum(term.variance for term in self.terms)

    def bound_size(self, miss: float) -> float:
        """A number that the sum exceeds in size with probability at most `miss`: Chernoff's bound
        at some rates.
        """
        if not self.terms:
            return 0.0
        spread = math.sqrt(self.variance)
        best = math.inf
        for rate in np.geomspace(0.05 / spread, 50 / spread, 60).tolist():
            exponent = sum(
                term.count * bound_log_moment(term.law, rate * float(term.weight))
                for term in self.terms
            )
            best = min(best, (exponent + math.log(2 / miss)) / rate)
        return best

    def transform(self, frequency: Floats) -> Floats:
        """The characteristic function of the sum."""
        product = np.ones(len(frequency))
        for term in self.terms:
            factor = transform_law(term.law, float(term.weight) * frequency)
            product *= np.sign(factor) ** (term.count % 2) * np.abs(factor) ** term.count
        return product


def choose_step(variance: float) -> float:
    """The step of a grid for a sum of about this variance."""
    # A sum that cannot vary still needs a step.
    return 2 * _REACH * math.sqrt(max(variance, 1e-12)) / _POINTS


@frozen(slots=False, eq=False)
class SumLaw:
    """The law of a sum of independent numbers on a grid, the mean of which is 0 and lies in the
    middle.

    Parameters
    ----------
    step
        The distance of neighboring points.
    masses
        Their probabilities.
    """

    step: float
    masses: Floats = field(repr=False)

    @classmethod
    def from_terms(cls, laws: Iterable[GridLaw], noise: NoiseTerms, step: float) -> "SumLaw":
        """Add independent numbers and noise.

        Normal noise of a few steps is added, and the grid spreads what lies between its points:
        both only raise the law in the convex order.
        """
        angles = np.linspace(0.0, math.pi, _POINTS // 2 + 1)
        # The mean-preserving split of the noise to the grid is a hat around each point.
        hats = np.sinc(angles / (2 * math.pi)) ** 2
        smooth = np.exp(-((_SMOOTHING * angles) ** 2) / 2)
        transform = (noise.transform(angles / step) * hats * smooth).astype(np.complex128)
        for law in laws:
            circle = np.zeros(_POINTS)
            np.add.at(circle, (law.start + np.arange(len(law.masses))) % _POINTS, law.masses)
            transform *= np.fft.rfft(circle)
        return cls(step, np.maximum(np.fft.fftshift(np.fft.irfft(transform, _POINTS)), 0.0))

    @cached_property
    def points(self) -> Floats:
        """Where the masses lie."""
        places = np.arange(len(self.masses), dtype=np.float64) - len(self.masses) // 2
        return np.asarray(self.step * places)

    @cached_property
    def variance(self) -> float:
        """The variance of the sum."""
        return float(self.masses @ self.points**2)

    def bound_upper_tail(self, bound: float) -> float:
        """A bound of ``P(X >= s)`` for every X below this law W in the convex order.

        The line through (a, 0) and (s, 1) lies above the step at s, and its positive part is
        convex: ``P(X >= s) <= E (W - a)_+ / (s - a)`` for every a < s. The least of these counts:
        the mean of the largest W, a share p of them, is s (Shaked and Shanthikumar, 2007).

        >>> law = SumLaw.from_terms(
        ...     [hypergeometric(40, 20, 20, 1.0, choose_step(3.0))],
        ...     NoiseTerms(()),
        ...     choose_step(3.0),
        ... )
        >>> (
        ...     law.bound_upper_tail(0.0),
        ...     0.00018 < law.bound_upper_tail(6.0) < 0.0002,
        ... )  # P(X >= 6) is 0.00018
        (1.0, True)
        """
        # One step less makes up for rounding.
        distances = bound - self.step - self.points
        usable = int(np.count_nonzero(distances >= _NEAR * math.sqrt(self.variance)))
        if not usable:
            return 1.0
        least = float((self._excess[:usable] / distances[:usable]).min())
        return min(1.0, least + _NUMERICAL)

    def bound_lower_tail(self, bound: float) -> float:
        """A bound of ``P(X <= s)``, in the same way."""
        return self._mirror_law.bound_upper_tail(-bound)

    @cached_property
    def _excess(self) -> Floats:
        """``E (W - a)_+`` for a at every point."""
        above = np.cumsum(self.masses[::-1])[::-1] - self.masses
        return np.asarray(self.step * np.cumsum(above[::-1])[::-1])

    @cached_property
    def _mirror_law(self) -> "SumLaw":
        # The middle of an even number of points is mirrored onto itself: the first point has no
        # partner.
        masses = np.concatenate([[0.0], self.masses[:0:-1]])
        return SumLaw(self.step, masses)


Counts = NDArray[np.int64]

_MOST_LAWS = 60_000  # hypergeometric laws of one test: a minute
_NOTHING = "the exact totals (and scores) leave only one value of the statistic: nothing is tested"


@frozen(eq=False)
class ScoreQuestion:
    """One association to test for: scores of both features, common to some strata.

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


@frozen
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
        """Cut scores between each two neighbors."""
        values = np.unique(scores)
        uppers = tuple(tuple((scores >= value).tolist()) for value in values[1:])
        return cls(tuple(np.diff(values).tolist()), uppers)


@frozen(eq=False)
class BoundedTest:
    """The answer to a question: its signed statistic, and bounds of the probabilities beyond it
    on either side.

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


@frozen(slots=False, eq=False)
class UnknownTotals:
    """A noisy table by groups of exact size, by levels with noisy totals and by strata.

    With R the exact sizes of the groups of stratum k and n their sum, a question with scores u, v
    has the sum ``S_k = Σ (u_i - Σ R u / n) v_j y_ij``. Under independence its mean is 0 for all
    totals of the levels, and it is the sum over cuts of u and v of centered hypergeometric numbers,
    plus noise. Each of these is bounded over the plausible totals of its cut; cuts of one stratum
    are added as if they rose and fell together, strata independently.

    Parameters
    ----------
    estimate
        The noisy counts, (groups, levels, strata).
    sizes
        The exact sizes of the groups, (groups, strata).
    noise_of
        Returns, for weights of that shape, the noise of the weighted sum.
    questions
        All questions to be asked: the intervals of the totals must hold for all of them at once.
    """

    estimate: Floats = field(repr=False)
    sizes: Counts = field(repr=False)
    collect_noise: Callable[[Floats], NoiseTerms] = field(repr=False)
    questions: tuple[ScoreQuestion, ...] = field(repr=False)

    @cached_property
    def ranges(self) -> dict[tuple[tuple[bool, ...], int], tuple[int, int]]:
        """For each cut of the levels and each stratum the plausible totals, simultaneously except
        with probability `MISS`.
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


def unknown_totals(asked: CrossedTable, questions: tuple[ScoreQuestion, ...]) -> UnknownTotals:
    """A released table as these tests see it: the feature with exact totals stands first."""
    rows_exact = asked.exact[0]
    if rows_exact:
        estimate, sizes = asked.estimate, asked.row_totals
    else:
        estimate, sizes = asked.estimate.swapaxes(0, 1), asked.column_totals

    def collect_noise(weights: Floats) -> NoiseTerms:
        as_released = weights if rows_exact else weights.swapaxes(0, 1)
        noise = asked.measured.weigh_noise(asked.pull_weights(as_released[None]))
        if not noise.is_independent:
            raise Refused(
                "with noisy totals of many levels or strata the noise must be drawn number by"
                " number (Gaussian or Laplace noise in cells, or a product), not"
                f" {asked.measured.noise_name} noise: publish the totals exactly, or"
                " release the table with Laplace or Gaussian noise (⟨mechanism laplace⟩)"
            )
        return NoiseTerms(noise.terms(0))

    return UnknownTotals(estimate, sizes, collect_noise, questions)


def cut_scores(levels: int, scores: Sequence[float] | None) -> list[Floats]:
    """The scores for a feature: its own, those of two levels, or each level against the
    others.

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
