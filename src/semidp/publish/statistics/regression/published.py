"""What a release publishes of a regression: coefficients, errors, intervals, what was measured."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from semidp.promise.sensitivity.moments import INTERCEPT
from semidp.publish.plots.figures import estimates_plot
from semidp.publish.results.role_columns import (
    Role,
    RoleColumn,
    Sheet,
    estimate_columns,
    label_columns,
    noisy_column,
)
from semidp.publish.results.texts import scale_text
from semidp.publish.statistics.outcomes.words import (
    ZEROS_AND_ONES,
    clipped_text,
    describe_intervals,
    interval_columns,
    interval_paragraphs,
)
from semidp.publish.statistics.protocol.statistic import (
    PublishedStatistic,
    Sentences,
    publish_statistic,
)
from semidp.publish.statistics.regression.linear import LinearFit
from semidp.publish.statistics.regression.logistic import LogisticFit

if TYPE_CHECKING:
    from semidp.publish.statistics.regression.request import RegressionRequest

_MANY_NUMBERS = 20  # levels that are numbers, from which on a factor is taken for a measured one


def publish_regression(
    request: "RegressionRequest", fit: LinearFit | LogisticFit
) -> PublishedStatistic:
    """Return coefficients with the standard errors of the noise alone, and intervals."""
    confidence = request.confidence
    kinds = (False, True) if confidence.sampling else (False,)
    intervals = [
        fit.intervals(confidence.level, sampling=sampling, simultaneous=confidence.simultaneous)
        for sampling in kinds
    ]
    # A logistic fit counts sampling in unless told not to.
    errors = fit.standard_errors(**({} if isinstance(fit, LinearFit) else {"sampling": False}))
    query, mechanism = fit.moments.space.query(), fit.mechanism
    column, factors = request.outcome.column, " and ".join(request.factors)
    title = f"{request.model} regression of {column} on {factors}"
    counted = f"{clipped_text(request.outcome)} before anything was added up."
    # The noise is in steps of the grid; a reader knows the units of the outcome.
    scale = scale_text(mechanism.scale * float(request.outcome.width))
    sentences = Sentences(
        title=title,
        noise=f"scale {scale} in what gives X'y",
        paragraphs=(
            f"{ZEROS_AND_ONES if request.binary else counted} The counts of the factors are exact."
            f" Only {_measured_text(query)} needed noise: the {mechanism.name} mechanism, scale"
            f" {scale}. The standard errors are those of the noise alone. The first level of each"
            f" factor is the reference ({request.coding} coding).",
            *interval_paragraphs(intervals),
        ),
        warnings=tuple(continuous_factors(fit.names, request.factors)),
    )
    coefficients, measurements = (file.removesuffix(".csv") for file in request.files)
    terms = [(term,) for term in fit.names]
    noisy = np.asarray(fit.measurement.noisy, dtype=np.int64)
    sheets = [
        Sheet(
            name=coefficients,
            role_columns=(
                *label_columns(["term"], terms, "the column of the design"),
                *estimate_columns(
                    "coefficient",
                    fit.coefficients,
                    errors,
                    "the estimated coefficient",
                ),
                *interval_columns(intervals),
            ),
            words=f"the {title}",
            heading=f"Published {title}",
            row="coefficient",
            draw=partial(_draw_slopes, fit.names, fit.coefficients, errors),
            caption="Coefficients with two standard errors of the noise to each side. The"
            " intercept is in the table alone: it has another scale.",
        ),
        Sheet(
            name=measurements,
            role_columns=(
                RoleColumn("entry", Role.place, np.arange(len(noisy))),
                noisy_column("noisy_steps", noisy),
            ),
            words=f"what was measured for the {title}",
        ),
    ]
    facts = {"query": query, "intervals": describe_intervals(intervals)}
    return publish_statistic(request, fit, sentences, sheets, facts)


def _draw_slopes(
    names: Sequence[str], values: NDArray[Any], errors: NDArray[Any], axes: Any
) -> Any:
    """Draw all coefficients but the intercept, whose scale would leave the others a point each."""
    kept = [place for place, name in enumerate(names) if name != INTERCEPT]
    labels = [names[place] for place in kept]
    return estimates_plot(
        labels, values[kept].tolist(), errors[kept].tolist(), "coefficient", (0.0,), axes
    )


def _measured_text(query: Mapping[str, Any]) -> str:
    """Say what was measured for a regression."""
    if query["kind"] == "sums":
        sets = [" and ".join(names) or "all" for names in query["by"]]
        return f"the sums of the outcome by {' and by '.join(sets)}"
    if "combination" in query:
        return (
            f"{len(query['combination'])} weighted sums of the outcome, chosen from the exact"
            " counts for accuracy,"
        )
    return "the sums of the outcome over the columns of the design"


def continuous_factors(terms: Sequence[str], factors: Sequence[str]) -> list[str]:
    """Say where to go with a factor that looks like a measured number: one coefficient a value is
    no slope.

    >>> continuous_factors([f"age={age}.5" for age in range(30)], ["age"])
    ['age has 30 coefficients, one for each number that occurs: give it bins. For a slope ...']
    >>> continuous_factors(["age=[0, 18)", "age=[18, 120)"], ["age"])
    []
    """
    warnings = []
    for factor in factors:
        start = f"{factor}="
        levels = [term.removeprefix(start) for term in terms if term.startswith(start)]
        if len(levels) < _MANY_NUMBERS or not all(map(_is_number, levels)):
            continue
        warnings.append(
            f"{factor} has {len(levels)} coefficients, one for each number that occurs: give it"
            " bins. For a slope on a measured number take a library for"
            " regression under ordinary differential privacy, and ask semidp guarantee what that"
            " promises beside the exact totals."
        )
    return warnings


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
