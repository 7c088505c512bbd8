"""What is public about a release before any noise is drawn, and the reader of the confidential counts behind it.

A `Scope` holds public values only: the schema, the published totals t, a(t), the adjacency. A `Reader` counts and sums
records; what it returns leaves this package only through a mechanism.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from semidp.engines import KEEPS_NOTHING, Outcome, Source
from semidp.errors import AdjacencyUnknown, DataError, SchemaError
from semidp.grouped import check_binary, read_histogram
from semidp.queries import outcome_exchange
from semidp.queries.branches import Cut
from semidp.release.needs import needs_of, part_needs
from semidp.release.plan import Plan, Reading
from semidp.spaces import (
    Adjacency,
    Dataspace,
    SemiAdjacency,
    even_space,
    exchange_bound,
    normalised,
    semi_adjacency,
    semi_adjacency_bound,
)
from semidp.tables import Feature, Nest, Schema, Table, no_column, refuse_cells

_JOINT_CELLS = 2**24  # up to here one scan fills the joint table, and every margin is summed from it


@dataclass(frozen=True)
class Scope:
    """What is known publicly about a release before any noise is drawn.

    Parameters
    ----------
    dataspace
        D_t: every dataset that agrees with the published values.
    semi_adjacency
        Both readings of a(t) with their witness; None where only the caller's number is known.
    adjacency
        The relation that the mechanisms protect.
    disclosures
        What the release reveals beside its invariants and its mechanisms.
    warnings
        What a reader of the report must know.

    Examples
    --------
    >>> import semidp
    >>> plan = semidp.Plan([semidp.TableRequest(["sex", "region"], semidp.Budget.gdp(1))], ["sex", "region"])
    >>> scope = semidp.prepare(plan, {"sex": ["f", "m"], "region": ["n", "s"]}).scope
    >>> scope.adjacency.a, scope.dataspace.summary()
    (2, 'sex, region')
    """

    dataspace: Dataspace
    semi_adjacency: SemiAdjacency | None
    adjacency: Adjacency
    disclosures: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def adjacency_json(self) -> dict[str, Any]:
        """Return the adjacency used beside both readings of a(t), as plain values."""
        semi = self.semi_adjacency
        unknown = {"worst_case": None, "definition": None, "bound": None, "method": "given, not checked"}
        kind = {"kind": str(self.adjacency.kind)} if self.adjacency.is_exchange else {}
        return {"used": self.adjacency.a, **kind, **(semi.to_json() if semi else unknown)}


@dataclass(frozen=True)
class Reader:
    """The confidential counts and sums of a source over any features of a schema.

    Counts come from one joint table where that is small; else those that are wanted together are read together.
    """

    schema: Schema
    source: Source
    declared: tuple[Feature, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read for the features."""
        there = self.source.columns()
        parts = self._readable(self.schema.names).features
        return tuple(name for feature in parts for name in feature.names if name in there)

    @property
    def joint(self) -> bool:
        """Whether one query reads all counts."""
        return self.schema.grid.holds(_JOINT_CELLS) or bool(self.schema.structural_zeros)

    def table(self, features: Iterable[str]) -> Table:
        """Return the counts over some features."""
        names = tuple(features)
        return (self._whole if self.joint else self.source.counts(self._readable(names))).margin(names)

    def tables(self, features: Iterable[Iterable[str]]) -> list[Table]:
        """Return the counts over several sets of features, read together."""
        wanted = [tuple(names) for names in features]
        if self.joint:
            return [self._whole.margin(names) for names in wanted]
        found = self.source.tables([self._readable(names) for names in wanted])
        return [table.margin(names) for table, names in zip(found, wanted, strict=True)]

    def check_binary(self, column: str) -> None:
        """Refuse a column that holds anything but zeros and ones."""
        check_binary(self.source, column)

    def sums(self, features: Iterable[str], outcome: Outcome) -> NDArray[np.int64]:
        """Return the sums of an outcome over some features (over all records if none), in steps of its grid."""
        names = tuple(features)
        schema = self._readable(names or self.schema.names[:1])
        found = self.source.sums(schema, outcome)
        if not names:
            return np.array([found.sum()])
        return schema.grid.sum(found, schema.view(names)).reshape(self.schema.restrict(names).shape)

    def histogram(self, features: Iterable[str], outcome: Outcome) -> NDArray[np.int64]:
        """Return how many records of each group have each step of an outcome's grid, a row a group."""
        names = tuple(features)
        schema = self._readable(names)
        cells = read_histogram(self.source, schema, schema.names, outcome)
        table = cells.reshape((*schema.shape, -1))
        view = (*schema.view(names), 1)
        steps = Schema((*schema.features, Feature(outcome.column, [str(step) for step in range(outcome.steps + 1)])))
        return steps.grid.sum(table, view).reshape(-1, outcome.steps + 1)

    @cached_property
    def _whole(self) -> Table:
        return self.source.counts(self._readable(self.schema.names)).margin(self.schema.names)

    def _readable(self, names: Iterable[str]) -> Schema:
        """Return the schema of some features at depths that the data hold: a finer one where a column is missing."""
        part = self.schema.restrict(names)
        whole = {name: feature for feature in self.declared for name in feature.names}
        there = self.source.columns()
        return Schema(
            tuple(at_hand(whole.get(feature.name, feature), feature.name, there) for feature in part.features),
            part.structural_zeros,
        )


