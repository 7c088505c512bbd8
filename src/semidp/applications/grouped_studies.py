"""Statistics by groups under exact group sizes, and several tables from one budget, next to the
usual ways.
"""

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp import (
    Budget,
    Dataspace,
    Feature,
    Margin,
    Outcome,
    Plan,
    Schema,
    Table,
    prepare,
    publish,
    sensitivity_space,
)
from semidp.applications.study import (
    PAPER,
    Losses,
    Settings,
    Tidy,
    baseline_means,
    baseline_regression,
)
from semidp.promise import (
    SeededRandomness,
    moment_space,
    outcome_adjacency,
    sum_space,
)
from semidp.publish import ResidualMechanism, TableRequest, TablesRequest, outcome_mechanism, style

DESIGNS = {"equal": (50,) * 10, "unequal": (5, 10, 20, 30, 40, 50, 60, 80, 90, 115)}
GROUPED_MEANS_MUS = tuple(Fraction(numerator, 4) for numerator in (1, 2, 4, 8, 16))
GROUPED_MEANS_METHODS = {
    "semi": "Semi-DP: exact sizes, two records",
    "baseline": "baseline: noisy sizes, two records",
    "ordinary": "ordinary DP: noisy sizes, one record",
}
GROUPED_MEANS_STEPS = 1000


def compute_grouped_means(settings: Settings = PAPER) -> Tidy:
    """Return the error of the group means, ``sqrt(mean_g (m̂_g - m_g)²)``, averaged over
    replicates.

    Group means with exact group sizes: Semi-DP next to ordinary differential privacy, where the
    sizes are noisy too.

    Ten groups of 50, and ten of 5 to 115 records; outcomes in [0, 1]; μ from 1/4 to 4. The
    baseline gives two records together the protection of Semi-DP by group privacy; ordinary DP
    protects one record and is shown for scale.

    Every estimate is clipped to [0, 1], which anybody may do; it helps the noisier methods most.

    >>> compute_grouped_means(Settings(replicates=2)).columns
    ('design', 'mu', 'method', 'error', 'se', 'replicates')
    """
    randomness = SeededRandomness(settings.seed)

    def run(design: str, mu: Fraction) -> Iterator[Losses]:
        counts, steps = simulated_groups(design, settings.seed)
        drawn = [estimates(counts, steps, mu, randomness) for _ in range(settings.replicates)]
        truth = steps / GROUPED_MEANS_STEPS / counts
        for method in GROUPED_MEANS_METHODS:
            estimated = np.clip([each[method] for each in drawn], 0, 1)
            gaps = estimated - truth
            yield {"method": method}, np.sqrt(np.mean(gaps**2, axis=1))

    cases = [{"design": design, "mu": mu} for design in DESIGNS for mu in GROUPED_MEANS_MUS]
    return settings.run_replicates("group means", "error", cases, run)


