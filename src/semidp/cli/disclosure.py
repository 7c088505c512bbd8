"""``semidp disclosure``: what exact totals, or published tables of any origin, give away by
themselves.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import semidp.cli._options as o
from semidp.assess.disclosure.findings import LISTED, Disclosure, read_totals
from semidp.assess.disclosure.program_bounds import Effort
from semidp.assess.disclosure.published_counts import (
    ROUNDINGS,
    ZEROS,
    PublishedCounts,
    ReadingRules,
)
from semidp.assess.disclosure.table_files import (
    read_counts,
    read_file,
    read_record_file,
    read_records,
)
from semidp.cli._command import argument, command, flag, option
from semidp.cli._output import check_picture, print_json, print_rows, progress_bar
from semidp.errors import InputError
from semidp.present.disclosure_words import disclosure_rows, width_figure
from semidp.promise.exact import nonnegative
from semidp.promise.files import replace_file
from semidp.publish.plan_settings import build_plan
from semidp.publish.plotting import encode_picture
from semidp.publish.statistics.protocol.statistic import assign_values

_SHOWN = 10  # statements of a printed answer


@command
def disclosure(
    *,
    data: list[str] | None = argument(
        "Data, with --exact; or CSV files of published tables.", "[DATA | TABLE...]", None
    ),
    totals: list[Path] | None = o.TOTALS,
    cell: o.Texts = option("A cell to answer for; repeat it.", "ward=A,diagnosis=hiv"),
    known: Path | None = option("A CSV file of whole records that an attacker knows.", "FILE"),
    insiders: int = option(
        "Look for what up to N members of a group find out together.", "N", default=0, min=0
    ),
    within: str = option(
        "Count a hidden cell as recovered if it is known within so many percent.",
        "PERCENT",
        default="0",
    ),
    suppressed: o.Texts = option("The mark of suppressed cells; repeat it.", "MARK"),
    secondary: o.Texts = option(
        "The mark of cells that were suppressed only to protect others.", "MARK"
    ),
    below: int | None = option("Counts below this were suppressed.", "K", min=1),
    shared_mark: bool = flag(
        "--shared-mark", "--suppressed also marks cells suppressed only to protect others."
    ),
    zeros: str = option(f"What happens to zeros: {', '.join(ZEROS)}.", "WORD", default="maybe"),
    rounded: int | None = option("Published numbers are rounded to this base.", "B", min=1),
    rounding: str = option(
        f"How they are rounded: {', '.join(ROUNDINGS)}.", "RULE", default="random"
    ),
    zeros_kept: bool = flag("--zeros-kept", "A positive count is never published as 0."),
    total: o.Text = option("The word for totals among the levels of a table.", "WORD"),
    seconds: float = option(
        "Time limit of the search; what is not settled by then is marked as undecided.",
        "S",
        default=60.0,
        min=0,
    ),
    most: int | None = option("How many statements to list at most.", "N", "--list", min=0),
    picture: Path | None = option(
        "Draw how wide all bounds are; certain cells are marked (.png or .svg).", "FILE"
    ),
    options: Annotated[
        o.Options, ("exact", *o.FEATURES[:-1], "count", "from_table", "where", "set")
    ],
    printing: o.Printing,
) -> None:
    """Say what exact numbers give away by themselves: who is alone in a cell, what all of a
    group share, what a suppressed cell was.

    Every answer is certain (with a proof), not certain (two tables that agree differ), or
    undecided. No noisy number is used; of data, only the totals of --exact are read.
    """
    rules = ReadingRules(
        suppressed=tuple(suppressed or ()),
        secondary=tuple(secondary or ()),
        below=below,
        shared_mark=shared_mark,
        zeros=zeros,
        rounded=rounded,
        rounding=rounding,
        zeros_kept=zeros_kept,
    )
    named = tuple(data or ())
    check_picture(picture)
    if totals or options.given["exact"]:
        if rules != ReadingRules():
            raise InputError(
                "exact totals are neither rounded nor suppressed: leave these options out, or"
                " give tables without --exact and --totals"
            )
        counts = _read_exact(named, totals or (), options)
    elif named:
        plan = options.describe()
        if plan.nests:
            raise InputError("published tables need nested levels declared in --schema, not --nest")
        files = [read_file(Path(name), plan.count) for name in named]
        counts = read_counts(files, rules, total, plan.features, plan.structural_zeros)
    else:
        raise InputError(
            "say what is published: DATA with --exact A,B, --totals FILE, or CSV files of tables"
        )
    if known is not None:
        counts = counts.subtract(read_records(read_record_file(known), counts.schema))
    asked = [assign_values("--cell", text.split(","), "--cell ward=A") for text in cell or ()]
    with progress_bar(printing.quiet) as progress:
        review = Disclosure(
            counts,
            Effort(seconds=seconds),
            insiders=insiders,
            percent=nonnegative(within, "--within"),
            asked=asked,
            most=most if most is not None else LISTED if printing.json else _SHOWN,
            progress=progress,
        )
        document = review.to_json()
    if picture is not None:
        _draw(review, picture)
    if printing.json:
        print_json({"read_as": rules.describe(), **document})
        return
    rows = [("read as", sentence) for sentence in rules.describe()]
    print_rows([*rows, *disclosure_rows(review)])


def _read_exact(
    named: Sequence[str],
    totals: Sequence[Path],
    options: o.Options,
) -> PublishedCounts:
    """Return the exact totals: of files, or read from data."""
    if totals:
        if named or options.given["exact"]:
            raise InputError("give --totals alone, or DATA with --exact")
        return PublishedCounts.from_dataspace(o.read_totals(totals, options.describe()))
    if len(named) != 1:
        raise InputError("--exact is read from one DATA: give one file, glob or address")
    plan = build_plan(options.given, ())
    with options.source(plan, named[0]) as source:
        return PublishedCounts.from_dataspace(read_totals(plan, source))


def _draw(found: Disclosure, path: Path) -> None:
    figure = width_figure(found)
    if figure is None:
        raise InputError(
            "there is nothing to draw: one feature, or more cells than a picture shows"
        )
    replace_file(path, encode_picture(figure, path))
