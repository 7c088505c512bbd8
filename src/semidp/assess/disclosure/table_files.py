"""Published tables as CSV files, of any origin: with totals, suppressed and rounded cells.

A file is *long* (a column for each feature, then one of counts; one row per cell) or *crossed* (its
first header holds two features, as ``ward\\diagnosis``; the other headers are levels of the
second). A level that is the word for totals stands for all levels. Cells that a file does not list
are unknown.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from attrs import frozen

from semidp.assess.disclosure.published_counts import (
    UNBOUNDED,
    KnownTable,
    PublishedCounts,
    ReadingRules,
)
from semidp.errors import DataError, InputError
from semidp.promise.documents import read_csv
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import View
from semidp.promise.schema.schema import Schema, StructuralZero, Table
from semidp.promise.spaces.dataspace import Dataspace, Margin

COUNT = "count"
_CROSSED = "\\"
_MOST_CELLS = 2**24
_MOST_DIGITS = 18
_TOTAL_WORDS = {"total", "totals", "all", "overall", "sum"}

Row = tuple[dict[str, str], str]  # the levels of a cell, and what was published of it


@frozen
class TableFile:
    """The rows of one published table."""

    name: str
    features: tuple[str, ...]
    rows: tuple[Row, ...]


def read_file(path: Path, count: str | None = None) -> TableFile:
    """Return the rows of a CSV file; `count` names its column of counts (default: the last).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "t.csv").write_text("ward\\\\ill,y,n\\nA,1,c\\n")
    ...     read_file(Path(folder) / "t.csv").rows
    (({'ward': 'A', 'ill': 'y'}, '1'), ({'ward': 'A', 'ill': 'n'}, 'c'))
    """
    header, body = read_csv(path)
    if not body:
        raise DataError(f"the table {path.name} holds no row below its header")
    if _CROSSED in header[0]:
        return _read_crossed(path.name, header, body)
    column = count or (COUNT if COUNT in header else header[-1])
    if column not in header or len(header) < 2:
        raise DataError(f"the table {path.name} needs columns of features and one of counts")
    features = tuple(feature for feature in header if feature != column)
    rows = []
    for line in body:
        levels = dict(zip(header, line, strict=True))
        text = levels.pop(column)
        rows.append((levels, text))
    return TableFile(path.name, features, tuple(rows))


def _read_crossed(name: str, header: list[str], body: list[list[str]]) -> TableFile:
    down, _, across = (part.strip() for part in header[0].partition(_CROSSED))
    if not down or not across or down == across:
        raise DataError(f"the first header of {name} names two features, such as ward\\diagnosis")
    rows = []
    for label, *cells in body:
        for level, cell in zip(header[1:], cells, strict=True):
            rows.append(({down: label, across: level}, cell))
    return TableFile(name, (down, across), tuple(rows))


def read_counts(
    files: Sequence[TableFile],
    rules: ReadingRules,
    total: str | None = None,
    features: Iterable[Feature] = (),
    zeros: Iterable[StructuralZero] = (),
) -> PublishedCounts:
    """Return the combined information of published tables.

    Parameters
    ----------
    files
        The tables.
    rules
        How their cells are read.
    total
        The word for totals among the levels.
    features, zeros
        Declared features, such as nested ones, and structural zeros. Levels of other features are
        those that the files list.

    Examples
    --------
    >>> lines = [["A", "c", "4", "6"], ["B", "3", "c", "5"], ["Total", "5", "6", "11"]]
    >>> files = [_read_crossed("t.csv", ["ward\\\\ill", "y", "n", "Total"], lines)]
    >>> counts = read_counts(files, ReadingRules(suppressed=("c",), below=5), "Total")
    >>> [(known.view, known.lower.tolist()) for known in counts.tables]
    [((1, 1), [[1, 4], [3, 1]]), ((1, 0), [6, 5]), ((0, 1), [5, 6]), ((0, 0), 11)]
    """
    if not files:
        raise InputError("give at least one table")
    schema = _build_schema(files, total, features, zeros)
    tables: list[KnownTable] = []
    for file in files:
        tables += _read_tables(file, schema, rules, total)
    return PublishedCounts(schema, tuple(tables))


def _build_schema(
    files: Sequence[TableFile],
    total: str | None,
    features: Iterable[Feature],
    zeros: Iterable[StructuralZero],
) -> Schema:
    """Return the features that files use, with the structural zeros among them."""
    used = {name for file in files for name in file.features}
    kept = [feature for feature in features if used & set(feature.names)]
    new = _list_undeclared(files, kept, total)
    empty = used - {name for feature in (*kept, *new) for name in feature.names}
    if empty:
        raise DataError(f"{sorted(empty)[0]!r} has no level but totals")
    names = {name for feature in (*kept, *new) for name in feature.names}
    inside = [zero for zero in zeros if names.issuperset(dict(zero.levels))]
    return Schema([*kept, *new], inside)


def _list_undeclared(
    files: Sequence[TableFile], declared: Iterable[Feature], total: str | None
) -> list[Feature]:
    """Return the features that nobody declared: their levels are those that files list."""
    owned = {name for feature in declared for name in feature.names}
    levels: dict[str, dict[str, None]] = {}
    for file in files:
        for cell, _ in file.rows:
            for name, level in cell.items():
                if total is None and level.lower() in _TOTAL_WORDS:
                    raise InputError(
                        f"a level of {name!r} is called {level!r}: name the word for totals with"
                        " ⟨total⟩, or an empty one if there is none"
                    )
                if level != total and name not in owned:
                    levels.setdefault(name, {})[level] = None
    return [Feature(name, list(labels)) for name, labels in levels.items()]


def _read_tables(
    file: TableFile, schema: Schema, rules: ReadingRules, total: str | None
) -> list[KnownTable]:
    """Return one table for each set of features that rows of a file name."""
    grouped: dict[View, list[tuple[Mapping[str, str], str]]] = {}
    for levels, text in file.rows:
        named = {name: level for name, level in levels.items() if level != total}
        grouped.setdefault(schema.view(named), []).append((named, text))
    tables = []
    for view, rows in grouped.items():
        size = schema.grid.count_margin_cells(view)
        if size > _MOST_CELLS:
            raise DataError(f"the table {file.name} has more than {_MOST_CELLS:,} cells")
        lower = np.zeros(size, dtype=np.int64)
        upper = np.full(size, UNBOUNDED, dtype=np.int64)
        gap = np.zeros(size, dtype=np.int64)
        listed = np.zeros(size, dtype=bool)
        for cell, text in zip(_locate(file, schema, view, rows), _texts(rows), strict=True):
            read = rules.read_cell(text)
            if read is None:
                raise DataError(
                    f"a cell of {file.name} is neither a count nor a declared mark of a suppressed"
                    " cell (⟨suppressed⟩); or are these data, whose ⟨exact⟩ totals are to be named?"
                )
            if listed[cell]:
                raise DataError(f"the table {file.name} gives one cell twice")
            lower[cell], upper[cell], gap[cell] = read
            listed[cell] = True
        shape = schema.grid.compute_margin_shape(view)
        hidden = listed & (lower < upper)
        tables.append(
            KnownTable(
                view,
                lower.reshape(shape),
                upper.reshape(shape),
                gap.reshape(shape) if gap.any() else None,
                hidden.reshape(shape),
                file.name,
            )
        )
    return tables


def _texts(rows: Sequence[tuple[Mapping[str, str], str]]) -> list[str]:
    return [text for _, text in rows]


def _locate(
    file: TableFile,
    schema: Schema,
    view: View,
    rows: Sequence[tuple[Mapping[str, str], str]],
) -> list[int]:
    """Return the flat cell of a view that each row is about."""
    if not any(view):
        return [0] * len(rows)
    part = schema.restrict(schema.list_view_names(view))
    codes = []
    for feature in part.features:
        columns = {}
        for name in feature.names:
            if all(name in levels for levels, _ in rows):
                columns[name] = [levels[name] for levels, _ in rows]
        try:
            codes.append(feature.locate_leaves(columns))
        except DataError:
            raise DataError(
                f"the table {file.name} holds a level of {feature.name!r} that is not declared"
            ) from None
    return [int(flat) for flat in np.ravel_multi_index(tuple(codes), part.shape)]


def read_exact(
    files: Sequence[TableFile],
    features: Sequence[Feature] = (),
    zeros: Iterable[StructuralZero] = (),
) -> Dataspace:
    """Return the dataspace of tables whose counts are all exact; cells that are not listed are 0.

    Parameters
    ----------
    files
        The tables, one for each margin.
    features, zeros
        Declared features and structural zeros. Levels of other features are those that the files
        list.
    """
    schema = Schema((*features, *_list_undeclared(files, features, "")), zeros)
    values: dict[Margin, Table] = {}
    for file in files:
        margin = Margin(*file.features)
        # Either table may be out of date, and the totals decide how much noise is needed.
        if margin in values:
            raise InputError(f"two tables hold the exact totals of {margin}: keep one")
        values[margin] = _sum_rows(file, schema.restrict(file.features), once=True)
    space = Dataspace.from_totals(schema, values)
    for margin, table in values.items():
        if space.value(margin) != table:  # a margin within another is not kept, but must agree
            raise DataError(f"the exact totals of {margin} contradict those of another table")
    return space


def read_records(file: TableFile, schema: Schema) -> Table:
    """Return whole records that somebody knows; a column ``count`` says how many each row is."""
    missing = [feature.name for feature in schema.features if feature.name not in file.features]
    if missing:
        raise DataError(
            f"known records are whole: {file.name} has no column {missing[0]!r}; leave out totals"
            " by it, or give it"
        )
    return _sum_rows(file, schema, once=False)


def _sum_rows(file: TableFile, schema: Schema, *, once: bool) -> Table:
    """Return the counts of all rows, each about a cell of a schema; with `once` about its own."""
    counts = np.zeros(schema.size, dtype=np.int64)
    cells = _locate(file, schema, schema.grid.full, file.rows)
    if once and len(set(cells)) < len(cells):
        raise DataError(f"the table {file.name} gives one cell twice")
    for number, (cell, text) in enumerate(zip(cells, _texts(file.rows), strict=True), start=1):
        # So many digits fit into 64 bits; other digits than ASCII are more likely a slip.
        if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
            raise DataError(f"count {number} of {file.name} is no whole number")
        counts[cell] += int(text)
    return Table(schema, counts.reshape(schema.shape))


def read_record_file(path: Path) -> TableFile:
    """Return a CSV file of records, one per row, or with a column ``count``."""
    header, body = read_csv(path)
    if COUNT in header:
        return read_file(path, COUNT)
    rows = [(dict(zip(header, line, strict=True)), "1") for line in body]
    return TableFile(path.name, tuple(header), tuple(rows))
