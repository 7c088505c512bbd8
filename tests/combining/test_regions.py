"""Trees that are estimated one at a time agree with dense least squares over all of them at once,
where their sum was measured too.
"""

from collections import Counter

import numpy as np
import pytest
from attrs import evolve

from semidp.errors import InputError
from semidp.inference import CellSums, Measurements, Observed, Places, Share
from semidp.inference.area_estimates import Regions, RootKnowledge, estimate_from_root
from semidp.inference.estimation.measurements import Classes
from tests.combining.dense import solve
from tests.combining.test_against_dense import random_query, truth_of

Trees = list[Measurements]


def random_tree(rng: np.random.Generator, sizes: tuple[int, ...]) -> tuple[Measurements, list]:
    """A tree of unequal children with one root, measured so that everything is determined."""
    counts = [1]
    parents = []
    for _ in range(2):
        children = int(rng.integers(counts[-1], counts[-1] + 3))
        chosen = np.sort(
            np.concatenate([np.arange(counts[-1]), rng.integers(0, counts[-1], children)])
        )[: max(children, counts[-1])]
        # Every node has a child, so that the trees can be joined depth by depth.
        chosen[: counts[-1]] = np.arange(counts[-1])
        chosen = np.sort(chosen)
        parents.append(chosen)
        counts.append(len(chosen))
    places = Places(parents)
    possible = {2: rng.random((counts[2], *sizes)) < 0.85}
    truth = truth_of(rng, places, sizes, possible)
    observed = [_noisy(rng, CellSums(["each"] * len(sizes)), 2, truth)]
    for _ in range(int(rng.integers(1, 4))):
        observed.append(_noisy(rng, random_query(rng, sizes), int(rng.integers(0, 3)), truth))
    if rng.random() < 0.5:
        total = CellSums(["summed"] * len(sizes))
        observed.append(Observed(total, 0, total.sums(truth[0]), 0.0))
    return Measurements(places, sizes, observed, possible), truth


def _noisy(rng: np.random.Generator, query: CellSums, depth: int, truth: list) -> Observed:
    values = query.sums(truth[depth])
    variance = rng.uniform(0.3, 9, size=len(values))
    scale = np.sqrt(variance).reshape(-1, *[1] * (values.ndim - 1))
    return Observed(query, depth, values + scale * rng.normal(size=values.shape), variance)


def joined(trees: Trees, observed: list[Observed]) -> Measurements:
    """One tree of all: a common root above the roots of the trees."""
    parents = [np.zeros(len(trees), dtype=int)]
    for depth in range(2):
        starts = np.cumsum([0, *(tree.places.counts[depth] for tree in trees)])
        parts = [
            tree.places.parents[depth] + start for tree, start in zip(trees, starts, strict=False)
        ]
        parents.append(np.concatenate(parts))
    every = list(observed)
    counts = [[tree.places.counts[depth] for tree in trees] for depth in range(3)]
    for number, tree in enumerate(trees):
        for one in tree.observed:
            before, nodes = sum(counts[one.depth][:number]), sum(counts[one.depth])
            values = np.zeros((nodes, *one.values.shape[1:]))
            variance = np.full(nodes, np.inf)
            part = slice(before, before + len(one.values))
            values[part] = one.values
            variance[part] = one.variances(len(one.values))
            every.append(Observed(one.query, one.depth + 1, values, variance))
    possible = {3: np.concatenate([tree.possible[2] for tree in trees])}
    return Measurements(Places(parents), trees[0].sizes, every, possible)


