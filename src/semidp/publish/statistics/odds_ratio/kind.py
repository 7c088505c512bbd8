"""Odds-ratio tests, as the registry finds them."""

from typing import Any

from semidp.errors import InputError
from semidp.publish.statistics.fields import Chosen, Field, Shape
from semidp.publish.statistics.odds_ratio.measured_ratio import OddsRatioResult
from semidp.publish.statistics.odds_ratio.request import OddsRatioRequest
from semidp.publish.statistics.odds_ratio.umpu import Alternative
from semidp.publish.statistics.protocol.kinds import Kind

ALTERNATIVE = Field(
    "alternative",
    "What an odds ratio is tested against: two-sided (other than 1), greater or less.",
    Shape.text,
    "NAME",
    label="against",
    example="two-sided",
    unused="⟨alternative⟩ is for ⟨odds_ratio⟩",
)
ODDS_RATIO = Field(
    "odds_ratio",
    "A test of the odds ratio of two features with two levels each; further features are strata.",
    Shape.features,
    "ROWS,COLUMNS[,STRATA]",
    label="Odds ratio",
    example="gender,admit",
    several=True,
    beside=(ALTERNATIVE,),
)


def _build_requests(chosen: Chosen) -> list[OddsRatioRequest]:
    """Return a test for every pair of features that is named."""
    requests = []
    for features in chosen.sets(ODDS_RATIO):
        if len(features) < 2:
            raise InputError("an odds ratio has two features: ⟨odds_ratio gender,admit⟩")
        rows, columns, *strata = features
        alternative = chosen.text(ALTERNATIVE) or Alternative.TWO_SIDED
        requests.append(OddsRatioRequest(rows, columns, strata=strata, alternative=alternative))
    return requests


def _list_choices(request: OddsRatioRequest) -> list[tuple[dict[str, Any], OddsRatioRequest]]:
    """Return what would have been chosen to ask for a request."""
    chosen: dict[str, Any] = {ODDS_RATIO.name: (request.features,)}
    if request.alternative is not Alternative.TWO_SIDED:
        chosen[ALTERNATIVE.name] = str(request.alternative)
    return [(chosen, request.with_budget(None))]


KIND = Kind(
    place=40,
    key="odds_ratio",
    asked=(OddsRatioRequest,),
    printed={"grid_bits": OddsRatioResult.from_json},
    fields=(ODDS_RATIO,),
    ask=_build_requests,
    shown=_list_choices,
)
