"""The notation of the values of a column: dates by month, numbers with a decimal comma, whether it
has some value; and their type in conditions.

A reading is declared and part of the plan. It becomes a DuckDB expression; values that do not fit
are refused.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from itertools import pairwise

from attrs import frozen

from semidp.errors import InputError
from semidp.promise.exact import format_value
from semidp.promise.schema.outcome import ALL_LEVEL, ANSWERS
from semidp.publish.sources.conditions import DECIMAL, INTEGER, TEXT

DATES = {"day": "%Y-%m-%d", "month": "%Y-%m", "year": "%Y"}
"""How dates are written at each depth; quarters are put together otherwise."""
NUMBERS = {
    "1.234,5": (".", ","),
    "1,234.5": (",", "."),
    "1 234,5": (" ", ","),
    "1'234.5": ("'", "."),
    "1234,5": ("", ","),
}
"""Ways to write numbers: what separates thousands, and what decimals."""
EQUAL = "equal"
"""The reading of a column such as "ok=Y": 1 if the column ok is Y, and 0 if it is something
else."""

EQUAL_OR_MISSING = "equal or missing"
"""The same, and 0 if the column is missing."""
ANSWERED = "answered"
"""The reading of a column such as "pay answered": yes if pay has a value, and no if it is
missing."""
ANSWERED_AS_ONE = "answered as 1"
"""The same as a number: 1 if pay has a value, and 0 if it is missing."""
EVERYONE = "everyone"
"""The reading of the column `ALL_RECORDS`, which the data lack: one level, the same for every
record."""
MISSING_AS = "missing as "
"""How the reading begins that takes another value for a missing one: the lower bound of an
outcome. One of `NUMBERS` and a comma may come before it."""

DATES_FROM = "dates from "
"""How the reading begins that puts dates into bins, such as "dates from 1990-01-01,2000-01-01"."""

KINDS = (INTEGER, DECIMAL, TEXT)
"""The type of the values in a condition or an aggregate; the values stay unchanged."""

_QUARTER = "quarter"
_VALUES = (EQUAL, EQUAL_OR_MISSING)
_ANSWERS = (ANSWERED, ANSWERED_AS_ONE)


@frozen
class ColumnReading:
    """How the values of one column are read.

    Parameters
    ----------
    column
        The column; "ok=Y" for one that says whether ok is Y.
    how
        One of `DATES`, "quarter", one of `NUMBERS`, or `EQUAL`.

    Examples
    --------
    >>> ColumnReading("pay", "1.234,5").source_column, ColumnReading("ok=Y", "equal").source_column
    ('pay', 'ok')
    """

    column: str
    how: str

    def __attrs_post_init__(self) -> None:
        stands_in = False
        if MISSING_AS in self.how:
            written, number = self._missing
            is_number = bool(re.fullmatch(r"-?[\d.eE+-]+", number))
            stands_in = is_number and written in ("", *NUMBERS, *KINDS)
        if self.how.startswith(DATES_FROM):
            date_bins(self.column, _date_edges(self.how))
            return
        ways = (*DATES, _QUARTER, *NUMBERS, *KINDS)
        if self.how not in {*ways, *_VALUES, *_ANSWERS, EVERYONE} and not stands_in:
            raise InputError(
                f"the column {self.column!r} can be read as {', '.join(ways)}, not {self.how!r}"
            )
        if self.how in _VALUES and not all(self.column.partition("=")):
            raise InputError(f"{self.column!r} names no value of a column: write it as ok=Y")

    @property
    def _missing(self) -> tuple[str, str]:
        """How values are written, if that is said, and the number that stands for a missing
        one.
        """
        written, _, number = self.how.rpartition(MISSING_AS)
        return written.removesuffix(", "), number

    @property
    def source_column(self) -> str:
        """The column of the data that it reads; empty if it reads none."""
        if self.how == EVERYONE:
            return ""
        if self.how in _VALUES:
            return self.column.partition("=")[0]
        return self.column.removesuffix(f" {ANSWERED}") if self.how in _ANSWERS else self.column

    @property
    def adds(self) -> bool:
        """Whether it adds a column instead of replacing one."""
        return self.how in (*_VALUES, *_ANSWERS, EVERYONE)

    @property
    def keeps_values(self) -> bool:
        """Whether the values stay unchanged, and only conditions use it."""
        return self.how in KINDS

    @property
    def kind(self) -> str | None:
        """The type of the values in conditions; None if not declared."""
        written = self._missing[0] if MISSING_AS in self.how else self.how
        if written in KINDS or not written:
            return written or None
        if written in (*_VALUES, ANSWERED_AS_ONE):
            return INTEGER
        return DECIMAL if written in NUMBERS else TEXT

    def expression(self, name: str) -> str:
        """Return the values as an expression of DuckDB; `name` is the quoted column. NULL where
        they do not fit.
        """
        if self.how == EVERYONE:
            return _quote_text(ALL_LEVEL)
        text = f"trim(CAST({name} AS VARCHAR))"
        # A number of a data frame that is none is missing, too.
        missing = f"({name} IS NULL OR coalesce(isnan(TRY_CAST({text} AS DOUBLE)), false))"
        if self.how == ANSWERED:
            no, yes = map(_quote_text, ANSWERS)
            return f"CASE WHEN {missing} THEN {no} ELSE {yes} END"
        if self.how == ANSWERED_AS_ONE:
            return f"CASE WHEN {missing} THEN 0 ELSE 1 END"
        if self.how in _VALUES:
            value = _quote_text(self.column.partition("=")[2])
            otherwise = "ELSE 0 " if self.how == EQUAL_OR_MISSING else ""
            return (
                f"CASE WHEN {name} IS NOT NULL THEN CAST({text} = {value} AS INTEGER)"
                f" {otherwise}END"
            )
        if MISSING_AS in self.how:
            written, number = self._missing
            stands_in = _quote_text(number)
            if written in NUMBERS:
                value = ColumnReading(self.column, written).expression(name)
                return f"CASE WHEN {missing} THEN {stands_in} ELSE {value} END"
            # Truth values of a proportion become zeros and ones, so the lower bound stands
            # next to them. A data frame with missing values holds 1.0 and 0.0.
            truth = (
                f"WHEN lower({text}) IN ('true', '1.0') THEN '1'"
                f" WHEN lower({text}) IN ('false', '0.0') THEN '0'"
            )
            return f"CASE WHEN {missing} THEN {stands_in} {truth} ELSE {text} END"
        if self.how in NUMBERS:
            thousands, decimal = NUMBERS[self.how]
            plain = f"replace({text}, {_quote_text(thousands)}, '')" if thousands else text
            fits = f"regexp_full_match({text}, {_quote_text(_number(thousands, decimal))})"
            return f"CASE WHEN {fits} THEN replace({plain}, {_quote_text(decimal)}, '.') END"
        # 31.1.2026 has one reading; 1/2/2026 has two, and fits none.
        moment = f"coalesce(TRY_CAST({text} AS TIMESTAMP), try_strptime({text}, '%d.%m.%Y'))"
        if self.how.startswith(DATES_FROM):
            return _write_bins(moment, _date_edges(self.how))
        if self.how == _QUARTER:
            return f"CAST(year({moment}) AS VARCHAR) || '-Q' || CAST(quarter({moment}) AS VARCHAR)"
        return f"strftime({moment}, {_quote_text(DATES[self.how])})"

    def misfit(self) -> str:
        """Say that some values do not fit."""
        written = self._missing[0] if MISSING_AS in self.how else self.how
        if written in NUMBERS:
            return (
                f"the column {self.column!r} holds values that are not numbers written as"
                f" {written}:"
                " mend them, or say which codes stand for missing values (⟨na NA,-9⟩)"
            )
        return (
            f"the column {self.column!r} holds values that are not dates: write them as 2026-01-31"
            " or 31.1.2026"
        )


def both_readings(column: str, first: str | None, second: str) -> str:
    """Return the reading of a column that is read in two ways; refuse what does not go together.

    >>> both_readings("pay", "1.234,5", "missing as 0")
    '1.234,5, missing as 0'
    >>> both_readings("pay", "1.234,5, missing as 0", "missing as 0")
    '1.234,5, missing as 0'
    >>> both_readings("pay", "month", "missing as 0")
    Traceback (most recent call last):
    semidp.errors.InputError: 'pay' is to be read in two ways, month and missing as 0: keep one
    """
    if first is None:
        return second
    if first in (*NUMBERS, *KINDS) and second.startswith(MISSING_AS):
        return f"{first}, {second}"
    if first == second or first.endswith(f", {second}"):
        return first
    raise InputError(f"{column!r} is to be read in two ways, {first} and {second}: keep one")


def check_readings(
    value: Mapping[str, str] | Iterable[tuple[str, str]],
) -> tuple[tuple[str, str], ...]:
    """Return how columns are read, in order; refuse what is no reading.

    >>> check_readings({"admitted": "month"})
    (('admitted', 'month'),)
    >>> check_readings({"admitted": "decade"})
    Traceback (most recent call last):
    semidp.errors.InputError: the column 'admitted' can be read as day, month, year, quarter,
    1.234,5, ... not 'decade'
    """
    pairs = list(value.items() if isinstance(value, Mapping) else value)
    if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
        raise InputError(
            'how columns are read is a mapping such as {"admitted": "month"}, not'
            f" {format_value(value)}"
        )
    checked = [ColumnReading(str(column), str(how)) for column, how in pairs]
    return tuple((reading.column, reading.how) for reading in checked)


def declared_kinds(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return what conditions take columns for, where a reading says so.

    >>> declared_kinds([("age", "integer"), ("pay", "1.234,5"), ("admitted", "month")])
    {'age': 'integer', 'pay': 'decimal', 'admitted': 'text'}
    """
    readings = [ColumnReading(column, how) for column, how in pairs]
    return {reading.column: reading.kind for reading in readings if reading.kind is not None}


