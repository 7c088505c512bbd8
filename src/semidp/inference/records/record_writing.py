"""Records of a release written to files: one set or several, or two linked kinds.

Each linked kind is matched to its own tables. Members are then put into units of the same place at
random, as many as a unit has: sizes times units is the number of members there. Everything is a
function of published numbers.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.errors import InputError, Refused
from semidp.inference.combined.releases_together import find_combination
from semidp.inference.combined.residual_combination import LinkedCombination
from semidp.inference.records.record_assembly import (
    PublishedNumbers,
    matched_records,
    several_records,
    synthesize_records,
)
from semidp.inference.records.record_search import Ending
from semidp.inference.records.synthetic import (
    SyntheticRecords,
    about_file,
    check_records,
    numbered_files,
    save_records,
)
from semidp.promise.exact import number
from semidp.promise.noise.randomness import Randomness, generator
from semidp.promise.progress import Progress
from semidp.promise.schema.margins import View, list_axes
from semidp.promise.spaces.dataspace import Dataspace
from semidp.promise.spaces.linked import UNIT, LinkedDataspace
from semidp.publish.linked_mechanism import LinkedMechanism
from semidp.publish.results.published_table import PublishedTable
from semidp.publish.statistics.tables.linked_published import PublishedLinked, agreeing_places

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue


_SYNTHETIC = (
    "These records are synthetic: no line is a person. They were put together from the published"
    " numbers of a release alone, so that they have its guarantee and cost no further budget."
)
_ALL_TABLES = (
    "Counted, they give every published table of the release and every exact total, to the person."
)
_EXACT_TOTALS = (
    "Counted, they give every exact total to the person. The published tables are near their"
    " estimates: for each the distance is given in standard errors, as a root mean square (1 is"
    " what the noise explains) and at its largest."
)
_OWN_DRAW = (
    "This is one of {files} files, each near its own draw of the noise: answers from all of them"
    " are combined, with semidp.inference.combine_estimates, and none of them is used alone."
)
_NOTHING_MORE = (
    "They say nothing more: what no table has (features that no table has together, and how three"
    " features hang together where only pairs were published) is left to chance."
)
_NOT_PRIVATE = "The release is not private: its noise can be replayed or read off."


def write_records(
    release: "ReleaseValue",
    path: Path,
    force: bool,
    randomness: Randomness,
    seconds: float,
    files: int,
    progress: Progress,
    stop: Callable[[], bool],
) -> dict[str, Any]:
    """Write one or several sets of records; return the description of the first, with the names of
    all files.
    """
    paths = numbered_files(path, files)
    # all places are checked before a search that may take minutes
    for each in paths:
        check_records(each, force=force)
    if files == 1:
        sets = [synthesize_records(release, randomness, seconds, progress, stop)]
    else:
        sets = several_records(release, files, randomness, seconds, progress, stop)
    documents = []
    for each, records in zip(paths, sets, strict=True):
        about = about_records(release, records, files)
        documents.append(save_records(records, each, about, force=force))
    return documents[0]


def about_records(
    release: "ReleaseValue", records: SyntheticRecords, files: int = 1
) -> dict[str, Any]:
    """Return the description of records in the file next to them, as plain values."""
    statement = [
        _SYNTHETIC,
        _ALL_TABLES if records.ending is Ending.MATCHED else _EXACT_TOTALS,
        _NOTHING_MORE,
    ]
    if files > 1:
        statement.append(_OWN_DRAW.format(files=files))
    if not release.private:
        statement.append(_NOT_PRIVATE)
    tables = []
    for distance in records.distances:
        entry: dict[str, Any] = {"name": distance.name, "features": list(distance.features)}
        entry |= {"rms": round(distance.rms, 4), "largest": round(distance.largest, 4)}
        tables.append(entry)
    return {
        "records": len(records),
        "columns": list(records.columns),
        "tables": tables,
        "unlinked": [list(pair) for pair in records.unlinked],
        "ending": str(records.ending),
        "files": files,
        "exact": [list(margin.names) for margin in release.scope.dataspace.margins],
        "private": release.private,
        "guarantee": release.stated and release.stated.tradeoff.to_json(),
        "adjacency": release.scope.adjacency_json(),
        "epsilon": release.epsilon,
        "report_delta": number(release.plan.report_delta),
        "release_created": release.created,
        "statement": statement,
    }


def written_files(path: Path, files: int) -> str:
    """Name the files that were written.

    >>> written_files(Path("people.csv"), 1)
    'people.csv, and what it is in people.about.json'
    """
    paths = numbered_files(path, files)
    if files == 1:
        return f"{path}, and what it is in {about_file(path)}"
    return f"{paths[0]} to {paths[-1].name}, and what each is in a file beside it"


_LINKED = (
    "Members were put into units of the same place at random: sizes are those of the published"
    " tables, and nothing else of how members of one unit hang together is known."
)


@frozen(eq=False)
class LinkedRecords(SyntheticRecords):
    """Synthetic records of one of two linked kinds, with the column that links them.

    Parameters
    ----------
    link
        The name of that column.
    numbers
        The number of the unit of each record.
    """

    link: str = "unit"
    numbers: NDArray[np.int64] = field(factory=lambda: np.zeros(0, dtype=np.int64), repr=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """The link, then the features."""
        return (self.link, *super().columns)

    def encode_columns(self) -> Iterator[tuple[str, list[str], NDArray[np.intp]]]:
        """Yield each column: its name, its labels, and for each record the number of its label."""
        labels = [str(unit) for unit in range(int(self.numbers.max(initial=-1)) + 1)]
        yield self.link, labels, self.numbers.astype(np.intp)
        yield from super().encode_columns()

    def rows(self, start: int = 0, end: int | None = None) -> Iterator[tuple[str, ...]]:
        """Yield the number of the unit and the levels of each record."""
        numbers = self.numbers[start:end].tolist()
        for unit, levels in zip(numbers, super().rows(start, end), strict=True):
            yield (str(unit), *levels)


def linked_records(
    release: "ReleaseValue", randomness: Randomness
) -> tuple[LinkedRecords, LinkedRecords]:
    """Return synthetic members and units of a release of linked tables; refuse tables that
    records may not be able to match.
    """
    public = release.scope.dataspace
    if not isinstance(public, LinkedDataspace):
        raise InputError("this release is about records of one kind: leave the file of units out")
    if public.link.quarters is not None:
        raise Refused(
            "members in group quarters have no unit in a file, so linked records of them are not"
            " written"
        )
    mechanism, of_members, of_units = _linked_tables(release)
    equations = mechanism.agreement.deepest
    if len(equations) != 1:
        raise Refused(
            "records are linked within the places of one table of units by size, and there is"
            " not one"
        )
    (equation,) = equations
    agreeing, places = agreeing_places(mechanism, of_members, of_units)
    if not places or agreeing < places:
        raise Refused(
            "whole numbers of members and units do not agree here, so no records have both"
        )
    members = _match_tables(public.members, of_members, randomness)
    units = _match_tables(public.units, of_units, randomness)
    draw = generator(randomness)
    sizes = units.places[equation.size_axis].astype(np.int64) + public.link.least
    homes = _homes(_keys(members, equation.members), _keys(units, equation.units), sizes, draw)
    return _number_records(members, public.link.column, homes), _number_records(
        units, public.link.column, np.arange(len(units))
    )


def _linked_tables(
    release: "ReleaseValue",
) -> tuple[LinkedMechanism, Sequence[PublishedTable], Sequence[PublishedTable]]:
    """How both kinds agree, the tables of members, and those of units by single sizes."""
    combination = find_combination(release)
    if isinstance(combination, LinkedCombination):
        of_units = [table for table in release.tables if table.counted == UNIT]
        of_members = [table for table in release.tables if table.counted != UNIT]
        return combination.mechanism, of_members, of_units
    (result,) = release.results
    assert isinstance(result, PublishedLinked)
    return result.mechanism, result.members, result.units_by_size


def _match_tables(
    dataspace: Dataspace, tables: Sequence[PublishedTable], randomness: Randomness
) -> SyntheticRecords:
    """Records of one kind that have all its tables to the unit."""
    numbers = PublishedNumbers.from_tables(dataspace, tables)
    for table in tables:
        if table.name not in numbers.whole:
            raise Refused(
                f"the table {table.name!r} does not hold whole numbers, so no records have it"
            )
    if numbers.order is None:
        raise Refused("the tables of one kind form a cycle, so linked records may not exist")
    return matched_records(numbers, randomness)


def _keys(records: SyntheticRecords, view: View) -> NDArray[np.int64]:
    """The place of each record: its cell at a view."""
    key = np.zeros(len(records), dtype=np.int64)
    for axis in list_axes(view):
        chain = records.schema.grid.chains[axis]
        nodes = chain.find_leaf_ancestors(view[axis])[records.places[axis]]
        # mixed radix: one number for each combination of nodes
        key = key * chain.size(view[axis]) + nodes
    return key


def _homes(
    members: NDArray[np.int64],
    units: NDArray[np.int64],
    sizes: NDArray[np.int64],
    draw: np.random.Generator,
) -> NDArray[np.int64]:
    """The unit of each member: members of a place fill the units there in random order."""
    by_place = np.argsort(units, kind="stable")
    slots = np.repeat(by_place, sizes[by_place])
    if not np.array_equal(np.sort(members), units[slots]):
        raise Refused("members and units of some place do not agree, so no records have both")
    order = np.lexsort((draw.random(len(members)), members))
    homes = np.empty(len(members), dtype=np.int64)
    homes[order] = slots
    return homes


def _number_records(
    records: SyntheticRecords, link: str, numbers: NDArray[np.int64]
) -> LinkedRecords:
    return LinkedRecords(
        records.schema,
        records.view,
        records.places,
        records.distances,
        records.unlinked,
        records.ending,
        link=link,
        numbers=numbers,
    )


def save_linked_records(
    release: "ReleaseValue",
    paths: tuple[Path, Path],
    randomness: Randomness,
    *,
    force: bool = False,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write synthetic members and units to two CSV files, each with its description, which is
    returned.

    Parameters
    ----------
    release
        A release of linked tables.
    paths
        The files of members and of units.
    randomness
        How records are matched and put into units.
    force
        Also replace records that were written by this function.
    """
    if paths[0] == paths[1]:
        raise InputError("members and units are two files: give each a name of its own")
    for path in paths:
        check_records(path, force=force)
    documents = []
    for path, other, records in zip(
        paths, reversed(paths), linked_records(release, randomness), strict=True
    ):
        about = about_records(release, records)
        about |= {
            "linked_to": other.name,
            "link": records.link,
            "statement": [*about["statement"], _LINKED],
        }
        documents.append(save_records(records, path, about, force=force))
    return documents[0], documents[1]
