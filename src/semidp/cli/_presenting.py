"""The options of `semidp release` on how a release is presented: title, contact, notes, how numbers
are shown.
"""

from pathlib import Path

from attrs import frozen

import semidp.cli._options as o
from semidp.cli._command import option, plain_defaults
from semidp.errors import InputError
from semidp.publish.presentation import Presentation
from semidp.publish.results.cells import Form, form_named
from semidp.publish.results.place_maps import PlaceMap

EXCEL = "xlsx"
"""The value of --write that adds a workbook."""


@frozen(field_transformer=plain_defaults)
class Presenting:
    """What a release says beside its numbers, and how they are shown and written."""

    title: o.Text = option("The heading of the report.", "TEXT")
    contact: o.Text = option(
        "Whom to ask about the release: in the report, the workbook and release.json.", "TEXT"
    )
    note: o.Texts = option("A paragraph at the top of the report; repeat it.", "TEXT")
    round_to: int | None = option(
        "Show counts in multiples of this number in the report and workbook; the files stay as they"
        " are.",
        "N",
        "--round",
        min=1,
    )
    mark_below: int | None = option(
        "Mark counts below this number in the report and workbook.", "N", min=1
    )
    map: Path | None = option(
        "Outlines of places, GeoJSON or TopoJSON: results by place are drawn as maps.", "FILE"
    )
    map_key: o.Text = option(
        "The property of the outlines that names places; the best fit unless given.", "PROPERTY"
    )
    write: o.Text = option(
        "How to write tables: CSV, or Parquet, which is used from a million cells on unless said;"
        " xlsx adds a workbook to CSV files (extra: excel).",
        "csv|parquet|xlsx",
    )

    def form(self) -> Form | None:
        """Return the form of the files that commands read; None where none was chosen."""
        if self.write is None:
            return None
        # A workbook is for people; commands still read CSV files beside it.
        if self.write == EXCEL:
            return Form.csv
        try:
            return form_named(self.write)
        except InputError:
            raise InputError(
                f"tables are written as csv, parquet or xlsx, not {self.write!r}"
            ) from None

    def presentation(self) -> Presentation:
        """Return how the release is presented."""
        return Presentation(
            title=self.title,
            contact=self.contact,
            notes=tuple(self.note or ()),
            round_to=self.round_to,
            mark_below=self.mark_below,
            workbook=self.write == EXCEL,
            places=read_places(self.map, self.map_key),
        )


def read_places(file: Path | None, key: str | None) -> PlaceMap | None:
    """Return the outlines of places that --map names."""
    if file is None:
        if key is not None:
            raise InputError(
                "--map-key names a property of the places of --map FILE: give that too"
            )
        return None
    return PlaceMap.read(file, key)
