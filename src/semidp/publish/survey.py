"""The survey: what a plan publishes exactly, read from the data, and the public scope that follows
from it.

Levels that look alike, or like a total, are pointed out before anything is charged, since they are
slips, likely.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from attrs import evolve

from semidp.errors import AdjacencyUnknown, DataError, SchemaError, did_you_mean
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.branch_noise import Cut
from semidp.promise.schema.features import Feature, Nest
from semidp.promise.schema.outcome import answered_column
from semidp.promise.schema.schema import Schema, no_column, refuse_cells
from semidp.promise.sensitivity.outcome_spaces import outcome_adjacency, outcome_exchange
from semidp.promise.spaces.adjacency import Adjacency, AdjacencyKind, Ball, Exchange
from semidp.promise.spaces.dataspace import Dataspace, normalize_margins
from semidp.promise.spaces.linked import LinkedDataspace, linked_adjacency, linked_semi_adjacency
from semidp.promise.spaces.protection import Protection
from semidp.promise.spaces.semi_adjacency import (
    SemiAdjacency,
    exchange_bound,
    semi_adjacency,
    semi_adjacency_bound,
)
from semidp.promise.spaces.structure import even_space
from semidp.publish.plan import AdjacencyChoice, Plan
from semidp.publish.resources import estimate_resources, part_needs
from semidp.publish.sources.conditions import quote_column
from semidp.publish.sources.duck import quoted_text
from semidp.publish.sources.opening import KEEPS_NOTHING, Source
from semidp.publish.sources.reader import Reader, cut_to_available
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
_CODES = {"na", "n/a", "null", "nan", ".", "-", "?", "-9", "-99", "-999"}
_MEASUREMENTS = {"age", "ages", "alter", "year", "years", "weight", "income", "score", "id"}
_SHOWN = 3
_LISTED = 10


def survey(
    plan: Plan,
    source: Source,
    memory: int | None = None,
    partition: str | None = None,
    jobs: int = 1,
) -> tuple[Scope, Reader]:
    """Read what a plan publishes exactly, and return the public scope with a reader of the rest.

    What does not fit in memory is refused before anything is counted: whole tables, or so many
    parts at a time.
    """
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
    # Every exact margin adds up to n, so that n is counted by itself only where there is none.
    n = reader.table(schema.names[:1]).n if not margins else None
    tables_of_margins = reader.tables(margin.names for margin in margins)
    totals = dict(zip(margins, tables_of_margins, strict=True))
    dataspace = Dataspace.from_totals(schema, totals, n)
    if dataspace.n == 0 and source.where is not None and not source.allow_empty:
        raise DataError(KEEPS_NOTHING)
    scope = public_scope(plan, dataspace)
    return replace(scope, disclosures=disclosures, persons=source.persons), reader


def public_scope(plan: Plan, dataspace: Dataspace) -> Scope:
    """Return the scope of a plan from published totals alone: no data are needed."""
    declared = {name for chain in plan.chains for name in chain.names}
    said = (
        *formulas(dataspace.schema),
        *lookalikes(dataspace.schema),
        *missing_codes(dataspace.schema, declared),
        *_question_count(plan.count),
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
    """Return a scope that is safe for all totals which the invariants of a plan may have.

    Its dataspace is that of the table with `a` records in every possible cell. If X and Y of some
    D_t differ in at most `a` records, the difference of their tables takes at most `a` from a cell,
    so that it is one of two tables of this dataspace, and they are `a` records apart:
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
    """Return a(t) of the records that a plan is about: at least 1 where they carry an unpublished
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
    """Return the schema of every feature in use, and what reading levels from the data discloses.

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
    return [level for level in levels if level.strip().casefold() in _TOTALS]


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


def missing_codes(schema: Schema, declared: Collection[str]) -> tuple[str, ...]:
    """Point out levels that usually stand for a missing value, unless their feature is declared.

    >>> missing_codes(Schema([Feature("ill", ["y", "n", "NA"])]), ())
    ("A level of ill is called 'NA': if that stands for a missing value, declare it with na=NA.",)
    """
    said = []
    for feature in schema.features:
        codes = [level for level in feature.levels if level.strip().casefold() in _CODES]
        if feature.name in declared or not codes:
            continue
        said.append(
            f"A level of {feature.name} is called {codes[0]!r}: if that stands for a missing value,"
            f" declare it with na={','.join(codes)}."
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
    """Warn of levels and names that a spreadsheet would take for a formula when it opens a
    published CSV file.

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

    Levels are declared, published or disclosed, so that they may be quoted.

    >>> for sentence in lookalikes(
    ...     Schema([Feature("region", ["north", " north", "1", "1.0", "Total"])])
    ... ):
    ...     print(sentence)
    Levels of region look alike: ' north' and 'north', '1' and '1.0'; one of each is a slip,
    perhaps.
    A level of region is called 'Total': a row that adds up others would count people twice.
    >>> lookalikes(Schema([Feature("sex", ["f", "m"]), Feature("code", ["01", "1a"])]))
    ()
    """
    said = []
    for feature in schema.features:
        for name, levels in _levels_by_depth(feature):
            pairs = _alike(levels)
            if pairs:
                unshown = len(pairs) - _SHOWN
                left = f" and {unshown:,} more pairs" if unshown > 0 else ""
                first_pairs = pairs[:_SHOWN]
                shown = ", ".join(f"{one[:40]!r} and {other[:40]!r}" for one, other in first_pairs)
                said.append(
                    f"Levels of {name} look alike: {shown}{left}; one of each is a slip, perhaps."
                )
            totals = _find_totals(levels)
            if totals:
                said.append(
                    f"A level of {name} is called {totals[0]!r}: a row that adds up others would"
                    " count people twice."
                )
    return tuple(said)


def _levels_by_depth(feature: Feature) -> list[tuple[str, Sequence[str]]]:
    """Return the distinct labels at each depth of a feature."""
    columns: Iterable[Sequence[str]] = zip(*feature.paths(), strict=True)
    levels: list[tuple[str, Sequence[str]]] = []
    for name, column in zip(feature.names, columns, strict=True):
        levels.append((name, tuple(dict.fromkeys(column))))
    return levels


def _alike(levels: Sequence[str]) -> list[tuple[str, str]]:
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
