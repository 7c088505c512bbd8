"""Two linked sources: members with the features of their units, and units with features from their
members.

Two tables of one database are joined there. Others are joined by DuckDB in this process, from the
columns that are in use. A contradiction of the link (a repeated unit, a member without a unit, more
members than declared) is reported in one sentence, without names or numbers. In a database it is
found by queries that must return nothing, and only counts come back.
"""

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, Self

from attrs import evolve, field, frozen

from semidp.errors import DataError, InputError, Refused
from semidp.promise.schema.features import SIZE, Feature, value_text
from semidp.promise.schema.schema import no_column
from semidp.publish.sources.duck import DuckRecords, Step, quoted_name
from semidp.publish.sources.duck_files import aggregated_columns, written_aggregates
from semidp.publish.sources.ibis import IbisRecords
from semidp.publish.sources.opening import Source, open_source
from semidp.publish.sources.reader import Reader

MOST_KINDS = 10_000
"""The most distinct values of a column of quarters."""


@frozen
class Joining:
    """How members and units are joined, and which features of units follow from their members.

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
        A column of units and its values that are group quarters without a bound, not counted
        units.
    declared, untyped
        The types of columns of members in aggregates, and the columns without a type of their own.
    """

    column: str
    least: int
    most: int
    derived: Sequence[str] = ()
    aggregates: Mapping[str, str] = field(factory=dict)
    quarters: tuple[str, Sequence[str]] | None = None
    declared: Mapping[str, str] = field(factory=dict)
    untyped: Collection[str] = ()


def check_kinds(name: str, values: Sequence[Any]) -> None:
    """Refuse a column of quarters with too many values, or with missing ones."""
    if len(values) > MOST_KINDS:
        raise InputError(
            f"the column {name!r} of quarters has more than {MOST_KINDS:,} different values"
        )
    if any(value_text(value) is None for value in values):
        raise DataError(
            f"the column {name!r} of quarters has missing values: every unit is of one kind"
        )


class LinkFault(StrEnum):
    """Sentences for records that contradict the link, without names or numbers."""

    missing_member = (
        "the link column {!r} has missing values among the members: every member lies in one unit"
    )
    missing_unit = (
        "the link column {!r} has missing values among the units: every unit needs a name of its"
        " own"
    )
    duplicate_unit = "the link column {!r} names a unit twice: keep one line of each unit"
    nowhere = (
        "the link column {!r} of a member names no unit: every member lies in one unit of the file"
        " of units"
    )
    too_many = "a unit has more members than declared, and nobody is dropped: declare a larger most"
    empty = (
        "a unit has no member, though every unit was declared to have one: declare least = 0, or"
        " leave it out"
    )
    differs = "a member has another {!r} than its unit: leave the column out of one of the files"


_QUARTERS = '"are group quarters"'
"""Whether a unit is counted in no table, in the joined tables."""
_HOME = '"the row of the unit"'
"""The number of a member's unit, in the joined tables."""
_LINK = '"the link as text"'
"""The link as text, in the joined tables: files hold text where data frames hold numbers."""
_MOST_CODES = 2**16 - 1
"""The most distinct texts that are stored as codes of one or two bytes."""


@frozen
class LinkedReader:
    """Readers of the confidential counts of members and of units."""

    members: Reader
    units: Reader


@frozen(eq=False)
class LinkedSource:
    """Open sources of members and units, joined: each member has its unit's columns, each unit its
    size.

    Parameters
    ----------
    members, units
        The joined sources.
    inherited
        The columns that members have from their units.
    again
        Opens and joins the same records in another process; None if no address names them.
    """

    members: Source
    units: Source
    inherited: tuple[str, ...]
    again: "Callable[[], LinkedSource] | None" = None

    def columns(self) -> tuple[str, ...]:
        """Return the columns that members have from their units: the two are cut by those alone."""
        return self.inherited

    def branches(self, feature: Feature, depth: int) -> dict[int, dict[str, list[Any]]]:
        """For each node at a depth that holds members or units, return the values of columns that
        select it.
        """
        # Quarters hold members and are no counted units, and a unit may have no member.
        both = [source.branches(feature, depth) for source in (self.members, self.units)]
        nodes: dict[int, dict[str, list[Any]]] = {}
        for node in sorted({*both[0], *both[1]}):
            values: dict[str, dict[Any, None]] = {}
            for branches in both:
                for name, some in branches.get(node, {}).items():
                    values[name] = values.get(name, {}) | dict.fromkeys(some)
            nodes[node] = {name: list(some) for name, some in values.items()}
        return nodes

    def only(self, values: Mapping[str, Sequence[Any]]) -> "LinkedSource":
        """Return the members and units of one branch, to be read before the next is asked for."""
        return LinkedSource(self.members.only(values), self.units.only(values), self.inherited)

    def spark_frame(self) -> None:
        """Refuse records of Spark: its executors hold members and units separately."""
        if any(source.spark_frame() is not None for source in (self.members, self.units)):
            raise Refused(
                "linked members and units are not released part by part on Spark: give files, or"
                " leave the partition out"
            )

    def close(self) -> None:
        """Close both."""
        self.members.close()
        self.units.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@frozen
