"""How far statistics of those who answered would be off before anything is drawn.

The number who answered is private, so that errors of means are foretold for groups that all answer.
"""

from dataclasses import dataclass

import numpy as np

from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.sensitivity.answered_space import AnsweredSpace
from semidp.publish.results.texts import error_text
from semidp.publish.statistics.answered.answered_estimates import (
    outcome_half_range,
    outcome_midpoint,
    pair_deviations,
)
from semidp.publish.statistics.outcomes.forecast import ErrorRange, OutcomeForecast


@dataclass(frozen=True)
class AnswersForecast(OutcomeForecast):
    """How far the number who answered, and a statistic of those, would be off.

    Parameters
    ----------
    errors
        The standard errors of the statistic, over the groups with records; None where there is no
        record. A mean has at most this error where all of its group answer, and k times that where
        one in k do.
    answered_error
        The largest standard error of a number who answered.

    Examples
    --------
    >>> errors = ErrorRange(0.12, 0.41, 2.3)
    >>> AnswersForecast("mean-pay", ("ward",), "mean", errors, 1.2).line()
    'standard error of each mean 0.12 (largest group) to 2.3 (smallest), median 0.41, where all
    answer (twice that where half do); of the number who answered 1.2'
    """

    answered_error: float

    @classmethod
    def from_mechanism(
        cls, name: str, features: tuple[str, ...], statistic: str, mechanism: Mechanism
    ) -> "AnswersForecast":
        """Return what a mechanism on pairs says of a statistic of those who answered."""
        space = mechanism.space
        assert isinstance(space, AnsweredSpace)
        of_groups, of_answered = [], []
        for number, counts in enumerate(space.counts):
            sizes = counts.ravel()
            answers, gaps = pair_deviations(mechanism, number)
            if statistic == "sum":
                errors = np.hypot(outcome_midpoint(space.outcome) * answers, gaps)
            else:
                # The mean is at a bound where the noise in the number who answered matters most.
                errors = np.hypot(gaps, outcome_half_range(space.outcome) * answers) / np.maximum(
                    sizes, 1
                )
            of_groups.append(errors[sizes > 0])
            of_answered.append(answers[sizes > 0])
        summary = ErrorRange.from_errors(np.concatenate(of_groups))
        largest = float(np.concatenate(of_answered).max(initial=0.0))
        return cls(name, features, statistic, summary, largest)

    def line(self) -> str:
        """Say how far off a group would be, and the number who answered in it."""
        each = super().line()
        if self.errors is None:
            return each
        if self.statistic != "sum":
            each += ", where all answer (twice that where half do)"
        return f"{each}; of the number who answered {error_text(self.answered_error)}"

    def measured_error(self) -> dict[str, float]:
        """Return the error of a number who answered."""
        return {"standard_error_of_answered": self.answered_error}
