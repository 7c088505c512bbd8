"""``semidp synthesize`` and ``microdata``: records with the exact totals of a release, whose tables
are near the published ones; the latter makes the release, too.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

from attrs import evolve

import semidp.cli._options as o
from semidp.cli._command import command, option
from semidp.cli._output import (
    complain,
    echo,
    in_place,
    interrupt_notes,
    naming_options,
    notice,
    print_json,
    print_rows,
    progress_bar,
)
from semidp.cli.release import carry_out, mark_not_private, print_release, write_synthesize
from semidp.errors import InputError, Occupied, SemidpError
from semidp.inference.records.record_assembly import check_seconds
from semidp.inference.records.record_cells import TableDistance
from semidp.inference.records.record_search import SECONDS, Ending
from semidp.inference.records.record_writing import save_linked_records, written_files
from semidp.inference.records.synthetic import about_file, check_records, numbered_files
from semidp.present.release import Release
from semidp.promise.exact import count_noun, list_some
from semidp.promise.files import lies_inside, path_beside, plain_errors, real_path
from semidp.publish.folders import check_place
from semidp.publish.plan_settings import (
    build_microdata_plan,
    build_run_options,
    choose_randomness,
    describe,
    open_data,
)
from semidp.publish.recheck import load_consistent
from semidp.publish.release_files import REPORT, release_files
from semidp.publish.sources.opening import local_paths

_SHOWN = 6  # tables and pairs of features that are named in print
_ENDINGS = {
    Ending.SETTLED: "ten more passes over the records brought the tables less than 2% closer",
    Ending.TIME: "the time was over; --seconds gives more",
    Ending.INTERRUPTED: "interrupted: these are the best records so far",
}


@command
def synthesize(
    *,
    folder: Path = o.RELEASE,
    out: Path | None = option("The CSV file to write, one record per line.", "FILE"),
    seconds: float = option(
        "How long to swap records if the tables are not decomposable.",
        "NUMBER",
        default=SECONDS,
    ),
    files: int = option(
        "Write several files, each close to its own draw of the noise, to show how much noise"
        " there is.",
        "NUMBER",
        default=1,
    ),
    units_out: Path | None = option(
        "For linked tables: the CSV file of units, next to that of members in --out.", "FILE"
    ),
    seed: int | None = option(
        "Repeat the same matches and swaps, unless time runs out.", "N", min=0
    ),
    force: bool = o.FORCE,
    printing: o.Printing,
) -> None:
    """Write synthetic records that match every exact total of a release and come close to its
    tables.

    Only the published numbers are used: no budget is spent. If the tables are decomposable, the
    records match every published count, too. If not, pairs of records exchange values as long as
    that brings the tables closer; Ctrl-C stops this and writes the best records so far. A file next
    to the records says what they are. --force replaces records that this
    command wrote, and no other file.
    """
    if out is None:
        raise InputError("say where to write the records: --out people.csv")
    if lies_inside(out, folder):
        raise InputError(
            "a release is read again as it was written: choose an --out outside of its folder"
        )
    if units_out is not None:
        _write_linked(folder, (out, units_out), force, files, seed, printing)
        return
    with naming_options(force):
        # All places are looked at before the records are sought, which may take minutes.
        for path in numbered_files(out, files):
            check_records(path, force=force)
        # Records follow from the whole numbers, so that those are fitted again, too.
        done = load_consistent(Release, folder)
        printing.warn((*done.scope.warnings, *done.scope.disclosures))
        with first_interrupt() as interrupted:
            with progress_bar(printing.quiet) as progress:
                about = done.save_records(
                    out,
                    force=force,
                    randomness=choose_randomness(seed),
                    seconds=seconds,
                    files=files,
                    progress=progress,
                    stop=interrupted,
                )
            with in_place(f"the file {out}"):
                if printing.silent:
                    mark_not_private(done)
                elif printing.json:
                    paths = [str(path) for path in numbered_files(out, files)]
                    print_json(
                        {
                            **about,
                            "out": str(out),
                            "about": str(about_file(Path(paths[0]))),
                            "written": paths,
                        }
                    )
                else:
                    print_rows([*describe_records(about), ("written", written_files(out, files))])
                    _warn_of_seed(done)


def _write_linked(
    folder: Path,
    paths: tuple[Path, Path],
    force: bool,
    files: int,
    seed: int | None,
    printing: o.Printing,
) -> None:
    """Write members and units of a release of linked tables, two files that a column links."""
    if files != 1:
        raise InputError("linked records are written once: leave --files out")
    if lies_inside(paths[1], folder):
        raise InputError(
            "a release is read again as it was written: choose a --units-out outside of its folder"
        )
    with naming_options(force):
        done = load_consistent(Release, folder)
        printing.warn((*done.scope.warnings, *done.scope.disclosures))
        both = save_linked_records(done, paths, choose_randomness(seed), force=force)
    with in_place(f"the pair of files {paths[0]} and {paths[1]}"):
        if printing.silent:
            mark_not_private(done)
        elif printing.json:
            print_json(
                {"members": both[0], "units": both[1], "written": [str(path) for path in paths]}
            )
        else:
            for about, path in zip(both, paths, strict=True):
                print_rows([*describe_records(about), ("written", written_files(path, 1))])
            _warn_of_seed(done)


def _warn_of_seed(done: Release) -> None:
    if not done.private:
        echo("NOT PRIVATE: the release was drawn with a seed or by a mechanism meant for studies.")


@contextlib.contextmanager
def first_interrupt() -> Iterator[Callable[[], bool]]:
    """Yield what says whether Ctrl-C was pressed; a second one interrupts as usual.

    The program watches its own handler and leaves where that is in place, so that this one stays to
    the end.
    """
    pressed = threading.Event()
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: Any) -> None:
        # The second press means it: it goes where the first would have gone.
        if pressed.is_set() and callable(before):
            before(number, frame)
        pressed.set()
        notice("interrupted; writing the best records so far")

    try:
        signal.signal(signal.SIGINT, note)
    except ValueError:  # not the main thread, which signals would go to
        yield pressed.is_set
        return
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def describe_records(about: dict[str, Any]) -> list[tuple[str, str]]:
    """Write what is known of records for people."""
    rows = [("records", f"{about['records']:,}, of {', '.join(about['columns'])}")]
    ending = Ending(about["ending"])
    if ending is Ending.MATCHED:
        tables = "; ".join(" by ".join(table["features"]) for table in about["tables"])
        rows.append(("they have", f"{tables}: every published count, and every exact total"))
    else:
        exact = "; ".join(" by ".join(names) for names in about["exact"]) or "the number of records"
        rows.append(("exact", f"{exact}: to the person"))
        rows += _distance_lines(about["tables"])
        rows.append(("ended", _ENDINGS[ending]))
    if about["unlinked"]:
        pairs = list_some(about["unlinked"], _SHOWN, write=" and ".join)
        said = f"{pairs}: no table has them together, so that records know nothing of it"
        rows.append(("unlinked", said))
    if about["files"] > 1:
        rows.append(
            (
                "files",
                f"{about['files']}, each near its own draw of the noise: combine what they say",
            )
        )
    rows.append(("budget", "none is spent: they follow from the published numbers"))
    return rows


def _distance_lines(tables: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """The distance of each table in standard errors; of many, those that are furthest."""
    distances = []
    for table in tables:
        features = tuple(table["features"])
        distances.append(TableDistance(table["name"], features, table["rms"], table["largest"], 0))
    furthest = sorted(distances, key=lambda distance: -distance.rms)
    rows = [
        (
            "near",
            (
                "distance from each table in standard errors: root mean square (the noise alone"
                " gives 1), and largest"
            ),
        )
    ]
    rows += [("", distance.text) for distance in furthest[:_SHOWN]]
    if len(furthest) > _SHOWN:
        left = count_noun(len(furthest) - _SHOWN, "nearer table")
        rows.append(("", f"and {left}"))
    return rows


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
    out: Path | None = option("The CSV file to write, one record per line.", "FILE"),
    release: Path | None = option(
        "Folder of the release (default: next to the records, such as people_release).", "FOLDER"
    ),
    columns: o.Text = option("Columns of the records, such as age,sex (default: all).", "NAMES"),
    ordered: o.Text = option(
        "Columns whose levels are in order, such as age,grade. Bins and dates always are.",
        "NAMES",
    ),
    target: o.Text = option("Columns whose pairs get less noise than others.", "NAMES"),
    rule: o.Texts = option(
        'What holds in every record: "retired implies age >= 50", "start <= end".', "RULE"
    ),
    files: int = option(
        "Write several files, each close to its own draw of the noise.", "NUMBER", default=1
    ),
    seconds: float = option("How long to swap records.", "NUMBER", default=SECONDS),
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
    folder = path_beside(out, f"{out.stem}_release") if release is None else release
    if real_path(out) == real_path(folder) or lies_inside(out, folder):
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
    again = write_synthesize(folder, out, files)
    with naming_options(accepted["force"], "--release"):
        try:
            check_place(folder, force=accepted["force"], ours=release_files, inputs=inputs)
        except Occupied as error:
            if not error.replaceable:
                raise
            # To replace a release is to pay again, which records of it do not need.
            said = f"{error.message} ({again} writes records of it at no cost)"
            raise Occupied(said, replaceable=True) from None
    running = evolve(build_run_options(accepted), out=folder, ledger=None, inputs=inputs)
    base = describe(accepted).with_values_read()
    with progress_bar(printing.quiet) as progress, open_data(accepted, base, data) as source:
        special = {base.count, base.id}
        chosen = _split(columns) or [name for name in source.columns() if name not in special]
        plan = build_microdata_plan(accepted, chosen, _split(ordered), _split(target), rule or ())
        running = evolve(
            running,
            ledger=o.open_ledger(accepted["ledger"], printing.quiet),
            command={
                **o.note_command(data, accepted),
                "records": {"out": str(out.absolute()), "files": files},
            },
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
        print_rows([*describe_records(about), ("written", written_files(out, files))])


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
