"""Every exchange of small worlds, listed from the definition: records, carriers, rooms.

It shares nothing with the package: features are lists of paths, records are tuples of leaves, and
moves are vectors over all cells. A move is one of 1 + q records (the others stay as they are), or
of linked members in two units for each combination of their units' features.
"""

import itertools
import math
from collections import Counter, defaultdict

import numpy as np
from attrs import frozen

from semidp.promise.schema.margins import Chain

SHAPES = (
    [[0], [0]],
    [[0], [0], [0]],
    [[0, 0], [0]],
    [[0, 0], [0, 0]],
    [[0], [0, 0]],
    [[0, 0, 0], [0]],
    [[0], [0], [0, 0]],
)
"""Nested features of two depths: the leaves below each node."""


@frozen
class Axis:
    """One feature: the path of each leaf."""

    paths: tuple[tuple[int, ...], ...]

    @classmethod
    def flat(cls, levels):
        return cls(tuple((level,) for level in range(levels)))

    @classmethod
    def nested(cls, shape):
        return cls(tuple((k, j) for k, below in enumerate(shape) for j in range(len(below))))

    @property
    def depth(self):
        return len(self.paths[0])

    def nodes(self, depth):
        return list(dict.fromkeys(path[:depth] for path in self.paths))

    @property
    def chain(self):
        starts = []
        for depth in range(1, self.depth + 1):
            nodes = [path[:depth] for path in self.paths]
            starts.append(tuple(nodes.index(node) for node in self.nodes(depth)))
        return Chain(len(self.paths), tuple(starts))


def draw_axis(rng):
    if rng.random() < 0.5:
        return Axis.flat(rng.choice([1, 2, 2, 3]))
    return Axis.nested(rng.choice(SHAPES))


def draw_blocks(rng, axes, among):
    """Disjoint exact totals of some features, each at some depth."""
    order, blocks = [*among], []
    rng.shuffle(order)
    while order:
        size = rng.choice([1, 1, 2])
        mine, order = order[:size], order[size:]
        if rng.random() < 0.75:
            blocks.append({k: rng.randint(1, axes[k].depth) for k in mine})
    return blocks


def node(axes, record, k, depth):
    return axes[k].paths[record[k]][:depth]


def published(axes, record, block):
    return tuple(node(axes, record, k, depth) for k, depth in sorted(block.items()))


def all_cells(axes):
    return list(itertools.product(*(range(len(axis.paths)) for axis in axes)))


def as_vectors(cells, moves):
    at = {cell: place for place, cell in enumerate(cells)}
    vectors = np.zeros((len(moves), len(cells)))
    for row, move in enumerate(sorted(moves)):
        for cell, change in move:
            vectors[row, at[cell]] = change
    return vectors


def difference(before, after):
    change = Counter(after)
    change.subtract(before)
    return tuple(sorted((cell, count) for cell, count in change.items() if count))


def list_record_moves(axes, blocks):
    """All moves of exchanges of plain records, and how many pairs were formed."""
    cells = all_cells(axes)
    moves, pairs = set(), 0
    for dataset in itertools.combinations_with_replacement(cells, 1 + len(blocks)):
        for person, x in enumerate(dataset):
            for y in cells:
                for other in exchange(axes, blocks, dataset, person, x, y):
                    pairs += 1
                    moves.add(difference(dataset, other))
    return cells, as_vectors(cells, moves), pairs


def exchange(axes, blocks, dataset, person, x, y):
    """Every dataset that arises when one person goes from x to y."""
    changed = [b for b in blocks if published(axes, x, b) != published(axes, y, b)]
    able = []
    for block in changed:
        wanted = published(axes, y, block)
        able.append(
            [
                j
                for j, r in enumerate(dataset)
                if j != person and published(axes, r, block) == wanted
            ]
        )
    for carriers in itertools.product(*able):
        result = [list(record) for record in dataset]
        result[person] = list(y)
        for block, j in zip(changed, carriers, strict=True):
            for k, depth in block.items():
                if node(axes, x, k, depth) != node(axes, y, k, depth):
                    result[j][k] = x[k]
        yield [tuple(record) for record in result]