class LinkedData:
    """Two linked sources to open: anything that `open_source` takes, for each kind.

    Parameters
    ----------
    members, units
        The records.
    member_table, unit_table
        The tables to read at database addresses.
    hive_partitions, allow_empty, encoding, header_rows, na
        How the files of both are read; see `open_source`.
    """

    members: Any
    units: Any
    member_table: str | None = None
    unit_table: str | None = None
    hive_partitions: bool = False
    allow_empty: bool = False
    encoding: str | None = None
    header_rows: int | None = None
    na: str | Sequence[str] = ()

    def open_kind(self, data: Any, table: str | None) -> Source:
        """Open the records of one kind."""
        return open_source(
            data,
            table=table,
            hive_partitions=self.hive_partitions,
            allow_empty=self.allow_empty,
            encoding=self.encoding,
            header_rows=self.header_rows,
            na=self.na,
        )


def open_linked(data: LinkedData, joining: Joining, names: Sequence[str]) -> LinkedSource:
    """Open and join two linked sources; refuse records that contradict the link.

    Parameters
    ----------
    data
        Members and units.
    joining
        How they are joined.
    names
        The columns in use, of either kind.

    Examples
    --------
    >>> persons = {"home": ["1", "1", "2"], "sex": ["f", "m", "f"]}
    >>> homes = {"home": ["1", "2"], "zone": ["a", "b"]}
    >>> women = {"women": "count(*) FILTER (WHERE sex = 'f')"}
    >>> joining = Joining("home", 1, 4, aggregates=women)
    >>> with open_linked(LinkedData(persons, homes), joining, ["zone", "sex"]) as both:
    ...     (
    ...         both.members.levels("zone"),
    ...         both.units.levels("size"),
    ...         both.inherited,
    ...         both.units.levels("women"),
    ...     )
    (('a', 'b'), ('1', '2'), ('zone',), ('1',))
    """
    both = _of_one_database(data, joining)
    again = None
    if all(isinstance(part, str | os.PathLike) for part in (data.members, data.units)):
        again = partial(open_linked, data, joining, tuple(names))
    if both is None:
        return evolve(_joined_here(data, joining, names), again=again)

    members, units = (Source(records) for records in both)
    with contextlib.ExitStack() as on_error:
        # members close the connection, so they are closed last
        on_error.callback(members.close)
        on_error.callback(units.close)
        of_members, of_units, inherited = _columns(members, units, joining, names)
        lived, whole = joined_tables(both, joining, of_members, of_units)
        on_error.pop_all()
    return LinkedSource(Source(lived), Source(whole), tuple(inherited), again)


def _of_one_database(
    data: LinkedData, joining: Joining
) -> "tuple[IbisRecords, IbisRecords] | None":
    """Members and units of one connection, which joins them itself; None if they are joined
    here.

    Aggregates are written in the SQL of DuckDB, so they are computed here too.
    """
    if joining.aggregates:
        return None
    if isinstance(data.members, str) and "://" in data.members and data.members == data.units:
        from semidp.publish.sources.ibis import IbisRecords

        return IbisRecords.both_from_address(data.members, (data.member_table, data.unit_table))
    kinds = {type(part).__module__.partition(".")[0] for part in (data.members, data.units)}
    if kinds == {"ibis"}:
        from semidp.publish.sources.ibis import IbisRecords

        members, units = (
            IbisRecords.from_table(part, None, {}) for part in (data.members, data.units)
        )
        return (members, units) if members.shares_connection(units) else None
    return None


def _joined_here(data: LinkedData, joining: Joining, names: Sequence[str]) -> LinkedSource:
    """Bring the columns in use into this process, and join them."""
    column = joining.column
    with data.open_kind(data.members, data.member_table) as members:
        # Units are closed before members are read: an engine keeps the memory of what it read.
        with data.open_kind(data.units, data.unit_table) as units:
            of_members, of_units, inherited = _columns(members, units, joining, names)
            homes = units.frame([column, *of_units])
        of_records = [name for name in members.columns() if name != column]
        for name in joining.declared:
            if name not in of_records:
                raise no_column(name, of_records)
        aggregated = aggregated_columns(joining.aggregates, of_records)
        joining = evolve(joining, untyped=members.untyped_columns)
        frames = (members.frame([column, *of_members, *aggregated]), homes)
    joined = _join_tables(frames, joining, of_members, of_units)
    return LinkedSource(Source(joined[0]), Source(joined[1]), tuple(inherited))


