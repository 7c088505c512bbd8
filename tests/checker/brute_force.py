"""Datasets and pairs straight from the definitions, for small spaces: written without the checker
and without semidp.

A dataset is a tuple of n labelled records; a record has one leaf (a path of labels) per feature. A
margin is a dictionary from feature numbers to published depths.
"""

import itertools
from collections import Counter
from fractions import Fraction

Record = tuple[tuple[str, ...], ...]
Dataset = tuple[Record, ...]


class World:
    """All datasets that have the margins of one of them."""

    def __init__(self, leaves, margins, dataset, zeros=()):
        self.leaves, self.margins, self.zeros = leaves, margins, zeros
        totals = self.totals(dataset)
        inhabited = [set(total) for total in totals]
        self.domain = []
        for record in itertools.product(*leaves):
            seen = [self.published(record, margin) for margin in margins]
            if record not in zeros and all(v in c for v, c in zip(seen, inhabited)):
                self.domain.append(record)
        everything = itertools.combinations_with_replacement(self.domain, len(dataset))
        self.datasets = [d for d in everything if self.totals(d) == totals]
        self.members = set(self.datasets)

    @staticmethod
    def published(record, margin):
        return tuple(record[f][:depth] for f, depth in sorted(margin.items()))

    def totals(self, dataset):
        return [Counter(self.published(r, margin) for r in dataset) for margin in self.margins]

    def fewest_changes(self):
        """a(t), worst case: labelled records, one of which must become a given value."""
        reached = {record for dataset in self.datasets for record in dataset}
        worst = 0
        for dataset in self.datasets:
            for x in set(dataset):
                rest = list(dataset)
                rest.remove(x)
                for y in reached - {x}:
                    options = []
                    for other in self.datasets:
                        if y in other:
                            others = list(other)
                            others.remove(y)
                            common = sum((Counter(rest) & Counter(others)).values())
                            options.append(1 + len(rest) - common)
                    worst = max(worst, min(options))
        return worst

    def ball_pairs(self, a):
        for first, second in itertools.product(self.datasets, repeat=2):
            same = sum((Counter(first) & Counter(second)).values())
            if len(first) - same <= a:
                yield first, second

    def exchange_pairs(self, length=1):
        """Chains of exchanges of different records of one person: labelled records 0..n-1."""
        for dataset in self.datasets:
            current = {(dataset, frozenset())}
            for _ in range(length):
                following = set()
                for now, settled in current:
                    for person in range(len(now)):
                        if person not in settled:
                            for after in self.exchanges(now, person, settled):
                                following.add((after, settled | {person}))
                for after, _ in following:
                    yield dataset, after
                current = following

    def exchanges(self, dataset, person, settled):
        x = dataset[person]
        for y in self.domain:
            changed = [m for m in self.margins if self.published(x, m) != self.published(y, m)]
            choices = []
            for margin in changed:
                fits = []
                for i, record in enumerate(dataset):
                    is_other = i != person and i not in settled
                    if is_other and self.published(record, margin) == self.published(y, margin):
                        fits.append(i)
                choices.append(fits)
            for carriers in itertools.product(*choices):
                after = [list(record) for record in dataset]
                after[person] = list(y)
                for carrier, margin in zip(carriers, changed):
                    for f, depth in margin.items():
                        if x[f][:depth] != y[f][:depth]:
                            after[carrier][f] = x[f]
                yield tuple(tuple(record) for record in after)


def table(dataset, depths):
    """Counts of the cells at some depths."""
    return Counter(tuple(leaf[:d] for leaf, d in zip(r, depths) if d) for r in dataset)


def residual(dataset, depths, leaves):
    """The table minus the mean of the siblings along every feature in it, one after another."""
    named = [f for f, depth in enumerate(depths) if depth]
    axes = [sorted({leaf[: depths[f]] for leaf in leaves[f]}) for f in named]
    counts = table(dataset, depths)
    values = {cell: Fraction(counts[cell]) for cell in itertools.product(*axes)}
    for axis in range(len(named)):
        centred = {}
        for cell, value in values.items():
            family = [node for node in axes[axis] if node[:-1] == cell[axis][:-1]]
            mean = sum(values[(*cell[:axis], node, *cell[axis + 1 :])] for node in family)
            centred[cell] = value - mean / len(family)
        values = centred
    return values


def sums(dataset, depths, values):
    """Sums of what records are worth by the leaf of one feature, over the cells at some depths."""
    total = Counter()
    for record in dataset:
        cell = tuple(leaf[:d] for leaf, d in zip(record, depths) if d)
        total[cell] += values[record]
    return total


def cost(first, second, queries, leaves, values=None):
    """Sum of weight x squared change over (kind, depths, weight)."""
    total = Fraction(0)
    for kind, depths, weight in queries:
        if kind == "sums":
            one, two = sums(first, depths, values), sums(second, depths, values)
            total += weight * sum((one[c] - two[c]) ** 2 for c in {*one, *two})
            continue
        if kind == "table":
            changes = table(first, depths)
            changes.subtract(table(second, depths))
            total += weight * sum(change**2 for change in changes.values())
        else:
            one, two = residual(first, depths, leaves), residual(second, depths, leaves)
            total += weight * sum((one[cell] - two[cell]) ** 2 for cell in one)
    return total


def length(first, second, depths):
    """Sum of absolute changes of a table."""
    changes = table(first, depths)
    changes.subtract(table(second, depths))
    return sum(map(abs, changes.values()))


def replaced(first, second, depths, feature):
    """How many values of one feature are replaced in each cell at some depths."""
    changes = Counter()
    for sign, dataset in ((1, first), (-1, second)):
        for record in dataset:
            changes[cell_of(record, depths), record[feature]] += sign
    counts = Counter()
    for (cell, _), change in changes.items():
        counts[cell] += Fraction(abs(change), 2)
    return list(counts.values())


def cell_of(record, depths):
    return tuple(leaf[:d] for leaf, d in zip(record, depths) if d)


def vector_change(first, second, entries):
    """The change of the sum of vectors: `entries` gives what a record adds, by entry."""
    change = Counter()
    for sign, dataset in ((1, first), (-1, second)):
        for record in dataset:
            for entry, amount in entries(record).items():
                change[entry] += sign * amount
    return list(change.values())
