"""The paper's comparison of Gaussian mechanisms: k x k tables, k = 2 … 10, both margins public, μ =
0.1.

As published: noise scaled to the four-cell moves (Δ2 = 2), which is what A_2 needs. Correct: Δ2 =
√6 from k = 3 on, which A_3 needs. The naive mechanism is the same in both.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from semidp import Ball, Budget, Table, sensitivity_space
from semidp.applications.naive import NaiveGaussian
from semidp.applications.study import (
    MODELS,
    PAPER,
    Losses,
    Settings,
    Tidy,
    both_margins,
    simulated_table,
)
from semidp.promise import ContinuousGaussianMechanism, Mechanism, SeededRandomness
from semidp.publish import style

SIZES = range(2, 11)
MU = Fraction(1, 10)
VARIANTS = {"as-published": Ball(2), "correct": Ball(3)}
"""The adjacency that each variant's noise is scaled to; the claim is about A_3 in both."""

SEMI, NAIVE = "semi", "naive"
STYLES = {
    (SEMI, "as-published"): (0, "semi-DP as published (σ = 2/μ: protects A₂)"),
    (SEMI, "correct"): (2, "semi-DP, correct (σ = √6/μ from k = 3: protects A₃)"),
    # The naive mechanism is the same in both variants, so that one curve shows it.
    (NAIVE, "correct"): (1, "naive, by group privacy (σ = 3√2/μ)"),
}


def compute(settings: Settings = PAPER, sizes: range = SIZES) -> Tidy:
    """Return the mean loss of each mechanism on each table, before and after truncation at zero.

    The loss is ``‖M(X) - φ(X)‖_2``. Truncation sets negative cells of the output to zero; the
    paper's figure has it.

    >>> compute(Settings(replicates=2), sizes=range(2, 3)).columns
    ('model', 'k', 'mu', 'mechanism', 'variant', 'truncated', 'mean_l2', 'se', 'replicates')
    """
    randomness = SeededRandomness(settings.seed)

    def run(model: str, k: int, mu: Fraction) -> Iterator[Losses]:
        table = simulated_table(model, k, settings.seed)
        for name, variant, mechanism in mechanisms(table):
            measured = [mechanism.apply(table, randomness) for _ in range(settings.replicates)]
            # the naive mechanism publishes its noisy table as it is; ours projects it
            if name == NAIVE:
                outputs = np.stack([each.noisy for each in measured])
            else:
                outputs = np.stack([each.projected for each in measured])
            # Both are taken from the same draws, so that only the truncation makes a difference.
            for truncated in (True, False):
                labels = {"mechanism": name, "variant": variant, "truncated": truncated}
                off = (np.maximum(outputs, 0) if truncated else outputs) - table.counts
                flat = off.reshape(len(off), -1)
                yield labels, np.linalg.norm(flat, axis=1)

    cases = [{"model": model, "k": k, "mu": MU} for model in MODELS for k in sizes]
    return settings.run_replicates("Gaussian mechanisms", "mean_l2", cases, run)


def mechanisms(table: Table) -> Iterator[tuple[str, str, Mechanism]]:
    """Yield the name, the variant and the mechanism of each curve of the figure.

    >>> [
    ...     round(mechanism.scale, 3)
    ...     for _, _, mechanism in mechanisms(simulated_table("I", 3, seed=0))
    ... ]
    [20.0, 42.426, 24.495, 42.426]
    """
    dataspace, budget = both_margins(table), Budget.gdp(MU)
    three = sensitivity_space(dataspace, Ball(3))
    for variant, adjacency in VARIANTS.items():
        space = sensitivity_space(dataspace, adjacency)
        yield SEMI, variant, ContinuousGaussianMechanism.calibrate(space, budget)
        yield NAIVE, variant, NaiveGaussian.calibrate(three, budget)


def expected_loss(mechanism: Mechanism) -> float:
    """Return the mean untruncated loss in theory, ``σ E[χ_s]``: s free cells, or all k² for the
    naive mechanism.

    >>> _, _, naive = list(mechanisms(simulated_table("I", 2, seed=0)))[1]
    >>> round(expected_loss(naive), 2)  # 30 √2 √2 Γ(5/2)/Γ(2)
    79.76
    """
    degrees = mechanism.cells if isinstance(mechanism, NaiveGaussian) else mechanism.space.dimension
    return mechanism.scale * mean_chi(degrees)


def mean_chi(degrees: int) -> float:
    """Return the mean of a chi distribution, ``√2 Γ((s+1)/2) / Γ(s/2)``.

    >>> round(mean_chi(1), 5)
    0.79788
    """
    from scipy.special import gammaln

    log_ratio = gammaln((degrees + 1) / 2) - gammaln(degrees / 2)
    return float(np.sqrt(2) * np.exp(log_ratio))


def plot(table: Tidy) -> style.Figure:
    """Draw the mean losses: what the paper's figure shows (truncated), and before truncation beside
    the theory.
    """
    with style.drawing(9.2, 7.2, columns=2, rows=2) as (figure, grid):
        for axes_row, truncated in zip(grid, (True, False), strict=True):
            for axes, model in zip(axes_row, MODELS, strict=True):
                part = table.where(model=model, truncated=truncated)
                for (mechanism, variant), (number, label) in STYLES.items():
                    curve = part.where(mechanism=mechanism, variant=variant)
                    means, errors = curve["mean_l2"], curve["se"]
                    style.error_bars(axes, curve["k"], means, errors, number, label, markersize=5)
                sizes = part.distinct("k")
                if not truncated:
                    _theory(axes, sizes)
                state = "truncated at 0, as published" if truncated else "not truncated"
                axes.set_title(f"Model {model}, {state}")
                axes.set(xlabel="table size k (k × k cells)", ylim=(0, None), xticks=sizes)
            axes_row[0].set_ylabel("mean L2 loss (records)")
        figure.legend(*grid[1][0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        runs = table["replicates"][0]
        figure.suptitle(
            f"Gaussian mechanisms at μ = {float(MU):g}: mean of {runs} runs ± 2 standard errors"
        )
    return figure


def _theory(axes: Any, sizes: list[int]) -> None:
    means = []
    for k in sizes:
        by_curve = {}
        # The theory depends on the size alone, so one table of each size serves both models.
        for name, variant, mechanism in mechanisms(simulated_table("I", k, 0)):
            by_curve[name, variant] = expected_loss(mechanism)
        means.append(by_curve)
    for position, curve in enumerate(STYLES):
        label = None if position else "theory, σ E[χ]"
        losses = [each[curve] for each in means]
        axes.plot(
            sizes, losses, color=style.GREY, linestyle=":", linewidth=3, zorder=0, label=label
        )
