"""Sums, means and proportions, as the registry finds them."""

from typing import Any

from semidp.publish.selection import AUTO
from semidp.publish.statistics.outcomes.outcome_fields import (
    BOUNDS,
    DIFFERENCES,
    GRID,
    GROUP,
    LEVEL,
    SAMPLING,
    SIMULTANEOUS,
    STEP,
    confidence_values,
    group_values,
    outcome_values,
    read_binary_outcome,
    read_confidence,
    read_groups,
    read_outcome,
)
from semidp.publish.statistics.outcomes.request import Statistic
from semidp.publish.statistics.protocol.kinds import Kind
from semidp.publish.statistics.setting import Chosen, Panel, Setting, Shape
from semidp.publish.statistics.sums.request import GroupRequest

_INTERVALS = (LEVEL, SAMPLING, SIMULTANEOUS, DIFFERENCES)


def _ask_for(statistic: Statistic, help: str, *bounds: Setting) -> Setting:
    """Return the setting that asks for a statistic of a column by groups."""
    return Setting(
        str(statistic),
        help,
        Shape.columns,
        "COLUMN",
        Panel.publish,
        key="[[group]]",
        label=str(statistic).capitalize(),
        beside=(GROUP, *bounds, *_INTERVALS),
        private=True,
    )


_ASKING = {
    Statistic.mean: _ask_for(
        Statistic.mean, "The mean of a private column in each group.", BOUNDS, GRID, STEP
    ),
    Statistic.sum: _ask_for(
        Statistic.sum, "The sum of a private column in each group.", BOUNDS, GRID, STEP
    ),
    Statistic.proportion: _ask_for(
        Statistic.proportion,
        "The share of ones in a private column of zeros and ones; ok=Y for the share of the value"
        " Y.",
    ),
}


def _build_requests(chosen: Chosen) -> list[GroupRequest]:
    """Return the statistics of every column that is named."""
    requests = []
    for statistic, field in _ASKING.items():
        for column in chosen.columns(field):
            by = read_groups(chosen, f"the {statistic} of {column}")
            binary = statistic is Statistic.proportion
            outcome = (
                read_binary_outcome(chosen, column)
                if binary
                else read_outcome(chosen, column, GroupRequest)
            )
            confidence = read_confidence(chosen, differences=True)
            requests.append(GroupRequest(statistic, outcome, by, confidence=confidence))
    return requests


def _list_choices(request: GroupRequest) -> list[tuple[dict[str, Any], GroupRequest]]:
    """Return what would have been chosen to ask for a request; neither a mechanism nor those who
    answered can be chosen.
    """
    if request.mechanism != AUTO or request.answered is not None:
        return []
    column = {str(request.statistic): (request.outcome.column,)}
    bounds = {} if request.binary else outcome_values(request)
    chosen = {
        **column,
        **group_values(request.by),
        **bounds,
        **confidence_values(request.confidence),
    }
    return [(chosen, request.with_budget(None))]


KIND = Kind(
    place=10,
    key="group",
    asked=(GroupRequest,),
    always_listed=("groups",),
    settings=tuple(_ASKING.values()),
    ask=_build_requests,
    shown=_list_choices,
)
