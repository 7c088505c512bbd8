"""Schemas and tables: features with impossible combinations of levels, and counts of
them.

A schema holds no counts. A `Table` is dense, and its repr never shows a count. Files
and databases are read by `publish.sources`; which margins are public is in `spaces`.
"""

import contextlib
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import DataError, InputError, SchemaError, did_you_mean
from semidp.promise.documents import from_toml, toml_text
from semidp.promise.exact import list_some
from semidp.promise.schema.features import Feature, level_text, missing_values, value_text
from semidp.promise.schema.margins import MAX_AXES, Grid, View


@frozen
class StructuralZero:
    """A combination of levels that cannot occur, such as a married child.

    Each pair names a feature and one or several of its levels; a cell that matches every pair is
    impossible. Structural zeros are declared, never inferred from empty cells.

    >>> StructuralZero.from_pattern({"age": "child", "status": ["married", "widowed"]}).levels
    (('age', ('child',)), ('status', ('married', 'widowed')))
    """

    levels: tuple[tuple[str, tuple[str, ...]], ...]

    @classmethod
    def from_pattern(cls, pattern: Mapping[str, str | Sequence[str]]) -> "StructuralZero":
        """Build one from a mapping of feature to level or levels."""
        if not pattern:
            raise SchemaError("a structural zero must name at least one feature and level")
        parts = []
        for name, levels in sorted(pattern.items()):
            several = (levels,) if isinstance(levels, str) else tuple(map(level_text, levels))
            parts.append((name, several))
        return cls(tuple(parts))

    def to_json(self) -> dict[str, list[str]]:
        """Return the mapping that `from_pattern` reads."""
        return {name: list(levels) for name, levels in self.levels}


def _features(features: Iterable[Feature]) -> tuple[Feature, ...]:
    listed = tuple(features) if isinstance(features, Iterable) else (features,)
    if not all(isinstance(feature, Feature) for feature in listed):
        raise SchemaError("the features of a schema are a list of Feature")
    return listed


def _distinct(zeros: Iterable[StructuralZero]) -> tuple[StructuralZero, ...]:
    return tuple(dict.fromkeys(zeros))


