"""Calendar periods, and the sets of periods in which one person may have records.

A series of releases is about one person in an *admissible* set of periods. The set is declared,
not read: at most L periods; one window of L calendar periods; a listed pattern such as 4 in, 8 out,
4 in; or any periods.
"""

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date

from attrs import frozen

from semidp.errors import InputError
from semidp.promise.documents import Encodable

_FORMS = {
    "year": (r"(\d{4})", "2026"),
    "quarter": (r"(\d{4})-?Q([1-4])", "2026Q3"),
    "month": (r"(\d{4})-(0[1-9]|1[0-2])", "2026-07"),
    "week": (r"(\d{4})-?W(0[1-9]|[1-4]\d|5[0-3])", "2026-W31"),
}
UNITS = tuple(_FORMS)
"""The units of a series."""
EXAMPLES = {unit: example for unit, (_, example) in _FORMS.items()}
_PER_YEAR = {"year": 1, "quarter": 4, "month": 12}
_MOST_PERIODS = 1000  # of one pooled release, and of a pattern


def read_period(text: str, unit: str) -> int:
    """Return the number of a period; consecutive periods have consecutive numbers.

    >>> read_period("2026Q3", "quarter") - read_period("2025Q4", "quarter")
    3
    >>> read_period("2026-W01", "week") - read_period("2025-W52", "week")
    1
    """
    pattern, example = _FORMS[unit]
    match = re.fullmatch(pattern, text.strip(), re.IGNORECASE)
    if match is None:
        raise InputError(f"{text!r} is not a {unit}: write it as {example}")
    year = int(match[1])
    if not 1 <= year < 9999:
        raise InputError(f"{text!r} is not in the years 0001 to 9998")
    if unit == "week":
        try:
            return date.fromisocalendar(year, int(match[2]), 1).toordinal() // 7
        except ValueError:
            raise InputError(f"{text!r} is not a week: {year} has no such week") from None
    within = int(match[2]) - 1 if len(match.groups()) > 1 else 0
    return year * _PER_YEAR[unit] + within


def format_period(number: int, unit: str) -> str:
    """Name a period.

    >>> [
    ...     format_period(read_period(text, unit), unit)
    ...     for text, unit in (("2026Q3", "quarter"), ("2026-07", "month"), ("2026-W31", "week"))
    ... ]
    ['2026Q3', '2026-07', '2026-W31']
    """
    if unit == "week":
        year, week, _ = date.fromordinal(number * 7 + 1).isocalendar()
        return f"{year}-W{week:02}"
    year, within = divmod(number, _PER_YEAR[unit])
    suffix = {"year": "", "quarter": f"Q{within + 1}", "month": f"-{within + 1:02}"}[unit]
    return f"{year:04}{suffix}"


@frozen(order=True)
class Periods(Encodable):
    """The periods that the data of a release are about.

    Parameters
    ----------
    unit
        Unit of the series.
    numbers
        One period, or several whose records were pooled.
    revision
        Number of the correction of these data; 0 as first collected.

    Examples
    --------
    >>> str(Periods.from_text("2026Q1..2026Q4", "quarter"))
    '2026Q1..2026Q4'
    >>> (
    ...     str(Periods.from_text("2026Q1r2", "quarter")),
    ...     Periods.from_text("2026Q1r2", "quarter").revision,
    ... )
    ('2026Q1r2', 2)
    """

    unit: str
    numbers: tuple[int, ...]
    revision: int = 0

    @classmethod
    def from_any(cls, text: str) -> "Periods":
        """Read the periods that a release names, in any unit; refuse other text.

        >>> str(Periods.from_any("2026-07")), Periods.from_any("2026-07").unit
        ('2026-07', 'month')
        """
        for unit in UNITS:
            with contextlib.suppress(InputError):
                return cls.from_text(text, unit)
        examples = ", ".join(EXAMPLES.values())
        raise InputError(
            f"{text[:40]!r} is not a period: write {examples}, or 2026Q1..2026Q4 for pooled data"
        )

    @classmethod
    def from_text(cls, text: str, unit: str) -> "Periods":
        """Read ``2026Q3``, ``2026Q1..2026Q4`` for pooled data, ``2026Q3r1`` for corrected data."""
        body, revision = text.strip(), 0
        match = re.fullmatch(r"(.*\d)r([1-9]\d{0,3})", body)
        if match:
            body, revision = match[1], int(match[2])
        first, between, last = body.partition("..")
        start = read_period(first, unit)
        end = read_period(last, unit) if between else start
        if end < start:
            raise InputError(f"{text!r} ends before it begins: write the earlier {unit} first")
        if end - start >= _MOST_PERIODS:
            raise InputError(f"{text!r} has {end - start + 1:,} periods; at most {_MOST_PERIODS:,}")
        return cls(unit, tuple(range(start, end + 1)), revision)

    @property
    def is_pooled(self) -> bool:
        """Whether the records of several periods were pooled."""
        return len(self.numbers) > 1

    @property
    def time_period(self) -> str:
        """The periods in SDMX notation: a period, or the first day and the length of several.

        >>> [
        ...     Periods.from_any(text).time_period
        ...     for text in ("2026Q3r1", "2026-07", "2026-W31", "2026Q2..2026Q4", "2026..2027")
        ... ]
        ['2026-Q3', '2026-07', '2026-W31', '2026-04-01/P9M', '2026-01-01/P24M']
        """
        first, count = self.numbers[0], len(self.numbers)
        if not self.is_pooled:
            return format_period(first, self.unit).replace("Q", "-Q")
        if self.unit == "week":
            return f"{date.fromordinal(first * 7 + 1)}/P{7 * count}D"
        months = 12 // _PER_YEAR[self.unit]
        year, within = divmod(first, _PER_YEAR[self.unit])
        return f"{date(year, within * months + 1, 1)}/P{months * count}M"

    def __str__(self) -> str:
        name = format_period(self.numbers[0], self.unit)
        if self.is_pooled:
            name = f"{name}..{format_period(self.numbers[-1], self.unit)}"
        return f"{name}r{self.revision}" if self.revision else name


