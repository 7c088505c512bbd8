"""The exact privacy loss of a measurement part by part, over all pairs of adjacent tables of small
dataspaces.

Adjacency is taken from its definition: up to a records that differ, or one exchange, enumerated
here by itself.
"""

import itertools
import random
from collections.abc import Iterator

import numpy as np
import pytest

from semidp import Ball, Budget, Dataspace, Exchange, Feature, Margin, Schema, SemidpError, Table
from semidp.assess.adjacent_datasets import enumerate_tables
from semidp.promise.mechanisms import branch_noise as branches
from semidp.promise.mechanisms import residual_noise as products
from semidp.promise.mechanisms.branch_noise import BranchNoise, Cut, mechanism_above
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.sensitivity.products import product_space
from semidp.publish.residual_mechanism import ResidualMechanism

SEEDS = range(120)
MOST_TABLES = 120


class Quiet:
    """Noise of zero; how much there would be is written down."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.variances: list[np.ndarray] = []
        monkeypatch.setattr(branches, "residual_noise", self.none)
        monkeypatch.setattr(products, "residual_noise", self.none)

    def none(self, law, sigma2, scales, randomness) -> np.ndarray:
        self.variances.append(float(sigma2) * np.asarray(scales, float).ravel() ** 2)
        return np.zeros(scales.shape, np.int64)

    def measured(self, mechanism: ResidualMechanism, cut: Cut, full: np.ndarray) -> np.ndarray:
        """Return every number that is measured of a table, above the cut and below, over its
        standard deviation.
        """
        schema, source, found = mechanism.space.schema, SeededRandomness(1), []
        self.variances.clear()
        above, table = mechanism_above(mechanism, cut), Table(schema, full)
        found.append(
            above.space.measure(
                [table.margin(schema.list_view_names(view)) for view in above.space.views]
            )
        )
        above.noise_by_residual(source)
        for node in range(cut.chain(schema).size(cut.depth)):
            noise, row = (
                BranchNoise.from_mechanism(mechanism, cut, node),
                cut.row(schema.grid, schema.grid.full, full, node),
            )
            if noise is None:
                assert not row.any()
                continue
            own = Table(cut.branch(schema, node), row)
            asked = [own.margin(own.schema.list_view_names(view)) for view in noise.space.views]
            found += [values.ravel() for values in noise.measure(asked, source).values()]
        return np.concatenate(found) / np.sqrt(np.concatenate([np.zeros(0), *self.variances]))


def exchanged(full: np.ndarray, public: Dataspace) -> Iterator[bytes]:
    """Yield every table that one exchange makes of a table, by the definition."""
    features = public.schema.features
    views = [total.view for total in public.published_totals]
    views = [
        v
        for v in views
        if not any(v != w and all(x <= y for x, y in zip(v, w, strict=True)) for w in views)
    ]
    blocks = [
        [(axis, depth) for axis, depth in enumerate(view) if depth] for view in dict.fromkeys(views)
    ]

    def value(record, block) -> tuple:
        return tuple(features[axis].path(record[axis])[:depth] for axis, depth in block)

    records = [
        tuple(cell) for cell in np.argwhere(full).tolist() for _ in range(int(full[tuple(cell)]))
    ]
    present = [{value(record, block) for record in records} for block in blocks]
    places = [range(len(feature.levels)) for feature in features]
    possible = [
        cell
        for cell in itertools.product(*places)
        if all(value(cell, block) in there for block, there in zip(blocks, present, strict=True))
    ]
    for person, x in enumerate(records):
        for y in possible:
            moved = [block for block in blocks if value(x, block) != value(y, block)]
            carriers = [
                [
                    r
                    for r, record in enumerate(records)
                    if r != person and value(record, block) == value(y, block)
                ]
                for block in moved
            ]
            for chosen in itertools.product(*carriers):
                after = [list(record) for record in records]
                after[person] = list(y)
                for block, carrier in zip(moved, chosen, strict=True):
                    for axis, depth in block:
                        if (
                            features[axis].path(x[axis])[:depth]
                            != features[axis].path(y[axis])[:depth]
                        ):
                            after[carrier][axis] = x[axis]
                table = np.zeros_like(full)
                for record in after:
                    table[tuple(record)] += 1
                yield table.tobytes()


def grown(generator: random.Random, names: list[str]) -> Feature:
    paths, repeat = (
        [(f"s{place}",) for place in range(generator.choice([2, 2, 3]))],
        generator.random() < 0.3,
    )
    for _ in names[1:]:
        paths = [
            (*path, child if repeat else "".join(path) + child)
            for path in paths
            for child in "ab"[: generator.choice([1, 1, 2])]
        ]
    return Feature.from_paths(names, paths, repeat=repeat)


def structure(seed: int) -> tuple[ResidualMechanism, Cut, list[np.ndarray]] | None:
    """Return a small product with its noise, a cut, and every table of its dataspace; None where it
    is refused.
    """
    g = random.Random(seed)
    names = ["a", "b", "c"][: g.choice([2, 2, 3])]
    features, depths = [grown(g, names)], [names]
    if g.random() < 0.7:
        features, depths = [*features, Feature("x", ["0", "1"])], [names, ["x"]]
    elif g.random() < 0.5:
        features, depths = [*features, grown(g, ["u", "v"])], [names, ["u", "v"]]
    g.shuffle(features)
    schema = Schema(features)
    if schema.size > 12:
        return None

    def some() -> list[str]:
        return [g.choice(feature) for feature in g.sample(depths, g.randint(1, len(depths)))]

    where = np.random.default_rng(seed).integers(0, schema.size, g.choice([2, 3, 3]))
    full = np.bincount(where, minlength=schema.size).reshape(schema.shape)
    depth = g.choice(names[:-1])
    finer = [g.choice(names[names.index(depth) + 1 :])] + (
        [g.choice(depths[1])] if len(depths) > 1 else []
    )
    asked = list(
        {
            frozenset(table): table
            for table in (finer, *(some() for _ in range(g.choice([0, 1, 2]))))
        }.values()
    )
    try:
        public = Dataspace.from_table(
            Table(schema, full), [Margin(*some()) for _ in range(g.choice([0, 1, 1, 2]))]
        )
        adjacency = (
            Exchange.from_dataspace(public) if g.random() < 0.5 else Ball(g.choice([1, 2, 3]))
        )
        space = product_space(public, adjacency, asked)
        mechanism = ResidualMechanism.calibrate(
            space, g.choice([Budget.gdp(1), Budget.zcdp("1/2")])
        )
    except SemidpError:
        return None
    every = [table.counts for table in itertools.islice(enumerate_tables(public), MOST_TABLES + 1)]
    return (mechanism, Cut.from_name(schema, depth), every) if len(every) <= MOST_TABLES else None


def test_no_pair_of_adjacent_tables_costs_more_than_is_claimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quiet, structures, pairs, tight = Quiet(monkeypatch), 0, 0, 0
    for seed in SEEDS:
        found = structure(seed)
        if found is None:
            continue
        mechanism, cut, every = found
        points = np.array([quiet.measured(mechanism, cut, table) for table in every])
        place = {table.tobytes(): number for number, table in enumerate(every)}
        flat, worst = np.array([table.ravel() for table in every]), 0.0
        for number, table in enumerate(every):
            if not mechanism.space.adjacency.protects_groups:
                others = [place[other] for other in {*exchanged(table, mechanism.space.dataspace)}]
            else:
                moved = np.abs(flat - flat[number]).sum(axis=1) // 2
                others = np.flatnonzero(moved <= mechanism.space.adjacency.a).tolist()
            pairs += len(others)
            worst = max([worst, *np.square(points[others] - points[number]).sum(axis=1).tolist()])
        assert worst <= float(mechanism.precision) * (1 + 1e-9), seed
        structures += 1
        tight += worst > 0.99 * float(mechanism.precision)
    assert structures > 60
    assert pairs > 10_000
    assert tight > 20  # with a hundredth less noise these would have been found


def test_noise_for_a_part_alone_would_be_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin that must fail: sexes by county, states published, calibrated as if a state were
    all.
    """
    quiet = Quiet(monkeypatch)
    places = Feature.from_paths(
        ["state", "county"], [("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", "b2")]
    )
    counts = np.array([1, 1, 1, 1])
    public = Dataspace.from_table(Table(Schema([places]), counts), [Margin("state")])
    cut, one = Cut(0, 1), Ball(2)
    whole = ResidualMechanism.calibrate(product_space(public, one, [["county"]]), Budget.gdp(1))
    part = cut.branch(Schema([places]), 0)
    alone = Dataspace.from_table(Table(part, counts[:2]), [])
    small = ResidualMechanism.calibrate(product_space(alone, Ball(1), [["county"]]), Budget.gdp(1))
    (sigma2,) = small.sigma2.values()
    assert all(sigma2 < square for square in whole.sigma2.values())
    mixed = ResidualMechanism(
        whole.space, dict.fromkeys(whole.sigma2, sigma2), whole.precision, "rounded"
    )
    first, second = (
        quiet.measured(mixed, cut, np.array(table)) for table in ([2, 0, 2, 0], [1, 1, 1, 1])
    )
    assert np.square(first - second).sum() > 1.5
