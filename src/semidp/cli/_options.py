"""Options that several commands share, and what turns them into values of the library.

Options that belong together are the fields of a group, such as `Spending`, which a command takes as one parameter.
"""

import itertools
from collections.abc import Callable, Collection, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import typer
from attrs import evolve, frozen

from semidp.accounting.ledger import Ledger
from semidp.cli._command import argument, flag, option, plain_defaults
from semidp.cli._output import Format, echo, notice
from semidp.core.documents import from_json
from semidp.core.exact import exact, positive
from semidp.core.spaces.dataspace import Margin
from semidp.core.tables.features import Feature, Nest
from semidp.core.tables.schema import Schema, toml_document
from semidp.core.tradeoff.budget import Budget
from semidp.errors import InputError, SchemaError, did_you_mean
from semidp.noise.randomness import Randomness, SeededRandomness, SystemRandomness
from semidp.publishing.budgets import exact_margins, with_shares
from semidp.publishing.plan import Plan, declared
from semidp.sources.contract import GRID, Outcome
from semidp.sources.opening import Source, open_source
from semidp.statistics.outcomes.intervals import LEVEL, Confidence
from semidp.statistics.outcomes.request import outcome_from, proportion_of
from semidp.statistics.protocol import Request
from semidp.statistics.quantiles.request import QuantileRequest
from semidp.statistics.regression.request import Model, RegressionRequest
from semidp.statistics.sums.request import GroupRequest, Statistic
from semidp.statistics.tables.request import TableRequest, TablesRequest, all_of

Text = str | None
Texts = list[str] | None
"""The type of an option that may be repeated."""

DATA = argument("A CSV or Parquet file, a glob, a folder of Parquet files, or a database address with --from.", "DATA")
OPTIONAL_DATA = argument(
    "The data, as for release; without them give --schema or --levels, and --totals where they are known.",
    "[DATA]",
    None,
    show_default=False,
)
RELEASE = argument("A folder that `semidp release` wrote.", "RELEASE")
TABLE = option(
    "The features of a table, such as sex,region; repeat it, and the tables share the budget and add up.", "A,B"
)
INVARIANT = option("A margin published exactly; repeat it. sex,region is joint.", "A[,B]", "--exact", "--invariant")
TOTALS = option("A CSV file of one margin published exactly: its features and a column count; repeat it.", "FILE")
LEDGER = option("Charge this ledger first; it refuses past its budget. `semidp ledger` opens one.")
SEED = option("Draw repeatable noise. The release is then marked not private.")
FORCE = flag("--force", "Replace what is there.")
REPORT_DELTA = option("The delta at which epsilon is reported.", "NUMBER")
FORMAT = option("Print for people or for machines.", default=Format.text)
QUIET = flag("--quiet", "No progress and no warnings on stderr.", "-q")


@frozen(field_transformer=plain_defaults)
class Printing:
    """How a command prints, and whether it says more than its result."""

    format: Format = FORMAT
    quiet: bool = QUIET

    @property
    def json(self) -> bool:
        """Whether the result is for machines."""
        return self.format is Format.json

    def warn(self, sentences: Sequence[str]) -> None:
        """Print warnings on stderr, unless asked to be quiet."""
        for sentence in () if self.quiet else sentences:
            echo(f"warning: {sentence}", err=True)


@frozen(field_transformer=plain_defaults)
class Spending:
    """The budget, and the delta at which to report.

    Beside epsilon, delta is budget, and the target unless another is given; beside rho and mu it is the target.
    """

    epsilon: Text = option("The budget as (epsilon, delta).", "NUMBER")
    rho: Text = option("The budget as zero-concentrated rho.", "NUMBER")
    mu: Text = option("The budget as Gaussian mu.", "NUMBER")
    delta: Text = option("Beside --epsilon: budget. Beside --rho or --mu: the same as --report-delta.", "NUMBER")
    report_delta: Text = REPORT_DELTA

    @property
    def given(self) -> bool:
        """Whether some of a budget was given."""
        return any((self.epsilon, self.rho, self.mu, self.delta))

    @property
    def target(self) -> Fraction | None:
        """The delta at which to report, if one was given."""
        return target_of(None if self.epsilon else self.delta, self.report_delta)

    def budget(self) -> tuple[Budget, Fraction | None]:
        """Return the budget, and the delta at which to report, if one was given."""
        amounts = {"epsilon": self.epsilon, "rho": self.rho, "mu": self.mu}
        budget = Budget.stated({**amounts, "delta": None if self.epsilon is None else self.delta})
        if budget is None:
            raise InputError("give the privacy budget: one of --epsilon, --rho and --mu")
        return budget, self.target or budget.delta or None


