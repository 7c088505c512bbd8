"""What statistical offices did: the 2020 Census with exact state totals (section 6 of the paper),
and swapping.
"""

import csv
import math
from fractions import Fraction
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from semidp import Ball, Dataspace, Exchange, Guarantee
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
from semidp.promise import tradeoff_from_json, zcdp, zcdp_epsilon_paper
from semidp.publish import style

DELTA = Fraction(1, 10**10)
PERSONS, UNITS = Fraction(542, 339) ** 2, Fraction(3379, 12343) ** 2
ROUNDED = {"persons": Fraction("2.56"), "units": Fraction("0.07")}
LEVELS = {"US": 104, "state": 1440, "county": 447, "tract": 687, "block group": 1256, "block": 165}
"""Shares of the persons budget, out of 4099, by the geographic level of the tables
(abowd2022topdown)."""

STATE_TOTALS = "the population of every state, the District of Columbia and Puerto Rico"
NOTES = (
    (
        "a = 2: the state is one published feature. For you to have lived in another state,"
        " somebody there must have lived in yours. What stays within a state (your block, age or"
        " race) needs nobody else: there the announced rho holds, but for a sole occupant of group"
        " quarters, whose place somebody must take."
    ),
    (
        "The two adjacencies are two promises. Ball: any two people change at once, in whatever way"
        " keeps the states: the paper's 4 rho. Exchange: you move with any new attributes and one"
        " person takes exactly your place and keeps the rest: at most 2 rho below the nation (no"
        " query has negative entries, so that the two changes never add up), and 1 rho at the"
        " nation, where they are not seen to move. The total query costs 1, because your place is"
        " filled."
    ),
    (
        "5.12 holds whatever the shares are. The rows with a condition are nominal: the production"
        " run splits states into tribal and other areas and moves shares between levels, and it"
        " also fixes group quarters by block and some zeros, where nobody may be able to take a"
        " place. The shares are those of the persons file of the redistricting data (P.L. 94-171)."
    ),
    (
        "k = 3 is what one more exact margin would cost, such as the number of adults in the nation"
        " beside the states."
    ),
    (
        "Housing units and group quarters by block are exact too, and do not count people. They"
        " leave a = 2: whoever takes your place takes your address, and the housing unit they leave"
        " may stand empty. They do rule out datasets (nobody lives in a block with neither,"
        " somebody in each occupied group quarters): fewer alternatives are protected."
    ),
    (
        "For the units tables the record is a housing unit, and the exact number of units in each"
        " block is a margin: a = 2 if its block is part of the secret, 1 if the address list is"
        " public anyway and only the occupancy is secret."
    ),
    "The levels share one budget: their rhos add up to the total, and an epsilon is not additive.",
    (
        "The production run draws discrete Gaussian noise, for which rho-zCDP is proved: what holds"
        " for it is the epsilon under zCDP. That under Gaussian is exact for continuous noise of"
        " the same rho; nothing here carries it over to discrete noise."
    ),
)


def compute_census(settings: Settings = PAPER) -> Tidy:
    """Return rho and epsilon at δ = 1e-10 for groups of a = 1 (as announced), 2 (state totals) and
    3 records.

    The 2020 US Census redistricting data: what its budget guarantees, given that state
    populations are exact.

    The persons tables, in total and level by level, and the units tables; the published round
    numbers and the production settings behind them. `semidp census` prints it.

    ``a² rho`` by group privacy; epsilon by the paper's formula ``rho + 2 sqrt(rho ln(1/δ))``, tight
    for zCDP, and exact for Gaussian noise of that rho (balle2018improving).

    >>> table = compute_census()
    >>> row = table.where(tables="persons", setting="rounded", level="all", a=2).records()[0]
    >>> float(row["rho"]), round(row["epsilon_paper"], 5), round(row["epsilon_tight"], 4)
    (10.24, 40.95057, 39.8226)
    >>> round(row["epsilon_gaussian"], 3)
    38.405
    """
    budgets: list[tuple[str, str, str, Fraction]] = []
    for tables, production in (("persons", PERSONS), ("units", UNITS)):
        budgets.append((tables, "rounded", "all", ROUNDED[tables]))
        budgets.append((tables, "production", "all", production))
    for level, share in LEVELS.items():
        budgets.append(("persons", "production", level, PERSONS * share / 4099))
    rows: list[Any] = []
    for *where, rho in budgets:
        for a in (1, 2, 3):
            rows.append((*where, a, rho * a * a, "ball", ""))
    for setting, *cost in _nominal():
        rows.append(("persons", setting, "all", 2, *cost))
    observations = []
    for tables, setting, level, a, rho, kind, condition in rows:
        row = {"tables": tables, "setting": setting, "level": level, "a": a}
        row |= {"rho": rho, "delta": DELTA}
        row["epsilon_paper"] = zcdp_epsilon_paper(rho, DELTA)
        row["epsilon_tight"] = zcdp(rho).epsilon(DELTA)
        row["epsilon_gaussian"] = _gaussian_epsilon(rho)
        observations.append(row | {"adjacency": kind, "condition": condition})
    return Tidy.from_rows(observations)


