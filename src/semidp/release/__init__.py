"""From a plan to a release: what to publish (`plan`, `requests`), what is public (`scope`), and doing it (`pipeline`).

`pipeline` is the page to read first; `published` and `release` hold what comes out.
"""

from semidp.release.by_partition import run_partitioned
from semidp.release.cells import Form, form_named
from semidp.release.outcome_requests import (
    GroupRequest,
    Model,
    QuantileRequest,
    RegressionRequest,
    Statistic,
    outcome_from,
    proportion_of,
)
from semidp.release.partitions import Part, Partition, PartitionedTables
from semidp.release.pipeline import Prepared, calibrate, implied_guarantee, prepare, run
from semidp.release.plan import Plan, Reading, adjacency_from, declared
from semidp.release.products import ProductRequest, ProductTable, PublishedProduct, all_of, tables_for
from semidp.release.published import FitKind, Published, PublishedTable
from semidp.release.published_outcomes import PublishedGroups, PublishedQuantiles, PublishedRegression
from semidp.release.release import REPORT, Release, release_files
from semidp.release.requests import Request, TableRequest, mechanism_again
from semidp.release.scope import Scope

__all__ = [
    "REPORT",
    "FitKind",
    "Form",
    "GroupRequest",
    "Model",
    "Part",
    "Partition",
    "PartitionedTables",
    "Plan",
    "Prepared",
    "ProductRequest",
    "ProductTable",
    "Published",
    "PublishedGroups",
    "PublishedProduct",
    "PublishedQuantiles",
    "PublishedRegression",
    "PublishedTable",
    "QuantileRequest",
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
    "declared",
    "form_named",
    "implied_guarantee",
    "mechanism_again",
    "outcome_from",
    "prepare",
    "proportion_of",
    "release_files",
    "run",
    "run_partitioned",
    "tables_for",
]
