"""The paper's figures, examples and numbers, each as published and as it should be;
`semidp reproduce` runs them.

Here is what studies share: their settings, the tidy table they return, the tables of the paper's
simulations, and their names. A study is two functions, ``compute_…(settings) -> Tidy`` and
``plot_…(table) -> Figure``, and its name in `STUDIES`. Studies use the public names of the package
and draw in the style of `plots`. What they compare with is in `naive`: nothing there is ever chosen
for a release.
"""

import csv
import importlib
import io
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semidp import Dataspace, Feature, InputError, Margin, Schema, Table
from semidp.publish import style

MODELS = ("I", "II")
RECORDS = 500

Case = TypeVar("Case")
Row = Mapping[str, Any]
Floats = NDArray[np.float64]
Losses = tuple[Row, Floats]
Progress = Callable[[str, float, float | None], None]
"""Called with a task, how much of it is done, and how much there is."""


def _report_nothing(task: str, done: float, total: float | None) -> None:
    """The default: nobody watches."""


@dataclass(frozen=True)
class Settings:
    """Size of a study: number of replicates, seed, and the callback for progress.

    The defaults are the paper's 30 replicates and seed 0. Studies without noise use neither.

    >>> Settings(replicates=1)
    Traceback (most recent call last):
    semidp.errors.InputError: a standard error needs at least 2 replicates, not 1
    """

    replicates: int = 30
    seed: int = 0
    progress: Progress = _report_nothing

    def __post_init__(self) -> None:
        if self.replicates < 2:
            raise InputError(f"a standard error needs at least 2 replicates, not {self.replicates}")
        if self.seed < 0:
            raise InputError(f"a seed must be 0 or more, not {self.seed}")

    def each(self, what: str, cases: Collection[Case]) -> Iterator[Case]:
        """Yield the cases of a study one by one, and say how many are done."""
        for done, case in enumerate(cases):
            self.progress(what, done, len(cases))
            yield case
        self.progress(what, len(cases), len(cases))

    def run_replicates(
        self, what: str, loss: str, cases: Collection[Row], run: Callable[..., Iterable[Losses]]
    ) -> "Tidy":
        """Return the mean loss and its standard error of each case; `run` yields labels and losses.

        >>> run = lambda k: [({"way": "ours"}, np.array([1.0, 3.0]))]
        >>> Settings(replicates=2).run_replicates("tables", "loss", [{"k": 4}], run).records()
        [{'k': 4, 'way': 'ours', 'loss': 2.0, 'se': 1.0, 'replicates': 2}]
        """
        rows = []
        for case in self.each(what, cases):
            for labels, losses in run(**case):
                error = float(losses.std(ddof=1) / math.sqrt(losses.size))
                numbers = {loss: float(losses.mean()), "se": error, "replicates": self.replicates}
                rows.append({**case, **labels, **numbers})
        return Tidy.from_rows(rows)


PAPER = Settings()
"""The size of the paper's own simulations."""


