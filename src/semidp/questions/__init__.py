"""Questions to a release, at no cost in privacy: tests, intervals, synthetic records, one estimate from several.

`Release.test`, `Release.interval`, `Release.intervals` and `Release.synthesize` ask them; the values that they return
are named here.
"""

from semidp.questions.answers import Covers, IntervalEstimate, TableIntervals, sampled_rate
from semidp.questions.areas import AreaRow, area_intervals, read_area_rows
from semidp.questions.combination import Combination, combine
from semidp.questions.independence import Independence, independence_test, random_tables, simulated_bound

__all__ = [
    "AreaRow",
    "Combination",
    "Covers",
    "Independence",
    "IntervalEstimate",
    "TableIntervals",
    "area_intervals",
    "combine",
    "independence_test",
    "random_tables",
    "read_area_rows",
    "sampled_rate",
    "simulated_bound",
]
