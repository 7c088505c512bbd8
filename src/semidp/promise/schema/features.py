"""Features: what a column may hold, and the level that each of its values is.

A `Feature` has levels, or the edges of bins, or is a chain of depths: a county lies in a state. A
`Nest` names such a chain whose levels are still to be read. How features form a table is in
`schema`.
"""

import bisect
import contextlib
import csv
import datetime
import io
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import DataError, SchemaError, did_you_mean
from semidp.promise.exact import Number, exact, format_value, plain
from semidp.promise.progress import shorten_items
from semidp.promise.schema.margins import Chain

SIZE = "size"
"""The feature of a unit that counts its members."""
ANSWERED_SUFFIX = " answered"
"""The suffix of the feature that says who has a value of a column."""
TRUTH = ("false", "true")
"""The levels of truth values; next to exactly these, words match in any case."""
_LARGEST_EDGE = 10**300  # still a floating-point number, as are twice this and differences

LabelPath = tuple[str, ...]  # the labels of a node, from the coarsest depth down


@frozen
class Depth:
    """One depth of a nested feature: its name, the label of each node, and the first leaf below
    each.

    >>> Feature.from_paths(["state", "county"], [("a", "x"), ("a", "y"), ("b", "z")]).depths[0]
    Depth(name='state', labels=('a', 'b'), starts=(0, 2))
    """

    name: str
    labels: tuple[str, ...]
    starts: tuple[int, ...]


def _levels(values: Iterable[object]) -> tuple[str, ...]:
    return tuple(level_text(level) for level in values)


