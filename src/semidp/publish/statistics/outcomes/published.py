"""What published statistics of a private outcome share: columns, intervals, sets of groups."""

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from operator import itemgetter
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from semidp.promise.exact import number
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.schema.outcome import Outcome
from semidp.publish.plots.figures import estimates_plot
from semidp.publish.results.cells import Form, PublishedColumns, Sheet
from semidp.publish.results.sections import Details, Section
from semidp.publish.statistics.outcomes.confidence import About, Intervals
from semidp.publish.statistics.outcomes.request import StatisticRequest
from semidp.publish.statistics.outcomes.words import faint_cautions, statistic_text
from semidp.publish.statistics.protocol.rechecks import ResultCheck
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.protocol.results import Published
from semidp.publish.statistics.recheck_findings import Trust

Read = TypeVar("Read", bound=Published)

COLUMNS = {
    About.noise: ("lower", "upper"),
    About.sampling: ("population_lower", "population_upper"),
}
"""What the ends of an interval are called in a file."""

GROUPS_OR_COUNTS = "groups or counts that its exact totals do not have"
"""What a recheck says of groups, and of their exact counts."""


def interval_columns(intervals: Sequence[Intervals]) -> dict[str, NDArray[np.float64]]:
    """Return the columns that hold the ends of intervals."""
    pairs = [(COLUMNS[part.about], part) for part in intervals]
    return {
        name: end
        for names, part in pairs
        for name, end in zip(names, (part.lower, part.upper), strict=True)
    }


def describe_intervals(intervals: Sequence[Intervals]) -> list[dict[str, Any]]:
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
    """Return the intervals of which `stated` told, with the ends in the columns of a file, a row an
    estimate.

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


def _open(
    values: NDArray[np.float64], ends: NDArray[np.float64], infinite: float
) -> NDArray[np.float64]:
    return np.where(np.isnan(ends) & ~np.isnan(values), infinite, ends)


def outcome_trust(request: Request) -> Iterator[Trust]:
    """Yield what is believed of every statistic of an outcome: nothing published depends on the
    name of its column.
    """
    yield Trust("which column an outcome was read from", (f"plan.{request.key}.column",))


class GroupWords(Protocol):
    """What the `words` of a statistic by groups says of a result: a module has these functions."""

    def title(self, result: Any, /) -> str:
        """Name it."""

    def noisy_lines(self, result: Any, /) -> list[str]:
        """Say how many groups there are."""

    def summary_lines(self, result: Any, /) -> list[tuple[str, str]]:
        """Return the mechanism and the first estimates, for a terminal."""

    def sections(self, result: Any, /) -> list[Section]:
        """Return its sections of a report."""

    def details(self, result: Any, /) -> Details:
        """Say how it was measured."""

    def file_words(self, result: Any, /) -> list[tuple[str, str]]:
        """Say what its files hold."""


class StatisticWords(GroupWords, Protocol):
    """What the `words` of sums, means and proportions says besides."""

    def faint_groups(self, result: Any, /) -> tuple[int, int]:
        """Return in how many groups noise dominates, and how many groups have records."""


class PublishedBySets(Published):
    """What is published of several sets of groups: a file each. Its `wording` says it in words."""

    wording: ClassVar[GroupWords]

    columns: tuple[tuple[str, ...], ...]

    def title(self) -> str:
        """Name it: the mean of score by school."""
        return self.wording.title(self)

    def noisy_lines(self) -> list[str]:
        """Say how many groups there are."""
        return self.wording.noisy_lines(self)

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return the mechanism and the first estimates, for a terminal."""
        return self.wording.summary_lines(self)

    def sections(self, form: Form | None = None) -> list[Section]:
        """Return its sections of a report: one for each set of groups, and what it adds."""
        return self.wording.sections(self)

    def details(self) -> Details:
        """Say how it was measured."""
        return self.wording.details(self)

    def file_words(self, form: Form | None = None) -> list[tuple[str, str]]:
        """Say what its files hold."""
        return self.wording.file_words(self)

    def trust_assumptions(self, request: Request) -> Iterator[Trust]:
        """Yield what is believed of it besides its noisy values: which column was read."""
        yield from outcome_trust(request)

    def sheets(self) -> tuple[Sheet, ...]:
        """Return each set of groups for data frames, called after its file, and their differences
        where asked for.
        """
        return tuple(
            Sheet(file.removesuffix(".csv"), content) for file, content in self.files().items()
        )

    def columns_by_name(self) -> dict[str, PublishedColumns]:
        """Return each set of groups, and their differences, under the name of its file."""
        return {sheet.name: sheet for sheet in self.sheets()}

    def __repr__(self) -> str:
        sets = "; ".join(" × ".join(names) for names in self.columns)
        return f"{type(self).__name__}({self.name!r}: by {sets}, {self.noise.mechanism})"

    def _repr_html_(self) -> str:
        return "".join(part._repr_html_() for part in self.sheets())


