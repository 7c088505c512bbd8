"""What a release states, against what two datasets differ by: from release.json and plain records.

Nothing here imports the package. Every measured number is computed again from the records, by its
definition in the documentation.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from attrs import define, frozen

from tests.twins.people import Leaf, Record, World

Vector = np.ndarray
SLACK = 1e-9  # relative: what is stated is exact, what is computed here is not
GAUSSIAN = ("rounded gaussian", "discrete gaussian", "lattice gaussian")


class Query:
    """What a record adds to measured whole numbers, and to the same numbers in units of the noise."""

    def __init__(self, whole: Callable[[Any], Vector], scaled: Callable[[Any], Vector]) -> None:
        self._whole, self._scaled = whole, scaled
        self._known: dict[Any, tuple[Vector, Vector]] = {}

    def of(self, record: Any) -> tuple[Vector, Vector]:
        if record not in self._known:
            self._known[record] = self._whole(record), self._scaled(record)
        return self._known[record]

    def change(self, before: Sequence[Any], after: Sequence[Any], place: int = 1) -> Vector:
        """How far the numbers move, in whole numbers (0) or in units of the noise (1)."""
        return sum(self.of(r)[place] for r in after) - sum(self.of(r)[place] for r in before)


# --- what a record adds ---------------------------------------------------------------------------


def nodes_of(world: World, names: Sequence[str]) -> list[tuple[int, list[Leaf]]]:
    """The features that some columns name, each with its nodes at the deepest of these columns."""
    depths: dict[int, int] = {}
    for name in names:
        number, depth = world.places[name]
        depths[number] = max(depths.get(number, 0), depth)
    return [
        (number, list(dict.fromkeys(leaf[:depth] for leaf in world.leaves[number])))
        for number, depth in depths.items()
    ]


def cell_of(world: World, names: Sequence[str]) -> tuple[int, Callable[[Record], int]]:
    """The number of cells of a table, and the cell of a record."""
    axes = nodes_of(world, names)
    shape = [len(nodes) for _, nodes in axes]
    index = [{node: place for place, node in enumerate(nodes)} for _, nodes in axes]
    depth = [len(nodes[0]) for _, nodes in axes]

    def find(record: Record) -> int:
        cell = 0
        for (number, _), size, known, deep in zip(axes, shape, index, depth, strict=True):
            cell = cell * size + known[record[number][:deep]]
        return cell

    return math.prod(shape), find


def one_hot(size: int, place: int) -> Vector:
    vector = np.zeros(size)
    vector[place] = 1
    return vector


def residual(
    world: World, names: Sequence[str], inhabited: Sequence[set[Leaf]]
) -> Callable[[Record], tuple[Vector, Vector]]:
    """A record's part of the residual of a table, and the same as a whole number.

    Along every feature the mean of the siblings is subtracted; siblings are those that can occur.
    """
    axes = []
    for number, nodes in nodes_of(world, names):
        depth = len(nodes[0])
        there = [node for node in nodes if any(leaf[:depth] == node for leaf in inhabited[number])]
        axes.append((number, depth, there))

    def find(record: Record) -> tuple[Vector, Vector]:
        real, whole = np.ones(1), np.ones(1)
        for number, depth, nodes in axes:
            mine = record[number][:depth]
            family = [sum(other[:-1] == node[:-1] for other in nodes) for node in nodes]
            along = np.array(
                [
                    (node == mine) - 1 / size if node[:-1] == mine[:-1] else 0.0
                    for node, size in zip(nodes, family, strict=True)
                ]
            )
            real = np.kron(real, along)
            whole = np.kron(whole, np.round(along * family))
        return real, whole

    return find


@frozen
class Scale:
    """How an outcome is read: clipped to bounds, and rounded to steps."""

    column: str
    low: Fraction
    high: Fraction
    steps: int

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> "Scale":
        low, high = map(Fraction, entry.get("bounds", ("0", "1")))
        return cls(entry["column"].split("=")[0], low, high, int(entry.get("grid", 1)))

    def step(self, world: World, record: Record) -> int | None:
        """The step of a record's value; None where it has none."""
        number, depth = world.places[self.column]
        text = record[number][depth - 1]
        if text is None:
            return None
        value = min(max(Fraction(text), self.low), self.high)
        return math.floor((value - self.low) / (self.high - self.low) * self.steps + Fraction(1, 2))


