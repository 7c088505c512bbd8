"""The rules of the checker against all datasets and pairs of random small spaces."""

import itertools
import random
import time
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest

from tests.checker import brute_force
from tests.checker.the_checker import check

FLAT = [tuple((label,) for label in "abc"[:size]) for size in (2, 3)]
TREES = [
    (("A", "1"), ("A", "2"), ("B", "1"), ("B", "2")),
    (("A", "1"), ("A", "2"), ("B", "1")),
    (("A", "1"), ("A", "2"), ("A", "3"), ("B", "1"), ("B", "2")),
]


class Space:
    """A random space: features, exact margins, what is measured, and the same for the checker."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        count = draw.choice((1, 2, 2, 3))
        self.leaves = [draw.choice(FLAT * 2 + TREES) for _ in range(count)]
        if count == 3:
            self.leaves = [leaves[:3] for leaves in self.leaves]
        self.n = draw.randint(2, 5 if count < 3 else 3)
        dataset = [tuple(map(draw.choice, self.leaves)) for _ in range(self.n)]
        self.is_exchange = draw.random() < 0.5
        self.margins = self._margins(draw)
        self.zeros: list[Any] = []
        if not self.is_exchange and draw.random() < 0.2:
            free = [r for r in itertools.product(*self.leaves) if r not in dataset]
            self.zeros = draw.sample(free, min(len(free), draw.randint(1, 2)))
        self.most = draw.choice((1, 1, 2)) if self.is_exchange else 1
        self.outcome = draw.randrange(count)
        self.worth = {leaf: draw.randrange(6) for leaf in self.leaves[self.outcome]}
        self.queries = self._queries(draw)
        self.dataset = tuple(sorted(dataset))

    def _margins(self, draw: random.Random) -> list[dict[int, int]]:
        numbers = list(range(len(self.leaves)))
        draw.shuffle(numbers)
        margins: list[dict[int, int]] = []
        while numbers and draw.random() < 0.8:
            together = [numbers.pop() for _ in range(min(len(numbers), draw.choice((1, 1, 2))))]
            margins.append({f: draw.randint(1, len(self.leaves[f][0])) for f in together})
        if not self.is_exchange and draw.random() < 0.3:  # margins that overlap
            for pair in itertools.combinations(range(len(self.leaves)), 2):
                margins.append({f: draw.randint(1, len(self.leaves[f][0])) for f in pair})
        return margins

    def _queries(self, draw: random.Random) -> list[tuple[str, tuple[int, ...], Fraction]]:
        """One table, or residuals of one."""
        kept = [draw.randint(0, len(leaves[0])) for leaves in self.leaves]
        if not any(kept):
            kept[0] = 1
        kind = draw.random()
        if kind < 0.35:
            return [("table", tuple(kept), Fraction(1))]
        if kind < 0.55:  # one or two sets of groups
            other = tuple(draw.randint(0, depth) for depth in kept)
            return [("sums", tuple(kept), Fraction(1)), ("sums", other, Fraction(2))][
                : draw.randint(1, 2)
            ]
        views = [d for d in itertools.product(*(range(k + 1) for k in kept)) if any(d)]
        chosen = draw.sample(views, min(len(views), draw.randint(1, 4)))
        return [("residual", depths, Fraction(draw.randint(1, 9), 7)) for depths in chosen]

    def public(self) -> Any:
        features = []
        for number, leaves in enumerate(self.leaves):
            names = tuple(f"f{number}d{depth}" for depth in range(len(leaves[0])))
            worth = {leaf: (value,) for leaf, value in self.worth.items()}
            values = {"worth": worth} if number == self.outcome else {}
            features.append(check.Feature(names, leaves, values))
        margins = []
        for margin in self.margins:
            depths = tuple(margin.get(f, 0) for f in range(len(self.leaves)))
            counts = Counter(check.cell_at(r, depths) for r in self.dataset)
            margins.append((depths, dict(counts)))
        zeros = [self._zero(record) for record in self.zeros]
        return check.drop_empty_levels(check.Public(features, self.n, margins, zeros))

    @staticmethod
    def _zero(record: Any) -> Any:
        labels = [
            (f, depth, {leaf[depth - 1]})
            for f, leaf in enumerate(record)
            for depth in range(1, len(leaf) + 1)
        ]
        return tuple(map(len, record)), labels

    def world(self, public: Any) -> brute_force.World:
        leaves = [feature.leaves for feature in public.features]
        largest = [d for d, _ in check.maximal_margins(public)]
        margins = [{f: depth for f, depth in enumerate(d) if depth} for d in largest]
        return brute_force.World(leaves, margins, self.dataset, self.zeros)


def compare(seed: int, counts: Counter[str]) -> None:
    """Compare a, costs and lengths of one space by rules, by the checker's listing and by force."""
    space = Space(seed)
    public = space.public()
    world = space.world(public)
    if len(world.datasets) > 40 or len(world.domain) > 18:
        return
    kind = "exchange" if space.is_exchange else "ball"
    a = world.fewest_changes()
    low, high, _ = check.find_reach(public)
    if not space.is_exchange and high is not None:
        assert (low if a > 1 else 0) <= a <= max(1, high), seed
        counts["reach"] += 1
        counts["reach, exact"] += low == high == a
    promise = check.Promise(kind, max(1, a), True, space.most)
    length = min(space.most, space.n)
    pairs = list(
        world.exchange_pairs(length) if kind == "exchange" else world.ball_pairs(promise.a)
    )
    if len(pairs) > 4000:
        return
    leaves = [feature.leaves for feature in public.features]
    distinct = {
        tuple(sorted((Counter(second) - Counter(first)).items()))
        + tuple(sorted((Counter(first) - Counter(second)).items())): (first, second)
        for first, second in pairs
    }
    values = {record: space.worth[record[space.outcome]] for record in world.domain}
    true = [brute_force.cost(p, q, space.queries, leaves, values) for p, q in distinct.values()]
    worst = max(true, default=Fraction(0))
    weighted = []
    for sort, depths, weight in space.queries:
        outcome = (space.outcome, "worth") if sort == "sums" else ()
        weighted.append((check.Query(sort, depths, outcome), weight))
    # the checker's own listing
    measured = [(query, check.Noise("rounded noise", "mu", 1 / w)) for query, w in weighted]
    records = check.relevant_records(public, measured)
    tables = check.list_tables(public, records, 3000, time.monotonic() + 60)
    if not space.is_exchange and len(records) == len(world.domain):
        assert check.list_reach(tables) == a, seed
        assert len(tables) == len(world.datasets), seed
        counts["listing of a(t)"] += 1
    found = {}
    for first, second in check.list_pairs(public, promise, records, tables, time.monotonic() + 60):
        change = tuple(q - p for p, q in zip(first, second, strict=True))
        found.setdefault(change, check.pair_from_tables(records, first, second))
    listed = max(cost_of(public, weighted, pair) for pair in found.values())
    assert listed == worst, (seed, listed, worst)
    counts[f"listing, {kind}"] += 1
    counts["sums"] += space.queries[0][0] == "sums"
    # the rules
    costs = check.Costs(public, promise, promise.a)
    try:
        proved = costs.bound(weighted)
    except check.NotCovered:  # a table that no total fixes, and that so few records cannot change
        assert not worst, seed
        counts["not covered"] += 1
        return
    assert proved >= worst, (seed, proved, worst)
    counts[f"rules, {kind}"] += 1
    counts[f"rules, {kind}, attained"] += proved == worst
    if distinct:
        compare_outcomes(space, public, costs, list(distinct.values()), counts)
    if len(weighted) == 1 and weighted[0][0].kind == "table":
        depths = weighted[0][0].depths
        longest = max((brute_force.length(p, q, depths) for p, q in distinct.values()), default=0)
        assert costs.norms(weighted[0][0])[0] >= longest, seed
        counts["lengths"] += 1


