"""What `semidp show` computes again: whether a release follows from its plan, its exact totals and
its noisy values.

`release_check` is the page to read first; `results_again` computes one result again. What follows
from its noisy values is known to each statistic, and `Findings` keeps what was found.
"""