@frozen(field_transformer=plain_defaults)
class Declaring:
    """What is declared of features."""

    schema: Path | None = option("A TOML file of features, levels, bins and structural zeros.")
    levels: Texts = option("The levels of a feature.", "FEATURE=A,B")
    bins: Texts = option("The bin edges of a numeric feature.", "FEATURE=0,18,65")
    null_level: Texts = option("The level for missing values.", "FEATURE=LEVEL")
    nest: Texts = option("Features that lie in each other, coarse to fine: state,county,tract.", "A,B[,C]")
    levels_from_data: bool = flag(
        "--levels-from-data", "Read undeclared levels from the data (a disclosure the report states)."
    )

    def plan(self) -> Plan:
        """Return a plan that asks for nothing yet, with the features, structural zeros and nests that are declared."""
        parts: dict[str, dict[str, Any]] = {}
        for word, key, entries in (("--levels", "levels", self.levels), ("--bins", "bins", self.bins)):
            for name, several in lists_of(word, entries).items():
                parts.setdefault(name, {})[key] = several
        nulls = _assignments("--null-level", self.null_level)
        known = _schema_file(self.schema) if self.schema else Plan()
        features = {feature.name: feature for feature in known.features}
        named = (Nest(names_of(text)) for text in self.nest or ())
        open_nests = {nest.name: nest for nest in (*known.nests, *named)}
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
                features[name] = Feature(name, null_level=nulls.get(name), **parts[name])
            else:
                raise SchemaError(f"--null-level needs the levels of {name!r}: declare them with --levels or --bins")
        return evolve(
            known, features=features.values(), nests=open_nests.values(), levels_from_data=self.levels_from_data
        )

    def check_used(self, plan: Plan) -> None:
        """Refuse options such as ``--levels`` that declare a feature which the plan does not use: a slip, likely.

        A schema file may hold more features than one plan uses; a nested feature is used where one of its depths is.
        """
        used = set(plan.names)
        for part in plan.chains:
            used |= set(part.names) if used & set(part.names) else set()
        for entry in itertools.chain(*(given or () for given in (self.levels, self.bins, self.null_level, self.nest))):
            name = entry.partition("=")[0].rpartition(",")[2].strip()
            if name not in used:
                raise SchemaError(f"{entry!r} declares a feature that nothing uses; in use are {', '.join(plan.names)}")


FEATURES = ("schema", "levels", "bins", "null_level", "nest")
"""The options of `Declaring` for a command that reads no level from the data unless it is published."""


@frozen(field_transformer=plain_defaults)
class Opening:
    """How the data are opened and read."""

    count: Text = option("The column that holds counts.", "COLUMN")
    from_table: Text = option("The table of the database.", "TABLE", "--from")
    where: Text = option("Keep the records where this holds.", "SQL")
    identity: Text = option("The column that identifies a person: one record each.", "COLUMN", "--id")
    hive_partitions: bool = flag(
        "--hive-partitions", "Read columns that the files lack from the names of folders such as sex=f."
    )
    allow_empty: bool = flag("--allow-empty", "Accept files that hold no record.")

    def source(self, plan: Plan, data: Any, *, quiet: bool) -> Source:
        """Open data as a plan reads them; say which columns a WHERE reads as numbers, unless asked to be quiet."""
        source = open_source(
            data,
            table=self.from_table,
            count=plan.count,
            where=plan.where,
            id=plan.id,
            hive_partitions=self.hive_partitions,
            allow_empty=self.allow_empty,
        )
        if source.read_as_numbers and not quiet:
            notice(f"the WHERE compares as numbers: {', '.join(source.read_as_numbers)} (every value is one)")
        return source


FILES = ("from_table", "hive_partitions", "allow_empty")
"""The options of `Opening` for a command whose plan says how records are read."""


@frozen(field_transformer=plain_defaults)
class Comparing:
    """Which pairs of datasets are protected."""

    adjacency: Text = option(
        "worst-case (default), definition or a number: any so many records; or exchange: one person.", "READING|N"
    )
    a: Text = option("The same as --adjacency N: how many records move together.", "N")

    def reading(self) -> str:
        """Return the one adjacency that was asked for; worst-case by default."""
        if self.adjacency == "exchange" and self.a is not None:
            raise InputError(
                "--adjacency exchange protects the exchanges of one person, not a number of records: leave --a out"
            )
        if self.adjacency is not None and self.a is not None and self.adjacency != self.a:
            raise InputError("--adjacency and --a disagree: give one of them")
        return self.adjacency or self.a or "worst-case"


