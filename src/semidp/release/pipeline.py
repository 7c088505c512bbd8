"""From a plan and data to a release: the page to read first.

`prepare` reads what is public, calibrates a mechanism for every request and states the guarantee; `run` charges it,
draws the noise and publishes. Rehearsals, audits and tests use what was prepared.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from semidp.accounting.ledger import Ledger
from semidp.engines import Source, open_source
from semidp.errors import InputError, Refused
from semidp.guarantees import Guarantee
from semidp.mechanisms import Mechanism, ResidualMechanism
from semidp.noise import Randomness, SystemRandomness
from semidp.progress import Progress, silent
from semidp.queries import NotTogether, QuerySpace, outcome_exchange
from semidp.release.plan import Plan
from semidp.release.products import ProductRequest
from semidp.release.release import Release, versions
from semidp.release.requests import Request, TableRequest, budget_of
from semidp.release.scope import Scope, survey
from semidp.spaces import Adjacency
from semidp.tradeoff import Budget

_LARGEST_MU = 100  # beyond it nobody is protected


@dataclass(frozen=True, eq=False)
class Prepared:
    """A plan carried out up to the first random number: everything in it but `values` is public.

    Parameters
    ----------
    plan
        What was asked for; where errors were, with the budget that meets them.
    scope
        What is public: the totals, a(t), the adjacency.
    mechanisms
        One for each request of the plan, calibrated.
    guarantee
        What all of them guarantee together.
    values
        The confidential values of each request's query.

    Examples
    --------
    >>> import semidp
    >>> plan = semidp.Plan([semidp.TableRequest(["sex", "region"], semidp.Budget.gdp(1))], ["sex", "region"])
    >>> prepared = semidp.prepare(plan, {"sex": ["f", "m"], "region": ["n", "s"]})
    >>> prepared.mechanisms[0].name, prepared.guarantee.tradeoff.mu
    ('rounded gaussian', Fraction(1, 1))
    """

    plan: Plan
    scope: Scope
    mechanisms: tuple[Mechanism, ...]
    guarantee: Guarantee
    values: tuple[NDArray[np.int64], ...] = field(default=(), repr=False)

    @property
    def parts(self) -> tuple[tuple[Request, Mechanism], ...]:
        """Each request with its mechanism."""
        return tuple(zip(self.plan.requests, self.mechanisms, strict=True))


def prepare(plan: Plan, data: Any) -> Prepared:
    """Read what a plan needs and calibrate everything it asks for; nothing is drawn and nothing is spent.

    Parameters
    ----------
    plan
        What to publish exactly and what with noise. Every request needs a budget.
    data
        A `Source`, or what `open_source` takes: a path, a data frame, an Ibis table. What is opened here is closed.

    Examples
    --------
    >>> from semidp import Budget, TableRequest
    >>> plan = Plan([TableRequest(["sex", "region"], Budget.gdp(1))], ["sex", "region"])
    >>> prepared = prepare(plan, {"sex": ["f", "m", "m"], "region": ["n", "s", "n"]})
    >>> prepared.scope.adjacency.a, [mechanism.scale for mechanism in prepared.mechanisms]
    (3, [2.0])
    """
    if not isinstance(data, Source):
        with open_source(data, count=plan.count, where=plan.where, id=plan.id) as source:
            return prepare(plan, source)
    if (data.count, data.where, data.id) != (plan.count, plan.where, plan.id):
        raise InputError(
            "the source was opened with another count, where or id than the plan has: open it as the plan says"
        )
    _check(plan)
    scope, reader = survey(plan, data)
    plan, scope = one_by_one(with_targets_met(plan, scope), scope)
    prepared = calibrate(plan, scope)
    values = (request.read(reader, scope, mechanism.space) for request, mechanism in prepared.parts)
    return Prepared(plan, scope, prepared.mechanisms, prepared.guarantee, tuple(values))


def with_targets_met(plan: Plan, scope: Scope) -> Plan:
    """Return a plan whose tables without a budget share the least μ that meets their target errors.

    The largest standard error of a table falls like 1/μ but for the rounding of the noise, so that μ is found in a few
    steps; it is rounded up to four digits. The plan itself where no table has a target.

    >>> import semidp
    >>> plan = semidp.Plan([semidp.TableRequest(["sex", "region"], target_error=5)], ["sex", "region"])
    >>> semidp.prepare(plan, {"sex": ["f", "m", "m"], "region": ["n", "s", "n"]}).plan.tables[0].budget.mu
    Fraction(2001, 10000)
    """
    open_tables = [table for table in plan.tables if table.budget is None]
    targets = {table.features: table.target_error for table in open_tables if table.target_error is not None}
    if not targets:
        return plan
    closed = evolve(plan, tables=[evolve(t, target_error=None) if t in open_tables else t for t in plan.tables])
    first = closed.with_budget(Budget.gdp(1))
    shared = [request for request in first.requests if request not in closed.requests]
    if any(not isinstance(request, (TableRequest, ProductRequest)) for request in shared):
        raise InputError("a target error finds the budget of tables: give the other statistics budgets of their own")
    spaces = [(request, request.space(scope)) for request in shared]

    def excess(mu: Fraction) -> float:
        """How many times too large the worst error is."""
        found = []
        for request, space in spaces:
            mechanism = request.with_budget(Budget.gdp(mu)).calibrate(space)
            tables = request.tables if isinstance(request, ProductRequest) else (request,)
            for number, table in enumerate(tables):
                if table.features in targets:
                    errors = (
                        mechanism.table_errors(number)
                        if isinstance(mechanism, ResidualMechanism)
                        else mechanism.standard_errors()
                    )
                    found.append(float(errors.max(initial=0.0)) / float(targets[table.features]))
        return max(found)

    return closed.with_budget(Budget.gdp(_least(excess)))


def one_by_one(plan: Plan, scope: Scope) -> tuple[Plan, Scope]:
    """Return a plan whose tables can be measured: those that no proof covers together are measured apart, and said to.

    So it is with structural zeros and with joint margins that have empty cells. Each table gets an even part of the
    budget.
    """
    if plan.product is None:
        return plan, scope
    try:
        plan.product.space(scope)
    except NotTogether as reason:
        part = plan.product.budget.shared(len(plan.product.tables))
        apart = [evolve(table, budget=part, weight=1) for table in plan.product.tables]
        said = (
            f"The tables were measured one by one, each with an even part of the budget, because "
            f"{str(reason).partition(':')[0]}; they agree on exact totals only, and weights do not count."
        )
        changed = replace(scope, warnings=(*scope.warnings, said))
        return evolve(plan, product=None, tables=(*plan.tables, *apart)), changed
    return plan, scope


def _least(excess: Callable[[Fraction], float]) -> Fraction:
    """Return the least number, to four digits, at which a decreasing excess is at most 1."""
    short, enough, mu = Fraction(0), None, Fraction(1)
    while enough is None or enough > short * Fraction(1001, 1000):
        over = excess(mu)
        if over > 1:
            short = mu
        else:
            enough = mu
        if over == 0 and not short:  # nothing needs noise
            return mu
        mu = _four_digits(mu * max(Fraction(over), Fraction(1, 1000)))
        if enough is None and short >= _LARGEST_MU:
            raise Refused("no budget that protects anybody meets this target error: ask for a larger error")
        if enough is None:
            mu = min(mu, Fraction(_LARGEST_MU))
        elif not short < mu < enough:
            mu = _four_digits((short + enough) / 2)
            if mu >= enough:
                break
    return enough


def _four_digits(number: Fraction) -> Fraction:
    """Round up to four significant digits.

    >>> _four_digits(Fraction(1, 3)), _four_digits(Fraction(123456))
    (Fraction(1667, 5000), Fraction(123500, 1))
    """
    step = Fraction(10) ** (math.floor(math.log10(number)) - 3)
    return math.ceil(number / step) * step


def _space(request: Request, scope: Scope) -> QuerySpace:
    return request.space(scope)


def calibrate(plan: Plan, scope: Scope, space: Callable[[Request, Scope], QuerySpace] = _space) -> Prepared:
    """Return a plan prepared from public values alone, without the confidential ones: for rehearsals and audits.

    Parameters
    ----------
    plan, scope
        What is asked for, and what is public.
    space
        Where the query space of a request comes from; whoever tries many budgets keeps them.
    """
    _check(plan)
    mechanisms = []
    for request in plan.requests:
        budget_of(request)
        mechanisms.append(request.calibrate(space(request, scope)))
    first, *others = (mechanism.guarantee for mechanism in mechanisms)
    return Prepared(plan, scope, tuple(mechanisms), first.compose(*others))


def implied_guarantee(release: Release) -> Guarantee | None:
    """Return what the noise of a release guarantees under the other adjacency, from public values alone.

    An exchange release under A_a(t), any other under exchanges: ``μ' = Δ2(S')/σ`` for additive noise, f∘…∘f where the
    noise is a K-norm's. None where the other is not defined for these margins or not known for this noise.

    >>> import semidp
    >>> request = semidp.TableRequest(["sex", "ill"], semidp.Budget.gdp(1), mechanism="gaussian")
    >>> plan = semidp.Plan([request], ["sex"], adjacency="exchange", features=[semidp.Feature("ill", ["n", "y"])])
    >>> release = run(plan, {"sex": ["f", "m", "m", "f"], "ill": ["n", "y", "n", "n"]})
    >>> found = implied_guarantee(release)
    >>> found.adjacency, found.tradeoff.mu_squared  # Δ2² = 8 for any two records, and 4 for exchanges
    (Adjacency(a=2), Fraction(2, 1))
    """
    scope = release.scope
    try:
        if not scope.adjacency.is_exchange:
            other = outcome_exchange(scope.dataspace) if release.plan.outcomes else Adjacency.exchange(scope.dataspace)
        elif scope.semi_adjacency is not None:
            other = Adjacency(scope.semi_adjacency.bound)
        else:
            return None
        return release.under(scope.dataspace, other)
    except Refused:
        return None


def run(
    plan: Plan,
    data: Any,
    randomness: Randomness | None = None,
    *,
    ledger: Ledger | None = None,
    label: str | None = None,
    progress: Progress = silent,
) -> Release:
    """Carry out a plan: prepare, account, measure, publish.

    Parameters
    ----------
    plan
        What to publish exactly and what with noise. Every request needs a budget.
    data
        A `Source`, or what `open_source` takes: a path, a data frame, an Ibis table.
    randomness
        Where random words come from; the operating system unless given. Any other marks the release not private.
    ledger
        Charged with the composed guarantee before any noise is drawn.
    label
        What the ledger calls the charge; what is released, unless given.

    Returns
    -------
    Release
        What may be published; nothing in it is confidential beyond what the plan publishes exactly.

    Examples
    --------
    >>> from semidp import Budget, TableRequest
    >>> people = {"sex": ["f", "m", "m", "f", "m"], "region": ["n", "s", "n", "s", "s"]}
    >>> plan = Plan([TableRequest(["sex", "region"], Budget.zcdp(1))], ["sex", "region"])
    >>> release = run(plan, people)
    >>> release.tables[0].counts.sum(axis=1).tolist(), release.guarantee.adjacency.a
    ([2, 3], 3)
    """
    randomness = SystemRandomness() if randomness is None else randomness
    prepared = prepare(plan, data)
    entry = None
    if ledger is not None:
        records = [mechanism.record() for mechanism in prepared.mechanisms]
        entry = ledger.charge(prepared.guarantee, label or ", ".join(map(_label, prepared.plan.requests)), records)
    results = []
    for (request, mechanism), values in zip(prepared.parts, prepared.values, strict=True):
        measured = mechanism.reporting(progress).measure(values, randomness)
        results.append(request.publish(mechanism, measured, prepared.scope, progress))
    return Release(
        plan=prepared.plan,
        scope=prepared.scope,
        results=tuple(results),
        guarantee=prepared.guarantee,
        private=all(result.private for result in results),
        ledger=entry,
        versions=versions(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _label(request: Request) -> str:
    """Say what is released, for a ledger."""
    return f"{request.name} ({' × '.join(dict.fromkeys(request.features))})"


def _check(plan: Plan) -> None:
    if not plan.requests:
        raise InputError(
            "the plan releases nothing: ask for a table, a statistic by groups or a regression", needs="request"
        )
