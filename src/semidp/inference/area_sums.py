"""Weighted sums of cells of published tables, at any depth: areas from a file, or sums
written as text (``gap: sex=f & region=n - 0.5 * region-age[age=d]``).

A district consists of blocks, or of wards and a part of another; the noise of the release has a
known distribution, so every such sum has an interval, at no cost in privacy. Tables that share a
budget, and those of a combination, share noise; others are independent.
"""

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from attrs import evolve, frozen

from semidp.errors import InputError
from semidp.inference.answers import Covers, IntervalEstimate, linear_interval
from semidp.inference.cell_bounds import CellBounds
from semidp.inference.linear_estimates import Floats, simulated_bound
from semidp.inference.measured import (
    Cells,
    Measured,
    measured_table,
    select_public,
)
from semidp.promise.documents import read_csv
from semidp.promise.noise.randomness import Randomness, SystemRandomness
from semidp.publish.written_values import check_level

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue


NAME, WEIGHT, TABLE = "name", "weight", "table"


@frozen
class AreaRow:
    """One line of a file of areas: cells, by the levels of some features, that count with a weight
    in an area.

    Parameters
    ----------
    name
        The name of the area or weighted sum.
    cells
        For some features one or several levels; all levels of the others.
    weight
        How often the cells count.
    table
        The table in which they are counted; None for one that has the features.

    Examples
    --------
    >>> AreaRow("north", {"region": "n"}, 0.5).cells
    {'region': 'n'}
    """

    name: str
    cells: Cells
    weight: float = 1.0
    table: str | None = None


def read_area_rows(path: str | Path, needed: Sequence[str] = ()) -> list[AreaRow]:
    """Read a CSV file with the columns name, features at any depth and, if wanted, weight and
    table.

    A feature that a line leaves empty is summed over; a line without a table is counted in one that
    has its features.

    Parameters
    ----------
    path
        The file.
    needed
        Required columns, which no line may leave empty.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "areas.csv"
    ...     _ = file.write_text("name,region,weight\\nnorth,n,\\nnorth,s,0.5\\n")
    ...     [(row.name, row.cells, row.weight) for row in read_area_rows(file)]
    [('north', {'region': 'n'}, 1.0), ('north', {'region': 's'}, 0.5)]
    """
    header, lines = read_csv(path)
    for column in (NAME, *needed):
        if column not in header:
            raise InputError(f"{path} has no column {column}: it has {', '.join(header) or 'none'}")
    rows = []
    for number, line in enumerate(lines, 2):
        place = f"line {number} of {path}"
        row = _read_row(dict(zip(header, line, strict=True)), place)
        for column in needed:
            if column not in row.cells:
                raise InputError(f"{place} has no {column}")
        rows.append(row)
    if not rows:
        raise InputError(f"{path} names no area")
    return rows


def _read_row(texts: dict[str, str], place: str) -> AreaRow:
    """Read one line; every column but three is a feature, which the release may have or not."""
    name, text, table = (texts.pop(column, "") for column in (NAME, WEIGHT, TABLE))
    if not name:
        raise InputError(f"{place} has no name")
    try:
        weight = float(text or 1.0)
    except ValueError:
        weight = math.nan
    if not math.isfinite(weight):
        raise InputError(f"the weight in {place} is not a number")
    cells = {feature: level for feature, level in texts.items() if level}
    return AreaRow(name, cells, weight, table or None)


