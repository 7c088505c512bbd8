"""Ten tables from one budget: residuals measured once beside tables measured one by one, under two
promises.

Features of 2, 5, 7, 9 and 16 levels, the totals of the first two exact, all ten pairs at mu = 1.
What the residuals save under the ball is a gain at the same promise; what exchange saves beyond it
is another promise.
"""

import itertools
import math
from typing import Any

from semidp import Budget, Feature, Plan, prepare, sensitivity_space
from semidp.applications.study import PAPER, Settings, Tidy
from semidp.promise import ResidualMechanism
from semidp.publish import TableRequest, TablesRequest, style

SIZES = (2, 5, 7, 9, 16)
NAMES = tuple(f"{size} levels" for size in SIZES)
PROMISES = {"ball": "worst-case", "exchange": "exchange"}


def workload(promise: str) -> tuple[Plan, dict[str, list[str]]]:
    """Return the plan of all pairs of five features under one of the two promises, and one record
    in each of their 10,080 cells.

    >>> prepare(*workload("ball")).scope.adjacency.a
    3
    """
    features = []
    for name, size in zip(NAMES, SIZES, strict=True):
        levels = [str(level) for level in range(size)]
        features.append(Feature(name, levels))
    requests = [TableRequest(pair) for pair in itertools.combinations(NAMES, 2)]
    pairs = TablesRequest(requests, Budget.gdp(1))
    plan = Plan([pairs], NAMES[:2], features, adjacency=PROMISES[promise])
    # one record in each cell: the columns of the product of all levels
    cells = itertools.product(*(feature.levels for feature in features))
    columns = map(list, zip(*cells, strict=True))
    return plan, dict(zip(NAMES, columns, strict=True))


def compute(settings: Settings = PAPER) -> Tidy:
    """Return the total variance of all ten tables for each way to measure them, under each
    promise.

    >>> compute().where(promise="ball", joint=False)["total_variance"][:3]
    [93580.0, 75382..., 62383...]
    """
    rows: list[dict[str, Any]] = []

    def add(way: str, promise: str, joint: bool, total: float) -> None:
        rows.append({"way": way, "promise": promise, "joint": joint, "total_variance": total})

    for promise in PROMISES:
        prepared = prepare(*workload(promise))
        space, public = prepared.mechanisms[0].space, prepared.scope
        pairs = itertools.combinations(NAMES, 2)
        alone = [sensitivity_space(public.dataspace, public.adjacency, pair) for pair in pairs]
        parts = []
        for table in alone:
            parts.append(float(table.variances().sum()) * table.l2_squared)
        # Each of m tables gets mu²/m, so that every variance grows m times.
        add("one by one, budget in equal parts", promise, False, len(parts) * sum(parts))
        # The sum of v_i/b_i with parts that add up to 1 is least for b_i in proportion to √v_i.
        roots = sum(map(math.sqrt, parts))
        add("one by one, budget in the best parts", promise, False, roots**2)
        for joint in (False, True):
            mechanism = ResidualMechanism.calibrate(space, Budget.gdp(1), joint=joint)
            way = "residuals, by their joint cost" if joint else "residuals, cost by cost"
            add(way, promise, joint, _total(mechanism))
    return Tidy.from_rows(rows)


def _total(mechanism: ResidualMechanism) -> float:
    """The announced total variance without the twelfth that rounding to whole numbers adds."""
    space = mechanism.space
    gain = space.residuals.gain
    total = 0.0
    for view, square in mechanism.sigma2.items():
        for table in space.views:
            # A residual is part of a table that sees every feature at least as finely.
            depths = zip(view, table, strict=True)
            if all(depth <= deepest for depth, deepest in depths):
                total += float(square) * gain(view, table)
    return total


def plot(table: Tidy) -> style.Figure:
    """Draw the total variances as bars, and say which gain is at the same promise and which is
    another promise.
    """
    rows = table.records()
    names = {"ball": "any a = 3 records (ball)", "exchange": "one person (exchange)"}
    with style.drawing(9.5, 4.8) as (figure, axes):
        places = []
        colours = []
        for place, row in enumerate(rows):
            # the second promise stands apart
            is_exchange = row["promise"] == "exchange"
            places.append(float(place) + 0.9 * is_exchange)
            residual_colour = style.BLUE if is_exchange else style.ORANGE
            colours.append(style.GREY if "one by one" in row["way"] else residual_colour)
        variances = [row["total_variance"] for row in rows]
        bars = axes.barh(places, variances, color=colours, height=0.75)
        axes.bar_label(bars, [f"{variance:,.0f}" for variance in variances], padding=4)
        axes.set_yticks(places, [row["way"] for row in rows])
        axes.set(xlabel="total variance of the ten tables, mu = 1", ylim=(places[-1] + 0.6, -1.1))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.grid(visible=False, axis="y")
        axes.margins(x=0.12)
        promises = [row["promise"] for row in rows]
        for promise, name in names.items():
            first = places[promises.index(promise)]
            axes.annotate(name, (800, first - 0.58), fontweight="bold")
        axes.set_title(_gains(table), loc="left", fontsize=11)
        figure.suptitle("Ten two-way tables under two exact totals", fontweight="bold")
    return figure


def _gains(table: Tidy) -> str:
    """Sentences on the two gains: at the same promise, and by another promise."""
    equal, best = table.where(promise="ball", joint=False)["total_variance"][:2]
    (ours,) = table.where(promise="ball", joint=True)["total_variance"]
    (other,) = table.where(promise="exchange", joint=True)["total_variance"]
    least = f"{best / ours:.1f}"
    most = f"{equal / ours:.1f}"
    again = f"{ours / other:.1f}"
    return (
        f"Same promise (ball): residuals need {least} to {most} times less"
        f" than one by one.\nAnother promise (exchange): {again} times less again, and"
        " it promises less about groups."
    )
