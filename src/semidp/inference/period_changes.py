"""Changes from one release to the next: differences and ratios, with the noise of both.

Releases of different periods have independent noise, so the distribution of a difference is the
convolution of two known ones. What is exact in both has an exact difference. Everything is about
the records of the periods, not about a population, and costs no budget.
"""

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.inference.linear_estimates import DrawnTable, SumErrors
from semidp.inference.measured import measured_table
from semidp.promise.accounting.periods import UNITS, Periods
from semidp.promise.documents import Encodable
from semidp.promise.mechanisms.mechanism import CellByCell
from semidp.promise.noise.randomness import Randomness, SystemRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.spaces.linked import LinkedDataspace
from semidp.publish.half_widths import LEVEL
from semidp.publish.results.columns import Columns, PublishedColumns
from semidp.publish.results.role_columns import Role, Sheet
from semidp.publish.statistics.outcomes.group_sums import GroupSums
from semidp.publish.statistics.outcomes.noise_law import count_as_large
from semidp.publish.statistics.protocol.statistic import PublishedStatistic
from semidp.publish.written_values import check_level

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue

Floats = NDArray[np.float64]

_DRAWS = 4000  # of the noise, for the test that anything changed
_MOST_ROWS = 20_000
_NO_INTERVALS = (
    "it has no intervals about the records; quantiles have them if you ask for them with a level"
)
_NO_ENDS: Floats = np.empty(0)
_NUMBERS = (
    *("before", "after", "difference", "lower", "upper"),
    *("ratio", "ratio_lower", "ratio_upper", "exact", "level"),
)


class RowLabels(tuple[tuple[str, str], ...]):
    """The identity of a row: features with their levels.

    >>> ward = RowLabels((("ward", "a"), ("ill", "y")))
    >>> str(ward), str(RowLabels()), ward.to_json()
    ('a · y', 'all', {'ward': 'a', 'ill': 'y'})
    """

    __slots__ = ()

    def __str__(self) -> str:
        return " · ".join(label for _, label in self) or "all"

    def to_json(self) -> dict[str, str]:
        """Return the levels by their features."""
        return dict(self)


@frozen(slots=False, eq=False)
class Reading:
    """One published statistic of one release, row by row.

    Parameters
    ----------
    name
        The name of its file.
    labels
        For each row the features with their levels.
    values
        Estimate of each row.
    errors
        The noise of the rows; None if only intervals are known.
    rounding
        The largest effect of the outcome's grid on each row.
    ends, level
        If the noise is not a sum: an interval for each row, and its level.
    least
        A lower bound of all numbers; None if not known.
    bounds
        The declared bounds to which an outcome was clipped; None if there are none.
    """

    name: str
    labels: tuple[RowLabels, ...]
    values: Floats = field(repr=False)
    errors: SumErrors | None = field(default=None, repr=False)
    rounding: Floats | None = field(default=None, repr=False)
    ends: tuple[Floats, Floats] = field(default=(_NO_ENDS, _NO_ENDS), repr=False)
    level: float = 0.95
    least: float | None = None
    bounds: tuple[float, float] | None = None

    @cached_property
    def rows(self) -> dict[RowLabels, int]:
        """Place of each row by its labels."""
        return {labels: place for place, labels in enumerate(self.labels)}

    @property
    def is_exact(self) -> bool:
        """Whether no row has noise."""
        return self.errors is not None and not self.errors.standard_errors.any()

    def round_by(self, places: Sequence[int]) -> Floats:
        """How far the grid of an outcome may move some rows."""
        return np.zeros(len(places)) if self.rounding is None else self.rounding[[*places]]

    def intervals(self, places: Sequence[int], level: float) -> tuple[Floats, Floats]:
        """Ends of the intervals of some rows."""
        if self.errors is None:
            return self.ends[0][[*places]], self.ends[1][[*places]]
        half = self.errors.select(places).half_widths(level) + self.round_by(places)
        values = self.values[[*places]]
        return values - half, values + half


