"""Statistics of those who answered, as the registry finds them."""

from semidp.statistics.answered.answered_space import recorded_answered
from semidp.statistics.answered.published import PublishedAnswers
from semidp.statistics.answered.request import AnsweredRequest
from semidp.statistics.protocol.kinds import Kind

KIND = Kind(
    place=15,
    key="answered",
    asked=(AnsweredRequest,),
    queries={"answered": recorded_answered},
    results={PublishedAnswers.key: PublishedAnswers.from_json},
)
