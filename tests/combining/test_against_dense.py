"""The passes agree with dense least squares on random trees: unequal children, zeros, groups, exact
totals.
"""

from collections import Counter

import numpy as np
import pytest
from attrs import evolve, frozen

from semidp.errors import InputError
from semidp.inference import CellSums, Measurements, Observed, Places, Share, estimate
from semidp.inference.estimation.measurements import Among, Within
from tests.combining.dense import Dense, solve


@frozen
class Case:
    measurements: Measurements
    truth: list[np.ndarray]


def random_places(rng: np.random.Generator) -> Places:
    counts = [int(rng.integers(1, 3))]
    parents = []
    for _ in range(int(rng.integers(0, 4))):
        above = counts[-1]
        children = int(rng.integers(1, 4 if above > 3 else 6))
        chosen = rng.integers(0, above, size=children)
        parents.append(chosen)
        counts.append(children)
    return Places(parents, roots=counts[0])


def random_query(rng: np.random.Generator, sizes: tuple[int, ...]) -> CellSums:
    treatments = []
    for size in sizes:
        choice = rng.integers(0, 10)
        if choice < 3:
            treatments.append("summed")
        elif choice < 6:
            treatments.append("each")
        elif choice == 6:
            treatments.append("contrasts")
        elif choice == 9:
            levels = size + int(rng.integers(0, 3))
            treatments.append(Among(levels, rng.permutation(levels)[:size].tolist()))
        else:
            groups = np.unique(rng.integers(0, 3, size=size), return_inverse=True)[1]
            families = np.unique(rng.integers(0, 2, size=groups.max() + 1), return_inverse=True)[1]
            treatments.append(tuple(groups.tolist()) if choice == 7 else Within(groups, families))
    return CellSums(treatments)


def truth_of(
    rng: np.random.Generator, places: Places, sizes: tuple[int, ...], possible
) -> list[np.ndarray]:
    """Counts of every depth that add up along the tree and have the zeros that are said."""
    truth = [np.zeros((count, *sizes)) for count in places.counts]
    for depth in places.depths:
        counts = rng.poisson(6, size=truth[depth].shape).astype(float)
        if depth < len(places.parents):
            childless = np.bincount(places.parents[depth], minlength=len(counts)) == 0
            counts[~childless] = 0
        for above in range(depth + 1):
            if above in possible:
                counts *= possible[above][places.ancestors(depth, above)]
        for above in range(depth + 1):
            np.add.at(truth[above], places.ancestors(depth, above), counts)
    return truth


def random_case(rng: np.random.Generator) -> Case:
    places = random_places(rng)
    sizes = tuple(int(size) for size in rng.integers(1, 4, size=rng.integers(0, 4)))
    possible = {}
    for depth in places.depths:
        if rng.random() < 0.25:
            lengths = [size if rng.random() < 0.5 else 1 for size in sizes]
            possible[depth] = rng.random((places.counts[depth], *lengths)) < 0.75
    truth = truth_of(rng, places, sizes, possible)
    observed = []
    for _ in range(int(rng.integers(1, 7))):
        query, depth = random_query(rng, sizes), int(rng.integers(0, len(places.counts)))
        nodes = places.counts[depth]
        values = query.sums(truth[depth])
        kind = rng.random()
        if kind < 0.2:
            variance = 0.0
        elif kind < 0.5:
            variance = float(rng.uniform(0.3, 9))
        else:
            variance = np.where(rng.random(nodes) < 0.8, rng.uniform(0.3, 9, size=nodes), np.inf)
            variance = np.where(rng.random(nodes) < 0.1, 0.0, variance)
        if any(isinstance(treatment, Among) for treatment in query.treatments):
            variance = np.where(np.asarray(variance) == 0, 2.5, variance)
        finite = np.broadcast_to(np.where(np.isfinite(variance), variance, 0.0), (nodes,))
        scale = np.sqrt(finite).reshape(-1, *[1] * len(sizes))
        observed.append(
            Observed(query, depth, values + scale * rng.normal(size=values.shape), variance)
        )
    for _ in range(int(rng.integers(0, 3)) if len(places.counts) > 1 else 0):
        observed.append(random_contrast(rng, places, sizes, truth))
    return Case(Measurements(places, sizes, observed, possible), truth)


