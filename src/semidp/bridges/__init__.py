"""Bridges: what the releases of other tools guarantee once some of their statistics are exact.

`privacy_functions` holds the privacy function of any tool, as a value and as a file; `opendp` reads
the measurements of OpenDP (the extra ``opendp``). Events of dp-accounting, and with them Opacus and
JAX-privacy, are in accounting. `swapping` and `cell_keys` put what statistical offices do without
noise, or with noise by keys, on the same ruler.
"""

from semidp.bridges.cell_keys import CellKeyAssessment, assess_cell_keys
from semidp.bridges.perturbation_tables import PerturbationTable
from semidp.bridges.privacy_functions import (
    Assessment,
    LossMeasure,
    Metric,
    PrivacyFunction,
    assess,
)
from semidp.bridges.swap_laws import Stratum, Swap, SwapRule
from semidp.bridges.swapping import StratumLoss, SwapAssessment, assess_swapping

__all__ = [
    "Assessment",
    "CellKeyAssessment",
    "LossMeasure",
    "Metric",
    "PerturbationTable",
    "PrivacyFunction",
    "Stratum",
    "StratumLoss",
    "Swap",
    "SwapAssessment",
    "SwapRule",
    "assess",
    "assess_cell_keys",
    "assess_swapping",
]
