"""``semidp test``: association, privately in data or at no cost in a release.

Data: the semi-private test of the odds ratio of a 2×2 table, or common to strata. A release:
independence in a table of any size, from what is published.
"""

import math
from pathlib import Path
from typing import Annotated

import typer
from attrs import evolve, frozen

import semidp.cli._options as o
from semidp.cli._command import argument, command, flag, option
from semidp.cli._output import append_hint, echo, print_json, print_rows
from semidp.errors import InputError, Refused
from semidp.inference.association import Association
from semidp.inference.common_odds import CommonOddsRatio, common_odds_ratio
from semidp.inference.independence import Independence
from semidp.inference.paired_tests import every_pair as every_pair_of
from semidp.inference.paired_tests import pairs_section
from semidp.present.release import Release
from semidp.promise.exact import check_level, exact, plain
from semidp.promise.files import replace_file
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.pipeline import RunOptions, run_plan
from semidp.publish.plots.style import png
from semidp.publish.rechecking.release_check import load_consistent
from semidp.publish.report_words import report_words
from semidp.publish.statistics.odds_ratio.measured_ratio import OddsRatioResult
from semidp.publish.statistics.odds_ratio.published import test_rows
from semidp.publish.statistics.odds_ratio.request import OddsRatioRequest
from semidp.publish.statistics.odds_ratio.umpu import Alternative, Interval

_NO_LEDGER = (
    "No ledger was given: other releases of the same data are not accounted for, and together"
    " protect less."
)
_NO_ID = "Each record is taken to be one person; give --id COLUMN to have that checked."
_SEEDED = "The noise was drawn from a seed: this result is not private."
_FOR_RELEASES = (
    *("data", "rows", "columns", "strata", "alternative", "ordered", "scores", "pooled"),
    *("draws", "table_name", "level", "seed", "format", "quiet"),
)
_FOR_PAIRS = (
    "data",
    "every_pair",
    "fdr",
    "plot",
    "page",
    "ordered",
    "scores",
    "draws",
    "seed",
    "format",
    "quiet",
)
_EMPTY = "Every odds ratio is rejected: U lies far outside the counts that the margins allow."


