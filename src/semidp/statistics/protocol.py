"""What the rest of semidp knows of a statistic: its requests, what it publishes, and how records of it are read.

The pipeline, the report, the explorer, the ledger and the auditor go through the values of this page.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, ClassVar, Protocol, Self, TypeVar, cast

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from semidp.core.checks import only_keys, text
from semidp.core.exact import plain
from semidp.core.guarantee import Guarantee
from semidp.core.progress import Progress
from semidp.core.scope import Scope
from semidp.core.spaces.adjacency import Adjacency
from semidp.core.spaces.dataspace import Dataspace, Margin
from semidp.core.tradeoff.base import Tradeoff
from semidp.core.tradeoff.budget import Budget
from semidp.core.tradeoff.curves import approximate, tradeoff_from_json
from semidp.core.tradeoff.smooth import ZCDP, Gaussian
from semidp.errors import InputError
from semidp.mechanisms.base import CLAIMS, Measurement, Mechanism, NoNoise
from semidp.mechanisms.pure import LaplaceMechanism
from semidp.mechanisms.residuals import ResidualMechanism
from semidp.mechanisms.selection import AUTO, NAMES, mechanism_for
from semidp.output.cells import Columns, Form, Framed
from semidp.output.sections import Details, Section
from semidp.output.texts import CLAIM_TEXTS, scale_text
from semidp.queries.base import QuerySpace
from semidp.sources.reader import Reader


@dataclass(frozen=True)
class Noise:
    """How something was measured: the mechanism, its scale, what it claims, and the loss it was expected to cost.

    `expected_l2` is the root of the expected squared distance between the measurement and the truth; `naive_l2` is
    the same for ordinary differential privacy pushed to the same guarantee by group privacy.
    """

    mechanism: str
    scale: float
    claim: str
    expected_l2: float
    naive_l2: float | None

    def __post_init__(self) -> None:
        numbers = (self.scale, self.expected_l2, 0.0 if self.naive_l2 is None else self.naive_l2)
        if not isinstance(self.mechanism, str) or self.claim not in tuple(CLAIMS) or not all(map(is_size, numbers)):
            raise ValueError("noise has the name of a mechanism, a claim, and numbers of at least 0")

    @property
    def absent(self) -> bool:
        """Whether the exact totals fix everything, so that no noise was needed."""
        return self.mechanism == NoNoise.name


@dataclass(frozen=True, eq=False, kw_only=True)
class Published:
    """What all published results share.

    Parameters
    ----------
    name
        What it is called, and its files.
    noise
        How it was measured.
    guarantee
        What its measurement guarantees.
    advertised
        What the same noise would be said to give for one record if the exact totals were forgotten.
    private
        Whether its randomness was secure.
    """

    key: ClassVar[str]

    name: str
    noise: Noise
    guarantee: Guarantee
    advertised: Tradeoff | None
    private: bool

    def space(self, request: "Request", scope: Scope) -> QuerySpace:
        """Return the query space in which it was measured."""
        return request.space(scope)

    def files(self, form: Form | None = None) -> dict[str, Columns]:
        """Return the files that hold it; cells and measurements in this form, or in what their number suggests."""
        raise NotImplementedError

    # --- what is said of it -----------------------------------------------------------------------------------------

    def title(self) -> str:
        """Name it in the heading of a report."""
        return self.name

    def noisy_lines(self) -> list[str]:
        """Say what of it is published with noise, and how much."""
        return [self.title()]

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return what a terminal shows of it: lines, each after a word on what it is about."""
        return [("mechanism", f"{self.noise.mechanism}, scale {scale_text(self.noise.scale)}, for {self.title()}")]

    def sections(self, form: Form | None = None) -> list[Section]:
        """Return its sections of the report; its files are written in this form."""
        return []

    def details(self) -> Details:
        """Say how it was measured, for specialists."""
        return Details(self.title(), f"scale {scale_text(self.noise.scale)}")

    def file_words(self, form: Form | None = None) -> list[tuple[str, str]]:
        """Name its files and say what they hold."""
        return [(file, self.title()) for file in self.files(form)]

    def named(self) -> dict[str, Framed]:
        """Return what a release finds of it under a name, for data frames."""
        return {}

    def by_features(self) -> dict[tuple[str, ...], Framed]:
        """Return what a release finds of it by features, for data frames."""
        return {}

    def claim_text(self) -> str:
        """Say whether the claim is about the numbers that were drawn."""
        return CLAIM_TEXTS[self.noise.claim]

    @property
    def fixed(self) -> bool:
        """Whether exact totals fix all of it, so that nothing is claimed."""
        return False

    def warnings(self) -> list[str]:
        """Say what a reader of the release must know about it."""
        return []

    @classmethod
    def said_of_several(cls, results: Sequence[Self]) -> list[str]:
        """Say what holds for all results of this class in one release."""
        return []

    def to_json(self) -> dict[str, Any]:
        """Return everything that is not in the files, as plain values."""
        return {
            "name": self.name,
            "noise": asdict(self.noise),
            "guarantee": self.guarantee.tradeoff.to_json(),
            "advertised": self.advertised.to_json() if self.advertised else None,
            "private": self.private,
        }


