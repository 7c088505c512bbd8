"""Estimates for areas from the noisy measurement files, one state in memory at a time.

States are estimated one after the other or in parallel processes; their results are added up, since
the noise of different states is independent. If the files of the nation are used, every state is
read twice: first its own information goes up, then the information from everything comes down.

The information of a tree about its root is small (`RootKnowledge`). The roots of all trees and the
measurements of their sum form a tree of two depths (`Regions`), which gives the information about
every root from everything. With that as its root, a tree is estimated as if it were alone. A sum
over several trees has the variance that is left given the roots, tree by tree, and that of the
weights that it has on the roots, from the two depths.
"""

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, field, frozen
from numpy.typing import ArrayLike, NDArray

from semidp.errors import InputError
from semidp.inference.estimation.beliefs import Belief, TreeDepth
from semidp.inference.estimation.estimates import (
    AreaSums,
    Estimate,
    RootedSums,
    Share,
    estimate,
    split_weights,
    weight_basis,
    weighted_variances,
)
from semidp.inference.estimation.measurements import (
    Classes,
    Floats,
    Measurements,
    Observed,
    Places,
    TableClass,
)
from semidp.inference.estimation.passes import (
    Weights,
    covariances,
    downward,
    possible_cells,
    upward,
)
from semidp.inference.noisy_files import (
    CLASSES,
    LEVELS,
    NATION,
    STATES,
    Areas,
    StateFiles,
    groups,
    has_nation,
    list_states,
    persons_folder,
    read_nation,
    read_state,
)
from semidp.promise.files import real_path, replace_file
from semidp.promise.progress import Progress, silent
from semidp.publish.folders import lasting_folder
from semidp.publish.written_values import check_level


@frozen(eq=False)
class RootKnowledge:
    """What is known about the root of one tree: a mean and a covariance for each class.

    Parameters
    ----------
    possible
        Cells of the block that can be other than zero.
    means, spreads
        By class: means (block, columns), covariances (block, block).
    """

    possible: NDArray[np.bool_]
    means: Mapping[TableClass, Floats]
    spreads: Mapping[TableClass, Floats]

    @classmethod
    def from_measurements(cls, measurements: Measurements, classes: Classes) -> "RootKnowledge":
        """Return the information of all measurements in one tree about its root.

        Examples
        --------
        >>> from semidp.inference import CellSums, Observed
        >>> parts = Observed(CellSums(()), 1, [10, 20], 4.0)
        >>> known = RootKnowledge.from_measurements(
        ...     Measurements(Places([[0, 0]]), (), [parts]), Classes((), ())
        ... )
        >>> known.means[()].tolist(), known.spreads[()].tolist()
        ([[30.0]], [[8.0]])
        """
        if measurements.places.counts[0] != 1:
            raise InputError("a tree that is a part of others has one root")
        root = upward(measurements, classes)[0]
        (group,) = root.groups
        means, spreads = {}, {}
        for table_class, (belief,) in root.beliefs.items():
            if belief.unknown is not None:
                raise InputError(
                    "the sum of several trees is used where what was measured in each determines"
                    " every cell of its root"
                )
            means[table_class] = np.zeros((classes.block, classes.coordinates(table_class)))
            means[table_class][group.cells] = belief.mean[0]
            spreads[table_class] = np.zeros((classes.block, classes.block))
            spreads[table_class][np.ix_(group.cells, group.cells)] = belief.spread[0]
        return cls(possible_cells(measurements, classes)[0][0], means, spreads)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        kinds = []
        for table_class, mean in self.means.items():
            spread = self.spreads[table_class].tolist()
            kinds.append({"kind": list(table_class), "mean": mean.tolist(), "spread": spread})
        return {"possible": self.possible.tolist(), "kinds": kinds}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "RootKnowledge":
        """Read what `to_json` wrote."""
        means: dict[TableClass, Floats] = {}
        spreads: dict[TableClass, Floats] = {}
        for entry in value["kinds"]:
            table_class = tuple(entry["kind"])
            means[table_class] = np.asarray(entry["mean"], dtype=float)
            spreads[table_class] = np.asarray(entry["spread"], dtype=float)
        return cls(np.asarray(value["possible"], dtype=bool), means, spreads)


