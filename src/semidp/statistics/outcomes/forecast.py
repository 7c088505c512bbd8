"""What the sums behind a statistic of a private outcome would look like before anything is
drawn.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from semidp.mechanisms.mechanism import Mechanism
from semidp.output.texts import error_text, short_text


@dataclass(frozen=True)
class SumsForecast:
    """The noise in the sums behind a statistic of groups or a regression.

    Parameters
    ----------
    name, features
        What it is called, and the features that it is by.
    standard_error
        That of each sum from the noise alone, in units of the outcome.

    Examples
    --------
    >>> SumsForecast("mean-score", ("school",), 12.345).line()
    'standard error of each sum 12.3'
    """

    listed: ClassVar[str] = "statistics"
    by_cells: ClassVar[bool] = False

    name: str
    features: tuple[str, ...]
    standard_error: float

    @classmethod
    def of(cls, name: str, features: tuple[str, ...], mechanism: Mechanism) -> "SumsForecast":
        """Return what a mechanism on sums, in steps of the grid, says."""
        steps = math.sqrt(mechanism.variance)
        return cls(name, features, steps * float(mechanism.space.unit))

    @property
    def label(self) -> str:
        """What it is about, by which plans are compared: its name."""
        return self.name

    def line(self) -> str:
        """Say how large the noise is."""
        return f"standard error of each sum {short_text(self.standard_error)}"

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "name": self.name,
            "features": list(self.features),
            "standard_error_of_sums": self.standard_error,
        }


@dataclass(frozen=True)
class MeansForecast(SumsForecast):
    """The noise in means and proportions of groups: that of a sum over the exact count.

    Parameters
    ----------
    statistic
        What is published of each group.
    smallest, largest
        The standard errors in the largest group and in the smallest; both 0 where there is no
        record.

    Examples
    --------
    >>> MeansForecast("mean-score", ("school",), 12.345, "mean", 0.12, 1.5).line()
    'standard error of each mean 0.12 (largest group) to 1.5 (smallest)'
    """

    statistic: str
    smallest: float
    largest: float

    @classmethod
    def by_counts(
        cls,
        sums: SumsForecast,
        statistic: str,
        counts: NDArray[np.int64],
        variances: NDArray[np.float64],
    ) -> "MeansForecast":
        """Divide the errors of the sums by the exact counts of the groups with records.

        Parameters
        ----------
        sums, statistic
            The noise in a sum, and what is published.
        counts, variances
            Of each group its exact count, and which part of the noise's variance is left in its
            sum beside what is exact.
        """
        occupied = counts > 0
        errors = sums.standard_error * np.sqrt(variances[occupied]) / counts[occupied]
        ends = (float(errors.min(initial=np.inf)), float(errors.max(initial=0.0)))
        if not occupied.any():
            ends = (0.0, 0.0)
        return cls(sums.name, sums.features, sums.standard_error, statistic, *ends)

    def line(self) -> str:
        """Say how large the noise is."""
        low, high = error_text(self.smallest), error_text(self.largest)
        span = low if low == high else f"{low} (largest group) to {high} (smallest)"
        return f"standard error of each {self.statistic} {span}"

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        ends = {"smallest_standard_error": self.smallest, "largest_standard_error": self.largest}
        return {**super().to_json(), **ends}


def sums_line(name: str, mechanism: Mechanism) -> str:
    """Say with what noise the sums behind a statistic would be measured."""
    # The mechanism counts in steps of the grid; a reader knows the units of the outcome.
    scale = mechanism.scale * float(mechanism.space.unit)
    what = f"{mechanism.name} for the sums behind {name}"
    return f"{what}: scale {scale:.4g} in each, {mechanism.claim} claim"
