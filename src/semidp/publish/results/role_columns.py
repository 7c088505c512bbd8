"""Columns with a role: what a statistic publishes that is not a table of counts.

A statistic names its columns and says what they are. Its files, data frames, lists on a page and on
a terminal, pictures and the description of its columns follow from their roles.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.promise.exact import count_noun
from semidp.publish.plotting import estimates_plot, quantiles_plot
from semidp.publish.results.columns import Columns, PublishedColumns
from semidp.publish.results.grids import LISTED_ROWS, Section
from semidp.publish.results.texts import (
    FAINT_MARK,
    end_text,
    error_digits,
    estimate_text,
    more,
    number_text,
    rounded_text,
)

Texts = Sequence[tuple[str, ...]]


class Role(Enum):
    """What a column is for.

    >>> [role.value for role in Role][:3]
    ['label', 'place', 'count']
    """

    label = "label"
    """Words that identify rows."""
    place = "place"
    """A number that identifies rows."""
    count = "count"
    """An exact number of records."""
    base = "base"
    """An estimate that the others are relative to."""
    estimate = "estimate"
    error = "error"
    """The standard error of the estimate before it."""
    lower = "lower"
    """The lower end of an interval for the estimate before it."""
    upper = "upper"
    noisy = "noisy"
    """The measurement, as drawn."""


ESTIMATES = (Role.base, Role.estimate)
_FAR_BELOW = 100


@frozen(eq=False)
class RoleColumn:
    """One column.

    Parameters
    ----------
    name, role, values
        What it is called in the file, what it is for, and what it holds.
    meaning
        What it means, for the description of the file.
    heading
        What it is called in a list (default: its name).
    text
        How one of its numbers is written, with its interval in brackets; with the digits that its
        error leaves, and the interval in columns of its own, unless given.
    """

    name: str
    role: Role
    values: Any = field(repr=False)
    meaning: str = ""
    heading: str = ""
    text: Callable[[Any], str] | None = None

    @property
    def title(self) -> str:
        """What it is called in a list.

        >>> RoleColumn("population_lower", Role.lower, []).title
        'population, lower'
        """
        return self.heading or self.name.replace("_", ", ", 1).replace("standard, ", "standard ")


def label_columns(names: Sequence[str], rows: Texts, meaning: str = "") -> list[RoleColumn]:
    """Return the columns of rows of labels."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(names)
    return [
        RoleColumn(name, Role.label, column, meaning)
        for name, column in zip(names, columns, strict=True)
    ]


def estimate_columns(
    name: str, values: NDArray[Any], errors: NDArray[Any], meaning: str
) -> list[RoleColumn]:
    """Return an estimate and its standard error."""
    return [
        RoleColumn(name, Role.estimate, values, meaning),
        RoleColumn("standard_error", Role.error, errors, "of the estimate, from the noise alone"),
    ]


def noisy_column(name: str, values: NDArray[Any], meaning: str = "") -> RoleColumn:
    """Return what was measured, as drawn."""
    return RoleColumn(name, Role.noisy, values, meaning)


@frozen(slots=False)
class EstimateColumns:
    """An estimate with its error and the ends of its intervals, where it has them."""

    estimate: RoleColumn
    error: RoleColumn | None
    ends: tuple[RoleColumn, ...]

    def texts(self, row: int) -> list[str]:
        """Write the numbers of one row: estimate, standard error, ends."""
        value = float(self.estimate.values[row])
        if self.estimate.text is not None:
            return [self.line(row)]
        error = self._error(row)
        if error >= self._common_error:
            # All rows have the same decimals, and can be compared at a glance.
            error = self._common_error
        if self.error is None:
            shown = [rounded_text(value, error)]
        else:
            shown = [rounded_text(value, error), error_digits(self._error(row), error)]
        for end in self.ends:
            shown.append(end_text(float(end.values[row]), error, upper=end.role is Role.upper))
        return shown

    def line(self, row: int) -> str:
        """Write one row for a terminal: 57.3 ± 2.3, or 10 (8 to 13)."""
        value = float(self.estimate.values[row])
        if self.error is not None:
            return estimate_text(value, self._error(row))
        write = self.estimate.text or number_text
        ends = [write(float(end.values[row])) for end in self.ends[:2]]
        return f"{write(value)} ({' to '.join(ends)})" if ends else write(value)

    @property
    def headings(self) -> list[str]:
        """What `texts` are called."""
        if self.estimate.text is not None:
            return [self.estimate.title]
        columns = (self.estimate, self.error, *self.ends)
        return [one.title for one in columns if one is not None]

    @cached_property
    def _common_error(self) -> float:
        """The standard error whose digits all rows have: the smallest, unless it is far below the
        others; such a row has its own.
        """
        errors = np.array([self._error(row) for row in range(len(self.estimate.values))])
        positive = errors[np.isfinite(errors) & (errors > 0)]
        if not positive.size:
            return math.inf
        return max(float(positive.min()), float(np.median(positive)) / _FAR_BELOW)

    def _error(self, row: int) -> float:
        if self.error is not None:
            return float(self.error.values[row])
        # An interval is about four standard errors wide.
        ends = [float(end.values[row]) for end in self.ends[:2]]
        return (ends[1] - ends[0]) / 4 if ends else 0.0


