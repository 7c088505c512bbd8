"""Random plans, and how the package carries them out."""

import hashlib
import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from attrs import field, frozen

import semidp
from semidp.publish import OddsRatioRequest
from tests.twins.claims import Claims
from tests.twins.people import Block, Leaf, Pairs, Record, World


class Tape:
    """Random words that are the same in every run, and how many were asked for."""

    secure = False

    def __init__(
        self, seed: int, key: tuple[str, ...] = (), asked: list[int] | None = None
    ) -> None:
        self.seed, self.key = seed, key
        digest = hashlib.sha256(f"{seed} {key}".encode()).digest()
        self.generator = np.random.default_rng(int.from_bytes(digest[:8], "big"))
        self.asked: list[int] = [] if asked is None else asked

    def words(self, count: int) -> np.ndarray:
        self.asked.append(count)
        return self.generator.integers(0, 2**64, count, dtype=np.uint64)

    def part(self, *key: str) -> "Tape":
        return Tape(self.seed, (*self.key, *key), self.asked)


@frozen
class Outcome:
    """What came of a run: a release, or a refusal."""

    document: Mapping[str, Any] | None
    noisy: Mapping[str, np.ndarray] = field(factory=dict)
    asked: tuple[int, ...] = ()
    refusal: str = ""

    @property
    def public(self) -> Any:
        """Everything that must not depend on whose data it was."""
        return self.refusal if self.document is None else public_part(self.document)


PUBLIC = [
    "plan",
    "dataspace",
    "a",
    "persons",
    "guarantee",
    "epsilon",
    "report_delta",
    "budget",
    "disclosures",
]
OF_RESULTS = [
    "name",
    "noise",
    "guarantee",
    "advertised",
    "private",
    "features",
    "law",
    "precision",
    "residuals",
    "unit",
    "query",
    "budget",
    "files",
    "level",
    "grid_bits",
    "x11",
    "saved_by_joint_sensitivity",
    "rank_error",
    "about",
    "alternative",
]


def public_part(document: Mapping[str, Any]) -> dict[str, Any]:
    """A release without the numbers that follow from its noise."""
    found: dict[str, Any] = {key: document.get(key) for key in PUBLIC}
    for key, entries in document.items():
        if isinstance(entries, list) and entries and isinstance(entries[0], dict):
            found[key] = [
                {name: entry[name] for name in OF_RESULTS if name in entry}
                | {kind: public_kind(entry[kind]) for kind in ("members", "units") if kind in entry}
                for entry in entries
            ]
    return found


def public_kind(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entry[name] for name in OF_RESULTS if name in entry}


