"""Tools for tests of distributions: a chi-square test whose false-alarm rate is stated, and sources
of chosen words.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from attrs import define, field
from numpy.typing import NDArray
from scipy import stats

FALSE_ALARM = 1e-6
"""How often a test rejects a correct sampler. Seeds are fixed, save where the operating system is
what is tested."""

Fits = Callable[..., bool]


@pytest.fixture
def fits() -> Fits:
    """Return ``fits(observed, probabilities)``: False with probability 1e-6 if the counts have
    these probabilities.

    Cells are joined in their order until each bin expects about `smallest` draws; what the listed
    probabilities leave out is one more cell, and draws outside the list must be passed as
    `outside`.
    """

    def test(
        observed: NDArray[np.int64],
        probabilities: NDArray[np.float64],
        outside: int = 0,
        smallest: float = 20,
    ) -> bool:
        n = int(observed.sum()) + outside
        expected = np.append(probabilities, max(0.0, 1 - probabilities.sum())) * n
        counts = np.append(observed, outside)
        # A bin ends where the running sum of expectations passes the next multiple of `smallest`.
        label = np.floor((np.cumsum(expected) - expected / 2) / smallest).astype(np.int64)
        _, bins = np.unique(label, return_inverse=True)
        e, o = np.bincount(bins, weights=expected), np.bincount(bins, weights=counts)
        # The tail bin may expect nothing at all: one draw there is then already too many.
        if np.any(o[e < 1e-12]):
            return False
        keep = e > 1e-12
        statistic = float(((o[keep] - e[keep]) ** 2 / e[keep]).sum())
        return bool(stats.chi2.sf(statistic, max(int(keep.sum()) - 1, 1)) > FALSE_ALARM)

    return test


@define
class Scripted:
    """The given words, then zeros; `asked` counts how many were handed out."""

    script: Sequence[int]
    secure: bool = False
    asked: int = field(default=0, init=False)

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the next words of the script."""
        part = list(self.script[self.asked : self.asked + count])
        self.asked += count
        return np.array(part + [0] * (count - len(part)), dtype=np.uint64)


@pytest.fixture
def scripted() -> type[Scripted]:
    """Return the class of scripted sources."""
    return Scripted
