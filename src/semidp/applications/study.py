"""The paper's figures, examples and numbers, each as published and as it should be; `semidp
reproduce` runs them.

Here is what studies share: their settings, the tidy table they return, the tables of the paper's
simulations, their names, and what they compare with. A study is two functions,
``compute_…(settings) -> Tidy`` and ``plot_…(table) -> Figure``, and its name in `STUDIES`. Studies
use the public names of the package and draw in the style of `plots`.

Compared are the paper's naive mechanisms, ordinary DP of grouped statistics, and the published
noise. Naive is noise for one record, pushed to a records by group privacy, without regard to what
the public totals say. All outputs are floating-point numbers and marked not private; nothing of it
is ever chosen for a release.
"""

import csv
import importlib
import io
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np
from attrs import frozen
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from semidp import Budget, Dataspace, Feature, InputError, Margin, Schema, Table
from semidp.promise import (
    Mechanism,
    QuerySpace,
    Randomness,
    Tradeoff,
    approximate,
    gaussian,
    generator,
)
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


@frozen
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

    def __attrs_post_init__(self) -> None:
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


@frozen
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


@frozen
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


@frozen(eq=False)
class NaiveMechanism(Mechanism):
    """Noise in all d cells, calibrated to ``a`` times the sensitivity of one record.

    The errors are those of the noisy table as it is, since the baselines do not project: its
    covariance is ``variance·I`` and the root of the expected squared loss is ``sqrt(d·variance)``.

    Parameters
    ----------
    space
        The sensitivity space; only its adjacency parameter and its number of cells are used.
    parameter
        ε, or μ for the Gaussian.

    Examples
    --------
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> space, table = two_way()
    >>> # a = 3
    >>> [naive.calibrate(space, Budget.pure(1)).scale for naive in (NaiveL1, NaiveL2, NaiveLinf)]
    [6.0, 4.242640687119286, 3.0]
    >>> NaiveGaussian.calibrate(space, Budget.gdp(1)).scale
    4.242640687119286
    >>> NaiveL1.calibrate(space, Budget.pure(1)).apply(table).private
    False
    """

    parameter: Fraction

    budget_kinds: ClassVar[tuple[str, ...]] = ("pure", "approximate")
    claim: ClassVar[Literal["exact", "ideal"]] = "ideal"
    for_studies: ClassVar[bool] = True
    # the square of the sensitivity of one record, in the norm of the mechanism
    one_record: ClassVar[int]

    @classmethod
    def calibrate(cls, space: QuerySpace, budget: Budget) -> Self:
        """Return the baseline that spends ε/a, or μ/a, on one record."""
        cls.check_request(space, budget)
        if budget.rho is not None:
            # The root is rounded down, so the noise is never too small for rho.
            return cls(space, Fraction(math.nextafter(math.sqrt(2 * budget.rho), 0)))
        parameter = budget.epsilon if budget.mu is None else budget.mu
        if parameter is None:
            raise InputError(f"a {budget.kind} budget has no epsilon")
        return cls(space, parameter)

    @property
    def scale(self) -> float:
        """a times the sensitivity of one record, divided by ε or μ."""
        rate = self.space.adjacency.a / self.parameter
        square = self.one_record * rate**2
        root = math.sqrt(square)
        return root if Fraction(root) ** 2 >= square else math.nextafter(root, math.inf)

    @property
    def cells(self) -> int:
        """The number d of cells."""
        return math.prod(self.space.shape)

    @property
    def tradeoff(self) -> Tradeoff:
        """Pure ε by group privacy, in ideal arithmetic."""
        return approximate(self.parameter)

    @property
    def expected_l2(self) -> float:
        """The root of the expected squared loss of the noisy table, ``sqrt(E‖noise‖²)``."""
        return math.sqrt(self.variance * self.cells)

    def standard_errors(self) -> Floats:
        """Return the standard error of each cell of the noisy table."""
        return np.full(self.space.shape, math.sqrt(self.variance))

    def standard_error(self, weights: ArrayLike) -> float:
        """Return the standard error of a weighted sum of cells of the noisy table, ``τ‖w‖``."""
        return math.sqrt(self.variance) * float(np.linalg.norm(self.space.check_shape(weights)))

    def noises(self, count: int, randomness: Randomness) -> NDArray[np.float64]:
        """Draw the noise of one measurement after the other."""
        return np.stack([self.noise(randomness) for _ in range(count)])


