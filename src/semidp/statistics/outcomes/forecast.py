"""What the sums behind a statistic of a private outcome would look like before anything is
drawn.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from semidp.mechanisms.mechanism import Mechanism
from semidp.output.texts import short_text


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


def sums_line(name: str, mechanism: Mechanism) -> str:
    """Say with what noise the sums behind a statistic would be measured."""
    # The mechanism counts in steps of the grid; a reader knows the units of the outcome.
    scale = mechanism.scale * float(mechanism.space.unit)
    what = f"{mechanism.name} for the sums behind {name}"
    return f"{what}: scale {scale:.4g} in each, {mechanism.claim} claim"