@frozen(field_transformer=plain_defaults)
class Asking:
    """What is asked for beside tables, and how all of it shares a budget."""

    group: Texts = option("Groups whose counts are published exactly, for --mean and the like.", "A[,B]")
    mean: Texts = option("A private column: its mean by group.", "COLUMN")
    sum: Texts = option("A private column: its sum by group.", "COLUMN")
    proportion: Texts = option("A private column of zeros and ones: its proportion of ones.", "COLUMN")
    median: Texts = option("A private column: its median by group.", "COLUMN")
    quantile: Texts = option("A private column: these quantiles of it by group.", "COLUMN=0.1,0.9")
    quantile_level: Text = option("An interval for each quantile at this level, of the same budget.", "NUMBER")
    all_pairs: Text = option("A table for each pair of these features.", "A,B,C")
    weight: Texts = option(
        "How much the variance of a table counts beside the others (default 1); 4 about halves it.", "A,B=NUMBER"
    )
    objective: Text = option(
        "What the noise of several tables makes least: their total variance (default) or the largest error.",
        "total|largest",
    )
    share: Texts = option(
        "The part of the budget for the tables, or for a statistic such as mean-age (default 1 each).", "NAME=NUMBER"
    )
    regress: Texts = option("A private column: its linear regression on --on.", "COLUMN")
    logistic: Texts = option("A private column of zeros and ones: its logistic regression.", "COLUMN")
    on: Text = option("The factors of a regression; their counts are exact.", "A[,B]")
    bounds: Texts = option("The bounds a private column is clipped to: declared, never read.", "COLUMN=0,100")
    grid: Texts = option("How many steps lie between the bounds (default 1000).", "COLUMN=STEPS")
    level: Text = option("The level of confidence intervals (default 0.95).", "NUMBER")
    sampling: bool = flag("--sampling", "Also intervals for the population that the records were drawn from.")
    simultaneous: bool = flag("--simultaneous", "The level is that of all intervals of a set together.")
    differences: bool = flag("--differences", "Also intervals for the differences of each two groups.")

    def asked(self, plan: Plan) -> Plan:
        """Return a plan with the statistics by group and the regressions that are asked for, without a budget."""
        by = tuple(Margin(*names_of(text)) for text in self.group or ())
        bounds = lists_of("--bounds", self.bounds)
        steps = _assignments("--grid", self.grid)

        def outcome(column: str) -> Outcome:
            return outcome_from(column, bounds.get(column), steps.get(column, GRID))

        quantiles = self._quantiles(by, outcome)
        used = {request.outcome.column for request in quantiles}.union(
            *(named or () for named in (self.mean, self.sum, self.proportion, self.regress, self.logistic))
        )
        unused = [name for name in {**bounds, **steps} if name not in used]
        groups = self._groups(by, outcome, unused, alone=not quantiles)
        groups, regressions = self._confident(groups, self._regressions(outcome))
        return evolve(plan, requests=[*groups, *regressions, *quantiles])

    def _quantiles(self, by: tuple[Margin, ...], outcome: Callable[[str], Outcome]) -> list[QuantileRequest]:
        wanted: dict[str, set[str]] = {column: {"0.5"} for column in self.median or ()}
        for column, several in lists_of("--quantile", self.quantile).items():
            wanted.setdefault(column, set()).update(several)
        if wanted and not by:
            raise InputError(f"say by which groups to publish the quantiles of {next(iter(wanted))}: --group FEATURE")
        if self.quantile_level is not None and not wanted:
            raise InputError("--quantile-level is for --median and --quantile")
        return [
            QuantileRequest(
                outcome(column),
                by,
                sorted({exact(q, f"a quantile of {column!r}") for q in several}),
                level=self.quantile_level,
                sampling=self.sampling and self.quantile_level is not None,
            )
            for column, several in wanted.items()
        ]

    def _groups(
        self, by: tuple[Margin, ...], outcome: Callable[[str], Outcome], unused: Sequence[str], alone: bool
    ) -> list[GroupRequest]:
        """Return the statistics by group; groups are not `alone` where quantiles use them."""
        columns = {Statistic.mean: self.mean, Statistic.sum: self.sum, Statistic.proportion: self.proportion}
        wanted = [(statistic, column) for statistic, named in columns.items() for column in named or ()]
        if by and not wanted and alone:
            raise InputError(
                "say what to publish of the groups: --mean, --sum, --proportion or --median, with a column"
            )
        if wanted and not by:
            raise InputError(f"say by which groups to publish the {wanted[0][0]} of {wanted[0][1]}: --group FEATURE")
        if unused:
            raise InputError(f"--bounds or --grid name {unused[0]!r}, of which nothing is published by group")
        return [
            GroupRequest(statistic, proportion_of(column) if statistic is Statistic.proportion else outcome(column), by)
            for statistic, column in wanted
        ]

    def _regressions(self, outcome: Callable[[str], Outcome]) -> list[RegressionRequest]:
        columns = {Model.linear: self.regress, Model.logistic: self.logistic}
        wanted = [(model, column) for model, named in columns.items() for column in named or ()]
        if self.on is not None and not wanted:
            raise InputError("say what to regress on these features: --regress COLUMN or --logistic COLUMN")
        if wanted and self.on is None:
            raise InputError(f"say on which features to regress {wanted[0][1]}: --on A,B")
        return [
            RegressionRequest(
                proportion_of(column) if model is Model.logistic else outcome(column),
                names_of(self.on or ""),
                model=model,
            )
            for model, column in wanted
        ]

    def _confident(
        self, groups: list[GroupRequest], regressions: list[RegressionRequest]
    ) -> tuple[list[GroupRequest], list[RegressionRequest]]:
        """Return requests with the intervals that are asked for; refuse those of which nothing has any.

        Quantiles have intervals of their own, which may be about the population too.
        """
        beside = self.level is not None or self.simultaneous or self.differences
        if not beside and (not self.sampling or (self.quantile_level is not None and not (groups or regressions))):
            return groups, regressions
        if not groups and (self.differences or not regressions):
            raise InputError(
                "--level, --sampling, --simultaneous and --differences are for --mean, --sum or --proportion"
            )
        level = LEVEL if self.level is None else self.level
        asked = Confidence(level, self.sampling, self.simultaneous, self.differences)
        alone = evolve(asked, differences=False)
        return (
            [evolve(group, confidence=asked) for group in groups],
            [evolve(regression, confidence=alone) for regression in regressions],
        )