@frozen(slots=False, eq=False, kw_only=True)
class Sheet(PublishedColumns):
    """One file of a statistic: columns with a role, and the few words that do not follow from them.

    Parameters
    ----------
    name
        The file, without its ending.
    role_columns
        The columns; those as drawn come last.
    words
        What the file holds.
    heading, paragraphs
        Its section of the report; none without a heading.
    row
        What a row is about.
    is_main
        Whether a terminal lists its rows.
    listing
        What the page lists in place of the rows: lines of words, each after what it is about.
    faint
        The rows that noise dominates.
    axis, bounds
        What is drawn along the axis of its picture, and the declared bounds.
    draw
        Draws another picture than estimates with their errors.
    caption, label
        What is said about the picture: below it, and to those who do not see it.
    """

    name: str
    role_columns: tuple[RoleColumn, ...] = field(repr=False)
    words: str = ""
    heading: str = ""
    paragraphs: Sequence[str] = field(default=(), repr=False)
    row: str = "group"
    is_main: bool = True
    listing: Sequence[tuple[str, str]] = field(default=(), repr=False)
    faint: NDArray[np.bool_] | None = field(default=None, repr=False)
    axis: str = ""
    bounds: tuple[float, float] | None = None
    draw: Callable[[Any], Any] | None = field(default=None, repr=False)
    caption: str = "Estimates with two standard errors of the noise to each side."
    label: str | None = None

    def columns(self) -> Columns:
        """Return the columns of the file."""
        labels = self._with_role(Role.label)
        rows = list(zip(*(one.values for one in labels), strict=True))
        numbers = {one.name: one.values for one in self.role_columns if one.role is not Role.label}
        meanings = {one.name: one.meaning for one in self.role_columns if one.meaning}
        key = [one.name for one in self._with_role(Role.label, Role.place)]
        return Columns.of_rows([one.name for one in labels], rows, numbers, meanings, tuple(key))

    def __getitem__(self, name: str) -> Any:
        """Return one column by its name."""
        return next(one.values for one in self.role_columns if one.name == name)

    def _with_role(self, *roles: Role) -> list[RoleColumn]:
        return [one for one in self.role_columns if one.role in roles]

    @property
    def has_estimates(self) -> bool:
        """Whether it holds more than what was measured, as drawn."""
        return bool(self._with_role(*ESTIMATES))

    @cached_property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The labels of each row."""
        labels = [one.values for one in self._with_role(Role.label)]
        return (
            tuple(zip(*labels, strict=True)) if labels else ((),) * len(self.role_columns[0].values)
        )

    @property
    def counts(self) -> NDArray[np.int64]:
        """The exact number of records of each row."""
        (counts,) = self._with_role(Role.count)
        return np.asarray(counts.values)

    @property
    def values(self) -> NDArray[np.float64]:
        """The first estimate of each row."""
        return np.asarray(self._with_role(Role.estimate)[0].values)

    @property
    def standard_errors(self) -> NDArray[np.float64]:
        """The standard errors of `values`."""
        return np.asarray(self["standard_error"])

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield the labels of each row, then its numbers but those as drawn."""
        shown = [one for one in self.role_columns if one.role not in (Role.label, Role.noisy)]
        yield from zip(self.groups, *(one.values.tolist() for one in shown), strict=True)

    @property
    def faint_rows(self) -> tuple[int, int]:
        """In how many rows noise dominates, and how many rows have records."""
        faint = 0 if self.faint is None else int(self.faint.sum())
        return faint, int(self._occupied.sum())

    @property
    def _occupied(self) -> NDArray[np.bool_]:
        counted = self._with_role(Role.count)
        return counted[0].values > 0 if counted else np.ones(len(self.groups), dtype=bool)

    @property
    def measured(self) -> Iterator[EstimateColumns]:
        """Estimates with the columns that belong to each: those between it and the next one."""
        starts = [place for place, one in enumerate(self.role_columns) if one.role in ESTIMATES]
        for start, end in zip(starts, [*starts[1:], len(self.role_columns)], strict=True):
            columns = self.role_columns[start:end]
            error = next((one for one in columns if one.role is Role.error), None)
            ends = tuple(one for one in columns if one.role in (Role.lower, Role.upper))
            yield EstimateColumns(columns[0], error, ends)

    def _mark(self, one: EstimateColumns, row: int) -> str:
        is_marked = self.faint is not None and one.estimate.role is Role.estimate
        return FAINT_MARK if is_marked and self.faint[row] else ""  # type: ignore[index]

    def lines(self) -> Iterator[str]:
        """Yield a line for each row: its labels, its estimates, its exact count."""
        measured = list(self.measured)
        counted = self._with_role(Role.count)
        for row, group in enumerate(() if self.listing else self.groups):
            texts = []
            for one in measured:
                called = f"{one.estimate.title} = " if len(measured) > 1 else ""
                texts.append(f"{called}{self._mark(one, row)}{one.line(row)}")
            records = "".join(f" ({_count_text(one, row)})" for one in counted)
            yield f"{' · '.join(group)}: {', '.join(texts)}{records}"

    def section(self) -> Section | None:
        """Return its section of a report: a picture, and a list of the first rows."""
        if not self.heading:
            return None
        if self.listing:
            return Section(
                heading=self.heading,
                paragraphs=self.paragraphs,
                columns=("", ""),
                rows=self.listing,
                names=2,
            )
        measured = list(self.measured)
        labels, counted = self._with_role(Role.label), self._with_role(Role.count)
        headings = [" · ".join(one.title for one in labels), *(one.title for one in counted)]
        for one in measured:
            headings += one.headings
        occupied = self._occupied
        rows = []
        for row in np.flatnonzero(occupied)[:LISTED_ROWS].tolist():
            texts = [" · ".join(self.groups[row]), *(f"{one.values[row]:,}" for one in counted)]
            for one in measured:
                first, *further = one.texts(row)
                texts += [f"{self._mark(one, row)}{first}", *further]
            rows.append(texts)
        left_out = more(f"{self.row}s are shown", len(rows), int(occupied.sum()))
        figure = self.plot()
        return Section(
            heading=self.heading,
            paragraphs=[*self.paragraphs, *left_out],
            figure=figure,
            figure_label=self.label,
            caption="" if figure is None else self.caption,
            columns=headings,
            rows=rows,
            empty=[" · ".join(self.groups[row]) for row in np.flatnonzero(~occupied).tolist()],
        )

    def plot(self, axes: Any = None) -> Any:
        """Draw it, on matplotlib axes if given; return the figure, or None without a picture."""
        if self.draw is not None:
            return self.draw(axes)
        held = np.isfinite(self.values)
        labels = [" · ".join(group) for group, kept in zip(self.groups, held, strict=True) if kept]
        if not any(one.role is Role.error for one in self.role_columns):
            if not self.axis:
                return None
            shown = [one for one in self.measured if one.estimate.role is Role.estimate]
            quantiles = [one.estimate.values[held].tolist() for one in shown]
            ends = [tuple(end.values[held].tolist() for end in one.ends) for one in shown]
            return quantiles_plot(labels, quantiles, list(filter(None, ends)), self.axis, axes)
        values, errors = self.values[held].tolist(), self.standard_errors[held].tolist()
        return estimates_plot(labels, values, errors, self.axis, self.bounds, axes)


def _count_text(counted: RoleColumn, row: int) -> str:
    count = int(counted.values[row])
    return count_noun(count, "record") if counted.text is None else counted.text(count)