@frozen(slots=False)
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

    features: tuple[Feature, ...] = field(converter=_features)
    structural_zeros: tuple[StructuralZero, ...] = field(default=(), converter=_distinct)

    def __attrs_post_init__(self) -> None:
        if not self.features:
            raise SchemaError("a schema needs at least one feature")
        if len(set(self.names)) < len(self.names):
            raise SchemaError(f"a feature is listed twice among {', '.join(self.names)}")
        for name, level in self._zero_levels():
            levels = list(self.feature(name).leaves_below(name))
            if level not in levels:
                listed = ", ".join(levels[:12])
                more = ", …" if len(levels) > 12 else ""
                raise SchemaError(
                    f"a structural zero names the level {level!r}, which feature {name!r} does not"
                    f" have; it has {listed}{more}"
                )

    def _zero_levels(self) -> set[tuple[str, str]]:
        """Each feature and level that a structural zero names."""
        pairs: set[tuple[str, str]] = set()
        for zero in self.structural_zeros:
            for name, levels in zero.levels:
                pairs.update((name, level) for level in levels)
        return pairs

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the features, in order; a nested feature has one for each of its depths,
        coarse to fine.
        """
        return tuple(name for feature in self.features for name in feature.names)

    @cached_property
    def grid(self) -> Grid:
        """The cells and their margins."""
        return Grid(tuple(feature.chain for feature in self.features))

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The number of levels of each feature."""
        return tuple(len(feature.levels) for feature in self.features)

    @property
    def size(self) -> int:
        """The number of cells, impossible ones included."""
        return math.prod(self.shape)

    def axis(self, name: str) -> int:
        """Return the position of the feature with this name; the error for an unknown name lists
        all names.
        """
        return self._place(name)[0]

    def axes(self, names: Iterable[str]) -> tuple[int, ...]:
        """Return the positions of several features, in the schema's order."""
        return tuple(sorted({self.axis(name) for name in names}))

    def feature(self, name: str) -> Feature:
        """Return a feature by its name."""
        return self.features[self.axis(name)]

    def view(self, names: Iterable[str]) -> View:
        """Return the depth at which the margin over `names` has each feature; 0 if it has none.

        >>> places = Feature.from_paths(["state", "county"], [("a", "x"), ("b", "y")])
        >>> Schema([places, Feature("sex", "fm")]).view(["county"])
        (2, 0)
        """
        depths = [0] * len(self.features)
        for axis, depth in map(self._place, names):
            depths[axis] = max(depths[axis], depth)
        return tuple(depths)

    def list_view_names(self, view: View) -> tuple[str, ...]:
        """Return the names of a view, including implied ones: a county implies its state.

        >>> places = Feature.from_paths(["state", "county"], [("a", "x"), ("b", "y")])
        >>> Schema([places, Feature("sex", "fm")]).list_view_names((2, 0))
        ('state', 'county')
        """
        names: list[str] = []
        for feature, depth in zip(self.features, view, strict=True):
            names += feature.names[:depth]
        return tuple(names)

    def complete_names(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return names in the schema's order, with implied ones."""
        return self.list_view_names(self.view(names))

    def restrict(self, names: Iterable[str]) -> "Schema":
        """Return the schema of the margin over `names`, in this schema's order: features are
        dropped, or cut.

        A structural zero survives if all its features do.
        """
        view = self.view(names)
        features = []
        for feature, depth in zip(self.features, view, strict=True):
            if depth:
                features.append(feature.cut_to_depth(depth))
        left = {name for feature in features for name in feature.names}
        zeros = [zero for zero in self.structural_zeros if left.issuperset(dict(zero.levels))]
        return Schema(tuple(features), tuple(zeros))

    def order_axes(self, names: Iterable[str]) -> tuple[int, ...]:
        """Return the positions of the features in the order in which names mention them; others
        follow.

        >>> Schema(
        ...     [Feature("sex", "fm"), Feature("region", "ns"), Feature("age", "yo")]
        ... ).order_axes(["age", "sex"])
        (2, 0, 1)
        """
        mentioned = [self.axis(name) for name in names]
        return tuple(dict.fromkeys((*mentioned, *range(len(self.features)))))

    @cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        """Position of the feature of each name, and its depth there."""
        places = {}
        for axis, feature in enumerate(self.features):
            for depth, name in enumerate(feature.names, start=1):
                places[name] = (axis, depth)
        return places

    def _place(self, name: str) -> tuple[int, int]:
        if name not in self._places:
            raise SchemaError(
                f"there is no feature {name!r}; the features are {', '.join(self.names)}"
            )
        return self._places[name]

    @cached_property
    def possible(self) -> NDArray[np.bool_] | None:
        """Which cells can occur, or None if all can."""
        if not self.structural_zeros:
            return None
        mask = np.ones(self.shape, dtype=bool)
        # Zeros on the same features are marked together: a dataset may declare thousands.
        groups: dict[tuple[str, ...], list[tuple[tuple[str, ...], ...]]] = {}
        for zero in self.structural_zeros:
            names, levels = zip(*zero.levels, strict=True)
            groups.setdefault(names, []).append(levels)
        for names, zeros in groups.items():
            mask &= self._not_among(names, zeros)
        # one array serves everybody who asks
        mask.setflags(write=False)
        return mask

    @property
    def possible_cells(self) -> NDArray[np.bool_]:
        """Which cells can occur; never None."""
        return np.ones(self.shape, dtype=bool) if self.possible is None else self.possible

    def _not_among(
        self, names: tuple[str, ...], zeros: Sequence[tuple[tuple[str, ...], ...]]
    ) -> NDArray[np.bool_]:
        """Return a mask, broadcast along other features, of the cells that match none of the zeros
        on some names.
        """
        axes = [self.axis(name) for name in names]
        leaves_of = [self.feature(name).leaves_below(name) for name in names]
        sides = [1] * len(self.shape)
        for axis in axes:
            sides[axis] = self.shape[axis]
        # An axis of length one for features that no zero names: the mask broadcasts.
        part = np.ones(sides, dtype=bool)
        steps = [math.prod(sides[axis + 1 :]) for axis in axes]
        flat: list[int] = []
        for zero in zeros:
            # Offsets along one axis; two depths of one feature must both match.
            where: dict[int, set[int]] = {}
            for axis, step, leaves, levels in zip(axes, steps, leaves_of, zero, strict=True):
                offsets = {leaf * step for level in levels for leaf in leaves[level]}
                where[axis] = where[axis] & offsets if axis in where else offsets
            flat += map(sum, itertools.product(*where.values()))
        part.ravel()[flat] = False
        return part

    def to_json(self) -> dict[str, Any]:
        """Return the schema as plain values; `from_json` reads them back."""
        features = [feature.to_json() for feature in self.features]
        zeros = [zero.to_json() for zero in self.structural_zeros]
        return {"feature": features, "structural_zero": zeros}

    @classmethod
    def from_json(cls, value: Mapping[str, Any], folder: Path | None = None) -> "Schema":
        """Read what `to_json` wrote, or what a TOML file in `folder` holds.

        >>> schema = Schema([Feature("age", bins=[0, 18, 65], null_level="?")])
        >>> Schema.from_json(schema.to_json()) == schema
        True
        """
        unknown = set(value) - {"feature", "structural_zero"}
        if unknown:
            raise SchemaError(
                "a schema has the parts feature and structural_zero, not"
                f" {', '.join(sorted(unknown))}"
            )
        try:
            entries, zero_entries = value.get("feature", ()), value.get("structural_zero", ())
            features = tuple(Feature.from_json(entry, folder) for entry in entries)
            zeros = tuple(StructuralZero.from_pattern(entry) for entry in zero_entries)
        except (AttributeError, TypeError, KeyError):
            raise SchemaError(
                'each feature of a schema needs name = "…" and levels = ["…", …] or bins = [0, 18,'
                ' 65, inf]; each structural zero gives feature = "level"'
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
        parts = self.to_json().items()
        return toml_text({kind: entries for kind, entries in parts if entries})

    @classmethod
    def from_toml(cls, text: str, folder: Path | None = None) -> "Schema":
        """Read a schema from TOML text; lookup files are named as seen from `folder`.

        >>> Schema.from_toml('[[feature]]\\nname = "age"\\nbins = [0, 18, 65]').shape
        (2,)
        """
        return cls.from_json(toml_document(text), folder)


def toml_document(text: str) -> dict[str, Any]:
    """Return what the TOML text of a schema holds.

    >>> toml_document("= 3")
    Traceback (most recent call last):
    semidp.errors.SchemaError: the schema is not valid TOML: Invalid statement (at line 1, column 1)
    """
    try:
        return from_toml(text)
    except ValueError as error:
        raise SchemaError(f"the schema is not valid TOML: {str(error)[:200]}") from None


MAX_CELLS = 2**31  # a dense table beyond this would not fit in memory; 16 GiB of counts
_LISTED = 100  # columns in a message


def _integers(values: ArrayLike) -> NDArray[np.int64]:
    """Return counts as a read-only copy; refuse values that are not counts."""
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
                "the data contradict a rule, or have a count in a cell declared impossible (a"
                " structural zero): correct the rule, the schema or the data"
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
    """Return the error for a missing column; it lists the existing ones, quoted if one holds a
    comma.

    >>> no_column("town", ["sex", "region, old"])
    SchemaError("there is no column 'town'; the columns are sex, 'region, old'")
    """
    names = list(columns)
    quoted = [repr(column) if "," in column else column for column in names]
    listed = list_some(quoted, _LISTED)
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
