"""Options that several commands share, and what turns them into values of the library.

Options that belong together are the fields of a group, such as `Spending`, which a command takes as
one parameter.
"""

import contextlib
import itertools
from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import typer
from attrs import evolve, frozen

from semidp.cli._command import argument, flag, option, plain_defaults
from semidp.cli._output import Format, echo, notice
from semidp.errors import InputError, SchemaError, SemidpError
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.documents import from_json
from semidp.promise.exact import exact, positive
from semidp.promise.noise.randomness import Randomness, SeededRandomness, SystemRandomness
from semidp.promise.schema.features import Feature, Nest, bin_edges
from semidp.promise.schema.schema import Schema, toml_document
from semidp.promise.spaces.dataspace import Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.budgets import divide_budget
from semidp.publish.plan import Plan, read_declarations
from semidp.publish.sources.opening import Source, open_source
from semidp.publish.sources.readings import are_dates, date_bins, months
from semidp.publish.statistics.fields import Chosen, Field, Shape
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.registry import build_requests, chosen_fields

Text = str | None
Texts = list[str] | None
"""The type of an option that may be repeated."""

DATA = argument(
    "A CSV, Parquet or Excel file, a glob, a folder of Parquet files, or a database address with"
    " --from.",
    "DATA",
)
OPTIONAL_DATA = argument(
    "The data, as for release; without them give --schema or --levels, and --totals where they are"
    " known.",
    "[DATA]",
    None,
    show_default=False,
)
RELEASE = argument("A folder that `semidp release` wrote.", "RELEASE")
TABLE = option(
    "The features of a table, such as sex,region; repeat it, and the tables share the budget and"
    " add up.",
    "A,B",
)
INVARIANT = option(
    "A margin published exactly; repeat it. sex,region is joint.", "A[,B]", "--exact", "--invariant"
)
TOTALS = option(
    "A CSV file of one margin published exactly: its features and a column count; repeat it.",
    "FILE",
)
LEDGER = option("Charge this ledger first; it refuses past its budget. `semidp ledger` opens one.")
SEED = option("Draw repeatable noise. The release is then marked not private.")
FORCE = flag("--force", "Replace what is there.")
REPORT_DELTA = option("The delta at which epsilon is reported.", "NUMBER")
FORMAT = option("Print for people or for machines.", default=Format.text)
QUIET = flag(
    "--quiet", "No progress, no warnings, and nothing about files that were written.", "-q"
)


@frozen(field_transformer=plain_defaults)
class Printing:
    """How a command prints, and whether it says more than its result."""

    format: Format = FORMAT
    quiet: bool = QUIET

    @property
    def json(self) -> bool:
        """Whether the result is for machines."""
        return self.format is Format.json

    @property
    def silent(self) -> bool:
        """Whether nothing is printed about what was written."""
        return self.quiet and not self.json

    def warn(self, sentences: Sequence[str]) -> None:
        """Print warnings on stderr, unless asked to be quiet."""
        for sentence in () if self.quiet else sentences:
            echo(f"warning: {sentence}", err=True)


@frozen(field_transformer=plain_defaults)
class Spending:
    """The budget, and the delta at which to report.

    Beside epsilon, delta is budget, and the target unless another is given; beside rho and mu it is
    the target.
    """

    epsilon: Text = option("The budget as (epsilon, delta).", "NUMBER")
    rho: Text = option("The budget as zero-concentrated rho.", "NUMBER")
    mu: Text = option("The budget as Gaussian mu.", "NUMBER")
    delta: Text = option(
        "Beside --epsilon: budget. Beside --rho or --mu: the same as --report-delta.", "NUMBER"
    )
    report_delta: Text = REPORT_DELTA

    @property
    def is_given(self) -> bool:
        """Whether some of a budget was given."""
        return any((self.epsilon, self.rho, self.mu, self.delta))

    @property
    def target(self) -> Fraction | None:
        """The delta at which to report, if one was given."""
        # Beside epsilon delta is budget; elsewhere it can only be meant as the target.
        return resolve_report_delta(None if self.epsilon else self.delta, self.report_delta)

    def budget(self) -> tuple[Budget, Fraction | None]:
        """Return the budget, and the delta at which to report, if one was given."""
        amounts = {"epsilon": self.epsilon, "rho": self.rho, "mu": self.mu}
        budget = Budget.from_plan_keys(
            {**amounts, "delta": None if self.epsilon is None else self.delta}
        )
        if budget is None:
            raise InputError("give the privacy budget: one of --epsilon, --rho and --mu")
        return budget, self.target or budget.delta or None


