"""What a release says of its parts."""

from collections.abc import Sequence

from semidp.promise.spaces.dataspace import Dataspace
from semidp.publish.results.cells import Form
from semidp.publish.results.published_table import PublishedTable
from semidp.publish.results.sections import LISTED_ROWS, Section, first_cells
from semidp.publish.results.texts import more
from semidp.publish.statistics.parts import Partition


def parts_section(
    partition: Partition, overview: Sequence[PublishedTable], public: Dataspace, form: Form | None
) -> Section:
    """Return the section that lists the parts of a release, with the counts of all tables at the
    cut.
    """
    depth, parts = partition.depth, partition.parts
    rows = []
    for part in parts[:LISTED_ROWS]:
        rows.append((" · ".join(part.path), part.folder, ", ".join(part.files)))
    return Section(
        heading=f"Parts: one for every {depth}",
        paragraphs=more("are listed", len(rows), len(parts), "parts.json"),
        columns=(depth, "folder", "files"),
        rows=rows,
        names=2,
        tables=first_cells(overview, public, False, form),
    )


def parts_file_words(partition: Partition) -> list[tuple[str, str]]:
    """Say what the files of the first part hold, and where all parts are listed."""
    first, depth = partition.parts[0], partition.depth
    words = [
        (f"{first.folder}/{name}", f"the same of one {depth}, in every detail")
        for name in first.files
    ]
    return [*words, ("parts.json", f"every {depth} and its files, for machines")]