def _columns(
    members: Source, units: Source, joining: Joining, names: Sequence[str]
) -> tuple[list[str], list[str], list[str]]:
    """The columns in use of members and of units, and those that members inherit; refuse what is
    not there.
    """
    for source, kind in ((members, "members"), (units, "units")):
        if joining.column not in source.columns():
            raise DataError(f"{kind}: {no_column(joining.column, source.columns())}")
    for name in (SIZE, *joining.aggregates):
        if name in units.columns() and (name in names or name in joining.aggregates):
            raise InputError(
                f"the units have a column {name!r} of their own: rename it, it is computed here"
            )
    # a slip in a derived column would leave the true one among those that are not protected
    for name in joining.derived:
        if name != SIZE and name not in joining.aggregates and name not in units.columns():
            raise no_column(name, units.columns())
    if joining.quarters is not None:
        _check_quarters(joining.quarters[0], units, members)
    of_units = [name for name in names if name in units.columns()]
    of_members = [
        name for name in names if name in members.columns() and name not in joining.aggregates
    ]
    inherited = [name for name in of_units if name not in joining.derived]
    return of_members, of_units, inherited


def _join_tables(
    frames: tuple[Any, Any], joining: Joining, of_members: Sequence[str], of_units: Sequence[str]
) -> tuple[DuckRecords, DuckRecords]:
    """Join members and units, once for both kinds."""
    inherited = [name for name in of_units if name not in joining.derived]
    # a column that both files have is the unit's
    members_alone = [name for name in of_members if name not in inherited]
    of_lived = ", ".join(map(quoted_name, [*members_alone, *inherited]))
    of_whole = ", ".join(map(quoted_name, [*of_units, SIZE, *joining.aggregates]))
    queries = [
        f"SELECT {of_lived} FROM lived",
        f"SELECT {of_whole} FROM whole WHERE NOT {_QUARTERS}",
    ]
    steps = partial(_steps, joining=joining, of_members=of_members, of_units=of_units)
    linked = {"members": frames[0], "units": frames[1]}
    first, second = DuckRecords.of_queries(linked, steps, queries)
    return first, second


def _steps(
    connection: Any, joining: Joining, of_members: Sequence[str], of_units: Sequence[str]
) -> Iterator[Step]:
    """Yield what is computed first, and queries that must find nothing, each with what is said
    where one does.

    Units are numbered by their row. Members are joined with them once, by the text of the link;
    sizes are counted by number.
    """
    said, link = LinkFault, joining.column
    key = quoted_name(joining.column)
    unit_columns = _encode_columns(connection, "units", of_units)
    unit_columns.append(f"{_in_quarters(connection, joining)} AS {_QUARTERS}")
    of_homes = ", ".join([f"CAST(units.{key} AS VARCHAR) AS {_LINK}", *unit_columns])
    yield f"SELECT 1 FROM members WHERE {key} IS NULL LIMIT 1", said.missing_member.format(link)
    yield f"SELECT 1 FROM units WHERE {key} IS NULL LIMIT 1", said.missing_unit.format(link)
    yield f"CREATE TABLE homes AS SELECT {of_homes} FROM units", None
    # before the join: a unit that is named many times would multiply the members
    yield (
        f"SELECT 1 FROM homes GROUP BY {_LINK} HAVING count(*) > 1 LIMIT 1",
        said.duplicate_unit.format(link),
    )
    inherited = [name for name in of_units if name not in joining.derived]
    members_alone = [name for name in of_members if name not in inherited]
    # Aggregates compare text as it is, and codes have an order of their own.
    coded = [] if joining.aggregates else members_alone
    lived = [f"CAST(homes.rowid AS INTEGER) AS {_HOME}"]
    lived += _encode_columns(connection, "members", coded)
    lived += [f"members.{quoted_name(name)}" for name in members_alone if name not in coded]
    lived += [f"homes.{quoted_name(name)}" for name in inherited]
    both = [name for name in of_units if name in of_members]
    for place, name in enumerate(both):
        column = quoted_name(name)
        theirs, its = f"CAST(members.{column} AS VARCHAR)", f"CAST(homes.{column} AS VARCHAR)"
        lived.append(f"{theirs} IS DISTINCT FROM {its} AS differs_{place}")
    pairs = f"members LEFT JOIN homes ON CAST(members.{key} AS VARCHAR) = homes.{_LINK}"
    yield f"CREATE TABLE lived AS SELECT {', '.join(lived)} FROM {pairs}", None
    yield f"SELECT 1 FROM lived WHERE {_HOME} IS NULL LIMIT 1", said.nowhere.format(link)
    for place, name in enumerate(both):
        yield f"SELECT 1 FROM lived WHERE differs_{place} LIMIT 1", said.differs.format(name)
    yield from _sizes(connection, joining, of_units)
    outside = f"FROM whole WHERE NOT {_QUARTERS}"
    yield f"SELECT 1 {outside} AND {SIZE} > {joining.most} LIMIT 1", said.too_many.value
    if joining.least:
        yield f"SELECT 1 {outside} AND {SIZE} = 0 LIMIT 1", said.empty.value
    for name in ("sizes", "homes"):
        yield f"DROP TABLE {name}", None


