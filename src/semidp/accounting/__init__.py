"""Accounting: conversions between ways of stating a guarantee, Rényi curves, training runs, and the
ledger.

Everything here adds up or restates guarantees; the curves themselves are in tradeoff, and what
datasets they are about in guarantees.
"""

from semidp.accounting.account import Account, Charge, fits
from semidp.accounting.conversions import (
    approximate_group,
    gdp_delta,
    gdp_epsilon,
    gdp_group,
    gdp_to_zcdp,
    pure_to_gdp,
    pure_to_zcdp,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_epsilon_paper,
    zcdp_group,
)
from semidp.accounting.events import (
    dp_sgd,
    event_from_json,
    event_guarantee,
    event_to_json,
    event_tradeoff,
    functional_tradeoff,
)
from semidp.accounting.renyi import Renyi
from semidp.core.tradeoff.curves import tradeoff_from_json

__all__ = [
    "Account",
    "Charge",
    "Renyi",
    "approximate_group",
    "dp_sgd",
    "event_from_json",
    "event_guarantee",
    "event_to_json",
    "event_tradeoff",
    "fits",
    "functional_tradeoff",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_group",
    "gdp_to_zcdp",
    "pure_to_gdp",
    "pure_to_zcdp",
    "tradeoff_from_json",
    "zcdp_delta",
    "zcdp_epsilon",
    "zcdp_epsilon_paper",
    "zcdp_group",
]
