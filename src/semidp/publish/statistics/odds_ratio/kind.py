"""Tests of odds ratios: results, requests, and their entry in the registry."""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from attrs import Factory, field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.confidential import Confidential
from semidp.promise.exact import Number, count_noun, exact, plain, round_down
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.canonical_cell import CanonicalMechanism, CellSpace
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.progress import Progress
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.dataspace import Margin
from semidp.promise.spaces.protection import refuse_dependent
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.results.role_columns import Role, RoleColumn, Sheet, noisy_column
from semidp.publish.results.texts import p_value_text
from semidp.publish.selection import AUTO
from semidp.publish.sources.reader import Reader, conceal
from semidp.publish.statistics.odds_ratio.measured_ratio import OddsRatioResult
from semidp.publish.statistics.odds_ratio.umpu import (
    Alternative,
    Interval,
    Strata,
    TwoByTwo,
    UmpuTest,
    margins_of,
    refuse_untestable,
)
from semidp.publish.statistics.outcomes.groups import LEVEL
from semidp.publish.statistics.outcomes.noise_law import LEVEL as USUAL_LEVEL
from semidp.publish.statistics.protocol.requests import (
    Forecast,
    OwnBudget,
    RequestMeasurement,
    checked_budget,
    file_name,
    member,
    require_budget,
)
from semidp.publish.statistics.protocol.statistic import (
    Chosen,
    Kind,
    Panel,
    PublishedStatistic,
    Sentences,
    Setting,
    Shape,
    publish_statistic,
)
from semidp.publish.written_values import check_level, text, texts

_SIDES = {
    Alternative.GREATER: "above 1",
    Alternative.LESS: "below 1",
    Alternative.TWO_SIDED: "different from 1",
}
_INTRODUCTION = (
    "The table has four counts: x11 of the records with the first level of both features, x22 of"
    " those with the second level of both, and x12 and x21 of the others. The odds ratio is x11 x22"
    " / (x12 x21). Both margins, the totals of each feature, are exact. So only x11 had to be"
    " measured: U is x11 plus noise, and everything below follows from U and the margins."
)
_EMPTY = "Every odds ratio is rejected: U lies far outside the counts that the margins allow."


def publish_odds_ratio(
    request: "OddsRatioRequest", mechanism: CanonicalMechanism, measured: Measurement
) -> PublishedStatistic:
    """Return the test of a measured x11: U, its p-value and interval, and all that follows."""
    result = OddsRatioResult.from_measurement(mechanism, measured, request.alternative)
    level = float(request.level)
    interval = result.confidence_interval(level)
    within = f" within {', '.join(request.strata)}" if request.strata else ""
    title = f"odds ratio of {request.rows} and {request.columns}{within}"
    rows = test_rows(result, interval)
    # Neither U nor the p-value is the estimate that the interval belongs to.
    numbers = (
        ("u", result.u, "the first count with canonical noise"),
        ("p_value", result.p_value, "that of the test that the odds ratio is 1"),
        ("lower", interval.low, "the lower end of an interval for the odds ratio"),
        ("upper", interval.high, "the upper end of an interval for the odds ratio"),
    )
    sheet = Sheet(
        name=request.name,
        role_columns=(
            *(
                RoleColumn(name, Role.estimate, np.array([value]), said)
                for name, value, said in numbers
            ),
            noisy_column("noisy", measured.noisy, "u as drawn, in steps of its grid"),
        ),
        words=f"the {title}: U, its p-value and interval",
        heading=f"Published {title}",
        row="number",
        listing=rows,
    )
    sentences = Sentences(
        title=title,
        noise=f"exact on a grid of 2^-{result.grid_bits}",
        paragraphs=(_INTRODUCTION, _EMPTY) if interval.empty else (_INTRODUCTION,),
        notes=tuple(rows),
    )
    told = result.to_json(level)
    kept = ("u", "grid_bits", "p_value", "alternative", "interval", "x11")
    facts = {name: told[name] for name in kept}
    source = RequestMeasurement(mechanism, measured)
    return publish_statistic(request, source, sentences, [sheet], facts, result)


def test_rows(result: OddsRatioResult, interval: Interval) -> list[tuple[str, str]]:
    """Return the count, the exact margins, U, the p-value and the interval, each after a
    keyword.
    """
    row, column = result.x11
    counted = f"x11: {result.rows} = {row} and {result.columns} = {column}"
    if result.strata:
        counted += f", summed over the strata of {', '.join(result.strata)}"
    deviation = result.test.noise.standard_deviation
    measured = f"{result.u:.6f}, that is x11 plus noise of standard deviation {deviation:.4g}"
    asked = f"{question(result.alternative)}{_quality(result)}"
    return [
        ("counted", counted),
        ("exact", margins_text(result.margins)),
        ("U", measured),
        ("p-value", f"{p_value_text(result.p_value)} ({asked})"),
        ("interval", interval_text(result, interval)),
    ]


