"""Coverage and width of the posterior's intervals, beside those from the noise alone.

``run`` is the short version that ``make bench`` runs. ``python benchmarks/posteriors.py 20 sizes``
prints a table of docs/inference_checks.md again; without a name it prints all.
"""

import csv
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

import semidp
from semidp import (
    Budget,
    Feature,
    Plan,
    StructuralZero,
    TableRequest,
    TablesRequest,
    combine,
)
from semidp.core.spaces.cell_bounds import CellBounds
from semidp.errors import Refused
from semidp.noise.randomness import SeededRandomness
from semidp.publishing.release import Release
from semidp.questions.markov import chains_of, posterior

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
People = dict[str, list[str]]

_WALK = 4000  # steps without a likelihood, to a table from the prior


def records(name: str, features: list[str], kept: dict[str, set[str]] | None = None) -> People:
    """A record for each person of a dataset that comes with semidp; only some levels, if said."""
    path = files("semidp") / "data" / f"{name}.csv"
    people: People = {feature: [] for feature in features}
    for line in csv.DictReader(path.read_text().splitlines()):
        if kept is None or all(line[each] in levels for each, levels in kept.items()):
            for feature, values in people.items():
                values.extend([line[feature]] * int(line["count"]))
    return people


def levels_of(people: People) -> list[Feature]:
    """Features with the levels that occur."""
    return [Feature(name, sorted(set(values))) for name, values in people.items()]


@dataclass(frozen=True)
class Structure:
    """A release whose posterior is asked for, and the records that it is of.

    Parameters
    ----------
    name
        What is exact, and which noise there is.
    people
        The true records.
    asked
        The features of the table.
    make
        Publishes records with the noise of a seed.
    """

    name: str
    people: People
    asked: tuple[str, ...]
    make: Callable[[People, int], Release]

    def table(self, release: Release) -> Any:
        """The published table that is asked for."""
        for table in release.tables:
            if set(self.asked) <= set(table.schema.names):
                return table
        raise AssertionError("the table is published")

    def counted(self, people: People, schema: Any) -> Floats:
        """The true counts."""
        counts = np.zeros(schema.shape)
        axes = []
        for feature in schema.features:
            places = {level: place for place, level in enumerate(feature.levels)}
            axes.append([places[value] for value in people[feature.name]])
        np.add.at(counts, tuple(map(np.array, axes)), 1)
        return counts

    def from_prior(self, release: Release, seed: int) -> People:
        """Other records with the same exact totals: their table is any as likely as any other."""
        table = self.table(release)
        chains, _, _ = chains_of(release, table)
        start = self.counted(self.people, table.schema).astype(np.int64).ravel()[None]
        source = np.random.default_rng(seed)
        _, kept = chains.run(start, _WALK, source, flat=True, keep=1)
        assert kept is not None
        cells = np.stack(np.unravel_index(np.arange(start.size), table.schema.shape))
        chosen = np.repeat(cells, kept[-1, 0], axis=1)
        people: People = {}
        for feature, places in zip(table.schema.features, chosen, strict=True):
            for depth, name in enumerate(feature.names):
                paths = feature.paths()
                people[name] = [paths[place][depth] for place in places.tolist()]
        return people


def titanic_whole(mu: str) -> Structure:
    """All four features of the Titanic, their totals exact one by one."""
    names = ["class", "sex", "age", "survived"]
    plan = Plan([TableRequest(names, Budget.gdp(mu))], names)

    def make(people: People, seed: int) -> Release:
        return semidp.run(plan, people, SeededRandomness(seed))

    return Structure("three", records("titanic", names), tuple(names), make)


def circle() -> Structure:
    """Three pairs of features exact."""
    names = ["class", "sex", "survived"]
    people = records("titanic", names)
    pairs = [["class", "sex"], ["class", "survived"], ["sex", "survived"]]
    plan = Plan([TableRequest(names, Budget.gdp("0.1"))], pairs, levels_of(people))

    def make(chosen: People, seed: int) -> Release:
        return semidp.run(plan, chosen, SeededRandomness(seed))

    return Structure("circle: all pairs of class, sex, survived", people, tuple(names), make)


