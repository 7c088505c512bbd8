"""From a plan to a release: what to publish (`plan`, `requests`), what is public (`scope`), and doing it (`pipeline`).

`pipeline` is the page to read first; `published` and `release` hold what comes out.
"""

from semidp.release.pipeline import Prepared, calibrate, prepare, run
from semidp.release.plan import Plan, Reading, adjacency_from
from semidp.release.published import (
    FitKind,
    Fitted,
    Noise,
    Published,
    PublishedGroups,
    PublishedRegression,
    PublishedTable,
    table_files,
)
from semidp.release.release import REPORT, Release, release_files
from semidp.release.requests import (
    GRID,
    GroupRequest,
    Model,
    RegressionRequest,
    Request,
    Statistic,
    TableRequest,
    outcome_from,
    proportion_of,
)
from semidp.release.scope import Scope

__all__ = [
    "GRID",
    "REPORT",
    "FitKind",
    "Fitted",
    "GroupRequest",
    "Model",
    "Noise",
    "Plan",
    "Prepared",
    "Published",
    "PublishedGroups",
    "PublishedRegression",
    "PublishedTable",
    "Reading",
    "RegressionRequest",
    "Release",
    "Request",
    "Scope",
    "Statistic",
    "TableRequest",
    "adjacency_from",
    "calibrate",
    "outcome_from",
    "prepare",
    "proportion_of",
    "release_files",
    "run",
    "table_files",
]
