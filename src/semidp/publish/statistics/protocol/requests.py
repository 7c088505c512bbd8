"""The interface of requests, in one piece and by parts, their entries in a plan file, and the
interface of every published result.

The pipeline, the commands and the explorer go through `Request`; a new statistic begins with
`OwnBudget`. A result knows its noise and guarantee, its files, its words, and how to recompute it;
a statistic's `Published` class adds the rest.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np
from attrs import asdict, evolve, field, fields, frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.accounting.recorded_queries import FOR_RELEASES
from semidp.promise.confidential import Confidential
from semidp.promise.exact import plain
from semidp.promise.guarantee import Guarantee, Scope
from semidp.promise.mechanisms.additive import LaplaceMechanism
from semidp.promise.mechanisms.branch_noise import Cut
from semidp.promise.mechanisms.linked_noise import LinkedNoise
from semidp.promise.mechanisms.mechanism import CLAIMS, Measurement, Mechanism, NoNoise
from semidp.promise.noise.randomness import Randomness
from semidp.promise.progress import Progress
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.dataspace import RECORD, Margin
from semidp.promise.tradeoff.budget import Budget, approximate
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.smooth import ZCDP, Gaussian
from semidp.publish.residual_mechanism import ResidualMechanism, SharedNoise
from semidp.publish.results.columns import Columns, DataFrames, Form, PublishedColumns, StoredFiles
from semidp.publish.results.grids import Details, Section
from semidp.publish.results.published_table import FittedTable, PublishedTable, is_size
from semidp.publish.results.texts import CLAIM_TEXTS, scale_text
from semidp.publish.selection import AUTO, NAMES, naive_cost, naive_loss, select_mechanism
from semidp.publish.sources.reader import Reader
from semidp.publish.statistics.parts import Part, Partition, PartWork
from semidp.publish.written_values import only_keys, text


def noise_values(mechanism: Mechanism) -> dict[str, Any]:
    """Return the noise of a mechanism as plain values, with its unit unless it counts
    records.
    """
    values: dict[str, Any] = {"noise": mechanism.to_json()}
    if not mechanism.space.of_counts:
        values["unit"] = float(mechanism.space.unit)
    return values


BUDGET_KEYS = ("epsilon", "delta", "rho", "mu")
"""The keys of a budget in a plan file."""


Choice = TypeVar("Choice", bound=StrEnum)


@frozen
class Forecast:
    """A forecast of the error of a result, before anything is drawn, from public values
    alone.

    Parameters
    ----------
    name, features
        Its name, and its features.
    said
        The error in words.
    numbers
        The error as plain values.

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
        """Its label in comparisons of plans: its name."""
        return self.name

    def line(self) -> str:
        """Describe its error."""
        return self.said

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"name": self.name, "features": list(self.features), **self.numbers}


NO_RECORD = "no noise: there is no record"
"""The forecast if there are no records."""


