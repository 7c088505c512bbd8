"""The page of ``semidp explore``: seconds from a slider's move to the answer, for tables of 10^5
cells.

A request goes through the whole application (guard, form, plan, calibration, forecast, page). The
totals are known when the slider moves: choosing other totals takes longer and is not timed here.
"""

import json
import statistics
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import numpy as np
from starlette.testclient import TestClient

from semidp import Feature, Plan, Schema, Table, prepare
from semidp.present.explore.controls import LADDER
from semidp.present.explore.explorer_page import application
from semidp.present.forecasts import PlanForecasts
from semidp.promise.tradeoff.budget import Budget

TARGET = 0.2
SHAPE = {"area": 250, "age": 20, "status": 20}
TABLES = {
    "one table": [("area", "age", "status")],
    "three tables": [("area", "age", "status"), ("area", "age"), ("age", "status")],
}
TOTALS = [("area", "age"), ("status",)]


def answers(tables: list[tuple[str, ...]], kind: str) -> Iterator[float]:
    """Yield the seconds of each move of the slider, once the page is open."""
    features = [Feature(name, [f"{name} {i}" for i in range(size)]) for name, size in SHAPE.items()]
    schema = Schema(features)
    table = Table(schema, np.random.default_rng(1).poisson(20, schema.shape))
    first = Plan(features=features)

    def survey(plan: Plan) -> Any:
        return prepare(plan.with_budget(Budget.gdp(1)), table).scope

    port, token = 8000, "benchmark"
    own = f"http://127.0.0.1:{port}"
    with TestClient(
        application(PlanForecasts(tuple(SHAPE), survey, first), token, port), base_url=own
    ) as client:
        sets = [(f"table-{i}", name) for i, names in enumerate(tables) for name in names]
        sets += [(f"total-{i}", name) for i, names in enumerate(TOTALS) for name in names]
        fixed = [
            ("base", json.dumps(first.to_json())),
            ("kind", kind),
            ("adjacency", "worst-case"),
            *sets,
        ]
        for step in range(LADDER.index(1), LADDER.index(1) + 8):
            start = time.perf_counter()
            answer = client.post(
                f"/{token}/results",
                content=urlencode([*fixed, ("step", str(step)), ("report_delta", "1e-9")]),
                headers={"origin": own},
            )
            seconds = time.perf_counter() - start
            assert answer.status_code == 200
            assert 'class="error"' in answer.text
            if step > LADDER.index(1):
                yield seconds


def run() -> list[dict[str, Any]]:
    """Time the slider for one table and for three that share a budget."""
    rows = []
    for what, tables in TABLES.items():
        for kind in ("mu", "rho", "epsilon"):
            seconds = statistics.median(answers(tables, kind))
            name = f"{what}, 10^5 cells, {kind}: seconds"
            rows.append(
                {"name": name, "ratio": seconds, "target": f"≤ {TARGET}", "ok": seconds <= TARGET}
            )
    return rows
