"""Coverage and width of the posterior's intervals, beside those from the noise alone.

``run`` is the short version that ``make bench`` runs. ``python benchmarks/posteriors.py 20 sizes``
prints a table of docs/inference_checks.md again; without a name it prints all. With
``--results FILE`` every release that is done is kept there, and read instead of made again.
"""

import argparse
import csv
import itertools
import json
import math
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, frozen
from numpy.typing import NDArray

import semidp
from semidp import Budget, Feature, Plan, StructuralZero, combine
from semidp.errors import Refused
from semidp.inference.cell_bounds import CellBounds
from semidp.inference.markov import build_chains, posterior
from semidp.present.release import Release
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import TableRequest, TablesRequest

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
People = dict[str, list[str]]

_WALK = 20_000  # steps without a likelihood, to a table from the prior
_TABLES = 64  # that are drawn from a prior together


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


@frozen(slots=False)
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

    @cached_property
    def tables_from_prior(self) -> Counts:
        """Tables with the same exact totals, any as likely as any other: `_TABLES` of them."""
        release = self.make(self.people, 0)
        table = self.table(release)
        chains, _, _ = build_chains(release, table)
        start = self.counted(self.people, table.schema).astype(np.int64).ravel()
        tables = np.broadcast_to(start, (_TABLES, start.size))
        _, kept = chains.run(tables, _WALK, np.random.default_rng(1), flat=True, keep=1)
        assert kept is not None
        return np.asarray(kept[-1])

    def from_prior(self, seed: int) -> People:
        """Other records with the same exact totals, from the prior."""
        schema = self.table(self.make(self.people, 0)).schema
        cells = np.stack(np.unravel_index(np.arange(schema.size), schema.shape))
        chosen = np.repeat(cells, self.tables_from_prior[seed], axis=1)
        people: People = {}
        for feature, places in zip(schema.features, chosen, strict=True):
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

    name = f"one by one: class, sex, age, survived, μ = {mu}"
    return Structure(name, records("titanic", names), tuple(names), make)


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
    nobody = [StructuralZero.from_pattern({"class": "Crew", "age": "Child"})]
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
    features = [Feature.from_paths(["county", "district"], pairs), Feature("meals", ["no", "yes"])]
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


@frozen
class Intervals:
    """Intervals of the varying cells of one release, with the true counts."""

    posterior: tuple[Floats, Floats]
    noise: tuple[Floats, Floats]
    truth: Floats

    def held(self, ends: tuple[Floats, Floats]) -> NDArray[np.bool_]:
        """Which of some intervals hold the true counts."""
        low, high = ends
        return np.asarray((low <= self.truth) & (self.truth <= high))

    def to_json(self) -> dict[str, list[float]]:
        """Return the ends and the true counts as plain values."""
        ends = [*self.posterior, *self.noise, self.truth]
        return dict(zip(_ENDS, [each.tolist() for each in ends], strict=True))

    @classmethod
    def from_json(cls, values: dict[str, list[float]]) -> "Intervals":
        """Read what `to_json` wrote."""
        low, high, noise_low, noise_high, truth = (np.array(values[name]) for name in _ENDS)
        return cls((low, high), (noise_low, noise_high), truth)


_ENDS = ("low", "high", "noise low", "noise high", "truth")


@define
class Ends:
    """Intervals of several releases."""

    releases: list[Intervals]
    refused: int = 0


