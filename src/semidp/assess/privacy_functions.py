"""The privacy function of a tool: the loss between datasets at a given distance, and what it means
for D_t.

A tool without invariants states its loss for datasets that differ in one record. If statistics
are exact next to its output, a(t) records change together: its own function at that distance
gives the guarantee that really holds.
"""

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from fractions import Fraction
from typing import Any

from attrs import field, frozen

from semidp.errors import AdjacencyUnknown, InputError
from semidp.promise.exact import exact, format_rounded_up, plain
from semidp.promise.guarantee import Guarantee
from semidp.promise.schema.features import Feature
from semidp.promise.schema.margins import junction_order, maximal
from semidp.promise.schema.schema import Schema
from semidp.promise.spaces.adjacency import Ball
from semidp.promise.spaces.dataspace import (
    Datasets,
    Dataspace,
    DescribedDatasets,
    Margin,
    normalize_margins,
)
from semidp.promise.spaces.semi_adjacency import SemiAdjacency, semi_adjacency, semi_adjacency_bound
from semidp.promise.tradeoff.budget import approximate, approximate_group, gaussian, zcdp
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.polygons import Approximate
from semidp.publish.plan import Plan
from semidp.publish.results.texts import name_tradeoff
from semidp.publish.witness import Witness, find_witness

NO_PRIVACY = approximate(0, 1)
"""The curve of what is published exactly: every test succeeds."""

_TARGET = Fraction(1, 10**9)  # the delta at which a curve without a name is stated


class _Term(StrEnum):
    """A term in which a privacy function is stated, by its name."""

    @classmethod
    def _missing_(cls, value: object) -> None:
        raise InputError(f"a privacy function has one of {', '.join(cls)}, not {str(value)[:40]!r}")


class Metric(_Term):
    """How a tool measures the distance of two datasets.

    ``symmetric``: records that are in one of them only, so replacing a record is 2.
    ``change-one``: records that differ, so it is 1.
    """

    symmetric = "symmetric"
    change_one = "change-one"

    def distance(self, a: int, rows: int = 1) -> int:
        """Return the distance of datasets in which `a` people change, each with up to `rows` rows.

        >>> Metric.symmetric.distance(3), Metric.change_one.distance(3, rows=2)
        (6, 6)
        """
        return a * rows * (2 if self is Metric.symmetric else 1)


class OneRecord(StrEnum):
    """The change that a stated promise is for: one record replaced, or one added or removed."""

    replaced = "replace"
    add_remove = "add-remove"

    @classmethod
    def _missing_(cls, value: object) -> None:
        raise InputError(f"a promise is stated for {' or '.join(cls)}, not {str(value)[:40]!r}")

    @property
    def metric(self) -> Metric:
        """The metric in which this change has distance 1."""
        return Metric.change_one if self is OneRecord.replaced else Metric.symmetric

    @property
    def words(self) -> str:
        """The change in words."""
        return "replaced" if self is OneRecord.replaced else "added or removed"

    def group(self, stated: Tradeoff, a: int) -> Tradeoff:
        """Return what holds for `a` replaced records: each is one removed and one added.

        >>> OneRecord.replaced.group(approximate(1), 2).implied_epsilon()
        Fraction(2, 1)
        >>> OneRecord.add_remove.group(approximate(1), 2).implied_epsilon()
        Fraction(4, 1)
        """
        return stated.group(self.metric.distance(a))


class LossMeasure(_Term):
    """The measure in which a tool states a loss: ε, (ε, δ), ρ or μ."""

    pure = "pure"
    approximate = "approximate"
    zcdp = "zcdp"
    gdp = "gdp"

    def tradeoff(self, loss: Any) -> Tradeoff:
        """Return the curve of a stated loss; `NO_PRIVACY` if it is infinite.

        >>> LossMeasure.zcdp.tradeoff("0.5")
        ZCDP(rho=Fraction(1, 2))
        """
        parts = [loss]
        if self is LossMeasure.approximate:
            if not isinstance(loss, (list, tuple)) or len(loss) != 2:
                raise InputError("a loss in (epsilon, delta) has both numbers")
            parts = list(loss)
        if any(_infinite(part) for part in parts):
            return NO_PRIVACY
        numbers = [
            Fraction(part) if isinstance(part, float) else exact(part, "a loss") for part in parts
        ]
        if any(number < 0 for number in numbers):
            raise InputError("a loss is at least 0")
        if self is LossMeasure.zcdp:
            return zcdp(*numbers)
        return gaussian(*numbers) if self is LossMeasure.gdp else approximate(*numbers)


