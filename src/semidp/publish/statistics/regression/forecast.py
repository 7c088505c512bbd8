"""How far the coefficients of a regression would be off before anything is drawn.

X'X is exact, so that the errors of a linear regression are known beforehand. Those of a logistic
one depend on its private fit, and are foretold for even odds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.sensitivity.moments import Design
from semidp.promise.spaces.dataspace import Dataspace
from semidp.publish.statistics.outcomes.forecast import ErrorRange
from semidp.publish.statistics.protocol.request_defaults import StatisticForecast
from semidp.publish.statistics.regression.linear import gram_matrix, noise_covariance


@dataclass(frozen=True)
class CoefficientsForecast(StatisticForecast):
    """Standard errors of the coefficients of a regression, from the noise alone.

    Parameters
    ----------
    name, features
        What it is called, and its factors.
    standard_errors
        That of each coefficient, by its name.
    at_even_odds
        Whether they are those of a logistic regression with as many ones as zeros in every cell.
        Its covariance ``(X'WX)^-1 N (X'WX)^-1`` with W = 1/4 is 16 times that of a linear one; with
        a share p of ones in every cell W is p (1 - p).

    Examples
    --------
    >>> errors = {"intercept": 0.07, "arm=drug": 0.09}
    >>> CoefficientsForecast("regression-days", ("arm",), errors, False).line()
    'standard error of each coefficient 0.07 to 0.09, median 0.08'
    """

    standard_errors: Mapping[str, float]
    at_even_odds: bool

    @classmethod
    def from_mechanism(
        cls,
        name: str,
        features: tuple[str, ...],
        design: Design,
        mechanism: Mechanism,
        public: Dataspace,
        at_even_odds: bool,
    ) -> "CoefficientsForecast":
        """Return what a mechanism says of a regression on a design with public moments."""
        inverse = np.linalg.inv(gram_matrix(design, public))
        covariance = inverse @ noise_covariance(mechanism, design) @ inverse
        errors = np.sqrt(np.diag(covariance)) * (4 if at_even_odds else 1)
        by_name = dict(zip(design.names, errors.tolist(), strict=True))
        return cls(name, features, by_name, at_even_odds)

    def line(self) -> str:
        """Say how far off the coefficients would be."""
        errors = ErrorRange.from_errors(np.array([*self.standard_errors.values()]))
        assert errors is not None, "a regression has coefficients"
        said = errors.line("coefficient")
        return f"{said}, at even odds" if self.at_even_odds else said

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        entry: dict[str, Any] = {"name": self.name, "features": list(self.features)}
        entry["standard_errors"] = dict(self.standard_errors)
        if self.at_even_odds:
            entry["at_even_odds"] = True
        return entry
