"""Regressions, as the registry finds them."""

from typing import Any

from semidp.errors import InputError
from semidp.promise.sensitivity.moments import Coding
from semidp.publish.selection import AUTO
from semidp.publish.statistics.outcomes.outcome_fields import (
    BOUNDS,
    GRID,
    LEVEL,
    SAMPLING,
    SIMULTANEOUS,
    STEP,
    confidence_values,
    outcome_values,
    read_binary_outcome,
    read_confidence,
    read_outcome,
)
from semidp.publish.statistics.protocol.kinds import Kind
from semidp.publish.statistics.regression.request import Model, RegressionRequest
from semidp.publish.statistics.setting import Chosen, Panel, Setting, Shape

ON = Setting(
    "on",
    "The factors of a regression; their joint counts become exact.",
    Shape.features,
    "A[,B]",
    Panel.groups,
    key="[[regression]] factors",
    label="on factors, whose counts become exact",
    needs=("regress", "logistic"),
)
_INTERVALS = (LEVEL, SAMPLING, SIMULTANEOUS)
_ASKING = {
    Model.linear: Setting(
        "regress",
        "The linear regression of a private column on the factors of ⟨on⟩.",
        Shape.columns,
        "COLUMN",
        Panel.publish,
        key="[[regression]]",
        label="Linear regression",
        beside=(ON, BOUNDS, GRID, STEP, *_INTERVALS),
        private=True,
    ),
    Model.logistic: Setting(
        "logistic",
        "The logistic regression of a private column of zeros and ones.",
        Shape.columns,
        "COLUMN",
        Panel.publish,
        key="[[regression]]",
        label="Logistic regression",
        beside=(ON, *_INTERVALS),
        private=True,
    ),
}


def _build_requests(chosen: Chosen) -> list[RegressionRequest]:
    """Return the regressions of every column that is named, on the same factors."""
    requests = []
    for model, field in _ASKING.items():
        for column in chosen.columns(field):
            sets = chosen.sets(ON)
            if not sets:
                raise InputError(f"say on which features to regress {column}", needs="factors")
            outcome = (
                read_binary_outcome(chosen, column)
                if model is Model.logistic
                else read_outcome(chosen, column, RegressionRequest)
            )
            confidence = read_confidence(chosen, differences=False)
            requests.append(RegressionRequest(outcome, sets[0], model=model, confidence=confidence))
    return requests


def _list_choices(request: RegressionRequest) -> list[tuple[dict[str, Any], RegressionRequest]]:
    """Return what would have been chosen to ask for a request; interactions, codings and mechanisms
    cannot be.
    """
    if request.mechanism != AUTO or request.interactions or request.coding is not Coding.treatment:
        return []
    column = {_ASKING[request.model].name: (request.outcome.column,)}
    bounds = {} if request.binary else outcome_values(request)
    chosen = {
        **column,
        ON.name: (request.factors,),
        **bounds,
        **confidence_values(request.confidence),
    }
    return [(chosen, request.with_budget(None))]


KIND = Kind(
    place=20,
    key="regression",
    asked=(RegressionRequest,),
    always_listed=("regressions",),
    settings=tuple(_ASKING.values()),
    ask=_build_requests,
    shown=_list_choices,
)
