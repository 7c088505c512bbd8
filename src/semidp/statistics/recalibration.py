"""The mechanism of a published result, calibrated anew from its request and from public values."""

from semidp.core.scope import Scope
from semidp.mechanisms.base import Mechanism, NoNoise
from semidp.mechanisms.residuals import ResidualMechanism
from semidp.mechanisms.selection import FOR_RELEASES, mechanism_for
from semidp.queries.products import ProductSpace
from semidp.statistics.protocol import Published, Request, budget_of
from semidp.statistics.quantiles.space import RankSpace
from semidp.statistics.tables.request import TablesRequest


def mechanism_again(request: Request, result: Published, scope: Scope) -> Mechanism:
    """Return the mechanism of a result by the name that it states, calibrated as the request's budget asks.

    What ``auto`` chooses may change from version to version; what was chosen, and what a regression measured, is in the
    result.
    """
    name, budget = result.noise.mechanism, budget_of(request)
    if isinstance(request, TablesRequest) and (name == ResidualMechanism.name or result.key == "partitioned"):
        return request.residual_mechanism(request.residual_space(scope))
    space = result.space(request, scope)
    if isinstance(space, (ProductSpace, RankSpace)):
        return request.calibrate(space)
    if space.is_zero:
        return NoNoise.calibrate(space, budget)
    kind = next((kind for kind in FOR_RELEASES if kind.name == name), None)
    return mechanism_for(space, budget, name) if kind is None else kind.calibrate(space, budget)
