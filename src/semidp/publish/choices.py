"""Which kind of statistic answers a request that leaves it open: from public numbers alone, before
anything is read.
"""

from collections.abc import Callable

from attrs import evolve

from semidp.promise.guarantee import Scope
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.publish.plan import Plan
from semidp.publish.selection import AUTO
from semidp.publish.statistics.protocol.kinds import OtherAnswer
from semidp.publish.statistics.protocol.requests import Request, require_budget
from semidp.publish.statistics.registry import alternatives

SpaceOf = Callable[[Request, Scope], QuerySpace]


def best_answered(
    plan: Plan, scope: Scope, space: SpaceOf = lambda request, scope: request.space(scope)
) -> tuple[Plan, tuple[str, ...]]:
    """Return a plan in which each request goes to the kind of statistic that answers it best, and a
    sentence for each change.

    A request says by whom it may be answered (`Request.answering_kind`). The name and the budget
    stay the same.

    Parameters
    ----------
    plan, scope
        What is asked for, and what is public.
    space
        Where the query space of a request comes from.

    Examples
    --------
    >>> import semidp
    >>> request = semidp.publish.QuantileRequest(
    ...     semidp.Outcome("days", 0, 10, 10), [["ward"]], budget=semidp.Budget.gdp(1)
    ... )
    >>> plan = semidp.Plan([evolve(request, level="0.95")], invariants=["ward"])
    >>> release = semidp.run(plan, {"ward": ["a", "b"] * 50, "days": [7, 4, 2, 1] * 25})
    >>> [(result.list_key, result.name) for result in release.results]
    [('distributions', 'median-days')]
    """
    requests: list[Request] = []
    reasons: list[str] = []
    for request in plan.requests:
        if request.answering_kind == request.key:
            requests.append(request)
            continue
        # Kinds are compared at the same budget: a request without one is refused.
        require_budget(request)
        mechanism = request.calibrate(space(request, scope))
        answer = request
        for alternative in alternatives(request, mechanism):
            if request.answering_kind == AUTO:
                reasons.append(f"{request.name}: {alternative.reason}")
            if _prefers_alternative(request, alternative):
                answer = alternative.request
                break
        requests.append(answer)
    if requests == list(plan.requests):
        return plan, tuple(reasons)
    return evolve(plan, requests=requests), tuple(reasons)


def _prefers_alternative(request: Request, alternative: OtherAnswer) -> bool:
    """Whether another kind answers a request: it was named, or it is better and that decides."""
    if request.answering_kind == AUTO:
        return alternative.better
    return alternative.request.key == request.answering_kind
