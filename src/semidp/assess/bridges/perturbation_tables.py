"""Perturbation tables of cell keys: the noise of every count, read from the files that statistical
offices use.

Two formats are read: that of the R package ptable (transition probabilities) and that of ONS (noise
by count and key). What a table publishes about a person is in `cell_keys`.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from attrs import evolve, field, frozen

from semidp.errors import DataError, InputError
from semidp.promise.exact import exact

SUPPRESSED = "suppressed"
"""What is published instead of a count below the threshold."""

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
        By count, the probability of each number that is added.
    repeats
        Whether rows 501 to 750 serve again for larger counts, and counts without a row get no noise
        (ONS); otherwise the last row serves for all larger counts (the R package ptable).
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
        """Read a perturbation table: that of the R package ptable, as it exports it, or that of
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
        semidp.errors.DataError: noise.csv is no perturbation table: it needs the columns i, j, p or
        pcv, ckey, pvalue
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
        raise DataError(f"{name} is no perturbation table: it needs the columns {needed}")

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
        """The largest count that needs to be looked at: beyond it everything repeats.

        Noise may carry a count below the threshold, so that counts are looked at up to the first
        period of which nothing is suppressed.
        """
        never_suppressed = self.threshold - self.reach[0] if self.threshold else 0
        last_row = _LAST if self.repeats else max(1, *self.rows)
        return max(last_row, never_suppressed + self._period - 1)

    @property
    def lasting(self) -> range:
        """The counts whose rows serve for all larger ones too."""
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
        """Return the law of what is added to a count.

        An empty cell has no records, so that the sum of their keys is 0 and its noise a constant,
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
        """Return the law of what is published of a count."""
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
