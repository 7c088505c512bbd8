"""How much a test of an odds ratio would find, before anything is drawn."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from semidp.publish.statistics.odds_ratio.umpu import Alternative, UmpuTest
from semidp.publish.statistics.protocol.request_defaults import StatisticForecast

ODDS_RATIOS = (1.5, 2.0, 3.0)
"""The odds ratios at which the power is foretold; for a test of smaller ones, one over them."""
_ALPHA = 0.05


@dataclass(frozen=True)
class PowerForecast(StatisticForecast):
    """The noise in x11, and the power at 5% for a few odds ratios.

    Parameters
    ----------
    name, features
        What the test is called, and its features.
    standard_deviation
        Of the noise that is added to x11.
    power
        The probability to find an odds ratio, by its size.

    Examples
    --------
    >>> PowerForecast("odds-ratio-sex-vote", ("sex", "vote"), 1.36, {2.0: 0.64}).line()
    'noise of standard deviation 1.36 in x11; finds an odds ratio of 2 with probability 0.64 at 5%'
    """

    standard_deviation: float
    power: Mapping[float, float]

    @classmethod
    def from_test(
        cls, name: str, features: tuple[str, ...], test: UmpuTest, alternative: Alternative
    ) -> "PowerForecast":
        """Return the forecast of a planned test."""
        power = {}
        for ratio in ODDS_RATIOS:
            # A test for smaller odds ratios finds none above 1; the inverse is the same effect the
            # other way.
            looked_for = 1 / ratio if alternative is Alternative.LESS else ratio
            power[looked_for] = test.power(looked_for, _ALPHA, alternative)
        return cls(name, features, float(test.noise.standard_deviation), power)

    def line(self) -> str:
        """Say how large the noise is and what it lets the test find."""
        ratios = ", ".join(f"{ratio:.3g}" for ratio in self.power)
        chances = ", ".join(f"{chance:.2g}" for chance in self.power.values())
        return (
            f"noise of standard deviation {self.standard_deviation:.4g} in x11; finds an odds ratio"
            f" of {ratios} with probability {chances} at 5%"
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        power = [{"odds_ratio": ratio, "power": chance} for ratio, chance in self.power.items()]
        return {
            "name": self.name,
            "features": list(self.features),
            "standard_deviation": self.standard_deviation,
            "power": power,
        }
