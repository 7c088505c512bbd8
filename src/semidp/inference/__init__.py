"""Inference: the most powerful private test of an odds ratio, and tests and intervals from a release at no cost.

`odds_ratio_test` (one table, or strata) spends a budget and `UmpuTest` answers questions about what it published;
`Release.test`, `Release.interval` and `Release.intervals` ask a release. The names that a user types are in `semidp`
itself; the values that they return and take are here.
"""

from semidp.inference.answers import Covers, IntervalEstimate, TableIntervals, sampled_rate
from semidp.inference.canonical import CanonicalNoise, Normal, Recursive, Tulap
from semidp.inference.hypergeometric import Strata
from semidp.inference.hypergeometric import TwoByTwo as TwoByTwo
from semidp.inference.independence import Independence, independence_test, random_tables, simulated_bound
from semidp.inference.noise_for_tradeoff import canonical_noise as canonical_noise
from semidp.inference.odds_ratio import OddsRatioResult as OddsRatioResult
from semidp.inference.odds_ratio import odds_ratio_test as odds_ratio_test
from semidp.inference.odds_ratio import planned_test
from semidp.inference.power_analysis import PowerCurves
from semidp.inference.power_analysis import power as power
from semidp.inference.power_analysis import power_curves as power_curves
from semidp.inference.power_analysis import sample_size as sample_size
from semidp.inference.umpu import Alternative as Alternative
from semidp.inference.umpu import Interval, TwoSidedTest
from semidp.inference.umpu import UmpuTest as UmpuTest

__all__ = [
    "CanonicalNoise",
    "Covers",
    "Independence",
    "Interval",
    "IntervalEstimate",
    "Normal",
    "PowerCurves",
    "Recursive",
    "Strata",
    "TableIntervals",
    "Tulap",
    "TwoSidedTest",
    "independence_test",
    "planned_test",
    "random_tables",
    "sampled_rate",
    "simulated_bound",
]
