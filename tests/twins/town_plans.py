"""Random plans for linked files, and what they state."""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen

import semidp
from tests.twins.claims import residual_query, stated_number
from tests.twins.homes import Homes, Member, Town, TownPairs
from tests.twins.people import Block, Leaf, Record
from tests.twins.plans import FLAT, TREES, Outcome, run_release

AGES: tuple[tuple[str, ...], tuple[Leaf, ...]] = (
    ("group", "age"),
    (("y", "y1"), ("y", "y2"), ("o", "o1")),
)


@frozen
class TownCase:
    """A plan for two files, with a town for it."""

    homes: Homes
    town: Town
    relation: str
    requests: tuple[Any, ...]
    options: Mapping[str, Any]
    row: str
    columns: tuple[str, ...] = ("residuals",)

    @property
    def rows(self) -> list[str]:
        return [self.row]

    @property
    def start(self) -> Town:
        return self.town

    def claims(self, document: Mapping[str, Any]) -> "TownClaims":
        return TownClaims(self.homes, document, self.town)

    def walk(self, rng: random.Random) -> Town:
        """Another town with the same totals."""
        return TownPairs(self.homes, self.town, self.relation, (1,), rng).walk()

    def pairs(self, claims: "TownClaims", rng: random.Random) -> TownPairs:
        return TownPairs(self.homes, self.town, self.relation, claims.limits, rng)

    def run(self, town: Town, seed: int, apart: int = 0) -> Outcome:
        """Release a town, with the words of a seed."""
        homes = self.homes
        units: dict[str, list[Any]] = {"home": [str(n) for n in range(len(town.units))]}
        for number, names in enumerate(homes.own):
            for depth, name in enumerate(names):
                units[name] = [unit[number][depth] for unit in town.units]
        if homes.typed:
            first = [{own[0] for u, own in town.members if u == n} for n in range(len(town.units))]
            units["type"] = [str(int(len(found) > 1)) for found in first]
        members: dict[str, list[Any]] = {"home": [str(unit) for unit, _ in town.members]}
        for number, names in enumerate(homes.names):
            for depth, name in enumerate(names):
                members[name] = [own[number][depth] for _, own in town.members]
        options = {**self.options, "units": units}
        return run_release(members, self.requests, options, seed)


class TownClaims:
    """What a release of linked files states."""

    def __init__(self, homes: Homes, document: Mapping[str, Any], town: Town) -> None:
        self.homes = homes
        (entry,) = (*document.get("linked", ()), *document.get("partitioned", ()))
        self.entry = entry
        kinds = (homes.member_world, homes.unit_world)
        everything = [[set(leaves) for leaves in world.leaves] for world in kinds]
        self.members = residual_query(kinds[0], entry["members"], everything[0])
        self.units = residual_query(kinds[1], entry["units"], everything[1])
        self.stated = stated_number(entry["guarantee"])
        self.limits = [int(document["a"]["used"])]
        if homes.protect == "unit":
            self.limits += [int(document["a"]["units"][key]) for key in ("own", "size", "derived")]

    def change(self, one: Town, two: Town, place: int) -> np.ndarray:
        homes = self.homes
        return np.concatenate(
            [
                self.members.change(homes.member_records(one), homes.member_records(two), place),
                self.units.change(homes.unit_records(one), homes.unit_records(two), place),
            ]
        )

    def changes(self, one: Town, two: Town) -> dict[str, np.ndarray]:
        """How far the measured whole numbers of every result move."""
        return {self.entry["name"]: self.change(one, two, 0)}

    def height(self, one: Town, two: Town) -> float:
        kind, number = self.stated
        cost = float((self.change(one, two, 1) ** 2).sum())
        return cost / float({"mu": number, "rho": 2 * number}[kind])

    def ratios(self, one: Town, two: Town) -> Iterator[tuple[str, float]]:
        yield "linked", self.height(one, two)


def draw_town_case(rng: random.Random, row: str, relation: str) -> TownCase:
    """A plan for a row of the grid, with whatever else comes along."""
    protect = (
        "unit" if row == "linked unit" or (row == "top code" and rng.random() < 0.5) else "member"
    )
    own: list[tuple[str, ...]] = []
    own_leaves: list[tuple[Leaf, ...]] = []
    tree = rng.choice(TREES[:3]) if rng.random() < 0.7 else (("zone",), (("N",), ("S",)))
    own.append(tree[0])
    own_leaves.append(tree[1])
    if rng.random() < 0.5:
        own.append(("tenure",))
        own_leaves.append((("o",), ("r",)))
    quarters = None
    if row == "quarters":
        quarters = len(own)
        own.append(("unittype",))
        own_leaves.append((("0",), ("1",)))
    names: list[tuple[str, ...]] = [("sex",)]
    leaves: list[tuple[Leaf, ...]] = [FLAT["sex"]]
    extra = rng.choice([AGES, AGES, (("ward",), FLAT["ward"]), (("kind",), FLAT["kind"])])
    names.append(extra[0])
    leaves.append(extra[1])
    typed = quarters is None and rng.random() < 0.25
    least = 0 if quarters is not None else rng.choice([1, 1, 0])
    most = rng.choice([2, 3])
    count = rng.randint(4, 6)
    plain = [number for number in range(len(own)) if number != quarters]
    unit_blocks, unit_tables = _unit_tables(rng, own, plain, protect, typed)
    member_blocks = _member_blocks(rng, own, names, protect, quarters)
    homes = Homes(
        tuple(own),
        tuple(own_leaves),
        tuple(names),
        tuple(leaves),
        unit_blocks,
        member_blocks,
        least,
        most,
        protect,
        quarters,
        typed,
    )
    town = draw_town(rng, homes, count)
    tables = [*_member_tables(rng, own, names, quarters), *unit_tables]
    options: dict[str, Any] = rng.choice([{"mu": 1}, {"rho": "1/2"}])
    if rng.random() < 0.7:
        # nearly all for one kind: its claim is then attained
        kind = rng.choice(["tables", "units:tables"])
        options = {**options, "share": {"tables": 1, "units:tables": 1, kind: 1000}}
    if len(tree[0]) > 1 and rng.random() < 0.05:
        options = {**options, "partition": "state"}
    if row == "top code":
        options = {**options, "top_code": {"size": most}}
    return build_town_case(homes, town, relation, tables, options, row)


