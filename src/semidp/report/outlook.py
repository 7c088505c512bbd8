"""What a plan would publish, before anything is drawn: errors beside expected counts, the guarantee, what is announced.

Everything is computed from public values: the plan, the published totals and the calibrated mechanisms. Rehearsals,
comparisons of plans and the page of `semidp explore` show the same numbers.
"""

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.core.exact import plain, rounded_up
from semidp.core.guarantee import detection
from semidp.core.margins import Totals, junction_order
from semidp.core.spaces.dataspace import Dataspace
from semidp.core.tradeoff.base import Tradeoff
from semidp.mechanisms.base import Mechanism
from semidp.mechanisms.residuals import ResidualMechanism
from semidp.publishing.pipeline import Prepared
from semidp.report.cells import MOST_CELLS
from semidp.report.sentences import cell_errors, errors_text, forgotten, implied, name_of, table_errors, together_text
from semidp.statistics.protocol import Request, advertised

_SWEEPS = 60
_CLOSE = 1e-6


def expected_counts(dataspace: Dataspace) -> NDArray[np.float64]:
    """Return the table of most entropy with the published totals: what independence given those makes of them.

    Proportional fitting from equal counts in all possible cells; for decomposable margins one sweep in the order of a
    junction tree gives the closed form, the product of the margins over the product of what they share.

    Examples
    --------
    >>> from semidp.core.spaces.dataspace import Margin
    >>> from semidp.core.tables.features import Feature
    >>> from semidp.core.tables.schema import Schema
    >>> from semidp.core.tables.counts import Table
    >>> table = Table(Schema([Feature("sex", "fm"), Feature("region", "ns")]), [[5, 1], [1, 3]])
    >>> expected_counts(Dataspace.of(table, [Margin("sex"), Margin("region")])).round(6).tolist()
    [[3.6, 2.4], [2.4, 1.6]]
    """
    schema = dataspace.schema
    grid = schema.grid
    totals = {total.view: total for total in dataspace.published}
    order = junction_order(list(totals)) or list(totals)
    margins = [totals[view] for view in order] or [
        Totals(grid.nothing, np.array(dataspace.n).reshape(grid.shape_of(grid.nothing)))
    ]
    start = np.ones(schema.shape) if schema.possible is None else schema.possible.astype(np.float64)
    cells = start * (dataspace.n / max(float(start.sum()), 1.0))
    for _ in range(_SWEEPS):
        off = 0.0
        for margin in margins:
            sums = grid.sum(cells, margin.view)
            off = max(off, float(np.abs(sums - margin.counts).max(initial=0.0)))
            factors = np.divide(margin.counts, sums, out=np.zeros_like(sums), where=sums > 0)
            cells = cells * grid.spread(factors, margin.view)
        if off <= _CLOSE * max(dataspace.n, 1):
            break
    return np.asarray(cells, dtype=np.float64)


def forecast(prepared: Prepared) -> dict[str, Any]:
    """Return what a prepared plan would publish as plain values, all of them public.

    Examples
    --------
    >>> import semidp
    >>> plan = semidp.Plan([semidp.TableRequest(["sex", "region"], semidp.Budget.gdp(1))], ["sex", "region"])
    >>> people = {"sex": [*"ffmmm"], "region": [*"nsnss"]}
    >>> found = forecast(semidp.prepare(plan, people))
    >>> round(found["tables"][0]["expected"]["median"], 6), found["guarantee"]["name"], found["announced"]["name"]
    (1.2, '1-GDP', '0.707107-GDP')
    """
    scope, delta = prepared.scope, prepared.plan.report_delta
    announced = forgotten(scope.dataspace, map(advertised, prepared.mechanisms))
    return {
        "exact": [list(margin.names) for margin in scope.dataspace.margins],
        "n": scope.dataspace.n,
        "adjacency": {**scope.adjacency_json(), "text": together_text(scope)},
        "guarantee": _strength(prepared.guarantee.tradeoff, delta),
        "otherwise": [] if scope.adjacency.protects_groups else implied(prepared),
        "announced": None if announced is None else _strength(announced, delta),
        "report_delta": delta,
        "tables": [table for part in prepared.parts for table in _tables(prepared, *part)],
        "statistics": [_statistic(*part) for part in prepared.parts if part[0].key in ("group", "regression")],
        "warnings": list(scope.warnings),
        "disclosures": list(scope.disclosures),
    }


