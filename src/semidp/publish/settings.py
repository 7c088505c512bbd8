"""The table of settings of `semidp release`, plan files and `semidp.release`.

Each row is declared once. The settings of statistics are in their folders; all others are here.
`Given` holds the chosen values, and refuses incompatible ones.
"""

import shlex
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from semidp.errors import InputError, did_you_mean, write_settings
from semidp.promise.exact import format_value
from semidp.publish.plan import AdjacencyChoice
from semidp.publish.selection import NAMES
from semidp.publish.statistics.protocol.statistic import (
    Panel,
    Setting,
    Shape,
    name_needed,
    statistic_settings,
)

DESCRIBING = (
    Setting(
        "exact",
        "These counts are published exactly. Repeat it for each set of features; sex,region is"
        " a joint count.",
        Shape.features,
        "A[,B]",
        Panel.exact,
        key="invariants",
        several=True,
    ),
    Setting(
        "adjacency",
        "Which changes of the data are hidden: any records that change together (worst-case,"
        " the default), exchange (one person), definition, or a number of records.",
        Shape.text,
        "NAME|N",
        Panel.budget,
        default=AdjacencyChoice.worst_case,
        type="AdjacencyChoice | int | str",
    ),
    Setting(
        "period",
        "The period that the data are about, such as 2026Q3. A ledger of a series charges it.",
        Shape.text,
        "PERIOD",
        Panel.budget,
    ),
    Setting(
        "schema",
        "A TOML file that declares features, levels, bins and structural zeros.",
        Shape.file,
        "FILE",
        Panel.columns,
        key="[[feature]]",
        type="Schema | Path | str | None",
    ),
    Setting(
        "levels",
        "All values that a feature may take.",
        Shape.lists,
        "FEATURE=A,B",
        Panel.columns,
        key="[[feature]] levels",
        example="sex=f,m",
    ),
    Setting(
        "bins",
        "The edges of bins of numbers or dates; 0,18,65, has no upper end.",
        Shape.texts,
        "FEATURE=0,18,65",
        Panel.columns,
        key="[[feature]] bins",
        type="Mapping[str, Sequence[Number]] | None",
        example="age=0,18,65,120",
    ),
    Setting(
        "nest",
        "Nested features, coarse to fine, such as state,county,tract.",
        Shape.features,
        "A,B[,C]",
        Panel.columns,
        key="[[feature]] nest",
        type="Sequence[str] | Sequence[Sequence[str]]",
        several=True,
    ),
    Setting(
        "levels_from_data",
        "Read undeclared levels from the data. This discloses them, and the report says so.",
        Shape.tick,
        None,
        Panel.columns,
    ),
    Setting(
        "null_level",
        "The level that stands for a missing value of a feature.",
        Shape.texts,
        "FEATURE=LEVEL",
        key="[[feature]] null_level",
        example="region=unknown",
    ),
    Setting(
        "count",
        "The column that holds counts, if a row stands for several records.",
        Shape.text,
        "COLUMN",
        Panel.columns,
    ),
    Setting(
        "where", "Keep only the records that meet this condition.", Shape.text, "SQL", Panel.columns
    ),
    Setting(
        "read_as",
        "How a column is written: dates as day, month, quarter or year; numbers as 1.234,5 or"
        " 1,234.5. In conditions: integer, decimal or text.",
        Shape.texts,
        "COLUMN=HOW",
        Panel.columns,
        example="admitted=month",
    ),
    Setting(
        "missing",
        "Missing values of a private column: refuse them (default), or publish those who"
        " answered, with their number private or exact.",
        Shape.texts,
        "COLUMN=refuse|private|exact",
        Panel.groups,
        key="[[answered]]",
        example="pay=private",
    ),
    Setting(
        "id",
        "The column that identifies a person. Each person may have one record, or up to ⟨most⟩.",
        Shape.text,
        "COLUMN",
        Panel.persons,
        excludes=("units",),
    ),
    Setting(
        "most",
        "The most records of one person; all of them are protected together.",
        Shape.whole,
        "N",
        Panel.persons,
    ),
    Setting(
        "records",
        "What the records of a person are called, such as stays.",
        Shape.text,
        "WORD",
        needs=("most",),
    ),
    Setting(
        "units",
        "A second file, of households. A table of units:A,B counts them.",
        Shape.text,
        "FILE",
        Panel.persons,
        key="[units] source",
        type="Any",
        excludes=("most",),
    ),
    Setting(
        "link",
        "The column that names the household, in both files.",
        Shape.text,
        "COLUMN",
        Panel.persons,
        key="[units] link",
        needs=("units",),
    ),
    Setting(
        "protect",
        "Whom the guarantee protects: one member, or a whole household (unit).",
        Shape.text,
        "member|unit",
        Panel.persons,
        key="[units] protect",
        needs=("units",),
    ),
    Setting(
        "most_members",
        "The most members of one household; this bound is public.",
        Shape.whole,
        "N",
        Panel.persons,
        key="[units] most",
        needs=("units",),
    ),
    Setting(
        "least",
        "The fewest members of one household: 0 or 1.",
        Shape.whole,
        "N",
        default=1,
        key="[units] least",
        type="int",
        needs=("units",),
    ),
    Setting(
        "derived",
        "Columns of households that depend on their members.",
        Shape.columns,
        "COLUMN",
        key="[units] derived",
        needs=("units",),
    ),
    Setting(
        "quarters",
        "Levels of a column that are group quarters, which no table of households counts.",
        Shape.lists,
        "COLUMN=LEVELS",
        key="[units] quarters",
        example="unittype=1",
        needs=("units",),
    ),
    Setting(
        "top_code",
        "Publish households of this many members and more as one level: 5 becomes 5+.",
        Shape.texts,
        "size=N",
        type="Mapping[str, int] | None",
        example="size=5",
        needs=("units",),
    ),
    Setting(
        "aggregate",
        "A feature of households that is computed from their members.",
        Shape.texts,
        "NAME=SQL",
        key="[[unit_feature]] aggregate",
        example="'kids=count_if(age < 18)'",
        needs=("units",),
    ),
    Setting(
        "mechanism",
        f"How the noise is drawn: auto (default), {', '.join(NAMES)}.",
        Shape.text,
        "NAME",
        default="auto",
        key="[[table]] mechanism",
        type="",
    ),
    Setting(
        "claim",
        "exact: use only noise whose guarantee is proved for the integers actually sampled.",
        Shape.text,
        "exact",
    ),
)
"""The settings of a plan, besides those of statistics."""

