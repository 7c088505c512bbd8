"""Numbers, errors and guarantees as short texts, which the page, the terminal and the explorer
share.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from semidp.promise.exact import format_rounded_up, sqrt_up
from semidp.promise.tradeoff.function import Tradeoff

CLAIM_TEXTS = {
    "exact": ("exact: the proof covers the integers actually sampled"),
    "ideal": (
        "ideal arithmetic: the proof is for real-valued noise; the output was rounded to whole"
        " numbers first"
    ),
}
"""The subject of each kind of claim."""

FAINT_MARK = "≈"
"""The mark before a number that is mostly noise."""

TOO_MANY = 0.25
"""The share of cells or groups above which a warning says that noise dominates."""


def count_text(count: float) -> str:
    """Write a count: whole numbers in full, real ones with one digit.

    >>> count_text(12345), count_text(1234.56)
    ('12,345', '1,234.6')
    """
    if isinstance(count, int):
        return f"{count:,}"
    return f"{count:,.1f}"


def error_text(error: float) -> str:
    """Write a standard error. One above zero is never written as 0, since that would promise an
    exact count.

    >>> [error_text(x) for x in (0, 0.0031, 2.16, 12345.6)]
    ['0', '0.0031', '2.2', '12,346']
    """
    if error == 0:
        return "0"
    if error >= 100:
        return f"{error:,.0f}"
    if error >= 1:
        return f"{error:.1f}"
    return f"{error:.2g}"


def number_text(value: float) -> str:
    """Write a number without an error: five digits, and all of a large one before the point.

    >>> [number_text(x) for x in (55.123456, 30_000.0, 1_234_567.8, 0.00012, float("nan"))]
    ['55.123', '30,000', '1,234,568', '0.00012', 'none']
    """
    if not math.isfinite(value):
        return "none"
    # Only what is tiny or huge is written with an exponent, as Python does.
    if not value or not 1e-4 <= abs(value) < 1e15:
        return f"{value:.5g}"
    digits = max(4 - math.floor(math.log10(abs(value))), 0)
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits else text


def rounded_text(value: float, error: float) -> str:
    """Write a number with the digits that its standard error leaves: two of the error.

    >>> rounded_text(33718.25, 500.0), rounded_text(0.51170, 0.0018), rounded_text(7.0, 0.0)
    ('33,720', '0.5117', '7')
    >>> rounded_text(1250.0, 1e-68)
    '1,250'
    """
    if not math.isfinite(value) or not error or not math.isfinite(error):
        return number_text(value)
    # A floating-point number holds no such digits.
    if error < _FINEST * abs(value):
        return number_text(value)
    digits = _digits_left(error)
    return f"{round(value, digits) + 0.0:,.{max(digits, 0)}f}"


_FINEST = 1e-12


def _digits_left(error: float) -> int:
    """The place of the last digit that an error leaves: 1 for tenths, -2 for hundreds."""
    return 1 - math.floor(math.log10(error))


def estimate_text(value: float, error: float) -> str:
    """Write an estimate and its standard error with the digits that the error leaves: two of the
    error.

    >>> (
    ...     estimate_text(-38.8123, 66.712),
    ...     estimate_text(55.123456, 0.0349),
    ...     estimate_text(123456.7, 3456.7),
    ... )
    ('-39 ± 67', '55.123 ± 0.035', '123,500 ± 3,500')
    >>> estimate_text(2.5, 0.0), estimate_text(1250.0, 1.2345e-68)
    ('2.5 ± 0', '1,250 ± 1.2e-68')
    """
    if not math.isfinite(value):
        return "none"
    return f"{rounded_text(value, error)} ± {error_digits(error, error)}"


def error_digits(error: float, least: float) -> str:
    """Write a standard error with the digits that the smallest one of a column leaves.

    >>> error_digits(12.345, 1.2), error_digits(1.2345e-68, 1.2345e-68)
    ('12.3', '1.2e-68')
    """
    return f"{error:.2g}" if 0 < error < _FINEST else rounded_text(error, least)


def share_text(share: float) -> str:
    """Write a share in percent: never 0% or 100% for one that is not.

    >>> [share_text(x) for x in (0, 0.0001, 0.314, 0.9999, 1)]
    ['0%', 'under 1%', '31%', 'over 99%', '100%']
    """
    if 0 < share < 0.01:
        return "under 1%"
    if 0.99 < share < 1:
        return "over 99%"
    return f"{share:.0%}"


def align_columns(rows: Sequence[Sequence[str]], words: int = 1) -> list[str]:
    """Return the lines of a list for a terminal: the first columns are words, the others numbers.

    >>> print("\\n".join(align_columns([("table", "cells"), ("sex-age", "12")])))
    table    cells
    sex-age     12
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        padded = zip(row, widths, strict=True)
        cells = [
            text.ljust(width) if place < words else text.rjust(width)
            for place, (text, width) in enumerate(padded)
        ]
        lines.append("  ".join(cells))
    return lines


def end_text(value: float, error: float, *, upper: bool) -> str:
    """Write the end of an interval with the digits that a standard error leaves, rounded outward.

    An interval that was narrowed for the eye would hold less often than it says.

    >>> end_text(27_330.3, 67_000.0, upper=True), end_text(27_330.3, 67_000.0, upper=False)
    ('28,000', '27,000')
    >>> end_text(float("inf"), 1.0, upper=True), end_text(2.5, 0.0, upper=True)
    ('open', '2.5')
    """
    if math.isinf(value):
        return "open"
    if math.isnan(value) or not error or not math.isfinite(error):
        return number_text(value)
    place = 10.0 ** _digits_left(error)
    # An end that lies on a digit but for a rounding error is that digit.
    steps = math.ceil(value * place - 1e-6) if upper else math.floor(value * place + 1e-6)
    return rounded_text(steps / place, error)


