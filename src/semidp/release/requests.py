"""What a plan asks for, and how a request goes through the pipeline; tables here, the others in `outcome_requests`.

A `Request` is a frozen value with three methods: its query space, what it reads, what it publishes. `prepare` and `run`
know nothing else about it.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from fractions import Fraction
from typing import Any, ClassVar, Protocol, Self, TypeVar, cast

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.exact import Number, plain, positive
from semidp.grouped import Confidence
from semidp.mechanisms import (
    AUTO,
    NAMES,
    Measurement,
    Mechanism,
    NoNoise,
    ResidualMechanism,
    mechanism_for,
    table_mechanism,
)
from semidp.mechanisms.selection import FOR_RELEASES
from semidp.progress import Progress
from semidp.queries import (
    ProductSpace,
    QuerySpace,
    RankSpace,
    product_space,
    sensitivity_space,
)
from semidp.release.checks import only_keys, text, texts
from semidp.release.published import FitKind, Published, PublishedTable, published_table, table_stems
from semidp.release.scope import Reader, Scope
from semidp.spaces import Margin
from semidp.tradeoff import Budget

BUDGET_KEYS = ("epsilon", "delta", "rho", "mu")
"""What a budget is written with in a plan file."""

Choice = TypeVar("Choice", bound=StrEnum)


class Request(Protocol):
    """One thing to release with noise."""

    key: ClassVar[str]
    """What a plan calls requests of this kind."""

    @property
    def name(self) -> str:
        """What it is called, and its files."""

    @property
    def budget(self) -> Budget | None:
        """What it may spend."""

    @property
    def mechanism(self) -> str:
        """The name of its mechanism, or ``auto``."""

    @property
    def features(self) -> tuple[str, ...]:
        """The features that it uses."""

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files that it writes."""

    def space(self, scope: Scope) -> QuerySpace:
        """Return its query space, from public values alone."""

    def calibrate(self, space: QuerySpace) -> Mechanism:
        """Return the mechanism that measures it within its budget."""

    def read(self, reader: Reader, scope: Scope, space: QuerySpace) -> NDArray[np.int64]:
        """Return the confidential values of its query."""

    def publish(self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress) -> Published:
        """Return what is published: post-processing of the measurement and of public values."""

    def with_budget(self, budget: Budget) -> "Request":
        """Return the request with another budget."""

    def to_json(self) -> dict[str, Any]:
        """Return the request as plain values."""


def budget_of(request: Request) -> Budget:
    """Return what a request may spend; refuse one without a budget."""
    if request.budget is None:
        raise InputError(f"{request.name!r} has no privacy budget: give epsilon, rho or mu")
    return request.budget