def forecast_text(table: dict[str, Any]) -> str:
    """Say how large the errors of a table are beside its counts.

    >>> errors = {"standard_error": 1.2, "smallest": 1.2, "largest": 1.2, "narrowest": 2.352, "widest": 2.352}
    >>> table = {"errors": errors, "expected": {"smallest": 0.0, "median": 40.0, "largest": 90.0}, "dominated": 0.25}
    >>> forecast_text(table)
    'standard error 1.2 a cell, 95% within ±2.352 (expected counts about 40; noise dominates 25% of the cells)'
    """
    if not table["errors"]["largest"]:
        return "exact: the published totals fix every cell"
    share = f"; noise dominates {table['dominated']:.0%} of the cells" if table["dominated"] else ""
    return f"{errors_text(table['errors'])} (expected counts about {table['expected']['median']:.3g}{share})"


def comparison(plans: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """Return what the forecasts of several plans have side by side, line by line: its name and what each plan has.

    >>> import semidp
    >>> plan = semidp.Plan([semidp.TableRequest(["sex"], semidp.Budget.gdp(1))], ["sex"])
    >>> [name for name, _ in comparison([forecast(semidp.prepare(plan, {"sex": ["f", "m"]}))])]
    ['exact', 'adjacency', 'sex', 'attacker', 'guarantee', 'announced']
    """
    names = list(dict.fromkeys(" by ".join(table["features"]) for plan in plans for table in plan["tables"]))
    lines = [
        ("exact", ["; ".join(" × ".join(part) for part in plan["exact"]) or "only n" for plan in plans]),
        ("adjacency", [plan["adjacency"]["text"] for plan in plans]),
    ]
    for name in names:
        tables = [{" by ".join(table["features"]): table for table in plan["tables"]} for plan in plans]
        lines.append((name, [forecast_text(own[name]) if name in own else "not published" for own in tables]))
    return [
        *lines,
        ("attacker", [plan["guarantee"]["attacker"] for plan in plans]),
        ("guarantee", [stated_text(plan, "guarantee") for plan in plans]),
        *([("otherwise", others)] if any(others := [" ".join(plan["otherwise"]) for plan in plans]) else []),
        ("announced", [stated_text(plan, "announced") for plan in plans]),
    ]


def stated_text(plan: dict[str, Any], key: str) -> str:
    """Write a forecast's ``guarantee``, or what its noise is ``announced`` to give where the totals are forgotten."""
    found = plan[key]
    if found is None:
        return "the same" if not plan["exact"] else "not known"
    epsilon = found["epsilon"]
    restated = "none" if epsilon is None else f"({rounded_up(epsilon)}, {plain(plan['report_delta'])})-DP"
    exchange = key == "guarantee" and plan["adjacency"].get("kind") == "exchange"
    name = f"{found['name']}, " if found["name"] else ""
    return f"{name}{restated}{', for exchanges of one person' if exchange else ''}"


def _strength(tradeoff: Tradeoff, delta: Fraction) -> dict[str, Any]:
    epsilon = tradeoff.epsilon(delta)
    return {
        "name": name_of(tradeoff),
        "epsilon": epsilon if math.isfinite(epsilon) else None,
        "attacker": detection(tradeoff),
        "tradeoff": tradeoff.to_json(),
    }


def _tables(prepared: Prepared, request: Request, mechanism: Mechanism) -> list[dict[str, Any]]:
    """Return each table of a request with its errors beside the counts that are to be expected."""
    space = prepared.scope.dataspace
    if len(request.tables) > 1:
        assert isinstance(mechanism, ResidualMechanism)
        parts = [(table, table_errors(mechanism, number)) for number, table in enumerate(request.tables)]
    elif request.tables:
        parts = [(request.tables[0], cell_errors(mechanism))]
    else:
        return []
    found = []
    for table, errors in parts:
        public = space.over(table.features)
        size = public.schema.size
        counts = expected_counts(public) if size <= MOST_CELLS else np.array([(public.n or 0) / size])
        low = counts < errors.get("half_width", 2 * errors["standard_error"])
        found.append(
            {
                "name": table.name,
                "features": list(table.features),
                "cells": size,
                "errors": errors,
                "expected": {
                    "smallest": float(counts.min()),
                    "median": float(np.median(counts)),
                    "largest": float(counts.max()),
                },
                "dominated": float(low.mean()) if errors["largest"] else 0.0,
            }
        )
    return found


def _statistic(request: Request, mechanism: Mechanism) -> dict[str, Any]:
    """Return a statistic of groups, or a regression, with the noise of the sums behind it."""
    scale = math.sqrt(mechanism.variance) * float(mechanism.space.unit)
    return {"name": request.name, "features": list(request.features), "standard_error_of_sums": scale}