def compare(rng: np.random.Generator, seen: Counter, wrong: float = 1.0) -> None:
    """Three trees and what was measured of their sum, one at a time and all at once."""
    sizes = tuple(int(size) for size in rng.integers(1, 4, size=rng.integers(1, 3)))
    made = [random_tree(rng, sizes) for _ in range(3)]
    trees = [tree for tree, _ in made]
    truth = [sum(levels[0] for _, levels in made)]
    of_sum = []
    for _ in range(int(rng.integers(1, 4))):
        of_sum.append(_noisy(rng, random_query(rng, sizes), 0, truth))
    together = joined(trees, of_sum)
    dense = solve(together)
    classes = Classes.from_measurements(together)
    off = [evolve(one, variance=one.variance * wrong) for one in of_sum]
    roots = []
    for tree in trees:
        known = RootKnowledge.from_measurements(tree, classes)
        roots.append(RootKnowledge.from_json(known.to_json()))
    regions = Regions.from_roots(roots, off, classes)
    weightings = rng.integers(0, 2, size=(2, *sizes)).astype(float)
    scale = max(1.0, *(np.abs(one.values).max() for one in together.observed))
    parts = []
    full = np.zeros((2, 2, together.places.counts[3], *sizes))
    before = 0
    for number, tree in enumerate(trees):
        answer = estimate_from_root(tree, classes, regions.root(number))
        leaves = tree.places.counts[2]
        nodes = np.arange(leaves)
        # Two areas that follow no boundary, in all trees; the last tree has none of the second.
        share = Share(nodes, nodes % (1 if number == 2 else 2), rng.uniform(0.2, 1, leaves))
        parts.append(answer.rooted_sums({2: share}, weightings, 2))
        for area in range(2):
            chosen = np.where(share.areas == area, share.weights, 0.0)
            for group in range(2):
                spread = chosen.reshape(-1, *[1] * len(sizes)) * weightings[group]
                full[area, group, before : before + leaves] = spread
        for depth in range(3):
            cells = answer.cells(depth)
            rows = dense.rows_of[depth + 1] @ dense.mean
            start = sum(each.places.counts[depth] for each in trees[:number])
            expected = rows.reshape(-1, *sizes)[start : start + len(cells)]
            assert np.abs(cells - expected).max() <= 1e-9 * scale
            seen["cells"] += cells.size
        # Within one tree the estimate alone has the variance of everything, too.
        alone = answer.sums({2: Share(nodes, np.zeros_like(nodes))}, weightings)
        for group in range(2):
            weights = np.zeros((together.places.counts[3], *sizes))
            weights[before : before + leaves] = weightings[group]
            value, variance = dense.sum_of({3: weights})
            assert abs(alone.values[0, group] - value) <= 1e-8 * scale
            assert abs(alone.variances[0, group] - variance) <= 1e-9 * max(1.0, variance)
            seen["in one tree"] += 1
        before += leaves
    sums = regions.add_trees(dict(enumerate(parts)), weightings)
    for area in range(2):
        for group in range(2):
            value, variance = dense.sum_of({3: full[area, group]})
            assert abs(sums.values[area, group] - value) <= 1e-8 * scale
            assert abs(sums.variances[area, group] - variance) <= 1e-9 * max(1.0, variance)
            seen["across trees"] += 1


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(12))
def test_trees_one_at_a_time_agree_with_dense_least_squares(seed: int) -> None:
    rng = np.random.default_rng(500 + seed)
    seen: Counter = Counter()
    for _ in range(25):
        compare(rng, seen)
    assert seen["cells"] > 1000
    assert seen["in one tree"] == 150
    assert seen["across trees"] == 100


def test_a_variance_of_the_sum_that_is_one_percent_off_is_caught() -> None:
    rng = np.random.default_rng(8)
    caught = 0
    for _ in range(10):
        try:
            compare(rng, Counter(), wrong=1.01)
        except AssertionError:
            caught += 1
    assert caught >= 8


def test_a_root_that_its_tree_leaves_open_is_refused() -> None:
    contrasts = Observed(CellSums(("contrasts",)), 0, [[1.0, -1.0]], 1.0)
    with pytest.raises(InputError, match="determines every cell of its root"):
        RootKnowledge.from_measurements(
            Measurements(Places(), (2,), [contrasts]), Classes((2,), (0,))
        )
