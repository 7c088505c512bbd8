"""A private numeric column: its bounds, its grid, and who has a value."""

from collections.abc import Iterable
from fractions import Fraction
from functools import cached_property

from attrs import Factory, field, frozen

from semidp.errors import InputError
from semidp.promise.exact import Number, exact, format_value, plain
from semidp.promise.schema.features import ANSWERED_SUFFIX

GRID = 1000
"""The most steps between an outcome's bounds by default."""
_LARGEST_BOUND = 10**300  # twice this, and sums of it, are still floating-point numbers


def _bound(value: Number) -> Fraction:
    return exact(value, "a bound of an outcome")


def _cuts(values: Iterable[Number]) -> tuple[Fraction, ...]:
    return tuple(exact(value, "a line") for value in values)


def fine_steps(lower: Fraction, upper: Fraction, most: int = GRID) -> int:
    """Return the number of steps between two bounds: `most`, or somewhat fewer to put every whole
    number on the grid.

    Between whole bounds a step is 1, 1/2, 1/5, 1/10, 1/20 and so on, the least with at most `most`
    steps.

    >>> [fine_steps(Fraction(0), Fraction(upper)) for upper in (1, 60, 100, 5000)]
    [1000, 600, 1000, 1000]
    """
    apart = upper - lower
    if lower.denominator != 1 or apart.denominator != 1 or not 0 < apart <= most:
        return most
    fitting = int(most // apart)
    power = 10 ** (len(str(fitting)) - 1)
    parts: int = max(factor * power for factor in (1, 2, 5) if factor * power <= fitting)
    return int(apart) * parts


@frozen(slots=False)
class Outcome:
    """A numeric column, clipped to declared bounds and rounded to a declared grid record by record.

    A record with the value y adds the integer ``floor((min(max(y, lower), upper) - lower) / (upper
    - lower) * steps + 1/2)``, which lies between 0 and `steps` whatever y is, so sums are integers
    of known sensitivity. The bounds are declared, never read from the data; the default grid
    has the `fine_steps`. A histogram of it has a cell for each step, and is also cut at
    `cuts`: a record belongs to the cell from the last of the `edges` that its value is not below.

    Examples
    --------
    >>> score = Outcome("score", 0, 100, steps=1000)
    >>> score.width
    Fraction(1, 10)
    >>> Outcome("score", 0, 100).steps, Outcome("days", 0, 60).steps
    (1000, 600)
    >>> [float(edge) for edge in Outcome("days", 0, 3, 3, cuts=(1,)).edges]
    [0.5, 1.0, 1.5, 2.5]
    >>> Outcome("score", 100, 0, steps=10)
    Traceback (most recent call last):
    semidp.errors.InputError: the bounds of 'score' must be increasing: got 100 and 0
    """

    column: str
    lower: Fraction = field(converter=_bound)
    upper: Fraction = field(converter=_bound)
    steps: int = field(
        default=Factory(lambda self: fine_steps(self.lower, self.upper), takes_self=True)
    )
    cuts: tuple[Fraction, ...] = field(default=(), converter=_cuts)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.column, str):
            raise InputError(
                "an outcome is named by its column, such as 'stay' or, for a proportion,"
                f" 'died=yes', not {format_value(self.column)}"
            )
        if max(abs(self.lower), abs(self.upper)) > _LARGEST_BOUND:
            raise InputError(f"the bounds of {self.column!r} must lie between -1e300 and 1e300")
        if not float(self.lower) < float(self.upper):
            raise InputError(
                f"the bounds of {self.column!r} must be increasing: got {plain(self.lower)} and"
                f" {plain(self.upper)}"
            )
        if (
            isinstance(self.steps, bool)
            or not isinstance(self.steps, int)
            or not 1 <= self.steps <= 2**32
        ):
            raise InputError(f"the grid of {self.column!r} must have from 1 to 2^32 steps")
        for cut in self.cuts:
            if not self.lower < cut <= self.upper:
                low, high = plain(self.lower), plain(self.upper)
                raise InputError(
                    f"a line lies above {low} and at most at {high}, the bounds of"
                    f" {self.column!r}, not at {plain(cut)}"
                )

    @cached_property
    def edges(self) -> tuple[Fraction, ...]:
        """The edges of a histogram, increasing: halfway between steps, and at the cuts."""
        half = self.width / 2
        places = [self.lower + half * (2 * step + 1) for step in range(self.steps)]
        # values are compared with edges as floating-point numbers
        by_float = {float(edge): edge for edge in (*places, *self.cuts)}
        return tuple(edge for _, edge in sorted(by_float.items()))

    @property
    def width(self) -> Fraction:
        """The width of a step of the grid: a sum is its steps times this, plus `lower` per
        record.
        """
        return (self.upper - self.lower) / self.steps

    @property
    def rounding(self) -> Fraction:
        """The most by which a value is rounded: half a step; zeros and ones are not."""
        return Fraction(0) if self.proportion else self.width / 2

    @property
    def proportion(self) -> bool:
        """Whether it takes zeros and ones, which true and false are then."""
        return self.lower == 0 and self.upper == 1 and self.steps == 1


ALL_RECORDS, ALL_LEVEL = "all records", "all"
"""The feature that forms the one group of an overall statistic, and its only level."""
ANSWERS = ("no", "yes")
"""The levels of `ANSWERED`: records in the second have a value."""


def answered_column(column: str) -> str:
    """Return the name of the column that says who has a value of a column; for ok=Y, that of
    ok.

    >>> answered_column("pay"), answered_column("ok=Y")
    ('pay answered', 'ok answered')
    """
    return f"{column.partition('=')[0]}{ANSWERED_SUFFIX}"
