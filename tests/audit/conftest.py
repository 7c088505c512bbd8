"""Spaces, pairs and noise that the audits' tests share."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from semidp.assess import Pair, worst_pair
from semidp.assess.attack import Draws
from semidp.promise.mechanisms.knorm_polar import NormBall, knorm_noise
from semidp.promise.noise.randomness import generator
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.table_spaces import TableSpace, sensitivity_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin


def a_space(
    counts: Sequence[Any], margins: Sequence[str], a: int, released: str | None = None
) -> TableSpace:
    """Return the space of a table with features A, B, C, … of which margins such as "AB" are
    published.
    """
    array = np.array(counts)
    schema = Schema(
        tuple(
            Feature(name, tuple(map(str, range(k))))
            for name, k in zip("ABCD", array.shape, strict=False)
        )
    )
    dataspace = Dataspace.from_table(Table(schema, array), [Margin(*names) for names in margins])
    return sensitivity_space(dataspace, Ball(a), None if released is None else tuple(released))


def snapped(values: Any) -> Any:
    """Round to a grid that is as fine whatever the size, so that sums are exact: digits of floats
    betray what noise was added to.
    """
    return np.rint(np.asarray(values) * 2**20) / 2**20


def knorm_draws(ball: NormBall, epsilon: Fraction, law: Any = knorm_noise) -> Draws:
    """Return K-norm noise of a ball, or another law of its radius, added to a table without
    rounding to whole numbers.
    """

    def draws(values: Any, count: int, randomness: Any) -> Any:
        return values + snapped(law(ball, epsilon, count, generator(randomness)))

    return draws


@pytest.fixture(scope="session")
def square() -> TableSpace:
    """Return a 3x3 table with both margins public under A_3: the smallest with a three-cycle."""
    return a_space([[10, 20, 30], [15, 25, 35], [3, 4, 5]], ["A", "B"], 3)


@pytest.fixture(scope="session")
def cycle(square: TableSpace) -> Pair:
    """Return the pair that a three-cycle separates."""
    return worst_pair(square)
