"""Semi-private inference: canonical noise, the most powerful test of an odds ratio, intervals, power.

`odds_ratio_test` is the way in; `UmpuTest` answers questions about numbers that are already public. Releases of whole
tables live in `release`, pictures in `plots`.
"""

from semidp.inference.canonical import CanonicalNoise, Normal, Recursive, Tulap
from semidp.inference.hypergeometric import Strata, TwoByTwo
from semidp.inference.noise_for_tradeoff import canonical_noise
from semidp.inference.odds_ratio import OddsRatioResult, odds_ratio_test, planned_test
from semidp.inference.power_analysis import PowerCurves, power, power_curves, sample_size
from semidp.inference.umpu import Alternative, Interval, TwoSidedTest, UmpuTest

__all__ = [
    "Alternative",
    "CanonicalNoise",
    "Interval",
    "Normal",
    "OddsRatioResult",
    "PowerCurves",
    "Recursive",
    "Strata",
    "Tulap",
    "TwoByTwo",
    "TwoSidedTest",
    "UmpuTest",
    "canonical_noise",
    "odds_ratio_test",
    "planned_test",
    "power",
    "power_curves",
    "sample_size",
]
