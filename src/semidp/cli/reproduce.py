"""``semidp reproduce``: the figures and numbers of the paper, each beside its corrected version."""

import json
from collections.abc import Collection
from pathlib import Path

import semidp.cli._options as o
from semidp.applications.catalogue import PAPER, STUDIES, Study, study, study_name
from semidp.applications.study import Settings, Tidy
from semidp.cli._command import argument, command, option
from semidp.cli._output import echo, in_place, naming_options, print_json, progress_bar
from semidp.promise.files import new_folder
from semidp.promise.plain_reading import read_document
from semidp.publish.plots.style import png

MANIFEST = "studies.json"
"""The list of the files that a command wrote to a folder; only such a folder may be replaced."""

NAMES = argument(
    f"Any of {', '.join(STUDIES)}, or by the paper's numbers {', '.join(PAPER)}; all of them by"
    " default.",
    "NAME",
    None,
)


@command
def reproduce(
    *,
    names: o.Texts = NAMES,
    out: Path = option("The folder for NAME.csv and NAME.png.", "DIR", default=Path("studies")),
    replicates: int = option("Runs of each mechanism on each table.", "N", default=30),
    seed: int = option("The seed of every study.", "N", default=0),
    force: bool = o.FORCE,
    printing: o.Printing,
) -> None:
    """Reproduce the paper's figures and numbers: NAME.csv and NAME.png for each study, as published
    and correct.

    The folder also holds studies.json, a list of these files: --force replaces a folder that has
    one and no other file.
    """
    # The paper's number and our name may mean one study, which is run once.
    chosen = list(dict.fromkeys(map(study_name, names or STUDIES)))
    # All names are looked up before the first study runs: a slip should not cost an hour.
    modules = {name: study(name) for name in chosen}
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
    (folder / written[0]).write_text(table.csv(), encoding="utf-8")
    (folder / written[1]).write_bytes(png(module.plot(table)))
    listed = sorted({*study_files(folder), *written} - {MANIFEST})
    document = {"schema_version": 1, "files": listed}
    (folder / MANIFEST).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
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
