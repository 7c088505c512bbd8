"""Readers of confidential values: counts and sums over the features of a schema, whether an outcome
is binary, and its histogram by groups.

Their values leave this package only through a mechanism.
"""

import math
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from semidp.errors import DataError, InputError
from semidp.promise.confidential import Confidential
from semidp.promise.schema.features import TRUTH, Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema, Table, no_column, refuse_cells
from semidp.publish.sources.opening import Source


def check_binary(source: Source, column: str) -> None:
    """Refuse a column with values other than zeros and ones (or false and
    true).

    >>> from semidp import open_source
    >>> with open_source({"cured": np.array([0.0, 1.0, 0.5])}) as source:
    ...     check_binary(source, "cured")
    Traceback (most recent call last):
    semidp.errors.DataError: a proportion needs zeros and ones, and 'cured' holds other values: ...
    """
    # Missing values are let through here: reading the sums refuses them in its own words.
    for levels in (("0", "1"), TRUTH):
        try:
            source.counts(Schema([Feature(column, levels, null_level="missing")]))
            return
        except DataError as error:
            if f"feature {column!r}" not in str(error):  # a bad count column, say
                raise
    raise DataError(
        f"a proportion needs zeros and ones, and {column!r} holds other values: name the value"
        f" whose share is meant, as in '{column}=yes', or publish a mean with declared bounds"
    )


def read_histogram(
    source: Source, schema: Schema, names: Sequence[str], outcome: Outcome
) -> NDArray[np.int64]:
    """Return the confidential counts between the edges of an outcome in each group, one row
    per group.
    """
    part = schema.restrict(names) if names else None
    whole = Schema(
        (
            *(part.features if part else ()),
            Feature(outcome.column, bins=(-math.inf, *outcome.edges, math.inf)),
        ),
        part.structural_zeros if part else (),
    )
    refuse_cells(whole.shape)
    return source.counts(whole).counts.reshape(-1, len(outcome.edges) + 1)


# up to here one scan fills the joint table, and every margin is summed from it
_JOINT_CELLS = 2**24


def reads_jointly(schema: Schema) -> bool:
    """Whether all counts of a schema are summed from one joint table."""
    return schema.grid.holds(_JOINT_CELLS) or bool(schema.structural_zeros)


_LARGEST_VALUE = 2**57  # noise of any scale that is served, and the fit, find room above it


def conceal(name: str, values: NDArray[np.int64]) -> Confidential[NDArray[np.int64]]:
    """Return the values of a query as confidential ones. Numbers too large for noise to be
    added are refused, before any charge.

    Parameters
    ----------
    name
        The request for which they were read.
    values
        The values.
    """
    if values.size and max(-int(values.min()), int(values.max())) >= _LARGEST_VALUE:
        raise InputError(
            f"{name!r} has numbers beyond 2^57, which exact arithmetic here does not cover"
        )
    return Confidential(values)


@frozen(slots=False)
class Reader:
    """The confidential counts and sums of a source over any features of a schema.

    Counts come from one joint table if that is small; else those needed together are read
    together.
    """

    schema: Schema
    source: Source
    declared: tuple[Feature, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read for the features."""
        source_columns = self.source.columns()
        parts = self._readable(self.schema.names).features
        return tuple(name for feature in parts for name in feature.names if name in source_columns)

    @property
    def joint(self) -> bool:
        """Whether one query reads all counts."""
        return reads_jointly(self.schema)

    def table(self, features: Iterable[str]) -> Table:
        """Return the counts over some features."""
        names = tuple(features)
        return (
            self._joint_table if self.joint else self.source.counts(self._readable(names))
        ).margin(names)

    def tables(self, features: Iterable[Iterable[str]]) -> list[Table]:
        """Return the counts over several sets of features, read together."""
        name_sets = [tuple(names) for names in features]
        if self.joint:
            return [self._joint_table.margin(names) for names in name_sets]
        tables = self.source.tables([self._readable(names) for names in name_sets])
        return [table.margin(names) for table, names in zip(tables, name_sets, strict=True)]

    def check_binary(self, column: str) -> None:
        """Refuse a column that holds anything but zeros and ones."""
        check_binary(self.source, column)

    def sums(self, features: Iterable[str], outcome: Outcome) -> NDArray[np.int64]:
        """Return the sums of an outcome over some features (over all records if none), in steps of
        its grid.
        """
        names = tuple(features)
        schema = self._readable(names or self.schema.names[:1])
        sums = self.source.sums(schema, outcome)
        if not names:
            return np.array([sums.sum()])
        return schema.grid.sum(sums, schema.view(names)).reshape(self.schema.restrict(names).shape)

    def histogram(self, features: Iterable[str], outcome: Outcome) -> NDArray[np.int64]:
        """Return how many records of each group lie between the edges of an outcome, one row per
        group.

        Without features, all records are one group.
        """
        names = tuple(features)
        if not names:
            by_level = self.histogram(self.schema.names[:1], outcome)
            return np.asarray(by_level.sum(axis=0, keepdims=True))
        schema = self._readable(names)
        counts = read_histogram(self.source, schema, schema.names, outcome)
        table = counts.reshape((*schema.shape, -1))
        view = (*schema.view(names), 1)
        cells = len(outcome.edges) + 1
        labels = Feature(outcome.column, [str(cell) for cell in range(cells)])
        with_cells = Schema((*schema.features, labels))
        return with_cells.grid.sum(table, view).reshape(-1, cells)

    @cached_property
    def _joint_table(self) -> Table:
        return self.source.counts(self._readable(self.schema.names)).margin(self.schema.names)

    def _readable(self, names: Iterable[str]) -> Schema:
        """Return the schema of some features at depths that the data hold: a finer one where a
        column is missing.
        """
        part = self.schema.restrict(names)
        whole = {name: feature for feature in self.declared for name in feature.names}
        source_columns = self.source.columns()
        return Schema(
            tuple(
                cut_to_available(whole.get(feature.name, feature), feature.name, source_columns)
                for feature in part.features
            ),
            part.structural_zeros,
        )


def cut_to_available(feature: Feature, name: str, columns: Sequence[str]) -> Feature:
    """Return a declared feature cut at a named depth, or at the next finer one that the data
    hold.
    """
    first = feature.names.index(name)
    for depth, finer in enumerate(feature.names[first:], start=first + 1):
        if finer in columns:
            return feature.cut_to_depth(depth)
    raise no_column(name, columns)
