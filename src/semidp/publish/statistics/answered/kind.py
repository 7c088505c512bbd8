"""Statistics of those who answered, as the registry finds them."""

from semidp.publish.statistics.answered.request import AnsweredRequest
from semidp.publish.statistics.outcomes.request import StatisticRequest
from semidp.publish.statistics.protocol.kinds import Kind
from semidp.publish.statistics.protocol.requests import Request


def of_answers(request: Request) -> AnsweredRequest | None:
    """Return a statistic of groups as one of those who answered; None for other requests."""
    if not isinstance(request, StatisticRequest) or isinstance(request, AnsweredRequest):
        return None
    return AnsweredRequest(
        request.statistic,
        request.outcome,
        request.by,
        request.budget,
        request.mechanism,
        request.name,
        request.confidence,
    )


KIND = Kind(
    place=15,
    key="answered",
    asked=(AnsweredRequest,),
    of_answers=of_answers,
)
