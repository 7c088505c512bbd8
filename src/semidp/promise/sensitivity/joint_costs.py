"""Bounds on the joint cost of all residuals of a product, ``sup_m Σ_d τ_d |H_d M_d m|²`` with τ =
1/σ².

A bound divides the residuals into groups and adds up their costs. The cost of a group is that of
the worst of its listed moves, of its patterns, or of its single moves, or the sum over its
residuals. Every such value is convex in τ; its slope is the vector of squares of the worst moves,
which the allocation of noise uses as a cut. `costs` has the moves of each adjacency.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Protocol

import numpy as np
from attrs import field, frozen

from semidp.promise.exact import round_up
from semidp.promise.schema.margins import Floats, View
from semidp.promise.sensitivity.families import Family

_UNIT = 2.0**-40  # listed squares are off by less than this times (2a)² τ
_ROUND = 2.0**-50
_ALIKE = 1e-6  # bounds this close at one τ are as good there


class GroupCost(Protocol):
    """Upper bound of the joint cost of a group of residuals."""

    def worst(self, tau: Floats) -> tuple[float, Floats]:
        """Return the cost at τ, and its slope: the squares of the worst move."""
        ...

    def slack(self, tau: Floats) -> float:
        """Return a bound on the rounding error of the cost."""
        ...


@frozen(eq=False)
class SumOfCosts:
    """The sum of the costs of single residuals."""

    costs: Floats = field(repr=False)

    def worst(self, tau: Floats) -> tuple[float, Floats]:
        """Return ``Σ k τ`` and k."""
        return float(self.costs @ tau), self.costs

    def slack(self, tau: Floats) -> float:
        """Return a bound on the rounding error of one sum of positive numbers."""
        return float(self.costs @ tau) * (len(tau) + 2) * _ROUND


@frozen(eq=False)
class ListedMoves:
    """Bound by a list of all moves, each given by the squares of its residuals.

    Parameters
    ----------
    squares
        One row per move, one column per residual.
    records
        How many records a move has, those that appear and those that vanish.
    """

    squares: Floats = field(repr=False)
    records: int

    def worst(self, tau: Floats) -> tuple[float, Floats]:
        """Return the largest cost of a move, and its squares."""
        values = self.squares @ tau
        place = int(values.argmax())
        return float(values[place]), self.squares[place]

    def slack(self, tau: Floats) -> float:
        """Return a bound on the rounding error: a residual of a move is at most as long as the
        move.
        """
        return self.records**2 * float(tau.sum()) * _UNIT


@frozen(eq=False)
class PatternMoves:
    """Bound by the moves of some families. One move belongs to one family: the worst family counts.

    Parameters
    ----------
    families
        The families.
    views
        The residuals, as depths in the features that the families look at.
    exact
        Whether each of these moves exists where counts are large enough.
    """

    families: tuple[Family, ...] = field(repr=False)
    views: tuple[View, ...] = field(repr=False)
    exact: bool = False

    def worst(self, tau: Floats) -> tuple[float, Floats]:
        """Return the largest cost of a move of any family, and its squares."""
        best, squares = 0.0, np.zeros(len(tau))
        # a move belongs to one family: the worst of all is the worst of some family
        for family in self.families:
            value, of_family = family.most(self.views, tau)
            if value > best:
                best, squares = value, of_family
        return best, squares

    def slack(self, tau: Floats) -> float:
        """Return the largest rounding error of a family."""
        return max(family.slack(self.views, tau) for family in self.families)

    @property
    def work(self) -> int:
        """How many values are computed to find the worst move."""
        return sum(family.work for family in self.families)


@frozen(eq=False)
class ResidualGroup:
    """Some residuals, given by their numbers, with several bounds on what they cost together."""

    numbers: tuple[int, ...]
    parts: tuple[GroupCost, ...] = field(repr=False)

    def values(self, tau: Floats) -> list[float]:
        """Return every bound at τ, rounding errors included."""
        mine = tau[list(self.numbers)]
        return [part.worst(mine)[0] + part.slack(mine) for part in self.parts]

    def choose_bound(self, tau: Floats) -> GroupCost:
        """Return the bound that is least at τ; the first of several that are as good."""
        values = self.values(tau)
        limit = min(values) * (1 + _ALIKE)
        return next(part for part, value in zip(self.parts, values, strict=True) if value <= limit)


@frozen(eq=False)
class JointBound:
    """Residuals divided into groups, whose costs are added up."""

    groups: tuple[ResidualGroup, ...]

    def upper(self, tau: Floats) -> float:
        """Return the bound at τ, rounding errors included."""
        total = sum(min(group.values(tau)) for group in self.groups)
        # the sum of the groups is rounded as well
        return total * (1 + (len(self.groups) + 4) * _ROUND)

    def choose_parts(self, tau: Floats) -> "JointBound":
        """Return the bound with one part for each group, the least at τ. With one part each it is
        convex in τ.
        """
        groups = [ResidualGroup(group.numbers, (group.choose_bound(tau),)) for group in self.groups]
        return JointBound(tuple(groups))

    @property
    def is_sum(self) -> bool:
        """Whether every group is a sum of single residuals, for which the closed form is best."""
        parts = [part for group in self.groups for part in group.parts]
        return all(isinstance(part, SumOfCosts) for part in parts)

    def worst(self, tau: Floats) -> tuple[float, Floats]:
        """Return the cost of a settled bound at τ, and its slope."""
        total, slope = 0.0, np.zeros(len(tau))
        for group in self.groups:
            places = list(group.numbers)
            value, squares = group.parts[0].worst(tau[places])
            total += value
            slope[places] = squares
        return total, slope

    @property
    def work(self) -> int:
        """How many values a settled bound computes."""
        parts = [part for group in self.groups for part in group.parts]
        return sum(part.work for part in parts if isinstance(part, PatternMoves))


def precisions(views: Sequence[View], sigma2: Mapping[View, Fraction]) -> Floats:
    """Return τ = 1/σ² of residuals, rounded up.

    >>> precisions([(1,)], {(1,): Fraction(4)})
    array([0.25])
    """
    return np.array([round_up(1 / sigma2[view]) for view in views])
