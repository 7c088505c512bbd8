"""What a release publishes of a private outcome: statistics by groups, regressions, quantiles, with their intervals.

Each is a frozen value that knows its files and its JSON form, and can be read back from them. Estimates and intervals
are computed in `grouped`; they follow from noisy values and exact counts.
"""

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from semidp.engines import Outcome
from semidp.exact import number, plain
from semidp.grouped import (
    About,
    Comparison,
    Estimates,
    GroupQuantiles,
    GroupSums,
    Intervals,
    LinearFit,
    LogisticFit,
    most_rank_error,
)
from semidp.mechanisms import (
    Measurement,
    NoNoise,
)
from semidp.plots import estimates_plot
from semidp.queries import QuerySpace, RankSpace
from semidp.release.cells import Columns, Form, Framed, Sheet
from semidp.release.published import Noise, Published, measured_by, read_back
from semidp.release.scope import Scope
from semidp.spaces import Margin

if TYPE_CHECKING:
    from semidp.release.outcome_requests import GroupRequest, QuantileRequest, RegressionRequest
    from semidp.release.requests import Request

Read = TypeVar("Read", bound=Published)

COLUMNS = {About.noise: ("lower", "upper"), About.sampling: ("population_lower", "population_upper")}
"""What the ends of an interval are called in a file."""


def columns_of(intervals: Sequence[Intervals]) -> dict[str, NDArray[np.float64]]:
    """Return the columns that hold the ends of intervals."""
    pairs = [(COLUMNS[part.about], part) for part in intervals]
    return {name: end for names, part in pairs for name, end in zip(names, (part.lower, part.upper), strict=True)}


def stated(intervals: Sequence[Intervals]) -> list[dict[str, Any]]:
    """Return what intervals are about, as plain values; their ends are in files."""
    return [
        {
            "level": number(part.level),
            "about": str(part.about),
            "simultaneous": part.simultaneous,
            "exact": part.exact,
            "columns": list(COLUMNS[part.about]),
        }
        for part in intervals
    ]


def read_intervals(
    entries: Sequence[Mapping[str, Any]],
    names: tuple[tuple[str, ...], ...],
    values: NDArray[np.float64],
    columns: NDArray[np.float64],
    level: Fraction,
) -> tuple[Intervals, ...]:
    """Return the intervals of which `stated` told, with the ends in the columns of a file, a row an estimate.

    An end that was written as nothing is open, unless there is no estimate.
    """
    return tuple(
        Intervals(
            names,
            values,
            _open(values, columns[:, 2 * position], -math.inf),
            _open(values, columns[:, 2 * position + 1], math.inf),
            level,
            About(entry["about"]),
            bool(entry["simultaneous"]),
            bool(entry.get("exact", entry["about"] == About.noise)),
        )
        for position, entry in enumerate(entries)
    )


def _open(values: NDArray[np.float64], ends: NDArray[np.float64], infinite: float) -> NDArray[np.float64]:
    return np.where(np.isnan(ends) & ~np.isnan(values), infinite, ends)


