"""Options that several commands share, and what turns them into values of the library."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer
from attrs import evolve, frozen

from semidp.accounting.ledger import Ledger as Book
from semidp.cli._output import Format, notice, warn
from semidp.engines import Outcome, Source, open_source
from semidp.errors import InputError, SchemaError
from semidp.exact import exact, positive
from semidp.files import from_json
from semidp.grouped import LEVEL, Confidence
from semidp.release import (
    GRID,
    GroupRequest,
    Model,
    Plan,
    QuantileRequest,
    RegressionRequest,
    Statistic,
    TableRequest,
    adjacency_from,
    all_of,
    declared,
    outcome_from,
    proportion_of,
    tables_for,
)
from semidp.spaces import Margin
from semidp.tables import Feature, Nest, Schema, StructuralZero
from semidp.tables.schema import toml_document
from semidp.tradeoff import Budget

Data = Annotated[
    str,
    typer.Argument(
        help="A CSV or Parquet file, a glob, a folder of Parquet files, or a database address with --from.",
        metavar="DATA",
    ),
]
OptionalData = Annotated[
    str | None,
    typer.Argument(
        help="The data, as for release; without them give --schema or --levels, and --totals where they are known.",
        metavar="[DATA]",
        show_default=False,
    ),
]
TotalsFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--totals",
        help="A CSV file of one margin published exactly: its features and a column count; repeat it.",
        metavar="FILE",
    ),
]
TableOption = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        help="The features of a table, such as sex,region; repeat it, and the tables share the budget and add up.",
        metavar="A,B",
    ),
]
AllPairs = Annotated[
    str | None,
    typer.Option("--all-pairs", help="A table for each pair of these features.", metavar="A,B,C"),
]
TargetErrors = Annotated[
    list[str] | None,
    typer.Option(
        "--target-error",
        help="Instead of a budget: the largest standard error that a table may have; repeat it. The least mu is found.",
        metavar="A,B=NUMBER",
    ),
]
Weights = Annotated[
    list[str] | None,
    typer.Option(
        "--weight",
        help="How much the variance of a table counts beside the others (default 1); 4 about halves it.",
        metavar="A,B=NUMBER",
    ),
]
ObjectiveOption = Annotated[
    str | None,
    typer.Option(
        "--objective",
        help="What the noise of several tables makes least: their total variance (default) or the largest error.",
        metavar="total|largest",
    ),
]
Shares = Annotated[
    list[str] | None,
    typer.Option(
        "--share",
        help="The part of the budget for the tables, or for a statistic such as mean-age (default 1 each).",
        metavar="NAME=NUMBER",
    ),
]
Invariants = Annotated[
    list[str] | None,
    typer.Option("--invariant", help="A margin published exactly; repeat it. sex,region is joint.", metavar="A[,B]"),
]
SchemaFile = Annotated[
    Path | None, typer.Option("--schema", help="A TOML file of features, levels, bins and structural zeros.")
]
Levels = Annotated[list[str] | None, typer.Option("--levels", help="The levels of a feature.", metavar="FEATURE=A,B")]
Bins = Annotated[
    list[str] | None, typer.Option("--bins", help="The bin edges of a numeric feature.", metavar="FEATURE=0,18,65")
]
NullLevels = Annotated[
    list[str] | None, typer.Option("--null-level", help="The level for missing values.", metavar="FEATURE=LEVEL")
]
Nests = Annotated[
    list[str] | None,
    typer.Option(
        "--nest", help="Features that lie in each other, coarse to fine: state,county,tract.", metavar="A,B[,C]"
    ),
]
LevelsFromData = Annotated[
    bool,
    typer.Option("--levels-from-data", help="Read undeclared levels from the data (a disclosure the report states)."),
]
Count = Annotated[str | None, typer.Option("--count", help="The column that holds counts.", metavar="COLUMN")]
FromTable = Annotated[str | None, typer.Option("--from", help="The table of the database.", metavar="TABLE")]
Where = Annotated[str | None, typer.Option("--where", help="Keep the records where this holds.", metavar="SQL")]
Identity = Annotated[
    str | None, typer.Option("--id", help="The column that identifies a person: one record each.", metavar="COLUMN")
]
HivePartitions = Annotated[
    bool,
    typer.Option("--hive-partitions", help="Read columns that the files lack from the names of folders such as sex=f."),
]
AllowEmpty = Annotated[bool, typer.Option("--allow-empty", help="Accept files that hold no record.")]
AdjacencyOption = Annotated[
    str | None,
    typer.Option(
        "--adjacency",
        help="worst-case (default), definition or a number: any so many records; or exchange: one person.",
        metavar="READING|N",
    ),
]
AOption = Annotated[
    str | None, typer.Option("--a", help="The same as --adjacency N: how many records move together.", metavar="N")
]
Epsilon = Annotated[str | None, typer.Option("--epsilon", help="The budget as (epsilon, delta).", metavar="NUMBER")]
Rho = Annotated[str | None, typer.Option("--rho", help="The budget as zero-concentrated rho.", metavar="NUMBER")]
Mu = Annotated[str | None, typer.Option("--mu", help="The budget as Gaussian mu.", metavar="NUMBER")]
Delta = Annotated[
    str | None,
    typer.Option(
        "--delta", help="Beside --epsilon: budget. Beside --rho or --mu: the same as --report-delta.", metavar="NUMBER"
    ),
]
ReportDelta = Annotated[
    str | None,
    typer.Option("--report-delta", help="The delta at which epsilon is reported.", metavar="NUMBER"),
]
Groups = Annotated[
    list[str] | None,
    typer.Option(
        "--group", help="Groups whose counts are published exactly, for --mean and the like.", metavar="A[,B]"
    ),
]
Means = Annotated[
    list[str] | None, typer.Option("--mean", help="A private column: its mean by group.", metavar="COLUMN")
]
Sums = Annotated[list[str] | None, typer.Option("--sum", help="A private column: its sum by group.", metavar="COLUMN")]
Proportions = Annotated[
    list[str] | None,
    typer.Option("--proportion", help="A private column of zeros and ones: its proportion of ones.", metavar="COLUMN"),
]
Medians = Annotated[
    list[str] | None, typer.Option("--median", help="A private column: its median by group.", metavar="COLUMN")
]
Quantiles = Annotated[
    list[str] | None,
    typer.Option("--quantile", help="A private column: these quantiles of it by group.", metavar="COLUMN=0.1,0.9"),
]
QuantileLevel = Annotated[
    str | None,
    typer.Option(
        "--quantile-level", help="An interval for each quantile at this level, of the same budget.", metavar="NUMBER"
    ),
]
Regress = Annotated[
    list[str] | None,
    typer.Option("--regress", help="A private column: its linear regression on --on.", metavar="COLUMN"),
]
Logistic = Annotated[
    list[str] | None,
    typer.Option("--logistic", help="A private column of zeros and ones: its logistic regression.", metavar="COLUMN"),
]
On = Annotated[
    str | None, typer.Option("--on", help="The factors of a regression; their counts are exact.", metavar="A[,B]")
]
Bounds = Annotated[
    list[str] | None,
    typer.Option(
        "--bounds", help="The bounds a private column is clipped to: declared, never read.", metavar="COLUMN=0,100"
    ),
]
Grid = Annotated[
    list[str] | None,
    typer.Option("--grid", help="How many steps lie between the bounds (default 1000).", metavar="COLUMN=STEPS"),
]
Level = Annotated[
    str | None, typer.Option("--level", help="The level of confidence intervals (default 0.95).", metavar="NUMBER")
]
Sampling = Annotated[
    bool, typer.Option("--sampling", help="Also intervals for the population that the records were drawn from.")
]
Simultaneous = Annotated[
    bool, typer.Option("--simultaneous", help="The level is that of all intervals of a set together.")
]
Differences = Annotated[
    bool, typer.Option("--differences", help="Also intervals for the differences of each two groups.")
]
Ledger = Annotated[
    Path | None,
    typer.Option("--ledger", help="Charge this ledger first; it refuses past its budget. `semidp ledger` opens one."),
]
Label = Annotated[str | None, typer.Option("--label", help="What the ledger calls this charge.", metavar="TEXT")]
Seed = Annotated[
    int | None, typer.Option("--seed", help="Draw repeatable noise. The release is then marked not private.")
]
FormatOption = Annotated[Format, typer.Option("--format", help="Print for people or for machines.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no warnings on stderr.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]

_LONGEST_TEXT = 2**26  # characters of a plan or schema
_SUCH_AS = {
    "--levels": "sex=f,m",
    "--bins": "age=0,18,65",
    "--null-level": "region=unknown",
    "--target-error": "county,age=5",
    "--weight": "county,age=4",
    "--share": "tables=3",
    "--bounds": "income=0,100000",
    "--grid": "income=1000",
    "--of": "sex=f",
    "--minus": "sex=m",
    "--among": "region=n,s",
}


def only_these(context: typer.Context, names: Collection[str]) -> None:
    """Refuse options that were given and that a published release has no use for, a budget above all."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name not in names and source is not None and source.name == "COMMANDLINE":
            option = parameter.opts[0]
            budget = option in ("--epsilon", "--rho", "--mu", "--delta", "--report-delta", "--ledger")
            why = "costs no privacy" if budget else "reads no data"
            raise InputError(f"a question to a published release {why}: leave {option} out")


