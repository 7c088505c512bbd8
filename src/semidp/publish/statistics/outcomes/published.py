"""What published statistics of a private outcome share: columns, intervals, sets of groups."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from semidp.promise.exact import number
from semidp.promise.schema.outcome import Outcome
from semidp.publish.plots.figures import estimates_plot
from semidp.publish.results.cells import Form, PublishedColumns, Sheet
from semidp.publish.results.sections import Details, Section
from semidp.publish.statistics.outcomes.confidence import About, Intervals
from semidp.publish.statistics.outcomes.request import StatisticRequest
from semidp.publish.statistics.outcomes.words import faint_cautions, statistic_text
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.protocol.results import Published
from semidp.publish.statistics.recheck_findings import Trust

Read = TypeVar("Read", bound=Published)

COLUMNS = {
    About.noise: ("lower", "upper"),
    About.sampling: ("population_lower", "population_upper"),
}
"""What the ends of an interval are called in a file."""


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
