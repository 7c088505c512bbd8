"""The pairs of datasets that an audit compares, and the claims about them.

A pair comes from the mechanism, or is given as two lists of records. These must have the exact
totals of the release, and be as close as its promise says: at most a records apart, or exchanges (a
person with up to m records is set by a chain of m). Any other pair could convict an honest
mechanism. Claims are functions of public values: the plan, the published totals, and the
statements of the release.
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import singledispatch
from itertools import islice, product
from typing import Any

import numpy as np
from attrs import evolve, frozen

from semidp.assess.adjacent_datasets import ListedExchanges
from semidp.assess.linked_pairs import worst_linked_pair
from semidp.assess.pairs import Pair, make_pair, worst_histograms
from semidp.assess.worst_moves import worst_move, worst_product_move
from semidp.errors import DataError, InputError, Refused
from semidp.promise.confidential import reveal
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.canonical_cell import CellSpace
from semidp.promise.mechanisms.exponential import ExponentialMechanism
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.schema.margins import Counts, View, list_axes
from semidp.promise.schema.schema import Table
from semidp.promise.sensitivity.described_moves import (
    ALTERNATIVE,
    PERSON,
    Block,
    ExchangeMove,
    list_handovers,
)
from semidp.promise.sensitivity.linked_products import LinkedSpace
from semidp.promise.sensitivity.products import ProductSpace
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.sensitivity.table_spaces import TableSpace
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Dataspace
from semidp.promise.tradeoff.function import Order, Tradeoff
from semidp.publish.fitting.tables import fit_table
from semidp.publish.linked_mechanism import LinkedMechanism
from semidp.publish.pipeline import Prepared
from semidp.publish.plan import Plan
from semidp.publish.recheck_results import compare_noise, differences, short
from semidp.publish.release_value import ReleaseValue
from semidp.publish.residual_mechanism import ResidualMechanism
from semidp.publish.sources.opening import open_source
from semidp.publish.sources.reader import Reader
from semidp.publish.statistics.protocol.requests import Published


@frozen(eq=False)
class Claim:
    """The claim about one table: its mechanism, a tradeoff curve, and contradictions in
    the record.

    Parameters
    ----------
    name
        The name of the table in the plan.
    features
        Its features.
    mechanism
        The mechanism, calibrated from the plan and the published totals.
    tradeoff
        Its claimed tradeoff curve.
    faults
        Statements of the release that its plan does not support, one sentence each.
    """

    name: str
    features: tuple[str, ...]
    mechanism: Mechanism
    tradeoff: Tradeoff
    faults: tuple[str, ...] = ()

    @property
    def is_fixed(self) -> bool:
        """Whether the published totals fix the table, so there is nothing to attack."""
        return self.mechanism.space.is_zero


def claims_of_plan(prepared: Prepared) -> tuple[Claim, ...]:
    """Return the claims of a prepared plan, one for each request."""
    claims = []
    for request, mechanism in prepared.calibrated_requests:
        claims.append(Claim(request.name, request.features, mechanism, mechanism.tradeoff))
    return tuple(claims)


def claims_of_release(
    release: ReleaseValue, document: Mapping[str, Any] | None = None
) -> tuple[Claim, ...]:
    """Return the mechanisms of a release, recalibrated from its plan and totals, with its recorded
    claims.

    Parameters
    ----------
    release
        The release.
    document
        Its release.json, which may record something else (default: not compared).
    """
    release.refuse_combined("audits")
    claims = []
    for request, result in zip(release.plan.requests, release.results, strict=True):
        needed = result.recalibrate(request, release.scope)
        faults = [f"it states {said}" for said in compare_noise(release, request, result, needed)]
        if document is not None:
            faults += _stated_otherwise(result, document)
        drawn = result.sampling_mechanism(needed) or needed
        recorded = result.guarantee.tradeoff
        claim = Claim(request.name, request.features, drawn, recorded, tuple(faults))
        claims.append(claim)
    guarantees = [result.guarantee for result in release.results]
    whole = guarantees[0].compose(*guarantees[1:]).tradeoff
    if release.guarantee.tradeoff.compare(whole) not in (Order.EQUAL, Order.WEAKER):
        fault = "it claims more privacy than its tables give together"
        faults_of_all = (*claims[0].faults, fault)
        claims[0] = evolve(claims[0], faults=faults_of_all)
    return tuple(claims)


def _stated_otherwise(result: Published, document: Mapping[str, Any]) -> Iterator[str]:
    """Say where release.json records other noise, or another guarantee, than follows."""
    follows = result.to_json()
    for entry in document.get(result.list_key, ()):
        if entry["name"] != result.name:
            continue
        for key in ("noise", "guarantee"):
            for path, stated, computed in differences(entry.get(key), follows[key], key):
                yield f"it records {path} {short(stated)}, but its plan gives {short(computed)}"


_MOST_PEOPLE = 2_000_000  # pairs of records that are tried as who moves from where to where
_MOST_STEPS = 2_000  # datasets on the way that are tried

Record = tuple[Any, ...]
"""A leaf of every feature, then the values of the outcomes."""


def is_reachable(
    blocks: ListedExchanges, before: Counter[Record], after: Counter[Record], exchanges: int
) -> bool:
    """Whether at most `exchanges` exchanges turn one multiset of records into the other.

    One exchange is decided by its definition. A chain of several is sought among exchanges
    that bring the two closer; if there are too many candidates, the search ends and says no.

    Parameters
    ----------
    blocks
        The published blocks.
    before, after
        How often each record occurs.
    exchanges
        How many exchanges there may be.
    """
    return _ExchangeSearch(blocks, after).reaches(before, exchanges)


class _ExchangeSearch:
    """The search for exchanges that lead to a dataset."""

    def __init__(self, blocks: ListedExchanges, after: Counter[Record]) -> None:
        self.blocks, self.after, self.steps = blocks, after, 0
        self.seen: set[tuple[int, frozenset[tuple[Record, int]]]] = set()

    def reaches(self, current: Counter[Record], exchanges: int) -> bool:
        """Whether the target dataset is at most `exchanges` exchanges away."""
        apart = sum((current - self.after).values())
        if not apart:
            return True
        # an exchange changes one record, and one for each block
        if apart > exchanges * (self.blocks.count + 1):
            return False
        if _arises(self.blocks, current, self.after) or _arises(self.blocks, self.after, current):
            return True
        if exchanges == 1:
            return False
        key = exchanges, frozenset(current.items())
        if key in self.seen or self.steps >= _MOST_STEPS:
            return False
        self.seen.add(key)
        self.steps += 1
        return any(self.reaches(closer, exchanges - 1) for closer in self._closer(current))

    def _closer(self, current: Counter[Record]) -> Iterator[Counter[Record]]:
        """The datasets one exchange away, the nearest first."""
        gone, new = current - self.after, self.after - current
        # most of all somebody who left a place goes to one that was taken
        yield from self._rank_exchanges(current, product(gone, new), list(gone))
        yield from self._rank_exchanges(current, product(current, self.after), list(current))

    def _rank_exchanges(
        self, current: Counter[Record], people: Any, carriers: list[Record]
    ) -> list[Counter[Record]]:
        reached: dict[frozenset[tuple[Record, int]], Counter[Record]] = {}
        for x, y in people:
            if len(reached) > _MOST_STEPS:
                break
            if x != y:
                for change in _Journey(self.blocks, current, x, y).list_changes(carriers):
                    change.update(current)
                    dataset = +change
                    reached[frozenset(dataset.items())] = dataset
        return sorted(reached.values(), key=lambda each: sum((each - self.after).values()))


class _Journey:
    """The exchanges of a dataset in which one person goes from x to y."""

    def __init__(
        self, blocks: ListedExchanges, before: Counter[Record], x: Record, y: Record
    ) -> None:
        self.blocks, self.x, self.y = blocks, x, y
        self.axes = tuple(range(len(blocks.structure.schema.features)))
        self.others = before - Counter([x])
        self.published: list[Block] = []
        self.differing = []
        for margin in blocks.margins:
            source, target = (self._nodes(record, margin.view) for record in (x, y))
            self.published.append({axis: margin.view[axis] for axis in list_axes(margin.view)})
            self.differing.append([axis for axis in self.axes if source[axis] != target[axis]])

    def _nodes(self, record: Record, view: View) -> tuple[int, ...]:
        return self.blocks.nodes(record[: len(self.axes)], view)

    def list_changes(
        self, carriers: Iterable[Record], wanted: Counter[Record] | None = None
    ) -> Iterator[Counter[Record]]:
        """Yield how often each record occurs more after an exchange whose carriers are among some
        records; with `wanted`, only that change.
        """
        person = Counter({self.x: -1})
        person[self.y] += 1
        if wanted is not None:
            wanted = _subtract(wanted, person)
            # Each block that changes needs a carrier, and a carrier may serve several.
            if _size(wanted) > 2 * sum(map(bool, self.differing)):
                return
        for move in list_handovers(self.published, self.differing, self.axes):
            for change in self._serve(move, 1, self.others, carriers, wanted):
                change.update(person)
                yield change

    def _serve(
        self,
        move: ExchangeMove,
        number: int,
        others: Counter[Record],
        carriers: Iterable[Record],
        wanted: Counter[Record] | None,
    ) -> Iterator[Counter[Record]]:
        """Yield what the carriers from a number on change, each of them one other record."""
        left = len(move.records) - number
        # A carrier leaves one place and takes another, so it accounts for two entries of a change.
        if wanted is not None and _size(wanted) > 2 * left:
            return
        if not left:
            yield Counter()
            return
        if wanted is not None and left == 1:
            carriers = [record for record, count in wanted.items() if count < 0]
        described = move.records[number]
        depths = dict.fromkeys(self.axes, 0)
        for rule in move.rules:
            if rule.letters == (described.before[0], ALTERNATIVE):
                depths[rule.axis] = rule.depth
        view = tuple(depths.values())
        target = self._nodes(self.y, view)
        for record in carriers:
            if others[record] < 1 or self._nodes(record, view) != target:
                continue
            moved = list(record)
            for axis, letter in enumerate(described.after):
                if letter == PERSON:
                    moved[axis] = self.x[axis]
            step = Counter({record: -1})
            step[tuple(moved)] += 1
            missing = None if wanted is None else _subtract(wanted, step)
            for change in self._serve(
                move, number + 1, others - Counter([record]), carriers, missing
            ):
                change.update(step)
                yield change


def _arises(blocks: ListedExchanges, before: Counter[Record], after: Counter[Record]) -> bool:
    """Whether one person and its carriers turn one multiset of records into the other, by the
    definition in `Blocks`.

    Who moves is first sought among the records that differ. If somebody else takes the very
    place that the person leaves, or leaves the one that it takes, all records are tried, unless
    they are too many.
    """
    gone, new = before - after, after - before
    if not gone:
        return True
    change = Counter(after)
    change.subtract(before)
    movers = product(gone, new)
    if any(_can_explain_change(blocks, before, x, y, change) for x, y in movers):
        return True
    if len(before) * len(after) > _MOST_PEOPLE:
        return False
    movers = product(before, after)
    return any(_can_explain_change(blocks, before, x, y, change) for x, y in movers)


def _can_explain_change(
    blocks: ListedExchanges, before: Counter[Record], x: Record, y: Record, change: Counter[Record]
) -> bool:
    """Whether carriers make up the change when one person goes from x to y."""
    exchanges = _Journey(blocks, before, x, y)
    return any(True for _ in exchanges.list_changes(list(exchanges.others), change))


def _subtract(change: Counter[Record], part: Counter[Record]) -> Counter[Record]:
    """What is left of a change; counts may be negative."""
    left = Counter(change)
    left.subtract(part)
    return left


def _size(change: Counter[Record]) -> int:
    return sum(map(abs, change.values()))


def given_pairs(
    datasets: Sequence[Any],
    claims: Sequence[Claim],
    plan: Plan,
    scope: Scope,
    adjacency: Adjacency | None = None,
) -> list[Pair | None]:
    """Return the pair of values of each claim on two datasets, None if they have the same.

    Parameters
    ----------
    datasets
        The two datasets, each a list of records: mappings with a value for every column that the
        plan reads.
    claims
        The claims, one for each request of the plan.
    plan, scope
        The plan of the release, and its public scope.
    adjacency
        The adjacency that the datasets must have (default: that of the scope).

    Raises
    ------
    InputError
        If a dataset is not a list of such records.
    Refused
        If the totals of the datasets differ from the published ones, or the datasets are not
        adjacent or do not differ in anything measured.
    """
    first = _Dataset.from_records(datasets[0], plan, scope, "first")
    second = _Dataset.from_records(datasets[1], plan, scope, "second")
    values = []
    for dataset in (first, second):
        with dataset.reader(plan, scope) as reader:
            dataset.check_totals(reader, scope)
            measured = []
            for request, claim in zip(plan.requests, claims, strict=True):
                measured.append(reveal(request.read(reader, scope, claim.mechanism.space)))
            values.append(measured)
    _check_adjacent(first, second, adjacency or scope.adjacency, scope)
    pairs = []
    for claim, one, other in zip(claims, *values, strict=True):
        pairs.append(_pair(claim, one, other))
    if not any(pairs):
        raise Refused(
            "the two datasets of the pair give the same measured values: there is nothing to tell"
            " apart"
        )
    return pairs


def _pair(claim: Claim, first: Any, second: Any) -> Pair | None:
    if np.array_equal(first, second) or claim.is_fixed:
        return None
    return make_pair(claim.mechanism, first, second)


@frozen
class _Dataset:
    """A dataset by its columns, and its records as leaves and outcomes."""

    name: str
    columns: Mapping[str, list[Any]]
    records: tuple[Record, ...]

    @classmethod
    def from_records(cls, records: Any, plan: Plan, scope: Scope, name: str) -> "_Dataset":
        schema = scope.dataspace.schema
        needed: list[str] = []
        for feature in schema.features:
            needed.extend(feature.names)
        needed.extend(plan.outcomes)
        is_list = isinstance(records, list)
        if not is_list or not all(isinstance(record, Mapping) for record in records):
            raise InputError(
                f"the {name} dataset of the pair is not a list of records: write each as an object"
                f" with a value for {', '.join(needed)}"
            )
        for column in needed:
            if any(column not in record for record in records):
                raise InputError(
                    f"a record of the {name} dataset of the pair has no value for {column!r}:"
                    " give one"
                )
        columns: dict[str, list[Any]] = {}
        for column in needed:
            columns[column] = [record[column] for record in records]
        parts: list[list[Any]] = []
        for feature in schema.features:
            if len(feature.names) == 1:
                values = np.array(columns[feature.name], dtype=object)
                parts.append(feature.codes(values).tolist())
            else:
                texts = {depth: list(map(str, columns[depth])) for depth in feature.names}
                parts.append(feature.locate_leaves(texts).tolist())
        for column in plan.outcomes:
            parts.append([_number(value, column, name) for value in columns[column]])
        return cls(name, columns, tuple(zip(*parts, strict=True)))

    @contextlib.contextmanager
    def reader(self, plan: Plan, scope: Scope) -> Iterator[Reader]:
        """Yield a reader of the dataset with the schema of the release."""
        columns = {}
        for name, values in self.columns.items():
            columns[name] = np.array(values)
        with open_source(columns) as source:
            yield Reader(scope.dataspace.schema, source, plan.features)

    def check_totals(self, reader: Reader, scope: Scope) -> None:
        """Refuse a dataset that has other exact totals than the release."""
        public = scope.dataspace
        if len(self.records) != public.n:
            raise Refused(
                f"the {self.name} dataset of the pair has another number of records than the"
                " release"
            )
        counted = reader.tables(margin.names for margin in public.margins)
        for margin, published, total in zip(public.margins, public.totals, counted, strict=True):
            if total != published:
                raise Refused(
                    f"the {self.name} dataset of the pair has other totals of {margin} than the"
                    " release publishes: give two datasets with the published totals"
                )


def _number(value: Any, column: str, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise DataError(
            f"the {name} dataset of the pair has a value of {column!r} that is not a number"
        ) from None


def _check_adjacent(first: _Dataset, second: _Dataset, adjacency: Adjacency, scope: Scope) -> None:
    one, other = Counter(first.records), Counter(second.records)
    check = adjacency.by_kind(ball=_check_records, exchange=_check_exchanges)
    check(one, other, adjacency, scope)


def _check_records(
    one: Counter[Record], other: Counter[Record], adjacency: Adjacency, scope: Scope
) -> None:
    """Refuse two datasets that differ in more records than are protected together."""
    apart = sum((one - other).values())
    if apart > adjacency.a:
        raise Refused(
            f"the two datasets of the pair differ in {apart:,} records, and the release is about"
            f" {adjacency}: give two that are no farther apart"
        )


def _check_exchanges(
    one: Counter[Record], other: Counter[Record], adjacency: Adjacency, scope: Scope
) -> None:
    """Refuse two datasets that the exchanges of one person do not join."""
    exchanges = ListedExchanges.from_dataspace(scope.dataspace)
    if is_reachable(exchanges, one, other, adjacency.most_moves):
        return
    if adjacency.times == 1:
        raise Refused(
            "the two datasets of the pair are not one exchange apart: one person may go anywhere,"
            " and for each published total that it changes one other record takes its place"
        )
    raise Refused(
        f"the two datasets of the pair were not found to be {adjacency.times} exchanges apart, one"
        f" for each record of {adjacency.words.who}: a record may go anywhere, and for each"
        " published total that it changes one other record takes its place"
    )


_SECONDS = 10.0
_MOST_MOVES = 500


@singledispatch
def worst_pair(space: QuerySpace) -> Pair:
    """Return two tables of D_t that differ by the worst move of S_a, from the public totals alone.

    ``x' = x + m`` with m a move that attains Δ2, if one is known, and x a table with the
    published margins and at least as many records in each cell as m takes away. If no total
    constrains the values, the worst move starts from zeros.

    >>> from semidp.promise.mechanisms.examples import two_way
    >>> space, _ = two_way()
    >>> pair = worst_pair(space)
    >>> int((pair.move**2).sum()) == space.l2_squared, pair.first.sum(axis=1).tolist()
    (True, [60, 75])
    """
    _refuse_fixed(space)
    move = worst_move(space)
    if move is None:
        raise Refused(
            "no worst pair of this query is known: audit the mechanism with a pair of your own"
        )
    return Pair(np.zeros_like(move), move)


@worst_pair.register
def _(space: CellSpace) -> Pair:
    """Two values of x11 that adjacent datasets can have, from the margins alone."""
    change = min(space.norms.linf, max(space.high - space.low, 1))
    return Pair([space.low], [space.low + change])


@worst_pair.register
def _(space: LinkedSpace) -> Pair:
    """Each residual counts by its own cost."""
    _refuse_fixed(space)
    members, units = space.members.cost, space.units.cost
    return worst_linked_pair(space, members, units, float(len(members) + len(units)))


@worst_pair.register
def _(space: TableSpace) -> Pair:
    """The worst move that the published totals can hold."""
    _refuse_fixed(space)
    for move in _worst_moves_first(space):
        first = _table_below(move, space)
        if first is not None:
            return Pair(first, first + move)
    raise Refused(
        "no pair of tables with these totals was found: audit the mechanism with a pair of your own"
    )


def choose_pair(mechanism: Mechanism, adjacency: Adjacency | None = None) -> Pair:
    """Return the pair that an audit of a mechanism compares; for a product the move that costs most
    of its noise.

    The default adjacency is that for which the mechanism was
    calibrated.

    >>> from semidp.publish.selection import choose
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> from semidp.promise.tradeoff.budget import Budget
    >>> choose_pair(choose(two_way()[0], Budget.gdp(1))).records
    2
    """
    space = mechanism.space
    if adjacency is not None:
        space = space.under(adjacency)
    return pair_for_noise(mechanism, space)


@singledispatch
def pair_for_noise(mechanism: Mechanism, space: QuerySpace) -> Pair:
    """Return the pair of a space on which the noise of a mechanism is attacked."""
    return worst_pair(space)


@pair_for_noise.register
def _(mechanism: ResidualMechanism, space: QuerySpace) -> Pair:
    """The move that costs most of this noise."""
    if not isinstance(space, ProductSpace) or space.is_zero:
        return worst_pair(space)
    move = worst_product_move(space, mechanism.sigma2)
    if move is None:
        raise Refused(
            "no worst pair of these tables is known: audit the mechanism with a pair of your own"
        )
    return make_pair(mechanism, np.zeros_like(move), move)


@pair_for_noise.register
def _(mechanism: LinkedMechanism, space: QuerySpace) -> Pair:
    """The change that costs most of the noise of both kinds."""
    if not isinstance(space, LinkedSpace):
        return worst_pair(space)
    _refuse_fixed(space)
    members, units = mechanism.members.sigma2, mechanism.units.sigma2
    pair = worst_linked_pair(space, members, units, float(mechanism.precision))
    return evolve(pair, precision=1 / mechanism.entry_variances)


@pair_for_noise.register
def _(mechanism: ExponentialMechanism, space: QuerySpace) -> Pair:
    """Choices at this rate that are as easily told apart as was found."""
    attacked = evolve(mechanism, space=space)
    return make_pair(attacked, *worst_histograms(attacked))


def _refuse_fixed(space: QuerySpace) -> None:
    """Refuse to look for a pair if there is none."""
    if space.is_zero:
        raise Refused(
            "the published totals fix this table, so there is no second table to compare it with"
        )


def _worst_moves_first(space: TableSpace) -> Iterator[Counts]:
    """Yield the worst move, then some other moves, the longest first."""
    worst = worst_move(space)
    times = space.adjacency.most_moves
    if worst is not None:
        # where the totals do not hold so many of it, fewer
        for repeated in range(times, 0, -1):
            yield worst // times * repeated
    first_moves = list(islice(space.moves(), _MOST_MOVES))
    yield from sorted(first_moves, key=lambda move: -int((move**2).sum()))


def _table_below(move: Counts, space: TableSpace) -> Counts | None:
    """Return a table with the public totals that stays nonnegative after `move`: the records that
    it takes away, and a fit of all others.
    """
    public, taken = space.released_space(), np.maximum(-move, 0)
    schema = public.schema
    if schema.possible is not None and move[~schema.possible].any():
        return None
    try:
        gone = Table(schema, taken)
        totals = {}
        for margin, total in zip(public.margins, public.totals, strict=True):
            totals[margin] = Table(total.schema, total.counts - gone.margin(margin.names).counts)
        left = Dataspace.from_totals(schema, totals, public.n - gone.n)
        counts = fit_table(space.fixed_part() - taken, left, time_limit=_SECONDS).counts
    except InputError:  # the totals hold fewer records than the move takes away
        return None
    return None if counts is None else counts + taken
