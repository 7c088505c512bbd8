"""``semidp model``: a logistic or log-linear model of a released table, at no cost in privacy."""

from pathlib import Path

import semidp.cli._options as o
from semidp.cli._command import argument, command, option
from semidp.cli._output import echo, print_json, print_rows
from semidp.inference.models import TableModel, TermTest
from semidp.inference.models import model as fitted_model
from semidp.present.release import Release
from semidp.promise.exact import exact, plain
from semidp.publish.rechecking.release_check import load_consistent
from semidp.publish.results.texts import align_columns, end_texts, rounded_text


@command
def model(
    *,
    folder: Path = o.RELEASE,
    formula: str = argument(
        "Such as 'survived ~ class * sex', or '~ class * sex' for the counts themselves.", "FORMULA"
    ),
    against: o.Text = option("A smaller model to test this one against.", "FORMULA"),
    level: str = option("The confidence level.", "NUMBER", default="0.95"),
    table: o.Text = option(
        "Which table of the release, where several would do.", "TABLE", "--name"
    ),
    printing: o.Printing,
) -> None:
    """Fit a model to a released table: it costs no privacy.

    With a feature of two levels on the left: a logistic model of its second level. With nothing on
    the left: a log-linear model of the counts. Terms are joined by +, and a * b is a + b + a:b;
    coefficients are against the first level of each feature. Standard errors and intervals know the
    noise and the sampling.
    """
    confidence = o.parse_real(level, "--level")
    answer = fitted_model(
        load_consistent(Release, folder), formula, against=against, level=confidence, table=table
    )
    if printing.json:
        print_json({"release": str(folder), **answer.to_json()})
        return
    _print(answer)


def _print(answer: TableModel) -> None:
    print_rows(
        [
            ("model", f"{answer.kind}: {answer.formula} ({answer.response})"),
            (
                "table",
                (
                    f"{answer.table}: unbiased counts with {answer.noise} noise, whose covariance"
                    " is in the errors"
                ),
            ),
        ]
    )
    echo()
    columns = (answer.coefficients, answer.errors, answer.low, answer.high, answer.p_values)
    rows = [("coefficient", "estimate", "error", "low", "high", "p-value")]
    for name, value, error, low, high, p in zip(answer.names, *columns, strict=True):
        estimate = (rounded_text(value, error), rounded_text(error, error))
        lower, upper = end_texts({"low": low, "high": high}, error)
        rows.append((name, *estimate, lower, upper, f"{p:.3g}"))
    for line in align_columns(rows):
        echo(line)
    echo()
    value_name = "rate" if answer.kind == "logistic" else "count"
    fitted = [("fitted", value_name, "low", "high")]
    for *labels, value, low, high in answer.fitted:
        # About the standard error: the interval has two on either side.
        error = (high - low) / 4
        lower, upper = end_texts({"low": low, "high": high}, error)
        fitted.append((", ".join(labels), rounded_text(value, error), lower, upper))
    for line in align_columns(fitted):
        echo(line)
    echo()
    for test in answer.terms:
        echo(f"without {test.term}: {_wald(test)}")
    if answer.against is not None:
        echo(f"against {answer.against.term}: {_wald(answer.against)}")
    if answer.fit is not None:
        echo(f"fit of the model: {_wald(answer.fit)}")
    echo(
        f"Intervals at level {plain(exact(answer.level))} cover noise and sampling, by a normal"
        " approximation."
    )
    for note in answer.notes:
        echo(note)


def _wald(test: TermTest) -> str:
    """Say what a test found.

    >>> _wald(TermTest("sex", 3.9, 1, 0.0483))
    'χ² = 3.9 with 1 degree of freedom, p = 0.0483'
    """
    degrees = "degree" if test.degrees == 1 else "degrees"
    return (
        f"χ² = {test.statistic:.4g} with {test.degrees} {degrees} of freedom, p ="
        f" {test.p_value:.3g}"
    )
