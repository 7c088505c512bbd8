"""Quantiles by exact group: from a distribution, beside choosing them, at the same guarantee and
from the same data.

Any two records change at once, μ = 1, 400 records a group, values on 128 steps. With intervals at
95% a ratio is the mean width of the chosen ones over that of the distribution's. Without intervals
it is the mean error of the chosen quantiles over that of the distribution's: below 1 for few
quantiles, above for many.
"""

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.promise.mechanisms.exponential import exponential_mechanism, rank_space
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.distribution_space import distribution_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.selection import select_mechanism
from semidp.publish.statistics.distribution.published import GroupDistributions
from semidp.publish.statistics.outcomes.noise_law import LEVEL, Intervals
from semidp.publish.statistics.quantiles import GroupQuantiles

GROUPS, SIZE, STEPS = 150, 400, 127
# records a group and μ, of which levels are counted
LEVELS = ((40, 1), (400, 1), (2_000, 1), (400, "1/4"), (400, 4))
# four standard errors of a thousand groups below the level
LEAST = 0.95 - 4 * math.sqrt(0.95 * 0.05 / 1_000)
BUDGET = Budget.gdp(1)
KINDS = ("normal", "skewed", "multiples of ten")
# quantiles with intervals, and how many times as wide chosen ones must be
WIDTHS = {1: 2.0, 3: 3.0, 9: 5.0}
TENTH_AND_HALF = [Fraction(1, 10), Fraction(1, 2)]
# quantiles without, and what the ratio of errors must be
POINTS = {1: "≤ 1", 9: "≥ 1.3", 25: "≥ 2"}


def values_of(kind: str) -> NDArray[np.int64]:
    """Return the values of all groups of one kind, a row a group, in steps of the grid."""
    source, shape = np.random.default_rng(29), (GROUPS, SIZE)
    drawn = source.normal(51, 16, shape)
    if kind == "skewed":
        drawn = source.exponential(20, shape)
    elif kind == "multiples of ten":
        drawn = 10 * np.rint(drawn / 10)
    return np.clip(np.rint(drawn), 0, STEPS).astype(np.int64)


class World:
    """The groups of one kind, and both ways to their quantiles."""

    def __init__(self, kind: str) -> None:
        self.values = values_of(kind)
        self.rows = np.stack([np.bincount(row, minlength=STEPS + 1) for row in self.values])
        names = [str(group) for group in range(GROUPS)]
        self.by = [Margin("group")]
        self.public = Dataspace.from_table(
            Table(Schema([Feature("group", names)]), np.full(GROUPS, SIZE)), self.by
        )
        self.outcome = Outcome("value", 0, STEPS, STEPS)

    def from_distribution(self, probabilities: list[Fraction]) -> list[Intervals]:
        """Return quantiles with intervals from one distribution."""
        space = distribution_space(self.public, Ball(2), self.outcome, self.by)
        mechanism = select_mechanism(space, BUDGET)
        measured = mechanism.measure(space.apply_query(self.rows), SeededRandomness(1))
        return GroupDistributions(mechanism, measured).quantiles(probabilities)

    def chosen(self, probabilities: list[Fraction]) -> list[Intervals]:
        """Return quantiles with intervals, all chosen."""
        space = rank_space(self.public, Ball(2), self.outcome, self.by, probabilities, level=LEVEL)
        mechanism = exponential_mechanism(space, BUDGET)
        return list(
            GroupQuantiles(mechanism, mechanism.measure(self.rows, SeededRandomness(2))).intervals()
        )

    def chosen_alone(self, probabilities: list[Fraction]) -> NDArray[np.float64]:
        """Return quantiles without intervals, a column each."""
        space = rank_space(self.public, Ball(2), self.outcome, self.by, probabilities)
        mechanism = exponential_mechanism(space, BUDGET)
        return GroupQuantiles(mechanism, mechanism.measure(self.rows, SeededRandomness(3))).values()

    def truth(self, probability: Fraction) -> NDArray[np.int64]:
        """Return the quantiles of the records."""
        return np.sort(self.values, axis=1)[:, math.ceil(probability * SIZE) - 1]

    def width(self, intervals: list[Intervals]) -> float:
        """Return the mean width of intervals."""
        return float(np.mean([part.upper - part.lower for part in intervals]))

    def coverage(self, intervals: list[Intervals], probabilities: list[Fraction]) -> float:
        """Return how often intervals hold the quantiles of the records."""
        held = []
        for part, probability in zip(intervals, probabilities, strict=True):
            truth = self.truth(probability)
            held.append(((part.lower <= truth) & (truth <= part.upper)).mean())
        return float(np.mean(held))


