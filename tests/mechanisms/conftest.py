"""Spaces and tables that every test of a mechanism may ask for."""

import functools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, StructuralZero, Table
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.sensitivity.table_spaces import sensitivity_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin

Setting = tuple[QuerySpace, Table]


def a_table(shape: Sequence[int], zeros: Sequence[StructuralZero] = ()) -> Table:
    """Return a table with features A, B, C, … whose levels are 0, 1, 2, …."""
    features = [
        Feature(name, tuple(map(str, range(size))))
        for name, size in zip("ABCDE", shape, strict=False)
    ]
    schema = Schema(tuple(features), tuple(zeros))
    counts = np.random.default_rng(0).integers(1, 30, size=tuple(shape))
    return Table(schema, counts if schema.possible is None else counts * schema.possible)


def a_setting(table: Table, margins: Sequence[str], a: int, released: str | None = None) -> Setting:
    """Return the space of a table with margins such as "AB" published, and the released table."""
    dataspace = Dataspace.from_table(table, [Margin(*names) for names in margins])
    space = sensitivity_space(dataspace, Ball(a), None if released is None else tuple(released))
    return space, table if released is None else table.margin(released)


def with_empty_levels() -> Table:
    """Return a 4x4 table of which one row and one column are empty."""
    counts = np.array(a_table((4, 4)).counts)
    counts[1], counts[:, 2] = 0, 0
    return Table(a_table((4, 4)).schema, counts)


def with_empty_joint_level() -> Table:
    """Return a 2x3x4 table of which one cell of the margin AB is empty."""
    counts = np.array(a_table((2, 3, 4)).counts)
    counts[1, 2] = 0
    return Table(a_table((2, 3, 4)).schema, counts)


SETTINGS: dict[str, Callable[[], Setting]] = {
    "2x2": lambda: a_setting(a_table((2, 2)), ["A", "B"], 3),
    "3x3": lambda: a_setting(a_table((3, 3)), ["A", "B"], 3),
    "4x5": lambda: a_setting(a_table((4, 5)), ["A", "B"], 3),
    "empty levels": lambda: a_setting(with_empty_levels(), ["A", "B"], 3),
    "joint margin": lambda: a_setting(a_table((2, 3, 4)), ["AC", "B"], 3),
    "empty joint level": lambda: a_setting(with_empty_joint_level(), ["AB", "C"], 3),
    "rows": lambda: a_setting(a_table((3, 4)), ["B"], 2),
    "total": lambda: a_setting(a_table((3, 4)), [], 1),
    "chain": lambda: a_setting(a_table((2, 3, 4)), ["AB", "BC"], 3),
    "one-way": lambda: a_setting(a_table((2, 3, 4)), ["A", "B", "C"], 4),
    "no three-way": lambda: a_setting(a_table((2, 2, 3)), ["AB", "BC", "AC"], 5),
    "part released": lambda: a_setting(a_table((2, 3, 4)), ["A", "B", "C"], 4, released="AB"),
    "impossible cell": lambda: a_setting(
        a_table((3, 4), [StructuralZero.from_pattern({"A": "0", "B": "2"})]), ["A", "B"], 3
    ),
}


@functools.cache
def _made(name: str) -> Setting:
    """Made once: neither a space nor a table ever changes."""
    return SETTINGS[name]()


@pytest.fixture(params=SETTINGS)
def setting(request: pytest.FixtureRequest) -> Setting:
    """Return a space and a table for every sort of invariants that the dataspace knows."""
    return _made(request.param)


@pytest.fixture
def build() -> Callable[..., Setting]:
    """Return a function that builds a space: ``build((3, 3), ["A", "B"], a=3)``."""
    return lambda shape, margins, a, released=None: a_setting(a_table(shape), margins, a, released)


@pytest.fixture
def build_from() -> Callable[..., Setting]:
    """Return a function that builds a space from counts:
    ``build_from([[1, 2], [3, 4]], ["A", "B"], a=3)``.
    """

    def from_counts(counts: Sequence[object], margins: Sequence[str], a: int) -> Setting:
        array = np.array(counts)
        return a_setting(Table(a_table(array.shape).schema, array), margins, a)

    return from_counts
