"""The odds ratio of two features of two levels, common to strata, from a release: an interval.

Given both margins of every stratum and the odds ratio, the tables have a known distribution, and so
does the noise. The pooled sum of `association` is tested for every odds ratio; those that are not
rejected form the interval. If the totals of one feature are noisy, the statistic is that of the
pooled test in `unknown_totals`: given odds ratio and totals, counts are noncentral hypergeometric,
and stratum by stratum a distribution above those of all plausible totals bounds the tails. The
private test is in `semidp.publish.statistics.odds_ratio`.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.inference.answers import Covers, IntervalEstimate
from semidp.inference.independence import (
    MISS,
    CrossedTable,
    check_draws,
    crossed_table,
)
from semidp.inference.measured import Cells, measured_table
from semidp.inference.models import model
from semidp.inference.unknown_totals import (
    GridLaw,
    NoiseTerms,
    ScoreQuestion,
    SumLaw,
    UnknownTotals,
    above_all,
    asked_questions,
    choose_step,
    cut_scores,
    unknown_totals,
)
from semidp.promise.documents import Encodable
from semidp.promise.exact import bisection
from semidp.promise.noise.randomness import Randomness, SystemRandomness, generator
from semidp.publish.statistics.odds_ratio.umpu import IntegerLaw, TwoByTwo
from semidp.publish.statistics.outcomes.noise_law import TIED
from semidp.publish.written_values import check_level

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue


Floats = NDArray[np.float64]

_FARTHEST = 40.0  # log odds ratio at which a table has no other choice left
_FIRST_STEP = 0.25  # away from the estimate, in the search for an end; doubled each time
_NOISY_HALVINGS = 9  # of the last step: an end is off by less than a hundredth of its distance
_MOST_MASSES = 3_000_000  # probabilities of all laws for one odds ratio: two minutes in all
_UNSEEN = 1e-25  # of the largest probability: less is left out


def end_beyond(kept: Callable[[float], bool], start: float, direction: int) -> float:
    """The last log odds ratio that is kept from start on, upward (1) or downward (-1), rounded
    outward; infinite if all are kept, and at the other end if none is.

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
            return bisection(kept, inside, outside, halvings=_NOISY_HALVINGS)[1]
        inside, step = outside, 2 * step
    return math.copysign(math.inf, direction)


@frozen
class BoundedStratum:
    """One stratum: groups of exact size, and a range of totals of the counted level.

    Parameters
    ----------
    n, group
        The number of records, and of those in the group whose cases are counted.
    low, high
        The least and the largest plausible number of cases.
    scale
        The factor of the stratum in the statistic.

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
        """The distribution of the cases in the group for every plausible total."""
        every = []
        for total in range(self.low, self.high + 1):
            law = TwoByTwo(self.group, total, self.n).law_for_log_odds(log_odds)
            every.append((total, law))
        return every

    def mean(self, law: IntegerLaw, total: int) -> float:
        """The mean of the cases less that under independence, times the scale."""
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


@frozen(slots=False, eq=False)
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
        """Refuse strata that cannot vary, and computations that take too long."""
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
        """The log odds ratio for which the mean of S is the published value, at the middle of
        the plausible totals; infinite if there is none.
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


_HALVINGS = 24  # of the distance to it: five digits
_MOST_DRAWN = 5 * 10**6  # uniform numbers that are held at once
_FEWEST = 199  # draws, if there are many strata
_ALL_REJECTED = "Every odds ratio is rejected: the noise put the sum beyond all tables."


