"""What several releases of the same data guarantee together, and whether that fits a budget: pure
values.

An `Account` adds up charges under all exact totals; the file that stores them is a `Ledger`.
`tradeoff` combines curves; `mechanisms` recompute measurements.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, ClassVar, Protocol, TypeGuard

from attrs import evolve, field, frozen

from semidp.errors import AdjacencyUnknown, BudgetExceeded, Refused
from semidp.promise.accounting.periods import Periods
from semidp.promise.accounting.recorded_queries import mechanism_from_record
from semidp.promise.documents import Encodable, decode_fields
from semidp.promise.guarantee import Guarantee
from semidp.promise.spaces.adjacency import Adjacency, Ball, Exchange
from semidp.promise.spaces.dataspace import Datasets, Dataspace
from semidp.promise.spaces.linked import LinkedDataspace, linked_adjacency
from semidp.promise.spaces.protection import Protection
from semidp.promise.spaces.semi_adjacency import semi_adjacency
from semidp.promise.tradeoff.budget import Budget, approximate_group, pure_to_gdp
from semidp.promise.tradeoff.composition import Composed, Grouped, compose
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.polygons import Approximate
from semidp.promise.tradeoff.smooth import ZCDP, Gaussian


@frozen
class Charge(Encodable):
    """One entry: what was released, its curve as stated, and how many records that curve still has
    to be grouped by.

    Parameters
    ----------
    label, time
        What was released, and when.
    tradeoff
        The curve, for the pairs of datasets that the guarantee is about.
    group
        By how many records it is grouped under the ledger's adjacency.
    dataspace, adjacency
        What the guarantee is about.
    measured
        For each measurement its query and the distribution and scale of its noise
        (`Mechanism.record`): enough to find its curve under other exact statistics. Also the
        condition by which its records were chosen, if there was one.
    head
        The hash of this entry and of all before it.
    counted
        The curve under the ledger's present exact totals, if these differ from the
        guarantee's.
    run
        What the ledger records of the run that was charged (`Ledger.finish`); None if nothing.
    periods
        Periods of the data, in the ledger of a series.

    Examples
    --------
    >>> from semidp.promise.tradeoff.budget import zcdp
    >>> states, time = Dataspace.from_description("state totals"), "2021-08-12T00:00:00+00:00"
    >>> charge = Charge("redistricting", time, zcdp("2.56"), 2, states, Ball(2))
    >>> charge.spent
    ZCDP(rho=Fraction(256, 25))
    >>> charge.fixed_reason
    'its query was not recorded'
    """

    json_keys: ClassVar[Mapping[str, str | None]] = {"dataspace": None, "run": None}

    label: str
    time: str
    tradeoff: Tradeoff
    group: int
    dataspace: Datasets
    adjacency: Adjacency
    measured: tuple[Mapping[str, Any], ...] = ()
    head: str = ""
    counted: Tradeoff | None = None
    run: Mapping[str, Any] | None = field(default=None, eq=False)
    periods: Periods | None = None

    @property
    def spent(self) -> Tradeoff:
        """The curve under the ledger's exact statistics and adjacency."""
        return self.tradeoff.group(self.group) if self.counted is None else self.counted

    @property
    def fixed_reason(self) -> str | None:
        """Why the charge cannot be recomputed under other exact statistics; None if it can."""
        queries = [part.get("query") for part in self.measured]
        if not queries or None in queries:
            return "its query was not recorded"
        return None

    def is_for(self, guarantee: Guarantee) -> bool:
        """Whether this guarantee was charged."""
        if self.adjacency != guarantee.adjacency or not self._is_about(guarantee.dataspace):
            return False
        # The ledger and the release both hold the curve as JSON.
        return self.tradeoff.to_json() == guarantee.tradeoff.to_json()

    def _is_about(self, dataspace: Datasets) -> bool:
        """Whether the charge is about these datasets. Bins derived from its noisy results group the
        levels of a release afterwards, and do not change its datasets.
        """
        if self.dataspace == dataspace:
            return True
        if not isinstance(dataspace, Dataspace) or not isinstance(self.dataspace, Dataspace):
            return False
        return dataspace.regroup(self.dataspace.schema) == self.dataspace

    def under(
        self, dataspace: Datasets, adjacency: Adjacency, before: Guarantee | None = None
    ) -> "Charge":
        """Return the charge with its curve for other pairs: recomputed, or as stated where it
        covers them.

        Parameters
        ----------
        dataspace, adjacency
            The pairs. What the charge is about must be among the exact statistics.
        before
            The pairs for which the charge counts so far.

        Raises
        ------
        Refused
            If nothing is known about these pairs.
        """
        if (self.dataspace, self.adjacency) == (dataspace, adjacency):
            return evolve(self, group=1, counted=None)
        reason = self.fixed_reason
        if reason is None:
            try:
                parts = [
                    mechanism_from_record(part, dataspace, adjacency).tradeoff
                    for part in self.measured
                ]
                # computed for these very pairs: nothing is left to group
                return evolve(self, group=1, counted=compose(*parts))
            except Refused as refusal:
                reason = refusal.message
        # The query cannot be asked again, but the stated curve may hold for these pairs as it is.
        lifted = None
        if isinstance(dataspace, Dataspace):
            lifted = self.dataspace.with_features(dataspace.schema)
        if lifted is not None:
            stated = Guarantee(lifted, self.adjacency, self.tradeoff)
            if stated.covers(Guarantee(dataspace, adjacency, self.tradeoff)):
                return evolve(self, group=1, counted=None)
            # A promise for one record with nothing exact reaches further by group privacy.
            if stated.adjacency.a == 1 and stated.is_ordinary and dataspace.is_within(lifted):
                return evolve(self, group=adjacency.a, counted=None)
        if before is not None and before.covers(Guarantee(dataspace, adjacency, self.spent)):
            return self
        raise Refused(reason)

    def to_json(self) -> dict[str, Any]:
        """Return the entry as plain values; the dataspace by its digest."""
        return {**super().to_json(), "dataspace": self.dataspace.digest}

    @classmethod
    def from_entry(cls, value: Mapping[str, Any], dataspaces: Mapping[str, Datasets]) -> "Charge":
        """Read what `to_json` wrote, with the dataspaces of the ledger by their digests.

        >>> from semidp.promise.tradeoff.budget import zcdp
        >>> states = Dataspace.from_description("state totals")
        >>> charge = Charge("a table", "2026-01-01T00:00:00+00:00", zcdp(1), 1, states, Ball(2))
        >>> Charge.from_entry(charge.to_json(), {states.digest: states}) == charge
        True
        """
        if not _is_count(value["group"]):
            raise TypeError("a charge is grouped by a number of records")
        return cls(**decode_fields(cls, value), dataspace=dataspaces[value["dataspace"]])


