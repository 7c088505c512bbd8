"""From a plan to a release: what to publish (`plan`), what the data say (`survey`), doing it (`run`), `values`."""

from semidp.release.plan import FitKind, Plan, Reading, TableRequest, adjacency_from, budget_from, file_names
from semidp.release.run import mechanism_for, read, run, together
from semidp.release.survey import Scope, Survey, survey
from semidp.release.values import Fitted, Noise, Published, Release

__all__ = [
    "FitKind",
    "Fitted",
    "Noise",
    "Plan",
    "Published",
    "Reading",
    "Release",
    "Scope",
    "Survey",
    "TableRequest",
    "adjacency_from",
    "budget_from",
    "file_names",
    "mechanism_for",
    "read",
    "run",
    "survey",
    "together",
]