@frozen
class ChangedRow(Encodable):
    """The change of one number.

    Parameters
    ----------
    statistic, labels
        The subject: the file, and the levels of the row.
    start, end
        The two periods.
    before, after, difference
        The two estimates, and the second less the first.
    lower, upper
        Interval of the difference.
    ratio, ratio_lower, ratio_upper
        The second over the first with its interval; an open end is infinite, which is None in JSON.
    exact
        Whether both numbers are exact.
    level
        How often each interval covers the change of the records.
    """

    json_keys: ClassVar[Mapping[str, str | None]] = {
        "labels": "row",
        "start": "from",
        "end": "to",
    }

    statistic: str
    labels: RowLabels
    start: str
    end: str
    before: float
    after: float
    difference: float
    lower: float
    upper: float
    ratio: float
    ratio_lower: float
    ratio_upper: float
    exact: bool
    level: float


@frozen
class ChangeTest(Encodable):
    """A test of any change in a statistic between two periods.

    Parameters
    ----------
    statistic, start, end
        The statistic and the periods.
    p_value
        The probability that noise alone shows as large a difference somewhere, if the records
        of both periods have the same numbers.
    rows
        How many rows are compared.
    """

    statistic: str
    start: str
    end: str
    p_value: float
    rows: int

    json_keys: ClassVar[Mapping[str, str | None]] = {"start": "from", "end": "to"}


@frozen(eq=False)
class Changes(PublishedColumns):
    """Changes between consecutive releases, one row for each number and step.

    Parameters
    ----------
    periods
        The names of the releases, in order.
    rows
        The changes.
    tests
        Tests of any change, by statistic and step; not for exact numbers.
    unmatched
        Rows that only some of the releases have: statistic, labels, and who has them.
    left_out
        Statistics that are not compared, each with the reason.
    readings
        The statistics of each release, for a picture.
    """

    periods: tuple[str, ...]
    rows: tuple[ChangedRow, ...] = field(repr=False)
    tests: tuple[ChangeTest, ...]
    unmatched: tuple[tuple[str, RowLabels, tuple[str, ...]], ...] = field(default=(), repr=False)
    left_out: tuple[tuple[str, str], ...] = ()
    readings: tuple[Mapping[str, Reading], ...] = field(default=(), repr=False)

    name = "changes"

    def columns(self) -> Columns:
        """Return one tidy table, one row per number and step."""
        texts = [(row.statistic, str(row.labels), row.start, row.end) for row in self.rows]
        numbers = {}
        for name in _NUMBERS:
            numbers[name] = np.array([getattr(row, name) for row in self.rows])
        return Columns.of_rows(("statistic", "row", "from", "to"), texts, numbers)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "periods": [*self.periods],
            "changes": [row.to_json() for row in self.rows],
            "tests": [test.to_json() for test in self.tests],
            "unmatched": [
                {"statistic": name, "row": labels.to_json(), "only_in": [*only]}
                for name, labels, only in self.unmatched
            ],
            "left_out": [{"statistic": name, "reason": reason} for name, reason in self.left_out],
        }

    def plot(self, statistic: str | None = None) -> Any:
        """Draw a statistic over the periods, one panel per group; return the figure."""
        from semidp.publish.plotting import periods_plot

        shared = set(self.readings[0]).intersection(*self.readings)
        names = [name for name in self.readings[0] if name in shared]
        if statistic is None:
            noisy = [name for name in names if not self.readings[0][name].is_exact]
            statistic = (noisy or names)[0]
        if statistic not in names:
            raise InputError(f"all releases have {', '.join(names)}, and not {statistic!r}")
        places = locate_periods(self.periods)
        return periods_plot(statistic, self.periods, self._bands(statistic), places)

    def _bands(self, statistic: str) -> dict[str, list[tuple[float, float, float]]]:
        """For each row its estimates over the periods, with the ends of their intervals; a gap
        where a period does not have the row.
        """
        readings = [one[statistic] for one in self.readings]
        gap = (math.nan, math.nan, math.nan)
        every = dict.fromkeys(row for one in readings for row in one.rows)
        bands: dict[str, list[tuple[float, float, float]]] = {str(row): [] for row in every}
        for reading in readings:
            lower, upper = reading.intervals(range(len(reading.values)), 0.95)
            for row in every:
                place = reading.rows.get(row)
                three = gap
                if place is not None:
                    three = float(reading.values[place]), float(lower[place]), float(upper[place])
                bands[str(row)].append(three)
        return bands


