"""``semidp test`` (also ``semidp odds-ratio``): association, privately in data or at no cost in a release.

Data: the semi-private test of the odds ratio of a 2×2 table, or common to strata. A release: independence in a table of
any size, from what is published.
"""

from pathlib import Path
from typing import Annotated

import typer

from semidp.cli import _options as o
from semidp.cli._command import argument, command, option
from semidp.cli._output import echo, print_json, print_rows
from semidp.core.exact import exact, plain
from semidp.core.tradeoff.budget import Budget
from semidp.errors import InputError
from semidp.noise.randomness import SeededRandomness
from semidp.publishing.rechecking.recheck import load_consistent
from semidp.publishing.survey import survey
from semidp.statistics.odds_ratio.hypergeometric import Strata, TwoByTwo
from semidp.statistics.odds_ratio.measured import OddsRatioResult, odds_ratio_test
from semidp.statistics.odds_ratio.umpu import Alternative, Interval, check_level

_NO_LEDGER = "No ledger was given: other releases of the same data are not accounted for, and together protect less."
_NO_ID = "Each record is taken to be one person; give --id COLUMN to have that checked."
_SEEDED = "The noise was drawn from a seed: this result is not private."
_EMPTY = "Every odds ratio is rejected: U lies far outside the counts that the margins allow."


