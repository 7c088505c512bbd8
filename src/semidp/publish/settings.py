"""The table of settings: what `semidp release`, plan files and `semidp.release` let one choose.

A row is declared once. The settings of statistics stand in their folders; all others are here.
`Given` holds what was set, and refuses what does not go together.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from semidp.errors import InputError, did_you_mean, write_settings
from semidp.promise.mechanisms.selection import NAMES
from semidp.publish.plan import AdjacencyChoice
from semidp.publish.statistics.registry import statistic_settings
from semidp.publish.statistics.setting import Panel, Setting, Shape, name_needed

DESCRIBING = (
    Setting(
        name="exact",
        help="Publish these counts exactly. Repeat it for each set of features; sex,region is a"
        " joint count.",
        shape=Shape.features,
        metavar="A[,B]",
        panel=Panel.exact,
        key="invariants",
        several=True,
    ),
    Setting(
        name="adjacency",
        help="Which changes of the data are hidden: any records that change together (worst-case,"
        " the default), exchange (one person), definition, or a number of records.",
        shape=Shape.text,
        metavar="NAME|N",
        panel=Panel.budget,
        default=AdjacencyChoice.worst_case,
        type="AdjacencyChoice | int | str",
    ),
    Setting(
        name="schema",
        help="A TOML file that declares features, levels, bins and structural zeros.",
        shape=Shape.file,
        metavar="FILE",
        panel=Panel.columns,
        key="[[feature]]",
        type="Schema | Path | str | None",
    ),
    Setting(
        name="levels",
        help="All values that a feature may take.",
        shape=Shape.lists,
        metavar="FEATURE=A,B",
        panel=Panel.columns,
        key="[[feature]] levels",
        example="sex=f,m",
    ),
    Setting(
        name="bins",
        help="The edges of bins of numbers or dates; 0,18,65, has no upper end.",
        shape=Shape.texts,
        metavar="FEATURE=0,18,65",
        panel=Panel.columns,
        key="[[feature]] bins",
        type="Mapping[str, Sequence[Number]] | None",
        example="age=0,18,65,120",
    ),
    Setting(
        name="nest",
        help="Nested features, coarse to fine, such as state,county,tract.",
        shape=Shape.features,
        metavar="A,B[,C]",
        panel=Panel.columns,
        key="[[feature]] nest",
        type="Sequence[str] | Sequence[Sequence[str]]",
        several=True,
    ),
    Setting(
        name="levels_from_data",
        help="Read undeclared levels from the data. This discloses them, and the report says so.",
        shape=Shape.tick,
        panel=Panel.columns,
    ),
    Setting(
        name="null_level",
        help="The level that stands for a missing value of a feature.",
        shape=Shape.texts,
        metavar="FEATURE=LEVEL",
        key="[[feature]] null_level",
        example="region=unknown",
    ),
    Setting(
        name="count",
        help="The column that holds counts, if a row stands for several records.",
        shape=Shape.text,
        metavar="COLUMN",
        panel=Panel.columns,
    ),
    Setting(
        name="where",
        help="Keep only the records that meet this condition.",
        shape=Shape.text,
        metavar="SQL",
        panel=Panel.columns,
    ),
    Setting(
        name="read_as",
        help="How a column is written: dates as day, month, quarter or year; numbers as 1.234,5 or"
        " 1,234.5. In conditions: integer, decimal or text.",
        shape=Shape.texts,
        metavar="COLUMN=HOW",
        panel=Panel.columns,
        example="admitted=month",
    ),
    Setting(
        name="missing",
        help="Missing values of a private column: refuse them (default), or publish those who"
        " answered, with their number private or exact.",
        shape=Shape.texts,
        metavar="COLUMN=refuse|private|exact",
        panel=Panel.groups,
        key="[[answered]]",
        example="pay=private",
    ),
    Setting(
        name="id",
        help="The column that identifies a person. Each person may have one record, or up to"
        " ⟨most⟩.",
        shape=Shape.text,
        metavar="COLUMN",
        panel=Panel.persons,
        excludes=("units",),
    ),
    Setting(
        name="most",
        help="The most records of one person; all of them are protected together.",
        shape=Shape.whole,
        metavar="N",
        panel=Panel.persons,
    ),
    Setting(
        name="records",
        help="What the records of a person are called, such as stays.",
        shape=Shape.text,
        metavar="WORD",
        needs=("most",),
    ),
    Setting(
        name="units",
        help="A second file, of households. A table of units:A,B counts them.",
        shape=Shape.text,
        metavar="FILE",
        panel=Panel.persons,
        key="[units] source",
        type="Any",
        excludes=("most",),
    ),
    Setting(
        name="link",
        help="The column that names the household, in both files.",
        shape=Shape.text,
        metavar="COLUMN",
        panel=Panel.persons,
        key="[units] link",
        needs=("units",),
    ),
    Setting(
        name="protect",
        help="Whom the guarantee protects: one member, or a whole household (unit).",
        shape=Shape.text,
        metavar="member|unit",
        panel=Panel.persons,
        key="[units] protect",
        needs=("units",),
    ),
    Setting(
        name="most_members",
        help="The most members of one household; this bound is public.",
        shape=Shape.whole,
        metavar="N",
        panel=Panel.persons,
        key="[units] most",
        needs=("units",),
    ),
    Setting(
        name="least",
        help="The fewest members of one household: 0 or 1.",
        shape=Shape.whole,
        metavar="N",
        default=1,
        key="[units] least",
        type="int",
        needs=("units",),
    ),
    Setting(
        name="derived",
        help="Columns of households that depend on their members.",
        shape=Shape.columns,
        metavar="COLUMN",
        key="[units] derived",
        needs=("units",),
    ),
    Setting(
        name="quarters",
        help="Levels of a column that are group quarters, which no table of households counts.",
        shape=Shape.lists,
        metavar="COLUMN=LEVELS",
        key="[units] quarters",
        example="unittype=1",
        needs=("units",),
    ),
    Setting(
        name="top_code",
        help="Publish households of this many members and more as one level: 5 becomes 5+.",
        shape=Shape.texts,
        metavar="size=N",
        type="Mapping[str, int] | None",
        example="size=5",
        needs=("units",),
    ),
    Setting(
        name="aggregate",
        help="A feature of households that is computed from their members.",
        shape=Shape.texts,
        metavar="NAME=SQL",
        key="[[unit_feature]] aggregate",
        example="'kids=count_if(age < 18)'",
        needs=("units",),
    ),
    Setting(
        name="mechanism",
        help=f"How the noise is drawn: auto (default), {', '.join(NAMES)}.",
        shape=Shape.text,
        metavar="NAME",
        default="auto",
        key="[[table]] mechanism",
        type="",
    ),
    Setting(
        name="claim",
        help="exact: use only noise whose guarantee is proved for the integers actually sampled.",
        shape=Shape.text,
        metavar="exact",
    ),
)
"""What a plan says, besides what statistics ask for."""

_BUDGETS = ("epsilon", "rho", "mu")
SPENDING = (
    Setting(
        name="epsilon",
        help="The privacy budget as epsilon, with ⟨delta⟩ or without.",
        shape=Shape.number,
        metavar="NUMBER",
        panel=Panel.budget,
        excludes=("rho", "mu"),
    ),
    Setting(
        name="delta",
        help="The delta of the budget, with ⟨epsilon⟩.",
        shape=Shape.number,
        metavar="NUMBER",
        panel=Panel.budget,
    ),
    Setting(
        name="rho",
        help="The privacy budget as rho (zero-concentrated).",
        shape=Shape.number,
        metavar="NUMBER",
        panel=Panel.budget,
        excludes=("mu",),
    ),
    Setting(
        name="mu",
        help="The privacy budget as mu (Gaussian). Smaller protects better: 1 is moderate.",
        shape=Shape.number,
        metavar="NUMBER",
        panel=Panel.budget,
    ),
    Setting(
        name="target_error",
        help="Instead of a budget: the largest standard error that a table may have. The smallest"
        " mu that achieves it is used.",
        shape=Shape.texts,
        metavar="A,B=NUMBER",
        panel=Panel.budget,
        key="[[table]] target_error",
        type="Mapping[str, Number] | None",
        example="county,age=5",
        excludes=(*_BUDGETS, "share", "objective"),
    ),
    Setting(
        name="share",
        help="The share of the budget for the tables, or for a statistic such as mean-age (default"
        " 1 each).",
        shape=Shape.texts,
        metavar="NAME=NUMBER",
        key="",
        type="Mapping[str, Number] | None",
        example="tables=3",
        divides=True,
    ),
    Setting(
        name="report_delta",
        help="The delta at which the guarantee is restated as epsilon (default 1e-9).",
        shape=Shape.number,
        metavar="NUMBER",
    ),
)
"""The budget, and how it is divided and reported."""

RUNNING = (
    Setting(
        name="ledger",
        help="Charge this ledger before any noise is drawn. It refuses what exceeds its budget;"
        " `semidp ledger` opens one.",
        shape=Shape.file,
        metavar="FILE",
        panel=Panel.budget,
        key="",
        type="Ledger | Path | str | None",
    ),
    Setting(
        name="label",
        help="What the ledger calls this charge.",
        shape=Shape.text,
        metavar="TEXT",
        needs=("ledger",),
    ),
    Setting(
        name="plan",
        help="Take everything from a plan file (TOML or JSON); see docs/plan.md.",
        shape=Shape.file,
        metavar="FILE",
        panel=Panel.publish,
        key="",
        type="",
    ),
    Setting(
        name="set",
        help="Set any key of a plan file, such as title=Health. docs/plan.md lists them.",
        shape=Shape.columns,
        metavar="KEY=VALUE",
        panel=Panel.publish,
        key="",
        type="",
    ),
    Setting(
        name="from_table",
        help="The table of a database, or the sheet of a workbook.",
        shape=Shape.text,
        metavar="TABLE",
        panel=Panel.columns,
        option="--from",
        key="",
        type="",
    ),
    Setting(
        name="units_from",
        help="The table of a database that holds the households.",
        shape=Shape.text,
        metavar="TABLE",
        type="",
    ),
    Setting(
        name="hive_partitions",
        help="Read columns that the files lack from the names of folders such as sex=f.",
        shape=Shape.tick,
        type="",
    ),
    Setting(
        name="allow_empty",
        help="Accept files without any record.",
        shape=Shape.tick,
        type="",
    ),
    Setting(
        name="encoding",
        help="The encoding of CSV files: utf-8 (default), latin-1, windows-1252 or utf-16.",
        shape=Shape.text,
        metavar="NAME",
        type="",
    ),
    Setting(
        name="out",
        help="Output folder; appears only when complete.",
        shape=Shape.file,
        metavar="FOLDER",
        panel=Panel.output,
        key="",
    ),
    Setting(
        name="write",
        help="File format of tables: csv (default), parquet (default above one million cells), or"
        " xlsx for CSV files and a workbook.",
        shape=Shape.text,
        metavar="csv|parquet|xlsx",
        panel=Panel.output,
    ),
    Setting(
        name="dry_run",
        help="Say what would be published and how large the errors would be. Draws and writes"
        " nothing.",
        shape=Shape.tick,
        panel=Panel.output,
        key="",
        type="",
    ),
    Setting(
        name="seed",
        help="Draw the same noise each time. The release is marked as not private.",
        shape=Shape.whole,
        metavar="N",
        panel=Panel.output,
        key="",
    ),
    Setting(
        name="force",
        help="Replace an earlier release in the output folder.",
        shape=Shape.tick,
        panel=Panel.output,
        key="",
    ),
    Setting(
        name="sign",
        help="Sign every file with this secret key of minisign.",
        shape=Shape.file,
        metavar="KEY",
    ),
    Setting(
        name="memory",
        help="The memory that may be used (default: that of the machine or container).",
        shape=Shape.text,
        metavar="8GB",
        type="int | str | None",
    ),
    Setting(
        name="partition",
        help="Process one part at a time, such as each state. Names a depth of a nested feature.",
        shape=Shape.text,
        metavar="DEPTH",
        panel=Panel.large,
        key="",
    ),
    Setting(
        name="jobs",
        help="How many parts to process at the same time, each in its own process.",
        shape=Shape.whole,
        metavar="N",
        panel=Panel.large,
        default=1,
        key="",
        type="int",
        needs=("partition",),
        least=1,
    ),
    Setting(
        name="title",
        help="The heading of the report.",
        shape=Shape.text,
        metavar="TEXT",
    ),
    Setting(
        name="contact",
        help="Whom to ask about the release.",
        shape=Shape.text,
        metavar="TEXT",
    ),
    Setting(
        name="note",
        help="Paragraphs at the top of the report.",
        shape=Shape.columns,
        metavar="TEXT",
    ),
    Setting(
        name="round_to",
        help="Show counts in multiples of this number in the report and the workbook. The files"
        " keep all digits.",
        shape=Shape.whole,
        metavar="N",
        least=1,
    ),
    Setting(
        name="mark_below",
        help="Mark counts below this number in the report and the workbook.",
        shape=Shape.whole,
        metavar="N",
        least=1,
    ),
    Setting(
        name="map",
        help="Outlines of places (GeoJSON or TopoJSON), to draw results by place as maps.",
        shape=Shape.file,
        metavar="FILE",
        type="PlaceMap | Path | str | None",
    ),
    Setting(
        name="map_key",
        help="The property of the outlines that names places (default: best match).",
        shape=Shape.text,
        metavar="PROPERTY",
        needs=("map",),
    ),
)
"""How a plan is carried out, and how its results are shown."""

PRINTING = (
    Setting(
        name="format",
        help="Print text for people, or JSON for programs.",
        shape=Shape.text,
        metavar="text|json",
        panel=Panel.output,
        default="text",
        key="",
        type="",
    ),
    Setting(
        name="quiet",
        help="Print no progress, no warnings, and nothing about the files.",
        shape=Shape.tick,
        panel=Panel.output,
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
    """Return the settings that a plan file may hold besides the plan: how it is carried out."""
    return {row.name: row for row in RUNNING if row.key == row.name}


class Given(Mapping[str, Any]):
    """What was set, by the names of settings; what was not set has its default.

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
        """Return what was set for statistics."""
        return {name: self._set[name] for name in statistic_settings() if name in self._set}

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
            return f"--set {name}={value or '…'}"
        option = f"--{name.replace('_', '-')}" if row is None else row.option
        return option if value is None else f"{option} {value}"

    return write_settings(message, write)


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
    """Return the plan of a plan file, and the settings that say how it is carried out.

    >>> split_plan_file({"count": "people", "title": "Health"}, Path("."))
    ({'count': 'people'}, {'title': 'Health'})
    """
    rows = list_file_settings()
    plan = {key: value for key, value in document.items() if key not in rows}
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
