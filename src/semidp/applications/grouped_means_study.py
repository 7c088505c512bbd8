"""Group means with exact group sizes: Semi-DP next to ordinary differential privacy, where the
sizes are noisy too.

Ten groups of 50, and ten of 5 to 115 records; outcomes in [0, 1]; μ from 1/4 to 4. The baseline
gives two records together the protection of Semi-DP by group privacy; ordinary DP protects one
record and is shown for scale.
"""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from semidp import (
    Budget,
    Dataspace,
    Feature,
    Margin,
    Outcome,
    Schema,
    Table,
    promise,
    publish,
)
from semidp.applications.naive import baseline_means
from semidp.applications.study import PAPER, Losses, Settings, Tidy
from semidp.promise import SeededRandomness
from semidp.publish import style

DESIGNS = {"equal": (50,) * 10, "unequal": (5, 10, 20, 30, 40, 50, 60, 80, 90, 115)}
MUS = tuple(Fraction(numerator, 4) for numerator in (1, 2, 4, 8, 16))
METHODS = {
    "semi": "Semi-DP: exact sizes, two records",
    "baseline": "baseline: noisy sizes, two records",
    "ordinary": "ordinary DP: noisy sizes, one record",
}
STEPS = 1000


def compute(settings: Settings = PAPER) -> Tidy:
    """Return the error of the group means, ``sqrt(mean_g (m̂_g - m_g)²)``, averaged over
    replicates.

    Every estimate is clipped to [0, 1], which anybody may do; it helps the noisier methods most.

    >>> compute(Settings(replicates=2)).columns
    ('design', 'mu', 'method', 'error', 'se', 'replicates')
    """
    randomness = SeededRandomness(settings.seed)

    def run(design: str, mu: Fraction) -> Iterator[Losses]:
        counts, steps = simulated_groups(design, settings.seed)
        drawn = [estimates(counts, steps, mu, randomness) for _ in range(settings.replicates)]
        truth = steps / STEPS / counts
        for method in METHODS:
            estimated = np.clip([each[method] for each in drawn], 0, 1)
            gaps = estimated - truth
            yield {"method": method}, np.sqrt(np.mean(gaps**2, axis=1))

    cases = [{"design": design, "mu": mu} for design in DESIGNS for mu in MUS]
    return settings.run_replicates("group means", "error", cases, run)


def simulated_groups(design: str, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the group sizes and the sums of outcomes, in steps: normal around a group's own mean,
    clipped to [0, 1].

    >>> counts, steps = simulated_groups("unequal", seed=0)
    >>> counts.tolist()[:3], bool((steps <= counts * STEPS).all())
    ([5, 10, 20], True)
    """
    counts = np.array(DESIGNS[design], dtype=np.int64)
    # The length of its name is a number that tells one design from the other.
    source = np.random.default_rng([seed, len(design)])
    means = source.uniform(0.2, 0.8, len(counts))
    sums = []
    for mean, n in zip(means, counts, strict=True):
        outcomes = np.clip(source.normal(mean, 0.2, n), 0, 1)
        # The truth lies on the grid that semidp measures on: rounding is nobody's error.
        sums.append(np.floor(outcomes * STEPS + 0.5).sum())
    return counts, np.array(sums, dtype=np.int64)


def estimates(
    counts: NDArray[np.int64], steps: NDArray[np.int64], mu: Fraction, randomness: SeededRandomness
) -> dict[str, NDArray[np.float64]]:
    """Return the group means of each method at μ, once.

    >>> sorted(estimates(*simulated_groups("equal", 0), Fraction(1), SeededRandomness(1)))
    ['baseline', 'ordinary', 'semi']
    """
    budget, totals = Budget.gdp(mu), steps / STEPS
    levels = tuple(map(str, range(len(counts))))
    schema = Schema((Feature("group", levels),))
    public = Dataspace.from_table(Table(schema, counts), [Margin("group")])
    adjacency = promise.outcome_adjacency(public)
    outcome = Outcome("y", Fraction(0), Fraction(1), STEPS)
    space = promise.sum_space(public, adjacency, outcome, [Margin("group")])
    mechanism = promise.outcome_mechanism(space, budget)
    sums = publish.GroupSums(mechanism, mechanism.measure(steps, randomness))
    semi = sums.means().values
    baseline = baseline_means(counts, totals, budget, a=adjacency.a, randomness=randomness)
    ordinary = baseline_means(counts, totals, budget, a=1, randomness=randomness)
    return {"semi": semi, "baseline": baseline, "ordinary": ordinary}


def plot(table: Tidy) -> style.Figure:
    """Draw the error of each method against μ, one panel for each design."""
    titles = {"equal": "ten groups of 50", "unequal": "ten groups of 5 to 115"}
    with style.drawing(9.2, 4.4, columns=2) as (figure, panels):
        for axes, (design, title) in zip(panels, titles.items(), strict=True):
            for number, (method, label) in enumerate(METHODS.items()):
                part = table.where(design=design, method=method)
                mus = [float(mu) for mu in part["mu"]]
                style.error_bars(axes, mus, part["error"], part["se"], number, label)
            axes.set(xscale="log", xlabel="μ", title=title)
            axes.set_xticks([float(mu) for mu in table.distinct("mu")])
            style.logarithmic_errors(axes)
        panels[0].set_ylabel("root mean squared error of a group mean")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        figure.suptitle(
            f"Means of outcomes in [0, 1]: mean of {table['replicates'][0]} runs ± 2 standard"
            " errors"
        )
    return figure
