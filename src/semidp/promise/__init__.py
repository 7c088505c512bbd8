"""What is claimed, and the noise that keeps the claim.

`schema` and `spaces` say what is public and which datasets are compared, `sensitivity` how far they
lie apart, `tradeoff` and `guarantee` what is claimed of them. `noise` and `mechanisms` keep it;
`accounting` adds it up.
"""

from semidp.promise.accounting.account import Account, Charge, fits
from semidp.promise.accounting.conversions import (
    approximate_group,
    gdp_delta,
    gdp_epsilon,
    gdp_group,
    gdp_to_zcdp,
    pure_to_gdp,
    pure_to_zcdp,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_epsilon_paper,
    zcdp_group,
)
from semidp.promise.accounting.events import (
    dp_sgd,
    event_from_json,
    event_guarantee,
    event_to_json,
    event_tradeoff,
    functional_tradeoff,
)
from semidp.promise.accounting.renyi import Renyi
from semidp.promise.mechanisms.gaussian import (
    ContinuousGaussianMechanism,
    DiscreteGaussianMechanism,
    LatticeGaussianMechanism,
    RoundedGaussianMechanism,
)
from semidp.promise.mechanisms.knorm.norm_ball import knorm_noise
from semidp.promise.mechanisms.mechanism import (
    CLAIMS,
    ClaimKind,
    Measurement,
    Mechanism,
    NoNoise,
    naive_loss,
)
from semidp.promise.mechanisms.placement import Objective
from semidp.promise.mechanisms.pure import KNormMechanism, L2Mechanism, LaplaceMechanism
from semidp.promise.mechanisms.residual_noise import ResidualMechanism
from semidp.promise.mechanisms.selection import (
    AUTO,
    NAMES,
    available,
    calibrate_mechanism,
    choose,
    option_name,
    outcome_mechanism,
    residual_plan,
    select_mechanism,
    table_mechanism,
)
from semidp.promise.noise.canonical import CanonicalNoise, Normal, Recursive, Tulap
from semidp.promise.noise.choice import ExponentialChoice, FlippedChoice
from semidp.promise.noise.distributions import DiscreteGaussian, DiscreteLaplace, RoundedGaussian
from semidp.promise.noise.lattice import LatticeGaussian, OneSidedLatticeGaussian
from semidp.promise.noise.randomness import (
    Randomness,
    SeededRandomness,
    SystemRandomness,
    generator,
    uniforms,
)
from semidp.promise.sensitivity.patterns import Norms
from semidp.promise.tradeoff.curves import tradeoff_from_json

__all__ = [
    "AUTO",
    "CLAIMS",
    "NAMES",
    "Account",
    "CanonicalNoise",
    "Charge",
    "ClaimKind",
    "ContinuousGaussianMechanism",
    "DiscreteGaussian",
    "DiscreteGaussianMechanism",
    "DiscreteLaplace",
    "ExponentialChoice",
    "FlippedChoice",
    "KNormMechanism",
    "L2Mechanism",
    "LaplaceMechanism",
    "LatticeGaussian",
    "LatticeGaussianMechanism",
    "Measurement",
    "Mechanism",
    "NoNoise",
    "Normal",
    "Norms",
    "Objective",
    "OneSidedLatticeGaussian",
    "Randomness",
    "Recursive",
    "Renyi",
    "ResidualMechanism",
    "RoundedGaussian",
    "RoundedGaussianMechanism",
    "SeededRandomness",
    "SystemRandomness",
    "Tulap",
    "approximate_group",
    "available",
    "calibrate_mechanism",
    "choose",
    "dp_sgd",
    "event_from_json",
    "event_guarantee",
    "event_to_json",
    "event_tradeoff",
    "fits",
    "functional_tradeoff",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_group",
    "gdp_to_zcdp",
    "generator",
    "knorm_noise",
    "naive_loss",
    "option_name",
    "outcome_mechanism",
    "pure_to_gdp",
    "pure_to_zcdp",
    "residual_plan",
    "select_mechanism",
    "table_mechanism",
    "tradeoff_from_json",
    "uniforms",
    "zcdp_delta",
    "zcdp_epsilon",
    "zcdp_epsilon_paper",
    "zcdp_group",
]
