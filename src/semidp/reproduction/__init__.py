"""The paper's figures, examples and numbers, each as published and as it should be; `semidp reproduce` runs them.

A study is one file with ``compute(settings) -> Tidy`` and ``plot(table) -> Figure``, and one line in `STUDIES`. Studies
use the public names of the package and draw in the style of `plots`. What they compare with is in `naive` and
`baselines`: nothing there is ever chosen for a release.
"""

import importlib
from typing import TYPE_CHECKING, Protocol, cast

from semidp.errors import InputError
from semidp.reproduction.base import Settings, Tidy
from semidp.reproduction.baselines import baseline_means, baseline_regression
from semidp.reproduction.naive import NaiveGaussian, NaiveL1, NaiveL2, NaiveLinf, published_noise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "STUDIES",
    "NaiveGaussian",
    "NaiveL1",
    "NaiveL2",
    "NaiveLinf",
    "Settings",
    "Study",
    "Tidy",
    "baseline_means",
    "baseline_regression",
    "published_noise",
    "study",
]

STUDIES: dict[str, str] = {
    "gaussian": "semidp.reproduction.gaussian",
    "knorm": "semidp.reproduction.knorm",
    "power": "semidp.reproduction.power",
    "composition": "semidp.reproduction.composition",
    "sensitivity-space": "semidp.reproduction.sensitivity_space",
    "adjacency": "semidp.reproduction.adjacency",
    "exchange": "semidp.reproduction.exchange",
    "products": "semidp.reproduction.products",
    "subspace-dp": "semidp.reproduction.subspace_dp",
    "census": "semidp.reproduction.census",
    "inference": "semidp.reproduction.inference",
    "grouped-means": "semidp.reproduction.grouped_means",
    "grouped-regression": "semidp.reproduction.grouped_regression",
}
"""The name of each study, as the command line calls it, and its module."""


class Study(Protocol):
    """What the module of a study offers."""

    def compute(self, settings: Settings = ...) -> Tidy:
        """Return the numbers, one observation a row."""

    def plot(self, table: Tidy) -> "Figure":
        """Draw the numbers that `compute` returned."""


def study(name: str) -> Study:
    """Return the module of a study by its name.

    >>> study("adjacency").compute().columns[:2]
    ('example', 'published')
    >>> study("knrom")
    Traceback (most recent call last):
    semidp.errors.InputError: there is no study 'knrom': choose from gaussian, knorm, power, ...
    """
    if name not in STUDIES:
        raise InputError(f"there is no study {name!r}: choose from {', '.join(STUDIES)}")
    return cast(Study, importlib.import_module(STUDIES[name]))
