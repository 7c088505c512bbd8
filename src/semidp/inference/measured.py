"""Published tables as measured: unbiased estimates, and noise with a known distribution.

Everything here is a function of published numbers. Fitted whole numbers are not used: the fit
changes the noise in a way without a simple distribution.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError, Refused
from semidp.inference.combined.releases_together import find_combination
from semidp.inference.linear_estimates import (
    Drawn,
    Floats,
    LinearEstimates,
    SumErrors,
    weigh_mechanism,
)
from semidp.promise.mechanisms.knorm import KNormMechanism
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.noise.randomness import Randomness, SystemRandomness
from semidp.promise.schema.schema import Schema
from semidp.promise.spaces.dataspace import RECORD, Dataspace
from semidp.promise.spaces.linked import UNIT, LinkedDataspace
from semidp.promise.spaces.protection import Protection
from semidp.publish.level_bins import name_bins

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue

Cells = Mapping[str, str | Iterable[str]]
"""Cells of a table: selected levels of some features, and all levels of the
others."""

DRAWS = 9999
"""The default number of simulated tables."""
MANY_CELLS = 2048
"""The number of cells of a table above which fewer tables are simulated."""

_FEWER = 999  # where noise is drawn slowly, or the table is large


@frozen(slots=False, eq=False)
class ReleaseEstimates(LinearEstimates):
    """The tables of one release, in its order: each from the noise of its own result."""

    release: "ReleaseValue"

    @cached_property
    def _places(self) -> list[tuple[int, int]]:
        """For each table its result, and its number there."""
        places = []
        for result, published in enumerate(self.release.results):
            places += [(result, number) for number in range(len(published.every_table()))]
        return places

    @cached_property
    def _mechanisms(self) -> dict[int, Mechanism]:
        """Mechanisms that were asked for, by result: calibrating takes a while."""
        return {}

    def _mechanism(self, number: int) -> Mechanism:
        if number not in self._mechanisms:
            self._mechanisms[number] = self._calibrate(number)
        return self._mechanisms[number]

    def _calibrate(self, number: int) -> Mechanism:
        result = self.release.results[number]
        noise = result.residual_noise()
        if noise is not None:
            return noise
        request = self.release.plan.requests[number]
        mechanism = result.recalibrate(request, self.release.scope)
        # another version may calibrate otherwise, and its law would not be that of the noise drawn
        if not math.isclose(mechanism.scale, result.noise.scale, rel_tol=1e-6):
            raise Refused(
                f"the noise of {result.name!r} is not what this version would draw from its plan:"
                " use the version of semidp that wrote the release"
            )
        return mechanism

    def noise_name(self, table: int) -> str:
        """The name of the mechanism of a table."""
        return self._mechanism(self._places[table][0]).name

    def is_slow(self, table: int) -> bool:
        """Whether the noise of a table is slow to draw: points of a high-dimensional ball."""
        mechanism = self._mechanism(self._places[table][0])
        return isinstance(mechanism, KNormMechanism) and mechanism.placed_ball.ball.dimension > 3

    def weigh_noise(self, weights: Mapping[int, Floats]) -> SumErrors:
        """Return the errors of sums over cells of several tables; results have independent
        noise.
        """
        by_result: dict[int, dict[int, Floats]] = {}
        for table, stacked in weights.items():
            result, number = self._places[table]
            # tables of one result share its noise and are weighed together
            by_result.setdefault(result, {})[number] = stacked
        parts: list[tuple[Drawn, Floats]] = []
        for result, of_result in by_result.items():
            parts += weigh_mechanism(self._mechanism(result), of_result).parts
        return SumErrors(len(next(iter(weights.values()))), tuple(parts))


def linear_estimates(release: "ReleaseValue") -> LinearEstimates:
    """The tables of a release, single or combined, as weighted sums of
    measurements.
    """
    return find_combination(release) or ReleaseEstimates(release)


@frozen(eq=False)
class Measured:
    """A published table as measured: an unbiased estimate, and noise with a known distribution.

    Parameters
    ----------
    name, schema
        What the table is called, its features and levels.
    estimate
        The unbiased estimate.
    tables, number
        All tables of the release as weighted sums of measurements, and the number of this one.
    counted
        The kind of record that it counts, if the data hold several.
    """

    name: str
    schema: Schema
    estimate: Floats = field(repr=False)
    tables: LinearEstimates = field(repr=False)
    number: int
    counted: str = RECORD

    @property
    def noise_name(self) -> str:
        """The name of the noise."""
        return self.tables.noise_name(self.number)

    @property
    def draws(self) -> int:
        """How many tables are simulated by default."""
        many = self.estimate.size > MANY_CELLS or self.tables.is_slow(self.number)
        return _FEWER if many else DRAWS

    def sum_cells(self, weights: Floats) -> Floats:
        """Return weighted sums of the estimate; the first axis of the weights counts them."""
        return np.asarray(weights.reshape(len(weights), -1) @ self.estimate.ravel())

    def weigh_noise(self, weights: Floats) -> SumErrors:
        """Return the errors of weighted sums: standard errors, covariances, law and draws."""
        return self.tables.weigh_noise({self.number: weights})

    def errors(self, weights: Floats) -> Floats:
        """Return the standard errors of weighted sums, from the noise alone."""
        return self.weigh_noise(weights).standard_errors

    def simulate_errors(
        self, weights: Floats, draws: int | None, randomness: Randomness | None
    ) -> Floats:
        """Return draws of the errors of weighted sums, one row per draw."""
        source = SystemRandomness() if randomness is None else randomness
        return self.weigh_noise(weights).draw(self.draws if draws is None else draws, source)

    def mask(self, cells: Cells) -> Floats:
        """Return 1 for the selected cells and 0 for the others.

        >>> import semidp
        >>> plan = semidp.Plan(
        ...     [semidp.publish.TableRequest(["sex", "vote"], semidp.Budget.gdp(1))],
        ...     ["sex", "vote"],
        ... )
        >>> release = semidp.run(plan, {"sex": [*"fm"], "vote": [*"yn"]})
        >>> measured_table(release, ["sex"]).mask({"sex": "f"}).tolist()
        [[1.0, 1.0], [0.0, 0.0]]
        """
        inside = np.ones(self.schema.shape)
        for name, labels in cells.items():
            axis = self.schema.axis(name)
            feature = self.schema.features[axis]
            below = feature.leaves_below(name)
            kept = np.zeros(len(feature.levels))
            for level in [labels] if isinstance(labels, str) else labels:
                if level not in below:
                    raise InputError(f"{name} has no level {level!r}; it has {', '.join(below)}")
                kept[below[level]] = 1
            inside = inside * kept.reshape(
                [-1 if place == axis else 1 for place in range(inside.ndim)]
            )
        return inside


def level_codes(schema: Schema, names: Sequence[str]) -> tuple[NDArray[np.intp], tuple[int, ...]]:
    """Return for each cell of a schema the number of its levels of some features, and how many
    levels those have.

    >>> from semidp.promise.schema.features import Feature
    >>> level_codes(Schema([Feature("sex", "fm"), Feature("region", "nsw")]), ["region"])[
    ...     0
    ... ].tolist()
    [0, 1, 2, 0, 1, 2]
    """
    codes, sizes = np.zeros(schema.shape, dtype=np.intp), []
    for name in names:
        axis = schema.axis(name)
        feature = schema.features[axis]
        starts = feature.depths[feature.names.index(name)].starts
        positions = np.searchsorted(starts, np.arange(len(feature.levels)), side="right") - 1
        codes = codes * len(starts) + positions.reshape(
            [-1 if place == axis else 1 for place in range(len(schema.shape))]
        )
        sizes.append(len(starts))
    return codes.ravel(), tuple(sizes)


def table_features(release: "ReleaseValue") -> list[tuple[str, ...]]:
    """The features of every published table, one for each chain of nested ones."""
    release.refuse_large_parts("intervals and tests")
    features = []
    for table in release.tables:
        features.append(tuple(feature.name for feature in table.schema.features))
    return features


def measured_table(
    release: "ReleaseValue", names: Iterable[str], table: str | None = None
) -> Measured:
    """Return the smallest table of a release that has some features, or the named one, as
    measured.

    Where the data hold units and their members, members are meant unless only units have the
    features.
    """
    release.refuse_large_parts("intervals and tests")
    called = None if table is None else release.table_name(table)
    features = set(names)
    levels = _list_binned_levels(release, features)
    tables = release.tables
    fitting = []
    for number, one in enumerate(tables):
        has_all = features <= {*one.schema.names} and not levels & {*one.schema.names}
        if called in (None, one.name) and has_all:
            # members sort before units, then small tables, whose sums add up fewer noisy cells
            fitting.append((one.counted == UNIT, one.schema.size, number))
    if not fitting:
        listed = "; ".join(f"{one.name}: {', '.join(one.schema.names)}" for one in tables)
        which = f"no table {called!r} with" if called else "no table with"
        raise InputError(
            f"this release has {which} {', '.join(sorted(features)) or 'any feature'}; its tables:"
            f" {listed or 'none'}"
        )
    *_, number = min(fitting)
    chosen = tables[number]
    return Measured(
        chosen.name,
        chosen.schema,
        chosen.estimate,
        linear_estimates(release),
        number,
        chosen.counted,
    )


def _list_binned_levels(release: "ReleaseValue", features: set[str]) -> set[str]:
    """The columns of microdata of which only bins are asked for. Bins follow from the noise in the
    levels, so intervals of bins from that noise would not hold.
    """
    asked = release.plan.microdata
    if asked is None:
        return set()
    binned = name_bins(release.scope.dataspace.schema, asked.columns)
    return {name for name, bins in binned.items() if bins in features and name not in features}


def estimate_sum(release: "ReleaseValue", weights: Mapping[str, ArrayLike]) -> tuple[float, float]:
    """Return a weighted sum of estimated cells, across tables, and its standard error; see
    `Release.estimate`.
    """
    if not isinstance(weights, Mapping):
        raise InputError(
            "weights are given by table, such as {'sex-age': [[1, 0], [0, 0]]}, in the shape of its"
            " counts"
        )
    release.refuse_large_parts("weighted sums")
    tables = release.tables
    numbers = {table.name: number for number, table in enumerate(tables)}
    value = 0.0
    by_number: dict[int, Floats] = {}
    for called, table_weights in weights.items():
        name = release.table_name(called)
        if name not in numbers:
            raise InputError(f"there is no table {name!r}; there are {', '.join(numbers)}")
        table = tables[numbers[name]]
        weight = np.asarray(table_weights, dtype=np.float64)
        if weight.shape != table.schema.shape:
            raise InputError(
                f"the weights of {name!r} have shape {weight.shape}, but it has"
                f" {table.schema.shape}"
            )
        value += float((table.estimate * weight).sum())
        by_number[numbers[name]] = weight[None]
    if not by_number:
        return value, 0.0
    return value, float(linear_estimates(release).weigh_noise(by_number).standard_errors[0])


def select_public(release: "ReleaseValue", measured: Measured) -> Dataspace:
    """Public facts about the records that a table counts, in the levels of the table."""
    return release.scope.dataspace.for_kind(measured.counted).coded_as(measured.schema)


def clustering(release: "ReleaseValue", measured: Measured) -> Protection | None:
    """The persons with several records in a table, or the units with several members, which may
    vary together. None if records are independent, like units.
    """
    if measured.counted == UNIT:
        return None
    # Releases without a guarantee together still are of the same persons.
    sources = release.sources or (release,)
    several = []
    for scope in (source.scope for source in sources):
        persons = scope.protection
        if isinstance(scope.dataspace, LinkedDataspace):
            # members of one unit resemble each other, whoever is protected
            persons = scope.dataspace.link.whole_unit
            if scope.dataspace.link.quarters is not None:
                raise Refused(
                    "group quarters may have any number of members that are alike, so nothing is"
                    " known about a population of members: ask about these members, or about units"
                )
        if persons is not None and persons.most > 1:
            several.append(persons)
    return max(several, key=lambda one: one.most, default=None)


def cluster_size(release: "ReleaseValue", measured: Measured) -> int:
    """The most records of one person in a table."""
    persons = clustering(release, measured)
    return 1 if persons is None else persons.most


def fitted_counts(release: "ReleaseValue", name: str) -> NDArray[np.int64]:
    """The published whole numbers of a table, with the exact totals."""
    for table in release.tables:
        if table.name == name:
            counts: NDArray[np.int64] = np.rint(table.counts).astype(np.int64)
            if (
                (counts < 0).any()
                or (counts != table.counts).any()
                or not table.keeps(release.scope.dataspace)
            ):
                break
            return counts
    raise Refused(
        f"the published counts of {name!r} are not whole numbers with the exact totals: publish"
        " them fitted"
    )
