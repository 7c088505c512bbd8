"""What a request and its forecast answer, in one piece and by parts: the protocols that the
pipeline, the commands and the explorer go through.

Nothing here runs; what most requests answer alike is in `request_defaults`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from semidp.promise.confidential import Confidential
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.noise.randomness import Randomness
from semidp.promise.progress import Progress
from semidp.promise.sensitivity.branches import Cut
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.spaces.dataspace import Margin
from semidp.promise.tradeoff.budget import Budget
from semidp.publish.sources.reader import Reader
from semidp.publish.statistics.parts import Part, PartWork

if TYPE_CHECKING:
    from semidp.publish.statistics.protocol.results import Published


class Forecast(Protocol):
    """Something that a request would publish, before anything is drawn: from public values
    alone.
    """

    listed: ClassVar[str]
    """The list that it is in, in a document for machines: ``tables`` or ``statistics``."""
    by_cells: ClassVar[bool]
    """Whether it is a table of counts, which a page shows cell by cell."""

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
    def answering_kind(self) -> str:
        """The key of the kind of statistic that answers it: its own or another, or ``auto`` for the
        better one.
        """

    @property
    def features(self) -> tuple[str, ...]:
        """The features that it uses."""

    @property
    def private_columns(self) -> tuple[str, ...]:
        """Columns of the outcomes that it reads. Nothing publishes them."""

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

    def measured_space(self, entry: Mapping[str, Any], scope: Scope) -> QuerySpace:
        """Return the query space of a stored measurement, by its entry in release.json."""

    def order_noisy(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the noisy values in the order in which they were measured.

        Parameters
        ----------
        rows
            The noisy columns of its files, one file after the other.
        """

    def calibrate(self, space: QuerySpace) -> Mechanism:
        """Return the mechanism that measures it within its budget."""

    def forecast(self, mechanism: Mechanism, scope: Scope) -> tuple[Forecast, ...]:
        """Return what it would publish with a mechanism, from public values alone."""

    def noise_lines(self, mechanism: Mechanism, foreseen: Sequence[Any]) -> list[str]:
        """Say with what noise it would be measured; `foreseen` is its forecast."""

    def noise_json(self, mechanism: Mechanism, foreseen: Sequence[Any]) -> dict[str, Any]:
        """Return the same as plain values."""

    def read(
        self, reader: Reader, scope: Scope, space: QuerySpace
    ) -> Confidential[NDArray[np.int64]]:
        """Return the confidential values of its query."""

    def publish(
        self, mechanism: Mechanism, measured: Measurement, scope: Scope, progress: Progress
    ) -> "Published":
        """Return what is published: post-processing of the measurement and of public values."""

    def refuse_parts(self) -> None:
        """Refuse what cannot be carried out beside parts, in a sentence."""

    def refuse_units(self) -> None:
        """Refuse what is not built beside linked units, in a sentence."""

    @property
    def missing_as(self) -> Fraction | None:
        """The number that stands for a missing value of its outcome; None without an outcome."""

    def of_answered(self, column: str) -> "Request | None":
        """Return the request by groups of those who answered, as a column says; None where it has
        no groups.
        """

    def parts_space(self, scope: Scope) -> QuerySpace:
        """Return its query space in a release by parts."""

    def parts_calibrate(self, space: QuerySpace) -> Mechanism:
        """Return the mechanism that measures it in a release by parts."""

    def steps_by_parts(
        self,
        mechanism: Mechanism,
        cut: Cut,
        scope: Scope,
        requests: "Sequence[Request]",
        reader: Reader,
    ) -> "StepsByParts | None":
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

    def as_separate_requests(self) -> "tuple[Request, ...]":
        """Return requests that measure one by one what this one measures together."""

    @property
    def targets(self) -> "tuple[tuple[str, Fraction | None], ...]":
        """Tables that may ask for an error instead of a budget, each with that error."""

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
        """Return the ratio of its worst error to the error that it asks for."""

    def to_json(self) -> dict[str, Any]:
        """Return the request as plain values."""


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

    def foreseen(self) -> Iterable[str]:
        """Say what may be published otherwise than was asked for."""

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