class _BySets(Published):
    """What is published of several sets of groups: a file each."""

    columns: tuple[tuple[str, ...], ...]

    def sheets(self) -> tuple[Sheet, ...]:
        """Return each set of groups for data frames, called after its file, and their differences where asked for."""
        return tuple(Sheet(file.removesuffix(".csv"), content) for file, content in self.files().items())

    def __repr__(self) -> str:
        sets = "; ".join(" × ".join(names) for names in self.columns)
        return f"{type(self).__name__}({self.name!r}: by {sets}, {self.noise.mechanism})"

    def _repr_html_(self) -> str:
        return "".join(part._repr_html_() for part in self.sheets())


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PublishedGroups(_BySets):
    """One published statistic of an outcome by groups.

    Parameters
    ----------
    request
        What was asked for: statistic, outcome, groups.
    estimates
        The statistic of each set of groups, with exact counts and the standard errors of the noise.
    comparisons
        Whether the means of each set differ by more than sampling and noise explain.
    columns
        The features of each set of groups; a nested one with its whole path.
    noisy
        The noisy sums as drawn, in steps of the grid above the lower bound, set after set.
    intervals, differences
        For each set the intervals of its estimates, and of their differences where asked for: of the noise alone, and
        for the population. None in a release of an earlier version.

    Examples
    --------
    >>> import semidp
    >>> passed = semidp.GroupRequest("proportion", semidp.Outcome("passed", 0, 1, 1), [["ward"]], semidp.Budget.gdp(1))
    >>> plan = semidp.Plan(groups=[passed], invariants=["ward"])
    >>> release = semidp.run(plan, {"ward": ["a", "a", "b"], "passed": [1, 0, 1]})
    >>> release.groups[0].estimates[0].counts.tolist()  # exact; the proportions are not
    [2, 1]
    """

    key: ClassVar[str] = "groups"

    request: "GroupRequest"
    estimates: tuple[Estimates, ...]
    comparisons: tuple[Comparison, ...]
    columns: tuple[tuple[str, ...], ...]
    noisy: NDArray[np.int64] = field(repr=False)
    intervals: tuple[tuple[Intervals, ...], ...] = ()
    differences: tuple[tuple[Intervals, ...], ...] = ()

    @property
    def outcome(self) -> Outcome:
        """The outcome with its bounds and grid."""
        return self.request.outcome

    def plot(self, axes: Any = None, by: int = 0) -> Any:
        """Draw the estimates of one set of groups with two standard errors to each side; return the figure."""
        part = self.estimates[by]
        held = np.isfinite(part.values)
        labels = [" · ".join(levels) for levels, kept in zip(part.groups, held, strict=True) if kept]
        what = f"{self.request.statistic} of {self.outcome.column}"
        bounds = None if self.request.statistic == "sum" else (float(self.outcome.lower), float(self.outcome.upper))
        values, errors = part.values[held].tolist(), part.standard_errors[held].tolist()
        return estimates_plot(labels, values, errors, what, bounds, axes)

    def files(self, form: Form | None = None) -> dict[str, Columns]:
        """Return a CSV file for each set: levels, exact count, estimate, standard error, intervals, noisy steps."""
        places = np.cumsum([0, *(len(part.groups) for part in self.estimates)])
        sets = zip(self.columns, self.estimates, self.intervals or repeat(()), pairwise(places), strict=False)
        found = []
        for names, part, intervals, (start, end) in sets:
            estimates = {str(self.request.statistic): part.values, "standard_error": part.standard_errors}
            numbers = {"count": part.counts, **estimates, **columns_of(intervals), "noisy_steps": self.noisy[start:end]}
            found.append(Columns.of_rows(names, part.groups, numbers))
        for names, intervals in zip(self.columns, self.differences, strict=False):
            numbers = {"difference": intervals[0].values, **columns_of(intervals)}
            found.append(Columns.of_rows(_twice(names), intervals[0].names, numbers))
        return dict(zip(self.request.files, found, strict=True))

    def to_json(self) -> dict[str, Any]:
        """Return everything but the estimates, which are in the CSV files, as plain values."""
        return {
            **super().to_json(),
            "files": list(self.request.files),
            "unit": float(self.outcome.width),
            "comparisons": [asdict(comparison) for comparison in self.comparisons],
            **({"intervals": stated(self.intervals[0])} if self.intervals else {}),
        }

    @classmethod
    def from_json(
        cls, entry: Mapping[str, Any], request: "GroupRequest", scope: Scope, files: Mapping[str, bytes]
    ) -> "PublishedGroups":
        """Read what `to_json` and `files` wrote."""
        told, level = entry.get("intervals", ()), request.confidence.level
        estimates, columns, noisy, intervals, differences = [], [], [], [], []
        for file in request.files[: len(request.by)]:
            header, groups, (counts, *texts, steps) = _read(files[file], 4 + 2 * len(told))
            numbers = _floats(texts)
            part = Estimates(groups, _steps(counts), numbers[:, 0], numbers[:, 1])
            estimates.append(_with_rounding(part, request))
            columns.append(tuple(header[: len(header) - 4 - 2 * len(told)]))
            noisy.append(_steps(steps))
            intervals.append(read_intervals(told, groups, part.values, numbers[:, 2:], level))
        for file in request.files[len(request.by) :]:
            _, names, texts = _read(files[file], 1 + 2 * len(told))
            numbers = _floats(texts)
            read = read_intervals(told, names, numbers[:, 0], numbers[:, 1:], level)
            # No law is inverted for a difference: for a population its level is kept about.
            differences.append(tuple(replace(part, exact=part.about is About.noise) for part in read))
        found = cls(
            request=request,
            estimates=tuple(estimates),
            columns=tuple(columns),
            comparisons=tuple(map(_read_comparison, entry["comparisons"])),
            noisy=np.concatenate(noisy),
            intervals=tuple(intervals) if told else (),
            differences=tuple(differences),
            **read_back(entry, scope),
        )
        return _as_written(found, files)


