"""What the rest of semidp knows of a statistic: its requests, what it publishes, and how records of
it are read.

The pipeline, the report, the explorer, the ledger and the auditor go through the values of this
page.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeVar, cast

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from semidp.core.exact import only_keys, plain, text
from semidp.core.guarantee import Guarantee
from semidp.core.progress import Progress, silent
from semidp.core.scope import Scope
from semidp.core.spaces.adjacency import Adjacency
from semidp.core.spaces.dataspace import RECORD, Datasets, Margin
from semidp.core.tradeoff.budget import Budget
from semidp.core.tradeoff.curves import approximate, tradeoff_from_json
from semidp.core.tradeoff.function import Tradeoff
from semidp.core.tradeoff.smooth import ZCDP, Gaussian
from semidp.errors import InputError
from semidp.mechanisms.linked_noise import LinkedMechanism
from semidp.mechanisms.mechanism import CLAIMS, Measurement, Mechanism, NoNoise
from semidp.mechanisms.pure import LaplaceMechanism
from semidp.mechanisms.residual_noise import ResidualMechanism
from semidp.mechanisms.selection import AUTO, FOR_RELEASES, NAMES, mechanism_for
from semidp.mechanisms.shared_noise import SharedNoise
from semidp.noise.randomness import Randomness
from semidp.output.cells import Columns, Form, PublishedColumns, StoredFiles
from semidp.output.published_table import PublishedTable
from semidp.output.sections import Details, Section
from semidp.output.texts import CLAIM_TEXTS, scale_text
from semidp.queries.branches import Cut
from semidp.queries.query_space import QuerySpace
from semidp.queries.worst_pairs import Pair
from semidp.sources.reader import Reader
from semidp.statistics.fields import Chosen, Field
from semidp.statistics.findings import CLOSE, Findings, Trust, close, different_columns
from semidp.statistics.parts import Part, Partition, PartWork

_SAME_SCALE = 1e-9  # relative: two calibrations of one budget differ by no more


@dataclass(frozen=True)
class Noise:
    """How something was measured: the mechanism, its scale, what it claims, and the loss it was
    expected to cost.

    `expected_l2` is the root of the expected squared distance between the measurement and the
    truth; `naive_l2` is the same for ordinary differential privacy pushed to the same guarantee by
    group privacy.
    """

    mechanism: str
    scale: float
    claim: str
    expected_l2: float
    naive_l2: float | None

    def __post_init__(self) -> None:
        # What is read from release.json comes this way too, so that a damaged entry is refused.
        numbers = (self.scale, self.expected_l2, 0.0 if self.naive_l2 is None else self.naive_l2)
        if (
            not isinstance(self.mechanism, str)
            or self.claim not in tuple(CLAIMS)
            or not all(map(is_size, numbers))
        ):
            raise ValueError(
                "noise has the name of a mechanism, a claim, and numbers of at least 0"
            )

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
    noisy
        What was measured, as drawn: everything else follows from it and from public values.
    """

    key: ClassVar[str]
    """What release.json calls the list of results of this kind."""
    noise_fields: ClassVar[tuple[str, ...]] = (
        "noise.mechanism",
        "noise.scale",
        "noise.claim",
        "noise.expected_l2",
    )
    """Fields of its entry in release.json that follow from the noise: said once where the noise is
    not right."""
    compared_fields: ClassVar[tuple[str, ...]] = ()
    """Further fields of its noise, which `stated_mechanism` compares: an earlier version may have
    used more noise."""
    derived_fields: ClassVar[tuple[str, ...]] = ("advertised", "noise.naive_l2")
    """Fields that an earlier version may have computed otherwise."""
    counts_cells: ClassVar[bool] = False
    """Whether it measures cells of tables of counts, which several releases are combined by."""

    name: str
    noise: Noise
    guarantee: Guarantee
    advertised: Tradeoff | None
    private: bool
    noisy: NDArray[Any] = field(repr=False)

    @property
    def listed_in(self) -> str:
        """The list of release.json that it is in."""
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
        """Return the noise on the residuals of its tables; None where something else was
        measured.
        """
        return None

    def weighted_sum(
        self, weights: Mapping[str, NDArray[np.float64]], scope: Scope
    ) -> tuple[float, float]:
        """Return a weighted sum of cells of its tables, by their names, and its exact standard
        error.
        """
        raise NotImplementedError

    # --- a release by parts

    def placed(self, partition: Partition) -> "Published":
        """Return the result when it is known where the parts are: itself where nothing of it is in
        them.
        """
        return self

    def part_stems(self) -> tuple[list[str], str | None]:
        """Return what its tables in a part are called, and the file of what was measured there,
        where it is cut.
        """
        return [], None

    def tables_of_part(self, files: StoredFiles, node: int, part: Part) -> list[PublishedTable]:
        """Read its tables of one part."""
        return []

    def whole_noisy(self, partition: Partition | None) -> NDArray[Any]:
        """Return what was measured in all parts together, as drawn: what one piece would hold."""
        return self.noisy

    def space(self, request: "Request", scope: Scope) -> QuerySpace:
        """Return the query space in which it was measured."""
        return request.space(scope)

    def files(self, form: Form | None = None) -> dict[str, Columns]:
        """Return the files that hold it; cells and measurements in this form, or in what their
        number suggests.
        """
        raise NotImplementedError

    # --- what is said of it -----------------------------------------------------------------------

    def title(self) -> str:
        """Name it in the heading of a report."""
        return self.name

    def noisy_lines(self) -> list[str]:
        """Say what of it is published with noise, and how much."""
        return [self.title()]

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return what a terminal shows of it: lines, each after a word on what it is about."""
        return [
            (
                "mechanism",
                f"{self.noise.mechanism}, scale {scale_text(self.noise.scale)}, for {self.title()}",
            )
        ]

    def sections(self, form: Form | None = None) -> list[Section]:
        """Return its sections of the report; its files are written in this form."""
        return []

    def details(self) -> Details:
        """Say how it was measured, for specialists."""
        return Details(self.title(), f"scale {scale_text(self.noise.scale)}")

    def file_words(self, form: Form | None = None) -> list[tuple[str, str]]:
        """Name its files and say what they hold."""
        return [(file, self.title()) for file in self.files(form)]

    def named(self) -> dict[str, PublishedColumns]:
        """Return what a release finds of it under a name, for data frames."""
        return {}

    def by_features(self) -> dict[tuple[str, ...], PublishedColumns]:
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
        """Say what a reader of the release must know about it: recorded in release.json."""
        return []

    def cautions(self) -> list[str]:
        """Say where noise dominates what is published: from its numbers, each time it is shown."""
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

    # --- computed again

    def recalibrated(self, request: "Request", scope: Scope) -> Mechanism:
        """Return its mechanism, by the name that it states, calibrated anew as the request's budget
        asks.

        What ``auto`` chooses may change from version to version; what was chosen is in the result.
        """
        budget = budget_of(request)
        space = self.space(request, scope)
        if space.is_zero:
            return NoNoise.calibrate(space, budget)
        # A result names the law that was drawn; the names of a plan are coarser.
        for law in FOR_RELEASES:
            if law.name == self.noise.mechanism:
                return law.calibrate(space, budget)
        return mechanism_for(space, budget, self.noise.mechanism)

    def faults(self, mechanism: Mechanism) -> Iterator[str]:
        """Say where it records another mechanism, or less noise, than the one that its plan
        gives.
        """
        name = noise_name(mechanism)
        if self.noise.mechanism != name:
            yield f"it records the mechanism {self.noise.mechanism}, but its plan gives {name}"
        # Noise on residuals has a scale for each of them, and is compared by what it costs.
        elif mechanism.has_one_scale and self.noise.scale < mechanism.scale * (1 - _SAME_SCALE):
            yield (
                f"it records noise of scale {self.noise.scale:.6g}, but its plan needs"
                f" {mechanism.scale:.6g}"
            )

    def drawn_by(self, needed: Mechanism) -> Mechanism | None:
        """Return the mechanism whose noise was drawn; None where it states less noise than its
        budget needs.

        `needed` is the mechanism of its budget. Noise that may be placed in several ways is what
        the result states.
        """
        return needed if self.noise.scale >= needed.scale * (1 - CLOSE) else None

    def stated_mechanism(self, check: "ResultCheck") -> Mechanism | None:
        """Return the mechanism with the noise that it states; None, and say why, where its budget
        gives another.
        """
        needed, stated = check.mechanism, self.noise.scale
        if close(stated, needed.scale):
            return needed
        # Less noise than the budget needs is a false claim, whichever version made it.
        if check.findings.current or stated < needed.scale or not needed.scale:
            if not check.told:
                check.wrong(f"noise of scale {stated:.6g}, and its budget gives {needed.scale:.6g}")
            return None
        # An earlier version used more noise, and all else follows from that.
        return needed.with_scale(stated)

    def measurement(self, mechanism: Mechanism) -> Measurement:
        """Return what was measured as the mechanism would have returned it."""
        return mechanism.measured_again(self.noisy, self.private)

    def published_again(self, check: "ResultCheck", mechanism: Mechanism) -> "Published":
        """Return what the request publishes of the same measurement."""
        return check.request.publish(mechanism, self.measurement(mechanism), check.scope, silent)

    def recheck(self, check: "ResultCheck", mechanism: Mechanism) -> "Published":
        """Compare its numbers with what follows from its noisy values; return it as it is computed
        again.

        Parameters
        ----------
        check
            What it is computed again from, and where it is noted what does not follow.
        mechanism
            The mechanism with the noise that it states.
        """
        again = self.published_again(check, mechanism)
        check.compare_fixed(self, again, mechanism)
        check.compare_columns(
            self, again, lambda column: f"a column {column!r} that does not follow from its noise"
        )
        return again

    def holds_noise(self, column: str) -> bool:
        """Whether a column of its files holds what was measured."""
        return column == "noisy"

    def noisy_columns(self, form: Form | None) -> Iterator[str]:
        """Yield where its noisy values stand: a file, and a column of it."""
        if self.noise.absent:
            return
        for name, columns in self.files(form).items():
            for column in columns.numbers:
                if self.holds_noise(column):
                    yield f"{name} {column}"

    def trusted(self, request: "Request") -> Iterator[Trust]:
        """Yield what is believed of it besides its noisy values: nothing else that it states
        follows from the rest.
        """
        yield from ()

    def fitted_cells(self, request: "Request", scope: Scope) -> int:
        """Return how many cells are fitted when it is computed again, which takes the time of a
        recheck.
        """
        return 0


def noise_name(mechanism: Mechanism) -> str:
    """Return what a release calls the noise of a mechanism.

    >>> from semidp.mechanisms.examples import two_way
    >>> noise_name(mechanism_for(two_way()[0], Budget.gdp(1)))
    'rounded gaussian'
    """
    return NoNoise.name if mechanism.space.is_zero else mechanism.name


@dataclass(eq=False)
class ResultCheck:
    """What a published result is computed again from, and where it is noted what does not follow.

    Parameters
    ----------
    findings
        What the recheck has found so far.
    name
        What the result is called.
    request, scope
        What was asked for, and what is public.
    mechanism
        The mechanism that the budget gives.
    form
        How the cells of the release are written.
    partition
        The parts of a release that was carried out part by part; None for others.
    """

    findings: Findings
    name: str
    request: "Request"
    scope: Scope
    mechanism: Mechanism
    form: Form | None
    partition: Partition | None = None

    def __post_init__(self) -> None:
        self._before = len(self.findings.wrong)

    @property
    def told(self) -> bool:
        """Whether something of this result was found wrong already."""
        return len(self.findings.wrong) > self._before

    def wrong(self, said: str) -> None:
        """Note something that this result states and that does not follow."""
        self.findings.wrong.append(f"{self.name!r} states {said}")

    def compare_fixed(self, result: Published, again: Published, mechanism: Mechanism) -> None:
        """Compare a measurement that the exact totals fix with what they fix."""
        if mechanism.space.is_zero and not np.array_equal(result.noisy, again.noisy):
            self.wrong("a measurement that is not what its exact totals fix")

    def compare_columns(
        self,
        result: Published,
        again: Published,
        firm: Callable[[str], str | None],
        others: str = "",
        tolerance: float = CLOSE,
    ) -> None:
        """Compare the columns of all files of a result.

        Parameters
        ----------
        result, again
            The result, and as it is computed again.
        firm
            What to say where a column differs; None for a column that an earlier version may have
            computed otherwise.
        others
            What to say of such a column where this version wrote it.
        tolerance
            By how much numbers may differ, relative to the largest.
        """
        stated = result.files()
        for name, columns in again.files().items():
            for column in different_columns(stated[name], columns, tolerance):
                said = firm(column)
                if said is not None:
                    self.wrong(said)
                elif self.findings.current:
                    self.wrong(others)
                else:
                    self.findings.earlier(f"{name} {column}")


def noise_values(mechanism: Mechanism) -> dict[str, Any]:
    """Return the noise of a mechanism as plain values, with the unit that it is in unless it counts
    records.
    """
    values: dict[str, Any] = {"noise": mechanism.to_json()}
    if not mechanism.space.of_counts:
        values["unit"] = float(mechanism.space.unit)
    return values


def measured_by(
    name: str, mechanism: Mechanism, private: bool, expected_l2: float | None = None
) -> dict[str, Any]:
    """The fields that all results take from a mechanism; its own expected loss unless another is
    given.
    """
    noise = Noise(
        mechanism=noise_name(mechanism),
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
    # The entry has the curve alone; for which datasets and neighbours it holds is in the scope.
    return {
        "name": entry["name"],
        "noise": Noise(**entry["noise"]),
        "guarantee": Guarantee(
            scope.dataspace, scope.adjacency, tradeoff_from_json(entry["guarantee"])
        ),
        "advertised": tradeoff_from_json(entry["advertised"]) if entry["advertised"] else None,
        "private": entry["private"],
    }


def advertised(mechanism: Mechanism) -> Tradeoff | None:
    """Return what the same noise would be said to give for one record if the exact totals were
    forgotten.

    The noise that hides a move of squared length Δ2² at mu hides one record, of squared length 2,
    at ``mu √(2/Δ2²)``; Laplace noise at epsilon and Δ1 hides one record at ``2 epsilon/Δ1``; noise
    on residuals at their costs for one. A person with several records has as many of them.
    """
    space, tradeoff = mechanism.space, mechanism.tradeoff
    times = space.adjacency.times
    if space.is_zero:
        return None
    if isinstance(mechanism, (ResidualMechanism, LinkedMechanism)):
        cost = times**2 * mechanism.forgotten
        return ZCDP(cost / 2) if mechanism.law == "discrete" else Gaussian(cost)
    # Exact fractions, so that no rounding makes the comparison better or worse than it is.
    alone = space.naive.scaled(times)
    share = Fraction(alone.l2_squared, space.l2_squared)
    if isinstance(tradeoff, ZCDP):
        return ZCDP(tradeoff.rho * share)
    if isinstance(tradeoff, Gaussian):
        return Gaussian(tradeoff.mu_squared * share)
    epsilon = tradeoff.implied_epsilon()
    if isinstance(mechanism, LaplaceMechanism) and epsilon is not None:
        return approximate(epsilon * Fraction(alone.l1, space.l1))
    return None


def is_size(value: object) -> bool:
    """Whether a value is a number of at least 0, infinity included."""
    # A float that is not a number fails both comparisons, and Python takes True for 1.
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= math.inf
    )


BUDGET_KEYS = ("epsilon", "delta", "rho", "mu")
"""What a budget is written with in a plan file."""


Choice = TypeVar("Choice", bound=StrEnum)


class Chargeable(Protocol):
    """Where a guarantee is charged before noise is drawn: a ledger."""

    def charge(
        self, guarantee: Guarantee, label: str, measured: Sequence[Mapping[str, Any]] = ()
    ) -> Any:
        """Record a guarantee with what is measured, or refuse it."""


class Forecast(Protocol):
    """Something that a request would publish, before anything is drawn: from public values
    alone.
    """

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

    @property
    def key(self) -> str:
        """The word for requests of this kind in plan files and machine-readable output."""

    counted: ClassVar[str]
    """The kind of record that it counts: `Dataspace.about` knows what is public about those."""

    def as_request(self) -> "Request":
        """Return what a plan holds where nothing else is asked for."""

    @property
    def name(self) -> str:
        """Its name, and that of its files."""

    @property
    def share_name(self) -> str:
        """Its name where one budget is divided among requests."""

    @property
    def budget(self) -> Budget | None:
        """What it may spend."""

    @property
    def mechanism(self) -> str:
        """The name of its mechanism, or ``auto``."""

    @property
    def answered_by(self) -> str:
        """The key of the kind of statistic that answers it: its own or another, or ``auto`` for the
        better one.
        """

    @property
    def features(self) -> tuple[str, ...]:
        """The features that it uses."""

    @property
    def private_columns(self) -> tuple[str, ...]:
        """The columns of outcomes that it reads, which nothing publishes."""

    @property
    def needed_readings(self) -> Mapping[str, str]:
        """How columns must be read for it, beside what a plan declares."""

    @property
    def exact_margins(self) -> tuple[Margin, ...]:
        """The margins whose counts it needs to be exact."""

    @property
    def tables(self) -> tuple[Any, ...]:
        """The tables of counts that it asks for, each with `name` and `features`; none for other
        statistics.
        """

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

    def publish(
        self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress
    ) -> Published:
        """Return what is published: post-processing of the measurement and of public values."""

    def refuse_parts(self) -> None:
        """Refuse what cannot be carried out beside parts, in a sentence."""

    def parts_space(self, scope: Scope) -> QuerySpace:
        """Return its query space in a release by parts."""

    def parts_calibrate(self, space: QuerySpace) -> Mechanism:
        """Return the mechanism that measures it in a release by parts."""

    def in_parts(
        self,
        mechanism: Mechanism,
        cut: Cut,
        scope: Scope,
        requests: "Sequence[Request]",
        reader: Reader,
    ) -> "InParts | None":
        """Return how it is carried out part by part; None where it is carried out in one piece
        beside the parts.

        Parameters
        ----------
        mechanism
            Its mechanism in a release by parts.
        cut, scope
            Where tables are taken apart, and what is public.
        requests
            Every request of the plan.
        reader
            Reads the records.
        """

    def with_budget(self, budget: Budget | None) -> Self:
        """Return the request with another budget, or with none."""

    def with_mechanism(self, name: str) -> Self:
        """Return the request with another mechanism; itself where it has no choice of one."""

    def dividing(self, budget: Budget) -> "tuple[Request, ...]":
        """Return requests that spend a budget together: this one, or several that it falls into."""

    def apart(self) -> "tuple[Request, ...]":
        """Return requests that measure one by one what this one measures together."""

    @property
    def targets(self) -> "tuple[tuple[str, Fraction | None], ...]":
        """The tables that may name an error instead of a budget, each with the error that it
        names.
        """

    @property
    def has_targets(self) -> bool:
        """Whether it names errors instead of a budget."""

    @property
    def largest_target(self) -> Fraction:
        """The largest error that it names."""

    def with_target_errors(self, option: str, errors: Mapping[str, str]) -> Self:
        """Return the request with the errors that an option names, by the features of its
        tables.
        """

    def without_targets(self) -> Self:
        """Return the request ready to be given a budget."""

    def excess(self, mechanism: Mechanism) -> float:
        """Return how many times too large its worst error is beside the error that it names."""

    def to_json(self) -> dict[str, Any]:
        """Return the request as plain values."""


class InParts(Protocol):
    """A request that is carried out part by part: what is done before the parts, for each part, and
    after them.
    """

    @property
    def mechanism(self) -> Mechanism:
        """Its noise, calibrated to the whole."""

    @property
    def values(self) -> NDArray[np.int64]:
        """The confidential values that are measured before the parts."""

    @property
    def stems(self) -> Sequence[str]:
        """What its files beside the folders of parts are called, but for their endings, where the
        plan does not say.
        """

    def foreseen(self) -> Iterable[str]:
        """Say what may be published otherwise than was asked for."""

    def drawn(self, randomness: Randomness) -> NDArray[Any]:
        """Return the values with noise."""

    def begin(self, noisy: NDArray[Any], private: bool) -> object:
        """Take what was measured before the parts; `ValueError` where it is damaged."""

    @property
    def together(self) -> bool:
        """Whether all parts are measured before any is fitted."""

    def settle(self, number: int, work: Path, progress: Progress) -> None:
        """Settle what the parts need, when they are measured where that comes first.

        Parameters
        ----------
        number
            Which request of the plan it is.
        work
            The folder of the unfinished release.
        progress
            Told what is going on.
        """

    def part_work(self, node: int) -> PartWork | None:
        """Return what is to be done in one part: only measuring before `settle`. None where nothing
        is.
        """

    def published(self, parts: Sequence[Part], work: Path, progress: Progress) -> Published:
        """Return what is published, when all parts are done."""


class RequestDefaults:
    """What most requests answer alike: one that names no error, asks for no table and reads no
    outcome.
    """

    __slots__ = ()

    counted: ClassVar[str] = RECORD
    """The kind of record that it counts: `Dataspace.about` knows what is public about those."""

    def as_request(self: Request) -> Request:
        """Return what a plan holds where nothing else is asked for: the request itself."""
        return self

    @property
    def share_name(self: Request) -> str:
        """Its own name."""
        return self.name

    @property
    def answered_by(self: Request) -> str:
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
        errors = "; ".join(forecast.line() for forecast in foreseen)
        how = errors or f"scale {scale:.4g}, {mechanism.claim} claim"
        return [f"{mechanism.name} for {cast(Request, self).name}: {how}"]

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
        return tuple((" by ".join(table.features), table.target_error) for table in self.tables)

    @property
    def has_targets(self) -> bool:
        """Whether a table names an error instead of a budget."""
        return any(error is not None for _, error in self.targets)

    @property
    def largest_target(self) -> Fraction:
        """The largest error that a table names."""
        return max((error for _, error in self.targets if error is not None), default=Fraction(0))

    def refuse_parts(self) -> None:
        """Refuse nothing: it is carried out in one piece beside the parts."""

    def parts_space(self, scope: Scope) -> QuerySpace:
        """Return the query space of one piece."""
        return cast(Request, self).space(scope)

    def parts_calibrate(self, space: QuerySpace) -> Mechanism:
        """Return the mechanism that measures it in one piece."""
        return cast(Request, self).calibrate(space)

    def in_parts(
        self,
        mechanism: Mechanism,
        cut: Cut,
        scope: Scope,
        requests: Sequence[Request],
        reader: Reader,
    ) -> InParts | None:
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

    def dividing(self, budget: Budget) -> tuple[Request, ...]:
        """Return the request with the whole budget."""
        return (cast(Request, self.with_budget(budget)),)

    def apart(self) -> tuple[Request, ...]:
        """Return the request: it measures one thing."""
        return (cast(Request, self),)

    def with_target_errors(self, option: str, errors: Mapping[str, str]) -> Self:
        """Return the request: it has no table."""
        return self

    def without_targets(self) -> Self:
        """Return the request, which names no error."""
        return self

    def excess(self, mechanism: Mechanism) -> float:
        """Return 0: it names no error."""
        return 0.0


def budget_of(request: Request) -> Budget:
    """Return what a request may spend; refuse one without a budget."""
    if request.budget is None:
        raise InputError(f"{request.name!r} has no privacy budget: give epsilon, rho or mu")
    return request.budget


class PlanEntry:
    """An entry of a plan file, a key a field."""

    __slots__ = ()

    key: ClassVar[str]
    _written: ClassVar[tuple[str, ...]]
    """The fields in the order of an entry."""
    _needs: ClassVar[Mapping[str, str]]
    """What an entry must have, and how that is written."""
    _several_keys: ClassVar[Mapping[str, Sequence[str]]] = {"budget": BUDGET_KEYS}
    """The keys of the fields that an entry spreads over several."""

    def to_json(self) -> dict[str, Any]:
        """Return the request as plain values: what is not asked for is left out."""
        entry: dict[str, Any] = {}
        for name in self._written:
            entry |= self._entry(name, getattr(self, name))
        return entry

    def _entry(self, name: str, value: Any) -> dict[str, Any]:
        if isinstance(value, Budget):
            return value.keys()
        usual = value is None or value is False or value == () or (name, value) == ("weight", 1)
        return {} if usual else {name: _plain(value)}

    @classmethod
    def _keys(cls) -> set[str]:
        """The keys that an entry may have."""
        keys: set[str] = set()
        for name in cls._written:
            keys.update(cls._several_keys.get(name, (name,)))
        return keys

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote, or an entry of a plan file."""
        only_keys(value, cls._keys(), f"a {cls.key} of a plan")
        # A text after `by` would be taken for a list of its letters.
        if any(name not in value for name in cls._needs) or not isinstance(
            value.get("by", ()), (list, tuple)
        ):
            needs = " and ".join(f"{name} = {how}" for name, how in cls._needs.items())
            raise InputError(f"a {cls.key} of a plan needs {needs}")
        request: Self = cast(Any, cls)(**cls._fields(value))
        return request

    @classmethod
    def _fields(cls, value: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **{name: value[name] for name in cls._written if name in value},
            "budget": Budget.stated(value),
        }


