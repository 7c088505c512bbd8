"""Graver bases of small margin maps against brute force, and the bound on a(t) that follows from
them.
"""

import itertools

import numpy as np
import pytest

from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, StructuralZero, Table
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.semi_adjacency import (
    graver_basis,
    graver_degree,
    list_semi_adjacency,
    semi_adjacency,
    semi_adjacency_bound,
)
from semidp.promise.spaces.structure import Structure


def margin_map(shape: tuple[int, ...], margins: str) -> np.ndarray:
    """The margins of a table, a row a margin cell."""
    cells = list(itertools.product(*map(range, shape)))
    rows = []
    for names in margins.split():
        axes = ["ABCD".index(name) for name in names]
        for levels in itertools.product(*(range(shape[axis]) for axis in axes)):
            rows.append([int(tuple(cell[axis] for axis in axes) == levels) for cell in cells])
    return np.array(rows)


def small_elements(matrix: np.ndarray, largest: int) -> set[tuple[int, ...]]:
    """All minimal tables with zero margins and entries of at most `largest`, by listing every such
    table.
    """
    cells = matrix.shape[1]
    pivots: list[int] = []
    for cell in range(cells):  # cells that the others determine
        if np.linalg.matrix_rank(matrix[:, [*pivots, cell]]) > len(pivots):
            pivots.append(cell)
    free = [cell for cell in range(cells) if cell not in pivots]
    found = []
    for values in itertools.product(range(-largest, largest + 1), repeat=len(free)):
        rest, *_ = np.linalg.lstsq(
            matrix[:, pivots], -matrix[:, free] @ np.array(values), rcond=None
        )
        table = np.zeros(cells, dtype=np.int64)
        table[free], table[pivots] = values, np.rint(rest).astype(np.int64)
        if table.any() and not (matrix @ table).any() and np.abs(table).max() <= largest:
            found.append(table)
    every = np.array(found)
    minimal = set()
    for table in every:
        within = ((every * np.sign(table) >= 0) & (np.abs(every) <= np.abs(table))).all(axis=1)
        if within.sum() == 1:
            minimal.add(tuple(table.tolist()))
    return minimal


@pytest.mark.parametrize(
    ("shape", "margins", "largest"),
    [
        ((2, 3), "A B", 3),
        ((3, 3), "A B", 2),
        ((2, 2, 2), "A B C", 2),
        ((2, 2, 2), "AB C", 2),
        ((2, 2, 3), "AB BC AC", 3),
    ],
)
def test_the_basis_is_all_minimal_tables(
    shape: tuple[int, ...], margins: str, largest: int
) -> None:
    matrix = margin_map(shape, margins)
    basis = graver_basis(matrix)
    assert basis is not None
    ours = {tuple(row) for row in basis.tolist()}
    assert len(ours) == len(basis)
    assert ours == small_elements(matrix, largest)


def test_the_basis_on_possible_cells_is_the_part_supported_there() -> None:
    matrix, rng = margin_map((2, 2, 2), "A B C"), np.random.default_rng(1)
    whole = graver_basis(matrix)
    assert whole is not None
    for _ in range(20):
        cells = np.flatnonzero(rng.random(8) < 0.8)
        part = graver_basis(matrix[:, cells])
        supported = whole[
            (whole[:, [cell for cell in range(8) if cell not in cells]] == 0).all(axis=1)
        ][:, cells]
        if part is not None:
            assert {tuple(row) for row in part.tolist()} == {
                tuple(row) for row in supported.tolist()
            }


@pytest.mark.parametrize(
    ("shape", "margins", "size", "degree"),
    [
        ((3, 3, 3), "AB BC AC", 1590, 12),
        ((2, 2, 2, 2), "AB BC CD AD", 212, 5),
        ((2, 3, 3), "AB BC AC", 30, 6),
    ],
)
def test_known_sizes(shape: tuple[int, ...], margins: str, size: int, degree: int) -> None:
    basis = graver_basis(margin_map(shape, margins))
    assert basis is not None
    assert (len(basis), int(np.maximum(basis, 0).sum(axis=1).max())) == (size, degree)


def space_of(counts: np.ndarray, margins: str, possible: np.ndarray) -> Dataspace:
    names = "ABCD"
    zeros = [
        StructuralZero.from_pattern({names[axis]: str(level) for axis, level in enumerate(cell)})
        for cell in np.argwhere(~possible).tolist()
    ]
    features = [
        Feature(names[axis], [str(level) for level in range(size)])
        for axis, size in enumerate(counts.shape)
    ]
    return Dataspace.from_table(
        Table(Schema(features, zeros), counts), [Margin(*part) for part in margins.split()]
    )


def test_the_bound_holds_and_is_attained_without_closed_forms() -> None:
    """Three blocks, overlapping margins and a cycle of margins, with structural zeros: every small
    fiber listed.
    """
    rng = np.random.default_rng(11)
    checked, attained = 0, set()
    for shape, margins in (
        ((2, 2, 2), "A B C"),
        ((2, 2, 2), "AB C"),
        ((2, 2, 3), "AB BC"),
        ((2, 2, 2, 2), "AB BC CD AD"),
    ):
        for _ in range(40):
            possible = rng.random(shape) < 0.8
            table = np.where(possible, rng.integers(0, 2, shape), 0)
            if not 3 <= table.sum() <= 7:
                continue
            space = space_of(table, margins, possible)
            listed, degree = (
                list_semi_adjacency(space),
                graver_degree(Structure.from_dataspace(space)),
            )
            if listed is None or degree is None:
                continue
            assert listed.worst_case is not None
            assert listed.worst_case <= max(2, 1 + degree)
            checked += 1
            attained |= {(shape, margins)} if listed.worst_case == 1 + degree >= 3 else set()
    assert checked > 80
    assert len(attained) >= 3, "with one record less the bound would be wrong"


def test_what_was_refused_has_a_bound() -> None:
    cube, nothing = np.full((3, 3, 3), 100), np.ones((3, 3, 3), dtype=bool)
    found = semi_adjacency(space_of(cube, "AB BC AC", nothing))
    assert (found.worst_case, found.bound, found.method) == (None, 13, "bound by Graver elements")
    zeros = np.ones((2, 2, 2), dtype=bool)
    zeros[0, 0, 0] = False
    found = semi_adjacency(space_of(np.where(zeros, 100, 0), "A B C", zeros))
    assert (found.bound, found.method) == (4, "bound by Graver elements")
    schema = Schema([Feature(name, "01") for name in "ABCD"])
    cycle = [Margin("A", "B"), Margin("B", "C"), Margin("C", "D"), Margin("A", "D")]
    assert semi_adjacency_bound(schema, cycle).bound == 6


def test_zeros_that_cut_the_long_cycles_lower_the_bound() -> None:
    """Two 2 x 2 tables are left of a 4 x 4 table: two others suffice, where min(r, c) says four."""
    possible = np.kron(np.eye(2, dtype=bool), np.ones((2, 2), dtype=bool)).astype(bool)
    found = semi_adjacency(space_of(np.where(possible, 500, 0), "A B", possible))
    assert found.bound == 3
