"""One person with up to m records (docs/several_records.md), by brute force over small
worlds.

Nothing here uses the package's lists of moves: datasets, alternatives and exchanges are enumerated
from their definitions, and what the package claims is compared with them.
"""

import itertools
from collections import Counter
from collections.abc import Iterator
from functools import cache, cached_property

import numpy as np
import pytest
from attrs import frozen

from semidp import Dataspace, Feature, Margin, Schema, Table
from semidp.errors import Refused
from semidp.promise.mechanisms.exponential import rank_space
from semidp.promise.mechanisms.knorm import place_ball
from semidp.promise.schema.outcome import Outcome
from semidp.promise.sensitivity.costs import ExchangeCosts
from semidp.promise.sensitivity.distribution_space import distribution_space
from semidp.promise.sensitivity.moments import moment_space
from semidp.promise.sensitivity.outcome_spaces import outcome_adjacency, outcome_exchange, sum_space
from semidp.promise.sensitivity.patterns import Norms
from semidp.promise.sensitivity.products import product_space
from semidp.promise.sensitivity.table_spaces import sensitivity_space
from semidp.promise.spaces.adjacency import Ball, Exchange
from semidp.promise.spaces.protection import Protection
from semidp.promise.spaces.semi_adjacency import semi_adjacency
from semidp.publish.statistics.regression.designs import Design

Cell = tuple[int, ...]
Records = tuple[Cell, ...]  # sorted: a multiset


@frozen(slots=False)
class World:
    """A schema, exact margins by the numbers of their features, and one dataset that says their
    totals.
    """

    levels: tuple[int, ...]
    margins: tuple[tuple[int, ...], ...]
    records: Records
    persons: int
    most: int

    @cached_property
    def cells(self) -> list[Cell]:
        return list(itertools.product(*map(range, self.levels)))

    def totals(self, records: Records) -> tuple[tuple[tuple[Cell, int], ...], ...]:
        found = []
        for margin in self.margins:
            counted = Counter(tuple(record[axis] for axis in margin) for record in records)
            found.append(tuple(sorted(counted.items())))
        return tuple(found)

    @cached_property
    def fiber(self) -> list[Records]:
        """Every dataset with the exact totals, as a multiset of records."""
        wanted = self.totals(self.records)
        every = itertools.combinations_with_replacement(self.cells, len(self.records))
        return [records for records in every if self.totals(records) == wanted]

    def sizes(self) -> list[int]:
        """How many records one person may have, so that the others have between 1 and the most."""
        others, n = self.persons - 1, len(self.records)
        return [k for k in range(1, self.most + 1) if others <= n - k <= self.most * others]

    def held(self, records: Records) -> set[Records]:
        """Every set of records that one person may have in a dataset."""
        return {part for k in self.sizes() for part in itertools.combinations(records, k)}

    @cached_property
    def alternatives(self) -> set[Records]:
        """Every set of records that one person may have in some dataset with the totals."""
        return {part for records in self.fiber for part in self.held(records)}

    @cached_property
    def space(self) -> Dataspace:
        schema = Schema(
            [Feature(f"f{i}", [str(k) for k in range(size)]) for i, size in enumerate(self.levels)]
        )
        counts = np.zeros(self.levels, dtype=np.int64)
        for record in self.records:
            counts[record] += 1
        return Dataspace.from_table(
            Table(schema, counts), [Margin(*(f"f{i}" for i in margin)) for margin in self.margins]
        )

    @property
    def protection(self) -> Protection:
        return Protection("patient", self.most, "stays")

    @property
    def values(self) -> list[set[Cell]]:
        return [
            {tuple(record[axis] for axis in margin) for record in self.records}
            for margin in self.margins
        ]

    @property
    def blocks(self) -> list[tuple[int, ...]]:
        """The margins with two values that occur."""
        return [
            margin
            for margin, values in zip(self.margins, self.values, strict=True)
            if len(values) > 1
        ]

    @cached_property
    def possible(self) -> list[Cell]:
        """The cells whose values occur in every margin."""
        pairs = list(zip(self.margins, self.values, strict=True))
        return [
            cell
            for cell in self.cells
            if all(tuple(cell[a] for a in m) in values for m, values in pairs)
        ]

    def exchanges(self, rest: Records, place: int, y: Cell) -> Iterator[Records]:
        """What the other records can be when the record at one place goes to y: the definition of
        section 11.
        """
        x = rest[place]
        others = [list(record) for number, record in enumerate(rest) if number != place]
        differ = [block for block in self.blocks if any(x[axis] != y[axis] for axis in block)]
        carriers = []
        for block in differ:
            wanted = [y[axis] for axis in block]
            carriers.append(
                [j for j, other in enumerate(others) if [other[axis] for axis in block] == wanted]
            )
        for chosen in itertools.product(*carriers):
            changed = [list(record) for record in others]
            for block, j in zip(differ, chosen, strict=True):
                for axis in block:
                    if x[axis] != y[axis]:
                        changed[j][axis] = x[axis]
            yield tuple(sorted(map(tuple, changed)))

    @cache  # noqa: B019
    def stepped(self, records: Records) -> frozenset[Records]:
        """Every dataset one exchange away, in either direction, and the dataset itself."""
        found = {records}
        for place, y in itertools.product(range(len(records)), self.possible):
            for rest in self.exchanges(records, place, y):
                found.add(tuple(sorted((*rest, y))))
        return frozenset(found)

    @cached_property
    def chains(self) -> set[tuple[Records, Records]]:
        """Every two datasets that as many exchanges as a person has records join, each in either
        direction.
        """
        both = {(one, other) for one in self.fiber for other in self.stepped(one)}
        both |= {(other, one) for one, other in both}
        after: dict[Records, set[Records]] = {}
        for one, other in both:
            after.setdefault(one, set()).add(other)
        reached = {one: {one} for one in self.fiber}
        for _ in range(self.most):
            reached = {
                one: set().union(*(after[other] for other in others))
                for one, others in reached.items()
            }
        return {(one, other) for one, others in reached.items() for other in others}


