"""A published regression, computed again from what was measured for it."""

from dataclasses import replace

from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.publish.statistics.protocol.rechecks import ResultCheck
from semidp.publish.statistics.regression.published import PublishedRegression

_LOOSE = 1e-4  # relative: what an iteration ends with on another machine


def recheck_regression(
    result: PublishedRegression, check: ResultCheck, mechanism: Mechanism
) -> PublishedRegression:
    """Compare coefficients, errors and intervals with what follows from the noisy values; return it
    computed again.
    """
    again = result.republish(check, mechanism)
    assert isinstance(again, PublishedRegression)
    if result.query is None:
        # Earlier versions measured X'y itself, and did not say so.
        if check.findings.current:
            check.wrong("nothing of what was measured for it")
            return result
        if again.request.binary:
            # They fitted a binary outcome otherwise.
            check.findings.earlier(f"{result.name}.csv")
            return result
        again = replace(again, query=None, intervals=())
    check.compare_fixed(result, again, mechanism)

    def firm(column: str) -> str | None:
        if column in ("coefficient", "term", "standard_error"):
            return "coefficients or standard errors that do not follow from its noisy values"
        return None

    check.compare_columns(
        result, again, firm, "intervals that do not follow from its noisy values", _LOOSE
    )
    return again