class OwnBudget(PlanEntry, RequestDefaults):
    """A request with a budget of its own and an entry in a plan file, a key a field."""

    __slots__ = ()

    def calibrate(self: Request, space: QuerySpace) -> Mechanism:
        """Return the mechanism that was asked for, or the one with the least expected loss."""
        return mechanism_for(space, budget_of(self), self.mechanism)


def entries_of(document: Mapping[str, Any], key: str) -> list[Any]:
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
        raise InputError(f"there is no mechanism {name!r}; there are {AUTO}, {', '.join(NAMES)}")
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
    return (
        plain(value)
        if isinstance(value, Fraction)
        else value
        if isinstance(value, bool)
        else str(value)
    )


def member(kind: type[Choice], value: str, name: str) -> Choice:
    if not isinstance(value, str) or str(value) not in list(kind):
        raise InputError(f"{name} must be one of {', '.join(kind)}, not {value!r}")
    return kind(str(value))


ResultReader = Callable[[Mapping[str, Any], Any, Scope, StoredFiles], Published]
"""Reads what `Published.to_json` and `Published.files` wrote, of a request of the plan."""

PartsReader = Callable[
    [Mapping[str, Any], Any, Sequence[Request], Partition, Scope, StoredFiles], Published
]
"""Reads the same of a request that was carried out part by part, among all requests of the plan."""


