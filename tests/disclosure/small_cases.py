"""Small random cases, and the truth about them: every table that conforms, listed one by one."""

import itertools
from functools import cache
from typing import Any

import numpy as np
from attrs import frozen

from semidp.assess.disclosure.published_counts import (
    ROUNDINGS,
    UNBOUNDED,
    KnownTable,
    PublishedCounts,
    ReadingRules,
)
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import Counts, View
from semidp.promise.schema.schema import Schema, StructuralZero

NESTED = Feature.from_paths(["state", "county"], [("s", "1"), ("s", "2"), ("t", "3")])


@frozen(eq=False)
class Case:
    """What is published of a true table that only the test knows."""

    counts: PublishedCounts
    truth: Counts

    def list_tables(self) -> Counts:
        """Return every conforming table, a row each."""
        grid = self.counts.grid
        nothing = [known for known in self.counts.tables if not any(known.view)]
        least = max(int(known.lower) for known in nothing)
        most = min(int(known.upper) for known in nothing)
        possible = self.counts.schema.possible_cells.ravel()
        tables = np.concatenate(
            [list_compositions(n, int(possible.sum())) for n in range(least, most + 1)]
        )
        whole = np.zeros((len(tables), possible.size), dtype=np.int64)
        whole[:, possible] = tables
        for known in self.counts.tables:
            sums = whole @ matrix(grid, known.view).T
            keep = (sums >= known.lower.ravel()) & (sums <= known.upper.ravel())
            if known.gap is not None:
                gap = known.gap.ravel()
                keep &= (gap == 0) | (sums == 0) | (sums >= gap)
            whole = whole[keep.all(axis=1)]
        return whole

    def sum_to_view(self, tables: Counts, view: View) -> Counts:
        """Return the cells of a view of each table."""
        return np.asarray(tables @ matrix(self.counts.grid, view).T)


def matrix(grid: Any, view: View) -> Counts:
    """Return ones where a cell of the table lies in a cell of the view."""
    labels = grid.labels(view)
    cells = np.arange(grid.count_margin_cells(view))
    return np.asarray(labels[None, :] == cells[:, None]).astype(np.int64)


@cache
def list_compositions(n: int, cells: int) -> Counts:
    """Return all ways to put n records into cells."""
    if cells == 0:
        return np.zeros((n == 0, 0), dtype=np.int64)
    places = list(itertools.combinations(range(n + cells - 1), cells - 1))
    bars = np.array(places, dtype=np.int64).reshape(len(places), cells - 1)
    left = np.concatenate([np.full((len(bars), 1), -1), bars], axis=1)
    right = np.concatenate([bars, np.full((len(bars), 1), n + cells - 1)], axis=1)
    return np.asarray(right - left - 1)


STRUCTURES: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("a",), ("b",)),
    (("a",), ("b",), ("c",)),
    (("a", "b"), ("b", "c")),
    (("a", "b"), ("c",)),
    (("a", "b"), ("b", "c"), ("a", "c")),
    (("a", "b"), ("b", "c"), ("c", "d")),
    (("a", "b"), ("a", "c"), ("a", "d")),
    (("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")),
    (("a", "b", "c"), ("b", "c", "d")),
    (("a", "b"), ("b",), ()),
    (("state", "b"), ("county",)),
    (("state", "b"), ("county", "c")),
    (("state", "b"), ("county",), ("b", "c")),
)
"""Decomposable, in cycles, nested, with one another contained."""


def draw_schema(rng: np.random.Generator, names: set[str], zeros: bool) -> Schema:
    """Draw a schema of small features, with structural zeros if they are asked for."""
    features: list[Feature] = []
    if names & {"state", "county"}:
        features.append(NESTED)
    sizes = [2, 2, 3] if len(names) <= 2 else [2]
    features += [
        Feature(name, "xyz"[: int(rng.choice(sizes))])
        for name in sorted(names - {"state", "county"})
    ]
    if rng.random() < 0.15 and len(features) < 4:
        features.append(Feature("free", "pq"[: int(rng.integers(1, 3))]))
    declared = []
    for _ in range(int(rng.integers(1, 3)) if zeros and len(features) > 1 else 0):
        chosen = rng.choice(len(features), size=2, replace=False)
        pattern = {features[axis].name: str(rng.choice(features[axis].levels)) for axis in chosen}
        declared.append(StructuralZero.from_pattern(pattern))
    return Schema(features, declared)