@frozen(field_transformer=plain_defaults)
class Declaring:
    """What is declared of features."""

    schema: Path | None = option("A TOML file of features, levels, bins and structural zeros.")
    levels: Texts = option("The levels of a feature.", "FEATURE=A,B")
    bins: Texts = option(
        "The edges of bins of numbers or dates; 0,18,65, has no upper end.", "FEATURE=0,18,65,120"
    )
    null_level: Texts = option("The level for missing values.", "FEATURE=LEVEL")
    nest: Texts = option(
        "Features that lie in each other, coarse to fine: state,county,tract.", "A,B[,C]"
    )
    levels_from_data: bool = flag(
        "--levels-from-data",
        "Read undeclared levels from the data (a disclosure the report states).",
    )

    def plan(self) -> Plan:
        """Return a plan that asks for nothing yet, with the features, structural zeros and nests
        that are declared.
        """
        parts: dict[str, dict[str, Any]] = {}
        dates: dict[str, str] = {}
        for word, key, entries in (
            ("--levels", "levels", self.levels),
            ("--bins", "bins", self.bins),
        ):
            for name, text in assignments(word, entries).items():
                several = bin_edges(text) if key == "bins" else expand_ranges(split_names(text))
                if key == "bins" and are_dates(several):
                    parts.setdefault(name, {})["levels"], dates[name] = date_bins(name, several)
                    continue
                parts.setdefault(name, {})[key] = several
        nulls = assignments("--null-level", self.null_level)
        declared = _schema_file(self.schema) if self.schema else Plan()
        features = {feature.name: feature for feature in declared.features}
        named = (Nest(split_names(text)) for text in self.nest or ())
        open_nests = {nest.name: nest for nest in (*declared.nests, *named)}
        chains: list[Feature | Nest] = [
            *open_nests.values(),
            *(feature for feature in declared.features if feature.above),
        ]
        owner = {name: chain.name for chain in chains for name in chain.names}
        for name in {**parts, **nulls}:
            finest = owner.get(name, name)
            # Two declarations of one feature may differ, and nobody says which one counts.
            if name in parts and (finest in features or finest in open_nests):
                raise SchemaError(
                    f"feature {name!r} is declared by --schema and by an option: keep one"
                )
            if finest in open_nests:
                open_nests[finest] = evolve(open_nests[finest], null_level=nulls[name])
            elif finest in owner:
                features[finest] = Feature.from_paths(
                    features[finest].names,
                    features[finest].paths(),
                    repeat=True,
                    null_level=nulls[name],
                )
            elif name in features:
                # The levels of bins follow from their edges, and are not given beside them.
                old = features[name]
                features[name] = Feature(
                    name, () if old.bins else old.levels, old.bins, nulls[name]
                )
            elif name in parts:
                features[name] = Feature(name, null_level=nulls.get(name), **parts[name])
            else:
                raise SchemaError(
                    f"--null-level needs the levels of {name!r}: declare them with --levels or"
                    " --bins"
                )
        return evolve(
            declared,
            features=features.values(),
            nests=open_nests.values(),
            levels_from_data=self.levels_from_data,
            read_as=dates,
        )

    def check_used(self, plan: Plan) -> None:
        """Refuse options such as ``--levels`` for a feature that the plan does not use: that is
        likely a slip.

        A schema file may hold more features than one plan uses; a nested feature is used where one
        of its depths is.
        """
        used = set(plan.names)
        for part in plan.chains:
            # The depths of one nest are declared together, so that using one uses all.
            used |= set(part.names) if used & set(part.names) else set()
        for entry in itertools.chain(
            *(values or () for values in (self.levels, self.bins, self.null_level, self.nest))
        ):
            name = entry.partition("=")[0].rpartition(",")[2].strip()
            if name not in used:
                raise SchemaError(
                    f"{entry!r} declares a feature that nothing uses; in use are"
                    f" {', '.join(plan.names)}"
                )


FEATURES = ("schema", "levels", "bins", "null_level", "nest")
"""The options of `Declaring` for a command that reads no level from the data unless it is
published."""


