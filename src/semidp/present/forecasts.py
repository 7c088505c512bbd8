"""What a plan would publish, from public values alone: errors beside expected counts, the
guarantee, what is announced.

Rehearsals, comparisons of plans and the page of `semidp explore` show the same numbers. The page
keeps scopes and query spaces that its plans share, so that a slider answers at once.

`DryRun` is that of `semidp release --dry-run`, with the noise that it would draw.
"""

import itertools
import json
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from attrs import define, evolve, field, frozen

from semidp.errors import SemidpError, name_keywords
from semidp.present.disclosure_words import disclosure_notice
from semidp.present.release import Release
from semidp.present.report.sentences import (
    budget_parts,
    clipping_parts,
    comparison_parts,
    explain_other_adjacency,
    persons_part,
    strength,
    strength_rows,
    together_disclosed,
    together_text,
    weakness,
)
from semidp.promise.exact import count_noun, format_rounded_up, plain
from semidp.promise.guarantee import Guarantee, Scope, attacker_sentence
from semidp.promise.mechanisms.branch_noise import Cut
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.schema.outcome import ALL_RECORDS
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.adjacency import Adjacency
from semidp.promise.spaces.dataspace import Margin
from semidp.promise.spaces.protection import Protection
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.function import Tradeoff
from semidp.publish.block_run import PreparedBlocks, prepare_parts
from semidp.publish.pipeline import Prepared, RunOptions, calibrate, open_records, prepare
from semidp.publish.plan import AdjacencyChoice, Plan
from semidp.publish.resources import ResourceEstimate, estimate_resources, part_needs, size_text
from semidp.publish.results.columns import Form
from semidp.publish.results.texts import name_tradeoff
from semidp.publish.selection import with_exact_claim
from semidp.publish.statistics.protocol.requests import BUDGET_KEYS, Forecast, Request
from semidp.publish.statistics.protocol.statistic import better, kinds
from semidp.publish.survey import any_totals, linked_needs, public_scope

_LISTS = ("tables", "statistics")  # of forecasts, in a document for machines


@frozen(eq=False)
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
    margins = [" × ".join(names) for names in document["exact"] if names != [ALL_RECORDS]]
    return "; ".join(margins) or "only the number of records"


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