def end_texts(ends: Mapping[str, float], error: float) -> list[str]:
    """Write the ends of intervals, by the names of their columns.

    >>> end_texts({"lower": 1.234, "upper": 5.671, "population_upper": 6.0}, 1.1)
    ['1.2', '5.7', '6.0']
    """
    return [end_text(value, error, upper=_is_upper(name)) for name, value in ends.items()]


def _is_upper(column: str) -> bool:
    """Whether a column holds upper ends of intervals."""
    return column.endswith(("upper", "high"))


def row_texts(header: Sequence[str], row: Sequence[Any]) -> list[Any]:
    """Write the real numbers of a row with the digits that its standard error leaves; leave labels
    and whole numbers as they are.

    >>> row_texts(
    ...     ["sex", "count", "mean", "standard_error", "upper"], ["f", 9, 55.1234, 0.31, 55.9]
    ... )
    ['f', 9, '55.12', '0.31', '55.90']
    """
    named = dict(zip(header, row, strict=True))
    error = named.get("standard_error", 0.0)
    texts: list[Any] = []
    for name, cell in named.items():
        if not isinstance(cell, float):
            texts.append(cell)
        elif name.endswith(("lower", "upper", "low", "high")):
            texts.append(end_text(cell, error, upper=_is_upper(name)))
        else:
            texts.append(rounded_text(cell, error))
    return texts


def scale_text(scale: float) -> str:
    """Write the scale of noise: four digits, and all of a large one before the point.

    >>> [scale_text(x) for x in (6.38877, 200, 95831.5)]
    ['6.389', '200', '95,832']
    """
    return f"{scale:,.0f}" if scale >= 10_000 else f"{scale:.4g}"


def short_text(value: float) -> str:
    """Write a number that is read at a glance.

    >>> short_text(0.0123456), short_text(4.0), short_text(13601.2)
    ('0.0123', '4', '13,601')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def four_digits(value: float) -> str:
    """Write a number in the four digits by which plans are compared.

    >>> four_digits(1.15470)
    '1.155'
    """
    return f"{value:.4g}"


def more(said: str, shown: int, every: int, where: str = "the file") -> list[str]:
    """Say that only the first of a list are shown, and where the others are; nothing if all are.

    >>> more("groups are shown", 2, 5)
    ['The first 2 groups are shown; 3 more are in the file.']
    """
    if every <= shown:
        return []
    return [f"The first {shown:,} {said}; {every - shown:,} more are in {where}."]


def within_text(errors: Mapping[str, float], text: Callable[[float], str]) -> str:
    """Say within what 95% of all draws are: for every cell, or from the best cell to the worst.

    >>> within_text({"narrowest": 2.0, "widest": 4.0}, error_text)
    'within ±2.0 to ±4.0'
    """
    low, high = text(errors["narrowest"]), text(errors["widest"])
    if low == high:
        return f"within ±{high}"
    return f"within ±{low} to ±{high}"


def errors_text(errors: Mapping[str, float]) -> str:
    """Say how far off a cell is before anything is drawn, in four digits, by which plans are
    compared.

    >>> errors_text(
    ...     {
    ...         "standard_error": 1.1547,
    ...         "smallest": 1.0,
    ...         "largest": 2.0,
    ...         "narrowest": 2.0,
    ...         "widest": 4.0,
    ...     }
    ... )
    'standard error 1.155 per cell (1 to 2), 95% within ±2 to ±4'
    """
    low, high = four_digits(errors["smallest"]), four_digits(errors["largest"])
    span = "" if low == high else f" ({low} to {high})"
    # Large tables have no intervals.
    within = f", 95% {within_text(errors, four_digits)}" if "widest" in errors else ""
    return f"standard error {four_digits(errors['standard_error'])} per cell{span}{within}"


def name_tradeoff(tradeoff: Tradeoff) -> str | None:
    """Name a tradeoff function the way specialists do, or None if it has no short name.

    >>> from semidp.promise.tradeoff.budget import approximate, gaussian, zcdp
    >>> name_tradeoff(gaussian(1)), name_tradeoff(zcdp("1/2")), name_tradeoff(approximate(1))
    ('μ = 1 (Gaussian DP)', '0.5-zCDP', 'pure 1-DP')
    """
    mu_squared = tradeoff.implied_mu_squared()
    if mu_squared is not None:
        return f"μ = {format_rounded_up(sqrt_up(mu_squared))} (Gaussian DP)"
    epsilon = tradeoff.implied_epsilon()
    if epsilon is not None:
        return f"pure {format_rounded_up(epsilon)}-DP"
    rho = tradeoff.implied_rho()
    return None if rho is None else f"{format_rounded_up(rho)}-zCDP"


def p_value_text(p_value: float, digits: int = 4, equals: str = "") -> str:
    """Return a p-value in words: one below what a float holds is not 0.

    >>> p_value_text(0.03125), p_value_text(0.0), p_value_text(0.0, equals="= ")
    ('0.03125', '< 1e-300', '< 1e-300')
    """
    return "< 1e-300" if p_value < 1e-300 else f"{equals}{p_value:.{digits}g}"
