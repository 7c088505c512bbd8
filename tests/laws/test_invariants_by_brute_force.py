"""Every dataset of every small dataspace: a(t) in both readings and all three norms against their
definitions.

The brute force below knows nothing of the library: labelled datasets, Hamming distance, maxima and
minima. All margins of the listed tables are tried, up to renaming the levels of a feature and the
records of a dataset.
"""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from semidp.errors import Refused
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import variables
from semidp.promise.schema.schema import Schema, StructuralZero, Table
from semidp.promise.sensitivity.norms import ReleasedTable
from semidp.promise.sensitivity.patterns import certified_norms
from semidp.promise.sensitivity.table_spaces import sensitivity_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.semi_adjacency import semi_adjacency, semi_adjacency_bound
from semidp.publish.witness import find_witness

A, B, C = (0,), (1,), (2,)
CASES = [
    # shape, published margins, largest n
    ((2, 2), [A, B], 6),
    ((2, 3), [A, B], 6),
    ((3, 3), [A, B], 5),
    pytest.param((3, 3), [A, B], 6, marks=pytest.mark.long),
    ((1, 3), [A, B], 4),
    ((2, 2, 2), [A, B, C], 5),
    pytest.param((2, 2, 2), [A, B, C], 6, marks=pytest.mark.long),
    ((2, 2, 2), [(0, 1), (1, 2)], 5),
    pytest.param((2, 2, 2), [(0, 1), (1, 2)], 6, marks=pytest.mark.long),
    ((2, 2, 2), [(0, 1), C], 5),
    ((2, 2, 2), [(0, 1), (1, 2), (0, 2)], 5),
    ((2, 2), [A], 6),
    ((2, 3), [A], 6),
    ((3, 3), [A], 5),
    ((2, 2, 2), [A, B], 5),
    ((2, 2), [(0, 1)], 4),
    ((2, 2), [], 6),
    ((3,), [], 6),
    ((2, 3), [], 5),
]


def spaces(shape: tuple[int, ...], margins: list[tuple[int, ...]], n: int) -> Iterator[np.ndarray]:
    """Yield D_t for every t up to renaming levels: an array of datasets, each a row of cell
    numbers.
    """
    cells = np.array(list(itertools.product(*map(range, shape))))
    data = np.array(list(itertools.product(range(len(cells)), repeat=n)), dtype=np.int8)
    keys = [np.zeros((len(data), 1), dtype=int)]
    for margin in margins:
        sizes = [shape[axis] for axis in margin]
        levels = np.ravel_multi_index([cells[:, axis] for axis in margin], sizes)[data]
        keys.append(
            np.stack(
                [(levels == level).sum(axis=1) for level in range(int(np.prod(sizes)))], axis=1
            )
        )
    published, which = np.unique(np.hstack(keys), axis=0, return_inverse=True)
    groups = np.split(
        np.argsort(which.ravel(), kind="stable"), np.cumsum(np.bincount(which.ravel()))[:-1]
    )
    renamings = list(itertools.product(*(itertools.permutations(range(size)) for size in shape)))
    seen = set()
    for t, rows in zip(published, groups, strict=True):
        if t.tobytes() not in seen:
            yield data[rows]
            for renaming in renamings:
                seen.add(_renamed(t, shape, margins, renaming).tobytes())


def _renamed(
    t: np.ndarray, shape: tuple[int, ...], margins: list[tuple[int, ...]], renaming: tuple
) -> np.ndarray:
    parts, start = [t[:1]], 1
    for margin in margins:
        sizes = [shape[axis] for axis in margin]
        part = t[start : start + int(np.prod(sizes))].reshape(sizes)
        parts.append(part[np.ix_(*(renaming[axis] for axis in margin))].ravel())
        start += part.size
    return np.concatenate(parts)


def brute_a(data: np.ndarray, tables: np.ndarray) -> tuple[int, int]:
    """Both readings of a(t). Records are exchangeable, so record 0 stands for all and X need only
    be one per table.
    """
    _, chosen = np.unique(np.hstack([tables, data[:, :1]]), axis=0, return_index=True)
    values = np.unique(data[:, 0])
    costs: dict[tuple[int, int], list[int]] = {}
    for one in chosen:
        distance = (data != data[one]).sum(axis=1)
        for y in values:
            costs.setdefault((data[one, 0], y), []).append(int(distance[data[:, 0] == y].min()))
    return max(max(found) for found in costs.values()), max(min(found) for found in costs.values())


