"""Two linked sources: members with the features of their units, and units with what follows from their members.

Both are joined by DuckDB in this process, from the columns that are in use. What contradicts the link (a unit twice, a
member of no unit, more members than declared) is one sentence, which names nobody and no number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from semidp.core.tables.counts import no_column
from semidp.core.tables.features import SIZE
from semidp.errors import DataError, InputError
from semidp.sources.duck import DuckRecords, quoted_name
from semidp.sources.opening import Source, open_source
from semidp.sources.reader import Reader

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


def open_linked(
    data: LinkedData,
    column: str,
    sizes: tuple[int, int],
    names: Sequence[str],
    derived: Sequence[str] = (),
    where: str | None = None,
) -> LinkedSource:
    """Open and join two linked sources; refuse records that contradict the link.

    Parameters
    ----------
    data
        Members and units.
    column
        The column that links them, of the same name in both.
    sizes
        The least and the most members of a unit.
    names
        The columns in use, of either kind.
    derived
        Those of units that depend on their members, which members do not have.
    where
        A condition on members; refused, since members that it leaves out would still count for the size of a unit.

    Examples
    --------
    >>> persons = {"home": ["1", "1", "2"], "sex": ["f", "m", "f"]}
    >>> homes = {"home": ["1", "2"], "zone": ["a", "b"]}
    >>> with open_linked(LinkedData(persons, homes), "home", (1, 4), ["zone", "sex"]) as both:
    ...     both.members.levels("zone"), both.units.levels("size"), both.inherited
    (('a', 'b'), ('1', '2'), ('zone',))
    """
    if where is not None:
        raise InputError("a WHERE beside linked units is not built: keep the records in a view or a file")
    with (
        open_source(data.members, table=data.member_table) as members,
        open_source(data.units, table=data.unit_table) as units,
    ):
        for source, kind in ((members, "members"), (units, "units")):
            if column not in source.columns():
                raise DataError(f"{kind}: {no_column(column, source.columns())}")
        if SIZE in units.columns() and SIZE in names:
            raise InputError(f"the units have a column {SIZE!r} of their own: rename it, the size is counted here")
        of_units = [name for name in names if name in units.columns()]
        of_members = [name for name in names if name in members.columns()]
        frames = (members.frame([column, *of_members]), units.frame([column, *of_units]))
    both = [name for name in of_units if name in of_members]
    inherited = [name for name in of_units if name not in derived]
    joined = _joined(frames, column, sizes, of_members, of_units, both, inherited)
    return LinkedSource(Source(joined[0]), Source(joined[1]), tuple(inherited))


def _joined(
    frames: tuple[Any, Any],
    column: str,
    bounds: tuple[int, int],
    of_members: Sequence[str],
    of_units: Sequence[str],
    both: Sequence[str],
    inherited: Sequence[str],
) -> tuple[DuckRecords, DuckRecords]:
    """Join members and units, once for each kind."""
    key = quoted_name(column)
    # a column that both files have is the unit's
    of_members_alone = [name for name in of_members if name not in inherited]
    member_columns = [f"members.{quoted_name(name)}" for name in of_members_alone]
    member_columns += [f"homes.{quoted_name(name)}" for name in inherited]
    unit_columns = [f"homes.{quoted_name(name)}" for name in of_units]
    of_home = ", ".join([f"CAST(units.{key} AS VARCHAR) AS {_LINK}", *(f"units.{quoted_name(n)}" for n in of_units)])
    # links are compared as text, counted before they are turned into it
    steps = [
        f"CREATE TABLE homes AS SELECT {of_home} FROM units",
        f"CREATE TABLE sizes AS SELECT CAST(link AS VARCHAR) AS {_LINK}, members AS counted "
        f"FROM (SELECT {key} AS link, count(*) AS members FROM members GROUP BY 1)",
    ]
    pairs = f"FROM members JOIN homes ON CAST(members.{key} AS VARCHAR) = homes.{_LINK}"
    size = f"CAST(coalesce(sizes.counted, 0) AS BIGINT) AS {SIZE}"
    whole = f"FROM homes LEFT JOIN sizes USING ({_LINK})"
    queries = [
        f"SELECT {', '.join(member_columns)} {pairs}",
        f"SELECT {', '.join([*unit_columns, size])} {whole}",
    ]
    linked = {"members": frames[0], "units": frames[1]}
    first, second = DuckRecords.of_queries(linked, steps, _checks(column, bounds, both, pairs), queries)
    return first, second


def _checks(column: str, bounds: tuple[int, int], both: Sequence[str], pairs: str) -> Mapping[str, str]:
    """Queries that must find nothing, each with what is said where they do."""
    least, most = bounds
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
        f"SELECT 1 FROM sizes WHERE counted > {most} LIMIT 1": (
            "a unit has more members than declared, and nobody is dropped: declare a larger most"
        ),
    }
    if least:
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
