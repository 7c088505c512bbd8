"""What any release guarantees or gives away, ours or another tool's.

`audit` attacks a mechanism or a release; `bridges` states what other tools, swapping and cell keys
guarantee once some statistics are exact.
"""

from semidp.assess.audit.attack import (
    Audit,
    Draws,
    affordable_samples,
    audit_mechanism,
    repeat_draws,
    with_less_noise,
)
from semidp.assess.audit.attack_bounds import Bound, Point
from semidp.assess.audit.attacked_pairs import choose_pair, worst_pair
from semidp.assess.audit.claims import Claim, claims_of_plan, claims_of_release
from semidp.assess.audit.energy import Energy, noise_energy
from semidp.assess.audit.foreign import audit_function, audit_samples, draws_of_test
from semidp.assess.audit.supplied_pairs import given_pairs
from semidp.assess.bridges.cell_keys import CellKeyAssessment, assess_cell_keys
from semidp.assess.bridges.perturbation_tables import PerturbationTable
from semidp.assess.bridges.privacy_functions import (
    Assessment,
    LossMeasure,
    Metric,
    PrivacyFunction,
    assess,
)
from semidp.assess.bridges.swap_laws import Stratum, Swap, SwapRule
from semidp.assess.bridges.swapping import StratumLoss, SwapAssessment, assess_swapping
from semidp.promise.sensitivity.worst_pairs import Pair

__all__ = [
    "Assessment",
    "Audit",
    "Bound",
    "CellKeyAssessment",
    "Claim",
    "Draws",
    "Energy",
    "LossMeasure",
    "Metric",
    "Pair",
    "PerturbationTable",
    "Point",
    "PrivacyFunction",
    "Stratum",
    "StratumLoss",
    "Swap",
    "SwapAssessment",
    "SwapRule",
    "affordable_samples",
    "assess",
    "assess_cell_keys",
    "assess_swapping",
    "audit_function",
    "audit_mechanism",
    "audit_samples",
    "choose_pair",
    "claims_of_plan",
    "claims_of_release",
    "draws_of_test",
    "given_pairs",
    "noise_energy",
    "repeat_draws",
    "with_less_noise",
    "worst_pair",
]