def cut(low: int, high: int) -> Iterator[tuple[int, int, int]]:
    """The nodes of the tree of halves over the values low to before high: first, middle, end."""
    if high - low > 1:
        middle = low + (high - low + 1) // 2
        yield low, middle, high
        yield from cut(low, middle)
        yield from cut(middle, high)


def joined(parts: Sequence[Vector]) -> Vector:
    return np.concatenate(parts) if parts else np.zeros(0)


# --- results of a release -------------------------------------------------------------------------


@define
class Result:
    """One result: its noise, what it states, and the query it measures."""

    entry: Mapping[str, Any]
    query: Query
    world: Any
    a: int

    @property
    def law(self) -> str:
        return str(self.entry["noise"]["law"])

    @property
    def stated(self) -> tuple[str, Fraction]:
        return stated_number(self.entry["guarantee"])

    def cost(self, before: Sequence[Any], after: Sequence[Any]) -> tuple[str, float]:
        """How far apart two datasets are: μ² or 2ρ of Gaussian noise, or ε."""
        change = self.query.change(before, after)
        if self.law == "laplace":
            return "epsilon", float(np.abs(change).sum())
        if self.law == "l2":
            return "epsilon", float(np.sqrt((change**2).sum()))
        if self.law == "k-norm":
            return "epsilon", self._hull_norm(change)
        return "squares", float((change**2).sum())

    def _hull_norm(self, change: Vector) -> float:
        """The norm of a move in the hull of all moves, times the ε of the noise; 0 where there is no
        closed form.
        """
        rate = float(Fraction(self.entry["noise"]["epsilon"]))
        shape = [len(nodes) for _, nodes in nodes_of(self.world, self.entry["features"])]
        exact = [
            any(self.world.places[name] in block for block in self.world.blocks)
            for name in self.entry["features"]
        ]
        table = np.abs(change.reshape(shape))
        if not any(self.world.depths):
            return rate * table.sum() / (2 * self.a)
        if len(shape) != 2 or any(len(block) > 1 for block in self.world.blocks):
            return 0.0
        if all(exact) and self.a <= 3 and min(shape) == 2:
            return rate * table.sum() / 4
        if all(exact) and self.a == 3 and min(shape) == 3:
            return rate * max(table.sum(axis=0).max(), table.sum(axis=1).max()) / 2
        return 0.0

    def ratio(self, before: Sequence[Any], after: Sequence[Any]) -> float:
        """The cost of a pair over what is stated: at most 1 if the claim holds."""
        kind, number = self.stated
        unit, cost = self.cost(before, after)
        if unit == "squares":
            allowed = {"mu": number, "rho": 2 * number}[kind]
        else:
            allowed = {"epsilon": number}[kind]
        return cost / float(allowed) if allowed else math.inf if cost > 1e-12 else 0.0


def stated_number(guarantee: Mapping[str, Any]) -> tuple[str, Fraction]:
    """The kind and the number of a guarantee: μ², ρ or ε."""
    if guarantee["kind"] == "gaussian":
        return "mu", Fraction(guarantee["mu_squared"])
    if guarantee["kind"] == "zcdp":
        return "rho", Fraction(guarantee["rho"])
    assert guarantee["kind"] == "approximate", guarantee
    assert Fraction(guarantee["delta"]) == 0, guarantee
    return "epsilon", Fraction(guarantee["epsilon"]) * guarantee.get("group", 1)


