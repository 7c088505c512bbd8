"""The tables of several releases together, as a release publishes them: words, files, JSON.

A combination is of tables alone, and no request of a plan. So this folder knows functions of
`statistics.tables`: how tables are fitted, fitted again, and said to miss totals. Which results
take part is asked through the protocol.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from semidp.inference.combined.several_releases import LAW
from semidp.promise.exact import count_noun
from semidp.promise.guarantee import Guarantee, Scope
from semidp.promise.spaces.dataspace import RECORD, Dataspace
from semidp.promise.spaces.linked import UNIT
from semidp.promise.tradeoff.curves import approximate
from semidp.publish.results.cells import Columns, Form, PublishedColumns, StoredFiles, named_files
from semidp.publish.results.published_table import Fitted, PublishedTable, tables_by_features
from semidp.publish.results.sections import LISTED_ROWS, Details, Section, first_cells, table_title
from semidp.publish.results.texts import error_text, more
from semidp.publish.statistics.protocol.results import Noise, Published
from semidp.publish.statistics.tables.linked_published import COMMAND_PREFIX, UNITS_PREFIX
from semidp.publish.statistics.tables.words import misses_totals

_NAMED_TABLES = 4  # in the heading of a report
_AGREE = (
    "Members and units were averaged each by themselves and then made to agree, once: sizes times"
    " units is the number of members in every place. Other counts that depend on the members of a"
    " unit need not agree with tables of members."
)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class CombinedTables(Published):
    """The tables of several releases, each from all that was measured.

    Parameters
    ----------
    tables
        Every table of any release.
    releases
        How many releases were combined.
    """

    key: ClassVar[str] = "combined"

    tables: tuple[PublishedTable, ...]
    releases: int

    @classmethod
    def from_tables(
        cls,
        tables: tuple[PublishedTable, ...],
        releases: int,
        scope: Scope,
        claim: str,
        private: bool,
    ) -> Self:
        """Return the result; what it guarantees is said of the release as a whole, and here nothing
        is claimed.
        """
        variances = sum(float((table.standard_errors**2).sum()) for table in tables)
        noise = Noise(LAW, 0.0, claim, float(np.sqrt(variances)), None)
        # With delta = 1 nothing is claimed.
        no_claim = approximate(0, 1)
        guarantee = Guarantee(scope.dataspace, scope.adjacency, no_claim)
        return cls(
            name="tables",
            noise=noise,
            guarantee=guarantee,
            advertised=None,
            private=private,
            noisy=np.zeros(0),
            tables=tables,
            releases=releases,
        )

    def __repr__(self) -> str:
        names = ", ".join(table.name for table in self.tables)
        return f"CombinedTables({names}; {self.releases} releases)"

    def title(self) -> str:
        """Name the tables, or their number where they are many."""
        if len(self.tables) > _NAMED_TABLES:
            return f"{len(self.tables)} tables"
        return ", ".join(_title(table) for table in self.tables)

    def noisy_lines(self) -> list[str]:
        """Say how many cells each table has."""
        lines = []
        for table in self.tables:
            cells = count_noun(table.schema.size, "cell")
            lines.append(f"{_title(table)}: {cells}, from all releases")
        return lines

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return the errors of each table, for a terminal."""
        lines = [("combined", f"{self.releases} releases of the same records")]
        for table in self.tables:
            largest = _largest_error(table)
            cells = count_noun(table.schema.size, "cell")
            text = f"{table.name}: standard error at most {largest} a cell, {cells}"
            lines.append(("estimate", text))
        return lines

    def sections(self, form: Form | None = None) -> list[Section]:
        """Return its section of the report: the errors of every table, and their counts."""
        rows = []
        for table in self.tables[:LISTED_ROWS]:
            variances = table.standard_errors**2
            typical = error_text(float(np.sqrt(variances.mean())))
            cells = f"{table.schema.size:,}"
            method = table.fitted.method
            rows.append((table.name, cells, typical, _largest_error(table), method))
        paragraphs = [
            f"{self.releases} releases of the same records are combined. Every estimate is the"
            " best linear unbiased one from all that was measured. For each residual (what a table"
            " says beyond its own totals) it is the average of the measurements, weighted by their"
            " precision. A total that is exact in one release is exact in all tables."
            " Standard errors are those of the noise alone. The counts are whole numbers"
            " fitted to the estimates, from the coarsest table to the finest."
        ]
        if any(table.counted == UNIT for table in self.tables):
            paragraphs.append(_AGREE)
        paragraphs += more("tables are listed", len(rows), len(self.tables), "the files")
        section = Section(
            heading="Published tables from all releases",
            paragraphs=paragraphs,
            columns=("table", "cells", "standard error", "largest", "fit"),
            rows=rows,
            tables=first_cells(self.tables, self.guarantee.dataspace, False, form),
        )
        return [section]

    def details(self) -> Details:
        """Say how the tables were estimated."""
        return Details(
            "the tables", f"the best linear unbiased estimate from {self.releases} releases"
        )

    def file_words(self, form: Form | None = None) -> list[tuple[str, str]]:
        """Say what the files hold."""
        words = []
        for file, table in zip(self.files(form), self.tables, strict=True):
            content = f"the counts of {_title(table)}, with estimates and their standard errors"
            words.append((file, content))
        return words

    def every_table(self) -> tuple[PublishedTable, ...]:
        """Return every table of any release."""
        return self.tables

    def columns_by_name(self) -> dict[str, PublishedColumns]:
        """Return each table under its name; those of units also as they were asked for."""
        tables: dict[str, PublishedColumns] = {table.name: table for table in self.tables}
        for table in self.tables:
            if table.counted == UNIT:
                asked_as = table.name.removeprefix(UNITS_PREFIX)
                tables[f"{COMMAND_PREFIX}{asked_as}"] = table
        return tables

    def by_features(self) -> dict[tuple[str, ...], PublishedColumns]:
        """Return each table by its features."""
        # Tables of units may have the same features: those are found by name alone.
        return tables_by_features(table for table in self.tables if table.counted != UNIT)

    def warnings(self) -> list[str]:
        """Name the tables that have no whole numbers with all totals."""
        return [
            misses_totals(table.name) for table in self.tables if table.fitted.kind != "integer"
        ]

    def files(self, form: Form | None = None) -> dict[str, Columns]:
        """Return a file for each table."""
        return named_files({table.name: table.columns() for table in self.tables}, form)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the cells, as plain values."""
        return {
            "name": self.name,
            "claim": self.noise.claim,
            "private": self.private,
            "releases": self.releases,
            "tables": [_entry(table) for table in self.tables],
        }

    @staticmethod
    def read_tables(
        entry: Mapping[str, Any], dataspace: Dataspace, files: StoredFiles
    ) -> list[PublishedTable]:
        """Read the tables that `to_json` and `files` wrote."""
        tables = []
        for part in entry["tables"]:
            counted = part.get("counted", dataspace.kinds[0])
            schema = dataspace.for_kind(counted).schema.restrict(part["features"])
            fitted = Fitted(**part["fit"])
            tables.append(PublishedTable.read(files, part["name"], schema, fitted, counted))
        return tables


def _title(table: PublishedTable) -> str:
    """What a table counts: units by zone by size."""
    title = table_title(table)
    return f"units by {title}" if table.counted == UNIT else title


def _largest_error(table: PublishedTable) -> str:
    """The largest standard error of its cells, as text."""
    largest = float(table.standard_errors.max(initial=0.0))
    return error_text(largest)


def _entry(table: PublishedTable) -> dict[str, Any]:
    """Everything of a table but its cells; which kind of records it counts where there are two."""
    if table.counted == RECORD:
        return table.to_json()
    return {**table.to_json(), "counted": table.counted}