class Request(ABC):
    """One thing to release with noise."""

    __slots__ = ()

    counted: ClassVar[str] = RECORD
    """The kind of record that it counts: `Dataspace.about` knows what is public about those."""
    list_key: ClassVar[str] = "statistics"
    """The list of release.json that its results are in."""
    trusted_fields: ClassVar[Mapping[str, str]] = {}
    """What is taken on trust about a request, and the key of a plan that states it."""

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
        """Its budget."""

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
        """Return the published result, a function of the measurement and of public values."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the request as plain values."""

    # --- what most requests answer alike

    def as_request(self) -> "Request":
        """Return the entry of a plan for this request: the request itself."""
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
        """Forecast its result with a mechanism: nothing by
        default.
        """
        return ()

    def noise_lines(self, mechanism: Mechanism, foreseen: Sequence[Any]) -> list[str]:
        """Describe its noise, and the resulting error."""
        scale = mechanism.scale * float(mechanism.space.unit)
        lines = [forecast.line() for forecast in foreseen]
        how = "; ".join(lines) or f"scale {scale_text(scale)}, {mechanism.claim} claim"
        name = self.name
        return [f"{mechanism.name} for {name}: {how}"]

    def noise_json(self, mechanism: Mechanism, foreseen: Sequence[Any]) -> dict[str, Any]:
        """Return its noise as plain values, with its unit unless it counts
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
        """The requested tables, and their target errors."""
        names = [" by ".join(table.features) for table in self.tables]
        errors = [table.target_error for table in self.tables]
        return tuple(zip(names, errors, strict=True))

    @property
    def has_targets(self) -> bool:
        """Whether a table has a target error instead of a budget."""
        return any(error is not None for _, error in self.targets)

    @property
    def largest_target(self) -> Fraction:
        """The largest target error of a table."""
        errors = [error for _, error in self.targets if error is not None]
        return max(errors, default=Fraction(0))

    def refuse_parts(self) -> None:
        """Refuse nothing: it runs in one piece alongside the
        parts.
        """
        return

    def refuse_units(self) -> None:
        """Refuse it: releases with linked units have only tables."""
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
        """Return the query space in one piece."""
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
        """Return None: it runs in one piece."""
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
        """Return the request, which has no target error."""
        return self

    def excess(self, mechanism: Mechanism) -> float:
        """Return 0: it has no target error."""
        return 0.0


def require_budget(request: Request) -> Budget:
    """Return the budget of a request; refuse one without a budget."""
    if request.budget is None:
        raise InputError(f"{request.name!r} has no privacy budget: give epsilon, rho or mu")
    return request.budget


class PlanEntry:
    """An entry of a plan file, one key per field."""

    __slots__ = ()

    key: ClassVar[str]
    _needs: ClassVar[Mapping[str, str]]
    """The required keys of an entry, and their notation."""
    _several_keys: ClassVar[Mapping[str, Sequence[str]]] = {"budget": BUDGET_KEYS}
    """The keys of the fields that an entry spreads over several."""

    @classmethod
    def _written(cls) -> list[str]:
        """The fields in the order of an entry: its name first."""
        names = [field.name for field in fields(cast(Any, cls))]
        return ["name", *(name for name in names if name != "name")]

    def to_json(self) -> dict[str, Any]:
        """Return the request as plain values, without defaults."""
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
        if isinstance(value, Mapping) and "missing" in {*value} - cls._keys():
            raise InputError(
                f"a {cls.key} of a plan has no key 'missing': private missing values are an entry"
                " [[answered]], and exact ones name the feature answered (docs/plan.md)"
            )
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
        """One file, named after it."""
        return (f"{self.name}.csv",)

    def calibrate(self, space: QuerySpace) -> Mechanism:
        """Return the mechanism that was asked for, or the one with the least expected loss."""
        return select_mechanism(space, require_budget(self), self.mechanism)


def read_entries(document: Mapping[str, Any], key: str) -> list[Any]:
    """Return a list of a plan file; refuse other values."""
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


@frozen(eq=False)
class RequestMeasurement:
    """The measurement of one request and its noise, from which the result is published.

    Tables by parts have their own classes, because a release does not hold all of their cells.
    """

    mechanism: Mechanism
    measurement: Measurement

    def publish(
        self, request: Any, scope: Scope, counts: Sequence[Any], progress: Progress
    ) -> "Published":
        """Return its published result.

        Parameters
        ----------
        request, scope
            The request, and the public scope.
        counts
            The whole numbers of its tables, if fitted before.
        progress
            Told what is going on.
        """
        stored = [counts] if counts else []
        result: Published = request.publish(
            self.mechanism, self.measurement, scope, progress, *stored
        )
        return result


class StepsByParts(ABC):
    """The steps of a request by parts: before the parts, for each part, and after them. A request
    that is not cut is one block, without work in the parts.

    Parameters
    ----------
    request, mechanism
        The request, and its noise, calibrated to the whole.
    values
        The confidential values that are measured before the parts.
    stems
        The names of its files next to the folders of parts, without endings, if the plan does
        not name them.
    foreseen
        Sentences on what may be published differently than requested.
    """

    is_fitted_jointly: ClassVar[bool] = False
    """Whether all parts are measured before any is fitted."""

    def __init__(
        self,
        request: Any,
        mechanism: Any,
        values: Confidential[NDArray[np.int64]],
        stems: Iterable[str] = (),
        foreseen: Iterable[str] = (),
    ) -> None:
        self.request = request
        self.mechanism = mechanism
        self.values = values
        self.stems = list(stems)
        self.foreseen = list(foreseen)

    @abstractmethod
    def add_noise(self, randomness: Randomness) -> NDArray[Any]:
        """Return the values with noise."""

    @abstractmethod
    def begin(self, noisy: NDArray[Any], private: bool) -> None:
        """Take the measurement from before the parts; `ValueError` if it is damaged."""

    def settle(self, work: Path, progress: Progress) -> None:  # noqa: B027 - most need nothing
        """Settle what the parts need once they are measured, if measuring comes first; by default
        nothing.

        Parameters
        ----------
        work
            The folder of the unfinished release.
        progress
            Told what is going on.
        """

    def part_work(self, node: int) -> PartWork | None:
        """Return the work of one part: only measuring before `settle`. None if there is
        none.
        """
        return None

    @abstractmethod
    def build_result(self, parts: Sequence[Part], work: Path, progress: Progress) -> "Published":
        """Return the result when all parts are done."""


NOISY = ("noisy", "steps_")
"""The prefix of columns of measured values, which are always the last of a file."""


CLOSE = 1e-6
"""The relative tolerance for rounding in print or in another machine's arithmetic."""


