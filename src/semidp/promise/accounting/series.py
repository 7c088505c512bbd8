"""Releases over time: the total loss of one person's records over all admissible periods.

Two histories of datasets are compared if they differ in the periods of one person alone, an
admissible set P, and in each of those by a pair of that period's own promise. Releases of other
periods are drawn from the same data under both, so

    rho = max over P of the sum of rho_s, s in P,    mu² = max over P of the sum of mu_s².

Both hold even if a later plan or budget depends on earlier releases, if the sum stays within the
budget whatever comes out. For other curves each period's budget is fixed when the series is
opened. The content of records is protected, not when a person takes part.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

from attrs import evolve, field, frozen

from semidp.errors import BudgetExceeded, InputError, Refused
from semidp.promise.accounting.account import (
    Account,
    Charge,
    fits,
    refuse_other_persons,
    square_of_mu,
)
from semidp.promise.accounting.period_totals import (
    complete_margin,
    count_as_exact,
    list_missing,
    list_totals,
    name_published_features,
    name_totals,
    refuse_linking_totals,
)
from semidp.promise.accounting.periods import UNITS, Attendance, Periods, format_period
from semidp.promise.documents import Encodable
from semidp.promise.exact import sqrt_down
from semidp.promise.guarantee import Guarantee
from semidp.promise.schema.features import Feature
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import (
    Datasets,
    Dataspace,
    Margin,
)
from semidp.promise.spaces.linked import LinkedDataspace
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.composition import compose
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.smooth import ZCDP, Gaussian

_MOST_SETS = 5000
"""The most sets of periods to list; beyond that, pooled releases count in each of their periods."""


@frozen
class Series(Encodable):
    """The declarations with which a series of releases is opened.

    Parameters
    ----------
    unit
        ``year``, ``quarter``, ``month`` or ``week``.
    attendance
        In which periods one person may be.
    exact
        The exact totals that a period may publish, by their features; every period counts as if it
        published all of them. None: all that any release published.
    constant
        Features that never change. If one of them has exact totals, an alternative that keeps it
        constant may differ in every period, so all periods are charged.
    each
        Budget of every period, for a series in (epsilon, delta).

    Examples
    --------
    >>> quarterly = Series("quarter", Attendance(8, consecutive=True), (("sex",),))
    >>> quarterly.attendance_under({"sex"}).bound
    8
    >>> evolve(quarterly, constant=("sex",)).attendance_under({"sex"}).bound is None
    True
    """

    unit: str
    attendance: Attendance
    exact: tuple[tuple[str, ...], ...] | None = None
    constant: tuple[str, ...] = ()
    each: Budget | None = None

    def __attrs_post_init__(self) -> None:
        if self.unit not in UNITS:
            raise InputError(f"a series is by {', '.join(UNITS[:-1])} or {UNITS[-1]}")

    def attendance_under(self, published: Iterable[str]) -> Attendance:
        """Return in which periods two histories may differ, given the features with exact
        totals.
        """
        return self.attendance if {*published}.isdisjoint(self.constant) else Attendance()


@frozen
class PeriodCost:
    """The loss from the releases of some data: one period, or several pooled ones."""

    periods: Periods
    spent: Tradeoff


@frozen
class SeriesTotal:
    """What a series guarantees for one person.

    Parameters
    ----------
    tradeoff
        The curve of the worst admissible set of periods.
    periods
        That set; empty if each period has a budget of its own.
    """

    tradeoff: Tradeoff
    periods: tuple[int, ...]


@frozen(slots=False)
class SeriesAccount:
    """Content of the ledger of a series at one moment.

    Each set of data (a period, a correction of it, several pooled periods) has an `Account`, in
    which its releases add up as they do in any ledger.

    Parameters
    ----------
    budget
        What one person may lose over all periods.
    series
        What was declared when the series was opened.
    accounts
        The account of each set of data.
    charges
        All charges, in the order in which they were made.
    id
        Name of the ledger.
    """

    budget: Budget
    series: Series
    accounts: Mapping[Periods, Account] = field(factory=dict)
    charges: tuple[Charge, ...] = ()
    id: str = ""

    def __attrs_post_init__(self) -> None:
        needs_each = self.budget.epsilon is not None
        if needs_each and self.series.attendance.bound is None:
            raise InputError(
                "a series in epsilon needs a bound on the periods of a person, since each period's"
                " budget is fixed when it is opened"
            )
        if needs_each and self.series.constant:
            raise InputError(
                "a series in epsilon bounds no number of periods for columns that never change: use"
                " rho or mu"
            )
        each = self.series.each
        if each is not None and (not needs_each or each.kind != self.budget.kind):
            raise InputError(
                "a budget for each period is for a series in epsilon, and of the same kind"
            )
        if each is not None and not fits([self._compose_each(each)], self.budget):
            raise InputError(
                f"{self.series.attendance.bound} periods of {each} exceed the budget of"
                f" {self.budget}: give each period less"
            )

    @property
    def each(self) -> Budget | None:
        """Budget of each period of a series in epsilon: an equal share unless declared."""
        bound = self.series.attendance.bound
        if self.budget.epsilon is None or bound is None:
            return None
        return self.series.each or self.budget.split_evenly(bound)

    def _compose_each(self, each: Budget) -> Tradeoff:
        """The curve of as many periods as a person may be in, each with this budget."""
        return compose(*([each.tradeoff()] * (self.series.attendance.bound or 0)))

    @property
    def margins(self) -> tuple[Margin, ...] | None:
        """The exact totals that every period counts with; None before the first release of a series
        that declares none.
        """
        published: list[Margin] = []
        for account in self.accounts.values():
            published += [] if account.dataspace is None else account.dataspace.margins
        if self.series.exact is not None:
            published += (Margin(*names) for names in self.series.exact)
        elif not self.accounts:
            return None
        kept: list[Margin] = []
        # larger totals first, since they imply those that lie within them
        for margin in sorted({*published}, key=lambda one: (-len(one.names), one.names)):
            if not margin.is_within_any(kept):
                kept.append(margin)
        return tuple(sorted(kept, key=str))

    @cached_property
    def counted(self) -> Mapping[Periods, Account]:
        """The account of each set of data, as if all totals of the series were exact in it."""
        features: list[Feature] = []
        for account in self.accounts.values():
            if isinstance(account.dataspace, Dataspace):
                features += account.dataspace.schema.features
        counted = {}
        for periods, account in self.accounts.items():
            missing = list_missing(account, self.margins or ())
            try:
                counted[periods] = count_as_exact(account, missing, features)
            except Refused as refusal:
                named = list_totals(missing)
                raise Refused(
                    f"{refusal.message}; publish {named} exactly in {periods} as well, or open"
                    " another series"
                ) from None
        return counted

    @property
    def _published(self) -> set[str]:
        """Features with exact totals in any release, or that are declared to have them."""
        published = {name for margin in self.margins or () for name in margin.names}
        for account in self.accounts.values():
            if account.dataspace is not None:
                published |= name_published_features(account.dataspace)
        return published

    @property
    def attendance(self) -> Attendance:
        """In which periods two histories that are compared may differ."""
        return self.series.attendance_under(self._published)

    @property
    def promises(self) -> list[Adjacency]:
        """Those of all periods, each of which was charged under its own."""
        return [one.adjacency for one in self.counted.values() if one.adjacency is not None]

    @property
    def adjacency(self) -> Adjacency | None:
        """The largest of the promises of all periods; None before the first release."""
        return max(self.promises, key=lambda adjacency: adjacency.a, default=None)

    def describe(self) -> str:
        """Say whom the series protects.

        >>> from semidp.promise.spaces.adjacency import Ball
        >>> from semidp.promise.spaces.dataspace import DescribedDatasets
        >>> from semidp.promise.tradeoff.budget import zcdp
        >>> account = SeriesAccount(
        ...     Budget.zcdp(1), Series("quarter", Attendance(8, consecutive=True))
        ... )
        >>> states = DescribedDatasets("state totals")
        >>> guarantee = Guarantee(states, Ball(3), zcdp("0.1"))
        >>> account.add_charge(
        ...     guarantee, "a table", (), Periods.from_text("2026Q1", "quarter")
        ... ).describe()
        'one person in up to 8 consecutive quarters, each with up to 2 others of that quarter'
        """
        unit, adjacency = self.series.unit, self.adjacency
        who = "one person"
        if adjacency is not None and adjacency.protection is not None:
            who = adjacency.protection.who
        said = f"{who} in {self.attendance.describe(unit)}"
        helpers = 0 if adjacency is None else adjacency.a - 1
        if not helpers:
            return said
        plural = "other" if helpers == 1 else "others"
        if len({each.a for each in self.promises}) > 1:
            return f"{said}, each with as many others of that {unit} as its releases say"
        return f"{said}, each with up to {helpers} {plural} of that {unit}"

    @property
    def costs(self) -> tuple[PeriodCost, ...]:
        """What was spent on each set of data, by period."""
        costs = []
        for periods, account in sorted(self.accounts.items()):
            costs.append(PeriodCost(periods, self._find_larger(periods, account.semi_first())))
        return tuple(costs)

    def _find_larger(self, periods: Periods, own: Tradeoff) -> Tradeoff:
        """The loss on some data for pairs that agree on their own totals, or on all totals of the
        series, whichever is larger.

        A table that further totals would fix costs nothing under them, but still distinguishes
        its own pairs.
        """
        under_all = self.counted[periods].semi_first()
        if under_all == own or self.each is not None:
            return under_all
        return max(own, under_all, key=self.measure)

    def measure(self, spent: Tradeoff) -> Fraction:
        """Return rho or mu² of a curve, whichever the budget is in."""
        if self.budget.rho is not None:
            amount, kind = spent.implied_rho(), "zero-concentrated"
        else:
            amount, kind = square_of_mu(spent), "Gaussian"
        if amount is None:
            raise Refused(
                f"these mechanisms satisfy no {kind} guarantee: use a series with another kind of"
                " budget"
            )
        return amount

    @property
    def limit(self) -> Fraction:
        """The budget as rho or mu²."""
        if self.budget.mu is not None:
            return self.budget.mu**2
        return self.budget.rho or Fraction(0)

    def find_worst(self, within: int | None = None) -> tuple[Fraction, tuple[int, ...]]:
        """Return the largest sum of rho or mu² over an admissible set of periods, and that set.

        Parameters
        ----------
        within
            Only sets with this period; without it, any.
        """
        costs = [(cost.periods.numbers, self.measure(cost.spent)) for cost in self.costs]
        numbers = {number for periods, _ in costs for number in periods}
        if within is not None:
            numbers.add(within)
        attendance = self.attendance
        sets: Iterable[frozenset[int]]
        chosen = attendance.most is not None and not attendance.consecutive
        if chosen and math.comb(len(numbers), min(attendance.most or 0, len(numbers))) > _MOST_SETS:
            # Too many choices to list: each pooled release counts in every one of its periods, and
            # the largest sums are then the worst choice.
            alone: dict[int, Fraction] = dict.fromkeys(numbers, Fraction(0))
            for periods, amount in costs:
                for number in periods:
                    alone[number] += amount
            # the period that was asked about comes first, whatever was spent on it
            ranked = sorted(alone, key=lambda number: (number != within, -alone[number], number))
            worst = ranked[: attendance.most]
            everything = sum((amount for _, amount in costs), Fraction(0))
            largest = sum((alone[number] for number in worst), Fraction(0))
            # pooled releases counted in each of their periods may exceed all that was spent
            return min(largest, everything), tuple(sorted(worst))
        sets = attendance.list_largest_sets(numbers)
        if within is not None:
            sets = (each for each in sets if within in each)
        best, worst_set = Fraction(0), tuple[int, ...]()
        for periods_of_person in sets:
            amount = sum(
                (spent for periods, spent in costs if not periods_of_person.isdisjoint(periods)),
                Fraction(0),
            )
            if amount > best or not worst_set:
                best, worst_set = amount, tuple(sorted(periods_of_person))
        return best, worst_set

    def total(self) -> SeriesTotal | None:
        """Return what the series guarantees for one person; None before the first release."""
        if not self.charges:
            return None
        if self.each is not None:
            return SeriesTotal(self._compose_each(self.each), ())
        amount, periods = self.find_worst()
        curve = ZCDP(amount) if self.budget.rho is not None else Gaussian(amount)
        return SeriesTotal(curve, periods)

    @property
    def next_period(self) -> int | None:
        """The period after the latest one that was released."""
        numbers = [number for periods in self.accounts for number in periods.numbers]
        return max(numbers) + 1 if numbers else None

    def remaining(self, period: int) -> Budget | None:
        """Return what releases of a period may still spend; None if that is nothing."""
        if self.each is not None:
            return None if self._curves_in(period, self.accounts) else self.each
        left = self.limit - self.find_worst(within=period)[0]
        if left <= 0:
            return None
        # rounded down: what is offered may be less than what is left, and never more
        return Budget.zcdp(left) if self.budget.rho is not None else Budget.gdp(sqrt_down(left))

    def counting_with(self, period: int) -> tuple[Periods, ...]:
        """Return the data that one person of a period may also be in, and that were released."""
        attendance = self.attendance
        kept = []
        for cost in self.costs:
            other_numbers = [number for number in cost.periods.numbers if number != period]
            if any(attendance.count_overlap([number, period]) > 1 for number in other_numbers):
                kept.append(cost.periods)
        return tuple(kept)

    def _curves_in(self, period: int, accounts: Mapping[Periods, Account]) -> list[Tradeoff]:
        """What each release spent that has data of a period, in the order of their charges."""
        charges = {periods: iter(account.charges) for periods, account in accounts.items()}
        curves = []
        for charge in self.charges:
            assert charge.periods is not None, "the charges of a series have periods"
            spent = next(charges[charge.periods]).spent
            if period in charge.periods.numbers:
                curves.append(spent)
        return curves

    def add_charge(
        self,
        guarantee: Guarantee,
        label: str,
        measured: Sequence[Mapping[str, Any]],
        periods: Periods,
    ) -> "SeriesAccount":
        """Return the account after one more charge; refuse what does not add up, and more than the
        budget.
        """
        if periods.unit != self.series.unit:
            raise InputError(f"this series is by {self.series.unit}")
        self._refuse_other_totals(guarantee.dataspace, periods)
        for account in self.accounts.values():
            if account.adjacency is not None:
                _refuse_other_promise(account.adjacency, guarantee.adjacency)
        before = self.accounts.get(periods, Account(self.budget, id=self.id))
        try:
            joined = before.join_charge(guarantee, label, measured)
        except Refused as refusal:
            if not before.charges:
                raise
            raise Refused(
                f"{refusal.message}; corrected data of {periods} are charged apart, as"
                f" {evolve(periods, revision=periods.revision + 1)}"
            ) from None
        accounts = {**self.accounts, periods: joined}
        last = evolve(joined.charges[-1], periods=periods)
        after = evolve(self, accounts=accounts, charges=(*self.charges, last))
        after._refuse_misspelled_constants()
        after._refuse_linked_periods()
        after._refuse_too_few_records()
        after._refuse_pooled_too_small()
        after._refuse_beyond_budget(label, periods)
        return after

    def _refuse_other_totals(self, dataspace: Datasets, periods: Periods) -> None:
        """Refuse totals that were not declared, and totals of another kind than earlier ones."""
        earlier = [one.dataspace for one in self.accounts.values() if one.dataspace is not None]
        if self.series.exact is None:
            # Totals of linked files, or that are known by name alone, are not counted elsewhere.
            if all(map(_is_one_file, (*earlier, dataspace))):
                return
            declared = name_totals(earlier[0]) if earlier else name_totals(dataspace)
            compared = [*earlier, dataspace]
        else:
            compared = [dataspace]
            declared = {Margin(*names) for names in self.series.exact}
            if isinstance(dataspace, Dataspace) and _is_one_file(dataspace):
                declared = {complete_margin(margin, dataspace.schema) for margin in declared}
                further = {one for one in dataspace.margins if not one.is_within_any(declared)}
                if further:
                    raise Refused(
                        f"the exact totals of this series are {list_totals(declared)}: leave out"
                        f" {list_totals(further)}, or open another series"
                    )
                return
        if any(name_totals(space) != declared for space in compared):
            raise Refused(
                f"the exact totals of every period of this series are {list_totals(declared)}, and"
                f" the release of {periods} has others: publish the same, or open another series"
            )

    def _refuse_misspelled_constants(self) -> None:
        """Refuse a column declared constant without exact totals: it may be misspelled."""
        unknown = {*self.series.constant}.difference(self._published)
        if unknown:
            raise Refused(
                f"this series declares that {min(unknown)!r} never changes, and the release has no"
                " exact totals of it: a column without them needs no declaration; check the"
                " spelling and open another series"
            )

    def _refuse_linked_periods(self) -> None:
        """Refuse exact totals of pooled data that are not sums of exact totals of their periods."""
        for pooled, whole in self.accounts.items():
            if not pooled.is_pooled or not isinstance(whole.dataspace, Dataspace):
                continue
            released = {}
            for periods, account in self.accounts.items():
                is_part = not periods.is_pooled and periods.numbers[0] in pooled.numbers
                if is_part and isinstance(account.dataspace, Dataspace):
                    released[periods] = account.dataspace
            refuse_linking_totals(pooled, whole.dataspace, released)

    def _sum_periods(self, periods: Periods, count: Callable[[Adjacency], int]) -> int:
        """The most records of one person in some periods together: those that the promise of each
        period by itself counts, and at least one of each.
        """
        most = dict.fromkeys(periods.numbers, 1)
        for single, account in self.counted.items():
            number = single.numbers[0]
            if number in most and not single.is_pooled and account.adjacency is not None:
                most[number] = max(most[number], count(account.adjacency))
        return self.attendance.find_largest_sum(most)

    def _refuse_too_few_records(self) -> None:
        """Refuse pooled data in which a person has more records than their promise covers: those of
        each period together, and at least one of each.
        """
        for periods, account in self.counted.items():
            records = self._sum_periods(periods, lambda adjacency: adjacency.times)
            if not periods.is_pooled or account.adjacency is None or records == 1:
                continue
            if account.adjacency.units is not None:
                raise Refused(
                    f"one unit of linked files may be in several of the periods {periods}: release"
                    " each period by itself"
                )
            if account.adjacency.times < records:
                raise Refused(
                    f"one person may have {records} records in the pooled data of {periods}:"
                    f" release them with ⟨id⟩, and {records} or more as ⟨most⟩"
                )

    def _refuse_pooled_too_small(self) -> None:
        """Refuse pooled releases whose promise is about fewer records than their periods' own, and
        than one of each.
        """
        for periods, account in self.counted.items():
            adjacency = account.adjacency
            if not periods.is_pooled or adjacency is None or not adjacency.protects_groups:
                continue
            if adjacency.a < self._sum_periods(periods, lambda single: single.a):
                raise Refused(
                    f"the release of {periods} protects {adjacency}, and its periods together"
                    " more: release the pooled records for a larger number"
                )

    def _refuse_beyond_budget(self, label: str, periods: Periods) -> None:
        each = self.each
        if each is not None:
            for number in periods.numbers:
                both = self._curves_in(number, self.accounts), self._curves_in(number, self.counted)
                if not all(fits(curves, each) for curves in both):
                    name = format_period(number, self.series.unit)
                    raise BudgetExceeded(
                        f"charging {label!r} would exceed the budget of {each} for {name}: nothing"
                        " was released or charged; ask for a smaller budget"
                    )
            return
        amount, worst = self.find_worst()
        if amount > self.limit:
            names = ", ".join(format_period(number, self.series.unit) for number in worst)
            raise BudgetExceeded(
                f"charging {label!r} would exceed the series' budget of {self.budget} for a person"
                f" in {names}: nothing was released or charged; ask for a smaller budget"
            )


def _is_one_file(dataspace: Datasets) -> bool:
    """Whether totals can be counted in periods that do not publish them."""
    return isinstance(dataspace, Dataspace) and not isinstance(dataspace, LinkedDataspace)


def _refuse_other_promise(ours: Adjacency, theirs: Adjacency) -> None:
    refuse_other_persons(ours, theirs)
    if ours.kind != theirs.kind:
        raise Refused(
            f"this series adds up guarantees for {ours}, and the new one is for {theirs}: ball and"
            " exchange are two promises and are not added up"
        )
