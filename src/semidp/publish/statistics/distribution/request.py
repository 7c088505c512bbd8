"""The request for the distribution of a private outcome by groups."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from attrs import Factory, evolve, field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.confidential import Confidential
from semidp.promise.exact import Number, exact, number, parse_level
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.progress import Progress
from semidp.promise.schema.outcome import Outcome
from semidp.promise.sensitivity.distribution_space import (
    DistributionSpace,
    check_steps,
    distribution_space,
)
from semidp.promise.sensitivity.outcome_spaces import measured_rows
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.dataspace import Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.results.texts import error_text
from semidp.publish.selection import AUTO
from semidp.publish.sources.reader import Reader, conceal
from semidp.publish.statistics.distribution.distribution_estimates import (
    QUANTILES,
    GroupDistributions,
    band_half_widths,
    pointwise_half_widths,
)
from semidp.publish.statistics.distribution.published import publish_distribution
from semidp.publish.statistics.outcomes.confidence import LEVEL
from semidp.publish.statistics.outcomes.request import (
    ValuesRequest,
    checked_outcome,
    group_margins,
    optional_text,
)
from semidp.publish.statistics.protocol.requests import (
    NO_RECORD,
    Forecast,
    StatisticForecast,
    checked_budget,
    file_name,
    mechanism_name,
    member,
)
from semidp.publish.statistics.protocol.statistic import PublishedStatistic


class Answers(StrEnum):
    """Why quantiles are read off a distribution: for narrower intervals, for closer values, or as
    was asked.
    """

    intervals = "intervals"
    values = "values"
    asked = "asked"


def _answers(value: str | None) -> Answers | None:
    return None if value is None else member(Answers, value, "what a distribution answers")


def _distribution_name(request: "DistributionRequest") -> str:
    return f"distribution-{request.outcome.column}"


def _numbers(value: Iterable[Number], what: str) -> tuple[Fraction, ...]:
    """Exact numbers, each named once and in growing order."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InputError(f"{what} are a list of numbers, not {value!r}")
    numbers = tuple(exact(each, f"one of the {what}") for each in value)
    if list(numbers) != sorted(set(numbers)):
        raise InputError(f"{what} are named once each, in growing order")
    return numbers


def _listed_quantiles(value: Iterable[Number]) -> tuple[Fraction, ...]:
    numbers = _numbers(value, "quantiles")
    if not all(0 < each < 1 for each in numbers):
        raise InputError(
            "quantiles are numbers between 0 and 1, each named once and in growing order"
        )
    return numbers


def _lines(value: Iterable[Number]) -> tuple[Fraction, ...]:
    return _numbers(value, "lines")


