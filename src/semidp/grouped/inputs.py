"""From data to what grouped statistics need: the published counts, a(t), and the confidential sums of an outcome.

What comes back beside a `Dataspace` is confidential and leaves this package only through a mechanism.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.engines import Outcome, Source, open_source
from semidp.errors import DataError, InputError
from semidp.queries import Design, MomentSpace, QuerySpace, SumSpace, outcome_adjacency, route_values
from semidp.spaces import Adjacency, Dataspace, Margin, normalised
from semidp.tables import TRUTH, Feature, Schema

SQUARE_STEPS = 100
"""The grid on which outcomes are squared has at most this many steps."""


@dataclass(frozen=True)
class Groups:
    """An open source of records, what is published about them, and how many of them move together."""

    source: Source
    dataspace: Dataspace
    adjacency: Adjacency


@contextmanager
def open_groups(
    data: Any, invariants: Sequence[Margin], features: Sequence[Feature] = (), adjacency: Adjacency | None = None
) -> Iterator[Groups]:
    """Open records and read the published counts.

    Parameters
    ----------
    data
        A `Source`, or what `open_source` takes. What is opened here is closed here.
    invariants
        The margins that are published exactly; they publish the levels of their features too.
    features
        Declared features; the others get the levels that occur.
    adjacency
        How many records may differ; a(t) unless given.

    Examples
    --------
    >>> records = {"ward": np.array(["a", "a", "b"]), "score": np.array([1.0, 2.0, 3.0])}
    >>> with open_groups(records, [Margin("ward")]) as groups:
    ...     groups.dataspace.value(Margin("ward")).counts.tolist(), groups.adjacency.a
    ([2, 1], 2)
    """
    if not any(margin.names for margin in invariants):
        raise InputError("grouped statistics need exact group counts: name at least one published margin")
    if isinstance(data, Source):
        yield _groups(data, invariants, features, adjacency)
        return
    with open_source(data) as source:
        yield _groups(source, invariants, features, adjacency)


def read_sums(source: Source, space: SumSpace) -> NDArray[np.int64]:
    """Return the confidential sums by group, in steps of the grid, block after block."""
    schema = space.dataspace.schema
    assert schema is not None
    parts = [source.sums(schema.restrict(block.names or schema.names[:1]), space.outcome) for block in space.blocks]
    whole = [part if block.names else part.sum() for part, block in zip(parts, space.blocks, strict=True)]
    return np.concatenate([np.ravel(part) for part in whole]).astype(np.int64)


def check_binary(source: Source, column: str) -> None:
    """Refuse a column that holds anything but zeros and ones (or false and true): it has no proportion of ones.

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
        f"a proportion needs zeros and ones, and {column!r} holds other values: publish a mean with declared bounds, "
        "or make it a column of zeros and ones"
    )


def read_moments(source: Source, space: QuerySpace, design: Design) -> NDArray[np.int64]:
    """Return the confidential values of a query that X'y of a design follows from, in steps of the grid."""
    assert isinstance(space, (SumSpace, MomentSpace))
    names = design.features or design.schema.names[:1]
    sums = source.sums(design.schema.restrict(names), space.outcome)
    return route_values(space, design, sums if design.features else np.array([sums.sum()]))


def read_squares(source: Source, outcome: Outcome) -> NDArray[np.int64]:
    """Return the confidential Σ y², in squared steps of `outcome`, from the counts of each step."""
    edges = [outcome.lower + outcome.width * (2 * step - 1) / 2 for step in range(1, outcome.steps + 1)]
    steps = Feature(outcome.column, bins=(float("-inf"), *edges))
    counts = source.counts(Schema((steps,))).counts
    return np.array([int(counts @ np.arange(len(counts), dtype=np.int64) ** 2)])


def squares_outcome(outcome: Outcome) -> Outcome:
    """Return the grid on which an outcome is squared: its own, or a coarser one."""
    return Outcome(outcome.column, outcome.lower, outcome.upper, min(outcome.steps, SQUARE_STEPS))


def _groups(
    source: Source, invariants: Sequence[Margin], features: Sequence[Feature], adjacency: Adjacency | None
) -> Groups:
    source.hold()
    declared = {name: feature for feature in features for name in feature.names}
    names = dict.fromkeys(name for margin in invariants for name in margin.names)
    parts = dict.fromkeys(declared[name] if name in declared else Feature(name, source.levels(name)) for name in names)
    schema = Schema(tuple(parts)).restrict(names)
    margins = normalised(schema, invariants)
    dataspace = Dataspace.known(schema, {margin: source.counts(schema.restrict(margin.names)) for margin in margins})
    return Groups(source, dataspace, outcome_adjacency(dataspace) if adjacency is None else adjacency)