def cells_of(option: str, entries: Sequence[str] | None) -> dict[str, tuple[str, ...]] | None:
    """Return the cells that an option means: for each feature its levels.

    >>> cells_of("--of", ["sex=f", "region=n,s"])
    {'sex': ('f',), 'region': ('n', 's')}
    """
    found = {name: names_of(text) for name, text in _assignments(option, entries).items()}
    return found or None


def names_of(text: str) -> tuple[str, ...]:
    """Split ``a,b`` into names.

    >>> names_of("sex, region")
    ('sex', 'region')
    """
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise InputError(f"{text!r} is not a list of names such as sex,region")
    return names


def budget_of(
    epsilon: str | None, rho: str | None, mu: str | None, delta: str | None, report_delta: str | None = None
) -> tuple[Budget, Fraction | None]:
    """Return the budget, and the delta at which to report, if one was given.

    Beside epsilon, delta is budget, and the target unless another is given; beside rho and mu it is the target.
    """
    budget = Budget.stated({"epsilon": epsilon, "rho": rho, "mu": mu, "delta": None if epsilon is None else delta})
    if budget is None:
        raise InputError("give the privacy budget: one of --epsilon, --rho and --mu")
    return budget, target_of(delta if budget.epsilon is None else None, report_delta) or budget.delta or None


