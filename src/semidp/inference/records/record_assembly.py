"""Records of a release: matched to the person if the published tables allow it, else fitted by
swaps.

Everything here is a function of published numbers, so it costs no budget. For several files the
noise of the release is redrawn from its stated distribution. The truth is the estimate less its
noise, which has mean zero and a symmetric distribution, so the estimate plus fresh noise is a draw
of the truth given the estimate, if nothing else is known about it (a flat prior).
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.inference.records.record_cells import Codes, Floats, Goal, TargetTable, record_moves
from semidp.inference.records.record_search import (
    SECONDS,
    Approach,
    Ending,
    RecordState,
    Sweep,
    compiled_available,
    compiled_sweep,
    vector_sweep,
)
from semidp.inference.records.shrinkage import estimate_one_way, estimate_targets
from semidp.inference.records.starting_records import Beginning, match_records
from semidp.inference.records.synthetic import SyntheticRecords
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.noise.randomness import Randomness, generator
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.margins import (
    Totals,
    View,
    is_within_view,
    join,
    junction_order,
    list_axes,
    maximal,
    meet,
)
from semidp.promise.spaces.dataspace import Dataspace
from semidp.publish.level_bins import name_bins
from semidp.publish.residual_mechanism import SharedNoise
from semidp.publish.results.published_table import PublishedTable

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue


@frozen(eq=False)
class MeasuredResult:
    """One result of a release: its tables, its measurement, and its noise.

    Parameters
    ----------
    shapes
        The shape of each table by its name.
    mechanism
        The noise that was drawn.
    noisy
        The measurement as it was drawn; None if there is no noise.
    estimates
        The published estimates.
    """

    shapes: dict[str, tuple[int, ...]]
    mechanism: Mechanism = field(repr=False)
    noisy: NDArray[Any] | None = field(repr=False)
    estimates: list[Floats] = field(repr=False)

    def draw(self, randomness: Randomness) -> dict[str, Floats]:
        """Return the estimates with fresh noise."""
        tables = self.estimates
        if self.noisy is not None:
            zeros = np.zeros(self.mechanism.space.shape, dtype=np.int64)
            fresh = self.mechanism.measure_many(zeros, 1, randomness)[0]
            vector = self.mechanism.publish(self.noisy + fresh)
            tables = [vector]
            if isinstance(self.mechanism, SharedNoise):
                tables = self.mechanism.estimates(vector)
        drawn = {}
        for (name, shape), table in zip(self.shapes.items(), tables, strict=True):
            drawn[name] = np.asarray(table, dtype=np.float64).reshape(shape)
        return drawn


@frozen(eq=False)
class EstimateDraws:
    """Draws of the truth that the estimates of a release leave open.

    Examples
    --------
    >>> import semidp
    >>> request = semidp.publish.TableRequest(["sex", "region"], semidp.Budget.gdp(1))
    >>> plan = semidp.Plan([request], ["sex", "region"])
    >>> release = semidp.run(plan, {"sex": [*"fm"] * 9, "region": [*"nns"] * 6})
    >>> drawn = EstimateDraws.from_release(release).draw(semidp.promise.SeededRandomness(1))[
    ...     "table"
    ... ]
    >>> drawn.sum(axis=1).round(6).tolist()  # exact totals stay
    [9.0, 9.0]
    """

    results: tuple[MeasuredResult, ...]

    @classmethod
    def from_release(cls, release: "ReleaseValue") -> "EstimateDraws":
        """Read the noise of every table of a release."""
        tables = {table.name: table for table in release.tables}
        results = []
        for request, result in zip(release.plan.requests, release.results, strict=True):
            names = [name for name in result.columns_by_name() if name in tables]
            # Other statistics have no tables, and records do not know them.
            if not names:
                continue
            mechanism = result.sampling_mechanism(result.recalibrate(request, release.scope))
            if mechanism is None:
                raise Refused(
                    f"the noise of {', '.join(names)} is not what its plan needs: it is not drawn"
                    " once more"
                )
            shapes = {name: tables[name].schema.shape for name in names}
            estimates = [tables[name].estimate for name in names]
            noisy = None if result.noise.absent else np.asarray(result.noisy)
            results.append(MeasuredResult(shapes, mechanism, noisy, estimates))
        return cls(tuple(results))

    def draw(self, randomness: Randomness) -> dict[str, Floats]:
        """Return for each table its estimates with fresh noise of the release.

        Tables that share a budget share their noise, so the draw of one fits those of the
        others.
        """
        drawn: dict[str, Floats] = {}
        for result in self.results:
            drawn |= result.draw(randomness)
        return drawn


@frozen(slots=False, eq=False)
class PublishedNumbers:
    """The inputs of records: exact totals, and tables with estimates, errors and perhaps whole
    numbers.

    Parameters
    ----------
    dataspace
        What is exact.
    targets
        The published tables.
    whole
        Their whole numbers by name, if they have any.
    ordered
        Features with similar neighboring levels.
    bins
        Depths of bins of levels, which no record shows.
    """

    dataspace: Dataspace
    targets: tuple[TargetTable, ...]
    whole: Mapping[str, NDArray[np.int64]] = field(repr=False)
    ordered: tuple[str, ...] = ()
    bins: tuple[str, ...] = ()

    @classmethod
    def from_release(cls, release: "ReleaseValue") -> "PublishedNumbers":
        """Read the tables of a release."""
        dataspace = release.scope.dataspace
        if len(dataspace.kinds) > 1:
            raise Refused(
                "this release is about members and units: records of both are two linked files",
                needs="linked files",
            )
        if not release.tables:
            raise Refused("this release holds no table: records are put together from tables")
        numbers = cls.from_tables(dataspace, release.tables)
        noises = {}
        for result in release.results:
            noise = result.residual_noise()
            if noise is not None:
                for number, table in enumerate(result.every_table()):
                    noises[table.name] = (noise, number)
        targets = tuple(
            evolve(target, shared=noises.get(target.name)) for target in numbers.targets
        )
        numbers = evolve(numbers, targets=targets)
        asked = release.plan.microdata
        if asked is None:
            return numbers
        names = name_bins(dataspace.schema, asked.columns)
        bins = [binned for name, binned in names.items() if binned != name]
        return evolve(numbers, ordered=asked.ordered, bins=tuple(bins))

    @classmethod
    def from_tables(
        cls, dataspace: Dataspace, tables: Iterable[PublishedTable]
    ) -> "PublishedNumbers":
        """Read tables of one kind of records."""
        schema = dataspace.schema
        targets = []
        whole = {}
        for table in tables:
            view = schema.view(table.schema.names)
            shape = schema.grid.compute_margin_shape(view)
            estimate = np.asarray(table.estimate, dtype=np.float64).reshape(shape)
            errors = np.asarray(table.standard_errors, dtype=np.float64).reshape(shape)
            targets.append(TargetTable(table.name, view, estimate, errors))
            # Real numbers, or measurements as they are, have no records to the person.
            if table.counts.dtype.kind == "i" and table.fitted.kind == "integer":
                whole[table.name] = table.counts.reshape(shape)
        return cls(dataspace, tuple(targets), whole)

    @cached_property
    def margins(self) -> list[View]:
        """The views of the exact totals."""
        return [total.view for total in self.dataspace.published_totals]

    @cached_property
    def used(self) -> View:
        """The depth at which records know each feature."""
        views = [target.view for target in self.targets]
        return join(self.dataspace.schema.grid.nothing, *views, *self.margins)

    @property
    def features(self) -> list[tuple[str, ...]]:
        """The names of the features of each table."""
        return [self.dataspace.schema.list_view_names(target.view) for target in self.targets]

    @cached_property
    def unlinked_pairs(self) -> tuple[tuple[str, str], ...]:
        """Pairs of features that no table and no exact total has together."""
        views = [*(target.view for target in self.targets), *self.margins]
        names = {
            axis: self.dataspace.schema.features[axis].names[self.used[axis] - 1]
            for axis in list_axes(self.used)
        }
        pairs = []
        for one, other in itertools.combinations(names, 2):
            if not any(view[one] and view[other] for view in views):
                pairs.append((names[one], names[other]))
        return tuple(pairs)

    @cached_property
    def joint(self) -> dict[View, Totals] | None:
        """Whole-number tables and exact totals that agree wherever they overlap; None if some do
        not.
        """
        grid = self.dataspace.schema.grid
        if len(self.whole) < len(self.targets):
            return None
        every = [Totals(target.view, self.whole[target.name]) for target in self.targets]
        every += self.dataspace.published_totals
        for one, other in itertools.combinations(every, 2):
            shared = meet(one.view, other.view)
            if not np.array_equal(
                one.sum_to_view(grid, shared).counts.ravel(),
                other.sum_to_view(grid, shared).counts.ravel(),
            ):
                return None
        return {total.view: total for total in every}

    @cached_property
    def order(self) -> list[View] | None:
        """The order in which tables are matched to the person; None if records with all of them
        may not exist.
        """
        if self.joint is None:
            return None
        order = junction_order(maximal(self.joint))
        if order is None or not self._zeros_inside(order):
            return None
        return order

    def _zeros_inside(self, order: Sequence[View]) -> bool:
        """Whether each impossible combination lies inside one table, so matching never makes
        it.
        """
        schema = self.dataspace.schema
        for zero in schema.structural_zeros:
            view = schema.view(name for name, _ in zero.levels)
            if is_within_view(view, self.used) and not any(
                is_within_view(view, other) for other in order
            ):
                return False
        return True


def matched_records(numbers: PublishedNumbers, randomness: Randomness) -> SyntheticRecords:
    """Return records that match every published table and exact total to the person;
    `numbers.order` shows that they exist.
    """
    assert numbers.order is not None, "whoever asks has seen that they exist"
    assert numbers.joint is not None, "what has an order agrees"
    grid, count = numbers.dataspace.schema.grid, numbers.dataspace.n
    codes = match_records(grid, count, numbers.joint, numbers.order, generator(randomness))
    return _records(numbers, numbers.targets, codes, Ending.MATCHED)


def swapped_records(
    numbers: PublishedNumbers,
    randomness: Randomness,
    *,
    targets: Sequence[TargetTable] | None = None,
    seconds: float = SECONDS,
    progress: Progress = silent,
    stop: Callable[[], bool] = bool,
    sweep: Sweep | None = None,
) -> SyntheticRecords:
    """Return records that match every exact total to the person, with tables close to the
    estimates.

    Parameters
    ----------
    numbers
        What is published.
    randomness
        For the start and the pairs.
    targets
        Other estimates of the same tables, such as a draw of them.
    seconds, progress, stop
        The end of the search, and callbacks.
    sweep
        How pairs are visited; compiled where numba is installed.
    """
    draw = generator(randomness)
    chosen = tuple(numbers.targets if targets is None else targets)
    if sweep is None:
        sweep = compiled_sweep if compiled_available() else vector_sweep
    grid = numbers.dataspace.schema.grid
    moves = record_moves(grid, numbers.margins, numbers.used)
    one_way = estimate_one_way(numbers, chosen)
    exact = join(grid.nothing, *numbers.margins)
    free = {axis: one_way[axis] for axis in one_way if exact[axis] < numbers.used[axis]}
    beginning = Beginning(numbers.dataspace, numbers.used, free, draw)
    codes = beginning.codes(moves, sweep)
    state = RecordState(Goal(grid, chosen, beginning.forbidden), codes)
    ending = Approach(sweep, seconds, progress, stop).run(state, moves, draw)
    return _records(numbers, numbers.targets, codes, ending)


def _records(
    numbers: PublishedNumbers, targets: Sequence[TargetTable], codes: Codes, ending: Ending
) -> SyntheticRecords:
    """Sort records, and say how far they are from the tables."""
    goal = Goal(numbers.dataspace.schema.grid, tuple(targets))
    distances = goal.distances(goal.layout.counts(codes), numbers.features)
    # In the order of their codes, where a line stands says nothing.
    ordered = codes[np.lexsort(codes.T[::-1])]
    places = tuple(np.ascontiguousarray(ordered[:, axis]) for axis in range(codes.shape[1]))
    return SyntheticRecords(
        numbers.dataspace.schema,
        numbers.used,
        places,
        distances,
        numbers.unlinked_pairs,
        ending,
        numbers.bins,
    )


def synthesize_records(
    release: "ReleaseValue",
    randomness: Randomness,
    seconds: float = SECONDS,
    progress: Progress = silent,
    stop: Callable[[], bool] = bool,
) -> SyntheticRecords:
    """Return records of a release; see `Release.records`."""
    check_seconds(seconds)
    release.refuse_large_parts("synthetic records")
    numbers = PublishedNumbers.from_release(release)
    if numbers.order is not None:
        return matched_records(numbers, randomness)
    return swapped_records(
        numbers,
        randomness,
        targets=estimate_targets(numbers, numbers.targets),
        seconds=seconds,
        progress=progress,
        stop=stop,
    )


def several_records(
    release: "ReleaseValue",
    files: int,
    randomness: Randomness,
    seconds: float = SECONDS,
    progress: Progress = silent,
    stop: Callable[[], bool] = bool,
) -> list[SyntheticRecords]:
    """Return several sets of records, each near its own draw of the tables; see
    `Release.several_records`.
    """
    check_seconds(seconds)
    if isinstance(files, bool) or not isinstance(files, int) or files < 2:
        raise InputError(f"several sets of records are 2 or more, not {files!r}")
    release.refuse_parts("several sets of records")
    release.refuse_combined("several sets of records")
    numbers = PublishedNumbers.from_release(release)
    law = EstimateDraws.from_release(release)
    drawn: list[SyntheticRecords] = []
    for number in range(files):
        # Each file has noise and swaps of its own, whatever the others drew.
        part = randomness.part("records", str(number))
        estimates = law.draw(part)
        targets = []
        for target in numbers.targets:
            drawn_once = estimates[target.name].reshape(target.estimate.shape)
            targets.append(evolve(target, estimate=drawn_once))
        records = swapped_records(
            numbers,
            part.part("swaps"),
            # Shrunk draws would differ by less than the noise leaves open.
            targets=estimate_targets(numbers, targets, shrunk=False),
            seconds=seconds,
            progress=progress,
            stop=stop,
        )
        # The files to come would hardly be swapped at all, and answers from them would not be those
        # of draws.
        if records.ending is Ending.INTERRUPTED:
            raise Refused(
                f"interrupted at file {number + 1} of {files}: several files are written together"
                " or not at all"
            )
        drawn.append(records)
    return drawn


def check_seconds(seconds: float) -> None:
    """Refuse an invalid time.

    >>> check_seconds(0)
    Traceback (most recent call last):
    semidp.errors.InputError: the time for swaps is a positive number of seconds, not 0
    """
    if not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
        raise InputError(f"the time for swaps is a positive number of seconds, not {seconds!r}")