def _null_level(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise SchemaError(f'a null level is a level such as "unknown", not {format_value(value)}')
    return level_text(value)


def _bins(edges: Iterable[Number] | None) -> tuple[Any, ...] | None:
    return None if edges is None else tuple(edges)


def advise_numbers(column: str) -> str:
    """Return advice on values such as 1,200 or 12% or n/a; dropping their records would change
    exact counts.
    """
    return (
        "write numbers as 1200, 12.5 or 1e3, without separators, percent signs and units (an empty"
        f" cell is a missing value); or say how numbers are written (⟨read_as {column}=1.234,5⟩) or"
        " which codes stand for missing values (⟨na NA,-9⟩)"
    )


def missing_value(name: str) -> DataError:
    """Return the error for a missing value of a feature without a level for it."""
    return DataError(
        f"feature {name!r} has missing values: declare a null level for it",
        needs="null level",
        names=(name,),
    )


@frozen(slots=False)
class Feature:
    """One categorical feature: its name and the levels it may take, in order.

    Parameters
    ----------
    name
        The name of its column in the data.
    levels
        The values it may take, as text. Left out if `bins` are given.
    bins
        Increasing edges of a numeric feature. ``(0, 18, 65)`` means 0 to below 18 and 18 to 65, as
        in `numpy.histogram`: the last bin holds its last edge, and values outside are refused.
        ``-inf`` as the first edge and ``inf`` as the last one leave a bin open.
    null_level
        The level that stands for a missing value; added to the levels if it is not one of them.
        Without it a missing value is an error.
    finer
        Outcomes that are finer than the levels, by name: for each level the labels of the outcome
        below it, or nothing if these are not public.

    Examples
    --------
    >>> Feature("sex", ["f", "m"]).levels
    ('f', 'm')
    >>> Feature("age", bins=[0, 18, 65, 120]).levels
    ('0 to <18', '18 to <65', '65 to 120')
    >>> Feature("age", bins=[-math.inf, 18, math.inf]).levels
    ('below 18', '18 and over')
    """

    name: str
    levels: tuple[str, ...] = field(default=(), converter=_levels, repr=shorten_items)
    bins: tuple[Fraction | float, ...] | None = field(default=None, converter=_bins)
    null_level: str | None = field(default=None, converter=_null_level)
    above: tuple[Depth, ...] = field(default=(), repr=False)
    finer: tuple[tuple[str, tuple[LabelPath, ...]], ...] = field(default=(), repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise SchemaError("a feature needs a name")
        levels = self.levels
        if self.bins is not None:
            edges = _edges(self.name, self.bins)
            object.__setattr__(self, "bins", edges)
            labels = _bin_labels(edges)
            with_null = (*labels, self.null_level)
            if levels and levels not in (labels, with_null):
                raise SchemaError(
                    f"feature {self.name!r} has both levels and bins: give one of them"
                )
            levels = labels
        if self.null_level is not None and self.null_level not in levels:
            levels = (*levels, self.null_level)
        if not levels:
            raise SchemaError(f"feature {self.name!r} has no levels: list them, or give bins")
        if not self.above and len(set(levels)) < len(levels):
            raise SchemaError(f"feature {self.name!r} lists a level twice")
        object.__setattr__(self, "levels", levels)

    @classmethod
    def from_paths(
        cls,
        names: Sequence[str],
        paths: Iterable[Sequence[str]],
        *,
        repeat: bool = False,
        null_level: str | None = None,
    ) -> "Feature":
        """Return a chain of depths, coarse to fine, from the path of each leaf: its label at every
        depth.

        Leaves are ordered so that every node is a range of them: by the order in which nodes first
        occur. A label lies in one parent, unless names `repeat`: then a level is its path. A
        `null_level` is one more child of every node, and a missing parent is a path of them.

        >>> county = Feature.from_paths(["state", "county"], [("b", "z"), ("a", "x"), ("b", "y")])
        >>> county.levels, county.path(0), county.chain.size(1)
        (('z', 'y', 'x'), ('b', 'z'), 2)
        """
        names = Nest(tuple(names)).names
        rows = [_levels(path) for path in paths]
        if not rows:
            raise SchemaError(
                f"the nested feature {names[-1]!r} has no levels: list them, or give a lookup file"
            )
        if any(len(row) != len(names) for row in rows):
            depths = ", ".join(names)
            raise SchemaError(
                f"every level of {names[-1]!r} needs its label at each depth: {depths}"
            )
        if len(set(rows)) < len(rows):
            raise SchemaError(f"the nested feature {names[-1]!r} lists a level twice")
        if null_level is not None:
            rows = _with_missing(rows, null_level)
        # For each depth its nodes, as paths, in the order in which they first occur.
        orders: list[dict[LabelPath, int]] = []
        for depth in range(1, len(names) + 1):
            nodes = dict.fromkeys(row[:depth] for row in rows)
            orders.append({node: place for place, node in enumerate(nodes)})
        if not repeat:
            _refuse_repeated(names, orders, null_level)

        # Sorted by the order of first occurrence at each depth, every node is a range of leaves.
        def places(row: LabelPath) -> list[int]:
            return [order[row[:depth]] for depth, order in enumerate(orders, start=1)]

        rows.sort(key=places)
        above = []
        for depth, name in enumerate(names[:-1], start=1):
            above.append(_build_depth(name, rows, depth))
        leaves = tuple(row[-1] for row in rows)
        return cls(names[-1], leaves, null_level=null_level, above=tuple(above))

    @cached_property
    def depths(self) -> tuple[Depth, ...]:
        """The depths from coarse to fine; an ordinary feature has one."""
        leaves = range(len(self.levels))
        return (*self.above, Depth(self.name, self.levels, tuple(leaves)))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the depths."""
        return tuple(depth.name for depth in self.depths)

    @cached_property
    def chain(self) -> Chain:
        """The depths as the geometry of margins sees them."""
        starts = tuple(depth.starts for depth in self.depths)
        return Chain(len(self.levels), starts)

    def path(self, leaf: int) -> tuple[str, ...]:
        """Return the label of a leaf at every depth."""
        labels = []
        for depth in self.depths:
            node = bisect.bisect_right(depth.starts, leaf) - 1
            labels.append(depth.labels[node])
        return tuple(labels)

    def leaves_below(self, name: str) -> dict[str, list[int]]:
        """Return the leaves below each label of the depth `name`.

        >>> Feature.from_paths(
        ...     ["state", "county"], [("a", "x"), ("a", "y"), ("b", "z")]
        ... ).leaves_below("state")
        {'a': [0, 1], 'b': [2]}
        """
        return self._leaves_below[self.names.index(name)]

    @cached_property
    def _leaves_below(self) -> list[dict[str, list[int]]]:
        by_depth: list[dict[str, list[int]]] = []
        for depth in self.depths:
            leaves: dict[str, list[int]] = {}
            ends = (*depth.starts[1:], len(self.levels))
            for label, start, end in zip(depth.labels, depth.starts, ends, strict=True):
                leaves.setdefault(label, []).extend(range(start, end))
            by_depth.append(leaves)
        return by_depth

    def branch(self, depth: int, node: int) -> "Feature":
        """Return the feature restricted to the leaves below one node; every depth stays.

        >>> county = Feature.from_paths(["state", "county"], [("a", "x"), ("a", "y"), ("b", "z")])
        >>> county.branch(1, 0).paths()
        [('a', 'x'), ('a', 'y')]
        """
        leaves = self.chain.slice_descendants(depth, node, len(self.depths))
        starts = self.chain.branch(depth, node).starts
        # Above the cut every depth keeps the one label on the way to the node.
        path = self.path(leaves.start)
        labels: list[tuple[str, ...]] = []
        for place, coarser in enumerate(self.above, start=1):
            if place > depth:
                labels.append(coarser.labels[self.chain.slice_descendants(depth, node, place)])
            else:
                labels.append((path[place - 1],))
        above = tuple(map(Depth, self.names, labels, starts))
        return Feature(self.name, self.levels[leaves], null_level=self.null_level, above=above)

    def cut_to_depth(self, depth: int) -> "Feature":
        """Return the feature cut at a depth: its nodes there become the levels.

        >>> Feature.from_paths(
        ...     ["state", "county"], [("a", "x"), ("a", "y"), ("b", "z")]
        ... ).cut_to_depth(1)
        Feature(name='state', levels=('a', 'b'), bins=None, null_level=None)
        """
        if depth == len(self.depths):
            return self
        here = self.depths[depth - 1]
        above = []
        for coarser in self.above[: depth - 1]:
            starts = tuple(bisect.bisect_left(here.starts, start) for start in coarser.starts)
            above.append(Depth(coarser.name, coarser.labels, starts))
        return Feature(here.name, here.labels, null_level=self.null_level, above=tuple(above))

    def above_outcome(self, name: str, below: "Feature | None" = None) -> "Feature":
        """Return the feature with a finer outcome; `below` is the same feature down to the outcome,
        where its levels are public.

        >>> ages = Feature.from_paths(["band", "age"], [("a", "1"), ("a", "2"), ("b", "9")])
        >>> ages.cut_to_depth(1).above_outcome("age", ages).finer
        (('age', (('1', '2'), ('9',))),)
        """
        labels: list[LabelPath] = []
        if below is not None:
            for node in range(len(self.levels)):
                leaves = below.chain.slice_descendants(len(self.names), node, len(below.names))
                labels.append(below.levels[leaves])
        kept = [entry for entry in self.finer if entry[0] != name]
        return evolve(self, finer=(*kept, (name, tuple(labels))))

    def locate_leaves(self, columns: Mapping[str, Sequence[str | None]]) -> NDArray[np.intp]:
        """Return the leaf of each record of a nested feature, from the path's columns that are
        there as texts.

        The parents of a level follow from the declaration; where the data hold them too, they must
        agree.

        >>> county = Feature.from_paths(["state", "county"], [("a", "x"), ("a", "y"), ("b", "z")])
        >>> (
        ...     county.locate_leaves({"county": ["z", "x"]}),
        ...     county.locate_leaves({"state": ["a"], "county": ["y"]}),
        ... )
        (array([2, 0]), array([1]))
        >>> county.locate_leaves({"state": ["b"], "county": ["y"]})
        Traceback (most recent call last):
        semidp.errors.DataError: the data put a level of 'county' in another parent than the
        declaration: correct one
        """
        present = tuple(name for name in self.names if name in columns)
        leaves = self._index_leaves(present)
        rows = list(zip(*(columns[name] for name in present), strict=True))
        # Records repeat their labels: look at each combination once.
        distinct = dict.fromkeys(rows)
        if any(None in row for row in distinct):
            null = self.missing_level()
            rows = [_fill_missing_labels(row, null) for row in rows]
        positions = [leaves.get(row, -1) for row in rows]
        codes = np.array(positions, dtype=np.intp)
        if (codes < 0).any():
            finest_labels = {row[-1] for row in rows}
            if finest_labels <= {*self.levels}:
                raise DataError(
                    f"the data put a level of {self.name!r} in another parent than the declaration:"
                    " correct one"
                )
        return self.check_codes(codes)

    def _index_leaves(self, present: tuple[str, ...]) -> dict[tuple[str, ...], int]:
        """Return the leaf that the labels at some depths mean; a missing label, the one that is
        missing longest.
        """
        depths = [self.names.index(name) for name in present]
        leaves: dict[tuple[str, ...], int] = {}
        nulls: dict[tuple[str, ...], int] = {}
        for leaf, path in enumerate(self.paths()):
            key = tuple(path[depth] for depth in depths)
            missing = path.count(self.null_level or "")
            is_null = key[-1] == self.null_level
            # A missing label means the path that is missing from the coarsest depth on.
            if key not in leaves or (is_null and missing > nulls[key]):
                leaves[key], nulls[key] = leaf, missing
            elif not is_null:
                parents = ", ".join(name for name in self.names if name not in present)
                raise DataError(
                    f"the levels of {self.name!r} repeat, so the data must hold its parents too:"
                    f" {parents}"
                )
        return leaves

    def paths(self) -> list[tuple[str, ...]]:
        """Return the label of every leaf at every depth.

        >>> Feature.from_paths(["state", "county"], [("a", "x"), ("b", "z")]).paths()
        [('a', 'x'), ('b', 'z')]
        """
        return list(zip(*list_labels(self), strict=True))

    def codes(self, values: ArrayLike) -> NDArray[np.intp]:
        """Return the position of each value among the levels; refuse missing and unknown values.

        >>> Feature("sex", ["f", "m"]).codes(["m", "f", "m"])
        array([1, 0, 1])
        >>> Feature("age", bins=[0, 18, 65, 120], null_level="unknown").codes([3, 120, None])
        array([0, 2, 3])
        >>> Feature("paid", ["true", "false"]).codes(["True", "FALSE", "true"])
        array([0, 1, 0])
        """
        column = np.asarray(values)
        missing = missing_values(column)
        codes = np.full(column.shape, -1, dtype=np.intp)
        present = column[~missing]
        if self.bins is None:
            codes[~missing] = self._encode_levels(present)
        else:
            codes[~missing] = self._encode_bins(present)
        if missing.any():
            codes[missing] = self.levels.index(self.missing_level())
        return self.check_codes(codes)

    @cached_property
    def edges(self) -> tuple[float, ...]:
        """The lower edge of each bin; last, the edge beyond which numbers are in no bin."""
        *starts, end = map(float, self.bins or ())
        return (*starts, math.nextafter(end, math.inf)) if math.isfinite(end) else tuple(starts)

    def in_bins(self, numbers: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the numbers of bins, by `edges`, as positions among the levels; refuse numbers
        outside of all bins.
        """
        bins = len(self.bins or ()) - 1
        return self.check_codes(np.where(numbers < bins, numbers, -1))

    def missing_level(self) -> str:
        """Return the level of missing values; refuse them if none is declared."""
        if self.null_level is None:
            raise missing_value(self.name)
        return self.null_level

    def check_codes(self, codes: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return positions among the levels; refuse values without one. Their position is
        negative.
        """
        if (codes < 0).any():
            legal, needs = "not among its declared levels", "declared levels"
            if self.bins is not None:
                legal, needs = "outside its bins", "bins"
            raise DataError(
                f"feature {self.name!r} has values {legal}: extend the schema, or correct the data",
                needs=needs,
                names=(self.name,),
            )
        return codes

    def _encode_bins(self, values: NDArray[Any]) -> NDArray[np.intp]:
        numbers = None
        # not chained: the suppressed error quotes a value
        with contextlib.suppress(TypeError, ValueError):
            numbers = values.astype(float)
        if numbers is None:
            raise DataError(
                f"feature {self.name!r} has bins but its values are not all numbers:"
                f" {advise_numbers(self.name)}"
            )
        return self.in_bins(np.searchsorted(self.edges, numbers, side="right") - 1)

    def _encode_levels(self, values: NDArray[Any]) -> NDArray[np.intp]:
        distinct, inverse = values, None
        if values.dtype != object:
            # Each distinct value is looked up once, however many records have it.
            distinct, inverse = np.unique(values, return_inverse=True)
        position = {level: code for code, level in enumerate(self.levels)}
        texts = [level_text(value) for value in distinct]
        if set(self.levels) - {self.null_level} == set(TRUTH):
            # Engines write truth values in different capitals.
            lowered = [text.lower() for text in texts]
            texts = [
                low if low in TRUTH else text for low, text in zip(lowered, texts, strict=True)
            ]
        positions = [position.get(text, -1) for text in texts]
        codes = np.array(positions, dtype=np.intp)
        return codes if inverse is None else codes[inverse]

    def to_json(self) -> dict[str, Any]:
        """Return the feature as plain values; `from_json` reads them back.

        >>> Feature("sex", ["f", "m"]).to_json()
        {'name': 'sex', 'levels': ['f', 'm']}
        >>> Feature.from_paths(["state", "county"], [("a", "x"), ("b", "z")]).to_json()
        {'name': 'county', 'nest': ['state', 'county'], 'tree': {'a': ['x'], 'b': ['z']}}
        """
        entry: dict[str, Any] = {"name": self.name}
        if self.above:
            entry |= {"nest": list(self.names), "tree": _tree(self.paths())}
            if any(self._repeats(depth) for depth in self.depths):
                entry["names"] = "repeat"
        elif self.bins is not None:
            entry["bins"] = [_edge_text(edge) for edge in self.bins]
            if self.bins[-1] != math.inf:
                # says that the last bin is closed to readers who count edges
                entry["levels"] = list(_bin_labels(self.bins))
        else:
            entry["levels"] = list(self.levels)
        if self.null_level is not None:
            entry["null_level"] = self.null_level
        if self.finer:
            entry["finer"] = {name: list(map(list, below)) for name, below in self.finer}
        return entry

    def _repeats(self, depth: Depth) -> bool:
        """Whether two nodes of a depth have the same label, not counting missing values."""
        labels = [label for label in depth.labels if label != self.null_level]
        return len(set(labels)) < len(labels)

    @classmethod
    def from_json(cls, entry: Mapping[str, Any], folder: Path | None = None) -> "Feature":
        """Read what `to_json` wrote, or one ``[[feature]]`` of a schema file, whose lookup lies in
        `folder`.

        >>> Feature.from_json({"name": "age", "bins": ["0", "18", "inf"]}).levels
        ('0 to <18', '18 and over')
        """
        if "finer" in entry:
            plain_entry = {key: value for key, value in entry.items() if key != "finer"}
            finer = [(name, tuple(map(_levels, below))) for name, below in entry["finer"].items()]
            return evolve(cls.from_json(plain_entry, folder), finer=tuple(finer))
        keys = ("name", "levels", "bins", "null_level", *_NEST_KEYS)
        unknown = set(entry) - {*keys}
        if unknown:
            first = min(unknown)
            meant, listed = did_you_mean(first, keys), ", ".join(keys)
            raise SchemaError(f"a feature has no key {first!r}{meant}: its keys are {listed}")
        if not set(entry).isdisjoint(_NEST_KEYS):
            nest = Nest.from_json(entry)
            if "tree" in entry:
                return nest.feature(_paths(entry["tree"], nest.names))
            if "lookup" in entry:
                file = Path(folder or ".") / entry["lookup"]
                return nest.feature(_read_paths(file, nest))
            raise SchemaError(
                f"the nested feature {nest.names[-1]!r} needs its levels: give a tree or a lookup"
                " file"
            )
        levels = entry.get("levels", ())
        if isinstance(levels, str):
            raise SchemaError(f"the levels of feature {entry['name']!r} must be a list")
        bins, null_level = entry.get("bins"), entry.get("null_level")
        return cls(entry["name"], tuple(levels), bins, null_level)


_NEST_KEYS = ("nest", "tree", "lookup", "names")


def list_labels(feature: Feature) -> list[Sequence[str]]:
    """Return the labels of all leaves, depth by depth."""
    columns: list[Sequence[str]] = []
    for depth in feature.above:
        labels = np.array(depth.labels, dtype=object)
        sizes = np.diff((*depth.starts, len(feature.levels)))
        columns.append(np.repeat(labels, sizes).tolist())
    return [*columns, feature.levels]


@frozen
class Nest:
    """The names of the depths of a nested feature, coarse to fine, before its levels and parents
    are read.

    >>> Nest(("state", "county")).feature([("a", "x"), ("b", "z")]).levels
    ('x', 'z')
    """

    names: tuple[str, ...]
    repeat: bool = False
    null_level: str | None = field(default=None, converter=_null_level)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        good = all(isinstance(name, str) and name for name in self.names)
        unique = len(set(self.names)) == len(self.names)
        if len(self.names) < 2 or not good or not unique:
            raise SchemaError(
                "a nested feature needs two or more depths with names of their own, coarse to fine"
            )

    @property
    def name(self) -> str:
        """The name of the finest depth, which is the feature's."""
        return self.names[-1]

    def feature(self, paths: Iterable[Sequence[str]]) -> Feature:
        """Return the feature with these levels."""
        return Feature.from_paths(self.names, paths, repeat=self.repeat, null_level=self.null_level)

    def to_json(self) -> dict[str, Any]:
        """Return the names as plain values: a feature without levels."""
        entry: dict[str, Any] = {"name": self.name, "nest": list(self.names)}
        if self.repeat:
            entry["names"] = "repeat"
        if self.null_level is not None:
            entry["null_level"] = self.null_level
        return entry

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "Nest":
        """Read the names from one ``[[feature]]``.

        >>> Nest.from_json({"name": "county", "nest": ["state", "county"]}).names
        ('state', 'county')
        """
        names, repeat = entry.get("nest"), entry.get("names", "unique")
        if not isinstance(names, (list, tuple)) or not _named_finest(entry, names):
            raise SchemaError(
                'a nested feature has the name of its finest depth, and nest = ["state", "county"]'
            )
        both_sources = {"tree", "lookup"} <= set(entry)
        plain_keys = {"levels", "bins"} & set(entry)
        if repeat not in ("unique", "repeat") or plain_keys or both_sources:
            raise SchemaError(
                "a nested feature has one of tree and lookup, no levels or bins, and names ="
                ' "repeat"'
            )
        return cls(tuple(names), repeat == "repeat", entry.get("null_level"))


def _named_finest(entry: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Whether an entry has no name, or the name of its finest depth."""
    finest = names[-1:]
    return entry.get("name", finest) in (finest, *finest)


def _fill_missing_labels(row: Iterable[str | None], null: str) -> LabelPath:
    """A path with the level of missing values in place of missing labels."""
    return tuple(null if label is None else label for label in row)


def _with_missing(rows: list[LabelPath], null_level: str) -> list[LabelPath]:
    """Paths and, for each node, one more path that is missing below it."""
    depths = len(rows[0])
    nodes = dict.fromkeys(row[:depth] for row in rows for depth in range(depths))
    added = []
    for node in nodes:
        missing = [null_level] * (depths - len(node))
        added.append((*node, *missing))
    return list(dict.fromkeys((*rows, *added)))


def _refuse_repeated(
    names: Sequence[str], orders: Sequence[Iterable[LabelPath]], null_level: str | None
) -> None:
    """Refuse a label that lies in two parents."""
    for depth, nodes in enumerate(orders):
        every_label = [path[-1] for path in nodes]
        labels = [label for label in every_label if label != null_level]
        if len(set(labels)) < len(labels):
            fine, coarse = names[depth], names[depth - 1]
            raise SchemaError(
                f"a level of {fine!r} lies in more than one level of {coarse!r}:"
                ' correct that, or declare names = "repeat" where different ones share a name',
                needs="repeated names",
                names=tuple(names),
            )


def _build_depth(name: str, rows: Sequence[LabelPath], depth: int) -> Depth:
    """The nodes at one depth of sorted paths: their labels, and where each begins."""
    labels, starts = [], []
    before: LabelPath | None = None
    for place, row in enumerate(rows):
        node = row[:depth]
        if node != before:
            labels.append(node[-1])
            starts.append(place)
        before = node
    return Depth(name, tuple(labels), tuple(starts))


def _tree(paths: Sequence[tuple[str, ...]]) -> Any:
    """Return paths as a mapping of mappings, the finest labels as lists."""
    if len(paths[0]) == 1:
        return [label for (label,) in paths]
    tree = {}
    for label, below in itertools.groupby(paths, key=lambda path: path[0]):
        tree[label] = _tree([path[1:] for path in below])
    return tree


def _paths(tree: Any, names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the paths of what `_tree` wrote; refuse a parent without children."""
    if not tree and isinstance(tree, (Mapping, list, tuple)):
        raise SchemaError(
            f"the tree has a level without any {names[0]!r} below it: leave it out, or list them"
        )
    if len(names) == 1 and isinstance(tree, (list, tuple)):
        return [(level_text(label),) for label in tree]
    if len(names) == 1 or not isinstance(tree, Mapping):
        raise SchemaError(
            "a tree is a mapping of each level to those below it, which at the finest depth are a"
            " list"
        )
    paths = []
    for label, below in tree.items():
        text = level_text(label)
        for path in _paths(below, names[1:]):
            paths.append((text, *path))
    return paths


def _read_paths(file: Path, nest: Nest) -> list[tuple[str, ...]]:
    """Return the paths that a CSV file lists, one column per depth; other columns are ignored."""
    try:
        text = file.read_text(encoding="utf-8-sig")
        rows = [row for row in csv.reader(io.StringIO(text), strict=True) if row]
    except (OSError, UnicodeDecodeError, csv.Error):
        raise SchemaError(f"the lookup file {file} cannot be read as CSV") from None
    header = [name.strip() for name in rows[0]] if rows else []
    missing = [name for name in nest.names if header.count(name) != 1]
    if missing:
        raise SchemaError(
            f"the lookup file {file} needs one column for each depth, and for {missing[0]!r} it has"
            " none"
        )
    places = [header.index(name) for name in nest.names]
    paths: dict[tuple[str, ...], None] = {}
    for row in rows[1:]:
        path: tuple[str, ...] = ()
        if len(row) == len(header):
            labels = [row[place].strip() for place in places]
            path = tuple(label or nest.null_level or "" for label in labels)
        if not path or not all(path):
            raise SchemaError(
                f"the lookup file {file} has a row without a level at each depth:"
                f" {', '.join(nest.names)}"
            )
        paths[path] = None
    return list(paths)


def level_text(value: object) -> str:
    """Write a data value as the text of a level: whole numbers without a point, truth values in
    lower case.

    Decimals print as the numbers they are and timestamps at midnight as dates, since engines differ
    in these types. Every engine follows this rule, so one schema reads the same data alike
    everywhere.

    >>> level_text(1.0), level_text(True), level_text("north"), level_text(Decimal("1.50"))
    ('1', 'true', 'north', '1.5')
    >>> level_text(datetime.datetime(2020, 1, 2)), level_text(np.datetime64("2020-01-02T03:04"))
    ('2020-01-02', '2020-01-02 03:04:00')
    """
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, Decimal) and value.is_finite():
        whole = value.to_integral_value()
        return format(whole if value == whole else value.normalize(), "f")
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

    >>> (
    ...     missing_values(np.array([1.0, np.nan])),
    ...     missing_values(np.array(["f", None], dtype=object)),
    ... )
    (array([False,  True]), array([False,  True]))
    """
    if column.dtype.kind == "f":
        return np.asarray(np.isnan(column))
    if column.dtype.kind == "M":
        return np.asarray(np.isnat(column))
    if column.dtype.kind == "O":
        return np.array([_is_missing(value) for value in column], dtype=bool)
    return np.zeros(column.shape, dtype=bool)


def value_text(value: object) -> str | None:
    """Write a data value as the text of a level, by the rule of `level_text`; None if it is
    missing.

    >>> [value_text(value) for value in (2.0, True, math.nan)]
    ['2', 'true', None]
    """
    return None if _is_missing(value) else level_text(value)


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # the null of a data frame is neither equal to itself nor not
        return True


def bin_edges(text: str) -> tuple[str, ...]:
    """Split the edges of bins; an empty first or last edge leaves a bin
    open.

    >>> bin_edges("0, 18,65"), bin_edges(",18,65,")
    (('0', '18', '65'), ('-inf', '18', '65', 'inf'))
    """
    first, *later = (part.strip() for part in text.split(","))
    if not later:
        return (first,)
    *inner, last = later
    return (first or "-inf", *inner, last or "inf")


def _edges(name: str, bins: Iterable[Any]) -> tuple[Fraction | float, ...]:
    edges: list[Fraction | float] = []
    texts = list(bins)
    for position, edge in enumerate(texts):
        if position == 0 and str(edge).strip() == "-inf":
            edges.append(-math.inf)
        elif position == len(texts) - 1 and str(edge).strip() == "inf":
            edges.append(math.inf)
        else:
            edges.append(exact(edge, f"a bin edge of {name!r}"))
    exact_edges = [edge for edge in edges if isinstance(edge, Fraction)]
    if any(abs(edge) > _LARGEST_EDGE for edge in exact_edges):
        raise SchemaError(
            f"the bins of {name!r} must have edges between -1e300 and 1e300 (or -inf first, inf"
            " last)"
        )
    # Values are compared with edges as floating-point numbers, so edges must differ as such.
    rounded = [float(edge) for edge in edges]
    rising = all(low < high for low, high in itertools.pairwise(rounded))
    if len(edges) < 2 or not rising:
        raise SchemaError(
            f"the bins of {name!r} must be two or more increasing numbers such as 0, 18, 65, 120"
            " (or inf last, for no upper end)"
        )
    return tuple(edges)


def _bin_labels(edges: tuple[Fraction | float, ...]) -> tuple[str, ...]:
    texts = [_edge_text(edge) for edge in edges]
    labels = [f"{low} to <{high}" for low, high in itertools.pairwise(texts)]
    no_start, no_end = edges[0] == -math.inf, edges[-1] == math.inf
    labels[-1] = f"{texts[-2]} and over" if no_end else f"{texts[-2]} to {texts[-1]}"
    if no_start:
        labels[0] = f"below {texts[1]}"
    if no_start and len(labels) == 1:
        labels[0] = "any" if no_end else f"at most {texts[1]}"
    return tuple(labels)


def _edge_text(edge: Fraction | float) -> str:
    """A bin edge as text: a plain number, or an infinite one."""
    return plain(edge) if isinstance(edge, Fraction) else str(edge)
