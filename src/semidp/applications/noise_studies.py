"""Noise under published totals: what mechanisms lose, what tests find, and what a claim without the
totals gives away.

Four studies of the paper: Gaussian mechanisms on k x k tables (figure 2), K-norm mechanisms (figure
3), the power of private tests of odds ratios (section 5.3), and subspace DP (section 3.2).
"""

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import ndtr

from semidp import Ball, Budget, Table, sensitivity_space
from semidp.applications.study import (
    MODELS,
    PAPER,
    RECORDS,
    Losses,
    NaiveGaussian,
    NaiveL1,
    NaiveL2,
    NaiveLinf,
    Settings,
    Tidy,
    both_margins,
    published_noise,
    simulated_table,
)
from semidp.promise import (
    ContinuousGaussianMechanism,
    KNormMechanism,
    Mechanism,
    SeededRandomness,
    gaussian,
    knorm_noise,
)
from semidp.publish import TwoByTwo, calibrate_mechanism, power_curves, style

GAUSSIAN_SIZES = range(2, 11)
GAUSSIAN_MU = Fraction(1, 10)
VARIANTS = {"as-published": Ball(2), "correct": Ball(3)}
"""The adjacency that each variant's noise is scaled to; the claim is about A_3 in both."""

SEMI, NAIVE = "semi", "naive"
STYLES = {
    (SEMI, "as-published"): (0, "semi-DP as published (σ = 2/μ: protects A₂)"),
    (SEMI, "correct"): (2, "semi-DP, correct (σ = √6/μ from k = 3: protects A₃)"),
    # The naive mechanism is the same in both variants, so one curve shows it.
    (NAIVE, "correct"): (1, "naive, by group privacy (σ = 3√2/μ)"),
}


def compute_gaussian(settings: Settings = PAPER, sizes: range = GAUSSIAN_SIZES) -> Tidy:
    """Return the mean loss of each mechanism on each table, before and after truncation at zero.

    The paper's comparison of Gaussian mechanisms: k x k tables, k = 2 … 10, both margins
    public, μ = 0.1.

    As published: noise scaled to the four-cell moves (Δ2 = 2), which is what A_2 needs.
    Correct: Δ2 = √6 from k = 3 on, which A_3 needs. The naive mechanism is the same in both.

    The loss is ``‖M(X) - φ(X)‖_2``. Truncation sets negative cells of the output to zero; the
    paper's figure has it.

    >>> compute_gaussian(Settings(replicates=2), sizes=range(2, 3)).columns
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
            # Both are taken from the same draws, so only the truncation makes a difference.
            for truncated in (True, False):
                labels = {"mechanism": name, "variant": variant, "truncated": truncated}
                off = (np.maximum(outputs, 0) if truncated else outputs) - table.counts
                flat = off.reshape(len(off), -1)
                yield labels, np.linalg.norm(flat, axis=1)

    cases = [{"model": model, "k": k, "mu": GAUSSIAN_MU} for model in MODELS for k in sizes]
    return settings.run_replicates("Gaussian mechanisms", "mean_l2", cases, run)


def mechanisms(table: Table) -> Iterator[tuple[str, str, Mechanism]]:
    """Yield the name, the variant and the mechanism of each curve of the figure.

    >>> [
    ...     round(mechanism.scale, 3)
    ...     for _, _, mechanism in mechanisms(simulated_table("I", 3, seed=0))
    ... ]
    [20.0, 42.426, 24.495, 42.426]
    """
    dataspace, budget = both_margins(table), Budget.gdp(GAUSSIAN_MU)
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


def plot_gaussian(table: Tidy) -> style.Figure:
    """Draw the mean losses: what the paper's figure shows (truncated), and before truncation next
    to the theory.
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
            f"Gaussian mechanisms at μ = {float(GAUSSIAN_MU):g}: mean of {runs} runs ± 2 standard"
            " errors"
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


Draw = Callable[[int], NDArray[Any]]

PUBLISHED_SIZES = (2, 3)
KNORM_SIZES = range(2, 11)
KNORM_EPSILONS = (Fraction(1, 10), Fraction(1, 2), Fraction(1))
LABELS = {
    "knorm": "K-norm",
    "naive-l1": "naive l1",
    "naive-l2": "naive l2",
    "naive-linf": "naive l∞",
    "laplace": "projected Laplace",
    "l2": "l2 in the subspace",
}