def estimate_from_root(
    measurements: Measurements, classes: Classes, root: RootKnowledge
) -> Estimate:
    """Return the estimate of a tree with more information about its root than the tree has.

    `Estimate.influences` are those of the tree alone, and must not be used here.
    """
    depths = upward(measurements, classes)
    (group,) = depths[0].groups
    for table_class in classes.every():
        mean = root.means[table_class][group.cells][None]
        spread = root.spreads[table_class][np.ix_(group.cells, group.cells)][None]
        depths[0].beliefs[table_class] = [Belief(mean, spread, None)]
    downward(depths, measurements.places, classes)
    return Estimate(measurements.places, classes, depths, measurements.observed)


@frozen(eq=False)
class Regions:
    """Roots of several trees, with the measurements of their sum; made by `Regions.from_roots`.

    Examples
    --------
    Two trees say 10 and 20 of their roots with variance 4, and their sum was measured as 33 with
    variance 1, as in `inference.estimation.estimate`:

    >>> from semidp.inference import CellSums, Observed
    >>> roots = [
    ...     RootKnowledge(np.ones(1, bool), {(): np.array([[value]])}, {(): np.array([[4.0]])})
    ...     for value in (10.0, 20.0)
    ... ]
    >>> regions = Regions.from_roots(roots, [Observed(CellSums(()), 0, [33], 1.0)], Classes((), ()))
    >>> [regions.root(number).means[()].round(3).tolist() for number in range(2)]
    [[[11.333]], [[21.333]]]
    """

    classes: Classes
    places: Places
    depths: list[TreeDepth]
    possible: tuple[NDArray[np.bool_], ...]

    @classmethod
    def from_roots(
        cls, roots: Sequence[RootKnowledge], observed: Sequence[Observed], classes: Classes
    ) -> "Regions":
        """Combine the information about every root with the measurements of their sum.

        Parameters
        ----------
        roots
            The information of each tree about its root.
        observed
            The measurements of the sum of all roots, at depth 0.
        classes
            The classes of all that was measured, in every tree and of the sum.
        """
        places = Places([[0] * len(roots)])
        mask = np.stack([root.possible for root in roots])
        lengths = [1] * len(classes.sizes)
        for axis in classes.dense:
            lengths[axis] = classes.sizes[axis]
        possible = {1: mask.reshape(len(roots), *lengths)}
        measurements = Measurements(places, classes.sizes, observed, possible)
        below = {}
        for table_class in classes.every():
            mean = np.stack([root.means[table_class] for root in roots])
            spread = np.stack([root.spreads[table_class] for root in roots])
            below[table_class] = Belief(mean, spread, None)
        depths = upward(measurements, classes, below)
        downward(depths, places, classes)
        return cls(classes, places, depths, tuple(root.possible for root in roots))

    def root(self, number: int) -> RootKnowledge:
        """The information about one root from everything."""
        level = self.depths[1]
        group, place = int(level.group_of[number]), int(level.place_of[number])
        cells = level.groups[group].cells
        means, spreads = {}, {}
        unit = np.eye(self.classes.block)[None]
        for table_class in self.classes.every():
            means[table_class] = np.zeros(
                (self.classes.block, self.classes.coordinates(table_class))
            )
            means[table_class][cells] = level.beliefs[table_class][group].mean[place]
            weights = Weights(np.array([number]), np.array([0]), unit)
            matrices, _ = covariances(self.depths, self.places, table_class, {1: weights}, 1)
            spreads[table_class] = matrices[0]
        return RootKnowledge(self.possible[number], means, spreads)

    def add_trees(self, parts: Mapping[int, RootedSums], cells: ArrayLike) -> AreaSums:
        """Sums over all trees, from the results of each tree.

        Parameters
        ----------
        parts
            Sums over the areas of some trees, by the number of the tree; the others have no place
            in any area.
        cells
            Weights of cells, of shape (weightings, *sizes), as every tree was asked.
        """
        values = np.sum([part.values for part in parts.values()], axis=0)
        # trees are independent once their roots are known; what the roots tie together follows
        variances = np.sum([part.variances for part in parts.values()], axis=0)
        for table_class, weights in split_weights(
            self.classes, np.asarray(cells, dtype=float)
        ).items():
            basis, coefficients = weight_basis(weights)
            entries = _on_roots(parts, table_class, basis)
            if entries is None or not basis.shape[1]:
                continue
            matrices, _ = covariances(
                self.depths, self.places, table_class, {1: entries}, len(values)
            )
            variances += weighted_variances(matrices, coefficients)
        return AreaSums(values, np.maximum(variances, 0.0))