_BUDGETS = ("epsilon", "rho", "mu")
SPENDING = (
    Setting(
        "epsilon",
        "The privacy budget as epsilon, with ⟨delta⟩ or without.",
        Shape.number,
        "NUMBER",
        Panel.budget,
        excludes=("rho", "mu"),
    ),
    Setting(
        "delta", "The delta of the budget, with ⟨epsilon⟩.", Shape.number, "NUMBER", Panel.budget
    ),
    Setting(
        "rho",
        "The privacy budget as rho (zero-concentrated).",
        Shape.number,
        "NUMBER",
        Panel.budget,
        excludes=("mu",),
    ),
    Setting(
        "mu",
        "The privacy budget as mu (Gaussian). Smaller protects better: 1 is moderate.",
        Shape.number,
        "NUMBER",
        Panel.budget,
    ),
    Setting(
        "target_error",
        "Instead of a budget: the largest standard error that a table may have. The smallest"
        " mu that achieves it is used.",
        Shape.texts,
        "A,B=NUMBER",
        Panel.budget,
        key="[[table]] target_error",
        type="Mapping[str, Number] | None",
        example="county,age=5",
        excludes=(*_BUDGETS, "share", "objective"),
    ),
    Setting(
        "share",
        "The share of the budget for the tables, or for a statistic such as mean-age (default"
        " 1 each).",
        Shape.texts,
        "NAME=NUMBER",
        key="",
        type="Mapping[str, Number] | None",
        example="tables=3",
    ),
    Setting(
        "report_delta",
        "The delta at which the guarantee is restated as epsilon.",
        Shape.number,
        "NUMBER",
    ),
)
"""The budget, and how it is divided and reported."""

