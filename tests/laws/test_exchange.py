"""Exchange adjacency against brute force: all datasets of small spaces, every neighbour, every
table.
"""

import itertools
import random
from collections import Counter

import numpy as np
import pytest

from semidp.assess.adjacent_datasets import ListedExchanges, Record, Records, is_adjacent
from semidp.assess.worst_moves import worst_move
from semidp.errors import InputError, Refused
from semidp.promise.guarantee import Guarantee
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import View
from semidp.promise.schema.schema import Schema, StructuralZero, Table
from semidp.promise.sensitivity.exchange_tables import ExchangeTable
from semidp.promise.sensitivity.norms import ReleasedTable
from semidp.promise.sensitivity.patterns import Norms
from semidp.promise.sensitivity.table_spaces import sensitivity_space
from semidp.promise.spaces.adjacency import Adjacency, Ball, Exchange
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.semi_adjacency import exchange_bound, semi_adjacency
from semidp.promise.tradeoff.budget import gaussian
from semidp.promise.tradeoff.function import Order

PLACES = [("s", "a"), ("s", "b"), ("t", "c")]
DEEPER = [("r", "s", "a"), ("r", "s", "b"), ("u", "v", "c"), ("u", "w", "d")]


def feature(number: int, kind: str) -> Feature:
    """Flat with so many levels, or a chain of depths."""
    if kind == "geo":
        return Feature.from_paths([f"state{number}", f"county{number}"], PLACES)
    if kind == "deep":
        return Feature.from_paths([f"region{number}", f"state{number}", f"county{number}"], DEEPER)
    return Feature(f"f{number}", [str(level) for level in range(int(kind))])


def space_of(schema: Schema, records: list[Record], margins: list[tuple[str, ...]]) -> Dataspace:
    """The dataspace of some records."""
    table = np.zeros(schema.shape, dtype=np.int64)
    for record in records:
        table[record] += 1
    return Dataspace.from_table(Table(schema, table), [Margin(*names) for names in margins])


class ByHand:
    """The definition once more, on labels, from published margins alone: what the library is
    compared with.
    """

    def __init__(self, dataspace: Dataspace) -> None:
        self.schema, self.space = dataspace.schema, dataspace
        paths = [
            [feature.path(leaf) for leaf in range(len(feature.levels))]
            for feature in self.schema.features
        ]
        start = itertools.accumulate(
            (len(feature.names) for feature in self.schema.features), initial=0
        )
        self.spans = [
            range(s, s + len(f.names)) for s, f in zip(start, self.schema.features, strict=False)
        ]
        names = [name for feature in self.schema.features for name in feature.names]
        self.blocks = [[names.index(name) for name in margin.names] for margin in dataspace.margins]
        self.totals = []
        for margin, total, block in zip(
            dataspace.margins, dataspace.totals, self.blocks, strict=True
        ):
            parts = [
                self.schema.features[i] for i, span in enumerate(self.spans) if {*span} & {*block}
            ]
            shown = [
                [
                    f.path(leaf)[: sum(n in margin.names for n in f.names)]
                    for leaf in range(len(f.levels))
                ]
                for f in parts
            ]
            keys = [list(dict.fromkeys(found)) for found in shown]
            counts = zip(itertools.product(*keys), total.counts.ravel().tolist(), strict=True)
            self.totals.append(
                Counter({tuple(itertools.chain(*key)): count for key, count in counts if count})
            )
        flat = [tuple(itertools.chain(*parts)) for parts in itertools.product(*paths)]
        possible = (
            np.ones(self.schema.shape, bool)
            if self.schema.possible is None
            else self.schema.possible
        )
        self.cells = [
            record
            for record, there in zip(flat, possible.ravel().tolist(), strict=True)
            if there
            and all(
                self.seen(record, b) in t for b, t in zip(self.blocks, self.totals, strict=True)
            )
        ]

    @staticmethod
    def seen(record, places):
        return tuple(record[place] for place in places)

    def datasets(self):
        for records in itertools.product(self.cells, repeat=self.space.n):
            if all(
                Counter(self.seen(r, b) for r in records) == t
                for b, t in zip(self.blocks, self.totals, strict=True)
            ):
                yield records

    def arising(self, X):
        for i, x in enumerate(X):
            for y in self.cells:
                todo = [b for b in self.blocks if self.seen(x, b) != self.seen(y, b)]
                carriers = [
                    [j for j in range(len(X)) if j != i and self.seen(X[j], b) == self.seen(y, b)]
                    for b in todo
                ]
                for chosen in itertools.product(*carriers):
                    Y = [list(r) for r in X]
                    Y[i] = list(y)
                    for b, j in zip(todo, chosen, strict=True):
                        for span in self.spans:
                            published = [place for place in span if place in b]
                            if self.seen(x, published) != self.seen(y, published):
                                for place in span:
                                    Y[j][place] = x[place]
                    yield tuple(map(tuple, Y))


