"""The sections of a report as values: headings, paragraphs, pictures, tables. The page draws
them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from semidp.publish.results.grids import Branch, CellGrid

LISTED_ROWS = 1000
"""So many rows of a list are on the page; the files hold all."""


@dataclass(frozen=True, kw_only=True)
class PageCells:
    """The counts of a table as a page shows them: as numbers, folded by parent, as shades, or only
    the file.

    Parameters
    ----------
    heading
        What the table is called.
    grid, branches, heatmap
        The first of them that there is, is shown.
    top
        The coarsest depth, by which `branches` are cut.
    caption
        How far the counts may be off.
    cells
        The number of cells.
    file, link
        The file that holds all of them, and its address.
    """

    heading: str
    grid: CellGrid | None
    branches: tuple[Branch, ...]
    heatmap: Any
    top: str
    caption: str
    cells: str
    file: str
    link: str


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the report under a heading of its own; what is left out is not shown.

    Parameters
    ----------
    heading, paragraphs
        What it is about.
    cells
        The counts of the table that it is about.
    figure, figure_label, caption
        A matplotlib figure, what it is called for those who do not see it (the heading unless
        given), and its caption.
    columns, rows, names
        A list as texts, of which the first `names` columns are words.
    empty
        Groups that hold no record.
    tables
        The counts of further tables.
    first
        Whether it stands at the top of the page.
    """

    heading: str
    paragraphs: Sequence[str] = ()
    cells: PageCells | None = None
    figure: Any = None
    figure_label: str | None = None
    caption: str = ""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    names: int = 1
    empty: Sequence[str] = ()
    tables: Sequence[PageCells] = ()
    first: bool = False


@dataclass(frozen=True)
class Details:
    """How something was measured, for specialists.

    Parameters
    ----------
    what
        What was measured: the mechanism of `what`.
    how
        With what noise, after the name of the mechanism.
    further
        Further facts, each with its name.
    """

    what: str
    how: str
    further: tuple[tuple[str, str], ...] = ()