def _values(value: Any) -> dict[int, Any]:
    if not isinstance(value, Mapping) or not value:
        raise InputError("a privacy function has values by distance")
    values: dict[int, Any] = {}
    for key, loss in value.items():
        text = str(key)
        if not (text.isascii() and text.isdigit() and 0 < int(text[:18]) < 10**15):
            raise InputError("the distances of a privacy function are whole numbers of at least 1")
        values[int(text)] = tuple(loss) if isinstance(loss, list) else loss
    return dict(sorted(values.items()))


@frozen
class PrivacyFunction:
    """A privacy function as its values at some distances, and the file that holds it.

    Parameters
    ----------
    measure
        The measure of losses.
    metric
        The metric of distances.
    values
        The loss at each distance that was asked for; it must not fall with the distance.
    tool
        Its origin.

    Examples
    --------
    >>> session = PrivacyFunction("zcdp", "symmetric", {1: "0.125", 4: "2"}, "Tumult Analytics")
    >>> session.tradeoff(2)  # two people change: distance 4
    ZCDP(rho=Fraction(2, 1))
    >>> session.tradeoff(3)
    Traceback (most recent call last):
    semidp.errors.InputError: the privacy function was not asked for the distance 6: write its value
    there
    """

    measure: LossMeasure = field(converter=LossMeasure)
    metric: Metric = field(converter=Metric)
    values: Mapping[int, Any] = field(converter=_values)
    tool: str = ""

    def __attrs_post_init__(self) -> None:
        for loss in self.values.values():
            self.measure.tradeoff(loss)

    def evaluate(self, distance: int) -> Tradeoff:
        """Return the curve at a distance: the value there, or at the next larger distance that is
        listed.
        """
        larger = [recorded for recorded in self.values if recorded >= distance]
        if not larger:
            raise InputError(
                f"the privacy function was not asked for the distance {distance}: write its value"
                " there"
            )
        return self.measure.tradeoff(self.values[min(larger)])

    def tradeoff(self, a: int, rows: int = 1) -> Tradeoff:
        """Return the curve for `a` people who change together, each with up to `rows` rows."""
        return self.evaluate(self.metric.distance(a, rows))

    def to_json(self) -> dict[str, Any]:
        """Return the function as plain values."""
        values: dict[str, Any] = {}
        for distance, loss in self.values.items():
            # A loss of two parts is (epsilon, delta).
            is_pair = isinstance(loss, (list, tuple))
            written = [_format_loss(part) for part in loss] if is_pair else _format_loss(loss)
            values[str(distance)] = written
        told = {"measure": str(self.measure), "metric": str(self.metric), "values": values}
        return {"privacy_function": {**told, "tool": self.tool}}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "PrivacyFunction":
        """Read what `to_json` wrote.

        >>> function = PrivacyFunction("pure", "change-one", {1: "1", 2: "inf"}, "a tool")
        >>> PrivacyFunction.from_json(function.to_json()) == function
        True
        """
        told = value.get("privacy_function")
        if not isinstance(told, Mapping) or not {"measure", "metric", "values"} <= {*told}:
            raise InputError("a privacy function has a measure, a metric and values by distance")
        tool = told.get("tool", "")
        if not isinstance(tool, str):
            raise InputError("the tool of a privacy function is named by a text")
        return cls(told["measure"], told["metric"], told["values"], tool)


@frozen
class Assessment:
    """What a measurement of another tool really guarantees, next to what the tool announces.

    Parameters
    ----------
    guarantee
        The guarantee that holds: (D_t, A_a, f).
    announced
        What the tool states for one person.
    distance
        The distance at which its privacy function was evaluated.
    semi_adjacency
        How a(t) was found, with a pair of datasets that attains it, if known.
    """

    guarantee: Guarantee
    announced: Tradeoff
    distance: int
    semi_adjacency: SemiAdjacency | None = None

    @property
    def published_exactly(self) -> bool:
        """Whether nothing is protected: the loss at that distance is infinite."""
        return self.guarantee.tradeoff == NO_PRIVACY

    @property
    def witness(self) -> Witness | None:
        """A person and an alternative that needs as many records as the guarantee compares."""
        return find_witness(self.semi_adjacency)

    def explain(self) -> str:
        """Describe what is announced, what holds, and which datasets show it."""
        a = self.guarantee.adjacency.a
        strength = (
            "no guarantee at all: published exactly"
            if self.published_exactly
            else name_curve(self.guarantee.tradeoff)
        )
        lines = [
            f"Announced: {name_curve(self.announced)}.",
            (
                f"Found: {strength}, for any {a} record{'s' if a != 1 else ''} that change"
                f" together, with {self.guarantee.dataspace.summary()} kept exact (its privacy"
                f" function at distance {self.distance})."
            ),
        ]
        if (witness := self.witness) is not None:
            lines.append(f"A pair of datasets that shows it: {witness}.")
        return "\n".join([*lines, "", str(self.guarantee.explain())])