def moved(world: World, one: Records, other: Records) -> int:
    """How many records of two datasets differ."""
    return len(one) - sum((Counter(one) & Counter(other)).values())


def nearest(world: World, records: Records, own: Records, alternative: Records) -> int:
    """The fewest records that change so that a person with some records has others: those of others
    by themselves.
    """
    rest = Counter(records) - Counter(own)
    best = len(records) + 1
    for other in world.fiber:
        counted = Counter(other)
        if any(counted[cell] < count for cell, count in Counter(alternative).items()):
            continue
        beside = sum((rest & (counted - Counter(alternative))).values())
        kept = sum((Counter(own) & Counter(alternative)).values())
        best = min(best, len(records) - beside - kept)
    return best


def reaches(world: World, records: Records, own: Records, alternative: Records) -> bool:
    """Whether a person's records are set one after the other, each by one exchange among records
    that are not set.
    """

    def follow(rest: Records, left: Records, target: Records) -> bool:
        if not target:
            return True
        y, further = target[0], target[1:]
        # somebody else's record, where the person has more than before
        movers = left or tuple(set(rest))
        for x in dict.fromkeys(movers):
            if x not in rest:
                continue
            for after in world.exchanges(rest, rest.index(x), y):
                mine = list(left)
                if left:
                    mine.remove(x)
                # a record of the person may carry before its turn: then it is another one
                if follow(after, tuple(record for record in mine if record in after), further):
                    return True
        return False

    kept = Counter(own) & Counter(alternative)
    return follow(
        tuple(sorted((Counter(records) - kept).elements())),
        tuple((Counter(own) - kept).elements()),
        tuple((Counter(alternative) - kept).elements()),
    )


