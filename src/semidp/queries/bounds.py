"""Certified upper bounds for the norms of any table with zero published margins.

They need only the pattern of published margins and a, never the counts; proofs in docs/errata.md. Norms that are
exact because a table attains them are found in `patterns` and `moves`.
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST_SEARCH = 2000  # beyond this a the plain bound a² is used for Δ2²


@dataclass(frozen=True)
class Norms:
    """The norms of a sensitivity space: Δ1, Δ2² and Δ∞, all whole numbers.

    >>> Norms(4, 4, 1).scaled(3)
    Norms(l1=12, l2_squared=36, linf=3)
    """

    l1: int
    l2_squared: int
    linf: int

    @classmethod
    def of(cls, vectors: NDArray[Any]) -> "Norms":
        """Return the largest norms of some vectors of whole numbers, one after the other along the first axis.

        >>> Norms.of(np.array([[1, -1, 0], [0, 0, 0]]))
        Norms(l1=2, l2_squared=2, linf=1)
        """
        sizes = np.abs(vectors).reshape(len(vectors), -1)
        l1 = sizes.sum(axis=1).max(initial=0)
        l2_squared = (sizes * sizes).sum(axis=1).max(initial=0)
        return cls(int(l1), int(l2_squared), int(sizes.max(initial=0)))

    def scaled(self, factor: int) -> "Norms":
        """Return the norms of the space with every element multiplied by `factor`."""
        return Norms(factor * self.l1, factor**2 * self.l2_squared, factor * self.linf)

    def least(self, other: "Norms") -> "Norms":
        """Return the smaller of each pair: two upper bounds make a better one."""
        l2_squared = min(self.l2_squared, other.l2_squared)
        return Norms(min(self.l1, other.l1), l2_squared, min(self.linf, other.linf))

    def most(self, other: "Norms") -> "Norms":
        """Return the larger of each pair: what two elements attain together."""
        l2_squared = max(self.l2_squared, other.l2_squared)
        return Norms(max(self.l1, other.l1), l2_squared, max(self.linf, other.linf))


def certified_norms(
    a: int, features: Iterable[Hashable], margins: Sequence[frozenset[Any]], parity: bool = False
) -> Norms:
    """Bound the norms of tables with zero `margins` and positive part at most a.

    With ρ* the fractional edge cover number of the features by the margins, Δ1 <= 2a and Δ∞ <= k = ⌊a (1 - 1/ρ*)⌋.
    If every feature is published, the largest positive and negative entries sum to at most a, hence with
    g(x) = ⌊a/x⌋ x² + (a mod x)²: Δ2² <= max {g(α) + g(β) : 1 <= β <= α <= k, α + β <= a}; else Δ2² <= 2a².

    Parameters
    ----------
    a
        How many records may move.
    features
        The features with at least two levels that can occur.
    margins
        What is published, as sets of features.
    parity
        Whether the positive part is always even, as for two disjoint blocks of which one has two levels.

    Examples
    --------
    >>> certified_norms(3, "AB", [frozenset("A"), frozenset("B")])
    Norms(l1=6, l2_squared=6, linf=1)
    >>> certified_norms(3, "AB", [frozenset("A"), frozenset("B")], parity=True)
    Norms(l1=4, l2_squared=4, linf=1)
    >>> certified_norms(2, "ABC", [frozenset("AB"), frozenset("BC"), frozenset("AC")])
    Norms(l1=0, l2_squared=0, linf=0)
    """
    if parity:
        a -= a % 2
    features = frozenset(features)  # each depth of a nested feature counts as one of its own
    if not features or a == 0:
        return Norms(0, 0, 0)
    if not features <= frozenset().union(*margins):
        return Norms(2 * a, 2 * a * a, a)
    # rounding k up where the linear program is not exact only enlarges the bound
    cover = edge_cover(features, margins)
    k = math.floor(a * (1 - 1 / cover) + 1e-9)
    if k == 0:
        return Norms(0, 0, 0)
    if a > LARGEST_SEARCH:
        return Norms(2 * a, a * a, k)
    best = 0
    for alpha in range(1, k + 1):
        # The largest positive entry α and the largest negative entry β share the a records of the positive part.
        packed = [_packed(a, beta) for beta in range(1, min(alpha, a - alpha) + 1)]
        if packed:
            best = max(best, _packed(a, alpha) + max(packed))
    return Norms(2 * a, best, k)


def edge_cover(features: frozenset[Any], margins: Sequence[frozenset[Any]]) -> float:
    """Return ρ*: the least total weight on margins such that every feature has weight at least one.

    >>> edge_cover(frozenset("ABC"), [frozenset("AB"), frozenset("BC"), frozenset("AC")])
    1.5
    """
    restricted = [margin & features for margin in margins]
    distinct = []
    for margin in dict.fromkeys(restricted):
        # A margin inside another covers nothing that the larger one does not.
        if margin and not any(margin < other for other in restricted):
            distinct.append(margin)
    if sum(map(len, distinct)) == len(features):
        return float(len(distinct))  # disjoint: each one is needed in full
    from scipy.optimize import linprog

    rows = []
    for feature in sorted(features):
        rows.append([feature in margin for margin in distinct])
    coverage = np.array(rows, dtype=float)
    weights = np.ones(len(distinct))
    solved = linprog(weights, A_ub=-coverage, b_ub=-np.ones(len(features)), method="highs")
    return float(len(distinct) if solved.fun is None else solved.fun)


def _packed(a: int, x: int) -> int:
    """g(x): the largest sum of squares of whole numbers in 0..x that sum to a."""
    return (a // x) * x * x + (a % x) ** 2