def zeros() -> Structure:
    """No child in the crew."""
    names = ["class", "age", "survived"]
    people = records("titanic", names)
    nobody = [StructuralZero.of({"class": "Crew", "age": "Child"})]
    plan = Plan(
        [TableRequest(names, Budget.gdp("0.5"))],
        names,
        levels_of(people),
        structural_zeros=nobody,
    )

    def make(chosen: People, seed: int) -> Release:
        return semidp.run(plan, chosen, SeededRandomness(seed))

    return Structure("structural zero: no child in the crew", people, tuple(names), make)


def nested() -> Structure:
    """Districts within four counties of California."""
    kept = {"county": {"Amador", "Calaveras", "Glenn", "Inyo", "Lassen", "Mendocino", "Trinity"}}
    people = records("california_schools", ["county", "district", "meals"], kept)
    pairs = sorted(set(zip(people["county"], people["district"], strict=True)))
    features = [Feature.nested(["county", "district"], pairs), Feature("meals", ["no", "yes"])]
    plan = Plan(
        [TableRequest(["district", "meals"], Budget.gdp("0.02"))],
        [["county", "meals"], ["district"]],
        features,
    )

    def make(chosen: People, seed: int) -> Release:
        return semidp.run(plan, chosen, SeededRandomness(seed))

    return Structure("nested: districts × meals in counties", people, ("district", "meals"), make)


def product() -> Structure:
    """Three tables that share a budget."""
    names = ["class", "sex", "age", "survived"]
    people = records("titanic", names)
    tables = [TableRequest([name, "survived"]) for name in ("class", "sex", "age")]
    plan = Plan([TablesRequest(tables, Budget.gdp("0.05"))], ["survived"], levels_of(people))

    def make(chosen: People, seed: int) -> Release:
        # Features that the table lacks are no part of a table from the prior.
        whole = {**people, **chosen}
        return semidp.run(plan, whole, SeededRandomness(seed))

    return Structure("product: three tables, one budget", people, ("class", "survived"), make)


def combined() -> Structure:
    """Two releases of the same records: a table, and a coarser one."""
    names = ["class", "sex", "survived"]
    people = records("titanic", names)
    features = levels_of(people)
    whole = Plan([TableRequest(names, Budget.gdp("0.1"))], names, features)
    coarse = Plan([TableRequest(["class", "survived"], Budget.gdp("0.1"))], names, features)

    def make(chosen: People, seed: int) -> Release:
        one = semidp.run(whole, chosen, SeededRandomness(2 * seed))
        return combine(one, semidp.run(coarse, chosen, SeededRandomness(2 * seed + 1)))

    return Structure("combined: the table, and class × survived again", people, tuple(names), make)


SHORT = (circle, nested, product, combined)
"""Structures of the short version: chains through structural zeros take longest."""


@dataclass
class Ends:
    """Intervals of several releases, with the true counts: runs × cells."""

    posterior: list[tuple[Floats, Floats]]
    noise: list[tuple[Floats, Floats]]
    truth: list[Floats]
    refused: int = 0


def ends_of(structure: Structure, runs: int, *, prior: bool = False) -> Ends:
    """Intervals of the posterior and of the noise alone, cut to what the totals allow."""
    ends = Ends([], [], [])
    for seed in range(runs):
        people = structure.people
        if prior:
            people = structure.from_prior(structure.make(people, seed), seed)
        release = structure.make(people, 1000 + seed)
        table = structure.table(release)
        try:
            answer = posterior(release, table.name, randomness=SeededRandomness(seed))
        except Refused:
            ends.refused += 1
            continue
        bounds = CellBounds.of(release.scope.dataspace, table.schema.names)
        low = np.maximum(np.ceil(table.estimate - table.half_widths - 1e-9), bounds.lower)
        high = np.minimum(np.floor(table.estimate + table.half_widths + 1e-9), bounds.upper)
        varying = (bounds.upper > bounds.lower) & (table.standard_errors > 0)
        truth = structure.counted(people, table.schema)
        ends.posterior.append((answer.low[varying], answer.high[varying]))
        # An interval that misses what is possible becomes the nearest possible number.
        low = np.minimum(low, bounds.upper)
        ends.noise.append((low[varying], np.maximum(high, low)[varying]))
        ends.truth.append(truth[varying])
    return ends


