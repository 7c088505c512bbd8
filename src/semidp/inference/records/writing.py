"""Records of a release written to files, one set or several, with what is said about them."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semidp.inference.records.record_assembly import several_records, synthesize_records
from semidp.inference.records.record_files import (
    about_file,
    check_records,
    numbered_files,
    save_records,
)
from semidp.inference.records.record_search import Ending
from semidp.inference.records.synthetic import SyntheticRecords
from semidp.promise.exact import number
from semidp.promise.noise.randomness import Randomness
from semidp.promise.progress import Progress

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue

_SYNTHETIC = (
    "These records are synthetic: no line is a person. They were put together from the published"
    " numbers of a release alone, so that they have its guarantee and cost no further budget."
)
_ALL_TABLES = (
    "Counted, they give every published table of the release and every exact total, to the person."
)
_EXACT_TOTALS = (
    "Counted, they give every exact total to the person. The published tables are near their"
    " estimates: for each the distance is given in standard errors, as a root mean square (1 is"
    " what the noise explains) and at its largest."
)
_OWN_DRAW = (
    "This is one of {files} files, each near its own draw of the noise: answers from all of them"
    " are combined, with semidp.combine_estimates, and none of them is used alone."
)
_NOTHING_MORE = (
    "They say nothing more: what no table has (features that no table has together, and how three"
    " features hang together where only pairs were published) is left to chance."
)
_NOT_PRIVATE = "The release is not private: its noise can be replayed or read off."


def write_records(
    release: "ReleaseValue",
    path: Path,
    force: bool,
    randomness: Randomness,
    seconds: float,
    files: int,
    progress: Progress,
    stop: Callable[[], bool],
) -> dict[str, Any]:
    """Write one set of records or several; return what is said of the first, with the names of all
    files.
    """
    paths = numbered_files(path, files)
    for each in paths:
        check_records(each, force=force)
    if files == 1:
        sets = [synthesize_records(release, randomness, seconds, progress, stop)]
    else:
        sets = several_records(release, files, randomness, seconds, progress, stop)
    documents = []
    for each, records in zip(paths, sets, strict=True):
        about = about_records(release, records, files)
        documents.append(save_records(records, each, about, force=force))
    return documents[0]


def about_records(
    release: "ReleaseValue", records: SyntheticRecords, files: int = 1
) -> dict[str, Any]:
    """Return what is said about records in the file beside them: plain values."""
    statement = [
        _SYNTHETIC,
        _ALL_TABLES if records.ending is Ending.MATCHED else _EXACT_TOTALS,
        _NOTHING_MORE,
    ]
    if files > 1:
        statement.append(_OWN_DRAW.format(files=files))
    if not release.private:
        statement.append(_NOT_PRIVATE)
    tables = []
    for distance in records.distances:
        entry: dict[str, Any] = {"name": distance.name, "features": list(distance.features)}
        entry |= {"rms": round(distance.rms, 4), "largest": round(distance.largest, 4)}
        tables.append(entry)
    return {
        "records": len(records),
        "columns": list(records.columns),
        "tables": tables,
        "unlinked": [list(pair) for pair in records.unlinked],
        "ending": str(records.ending),
        "files": files,
        "exact": [list(margin.names) for margin in release.scope.dataspace.margins],
        "private": release.private,
        "guarantee": release.stated and release.stated.tradeoff.to_json(),
        "adjacency": release.scope.adjacency_json(),
        "epsilon": release.epsilon,
        "report_delta": number(release.plan.report_delta),
        "release_created": release.created,
        "statement": statement,
    }


def written_files(path: Path, files: int) -> str:
    """Say which files were written.

    >>> written_files(Path("people.csv"), 1)
    'people.csv, and what it is in people.about.json'
    """
    paths = numbered_files(path, files)
    if files == 1:
        return f"{path}, and what it is in {about_file(path)}"
    return f"{paths[0]} to {paths[-1].name}, and what each is in a file beside it"