@frozen(field_transformer=plain_defaults)
class Opening:
    """How the data are opened and read."""

    count: Text = option("The column that holds counts.", "COLUMN")
    from_table: Text = option(
        "The table of the database, or the sheet of the workbook.", "TABLE", "--from"
    )
    where: Text = option("Keep the records where this holds.", "SQL")
    identity: Text = option(
        "The column that identifies a person: one record each, or up to --most.", "COLUMN", "--id"
    )
    most: int | None = option(
        "How many records a person may have: all of them are protected together.", "N"
    )
    called: Text = option("What records are called, with --most: stays.", "WORD", "--records")
    hive_partitions: bool = flag(
        "--hive-partitions",
        "Read columns that the files lack from the names of folders such as sex=f.",
    )
    allow_empty: bool = flag("--allow-empty", "Accept files that hold no record.")
    read_as: Texts = option(
        "How a column is written: dates by day, month, quarter or year; numbers as 1.234,5 or"
        " 1,234.5. What conditions take it for: integer, decimal or text.",
        "COLUMN=HOW",
    )
    encoding: Text = option(
        "The encoding of CSV files: utf-8 (default), latin-1, windows-1252 or utf-16.", "NAME"
    )

    @property
    def readings(self) -> dict[str, str]:
        """How columns are read."""
        return assignments("--read-as", self.read_as)

    def source(self, plan: Plan, data: Any) -> Source:
        """Open data as a plan reads them."""
        return open_source(
            data,
            table=self.from_table,
            count=plan.count,
            where=plan.where,
            id=plan.id,
            most=plan.most,
            hive_partitions=self.hive_partitions,
            allow_empty=self.allow_empty,
            read_as=plan.read_as,
            encoding=self.encoding,
        )


FILES = ("from_table", "hive_partitions", "allow_empty", "encoding")
"""The options of `Opening` for a command whose plan says how records are read."""


@frozen(field_transformer=plain_defaults)
class Comparing:
    """Which pairs of datasets are protected."""

    adjacency: Text = option(
        "worst-case (default), definition or a number N: any N records that change together; or"
        " exchange: one person.",
        "READING|N",
    )
    a: Text = option("The same as --adjacency N: how many records move together.", "N")

    def reading(self) -> str:
        """Return the one adjacency that was asked for; worst-case by default."""
        if self.adjacency == "exchange" and self.a is not None:
            raise InputError(
                "--adjacency exchange protects the exchanges of one person, not a number of"
                " records: leave --a out"
            )
        # Which of two numbers was meant is not guessed: the smaller one protects less.
        if self.adjacency is not None and self.a is not None and self.adjacency != self.a:
            raise InputError("--adjacency and --a disagree: give one of them")
        return self.adjacency or self.a or "worst-case"


class Asking:
    """What is asked for: the options that statistics declare, and how all of it shares a budget."""

    def __init__(self, share: Texts = None, **values: Any) -> None:
        self.share = share
        self._values = values

    @classmethod
    def declare_options(cls) -> dict[str, tuple[Any, Any]]:
        """Return the options with their types: those of every field that a statistic declares, and
        --share.
        """
        options = {name: _build_option(field) for name, field in chosen_fields().items()}
        return {**options, "share": (_SHARE, Texts)}

    @property
    def is_given(self) -> bool:
        """Whether one of the options was given."""
        return any((self.share, *self._values.values()))

    @property
    def divides(self) -> bool:
        """Whether something was said about how a budget is divided."""
        said = [field for name, field in chosen_fields().items() if self._values.get(name)]
        return bool(self.share) or any(field.divides for field in said)

    def add_requests(self, plan: Plan) -> Plan:
        """Return a plan with everything that is asked for, without a budget."""
        values = {
            name: _parse_field(field, self._values.get(name))
            for name, field in chosen_fields().items()
        }
        return evolve(plan, requests=build_requests(Chosen(values)))


_SHARE = option(
    "The part of the budget for the tables, or for a statistic such as mean-age (default 1 each).",
    "NAME=NUMBER",
)


def _build_option(field: Field) -> tuple[Any, Any]:
    """Return the option of a field, with its type."""
    if field.shape is Shape.tick:
        return flag(field.option, field.help), bool
    once = field.shape is Shape.text or (field.shape is Shape.features and not field.several)
    return option(field.help, field.metavar, field.option), Text if once else Texts


def _parse_field(field: Field, given: Any) -> Any:
    """Read what was written after the option of a field."""
    if given is None or field.shape in (Shape.text, Shape.tick):
        return given
    if field.shape is Shape.columns:
        return tuple(given)
    if field.shape is Shape.features:
        return tuple(split_names(text) for text in (given if field.several else [given]))
    assigned = assignments(field.option, given, field.example)
    return (
        assigned
        if field.shape is Shape.texts
        else {name: split_names(text) for name, text in assigned.items()}
    )


def tables_asked(plan: Plan, tables: Sequence[str]) -> Plan:
    """Return a plan that also asks for tables, each by its features."""
    return Asking(table=list(tables)).add_requests(plan)


