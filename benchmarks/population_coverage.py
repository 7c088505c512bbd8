"""How often intervals, tests and models about a population hold what they state in hard cases:
several records of one person, empty groups, groups within groups, sparse tables, skewed values.

``python benchmarks/population_coverage.py [REPLICATES] [TABLE…]`` prints the tables of
docs/inference_checks.md (clusters to sparse) and docs/groups.md (the others). Seeds are fixed. A row is a simulation of fresh records and fresh noise; a share
has a standard error of ``sqrt(p (1 - p) / replicates)``.
"""

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

import semidp
from semidp.errors import Refused
from semidp.inference import interval_questions as asked
from semidp.inference import models
from semidp.inference.interval_questions import (
    TableQuestion,
    estimate_interval,
    estimate_intervals,
)
from semidp.inference.measured import Measured, measured_table
from semidp.inference.ratios import RateMeasure
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.exponential import exponential_mechanism, rank_space
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.noise.randomness import SeededRandomness
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema, Table
from semidp.promise.sensitivity.outcome_spaces import sum_space
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.spaces.protection import Protection
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.selection import outcome_mechanism
from semidp.publish.statistics.outcomes.group_sums import GroupSums
from semidp.publish.statistics.outcomes.noise_law import simulate_noise
from semidp.publish.statistics.quantiles import GroupQuantiles
from semidp.publish.statistics.regression.designs import Design
from semidp.publish.statistics.regression.fits import (
    LinearFit,
    LogisticFit,
    Moments,
    regression_mechanism,
    route_values,
)

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
DRAWS = 999  # of the noise in each interval


# --- tables -----------------------------------------------------------------------------------------


@frozen(eq=False)
class Sample:
    """What the questions ask of a release: the measured table, public facts, the most records of
    one person; and seeds, one for each interval: with the same noise for all of them coverage would
    depend on it.
    """

    measured: Measured
    public: Dataspace
    cluster: int
    seeds: Iterator[int]


def patch_questions() -> None:
    """Let questions take a `Sample` for a release."""
    modules: tuple[Any, ...] = (asked, models)
    for module in modules:
        module.measured_table = lambda sample, names, table=None: sample.measured
        module.select_public = lambda sample, measured: sample.public
        module.clustering = _persons


def _persons(sample: Sample, measured: Measured) -> Protection | None:
    return Protection("person", sample.cluster) if sample.cluster > 1 else None


class Samples:
    """Samples of a table with some exact margins and a budget, without a new release for each."""

    def __init__(
        self, counts: Counts, margins: Sequence[Sequence[str]], budget: Budget, seed: int = 43
    ) -> None:
        letters = ("abcdefghijklmnopqrstuvwxyz"[:size] for size in counts.shape)
        names = ("sex", "ward", "vote")[-counts.ndim :]
        features = [
            Feature(name, list(levels)) for name, levels in zip(names, letters, strict=True)
        ]
        self.schema = Schema(features)
        self.margins = [Margin(*names) for names in margins]
        request = semidp.publish.TableRequest(list(names), budget)
        plan = semidp.Plan([request], self.margins, features=features)
        release = semidp.run(plan, Table(self.schema, counts), SeededRandomness(seed))
        self.measured = _measured_table(release, names)
        self.source = np.random.default_rng(seed)
        self.randomness = SeededRandomness(seed)
        self.seeds = itertools.count()

    def draw(self, counts: Counts, cluster: int = 1) -> Sample:
        """A sample with these counts and fresh noise; its exact totals are those of the counts."""
        unit = np.eye(counts.size).reshape(-1, *counts.shape)
        (errors,) = self.measured.simulate_errors(unit, 1, self.randomness)
        measured = evolve(self.measured, estimate=counts + errors.reshape(counts.shape))
        public = Dataspace.from_table(Table(self.schema, counts), self.margins)
        return Sample(measured, public, cluster, self.seeds)


_measured_table = measured_table


def ask(sample: Sample, of: Any, minus: Any = None, among: Any = None, **how: Any) -> Any:
    """One interval for the population."""
    measure = how.pop("measure", "difference")
    return estimate_interval(
        sample,
        of,
        minus,
        among,
        0.95,
        True,
        None,
        DRAWS,
        SeededRandomness(next(sample.seeds)),
        measure,
    )