def published_groups(request: "GroupRequest", found: GroupSums) -> PublishedGroups:
    """Return sums, or means and proportions over exact counts, with intervals."""
    total = request.statistic == "sum"
    statistic, wanted = found.sums if total else found.means, request.confidence
    every = found.sum_intervals if total else found.mean_intervals
    return PublishedGroups(
        request=request,
        estimates=tuple(_with_rounding(statistic(block), request) for block in request.by),
        comparisons=tuple(_comparison(found, number) for number in range(len(request.by))),
        columns=tuple(map(found.columns, request.by)),
        noisy=np.asarray(found.measurement.noisy, dtype=np.int64),
        intervals=_alike(tuple(_both(every, found, block, request) for block in request.by)),
        differences=tuple(_both(found.difference_intervals, found, block, request) for block in request.by)
        if wanted.differences
        else (),
        **measured_by(request.name, found.mechanism, found.private),
    )


def _both(intervals: Any, found: GroupSums, block: Margin, request: "GroupRequest") -> tuple[Intervals, ...]:
    """Return the intervals of the noise alone, and those for the population where asked for."""
    wanted = request.confidence
    kinds = (False, True) if wanted.sampling else (False,)
    return tuple(
        intervals(block, level=wanted.level, sampling=sampling, simultaneous=wanted.simultaneous) for sampling in kinds
    )


def _alike(sets: tuple[tuple[Intervals, ...], ...]) -> tuple[tuple[Intervals, ...], ...]:
    """Let a request say one thing of all its sets: a level is exact where it is exact in each."""
    exact = [all(part.exact for part in parts) for parts in zip(*sets, strict=True)]
    return tuple(tuple(replace(part, exact=each) for part, each in zip(parts, exact, strict=True)) for parts in sets)


def _with_rounding(estimates: Estimates, request: "GroupRequest") -> Estimates:
    """Say by how much the grid can have moved each estimate: zeros and ones lie on it."""
    half = 0.0 if request.statistic == "proportion" else float(request.outcome.width) / 2
    each = estimates.counts if request.statistic == "sum" else np.ones(len(estimates.groups))
    return replace(estimates, rounding=np.asarray(half * each, dtype=np.float64))


def _comparison(found: GroupSums, number: int) -> Comparison:
    """Compare the means of one set, with the largest spread that the bounds allow; nothing where there is no record.

    Readers ask about the population that the records come from: without sampling any two groups differ.
    """
    compared = found.compare(found.blocks[number], sampling=True)
    return compared if math.isfinite(compared.pooled) else Comparison(0.0, 0, 0.0)