_LONGEST_TEXT = 2**26  # characters of a plan or schema
_SUCH_AS = {
    "--levels": "sex=f,m",
    "--read-as": "admitted=month",
    "--missing": "pay=private",
    "--bins": "age=0,18,65,120",
    "--null-level": "region=unknown",
    "--target-error": "county,age=5",
    "--share": "tables=3",
    "--of": "sex=f",
    "--minus": "sex=m",
    "--among": "region=n,s",
    "--scores": "dose=0,1,4",
}


def build_base_plan(declaring: Declaring, opening: Opening, comparing: Comparing) -> Plan:
    """Return a plan that asks for nothing yet: what is declared, how records are read, which
    datasets are compared.
    """
    plan = declaring.plan()
    # The edges of dates fix how the column is read; another reading would move records.
    twice = [column for column, _ in plan.read_as if column in opening.readings]
    if twice:
        raise InputError(
            f"--bins of dates says already how {twice[0]!r} is read: leave it out of --read-as"
        )
    return evolve(
        plan,
        adjacency=comparing.reading(),
        count=opening.count,
        where=opening.where,
        id=opening.identity,
        most=opening.most,
        records=opening.called,
        read_as={**dict(plan.read_as), **opening.readings},
    )


def build_plan(
    base: Plan,
    invariants: Sequence[str],
    *,
    budget: Budget | None = None,
    report_delta: Fraction | None = None,
    mechanism: str = "auto",
    shares: Sequence[str] | None = None,
) -> Plan:
    """Return the plan of what `base` asks for; what is measured shares the budget.

    The mechanism is that of the tables, and that of the statistics where there is no table. Parts
    of the budget are even unless --share says otherwise.
    """
    plan = evolve(
        base,
        requests=_with_mechanism(base.requests, mechanism),
        invariants=[Margin(*split_names(text)) for text in invariants],
        report_delta=base.report_delta if report_delta is None else report_delta,
    )
    parts = {
        name: positive(text, "--share") for name, text in assignments("--share", shares).items()
    }
    return divide_budget(plan, budget, parts, called="--share")


def _with_mechanism(requests: Sequence[Request], mechanism: str) -> list[Request]:
    """Return requests with a mechanism: on their tables, or on their statistics where there is no
    table.
    """
    tables = any(request.tables for request in requests)
    changed = []
    for request in requests:
        takes_it = bool(request.tables) == tables
        changed.append(request.with_mechanism(mechanism) if takes_it else request)
    # A mechanism that nothing takes would seem to have been used.
    if mechanism != "auto" and not tables and changed == list(requests):
        raise InputError(
            "quantiles are chosen, and no noise is drawn for them: leave --mechanism out"
        )
    return changed


def with_targets(plan: Plan, targets: Sequence[str] | None) -> Plan:
    """Return a plan with the errors of --target-error on its tables without a budget."""
    errors = assignments("--target-error", targets)
    if not errors:
        return plan
    requests: list[Request] = []
    named = False
    for request in plan.requests:
        # A table with a budget of its own has its error already.
        open_tables = bool(request.targets) and request.budget is None
        requests.append(
            request.with_target_errors("--target-error", errors) if open_tables else request
        )
        named |= open_tables
    if not named:
        names = next(iter(errors))
        raise InputError(
            f"--target-error names {names}: no table that shares the budget has these features"
            " (none)"
        )
    return evolve(plan, requests=requests)