def target_of(alias: str | None, report_delta: str | None) -> Fraction | None:
    """Return the delta at which to report, from ``--report-delta`` and the ``--delta`` that stands for it.

    >>> target_of(None, "1e-6")
    Fraction(1, 1000000)
    """
    found = {exact(text, "--report-delta") for text in (alias, report_delta) if text is not None}
    if len(found) > 1:
        raise InputError("--delta and --report-delta disagree: beside --rho and --mu they are the same, so give one")
    if any(not 0 < number < 1 for number in found):
        raise InputError("--report-delta must lie strictly between 0 and 1")
    return next(iter(found), None)


def ledger_of(path: Path | None, quiet: bool) -> Book | None:
    """Open the ledger that an option names. One that is not there is refused: a slip must not open a fresh budget."""
    if path is None:
        return None
    return Book(path, waiting=None if quiet else notice)


def adjacency_of(adjacency: str | None, a: str | None) -> str:
    """Return the one adjacency that was asked for; worst-case by default."""
    if adjacency == "exchange" and a is not None:
        raise InputError(
            "--adjacency exchange protects the exchanges of one person, not a number of records: leave --a out"
        )
    if adjacency is not None and a is not None and adjacency != a:
        raise InputError("--adjacency and --a disagree: give one of them")
    return adjacency or a or "worst-case"


