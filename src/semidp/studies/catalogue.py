"""The paper's figures, examples and numbers, each as published and as it should be; `semidp reproduce` runs them.

A study is one file with ``compute(settings) -> Tidy`` and ``plot(table) -> Figure``, and its name in `STUDIES`. Studies
use the public names of the package and draw in the style of `plots`. What they compare with is in `naive`: nothing
there is ever chosen for a release.
"""

import importlib
from typing import Protocol, cast

from semidp.errors import InputError
from semidp.output.plots.style import Figure
from semidp.studies.study import Settings, Tidy

STUDIES = (
    *("gaussian", "knorm", "power", "composition", "sensitivity-space", "adjacency", "exchange", "products"),
    *("subspace-dp", "census", "inference", "grouped-means", "grouped-regression", "swapping"),
)
"""The name of each study as the command line calls it: that of its file, without ``_study``."""


class Study(Protocol):
    """What the module of a study offers."""

    def compute(self, settings: Settings = ...) -> Tidy:
        """Return the numbers, one observation a row."""

    def plot(self, table: Tidy) -> Figure:
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
    return cast(Study, importlib.import_module(f"semidp.studies.{name.replace('-', '_')}_study"))