@frozen
class DistributionRequest(ValuesRequest):
    """The distribution of a private outcome by groups whose counts are published exactly.

    Parameters
    ----------
    outcome
        The private column, its declared bounds and its grid.
    by
        The groups, as for a `GroupRequest`.
    probabilities
        The quantiles that are listed. All others follow from the distribution, too: to list more of
        them costs nothing.
    lines
        The lines below which shares are listed. Records are cut exactly there: a record whose value
        is a line does not lie below it.
    budget, mechanism, name
        As for a table. The name is that of the column unless given.
    level
        The level of intervals, and of the band around the whole distribution of each group.
    answers
        Where quantiles were asked for, why they are read off a distribution. The file that is
        called after the request then holds the quantiles.
    answered
        As for a `GroupRequest`.

    Examples
    --------
    >>> request = DistributionRequest(Outcome("score", 0, 100, steps=100), [["school"]], lines=[50])
    >>> request.name, request.files
    ('distribution-score', ('distribution-score.csv', 'distribution-score-quantiles.csv'))
    """

    key: ClassVar[str] = "distribution"
    list_key: ClassVar[str] = "distributions"
    trusted_fields: ClassVar[Mapping[str, str]] = {
        **ValuesRequest.trusted_fields,
        "why quantiles were read off a distribution": "answers",
    }
    most_steps: ClassVar[int] = 100
    _written: ClassVar[tuple[str, ...]] = (
        *("name", "outcome", "probabilities", "lines"),
        *("by", "budget", "mechanism", "level", "answers", "answered"),
    )

    outcome: Outcome = field(converter=checked_outcome)
    by: tuple[Margin, ...] = field(converter=group_margins)
    probabilities: tuple[Fraction, ...] = field(default=QUANTILES, converter=_listed_quantiles)
    lines: tuple[Fraction, ...] = field(default=(), converter=_lines)
    budget: Budget | None = field(default=None, converter=checked_budget)
    mechanism: str = field(default=AUTO, converter=mechanism_name)
    name: str = field(default=Factory(_distribution_name, takes_self=True), converter=file_name)
    level: Fraction = field(default=LEVEL, converter=parse_level)
    answers: Answers | None = field(default=None, converter=_answers)
    answered: str | None = field(default=None, converter=optional_text)

    def __attrs_post_init__(self) -> None:
        self._check_groups("a distribution by groups needs", "distribution is")
        check_steps(self.cut_outcome)

    def _entry(self, name: str, value: Any) -> dict[str, Any]:
        usual = {"probabilities": QUANTILES, "level": LEVEL, "mechanism": AUTO}
        if name in usual and value == usual[name]:
            return {}
        # No quantiles at all is not the same as the usual ones.
        if name == "probabilities" and not value:
            return {name: []}
        return super()._entry(name, value)

    @property
    def files(self) -> tuple[str, ...]:
        """What its files are called: for each set of groups the distributions, and what is listed
        of them.
        """
        names: list[str] = []
        for place in range(len(self.by)):
            names += self.file_pair(place)
        return tuple(names)

    def file_pair(self, place: int) -> tuple[str, str]:
        """Return the two files of one set of groups: the distributions, and what is listed of
        them.
        """
        stem = self.file_stems[place]
        if self.answers is not None:
            return f"{stem}-distribution.csv", f"{stem}.csv"
        return f"{stem}.csv", f"{stem}-quantiles.csv"

    def space(self, scope: Scope) -> QuerySpace:
        """Return the space of the differences of halves; refuse groups whose counts are not
        published.
        """
        public = scope.dataspace.for_kind(self.counted)
        return distribution_space(public, scope.adjacency, self.cut_outcome, self.by, self.answered)

    @property
    def cut_outcome(self) -> Outcome:
        """The outcome, whose histogram is also cut at the lines."""
        return evolve(self.outcome, cuts=self.lines)

    def forecast(self, mechanism: Mechanism, scope: Scope) -> tuple[Forecast, ...]:
        """Return how far off shares, quantiles and the whole curve would be, in records."""
        space = mechanism.space
        assert isinstance(space, DistributionSpace)
        each = pointwise_half_widths(mechanism, self.level)
        widths = {
            "half_width": float(each.mean()),
            "widest": float(each.max()),
            "band": float(band_half_widths(mechanism, self.level).max()),
        }
        sizes = np.sort(space.sizes[space.sizes > 0])
        said = NO_RECORD
        if len(sizes):
            said = self._forecast_text(int(sizes[len(sizes) // 2]), **widths)
        numbers = {**widths, "level": number(self.level)}
        return (StatisticForecast(self.name, self.features, said, numbers),)

    def _forecast_text(self, typical: int, half_width: float, widest: float, band: float) -> str:
        """Say how far off a share and a quantile would be, with a group of typical size."""
        chance = f"{float(100 * self.level):g}%"
        # A share is off by so many records over the size of its group.
        points = error_text(min(100 * half_width / typical, 100.0))
        within = f"{chance} within ±{error_text(half_width)} records up to a value"
        together = f"at worst ±{error_text(widest)}, a whole curve ±{error_text(band)}"
        return f"{within} ({together}): ±{points} points of a group of {typical:,}"

    def noise_lines(self, mechanism: Mechanism, foreseen: Sequence[Any]) -> list[str]:
        """Say with what noise it would be measured, and whether quantiles would be read off it."""
        lines = super().noise_lines(mechanism, foreseen)
        if self.answers is None:
            return lines
        return [
            line.replace(f"for {self.name}:", f"for {self.name}, read off a distribution:", 1)
            for line in lines
        ]

    def noise_json(self, mechanism: Mechanism, foreseen: Sequence[Any]) -> dict[str, Any]:
        """Return its noise as plain values, and how far off counts up to a value would be."""
        values = super().noise_json(mechanism, foreseen)
        for forecast in foreseen:
            values |= forecast.numbers
        return values

    def read(
        self, reader: Reader, scope: Scope, space: QuerySpace
    ) -> Confidential[NDArray[np.int64]]:
        """Return the confidential differences of halves of all groups, set after set."""
        assert isinstance(space, DistributionSpace)
        parts = []
        for group in self.by:
            histograms = reader.histogram(group.names, self.cut_outcome)
            parts.append(measured_rows(space, group, histograms))
        return conceal(self.name, space.apply_query(np.concatenate(parts)))

    def publish(
        self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress
    ) -> PublishedStatistic:
        """Return the distributions with their band, and what is listed of them."""
        return publish_distribution(self, GroupDistributions(mechanism, measured, self.level))
