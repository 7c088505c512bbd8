"""Distributions by groups: requests, whether they answer a quantile better than choices, and their
entry in the registry.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from attrs import Factory, evolve, field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.confidential import Confidential
from semidp.promise.exact import Number, exact, number, parse_level, plain
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.progress import Progress
from semidp.promise.schema.outcome import Outcome
from semidp.promise.sensitivity.distribution_space import (
    MOST_STEPS,
    DistributionSpace,
    check_steps,
    distribution_space,
    value_tree,
)
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.results.texts import error_text
from semidp.publish.selection import AUTO
from semidp.publish.sources.reader import Reader, conceal
from semidp.publish.statistics.distribution.published import (
    QUANTILES,
    GroupDistributions,
    band_half_widths,
    count_errors,
    count_up_to,
    difference_error,
    in_order,
    pointwise_half_widths,
    publish_distribution,
)
from semidp.publish.statistics.outcomes.groups import (
    BOUNDS,
    GRID,
    GROUP,
    LEVEL,
    STEP,
    EvenGroup,
    group_values,
    outcome_values,
    read_groups,
    read_outcome,
)
from semidp.publish.statistics.outcomes.noise_law import LEVEL as USUAL_LEVEL
from semidp.publish.statistics.outcomes.request import (
    GroupedRequest,
    ValuesRequest,
    checked_outcome,
    group_margins,
    optional_text,
)
from semidp.publish.statistics.protocol.requests import (
    NO_RECORD,
    Forecast,
    Request,
    checked_budget,
    file_name,
    mechanism_name,
    member,
)
from semidp.publish.statistics.protocol.statistic import (
    Chosen,
    Kind,
    OtherAnswer,
    Panel,
    PublishedStatistic,
    Setting,
    Shape,
)


class Answers(StrEnum):
    """Why quantiles are read off a distribution: for narrower intervals, for closer values, or on
    request.
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
        If quantiles were requested, why they are read off a distribution. The file named after
        the request then holds the quantiles.
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

    outcome: Outcome = field(converter=checked_outcome)
    by: tuple[Margin, ...] = field(default=None, converter=group_margins)
    probabilities: tuple[Fraction, ...] = field(default=QUANTILES, converter=_listed_quantiles)
    lines: tuple[Fraction, ...] = field(default=(), converter=_lines)
    budget: Budget | None = field(default=None, converter=checked_budget)
    mechanism: str = field(default=AUTO, converter=mechanism_name)
    name: str = field(default=Factory(_distribution_name, takes_self=True), converter=file_name)
    level: Fraction = field(default=USUAL_LEVEL, converter=parse_level)
    answers: Answers | None = field(default=None, converter=_answers)
    answered: str | None = field(default=None, converter=optional_text)

    def __attrs_post_init__(self) -> None:
        self._check_groups("a distribution by groups needs", "distribution is")
        check_steps(self.cut_outcome)

    def _entry(self, name: str, value: Any) -> dict[str, Any]:
        usual = {"probabilities": QUANTILES, "level": USUAL_LEVEL, "mechanism": AUTO}
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
        """Forecast the errors of shares, quantiles and the whole curve, in records."""
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
        return (Forecast(self.name, self.features, said, numbers),)

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
        """Return its noise as plain values, with the errors of cumulative counts."""
        values = super().noise_json(mechanism, foreseen)
        for forecast in foreseen:
            values |= forecast.numbers
        return values

    def read(
        self, reader: Reader, scope: Scope, space: QuerySpace
    ) -> Confidential[NDArray[np.int64]]:
        """Return the confidential differences of halves of all groups, set after set."""
        assert isinstance(space, DistributionSpace)
        histograms = self.read_rows(space, lambda names: reader.histogram(names, self.cut_outcome))
        return conceal(self.name, space.apply_query(histograms))

    def publish(
        self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress
    ) -> PublishedStatistic:
        """Return the distributions with their band, and what is listed of them."""
        return publish_distribution(self, GroupDistributions(mechanism, measured, self.level))


_DRAWS, _SEED = 200, 29  # simulated distributions of an even group, the same for everybody
# of the steps that chosen values are off, and steps: less is not told apart
_CLEARLY, _RESOLVED = 0.95, 0.01


def read_off(request: Request, mechanism: Mechanism) -> OtherAnswer | None:
    """Return the distribution that answers a request for quantiles, and whether it is better than
    choosing them.

    Parameters
    ----------
    request
        The request; only quantiles have this alternative.
    mechanism
        The mechanism that would choose them.
    """
    if not isinstance(request, GroupedRequest) or not request.asked_quantiles:
        return None
    named = request.answering_kind == DistributionRequest.key
    # A grid that is too fine for a distribution is refused only if one was asked for by name.
    if not named and (request.outcome.steps > MOST_STEPS or mechanism.space.is_zero):
        return None
    level = request.quantile_level
    reason = Answers.values if level is None else Answers.intervals
    rival = DistributionRequest(
        request.outcome,
        request.by,
        request.asked_quantiles,
        budget=request.budget,
        name=request.name,
        level=USUAL_LEVEL if level is None else level,
        answers=Answers.asked if named else reason,
        answered=request.answered,
    )
    if mechanism.space.is_zero:
        return OtherAnswer(rival, False, "there is no record")
    public = mechanism.space.dataspace
    assert isinstance(public, Dataspace)
    space = rival.space(Scope(public, None, mechanism.space.adjacency))
    measuring = rival.calibrate(space)
    if level is not None:
        return _by_intervals(rival, measuring, level, request.rank_reach(mechanism))
    return _by_values(rival, measuring, request.steps_off(mechanism))


