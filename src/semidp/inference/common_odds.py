"""The odds ratio of two features of two levels, common to strata, from a release: an exact
interval.

Given both margins of every stratum and the odds ratio, the tables have a known law, and so has the
noise. The pooled sum of `association` is tested for every odds ratio; those that are not rejected
are the interval. Where the totals of one feature are noisy, `noisy_odds` has the interval. What
spends a budget is in `semidp.publish.statistics.odds_ratio`.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.inference.answers import Covers, IntervalEstimate
from semidp.inference.crossed_table import CrossedTable, crossed_table
from semidp.inference.independence import check_draws
from semidp.inference.measured import Cells, measured_table
from semidp.inference.models import model
from semidp.inference.noisy_odds import NoisyOdds
from semidp.inference.noisy_totals import exact_sides
from semidp.inference.unknown_totals import MISS, asked_questions, cut_scores, unknown_totals
from semidp.promise.exact import bisection, check_level
from semidp.promise.noise.randomness import Randomness, SystemRandomness, generator
from semidp.publish.statistics.odds_ratio.hypergeometric import TwoByTwo

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue

Floats = NDArray[np.float64]

_FARTHEST = 40.0  # log odds ratio at which a table has no other choice left
_HALVINGS = 24  # of the distance to it: five digits
_TIED = 1e-9  # relative: equal sums may differ in their last digits
_MOST_DRAWN = 5 * 10**6  # uniform numbers that are held at once
_FEWEST = 199  # draws, where there are many strata
_ALL_REJECTED = "Every odds ratio is rejected: the noise put the sum beyond all tables."


@dataclass(frozen=True)
class CommonOddsRatio:
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
        The odds ratio under which the pooled sum has the published value as its mean: without
        noise the conditional maximum of the likelihood.
    low, high, level
        The interval; `high` may be infinite.
    varying
        How many strata can vary: the others say nothing.
    draws
        How many tables with noise were simulated; 0 where a bound takes the place of a simulation.
    notes
        What a reader must know.
    noisy_totals
        The feature whose totals are noisy: the interval then holds for all plausible totals, at
        least as often as stated.
    approximate
        Whether value and interval are the coefficient of a logistic model instead, since that
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

    def to_json(self) -> dict[str, Any]:
        """Return the answer as plain values; an open end is None."""
        ends = {}
        for name in ("value", "low", "high"):
            number = getattr(self, name)
            ends[name] = number if math.isfinite(number) else None
        features = {"rows": self.rows, "columns": self.columns, "strata": list(self.strata)}
        asked = {"compared": list(self.compared), "table": self.table, "noise": self.noise}
        counted = {"level": self.level, "varying": self.varying, "draws": self.draws}
        lists = {"notes": list(self.notes), "noisy_totals": list(self.noisy_totals)}
        return {**features, **asked, **ends, **counted, **lists, "approximate": self.approximate}


@dataclass(frozen=True, eq=False)
class PooledSum:
    """``S = Σ w_k (x11k + noise)`` over strata with known margins: its law for every odds ratio.

    x11k has Fisher's noncentral hypergeometric law. It grows with the odds ratio: tables are drawn
    for all odds ratios from the same uniform numbers, so that each simulated S grows too, and the
    share of those above a number is monotone. For one odds ratio the published and the simulated
    sums are exchangeable where it is the true one, so that each tail is a p-value for any number of
    draws.

    Parameters
    ----------
    margins, weights
        Of the strata that vary.
    uniforms
        A row a stratum, a column a draw.
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
        near = _TIED * (np.abs(seen) + 1.0)
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
        """The odds ratio for which S has this mean; 0 or infinity where none has."""
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

    The strata are weighed as in the pooled test, by what the noise leaves of them. The interval
    holds for every odds ratio with at least the level, whatever the noise and however few the
    records. The totals of one feature must be exact within strata. If those of the other are noisy,
    the interval holds for all that are plausible (`noisy_odds`); where it has an open end, the
    answer is the coefficient of a logistic model (`model`), by an approximation, and says so.

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
        Which table; the smallest with the features unless given.
    draws
        How many tables are simulated.
    randomness
        For the simulation; the operating system unless given.

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
    sides = exact_sides(release, asked)
    if not any(sides):
        within = f" within {', '.join(asked.strata)}" if asked.strata else ""
        terms = " + ".join((rows, *asked.strata))
        raise Refused(
            f"the interval needs the totals of {rows} or of {columns} exactly{within}, and both are"
            f' noisy: semidp model RELEASE "{columns} ~ {terms}" has the odds ratio as a'
            " coefficient, by an approximation"
        )
    if not all(sides):
        bounded = _bound_ratio(asked, sides[0], level)
        is_open = bounded.low == 0.0 or math.isinf(bounded.high)
        return _by_model(release, bounded) if is_open else bounded
    source = SystemRandomness() if randomness is None else randomness
    if draws is None:
        # Fewer tables where there are many strata: the interval is valid for any number.
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
    weights = spread / (spread + asked.noise_variances(corners))
    pooled = np.einsum("k,kijl->ijl", weights, corners)
    seen = float((pooled * asked.estimate).sum())
    draw_noise = asked.noise_law(pooled[None])
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
        asked.rows,
        asked.columns,
        asked.strata,
        _first_levels(asked),
        asked.measured.name,
        asked.measured.noise_name,
        value,
        low,
        high,
        level,
        varying,
        draws,
        notes,
    )


def _first_levels(asked: CrossedTable) -> tuple[str, str]:
    """The first level of rows and of columns."""
    schema = asked.measured.schema
    first = []
    for name in (asked.rows, asked.columns):
        feature = schema.features[schema.axis(name)]
        first.append(next(iter(feature.leaves_below(name))))
    return first[0], first[1]


def _bound_ratio(asked: CrossedTable, rows_exact: bool, level: float) -> CommonOddsRatio:
    """The interval where one of the two features has noisy totals: nothing is simulated."""
    two_levels = cut_scores(2, None)
    questions = asked_questions(two_levels, two_levels, asked.shape[2], pooled=True)
    odds = NoisyOdds(unknown_totals(asked, rows_exact, questions))
    ends = odds.interval(level)
    value = math.exp(odds.log_estimate)
    answer = _common_ratio(asked, value, ends, level, len(odds.upper), draws=0)
    noisy = asked.columns if rows_exact else asked.rows
    note = (
        f"The totals of {noisy} are noisy: the interval holds for all plausible totals, at least as"
        f" often as stated; the chance of {MISS:g} that these miss is part of it."
    )
    return replace(answer, notes=(note, *answer.notes), noisy_totals=(noisy,))


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
    return replace(bounded, value=value, low=low, high=high, notes=notes, approximate=True)


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
    """Compare two groups by an odds ratio that is common to strata, in the words of
    `Release.interval`.

    `of` names one level of a feature of two, `among` and `minus` the two levels of another.
    """
    levels = [_only_level(cells) for cells in (of, among, minus)]
    (column, case), (row, group), (other_row, other_group) = levels
    if row != other_row or group == other_group:
        raise InputError("--among and --minus name two levels of one feature: the two groups")
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
            "an odds ratio within --strata compares two groups: --of, --among and --minus name one"
            " level each"
        )
    return named[0]
