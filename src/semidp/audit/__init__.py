"""An empirical check of a claimed guarantee: attack a mechanism on a pair of tables and see whether the claim survives.

`attack` is the page to read first; `pairs` finds the worst pair that the public totals allow, `scores` what an attacker
may look at, `evidence` what the counts prove. Pictures live in `plots`, calibration in `mechanisms`.
"""

from semidp.audit.attack import Audit, Draws, audit_mechanism, one_by_one
from semidp.audit.evidence import Bound, Point
from semidp.audit.pairs import Pair, worst_pair
from semidp.audit.subjects import Subject, affordable_samples, of_plan, of_release

__all__ = [
    "Audit",
    "Bound",
    "Draws",
    "Pair",
    "Point",
    "Subject",
    "affordable_samples",
    "audit_mechanism",
    "of_plan",
    "of_release",
    "one_by_one",
    "worst_pair",
]