RUNNING = (
    Setting(
        "ledger",
        "Charge this ledger before any noise is drawn. It refuses what exceeds its budget;"
        " `semidp ledger` opens one.",
        Shape.file,
        "FILE",
        Panel.budget,
        key="",
        type="Ledger | Path | str | None",
    ),
    Setting("label", "What the ledger calls this charge.", Shape.text, "TEXT", needs=("ledger",)),
    Setting(
        "plan",
        "Take everything from a plan file (TOML or JSON); see docs/plan.md.",
        Shape.file,
        "FILE",
        Panel.publish,
        key="",
        type="",
    ),
    Setting(
        "approved",
        "Carry out the plan file only as the owner of this public key has approved it; `semidp"
        " plan sign` approves one.",
        Shape.file,
        "KEY.pub",
        Panel.publish,
        key="",
        type="",
        needs=("plan",),
    ),
    Setting(
        "set",
        "Set any key of a plan file, such as encoding=latin-1. docs/plan.md lists them.",
        Shape.columns,
        "KEY=VALUE",
        Panel.publish,
        key="",
        type="",
    ),
    Setting(
        "from_table",
        "The table of a database, or the sheet of a workbook.",
        Shape.text,
        "TABLE",
        Panel.columns,
        option="--from",
        key="",
        type="",
    ),
    Setting(
        "units_from",
        "The table of a database that holds the households.",
        Shape.text,
        "TABLE",
        type="",
    ),
    Setting(
        "hive_partitions",
        "Read columns that the files lack from the names of folders such as sex=f.",
        Shape.tick,
        type="",
    ),
    Setting("allow_empty", "Accept files without any record.", Shape.tick, type=""),
    Setting(
        "encoding",
        "The encoding of CSV files: utf-8 (default), latin-1, windows-1252 or utf-16.",
        Shape.text,
        "NAME",
        type="",
    ),
    Setting(
        "header_rows",
        "How many rows of a sheet name its columns (default 1). Names below a merged heading start"
        " with it.",
        Shape.whole,
        "N",
        least=1,
    ),
    Setting(
        "na",
        "Codes that stand for a missing value, such as NA,-9.",
        Shape.columns,
        "CODE[,CODE]",
        type="str | Sequence[str]",
    ),
    Setting(
        "out",
        "Output folder; appears only when complete.",
        Shape.file,
        "FOLDER",
        Panel.output,
        key="",
    ),
    Setting(
        "write",
        "File format of tables: csv (default), parquet (default above one million cells), xlsx"
        " for CSV files and a workbook, or sdmx for CSV and SDMX files.",
        Shape.text,
        "csv|parquet|xlsx|sdmx",
        Panel.output,
    ),
    Setting(
        "agency",
        "The agency that maintains the structures of SDMX files (default: SEMIDP).",
        Shape.text,
        "ID",
        needs=("write",),
    ),
    Setting(
        "dry_run",
        "Say what would be published and how large the errors would be. Draws and writes nothing.",
        Shape.tick,
        None,
        Panel.output,
        key="",
        type="bool",
    ),
    Setting(
        "seed",
        "Draw the same noise each time. The release is marked as not private.",
        Shape.whole,
        "N",
        Panel.output,
        key="",
    ),
    Setting(
        "force",
        "Replace what an earlier run wrote, and nothing else.",
        Shape.tick,
        None,
        Panel.output,
        key="",
    ),
    Setting("sign", "Sign every file with this secret key of minisign.", Shape.file, "KEY"),
    Setting(
        "memory",
        "The memory that may be used (default: that of the machine or container).",
        Shape.text,
        "8GB",
        type="int | str | None",
    ),
    Setting(
        "partition",
        "Process one part at a time, such as each state. Names a depth of a nested feature.",
        Shape.text,
        "DEPTH",
        Panel.large,
        key="",
    ),
    Setting(
        "jobs",
        "How many parts to process at the same time, each in its own process.",
        Shape.whole,
        "N",
        Panel.large,
        default=1,
        key="",
        type="int",
        needs=("partition",),
        least=1,
    ),
    Setting("title", "The heading of the report.", Shape.text, "TEXT"),
    Setting("contact", "Whom to ask about the release.", Shape.text, "TEXT"),
    Setting("note", "Paragraphs at the top of the report.", Shape.columns, "TEXT"),
    Setting(
        "round_to",
        "Show counts in multiples of this number in the report and the workbook. The files"
        " keep all digits.",
        Shape.whole,
        "N",
        least=1,
    ),
    Setting(
        "mark_below",
        "Mark counts below this number in the report and the workbook.",
        Shape.whole,
        "N",
        least=1,
    ),
    Setting(
        "map",
        "Outlines of places (GeoJSON or TopoJSON), to draw results by place as maps.",
        Shape.file,
        "FILE",
        type="PlaceMap | Path | str | None",
    ),
    Setting(
        "map_key",
        "The property of the outlines that names places (default: best match).",
        Shape.text,
        "PROPERTY",
        needs=("map",),
    ),
)
"""How to run a plan, and how to show its results."""

