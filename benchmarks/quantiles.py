"""Medians by exact group next to OpenDP's private quantile, at the same guarantee: any two records
change at once.

OpenDP runs in the interpreter named by SEMIDP_PEERS_PYTHON: scores of all candidates, then its
noisy maximum, with the scale at which its own map says that two replaced records (a symmetric
distance of 4) cost the budget. Both choose among the same candidates, and the error is counted in
records that would have to be replaced to make the chosen value the median. A ratio above 1 means
that OpenDP's error is the larger one.

Both spend the budget alike: for pure ε both take the noisy maximum with exponential noise, for ρ
with Gumbel noise. The scores differ where values are tied. OpenDP scores a value by how evenly the
others lie around it, semidp by the records to replace until it is the median, below zero for the
median itself. On one data set either may be luckier, so the errors are means over many; where the
median is shared by many (most families without children, say) OpenDP misses it.
"""

import itertools
import json
import os
import subprocess
import sys
from typing import Any

import numpy as np

from semidp.promise.mechanisms.exponential import exponential_mechanism, rank_scores, rank_space
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.tradeoff.budget import Budget

STEPS, SETS, REPEATS = 1000, 40, 25
KINDS = {
    "scattered": (160, 0.9),
    "a few to a step": (2_000, 1.0),
    "a hundred to a step": (20_000, 1.0),
    "six in ten at zero": (500, 10.0),
}
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


def data(kind: str) -> list[list[int]]:
    """Return data sets of one kind, in steps of the grid."""
    source, (size, _) = np.random.default_rng(1), KINDS[kind]
    groups = [source.normal(600, 80 if size == 20_000 else 120, size) for _ in range(SETS)]
    if kind == "six in ten at zero":
        for part in groups:
            part[: int(0.6 * size)] = 0
    return [np.clip(np.rint(part), 0, STEPS).astype(int).tolist() for part in groups]


def ours(budget: Budget, groups: list[list[int]]) -> float:
    """Return the mean error in ranks: each data set is the one group of a mechanism for its
    size.
    """
    schema, size = Schema((Feature("school", ["a"]),)), len(groups[0])
    public = Dataspace.from_table(Table(schema, np.array([size])), [Margin("school")])
    space = rank_space(public, Ball(2), Outcome("score", 0, 100, STEPS), [Margin("school")])
    mechanism, source = exponential_mechanism(space, budget), SeededRandomness(2)
    histograms = [np.bincount(values, minlength=STEPS + 1)[None] for values in groups]
    return error(
        [mechanism.measure_many(one, REPEATS, source).ravel().tolist() for one in histograms],
        groups,
    )


def theirs(budget: Budget, groups: list[list[int]]) -> float:
    """Return the same for OpenDP."""
    python = os.environ.get("SEMIDP_PEERS_PYTHON")
    if not python:
        raise RuntimeError("set SEMIDP_PEERS_PYTHON to an interpreter that has opendp")
    amount = float(budget.epsilon if budget.epsilon is not None else budget.rho or 0)
    asked = json.dumps([budget.kind, amount, STEPS, REPEATS, groups])
    done = subprocess.run(
        [python, "-c", OPENDP], input=asked, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"OpenDP did not run: {done.stderr.strip().splitlines()[-1]}")
    return error(json.loads(done.stdout), groups)


def error(chosen: list[list[int]], groups: list[list[int]]) -> float:
    """Return the mean number of records to replace until the chosen value is the median."""
    found = []
    for values, drawn in zip(groups, chosen, strict=True):
        away = np.maximum(
            rank_scores(np.bincount(values, minlength=STEPS + 1), (len(values) + 1) // 2), 0
        )
        found.append(away[np.array(drawn)].mean())
    return float(np.mean(found))


def run() -> list[dict[str, Any]]:
    """Compare the errors at two budgets."""
    rows = []
    for budget, (kind, (size, target)) in itertools.product(
        (Budget.pure(1), Budget.zcdp("1/2")), KINDS.items()
    ):
        groups = data(kind)
        own, name = ours(budget, groups), f"{size:,} values, {kind}, {budget.kind}"
        try:
            other = theirs(budget, groups)
        except RuntimeError as missing:
            print(f"MISSING PEER: {missing}", file=sys.stderr)
            rows.append(
                {
                    "name": f"{name}: NOT MEASURED",
                    "ratio": 0.0,
                    "target": f"≥ {target:g}",
                    "ok": False,
                }
            )
            continue
        ratio = other / max(own, 0.01)
        said = {"name": f"{name}: {own:.2f} ranks off, OpenDP {other:.2f}", "ratio": ratio}
        rows.append({**said, "target": f"≥ {target:g}", "ok": ratio >= target})
    return rows
