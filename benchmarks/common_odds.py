"""Coverage of the interval of an odds ratio common to strata, beside statsmodels.

``run`` is the short version that ``make bench`` runs. ``python benchmarks/common_odds.py 2000``
prints a table of docs/inference_checks.md again, and ``100 noisy`` that of noisy totals.
statsmodels stands beside it where it is installed.
"""

import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from answers import BoundedTotals, Tests, levels, share_of, two_levels
from numpy.typing import NDArray

from semidp import Budget
from semidp.inference.common_odds import NoisyOdds, PooledSum
from semidp.inference.independence import MISS
from semidp.inference.unknown_totals import UnknownTotals
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish.statistics.odds_ratio.umpu import TwoByTwo

Floats = NDArray[np.float64]

LEVEL = 0.95
DRAWS = 9999
WIDTHS = 5  # runs whose intervals are computed


class Strata:
    """2 × 2 strata with exact margins, the noise of a release, and the law of the pooled sum."""

    def __init__(self, strata: int, each: int, mu: str) -> None:
        half = each // 2
        margins = np.full((2, strata), half)
        self.world = Tests(margins, margins, Budget.gdp(mu), (levels(2), levels(2)))
        corners = np.zeros((strata, 2, 2, strata))
        corners[np.arange(strata), 0, 0, np.arange(strata)] = 1.0
        mechanism = self.world.mechanism
        shape = mechanism.space.shape
        noise = [mechanism.standard_error(corner.reshape(shape)) ** 2 for corner in corners]
        table = TwoByTwo(half, half, each)
        spread = table.law().variance
        self.weights = spread / (spread + np.array(noise))
        pulled = mechanism.space.project(np.einsum("k,kijl->ijl", self.weights, corners))
        zeros = np.zeros(shape, dtype=np.int64)
        drawn = mechanism.measure_many(zeros, DRAWS, SeededRandomness(99))
        errors = drawn.reshape(DRAWS, -1).astype(np.float64) @ pulled.ravel()
        uniforms = np.random.default_rng(5).random((strata, DRAWS))
        self.law = PooledSum((table,) * strata, self.weights, uniforms, errors)

    def coverage(self, odds: float, runs: int, seed: int) -> dict[str, list[Any]]:
        """Whether intervals hold the odds ratio: ours, with the noise forgotten, of the true table;
        and how wide ours and the last are.
        """
        source = np.random.default_rng(seed)
        strata = self.world.shape[2]
        each = int(self.world.rows.sum(axis=0)[0])
        tables = two_levels(strata, each, odds, runs, source)[2]
        noisy = self.world.noisy(tables)
        seen = np.einsum("k,nk->n", self.weights, noisy[:, 0, 0])
        above, below = self.law.tails(seen, math.log(odds))
        least = (1 - LEVEL) / 2
        kept: dict[str, list[Any]] = {"ours": ((above > least) & (below > least)).tolist()}
        kept["width"] = []
        for value in seen[:WIDTHS].tolist():
            low, high = self.law.interval(value, LEVEL)
            kept["width"].append(math.log(high) - math.log(low) if low > 0 else math.inf)
        kept["noise forgotten"], _ = outside(noisy, odds)
        kept["true table"], kept["true width"] = outside(tables.astype(np.float64), odds)
        return kept


def outside(tables: Floats, odds: float) -> tuple[list[bool], list[float]]:
    """Whether statsmodels' interval of the pooled odds ratio holds it, and its width in logs;
    counts below 0 are clipped, as who forgets the noise would.
    """
    from statsmodels.stats.contingency_tables import StratifiedTable

    held, widths = [], []
    for table in np.maximum(tables, 0.0):
        each = [table[:, :, number] for number in range(table.shape[2])]
        low, high = StratifiedTable(each).oddsratio_pooled_confint(1 - LEVEL)
        held.append(bool(low <= odds <= high))
        widths.append(math.log(high) - math.log(low))
    return held, widths