@frozen
class CommonOddsRatio(Encodable):
    """An odds ratio that is common to strata, with its interval: for the population.

    Parameters
    ----------
    rows, columns, strata
        The features.
    compared
        The first level of rows and of columns: the odds ratio is ``x11 x22 / (x12 x21)``.
    table, noise
        Which published table was asked, and the law of its noise.
    value
        The odds ratio for which the mean of the pooled sum is the published value: without
        noise, the conditional maximum likelihood estimate.
    low, high, level
        The interval; `high` may be infinite, which is None in JSON.
    varying
        How many strata can vary: the others are not informative.
    draws
        How many tables with noise were simulated; 0 if a bound takes the place of a simulation.
    notes
        What a reader must know.
    noisy_totals
        The feature whose totals are noisy: the interval then holds for all plausible totals, at
        least as often as stated.
    approximate
        Whether value and interval come from a logistic coefficient instead, because the exact
        interval had an open end.
    """

    rows: str
    columns: str
    strata: tuple[str, ...]
    compared: tuple[str, str]
    table: str
    noise: str
    value: float
    low: float
    high: float
    level: float
    varying: int
    draws: int
    notes: tuple[str, ...] = ()
    noisy_totals: tuple[str, ...] = ()
    approximate: bool = False

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@frozen(eq=False)
class PooledSum:
    """``S = Σ w_k (x11k + noise)`` over strata with known margins: its law for every odds ratio.

    x11k has Fisher's noncentral hypergeometric law. It grows with the odds ratio: tables are drawn
    for all odds ratios from the same uniform numbers, so each simulated S grows too, and the
    share of those above a number is monotone. At the true odds ratio the published and the
    simulated sums are exchangeable, so each tail is a p-value for any number of draws.

    Parameters
    ----------
    margins, weights
        Of the strata that vary.
    uniforms
        A row a stratum, one column per draw.
    errors
        The noise of S in each draw.

    Examples
    --------
    >>> source = np.random.default_rng(1)
    >>> margins = (TwoByTwo(5, 5, 10), TwoByTwo(4, 6, 10))
    >>> uniforms, errors = source.random((2, 999)), source.normal(0, 1, 999)
    >>> pooled = PooledSum(margins, np.ones(2), uniforms, errors)
    >>> low, high = pooled.interval(7.0, 0.9)
    >>> low < pooled.estimate(7.0) < high
    True
    """

    margins: tuple[TwoByTwo, ...]
    weights: Floats
    uniforms: Floats = field(repr=False)
    errors: Floats = field(repr=False)

    def mean(self, log_odds: float) -> float:
        """The mean of S."""
        means = [margins.law_for_log_odds(log_odds).mean for margins in self.margins]
        return float(np.dot(self.weights, means))

    def simulate_sums(self, log_odds: float) -> Floats:
        """Simulated sums."""
        total = self.errors.copy()
        for margins, weight, uniform in zip(self.margins, self.weights, self.uniforms, strict=True):
            law = margins.law_for_log_odds(log_odds)
            places = np.searchsorted(np.cumsum(law.pmf), uniform)
            # Rounding may leave the last sum below 1.
            counts = np.minimum(law.first + places, law.last)
            total += weight * counts
        return total

    def tails(self, seen: Floats, log_odds: float) -> tuple[Floats, Floats]:
        """p-values of an odds ratio against larger ones and against smaller ones."""
        sums = np.sort(self.simulate_sums(log_odds))
        near = TIED * (np.abs(seen) + 1.0)
        draws = len(sums)
        above = draws - np.searchsorted(sums, seen - near, side="left")
        below = np.searchsorted(sums, seen + near, side="right")
        return (1 + above) / (1 + draws), (1 + below) / (1 + draws)

    def interval(self, seen: float, level: float) -> tuple[float, float]:
        """The odds ratios that neither tail rejects at ``(1 - level) / 2``; ends are rounded
        outward.
        """
        least = (1 - level) / 2
        number = np.asarray(seen)

        def not_too_small(log_odds: float) -> bool:
            return float(self.tails(number, log_odds)[0]) > least

        def not_too_large(log_odds: float) -> bool:
            return float(self.tails(number, log_odds)[1]) > least

        low = _end(not_too_small, inside=_FARTHEST, outside=-_FARTHEST)
        high = _end(not_too_large, inside=-_FARTHEST, outside=_FARTHEST)
        return math.exp(low), math.exp(high)

    def estimate(self, seen: float) -> float:
        """The odds ratio for which S has this mean; 0 or infinity if there is none."""
        log_odds = _end(lambda at: self.mean(at) >= seen, inside=_FARTHEST, outside=-_FARTHEST)
        return math.exp(log_odds)


def _end(kept: Callable[[float], bool], inside: float, outside: float) -> float:
    """The last log odds ratio that is kept on the way from inside to outside, rounded outward;
    infinite where all are, or none.
    """
    if kept(outside):
        return math.copysign(math.inf, outside)
    if not kept(inside):
        return math.copysign(math.inf, inside)
    # The second of the two is the first that is not kept.
    return bisection(kept, inside, outside, halvings=_HALVINGS)[1]


