"""Differential privacy with invariants: publish some statistics exactly and the rest with noise.

`run` carries out a `Plan` and returns a `Release` with its `Guarantee`; docs/how_it_works.md says
what flows where. More is in the subpackages `accounting`, `audit`, `bridges`, `census`,
`combining`, `grouped`, `mechanisms`, `noise`, `questions` and `statistics`; `studies` has the
paper's figures.
"""

import semidp._startup  # noqa: F401 - before everything else that is imported
from semidp import (  # public subpackages
    accounting,  # noqa: F401
    audit,  # noqa: F401
    bridges,  # noqa: F401
    census,  # noqa: F401
    combining,  # noqa: F401
    grouped,  # noqa: F401
    mechanisms,  # noqa: F401
    noise,  # noqa: F401
    questions,  # noqa: F401
    statistics,  # noqa: F401
)
from semidp._version import __version__
from semidp.accounting.ledger import Ledger
from semidp.core.guarantee import Guarantee
from semidp.core.scope import Scope
from semidp.core.spaces.adjacency import Adjacency, Ball, Exchange, SemiAdjacency, semi_adjacency
from semidp.core.spaces.dataspace import Dataspace, Margin
from semidp.core.spaces.witness import Witness
from semidp.core.tables.counts import Table
from semidp.core.tables.features import Feature, Nest
from semidp.core.tables.schema import Schema, StructuralZero
from semidp.core.tradeoff.budget import Budget
from semidp.core.tradeoff.composition import compose
from semidp.core.tradeoff.curves import approximate, gaussian, laplace, zcdp
from semidp.core.tradeoff.function import Order, Tradeoff
from semidp.core.tradeoff.piecewise_linear import from_function, from_profile, piecewise
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
from semidp.fitting.tables import Fit, fit_table
from semidp.noise.noise_for_tradeoff import canonical_noise
from semidp.output.published_table import FitKind, PublishedTable
from semidp.publishing.combined.releases_together import combine
from semidp.publishing.front import (
    distribution,
    logistic,
    mean,
    median,
    proportion,
    quantile,
    regression,
    release,
    table,
    total,
    what_holds,
)
from semidp.publishing.pipeline import Prepared, RunOptions, prepare, run
from semidp.publishing.plan import AdjacencyChoice, Plan
from semidp.publishing.release import Release
from semidp.publishing.tested_table import odds_ratio_test
from semidp.queries.query_space import ExplicitSpace, QuerySpace
from semidp.queries.table_spaces import TableSpace, sensitivity_space
from semidp.questions.records.several_files import combine_estimates
from semidp.sources.contract import Outcome
from semidp.sources.opening import Source, open_source
from semidp.statistics.odds_ratio.hypergeometric import TwoByTwo
from semidp.statistics.odds_ratio.measured_ratio import OddsRatioResult
from semidp.statistics.odds_ratio.power_analysis import power, power_curves, sample_size
from semidp.statistics.odds_ratio.umpu import UmpuTest
from semidp.statistics.outcomes.request import Statistic
from semidp.statistics.quantiles.published import PublishedQuantiles
from semidp.statistics.quantiles.request import QuantileRequest
from semidp.statistics.regression.published import PublishedRegression
from semidp.statistics.regression.request import Model, RegressionRequest
from semidp.statistics.sums.published import PublishedGroups
from semidp.statistics.sums.request import GroupRequest
from semidp.statistics.tables.published import PublishedTables
from semidp.statistics.tables.request import TableRequest, TablesRequest

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
