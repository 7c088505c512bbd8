"""Logistic regression on public groups: the noisy sufficient statistic X'y, and maximum likelihood
after it.

The likelihood of a yes-or-no outcome on cells with exact counts depends on the data through X'y
alone, so the fit is post-processing and the privacy proof is that of X'y. Linear regression is in
`regression`.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.promise.exact import Number, parse_level
from semidp.promise.sensitivity.moments import Design
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.publish.statistics.outcomes.noise_law import LEVEL, Intervals
from semidp.publish.statistics.regression.linear import RegressionFit

Floats = NDArray[np.float64]

_STEPS = 200  # of Newton's method, each with step halving; ten are usual
# cells times cubed columns, up to which intervals are profiled (some 60 columns); beyond, normal
# ones
_MOST_WORK = 2e8
_OPEN = 20.0  # a coefficient beyond which an interval is open: odds of one in 500 million
_TRIES = 30  # between a value inside an interval and one outside, until an end is found
_STUCK = 1e8  # the damping of steps from which on nothing improves
_CLOSE = 1e-4  # an end is found where the distance is this share of the quantile away from it


@dataclass(frozen=True, eq=False)
class LogisticFit(RegressionFit):
    """Penalised maximum likelihood from exact cell counts and a noisy X'y.

    With n_c records in cell c and rows z_c, the log-likelihood is
    ``β'X'y - Σ_c n_c log(1 + exp z_c'β)``: concave, and a function of the data through X'y alone.
    The noise can push X'y out of what any data could give, the polytope of ``Z's`` with 0 <= s_c <=
    n_c, where no maximum exists. So X'y is first moved to the nearest point of the polytope, in the
    metric of the noise; then Jeffreys' prior is added, ``½ log det Z'WZ`` (Firth 1993), with which
    the maximum is finite even on the boundary (Kosmidis and Firth 2021). Neither depends on how
    factors are coded.

    Examples
    --------
    >>> import semidp as sd
    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> records = {
    ...     "arm": np.repeat(["control", "drug"], 800),
    ...     "cured": np.repeat([0, 1, 0, 1], [400, 400, 200, 600]),
    ... }
    >>> asked = sd.logistic("cured", on="arm")
    >>> release = sd.release(records, asked, mu=1, randomness=SeededRandomness(1))
    >>> fitted = release.regressions[0].analysis
    >>> fitted.names, fitted.coefficients.round(1).tolist()
    (('intercept', 'arm=drug'), [0.0, 1.1])
    """

    @cached_property
    def feasible(self) -> Floats:
        """The ones by cell, in real numbers from 0 to n_c, whose X'y is nearest to the noisy
        one.
        """
        from scipy.optimize import lsq_linear

        white = _whitening(self.moments.noise_covariance)
        design = white @ self._rows.T
        target = white @ self.moments.values
        nearest = lsq_linear(design, target, (0.0, self._counts), tol=1e-12)
        return np.asarray(np.clip(nearest.x, 0.0, self._counts))

    @cached_property
    def coefficients(self) -> Floats:
        """The maximiser: Newton's method for the penalised score, halving steps that do not
        improve.
        """
        moments = self._rows.T @ self.feasible
        beta = np.zeros(len(self.names))
        value = self._objective(beta, moments)
        for _ in range(_STEPS):
            score = moments - self._expected_moments(beta)
            step = np.linalg.solve(self._information(beta), score)
            # The step takes Z'WZ for the curvature and leaves out that of the penalty, so it may
            # overshoot.
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

        ``H = Z'WZ`` at the fit is also the sampling variance of X'y, with ``W = n p (1-p)``; where
        a person has up to m records, at most m times that. N is the covariance of the noise;
        without `sampling` there is the noise alone.
        """
        information = self._information(self.coefficients)
        inverse = np.linalg.inv(information)
        of_moments = self._cluster * information * sampling + self.moments.noise_covariance
        return np.asarray(inverse @ of_moments @ inverse)

    def standard_errors(self, *, sampling: bool = True) -> Floats:
        """Return the standard error of each coefficient; see `covariance`."""
        return np.sqrt(np.diag(self.covariance(sampling=sampling)))

    def intervals(
        self, level: Number = LEVEL, *, sampling: bool = False, simultaneous: bool = False
    ) -> Intervals:
        """Return an interval for each coefficient, from how far X'y lies from what other
        coefficients would give.

        With ``Q(β) = (X'y - m(β))' S(β)^-1 (X'y - m(β))`` the interval of β_j holds the values at
        which the least Q over the other coefficients exceeds the least of all by at most (h/s)², h
        the half-width and s the standard error of the first-order error ``H^-1 (noise + sampling)``
        in X'y: the quantile of χ² with one degree for normal noise, more for Laplace noise. The
        noise alone has ``S = N``, and m(β) is the X'y whose penalised fit is β; with sampling
        ``S = N + Z'WZ``, and m(β) is the mean of X'y. Each end is sought from the penalised fit
        outwards; one beyond ±20 is open, and only that one: the data may as well have no limit
        there. Designs with more than some 60 columns get ``β_j ± h``. How often they hold is
        simulated in docs/groups.md.

        Parameters
        ----------
        level
            The probability that an interval holds the coefficient.
        sampling
            Whether it is about the population that the records were drawn from; else about the fit
            to the records.
        simultaneous
            Whether all intervals hold at once with that probability.
        """
        inverse = np.linalg.inv(self._information(self.coefficients))
        spread = self._cluster * np.diag(inverse) if sampling else None
        intervals, half = self._intervals(inverse, parse_level(level), spread, simultaneous)
        errors = self.standard_errors(sampling=sampling)
        work = len(self._counts) * len(self.names) ** 3
        if work > _MOST_WORK or not half.any():
            return intervals
        least, nearest = self.nearest(None, 0.0, self.coefficients, sampling)
        profile = _Profile(self, sampling, least, nearest)
        lower, upper = [], []
        for position in range(len(self.names)):
            error = float(errors[position])
            # The squared distance at which the profile ends: that of the interval around the
            # estimate.
            reach = float(half[position] / errors[position]) ** 2
            low, high = profile.ends(position, reach, error)
            lower.append(low)
            upper.append(high)
        return replace(intervals, lower=np.array(lower), upper=np.array(upper))

    def nearest(
        self, position: int | None, value: float, start: Floats, sampling: bool
    ) -> tuple[float, Floats]:
        """Return the least Q over all coefficients, or over those other than one that is held, and
        where it is.

        By the method of Levenberg and Marquardt: steps of Gauss and Newton, damped where they do
        not improve.
        """
        not_held = [k for k in range(len(start)) if k != position]
        free = np.array(not_held, dtype=np.intp)
        beta = np.array(start)
        if position is not None:
            beta[position] = value
        distances, slopes = self._distances(beta, sampling)
        cost = float(distances @ distances)
        damping = 1e-4
        for _ in range(_STEPS):
            part = slopes[:, free]
            curvature = part.T @ part
            descent = part.T @ distances
            scale = np.diag(curvature) + 1e-12 * float(np.trace(curvature)) + 1e-300
            damped = curvature + np.diag(damping * scale)
            step = np.linalg.solve(damped, descent)
            tried = np.array(beta)
            # Where groups are separated the least Q may lie at infinity: stop well beyond what
            # counts as open.
            tried[free] = np.clip(beta[free] - step, -2 * _OPEN, 2 * _OPEN)
            new, new_slopes = self._distances(tried, sampling)
            gained = cost - float(new @ new)
            improved = gained >= 0
            if improved:
                beta = tried
                distances, slopes = new, new_slopes
                cost = cost - gained
            settled = improved and gained <= 1e-9 * (1 + cost)
            if damping > _STUCK or settled:
                break
            damping = max(damping / 10, 1e-12) if improved else damping * 10
        return cost, beta

    def _distances(self, beta: Floats, sampling: bool) -> tuple[Floats, Floats]:
        """Return ``r = A (X'y - m(β))`` with ``A S A' = 1``, of which Q is the squared length, and
        its derivatives.

        The noise alone has a constant A. With sampling A is the inverse of the Cholesky factor of
        S(β), whose change adds ``-Φ(A dS A') r``, Φ the lower triangle with half of the diagonal.
        """
        p = self._probabilities(beta)
        rows = self._rows
        weights = self._counts * p * (1 - p)
        if not sampling:
            return self._noise_distances(p, weights)
        information = rows.T @ (weights[:, None] * rows)
        white = _whitening(self.moments.noise_covariance + self._cluster * information)
        mean = rows.T @ (self._counts * p)
        distances = white @ (self.moments.values - mean)
        turned = rows @ white.T
        along = turned * distances
        below = np.cumsum(along, axis=1) - along / 2
        weight_slopes = self._cluster * weights * (1 - 2 * p)
        bent = weight_slopes[:, None] * rows
        of_metric = (turned * below).T @ bent
        return distances, -white @ information - of_metric

    def _noise_distances(self, p: Floats, weights: Floats) -> tuple[Floats, Floats]:
        """The distances and their derivatives for the noise alone, where m(β) has the leverages of
        Jeffreys' prior in it.
        """
        rows = self._rows
        basis = self._basis(weights)
        leverages = (basis**2).sum(axis=1)
        bent = (1 - 2 * p)[:, None] * rows
        leverage_slopes = leverages[:, None] * bent - (basis @ basis.T) ** 2 @ bent
        ones_weights = weights + leverages * p * (1 - p)
        ones_slopes = ones_weights[:, None] * rows - (0.5 - p)[:, None] * leverage_slopes
        slope = rows.T @ ones_slopes
        ones = self._counts * p - leverages * (0.5 - p)
        white = self._noise_whitening
        distances = white @ (self.moments.values - rows.T @ ones)
        return distances, -white @ slope

    def _basis(self, weights: Floats) -> Floats:
        """An orthonormal basis of the columns of ``W^½ Z``; its squared rows are the leverages."""
        return np.linalg.qr(np.sqrt(weights)[:, None] * self._rows)[0]

    @cached_property
    def _noise_whitening(self) -> Floats:
        return _whitening(self.moments.noise_covariance)

    @cached_property
    def _occupied_mask(self) -> NDArray[np.bool_]:
        return joint_counts(self.moments.design, self.moments.space.dataspace) > 0

    @cached_property
    def _counts(self) -> Floats:
        return joint_counts(self.moments.design, self.moments.space.dataspace)[self._occupied_mask]

    @cached_property
    def _rows(self) -> Floats:
        design = self.moments.design
        return design.rows()[self._occupied_mask].astype(np.float64) / design.multiplier

    def _probabilities(self, beta: Floats) -> Floats:
        from scipy.special import expit

        return np.asarray(expit(self._rows @ beta))

    def _expected_moments(self, beta: Floats) -> Floats:
        """The X'y whose penalised fit is β: ``Z'(n p - h (½ - p))`` with the leverages h."""
        p = self._probabilities(beta)
        ones = self._counts * p
        leverages = (self._basis(ones * (1 - p)) ** 2).sum(axis=1)
        return np.asarray(self._rows.T @ (ones - leverages * (0.5 - p)))

    def _objective(self, beta: Floats, moments: Floats) -> float:
        losses = np.logaddexp(0.0, self._rows @ beta)
        loss = float(self._counts @ losses)
        sign, log_det = np.linalg.slogdet(self._information(beta))
        penalty = log_det / 2 if sign > 0 else -math.inf
        return float(moments @ beta) - loss + penalty

    def _information(self, beta: Floats) -> Floats:
        p = self._probabilities(beta)
        weights = self._counts * p * (1 - p)
        return np.asarray(self._rows.T @ (self._rows * weights[:, None]))


@dataclass(frozen=True, eq=False)
class _Profile:
    """How far X'y lies from what a fit gives where one coefficient is held.

    Parameters
    ----------
    fit, sampling
        The fit, and whether sampling counts besides the noise.
    least, nearest
        The least Q of all, and the coefficients that have it; they may be far out where groups are
        separated.
    """

    fit: LogisticFit
    sampling: bool
    least: float
    nearest: Floats

    def ends(self, position: int, quantile: float, error: float) -> tuple[float, float]:
        """Return the first value on each side of the penalised fit at which Q exceeds the least by
        a quantile.
        """
        start = self.fit.coefficients
        distance, beta = self.fit.nearest(position, float(start[position]), start, self.sampling)
        if distance - self.least > quantile:  # the penalty moved the fit out of the interval
            beta = np.clip(self.nearest, -_OPEN, _OPEN)
        step = min(error, 1.0)
        lower = self._end(position, beta, quantile, -step)
        return lower, self._end(position, beta, quantile, step)

    def _end(self, position: int, beta: Floats, quantile: float, step: float) -> float:
        reach = math.sqrt(quantile)
        inside, low = float(beta[position]), 0.0
        while True:
            outside = inside + step
            if abs(outside) > _OPEN:
                return math.copysign(math.inf, step)
            distance, beta = self.fit.nearest(position, outside, beta, self.sampling)
            high = math.sqrt(max(distance - self.least, 0.0))
            if high > reach:
                break
            inside, low = outside, high
            step = 1.6 * step
        return self._between(position, beta, reach, (inside, low), (outside, high))

    def _between(
        self,
        position: int,
        beta: Floats,
        reach: float,
        inside: tuple[float, float],
        outside: tuple[float, float],
    ) -> float:
        """Point where the root of the distance is `reach`. It is nearly linear, so that a line
        through both sides aims well.
        """
        (near, low), (far, high) = inside, outside
        for turn in range(_TRIES):
            # now and then by halves, lest one side stay
            share = (reach - low) / (high - low) if turn % 3 < 2 else 0.5
            kept_apart = min(max(share, 0.02), 0.98)
            value = near + kept_apart * (far - near)
            distance, beta = self.fit.nearest(position, value, beta, self.sampling)
            reached = math.sqrt(max(distance - self.least, 0.0))
            if abs(reached - reach) <= _CLOSE * reach:
                return value
            if reached > reach:
                far, high = value, reached
            else:
                near, low = value, reached
        return far


def _whitening(covariance: Floats) -> Floats:
    """Return A with ``A C A' = 1`` for a covariance C, one that is nearly singular made a little
    larger.
    """
    size = float(np.trace(covariance)) / len(covariance)
    # Without noise X'y is what some data gave, so any metric leaves it where it is.
    identity = np.eye(len(covariance))
    if size == 0:
        return identity
    factor = np.linalg.cholesky(covariance + 1e-10 * size * identity)
    return np.linalg.inv(factor)


def joint_counts(design: Design, dataspace: Dataspace) -> Floats:
    """Return the published count of each combination of the design's features; refuse where it is
    not published.

    >>> from semidp import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.schema.schema import Table
    >>> table = Table(Schema([Feature("arm", "cd"), Feature("sex", "fm")]), [[5, 5], [5, 5]])
    >>> public = Dataspace.from_table(table, [Margin("arm"), Margin("sex")])
    >>> joint_counts(Design.from_schema(table.schema, ["arm", "sex"]), public)
    Traceback (most recent call last):
    semidp.errors.Refused: logistic regression needs exact counts of arm × sex, which are not
    published: publish them (exact=[('arm', 'sex')])
    """
    joint = Margin(*design.features)
    if not dataspace.publishes(joint):
        raise Refused(
            f"logistic regression needs exact counts of {joint}, which are not published: publish"
            " them",
            needs="margin",
            names=joint.names,
        )
    counts = dataspace.value(joint).counts if joint.names else np.array([dataspace.n])
    return counts.ravel().astype(np.float64)