def survey(
    plan: Plan, source: Source, memory: int | None = None, partition: str | None = None, jobs: int = 1
) -> tuple[Scope, Reader]:
    """Read what a plan publishes exactly, and return the public scope with a reader of the rest.

    What does not fit in memory is refused before anything is counted: whole tables, or so many parts at a time.
    """
    schema, disclosures = schema_of(plan, source)
    tables = () if partition else tuple(request.features for request in plan.all_tables)
    for names in (*tables, *(margin.names for margin in plan.invariants)):
        if names:
            refuse_cells(schema.restrict(names).shape)
    reader = Reader(schema, source, plan.features)
    if partition is None:
        needs_of(plan, schema, joint=reader.joint).refuse_memory(memory)
    else:
        part_needs(plan, schema, Cut.at(schema, partition), jobs).refuse_memory(memory)
    if plan.id is not None or plan.outcomes or not reader.joint:  # else one query reads all
        others = [name for name in plan.columns if name not in plan.names or name in plan.outcomes]
        source.hold(tuple(dict.fromkeys((*reader.columns, *others))))
    margins = normalised(schema, plan.invariants)
    n = reader.table(schema.names[:1]).n if not margins else None
    totals = zip(margins, reader.tables(margin.names for margin in margins), strict=True)
    dataspace = Dataspace.known(schema, dict(totals), n)
    if dataspace.n == 0 and source.where is not None and not source.allow_empty:
        raise DataError(KEEPS_NOTHING)
    return replace(announced(plan, dataspace), disclosures=disclosures), reader


def announced(plan: Plan, dataspace: Dataspace) -> Scope:
    """Return the scope of a plan from published totals alone: no data are needed."""
    assert dataspace.schema is not None
    said = formulas(dataspace.schema)
    if plan.adjacency is Reading.exchange:
        return Scope(dataspace, semi_of(dataspace, plan), exchange_of(dataspace, bool(plan.outcomes)), (), said)
    given = plan.adjacency if isinstance(plan.adjacency, int) else None
    try:
        semi = semi_of(dataspace, plan)
    except AdjacencyUnknown:
        if given is None:
            raise
        return Scope(dataspace, None, Adjacency(given), (), (_unchecked(given), *said))
    a = given if given is not None else semi.bound
    warnings = []
    if plan.adjacency is Reading.definition and semi.definition is not None:
        a = semi.definition
    elif plan.adjacency is Reading.definition:
        warnings.append(
            f"The literal reading of a(t) is not known for these invariants; the worst case a = {a} is used instead."
        )
    if a < semi.bound:
        sure = "is" if semi.worst_case is not None else "may be as large as"
        warnings.append(
            f"The adjacency a = {a} lies below the worst case, which {sure} {semi.bound}: some people "
            "cannot be confused with every alternative that the published totals allow, and for them the guarantee "
            "says nothing."
        )
    return Scope(dataspace, semi, Adjacency(a), (), (*warnings, *said))


def _unchecked(a: int) -> str:
    return (
        f"The adjacency a = {a} was given and could not be checked against a(t) for these invariants; a person "
        f"who could be confused with others only by moving more than {a} records is not protected."
    )


def any_totals(plan: Plan, schema: Schema) -> Scope:
    """Return a scope that is on the safe side of all totals which the invariants of a plan may turn out to have.

    Its dataspace is that of the table with `a` records in every possible cell. If X and Y of some D_t differ in at most
    `a` records, the difference of their tables takes at most `a` from a cell, so that it is one of two tables of this
    dataspace, and they are `a` records apart: ``S_a(t) ⊆ S_a(t')`` for every t. The same holds of exchanges, whose
    carriers are among the at most `a` records that differ.

    >>> from semidp.spaces import Margin
    >>> schema = Schema([Feature("sex", "fm"), Feature("region", "nsw")])
    >>> scope = any_totals(Plan(invariants=["sex", "region"]), schema)
    >>> scope.adjacency.a, scope.dataspace.value(Margin("sex")).counts.tolist()
    (3, [9, 9])
    """
    given = plan.adjacency if isinstance(plan.adjacency, int) else None
    if plan.adjacency is Reading.exchange:
        given = max(exchange_bound(schema, plan.invariants).a, 1)
    try:
        semi: SemiAdjacency | None = semi_adjacency_bound(schema, plan.invariants)
        warnings: tuple[str, ...] = ()
    except AdjacencyUnknown:
        if given is None:
            raise
        semi, warnings = None, (_unchecked(given),)
    a = given if given is not None else semi.bound if semi is not None else 1
    if semi is not None and a < semi.bound:
        warnings = (f"The adjacency a = {a} lies below {semi.bound}, which suffices for all totals of these margins.",)
    refuse_cells(schema.shape)
    space = even_space(schema, plan.invariants, a)
    adjacency = exchange_of(space, bool(plan.outcomes)) if plan.adjacency is Reading.exchange else Adjacency(a)
    return Scope(space, semi, adjacency, (), (*warnings, *formulas(schema)))


