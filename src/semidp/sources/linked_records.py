"""Two linked sources: members with the features of their units, and units with what follows from their members.

Both are joined by DuckDB in this process, from the columns that are in use. What contradicts the link (a unit twice, a
member of no unit, more members than declared) is one sentence, which names nobody and no number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from semidp.core.tables.counts import no_column
from semidp.core.tables.features import SIZE, value_text
from semidp.errors import DataError, InputError
from semidp.sources.aggregates import aggregated_columns, typed_aggregates
from semidp.sources.duck import DuckRecords, quoted_name
from semidp.sources.opening import Source, open_source
from semidp.sources.reader import Reader

_QUARTERS = '"are group quarters"'
"""Whether a unit is counted in no table, in the joined tables."""
_MOST_KINDS = 10_000  # distinct values of the column of quarters
_LINK = '"the link as text"'
"""The link as text, in the joined tables: files hold text where data frames hold numbers."""


@dataclass(frozen=True)
class LinkedReader:
    """Readers of the confidential counts of members and of units."""

    members: Reader
    units: Reader


@dataclass(frozen=True, eq=False)
class LinkedSource:
    """Open sources of members and units, joined: each member has its unit's columns, each unit its size.

    Parameters
    ----------
    members, units
        The joined sources.
    inherited
        The columns that members have from their units.
    """

    members: Source
    units: Source
    inherited: tuple[str, ...]

    def close(self) -> None:
        """Close both."""
        self.members.close()
        self.units.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@dataclass(frozen=True)
class LinkedData:
    """What is opened as two linked sources: anything that `open_source` takes, for each kind.

    Parameters
    ----------
    members, units
        The records.
    member_table, unit_table
        The tables to read at database addresses.
    """

    members: Any
    units: Any
    member_table: str | None = None
    unit_table: str | None = None


@dataclass(frozen=True)
class Joining:
    """How members and units are joined, and what of units follows from their members.

    Parameters
    ----------
    column
        The column that links them, of the same name in both.
    least, most
        The bounds on the members of a unit.
    derived
        Columns of units that depend on their members, which members do not have.
    aggregates
        Features of units that are computed from their members: the SQL of each, by name.
    quarters
        A column of units and its values that are no counted units, but group quarters without a bound.
    """

    column: str
    least: int
    most: int
    derived: Sequence[str] = ()
    aggregates: Mapping[str, str] = field(default_factory=dict)
    quarters: tuple[str, Sequence[str]] | None = None


def open_linked(data: LinkedData, joining: Joining, names: Sequence[str]) -> LinkedSource:
    """Open and join two linked sources; refuse records that contradict the link.

    Parameters
    ----------
    data
        Members and units.
    joining
        How they hang together.
    names
        The columns in use, of either kind.

    Examples
    --------
    >>> persons = {"home": ["1", "1", "2"], "sex": ["f", "m", "f"]}
    >>> homes = {"home": ["1", "2"], "zone": ["a", "b"]}
    >>> women = {"women": "count(*) FILTER (WHERE sex = 'f')"}
    >>> joining = Joining("home", 1, 4, aggregates=women)
    >>> with open_linked(LinkedData(persons, homes), joining, ["zone", "sex"]) as both:
    ...     both.members.levels("zone"), both.units.levels("size"), both.inherited, both.units.levels("women")
    (('a', 'b'), ('1', '2'), ('zone',), ('1',))
    """
    column, aggregates = joining.column, joining.aggregates
    with (
        open_source(data.members, table=data.member_table) as members,
        open_source(data.units, table=data.unit_table) as units,
    ):
        for source, kind in ((members, "members"), (units, "units")):
            if column not in source.columns():
                raise DataError(f"{kind}: {no_column(column, source.columns())}")
        for name in (SIZE, *aggregates):
            if name in units.columns() and (name in names or name in aggregates):
                raise InputError(f"the units have a column {name!r} of their own: rename it, it is computed here")
        of_units = [name for name in names if name in units.columns()]
        of_members = [name for name in names if name in members.columns() and name not in aggregates]
        if joining.quarters is not None:
            _check_quarters(joining.quarters[0], units, members)
        aggregated = aggregated_columns(aggregates, [name for name in members.columns() if name != column])
        frames = (members.frame([column, *of_members, *aggregated]), units.frame([column, *of_units]))
    joined = _joined(frames, joining, of_members, of_units)
    inherited = [name for name in of_units if name not in joining.derived]
    return LinkedSource(Source(joined[0]), Source(joined[1]), tuple(inherited))


def _joined(
    frames: tuple[Any, Any], joining: Joining, of_members: Sequence[str], of_units: Sequence[str]
) -> tuple[DuckRecords, DuckRecords]:
    """Join members and units, once for each kind."""
    key = quoted_name(joining.column)
    inherited = [name for name in of_units if name not in joining.derived]
    # a column that both files have is the unit's
    of_members_alone = [name for name in of_members if name not in inherited]
    member_columns = [f"members.{quoted_name(name)}" for name in of_members_alone]
    member_columns += [f"homes.{quoted_name(name)}" for name in inherited]
    unit_columns = [f"homes.{quoted_name(name)}" for name in of_units]
    size = f"CAST(coalesce(sizes.counted, 0) AS BIGINT) AS {SIZE}"
    computed = []
    for place, name in enumerate(joining.aggregates):
        # an aggregate of nobody has a value too: that of no record
        chosen = f"CASE WHEN sizes.counted IS NULL THEN nobody.derived_{place} ELSE sizes.derived_{place} END"
        computed.append(f"{chosen} AS {quoted_name(name)}")
    pairs = f"FROM members JOIN homes ON CAST(members.{key} AS VARCHAR) = homes.{_LINK}"
    whole = f"FROM homes LEFT JOIN sizes USING ({_LINK}) CROSS JOIN nobody WHERE NOT homes.{_QUARTERS}"
    queries = [
        f"SELECT {', '.join(member_columns)} {pairs}",
        f"SELECT {', '.join([*unit_columns, size, *computed])} {whole}",
    ]
    linked = {"members": frames[0], "units": frames[1]}
    both = [name for name in of_units if name in of_members]
    steps = partial(_steps, joining=joining, of_units=of_units)
    first, second = DuckRecords.of_queries(linked, steps, _checks(joining, both, pairs), queries)
    return first, second


def _steps(connection: Any, joining: Joining, of_units: Sequence[str]) -> list[str]:
    """Tables that are computed first: units by the text of their link, and what follows from the members of each."""
    key = quoted_name(joining.column)
    own = [f"units.{quoted_name(name)}" for name in of_units]
    own.append(f"{_in_quarters(connection, joining)} AS {_QUARTERS}")
    expressions = typed_aggregates(connection, joining.aggregates, "members", joining.column)
    derived = [f"{expression} AS derived_{place}" for place, expression in enumerate(expressions)]
    counted = ", ".join(["count(*) AS counted", *derived])
    # links are compared as text, counted before they are turned into it
    return [
        f"CREATE TABLE homes AS SELECT {', '.join([f'CAST(units.{key} AS VARCHAR) AS {_LINK}', *own])} FROM units",
        f"CREATE TABLE sizes AS SELECT CAST(unit_link AS VARCHAR) AS {_LINK}, * EXCLUDE (unit_link) "
        f"FROM (SELECT {key} AS unit_link, {counted} FROM members GROUP BY {key})",
        f"CREATE TABLE nobody AS SELECT {counted} FROM members WHERE false",
    ]


def _check_quarters(name: str, units: Source, members: Source) -> None:
    """Refuse a column of quarters that is no column of units alone."""
    if name not in units.columns():
        raise no_column(name, units.columns())
    if name in members.columns():
        raise InputError(f"members have the column {name!r} of quarters from their units: leave it out of theirs")


def _in_quarters(connection: Any, joining: Joining) -> str:
    """Whether a unit is group quarters, in SQL."""
    if joining.quarters is None:
        return "false"
    name, kinds = joining.quarters
    column = quoted_name(name)
    values = f"SELECT DISTINCT {column} AS value FROM units LIMIT {_MOST_KINDS + 1}"
    connection.execute(f"CREATE TABLE quarters AS {values}")
    rows = connection.execute("SELECT rowid, value FROM quarters").fetchall()
    if len(rows) > _MOST_KINDS:
        raise InputError(f"the column {name!r} of quarters has more than {_MOST_KINDS:,} different values")
    texts = {row: value_text(value) for row, value in rows}
    if None in texts.values():
        raise DataError(f"the column {name!r} of quarters has missing values: every unit is of one kind")
    # values are compared as levels are written, whatever their type
    kept = ", ".join(str(row) for row, text in texts.items() if text in kinds)
    connection.execute(f"DELETE FROM quarters WHERE rowid NOT IN ({kept or -1})")
    return f"units.{column} IN (SELECT value FROM quarters)"


def _checks(joining: Joining, both: Sequence[str], pairs: str) -> Mapping[str, str]:
    """Queries that must find nothing, each with what is said where they do."""
    column, most = joining.column, joining.most
    checks = {
        f"SELECT 1 FROM sizes WHERE {_LINK} IS NULL LIMIT 1": (
            f"the link column {column!r} has missing values among the members: every member lies in one unit"
        ),
        f"SELECT 1 FROM homes WHERE {_LINK} IS NULL LIMIT 1": (
            f"the link column {column!r} has missing values among the units: every unit needs a name of its own"
        ),
        f"SELECT 1 FROM homes GROUP BY {_LINK} HAVING count(*) > 1 LIMIT 1": (
            f"the link column {column!r} names a unit twice: keep one line of each unit"
        ),
        f"SELECT 1 FROM sizes ANTI JOIN homes USING ({_LINK}) LIMIT 1": (
            f"the link column {column!r} of a member names no unit: every member lies in one unit of the file of units"
        ),
        f"SELECT 1 FROM sizes JOIN homes USING ({_LINK}) WHERE counted > {most} AND NOT {_QUARTERS} LIMIT 1": (
            "a unit has more members than declared, and nobody is dropped: declare a larger most"
        ),
    }
    if joining.least:
        checks[f"SELECT 1 FROM homes ANTI JOIN sizes USING ({_LINK}) LIMIT 1"] = (
            "a unit has no member, though every unit was declared to have one: declare least = 0, or leave it out"
        )
    for name in both:
        quoted = quoted_name(name)
        differ = f"CAST(members.{quoted} AS VARCHAR) IS DISTINCT FROM CAST(homes.{quoted} AS VARCHAR)"
        checks[f"SELECT 1 {pairs} WHERE {differ} LIMIT 1"] = (
            f"a member has another {name!r} than its unit: leave the column out of one of the files"
        )
    return checks
