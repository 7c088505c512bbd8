"""What a request answers, in one piece and by parts, and how an entry of a plan file becomes one.

The pipeline, the commands and the explorer go through `Request`; `OwnBudget` is what a new
statistic begins with.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar, cast

import numpy as np
from attrs import evolve, fields
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.confidential import Confidential
from semidp.promise.exact import plain
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.branch_noise import Cut
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.noise.randomness import Randomness
from semidp.promise.progress import Progress
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.dataspace import RECORD, Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.results.texts import scale_text
from semidp.publish.selection import AUTO, NAMES, select_mechanism
from semidp.publish.sources.reader import Reader
from semidp.publish.statistics.parts import Part, PartWork
from semidp.publish.written_values import only_keys, text

if TYPE_CHECKING:
    from semidp.publish.statistics.protocol.results import Published


def noise_values(mechanism: Mechanism) -> dict[str, Any]:
    """Return the noise of a mechanism as plain values, with the unit that it is in unless it counts
    records.
    """
    values: dict[str, Any] = {"noise": mechanism.to_json()}
    if not mechanism.space.of_counts:
        values["unit"] = float(mechanism.space.unit)
    return values


BUDGET_KEYS = ("epsilon", "delta", "rho", "mu")
"""What a budget is written with in a plan file."""


Choice = TypeVar("Choice", bound=StrEnum)


@dataclass(frozen=True)
class Forecast:
    """How far something that a request would publish is off, before anything is drawn: from public
    values alone.

    Parameters
    ----------
    name, features
        What it is called, and the features that it is by.
    said
        How far off it would be, in words.
    numbers
        The same as plain values.

    Examples
    --------
    >>> Forecast("median-pay", ("ward",), "3 ranks off", {"rank_error": 3}).to_json()
    {'name': 'median-pay', 'features': ['ward'], 'rank_error': 3}
    """

    listed: ClassVar[str] = "statistics"
    """The list that it is in, in a document for machines: of tables, or of statistics."""

    name: str
    features: tuple[str, ...]
    said: str
    numbers: Mapping[str, Any]

    @property
    def label(self) -> str:
        """What it is about, by which plans are compared: its name."""
        return self.name

    def line(self) -> str:
        """Say how far off it would be."""
        return self.said

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"name": self.name, "features": list(self.features), **self.numbers}


NO_RECORD = "no noise: there is no record"
"""What is foreseen without records."""


class Request(ABC):
    """One thing to release with noise."""

    __slots__ = ()

    counted: ClassVar[str] = RECORD
    """The kind of record that it counts: `Dataspace.about` knows what is public about those."""
    list_key: ClassVar[str] = "statistics"
    """The list of release.json that its results are in."""
    trusted_fields: ClassVar[Mapping[str, str]] = {}
    """What is believed of a request, and the key of a plan that says it."""

    def counted_by(self, table: Any) -> str:
        """Return the kind of record that one of its tables counts."""
        return self.counted

    @property
    @abstractmethod
    def key(self) -> str:
        """The word for requests of this kind in plan files and machine-readable output."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name, and that of its files."""

    @property
    @abstractmethod
    def budget(self) -> Budget | None:
        """What it may spend."""

    @property
    @abstractmethod
    def mechanism(self) -> str:
        """The name of its mechanism, or ``auto``."""

    @property
    @abstractmethod
    def features(self) -> tuple[str, ...]:
        """The features that it uses."""

    @property
    @abstractmethod
    def files(self) -> tuple[str, ...]:
        """The names of the files that it writes."""

    @abstractmethod
    def space(self, scope: Scope) -> QuerySpace:
        """Return its query space, from public values alone."""

    @abstractmethod
    def calibrate(self, space: QuerySpace) -> Mechanism:
        """Return the mechanism that measures it within its budget."""

    @abstractmethod
    def read(
        self, reader: Reader, scope: Scope, space: QuerySpace
    ) -> Confidential[NDArray[np.int64]]:
        """Return the confidential values of its query."""

    @abstractmethod
    def publish(
        self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress
    ) -> "Published":
        """Return what is published: post-processing of the measurement and of public values."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the request as plain values."""

    # --- what most requests answer alike

    def as_request(self) -> "Request":
        """Return what a plan holds where nothing else is asked for: the request itself."""
        return self

    @property
    def share_name(self) -> str:
        """Its own name."""
        return self.name

    @property
    def answering_kind(self) -> str:
        """Its own kind."""
        return self.key

    def forecast(self, mechanism: Mechanism, scope: Scope) -> tuple[Forecast, ...]:
        """Return what it would publish with a mechanism: nothing is foreseen unless a statistic
        says more.
        """
        return ()

    def noise_lines(self, mechanism: Mechanism, foreseen: Sequence[Any]) -> list[str]:
        """Say with what noise it would be measured, and how far off that leaves it."""
        scale = mechanism.scale * float(mechanism.space.unit)
        lines = [forecast.line() for forecast in foreseen]
        how = "; ".join(lines) or f"scale {scale_text(scale)}, {mechanism.claim} claim"
        name = self.name
        return [f"{mechanism.name} for {name}: {how}"]

    def noise_json(self, mechanism: Mechanism, foreseen: Sequence[Any]) -> dict[str, Any]:
        """Return its noise as plain values, with the unit that it is in unless it counts
        records.
        """
        return noise_values(mechanism)

    @property
    def private_columns(self) -> tuple[str, ...]:
        """No outcome is read."""
        return ()

    @property
    def needed_readings(self) -> Mapping[str, str]:
        """Columns are read as a plan declares them."""
        return {}

    @property
    def exact_margins(self) -> tuple[Margin, ...]:
        """No margin has to be exact."""
        return ()

    @property
    def tables(self) -> tuple[Any, ...]:
        """No table of counts is asked for."""
        return ()

    @property
    def targets(self) -> tuple[tuple[str, Fraction | None], ...]:
        """The tables that are asked for, and the errors that they name."""
        names = [" by ".join(table.features) for table in self.tables]
        errors = [table.target_error for table in self.tables]
        return tuple(zip(names, errors, strict=True))

    @property
    def has_targets(self) -> bool:
        """Whether a table names an error instead of a budget."""
        return any(error is not None for _, error in self.targets)

    @property
    def largest_target(self) -> Fraction:
        """The largest error that a table names."""
        errors = [error for _, error in self.targets if error is not None]
        return max(errors, default=Fraction(0))

    def refuse_parts(self) -> None:
        """Refuse what cannot be carried out beside parts: nothing, it is carried out in one
        piece.
        """
        return

    def refuse_units(self) -> None:
        """Refuse it: beside linked units tables of both are built, and nothing else."""
        raise InputError(
            "linked units support tables only: release other statistics of members separately"
        )

    @property
    def missing_as(self) -> Fraction | None:
        """No outcome is read."""
        return None

    def of_answered(self, column: str) -> "Request | None":
        """Return None: it has no groups."""
        return None

    def measured_space(self, entry: Mapping[str, Any], scope: Scope) -> QuerySpace:
        """Return its query space: the plan and the exact totals leave no choice."""
        return self.space(scope)

    def order_noisy(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the noisy values row by row."""
        return rows.ravel()

    def parts_space(self, scope: Scope) -> QuerySpace:
        """Return the query space of one piece."""
        return self.space(scope)

    def parts_calibrate(self, space: QuerySpace) -> Mechanism:
        """Return the mechanism that measures it in one piece."""
        return self.calibrate(space)

    def steps_by_parts(
        self,
        mechanism: Mechanism,
        cut: Cut,
        scope: Scope,
        requests: "Sequence[Request]",
        reader: Reader,
    ) -> "StepsByParts | None":
        """Return None: it is carried out in one piece."""
        return None

    def with_budget(self, budget: Budget | None) -> Self:
        """Return the request with another budget, or with none."""
        changed: Self = evolve(cast(Any, self), budget=budget)
        return changed

    def with_mechanism(self, name: str) -> Self:
        """Return the request with another mechanism."""
        changed: Self = evolve(cast(Any, self), mechanism=name)
        return changed

    def dividing(self, budget: Budget) -> "tuple[Request, ...]":
        """Return the request with the whole budget."""
        return (self.with_budget(budget),)

    def as_separate_requests(self) -> "tuple[Request, ...]":
        """Return the request: it measures one thing."""
        return (self,)

    def with_target_errors(self, option: str, errors: Mapping[str, str]) -> Self:
        """Return the request: it has no table."""
        return self

    def without_targets(self) -> Self:
        """Return the request, which names no error."""
        return self

    def excess(self, mechanism: Mechanism) -> float:
        """Return 0: it names no error."""
        return 0.0


def require_budget(request: Request) -> Budget:
    """Return what a request may spend; refuse one without a budget."""
    if request.budget is None:
        raise InputError(f"{request.name!r} has no privacy budget: give epsilon, rho or mu")
    return request.budget


class PlanEntry:
    """An entry of a plan file, a key a field."""

    __slots__ = ()

    key: ClassVar[str]
    _needs: ClassVar[Mapping[str, str]]
    """What an entry must have, and how that is written."""
    _several_keys: ClassVar[Mapping[str, Sequence[str]]] = {"budget": BUDGET_KEYS}
    """The keys of the fields that an entry spreads over several."""

    @classmethod
    def _written(cls) -> list[str]:
        """The fields in the order of an entry: its name first."""
        names = [field.name for field in fields(cast(Any, cls))]
        return ["name", *(name for name in names if name != "name")]

    def to_json(self) -> dict[str, Any]:
        """Return the request as plain values: what is not asked for is left out."""
        entry: dict[str, Any] = {}
        for name in self._written():
            entry |= self._entry(name, getattr(self, name))
        return entry

    def _entry(self, name: str, value: Any) -> dict[str, Any]:
        if isinstance(value, Budget):
            return value.keys()
        is_left_out = value is None or value is False or value == ()
        # A table has the weight 1 unless it says another.
        if is_left_out or (name, value) == ("weight", 1):
            return {}
        return {name: _plain(value)}

    @classmethod
    def _keys(cls) -> set[str]:
        """The keys that an entry may have."""
        keys: set[str] = set()
        for name in cls._written():
            keys.update(cls._several_keys.get(name, (name,)))
        return keys

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote, or an entry of a plan file."""
        only_keys(value, cls._keys(), f"a {cls.key} of a plan")
        if any(name not in value for name in cls._needs):
            needs = [f"{name} = {how}" for name, how in cls._needs.items()]
            raise InputError(f"a {cls.key} of a plan needs {' and '.join(needs)}")
        request: Self = cast(Any, cls)(**cls._fields(value))
        return request

    @classmethod
    def _fields(cls, value: Mapping[str, Any]) -> dict[str, Any]:
        entries = {name: value[name] for name in cls._written() if name in value}
        entries["budget"] = Budget.from_plan_keys(value)
        return entries


class OwnBudget(PlanEntry, Request):
    """A request with a budget of its own and an entry in a plan file, a key a field."""

    __slots__ = ()

    @property
    def files(self) -> tuple[str, ...]:
        """One file, called after it."""
        return (f"{self.name}.csv",)

    def calibrate(self, space: QuerySpace) -> Mechanism:
        """Return the mechanism that was asked for, or the one with the least expected loss."""
        return select_mechanism(space, require_budget(self), self.mechanism)


def read_entries(document: Mapping[str, Any], key: str) -> list[Any]:
    """Return a list of a plan file; refuse what is none."""
    entries = document.get(key, [])
    # A single entry that is no list would be read key by key, or letter by letter.
    if not isinstance(entries, (list, tuple)):
        raise InputError(f"{key} of a plan is a list, not {str(entries)[:40]!r}")
    return list(entries)


def checked_budget(value: Budget | None) -> Budget | None:
    if value is not None and not isinstance(value, Budget):
        raise InputError(
            f"a budget is Budget.zcdp(rho), Budget.gdp(mu) or Budget.pure(epsilon), not {value!r}"
        )
    return value


def mechanism_name(value: str) -> str:
    name = text(value, "the mechanism")
    if name != AUTO and name not in NAMES:
        every_name = ", ".join([AUTO, *NAMES])
        raise InputError(f"there is no mechanism {name!r}; there are {every_name}")
    return name


def file_name(value: str) -> str:
    name = text(value, "a name")
    # A slash would lead out of the release, and a dot in front would hide the file.
    if set(name) & set("/\\\0") or name.startswith("."):
        raise InputError(f"{name!r} cannot name a table: its files are called after it")
    return name


def _plain(value: Any) -> Any:
    """Return a field as a plan file has it."""
    if isinstance(value, Margin):
        return list(value.names)
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, Fraction):
        return plain(value)
    return value if isinstance(value, bool) else str(value)