def compare_releases(
    releases: "Sequence[ReleaseValue]",
    names: Sequence[str] | None = None,
    level: float = 0.95,
    randomness: Randomness | None = None,
) -> Changes:
    """Return the changes between consecutive releases; see `semidp.change`."""
    check_level(level, "the level of an interval")
    if len(releases) < 2:
        raise InputError("a change is between two releases or more")
    if len({id(release) for release in releases}) < len(releases):
        raise InputError("a release is named twice: name one of each period")
    called = names or [
        release.plan.period or str(number) for number, release in enumerate(releases, 1)
    ]
    if len({*called}) < len(releases):
        raise InputError("two of these releases are of the same period: name them apart")
    readings, reasons = [], dict[str, str]()
    for release in releases:
        results, left = _read_release(release)
        readings.append(results)
        reasons |= left
    for name in dict.fromkeys(name for one in readings for name in one):
        having = [when for when, one in zip(called, readings, strict=True) if name in one]
        if len(having) < len(releases):
            reasons.setdefault(name, f"it is only in {', '.join(having)}")
        elif len({one[name].bounds for one in readings}) > 1:
            reasons[name] = "it has other bounds in some periods, and values were moved to them"
    shared = [name for name in readings[0] if name not in reasons]
    shared.sort(key=lambda name: readings[0][name].is_exact)
    if not shared:
        listed = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        raise Refused(f"these releases have nothing to compare: {listed}")
    rows: list[ChangedRow] = []
    tests: list[ChangeTest] = []
    source = SystemRandomness() if randomness is None else randomness
    for name in shared:
        of_name = zip(called, (one[name] for one in readings), strict=True)
        for (start, before), (end, after) in itertools.pairwise(of_name):
            changed, test = _compare(before, after, (start, end), level, source)
            rows += changed
            tests += [test] if test is not None else []
    if not rows:
        raise Refused("these releases have no row in common: their levels have other names")
    missing = tuple(_list_unmatched(shared, called, readings))
    return Changes(
        tuple(called), tuple(rows), tuple(tests), missing, tuple(reasons.items()), tuple(readings)
    )


def _compare(
    before: Reading,
    after: Reading,
    periods: tuple[str, str],
    level: float,
    randomness: Randomness,
) -> tuple[list[ChangedRow], ChangeTest | None]:
    """The changes of the rows that two readings share, and the test that any of them changed."""
    shared = [row for row in before.rows if row in after.rows]
    if not shared:
        return [], None
    places = [before.rows[row] for row in shared], [after.rows[row] for row in shared]
    first, second = before.values[places[0]], after.values[places[1]]
    difference = second - first
    test, exact = None, np.zeros(len(shared), dtype=bool)
    if before.errors is None or after.errors is None:
        # Each interval fails with 1 - its level; both hold at once with what is left.
        levels = [level if one.errors is not None else one.level for one in (before, after)]
        kept = max(sum(levels) - 1, 0.0)
        ends = before.intervals(places[0], level), after.intervals(places[1], level)
        lower, upper = ends[1][0] - ends[0][1], ends[1][1] - ends[0][0]
    else:
        kept = level
        errors = before.errors.select(places[0]).join(after.errors.select(places[1]))
        grids = before.round_by(places[0]) + after.round_by(places[1])
        half = errors.half_widths(level, randomness) + grids
        lower, upper = difference - half, difference + half
        each = (1 + level) / 2  # both hold at once with the level
        ends = before.intervals(places[0], each), after.intervals(places[1], each)
        exact = (errors.standard_errors == 0) & (grids == 0)
        # rounding to a grid explains so much of a difference without any change
        beyond = np.maximum(np.abs(difference) - grids, 0.0)
        test = _test_change(beyond, errors, (before.name, *periods), randomness)
    is_positive = all(one.least is not None and one.least >= 0 for one in (before, after))
    ratios = _ratio_ends(*ends) if is_positive else _signed_ratio_ends(*ends)
    # A number that is never below 0 has no ratio to an estimate that is.
    is_defined = (first > 0) if is_positive else (first != 0)
    numerator = np.maximum(second, 0.0) if is_positive else second
    ratio = np.divide(numerator, first, out=np.full(len(first), math.nan), where=is_defined)
    numbers = (first, second, difference, lower, upper, ratio, *ratios)
    rows = []
    for labels, is_exact, *row in zip(shared, exact, *numbers, strict=True):
        fields: tuple[Any, ...] = (*map(float, row), bool(is_exact), kept)
        rows.append(ChangedRow(before.name, labels, *periods, *fields))
    return rows, test


