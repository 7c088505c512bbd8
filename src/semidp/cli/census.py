"""``semidp census`` and ``reproduce``: the 2020 US Census redistricting file (P.L. 94-171), and the
figures and numbers of the paper, each beside its corrected version.

``semidp census`` says what that file guarantees, its state totals exact; ``semidp census estimate``
gives estimates for any area from its noisy measurements.
"""

import contextlib
import json
import math
from collections.abc import Collection
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import semidp.cli._options as o
from semidp.applications.study import (
    NUMBERED,
    STUDIES,
    Settings,
    Study,
    Tidy,
    find_study,
    study_name,
)
from semidp.cli._command import argument, command, flag, option
from semidp.cli._output import (
    echo,
    grid,
    in_place,
    naming_options,
    notice,
    print_grid,
    print_json,
    progress_bar,
    say,
)
from semidp.errors import InputError
from semidp.promise.documents import read_csv, read_document
from semidp.promise.guarantee import Guarantee
from semidp.publish.folders import new_folder
from semidp.publish.plotting import png

if TYPE_CHECKING:
    from semidp.inference import CensusTask
    from semidp.inference.area_estimates import CensusEstimates


MANIFEST = "studies.json"
"""The list of the files that a command wrote to a folder; only such a folder may be replaced."""

NAMES = argument(
    f"Any of {', '.join(STUDIES)}, or by the paper's numbers {', '.join(NUMBERED)}; all of them by"
    " default.",
    "NAME",
    None,
)


@command
def reproduce(
    *,
    names: o.Texts = NAMES,
    out: Path = option("The folder for NAME.csv and NAME.png.", "FOLDER", default=Path("studies")),
    replicates: int = option("Runs of each mechanism on each table.", "N", default=30),
    seed: int = option("The seed of every study.", "N", default=0),
    force: bool = o.FORCE,
    printing: o.Printing,
) -> None:
    """Reproduce the paper's figures and numbers: NAME.csv and NAME.png for each study, as published
    and corrected.

    The folder also holds studies.json, a list of these files: --force replaces a folder that has
    one and no other file.
    """
    # The paper's number and our name may mean one study, which is run once.
    chosen = list(dict.fromkeys(map(study_name, names or STUDIES)))
    # All names are looked up before the first study runs: a slip should not cost an hour.
    modules = {name: find_study(name) for name in chosen}
    files = []
    with (
        progress_bar(printing.quiet) as progress,
        naming_options(force),
        new_folder(out, force=force, ours=study_files) as folder,
    ):
        settings = Settings(replicates, seed, progress)
        for done, (name, module) in enumerate(modules.items()):
            progress("studies", done, len(modules))
            table = module.compute(settings)
            files += write_study(folder, name, module, table)
        progress("studies", len(modules), len(modules))
    with in_place(f"the folder {out}"):
        if printing.json:
            print_json({"out": str(out), "replicates": replicates, "seed": seed, "files": files})
        else:
            echo("\n".join(str(out / file) for file in files))


def write_study(folder: Path, name: str, module: Study, table: Tidy) -> list[str]:
    """Write the table and the picture of a study, list them in the folder's manifest, and return
    their names.
    """
    written = [f"{name}.csv", f"{name}.png"]
    (folder / written[0]).write_text(table.csv(), encoding="utf-8", newline="\n")
    (folder / written[1]).write_bytes(png(module.plot(table)))
    listed = sorted({*study_files(folder), *written} - {MANIFEST})
    document = {"schema_version": 1, "files": listed}
    (folder / MANIFEST).write_text(
        json.dumps(document, indent=2) + "\n", encoding="utf-8", newline="\n"
    )
    return written


def study_files(folder: Path) -> Collection[str]:
    """Return the files that studies have written to a folder, by its manifest."""
    listed = read_document(folder / MANIFEST).get("files")
    # Only names that a study can have: a manifest must not make --force remove other files.
    possible = {f"{name}.{kind}" for name in STUDIES for kind in ("csv", "png")}
    return (
        {MANIFEST, *(name for name in possible if name in listed)}
        if isinstance(listed, list)
        else set()
    )


EPSILONS = ("formula", "zCDP", "Gaussian")
"""Three epsilons of the same rho: the paper's formula, the tight conversion, and that of Gaussian
noise."""
_SHOWN = 40
"""Areas that are printed on a terminal; all are in the file."""