def _by_intervals(
    rival: DistributionRequest, measuring: Mechanism, level: Fraction, reach: float | None
) -> OtherAnswer | None:
    """Compare how many ranks intervals reach to each side."""
    if reach is None:
        return None
    # The law of the noise decides what is published; to choose, a normal one is near enough.
    wide = NormalDist().inv_cdf((1 + float(level)) / 2)
    half = wide * float(count_errors(measuring).mean())
    from_here, chosen = f"about ±{error_text(half)} ranks", f"±{error_text(reach)}"
    if half < reach:
        return OtherAnswer(
            rival, True, f"a distribution has intervals of {from_here}, chosen ones reach {chosen}"
        )
    return OtherAnswer(
        rival, False, f"selection has intervals of {chosen} ranks, a distribution {from_here}"
    )


def _by_values(
    rival: DistributionRequest, measuring: Mechanism, chosen: float | None
) -> OtherAnswer | None:
    """Compare how many steps values without intervals are off."""
    if chosen is None:
        return None
    assert isinstance(measuring.space, DistributionSpace)
    group = EvenGroup.typical(measuring.space.sizes, rival.outcome.steps)
    off = even_error(group, difference_error(measuring), rival.probabilities)
    where = f"where {group.size:,} records lie evenly on {group.steps:,} steps"
    ours, theirs = f"{error_text(off)} steps off", error_text(chosen)
    if off + _RESOLVED < _CLEARLY * chosen:
        return OtherAnswer(
            rival, True, f"a distribution is about {ours} {where}, chosen values {theirs}"
        )
    return OtherAnswer(
        rival,
        False,
        f"selection is about {theirs} steps off {where}, a distribution {error_text(off)}",
    )


@lru_cache(maxsize=64)
def even_error(group: EvenGroup, spread: float, probabilities: tuple[Fraction, ...]) -> float:
    """Return the mean error, in steps, of quantiles of a distribution in an even group, by
    simulation.

    Parameters
    ----------
    group
        The numbers of records and steps.
    spread
        The standard deviation of the noise in one difference of halves.
    probabilities
        Which quantiles.

    Examples
    --------
    >>> # Μ = 1 and any two records
    >>> round(even_error(EvenGroup(400, 127), 8.0, (Fraction(1, 2),)), 1)
    1.6
    """
    tree = value_tree(group.steps + 1)
    drawn = np.random.default_rng(_SEED).normal(0, spread, (_DRAWS, tree.gaps))
    noise = count_up_to(tree, drawn, np.zeros(_DRAWS))
    counts = in_order(group.up_to[:-1] + noise, np.full(_DRAWS, group.size))
    distances = []
    for probability in probabilities:
        rank = group.rank(probability)
        places = (counts < rank).sum(axis=1)
        distances.append(float(np.abs(places - group.place(rank)).mean()))
    return math.fsum(distances) / len(distances)


LINE = Setting(
    "line",
    "Report the shares of a distribution below these lines.",
    Shape.lists,
    "COLUMN=50,75",
    Panel.groups,
    key="[[distribution]] lines",
    label="shares below the lines",
    example="score=50,75",
    needs=("distribution",),
)
DISTRIBUTION = Setting(
    "distribution",
    "The whole distribution of a private column in each group.",
    Shape.columns,
    "COLUMN",
    Panel.publish,
    key="[[distribution]]",
    label="Distribution",
    beside=(GROUP, BOUNDS, GRID, STEP, LINE, LEVEL),
    private=True,
)


def _build_requests(chosen: Chosen) -> list[DistributionRequest]:
    """Return the distribution of every column that is named."""
    requests = []
    for column in chosen[DISTRIBUTION]:
        by = read_groups(chosen)
        outcome = read_outcome(chosen, column, DistributionRequest)
        texts = chosen.of_column(LINE, column) or ()
        # A line that is named twice is one.
        lines = sorted({exact(text, f"a line of {column!r}") for text in texts})
        level = chosen[LEVEL] or USUAL_LEVEL
        requests.append(DistributionRequest(outcome, by, lines=lines, level=level))
    return requests


def _list_choices(request: DistributionRequest) -> list[tuple[dict[str, Any], DistributionRequest]]:
    """Return what would have been chosen to ask for a request; those who answered cannot be."""
    column = request.outcome.column
    if request.answers is not None or request.answered is not None:
        return []
    chosen: dict[str, Any] = {DISTRIBUTION.name: (column,), **group_values(request.by)}
    chosen |= outcome_values(request)
    if request.lines:
        chosen[LINE.name] = {column: tuple(plain(line) for line in request.lines)}
    if request.level != USUAL_LEVEL:
        chosen[LEVEL.name] = plain(request.level)
    return [(chosen, request.with_budget(None))]


KIND = Kind(
    place=35,
    key="distribution",
    asked=(DistributionRequest,),
    settings=(DISTRIBUTION,),
    ask=_build_requests,
    shown=_list_choices,
    alternative=read_off,
)
