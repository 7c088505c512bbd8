"""``semidp reproduce``: the figures and numbers of the paper, each beside its corrected version."""

from pathlib import Path
from typing import Annotated

import typer

from semidp.cli._options import Force, FormatOption, Quiet
from semidp.cli._output import Format, print_json, progress_bar
from semidp.files import new_folder
from semidp.plots import png
from semidp.studies import STUDIES, Settings, study

Names = Annotated[
    list[str] | None, typer.Argument(help=f"Any of {', '.join(STUDIES)}; all of them by default.", metavar="NAME")
]
Out = Annotated[Path, typer.Option("--out", help="The folder for NAME.csv and NAME.png.", metavar="DIR")]
Replicates = Annotated[int, typer.Option("--replicates", help="Runs of each mechanism on each table.", metavar="N")]
StudySeed = Annotated[int, typer.Option("--seed", help="The seed of every study.", metavar="N")]


def reproduce(
    names: Names = None,
    out: Out = Path("studies"),
    replicates: Replicates = 30,
    seed: StudySeed = 0,
    force: Force = False,
    format: FormatOption = Format.text,
    quiet: Quiet = False,
) -> None:
    """Reproduce the paper's figures and numbers: NAME.csv and NAME.png for each study, as published and correct."""
    chosen = list(dict.fromkeys(names or STUDIES))
    modules = {name: study(name) for name in chosen}
    files = []
    with progress_bar(quiet) as progress, new_folder(out, force=force) as folder:
        settings = Settings(replicates, seed, progress)
        for done, (name, module) in enumerate(modules.items()):
            progress("studies", done, len(modules))
            table = module.compute(settings)
            (folder / f"{name}.csv").write_text(table.csv(), encoding="utf-8")
            (folder / f"{name}.png").write_bytes(png(module.plot(table)))
            files += [f"{name}.csv", f"{name}.png"]
        progress("studies", len(modules), len(modules))
    if format is Format.json:
        print_json({"out": str(out), "replicates": replicates, "seed": seed, "files": files})
    else:
        typer.echo("\n".join(str(out / file) for file in files))
