"""Members and units of one database, joined there: only counts come back.

What contradicts the link is found by queries that must return nothing; the sentences are those of
`linked_records`.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from semidp.errors import DataError
from semidp.promise.schema.features import SIZE, value_text
from semidp.publish.sources.ibis import IbisRecords
from semidp.publish.sources.joining import MOST_KINDS, Contradictions, Joining, check_kinds

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
        How they hang together; without aggregates.
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
        members, units = (_add_link(each.table, joining.column) for each in kept)
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


def _add_link(table: Any, column: str) -> Any:
    """A table with the link as text."""
    return table.mutate(**{LINK: table[column].cast("string")})


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
    said = Contradictions(joining.column)
    yield members.filter(members[LINK].isnull()), said.missing_member
    yield units.filter(units[LINK].isnull()), said.missing_unit
    named = units.group_by(LINK).aggregate(semidp_units=units.count())
    yield named.filter(named.semidp_units > 1), said.duplicate_unit
    yield sizes.anti_join(units, LINK), said.nowhere
    counted = sizes.inner_join(outside.select(LINK), LINK)
    yield counted.filter(counted[_COUNTED] > joining.most), said.too_many
    if joining.least:
        yield units.anti_join(sizes, LINK), said.empty
    for name in both:
        homes = units.select(LINK, semidp_other=units[name].cast("string"))
        pairs = members.select(LINK, semidp_own=members[name].cast("string")).inner_join(
            homes, LINK
        )
        yield pairs.filter(~pairs.semidp_own.identical_to(pairs.semidp_other)), said.differs(name)
