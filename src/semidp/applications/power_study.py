"""How often tests of the odds ratio of a 2 x 2 table find it: semi-private, without privacy, and
naive.

The paper proves that the semi-private test is most powerful among unbiased ones and shows no
figure; this is the one it might have had. The tests are in `statistics.odds_ratio`.
"""

from fractions import Fraction
from typing import Any

import numpy as np

from semidp import Budget
from semidp.applications.study import PAPER, RECORDS, Settings, Tidy
from semidp.promise import SeededRandomness
from semidp.publish import TwoByTwo, power_curves, style

EPSILONS = (Fraction(1, 10), Fraction(1, 2), Fraction(1))
ODDS_RATIOS = np.geomspace(1, 8, 19)
ALPHA = 0.05
_RUNS = 500  # simulated tables of the naive tests, for each replicate of the settings


def compute(settings: Settings = PAPER) -> Tidy:
    """Return the power of each test against the odds ratio, at level 0.05 and margins of half the
    500 records.

    The power of the semi-private and of the ordinary test is exact; the naive ones are simulated,
    500 tables for each replicate.

    >>> table = compute(Settings(replicates=2))
    >>> table.columns
    ('epsilon', 'n', 'test', 'odds_ratio', 'power', 'se')
    >>> table.where(test="semi-private UMPU", odds_ratio=1.0)["power"][0].round(6)
    np.float64(0.05)
    """
    margins = TwoByTwo(RECORDS // 2, RECORDS // 2, RECORDS)
    runs = _RUNS * settings.replicates
    odds_ratios = ODDS_RATIOS.tolist()
    rows = []
    for done, epsilon in enumerate(settings.each("power of tests", EPSILONS)):
        # Each panel has a stream of its own, so that no chance is shared between them.
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


def plot(table: Tidy) -> style.Figure:
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
