"""The survey of a plan about linked records: two sources joined, exact totals of both kinds, the
scope of both.

What is asked for with the prefix ``units:`` counts units; `with_units` takes a plan apart by it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from attrs import evolve

from semidp.errors import InputError, Refused, did_you_mean
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.branch_noise import Cut
from semidp.promise.schema.features import SIZE, Feature
from semidp.promise.schema.schema import Schema, no_column
from semidp.promise.spaces.dataspace import Dataspace, Margin, normalize_margins
from semidp.promise.spaces.linked import LinkedDataspace, Quarters
from semidp.publish.plan import LinkedUnits, Plan, UnitFeature
from semidp.publish.resources import ResourceEstimate, count_part_cells
from semidp.publish.results.columns import Form
from semidp.publish.sources.linked_records import (
    Joining,
    LinkedData,
    LinkedReader,
    LinkedSource,
    open_linked,
)
from semidp.publish.sources.opening import Source
from semidp.publish.sources.reader import Reader
from semidp.publish.sources.readings import declared_kinds
from semidp.publish.statistics.tables.asked import TableRequest
from semidp.publish.statistics.tables.linked_published import COMMAND_PREFIX
from semidp.publish.statistics.tables.linked_request import LinkedTablesRequest
from semidp.publish.survey import public_scope, read_schema

MEMBER_SHARE, UNIT_SHARE = "tables", f"{COMMAND_PREFIX}tables"
"""What tables of members and of units are called where a budget is divided."""


def with_units(
    plan: Plan,
    units: LinkedUnits,
    shares: Mapping[str, Fraction] | None = None,
    top_code: Mapping[str, Any] | None = None,
) -> Plan:
    """Return a plan about linked records, from one whose unit tables and unit totals have the
    prefix ``units:``.

    Parameters
    ----------
    plan
        What is asked for.
    units
        How members are linked to units.
    shares
        The parts of the budget for ``"tables"`` (of members) and ``"units:tables"``; by need where
        there are none.
    top_code
        The size from which on units are published as one level: ``{"size": 5}``.

    Examples
    --------
    >>> asked = Plan(
    ...     [TableRequest(["zone", "sex"]), TableRequest(["units:zone", "size"])],
    ...     ["units:zone"],
    ... )
    >>> plan = with_units(asked, LinkedUnits("household", "member", 8))
    >>> plan.units.exact, [table.name for table in plan.requests[0].units]
    ((Margin('zone'),), ['units-zone-size'])
    """
    tables: list[TableRequest] = []
    budgets = []
    for request in plan.requests:
        if not request.tables:
            raise InputError(
                "beside linked units only tables are built: release other statistics of members"
                " alone"
            )
        tables += request.tables
        budgets.append(request.budget)
    if len(budgets) > 1:
        raise InputError(
            "linked tables share one zCDP, GDP or (epsilon, delta) budget: pure epsilon is not"
            " built"
        )
    members = [table for table in tables if not _of_units(table.features)]
    of_units = [
        evolve(table, features=_bare(table.features))
        for table in tables
        if _of_units(table.features)
    ]
    exact = [Margin(*_bare(margin.names)) for margin in plan.invariants if _of_units(margin.names)]
    invariants = [margin for margin in plan.invariants if not _of_units(margin.names)]
    share = _unit_share(shares or {})
    budget = budgets[0] if budgets else None
    request = LinkedTablesRequest(members, of_units, budget, share, top_code)
    linked = evolve(units, exact=(*units.exact, *exact))
    _ = request.coding(linked.bounds)
    # the levels of computed features are declared beside the others, and belong to them
    computed = {part.name for part in units.features}
    features = [feature for feature in plan.features if feature.name not in computed]
    return evolve(plan, requests=[request], invariants=invariants, units=linked, features=features)


def _unit_share(shares: Mapping[str, Fraction]) -> Fraction | None:
    """The part of the budget for tables of units; 1 each unless given, None where no share is."""
    parts = {MEMBER_SHARE: Fraction(1), UNIT_SHARE: Fraction(1)}
    for name, share in shares.items():
        if name not in parts:
            raise InputError(
                f"⟨share⟩ names {name!r}, which takes no part{did_you_mean(name, list(parts))}:"
                f" {', '.join(parts)} do"
            )
        parts[name] = share
    return parts[UNIT_SHARE] / sum(parts.values()) if shares else None


def computed_features(
    aggregates: Mapping[str, str], features: Sequence[Feature]
) -> list[UnitFeature]:
    """Return the features of units that are computed from members, with their declared levels.

    >>> computed_features({"women": "count_if(sex = 'f')"}, [Feature("women", "012")])[
    ...     0
    ... ].feature.levels
    ('0', '1', '2')
    """
    by_name = {feature.name: feature for feature in features}
    computed = []
    for name, aggregate in aggregates.items():
        if name not in by_name:
            raise InputError(
                f"the aggregate {name!r} needs the levels (or bins) of its values: declare them"
            )
        computed.append(UnitFeature(by_name[name], aggregate))
    return computed


def _of_units(names: Sequence[str]) -> bool:
    return bool(names) and names[0].startswith(COMMAND_PREFIX)


def _bare(names: Sequence[str]) -> tuple[str, ...]:
    """Names without the prefix, which one or each may have."""
    return tuple(name.removeprefix(COMMAND_PREFIX) for name in names)


def linked_records(plan: Plan, units: LinkedUnits, data: Any) -> LinkedSource:
    """Open the two sources of a plan about linked records, joined.

    Parameters
    ----------
    plan, units
        What to publish, and what it says of units.
    data
        Both sources, or that of members where the plan names the source of units.
    """
    if not isinstance(data, LinkedData) and units.source is not None:
        data = LinkedData(data, units.source)
    if not isinstance(data, LinkedData):
        raise InputError("the plan has units, so that it needs two sources: give the units too")
    depths = {name: part.names for part in plan.chains for name in part.names}
    columns: dict[str, None] = {}
    for name in plan.names:
        chain = depths.get(name, (name,))
        columns |= dict.fromkeys(chain[: chain.index(name) + 1])
    link = units.bounds
    _ = _get_linked_request(plan).coding(link)
    computed = {part.name: part.aggregate for part in units.features}
    quarters = None
    if link.quarters is not None:
        _check_quarters(plan, units, link.quarters)
        quarters = link.quarters.feature, link.quarters.kinds
    declared = declared_kinds(plan.read_as)
    joining = Joining(
        link.column, link.least, link.most, link.derived, computed, quarters, declared
    )
    return open_linked(data, joining, [*columns])


def linked_survey(
    plan: Plan, linked: LinkedUnits, source: LinkedSource, memory: int | None = None
) -> tuple[Scope, LinkedReader]:
    """Read what a plan publishes exactly of both kinds, and return the public scope with readers of
    the rest.

    Parameters
    ----------
    plan, linked
        What to publish, and what it says of units.
    source
        Both sources, joined.
    memory
        The bytes that may be used.
    """
    link = linked.bounds
    request = _get_linked_request(plan)
    of_members, of_units = _names_of_members(plan), _names_of_units(plan, linked)
    declared = (*plan.features, *(part.feature for part in linked.features))
    for name in of_members:
        if name in link.derived:
            raise Refused(
                f"{name!r} is derived from the members of a unit, so that no table of members"
                " has it"
            )
    inherited = dict.fromkeys(name for name in of_members if name in source.inherited)
    if link.quarters is not None:
        # members alone have it: their units are counted in no table
        inherited.pop(link.quarters.feature)
    # features of units that only members use are needed too: they are inherited
    every = {**of_units, **inherited}
    own_names = [name for name in every if name not in link.derived]
    derived = [name for name in of_units if name in link.derived and name != SIZE]
    # an exact total of members by features of units alone publishes their levels, too
    placed = [margin for margin in plan.invariants if {*margin.names} <= {*own_names}]
    units, told = _features(
        plan, declared, source.units, [*own_names, *derived], (*linked.exact, *placed)
    )
    member_names = [name for name in of_members if name not in inherited]
    members, disclosed = _features(plan, declared, source.members, member_names, plan.invariants)
    if SIZE in of_units:
        units.append(Feature(SIZE, link.sizes))
    mentioned = list(of_units)
    units.sort(key=lambda feature: _first_mention(feature, mentioned))
    shared = [feature for feature in units if {*feature.names} & {*inherited}]
    member_schema, unit_schema = Schema((*shared, *members)), Schema(tuple(units))
    _refuse_memory(request, member_schema, unit_schema, memory)
    readers = LinkedReader(
        Reader(member_schema, source.members, declared), Reader(unit_schema, source.units, declared)
    )
    public = LinkedDataspace.joining(
        _exact(member_schema, readers.members, plan.invariants),
        _exact(unit_schema, readers.units, linked.exact),
        link,
    )
    disclosures = tuple(dict.fromkeys((*told, *disclosed)))
    return replace(public_scope(plan, public), disclosures=disclosures), readers


def stated_totals_differ(plan: Plan, public: Dataspace) -> bool:
    """Whether a release states other exact totals, of either kind, than its plan publishes."""
    if plan.units is None or not isinstance(public, LinkedDataspace):
        return True
    members = normalize_margins(public.schema, plan.invariants) != public.margins
    return (
        members or normalize_margins(public.units.schema, plan.units.exact) != public.units.margins
    )


def _check_quarters(plan: Plan, units: LinkedUnits, quarters: Quarters) -> None:
    """Refuse quarters in a table of units, or in no table of members, before anything is read."""
    name = quarters.feature
    if name in _names_of_units(plan, units) or name not in _names_of_members(plan):
        raise Refused(
            "group quarters are counted in no table of units, and some table of members has to say"
            f" who lives in them: ask for {name!r} in tables of members alone"
        )
    for feature in plan.features:
        if feature.name == name:
            quarters.home(feature.levels)


def _get_linked_request(plan: Plan) -> LinkedTablesRequest:
    (request,) = plan.requests
    assert isinstance(request, LinkedTablesRequest)
    return request


def _names_of_members(plan: Plan) -> dict[str, None]:
    """The features of tables and of exact totals of members."""
    tables = [table.features for table in _get_linked_request(plan).members]
    return _names((*tables, *(margin.names for margin in plan.invariants)))


def _names_of_units(plan: Plan, units: LinkedUnits) -> dict[str, None]:
    """The features of tables and of exact totals of units."""
    tables = [table.features for table in _get_linked_request(plan).units]
    return _names((*tables, *(margin.names for margin in units.exact)))


def _first_mention(feature: Feature, names: Sequence[str]) -> int:
    """Where a feature is mentioned first, so that columns come as they were asked for."""
    places = [names.index(name) for name in feature.names if name in names]
    return min(places, default=len(names))


def _names(several: Iterable[Sequence[str]]) -> dict[str, None]:
    """Names in order of first mention."""
    return dict.fromkeys(name for names in several for name in names)


def _features(
    plan: Plan,
    declared: tuple[Feature, ...],
    source: Source,
    names: Sequence[str],
    exact: Sequence[Margin],
) -> tuple[list[Feature], tuple[str, ...]]:
    """The features of one kind, and what reading their levels discloses.

    Parameters
    ----------
    plan, declared
        What to publish, and every feature whose levels are declared: computed ones of units too.
    source
        The records of this kind.
    names, exact
        The features that are looked for, and the exact totals that publish levels.
    """
    if not names:
        return [], ()
    depths = {depth for chain in declared for depth in chain.names}
    for name in names:
        # a coarser depth of a declared feature needs no column of its own
        if name not in source.columns() and name not in depths:
            raise no_column(name, source.columns())
    # levels are read as for a plan about records of this kind alone
    table = TableRequest(tuple(names))
    public = [margin for margin in exact if {*margin.names} & {*names}]
    kept = []
    for margin in public:
        in_use = [name for name in margin.names if name in names]
        kept.append(Margin(*in_use))
    part = Plan([table], kept, declared, levels_from_data=plan.levels_from_data, nests=plan.nests)
    schema, disclosures = read_schema(part, source)
    return list(schema.features), disclosures


def _exact(schema: Schema, reader: Reader, margins: Sequence[Margin]) -> Dataspace:
    """What is public about one kind."""
    kept = normalize_margins(schema, margins)
    totals = dict(zip(kept, reader.tables(margin.names for margin in kept), strict=True))
    n = None if kept else reader.table(schema.names[:1]).n
    return Dataspace.from_totals(schema, totals, n)


def linked_needs(
    plan: Plan, scope: Scope, partition: str | None = None, form: Form | None = None
) -> ResourceEstimate:
    """Return what linked tables take, once the levels are known.

    By parts they are put together and fitted in one piece, so that they take the memory of all of
    them; the largest is then that of the cells of one part.
    """
    public = scope.dataspace
    assert isinstance(public, LinkedDataspace)
    request = _get_linked_request(plan)
    sizes, in_part = [], 0
    for dataspace, tables in (
        (public.members, request.members),
        (public.units, request.units),
    ):
        schema = dataspace.schema
        sizes += [schema.restrict(table.features).size for table in tables]
        if partition is not None:
            cut = Cut.from_name(schema, partition)
            in_part += int(count_part_cells(schema, cut, tables).max())
    whole = ResourceEstimate.from_sizes(sizes, form=form)
    return whole if partition is None else replace(whole, largest=in_part)


def _refuse_memory(
    request: LinkedTablesRequest, members: Schema, units: Schema, memory: int | None
) -> None:
    """Refuse tables that do not fit in memory before anything is counted."""
    sizes = [members.restrict(table.features).size for table in request.members]
    sizes += [units.restrict(table.features).size for table in request.units]
    ResourceEstimate.from_sizes(sizes, joint=max(members.size, units.size)).refuse_memory(memory)
