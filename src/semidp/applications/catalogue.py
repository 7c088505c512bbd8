"""The paper's figures, examples and numbers, each as published and as it should be;
`semidp reproduce` runs them.

A study is one file with ``compute(settings) -> Tidy`` and ``plot(table) -> Figure``, and its name
in `STUDIES`. Studies use the public names of the package and draw in the style of `plots`. What
they compare with is in `naive`: nothing there is ever chosen for a release.
"""

import importlib
from typing import Protocol, cast

from semidp import InputError
from semidp.applications.study import Settings, Tidy
from semidp.publish import style

STUDIES = (
    *(
        "gaussian",
        "knorm",
        "power",
        "composition",
        "sensitivity-space",
        "adjacency",
        "exchange",
        "products",
    ),
    *("subspace-dp", "census", "inference", "grouped-means", "grouped-regression", "swapping"),
)
"""The name of each study as the command line calls it: that of its file, without ``_study``."""


PAPER = {
    "figure-1": "sensitivity-space",
    "figure-2": "gaussian",
    "figure-3": "knorm",
    "section-3.2": "subspace-dp",
    "section-3.4": "adjacency",
    "section-3.6": "composition",
    "section-5.3": "power",
    "section-6": "census",
}
"""The paper's own numbers of figures and sections, each with its study; docs/paper.md says where
ours differ."""


class Study(Protocol):
    """Functions of the module of a study."""

    def compute(self, settings: Settings = ...) -> Tidy:
        """Return the numbers, one observation a row."""

    def plot(self, table: Tidy) -> style.Figure:
        """Draw the numbers that `compute` returned."""


def study_name(name: str) -> str:
    """Return the name of a study, which the paper may number.

    >>> study_name("figure-3"), study_name("Figure 3"), study_name("knorm")
    ('knorm', 'knorm', 'knorm')
    """
    number = "-".join(name.lower().split())
    return PAPER.get(number, name)


def study(name: str) -> Study:
    """Return the module of a study by its name.

    >>> study("adjacency").compute().columns[:2]
    ('example', 'published')
    >>> study("knrom")
    Traceback (most recent call last):
    semidp.errors.InputError: there is no study 'knrom': choose from gaussian, knorm, power, ...
    """
    # Only a listed name is imported: a word of the command line must not choose a module.
    if name not in STUDIES:
        numbered = f"; of the paper {', '.join(PAPER)}"
        names = ", ".join(STUDIES)
        raise InputError(f"there is no study {name!r}: choose from {names}{numbered}")
    module = name.replace("-", "_")
    return cast(Study, importlib.import_module(f"semidp.applications.{module}_study"))
