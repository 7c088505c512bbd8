"""A published table of counts: whole numbers, estimates, standard errors and intervals, one number
per cell.

Every table is published in this form, however it was measured. Measuring is in
`statistics.tables`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
from attrs import asdict, evolve, field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.exact import count_noun
from semidp.promise.guarantee import Scope
from semidp.promise.schema.outcome import ALL_RECORDS
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.spaces.dataspace import RECORD, Dataspace
from semidp.promise.spaces.linked import MEMBER, UNIT
from semidp.publish.plotting import heatmap
from semidp.publish.results.columns import TABLE_MEANINGS, Columns, PublishedColumns, StoredFiles

UNNAMED = "table"
"""The name of a table that was given none and stands alone."""

_DIGITS = 1e6  # to which the ends of intervals are rounded outward
_SLACK = 1e-3  # of the last digit, which is more than a rounding error


class FitKind(StrEnum):
    """The published numbers: whole numbers that add up, or the measurement itself.

    >>> FitKind("none")
    <FitKind.none: 'none'>
    """

    integer = "integer"
    none = "none"


@frozen
class Fitted:
    """How the published table was made from the measurement, from public values
    only.
    """

    kind: str
    method: str
    loss: float
    bound: float
    optimal: bool
    note: str

    def __attrs_post_init__(self) -> None:
        texts = isinstance(self.method, str) and isinstance(self.note, str)
        one_of_the_kinds = self.kind in list(FitKind)
        numbers = _is_distance(self.loss) and _is_distance(self.bound)
        flag = isinstance(self.optimal, bool)
        if not (texts and one_of_the_kinds and numbers and flag):
            raise ValueError(
                "a fit has a kind, a method, two distances, whether it is optimal, and a note"
            )


def is_size(value: object) -> bool:
    """Whether a value is a number of at least 0, infinity included."""
    # Python takes True for 1.
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    # A float that is not a number fails the comparison.
    return value >= 0


def _is_distance(value: object) -> bool:
    # A bound may lie a rounding error below 0. What is not a number equals nothing.
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and value == value


@frozen(slots=False, eq=False, repr=False)
class PublishedTable(PublishedColumns):
    """A published table, however it was measured, one number per cell.

    Parameters
    ----------
    name, schema
        Its name, and its features and levels.
    counts
        The published counts: whole numbers, unless the plan asked for others or none exist,
        as `fitted` says.
    estimate
        The unbiased estimate, one real number per cell.
    standard_errors
        Of the estimate, cell by cell, from the noise alone. They do not belong to the fitted
        counts.
    fitted
        How the counts were made from the measurement.
    half_widths
        Half-widths of the 95% intervals of the estimate, cell by cell, from the noise distribution;
        None for tables of a million cells and more.
    order
        The positions of the features in the requested order, in which the table is shown and
        written (default: that of the schema).
    counted
        The kind of record that it counts, if the data hold several.

    Examples
    --------
    >>> import semidp
    >>> request = semidp.publish.TableRequest(["sex", "region"], semidp.Budget.gdp(1))
    >>> plan = semidp.Plan([request], [["sex", "region"]])
    >>> release = semidp.run(plan, {"sex": ["f", "m"], "region": ["n", "s"]})
    >>> release.tables[0].counts.tolist(), release["sex-region"]  # all of it is exact here
    ([[1, 0], [0, 1]], PublishedTable('table': sex × region, 4 cells))
    """

    name: str
    schema: Schema
    counts: NDArray[Any] = field(repr=False)
    estimate: NDArray[np.float64] = field(repr=False)
    standard_errors: NDArray[np.float64] = field(repr=False)
    fitted: Fitted
    half_widths: NDArray[np.float64] | None = field(default=None, repr=False)
    order: tuple[int, ...] = ()
    counted: str = RECORD

    def __repr__(self) -> str:
        names = " × ".join(self.as_asked().schema.names)
        return f"PublishedTable({self.name!r}: {names}, {count_noun(self.schema.size, 'cell')})"

    @property
    def is_named(self) -> bool:
        """Whether it has a name of its own."""
        return self.name != UNNAMED

    def asked_as(self, features: Iterable[str]) -> "PublishedTable":
        """Return the table to be shown with its features in the order in which they are named.

        >>> import semidp
        >>> tables = [
        ...     semidp.publish.TableRequest(["sex", "age"]),
        ...     semidp.publish.TableRequest(["region", "sex"]),
        ... ]
        >>> plan = semidp.Plan(
        ...     [semidp.publish.TablesRequest(tables, semidp.Budget.gdp(1))], levels_from_data=True
        ... )
        >>> people = {"sex": [*"ffm"], "age": [*"yoy"], "region": [*"nns"]}
        >>> release = semidp.run(plan, people)
        >>> release.tables[1].schema.names, list(release.tables[1].to_dict())[:2]
        (('sex', 'region'), ['region', 'sex'])
        """
        order = self.schema.order_axes(features)
        as_in_schema = order == tuple(range(len(order)))
        return evolve(self, order=() if as_in_schema else order)

    def as_asked(self) -> "PublishedTable":
        """Return the same cells with the axes in the order asked for."""
        if not self.order:
            return self
        half_widths = self.half_widths
        if half_widths is not None:
            half_widths = np.transpose(half_widths, self.order)
        features = [self.schema.features[axis] for axis in self.order]
        schema = Schema(features, self.schema.structural_zeros)
        counts = np.transpose(self.counts, self.order)
        estimate = np.transpose(self.estimate, self.order)
        errors = np.transpose(self.standard_errors, self.order)
        return PublishedTable(
            self.name,
            schema,
            counts,
            estimate,
            errors,
            self.fitted,
            half_widths,
            counted=self.counted,
        )

    def keeps(self, dataspace: Dataspace) -> bool:
        """Whether the published nonnegative whole numbers have every exact total."""
        return _has_exact_totals(self.schema, self.counts, dataspace.for_kind(self.counted))

    def columns(self) -> Columns:
        """Return one row per cell: the estimate and its standard error, the ends of its 95%
        interval, the count.

        The interval is from the noise alone and never clipped. Tables of a million cells and more
        leave it out.
        """
        shown = self.as_asked()
        named = {"estimate": shown.estimate, "standard_error": shown.standard_errors}
        if shown.half_widths is not None:
            low, high = interval_ends(shown.estimate, shown.half_widths)
            named |= {"estimate_low": low, "estimate_high": high}
        return Columns.of_cells(shown.schema, {**named, "count": shown.counts}, TABLE_MEANINGS)

    def plot(self, axes: Any = None) -> Any:
        """Draw the counts as a heat map, on matplotlib axes if given; return the figure."""
        shown = self.as_asked()
        return heatmap(shown.schema, shown.counts, axes)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the cells, as plain values."""
        largest = float(self.standard_errors.max(initial=0.0))
        return {
            "name": self.name,
            "features": list(self.schema.names),
            "largest_standard_error": largest,
            "fit": asdict(self.fitted),
        }

    @classmethod
    def read(
        cls, files: StoredFiles, name: str, schema: Schema, fitted: Fitted, counted: str = RECORD
    ) -> "PublishedTable":
        """Read the file of a table."""
        cells = read_cells(files, name, schema)
        estimate = cells["estimate"].astype(float)
        errors = cells["standard_error"].astype(float)
        half_widths = read_half_widths(cells)
        counts = cells["count"]
        table = cls(name, schema, counts, estimate, errors, fitted, half_widths, (), counted)
        return table.asked_as(names_in_file(files, name, schema))


