"""Options of commands, made of the table of settings, and what turns them into values.

A command takes some settings as one parameter: ``given: Annotated[Options, ("mu", "levels")]``.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from semidp.assess.disclosure.table_files import COUNT, read_exact, read_file
from semidp.cli._command import argument, flag, option, plain_defaults
from semidp.cli._output import Format, echo, notice
from semidp.errors import InputError, SemidpError
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.documents import from_json, from_toml
from semidp.promise.exact import exact
from semidp.promise.guarantee import Scope
from semidp.promise.schema.schema import Schema
from semidp.promise.spaces.dataspace import Dataspace
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.plan import Plan
from semidp.publish.plan_settings import describe, open_records, read_budget, read_text
from semidp.publish.settings import (
    PRINTING,
    Given,
    list_settings,
    name_options,
    read_assignment,
    split_plan_file,
)
from semidp.publish.sources.opening import Source
from semidp.publish.statistics.protocol.statistic import Setting, Shape, assign_values, split_names
from semidp.publish.survey import any_totals, public_scope, survey

Text = str | None
Texts = list[str] | None
"""The type of an option that may be repeated."""

EXACT = ("exact", "invariant")
ADJACENCY = ("adjacency", "a")
"""A setting with its second name, which the help does not show."""
BUDGET = ("epsilon", "delta", "rho", "mu")
FEATURES = ("schema", "levels", "bins", "nest", "levels_from_data")
RECORDS = ("count", "from_table", "where", "read_as", "id", "most")
BEHIND = (
    *("null_level", "records", "report_delta"),
    *("hive_partitions", "allow_empty", "encoding", "header_rows", "na", "units_from"),
)
"""What ``--set`` reaches in any command that reads data."""
FILES = (
    *("from_table", "units_from", "hive_partitions", "allow_empty", "encoding"),
    *("header_rows", "na"),
)
"""How files are opened, besides what a plan says."""
_ALIASES = {"invariant": "exact", "a": "adjacency"}

DATA = argument(
    "A CSV, Parquet or Excel file, a glob, a folder of Parquet files, or a database address with"
    " --from.",
    "DATA",
)
OPTIONAL_DATA = argument(
    "The data, as for release. Without data give --schema or --levels, and --totals if they are"
    " known.",
    "[DATA]",
    None,
    show_default=False,
)
RELEASE = argument("A folder that `semidp release` wrote.", "RELEASE")
TOTALS = option(
    "A CSV file of counts published exactly: a column for each feature, and count; repeat it.",
    "FILE",
)


def build_option(row: Setting, hidden: bool = False) -> tuple[Any, Any]:
    """Return the option of a setting, with its type."""
    spelled, help = row.option, name_options(row.help)
    settings: dict[str, Any] = {"rich_help_panel": row.panel and str(row.panel), "hidden": hidden}
    if row.shape is Shape.tick:
        return flag(spelled, help, **settings), bool
    if row.shape is Shape.whole:
        return option(help, row.metavar, spelled, min=row.least, **settings), int | None
    if row.shape is Shape.file:
        return option(help, row.metavar, spelled, **settings), Path | None
    return option(help, row.metavar, spelled, **settings), Texts if row.is_repeated else Text


FORCE, MAP, MAP_KEY = (
    build_option(list_settings()[name])[0] for name in ("force", "map", "map_key")
)
"""Options that commands take which read no data."""


class Options:
    """The settings that a command was given, as they were written."""

    def __init__(self, **written: Any) -> None:
        self._written = {
            name: value
            for name, value in written.items()
            if value is not None and value is not False and value != []
        }
        self._names = {_ALIASES.get(name, name) for name in written}
        self.assigned: set[str] = set()

    @classmethod
    def declare_options(cls) -> dict[str, tuple[Any, Any]]:
        """Return the options of all settings with their types, and second names that the help does
        not show.
        """
        rows = list_settings()
        options = {name: build_option(row) for name, row in rows.items()}
        for alias, name in _ALIASES.items():
            made, kind = build_option(rows[name], hidden=True)
            made.param_decls = (f"--{alias}",)
            options[alias] = made, kind
        return options

    @classmethod
    def list_shown(cls) -> list[str]:
        """Return the options of `semidp release`: those that its help lists, and second names."""
        shown = [row.name for row in list_settings().values() if row.panel and row not in PRINTING]
        return [*shown, *_ALIASES]

    @cached_property
    def given(self) -> Given:
        """The settings as values; refuses what does not go together. What ``--set`` gave is
        `assigned`.
        """
        rows = list_settings()
        values: dict[str, Any] = {}
        for name, written in self._merge_aliases().items():
            values[name] = _read_option(rows[name], written)
        texts: dict[str, list[str]] = {}
        allowed = {*self._names, *BEHIND, "read_as"} - {"set", "plan", "format", "quiet"}
        if "out" in self._names:
            allowed |= {name for name, row in rows.items() if row.panel is None}
        for entry in self._written.get("set", ()):
            row, text = read_assignment(entry, allowed)
            texts.setdefault(row.name, []).append(text)
        for name, several in texts.items():
            if name in values:
                raise InputError(f"⟨{name}⟩ is given twice: keep one")
            values[name] = rows[name].read(several)
            self.assigned.add(name)
        return Given(_move_delta(values))

    def with_held(self, held: Mapping[str, Any]) -> "Options":
        """Return the same options, with what a plan file says of how data are read."""
        reading = {name: value for name, value in held.items() if name in BEHIND}
        copy = Options(**self._written)
        copy.given = Given({**reading, **self.given})
        return copy

    def _merge_aliases(self) -> dict[str, Any]:
        written = {name: value for name, value in self._written.items() if name != "set"}
        margins = [*written.get("exact", ()), *written.pop("invariant", ())]
        if margins:
            written["exact"] = margins
        number = written.pop("a", None)
        # Which of two numbers was meant is not guessed: the smaller one protects less.
        if number is not None and written.setdefault("adjacency", number) != number:
            raise InputError("--adjacency and --a disagree: give one of them")
        return written

    @property
    def named(self) -> set[str]:
        """The settings that were given, also those with their default as value."""
        return {*self.assigned, *self._merge_aliases()}

    @property
    def spends(self) -> bool:
        """Whether some of a budget was given."""
        return self.given.has("epsilon", "rho", "mu")

    @property
    def report_delta(self) -> Fraction | None:
        """The delta at which to report: as given, or that of the budget."""
        accepted = self.given
        delta = accepted["delta"] if accepted["report_delta"] is None else accepted["report_delta"]
        return None if delta is None else read_delta(delta)

    def budget(self) -> Budget:
        """Return the budget, which must be given."""
        budget = read_budget(self.given)
        if budget is None:
            raise InputError("give the privacy budget: one of --epsilon, --rho and --mu")
        return budget

    def describe(self) -> Plan:
        """Return a plan that asks for nothing yet."""
        return describe(self.given)

    def source(self, plan: Plan, data: Any) -> Source:
        """Open data as a plan reads them."""
        return open_records(self.given, plan, data)


def _read_option(row: Setting, written: Any) -> Any:
    """Read what was typed after an option; Typer has read numbers, paths and flags."""
    if row.shape in (Shape.tick, Shape.whole, Shape.file):
        return written
    return row.read(written if row.is_repeated else [written])


def _move_delta(values: dict[str, Any]) -> dict[str, Any]:
    """Take a delta without epsilon for the one at which epsilon is reported."""
    if "delta" not in values or "epsilon" in values:
        return values
    delta = values.pop("delta")
    if values.setdefault("report_delta", delta) != delta:
        raise InputError(
            "--delta and report_delta disagree: with --rho and --mu they are the same, so give one"
        )
    return values


def read_delta(text: str, option: str = "⟨report_delta⟩") -> Fraction:
    """Read a delta of a report.

    >>> read_delta("1e-6")
    Fraction(1, 1000000)
    """
    delta = exact(text, option)
    if not 0 < delta < 1:
        raise InputError(f"{option} must lie strictly between 0 and 1")
    return delta


@frozen(field_transformer=plain_defaults)
class Printing:
    """How a command prints, and whether it says more than its result."""

    format: Format = option(
        "Print text for people, or JSON for programs.",
        default=Format.text,
        rich_help_panel="Output",
    )
    quiet: bool = flag(
        "--quiet",
        "Print no progress, no warnings, and nothing about the files.",
        "-q",
        rich_help_panel="Output",
    )

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


# --- what options of single commands take ---------------------------------------------------------


def parse_lists(option: str, entries: Texts, example: str = "sex=f") -> dict[str, tuple[str, ...]]:
    """Read what an option lists for each feature or column.

    >>> parse_lists("--of", ["sex=f", "region=n,s"])
    {'sex': ('f',), 'region': ('n', 's')}
    """
    assigned = assign_values(option, entries or (), f"{option} {example}")
    return {name: split_names(text) for name, text in assigned.items()}


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


def note_command(data: str, given: Given) -> dict[str, Any]:
    """Return what `semidp resume` needs to go on without being told again.

    An address that may hold a password is not noted.
    """
    facts: dict[str, Any] = {name: given[name] for name in (*FILES, "seed", "jobs")}
    facts["data"] = _locate(data)
    facts["units"] = None if given["units"] is None else _locate(given["units"])
    # Whoever goes on carries out what was approved, too.
    approved = () if given["approved"] is None else ("plan", "approved")
    for name in ("ledger", "sign", *approved):
        facts[name] = None if given[name] is None else str(Path(given[name]).absolute())
    return {name: value for name, value in facts.items() if value is not None}


def _locate(data: str) -> str | None:
    """Return where data are, from any folder; None for an address that may hold a password."""
    if "://" not in data:
        return str(Path(data).absolute())
    return None if "@" in data or "?" in data else data


def open_ledger(path: Path | None, quiet: bool) -> Ledger | None:
    """Open the ledger that an option names. One that is not there is refused: a slip must not open
    a fresh budget.
    """
    return None if path is None else Ledger(path, waiting=None if quiet else notice)


# --- published totals, for commands that need no data ---------------------------------------------


def read_totals(paths: Sequence[Path], declared: Plan) -> Dataspace:
    """Return the dataspace that the files of public totals describe; undeclared levels are those
    that they list.
    """
    files = [read_file(path, COUNT) for path in paths]
    return read_exact(files, declared.features, declared.structural_zeros)


def choose_schema(space: Dataspace | None, declared: Plan) -> Schema | None:
    """Return the features of public totals, or else those that are declared with their levels, if
    there are any.
    """
    if space is not None:
        return space.schema
    return Schema(declared.features, declared.structural_zeros) if declared.features else None


def build_scope(
    plan: Plan, data: str | None, options: Options, totals: Sequence[Path]
) -> tuple[Scope, bool]:
    """Return the scope of a plan, and whether all its totals are known.

    It is read from the data; without them it follows from public totals and declared levels.
    """
    if data is not None:
        with options.source(plan, data) as source:
            return survey(plan, source)[0], True
    space = read_totals(totals, plan) if totals else None
    schema = choose_schema(space, plan)
    if space is not None:
        # What the files publish is exact, too, though no option names it: a(t) must know it.
        more = [margin for margin in space.margins if not margin.is_within_any(plan.invariants)]
        plan = evolve(plan, invariants=(*plan.invariants, *more))
    for name in plan.names:
        if schema is None or name not in {
            part for feature in schema.features for part in feature.names
        }:
            raise InputError(
                f"without data the levels of {name!r} must be declared: give --schema, --levels or"
                " --totals with them"
            )
    assert schema is not None, "a plan names at least one feature"
    if space is not None and all(space.publishes(margin) for margin in plan.invariants):
        return public_scope(plan, space.restrict_features(plan.names)), True
    return any_totals(plan, schema.restrict(plan.names)), False


# --- plan files -----------------------------------------------------------------------------------


def read_plan(path: Path, option: str) -> Plan:
    """Read the plan of a plan file, and not how it is carried out; see `read_plan_file`."""
    return read_plan_file(path, option, {})[0]


def read_plan_file(
    path: Path, option: str, changes: Mapping[str, Any]
) -> tuple[Plan, dict[str, Any]]:
    """Read a plan from a TOML file, or from a JSON file of what ``Plan.to_json`` returns; and the
    settings that say how it is carried out. `changes` replace keys of the file.

    Its columns are read as its requests need them, so that every command takes what release takes.
    """
    text = read_text(path, option)
    is_json = path.suffix == ".json"
    with about_file(path):
        try:
            document = from_json(text) if is_json else from_toml(text)
        except ValueError as error:
            if is_json:
                raise InputError("the plan is not valid JSON: mend it, or write TOML") from None
            raise InputError(f"the plan is not valid TOML: {str(error)[:200]}") from None
        if not isinstance(document, dict):
            raise InputError("the plan does not have the form that semidp writes: see docs/plan.md")
        written, held = split_plan_file({**document, **changes}, path.parent)
        return Plan.from_json(written, path.parent).with_values_read(), held


@contextlib.contextmanager
def about_file(path: Path) -> Iterator[None]:
    """Name the file that an error is about, where a command reads several."""
    try:
        yield
    except SemidpError as error:
        raise InputError(f"{path}: {error.message}", needs=error.needs, names=error.names) from None