def _gaussian_epsilon(rho: Fraction) -> float:
    """Epsilon of continuous Gaussian noise with this rho: mu² = 2 rho."""
    document = {"kind": "gaussian", "mu_squared": str(2 * rho)}
    return tradeoff_from_json(document).epsilon(DELTA)


def _nominal() -> list[tuple[str, Fraction, str, str]]:
    """Costs of one move under exchange, and under the ball where an exact statistic fixes a
    query.
    """
    exchange = _total_rho(costs())
    states_fixed = _total_rho(costs(fixed=True))
    ball = _total_rho(costs("ball", fixed=True))
    shares = "the US level has 104/4099 of the budget"
    queries = "the production shares by query hold"
    fixed = "and the state level is the whole state, so that its total is the exact statistic"
    condition = f"{queries}, {fixed}"
    rounded = 2 * ROUNDED["persons"]
    # The nation costs its share once, every other level twice.
    by_level = PERSONS * (2 - Fraction(LEVELS["US"], 4099))
    return [
        # This row alone needs no assumption on how the budget was shared.
        ("exchange", rounded, "exchange", ""),
        ("exchange by level", by_level, "exchange", shares),
        ("exchange by query", exchange, "exchange", queries),
        ("exchange, states fixed", states_fixed, "exchange", condition),
        ("ball, states fixed", ball, "ball", condition),
    ]


def _total_rho(queries: Tidy) -> Fraction:
    return sum(queries["rho"], Fraction(0))


@cache
def budget() -> tuple[tuple[str, Fraction, str, Fraction], ...]:
    """Return the shares of the persons budget by level and query (P.L. 94-171, persons).

    >>> len(budget()), budget()[10][:3]
    (65, ('State', Fraction(1440, 4099), 'total'))
    """
    path = files("semidp").joinpath("data", "census_2020_persons_budget.csv")
    text = path.read_text(encoding="utf-8")
    shares = []
    for row in csv.DictReader(text.splitlines()):
        level_share = Fraction(row["level_share"])
        query_share = Fraction(row["query_share"])
        shares.append((row["level"], level_share, row["query"], query_share))
    return tuple(shares)


def costs(kind: str = "exchange", *, fixed: bool = False) -> Tidy:
    """Return the cost of one move in each level and query of the persons tables, with its reason.

    A query measured with ``ρ`` for one record costs ``ρ |φ(X) - φ(Y)|² / 2``. Under exchange the
    person costs 2 and so does the carrier, and their cross term is at most 0 for queries without
    negative entries: at most twice ρ; once at the nation, where the carrier does not move, and for
    totals, where it takes exactly the person's place.

    Parameters
    ----------
    kind
        ``exchange`` or ``ball``.
    fixed
        Whether the total of the state level is the exact statistic itself, so it costs
        nothing.

    Examples
    --------
    >>> round(float(sum(costs()["rho"])), 4), round(float(sum(costs(fixed=True)["rho"])), 4)
    (3.5183, 2.6913)
    >>> round(float(sum(costs("ball", fixed=True)["rho"])), 4)
    6.9169
    """
    rows = []
    for level, share, query, part in budget():
        factor, reason = _factor(level, query, kind, fixed)
        rho = PERSONS * share * part
        row = {"level": level, "query": query, "announced": rho}
        row |= {"factor": factor, "rho": factor * rho, "reason": reason}
        rows.append(row)
    return Tidy.from_rows(rows)


def costs_by_level(kind: str = "exchange", *, fixed: bool = False) -> Tidy:
    """Return `costs` added up for each level: its total query, and all other queries together.

    >>> table = costs_by_level().where(level="Block")
    >>> table["query"], table["factor"]
    (['total', 'all others'], [1, 2])
    """
    every = costs(kind, fixed=fixed).records()
    rows = []
    for level in dict.fromkeys(row["level"] for row in every):
        of_level = [row for row in every if row["level"] == level]
        for query, is_total in (("total", True), ("all others", False)):
            part = [row for row in of_level if (row["query"] == "total") is is_total]
            # The nation has no total query: its total follows from the exact states.
            if not part:
                continue
            announced = sum((row["announced"] for row in part), Fraction(0))
            rho = sum((row["rho"] for row in part), Fraction(0))
            # All queries of a part share one factor and one reason: the first row has them.
            sums = {"announced": announced, "rho": rho, "query": query}
            rows.append(part[0] | sums)
    return Tidy.from_rows(rows)