def compare_outcomes(
    space: Space, public: Any, costs: Any, pairs: list[Any], counts: Counter[str]
) -> None:
    """Ranks and vectors of an outcome, for groups of exact sizes."""
    number, draw = space.outcome, random.Random(len(pairs))
    leaves = public.features[number].leaves
    vectors = {leaf: (draw.randrange(4), draw.randrange(-3, 4)) for leaf in leaves}
    public.features[number].values["vector"] = vectors
    public.features[number].values["single"] = {leaf: (vectors[leaf][0],) for leaf in leaves}
    for depths in {tuple(depths) for _, depths, _ in space.queries}:
        groups = tuple(0 if f == number else depth for f, depth in enumerate(depths))
        if not check.is_fixed(public, groups):
            continue
        kinds = {"ranks": "single", "sums": "vector"}
        for kind, name in kinds.items():

            def entries(record: Any, groups: Any = groups) -> dict[Any, int]:
                cell = tuple(leaf[:depth] for leaf, depth in zip(record, groups, strict=True))
                return {(cell, i): amount for i, amount in enumerate(vectors[record[number]])}

            changes = []
            for first, second in pairs:
                if kind == "ranks":
                    changes.append(brute_force.replaced(first, second, groups, number))
                else:
                    changes.append(brute_force.vector_change(first, second, entries))
            query = check.Query(kind, groups, (number, name))
            try:
                length, square = costs.norms(query)
            except check.NotCovered:
                continue
            assert square >= max(sum(c * c for c in change) for change in changes), (kind, groups)
            if length is not None:
                assert length >= max(sum(map(abs, change)) for change in changes), (kind, groups)
            counts[kind] += 1


def cost_of(public: Any, weighted: Any, pair: Any) -> Fraction:
    measured = [(query, check.Noise("rounded noise", "mu", 1 / w)) for query, w in weighted]
    return Fraction(check.find_cost(check.list_shifts([public], measured, *pair[:2])))


def run(seeds: range) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        compare(seed, counts)
    return counts


def test_rules_are_never_below_the_truth_and_listing_is_the_truth() -> None:
    counts = run(range(100))
    print(counts)
    assert counts["listing, ball"] + counts["listing, exchange"] >= 65
    assert counts["reach, exact"] >= 25
    assert counts["sums"] >= 10
    assert counts["ranks"] >= 10


@pytest.mark.long
@pytest.mark.parametrize("block", range(4))
def test_rules_against_listing_of_2000_spaces(block: int) -> None:
    counts = run(range(1000 + 900 * block, 1900 + 900 * block))
    print(counts)
    assert counts["listing, ball"] + counts["listing, exchange"] >= 500


def test_what_is_measured_twice_costs_twice() -> None:
    features = [check.Feature(("sex",), FLAT[0]), check.Feature(("job",), FLAT[1])]
    public = check.Public(features, 9, [], [])
    costs = check.Costs(public, check.Promise("ball", 2, True), 2)
    measured = [(check.Query("residual", depths), Fraction(1)) for depths in ((1, 1), (0, 1))]
    assert costs.bound(measured * 2) == 2 * costs.bound(measured) > 0
