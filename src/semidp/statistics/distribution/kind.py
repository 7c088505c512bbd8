"""Distributions, as the registry finds them."""

from typing import Any

from semidp.core.exact import exact, plain
from semidp.core.scope import Scope
from semidp.core.spaces.dataspace import Dataspace
from semidp.mechanisms.mechanism import Mechanism
from semidp.output.texts import error_text
from semidp.statistics.distribution.distribution_estimates import pointwise_half_widths
from semidp.statistics.distribution.distribution_space import recorded_distribution
from semidp.statistics.distribution.published import PublishedDistribution
from semidp.statistics.distribution.request import STEPS, DistributionRequest
from semidp.statistics.fields import Chosen, Field, Shape
from semidp.statistics.outcomes.intervals import LEVEL as USUAL_LEVEL
from semidp.statistics.outcomes.outcome_fields import BOUNDS, GRID, GROUP, LEVEL, group_values, groups_of
from semidp.statistics.outcomes.request import GroupedRequest, outcome_from
from semidp.statistics.protocol import Kind, Request

FROM_HERE_CLOSER = 6
"""The number of quantiles without intervals from which on a distribution was closer (docs/distributions.md)."""

LINE = Field(
    "line",
    "The shares of a distribution below these lines.",
    Shape.lists,
    "COLUMN=50,75",
    label="shares below the lines",
    example="score=50,75",
    unused="--line is for --distribution, and there is no distribution of {column!r}",
)
DISTRIBUTION = Field(
    "distribution",
    "A private column: its whole distribution by group, on a grid of 100 steps.",
    Shape.columns,
    "COLUMN",
    label="Distribution",
    beside=(GROUP, BOUNDS, GRID, LINE, LEVEL),
    private=True,
)


def _asked(chosen: Chosen) -> list[DistributionRequest]:
    """Return the distribution of every column that is named."""
    requests = []
    for column in chosen.columns(DISTRIBUTION):
        by = groups_of(chosen, f"the distribution of {column}")
        bounds = chosen.of_column(BOUNDS, column)
        outcome = outcome_from(column, bounds, chosen.of_column(GRID, column) or STEPS)
        texts = chosen.of_column(LINE, column) or ()
        # A line that is named twice is one.
        lines = sorted({exact(text, f"a line of {column!r}") for text in texts})
        level = chosen.text(LEVEL) or USUAL_LEVEL
        requests.append(DistributionRequest(outcome, by, lines=lines, level=level))
    return requests


def _shown(request: DistributionRequest) -> list[tuple[dict[str, Any], DistributionRequest]]:
    """Return what would have been chosen to ask for a request."""
    outcome = request.outcome
    column = outcome.column
    chosen: dict[str, Any] = {DISTRIBUTION.name: (column,), **group_values(request.by)}
    chosen[BOUNDS.name] = {column: (plain(outcome.lower), plain(outcome.upper))}
    if outcome.steps != STEPS:
        chosen[GRID.name] = {column: str(outcome.steps)}
    if request.lines:
        chosen[LINE.name] = {column: tuple(plain(line) for line in request.lines)}
    if request.level != USUAL_LEVEL:
        chosen[LEVEL.name] = plain(request.level)
    return [(chosen, request.with_budget(None))]


def _better(request: Request, mechanism: Mechanism) -> str | None:
    """Say where a distribution has narrower intervals than chosen quantiles, or is closer because they are many."""
    if not isinstance(request, GroupedRequest) or mechanism.space.is_zero or request.budget is None:
        return None
    asked, column = request.asked_quantiles, request.outcome.column
    reach, level = request.rank_reach(mechanism), request.quantile_level
    if not asked or reach is None or level is None:
        if len(asked) < FROM_HERE_CLOSER:
            return None
        many = f"{len(asked)} quantiles"
        return f"{many} are closer, and have intervals, as part of a distribution: --distribution {column}"
    public = mechanism.space.dataspace
    assert isinstance(public, Dataspace)
    # The same budget, groups and level, spent on a distribution.
    rival = DistributionRequest(request.outcome, request.by, budget=request.budget)
    space = rival.space(Scope(public, None, mechanism.space.adjacency))
    half = float(pointwise_half_widths(rival.calibrate(space), level).mean())
    if half >= reach:
        return None
    return (
        f"a distribution has an interval of about ±{error_text(half)} ranks for every quantile, where those chosen "
        f"reach ±{error_text(reach)}: --distribution {column}"
    )


KIND = Kind(
    place=35,
    key="distribution",
    asked=(DistributionRequest,),
    queries={"distribution": recorded_distribution},
    results={PublishedDistribution.key: PublishedDistribution.from_json},
    fields=(DISTRIBUTION,),
    ask=_asked,
    shown=_shown,
    better=_better,
)
