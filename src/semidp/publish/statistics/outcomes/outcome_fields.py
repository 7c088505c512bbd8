"""What can be chosen of every statistic of a private outcome: its groups, its bounds, its
intervals.
"""

from typing import Any

from semidp.errors import InputError
from semidp.promise.exact import plain
from semidp.promise.schema.outcome import Outcome
from semidp.promise.spaces.dataspace import Margin
from semidp.publish.statistics.outcomes.confidence import LEVEL as USUAL_LEVEL
from semidp.publish.statistics.outcomes.confidence import Confidence
from semidp.publish.statistics.outcomes.request import OutcomeRequest, binary_outcome
from semidp.publish.statistics.setting import Chosen, Panel, Setting, Shape

_BY_GROUP = ("mean", "sum", "proportion", "median", "quantile", "distribution")
_REGRESSIONS = ("regress", "logistic")
_WITH_INTERVALS = ("mean", "sum", "proportion", *_REGRESSIONS)

GROUP = Setting(
    "group",
    "The groups of a mean, median or the like; their counts become exact.",
    Shape.features,
    "A[,B]",
    Panel.groups,
    key="[[group]] by",
    label="by groups, whose counts become exact",
    several=True,
    needs=_BY_GROUP,
)
BOUNDS = Setting(
    "bounds",
    "Clip a private column to these bounds. They are declared, never read from the data.",
    Shape.lists,
    "COLUMN=0,100",
    Panel.groups,
    key="[[group]] bounds",
    label="clipped to",
    example="income=0,100000",
    needs=(*_BY_GROUP, *_REGRESSIONS),
)
GRID = Setting(
    "grid",
    "How many steps lie between the bounds (default: fine steps, or steps of 1).",
    Shape.texts,
    "COLUMN=STEPS",
    key="[[group]] grid",
    label="in so many steps",
    example="income=1000",
    needs=(*_BY_GROUP, *_REGRESSIONS),
)
STEP = Setting(
    "step",
    "The unit of a private column, such as 1 for whole numbers.",
    Shape.texts,
    "COLUMN=1",
    Panel.groups,
    key="[[group]] step",
    label="in units of",
    example="days=1",
    needs=(*_BY_GROUP, *_REGRESSIONS),
)
LEVEL = Setting(
    "level",
    "The level of confidence intervals (default 0.95).",
    Shape.text,
    "NUMBER",
    key="[[group]] level",
    label="intervals at level",
    example="0.95",
    needs=(*_WITH_INTERVALS, "distribution", "odds_ratio"),
)
SAMPLING = Setting(
    "sampling",
    "Also publish intervals for the population that the records were sampled from.",
    Shape.tick,
    key="[[group]] sampling",
    label="also for the population that the records were drawn from",
    needs=(*_WITH_INTERVALS, "quantile_level"),
)
SIMULTANEOUS = Setting(
    "simultaneous",
    "Let the level hold for all intervals of a set together.",
    Shape.tick,
    key="[[group]] simultaneous",
    label="the level is that of all intervals together",
    needs=_WITH_INTERVALS,
)
DIFFERENCES = Setting(
    "differences",
    "Also publish intervals for the difference of every two groups.",
    Shape.tick,
    key="[[group]] differences",
    label="also differences of each two groups",
    needs=("mean", "sum", "proportion"),
)


def read_outcome(chosen: Chosen, column: str, asked: type[OutcomeRequest]) -> Outcome:
    """Return a column with the bounds and the grid that are declared for it, or what is asked of it
    has unless declared.
    """
    bounds, grid, step = (chosen.of_column(field, column) for field in (BOUNDS, GRID, STEP))
    return asked.declare_outcome(column, bounds, grid or None, step or None)


def read_binary_outcome(chosen: Chosen, column: str) -> Outcome:
    """Return a column of zeros and ones, which needs no bounds."""
    for field in (BOUNDS, GRID, STEP):
        chosen.of_column(field, column)  # bounds are of no use here, and do no harm
    return binary_outcome(column)


def read_groups(chosen: Chosen, what: str) -> tuple[Margin, ...]:
    """Return the groups by which something is published; refuse where none are named."""
    sets = chosen.sets(GROUP)
    if not sets:
        raise InputError(f"say by which groups to publish {what}", needs="group")
    return tuple(Margin(*names) for names in sets)


def read_confidence(chosen: Chosen, *, differences: bool) -> Confidence:
    """Return the intervals that are chosen; only groups have differences."""
    level = chosen.text(LEVEL)
    return Confidence(
        USUAL_LEVEL if level is None else level,
        chosen.is_ticked(SAMPLING),
        chosen.is_ticked(SIMULTANEOUS),
        differences and chosen.is_ticked(DIFFERENCES),
    )


# --- the other way: what would have been chosen ---------------------------------------------------


def outcome_values(request: OutcomeRequest) -> dict[str, Any]:
    """Return what is chosen of an outcome with bounds."""
    outcome = request.outcome
    values: dict[str, Any] = {
        BOUNDS.name: {outcome.column: (plain(outcome.lower), plain(outcome.upper))}
    }
    if outcome.steps != request.usual_steps(outcome.lower, outcome.upper):
        values[GRID.name] = {outcome.column: str(outcome.steps)}
    return values


def group_values(by: tuple[Margin, ...]) -> dict[str, Any]:
    """Return what is chosen of groups."""
    return {GROUP.name: tuple(margin.names for margin in by)}


def confidence_values(confidence: Confidence) -> dict[str, Any]:
    """Return what is chosen of intervals; nothing for the usual ones."""
    values: dict[str, Any] = {}
    if confidence.level != Confidence().level:
        values[LEVEL.name] = plain(confidence.level)
    for field in (SAMPLING, SIMULTANEOUS, DIFFERENCES):
        if getattr(confidence, field.name):
            values[field.name] = True
    return values
