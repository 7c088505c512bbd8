"""From data to what grouped statistics need: the published counts, a(t), and the confidential sums of an outcome.

What comes back beside a `Dataspace` is confidential and leaves this package only through a mechanism.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.accounting.ledger import Ledger
from semidp.engines import Outcome, Source, open_source
from semidp.errors import DataError, InputError
from semidp.grouped.outcome_spread import SquareSums, square_mechanism, squared_steps
from semidp.mechanisms import Measurement, Mechanism
from semidp.noise import Randomness
from semidp.queries import Design, MomentSpace, QuerySpace, SumSpace, outcome_adjacency, route_values
from semidp.spaces import Adjacency, Dataspace, Margin, normalised
from semidp.tables import TRUTH, Feature, Schema, refuse_cells
from semidp.tradeoff import Budget

SQUARE_STEPS = 100
"""The grid on which outcomes are squared has at most this many steps."""


@dataclass(frozen=True)
class Groups:
    """An open source of records, what is published about them, how many move together; who is charged and draws."""

    source: Source
    dataspace: Dataspace
    adjacency: Adjacency
    ledger: Ledger | None
    randomness: Randomness | None

    @property
    def schema(self) -> Schema:
        """The published features."""
        assert self.dataspace.schema is not None
        return self.dataspace.schema

    def measure(
        self, label: str, mechanism: Mechanism, values: NDArray[np.int64], squares: "Squares | None" = None
    ) -> tuple[Measurement, SquareSums | None]:
        """Measure values, and the squares of an outcome by group where they have a budget; the ledger comes first."""
        if squares is None:
            self._charge(label, mechanism)
            return mechanism.measure(values, self.randomness), None
        grid, blocks = squares.grid, squares.blocks
        spread = square_mechanism(self.dataspace, self.adjacency, grid, squares.budget, blocks)
        counts = [read_histogram(self.source, self.schema, block.names, grid) for block in blocks]
        totals = np.concatenate([part @ squared_steps(grid.steps) for part in counts])
        self._charge(label, mechanism, spread)
        measured = mechanism.measure(values, self.randomness)
        return measured, SquareSums(grid, spread, spread.measure(totals, self.randomness))

    def _charge(self, label: str, *mechanisms: Mechanism) -> None:
        if self.ledger is not None:
            first, *others = (mechanism.guarantee for mechanism in mechanisms)
            self.ledger.charge(first.compose(*others), label, [mechanism.record() for mechanism in mechanisms])


@dataclass(frozen=True)
class Squares:
    """The squares of an outcome that are to be measured: on which grid, by which groups, at what budget."""

    grid: Outcome
    blocks: tuple[Margin, ...]
    budget: Budget


def squares_of(outcome: Outcome, blocks: Sequence[Margin], budget: Budget | None) -> Squares | None:
    """Return the squares to be measured, on a grid of at most 100 steps; None without a budget.

    >>> squares_of(Outcome("score", 0, 1, steps=1000), [Margin("ward")], Budget.gdp(1)).grid.steps
    100
    """
    if budget is None:
        return None
    grid = Outcome(outcome.column, outcome.lower, outcome.upper, min(outcome.steps, SQUARE_STEPS))
    return Squares(grid, tuple(blocks), budget)


@contextmanager
def open_groups(
    data: Any,
    invariants: Sequence[Margin],
    features: Sequence[Feature] = (),
    adjacency: Adjacency | None = None,
    ledger: Ledger | None = None,
    randomness: Randomness | None = None,
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
    ledger
        Charged before any noise is drawn.
    randomness
        Where random words come from; the operating system unless given.

    Examples
    --------
    >>> records = {"ward": np.array(["a", "a", "b"]), "score": np.array([1.0, 2.0, 3.0])}
    >>> with open_groups(records, [Margin("ward")]) as groups:
    ...     groups.dataspace.value(Margin("ward")).counts.tolist(), groups.adjacency.a
    ([2, 1], 2)
    """
    if not any(margin.names for margin in invariants):
        raise InputError("grouped statistics need exact group counts: name at least one published margin")
    declared = {name: feature for feature in features for name in feature.names}
    names = dict.fromkeys(name for margin in invariants for name in margin.names)
    with nullcontext(data) if isinstance(data, Source) else open_source(data) as source:
        source.hold()
        parts = dict.fromkeys(
            declared[name] if name in declared else Feature(name, source.levels(name)) for name in names
        )
        schema = Schema(tuple(parts)).restrict(names)
        margins = normalised(schema, invariants)
        public = Dataspace.known(schema, {margin: source.counts(schema.restrict(margin.names)) for margin in margins})
        near = outcome_adjacency(public) if adjacency is None else adjacency
        yield Groups(source, public, near, ledger, randomness)


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


def read_histogram(source: Source, schema: Schema, names: Sequence[str], outcome: Outcome) -> NDArray[np.int64]:
    """Return the confidential counts of each step of an outcome's grid in each group, a row a group."""
    edges = [outcome.lower + outcome.width * (2 * step - 1) / 2 for step in range(1, outcome.steps + 1)]
    part = schema.restrict(names) if names else None
    whole = Schema(
        (*(part.features if part else ()), Feature(outcome.column, bins=(float("-inf"), *edges))),
        part.structural_zeros if part else (),
    )
    refuse_cells(whole.shape)
    return source.counts(whole).counts.reshape(-1, outcome.steps + 1)