def _sizes(connection: Any, joining: Joining, of_units: Sequence[str]) -> Iterator[Step]:
    """Yield how units get their sizes, and what else is computed from their members."""
    key = quoted_name(joining.column)
    expressions = written_aggregates(
        connection, joining.aggregates, "members", joining.untyped, joining.declared
    )
    derived = [f"{expression} AS derived_{place}" for place, expression in enumerate(expressions)]
    counted = ", ".join(["count(*) AS counted", *derived])
    if derived:
        by_link = f"SELECT {key} AS unit_link, {counted} FROM members GROUP BY {key}"
        computed = ", ".join(f"derived_{place}" for place in range(len(derived)))
        numbered = f"homes.rowid AS {_HOME}, counted, {computed} FROM ({by_link}) JOIN homes"
        sizes = f"SELECT {numbered} ON CAST(unit_link AS VARCHAR) = homes.{_LINK}"
    else:
        sizes = f"SELECT {_HOME}, {counted} FROM lived GROUP BY {_HOME}"
    yield f"CREATE TABLE sizes AS {sizes}", None
    yield f"CREATE TABLE nobody AS SELECT {counted} FROM members WHERE false", None
    columns = [f"homes.{quoted_name(name)}" for name in of_units]
    columns += [f"homes.{_QUARTERS}", f"CAST(coalesce(sizes.counted, 0) AS BIGINT) AS {SIZE}"]
    for place, name in enumerate(joining.aggregates):
        # an aggregate of nobody has a value too: that of no record
        chosen = (
            f"CASE WHEN sizes.counted IS NULL THEN nobody.derived_{place} ELSE"
            f" sizes.derived_{place} END"
        )
        columns.append(f"{chosen} AS {quoted_name(name)}")
    pairs = f"homes LEFT JOIN sizes ON homes.rowid = sizes.{_HOME} CROSS JOIN nobody"
    yield f"CREATE TABLE whole AS SELECT {', '.join(columns)} FROM {pairs}", None


def _encode_columns(connection: Any, relation: str, names: Sequence[str]) -> list[str]:
    """Columns of a relation, text of few values as codes: a record takes a byte or two of each."""
    described = connection.execute(f"SELECT column_name, column_type FROM (DESCRIBE {relation})")
    types = dict(described.fetchall())
    columns = []
    for place, name in enumerate(names):
        column = quoted_name(name)
        kept = f"{relation}.{column}"
        if types[name] == "VARCHAR":
            levels, codes = f"levels_of_{relation}_{place}", f"codes_of_{relation}_{place}"
            some = f"SELECT DISTINCT {column} AS value FROM {relation} WHERE {column} IS NOT NULL"
            connection.execute(f"CREATE TABLE {levels} AS {some} LIMIT {_MOST_CODES + 1}")
            ((number,),) = connection.execute(f"SELECT count(*) FROM {levels}").fetchall()
            if 0 < number <= _MOST_CODES:
                connection.execute(f"CREATE TYPE {codes} AS ENUM (SELECT value FROM {levels})")
                kept = f"CAST({kept} AS {codes})"
            connection.execute(f"DROP TABLE {levels}")
        columns.append(f"{kept} AS {column}")
    return columns


def _check_quarters(name: str, units: Source, members: Source) -> None:
    """Refuse a column of quarters that is no column of units alone."""
    if name not in units.columns():
        raise no_column(name, units.columns())
    if name in members.columns():
        raise InputError(
            f"members have the column {name!r} of quarters from their units: leave it out of theirs"
        )


