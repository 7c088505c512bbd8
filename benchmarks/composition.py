"""Composing many mechanisms: semidp next to dp-accounting alone, at the same discretisation.

Both sides take the same 1000 different Gaussian and Laplace mechanisms to an epsilon at delta =
1e-6. A ratio below 1 means that semidp is faster; the answers must agree, and semidp's must not be
the smaller one.
"""

import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from semidp.promise.tradeoff.budget import gaussian, laplace
from semidp.promise.tradeoff.composition import Composed, compose
from semidp.promise.tradeoff.function import Tradeoff

COUNT = 1000
DELTA = "1e-6"


def mechanisms(count: int = COUNT) -> list[Tradeoff]:
    """Return half Gaussian and half Laplace mechanisms, no two alike."""
    half = count // 2
    gaussians = [gaussian(Fraction(1, 100) + Fraction(i, 100_000)) for i in range(half)]
    laplaces = [laplace(Fraction(1, 100) + Fraction(i, 100_000)) for i in range(half)]
    return [part for pair in zip(gaussians, laplaces, strict=True) for part in pair]


def dp_accounting_alone(parts: list[Tradeoff], step: float) -> float:
    """Return the epsilon that dp-accounting finds when it composes one privacy-loss distribution
    after another.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    total = None
    for part in parts:
        if part.implied_mu_squared() is not None:
            deviation = 1 / float(part.mu)  # type: ignore[attr-defined]
            one = pld.from_gaussian_mechanism(deviation, value_discretization_interval=step)
        else:
            scale = 1 / float(part.epsilon0)  # type: ignore[attr-defined]
            one = pld.from_laplace_mechanism(scale, value_discretization_interval=step)
        total = one if total is None else total.compose(one)
    assert total is not None
    return float(total.get_epsilon_for_delta(float(DELTA)))


def timed(work: Callable[[], float]) -> tuple[float, float]:
    """Return the result of `work` and the seconds it took."""
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def run() -> list[dict[str, Any]]:
    """Time both sides once and return ratios against their targets."""
    parts = mechanisms()
    curve = compose(*parts)
    assert isinstance(curve, Composed)
    ours, our_time = timed(lambda: compose(*parts).epsilon(DELTA))
    peer, peer_time = timed(lambda: dp_accounting_alone(parts, curve.step))
    ratio = our_time / peer_time
    all_gaussian = [part for part in parts if part.implied_mu_squared() is not None] * 2
    _, closed_time = timed(lambda: compose(*all_gaussian).epsilon(DELTA))
    return [
        {
            "name": "1000 Gaussian and Laplace mechanisms, time",
            "ratio": ratio,
            "target": "≤ 1.1",
            "ok": ratio <= 1.1,
        },
        {
            "name": "the same, epsilon at delta 1e-6 (never the smaller one)",
            "ratio": ours / peer,
            "target": "1 to 1.001",
            "ok": 1 - 1e-6 <= ours / peer <= 1.001,
        },
        {
            "name": "1000 Gaussian mechanisms, seconds",
            "ratio": closed_time,
            "target": "≤ 0.1",
            "ok": closed_time <= 0.1,
        },
    ]


if __name__ == "__main__":
    for row in run():
        print(row)
