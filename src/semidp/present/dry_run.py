"""What a release would publish, with what noise, from public values: `semidp release --dry-run`."""

from dataclasses import dataclass
from typing import Any

from attrs import evolve

from semidp.errors import name_keywords
from semidp.present.disclosure_words import disclosure_notice
from semidp.present.forecasts import Outlook, comparison, forecast, stated_text
from semidp.present.report.sentences import (
    budget_parts,
    clipping_parts,
    persons_part,
    strength,
    strength_rows,
    together_disclosed,
    together_text,
    weakness,
)
from semidp.promise.exact import count_noun, plain
from semidp.promise.guarantee import Guarantee
from semidp.promise.mechanisms.branch_noise import Cut
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.spaces.protection import Protection
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.block_run import PreparedBlocks, prepare_parts
from semidp.publish.pipeline import Prepared, RunOptions, calibrate, open_records, prepare
from semidp.publish.plan import Plan
from semidp.publish.resources import ResourceEstimate, estimate_resources, part_needs, size_text
from semidp.publish.results.columns import Form
from semidp.publish.selection import with_exact_claim
from semidp.publish.statistics.protocol.statistic import better, kinds
from semidp.publish.survey import linked_needs, public_scope


@dataclass(frozen=True, eq=False)
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
                rows.append(("announced", f"{announced}, if the exact totals were ignored"))
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
            needs = estimate_resources(prepared.plan, prepared.scope.dataspace.schema)
        else:
            needs = linked_needs(prepared.plan, prepared.scope)
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
