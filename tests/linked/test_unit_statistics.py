"""Every statistic of one person with up to m records (`--id`, `--most`), which is a whole unit that
is known from its members alone: tables, residuals, sums, ranks, distributions and regressions.

Pairs are enumerated from the words of the promise. The ball compares all datasets with the same
totals that differ in as many records as are stated; exchange those that m exchanges join.
"""

import itertools
from collections import Counter
from functools import cached_property

import numpy as np
import pytest
from attrs import frozen

from semidp import Dataspace, Margin, Schema, StructuralZero, Table
from semidp.errors import AdjacencyUnknown, Refused
from semidp.promise.mechanisms.exponential import rank_space
from semidp.promise.schema.outcome import Outcome
from semidp.promise.sensitivity.answered_space import answered_space
from semidp.promise.sensitivity.distribution_space import distribution_space
from semidp.promise.sensitivity.moments import moment_space
from semidp.promise.sensitivity.outcome_spaces import outcome_adjacency, outcome_exchange, sum_space
from semidp.promise.sensitivity.products import product_space
from semidp.promise.sensitivity.table_spaces import sensitivity_space
from semidp.promise.spaces.adjacency import Ball, Exchange
from semidp.promise.spaces.protection import Protection
from semidp.promise.spaces.semi_adjacency import semi_adjacency
from semidp.publish.statistics.regression.designs import Design
from tests.linked.test_unit_promise import deepest, feature, names_of
from tests.linked.towns import FLAT, NESTED, THREE, carried, published

VALUES = (("0",), ("1",), ("2",))


@frozen(slots=False)
class Hospital:
    """Stays with features and an outcome (the last), exact totals by blocks, and impossible cells.

    `persons` have 1 to `most` stays each.
    """

    features: tuple
    blocks: tuple
    stays: tuple
    persons: int
    most: int
    zeros: tuple = ()

    def totals(self, stays):
        return [Counter(published(stay, block) for stay in stays) for block in self.blocks]

    @cached_property
    def cells(self):
        """Every stay whose values occur in all totals."""
        occur = self.totals(self.stays)
        every = itertools.product(*self.features, VALUES)
        return [
            stay
            for stay in every
            if stay[: len(self.features)] not in self.zeros
            and all(
                published(stay, block) in found
                for block, found in zip(self.blocks, occur, strict=True)
            )
        ]

    @cached_property
    def fiber(self):
        wanted = self.totals(self.stays)
        every = itertools.combinations_with_replacement(sorted(self.cells), len(self.stays))
        return [stays for stays in every if self.totals(stays) == wanted]

    @cached_property
    def near(self):
        """How many stays every two datasets differ in."""
        counts = np.zeros((len(self.fiber), len(self.cells)), dtype=np.int64)
        for row, stays in enumerate(self.fiber):
            for stay in stays:
                counts[row, self.cells.index(stay)] += 1
        shared = [np.minimum(counts, row).sum(axis=1) for row in counts]
        return len(self.stays) - np.array(shared)

    @cached_property
    def chains(self):
        """Which datasets as many exchanges join as a person has stays, each in either direction."""
        place = {stays: row for row, stays in enumerate(self.fiber)}
        once = np.eye(len(self.fiber), dtype=bool)
        for row, stays in enumerate(self.fiber):
            for number, other in itertools.product(range(len(stays)), self.cells):
                for after in carried(list(stays), number, other, self.blocks, ()):
                    once[row, place[tuple(sorted(after))]] = True
        once |= once.T
        joined = once
        for _ in range(self.most - 1):
            joined = (joined.astype(np.int64) @ once) > 0
        return joined

    def held(self, stays):
        """Every set of stays that one person may have."""
        others = self.persons - 1
        for count in range(1, self.most + 1):
            if others <= len(stays) - count <= self.most * others:
                yield from set(itertools.combinations(stays, count))

    @cached_property
    def public(self):
        """What is public about everything but the outcome."""
        features = [feature(f"m{axis}", leaves) for axis, leaves in enumerate(self.features)]
        zeros = [
            StructuralZero.from_pattern(
                dict(zip(self.names, (leaf[-1] for leaf in cell), strict=True))
            )
            for cell in self.zeros
        ]
        schema = Schema(features, zeros)
        exact = [Margin(*names_of("m", block, self.features)) for block in self.blocks]
        return Dataspace.from_table(Table(schema, self.counts(self.stays).sum(axis=-1)), exact)

    @property
    def names(self):
        return deepest("m", range(len(self.features)), self.features)

    @property
    def protection(self):
        return Protection("patient", self.most, "stays")

    def counts(self, stays):
        """Stays by all features and the outcome."""
        trees = (*self.features, VALUES)
        table = np.zeros([len(tree) for tree in trees], dtype=np.int64)
        for stay in stays:
            table[tuple(tree.index(leaf) for tree, leaf in zip(trees, stay, strict=True))] += 1
        return table

    def by_block(self, table, block):
        """A table of all features and the outcome, summed to the cells of a block."""
        for axis in reversed(range(len(self.features))):
            depth = dict(block).get(axis, 0)
            nodes = sorted({leaf[:depth] for leaf in self.features[axis]})
            matrix = np.array(
                [[leaf[:depth] == node for leaf in self.features[axis]] for node in nodes]
            ).astype(np.int64)
            table = np.moveaxis(np.tensordot(matrix, table, axes=(1, axis)), 0, axis)
        return table.reshape(-1, len(VALUES))


