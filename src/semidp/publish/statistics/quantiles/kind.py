"""Quantiles, as the registry finds them."""

from typing import Any

from attrs import evolve

from semidp.promise.exact import exact, plain
from semidp.publish.statistics.outcomes.outcome_fields import (
    BOUNDS,
    GRID,
    GROUP,
    SAMPLING,
    STEP,
    group_values,
    outcome_values,
    read_groups,
    read_outcome,
)
from semidp.publish.statistics.protocol.kinds import Kind
from semidp.publish.statistics.quantiles.published import MEDIAN as HALF
from semidp.publish.statistics.quantiles.request import QuantileMechanism, QuantileRequest
from semidp.publish.statistics.setting import Chosen, Panel, Setting, Shape

_QUANTILES = ("median", "quantile")
LEVEL = Setting(
    "quantile_level",
    "Also publish an interval for each quantile at this level, from the same budget.",
    Shape.text,
    "NUMBER",
    key="[[quantile]] level",
    label="intervals at level",
    example="none",
    needs=_QUANTILES,
)
MECHANISM = Setting(
    "quantile_mechanism",
    "How quantiles are found: selection, distribution, or auto (default) for the better one.",
    Shape.text,
    "NAME",
    key="[[quantile]] mechanism",
    label="found by",
    example="auto",
    needs=_QUANTILES,
)
_BESIDE = (GROUP, BOUNDS, GRID, STEP, LEVEL, MECHANISM, SAMPLING)
MEDIAN = Setting(
    "median",
    "The median of a private column in each group.",
    Shape.columns,
    "COLUMN",
    Panel.publish,
    key="[[quantile]]",
    label="Median",
    beside=_BESIDE,
    private=True,
)
QUANTILE = Setting(
    "quantile",
    "These quantiles of a private column in each group.",
    Shape.lists,
    "COLUMN=0.1,0.9",
    Panel.publish,
    key="[[quantile]]",
    label="Quantiles",
    example="income=0.1,0.9",
    beside=_BESIDE,
    private=True,
)


def _build_requests(chosen: Chosen) -> list[QuantileRequest]:
    """Return the quantiles of every column that is named; a column has one request for all of its
    quantiles.
    """
    probabilities: dict[str, set[str]] = {
        column: {plain(HALF)} for column in chosen.columns(MEDIAN)
    }
    for column, several in chosen.lists(QUANTILE).items():
        probabilities.setdefault(column, set()).update(several)
    requests = []
    for column, together in probabilities.items():
        by = read_groups(chosen, f"the quantiles of {column}")
        level = chosen.text(LEVEL)
        # Only an interval can be about a population.
        sampling = level is not None and chosen.is_ticked(SAMPLING)
        ordered = sorted({exact(text, f"a quantile of {column!r}") for text in together})
        mechanism = chosen.text(MECHANISM) or QuantileMechanism.auto
        request = QuantileRequest(
            read_outcome(chosen, column, QuantileRequest),
            by,
            ordered,
            level=level,
            sampling=sampling,
        )
        requests.append(evolve(request, mechanism=mechanism))
    return requests


def _list_choices(request: QuantileRequest) -> list[tuple[dict[str, Any], QuantileRequest]]:
    """Return what would have been chosen to ask for a request; those who answered cannot be."""
    if request.answered is not None:
        return []
    column = request.outcome.column
    chosen: dict[str, Any] = {**group_values(request.by), **outcome_values(request)}
    if request.probabilities == (HALF,):
        chosen[MEDIAN.name] = (column,)
    else:
        chosen[QUANTILE.name] = {column: tuple(plain(part) for part in request.probabilities)}
    if request.level is not None:
        chosen[LEVEL.name] = plain(request.level)
    if request.sampling:
        chosen[SAMPLING.name] = True
    if request.mechanism is not QuantileMechanism.auto:
        chosen[MECHANISM.name] = str(request.mechanism)
    return [(chosen, request.with_budget(None))]


KIND = Kind(
    place=30,
    key="quantile",
    asked=(QuantileRequest,),
    settings=(MEDIAN, QUANTILE),
    ask=_build_requests,
    shown=_list_choices,
)