@frozen
class Case:
    """A plan with records for it.

    `columns` are the columns of the grid of docs/listed.md that the plan falls into.
    """

    world: World
    records: tuple[Record, ...]
    relation: str
    requests: tuple[Any, ...]
    options: Mapping[str, Any]
    columns: tuple[str, ...]
    texts: frozenset[str] = field(factory=frozenset)

    @property
    def rows(self) -> list[str]:
        """The rows of the grid."""
        found = []
        if any(len(names) > 1 and not names[0].endswith("answered") for names in self.world.names):
            found.append("nested")
        if any(len(block) > 1 for block in self.world.blocks):
            found.append("joint")
        if self.world.zeros:
            found.append("zeros")
        if self.world.most > 1:
            found.append("several records")
        return found or ["flat"]

    def data(self, records: Sequence[Record], seed: int) -> dict[str, list[Any]]:
        """The columns that the package reads, with records that a condition leaves out."""
        left_out = []
        if "where" in self.options:
            rng = random.Random(seed)
            left_out = [rng.choice(self.world_leaves) for _ in range(rng.randint(1, 3))]
        columns: dict[str, list[Any]] = {}
        for name, values in self.world.rows([*records, *left_out]).items():
            if name.endswith(" answered"):
                continue
            is_text = name in self.texts
            columns[name] = [v if is_text or v is None else float(v) for v in values]
        if self.world.most > 1:
            # as many persons in every dataset, each with at most so many records
            columns["id"] = [str(place // self.world.most) for place in range(len(records))]
        if left_out:
            ages = ["40", "52"] * len(records)
            columns["years"] = ages[: len(records)] + [rng.choice(YOUNG) for _ in left_out]
        return columns

    @property
    def world_leaves(self) -> list[Record]:
        """Records that anybody might be."""
        return list(self.records)

    @property
    def start(self) -> tuple[Record, ...]:
        return self.records

    def claims(self, document: Mapping[str, Any]) -> Claims:
        return Claims(self.world, document, self.records)

    def walk(self, rng: random.Random) -> list[Record]:
        """Another dataset with the same totals."""
        return Pairs(self.world, self.records, self.relation, 1, rng).walk()

    def pairs(self, claims: Claims, rng: random.Random) -> Pairs:
        return Pairs(self.world, self.records, self.relation, claims.a, rng)

    def run(self, records: Sequence[Record], seed: int, apart: int = 0) -> Outcome:
        """Release the records, with the words of a seed; `apart` says which others are left out."""
        return run_release(self.data(records, apart), self.requests, self.options, seed)


def run_release(
    data: Mapping[str, list[Any]], requests: Sequence[Any], options: Mapping[str, Any], seed: int
) -> Outcome:
    """Release some columns, with the words of a seed; by parts, if the options say so."""
    tape = Tape(seed)
    with tempfile.TemporaryDirectory() as root:
        folder = {"out": Path(root) / "release"} if "partition" in options else {}
        try:
            release = semidp.release(data, *requests, randomness=tape, **options, **folder)
        except semidp.SemidpError as error:
            return Outcome(None, refusal=f"{type(error).__name__}: {error}")
        noisy = {result.name: np.asarray(result.noisy) for result in release.results}
        if folder:
            (name,) = noisy
            noisy = {name: read_parts(folder["out"])}
        return Outcome(release.to_json(), noisy, tuple(tape.asked))


def read_parts(folder: Path) -> np.ndarray:
    """What was measured at the cut and in all parts."""
    found = []
    for path in sorted(folder.rglob("*measurements.parquet")):
        rows = duckdb.sql(f"SELECT noisy FROM read_parquet('{path}')").fetchall()
        found += [noisy for (noisy,) in rows]
    return np.array(found)


# --- draws ----------------------------------------------------------------------------------------

FLAT: dict[str, tuple[Leaf, ...]] = {
    "sex": (("f",), ("m",)),
    "ward": (("a",), ("b",), ("c",)),
    "kind": (("p",), ("q",)),
}
TREES: list[tuple[tuple[str, ...], tuple[Leaf, ...]]] = [
    (("state", "county"), (("A", "a1"), ("A", "a2"), ("B", "b1"))),
    (("state", "county"), (("A", "a1"), ("A", "a2"), ("B", "b1"), ("B", "b2"))),
    (("state", "county"), (("A", "a1"), ("A", "a2"), ("A", "a3"), ("B", "b1"), ("B", "b2"))),
    (
        ("zone", "state", "county"),
        (("Z", "A", "a1"), ("Z", "A", "a2"), ("Z", "B", "b1"), ("Y", "C", "c1"), ("Y", "C", "c2")),
    ),
]
STATISTICS = (
    "table",
    "product",
    "sum",
    "rank",
    "distribution",
    "regression",
    "missing",
    "odds ratio",
    "mixed",
)
COLUMN = {
    "table": "tables",
    "product": "residuals",
    "sum": "sums",
    "rank": "ranks",
    "distribution": "distributions",
    "regression": "regressions",
    "missing": "missing",
    "odds ratio": "odds ratio",
}
BUDGETS = {"mu": 1, "rho": "1/2", "epsilon": 1}
MECHANISMS = {
    "mu": ("auto", "gaussian"),
    "rho": ("auto", "gaussian", "lattice"),
    "epsilon": ("auto", "laplace", "knorm", "l2"),
}
STEPS = 4
YOUNG = ("7", "7.5", "-3", "29.99", None)
VALUES = [(text,) for text in ("0", "1", "2", "3", "4", "1.3", "-2", "9")]


def draw_case(rng: random.Random, statistic: str, row: str, relation: str) -> Case:
    """A plan for a box of the grid, with whatever else comes along."""
    names, leaves = _features(rng, row, statistic)
    blocks = _blocks(rng, names, leaves, row, relation, statistic)
    zeros = _zeros(rng, names, leaves, blocks) if row == "zeros" else ()
    most = rng.choice([2, 2, 3]) if row == "several records" else 1
    options: dict[str, Any] = {}
    texts = {name for columns in names for name in columns}
    loose: frozenset[int] = frozenset()
    asks = [statistic] if statistic != "mixed" else rng.sample(STATISTICS[1:6], 2)
    column_names, column_leaves = list(names), list(leaves)
    banded = False
    if {"sum", "rank", "distribution", "regression"} & {*asks}:
        banded = rng.random() < (0.5 if row == "nested" else 0.1) and asks != ["regression"]
        if banded:
            column_names.append(("band", "y"))
            column_leaves.append(tuple((str(v // 3), str(v)) for v in range(STEPS + 1)))
            texts |= {"band", "y"}
            blocks = (*blocks, ((len(column_names) - 1, 1),))
        else:
            column_names.append(("y",))
            column_leaves.append(tuple(VALUES))
    if "sum" in asks:
        column_names.append(("z",))
        column_leaves.append((("0",), ("1",)))
    if "missing" in asks:
        values: tuple[Leaf, ...] = tuple(VALUES[:6])
        options["missing"] = {"w": rng.choice(["private", "private", "exact"])}
        if options["missing"]["w"] == "exact":
            column_names.append(("w answered", "w"))
            column_leaves.append((*(("yes", v[0]) for v in values), ("no", None)))
            loose = frozenset({len(column_names) - 1})
            # the groups are exact by who answered
            first, *others = blocks
            blocks = ((*first, (len(column_names) - 1, 1)), *others)
        else:
            column_names.append(("w",))
            column_leaves.append((*values, (None,)))
    world = World(tuple(column_names), tuple(column_leaves), blocks, zeros, most, loose)
    records = draw_records(rng, world, rng.randint(6, 12))
    budget = rng.choice([*BUDGETS][: 2 if "product" in asks else 3])
    options[budget] = BUDGETS[budget]
    requests = [r for ask in asks for r in _requests(rng, ask, world, len(names), budget)]
    if most == 1 and rng.random() < 0.2:
        options["where"] = "years >= 30"
    trees = [columns for columns in names if len(columns) > 1]
    if asks == ["product"] and trees and rng.random() < 0.1:
        options["partition"] = trees[0][0]
    columns = tuple(COLUMN[ask] for ask in asks)
    return build_case(world, records, relation, requests, options, columns, frozenset(texts))


def build_case(
    world: World,
    records: Sequence[Record],
    relation: str,
    requests: Sequence[Any],
    options: Mapping[str, Any],
    columns: tuple[str, ...],
    texts: frozenset[str],
) -> Case:
    """The plan of some requests: `texts` are the columns of features, all others are outcomes."""
    exact = [_columns(world, block) for block in world.blocks if not _is_answered(world, block)]
    every = {
        **options,
        "exact": exact,
        "schema": _schema(world, texts),
        "adjacency": "exchange" if relation == "exchange" else "worst-case",
    }
    if world.most > 1:
        every |= {"id": "id", "most": world.most}
    return Case(world, tuple(records), relation, tuple(requests), every, columns, texts)


def _is_answered(world: World, block: Block) -> bool:
    return any(world.names[number][0].endswith(" answered") for number, _ in block)


def _columns(world: World, block: Block) -> tuple[str, ...]:
    return tuple(world.names[number][depth - 1] for number, depth in block)


def _features(
    rng: random.Random, row: str, statistic: str
) -> tuple[tuple[tuple[str, ...], ...], tuple[tuple[Leaf, ...], ...]]:
    """Two or three features, with a tree among them where that is asked for."""
    if statistic == "odds ratio":
        chosen = ["sex", "kind", *rng.sample(["ward"], rng.randint(0, 1))]
    else:
        counts = statistic in ("table", "product")
        chosen = rng.sample(
            [*FLAT], 3 if counts and row in ("joint", "zeros") else rng.randint(2, 3)
        )
    names = [(name,) for name in chosen]
    leaves = [FLAT[name] for name in chosen]
    if row == "nested" or rng.random() < 0.15:
        tree = rng.choice(TREES)
        place = rng.randrange(len(names)) if statistic != "odds ratio" else len(names)
        names[place : place + 1], leaves[place : place + 1] = [tree[0]], [tree[1]]
    return tuple(names), tuple(leaves)


def _blocks(
    rng: random.Random,
    names: Sequence[tuple[str, ...]],
    leaves: Sequence[tuple[Leaf, ...]],
    row: str,
    relation: str,
    statistic: str,
) -> tuple[Block, ...]:
    """Exact totals: of single features or of several together, rarely some that overlap."""
    if statistic == "odds ratio":
        return (
            ((0, 1),),
            ((1, 1),),
            *((((2, 1),),) if len(names) > 2 and rng.random() < 0.5 else ()),
        )
    nodes = [(number, rng.randint(1, len(columns))) for number, columns in enumerate(names)]
    rng.shuffle(nodes)
    if (
        relation == "ball"
        and statistic in ("table", "product")
        and len(nodes) == 3
        and rng.random() < 0.15
    ):
        return (tuple(nodes[:2]), tuple(nodes[1:]))
    if row in ("joint", "zeros"):
        blocks = [tuple(nodes[:2]), *((node,) for node in nodes[2:])]
    else:
        blocks = [(node,) for node in nodes]
    counts = statistic in ("table", "product")
    least = 0 if counts and row not in ("joint", "zeros") else 1
    most = len(blocks)
    if counts and most == 1 and len(blocks[0]) > 1:
        # everything would be exact: one feature more is needed
        return (blocks[0][:1],)
    return tuple(blocks[: rng.randint(least, most)])


def _zeros(
    rng: random.Random,
    names: Sequence[tuple[str, ...]],
    leaves: Sequence[tuple[Leaf, ...]],
    blocks: Sequence[Block],
) -> tuple[tuple[tuple[int, Leaf], ...], ...]:
    """One or two impossible pairs of leaves, mostly inside of an exact total."""
    inside = len(blocks[0]) > 1 and rng.random() < 0.8
    pair = [n for n, _ in blocks[0]] if inside else rng.sample(range(len(names)), 2)
    found = set()
    for _ in range(rng.randint(1, 2)):
        found.add(tuple((number, rng.choice(leaves[number])) for number in pair))
    return tuple(sorted(found))


def draw_records(rng: random.Random, world: World, count: int) -> tuple[Record, ...]:
    """Records of few kinds, so that totals are uneven."""
    pools = [rng.sample(leaves, rng.randint(1, len(leaves))) for leaves in world.leaves]
    records: list[Record] = []
    while len(records) < count:
        wide = rng.random() < 0.5
        record = tuple(
            rng.choice(leaves if wide else pool)
            for leaves, pool in zip(world.leaves, pools, strict=True)
        )
        if world.is_possible(record):
            records.append(record)
    return tuple(records)


def _requests(rng: random.Random, ask: str, world: World, features: int, budget: str) -> list[Any]:
    deep = [world.names[number][-1] for number in range(features)]
    any_depth = [rng.choice(world.names[number]) for number in range(features)]
    groups = [
        _columns(world, block)
        for block in world.blocks
        if all(number < features for number, _ in block)
    ]
    answered = [
        tuple(name for name in _columns(world, block) if not name.endswith(" answered"))
        for block in world.blocks
        if _is_answered(world, block)
    ]
    by: Any = rng.sample(groups, rng.randint(1, len(groups))) if groups else []
    bounds, scale = (0, STEPS), {"steps": STEPS}
    if ask == "table":
        mechanism = rng.choice(MECHANISMS[budget])
        return [semidp.table(*rng.sample(deep, rng.randint(2, features)), mechanism=mechanism)]
    if ask == "product":
        tables = {tuple(sorted(rng.sample(any_depth, rng.randint(1, features)))) for _ in range(3)}
        tables.add(tuple(sorted(deep[:2])))
        tables.add(tuple(sorted(deep[-2:])))
        return [semidp.table(*names) for names in sorted(tables)]
    if ask == "sum":
        kinds = [
            semidp.mean("y", by=by, bounds=bounds, **scale),
            semidp.total("y", by=by, bounds=bounds, **scale),
            semidp.proportion("z", by=by),
        ]
        return [rng.choice(kinds)]
    if ask == "rank":
        probabilities = rng.choice([("1/2",), ("1/4", "3/4"), ("0.1",)])
        return [
            semidp.quantile(
                "y", *probabilities, by=by, bounds=bounds, mechanism="selection", **scale
            )
        ]
    if ask == "distribution":
        return [semidp.distribution("y", by=by, bounds=bounds, **scale)]
    if ask == "regression":
        return [semidp.regression("y", on=rng.choice(groups), bounds=bounds, **scale)]
    if ask == "missing":
        by = answered[0] if answered else by
        return [semidp.mean("w", by=by, bounds=bounds, **scale)]
    return [OddsRatioRequest("sex", "kind")]


def _schema(world: World, texts: frozenset[str]) -> Any:
    found = []
    for number, names in enumerate(world.names):
        if names[-1] not in texts:
            continue
        if len(names) == 1:
            found.append(semidp.Feature(names[0], [leaf[0] for leaf in world.leaves[number]]))
        else:
            found.append(semidp.Feature.from_paths(list(names), list(world.leaves[number])))
    zeros = [
        semidp.StructuralZero.from_pattern(
            {world.names[number][-1]: leaf[-1] for number, leaf in zero}
        )
        for zero in world.zeros
    ]
    return semidp.Schema(found, zeros)
