"""What a release publishes of a test of an odds ratio."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.canonical_cell import CanonicalMechanism
from semidp.promise.mechanisms.mechanism import Measurement
from semidp.publish.results.cells import Columns, Form
from semidp.publish.results.sections import Details, Section
from semidp.publish.statistics.odds_ratio import words
from semidp.publish.statistics.odds_ratio.measured_ratio import OddsRatioResult
from semidp.publish.statistics.odds_ratio.umpu import Interval
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.protocol.results import Published, mechanism_fields

if TYPE_CHECKING:
    from semidp.publish.statistics.odds_ratio.request import OddsRatioRequest


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PublishedOddsRatio(Published):
    """One published test of an odds ratio.

    Parameters
    ----------
    request
        What was asked for.
    result
        The test: U, its p-value and interval, and all that follows from them.

    Examples
    --------
    >>> import semidp
    >>> from semidp.publish.statistics.odds_ratio.request import OddsRatioRequest
    >>> plan = semidp.Plan([OddsRatioRequest("sex", "vote", semidp.Budget.gdp(1))], ["sex", "vote"])
    >>> release = semidp.run(plan, {"sex": [*"ffmm"] * 50, "vote": [*"yynn"] * 50})
    >>> release.results[0].result.p_value < 0.001
    True
    """

    key: ClassVar[str] = "odds_ratios"

    request: "OddsRatioRequest"
    result: OddsRatioResult

    def __repr__(self) -> str:
        return f"PublishedOddsRatio({self.name!r}: {self.request.rows} × {self.request.columns})"

    @property
    def interval(self) -> Interval:
        """The odds ratios that the test does not reject, at the level of the request."""
        return self.result.confidence_interval(float(self.request.level))

    def title(self) -> str:
        """Name the test."""
        return words.title(self)

    def noisy_lines(self) -> list[str]:
        """Say that one number was measured."""
        return [f"{words.title(self)}: 1 number"]

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return the test, for a terminal."""
        return words.test_rows(self.result, self.interval)

    def sections(self, form: Form | None = None) -> list[Section]:
        """Return the section of the test in a report."""
        return words.sections(self)

    def details(self) -> Details:
        """Say how x11 was measured."""
        return words.details(self)

    def file_words(self, form: Form | None = None) -> list[tuple[str, str]]:
        """Say what the file holds."""
        (file,) = self.request.files
        return [(file, f"the {words.title(self)}: U, its p-value and interval")]

    def recalibrate(self, request: Request, scope: Scope) -> CanonicalMechanism:
        """Return the canonical noise of the request's budget."""
        space = request.space(scope)
        mechanism = request.calibrate(space)
        assert isinstance(mechanism, CanonicalMechanism)
        return mechanism

    def files(self, form: Form | None = None) -> dict[str, Columns]:
        """Return one row: U, the p-value, the interval, and U in steps of its grid."""
        interval = self.interval
        numbers = {
            "u": np.array([self.result.u]),
            "p_value": np.array([self.result.p_value]),
            "lower": np.array([interval.low]),
            "upper": np.array([interval.high]),
            "noisy": self.noisy,
        }
        (file,) = self.request.files
        return {file: Columns({}, numbers, words.COLUMN_MEANINGS)}

    def to_json(self) -> dict[str, Any]:
        """Return the test as plain values, with U and the grid that it was published on."""
        told = self.result.to_json(float(self.request.level))
        kept = ("u", "grid_bits", "p_value", "alternative", "interval", "x11")
        return {**super().to_json(), **{name: told[name] for name in kept}}


def published_odds_ratio(
    request: "OddsRatioRequest", mechanism: CanonicalMechanism, measured: Measurement
) -> PublishedOddsRatio:
    """Return the test of a measured x11."""
    return PublishedOddsRatio(
        request=request,
        result=OddsRatioResult.from_measurement(mechanism, measured, request.alternative),
        noisy=measured.noisy,
        **mechanism_fields(request.name, mechanism, measured.private),
    )