@frozen
class Declared:
    """What the schema file and the options declare: features, structural zeros, nests whose levels are in the data."""

    features: tuple[Feature, ...] = ()
    structural_zeros: tuple[StructuralZero, ...] = ()
    nests: tuple[Nest, ...] = ()

    def schema(self) -> Schema | None:
        """Return the features that have levels as a schema, if there are any."""
        return Schema(self.features, self.structural_zeros) if self.features else None


def declared_features(
    schema: Path | None,
    levels: Sequence[str] | None,
    bins: Sequence[str] | None,
    null_levels: Sequence[str] | None,
    nests: Sequence[str] | None = None,
) -> Declared | None:
    """Return what the schema file and the options declare, or None where they declare nothing."""
    parts: dict[str, dict[str, object]] = {}
    for option, key, entries in (("--levels", "levels", levels), ("--bins", "bins", bins)):
        for name, text in _assignments(option, entries).items():
            parts.setdefault(name, {})[key] = names_of(text)
    nulls = _assignments("--null-level", null_levels)
    known = _schema_file(schema) if schema else Declared()
    features = {feature.name: feature for feature in known.features}
    open_nests = {nest.name: nest for nest in (*known.nests, *(Nest(names_of(text)) for text in nests or ()))}
    chains: list[Feature | Nest] = [*open_nests.values(), *(feature for feature in known.features if feature.above)]
    owner = {name: chain.name for chain in chains for name in chain.names}
    for name in {**parts, **nulls}:
        own = owner.get(name, name)
        if name in parts and (own in features or own in open_nests):
            raise SchemaError(f"feature {name!r} is declared by --schema and by an option: keep one")
        if own in open_nests:
            open_nests[own] = evolve(open_nests[own], null_level=nulls[name])
        elif own in owner:
            features[own] = Feature.nested(
                features[own].names, features[own].paths(), repeat=True, null_level=nulls[name]
            )
        elif name in features:
            old = features[name]
            features[name] = Feature(name, () if old.bins else old.levels, old.bins, nulls[name])
        elif name in parts:
            features[name] = Feature(name, null_level=nulls.get(name), **parts[name])  # type: ignore[arg-type]
        else:
            raise SchemaError(f"--null-level needs the levels of {name!r}: declare them with --levels or --bins")
    found = Declared(tuple(features.values()), known.structural_zeros, tuple(open_nests.values()))
    return found if found.features or found.nests else None


def _schema_file(path: Path) -> Declared:
    document = toml_document(read_text(path, "--schema"))
    if set(document) - {"feature", "structural_zero"}:
        Schema.from_json(document)  # which says what a schema may hold
    return Declared(*declared(document, path.parent))