def shares(ends: Ends, chosen: Callable[[Floats], NDArray[np.bool_]]) -> list[str]:
    """Coverage with its Monte Carlo error over releases, and mean width, of both intervals."""
    cells = []
    for intervals in (ends.posterior, ends.noise):
        held, widths = [], []
        for (low, high), truth in zip(intervals, ends.truth, strict=True):
            some = chosen(truth)
            inside = (low <= truth) & (truth <= high)
            held.append(float(inside[some].mean()))
            widths.append(float((high - low)[some].mean()))
        error = float(np.std(held)) / math.sqrt(len(held))
        cells += [f"{np.mean(held):.3f} ± {error:.3f}", f"{np.mean(widths):.1f}"]
    return cells


def everything(truth: Floats) -> NDArray[np.bool_]:
    """All cells."""
    return np.ones(truth.shape, dtype=bool)


def between(first: float, last: float, truth: Floats) -> NDArray[np.bool_]:
    """Cells with counts from the first number up to below the last."""
    return np.asarray((truth >= first) & (truth < last))


def size_rows(runs: int) -> Iterator[tuple[object, ...]]:
    """Yield coverage and width by the size of cells, in units of the noise's standard deviation."""
    for mu in ("0.1", "1"):
        structure = titanic_whole(mu)
        ends = ends_of(structure, runs)
        table = structure.table(structure.make(structure.people, 0))
        deviation = float(table.standard_errors.max())
        bounds = (0.0, 0.25, 1.0, 4.0, math.inf)
        for first, last in itertools.pairwise(bounds):
            chosen = partial(between, first * deviation, last * deviation)
            count = int(chosen(ends.truth[0]).sum())
            if count:
                label = f"{first:g} σ to {last:g} σ" if last < math.inf else f"{first:g} σ and more"
                yield f"μ = {mu}", f"{deviation:.1f}", label, count, *shares(ends, chosen)
        yield f"μ = {mu}", f"{deviation:.1f}", "all", len(ends.truth[0]), *shares(ends, everything)


def structure_rows(make: Callable[[], Structure], runs: int) -> Iterator[tuple[object, ...]]:
    """Yield coverage and width for a structure, of the true table and of tables from the prior."""
    structure = make()
    for label, prior in (("the true table", False), ("drawn from the prior", True)):
        ends = ends_of(structure, runs, prior=prior)
        refused = f"{ends.refused} of {runs}"
        cells = shares(ends, everything) if ends.truth else [""] * 4
        yield structure.name, label, *cells, refused


def run() -> list[dict[str, Any]]:
    """Short versions: width at small cells over that of the noise alone, and coverage under the
    prior.
    """
    structure = titanic_whole("0.1")
    ends = ends_of(structure, 1)
    small = ends.truth[0] < 39
    widths = []
    for low, high in (ends.posterior[0], ends.noise[0]):
        widths.append(float((high - low)[small].mean()))
    ratio = widths[0] / widths[1]
    rows = [
        {
            "name": "width of the posterior's intervals over the noise's, small cells",
            "ratio": ratio,
            "target": "≤ 0.6",
            "ok": ratio <= 0.6,
        }
    ]
    for make in SHORT:
        structure = make()
        drawn = ends_of(structure, 2, prior=True)
        inside = []
        for (low, high), truth in zip(drawn.posterior, drawn.truth, strict=True):
            inside.append((low <= truth) & (truth <= high))
        held = float(np.mean(np.concatenate(inside)))
        # Cells of a table depend on each other: as if no more than four of a table were free.
        least = 0.95 - 3.1 * math.sqrt(0.95 * 0.05 / 8)
        rows.append(
            {
                "name": f"coverage at 0.95 under the prior, {structure.name}",
                "ratio": held,
                "target": f"≥ {least:.2f}",
                "ok": held >= least,
            }
        )
    return rows


TABLES: dict[str, Callable[[int], Iterator[tuple[object, ...]]]] = {
    "sizes": size_rows,
    "circle": partial(structure_rows, circle),
    "nested": partial(structure_rows, nested),
    "product": partial(structure_rows, product),
    "combined": partial(structure_rows, combined),
    "zeros": partial(structure_rows, zeros),
}


def main(runs: int, names: list[str]) -> None:
    """Print tables of docs/inference_checks.md."""
    for name in names or list(TABLES):
        print(f"\n{name}, {runs} runs")
        for row in TABLES[name](runs):
            print("| " + " | ".join(map(str, row)) + " |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20, sys.argv[2:])