NOTHING = Asking()
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


def described(declaring: Declaring, opening: Opening, comparing: Comparing) -> Plan:
    """Return a plan that asks for nothing yet: what is declared, how records are read, which datasets are compared."""
    return evolve(
        declaring.plan(),
        adjacency=comparing.reading(),
        count=opening.count,
        where=opening.where,
        id=opening.identity,
    )


def plan_of(
    base: Plan,
    tables: Sequence[str],
    invariants: Sequence[str],
    *,
    budget: Budget | None = None,
    report_delta: Fraction | None = None,
    mechanism: str = "auto",
    fit: str = "integer",
    asking: Asking = NOTHING,
) -> Plan:
    """Return the plan of these tables and of the statistics of `base`; what is measured shares the budget.

    Groups have exact counts, so each set of groups (and the factors of a regression) that no invariant covers is
    published too. The mechanism is that of the table, and that of the groups where there is no table; several tables
    share one part of the budget. Parts are even unless --share says otherwise.
    """
    margins = exact_margins(evolve(base, invariants=[Margin(*names_of(text)) for text in invariants]))
    tables_asked = _tables(tables, asking.all_pairs, mechanism, fit)
    statistics = base.requests
    if not tables_asked:
        if fit != "integer":
            raise InputError("--fit is for tables: leave it out where only statistics by group are asked for")
        statistics = tuple(request.with_mechanism(mechanism) for request in statistics)
        if mechanism != "auto" and statistics == base.requests:
            raise InputError("quantiles are chosen, and no noise is drawn for them: leave --mechanism out")
    tables_asked = _set(tables_asked, "--weight", asking.weight, "weight")
    shared = [TablesRequest(tables_asked, None, asking.objective or "total")] if tables_asked else []
    if asking.objective is not None and (len(tables_asked) < 2 or budget is None or budget.kind == "pure"):
        raise InputError("--objective is for several tables that share a budget: --rho, --mu, or --delta beside it")
    plan = evolve(
        base,
        requests=[*shared, *statistics],
        invariants=margins,
        report_delta=base.report_delta if report_delta is None else report_delta,
    )
    parts = _parts(list(dict.fromkeys(request.share_name for request in plan.requests)), asking.share)
    return plan if budget is None else with_shares(plan, budget, parts)


def _tables(tables: Sequence[str], all_pairs: str | None, mechanism: str, fit: str) -> tuple[TableRequest, ...]:
    """Return the tables that --table and --all-pairs ask for; refuse one that is asked for twice."""
    sets = [names_of(text) for text in tables]
    if all_pairs is not None:
        sets += [table.features for table in all_of(names_of(all_pairs))]
    if len({frozenset(names) for names in sets}) < len(sets):
        raise InputError("the same table is asked for twice (--table, --all-pairs): name each once")
    return tuple(TableRequest(names, None, mechanism, fit) for names in sets)