@frozen(eq=False)
class DryRun:
    """What a release would publish and how large its errors would be, from public values: nothing
    was drawn, charged or written.

    Parameters
    ----------
    asked
        The plan as it was given.
    prepared
        Everything up to the first random number.
    needs
        The memory, disk and time that the release would take.

    Examples
    --------
    >>> import semidp
    >>> people = {"sex": [*"fmm"] * 9, "ill": [*"yn"] * 13 + ["n"]}
    >>> found = semidp.release(
    ...     people, semidp.table("sex", "ill"), exact=["sex", "ill"], mu=1, dry_run=True
    ... )
    >>> print(str(found).splitlines()[0])
    exact      sex, ill
    >>> found.guarantee.adjacency.a, found.to_json()["n"]
    (3, 27)
    """

    asked: Plan
    prepared: Prepared | PreparedBlocks
    needs: ResourceEstimate

    @property
    def guarantee(self) -> Guarantee:
        """What the release would guarantee."""
        return self.prepared.guarantee

    @property
    def plan(self) -> Plan:
        """The plan that would be carried out, with the budget of each request."""
        return self.prepared.plan

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a careful reader should know before the release."""
        scope = self.prepared.scope
        weak = weakness(self.guarantee)
        every = (*scope.warnings, *weak, *scope.disclosures, *disclosure_notice(scope))
        return tuple(together_disclosed(every))

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        prepared, scope, plan = self.prepared, self.prepared.scope, self.plan
        curve = self.guarantee.tradeoff
        document: dict[str, Any] = {"dry_run": True, "n": scope.dataspace.n}
        if scope.persons is not None:
            document["persons"] = scope.persons
        document["plan"] = plan.to_json()
        if isinstance(prepared, PreparedBlocks):
            document["partition"] = {"depth": prepared.partition, "parts": prepared.nodes}
        document["a"] = scope.adjacency_json()
        document["guarantee"] = curve.to_json()
        document["epsilon"] = curve.epsilon(plan.report_delta)
        document["report_delta"] = plan.report_delta
        # Null where the parts have budgets of different kinds, which have no sum.
        document["budget"] = plan.budget and plan.budget.numbers()
        if isinstance(prepared, PreparedBlocks):
            document |= _part_tables(prepared, self.needs)
        else:
            document |= _build_forecast(prepared, self.needs)
        document |= _compare_one_record_json(prepared)
        if prepared.choices:
            document["choices"] = list(prepared.choices)
        document["disclosures"] = scope.disclosures
        document["warnings"] = (*scope.warnings, *weakness(self.guarantee))
        return document

    def rows(self) -> list[tuple[str, str]]:
        """Return lines, each with the word that says what it is about."""
        prepared, scope, plan = self.prepared, self.prepared.scope, self.plan
        rows = [("exact", scope.dataspace.summary())]
        rows += [("exact", text) for text in persons_part(scope)]
        rows += [("clipped", text) for text in clipping_parts(plan)]
        rows += [("compared", text) for text in comparison_parts(plan)]
        rows += found_budget(self.asked, plan)
        rows += [("budget", part) for part in budget_parts(plan)]
        strengths = strength_rows(strength(self.guarantee, plan.report_delta))
        adjacency = [("adjacency", together_text(scope)), *strengths]
        if isinstance(prepared, PreparedBlocks):
            rows += [("would use", line) for line in _part_lines(prepared)]
            rows += [("choice", sentence) for sentence in prepared.choices]
            parts = (
                f"{count_noun(prepared.nodes, 'part')}, one for every {prepared.partition},"
                f" of up to {count_noun(self.needs.largest, 'cell')}"
            )
            rows += [("partition", parts), *adjacency]
        else:
            seen = forecast(prepared)
            rows += [*_uses(prepared, seen), *adjacency]
            if seen.document["announced"] is not None:
                announced = stated_text(seen.document, "announced")
                ignored = "what this noise would be said to give if the exact totals were ignored"
                rows.append(("announced", f"{announced}: {ignored}"))
            rows += [("otherwise", sentence) for sentence in seen.document["otherwise"]]
        rows += _compare_one_record(prepared)
        space = f"{size_text(self.needs.memory)} of memory, {size_text(self.needs.disk)} of disk"
        seconds = f"{self.needs.seconds:,.0f} s, not counting the time to read the data"
        return [*rows, ("would take", f"about {space} and {seconds}")]

    def __str__(self) -> str:
        lines = [f"{name:<10} {name_keywords(text)}" for name, text in self.rows()]
        return "\n".join([*lines, *(f"warning: {name_keywords(said)}" for said in self.warnings)])

    def __repr__(self) -> str:
        return f"DryRun({self.plan!r})"


def rehearse(plan: Plan, source: Any, options: RunOptions, partition: str | None) -> DryRun:
    """Prepare a release, in one piece or part by part, and say what it would publish and take."""
    if partition is None:
        prepared = prepare(plan, source, memory=options.memory)
        if plan.units is None:
            schema, form = prepared.scope.dataspace.schema, options.written_as
            needs = estimate_resources(prepared.plan, schema, form)
        else:
            needs = linked_needs(prepared.plan, prepared.scope, form=options.written_as)
        return DryRun(plan, prepared, needs)
    with open_records(plan, source) as records:
        whole = prepare_parts(plan, records, partition, jobs=options.jobs, memory=options.memory)
    form = options.written_as or Form.parquet
    if plan.units is None:
        cut = Cut.from_name(whole.schema, partition)
        needs = part_needs(whole.plan, whole.schema, cut, options.jobs, form)
    else:
        needs = linked_needs(whole.plan, whole.scope, partition, form)
    return DryRun(plan, whole, needs)


def _several_records(found: Prepared | PreparedBlocks) -> Protection | None:
    """Return whom the promise is about where a person has several records; None where one, or where
    units are linked.
    """
    protection = found.scope.protection
    # The most members of a unit are no number of records: a plan with one would be another.
    if protection is None or protection.times == 1 or found.plan.units is not None:
        return None
    return protection


def _compare_one_record(found: Prepared | PreparedBlocks) -> list[tuple[str, str]]:
    """Compare the errors of the plan with those it would have if each person had one record."""
    protection = _several_records(found)
    if protection is None:
        return []
    rows = []
    for name, one, several in _list_both_errors(found):
        rows.append((f"1 {protection.record}"[:10], f"{name}: {one}"))
        rows.append((f"{protection.most} {protection.records}"[:10], f"{name}: {several}"))
    return rows


def _compare_one_record_json(found: Prepared | PreparedBlocks) -> dict[str, Any]:
    """Return the same as plain values; nothing where a person has one record."""
    protection = _several_records(found)
    if protection is None:
        return {}
    lines = [
        {"name": name, "one": one, "several": several}
        for name, one, several in _list_both_errors(found)
    ]
    return {"records_of_a_person": lines}


def _list_both_errors(found: Prepared | PreparedBlocks) -> list[tuple[str, str, str]]:
    """Return what is published, how far off it would be for one record of a person, and for
    several.
    """
    alone = evolve(found.plan, most=1)
    # The same totals, so that only the records of a person make the difference.
    scope = public_scope(alone, found.scope.dataspace)
    if isinstance(found, PreparedBlocks):
        lines = []
        for request, mechanism in found.calibrated_requests:
            one = request.parts_calibrate(request.parts_space(scope))
            for number, table in enumerate(request.tables):
                before, after = (
                    f"standard error {each.rms_error(number):.1f} per cell"
                    for each in (one, mechanism)
                )
                lines.append((" by ".join(table.features), before, after))
        return lines
    both = comparison([forecast(calibrate(alone, scope)), forecast(found)])
    named = {each.label for each in forecast(found).forecasts}
    return [(name, lines[0], lines[1]) for name, lines in both if name in named]


def _uses(prepared: Prepared, seen: Outlook) -> list[tuple[str, str]]:
    """Say what noise each request would have."""
    rows, instead = [], []
    for (request, mechanism), foreseen in zip(
        prepared.calibrated_requests, seen.by_request, strict=True
    ):
        rows += [("would use", line) for line in request.noise_lines(mechanism, foreseen)]
        # Whoever reads the dry run can still choose, and sees the price of an exact claim.
        if mechanism.claim != "exact" and request.budget is not None:
            instead.append(("otherwise", _exact_instead(mechanism, request.budget)))
        instead += [("otherwise", sentence) for sentence in better(request, mechanism)]
    choices = [("choice", sentence) for sentence in prepared.choices]
    return [*rows, *choices, *instead]


def _exact_instead(mechanism: Mechanism, budget: Budget) -> str:
    """Say what the best mechanism with an exact claim would cost."""
    exact = with_exact_claim(mechanism, budget)
    share = exact.expected_l2 / mechanism.expected_l2 - 1
    return (
        f"with ⟨claim exact⟩: {exact.name}, expected distance of the whole table"
        f" {exact.expected_l2:,.1f} ({share:.0%} more); {mechanism.name} noise makes an ideal"
        " claim, whose proof is for real numbers"
    )


def _part_tables(whole: PreparedBlocks, takes: ResourceEstimate) -> dict[str, Any]:
    """Return the tables of a release part by part, what is released beside them, and what it
    takes.
    """
    tables = []
    lists: dict[str, list[dict[str, Any]]] = {}
    for request, mechanism in whole.calibrated_requests:
        for number, table in enumerate(request.tables):
            schema, error = whole.schema.restrict(table.features), mechanism.rms_error(number)
            sizes = {"features": list(schema.names), "cells": schema.size}
            tables.append({"name": table.name, **sizes, "rms_standard_error": error})
        if not request.tables:
            budget = request.budget and request.budget.numbers()
            noise = request.noise_json(mechanism, request.forecast(mechanism, whole.scope))
            lists.setdefault(f"{request.key}s", []).append(
                {"name": request.name, "budget": budget, **noise}
            )
    return {"tables": tables, **lists, "needs": takes.to_json()}


def _part_lines(whole: PreparedBlocks) -> list[str]:
    """Say with what noise every table would be measured, in all parts, and what is released beside
    them.
    """
    lines = []
    for request, mechanism in whole.calibrated_requests:
        for number, table in enumerate(request.tables):
            schema = whole.schema.restrict(table.features)
            error = (
                f"standard error {mechanism.rms_error(number):.1f} in each of"
                f" {count_noun(schema.size, 'cell')}"
            )
            lines.append(f"{mechanism.name} for {' by '.join(schema.names)}: {error}")
        if not request.tables:
            lines += request.noise_lines(mechanism, request.forecast(mechanism, whole.scope))
    return lines


def found_budget(asked: Plan, carried_out: Plan) -> list[tuple[str, str]]:
    """Say which budget meets the target errors."""
    targets = [target for request in asked.requests for target in request.targets]
    errors = [f"{plain(error)} in {name}" for name, error in targets if error is not None]
    budgets = {
        str(request.budget) for request in carried_out.requests if request not in asked.requests
    }
    least = f"{', '.join(budgets)}: the least for a standard error of {', '.join(errors)}"
    return [("budget", least)] if errors else []


def _build_forecast(prepared: Prepared, takes: ResourceEstimate) -> dict[str, Any]:
    """Return what each request would publish and with what noise, and what it takes."""
    seen = forecast(prepared)
    lists: dict[str, list[dict[str, Any]]] = {name: [] for kind in kinds() for name in kind.results}
    for (request, mechanism), foreseen in zip(
        prepared.calibrated_requests, seen.by_request, strict=True
    ):
        budget = request.budget and request.budget.numbers()
        entry = {"name": request.name, "budget": budget, **request.noise_json(mechanism, foreseen)}
        if mechanism.claim != "exact" and request.budget is not None:
            entry["with_exact_claim"] = with_exact_claim(mechanism, request.budget).to_json()
        sentences = better(request, mechanism)
        if sentences:
            entry["otherwise"] = sentences
        lists.setdefault(f"{request.key}s", []).append(entry)
    return {**lists, "needs": takes.to_json(), "announced": seen.document["announced"]}