def random_contrast(
    rng: np.random.Generator, places: Places, sizes: tuple[int, ...], truth
) -> Observed:
    """Contrasts between siblings: one variance a family, some families or children left out."""
    query, depth = random_query(rng, sizes), int(rng.integers(1, len(places.counts)))
    parents = places.parents[depth - 1]
    of_family = rng.uniform(0.3, 9, size=places.counts[depth - 1])
    variance = np.where(rng.random(len(parents)) < 0.8, of_family[parents], np.inf)
    if rng.random() < 0.4:
        variance = float(of_family[0])
    noise = np.sqrt(np.where(np.isfinite(variance), variance, 0.0)) * np.ones(len(parents))
    values = query.sums(truth[depth])
    noisy = values + noise.reshape(-1, *[1] * len(sizes)) * rng.normal(size=values.shape)
    return Observed(query, depth, noisy, variance, siblings=True)


def check_influences(
    answer, dense: Dense, weights, measurements: Measurements, seen: Counter
) -> None:
    """Weights on measured values give the variance, and move the sum by as much as they say."""
    value, variance = dense.sum_of(weights)
    if np.isnan(value):
        return
    parts = answer.influences({depth: array[None] for depth, array in weights.items()})
    stated = 0.0
    for one, part in zip(measurements.observed, parts, strict=True):
        noise = one.variances(len(one.values))
        finite = np.where(np.isfinite(noise), noise, 0.0).reshape(
            -1, *[1] * len(measurements.sizes)
        )
        stated += float((part[0] ** 2 * finite).sum())
    assert abs(stated - variance) <= 1e-8 * max(1.0, variance)
    seen["influences"] += 1
    seen["contrasts"] += any(one.siblings for one in measurements.observed)
    noisy = [number for number, one in enumerate(measurements.observed) if (one.variance > 0).all()]
    if not noisy:
        return
    number = noisy[0]
    moved = measurements.observed[number]
    finite = np.isfinite(moved.variances(len(moved.values))).reshape(
        -1, *[1] * (moved.values.ndim - 1)
    )
    shift = np.where(finite, np.cos(np.arange(moved.values.size)).reshape(moved.values.shape), 0.0)
    changed = list(measurements.observed)
    changed[number] = evolve(moved, values=moved.values + shift)
    again = estimate(evolve(measurements, observed=changed)).weighted_sum(weights)
    difference = again.values[0, 0] - answer.weighted_sum(weights).values[0, 0]
    assert abs(difference - float((parts[number][0] * shift).sum())) <= 1e-8 * max(
        1.0, variance, abs(value)
    )
    seen["moved"] += 1


def compare(case: Case, dense: Dense, rng: np.random.Generator, seen: Counter) -> None:
    measurements = case.measurements
    places, sizes = measurements.places, measurements.sizes
    answer = estimate(measurements)
    scale = max(1.0, *(np.abs(one.values).max() for one in measurements.observed))
    for depth in places.depths:
        cells = answer.cells(depth)
        for node in range(places.counts[depth]):
            for number, cell in enumerate(np.ndindex(sizes)):
                row = dense.rows_of[depth][node * measurements.cells + number]
                determined = np.abs(row @ dense.unknown).max(initial=0) < 1e-7
                estimated = cells[(node, *cell)]
                assert np.isnan(estimated) == (not determined)
                seen["cells determined" if determined else "cells not determined"] += 1
                if determined:
                    assert abs(estimated - row @ dense.mean) <= 1e-9 * scale
    for _ in range(3):
        depth = int(rng.integers(0, len(places.counts)))
        weights = {depth: rng.normal(size=(places.counts[depth], *sizes))}
        if rng.random() < 0.5:
            weights[0] = rng.integers(0, 2, size=(places.counts[0], *sizes)).astype(float)
        agree(answer.weighted_sum(weights), dense.sum_of(weights), scale, seen)
    check_influences(answer, dense, weights, measurements, seen)
    depth = len(places.counts) - 1
    nodes = rng.permutation(places.counts[depth])
    share = Share(nodes, nodes % 2, rng.uniform(0.2, 1, size=len(nodes)))
    weightings = rng.integers(0, 2, size=(3, *sizes)).astype(float)
    sums = answer.sums({depth: share}, weightings)
    for area in range(len(sums.values)):
        for number, cells_of in enumerate(weightings):
            per_node = np.zeros(places.counts[depth])
            chosen = share.areas == area
            per_node[share.nodes[chosen]] = share.weights[chosen]
            full = per_node.reshape(-1, *[1] * len(sizes)) * cells_of
            value, variance = dense.sum_of({depth: full})
            pair = (sums.values[area, number], sums.variances[area, number])
            agree_numbers(pair, (value, variance), scale, seen)