def compute_knorm(settings: Settings = PAPER, sizes: range = KNORM_SIZES) -> Tidy:
    """Return the mean loss ``‖M(X) - φ(X)‖_2`` of each mechanism; nothing is truncated, as in the
    paper.

    The paper's comparison of K-norm mechanisms with naive l1, l2 and l∞ mechanisms, and on to
    10 x 10 tables.

    As published: the hull of the four-cell moves, radius Gamma(s), and Gamma(d) for l∞: not
    private under A_3, and the radius not at all. Correct: the hull of S_3 with its three-
    cycles, Gamma(s+1) and Gamma(d+1).

    Without truncation the loss is the length of the noise and does not depend on the table. Beyond
    the paper's sizes only ε = 1 is drawn, since every loss is proportional to 1/ε.

    >>> compute_knorm(Settings(replicates=2), sizes=range(2, 3)).columns
    ('model', 'k', 'epsilon', 'mechanism', 'variant', 'truncated', 'mean_l2', 'se', 'replicates')
    """

    def run(model: str, k: int, epsilon: Fraction) -> Iterator[Losses]:
        numbers = [MODELS.index(model), k, KNORM_EPSILONS.index(epsilon)]
        source = np.random.default_rng([settings.seed, *numbers])
        table = simulated_table(model, k, settings.seed)
        for name, variant, draw in noises(table, epsilon, source):
            drawn = draw(settings.replicates).reshape(settings.replicates, -1)
            labels = {"mechanism": name, "variant": variant, "truncated": False}
            yield labels, np.linalg.norm(drawn, axis=1)

    cases = []
    for model in MODELS:
        for k in sizes:
            epsilons = KNORM_EPSILONS if k in PUBLISHED_SIZES else KNORM_EPSILONS[-1:]
            cases += [{"model": model, "k": k, "epsilon": epsilon} for epsilon in epsilons]
    return settings.run_replicates("K-norm mechanisms", "mean_l2", cases, run)


def noises(table: Table, epsilon: Fraction, source: Generator) -> Iterator[tuple[str, str, Draw]]:
    """Yield the name, the variant and the noise of each mechanism of the figure: a function that
    draws as many runs as it is asked for.

    >>> table = simulated_table("I", 3, seed=0)
    >>> for name, variant, draw in noises(table, Fraction(1), np.random.default_rng(0)):
    ...     print(name, variant, draw(5).shape)
    knorm correct (5, 3, 3)
    laplace correct (5, 3, 3)
    l2 correct (5, 3, 3)
    naive-l1 correct (5, 3, 3)
    naive-l2 correct (5, 3, 3)
    naive-linf correct (5, 3, 3)
    knorm as-published (5, 3, 3)
    naive-l1 as-published (5, 3, 3)
    naive-l2 as-published (5, 3, 3)
    naive-linf as-published (5, 3, 3)
    """
    dataspace, budget = both_margins(table), Budget.pure(epsilon)
    three = sensitivity_space(dataspace, Ball(3))
    randomness = SeededRandomness(int(source.integers(2**62)))

    def make_draw(mechanism: Mechanism) -> Draw:
        return lambda size: mechanism.noises(size, randomness)

    def make_projected_draw(mechanism: Mechanism) -> Draw:
        def draw(size: int) -> NDArray[Any]:
            noises = mechanism.noises(size, randomness)
            return np.stack([three.project(noise) for noise in noises])

        return draw

    ball = KNormMechanism.calibrate(three, budget).placed_ball.ball
    l1 = NaiveL1.calibrate(three, budget)
    l2 = NaiveL2.calibrate(three, budget)
    linf = NaiveLinf.calibrate(three, budget)
    yield "knorm", "correct", lambda size: knorm_noise(ball, epsilon, size, source)
    yield "laplace", "correct", make_projected_draw(calibrate_mechanism("laplace", three, budget))
    yield "l2", "correct", make_draw(calibrate_mechanism("l2", three, budget))
    yield "naive-l1", "correct", make_draw(l1)
    yield "naive-l2", "correct", make_draw(l2)
    yield "naive-linf", "correct", make_draw(linf)
    # The paper's figure has no larger tables.
    if table.schema.shape[0] not in PUBLISHED_SIZES:
        return
    # The paper's list of moves is that of A_2: it lacks the three-cycles of A_3.
    two = sensitivity_space(dataspace, Ball(2))
    four_cells = KNormMechanism.calibrate(two, budget).placed_ball.ball
    yield "knorm", "as-published", lambda size: published_noise(four_cells, epsilon, size, source)
    # The published l1 and l2 noise is right; only the radius of l∞ was wrong.
    yield "naive-l1", "as-published", make_draw(l1)
    yield "naive-l2", "as-published", make_draw(l2)
    yield "naive-linf", "as-published", lambda size: _published_linf(linf, size, source)