def inhabited_leaves(world: World, totals: Sequence[Mapping[Any, int]]) -> list[set[Leaf]]:
    """The leaves of each feature that no exact total rules out."""
    found = [set(leaves) for leaves in world.leaves]
    for block, total in zip(world.blocks, totals, strict=True):
        for place, (number, depth) in enumerate(block):
            there = {value[place] for value, count in total.items() if count}
            found[number] &= {leaf for leaf in world.leaves[number] if leaf[:depth] in there}
    return found


class Claims:
    """All results of a release of one file."""

    def __init__(
        self, world: World, document: Mapping[str, Any], records: Sequence[Record]
    ) -> None:
        self.world, self.document = world, document
        self.a = int(document["a"]["used"])
        self.inhabited = inhabited_leaves(world, world.totals(records))
        self.results: list[Result] = []
        self.choices: list[Choices] = []
        self.tests: list[OddsRatio] = []
        plan = document["plan"]
        keys = ("tables", "products", "partitioned")
        for entry in (entry for key in keys for entry in document.get(key, ())):
            if "residuals" in entry:
                query = residual_query(world, entry, self.inhabited)
                self.results.append(Result(entry, query, world, self.a))
            else:
                size, cell = cell_of(world, entry["features"])
                self._add(entry, lambda r, size=size, cell=cell: one_hot(size, cell(r)))
        asked = {
            each["name"]: each
            for key in ("group", "answered", "distribution", "quantile")
            for each in plan.get(key, ())
        }
        for entry in document["groups"]:
            self._add(entry, self._sums(asked[entry["name"]]))
        for entry in document.get("answers", ()):
            self._add(entry, self._answers(entry, asked[entry["name"]]))
        for entry in document.get("distributions", ()):
            self._add(entry, self._halves(asked[entry["name"]]))
        for entry in document["regressions"]:
            self._add(entry, self._moments(entry["query"]))
        for entry in document.get("quantiles", ()):
            self.choices.append(Choices(world, entry, asked[entry["name"]]))
        for entry in document.get("odds_ratios", ()):
            self.tests.append(OddsRatio(world, entry))

    def _add(self, entry: Mapping[str, Any], whole: Callable[[Record], Vector]) -> None:
        noise = entry["noise"]
        if noise["law"] in GAUSSIAN:
            unit = math.sqrt(Fraction(noise["sigma2"]))
        elif noise["law"] == "laplace":
            unit = float(Fraction(noise["scale"]))
        elif noise["law"] == "l2":
            unit = math.sqrt(Fraction(noise["b2"]))
        else:
            unit = 1.0
        self.results.append(
            Result(entry, Query(whole, lambda record: whole(record) / unit), self.world, self.a)
        )

    def _groups(self, by: Sequence[Sequence[str]]) -> Callable[[Record, Vector], Vector]:
        """A record's numbers in its group of every set."""
        sets = [cell_of(self.world, names) for names in by]

        def place(record: Record, numbers: Vector) -> Vector:
            return joined([np.kron(one_hot(size, cell(record)), numbers) for size, cell in sets])

        return place

    def _sums(self, asked: Mapping[str, Any]) -> Callable[[Record], Vector]:
        # who did not answer is in a group of its own, which is not measured
        names = [[name for name in each if not name.endswith(" answered")] for each in asked["by"]]
        place, scale = self._groups(names), Scale.of(asked)
        return lambda r: place(r, np.array([float(scale.step(self.world, r) or 0)]))

    def _answers(
        self, entry: Mapping[str, Any], asked: Mapping[str, Any]
    ) -> Callable[[Record], Vector]:
        """Pairs of the number who answered, with a weight, and their values from the middle."""
        place, scale = self._groups(asked["by"]), Scale.of(asked)
        fineness, weight = (int(entry["noise"][key]) for key in ("fineness", "weight"))

        def find(record: Record) -> Vector:
            value = scale.step(self.world, record)
            pair = (0, 0) if value is None else (weight, fineness * (2 * value - scale.steps))
            return place(record, np.array(pair, dtype=float))

        return find

    def _halves(self, asked: Mapping[str, Any]) -> Callable[[Record], Vector]:
        place, scale = self._groups(asked["by"]), Scale.of(asked)
        nodes = list(cut(0, scale.steps + 1))

        def find(record: Record) -> Vector:
            value = scale.step(self.world, record)
            sides = [
                0 if not low <= value < high else 1 if value < middle else -1
                for low, middle, high in nodes
            ]
            return place(record, np.array(sides, dtype=float))

        return find

    def _moments(self, query: Mapping[str, Any]) -> Callable[[Record], Vector]:
        if query["kind"] == "sums":
            return self._sums(query)
        scale, columns = Scale.of(query), []
        for column in query["columns"]:
            _, cell = cell_of(self.world, column["features"])
            columns.append((cell, [Fraction(value) for value in column["values"]]))
        factors = np.array(
            [
                [Fraction(v) for v in row]
                for row in query.get("combination", np.eye(len(columns), dtype=int).tolist())
            ]
        )

        def find(record: Record) -> Vector:
            row = np.array([values[cell(record)] for cell, values in columns])
            return np.asarray((factors @ row) * scale.step(self.world, record), dtype=float)

        return find

    # --- a pair -----------------------------------------------------------------------------------

    def changes(self, first: Sequence[Record], second: Sequence[Record]) -> dict[str, Vector]:
        """How far the measured whole numbers of every result move."""
        found = {r.entry["name"]: r.query.change(first, second, 0) for r in self.results}
        for test in self.tests:
            steps = (test.count(second) - test.count(first)) * 2 ** int(test.entry["grid_bits"])
            found[test.entry["name"]] = np.array([float(steps)])
        return found

    def height(self, before: Any, after: Any) -> float:
        """How dangerous a pair is, for a search: the sum of all ratios."""
        ratios = [result.ratio(before, after) for result in self.results]
        ratios += [choice.height(before, after) for choice in self.choices]
        ratios += [test.height(before, after) for test in self.tests]
        return sum(ratios)

    def ratios(
        self, first: Sequence[Record], second: Sequence[Record]
    ) -> Iterator[tuple[str, float]]:
        """Every result's cost over what it states, and that of the whole release."""
        squares, epsilons = 0.0, 0.0
        for result in self.results:
            unit, cost = result.cost(first, second)
            squares, epsilons = (
                squares + cost * (unit == "squares"),
                epsilons + cost * (unit != "squares"),
            )
            yield result.entry["name"], result.ratio(first, second)
        for choice in self.choices:
            yield choice.entry["name"], choice.ratio(first, second)
        for test in self.tests:
            yield test.entry["name"], test.height(first, second)
        whole = self.document["guarantee"]
        if not self.choices and not self.tests and whole["kind"] != "composed":
            kind, number = stated_number(whole)
            cost = {"mu": squares, "rho": squares / 2, "epsilon": epsilons}[kind]
            yield "all", cost / float(number) if number else cost


