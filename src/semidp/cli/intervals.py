"""``semidp intervals`` and ``model``: intervals for what a release published, and a logistic or
log-linear model of a released table, at no cost in privacy.
"""

import math
from pathlib import Path
from typing import Any

import semidp.cli._options as o
from semidp.cli._command import argument, command, flag, option
from semidp.cli._output import (
    echo,
    grid,
    harmless,
    print_columns,
    print_grid,
    print_json,
    print_rows,
)
from semidp.errors import InputError
from semidp.inference.answers import IntervalEstimate, TableIntervals
from semidp.inference.area_sums import area_intervals, read_area_rows, sum_intervals, sum_rows
from semidp.inference.common_odds import stratified_odds_ratio
from semidp.inference.design_weights import read_strata, weighted_estimates
from semidp.inference.markov import posterior
from semidp.inference.models import TableModel, TermTest
from semidp.inference.models import model as fitted_model
from semidp.inference.ratios import RateMeasure
from semidp.present.release import Release
from semidp.promise.exact import exact, plain
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish.recheck import load_consistent
from semidp.publish.results.texts import end_texts, p_value_text, rounded_text
from semidp.publish.statistics.protocol.statistic import split_names


@command
def intervals(
    *,
    folder: Path = o.RELEASE,
    of: o.Texts = option("The levels that are counted; other features are summed.", "NAME=a[,b]"),
    minus: o.Texts = option(
        "Other cells, or with --among another group, to subtract.", "NAME=a[,b]"
    ),
    among: o.Texts = option("The group that a rate is taken in.", "NAME=a[,b]"),
    areas: Path | None = option(
        "Areas to estimate: a CSV file with name, features at any depth and, if wanted, weight and"
        " table.",
        "FILE",
    ),
    sums: o.Texts = option(
        "A weighted sum of cells of any tables: 'gap: sex=f & region=n,s - 0.5 *"
        " region-age[age=d]'.",
        "SUM",
        "--sum",
    ),
    measure: RateMeasure = option(
        "How the rates in two groups are compared: difference, risk-ratio or odds-ratio.",
        default=RateMeasure.DIFFERENCE,
    ),
    strata: o.Text = option(
        "With --measure odds-ratio: estimate one odds ratio common to all combinations of these.",
        "A[,B]",
    ),
    sampling: bool = flag(
        "--sampling",
        "Allow for sampling, too: the records are a sample, and the question is about the"
        " population.",
    ),
    bayes: bool = flag(
        "--posterior",
        "The posterior of all cells: which whole numbers with the exact totals are likely, given"
        " the noise.",
    ),
    level: str = option("The confidence level.", "NUMBER", default="0.95"),
    table: o.Text = option(
        "Which table of the release, if several have these features.", "TABLE", "--name"
    ),
    weights: Path | None = option(
        "Weighted totals, shares and means: a CSV file of strata and their population.", "FILE"
    ),
    design: bool = flag("--design", "With --weights: add the error of a stratified random sample."),
    draws: int | None = option("How many tables to simulate (default 9999).", "N"),
    seed: int | None = option("The seed of the simulation.", "N"),
    printing: o.Printing,
) -> None:
    """Print intervals for what a release published: they cost no privacy.

    Without --of: all cells of a table, with intervals that hold at once. With --of: a count; with
    --minus, the difference of two counts; with --among, a rate; with both, the rates in two groups
    compared by --measure. With --areas or --sum: weighted sums of cells by name ("my district is
    these blocks"), over any tables and depths.

    The intervals allow for the noise alone, whose law is known and simulated. With --sampling they
    allow for sampling, too. That is an approximation, except for an odds ratio common to --strata.
    """
    confidence = o.parse_real(level, "--level")
    if design and weights is None:
        raise InputError("--design is about weighted estimates: give --weights FILE")
    if weights is not None:
        if of or minus or among or areas or sums or sampling or strata or bayes or table:
            raise InputError("--weights is about all tables and means by strata: give it alone")
        _print_weighted(folder, weights, confidence, design, printing)
        return
    # The posterior is of all cells under one prior: no other question is combined with it.
    if bayes:
        if of or minus or among or areas or sums or sampling or strata or draws is not None:
            raise InputError(
                "--posterior is of all cells: leave --of, --minus, --among, --areas, --sum,"
                " --strata, --sampling and --draws out"
            )
        _print_posterior(folder, table, confidence, seed, printing)
        return
    if strata is not None and (measure is not RateMeasure.ODDS_RATIO or not sampling):
        raise InputError(
            "--strata is for an odds ratio of the population: add --measure odds-ratio --sampling"
        )
    cells = [
        o.parse_lists(option, entries) or None
        for option, entries in (("--of", of), ("--minus", minus), ("--among", among))
    ]
    if cells[0] is None and (cells[1] is not None or cells[2] is not None):
        raise InputError("--minus and --among need --of NAME=a: which cells are counted")
    if areas is not None and (cells != [None] * 3 or sampling):
        raise InputError(
            "--areas names the cells itself: leave --of, --minus, --among and --sampling out"
        )
    if sums and (cells != [None] * 3 or sampling or areas is not None):
        raise InputError(
            "--sum names the cells itself: leave --of, --minus, --among, --areas and --sampling out"
        )
    # Read before the release is checked, which may take long: a slip shows at once.
    area_rows = read_area_rows(areas) if areas is not None else None
    summed_rows = [row for text in sums or () for row in sum_rows(text)]
    if cells[0] is None and measure is not RateMeasure.DIFFERENCE:
        raise InputError(f"--measure {measure} compares two rates: give --of, --among and --minus")
    # Around numbers that do not follow from their measurements an interval means nothing.
    done = load_consistent(Release, folder)
    randomness = None if seed is None else SeededRandomness(seed)
    if area_rows is not None or summed_rows:
        how: dict[str, Any] = {
            "level": confidence,
            "table": table,
            "draws": draws,
            "randomness": randomness,
        }
        if area_rows is not None:
            answers = area_intervals(done, area_rows, **how)
        else:
            answers = sum_intervals(done, summed_rows, **how)
        if printing.json:
            rows = [{"name": name, **answer.to_json()} for name, answer in answers.items()]
            print_json({"release": str(folder), "sums" if sums else "areas": rows})
        else:
            _print_areas(answers, "sum" if sums else "area")
        return
    settings: dict[str, Any] = {
        "level": confidence,
        "sampling": sampling,
        "draws": draws,
        "randomness": randomness,
    }
    interval: IntervalEstimate | TableIntervals
    if cells[0] is None:
        interval = done.intervals(table, **settings)
    elif strata is not None:
        interval = stratified_odds_ratio(
            done,
            cells[0],
            minus=cells[1] or {},
            among=cells[2] or {},
            strata=split_names(strata),
            level=confidence,
            table=table,
            draws=draws,
            randomness=randomness,
        )
    else:
        interval = done.interval(
            cells[0], minus=cells[1], among=cells[2], measure=measure, table=table, **settings
        )
    if printing.json:
        asked = {
            name: part
            for name, part in zip(("of", "minus", "among"), cells, strict=True)
            if part is not None
        }
        compared = (
            {"measure": str(measure)} if cells[1] is not None and cells[2] is not None else {}
        )
        print_json({"release": str(folder), **asked, **compared, **interval.to_json()})
    elif isinstance(interval, IntervalEstimate):
        _print_answer(interval, measure)
    else:
        _print_table(interval)