def plot_knorm(table: Tidy) -> style.Figure:
    """Draw the paper's sizes at three ε, published and correct; and all sizes at ε = 1, correct."""
    sizes = [k for k in PUBLISHED_SIZES if k in table["k"]]
    with style.drawing(3.6 * (len(sizes) + 1), 7.4, columns=len(sizes) + 1, rows=2) as (
        figure,
        grid,
    ):
        for axes_row, model in zip(grid, MODELS, strict=True):
            for axes, k in zip(axes_row, sizes, strict=False):
                _by_epsilon(axes, table.where(model=model, k=k))
                axes.set_title(f"Model {model}, {k} × {k}")
            correct = table.where(model=model, variant="correct", epsilon=KNORM_EPSILONS[-1])
            _by_size(axes_row[-1], correct)
            axes_row[-1].set_title(f"Model {model}, correct, ε = 1")
            axes_row[0].set_ylabel("mean L2 loss (records)")
        handles, labels = grid[0][-1].get_legend_handles_labels()
        published = zip(*grid[0][0].get_legend_handles_labels(), strict=True)
        hollow = [handle for handle, label in published if "published" in label][:1]
        # one handle stands for all published curves
        handles = handles + hollow
        labels = labels + ["dashed, hollow: as published"] * len(hollow)
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
        figure.suptitle(
            f"Pure ε mechanisms under both margins: mean of {table['replicates'][0]} runs ± 2"
            " standard errors"
        )
    return figure


def _published_linf(mechanism: NaiveLinf, size: int, source: Generator) -> NDArray[np.float64]:
    """The l∞ noise behind the published figure, radius Gamma(d): its density is unbounded at 0 for
    d > 1.
    """
    radii = mechanism.scale * source.standard_gamma(mechanism.cells, (size, 1, 1))
    directions = source.uniform(-1, 1, (size, *mechanism.space.shape))
    return np.asarray(radii * directions)


def _by_epsilon(axes: Any, part: Tidy) -> None:
    for variant in ("as-published", "correct"):
        is_published = variant == "as-published"
        for name in ("knorm", "naive-l1", "naive-l2", "naive-linf"):
            losses = part.where(variant=variant, mechanism=name)
            _curve(axes, losses, "epsilon", name, is_published)
    axes.set(xscale="log", yscale="log", xlabel="ε")
    ticks = [float(epsilon) for epsilon in KNORM_EPSILONS]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    style.plain_numbers(axes.yaxis)


def _by_size(axes: Any, part: Tidy) -> None:
    for name in LABELS:
        _curve(axes, part.where(mechanism=name), "k", name, hollow=False)
    axes.set(yscale="log", xlabel="table size k (k × k cells)", xticks=part.distinct("k"))
    style.plain_numbers(axes.yaxis)


def _curve(axes: Any, part: Tidy, x: str, name: str, hollow: bool) -> None:
    number = list(LABELS).index(name)
    label = LABELS[name] + (", as published" if hollow else "")
    look = {
        "markersize": 5,
        "markerfacecolor": "white" if hollow else style.CYCLE[number],
        "linestyle": "--" if hollow else "-",
        "linewidth": 1.4,
    }
    values = [float(value) for value in part[x]]
    style.error_bars(axes, values, part["mean_l2"], part["se"], number, label, **look)


POWER_EPSILONS = (Fraction(1, 10), Fraction(1, 2), Fraction(1))
ODDS_RATIOS = np.geomspace(1, 8, 19)
ALPHA = 0.05
_RUNS = 500  # simulated tables of the naive tests, for each replicate of the settings


