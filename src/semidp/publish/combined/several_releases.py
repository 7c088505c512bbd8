"""What every combination of releases answers: its tables, estimated and fitted, and weighted sums
of their cells.

Records of one kind are combined in `combination`, linked members and units in
`linked_combination`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import frozen
from numpy.typing import NDArray

from semidp.errors import InputError
from semidp.promise.progress import Progress, silent
from semidp.promise.schema.margins import View
from semidp.promise.schema.schema import Schema
from semidp.promise.scope import Scope
from semidp.promise.spaces.dataspace import RECORD, Dataspace
from semidp.publish.combined.tree_layout import Floats
from semidp.publish.results.published_table import Fitted, PublishedTable
from semidp.publish.statistics.protocol.results import Published

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue

_TELLING = 24  # so many numbers of one measurement are not drawn alike twice


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


def tables_of_views(views: Mapping[View, str], schema: Schema) -> tuple[ListedTable, ...]:
    """Return tables of records of one kind, from their views and names."""
    tables = []
    for view, name in views.items():
        tables.append(ListedTable(name, schema.list_view_names(view), RECORD))
    return tuple(tables)


@frozen(slots=False, eq=False)
class SeveralReleases(ABC):
    """Several releases of the same records as one set of measurements.

    Parameters
    ----------
    releases
        What is combined.
    dataspace
        What all releases together publish exactly.
    """

    releases: "tuple[ReleaseValue, ...]"
    dataspace: Dataspace

    @property
    @abstractmethod
    def listed_tables(self) -> tuple[ListedTable, ...]:
        """Every table of any release once, with the name that it has first."""

    @abstractmethod
    def table_estimates(self, number: int) -> tuple[Floats, Floats]:
        """Estimates and standard errors of the cells of a table, by its number in `listed`."""

    @abstractmethod
    def table_half_widths(self, number: int) -> Floats | None:
        """How far each cell of a table is off at most in 95% of all draws; None where that is not
        computed.
        """

    @abstractmethod
    def fits(
        self, estimates: list[Floats], progress: Progress = silent
    ) -> list[tuple[NDArray[Any], Fitted]]:
        """Whole numbers for every table that agree with each other and with the exact totals."""

    @abstractmethod
    def sum_cells(self, weights: Mapping[str, Floats]) -> tuple[float, float]:
        """Return a weighted sum of cells, across tables by their names, and its standard error from
        the noise alone.
        """

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

    def pool_results(self, scope: Scope) -> list[Published]:
        """Results other than tables that several releases have in common, each pooled into one."""
        alike: dict[object, list[Published]] = {}
        for release in self.releases:
            for result in release.results:
                if result.pooling_key is not None:
                    alike.setdefault(result.pooling_key, []).append(result)
        results = []
        for first, *later in alike.values():
            pooled = first.pool_results(later, scope) if later else None
            if pooled is not None:
                results.append(pooled)
        return results


def refuse_twice(sizes_and_digests: "list[tuple[ReleaseValue, list[tuple[int, str]]]]") -> None:
    """Refuse the same measurement in two releases, whatever their folders are called.

    Parameters
    ----------
    sizes_and_digests
        For each release how many numbers every measurement has, and its digest.
    """
    seen: set[str] = set()
    for release, parts in sizes_and_digests:
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