class NaiveL1(NaiveMechanism):
    """The l1 mechanism: independent Laplace noise of scale ``2a/ε``."""

    name: ClassVar[str] = "naive l1"
    one_record: ClassVar[int] = 4

    @property
    def variance(self) -> float:
        """``2 scale²``."""
        return 2 * self.scale**2

    def noise(self, randomness: Randomness) -> Floats:
        """Draw independent Laplace numbers."""
        return generator(randomness).laplace(scale=self.scale, size=self.space.shape)


class NaiveL2(NaiveMechanism):
    """The l2 mechanism: length Gamma(d) times ``√2 a/ε``, uniform direction in all cells."""

    name: ClassVar[str] = "naive l2"
    one_record: ClassVar[int] = 2

    @property
    def variance(self) -> float:
        """``scale² (d+1)``."""
        return self.scale**2 * (self.cells + 1)

    def noise(self, randomness: Randomness) -> Floats:
        """Draw a uniform direction and a Gamma(d) length."""
        source = generator(randomness)
        direction = source.standard_normal(self.space.shape)
        # A direction lies on the sphere, so its length is Gamma(d).
        # A uniform point inside the ball would need Gamma(d+1).
        length = self.scale * source.standard_gamma(self.cells)
        return np.asarray(direction * (length / np.linalg.norm(direction)))


class NaiveLinf(NaiveMechanism):
    """The l∞ mechanism: Gamma(d+1) times ``a/ε`` times a uniform point of the cube.

    The radius is Gamma(d+1): with a uniform point of the cube, Gamma(d) would give a density that
    is unbounded at 0.
    """

    name: ClassVar[str] = "naive linf"
    one_record: ClassVar[int] = 1

    @property
    def variance(self) -> float:
        """``scale² (d+1)(d+2)/3``."""
        d = self.cells
        return self.scale**2 * (d + 1) * (d + 2) / 3

    def noise(self, randomness: Randomness) -> Floats:
        """Draw a uniform point of the cube and a Gamma(d+1) radius."""
        source = generator(randomness)
        radius = self.scale * source.standard_gamma(self.cells + 1)
        return radius * source.uniform(-1, 1, self.space.shape)


class NaiveGaussian(NaiveMechanism):
    """The Gaussian mechanism: independent normals with ``σ = √2 a/μ``."""

    name: ClassVar[str] = "naive gaussian"
    budget_kinds: ClassVar[tuple[str, ...]] = ("gdp", "zcdp")
    one_record: ClassVar[int] = 2

    @property
    def variance(self) -> float:
        """σ²."""
        return self.scale**2

    @property
    def tradeoff(self) -> Tradeoff:
        """μ-GDP by group privacy, in ideal arithmetic."""
        return gaussian(self.parameter)

    def noise(self, randomness: Randomness) -> Floats:
        """Draw independent normals."""
        return self.scale * generator(randomness).standard_normal(self.space.shape)


def published_noise(ball: Any, epsilon: Fraction, size: int, source: Generator) -> Floats:
    """Draw the noise behind the paper's K-norm figure, radius Gamma(s, rate ε): **not private for
    any ε**.

    With a uniform point of K this density is ``∝ ∫_{ε||v||}^∞ e^-x / x dx``, unbounded at 0: seeing
    a value that a dataset could have without noise convicts it. Kept to reproduce the figure; see
    `docs/errata.md`.

    Examples
    --------
    >>> from semidp.promise.mechanisms.knorm_balls import PairBall
    >>> published_noise(PairBall(3), Fraction(1, 2), 4, np.random.default_rng(0)).shape
    (4, 2, 3)
    """
    points: Floats = ball.uniform(size, source)
    # The paper's own algorithm says Gamma(s+1); its figure was drawn with Gamma(s).
    radii = source.standard_gamma(ball.dimension, size) / float(epsilon)
    # one radius for each point, whatever the shape of the points
    other_axes = [1] * (points.ndim - 1)
    return points * radii.reshape(-1, *other_axes)


