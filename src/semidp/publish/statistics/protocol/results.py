"""What every published result answers: its noise and guarantee, its files, its words, and how it is
computed again.

A statistic's `Published` class adds what is its own; what is measured is in `mechanisms`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Self

from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.accounting.recorded_queries import FOR_RELEASES
from semidp.promise.exact import plain
from semidp.promise.guarantee import Guarantee, Scope
from semidp.promise.mechanisms.additive import LaplaceMechanism
from semidp.promise.mechanisms.linked_noise import LinkedNoise
from semidp.promise.mechanisms.mechanism import CLAIMS, Measurement, Mechanism, NoNoise
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.promise.tradeoff.budget import Budget, approximate
from semidp.promise.tradeoff.function import Tradeoff
from semidp.promise.tradeoff.smooth import ZCDP, Gaussian
from semidp.publish.comparisons import naive_cost, naive_loss
from semidp.publish.residual_mechanism import ResidualMechanism, SharedNoise
from semidp.publish.results.columns import Columns, DataFrames, Form, PublishedColumns, StoredFiles
from semidp.publish.results.grids import Details, Section
from semidp.publish.results.published_table import FittedTable, PublishedTable, is_size
from semidp.publish.results.texts import CLAIM_TEXTS, scale_text
from semidp.publish.selection import select_mechanism
from semidp.publish.statistics.parts import Part, Partition
from semidp.publish.statistics.protocol.requests import require_budget

if TYPE_CHECKING:
    from semidp.publish.statistics.protocol.requests import Request


NOISY = ("noisy", "steps_")
"""What the names of columns begin with that hold measured values: always the last of a file."""
_SAME_SCALE = 1e-9  # relative: two calibrations of one budget differ by no more


CLOSE = 1e-6
"""Relative: what was rounded in print or by another machine's arithmetic."""


@dataclass(frozen=True)
class Trust:
    """A statement of a release that nothing in it confirms.

    Parameters
    ----------
    what
        What is believed, in a sentence.
    fields
        Where it is stated: fields of release.json, ``file column``, or files.
    """

    what: str
    fields: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"what": self.what, "fields": list(self.fields)}


@dataclass(frozen=True)
class Noise:
    """How something was measured: the mechanism, its scale, what it claims, and the loss it was
    expected to cost.

    `expected_l2` is the root of the expected squared distance between the measurement and the
    truth; `naive_l2` is the same for ordinary differential privacy pushed to the same guarantee by
    group privacy. `exact` is the law with its parameters as fractions; in JSON they stand among the
    other entries, and an exact scale takes the place of the rounded one.

    >>> noise = Noise("laplace", 4.0, "exact", 1.0, None, {"law": "laplace", "scale": "4"})
    >>> noise.to_json()["scale"]
    '4'
    """

    mechanism: str
    scale: float
    claim: str
    expected_l2: float
    naive_l2: float | None
    exact: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # What is read from release.json comes this way too, so that a damaged entry is refused.
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
        """Whether the exact totals fix everything, so that no noise was needed."""
        return self.mechanism == NoNoise.name

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        entry: dict[str, Any] = asdict(self)
        law: Mapping[str, str] = entry.pop("exact")
        return {**entry, **law}


@dataclass(frozen=True, eq=False, kw_only=True)
class Published(DataFrames):
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

    # --- a release by parts

    def with_partition(self, partition: Partition) -> "Published":
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

    def publish_part(
        self, files: StoredFiles, node: int, part: Part
    ) -> tuple[list[PublishedTable], Columns | None]:
        """Publish one part again from what was measured in it: its tables, and the measurement."""
        return [], None

    def part_faults(self, node: int, tables: Sequence[PublishedTable]) -> Iterator[str]:
        """Say where whole numbers of a part do not add up to exact totals, or to tables above."""
        yield from ()

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
        """Return what a release finds of it under a name, for data frames."""
        return {}

    def by_features(self) -> dict[tuple[str, ...], PublishedColumns]:
        """Return what a release finds of it by features, for data frames."""
        return {}

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns of its file as lists; refused if it has several and none of its
        name.
        """
        by_name = self.columns_by_name()
        name = self.name if self.name in by_name or len(by_name) != 1 else next(iter(by_name))
        if name not in by_name:
            raise InputError(
                f"{self.name!r} has several tables, {', '.join(by_name)}: take one of them"
            )
        return by_name[name].to_dict()

    def claim_text(self) -> str:
        """Say whether the claim is about the numbers that were drawn."""
        return CLAIM_TEXTS[self.noise.claim]

    @property
    def is_fixed(self) -> bool:
        """Whether exact totals fix all of it, so that nothing is claimed."""
        return False

    def warnings(self) -> list[str]:
        """Say what a reader of the release must know about it: recorded in release.json."""
        return []

    def cautions(self) -> list[str]:
        """Say where noise dominates what is published: from its numbers, each time it is shown."""
        return []

    def errors_json(self) -> list[dict[str, Any]]:
        """Return how wrong the cells of its tables are, as plain values: of each its name, errors,
        and the share that noise dominates.
        """
        return []

    @classmethod
    def said_of_several(cls, results: Sequence[Self]) -> list[str]:
        """Say what holds for all results of this class in one release."""
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
        """Return its mechanism, by the name that it states, calibrated anew as the request's budget
        asks.

        What ``auto`` chooses may change from version to version; what was chosen is in the result.
        """
        space = self.space(request, scope)
        return calibrate_named(self.noise.mechanism, space, require_budget(request))

    def faults(self, mechanism: Mechanism) -> Iterator[str]:
        """Say where it records another mechanism, or less noise, than the one that its plan
        gives.
        """
        name = noise_name(mechanism)
        if self.noise.mechanism != name:
            yield f"it records the mechanism {self.noise.mechanism}, but its plan gives {name}"
        # Noise on residuals has a scale for each of them, and is compared by what it costs.
        elif mechanism.has_one_scale and self.noise.scale < mechanism.scale * (1 - _SAME_SCALE):
            records = f"it records noise of scale {self.noise.scale:.6g}"
            yield f"{records}, but its plan needs {mechanism.scale:.6g}"

    def sampling_mechanism(self, needed: Mechanism) -> Mechanism | None:
        """Return the mechanism whose noise was drawn; None where it states less noise than its
        budget needs.

        `needed` is the mechanism of its budget. Noise that may be placed in several ways is what
        the result states.
        """
        return needed if self.noise.scale >= needed.scale * (1 - CLOSE) else None

    def measurement(self, mechanism: Mechanism) -> Measurement:
        """Return what was measured as the mechanism would have returned it."""
        return mechanism.restore_measurement(self.noisy, self.private)

    def noisy_columns(self, form: Form | None) -> Iterator[str]:
        """Yield where its noisy values stand: a file, and a column of it."""
        if self.noise.absent:
            return
        for name, columns in self.files(form).items():
            for column in columns.numbers:
                if column.startswith(NOISY):
                    yield f"{name} {column}"

    def trust_assumptions(self, request: "Request") -> Iterator[Trust]:
        """Yield what is believed of it besides its noisy values: nothing else that it states
        follows from the rest.
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
    """Return what a release calls the noise of a mechanism.

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
    """The fields that all results take from a mechanism; its own expected loss unless another is
    given.
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
    """Return the guarantee for one record that would be stated, wrongly, if the exact totals were
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
    # Exact fractions, so that no rounding makes the comparison better or worse than it is.
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