def tables_by_features(
    tables: Iterable[PublishedTable],
) -> dict[tuple[str, ...], PublishedColumns]:
    """Return tables by their features; a nested feature by all its depths, and by its finest
    alone.

    Of two tables with the same features the later one is returned.
    """
    every = tuple(tables)
    by_finest: dict[tuple[str, ...], PublishedColumns] = {}
    for table in every:
        by_finest[tuple(feature.name for feature in table.schema.features)] = table
    return by_finest | {table.schema.names: table for table in every}


def interval_ends(
    estimate: NDArray[np.float64], half_widths: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the ends of intervals, rounded outward to six digits after the point.

    Coarse noise puts much of its probability on the ends themselves, which must not be missed by a
    rounding error. An end that lies on such a digit up to a rounding error (a thousandth of it) is
    that digit: the result does not depend on the order of additions, and no integer count lies in
    between.

    >>> [end.tolist() for end in interval_ends(np.array([2 / 3]), np.array([1 / 3]))]
    [[0.333333], [1.0]]
    """
    low = np.floor((estimate - half_widths) * _DIGITS + _SLACK) / _DIGITS
    high = np.ceil((estimate + half_widths) * _DIGITS - _SLACK) / _DIGITS
    return low + 0.0, high + 0.0  # no zero has a sign


def read_cells(files: StoredFiles, name: str, schema: Schema) -> dict[str, NDArray[Any]]:
    """Return the columns of a table's file, in the shape of the schema."""
    columns = files.numbers(name, len(schema.names))
    order = schema.order_axes(names_in_file(files, name, schema))
    shape = [schema.shape[axis] for axis in order]
    back = np.argsort(order)
    cells = {}
    for key, column in columns.items():
        cells[key] = np.transpose(column.reshape(shape), back)
    for column in cells.values():
        # false of what is not a number, too
        small_enough = np.abs(column) < 2.0**63
        if not small_enough.all():
            raise ValueError("a cell does not hold a number")
    return cells


def names_in_file(files: StoredFiles, name: str, schema: Schema) -> list[str]:
    """Return the labels of a table's file in their order; a `ValueError` where they are not those
    of the schema.
    """
    names = files.label_names(name, len(schema.names))
    if sorted(names) != sorted(schema.names):
        raise ValueError("a table has other features than its plan asks for")
    return names


def read_half_widths(cells: Mapping[str, NDArray[Any]]) -> NDArray[np.float64] | None:
    """Return the half-widths of the intervals of a table's file; refuse those that are not around
    the estimates.
    """
    if "estimate_low" not in cells:
        return None
    below = cells["estimate"] - cells["estimate_low"]
    above = cells["estimate_high"] - cells["estimate"]
    narrower = np.minimum(below, above)
    symmetric = np.allclose(below, above, rtol=1e-6, atol=3 / _DIGITS)
    # An end on a digit may lie inside of an estimate that is on it too but for a rounding error:
    # see `interval_ends`.
    inside = narrower < -1 / _DIGITS
    if not symmetric or inside.any():
        raise ValueError("the intervals are not those of the estimates")
    return np.asarray(np.maximum(narrower, 0.0), dtype=np.float64)


StoredFit = tuple[NDArray[Any], Fitted]
"""The published numbers of a table, and how they were fitted."""


class Contradiction(InputError):
    """Stored whole numbers do not add up to the exact totals."""


def refuse_contradiction(
    folder: Path,
    name: str,
    schema: Schema,
    counts: NDArray[Any],
    fitted: Fitted,
    counted: str,
    scope: Scope,
) -> None:
    """Refuse stored whole numbers of a table that are negative or miss an exact total."""
    public = scope.dataspace.for_kind(counted)
    if fitted.kind == "integer" and not _has_exact_totals(schema, counts, public):
        raise Contradiction(
            f"{folder} contradicts itself: {name!r} does not add up to the exact totals"
        )


def _has_exact_totals(schema: Schema, counts: NDArray[Any], dataspace: Dataspace) -> bool:
    """Whether whole numbers are not negative and have every exact total."""
    # no table of whole numbers was found, and the note says so
    if counts.dtype.kind != "i":
        return True
    public = dataspace.restrict_features(schema.names).coded_as(schema)
    return bool(counts.min() >= 0) and public.contains(Table(schema, counts))


@frozen(eq=False)
class FittedTable:
    """A published table, with what it was fitted to.

    Parameters
    ----------
    table, measure
        The table, and what it was fitted to: noisy counts, or estimates.
    field
        Where release.json states its fit.
    """

    table: PublishedTable
    measure: NDArray[Any]
    field: str


def file_stem(features: Iterable[str]) -> str:
    """Return features joined to a file name, without characters that file names may not have."""
    name = re.sub(r"[/\\\0]", "_", "-".join(features))
    # A feature may begin with a dot, and the name of a file may not.
    return f"_{name[1:]}" if name.startswith(".") else name


_COUNTS = {MEMBER: "members", UNIT: "units"}
_LONGEST = 120  # characters of a file's name; the features are in the file


@frozen(eq=False)
class ExactTotals:
    """The counts of one margin that is published exactly.

    Parameters
    ----------
    kind
        The kind of records that are counted.
    stem
        The name of its file, without the ending.
    table
        The counts.
    """

    kind: str
    stem: str
    table: Table

    @property
    def title(self) -> str:
        """Its title, by its features."""
        features = " × ".join(self.table.schema.names)
        return f"units by {features}" if self.kind == UNIT else features

    @property
    def counted(self) -> str:
        """The heading of the column of counts."""
        return _COUNTS.get(self.kind, "count")

    def columns(self) -> Columns:
        """Return a row for each cell."""
        # A feature may be called count, and two columns of a file may not.
        name = "exact_count" if "count" in self.table.schema.names else "count"
        meanings = {name: f"the exact number of {_COUNTS.get(self.kind, 'records')}"}
        return Columns.of_cells(self.table.schema, {name: self.table.counts}, meanings)


def exact_totals(dataspace: Dataspace, stems: Iterable[str] = ()) -> Iterator[ExactTotals]:
    """Yield all margins that are published exactly; `stems` are files that others have.

    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.spaces.dataspace import Margin
    >>> sexes = Table(Schema([Feature("sex", "fm")]), [3, 4])
    >>> space = Dataspace.from_table(sexes, [Margin("sex")])
    >>> [(total.stem, total.title) for total in exact_totals(space, ["Exact-sex"])]
    [('exact-sex-2', 'sex')]
    """
    # Some file systems tell no capitals apart.
    taken = {stem.casefold() for stem in stems}
    for kind in dataspace.kinds:
        for table in dataspace.for_kind(kind).totals:
            if table.schema.names == (ALL_RECORDS,):  # n alone
                continue
            whose = ("units",) if kind == UNIT else ()
            plain = file_stem(("exact", *whose, *table.schema.names))[:_LONGEST]
            stem, number = plain, 1
            while stem.casefold() in taken:
                number += 1
                stem = f"{plain}-{number}"
            taken.add(stem.casefold())
            yield ExactTotals(kind, stem, table)
