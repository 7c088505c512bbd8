"""Medians by exact group next to OpenDP's private quantile, at the same guarantee: any two records change at once.

OpenDP runs in the interpreter named by SEMIDP_PEERS_PYTHON: scores of all candidates, then its noisy maximum, with the
scale at which its own map says that two replaced records (a symmetric distance of 4) cost the budget. Both choose among
the same candidates, and the error is counted in records that would have to be replaced to make the chosen value the
median. A ratio above 1 means that OpenDP's error is the larger one.

Both spend the budget alike, so that scattered values give the same error. Where values are tied the two differ: OpenDP
scores a value by how evenly the others lie around it, which is sharper where each step has a few records, and misses
the median where many records share it (most families without children, say).
"""

import json
import os
import subprocess
from typing import Any

import numpy as np

from semidp.engines import Outcome
from semidp.mechanisms import exponential_mechanism
from semidp.noise import SeededRandomness
from semidp.queries import rank_space
from semidp.queries.ranks import rank_distances
from semidp.spaces import Adjacency, Dataspace, Margin
from semidp.tables import Feature, Schema, Table
from semidp.tradeoff import Budget

STEPS, REPEATS = 1000, 400
KINDS = {"scattered": (160, 0.9), "a few to a step": (2000, 0.3), "six in ten at zero": (500, 10.0)}
SIZES = tuple(size for size, _ in KINDS.values())
OPENDP = """
import json, sys, warnings
warnings.simplefilter("ignore")
import opendp.prelude as dp
dp.enable_features("contrib", "idealized-numerics")
kind, budget, steps, repeats, groups = json.loads(sys.stdin.read())
measure = dp.max_divergence() if kind == "pure" else dp.zero_concentrated_divergence()
found = []
for values in groups:
    domain = dp.vector_domain(dp.atom_domain(T=int), size=len(values))
    scores = dp.t.make_quantile_score_candidates(domain, dp.symmetric_distance(), list(range(steps + 1)), 0.5)
    make = lambda scale: scores >> dp.m.then_noisy_max(measure, scale=scale, negate=True)
    scale = dp.binary_search(lambda scale: make(scale).map(4) <= budget, bounds=(0.001, 100000.0))
    chosen = make(scale)
    found.append([chosen(values) for _ in range(repeats)])
print(json.dumps(found))
"""


def data() -> list[list[int]]:
    """Return three groups of values, in steps of the grid."""
    source = np.random.default_rng(1)
    groups = [source.normal(600, 120, n) for n in SIZES]
    groups[2][: int(0.6 * SIZES[2])] = 0
    return [np.clip(np.rint(part), 0, STEPS).astype(int).tolist() for part in groups]


def ours(budget: Budget, groups: list[list[int]]) -> list[float]:
    """Return the mean error in ranks of each group."""
    schema = Schema((Feature("school", [str(k) for k in range(len(SIZES))]),))
    public = Dataspace.of(Table(schema, np.array(SIZES)), [Margin("school")])
    space = rank_space(public, Adjacency(2), Outcome("score", 0, 100, STEPS), [Margin("school")])
    histograms = np.stack([np.bincount(values, minlength=STEPS + 1) for values in groups])
    chosen = exponential_mechanism(space, budget).measure_many(histograms, REPEATS, SeededRandomness(2))
    return errors(chosen.T.tolist(), groups)


def theirs(budget: Budget, groups: list[list[int]]) -> list[float]:
    """Return the same for OpenDP."""
    python = os.environ.get("SEMIDP_PEERS_PYTHON")
    if not python:
        raise RuntimeError("set SEMIDP_PEERS_PYTHON to an interpreter that has opendp")
    amount = float(budget.epsilon if budget.epsilon is not None else budget.rho or 0)
    asked = json.dumps([budget.kind, amount, STEPS, REPEATS, groups])
    done = subprocess.run([python, "-c", OPENDP], input=asked, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"OpenDP did not run: {done.stderr.strip().splitlines()[-1]}")
    return errors(json.loads(done.stdout), groups)


def errors(chosen: list[list[int]], groups: list[list[int]]) -> list[float]:
    """Return the mean number of records to replace until the chosen value is the median, for each group."""
    found = []
    for values, drawn in zip(groups, chosen, strict=True):
        away = rank_distances(np.bincount(values, minlength=STEPS + 1), (len(values) + 1) // 2)
        found.append(float(away[np.array(drawn)].mean()))
    return found


def run() -> list[dict[str, Any]]:
    """Compare the errors at two budgets."""
    rows, groups = [], data()
    for budget in (Budget.pure(1), Budget.zcdp("1/2")):
        try:
            pairs = zip(KINDS.items(), ours(budget, groups), theirs(budget, groups), strict=True)
        except RuntimeError as missing:
            name = f"medians, {budget.kind}: not measured, {missing}"
            rows.append({"name": name, "ratio": 0.0, "target": "≥ 0.9", "ok": False})
            continue
        for (kind, (size, target)), own, other in pairs:
            ratio = other / max(own, 0.01)
            name = f"{size:,} values, {kind}, {budget.kind}: {own:.2f} ranks off, OpenDP {other:.2f}"
            rows.append({"name": name, "ratio": ratio, "target": f"≥ {target:g}", "ok": ratio >= target})
    return rows