@frozen
class Trust:
    """A statement of a release that nothing in it confirms.

    Parameters
    ----------
    what
        What is taken on trust, in a sentence.
    fields
        Where it is stated: fields of release.json, ``file column``, or files.
    """

    what: str
    fields: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"what": self.what, "fields": list(self.fields)}


@frozen
class Noise:
    """The noise of a measurement: the mechanism, its scale, its claim, and its expected
    loss.

    `expected_l2` is the root of the expected squared distance between the measurement and the
    truth; `naive_l2` is the same for ordinary differential privacy pushed to the same guarantee by
    group privacy. `exact` is the distribution with its parameters as fractions; in JSON they are
    among the other entries, and an exact scale replaces the rounded one.

    >>> noise = Noise("laplace", 4.0, "exact", 1.0, None, {"law": "laplace", "scale": "4"})
    >>> noise.to_json()["scale"]
    '4'
    """

    mechanism: str
    scale: float
    claim: str
    expected_l2: float
    naive_l2: float | None
    exact: Mapping[str, str] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        # What is read from release.json comes this way too, so a damaged entry is refused.
        numbers = [self.scale, self.expected_l2]
        if self.naive_l2 is not None:
            numbers.append(self.naive_l2)
        has_words = isinstance(self.mechanism, str) and self.claim in tuple(CLAIMS)
        if not has_words or not all(map(is_size, numbers)):
            raise ValueError(
                "noise has the name of a mechanism, a claim, and numbers of at least 0"
            )

    @property
    def absent(self) -> bool:
        """Whether the exact totals fix everything, so no noise was needed."""
        return self.mechanism == NoNoise.name

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        entry: dict[str, Any] = asdict(self)
        law: Mapping[str, str] = entry.pop("exact")
        return {**entry, **law}


