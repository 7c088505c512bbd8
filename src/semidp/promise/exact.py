"""Numbers as people write them, read exactly or refused in one sentence, and directed rounding.

Privacy parameters enter as text or numbers and stay `Fraction` up to the sampler; what leaves as a
float is rounded in a stated direction.
"""

import math
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from numbers import Rational
from typing import TypeVar

from semidp.errors import InputError

Number = int | float | str | Decimal | Fraction
"""The notations of a number: ``1``, ``0.1``, ``"1/3"``, ``"1e-9"``, ``Decimal("0.1")``,
``Fraction(1, 3)``."""

Real = TypeVar("Real", float, Fraction)
Listed = TypeVar("Listed")

_LONGEST_EXPONENT = 400  # "1e999999999" would otherwise allocate forever
# what is beyond floats cannot be shown
_SMALLEST, _LARGEST = Fraction(1, 10**400), Fraction(10**300)
# fractions of composed guarantees have hundreds; Python reads integers of at most 4,300
_MOST_DIGITS = 4000
_ROOT_BITS = 64  # of a square root that is not a fraction


def exact(value: Number, name: str = "the number") -> Fraction:
    """Return `value` as an exact fraction.

    A float is read by its shortest decimal form, so ``0.1`` means one tenth and not the
    nearest binary number. Messages call it `name`.

    >>> exact(0.1), exact("1/3"), exact("1e-3")
    (Fraction(1, 10), Fraction(1, 3), Fraction(1, 1000))
    >>> exact("a lot", name="epsilon")
    Traceback (most recent call last):
    semidp.errors.InputError: epsilon must be a number such as 1, 0.1, 1/3 or 1e-9, not 'a lot'
    """
    if isinstance(value, bool):
        raise InputError(f"{name} must be a number, not {value}")
    if isinstance(value, Rational):
        # Numbers of numpy wrap around; those of Python do not.
        return Fraction(int(value.numerator), int(value.denominator))
    if isinstance(value, (float, Decimal)):
        if not math.isfinite(value):
            raise InputError(f"{name} must be a finite number, not {value}")
        if isinstance(value, float):
            return Fraction(repr(float(value)))
    text = str(value).strip()
    number = _read_number(text)
    if number is None or (number and not _SMALLEST <= abs(number) <= _LARGEST):
        raise InputError(f"{name} must be a number such as 1, 0.1, 1/3 or 1e-9, not {text[:40]!r}")
    return number


def _read_number(text: str) -> Fraction | None:
    """Return the number that a text says: a decimal, or one divided by another."""
    try:
        top, *bottoms = text.split("/")
        if len(bottoms) == 1 and top.isdecimal() and bottoms[0].isdecimal():
            # The curve of several measurements may be a fraction of hundreds of digits, though
            # near 1.
            return Fraction(int(top), int(bottoms[0])) if len(text) <= _MOST_DIGITS else None
        parts = [Decimal(part) for part in (top, *bottoms)]
        if len(parts) > 2 or not all(
            part.is_finite() and abs(part.adjusted()) <= _LONGEST_EXPONENT for part in parts
        ):
            return None
        return Fraction(parts[0]) / (Fraction(parts[1]) if bottoms else 1)
    except (InvalidOperation, ValueError, ZeroDivisionError):
        return None


def positive(value: Number, name: str = "the number") -> Fraction:
    """Return `value` as an exact fraction above zero.

    >>> positive("0", name="rho")
    Traceback (most recent call last):
    semidp.errors.InputError: rho must be above 0, not 0
    """
    number = exact(value, name)
    if number <= 0:
        raise InputError(f"{name} must be above 0, not {value}")
    return number


def nonnegative(value: Number, name: str) -> Fraction:
    """Return `value` as an exact fraction that is not negative, or refuse.

    >>> nonnegative(-1, "epsilon")
    Traceback (most recent call last):
    semidp.errors.InputError: epsilon must be 0 or more, not -1
    """
    number = exact(value, name)
    if number < 0:
        raise InputError(f"{name} must be 0 or more, not {value}")
    return number


def round_up(x: Fraction) -> float:
    """Return the smallest float that is at least `x`.

    >>> round_up(Fraction(1, 3)) >= Fraction(1, 3) > round_down(Fraction(1, 3))
    True
    """
    nearest = _nearest(x)
    return nearest if nearest >= x else math.nextafter(nearest, math.inf)


def round_down(x: Fraction) -> float:
    """Return the largest float that is at most `x`.

    >>> round_down(Fraction(1, 2))
    0.5
    """
    nearest = _nearest(x)
    return nearest if nearest <= x else math.nextafter(nearest, -math.inf)


def sqrt_down(x: Fraction) -> Fraction:
    """Return a fraction r with ``r² <= x``, exact if `x` is a perfect square, else short by at
    most 2^-64.

    >>> sqrt_down(Fraction(9, 4))
    Fraction(3, 2)
    """
    # √(p/q) = √(pq)/q, and 2^64 more of both keep so many digits
    scale = 1 << _ROOT_BITS
    square = x.numerator * x.denominator * scale * scale
    return Fraction(math.isqrt(square), x.denominator * scale)


