"""Schemas and tables of counts: what may occur, and how often it does.

A `Schema` declares features, their levels and the combinations that cannot occur; a `Table` is a dense array of
integer counts on a schema. Files and databases live in `engines`; which margins are public lives in `invariants`.
"""

import contextlib
import itertools
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semidp.errors import DataError, InputError, SchemaError
from semidp.exact import exact, plain
from semidp.files import toml_text

MAX_CELLS = 2**31  # a dense table beyond this would not fit in memory; 16 GiB of counts


@dataclass(frozen=True)
class Feature:
    """One categorical feature: its name and the levels it may take, in order.

    Parameters
    ----------
    name
        What the data call it.
    levels
        The values it may take, as text. Left out where `bins` are given.
    bins
        Increasing edges of a numeric feature. ``(0, 18, 65)`` means 0 to below 18, 18 to below 65, 65 and over;
        ``-inf`` as the first edge leaves the lowest bin open.
    null_level
        The level that stands for a missing value; added to the levels if it is not one of them. Without it a
        missing value is an error.

    Examples
    --------
    >>> Feature("sex", ["f", "m"]).levels
    ('f', 'm')
    >>> Feature("age", bins=[0, 18, 65]).levels
    ('0 to <18', '18 to <65', '65 and over')
    """

    name: str
    levels: tuple[str, ...] = ()
    bins: tuple[Fraction | float, ...] | None = None
    null_level: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise SchemaError("a feature needs a name")
        levels = tuple(level_text(level) for level in self.levels)
        if self.bins is not None:
            edges = _edges(self.name, self.bins)
            object.__setattr__(self, "bins", edges)
            labels = _bin_labels(edges)
            known = (labels, (*labels, self.null_level)) if self.null_level is not None else (labels,)
            if levels and levels not in known:
                raise SchemaError(f"feature {self.name!r} has both levels and bins: give one of them")
            levels = labels
        if self.null_level is not None and self.null_level not in levels:
            levels = (*levels, self.null_level)
        if not levels:
            raise SchemaError(f"feature {self.name!r} has no levels: list them, or give bins")
        if len(set(levels)) < len(levels):
            raise SchemaError(f"feature {self.name!r} lists a level twice")
        object.__setattr__(self, "levels", levels)

    def codes(self, values: ArrayLike) -> NDArray[np.intp]:
        """Return the position of each value among the levels; refuse missing and unknown values.

        >>> Feature("sex", ["f", "m"]).codes(["m", "f", "m"])
        array([1, 0, 1])
        >>> Feature("age", bins=[0, 18, 65], null_level="unknown").codes([3, 70, None])
        array([0, 2, 3])
        """
        column = np.asarray(values)
        missing = _missing(column)
        codes = np.full(column.shape, -1, dtype=np.intp)
        present = column[~missing]
        codes[~missing] = self._binned(present) if self.bins is not None else self._matched(present)
        if missing.any():
            if self.null_level is None:
                raise DataError(
                    f"feature {self.name!r} has missing values: declare a null level for it, or remove those records"
                )
            codes[missing] = self.levels.index(self.null_level)
        if (codes < 0).any():
            legal = "below its first bin" if self.bins is not None else "not among its declared levels"
            raise DataError(f"feature {self.name!r} has values {legal}: extend the schema, or correct the data")
        return codes

    def _binned(self, values: NDArray[Any]) -> NDArray[np.intp]:
        assert self.bins is not None
        numbers = None
        with contextlib.suppress(TypeError, ValueError):  # not raised from here: what is suppressed quotes a value
            numbers = values.astype(float)
        if numbers is None:
            raise DataError(f"feature {self.name!r} has bins but its values are not all numbers")
        edges = np.array([float(edge) for edge in self.bins])
        return np.minimum(np.searchsorted(edges, numbers, side="right") - 1, len(_bin_labels(self.bins)) - 1)

    def _matched(self, values: NDArray[Any]) -> NDArray[np.intp]:
        if values.dtype == object:
            values = np.array([level_text(value) for value in values], dtype=str)
        distinct, inverse = np.unique(values, return_inverse=True)
        position = {level: code for code, level in enumerate(self.levels)}
        codes = np.array([position.get(level_text(value), -1) for value in distinct], dtype=np.intp)
        return codes[inverse] if len(distinct) else np.zeros(0, dtype=np.intp)


