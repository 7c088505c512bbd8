"""One result of a release, computed again: the noise that it states, then everything that follows
from its noisy values.

What follows is known to its statistic, by `Published.recheck`; here is what holds of every result.
"""

from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.mechanisms.selection import NAMES
from semidp.publish.release_value import ReleaseValue
from semidp.publish.statistics.protocol.rechecks import ResultCheck
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.protocol.results import Published, noise_name
from semidp.publish.statistics.recheck_findings import CLOSE, Findings, compare_guarantees


def recheck_result(
    release: ReleaseValue,
    request: Request,
    result: Published,
    mechanism: Mechanism,
    findings: Findings,
) -> Published:
    """Compare a result with what follows from its request and its noisy values; return it as it is
    computed again.

    Parameters
    ----------
    release
        The release that it belongs to.
    request, result
        What was asked for, and what was published.
    mechanism
        The mechanism that its budget gives.
    findings
        Where it is noted what does not follow.
    """
    check = ResultCheck(
        findings,
        result.name,
        request,
        release.scope,
        mechanism,
        release.form,
    )
    _compare_noise(check, result, release.plan.claim is not None)
    said = compare_guarantees(result.guarantee.tradeoff, mechanism.tradeoff)
    if said is not None:
        check.wrong(f"{said} than its noise gives")
    if result.noise.mechanism != noise_name(mechanism):
        return result
    stated = result.stated_mechanism(check)
    return result if stated is None else result.recheck(check, stated)


def _compare_noise(check: ResultCheck, result: Published, exact_asked: bool) -> None:
    """Compare the law of the noise, its scale and its claim with what the plan and the budget
    give.
    """
    noise, mechanism, asked = result.noise, check.mechanism, check.request.mechanism
    if noise.mechanism != noise_name(mechanism):
        check.wrong(f"{noise.mechanism} noise, where its totals leave {noise_name(mechanism)}")
    # Some requests name the kind of statistic that answers them instead: a quantile a selection.
    served = [law.name for law in NAMES.get(asked, ())]
    # Where exact totals fix everything, no noise is drawn whatever was asked for.
    if served and not mechanism.space.is_zero and noise.mechanism not in served:
        check.wrong(f"{noise.mechanism} noise, and its plan asks for {asked}")
    # More noise than the budget needs protects more, and is no fault here.
    if mechanism.has_one_scale and not noise.scale >= mechanism.scale * (1 - CLOSE):
        check.wrong(f"noise of scale {noise.scale:.6g}, and its budget needs {mechanism.scale:.6g}")
    if noise.claim == "ideal" and exact_asked:
        check.wrong("an ideal claim, and its plan asks for exact ones")
    if noise.claim != mechanism.claim:
        check.wrong(
            f"an {noise.claim} claim, and {mechanism.name} noise makes an {mechanism.claim} one"
        )
