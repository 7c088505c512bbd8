"""Sums, means and proportions, as the registry finds them."""

from typing import Any

from semidp.promise.mechanisms.selection import AUTO
from semidp.publish.statistics.fields import Chosen, Field, Shape
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
from semidp.publish.statistics.sums.request import GroupRequest

_INTERVALS = (LEVEL, SAMPLING, SIMULTANEOUS, DIFFERENCES)


def _of_column(statistic: Statistic, help: str, label: str, *bounds: Field) -> Field:
    """Return the field that asks for a statistic of a column by groups."""
    beside = (GROUP, *bounds, *_INTERVALS)
    return Field(
        str(statistic), help, Shape.columns, "COLUMN", label=label, beside=beside, private=True
    )


_ASKING = {
    Statistic.mean: _of_column(
        Statistic.mean, "A private column: its mean by group.", "Mean", BOUNDS, GRID, STEP
    ),
    Statistic.sum: _of_column(
        Statistic.sum, "A private column: its sum by group.", "Sum", BOUNDS, GRID, STEP
    ),
    Statistic.proportion: _of_column(
        Statistic.proportion,
        "A private column of zeros and ones: its proportion of ones; ok=Y for that of a text"
        " value.",
        "Proportion",
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
    fields=tuple(_ASKING.values()),
    ask=_build_requests,
    shown=_list_choices,
)
