"""The interface of every combination of releases: its tables, estimated and fitted, and weighted
sums.

Records of one kind are combined in `combination`, or residual by residual if their features have
too many cells; linked members and units in `residual_combination`.
"""

import itertools
import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.inference.linear_estimates import Floats, LinearEstimates
from semidp.promise.mechanisms.mechanism import Mechanism, NoNoise
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.margins import Mask, Totals, View, list_axes
from semidp.promise.schema.schema import Schema
from semidp.promise.sensitivity.table_spaces import find_possible_cells
from semidp.promise.spaces.dataspace import RECORD, Dataspace
from semidp.promise.spaces.linked import MEMBER, UNIT, LinkedDataspace
from semidp.publish.half_widths import INTERVALS_BELOW, half_widths
from semidp.publish.results.published_table import FitKind, Fitted, PublishedTable
from semidp.publish.statistics.protocol.requests import Published, Request
from semidp.publish.statistics.tables.fitting import fit_product

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue

LAW = "combination"
"""The name of the noise of a weighted average of several measurements."""
_TELLING = 24  # so many numbers of one measurement are not drawn alike twice
MOST_CELLS, MOST_COUPLED = 2 * 10**7, 2000
"""Cells of all features together, and cells of features that unequal groups or structural zeros
couple."""

AlikeNodes = tuple[NDArray[np.intp], NDArray[np.intp]]
"""Groups of nodes of a feature whose cells share a distribution: the first node of each, and
the group of every node."""


@frozen
class ListedTable:
    """A table of a combination.

    Parameters
    ----------
    name
        What it is called.
    features
        Its features.
    counted
        The kind of records that it counts.
    """

    name: str
    features: tuple[str, ...]
    counted: str


@frozen(slots=False, eq=False)
class SeveralReleases(LinearEstimates):
    """Several releases of the same records as one set of measurements.

    Parameters
    ----------
    releases
        The releases.
    dataspace
        What all releases together publish exactly.
    """

    releases: "tuple[ReleaseValue, ...]"
    dataspace: Dataspace

    @cached_property
    def listed_tables(self) -> tuple[ListedTable, ...]:
        """Every table of any release once, under its first name; those of units last."""
        tables: dict[tuple[str, View], ListedTable] = {}
        for release in self.releases:
            for table in release.tables:
                counted = RECORD
                if isinstance(self.dataspace, LinkedDataspace):
                    counted = UNIT if table.counted == UNIT else MEMBER
                schema = self.dataspace.for_kind(counted).schema
                view = schema.view([feature.name for feature in table.schema.features])
                if (counted, view) in tables:
                    continue
                features = schema.list_view_names(view)
                plainly = not table.is_named or table.name in [one.name for one in tables.values()]
                name = "-".join(features) if plainly else table.name
                tables[counted, view] = ListedTable(name, features, counted)
        if not tables:
            raise Refused("these releases hold no table: tables are combined")
        return tuple(sorted(tables.values(), key=lambda one: one.counted == UNIT))

    @abstractmethod
    def table_estimates(self, number: int) -> tuple[Floats, Floats]:
        """Estimates and standard errors of the cells of a table, by its number in
        `listed_tables`.
        """

    @abstractmethod
    def table_half_widths(self, number: int) -> Floats | None:
        """Half-widths of the 95% intervals of the cells of a table; None if not
        computed.
        """

    @abstractmethod
    def fits(
        self, estimates: list[Floats], progress: Progress = silent
    ) -> list[tuple[NDArray[Any], Fitted]]:
        """Whole numbers for every table that agree with each other and with the exact totals."""

    def noise_name(self, table: int) -> str:
        """What the noise of a table is called."""
        return LAW

    def tables(self, progress: Progress = silent) -> tuple[PublishedTable, ...]:
        """Every table: estimate, standard errors, intervals, and whole numbers that agree with
        those of the others.
        """
        estimated = [self.table_estimates(number) for number in range(len(self.listed_tables))]
        fitted = self.fits([values for values, _ in estimated], progress)
        tables = []
        for number, one in enumerate(self.listed_tables):
            schema = self.dataspace.for_kind(one.counted).schema.restrict(one.features)
            values, errors = estimated[number]
            counts, how = fitted[number]
            halves = self.table_half_widths(number)
            tables.append(
                PublishedTable(
                    one.name, schema, counts, values, errors, how, halves, counted=one.counted
                )
            )
        return tuple(tables)

    def law_half_widths(self, number: int, errors: Floats, alike: Sequence[AlikeNodes]) -> Floats:
        """Half-widths of the 95% intervals of the cells of a table, from the noise distributions.
        Cells with the same distribution share a half-width.

        Parameters
        ----------
        number, errors
            The table, and the standard errors of its cells.
        alike
            For each of its features the nodes that are alike.
        """
        cells = list(itertools.product(*(firsts.tolist() for firsts, _ in alike)))
        weights = np.zeros((len(cells), *errors.shape))
        for place, cell in enumerate(cells):
            weights[(place, *cell)] = 1.0
        noise = self.weigh_noise({number: weights})
        sums = [noise.terms(place) for place in range(len(cells))]
        different = {terms: place for place, terms in enumerate(dict.fromkeys(sums))}
        widths = np.array(half_widths([*different]))[[different[terms] for terms in sums]]
        of_sorts = widths.reshape([len(firsts) for firsts, _ in alike])
        spread = of_sorts[np.ix_(*(sorts for _, sorts in alike))] if alike else of_sorts
        # Cells that are known to be empty, or that exact totals fix, have no error.
        return np.where(errors > 0, spread, 0.0)