@command
def census(
    *,
    context: typer.Context,
    out: Path | None = option("Also write census.csv and census.png to this folder.", "FOLDER"),
    force: bool = o.FORCE,
    # nothing here to silence: --quiet is taken so that every command takes it
    printing: o.Printing,
) -> None:
    """Say what the 2020 Census redistricting file (P.L. 94-171) guarantees, as announced and with
    exact totals.
    """
    # Options before the word are read by this command, and the other would not see them.
    if context.invoked_subcommand is not None:
        if out is not None or force or printing.json or printing.quiet:
            raise InputError(
                f"options follow the word {context.invoked_subcommand}, which has options of"
                " its own"
            )
        return
    from semidp.applications import census_studies as study

    table = study.compute_census()
    effective = study.guarantee()
    if out is not None:
        with naming_options(force), new_folder(out, force=force, ours=study_files) as folder:
            write_study(folder, "census", find_study("census"), table)
    with in_place(f"the folder {out}") if out is not None else contextlib.nullcontext():
        if printing.json:
            print_json(
                {
                    "invariant": study.STATE_TOTALS,
                    "a": effective.adjacency.a,
                    "report_delta": study.DELTA,
                    "rows": [_plainly(row) for row in table.records()],
                    "file": "P.L. 94-171, persons",
                    "costs": [_plainly(row) for row in study.costs().records()],
                    "guarantee": effective.to_json(),
                    "explanation": str(effective.explain()),
                    "exchange": {
                        "guarantee": study.exchange_guarantee().to_json(),
                        "explanation": str(study.exchange_guarantee().explain()),
                    },
                    "notes": list(study.NOTES),
                }
            )
        else:
            _print(table, effective)
            if out is not None:
                echo(f"\n{out / 'census.csv'}\n{out / 'census.png'}")


def _plainly(row: dict[str, Any]) -> dict[str, Any]:
    """Give rho as a number, and exactly as text: production settings are fractions without an
    end.
    """
    numbers = {
        key: float(value) if isinstance(value, Fraction) else value
        for key, value in row.items()
        if key != "delta"
    }
    return numbers | {"rho_exact": str(row["rho"])}


def _epsilons(row: dict[str, Any]) -> tuple[str, str, str]:
    """The paper's epsilon to the nearest digit, as it prints it; the tight ones rounded up."""
    tight, gaussian = (
        f"{math.ceil(row[name] * 1e5) / 1e5:.5f}" for name in ("epsilon_tight", "epsilon_gaussian")
    )
    return f"{row['epsilon_paper']:.5f}", tight, gaussian


def _moves(rows: list[dict[str, Any]]) -> Any:
    """What one move costs under either adjacency, with the condition where there is one."""
    table = grid(("adjacency",), ("rho", *EPSILONS), ["holds"])
    for row in rows:
        condition = (
            f"nominal: if {row['condition']}" if row["condition"] else "whatever the shares are"
        )
        table.add_row(
            row["adjacency"], f"{math.ceil(row['rho'] * 100) / 100:.2f}", *_epsilons(row), condition
        )
    return table


def _queries() -> Any:
    """What one exchange costs in each level, and why."""
    from semidp.applications import census_studies as study

    table = grid(("level", "query"), ("announced", "times", "rho"), ["because"])
    for row in study.costs_by_level().records():
        announced, rho = (
            f"{math.ceil(row[name] * 10**4) / 10**4:.4f}" for name in ("announced", "rho")
        )
        table.add_row(
            row["level"].replace("_", " "),
            row["query"],
            announced,
            str(row["factor"]),
            rho,
            row["reason"],
        )
    return table


def _print(table: Tidy, effective: Guarantee) -> None:
    from semidp.applications import census_studies as study

    shares = grid(("tables", "setting", "level"), ("k", "rho", *EPSILONS))
    before: tuple[Any, ...] = ()
    # Another promise, or one under a condition, stands apart from what holds for the ball.
    nominal = [row for row in table.records() if row["condition"] or row["adjacency"] == "exchange"]
    for row in table.records():
        if row in nominal:
            continue
        group = (row["tables"], row["setting"], row["level"])
        shown = group if group != before else ("", "", "")
        shares.add_row(*shown, str(row["a"]), f"{float(row['rho']):.4f}", *_epsilons(row))
        before = group
    paper = table.where(tables="persons", setting="rounded", level="all", a=2).records()
    say("The 2020 Census redistricting file (P.L. 94-171).")
    say(
        "Any k records at once (ball). k = 1: as announced; 2: with exact states; 3: with one more"
        " exact margin."
    )
    say(
        "Epsilon at delta = 1e-10, three times: by the formula of the paper; tight for zCDP, which"
        " is proved for the discrete noise of the production run; exact for Gaussian noise.\n"
    )
    print_grid(shares)
    say(
        "\nWhat one move costs in the persons file (P.L. 94-171): rho rounded up, epsilon of rho"
        " itself.\n"
    )
    print_grid(_moves([*paper, *nominal]))
    say(
        "\nUnder exchange, by level and query, if the production shares by query hold (each query:"
        " --format json):\n"
    )
    print_grid(_queries())
    exchange = study.exchange_guarantee()
    say(f"\nBall, rho = 10.24. {effective.explain()}\n")
    say(f"Exchange, rho = 5.12. {exchange.explain().protected}\n")
    for note in study.NOTES:
        say(f"- {note}")


ESTIMATE_EXAMPLES = (
    "semidp census estimate 2020-pl94-nmf-parquets --areas districts.csv --out districts",
    "semidp census estimate 2020-pl94-nmf-parquets --each tract --out tracts --jobs 4",
)
"""Examples for the help of ``semidp census estimate``."""


