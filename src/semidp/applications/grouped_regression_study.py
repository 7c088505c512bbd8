"""Linear regression on public groups: an exact X'X and a noisy X'y, next to ordinary DP, where both
are noisy.

K binary factors coded ±1, every row divided by sqrt(K + 1) so that its length is 1; outcomes in
[-1, 1]. K = 1 … 4 with 512 records, and 128 … 1024 records with K = 4. The joint counts of the
factors are public, so a(t) = 2. What semidp measures is chosen from these counts; beside it X'y
itself, column by column in treatment coding.
"""

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
    Schema,
    Table,
    promise,
    publish,
)
from semidp.applications.naive import baseline_regression
from semidp.applications.study import PAPER, Losses, Settings, Tidy
from semidp.promise import SeededRandomness
from semidp.publish import style

BY_FACTORS = tuple((factors, 512) for factors in (1, 2, 3, 4))
BY_RECORDS = tuple((4, records) for records in (128, 256, 512, 1024))
CASES = tuple(dict.fromkeys((*BY_FACTORS, *BY_RECORDS)))
MUS = tuple(Fraction(numerator, 4) for numerator in (1, 2, 4, 8, 16))
SHOWN = Fraction(1)
METHODS = {
    "semi": "Semi-DP: exact X'X, two records",
    "columns": "the same, X'y by columns of treatment coding",
    "baseline": "baseline: noisy X'X, two records",
    "ordinary": "ordinary DP: noisy X'X, one record",
}
STEPS = 1000


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
        on_grid = (outcomes + 1) / 2 * STEPS
        self.steps = np.floor(on_grid + 0.5).astype(np.int64)
        self.outcomes = self.steps * 2 / STEPS - 1
        # Fitted to the outcomes on the grid, so that rounding them is nobody's error.
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
        adjacency = promise.outcome_adjacency(public)
        outcome = Outcome("y", Fraction(-1), Fraction(1), STEPS)
        about = (public, adjacency, outcome, design)
        if coding is publish.Coding.effects:
            mechanism = publish.regression_mechanism(*about, Budget.gdp(mu))
        else:
            moments = promise.moment_space(*about)
            mechanism = promise.outcome_mechanism(moments, Budget.gdp(mu))
        space: Any = mechanism.space
        values = publish.route_values(space, design, self._by_cell(self.steps))
        return mechanism, design, values

    def _by_cell(self, weights: NDArray[np.int64]) -> NDArray[np.int64]:
        factors = self.levels.shape[1]
        # The first factor varies slowest, as in the counts of a schema.
        place_values = 2 ** np.arange(factors)[::-1]
        cells = self.levels @ place_values
        return np.bincount(cells, weights, minlength=2**factors).astype(np.int64)


def compute(settings: Settings = PAPER) -> Tidy:
    """Return the error of the coefficients, ``‖β̂ - β‖`` with β fitted without noise, averaged over
    replicates.

    >>> compute(Settings(replicates=2)).columns
    ('factors', 'records', 'mu', 'method', 'error', 'se', 'replicates')
    """
    randomness = SeededRandomness(settings.seed)

    def run(factors: int, records: int, mu: Fraction) -> Iterator[Losses]:
        data = Simulated(factors, records, settings.seed)
        # The baselines see rows divided by this root, so that their coefficients are larger by it.
        scale = math.sqrt(factors + 1)
        budget = Budget.gdp(mu)
        semi = data.build_mechanism(mu, publish.Coding.effects)
        columns = data.build_mechanism(mu, publish.Coding.treatment)
        pair = semi[0].space.adjacency.a
        losses: dict[str, list[float]] = {method: [] for method in METHODS}
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
        for mu in MUS:
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


def plot(table: Tidy) -> style.Figure:
    """Draw the error of each method at μ = 1: against the number of factors, and against the number
    of records.
    """
    with style.drawing(9.2, 4.4, columns=2) as (figure, panels):
        by_factors = (panels[0], BY_FACTORS, "factors")
        by_records = (panels[1], BY_RECORDS, "records")
        for axes, cases, column in (by_factors, by_records):
            for number, (method, label) in enumerate(METHODS.items()):
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