@frozen(slots=False, eq=False, kw_only=True)
class Published(DataFrames):
    """The base of all published results.

    Parameters
    ----------
    name
        Its name, and that of its files.
    noise
        Its noise.
    guarantee
        The guarantee of its measurement.
    advertised
        What the same noise would seem to guarantee for one record if the exact totals were ignored.
    private
        Whether its randomness was secure.
    noisy
        The measurement as drawn: everything else follows from it and from public values.
    """

    key: ClassVar[str]
    """The key in release.json of the list of results of this kind."""
    compared_fields: ClassVar[tuple[str, ...]] = ()
    """Fields of its entry in release.json, besides noise and guarantee, that follow from the noise:
    said once where the noise is not right."""
    counts_cells: ClassVar[bool] = False
    """Whether it measures cells of tables of counts, which several releases are combined by."""

    name: str
    noise: Noise
    guarantee: Guarantee
    advertised: Tradeoff | None
    private: bool
    noisy: NDArray[Any] = field(repr=False)

    @property
    def list_key(self) -> str:
        """The list of release.json that contains it."""
        return self.key

    # --- tables of counts in it

    def every_table(self) -> tuple[PublishedTable, ...]:
        """Return every table of counts that it holds; none for other statistics."""
        return ()

    def held_tables(self) -> tuple[PublishedTable, ...]:
        """Return the tables whose cells are in its own files: every one, or those at the cut of a
        release by parts.
        """
        return self.every_table()

    def residual_noise(self) -> SharedNoise | None:
        """Return the noise on the residuals of its tables; None if something else was
        measured.
        """
        return None

    # --- a release by parts

    def with_partition(self, partition: Partition) -> "Published":
        """Return the result with the location of its parts; itself if it has
        none.
        """
        return self

    def part_stems(self) -> tuple[list[str], str | None]:
        """Return the names of its tables in a part, and of the file of measurements there, if it
        is cut.
        """
        return [], None

    def tables_of_part(self, files: StoredFiles, node: int, part: Part) -> list[PublishedTable]:
        """Read its tables of one part."""
        return []

    def publish_part(
        self, files: StoredFiles, node: int, part: Part
    ) -> tuple[list[PublishedTable], Columns | None]:
        """Publish one part again from its measurement: its tables, and the measurement."""
        return [], None

    def part_faults(self, node: int, tables: Sequence[PublishedTable]) -> Iterator[str]:
        """Report whole numbers of a part that do not add up to exact totals, or to tables above."""
        yield from ()

    def whole_noisy(self, partition: Partition | None) -> NDArray[Any]:
        """Return the measurement of all parts together, as a release in one piece would hold it."""
        return self.noisy

    def space(self, request: "Request", scope: Scope) -> QuerySpace:
        """Return the query space in which it was measured."""
        return request.space(scope)

    def files(self, form: Form | None = None) -> dict[str, Columns]:
        """Return the files that hold it; cells and measurements in this form (default: by their
        number).
        """
        raise NotImplementedError

    # --- what is said about it
    # -----------------------------------------------------------------------

    def title(self) -> str:
        """Name it in the heading of a report."""
        return self.name

    def noisy_lines(self) -> list[str]:
        """Describe what it publishes with noise, and how much."""
        return [self.title()]

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return its lines for a terminal, each after a keyword."""
        scale = scale_text(self.noise.scale)
        line = f"{self.noise.mechanism}, scale {scale}, for {self.title()}"
        return [("mechanism", line)]

    def sections(self, form: Form | None = None) -> list[Section]:
        """Return its sections of the report; its files are written in this form."""
        return []

    def details(self) -> Details:
        """Say how it was measured, for specialists."""
        return Details(self.title(), f"scale {scale_text(self.noise.scale)}")

    def file_words(self, form: Form | None = None) -> list[tuple[str, str]]:
        """Name its files and say what they hold."""
        return [(file, self.title()) for file in self.files(form)]

    def columns_by_name(self) -> dict[str, PublishedColumns]:
        """Return its columns by name, for data frames."""
        return {}

    def by_features(self) -> dict[tuple[str, ...], PublishedColumns]:
        """Return its columns by features, for data frames."""
        return {}

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns of its file as lists; refused if it has several files and none
        with its name.
        """
        by_name = self.columns_by_name()
        name = self.name if self.name in by_name or len(by_name) != 1 else next(iter(by_name))
        if name not in by_name:
            raise InputError(
                f"{self.name!r} has several tables, {', '.join(by_name)}: take one of them"
            )
        return by_name[name].to_dict()

    def claim_text(self) -> str:
        """Say whether the claim covers the numbers actually sampled."""
        return CLAIM_TEXTS[self.noise.claim]

    @property
    def is_fixed(self) -> bool:
        """Whether exact totals fix all of it, so nothing is claimed."""
        return False

    def warnings(self) -> list[str]:
        """Say what a reader of the release must know about it: recorded in release.json."""
        return []

    def cautions(self) -> list[str]:
        """Say where noise dominates the result, from its numbers, each time it is shown."""
        return []

    def errors_json(self) -> list[dict[str, Any]]:
        """Return the errors of the cells of its tables as plain values: for each its name, errors,
        and the share that noise dominates.
        """
        return []

    @classmethod
    def said_of_several(cls, results: Sequence[Self]) -> list[str]:
        """Return sentences about all results of this class in one release."""
        return []

    def to_json(self) -> dict[str, Any]:
        """Return everything that is not in the files, as plain values."""
        entry: dict[str, Any] = {"name": self.name, "noise": self.noise.to_json()}
        entry["guarantee"] = self.guarantee.tradeoff.to_json()
        entry["advertised"] = self.advertised.to_json() if self.advertised else None
        entry["private"] = self.private
        return entry

    # --- computed again

    def recalibrate(self, request: "Request", scope: Scope) -> Mechanism:
        """Return its mechanism, by the name that it states, recalibrated as the request's budget
        asks.

        The choice of ``auto`` may change between versions; the result records what was chosen.
        """
        space = self.space(request, scope)
        return calibrate_named(self.noise.mechanism, space, require_budget(request))

    def sampling_mechanism(self, needed: Mechanism) -> Mechanism | None:
        """Return the mechanism whose noise was drawn; None if it states less noise than its
        budget needs.

        `needed` is the mechanism of its budget. If noise may be placed in several ways, the
        result's statement counts.
        """
        return needed if self.noise.scale >= needed.scale * (1 - CLOSE) else None

    def measurement(self, mechanism: Mechanism) -> Measurement:
        """Return the measurement as the mechanism would have returned it."""
        return mechanism.restore_measurement(self.noisy, self.private)

    def noisy_columns(self, form: Form | None) -> Iterator[str]:
        """Yield the location of its noisy values: a file and a column."""
        if self.noise.absent:
            return
        for name, columns in self.files(form).items():
            for column in columns.numbers:
                if column.startswith(NOISY):
                    yield f"{name} {column}"

    def trust_assumptions(self, request: "Request") -> Iterator[Trust]:
        """Yield what is taken on trust about it besides its noisy
        values.
        """
        yield from ()

    def fitted_tables(self) -> list[FittedTable]:
        """Return its tables of whole numbers, each with what it was fitted to; none for other
        statistics.
        """
        return []