def simulated_groups(design: str, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the group sizes and the sums of outcomes, in steps: normal around a group's own mean,
    clipped to [0, 1].

    >>> counts, steps = simulated_groups("unequal", seed=0)
    >>> counts.tolist()[:3], bool((steps <= counts * GROUPED_MEANS_STEPS).all())
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
        sums.append(np.floor(outcomes * GROUPED_MEANS_STEPS + 0.5).sum())
    return counts, np.array(sums, dtype=np.int64)


def estimates(
    counts: NDArray[np.int64], steps: NDArray[np.int64], mu: Fraction, randomness: SeededRandomness
) -> dict[str, NDArray[np.float64]]:
    """Return the group means of each method at μ, once.

    >>> sorted(estimates(*simulated_groups("equal", 0), Fraction(1), SeededRandomness(1)))
    ['baseline', 'ordinary', 'semi']
    """
    budget, totals = Budget.gdp(mu), steps / GROUPED_MEANS_STEPS
    levels = tuple(map(str, range(len(counts))))
    schema = Schema((Feature("group", levels),))
    public = Dataspace.from_table(Table(schema, counts), [Margin("group")])
    adjacency = outcome_adjacency(public)
    outcome = Outcome("y", Fraction(0), Fraction(1), GROUPED_MEANS_STEPS)
    space = sum_space(public, adjacency, outcome, [Margin("group")])
    mechanism = outcome_mechanism(space, budget)
    sums = publish.GroupSums(mechanism, mechanism.measure(steps, randomness))
    semi = sums.means().values
    baseline = baseline_means(counts, totals, budget, a=adjacency.a, randomness=randomness)
    ordinary = baseline_means(counts, totals, budget, a=1, randomness=randomness)
    return {"semi": semi, "baseline": baseline, "ordinary": ordinary}


def plot_grouped_means(table: Tidy) -> style.Figure:
    """Draw the error of each method against μ, one panel for each design."""
    titles = {"equal": "ten groups of 50", "unequal": "ten groups of 5 to 115"}
    with style.drawing(9.2, 4.4, columns=2) as (figure, panels):
        for axes, (design, title) in zip(panels, titles.items(), strict=True):
            for number, (method, label) in enumerate(GROUPED_MEANS_METHODS.items()):
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


BY_FACTORS = tuple((factors, 512) for factors in (1, 2, 3, 4))
BY_RECORDS = tuple((4, records) for records in (128, 256, 512, 1024))
CASES = tuple(dict.fromkeys((*BY_FACTORS, *BY_RECORDS)))
GROUPED_REGRESSION_MUS = tuple(Fraction(numerator, 4) for numerator in (1, 2, 4, 8, 16))
SHOWN = Fraction(1)
GROUPED_REGRESSION_METHODS = {
    "semi": "Semi-DP: exact X'X, two records",
    "columns": "the same, X'y by columns of treatment coding",
    "baseline": "baseline: noisy X'X, two records",
    "ordinary": "ordinary DP: noisy X'X, one record",
}
GROUPED_REGRESSION_STEPS = 1000


class Simulated:
    """Records with K random binary factors and an outcome in [-1, 1] on a grid: a linear model plus
    noise, clipped.

    >>> data = Simulated(factors=2, records=100, seed=0)
    >>> data.rows.shape, round(float(np.linalg.norm(data.rows[0])), 9)
    ((100, 3), 1.0)
    """

    def __init__(self, factors: int, records: int, seed: int) -> None:
        source = np.random.default_rng([seed, factors, records])
        self.levels = source.integers(0, 2, (records, factors))
        intercept = np.ones((records, 1))
        signs = np.concatenate([intercept, 2.0 * self.levels - 1], axis=1)
        self.rows = signs / math.sqrt(factors + 1)
        slopes = source.uniform(-0.6, 0.6, factors + 1)
        errors = source.normal(0, 0.25, records)
        outcomes = np.clip(self.rows @ slopes + errors, -1, 1)
        on_grid = (outcomes + 1) / 2 * GROUPED_REGRESSION_STEPS
        self.steps = np.floor(on_grid + 0.5).astype(np.int64)
        self.outcomes = self.steps * 2 / GROUPED_REGRESSION_STEPS - 1
        # Fitted to the outcomes on the grid, so rounding them is nobody's error.
        self.truth = np.linalg.lstsq(self.rows, self.outcomes, rcond=None)[0]

    def build_mechanism(
        self, mu: Fraction, coding: publish.Coding
    ) -> tuple[Any, publish.Design, NDArray[np.int64]]:
        """Return a mechanism at μ, its design and the values it measures: by the best route, or X'y
        of treatments.
        """
        factors = self.levels.shape[1]
        names = [f"x{k}" for k in range(1, factors + 1)]
        features = tuple(Feature(name, ("low", "high")) for name in names)
        schema = Schema(features)
        ones = np.ones(len(self.levels), dtype=np.int64)
        counts = self._by_cell(ones).reshape(schema.shape)
        public = Dataspace.from_table(Table(schema, counts), [Margin(*names)])
        design = publish.Design.from_schema(schema, names, coding=coding)
        adjacency = outcome_adjacency(public)
        outcome = Outcome("y", Fraction(-1), Fraction(1), GROUPED_REGRESSION_STEPS)
        about = (public, adjacency, outcome, design)
        if coding is publish.Coding.effects:
            mechanism = publish.regression_mechanism(*about, Budget.gdp(mu))
        else:
            moments = moment_space(*about)
            mechanism = outcome_mechanism(moments, Budget.gdp(mu))
        space: Any = mechanism.space
        values = publish.route_values(space, design, self._by_cell(self.steps))
        return mechanism, design, values

    def _by_cell(self, weights: NDArray[np.int64]) -> NDArray[np.int64]:
        factors = self.levels.shape[1]
        # The first factor varies slowest, as in the counts of a schema.
        place_values = 2 ** np.arange(factors)[::-1]
        cells = self.levels @ place_values
        return np.bincount(cells, weights, minlength=2**factors).astype(np.int64)


def compute_grouped_regression(settings: Settings = PAPER) -> Tidy:
    """Return the error of the coefficients, ``‖β̂ - β‖`` with β fitted without noise, averaged over
    replicates.

    Linear regression on public groups: an exact X'X and a noisy X'y, next to ordinary DP, where
    both are noisy.

    K binary factors coded ±1, every row divided by sqrt(K + 1) so that its length is 1;
    outcomes in [-1, 1]. K = 1 … 4 with 512 records, and 128 … 1024 records with K = 4. The
    joint counts of the factors are public, so a(t) = 2. What semidp measures is chosen from
    these counts; next to it X'y itself, column by column in treatment coding.

    >>> compute_grouped_regression(Settings(replicates=2)).columns
    ('factors', 'records', 'mu', 'method', 'error', 'se', 'replicates')
    """
    randomness = SeededRandomness(settings.seed)

    def run(factors: int, records: int, mu: Fraction) -> Iterator[Losses]:
        data = Simulated(factors, records, settings.seed)
        # The baselines see rows divided by this root, so their coefficients are larger by it.
        scale = math.sqrt(factors + 1)
        budget = Budget.gdp(mu)
        semi = data.build_mechanism(mu, publish.Coding.effects)
        columns = data.build_mechanism(mu, publish.Coding.treatment)
        pair = semi[0].space.adjacency.a
        losses: dict[str, list[float]] = {method: [] for method in GROUPED_REGRESSION_METHODS}
        for _ in range(settings.replicates):
            half = (
                _fit_coefficients(*columns, randomness) / 2
            )  # of a treatment, which is two steps of ±1
            effects = _fit_coefficients(*semi, randomness)
            fits = {"semi": effects * scale, "columns": half * scale}
            # A treatment intercept has all factors low; half of every effect leads to the middle.
            middle = half[0] + half.sum()
            fits["columns"][0] = middle * scale
            for method, a in (("baseline", pair), ("ordinary", 1)):
                fits[method] = baseline_regression(
                    data.rows, data.outcomes, budget, a=a, randomness=randomness
                )
            for method, coefficients in fits.items():
                error = np.linalg.norm(coefficients - data.truth)
                losses[method].append(float(error))
        for method, errors in losses.items():
            yield {"method": method}, np.array(errors)

    cases = []
    for factors, records in CASES:
        for mu in GROUPED_REGRESSION_MUS:
            cases.append({"factors": factors, "records": records, "mu": mu})
    return settings.run_replicates("regressions", "error", cases, run)


def _fit_coefficients(
    mechanism: Any,
    design: publish.Design,
    values: NDArray[np.int64],
    randomness: SeededRandomness,
) -> NDArray[np.float64]:
    moments = publish.Moments(mechanism, mechanism.measure(values, randomness), design)
    return publish.LinearFit(moments).coefficients


def plot_grouped_regression(table: Tidy) -> style.Figure:
    """Draw the error of each method at μ = 1: against the number of factors, and against the number
    of records.
    """
    with style.drawing(9.2, 4.4, columns=2) as (figure, panels):
        by_factors = (panels[0], BY_FACTORS, "factors")
        by_records = (panels[1], BY_RECORDS, "records")
        for axes, cases, column in (by_factors, by_records):
            for number, (method, label) in enumerate(GROUPED_REGRESSION_METHODS.items()):
                parts = [
                    table.where(factors=k, records=records, mu=SHOWN, method=method)
                    for k, records in cases
                ]
                x = [part[column][0] for part in parts]
                means = [part["error"][0] for part in parts]
                errors = [part["se"][0] for part in parts]
                style.error_bars(axes, x, means, errors, number, label)
            axes.set(xscale="log" if column == "records" else "linear")
            position = 0 if column == "factors" else 1
            axes.set_xticks([case[position] for case in cases])
            style.logarithmic_errors(axes)
        panels[0].set(
            xlabel="binary factors K", ylabel="error of the coefficients", title="512 records"
        )
        panels[1].set(xlabel="records", title="four factors")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        runs = table["replicates"][0]
        title = f"Regression at μ = {float(SHOWN):g}: mean of {runs} runs ± 2 standard errors"
        figure.suptitle(title)
    return figure


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


def compute_products(settings: Settings = PAPER) -> Tidy:
    """Return the total variance of all ten tables for each way to measure them, under each
    promise.

    Ten tables from one budget: residuals measured once next to tables measured one by one, under
    two promises.

    Features of 2, 5, 7, 9 and 16 levels, the totals of the first two exact, all ten pairs at mu
    = 1. What the residuals save under the ball is a gain at the same promise; what exchange
    saves beyond it is another promise.

    >>> compute_products().where(promise="ball", joint=False)["total_variance"][:3]
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
        # Each of m tables gets mu²/m, so every variance grows m times.
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


def plot_products(table: Tidy) -> style.Figure:
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