@frozen(slots=False, eq=False)
class RecordCombination(SeveralReleases):
    """Several releases of records of one kind."""

    @property
    def schema(self) -> Schema:
        """Features of all releases together."""
        return self.dataspace.schema

    @cached_property
    def views(self) -> tuple[View, ...]:
        """The views of `listed_tables`."""
        return tuple(self.schema.view(one.features) for one in self.listed_tables)

    def fits(
        self, estimates: list[Floats], progress: Progress = silent
    ) -> list[tuple[NDArray[Any], Fitted]]:
        """Whole numbers for every table that agree with each other and with the exact totals."""
        fit_kinds = [FitKind.integer] * len(self.views)
        masks = [self._possible(view) for view in self.views]
        n = Totals(self.schema.grid.nothing, np.array(self.dataspace.n, dtype=np.int64))
        totals = [n, *self.dataspace.published_totals]
        grid = self.schema.grid
        return fit_product(grid, self.views, totals, estimates, fit_kinds, progress, possible=masks)

    def _possible(self, view: View) -> Mask | None:
        """Cells of a table that can be filled; None if all combinations of levels in use can."""
        zeros = bool(self.schema.structural_zeros)
        joint = any(
            len(list_axes(total.view)) > 1 and not total.counts.all()
            for total in self.dataspace.published_totals
        )
        return find_possible_cells(self.dataspace, view) if zeros or joint else None


def count_cells(schema: Schema) -> int:
    """Number of cells of all features together.

    >>> from semidp.promise.schema.features import Feature
    >>> count_cells(Schema([Feature("sex", "fm"), Feature("region", "nsw")]))
    6
    """
    return math.prod(schema.shape)


def has_intervals(errors: Floats) -> bool:
    """Whether a table is small enough to compute the distributions of its cells."""
    return errors.size < INTERVALS_BELOW


def measured_counts(
    release: "ReleaseValue", use: str
) -> Iterator[tuple[Request, Published, Mechanism]]:
    """Yield what a release measured of tables, in its order, for a use that it is refused for if it
    is in parts. Statistics of outcomes say nothing of tables.
    """
    release.refuse_large_parts(use)
    parts = zip(release.plan.requests, release.results, release.mechanisms, strict=True)
    for request, result, mechanism in parts:
        if not result.counts_cells or isinstance(mechanism, NoNoise):
            continue
        # It may state more noise than this version would draw from its plan.
        if mechanism.has_one_scale and result.noise.scale > mechanism.scale * (1 + 1e-6):
            raise Refused(
                f"the noise of {result.name!r} is not what this version would draw from its plan:"
                " use the version of semidp that wrote the release"
            )
        yield request, result, mechanism


def refuse_twice(measured: "Sequence[tuple[ReleaseValue, list[tuple[int, str]]]]") -> None:
    """Refuse the same measurement in two releases, whatever their folders are called.

    Parameters
    ----------
    measured
        For each release how many numbers every measurement has, and its digest.
    """
    seen: set[str] = set()
    for release, parts in measured:
        # A few numbers may be drawn alike by chance, many are not. A copy of few has the time of
        # its making, too.
        digests = {digest for size, digest in parts if size >= _TELLING}
        if parts:
            every = " ".join(sorted(digest for _, digest in parts))
            digests.add(f"{release.created} {every}")
        if digests & seen:
            raise InputError(
                "the same measurement stands in two of these releases: name each release once"
            )
        seen |= digests


def same_records(one: Dataspace, other: Dataspace) -> Dataspace:
    """Union of the exact totals of two releases; refuse releases that are not of the same
    records.

    Two releases count as being of the same records if their numbers of records, levels, structural
    zeros and exact totals do not contradict each other. More cannot be checked.
    """
    union = one.union(other)
    if union is None:
        rebinned = _list_rebinned(one.schema, other.schema)
        if rebinned:
            raise InputError(
                f"these releases have other bins of {rebinned[0]!r}: the bins of microdata follow"
                " from the noise of each release, and only releases with the same bins are"
                " combined; declare bins to fix them"
            )
        raise InputError(
            "these releases are not of the same records: another number of them, other levels of a"
            " feature, other structural zeros, or exact totals that contradict each other"
        )
    return union


def _list_rebinned(one: Schema, other: Schema) -> list[str]:
    """The features that have the same levels in two schemas, and other nodes above them."""
    paths = {feature.name: feature.paths() for feature in one.features}
    names = []
    for feature in other.features:
        known, found = paths.get(feature.name, ()), feature.paths()
        same_levels = {path[-1] for path in known} == {path[-1] for path in found}
        if same_levels and {*known} != {*found}:
            names.append(feature.name)
    return names
