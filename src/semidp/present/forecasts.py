"""What a plan would publish, from public values alone: errors beside expected counts, the
guarantee, what is announced.

Rehearsals, comparisons of plans and the page of `semidp explore` show the same numbers. The page
keeps scopes and query spaces that its plans share, so that a slider answers at once.
"""

import itertools
import json
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from attrs import define, evolve, field

from semidp.errors import SemidpError
from semidp.present.release import Release
from semidp.present.report.sentences import (
    explain_other_adjacency,
    together_text,
)
from semidp.promise.exact import format_rounded_up, plain
from semidp.promise.guarantee import Scope, attacker_sentence
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Margin
from semidp.promise.spaces.protection import Protection
from semidp.promise.tradeoff.function import Tradeoff
from semidp.publish.pipeline import Prepared, calibrate
from semidp.publish.plan import AdjacencyChoice, Plan
from semidp.publish.results.texts import name_tradeoff
from semidp.publish.statistics.protocol.requests import BUDGET_KEYS, Forecast, Request
from semidp.publish.survey import any_totals

_LISTS = ("tables", "statistics")  # of forecasts, in a document for machines


@dataclass(frozen=True, eq=False)
class Outlook:
    """What a plan would publish.

    Parameters
    ----------
    by_request
        For each request of the plan what it would publish.
    document
        Everything as plain values, all of them public.
    """

    by_request: tuple[tuple[Forecast, ...], ...]
    document: Mapping[str, Any]

    @property
    def forecasts(self) -> tuple[Forecast, ...]:
        """What all requests would publish."""
        return tuple(forecast for foreseen in self.by_request for forecast in foreseen)

    def beside_tables(self) -> list[tuple[str, str]]:
        """Return the name of everything that is no table, and how far off it would be."""
        no_tables = [forecast for forecast in self.forecasts if forecast.listed == Forecast.listed]
        return [(forecast.name, forecast.line()) for forecast in no_tables]


def forecast(prepared: Prepared) -> Outlook:
    """Return what a prepared plan would publish.

    Examples
    --------
    >>> import semidp
    >>> plan = semidp.Plan(
    ...     [semidp.publish.TableRequest(["sex", "region"], semidp.Budget.gdp(1))],
    ...     ["sex", "region"],
    ... )
    >>> people = {"sex": [*"ffmmm"], "region": [*"nsnss"]}
    >>> seen = forecast(semidp.prepare(plan, people)).document
    >>> (
    ...     round(seen["tables"][0]["expected"]["median"], 6),
    ...     seen["guarantee"]["name"],
    ...     seen["announced"]["name"],
    ... )
    (1.2, 'μ = 1 (Gaussian DP)', 'μ = 0.707107 (Gaussian DP)')
    """
    scope = prepared.scope
    delta = prepared.plan.report_delta
    by_request = []
    for request, mechanism in prepared.calibrated_requests:
        by_request.append(request.forecast(mechanism, scope))
    lists: dict[str, list[dict[str, Any]]] = {}
    for listed in _LISTS:
        lists[listed] = []
    for foreseen in by_request:
        for each in foreseen:
            lists[each.listed].append(each.to_json())
    announced = prepared.naive_tradeoff
    # The guarantee under the other adjacency stands beside that of an exchange release alone.
    otherwise = [] if scope.adjacency.protects_groups else explain_other_adjacency(prepared)
    document: dict[str, Any] = {}
    document["exact"] = [list(margin.names) for margin in scope.dataspace.margins]
    document["n"] = scope.dataspace.n
    if scope.persons is not None:
        document["persons"] = scope.persons
    document["adjacency"] = {**scope.adjacency_json(), "text": together_text(scope)}
    document["guarantee"] = _strength(prepared.guarantee.tradeoff, delta, scope.protection)
    document["otherwise"] = otherwise
    document["announced"] = None
    if announced is not None:
        document["announced"] = _strength(announced, delta, scope.protection)
    document["report_delta"] = delta
    document |= lists
    document["warnings"] = list(scope.warnings)
    document["disclosures"] = list(scope.disclosures)
    return Outlook(tuple(by_request), document)


def comparison(plans: Sequence[Outlook]) -> list[tuple[str, list[str]]]:
    """Return what the forecasts of several plans have side by side, line by line: its name and what
    each plan has.

    >>> import semidp
    >>> plan = semidp.Plan([semidp.publish.TableRequest(["sex"], semidp.Budget.gdp(1))], ["sex"])
    >>> [name for name, _ in comparison([forecast(semidp.prepare(plan, {"sex": ["f", "m"]}))])]
    ['exact', 'adjacency', 'sex', 'attacker', 'guarantee', 'announced']
    """
    documents = [plan.document for plan in plans]
    rows = [("exact", [_exact_text(document) for document in documents])]
    adjacencies = [document["adjacency"]["text"] for document in documents]
    rows.append(("adjacency", adjacencies))
    rows += _forecast_rows(plans)
    attackers = [document["guarantee"]["attacker"] for document in documents]
    rows.append(("attacker", attackers))
    rows.append(("guarantee", [stated_text(document, "guarantee") for document in documents]))
    otherwise = [" ".join(document["otherwise"]) for document in documents]
    if any(otherwise):
        rows.append(("otherwise", otherwise))
    rows.append(("announced", [stated_text(document, "announced") for document in documents]))
    return rows


def _exact_text(document: Mapping[str, Any]) -> str:
    margins = [" × ".join(names) for names in document["exact"]]
    return "; ".join(margins) or "only n"


def _forecast_rows(plans: Sequence[Outlook]) -> list[tuple[str, list[str]]]:
    """Return a row for everything that one of the plans would publish, tables first."""
    columns = []
    for plan in plans:
        columns.append({(each.listed, each.label): each.line() for each in plan.forecasts})
    rows = []
    for listed in _LISTS:
        # each label once, in the order of the first plan that has it
        labels: dict[str, None] = {}
        for column in columns:
            labels |= dict.fromkeys(label for place, label in column if place == listed)
        for label in labels:
            lines = [column.get((listed, label), "not published") for column in columns]
            rows.append((label, lines))
    return rows


def stated_text(plan: Mapping[str, Any], key: str) -> str:
    """Write a forecast's ``guarantee``, or what its noise is ``announced`` to give where the totals
    are ignored.
    """
    stated = plan[key]
    if stated is None:
        return "the same" if not plan["exact"] else "not known"
    epsilon = stated["epsilon"]
    delta = plain(plan["report_delta"])
    restated = "none" if epsilon is None else f"({format_rounded_up(epsilon)}, {delta})-DP"
    written = plan["adjacency"]
    adjacency = Adjacency.from_json({**written, "a": written["used"]})
    # What the noise is announced to give is about any one record, whatever the promise.
    needs_pairs = key == "guarantee" and not adjacency.protects_groups
    name = f"{stated['name']}, " if stated["name"] else ""
    pairs = f", for {adjacency.words.pairs}" if needs_pairs else ""
    return f"{name}{restated}{pairs}"


def _strength(tradeoff: Tradeoff, delta: Fraction, protection: Protection | None) -> dict[str, Any]:
    epsilon = tradeoff.epsilon(delta)
    strength: dict[str, Any] = {"name": name_tradeoff(tradeoff)}
    # JSON has no infinity.
    strength["epsilon"] = epsilon if math.isfinite(epsilon) else None
    strength["attacker"] = attacker_sentence(tradeoff, protection)
    strength["tradeoff"] = tradeoff.to_json()
    return strength


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