def _ratio_ends(
    before: tuple[Floats, Floats], after: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """Ends of the ratio of two numbers of at least 0, each of which lies in its interval."""
    low, high = np.maximum(before[0], 0.0), before[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        lower = np.where(high > 0, np.maximum(after[0], 0.0) / high, 0.0)
        upper = np.where(low > 0, np.maximum(after[1], 0.0) / low, math.inf)
    possible = (before[1] >= 0) & (after[1] >= 0)
    return np.where(possible, lower, math.nan), np.where(possible, upper, math.nan)


def _signed_ratio_ends(
    before: tuple[Floats, Floats], after: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """Ends of the ratio of two numbers of either sign; open where the first may be 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        # a ratio of two intervals is largest and smallest at their ends
        corners = np.stack([one / other for one in after for other in before])
    is_open = (before[0] <= 0) & (before[1] >= 0)
    lower, upper = corners.min(axis=0), corners.max(axis=0)
    return np.where(is_open, -math.inf, lower), np.where(is_open, math.inf, upper)


def _test_change(
    sizes: Floats, errors: SumErrors, names: tuple[str, str, str], randomness: Randomness
) -> ChangeTest | None:
    """Compare the largest difference, in standard errors, with those of simulated noise; None if
    nothing has noise.

    The noise of all rows is drawn together, so rows that share noise are no trouble.
    """
    deviations = errors.standard_errors
    noisy = deviations > 0
    if not noisy.any():
        return None
    largest = float((sizes[noisy] / deviations[noisy]).max())
    simulated = np.abs(errors.draw(_DRAWS, randomness)[:, noisy] / deviations[noisy]).max(axis=1)
    above = count_as_large(simulated, largest)
    # the observed difference counts as a draw, so the test holds its level
    return ChangeTest(*names, (1 + above) / (1 + _DRAWS), int(noisy.sum()))


def _list_unmatched(
    shared: Sequence[str], periods: Sequence[str], readings: Sequence[Mapping[str, Reading]]
) -> Iterator[tuple[str, RowLabels, tuple[str, ...]]]:
    """Rows that some releases lack, with the periods that have them."""
    for name in shared:
        every = dict.fromkeys(row for one in readings for row in one[name].rows)
        for row in every:
            only = tuple(
                when for when, one in zip(periods, readings, strict=True) if row in one[name].rows
            )
            if len(only) < len(periods):
                yield name, row, only


# --- what a release says, as rows


def _read_release(release: "ReleaseValue") -> tuple[dict[str, Reading], dict[str, str]]:
    """Every statistic of a release that has rows, by name: exact totals, tables, and the others;
    and why some are left out.
    """
    readings: dict[str, Reading] = {}
    left_out: dict[str, str] = {}
    dataspace = release.scope.dataspace
    kinds = [("exact", dataspace)]
    if isinstance(dataspace, LinkedDataspace):
        kinds.append(("exact units by", dataspace.units))
    for said, space in kinds:
        for margin, total in zip(space.margins, space.totals, strict=True):
            counts = total.counts.ravel().astype(np.float64)
            errors, labels = SumErrors(counts.size), cell_labels(total.schema.features)
            name = f"{said} {margin}"
            readings[name] = Reading(name, labels, counts, errors, least=0)
    for table in release.tables:
        measured = measured_table(release, table.schema.names, table.name)
        size = measured.estimate.size
        if size > _MOST_ROWS:
            left_out[table.name] = f"it has {size:,} cells, and at most {_MOST_ROWS:,} are compared"
            continue
        weights = np.eye(size).reshape(size, *measured.estimate.shape)
        readings[table.name] = Reading(
            table.name,
            cell_labels(table.schema.features),
            np.asarray(measured.estimate, dtype=np.float64).ravel(),
            measured.weigh_noise(weights),
            least=0,
        )
    for result in release.results:
        if isinstance(result, PublishedStatistic):
            for place, sheet in enumerate(result.estimates):
                reading = read_group_rows(result, sheet, place) or _read_intervals(result, sheet)
                if reading is None:
                    left_out[sheet.name] = _NO_INTERVALS
                else:
                    readings[reading.name] = reading
    return readings, left_out


def cell_labels(features: Iterable[Feature]) -> tuple[RowLabels, ...]:
    """Labels of the cells of some features; a nested one has a label for each of its depths."""
    axes = []
    for feature in features:
        axes.append([tuple(zip(feature.names, path, strict=True)) for path in feature.paths()])
    return tuple(RowLabels(itertools.chain(*cell)) for cell in itertools.product(*axes))


def _sheet_labels(sheet: Sheet) -> tuple[RowLabels, ...]:
    named = [one for one in sheet.role_columns if one.role in (Role.label, Role.place)]
    columns = [list(map(str, one.values)) for one in named]
    names = [one.name for one in named]
    if not columns:
        return (RowLabels(),) * len(sheet.role_columns[0].values)
    return tuple(RowLabels(zip(names, row, strict=True)) for row in zip(*columns, strict=True))


def read_group_rows(result: PublishedStatistic, sheet: Sheet, place: int) -> Reading | None:
    """Sums, means and proportions by group, whose noise is drawn number by number."""
    sums = result.analysis
    if not isinstance(sums, GroupSums) or not isinstance(sums.mechanism, CellByCell):
        return None
    is_sum = str(result.request.statistic) == "sum"
    block = result.request.by[place]
    estimates = sums.sums(block) if is_sum else sums.means(block)
    counts = estimates.counts.astype(np.float64)
    scale = np.full(len(counts), float(sums.outcome.width))
    if not is_sum:
        scale = np.divide(scale, counts, out=np.zeros(len(counts)), where=counts > 0)
    start = sums.space.slices[place].start
    weights = np.zeros((len(counts), *sums.space.shape))
    weights[np.arange(len(counts)), start + np.arange(len(counts))] = scale
    kept = np.flatnonzero(counts > 0)
    labels = _sheet_labels(sheet)
    errors = SumErrors(len(counts), ((DrawnTable(sums.mechanism), weights),))
    rounding = float(sums.outcome.rounding) * (counts if is_sum else np.ones(len(counts)))
    return Reading(
        sheet.name,
        tuple(labels[row] for row in kept),
        estimates.values[kept],
        errors.select(kept.tolist()),
        rounding[kept],
        least=float(sums.outcome.lower),
        bounds=(float(sums.outcome.lower), float(sums.outcome.upper)),
    )


def _read_intervals(result: PublishedStatistic, sheet: Sheet) -> Reading | None:
    """Any other statistic with published intervals of its records; several estimates of a row are
    rows of their own.
    """
    request = result.request
    if getattr(request, "sampling", False):
        return None
    confidence = getattr(request, "confidence", request)
    level: Any = getattr(request, "level", None) or getattr(confidence, "level", LEVEL)
    labels = _sheet_labels(sheet)
    # sums and means of those who answered may have ends for the population alone
    measured = [
        (one.estimate, *one.ends[:2])
        for one in sheet.measured
        if len(one.ends) >= 2 and not one.ends[0].name.startswith("population")
    ]
    rows: list[RowLabels] = []
    columns: list[list[Floats]] = [[], [], []]
    for three in measured:
        named = (("estimate", three[0].title),) if len(measured) > 1 else ()
        rows += [RowLabels((*row, *named)) for row in labels]
        for column, part in zip(columns, three, strict=True):
            column.append(np.asarray(part.values, dtype=np.float64))
    if not rows:
        return None
    values, lower, upper = map(np.concatenate, columns)
    outcome = getattr(request, "outcome", None)
    bounds = None
    if isinstance(outcome, Outcome):
        bounds = float(outcome.lower), float(outcome.upper)
    ends = (lower, upper)
    return Reading(sheet.name, tuple(rows), values, ends=ends, level=float(level), bounds=bounds)


def locate_periods(names: Sequence[str]) -> list[int] | None:
    """The positions of periods on a calendar, from the first on; None if they are not periods
    of one unit, or not in order. Pooled periods are placed at their end.

    >>> locate_periods(["2025Q4", "2026Q2"]), locate_periods(["2026", "spring"])
    ([0, 2], None)
    """
    for unit in UNITS:
        with contextlib.suppress(InputError):
            numbers = [Periods.from_text(name, unit).numbers[-1] for name in names]
            in_order = all(one < other for one, other in itertools.pairwise(numbers))
            return [number - numbers[0] for number in numbers] if in_order else None
    return None
