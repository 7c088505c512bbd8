"""Differential privacy with invariants: publish some statistics exactly and the rest with noise.

`run` executes a `Plan` and returns a `Release` with its `Guarantee`; docs/how_it_works.md follows
the data. The floors `promise`, `publish`, `inference` and `assess` hold the rest; `applications`
has the paper's figures.
"""

import semidp._startup  # noqa: F401 - before everything else that is imported
from semidp import (  # public subpackages
    assess,
    inference,
    promise,
    publish,
)
from semidp._version import __version__
from semidp.errors import BudgetExceeded, DataError, InputError, Refused, SemidpError
from semidp.front import (
    change,
    combine,
    disclosure,
    distribution,
    each,
    logistic,
    mean,
    median,
    microdata,
    proportion,
    quantile,
    regression,
    release,
    run,
    table,
    total,
    what_holds,
)
from semidp.present.release import Release
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.guarantee import Guarantee
from semidp.promise.schema.features import Feature, Nest
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema, StructuralZero, Table
from semidp.promise.sensitivity.table_spaces import sensitivity_space
from semidp.promise.spaces.adjacency import Ball, Exchange
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.pipeline import RunOptions, prepare
from semidp.publish.plan import Plan
from semidp.publish.sources.opening import open_source
from semidp.publish.statistics.outcomes.noise_law import Confidence
from semidp.publish.tested_table import odds_ratio_test
from semidp.publish.witness import semi_adjacency

__all__ = [
    "Ball",
    "Budget",
    "BudgetExceeded",
    "Confidence",
    "DataError",
    "Dataspace",
    "Exchange",
    "Feature",
    "Guarantee",
    "InputError",
    "Ledger",
    "Margin",
    "Nest",
    "Outcome",
    "Plan",
    "Refused",
    "Release",
    "RunOptions",
    "Schema",
    "SemidpError",
    "StructuralZero",
    "Table",
    "__version__",
    "change",
    "combine",
    "disclosure",
    "distribution",
    "each",
    "logistic",
    "mean",
    "median",
    "microdata",
    "odds_ratio_test",
    "open_source",
    "prepare",
    "proportion",
    "quantile",
    "regression",
    "release",
    "run",
    "semi_adjacency",
    "sensitivity_space",
    "table",
    "total",
    "what_holds",
]

_ELSEWHERE = {
    "audit": "the command `semidp audit RELEASE`, or semidp.assess.audit_mechanism",
    "sum": "semidp.total",
    "count": "semidp.table",
    "histogram": "semidp.table with bins=",
    "guarantee": "release.guarantee, or semidp.what_holds",
    "test": "release.test",
    "load": "semidp.Release.load",
}


def __dir__() -> list[str]:
    """List the public names, and the floors that hold the rest."""
    return sorted([*__all__, "assess", "inference", "promise", "publish"])


def __getattr__(name: str) -> object:
    """Point to the module that has a name that is missing here."""
    from semidp.errors import did_you_mean

    place = _ELSEWHERE.get(name)
    for door in (promise, publish, inference, assess):
        names = {each.lower(): each for each in door.__all__}
        if place is None and name.lower() in names:
            place = f"{door.__name__}.{names[name.lower()]}"
    hint = did_you_mean(name, __all__) if place is None else f": use {place}"
    raise AttributeError(f"semidp has no {name!r}{hint}")
