"""How often intervals beside exact groups hold what they are about: the tables in docs/groups.md.

``python benchmarks/coverage.py [REPLICATES]`` prints them. Nothing here is timed; each row is a simulation of fresh
records and fresh noise, and its shares have a standard error of about ``sqrt(p (1 - p) / replicates)``.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.engines import Outcome
from semidp.grouped import (
    Design,
    GroupSums,
    Intervals,
    LinearFit,
    LogisticFit,
    Moments,
    regression_mechanism,
    sum_space,
)
from semidp.mechanisms import outcome_mechanism
from semidp.noise import SeededRandomness
from semidp.queries import route_values
from semidp.spaces import Adjacency, Dataspace, Margin
from semidp.tables import Feature, Schema, Table
from semidp.tradeoff import Budget

Floats = NDArray[np.float64]
SMALL, LARGE = ((60, 40), (50, 50)), ((600, 400), (500, 500))
BETA = np.array([-0.7, 1.0, -0.4])
CASES = ((SMALL, Budget.gdp(1)), (SMALL, Budget.gdp("1/4")), (LARGE, Budget.gdp("1/2")), (LARGE, Budget.pure(1)))


def main(replicates: int) -> None:
    """Print the share of intervals at 95% that hold the records' and the population's values."""
    print("| statistic | records | budget | of the records | of the population | open ends |")
    print("|---|---|---|---|---|---|")
    for counts, budget in CASES:
        for name, simulate in (("means by two factors", means), ("linear regression", linear), ("logistic", logistic)):
            shares = simulate(np.array(counts), budget, replicates)
            print(
                f"| {name} | {np.sum(counts):,} | {budget} | {shares[0]:.3f} | {shares[1]:.3f} | {shares[2]:.1%} |",
                flush=True,
            )


def run() -> list[dict[str, Any]]:
    """Return shares of the smallest case over their level: at least 0.97 but for chance."""
    counts, budget = CASES[0]
    rows = []
    for name, simulate in (("means", means), ("linear regression", linear), ("logistic regression", logistic)):
        shares = simulate(np.array(counts), budget, 100)
        for what, share in zip(("records", "population"), shares[:2], strict=True):
            said = {"name": f"{name}: 95% intervals of the {what}, share over level", "ratio": share / 0.95}
            rows.append({**said, "target": "≥ 0.97", "ok": bool(share / 0.95 >= 0.97)})
    return rows


def means(counts: NDArray[np.int64], budget: Budget, replicates: int) -> Floats:
    """Scores in ten steps: means of the four cells, the spread within cells known."""
    public = _public(counts)
    outcome = Outcome("y", 0, 1, 10)
    mechanism = outcome_mechanism(sum_space(public, Adjacency(2), outcome, [Margin("arm", "sex")]), budget)
    rates, source = np.array([0.3, 0.5, 0.6, 0.45]), np.random.default_rng(1)
    spread, n = 0.25, counts.ravel()

    def once(seed: int) -> tuple[Floats, Floats, Intervals, Intervals]:
        drawn = [np.clip(np.rint(10 * source.normal(p, spread, k)), 0, 10) for p, k in zip(rates, n, strict=True)]
        totals = np.array([part.sum() for part in drawn], dtype=np.int64)
        found = GroupSums(mechanism, mechanism.measure(totals, SeededRandomness(seed)))
        return (
            totals / 10 / n,
            _clipped(rates, spread),
            found.mean_intervals(),
            found.mean_intervals(sampling_sd=spread),
        )

    return _shares(once, replicates)


def linear(counts: NDArray[np.int64], budget: Budget, replicates: int) -> Floats:
    """Zeros and ones with linear rates: two main effects, the largest residual spread that the bounds allow."""
    public, outcome = _public(counts), Outcome("y", 0, 1, 1)
    design = _design(public)
    mechanism = regression_mechanism(public, Adjacency(2), outcome, design, budget)
    rows, n, source = design.rows().astype(float), counts.ravel(), np.random.default_rng(2)
    inverse, beta = np.linalg.inv(design.gram(public).astype(float)), np.array([0.35, 0.25, -0.1])

    def once(seed: int) -> tuple[Floats, Floats, Intervals, Intervals]:
        ones = source.binomial(n, rows @ beta)
        values = route_values(mechanism.space, design, ones)  # type: ignore[arg-type]
        fit = LinearFit(Moments(mechanism, mechanism.measure(values, SeededRandomness(seed)), design))
        return inverse @ rows.T @ ones, beta, fit.intervals(), fit.intervals(residual_sd=fit.widest_sd())

    return _shares(once, replicates)


def logistic(counts: NDArray[np.int64], budget: Budget, replicates: int) -> Floats:
    """Zeros and ones with logistic rates: two main effects."""
    public, outcome = _public(counts), Outcome("y", 0, 1, 1)
    design = _design(public)
    mechanism = regression_mechanism(public, Adjacency(2), outcome, design, budget)
    clear = regression_mechanism(public, Adjacency(2), outcome, design, Budget.gdp(10**7))
    rows, n, source = design.rows().astype(float), counts.ravel(), np.random.default_rng(3)

    def once(seed: int) -> tuple[Floats, Floats, Intervals, Intervals]:
        ones = source.binomial(n, 1 / (1 + np.exp(-rows @ BETA)))
        fits = []
        for one in (clear, mechanism):
            values = route_values(one.space, design, ones)  # type: ignore[arg-type]
            fits.append(LogisticFit(Moments(one, one.measure(values, SeededRandomness(seed)), design)))
        return fits[0].coefficients, BETA, fits[1].intervals(), fits[1].intervals(sampling=True)

    return _shares(once, replicates)


def _shares(once: Callable[[int], tuple[Floats, Floats, Intervals, Intervals]], replicates: int) -> Floats:
    """Return how often intervals hold the records' and the population's values, and how many ends are open."""
    total = np.zeros(3)
    for seed in range(replicates):
        own, population, alone, both = once(seed)
        ends = np.concatenate([alone.lower, alone.upper, both.lower, both.upper])
        total += [_held(alone, own), _held(both, population), float(np.isinf(ends).mean())]
    return total / replicates


def _held(intervals: Intervals, truth: Floats) -> float:
    return float(np.mean((intervals.lower <= truth) & (truth <= intervals.upper)))


def _clipped(rates: Floats, spread: float) -> Floats:
    """The population means of normal scores that are clipped and rounded to ten steps."""
    from scipy.stats import norm

    steps = np.arange(1, 11)
    return np.asarray(norm.sf((steps[:, None] - 0.5) / 10, rates, spread).sum(axis=0) / 10)


def _public(counts: NDArray[np.int64]) -> Dataspace:
    table = Table(Schema((Feature("arm", "cd"), Feature("sex", "fm"))), counts)
    return Dataspace.of(table, [Margin("arm", "sex")])


def _design(public: Dataspace) -> Design:
    assert public.schema is not None
    return Design.of(public.schema, ["arm", "sex"])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