def sqrt_up(x: Fraction) -> Fraction:
    """Return a fraction r with ``r² >= x``, exact if `x` is a perfect square, else over by at
    most 2^-64.

    >>> sqrt_up(Fraction(2)) ** 2 > 2 > sqrt_down(Fraction(2)) ** 2
    True
    """
    low = sqrt_down(x)
    if low * low == x:
        return low
    return low + Fraction(1, x.denominator << _ROOT_BITS)


def bisection(
    below: Callable[[Real], bool], low: Real, high: Real, halvings: int
) -> tuple[Real, Real]:
    """Narrow an interval around a threshold by `halvings` halvings.

    `below` is true up to the threshold and false above it; it is evaluated at midpoints only. The
    caller knows which end of the result is the safe one.

    >>> bisection(lambda x: x * x < 2, Fraction(1), Fraction(2), halvings=3)
    (Fraction(11, 8), Fraction(3, 2))
    """
    for _ in range(halvings):
        middle = (low + high) / 2
        if below(middle):
            low = middle
        else:
            high = middle
    return low, high


def whole_bisection(below: Callable[[int], bool], low: int, high: int) -> tuple[int, int]:
    """Narrow an interval of whole numbers around a threshold, as `bisection` does, until its ends
    are neighbors.

    >>> whole_bisection(lambda n: n * n < 2_000, 0, 2_000)
    (44, 45)
    """
    while high - low > 1:
        middle = (low + high) // 2
        if below(middle):
            low = middle
        else:
            high = middle
    return low, high


def number(x: Fraction) -> int | float:
    """Return a fraction as a number for machines: the float that prints the same, else the next
    float above.

    >>> (
    ...     number(Fraction(5)),
    ...     number(Fraction(1, 10**10)),
    ...     number(Fraction(1, 3)) >= Fraction(1, 3),
    ... )
    (5, 1e-10, True)
    """
    if x.denominator == 1:
        return x.numerator
    nearest = _nearest(x)
    prints_as_it_is = math.isfinite(nearest) and Fraction(repr(nearest)) == x
    return nearest if prints_as_it_is else round_up(x)


def plain(x: Fraction) -> str:
    """Write a fraction the way a person would: a short decimal where it is one, else a quotient.

    `exact` reads it back to the same number.

    >>> (
    ...     plain(Fraction(1, 10)),
    ...     plain(Fraction(1, 3)),
    ...     plain(Fraction(5)),
    ...     plain(Fraction(1, 10**10)),
    ... )
    ('0.1', '1/3', '5', '1e-10')
    """
    if x.denominator == 1:
        return str(x.numerator)
    text = repr(_nearest(x)).replace("e-0", "e-").replace("e+", "e")
    if Fraction(text) == x:
        return text
    return f"{x.numerator}/{x.denominator}"


def format_rounded_up(x: Fraction | float, digits: int = 6) -> str:
    """Write a number above zero with `digits` significant digits, rounded up, as in a
    claim.

    >>> (
    ...     format_rounded_up(Fraction(1, 3)),
    ...     format_rounded_up(6.1739321),
    ...     format_rounded_up(0.99999949),
    ...     format_rounded_up(math.inf),
    ... )
    ('0.333334', '6.17394', '1', 'inf')
    """
    if not math.isfinite(x) or x <= 0:
        return f"{float(x):g}"
    exponent = digits - 1 - math.floor(math.log10(x))
    step = Fraction(10) ** exponent
    above = float(math.ceil(Fraction(x) * step) / step)
    return f"{above:.{digits}g}"


def _nearest(x: Fraction) -> float:
    try:
        return x.numerator / x.denominator
    except OverflowError:
        return math.inf if x > 0 else -math.inf


# --- values and numbers in sentences --------------------------------------------------------------


def format_value(value: object) -> str:
    """Return a value as it was written, cut where it is long.

    >>> format_value("a" * 100)
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…"
    """
    written = repr(value)
    return written if len(written) <= 60 else f"{written[:57]}…"


def count_noun(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun; an s makes the plural where none is given.

    >>> count_noun(1, "sum"), count_noun(0, "sum"), count_noun(2, "baby", "babies")
    ('1 sum', '0 sums', '2 babies')
    """
    several = f"{noun}s" if plural is None else plural
    return f"{number:,} {noun if number == 1 else several}"


def list_some(
    values: Sequence[Listed],
    most: int,
    separator: str = ", ",
    write: Callable[[Listed], str] = str,
) -> str:
    """Return values in one line; of more than `most` the first, and how many are left.

    >>> list_some(["a", "b", "c"], 3), list_some([1, 2, 3], 2, "; ")
    ('a, b, c', '1; 2 and 1 more')
    """
    shown, left = separator.join(map(write, values[:most])), len(values) - most
    return f"{shown} and {left:,} more" if left > 0 else shown


def parse_level(value: Number) -> Fraction:
    """Return a level of confidence, between 0 and 1.

    >>> parse_level("0.9")
    Fraction(9, 10)
    >>> parse_level(95)
    Traceback (most recent call last):
    semidp.errors.InputError: the level of an interval lies between 0 and 1, not 95
    """
    level = exact(value, "the level of an interval")
    if not 0 < level < 1:
        raise InputError(f"the level of an interval lies between 0 and 1, not {value}")
    return level