@command
def odds_ratio(
    *,
    context: typer.Context,
    data: str = argument(
        "The folder of a release; or data: a CSV or Parquet file, a glob, or a database address with --from.",
        "RELEASE|DATA",
    ),
    rows: str = option("The feature of the rows; in data with two levels.", "FEATURE", default=...),
    columns: str = option("The feature of the columns; in data with two levels.", "FEATURE", default=...),
    spending: o.Spending,
    strata: o.Text = option(
        "Features within whose combinations the association is tested; the odds ratio is common to all.", "A[,B]"
    ),
    alternative: Alternative = option(
        "Look for an odds ratio other than 1 (two-sided), above 1 or below 1.", default=Alternative.TWO_SIDED
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
    draws: int | None = option("How many tables to simulate for a release: 9999.", "N"),
    table_name: o.Text = option("Which table of a release, where several would do.", "TABLE", "--name"),
    seed: int | None = o.SEED,
    printing: o.Printing,
) -> None:
    """Test whether two features are associated, with both margins exact.

    RELEASE: at no cost in privacy, from the noisy counts and the known law of their noise; features of any number of
    levels, independent given --strata; no budget. DATA: a private test of an odds ratio, which spends a budget.

    One-sided tests are the most powerful unbiased ones with their guarantee; the two-sided one is unbiased. The
    odds ratio is x11 x22 / (x12 x21); level 1 is the first declared (or listed) level of each feature. With --strata it
    is the exact Cochran-Mantel-Haenszel test, with both margins exact in every stratum.
    """
    within = o.names_of(strata) if strata else ()
    for name in {rows, columns} & {*within} | ({rows} & {columns}):
        raise InputError(f"--rows, --columns and --strata name {name!r} twice: name different features")
    if (Path(data) / "release.json").is_file():
        o.only_these(context, ("data", "rows", "columns", "strata", "draws", "table_name", "seed", "format", "quiet"))
        _test_release(data, (rows, columns, within), draws, table_name, seed, printing)
        return
    if draws is not None or table_name is not None:
        raise InputError("--draws and --name are for the test of a release: leave them out for data")
    if spending.epsilon is None and spending.rho is None and spending.mu is None:
        raise InputError(
            "give the privacy budget: one of --epsilon, --rho and --mu; or the folder of a release, whose release.json "
            "is not there"
        )
    budget, target = spending.budget()
    confidence = float(exact(level, "--level"))
    check_level(confidence, "--level")
    book = o.ledger_of(ledger, printing.quiet)
    plan = o.plan_of(
        o.described(declaring, opening, comparing),
        [",".join((rows, columns, *within))],
        [*(",".join((name, *within)) for name in (rows, columns)), *(invariant or ())],
        budget=budget,
        report_delta=target,
    )
    declaring.check_used(plan)
    with opening.source(plan, data, quiet=printing.quiet) as source:
        scope, reader = survey(plan, source)
        table = reader.table((rows, columns, *within))
    result = odds_ratio_test(
        table,
        budget,
        strata=within,
        alternative=alternative,
        dataspace=scope.dataspace,
        adjacency=scope.adjacency,
        randomness=o.randomness_of(seed),
        ledger=book,
    )
    interval = result.confidence_interval(confidence)
    warnings = [*scope.warnings, *([] if result.private else [_SEEDED]), *([_EMPTY] if interval.empty else [])]
    notes = [*([] if book else [_NO_LEDGER]), *([] if opening.identity else [_NO_ID])]
    if printing.json:
        print_json(
            {
                **result.to_json(confidence),
                "budget": budget.numbers(),
                "report_delta": plan.report_delta,
                "epsilon": result.guarantee.tradeoff.epsilon(plan.report_delta),
                "most_powerful": result.most_powerful,
                "unbiased": result.unbiased,
                "warnings": [*warnings, *notes],
            }
        )
    else:
        _print(result, interval, budget, [*warnings, *notes])  # the only record of it: --quiet must not hide these
    printing.warn(warnings)


def _test_release(
    folder: str,
    features: tuple[str, str, tuple[str, ...]],
    draws: int | None,
    table: str | None,
    seed: int | None,
    printing: o.Printing,
) -> None:
    """Test independence in a release; nothing is spent."""
    randomness = None if seed is None else SeededRandomness(seed)
    found = load_consistent(folder).test(*features, table=table, draws=draws, randomness=randomness)
    if printing.json:
        print_json({"release": folder, **found.to_json()})
        return
    given = f" given {', '.join(found.strata)}" if found.strata else ""
    rows = [
        ("question", f"are {found.rows} and {found.columns} independent{given}?"),
        ("table", f"{found.table}: unbiased counts with {found.noise} noise, all margins of the test exact"),
        ("statistic", f"{found.statistic:.6g}, where independence has {found.expected:,} on average"),
        ("p-value", f"{found.p_value:.4g}, exact by simulation of {found.draws:,} tables with noise"),
        ("budget", "none: everything here was published already"),
        *(("note", note) for note in found.notes),
    ]
    print_rows(rows)


def _print(result: OddsRatioResult, interval: Interval, budget: Budget, notes: list[str]) -> None:
    row, column = result.x11
    adjacency = result.guarantee.adjacency
    noise, counted = result.test.noise, f"{result.rows} = {row} and {result.columns} = {column}"
    best = ", uniformly most powerful among unbiased tests with this guarantee" if result.most_powerful else ""
    if result.alternative is Alternative.TWO_SIDED and result.unbiased:
        best = ", unbiased"
    span = "empty" if interval.empty else f"{interval.low:.4g} to {interval.high:.4g}"
    ratio = "common odds ratio" if result.strata else "odds ratio"
    summed = f", summed over the strata of {', '.join(result.strata)}" if result.strata else ""
    rows = [
        ("counted", f"x11: {counted}{summed}"),
        ("exact", _exact(result.margins)),
        ("U", f"{result.u:.6f}, that is x11 plus noise of standard deviation {noise.standard_deviation:.4g}"),
        ("p-value", f"{result.p_value:.4g} ({_asked(result.alternative)}{best})"),
        ("interval", f"{span} for the {ratio}, at level {plain(exact(interval.level))}"),
        ("budget", f"{budget}, adjacency {adjacency.words.used}"),
        *(("note", note) for note in notes),
    ]
    print_rows(rows)
    echo()
    echo(str(result.guarantee.explain()))


def _exact(margins: TwoByTwo | Strata) -> str:
    if isinstance(margins, Strata):
        varied = sum(not table.degenerate for table in margins.tables)
        return f"both margins of {len(margins.tables):,} strata with {margins.n:,} records; {varied:,} of them vary"
    return f"{margins.row:,} and {margins.column:,} of {margins.n:,} records have these levels"


def _asked(alternative: Alternative) -> str:
    """Say what the alternative means.

    >>> _asked(Alternative.LESS)
    'is the odds ratio below 1?'
    """
    where = {Alternative.GREATER: "above 1", Alternative.LESS: "below 1", Alternative.TWO_SIDED: "different from 1"}
    return f"is the odds ratio {where[alternative]}?"