def noise_values(mechanism: Mechanism) -> dict[str, Any]:
    """Return the noise of a mechanism as plain values, with the unit that it is in unless it counts records."""
    values: dict[str, Any] = {"noise": mechanism.to_json()}
    if not mechanism.space.of_counts:
        values["unit"] = float(mechanism.space.unit)
    return values


def measured_by(name: str, mechanism: Mechanism, private: bool, expected_l2: float | None = None) -> dict[str, Any]:
    """The fields that all results take from a mechanism; its own expected loss unless another is given."""
    noise = Noise(
        mechanism=NoNoise.name if mechanism.space.is_zero else mechanism.name,
        scale=mechanism.scale,
        claim=mechanism.claim,
        expected_l2=mechanism.expected_l2 if expected_l2 is None else expected_l2,
        naive_l2=None if mechanism.space.is_zero else mechanism.naive_l2,
    )
    return {
        "name": name,
        "noise": noise,
        "guarantee": mechanism.guarantee,
        "advertised": advertised(mechanism),
        "private": private,
    }


def read_back(entry: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
    """The fields that all results have in JSON."""
    if not isinstance(entry["private"], bool):
        raise ValueError("a result is private or not")
    return {
        "name": entry["name"],
        "noise": Noise(**entry["noise"]),
        "guarantee": Guarantee(scope.dataspace, scope.adjacency, tradeoff_from_json(entry["guarantee"])),
        "advertised": tradeoff_from_json(entry["advertised"]) if entry["advertised"] else None,
        "private": entry["private"],
    }


def advertised(mechanism: Mechanism) -> Tradeoff | None:
    """Return what the same noise would be said to give for one record if the exact totals were forgotten.

    The noise that hides a move of squared length Δ2² at mu hides one record, of squared length 2, at ``mu √(2/Δ2²)``;
    Laplace noise at epsilon and Δ1 hides one record at ``2 epsilon/Δ1``; noise on residuals at their costs for one.
    """
    space, tradeoff = mechanism.space, mechanism.tradeoff
    if space.is_zero:
        return None
    if isinstance(mechanism, ResidualMechanism):
        cost = mechanism.forgotten
        return ZCDP(cost / 2) if mechanism.law == "discrete" else Gaussian(cost)
    share = Fraction(space.naive.l2_squared, space.l2_squared)
    if isinstance(tradeoff, ZCDP):
        return ZCDP(tradeoff.rho * share)
    if isinstance(tradeoff, Gaussian):
        return Gaussian(tradeoff.mu_squared * share)
    epsilon = tradeoff.implied_epsilon()
    if isinstance(mechanism, LaplaceMechanism) and epsilon is not None:
        return approximate(epsilon * Fraction(space.naive.l1, space.l1))
    return None


def is_size(value: object) -> bool:
    """Whether a value is a number of at least 0, infinity included."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= math.inf


BUDGET_KEYS = ("epsilon", "delta", "rho", "mu")
"""What a budget is written with in a plan file."""


Choice = TypeVar("Choice", bound=StrEnum)


class Chargeable(Protocol):
    """Where a guarantee is charged before noise is drawn: a ledger."""

    def charge(self, guarantee: Guarantee, label: str, measured: Sequence[Mapping[str, Any]] = ()) -> Any:
        """Record a guarantee with what is measured, or refuse it."""


class Forecast(Protocol):
    """Something that a request would publish, before anything is drawn: from public values alone."""

    listed: ClassVar[str]
    """The list that it is in, in a document for machines: ``tables`` or ``statistics``."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def features(self) -> tuple[str, ...]:
        """The features that it is by."""

    @property
    def label(self) -> str:
        """What it is about, by which plans are compared."""

    def line(self) -> str:
        """Say how far off it would be."""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""


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
    def budget_name(self) -> str:
        """What it is called where a budget is divided."""

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files that it writes."""

    def space(self, scope: Scope) -> QuerySpace:
        """Return its query space, from public values alone."""

    def calibrate(self, space: QuerySpace) -> Mechanism:
        """Return the mechanism that measures it within its budget."""

    def forecast(self, mechanism: Mechanism, scope: Scope) -> tuple[Forecast, ...]:
        """Return what it would publish with a mechanism, from public values alone."""

    def noise_lines(self, mechanism: Mechanism, foreseen: Sequence[Any]) -> list[str]:
        """Say with what noise it would be measured; `foreseen` is its forecast."""

    def noise_json(self, mechanism: Mechanism, foreseen: Sequence[Any]) -> dict[str, Any]:
        """Return the same as plain values."""

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
    _several_keys: ClassVar[Mapping[str, Sequence[str]]] = {"budget": BUDGET_KEYS}
    """The keys of the fields that an entry spreads over several."""

    @property
    def budget_name(self) -> str:
        """What it is called where a budget is divided: its name."""
        return str(cast(Any, self).name)

    def calibrate(self: Request, space: QuerySpace) -> Mechanism:
        """Return the mechanism that was asked for, or the one with the least expected loss."""
        return mechanism_for(space, budget_of(self), self.mechanism)

    def forecast(self, mechanism: Mechanism, scope: Scope) -> tuple[Forecast, ...]:
        """Return what it would publish with a mechanism: nothing is foreseen unless a statistic says more."""
        return ()

    def noise_lines(self, mechanism: Mechanism, foreseen: Sequence[Any]) -> list[str]:
        """Say with what noise it would be measured, and how far off that leaves it."""
        how = "; ".join(forecast.line() for forecast in foreseen) or f"{mechanism.claim} claim"
        return [f"{mechanism.name} for {self.budget_name}: {how}"]

    def noise_json(self, mechanism: Mechanism, foreseen: Sequence[Any]) -> dict[str, Any]:
        """Return its noise as plain values, with the unit that it is in unless it counts records."""
        return noise_values(mechanism)

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
        usual = value is None or value is False or value == () or (name, value) == ("weight", 1)
        return {} if usual else {name: _plain(value)}

    @classmethod
    def _keys(cls) -> set[str]:
        """The keys that an entry may have."""
        return {key for name in cls._written for key in cls._several_keys.get(name, (name,))}

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


QueryReader = Callable[[Mapping[str, Any], Dataspace, Adjacency], QuerySpace]
"""Reads what `QuerySpace.query` wrote, under any exact statistics and adjacency."""


@dataclass(frozen=True)
class Kind:
    """A kind of statistic, as the rooms above its folder know it.

    Parameters
    ----------
    place
        Where its requests stand among those of a plan.
    requests
        What a plan may ask for, by the key of its list in a plan file.
    queries
        How a recorded query is read, by the kind that the record states.
    laws
        The mechanisms that measure it, where they are its own; additive noise otherwise.
    further_lists
        The lists, in documents for machines, of requests that have no list in a plan file.
    """

    place: int
    requests: Mapping[str, type[OwnBudget]]
    queries: Mapping[str, QueryReader]
    laws: tuple[type[Mechanism], ...] = ()
    further_lists: tuple[str, ...] = ()