def _read_comparison(entry: Mapping[str, Any]) -> Comparison:
    """Read a comparison; earlier versions held it against χ², or wrote a p-value widened by a pooled spread."""
    from scipy.special import chdtrc

    statistic, degrees, pooled = entry["statistic"], entry["degrees"], entry["pooled"]
    if "about" in entry:
        return Comparison(statistic, degrees, pooled, entry["p_value"], About(entry["about"]), str(entry["reference"]))
    about = About.noise if entry.get("sampling_sd") is None else About.sampling
    p_value = entry.get("widened")
    if p_value is None:
        p_value = float(chdtrc(degrees, statistic)) if degrees else 1.0
    return Comparison(statistic, degrees, pooled, p_value, about)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PublishedRegression(Framed, Published):
    """One published regression.

    Parameters
    ----------
    request
        What was asked for: outcome, factors, model.
    terms, coefficients, standard_errors
        The coefficients with the standard errors of the noise alone.
    noisy
        What was measured as drawn, in steps of the grid above the lower bound.
    query
        What was measured: sums by group, or combinations of the columns. None where it was X'y itself, times the
        design's multiplier, as in releases of earlier versions.
    intervals
        Those of the noise alone, and those for the population where asked for.

    Examples
    --------
    >>> import semidp
    >>> request = semidp.RegressionRequest(semidp.Outcome("days", 0, 10, 10), ["arm"], semidp.Budget.gdp(1))
    >>> plan = semidp.Plan(regressions=[request], invariants=["arm"])
    >>> release = semidp.run(plan, {"arm": ["a", "a", "b"], "days": [7, 4, 2]})
    >>> release.regressions[0].terms
    ('intercept', 'arm=b')
    """

    key: ClassVar[str] = "regressions"

    request: "RegressionRequest"
    terms: tuple[str, ...]
    coefficients: NDArray[np.float64] = field(repr=False)
    standard_errors: NDArray[np.float64] = field(repr=False)
    noisy: NDArray[np.int64] = field(repr=False)
    query: Mapping[str, Any] | None = None
    intervals: tuple[Intervals, ...] = ()

    def space(self, request: "Request", scope: Scope) -> QuerySpace:
        """Return the space of what was measured; what is best for a regression may change from version to version."""
        return self.request.space_of(self.query, scope)

    def rows(self) -> Iterator[tuple[str, float, float]]:
        """Yield each term with its coefficient and standard error."""
        yield from zip(self.terms, self.coefficients.tolist(), self.standard_errors.tolist(), strict=True)

    def files(self, form: Form | None = None) -> dict[str, Columns]:
        """Return the coefficients, a row each, and the measurements."""
        coefficients, measurements = self.request.files
        if self.query is None:
            return {coefficients: self.columns()}
        steps = {"entry": np.arange(len(self.noisy)), "noisy_steps": self.noisy}
        return {coefficients: self.columns(), measurements: Columns({}, steps)}

    def columns(self) -> Columns:
        """Return the columns of the coefficients, a row each."""
        ends = columns_of(self.intervals) if self.query is not None else {"noisy_steps": self.noisy}
        numbers = {"coefficient": self.coefficients, "standard_error": self.standard_errors, **ends}
        return Columns.of_rows(["term"], [(term,) for term in self.terms], numbers)

    def plot(self, axes: Any = None) -> Any:
        """Draw the coefficients with two standard errors to each side; return the figure."""
        terms, values, errors = zip(*self.rows(), strict=True)
        return estimates_plot(terms, values, errors, "coefficient", None, axes)

    def __repr__(self) -> str:
        return f"PublishedRegression({self.name!r}: {len(self.terms):,} coefficients, {self.noise.mechanism})"

    def to_json(self) -> dict[str, Any]:
        """Return everything but the numbers in the CSV files, as plain values."""
        if self.query is None:
            return super().to_json()
        return {**super().to_json(), "query": dict(self.query), "intervals": stated(self.intervals)}

    @classmethod
    def from_json(
        cls, entry: Mapping[str, Any], request: "RegressionRequest", scope: Scope, files: Mapping[str, bytes]
    ) -> "PublishedRegression":
        """Read what `to_json` and `files` wrote."""
        told, measured = entry.get("intervals", ()), entry.get("query")
        if measured is not None and not isinstance(measured, Mapping):
            raise ValueError("what was measured is a query")
        coefficients, measurements = request.files
        _, names, columns = _read(files[coefficients], 2 + (2 * len(told) if measured else 1))
        steps = columns.pop() if measured is None else _read(files[measurements], 1)[2][0]
        numbers = _floats(columns)
        found = cls(
            request=request,
            terms=tuple(name for (name,) in names),
            coefficients=numbers[:, 0],
            standard_errors=numbers[:, 1],
            noisy=_steps(steps),
            query=measured,
            intervals=read_intervals(told, names, numbers[:, 0], numbers[:, 2:], request.confidence.level),
            **read_back(entry, scope),
        )
        return _as_written(found, files)


