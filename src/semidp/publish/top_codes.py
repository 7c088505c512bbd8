"""A `TopCode` publishes the largest sizes of units as one level, such as 5+. They are measured,
made to agree and fitted one by one.
"""

from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.schema.features import SIZE, Feature
from semidp.promise.schema.margins import Floats
from semidp.promise.schema.schema import Schema
from semidp.promise.spaces.linked import Link


@frozen
class TopCode:
    """Published levels of the size: each by itself below the top, one for the top and more.

    Parameters
    ----------
    top
        The least size of the last level.
    least, most
        The bounds on the size of a unit.

    Examples
    --------
    >>> code = TopCode(3, 1, 5)
    >>> code.levels, code.sum_to_levels(np.array([7, 5, 4, 2, 1]), 0).tolist()
    (('1', '2', '3+'), [7, 5, 7])
    >>> code.spread(np.array([0, 0, 1]), 0).tolist()
    [0, 0, 1, 1, 1]
    """

    top: int
    least: int
    most: int

    def __attrs_post_init__(self) -> None:
        if not self.least <= self.top <= self.most:
            raise InputError(
                f"the top code of {SIZE} is one of the sizes of a unit, from {self.least} to"
                f" {self.most}, not {self.top}"
            )

    @classmethod
    def from_link(cls, top: int, link: Link) -> "TopCode":
        """Return the top code of linked units; refuse a size that no unit may have."""
        return cls(top, link.least, link.most)

    @property
    def place(self) -> int:
        """The place of the last level."""
        return self.top - self.least

    @property
    def sizes(self) -> int:
        """How many sizes there are."""
        return self.most - self.least + 1

    @property
    def top_size_count(self) -> int:
        """How many sizes the last level stands for."""
        return self.most - self.top + 1

    @property
    def levels(self) -> tuple[str, ...]:
        """The published levels."""
        single = [str(size) for size in range(self.least, self.top)]
        return (*single, f"{self.top}+")

    def schema(self, schema: Schema) -> Schema:
        """Return a schema of single sizes with the published levels."""
        coded = Feature(SIZE, self.levels)
        return Schema(coded if part.name == SIZE else part for part in schema.features)

    def sum_to_levels(self, values: NDArray[Any], axis: int) -> NDArray[Any]:
        """Sum numbers by single sizes to the published levels."""
        return np.add.reduceat(values, range(self.place + 1), axis=axis)

    def spread(self, weights: NDArray[Any], axis: int) -> NDArray[Any]:
        """Return the weights on single sizes that weights on published levels have."""
        times = [1] * self.place + [self.top_size_count]
        return np.repeat(weights, times, axis=axis)

    # --- arrays by single size in which every size from the top on has the number of the last level

    def repeat_top_sum(self, values: Floats) -> Floats:
        """Sum the sizes from the top on, along the last axis, and put the sum in the place of
        each.
        """
        result = np.array(values)
        result[..., self.place :] = values[..., self.place :].sum(axis=-1, keepdims=True)
        return result

    def factors(self, of_last: float) -> Floats:
        """One for each single size, and a number for those of the last level."""
        result = np.ones(self.sizes)
        result[self.place :] = of_last
        return result

    def take_levels(self, values: NDArray[Any], axis: int) -> NDArray[Any]:
        """Return the published levels of such an array."""
        return np.take(values, range(self.place + 1), axis=axis)

    @property
    def spread_factor(self) -> float:
        """How many times the sum of squared (or of absolute) weights on residuals by size grows
        from a size to the last level.

        The weights of k of n sizes are ``1 - k/n`` (k times) and ``-k/n`` (n - k times): their
        squares add up to ``k (n - k)/n``, and their absolute values to twice that.
        """
        grouped, sizes = self.top_size_count, self.sizes
        return grouped * (sizes - grouped) / max(1, sizes - 1)

    @property
    def own_factor(self) -> float:
        """The weight ``1 - k/n`` of the last level on an entry of its own, beside ``1 - 1/n``."""
        return (self.sizes - self.top_size_count) / max(1, self.sizes - 1)
