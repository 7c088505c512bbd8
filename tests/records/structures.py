"""Random structures: features, exact totals and tables of every kind, with the records that they
come from.
"""

import itertools

import numpy as np
from attrs import frozen

from semidp.inference.records.record_assembly import PublishedNumbers
from semidp.inference.records.record_cells import Layout, TargetTable
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import Totals, View, junction_order, maximal
from semidp.promise.schema.schema import Schema, StructuralZero, Table
from semidp.promise.spaces.dataspace import Dataspace, Margin


@frozen
class Structure:
    """What is published of some records, and of which kinds it is."""

    numbers: PublishedNumbers
    kinds: frozenset[str]
    truth: np.ndarray


def random_structure(seed: int) -> Structure:
    """Draw features, records, impossible combinations that do not occur, exact totals and tables
    with noise.
    """
    rng = np.random.default_rng(seed)
    features = _features(rng)
    count = int(rng.integers(20, 150))
    plain = Schema(features)
    shape = plain.grid.shape
    # Records crowd in some cells, so that others are empty.
    favoured = rng.dirichlet(np.full(int(np.prod(shape)), 0.3))
    leaves = np.stack(
        np.unravel_index(rng.choice(favoured.size, size=count, p=favoured), shape), axis=1
    )
    zeros = _zeros(rng, features, leaves)
    schema = Schema(features, zeros)
    names = [list(feature.names) for feature in features]
    exact = _subsets(rng, names, int(rng.integers(1, 4)))
    if rng.random() < 0.2:
        exact = _circle(rng, names)
    tables = _subsets(rng, names, int(rng.integers(2, 6)))
    codes = leaves.astype(np.uint8)
    truth = {tuple(part): _counted(schema, part, codes) for part in [*exact, *tables]}
    margins = {Margin(*part): Table(schema.restrict(part), truth[tuple(part)]) for part in exact}
    dataspace = Dataspace.from_totals(schema, margins, count)
    targets = []
    for number, part in enumerate(tables):
        counts = truth[tuple(part)]
        noise = rng.normal(0, 3, counts.shape)
        targets.append(
            TargetTable(f"t{number}", schema.view(part), counts + noise, np.full(counts.shape, 3.0))
        )
    numbers = PublishedNumbers(dataspace, tuple(targets), {})
    return Structure(numbers, _kinds(numbers), codes)


def kept(numbers: PublishedNumbers, codes: np.ndarray) -> bool:
    """Whether records have every exact total to the person, and no impossible combination."""
    grid = numbers.dataspace.schema.grid
    for total in numbers.dataspace.published_totals:
        counts = Layout(grid, [total.view]).counts(codes)
        if not np.array_equal(counts, total.counts.ravel()):
            return False
    return not impossible(numbers, codes).any() and len(codes) == numbers.dataspace.n


def impossible(numbers: PublishedNumbers, codes: np.ndarray) -> np.ndarray:
    """Which records are a combination that cannot occur, read off the levels one zero at a time."""
    schema = numbers.dataspace.schema
    hit = np.zeros(len(codes), dtype=bool)
    for zero in schema.structural_zeros:
        if not all(
            schema.view([name])[schema.axis(name)] <= numbers.used[schema.axis(name)]
            for name, _ in zero.levels
        ):
            continue
        matches = np.ones(len(codes), dtype=bool)
        for name, levels in zero.levels:
            feature = schema.feature(name)
            labels = [
                feature.path(leaf)[feature.names.index(name)] for leaf in range(len(feature.levels))
            ]
            matches &= np.isin(np.array(labels)[codes[:, schema.axis(name)]], levels)
        hit |= matches
    return hit


def _features(rng: np.random.Generator) -> list[Feature]:
    features = []
    for number in range(int(rng.integers(3, 6))):
        if rng.random() < 0.3:
            paths = [
                (f"s{parent}", f"s{parent}c{child}")
                for parent in range(2)
                for child in range(int(rng.integers(1, 4)))
            ]
            features.append(Feature.from_paths([f"state{number}", f"county{number}"], paths))
        else:
            features.append(
                Feature(f"f{number}", [str(level) for level in range(int(rng.integers(2, 5)))])
            )
    return features


def _zeros(
    rng: np.random.Generator, features: list[Feature], leaves: np.ndarray
) -> list[StructuralZero]:
    """Combinations of two features that no record has."""
    zeros = []
    for one, other in itertools.combinations(range(len(features)), 2):
        seen = {(int(a), int(b)) for a, b in leaves[:, [one, other]]}
        cells = itertools.product(
            range(len(features[one].levels)), range(len(features[other].levels))
        )
        for cell in cells:
            if cell not in seen and rng.random() < 0.3:
                zeros.append(
                    StructuralZero.from_pattern(
                        dict(
                            _labels(features[axis], leaf)
                            for axis, leaf in zip((one, other), cell, strict=True)
                        )
                    )
                )
    return zeros[: int(rng.integers(0, 4))]


def _labels(feature: Feature, leaf: int) -> tuple[str, str]:
    return feature.names[-1], feature.path(leaf)[-1]


def _subsets(rng: np.random.Generator, names: list[list[str]], many: int) -> list[list[str]]:
    """Sets of one to three features, each at a random depth."""
    subsets = []
    for _ in range(many):
        size = int(rng.integers(1, 4))
        axes = rng.choice(len(names), size=min(size, len(names)), replace=False)
        subsets.append([names[axis][int(rng.integers(len(names[axis])))] for axis in sorted(axes)])
    return subsets


def _circle(rng: np.random.Generator, names: list[list[str]]) -> list[list[str]]:
    """All pairs of three features: no order of them is decomposable."""
    axes = sorted(rng.choice(len(names), size=3, replace=False))
    return [[names[one][-1], names[other][-1]] for one, other in itertools.combinations(axes, 2)]


def _counted(schema: Schema, part: list[str], codes: np.ndarray) -> np.ndarray:
    view = schema.view(part)
    return Layout(schema.grid, [view]).counts(codes).reshape(schema.grid.compute_margin_shape(view))


def _kinds(numbers: PublishedNumbers) -> frozenset[str]:
    kinds = set()
    views: list[View] = numbers.margins
    exact: list[Totals] = list(numbers.dataspace.published_totals)
    if any(sum(depth > 0 for depth in view) > 1 for view in views):
        kinds.add("joint")
    if any(depth > 1 for view in views for depth in view):
        kinds.add("nested")
    if numbers.dataspace.schema.structural_zeros:
        kinds.add("zeros")
    if junction_order(maximal(total.view for total in exact)) is None:
        kinds.add("circle of exact totals")
    if junction_order(maximal([*views, *(target.view for target in numbers.targets)])) is None:
        kinds.add("circle of tables")
    return frozenset(kinds)