@dataclass(frozen=True)
class StructuralZero:
    """A combination of levels that cannot occur, such as a married child.

    Each pair names a feature and one or several of its levels; a cell that matches every pair is impossible.
    Structural zeros are declared, never inferred from empty cells.

    >>> StructuralZero.of({"age": "child", "status": ["married", "widowed"]}).levels
    (('age', ('child',)), ('status', ('married', 'widowed')))
    """

    levels: tuple[tuple[str, tuple[str, ...]], ...]

    @classmethod
    def of(cls, pattern: Mapping[str, str | Sequence[str]]) -> "StructuralZero":
        """Build one from a mapping of feature to level or levels."""
        if not pattern:
            raise SchemaError("a structural zero must name at least one feature and level")
        return cls(
            tuple(
                (name, (levels,) if isinstance(levels, str) else tuple(level_text(level) for level in levels))
                for name, levels in sorted(pattern.items())
            )
        )


@dataclass(frozen=True)
class Schema:
    """The features of a table and the combinations that cannot occur.

    Examples
    --------
    >>> schema = Schema([Feature("sex", ["f", "m"]), Feature("region", ["n", "s", "w"])])
    >>> schema.names, schema.shape, schema.size
    (('sex', 'region'), (2, 3), 6)
    >>> schema.axis("town")
    Traceback (most recent call last):
    semidp.errors.SchemaError: there is no feature 'town'; the features are sex, region
    """

    features: tuple[Feature, ...]
    structural_zeros: tuple[StructuralZero, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", tuple(self.features))
        object.__setattr__(self, "structural_zeros", tuple(dict.fromkeys(self.structural_zeros)))
        if not self.features:
            raise SchemaError("a schema needs at least one feature")
        if len(set(self.names)) < len(self.names):
            raise SchemaError(f"a feature is listed twice among {', '.join(self.names)}")
        for zero in self.structural_zeros:
            for name, levels in zero.levels:
                for level in levels:
                    self.feature(name)
                    if level not in self.feature(name).levels:
                        there = ", ".join(self.feature(name).levels[:12])
                        raise SchemaError(
                            f"a structural zero names the level {level!r}, which feature {name!r} does not have; it "
                            f"has {there}{', …' if len(self.feature(name).levels) > 12 else ''}"
                        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The features' names, in order."""
        return tuple(feature.name for feature in self.features)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The number of levels of each feature."""
        return tuple(len(feature.levels) for feature in self.features)

    @property
    def size(self) -> int:
        """The number of cells, impossible ones included."""
        return math.prod(self.shape)

    def axis(self, name: str) -> int:
        """Return the position of a feature; an unknown name lists the ones there are."""
        if name not in self.names:
            raise SchemaError(f"there is no feature {name!r}; the features are {', '.join(self.names)}")
        return self.names.index(name)

    def axes(self, names: Iterable[str]) -> tuple[int, ...]:
        """Return the positions of several features, in the schema's order."""
        return tuple(sorted({self.axis(name) for name in names}))

    def feature(self, name: str) -> Feature:
        """Return a feature by its name."""
        return self.features[self.axis(name)]

    def restrict(self, names: Iterable[str]) -> "Schema":
        """Return the schema of the margin over `names`, in this schema's order.

        A structural zero survives where all its features do.
        """
        kept = [self.features[axis] for axis in self.axes(names)]
        left = {feature.name for feature in kept}
        zeros = [zero for zero in self.structural_zeros if {name for name, _ in zero.levels} <= left]
        return Schema(tuple(kept), tuple(zeros))

    @cached_property
    def possible(self) -> NDArray[np.bool_] | None:
        """Which cells can occur, or None where all can."""
        if not self.structural_zeros:
            return None
        mask = np.ones(self.shape, dtype=bool)
        for zero in self.structural_zeros:
            where: list[Any] = [slice(None)] * len(self.features)
            for name, levels in zero.levels:
                axis = self.axis(name)
                where[axis] = [self.features[axis].levels.index(level) for level in levels]
            mask[_box(where, self.shape)] = False
        mask.setflags(write=False)
        return mask

    def to_json(self) -> dict[str, Any]:
        """Return the schema as plain values; `from_json` reads them back."""
        return {
            "feature": [_feature_json(feature) for feature in self.features],
            "structural_zero": [{name: list(levels) for name, levels in zero.levels} for zero in self.structural_zeros],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Schema":
        """Read what `to_json` wrote, or what a TOML file holds.

        >>> schema = Schema([Feature("age", bins=[0, 18], null_level="?")])
        >>> Schema.from_json(schema.to_json()) == schema
        True
        """
        unknown = set(value) - {"feature", "structural_zero"}
        if unknown:
            raise SchemaError(f"a schema has the parts feature and structural_zero, not {', '.join(sorted(unknown))}")
        try:
            features = tuple(_feature_from_json(entry) for entry in value.get("feature", ()))
            zeros = tuple(StructuralZero.of(entry) for entry in value.get("structural_zero", ()))
        except (AttributeError, TypeError, KeyError):
            raise SchemaError(
                'each feature of a schema needs name = "…" and levels = ["…", …] or bins = [0, 18, 65]; '
                'each structural zero gives feature = "level"'
            ) from None
        return cls(features, zeros)

    def to_toml(self) -> str:
        """Write the schema as TOML.

        >>> print(Schema([Feature("sex", ["f", "m"])]).to_toml())
        [[feature]]
        name = "sex"
        levels = ["f", "m"]
        <BLANKLINE>
        """
        return toml_text({kind: entries for kind, entries in self.to_json().items() if entries})

    @classmethod
    def from_toml(cls, text: str) -> "Schema":
        """Read a schema from TOML text.

        >>> Schema.from_toml('[[feature]]\\nname = "age"\\nbins = [0, 18, 65]').shape
        (3,)
        """
        try:
            return cls.from_json(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise SchemaError(f"the schema is not valid TOML: {error}") from None


@dataclass(frozen=True, eq=False)
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
    counts: NDArray[np.int64] = field(repr=False)

    def __post_init__(self) -> None:
        if self.schema.size > MAX_CELLS:
            raise SchemaError(
                f"the table would have {self.schema.size:,} cells, and {MAX_CELLS:,} are handled: use fewer features"
            )
        counts = np.asarray(self.counts)
        if counts.dtype.kind not in "iu":
            whole = counts.dtype.kind == "f" and np.isfinite(counts).all() and (counts == np.floor(counts)).all()
            if not (whole and (np.abs(counts) < 2.0**53).all()):
                raise DataError("counts must be whole numbers")
        if counts.dtype.kind == "u" and (counts > np.iinfo(np.int64).max).any():
            raise DataError("a count does not fit in 63 bits")
        counts = np.array(counts, dtype=np.int64, order="C")
        if counts.shape != self.schema.shape:
            raise InputError(f"the counts have shape {counts.shape}, but the schema has shape {self.schema.shape}")
        if (counts < 0).any():
            raise DataError("counts must not be negative")
        if counts.size and counts.sum(dtype=float) >= 2.0**62:
            raise DataError("the counts sum to more than 2^62, which exact arithmetic here does not cover")
        possible = self.schema.possible
        if possible is not None and counts[~possible].any():
            raise DataError(
                "a cell declared impossible (a structural zero) has a count: correct the schema or the data"
            )
        counts.setflags(write=False)
        object.__setattr__(self, "counts", counts)

    @property
    def n(self) -> int:
        """The number of records."""
        return int(self.counts.sum())

    def margin(self, names: Iterable[str]) -> "Table":
        """Return the counts summed over every feature not in `names`."""
        names = list(names)
        kept = self.schema.axes(names)
        dropped = tuple(axis for axis in range(len(self.schema.shape)) if axis not in kept)
        return Table(self.schema.restrict(names), self.counts.sum(axis=dropped)) if kept else _total(self)

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
        parts = ", ".join(f"{feature.name}: {len(feature.levels)} levels" for feature in self.schema.features)
        return f"Table({parts})"

    @classmethod
    def from_frame(cls, frame: Any, schema: Schema, *, count: str | None = None) -> "Table":
        """Count the records of a data frame, or add up its column of counts.

        Parameters
        ----------
        frame
            Anything whose columns are reached as ``frame[name]``: a pandas or polars frame, an Arrow table, a
            mapping of names to arrays.
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
        columns = [feature.codes(_column(frame, feature.name)) for feature in schema.features]
        if len({len(column) for column in columns}) > 1:
            raise InputError("the columns of the data frame have different lengths")
        flat = np.ravel_multi_index(tuple(columns), schema.shape)
        counts = np.zeros(schema.size, dtype=np.int64)
        if count is None:
            counts += np.bincount(flat, minlength=schema.size)
        else:
            np.add.at(counts, flat, whole_counts(_column(frame, count), count))
        return cls(schema, counts.reshape(schema.shape))


def level_text(value: object) -> str:
    """Write a data value as the text of a level: whole numbers without a point, truth values in lower case.

    Every engine follows this rule, so that one schema reads the same data alike everywhere.

    >>> level_text(1.0), level_text(True), level_text("north")
    ('1', 'true', 'north')
    """
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value)


def whole_counts(values: ArrayLike, name: str) -> NDArray[np.int64]:
    """Return a column of counts as integers; refuse missing, negative and fractional ones.

    >>> whole_counts([1.0, 2.0], "people")
    array([1, 2])
    """
    column = np.asarray(values)
    try:
        numbers = column.astype(np.int64)
        good = not _missing(column).any() and (numbers == column.astype(float)).all() and (numbers >= 0).all()
    except (TypeError, ValueError, OverflowError):
        good = False
    if not good:
        raise DataError(f"the count column {name!r} must hold whole numbers of at least 0 and no missing values")
    return numbers


def _total(table: Table) -> Table:
    return Table(Schema((Feature("total", ("all",)),)), np.array([table.n]))


def _column(frame: Any, name: str) -> Any:
    try:
        return frame[name]
    except (KeyError, IndexError, TypeError):
        there = getattr(frame, "columns", None)
        names = [str(column) for column in (frame if there is None else there)]
        raise SchemaError(f"there is no column {name!r}; the columns are {', '.join(names)}") from None


def _missing(column: NDArray[Any]) -> NDArray[np.bool_]:
    if column.dtype.kind == "f":
        return np.asarray(np.isnan(column))
    if column.dtype.kind == "O":
        return np.array([value is None or value != value or str(value) == "<NA>" for value in column], dtype=bool)
    return np.zeros(column.shape, dtype=bool)


def _edges(name: str, bins: Iterable[Any]) -> tuple[Fraction | float, ...]:
    edges: list[Fraction | float] = []
    for position, edge in enumerate(bins):
        if position == 0 and str(edge).strip() == "-inf":
            edges.append(-math.inf)
        else:
            edges.append(exact(edge, f"a bin edge of {name!r}"))
    if not edges or any(low >= high for low, high in itertools.pairwise(edges)):
        raise SchemaError(f"the bins of {name!r} must be increasing numbers such as 0, 18, 65")
    return tuple(edges)


def _bin_labels(edges: tuple[Fraction | float, ...]) -> tuple[str, ...]:
    text = [plain(edge) if isinstance(edge, Fraction) else str(edge) for edge in edges]
    labels = [f"{low} to <{high}" for low, high in itertools.pairwise(text)] + [f"{text[-1]} and over"]
    if edges[0] == -math.inf:
        labels[0] = f"below {text[1]}" if len(text) > 1 else "any"
    return tuple(labels)


def _box(where: list[Any], shape: tuple[int, ...]) -> tuple[NDArray[np.intp], ...]:
    return np.ix_(*[np.arange(size)[part] for part, size in zip(where, shape, strict=True)])


def _feature_json(feature: Feature) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": feature.name}
    if feature.bins is not None:
        entry["bins"] = [plain(edge) if isinstance(edge, Fraction) else str(edge) for edge in feature.bins]
    else:
        entry["levels"] = list(feature.levels)
    if feature.null_level is not None:
        entry["null_level"] = feature.null_level
    return entry


def _feature_from_json(entry: Mapping[str, Any]) -> Feature:
    unknown = set(entry) - {"name", "levels", "bins", "null_level"}
    if unknown:
        raise SchemaError(f"a feature has name, levels, bins and null_level, not {', '.join(sorted(unknown))}")
    levels = entry.get("levels", ())
    if isinstance(levels, str):
        raise SchemaError(f"the levels of feature {entry['name']!r} must be a list")
    return Feature(entry["name"], tuple(levels), entry.get("bins"), entry.get("null_level"))
