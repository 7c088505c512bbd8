"""Reading the data for a plan: the schema, the public values t, a(t), and the confidential tables.

What comes back is in two parts: a `Scope`, every bit of which is public or will be published, and the confidential
tables themselves, which leave this package only through a mechanism.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.engines import Source
from semidp.errors import AdjacencyUnknown, InputError, SchemaError
from semidp.grouped import check_binary, read_sums, sum_space
from semidp.invariants import Adjacency, Dataspace, Margin, SemiAdjacency, normalised, semi_adjacency
from semidp.release.plan import Plan, Reading
from semidp.release.requests import Statistic
from semidp.sensitivity import SensitivitySpace, sensitivity_space
from semidp.tables import Feature, Schema, Table, no_column

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
    >>> from semidp.engines import open_source
    >>> from semidp.release import TableRequest
    >>> plan = Plan([TableRequest(["sex", "region"])], [Margin("sex"), Margin("region")])
    >>> with open_source({"sex": ["f", "m"], "region": ["n", "s"]}) as source:
    ...     scope = survey(plan, source).scope
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
        return {"used": self.adjacency.a, **(semi.to_json() if semi else unknown)}

    def space(self, features: tuple[str, ...]) -> SensitivitySpace:
        """Return the sensitivity space of the table over `features`."""
        return sensitivity_space(self.dataspace, self.adjacency, released=features)

    def published(self, features: tuple[str, ...]) -> Dataspace:
        """Return what the invariants say about the table over `features` alone."""
        assert self.dataspace.schema is not None
        schema = self.dataspace.schema.restrict(features)
        overlaps = [Margin(*(name for name in margin.names if name in features)) for margin in self.dataspace.margins]
        kept = normalised(schema, overlaps)
        return Dataspace.known(schema, {margin: self.dataspace.value(margin) for margin in kept}, self.dataspace.n)


@dataclass(frozen=True)
class Survey:
    """A scope together with the confidential tables and sums that it is about."""

    scope: Scope
    tables: tuple[Table, ...] = field(repr=False)
    sums: tuple[NDArray[np.int64], ...] = field(default=(), repr=False)


def survey(plan: Plan, source: Source) -> Survey:
    """Read what `plan` needs from `source`, which must have been opened the way the plan says.

    The tables and sums in the result are confidential; its `Scope` is public.

    >>> from semidp.engines import open_source
    >>> from semidp.release import TableRequest
    >>> plan = Plan([TableRequest(["sex", "region"])], [Margin("sex"), Margin("region")])
    >>> with open_source({"sex": ["f", "m"], "region": ["n", "s"]}) as source:
    ...     survey(plan, source).tables
    (Table(sex: 2 levels, region: 2 levels),)
    """
    if (source.count, source.where, source.id) != (plan.count, plan.where, plan.id):
        raise InputError(
            "the source was opened with another count, where or id than the plan has: open it as the plan says"
        )
    schema, disclosures = _schema(plan, source)
    counts = _Counts(schema, source)
    margins = normalised(schema, plan.invariants)
    n = counts.over(schema.names[:1]).n if not margins else None
    dataspace = Dataspace.known(schema, {margin: counts.over(margin.names) for margin in margins}, n)
    semi, adjacency, warnings = _adjacency(plan, dataspace)
    tables = tuple(counts.over(request.features) for request in plan.tables)
    for request in plan.groups:
        if request.statistic is Statistic.proportion:
            check_binary(source, request.outcome.column)
    asked = (sum_space(dataspace, adjacency, request.outcome, request.by) for request in plan.groups)
    sums = tuple(read_sums(source, space) for space in asked)
    return Survey(Scope(dataspace, semi, adjacency, disclosures, warnings), tables, sums)


@dataclass(frozen=True)
class _Counts:
    """Counts over any features: from one joint table where that is small, else by a query each."""

    schema: Schema
    source: Source

    def over(self, features: tuple[str, ...]) -> Table:
        if self.schema.size <= _JOINT_CELLS or self.schema.structural_zeros:
            return self._joint.margin(features)
        return self.source.counts(self.schema.restrict(features))

    @cached_property
    def _joint(self) -> Table:
        return self.source.counts(self.schema)


def _schema(plan: Plan, source: Source) -> tuple[Schema, tuple[str, ...]]:
    """Return the schema of every feature in use, and what reading levels from the data discloses."""
    declared = {feature.name: feature for feature in plan.features}
    public = {name for margin in plan.invariants for name in margin.names}
    missing = [name for name in plan.names if name not in declared]
    for name in plan.names:
        if name not in source.columns():
            raise no_column(name, source.columns())
    hidden = [name for name in missing if name not in public]
    if hidden and not plan.levels_from_data:
        raise SchemaError(
            f"the levels of {', '.join(hidden)} are not public: declare them (--levels {hidden[0]}=a,b or --schema), "
            f"publish them with --invariant {hidden[0]}, or read them with --levels-from-data, which discloses them"
        )
    features = [declared[name] if name in declared else Feature(name, source.levels(name)) for name in plan.names]
    zeros = [zero for zero in plan.structural_zeros if {name for name, _ in zero.levels} <= set(plan.names)]
    disclosures = tuple(
        f"The list of levels of {name} was read from the data and is published without protection." for name in hidden
    )
    return Schema(tuple(features), tuple(zeros)), disclosures


def semi_of(dataspace: Dataspace, plan: Plan) -> SemiAdjacency:
    """Return a(t) of the records that a plan is about: at least 1 where they carry an unpublished outcome."""
    found = semi_adjacency(dataspace)
    if found.bound or not plan.groups or not dataspace.n:
        return found
    return SemiAdjacency(1, 1, 1, "the exact totals fix all but the outcome")


def _adjacency(plan: Plan, dataspace: Dataspace) -> tuple[SemiAdjacency | None, Adjacency, tuple[str, ...]]:
    given = plan.adjacency if isinstance(plan.adjacency, int) else None
    try:
        semi = semi_of(dataspace, plan)
    except AdjacencyUnknown:
        if given is None:
            raise
        told = (
            f"The adjacency a = {given} was given and could not be checked against a(t) for these invariants; a person "
            f"who could be confused with others only by moving more than {given} records is not protected."
        )
        return None, Adjacency(given), (told,)
    a = given if given is not None else semi.bound
    if plan.adjacency is Reading.definition and semi.definition is not None:
        a = semi.definition
    warnings = []
    if plan.adjacency is Reading.definition and semi.definition is None:
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
    return semi, Adjacency(a), tuple(warnings)
