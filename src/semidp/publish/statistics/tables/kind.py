"""Tables, as the registry finds them."""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve

from semidp.errors import InputError
from semidp.promise.mechanisms.placement import Objective
from semidp.publish.results.published_table import UNNAMED, FitKind
from semidp.publish.statistics.parts import BY_PARTS
from semidp.publish.statistics.protocol.kinds import Kind
from semidp.publish.statistics.setting import Chosen, Panel, Setting, Shape
from semidp.publish.statistics.tables.asked import TableRequest, with_numbers
from semidp.publish.statistics.tables.linked_published import PublishedLinked
from semidp.publish.statistics.tables.linked_request import (
    TOP_CODE,
    UNIT_SHARE,
    UNIT_TABLE,
    LinkedTablesRequest,
    read_linked,
    write_linked,
)
from semidp.publish.statistics.tables.published import ALONE, SHARED
from semidp.publish.statistics.tables.request import (
    PLAN_KEYS,
    TablesRequest,
    group_table_requests,
    list_all_tables,
    read_tables,
    write_tables,
)
from semidp.publish.statistics.tables.stored_tables import read_tables_measurement

_TABLES = ("table", "all_pairs")
WEIGHT = Setting(
    "weight",
    "How much the variance of a table counts among the others; 4 about halves it. Survey"
    " weights are not supported.",
    Shape.texts,
    "A,B=NUMBER",
    key="[[table]] weight",
    example="county,age=4",
    needs=_TABLES,
)
OBJECTIVE = Setting(
    "objective",
    "What the noise of several tables that share a budget minimizes: the total variance"
    " (default) or the largest error.",
    Shape.text,
    "total|largest",
    needs=_TABLES,
    divides=True,
)
FIT = Setting(
    "fit",
    "Publish whole numbers that match the exact totals (default), or the estimates themselves.",
    Shape.text,
    "integer|none",
    key="[[table]] fit",
    needs=_TABLES,
)
TABLE = Setting(
    "table",
    "Counts by these features, with noise. Repeat it: the tables share the budget and agree.",
    Shape.features,
    "A,B",
    Panel.publish,
    key="[[table]]",
    label="Table",
    several=True,
)
ALL_PAIRS = Setting(
    "all_pairs",
    "A table for every pair of these features.",
    Shape.features,
    "A,B,C",
    Panel.publish,
    key="all_of",
    beside=(WEIGHT, OBJECTIVE, FIT),
)


def _build_requests(chosen: Chosen) -> list[TablesRequest]:
    """Return the tables that share the budget; refuse one that is asked for twice."""
    sets = list(chosen.sets(TABLE))
    for names in chosen.sets(ALL_PAIRS):
        sets += [table.features for table in list_all_tables(names)]
    if len({frozenset(names) for names in sets}) < len(sets):
        raise InputError("the same table is asked for twice (⟨table⟩, ⟨all_pairs⟩): name each once")
    if not sets:
        return []
    fit = chosen.text(FIT) or FitKind.integer
    tables = [TableRequest(names, None, fit=fit) for names in sets]
    weighted = with_numbers(tables, "weight", f"⟨{WEIGHT.name}⟩", chosen.texts(WEIGHT))
    objective = chosen.text(OBJECTIVE)
    if objective is not None and len(tables) < 2:
        raise InputError("⟨objective⟩ is for several tables that share a budget: leave it out")
    return [TablesRequest(weighted, None, objective or Objective.total)]


def _list_choices(request: TablesRequest) -> list[tuple[dict[str, Any], TableRequest]]:
    """Return each table; its mechanism, its weight and its fit are kept, and cannot be chosen on a
    page.
    """
    tables = []
    for table in request.tables:
        called = UNNAMED if table.name == "-".join(table.features) else table.name
        tables.append(({TABLE.name: (table.features,)}, evolve(table, budget=None, name=called)))
    return tables


def _group_with_linked(asked: Sequence[Any]) -> tuple[Any, ...]:
    linked = [item for item in asked if isinstance(item, LinkedTablesRequest)]
    return (*group_table_requests([item for item in asked if item not in linked]), *linked)


def _read_plan(document: Mapping[str, Any]) -> list[Any]:
    # A plan with units has linked tables alone: the same entries must not be read a second time.
    linked = read_linked(document)
    return linked if "units" in document else read_tables(document)


def _write_plan(requests: Sequence[Any]) -> dict[str, Any]:
    linked = [request for request in requests if isinstance(request, LinkedTablesRequest)]
    return write_linked(linked) if linked else write_tables(requests)


KIND = Kind(
    place=0,
    key="table",
    asked=(TableRequest, TablesRequest, LinkedTablesRequest),
    results=dict.fromkeys((ALONE, SHARED, PublishedLinked.key, BY_PARTS), read_tables_measurement),
    always_listed=(ALONE,),
    settings=(TABLE, ALL_PAIRS),
    ask=_build_requests,
    shown=_list_choices,
    plan_keys=(*PLAN_KEYS, UNIT_TABLE, UNIT_SHARE, TOP_CODE),
    gather=_group_with_linked,
    read_plan=_read_plan,
    write_plan=_write_plan,
    # Tables that are finer than a joint total in one feature and coarser in another move more cells
    # than were listed (`ExchangeTable`).
)