def moves_of(hospital, relation, a):
    """The differences of all pairs of the promise, as tables of all features and the outcome."""
    within = hospital.chains if relation == "exchange" else hospital.near <= a
    tables = np.array([hospital.counts(stays) for stays in hospital.fiber])
    pairs = np.argwhere(within)
    flat = (tables[pairs[:, 1]] - tables[pairs[:, 0]]).reshape(len(pairs), -1)
    return len(pairs), np.unique(flat, axis=0).reshape(-1, *tables.shape[1:])


def is_within(norms, found):
    """Whether the sizes of some moves, a row each, stay within stated norms."""
    sizes = np.abs(found)
    return (
        sizes.sum(axis=1).max() <= float(norms.l1) + 1e-9
        and (found**2).sum(axis=1).max() <= float(norms.l2_squared) + 1e-9
        and sizes.max() <= float(norms.linf) + 1e-9
    )


def check(hospital, relation, seen):
    """Compare every statistic with all moves of the promise."""
    public = hospital.public
    axes = [axis for block in hospital.blocks for axis, _ in block]
    if relation == "exchange" and len(set(axes)) < len(axes):
        return  # exchanges are defined for totals that share no feature
    try:
        related = outcome_exchange if relation == "exchange" else outcome_adjacency
        adjacency = related(public, hospital.protection)
        tabled = (
            Exchange.from_dataspace(public, hospital.protection)
            if relation == "exchange"
            else Ball(semi_adjacency(public, hospital.protection).bound, hospital.protection)
        )
    except (Refused, AdjacencyUnknown):
        seen["refused", relation] += 1
        return
    pairs, moves = moves_of(hospital, relation, adjacency.a)
    seen["pairs", relation] += pairs
    _check_tables(hospital, relation, tabled, seen)
    if not hospital.blocks:
        return
    outcome = Outcome("y", 0, 2, steps=2)
    _check_groups(hospital, relation, adjacency, moves, outcome, hospital.blocks, seen)
    coarser = tuple(tuple((axis, 1) for axis, _ in block) for block in hospital.blocks)
    if coarser != hospital.blocks:
        _check_groups(hospital, relation, adjacency, moves, outcome, coarser, seen)
    _check_moments(hospital, relation, adjacency, moves, outcome, seen)
    _check_answers(hospital, relation, adjacency, moves, seen)


def _check_groups(hospital, relation, adjacency, moves, outcome, blocks, seen):
    """Sums, ranks and distributions of the outcome by groups that are exact."""
    public = hospital.public
    margins = [Margin(*names_of("m", block, hospital.features)) for block in blocks]
    sums = sum_space(public, adjacency, outcome, margins)
    ranks = rank_space(public, adjacency, outcome, margins)
    whole = distribution_space(public, adjacency, outcome, margins)
    added, ranked, halves = [], [], []
    for move in moves:
        groups = np.concatenate([hospital.by_block(move, block) for block in blocks])
        added.append(groups @ np.arange(3))
        ranked.append(np.abs(np.cumsum(groups, axis=1)).max(axis=1))
        halves.append(whole.apply_query(groups))
    assert is_within(sums.norms, np.array(added)), hospital
    assert is_within(whole.norms, np.array(halves)), hospital
    ranked = np.array(ranked)
    assert ranked.sum(axis=1).max() <= ranks.l1, hospital
    assert (ranked**2).sum(axis=1).max() <= ranks.l2_squared, hospital
    for name in ("sums", "ranks", "distributions"):
        seen[name, relation] += 1
    attained = np.abs(added).sum(axis=1).max() == sums.norms.l1
    seen["sums attained", relation] += bool(attained)
    seen["ranks attained", relation] += bool(ranked.sum(axis=1).max() == ranks.l1)


def _check_tables(hospital, relation, adjacency, seen):
    """Tables and residuals see no outcome, so that nothing but features changes."""
    _, moves = moves_of(hospital, relation, adjacency.a)
    moves = moves.sum(axis=-1)
    if not moves.any():
        return
    space = sensitivity_space(hospital.public, adjacency)
    assert is_within(space.norms, moves.reshape(len(moves), -1)), hospital
    seen["tables", relation] += 1
    try:
        product = product_space(hospital.public, adjacency, [hospital.names])
    except Refused:
        seen["residuals refused", relation] += 1
        return
    full = product.schema.grid.full
    for view, cost in product.cost.items():
        for move in moves:
            part = product.residuals.table(product.trim(move, full), full, view)
            square = float((product.residuals.center(view, part) ** 2).sum())
            assert square <= float(cost) + 1e-9, (hospital, view, square, cost)
        seen["residuals", relation] += 1


