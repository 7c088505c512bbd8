"""What a release says of a regression."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from semidp.publish.results.sections import Details, Section
from semidp.publish.results.texts import end_texts, estimate_text, rounded_text, scale_text
from semidp.publish.statistics.outcomes.published import interval_columns
from semidp.publish.statistics.outcomes.words import (
    NOTHING_MEASURED,
    ZEROS_AND_ONES,
    clipped_text,
    column_heading,
    estimate_lines,
    interval_paragraphs,
)

if TYPE_CHECKING:
    from semidp.publish.statistics.regression.published import PublishedRegression


COLUMN_MEANINGS = {
    "term": "the column of the design",
    "coefficient": "the estimated coefficient",
}
"""What its columns mean, for the description of its files."""
_MANY_NUMBERS = 20  # levels that are numbers, from which on a factor is taken for a measured one


def title(regression: "PublishedRegression") -> str:
    """Name a regression: the linear regression of days on arm."""
    request = regression.request
    column, factors = request.outcome.column, " and ".join(request.factors)
    return f"{request.model} regression of {column} on {factors}"


def noisy_lines(regression: "PublishedRegression") -> list[str]:
    """Say how many coefficients there are."""
    return [f"{title(regression)}: {len(regression.terms):,} coefficients"]


def summary_lines(regression: "PublishedRegression") -> list[tuple[str, str]]:
    """Return the mechanism and the coefficients, for a terminal."""
    lines = []
    for term, value, error in regression.rows():
        lines.append(f"{term}: {estimate_text(value, error)}")
    mechanism = f"{regression.noise.mechanism}, for the {title(regression)}"
    return [("mechanism", mechanism), *estimate_lines(lines)]


def section(regression: "PublishedRegression") -> Section:
    """Return the section of a regression: its coefficients with their intervals."""
    ends = interval_columns(regression.intervals)
    rows = []
    for coefficient, *limits in zip(regression.rows(), *ends.values(), strict=True):
        term, value, error = coefficient
        numbers = [rounded_text(value, error), rounded_text(error, error)]
        numbers += end_texts(dict(zip(ends, limits, strict=True)), error)
        rows.append((term, *numbers))
    columns = ["term", "coefficient", "standard error"]
    columns += map(column_heading, ends)
    return Section(
        heading=f"Published {title(regression)}",
        paragraphs=regression_paragraphs(regression),
        figure=regression.plot(),
        caption="Coefficients with two standard errors of the noise to each side.",
        columns=columns,
        rows=rows,
    )


def regression_paragraphs(regression: "PublishedRegression") -> list[str]:
    """Say how a regression was made and how far it may be off."""
    request, noise = regression.request, regression.noise
    if noise.absent:
        return [NOTHING_MEASURED]
    counted = f"{clipped_text(request.outcome)} before anything was added up."
    if request.binary:
        counted = ZEROS_AND_ONES
    # The noise is in steps of the grid; a reader knows the units of the outcome.
    scale = scale_text(noise.scale * float(request.outcome.width))
    measured = _measured_text(regression)
    paragraphs = [
        f"{counted} The counts of the factors are exact. Only {measured} needed noise: the"
        f" {noise.mechanism} mechanism, scale {scale}. The standard errors are those of the noise"
        f" alone. The first level of each factor is the reference ({request.coding} coding)."
    ]
    return paragraphs + interval_paragraphs(regression.intervals)


def _measured_text(regression: "PublishedRegression") -> str:
    """Say what was measured for a regression."""
    query = regression.query
    if query["kind"] == "sums":
        sets = [" and ".join(names) or "all" for names in query["by"]]
        return f"the sums of the outcome by {' and by '.join(sets)}"
    if "combination" in query:
        return (
            f"{len(query['combination'])} weighted sums of the outcome, chosen from the exact"
            " counts for accuracy,"
        )
    return "the sums of the outcome over the columns of the design"


def details(regression: "PublishedRegression") -> Details:
    """Say how a regression was measured."""
    return Details(f"the {title(regression)}", "in steps of X'y")


def file_words(regression: "PublishedRegression") -> list[tuple[str, str]]:
    """Say what the files hold: the coefficients, and what was measured."""
    coefficients, measurements = regression.request.files
    measured = f"what was measured for the {title(regression)}"
    return [(coefficients, f"the {title(regression)}"), (measurements, measured)]


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
