"""Cell keys: every count is published with noise from its row of a perturbation
table.

A record has a secret random key, a cell the sum of the keys of its records, and the noise is looked
up by count and key: the same records always get the same noise. One cell alone has an exact curve.
Cells of several tables share records, so for these only lower bounds on an attacker's success
are known. Perturbation tables are read in two formats: that of the R package ptable (transition
probabilities) and that of ONS (noise by count and key). `distinguishing` turns
distributions into curves.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

from attrs import evolve, field, frozen

from semidp.assess.distinguishing import (
    Law,
    advantage,
    corners_between,
    curve_between,
    curve_through,
    repeated_advantage,
)
from semidp.errors import DataError, InputError
from semidp.promise.exact import exact, round_up
from semidp.promise.tradeoff.polygons import PiecewiseLinear

SUPPRESSED = "suppressed"
"""The published value of a count below the threshold."""

TRANSITIONS = ("i", "j", "p")
"""Columns of a table of the R package ptable: count, published count, probability."""

LOOKUP = ("pcv", "ckey", "pvalue")
"""Columns of a table of ONS: count, cell key, noise."""

_LAST, _REPEATED = 750, 250  # ONS: counts above the last row use the last 250 rows again and again
_MOST_THRESHOLD = 10_000  # of the R package ptable, whose counts are compared one by one
_MOST_ROWS = 5_000_000
_MOST_KEYS = 1 << 20
_ROUNDING = Fraction(1, 10**4)  # by which printed probabilities of a row may miss 1

Noise = Mapping[int, Fraction]
"""The probability of each number that is added to a count."""


def _rows(value: Mapping[int, Noise]) -> dict[int, Noise]:
    return {count: value[count] for count in sorted(value)}


@frozen
class PerturbationTable:
    """The noise of every count.

    Parameters
    ----------
    rows
        For each count, the probability of each noise value.
    repeats
        Whether rows 501 to 750 are reused for larger counts, and counts without a row get no noise
        (ONS); otherwise the last row is used for all larger counts (the R package ptable).
    threshold
        Published counts below it are suppressed; at 0 none are, negative ones included.

    Examples
    --------
    >>> half = Fraction(1, 2)
    >>> table = PerturbationTable({0: {0: Fraction(1)}, 1: {-1: half, 1: half}})
    >>> table.law(7)[8], table.law(0)
    (Fraction(1, 2), {0: Fraction(1, 1)})
    """

    rows: Mapping[int, Noise] = field(converter=_rows, repr=False)
    repeats: bool = False
    threshold: int = 0

    @classmethod
    def from_csv(cls, text: str, name: str = "the table") -> "PerturbationTable":
        """Read a perturbation table, as exported by the R package ptable or in the format of
        ONS.

        The first has the columns i, j and p (and others), separated by semicolons, commas or tabs;
        the second pcv, ckey and pvalue, every key as likely as any other.

        >>> PerturbationTable.from_csv("i;j;p;v\\n0;0;1;0\\n1;0;0.5;-1\\n1;2;0.5;1\\n").law(1)
        {0: Fraction(1, 2), 2: Fraction(1, 2)}
        >>> PerturbationTable.from_csv(
        ...     "pcv,ckey,pvalue\\n9,0,-9\\n9,1,-9\\n10,0,0\\n10,1,0\\n"
        ... ).law(9)
        {0: Fraction(1, 1)}
        >>> PerturbationTable.from_csv("count,noise\\n1,0\\n", "noise.csv")
        Traceback (most recent call last):
        semidp.errors.DataError: noise.csv is not a perturbation table: it needs the columns i, j, p
        or pcv, ckey, pvalue
        """
        header, lines = _csv(text, name)
        if set(LOOKUP) <= set(header):
            return cls(_lookup_rows(_columns(header, lines, LOOKUP, name), name), repeats=True)
        if set(TRANSITIONS) <= set(header):
            if "type" in header:
                kinds = {line[header.index("type")] for line in lines}
                if not kinds <= {"all", ""}:
                    raise DataError(
                        f"{name} is for magnitudes (odd and even): give the table for counts"
                    )
            return cls(_transition_rows(_columns(header, lines, TRANSITIONS, name), name))
        needed = f"{', '.join(TRANSITIONS)} or {', '.join(LOOKUP)}"
        raise DataError(f"{name} is not a perturbation table: it needs the columns {needed}")

    def suppressing(self, threshold: int) -> "PerturbationTable":
        """Return the table with published counts below a threshold suppressed.

        >>> table = PerturbationTable.from_csv("pcv,ckey,pvalue\\n1,0,0\\n").suppressing(10)
        >>> table.law(1)
        {'suppressed': Fraction(1, 1)}
        """
        most = _LAST - _REPEATED if self.repeats else _MOST_THRESHOLD
        if not 0 <= threshold <= most:
            raise InputError(f"a threshold lies between 0 and {most}, not at {threshold}")
        return evolve(self, threshold=threshold)

    @property
    def last(self) -> int:
        """The largest count that matters: beyond it everything repeats.

        Noise may carry a count below the threshold, so counts are looked at up to the first
        period of which nothing is suppressed.
        """
        never_suppressed = self.threshold - self.reach[0] if self.threshold else 0
        last_row = _LAST if self.repeats else max(1, *self.rows)
        return max(last_row, never_suppressed + self._period - 1)

    @property
    def lasting(self) -> range:
        """The counts whose rows are also used for all larger ones."""
        return range(self.last + 1 - self._period, self.last + 1)

    @property
    def _period(self) -> int:
        return _REPEATED if self.repeats else 1

    @property
    def reach(self) -> tuple[int, int]:
        """The least and the largest noise."""
        noises = [noise for row in self.rows.values() for noise in row]
        return min(noises), max(noises)

    def noise(self, count: int) -> Noise:
        """Return the distribution of the noise of a count.

        An empty cell has no records, so the sum of their keys is 0 and its noise a constant,
        whatever row 0 says: the first number of the row.
        """
        nothing = {0: Fraction(1)}
        if self.repeats and count > _LAST:
            count = (count - 1) % _REPEATED + _LAST - _REPEATED + 1
        if not self.repeats:
            count = min(count, max(self.rows))
        row = self.rows.get(count, nothing)
        if count:
            return row
        # no records, no keys: always the first number of the row
        return {next(iter(row)): Fraction(1)}

    def law(self, count: int) -> dict[Any, Fraction]:
        """Return the distribution of the published value of a count."""
        law: dict[Any, Fraction] = {}
        for added, probability in self.noise(count).items():
            value = count + added
            hidden = self.threshold > 0 and value < self.threshold
            published: Any = SUPPRESSED if hidden else value
            law[published] = law.get(published, Fraction(0)) + probability
        return law


def _csv(text: str, name: str) -> tuple[list[str], list[list[str]]]:
    """Header and lines of a file whose fields are separated by semicolons, tabs or commas."""
    # spreadsheets put a mark of byte order in front
    text = text.lstrip("\ufeff")
    first = text.partition("\n")[0]
    delimiter = max(";\t,", key=first.count)
    try:
        reader = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True)
        table = [row for row in reader if row]
    except csv.Error:
        raise DataError(f"{name} is not a CSV file") from None
    if len(table) < 2:
        raise DataError(f"{name} holds no row of a perturbation table")
    if len(table) > _MOST_ROWS:
        raise DataError(
            f"{name} has more than {_MOST_ROWS:,} rows: give the table for counts alone"
        )
    header = [cell.strip() for cell in table[0]]
    lines = []
    for number, row in enumerate(table[1:], 2):
        if len(row) != len(header):
            raise DataError(f"row {number} of {name} has another number of fields than its header")
        if delimiter == ";":
            # then a comma is a decimal point
            row = [cell.replace(",", ".") for cell in row]
        lines.append([cell.strip() for cell in row])
    return header, lines


def _columns(
    header: Sequence[str], lines: Sequence[Sequence[str]], names: Sequence[str], name: str
) -> Iterator[tuple[Fraction, ...]]:
    """Iterate over the rows of some columns, as numbers."""
    places = [header.index(column) for column in names]
    for number, line in enumerate(lines, 2):
        try:
            yield tuple(_number(line[place]) for place in places)
        except InputError:
            columns = ", ".join(names)
            raise DataError(f"row {number} of {name} has no number in {columns}") from None


@lru_cache(maxsize=1 << 16)
def _number(text: str) -> Fraction:
    return exact(text)


def _transition_rows(transitions: Iterable[tuple[Fraction, ...]], name: str) -> dict[int, Noise]:
    """Noise by count, from rows of count, published count and probability."""
    rows: dict[int, dict[int, Fraction]] = {}
    for true, published, probability in transitions:
        if true.denominator > 1 or published.denominator > 1 or true < 0:
            raise DataError(
                f"{name} has counts that are not whole numbers: give the table for counts"
            )
        if not 0 <= probability <= 1:
            raise DataError(f"{name} has a probability that does not lie between 0 and 1")
        row = rows.setdefault(int(true), {})
        added = int(published - true)
        if added in row:
            raise DataError(
                f"{name} gives the probability of one published count twice for the count {true}"
            )
        row[added] = probability
    if sorted(rows) != list(range(len(rows))):
        raise DataError(f"{name} needs a row for every count from 0 to its largest")
    for count, row in rows.items():
        total = sum(row.values(), Fraction(0))
        if abs(total - 1) > _ROUNDING:
            raise DataError(f"the probabilities of the count {count} in {name} do not add up to 1")
        # they are printed with some eight digits
        rows[count] = {
            added: probability / total for added, probability in row.items() if probability
        }
    return dict(rows)


def _lookup_rows(lookups: Iterable[tuple[Fraction, ...]], name: str) -> dict[int, Noise]:
    """Noise by count, from rows of count, cell key and noise; a key without a row gets no noise."""
    by_count: dict[int, dict[int, int]] = {}
    keys = 1
    for numbers in lookups:
        negative = numbers[0] < 0 or numbers[1] < 0
        if negative or any(number.denominator > 1 for number in numbers):
            raise DataError(f"{name} has a count, a key or a noise that is not a whole number")
        count, key, added = map(int, numbers)
        row = by_count.setdefault(count, {})
        if key in row:
            raise DataError(f"{name} gives the noise of the count {count} and the key {key} twice")
        row[key] = added
        keys = max(keys, key + 1)
    if keys > _MOST_KEYS:
        raise DataError(f"{name} has keys beyond a million: they are 0 to 255 or 0 to 4095")
    rows: dict[int, Noise] = {}
    for count, noises in by_count.items():
        if count == 0:
            rows[0] = {noises.get(0, 0): Fraction(1)}
            continue
        times = Counter(noises.values())
        times[0] += keys - len(noises)
        rows[count] = {added: Fraction(number, keys) for added, number in times.items() if number}
    return rows


_TRIED = 5  # counts at which many cells are attacked: those that differ most


@frozen
class CellKeyAssessment:
    """What a perturbation table reveals about one person.

    Everything holds if keys are secret, uniform and independent. `curve` is about one cell and
    nothing else, `replaced` about one table without its margins, and `repeated` is a lower bound
    for several cells, for which there is no guarantee.
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
        """Return the distributions of the published values of a count and of one more."""
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
        """The largest advantage from a table about which of its cells a person is in:
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
        """The count that is easiest to tell from one more."""
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
        """The counts that can be told from one more with certainty: no published value is common to
        both.
        """
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
        has, so their keys are independent. A count of 0 is left out: cells that hold the
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
        """Return a lower bound on the attacker's advantage from so many cells of one count."""
        return repeated_advantage(*self.pair(count), self.cells)

    @property
    def empty_cell(self) -> Any:
        """The published value of an empty cell, always the same."""
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
    """Return what a perturbation table reveals about one person, in one cell and in several.

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
