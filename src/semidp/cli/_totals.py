"""Published totals from CSV files, for commands that need no data: what ``--totals FILE`` reads.

One file holds one margin: a column for each of its features and a column ``count``, a row a cell.
Cells that are left out count 0. Everything in it is public.
"""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from attrs import evolve

from semidp.cli._options import Options
from semidp.errors import DataError, InputError
from semidp.promise.guarantee import Scope
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.publish.plan import Plan
from semidp.publish.plan_settings import read_text
from semidp.publish.survey import any_totals, public_scope, survey

COUNT = "count"


def read_totals(paths: Sequence[Path], declared: Plan) -> Dataspace:
    """Return the dataspace that the files of public totals describe; undeclared levels are those
    that they list.
    """
    files = {path: _rows(path) for path in paths}
    features = {feature.name: feature for feature in declared.features}
    declared_names = {name for feature in features.values() for name in feature.names}
    undeclared: dict[str, dict[str, None]] = {}
    for names, rows in files.values():
        for place, name in enumerate(names):
            if name not in declared_names:
                undeclared.setdefault(name, {}).update(
                    dict.fromkeys(levels[place] for levels, _ in rows)
                )
    features |= {name: Feature(name, tuple(levels)) for name, levels in undeclared.items()}
    schema = Schema(tuple(features.values()), declared.structural_zeros)
    values: dict[Margin, Table] = {}
    for path, (names, rows) in files.items():
        margin = Margin(*names)
        # Either file may be out of date, and the totals decide how much noise is needed.
        if margin in values:
            raise InputError(f"two files of --totals hold the totals of {margin}: keep one")
        values[margin] = _table(path, schema.restrict(names), names, rows)
    space = Dataspace.from_totals(schema, values)
    for margin, table in values.items():
        if space.value(margin) != table:  # a margin within another is not kept, but must agree
            raise DataError(f"the published values of {margin} contradict another file of --totals")
    return space


def choose_schema(space: Dataspace | None, declared: Plan) -> Schema | None:
    """Return the features of public totals, or else those that are declared with their levels, if
    there are any.
    """
    if space is not None:
        return space.schema
    return Schema(declared.features, declared.structural_zeros) if declared.features else None


def build_scope(
    plan: Plan, data: str | None, options: Options, totals: Sequence[Path]
) -> tuple[Scope, bool]:
    """Return the scope of a plan, and whether all its totals are known.

    It is read from the data; without them it follows from public totals and declared levels.
    """
    if data is not None:
        with options.source(plan, data) as source:
            return survey(plan, source)[0], True
    space = read_totals(totals, plan) if totals else None
    schema = choose_schema(space, plan)
    if space is not None:
        # What the files publish is exact, too, though no option names it: a(t) must know it.
        more = [margin for margin in space.margins if not margin.is_within_any(plan.invariants)]
        plan = evolve(plan, invariants=(*plan.invariants, *more))
    for name in plan.names:
        if schema is None or name not in {
            part for feature in schema.features for part in feature.names
        }:
            raise InputError(
                f"without data the levels of {name!r} must be declared: give --schema, --levels or"
                " --totals with them"
            )
    assert schema is not None, "a plan names at least one feature"
    if space is not None and all(space.publishes(margin) for margin in plan.invariants):
        return public_scope(plan, space.restrict_features(plan.names)), True
    return any_totals(plan, schema.restrict(plan.names)), False


def _rows(path: Path) -> tuple[tuple[str, ...], list[tuple[tuple[str, ...], int]]]:
    """Return the features of one file, and the levels and count of each of its rows."""
    try:
        table = [
            row for row in csv.reader(io.StringIO(read_text(path, "--totals")), strict=True) if row
        ]
    except csv.Error:
        raise DataError(f"the totals {path} are not a CSV file") from None
    header = [name.strip() for name in table[0]] if table else []
    if (
        header.count(COUNT) != 1
        or len(set(header)) < len(header)
        or len(header) < 2
        or not all(header)
    ):
        raise DataError(
            f"the totals {path} need a header with the features of one margin and one column"
            f" {COUNT!r}"
        )
    place = header.index(COUNT)
    rows = []
    for number, row in enumerate(table[1:], 2):
        text = row[place].strip() if len(row) == len(header) else ""
        # Eighteen digits fit into 64 bits; other digits than ASCII are more likely a slip.
        if not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise DataError(
                f"row {number} of the totals {path} does not hold its levels and a whole count"
            )
        rows.append((tuple(cell.strip() for i, cell in enumerate(row) if i != place), int(text)))
    if not rows:
        raise DataError(f"the totals {path} hold no row")
    return tuple(name for name in header if name != COUNT), rows


def _table(
    path: Path, schema: Schema, names: tuple[str, ...], rows: list[tuple[tuple[str, ...], int]]
) -> Table:
    columns = dict(zip(names, zip(*(levels for levels, _ in rows), strict=True), strict=True))
    try:
        codes = [feature.locate_leaves(columns) for feature in schema.features]
    except DataError:
        raise DataError(
            f"the totals {path} name a level of {' or '.join(map(repr, names))} that is not"
            " declared, or not there"
        ) from None
    flat = np.ravel_multi_index(tuple(codes), schema.shape)
    # Assignment below would keep the last of two counts without a word.
    if len(np.unique(flat)) < len(flat):
        raise DataError(f"the totals {path} give one cell twice")
    counts = np.zeros(schema.size, dtype=np.int64)
    counts[flat] = [count for _, count in rows]
    return Table(schema, counts.reshape(schema.shape))