def drawn(
    seed: int,
    count: int,
    shapes: list[tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]],
    n: int = 5,
):
    generator = np.random.default_rng(seed)
    for _ in range(count):
        levels, margins = shapes[generator.integers(len(shapes))]
        size = int(generator.integers(3, n + 1))
        records = tuple(
            sorted(tuple(int(generator.integers(level)) for level in levels) for _ in range(size))
        )
        most = int(generator.integers(2, 4))
        least = -(-size // most)
        yield World(levels, margins, records, int(generator.integers(least, size + 1)), most)


DISJOINT = [
    ((3,), ()),
    ((2, 2), ((0,),)),
    ((3, 2), ((0,),)),
    ((2, 2), ((0,), (1,))),
    ((3, 3), ((0,), (1,))),
    ((2, 2, 2), ((0, 1),)),
    ((2, 2, 2), ((0,), (1,))),
    ((2, 2, 2), ((0,), (1,), (2,))),
    ((2, 2, 2), ((0, 1), (2,))),
]
OVERLAPPING = [
    ((2, 2, 2), ((0, 1), (1, 2))),
    ((2, 2, 2), ((0, 1), (1, 2), (0, 2))),
    ((2, 3, 2), ((0, 1), (1, 2))),
]


def test_everybody_with_several_records_reaches_every_alternative_within_the_ball():
    tried = attained = worlds = 0
    for world in itertools.chain(drawn(1, 30, DISJOINT, 4), drawn(2, 10, OVERLAPPING, 4)):
        together = semi_adjacency(world.space, world.protection)
        worst = 0
        for records in world.fiber:
            for own, alternative in itertools.product(world.held(records), world.alternatives):
                worst = max(worst, nearest(world, records, own, alternative))
                tried += 1
        assert worst <= together.bound, world
        attained += worst == together.bound
        worlds += 1
    assert worlds == 30 + 10
    assert tried > 10_000
    assert attained >= 10


def test_everybody_with_several_records_is_set_by_as_many_exchanges():
    tried = reached = 0
    for world in drawn(3, 14, DISJOINT, 4):
        for records in world.fiber:
            for own, alternative in itertools.product(world.held(records), world.alternatives):
                tried += 1
                reached += reaches(world, records, own, alternative)
    assert reached == tried
    assert tried > 3_000


def table_of(world: World, records: Records, axes: tuple[int, ...]) -> np.ndarray:
    counts = np.zeros([world.levels[axis] for axis in axes], dtype=np.int64)
    for record in records:
        counts[tuple(record[axis] for axis in axes)] += 1
    return counts


def released(world: World) -> list[tuple[int, ...]]:
    axes = range(len(world.levels))
    return [
        chosen
        for size in range(1, len(world.levels) + 1)
        for chosen in itertools.combinations(axes, size)
    ]


def test_no_table_of_several_records_moves_by_more_than_its_norms():
    """Exchanges: all pairs that a person's exchanges join. Ball: all pairs within the stated number
    of records.
    """
    tables = attained = 0
    for world in drawn(4, 14, DISJOINT, 5):
        exchange = Exchange.from_dataspace(world.space, world.protection)
        ball = Ball(semi_adjacency(world.space, world.protection).bound, world.protection)
        assert exchange.times == world.most
        for axes in released(world):
            names = [f"f{axis}" for axis in axes]
            moves = [
                table_of(world, other, axes) - table_of(world, one, axes)
                for one, other in world.chains
            ]
            found = Norms.from_vectors(np.stack(moves).reshape(len(moves), -1))
            norms = sensitivity_space(world.space, exchange, names).norms
            assert norms.most(found) == norms, (world, axes)
            wide = sensitivity_space(world.space, ball, names).norms
            assert wide.most(found) == wide, (world, axes)
            tables += 1
            attained += norms.l2_squared > 0 and found == norms
    assert tables >= 40
    assert attained >= 5


def test_one_exchange_does_not_cover_a_person_with_several_records():
    """The twin: the norms of one record are exceeded."""
    world = World((2, 2), ((0,),), ((0, 0), (0, 0), (0, 1), (1, 0), (1, 1), (1, 1)), 3, 2)
    moves = [
        table_of(world, other, (0, 1)) - table_of(world, one, (0, 1)) for one, other in world.chains
    ]
    found = Norms.from_vectors(np.stack(moves).reshape(len(moves), -1))
    once = sensitivity_space(world.space, Exchange.from_dataspace(world.space)).norms
    several = sensitivity_space(
        world.space, Exchange.from_dataspace(world.space, world.protection)
    ).norms
    assert found.l2_squared > once.l2_squared
    assert several == once.multiply(2) == found


def test_no_residual_of_several_records_costs_more_than_stated():
    measured = attained = 0
    for world in drawn(5, 12, [shape for shape in DISJOINT if len(shape[0]) > 1], 5):
        tables = [[f"f{axis}" for axis in axes] for axes in released(world) if len(axes) <= 2]
        space = product_space(
            world.space, Exchange.from_dataspace(world.space, world.protection), tables
        )
        # the same without a list of moves: patterns and closed forms
        margins = tuple(margin.view for margin in world.space.published_totals)
        unlisted = ExchangeCosts(
            space.residuals, margins, space.adjacency.records_per_move, times=world.most
        )
        sigma2 = {
            view: cost * (1 + number) for number, (view, cost) in enumerate(space.cost.items())
        }
        worst, together = dict.fromkeys(space.measured_residuals, 0.0), 0.0
        for one, other in world.chains:
            move = space.trim(
                table_of(world, other, tuple(range(len(world.levels)))), space.schema.grid.full
            )
            move = move - space.trim(
                table_of(world, one, tuple(range(len(world.levels)))), space.schema.grid.full
            )
            total = 0.0
            for view in space.measured_residuals:
                part = space.residuals.table(move, space.schema.grid.full, view)
                square = float((space.residuals.center(view, part) ** 2).sum())
                worst[view] = max(worst[view], square)
                total += square / float(sigma2[view])
            together = max(together, total)
        for view, square in worst.items():
            assert square <= float(space.cost[view]) + 1e-9, (world, view)
            assert square <= float(unlisted.cost(view)) + 1e-9, (world, view)
            measured += 1
            attained += square > float(space.cost[view]) - 1e-9
        if sigma2:
            assert together <= space.costs.joint(sigma2) + 1e-9, world
            assert together <= unlisted.joint(sigma2) + 1e-9, world
    assert measured >= 15
    assert attained >= 5


@pytest.mark.parametrize("kind", ["exchange", "ball"])
def test_the_ball_of_k_norm_noise_holds_every_move_of_several_records(kind):
    balls = attained = 0
    shapes = [
        ((3,), ()),
        ((2, 2), ((0,),)),
        ((3, 2), ((0,),)),
        ((3, 3), ((0,), (1,))),
        ((2, 3), ((0,), (1,))),
    ]
    for world in drawn(8, 16, shapes, 6):
        bound = semi_adjacency(world.space, world.protection).bound
        chains = Exchange.from_dataspace(world.space, world.protection)
        space = sensitivity_space(
            world.space, chains if kind == "exchange" else Ball(bound, world.protection)
        )
        axes = tuple(range(len(world.levels)))
        moves = [
            table_of(world, other, axes) - table_of(world, one, axes)
            for one, other in world.chains
            if one != other
        ]
        try:
            placed = place_ball(space) if moves and not space.is_zero else None
        except Refused:  # the moves of few records do not span all
            continue
        if placed is None:
            continue
        norms = (
            placed.ball.norm(np.array([placed.take(move) for move in moves], dtype=float))
            / placed.stretch
        )
        assert norms.max() <= 1 + 1e-9, world
        balls += 1
        attained += norms.max() > 1 - 1e-9
    assert balls >= 6
    assert attained >= 2


def outcome_moves(world: World, axes: tuple[int, ...]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Records whose last feature is an outcome, by groups and value: what it is in two datasets of
    a pair.
    """
    for one, other in world.chains:
        yield (
            table_of(world, one, (*axes, len(world.levels) - 1)),
            table_of(world, other, (*axes, len(world.levels) - 1)),
        )


OUTCOMES = [((2, 3), ((0,),)), ((3, 2), ((0,),)), ((2, 2, 2), ((0,), (1,))), ((1, 3), ((0,),))]


def public_part(world: World) -> Dataspace:
    """What is published about everything but the outcome, which is the last feature."""
    names = [f"f{axis}" for axis in range(len(world.levels) - 1)]
    return world.space.restrict_features(names)


@pytest.mark.parametrize("kind", ["exchange", "ball"])
def test_no_sum_and_no_rank_of_several_records_moves_by_more_than_stated(kind):
    spaces = attained = 0
    for world in drawn(6, 16, OUTCOMES, 6):
        public = public_part(world)
        related = outcome_exchange if kind == "exchange" else outcome_adjacency
        adjacency = related(public, world.protection)
        steps = world.levels[-1] - 1
        outcome = Outcome("y", 0, steps, steps=steps)
        blocks = [Margin(*(f"f{axis}" for axis in margin)) for margin in world.margins]
        sums = sum_space(public, adjacency, outcome, blocks)
        ranks = rank_space(public, adjacency, outcome, blocks)
        whole = distribution_space(public, adjacency, outcome, blocks)
        moved_sums, replaced, squares, halves = [], 0, 0, []
        for pairs in zip(*(outcome_moves(world, margin) for margin in world.margins), strict=True):
            change = [(other - one).reshape(-1, steps + 1) for one, other in pairs]
            moved_sums.append(np.concatenate([part @ np.arange(steps + 1) for part in change]))
            # how far the ranks of a group move: the largest change of a cumulative count
            ranked = np.concatenate(
                [np.abs(np.cumsum(part, axis=1)).max(axis=1) for part in change]
            )
            halves.append(whole.apply_query(np.concatenate(change)))
            replaced = max(replaced, int(ranked.sum()))
            squares = max(squares, int((ranked**2).sum()))
        found = Norms.from_vectors(np.stack(moved_sums))
        assert sums.norms.most(found) == sums.norms, world
        assert replaced <= ranks.l1, world
        assert squares <= ranks.l2_squared, world
        distributed = Norms.from_vectors(np.stack(halves))
        assert whole.norms.most(distributed) == whole.norms, world
        spaces += 1
        attained += (found == sums.norms) + (replaced == ranks.l1)
    assert spaces == 16
    assert attained >= 4


@pytest.mark.parametrize("kind", ["exchange", "ball"])
def test_no_moment_of_several_records_moves_by_more_than_stated(kind):
    spaces = attained = 0
    for world in drawn(7, 10, [((2, 2), ((0,),)), ((3, 2), ((0,),))], 6):
        public = public_part(world)
        related = outcome_exchange if kind == "exchange" else outcome_adjacency
        design = Design.from_schema(public.schema, ["f0"])
        if not all(design.inhabited_mask(public)):
            continue
        space = moment_space(
            public, related(public, world.protection), Outcome("y", 0, 1, steps=1), design
        )
        moves = []
        for one, other in outcome_moves(world, (0,)):
            moves.append((other - one)[:, 1] @ space.rows_by_cell.astype(np.int64))
        found = Norms.from_vectors(np.stack(moves))
        assert space.norms.most(found) == space.norms, world
        spaces += 1
        attained += found.l2_squared == space.norms.l2_squared
    assert spaces >= 5
    # the ball has pairs that no person's exchanges join
    assert attained >= (1 if kind == "exchange" else 0)


@pytest.mark.long
def test_many_worlds_of_several_records_keep_what_is_promised():
    """More worlds than above, and both promises on each: the neighbour within the ball, and one
    exchange a record.
    """
    worlds = tried = chained = attained = 0
    for world in itertools.chain(
        drawn(101, 70, DISJOINT, 5), drawn(102, 70, DISJOINT, 4), drawn(103, 40, OVERLAPPING, 4)
    ):
        if len(world.fiber) * len(world.alternatives) > 4_000:
            continue
        apart = (world.levels, world.margins) in DISJOINT
        bound = semi_adjacency(world.space, world.protection).bound
        worst = 0
        for records in world.fiber:
            for own, alternative in itertools.product(world.held(records), world.alternatives):
                worst = max(worst, nearest(world, records, own, alternative))
                tried += 1
                if apart and len(records) <= 4:
                    assert reaches(world, records, own, alternative), (
                        world,
                        records,
                        own,
                        alternative,
                    )
                    chained += 1
        assert worst <= bound, world
        worlds += 1
        attained += worst == bound
    assert worlds >= 150
    assert tried >= 50_000
    assert chained >= 20_000
    assert attained >= 60
