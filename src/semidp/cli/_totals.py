"""Published totals from CSV files, for commands that need no data: what ``--totals FILE`` reads.

One file holds one margin: a column for each of its features and a column ``count``, a row a cell. Cells that are left
out count 0. Everything in it is public.
"""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from semidp.cli._options import Declared, read_text
from semidp.errors import DataError, InputError
from semidp.spaces import Dataspace, Margin
from semidp.tables import Feature, Schema, Table

COUNT = "count"


def totals_of(paths: Sequence[Path], declared: Declared | None) -> Dataspace:
    """Return the dataspace that the files of public totals describe; undeclared levels are those that they list."""
    files = {path: _rows(path) for path in paths}
    features = {feature.name: feature for feature in declared.features} if declared else {}
    nested = {name for feature in features.values() if len(feature.names) > 1 for name in feature.names}
    for name in (name for names, _ in files.values() for name in names if name in nested):
        raise InputError(f"{name!r} is a depth of a nested feature, whose totals cannot be read yet: give --a")
    undeclared: dict[str, dict[str, None]] = {}
    for names, rows in files.values():
        for place, name in enumerate(names):
            if name not in features:
                undeclared.setdefault(name, {}).update(dict.fromkeys(levels[place] for levels, _ in rows))
    features |= {name: Feature(name, tuple(levels)) for name, levels in undeclared.items()}
    schema = Schema(tuple(features.values()), declared.structural_zeros if declared else ())
    values: dict[Margin, Table] = {}
    for path, (names, rows) in files.items():
        margin = Margin(*names)
        if margin in values:
            raise InputError(f"two files of --totals hold the totals of {margin}: keep one")
        values[margin] = _table(path, schema.restrict(names), names, rows)
    space = Dataspace.known(schema, values)
    for margin, table in values.items():
        if space.value(margin) != table:  # a margin within another is not kept, but must agree
            raise DataError(f"the published values of {margin} contradict another file of --totals")
    return space


def _rows(path: Path) -> tuple[tuple[str, ...], list[tuple[tuple[str, ...], int]]]:
    """Return the features of one file, and the levels and count of each of its rows."""
    try:
        table = [row for row in csv.reader(io.StringIO(read_text(path, "--totals")), strict=True) if row]
    except csv.Error:
        raise DataError(f"the totals {path} are not a CSV file") from None
    header = [name.strip() for name in table[0]] if table else []
    if header.count(COUNT) != 1 or len(set(header)) < len(header) or len(header) < 2 or not all(header):
        raise DataError(f"the totals {path} need a header with the features of one margin and one column {COUNT!r}")
    place = header.index(COUNT)
    rows = []
    for number, row in enumerate(table[1:], 2):
        text = row[place].strip() if len(row) == len(header) else ""
        if not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise DataError(f"row {number} of the totals {path} does not hold its levels and a whole count")
        rows.append((tuple(cell.strip() for i, cell in enumerate(row) if i != place), int(text)))
    if not rows:
        raise DataError(f"the totals {path} hold no row")
    return tuple(name for name in header if name != COUNT), rows


def _table(path: Path, schema: Schema, names: tuple[str, ...], rows: list[tuple[tuple[str, ...], int]]) -> Table:
    codes = [{level: code for code, level in enumerate(schema.feature(name).levels)} for name in names]
    order = [names.index(name) for name in schema.names]
    counts = np.zeros(schema.shape, dtype=np.int64)
    seen = set()
    for levels, count in rows:
        for name, code, level in zip(names, codes, levels, strict=True):
            if level not in code:
                raise DataError(f"the totals {path} name a level of {name!r} that is not declared")
        cell = tuple(codes[place][levels[place]] for place in order)
        if cell in seen:
            raise DataError(f"the totals {path} give one cell twice")
        seen.add(cell)
        counts[cell] = count
    return Table(schema, counts)
