"""The query space of linked tables: residuals of member tables, then residuals of unit tables, as
one vector.

Each kind is a product of tables with costs of its own (`linked_costs`). Both are centred over the
same nodes, so that a residual of members and one of units can be compared entry by entry.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError, Refused
from semidp.promise.schema.counts import Table
from semidp.promise.schema.margins import Floats, View
from semidp.promise.sensitivity.costs import BallCosts
from semidp.promise.sensitivity.linked_costs import MemberCosts, UnitCosts
from semidp.promise.sensitivity.patterns import Norms
from semidp.promise.sensitivity.products import ProductSpace
from semidp.promise.sensitivity.query_space import Pair, QuerySpace
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Datasets
from semidp.promise.spaces.linked import MEMBER, UNIT, LinkedDataspace, linked_adjacency
from semidp.promise.spaces.structure import Structure


@frozen(slots=False, eq=False)
class KindSpace(ProductSpace):
    """The residuals of the tables of one kind of linked records.

    Parameters
    ----------
    dataspace, adjacency, views
        As of every product: what is public about this kind, and its tables.
    public
        What is public about both kinds.
    counted
        Which kind it is.
    """

    public: LinkedDataspace
    counted: str

    @cached_property
    def costs(self) -> BallCosts:
        """What residuals cost under the promise about linked records."""
        kind = MemberCosts if self.counted == MEMBER else UnitCosts
        exchange = not self.adjacency.protects_groups
        costs: Any = kind(self.public, self.residuals, exchange)
        return costs  # type: ignore[no-any-return]

    @property
    def _attained_squares(self) -> Mapping[View, float]:
        """Nothing: exchanges are drawn for records of one kind alone."""
        return {}

    @cached_property
    def _inhabited_leaves(self) -> tuple[NDArray[np.bool_], ...]:
        """For each feature the leaves that can hold a member or a unit: a level leaves if it has
        neither.
        """
        kept = []
        for axis, feature in enumerate(self.schema.features):
            nodes = [_find_inhabited_leaves(self.dataspace, axis)]
            for other in (self.public.members, self.public.units):
                names = [part.name for part in other.schema.features]
                if other is not self.dataspace and feature.name in names:
                    nodes.append(_find_inhabited_leaves(other, names.index(feature.name)))
            kept.append(np.logical_or.reduce(nodes))
        if self.counted == MEMBER and self.public.home is not None and self.public.units.n:
            # counted units have this level, whether anybody lives in them or not
            axis, level = self.public.home
            kept[axis] = kept[axis].copy()
            kept[axis][level] = True
        return tuple(kept)

    @property
    def kept_leaves(self) -> tuple[NDArray[np.bool_], ...]:
        """For each feature the leaves that can hold a member or a unit."""
        return self._inhabited_leaves

    @cached_property
    def impossible(self) -> Mapping[int, NDArray[np.intp]]:
        """None: estimates are not set to zero where a joint exact total is, whole numbers are."""
        return {}

    @property
    def method(self) -> str:
        """How the costs of residuals were found."""
        return "bounds for linked records"


def _find_inhabited_leaves(dataspace: Any, axis: int) -> NDArray[np.bool_]:
    structure = Structure.from_dataspace(dataspace)
    return structure.inhabited_nodes(axis, dataspace.schema.grid.full[axis])


@frozen(slots=False, eq=False)
class LinkedSpace(QuerySpace):
    """The residuals of member tables and of unit tables, one after the other; see
    `linked_space`.
    """

    dataspace: LinkedDataspace
    adjacency: Adjacency
    members: KindSpace
    units: KindSpace

    exact = False  # the norms are bounds

    @property
    def kinds(self) -> tuple[KindSpace, KindSpace]:
        """Both kinds, in the order of the vector."""
        return self.members, self.units

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of the vector."""
        return (self.members.scales.size + self.units.scales.size,)

    def split(self, vector: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the part of the members and the part of the units."""
        values = np.asarray(vector)
        first = self.members.scales.size
        return values[..., :first], values[..., first:]

    def measure(self, members: Sequence[Table], units: Sequence[Table]) -> NDArray[np.int64]:
        """Return the vector of confidential tables."""
        return np.concatenate([self.members.measure(members), self.units.measure(units)])

    @property
    def norms(self) -> Norms:
        """Upper bounds of the norms of the whole vector."""
        return _add_norms(self.members.norms, self.units.norms)

    @property
    def naive(self) -> Norms:
        """The same bounds for one member and one unit where nothing is exact."""
        return _add_norms(self.members.naive, self.units.naive)

    @property
    def method(self) -> str:
        """How the norms were found."""
        return self.members.method

    @property
    def is_zero(self) -> bool:
        """Whether what is published fixes every table of both kinds."""
        return self.members.is_zero and self.units.is_zero

    @property
    def dimension(self) -> int:
        """The number of free directions."""
        return self.members.dimension + self.units.dimension

    def project(self, values: ArrayLike) -> Floats:
        """Centre every residual."""
        members, units = self.split(self.check_shape(values))
        return np.concatenate([self.members.project(members), self.units.project(units)])

    def fixed_part(self) -> Floats:
        """Return zeros: residuals are centred."""
        return np.zeros(self.shape)

    def variances(self) -> Floats:
        """Return the variance of each entry for unit noise, centred."""
        return np.concatenate([self.members.variances(), self.units.variances()])

    def worst_move(self) -> NDArray[np.int64] | None:
        """Return None: an audit searches for a change of linked records."""
        return None

    def difference(self, pair: Pair) -> str:
        """Say in how many residuals two datasets differ."""
        return f"{pair.entries} measured entries of all tables together"

    def query(self) -> dict[str, Any]:
        """Return the tables of both kinds."""
        return {"kind": "linked", "members": self.members.query(), "units": self.units.query()}

    def under(self, adjacency: Adjacency) -> "LinkedSpace":
        """Return the space under another adjacency of the same promise."""
        _refuse_other_numbers(self.dataspace, adjacency)
        members, units = (evolve(kind, adjacency=adjacency) for kind in self.kinds)
        return evolve(self, adjacency=adjacency, members=members, units=units)

    @property
    def cost(self) -> Fraction:
        """The largest cost of a residual: asked before anything is read, so that what has none is
        refused.
        """
        costs = [cost for kind in self.kinds for cost in kind.cost.values()]
        return max(costs, default=Fraction(0))


def linked_space(
    public: LinkedDataspace,
    adjacency: Adjacency,
    members: Iterable[Sequence[str]],
    units: Iterable[Sequence[str]],
) -> LinkedSpace:
    """Return the space of tables of both kinds, given by their features; refuse what has no proven
    cost.

    Examples
    --------
    >>> from semidp.promise.spaces.adjacency import Exchange
    >>> from semidp.promise.spaces.linked import Link
    >>> from semidp.promise.spaces.dataspace import Dataspace, Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> zone, sex = Feature("zone", "ab"), Feature("sex", "fm")
    >>> persons = Table(Schema([zone, sex]), [[3, 2], [1, 4]])
    >>> homes = Table(Schema([zone, Feature("size", "123")]), [[1, 2, 0], [0, 1, 1]])
    >>> public = LinkedDataspace.joining(
    ...     Dataspace.from_table(persons, []),
    ...     Dataspace.from_table(homes, [Margin("zone")]),
    ...     Link("member", 1, 3),
    ... )
    >>> space = linked_space(public, Exchange(2), [["zone", "sex"]], [["zone", "size"]])
    >>> space.members.measured_residuals, space.units.measured_residuals
    (((0, 1), (1, 0), (1, 1)), ((0, 1), (1, 1)))
    """
    _refuse_other_numbers(public, adjacency)
    kinds = []
    for counted, tables in ((MEMBER, members), (UNIT, units)):
        dataspace = public.for_kind(counted)
        views = tuple(dataspace.schema.view(names) for names in tables)
        if not views or not all(map(any, views)):
            raise InputError(
                f"linked tables need a table of {counted}s with at least one feature", needs="table"
            )
        if len(set(views)) < len(views):
            raise InputError(f"two tables of {counted}s have the same features: name each once")
        if not dataspace.n:
            raise Refused(f"there are no {counted}s, so that there is nothing to release")
        kinds.append(KindSpace(dataspace, adjacency, views, public, counted))
    space = LinkedSpace(public, adjacency, *kinds)
    # asked now, so that what has no proven cost is refused before anything is read
    _ = space.cost
    return space


def _refuse_other_numbers(public: LinkedDataspace, adjacency: Adjacency) -> None:
    """Refuse an adjacency of other numbers of members and units than the promise has: costs are
    those of the promise.
    """
    if adjacency != linked_adjacency(public, adjacency.kind):
        raise Refused(
            "linked records are protected as their promise says, for no other number of members or"
            " units"
        )


def _add_norms(one: Norms, other: Norms) -> Norms:
    return Norms(one.l1 + other.l1, one.l2_squared + other.l2_squared, max(one.linf, other.linf))


def precision_shares(roots: Sequence[float]) -> list[Fraction]:
    """Return the share of the precision that each kind gets for the least total variance.

    With ``Σ k/σ² <= p`` over all residuals the best noise is ``σ² = sqrt(k/v) Σ sqrt(v k)/p``
    (docs/products.md), so that a kind spends in proportion to its own ``Σ sqrt(v k)``.

    >>> precision_shares([1.0, 3.0])
    [Fraction(1, 4), Fraction(3, 4)]
    """
    whole = math.fsum(roots)
    if not whole:
        return [Fraction(0) for _ in roots]
    first = Fraction(round(roots[0] / whole * 2**20), 2**20)
    if roots[0] and roots[1]:  # each needs some
        first = min(max(first, Fraction(1, 2**20)), 1 - Fraction(1, 2**20))
    return [first, 1 - first]


def recorded_linked(
    query: Mapping[str, Any], dataspace: Datasets, adjacency: Adjacency
) -> QuerySpace:
    """Return the space of recorded tables of members and units."""
    if not isinstance(dataspace, LinkedDataspace):
        raise Refused(
            "tables of linked members and units are known under their own exact totals alone"
        )
    tables = (query[kind]["tables"] for kind in ("members", "units"))
    return linked_space(dataspace, adjacency, *tables)