def with_targets(plan: Plan, targets: Sequence[str] | None) -> Plan:
    """Return a plan whose tables without a budget have the errors that --target-error asks for."""
    if not targets:
        return plan
    requests: list[Request] = []
    open_tables: list[TableRequest] = []
    for request in plan.requests:
        if request.tables and request.budget is None:
            open_tables += request.tables
        else:
            requests.append(request)
    with_errors = _set(open_tables, "--target-error", targets, "target_error")
    return evolve(plan, requests=[TablesRequest(with_errors), *requests])


def _set(
    tables: Sequence[TableRequest], option: str, entries: Sequence[str] | None, field: str
) -> tuple[TableRequest, ...]:
    """Return tables with what an option says of those that it names by their features; refuse one that is not there."""
    known = {frozenset(table.features) for table in tables}
    said: dict[frozenset[str], dict[str, Any]] = {}
    for names, text in _assignments(option, entries).items():
        key = frozenset(names_of(names))
        if key not in known:
            listed = "; ".join(",".join(table.features) for table in tables) or "none"
            raise InputError(f"{option} names {names}: no table that shares the budget has these features ({listed})")
        if key in said:
            raise InputError(f"{option} is given twice for the table {names}: keep one")
        said[key] = {field: exact(text, option)}
    return tuple(evolve(table, **said.get(frozenset(table.features), {})) for table in tables)


def _parts(names: Sequence[str], shares: Sequence[str] | None) -> dict[str, Fraction]:
    """Return the part of the budget for the tables and for each statistic, in proportion."""
    parts = dict.fromkeys(names, Fraction(1))
    for name, text in _assignments("--share", shares).items():
        if len(parts) < 2:
            raise InputError(
                f"--share divides a budget, and {names[0]} has all of it here: leave --share out, or ask for more"
            )
        if name not in parts:
            meant = did_you_mean(name, names)
            raise InputError(f"--share names {name!r}, which takes no part{meant}: {', '.join(names)} do")
        parts[name] = positive(text, "--share")
    return parts


def only_these(context: typer.Context, names: Collection[str]) -> None:
    """Refuse options that were given and that a published release has no use for, a budget above all."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name not in names and source is not None and source.name == "COMMANDLINE":
            option = parameter.opts[0]
            budget = option in ("--epsilon", "--rho", "--mu", "--delta", "--report-delta", "--ledger")
            why = "costs no privacy" if budget else "reads no data"
            raise InputError(f"a question to a published release {why}: leave {option} out")


def lists_of(option: str, entries: Sequence[str] | None) -> dict[str, tuple[str, ...]]:
    """Read what an option lists for each feature or column.

    >>> lists_of("--of", ["sex=f", "region=n,s"])
    {'sex': ('f',), 'region': ('n', 's')}
    """
    return {name: names_of(text) for name, text in _assignments(option, entries).items()}


def names_of(text: str) -> tuple[str, ...]:
    """Split ``a,b`` into names.

    >>> names_of("sex, region")
    ('sex', 'region')
    """
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise InputError(f"{text!r} is not a list of names such as sex,region")
    return names


def target_of(alias: str | None, report_delta: str | None) -> Fraction | None:
    """Return the delta at which to report, from ``--report-delta`` and the ``--delta`` that stands for it.

    >>> target_of(None, "1e-6")
    Fraction(1, 1000000)
    """
    found = {exact(text, "--report-delta") for text in (alias, report_delta) if text is not None}
    if len(found) > 1:
        raise InputError("--delta and --report-delta disagree: beside --rho and --mu they are the same, so give one")
    if any(not 0 < number < 1 for number in found):
        option = "--delta" if report_delta is None else "--report-delta"
        raise InputError(f"{option} must lie strictly between 0 and 1")
    return next(iter(found), None)


def ledger_of(path: Path | None, quiet: bool) -> Ledger | None:
    """Open the ledger that an option names. One that is not there is refused: a slip must not open a fresh budget."""
    return None if path is None else Ledger(path, waiting=None if quiet else notice)


def randomness_of(seed: int | None) -> Randomness:
    """Return the operating system's randomness, or what a seed repeats."""
    return SystemRandomness() if seed is None else SeededRandomness(seed)


def _schema_file(path: Path) -> Plan:
    document = toml_document(read_text(path, "--schema"))
    if set(document) - {"feature", "structural_zero"}:
        Schema.from_json(document)  # which says what a schema may hold
    features, zeros, nests = declared(document, path.parent)
    return Plan(features=features, structural_zeros=zeros, nests=nests)


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