def baseline_means(
    counts: ArrayLike, totals: ArrayLike, budget: Budget, *, a: int, randomness: Randomness
) -> Floats:
    """Return group means as ordinary differential privacy gives them: a noisy sum over a noisy
    count.

    At μ for groups of `a` records, one record gets μ/a by group privacy and each of the two queries
    μ/(a√2). Replacing a record moves it between groups, so counts have sensitivity √2, and so do
    sums of an outcome in [0, 1]: the noise of both has standard deviation ``2a/μ``. With a = 2 this
    is μ/(2√2) each; a = 1 is ordinary DP. A count below 1 counts as 1.

    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> baseline_means(
    ...     [50, 50], [20, 30], Budget.gdp(100), a=2, randomness=SeededRandomness(1)
    ... ).round(1).tolist()
    [0.4, 0.6]
    """
    # Ordinary DP may not use the exact sizes, so it pays for counts and for sums.
    source = generator(randomness)
    sigma = 2 * a / _mu(budget)
    noisy = []
    for true in (counts, totals):
        noise = sigma * source.standard_normal(np.shape(true))
        noisy.append(np.asarray(true, dtype=np.float64) + noise)
    noisy_counts, noisy_totals = noisy
    return np.asarray(noisy_totals / np.maximum(noisy_counts, 1.0))


def baseline_regression(
    rows: ArrayLike, outcomes: ArrayLike, budget: Budget, *, a: int, randomness: Randomness
) -> Floats:
    """Return regression coefficients as ordinary differential privacy gives them: noisy X'X and
    noisy X'y.

    Each gets μ/(a√2) for one record, as in `baseline_means`. With rows of length at most 1,
    replacing a record moves X'X by at most √2 in Frobenius norm; with outcomes between -1 and 1 it
    moves X'y by at most 2. The noisy X'X is made positive definite by raising its eigenvalues to at
    least the noise's standard deviation.

    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> rows = np.array([[1, -1], [1, 1]] * 200) / math.sqrt(2)
    >>> coefficients = baseline_regression(
    ...     rows, 0.3 * rows[:, 1], Budget.gdp(100), a=2, randomness=SeededRandomness(1)
    ... )
    >>> np.abs(coefficients).round(1).tolist()
    [0.0, 0.3]
    """
    x = np.asarray(rows, dtype=np.float64)
    y = np.asarray(outcomes, dtype=np.float64)
    # A longer row would move X'X further than the noise is scaled to.
    longest = np.linalg.norm(x, axis=1).max(initial=0)
    if max(longest, np.abs(y).max(initial=0)) > 1 + 1e-9:
        raise InputError(
            "the baseline needs rows of length at most 1 and outcomes within the bound: scale them"
        )
    source = generator(randomness)
    sigma = a * math.sqrt(2) / _mu(budget)
    size = x.shape[1]
    # noise on the upper triangle, off-diagonal entries halved in variance: each counts twice in the
    # Frobenius norm
    normals = source.standard_normal((size, size))
    upper = np.triu(normals, 1) / math.sqrt(2)
    noise = upper + upper.T + np.diag(source.standard_normal(size))
    gram_sigma = sigma * math.sqrt(2)
    values, vectors = np.linalg.eigh(x.T @ x + gram_sigma * noise)
    moment_noise = sigma * 2 * source.standard_normal(size)
    moments = x.T @ y + moment_noise
    raised = np.maximum(values, gram_sigma)
    return np.asarray(vectors @ ((vectors.T @ moments) / raised))


def _mu(budget: Budget) -> float:
    if budget.mu is None:
        raise InputError("the baselines are Gaussian: give a GDP budget")
    return float(budget.mu)
