"""How often intervals beside exact groups hold what they are about: the tables in docs/groups.md.

``python benchmarks/coverage.py [REPLICATES]`` prints them. Nothing here is timed; each row is a simulation of fresh
records and fresh noise, and its shares have a standard error of about ``sqrt(p (1 - p) / replicates)``.
"""

import itertools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.engines import Outcome
from semidp.grouped import (
    Design,
    GroupQuantiles,
    GroupSums,
    Intervals,
    LinearFit,
    LogisticFit,
    Moments,
    regression_mechanism,
    route_values,
    sum_space,
)
from semidp.mechanisms import exponential_mechanism, outcome_mechanism
from semidp.noise import SeededRandomness
from semidp.queries import rank_space
from semidp.spaces import Adjacency, Dataspace, Margin
from semidp.tables import Feature, Schema, Table
from semidp.tradeoff import Budget

Floats = NDArray[np.float64]
SMALL, LARGE = ((60, 40), (50, 50)), ((600, 400), (500, 500))
BETA = np.array([-0.7, 1.0, -0.4])
CASES = ((SMALL, Budget.gdp(1)), (SMALL, Budget.gdp("1/4")), (LARGE, Budget.gdp("1/2")), (LARGE, Budget.pure(1)))
WIDE = {13: (7, 7), 20: (10, 11), 30: (15, 16)}
WIDE_CASES = ((2_000, Budget.gdp(1)), (20_000, Budget.gdp(1)), (2_000, Budget.pure(1)), (1_000, Budget.gdp("1/4")))
MEDIANS = ((400, Budget.gdp(1)), (2_000, Budget.gdp(1)), (400, Budget.gdp(4)), (2_000, Budget.gdp(4)))


def main(replicates: int) -> None:
    """Print the share of intervals at 95% that hold the records' and the population's values."""
    print("| statistic | records | budget | of the records | of the population | open ends |")
    print("|---|---|---|---|---|---|")
    for counts, budget in CASES:
        for name, simulate in (("means by two factors", means), ("linear regression", linear), ("logistic", logistic)):
            shares = simulate(np.array(counts), budget, replicates)
            _print(name, f"{np.sum(counts):,}", budget, *(f"{share:.3f}" for share in shares[:2]), f"{shares[2]:.1%}")
    print("\n| columns | records | budget | of the records | of the population |\n|---|---|---|---|---|")
    for columns, (records, budget) in itertools.product(WIDE, WIDE_CASES):
        shares = logistic(wide(columns, records), budget, 300 if budget.kind == "pure" else 1000)
        _print(columns, f"{records:,}", budget, *(f"{share:.3f}" for share in shares[:2]))
    print(
        "\n| records | budget | held, records | mean width | held, population | mean width |\n|---|---|---|---|---|---|"
    )
    for records, budget in MEDIANS:
        found = [medians(records, budget, sampling, 200) for sampling in (False, True)]
        _print(f"{records:,}", budget, *(f"{held:.2f} | {width:.1f}" for held, width in found))


def _print(*cells: object) -> None:
    print("|", " | ".join(map(str, cells)), "|", flush=True)


def run() -> list[dict[str, Any]]:
    """Return shares of the smallest case over their level: at least 0.97 but for chance."""
    budget, small = Budget.gdp(1), np.array(SMALL)
    rows = []
    for name, simulate, counts in (
        ("means", means, small),
        ("linear regression", linear, small),
        ("logistic regression", logistic, small),
        ("logistic regression, 13 columns", logistic, wide(13, 2_000)),
    ):
        shares = simulate(counts, budget, 100)
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
    """Zeros and ones with logistic rates: two main effects, for factors of many levels drawn with spread 0.6."""
    public, outcome = _public(counts), Outcome("y", 0, 1, 1)
    design = _design(public)
    mechanism = regression_mechanism(public, Adjacency(2), outcome, design, budget)
    clear = regression_mechanism(public, Adjacency(2), outcome, design, Budget.gdp(10**7))
    rows, n, source = design.rows().astype(float), counts.ravel(), np.random.default_rng(3)
    beta = BETA if rows.shape[1] == 3 else np.append(-0.7, source.normal(0, 0.6, rows.shape[1] - 1))

    def once(seed: int) -> tuple[Floats, Floats, Intervals, Intervals]:
        ones = source.binomial(n, 1 / (1 + np.exp(-rows @ beta)))
        fits = []
        for one in (clear, mechanism):
            values = route_values(one.space, design, ones)  # type: ignore[arg-type]
            fits.append(LogisticFit(Moments(one, one.measure(values, SeededRandomness(seed)), design)))
        return fits[0].coefficients, beta, fits[1].intervals(), fits[1].intervals(sampling=True)

    return _shares(once, replicates)


def wide(columns: int, records: int) -> NDArray[np.int64]:
    """Return records by two factors of many levels, unequal ones."""
    source = np.random.default_rng(columns)
    rows, cells = (source.dirichlet(np.full(levels, 8.0)) for levels in WIDE[columns])
    return source.multinomial(records, np.outer(rows, cells).ravel()).reshape(WIDE[columns])


def medians(records: int, budget: Budget, sampling: bool, replicates: int) -> tuple[float, float]:
    """Return how often the interval of a median holds that of the records or the population, and its mean width."""
    schema = Schema((Feature("ward", ["a"]),))
    public, outcome = Dataspace.of(Table(schema, np.array([records])), [Margin("ward")]), Outcome("y", 0, 100, 100)
    space = rank_space(public, Adjacency(2), outcome, [Margin("ward")], level="0.95", sampling=sampling)
    mechanism, source, held, width = exponential_mechanism(space, budget), np.random.default_rng(4), 0.0, 0.0
    for seed in range(replicates):
        values = np.sort(np.clip(np.rint(source.normal(50, 15, records)), 0, 100).astype(np.int64))
        histogram = np.bincount(values, minlength=101)[None]
        (found,) = GroupQuantiles(mechanism, mechanism.measure(histogram, SeededRandomness(seed))).intervals()
        held += float(found.lower[0] <= (50 if sampling else values[(records + 1) // 2 - 1]) <= found.upper[0])
        width += float(found.upper[0] - found.lower[0])
    return held / replicates, width / replicates


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
    levels = [[f"{level:02}" for level in range(size)] for size in counts.shape]
    table = Table(Schema((Feature("arm", levels[0]), Feature("sex", levels[1]))), counts)
    return Dataspace.of(table, [Margin("arm", "sex")])


def _design(public: Dataspace) -> Design:
    assert public.schema is not None
    return Design.of(public.schema, ["arm", "sex"])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
