"""Questions to a release, at no cost in privacy: tests, intervals, synthetic records.

`Release.test`, `Release.interval`, `Release.intervals` and `Release.synthesize` ask them; the values that they return
are named here.
"""

from semidp.questions.answers import Covers, IntervalEstimate, TableIntervals, sampled_rate
from semidp.questions.association import Association, ScoreTest, score_test
from semidp.questions.independence import Independence, independence_test, random_tables, simulated_bound

__all__ = [
    "Association",
    "Covers",
    "Independence",
    "IntervalEstimate",
    "ScoreTest",
    "TableIntervals",
    "independence_test",
    "random_tables",
    "sampled_rate",
    "score_test",
    "simulated_bound",
]
