"""Published sums, means and proportions, computed again from their noisy sums."""

from dataclasses import replace

from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.publish.statistics.protocol.rechecks import ResultCheck
from semidp.publish.statistics.sums.published import PublishedGroups


def recheck_groups(
    result: PublishedGroups, check: ResultCheck, mechanism: Mechanism
) -> PublishedGroups:
    """Compare estimates, errors and intervals with what follows from the noisy sums; return them
    computed again.
    """
    again = result.republish(check, mechanism)
    assert isinstance(again, PublishedGroups)
    if not check.findings.current and not result.intervals:
        # The first version wrote no intervals.
        again = replace(again, intervals=(), differences=())
    result.compare_recomputed(check, again, mechanism)
    return again