def _check_moments(hospital, relation, adjacency, moves, outcome, seen):
    """A regression of the outcome on the features of the first exact total."""
    first = hospital.blocks[0]
    names = names_of("m", first, hospital.features)
    try:
        design = Design.from_schema(hospital.public.schema, names)
        space = moment_space(hospital.public, adjacency, outcome, design)
    except Refused:
        seen["regressions refused", relation] += 1
        return
    rows = space.rows_by_cell.astype(np.int64)
    found = np.array([(hospital.by_block(move, first) @ np.arange(3)) @ rows for move in moves])
    assert is_within(space.norms, found), hospital
    seen["regressions", relation] += 1


def _check_answers(hospital, relation, adjacency, moves, seen):
    """Who has a value is private: 2 stands for no answer."""
    blocks = hospital.blocks
    margins = [Margin(*names_of("m", block, hospital.features)) for block in blocks]
    space = answered_space(hospital.public, adjacency, Outcome("y", 0, 1, steps=1), margins)
    found = []
    for move in moves:
        groups = np.concatenate([hospital.by_block(move, block) for block in blocks])
        found.append(space.pairs(groups[:, 0] + groups[:, 1], groups[:, 1]))
    assert is_within(space.norms, np.array(found)), hospital
    seen["missing", relation] += 1


def check_reach(hospital, seen):
    """Every person may have every possible set of stays within the stated number of stays."""
    try:
        bound = outcome_adjacency(hospital.public, hospital.protection).a
    except (Refused, AdjacencyUnknown):
        return
    after = {}
    for other in hospital.fiber:
        for alternative in hospital.held(other):
            rest = Counter(other) - Counter(alternative)
            after.setdefault(alternative, []).append(rest)
    for stays in hospital.fiber[:: max(1, len(hospital.fiber) // 12)]:
        for own in hospital.held(stays):
            rest = Counter(stays) - Counter(own)
            for alternative, others in after.items():
                kept = sum((Counter(own) & Counter(alternative)).values())
                beside = max(sum((rest & other).values()) for other in others)
                assert len(stays) - kept - beside <= bound, (hospital, stays, own, alternative)
                seen["alternatives"] += 1


STRUCTURES = {
    "nothing": ((FLAT,), (), ()),
    "flat": ((THREE,), (((0, 1),),), ()),
    "two": ((FLAT, FLAT), (((0, 1),), ((1, 1),)), ()),
    "joint": ((FLAT, FLAT), (((0, 1), (1, 1)),), ()),
    "one of two": ((FLAT, FLAT), (((0, 1),),), ()),
    "joint and free": ((FLAT, FLAT, FLAT), (((0, 1), (1, 1)),), ()),
    "nested": ((NESTED,), (((0, 1),),), ()),
    "nested, finest": ((NESTED,), (((0, 2),),), ()),
    "nested joint": ((NESTED, FLAT), (((0, 1), (1, 1)),), ()),
    "nested and flat": ((NESTED, FLAT), (((0, 1),), ((1, 1),)), ()),
    "zeros": ((FLAT, FLAT), (((0, 1), (1, 1)),), ((("0",), ("1",)),)),
    "zeros and free": (
        (FLAT, FLAT, FLAT),
        (((0, 1), (1, 1)),),
        ((("0",), ("1",), ("0",)), (("0",), ("1",), ("1",))),
    ),
    "zeros that tie": ((FLAT, THREE), (((0, 1),), ((1, 1),)), ((("0",), ("2",)),)),
    "overlapping": ((FLAT, FLAT, FLAT), (((0, 1), (1, 1)), ((1, 1), (2, 1))), ()),
}


def drawn(name, seed, count, largest, limits=(1, 2, 3)):
    """Some hospitals of a structure, with one of some limits on the stays of a person each."""
    features, blocks, zeros = STRUCTURES[name]
    random = np.random.default_rng(seed)
    cells = [
        cell for cell in itertools.product(*features, VALUES) if cell[: len(features)] not in zeros
    ]
    while count:
        size = int(random.integers(3, 5))
        stays = tuple(sorted(cells[random.integers(len(cells))] for _ in range(size)))
        most = limits[random.integers(len(limits))]
        persons = int(random.integers(-(-size // most), size + 1))
        hospital = Hospital(features, blocks, stays, persons, most, zeros)
        if 1 < len(hospital.fiber) <= largest:
            count -= 1
            yield hospital


@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize(
    ("draw", "least"),
    [((1, 2, 60), 50), pytest.param((2, 25, 250), 1_000, marks=pytest.mark.long)],
    ids=["few", "many"],
)
def test_no_statistic_of_a_person_with_several_records_moves_farther_than_stated(name, draw, least):
    seen = Counter()
    for hospital in drawn(name, *draw):
        for relation in ("ball", "exchange"):
            check(hospital, relation, seen)
        check_reach(hospital, seen)
    print(name, dict(seen))
    assert seen["pairs", "ball"] > least or seen["refused", "ball"]