def _on_roots(
    parts: Mapping[int, RootedSums], table_class: TableClass, basis: Floats
) -> Weights | None:
    """Weights that sums over several trees have on the roots, in the directions of a basis."""
    nodes, owners, weights = [], [], []
    for number, part in parts.items():
        if table_class in part.on_root:
            areas, matrices = part.on_root[table_class]
            nodes.append(np.full(len(areas), number))
            owners.append(areas)
            weights.append(matrices @ basis)
    if not nodes:
        return None
    return Weights(np.concatenate(nodes), np.concatenate(owners), np.concatenate(weights))


AUTO, ALL, NONE = "auto", "all", "none"
USES = (AUTO, ALL, NONE)
"""When to use the files of the nation: if all states are read anyway, always, never."""


def nation_use(
    folder: str, asked: str, present: Sequence[str], read: Sequence[str]
) -> tuple[bool, str]:
    """Whether measurements of the nation are used, and a sentence that says so.

    Parameters
    ----------
    folder
        Folder of the files.
    asked
        One of `USES`. `ALL` says that the states of the folder are the whole nation.
    present, read
        States that the folder holds, and those that are estimated.
    """
    held = has_nation(persons_folder(folder))
    if asked == ALL and not held:
        raise InputError(f"the folder holds no file of level {NATION}: leave ⟨nation⟩ out")
    if asked == NONE:
        return False, "not used, as asked: each state stands for itself"
    if not held:
        return False, f"not used: the folder holds no file of level {NATION}"
    if asked == ALL:
        return True, f"used: the {len(present)} states of the folder are taken for all of it"
    if set(present) != set(STATES):
        return False, (
            f"not used: of the {len(STATES)} states whose sum it is the folder holds"
            f" {len(set(present) & set(STATES))}, and nothing is known of what the others add"
        )
    if set(read) != set(STATES):
        return False, (
            f"not used, since {len(read)} of {len(STATES)} states are asked for and all would have"
            f" to be read: ask for {ALL!r} to use it"
        )
    return True, "used"


@frozen(eq=False)
class Nation:
    """All states, with the measurements of their sum."""

    states: tuple[str, ...]
    regions: Regions

    @classmethod
    def from_states(cls, folder: str, known: Mapping[str, Mapping[str, Any]]) -> "Nation":
        """Combine the information about every state, by its two digits, with the nation's
        files.
        """
        roots = [RootKnowledge.from_json(value) for value in known.values()]
        return cls(tuple(known), Regions.from_roots(roots, read_nation(folder), CLASSES))

    def root(self, state: str) -> RootKnowledge:
        """The information about one state from everything."""
        return self.regions.root(self.states.index(state))

    def add_states(self, parts: Mapping[str, Mapping[str, Any]], cells: Floats) -> AreaSums:
        """Sums over all states of areas, from what each says of them (`sums_to_json`)."""
        by_number = {}
        for state, part in parts.items():
            by_number[self.states.index(state)] = _sums_from_json(part)
        return self.regions.add_trees(by_number, cells)


def sums_to_json(sums: RootedSums) -> dict[str, Any]:
    """Sums over areas of one state as plain values."""
    on_root = []
    for kind, (areas, matrices) in sums.on_root.items():
        entry = {"kind": list(kind), "areas": areas.tolist(), "matrices": matrices.tolist()}
        on_root.append(entry)
    values, variances = sums.values.tolist(), sums.variances.tolist()
    return {"values": values, "variances": variances, "on_root": on_root}


def _sums_from_json(value: Mapping[str, Any]) -> RootedSums:
    on_root = {}
    for entry in value["on_root"]:
        areas = np.asarray(entry["areas"], dtype=np.int64)
        on_root[tuple(entry["kind"])] = areas, np.asarray(entry["matrices"], dtype=float)
    return RootedSums(np.asarray(value["values"]), np.asarray(value["variances"]), on_root)


KIND = "census estimates"
SUMMARY, AREAS = "estimates.json", "areas.csv"
HEADER = ("people", "estimate", "standard_error", "low", "high")


