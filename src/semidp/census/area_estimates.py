"""Estimates for areas from the noisy measurement files, one state in memory at a time.

States are estimated one after the other or side by side in processes of their own; what each says
is added up, as the noise of different states is independent. The files of the nation are not used:
they could take at most about one part in the number of states from the variance of a state.
"""

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from semidp.census.areas import Areas
from semidp.census.layout import LEVELS
from semidp.census.people import groups
from semidp.census.reading import StateFiles, persons_folder, read_state, states_of
from semidp.combining import AreaSums, Estimate, Share, estimate
from semidp.core.progress import Progress, silent
from semidp.errors import InputError
from semidp.output.files import lasting_folder, replace_file

KIND = "census estimates"
SUMMARY, AREAS = "estimates.json", "areas.csv"
HEADER = ("people", "estimate", "standard_error", "low", "high")


def _levels(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(names)


@frozen
class CensusTask:
    """What is asked of a folder of noisy measurement files.

    Parameters
    ----------
    folder
        Folder of the files.
    areas
        Areas to estimate; None for none.
    levels
        Levels of the files of which every place is written: State, County, Tract, Block_Group,
        Block.
    totals
        Exact population of states, by their two digits, where the files do not say it.
    level
        Of the intervals.
    """

    folder: str = field(converter=str)
    areas: Areas | None = None
    levels: tuple[str, ...] = field(converter=_levels, default=())
    totals: Mapping[str, int] = field(factory=dict)
    level: float = 0.95

    def __attrs_post_init__(self) -> None:
        if self.areas is None and not self.levels:
            raise InputError("name what to estimate: areas, or a level such as Tract")
        for name in self.levels:
            if name not in LEVELS:
                raise InputError(f"there is no level {name}: the files have {', '.join(LEVELS)}")
        if not 0 < self.level < 1:
            raise InputError(f"the level of intervals lies between 0 and 1, not at {self.level}")

    def states(self) -> tuple[str, ...]:
        """States to read: those of the areas, or all if every place of a level is asked for."""
        present = tuple(states_of(persons_folder(self.folder)))
        asked = self.areas.states if self.areas is not None else ()
        for state in (*asked, *self.totals):
            if state not in present:
                raise InputError(f"the files hold no state {state}; they hold {', '.join(present)}")
        return present if self.levels else asked

    def digest(self) -> str:
        """Tell tasks apart, so that only the same one is resumed."""
        rows = self.areas.rows if self.areas is not None else ()
        parts = [
            str(Path(self.folder).resolve()),
            rows,
            self.levels,
            sorted(self.totals.items()),
            self.level,
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@frozen(eq=False)
class CensusEstimates:
    """Estimates for areas: a row for each area, a column for each group of people.

    Intervals are normal, and cut at zero where no weight is negative.
    """

    names: tuple[str, ...]
    people: tuple[str, ...]
    sums: AreaSums
    level: float
    cut: bool = True

    def intervals(self) -> NDArray[np.float64]:
        """Lower and upper ends, along the last axis."""
        ends = self.sums.intervals(self.level)
        return np.maximum(ends, 0.0) if self.cut else ends

    def rows(self) -> Iterator[tuple[str, str, float, float, float, float]]:
        """Rows of the file of areas: name, people, estimate, standard error, low, high."""
        ends = self.intervals()
        errors = self.sums.standard_errors
        for area, name in enumerate(self.names):
            for group, people in enumerate(self.people):
                low, high = ends[area, group].tolist()
                value, error = float(self.sums.values[area, group]), float(errors[area, group])
                yield name, people, value, error, low, high


def estimate_state(
    folder: str | Path, state: str, total: int | None = None
) -> tuple[StateFiles, Estimate]:
    """Read the files of one state and estimate all its places."""
    files = read_state(folder, state, total)
    return files, estimate(files.measurements)


def estimate_areas(task: CensusTask) -> CensusEstimates:
    """Return the estimates for the areas of a task, state by state."""
    partial = [_state_result(task, state)[0] for state in task.states()]
    return _added(task, partial)


def write_estimates(
    task: CensusTask,
    out: str | Path,
    *,
    jobs: int = 1,
    resume: bool = False,
    force: bool = False,
    progress: Progress = silent,
) -> CensusEstimates | None:
    """Write the estimates of a task to a folder; states that an earlier run has finished are not
    read again.
    """
    states = task.states()
    with lasting_folder(out, resume=resume, force=force, ours=census_files, clear=_clear) as left:
        noted = left.noted().get("task")
        if noted is not None and noted != task.digest():
            raise InputError(
                f"the unfinished {out} is of other files, areas or levels: discard it, or ask the"
                " same"
            )
        # A state is finished once its file is there, which is written last.
        waiting = [state for state in states if not _partial(left.folder, state).exists()]
        finished = len(states) - len(waiting)
        for done, (state, (result, tables)) in enumerate(_results(task, waiting, jobs), 1):
            if noted is None:
                # From here on there is something to go on with.
                noted = task.digest()
                left.begin({"task": noted})
            for level, text in tables.items():
                replace_file(left.folder / f".{level}-{state}.csv", text)
            replace_file(_partial(left.folder, state), json.dumps(result))
            progress("estimating states", finished + done, len(states))
        return _finish(task, left.folder, states)


def census_files(folder: Path) -> tuple[str, ...]:
    """Files of a folder of estimates that may be replaced; none if it is something else."""
    try:
        document = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ()
    if not isinstance(document, dict) or document.get("kind") != KIND:
        return ()
    return (SUMMARY, AREAS, *(f"{level.lower()}.csv" for level in LEVELS))


def _results(task: CensusTask, states: Sequence[str], jobs: int) -> Iterator[tuple[str, Any]]:
    if jobs <= 1 or len(states) <= 1:
        for state in states:
            yield state, _state_result(task, state)
        return
    # Most runs need no pool, and `import semidp` none at all.
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(min(jobs, len(states)), mp_context=get_context("spawn")) as pool:
        tasks = [task] * len(states)
        yield from zip(states, pool.map(_state_result, tasks, states), strict=True)


def _state_result(task: CensusTask, state: str) -> tuple[dict[str, Any], dict[str, str]]:
    """What one state says of the areas, and the tables of its places by level."""
    files, answer = estimate_state(task.folder, state, task.totals.get(state))
    weights = np.stack(list(groups().values()))
    result: dict[str, Any] = {}
    if task.areas is not None:
        sums = _padded(answer, task.areas.shares(files), weights, len(task.areas.names))
        result = {"values": sums.values.tolist(), "variances": sums.variances.tolist()}
    tables = {}
    for level in task.levels:
        depth = 1 + LEVELS.index(level)
        nodes = np.arange(len(files.codes[depth]))
        sums = answer.sums({depth: Share(nodes, nodes)}, weights)
        table = CensusEstimates(
            tuple(files.codes[depth].tolist()), tuple(groups()), sums, task.level
        )
        tables[level] = _text(table)
    return result, tables


def _padded(
    answer: Estimate, shares: dict[int, Share], weights: NDArray[np.float64], areas: int
) -> AreaSums:
    """Sums of all areas: zero, and exactly so, for those that have no place in this state."""
    values = np.zeros((areas, len(weights)))
    variances = np.zeros_like(values)
    # The last areas of the file may have no place here.
    if shares:
        sums = answer.sums(shares, weights)
        values[: len(sums.values)] = sums.values
        variances[: len(sums.values)] = sums.variances
    return AreaSums(values, variances)


def _added(task: CensusTask, partial: Sequence[Mapping[str, Any]]) -> CensusEstimates:
    assert task.areas is not None
    values = np.sum([part["values"] for part in partial], axis=0)
    variances = np.sum([part["variances"] for part in partial], axis=0)
    # A difference of areas may be negative, a count may not.
    whole = all(weight >= 0 for _, _, weight in task.areas.rows)
    return CensusEstimates(
        task.areas.names, tuple(groups()), AreaSums(values, variances), task.level, whole
    )


def _finish(task: CensusTask, folder: Path, states: Sequence[str]) -> CensusEstimates | None:
    added = None
    if task.areas is not None:
        partial = [
            json.loads(_partial(folder, state).read_text(encoding="utf-8")) for state in states
        ]
        added = _added(task, partial)
        replace_file(folder / AREAS, _header("name") + _text(added))
    for level in task.levels:
        parts = [(folder / f".{level}-{state}.csv").read_bytes() for state in states]
        replace_file(folder / f"{level.lower()}.csv", [_header("geocode").encode(), *parts])
    summary = {
        "kind": KIND,
        "schema_version": 1,
        "states": list(states),
        "levels": list(task.levels),
        "areas": 0 if task.areas is None else len(task.areas.names),
        "interval_level": task.level,
        "nation": "not used",
    }
    replace_file(folder / SUMMARY, json.dumps(summary, indent=2) + "\n")
    return added


def _clear(folder: Path) -> None:
    for path in folder.glob(".*"):
        path.unlink()


def _partial(folder: Path, state: str) -> Path:
    return folder / f".{state}.json"


def _header(first: str) -> str:
    return ",".join((first, *HEADER)) + "\n"


def _text(table: CensusEstimates) -> str:
    """Lines of a CSV file; numbers with six decimals, empty where nothing determines them."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for name, people, *numbers in table.rows():
        shown = [f"{value:.6f}" if np.isfinite(value) else "" for value in numbers]
        writer.writerow([name, people, *shown])
    return buffer.getvalue()
