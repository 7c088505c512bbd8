"""An empirical check of a claimed guarantee: attack a mechanism on a pair of tables and see whether
the claim survives.

`attack` is the page to read first. `attacked_pairs` asks a mechanism for the worst pair that the
public totals allow, and `supplied_pairs` checks one that somebody gives. `scores` and `digits` are
what an attacker may look at, `attack_bounds` what the counts prove. `energy` compares the noise
with what is stated of it. `claims` reads what a plan or a release promises; `foreign` audits
samples, functions and odds-ratio tests.
"""

from semidp.audit.attack import (
    Audit,
    Draws,
    affordable_samples,
    audit_mechanism,
    one_by_one,
    with_less_noise,
)
from semidp.audit.attack_bounds import Bound, Point
from semidp.audit.attacked_pairs import pair_for, worst_pair
from semidp.audit.claims import Claim, claims_of_plan, claims_of_release
from semidp.audit.energy import Energy, noise_energy
from semidp.audit.foreign import audit_function, audit_samples, draws_of_test
from semidp.audit.supplied_pairs import given_pairs
from semidp.queries.worst_pairs import Pair

__all__ = [
    "Audit",
    "Bound",
    "Claim",
    "Draws",
    "Energy",
    "Pair",
    "Point",
    "affordable_samples",
    "audit_function",
    "audit_mechanism",
    "audit_samples",
    "claims_of_plan",
    "claims_of_release",
    "draws_of_test",
    "given_pairs",
    "noise_energy",
    "one_by_one",
    "pair_for",
    "with_less_noise",
    "worst_pair",
]