def _levels(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(names)


@frozen
class CensusTask:
    """A task for a folder of noisy measurement files.

    Parameters
    ----------
    folder
        Folder of the files.
    areas
        Areas to estimate, or None.
    levels
        Levels of which to write every place: State, County, Tract, Block_Group,
        Block.
    totals
        Exact populations of states, by their two digits, if the files do not have them.
    level
        Of the intervals.
    nation
        Whether the files of the nation (level US) are used: ``auto`` if the folder holds all states
        and all are estimated, ``all`` if the states of the folder are the whole nation, ``none``.
    """

    folder: str = field(converter=str)
    areas: Areas | None = None
    levels: tuple[str, ...] = field(converter=_levels, default=())
    totals: Mapping[str, int] = field(factory=dict)
    level: float = 0.95
    nation: str = AUTO

    def __attrs_post_init__(self) -> None:
        if self.nation not in USES:
            raise InputError(f"the nation is one of {', '.join(USES)}, not {self.nation!r}")
        if self.areas is None and not self.levels:
            raise InputError("name what to estimate: areas, or a level such as Tract")
        for name in self.levels:
            if name not in LEVELS:
                raise InputError(f"there is no level {name}: the files have {', '.join(LEVELS)}")
        check_level(self.level, "the level of an interval")

    def states(self) -> tuple[str, ...]:
        """States to read: those of the areas, or all if every place of a level is asked for."""
        present = self.every_state
        asked = self.areas.states if self.areas is not None else ()
        for state in (*asked, *self.totals):
            if state not in present:
                raise InputError(f"the files hold no state {state}; they hold {', '.join(present)}")
        return present if self.levels else asked

    @property
    def every_state(self) -> tuple[str, ...]:
        """All states of the folder."""
        return tuple(list_states(persons_folder(self.folder)))

    def nation_use(self) -> tuple[bool, str]:
        """Whether the files of the nation are used, and a sentence that says so."""
        return nation_use(self.folder, self.nation, self.every_state, self.states())

    def digest(self) -> str:
        """Tell tasks apart, so only the same one is resumed."""
        rows = self.areas.rows if self.areas is not None else ()
        parts = [
            # one folder by another relative path is the same task
            str(real_path(self.folder)),
            rows,
            self.levels,
            sorted(self.totals.items()),
            self.level,
            self.nation_use()[0],
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@frozen(eq=False)
class CensusEstimates:
    """Estimates for areas: one row per area, one column per group of people.

    Intervals are normal, and cut at zero if no weight is negative.
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
    nation = None
    if task.nation_use()[0]:
        by_state = {state: _load_state(task, state) for state in task.every_state}
        nation = Nation.from_states(task.folder, by_state)
    partial = {}
    for state in task.states():
        partial[state] = _state_result(task, state, _root(nation, state))[0]
    return _combine_states(task, partial, nation)


def _load_state(task: CensusTask, state: str) -> dict[str, Any]:
    """What the files of one state say of the state as a whole, as plain values."""
    files = read_state(task.folder, state, task.totals.get(state))
    return RootKnowledge.from_measurements(files.measurements, CLASSES).to_json()


def _root(nation: Nation | None, state: str) -> RootKnowledge | None:
    return None if nation is None else nation.root(state)


def write_estimates(
    task: CensusTask,
    out: str | Path,
    *,
    jobs: int = 1,
    resume: bool = False,
    force: bool = False,
    progress: Progress = silent,
) -> CensusEstimates | None:
    """Write the estimates of a task to a folder; states finished by an earlier run are not read
    again.
    """
    states = task.states()
    with lasting_folder(out, resume=resume, force=force, ours=census_files, clear=_clear) as left:
        noted = left.read_notes().get("task")
        if noted is not None and noted != task.digest():
            raise InputError(
                f"the unfinished {out} is of other files, areas or levels: discard it, or ask the"
                " same"
            )
        note = _Noting(task, left, noted)
        nation = _nation(task, left.folder, note, jobs, progress) if task.nation_use()[0] else None
        # A state is finished once its file is there, which is written last.
        waiting = [state for state in states if not _partial(left.folder, state).exists()]
        finished = len(states) - len(waiting)
        inputs = [(task, state, _root(nation, state)) for state in waiting]
        for done, (result, tables) in enumerate(_results(_state_result, inputs, jobs), 1):
            note.begin()
            state = waiting[done - 1]
            for level, text in tables.items():
                replace_file(left.folder / f".{level}-{state}.csv", text)
            replace_file(_partial(left.folder, state), json.dumps(result))
            progress("estimating states", finished + done, len(states))
        return _finish(task, left.folder, states, nation)


@define(eq=False)
class _Noting:
    """Notes the task in a folder once there is something to go on with."""

    task: CensusTask
    left: Any
    noted: Any

    def begin(self) -> None:
        if self.noted is None:
            self.noted = self.task.digest()
            self.left.begin({"task": self.noted})


def _nation(task: CensusTask, folder: Path, note: _Noting, jobs: int, progress: Progress) -> Nation:
    """What all states and the files of the nation say together; states that an earlier run has
    read are not read again.
    """
    states = task.every_state
    waiting = [state for state in states if not _root_file(folder, state).exists()]
    finished = len(states) - len(waiting)
    inputs = [(task, state) for state in waiting]
    for done, of_state in enumerate(_results(_load_state, inputs, jobs), 1):
        note.begin()
        replace_file(_root_file(folder, waiting[done - 1]), json.dumps(of_state))
        progress("reading states", finished + done, len(states))
    every = {}
    for state in states:
        every[state] = json.loads(_root_file(folder, state).read_text(encoding="utf-8"))
    return Nation.from_states(task.folder, every)


def census_files(folder: Path) -> tuple[str, ...]:
    """Files of a folder of estimates that may be replaced; none if it is something else."""
    try:
        document = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ()
    if not isinstance(document, dict) or document.get("kind") != KIND:
        return ()
    return (SUMMARY, AREAS, *(f"{level.lower()}.csv" for level in LEVELS))


def _results(
    work: Callable[..., Any], inputs: Sequence[tuple[Any, ...]], jobs: int
) -> Iterator[Any]:
    """Results of some work on several inputs, in their order."""
    if jobs <= 1 or len(inputs) <= 1:
        for one in inputs:
            yield work(*one)
        return
    # Most runs need no pool, and `import semidp` none at all.
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    # spawned, not forked: a fork may copy a lock that a thread of the parent holds
    with ProcessPoolExecutor(min(jobs, len(inputs)), mp_context=get_context("spawn")) as pool:
        yield from pool.map(work, *zip(*inputs, strict=True))


def _state_result(
    task: CensusTask, state: str, root: RootKnowledge | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """What one state says of the areas, and the tables of its places by level.

    `root` is what is known about the state from everything, where the nation is used.
    """
    total = task.totals.get(state)
    if root is None:
        files, answer = estimate_state(task.folder, state, total)
    else:
        files = read_state(task.folder, state, total)
        answer = estimate_from_root(files.measurements, CLASSES, root)
    weights = np.stack(list(groups().values()))
    result: dict[str, Any] = {}
    if task.areas is not None:
        shares, areas = task.areas.shares(files), len(task.areas.names)
        if root is None:
            sums = _sum_all_areas(answer, shares, weights, areas)
            result = {"values": sums.values.tolist(), "variances": sums.variances.tolist()}
        else:
            result = sums_to_json(answer.rooted_sums(shares, weights, areas))
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


def _sum_all_areas(
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


def _combine_states(
    task: CensusTask, partial: Mapping[str, Mapping[str, Any]], nation: Nation | None
) -> CensusEstimates:
    """Estimates of areas from what each state, by its two digits, says of them."""
    assert task.areas is not None, "only a task with areas adds them up"
    if nation is None:
        values = np.sum([part["values"] for part in partial.values()], axis=0)
        variances = np.sum([part["variances"] for part in partial.values()], axis=0)
        sums = AreaSums(values, variances)
    else:
        # The nation ties states together, so variances are more than a sum.
        sums = nation.add_states(partial, np.stack(list(groups().values())))
    # A difference of areas may be negative, a count may not.
    whole = all(weight >= 0 for _, _, weight in task.areas.rows)
    return CensusEstimates(task.areas.names, tuple(groups()), sums, task.level, whole)


def _finish(
    task: CensusTask, folder: Path, states: Sequence[str], nation: Nation | None
) -> CensusEstimates | None:
    added = None
    if task.areas is not None:
        partial = {}
        for state in states:
            partial[state] = json.loads(_partial(folder, state).read_text(encoding="utf-8"))
        added = _combine_states(task, partial, nation)
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
        "nation": task.nation_use()[1],
    }
    replace_file(folder / SUMMARY, json.dumps(summary, indent=2) + "\n")
    return added


def _clear(folder: Path) -> None:
    for path in folder.glob(".*"):
        path.unlink()


def _partial(folder: Path, state: str) -> Path:
    return folder / f".{state}.json"


def _root_file(folder: Path, state: str) -> Path:
    return folder / f".root-{state}.json"


def _header(first: str) -> str:
    return ",".join((first, *HEADER)) + "\n"


def _text(table: CensusEstimates) -> str:
    """Lines of a CSV file; numbers with six decimals, empty if nothing determines them."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for name, people, *numbers in table.rows():
        shown = [f"{value:.6f}" if np.isfinite(value) else "" for value in numbers]
        writer.writerow([name, people, *shown])
    return buffer.getvalue()