def interval_text(result: OddsRatioResult, interval: Interval) -> str:
    """Describe the odds ratios that the test does not reject."""
    span = "empty" if interval.empty else f"{interval.low:.4g} to {interval.high:.4g}"
    ratio = "common odds ratio" if result.strata else "odds ratio"
    return f"{span} for the {ratio}, at level {plain(exact(interval.level))}"


def margins_text(margins: TwoByTwo | Strata) -> str:
    """Say which margins the test conditions on.

    >>> margins_text(TwoByTwo(row=60, column=40, n=100))
    '60 and 40 of 100 records have these levels'
    """
    if isinstance(margins, Strata):
        varied = sum(not table.degenerate for table in margins.tables)
        return (
            f"both margins of {count_noun(len(margins.tables), 'stratum', 'strata')} with"
            f" {count_noun(margins.n, 'record')}; {varied:,} of them"
            f" {'varies' if varied == 1 else 'vary'}"
        )
    records = count_noun(margins.n, "record")
    return f"{margins.row:,} and {margins.column:,} of {records} have these levels"


def question(alternative: Alternative) -> str:
    """Say what the alternative means.

    >>> question(Alternative.LESS)
    'is the odds ratio below 1?'
    """
    return f"is the odds ratio {_SIDES[alternative]}?"


def _quality(result: OddsRatioResult) -> str:
    if result.alternative is Alternative.TWO_SIDED and result.is_unbiased:
        return ", unbiased"
    if result.most_powerful:
        return ", uniformly most powerful among unbiased tests with this guarantee"
    return ""


_FORETOLD = (1.5, 2.0, 3.0)  # odds ratios at which the power is foretold
_ALPHA = 0.05


def _feature(value: str) -> str:
    return text(value, "a feature of an odds ratio")


def _strata(value: Iterable[str]) -> tuple[str, ...]:
    return texts(value, "the strata of an odds ratio")


def _alternative(value: Alternative | str) -> Alternative:
    return member(Alternative, value, "the alternative")


def _level(value: Number) -> Fraction:
    level = exact(value, "the level of an interval")
    check_level(round_down(level), "the level of an interval")
    return level


def _name(request: "OddsRatioRequest") -> str:
    return f"odds-ratio-{request.rows}-{request.columns}"