def _factor(level: str, query: str, kind: str, fixed: bool) -> tuple[int, str]:
    # First, since what is published exactly costs nothing under either adjacency.
    if fixed and (level, query) == ("State", "total"):
        return 0, "it is published exactly"
    if kind == "ball":
        return 4, "any two records change at once"
    if level == "US":
        return 1, "whoever takes the person's place stays in the nation with all attributes"
    if query == "total":
        return 1, "whoever takes the person's place leaves its count as it was"
    return 2, "the person and whoever takes the place are both seen, and never add up"


def guarantee(a: int = 2) -> Guarantee:
    """Return the guarantee of the persons tables with exact state totals, as a value to explain and
    compare.

    >>> guarantee().tradeoff.rho
    Fraction(256, 25)
    """
    # The dataspace is described in words: the records of the Census are not here.
    states_exact = Dataspace.from_description(STATE_TOTALS)
    return Guarantee(states_exact, Ball(a), zcdp(ROUNDED["persons"]).group(a))


def exchange_guarantee() -> Guarantee:
    """Return the guarantee for exchanges, whatever the shares of the budget: twice rho.

    >>> exchange_guarantee().tradeoff.rho
    Fraction(128, 25)
    """
    states_exact = Dataspace.from_description(STATE_TOTALS)
    return Guarantee(states_exact, Exchange(2), zcdp(2 * ROUNDED["persons"]))


def plot_census(table: Tidy) -> style.Figure:
    """Draw the announced and the effective curve, and the budget of each geographic level."""
    with style.drawing(10.4, 4.7, columns=2) as (figure, (left, right)):
        _curves(left)
        _levels(right, table.where(tables="persons", setting="production"))
        figure.suptitle(
            "2020 Census, persons tables: as announced, and with exact state populations"
        )
    return figure


def _curves(axes: Any) -> None:
    """Logarithmic axes: what matters is how rarely an attacker who is seldom wrong can be right."""
    false_alarms = np.geomspace(1e-8, 1, 400)
    axes.plot(
        false_alarms,
        1 - false_alarms,
        color=style.GREY,
        linewidth=1,
        label="guessing (perfect privacy)",
    )
    announced = (1, style.BLUE, "-", "announced")
    effective = (2, style.ORANGE, "--", "effective, a = 2")
    for a, colour, dashes, label in (announced, effective):
        curve = guarantee(a).tradeoff
        rho = float(ROUNDED["persons"] * a**2)
        text = f"{label}: ρ = {rho:g}, ε = {curve.epsilon(DELTA):.4f} at δ = 1e-10"
        misses = np.asarray(curve(1 - false_alarms))
        axes.plot(false_alarms, misses, color=colour, linestyle=dashes, linewidth=2, label=text)
    axes.set(
        xscale="log",
        yscale="log",
        xlim=(1e-8, 1),
        ylim=(1e-8, 2),
        xlabel="false alarms (type I error)",
    )
    axes.set_ylabel("misses (type II error)")
    style.plain_numbers(axes.xaxis, axes.yaxis)
    axes.set_xticks([1e-8, 1e-6, 1e-4, 1e-2, 1])
    axes.legend(loc="lower left", fontsize=8.5)


def _levels(axes: Any, part: Tidy) -> None:
    names = list(LEVELS)
    lines = np.arange(len(names))
    announced = (1, style.BLUE, -0.19, "announced")
    effective = (2, style.ORANGE, 0.19, "effective, a = 2")
    for a, colour, shift, label in (announced, effective):
        of_group = part.where(a=a)
        values = [float(of_group.where(level=name)["rho"][0]) for name in names]
        bars = axes.barh(lines + shift, values, height=0.36, color=colour, label=label)
        numbers = [f"{value:.3f}" for value in values]
        axes.bar_label(bars, numbers, padding=3, fontsize=9)
    axes.set_yticks(lines, names)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set(xlim=(0, 4.2), xlabel="ρ by geographic level, production settings")
    axes.legend(loc="lower right", fontsize=9)


RATES = tuple(Fraction(percent, 100) for percent in (1, 2, 5, 10, 20, 50))
STRATA = (8, 12, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
LISTED, PROVED = 20, 1000
"""Up to how many records a stratum is listed, and up to how many its curve is exact."""


def compute_swapping(settings: Settings = PAPER) -> Tidy:
    """Return the advantage of an attacker, epsilons and errors of a cell, for each rate and size of
    a stratum.

    What swapping hides in strata of 8 to 10,000 records, at rates of 1% to 50%, next to noise
    with the same totals.

    Strata of two held and two swapped values, each of half the records. Up to 1,000 records the
    advantage of the best attacker is exact, the worst over all true tables; above it stands
    what one attacker at least has.

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

    The mean of the published cell is a linear function of the true one, so dividing by its
    slope removes the bias.
    """
    hold, over = stratum.hold[1], stratum.over[1]
    law = CellLaw.from_totals(stratum.n, hold, over, swap)
    middle = (law.lowest + law.highest) // 2
    mean, error = _moments(law, middle, around=middle)
    # The mean is linear in the true cell, so two cells give its slope.
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


def plot_swapping(table: Tidy) -> style.Figure:
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
