"""``semidp test`` (also ``semidp odds-ratio``): association, privately in data or at no cost in a release.

Data: the semi-private test of the odds ratio of a 2×2 table, or common to strata. A release: independence in a table of
any size, from what is published.
"""

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

from semidp.cli import _options as o
from semidp.cli._output import Format, echo, print_json
from semidp.errors import InputError
from semidp.exact import exact, plain
from semidp.inference import Alternative, Interval, OddsRatioResult, Strata, TwoByTwo, odds_ratio_test
from semidp.inference.umpu import check_level
from semidp.noise import SeededRandomness, SystemRandomness
from semidp.release import Release
from semidp.release.scope import survey
from semidp.tradeoff import Budget

Place = Annotated[
    str,
    typer.Argument(
        help="The folder of a release; or data: a CSV or Parquet file, a glob, or a database address with --from.",
        metavar="RELEASE|DATA",
    ),
]
Rows = Annotated[
    str, typer.Option("--rows", help="The feature of the rows; in data with two levels.", metavar="FEATURE")
]
Columns = Annotated[
    str, typer.Option("--columns", help="The feature of the columns; in data with two levels.", metavar="FEATURE")
]
Draws = Annotated[
    int | None, typer.Option("--draws", help="How many tables to simulate for a release: 9999.", metavar="N")
]
TableName = Annotated[
    str | None, typer.Option("--name", help="Which table of a release, where several would do.", metavar="TABLE")
]
AlternativeOption = Annotated[
    Alternative,
    typer.Option("--alternative", help="Look for an odds ratio other than 1 (two-sided), above 1 or below 1."),
]
StrataOption = Annotated[
    str | None,
    typer.Option(
        "--strata",
        help="Features within whose combinations the association is tested; the odds ratio is common to all.",
        metavar="A[,B]",
    ),
]
Level = Annotated[str, typer.Option("--level", help="The confidence level of the interval.", metavar="NUMBER")]
Further = Annotated[
    list[str] | None,
    typer.Option(
        "--invariant",
        help="A further margin that is public; --rows and --columns always are (within --strata).",
        metavar="A[,B]",
    ),
]

_NO_LEDGER = "No ledger was given: other releases of the same data are not accounted for, and together protect less."
_NO_ID = "Each record is taken to be one person; give --id COLUMN to have that checked."
_SEEDED = "The noise was drawn from a seed: this result is not private."
_EMPTY = "Every odds ratio is rejected: U lies far outside the counts that the margins allow."