@command
def odds_ratio(
    *,
    context: typer.Context,
    data: str = argument(
        "The folder of a release; or data: a CSV or Parquet file, a glob, or a database address"
        " with --from.",
        "RELEASE|DATA",
    ),
    rows: o.Text = option("The feature of the rows; in data with two levels.", "FEATURE"),
    columns: o.Text = option("The feature of the columns; in data with two levels.", "FEATURE"),
    spending: o.Spending,
    strata: o.Text = option(
        "Features within whose combinations the association is tested; the odds ratio is common to"
        " all.",
        "A[,B]",
    ),
    alternative: Alternative = option(
        "Look for an odds ratio other than 1 (two-sided), above 1 or below 1.",
        default=Alternative.TWO_SIDED,
    ),
    level: str = option("The confidence level of the interval.", "NUMBER", default="0.95"),
    invariant: o.Texts = option(
        "A further margin that is public; --rows and --columns always are (within --strata).",
        "A[,B]",
        "--exact",
        "--invariant",
    ),
    comparing: o.Comparing,
    declaring: Annotated[o.Declaring, o.FEATURES],
    opening: o.Opening,
    ledger: Path | None = o.LEDGER,
    ordered: o.Texts = option(
        "In a release: rows or columns whose levels are ordered, so that a trend is looked for.",
        "FEATURE",
    ),
    scores: o.Texts = option(
        "In a release: the scores of an ordered feature's levels, in their order; 1, 2, 3 … unless"
        " given.",
        "NAME=1,2,4",
    ),
    pooled: bool = flag(
        "--pooled", "In a release: look for one association that is common to all --strata."
    ),
    every_pair: bool = flag(
        "--every-pair", "In a release: test every pair of features instead of --rows and --columns."
    ),
    fdr: o.Text = option(
        "With --every-pair: the expected share of false discoveries among what is found: 0.05.",
        "NUMBER",
    ),
    plot: Path | None = option("With --every-pair: a picture of all pairs, as PNG.", "FILE"),
    page: Path | None = option(
        "Write the report of the release with the matrix of all pairs to this file.", "HTML"
    ),
    draws: int | None = option("How many tables to simulate for a release: 9999.", "N"),
    table_name: o.Text = option(
        "Which table of a release, where several would do.", "TABLE", "--name"
    ),
    seed: int | None = o.SEED,
    printing: o.Printing,
) -> None:
    """Test whether two features are associated, with both margins exact.

    RELEASE: at no cost in privacy, from the noisy counts and the known law of their noise; features
    of any number of levels, independent given --strata; no budget. --pooled looks for one
    association in all strata, --ordered for a trend: both find a weaker one of that kind. Two
    levels by two also have an odds ratio, common to the strata if pooled, with an exact interval at
    --level. DATA: a private test of an odds ratio, which spends a budget.

    One-sided tests are the most powerful unbiased ones with their guarantee; the two-sided one is
    unbiased. The odds ratio is x11 x22 / (x12 x21); level 1 is the first declared (or listed) level
    of each feature. With --strata it is the exact Cochran-Mantel-Haenszel test, with both margins
    exact in every stratum.
    """
    if every_pair:
        o.only_these(context, _FOR_PAIRS)
        _test_pairs(data, fdr, _parse_scores(ordered, scores), (plot, page), draws, seed, printing)
        return
    if fdr is not None or plot is not None or page is not None:
        raise InputError("--fdr, --plot and --page are for --every-pair of a release")
    if rows is None or columns is None:
        raise InputError(
            "name the two features: --rows FEATURE and --columns FEATURE, or --every-pair of a"
            " release"
        )
    within = o.split_names(strata) if strata else ()
    for name in {rows, columns} & {*within} | ({rows} & {columns}):
        raise InputError(
            f"--rows, --columns and --strata name {name!r} twice: name different features"
        )
    # One argument for both: the folder itself says whether the question is free or spends a budget.
    if (Path(data) / "release.json").is_file():
        # Whoever gives a budget here expects something to be spent, and nothing is.
        o.only_these(context, _FOR_RELEASES)
        confidence = o.parse_real(level, "--level")
        check_level(confidence, "--level")
        question = _ReleaseTest(
            rows, columns, within, _parse_scores(ordered, scores), pooled, alternative, confidence
        )
        _test_release(data, question, draws, table_name, seed, printing)
        return
    if draws is not None or table_name is not None:
        raise InputError(
            "--draws and --name are for the test of a release: leave them out for data"
        )
    if ordered or scores or pooled:
        raise InputError(
            "--ordered, --scores and --pooled are for the test of a release: leave them out for"
            " data, where the odds ratio is common to all --strata"
        )
    # A slip in the name of a release looks like data, so that the message names both.
    if spending.epsilon is None and spending.rho is None and spending.mu is None:
        raise InputError(
            "give the privacy budget: one of --epsilon, --rho and --mu; or the folder of a release,"
            " whose release.json is not there"
        )
    budget, target = spending.budget()
    confidence = o.parse_real(level, "--level")
    # Before the ledger is opened: a wrong level must not be found after the charge.
    check_level(confidence, "--level")
    book = o.open_ledger(ledger, printing.quiet)
    request = OddsRatioRequest(rows, columns, None, within, alternative, confidence)
    base = evolve(o.build_base_plan(declaring, opening, comparing), requests=[request])
    plan = o.build_plan(base, invariant or (), budget=budget, report_delta=target)
    declaring.check_used(plan)
    with opening.source(plan, data) as source:
        label = f"odds ratio of {rows} and {columns}"
        done = run_plan(
            Release,
            plan,
            source,
            RunOptions(randomness=o.choose_randomness(seed), ledger=book, label=label),
        )
    scope, result = done.scope, done.odds_ratios[0].analysis
    interval = result.confidence_interval(confidence)
    warnings = [
        *scope.warnings,
        *([] if result.private else [_SEEDED]),
        *([_EMPTY] if interval.empty else []),
    ]
    # What was not recorded or not checked is part of the result, not a remark beside it.
    notes = [*([] if book else [_NO_LEDGER]), *([] if opening.identity else [_NO_ID])]
    if printing.json:
        print_json(
            {
                **result.to_json(confidence),
                "budget": budget.numbers(),
                "report_delta": plan.report_delta,
                "epsilon": result.guarantee.tradeoff.epsilon(plan.report_delta),
                "most_powerful": result.most_powerful,
                "unbiased": result.is_unbiased,
                "warnings": [*warnings, *notes],
            }
        )
    else:
        # the only record of it: --quiet must not hide these
        _print(result, interval, budget, [*warnings, *notes])
    printing.warn(warnings)


