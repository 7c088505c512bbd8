"""The exact totals of a release as its files, its workbook and its report show them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from semidp.promise.schema.schema import Table
from semidp.promise.spaces.dataspace import Dataspace
from semidp.promise.spaces.linked import MEMBER, UNIT
from semidp.publish.results.cells import Columns
from semidp.publish.statistics.tables.asked import file_stem

_COUNTS = {MEMBER: "members", UNIT: "units"}
_LONGEST = 120  # characters of a file's name; the features are in the file


@dataclass(frozen=True, eq=False)
class ExactTotals:
    """The counts of one margin that is published exactly.

    Parameters
    ----------
    kind
        The kind of records that are counted.
    stem
        What its file is called, without the ending.
    table
        The counts.
    """

    kind: str
    stem: str
    table: Table

    @property
    def title(self) -> str:
        """What it counts, by its features."""
        features = " × ".join(self.table.schema.names)
        return f"units by {features}" if self.kind == UNIT else features

    @property
    def counted(self) -> str:
        """What the column of counts is called for readers."""
        return _COUNTS.get(self.kind, "count")

    def columns(self) -> Columns:
        """Return a row for each cell."""
        # A feature may be called count, and two columns of a file may not.
        name = "exact_count" if "count" in self.table.schema.names else "count"
        meanings = {name: f"the exact number of {_COUNTS.get(self.kind, 'records')}"}
        return Columns.of_cells(self.table.schema, {name: self.table.counts}, meanings)


def exact_totals(dataspace: Dataspace, stems: Iterable[str] = ()) -> Iterator[ExactTotals]:
    """Yield all margins that are published exactly; `stems` are files that others have.

    >>> from semidp.promise.schema.features import Feature
    >>> from semidp.promise.schema.schema import Schema
    >>> from semidp.promise.spaces.dataspace import Margin
    >>> sexes = Table(Schema([Feature("sex", "fm")]), [3, 4])
    >>> space = Dataspace.from_table(sexes, [Margin("sex")])
    >>> [(total.stem, total.title) for total in exact_totals(space, ["Exact-sex"])]
    [('exact-sex-2', 'sex')]
    """
    # Some file systems tell no capitals apart.
    taken = {stem.casefold() for stem in stems}
    for kind in dataspace.kinds:
        for table in dataspace.for_kind(kind).totals:
            whose = ("units",) if kind == UNIT else ()
            plain = file_stem(("exact", *whose, *table.schema.names))[:_LONGEST]
            stem, number = plain, 1
            while stem.casefold() in taken:
                number += 1
                stem = f"{plain}-{number}"
            taken.add(stem.casefold())
            yield ExactTotals(kind, stem, table)
