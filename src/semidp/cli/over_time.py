"""``semidp change`` and ``series``: what changed between periods, and what comes next."""

import math
from pathlib import Path
from typing import Any

import semidp.cli._options as o
from semidp.cli._command import argument, command, option
from semidp.cli._output import check_picture, grid, harmless, print_json, print_rows
from semidp.errors import InputError
from semidp.inference.period_changes import (
    ChangedRow,
    Changes,
    ChangeTest,
    compare_releases,
)
from semidp.present.release import Release
from semidp.present.series_words import SeriesPlan, describe_series, plan_next, plan_series
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.files import replace_file
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish.plotting import encode_picture
from semidp.publish.recheck import load_consistent
from semidp.publish.results.texts import end_texts, rounded_text

_SHOWN = 40  # rows of a printed answer


@command
def change(
    *,
    releases: list[Path] = argument(
        "Folders of releases, the earliest period first.", "RELEASE RELEASE..."
    ),
    names: o.Text = option(
        "What the periods are called, if the releases do not say.", "A,B,...", "--names"
    ),
    level: str = option("The confidence level of each interval.", "NUMBER", default="0.95"),
    out: Path | None = option("Write all changes to this CSV file.", "FILE"),
    picture: Path | None = option("Draw a statistic over the periods (.png or .svg).", "FILE"),
    statistic: o.Text = option("Which statistic to draw.", "NAME"),
    seed: int | None = option("The seed of the simulation.", "N"),
    printing: o.Printing,
) -> None:
    """Say what changed from one release to the next: differences and ratios with intervals.

    The intervals allow for the noise of both releases. They are about the records of the periods,
    not about a population. It costs no privacy.
    """
    check_picture(picture)
    if len({folder.resolve() for folder in releases}) < len(releases):
        raise InputError("a release is named twice: name one of each period")
    loaded = [load_consistent(Release, folder) for folder in releases]
    called = None if names is None else names.split(",")
    if called is not None and len(called) != len(loaded):
        raise InputError(f"--names has {len(called)} names for {len(loaded)} releases")
    randomness = None if seed is None else SeededRandomness(seed)
    changes = compare_releases(loaded, called, o.parse_real(level, "--level"), randomness)
    if out is not None:
        replace_file(out, changes.csv())
    if picture is not None:
        replace_file(picture, encode_picture(changes.plot(statistic), picture))
    if printing.json:
        print_json(changes.to_json())
    else:
        _print_changes(changes)


def _print_changes(found: Changes) -> None:
    """Print the first changes as a grid, the tests, and rows without a partner."""
    from rich.console import Console

    headings = ("before", "after", "change", "ratio")
    table = grid(("statistic", "row", "to"), headings)
    for row in found.rows[:_SHOWN]:
        table.add_row(*map(harmless, _change_texts(row)))
    Console(highlight=False, markup=False).print(table)
    left = len(found.rows) - _SHOWN
    lines = [("more", f"{left:,} further rows: --out FILE writes all of them")] if left > 0 else []
    lines += [("test", _test_text(test)) for test in found.tests]
    if found.unmatched:
        name, labels, only = found.unmatched[0]
        example = f"{name} {labels} is only in {', '.join(only)}"
        lines.append(("unmatched", f"{len(found.unmatched):,} rows, such as: {example}"))
    lines += [("left out", f"{name}: {reason}") for name, reason in found.left_out]
    if lines:
        print_rows(lines, width=10)


def _change_texts(row: ChangedRow) -> tuple[str, ...]:
    """Cells of the grid: a difference and a ratio with their intervals in brackets."""
    error = (row.upper - row.lower) / 4
    before, after, change = (
        rounded_text(value, error) for value in (row.before, row.after, row.difference)
    )
    if row.exact:
        change, ratio = f"{change} exactly", _ratio_text(row.ratio)
    else:
        lower, upper = end_texts({"lower": row.lower, "upper": row.upper}, error)
        change = f"{change} ({lower} to {upper})"
        ends = f"{_ratio_text(row.ratio_lower)} to {_ratio_text(row.ratio_upper)}"
        ratio = f"{_ratio_text(row.ratio)} ({ends})"
    return row.statistic, str(row.labels), row.end, before, after, change, ratio


def _ratio_text(ratio: float) -> str:
    """A ratio with two decimals; no end where it may be any number, and nothing where there is
    none.

    >>> _ratio_text(1.634), _ratio_text(math.inf), _ratio_text(math.nan)
    ('1.63', '∞', '-')
    """
    if math.isnan(ratio):
        return "-"
    return f"{ratio:.2f}" if math.isfinite(ratio) else "∞" if ratio > 0 else "-∞"


def _test_text(test: ChangeTest) -> str:
    p_value = f"p = {test.p_value:.4f}" if test.p_value >= 0.0005 else "p < 0.0005"
    return f"{test.statistic}, {test.start} to {test.end}: {p_value} if nothing changed"


@command
def series(
    *,
    file: Path = argument("The ledger of the series.", "LEDGER"),
    release: Path | None = argument(
        "A release of an earlier period, to plan the next one like it.", "[RELEASE]", None
    ),
    write: Path | None = option("Write the plan of the next period to this file.", "FILE"),
    printing: o.Printing,
) -> None:
    """Say what each period of a series may spend, and what error that buys.

    Only public numbers are used: the ledger, and a release of an earlier period. Nothing is spent.
    """
    account = Ledger(file).series_account()
    document = describe_series(account)
    like = None if release is None else load_consistent(Release, release)
    if write is not None and like is None:
        raise InputError("--write needs a release that the next period shall be like")
    plans = [] if like is None else list(plan_series(account, like))
    if write is not None and like is not None:
        replace_file(write, plan_next(account, like).to_toml())
    if printing.json:
        print_json({**document, "plans": [plan.to_json() for plan in plans]})
        return
    print_rows(_series_rows(document, plans, file, release, write), width=10)


def _series_rows(
    document: dict[str, Any],
    plans: list[SeriesPlan],
    file: Path,
    release: Path | None,
    write: Path | None,
) -> list[tuple[str, str]]:
    rows = [("protects", document["protects"]), ("budget", document["budget"])]
    rows += [("spent", f"{each['period']}  {each['cost']}") for each in document["spent"]]
    rows += [("counted", each) for each in document["counted"]]
    if document["next"]:
        rows.append(("next", document["next"]))
    rows += [("plan", plan.text) for plan in plans]
    if plans:
        name = write or Path("next.toml")
        period = document["next_period"]
        first = "" if write else f"semidp series {file} {release} --write {name}; "
        told = f"{first}semidp release DATA --plan {name} --ledger {file} --out {period}"
        rows.append(("command", told))
    if document["warning"]:
        rows.append(("warning", document["warning"]))
    return rows