@dataclass(frozen=True)
class Tidy:
    """A table with one observation a row, in the order of `columns`.

    Examples
    --------
    >>> table = Tidy.from_rows(
    ...     [
    ...         {"k": 2, "loss": 0.5, "truncated": True},
    ...         {"k": 3, "loss": 1.5, "truncated": False},
    ...     ]
    ... )
    >>> table.where(k=3)["loss"]
    [1.5]
    >>> print(table.csv())
    k,loss,truncated
    2,0.5,true
    3,1.5,false
    <BLANKLINE>
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    @classmethod
    def from_rows(cls, observations: Iterable[Row]) -> "Tidy":
        """Return the table of observations, which all name the same columns."""
        observations = list(observations)
        columns = tuple(observations[0])
        rows = []
        for observation in observations:
            rows.append(tuple(observation[name] for name in columns))
        return cls(columns, tuple(rows))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, column: str) -> list[Any]:
        """Return one column."""
        position = self.columns.index(column)
        return [row[position] for row in self.rows]

    def where(self, **values: Any) -> "Tidy":
        """Return the rows with these values."""
        rows = self.rows
        for name, value in values.items():
            column = self.columns.index(name)
            rows = tuple(row for row in rows if row[column] == value)
        return Tidy(self.columns, rows)

    def distinct(self, column: str) -> list[Any]:
        """Return the different values of a column, in the order they appear."""
        return list(dict.fromkeys(self[column]))

    def records(self) -> list[dict[str, Any]]:
        """Return a mapping for each row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def csv(self) -> str:
        """Return the table as CSV: numbers to ten digits, an empty field for what does not
        apply.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        for row in self.rows:
            writer.writerow([_cell(value) for value in row])
        return text.getvalue()


def build_table(counts: ArrayLike) -> Table:
    """Return the table with these counts: of rows and columns, and of strata where there is a third
    axis.

    >>> build_table([[1, 2, 3], [4, 5, 6]]).margin(["column"]).counts.tolist()
    [5, 7, 9]
    """
    features = []
    for name, size in zip(("row", "column", "stratum"), np.shape(counts), strict=False):
        features.append(Feature(name, map(str, range(1, size + 1))))
    return Table(Schema(features), counts)


def simulated_table(model: str, k: int, seed: int) -> Table:
    """Return the k x k table of 500 records of the paper's simulations: multinomial, then held
    fixed.

    Model I has equal cell probabilities; in model II cell i of k² has a probability proportional to
    i.

    >>> simulated_table("II", 3, seed=0).n
    500
    """
    weights = np.ones(k * k)
    if model != "I":
        weights = np.arange(1.0, k * k + 1)
    # Each table has a stream of its own: a study of fewer sizes draws the same tables.
    source = np.random.default_rng([seed, MODELS.index(model), k])
    counts = source.multinomial(RECORDS, weights / weights.sum())
    return build_table(counts.reshape(k, k))


def both_margins(table: Table) -> Dataspace:
    """Return D_t for a two-way table whose row and column totals are published.

    >>> both_margins(simulated_table("I", 2, seed=0)).summary()
    'row, column'
    """
    return Dataspace.from_table(table, [Margin("row"), Margin("column")])


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (float, Fraction)):
        return f"{float(value):.10g}"
    return value


STUDIES = {
    "gaussian": "noise_studies",
    "knorm": "noise_studies",
    "power": "noise_studies",
    "composition": "promise_studies",
    "sensitivity-space": "promise_studies",
    "adjacency": "promise_studies",
    "exchange": "promise_studies",
    "products": "grouped_studies",
    "subspace-dp": "noise_studies",
    "census": "census_studies",
    "inference": "inference_study",
    "grouped-means": "grouped_studies",
    "grouped-regression": "grouped_studies",
    "swapping": "census_studies",
}
"""The name of each study as the command line calls it, and the module of its two functions."""


NUMBERED = {
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


@dataclass(frozen=True)
class Study:
    """A figure, example or number of the paper, as published and as it should be.

    Parameters
    ----------
    compute
        Returns the numbers, one observation a row.
    plot
        Draws the numbers that `compute` returned.
    """

    compute: Callable[..., "Tidy"]
    plot: Callable[["Tidy"], style.Figure]


def study_name(name: str) -> str:
    """Return the name of a study, which the paper may number.

    >>> study_name("figure-3"), study_name("Figure 3"), study_name("knorm")
    ('knorm', 'knorm', 'knorm')
    """
    number = "-".join(name.lower().split())
    return NUMBERED.get(number, name)


def find_study(name: str) -> Study:
    """Return a study by its name.

    >>> find_study("adjacency").compute().columns[:2]
    ('example', 'published')
    >>> find_study("knrom")
    Traceback (most recent call last):
    semidp.errors.InputError: there is no study 'knrom': choose from gaussian, knorm, power, ...
    """
    # Only a listed name is imported: a word of the command line must not choose a module.
    if name not in STUDIES:
        numbered = f"; of the paper {', '.join(NUMBERED)}"
        names = ", ".join(STUDIES)
        raise InputError(f"there is no study {name!r}: choose from {names}{numbered}")
    module = importlib.import_module(f"semidp.applications.{STUDIES[name]}")
    function = name.replace("-", "_")
    return Study(getattr(module, f"compute_{function}"), getattr(module, f"plot_{function}"))
