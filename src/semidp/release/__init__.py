"""From a plan to a release: what to publish (`plan`, `requests`), what the data say (`survey`), `run`, `values`."""

from semidp.release.groups import PublishedGroups
from semidp.release.measured import Noise
from semidp.release.plan import Plan, Reading, adjacency_from, shared
from semidp.release.requests import (
    GRID,
    FitKind,
    GroupRequest,
    Statistic,
    TableRequest,
    budget_from,
    file_names,
    outcome_from,
    proportion_of,
)
from semidp.release.run import mechanism_for, read, run
from semidp.release.survey import Scope, Survey, survey
from semidp.release.values import Fitted, Published, Release

__all__ = [
    "GRID",
    "FitKind",
    "Fitted",
    "GroupRequest",
    "Noise",
    "Plan",
    "Published",
    "PublishedGroups",
    "Reading",
    "Release",
    "Scope",
    "Statistic",
    "Survey",
    "TableRequest",
    "adjacency_from",
    "budget_from",
    "file_names",
    "mechanism_for",
    "outcome_from",
    "proportion_of",
    "read",
    "run",
    "shared",
    "survey",
]