def agree(sums, expected: tuple[float, float], scale: float, seen: Counter) -> None:
    agree_numbers((sums.values[0, 0], sums.variances[0, 0]), expected, scale, seen)


def agree_numbers(pair, expected: tuple[float, float], scale: float, seen: Counter) -> None:
    value, variance = expected
    assert np.isnan(pair[0]) == np.isnan(value)
    if np.isnan(value):
        seen["sums not determined"] += 1
        assert np.isinf(pair[1])
        return
    seen["sums determined"] += 1
    seen["sums exact"] += variance < 1e-9
    assert abs(pair[0] - value) <= 1e-9 * scale * 10
    assert abs(pair[1] - variance) <= 1e-9 * max(1.0, variance)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(30))
def test_random_trees_agree_with_dense_least_squares(seed: int) -> None:
    rng = np.random.default_rng(3000 + seed)
    seen: Counter = Counter()
    for _ in range(100):
        case = random_case(rng)
        compare(case, solve(case.measurements), rng, seen)
        seen["trees"] += 1
        seen["among"] += any(
            isinstance(treatment, Among) and treatment.levels > len(treatment.kept)
            for one in case.measurements.observed
            for treatment in one.query.treatments
        )
    assert seen["trees"] == 100
    assert min(seen["cells determined"], seen["sums determined"]) > 300
    assert min(seen["cells not determined"], seen["sums not determined"], seen["sums exact"]) > 50
    # About 27 of 100 trees have a contrast and a determined sum, give or take 4.5 (20 in one of 30
    # seeds).
    assert min(seen["influences"], seen["contrasts"], seen["moved"], seen["among"]) >= 10


def test_a_variance_that_is_one_percent_off_is_caught() -> None:
    rng = np.random.default_rng(11)
    caught = compared = 0
    while compared < 40:
        case = random_case(rng)
        first = case.measurements.observed[0]
        wrong = Observed(first.query, first.depth, first.values, first.variance * 1.01)
        others = case.measurements.observed[1:]
        measurements = case.measurements
        off = Measurements(
            measurements.places, measurements.sizes, [wrong, *others], measurements.possible
        )
        if not (np.isfinite(first.variance) & (first.variance > 0)).any():
            continue
        compared += 1
        try:
            compare(case, solve(off), rng, Counter())
        except AssertionError:
            caught += 1
    # What exact values fix, and what nothing determines, does not depend on any variance.
    assert caught > 10


def test_exact_values_that_contradict_each_other_are_refused() -> None:
    total = CellSums(("summed",))
    whole, parts = Observed(total, 0, [[5.0]], 0.0), Observed(total, 1, [[2.0], [2.0]], 0.0)
    with pytest.raises(InputError, match="exact values contradict each other"):
        estimate(Measurements(Places([[0, 0]]), (2,), [whole, parts]))
    impossible = {0: np.zeros((1, 1), dtype=bool)}
    with pytest.raises(InputError, match="exact values contradict each other"):
        estimate(Measurements(Places(), (2,), [whole], impossible))


def test_measurements_that_do_not_fit_are_refused() -> None:
    each = CellSums(("each",))
    tree = Places([[0, 0]])
    with pytest.raises(InputError, match="2 values at each of 2 nodes"):
        Measurements(tree, (2,), [Observed(each, 1, [[1, 2]], 1.0)])
    with pytest.raises(InputError, match="depth 4"):
        Measurements(tree, (2,), [Observed(each, 4, [[1, 2]], 1.0)])
    with pytest.raises(InputError, match="a variance is zero"):
        Measurements(tree, (2,), [Observed(each, 0, [[1, 2]], -1.0)])
    with pytest.raises(InputError, match="is not a number"):
        Measurements(tree, (2,), [Observed(each, 0, [[1, np.nan]], 1.0)])
    among = CellSums((Among(3, (0, 2)),))
    with pytest.raises(InputError, match="give exact values as they are"):
        Measurements(tree, (2,), [Observed(among, 0, [[1, 2, 3]], 0.0)])
    with pytest.raises(InputError, match="2 levels are kept, and the attribute has 3"):
        Measurements(tree, (3,), [Observed(among, 0, [[1, 2, 3]], 1.0)])
    with pytest.raises(InputError, match="different places among 3"):
        Among(3, (0, 3))
    with pytest.raises(InputError, match="names a parent"):
        Places([[0, 1]])
