"""How far off distributions would be before anything is drawn."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from semidp.promise.exact import number
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.sensitivity.distribution_space import DistributionSpace
from semidp.publish.results.texts import error_text
from semidp.publish.statistics.distribution.distribution_estimates import (
    band_half_widths,
    pointwise_half_widths,
)
from semidp.publish.statistics.protocol.request_defaults import StatisticForecast


@dataclass(frozen=True)
class DistributionForecast(StatisticForecast):
    """How far counts up to a value would be off, and with them the ranks of quantiles.

    Parameters
    ----------
    name, features
        What they are called, and the features that form the groups.
    half_width
        How far the count up to a value is off at most with the probability `level`, on the mean
        over all values.
    widest
        The same for the worst value.
    band
        How far the counts up to all values of a group are off at most with that probability, for
        the worst value.
    level
        The level of all three.
    typical
        The median size of the groups with records; None where there is none.

    Examples
    --------
    >>> DistributionForecast(
    ...     "distribution-score", ("school",), 9.1, 10.5, 20.25, Fraction(95, 100), 400
    ... ).line()
    '95% within ±9.1 records up to a value (at worst ±10.5, a whole curve ±20.2): ±2.3 points of a
    group of 400'
    """

    half_width: float
    widest: float
    band: float
    level: Fraction
    typical: int | None

    @classmethod
    def from_mechanism(
        cls, name: str, features: tuple[str, ...], mechanism: Mechanism, level: Fraction
    ) -> "DistributionForecast":
        """Return what a mechanism says of a distribution."""
        space = mechanism.space
        assert isinstance(space, DistributionSpace)
        each, together = pointwise_half_widths(mechanism, level), band_half_widths(mechanism, level)
        sizes = np.sort(space.sizes[space.sizes > 0])
        typical = None
        if len(sizes):
            typical = int(sizes[len(sizes) // 2])
        return cls(
            name,
            features,
            half_width=float(each.mean()),
            widest=float(each.max()),
            band=float(together.max()),
            level=level,
            typical=typical,
        )

    def line(self) -> str:
        """Say how far off a share and a quantile would be."""
        if self.typical is None:
            return "no noise: there is no record"
        near, far = error_text(self.half_width), error_text(self.widest)
        chance = f"{float(100 * self.level):g}%"
        # A share is off by so many records over the size of its group.
        points = error_text(min(100 * self.half_width / self.typical, 100.0))
        within = f"{chance} within ±{near} records up to a value"
        together = f"at worst ±{far}, a whole curve ±{error_text(self.band)}"
        return f"{within} ({together}): ±{points} points of a group of {self.typical:,}"

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"name": self.name, "features": list(self.features), **self.widths()}

    def widths(self) -> dict[str, Any]:
        """Return how far off counts would be, in records."""
        return {
            "half_width": self.half_width,
            "widest": self.widest,
            "band": self.band,
            "level": number(self.level),
        }
