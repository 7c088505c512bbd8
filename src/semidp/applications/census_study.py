"""The 2020 US Census redistricting data: what its budget guarantees, given that state populations
are exact.

The persons tables, in total and level by level, and the units tables; the published round numbers
and the production settings behind them. `semidp census` prints it.
"""

import csv
from fractions import Fraction
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from semidp import Ball, Dataspace, Exchange, Guarantee
from semidp.applications.study import PAPER, Settings, Tidy
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


def compute(settings: Settings = PAPER) -> Tidy:
    """Return rho and epsilon at δ = 1e-10 for groups of a = 1 (as announced), 2 (state totals) and
    3 records.

    ``a² rho`` by group privacy; epsilon by the paper's formula ``rho + 2 sqrt(rho ln(1/δ))``, tight
    for zCDP, and exact for Gaussian noise of that rho (balle2018improving).

    >>> table = compute()
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
        Whether the total of the state level is the exact statistic itself, so that it costs
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


def plot(table: Tidy) -> style.Figure:
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