def build_town_case(
    homes: Homes,
    town: Town,
    relation: str,
    tables: Sequence[Sequence[str]],
    options: Mapping[str, Any],
    row: str,
) -> TownCase:
    """The plan that publishes some tables; one whose first column begins with units: counts
    units.
    """
    features = []
    for number, names in enumerate(homes.member_world.names):
        leaves = homes.member_world.leaves[number]
        if len(names) == 1:
            features.append(semidp.Feature(names[0], [leaf[0] for leaf in leaves]))
        else:
            features.append(semidp.Feature.from_paths(list(names), list(leaves)))
    if homes.typed:
        features.append(semidp.Feature("type", ["0", "1"]))
    names = homes.member_world.names
    exact = [tuple(names[n][depth - 1] for n, depth in block) for block in homes.member_blocks]
    exact += [
        tuple(f"units:{names[n][depth - 1]}" for n, depth in block) for block in homes.unit_blocks
    ]
    every: dict[str, Any] = {
        "link": "home",
        "protect": homes.protect,
        "least": homes.least,
        "most_members": homes.most,
        "schema": semidp.Schema(features),
        "exact": exact,
        "adjacency": "exchange" if relation == "exchange" else "worst-case",
        "derived": ["type"] if homes.typed else [],
        **options,
    }
    if homes.quarters is not None:
        every["quarters"] = {"unittype": ["1"]}
    requests = tuple(semidp.table(*columns) for columns in tables)
    return TownCase(homes, town, relation, requests, every, row)


def _unit_tables(
    rng: random.Random,
    own: Sequence[tuple[str, ...]],
    plain: Sequence[int],
    protect: str,
    typed: bool,
) -> tuple[tuple[Block, ...], list[tuple[str, ...]]]:
    """Tables of units with size, and what is exact about units."""
    named = rng.sample(plain, rng.randint(0, len(plain)))
    nodes = [(number, rng.randint(1, len(own[number]))) for number in named]
    table = [own[number][depth - 1] for number, depth in nodes]
    further = ["size", "type"] if typed else ["size"]
    first, *others = [*table, *further]
    tables = [(f"units:{first}", *others)]
    if protect == "member":
        # what members do not change has to be exact
        blocks = [tuple(nodes)] if nodes else []
    else:
        blocks = [(node,) for node in nodes if rng.random() < 0.5]
    return tuple(blocks), tables


def _member_blocks(
    rng: random.Random,
    own: Sequence[tuple[str, ...]],
    names: Sequence[tuple[str, ...]],
    protect: str,
    quarters: int | None,
) -> tuple[Block, ...]:
    """Exact totals of members that share no feature, one of them with features of units."""
    columns = [*own, *names]
    mine = list(range(len(own), len(columns)))
    rng.shuffle(mine)
    mine = mine[: rng.randint(0, len(mine))]
    blocks = [[number] for number in mine]
    if len(blocks) == 2 and rng.random() < 0.4:
        blocks = [blocks[0] + blocks[1]]
    if protect == "member" and rng.random() < 0.7:
        theirs = rng.sample(range(len(own)), rng.randint(1, min(2, len(own))))
        if blocks and rng.random() < 0.5:
            blocks[0] = [*theirs, *blocks[0]]
        else:
            blocks.append(theirs)
    return tuple(
        tuple((number, rng.randint(1, len(columns[number]))) for number in block)
        for block in blocks
    )


def _member_tables(
    rng: random.Random,
    own: Sequence[tuple[str, ...]],
    names: Sequence[tuple[str, ...]],
    quarters: int | None,
) -> list[tuple[str, ...]]:
    columns = [*own, *names]
    tables = set()
    for _ in range(rng.randint(1, 2)):
        chosen = rng.sample(range(len(columns)), rng.randint(1, min(3, len(columns))))
        if quarters is not None and not tables:
            chosen = sorted({*chosen, quarters})
        tables.add(tuple(rng.choice(columns[number]) for number in sorted(chosen)))
    return sorted(tables)


def draw_town(rng: random.Random, homes: Homes, count: int) -> Town:
    """A town in which every own leaf occurs, and every leaf of members."""
    while True:
        units: list[Record] = [
            tuple(rng.choice(leaves) for leaves in homes.own_leaves) for _ in range(count)
        ]
        members: list[Member] = []
        for number, unit in enumerate(units):
            least = max(homes.least, 0)
            size = rng.randint(least, homes.most if homes.is_counted(unit) else homes.most + 1)
            for _ in range(size):
                members.append((number, tuple(rng.choice(leaves) for leaves in homes.leaves)))
        town = Town(tuple(units), tuple(members))
        inside = {leaf for record in homes.member_records(town) for leaf in record}
        wanted = {leaf for leaves in homes.member_world.leaves for leaf in leaves}
        counted = {leaf for unit in units if homes.is_counted(unit) for leaf in unit}
        plain = {
            leaf
            for n, leaves in enumerate(homes.own_leaves)
            if n != homes.quarters
            for leaf in leaves
        }
        if inside >= wanted and counted >= plain:
            return town
        count = min(count + (rng.random() < 0.2), 9)