@frozen
class Account:
    """Content of a ledger file at one moment.

    The dataspace and adjacency are those of the first charge, unless the ledger was created with
    its own. A charge about other features of the same records, or with further exact statistics,
    joins them: D_t of the union, and any a(t) records of it (at least the `opened` number, and as
    many as every charge protects), or its exchanges.

    >>> from semidp.promise.tradeoff.budget import zcdp
    >>> states, time = Dataspace.from_description("state totals"), "2026-01-01T00:00:00+00:00"
    >>> charge = Charge("a table", time, zcdp("0.1"), 2, states, Ball(2))
    >>> Account(Budget.zcdp(1), charges=(charge, charge)).semi_first()  # 2 · 2² · 0.1
    ZCDP(rho=Fraction(4, 5))
    """

    budget: Budget
    dataspace: Datasets | None = None
    adjacency: Adjacency | None = None
    charges: tuple[Charge, ...] = ()
    id: str = ""
    opened: tuple[Datasets, Adjacency] | None = None

    def semi_first(self) -> Tradeoff:
        """Return ``f1∘…∘f1 ⊗ … ⊗ fk∘…∘fk``: group each mechanism, then compose. This is what
        counts.
        """
        return compose(*(charge.spent for charge in self.charges))

    def composition_first(self) -> Tradeoff:
        """Return ``(f1 ⊗ … ⊗ fk)∘…∘(f1 ⊗ … ⊗ fk)``, never stronger than `semi_first` (Cho and Awan,
        Section 3.6).

        Charges that were calibrated under the invariant have no one-record curve and are composed
        as they are.
        """
        ready = [charge.spent for charge in self.charges if charge.group == 1]
        stated = [charge for charge in self.charges if charge.group > 1]
        if not stated:
            return compose(*ready)
        composed = compose(*(charge.tradeoff for charge in stated))
        return compose(*ready, composed.group(stated[0].group))

    def add_charge(
        self, guarantee: Guarantee, label: str, measured: Sequence[Mapping[str, Any]] = ()
    ) -> "Account":
        """Return the account after one more charge; refuse what does not add up, and more than the
        budget.
        """
        account = self.join_charge(guarantee, label, measured)
        if not fits([charge.spent for charge in account.charges], self.budget):
            raise BudgetExceeded(
                f"charging {label!r} would exceed the ledger's budget of {self.budget}: nothing was"
                " released or charged; ask for a smaller budget, or open a new ledger if the data"
                " are new"
            )
        return account

    def join_charge(
        self, guarantee: Guarantee, label: str, measured: Sequence[Mapping[str, Any]] = ()
    ) -> "Account":
        """Return the account after one more charge, whatever its budget; refuse what does not add
        up.
        """
        time = datetime.now(UTC).isoformat(timespec="seconds")
        return self._rebase(_charge(guarantee, label, time, measured), guarantee)

    def _rebase(self, charge: Charge, guarantee: Guarantee) -> "Account":
        """Return the account with one more charge, that of a guarantee, everything under the union
        of what is exact.
        """
        dataspace, adjacency = guarantee.dataspace, guarantee.adjacency
        if self.dataspace is None or self.adjacency is None:
            return evolve(self, dataspace=dataspace, adjacency=adjacency, charges=(charge,))
        refuse_other_persons(self.adjacency, adjacency)
        kinds = {self.adjacency.kind, adjacency.kind}
        if len(kinds) > 1 and not _joins_either_kind(guarantee):
            raise Refused(
                f"this ledger adds up guarantees for {self.adjacency}, and the new one is for"
                f" {adjacency}: ball and exchange are two promises and are not added up; ask"
                " for the ledger's adjacency, or use another ledger"
            )
        conditions = {part.get("where") for one in (*self.charges, charge) for part in one.measured}
        if len(conditions) > 1:
            raise Refused(
                "this ledger holds releases whose records were chosen by another condition, so that"
                " the new one is not about the same records: use another ledger"
            )
        union = self.dataspace.union(dataspace)
        if union is None:
            ours, theirs = self.dataspace.summary(), dataspace.summary()
            raise Refused(
                f"this ledger holds releases next to exact totals of {ours}, and exact totals of"
                f" {theirs} cannot be added to it: {_say_difference(self.dataspace, dataspace)}, or"
                " use another ledger (a series is the ledger of releases of several periods)"
            )
        before = Guarantee(self.dataspace, self.adjacency, charge.tradeoff)
        together = _join_adjacencies(union, guarantee, before, self)
        moved = (union, together) != (self.dataspace, self.adjacency)
        counted = []
        for number, one in enumerate((*self.charges, charge), start=1):
            new = one is charge
            # while the pairs stay the same, so do the curves of earlier charges
            if not new and not moved:
                counted.append(one)
                continue
            try:
                counted.append(one.under(union, together, None if new else before))
            except Refused as refusal:
                what = "the new guarantee" if new else f"charge {number} ({one.label!r})"
                exact = union.summary()
                raise Refused(
                    f"{what} does not add up with the others under {exact} and"
                    f" {together}: {refusal.message}; use another ledger, or start one whose"
                    " releases all have the same exact totals"
                ) from None
        return evolve(self, dataspace=union, adjacency=together, charges=tuple(counted))