@frozen
class _ReleaseTest:
    """The test of two features of a release that the options ask for."""

    rows: str
    columns: str
    strata: tuple[str, ...]
    scores: dict[str, tuple[float, ...] | None]
    pooled: bool
    alternative: Alternative
    level: float


def _parse_scores(ordered: o.Texts, scores: o.Texts) -> dict[str, tuple[float, ...] | None]:
    """Read the ordered features and their scores.

    >>> _parse_scores(["age"], ["dose=0,1/2,4"])
    {'age': None, 'dose': (0.0, 0.5, 4.0)}
    """
    features: dict[str, tuple[float, ...] | None] = dict.fromkeys(ordered or ())
    for name, values in o.parse_lists("--scores", scores).items():
        features[name] = tuple(o.parse_real(value, "--scores") for value in values)
    return features


def _test_release(
    folder: str,
    asked: _ReleaseTest,
    draws: int | None,
    table: str | None,
    seed: int | None,
    printing: o.Printing,
) -> None:
    """Test independence in a release; nothing is spent."""
    release = load_consistent(Release, folder)
    randomness = None if seed is None else SeededRandomness(seed)
    answer = release.test(
        asked.rows,
        asked.columns,
        asked.strata,
        ordered=asked.scores,
        pooled=asked.pooled,
        alternative=asked.alternative,
        table=table,
        draws=draws,
        randomness=randomness,
    )
    ratio, notes = None, answer.notes
    try:
        ratio = _estimate_odds_ratio(release, asked, answer, draws, randomness)
    except Refused as refusal:
        # The test itself has an answer.
        notes = (*notes, f"The odds ratio has no interval: {append_hint(refusal)}.")
    if ratio is not None and ratio.approximate:
        notes = (*notes, ratio.notes[0])
    if printing.json:
        interval = {} if ratio is None else {"odds_ratio": ratio.to_json()}
        print_json({"release": folder, **answer.to_json(), **interval, "notes": list(notes)})
        return
    within = f" given {', '.join(answer.strata)}" if answer.strata else ""
    described = _describe_statistic(answer)
    print_rows(
        [
            ("question", f"are {answer.rows} and {answer.columns} independent{within}?"),
            (
                "table",
                f"{answer.table}: unbiased counts with {answer.noise} noise, {_margins(answer)}",
            ),
            *described,
            ("p-value", f"{answer.p_value:.4g}, {_valid(answer)}"),
            *([] if ratio is None else _ratio_rows(ratio)),
            ("budget", "none: everything here was published already"),
            *(("note", note) for note in notes),
        ]
    )


def _estimate_odds_ratio(
    release: Release,
    asked: "_ReleaseTest",
    answer: Independence | Association,
    draws: int | None,
    randomness: SeededRandomness | None,
) -> CommonOddsRatio | None:
    """The odds ratio of two levels by two, in one table or common to strata; None where there is
    none.
    """
    several = bool(asked.strata) and not asked.pooled
    if several or asked.scores or len(answer.noisy_totals) == 2:
        return None
    tables = [table for table in release.tables if table.name == answer.table]
    schema = tables[0].schema
    for name in (asked.rows, asked.columns):
        feature = schema.features[schema.axis(name)]
        if len(feature.leaves_below(name)) != 2:
            return None
    return common_odds_ratio(
        release,
        asked.rows,
        asked.columns,
        asked.strata,
        level=asked.level,
        table=answer.table,
        draws=draws,
        randomness=randomness,
    )


def _ratio_rows(ratio: CommonOddsRatio) -> list[tuple[str, str]]:
    """The lines about the odds ratio: of which levels, its estimate, its interval."""
    row, column = ratio.compared
    common = f", common to the strata of {', '.join(ratio.strata)}" if ratio.strata else ""
    high = "without end" if math.isinf(ratio.high) else f"to {ratio.high:.6g}"
    value = "infinite" if math.isinf(ratio.value) else f"{ratio.value:.6g}"
    level = plain(exact(ratio.level))
    covers = "covers noise and sampling"
    if ratio.approximate:
        covers += ", by an approximation"
    elif ratio.noisy_totals:
        covers += ", at least as often as stated"
    return [
        (
            "odds ratio",
            f"{value} for {ratio.rows} = {row} and {ratio.columns} = {column}{common}",
        ),
        ("interval", f"{ratio.low:.6g} {high}, at level {level}; {covers}"),
    ]


