"""``semidp microdata``: from data to a file of records and its release, in one command."""

import contextlib
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import semidp.cli._options as o
from semidp.cli._command import command, option
from semidp.cli._output import (
    complain,
    in_place,
    interrupt_notes,
    naming_options,
    print_json,
    print_rows,
    progress_bar,
)
from semidp.cli.release import carry_out, mark_not_private, print_release
from semidp.cli.synthesize import first_interrupt, lines
from semidp.errors import InputError, Occupied, SemidpError
from semidp.inference.records.record_assembly import check_seconds
from semidp.inference.records.record_search import SECONDS
from semidp.inference.records.record_writing import written_files
from semidp.inference.records.synthetic import about_file, check_records, numbered_files
from semidp.promise.files import plain_errors
from semidp.publish.folders import check_place
from semidp.publish.plan_settings import (
    build_microdata_plan,
    build_run_options,
    choose_randomness,
    describe,
    open_data,
)
from semidp.publish.release_files import REPORT, release_files
from semidp.publish.sources.opening import local_paths

_OPTIONS = (
    *o.EXACT,
    *o.ADJACENCY,
    *o.BUDGET,
    *("schema", "levels", "bins", "levels_from_data"),
    # at most thirty options are shown, and --set gives this one with others of a plan file
    *(name for name in o.RECORDS if name != "read_as"),
    *("set", "ledger", "seed", "force"),
)


@command
def microdata(
    *,
    data: str = o.DATA,
    out: Path | None = option("The CSV file to write, one record per line."),
    release: Path | None = option(
        "Folder of the release (default: next to the records, such as people_release).", "FOLDER"
    ),
    columns: o.Text = option("Columns of the records, such as age,sex (default: all).", "NAMES"),
    ordered: o.Text = option(
        "Columns whose levels are in order, such as age,grade; numeric bins and dates are.", "NAMES"
    ),
    target: o.Text = option("Columns whose pairs get less noise than others.", "NAMES"),
    rule: o.Texts = option(
        'What holds in every record: "retired implies age >= 50", "start <= end".', "RULE"
    ),
    files: int = option(
        "Write several files, each close to its own draw of the noise.", "NUMBER", default=1
    ),
    seconds: float = option("How long records are swapped.", "NUMBER", default=SECONDS),
    options: Annotated[o.Options, _OPTIONS],
    printing: o.Printing,
) -> None:
    """Write synthetic records that keep exact totals to the person, and the release they follow
    from.

    Columns with many levels are measured first, then every pair of columns on bins that follow from
    the first measurement. Both are one release with one guarantee, charged once. Records are made
    from what is published, so that `semidp synthesize` makes more of them at no cost.
    """
    if out is None:
        raise InputError("say where to write the records: --out people_synthetic.csv")
    folder = out.with_name(f"{out.stem}_release") if release is None else release
    if folder.resolve() in (out.resolve(), *out.resolve().parents):
        raise InputError(
            "a release is read again as it was written: choose an --out outside of its folder"
        )
    # What can be refused about the records is refused before their release is charged.
    check_seconds(seconds)
    if not out.parent.is_dir() and out.parent != folder.parent:
        raise InputError(f"there is no folder {out.parent} to write the records to")
    accepted = options.given
    inputs = [Path(path) for path in local_paths(data, accepted["from_table"])]
    with naming_options(accepted["force"]):
        for path in numbered_files(out, files):
            check_records(path, force=accepted["force"])
    again = shlex.join(["semidp", "synthesize", str(folder), "--out", str(out)])
    with naming_options(accepted["force"], "--release"):
        try:
            check_place(folder, force=accepted["force"], ours=release_files, inputs=inputs)
        except Occupied as error:
            if not error.replaceable:
                raise
            # To replace a release is to pay again, which records of it do not need.
            said = f"{error.message} ({again} writes records of it at no cost)"
            raise Occupied(said, replaceable=True) from None
    running = replace(build_run_options(accepted), out=folder, ledger=None, inputs=inputs)
    base = describe(accepted).with_values_read()
    with progress_bar(printing.quiet) as progress, open_data(accepted, base, data) as source:
        special = {base.count, base.id}
        chosen = _split(columns) or [name for name in source.columns() if name not in special]
        plan = build_microdata_plan(accepted, chosen, _split(ordered), _split(target), rule or ())
        running = replace(
            running,
            ledger=o.open_ledger(accepted["ledger"], printing.quiet),
            command=o.note_command(data, accepted),
        )
        done, told = carry_out(plan, source, running, None, printing, progress)
    with (
        _records_said(folder, out, f"{again} writes its records at no further cost"),
        first_interrupt() as interrupted,
        progress_bar(printing.quiet) as progress,
    ):
        about = done.save_records(
            out,
            force=accepted["force"],
            randomness=choose_randomness(accepted["seed"]),
            seconds=seconds,
            files=files,
            progress=progress,
            stop=interrupted,
        )
    with in_place(f"the file {out} of the release {folder}"):
        if printing.silent:
            mark_not_private(done)
            return
        if printing.json:
            paths = [str(path) for path in numbered_files(out, files)]
            facts = {"written": paths, "about": str(about_file(Path(paths[0])))}
            print_json({**about, "out": str(out), **facts, "release": str(folder)})
            return
        print_release(done, printing, str(folder / REPORT), told)
        print_rows([*lines(about), ("written", written_files(out, files))], width=10)


@contextlib.contextmanager
def _records_said(folder: Path, out: Path, note: str) -> Iterator[None]:
    """Say where records fail that their release is in place, and need not be paid for again."""
    interrupt_notes.append(lambda: note)
    try:
        with plain_errors(out):
            yield
    except SemidpError as error:
        raise InputError(f"{error.message}; the release {folder} is in place: {note}") from None
    except Exception:
        complain(f"the release {folder} is in place: {note}")
        raise
    interrupt_notes.pop()  # an interrupt says it later


def _split(text: str | None) -> list[str]:
    """The names in a list."""
    return [] if text is None else [name.strip() for name in text.split(",") if name.strip()]