def _print_areas(answers: dict[str, IntervalEstimate], called: str) -> None:
    table = grid((called,), ("estimate", "standard error", "low", "high"))
    for name, answer in answers.items():
        error = answer.standard_error
        numbers = [rounded_text(answer.value, error), rounded_text(error, error)]
        ends = end_texts({"low": answer.low, "high": answer.high}, error)
        table.add_row(harmless(name), *numbers, *ends)
    print_grid(table)
    level = plain(exact(next(iter(answers.values())).level))
    echo(
        f"\nEach interval holds by itself, at level {level}; it covers noise, exact by simulation."
    )


def _print_answer(found: IntervalEstimate, measure: RateMeasure) -> None:
    standard_error = found.standard_error
    # A ratio whose denominator may be zero has none: its interval says how many digits are left.
    if math.isfinite(standard_error):
        error = f", standard error {rounded_text(standard_error, standard_error)}"
    else:
        standard_error = _approximate_error(found.low, found.high)
        error = ""
    called = "" if measure is RateMeasure.DIFFERENCE else f"{measure} "
    # What the exact totals cut off is known better than the standard error says.
    width = _approximate_error(found.low, found.high)
    digits = width if 0 < width < standard_error / 4 else standard_error
    low, end = end_texts({"low": found.low, "high": found.high}, digits)
    # A noisy denominator may be near zero: then no finite end holds at the level.
    high = "without end" if math.isinf(found.high) else f"to {end}"
    rows = [
        ("estimate", f"{called}{rounded_text(found.value, standard_error)}{error}"),
        ("interval", f"{low} {high}, at level {plain(exact(found.level))}"),
        ("covers", _describe_coverage(found)),
    ]
    if found.p_value is not None:
        rows.append(("p-value", f"{p_value_text(found.p_value)} (is there a difference?)"))
    if found.note:
        rows.append(("note", found.note))
    print_rows(rows)