@command
def estimate(
    *,
    folder: Path = argument("The folder of the noisy measurement files.", "FOLDER"),
    areas: Path | None = option(
        "Areas to estimate: a CSV file with name, geocode and, if wanted, weight.", "FILE"
    ),
    each: o.Texts = option(
        "Estimate every place of a level: state, county, tract, block_group or block.", "LEVEL"
    ),
    totals: Path | None = option(
        "Exact populations of states: a CSV file with geocode (two digits), total.", "FILE"
    ),
    nation: str = option(
        "Use what was measured of the nation (level US): auto, if the folder holds all states"
        " and all are estimated; all, if the states of the folder are the whole nation; none.",
        "auto|all|none",
        default="auto",
    ),
    level: str = option("The confidence level of each interval.", "NUMBER", default="0.95"),
    out: Path | None = option(
        "Write areas.csv, and a file for each level, to this folder.", "FOLDER"
    ),
    jobs: int = option(
        "How many states at a time, each in a process of its own.", "N", default=1, min=1
    ),
    resume: bool = flag(
        "--resume", "Go on with what an earlier run has left: states it has finished are kept."
    ),
    discard: bool = flag("--discard", "Remove what an unfinished run has left at --out, and stop."),
    force: bool = o.FORCE,
    printing: o.Printing,
) -> None:
    """Estimate any area from the noisy measurements of the 2020 Census redistricting file
    (persons).

    All levels of a state are combined into the best linear unbiased estimate, with its standard
    error. Codes of areas are the usual ones: 15 digits for a block, 12 for a block group,
    11 for a tract, 5 for a county.
    """
    from semidp.inference import CensusTask, estimate_areas, read_areas, write_estimates
    from semidp.publish.folders import discard_unfinished

    if out is None and (each or resume or discard or force):
        raise InputError(
            "--each, --resume, --discard and --force need a folder to write to: --out DIR"
        )
    if discard and out is not None:
        discard_unfinished(out)
        return
    task = CensusTask(
        folder,
        read_areas(areas) if areas is not None else None,
        [_level_named(word) for word in each or ()],
        _state_totals(totals) if totals is not None else {},
        o.parse_real(level, "--level"),
        nation,
    )
    used = task.nation_use()[1]
    if not printing.quiet:
        notice(f"what the files say of the nation as a whole is {used}")
    if out is None:
        estimates: CensusEstimates | None = estimate_areas(task)
    else:
        with progress_bar(printing.quiet) as progress, naming_options(force):
            estimates = write_estimates(
                task, out, jobs=jobs, resume=resume, force=force, progress=progress
            )
    with in_place(f"the folder {out}") if out is not None else contextlib.nullcontext():
        _print_estimates(task, estimates, out, as_json=printing.json)


def _print_estimates(
    task: "CensusTask", estimates: "CensusEstimates | None", out: Path | None, *, as_json: bool
) -> None:
    if as_json:
        rows = []
        for name, people, value, error, low, high in (
            estimates.rows() if estimates is not None else ()
        ):
            numbers = {"estimate": value, "standard_error": error, "low": low, "high": high}
            rows.append({"name": name, "people": people, **numbers})
        print_json(
            {
                "states": list(task.states()),
                "nation": task.nation_use()[1],
                "out": str(out) if out else None,
                "areas": rows,
            }
        )
        return
    if estimates is not None:
        _print_areas(estimates)
    if out is not None:
        echo(f"{out}")


def _print_areas(estimates: "CensusEstimates") -> None:
    table = grid(("area", "people"), ("estimate", "standard error", "low", "high"))
    shown = set(estimates.names[:_SHOWN])
    for name, people, value, error, low, high in estimates.rows():
        if name in shown and people in ("all", "adults, all"):
            label = "all" if people == "all" else "adults"
            table.add_row(name, label, f"{value:.1f}", f"{error:.2f}", f"{low:.1f}", f"{high:.1f}")
    print_grid(table)
    if len(estimates.names) > _SHOWN:
        echo(f"… and {len(estimates.names) - _SHOWN} more areas: --out DIR writes all of them")


def _level_named(word: str) -> str:
    from semidp.inference.noisy_files import LEVELS

    names = {level.lower(): level for level in LEVELS}
    name = word.lower().replace(" ", "_").replace("-", "_")
    if name not in names:
        raise InputError(f"there is no level {word!r}: --each takes {', '.join(names)}")
    return names[name]


def _state_totals(path: Path) -> dict[str, int]:
    """Exact populations by the two digits of their state."""
    header, lines = read_csv(path)
    if not {"geocode", "total"} <= {*header}:
        raise InputError(f"{path} is not a CSV file with the columns geocode and total")
    totals = {}
    for line in lines:
        code, text = (line[header.index(column)] for column in ("geocode", "total"))
        if len(code) != 2 or not code.isdigit() or not text.isdigit() or code in totals:
            raise InputError(
                f"each line of {path} has the two digits of another state, and a whole number"
            )
        totals[code] = int(text)
    return totals