def area_intervals(
    release: "ReleaseValue",
    rows: Sequence[AreaRow],
    *,
    level: float = 0.95,
    table: str | None = None,
    draws: int | None = None,
    randomness: Randomness | None = None,
) -> dict[str, IntervalEstimate]:
    """Return the estimate of every area with its interval, by simulation of the noise of the
    release.

    Rows that name no table are counted in the smallest one that has the features of all of them, or
    else each in the smallest that has its own. Intervals of areas that count whole cells are cut to
    what exact totals allow; each holds at the level by itself. An area that counts a cell twice
    without weights is refused; see `sum_intervals`.

    Parameters
    ----------
    release
        The release.
    rows
        Lines of a file of areas.
    level
        The confidence level.
    table, draws, randomness
        As in `Release.interval`.

    Examples
    --------
    >>> import semidp
    >>> plan = semidp.Plan(
    ...     [semidp.publish.TableRequest(["sex", "vote"], semidp.Budget.gdp(1))], ["sex", "vote"]
    ... )
    >>> release = semidp.run(plan, {"sex": [*"fm"] * 9, "vote": [*"yn"] * 9})
    >>> answers = area_intervals(
    ...     release, [AreaRow("women", {"sex": "f"}), AreaRow("half", {"vote": "y"}, 0.5)]
    ... )
    >>> {name: (answer.low, answer.high) for name, answer in answers.items()}  # exact here
    {'women': (9.0, 9.0), 'half': (4.5, 4.5)}
    """
    by_table = _by_table(release, rows, table)
    for measured, chosen in by_table:
        _refuse_twice(measured, chosen)
    return _intervals(release, by_table, rows, level, draws, randomness)


def sum_intervals(
    release: "ReleaseValue",
    rows: Sequence[AreaRow],
    *,
    level: float = 0.95,
    table: str | None = None,
    draws: int | None = None,
    randomness: Randomness | None = None,
) -> dict[str, IntervalEstimate]:
    """Return the estimate of every weighted sum of cells with its interval, over any tables and
    depths.

    Tables that share a budget share noise, and so do those of a combination: noise that a sum adds
    and subtracts cancels. Cells may count several times.

    Parameters
    ----------
    release
        The release.
    rows
        Terms of the sums; those of one sum share its name.
    level, table, draws, randomness
        As in `area_intervals`.

    Examples
    --------
    >>> import semidp
    >>> from semidp.inference.area_sums import sum_rows
    >>> plan = semidp.Plan(
    ...     [semidp.publish.TableRequest(["sex", "vote"], semidp.Budget.gdp(1))], ["sex", "vote"]
    ... )
    >>> release = semidp.run(plan, {"sex": [*"fm"] * 9, "vote": [*"yn"] * 9})
    >>> sum_intervals(release, sum_rows("more: sex=f - 0.5 * vote=y"))["more"].value
    4.5
    """
    return _intervals(release, _by_table(release, rows, table), rows, level, draws, randomness)


def _intervals(
    release: "ReleaseValue",
    by_table: "list[tuple[Measured, list[AreaRow]]]",
    rows: Sequence[AreaRow],
    level: float,
    draws: int | None,
    randomness: Randomness | None,
) -> dict[str, IntervalEstimate]:
    """Estimates and intervals of weighted sums, by name in the order of the rows."""
    check_level(level, "the confidence level")
    areas = list(dict.fromkeys(row.name for row in rows))
    weights = {}
    for measured, chosen in by_table:
        of_area = _weights(measured, chosen)
        blank = np.zeros(measured.schema.shape)
        weights[measured] = np.stack([of_area.get(name, blank) for name in areas])
    values = np.zeros(len(areas))
    for measured, stacked in weights.items():
        values += measured.sum_cells(stacked)
    by_number = {measured.number: stacked for measured, stacked in weights.items()}
    noise = by_table[0][0].tables.weigh_noise(by_number)
    errors = noise.standard_errors
    # All areas see the same draws of the noise, which is drawn once.
    count = min(measured.draws for measured in weights) if draws is None else draws
    drawn = noise.draw(count, SystemRandomness() if randomness is None else randomness)
    answers = {}
    for number, name in enumerate(areas):
        value, error = float(values[number]), float(errors[number])
        span = _whole_span(release, weights, number)
        if span is not None:
            answers[name] = linear_interval(value, error, drawn[:, number], span, level)
        else:
            # A sum with other weights need be neither whole nor within a count's bounds.
            reach = simulated_bound(np.abs(drawn[:, number]), level)
            answers[name] = IntervalEstimate(
                value, error, value - reach, value + reach, level, Covers.noise, True, None
            )
    return answers


