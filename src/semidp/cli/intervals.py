"""``semidp intervals``: intervals for what a release published, at no cost in privacy."""

from pathlib import Path
from typing import Annotated, Any

import typer

from semidp.cli import _options as o
from semidp.cli._output import Format, echo, print_json
from semidp.errors import InputError
from semidp.exact import exact, plain
from semidp.inference import IntervalEstimate, TableIntervals
from semidp.noise import SeededRandomness
from semidp.release import Release

Folder = Annotated[Path, typer.Argument(help="A folder that `semidp release` wrote.", metavar="RELEASE")]
Of = Annotated[
    list[str] | None,
    typer.Option("--of", help="The levels that are counted; other features are summed.", metavar="NAME=a[,b]"),
]
Minus = Annotated[
    list[str] | None,
    typer.Option("--minus", help="Other cells, or with --among another group, to subtract.", metavar="NAME=a[,b]"),
]
Among = Annotated[
    list[str] | None, typer.Option("--among", help="The group that a rate is taken in.", metavar="NAME=a[,b]")
]
Sampling = Annotated[
    bool,
    typer.Option("--sampling", help="Allow for sampling too: the records are a sample, and the population is meant."),
]
Level = Annotated[str, typer.Option("--level", help="The confidence level.", metavar="NUMBER")]
Draws = Annotated[int | None, typer.Option("--draws", help="How many tables to simulate: 9999.", metavar="N")]
TableName = Annotated[
    str | None, typer.Option("--name", help="Which table of the release, where several would do.", metavar="TABLE")
]
SimulationSeed = Annotated[int | None, typer.Option("--seed", help="The seed of the simulation.", metavar="N")]


def intervals(
    folder: Folder,
    of: Of = None,
    minus: Minus = None,
    among: Among = None,
    sampling: Sampling = False,
    level: Level = "0.95",
    table: TableName = None,
    draws: Draws = None,
    seed: SimulationSeed = None,
    format: o.FormatOption = Format.text,
    quiet: o.Quiet = False,
) -> None:
    """Print intervals for what a release published: they cost no privacy.

    Without --of: all cells of a table, with intervals that hold at once. With --of: a count; with --minus, the
    difference of two counts; with --among, a rate; with both, the difference of the rates in two groups. They allow for
    the noise alone, by simulation of its known law, or with --sampling for both, by a normal approximation.
    """
    confidence = float(exact(level, "--level"))
    cells = [o.cells_of(option, entries) for option, entries in (("--of", of), ("--minus", minus), ("--among", among))]
    if cells[0] is None and (cells[1] is not None or cells[2] is not None):
        raise InputError("--minus and --among need --of NAME=a: which cells are counted")
    done = Release.load(folder)
    randomness = None if seed is None else SeededRandomness(seed)
    found: IntervalEstimate | TableIntervals
    if cells[0] is None:
        found = done.intervals(table, level=confidence, sampling=sampling, draws=draws, randomness=randomness)
    else:
        found = done.interval(
            cells[0],
            minus=cells[1],
            among=cells[2],
            level=confidence,
            sampling=sampling,
            table=table,
            draws=draws,
            randomness=randomness,
        )
    if format is Format.json:
        asked = {name: part for name, part in zip(("of", "minus", "among"), cells, strict=True) if part is not None}
        print_json({"release": str(folder), **asked, **found.to_json()})
    elif isinstance(found, IntervalEstimate):
        _print_answer(found)
    else:
        _print_table(found)


def _print_answer(found: IntervalEstimate) -> None:
    lines = [
        ("estimate", f"{found.value:.6g}, standard error {found.standard_error:.4g}"),
        ("interval", f"{found.low:.6g} to {found.high:.6g}, at level {plain(exact(found.level))}"),
        ("covers", _covered(found)),
    ]
    if found.p_value is not None:
        lines.append(("p-value", f"{found.p_value:.4g} (is there a difference?)"))
    for name, text in lines:
        echo(f"{name:<10} {text}")


def _print_table(found: TableIntervals) -> None:
    names = [*found.schema.names, "estimate", "low", "high"]
    rows = [[*row[:-3], *(f"{number:.2f}" for number in row[-3:])] for row in found.rows]
    widths = [max(len(str(row[place])) for row in [names, *rows]) for place in range(len(names))]
    for row in [names, *rows]:
        labels, numbers = row[:-3], row[-3:]
        parts = [f"{text:<{width}}" for text, width in zip(labels, widths, strict=False)]
        parts += [f"{text:>{width}}" for text, width in zip(numbers, widths[-3:], strict=True)]
        echo("  ".join(parts))
    echo()
    echo(f"All intervals hold at once, at level {plain(exact(found.level))}; they cover {_covered(found)}.")


def _covered(found: Any) -> str:
    """Say what an interval allows for.

    >>> from semidp.inference.answers import sampled_rate
    >>> _covered(sampled_rate((4.0, 10.0), (1.0, 0.0, 0.0), 0.95))
    'noise and sampling, by a normal approximation'
    """
    return f"{found.covers}, {'exact by simulation' if found.exact else 'by a normal approximation'}"
