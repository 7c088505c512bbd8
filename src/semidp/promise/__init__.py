"""What is claimed, and the noise that keeps the claim.

`schema` and `spaces` say what is public and which datasets are compared, `sensitivity` how far
apart these lie, `tradeoff` and `guarantee` what is claimed about them. `noise` and `mechanisms`
keep the claim; `accounting` adds claims up.
"""

from semidp.promise.accounting.periods import Attendance
from semidp.promise.accounting.series import Series
from semidp.promise.mechanisms.additive import ContinuousGaussianMechanism
from semidp.promise.mechanisms.knorm import KNormMechanism
from semidp.promise.mechanisms.knorm_polar import knorm_noise
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.noise.canonical import Recursive, canonical_noise
from semidp.promise.noise.distributions import DiscreteGaussian, DiscreteLaplace, RoundedGaussian
from semidp.promise.noise.randomness import Randomness, SeededRandomness, generator
from semidp.promise.sensitivity.moments import moment_space
from semidp.promise.sensitivity.outcome_spaces import outcome_adjacency, sum_space
from semidp.promise.sensitivity.query_space import ExplicitSpace, QuerySpace
from semidp.promise.tradeoff.budget import approximate, gaussian, laplace, zcdp, zcdp_epsilon_paper
from semidp.promise.tradeoff.composition import compose, tradeoff_from_json
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.polygons import from_profile, piecewise

__all__ = [
    "Attendance",
    "ContinuousGaussianMechanism",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "ExplicitSpace",
    "KNormMechanism",
    "Mechanism",
    "QuerySpace",
    "Randomness",
    "Recursive",
    "RoundedGaussian",
    "SeededRandomness",
    "Series",
    "Tradeoff",
    "approximate",
    "canonical_noise",
    "compose",
    "from_profile",
    "gaussian",
    "generator",
    "knorm_noise",
    "laplace",
    "moment_space",
    "outcome_adjacency",
    "piecewise",
    "sum_space",
    "tradeoff_from_json",
    "zcdp",
    "zcdp_epsilon_paper",
]