def _by_table(
    release: "ReleaseValue", rows: Sequence[AreaRow], table: str | None
) -> list[tuple[Measured, list[AreaRow]]]:
    """Rows by the table that they are counted in: the one that a row names, one for all others, or
    one for each.
    """
    if table is not None:
        rows = [row if row.table is not None else evolve(row, table=table) for row in rows]
    rows = [
        row if row.table is None else evolve(row, table=_resolve_table_name(release, row.table))
        for row in rows
    ]
    free: set[str] = set()
    for row in rows:
        free |= set(row.cells) if row.table is None else set()
    try:
        for_all = measured_table(release, free)
    except InputError:
        for_all = None
    chosen: dict[str, tuple[Measured, list[AreaRow]]] = {}
    for row in rows:
        if row.table is None and for_all is not None:
            measured = for_all
        else:
            measured = measured_table(release, set(row.cells), row.table)
        # One table is one set of weights, however many rows name it.
        chosen.setdefault(measured.name, (measured, []))[1].append(row)
    _refuse_both_kinds(list(chosen.values()))
    return list(chosen.values())


def _resolve_table_name(release: "ReleaseValue", name: str) -> str:
    """Name of a table that may also be named by its features, joined by ``-`` in any order."""
    names = [table.name for table in release.tables]
    for table in release.tables:
        features = [feature.name for feature in table.schema.features]
        if name not in names and sorted(name.split("-")) == sorted(features):
            return table.name
    return name


def _refuse_both_kinds(by_table: Sequence[tuple[Measured, list[AreaRow]]]) -> None:
    """Refuse an area of which some lines count members and others units."""
    kinds: dict[str, str] = {}
    for measured, rows in by_table:
        for row in rows:
            if kinds.setdefault(row.name, measured.counted) != measured.counted:
                raise InputError(
                    f"the area {row.name!r} counts members in one line and units in another: name a"
                    " table"
                )


def _whole_span(
    release: "ReleaseValue", weights: dict[Measured, Floats], number: int
) -> tuple[float, float] | None:
    """What exact totals allow for an area that counts whole cells of one table; None for others."""
    counted = [
        (measured, stacked[number])
        for measured, stacked in weights.items()
        if stacked[number].any()
    ]
    if len(counted) != 1:
        return None
    measured, cells = counted[0]
    if not np.isin(cells, (0.0, 1.0)).all():
        return None
    return CellBounds.from_dataspace(select_public(release, measured), measured.schema.names).span(
        cells
    )


def _weights(measured: Measured, rows: Sequence[AreaRow]) -> dict[str, Floats]:
    """Weights of cells for every area."""
    weights: dict[str, Floats] = {}
    for row in rows:
        before = weights.get(row.name, np.zeros(measured.schema.shape))
        weights[row.name] = before + row.weight * measured.mask(row.cells)
    return weights


def _refuse_twice(measured: Measured, rows: Sequence[AreaRow]) -> None:
    """Refuse an area that counts a cell more than whole without saying so."""
    weighted = {row.name for row in rows if row.weight != 1.0}
    for name, cells in _weights(measured, rows).items():
        if name not in weighted and cells.max(initial=0.0) > 1:
            raise InputError(f"the area {name!r} names a cell twice: give each once, or weights")


_QUOTED = re.compile(r'"[^"]*"')
_SIGN = re.compile(r"(?:^|\s)([+-])\s")
_FORM = 'write it like "gap: sex=f & region=n,s - 0.5 * region-age[age=d]"'


def sum_rows(text: str) -> list[AreaRow]:
    """Read a weighted sum of cells: terms with signs, each an optional weight, an optional table,
    and levels.

    Terms are joined by `` + `` and `` - ``, features by `` & ``, levels of one feature by commas;
    levels that contain such signs are in double quotes. ``table[...]`` names the table, and
    ``table[]`` is the whole table.

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
        rows.append(_written_row(name.strip(), sign, term, text))
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


def _written_row(name: str, sign: float, term: str, text: str) -> AreaRow:
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