def _print_weighted(
    folder: Path, strata: Path, level: float, design: bool, printing: o.Printing
) -> None:
    """Print weighted totals, shares and means."""
    release = load_consistent(Release, folder)
    population = read_strata(strata)
    weighted = weighted_estimates(release, population, level=level, design=design)
    if printing.json:
        print_json({"design": design, "estimates": [one.to_json() for one in weighted]})
        return
    headings = ["estimate", "error of the noise"]
    headings += ["error of the sample"] if design else []
    shown = grid(("statistic", "kind", "row"), (*headings, "lower", "upper"))
    for one in weighted:
        error = math.hypot(one.noise_error, one.design_error or 0.0)
        numbers = [rounded_text(one.value, error), rounded_text(one.noise_error, error)]
        if one.design_error is not None:
            numbers.append(rounded_text(one.design_error, error))
        numbers += end_texts({"lower": one.lower, "upper": one.upper}, error)
        shown.add_row(harmless(one.statistic), one.kind, harmless(str(one.labels)), *numbers)
    print_grid(shown)
    of_whom = "the population" if design else "these records, weighted"
    lines = [("about", f"{of_whom}; {level:.0%} intervals")]
    if design:
        lines.append(("covers", "noise and sampling, by a normal approximation"))
    if design and any(one.kind == "mean" for one in weighted):
        lines.append(("sample", "of a mean: the largest error that its bounds allow"))
    print_rows(lines)


def _print_posterior(
    folder: Path, table: str | None, level: float, seed: int | None, printing: o.Printing
) -> None:
    """Print means and intervals of all cells, and what the chains say about themselves."""
    randomness = None if seed is None else SeededRandomness(seed)
    answer = posterior(load_consistent(Release, folder), table, level=level, randomness=randomness)
    if printing.json:
        print_json({"release": str(folder), **answer.to_json()})
        return
    _print_cells([*answer.schema.names, "mean", "low", "high"], answer.rows)
    state = answer.mixing
    echo(
        f"Each interval has probability {plain(exact(level))}. Before the release, every table with"
        " the exact totals is taken to be equally likely."
    )
    echo(
        f"64 chains agree after {state.steps:,} steps: R = {state.reduction:.3f}, {state.size:,.0f}"
        " effective draws."
    )
    for note in answer.notes:
        echo(note)


def _print_table(found: TableIntervals) -> None:
    _print_cells([*found.schema.names, "estimate", "low", "high"], found.rows)
    echo(
        f"All intervals hold at once, at level {plain(exact(found.level))}; they cover"
        f" {_describe_coverage(found)}."
    )


def _print_cells(names: list[str], cells: list[tuple[Any, ...]]) -> None:
    """Print labels and three numbers a row, aligned, and an empty line."""
    rows = []
    for cell in cells:
        value, low, high = cell[-3:]
        error = _approximate_error(low, high)
        ends = end_texts({"low": low, "high": high}, error)
        rows.append([*cell[:-3], rounded_text(value, error), *ends])
    print_columns([names, *rows], words=len(names) - 3)


def _approximate_error(low: float, high: float) -> float:
    """About the standard error that an interval of two on either side has.

    >>> _approximate_error(121.0, 131.0)
    2.5
    """
    return (high - low) / 4


def _describe_coverage(found: Any) -> str:
    """Say what an interval allows for.

    >>> from semidp.inference.answers import sampled_rate
    >>> _describe_coverage(sampled_rate((4.0, 10.0), (1.0, 0.0, 0.0), 0.95))
    'noise and sampling, by a normal approximation'
    """
    if getattr(found, "bounded", False):
        return f"{found.covers}, at least as often as stated: a bound for all plausible totals"
    if found.cluster > 1:
        return (
            f"{found.covers}, by an approximation for up to {found.cluster:,} records of a person"
        )
    return (
        f"{found.covers}, {'exact by simulation' if found.exact else 'by a normal approximation'}"
    )


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
        "Which table of the release, if several have these features.", "TABLE", "--name"
    ),
    printing: o.Printing,
) -> None:
    """Fit a model to a released table: it costs no privacy.

    With a feature of two levels on the left: a logistic model of its second level. With nothing on
    the left: a log-linear model of the counts. Terms are joined by +, and a * b is a + b + a:b;
    coefficients are against the first level of each feature. Standard errors and intervals allow
    for the noise and for sampling.
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
    print_columns(rows)
    value_name = "rate" if answer.kind == "logistic" else "count"
    fitted = [("fitted", value_name, "low", "high")]
    for *labels, value, low, high in answer.fitted:
        # About the standard error: the interval has two on either side.
        error = (high - low) / 4
        lower, upper = end_texts({"low": low, "high": high}, error)
        fitted.append((", ".join(labels), rounded_text(value, error), lower, upper))
    print_columns(fitted)
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