def are_dates(edges: Iterable[object]) -> bool:
    """Whether one of the edges of bins is written as a date or a month, and not as a number.

    >>> are_dates(["1990-01-01", "2000-01"]), are_dates(["0", "18"]), are_dates([-5, 0])
    (True, False, False)
    """
    return any(isinstance(edge, date) or re.match(r"\d{4}-\d", str(edge)) for edge in edges)


def date_bins(column: str, edges: Iterable[object]) -> tuple[list[str], str]:
    """Return the levels of dates in bins, each from one date to before the next, and how the column
    is read. The last bin ends with the last date, or with the last month.

    Parameters
    ----------
    column
        What the column is called.
    edges
        Dates such as 1990-01-31, or months, which begin on their first day; -inf may come first,
        and inf last.

    Examples
    --------
    >>> date_bins("birth", ["1990-01", "2000-01-01", "inf"])
    (['1990-01 to <2000-01-01', '2000-01-01 and over'], 'dates from 1990-01,2000-01-01')
    >>> date_bins("birth", ["1990-01", "2000-01-01", "2009-12"])
    (['1990-01 to <2000-01-01', '2000-01-01 to 2009-12'],
    'dates from 1990-01,2000-01-01 to 2009-12')
    """
    texts = [str(edge).strip() for edge in edges]
    *starts, end = texts
    how = f"{DATES_FROM}{','.join(starts)}" + ("" if end == _NO_END else f"{_TO}{end}")
    days = []
    for position, text in enumerate(texts):
        if (position == 0 and text == _NO_START) or (text == _NO_END and text is texts[-1]):
            continue
        try:
            days.append(_first_day(text))
        except ValueError:
            raise InputError(
                f"the bins of {column!r} are dates such as 1990-01-01 or months such as 1990-01,"
                f" not {text[:40]!r}"
            ) from None
    if not days or not starts:
        raise InputError(
            f"the bins of {column!r} must be two or more dates such as 1990-01-01, 2000-01-01 (or"
            " inf last, for no upper end)"
        )
    if any(earlier >= later for earlier, later in pairwise(days)):
        raise InputError(f"the dates of the bins of {column!r} must be increasing")
    labels = [label for label, _ in _date_bins(texts)]
    if texts[0] != _NO_START:
        # What lies before the first date is no level, and neither is what lies after the last.
        labels = labels[1:]
    return labels if end == _NO_END else labels[:-1], how


