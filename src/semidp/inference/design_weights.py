"""Weighted estimates of a stratified sample: totals, shares and means of a population.

Stratum h has N_h people, of whom n_h are in the data; both are public, and w_h = N_h/n_h. A
weighted total is ``Σ w_h x_h`` over noisy counts, so its noise has a known law. For simple
random sampling without replacement inside strata, the sampling variance of the total of a yes or no
is

    Σ N_h² (1 - n_h/N_h) s_h²/n_h,    s_h² = n_h/(n_h - 1) · (p_h(1 - p_h) + v_h),

with p_h the noisy share and v_h its noise variance, by which p_h(1 - p_h) is too small. For an
outcome between l and u with mean m, (u - m)(m - l) replaces p_h(1 - p_h): its variance is not
measured, but cannot be larger. If a person may have m records, the variance is m times that.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy
from attrs import evolve, frozen
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.inference.linear_estimates import SumErrors
from semidp.inference.measured import cluster_size, measured_table
from semidp.inference.period_changes import RowLabels, cell_labels, read_group_rows
from semidp.promise.documents import Encodable, read_csv
from semidp.promise.exact import exact
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.publish.results.published_table import PublishedTable
from semidp.publish.statistics.outcomes.group_sums import GroupSums
from semidp.publish.statistics.protocol.statistic import PublishedStatistic
from semidp.publish.written_values import check_level

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue

Floats = NDArray[np.float64]
Stratum = tuple[str, ...]
_MOST_PEOPLE = 1e15
_VARYING = (
    "weights that vary within a stratum depend on everybody's records, and no noise covers them:"
    " make the strata finer until a weight is constant in each, and publish their sizes exactly"
)


@frozen
class PopulationStrata:
    """Public strata, with the number of people in the population of each.

    Parameters
    ----------
    names
        The features that make a stratum.
    sizes
        People of the population in each, by their levels.
    is_weight
        Whether the numbers are weights N_h/n_h instead.
    """

    names: tuple[str, ...]
    sizes: Mapping[Stratum, float]
    is_weight: bool = False


def read_strata(path: Path | str) -> PopulationStrata:
    """Read a CSV file with a column for each feature of a stratum, and a column ``population``
    (or ``weight``).
    """
    header, rows = read_csv(path)
    size_columns = [name for name in ("population", "weight") if name in header]
    if len(size_columns) != 1 or len(header) < 2:
        raise InputError(
            f"{path} needs a column for each feature of a stratum, and one called population (or"
            " weight)"
        )
    place = header.index(size_columns[0])
    names = tuple(name for name in header if name != size_columns[0])
    sizes: dict[Stratum, float] = {}
    for row in rows:
        stratum = tuple(value for number, value in enumerate(row) if number != place)
        if stratum in sizes:
            raise Refused(f"{path} lists {' · '.join(stratum)} twice; {_VARYING}")
        size = exact(row[place], f"the {size_columns[0]} of {' · '.join(stratum)}")
        if not 0 < size <= _MOST_PEOPLE:
            raise InputError(
                f"the {size_columns[0]} of {' · '.join(stratum)} must be above 0 and at most"
                f" {_MOST_PEOPLE:.0e}"
            )
        sizes[stratum] = float(size)
    return PopulationStrata(names, sizes, size_columns[0] == "weight")


@frozen
class WeightedEstimate(Encodable):
    """One weighted estimate.

    Parameters
    ----------
    statistic
        The table, or the mean, sum or proportion that is weighted.
    kind
        ``total``, ``share`` or ``mean``.
    labels
        Levels of the features that are not strata.
    value, noise_error, design_error
        The estimate, and its standard errors from the noise and from sampling (None unless
        requested).
    lower, upper, level
        Interval: for these records weighted, or with the design for the population.
    """

    json_keys: ClassVar[Mapping[str, str | None]] = {"labels": "row"}

    statistic: str
    kind: str
    labels: RowLabels
    value: float
    noise_error: float
    design_error: float | None
    lower: float
    upper: float
    level: float

    def widen(self, by: float) -> "WeightedEstimate":
        """The estimate with an interval widened at both ends."""
        return evolve(self, lower=self.lower - by, upper=self.upper + by)


@frozen(eq=False)
class _StratifiedSample:
    """Strata in the order of an exact margin: people in the data and in the population."""

    strata: list[Stratum]
    sampled: Floats
    population: Floats

    @property
    def weights(self) -> Floats:
        return self.population / self.sampled

    def refuse_single(self) -> None:
        """Refuse a sampling error that a stratum with a single record cannot show."""
        numbers = zip(self.strata, self.sampled, self.population, strict=True)
        for stratum, count, people in numbers:
            if count < 2 and people > count:
                raise Refused(
                    f"the stratum {' · '.join(stratum)} has one record, which shows no spread: join"
                    " it with another, or leave the design out"
                )

    def variance(self, spread: Floats) -> float:
        """Sampling variance of a total, from the variance of the outcome in each stratum."""
        # a stratified sample: Σ N² (1 - n/N) s²/n over the strata
        share = 1 - self.sampled / self.population
        # where everybody is in the data, whatever is known about their spread
        sampled = np.where(share > 0, spread, 0.0) / self.sampled
        return float((self.population**2 * share * sampled).sum())


def weighted_estimates(
    release: "ReleaseValue", strata: PopulationStrata, *, level: float = 0.95, design: bool = False
) -> list[WeightedEstimate]:
    """Return weighted totals, shares and means of all statistics of a release by strata.

    Parameters
    ----------
    release
        A release whose exact totals include the size of every stratum.
    strata
        The population of each.
    level
        Of the intervals.
    design
        Whether they are for the population, with the error of a stratified sample; else for these
        records, with the noise alone.
    """
    check_level(level, "the level of an interval")
    plan = _match_design(release.scope.dataspace, strata)
    if design:
        plan.refuse_single()
    estimates: list[WeightedEstimate] = []
    for table in release.tables:
        if {*strata.names} <= {*table.schema.names}:
            estimates += _weigh_table(release, table, strata, plan, level, design)
    for result in release.results:
        if isinstance(result, PublishedStatistic) and isinstance(result.analysis, GroupSums):
            estimates += _weigh_groups(result, strata, plan, level, design)
    if not estimates:
        raise Refused(
            f"this release has nothing by {' and '.join(strata.names)}: release a table, a mean or"
            " a proportion with these features"
        )
    return estimates


def _match_design(dataspace: Any, strata: PopulationStrata) -> _StratifiedSample:
    """The sizes of strata in the data and in the population; refuse what does not fit."""
    margin = Margin(*strata.names)
    if not isinstance(dataspace, Dataspace) or not dataspace.publishes(margin):
        raise Refused(
            f"the number of records by {' and '.join(strata.names)} must be exact in the release"
            " to weight it: publish these totals exactly"
        )
    total = dataspace.value(margin)
    levels = [feature.levels for feature in total.schema.features]
    names = [feature.name for feature in total.schema.features]
    if {*names} != {*strata.names} or any(len({*each}) < len(each) for each in levels):
        raise Refused(
            "strata of a nested feature are by its finest column alone, and each level needs a name"
            " of its own"
        )
    order = [names.index(name) for name in strata.names]
    kept, sampled, population = [], [], []
    seen = set()
    for cell, count in zip(itertools.product(*levels), total.counts.ravel(), strict=True):
        stratum = tuple(cell[place] for place in order)
        size = strata.sizes.get(stratum)
        seen.add(stratum)
        name = " · ".join(stratum)
        if size is None:
            if count:
                raise InputError(f"the strata do not say how many people are in {name}")
            continue
        if not count:
            raise Refused(f"no record is in the stratum {name}: join it with another stratum")
        people = size * float(count) if strata.is_weight else size
        if people > _MOST_PEOPLE:
            raise InputError(f"the stratum {name} has more than {_MOST_PEOPLE:.0e} people")
        if people < count:
            raise InputError(f"the stratum {name} has more records than people")
        kept.append(stratum)
        sampled.append(float(count))
        population.append(people)
    unknown = [stratum for stratum in strata.sizes if stratum not in seen]
    if unknown:
        raise InputError(f"the release has no stratum {' · '.join(unknown[0])}")
    return _StratifiedSample(kept, np.array(sampled), np.array(population))


def _weigh_table(
    release: "ReleaseValue",
    table: PublishedTable,
    strata: PopulationStrata,
    plan: _StratifiedSample,
    level: float,
    design: bool,
) -> list[WeightedEstimate]:
    """Weighted totals and shares of the cells of the features that are no strata."""
    measured = measured_table(release, table.schema.names, table.name)
    # records of one person may be alike: see `answers`
    cluster = cluster_size(release, measured) if design else 1
    further = [feature for feature in measured.schema.features if feature.name not in strata.names]
    if not further:
        return []
    estimates = []
    population = float(plan.population.sum())
    for labels in cell_labels(further):
        inside = measured.mask(dict(labels))
        cells = np.stack(
            [
                inside * measured.mask(dict(zip(strata.names, stratum, strict=True)))
                for stratum in plan.strata
            ]
        )
        weighted = np.tensordot(plan.weights, cells, axes=1)[None]
        errors = measured.weigh_noise(weighted)
        spread = None
        if design:
            shares = measured.sum_cells(cells) / plan.sampled
            noise = (measured.errors(cells) / plan.sampled) ** 2
            spread = cluster * _bounded_spread(shares, noise, plan.sampled)
        value = float(measured.sum_cells(weighted)[0])
        total = _state(table.name, "total", labels, value, errors, spread, plan, level)
        estimates += [total, _rescale(total, "share", 1 / population)]
    return estimates


def _weigh_groups(
    result: PublishedStatistic,
    strata: PopulationStrata,
    plan: _StratifiedSample,
    level: float,
    design: bool,
) -> list[WeightedEstimate]:
    """Weighted total and mean of an outcome that was published by strata."""
    request = result.request
    estimates = []
    for place, block in enumerate(request.by):
        if {*block.names} != {*strata.names}:
            continue
        reading = read_group_rows(result, result.estimates[place], place)
        if reading is None or reading.errors is None:
            continue
        # of those who answered alone there is no mean of every stratum
        if any(not {*strata.names} <= {*dict(labels)} for labels in reading.rows):
            continue
        by_stratum = {}
        for labels, number in reading.rows.items():
            levels = dict(labels)
            by_stratum[tuple(levels[name] for name in strata.names)] = number
        rows = [by_stratum[stratum] for stratum in plan.strata]
        is_sum = str(request.statistic) == "sum"
        # a sum is of the n records and weighs N/n; a mean stands for all N people
        people = plan.weights if is_sum else plan.population
        weights = np.zeros(len(reading.values))
        weights[rows] = people
        errors = reading.errors.weigh(weights[None])
        value = float(weights @ reading.values)
        spread = _outcome_spread(result, place, rows, plan) if design else None
        total = _state(reading.name, "total", RowLabels(), value, errors, spread, plan, level)
        if reading.rounding is not None:
            total = total.widen(float(weights @ reading.rounding))
        kind = "share" if str(request.statistic) == "proportion" else "mean"
        estimates += [total, _rescale(total, kind, 1 / float(plan.population.sum()))]
    return estimates


def _outcome_spread(
    result: PublishedStatistic, place: int, rows: Sequence[int], plan: _StratifiedSample
) -> Floats:
    """Variance of an outcome within each stratum: at most what its bounds allow."""
    sums: GroupSums = result.analysis
    means = sums.means(result.request.by[place])
    kept = np.flatnonzero(means.counts > 0)[[*rows]]
    noise = means.standard_errors[kept] ** 2
    bounds = float(sums.outcome.lower), float(sums.outcome.upper)
    return sums.cluster * _bounded_spread(means.values[kept], noise, plan.sampled, bounds)


def _bounded_spread(
    means: Floats, noise: Floats, sampled: Floats, bounds: tuple[float, float] = (0.0, 1.0)
) -> Floats:
    """Variance of an outcome within each stratum, from noisy means; never below 0.

    Values between l and u with mean m have a variance of at most (u - m)(m - l), which those of a
    yes or no have. On average a noisy mean makes that smaller by the variance of its noise.
    """
    product = (bounds[1] - means) * (means - bounds[0])
    corrected = np.maximum(product + noise, 0.0)
    # n/(n - 1): the spread of the population that the records are a sample of
    return np.asarray(sampled / np.maximum(sampled - 1, 1.0) * corrected)


def _state(
    name: str,
    kind: str,
    labels: RowLabels,
    value: float,
    errors: SumErrors,
    spread: Floats | None,
    plan: _StratifiedSample,
    level: float,
) -> WeightedEstimate:
    """One estimate with its interval: by the law of the noise, or normal with the design."""
    noise = float(errors.standard_errors[0])
    half = float(errors.half_widths(level)[0])
    sampling = None
    if spread is not None:
        sampling = math.sqrt(plan.variance(spread))
        quantile = float(scipy.special.ndtri((1 + level) / 2))
        # Coarse noise counts with its own half-width, where that is the larger one.
        noisy = max(noise, half / quantile)
        half = quantile * math.hypot(noisy, sampling)
    return WeightedEstimate(
        name, kind, labels, value, noise, sampling, value - half, value + half, level
    )


def _rescale(total: WeightedEstimate, kind: str, factor: float) -> WeightedEstimate:
    """A share or a mean from a total."""
    sampling = None if total.design_error is None else total.design_error * factor
    return evolve(
        total,
        kind=kind,
        value=total.value * factor,
        noise_error=total.noise_error * factor,
        design_error=sampling,
        lower=total.lower * factor,
        upper=total.upper * factor,
    )
