"""What any release guarantees or gives away, ours or another tool's.

An audit is an empirical check of a claimed guarantee. `attack` is the page to read first: it
attacks a mechanism on a pair of tables (`attacked_pairs`) with `scores`, and `attack_bounds` says
what the counts prove. `foreign` audits samples, functions and odds-ratio tests.

`privacy_functions` holds the privacy function of any tool; `opendp` reads the measurements of
OpenDP (the extra ``opendp``). Events of dp-accounting are in `promise.accounting`. `swapping` and
`cell_keys` put what statistical offices do without noise, or with noise by keys, on the same ruler;
`swap_laws` and `distinguishing` hold the laws.
"""

from semidp.assess.attack import (
    Audit,
    Draws,
    affordable_samples,
    audit_mechanism,
    repeat_draws,
    with_less_noise,
)
from semidp.assess.attack_bounds import Bound, Energy, Point, noise_energy
from semidp.assess.attacked_pairs import (
    Claim,
    choose_pair,
    claims_of_plan,
    claims_of_release,
    given_pairs,
    worst_pair,
)
from semidp.assess.cell_keys import CellKeyAssessment, PerturbationTable, assess_cell_keys
from semidp.assess.foreign import audit_function, audit_samples, draws_of_test
from semidp.assess.privacy_functions import (
    Assessment,
    LossMeasure,
    Metric,
    PrivacyFunction,
    assess,
)
from semidp.assess.swap_laws import Stratum, Swap, SwapRule
from semidp.assess.swapping import StratumLoss, SwapAssessment, assess_swapping
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
