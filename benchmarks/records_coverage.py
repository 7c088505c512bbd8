"""Intervals combined from several files of records: how often they hold the truth, for four kinds
of answers.

People are drawn, released by all pairs, and written as five files; a count, a rate, a mean and a
coefficient of a logistic regression are computed from each file and combined. An interval for these
people allows for the noise alone; one for the population allows for sampling as well. 95% of them
should hold.
"""

import math
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp import Budget, Feature, Plan
from semidp import run as release
from semidp.inference import combine_estimates
from semidp.inference.records.synthetic import SyntheticRecords
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import TablesRequest
from semidp.publish.statistics.tables.request import list_all_tables

PEOPLE, FILES, REPEATS = 3_000, 5, 200
AGES = (20.0, 35.0, 50.0, 70.0)
LEVELS = {"sex": 2, "age": 4, "region": 5, "ill": 2}
COEFFICIENTS = (-1.5, 0.5, 0.3, 0.7, 1.1)  # of illness: intercept, sex, ages beside the first
NOMINAL, LEAST = 0.95, 0.90
ANSWERS = ("count", "rate", "mean", "coefficient")

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]


def run() -> list[dict[str, Any]]:
    """Measure the coverage of every answer, for these people and for the population."""
    rows = []
    for kind, shares in coverage(REPEATS).items():
        for answer, share in zip(ANSWERS, shares, strict=True):
            name = f"{FILES} files combined: 95% intervals of a {answer} that hold for {kind}"
            rows.append(
                {"name": name, "ratio": share, "target": f"≥ {LEAST}", "ok": share >= LEAST}
            )
    return rows


def coverage(repeats: int, seed: int = 0) -> dict[str, list[float]]:
    """Return the share of intervals that hold, by whom they are for, for each kind of answer."""
    held = {"these people": np.zeros(len(ANSWERS)), "the population": np.zeros(len(ANSWERS))}
    # The count of these people and the true coefficient are known; rate and mean come from a large
    # population.
    aim = answers(people(np.random.default_rng(99), 2_000_000))[0]
    aim[0] = POPULATION_SHARE * PEOPLE
    aim[3] = COEFFICIENTS[1]
    for repeat in range(seed, seed + repeats):
        drawn = people(np.random.default_rng(repeat), PEOPLE)
        truth = answers(drawn)[0]
        found = [answers(codes_of(each)) for each in files_of(drawn, repeat)]
        values = np.stack([value for value, _ in found])
        squares = np.stack([variance for _, variance in found])
        for place in range(len(ANSWERS)):
            noise = combine_estimates(values[:, place])
            both = combine_estimates(values[:, place], squares[:, place])
            held["these people"][place] += noise.low <= truth[place] <= noise.high
            held["the population"][place] += both.low <= aim[place] <= both.high
    return {kind: (shares / repeats).tolist() for kind, shares in held.items()}


def people(rng: np.random.Generator, count: int) -> Codes:
    """Draw people: regions differ in age, and illness follows a logistic model of sex and age."""
    region = rng.choice(5, size=count, p=[0.3, 0.25, 0.2, 0.15, 0.1])
    sex = rng.integers(2, size=count)
    tilt = np.array([[4, 3, 2, 1], [3, 3, 2, 2], [2, 3, 3, 2], [2, 2, 3, 3], [1, 2, 3, 4]]) / 10
    age = (rng.random(count)[:, None] > np.cumsum(tilt, axis=1)[region]).sum(axis=1)
    lines = design(sex, age) @ np.array(COEFFICIENTS)
    ill = (rng.random(count) < 1 / (1 + np.exp(-lines))).astype(np.int64)
    return np.stack([sex, age, region, ill], axis=1)


def design(sex: Codes, age: Codes) -> Floats:
    """The columns of the regression: an intercept, sex, and ages beside the first."""
    columns = [np.ones(len(sex)), sex, age == 1, age == 2, age == 3]
    return np.stack(columns, axis=1).astype(np.float64)


def answers(codes: Codes) -> tuple[Floats, Floats]:
    """Return the four answers from records, and their variances by sampling as any software
    computes them.
    """
    sex, age, region, ill = codes.T
    count = len(codes)
    old_and_ill = ((age == 3) & (ill == 1)).sum()
    share = old_and_ill / count
    inside = region == 2
    rate = ill[inside].mean()
    years = np.array(AGES)[age[sex == 1]]
    coefficient, variance = logistic(design(sex, age), ill)
    values = [old_and_ill, rate, years.mean(), coefficient[1]]
    variances = [
        count * share * (1 - share),
        rate * (1 - rate) / inside.sum(),
        years.var(ddof=1) / len(years),
    ]
    return np.array(values, dtype=np.float64), np.array(
        [*variances, variance[1, 1]], dtype=np.float64
    )


def logistic(columns: Floats, outcome: Codes) -> tuple[Floats, Floats]:
    """Fit a logistic regression by Newton's method; return coefficients and their covariance."""
    coefficients = np.zeros(columns.shape[1])
    for _ in range(25):
        chances = 1 / (1 + np.exp(-columns @ coefficients))
        information = (columns * (chances * (1 - chances))[:, None]).T @ columns
        step = np.linalg.solve(information, columns.T @ (outcome - chances))
        coefficients += step
        if np.abs(step).max() < 1e-10:
            break
    return coefficients, np.linalg.inv(information)


def _expected_share() -> float:
    """The chance to be old and ill in the population, by all combinations."""
    tilt = np.array([[4, 3, 2, 1], [3, 3, 2, 2], [2, 3, 3, 2], [2, 2, 3, 3], [1, 2, 3, 4]]) / 10
    old = float(np.array([0.3, 0.25, 0.2, 0.15, 0.1]) @ tilt[:, 3])
    chances = [
        1 / (1 + math.exp(-(COEFFICIENTS[0] + COEFFICIENTS[4] + COEFFICIENTS[1] * sex)))
        for sex in (0, 1)
    ]
    return old * sum(chances) / 2


POPULATION_SHARE = _expected_share()


def files_of(codes: Codes, seed: int) -> list[SyntheticRecords]:
    """Release people by all pairs and put several files of records together."""
    names = list(LEVELS)
    data = {name: [str(level) for level in codes[:, place]] for place, name in enumerate(names)}
    features = [
        Feature(name, [str(level) for level in range(size)]) for name, size in LEVELS.items()
    ]
    plan = Plan(
        [TablesRequest(list_all_tables(names), Budget.gdp(1))],
        invariants=["sex", "region"],
        features=features,
    )
    done = release(plan, data, SeededRandomness(seed))
    return done.several_records(FILES, SeededRandomness(seed + 1_000_000))


def codes_of(records: SyntheticRecords) -> Codes:
    """The levels of records by their numbers."""
    return np.stack([place.astype(np.int64) for place in records.places], axis=1)


if __name__ == "__main__":
    for kind, shares in coverage(int(sys.argv[1])).items():
        print(kind, dict(zip(ANSWERS, shares, strict=True)))
