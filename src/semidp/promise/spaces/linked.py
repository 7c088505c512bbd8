"""Units and their members: what is public about two linked kinds of records, and their two
promises.

A unit (a household, a patient) has members (persons, stays). `LinkedDataspace` is D_t of both
kinds; `Reach` counts how many members and units change together under a promise. The costs of
residuals are in `promise.sensitivity.linked_products`.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from attrs import field, frozen

from semidp.errors import InputError, Refused
from semidp.promise.documents import Encodable
from semidp.promise.exact import count_noun
from semidp.promise.schema.features import SIZE
from semidp.promise.schema.margins import View, list_axes, meet
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.spaces.adjacency import Adjacency, AdjacencyKind
from semidp.promise.spaces.dataspace import Datasets, Dataspace, DescribedDatasets, Margin
from semidp.promise.spaces.protection import ChangedUnits, Protect, Protection
from semidp.promise.spaces.semi_adjacency import SemiAdjacency

MEMBER = "member"
UNIT = "unit"

MOST_MEMBERS = 100
"""The largest bound on the members of a unit: every size is a level of its own."""


def _names(value: Iterable[str]) -> tuple[str, ...]:
    return tuple(value)


def _check_whole_number(value: int, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{name} is a whole number, not {str(value)[:40]!r}")
    return value


def _kinds(value: Iterable[str]) -> tuple[str, ...]:
    kinds = tuple(str(kind) for kind in value)
    if not kinds or len(set(kinds)) < len(kinds):
        raise InputError("group quarters are one or several levels of a column of units, each once")
    return kinds


def members_text(least: int, most: int) -> str:
    """Describe how many members a unit may have.

    >>> members_text(1, 1), members_text(0, 1), members_text(0, 8)
    ('1 member', 'at most 1 member', '0 to 8 members')
    """
    if most == 1:
        return "1 member" if least else "at most 1 member"
    return f"{least} to {most} members"


@frozen
class Quarters:
    """Units without a bound on their members, which are counted in no table of units: group
    quarters.

    Every place and kind of quarters counts as one such unit, empty or not. Members have the kind of
    their quarters from their unit; the one other level is that of units which are counted.

    Parameters
    ----------
    feature
        The feature of members that says where they live.
    kinds
        Its levels that are quarters.

    Examples
    --------
    >>> Quarters("unittype", ["1", "2"]).home(("0", "1", "2"))
    0
    """

    feature: str
    kinds: tuple[str, ...] = field(converter=_kinds)

    def home(self, levels: Sequence[str]) -> int:
        """Return the place of the level of counted units; refuse levels of which not exactly one is
        no quarters.
        """
        strange = [kind for kind in self.kinds if kind not in levels]
        if strange:
            raise InputError(
                f"{strange[0]!r} is no level of {self.feature!r}, so it cannot be a kind of"
                " quarters"
            )
        other_places = [place for place, level in enumerate(levels) if level not in self.kinds]
        if len(other_places) != 1:
            raise InputError(
                f"all levels of {self.feature!r} but one are kinds of quarters, and that one is of"
                " units that are counted: name the others as quarters, or merge them"
            )
        return other_places[0]

    def to_json(self) -> dict[str, list[str]]:
        """Return it as plain values."""
        return {self.feature: list(self.kinds)}

    @classmethod
    def from_json(cls, value: Any) -> "Quarters":
        """Read what `to_json` wrote: one column, and its levels that are quarters."""
        if not isinstance(value, Mapping) or len(value) != 1:
            raise InputError(
                'group quarters are one column and its levels, such as {unittype = ["1"]}'
            )
        ((feature, kinds),) = value.items()
        return cls(str(feature), [kinds] if isinstance(kinds, str) else kinds)


@frozen
class Link(Encodable):
    """The public facts about how members belong to units.

    Parameters
    ----------
    protect
        Whom the promise is about.
    least, most
        The bounds on the members of a unit; `least` is 0 or 1.
    derived
        The features of units that depend on their members, `size` among them.
    column
        The column that names a unit.
    quarters
        Units that no table counts, if any.

    Examples
    --------
    >>> Link(Protect.member, 1, 8, ["size", "type"]).sizes
    ('1', '2', '3', '4', '5', '6', '7', '8')
    """

    protect: Protect = field(converter=Protect)
    least: int
    most: int
    derived: tuple[str, ...] = field(default=(SIZE,), converter=_names)
    column: str = UNIT
    quarters: Quarters | None = None

    def __attrs_post_init__(self) -> None:
        if _check_whole_number(self.least, "the least number of members of a unit") not in (0, 1):
            raise InputError("the least number of members of a unit is 0 or 1")
        most = _check_whole_number(self.most, "the largest number of members of a unit")
        if not max(1, self.least) <= most <= MOST_MEMBERS:
            raise InputError(
                f"the largest number of members of a unit lies between 1 and {MOST_MEMBERS:,}"
            )
        if self.quarters is not None:
            self._check_quarters(self.quarters)

    def _check_quarters(self, quarters: Quarters) -> None:
        if self.protect is Protect.unit:
            raise Refused(
                "group quarters have no bound on their members, so no promise about a whole unit"
                " is known: protect members, or leave quarters out"
            )
        if self.least:
            raise Refused(
                "everybody may live in group quarters, so any unit may be empty: declare least = 0"
                " with quarters"
            )
        if quarters.feature in self.derived:
            raise InputError(
                f"{quarters.feature!r} is derived from members, so it cannot say what a unit is"
            )

    @property
    def whole_unit(self) -> Protection:
        """One unit with all its members."""
        return Protection(self.column, self.most, "members", Protect.unit, self.least)

    @property
    def sizes(self) -> tuple[str, ...]:
        """The levels of the size of a unit: every value from the least to the most."""
        sizes = range(self.least, self.most + 1)
        return tuple(str(size) for size in sizes)


@frozen(slots=False, eq=False, repr=False)
class LinkedDataspace(Dataspace):
    """D_t of linked members and units; by itself it is the public information about the members.

    Parameters
    ----------
    units
        What is public about the units: features, number, exact totals by their own features.
    link
        How they are linked.

    Examples
    --------
    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.schema import Table
    >>> from semidp.promise.schema.features import Feature
    >>> zone, sex = Feature("zone", "ab"), Feature("sex", "fm")
    >>> persons = Dataspace.from_table(Table(Schema([zone, sex]), [[3, 2], [1, 4]]), [])
    >>> homes = Table(Schema([zone, Feature("size", "123")]), [[1, 2, 0], [0, 1, 1]])
    >>> public = LinkedDataspace.joining(
    ...     persons, Dataspace.from_table(homes, [Margin("zone")]), Link("member", 1, 3)
    ... )
    >>> public.inherited_names, public.for_kind("unit").n, public.summary()
    (('zone',), 5, 'the number of members, units by zone')
    """

    units: Dataspace
    link: Link

    kinds: ClassVar[tuple[str, ...]] = (MEMBER, UNIT)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.schema.structural_zeros or self.units.schema.structural_zeros:
            raise Refused("linked members and units have no structural zeros: leave them out")
        for feature in self.units.schema.features:
            for other in self.schema.features:
                if {*feature.names} & {*other.names} and feature != other:
                    raise InputError(
                        f"{feature.name!r} has other levels for units than for members"
                    )
        for name in self.link.derived:
            if name in self.schema.names:
                raise Refused(
                    f"{name!r} is derived from the members of a unit, so no table of members has it"
                )
        for margin in self.units.margins:
            if {*margin.names} & {*self.link.derived}:
                raise Refused(
                    f"exact totals of units are by their own features, and {margin} depends on"
                    " members"
                )
        axis = self.size_axis
        if axis is not None and self.units.schema.features[axis].levels != self.link.sizes:
            raise InputError(
                "the levels of size are every number from the least to the most members of a unit:"
                " for 5 and more as one level, ask for the top code size=5"
            )
        self._check_quarters()
        # public totals outside would leave no dataset; quarters hold as many as there are
        low = self.link.least * self.units.n
        high = self.link.most * self.units.n
        too_many = self.n > high and self.link.quarters is None
        if self.n < low or too_many:
            raise Refused("the members do not fit into the units of the declared sizes")

    def _check_quarters(self) -> None:
        """Refuse quarters if a table of units has them, or no table of members does."""
        quarters = self.link.quarters
        if quarters is None:
            return
        of_units = quarters.feature in self.units.schema.names
        if of_units or quarters.feature not in self.schema.names:
            raise Refused(
                "group quarters are counted in no table of units, and some table of members has to"
                f" say who lives in them: ask for {quarters.feature!r} in tables of members alone"
            )
        # for its refusals
        _ = self.home

    @classmethod
    def joining(cls, members: Dataspace, units: Dataspace, link: Link) -> Self:
        """Return the space of two kinds from the space of each."""
        return cls(members.schema, members.margins, members.totals, members.n, units, link)

    def __repr__(self) -> str:
        numbers = f"{count_noun(self.n, 'member')}, {count_noun(self.units.n, 'unit')}"
        return f"LinkedDataspace({self.summary()} exact; {numbers})"

    @cached_property
    def members(self) -> Dataspace:
        """Dataspace of the members alone."""
        return Dataspace(self.schema, self.margins, self.totals, self.n)

    def for_kind(self, kind: str) -> Dataspace:
        """Return the dataspace of the records of one kind."""
        if kind == UNIT:
            return self.units
        return self.members if kind == MEMBER else super().for_kind(kind)

    @cached_property
    def inherited_names(self) -> tuple[str, ...]:
        """The features that members have from their units."""
        of_units = {feature.name for feature in self.units.schema.features}
        if self.link.quarters is not None:
            of_units.add(self.link.quarters.feature)
        return tuple(feature.name for feature in self.schema.features if feature.name in of_units)

    @cached_property
    def inherited_axes(self) -> frozenset[int]:
        """The places of inherited features among those of members."""
        features = enumerate(self.schema.features)
        return frozenset(axis for axis, feature in features if feature.name in self.inherited_names)

    @cached_property
    def derived_axes(self) -> frozenset[int]:
        """The places of derived features among those of units."""
        features = enumerate(self.units.schema.features)
        return frozenset(axis for axis, feature in features if feature.name in self.link.derived)

    @property
    def size_axis(self) -> int | None:
        """The place of the size among the features of units; None if no table has it."""
        for axis, feature in enumerate(self.units.schema.features):
            if feature.name == SIZE:
                return axis
        return None

    @cached_property
    def home(self) -> tuple[int, int] | None:
        """The place of the feature of quarters among those of members, and of the level of counted
        units in it.

        None if there are no quarters.
        """
        quarters = self.link.quarters
        if quarters is None:
            return None
        for axis, feature in enumerate(self.schema.features):
            if feature.name == quarters.feature:
                return axis, quarters.home(feature.levels)
        raise InputError(
            f"{quarters.feature!r} says where members live: it is a feature that does not nest"
        )

    @cached_property
    def reach(self) -> "Reach":
        """How many members and units change together; refuse exact totals under which the promise
        is not known.
        """
        return Reach.from_dataspace(self)

    def summary(self) -> str:
        """Say in a few words what is published."""
        members = ", ".join(str(margin) for margin in self.margins) or "the number of members"
        if not self.units.margins:
            return f"{members}, the number of units"
        units = ", ".join(str(margin) for margin in self.units.margins)
        return f"{members}, units by {units}"

    # other promises about linked records are not compared: what both publish is not known
    is_within = Datasets.is_within

    def union(self, other: Any) -> "Dataspace | None":
        """Return this space if the other is the same; otherwise None."""
        return self if self == other else None

    def with_features(self, schema: Schema) -> "Dataspace | None":
        """Return this space if the schema is its own; otherwise None."""
        return self if schema == self.schema else None

    def _document(self) -> dict[str, Any]:
        whole = super()._document()
        return {**whole, "units": self.units._document(), "link": self.link.to_json()}

    def to_json(self) -> dict[str, Any]:
        """Return the space as plain values: everything in it is public."""
        document = super().to_json()
        document["units"] = self.units.to_json()
        document["link"] = self.link.to_json()
        return document


@frozen
class Reach:
    """Numbers of members and units that change together for linked records (docs/linked.md).

    Parameters
    ----------
    members
        The most members that change: ``a_M = 2 + `` the blocks with own features of members where
        one member is protected; ``m (1 + q_m + q_u)`` for a whole unit.
    own_units, size_units, derived_units
        The most units that change, as tables see it that have own features of units alone, the size
        but no other derived feature, or other derived features. A protected member changes no own
        feature of any unit.
    exchanged_units
        The same for exchanges of one member, ``h = 2 + q_m``; for a whole unit the units besides
        those of one exchange.
    """

    members: int
    own_units: int
    size_units: int
    derived_units: int
    exchanged_units: int

    @classmethod
    def from_dataspace(cls, public: LinkedDataspace) -> "Reach":
        """Return the numbers of a promise under exact totals of both kinds."""
        views = [margin.view for margin in public.published_totals]
        refuse_shared(views, "exact totals of members")
        if public.link.protect is Protect.member:
            return cls._from_protected_member(public, views)
        return cls._from_protected_unit(public, views)

    @classmethod
    def _from_protected_member(cls, public: LinkedDataspace, views: list[View]) -> "Reach":
        placed = [view for view in views if public.inherited_axes & {*list_axes(view)}]
        if len(placed) > 1:
            raise Refused(
                "at most one exact total of members may have features of their units, for one"
                " member is protected: publish one of them, or both jointly"
            )
        # a second mover makes room where the new unit is full; each further total needs a carrier
        with_own = [view for view in views if {*list_axes(view)} - public.inherited_axes]
        members = min(2 + len(with_own), public.n)
        units = min(2 * members, public.units.n)
        exchanged = min(2 + len(views), public.units.n)
        return cls(members, 0, units, units, exchanged)

    @classmethod
    def _from_protected_unit(cls, public: LinkedDataspace, views: list[View]) -> "Reach":
        if any(public.inherited_axes & {*list_axes(view)} for view in views):
            raise Refused(
                "exact totals of members by a feature of their units are not known for whole units:"
                " publish them with noise, or protect members"
            )
        unit_views = [margin.view for margin in public.units.published_totals]
        refuse_shared(unit_views, "exact totals of units")
        link, all_units = public.link, public.units.n
        q_m, q_u = len(views), len(unit_views)
        members = link.most * (1 + q_m + q_u)
        # one carrier for each exact total of units, and the unit itself
        by_own = min(1 + q_u, all_units)
        # the number of members is exact: other units gain what this one loses
        size = min(1 + q_u + link.most - link.least, all_units)
        derived = min(1 + q_u + link.most * (1 + q_m), all_units)
        return cls(members, by_own, size, derived, 0)


def linked_adjacency(public: LinkedDataspace, kind: AdjacencyKind) -> Adjacency:
    """Return which pairs of linked datasets are compared: exchanges, or any members and units
    within the promise.
    """
    link, reach = public.link, public.reach
    if link.protect is Protect.member:
        return Adjacency.from_kind(kind, reach.members)
    protection = link.whole_unit
    units = ChangedUnits(reach.own_units, reach.size_units, reach.derived_units)
    return Adjacency.from_kind(kind, reach.members, protection, units)


def datasets_from_json(value: Mapping[str, Any]) -> Datasets:
    """Read what `Datasets.to_json` wrote.

    >>> space = Dataspace.from_description("state totals")
    >>> datasets_from_json(space.to_json()) == space
    True
    """
    if "description" in value:
        return DescribedDatasets(value["description"])
    schema = Schema.from_json(value["schema"])
    totals = {}
    for entry in value["margins"]:
        names = entry["features"]
        part = schema.restrict(names)
        counts = np.array(entry["counts"], np.int64).reshape(part.shape)
        totals[Margin(*names)] = Table(part, counts)
    members = Dataspace.from_totals(schema, totals, value["n"])
    if "link" not in value:
        return members
    units = datasets_from_json(value["units"])
    if not isinstance(units, Dataspace):
        raise InputError("what is public about units has features")
    return LinkedDataspace.joining(members, units, Link.from_json(value["link"]))


def linked_semi_adjacency(public: LinkedDataspace) -> SemiAdjacency:
    """Return the bound on the members that change together; readings of a(t) are for records of one
    kind.
    """
    return SemiAdjacency(None, None, public.reach.members, "bound for linked records")


def refuse_shared(views: Iterable[View], what: str) -> None:
    """Refuse margins that share a feature: blocks are disjoint."""
    seen: list[View] = []
    for view in views:
        if any(any(meet(view, other)) for other in seen):
            raise Refused(
                f"two {what} share a feature, for which no promise about linked records is known"
            )
        seen.append(view)
