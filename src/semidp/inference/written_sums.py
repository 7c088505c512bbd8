"""Weighted sums of cells as somebody writes them:
``gap: sex=f & region=n - 0.5 * region-age[age=d]``.

A written sum becomes rows like those of a file of areas; their estimates and intervals are in
`area_sums`.
"""

import math
import re
from collections.abc import Iterator

from semidp.errors import InputError
from semidp.inference.area_sums import AreaRow

_QUOTED = re.compile(r'"[^"]*"')
_SIGN = re.compile(r"(?:^|\s)([+-])\s")
_FORM = 'write it like "gap: sex=f & region=n,s - 0.5 * region-age[age=d]"'


def sum_rows(text: str) -> list[AreaRow]:
    """Read a weighted sum of cells: terms with signs, each an optional weight, an optional table,
    and levels.

    Terms are joined by `` + `` and `` - ``, features by `` & ``, levels of one feature by commas;
    levels with such signs in them stand in double quotes. ``table[...]`` says which table is meant,
    and ``table[]`` is all of it.

    Parameters
    ----------
    text
        The sum, after its name and a colon if it has one.

    Examples
    --------
    >>> for row in sum_rows("gap: sex=f & region=n,s - 0.5 * region-age[age=d]"):
    ...     print(row.name, row.cells, row.weight, row.table)
    gap {'sex': ('f',), 'region': ('n', 's')} 1.0 None
    gap {'age': ('d',)} -0.5 region-age
    """
    name, colon, written = text.partition(": ")
    if not colon:
        name, written = text, text
    rows = []
    for sign, term in _terms(written):
        rows.append(_row(name.strip(), sign, term, text))
    return rows


def _terms(written: str) -> Iterator[tuple[float, str]]:
    """Signs and terms of a sum; signs in double quotes belong to a level."""
    sign, start = 1.0, 0
    for match in _SIGN.finditer(_mask_quotes(written)):
        # A sign at the very beginning has no term before it.
        if match.start() or written[:1] not in ("+", "-"):
            yield sign, written[start : match.start()].strip()
        sign, start = (1.0 if match[1] == "+" else -1.0), match.end()
    yield sign, written[start:].strip()


def _row(name: str, sign: float, term: str, text: str) -> AreaRow:
    before, star, after = term.partition("*")
    weight = 1.0
    if star and "=" not in before and "[" not in before:
        weight, term = _number(before, text), after.strip()
    table, bracket, inside = term.partition("[")
    if bracket and "=" not in table and term.endswith("]"):
        cells = dict(_cells(inside[:-1], text)) if inside != "]" else {}
        return AreaRow(name, cells, sign * weight, table.strip())
    return AreaRow(name, dict(_cells(term, text)), sign * weight)


def _number(written: str, text: str) -> float:
    try:
        weight = float(written)
    except ValueError:
        weight = math.nan
    if not math.isfinite(weight):
        raise InputError(f"{written.strip()!r} in the sum {text!r} is no weight: {_FORM}")
    return weight


def _cells(written: str, text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Features and their levels."""
    for part in _split_unquoted(written, " & "):
        feature, equals, levels = part.partition("=")
        listed = []
        for level in _split_unquoted(levels, ","):
            listed.append(level.strip().strip('"'))
        if not equals or not feature.strip() or not all(listed):
            raise InputError(f"{part.strip()!r} in the sum {text!r} names no cells: {_FORM}")
        yield feature.strip(), tuple(listed)


def _split_unquoted(written: str, separator: str) -> Iterator[str]:
    """Parts between separators that are not in double quotes."""
    start = 0
    for match in re.finditer(re.escape(separator), _mask_quotes(written)):
        yield written[start : match.start()]
        start = match.end()
    yield written[start:]


def _mask_quotes(written: str) -> str:
    """The text with everything in double quotes made plain, at the same places."""
    return _QUOTED.sub(lambda quoted: "_" * len(quoted[0]), written)
