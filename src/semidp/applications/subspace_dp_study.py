"""Why subspace DP does not protect: the paper's motivating example, attacked.

Three people have a bit each, the number of ones is published exactly, the bits with noise that
leaves it unchanged. Subspace DP compares datasets that contradict the published number; an attacker
who reads it tells those apart with certainty, and the others better than the claim allows. The
paper states this without numbers.
"""

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from semidp.applications.study import PAPER, Settings, Tidy
from semidp.promise import gaussian
from semidp.publish import style

CONFIDENTIAL = (0, 1, 1)
MU = 1.0
_ATTACKS = 500  # attacks for each replicate of the settings


def claimed_sensitivity() -> float:
    """Return Δ2 of what subspace DP protects: changes of one record, projected away from the
    published sum.

    >>> round(claimed_sensitivity() ** 2, 9)
    0.666666667
    """
    changes = _away_from_sum(np.eye(3))
    return float(np.linalg.norm(changes, axis=1).max())


def compute(settings: Settings = PAPER) -> Tidy:
    """Return how well each other dataset is told from the confidential one, as claimed and as
    measured.

    The mechanism adds Gaussian noise in the plane of constant sums, scaled so that subspace DP
    claims μ = 1. Accuracy is that of the best attacker when both datasets are equally likely:
    ``Φ(μ/2)`` for μ-GDP, measured over 500 attacks for each replicate.

    >>> table = compute(Settings(replicates=2))
    >>> table.where(other="1 0 1")["mu"][0].round(4)  # √3 times the claim
    np.float64(1.7321)
    """
    scale = claimed_sensitivity() / MU
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
        row |= {"claimed_mu": distance * MU, "mu": mu}
        row["claimed_accuracy"] = float(ndtr(distance * MU / 2))
        row["accuracy"] = float(ndtr(mu / 2))
        row["measured_accuracy"] = measured
        row["se"] = math.sqrt(measured * (1 - measured) / attacks)
        rows.append(row)
    return Tidy.from_rows(rows)


def plot(table: Tidy) -> style.Figure:
    """Draw the claim and what is true as error curves, and the measured attacks."""
    true = table.where(agrees=True)["mu"][0]
    alpha = np.linspace(0, 1, 201)
    claimed = f"claimed by subspace DP (μ = {MU:g})"
    same_total = f"dataset with the same total, true (μ = {true:.3f})"
    semi = f"semi-DP: one-record claim for a = 2 (μ = {2 * MU:g})"
    curves = [(claimed, gaussian(str(MU)), style.BLUE, "--")]
    curves.append((same_total, gaussian(str(true)), style.ORANGE, "-"))
    curves.append((semi, gaussian(str(2 * MU)), style.BLACK, ":"))
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
    # The nearer dataset is the likelier one, so that no attacker does better at equal sums.
    from_other = ((noisy - other) ** 2).sum(axis=1)
    from_truth = ((noisy - truth) ** 2).sum(axis=1)
    has_same_sum = truth.sum() == other.sum()
    guesses = from_other < from_truth if has_same_sum else published == other.sum()
    return float((guesses == answers).mean())
