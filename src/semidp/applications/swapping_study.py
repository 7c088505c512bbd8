"""What swapping hides in strata of 8 to 10,000 records, at rates of 1% to 50%, beside noise with
the same totals.

Strata of two held and two swapped values, each of half the records. Up to 1,000 records the
advantage of the best attacker is exact, the worst over all true tables; above it stands what one
attacker at least has.
"""

import math
from fractions import Fraction
from typing import Any

import numpy as np

from semidp.applications.study import PAPER, Settings, Tidy
from semidp.assess import (
    CellLaw,
    Stratum,
    Swap,
    SwapRule,
    attack_stratum,
    compute_cell_loss,
    compute_exact_loss,
)
from semidp.publish import style

RATES = tuple(Fraction(percent, 100) for percent in (1, 2, 5, 10, 20, 50))
STRATA = (8, 12, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
LISTED, PROVED = 20, 1000
"""Up to how many records a stratum is listed, and up to how many its curve is exact."""


def compute(settings: Settings = PAPER) -> Tidy:
    """Return the advantage of an attacker, epsilons and errors of a cell, for each rate and size of
    a stratum.

    The error of swapping is that of its unbiased estimate, at the table that is closest to
    independence; Gaussian noise has the same advantage. Epsilons are for two people who change
    places, and derangements.
    """
    cases = [(rate, n) for rate in RATES for n in STRATA]
    return Tidy.from_rows([_row(rate, n) for rate, n in settings.each("strata", cases)])


def _row(rate: Fraction, n: int) -> dict[str, Any]:
    """One rate, and one stratum of n people, half of them of either kind.

    >>> round(_row(Fraction(1, 5), 12)["advantage"], 3)
    0.738
    """
    from scipy.special import ndtri

    half = n // 2
    stratum = Stratum([half, half], [half, half])
    swap = Swap(rate)
    loss = (compute_cell_loss if n <= PROVED else attack_stratum)(stratum, swap)
    as_published, unbiased = _errors(stratum, swap)
    # the published epsilon is about derangements, and two people are two records
    deranging = Swap(rate, SwapRule.derange)
    epsilon = None
    if n <= LISTED:
        epsilon = compute_exact_loss(stratum, deranging).epsilon
    is_proved = loss.curve is not None
    row: dict[str, Any] = {"rate": rate, "n": n, "proved": is_proved}
    row["advantage"] = loss.attack
    row["published_epsilon"] = 2 * deranging.published_epsilon(n)
    row["exact_epsilon"] = epsilon
    row["swapping_error"] = as_published
    row["swapping_error_unbiased"] = unbiased
    # Between fixed margins a 2 x 2 table is one number, which moves by one: its σ is 1/mu. Gaussian
    # noise with mu has the advantage 2 Φ(mu/2) - 1.
    row["gaussian_error"] = 1 / (2 * float(ndtri((1 + loss.attack) / 2)))
    return row


def _errors(stratum: Stratum, swap: Swap) -> tuple[float, float]:
    """Error of a published cell in the middle, and of its unbiased estimate.

    The mean of the published cell is a linear function of the true one, so that dividing by its
    slope removes the bias.
    """
    hold, over = stratum.hold[1], stratum.over[1]
    law = CellLaw.from_totals(stratum.n, hold, over, swap)
    middle = (law.lowest + law.highest) // 2
    mean, error = _moments(law, middle, around=middle)
    # The mean is linear in the true cell, so that two cells give its slope.
    above, _ = _moments(law, middle + 1, around=middle)
    bias = mean - middle
    spread = math.sqrt(error**2 - bias**2)
    return error, spread / (above - mean)


def _moments(law: CellLaw, cell: int, around: int) -> tuple[float, float]:
    """Mean of a published cell, and its root mean square distance from a number."""
    first, masses = law.row(cell)
    values = first + np.arange(len(masses))
    square = float((values - around) ** 2 @ masses)
    return float(values @ masses), math.sqrt(square)


def plot(table: Tidy) -> style.Figure:
    """Draw the advantage, the published epsilon and the errors against the size of the stratum."""
    with style.drawing(13.2, 4.9, columns=3) as (figure, grid):
        for rate, color, marker in zip(RATES, style.CYCLE, style.MARKERS, strict=True):
            part = table.where(rate=rate)
            marks: Any = {"color": color, "marker": marker, "markersize": 5}
            label = f"{float(rate):.0%}"
            _advantages(grid[0], part, marks, label)
            grid[1].plot(part["n"], part["published_epsilon"], **marks)
            # exact epsilons end where strata are too large to list
            epsilons = [
                math.nan if epsilon is None else epsilon for epsilon in part["exact_epsilon"]
            ]
            grid[1].plot(part["n"], epsilons, color=color, linestyle=":", linewidth=2)
            errors = np.array(part["swapping_error_unbiased"])
            noise = np.array(part["gaussian_error"])
            grid[2].plot(part["n"], errors / noise, **marks)
        grid[0].set(ylim=(0, 1.02), title="advantage of an attacker")
        grid[1].set(ylim=(0, None), title="published pure ε (dotted: exact)")
        grid[2].axhline(1, color=style.GREY, linewidth=1, linestyle=":")
        grid[2].set(title="error ÷ that of Gaussian noise")
        for axes in grid:
            axes.set_xscale("log")
            axes.set_xlabel("records in the stratum")
            style.plain_numbers(axes.xaxis)
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=len(RATES),
            title="swap rate (hollow: at least)",
        )
        figure.suptitle(
            "Swapping in strata of two by two, halves: what it hides, and what it costs"
        )
    return figure


def _advantages(axes: Any, part: Tidy, marks: dict[str, Any], label: str) -> None:
    """Draw a line, with hollow markers where the advantage is only what an attacker at least
    has.
    """
    color = marks["color"]
    axes.plot(part["n"], part["advantage"], color=color, linewidth=1.5)
    for proved, face in ((True, color), (False, "white")):
        points = part.where(proved=proved)
        name = label if proved else None
        axes.plot(
            points["n"],
            points["advantage"],
            linestyle="",
            markerfacecolor=face,
            label=name,
            **marks,
        )
