"""Odds-ratio tests, as the registry finds them."""

from typing import Any

from semidp.errors import InputError
from semidp.promise.exact import plain
from semidp.publish.statistics.odds_ratio.request import OddsRatioRequest
from semidp.publish.statistics.odds_ratio.umpu import Alternative
from semidp.publish.statistics.outcomes.confidence import LEVEL as USUAL_LEVEL
from semidp.publish.statistics.outcomes.outcome_fields import LEVEL
from semidp.publish.statistics.protocol.kinds import Kind
from semidp.publish.statistics.setting import Chosen, Panel, Setting, Shape

ALTERNATIVE = Setting(
    "alternative",
    "What an odds ratio of 1 is tested against: two-sided (default), greater or less.",
    Shape.text,
    "NAME",
    key="[[odds_ratio]] alternative",
    label="against",
    example="two-sided",
    needs=("odds_ratio",),
)
ODDS_RATIO = Setting(
    "odds_ratio",
    "Test whether two features with two levels each are associated; further features are strata.",
    Shape.features,
    "ROWS,COLUMNS[,STRATA]",
    Panel.publish,
    key="[[odds_ratio]]",
    label="Odds ratio",
    example="gender,admit",
    several=True,
    beside=(ALTERNATIVE, LEVEL),
)


def _build_requests(chosen: Chosen) -> list[OddsRatioRequest]:
    """Return a test for every pair of features that is named."""
    requests = []
    for features in chosen.sets(ODDS_RATIO):
        if len(features) < 2:
            raise InputError("an odds ratio has two features: ⟨odds_ratio gender,admit⟩")
        rows, columns, *strata = features
        alternative = chosen.text(ALTERNATIVE) or Alternative.TWO_SIDED
        level = chosen.text(LEVEL) or USUAL_LEVEL
        requests.append(OddsRatioRequest(rows, columns, None, strata, alternative, level))
    return requests


def _list_choices(request: OddsRatioRequest) -> list[tuple[dict[str, Any], OddsRatioRequest]]:
    """Return what would have been chosen to ask for a request."""
    chosen: dict[str, Any] = {ODDS_RATIO.name: (request.features,)}
    if request.alternative is not Alternative.TWO_SIDED:
        chosen[ALTERNATIVE.name] = str(request.alternative)
    if request.level != USUAL_LEVEL:
        chosen[LEVEL.name] = plain(request.level)
    return [(chosen, request.with_budget(None))]


KIND = Kind(
    place=40,
    key="odds_ratio",
    asked=(OddsRatioRequest,),
    settings=(ODDS_RATIO,),
    ask=_build_requests,
    shown=_list_choices,
)
