"""What a plan or a release claims: its mechanisms, calibrated again, with the tradeoff curves
claimed of them.

Everything here is a function of public values: the plan, the published totals, and what the release
says of itself.
"""

from dataclasses import dataclass, replace

from semidp.errors import SemidpError
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.mechanisms.selection import AUTO
from semidp.promise.tradeoff.function import Order, Tradeoff
from semidp.publish.pipeline import Prepared
from semidp.publish.release_value import ReleaseValue
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.protocol.results import Published


@dataclass(frozen=True, eq=False)
class Claim:
    """What is claimed of one table: its mechanism, a tradeoff curve, and where the record
    contradicts itself.

    Parameters
    ----------
    name
        The name of the table in the plan.
    features
        The features that it is over.
    mechanism
        The mechanism, calibrated from the plan and the published totals.
    tradeoff
        The tradeoff curve that is claimed for it.
    faults
        What the release says that its plan does not bear out, a sentence each.
    """

    name: str
    features: tuple[str, ...]
    mechanism: Mechanism
    tradeoff: Tradeoff
    faults: tuple[str, ...] = ()

    @property
    def is_fixed(self) -> bool:
        """Whether the published totals fix the table, so that there is nothing to attack."""
        return self.mechanism.space.is_zero


def claims_of_plan(prepared: Prepared) -> tuple[Claim, ...]:
    """Return the claims of a prepared plan, one for each request."""
    claims = []
    for request, mechanism in prepared.calibrated_requests:
        claims.append(Claim(request.name, request.features, mechanism, mechanism.tradeoff))
    return tuple(claims)


def claims_of_release(release: ReleaseValue) -> tuple[Claim, ...]:
    """Return what a release measured, calibrated again from its plan and totals, with the claims
    that it records.
    """
    release.refuse_combined("audits")
    claims = []
    for request, result in zip(release.plan.requests, release.results, strict=True):
        recorded = result.guarantee.tradeoff
        mechanism = _rebuild_mechanism(request, result, release)
        faults = [*result.faults(mechanism)]
        if recorded.compare(mechanism.tradeoff) not in (Order.EQUAL, Order.WEAKER):
            faults.append("it claims more privacy for this table than its plan gives")
        drawn = result.sampling_mechanism(mechanism) or mechanism
        claim = Claim(request.name, request.features, drawn, recorded, tuple(faults))
        claims.append(claim)
    guarantees = [result.guarantee for result in release.results]
    whole = guarantees[0].compose(*guarantees[1:]).tradeoff
    if release.guarantee.tradeoff.compare(whole) not in (Order.EQUAL, Order.WEAKER):
        fault = "it claims more privacy than its tables give together"
        faults_of_all = (*claims[0].faults, fault)
        claims[0] = replace(claims[0], faults=faults_of_all)
    return tuple(claims)


def _rebuild_mechanism(request: Request, result: Published, release: ReleaseValue) -> Mechanism:
    """Mechanism of the plan. Where the plan leaves the choice, it is the one that was chosen, if
    that is allowed.
    """
    if request.mechanism == AUTO:
        try:
            return result.recalibrate(request, release.scope)
        except SemidpError:
            pass  # another than the budget allows, which is a fault
    return request.calibrate(request.space(release.scope))
