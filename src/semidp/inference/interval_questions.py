"""Intervals of counts, rates and differences from a release, at no cost in privacy.

The measurements come from `measured`, the methods from `answers` and `ratios`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from attrs import evolve, frozen

from semidp.errors import InputError, Refused
from semidp.inference.answers import (
    Covers,
    IntervalEstimate,
    TableIntervals,
    inverted_rate,
    linear_interval,
    mover_difference,
    normal_interval,
    overlapping_difference,
    ratio_interval,
    sampled_rate,
    sampled_shares,
    scaled_difference,
)
from semidp.inference.cell_bounds import CellBounds, whole_interval
from semidp.inference.linear_estimates import Floats, simulated_bound
from semidp.inference.measured import (
    MANY_CELLS,
    Cells,
    Measured,
    cluster_size,
    measured_table,
    select_public,
)
from semidp.inference.ratios import (
    NoisyRates,
    RateMeasure,
    fixed_risk_ratio,
    from_two_rates,
    sampled_comparison,
)
from semidp.promise.exact import format_value
from semidp.promise.noise.randomness import Randomness, SystemRandomness
from semidp.publish.written_values import check_level

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue


def estimate_interval(
    release: "ReleaseValue",
    of: Cells,
    minus: Cells | None,
    among: Cells | None,
    level: float,
    sampling: bool,
    table: str | None,
    draws: int | None,
    randomness: Randomness | None,
    measure: RateMeasure | str = RateMeasure.DIFFERENCE,
) -> IntervalEstimate:
    """Return a count, a rate, or a difference of two, with its interval; see `Release.interval`."""
    check_level(level, "the confidence level")
    measure = RateMeasure(measure)
    if measure is not RateMeasure.DIFFERENCE and (minus is None or among is None):
        raise InputError(
            f"a {measure} compares the rates in two groups: say among which, and minus which"
        )
    for cells in (of, minus, among):
        if not isinstance(cells, (Mapping, type(None))):
            raise InputError(
                'cells are given by their levels, such as {"sex": "f"}, not'
                f" {format_value(cells)}"
            )
    names = {name for cells in (of, minus, among) if cells is not None for name in cells}
    measured = measured_table(release, names, table)
    public = select_public(release, measured)
    bounds = CellBounds.from_dataspace(public, measured.schema.names)
    cluster = cluster_size(release, measured) if sampling else 1
    question = TableQuestion(
        measured, public.n or 0, bounds, level, sampling, draws, randomness, measure, cluster
    )
    return evolve(question.answer(of, minus, among), cluster=cluster)


@frozen
class TableQuestion:
    """A question about a measured table of n records: its level, its target, and the simulation of
    noise.

    `bounds` are the ranges allowed by the exact totals; they cut intervals for these records, never
    those for a population. `cluster` is the most records of one person.
    """

    measured: Measured
    n: float
    bounds: CellBounds
    level: float
    sampling: bool
    draws: int | None = None
    randomness: Randomness | None = None
    measure: RateMeasure = RateMeasure.DIFFERENCE
    cluster: int = 1

    def answer(self, of: Cells, minus: Cells | None, among: Cells | None) -> IntervalEstimate:
        """Return a count, a rate, or a difference of two."""
        chosen, mask = self.measured.mask(of), self.measured.mask
        if among is None:
            return self._count(chosen) if minus is None else self._difference(chosen, mask(minus))
        groups = [mask(cells) for cells in (among, minus) if cells is not None]
        parts = [(chosen * group, group) for group in groups]
        return self._rate(*parts[0]) if len(parts) == 1 else self._compared_rates(parts)

    def _compared_rates(self, parts: list[tuple[Floats, Floats]]) -> IntervalEstimate:
        """Compare the rates in two groups by `measure`."""
        if self.measure is RateMeasure.DIFFERENCE:
            return self._difference_of_rates(parts)
        apart = not (parts[0][1] * parts[1][1]).any()
        if self.sampling and apart:
            return sampled_comparison(self._noisy_rates(parts), self.measure, self.level)
        if self.sampling:
            raise Refused(f"a {self.measure} for a population needs groups without a common record")
        return self._ratio_of_rates(parts)

    def _noisy_rates(self, parts: list[tuple[Floats, Floats]]) -> NoisyRates:
        """The counts of two groups, with the covariance of their noise."""
        weights = np.stack([*parts[0], *parts[1]])
        sums = self.measured.sum_cells(weights)
        covariance = self.measured.weigh_noise(weights).covariance
        return NoisyRates(sums[::2], sums[1::2], covariance, self.cluster)

    def _ratio_of_rates(self, parts: list[tuple[Floats, Floats]]) -> IntervalEstimate:
        """A risk ratio or odds ratio of these records, from the law of the noise alone."""
        rates = self._noisy_rates(parts)
        first, second = (top for top, _ in parts)
        scale = max(float(rates.covariance.max()), 1e-300)
        # noise at the level of rounding: totals fix the numbers of records
        fixed = rates.covariance[1, 1] <= 1e-12 * scale and rates.covariance[3, 3] <= 1e-12 * scale
        usable = bool((rates.records > 0).all())
        if fixed and usable and self.measure is RateMeasure.RISK_RATIO:
            lines = first / rates.records[0], second / rates.records[1]
            drawn = self._simulate_errors(*lines)
            values = rates.cases / rates.records
            value = float(rates.estimate(self.measure))
            error = (
                self._error(lines[0] - value * lines[1]) / abs(values[1])
                if math.isfinite(value)
                else math.inf
            )
            return fixed_risk_ratio((values[0], values[1]), (drawn[0], drawn[1]), error, self.level)
        if fixed and usable and self._error(first + second) ** 2 <= 1e-12 * scale:
            # All cases of both groups are exact too: one count fixes the table.
            cases = self._count(first)
            total = float(rates.cases.sum())
            ends = [_odds_ratio(end, total, rates.records) for end in (cases.low, cases.high)]
            value = _odds_ratio(float(rates.cases[0]), total, rates.records)
            return evolve(cases, value=value, standard_error=math.nan, low=ends[0], high=ends[1])
        # Bonferroni: the two intervals hold together if each misses half as often
        sharper = evolve(self, level=(1 + self.level) / 2)
        one, two = (sharper._rate(top, bottom) for top, bottom in parts)
        return from_two_rates(one, two, self.measure, self.level)

    def _simulate_errors(self, *weights: Floats) -> list[Floats]:
        return list(self.measured.simulate_errors(np.stack(weights), self.draws, self.randomness).T)

    def _error(self, weights: Floats) -> float:
        return float(self.measured.errors(weights[None])[0])

    def _count(self, chosen: Floats) -> IntervalEstimate:
        n, value, error = (
            self.n,
            float(self.measured.sum_cells(chosen[None])[0]),
            self._error(chosen),
        )
        drawn = self._simulate_errors(chosen)[0]
        if not self.sampling:
            return linear_interval(value, error, drawn, self.bounds.span(chosen), self.level)
        noise, errors = (error**2, 0.0, 0.0), (drawn, np.zeros(len(drawn)))
        share = inverted_rate((value, n), noise, errors, self.level, self.cluster)
        return _times(n, evolve(share, value=value / n if n else math.nan))

    def _difference(self, one: Floats, other: Floats) -> IntervalEstimate:
        n, weights = self.n, one - other
        value, total = self.measured.sum_cells(np.stack([weights, weights**2])).tolist()
        error = self._error(weights)
        if not self.sampling:
            return linear_interval(
                value,
                error,
                self._simulate_errors(weights)[0],
                self._difference_span(weights),
                self.level,
                difference=True,
            )
        if not n:
            return normal_interval(0.0, 0.0, 0.0, (0.0, 0.0), self.level, Covers.both)
        # Cells on both sides cancel, so the two counts have no record in common.
        sides = [np.maximum(weights, 0.0), np.maximum(-weights, 0.0)]
        counts = self.measured.sum_cells(np.stack(sides)).tolist()
        noises = [self._error(side) ** 2 for side in sides]
        shares = [min(max(count / n, 0.0), 1.0) for count in counts]
        spread = self.cluster * max(total, 0.0)
        # under the hypothesis of equal counts their squared difference is 0
        null = math.sqrt(error**2 + spread) / n
        full = math.sqrt(error**2 + max(spread - self.cluster * value**2 / n, 0.0)) / n
        # Var(A - B) = Var(A) + Var(B) - 2 Cov(A, B), solved for the covariance
        common = (sum(noises) - error**2) / 2 / n**2
        return _times(
            n,
            mover_difference(
                [(count, n) for count in counts],
                [(noise, 0.0, 0.0) for noise in noises],
                common - self.cluster * shares[0] * shares[1] / n,
                (full, null),
                self.level,
                self.cluster,
            ),
        )

    def _rate(self, top: Floats, bottom: Floats) -> IntervalEstimate:
        cases, records = self.measured.sum_cells(np.stack([top, bottom])).tolist()
        v1, v12, v2 = self._noise_of_rate(top, bottom)
        if self.sampling:
            first, second = self._simulate_errors(top, bottom)
            noise = (v1, v12, v2)
            return inverted_rate((cases, records), noise, (first, second), self.level, self.cluster)
        if v2 == 0 and records > 0:
            drawn, span = self._simulate_errors(top)[0] / records, self._rate_span(top, bottom)
            value, error = cases / records, math.sqrt(v1) / records
            return linear_interval(value, error, drawn, span, self.level, among=round(records))
        rate = cases / records if records else math.nan
        error = self._error(top - rate * bottom) / abs(records) if records else math.inf
        first, second = self._simulate_errors(top, bottom)
        return ratio_interval(
            (cases, records), (first, second), error, self.level, self._rate_span(top, bottom)
        )

    def _noise_of_rate(self, top: Floats, bottom: Floats) -> tuple[float, float, float]:
        """Return the variance of the noise of the cases, its covariance with that of the records,
        and theirs.
        """
        cases, records, remaining = (
            self.measured.errors(np.stack([top, bottom, top - bottom])) ** 2
        ).tolist()
        # 2 Cov(A, B) = Var(A) + Var(B) - Var(A - B)
        return cases, (cases + records - remaining) / 2, records

    def _difference_span(self, weights: Floats) -> tuple[float, float]:
        """What the exact totals allow the sum of some cells less that of others to be."""
        (low, high), (less, most) = self.bounds.span(weights > 0), self.bounds.span(weights < 0)
        return low - most, high - less

    def _rate_span(self, top: Floats, bottom: Floats) -> tuple[float, float]:
        """What the exact totals allow a share to be: most cases with fewest others, and the
        other way round.
        """
        (low, high), (less, most) = self.bounds.span(top), self.bounds.span(bottom - top)
        return (low / (low + most) if low + most else 0.0), (
            high / (high + less) if high + less else 1.0
        )

    def _difference_of_rates(self, parts: list[tuple[Floats, Floats]]) -> IntervalEstimate:
        covers = Covers.both if self.sampling else Covers.noise
        sums = [self._sums(part) for part in parts]
        if any(records <= 0 for _, records in sums):
            return IntervalEstimate(math.nan, math.inf, -1.0, 1.0, self.level, covers, False, 1.0)
        if self.sampling:
            nested = self._inner_and_rest(parts)
            return self._sampled_difference(parts) if nested is None else nested
        value = sums[0][0] / sums[0][1] - sums[1][0] / sums[1][1]
        weights = self._difference_line(parts)
        noise = self._error(weights)
        (low, high), (less, most) = (self._rate_span(*part) for part in parts)
        span = (low - most, high - less)
        if any(self._error(bottom) for _, bottom in parts):
            return normal_interval(value, noise, noise, span, self.level, covers)
        drawn = self._simulate_errors(weights)[0]
        # the difference of two such rates is a multiple of one over this number
        every = math.lcm(*(round(records) for _, records in sums))
        return linear_interval(value, noise, drawn, span, self.level, difference=True, among=every)

    def _sampled_difference(
        self, parts: list[tuple[Floats, Floats]], span: tuple[float, float] = (-1.0, 1.0)
    ) -> IntervalEstimate:
        """The difference of two population rates, of groups of which neither holds the other."""
        sums = [self._sums(part) for part in parts]
        value = sums[0][0] / sums[0][1] - sums[1][0] / sums[1][1]
        noise = self._error(self._difference_line(parts))
        variances, null = self._sampling_variances([bottom for _, bottom in parts], sums)
        errors = math.sqrt(noise**2 + variances), math.sqrt(noise**2 + null)
        noises = [self._noise_of_rate(*part) for part in parts]
        if bool((parts[0][1] == parts[1][1]).all()):  # the same records: only the noise can differ
            return normal_interval(value, *errors, (-1.0, 1.0), self.level, Covers.both)
        if (parts[0][1] * parts[1][1]).any():
            return overlapping_difference(sums, noises, errors, self.level, self.cluster)
        one, other = (self._error(self._line(part)) ** 2 for part in parts)
        common = (one + other - noise**2) / 2
        return mover_difference(sums, noises, common, errors, self.level, self.cluster, span)

    def _inner_and_rest(self, parts: list[tuple[Floats, Floats]]) -> IntervalEstimate | None:
        """Return the difference of the population rates of a group and of one that holds it; None
        if neither holds the other, or where the larger one may have no further records.

        The outer group is the inner one and the rest, in shares w and 1 - w, so the difference
        is 1 - w times that of the inner rate and the rest's, which share no record. The share is an
        estimate too, with an interval of its own.
        """
        shared = parts[0][1] * parts[1][1]
        nested = [bool((shared == bottom).all()) for _, bottom in parts]
        if not any(nested) or all(nested):
            return None
        inner, outer = (0, 1) if nested[0] else (1, 0)
        (top, bottom), (outer_top, outer_bottom) = parts[inner], parts[outer]
        outer_part = (outer_top - top, outer_bottom - bottom)
        outside = (outer_part[1], outer_bottom)
        share, rate = (
            sampled_rate(self._sums(part), self._noise_of_rate(*part), self.level, self.cluster)
            for part in (outside, outer_part)
        )
        if math.isinf(share.standard_error) or math.isinf(rate.standard_error):
            return None
        apart = [parts[inner], outer_part] if inner == 0 else [outer_part, parts[inner]]
        one, other = self._difference_line(apart), self._line(outside)
        # Cov(A, B) = (Var(A + B) - Var(A - B))/4
        common = (self._error(one + other) ** 2 - self._error(one - other) ** 2) / 4
        # Cut only at the end: a distance that was cut would make the sum of squares too small.
        difference = self._sampled_difference(apart, (-math.inf, math.inf))
        return scaled_difference(difference, share, common)

    def _sums(self, part: tuple[Floats, Floats]) -> tuple[float, float]:
        """The noisy counts of the cases and of the records of a rate."""
        cases, records = self.measured.sum_cells(np.stack(part)).tolist()
        return cases, records

    def _line(self, part: tuple[Floats, Floats]) -> Floats:
        """The weights of the noise in a rate, by its derivatives."""
        cases, records = self._sums(part)
        top, bottom = part
        return (top - cases / records * bottom) / records

    def _difference_line(self, parts: list[tuple[Floats, Floats]]) -> Floats:
        """The weights of the noise in the difference of two rates."""
        return self._line(parts[0]) - self._line(parts[1])

    def _sampling_variances(
        self, groups: list[Floats], sums: list[tuple[float, float]]
    ) -> tuple[float, float]:
        """Return the variance of the difference of two rates by sampling, and that of equal rates.

        Groups without a common record are independent. Others may be correlated in any way: their
        standard errors are added. If one holds the other, see `_inner_and_rest`.
        """
        if not (groups[0] * groups[1]).any():
            return self.cluster * _variance(sums), self.cluster * _variance(sums, _pool_rates(sums))
        if bool((groups[0] == groups[1]).all()):  # the same records
            return 0.0, 0.0
        roots = [math.sqrt(_variance([part])) for part in sums]
        equal = [math.sqrt(_variance([part], _pool_rates(sums))) for part in sums]
        return self.cluster * sum(roots) ** 2, self.cluster * sum(equal) ** 2


def _odds_ratio(cases: float, total: float, records: Floats) -> float:
    """The odds ratio of two groups of these sizes where `cases` of `total` are in the first."""
    one, other = cases / records[0], (total - cases) / records[1]
    value = float(RateMeasure.ODDS_RATIO.compare(one, other))
    return math.inf if math.isnan(value) else value


def _times(n: float, share: IntervalEstimate) -> IntervalEstimate:
    """A share of n records as a count."""
    error, low, high = n * share.standard_error, n * share.low, n * share.high
    return evolve(share, value=n * share.value, standard_error=error, low=low, high=high)


def _pool_rates(sums: Sequence[tuple[float, float]]) -> float:
    """Return the rate of several groups together, from 0 to 1."""
    return min(max(sum(cases for cases, _ in sums) / sum(records for _, records in sums), 0.0), 1.0)


def _variance(sums: Sequence[tuple[float, float]], rate: float | None = None) -> float:
    """Return the sampling variance of a difference of independent rates: each group's own rate, or
    a common one.
    """
    rates = [
        min(max(cases / records, 0.0), 1.0) if rate is None else rate for cases, records in sums
    ]
    return sum(each * (1 - each) / records for each, (_, records) in zip(rates, sums, strict=True))


def estimate_intervals(
    release: "ReleaseValue",
    table: str | None,
    level: float,
    sampling: bool,
    draws: int | None,
    randomness: Randomness | None,
) -> TableIntervals:
    """Return simultaneous intervals for all cells of a table; see `Release.intervals`."""
    check_level(level, "the confidence level")
    measured = measured_table(release, (), table)
    public = select_public(release, measured)
    shape, n = measured.schema.shape, float(public.n or 0)
    if measured.estimate.size > MANY_CELLS:
        raise Refused(
            f"simultaneous intervals are simulated for at most {MANY_CELLS:,} cells, and"
            f" {measured.name!r} has {measured.estimate.size:,}: ask for a coarser table"
        )
    estimate = measured.estimate.ravel()
    # For the population, noise may miss with half of what is allowed, and sampling with the rest.
    of_noise = (1 + level) / 2 if sampling else level
    half = simulate_half_widths(measured, of_noise, draws, randomness)
    bounds = CellBounds.from_dataspace(public, measured.schema.names)
    spans = zip(bounds.lower.ravel().tolist(), bounds.upper.ravel().tolist(), strict=True)
    cells = zip((estimate - half).tolist(), (estimate + half).tolist(), spans, strict=True)
    low, high = np.array([whole_interval(*cell) for cell in cells]).T
    cluster = cluster_size(release, measured) if sampling else 1
    if sampling:
        missed = (1 - level) / (2 if half.any() else 1)
        each = 1 - missed / estimate.size  # Bonferroni: cells without noise are sampled too
        low, high = (n * end for end in sampled_shares(low, high, n, each, cluster))
    low, high = low.reshape(shape), high.reshape(shape)
    covers = Covers.both if sampling else Covers.noise
    return TableIntervals(
        measured.name,
        measured.schema,
        measured.estimate,
        low,
        high,
        level,
        covers,
        cluster == 1,
        cluster,
    )


def simulate_half_widths(
    measured: Measured, level: float, draws: int | None, randomness: Randomness | None
) -> Floats:
    """Return simultaneous half-widths for all cells with probability `level`, by
    simulation.

    The largest error of all cells, in units of its standard error, has the same bound for each of
    them.
    """
    weights = np.eye(measured.estimate.size).reshape(-1, *measured.schema.shape)
    noise = measured.weigh_noise(weights)
    errors = noise.standard_errors
    source = SystemRandomness() if randomness is None else randomness
    drawn = np.abs(noise.draw(measured.draws if draws is None else draws, source))
    noisy = errors > 1e-9 * max(float(errors.max(initial=0.0)), 1e-300)
    if not noisy.any():
        return np.zeros(errors.shape)
    reach = simulated_bound((drawn[:, noisy] / errors[noisy]).max(axis=1), level)
    return np.where(noisy, reach * errors, 0.0)