def compute_power(settings: Settings = PAPER) -> Tidy:
    """Return the power of each test against the odds ratio, at level 0.05 and margins of half the
    500 records.

    How often tests of the odds ratio of a 2 x 2 table find it: semi-private, without privacy,
    and naive.

    The paper proves that the semi-private test is most powerful among unbiased ones and shows
    no figure; this is the one it might have had. The tests are in `statistics.odds_ratio`.

    The power of the semi-private and of the ordinary test is exact; the naive ones are simulated,
    500 tables for each replicate.

    >>> table = compute_power(Settings(replicates=2))
    >>> table.columns
    ('epsilon', 'n', 'test', 'odds_ratio', 'power', 'se')
    >>> table.where(test="semi-private UMPU", odds_ratio=1.0)["power"][0].round(6)
    np.float64(0.05)
    """
    margins = TwoByTwo(RECORDS // 2, RECORDS // 2, RECORDS)
    runs = _RUNS * settings.replicates
    odds_ratios = ODDS_RATIOS.tolist()
    rows = []
    for done, epsilon in enumerate(settings.each("power of tests", POWER_EPSILONS)):
        # Each panel has a stream of its own, so no chance is shared between them.
        randomness = SeededRandomness(settings.seed + done)
        estimated = power_curves(
            margins,
            Budget.pure(epsilon),
            odds_ratios,
            alpha=ALPHA,
            replicates=runs,
            randomness=randomness,
        )
        for test, curve in estimated.curves.items():
            simulated = test.startswith("naive")
            for odds_ratio, power in zip(odds_ratios, curve, strict=True):
                error = 0.0
                if simulated:
                    error = float(np.sqrt(power * (1 - power) / runs))
                row = {"epsilon": epsilon, "n": margins.n, "test": test, "odds_ratio": odds_ratio}
                rows.append(row | {"power": power, "se": error})
    return Tidy.from_rows(rows)


def plot_power(table: Tidy) -> style.Figure:
    """Draw power against the odds ratio, a panel for each ε."""
    epsilons = table.distinct("epsilon")
    with style.drawing(3.7 * len(epsilons), 4.3, columns=len(epsilons)) as (figure, grid):
        for axes, epsilon in zip(grid, epsilons, strict=True):
            _panel(axes, table.where(epsilon=epsilon))
            axes.set_title(f"ε = {float(epsilon):g}")
        grid[0].set_ylabel("power: P(the test rejects)")
        figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        n = table["n"][0]
        figure.suptitle(f"Tests of the odds ratio of a 2 × 2 table, n = {n}, level {ALPHA:g}")
    return figure


def _panel(axes: Any, part: Tidy) -> None:
    """Draw a line for each test, odds ratios on a logarithmic axis, and the level of the tests as a
    rule.
    """
    axes.axhline(ALPHA, color=style.GREY, linewidth=1, linestyle=":", label=f"level {ALPHA:g}")
    for test, color, marker in zip(part.distinct("test"), style.CYCLE, style.MARKERS, strict=False):
        line = part.where(test=test)
        every = max(1, len(line) // 8)
        marks: Any = {"color": color, "marker": marker, "markersize": 4, "markevery": every}
        axes.plot(line["odds_ratio"], line["power"], label=test, **marks)
    axes.set_xscale("log", base=2)
    style.plain_numbers(axes.xaxis)
    axes.set(ylim=(0, 1.02), xlabel="odds ratio")


CONFIDENTIAL = (0, 1, 1)
SUBSPACE_DP_MU = 1.0
_ATTACKS = 500  # attacks for each replicate of the settings


def claimed_sensitivity() -> float:
    """Return Δ2 of what subspace DP protects: changes of one record, projected away from the
    published sum.

    >>> round(claimed_sensitivity() ** 2, 9)
    0.666666667
    """
    changes = _away_from_sum(np.eye(3))
    return float(np.linalg.norm(changes, axis=1).max())


def compute_subspace_dp(settings: Settings = PAPER) -> Tidy:
    """Return how well each other dataset is told from the confidential one, as claimed and as
    measured.

    Why subspace DP does not protect: the paper's motivating example, attacked.

    Three people have a bit each, the number of ones is published exactly, the bits with noise
    that leaves it unchanged. Subspace DP compares datasets that contradict the published
    number; an attacker who reads it tells those apart with certainty, and the others better
    than the claim allows. The paper states this without numbers.

    The mechanism adds Gaussian noise in the plane of constant sums, scaled so that subspace DP
    claims μ = 1. Accuracy is that of the best attacker when both datasets are equally likely:
    ``Φ(μ/2)`` for μ-GDP, measured over 500 attacks for each replicate.

    >>> table = compute_subspace_dp(Settings(replicates=2))
    >>> table.where(other="1 0 1")["mu"][0].round(4)  # √3 times the claim
    np.float64(1.7321)
    """
    scale = claimed_sensitivity() / SUBSPACE_DP_MU
    source = np.random.default_rng(settings.seed)
    attacks = _ATTACKS * settings.replicates
    truth = np.array(CONFIDENTIAL)
    rows = []
    for bits in itertools.product((0, 1), repeat=3):
        if bits == CONFIDENTIAL:
            continue
        other = np.array(bits)
        agrees = bool(other.sum() == truth.sum())
        distance = int((other != truth).sum())
        # The published sum alone tells datasets with another sum apart, for certain.
        mu: np.floating[Any] = np.float64(np.inf)
        if agrees:
            mu = np.linalg.norm(other - truth) / scale
        measured = _simulate_attacks(truth, other, scale, attacks, source)
        row = {"other": " ".join(map(str, bits)), "distance": distance, "agrees": agrees}
        row |= {"claimed_mu": distance * SUBSPACE_DP_MU, "mu": mu}
        row["claimed_accuracy"] = float(ndtr(distance * SUBSPACE_DP_MU / 2))
        row["accuracy"] = float(ndtr(mu / 2))
        row["measured_accuracy"] = measured
        row["se"] = math.sqrt(measured * (1 - measured) / attacks)
        rows.append(row)
    return Tidy.from_rows(rows)


def plot_subspace_dp(table: Tidy) -> style.Figure:
    """Draw the claim and what is true as error curves, and the measured attacks."""
    true = table.where(agrees=True)["mu"][0]
    alpha = np.linspace(0, 1, 201)
    claimed = f"claimed by subspace DP (μ = {SUBSPACE_DP_MU:g})"
    same_total = f"dataset with the same total, true (μ = {true:.3f})"
    semi = f"semi-DP: one-record claim for a = 2 (μ = {2 * SUBSPACE_DP_MU:g})"
    curves = [(claimed, gaussian(str(SUBSPACE_DP_MU)), style.BLUE, "--")]
    curves.append((same_total, gaussian(str(true)), style.ORANGE, "-"))
    curves.append((semi, gaussian(str(2 * SUBSPACE_DP_MU)), style.BLACK, ":"))
    with style.drawing(10.2, 4.6, columns=2) as (figure, (left, right)):
        left.plot([0, 1], [1, 0], color=style.GREY, linewidth=1, label="guessing (perfect privacy)")
        for label, curve, colour, dashes in curves:
            misses = np.asarray(curve(alpha))
            look = {"color": colour, "linestyle": dashes, "linewidth": 2}
            left.plot(1 - alpha, misses, label=label, **look)
        label = "dataset with another total, true"
        left.plot([0, 0, 1], [1, 0, 0], color=style.ORANGE, linewidth=4, alpha=0.5, label=label)
        left.set(
            xlim=(-0.01, 1), ylim=(-0.01, 1), aspect="equal", xlabel="false alarms (type I error)"
        )
        left.set_ylabel("misses (type II error)")
        _accuracies(right, table)
        handles, labels = left.get_legend_handles_labels()
        more_handles, more_labels = right.get_legend_handles_labels()
        handles, labels = handles + more_handles, labels + more_labels
        figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=9.5)
        figure.suptitle(
            f"Three bits {CONFIDENTIAL}, their sum published exactly: what subspace DP promises and"
            " keeps"
        )
    return figure


def _accuracies(axes: Any, table: Tidy) -> None:
    rows = table.records()
    nearest = [row for row in rows if row["distance"] == 1 or row["agrees"]]
    lines = np.arange(len(nearest))
    claimed = np.array([row["claimed_accuracy"] for row in nearest])
    measured = np.array([row["measured_accuracy"] for row in nearest])
    errors = np.array([row["se"] for row in nearest])
    label = "accuracy claimed: Φ(μ/2), two records Φ(μ)"
    axes.barh(lines, claimed, height=0.55, color=style.BLUE, alpha=0.35, label=label)
    label = "accuracy of the attack, measured"
    axes.errorbar(
        measured, lines, xerr=2 * errors, fmt="o", color=style.ORANGE, capsize=3, label=label
    )
    names = []
    for row in nearest:
        total = "same" if row["agrees"] else "other"
        names.append(f"{row['other']}  ({total} total)")
    axes.set_yticks(lines, names)
    axes.invert_yaxis()
    axes.set(xlim=(0.5, 1.02), xlabel="how often the attacker names the right dataset")


def _away_from_sum(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    # Away from the row space of C; the paper prints span(S_φ), which leaves nothing to compare.
    return np.asarray(vectors - vectors.mean(axis=-1, keepdims=True))


def _simulate_attacks(
    truth: NDArray[np.int64],
    other: NDArray[np.int64],
    scale: float,
    attacks: int,
    source: np.random.Generator,
) -> float:
    """Share of attacks that name the right one of two datasets, from the published number and the
    noisy bits.
    """
    answers = source.integers(2, size=attacks)
    data = np.where(answers[:, None] == 1, other, truth)
    published = data.sum(axis=1)
    noisy = data + scale * _away_from_sum(source.standard_normal(data.shape))
    # The nearer dataset is the likelier one, so no attacker does better at equal sums.
    from_other = ((noisy - other) ** 2).sum(axis=1)
    from_truth = ((noisy - truth) ** 2).sum(axis=1)
    has_same_sum = truth.sum() == other.sum()
    guesses = from_other < from_truth if has_same_sum else published == other.sum()
    return float((guesses == answers).mean())