class OwnBudget:
    """What requests with a budget of their own share: calibration, and an entry in a plan file, a key a field."""

    __slots__ = ()

    key: ClassVar[str]
    _written: ClassVar[tuple[str, ...]]
    """The fields in the order of an entry."""
    _needs: ClassVar[Mapping[str, str]]
    """What an entry must have, and how that is written."""

    def calibrate(self: Request, space: QuerySpace) -> Mechanism:
        """Return the mechanism that was asked for, or the one with the least expected loss."""
        return mechanism_for(space, budget_of(self), self.mechanism)

    def with_budget(self, budget: Budget) -> Self:
        """Return the request with another budget."""
        changed: Self = evolve(cast(Any, self), budget=budget)
        return changed

    def to_json(self) -> dict[str, Any]:
        """Return the request as plain values: what is not asked for is left out."""
        fields = ((name, getattr(self, name)) for name in self._written)
        return {key: part for name, value in fields for key, part in self._entry(name, value).items()}

    def _entry(self, name: str, value: Any) -> dict[str, Any]:
        if isinstance(value, Budget):
            return value.keys()
        if isinstance(value, Confidence):
            return value.to_json()
        usual = value is None or value is False or value == () or (name, value) == ("weight", 1)
        return {} if usual else {name: _plain(value)}

    @classmethod
    def _keys(cls) -> set[str]:
        """The keys of an entry: a budget, an outcome and intervals have several."""
        several = {"budget": BUDGET_KEYS, "outcome": ("column", "bounds", "grid"), "confidence": Confidence.keys}
        return {key for name in cls._written for key in several.get(name, (name,))}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote, or an entry of a plan file."""
        only_keys(value, cls._keys(), f"a {cls.key} of a plan")
        if any(name not in value for name in cls._needs) or not isinstance(value.get("by", ()), (list, tuple)):
            needs = " and ".join(f"{name} = {how}" for name, how in cls._needs.items())
            raise InputError(f"a {cls.key} of a plan needs {needs}")
        found: Self = cast(Any, cls)(**cls._fields(value))
        return found

    @classmethod
    def _fields(cls, value: Mapping[str, Any]) -> dict[str, Any]:
        return {**{name: value[name] for name in cls._written if name in value}, "budget": Budget.stated(value)}


def mechanism_again(request: Request, result: Published, scope: Scope) -> Mechanism:
    """Return the mechanism of a result by the name that it states, calibrated as the request's budget asks.

    What ``auto`` chooses may change from version to version; what was chosen, and what a regression measured, is in the
    result.
    """
    name, budget = result.noise.mechanism, budget_of(request)
    if isinstance(request, TableRequest) and (name == ResidualMechanism.name or result.key == "partitioned"):
        product = product_space(scope.dataspace, scope.adjacency, [request.features])
        return ResidualMechanism.calibrate(product, budget)
    space = result.space(request, scope)
    if isinstance(space, (ProductSpace, RankSpace)):
        return request.calibrate(space)
    if space.is_zero:
        return NoNoise.calibrate(space, budget)
    kind = next((kind for kind in FOR_RELEASES if kind.name == name), None)
    return mechanism_for(space, budget, name) if kind is None else kind.calibrate(space, budget)


def checked_budget(value: Budget | None) -> Budget | None:
    if value is not None and not isinstance(value, Budget):
        raise InputError(f"a budget is Budget.zcdp(rho), Budget.gdp(mu) or Budget.pure(epsilon), not {value!r}")
    return value


def mechanism_name(value: str) -> str:
    name = text(value, "the mechanism")
    if name != AUTO and name not in NAMES:
        raise InputError(f"there is no mechanism {name!r}; there are {AUTO}, {', '.join(NAMES)}")
    return name


def file_name(value: str) -> str:
    name = text(value, "a name")
    if set(name) & set("/\\\0") or name.startswith("."):
        raise InputError(f"{name!r} cannot name a table: its files are called after it")
    return name


def _weight(value: Number) -> Fraction:
    return positive(value, "the weight of a table")


def _target(value: Number | None) -> Fraction | None:
    return None if value is None else positive(value, "the target error of a table")


def _table_features(value: Iterable[str]) -> tuple[str, ...]:
    return texts(value, "the features of a table")


def _fit(value: FitKind | str) -> FitKind:
    return member(FitKind, value, "fit")


@frozen
class TableRequest(OwnBudget):
    """One table to release: its features, its share of the privacy budget, how to measure and how to fit.

    Instead of a budget a table may have a target: the largest standard error of its estimates. `prepare` finds the
    least budget that meets it, together with the other tables that have none.

    >>> TableRequest(("sex", "region"), Budget.pure(1)).name
    'table'
    >>> TableRequest("sex,region")
    Traceback (most recent call last):
    semidp.errors.InputError: the features of a table are a list such as ["sex", "region"], not 'sex,region'
    """

    key: ClassVar[str] = "table"
    _written: ClassVar[tuple[str, ...]] = ("name", "features", "budget", "mechanism", "fit", "weight", "target_error")
    _needs: ClassVar[Mapping[str, str]] = {"features": '["…", …]'}

    features: tuple[str, ...] = field(converter=_table_features)
    budget: Budget | None = field(default=None, converter=checked_budget)
    mechanism: str = field(default=AUTO, converter=mechanism_name)
    fit: FitKind = field(default=FitKind.integer, converter=_fit)
    name: str = field(default="table", converter=file_name)
    weight: Fraction = field(default=Fraction(1), converter=_weight)
    target_error: Fraction | None = field(default=None, converter=_target)

    def __attrs_post_init__(self) -> None:
        if not self.features:
            raise InputError("a table to release needs at least one feature", needs="table")
        if len(set(self.features)) < len(self.features):
            raise InputError(f"the table names a feature twice: {', '.join(self.features)}")
        if self.budget is not None and self.weight != 1:
            raise InputError(f"the table {self.name!r} has a budget of its own: a weight is for tables that share one")
        if self.budget is not None and self.target_error is not None:
            raise InputError(f"the table {self.name!r} has a budget and a target error: give one of them")

    @property
    def files(self) -> tuple[str, ...]:
        """Its published counts, and its measurements."""
        return tuple(f"{stem}.csv" for stem in table_stems(self.name))

    def space(self, scope: Scope) -> QuerySpace:
        """Return the space of the table."""
        return sensitivity_space(scope.dataspace, scope.adjacency, self.features)

    def calibrate(self, space: QuerySpace) -> Mechanism:
        """Return the mechanism that was asked for, or the one that announces the least variance."""
        return table_mechanism(space, budget_of(self), self.mechanism)

    def read(self, reader: Reader, scope: Scope, space: QuerySpace) -> NDArray[np.int64]:
        """Return the counts of the table, or its residuals where those are measured."""
        return space.values(reader.table(self.features))

    def publish(self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress) -> PublishedTable:
        """Fit the measurement to the exact totals."""
        return published_table(self.name, self.features, self.fit, mechanism, measured, scope, progress)


def _plain(value: Any) -> Any:
    """Return a field as a plan file has it."""
    if isinstance(value, Margin):
        return list(value.names)
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return plain(value) if isinstance(value, Fraction) else value if isinstance(value, bool) else str(value)


def member(kind: type[Choice], value: str, name: str) -> Choice:
    if not isinstance(value, str) or str(value) not in list(kind):
        raise InputError(f"{name} must be one of {', '.join(kind)}, not {value!r}")
    return kind(str(value))