def _in_quarters(connection: Any, joining: Joining) -> str:
    """Whether a unit is group quarters, in SQL."""
    if joining.quarters is None:
        return "false"
    name, kinds = joining.quarters
    column = quoted_name(name)
    values = f"SELECT DISTINCT {column} AS value FROM units LIMIT {MOST_KINDS + 1}"
    connection.execute(f"CREATE TABLE quarters AS {values}")
    rows = connection.execute("SELECT rowid, value FROM quarters").fetchall()
    check_kinds(name, [value for _, value in rows])
    # values are compared as levels are written, whatever their type
    kept = ", ".join(str(row) for row, value in rows if value_text(value) in kinds)
    connection.execute(f"DELETE FROM quarters WHERE rowid NOT IN ({kept or -1})")
    return f"units.{column} IN (SELECT value FROM quarters)"


LINK = "semidp_link"
"""The link as text, in the joined tables."""
_COUNTED = "semidp_members"


def joined_tables(
    records: tuple[IbisRecords, IbisRecords],
    joining: Joining,
    of_members: Sequence[str],
    of_units: Sequence[str],
) -> tuple[IbisRecords, IbisRecords]:
    """Return members with the columns of their units, and units with their size; refuse records
    that contradict.

    Parameters
    ----------
    records
        Members and units, of one connection.
    joining
        How they are joined, without aggregates.
    of_members, of_units
        The columns in use of each.
    """
    closing = contextlib.ExitStack()
    with contextlib.ExitStack() as on_error:
        on_error.callback(closing.close)
        kept = []
        for each, names in zip(records, (of_members, of_units), strict=True):
            # one snapshot for every answer: a copy in the database where its transactions give none
            held = each.take_snapshot(list(dict.fromkeys([joining.column, *names])))
            closing.callback(held.close)
            kept.append(held)
        # the link as text
        members, units = (
            each.table.mutate(**{LINK: each.table[joining.column].cast("string")}) for each in kept
        )
        outside = _outside(kept[1], units, joining)
        sizes = members.group_by(LINK).aggregate(**{_COUNTED: members.count()})
        inherited = [name for name in of_units if name not in joining.derived]
        # a column that both tables have is the unit's
        members_alone = [name for name in of_members if name not in inherited]
        both = [name for name in of_members if name in of_units]
        for query, sentence in _contradictions(members, units, outside, sizes, joining, both):
            if kept[0].finds(query):
                raise DataError(sentence)
        of_homes = units.select(LINK, *inherited)
        lived = members.select(LINK, *members_alone).inner_join(of_homes, LINK)
        lived = lived.select(*members_alone, *inherited)
        # a unit that no member names has none
        counted = outside.left_join(sizes, LINK)
        size = counted[_COUNTED].fill_null(0).cast("int64")
        whole = counted.select(*of_units, **{SIZE: size})
        on_error.pop_all()
    return IbisRecords(lived, steady=True), IbisRecords(whole, closing.close, steady=True)


def _outside(records: IbisRecords, units: Any, joining: Joining) -> Any:
    """The units that are no group quarters: those that are counted."""
    if joining.quarters is None:
        return units
    name, kinds = joining.quarters
    values = records.distinct(name, MOST_KINDS + 1)
    check_kinds(name, values)
    # values are compared as levels are written, whatever their type
    chosen = [value for value in values if value_text(value) in kinds]
    return units.filter(~units[name].isin(chosen)) if chosen else units


def _contradictions(
    members: Any, units: Any, outside: Any, sizes: Any, joining: Joining, both: Sequence[str]
) -> Iterator[tuple[Any, str]]:
    """Yield queries that must find nothing, each with what is said where one does."""
    said, link = LinkFault, joining.column
    yield members.filter(members[LINK].isnull()), said.missing_member.format(link)
    yield units.filter(units[LINK].isnull()), said.missing_unit.format(link)
    named = units.group_by(LINK).aggregate(semidp_units=units.count())
    yield named.filter(named.semidp_units > 1), said.duplicate_unit.format(link)
    yield sizes.anti_join(units, LINK), said.nowhere.format(link)
    counted = sizes.inner_join(outside.select(LINK), LINK)
    yield counted.filter(counted[_COUNTED] > joining.most), said.too_many.value
    if joining.least:
        yield units.anti_join(sizes, LINK), said.empty.value
    for name in both:
        homes = units.select(LINK, semidp_other=units[name].cast("string"))
        pairs = members.select(LINK, semidp_own=members[name].cast("string")).inner_join(
            homes, LINK
        )
        yield (
            pairs.filter(~pairs.semidp_own.identical_to(pairs.semidp_other)),
            said.differs.format(name),
        )
