"""What a release says of tables of counts: one with a budget of its own, several that share one and
fit together, or linked ones; in one piece or by parts.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from semidp.promise.exact import count_noun
from semidp.promise.mechanisms.residual_noise import ResidualMechanism
from semidp.promise.schema.margins import View, maximal, meet
from semidp.publish.comparisons import find_excess_variance
from semidp.publish.plotting import loss_plot
from semidp.publish.presentation import report_words
from semidp.publish.results.cells import Columns, Form, StoredFiles, named_files
from semidp.publish.results.grids import (
    LISTED_ROWS,
    Details,
    Section,
    counts_sections,
    page_cells,
    table_title,
)
from semidp.publish.results.published_table import FitKind, PublishedTable
from semidp.publish.results.texts import error_text, more, name_tradeoff, scale_text
from semidp.publish.statistics.parts import BY_PARTS, Part
from semidp.publish.statistics.protocol.results import Published
from semidp.publish.statistics.tables.asked import TableRequest, measurements_stem
from semidp.publish.statistics.tables.error_words import (
    ERRORS_TEXT,
    FEW_TABLES,
    HEADINGS,
    NONE_FOUND,
    CellErrors,
    cautions,
    error_lines,
    misses_totals,
)

if TYPE_CHECKING:
    from semidp.publish.statistics.tables.by_parts.cut_tables import TableBlocks
    from semidp.publish.statistics.tables.published import PublishedTables

_LOSS_CAPTION = (
    "The picture shows how far the measurement is expected to be from the true table: the root of"
    " the mean of the sum of squares over all cells. This is known before any noise is drawn. The"
    " other bar is ordinary differential privacy, with enough noise to give the same guarantee for"
    " as many records (group privacy)."
)
_NAMED_TABLES = 4  # in the heading of a report
_LISTED_TABLES = 40
_NAMED_OTHERS = 3


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PublishedCells(Published):
    """What all tables of counts share: their files, and what is said of them.

    Parameters
    ----------
    request
        What was asked for.
    blocks
        How tables and measurement lie in the folders of parts; None where the release has none.
    """

    request: Any
    blocks: "TableBlocks | None" = field(default=None, repr=False)

    @property
    def list_key(self) -> str:
        """The list of release.json that it is in."""
        return self.key if self.depth is None else BY_PARTS

    @property
    def depth(self) -> str | None:
        """The name of the depth at which it was cut; None in one piece."""
        return None if self.blocks is None else self.blocks.depth

    @property
    def asked_tables(self) -> tuple[TableRequest, ...]:
        """The tables as they were asked for."""
        every: tuple[TableRequest, ...] = self.request.tables
        return every

    def held_tables(self) -> tuple[PublishedTable, ...]:
        """Return the tables whose cells are in the files of the release itself."""
        every = self.every_table()
        return every if self.blocks is None else self.blocks.hold(every)

    @cached_property
    def cell_errors(self) -> list[CellErrors]:
        """How wrong the cells of each table are."""
        cut = () if self.blocks is None else self.blocks.below
        parts = 1 if self.blocks is None else self.blocks.parts
        return [
            CellErrors.from_table(table, parts if table.name in cut else 1)
            for table in self.every_table()
        ]

    def errors_json(self) -> list[dict[str, Any]]:
        """Return how wrong the cells of each table are, as plain values."""
        return [errors.to_json() for errors in self.cell_errors]

    @property
    def is_fixed(self) -> bool:
        """Whether exact totals fix every cell."""
        return self.noise.absent

    # --- files

    def measurements(self) -> Columns | None:
        """Return what was measured, as the file of the release has it; None where it is all in the
        parts.
        """
        raise NotImplementedError

    def files(self, form: Form | None = None) -> dict[str, Columns]:
        """Return a file for each table, and the measurements: in a release by parts what is not in
        the parts.
        """
        columns = {table.name: table.columns() for table in self.held_tables()}
        measured = self.measurements()
        if measured is not None:
            columns[measurements_stem(self.request)] = measured
        return named_files(columns, form)

    def part_stems(self) -> tuple[list[str], str | None]:
        """Return the names of the tables in a part, and the name of the file with its
        measurement.
        """
        return ([], None) if self.blocks is None else ([*self.blocks.below], self.blocks.stem)

    def tables_of_part(self, files: StoredFiles, node: int, part: Part) -> list[PublishedTable]:
        """Return the rows of one part."""
        return [] if self.blocks is None else self.blocks.rows(self.every_table(), node)

    def publish_part(
        self, files: StoredFiles, node: int, part: Part
    ) -> tuple[list[PublishedTable], Columns | None]:
        """Return the rows and the measurement of one part, which follow from those of the whole."""
        if self.blocks is None:
            return [], None
        measured = self.blocks.columns_below(self.noisy, node)
        return self.blocks.rows(self.every_table(), node), measured

    # --- what is said of it

    def title(self) -> str:
        """Name the tables by their features, or their number where they are many."""
        titles = [errors.title for errors in self.cell_errors]
        few = len(titles) <= _NAMED_TABLES
        return ", ".join(titles) if few else count_noun(len(titles), "table")

    def noisy_lines(self) -> list[str]:
        """Say how many cells with noise each table has; where tables are many, all together."""
        tables = self.cell_errors
        if self.noise.absent and len(tables) == 1:
            return [f"nothing of {self.title()}: the exact totals fix the whole table"]
        if len(tables) > FEW_TABLES:
            cells = sum(table.cells for table in tables)
            return [f"{len(tables):,} tables, which add up: {cells:,} cells"]
        shared = len(tables) > 1 and self.depth is None
        together = ", together with the other tables" if shared else ""
        lines = []
        for table in tables:
            parts = f" in {count_noun(table.parts, 'part')}" if table.parts > 1 else ""
            lines.append(f"{table.title}: {count_noun(table.cells, 'cell')}{parts}{together}")
        return lines

    def mechanism_lines(self) -> list[str]:
        """Say with what noise the tables were measured, for a terminal."""
        raise NotImplementedError

    def summary_lines(self) -> list[tuple[str, str]]:
        """Return how wrong the cells of each table are, and the mechanism, for a terminal."""
        fixed = self.noise.absent and len(self.cell_errors) > 1
        lines = [] if fixed else error_lines(self.cell_errors)
        return [*lines, *(("mechanism", line) for line in self.mechanism_lines())]

    def parts_text(self) -> str:
        """Say how tables were measured part by part."""
        return (
            f"Every {self.depth} was measured by itself, from its own records. The measurements of"
            " all of them were put together, and the tables were estimated and fitted in one piece,"
            f" as without parts. Each {self.depth} holds its rows. All noise was calibrated to the"
            " whole, so that there is one guarantee."
        )

    def fit_notes(self) -> Iterator[str]:
        """Say which tables may not be the closest ones."""
        for table in self.every_table():
            if not table.fitted.optimal and table.fitted.note:
                yield table.fitted.note

    def parts_section(self) -> Section:
        """Return the section of tables by parts: how they were measured, and their errors."""
        first, cells, *errors = HEADINGS
        rows = []
        for table in self.cell_errors:
            name, number, *texts = table.row()
            rows.append((name, number, f"{table.parts:,}", *texts))
        return Section(
            heading=f"Published tables, by {self.depth}",
            paragraphs=[self.parts_text(), *dict.fromkeys(self.fit_notes()), ERRORS_TEXT],
            columns=(first, cells, "parts", *errors),
            rows=rows,
        )

    def details(self) -> Details:
        """Say how the tables were measured and fitted."""
        noise = self.residual_noise()
        how = f"scale {scale_text(self.noise.scale)}"
        if noise is not None:
            how = "exact noise on each residual"
        if self.depth is not None:
            return Details(self.title(), f"{how}, part by part")
        tables = self.every_table()
        fits = [("Fit", f"{table.fitted.kind}: {table.fitted.method}") for table in tables[:1]]
        return Details(self.title(), how, tuple(fits) if len(tables) == 1 else ())

    def file_words(self, form: Form | None = None) -> list[tuple[str, str]]:
        """Say what the files hold: those of the first tables, and the measurements."""
        titles = {table.name: table_title(table) for table in self.held_tables()}
        words, left = [], []
        for file in self.files(form):
            title = titles.get(file.rpartition(".")[0])
            if title is None:
                above = "" if self.depth is None else f" at the depth of {self.depth} and above"
                measured = f"the measurements of {self.title()}{above}, for statisticians"
                words.append((file, measured))
            elif len(words) < _LISTED_TABLES:
                told = f"the counts of {title}, with estimates and their standard errors"
                words.append((file, told))
            else:
                left.append(file)
        if left:
            told = f"the same of the next table, and so on: {count_noun(len(left), 'file')}"
            words.insert(_LISTED_TABLES, (left[0], told))
        return words

    def missed_totals(self) -> Iterator[str]:
        """Name the tables that were asked for in whole numbers and have none with all totals."""
        asked = {table.name for table in self.asked_tables if table.fit is FitKind.integer}
        for table in self.every_table():
            if table.name in asked and table.fitted.kind != FitKind.integer:
                yield misses_totals(table.name)
            elif table.name in asked and table.counts.dtype.kind != "i":
                yield f"{NONE_FOUND} {table.name!r}: its counts are real numbers."

    def warnings(self) -> list[str]:
        """Say which tables miss some of their totals."""
        return list(self.missed_totals())

    def cautions(self) -> list[str]:
        """Name tables in many of whose cells noise dominates."""
        return cautions(self.cell_errors)


def mechanism_lines(tables: Sequence[str], mechanism: ResidualMechanism, what: str) -> list[str]:
    """Say how residuals are measured, what joint sensitivity saved, and how large the errors of
    each table are.
    """
    if not mechanism.sigma2:
        return ["no noise: the exact totals fix every table"]
    first = (
        f"noise on {mechanism.name} (what each table has beyond its totals) for {what},"
        f" {mechanism.claim} claim"
    )
    if mechanism.saved:
        first += f"; measuring them together saved {mechanism.saved:.0%} of the variance"
    return [first, *near_least(mechanism), *tables]


def near_least(mechanism: ResidualMechanism) -> list[str]:
    """Say how near the noise comes to what no Gaussian noise can go below, where a lower bound is
    proved.
    """
    above = find_excess_variance(mechanism)
    if above is None:
        return []
    # Rounded up, so that the noise never looks nearer to the least than is proved.
    share = math.ceil(max(above, 0.0) * 1000) / 1000
    return [
        f"total variance at most {share:.1%} above the least that any additive Gaussian noise with"
        " unbiased estimates needs under this promise"
    ]


def together_words(tables: int) -> str:
    """Say how many tables share a budget."""
    return f"{count_noun(tables, 'table')} from one budget"


def tables_sections(product: "PublishedTables", form: Form | None) -> list[Section]:
    """Return the sections of tables that share a budget: their errors, how they fit together, their
    counts.

    The errors of many tables stand at the top of the page.
    """
    if product.request.is_single_table:
        return [_single_section(product, form)]
    public, absent = product.guarantee.dataspace, product.noise.absent
    counts = counts_sections("The published tables", product.tables, public, absent, form)
    errors = [_errors_section(product)]
    many = len(product.tables) > FEW_TABLES
    first = [*errors, *counts] if many else [*counts, *errors]
    return [*first, _measured_section(product), _together_section(product)]


def _errors_section(product: "PublishedTables") -> Section:
    """Return the list of tables with their errors."""
    every = len(product.tables)
    rows = []
    for errors in product.cell_errors[:LISTED_ROWS]:
        rows.append(errors.row())
    paragraphs = [ERRORS_TEXT]
    paragraphs += more("tables are listed", len(rows), every, "the files")
    return Section(
        heading="How wrong the tables are",
        paragraphs=paragraphs,
        columns=HEADINGS,
        rows=rows,
    )


def _measured_section(product: "PublishedTables") -> Section:
    """Return how the tables were measured, beside what other ways would have cost."""
    losses = product_losses(product)
    # One bar has nothing to be compared with.
    drawn = len(losses) > 1 and product.noise_of_residuals.sigma2
    return Section(
        heading="Published tables from one budget",
        paragraphs=product_paragraphs(product),
        figure=loss_plot(losses) if drawn else None,
        caption=losses_caption(product),
    )


def _together_section(product: "PublishedTables") -> Section:
    every = len(product.tables)
    shown = min(every, _LISTED_TABLES)
    rows = [_overlaps(product, number) for number in range(shown)]
    paragraphs = [_decomposable_text(product)]
    paragraphs += more("tables are listed", shown, every, "the files")
    return Section(
        heading="How the tables fit together",
        paragraphs=paragraphs,
        columns=("table", "has the same numbers as other tables in", "exact in it"),
        rows=rows,
        names=3,
    )


def product_paragraphs(product: "PublishedTables") -> list[str]:
    """Say how the tables hang together and how far they may be off."""
    mechanism = product.noise_of_residuals
    if product.noise.absent:
        return ["The exact totals fix every table: no noise was needed."]
    paragraphs = [
        (
            "The tables share one budget. They are put together from residuals: a residual is what"
            " a table says beyond its own totals. Noise was added to"
            f" {count_noun(len(mechanism.sigma2), 'residual')}, once to each; the exact totals fix"
            " the others. So"
            " a number that occurs in two tables is the same number in both. Estimates are"
            " unbiased, that is, right on average, and their standard errors are those of the noise"
            " alone. The counts are whole numbers, fitted to the estimates from the coarsest table"
            " to the finest. A count may lie outside its interval, which belongs to the estimate."
        ),
    ]
    if mechanism.saved:
        paragraphs.append(
            "No change of the records moves every residual as far as it can go. All residuals"
            f" together therefore needed {mechanism.saved:.0%} less variance than if the worst"
            " change of each had been added up."
        )
    paragraphs += [f"The noise has a {sentence}." for sentence in near_least(mechanism)]
    whole = [table for table in product.tables if table.fitted.kind == "integer"]
    if whole:
        away = math.sqrt(sum(table.fitted.loss for table in whole))
        least = math.sqrt(sum(table.fitted.bound for table in whole))
        paragraphs.append(
            f"The whole numbers lie {error_text(away)} from the estimates (the root of the sum of"
            " squares over all cells). Numbers that are not negative and have the same totals, but"
            f" need not be whole, would lie at least {error_text(least)} away."
        )
    for table in product.tables:
        if not table.fitted.optimal:
            paragraphs.append(f"{table.name}: {table.fitted.note}")
    return paragraphs


def product_losses(product: "PublishedTables") -> dict[str, float]:
    """Return the expected distance from the truth beside tables one by one and ordinary
    differential privacy.
    """
    losses = {"this release": product.noise.expected_l2}
    if product.one_by_one_l2:
        losses["one by one,\nsame promise"] = product.one_by_one_l2
    if product.noise.naive_l2:
        losses["ordinary DP,\ngroup privacy"] = product.noise.naive_l2
    return losses


def losses_caption(product: "PublishedTables") -> str:
    """Name the promise of each number in the picture of losses."""
    adjacency, curve = product.guarantee.adjacency, name_tradeoff(product.guarantee.tradeoff)
    records = count_noun(adjacency.a, adjacency.words.one, adjacency.words.noun)
    keep = "it keeps" if adjacency.a == 1 else "they keep"
    promise = report_words(adjacency).promise
    alone = " The tables measured one by one, with the best split of the budget, promise the same."
    if product.one_by_one_l2 is None:
        alone = ""
    return (
        "The picture shows how far all estimates together are expected to be from the true tables:"
        " the root of the mean of the sum of squares over all cells. This is known before any noise"
        f" is drawn. This release promises {curve} for {promise}.{alone} Ordinary differential"
        f" privacy promises it for any {records}, whether {keep} the totals or not. For that it"
        " needs more noise than for one record (group privacy)."
    )


def _overlaps(product: "PublishedTables", number: int) -> tuple[str, str, str]:
    """Say of one table what it shares with which others, and what of it is exact."""
    space, named = (
        product.noise_of_residuals.space,
        product.noise_of_residuals.space.schema.list_view_names,
    )
    view = space.views[number]
    shared: dict[View, list[str]] = {}
    for other, table in enumerate(product.tables):
        overlap = meet(view, space.views[other])
        # Two tables without a common feature share the number of records alone.
        if other != number and any(overlap):
            shared.setdefault(overlap, []).append(table.name)
    agrees = []
    for overlap, names in shared.items():
        agrees.append(f"{' by '.join(named(overlap))} ({_some(names)})")
    totals = maximal(meet(view, total.view) for total in space.dataspace.published_totals)
    exact = [" by ".join(named(total)) for total in totals if any(total)]
    # Every table has the number of records in common with every other.
    agrees_text = "; ".join(agrees) or "only the number of records"
    exact_text = "; ".join(exact) or "only the number of records"
    return product.tables[number].name, agrees_text, exact_text


def _some(names: Sequence[str]) -> str:
    if len(names) <= _NAMED_OTHERS:
        return ", ".join(names)
    return f"{', '.join(names[:2])} and {len(names) - 2} more"


def _decomposable_text(product: "PublishedTables") -> str:
    if product.decomposable:
        return (
            "The tables and the exact totals are decomposable: there is a set of records that has"
            " all of them."
        )
    return (
        "The tables agree wherever they overlap. But they hang together in a circle (they are not"
        " decomposable), so perhaps no set of records has all of them."
    )


def describe_noise(result: "PublishedTables") -> str:
    """Name the mechanism of one table, and what ordinary differential privacy would need."""
    noise = result.noise
    how = f"{noise.mechanism}, scale {scale_text(noise.scale)}"
    if result.residuals is not None:
        # Residuals have a scale each: what they are says more than the largest of those.
        how = "noise on residuals (what the table has beyond its totals)"
    more_error = noise.naive_l2 / noise.expected_l2 if noise.naive_l2 and noise.expected_l2 else 1.0
    if more_error >= 1.05:
        how += (
            f"; ordinary differential privacy has {more_error:.2g} times the error at the same"
            " guarantee"
        )
    return how


def _single_section(result: "PublishedTables", form: Form | None) -> Section:
    """Return the section of a table: its counts, and its expected loss beside ordinary differential
    privacy.
    """
    naive = result.noise.naive_l2
    figure = None
    if naive is not None:
        figure = loss_plot(
            {"this release": result.noise.expected_l2, "ordinary DP,\nsame guarantee": naive}
        )
    cells = page_cells(result.only, result.guarantee.dataspace, result.noise.absent, form)
    return Section(
        heading=cells.heading,
        paragraphs=[table_summary(result)],
        cells=cells,
        figure=figure,
        figure_label="Expected loss of this release compared with ordinary differential privacy",
        caption=_LOSS_CAPTION,
    )


def table_summary(result: "PublishedTables") -> str:
    """Say how one table was made."""
    table, noise = result.only, result.noise
    if noise.absent:
        return (
            "The exact totals fix every cell of this table, so it is published exactly and needs no"
            " noise."
        )
    how = (
        "The measurement is the true table with noise added to it"
        f" ({noise.mechanism} mechanism, scale {scale_text(noise.scale)})"
    )
    if result.residuals is not None:
        how = (
            "The measurement has noise in its residuals, which are what the table says beyond its"
            f" own totals ({len(result.residuals.sigma2)} of them, each with a scale of its own)"
        )
    if table.fitted.kind == "none":
        return (
            f"{how}. The measurement itself is published: counts may be negative, and exact totals"
            " are met up to rounding."
        )
    if table.counts.dtype.kind == "i":
        made = "Each count is a whole number, none is negative, and every exact total is met."
    else:
        made = "No count is negative, but counts need not be whole."
        # A fit that was ended early may miss totals: its note says so.
        made += " Every exact total is met up to rounding." if table.fitted.optimal else ""
    fitted = "The counts are fitted to the measurement."
    return f"{how}. {fitted} {made} {table.fitted.note}".strip()