def published_regression(request: "RegressionRequest", fit: LinearFit | LogisticFit) -> PublishedRegression:
    """Return coefficients with the standard errors of the noise alone, and intervals."""
    wanted = request.confidence
    level, together = wanted.level, wanted.simultaneous
    if isinstance(fit, LinearFit):
        errors, intervals = fit.standard_errors(), [fit.intervals(level, simultaneous=together)]
        if wanted.sampling:
            intervals.append(fit.intervals(level, sampling=True, simultaneous=together))
    else:
        errors = fit.standard_errors(sampling=False)
        kinds = (False, True) if wanted.sampling else (False,)
        intervals = [fit.intervals(level, sampling=sampling, simultaneous=together) for sampling in kinds]
    return PublishedRegression(
        request=request,
        terms=fit.names,
        coefficients=fit.coefficients,
        standard_errors=errors,
        noisy=np.asarray(fit.moments.measurement.noisy, dtype=np.int64),
        query=fit.moments.space.query(),
        intervals=tuple(intervals),
        **measured_by(request.name, fit.moments.mechanism, fit.private),
    )


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PublishedQuantiles(_BySets):
    """Published quantiles of an outcome by groups.

    Parameters
    ----------
    request
        What was asked for: outcome, groups, probabilities.
    groups, columns, counts
        For each set the levels of its groups, what they are levels of, and the exact number of records.
    values
        For each set the quantiles, a row a group.
    intervals
        For each set an interval for each quantile, where asked for.
    noisy
        The steps as chosen, group after group: each quantile, with the two ends of its interval where asked for.
    rank_error
        By how many ranks a choice is off at most, with 95% probability; None where there is no record.

    Examples
    --------
    >>> import semidp
    >>> request = semidp.QuantileRequest(semidp.Outcome("days", 0, 10, 10), [["ward"]], budget=semidp.Budget.gdp(1))
    >>> plan = semidp.Plan(quantiles=[request], invariants=["ward"])
    >>> release = semidp.run(plan, {"ward": ["a", "a", "b"], "days": [7, 4, 2]})
    >>> release.quantiles[0].counts[0].tolist()
    [2, 1]
    """

    key: ClassVar[str] = "quantiles"

    request: "QuantileRequest"
    groups: tuple[tuple[tuple[str, ...], ...], ...]
    columns: tuple[tuple[str, ...], ...]
    counts: tuple[NDArray[np.int64], ...] = field(repr=False)
    values: tuple[NDArray[np.float64], ...] = field(repr=False)
    intervals: tuple[tuple[Intervals, ...], ...]
    noisy: NDArray[np.int64] = field(repr=False)
    rank_error: int | None

    def rows(self, number: int) -> Iterator[tuple[tuple[str, ...], int, list[float]]]:
        """Yield each group of a set with its exact count and its numbers: a quantile, its interval, the next."""
        columns = (self.groups[number], self.counts[number].tolist(), *self._numbers(number))
        for group, count, *numbers in zip(*columns, strict=True):
            yield group, count, [float(value) for value in numbers]

    def _numbers(self, number: int) -> list[NDArray[np.float64]]:
        """The columns of a set: each quantile, with the ends of its interval."""
        parts = []
        for k in range(len(self.request.probabilities)):
            parts.append(self.values[number][:, k])
            parts += [end for part in self.intervals[number][k : k + 1] for end in (part.lower, part.upper)]
        return parts

    @property
    def headings(self) -> list[str]:
        """What the numbers of a row are called: q0.5, q0.5_lower, q0.5_upper."""
        ends = ("", "_lower", "_upper") if self.request.level is not None else ("",)
        return [f"q{plain(q)}{end}" for q in self.request.probabilities for end in ends]

    def files(self, form: Form | None = None) -> dict[str, Columns]:
        """Return a CSV file for each set: levels, exact count, quantiles with their intervals, chosen steps."""
        steps = self.noisy.reshape(-1, len(self.headings)).T
        places = np.cumsum([0, *map(len, self.groups)])
        found = []
        for place, (start, end) in enumerate(pairwise(places)):
            numbers = {"count": self.counts[place], **dict(zip(self.headings, self._numbers(place), strict=True))}
            numbers |= {f"steps_{name}": row[start:end] for name, row in zip(self.headings, steps, strict=True)}
            found.append(Columns.of_rows(self.columns[place], self.groups[place], numbers))
        return dict(zip(self.request.files, found, strict=True))

    def to_json(self) -> dict[str, Any]:
        """Return everything but the numbers in the CSV files, as plain values."""
        return {
            **super().to_json(),
            "files": list(self.request.files),
            "unit": float(self.request.outcome.width),
            "rank_error": self.rank_error,
            "about": None if self.request.level is None else str(self.intervals[0][0].about),
        }

    @classmethod
    def from_json(
        cls, entry: Mapping[str, Any], request: "QuantileRequest", scope: Scope, files: Mapping[str, bytes]
    ) -> "PublishedQuantiles":
        """Read what `to_json` and `files` wrote: the chosen steps, from which the rest follows."""
        chosen = len(request.probabilities) * (1 if request.level is None else 3)
        steps = np.concatenate([_steps(*_read(files[file], chosen)[2]) for file in request.files])
        rank_error = entry["rank_error"]
        if not (rank_error is None or isinstance(rank_error, int)) or steps.min(initial=0) < 0:
            raise ValueError("quantiles are steps of the grid, with an error in ranks")
        found = cls(**_quantiles(request, scope, steps), rank_error=rank_error, **read_back(entry, scope))
        return _as_written(found, files)


