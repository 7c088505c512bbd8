"""One answer from several files of synthetic records: the mean, and an error that knows the noise
of the release.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from semidp.errors import InputError, Refused
from semidp.promise.exact import check_level


@dataclass(frozen=True)
class CombinedEstimate:
    """An answer from several files, with its interval.

    Parameters
    ----------
    value, standard_error
        The mean of the answers, and its standard error.
    low, high, level
        The interval by Student's t, and its level.
    between, within
        The variance of the answers between files, and the mean of the variances that came with them
        (0 without).
    degrees
        The degrees of freedom of t.
    """

    value: float
    standard_error: float
    low: float
    high: float
    level: float
    between: float
    within: float
    degrees: float


def combine_estimates(
    estimates: ArrayLike, variances: ArrayLike | None = None, *, level: float = 0.95
) -> CombinedEstimate:
    """Combine the answers from several files of synthetic records into one.

    With m files whose answers q vary by B between files, the mean has the variance ``(1 + 1/m) B``:
    once the noise of the release, which B estimates, and its m-th part for the draws. With the
    variances u of sampling it is ``ū + (1 + 1/m) B``, and the interval is for the population that
    the records are a sample of (Rubin, 1987). The degrees of freedom are
    ``(m - 1)(1 + ū/((1 + 1/m) B))²``. The rule for files that are samples themselves (Raghunathan,
    Reiter and Rubin, 2003) is another one: these files keep the exact totals.

    Parameters
    ----------
    estimates
        The answer from each file: a count, a rate, a mean, a coefficient.
    variances
        The squared standard error that a usual analysis of each file gives; None where the interval
        is for these records and not for a population.
    level
        The confidence level.

    Examples
    --------
    >>> answer = combine_estimates([10.0, 12.0, 11.0, 9.0, 13.0])
    >>> answer.value, round(answer.standard_error, 4), answer.degrees
    (11.0, 1.7321, 4.0)
    >>> wider = combine_estimates([10.0, 12.0, 11.0, 9.0, 13.0], [4.0] * 5)
    >>> round(wider.standard_error, 4), wider.degrees > 4
    (2.6458, True)
    """
    check_level(level, "the confidence level")
    answers = _numbers(estimates, "the estimates")
    files = len(answers)
    if files < 2:
        raise InputError(
            "answers are combined from two files or more: one file does not show how much noise"
            " there is"
        )
    within = 0.0
    if variances is not None:
        squares = _numbers(variances, "the variances")
        if len(squares) != files or min(squares) < 0:
            raise InputError(
                f"give {files} variances, one for each estimate, none of them negative"
            )
        within = float(np.mean(squares))
    # Files vary by the noise of the release once more, so that their variance estimates it.
    between = float(np.var(answers, ddof=1))
    if between <= (1e-12 * max(map(abs, answers))) ** 2:
        raise Refused(
            f"the answers from all {files} files are the same, so they do not show how much noise"
            " there is: ask the release for an interval, or use one file alone if the answer"
            " follows from exact totals"
        )
    noise = (1 + 1 / files) * between
    error = math.sqrt(within + noise)
    degrees = (files - 1) * (1 + within / noise) ** 2
    value = float(np.mean(answers))
    reach = _t_quantile(degrees, level) * error
    return CombinedEstimate(
        value, error, value - reach, value + reach, level, between, within, degrees
    )


def _t_quantile(degrees: float, level: float) -> float:
    from scipy import special

    return float(special.stdtrit(degrees, (1 + level) / 2))


def _numbers(values: ArrayLike, what: str) -> Sequence[float]:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{what} are numbers, one a file") from None
    if array.ndim != 1 or not np.isfinite(array).all():
        raise InputError(f"{what} are finite numbers, one a file")
    return [float(value) for value in array]