def list_member_moves(axes, blocks, inherited):
    """All moves of exchanges of linked members: the first `inherited` features are those of units,
    of which there are two of every kind.
    """
    cells = all_cells(axes)
    places = sorted({cell[:inherited] for cell in cells})
    people = sorted({cell[inherited:] for cell in cells})
    units = [(place, copy) for place in places for copy in (0, 1)]
    members = list(itertools.product(units, people))

    def cell_of(member):
        return (*member[0][0], *member[1])

    values = [{m: published(axes, cell_of(m), block) for m in members} for block in blocks]
    having = [defaultdict(list) for _ in blocks]
    for value, by_value in zip(values, having, strict=True):
        for member in members:
            by_value[value[member]].append(member)
    moves, pairs = set(), 0
    for x, y in itertools.product(members, members):
        if x[0][1]:
            continue  # both units of a place are alike
        changed = [k for k in range(len(blocks)) if values[k][x] != values[k][y]]
        for others, serving in assign_carriers(changed, values, having, y):
            for before, after in finish(axes, blocks, inherited, x, y, others, serving, members):
                pairs += 1
                old = [cell_of(member) for member in (x, *before)]
                moves.add(difference(old, [cell_of(member) for member in (y, *after)]))
    return cells, as_vectors(cells, moves), pairs


def assign_carriers(changed, values, having, y):
    """Who carries each block that changes: one of the others so far, or somebody else."""
    found = [((), {})]
    for k in changed:
        longer = []
        for others, serving in found:
            for j, other in enumerate(others):
                if values[k][other] == values[k][y]:
                    longer.append((others, {**serving, k: j}))
            for other in having[k][values[k][y]]:
                longer.append(((*others, other), {**serving, k: len(others)}))
        found = longer
    return found


def finish(axes, blocks, inherited, x, y, others, serving, members):
    """The other members before and after: as carriers leave them, and with somebody who makes
    room.
    """
    x_cell, y_cell = (*x[0][0], *x[1]), (*y[0][0], *y[1])
    now = [[unit, list(own)] for unit, own in others]
    placed, alone = None, False
    for k, j in serving.items():
        differing = [
            f for f, d in blocks[k].items() if node(axes, x_cell, f, d) != node(axes, y_cell, f, d)
        ]
        for f in differing:
            if f >= inherited:
                now[j][1][f - inherited] = x_cell[f]
        if any(f < inherited for f in differing):
            placed, alone = j, all(f < inherited for f in blocks[k])
            now[j][0] = x[0]
    as_members = [(unit, tuple(own)) for unit, own in now]
    yield others, as_members
    short = x[0] if placed is None else others[placed][0]
    if alone or short == y[0]:
        return
    for j, other in enumerate(others):
        if other[0] == y[0] and j != placed:
            yield (
                others,
                [(short, own) if i == j else (u, own) for i, (u, own) in enumerate(as_members)],
            )
    for other in members:
        if other[0] == y[0]:
            yield (*others, other), [*as_members, (short, other[1])]


def images(axes, cells, view, *, centered):
    """What each cell adds to the table at a view, or to its residual: a row a cell."""
    rows = []
    for cell in cells:
        row = np.ones(1)
        for k, depth in enumerate(view):
            if not depth:
                continue
            nodes = axes[k].nodes(depth)
            mine = node(axes, cell, k, depth)
            entry = np.array([float(each == mine) for each in nodes])
            if centered:
                siblings = np.array([each[:-1] == mine[:-1] for each in nodes])
                entry = entry - siblings / siblings.sum()
            row = np.kron(row, entry)
        rows.append(row)
    return np.array(rows)


def all_views(axes):
    return [view for view in itertools.product(*(range(a.depth + 1) for a in axes)) if any(view)]


def small_enough(axes, blocks, inherited, most):
    cells = math.prod(len(axis.paths) for axis in axes)
    if not inherited:
        datasets = math.comb(cells + len(blocks), 1 + len(blocks))
        return datasets * cells <= most
    return 2 * cells * cells * cells ** len(blocks) * 2 <= most