def exchange_of(dataspace: Dataspace, outcomes: bool) -> Adjacency:
    """Return the exchanges of records that may carry an unpublished outcome."""
    return outcome_exchange(dataspace) if outcomes else Adjacency.exchange(dataspace)


def semi_of(dataspace: Dataspace, plan: Plan) -> SemiAdjacency:
    """Return a(t) of the records that a plan is about: at least 1 where they carry an unpublished outcome."""
    found = semi_adjacency(dataspace)
    if found.bound or not plan.outcomes or not dataspace.n:
        return found
    return SemiAdjacency(1, 1, 1, "the exact totals fix all but the outcome")


def schema_of(plan: Plan, source: Source) -> tuple[Schema, tuple[str, ...]]:
    """Return the schema of every feature in use, and what reading levels from the data discloses.

    Nested features reach down to the finest depth in use. Their levels, and where those lie, are public where an
    invariant publishes that depth.
    """
    owners: dict[str, Feature | Nest] = {name: part for part in plan.chains for name in part.names}
    public = {name for margin in plan.invariants for name in margin.names}
    finest: dict[str, int] = {}  # the position of the finest depth in use, by the name of the feature
    for name in plan.names:
        owner = owners.get(name)
        own, position = (name, 0) if owner is None else (owner.name, owner.names.index(name))
        finest[own] = max(finest.get(own, 0), position)
    wanted = [(owners.get(own), own, position) for own, position in finest.items()]
    hidden, features, there = [], [], source.columns()
    for owner, own, position in wanted:
        depths = (own,) if owner is None else owner.names
        if isinstance(owner, Feature):
            at_hand(owner, depths[position], there)
            continue
        for column in depths[: position + 1]:
            if column not in there:
                raise no_column(column, there)
        hidden += [] if public & {*depths[position:]} else [depths[position]]
    if hidden and not plan.levels_from_data:
        raise SchemaError(
            f"the levels of {', '.join(hidden)} are not public: declare them, publish their counts exactly, or have "
            "them read from the data, which discloses them",
            needs="nested levels" if hidden[0] in owners else "levels",
            names=tuple(hidden),
        )
    for owner, own, position in wanted:
        if isinstance(owner, Feature):
            features.append(owner.at(position + 1))
        elif owner is None:
            features.append(Feature(own, source.levels(own)))
        elif position == 0:
            features.append(Feature(owner.names[0], source.levels(owner.names[0]), null_level=owner.null_level))
        else:
            cut = evolve(owner, names=owner.names[: position + 1])
            features.append(cut.feature(source.paths(cut.names, cut.null_level)))
    known = {name for feature in features for name in feature.names}
    zeros = [zero for zero in plan.structural_zeros if {name for name, _ in zero.levels} <= known]
    nested = {feature.name for feature in features if len(feature.names) > 1}
    disclosures = tuple(
        f"The list of levels of {name}{' and where they lie' if name in nested else ''} was read from the data and is "
        "published without protection."
        for name in hidden
    )
    return Schema(tuple(features), tuple(zeros)), disclosures


def at_hand(feature: Feature, name: str, columns: Sequence[str]) -> Feature:
    """Return a declared feature cut at the depth of a name, or at the next finer one that the data hold."""
    first = feature.names.index(name)
    for depth, finer in enumerate(feature.names[first:], start=first + 1):
        if finer in columns:
            return feature.at(depth)
    raise no_column(name, columns)


def formulas(schema: Schema) -> tuple[str, ...]:
    """Warn of levels and names that a spreadsheet would take for a formula when it opens a published CSV file.

    >>> formulas(Schema([Feature("sex", ["f", "m"]), Feature("change", ["-1", "+1"])]))
    ()
    >>> print(*formulas(Schema([Feature("sex", ["=1+1", "m"])])))
    A spreadsheet may take '=1+1' in the published CSV files for a formula: import them as text, or rename the level.
    """
    words = [word for feature in schema.features for word in (feature.name, *feature.levels)]
    found = [word for word in words if word.startswith(("=", "+", "-", "@", "\t", "\r")) and not _is_number(word)]
    if not found:
        return ()
    others = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return (
        f"A spreadsheet may take {found[0][:40]!r}{others} in the published CSV files for a formula: import them as "
        "text, or rename the level.",
    )


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
