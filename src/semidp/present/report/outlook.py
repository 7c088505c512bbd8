"""What a plan would publish, before anything is drawn: errors beside expected counts, the
guarantee, what is announced.

Everything is computed from public values: the plan, the published totals and the calibrated
mechanisms. Rehearsals, comparisons of plans and the page of `semidp explore` show the same numbers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from semidp.present.report.sentences import explain_other_adjacency, together_text
from semidp.promise.exact import format_rounded_up, plain
from semidp.promise.guarantee import attacker_sentence
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.protection import Protection
from semidp.promise.tradeoff.function import Tradeoff
from semidp.publish.pipeline import Prepared
from semidp.publish.results.texts import name_tradeoff
from semidp.publish.statistics.protocol.requests import Forecast

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
        no_tables = [forecast for forecast in self.forecasts if not forecast.by_cells]
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
    are forgotten.
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