def ask_all(sample: Sample) -> Any:
    """Intervals for all cells at once."""
    return estimate_intervals(sample, None, 0.95, True, DRAWS, SeededRandomness(next(sample.seeds)))


def keeps(sample: Sample, measure: RateMeasure, value: float, feature: str = "sex") -> bool:
    """Whether the score interval of a ratio of the rates of two groups holds a value (its ends need
    a slow search, and are the least and largest value that the score keeps).
    """
    question = TableQuestion(sample.measured, 0, None, 0.95, True, cluster=sample.cluster)
    yes = sample.measured.mask({"vote": "a"})
    groups = [sample.measured.mask({feature: level}) for level in "ab"]
    rates = question._noisy_rates([(yes * group, group) for group in groups])
    if (rates.records <= 0).any():
        return True  # nothing is known
    return float(rates.score(measure, np.array(value))) <= 1.959964**2


def holds_all(sample: Sample, shares: Floats) -> bool:
    """Whether all intervals hold the population counts."""
    found, truth = ask_all(sample), shares * float(sample.public.n or 0)
    return bool(((found.low <= truth) & (truth <= found.high)).all())


# --- several records of one person: tables ----------------------------------------------------------


@frozen
class Persons:
    """Persons with up to `most` records; a record has the vote of its person with probability
    `alike`, else one of its own.
    """

    persons: int
    most: int
    alike: float
    full: bool = True  # whether everybody has `most` records
    rates: tuple[float, float] = (0.3, 0.3)

    def __str__(self) -> str:
        how = "all alike" if self.alike == 1 else f"alike with probability {self.alike:g}"
        size = f"{self.most}" if self.full else f"1 to {self.most}"
        return f"{self.persons} with {size}, {how}"

    def draw(self, source: np.random.Generator) -> Counts:
        """Counts by sex (of persons), ward (of records) and vote."""
        counts = np.zeros((2, 3, 2), dtype=np.int64)
        sizes = [
            self.most if self.full else 1 + person % self.most for person in range(self.persons)
        ]
        for person, size in enumerate(sizes):
            sex = person // self.most % 2
            rate = self.rates[sex]
            own = source.random() < rate
            votes = np.where(source.random(size) < self.alike, own, source.random(size) < rate)
            wards = source.choice(3, size, p=[0.5, 0.3, 0.2])
            np.add.at(counts, (sex, wards, (~votes).astype(int)), 1)
        return counts


PERSONS = (
    Persons(200, 3, 1.0),
    Persons(200, 5, 1.0),
    Persons(60, 5, 1.0, rates=(0.1, 0.4)),
    Persons(200, 5, 0.7, full=False, rates=(0.1, 0.4)),
    Persons(400, 5, 0.0, full=False),
)


def answer_all(sample: Sample, setting: Persons) -> list[bool]:
    """Whether each answer of a sample holds the truth; for tests, whether they do not reject."""
    one, other = setting.rates
    women = float(sample.public.value(Margin("sex")).counts[0])
    n = float(sample.public.n or 0)
    share = women / n
    whole = share * one + (1 - share) * other
    wards = np.array([0.5, 0.3, 0.2])
    rates = np.array([[one, 1 - one], [other, 1 - other]])
    cells = np.array([share, 1 - share])[:, None, None] * wards[None, :, None] * rates[:, None, :]
    yes, female, male = {"vote": "a"}, {"sex": "a"}, {"sex": "b"}
    held = [
        women * one in ask(sample, {"sex": "a", "vote": "a"}),
        one in ask(sample, yes, among=female),
        one - other in ask(sample, yes, male, female),
        keeps(sample, RateMeasure.RISK_RATIO, one / other),
        keeps(sample, RateMeasure.ODDS_RATIO, one * (1 - other) / other / (1 - one)),
        one - whole in ask(sample, yes, {"sex": ["a", "b"]}, female),
        n * (cells[0, 0, 0] - cells[1, 2, 0])
        in ask(
            sample, {"sex": "a", "ward": "a", "vote": "a"}, {"sex": "b", "ward": "c", "vote": "a"}
        ),
        holds_all(sample, cells),
    ]
    fit = models.model(sample, "vote ~ sex + ward")
    truth = np.log((1 - other) / other) - np.log((1 - one) / one)
    place = fit.names.index("sex[b]")
    held.append(bool(fit.low[place] <= truth <= fit.high[place]))
    # Equal rates: the test of independence may reject 5%.
    test = models.model(sample, "~ sex * vote", against="~ sex + vote")
    assert test.against is not None
    held.append(test.against.p_value <= 0.05)
    return held


