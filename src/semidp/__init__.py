"""Differential privacy with invariants: publish some statistics exactly and the rest with noise.

`run` carries out a `Plan` and returns a `Release` with its `Guarantee`; docs/how_it_works.md says
what flows where. More is in the floors `promise`, `publish`, `inference` and `assess`;
`applications` has the paper's figures.
"""

import semidp._startup  # noqa: F401 - before everything else that is imported
from semidp import (  # public subpackages
    assess,  # noqa: F401
    grouped,  # noqa: F401
    inference,  # noqa: F401
    promise,  # noqa: F401
    publish,  # noqa: F401
)
from semidp._version import __version__
from semidp.errors import (
    AdjacencyUnknown,
    BudgetExceeded,
    DataError,
    InputError,
    MissingExtra,
    Refused,
    SchemaError,
    SemidpError,
)
from semidp.front import (
    combine,
    distribution,
    logistic,
    mean,
    median,
    proportion,
    quantile,
    regression,
    release,
    run,
    table,
    total,
    what_holds,
)
from semidp.inference.records.synthetic import combine_estimates
from semidp.present.release import Release
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.guarantee import Guarantee
from semidp.promise.noise.noise_for_tradeoff import canonical_noise
from semidp.promise.schema.counts import Table
from semidp.promise.schema.features import Feature, Nest
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema, StructuralZero
from semidp.promise.scope import Scope
from semidp.promise.sensitivity.query_space import ExplicitSpace, QuerySpace
from semidp.promise.sensitivity.table_spaces import TableSpace, sensitivity_space
from semidp.promise.spaces.adjacency import Adjacency, Ball, Exchange, SemiAdjacency, semi_adjacency
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.witness import Witness
from semidp.promise.tradeoff.budget import Budget
from semidp.promise.tradeoff.composition import compose
from semidp.promise.tradeoff.curves import approximate, gaussian, laplace, zcdp
from semidp.promise.tradeoff.function import Order, Tradeoff
from semidp.promise.tradeoff.piecewise_linear import from_function, from_profile, piecewise
from semidp.publish.fitting.tables import Fit, fit_table
from semidp.publish.pipeline import Prepared, RunOptions, prepare
from semidp.publish.plan import AdjacencyChoice, Plan
from semidp.publish.results.published_table import FitKind, PublishedTable
from semidp.publish.sources.opening import Source, open_source
from semidp.publish.statistics.odds_ratio.hypergeometric import TwoByTwo
from semidp.publish.statistics.odds_ratio.measured_ratio import OddsRatioResult
from semidp.publish.statistics.odds_ratio.power_analysis import power, power_curves, sample_size
from semidp.publish.statistics.odds_ratio.umpu import UmpuTest
from semidp.publish.statistics.outcomes.request import Statistic
from semidp.publish.statistics.quantiles.published import PublishedQuantiles
from semidp.publish.statistics.quantiles.request import QuantileRequest
from semidp.publish.statistics.regression.published import PublishedRegression
from semidp.publish.statistics.regression.request import Model, RegressionRequest
from semidp.publish.statistics.sums.published import PublishedGroups
from semidp.publish.statistics.sums.request import GroupRequest
from semidp.publish.statistics.tables.published import PublishedTables
from semidp.publish.statistics.tables.request import TableRequest, TablesRequest
from semidp.publish.tested_table import odds_ratio_test

__all__ = [
    "Adjacency",
    "AdjacencyChoice",
    "AdjacencyUnknown",
    "Ball",
    "Budget",
    "BudgetExceeded",
    "DataError",
    "Dataspace",
    "Exchange",
    "ExplicitSpace",
    "Feature",
    "Fit",
    "FitKind",
    "GroupRequest",
    "Guarantee",
    "InputError",
    "Ledger",
    "Margin",
    "MissingExtra",
    "Model",
    "Nest",
    "OddsRatioResult",
    "Order",
    "Outcome",
    "Plan",
    "Prepared",
    "PublishedGroups",
    "PublishedQuantiles",
    "PublishedRegression",
    "PublishedTable",
    "PublishedTables",
    "QuantileRequest",
    "QuerySpace",
    "Refused",
    "RegressionRequest",
    "Release",
    "RunOptions",
    "Schema",
    "SchemaError",
    "Scope",
    "SemiAdjacency",
    "SemidpError",
    "Source",
    "Statistic",
    "StructuralZero",
    "Table",
    "TableRequest",
    "TableSpace",
    "TablesRequest",
    "Tradeoff",
    "TwoByTwo",
    "UmpuTest",
    "Witness",
    "__version__",
    "approximate",
    "canonical_noise",
    "combine",
    "combine_estimates",
    "compose",
    "distribution",
    "fit_table",
    "from_function",
    "from_profile",
    "gaussian",
    "laplace",
    "logistic",
    "mean",
    "median",
    "odds_ratio_test",
    "open_source",
    "piecewise",
    "power",
    "power_curves",
    "prepare",
    "proportion",
    "quantile",
    "regression",
    "release",
    "run",
    "sample_size",
    "semi_adjacency",
    "sensitivity_space",
    "table",
    "total",
    "what_holds",
    "zcdp",
]
