"""Tables: integer counts on a schema.

A `Table` is dense, and its repr never shows a count. Files and databases are read by `sources`.
"""

import contextlib
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import DataError, InputError, SchemaError, did_you_mean
from semidp.promise.schema.features import Feature, missing_values, value_text
from semidp.promise.schema.margins import MAX_AXES
from semidp.promise.schema.schema import Schema

MAX_CELLS = 2**31  # a dense table beyond this would not fit in memory; 16 GiB of counts
_LISTED = 100  # columns in a message


def _integers(values: ArrayLike) -> NDArray[np.int64]:
    """Return counts as an array of their own that cannot be written; refuse what is no count."""
    counts = np.asarray(values)
    if counts.dtype.kind not in "iu":
        finite = counts.dtype.kind == "f" and np.isfinite(counts).all()
        whole = finite and (counts == np.floor(counts)).all()
        if not (whole and (np.abs(counts) < 2.0**53).all()):
            raise DataError("counts must be whole numbers")
    if counts.dtype.kind == "u" and (counts > np.iinfo(np.int64).max).any():
        raise DataError("a count does not fit in 63 bits")
    counts = np.array(counts, dtype=np.int64, order="C")
    if (counts < 0).any():
        raise DataError("counts must not be negative")
    if counts.size and counts.sum(dtype=float) >= 2.0**62:
        raise DataError(
            "the counts sum to more than 2^62, which exact arithmetic here does not cover"
        )
    # A table is a value: its counts never change.
    counts.setflags(write=False)
    return counts


@frozen(slots=False, eq=False)
class Table:
    """Integer counts on a schema. Its repr shows the schema, never a count.

    Examples
    --------
    >>> schema = Schema([Feature("sex", ["f", "m"]), Feature("region", ["n", "s", "w"])])
    >>> table = Table(schema, [[1, 2, 3], [4, 5, 6]])
    >>> table
    Table(sex: 2 levels, region: 3 levels)
    >>> table.margin(["sex"]).counts
    array([ 6, 15])
    >>> table.n
    21
    """

    schema: Schema
    counts: NDArray[np.int64] = field(repr=False, converter=_integers)

    def __attrs_post_init__(self) -> None:
        refuse_cells(self.schema.shape)
        if self.counts.shape != self.schema.shape:
            raise InputError(
                f"the counts have shape {self.counts.shape}, but the schema has shape"
                f" {self.schema.shape}"
            )
        possible = self.schema.possible
        if possible is not None and self.counts[~possible].any():
            raise DataError(
                "a cell declared impossible (a structural zero) has a count: correct the schema or"
                " the data"
            )

    @property
    def n(self) -> int:
        """The number of records."""
        return int(self.counts.sum())

    def margin(self, names: Iterable[str]) -> "Table":
        """Return the counts summed over every feature not in `names`."""
        view = self.schema.view(names)
        if not any(view):
            return _total(self)
        part = self.schema.restrict(self.schema.list_view_names(view))
        counts = self.schema.grid.sum(self.counts, view)
        return Table(part, counts.reshape(part.shape))

    def __add__(self, other: "Table") -> "Table":
        if not isinstance(other, Table):
            return NotImplemented
        if other.schema != self.schema:
            raise InputError("two tables can be added only on the same schema")
        return Table(self.schema, self.counts + other.counts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Table):
            return NotImplemented
        return self.schema == other.schema and np.array_equal(self.counts, other.counts)

    def __hash__(self) -> int:
        return hash((self.schema, self.counts.tobytes()))

    def __repr__(self) -> str:
        parts = []
        for feature in self.schema.features:
            parts.append(f"{feature.name}: {len(feature.levels)} levels")
        return f"Table({', '.join(parts)})"

    @classmethod
    def from_frame(cls, frame: Any, schema: Schema, *, count: str | None = None) -> "Table":
        """Count the records of a data frame, or add up its column of counts.

        Parameters
        ----------
        frame
            Anything whose columns are reached as ``frame[name]``: a pandas or polars frame, an
            Arrow table, a mapping of names to arrays.
        schema
            The features to tabulate; other columns are ignored.
        count
            The column that holds counts, where each row stands for several records.

        Examples
        --------
        >>> schema = Schema([Feature("sex", ["f", "m"])])
        >>> Table.from_frame({"sex": ["f", "m", "m"]}, schema).counts
        array([1, 2])
        >>> Table.from_frame({"sex": ["f", "m"], "people": [10, 20]}, schema, count="people").counts
        array([10, 20])
        """
        refuse_cells(schema.shape)
        columns = _columns(frame, schema)
        codes = tuple(_positions(feature, columns) for feature in schema.features)
        flat = np.ravel_multi_index(codes, schema.shape)
        counts = np.zeros(schema.size, dtype=np.int64)
        if count is None:
            counts += np.bincount(flat, minlength=schema.size)
        else:
            np.add.at(counts, flat, _whole_counts(_column(frame, count), count))
        return cls(schema, counts.reshape(schema.shape))


