"""Published sums, means and proportions, computed again from their noisy sums."""

from dataclasses import replace

from semidp.mechanisms.mechanism import Mechanism
from semidp.statistics.outcomes.published import GROUPS_OR_COUNTS, columns_of_groups
from semidp.statistics.protocol import ResultCheck
from semidp.statistics.sums.published import PublishedGroups

_ESTIMATES = ("mean", "sum", "proportion", "standard_error")


def recheck_groups(
    result: PublishedGroups, check: ResultCheck, mechanism: Mechanism
) -> PublishedGroups:
    """Compare estimates, errors and intervals with what follows from the noisy sums; return them
    computed again.
    """
    again = result.published_again(check, mechanism)
    assert isinstance(again, PublishedGroups)
    if not check.findings.current and not result.intervals:
        # The first version wrote no intervals.
        again = replace(again, intervals=(), differences=())
    check.compare_fixed(result, again, mechanism)
    groups = columns_of_groups(again)

    # Estimates follow from the noisy sums in every version. How intervals are computed may change,
    # so those of an earlier version are noted and not called wrong.
    def firm(column: str) -> str | None:
        if column in groups:
            return GROUPS_OR_COUNTS
        if column in _ESTIMATES:
            return "estimates or standard errors that do not follow from its noisy sums"
        return None

    check.compare_columns(result, again, firm, "intervals that do not follow from its noisy sums")
    return again
