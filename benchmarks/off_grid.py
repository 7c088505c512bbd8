"""How often intervals hold where values do not lie on the grid: shares below a line, quantiles,
bands, means and regressions.

The grids are the defaults, but where a setting names a step. Every release is made from the records
themselves, and its intervals are compared with these.
"""

import csv
import math
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

import semidp
from semidp.promise.noise.randomness import SeededRandomness

Floats = NDArray[np.float64]

DRAWS = 200
LEVEL = 0.95
# four standard errors of so many draws below the level
LEAST = LEVEL - 4 * math.sqrt(LEVEL * (1 - LEVEL) / DRAWS)


def percentages() -> Floats:
    """Return the percentage of pupils with reduced-price meals in 420 school districts."""
    pupils: dict[str, dict[str, int]] = {}
    with (files("semidp") / "data" / "california_schools.csv").open() as file:
        for row in csv.DictReader(file):
            pupils.setdefault(row["district"], {})[row["meals"]] = int(row["count"])
    shares = [100 * one.get("yes", 0) / sum(one.values()) for one in pupils.values()]
    return np.array(shares)


def whole_days() -> Floats:
    """Return how long 20,000 patients stayed, in whole days."""
    return np.random.default_rng(1).negative_binomial(2, 0.27, 20_000).astype(float)


def incomes() -> Floats:
    """Return 20,000 incomes: anything between the bounds, and beyond."""
    return np.random.default_rng(2).lognormal(10.2, 0.7, 20_000)


def prices() -> Floats:
    """Return 20,000 prices that end in 95 or 99 cents: off the grid, and all to one side."""
    source = np.random.default_rng(3)
    return source.poisson(12, 20_000) + source.choice([0.95, 0.99], 20_000)


# values, bounds, a line, and what is declared of the grid
SETTINGS: Mapping[str, tuple[Callable[[], Floats], tuple[int, int], str, dict[str, Any]]] = {
    "whole days": (whole_days, (0, 60), "5", {}),
    "whole days, 100 steps": (whole_days, (0, 60), "5", {"steps": 100}),
    "incomes": (incomes, (0, 100_000), "20000", {}),
    "incomes, line off the grid": (incomes, (0, 100_000), "20123.45", {}),
    "prices of 95 and 99 cents": (prices, (0, 40), "9.99", {}),
    "prices, steps of 1/2": (prices, (0, 40), "9.95", {"step": "1/2"}),
    "percentages (real)": (percentages, (0, 100), "25", {}),
}


def truths(values: Floats, bounds: tuple[int, int], line: str, arm: Floats) -> dict[str, float]:
    """Return what intervals should hold, from the records."""
    clipped = np.clip(values, *bounds)
    by_rank = np.sort(clipped)
    n = len(values)
    return {
        "share": float((values < float(line)).mean()),
        "median": float(by_rank[math.ceil(n / 2) - 1]),
        "tenth": float(by_rank[math.ceil(n / 10) - 1]),
        "chosen": float(by_rank[math.ceil(n / 2) - 1]),
        "mean": float(clipped.mean()),
        "slope": float(clipped[arm == 1].mean() - clipped[arm == 0].mean()),
    }


def held(name: str, draws: int = DRAWS, mu: int = 4) -> dict[str, float]:
    """Return how often each interval of a setting holds, and the band."""
    drawn, bounds, line, grid = SETTINGS[name]
    values = drawn()
    arm = np.arange(len(values)) % 2
    records = {"all": np.full(len(values), "x"), "arm": arm.astype(str), "y": values}
    asked: dict[str, Any] = {"by": "all", "bounds": bounds, **grid}
    requests = [
        semidp.distribution("y", lines=[line], **asked),
        semidp.median("y", level="0.95", mechanism="selection", **asked),
        semidp.mean("y", **asked),
        semidp.regression("y", on="arm", bounds=bounds, **grid),
    ]
    truth = truths(values, bounds, line, arm)
    hits = dict.fromkeys([*truth, "band"], 0)
    for seed in range(draws):
        release = semidp.release(records, *requests, mu=mu, randomness=SeededRandomness(seed))
        columns = {key: release[key].to_dict() for key in release}
        listed = columns["distribution-y-quantiles"]
        intervals = {
            "share": (listed, f"below_{line}_"),
            "median": (listed, "q0.5_"),
            "tenth": (listed, "q0.1_"),
            "chosen": (columns["median-y"], "q0.5_"),
            "mean": (columns["mean-y"], ""),
            "slope": (columns["regression-y"], ""),
        }
        for what, (found, prefix) in intervals.items():
            # The slope is the last row; the others have one.
            low, high = found[f"{prefix}lower"][-1], found[f"{prefix}upper"][-1]
            hits[what] += bool(low <= truth[what] <= high)
        curve = columns["distribution-y"]
        below = np.array([(values < cut).mean() for cut in curve["below"]])
        low, high = np.array(curve["band_lower"]), np.array(curve["band_upper"])
        hits["band"] += bool(((low <= below + 1e-9) & (below <= high + 1e-9)).all())
    return {what: count / draws for what, count in hits.items()}


def run() -> list[dict[str, Any]]:
    """Count how often every interval of every setting holds."""
    rows = []
    for name in SETTINGS:
        shares = held(name)
        told = ", ".join(f"{what} {share:.3f}" for what, share in shares.items())
        least = min(shares.values())
        rows.append(
            {
                "name": f"{name}: {told}",
                "ratio": least,
                "target": f"≥ {LEAST:.3f}",
                "ok": least >= LEAST,
            }
        )
    return rows