@frozen
class Attendance(Encodable):
    """The sets of periods in which one person may have records: declared, not read from data.

    Parameters
    ----------
    most
        The largest number of periods; None if there is no bound.
    consecutive
        Whether all of them lie within one window of `most` calendar periods, gaps included.
    pattern
        Lengths of the stretches in and out of a panel, such as ``(4, 8, 4)``: the periods of a
        person are some of these, from any start on.

    Examples
    --------
    >>> window = Attendance(2, consecutive=True)
    >>> [sorted(each) for each in window.list_largest_sets([1, 2, 4])]
    [[1, 2], [2], [4]]
    >>> panel = Attendance(pattern=(1, 1, 1))
    >>> [sorted(each) for each in panel.list_largest_sets([1, 2, 3])]
    [[1], [2], [1, 3], [2], [3]]
    """

    most: int | None = None
    consecutive: bool = False
    pattern: tuple[int, ...] = ()

    def __attrs_post_init__(self) -> None:
        if self.pattern and (self.most is not None or self.consecutive):
            raise InputError("a pattern says how many periods a person is in: give nothing besides")
        if self.pattern and (len(self.pattern) % 2 == 0 or min(self.pattern) < 1):
            raise InputError("a pattern is periods in, out, in, …, such as 4-8-4")
        if sum(self.pattern) > _MOST_PERIODS:
            raise InputError(f"a pattern is of at most {_MOST_PERIODS:,} periods in and out")
        if self.most is not None and self.most < 1:
            raise InputError(f"a person is in at least 1 period, not {self.most}")
        if self.consecutive and self.most is None:
            raise InputError("a window needs its length: say in how many periods a person may be")

    @property
    def offsets(self) -> tuple[int, ...]:
        """The periods of a pattern, counted from its first."""
        ends = tuple(itertools.accumulate(self.pattern))
        stretches = zip((0, *ends[1::2]), ends[0::2], strict=True)
        return tuple(itertools.chain.from_iterable(range(*stretch) for stretch in stretches))

    @property
    def bound(self) -> int | None:
        """The largest number of periods of a person; None if there is no bound."""
        return len(self.offsets) if self.pattern else self.most

    def list_largest_sets(self, periods: Iterable[int]) -> Iterator[frozenset[int]]:
        """Yield admissible sets among some periods; every other admissible set is in one of them.

        A person in any `most` periods has as many sets as there are choices.
        """
        in_order = sorted({*periods})
        if self.pattern:
            starts = sorted({period - offset for period in in_order for offset in self.offsets})
            for start in starts:
                yield frozenset(start + offset for offset in self.offsets).intersection(in_order)
        elif self.consecutive:
            for start in in_order:
                end = start + (self.most or 0)
                yield frozenset(period for period in in_order if start <= period < end)
        elif self.most is None or self.most >= len(in_order):
            yield frozenset(in_order)
        else:
            yield from map(frozenset, itertools.combinations(in_order, self.most))

    def count_overlap(self, numbers: Sequence[int]) -> int:
        """Return in how many of some periods one person can be.

        >>> (
        ...     Attendance(8, consecutive=True).count_overlap(range(4)),
        ...     Attendance(2).count_overlap(range(4)),
        ... )
        (4, 2)
        """
        return self.find_largest_sum(dict.fromkeys(numbers, 1))

    def find_largest_sum(self, amounts: Mapping[int, int]) -> int:
        """Return the largest sum over the periods of one person, given the amount of each period.

        >>> Attendance(2).find_largest_sum({1: 3, 2: 1, 4: 2})
        5
        """
        if not self.pattern and not self.consecutive:
            # not by listing choices: 52 weeks have too many
            return sum(sorted(amounts.values(), reverse=True)[: self.most])
        sets = self.list_largest_sets(amounts)
        return max(sum(amounts[number] for number in each) for each in sets)

    def describe(self, unit: str) -> str:
        """Describe in which periods one person may be.

        >>> Attendance(8, consecutive=True).describe("quarter")
        'up to 8 consecutive quarters'
        >>> Attendance(pattern=(4, 8, 4)).describe("month")
        'up to 8 months of a 4-8-4 panel'
        """
        if self.bound is None:
            return f"all {unit}s"
        plural = unit if self.bound == 1 else f"{unit}s"
        if self.pattern:
            return f"up to {self.bound} {plural} of a {'-'.join(map(str, self.pattern))} panel"
        kind = "consecutive " if self.consecutive and self.bound > 1 else ""
        return f"up to {self.bound} {kind}{plural}"