def draw_case(rng: np.random.Generator, hiding: bool, zeros: bool) -> Case:
    """Draw a true table and what is published of it: exactly, or rounded and suppressed."""
    while True:
        margins = STRUCTURES[int(rng.integers(len(STRUCTURES)))]
        schema = draw_schema(rng, {name for margin in margins for name in margin}, zeros)
        possible = np.flatnonzero(schema.possible_cells)
        if len(possible) > 1:
            break
    n = int(rng.integers(0, 6 if len(possible) <= 8 else 4))
    truth = np.bincount(rng.choice(possible, size=n), minlength=schema.size)
    rules = draw_rules(rng) if hiding else None
    tables = []
    for margin in dict.fromkeys(((), *margins)):
        view = schema.view(margin)
        counts = schema.grid.sum(truth.reshape(schema.shape), view)
        tables.append(hide(rng, rules, view, counts) if rules else KnownTable(view, counts, counts))
    tables.sort(key=lambda known: known.view)
    return Case(PublishedCounts(schema, tuple(tables)), truth)


def draw_rules(rng: np.random.Generator) -> ReadingRules:
    """Draw a rule of rounding, of suppression, or both."""
    kind = int(rng.integers(3))
    rounded = int(rng.choice([2, 3, 4, 5])) if kind != 1 else None
    marks = kind != 0
    return ReadingRules(
        suppressed=("c",) if marks else (),
        secondary=("x",) if marks and rng.random() < 0.5 else (),
        below=int(rng.integers(2, 4)) if marks else None,
        shared_mark=bool(rng.random() < 0.3),
        zeros=str(rng.choice(["maybe", "shown", "suppressed"])),
        rounded=rounded,
        rounding=str(rng.choice(ROUNDINGS)),
        zeros_kept=bool(rng.random() < 0.3),
    )


def publish_cell(rng: np.random.Generator, rules: ReadingRules, count: int) -> str:
    """Publish a count as a publisher with these rules would."""
    small = rules.below is not None and (
        (0 < count < rules.below) or (count == 0 and rules.zeros == "suppressed")
    )
    if small:
        return "c"
    may_protect = count > 0 or rules.zeros == "maybe"
    if rules.below is not None and may_protect and rng.random() < 0.2:
        if rules.secondary:
            return "x"
        if rules.shared_mark:
            return "c"
    if rules.rounded is None:
        return str(count)
    return str(round_count(rng, rules, count))


def round_count(rng: np.random.Generator, rules: ReadingRules, count: int) -> int:
    """Round as a publisher would; of a rule with unknown ties, by any of them."""
    base = rules.rounded
    assert base is not None
    down, rest = divmod(count, base)
    if rest == 0:
        return count
    up = bool(rng.random() < 0.5)
    if rules.rounding != "random" and 2 * rest != base:
        up = 2 * rest > base
    elif rules.rounding == "half-even":
        up = down % 2 == 1
    elif rules.rounding in ("half-up", "half-down"):
        up = rules.rounding == "half-up"
    if rules.zeros_kept and down == 0:
        up = True
    return (down + up) * base


def hide(rng: np.random.Generator, rules: ReadingRules, view: View, counts: Counts) -> KnownTable:
    """Publish a table with rules, and read it with them."""
    if not any(view):
        # n stays within a few records, or there would be too many tables to list.
        spread = int(rng.integers(2))
        return KnownTable(view, np.maximum(counts - spread, 0), counts + spread)
    read = []
    for count in counts.ravel().tolist():
        text = publish_cell(rng, rules, int(count))
        cell = rules.read_cell(text)
        assert cell is not None
        assert cell[0] <= count <= cell[1]
        read.append((cell[0], min(cell[1], UNBOUNDED), cell[2]))
    lower, upper, gap = (
        np.array(values, dtype=np.int64).reshape(np.shape(counts))
        for values in zip(*read, strict=True)
    )
    return KnownTable(view, lower, upper, gap, lower < upper)
