"""Distributions, as the registry finds them."""

from typing import Any

from semidp.promise.exact import exact, plain
from semidp.publish.statistics.distribution.quantile_choice import read_off
from semidp.publish.statistics.distribution.request import DistributionRequest
from semidp.publish.statistics.outcomes.confidence import LEVEL as USUAL_LEVEL
from semidp.publish.statistics.outcomes.outcome_fields import (
    BOUNDS,
    GRID,
    GROUP,
    LEVEL,
    STEP,
    group_values,
    outcome_values,
    read_groups,
    read_outcome,
)
from semidp.publish.statistics.protocol.kinds import Kind
from semidp.publish.statistics.setting import Chosen, Panel, Setting, Shape

LINE = Setting(
    "line",
    "Report the shares of a distribution below these lines.",
    Shape.lists,
    "COLUMN=50,75",
    Panel.groups,
    key="[[distribution]] lines",
    label="shares below the lines",
    example="score=50,75",
    needs=("distribution",),
)
DISTRIBUTION = Setting(
    "distribution",
    "The whole distribution of a private column in each group.",
    Shape.columns,
    "COLUMN",
    Panel.publish,
    key="[[distribution]]",
    label="Distribution",
    beside=(GROUP, BOUNDS, GRID, STEP, LINE, LEVEL),
    private=True,
)


def _build_requests(chosen: Chosen) -> list[DistributionRequest]:
    """Return the distribution of every column that is named."""
    requests = []
    for column in chosen.columns(DISTRIBUTION):
        by = read_groups(chosen, f"the distribution of {column}")
        outcome = read_outcome(chosen, column, DistributionRequest)
        texts = chosen.of_column(LINE, column) or ()
        # A line that is named twice is one.
        lines = sorted({exact(text, f"a line of {column!r}") for text in texts})
        level = chosen.text(LEVEL) or USUAL_LEVEL
        requests.append(DistributionRequest(outcome, by, lines=lines, level=level))
    return requests


def _list_choices(request: DistributionRequest) -> list[tuple[dict[str, Any], DistributionRequest]]:
    """Return what would have been chosen to ask for a request; those who answered cannot be."""
    column = request.outcome.column
    if request.answers is not None or request.answered is not None:
        return []
    chosen: dict[str, Any] = {DISTRIBUTION.name: (column,), **group_values(request.by)}
    chosen |= outcome_values(request)
    if request.lines:
        chosen[LINE.name] = {column: tuple(plain(line) for line in request.lines)}
    if request.level != USUAL_LEVEL:
        chosen[LEVEL.name] = plain(request.level)
    return [(chosen, request.with_budget(None))]


KIND = Kind(
    place=35,
    key="distribution",
    asked=(DistributionRequest,),
    settings=(DISTRIBUTION,),
    ask=_build_requests,
    shown=_list_choices,
    alternative=read_off,
)