def odds_ratio(
    context: typer.Context,
    data: Place,
    rows: Rows,
    columns: Columns,
    epsilon: o.Epsilon = None,
    rho: o.Rho = None,
    mu: o.Mu = None,
    delta: o.Delta = None,
    report_delta: o.ReportDelta = None,
    strata: StrataOption = None,
    alternative: AlternativeOption = Alternative.TWO_SIDED,
    level: Level = "0.95",
    invariant: Further = None,
    adjacency: o.AdjacencyOption = None,
    a: o.AOption = None,
    schema: o.SchemaFile = None,
    levels: o.Levels = None,
    bins: o.Bins = None,
    null_level: o.NullLevels = None,
    nest: o.Nests = None,
    count: o.Count = None,
    from_table: o.FromTable = None,
    where: o.Where = None,
    identity: o.Identity = None,
    hive_partitions: o.HivePartitions = False,
    allow_empty: o.AllowEmpty = False,
    ledger: o.Ledger = None,
    draws: Draws = None,
    table_name: TableName = None,
    seed: o.Seed = None,
    format: o.FormatOption = Format.text,
    quiet: o.Quiet = False,
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
        _test_release(data, (rows, columns, within), draws, table_name, seed, format)
        return
    if draws is not None or table_name is not None:
        raise InputError("--draws and --name are for the test of a release: leave them out for data")
    if epsilon is None and rho is None and mu is None:
        raise InputError(
            "give the privacy budget: one of --epsilon, --rho and --mu; or the folder of a release, whose release.json "
            "is not there"
        )
    budget, target = o.budget_of(epsilon, rho, mu, delta, report_delta)
    confidence = float(exact(level, "--level"))
    check_level(confidence, "--level")
    book = o.ledger_of(ledger, quiet)
    plan = o.plan_of(
        [",".join((rows, columns, *within))],
        [",".join((name, *within)) for name in (rows, columns)] + (invariant or []),
        o.declared_features(schema, levels, bins, null_level, nest),
        adjacency=o.adjacency_of(adjacency, a),
        count=count,
        where=where,
        identity=identity,
        levels_from_data=False,
        budget=budget,
        report_delta=target,
    )
    o.all_used(plan, levels, bins, null_level, nest)
    with o.source_of(plan, data, from_table, hive_partitions=hive_partitions, allow_empty=allow_empty) as source:
        scope, reader = survey(plan, source)
        table = reader.table((rows, columns, *within))
    result = odds_ratio_test(
        table,
        budget,
        strata=within,
        alternative=alternative,
        dataspace=scope.dataspace,
        adjacency=scope.adjacency,
        randomness=SystemRandomness() if seed is None else SeededRandomness(seed),
        ledger=book,
    )
    interval = result.confidence_interval(confidence)
    warnings = [*scope.warnings, *([] if result.private else [_SEEDED]), *([_EMPTY] if interval.empty else [])]
    notes = [*([] if book else [_NO_LEDGER]), *([] if identity else [_NO_ID])]
    if format is Format.json:
        print_json(_document(result, confidence, budget, plan.report_delta, [*warnings, *notes]))
    else:
        _print(result, interval, budget, [*warnings, *notes])  # the only record of it: --quiet must not hide these
    o.warn_all(warnings, quiet)


def _test_release(
    folder: str,
    features: tuple[str, str, tuple[str, ...]],
    draws: int | None,
    table: str | None,
    seed: int | None,
    format: Format,
) -> None:
    """Test independence in a release; nothing is spent."""
    randomness = None if seed is None else SeededRandomness(seed)
    found = Release.load(folder).test(*features, table=table, draws=draws, randomness=randomness)
    if format is Format.json:
        print_json({"release": folder, **found.to_json()})
        return
    given = f" given {', '.join(found.strata)}" if found.strata else ""
    lines = [
        ("question", f"are {found.rows} and {found.columns} independent{given}?"),
        ("table", f"{found.table}: unbiased counts with {found.noise} noise, all margins of the test exact"),
        ("statistic", f"{found.statistic:.6g}, where independence has {found.expected:,} on average"),
        ("p-value", f"{found.p_value:.4g}, exact by simulation of {found.draws:,} tables with noise"),
        ("budget", "none: everything here was published already"),
        *(("note", note) for note in found.notes),
    ]
    for name, text in lines:
        echo(f"{name:<10} {text}")


def _document(
    result: OddsRatioResult, level: float, budget: Budget, report_delta: Fraction, warnings: list[str]
) -> dict[str, Any]:
    return {
        **result.to_json(level),
        "budget": budget.numbers(),
        "report_delta": report_delta,
        "epsilon": result.guarantee.tradeoff.epsilon(report_delta),
        "most_powerful": result.most_powerful,
        "unbiased": result.unbiased,
        "warnings": warnings,
    }


def _print(result: OddsRatioResult, interval: Interval, budget: Budget, notes: list[str]) -> None:
    row, column = result.x11
    noise, counted = result.test.noise, f"{result.rows} = {row} and {result.columns} = {column}"
    best = ", uniformly most powerful among unbiased tests with this guarantee" if result.most_powerful else ""
    if result.alternative is Alternative.TWO_SIDED and result.unbiased:
        best = ", unbiased"
    span = "empty" if interval.empty else f"{interval.low:.4g} to {interval.high:.4g}"
    ratio = "common odds ratio" if result.strata else "odds ratio"
    lines = [
        ("counted", f"x11: {counted}{_summed(result)}"),
        ("exact", _exact(result.margins)),
        ("U", f"{result.u:.6f}, that is x11 plus noise of standard deviation {noise.standard_deviation:.4g}"),
        ("p-value", f"{result.p_value:.4g} ({_asked(result.alternative)}{best})"),
        ("interval", f"{span} for the {ratio}, at level {plain(exact(interval.level))}"),
        ("budget", f"{budget}, adjacency {_pairs(result)}"),
        *(("note", note) for note in notes),
    ]
    for name, text in lines:
        echo(f"{name:<10} {text}")
    echo()
    echo(str(result.guarantee.explain()))


def _summed(result: OddsRatioResult) -> str:
    return f", summed over the strata of {', '.join(result.strata)}" if result.strata else ""


def _exact(margins: TwoByTwo | Strata) -> str:
    if isinstance(margins, Strata):
        varied = sum(not table.degenerate for table in margins.tables)
        return f"both margins of {len(margins.tables):,} strata with {margins.n:,} records; {varied:,} of them vary"
    return f"{margins.row:,} and {margins.column:,} of {margins.n:,} records have these levels"


def _pairs(result: OddsRatioResult) -> str:
    adjacency = result.guarantee.adjacency
    return str(adjacency) if adjacency.is_exchange else f"a = {adjacency.a}"


def _asked(alternative: Alternative) -> str:
    """Say what the alternative means.

    >>> _asked(Alternative.LESS)
    'is the odds ratio below 1?'
    """
    where = {Alternative.GREATER: "above 1", Alternative.LESS: "below 1", Alternative.TWO_SIDED: "different from 1"}
    return f"is the odds ratio {where[alternative]}?"