def residual_query(world: Any, entry: Mapping[str, Any], inhabited: Sequence[set[Leaf]]) -> Query:
    """All residuals of one result, each with noise of its own."""
    found = []
    for each in entry["residuals"]:
        find = residual(world, each["features"], inhabited)
        found.append((find, math.sqrt(Fraction(each["sigma2"]))))

    def whole(record: Record) -> Vector:
        return joined([find(record)[1] for find, _ in found])

    def scaled(record: Record) -> Vector:
        return joined([find(record)[0] / sigma for find, sigma in found])

    return Query(whole, scaled)


class Choices:
    """Quantiles that are chosen: the exact law of each choice, from the recorded rate."""

    def __init__(self, world: World, entry: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
        self.world, self.entry, self.scale = world, entry, Scale.of(asked)
        self.rate = Fraction(entry["noise"]["rate"])
        names = [[name for name in each if not name.endswith(" answered")] for each in asked["by"]]
        self.answered_only = any(
            name.endswith(" answered") for each in asked["by"] for name in each
        )
        self.sets = [cell_of(world, each) for each in names]
        self.probabilities = [Fraction(p) for p in asked["probabilities"]]
        self.stated = stated_number(entry["guarantee"])

    def histograms(self, records: Sequence[Record]) -> Vector:
        """Counts of steps, a row a group."""
        tables = [np.zeros((size, self.scale.steps + 1), dtype=int) for size, _ in self.sets]
        for record in records:
            value = self.scale.step(self.world, record)
            if value is None and self.answered_only:
                continue
            for table, (_, cell) in zip(tables, self.sets, strict=True):
                table[cell(record), value] += 1
        return np.concatenate(tables)

    def height(self, before: Sequence[Record], after: Sequence[Record]) -> float:
        """By how much ranks move at most, group by group, over what is allowed."""
        moved = np.abs(np.cumsum(self.histograms(after) - self.histograms(before), axis=1)).max(
            axis=1
        )
        count, rate = len(self.probabilities), float(self.rate)
        kind, number = self.stated
        cost = {
            "epsilon": 2 * rate * moved.sum(),
            "rho": rate**2 * (moved**2).sum() / 2,
            "mu": math.pi / 2 * rate**2 * (moved**2).sum(),
        }[kind]
        return count * float(cost) / float(number)

    def ratio(self, first: Sequence[Record], second: Sequence[Record]) -> float:
        """The divergence of the two laws over what is stated; the bound by ranks where only a bound
        is simple.
        """
        kind, number = self.stated
        if kind == "epsilon":
            return self.height(first, second)
        losses = []
        for one, two in zip(self.histograms(first), self.histograms(second), strict=True):
            if one.sum() == 0 or (one == two).all():
                continue
            for probability in self.probabilities:
                losses.append((self._law(one, probability), self._law(two, probability)))
        if not losses:
            return 0.0
        if kind == "rho":
            return max(
                sum(renyi(p, q, order) for p, q in losses) / order / float(number)
                for order in (1.01, 2.0, 8.0, 64.0)
            )
        return self.height(first, second)

    def _law(self, histogram: Vector, probability: Fraction) -> Vector:
        """P(v) ∝ exp(-rate s(v)) with the score of the rank."""
        rank = max(1, math.ceil(probability * int(histogram.sum())))
        up_to = np.cumsum(histogram)
        score = np.maximum(rank - up_to, up_to - histogram - rank + 1)
        weights = np.exp(-float(self.rate) * (score - score.min()))
        return weights / weights.sum()


def renyi(p: Vector, q: Vector, order: float) -> float:
    """The Rényi divergence of two laws, the larger of both directions."""
    return max(
        math.log((one**order * two ** (1 - order)).sum()) / (order - 1)
        for one, two in ((p, q), (q, p))
    )


class OddsRatio:
    """A test: one cell of a two by two table with canonical noise for one step."""

    def __init__(self, world: World, entry: Mapping[str, Any]) -> None:
        self.world, self.entry = world, entry
        self.cell = [(world.places[name], level) for name, level in entry["x11"].items()]

    def count(self, records: Sequence[Record]) -> int:
        return sum(
            all(record[number][depth - 1] == level for (number, depth), level in self.cell)
            for record in records
        )

    def height(self, first: Sequence[Record], second: Sequence[Record]) -> float:
        """By how many of the steps that the noise is made for the cell moves."""
        return abs(self.count(first) - self.count(second)) / self.steps

    @cached_property
    def steps(self) -> int:
        """The steps that the stated curve covers: its noise is that of one step, times so many."""
        kind, number = stated_number(self.entry["guarantee"])
        if kind == "mu":
            one = 1 / math.sqrt(number)
        else:
            ratio = math.exp(-number)
            one = math.sqrt(2 * ratio / (1 - ratio) ** 2 + 1 / 12)
        return round(float(self.entry["noise"]["scale"]) / one)
