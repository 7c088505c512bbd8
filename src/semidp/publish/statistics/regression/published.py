"""What a release publishes of a regression: coefficients, errors, intervals, what was measured."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from semidp.promise.guarantee import Scope
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.publish.plots.figures import estimates_plot
from semidp.publish.results.cells import Columns, Form, PublishedColumns
from semidp.publish.results.sections import Details, Section
from semidp.publish.statistics.outcomes.confidence import Intervals
from semidp.publish.statistics.protocol.results import Published, mechanism_fields
from semidp.publish.statistics.recheck_findings import Trust
from semidp.publish.statistics.regression import words
from semidp.publish.statistics.regression.linear import LinearFit
from semidp.publish.statistics.regression.logistic import LogisticFit

if TYPE_CHECKING:
    from semidp.publish.statistics.protocol.requests import Request
    from semidp.publish.statistics.regression.request import RegressionRequest
from semidp.publish.statistics.outcomes.published import (
    describe_intervals,
    interval_columns,
    outcome_trust,
)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PublishedRegression(PublishedColumns, Published):
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
        What was measured: sums by group, or combinations of the columns.
    intervals
        Those of the noise alone, and those for the population where asked for.

    Examples
    --------
    >>> import semidp
    >>> request = semidp.publish.RegressionRequest(
    ...     semidp.Outcome("days", 0, 10, 10), ["arm"], semidp.Budget.gdp(1)
    ... )
    >>> plan = semidp.Plan([request], invariants=["arm"])
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
    query: Mapping[str, Any]
    intervals: tuple[Intervals, ...]

    def space(self, request: "Request", scope: Scope) -> QuerySpace:
        """Return the space of what was measured; what is best for a regression may change from
        version to version.
        """
        return self.request.measured_space({"query": self.query}, scope)

    def trust_assumptions(self, request: "Request") -> Iterator[Trust]:
        """Yield what is believed of it besides its noisy values: which column was read."""
        yield from outcome_trust(request)

    def rows(self) -> Iterator[tuple[str, float, float]]:
        """Yield each term with its coefficient and standard error."""
        yield from zip(
            self.terms, self.coefficients.tolist(), self.standard_errors.tolist(), strict=True
        )

    def title(self) -> str:
        """Name it: the linear regression of days on arm."""
        return words.title(self)

    def noisy_lines(self) -> list[str]:
        """Say how many coefficients there are."""
        return words.noisy_lines(self)

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return the mechanism and the first coefficients, for a terminal."""
        return words.summary_lines(self)

    def sections(self, form: Form | None = None) -> list[Section]:
        """Return the section of the coefficients."""
        return [words.section(self)]

    def details(self) -> Details:
        """Say how it was measured."""
        return words.details(self)

    def file_words(self, form: Form | None = None) -> list[tuple[str, str]]:
        """Say what its files hold."""
        return words.file_words(self)

    def columns_by_name(self) -> dict[str, PublishedColumns]:
        """Return the coefficients under its name."""
        return {self.name: self}

    def warnings(self) -> list[str]:
        """Say where to go with a factor that looks like a measured number."""
        return words.continuous_factors(self.terms, self.request.factors)

    def files(self, form: Form | None = None) -> dict[str, Columns]:
        """Return the coefficients, a row each, and the measurements."""
        coefficients, measurements = self.request.files
        steps = {"entry": np.arange(len(self.noisy)), "noisy_steps": self.noisy}
        return {coefficients: self.columns(), measurements: Columns({}, steps)}

    def columns(self) -> Columns:
        """Return the columns of the coefficients, a row each."""
        numbers = {"coefficient": self.coefficients, "standard_error": self.standard_errors}
        numbers |= interval_columns(self.intervals)
        return Columns.of_rows(
            ["term"], [(term,) for term in self.terms], numbers, words.COLUMN_MEANINGS
        )

    def plot(self, axes: Any = None) -> Any:
        """Draw the coefficients with two standard errors to each side; return the figure."""
        terms, values, errors = zip(*self.rows(), strict=True)
        return estimates_plot(terms, values, errors, "coefficient", None, axes)

    def __repr__(self) -> str:
        return (
            f"PublishedRegression({self.name!r}: {len(self.terms):,} coefficients,"
            f" {self.noise.mechanism})"
        )

    def to_json(self) -> dict[str, Any]:
        """Return everything but the numbers in the CSV files, as plain values."""
        return {
            **super().to_json(),
            "query": dict(self.query),
            "intervals": describe_intervals(self.intervals),
        }


def published_regression(
    request: "RegressionRequest", fit: LinearFit | LogisticFit
) -> PublishedRegression:
    """Return coefficients with the standard errors of the noise alone, and intervals."""
    confidence = request.confidence
    level, together = confidence.level, confidence.simultaneous
    if isinstance(fit, LinearFit):
        errors, intervals = fit.standard_errors(), [fit.intervals(level, simultaneous=together)]
        if confidence.sampling:
            intervals.append(fit.intervals(level, sampling=True, simultaneous=together))
    else:
        errors = fit.standard_errors(sampling=False)
        kinds = (False, True) if confidence.sampling else (False,)
        intervals = [
            fit.intervals(level, sampling=sampling, simultaneous=together) for sampling in kinds
        ]
    return PublishedRegression(
        request=request,
        terms=fit.names,
        coefficients=fit.coefficients,
        standard_errors=errors,
        noisy=np.asarray(fit.moments.measurement.noisy, dtype=np.int64),
        query=fit.moments.space.query(),
        intervals=tuple(intervals),
        **mechanism_fields(request.name, fit.moments.mechanism, fit.private),
    )
