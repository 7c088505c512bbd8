"""How far statistics of a private outcome by groups would be off before anything is drawn.

Group sizes are exact, so that the error of a mean is known beforehand: that of its sum over the
size.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.sensitivity.outcome_spaces import SumSpace
from semidp.publish.results.texts import error_text, scale_text
from semidp.publish.statistics.protocol.request_defaults import StatisticForecast

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ErrorRange:
    """The smallest, the median and the largest of several standard errors.

    >>> ErrorRange.from_errors(np.array([0.12, 1.5, 0.41])).line(
    ...     "mean", "largest group", "smallest"
    ... )
    'standard error of each mean 0.12 (largest group) to 1.5 (smallest), median 0.41'
    """

    smallest: float
    median: float
    largest: float

    @classmethod
    def from_errors(cls, errors: Floats) -> "ErrorRange | None":
        """Return the range of some errors; None where there is none."""
        if not errors.size:
            return None
        return cls(float(errors.min()), float(np.median(errors)), float(errors.max()))

    def line(self, what: str, at_best: str = "", at_worst: str = "") -> str:
        """Say how large the errors are, and where each end is."""
        low, high = error_text(self.smallest), error_text(self.largest)
        if low == high:
            return f"standard error of each {what} {high}"
        first = f"{low} ({at_best})" if at_best else low
        last = f"{high} ({at_worst})" if at_worst else high
        middle = error_text(self.median)
        return f"standard error of each {what} {first} to {last}, median {middle}"

    def to_json(self) -> dict[str, float]:
        """Return it as plain values."""
        return {
            "smallest_standard_error": self.smallest,
            "median_standard_error": self.median,
            "largest_standard_error": self.largest,
        }


@dataclass(frozen=True)
class OutcomeForecast(StatisticForecast):
    """How far a statistic of a private outcome by groups would be off, from the noise alone.

    Parameters
    ----------
    name, features
        What it is called, and the features that form the groups.
    statistic
        What is published of each group: ``mean``, ``sum`` or ``proportion``.
    errors
        Its standard errors, over the groups with records; None where there is no record.
    """

    statistic: str
    errors: ErrorRange | None

    def line(self) -> str:
        """Say how far off a group would be."""
        if self.errors is None:
            return "no noise: there is no record"
        if self.statistic == "sum":
            return self.errors.line(self.statistic)
        return self.errors.line(self.statistic, "largest group", "smallest")

    def measured_error(self) -> dict[str, float]:
        """Return the largest standard error of what is measured, as plain values."""
        return {}

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "name": self.name,
            "features": list(self.features),
            "statistic": self.statistic,
            **self.measured_error(),
            **({} if self.errors is None else self.errors.to_json()),
        }


@dataclass(frozen=True)
class GroupsForecast(OutcomeForecast):
    """How far a sum, mean or proportion by groups would be off, from the noise alone.

    Parameters
    ----------
    standard_error
        The largest standard error of a sum, in units of the outcome.

    Examples
    --------
    >>> errors = ErrorRange(0.12, 0.41, 1.5)
    >>> GroupsForecast("mean-score", ("school",), "mean", errors, 12.3).line()
    'standard error of each mean 0.12 (largest group) to 1.5 (smallest), median 0.41'
    """

    standard_error: float

    @classmethod
    def from_mechanism(
        cls, name: str, features: tuple[str, ...], statistic: str, mechanism: Mechanism
    ) -> "GroupsForecast":
        """Return what a mechanism on sums by groups says of a statistic of theirs."""
        space = mechanism.space
        assert isinstance(space, SumSpace)
        sizes = np.concatenate([counts.ravel() for counts in space.counts])
        # Sets of groups have one total, so that each has less noise than was drawn.
        steps = np.sqrt(mechanism.variance * space.variances())
        inhabited = sizes > 0
        of_sums = steps[inhabited] * float(space.unit)
        errors = of_sums if statistic == "sum" else of_sums / sizes[inhabited]
        largest = float(of_sums.max(initial=0.0))
        return cls(name, features, statistic, ErrorRange.from_errors(errors), largest)

    def measured_error(self) -> dict[str, float]:
        """Return the error of a sum."""
        return {"standard_error_of_sums": self.standard_error}


def sums_line(name: str, mechanism: Mechanism, foreseen: str) -> str:
    """Say with what noise the sums behind a statistic would be measured, and how far off it is
    then.
    """
    # The mechanism counts in steps of the grid; a reader knows the units of the outcome.
    scale = mechanism.scale * float(mechanism.space.unit)
    what = f"{mechanism.name} for the sums behind {name}"
    return f"{what}: scale {scale_text(scale)} in each, {mechanism.claim} claim; {foreseen}"
