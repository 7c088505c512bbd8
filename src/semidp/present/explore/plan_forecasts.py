"""Scopes and query spaces that plans on the page share. They are kept, so that a slider answers at
once.

Only public values are kept: the totals that a plan publishes exactly, and what follows from them.
"""

import itertools
import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import define, evolve, field

from semidp.errors import SemidpError
from semidp.present.release import Release
from semidp.present.report.sentences import Outlook, forecast
from semidp.promise.guarantee import Scope
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.dataspace import Margin
from semidp.publish.pipeline import Prepared, calibrate
from semidp.publish.plan import AdjacencyChoice, Plan
from semidp.publish.statistics.protocol.requests import BUDGET_KEYS, Request
from semidp.publish.survey import any_totals

KEPT = 12
_MOST_FURTHER = 12


@define(eq=False, repr=False, slots=False)
class PlanForecasts:
    """Evaluates plans for the explorer page without drawing noise.

    Parameters
    ----------
    columns
        What features may be called.
    survey
        Returns the public scope of a plan, and reads nothing but what the plan publishes exactly.
    first
        The plan that the page starts with.
    source
        What the data are called on a command line; None where there are none.
    carry_out
        Carries a plan out and writes the release to a folder; None where there are no data.

    Examples
    --------
    >>> from semidp.publish.sources.opening import open_source
    >>> from semidp.publish.survey import survey
    >>> from semidp import Budget
    >>> from semidp.publish import TableRequest
    >>> people = {"sex": [*"ffmmm"], "region": [*"nsnss"]}
    >>> desk = PlanForecasts(
    ...     ("sex", "region"), lambda plan: survey(plan, open_source(people))[0], Plan()
    ... )
    >>> plan = Plan([TableRequest(["sex", "region"], Budget.gdp(1))], ["sex", "region"])
    >>> desk.forecast(plan).document["guarantee"]["name"]
    'μ = 1 (Gaussian DP)'
    """

    columns: tuple[str, ...]
    _survey: Callable[[Plan], Scope]
    first: Plan
    source: str | None = field(default=None, kw_only=True)
    carry_out: Callable[[Plan, Path], Release] | None = field(default=None, kw_only=True)
    _scopes: OrderedDict[str, tuple[Scope, dict[str, QuerySpace]]] = field(
        factory=OrderedDict, init=False
    )
    _seen: OrderedDict[str, tuple[Prepared, Outlook]] = field(factory=OrderedDict, init=False)
    _lock: Any = field(factory=threading.RLock, init=False)

    def forecast(self, plan: Plan) -> Outlook:
        """Return what a plan would publish."""
        return self.prepare_forecast(plan)[1]

    def prepare_forecast(self, plan: Plan) -> tuple[Prepared, Outlook]:
        """Return a plan prepared from public values alone, and what it would publish."""

        def make() -> tuple[Prepared, Outlook]:
            prepared = self._prepare(plan)
            return prepared, forecast(prepared)

        # Requests of the page come in several threads, and share what is kept.
        with self._lock:
            seen: tuple[Prepared, Outlook] = _get_or_make(self._seen, plan.to_toml(), make)
            return seen

    def _prepare(self, plan: Plan) -> Prepared:
        # Scopes do not depend on budgets, so that a slider reads the data once.
        key = json.dumps(_without_budgets(plan.to_json()))
        kept: tuple[Scope, dict[str, QuerySpace]] = _get_or_make(
            self._scopes, key, lambda: (self._survey(plan), {})
        )
        scope, spaces = kept

        def space(request: Request, scope: Scope) -> QuerySpace:
            name = json.dumps(_without_budgets(request.to_json()))
            if name not in spaces:
                spaces[name] = request.space(scope)
            return spaces[name]

        return calibrate(plan, scope, space)

    def further(self, plan: Plan) -> list[dict[str, Any]]:
        """Return what each further exact total would cost, at most: for the worst totals that there
        may be.

        Totals that the plan does not publish are not read for it.
        """
        scope = self.prepare_forecast(plan)[0].scope
        schema = scope.dataspace.schema
        forecasts: list[dict[str, Any]] = []
        used = [schema.complete_names(table.features) for table in plan.tables]
        used += [
            schema.complete_names(request.features)
            for request in plan.requests
            if not request.tables
        ]
        names = tuple(dict.fromkeys(name for features in used for name in features))
        sets = [*((name,) for name in names), *itertools.combinations(names, 2)]
        # the literal reading of a(t) depends on the totals; any records that move together, and
        # exchanges, do not
        reading = (
            AdjacencyChoice.worst_case
            if plan.adjacency is AdjacencyChoice.definition
            else plan.adjacency
        )
        for margin in (Margin(*schema.complete_names(part)) for part in sets):
            if scope.dataspace.publishes(margin) or any(
                margin == entry["margin"] for entry in forecasts
            ):
                continue
            # Any totals stand for the true ones, which nobody has agreed to publish yet.
            more = evolve(plan, invariants=(*plan.invariants, margin))
            try:
                outlook = forecast(
                    calibrate(more, any_totals(evolve(more, adjacency=reading), schema))
                )
            except SemidpError as refusal:
                forecasts.append({"margin": margin, "refused": str(refusal)})
            else:
                seen, statistics = outlook.document, outlook.beside_tables()
                costs = {
                    "a": seen["adjacency"]["used"],
                    "tables": seen["tables"],
                    "statistics": statistics,
                }
                forecasts.append({"margin": margin, **costs})
            if len(forecasts) == _MOST_FURTHER:
                break
        return forecasts


def _without_budgets(document: Any) -> Any:
    """Return a plan or a request, as plain values, without its budgets: what its scope and its
    spaces depend on.

    >>> _without_budgets({"mu": "1", "table": [{"features": ["sex"], "rho": "1/2"}]})
    {'table': [{'features': ['sex']}]}
    """
    if isinstance(document, list):
        return [_without_budgets(entry) for entry in document]
    if not isinstance(document, dict):
        return document
    return {
        key: _without_budgets(value) for key, value in document.items() if key not in BUDGET_KEYS
    }


def _get_or_make(store: "OrderedDict[Any, Any]", key: Any, make: Callable[[], Any]) -> Any:
    """Return what is kept under a key, or make it; the oldest goes where there is no room."""
    if key not in store:
        store[key] = make()
        while len(store) > KEPT:
            store.popitem(last=False)
    store.move_to_end(key)
    return store[key]
