"""The request for a private test of an odds ratio."""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from attrs import Factory, field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.confidential import Confidential
from semidp.promise.exact import Number, exact, round_down
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.canonical_cell import CanonicalMechanism, CellSpace
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.progress import Progress
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.dataspace import Margin
from semidp.promise.spaces.protection import refuse_dependent
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.selection import AUTO
from semidp.publish.sources.reader import Reader, conceal
from semidp.publish.statistics.odds_ratio.hypergeometric import margins_of, refuse_untestable
from semidp.publish.statistics.odds_ratio.published import publish_odds_ratio
from semidp.publish.statistics.odds_ratio.umpu import Alternative, UmpuTest
from semidp.publish.statistics.protocol.requests import (
    Forecast,
    OwnBudget,
    StatisticForecast,
    checked_budget,
    file_name,
    member,
    require_budget,
)
from semidp.publish.statistics.protocol.statistic import PublishedStatistic
from semidp.publish.written_values import check_level, text, texts

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
    _written: ClassVar[tuple[str, ...]] = (
        "name",
        "rows",
        "columns",
        "strata",
        "alternative",
        "level",
        "budget",
    )
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
        return (StatisticForecast(self.name, self.features, said, numbers),)

    def read(
        self, reader: Reader, scope: Scope, space: QuerySpace
    ) -> Confidential[NDArray[np.int64]]:
        """Return the confidential x11; refuse where a person may have several records, for which
        the test would not hold its level.
        """
        instead = f"a table of both features with semidp model '{self.columns} ~ {self.rows}'"
        refuse_dependent(scope.protection, instead)
        counts = reader.table((self.rows, self.columns)).margin((self.rows, self.columns)).counts
        return conceal(self.name, counts[:1, 0])

    def publish(
        self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress
    ) -> PublishedStatistic:
        """Return the test of the measured x11."""
        assert isinstance(mechanism, CanonicalMechanism)
        return publish_odds_ratio(self, mechanism, measured)

    @classmethod
    def _fields(cls, value: Mapping[str, Any]) -> dict[str, Any]:
        fields = super()._fields(value)
        return {name: part for name, part in fields.items() if name in cls._written}