def member(kind: type[Choice], value: str, name: str) -> Choice:
    if not isinstance(value, str) or str(value) not in list(kind):
        values = ", ".join(kind)
        raise InputError(f"{name} must be one of {values}, not {value!r}")
    return kind(str(value))


@dataclass(frozen=True, eq=False)
class RequestMeasurement:
    """What was measured of one request, and by which noise: what it is published from.

    Tables by parts have classes of their own, because a release does not hold all of their cells.
    """

    mechanism: Mechanism
    measurement: Measurement

    def publish(
        self, request: Any, scope: Scope, counts: Sequence[Any], progress: Progress
    ) -> "Published":
        """Return what is published of it.

        Parameters
        ----------
        request, scope
            What was asked for, and what is public.
        counts
            The whole numbers of its tables, where they were fitted before.
        progress
            Told what is going on.
        """
        stored = [counts] if counts else []
        result: Published = request.publish(
            self.mechanism, self.measurement, scope, progress, *stored
        )
        return result


class StepsByParts(Protocol):
    """A request that is carried out part by part: what is done before the parts, for each part, and
    after them.
    """

    @property
    def mechanism(self) -> Mechanism:
        """Its noise, calibrated to the whole."""

    @property
    def values(self) -> Confidential[NDArray[np.int64]]:
        """The confidential values that are measured before the parts."""

    @property
    def stems(self) -> Sequence[str]:
        """What its files beside the folders of parts are called, but for their endings, where the
        plan does not say.
        """

    @property
    def foreseen(self) -> Sequence[str]:
        """What may be published otherwise than was asked for, in sentences."""

    def add_noise(self, randomness: Randomness) -> NDArray[Any]:
        """Return the values with noise."""

    def begin(self, noisy: NDArray[Any], private: bool) -> object:
        """Take what was measured before the parts; `ValueError` where it is damaged."""

    @property
    def is_fitted_jointly(self) -> bool:
        """Whether all parts are measured before any is fitted."""

    def settle(self, work: Path, progress: Progress) -> None:
        """Settle what the parts need, when they are measured where that comes first.

        Parameters
        ----------
        work
            The folder of the unfinished release.
        progress
            Told what is going on.
        """

    def part_work(self, node: int) -> PartWork | None:
        """Return what is to be done in one part: only measuring before `settle`. None where nothing
        is.
        """

    def build_result(self, parts: Sequence[Part], work: Path, progress: Progress) -> "Published":
        """Return what is published, when all parts are done."""