def _test_pairs(
    folder: str,
    fdr: str | None,
    scores: dict[str, tuple[float, ...] | None],
    pictures: tuple[Path | None, Path | None],
    draws: int | None,
    seed: int | None,
    printing: o.Printing,
) -> None:
    """Test every pair of features of a release; nothing is spent."""
    rate = o.parse_real("0.05" if fdr is None else fdr, "--fdr")
    plot, page = pictures
    for file in pictures:
        # Before the tests, which take long; a release is read again as it was written.
        if file is not None and (file.exists() or Path(folder).resolve() in file.resolve().parents):
            raise InputError(
                f"{file} exists already, or lies inside the release: name another file"
            )
    randomness = None if seed is None else SeededRandomness(seed)
    release = load_consistent(Release, folder)
    answer = every_pair_of(release, fdr=rate, ordered=scores, draws=draws, randomness=randomness)
    if plot is not None:
        replace_file(plot, png(answer.plot()))
    if page is not None:
        replace_file(page, release.report_html(further=[pairs_section(answer)]).encode())
    if printing.json:
        print_json({"release": folder, **answer.to_json()})
        return
    lines = sorted(
        zip(answer.adjusted, answer.tests, strict=True), key=lambda line: (line[0], line[1].p_value)
    )
    width = max(len(f"{test.rows} × {test.columns}") for test in answer.tests)
    echo(f"{'pair':<{width}}  p-value   adjusted")
    for adjusted, test in lines:
        verdict = "associated" if adjusted <= rate else ""
        pair = f"{test.rows} × {test.columns}"
        echo(f"{pair:<{width}}  {test.p_value:<8.4g}  {adjusted:<8.4g}  {verdict}".rstrip())
    echo()
    for one, other, why in answer.untested:
        echo(f"not tested: {one} × {other}: {why}")
    discoveries, tested = len(answer.discoveries), len(answer.tests)
    echo(
        f"{discoveries} of {tested} pairs are associated, at a false discovery rate of at most"
        f" {plain(exact(rate))}."
    )
    # All tests share the noise of one release, so that they cannot be taken as independent.
    echo("It holds under any dependence of the tests (Benjamini-Yekutieli); no budget is spent.")


def _margins(answer: Independence | Association) -> str:
    """Say which totals of a test are exact."""
    noisy = answer.noisy_totals
    return (
        f"the totals of {' and '.join(noisy)} noisy" if noisy else "all margins of the test exact"
    )


def _valid(answer: Independence | Association) -> str:
    """Say why a p-value holds."""
    if answer.draws:
        return f"exact by simulation of {answer.draws:,} tables with noise"
    return "at most, in finite samples: a bound for all plausible totals"


def _describe_statistic(answer: Independence | Association) -> list[tuple[str, str]]:
    """The lines about the statistic: what was chosen and why, its value, its direction."""
    if isinstance(answer, Independence):
        return [
            (
                "statistic",
                f"{answer.statistic:.6g}, where independence has {answer.expected:,} on average",
            )
        ]
    lines = [("chosen", answer.method)]
    for name, scores in answer.ordered:
        values = ", ".join(f"{score:g}" for score in scores)
        lines.append(("scores", f"{name}: {values}"))
    if answer.z is None and answer.noisy_totals:
        size = math.sqrt(answer.statistic)
        lines.append(
            ("statistic", f"{size:.4g} standard deviations: the largest of {answer.degrees:,} sums")
        )
        return lines
    if answer.z is None:
        lines.append(
            (
                "statistic",
                f"{answer.statistic:.6g}, where independence has {answer.degrees} on average",
            )
        )
        return lines
    lines.append(("statistic", f"z = {answer.z:.4g}: {answer.sense}"))
    if answer.alternative is not Alternative.TWO_SIDED:
        lines.append(
            (
                "looked for",
                f"z {'above' if answer.alternative is Alternative.GREATER else 'below'} 0",
            )
        )
    return lines


def _print(result: OddsRatioResult, interval: Interval, budget: Budget, notes: list[str]) -> None:
    rows = [
        *test_rows(result, interval),
        ("budget", f"{budget}, adjacency {report_words(result.guarantee.adjacency).used}"),
        *(("note", note) for note in notes),
    ]
    print_rows(rows)
    echo()
    echo(str(result.guarantee.explain()))
