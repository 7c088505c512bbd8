"""Features: what a column may hold, and the level that each of its values is.

A `Feature` has levels, or the edges of bins. How features form a table is in `schema`.
"""

import bisect
import contextlib
import datetime
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import DataError, SchemaError
from semidp.exact import Number, exact, plain
from semidp.geometry import Chain

TRUTH = ("false", "true")
"""The levels of truth values; beside exactly these, their words match in capitals or not."""


@frozen
class Depth:
    """One depth of a nested feature: its name, the label of each node, and the first leaf below each.

    >>> Feature.nested(["state", "county"], [("a", "x"), ("a", "y"), ("b", "z")]).depths[0]
    Depth(name='state', labels=('a', 'b'), starts=(0, 2))
    """

    name: str
    labels: tuple[str, ...]
    starts: tuple[int, ...]


def _levels(values: Iterable[object]) -> tuple[str, ...]:
    return tuple(level_text(level) for level in values)


def _bins(edges: Iterable[Number] | None) -> tuple[Any, ...] | None:
    return None if edges is None else tuple(edges)


@frozen(slots=False)
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
    levels: tuple[str, ...] = field(default=(), converter=_levels)
    bins: tuple[Fraction | float, ...] | None = field(default=None, converter=_bins)
    null_level: str | None = None
    above: tuple[Depth, ...] = field(default=(), repr=False)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise SchemaError("a feature needs a name")
        levels = self.levels
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
        if not self.above and len(set(levels)) < len(levels):
            raise SchemaError(f"feature {self.name!r} lists a level twice")
        object.__setattr__(self, "levels", levels)

    @classmethod
    def nested(cls, names: Sequence[str], paths: Iterable[Sequence[str]]) -> "Feature":
        """Return a chain of depths, coarse to fine, from the path of each leaf: its label at every depth.

        Leaves are ordered so that every node is a range of them: by the order in which nodes first occur.

        >>> county = Feature.nested(["state", "county"], [("b", "z"), ("a", "x"), ("b", "y")])
        >>> county.levels, county.path(0), county.chain.size(1)
        (('z', 'y', 'x'), ('b', 'z'), 2)
        """
        names, rows = tuple(names), [tuple(level_text(label) for label in path) for path in paths]
        if len(names) < 2 or not all(names) or len(set(names)) < len(names):
            raise SchemaError("a nested feature needs two or more depths with names of their own, coarse to fine")
        if not rows:
            raise SchemaError(f"the nested feature {names[-1]!r} has no levels: list them, or give a lookup file")
        if any(len(row) != len(names) for row in rows):
            raise SchemaError(f"every level of {names[-1]!r} needs its label at each depth: {', '.join(names)}")
        if len(set(rows)) < len(rows):
            raise SchemaError(f"the nested feature {names[-1]!r} lists a level twice")
        seen: list[dict[tuple[str, ...], int]] = [{} for _ in names]
        for row in rows:
            for depth, order in enumerate(seen):
                order.setdefault(row[: depth + 1], len(order))
        rows.sort(key=lambda row: tuple(order[row[: depth + 1]] for depth, order in enumerate(seen)))
        above = []
        for depth, name in enumerate(names[:-1], start=1):
            starts = [i for i, row in enumerate(rows) if i == 0 or row[:depth] != rows[i - 1][:depth]]
            above.append(Depth(name, tuple(rows[i][depth - 1] for i in starts), tuple(starts)))
        return cls(names[-1], tuple(row[-1] for row in rows), above=tuple(above))

    @cached_property
    def depths(self) -> tuple[Depth, ...]:
        """The depths from coarse to fine; an ordinary feature has one."""
        return (*self.above, Depth(self.name, self.levels, tuple(range(len(self.levels)))))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the depths."""
        return tuple(depth.name for depth in self.depths)

    @cached_property
    def chain(self) -> Chain:
        """The depths as the geometry of margins sees them."""
        return Chain(len(self.levels), tuple(depth.starts for depth in self.depths))

    def path(self, leaf: int) -> tuple[str, ...]:
        """Return the label of a leaf at every depth."""
        return tuple(depth.labels[bisect.bisect_right(depth.starts, leaf) - 1] for depth in self.depths)

    def leaves_below(self, name: str) -> dict[str, list[int]]:
        """Return the leaves below each label at the depth of that name.

        >>> Feature.nested(["state", "county"], [("a", "x"), ("a", "y"), ("b", "z")]).leaves_below("state")
        {'a': [0, 1], 'b': [2]}
        """
        return self._leaves_below[self.names.index(name)]

    @cached_property
    def _leaves_below(self) -> list[dict[str, list[int]]]:
        found: list[dict[str, list[int]]] = [{} for _ in self.depths]
        for depth, labels in zip(self.depths, found, strict=True):
            for label, (start, end) in zip(
                depth.labels, itertools.pairwise((*depth.starts, len(self.levels))), strict=True
            ):
                labels.setdefault(label, []).extend(range(start, end))
        return found

    def at(self, depth: int) -> "Feature":
        """Return the feature cut at a depth: its nodes there become the levels.

        >>> Feature.nested(["state", "county"], [("a", "x"), ("a", "y"), ("b", "z")]).at(1)
        Feature(name='state', levels=('a', 'b'), bins=None, null_level=None)
        """
        if depth == len(self.depths):
            return self
        here = self.depths[depth - 1]
        above = tuple(
            Depth(d.name, d.labels, tuple(bisect.bisect_left(here.starts, start) for start in d.starts))
            for d in self.above[: depth - 1]
        )
        return Feature(here.name, here.labels, above=above)

    def codes(self, values: ArrayLike) -> NDArray[np.intp]:
        """Return the position of each value among the levels; refuse missing and unknown values.

        >>> Feature("sex", ["f", "m"]).codes(["m", "f", "m"])
        array([1, 0, 1])
        >>> Feature("age", bins=[0, 18, 65], null_level="unknown").codes([3, 70, None])
        array([0, 2, 3])
        >>> Feature("paid", ["true", "false"]).codes(["True", "FALSE", "true"])
        array([0, 1, 0])
        """
        column = np.asarray(values)
        missing = missing_values(column)
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
        texts = [level_text(value) for value in distinct]
        if set(self.levels) - {self.null_level} == set(TRUTH):
            texts = [text.lower() if text.lower() in TRUTH else text for text in texts]
        codes = np.array([position.get(text, -1) for text in texts], dtype=np.intp)
        return codes[inverse] if len(distinct) else np.zeros(0, dtype=np.intp)

    def to_json(self) -> dict[str, Any]:
        """Return the feature as plain values; `from_json` reads them back.

        >>> Feature("sex", ["f", "m"]).to_json()
        {'name': 'sex', 'levels': ['f', 'm']}
        """
        entry: dict[str, Any] = {"name": self.name}
        if self.bins is not None:
            entry["bins"] = [plain(edge) if isinstance(edge, Fraction) else str(edge) for edge in self.bins]
        else:
            entry["levels"] = list(self.levels)
        if self.null_level is not None:
            entry["null_level"] = self.null_level
        return entry

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "Feature":
        """Read what `to_json` wrote, or one ``[[feature]]`` of a schema file.

        >>> Feature.from_json({"name": "age", "bins": ["0", "18"]}).levels
        ('0 to <18', '18 and over')
        """
        unknown = set(entry) - {"name", "levels", "bins", "null_level"}
        if unknown:
            raise SchemaError(f"a feature has name, levels, bins and null_level, not {', '.join(sorted(unknown))}")
        levels = entry.get("levels", ())
        if isinstance(levels, str):
            raise SchemaError(f"the levels of feature {entry['name']!r} must be a list")
        return cls(entry["name"], tuple(levels), entry.get("bins"), entry.get("null_level"))


def level_text(value: object) -> str:
    """Write a data value as the text of a level: whole numbers without a point, truth values in lower case.

    Decimals print as the numbers they are and timestamps at midnight as dates, since engines differ in these types.
    Every engine follows this rule, so that one schema reads the same data alike everywhere.

    >>> level_text(1.0), level_text(True), level_text("north"), level_text(Decimal("1.50"))
    ('1', 'true', 'north', '1.5')
    >>> level_text(datetime.datetime(2020, 1, 2)), level_text(np.datetime64("2020-01-02T03:04"))
    ('2020-01-02', '2020-01-02 03:04:00')
    """
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, Decimal) and value.is_finite():
        return format(value.to_integral_value() if value == value.to_integral_value() else value.normalize(), "f")
    if isinstance(value, datetime.datetime):
        midnight = value.time() == datetime.time() and value.tzinfo is None
        return value.date().isoformat() if midnight else value.isoformat(sep=" ")
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value)


def missing_values(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each value of a column is missing: None, not a number, or the null of a data frame.

    >>> missing_values(np.array([1.0, np.nan])), missing_values(np.array(["f", None], dtype=object))
    (array([False,  True]), array([False,  True]))
    """
    if column.dtype.kind == "f":
        return np.asarray(np.isnan(column))
    if column.dtype.kind == "M":
        return np.asarray(np.isnat(column))
    if column.dtype.kind == "O":
        return np.array([_is_missing(value) for value in column], dtype=bool)
    return np.zeros(column.shape, dtype=bool)


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # the null of a data frame is neither equal to itself nor not
        return True


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
