"""What is published exactly, and the set of datasets that agree with it.

`Margin` names a public statistic. `Dataspace` is the set D_t of datasets that agree with the
published values t; `DescribedDatasets` is such a set known only by its name; `Datasets` is their
common interface.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, field, frozen

from semidp.errors import DataError, InputError, SchemaError
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import Totals, maximal
from semidp.promise.schema.outcome import ALL_RECORDS
from semidp.promise.schema.schema import Schema, Table

RECORD = "record"
"""The kind of record in data with one row per record. Linked data hold two: units and their
members."""


@frozen(init=False, repr=False)
class Margin:
    """A published margin: the counts over one feature, or over several jointly.

    Two margins over the same features are equal, in whatever order they are named; the margin over
    no feature is the total n, which is always public.

    >>> Margin("sex", "region") == Margin("region", "sex")
    True
    >>> print(Margin("sex", "region"))
    sex × region
    """

    names: tuple[str, ...] = field(eq=frozenset)

    def __init__(self, *names: str) -> None:
        if not all(isinstance(name, str) and name for name in names):
            raise InputError("a margin is named by its features, such as Margin('sex', 'region')")
        self.__attrs_init__(tuple(dict.fromkeys(names)))

    @classmethod
    def from_names(cls, value: "Margin | str | Iterable[str]") -> "Margin":
        """Return a margin from what a user may write for one: itself, a feature, or several
        features.

        >>> Margin.from_names("sex"), Margin.from_names(["sex", "region"])
        (Margin('sex'), Margin('sex', 'region'))
        """
        if isinstance(value, Margin):
            return value
        if isinstance(value, str):
            return cls(value)
        try:
            return cls(*value)
        except TypeError:
            raise InputError(
                f"a margin is one feature or several, such as Margin('sex'), not {value!r}"
            ) from None

    def __repr__(self) -> str:
        return f"Margin({', '.join(map(repr, self.names))})"

    def __str__(self) -> str:
        return " × ".join(self.names) if self.names else "total"

    def is_within(self, other: "Margin") -> bool:
        """Whether `other` publishes this margin too.

        >>> Margin("sex").is_within(Margin("sex", "region"))
        True
        """
        return {*self.names} <= {*other.names}

    def is_within_any(self, others: "Iterable[Margin]") -> bool:
        """Whether one of several margins publishes this one too.

        >>> Margin("sex").is_within_any([Margin("age"), Margin("sex", "region")])
        True
        """
        return any(self.is_within(other) for other in others)


def normalize_margins(schema: Schema, margins: Iterable[Margin]) -> tuple[Margin, ...]:
    """Return the margins in the schema's order, without those that another one contains.

    >>> from semidp.promise.schema.features import Feature
    >>> schema = Schema([Feature("sex", "fm"), Feature("region", "nsw")])
    >>> normalize_margins(schema, [Margin("region", "sex"), Margin("sex"), Margin()])
    (Margin('sex', 'region'),)
    """
    views = [schema.view(margin.names) for margin in margins]
    kept = maximal(views)
    return tuple(Margin(*schema.list_view_names(view)) for view in kept)


def merge_features(features: Iterable[Feature]) -> tuple[Feature, ...] | None:
    """Return features without repetitions, each chain in full; None if two contradict each
    other.
    """
    kept: list[Feature] = []
    for feature in features:
        names = {*feature.names}
        same = [place for place, old in enumerate(kept) if names & {*old.names}]
        if not same:
            kept.append(feature)
            continue
        old = kept[same[0]]
        upper, deeper = sorted((old, feature), key=lambda one: len(one.names))
        depth = len(upper.names)
        is_upper_part = upper.names == deeper.names[:depth] and deeper.cut_to_depth(depth) == upper
        if len(same) > 1 or not is_upper_part:
            return None
        # what is known about finer outcomes stays known; which labels lie where, of the deeper one
        for name, _ in upper.finer:
            if name not in {*deeper.names, *dict(deeper.finer)}:
                deeper = deeper.above_outcome(name)
        kept[same[0]] = deeper
    return tuple(kept)


def _reorder_table(total: Table, schema: Schema) -> Table:
    """Return a table with its features in the order of a schema."""
    part = schema.restrict(total.schema.names)
    place = {feature.name: axis for axis, feature in enumerate(total.schema.features)}
    axes = [place[feature.name] for feature in part.features]
    return Table(part, np.transpose(total.counts, axes))


def regroup_table(table: Table, schema: Schema) -> Table:
    """Return a table over the same leaves, in the order and with the depths that a schema gives
    them.

    >>> counts = Table(Schema([Feature("job", "abc")]), [1, 2, 3])
    >>> job = Feature.from_paths(["group", "job"], [("x", "c"), ("x", "a"), ("y", "b")])
    >>> regroup_table(counts, Schema([job])).margin(["group"]).counts.tolist()
    [4, 2]
    """
    part = schema.restrict(feature.name for feature in table.schema.features)
    place = {feature.name: axis for axis, feature in enumerate(table.schema.features)}
    axes = [place[feature.name] for feature in part.features]
    orders = []
    for axis, feature in zip(axes, part.features, strict=True):
        position = {label: at for at, label in enumerate(table.schema.features[axis].levels)}
        orders.append([position[label] for label in feature.levels])
    return Table(part, np.transpose(table.counts, axes)[np.ix_(*orders)])


class Datasets(ABC):
    """Datasets that agree with what is published exactly: what a guarantee is about.

    A `Dataspace` knows the features of a record and the published values; `DescribedDatasets` are
    known by name.

    Attributes
    ----------
    margins
        What is published; empty if only the number of records is, or nothing is known.
    totals
        The published values, a `Table` for each margin.
    n
        The number of records, None if it is not known.

    Examples
    --------
    >>> Dataspace.from_description("state totals").is_within(
    ...     Dataspace.from_description("county totals")
    ... )
    False
    """

    margins: tuple[Margin, ...]
    totals: tuple[Table, ...]
    n: int | None

    @abstractmethod
    def summary(self) -> str:
        """Say in a few words what is published."""

    @abstractmethod
    def publishes(self, margin: Margin) -> bool:
        """Whether a margin is published, by itself or as part of a finer one."""

    def value(self, margin: Margin) -> Table:
        """Return the published value of a margin, or refuse one that is not published."""
        raise InputError(f"{margin} is not published; published are {self.summary()}")

    def is_within(self, other: "Datasets") -> bool:
        """Whether every dataset of this space is provably one of `other`: D_t ⊆ D_t'."""
        return self == other

    def union(self, other: "Datasets") -> "Datasets | None":
        """Return the space in which everything that either publishes is exact; None if it is
        not known.
        """
        return self if self == other else None

    def with_features(self, schema: Schema) -> "Dataspace | None":
        """Return the same statistics about records with more features; None if the schema does
        not contain these.
        """
        return None

    @cached_property
    def digest(self) -> str:
        """A hash of everything that is published: spaces with equal digests are equal."""
        text = json.dumps(self._document(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _document(self) -> dict[str, Any]:
        """Content that the digest is taken of."""
        return self.to_json()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Datasets) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the space as plain values: everything in it is public."""


@frozen(slots=False, eq=False, repr=False)
class DescribedDatasets(Datasets):
    """Datasets known only by the name of what is published, comparable only with themselves.

    >>> DescribedDatasets("state totals") == Dataspace.from_description("state totals")
    True
    """

    description: str

    margins = ()
    totals = ()
    n = None

    def __attrs_post_init__(self) -> None:
        if not self.description:
            raise InputError("a dataspace without a schema needs a description")

    def __repr__(self) -> str:
        return f"DescribedDatasets({self.description!r})"

    def summary(self) -> str:
        """Return the description.

        >>> Dataspace.from_description("state totals").summary()
        'state totals'
        """
        return self.description

    def publishes(self, margin: Margin) -> bool:
        """Return False: nobody knows which margins the description means."""
        return False

    def to_json(self) -> dict[str, Any]:
        """Return the description as plain values."""
        return {"description": self.description}


def require_counts(dataspace: Datasets) -> "Dataspace":
    """Return a dataspace with features and totals; refuse one that is known only by its name."""
    if not isinstance(dataspace, Dataspace):
        raise InputError(
            "a dataspace that is only described has no counts: give its schema and margins"
        )
    return dataspace


def list_column_margins(dataspace: Datasets) -> list[Margin]:
    """Return the margins of columns of the data: that of all records says n alone."""
    return [margin for margin in dataspace.margins if margin != Margin(ALL_RECORDS)]


@frozen(slots=False, eq=False, repr=False)
class Dataspace(Datasets):
    """D_t: the datasets of n records whose published margins have the published values t.

    Parameters
    ----------
    schema
        The features of a record.
    margins
        What is published, nested margins dropped; empty if only n is public.
    totals
        The published values, a `Table` for each margin.
    n
        The number of records, always public.

    Examples
    --------
    >>> from semidp.promise.schema.features import Feature
    >>> schema = Schema([Feature("sex", "fm"), Feature("region", "nsw")])
    >>> table = Table(schema, [[1, 2, 3], [4, 5, 6]])
    >>> space = Dataspace.from_table(table, [Margin("sex"), Margin("region")])
    >>> space.n, space.value(Margin("sex")).counts.tolist()
    (21, [6, 15])
    >>> space.contains(Table(schema, [[2, 1, 3], [3, 6, 6]]))
    True
    """

    schema: Schema
    margins: tuple[Margin, ...]
    totals: tuple[Table, ...] = field(repr=False)
    n: int

    kinds: ClassVar[tuple[str, ...]] = (RECORD,)
    """The kinds of records that the data hold."""

    def __attrs_post_init__(self) -> None:
        if self.n is None or self.n < 0:
            raise InputError("a dataspace needs the number of records, at least 0")
        is_normalised = normalize_margins(self.schema, self.margins) == self.margins
        if not is_normalised or len(self.totals) != len(self.margins):
            raise InputError(
                "build a dataspace with Dataspace.from_table(table, margins) or"
                " Dataspace.from_totals(schema, values)"
            )
        for margin, total in zip(self.margins, self.totals, strict=True):
            if total.schema != self.schema.restrict(margin.names):
                raise SchemaError(f"the published values of {margin} do not fit the schema")
            if total.n != self.n:
                raise DataError(
                    f"the published values of {margin} do not add up to the number of records"
                )
        for one, total in zip(self.margins, self.totals, strict=True):
            for other, again in zip(self.margins, self.totals, strict=True):
                # closed: both name the coarser depths
                shared = [name for name in one.names if name in other.names]
                if not shared:
                    continue
                counts = total.margin(shared).counts
                if not np.array_equal(counts, again.margin(shared).counts):
                    raise DataError(
                        f"the published values of {one} and {other} contradict each other"
                    )

    @classmethod
    def from_table(cls, table: Table, margins: Iterable[Margin]) -> "Dataspace":
        """Return the space of datasets that agree with `table` on `margins`."""
        kept = normalize_margins(table.schema, margins)
        totals = tuple(table.margin(margin.names) for margin in kept)
        return cls(table.schema, kept, totals, table.n)

    @classmethod
    def from_totals(
        cls, schema: Schema, values: Mapping[Margin, Table], n: int | None = None
    ) -> "Dataspace":
        """Return the space with published values known from elsewhere.

        >>> from semidp.promise.schema.features import Feature
        >>> schema = Schema([Feature("sex", "fm"), Feature("region", "nsw")])
        >>> sexes = Table(schema.restrict(["sex"]), [6, 15])
        >>> Dataspace.from_totals(schema, {Margin("sex"): sexes}).n
        21
        """
        closed = {}
        for margin, table in values.items():
            closed[Margin(*schema.complete_names(margin.names))] = table
        kept = normalize_margins(schema, closed)
        totals = tuple(closed[margin] for margin in kept)
        if n is None:
            if not totals:
                raise InputError("the number of records n is always public: give it")
            n = totals[0].n
        return cls(schema, kept, totals, n)

    @staticmethod
    def from_description(text: str) -> DescribedDatasets:
        """Return datasets known only by name, comparable only with themselves.

        >>> Dataspace.from_description("state totals") == Dataspace.from_description("state totals")
        True
        """
        return DescribedDatasets(text)

    def __repr__(self) -> str:
        features = ", ".join(self.schema.names)
        return f"Dataspace({self.summary()} exact; {features}; n={self.n})"

    def value(self, margin: Margin) -> Table:
        """Return the published value of a margin (or of one nested in it)."""
        closed = Margin(*self.schema.complete_names(margin.names))
        for published, total in zip(self.margins, self.totals, strict=True):
            if closed.is_within(published):
                return total if closed == published else total.margin(closed.names)
        return super().value(margin)

    def publishes(self, margin: Margin) -> bool:
        """Whether a margin is published, by itself or as part of a finer one.

        >>> from semidp.promise.schema.features import Feature
        >>> table = Table(Schema([Feature("sex", "fm"), Feature("region", "ns")]), [[1, 2], [3, 4]])
        >>> Dataspace.from_table(table, [Margin("sex", "region")]).publishes(Margin("sex"))
        True
        """
        closed = Margin(*self.schema.complete_names(margin.names))
        # no features: the number of records, which is always public
        return not closed.names or closed.is_within_any(self.margins)

    def for_kind(self, kind: str) -> "Dataspace":
        """Return what is public about the records of one kind: their features, their number, their
        margins.

        A request names the kind of record that it counts, and gets its datasets here.

        >>> from semidp.promise.schema.features import Feature
        >>> space = Dataspace.from_table(
        ...     Table(Schema([Feature("sex", "fm")]), [3, 4]), [Margin("sex")]
        ... )
        >>> space.for_kind("record") is space
        True
        >>> space.for_kind("household")
        Traceback (most recent call last):
        semidp.errors.InputError: the data hold no records of the kind 'household'; they hold record
        """
        if kind not in self.kinds:
            raise InputError(
                f"the data hold no records of the kind {kind!r}; they hold {', '.join(self.kinds)}"
            )
        return self

    @cached_property
    def published_totals(self) -> tuple[Totals, ...]:
        """The published margins as arrays with an axis for each feature that they name, for the
        geometry of margins.
        """
        totals = []
        for margin, total in zip(self.margins, self.totals, strict=True):
            view = self.schema.view(margin.names)
            totals.append(Totals(view, total.counts))
        return tuple(totals)

    def restrict_features(self, names: Iterable[str]) -> "Dataspace":
        """Return the dataspace of the table over some features alone.

        >>> from semidp.promise.schema.features import Feature
        >>> table = Table(Schema([Feature("sex", "fm"), Feature("region", "ns")]), [[1, 2], [3, 4]])
        >>> Dataspace.from_table(table, [Margin("sex", "region")]).restrict_features(
        ...     ["region"]
        ... ).value(Margin("region")).counts
        array([4, 6])
        """
        part = self.schema.restrict(names)
        shared = []
        for margin in self.margins:
            names = [name for name in margin.names if name in part.names]
            shared.append(Margin(*names))
        values = {margin: self.value(margin) for margin in normalize_margins(part, shared)}
        return Dataspace.from_totals(part, values, self.n)

    def coded_as(self, schema: Schema) -> "Dataspace":
        """Return the same space with other levels for features that no exact total has.

        >>> from semidp.promise.schema.features import Feature
        >>> homes = Table(Schema([Feature("zone", "ab"), Feature("size", "123")]), np.ones((2, 3)))
        >>> coded = Schema([Feature("zone", "ab"), Feature("size", ["1", "2+"])])
        >>> Dataspace.from_table(homes, [Margin("zone")]).coded_as(coded).schema.shape
        (2, 2)
        """
        fixed = {name for margin in self.margins for name in margin.names}
        by_names = {feature.names: feature for feature in schema.features}
        features = []
        for feature in self.schema.features:
            # a coarser depth of a nested feature is not another coding
            free = len(feature.names) == 1 and feature.name not in fixed
            features.append(by_names.get(feature.names, feature) if free else feature)
        # Top codes are rare: most tables are published in the levels in which they were measured.
        if tuple(features) == tuple(self.schema.features):
            return self
        return evolve(self, schema=evolve(self.schema, features=features))

    def contains(self, table: Table) -> bool:
        """Whether a table is one of this space: same schema, same n, same published margins."""
        if table.schema != self.schema or table.n != self.n:
            return False
        for margin, total in zip(self.margins, self.totals, strict=True):
            if table.margin(margin.names) != total:
                return False
        return True

    def is_within(self, other: Datasets) -> bool:
        """Whether every dataset of this space is provably one of `other`: D_t ⊆ D_t'.

        True if all that `other` publishes follows from what this space publishes.
        """
        if self == other:
            return True
        if not isinstance(other, Dataspace) or self.kinds != other.kinds:
            return False
        if self.schema != other.schema or self.n != other.n:
            return False
        for margin, total in zip(other.margins, other.totals, strict=True):
            if not self.publishes(margin) or self.value(margin) != total:
                return False
        return True

    def union(self, other: Datasets) -> "Dataspace | None":
        """Return the space over the features of both where all that either publishes is published.

        Dropping features neither changes a published value nor moves two datasets further apart,
        so every pair of the union is a pair of each: what protects either space at some a
        protects the union at that a. None if the two are not about the same records: another
        number of them, other levels, values that contradict each other. Structural zeros may tie
        the features of both together, so with any the features must be the same.

        >>> from semidp.promise.schema.features import Feature
        >>> sexes = {Margin("sex"): Table(Schema([Feature("sex", "fm")]), [6, 15])}
        >>> ages = {Margin("age"): Table(Schema([Feature("age", "yo")]), [11, 10])}
        >>> regions = Dataspace.from_totals(
        ...     Schema([Feature("sex", "fm"), Feature("region", "ns")]), sexes
        ... )
        >>> both = regions.union(
        ...     Dataspace.from_totals(Schema([Feature("region", "ns"), Feature("age", "yo")]), ages)
        ... )
        >>> both.schema.names, both.summary()
        (('sex', 'region', 'age'), 'sex, age')
        """
        if self == other:
            return self
        # Of linked members more is public than their own totals: units, and bounds on their sizes.
        if not isinstance(other, Dataspace) or self.kinds != other.kinds:
            return None
        if self.n != other.n:
            return None
        features = merge_features((*self.schema.features, *other.schema.features))
        if features is None:
            return None
        zeros, theirs = self.schema.structural_zeros, other.schema.structural_zeros
        if zeros or theirs:
            same_features = {*self.schema.features} == {*other.schema.features}
            if {*zeros} != {*theirs} or not same_features:
                return None
        schema = Schema(features, zeros)
        told = []
        for one in (self, other):
            for margin, total in one._margin_total_pairs:
                told.append((margin, _reorder_table(total, schema)))
        try:
            space = Dataspace.from_totals(schema, dict(told), self.n)
        except DataError:
            return None
        # A margin that both publish must have the same values in both.
        agrees = all(space.value(margin) == total for margin, total in told)
        return space if agrees else None

    def with_features(self, schema: Schema) -> "Dataspace | None":
        """Return the same statistics about records with more features; None if the schema does
        not contain these.
        """
        if self.schema.structural_zeros or schema.structural_zeros:
            return self if self.schema == schema else None
        if merge_features((*schema.features, *self.schema.features)) != schema.features:
            return None
        values = {
            margin: _reorder_table(total, schema) for margin, total in self._margin_total_pairs
        }
        return Dataspace.from_totals(schema, values, self.n)

    def regroup(self, schema: Schema) -> "Dataspace | None":
        """Return the same totals of the same leaves under a schema that groups or orders them
        differently; None if it has other leaves, other impossible combinations, or lacks a depth
        that has totals.
        """
        ours = {feature.name: sorted(feature.levels) for feature in self.schema.features}
        theirs = {feature.name: sorted(feature.levels) for feature in schema.features}
        same_zeros = {*self.schema.structural_zeros} == {*schema.structural_zeros}
        named = {feature.name for total in self.totals for feature in total.schema.features}
        if ours != theirs or not same_zeros or not named <= set(ours):
            return None
        return self.with_bins(schema)

    def with_bins(self, schema: Schema) -> "Dataspace":
        """Return the same totals under a schema that groups the same leaves differently."""
        values = {}
        for total in self.totals:
            names = [feature.name for feature in total.schema.features]
            values[Margin(*names)] = regroup_table(total, schema)
        return Dataspace.from_totals(schema, values, self.n)

    @property
    def _margin_total_pairs(self) -> tuple[tuple[Margin, Table], ...]:
        return tuple(zip(self.margins, self.totals, strict=True))

    def summary(self) -> str:
        """Say in a few words what is published."""
        return ", ".join(map(str, list_column_margins(self))) or "the number of records"

    @cached_property
    def _values(self) -> list[tuple[list[str], list[int]]]:
        """Published values in an order that does not depend on how they are listed."""
        in_order = []
        for margin, total in zip(self.margins, self.totals, strict=True):
            # Axes by the names of their features, so the order of a schema does not matter.
            axes = np.argsort([feature.name for feature in total.schema.features])
            counts = np.transpose(total.counts, axes).ravel().tolist()
            in_order.append((sorted(margin.names), counts))
        return sorted(in_order)

    def _document(self) -> dict[str, Any]:
        """What the digest is taken of, whatever the order in which features and margins are
        listed.
        """
        document = self.to_json()
        for feature in document["schema"]["feature"]:
            if "tree" in feature:  # the order of leaves is that of the counts
                feature["tree"] = json.dumps(feature["tree"])
        in_order = {}
        for part, entries in document["schema"].items():
            in_order[part] = sorted(entries, key=json.dumps)
        document["schema"] = in_order
        document["margins"] = self._values
        return document

    def to_json(self) -> dict[str, Any]:
        """Return the space as plain values: everything in it is public."""
        margins = []
        for margin, total in zip(self.margins, self.totals, strict=True):
            counts = total.counts.ravel().tolist()
            margins.append({"features": list(margin.names), "counts": counts})
        return {"schema": self.schema.to_json(), "n": self.n, "margins": margins}