@frozen
class OddsRatioRequest(OwnBudget):
    """A test of the odds ratio of two features of two levels each, whose margins are published
    exactly.

    With strata it is the exact test of Cochran, Mantel and Haenszel, with both margins exact in
    every stratum.

    Parameters
    ----------
    rows, columns
        The two features. The first declared level of each is level 1.
    budget, name
        As for a table. The name is that of the features unless given.
    strata
        Features within whose combinations the odds ratio is common.
    alternative
        ``two-sided`` (other than 1), ``greater`` or ``less``.
    level
        The confidence level of the interval.

    Examples
    --------
    >>> OddsRatioRequest("gender", "admit", Budget.gdp(1)).exact_margins
    (Margin('gender'), Margin('admit'))
    """

    key: ClassVar[str] = "odds_ratio"
    list_key: ClassVar[str] = "odds_ratios"
    mechanism: ClassVar[str] = AUTO
    _needs: ClassVar[Mapping[str, str]] = {"rows": '"…"', "columns": '"…"'}

    rows: str = field(converter=_feature)
    columns: str = field(converter=_feature)
    budget: Budget | None = field(default=None, converter=checked_budget)
    strata: tuple[str, ...] = field(default=(), converter=_strata)
    alternative: Alternative = field(default=Alternative.TWO_SIDED, converter=_alternative)
    level: Fraction = field(default=Fraction(19, 20), converter=_level)
    name: str = field(default=Factory(_name, takes_self=True), converter=file_name)

    def __attrs_post_init__(self) -> None:
        if len({self.rows, self.columns, *self.strata}) < 2 + len(self.strata):
            raise InputError(
                "rows, columns and strata of an odds ratio must be different features, each named"
                " once"
            )

    def with_mechanism(self, name: str) -> "OddsRatioRequest":
        """Return the request: its noise is canonical."""
        return self

    @property
    def features(self) -> tuple[str, ...]:
        """The two features and the strata."""
        return (self.rows, self.columns, *self.strata)

    @property
    def exact_margins(self) -> tuple[Margin, ...]:
        """Both margins, within the strata."""
        return (Margin(self.rows, *self.strata), Margin(self.columns, *self.strata))

    def space(self, scope: Scope) -> QuerySpace:
        """Return the space of x11; refuse features without two levels, and a table that is itself
        exact.
        """
        refuse_untestable(scope.dataspace.schema, scope.dataspace, self.rows, self.columns)
        space = CellSpace(scope.dataspace, scope.adjacency, self.rows, self.columns, self.strata)
        space.refuse_idle()
        return space

    def calibrate(self, space: QuerySpace) -> Mechanism:
        """Return the canonical noise of the budget."""
        return CanonicalMechanism.calibrate(space, require_budget(self))

    def forecast(self, mechanism: Mechanism, scope: Scope) -> tuple[Forecast, ...]:
        """Return the noise in x11, and the power at 5% for a few odds ratios."""
        assert isinstance(mechanism, CanonicalMechanism)
        test = UmpuTest(margins_of(mechanism.cell), mechanism.noise_law)
        # A test for smaller odds ratios finds none above 1; the inverse is the same effect the
        # other way.
        is_less = self.alternative is Alternative.LESS
        ratios = [1 / ratio if is_less else ratio for ratio in _FORETOLD]
        power = [test.power(ratio, _ALPHA, self.alternative) for ratio in ratios]
        deviation = float(test.noise.standard_deviation)
        said = (
            f"noise of standard deviation {deviation:.4g} in x11; finds an odds ratio of"
            f" {', '.join(f'{ratio:.3g}' for ratio in ratios)} with probability"
            f" {', '.join(f'{chance:.2g}' for chance in power)} at 5%"
        )
        chances = [
            {"odds_ratio": ratio, "power": chance}
            for ratio, chance in zip(ratios, power, strict=True)
        ]
        numbers = {"standard_deviation": deviation, "power": chances}
        return (Forecast(self.name, self.features, said, numbers),)

    def read(
        self, reader: Reader, scope: Scope, space: QuerySpace
    ) -> Confidential[NDArray[np.int64]]:
        """Return the confidential x11; refuse if a person may have several records, since the test
        would not keep its level.
        """
        instead = f"semidp model RELEASE '{self.columns} ~ {self.rows}' of a table of both"
        refuse_dependent(scope.protection, instead)
        counts = reader.table((self.rows, self.columns)).margin((self.rows, self.columns)).counts
        return conceal(self.name, counts[:1, 0])

    def publish(
        self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress
    ) -> PublishedStatistic:
        """Return the test of the measured x11."""
        assert isinstance(mechanism, CanonicalMechanism)
        return publish_odds_ratio(self, mechanism, measured)


ALTERNATIVE = Setting(
    "alternative",
    "What an odds ratio of 1 is tested against: two-sided (default), greater or less.",
    Shape.text,
    "NAME",
    key="[[odds_ratio]] alternative",
    label="against",
    example="two-sided",
    needs=("odds_ratio",),
)
ODDS_RATIO = Setting(
    "odds_ratio",
    "Test whether two features with two levels each are associated; further features are strata.",
    Shape.features,
    "ROWS,COLUMNS[,STRATA]",
    Panel.publish,
    key="[[odds_ratio]]",
    label="Odds ratio",
    example="gender,admit",
    several=True,
    beside=(ALTERNATIVE, LEVEL),
)


def _build_requests(chosen: Chosen) -> list[OddsRatioRequest]:
    """Return a test for every pair of features that is named."""
    requests = []
    for features in chosen[ODDS_RATIO]:
        if len(features) < 2:
            raise InputError("an odds ratio has two features: ⟨odds_ratio gender,admit⟩")
        rows, columns, *strata = features
        alternative = chosen[ALTERNATIVE] or Alternative.TWO_SIDED
        level = chosen[LEVEL] or USUAL_LEVEL
        requests.append(OddsRatioRequest(rows, columns, None, strata, alternative, level))
    return requests


def _list_choices(request: OddsRatioRequest) -> list[tuple[dict[str, Any], OddsRatioRequest]]:
    """Return what would have been chosen to ask for a request."""
    chosen: dict[str, Any] = {ODDS_RATIO.name: (request.features,)}
    if request.alternative is not Alternative.TWO_SIDED:
        chosen[ALTERNATIVE.name] = str(request.alternative)
    if request.level != USUAL_LEVEL:
        chosen[LEVEL.name] = plain(request.level)
    return [(chosen, request.with_budget(None))]


KIND = Kind(
    place=40,
    key="odds_ratio",
    asked=(OddsRatioRequest,),
    settings=(ODDS_RATIO,),
    ask=_build_requests,
    shown=_list_choices,
)
