"""What any release guarantees or reveals, ours or another tool's.

An audit is an empirical check of a claimed guarantee. Read `attack` first: it
attacks a mechanism on a pair of tables (`attacked_pairs`) with `scores`, and `attack_bounds` says
what the counts prove. `foreign` audits samples, functions and odds-ratio tests.

`privacy_functions` holds the privacy function of any tool; `opendp` reads the measurements of
OpenDP (the extra ``opendp``), `events` those of dp-accounting. `swapping` and
`cell_keys` measure what statistical offices do without noise, or with noise by keys, in the same
terms; `swap_laws` and `distinguishing` hold the probabilities. `disclosure` says what exact numbers
reveal by themselves.
"""

from semidp.assess import opendp
from semidp.assess.adjacent_datasets import is_adjacent, list_neighbors
from semidp.assess.attack import audit_mechanism
from semidp.assess.attack_bounds import noise_energy
from semidp.assess.attacked_pairs import choose_pair, claims_of_release, given_pairs, worst_pair
from semidp.assess.cell_keys import PerturbationTable, assess_cell_keys
from semidp.assess.disclosure.findings import Disclosure
from semidp.assess.disclosure.published_counts import ReadingRules
from semidp.assess.events import dp_sgd, event_guarantee, event_to_json
from semidp.assess.foreign import audit_function, audit_samples
from semidp.assess.pairs import Pair
from semidp.assess.privacy_functions import PrivacyFunction, assess
from semidp.assess.swap_laws import CellLaw, Stratum, Swap, SwapRule
from semidp.assess.swapping import (
    assess_swapping,
    attack_stratum,
    compute_cell_loss,
    compute_exact_loss,
)

__all__ = [
    "CellLaw",
    "Disclosure",
    "Pair",
    "PerturbationTable",
    "PrivacyFunction",
    "ReadingRules",
    "Stratum",
    "Swap",
    "SwapRule",
    "assess",
    "assess_cell_keys",
    "assess_swapping",
    "attack_stratum",
    "audit_function",
    "audit_mechanism",
    "audit_samples",
    "choose_pair",
    "claims_of_release",
    "compute_cell_loss",
    "compute_exact_loss",
    "dp_sgd",
    "event_guarantee",
    "event_to_json",
    "given_pairs",
    "is_adjacent",
    "list_neighbors",
    "noise_energy",
    "opendp",
    "worst_pair",
]
