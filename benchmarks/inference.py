"""The odds-ratio test for a million records: time against the targets, and against a direct sum
with scipy.

Ratios above 1 are better than the target (or faster than the peer). The peer is what one would
write first: `scipy.stats.hypergeom.pmf` over the whole support, times the noise cdf.
"""

import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.stats import hypergeom

from semidp.promise.noise.canonical import CanonicalNoise, Normal, Tulap, canonical_noise
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.tradeoff.budget import approximate, zcdp
from semidp.publish.statistics.odds_ratio.umpu import TwoByTwo, UmpuTest

MARGINS = TwoByTwo(500_000, 400_000, 1_000_000)
U = 200_010.3
NOISES: dict[str, CanonicalNoise] = {
    "Tulap": Tulap(Fraction(1)),
    "Tulap, delta": Tulap(Fraction(1, 10), Fraction(1, 10**6)),
    "normal": Normal(Fraction(1)),
    "grouped": canonical_noise(approximate("0.5").group(2)),
    "zCDP curve": canonical_noise(zcdp("0.01")),
}


def run() -> list[dict[str, Any]]:
    """Time p-values, intervals and exact draws of U."""
    rows = []
    for name, noise in NOISES.items():
        test = UmpuTest(MARGINS, noise)
        rows.append(
            _row(
                f"one p-value, n = 10^6, {name} (50 ms / time)",
                0.05 / _best(lambda t=test: t.p_value(U)),
            )
        )
    test = UmpuTest(MARGINS, NOISES["Tulap"])
    many = 200_000 + 300 * np.linspace(-4, 4, 1_000_000)
    rows.append(
        _row("a million p-values, delta = 0 (1 s / time)", 1.0 / _best(lambda: test.p_value(many)))
    )
    ours, theirs = _best(lambda: _fresh(NOISES["Tulap"])), _best(lambda: _direct(NOISES["Tulap"]))
    rows.append(_row("one p-value with its setup, times faster than scipy's pmf", theirs / ours))
    for name, noise in NOISES.items():
        taken = _best(lambda n=noise: UmpuTest(MARGINS, n).confidence_interval(U))
        rows.append(_row(f"one 95% interval, n = 10^6, {name} (0.5 s / time)", 0.5 / taken))
    source = SeededRandomness(1)
    rows += [
        _row(
            f"one exact draw of U, {name} (50 ms / time)",
            0.05 / _best(lambda n=noise: n.grid_steps(32, source)),
        )
        for name, noise in NOISES.items()
    ]
    return rows


def _row(name: str, ratio: float) -> dict[str, Any]:
    return {"name": name, "ratio": ratio, "target": "≥ 1", "ok": ratio >= 1}


def _best(work: Callable[[], object], runs: int = 5) -> float:
    work()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def _fresh(noise: CanonicalNoise) -> object:
    margins = TwoByTwo(MARGINS.row, MARGINS.column, MARGINS.n)  # a new value: nothing cached
    return UmpuTest(margins, noise).p_value(U)


def _direct(noise: CanonicalNoise) -> object:
    x = np.arange(MARGINS.low, MARGINS.high + 1)
    return hypergeom.pmf(x, MARGINS.n, MARGINS.row, MARGINS.column) @ noise.cdf(x - U)
