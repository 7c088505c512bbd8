"""Differential privacy with invariants: publish some statistics exactly and the rest with noise.

`run` carries out a `Plan` and returns a `Release` with its `Guarantee`; docs/how_it_works.md says what flows where.
More is in the subpackages `accounting`, `audit`, `bridges`, `grouped`, `inference`, `mechanisms` and `noise`;
`reproduction` has the studies.
"""

import semidp._startup  # noqa: F401 - before everything else that is imported
from semidp import accounting, audit, bridges, grouped, inference, mechanisms, noise  # noqa: F401  (public subpackages)
from semidp._version import __version__
from semidp.accounting.ledger import Ledger
from semidp.engines import Outcome, Source, open_source
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
from semidp.files import discard_unfinished
from semidp.fit import Fit, fit_table
from semidp.guarantees import Guarantee
from semidp.inference import (
    Alternative,
    OddsRatioResult,
    TwoByTwo,
    UmpuTest,
    canonical_noise,
    odds_ratio_test,
    power,
    power_curves,
    sample_size,
)
from semidp.queries import ExplicitSpace, QuerySpace, TableSpace, sensitivity_space
from semidp.release import (
    FitKind,
    GroupRequest,
    Model,
    Plan,
    Prepared,
    ProductRequest,
    PublishedGroups,
    PublishedProduct,
    PublishedRegression,
    PublishedTable,
    QuantileRequest,
    Reading,
    RegressionRequest,
    Release,
    Scope,
    Statistic,
    TableRequest,
    prepare,
    run,
    run_partitioned,
)
from semidp.spaces import Adjacency, Dataspace, Margin, SemiAdjacency, Witness, semi_adjacency
from semidp.tables import Feature, Schema, StructuralZero, Table
from semidp.tradeoff import (
    Budget,
    Order,
    Tradeoff,
    approximate,
    compose,
    from_function,
    from_profile,
    gaussian,
    laplace,
    piecewise,
    zcdp,
)

__all__ = [
    "Adjacency",
    "AdjacencyUnknown",
    "Alternative",
    "Budget",
    "BudgetExceeded",
    "DataError",
    "Dataspace",
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
    "OddsRatioResult",
    "Order",
    "Outcome",
    "Plan",
    "Prepared",
    "ProductRequest",
    "PublishedGroups",
    "PublishedProduct",
    "PublishedRegression",
    "PublishedTable",
    "QuantileRequest",
    "QuerySpace",
    "Reading",
    "Refused",
    "RegressionRequest",
    "Release",
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
    "Tradeoff",
    "TwoByTwo",
    "UmpuTest",
    "Witness",
    "__version__",
    "approximate",
    "canonical_noise",
    "compose",
    "discard_unfinished",
    "fit_table",
    "from_function",
    "from_profile",
    "gaussian",
    "laplace",
    "odds_ratio_test",
    "open_source",
    "piecewise",
    "power",
    "power_curves",
    "prepare",
    "run",
    "run_partitioned",
    "sample_size",
    "semi_adjacency",
    "sensitivity_space",
    "zcdp",
]
