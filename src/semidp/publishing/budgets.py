"""Budgets that follow from what is public: the least that meets target errors, and parts for tables measured apart."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from attrs import evolve

from semidp.core.scope import Scope
from semidp.core.spaces.dataspace import Margin
from semidp.core.tradeoff.budget import Budget
from semidp.errors import InputError, Refused
from semidp.mechanisms.residuals import ResidualMechanism
from semidp.publishing.plan import Plan
from semidp.queries.products import NotTogether
from semidp.statistics.tables.request import ProductRequest, TableRequest, tables_for

_LARGEST_MU = 100  # beyond it nobody is protected
_LARGEST_ERROR = 2**48  # beyond it counts plus noise may not fit in 63 bits, and no mechanism draws it


def exact_margins(plan: Plan) -> tuple[Margin, ...]:
    """Return what a plan publishes exactly: its invariants, and the groups and factors that they do not cover.

    >>> import semidp
    >>> mean = semidp.GroupRequest("mean", semidp.Outcome("score", 0, 1, 10), [["school"]])
    >>> exact_margins(Plan(groups=[mean], invariants=["year"]))
    (Margin('year'), Margin('school'))
    """
    margins = list(plan.invariants)
    needed = dict.fromkeys(margin for request in (*plan.groups, *plan.quantiles) for margin in request.by)
    needed |= dict.fromkeys(Margin(*regression.factors) for regression in plan.regressions)
    margins += [margin for margin in needed if not any(margin.within(known) for known in margins)]
    return tuple(margins)


def divided(plan: Plan, budget: Budget | None, shares: Mapping[str, Fraction] | None = None) -> Plan:
    """Return a plan whose requests without a budget divide one: tables take one share together, others one each.

    Groups have exact counts, so that each set of groups (and the factors of a regression) that no invariant covers is
    published exactly too.

    Parameters
    ----------
    plan
        What is asked for, without budgets.
    budget
        What all of it may spend together; none where tables have target errors.
    shares
        The part of ``"tables"`` and of each other request by its name, in proportion; 1 each unless given.

    Examples
    --------
    >>> import semidp
    >>> mean = semidp.GroupRequest("mean", semidp.Outcome("score", 0, 1, 10), [["school"]])
    >>> plan = divided(Plan([TableRequest(["school"])], groups=[mean]), Budget.zcdp(1))
    >>> from semidp.core.exact import plain
    >>> [plain(request.budget.rho) for request in plan.requests], plan.invariants
    (['0.5', '0.5'], (Margin('school'),))
    """
    plan = evolve(plan, invariants=exact_margins(plan))
    if budget is None:
        return plan
    others = [request.name for request in plan.requests if request not in plan.tables]
    parts = dict.fromkeys([*(["tables"] if plan.tables else []), *others], Fraction(1))
    for name, share in (shares or {}).items():
        if name not in parts:
            raise InputError(f"shares names {name!r}, which is not asked for; there are {', '.join(parts)}")
        parts[name] = share
    whole = sum(parts.values())

    def given(requests: Iterable[Any]) -> list[Any]:
        return [request.with_budget(budget.share(parts[request.name] / whole)) for request in requests]

    alone, product = tables_for(plan.tables, budget.share(parts["tables"] / whole)) if plan.tables else ((), None)
    return evolve(
        plan,
        tables=alone,
        product=product,
        groups=given(plan.groups),
        regressions=given(plan.regressions),
        quantiles=given(plan.quantiles),
    )


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
    too_large = Refused("noise for this target error would not fit in 63 bits: ask for a smaller error")
    if max(targets.values()) > _LARGEST_ERROR:
        raise too_large
    spaces = [(request, request.space(scope)) for request in shared]

    def excess(mu: Fraction) -> float:
        """How many times too large the worst error is."""
        found = []
        for request, space in spaces:
            try:
                mechanism = request.with_budget(Budget.gdp(mu)).calibrate(space)
            except Refused:
                if mu < 1:  # at 1, the first that is tried, it was not refused: what is new is the size of the noise
                    raise too_large from None
                raise
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
