"""Logistic regression on public groups: the noisy sufficient statistic X'y, and maximum likelihood after it.

The likelihood of a yes-or-no outcome on cells with exact counts depends on the data through X'y alone, so the fit is
post-processing and the privacy proof is that of X'y. Linear regression is in `regression`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.accounting.ledger import Ledger
from semidp.engines import Outcome
from semidp.errors import Refused
from semidp.exact import Number, positive
from semidp.grouped.inputs import check_binary, open_groups, read_moments
from semidp.grouped.outcome_spread import charge
from semidp.grouped.regression import Moments, chosen, published
from semidp.guarantees import Guarantee
from semidp.mechanisms import outcome_mechanism
from semidp.noise import Randomness
from semidp.queries import Design, moment_space
from semidp.spaces import Adjacency, Dataspace, Margin
from semidp.tables import Feature
from semidp.tradeoff import Budget

Floats = NDArray[np.float64]

_STEPS = 200  # of Newton's method, each with step halving; ten are usual


@dataclass(frozen=True, eq=False)
class LogisticFit:
    """Maximum likelihood from exact cell counts and a noisy X'y, with a weak normal prior.

    With n_c records in cell c and rows z_c, the log-likelihood is ``β'X'y - Σ_c n_c log(1 + exp z_c'β)``: concave, and
    a function of the data through X'y alone. The noise can push X'y out of the range that any data could give, where no
    maximum exists; the prior, normal with standard deviation `prior_sd` on every coefficient, makes the fit exist
    always and hardly moves it otherwise.

    Examples
    --------
    >>> from semidp.noise import SeededRandomness
    >>> records = {"arm": np.repeat(["control", "drug"], 800), "cured": np.repeat([0, 1, 0, 1], [400, 400, 200, 600])}
    >>> fit = logistic_regression(records, "cured", Budget.gdp(1), factors=["arm"], randomness=SeededRandomness(1))
    >>> fit.names, fit.coefficients.round(1).tolist()
    (('intercept', 'arm=drug'), [0.0, 1.1])
    """

    moments: Moments
    prior_sd: float = 10.0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the coefficients."""
        return self.moments.design.names

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of what was measured."""
        return Guarantee(self.moments.space.dataspace, self.moments.space.adjacency, self.moments.mechanism.tradeoff)

    @property
    def private(self) -> bool:
        """Whether the randomness was secure."""
        return self.moments.measurement.private

    @cached_property
    def coefficients(self) -> Floats:
        """The maximiser: Newton's method, halving steps that do not improve."""
        beta = np.zeros(len(self.names))
        value = self._objective(beta)
        for _ in range(_STEPS):
            probabilities = self._probabilities(beta)
            gradient = self.moments.values - self._rows.T @ (self._counts * probabilities) - beta / self.prior_sd**2
            step = np.linalg.solve(self._curvature(beta), gradient)
            size = 1.0
            while self._objective(beta + size * step) < value and size > 1e-12:
                size /= 2
            beta = beta + size * step
            value = self._objective(beta)
            if float(np.abs(size * step).max()) < 1e-10:
                break
        return beta

    def covariance(self, *, sampling: bool = True) -> Floats:
        """Return the covariance of the coefficients, ``H^-1 (Z'WZ + τ² I) H^-1``, by the delta method.

        H is the curvature at the fit, ``Z'WZ`` the sampling variance of X'y with ``W = n p (1-p)``, and τ² the variance
        of the noise; without `sampling` the noise alone.
        """
        inverse = np.linalg.inv(self._curvature(self.coefficients))
        spread = self._information(self.coefficients) if sampling else 0.0
        return np.asarray(inverse @ (spread + self.moments.noise_variance * np.eye(len(self.names))) @ inverse)

    def standard_errors(self, *, sampling: bool = True) -> Floats:
        """Return the standard error of each coefficient; see `covariance`."""
        return np.sqrt(np.diag(self.covariance(sampling=sampling)))

    @cached_property
    def _counts(self) -> Floats:
        return joint_counts(self.moments.design, self.moments.space.dataspace)

    @cached_property
    def _rows(self) -> Floats:
        return self.moments.design.rows().astype(np.float64) / self.moments.design.multiplier

    def _probabilities(self, beta: Floats) -> Floats:
        from scipy.special import expit

        return np.asarray(expit(self._rows @ beta))

    def _objective(self, beta: Floats) -> float:
        loss = float(self._counts @ np.logaddexp(0.0, self._rows @ beta))
        return float(self.moments.values @ beta) - loss - float(beta @ beta) / (2 * self.prior_sd**2)

    def _information(self, beta: Floats) -> Floats:
        p = self._probabilities(beta)
        return np.asarray(self._rows.T @ (self._rows * (self._counts * p * (1 - p))[:, None]))

    def _curvature(self, beta: Floats) -> Floats:
        return self._information(beta) + np.eye(len(beta)) / self.prior_sd**2


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
    prior_sd: Number = 10,
    randomness: Randomness | None = None,
    ledger: Ledger | None = None,
) -> LogisticFit:
    """Fit a logistic regression of a private column of zeros and ones on features whose joint counts are published.

    The parameters are those of `linear_regression`; `prior_sd` is the standard deviation of the prior on every
    coefficient.
    """
    outcome = Outcome(column, 0, 1, steps=1)
    scale = float(positive(prior_sd, "prior_sd"))
    margins = published(factors, design, invariants)
    with open_groups(data, margins, features, adjacency) as groups:
        schema = groups.dataspace.schema
        assert schema is not None
        model = chosen(schema, factors, design)
        joint_counts(model, groups.dataspace)
        space = moment_space(groups.dataspace, groups.adjacency, outcome, model)
        model.gram(groups.dataspace)  # a collinear design is refused before anything is measured
        mechanism = outcome_mechanism(space, budget)
        check_binary(groups.source, column)
        values = read_moments(groups.source, space)
    charge(ledger, f"logistic regression of {column}", mechanism)
    return LogisticFit(Moments(mechanism, mechanism.measure(values, randomness)), scale)


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
