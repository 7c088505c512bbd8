"""The survey: what a plan publishes exactly, read from the data, and the public scope that follows
from it, for one kind of record or for linked ones.

Levels that look alike, or like a total, are pointed out before any charge, since they are probably
mistakes. For linked records two sources are joined, and exact totals of both kinds are read.
Requests with the prefix ``units:`` count units; `with_units` splits a plan by it.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from attrs import evolve

from semidp.errors import (
    AdjacencyUnknown,
    DataError,
    InputError,
    Refused,
    SchemaError,
    did_you_mean,
)
from semidp.promise.exact import list_some
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.branch_noise import Cut
from semidp.promise.schema.features import SIZE, Feature, Nest, list_labels
from semidp.promise.schema.outcome import answered_column
from semidp.promise.schema.schema import Schema, no_column, refuse_cells
from semidp.promise.sensitivity.outcome_spaces import outcome_adjacency, outcome_exchange
from semidp.promise.spaces.adjacency import Adjacency, AdjacencyKind, Ball, Exchange
from semidp.promise.spaces.dataspace import Dataspace, Margin, normalize_margins
from semidp.promise.spaces.linked import (
    LinkedDataspace,
    Quarters,
    linked_adjacency,
    linked_semi_adjacency,
)
from semidp.promise.spaces.protection import Protection
from semidp.promise.spaces.semi_adjacency import SemiAdjacency, exchange_bound, semi_adjacency_bound
from semidp.promise.spaces.structure import even_space
from semidp.publish.level_bins import find_feature, is_ordered
from semidp.publish.plan import AdjacencyChoice, LinkedUnits, Plan, UnitFeature
from semidp.publish.resources import (
    ResourceEstimate,
    count_part_cells,
    estimate_resources,
    part_needs,
)
from semidp.publish.results.columns import Form
from semidp.publish.sources.conditions import quote_column
from semidp.publish.sources.duck import quoted_text
from semidp.publish.sources.linked_records import (
    Joining,
    LinkedData,
    LinkedReader,
    LinkedSource,
    open_linked,
)
from semidp.publish.sources.opening import KEEPS_NOTHING, Source
from semidp.publish.sources.reader import Reader, cut_to_available
from semidp.publish.sources.readings import declared_kinds
from semidp.publish.statistics.tables.asked import COMMAND_PREFIX, TableRequest
from semidp.publish.statistics.tables.linked_request import LinkedTablesRequest
from semidp.publish.witness import semi_adjacency
from semidp.publish.written_values import is_number

_TOTALS = {
    "total",
    "totals",
    "all",
    "overall",
    "sum",
    "gesamt",
    "insgesamt",
    "totaal",
    "totale",
    "ensemble",
}
_TOTAL_WORDS = {"total", "totals", "subtotal", "gesamt", "insgesamt", "zusammen"}
"""Words that make a row of totals of any level that starts or ends with them: "North total"."""
_CODES = {"na", "n/a", "null", "nan", ".", "-", "?", "-9", "-99", "-999"}
_MEASUREMENTS = {"age", "ages", "alter", "year", "years", "weight", "income", "score", "id"}
_SHOWN = 3
_LISTED = 10
_MOST_CODES = 20  # more levels that are numbers are quantities, as a rule


def survey(
    plan: Plan,
    source: Any,
    memory: int | None = None,
    partition: str | None = None,
    jobs: int = 1,
) -> tuple[Scope, Any]:
    """Read what a plan publishes exactly, and return the public scope with a reader of the rest,
    for both kinds of linked records.

    Tables, or parts processed at the same time, that do not fit in memory are refused before
    anything is counted.
    """
    if plan.units is not None:
        return _survey_linked(plan, plan.units, source, memory)
    schema, disclosures = read_schema(plan, source)
    # By parts no table is held whole: `part_needs` refuses a part that is too large.
    tables = () if partition else tuple(table.features for table in plan.tables)
    for names in (*tables, *(margin.names for margin in plan.invariants)):
        if names:
            refuse_cells(schema.restrict(names).shape)
    _question_values(plan, schema)
    reader = Reader(schema, source, plan.features)
    if partition is None:
        estimate_resources(plan, schema).refuse_memory(memory)
    else:
        part_needs(plan, schema, Cut.from_name(schema, partition), jobs).refuse_memory(memory)
    # one query reads all at once; several must be about the same records
    several_queries = plan.id is not None or plan.outcomes or not reader.joint
    if several_queries:
        features = set(plan.names).difference(plan.outcomes)
        other_columns = [name for name in plan.columns if name not in features]
        held = dict.fromkeys((*reader.columns, *other_columns))
        source.hold(tuple(held))
    _check_outcome_levels(plan, schema, source)
    margins = normalize_margins(schema, plan.invariants)
    # Every exact margin adds up to n, so n is counted by itself only if there is none.
    n = reader.table(schema.names[:1]).n if not margins else None
    tables_of_margins = reader.tables(margin.names for margin in margins)
    totals = dict(zip(margins, tables_of_margins, strict=True))
    dataspace = Dataspace.from_totals(schema, totals, n)
    if dataspace.n == 0 and source.where is not None and not source.allow_empty:
        raise DataError(KEEPS_NOTHING)
    scope = public_scope(plan, dataspace)
    return evolve(scope, disclosures=disclosures, persons=source.persons), reader


def public_scope(plan: Plan, dataspace: Dataspace) -> Scope:
    """Return the scope of a plan from published totals alone: no data are needed."""
    declared = {name for chain in plan.chains for name in chain.names}
    said = (
        *formulas(dataspace.schema),
        *lookalikes(dataspace.schema),
        *missing_codes(dataspace.schema, declared),
        *_question_count(plan.count),
        *_question_unordered(plan, dataspace),
    )
    if isinstance(dataspace, LinkedDataspace):
        exchanges = plan.adjacency is AdjacencyChoice.exchange
        kind = AdjacencyKind.exchange if exchanges else AdjacencyKind.ball
        pairs = linked_adjacency(dataspace, kind)
        units = dataspace.units.schema
        said_of_both = dict.fromkeys((*said, *formulas(units), *lookalikes(units)))
        semi = linked_semi_adjacency(dataspace)
        return Scope(dataspace, semi, pairs, (), tuple(said_of_both))
    if plan.adjacency is AdjacencyChoice.exchange:
        exchange = build_exchange(dataspace, bool(plan.outcomes), plan.protection)
        return Scope(dataspace, find_semi_adjacency(dataspace, plan), exchange, (), said)
    stated_a = plan.adjacency if isinstance(plan.adjacency, int) else None
    try:
        semi = find_semi_adjacency(dataspace, plan)
    except AdjacencyUnknown:
        if stated_a is None:
            raise
        stated_ball = Ball(stated_a, plan.protection)
        return Scope(dataspace, None, stated_ball, (), (_warn_unchecked(stated_a), *said))
    a = stated_a if stated_a is not None else semi.bound
    warnings = []
    if plan.adjacency is AdjacencyChoice.definition and semi.definition is not None:
        a = semi.definition
    elif plan.adjacency is AdjacencyChoice.definition:
        warnings.append(
            f"The literal reading of a(t) is not known for these invariants; the worst case a = {a}"
            " is used instead."
        )
    if a < semi.bound:
        sure = "is" if semi.worst_case is not None else "may be as large as"
        warnings.append(
            f"The adjacency a = {a} lies below the worst case, which {sure} {semi.bound}: some"
            " people cannot be confused with every alternative that the published totals allow,"
            " and for them the guarantee says nothing."
        )
    ball = Ball(a, plan.protection)
    return Scope(dataspace, semi, ball, (), (*warnings, *said))


def _warn_unchecked(a: int) -> str:
    return (
        f"The adjacency a = {a} was given and could not be checked against a(t) for these"
        f" invariants; a person who could be confused with others only by moving more than {a}"
        " records is not protected."
    )


def any_totals(plan: Plan, schema: Schema) -> Scope:
    """Return a scope that is safe for all possible totals of the invariants of a plan.

    Its dataspace is that of the table with `a` records in every possible cell. If X and Y of some
    D_t differ in at most `a` records, the difference of their tables takes at most `a` from a cell,
    so it is one of two tables of this dataspace, and they are `a` records apart:
    ``S_a(t) ⊆ S_a(t')`` for every t. The same holds of exchanges, whose carriers are among the at
    most `a` records that differ.

    >>> from semidp.promise.spaces.dataspace import Margin
    >>> schema = Schema([Feature("sex", "fm"), Feature("region", "nsw")])
    >>> scope = any_totals(Plan(invariants=["sex", "region"]), schema)
    >>> scope.adjacency.a, scope.dataspace.value(Margin("sex")).counts.tolist()
    (3, [9, 9])
    """
    stated_a = plan.adjacency if isinstance(plan.adjacency, int) else None
    if plan.adjacency is AdjacencyChoice.exchange:
        exchange = exchange_bound(schema, plan.invariants, plan.protection)
        stated_a = max(exchange.a, exchange.times)
    try:
        semi: SemiAdjacency | None = semi_adjacency_bound(schema, plan.invariants, plan.protection)
        warnings: tuple[str, ...] = ()
    except AdjacencyUnknown:
        if stated_a is None:
            raise
        semi, warnings = None, (_warn_unchecked(stated_a),)
    a = stated_a if stated_a is not None else semi.bound if semi is not None else 1
    if semi is not None and a < semi.bound:
        warnings = (
            (
                f"The adjacency a = {a} lies below {semi.bound}, which suffices for all totals of"
                " these margins."
            ),
        )
    refuse_cells(schema.shape)
    space = even_space(schema, plan.invariants, a)
    adjacency: Adjacency = Ball(a, plan.protection)
    if plan.adjacency is AdjacencyChoice.exchange:
        adjacency = build_exchange(space, bool(plan.outcomes), plan.protection)
    said = (*warnings, *formulas(schema), *lookalikes(schema))
    return Scope(space, semi, adjacency, (), said)


def build_exchange(
    dataspace: Dataspace, outcomes: bool, protection: Protection | None = None
) -> Adjacency:
    """Return the exchanges of records that may carry an unpublished outcome."""
    if isinstance(dataspace, LinkedDataspace):
        return linked_adjacency(dataspace, AdjacencyKind.exchange)
    if outcomes:
        return outcome_exchange(dataspace, protection)
    return Exchange.from_dataspace(dataspace, protection)


def find_semi_adjacency(dataspace: Dataspace, plan: Plan) -> SemiAdjacency:
    """Return a(t) of the records of a plan: at least 1 if they carry an unpublished
    outcome.
    """
    if isinstance(dataspace, LinkedDataspace):
        return linked_semi_adjacency(dataspace)
    adjacency_found = semi_adjacency(dataspace, plan.protection)
    if adjacency_found.bound or not plan.outcomes or not dataspace.n:
        return adjacency_found
    alone = outcome_adjacency(dataspace, plan.protection).a
    return SemiAdjacency(alone, alone, alone, "the exact totals fix all but the outcome")


def read_schema(plan: Plan, source: Source) -> tuple[Schema, tuple[str, ...]]:
    """Return the schema of every feature in use, and the disclosures from reading levels in the
    data.

    Nested features reach down to the finest depth in use. Their levels, and where those lie, are
    public where an invariant publishes that depth.
    """
    owners: dict[str, Feature | Nest] = {}
    for part in plan.chains:
        owners |= dict.fromkeys(part.names, part)
    public = {name for margin in plan.invariants for name in margin.names}
    # the position of the finest depth in use, by the name of the feature
    finest: dict[str, int] = {}
    for name in plan.names:
        owner = owners.get(name)
        feature_name = name if owner is None else owner.name
        position = 0 if owner is None else owner.names.index(name)
        finest[feature_name] = max(finest.get(feature_name, 0), position)
    hidden: list[str] = []
    source_columns = source.columns()
    for feature_name, position in finest.items():
        owner = owners.get(feature_name)
        depths = (feature_name,) if owner is None else owner.names
        if isinstance(owner, Feature):
            cut_to_available(owner, depths[position], source_columns)
            continue
        for column in depths[: position + 1]:
            if column not in source_columns:
                raise no_column(column, source_columns)
        # An exact total at this depth publishes its levels. Otherwise a level that is listed would
        # tell that somebody has it.
        if public.isdisjoint(depths[position:]):
            hidden.append(depths[position])
    if hidden and not plan.levels_from_data:
        needed = "nested levels" if hidden[0] in owners else "levels"
        raise SchemaError(
            f"the levels of {', '.join(hidden)} are not public: declare them, publish their counts"
            " exactly, or have them read from the data, which discloses them",
            needs=needed,
            names=tuple(hidden),
        )
    # Levels are read from here on only: a plan that must not disclose them was refused above.
    features: list[Feature] = []
    read: list[Feature] = []
    for feature_name, position in finest.items():
        owner = owners.get(feature_name)
        if isinstance(owner, Feature):
            features.append(owner.cut_to_depth(position + 1))
        elif owner is None:
            features.append(Feature(feature_name, source.levels(feature_name)))
            read.append(features[-1])
        elif position == 0:
            coarsest = owner.names[0]
            levels = source.levels(coarsest)
            features.append(Feature(coarsest, levels, null_level=owner.null_level))
        else:
            cut = evolve(owner, names=owner.names[: position + 1])
            features.append(cut.feature(source.paths(cut.names, cut.null_level)))
    _refuse_totals(read, plan.where)
    features = [_above_outcomes(feature, owners, plan) for feature in features]
    declared_names = {name for feature in features for name in feature.names}
    zeros = []
    for zero in plan.structural_zeros:
        if all(name in declared_names for name, _ in zero.levels):
            zeros.append(zero)
    nested = {feature.name for feature in features if len(feature.names) > 1}
    disclosures = []
    for name in hidden:
        and_places = " and where they lie" if name in nested else ""
        disclosures.append(
            f"The list of levels of {name}{and_places} was read from the data and is published"
            " without protection."
        )
    return Schema(tuple(features), tuple(zeros)), tuple(disclosures)


def _question_values(plan: Plan, schema: Schema) -> None:
    """Refuse the proportion of a value that is not among the known levels of its column."""
    levels_by_column = {
        feature.name: feature.levels for feature in (*plan.features, *schema.features)
    }
    for column, value in plan.value_shares:
        levels = levels_by_column.get(column, (value,))
        if value not in levels:
            raise DataError(
                f"{value!r} is not a level of {column}{did_you_mean(value, levels)}; its levels are"
                f" {', '.join(levels[:_LISTED])}: ask for the proportion of one of these"
            )


def _refuse_totals(features: Iterable[Feature], where: str | None) -> None:
    """Refuse rows that add up others, as the levels that were read show them."""
    totals_by_feature = {feature.name: _find_totals(feature.levels) for feature in features}
    named = {name: totals for name, totals in totals_by_feature.items() if totals}
    if not named:
        return
    conditions = [] if where is None else [f"({where})"]
    for name, totals in named.items():
        column = quote_column(name)
        conditions += [f"{column} <> {quoted_text(total)}" for total in totals]
    first = next(iter(named))
    raise DataError(
        f"a level of {first} is called {named[first][0]!r}, and a row that adds up others would"
        f" count people twice: leave such rows out with ⟨where {' AND '.join(conditions)}⟩, or"
        f" declare the levels of {first}"
    )


def _find_totals(levels: Sequence[str]) -> list[str]:
    """Return the levels that are called a total."""
    # A feature with the levels "all" and "none" has no row that adds up others: two more make one
    # likely.
    if len(levels) < 3:
        return []
    return [level for level in levels if _is_total(level.strip().casefold())]


def _is_total(name: str) -> bool:
    words = re.findall(r"[^\W\d_]+", name) or [""]
    return name in _TOTALS or not _TOTAL_WORDS.isdisjoint((words[0], words[-1]))


def _question_count(count: str | None) -> tuple[str, ...]:
    """Point out a count column whose name is that of a measurement.

    >>> _question_count("Age")
    ("The count column is 'Age': each row stands for that many records. If a row is one record,
    leave count out.",)
    >>> _question_count("people")
    ()
    """
    words = re.findall(r"[^\W\d_]+", (count or "").casefold())
    if _MEASUREMENTS.isdisjoint(words):
        return ()
    return (
        f"The count column is {count!r}: each row stands for that many records. If a row is one"
        " record, leave count out.",
    )


def _question_unordered(plan: Plan, dataspace: Dataspace | LinkedDataspace) -> tuple[str, ...]:
    """Point out columns of microdata with many numbers for levels and no order."""
    if plan.microdata is None:
        return ()
    names = []
    for name in plan.microdata.columns:
        feature = find_feature(dataspace.schema, name)
        many = len(feature.levels) > _MOST_CODES and all(map(is_number, feature.levels))
        if many and not is_ordered(plan.microdata, feature):
            names.append(name)
    if not names:
        return ()
    listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return (
        f"The levels of {listed} are numbers whose order was not declared. If they are quantities,"
        " records come closer once they are declared to be ordered, or have bins.",
    )


def missing_codes(schema: Schema, declared: Collection[str]) -> tuple[str, ...]:
    """Point out levels that usually stand for a missing value, unless their feature is declared.

    >>> missing_codes(Schema([Feature("ill", ["y", "n", "NA"])]), ())
    ("A level of ill is called 'NA': if that stands for a missing value, set na=NA.",)
    """
    said = []
    for feature in schema.features:
        codes = [level for level in feature.levels if level.strip().casefold() in _CODES]
        if feature.name in declared or not codes:
            continue
        said.append(
            f"A level of {feature.name} is called {codes[0]!r}: if that stands for a missing value,"
            f" set na={','.join(codes)}."
        )
    return tuple(said)


def _above_outcomes(feature: Feature, owners: Mapping[str, Feature | Nest], plan: Plan) -> Feature:
    """Return a nested feature that knows its finer levels, which may be outcomes: of this plan, or
    of another release in the same ledger.
    """
    owner = owners.get(feature.name)
    if owner is None:
        return feature
    readings = dict(plan.read_as)
    outcomes = {
        column if column in owners else column.partition("=")[0] for column in plan.outcomes
    }
    for depth, name in enumerate(owner.names, start=1):
        if name in feature.names:
            continue
        below = None
        # only a plan with the outcome checks its levels, and whoever did not answer has none
        if (
            isinstance(owner, Feature)
            and name in outcomes
            and answered_column(name) not in readings
        ):
            below = owner.cut_to_depth(depth)
        feature = feature.above_outcome(name, below)
    return feature


def _check_outcome_levels(plan: Plan, schema: Schema, source: Source) -> None:
    """Refuse records whose outcome is no declared level below their published one: what exchanges
    cost rests on these levels.
    """
    from_data = {name for feature in schema.features for name, labels in feature.finer if labels}
    for feature in plan.features:
        for depth, name in enumerate(feature.names, start=1):
            if name in from_data:
                source.counts(Schema([feature.cut_to_depth(depth)]))


def formulas(schema: Schema) -> tuple[str, ...]:
    """Warn of levels and names that a spreadsheet would read as a formula in a published
    CSV file.

    >>> formulas(Schema([Feature("sex", ["f", "m"]), Feature("change", ["-1", "+1"])]))
    ()
    >>> print(*formulas(Schema([Feature("sex", ["=1+1", "m"])])))
    A spreadsheet may take '=1+1' in the published CSV files for a formula: import them as text, or
    rename the level.
    """
    words: list[str] = []
    for feature in schema.features:
        words += [feature.name, *feature.levels]
    starts = ("=", "+", "-", "@", "\t", "\r")
    risky = [word for word in words if word.startswith(starts) and not is_number(word)]
    if not risky:
        return ()
    and_more = f" and {len(risky) - 1} more" if len(risky) > 1 else ""
    return (
        (
            f"A spreadsheet may take {risky[0][:40]!r}{and_more} in the published CSV files for a"
            " formula: import them as text, or rename the level."
        ),
    )


def lookalikes(schema: Schema) -> tuple[str, ...]:
    """Warn of levels of one feature that look the same to a reader, and of a level that is called a
    total.

    Levels are declared, published or disclosed, so they may be quoted.

    >>> for sentence in lookalikes(
    ...     Schema([Feature("region", ["north", " north", "1", "1.0", "Total"])])
    ... ):
    ...     print(sentence)
    Levels of region look alike: ' north' and 'north', '1' and '1.0'; perhaps one of each is a
    typing error.
    A level of region is called 'Total': a row that adds up others would count people twice.
    >>> lookalikes(Schema([Feature("sex", ["f", "m"]), Feature("code", ["01", "1a"])]))
    ()
    """
    said = []
    for feature in schema.features:
        for name, levels in _levels_by_depth(feature):
            pairs = _alike(levels)
            if pairs:
                quoted = [f"{one[:40]!r} and {other[:40]!r}" for one, other in pairs]
                said.append(
                    f"Levels of {name} look alike: {list_some(quoted, _SHOWN)}; perhaps one of each"
                    " is a typing error."
                )
            totals = _find_totals(levels)
            if totals:
                said.append(
                    f"A level of {name} is called {totals[0]!r}: a row that adds up others would"
                    " count people twice."
                )
    return tuple(said)


def _levels_by_depth(feature: Feature) -> list[tuple[str, tuple[str, ...]]]:
    """Return the distinct labels at each depth of a feature."""
    levels: list[tuple[str, tuple[str, ...]]] = []
    for name, column in zip(feature.names, list_labels(feature), strict=True):
        levels.append((name, tuple(dict.fromkeys(column))))
    return levels


@lru_cache(maxsize=8)  # asked before the charge and for the report
def _alike(levels: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return pairs of levels that a reader would take for the same, the first two of each group."""
    groups: dict[object, list[str]] = {}
    for level in levels:
        groups.setdefault(_normalize_level(level), []).append(level)
    pairs = []
    for group in groups.values():
        if len(group) > 1:
            first, second = sorted(group[:2])
            pairs.append((first, second))
    return pairs


def _normalize_level(level: str) -> object:
    """Return what a reader sees of a level: a number, or its words without capitals and spare
    spaces.
    """
    words = " ".join(level.split()).casefold()
    # A code keeps its zeros: 01 and 1 may well be two places.
    digits = words.lstrip("+-")
    has_leading_zero = digits[:1] == "0" and digits[1:2].isdigit()
    if has_leading_zero:
        return words
    try:
        return float(words)
    except ValueError:
        return words


MEMBER_SHARE, UNIT_SHARE = "tables", f"{COMMAND_PREFIX}tables"
"""The names of tables of members and of units in a division of the budget."""


def with_units(
    plan: Plan,
    units: LinkedUnits,
    shares: Mapping[str, Fraction] | None = None,
    top_code: Mapping[str, Any] | None = None,
) -> Plan:
    """Return a plan for linked records, from one whose unit tables and unit totals have the
    prefix ``units:``.

    Parameters
    ----------
    plan
        What is asked for.
    units
        How members are linked to units.
    shares
        The parts of the budget for ``"tables"`` (of members) and ``"units:tables"``; by need if
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
    # the levels of computed features are declared next to the others, and belong to them
    computed = {part.name for part in units.features}
    features = [feature for feature in plan.features if feature.name not in computed]
    return evolve(plan, requests=[request], invariants=invariants, units=linked, features=features)


def _unit_share(shares: Mapping[str, Fraction]) -> Fraction | None:
    """The part of the budget for tables of units (default: 1 each), None if no share is."""
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
        Both sources, or only that of members if the plan names the source of units.
    """
    if not isinstance(data, LinkedData) and units.source is not None:
        data = LinkedData(data, units.source)
    if not isinstance(data, LinkedData):
        raise InputError("the plan has units, so it needs two sources: give the units too")
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


def _survey_linked(
    plan: Plan, linked: LinkedUnits, source: LinkedSource, memory: int | None
) -> tuple[Scope, LinkedReader]:
    """Read the same of members and units, whose sources are joined."""
    link = linked.bounds
    request = _get_linked_request(plan)
    of_members, of_units = _names_of_members(plan), _names_of_units(plan, linked)
    declared = (*plan.features, *(part.feature for part in linked.features))
    for name in of_members:
        if name in link.derived:
            raise Refused(
                f"{name!r} is derived from the members of a unit, so no table of members has it"
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
    return evolve(public_scope(plan, public), disclosures=disclosures), readers


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
    """Where a feature is mentioned first, so columns come as they were asked for."""
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
    """Estimate the resources of linked tables, once the levels are known.

    By parts they are assembled and fitted in one piece, so they take the memory of all of
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
    return whole if partition is None else evolve(whole, largest=in_part)


def _refuse_memory(
    request: LinkedTablesRequest, members: Schema, units: Schema, memory: int | None
) -> None:
    """Refuse tables that do not fit in memory before anything is counted."""
    sizes = [members.restrict(table.features).size for table in request.members]
    sizes += [units.restrict(table.features).size for table in request.units]
    ResourceEstimate.from_sizes(sizes, joint=max(members.size, units.size)).refuse_memory(memory)
