"""Published quantiles, computed again from the steps that were chosen."""

from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.publish.statistics.outcomes.published import GROUPS_OR_COUNTS, columns_of_groups
from semidp.publish.statistics.protocol.rechecks import ResultCheck
from semidp.publish.statistics.quantiles.published import PublishedQuantiles


def recheck_quantiles(
    result: PublishedQuantiles, check: ResultCheck, mechanism: Mechanism
) -> PublishedQuantiles:
    """Compare quantiles and their intervals with what follows from the choices; return them
    computed again.
    """
    again = result.republish(check, mechanism)
    assert isinstance(again, PublishedQuantiles)
    check.compare_fixed(result, again, mechanism)
    groups = columns_of_groups(again)

    def firm(column: str) -> str | None:
        return GROUPS_OR_COUNTS if column in groups else None

    check.compare_columns(result, again, firm, "quantiles that do not follow from its choices")
    return again