def assess(
    function: Any,
    invariants: "Dataspace | Plan | Iterable[Margin | str | Iterable[str]]",
    a: int | None = None,
    rows: int = 1,
) -> Assessment:
    """Return what a privacy function guarantees next to exact statistics.

    Parameters
    ----------
    function
        A `PrivacyFunction`, or anything with its `metric` and its method ``at(distance)``.
    invariants
        The exact statistics: a `Dataspace` with values, a plan, or margins by name, with any
        values.
    a
        How many people change together, where a(t) is not known.
    rows
        The most rows that one person has.

    Examples
    --------
    >>> session = PrivacyFunction("zcdp", "symmetric", {1: "0.125", 4: "2"})
    >>> found = assess(session, ["ward"])
    >>> found.guarantee.adjacency, found.guarantee.tradeoff
    (Ball(a=2), ZCDP(rho=Fraction(2, 1)))
    """
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise InputError("the most rows of a person are a whole number of at least 1")
    space, semi = _exact_part(invariants, a is None, rows > 1)
    together = a if a is not None else max(semi.bound if semi else 1, 1)
    distance = function.metric.distance(together, rows)
    real = Guarantee(space, Ball(together), function.evaluate(distance))
    return Assessment(real, function.evaluate(rows), distance, semi)


def _exact_part(
    invariants: Any, needed: bool, several: bool
) -> tuple[Datasets, SemiAdjacency | None]:
    """Return the datasets that are left, and a(t) of them or a bound for any values.

    Where people have several rows, a(t) of the rows is not enough for them; one more than the
    margins is.
    """
    if isinstance(invariants, DescribedDatasets):
        if needed:
            raise InputError(
                "a(t) of a dataspace that is only described is not known: give the number a of"
                " records"
            )
        return invariants, None
    if isinstance(invariants, Dataspace):
        if needed and several:
            return invariants, semi_adjacency_bound(invariants.schema, invariants.margins)
        return invariants, semi_adjacency(invariants) if needed else None
    margins, features = stated_margins(invariants)
    feature_by_name = {name: feature for feature in features for name in feature.names}
    names = [name for margin in margins for name in margin.names]
    if not names:
        return Dataspace.from_description("the number of records"), SemiAdjacency(
            1, 1, 1, "only the total is exact"
        )
    parts = [feature_by_name.get(name, Feature(name, "012")) for name in names]
    schema = Schema(tuple({part.name: part for part in parts}.values()))
    undeclared = [name for name in names if name not in feature_by_name]
    if (
        needed
        and undeclared
        and junction_order(maximal(schema.view(margin.names) for margin in margins)) is None
    ):
        raise AdjacencyUnknown(
            "a(t) of these margins depends on the levels of"
            f" {', '.join(dict.fromkeys(undeclared))}: declare them, or give the number a of"
            " records",
            needs="adjacency",
        )
    about = ", ".join(str(margin) for margin in normalize_margins(schema, margins))
    return Dataspace.from_description(f"the counts of {about}"), (
        semi_adjacency_bound(schema, margins) if needed else None
    )


def stated_margins(invariants: Any) -> tuple[tuple[Margin, ...], tuple[Feature, ...]]:
    """Return the margins of a plan, with the features that it declares, or those of a list of
    names.
    """
    if isinstance(invariants, Plan):
        return invariants.invariants, invariants.features
    if isinstance(invariants, str):
        raise InputError(
            f'invariants are a list of margins, such as ["{invariants}"], not {invariants!r}'
        )
    return tuple(Margin.from_names(margin) for margin in invariants), ()


def name_curve(curve: Tradeoff) -> str:
    """Name a curve by its best-known number."""
    if curve == NO_PRIVACY:
        return "no guarantee"
    if curve.is_trivial:
        return "0, as though nothing were released"
    if isinstance(curve, Approximate) and curve.delta0:
        if curve.size == 1:
            return f"({plain(curve.epsilon0)}, {plain(curve.delta0)})-DP"
        epsilon, delta = approximate_group(curve.epsilon0, curve.delta0, curve.size)
        return f"({plain(epsilon)}, {format_rounded_up(delta, 3)})-DP"
    return (
        name_tradeoff(curve)
        or f"({format_rounded_up(curve.epsilon(_TARGET))}, {plain(_TARGET)})-DP"
    )


def _infinite(value: Any) -> bool:
    return value in ("inf", "Infinity") or (isinstance(value, float) and math.isinf(value))


def _format_loss(value: Any) -> Any:
    return (
        "inf"
        if _infinite(value)
        else value
        if isinstance(value, (int, float, str))
        else plain(value)
    )
