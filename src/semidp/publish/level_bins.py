"""The request for microdata in a plan, and the bins that follow from published counts alone.

`choose_bins` groups the levels of each feature. Bins are the coarser depth of a nested feature,
so tables of bins are tables like any other. `phases` measures them.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.mechanisms.additive import mu_within
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema
from semidp.promise.spaces.dataspace import Dataspace, Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.written_values import only_keys, texts

Floats = NDArray[np.float64]

BINS = "_bins"
"""The suffix of the name of a feature's bins."""

_NOISE_PER_BIN = 6.7  # n / (this many standard errors) is the number of cells of a pair
_RARE = 2.0  # standard errors of a cell: unordered levels with fewer records are pooled


def _names(value: Iterable[str]) -> tuple[str, ...]:
    return texts(value, "⟨columns⟩, ⟨ordered⟩ and ⟨target⟩")


@frozen
class Microdata:
    """A request for synthetic records: their columns, and what bins may follow from.

    Parameters
    ----------
    columns
        The features of a record.
    budget
        The budget of both phases together; no pure epsilon.
    ordered
        Features whose levels are in a meaningful order: neighbors share a bin. Numeric bins are
        ordered without being named.
    target
        Features whose pairs are measured with less noise than others.

    Examples
    --------
    >>> Microdata(["age", "job"], Budget.zcdp(1), ordered=["age"]).to_json()
    {'columns': ['age', 'job'], 'ordered': ['age'], 'rho': '1'}
    """

    columns: tuple[str, ...] = field(converter=_names)
    budget: Budget
    ordered: tuple[str, ...] = field(default=(), converter=_names)
    target: tuple[str, ...] = field(default=(), converter=_names)

    def __attrs_post_init__(self) -> None:
        if len(self.columns) < 2 or len(set(self.columns)) < len(self.columns):
            raise InputError("microdata have two columns or more, each of them once")
        for what, names in (("ordered", self.ordered), ("target", self.target)):
            unknown = [name for name in names if name not in self.columns]
            if unknown:
                raise InputError(
                    f"⟨{what}⟩ names {unknown[0]!r}: the columns of the microdata are"
                    f" {', '.join(self.columns)}"
                )
        if self.budget.kind == "pure":
            raise InputError(
                "microdata are measured in two phases with Gaussian noise, which has no pure"
                " epsilon: give rho, mu, or epsilon with delta"
            )

    @property
    def phases_budget(self) -> Budget:
        """The budget that phases share: (ε, δ) becomes the largest μ within it, whose squares add
        up even if the second phase depends on the first.
        """
        return Budget.gdp(mu_within(self.budget)) if self.budget.epsilon else self.budget

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values: the ``[microdata]`` of a plan."""
        document: dict[str, Any] = {"columns": list(self.columns)}
        if self.ordered:
            document["ordered"] = list(self.ordered)
        if self.target:
            document["target"] = list(self.target)
        return {**document, **self.budget.keys()}

    @classmethod
    def from_json(cls, value: Any) -> "Microdata":
        """Read what `to_json` wrote."""
        if not isinstance(value, Mapping) or "columns" not in value:
            raise InputError('microdata of a plan are a table with columns = ["age", "sex"]')
        keys = {"columns", "ordered", "target", "epsilon", "delta", "rho", "mu"}
        only_keys(value, keys, "the microdata of a plan")
        budget = Budget.from_plan_keys(value)
        if budget is None:
            raise InputError("microdata need a budget: rho, mu, or epsilon with delta")
        return cls(value["columns"], budget, value.get("ordered", ()), value.get("target", ()))


def find_feature(schema: Schema, name: str) -> Feature:
    """Return the feature that a name is a depth of."""
    return schema.features[schema.axis(name)]


# --- bins -----------------------------------------------------------------------------------------


def is_ordered(asked: Microdata, feature: Feature) -> bool:
    """Whether neighboring levels are similar: numeric bins, or declared so."""
    return feature.bins is not None or feature.name in asked.ordered


def sort_levels(levels: Sequence[str]) -> list[str]:
    """Return ordered levels: numbers by size, others as listed.

    >>> sort_levels(["10", "9", "2"]), sort_levels(["low", "high"])
    (['2', '9', '10'], ['low', 'high'])
    """
    try:
        return sorted(levels, key=Fraction)
    except ValueError:
        return list(levels)


def count_bins(records: int, error: float) -> int:
    """Return how many bins a feature gets: √(n / 6.7 σ), at least 2, where σ is the standard error
    of a cell.

    >>> count_bins(48_842, 37.4), count_bins(500, 1e9)
    (14, 2)
    """
    return max(2, round(math.sqrt(records / (_NOISE_PER_BIN * max(error, 1e-9)))))


def expect_rare_levels(levels: int, records: int, error: float) -> float:
    """Return how many levels are rare on average if their shares are uniform on the simplex: each
    has then about an exponential law.

    >>> round(expect_rare_levels(100, 10_000, 5.0), 2), round(expect_rare_levels(100, 100, 5.0), 2)
    (9.52, 100.0)
    """
    return levels * -math.expm1(-_RARE * error * levels / records)


def group_neighbors(counts: Floats, bins: int) -> list[int]:
    """Return the bin of each level: neighbors together, with similar counts in each bin.

    >>> group_neighbors(np.array([9.0, 1.0, 1.0, 1.0, 6.0]), 3)
    [0, 1, 1, 1, 2]
    """
    placed: list[int] = []
    current, inside, left, bins_left = 0, 0.0, float(counts.sum()), bins
    for count in counts.tolist():
        is_full = inside > 0 and inside + count / 2 > left / bins_left
        if is_full and current < bins - 1:
            left -= inside
            bins_left -= 1
            current += 1
            inside = 0.0
        placed.append(current)
        inside += count
    return placed


def pool_rare_levels(counts: Floats, bins: int, least: float) -> list[int]:
    """Return the bin of each unordered level: its own if it is among the most frequent or has
    enough records, and one bin for all others.

    >>> pool_rare_levels(np.array([90.0, 1.0, 50.0, 2.0, 3.0]), 2, 40.0)
    [0, 2, 1, 2, 2]
    """
    frequent = set(np.argsort(-counts, kind="stable")[: bins - 1].tolist())
    kept = [at for at, count in enumerate(counts) if at in frequent or count >= least]
    # A bin of one rare level would only be called otherwise.
    if len(kept) >= len(counts) - 1:
        return list(range(len(counts)))
    place = {at: number for number, at in enumerate(kept)}
    return [place.get(at, len(kept)) for at in range(len(counts))]


def group_levels(
    feature: Feature, counts: Floats, ordered: bool, bins: int, error: float
) -> Feature:
    """Return a feature with bins above its levels, or unchanged if each level is a bin.

    Parameters
    ----------
    feature, counts
        The feature, and a published count of each of its levels.
    ordered
        Whether neighbors share a bin; else rare levels do.
    bins, error
        How many bins ordered levels get, and the standard error of a cell of a pair.
    """
    levels = sort_levels(feature.levels) if ordered else list(feature.levels)
    if len(levels) <= bins:
        return feature
    by_level = dict(zip(feature.levels, counts.tolist(), strict=True))
    level_counts = np.array([max(0.0, by_level[level]) for level in levels])
    if ordered:
        placed = group_neighbors(level_counts, bins)
    else:
        placed = pool_rare_levels(level_counts, bins, _RARE * error)
    members: dict[int, list[str]] = {}
    for level, place in zip(levels, placed, strict=True):
        members.setdefault(place, []).append(level)
    if len(members) == len(levels):
        return feature
    labels = {place: _bin_label(names, ordered) for place, names in members.items()}
    paths = [(labels[place], level) for level, place in zip(levels, placed, strict=True)]
    return Feature.from_paths((f"{feature.name}{BINS}", feature.name), paths)


def _bin_label(levels: Sequence[str], ordered: bool) -> str:
    if len(levels) == 1:
        return levels[0]
    if ordered:
        return f"{levels[0]} to {levels[-1]}"
    return f"{len(levels)} rare levels"


def choose_bins(
    asked: Microdata, schema: Schema, counts: Mapping[str, Floats], records: int, error: float
) -> tuple[Feature, ...]:
    """Return the features of a schema with bins that follow from published counts.

    Parameters
    ----------
    asked
        The request.
    schema
        The features without bins.
    counts
        For each column a published count of each level: exact, or measured in the first phase.
    records
        The number of records.
    error
        The forecast standard error of a cell of a pair.
    """
    bins = count_bins(records, error)
    chosen = []
    for feature in schema.features:
        if feature.name in counts and not feature.above:
            ordered = is_ordered(asked, feature)
            chosen.append(group_levels(feature, counts[feature.name], ordered, bins, error))
        else:
            chosen.append(feature)
    return tuple(chosen)


def name_bins(schema: Schema, columns: Iterable[str]) -> dict[str, str]:
    """Return for each column the name of its bins, or its own name if it has none."""
    names = {}
    for name in columns:
        depths = find_feature(schema, name).names
        names[name] = depths[0] if depths == (f"{name}{BINS}", name) else name
    return names


def exact_counts(dataspace: Dataspace, columns: Iterable[str]) -> dict[str, Floats]:
    """Return the counts of the features that exact totals publish."""
    counts = {}
    for name in columns:
        margin = Margin(name)
        if dataspace.publishes(margin):
            counts[name] = np.asarray(dataspace.value(margin).counts, dtype=np.float64)
    return counts