class Attackable(Protocol):
    """A printed result that an audit can attack: it draws outputs again, from public values
    alone.
    """

    @property
    def guarantee(self) -> Guarantee:
        """What it claims."""

    def worst_pair(self) -> Pair:
        """Return two values of adjacent datasets."""

    def measure_many(
        self, values: NDArray[np.int64], count: int, randomness: Randomness
    ) -> NDArray[Any]:
        """Return many independent outputs for one value."""


QueryReader = Callable[[Mapping[str, Any], Datasets, Adjacency], QuerySpace]
"""Reads what `QuerySpace.query` wrote, under any exact statistics and adjacency."""


@dataclass(frozen=True)
class OtherAnswer:
    """The questions of a request, put to another kind of statistic at the same cost.

    Parameters
    ----------
    request
        What asks them.
    better
        Whether it answers them better, by public numbers alone.
    reason
        How well both answer them.
    """

    request: Request
    better: bool
    reason: str


@dataclass(frozen=True)
class Kind:
    """A kind of statistic, as the rooms above its folder know it.

    Parameters
    ----------
    place
        Where its requests stand among those of a plan.
    key
        The list of its requests in a plan file.
    asked
        The classes that a plan takes; the first reads an entry of a plan file.
    queries
        How a recorded query is read, by the kind that the record states.
    laws
        The mechanisms that measure it, where they are its own; additive noise otherwise.
    results
        How a published result is read, by the key of its list in release.json.
    results_by_parts
        How a result is read that was carried out part by part, by the key of its list in
        release.json.
    always_listed
        The keys of lists that release.json has even where they are empty.
    printed
        How a result is read that a command printed as JSON, by a key that only such a document has.
    plan_keys
        What it may have at the top of a plan file beside its list.
    gather
        Turns what a plan was given into its requests.
    read_plan, write_plan
        How its requests are read from a plan file and written to it, where an entry each is not
        all.
    fields
        What can be chosen of it, each with what stands beside it: options of `semidp release` and
        controls of the explorer.
    ask
        Turns what was chosen into requests, or into whatever a plan takes.
    shown
        The other way: what would have been chosen to ask for a request, with what is asked for,
        without a budget. The request may ask for several things, such as tables.
    alternative
        Returns how this kind would answer a request of another, beside the mechanism that would
        measure it; None where it does not answer such questions. Public numbers alone decide.
    """

    place: int
    key: str
    asked: tuple[type[Any], ...] = ()
    queries: Mapping[str, QueryReader] = field(default_factory=dict)
    laws: tuple[type[Mechanism], ...] = ()
    results: Mapping[str, ResultReader] = field(default_factory=dict)
    results_by_parts: Mapping[str, PartsReader] = field(default_factory=dict)
    always_listed: tuple[str, ...] = ()
    printed: Mapping[str, Callable[[Mapping[str, Any]], "Attackable"]] = field(default_factory=dict)
    plan_keys: tuple[str, ...] = ()
    gather: Callable[[Sequence[Any]], Sequence[Request]] = tuple
    read_plan: Callable[[Mapping[str, Any]], Sequence[Request]] | None = None
    write_plan: Callable[[Sequence[Any]], dict[str, Any]] | None = None
    fields: tuple[Field, ...] = ()
    ask: Callable[[Chosen], Sequence[Any]] = lambda chosen: ()
    shown: Callable[[Any], Sequence[tuple[Mapping[str, Any], Any]]] = lambda request: ()
    alternative: Callable[[Request, Mechanism], OtherAnswer | None] = lambda request, mechanism: (
        None
    )

    @property
    def recorded_laws(self) -> tuple[type[Mechanism], ...]:
        """The mechanisms that the record of a measurement may name: what measures it, or no noise
        at all.
        """
        return (*(self.laws or (*FOR_RELEASES, ResidualMechanism)), NoNoise)

    def read(self, document: Mapping[str, Any]) -> Sequence[Request]:
        """Return its requests of a plan file."""
        if self.read_plan is not None:
            return self.read_plan(document)
        if not self.asked:
            return ()
        reader: type[PlanEntry] = self.asked[0]
        return [cast(Request, reader.from_json(entry)) for entry in entries_of(document, self.key)]

    def write(self, requests: Sequence[Request]) -> dict[str, Any]:
        """Return its requests as a plan file has them."""
        if self.write_plan is not None:
            return self.write_plan(requests)
        return {self.key: [request.to_json() for request in requests]} if self.asked else {}
