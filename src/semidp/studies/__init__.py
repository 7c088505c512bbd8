"""The paper's figures, examples and numbers, each as published and as it should be; `semidp reproduce` runs them.

A study is one file with ``compute(settings) -> Tidy`` and ``plot(table) -> Figure``, and one line in `STUDIES`. Studies
use the public names of the package and draw in the style of `plots`; no mechanism is defined here.
"""

import importlib
from typing import TYPE_CHECKING, Protocol, cast

from semidp.errors import InputError
from semidp.studies.base import Settings, Tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDIES", "Settings", "Study", "Tidy", "study"]

STUDIES: dict[str, str] = {
    "gaussian": "semidp.studies.gaussian",
    "knorm": "semidp.studies.knorm",
    "power": "semidp.studies.power",
    "composition": "semidp.studies.composition",
    "sensitivity-space": "semidp.studies.sensitivity_space",
    "adjacency": "semidp.studies.adjacency",
    "subspace-dp": "semidp.studies.subspace_dp",
    "census": "semidp.studies.census",
    "grouped-means": "semidp.studies.grouped_means",
    "grouped-regression": "semidp.studies.grouped_regression",
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