PRINTING = (
    Setting(
        "format",
        "Print text for people, or JSON for programs.",
        Shape.text,
        "text|json",
        Panel.output,
        default="text",
        key="",
        type="",
    ),
    Setting(
        "quiet",
        "Print no progress, no warnings, and nothing about the files.",
        Shape.tick,
        None,
        Panel.output,
        key="",
        type="",
    ),
)


def list_settings() -> dict[str, Setting]:
    """Return every setting by its name, panel by panel, and those without one last.

    >>> [setting.name for setting in list_settings().values()][:2]
    ['table', 'all_pairs']
    """
    rows = [*statistic_settings().values(), *SPENDING, *DESCRIBING, *RUNNING, *PRINTING]
    panels: list[Panel | None] = [*Panel, None]
    rows.sort(key=lambda row: panels.index(row.panel))
    return {row.name: row for row in rows}


def list_file_settings() -> dict[str, Setting]:
    """Return the settings that a plan file may hold besides the plan: how to run it."""
    return {row.name: row for row in RUNNING if row.key == row.name}


class Given(Mapping[str, Any]):
    """The chosen values, by the names of settings; others have their defaults.

    >>> given = Given({"mu": 1, "levels": None})
    >>> given["mu"], given["jobs"], given.has("levels")
    (1, 1, False)
    >>> Given({"mu": 1, "rho": 1})
    Traceback (most recent call last):
    semidp.errors.InputError: rho= and mu= cannot be given together: keep one of them
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._rows = list_settings()
        self._set = {
            name: value
            for name, value in values.items()
            if not _is_default(value, self._rows[name].default)
        }
        self._refuse_shapes()
        self._refuse_combinations()

    def __getitem__(self, name: str) -> Any:
        return self._set.get(name, self._rows[name].default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._set)

    def __len__(self) -> int:
        return len(self._set)

    def has(self, *names: str) -> bool:
        """Whether one of some settings was set."""
        return any(name in self._set for name in names)

    @property
    def has_units(self) -> bool:
        """Whether a second source is given; two tables of one database have the same address."""
        return self.has("units", "units_from")

    def choices(self) -> dict[str, Any]:
        """Return the chosen values of the settings of statistics."""
        return {name: self._set[name] for name in statistic_settings() if name in self._set}

    def _refuse_shapes(self) -> None:
        by_column = (Shape.lists, Shape.texts)
        for name, value in self._set.items():
            if self._rows[name].shape in by_column and not isinstance(value, Mapping):
                raise InputError(
                    f"⟨{name}⟩ is a dictionary from names to what is meant for each, not"
                    f" {format_value(value)}"
                )

    def _refuse_combinations(self) -> None:
        for name in self._set:
            row = self._rows[name]
            for other in row.excludes:
                if other in self._set:
                    raise InputError(_contradiction(name, other))
            # Settings of statistics are refused by what reads them: bounds may be of one column.
            met = self.has(*row.needs) or ("units" in row.needs and self.has_units)
            if row.needs and name not in statistic_settings() and not met:
                raise InputError(name_needed(row))


def _contradiction(name: str, other: str) -> str:
    if (name, other) == ("units", "most"):
        return "with ⟨units⟩, the bound on the members of a household is ⟨most_members⟩, not ⟨most⟩"
    return f"⟨{name}⟩ and ⟨{other}⟩ cannot be given together: keep one of them"


def _is_default(value: Any, default: Any) -> bool:
    # A data frame compares cell by cell: only plain values are compared at all.
    plain = isinstance(value, (bool, int, str, tuple, list, dict))
    return value is None or (plain and value == default) or (plain and value in ((), [], {}))


def name_options(message: str) -> str:
    """Return a message with its settings as options of a command.

    >>> name_options("give a larger ⟨most⟩, or ⟨read_as age=text⟩, or ⟨grid age=10⟩")
    'give a larger --most, or --read-as age=text, or --set grid=age=10'
    """
    rows = list_settings()

    def write(name: str, value: str | None) -> str:
        row = rows.get(name)
        if row is not None and row.panel is None:
            return f"--set {_quote_word(f'{name}={value}') if value else f'{name}=…'}"
        option = f"--{name.replace('_', '-')}" if row is None else row.option
        return option if value is None else f"{option} {_quote_word(value)}"

    return write_settings(message, write)


def _quote_word(text: str) -> str:
    r"""Quote a word for a shell; text in quotes of SQL is read more easily in double ones.

    >>> print(_quote_word("region <> 'Total'"))
    "region <> 'Total'"
    >>> print(_quote_word("\"the region\" <> 'Total'"))
    "\"the region\" <> 'Total'"
    """
    if "'" not in text or set(text) & set("$`\\!"):
        return shlex.quote(text)
    escaped = text.replace('"', '\\"')
    return f'"{escaped}"'


def read_assignment(entry: str, allowed: Collection[str]) -> tuple[Setting, str]:
    """Read ``KEY=VALUE``; the key is the name of a setting, with hyphens or without.

    >>> setting, text = read_assignment("mark-below=10", ["mark_below"])
    >>> setting.name, text
    ('mark_below', '10')
    """
    name, equals, text = entry.partition("=")
    key = name.strip().replace("-", "_")
    if not equals:
        raise InputError(f"⟨set⟩ takes KEY=VALUE, such as title=Health, not {entry[:80]!r}")
    if key not in allowed:
        meant = did_you_mean(key, allowed)
        raise InputError(f"there is no setting {key[:40]!r} here{meant}: see docs/plan.md")
    return list_settings()[key], text.strip()


def split_plan_file(
    document: Mapping[str, Any], folder: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the plan of a plan file, and the settings that say how to run it.

    >>> split_plan_file({"count": "people", "title": "Health"}, Path("."))
    ({'count': 'people'}, {'title': 'Health'})
    >>> split_plan_file({"exact": ["sex"]}, Path("."))
    Traceback (most recent call last):
    semidp.errors.InputError: a plan has no key 'exact': write invariants (docs/plan.md)
    """
    rows = list_file_settings()
    plan = {key: value for key, value in document.items() if key not in rows}
    for name, row in list_settings().items():
        in_plan = str(row.key)
        if name in plan and in_plan.partition(" ")[0].strip("[]") not in ("", name):
            raise InputError(f"a plan has no key {name!r}: write {in_plan} (docs/plan.md)")
    held = {
        key: _check_held(rows[key], value, folder) for key, value in document.items() if key in rows
    }
    return plan, held


def _check_held(row: Setting, value: Any, folder: Path) -> Any:
    """Return what a plan file holds for a setting; refuse another type."""
    kinds: dict[Shape, type | tuple[type, ...]] = {
        Shape.tick: bool,
        Shape.whole: int,
        Shape.columns: (list, str),
    }
    fits = isinstance(value, kinds.get(row.shape, str))
    if not fits or (row.shape is Shape.whole and isinstance(value, bool)):
        raise InputError(f"{row.name} = {str(value)[:40]!r} in a plan file: {row.help}")
    if row.shape is Shape.columns:
        return (value,) if isinstance(value, str) else tuple(map(str, value))
    if row.shape is Shape.file:
        return folder / value
    return value
