"""From a plan to a release: what to publish (`plan`, `requests`), what is public (`scope`), and doing it (`prepare`).

`prepare` is the page to read first; `published` and `release` hold what comes out.
"""

from semidp.release.plan import Plan, Reading, adjacency_from
from semidp.release.prepare import Prepared, calibrate, prepare, run
from semidp.release.products import ProductRequest, ProductTable, PublishedProduct, all_of, tables_for
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
from semidp.release.release import Release
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
    "FitKind",
    "Fitted",
    "GroupRequest",
    "Model",
    "Noise",
    "Plan",
    "Prepared",
    "ProductRequest",
    "ProductTable",
    "Published",
    "PublishedGroups",
    "PublishedProduct",
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
    "all_of",
    "calibrate",
    "outcome_from",
    "prepare",
    "proportion_of",
    "run",
    "table_files",
    "tables_for",
]