def views(schema: Schema) -> list[View]:
    """Every table: a depth of each feature, not all 0."""
    depths = [range(len(feature.names) + 1) for feature in schema.features]
    return [view for view in itertools.product(*depths) if any(view)]


def check(dataspace: Dataspace, *, most: int = 300) -> Counter:
    """Check everything that is claimed of one dataspace; return how much was checked."""
    by_hand, done = ByHand(dataspace), Counter()
    schema = by_hand.schema
    if len(by_hand.cells) ** dataspace.n > 300_000:
        return done
    every = list(by_hand.datasets())
    if len(every) > most:
        return done
    exchange, blocks = Exchange.from_dataspace(dataspace), ListedExchanges.from_dataspace(dataspace)
    there = {*every}
    arising = {X: {*by_hand.arising(X)} - {X} for X in every}
    near = {X: set(found) for X, found in arising.items()}
    for X, found in arising.items():
        assert found <= there, "an exchange stays in D_t"
        for Y in found:
            near[Y].add(X)
        for person in range(dataspace.n):
            assert {Y[person] for Y in found} | {X[person]} == {*by_hand.cells}, (
                "everybody reaches everything"
            )
    for X in every:
        ours = {blocks.label_records(Y) for Y in blocks.neighbours(blocks.encode_records(X))}
        assert ours == near[X], "the library's neighbours are those of the definition"
        assert all(sum(x != y for x, y in zip(X, Y, strict=True)) <= exchange.a for Y in near[X])
        done["datasets"] += 1
        done["pairs"] += len(near[X])
    if len(every) <= 150:
        for X, Y in itertools.product(every, repeat=2):
            assert blocks.adjacent(blocks.encode_records(X), blocks.encode_records(Y)) == (
                X == Y or Y in near[X]
            )
        for X in every:
            distance, frontier = {X: 0}, [X]
            while frontier:
                ahead = {Y for Z in frontier for Y in near[Z]} - distance.keys()
                distance |= dict.fromkeys(ahead, distance[frontier[0]] + 1)
                frontier = list(ahead)
            for Y in every:
                assert distance[Y] <= sum(x != y for x, y in zip(X, Y, strict=True)), (
                    "the chain lemma"
                )
                done["chains"] += 1
    pairs = {(blocks.encode_records(X), blocks.encode_records(Y)) for X in every for Y in near[X]}
    for view in views(schema):
        check_table(dataspace, exchange, view, pairs, done)
    return done


def check_table(
    dataspace: Dataspace, exchange: Adjacency, view: View, pairs: set[tuple[Records, Records]], done
) -> None:
    schema = dataspace.schema
    grid = schema.grid
    labels = grid.labels(view)
    position = {record: flat for flat, record in enumerate(np.ndindex(*schema.shape))}
    moved = set()
    for X, Y in pairs:
        move = Counter(labels[position[y]] for y in Y)
        move.subtract(labels[position[x]] for x in X)
        moved.add(tuple(sorted((int(cell), count) for cell, count in move.items() if count)))
    moved.discard(())
    sizes = [[abs(count) for _, count in move] for move in moved]
    truth = Norms(
        max(map(sum, sizes), default=0),
        max((sum(c * c for c in size) for size in sizes), default=0),
        max(map(max, sizes), default=0),
    )
    space = sensitivity_space(dataspace, exchange, schema.list_view_names(view))
    assert space.exact, space.method
    bound = ExchangeTable(
        ListedExchanges.from_dataspace(dataspace), ReleasedTable.from_dataspace(dataspace, view)
    ).bound
    assert truth.least(bound) == truth, "the closed forms bound it"
    assert space.norms == truth, (view, space.method, space.norms, truth)
    worst = worst_move(space)
    listed = {tuple((int(c), int(m.ravel()[c])) for c in np.flatnonzero(m)) for m in space.moves()}
    assert listed == moved, "the moves are those of the pairs"
    if moved:
        assert tuple((int(c), int(worst.ravel()[c])) for c in np.flatnonzero(worst)) in moved
        assert int((worst**2).sum()) == truth.l2_squared
        assert np.allclose(space.project(worst), worst), "the noise moves along every exchange"
    done["tables"] += 1
    done["moves"] += len(moved)