class PublishedStatistic(PublishedBySets):
    """What published sums, means and proportions share: a picture, and how they are compared with
    what follows from their noisy sums.
    """

    wording: ClassVar[StatisticWords]
    estimate_columns: ClassVar[tuple[str, ...]] = ("mean", "sum", "proportion", "standard_error")

    request: StatisticRequest
    estimates: tuple[Any, ...]

    @property
    def outcome(self) -> Outcome:
        """The outcome with its bounds and grid."""
        return self.request.outcome

    def cautions(self) -> list[str]:
        """Say that noise dominates many of its groups."""
        return faint_cautions(self.title(), *self.wording.faint_groups(self))

    def plot(self, axes: Any = None, by: int = 0) -> Any:
        """Draw the estimates of one set of groups with two standard errors to each side; return the
        figure.
        """
        part = self.estimates[by]
        held = np.isfinite(part.values)
        labels = [
            " · ".join(levels) for levels, kept in zip(part.groups, held, strict=True) if kept
        ]
        # The declared bounds are those of one record and of a mean: a sum may lie far beyond them.
        bounds = (
            None
            if self.request.statistic == "sum"
            else (float(self.outcome.lower), float(self.outcome.upper))
        )
        values, errors = part.values[held].tolist(), part.standard_errors[held].tolist()
        return estimates_plot(labels, values, errors, statistic_text(self.request), bounds, axes)

    def compare_recomputed(
        self, check: ResultCheck, again: "PublishedStatistic", mechanism: Mechanism
    ) -> None:
        """Note where estimates, errors and intervals do not follow from the noisy sums."""
        check.compare_fixed(self, again, mechanism)
        groups = columns_of_groups(again)

        # Estimates follow from the noisy sums in every version. How intervals are computed may
        # change, so those of an earlier version are noted and not called wrong.
        def firm(column: str) -> str | None:
            if column in groups:
                return GROUPS_OR_COUNTS
            if column in self.estimate_columns:
                return "estimates or standard errors that do not follow from its noisy sums"
            return None

        check.compare_columns(self, again, firm, "intervals that do not follow from its noisy sums")


def columns_of_groups(result: PublishedBySets) -> set[str]:
    """Return the columns of its files that hold levels of groups, or exact counts."""
    names = {"count"}
    for columns in result.files().values():
        names |= {*columns.labels}
    return names


def pair_column_names(names: Sequence[str]) -> list[str]:
    """Return the names of the levels of two groups, each a different one.

    >>> pair_column_names(["ward"]), pair_column_names(["x", "other_x"])
    (['ward', 'other_ward'], ['x', 'other_x', 'other_other_x', 'other_other_other_x'])
    """
    counted = list(names)
    for name in names:
        other = f"other_{name}"
        while other in counted:
            other = f"other_{other}"
        counted.append(other)
    return counted


def verify_files(result: Read, files: Mapping[str, bytes]) -> Read:
    """Return a result that was read; refuse files that hold anything else than it would write."""
    # Reading skips what it does not need. Writing the result again shows anything that was added.
    for name, columns in result.files().items():
        if b"".join(columns.csv()) != files[name]:
            raise ValueError("the files of a result hold its columns, and nothing else")
    return result


def parse_rows(
    content: bytes, numbers: int
) -> tuple[list[str], tuple[tuple[str, ...], ...], list[list[str]]]:
    """Return the header of a file, the labels of each row, and the last columns as they are
    written.
    """
    header, *rows = csv.reader(io.StringIO(content.decode()))
    labels = tuple(tuple(row[: len(row) - numbers]) for row in rows)
    places = range(-numbers, 0)
    columns = [list(map(itemgetter(place), rows)) for place in places]
    return header, labels, columns


def real_numbers(columns: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """Return the numbers of columns, a row a line; an empty cell is none."""
    numbers = np.array(
        [[float(cell or math.nan) for cell in column] for column in columns], dtype=np.float64
    )
    # float() also reads words such as inf and nan, which no release writes.
    if np.isfinite(numbers).sum() != sum(bool(cell) for column in columns for cell in column):
        raise ValueError("a cell does not hold a number")
    return numbers.T


def whole_numbers(*columns: Sequence[str]) -> NDArray[np.int64]:
    """Return the whole numbers of columns, line after line."""
    return np.array(
        [int(cell) for line in zip(*columns, strict=True) for cell in line], dtype=np.int64
    )