def common_odds_ratio(
    release: "ReleaseValue",
    rows: str,
    columns: str,
    strata: Iterable[str] = (),
    *,
    level: float = 0.95,
    table: str | None = None,
    draws: int | None = None,
    randomness: Randomness | None = None,
) -> CommonOddsRatio:
    """Return an odds ratio that is common to strata with an interval, at no cost in privacy.

    The strata are weighted as in the pooled test, by what the noise leaves of them. The interval
    has at least the stated coverage for every odds ratio, whatever the noise and however few the
    records. The totals of one feature must be exact within strata. If those of the other are noisy,
    the interval holds for all plausible ones (`NoisyOdds`); if it has an open end, the answer is
    the coefficient of a logistic model (`model`), an approximation, and says so.

    Parameters
    ----------
    release
        A release with a table of the features.
    rows, columns
        Features of two levels.
    strata
        Features within whose combinations the odds ratio is the same.
    level
        The confidence level.
    table
        Which table (default: the smallest with the features).
    draws
        How many tables are simulated.
    randomness
        For the simulation (default: the operating system).

    Examples
    --------
    >>> import semidp
    >>> people = {"sex": [*"ffmm"] * 25, "vote": [*"yyynnnny"] * 12 + [*"yyyn"]}
    >>> plan = semidp.Plan(
    ...     [semidp.publish.TableRequest(["sex", "vote"], semidp.Budget.gdp(1))], ["sex", "vote"]
    ... )
    >>> answer = common_odds_ratio(semidp.run(plan, people), "sex", "vote")
    >>> answer.compared, answer.low <= answer.value <= answer.high
    (('f', 'n'), True)
    """
    check_level(level, "the confidence level")
    asked = crossed_table(release, rows, columns, tuple(strata), table)
    if asked.shape[:2] != (2, 2):
        raise InputError(
            f"an odds ratio is of two features of two levels, and {rows} has {asked.shape[0]} and"
            f" {columns} has {asked.shape[1]}"
        )
    if not any(asked.exact):
        within = f" within {', '.join(asked.strata)}" if asked.strata else ""
        terms = " + ".join((rows, *asked.strata))
        raise Refused(
            f"the interval needs the totals of {rows} or of {columns} exactly{within}, and both are"
            f' noisy: semidp model RELEASE "{columns} ~ {terms}" has the odds ratio as a'
            " coefficient, by an approximation"
        )
    if not all(asked.exact):
        bounded = _bound_ratio(asked, level)
        is_open = bounded.low == 0.0 or math.isinf(bounded.high)
        return _by_model(release, bounded) if is_open else bounded
    source = SystemRandomness() if randomness is None else randomness
    if draws is None:
        # Fewer tables if there are many strata: the interval is valid for any number.
        most = max(_FEWEST, _MOST_DRAWN // asked.shape[2])
        draws = min(asked.measured.draws, most)
    check_draws(draws)
    return _simulate_ratio(asked, level, draws, source)


def _simulate_ratio(
    asked: CrossedTable, level: float, draws: int, randomness: Randomness
) -> CommonOddsRatio:
    margins = []
    for stratum in range(asked.shape[2]):
        rows = asked.row_totals[:, stratum].tolist()
        columns = asked.column_totals[:, stratum].tolist()
        margins.append(TwoByTwo(rows[0], columns[0], sum(rows)))
    varying = [k for k, table in enumerate(margins) if not table.degenerate]
    if not varying:
        raise Refused("the margins leave only one table in every stratum: every odds ratio fits")
    if len(varying) * draws > _MOST_DRAWN:
        raise Refused(
            f"{len(varying):,} strata times {draws:,} draws are too many: ask for at most"
            f" {_MOST_DRAWN // len(varying):,} draws, or for coarser strata"
        )
    # The first cell of each stratum that varies.
    corners = np.zeros((len(varying), *asked.shape))
    corners[np.arange(len(varying)), 0, 0, varying] = 1.0
    chosen = tuple(margins[k] for k in varying)
    spread = np.array([table.law().variance for table in chosen])
    weights = spread / (spread + asked.weigh_noise(corners).standard_errors ** 2)
    pooled = np.einsum("k,kijl->ijl", weights, corners)
    seen = float((pooled * asked.estimate).sum())
    draw_noise = asked.weigh_noise(pooled[None]).draw
    errors = draw_noise(draws, randomness)[:, 0]
    uniforms = generator(randomness).random((len(varying), draws))
    law = PooledSum(chosen, weights, uniforms, errors)
    ends = law.interval(seen, level)
    return _common_ratio(asked, law.estimate(seen), ends, level, len(varying), draws)


def _common_ratio(
    asked: CrossedTable,
    value: float,
    ends: tuple[float, float],
    level: float,
    varying: int,
    draws: int,
) -> CommonOddsRatio:
    """The answer with its features, its table and its notes; `ends` are those of the interval."""
    low, high = ends
    notes = asked.notes
    if low == math.inf or high == 0.0:
        notes = (*notes, _ALL_REJECTED)
    return CommonOddsRatio(
        **asked.named,
        compared=_first_levels(asked),
        value=value,
        low=low,
        high=high,
        level=level,
        varying=varying,
        draws=draws,
        notes=notes,
        noisy_totals=asked.noisy_names,
    )


def _first_levels(asked: CrossedTable) -> tuple[str, str]:
    """The first level of rows and of columns."""
    schema = asked.measured.schema
    first = []
    for name in (asked.rows, asked.columns):
        feature = schema.features[schema.axis(name)]
        first.append(next(iter(feature.leaves_below(name))))
    return first[0], first[1]


def _bound_ratio(asked: CrossedTable, level: float) -> CommonOddsRatio:
    """The interval where one of the two features has noisy totals: nothing is simulated."""
    two_levels = cut_scores(2, None)
    questions = asked_questions(two_levels, two_levels, asked.shape[2], pooled=True)
    odds = NoisyOdds(unknown_totals(asked, questions))
    ends = odds.interval(level)
    value = math.exp(odds.log_estimate)
    answer = _common_ratio(asked, value, ends, level, len(odds.upper), draws=0)
    note = (
        f"The totals of {asked.noisy_names[0]} are noisy: the interval holds for all plausible"
        f" totals, at least as often as stated; the chance of {MISS:g} that these miss is"
        " part of it."
    )
    return evolve(answer, notes=(note, *answer.notes))


def _by_model(release: "ReleaseValue", bounded: CommonOddsRatio) -> CommonOddsRatio:
    """The odds ratio as the coefficient of a logistic model, where the bound has an open end; the
    bound where the model has none either.
    """
    within = f" + {' * '.join(bounded.strata)}" if bounded.strata else ""
    formula = f"{bounded.columns} ~ {bounded.rows}{within}"
    try:
        fitted = model(release, formula, level=bounded.level, table=bounded.table)
    except (InputError, Refused):
        return bounded
    # The second level of the rows against the first, which is the same odds ratio; none where one
    # of them has no records.
    places = [at for at, name in enumerate(fitted.names) if name.startswith(f"{bounded.rows}[")]
    if len(places) != 1:
        return bounded
    (place,) = places
    logarithms = (fitted.coefficients[place], fitted.low[place], fitted.high[place])
    value, low, high = (math.exp(number) for number in logarithms)
    end = "without end" if math.isinf(bounded.high) else f"to {bounded.high:.3g}"
    note = (
        f"The totals of {bounded.noisy_totals[0]} are noisy, and the interval that holds for all"
        f" plausible totals has an open end ({bounded.low:.3g} {end}). This one is an approximation"
        f" instead: the coefficient of {bounded.rows} in the logistic model {formula} (semidp"
        " model)."
    )
    notes = (note, *bounded.notes[1:])
    return evolve(bounded, value=value, low=low, high=high, notes=notes, approximate=True)


def stratified_odds_ratio(
    release: "ReleaseValue",
    of: Cells,
    *,
    minus: Cells,
    among: Cells,
    strata: Iterable[str],
    level: float = 0.95,
    table: str | None = None,
    draws: int | None = None,
    randomness: Randomness | None = None,
) -> IntervalEstimate:
    """Compare two groups by an odds ratio common to strata, with the arguments of
    `Release.interval`.

    `of` names one level of a feature of two, `among` and `minus` the two levels of another.
    """
    levels = [_only_level(cells) for cells in (of, among, minus)]
    (column, case), (row, group), (other_row, other_group) = levels
    if row != other_row or group == other_group:
        raise InputError("⟨among⟩ and ⟨minus⟩ name two levels of one feature: the two groups")
    strata = tuple(strata)
    measured = measured_table(release, (row, column, *strata), table)
    for cells in (of, among, minus):
        # A level that the feature does not have is refused.
        measured.mask(cells)
    answer = common_odds_ratio(
        release,
        row,
        column,
        strata,
        level=level,
        table=table,
        draws=draws,
        randomness=randomness,
    )
    first_row, first_column = answer.compared
    ends = (answer.value, answer.low, answer.high)
    # The ratio is that of the first levels; it turns over for each level that is the second.
    if (group == first_row) != (case == first_column):
        value, high, low = (math.inf if end == 0 else 1 / end for end in ends)
        ends = (value, low, high)
    bounded = bool(answer.noisy_totals) and not answer.approximate
    return IntervalEstimate(
        *(ends[0], math.nan, ends[1], ends[2], level, Covers.both),
        exact=not answer.noisy_totals,
        bounded=bounded,
        note=answer.notes[0] if answer.approximate else "",
    )


def _only_level(cells: Cells) -> tuple[str, str]:
    """The one feature and the one level that cells name."""
    named = []
    for name, labels in cells.items():
        each = [labels] if isinstance(labels, str) else list(labels)
        named += [(name, label) for label in each]
    if len(named) != 1:
        raise InputError(
            "an odds ratio within ⟨strata⟩ compares two groups: ⟨of⟩, ⟨among⟩ and ⟨minus⟩ name one"
            " level each"
        )
    return named[0]