CASES = {
    "no block": (["2", "2"], []),
    "one block": (["3"], [("f0",)]),
    "one block and a free bit": (["2", "2"], [("f0",)]),
    "two blocks": (["3", "3"], [("f0",), ("f1",)]),
    "two blocks and a free bit": (["2", "2", "2"], [("f0",), ("f1",)]),
    "three blocks": (["2", "2", "2"], [("f0",), ("f1",), ("f2",)]),
    "a joint block": (["2", "2", "2"], [("f0", "f1")]),
    "a joint block and a one-way block": (["2", "2", "2"], [("f0", "f1"), ("f2",)]),
    "states": (["geo"], [("state0",)]),
    "states and a free bit": (["geo", "2"], [("state0",)]),
    "states and sexes": (["geo", "2"], [("state0",), ("f1",)]),
    "states by sex": (["geo", "2"], [("state0", "f1")]),
    "counties": (["geo", "2"], [("state0", "county0")]),
    "the middle of a deep chain": (["deep"], [("region0", "state0")]),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("case", CASES)
def test_the_definition_and_every_table_of_small_spaces(case: str) -> None:
    kinds, margins = CASES[case]
    schema = Schema([feature(number, kind) for number, kind in enumerate(kinds)])
    rng, done, tried = random.Random(case), Counter(), 0
    while done["spaces"] < 3 and tried < 40:
        tried += 1
        records = [
            tuple(rng.randrange(size) for size in schema.shape)
            for _ in range(rng.choice([2, 3, 4]))
        ]
        found = check(space_of(schema, records, margins))
        done += found
        done["spaces"] += bool(found)
    assert done["spaces"] == 3
    assert all((done["pairs"] > 10, done["chains"] > 10, done["tables"] >= 3)), done


@pytest.mark.parametrize(
    ("spaces", "pairs", "chains", "tables"),
    [(10, 1_500, 5_000, 50), pytest.param(30, 2_000, 5_000, 150, marks=pytest.mark.long)],
)
def test_random_structures(spaces: int, pairs: int, chains: int, tables: int) -> None:
    """Features flat and nested, blocks one-way and joint, at any published depth; what is checked
    is counted.
    """
    rng, done = random.Random(14), Counter()
    while done["spaces"] < spaces:
        schema = Schema(
            [
                feature(i, rng.choice(["2", "2", "3", "geo", "deep"]))
                for i in range(rng.choice([1, 2, 2, 3]))
            ]
        )
        left, margins = list(schema.features), []
        rng.shuffle(left)
        while left:
            block = [left.pop() for _ in range(min(rng.choice([1, 1, 2]), len(left)))]
            if rng.random() < 0.7:
                margins.append(
                    tuple(name for f in block for name in f.names[: rng.randint(1, len(f.names))])
                )
        records = [
            tuple(rng.randrange(size) for size in schema.shape) for _ in range(rng.choice([2, 3]))
        ]
        found = check(space_of(schema, records, margins), most=200)
        done += found
        done["spaces"] += bool(found)
    assert done["pairs"] > pairs, done
    assert done["chains"] > chains, done
    assert done["tables"] > tables, done


def exact_blocks(sizes: list[int], free: int, each: int = 50) -> Dataspace:
    """So many one-way blocks with plenty of records, and an unpublished feature with so many
    levels.
    """
    named = {**{f"b{i}": size for i, size in enumerate(sizes)}, **({"u": free} if free else {})}
    schema = Schema(
        [Feature(name, [str(level) for level in range(size)]) for name, size in named.items()]
    )
    return Dataspace.from_table(
        Table(schema, np.full(schema.shape, each)), [Margin(f"b{i}") for i in range(len(sizes))]
    )


@pytest.mark.parametrize(
    ("q", "exchange", "ball"),
    [(0, 2, 2), (1, 4, 8), (2, 8, 18), (3, 14, 32), (4, 22, 50), (5, 32, 72)],
)
def test_blocks_beside_an_unpublished_feature(q: int, exchange: int, ball: int) -> None:
    public = exact_blocks([3] * q, 2)
    found = sensitivity_space(public, Exchange.from_dataspace(public))
    assert (found.l1, found.l2_squared, found.exact) == (2 * (q + 1), exchange, True)
    assert sensitivity_space(public, Ball(q + 1)).l2_squared == ball
    alone = sensitivity_space(public, Exchange.from_dataspace(public), ["u"])
    assert (alone.l2_squared, sensitivity_space(public, Ball(q + 1), ["u"]).l2_squared) == (
        2,
        2 * (q + 1) ** 2,
    )


@pytest.mark.parametrize(
    ("sizes", "squares"),
    [
        ([3], 0),
        ([2, 5], 4),
        ([3, 4], 6),
        ([2] * 3, 12),
        ([4] * 3, 12),
        ([2] * 4, 18),
        ([3] * 5, 26),
        ([2] * 6, 36),
    ],
)
def test_blocks_alone(sizes: list[int], squares: int) -> None:
    public = exact_blocks(sizes, 0)
    found = sensitivity_space(public, Exchange.from_dataspace(public))
    assert (found.l2_squared, found.exact) == (squares, True)


@pytest.mark.parametrize(
    ("sizes", "free"), [([2] * 3, 0), ([3] * 3, 0), ([2] * 4, 0), ([3] * 4, 0), ([2, 3, 2], 2)]
)
def test_closed_forms_are_the_agreement_patterns(sizes: list[int], free: int) -> None:
    """The two ways share no step."""
    for each in (5, 1):
        public = exact_blocks(sizes, free, each)
        question = ReleasedTable.from_dataspace(public, public.schema.grid.full)
        table = ExchangeTable(ListedExchanges.from_dataspace(public), question)
        patterns = table._by_patterns()
        assert table.result.norms == patterns.norms
        assert table.bound == patterns.norms


@pytest.mark.parametrize("kind", ["ball", "exchange"])
def test_listing_is_bounded_by_work(kind: str) -> None:
    """Five binary blocks and a table of three: listed at once; of five with an unpublished bit:
    refused at once.
    """
    public = exact_blocks([2] * 5, 2)
    adjacency = Ball(6) if kind == "ball" else Exchange.from_dataspace(public)
    few = list(sensitivity_space(public, adjacency, ["b0", "b1", "b2"]).moves())
    assert len(few) == len({move.tobytes() for move in few}) == {"ball": 640, "exchange": 66}[kind]
    if kind == "exchange":
        with pytest.raises(Refused, match="too many to list"):
            list(sensitivity_space(public, adjacency).moves())


def test_a_large_geography_is_answered_at_once_and_county_alone_costs_two() -> None:
    paths = [(f"s{i}", f"c{i}-{j}") for i in range(50) for j in range(60)]
    schema = Schema(
        [
            Feature.from_paths(["state", "county"], paths),
            Feature("age", [str(age) for age in range(20)]),
        ]
    )
    states = Table(schema.restrict(["state"]), np.full(50, 9000))
    public = Dataspace.from_totals(schema, {Margin("state"): states})
    exchange = Exchange.from_dataspace(public)
    found = {
        names: sensitivity_space(public, exchange, names)
        for names in (("county",), ("county", "age"), ("age",))
    }
    assert [space.l2_squared for space in found.values()] == [2, 4, 2]
    assert all(space.exact for space in found.values())


def test_the_bound_over_all_totals_holds_for_each_and_is_attained() -> None:
    schema = Schema([feature(0, "2"), feature(1, "3"), feature(2, "geo")])
    for margins in ([], ["f0"], ["f0", "f1"], ["f0", "f1", "state2"], [("f0", "f1"), ("state2",)]):
        names = [Margin(*([margin] if isinstance(margin, str) else margin)) for margin in margins]
        most = exchange_bound(schema, names)
        found = set()
        for records in itertools.combinations_with_replacement(list(np.ndindex(*schema.shape)), 2):
            found.add(
                Exchange.from_dataspace(
                    space_of(schema, list(records), [margin.names for margin in names])
                ).a
            )
        found.add(
            Exchange.from_dataspace(
                space_of(schema, list(np.ndindex(*schema.shape)), [m.names for m in names])
            ).a
        )
        assert max(found) == most.a == len(names) + 1
    with pytest.raises(Refused, match="share no feature"):
        exchange_bound(schema, [Margin("f0", "f1"), Margin("f1", "state2")])
    tied = Schema(schema.features, [StructuralZero.from_pattern({"f0": "0", "f1": "0"})])
    with pytest.raises(Refused, match="structural zeros tie"):
        exchange_bound(tied, [Margin("f0"), Margin("f1")])
    assert exchange_bound(tied, [Margin("f0", "f1")]).a == 2


def test_exchange_and_the_ball_are_not_comparable_where_rare_levels_overlap() -> None:
    schema = Schema([Feature("a", "01"), Feature("b", "01"), Feature("u", "01")])
    records = [(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0)]
    public = space_of(schema, records, [("a",), ("b",)])
    exchange, ball = Exchange.from_dataspace(public), Ball(2)
    assert (exchange.a, semi_adjacency(public).bound) == (3, 2)
    assert (sensitivity_space(public, exchange).l1, sensitivity_space(public, ball).l1) == (6, 4)
    mine, theirs = Guarantee(public, exchange, gaussian(1)), Guarantee(public, ball, gaussian(1))
    assert mine.compare(theirs) is Order.NOT_COMPARABLE
    wide = Guarantee(public, Ball(3), gaussian(1))
    assert mine < wide, "any q+1 records include every exchange"
    assert not wide <= mine
    assert mine.for_any_records(2).tradeoff == gaussian(2)
    assert mine.compare(mine.for_any_records(2)) is Order.NOT_COMPARABLE


def test_guarantees_for_exchanges_of_other_totals_are_not_comparable() -> None:
    table = Table(Schema([Feature("a", "01"), Feature("b", "01")]), [[3, 3], [3, 3]])
    coarse, fine = (
        Dataspace.from_table(table, [Margin("a")]),
        Dataspace.from_table(table, [Margin("a"), Margin("b")]),
    )
    of = {
        space: Guarantee(space, Exchange.from_dataspace(space), gaussian(1))
        for space in (coarse, fine)
    }
    assert fine.is_within(coarse)
    assert of[fine].compare(of[coarse]) is Order.NOT_COMPARABLE
    with pytest.raises(Refused, match="another kind of adjacency"):
        of[fine].compose(Guarantee(fine, Ball(3), gaussian(1)))


JOINED = {
    "a block": (["2", "2", "2"], [("f0",)], 3),
    "two blocks": (["2", "2", "2"], [("f0",), ("f1",)], 3),
    "a joint block": (["2", "2", "2"], [("f0", "f1")], 3),
    "states": (["geo", "2", "2"], [("state0",)], 2),
    "states by sex": (["geo", "2", "2"], [("state0", "f1")], 2),
    "counties, dropped with their states": (["2", "geo"], [("f0",)], 3),
    "counties, dropped below their states": (["2", "geo"], [("f0",), ("state1",)], 3),
    "counties, dropped below a joint block": (["2", "geo"], [("f0", "state1")], 3),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("case", JOINED)
def test_joined_spaces_exchange_only_what_each_of_them_does(case: str) -> None:
    """Dropping a feature that neither space publishes turns an exchange into an exchange, or into
    nothing.
    """
    kinds, margins, n = JOINED[case]
    schema = Schema([feature(number, kind) for number, kind in enumerate(kinds)])
    rng, checked, moved = random.Random(case), 0, 0
    while checked < 500:
        records = [tuple(rng.randrange(size) for size in schema.shape) for _ in range(n)]
        whole = space_of(schema, records, margins)
        kept = [name for part in schema.features[:-1] for name in part.names]
        kept += [
            name for name in schema.features[-1].names if any(name in margin for margin in margins)
        ]
        part = whole.restrict_features(kept)
        assert whole.union(part) == part.with_features(whole.schema) == whole
        assert (
            Exchange.from_dataspace(part).a
            <= Exchange.from_dataspace(whole).a
            <= max(1, Exchange.from_dataspace(part).a)
        )
        big, small = ByHand(whole), ListedExchanges.from_dataspace(part)
        for X in big.datasets():
            for Y in big.arising(X):
                one, other = (
                    small.encode_records(record[: len(kept)] for record in data) for data in (X, Y)
                )
                assert small.adjacent(one, other)
                checked, moved = checked + 1, moved + (one != other)
    assert moved > 100


def test_handing_over_the_whole_joint_block_would_break_the_bound() -> None:
    """The twin of the definition: state × sex published, county × u released; by feature 4, by
    block 6.
    """
    schema = Schema(
        [Feature.from_paths(["state", "county"], PLACES), Feature("sex", "fm"), Feature("u", "01")]
    )
    records = [(0, 0, 0), (1, 1, 1), (2, 1, 0), (0, 1, 1)]
    public = space_of(schema, records, [("state", "sex")])
    assert (
        sensitivity_space(public, Exchange.from_dataspace(public), ["county", "u"]).l2_squared == 4
    )
    by_hand = ByHand(public)
    worst = 0
    for X in by_hand.datasets():
        for i, j, y in itertools.product(range(4), range(4), by_hand.cells):
            x, block = X[i], by_hand.blocks[0]
            if i != j and by_hand.seen(X[j], block) == by_hand.seen(y, block) != by_hand.seen(
                x, block
            ):
                move = Counter({(y[1], y[3]): 1})
                move.subtract([(x[1], x[3]), (X[j][1], X[j][3])])
                # the carrier takes x's county even where the states agree
                move.update([(x[1], X[j][3])])
                worst = max(worst, sum(count**2 for count in move.values()))
    assert worst == 6


@pytest.mark.parametrize(
    ("margins", "zeros", "words"),
    [
        ([("a", "b"), ("b", "c")], [], "share no feature"),
        ([("a",), ("b",)], [{"a": "0", "b": "0"}], "structural zeros tie"),
        ([("a",)], [{"a": "0", "c": "0"}], "structural zeros tie"),
    ],
)
def test_what_has_no_exchanges_is_refused_in_a_sentence(margins, zeros, words: str) -> None:
    features = [Feature(name, "012") for name in "abc"]
    schema = Schema(features, [StructuralZero.from_pattern(zero) for zero in zeros])
    counts = np.where(
        np.ones(schema.shape, bool) if schema.possible is None else schema.possible, 2, 0
    )
    public = Dataspace.from_table(Table(schema, counts), [Margin(*names) for names in margins])
    with pytest.raises(Refused, match=words) as refusal:
        Exchange.from_dataspace(public)
    assert str(refusal.value).count(".") == 0


@pytest.mark.parametrize("zeros", [[{"f0": "0", "f1": "0"}], [{"f2": "0", "f3": "1"}]])
def test_zeros_inside_a_block_or_outside_all_of_them_are_served(zeros) -> None:
    schema = Schema(
        [feature(i, "2") for i in range(4)], [StructuralZero.from_pattern(zero) for zero in zeros]
    )
    assert schema.possible is not None
    cells = [tuple(map(int, cell)) for cell in np.argwhere(schema.possible)]
    done = check(space_of(schema, random.Random(3).sample(cells, 3), [("f0", "f1")]))
    assert done["pairs"] > 10


def test_the_two_kinds_are_saved_apart() -> None:
    ball, exchange = Ball(3), Exchange(3)
    assert ball.to_json() == {"kind": "ball", "a": 3}
    assert ball != exchange
    assert Adjacency.from_json({"kind": "ball", "a": 3}) == ball
    assert Adjacency.from_json(exchange.to_json()) == exchange
    with pytest.raises(InputError, match="ball or exchange"):
        Adjacency.from_kind("swap", 3)
    with pytest.raises(InputError, match="give their dataspace"):
        is_adjacent(exchange, [("f",)], [("f",)])


def test_an_exchange_guarantee_is_never_explained_as_one_for_any_records() -> None:
    public = exact_blocks([2, 2], 2)
    said = str(Guarantee(public, Exchange.from_dataspace(public), gaussian(1)).explain())
    assert "not a guarantee for any 3 records" in said
    assert "differ in at most" not in said
    assert "not a guarantee for any" not in str(Guarantee(public, Ball(3), gaussian(1)).explain())