class Results:
    """Releases that are done, one a line of a file: a run that is cut off goes on where it was."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._done: dict[tuple[str, bool, int], Intervals | None] = {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                ends = entry["ends"]
                key = (entry["structure"], entry["prior"], entry["seed"])
                self._done[key] = None if ends is None else Intervals.from_json(ends)

    def of(self, structure: Structure, prior: bool, seed: int) -> Intervals | None:
        """Intervals of a release, made now unless they are in the file; None where refused."""
        key = (structure.name, prior, seed)
        if key not in self._done:
            self._done[key] = intervals_of(structure, prior, seed)
            self._write(key)
        return self._done[key]

    def _write(self, key: tuple[str, bool, int]) -> None:
        if self._path is None:
            return
        intervals = self._done[key]
        entry = dict(zip(("structure", "prior", "seed"), key, strict=True))
        ends = None if intervals is None else intervals.to_json()
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**entry, "ends": ends}, ensure_ascii=False) + "\n")


def intervals_of(structure: Structure, prior: bool, seed: int) -> Intervals | None:
    """Intervals of the posterior and of the noise alone, cut to what the totals allow; None where
    the chains do not agree.
    """
    people = structure.people
    if prior:
        people = structure.from_prior(seed)
    release = structure.make(people, 1000 + seed)
    table = structure.table(release)
    try:
        answer = posterior(release, table.name, randomness=SeededRandomness(seed))
    except Refused:
        return None
    bounds = CellBounds.from_dataspace(release.scope.dataspace, table.schema.names)
    low = np.maximum(np.ceil(table.estimate - table.half_widths - 1e-9), bounds.lower)
    high = np.minimum(np.floor(table.estimate + table.half_widths + 1e-9), bounds.upper)
    varying = (bounds.upper > bounds.lower) & (table.standard_errors > 0)
    truth = structure.counted(people, table.schema)
    # An interval that misses what is possible becomes the nearest possible number.
    low = np.minimum(low, bounds.upper)
    high = np.maximum(high, low)
    return Intervals(
        (answer.low[varying], answer.high[varying]), (low[varying], high[varying]), truth[varying]
    )


def ends_of(
    structure: Structure, runs: int, *, prior: bool = False, results: Results | None = None
) -> Ends:
    """Intervals of several releases: of the true records, or of others from the prior."""
    kept = Results(None) if results is None else results
    ends = Ends([])
    for seed in range(runs):
        intervals = kept.of(structure, prior, seed)
        if intervals is None:
            ends.refused += 1
        else:
            ends.releases.append(intervals)
    return ends


def shares(ends: Ends, chosen: Callable[[Floats], NDArray[np.bool_]]) -> list[str]:
    """Coverage and mean width of both intervals, each with its Monte Carlo error.

    Cells of one release share their noise and their totals. So a release is one draw: errors are
    ``s / √m`` of the shares (and of the mean widths) of the m releases.
    """
    cells = []
    for name in ("posterior", "noise"):
        held, widths = [], []
        for intervals in ends.releases:
            low, high = getattr(intervals, name)
            some = chosen(intervals.truth)
            if some.any():
                held.append(float(intervals.held((low, high))[some].mean()))
                widths.append(float((high - low)[some].mean()))
        cells += [f"{np.mean(held):.3f} ± {error_of(held):.3f}"]
        cells += [f"{np.mean(widths):.1f} ± {error_of(widths):.1f}"]
    return cells


def error_of(values: list[float]) -> float:
    """Standard error of the mean of independent numbers; nan for a single one."""
    if len(values) == 1:
        return math.nan
    return float(np.std(values, ddof=1)) / math.sqrt(len(values))


def everything(truth: Floats) -> NDArray[np.bool_]:
    """All cells."""
    return np.ones(truth.shape, dtype=bool)


def between(first: float, last: float, truth: Floats) -> NDArray[np.bool_]:
    """Cells with counts from the first number up to below the last."""
    return np.asarray((truth >= first) & (truth < last))


def size_rows(prior: bool, runs: int, results: Results) -> Iterator[tuple[object, ...]]:
    """Yield coverage and width by the size of cells, in units of the noise's standard deviation."""
    for mu in ("0.1", "1"):
        structure = titanic_whole(mu)
        ends = ends_of(structure, runs, prior=prior, results=results)
        table = structure.table(structure.make(structure.people, 0))
        deviation = float(table.standard_errors.max())
        bounds = (0.0, 0.25, 1.0, 4.0, math.inf)
        for first, last in itertools.pairwise(bounds):
            chosen = partial(between, first * deviation, last * deviation)
            counts = [int(chosen(intervals.truth).sum()) for intervals in ends.releases]
            if any(counts):
                label = f"{first:g} σ to {last:g} σ" if last < math.inf else f"{first:g} σ and more"
                yield f"μ = {mu}", label, f"{np.mean(counts):g}", *shares(ends, chosen), runs
        size = len(ends.releases[0].truth)
        yield f"μ = {mu}", "all", size, *shares(ends, everything), runs


def cell_rows(runs: int, results: Results) -> Iterator[tuple[object, ...]]:
    """Yield cells of the Titanic that the posterior holds in fewer than nine of ten releases."""
    for mu in ("0.1", "1"):
        structure = titanic_whole(mu)
        ends = ends_of(structure, runs, results=results)
        held = np.mean([each.held(each.posterior) for each in ends.releases], axis=0)
        alone = np.mean([each.held(each.noise) for each in ends.releases], axis=0)
        schema = structure.table(structure.make(structure.people, 0)).schema
        levels = list(itertools.product(*(feature.levels for feature in schema.features)))
        for place in np.flatnonzero(held < 0.9):
            count = int(ends.releases[0].truth[place])
            cell = ", ".join(levels[place])
            yield f"μ = {mu}", cell, count, f"{held[place]:.2f}", f"{alone[place]:.2f}", runs


def structure_rows(
    make: Callable[[], Structure], runs: int, results: Results
) -> Iterator[tuple[object, ...]]:
    """Yield coverage and width for a structure, of the true table and of tables from the prior."""
    structure = make()
    for label, prior in (("the true table", False), ("drawn from the prior", True)):
        ends = ends_of(structure, runs, prior=prior, results=results)
        refused = f"{ends.refused} of {runs}"
        cells = shares(ends, everything) if ends.releases else [""] * 4
        yield structure.name, label, *cells, refused


def run() -> list[dict[str, Any]]:
    """Short versions: width at small cells over that of the noise alone, and coverage under the
    prior.
    """
    structure = titanic_whole("0.1")
    (release,) = ends_of(structure, 1).releases
    small = release.truth < 39
    widths = []
    for low, high in (release.posterior, release.noise):
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
        inside = [each.held(each.posterior) for each in drawn.releases]
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


TABLES: dict[str, Callable[[int, Results], Iterator[tuple[object, ...]]]] = {
    "sizes": partial(size_rows, False),
    "cells": cell_rows,
    "sizes-from-prior": partial(size_rows, True),
    "nested": partial(structure_rows, nested),
    "circle": partial(structure_rows, circle),
    "product": partial(structure_rows, product),
    "combined": partial(structure_rows, combined),
    "zeros": partial(structure_rows, zeros),
}


def main() -> None:
    """Print tables of docs/inference_checks.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=int, nargs="?", default=20, help="releases a line")
    parser.add_argument("names", nargs="*", help=f"some of: {', '.join(TABLES)} (default: all)")
    parser.add_argument("--results", type=Path, help="file of the releases that are done")
    options = parser.parse_args()
    results = Results(options.results)
    for name in options.names or list(TABLES):
        print(f"\n{name}, {options.runs} runs")
        for row in TABLES[name](options.runs, results):
            print("| " + " | ".join(map(str, row)) + " |", flush=True)


if __name__ == "__main__":
    main()