def refuse_cells(shape: Iterable[int]) -> None:
    """Refuse a table of these sizes if it would be too large, before anything is counted for it.

    >>> refuse_cells([2] * 40)
    Traceback (most recent call last):
    semidp.errors.SchemaError: the table is too large: over 2,147,483,648 cells or 63 features; use
    fewer features
    """
    sizes = tuple(shape)
    if math.prod(sizes) > MAX_CELLS or len(sizes) > MAX_AXES:
        raise SchemaError(
            f"the table is too large: over {MAX_CELLS:,} cells or {MAX_AXES} features; use fewer"
            " features"
        )


def _whole_counts(values: ArrayLike, name: str) -> NDArray[np.int64]:
    """Return a column of counts as integers; refuse missing, negative and fractional ones.

    >>> _whole_counts([1.0, 2.0], "people")
    array([1, 2])
    """
    column = np.asarray(values)
    try:
        numbers = column.astype(np.int64)
        whole = (numbers == column.astype(float)).all()
        good = whole and (numbers >= 0).all() and not missing_values(column).any()
    except (TypeError, ValueError, OverflowError):
        good = False
    if not good:
        raise DataError(
            f"the count column {name!r} must hold whole numbers of at least 0 and no missing values"
        )
    return numbers


def no_column(name: str, columns: Iterable[str]) -> SchemaError:
    """Return the error for a column that is not there; it lists those that are, quoted where one
    holds a comma.

    >>> no_column("town", ["sex", "region, old"])
    SchemaError("there is no column 'town'; the columns are sex, 'region, old'")
    """
    names = list(columns)
    quoted = [repr(column) if "," in column else column for column in names]
    listed = ", ".join(quoted[:_LISTED])
    if len(quoted) > _LISTED:
        listed += f" and {len(quoted) - _LISTED:,} more"
    meant = did_you_mean(name, names)
    return SchemaError(f"there is no column {name!r}{meant}; the columns are {listed}")


def _total(table: Table) -> Table:
    """The number of records as a table with one cell."""
    schema = Schema((Feature("total", ("all",)),))
    return Table(schema, np.array([table.n]))


def _columns(frame: Any, schema: Schema) -> dict[str, NDArray[Any]]:
    """Return the columns of all features, and those of the parents of nested ones that are
    there.
    """
    columns = {}
    for feature in schema.features:
        columns[feature.name] = np.asarray(_column(frame, feature.name))
    # Parents of nested features may be missing: they follow from the declaration.
    for name in {*schema.names} - {*columns}:
        with contextlib.suppress(SchemaError):
            columns[name] = np.asarray(_column(frame, name))
    if len({len(column) for column in columns.values()}) > 1:
        raise InputError("the columns of the data frame have different lengths")
    return columns


def _positions(feature: Feature, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.intp]:
    """The leaf of each record."""
    if len(feature.names) == 1:
        return feature.codes(columns[feature.name])
    texts = {}
    for name in feature.names:
        if name in columns:
            texts[name] = [value_text(value) for value in columns[name]]
    return feature.locate_leaves(texts)


def _column(frame: Any, name: str) -> Any:
    try:
        return frame[name]
    except (KeyError, IndexError, TypeError):
        columns = getattr(frame, "columns", None)
        names = [str(column) for column in (frame if columns is None else columns)]
        raise no_column(name, names) from None
