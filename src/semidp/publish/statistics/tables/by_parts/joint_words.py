"""What a release says of tables that were measured in parts and published in one piece."""

from collections.abc import Iterable, Sequence

from semidp.promise.exact import count_noun
from semidp.publish.results.published_table import PublishedTable
from semidp.publish.results.sections import Section, table_title
from semidp.publish.statistics.tables.by_parts.cut_tables import TableBlocks
from semidp.publish.statistics.tables.error_words import ERRORS_TEXT, HEADINGS, CellErrors

JOINT_DETAILS = "exact noise, part by part; put together and fitted in one piece"
"""How tables were measured that are published together."""


def joint_lines(tables: Sequence[PublishedTable], blocks: TableBlocks) -> list[str]:
    """Say how many cells each table has that was fitted in one piece, in how many parts."""
    lines = []
    for table in tables:
        cut = table.name in blocks.below and blocks.parts > 1
        parts = f" in {count_noun(blocks.parts, 'part')}" if cut else ""
        lines.append(f"{table_title(table)}: {count_noun(table.schema.size, 'cell')}{parts}")
    return lines


def joint_section(tables: Sequence[PublishedTable], blocks: TableBlocks) -> Section:
    """Return the section of tables that were measured in parts and fitted in one piece."""
    depth = blocks.depth
    paragraphs = [
        f"Every {depth} was measured by itself, from its own records. The measurements of all of"
        " them were put together, and the tables were estimated and fitted in one piece, as"
        f" without parts. Each {depth} holds its rows. All noise was calibrated to the whole, so"
        " that there is one guarantee."
    ]
    rows = []
    for table in tables:
        errors = CellErrors.from_table(table)
        rows.append((*errors.row(), table.fitted.method))
        if not table.fitted.optimal and table.fitted.note:
            paragraphs.append(table.fitted.note)
    return Section(
        heading=f"Published tables, by {depth}",
        paragraphs=[*paragraphs, ERRORS_TEXT],
        columns=(*HEADINGS, "fit"),
        rows=rows,
    )


def joint_file_words(
    files: Iterable[str], held_tables: Sequence[PublishedTable], blocks: TableBlocks
) -> list[tuple[str, str]]:
    """Say what the files of the release itself hold."""
    held = {table.name: table for table in held_tables}
    words = []
    for file in files:
        table = held.get(file.rpartition(".")[0])
        if table is None:
            words.append((file, f"the measured residuals by {blocks.depth} and above"))
        else:
            words.append((file, f"the counts of {table_title(table)}, with estimates and errors"))
    return words


def linked_lines(
    tables: Sequence[PublishedTable], cell_lines: Sequence[str], blocks: TableBlocks
) -> list[str]:
    """Say how many cells each linked table has, in how many parts."""
    lines = []
    for table, line in zip(tables, cell_lines, strict=True):
        cut = table.name in blocks.below and blocks.parts > 1
        lines.append(f"{line}, in {count_noun(blocks.parts, 'part')}" if cut else line)
    return lines


def linked_section(blocks: TableBlocks) -> Section:
    """Return the section on how linked tables were measured part by part."""
    depth = blocks.depth
    return Section(
        heading=f"Measured by {depth}",
        paragraphs=[
            f"Both kinds were first measured at the depth of {depth} and above. Then members and"
            f" units of every {depth} were measured by themselves, from its own records. All"
            " measurements were put together. The tables of both kinds were made to agree and"
            f" fitted in one piece, as without parts, and each {depth} holds its rows. All noise"
            " was calibrated to the whole, so that there is one guarantee."
        ],
    )
