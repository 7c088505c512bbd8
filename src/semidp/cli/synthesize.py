"""``semidp synthesize``: records with the exact totals of a release, whose tables are near the
published ones.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import semidp.cli._options as o
from semidp.cli._command import command, option
from semidp.cli._output import (
    echo,
    in_place,
    naming_options,
    notice,
    print_json,
    print_rows,
    progress_bar,
)
from semidp.cli.release import mark_not_private
from semidp.errors import InputError
from semidp.inference.records.record_cells import TableDistance
from semidp.inference.records.record_search import SECONDS, Ending
from semidp.inference.records.record_writing import save_linked_records, written_files
from semidp.inference.records.synthetic import about_file, check_records, numbered_files
from semidp.present.release import Release
from semidp.promise.exact import count_noun
from semidp.publish.plan_settings import choose_randomness
from semidp.publish.recheck import load_consistent

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
    out: Path | None = option("The CSV file to write, one record per line."),
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
        "For linked tables: the CSV file of units, next to that of members in --out."
    ),
    seed: int | None = option("Repeat the same matches and swaps, unless time runs out.", min=0),
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
    if folder.resolve() in out.resolve().parents:
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
                    print_rows(lines(about), width=10)
                    if not done.private:
                        echo(
                            "NOT PRIVATE: the release was drawn with a seed or by a mechanism meant"
                            " for studies."
                        )
                    print_rows([("written", written_files(out, files))])


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
    if folder.resolve() in paths[1].resolve().parents:
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
                print_rows([*lines(about), ("written", written_files(path, 1))], width=10)
            if not done.private:
                echo(
                    "NOT PRIVATE: the release was drawn with a seed or by a mechanism meant for"
                    " studies."
                )


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


def lines(about: dict[str, Any]) -> list[tuple[str, str]]:
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
        pairs = [" and ".join(pair) for pair in about["unlinked"]]
        rows.append(
            (
                "unlinked",
                f"{_some(pairs)}: no table has them together, so that records know nothing of it",
            )
        )
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
                "in standard errors of each table, root mean square (1 is what the noise explains)"
                " and largest"
            ),
        )
    ]
    rows += [("", distance.text) for distance in furthest[:_SHOWN]]
    if len(furthest) > _SHOWN:
        left = count_noun(len(furthest) - _SHOWN, "nearer table")
        rows.append(("", f"and {left}"))
    return rows


def _some(texts: list[str]) -> str:
    """Some of many texts."""
    shown = ", ".join(texts[:_SHOWN])
    return shown if len(texts) <= _SHOWN else f"{shown} and {len(texts) - _SHOWN} more"