class NoisyStrata(BoundedTotals):
    """2 × 2 strata whose groups have exact sizes and whose levels have noisy totals.

    Noise has a standard deviation of 3 in each cell; rates of the first group go from 0.2 to 0.6.
    """

    def __init__(self, strata: int, each: int) -> None:
        super().__init__(2, 2, strata, each, 3)

    def table(self, odds: float) -> NDArray[np.int64]:
        """A table with a common odds ratio."""
        first = np.linspace(0.2, 0.6, self.sizes.shape[1])
        second = odds * first / (1 - first + odds * first)
        cases = self.source.binomial(self.sizes, np.stack([first, second]))
        return np.stack([self.sizes - cases, cases], axis=1)

    def coverage(self, odds: float, runs: int, widths: int) -> dict[str, list[Any]]:
        """Whether intervals hold the odds ratio, and how wide they are in logs; those of the first
        few runs.
        """
        kept: dict[str, list[Any]] = {"ours": [], "width": []}
        tables, noisy = [], []
        for number in range(runs):
            tables.append(self.table(odds))
            noisy.append(tables[-1] + self.noise(1)[0])
            question = UnknownTotals(noisy[-1], self.sizes, self.noise_of, (self.question,))
            ours = NoisyOdds(question)
            kept["ours"].append(min(ours.tails(math.log(odds))) > (1 - LEVEL - MISS) / 2)
            if number < widths:
                low, high = ours.interval(LEVEL)
                kept["width"].append(math.log(high) - math.log(low) if low > 0 else math.inf)
        kept["noise forgotten"], _ = outside(np.stack(noisy), odds)
        kept["true table"], kept["true width"] = outside(np.stack(tables).astype(float), odds)
        return kept


def noisy_rows(runs: int) -> Iterator[tuple[object, ...]]:
    """Yield strata and odds ratio, coverages, and median widths, with noisy totals."""
    for strata, each in ((6, 400), (6, 100), (20, 50)):
        for odds in (1.0, 1.6):
            kept = NoisyStrata(strata, each).coverage(odds, runs, widths=3)
            names = ("ours", "noise forgotten", "true table")
            held = [share_of(kept[name]) for name in names]
            widths = [f"{np.median(kept[name]):.2f}" for name in ("width", "true width")]
            yield f"{strata} of {each}", f"{odds:g}", *held, *widths


def table_rows(runs: int) -> Iterator[tuple[object, ...]]:
    """Yield strata, budget and odds ratio, coverages, and median widths."""
    for strata, each in ((6, 100), (20, 50), (50, 30)):
        for mu in ("1", "0.3"):
            world = Strata(strata, each, mu)
            for odds in (1.0, 1.6, 4.0):
                kept = world.coverage(odds, runs, strata)
                names = ("ours", "noise forgotten", "true table")
                held = [share_of(kept[name]) for name in names]
                widths = [f"{np.median(kept[name]):.2f}" for name in ("width", "true width")]
                yield f"{strata} of {each}", f"μ = {mu}", f"{odds:g}", *held, *widths


def run() -> list[dict[str, Any]]:
    """Short version: coverage of a common odds ratio of 1.6 in twenty strata."""
    runs = 300
    world = Strata(20, 50, "0.3")
    try:
        kept = world.coverage(1.6, runs, 1)
        unsure = NoisyStrata(6, 100).coverage(1.6, 40, 0)["ours"]
    except ModuleNotFoundError:
        return []
    share = float(np.mean(unsure))
    ours = float(np.mean(kept["ours"]))
    forgotten = float(np.mean(kept["noise forgotten"]))
    least = LEVEL - 3.1 * math.sqrt(LEVEL * (1 - LEVEL) / runs)
    named = "coverage of a common odds ratio at 0.95, 20 strata"
    return [
        {"name": named, "ratio": ours, "target": f"≥ {least:.2f}", "ok": ours >= least},
        {
            "name": "the same over that of an interval that forgets the noise",
            "ratio": ours / forgotten,
            "target": "> 1",
            "ok": ours > forgotten,
        },
        {
            "name": "coverage of a common odds ratio with noisy totals at 0.95, 6 strata",
            "ratio": share,
            "target": "≥ 0.85",
            "ok": share >= 0.85,
        },
    ]


if __name__ == "__main__":
    made = noisy_rows if "noisy" in sys.argv else table_rows
    for line in made(int(sys.argv[1]) if len(sys.argv) > 1 else 2000):
        print("| " + " | ".join(map(str, line)) + " |", flush=True)