_NO_START, _NO_END = "-inf", "inf"
_TO = " to "  # between the first dates of bins and the last date of the last one, where it has one


def _first_day(text: str) -> date:
    """The first day of a month, or a day itself."""
    return date.fromisoformat(f"{text}-01" if len(text) == len("1990-01") else text)


def _date_edges(how: str) -> list[str]:
    """The edges of a reading of dates in bins, as `date_bins` takes them."""
    starts, _, end = how.removeprefix(DATES_FROM).partition(_TO)
    return [*starts.split(","), end or _NO_END]


def _date_bins(texts: list[str]) -> list[tuple[str, date | None]]:
    """Return the label of what lies before the first date, of each bin, and of what lies after the
    last one, each with the day before which it ends.
    """
    *starts, end = [text for text in texts if text != _NO_START]
    bins: list[tuple[str, date | None]] = []
    if starts:
        bins.append((f"below {starts[0]}", _first_day(starts[0])))
    bins += [(f"{first} to <{last}", _first_day(last)) for first, last in pairwise(starts)]
    if end == _NO_END:
        return [*bins, (f"{starts[-1]} and over", None)]
    # A month that ends a bin is in it as a whole, and so is a day.
    is_month = len(end) == len("1990-01")
    after = _first_day(end) + timedelta(days=31 if is_month else 1)
    closed = f"{starts[-1]} to {end}" if starts else f"at most {end}"
    return [*bins, (closed, after.replace(day=1) if is_month else after), (f"after {end}", None)]


