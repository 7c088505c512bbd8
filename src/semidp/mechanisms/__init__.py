"""Mechanisms: calibrated to a sensitivity space and a budget, each with its errors and the
guarantee it satisfies.

`mechanism` is the page to read first; `selection` picks by expected loss. Noise distributions live
in `noise`, the K-norm's geometry in `knorm`.
"""

from semidp.mechanisms.gaussian import (
    ContinuousGaussianMechanism,
    DiscreteGaussianMechanism,
    LatticeGaussianMechanism,
    RoundedGaussianMechanism,
)
from semidp.mechanisms.knorm.norm_ball import knorm_noise
from semidp.mechanisms.mechanism import (
    CLAIMS,
    ClaimKind,
    Measurement,
    Mechanism,
    NoNoise,
    naive_loss,
)
from semidp.mechanisms.placement import Objective
from semidp.mechanisms.pure import KNormMechanism, L2Mechanism, LaplaceMechanism
from semidp.mechanisms.residual_noise import ResidualMechanism
from semidp.mechanisms.selection import (
    AUTO,
    NAMES,
    available,
    calibrated,
    choose,
    mechanism_for,
    option_name,
    outcome_mechanism,
    residual_plan,
    table_mechanism,
)
from semidp.queries.patterns import Norms

__all__ = [
    "AUTO",
    "CLAIMS",
    "NAMES",
    "ClaimKind",
    "ContinuousGaussianMechanism",
    "DiscreteGaussianMechanism",
    "KNormMechanism",
    "L2Mechanism",
    "LaplaceMechanism",
    "LatticeGaussianMechanism",
    "Measurement",
    "Mechanism",
    "NoNoise",
    "Norms",
    "Objective",
    "ResidualMechanism",
    "RoundedGaussianMechanism",
    "available",
    "calibrated",
    "choose",
    "knorm_noise",
    "mechanism_for",
    "naive_loss",
    "option_name",
    "outcome_mechanism",
    "residual_plan",
    "table_mechanism",
]