def _quantiles(request: "QuantileRequest", scope: Scope, noisy: NDArray[np.int64]) -> dict[str, Any]:
    """Return what follows from the chosen steps."""
    space = request.space(scope)
    chosen = Measurement(noisy, noisy.astype(np.float64), "", "exact", False)
    found = GroupQuantiles(NoNoise(space), chosen)
    assert isinstance(space, RankSpace)
    return {
        "request": request,
        "groups": tuple(found.groups(block) for block in request.by),
        "columns": tuple(found.columns(block) for block in request.by),
        "counts": tuple(counts.ravel() for counts in space.counts),
        "values": tuple(found.values(block) for block in request.by),
        "intervals": tuple(found.intervals(block) if request.level is not None else () for block in request.by),
        "noisy": noisy,
    }


def published_quantiles(request: "QuantileRequest", found: GroupQuantiles, scope: Scope) -> PublishedQuantiles:
    """Return quantiles in units of the outcome, with their intervals."""
    mechanism = found.mechanism
    return PublishedQuantiles(
        **_quantiles(request, scope, found.measurement.noisy),
        rank_error=most_rank_error(mechanism),
        name=request.name,
        noise=Noise(mechanism.name, mechanism.scale, mechanism.claim, mechanism.expected_l2, None),
        guarantee=mechanism.guarantee,
        advertised=None,
        private=found.private,
    )


def _twice(names: Sequence[str]) -> list[str]:
    """Return the names of the levels of two groups, each a different one.

    >>> _twice(["ward"]), _twice(["x", "other_x"])
    (['ward', 'other_ward'], ['x', 'other_x', 'other_other_x', 'other_other_other_x'])
    """
    found = list(names)
    for name in names:
        other = f"other_{name}"
        while other in found:
            other = f"other_{other}"
        found.append(other)
    return found


def _as_written(result: Read, files: Mapping[str, bytes]) -> Read:
    """Return a result that was read; refuse files that hold anything else than it would write."""
    for name, columns in result.files().items():
        if b"".join(columns.csv()) != files[name]:
            raise ValueError("the files of a result hold its columns, and nothing else")
    return result


def _read(content: bytes, numbers: int) -> tuple[list[str], tuple[tuple[str, ...], ...], list[list[str]]]:
    """Return the header of a file, the labels of each row, and the last columns as they are written."""
    header, *rows = csv.reader(io.StringIO(content.decode()))
    labels = tuple(tuple(row[: len(row) - numbers]) for row in rows)
    return header, labels, [[row[place - numbers] for row in rows] for place in range(numbers)]


def _floats(columns: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """Return the numbers of columns, a row a line; an empty cell is none."""
    found = np.array([[float(cell or math.nan) for cell in column] for column in columns], dtype=np.float64)
    if np.isfinite(found).sum() != sum(bool(cell) for column in columns for cell in column):
        raise ValueError("a cell does not hold a number")
    return found.T


def _steps(*columns: Sequence[str]) -> NDArray[np.int64]:
    """Return the whole numbers of columns, line after line."""
    return np.array([int(cell) for line in zip(*columns, strict=True) for cell in line], dtype=np.int64)