def calibrate_named(name: str, space: QuerySpace, budget: Budget) -> Mechanism:
    """Return the mechanism that a result names, calibrated to a budget."""
    if space.is_zero:
        return NoNoise.calibrate(space, budget)
    # A result names the law that was drawn; the names of a plan are coarser.
    for law in FOR_RELEASES:
        if law.name == name:
            return law.calibrate(space, budget)
    return select_mechanism(space, budget, name)


def noise_name(mechanism: Mechanism) -> str:
    """Return the name of the noise of a mechanism in a release.

    >>> from semidp.promise.tradeoff.budget import Budget
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> noise_name(select_mechanism(two_way()[0], Budget.gdp(1)))
    'rounded gaussian'
    """
    return NoNoise.name if mechanism.space.is_zero else mechanism.name


def noise_law(mechanism: Mechanism) -> dict[str, str]:
    """Return the law of the noise in one entry with its exact parameters, as release.json has it.

    >>> from semidp.promise.tradeoff.budget import Budget
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> noise_law(select_mechanism(two_way()[0], Budget.gdp(1)))
    {'law': 'rounded gaussian', 'sigma2': '4'}
    """
    law = {"law": noise_name(mechanism)}
    for name in () if mechanism.space.is_zero else mechanism.scale_powers:
        law["scale" if name == "b" else name] = plain(getattr(mechanism, name))
    return law | mechanism.law_details


def mechanism_fields(
    name: str, mechanism: Mechanism, private: bool, expected_l2: float | None = None
) -> dict[str, Any]:
    """The fields that all results take from a mechanism (default: with its own expected
    loss).
    """
    expected = mechanism.expected_l2 if expected_l2 is None else expected_l2
    # Where values are chosen, ordinary differential privacy has nothing to compare them with.
    is_compared = mechanism.adds_noise and not mechanism.space.is_zero
    naive = naive_loss(mechanism) if is_compared else None
    scale, claim, law = mechanism.scale, mechanism.claim, noise_law(mechanism)
    noise = Noise(law["law"], scale, claim, expected, naive, law)
    fields: dict[str, Any] = {"name": name, "noise": noise, "private": private}
    fields["guarantee"] = mechanism.guarantee
    fields["advertised"] = naive_record_tradeoff(mechanism) if is_compared else None
    return fields


def naive_record_tradeoff(mechanism: Mechanism) -> Tradeoff | None:
    """Return the guarantee for one record that would wrongly be stated if the exact totals were
    ignored.

    The noise that hides a move of squared length Δ2² at mu hides one record, of squared length 2,
    at ``mu √(2/Δ2²)``; Laplace noise at epsilon and Δ1 hides one record at ``2 epsilon/Δ1``; noise
    on residuals at their costs for one. A person with several records has as many of them.
    """
    space, tradeoff = mechanism.space, mechanism.tradeoff
    times = space.adjacency.times
    if space.is_zero:
        return None
    if isinstance(mechanism, (ResidualMechanism, LinkedNoise)):
        cost = times**2 * naive_cost(mechanism)
        return ZCDP(cost / 2) if mechanism.law == "discrete" else Gaussian(cost)
    # Exact fractions, so no rounding makes the comparison better or worse than it is.
    alone = space.naive.multiply(times)
    share = Fraction(alone.l2_squared, space.l2_squared)
    if isinstance(tradeoff, ZCDP):
        return ZCDP(tradeoff.rho * share)
    if isinstance(tradeoff, Gaussian):
        return Gaussian(tradeoff.mu_squared * share)
    epsilon = tradeoff.implied_epsilon()
    if isinstance(mechanism, LaplaceMechanism) and epsilon is not None:
        return approximate(epsilon * Fraction(alone.l1, space.l1))
    return None
