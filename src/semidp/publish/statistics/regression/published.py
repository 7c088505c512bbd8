"""What a release publishes of a regression: coefficients, errors, intervals, what was measured."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.scope import Scope
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.publish.plots.figures import estimates_plot
from semidp.publish.results.cells import Columns, Form, PublishedColumns
from semidp.publish.results.sections import Details, Section
from semidp.publish.statistics.outcomes.confidence import Intervals
from semidp.publish.statistics.protocol.rechecks import ResultCheck
from semidp.publish.statistics.protocol.results import Published, mechanism_fields, read_back
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
    parse_rows,
    read_intervals,
    real_numbers,
    verify_files,
    whole_numbers,
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
        What was measured: sums by group, or combinations of the columns. None where it was X'y
        itself, times the design's multiplier, as in releases of earlier versions.
    intervals
        Those of the noise alone, and those for the population where asked for.

    Examples
    --------
    >>> import semidp
    >>> request = semidp.RegressionRequest(
    ...     semidp.Outcome("days", 0, 10, 10), ["arm"], semidp.Budget.gdp(1)
    ... )
    >>> plan = semidp.Plan([request], invariants=["arm"])
    >>> release = semidp.run(plan, {"arm": ["a", "a", "b"], "days": [7, 4, 2]})
    >>> release.regressions[0].terms
    ('intercept', 'arm=b')
    """

    key: ClassVar[str] = "regressions"
    derived_fields: ClassVar[tuple[str, ...]] = (*Published.derived_fields, "intervals")

    request: "RegressionRequest"
    terms: tuple[str, ...]
    coefficients: NDArray[np.float64] = field(repr=False)
    standard_errors: NDArray[np.float64] = field(repr=False)
    noisy: NDArray[np.int64] = field(repr=False)
    query: Mapping[str, Any] | None = None
    intervals: tuple[Intervals, ...] = ()

    def space(self, request: "Request", scope: Scope) -> QuerySpace:
        """Return the space of what was measured; what is best for a regression may change from
        version to version.
        """
        return self.request.measured_space(self.query, scope)

    def recheck(self, check: ResultCheck, mechanism: Mechanism) -> "PublishedRegression":
        """Compare coefficients, errors and intervals; return the regression as it is computed
        again.
        """
        from semidp.publish.statistics.regression.recheck import recheck_regression

        return recheck_regression(self, check, mechanism)

    def holds_noise(self, column: str) -> bool:
        """Whether a column of its files holds what was measured."""
        return column == "noisy_steps"

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
        if self.query is None:
            return {coefficients: self.columns()}
        steps = {"entry": np.arange(len(self.noisy)), "noisy_steps": self.noisy}
        return {coefficients: self.columns(), measurements: Columns({}, steps)}

    def columns(self) -> Columns:
        """Return the columns of the coefficients, a row each."""
        ends = (
            interval_columns(self.intervals)
            if self.query is not None
            else {"noisy_steps": self.noisy}
        )
        numbers = {"coefficient": self.coefficients, "standard_error": self.standard_errors, **ends}
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
        if self.query is None:
            return super().to_json()
        return {
            **super().to_json(),
            "query": dict(self.query),
            "intervals": describe_intervals(self.intervals),
        }

    @classmethod
    def from_json(
        cls,
        entry: Mapping[str, Any],
        request: "RegressionRequest",
        scope: Scope,
        files: Mapping[str, bytes],
    ) -> "PublishedRegression":
        """Read what `to_json` and `files` wrote."""
        told, measured = entry.get("intervals", ()), entry.get("query")
        if measured is not None and not isinstance(measured, Mapping):
            raise ValueError("what was measured is a query")
        coefficients, measurements = request.files
        _, names, columns = parse_rows(files[coefficients], 2 + (2 * len(told) if measured else 1))
        steps = columns.pop() if measured is None else parse_rows(files[measurements], 1)[2][0]
        numbers = real_numbers(columns)
        regression = cls(
            request=request,
            terms=tuple(name for (name,) in names),
            coefficients=numbers[:, 0],
            standard_errors=numbers[:, 1],
            noisy=whole_numbers(steps),
            query=measured,
            intervals=read_intervals(
                told, names, numbers[:, 0], numbers[:, 2:], request.confidence.level
            ),
            **read_back(entry, scope),
        )
        return verify_files(regression, files)


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
