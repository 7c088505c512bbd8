"""What cell keys publish: every count plus noise from the row of a perturbation table that belongs
to it.

A record has a secret random key, a cell the sum of the keys of its records, and the noise is looked
up by count and key: the same records always get the same noise. One cell alone has an exact curve.
Cells of several tables share records, so that there it is only known what an attacker can at least
do. The tables are in `perturbation_tables`, how laws become curves in `distinguishing`.
"""

from fractions import Fraction
from functools import cached_property
from typing import Any

from attrs import frozen

from semidp.assess.bridges.distinguishing import (
    Law,
    advantage,
    corners_between,
    curve_between,
    curve_through,
    repeated_advantage,
)
from semidp.assess.bridges.perturbation_tables import PerturbationTable
from semidp.errors import InputError
from semidp.promise.exact import round_up
from semidp.promise.tradeoff.piecewise_linear import PiecewiseLinear

_TRIED = 5  # counts at which many cells are attacked: those that differ most


@frozen
class CellKeyAssessment:
    """What a perturbation table publishes about one person.

    Everything holds if keys are secret, uniform and independent. `curve` is about one cell and
    nothing else, `replaced` about one table without its margins, and `repeated` is what an attacker
    at least gains from several cells: there is no guarantee for them.
    """

    table: PerturbationTable
    cells: int

    @cached_property
    def _counts(self) -> range:
        return range(self.table.last + 1)

    @cached_property
    def _laws(self) -> list[dict[Any, Fraction]]:
        # the last count is compared with one more, too
        counts = range(self.table.last + 2)
        return [self.table.law(count) for count in counts]

    def pair(self, count: int) -> tuple[Law, Law]:
        """Return the laws of what is published of a count and of one more."""
        return self._laws[count], self._laws[count + 1]

    @cached_property
    def curve(self) -> PiecewiseLinear:
        """The tradeoff function of one cell for a person more or less: the greatest below that of
        every count.
        """
        corners = []
        for count in self._counts:
            first, second = self.pair(count)
            corners += corners_between(first, second)
            corners += corners_between(second, first)
        return curve_through(corners)

    @property
    def replacement_advantage(self) -> float:
        """The most that anybody gains from a table about a person in another cell of it:
        ``1 - (1 - advantage)²``.

        One cell loses a record and another gains it, and their noises are independent. What two
        laws have in common is at least the product of what their parts have in common, since
        ``min(ab, cd) >= min(a, c) min(b, d)``.
        """
        common = 1 - Fraction(max(self.advantages))
        return round_up(1 - common**2)

    @cached_property
    def advantages(self) -> list[float]:
        """The advantage of the best attacker who sees one cell, for each count against one more."""
        return [advantage(curve_between(*self.pair(count))) for count in self._counts]

    @property
    def worst(self) -> int:
        """The count that is best told from one more."""
        return self.advantages.index(max(self.advantages))

    @property
    def large(self) -> int:
        """Of the counts whose rows serve for all larger ones, the one that is best told from one
        more.
        """
        counts = self.table.lasting
        return max(counts, key=lambda count: self.advantages[count])

    @cached_property
    def distinguishable_counts(self) -> list[int]:
        """The counts that are told from one more for certain: nothing is published of both."""
        apart = []
        for count in self._counts:
            first, second = self.pair(count)
            if not set(first) & set(second):
                apart.append(count)
        return apart

    def certain(self, count: int) -> float:
        """Return how likely the published number settles it, for a count or for one more, whichever
        is likelier.
        """
        first, second = self.pair(count)
        return float(max(_outside(first, second), _outside(second, first)))

    @cached_property
    def worst_repetition(self) -> tuple[int, float]:
        """The count at which so many cells reveal most of those tried, and the advantage that an
        attacker at least has.

        The cells have equally many records and share one person; each has a record that no other
        has, so that their keys are independent. A count of 0 is left out: cells that hold the
        person alone are one cell.
        """
        # cells that hold the person alone are one and the same cell
        positive = self._counts[1:]
        ordered = sorted(positive, key=lambda count: -self.advantages[count])
        best, most = ordered[0], 0.0
        for count in ordered[:_TRIED]:
            gained = self.repetition_advantage(count)
            if gained > most:
                best, most = count, gained
        return best, most

    def repetition_advantage(self, count: int) -> float:
        """Return what an attacker at least gains from so many cells of one count."""
        return repeated_advantage(*self.pair(count), self.cells)

    @property
    def empty_cell(self) -> Any:
        """What is published of an empty cell, always the same."""
        (value,) = self._laws[0]
        return value

    @cached_property
    def hidden(self) -> list[int]:
        """The positive counts that may be published as an empty cell is."""
        empty = self.empty_cell
        return [count for count in self._counts[1:] if empty in self._laws[count]]

    @property
    def detection_probability(self) -> float:
        """How likely a count of 1 is published as something that no empty cell shows."""
        hidden = self._laws[1].get(self.empty_cell, Fraction(0))
        return float(1 - hidden)


def _outside(law: Law, other: Law) -> Fraction:
    """Probability under one law of what the other never gives."""
    masses = [mass for value, mass in law.items() if value not in other]
    return sum(masses, Fraction(0))


def assess_cell_keys(table: PerturbationTable, cells: int = 1) -> CellKeyAssessment:
    """Return what a perturbation table publishes about one person, in one cell and in several.

    Parameters
    ----------
    table
        The perturbation table.
    cells
        How many published cells share the person.

    Examples
    --------
    >>> rule = "pcv,ckey,pvalue\\n" + "".join(f"{count},0,{-count}\\n" for count in range(1, 10))
    >>> assessment = assess_cell_keys(PerturbationTable.from_csv(rule), 40)
    >>> assessment.distinguishable_counts[:3], assessment.curve.delta(0)
    ([9, 10, 11], 1.0)
    """
    if cells < 1:
        raise InputError(f"a person is counted in at least 1 cell, not {cells}")
    return CellKeyAssessment(table, cells)