def read_text(path: Path, option: str) -> str:
    """Read a small text file, or a pipe, that an option names."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_LONGEST_TEXT + 1)
        if len(text) <= _LONGEST_TEXT:
            return text
        raise InputError(f"the file {path} that {option} names is too long for one")
    except (OSError, UnicodeDecodeError):
        raise InputError(f"cannot read the file {path} that {option} names") from None


def read_plan(path: Path, option: str) -> Plan:
    """Read a plan from a TOML file, or from a JSON file of what ``Plan.to_json`` returns."""
    text = read_text(path, option)
    if path.suffix != ".json":
        return Plan.from_toml(text, path.parent)
    try:
        document = from_json(text)
    except ValueError:
        raise InputError(f"the plan {path} is not valid JSON: mend it, or write it as TOML") from None
    if not isinstance(document, dict):
        raise InputError(f"the plan {path} does not have the form that semidp writes: see docs/tutorial.md")
    return Plan.from_json(document, path.parent)


@frozen
class _Outcomes:
    """What --bounds and --grid declare of private columns."""

    bounds: dict[str, tuple[str, ...]]
    steps: dict[str, str]

    @classmethod
    def of(cls, bounds: Sequence[str] | None, grid: Sequence[str] | None) -> "_Outcomes":
        limits = {name: names_of(text) for name, text in _assignments("--bounds", bounds).items()}
        return cls(limits, _assignments("--grid", grid))

    def declared(self, column: str) -> Outcome:
        return outcome_from(column, self.bounds.get(column), self.steps.get(column, GRID))


def groups_of(
    groups: Sequence[str] | None,
    columns: Mapping[Statistic, Sequence[str] | None],
    bounds: Sequence[str] | None,
    grid: Sequence[str] | None,
    others: Sequence[str] = (),
    alone: bool = True,
) -> tuple[GroupRequest, ...]:
    """Return the statistics by group that the options ask for, still without a budget.

    `others` are columns of other requests that bounds may name; groups are not `alone` where quantiles use them.
    """
    by = tuple(Margin(*names_of(text)) for text in groups or ())
    outcomes = _Outcomes.of(bounds, grid)
    wanted = [(statistic, column) for statistic, named in columns.items() for column in named or ()]
    if by and not wanted and alone:
        raise InputError("say what to publish of the groups: --mean, --sum, --proportion or --median, with a column")
    if wanted and not by:
        raise InputError(f"say by which groups to publish the {wanted[0][0]} of {wanted[0][1]}: --group FEATURE")
    unused = [
        name
        for name in {**outcomes.bounds, **outcomes.steps}
        if name not in {*others, *(column for _, column in wanted)}
    ]
    if unused:
        raise InputError(f"--bounds or --grid name {unused[0]!r}, of which nothing is published by group")
    return tuple(
        GroupRequest(
            statistic,
            proportion_of(column) if statistic is Statistic.proportion else outcomes.declared(column),
            by,
        )
        for statistic, column in wanted
    )


def quantiles_of(
    groups: Sequence[str] | None,
    medians: Sequence[str] | None,
    named: Sequence[str] | None,
    bounds: Sequence[str] | None,
    grid: Sequence[str] | None,
    level: str | None,
    sampling: bool,
) -> tuple[QuantileRequest, ...]:
    """Return the quantiles by group that the options ask for, still without a budget."""
    by = tuple(Margin(*names_of(text)) for text in groups or ())
    wanted: dict[str, set[str]] = {column: {"0.5"} for column in medians or ()}
    for column, several in _assignments("--quantile", named).items():
        wanted.setdefault(column, set()).update(names_of(several))
    if wanted and not by:
        raise InputError(f"say by which groups to publish the quantiles of {next(iter(wanted))}: --group FEATURE")
    if level is not None and not wanted:
        raise InputError("--quantile-level is for --median and --quantile")
    outcomes = _Outcomes.of(bounds, grid)
    return tuple(
        QuantileRequest(
            outcomes.declared(column),
            by,
            sorted({exact(q, f"a quantile of {column!r}") for q in several}),
            level=level,
            sampling=sampling and level is not None,
        )
        for column, several in wanted.items()
    )


def regressions_of(
    columns: Mapping[Model, Sequence[str] | None],
    factors: str | None,
    bounds: Sequence[str] | None,
    grid: Sequence[str] | None,
) -> tuple[RegressionRequest, ...]:
    """Return the regressions that the options ask for, still without a budget."""
    wanted = [(model, column) for model, named in columns.items() for column in named or ()]
    if factors is not None and not wanted:
        raise InputError("say what to regress on these features: --regress COLUMN or --logistic COLUMN")
    if wanted and factors is None:
        raise InputError(f"say on which features to regress {wanted[0][1]}: --on A,B")
    outcomes = _Outcomes.of(bounds, grid)
    return tuple(
        RegressionRequest(
            proportion_of(column) if model is Model.logistic else outcomes.declared(column),
            names_of(factors or ""),
            model=model,
        )
        for model, column in wanted
    )


def confidence_of(
    level: str | None,
    sampling: bool,
    simultaneous: bool,
    differences: bool,
    groups: Sequence[GroupRequest],
    regressions: Sequence[RegressionRequest],
    quantiles: bool,
) -> tuple[tuple[GroupRequest, ...], tuple[RegressionRequest, ...]]:
    """Return requests with the intervals that the options ask for; refuse those of which nothing has any.

    `quantiles` says whether some have intervals of their own, which may be about the population too.
    """
    if level is None and not (sampling or simultaneous or differences):
        return tuple(groups), tuple(regressions)
    if not groups and (differences or not regressions):
        if quantiles and level is None and not (simultaneous or differences):
            return (), ()
        raise InputError("--level, --sampling, --simultaneous and --differences are for --mean, --sum or --proportion")
    asked = Confidence(LEVEL if level is None else level, sampling, simultaneous, differences)
    alone = evolve(asked, differences=False)
    return (
        tuple(evolve(group, confidence=asked) for group in groups),
        tuple(evolve(regression, confidence=alone) for regression in regressions),
    )


def source_of(
    plan: Plan, data: Any, from_table: str | None, *, hive_partitions: bool = False, allow_empty: bool = False
) -> Source:
    """Open the data of a command as its plan reads them."""
    return open_source(
        data,
        table=from_table,
        count=plan.count,
        where=plan.where,
        id=plan.id,
        hive_partitions=hive_partitions,
        allow_empty=allow_empty,
    )


def plan_of(
    tables: Sequence[str] | None,
    invariants: Sequence[str] | None,
    declared: Declared | None,
    *,
    adjacency: str,
    count: str | None,
    where: str | None,
    identity: str | None,
    levels_from_data: bool,
    budget: Budget | None = None,
    report_delta: Fraction | None = None,
    mechanism: str = "auto",
    fit: str = "integer",
    groups: Sequence[GroupRequest] = (),
    regressions: Sequence[RegressionRequest] = (),
    quantiles: Sequence[QuantileRequest] = (),
    all_pairs: str | None = None,
    weights: Sequence[str] | None = None,
    objective: str | None = None,
    shares: Sequence[str] | None = None,
) -> Plan:
    """Return the plan that the options of a command describe; several measurements share its budget.

    Groups have exact counts, so each set of groups (and the factors of a regression) that no invariant covers is
    published too. The mechanism is that of the table, and that of the groups where there is no table; several tables
    share one part of the budget. Parts are even unless --share says otherwise.
    """
    margins = [Margin(*names_of(text)) for text in invariants or ()]
    sets = dict.fromkeys(margin for group in groups for margin in group.by)
    sets |= dict.fromkeys(margin for quantile in quantiles for margin in quantile.by)
    sets |= dict.fromkeys(Margin(*regression.factors) for regression in regressions)
    margins += [margin for margin in sets if not any(margin.within(known) for known in margins)]
    if mechanism != "auto" and quantiles and not (tables or all_pairs or groups or regressions):
        raise InputError("quantiles are chosen, and no noise is drawn for them: leave --mechanism out")
    wanted = tables_of(tables, all_pairs, mechanism, fit)
    if not wanted and fit != "integer":
        raise InputError("--fit is for tables: leave it out where only statistics by group are asked for")
    wanted = _set(wanted, "--weight", weights, "weight")
    others = [
        *(group.name for group in groups),
        *(regression.name for regression in regressions),
        *(quantile.name for quantile in quantiles),
    ]
    parts = _parts([*(["tables"] if wanted else []), *others], shares)
    product = None

    def part(name: str) -> Budget | None:
        return budget and budget.share(parts[name] / sum(parts.values()))

    if (mine := part("tables") if wanted else None) is not None:
        wanted, product = tables_for(wanted, mine)
    if objective is not None:
        if product is None:
            raise InputError("--objective is for several tables that share a budget: --rho, --mu, or --delta beside it")
        product = evolve(product, objective=objective)
    theirs = mechanism if not wanted and product is None else "auto"
    return Plan(
        wanted,
        tuple(margins),
        declared.features if declared else (),
        declared.structural_zeros if declared else (),
        adjacency=adjacency_from(adjacency),
        count=count,
        where=where,
        id=identity,
        levels_from_data=levels_from_data,
        groups=[evolve(group, budget=part(group.name), mechanism=theirs) for group in groups],
        regressions=[evolve(fit, budget=part(fit.name), mechanism=theirs) for fit in regressions],
        quantiles=[evolve(quantile, budget=part(quantile.name)) for quantile in quantiles],
        report_delta=Plan().report_delta if report_delta is None else report_delta,
        nests=declared.nests if declared else (),
        product=product,
    )


def tables_of(
    tables: Sequence[str] | None, all_pairs: str | None, mechanism: str, fit: str
) -> tuple[TableRequest, ...]:
    """Return the tables that --table and --all-pairs ask for; refuse one that is asked for twice."""
    sets = [names_of(text) for text in tables or ()]
    if all_pairs is not None:
        sets += [table.features for table in all_of(names_of(all_pairs))]
    if len({frozenset(names) for names in sets}) < len(sets):
        raise InputError("the same table is asked for twice (--table, --all-pairs): name each once")
    return tuple(TableRequest(names, None, mechanism, fit) for names in sets)


def with_targets(plan: Plan, targets: Sequence[str] | None) -> Plan:
    """Return a plan whose tables without a budget have the errors that --target-error asks for."""
    open_tables = [table for table in plan.tables if not table.budget]
    found = list(_set(open_tables, "--target-error", targets, "target_error"))
    return evolve(plan, tables=[table if table.budget else found.pop(0) for table in plan.tables])


def _set(
    tables: Sequence[TableRequest], option: str, entries: Sequence[str] | None, field: str
) -> tuple[TableRequest, ...]:
    """Return tables with what an option says of those that it names by their features; refuse one that is not there."""
    found = {frozenset(table.features): table for table in tables}
    seen = set()
    for names, text in _assignments(option, entries).items():
        key = frozenset(names_of(names))
        if key not in found:
            listed = "; ".join(",".join(table.features) for table in tables) or "none"
            raise InputError(f"{option} names {names}: no table that shares the budget has these features ({listed})")
        if key in seen:
            raise InputError(f"{option} is given twice for the table {names}: keep one")
        seen.add(key)
        changes: dict[str, Any] = {field: exact(text, option)}
        found[key] = evolve(found[key], **changes)
    return tuple(found[frozenset(table.features)] for table in tables)


def _parts(names: Sequence[str], shares: Sequence[str] | None) -> dict[str, Fraction]:
    """Return the part of the budget for the tables and for each statistic, in proportion."""
    parts = dict.fromkeys(names, Fraction(1))
    for name, text in _assignments("--share", shares).items():
        if name not in parts or len(parts) < 2:
            raise InputError(f"--share names {name!r}, which shares no budget; what does is {', '.join(names)}")
        parts[name] = positive(text, "--share")
    return parts


def all_used(plan: Plan, *options: Sequence[str] | None) -> None:
    """Refuse options such as ``--levels`` that declare a feature which the plan does not use: a slip, likely.

    A schema file may hold more features than one plan uses; a nested feature is used where one of its depths is.
    """
    used = set(plan.names)
    for part in plan.chains:
        used |= set(part.names) if used & set(part.names) else set()
    for entry in itertools.chain.from_iterable(option or () for option in options):
        name = entry.partition("=")[0].rpartition(",")[2].strip()
        if name not in used:
            raise SchemaError(f"{entry!r} declares a feature that nothing uses; in use are {', '.join(plan.names)}")


def warn_all(sentences: Sequence[str], quiet: bool) -> None:
    """Print warnings on stderr, unless asked to be quiet."""
    for sentence in () if quiet else sentences:
        warn(sentence)


def _assignments(option: str, entries: Sequence[str] | None) -> dict[str, str]:
    """Read what an option says of each feature or column.

    >>> _assignments("--null-level", ["sex=unknown"])
    {'sex': 'unknown'}
    """
    found: dict[str, str] = {}
    for entry in entries or ():
        name, equals, value = (part.strip() for part in entry.partition("="))
        if not (name and equals and value):
            raise InputError(f"{option} takes NAME=…, such as {option} {_SUCH_AS[option]}, not {entry!r}")
        if name in found:
            raise InputError(f"{option} is given twice for {name!r}: keep one")
        found[name] = value
    return found