def only_these(context: typer.Context, names: Collection[str]) -> None:
    """Refuse options that a published release does not use, a budget above all."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        # Only what was typed is refused: every option has a value, its default.
        if parameter.name not in names and source is not None and source.name == "COMMANDLINE":
            option = parameter.opts[0]
            budget = option in (
                "--epsilon",
                "--rho",
                "--mu",
                "--delta",
                "--report-delta",
                "--ledger",
            )
            why = "costs no privacy" if budget else "reads no data"
            raise InputError(f"a question to a published release {why}: leave {option} out")


def parse_lists(option: str, entries: Sequence[str] | None) -> dict[str, tuple[str, ...]]:
    """Read what an option lists for each feature or column.

    >>> parse_lists("--of", ["sex=f", "region=n,s"])
    {'sex': ('f',), 'region': ('n', 's')}
    """
    return {name: split_names(text) for name, text in assignments(option, entries).items()}


def expand_ranges(levels: Sequence[str]) -> tuple[str, ...]:
    """Return levels with ranges of months, quarters or years written out.

    >>> expand_ranges(["2025-12..2026-02", "later"])
    ('2025-12', '2026-01', '2026-02', 'later')
    """
    words: list[str] = []
    for level in levels:
        first, dots, last = level.partition("..")
        words += months(first, last) if dots and first and last else [level]
    return tuple(words)


def parse_real(text: str, option: str) -> float:
    """Read a number of which no exact form is needed.

    >>> parse_real("1/4", "--level")
    0.25
    """
    number = exact(text, option)
    try:
        return float(number)
    except OverflowError:
        raise InputError(f"{option} must be a number below 1e308, not {text[:40]!r}") from None


def split_names(text: str) -> tuple[str, ...]:
    """Split ``a,b`` into names.

    >>> split_names("sex, region")
    ('sex', 'region')
    """
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise InputError(f"{text!r} is not a list of names such as sex,region")
    return names


def resolve_report_delta(alias: str | None, report_delta: str | None) -> Fraction | None:
    """Return the delta of the report: ``--report-delta``, or the ``--delta`` that stands for it.

    >>> resolve_report_delta(None, "1e-6")
    Fraction(1, 1000000)
    """
    deltas = {exact(text, "--report-delta") for text in (alias, report_delta) if text is not None}
    if len(deltas) > 1:
        raise InputError(
            "--delta and --report-delta disagree: beside --rho and --mu they are the same, so"
            " give one"
        )
    if any(not 0 < number < 1 for number in deltas):
        option = "--delta" if report_delta is None else "--report-delta"
        raise InputError(f"{option} must lie strictly between 0 and 1")
    return next(iter(deltas), None)


def open_ledger(path: Path | None, quiet: bool) -> Ledger | None:
    """Open the ledger that an option names. One that is not there is refused: a slip must not open
    a fresh budget.
    """
    return None if path is None else Ledger(path, waiting=None if quiet else notice)


def choose_randomness(seed: int | None) -> Randomness:
    """Return the operating system's randomness, or what a seed repeats."""
    return SystemRandomness() if seed is None else SeededRandomness(seed)


def _schema_file(path: Path) -> Plan:
    document = toml_document(read_text(path, "--schema"))
    if set(document) - {"feature", "structural_zero"}:
        Schema.from_json(document)  # which says what a schema may hold
    features, zeros, nests = read_declarations(document, path.parent)
    return Plan(features=features, structural_zeros=zeros, nests=nests)


def read_text(path: Path, option: str) -> str:
    """Read a small text file, or a pipe, that an option names."""
    try:
        # Read up to the limit and no further: a pipe has no size to look at first.
        with path.open(encoding="utf-8") as file:
            text = file.read(_LONGEST_TEXT + 1)
        if len(text) <= _LONGEST_TEXT:
            return text
        raise InputError(f"the file {path} that {option} names is too long for one")
    # An error of decoding quotes the bytes that it could not read, so it is replaced.
    except (OSError, UnicodeDecodeError):
        raise InputError(f"cannot read the file {path} that {option} names") from None


def read_plan(path: Path, option: str) -> Plan:
    """Read a plan from a TOML file, or from a JSON file of what ``Plan.to_json`` returns.

    Its columns are read as its requests need them, so that every command takes what release takes.
    """
    text = read_text(path, option)
    if path.suffix != ".json":
        with about_file(path):
            return Plan.from_toml(text, path.parent).with_values_read()
    try:
        document = from_json(text)
    except ValueError:
        raise InputError(
            f"the plan {path} is not valid JSON: mend it, or write it as TOML"
        ) from None
    if not isinstance(document, dict):
        raise InputError(
            f"the plan {path} does not have the form that semidp writes: see docs/tutorial.md"
        )
    with about_file(path):
        return Plan.from_json(document, path.parent).with_values_read()


@contextlib.contextmanager
def about_file(path: Path) -> Iterator[None]:
    """Name the file that an error is about, where a command reads several."""
    try:
        yield
    except SemidpError as error:
        raise InputError(f"{path}: {error.message}", needs=error.needs, names=error.names) from None


def assignments(option: str, entries: Sequence[str] | None, example: str = "") -> dict[str, str]:
    """Read what an option says of each feature or column.

    >>> assignments("--null-level", ["sex=unknown"])
    {'sex': 'unknown'}
    """
    assigned: dict[str, str] = {}
    for entry in entries or ():
        name, equals, value = (part.strip() for part in entry.partition("="))
        if not (name and equals and value):
            such = example or _SUCH_AS[option]
            raise InputError(f"{option} takes NAME=…, such as {option} {such}, not {entry!r}")
        # The later of two values would win without a word.
        if name in assigned:
            raise InputError(f"{option} is given twice for {name!r}: keep one")
        assigned[name] = value
    return assigned
