"""``semidp combine``: one release from several of the same records."""

from pathlib import Path

import semidp.cli._options as o
from semidp.cli._command import argument, command, option
from semidp.cli._output import echo, grid, in_place, naming_options, print_json
from semidp.present.release import Release
from semidp.present.report.sentences import summary
from semidp.promise.spaces.linked import UNIT
from semidp.publish.rechecking.release_check import load_consistent
from semidp.publish.release_files import REPORT


@command
def combine(
    *,
    folders: list[Path] = argument(
        "Folders that `semidp release` wrote, at least two.", "RELEASE..."
    ),
    out: Path = option(
        "Write the combination to this folder: a release like any other.", "DIR", default=...
    ),
    force: bool = o.FORCE,
    printing: o.Printing,
) -> None:
    """Combine several releases of the same records into one, at no cost in privacy.

    Every table of any of them has the best linear unbiased estimate from all that was measured, its
    standard errors, and whole numbers; exact totals of each bind all. So have distributions of one
    outcome on the same grid and lines. Linked members and units are made to agree once more. The
    guarantee is that of all releases together. The folder holds the releases, too, so that `semidp
    show` computes everything again; `intervals`, `test`, `model` and `synthesize` read it like any
    release.
    """
    from semidp.publish.combined.releases_together import combine_releases

    # Numbers that do not follow from their measurements are refused before anything is combined.
    releases = [load_consistent(Release, folder) for folder in folders]
    combination = combine_releases(releases)
    with naming_options(force):
        combination.save(out, force=force)
    printing.warn((*combination.scope.warnings, *combination.scope.disclosures))
    with in_place(f"the folder {out}"):
        if printing.json:
            print_json({**combination.to_json(), "report": str(out / REPORT)})
        else:
            _print(combination, out)


def _print(combination: Release, out: Path) -> None:
    from rich.console import Console

    table = grid(("table",), ("before", "together"))
    for one in combination.tables:
        errors = []
        for release in combination.sources:
            for published in release.tables:
                same_records = (published.counted == UNIT) == (one.counted == UNIT)
                if same_records and set(published.schema.names) == set(one.schema.names):
                    errors.append(float(published.standard_errors.max(initial=0.0)))
        largest = float(one.standard_errors.max(initial=0.0))
        # Compared with the best single release, not the worst: the gain is not flattered.
        whose = "units: " if one.counted == UNIT else ""
        label = whose + " × ".join(one.schema.names)
        table.add_row(label, f"{min(errors):.4g}", f"{largest:.4g}")
    if combination.tables:
        console = Console(highlight=False)
        console.print(
            "Largest standard error of a cell: of the best release, and of all together.\n"
        )
        console.print(table)
        echo("")
    echo(summary(combination, str(out / REPORT)))
