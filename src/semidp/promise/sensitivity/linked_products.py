"""The query space of linked tables, residuals of member tables, then residuals of unit tables, as
one vector; and what they cost under the promises about linked records (docs/linked.md).

Each kind is a product of tables with costs of its own. Both are centered over the same nodes,
so a residual of members and one of units can be compared entry by entry. Members move between
units, and units change their composition. A residual of either kind has its own bound; the costs of
both kinds are added. Sharper bounds hold for particular tables. Each is computed at the depths of
the residual, not of the table that contains it.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError, Refused
from semidp.promise.exact import round_up, sqrt_up
from semidp.promise.schema.margins import Floats, View, list_axes
from semidp.promise.schema.schema import Table
from semidp.promise.sensitivity.costs import BallCosts, ExchangeCosts
from semidp.promise.sensitivity.joint_costs import JointBound, ResidualGroup, SumOfCosts
from semidp.promise.sensitivity.orthogonal_parts import Residuals
from semidp.promise.sensitivity.patterns import Norms
from semidp.promise.sensitivity.products import ProductSpace
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Datasets
from semidp.promise.spaces.linked import MEMBER, UNIT, LinkedDataspace, linked_adjacency
from semidp.promise.spaces.protection import Protect
from semidp.promise.spaces.structure import Structure

_UNIT_SIZE = Fraction(6)  # of size alone: two units go up or down by one
_SINGLE = 2  # the square of one record that changes


@frozen(slots=False, eq=False)
class LinkedCosts:
    """Costs of the residuals of one kind of linked records: bounded one by one, and added.

    Parameters
    ----------
    public
        What is public about both kinds.
    residuals
        The grid of the nodes that can hold a member or a unit.
    exchange
        Whether one member (or unit) is exchanged, or any that change within the numbers of the
        promise.
    """

    public: LinkedDataspace
    residuals: Residuals
    exchange: bool
    _costs: dict[View, Fraction] = field(factory=dict, init=False, repr=False)

    moves = None
    """Moves of linked records are not listed."""

    times = 1
    """One exchange is one move."""

    @property
    def a(self) -> int:
        """The most records of this kind that change."""
        raise NotImplementedError

    def cost(self, view: View) -> Fraction:
        """Return an upper bound of |H_d M_d m|² over the moves of the promise."""
        if view not in self._costs:
            self._costs[view] = self._bound(view)
        return self._costs[view]

    def _bound(self, view: View) -> Fraction:
        raise NotImplementedError

    def joint(self, sigma2: Mapping[View, Fraction]) -> float:
        """Return an upper bound of ``Σ_d k_d/σ_d²``."""
        costs = [self.cost(view) / square for view, square in sigma2.items()]
        return round_up(sum(costs, Fraction(0)))

    def bounds(self, views: tuple[View, ...]) -> tuple[JointBound, ...]:
        """Return the sum of the costs, which is the only joint bound that is proved here."""
        singles = np.array([round_up(self.cost(view)) for view in views])
        every = tuple(range(len(views)))
        group = ResidualGroup(every, (SumOfCosts(singles),))
        return (JointBound((group,)),)

    def families(self, axes: Sequence[int], deepest: View) -> None:
        """Return None: moves of linked records are not enumerated, so no lower bound is
        known.
        """
        return


class MemberCosts(LinkedCosts):
    """Costs of residuals of member tables.

    Examples
    --------
    Persons by zone and sex, nothing exact but their number. One person moves, and somebody
    who lives there may take the place: at most 4, as if the zone were an exact total; the ball is
    any two persons.

    >>> from semidp.promise.spaces.linked import Link
    >>> from semidp.promise.spaces.dataspace import Dataspace, Margin
    >>> from semidp.promise.schema.schema import Table
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> zone, sex = Feature("zone", "ab"), Feature("sex", "fm")
    >>> persons = Dataspace.from_table(Table(Schema([zone, sex]), [[3, 2], [1, 4]]), [])
    >>> homes = Table(Schema([zone, Feature("size", "123")]), [[1, 2, 0], [0, 1, 1]])
    >>> public = LinkedDataspace.joining(
    ...     persons, Dataspace.from_table(homes, [Margin("zone")]), Link("member", 1, 3)
    ... )
    >>> costs = MemberCosts(public, Residuals(persons.schema.grid), True)
    >>> costs.cost((0, 1)), costs.cost((1, 0)), costs.cost((1, 1))
    (Fraction(2, 1), Fraction(2, 1), Fraction(4, 1))
    >>> MemberCosts(public, costs.residuals, False).cost((0, 1))
    Fraction(8, 1)
    """

    @property
    def a(self) -> int:
        """The most members that change."""
        return self.public.reach.members

    @property
    def _margins(self) -> tuple[View, ...]:
        return tuple(margin.view for margin in self.public.published_totals)

    def _bound(self, view: View) -> Fraction:
        changed = min(self.a, self.public.n)
        ball = _ball_cost(self.residuals, self._margins, changed, view)
        if self._exchanges_member:
            return min(ball, self._exchanges.cost(view))
        return min(ball, self._bound_unit_exchange(view)) if self.exchange else ball

    def _bound_unit_exchange(self, view: View) -> Fraction:
        """Cost where a whole unit is exchanged: m exchanges of one member, and the members of the
        carrying units where the table sees features of units.
        """
        link = self.public.link
        blocks = len(self.public.units.published_totals)
        one = _exchange_cost(self.residuals, self._margins, view)
        inherits = self.public.inherited_axes & {*list_axes(view)}
        followers = link.most * blocks if inherits else 0
        return _sum_of_lengths(link.most, one, followers)

    def joint(self, sigma2: Mapping[View, Fraction]) -> float:
        """Return an upper bound of ``sup_m Σ_d |H_d M_d m|² / σ_d²``: over exchanges of one member
        the moves themselves are compared.
        """
        added = super().joint(sigma2)
        return min(added, self._exchanges.joint(sigma2)) if self._exchanges_member else added

    def bounds(self, views: tuple[View, ...]) -> tuple[JointBound, ...]:
        """Return bounds of what residuals cost together."""
        if self._exchanges_member:
            return self._exchanges.bounds(views)
        return super().bounds(views)

    @property
    def _exchanges_member(self) -> bool:
        return self.exchange and self.public.link.protect is Protect.member

    @cached_property
    def _exchanges(self) -> ExchangeCosts:
        """Costs where one member is exchanged: it moves to any unit, and others take places and
        values in return.
        """
        changed = min(self.a, self.public.n)
        inherited = self.public.inherited_axes
        return ExchangeCosts(self.residuals, self._margins, changed, inherited=inherited)


class UnitCosts(LinkedCosts):
    """Costs of residuals of unit tables.

    A member who moves changes what units are composed of, never their own features. So residuals
    over own features alone are published exactly, or refused.

    Examples
    --------
    >>> from semidp.promise.spaces.linked import Link
    >>> from semidp.promise.spaces.dataspace import Dataspace, Margin
    >>> from semidp.promise.schema.schema import Table
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> zone, sex = Feature("zone", "ab"), Feature("sex", "fm")
    >>> persons = Dataspace.from_table(Table(Schema([zone, sex]), [[3, 2], [1, 4]]), [])
    >>> homes = Table(Schema([zone, Feature("size", "123")]), [[1, 2, 0], [0, 1, 1]])
    >>> public = LinkedDataspace.joining(
    ...     persons, Dataspace.from_table(homes, [Margin("zone")]), Link("member", 1, 3)
    ... )
    >>> costs = UnitCosts(public, Residuals(homes.schema.grid), True)
    >>> costs.cost((0, 1)), costs.cost((1, 1))  # half of it lies in the mean of two zones
    (Fraction(6, 1), Fraction(4, 1))
    >>> costs.cost((1, 0))
    Traceback (most recent call last):
    semidp.errors.Refused: units by zone are not protected where one member is: publish them
    exactly, or declare a column that depends on the members as derived (exact=[('units:zone',)],
    derived=['zone'])
    """

    @property
    def a(self) -> int:
        """The most units that change."""
        return max(self.public.reach.derived_units, 1)

    def _bound(self, view: View) -> Fraction:
        derived = self.public.derived_axes & {*list_axes(view)}
        if self.public.link.protect is Protect.unit:
            return self._bound_unit_replacement(view, derived)
        if not derived:
            names = self.public.units.schema.list_view_names(view)
            raise Refused(
                f"units by {', '.join(names)} are not protected where one member is: publish them"
                " exactly, or declare a column that depends on the members as derived",
                needs="own columns",
                names=tuple(names),
            )
        if not self.exchange:
            return self.public.reach.derived_units**2 * self._bound_derived_change(view, derived)
        # so many units change, each by what one unit can change
        many = self.public.reach.exchanged_units**2 * self._bound_derived_change(view, derived)
        return min(many, self._sharper(view, derived))

    def _bound_unit_replacement(self, view: View, derived: frozenset[int]) -> Fraction:
        """Cost where a whole unit is replaced: carriers of its own features, and units that gain or
        lose members.
        """
        reach, link = self.public.reach, self.public.link
        margins = tuple(margin.view for margin in self.public.units.published_totals)
        only_size = derived == {self.public.size_axis}
        # The fewer features of its members a table sees, the fewer units it sees change.
        units = reach.derived_units
        if not derived:
            units = reach.own_units
        elif only_size:
            units = reach.size_units
        ball = _ball_cost(self.residuals, margins, units, view)
        if not self.exchange:
            return ball
        one = _exchange_cost(self.residuals, margins, view)
        gaining = 0
        if derived:
            # units that gain or lose the members of this one, or only other members
            blocks = len(self.public.published_totals)
            gaining = link.most - link.least if only_size else link.most * (1 + blocks)
        return min(ball, _sum_of_lengths(1, one, gaining))

    def _bound_derived_change(self, view: View, derived: frozenset[int]) -> Fraction:
        """Largest square of the change of one unit that keeps its own features and changes derived
        ones.

        ``Π_own (1 - 1/c) · max_D q_d(D)``, D the derived features that change.
        """
        # own features stay: their part of the residual has the length of one node
        share = Fraction(1)
        for axis in list_axes(view):
            if axis not in derived:
                siblings = int(self.residuals.siblings(axis, view[axis]).max())
                share *= 1 - Fraction(1, siblings)
        chains = self.residuals.grid.chains
        levels = [chains[axis].size(view[axis]) for axis in sorted(derived)]
        if any(view[axis] > 1 for axis in derived):
            return share * _SINGLE  # H_d only shortens
        shares_left = [1 - Fraction(1, count) for count in levels]
        same = math.prod(shares_left, start=Fraction(1))
        best = Fraction(0)
        for changes in itertools.product((False, True), repeat=len(levels)):
            between = Fraction(1)
            for count, changed in zip(levels, changes, strict=True):
                between *= -Fraction(1, count) if changed else 1 - Fraction(1, count)
            if any(changes):
                # |x - y|² = |x|² + |y|² - 2<x, y>, and both nodes have the same length
                best = max(best, 2 * same - 2 * between)
        return share * best

    def _sharper(self, view: View, derived: frozenset[int]) -> Fraction:
        """Δ2² of the table at the depths of a residual, sharper than 2h² for h units that
        change.

        Sharper bounds are known where the exact totals of members have inherited features alone;
        elsewhere 2h² is returned. The tests compare them with the moves that `described_moves`
        describes, and with every pair of small datasets (docs/linked.md).
        """
        blocks = [margin.view for margin in self.public.published_totals]
        at_most = Fraction(2 * self.public.reach.exchanged_units**2)
        if any({*list_axes(block)} - self.public.inherited_axes for block in blocks):
            return at_most
        # one unit goes up by one, another down
        if derived == {self.public.size_axis}:
            return min(at_most, _UNIT_SIZE)
        if not blocks:
            return at_most
        has_size = self.public.size_axis in derived
        if self._sees(view, blocks[0]):
            return Fraction(8 if has_size else 10)
        return Fraction(12 if has_size else 18)

    def _sees(self, view: View, block: View) -> bool:
        """Whether the cell of a unit tells its published value in the block: every feature of it is
        named, as deep or deeper.
        """
        of_units = self.public.units.schema.names
        of_members = self.public.schema.features
        for axis in list_axes(block):
            name = of_members[axis].name
            if name not in of_units:
                return False
            places = [feature.name for feature in self.public.units.schema.features]
            if view[places.index(name)] < block[axis]:
                return False
        return True


def _ball_cost(residuals: Residuals, margins: tuple[View, ...], a: int, view: View) -> Fraction:
    return BallCosts(residuals, margins, a).cost(view)


def _exchange_cost(residuals: Residuals, margins: tuple[View, ...], view: View) -> Fraction:
    return ExchangeCosts(residuals, margins, len(margins) + 1).cost(view)


def _sum_of_lengths(times: int, square: Fraction, others: int) -> Fraction:
    """Return ``(t·sqrt(k) + o·sqrt(2))²``, rounded up: t moves with the square k and o single
    records, by the triangle inequality.
    """
    if not others:
        return times**2 * square
    single = sqrt_up(Fraction(_SINGLE))
    root = times * sqrt_up(square) + others * single
    # rounded up to 40 binary digits: exact sums of costs stay short
    return Fraction(math.ceil(root**2 * 2**40), 2**40)


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
    def inhabited_leaves(self) -> tuple[NDArray[np.bool_], ...]:
        """For each feature the leaves that can hold a member or a unit: a level leaves if it has
        neither.
        """
        kept = []
        for axis, feature in enumerate(self.schema.features):
            nodes = [find_inhabited_leaves(self.dataspace, axis)]
            for other in (self.public.members, self.public.units):
                names = [part.name for part in other.schema.features]
                if other is not self.dataspace and feature.name in names:
                    nodes.append(find_inhabited_leaves(other, names.index(feature.name)))
            kept.append(np.logical_or.reduce(nodes))
        if self.counted == MEMBER and self.public.home is not None and self.public.units.n:
            # counted units have this level, whether anybody lives in them or not
            axis, level = self.public.home
            kept[axis] = kept[axis].copy()
            kept[axis][level] = True
        return tuple(kept)

    @cached_property
    def impossible(self) -> Mapping[int, NDArray[np.intp]]:
        """None: estimates are not set to zero if a joint exact total is, whole numbers are."""
        return {}

    @property
    def method(self) -> str:
        """How the costs of residuals were found."""
        return "bounds for linked records"


def find_inhabited_leaves(dataspace: Any, axis: int) -> NDArray[np.bool_]:
    structure = Structure.from_dataspace(dataspace)
    return structure.inhabited_nodes(axis, dataspace.schema.grid.full[axis])


@frozen(eq=False)
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
        """Center every residual."""
        members, units = self.split(self.check_shape(values))
        return np.concatenate([self.members.project(members), self.units.project(units)])

    def fixed_part(self) -> Floats:
        """Return zeros: residuals are centered."""
        return np.zeros(self.shape)

    def variances(self) -> Floats:
        """Return the variance of each entry for unit noise, centered."""
        return np.concatenate([self.members.variances(), self.units.variances()])

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
        """The largest cost of a residual: asked before anything is read, so what has none is
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
            raise Refused(f"there are no {counted}s, so there is nothing to release")
        kinds.append(KindSpace(dataspace, adjacency, views, public, counted))
    space = LinkedSpace(public, adjacency, *kinds)
    # asked now, so what has no proven cost is refused before anything is read
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
