"""Which datasets must be hard to tell
apart.

The semi-adjacent parameter a(t) is the number of records that must change together for one of them
to become anything else. It is a function of the published t, never of the data (`semi_adjacency`).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar, TypeVar

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.documents import Encodable
from semidp.promise.spaces.dataspace import Datasets, Dataspace
from semidp.promise.spaces.exchange_blocks import Blocks
from semidp.promise.spaces.protection import (
    AdjacencyWords,
    BallWords,
    ChangedUnits,
    ExchangeWords,
    Protection,
)

Answer = TypeVar("Answer")


class AdjacencyKind(StrEnum):
    """Names of the two adjacencies in files: `Ball` and `Exchange`."""

    ball = "ball"
    exchange = "exchange"


@frozen(repr=False)
class Adjacency(Encodable, ABC):
    """Which datasets must be hard to tell apart: a `Ball`, or an `Exchange`. Neither is the other
    (docs/exchange.md).

    Attributes
    ----------
    a
        The most records in which two adjacent datasets differ.
    kind
        How files name the relation.
    protects_groups
        Whether any `a` records that change at once are protected.
    protection
        Whom the promise is about if a person has several records; None if a record is a
        person.
    units
        The most units in which two adjacent datasets differ, if a whole unit of linked records is
        protected: `a` bounds only their members. None otherwise.

    Examples
    --------
    >>> (
    ...     Adjacency.from_json({"kind": "ball", "a": 3}),
    ...     Adjacency.from_json({"kind": "exchange", "a": 3}),
    ... )
    (Ball(a=3), Exchange(a=3))
    >>> print(Exchange(10, Protection("patient", 5, "stays")))
    exchange (one patient with up to 5 stays, up to 10 stays)
    """

    a: int
    protection: Protection | None = None
    units: ChangedUnits | None = None
    kind: ClassVar[AdjacencyKind]
    protects_groups: ClassVar[bool]

    def __attrs_post_init__(self) -> None:
        is_whole = isinstance(self.a, int) and not isinstance(self.a, bool)
        if not is_whole or self.a < 0:
            raise InputError(
                f"the adjacency parameter a must be a whole number of at least 0, not {self.a}"
            )

    @property
    @abstractmethod
    def words(self) -> AdjacencyWords:
        """What the relation is called in messages and reports."""

    def __str__(self) -> str:
        return self.words.name

    def __repr__(self) -> str:
        whose = "" if self.protection is None else f", {self.protection!r}"
        units = "" if self.units is None else f", {self.units!r}"
        return f"{type(self).__name__}(a={self.a}{whose}{units})"

    @property
    def times(self) -> int:
        """How many records of one person are set one after the other; 1 if a record is a
        person.
        """
        return 1 if self.protection is None else self.protection.times

    @property
    def most_records(self) -> int:
        """The most records that belong to one person, and may vary together in a sample."""
        return 1 if self.protection is None else self.protection.most

    @property
    @abstractmethod
    def most_moves(self) -> int:
        """The most successive moves from a dataset to an adjacent one."""

    @property
    def records_per_move(self) -> int:
        """The most records that one of these moves changes."""
        return self.a // self.most_moves

    @abstractmethod
    def by_kind(self, *, ball: Answer, exchange: Answer) -> Answer:
        """Return the answer for this relation.

        For callers with a separate proof for each relation: they name both, so none is
        forgotten.

        >>> Exchange(2).by_kind(ball="any records", exchange="one person")
        'one person'
        """

    @property
    @abstractmethod
    def swaps(self) -> int:
        """By how many records a cell of a 2 x 2 table can change if both margins are exact."""

    @abstractmethod
    def check(self, dataspace: Dataspace) -> None:
        """Refuse a dataspace on which the relation is not defined."""

    def covers(self, dataspace: Datasets, other: "Adjacency", other_space: Datasets) -> bool:
        """Whether every pair of `other` in its dataspace is provably a pair of this relation: IND'
        ⊆ IND.
        """
        fewer = other.count_changed_records(other_space) <= self.a and self._covers_units(other)
        return fewer and other_space.is_within(dataspace)

    def _covers_units(self, other: "Adjacency") -> bool:
        """Whether `other` changes no more units; a promise that bounds them and one that does not
        are not compared.
        """
        if self.units is None or other.units is None:
            return self.units is other.units
        return other.units.is_within(self.units)

    def count_changed_records(self, dataspace: Datasets) -> int:
        """Return the most records in which two adjacent datasets of a dataspace differ."""
        return self.a if dataspace.n is None else min(self.a, dataspace.n)

    @abstractmethod
    def steps(self, other: "Adjacency") -> int | None:
        """Return how many steps of this relation join the pairs of another one in D_t, None if
        that is not known.
        """

    @abstractmethod
    def changed_sums(self, counts: Sequence[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
        """Return the largest change of the sums of an outcome between 0 and 1 by published groups.

        Parameters
        ----------
        counts
            The published counts of each set of groups; the change has the same shapes, flat.
        """

    @abstractmethod
    def replaced_values(self, counts: Sequence[NDArray[np.int64]]) -> list[int]:
        """Return how many values of an outcome are replaced in each group at most, groups without
        any left out.
        """

    @staticmethod
    def from_kind(
        kind: str,
        a: int,
        protection: Protection | None = None,
        units: ChangedUnits | None = None,
    ) -> "Adjacency":
        """Return the relation that files call `kind`.

        >>> Adjacency.from_kind("exchange", 2)
        Exchange(a=2)
        """
        for relation in (Ball, Exchange):
            if relation.kind == kind:
                return relation(a, protection, units)
        raise InputError(f"the kind of an adjacency is ball or exchange, not {str(kind)[:40]!r}")


@frozen(repr=False)
class Ball(Adjacency):
    """A_a: two datasets are adjacent if at most `a` records differ (Hamming distance, replace
    one).

    For a person with up to m records, a is the most records that must change for all of theirs
    to be different: `semi_adjacency` gives m times what one record needs.

    >>> print(Ball(2))
    any 2 records
    """

    kind: ClassVar[AdjacencyKind] = AdjacencyKind.ball
    protects_groups: ClassVar[bool] = True

    @property
    def words(self) -> AdjacencyWords:
        """What the relation is called in messages and reports."""
        return BallWords(self.a, self.protection, self.units)

    def by_kind(self, *, ball: Answer, exchange: Answer) -> Answer:
        """Return the answer for any a records."""
        return ball

    @property
    def most_moves(self) -> int:
        """1: all records of a person change at once."""
        return 1

    @property
    def swaps(self) -> int:
        """Half of a: two records swap for each."""
        return self.a // 2

    def check(self, dataspace: Dataspace) -> None:
        """Accept every dataspace: records can differ in all of them."""

    def steps(self, other: Adjacency) -> int | None:
        """Return None: datasets between two members of D_t need not have the exact totals."""
        return None

    def changed_sums(self, counts: Sequence[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
        """Return a records of the largest groups that go from 0 to 1.

        >>> Ball(3).changed_sums([np.array([5, 2]), np.array([1, 4, 2])])
        [array([3, 0]), array([0, 3, 0])]
        """
        moves = []
        for sizes in counts:
            flat = sizes.ravel()
            order = np.argsort(-flat, kind="stable")
            largest_first = flat[order]
            before = np.cumsum(largest_first) - largest_first
            move = np.zeros(flat.shape, dtype=np.int64)
            changed = min(self.a, int(flat.sum()))
            move[order] = np.clip(changed - before, 0, largest_first)
            moves.append(move)
        return moves

    def replaced_values(self, counts: Sequence[NDArray[np.int64]]) -> list[int]:
        """Return the records of `changed_sums`: a records replace as many values."""
        values: list[int] = []
        for move in self.changed_sums(counts):
            values.extend(move[move > 0].tolist())
        return values


@frozen(repr=False)
class Exchange(Adjacency):
    """The exchanges of one person: others only hand over the published values that the person
    takes.

    In an exchange one person takes any possible value, and for each published block that
    changes, one other record takes over the old value (`exchange_blocks`). `a`
    is the most records that one exchange changes; every exchange lies in A_a of the same dataspace.

    A person with up to m records has m exchanges, one after the other: each sets one of the
    person's records, and its carriers are records that are not set yet (one always exists). So
    every norm is at most m times that of one exchange, and `a` is m times what one of them changes.

    >>> from semidp.promise.spaces.dataspace import Margin
    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema, Table
    >>> table = Table(Schema([Feature("sex", "fm"), Feature("ill", "yn")]), [[1, 1], [0, 1]])
    >>> public = Dataspace.from_table(table, [Margin("sex")])
    >>> exchange = Exchange.from_dataspace(public)
    >>> exchange
    Exchange(a=2)
    """

    kind: ClassVar[AdjacencyKind] = AdjacencyKind.exchange
    protects_groups: ClassVar[bool] = False

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.a % self.times:
            raise InputError(
                f"{self.times} exchanges change as many times the records of one, which {self.a}"
                " are not"
            )

    @classmethod
    def from_dataspace(
        cls, dataspace: Datasets, protection: Protection | None = None
    ) -> "Exchange":
        """Return the exchanges of a dataspace; refuse margins that overlap, and structural zeros
        that tie a margin to another feature.
        """
        times = 1 if protection is None else protection.times
        return cls(times * Blocks.from_dataspace(dataspace).reach, protection)

    @property
    def most_moves(self) -> int:
        """One exchange for each record of a person."""
        return self.times

    @property
    def words(self) -> AdjacencyWords:
        """What the relation is called in messages and reports."""
        return ExchangeWords(self.a, self.protection, self.units)

    def by_kind(self, *, ball: Answer, exchange: Answer) -> Answer:
        """Return the answer for exchanges."""
        return exchange

    @property
    def swaps(self) -> int:
        """One for each exchange: what a person leaves, a carrier fills, and nobody else moves."""
        return self.times

    def check(self, dataspace: Dataspace) -> None:
        """Refuse margins that share a feature, and structural zeros that tie a margin to another
        feature.
        """
        Blocks.from_dataspace(dataspace)

    def covers(self, dataspace: Datasets, other: Adjacency, other_space: Datasets) -> bool:
        """Whether `other` has the same exchanges, or changes one record alone; larger changes are
        never covered.
        """
        if other.count_changed_records(other_space) > 1 or other.units is not None:
            same_pairs = other.kind is self.kind and dataspace == other_space
            return same_pairs and other.times <= self.times and self._covers_units(other)
        return super().covers(dataspace, other, other_space)

    def steps(self, other: Adjacency) -> int | None:
        """Return a for A_a: datasets of D_t that differ in k records are joined by at most k
        exchanges.

        Over the records that differ each block has the same published values in both, so
        carriers can be found among them, and each step mends one. A step of a person with up to m
        records makes m of them.

        >>> Exchange(2).steps(Ball(4)), Exchange(6, Protection("patient", 3)).steps(Ball(4))
        (4, 2)
        """
        records = -(-other.a // self.times)
        return other.by_kind(ball=records, exchange=None)

    def changed_sums(self, counts: Sequence[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
        """Return a swap between two groups in each set that has several groups. If most sets
        have a single group, one outcome changes alone.

        A person with several records makes as many of them, in the largest groups; fewer do less.

        >>> Exchange(2).changed_sums([np.array([5, 2]), np.array([7])])
        [array([ 1, -1]), array([0])]
        >>> Exchange(6, Protection("patient", 3)).changed_sums([np.array([5, 2, 4])])
        [array([ 3,  0, -3])]
        """
        # One exchange does as much in any two groups; several need large ones.
        in_order = np.flatnonzero if self.times == 1 else _largest_first
        inhabited = [in_order(sizes) for sizes in counts]
        several = sum(len(groups) > 1 for groups in inhabited)
        single = sum(len(groups) == 1 for groups in inhabited)
        # carriers bring the upper bound along; else the outcome changes in place
        swaps = several >= single
        moves = []
        for sizes, groups in zip(counts, inhabited, strict=True):
            move = np.zeros(sizes.size, dtype=np.int64)
            if not swaps:
                move[groups[:1]] = self.times
            elif len(groups) > 1:
                move[groups[:2]] = [self.times, -self.times]
            moves.append(move)
        return moves

    def replaced_values(self, counts: Sequence[NDArray[np.int64]]) -> list[int]:
        """Return one value in two groups of each set that has two, and in the only group of any
        other: 2p + p'.

        Each of m exchanges replaces at most one value of a group, so m times these are the
        worst.

        >>> Exchange(2).replaced_values([np.array([5, 2]), np.array([7])])
        [1, 1, 1]
        """
        values: list[int] = []
        for sizes in counts:
            groups = int((sizes > 0).sum())
            values.extend([self.times] * min(groups, 2))
        return values


def _largest_first(sizes: NDArray[np.int64]) -> NDArray[np.intp]:
    """Flat positions of the groups with records: two of the largest first, in their order, then the
    others.
    """
    flat = sizes.ravel()
    order = np.argsort(-flat, kind="stable")
    two = np.sort(order[:2])
    cells = np.concatenate([two, order[2:]])
    return np.asarray(cells[flat[cells] > 0])