def brute_norms(data: np.ndarray, tables: np.ndarray, largest: int) -> list[tuple[int, int, int]]:
    """Δ1, Δ2² and Δ∞ of S_a for a = 0, 1, …, largest."""
    _, chosen = np.unique(tables, axis=0, return_index=True)
    best = np.zeros((largest + 1, 3), dtype=int)
    for one in chosen:
        distance = (data != data[one]).sum(axis=1)
        change = np.abs(tables - tables[one])
        norms = np.stack([change.sum(axis=1), (change**2).sum(axis=1), change.max(axis=1)], axis=1)
        for a in range(largest + 1):
            best[a] = np.maximum(best[a], norms[distance <= a].max(axis=0))
    return [tuple(int(x) for x in row) for row in best]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("shape", "margins", "largest"), CASES, ids=lambda case: str(case).replace(" ", "")
)
def test_every_dataset_of_every_small_space(
    shape: tuple[int, ...], margins: list[tuple[int, ...]], largest: int
) -> None:
    names = "ABCD"[: len(shape)]
    schema = Schema(
        [
            Feature(name, [str(level) for level in range(size)])
            for name, size in zip(names, shape, strict=True)
        ]
    )
    cells = int(np.prod(shape))
    for n in range(1, largest + 1):
        for data in spaces(shape, margins, n):
            tables = np.stack([(data == cell).sum(axis=1) for cell in range(cells)], axis=1)
            table = Table(schema, tables[0].reshape(shape))
            public = Dataspace.from_table(
                table, [Margin(*(names[axis] for axis in margin)) for margin in margins]
            )
            found = semi_adjacency(public)
            assert (found.worst_case, found.definition) == brute_a(data, tables)
            assert found.bound == found.worst_case
            check_witness(public, found)
            single = (tables == tables[0]).all()
            for a, norms in enumerate(brute_norms(data, tables, n)):
                if norms[0] == 0 and not single:
                    with pytest.raises(Refused, match="larger a"):
                        sensitivity_space(public, Ball(a))
                    continue
                space = sensitivity_space(public, Ball(a))
                assert space.exact
                assert (space.l1, space.l2_squared, space.linf) == norms
                assert space.is_zero == single
                check_bounds(public, a, norms)


def check_witness(public: Dataspace, found) -> None:
    """The witness moves as many records as it must, changes no published margin, and lies in some
    dataset of D_t.
    """
    if found.worst_case == 0:
        assert find_witness(found) is None
        return
    witness, schema = find_witness(found), public.schema
    assert len(witness.others) + 1 == found.worst_case
    before = tabulated(schema, [witness.record, *(old for old, _ in witness.others)])
    after = tabulated(schema, [witness.wants, *(new for _, new in witness.others)])
    for margin, total in zip(public.margins, public.totals, strict=True):
        assert before.margin(margin.names) == after.margin(margin.names)
        assert (before.margin(margin.names).counts <= total.counts).all()
    assert witness.record != witness.wants


def tabulated(schema: Schema, records: list[tuple[str, ...]]) -> Table:
    return Table.from_frame(
        {name: [r[i] for r in records] for i, name in enumerate(schema.names)}, schema
    )


def check_bounds(public: Dataspace, a: int, norms: tuple[int, int, int]) -> None:
    """The bounds that need no counts hold in every enumerated case."""
    question = ReleasedTable.from_dataspace(public, public.schema.grid.full)
    margins = [variables(margin.view) for margin in question.visible]
    bound = certified_norms(min(a, public.n), question.structure.varying, margins)
    assert norms[0] <= bound.l1
    assert norms[1] <= bound.l2_squared
    assert norms[2] <= bound.linf


BOUNDED = [
    ((2, 2), [("A",), ("B",)], 4, 3),
    ((3, 2), [("A",), ("B",)], 3, 3),
    ((2, 2, 2), [("A",), ("B",), ("C",)], 4, 4),
    ((2, 2, 2), [("A", "B"), ("B", "C")], 4, 3),
    ((2, 2, 1), [("A",), ("B",), ("C",)], 3, 3),
    ((3, 2), [("A", "B")], 2, 2),
    ((2, 2), [("A",)], 2, 2),
    ((2, 2), [], 2, 1),
]


@pytest.mark.few(4)
@pytest.mark.parametrize(("shape", "margins", "n", "bound"), BOUNDED)
def test_the_bound_over_all_totals_holds_for_each_and_is_met_by_some(
    shape: tuple[int, ...], margins: list[tuple[str, ...]], n: int, bound: int
) -> None:
    """All tables of up to n records, so all totals; a bound smaller by one would fail for some of
    them.
    """
    schema = Schema(
        [
            Feature(name, [str(k) for k in range(size)])
            for name, size in zip("ABC", shape, strict=False)
        ]
    )
    published = [Margin(*names) for names in margins]
    assert semi_adjacency_bound(schema, published).bound == bound
    worst = 0
    for size in range(1, n + 1):
        for cells in itertools.combinations_with_replacement(range(schema.size), size):
            counts = np.bincount(cells, minlength=schema.size).reshape(shape)
            worst = max(
                worst, semi_adjacency(Dataspace.from_table(Table(schema, counts), published)).bound
            )
    assert worst == bound


def test_the_bound_over_all_totals_allows_for_structural_zeros() -> None:
    """Four levels of which i meets i and i + 1 only: four records must move, and the tree would say
    three.
    """
    levels = [str(k) for k in range(4)]
    zeros = [{"A": a, "B": b} for a in levels for b in levels if (int(b) - int(a)) % 4 > 1]
    schema = Schema(
        [Feature("A", levels), Feature("B", levels)],
        [StructuralZero.from_pattern(zero) for zero in zeros],
    )
    table = Table(schema, np.eye(4, dtype=np.int64))
    assert semi_adjacency(Dataspace.from_table(table, [Margin("A"), Margin("B")])).bound == 4
    # 1 + min(4, 4), by Graver elements
    assert semi_adjacency_bound(schema, [Margin("A"), Margin("B")]).bound == 5
    # inside a margin a zero is an empty cell
    assert semi_adjacency_bound(schema, [Margin("A", "B")]).bound == 2