def _say_difference(ours: Datasets, theirs: Datasets) -> str:
    """Say why the exact totals of two releases cannot be about the same records."""
    if not isinstance(ours, Dataspace) or not isinstance(theirs, Dataspace):
        return "they are not about the same kind of records; release the same kind"
    levels = {feature.name: feature for feature in ours.schema.features}
    names = [each.name for each in theirs.schema.features if levels.get(each.name, each) != each]
    if names:
        return (
            f"the levels of {', '.join(names)} are not the same in both; declare the same, in the"
            " same order"
        )
    return "the records or their totals are not the same in both; release the same records"


class Charged(Protocol):
    """The content of a ledger, for one dataset or for a series."""

    @property
    def id(self) -> str:
        """The random name of the ledger."""

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Its charges, in their order."""


def find_disagreement(
    account: Charged,
    entry: Mapping[str, Any] | None,
    guarantee: Guarantee | None = None,
    noise: str | None = None,
) -> str | None:
    """Return a sentence on how the entry that a release keeps of its charge disagrees with an
    account; None if it agrees.

    The hash in the entry covers the charge and all before it. So a charge that was removed, changed
    or inserted later shows in every release charged after it; a removed last charge shows in its
    own release. The hash says nothing about the release that holds it.

    Parameters
    ----------
    account
        What the ledger holds.
    entry
        What the release keeps of its charge.
    guarantee
        What the release states, which must be what was charged.
    noise
        Digest of its noisy values, which must be those that the charge paid for, if a run
        recorded them.

    Examples
    --------
    >>> find_disagreement(Account(Budget.zcdp(1)), {"ledger": "", "number": 1, "head": "0f"})
    'its charge is number 1, and the ledger holds 0'
    """
    if entry is None:
        return "it was charged to no ledger"
    if entry.get("ledger") != account.id:
        return "it was charged to another ledger"
    number, count = entry.get("number"), len(account.charges)
    if not _is_count(number):
        return "what it says of its charge is damaged"
    if number > count:
        return f"its charge is number {number}, and the ledger holds {count}"
    charge = account.charges[number - 1]
    if entry.get("head") != charge.head:
        return f"charge {number} of the ledger, or one before it, is not the one that was made"
    if guarantee is not None and not charge.is_for(guarantee):
        return f"charge {number} of the ledger is for another guarantee than it states"
    if noise is not None and charge.run is not None and charge.run["measured"] != noise:
        return f"charge {number} of the ledger paid for other noisy values than it holds"
    return None


def fits(curves: Sequence[Tradeoff], budget: Budget) -> bool:
    """Whether mechanisms provably stay within a budget together, even if each one and its curve
    were chosen from earlier results.

    Adaptively chosen curves do not compose: only numbers may be added up, whose sum stays within
    a limit fixed beforehand (a privacy filter). These are rho, mu², epsilon and delta
    (Rogers, Roth, Ullman and Vadhan 2016; Feldman and Zrnic 2021; Smith and Thakurta 2022). For a
    budget in (epsilon, delta) the first curve decides which of them, since nothing was seen before
    it.

    >>> from semidp.promise.tradeoff.budget import approximate, gaussian, zcdp
    >>> fits([gaussian(1)], Budget.zcdp("1/2")), fits([gaussian(1)], Budget.zcdp("0.49"))
    (True, False)
    >>> fits([approximate(1), approximate(1)], Budget.approximate(1, "0.35"))  # δ(1) = 0.34
    False
    >>> fits([zcdp(1)], Budget.pure(10))
    Traceback (most recent call last):
    semidp.errors.Refused: these mechanisms satisfy no pure guarantee: use a ledger with another
    kind of budget
    """
    total = compose(*curves)
    if budget.rho is not None:
        return _is_within_limit(total.implied_rho(), budget.rho, "zero-concentrated")
    if budget.mu is not None:
        # Squares of Gaussian parts are exact, so a budget can be spent to the end.
        square = square_of_mu(total)
        if square is None and len(curves) == 1:
            return total >= budget.tradeoff()
        return _is_within_limit(square, budget.mu**2, "Gaussian")
    assert budget.epsilon is not None, "a budget has rho, mu or epsilon"
    if not budget.delta:
        return _is_within_limit(total.implied_epsilon(), budget.epsilon, "pure")
    # Composed curves are rounded. Exact sums of the parts let a budget be spent to the end.
    epsilon, delta = _basic(total)
    is_basic = epsilon <= budget.epsilon and delta <= budget.delta
    if len(curves) <= 1:
        return is_basic or total.delta(budget.epsilon) <= budget.delta
    first, *later = curves
    if 0 < _basic(first)[1] < 1:
        if delta == 1:
            raise _refuse_unlike("epsilon and delta")
        return is_basic
    if is_basic and not delta:
        # No loss is beyond epsilon on this path, whatever the other sum allows on others.
        return True
    if square_of_mu(first) is not None:
        square = square_of_mu(compose(*later))
        if square is None:
            raise _refuse_unlike("mu")
        return compose(first, Gaussian(square)).delta(budget.epsilon) <= budget.delta
    rho = total.implied_rho()
    if rho is None:
        raise _refuse_unlike("rho")
    return ZCDP(rho).delta(budget.epsilon) <= budget.delta


def _refuse_unlike(number: str) -> Refused:
    """The refusal of charges that have no common number to add up."""
    return Refused(
        f"a ledger in epsilon and delta adds up {number} of its releases, as its first one decided,"
        " because later ones may depend on results; one of them has none: use a ledger in rho or mu"
    )


def _is_within_limit(spent: Fraction | None, limit: Fraction, kind: str) -> bool:
    if spent is None:
        raise Refused(
            f"these mechanisms satisfy no {kind} guarantee: use a ledger with another kind of"
            " budget"
        )
    return spent <= limit


def square_of_mu(total: Tradeoff) -> Fraction | None:
    """Return the square of a mu such that mu-GDP follows, rounded up, or None if none is known
    part by part.
    """
    if isinstance(total, Composed):
        sum_of_squares = Fraction(0)
        for part in total.parts:
            square = square_of_mu(part)
            if square is None:
                return None
            sum_of_squares += square
        return sum_of_squares
    exactly = total.implied_mu_squared()
    if exactly is not None or isinstance(total, Grouped):
        return exactly
    pure = total.implied_epsilon()
    return None if pure is None else pure_to_gdp(pure) ** 2


def _basic(total: Tradeoff) -> tuple[Fraction, Fraction]:
    """Return an exact (epsilon, delta) by basic composition of the parts; delta 1 where a part has
    none.
    """
    if isinstance(total, Composed):
        points = [_basic(part) for part in total.parts]
        epsilon = sum((e for e, _ in points), Fraction(0))
        delta = sum((d for _, d in points), Fraction(0))
        return epsilon, min(delta, Fraction(1))
    if isinstance(total, Approximate):
        if total.size == 1:
            return total.epsilon0, total.delta0
        epsilon, rounded_delta = approximate_group(total.epsilon0, total.delta0, total.size)
        return epsilon, Fraction(rounded_delta)
    pure = total.implied_epsilon()
    if pure is None:
        return Fraction(0), Fraction(1)
    return pure, Fraction(0)


def refuse_other_persons(ours: Adjacency, theirs: Adjacency) -> None:
    """Refuse promises about other units, or about several records next to one: nothing is known
    about both together.
    """
    one, other = ours.protection, theirs.protection
    unknown = (
        "no recorded id column, so that what they say of several records of a person is not known:"
        " use another ledger"
    )
    if one is None:
        if other is None:
            return
        raise Refused(f"the new guarantee is for {other.who}, and its charges have {unknown}")
    if other is None:
        raise Refused(f"the ledger's charges are for {one.who}, and the new one has {unknown}")
    if one.id != other.id:
        raise Refused(
            f"this ledger adds up guarantees for the persons of column {one.id!r}, and the new one"
            f" is for those of {other.id!r}: whether these are the same is not known; use another"
            " ledger"
        )
    if not one.is_about(other):
        protected = f"{one.protect} ({one.who})"
        raise Refused(
            f"this ledger protects one {protected}, and the new guarantee one"
            f" {other.protect}: these are two promises and are not added up; use another ledger"
        )


def _widest(ours: Adjacency, theirs: Adjacency) -> Protection | None:
    """Return the protection of both promises, with the larger number of records."""
    one, other = ours.protection, theirs.protection
    if one is None or other is None:
        return one
    return evolve(one, most=max(one.most, other.most))


def _join_adjacencies(
    union: Datasets, new: Guarantee, before: Guarantee, account: Account
) -> Adjacency:
    """The adjacency of the union of all charges, which does not depend on their order.

    A ledger is opened for exchanges or for any a records, and stays so:

    - exchanges: those of the union of all exact totals;
    - any a records, while nothing is exact beyond what the ledger was opened with: the a that it
      was opened with;
    - any a records, and all charges publish the same totals: a(t), or the largest a of a charge
      where that is smaller;
    - any a records otherwise: a(t) of the union.

    In the last two cases a is never below the a of the opening, nor below the smallest a of all
    charges. Persons with several records: the most that any charge names.

    Parameters
    ----------
    union
        What is exact in all charges together.
    new, before
        What is charged, and what was promised before.
    account
        The charges before.
    """
    ours = before.adjacency
    margins = {*union.margins}
    protection = _widest(ours, new.adjacency)
    if not isinstance(union, Dataspace):
        if protection != ours.protection:
            raise Refused(
                "what is exact in this ledger is known by its name alone, so that charges cannot be"
                " computed anew for more records of a person: use another ledger"
            )
        return ours
    if isinstance(union, LinkedDataspace):
        # Others also change units, so blocks of members alone give too small a number.
        return linked_adjacency(union, ours.kind)
    if not ours.protects_groups:
        # Also where the margins are the same: a table of one level, which nobody can change, may
        # have come first.
        exchange = Exchange.from_dataspace(union, protection)
        return Exchange(max(exchange.a, exchange.times), protection)
    opened_adjacency = None
    if account.opened is not None:
        opened_space, opened_adjacency = account.opened
        is_unchanged = margins == {*opened_space.margins}
        if is_unchanged and opened_adjacency.protection == protection:
            return opened_adjacency
    numbers, spaces = [new.adjacency.a], [new.dataspace]
    for charge in account.charges:
        numbers.append(charge.adjacency.a)
        spaces.append(charge.dataspace)
    least = min(numbers)
    if opened_adjacency is not None:
        least = max(least, opened_adjacency.a)
    alike = all({*space.margins} == margins for space in spaces)
    try:
        # an unpublished outcome changes alone, in each record of a person
        alone = 1 if protection is None else protection.times
        enough = max(semi_adjacency(union, protection).bound, alone)
    except AdjacencyUnknown:
        if alike:  # the charge gave a number
            return Ball(max(numbers), protection)
        raise Refused(
            f"how many records move together under {union.summary()} is not known, so that charges"
            " under all of it do not add up: use another ledger"
        ) from None
    # Charges that are all about these statistics may protect fewer than a(t) records.
    shared = min(enough, max(numbers)) if alike else enough
    return Ball(max(least, shared), protection)


def state_guarantee(account: Account, tradeoff: Tradeoff) -> Guarantee | None:
    if account.dataspace is None or account.adjacency is None or not account.charges:
        return None
    return Guarantee(account.dataspace, account.adjacency, tradeoff)


def compose_releases(
    charges: Sequence[tuple[Guarantee, str, Sequence[Mapping[str, Any]]]],
) -> Guarantee:
    """Return what several releases of the same records guarantee together, each recomputed for
    all exact totals.

    Parameters
    ----------
    charges
        For each release its guarantee, its name, and the records of its mechanisms
        (`Mechanism.record`).

    Raises
    ------
    Refused
        If the releases do not add up, as a ledger would refuse them.
    """
    # No budget is asked about, so any will do.
    account = Account(Budget.zcdp(1))
    for guarantee, label, measured in sorted(charges, key=lambda charge: _place(charge[0])):
        charge = _charge(guarantee, label, "", measured)
        account = account._rebase(charge, guarantee)
    together = state_guarantee(account, account.semi_first())
    assert together is not None, "there is a charge"
    return together


def _joins_either_kind(guarantee: Guarantee) -> bool:
    """Whether a guarantee is for one record with nothing exact: by group privacy it adds up with
    guarantees of both kinds.
    """
    dataspace = guarantee.dataspace
    ordinary = isinstance(dataspace, Dataspace) and not dataspace.margins
    return guarantee.adjacency.a == 1 and ordinary


def _place(guarantee: Guarantee) -> tuple[bool, bool]:
    """Place of a guarantee among several, whose order must not matter: those that decide between
    any a records and exchanges come first. Of one record alone both promise the same.
    """
    joins = _joins_either_kind(guarantee)
    return joins, joins and not guarantee.adjacency.protects_groups


def _charge(
    guarantee: Guarantee, label: str, time: str, measured: Sequence[Mapping[str, Any]]
) -> Charge:
    """The charge for a guarantee as stated."""
    dataspace, adjacency = guarantee.dataspace, guarantee.adjacency
    return Charge(label, time, guarantee.tradeoff, 1, dataspace, adjacency, tuple(measured))


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