def _write_bins(moment: str, texts: list[str]) -> str:
    """Return the label of the bin of a moment as an expression; NULL for what is no date."""
    cases = []
    for label, end in _date_bins(texts):
        is_in = f"{moment} IS NOT NULL" if end is None else f"{moment} < TIMESTAMP '{end}'"
        cases.append(f"WHEN {is_in} THEN {_quote_text(label)}")
    return f"CASE {' '.join(cases)} END"


def months(first: str, last: str) -> list[str]:
    """Return all months, quarters, years or whole numbers from one to another, as a list of levels.

    >>> months("2025-11", "2026-02"), months("2025-Q4", "2026-Q1"), months("2024", "2026")
    (['2025-11', '2025-12', '2026-01', '2026-02'], ['2025-Q4', '2026-Q1'], ['2024', '2025', '2026'])
    >>> months("2025Q4", "2026Q1")  # as --period writes them
    ['2025-Q4', '2026-Q1']
    """
    # Months and quarters are counted from the year 0 on; years have one part.
    for pattern, parts, written in _STEPS:
        ends = [re.fullmatch(pattern, text) for text in (first, last)]
        if all(ends):
            low, high = (
                int(end[1]) * parts + (int(end[2]) - 1 if parts > 1 else 0) for end in ends if end
            )
            if not low <= high < low + _MOST_STEPS:
                break
            return [
                written.format(step // parts, step % parts + 1) for step in range(low, high + 1)
            ]
    raise InputError(
        f"{first}..{last} is not a range of months (2025-11..2026-02), quarters (2025-Q4..2026-Q1)"
        " or years"
    )


_MOST_STEPS = 10_000
_STEPS = (
    (r"(\d{4})-(0[1-9]|1[0-2])", 12, "{:04d}-{:02d}"),
    (r"(\d{4})-?Q([1-4])", 4, "{:04d}-Q{}"),
    (r"(\d{1,9})()", 1, "{}"),
)


def _number(thousands: str, decimal: str) -> str:
    whole = rf"\d{{1,3}}({re.escape(thousands)}\d{{3}})+|\d+" if thousands else r"\d+"
    return rf"[+-]?({whole})({re.escape(decimal)}\d+)?"


def _quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