def cluster_rows(replicates: int) -> Iterator[tuple[object, ...]]:
    """Yield the persons, and how often each answer holds: with clusters (and without)."""
    for setting in PERSONS:
        source = np.random.default_rng(431)
        samples = Samples(setting.draw(source), [["sex"]], Budget.gdp(10))
        held = np.zeros((2, 10))
        for _ in range(replicates):
            sample = samples.draw(setting.draw(source), setting.most)
            held[0] += answer_all(sample, setting)
            held[1] += answer_all(evolve(sample, cluster=1), setting)
        shares = held / replicates
        texts = [f"{ours:.3f} ({alone:.3f})" for ours, alone in shares.T]
        equal = setting.rates[0] == setting.rates[1]
        yield setting, *texts[:-1], texts[-1] if equal else ""


# --- a group within another -------------------------------------------------------------------------

NESTED = tuple(
    itertools.product(
        ((20, 0.5), (160, 0.06), (160, 0.5), (160, 0.9), (1000, 0.1)),
        ((0.1, 0.3), (0.8, 0.1), (0.02, 0.02), (0.95, 0.05)),
        (Budget.gdp(20), Budget.gdp(2), Budget.gdp("1/2")),
    )
)


def nested_rows(replicates: int) -> Iterator[tuple[object, ...]]:
    """Yield records, the share of the inner group, rates, budget: coverage, and with exact sizes."""
    for (size, share), (one, other), budget in NESTED:
        row: list[str] = []
        for margins in ([], [["ward"]]):
            source = np.random.default_rng(432)
            start = np.array([[5, 5], [5, 5]])
            samples = Samples(start * max(size // 20, 1), margins, budget)
            held, rejected = 0, 0
            truth = one - (share * one + (1 - share) * other)
            for _ in range(replicates):
                inner = min(max(source.binomial(size, share), 1), size - 1)
                yes = source.binomial([inner, size - inner], [one, other])
                counts = np.stack([yes, np.array([inner, size - inner]) - yes], axis=1)
                sample = samples.draw(counts)
                found = ask(sample, {"vote": "a"}, {"ward": ["a", "b"]}, {"ward": "a"})
                held += truth in found
                rejected += found.p_value <= 0.05
            row.append(f"{held / replicates:.3f}")
            if one == other:
                row[-1] += f" (size {rejected / replicates:.3f})"
        yield size, share, f"{one}, {other}", short(budget), *row


# --- groups that share some records ------------------------------------------------------------------


def overlap_rows(replicates: int) -> Iterator[tuple[object, ...]]:
    """Yield records, rates of women and men, budget: coverage of the rate of women less that of a
    ward, with noisy and exact sizes, and where everybody has three alike records.
    """
    for n, (one, other), mu in itertools.product(
        (24, 150, 999), ((0.1, 0.3), (0.02, 0.02), (0.8, 0.1)), (20, 2, "1/2")
    ):
        row = []
        rates = np.array([[one, one], [other, other]])
        for margins, most in (([], 1), ([["sex", "ward"]], 1), ([], 3)):
            source = np.random.default_rng(439)
            samples = Samples(np.full((2, 2, 2), n // 8), margins, Budget.gdp(mu))
            held, rejected = 0, 0
            for _ in range(replicates):
                sizes = source.multinomial(n // most, np.full(4, 0.25)).reshape(2, 2)
                yes = source.binomial(sizes, rates)
                sample = samples.draw(most * np.stack([yes, sizes - yes], axis=2), most)
                found = ask(sample, {"vote": "a"}, {"ward": "a"}, {"sex": "a"})
                held += (one - other) / 2 in found
                rejected += found.p_value <= 0.05
            row.append(f"{held / replicates:.3f}")
            if one == other:
                row[-1] += f" ({rejected / replicates:.3f})"
        yield n, f"{one}, {other}", short(Budget.gdp(mu)), *row


# --- log-linear models ------------------------------------------------------------------------------


def loglinear_rows(replicates: int) -> Iterator[tuple[object, ...]]:
    """Yield records and budget: coverage of the coefficients of independent features, the least
    one, the size of the test of independence, and how often there is an answer.
    """
    wards, votes = np.array([0.5, 0.3, 0.2]), np.array([0.6, 0.3, 0.1])
    truth = {
        f"{name}[{level}]": np.log(share / shares[0])
        for name, shares in (("ward", wards), ("vote", votes))
        for level, share in zip("abc", shares, strict=True)
    }
    for n, mu in itertools.product((12, 60, 500), (20, 2, "1/2")):
        source = np.random.default_rng(440)
        samples = Samples(np.full((3, 3), max(n // 9, 1)), [], Budget.gdp(mu))
        held, rejected = [], 0
        for _ in range(replicates):
            counts = source.multinomial(n, np.outer(wards, votes).ravel()).reshape(3, 3)
            try:
                fit = models.model(samples.draw(counts), "~ ward + vote")
                test = models.model(
                    samples.draw(counts), "~ ward * vote", against="~ ward + vote"
                ).against
            except Refused:
                continue
            ends = zip(fit.names, fit.low, fit.high, strict=True)
            held.append([low <= truth[name] <= high for name, low, high in ends if name in truth])
            rejected += test is not None and test.p_value <= 0.05
        shares = np.mean(held, axis=0)
        numbers = shares.mean(), shares.min(), rejected / len(held), len(held) / replicates
        yield n, short(Budget.gdp(mu)), *(f"{number:.3f}" for number in numbers)


# --- empty groups -----------------------------------------------------------------------------------


def empty_rows(replicates: int) -> Iterator[tuple[object, ...]]:
    """Yield the groups without records and the budget: coverage of all slopes, the least one, the
    size of the fit test, and how often there is an answer.
    """
    effects = {"sex": np.array([0.0, 0.6, -0.4, 0.3]), "ward": np.array([0.0, -0.5, 0.5, 0.2])}
    rates = 1 / (1 + np.exp(-(-0.4 + effects["sex"][:, None] + effects["ward"][None])))
    cases = itertools.product((True, False), (0, 8, "a level"), (6, 50), (20, 1))
    for exact, empty, size, mu in cases:
        source, budget = np.random.default_rng(433), Budget.gdp(mu)
        sizes = np.full((4, 4), size)
        if empty == "a level":
            sizes[3] = 0
        elif empty:
            # every level keeps some records
            for row, column in itertools.product(range(4), (1, 2)):
                sizes[row, (row + column) % 4] = 0
        held, fits, answered, samples = [], 0, 0, None
        for _ in range(replicates):
            yes = source.binomial(sizes, rates)
            counts = np.stack([sizes - yes, yes], axis=2)
            samples = samples or Samples(counts, [["sex", "ward"]] if exact else [], budget)
            try:
                fit = models.model(samples.draw(counts), "vote ~ sex + ward")
            except Refused:
                continue
            answered += 1
            row = np.full(6, np.nan)
            for place, name in enumerate(fit.names[1:], 1):
                feature, level = name[:-1].split("[")
                if not (empty == "a level" and feature == "sex" and level == "d"):
                    truth = effects[feature]["abcd".index(level)]
                    row[place - 1] = fit.low[place] <= truth <= fit.high[place]
            held.append(row[~np.isnan(row)])
            fits += fit.fit is not None and fit.fit.p_value <= 0.05
        shares = np.mean(held, axis=0)
        numbers = f"{shares.mean():.3f}", f"{shares.min():.3f}", f"{fits / max(answered, 1):.3f}"
        whose = "exact" if exact else "noisy"
        yield whose, empty, size, short(budget), *numbers, f"{answered / replicates:.3f}"


# --- two groups compared ----------------------------------------------------------------------------


def compared_rows(replicates: int) -> Iterator[tuple[object, ...]]:
    """Yield sizes, rates, budget, whether sizes are exact: coverage of the difference, the risk
    ratio and the odds ratio, and the size of the test where rates are equal.
    """
    cases = itertools.product(
        ((20, 20), (50, 500)), ((0.02, 0.02), (0.1, 0.3)), (20, 2, "1/2"), (True, False)
    )
    for sizes, (one, other), mu, exact in cases:
        source = np.random.default_rng(438)
        budget = Budget.gdp(mu)
        start = np.stack([np.array(sizes) // 2, np.array(sizes) - np.array(sizes) // 2], axis=1)
        samples = Samples(start, [["ward"]] if exact else [], budget)
        held = np.zeros(4)
        for _ in range(replicates):
            yes = source.binomial(sizes, (one, other))
            sample = samples.draw(np.stack([yes, np.array(sizes) - yes], axis=1))
            found = ask(sample, {"vote": "a"}, {"ward": "b"}, {"ward": "a"})
            held += [
                one - other in found,
                keeps(sample, RateMeasure.RISK_RATIO, one / other, "ward"),
                keeps(
                    sample, RateMeasure.ODDS_RATIO, one / other * (1 - other) / (1 - one), "ward"
                ),
                found.p_value <= 0.05,
            ]
        texts = [f"{share:.3f}" for share in held / replicates]
        size = texts.pop()
        size = size if one == other else ""
        whose = "exact" if exact else "noisy"
        yield f"{sizes[0]}, {sizes[1]}", f"{one}, {other}", short(budget), whose, *texts, size


# --- sparse tables ----------------------------------------------------------------------------------


def sparse_rows(replicates: int) -> Iterator[tuple[object, ...]]:
    """Yield cells, records, budget: all cells at once, one rare cell, its share in a group, the
    difference of two rare cells, the size of its test.
    """
    for (levels, n), budget in itertools.product(
        (((12, 15), 257), ((6, 8), 60), ((3, 4), 12)),
        (Budget.gdp(20), Budget.gdp(2), Budget.gdp("1/2")),
    ):
        source = np.random.default_rng(434)
        shares = source.dirichlet(np.full(levels[0] * levels[1], 0.5)).reshape(levels)
        rare_cells = np.array([0.2, 0.2, 1.5]) / n
        shares[0, 0], shares[0, 1], shares[1, 0] = 0.0, 0.0, 0.0
        shares *= (1 - rare_cells.sum()) / shares.sum()
        shares[0, 0], shares[0, 1], shares[1, 0] = rare_cells
        samples = Samples(source.multinomial(n, shares.ravel()).reshape(levels), [], budget)
        rare = [{"ward": "a", "vote": "a"}, {"ward": "a", "vote": "b"}, {"ward": "b", "vote": "a"}]
        held = np.zeros(6)
        for _ in range(replicates):
            counts = source.multinomial(n, shares.ravel()).reshape(levels)
            sample = samples.draw(counts)
            difference = ask(sample, rare[0], rare[1])
            held += [
                holds_all(sample, shares),
                0.2 in ask(sample, rare[0]),
                0.2 / n / shares[0].sum() in ask(sample, {"vote": "a"}, among={"ward": "a"}),
                0.0 in difference,
                -1.3 in ask(sample, rare[0], rare[2]),
                difference.p_value <= 0.05,
            ]
        size = f"{levels[0] * levels[1]} | {n}"
        yield size, short(budget), *(f"{share:.3f}" for share in held / replicates)


# --- groups: skewed values, clusters ----------------------------------------------------------------


@frozen
class Values:
    """Groups of records with values from 0 to 1, off the grid that they are rounded to, of persons
    with `most` alike records.
    """

    counts: tuple[int, ...]
    law: str
    steps: int
    budget: Budget
    most: int = 1

    def draw(self, source: np.random.Generator) -> list[Counts]:
        """Values in steps of the grid, a list a group."""
        values = []
        for count in self.counts:
            persons = -(-count // self.most)
            drawn = np.repeat(_LAWS[self.law](source, persons), self.most)[:count]
            values.append(np.rint(self.steps * np.clip(drawn, 0, 1)).astype(np.int64))
        return values

    @property
    def mean(self) -> float:
        """The mean of what is drawn, off the grid, by four million values."""
        return float(np.clip(_LAWS[self.law](np.random.default_rng(1), 4 * 10**6), 0, 1).mean())

    @property
    def median(self) -> float:
        """The median of what is drawn, off the grid."""
        return float(np.median(np.clip(_LAWS[self.law](np.random.default_rng(1), 10**6), 0, 1)))

    def __str__(self) -> str:
        sizes = ", ".join(f"{count:,}" for count in self.counts)
        whose = "" if self.most == 1 else f", {self.most} alike each"
        return f"{sizes}{whose} | {self.law} | {short(self.budget)}"


_LAWS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "0.3": lambda source, size: source.binomial(1, 0.3, size).astype(float),
    "0.02": lambda source, size: source.binomial(1, 0.02, size).astype(float),
    "beta(2, 2)": lambda source, size: source.beta(2, 2, size),
    "beta(0.1, 9.9)": lambda source, size: source.beta(0.1, 9.9, size),
    "lognormal, σ = 1.5": lambda source, size: source.lognormal(0, 1.5, size) / 100,
    "lognormal, σ = 2": lambda source, size: source.lognormal(0, 2, size) / 300,
    "one in 100 at the top": lambda source, size: source.binomial(1, 0.01, size).astype(float),
}
CLEAR = Budget.gdp(100)
SKEWED = (
    Values((30, 300), "one in 100 at the top", 100, CLEAR),
    Values((100, 200), "one in 100 at the top", 100, CLEAR),
)
CLUSTERED = (
    Values((60, 300), "0.3", 1, Budget.gdp(10), most=3),
    Values((60, 300), "0.02", 1, Budget.gdp(10), most=3),
    Values((60, 300), "beta(2, 2)", 100, Budget.gdp(10), most=3),
)


def measure_groups(setting: Values, replicates: int) -> Iterator[tuple[GroupSums, GroupSums]]:
    """Yield what is measured of fresh records, with clusters and as if there were none."""
    source = np.random.default_rng(435)
    grid = Outcome("y", 0, 1, setting.steps)
    laws = []
    for most in (setting.most, 1):
        scope = Scope(_groups(setting.counts), None, Ball(2 * most, Protection("who", most)))
        space = sum_space(scope.dataspace, scope.adjacency, grid, [Margin("g")])
        laws.append(outcome_mechanism(space, setting.budget))
    for _ in range(replicates):
        values = setting.draw(source)
        found = []
        for mechanism in laws:
            sums = noisy(mechanism, np.array([part.sum() for part in values]), source)
            found.append(GroupSums(mechanism, sums))
        yield found[0], found[1]


def group_rows(settings: Sequence[Values]) -> Callable[[int], Iterator[tuple[object, ...]]]:
    """Yield the setting: coverage of the means, of their difference (0), size of `compare`."""

    def rows(replicates: int) -> Iterator[tuple[object, ...]]:
        for setting in settings:
            truth, groups = setting.mean, len(setting.counts)
            held = np.zeros((2, groups + 2))
            for pair in measure_groups(setting, replicates):
                for place, found in enumerate(pair):
                    means = found.mean_intervals(sampling=True)
                    difference = found.difference_intervals(sampling=True)
                    held[place, :groups] += (means.lower <= truth) & (truth <= means.upper)
                    held[place, groups] += difference.lower[0] <= 0 <= difference.upper[0]
                    held[place, -1] += found.compare(sampling=True).p_value <= 0.05
            ours, alone = held / replicates
            if setting.most == 1:
                yield setting, *(f"{share:.3f}" for share in ours)
            else:
                both = zip(ours, alone, strict=True)
                yield setting, *(f"{share:.3f} ({other:.3f})" for share, other in both)

    return rows


def regression_rows(replicates: int) -> Iterator[tuple[object, ...]]:
    """Yield the model, clusters and empty cells: coverage of the coefficients, the least one; in
    brackets as if records were independent.
    """
    beta = np.array([-0.7, 1.0, -0.4])
    cases = (((60, 45), (15, 300)), 3), (((60, 45), (0, 300)), 3), (((60, 45), (0, 300)), 1)
    for (counts, most), kind in itertools.product(cases, ("linear", "logistic")):
        source = np.random.default_rng(436)
        table = Table(Schema([Feature("a", "pq"), Feature("b", "rs")]), counts)
        dataspace = Dataspace.from_table(table, [Margin("a", "b")])
        design = Design.from_schema(table.schema, ["a", "b"])
        grid = Outcome("y", 0, 1, 1)
        sizes = np.array(counts).ravel()
        rows = design.rows().astype(float) / design.multiplier
        rates = 1 / (1 + np.exp(-rows @ beta))
        truth = beta
        if kind == "linear":
            gram = rows.T @ (sizes[:, None] * rows)
            truth = np.linalg.solve(gram, rows.T @ (sizes * rates))
        laws = [
            regression_mechanism(
                dataspace, Ball(2 * m, Protection("who", m)), grid, design, Budget.gdp(10)
            )
            for m in (most, 1)
        ]
        held = np.zeros((2, 3))
        for _ in range(replicates):
            ones = most * source.binomial(sizes // most, rates)
            for place, law in enumerate(laws):
                values = route_values(law.space, design, ones.reshape(2, 2))
                moments = Moments(law, noisy(law, values, source), design)
                fit = LinearFit(moments) if kind == "linear" else LogisticFit(moments)
                found = fit.intervals(sampling=True)
                held[place] += (found.lower <= truth) & (truth <= found.upper)
        ours, alone = held / replicates
        numbers = f"{ours.mean():.3f} ({alone.mean():.3f})", f"{ours.min():.3f} ({alone.min():.3f})"
        yield kind, ", ".join(map(str, sizes)), most, *numbers


def median_rows(replicates: int) -> Iterator[tuple[object, ...]]:
    """Yield groups of persons with alike records: how often the median of the population is held."""
    for most in (1, 3, 10):
        setting = Values((60, 600), "lognormal, σ = 1.5", 100, Budget.gdp(20), most=most)
        source = np.random.default_rng(437)
        truth, held = setting.median, np.zeros((2, 2))
        for place, protected in enumerate((most, 1)):
            adjacency = Ball(2 * protected, Protection("who", protected))
            space = rank_space(
                _groups(setting.counts),
                adjacency,
                Outcome("y", 0, 1, 100),
                [Margin("g")],
                level="0.95",
                sampling=True,
            )
            mechanism = exponential_mechanism(space, Budget.gdp(20 * protected))
            for run in range(replicates):
                histogram = np.stack(
                    [np.bincount(part, minlength=101) for part in setting.draw(source)]
                )
                measurement = mechanism.measure(histogram, SeededRandomness(run))
                (found,) = GroupQuantiles(mechanism, measurement).intervals()
                held[place] += (found.lower <= truth) & (truth <= found.upper)
        ours, alone = held / replicates
        yield most, *(f"{one:.3f} ({other:.3f})" for one, other in zip(ours, alone, strict=True))


def noisy(mechanism: Mechanism, totals: Counts, source: np.random.Generator) -> Measurement:
    """Totals with noise from a fast generator: for a study alone."""
    drawn = totals + simulate_noise(mechanism, totals.shape, source).astype(np.int64)
    return Measurement(drawn, mechanism.publish(drawn), mechanism.name, "exact", False)


def _groups(counts: Sequence[int]) -> Dataspace:
    table = Table(Schema([Feature("g", [f"g{k}" for k in range(len(counts))])]), np.array(counts))
    return Dataspace.from_table(table, [Margin("g")])


def short(budget: Budget) -> str:
    """A budget in a few letters."""
    assert budget.mu is not None
    return f"μ = {float(budget.mu):g}"


TABLES: dict[str, Callable[[int], Iterator[tuple[object, ...]]]] = {
    "clusters": cluster_rows,
    "nested": nested_rows,
    "overlap": overlap_rows,
    "loglinear": loglinear_rows,
    "empty": empty_rows,
    "compared": compared_rows,
    "sparse": sparse_rows,
    "skewed": group_rows(SKEWED),
    "clustered": group_rows(CLUSTERED),
    "regressions": regression_rows,
    "medians": median_rows,
}


def main(replicates: int, tables: list[str]) -> None:
    """Print the tables that are named, or all."""
    patch_questions()
    for name, table in TABLES.items():
        if not tables or name in tables:
            print(f"\n{name}")
            for row in table(replicates):
                print("|", " | ".join(map(str, row)), "|", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000, sys.argv[2:])
