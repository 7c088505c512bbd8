"""Logistic regression on public groups: the noisy sufficient statistic X'y, and maximum likelihood after it.

The likelihood of a yes-or-no outcome on cells with exact counts depends on the data through X'y alone, so the fit is
post-processing and the privacy proof is that of X'y. Linear regression is in `regression`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.accounting.ledger import Ledger
from semidp.engines import Outcome
from semidp.errors import Refused
from semidp.exact import Number
from semidp.grouped.inputs import check_binary, open_groups, read_moments
from semidp.grouped.intervals import LEVEL, Intervals, level_of
from semidp.grouped.regression import Moments, RegressionFit, chosen, published, regression_mechanism
from semidp.noise import Randomness
from semidp.queries import Design
from semidp.spaces import Adjacency, Dataspace, Margin
from semidp.tables import Feature
from semidp.tradeoff import Budget

Floats = NDArray[np.float64]

_STEPS = 200  # of Newton's method, each with step halving; ten are usual
_MOST_PROFILED = 12  # coefficients, up to which intervals are those of the likelihood; beyond, normal ones
_OPEN = 20.0  # a coefficient beyond which an interval is open: odds of one in 500 million


@dataclass(frozen=True, eq=False)
class LogisticFit(RegressionFit):
    """Penalised maximum likelihood from exact cell counts and a noisy X'y.

    With n_c records in cell c and rows z_c, the log-likelihood is ``β'X'y - Σ_c n_c log(1 + exp z_c'β)``: concave, and
    a function of the data through X'y alone. The noise can push X'y out of what any data could give, the polytope of
    ``Z's`` with 0 <= s_c <= n_c, where no maximum exists. So X'y is first moved to the nearest point of the polytope,
    in the metric of the noise; then Jeffreys' prior is added, ``½ log det Z'WZ`` (Firth 1993), with which the maximum
    is finite even on the boundary (Kosmidis and Firth 2021). Neither depends on how factors are coded.

    Examples
    --------
    >>> from semidp.noise import SeededRandomness
    >>> records = {"arm": np.repeat(["control", "drug"], 800), "cured": np.repeat([0, 1, 0, 1], [400, 400, 200, 600])}
    >>> fit = logistic_regression(records, "cured", Budget.gdp(1), factors=["arm"], randomness=SeededRandomness(1))
    >>> fit.names, fit.coefficients.round(1).tolist()
    (('intercept', 'arm=drug'), [0.0, 1.1])
    """

    @cached_property
    def feasible(self) -> Floats:
        """The ones by cell, in real numbers from 0 to n_c, whose X'y is nearest to the noisy one."""
        from scipy.optimize import lsq_linear

        white = _whitening(self.moments.noise_covariance)
        found = lsq_linear(white @ self._rows.T, white @ self.moments.values, (0.0, self._counts), tol=1e-12)
        return np.asarray(np.clip(found.x, 0.0, self._counts))

    @cached_property
    def coefficients(self) -> Floats:
        """The maximiser: Newton's method for the penalised score, halving steps that do not improve."""
        moments = self._rows.T @ self.feasible
        beta = np.zeros(len(self.names))
        value = self._objective(beta, moments)
        for _ in range(_STEPS):
            step = np.linalg.solve(self._information(beta), moments - self._fitted(beta, penalised=True))
            size = 1.0
            while self._objective(beta + size * step, moments) < value and size > 1e-12:
                size /= 2
            beta = beta + size * step
            value = self._objective(beta, moments)
            if float(np.abs(size * step).max()) < 1e-10:
                break
        return beta

    def covariance(self, *, sampling: bool = True) -> Floats:
        """Return the covariance of the coefficients, ``H^-1 (Z'WZ + N) H^-1``, by the delta method.

        ``H = Z'WZ`` at the fit is also the sampling variance of X'y, with ``W = n p (1-p)``, and N the covariance of
        the noise; without `sampling` the noise alone.
        """
        information = self._information(self.coefficients)
        inverse = np.linalg.inv(information)
        return np.asarray(inverse @ (information * sampling + self.moments.noise_covariance) @ inverse)

    def standard_errors(self, *, sampling: bool = True) -> Floats:
        """Return the standard error of each coefficient; see `covariance`."""
        return np.sqrt(np.diag(self.covariance(sampling=sampling)))

    def intervals(self, level: Number = LEVEL, *, sampling: bool = False, simultaneous: bool = False) -> Intervals:
        """Return an interval for each coefficient, from how far X'y lies from what other coefficients would give.

        With ``Q(β) = (X'y - m(β))' S(β)^-1 (X'y - m(β))`` the interval of β_j holds the values at which the least Q
        over the other coefficients exceeds the least of all by at most (h/s)², h the half-width and s the standard
        error of the first-order error ``H^-1 (noise + sampling)`` in X'y: the quantile of χ² with one degree for normal
        noise, more for Laplace noise. The noise alone has ``S = N``, and m(β) is the X'y whose penalised fit is β; with
        sampling ``S = N + Z'WZ``, and m(β) is the mean of X'y. An end beyond ±20 is open: the data may as well have no
        limit there. Designs with more than 12 columns get ``β_j ± h``. How often they hold is simulated in
        docs/groups.md.

        Parameters
        ----------
        level
            The probability that an interval holds the coefficient.
        sampling
            Whether it is about the population that the records were drawn from; else about the fit to the records.
        simultaneous
            Whether all intervals hold at once with that probability.
        """
        inverse = np.linalg.inv(self._information(self.coefficients))
        spread = np.diag(inverse) if sampling else None
        found, half = self._intervals(inverse, level_of(level), spread, simultaneous)
        errors = self.standard_errors(sampling=sampling)
        if len(self.names) > _MOST_PROFILED or not errors.any():
            return found
        ends = [self._ends(j, float(half[j] / errors[j]) ** 2, sampling) for j in range(len(self.names))]
        return replace(found, lower=np.array([low for low, _ in ends]), upper=np.array([high for _, high in ends]))

    def _ends(self, position: int, quantile: float, sampling: bool) -> tuple[float, float]:
        """Return where the least distance over the other coefficients exceeds the least of all by a quantile."""
        from scipy.optimize import brentq

        least, start = self._nearest(None, 0.0, self.coefficients, sampling)
        middle = float(start[position])
        ends = []
        size = min(float(self.standard_errors(sampling=sampling)[position]), 1.0)
        for side in (-1.0, 1.0):
            beta, inside, step = start, middle, side * size
            while True:
                outside = inside + step
                if abs(outside) > _OPEN:
                    ends.append(side * math.inf)
                    break
                distance, beta = self._nearest(position, outside, beta, sampling)
                if distance - least > quantile:
                    near = beta

                    def excess(value: float, near: Floats = near) -> float:
                        return self._nearest(position, value, near, sampling)[0] - least - quantile

                    low = -quantile if inside == middle else excess(inside)
                    ends.append(outside if low > 0 else float(brentq(excess, inside, outside, xtol=1e-2 * abs(step))))
                    break
                inside, step = outside, 1.6 * step
        return ends[0], ends[1]

    def _nearest(self, position: int | None, value: float, start: Floats, sampling: bool) -> tuple[float, Floats]:
        """Return the least Q over all coefficients, or over those other than one that is held, and where it is."""
        from scipy.optimize import least_squares

        free = np.array([k for k in range(len(start)) if k != position], dtype=np.intp)

        def whole(part: Floats) -> Floats:
            beta = np.array(start)
            beta[free] = np.clip(part, -2 * _OPEN, 2 * _OPEN)
            if position is not None:
                beta[position] = value
            return beta

        def distances(part: Floats) -> Floats:
            beta = whole(part)
            spread = self.moments.noise_covariance + (self._information(beta) if sampling else 0.0)
            return _whitening(spread) @ (self.moments.values - self._fitted(beta, penalised=not sampling))

        if not len(free):
            return float(np.sum(distances(start[free]) ** 2)), whole(start[free])
        found = least_squares(distances, start[free], method="lm", xtol=1e-6, ftol=1e-6)
        return float(2 * found.cost), whole(found.x)

    @cached_property
    def _there(self) -> NDArray[np.bool_]:
        return joint_counts(self.moments.design, self.moments.space.dataspace) > 0

    @cached_property
    def _counts(self) -> Floats:
        return joint_counts(self.moments.design, self.moments.space.dataspace)[self._there]

    @cached_property
    def _rows(self) -> Floats:
        design = self.moments.design
        return design.rows()[self._there].astype(np.float64) / design.multiplier

    def _probabilities(self, beta: Floats) -> Floats:
        from scipy.special import expit

        return np.asarray(expit(self._rows @ beta))

    def _fitted(self, beta: Floats, *, penalised: bool) -> Floats:
        """The mean of X'y at β, or the X'y whose penalised fit is β: ``Z'(n p - h (½ - p))`` with the leverages h."""
        p = self._probabilities(beta)
        ones = self._counts * p
        if penalised:
            basis = np.linalg.qr(np.sqrt(ones * (1 - p))[:, None] * self._rows)[0]
            ones = ones - (basis**2).sum(axis=1) * (0.5 - p)
        return np.asarray(self._rows.T @ ones)

    def _objective(self, beta: Floats, moments: Floats) -> float:
        loss = float(self._counts @ np.logaddexp(0.0, self._rows @ beta))
        sign, log_det = np.linalg.slogdet(self._information(beta))
        return float(moments @ beta) - loss + (log_det / 2 if sign > 0 else -math.inf)

    def _information(self, beta: Floats) -> Floats:
        p = self._probabilities(beta)
        return np.asarray(self._rows.T @ (self._rows * (self._counts * p * (1 - p))[:, None]))


def _whitening(covariance: Floats) -> Floats:
    """Return A with ``A C A' = 1`` for a covariance C, one that is nearly singular made a little larger."""
    size = float(np.trace(covariance)) / len(covariance)
    if size == 0:
        return np.eye(len(covariance))
    return np.linalg.inv(np.linalg.cholesky(covariance + 1e-10 * size * np.eye(len(covariance))))


def logistic_regression(
    data: Any,
    column: str,
    budget: Budget,
    *,
    factors: Sequence[str] = (),
    design: Design | None = None,
    invariants: Sequence[Margin] | None = None,
    features: Sequence[Feature] = (),
    adjacency: Adjacency | None = None,
    randomness: Randomness | None = None,
    ledger: Ledger | None = None,
) -> LogisticFit:
    """Fit a logistic regression of a private column of zeros and ones on features whose joint counts are published.

    The parameters are those of `linear_regression`.
    """
    outcome = Outcome(column, 0, 1, steps=1)
    margins = published(factors, design, invariants)
    with open_groups(data, margins, features, adjacency, ledger, randomness) as groups:
        model = chosen(groups.schema, factors, design)
        joint_counts(model, groups.dataspace)
        mechanism = regression_mechanism(groups.dataspace, groups.adjacency, outcome, model, budget)
        check_binary(groups.source, column)
        values = read_moments(groups.source, mechanism.space, model)
        measurement, _ = groups.measure(f"logistic regression of {column}", mechanism, values)
    return LogisticFit(Moments(mechanism, measurement, model))


def joint_counts(design: Design, dataspace: Dataspace) -> Floats:
    """Return the published count of each combination of the design's features; refuse where it is not published.

    >>> from semidp.tables import Schema, Table
    >>> table = Table(Schema([Feature("arm", "cd"), Feature("sex", "fm")]), [[5, 5], [5, 5]])
    >>> public = Dataspace.of(table, [Margin("arm"), Margin("sex")])
    >>> joint_counts(Design.of(table.schema, ["arm", "sex"]), public)
    Traceback (most recent call last):
    semidp.errors.Refused: logistic regression needs exact counts of arm × sex, which are not published: publish them
    """
    joint = Margin(*design.features)
    if not dataspace.publishes(joint):
        raise Refused(
            f"logistic regression needs exact counts of {joint}, which are not published: publish them",
            needs="margin",
            names=joint.names,
        )
    counts = dataspace.value(joint).counts if joint.names else np.array([dataspace.n])
    return counts.ravel().astype(np.float64)