def evenly(count: int) -> list[Fraction]:
    """Return so many quantiles, evenly between 0 and 1."""
    return [Fraction(place, count + 1) for place in range(1, count + 1)]


def widths(kind: str, world: World) -> list[dict[str, Any]]:
    """Compare quantiles with intervals."""
    rows = []
    for count, target in WIDTHS.items():
        probabilities = evenly(count)
        ours, others = world.from_distribution(probabilities), world.chosen(probabilities)
        width, other = world.width(ours), world.width(others)
        held = world.coverage(ours, probabilities)
        name = f"{kind}, {count} with intervals: {width:.1f} wide ({held:.3f}), chosen {other:.1f}"
        ok = other / width >= target and held >= 0.95
        rows.append({"name": name, "ratio": other / width, "target": f"≥ {target:g}", "ok": ok})
    return rows


def points(kind: str, world: World) -> list[dict[str, Any]]:
    """Compare quantiles without intervals."""
    rows = []
    for count, target in POINTS.items():
        probabilities = evenly(count)
        ours, others = world.from_distribution(probabilities), world.chosen_alone(probabilities)
        errors = []
        for place, probability in enumerate(probabilities):
            truth = world.truth(probability)
            errors.append(
                [np.abs(values - truth).mean() for values in (ours[place].values, others[:, place])]
            )
        error, other = np.mean(errors, axis=0).tolist()
        # Where nearly all records share a value, both hit it.
        ratio = max(other, 0.01) / max(error, 0.01)
        sign, _, bound = target.partition(" ")
        ok = ratio <= float(bound) if sign == "≤" else ratio >= float(bound)
        name = f"{kind}, {count} without: {error:.2f} off, chosen {other:.2f}"
        rows.append({"name": name, "ratio": ratio, "target": target, "ok": ok})
    return rows


def levels() -> list[dict[str, Any]]:
    """Count how often the intervals of shares, bands, and intervals of a tenth and a median hold,
    in 1,000 groups.
    """
    rows = []
    for size, mu in LEVELS:
        values = np.clip(
            np.rint(np.random.default_rng(30).normal(51, 16, (1_000, size))), 0, STEPS
        ).astype(np.int64)
        histograms = np.stack([np.bincount(row, minlength=STEPS + 1) for row in values])
        schema, by = (
            Schema([Feature("group", [str(group) for group in range(1_000)])]),
            [Margin("group")],
        )
        public = Dataspace.from_table(Table(schema, np.full(1_000, size)), by)
        space = distribution_space(public, Ball(2), Outcome("value", 0, STEPS, STEPS), by)
        mechanism = select_mechanism(space, Budget.gdp(mu))
        found = GroupDistributions(
            mechanism, mechanism.measure(space.apply_query(histograms), SeededRandomness(4))
        )
        truth = np.cumsum(histograms, axis=1)[:, :-1]
        lower, upper = found.bounds()
        low, high = found.band()
        share = float(((lower <= truth + 1e-9) & (truth <= upper + 1e-9)).mean())
        band = float(((low <= truth + 1e-9) & (truth <= high + 1e-9)).all(axis=1).mean())
        held, wide = [], []
        for probability, part in zip(TENTH_AND_HALF, found.quantiles(TENTH_AND_HALF), strict=True):
            quantile = np.sort(values, axis=1)[:, math.ceil(probability * size) - 1]
            held.append(float(((part.lower <= quantile) & (quantile <= part.upper)).mean()))
            wide.append(float((part.upper - part.lower).mean()))
        points = (
            100 * found.block_half_widths(by[0]).mean() / size,
            100 * found.block_band_widths(by[0]).max() / size,
        )
        name = (
            f"{size:,}, μ = {mu}: shares {share:.3f} (±{points[0]:.1f}), bands {band:.3f}"
            f" (±{points[1]:.1f}), a tenth {held[0]:.3f} ({wide[0]:.1f}), half {held[1]:.3f}"
            f" ({wide[1]:.1f})"
        )
        least = min(share, band, *held)
        rows.append(
            {"name": name, "ratio": least, "target": f"≥ {LEAST:.3f}", "ok": least >= LEAST}
        )
    return rows


def run() -> list[dict[str, Any]]:
    """Compare both ways on all kinds of values."""
    rows = []
    for kind in KINDS:
        world = World(kind)
        rows += widths(kind, world) + points(kind, world)
    return rows + levels()
