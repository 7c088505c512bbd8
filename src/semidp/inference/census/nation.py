"""All states together with what was measured of the nation, one state in memory at a time.

What each state says of itself goes up first; what is known of it from everything comes down. The
estimator is in `semidp.publish.estimation.regions`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen

from semidp.errors import InputError
from semidp.inference.census.layout import NATION, STATES
from semidp.inference.census.reading import (
    CLASSES,
    has_nation,
    persons_folder,
    read_nation,
    read_state,
)
from semidp.publish.estimation.estimates import AreaSums, RootedSums
from semidp.publish.estimation.measurements import Floats
from semidp.publish.estimation.regions import Regions, RootKnowledge

AUTO, ALL, NONE = "auto", "all", "none"
USES = (AUTO, ALL, NONE)
"""When the files of the nation are used: where all states are read anyway, always, never."""


def nation_use(
    folder: str, asked: str, present: Sequence[str], read: Sequence[str]
) -> tuple[bool, str]:
    """Whether what was measured of the nation is used, and a sentence that says so.

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
        raise InputError(f"the folder holds no file of level {NATION}: leave --nation out")
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
            " to be read: --nation all uses it"
        )
    return True, "used"


def known_of_state(folder: str, state: str, total: int | None) -> dict[str, Any]:
    """What the files of one state say of the state as a whole, as plain values."""
    files = read_state(folder, state, total)
    return RootKnowledge.from_measurements(files.measurements, CLASSES).to_json()


@frozen(eq=False)
class Nation:
    """All states, and what was measured of their sum."""

    states: tuple[str, ...]
    regions: Regions

    @classmethod
    def from_states(cls, folder: str, known: Mapping[str, Mapping[str, Any]]) -> "Nation":
        """Bring together what is known of every state, by its two digits, and the nation's
        files.
        """
        roots = [RootKnowledge.from_json(value) for value in known.values()]
        return cls(tuple(known), Regions.from_roots(roots, read_nation(folder), CLASSES))

    def root(self, state: str) -> RootKnowledge:
        """What is known of one state from everything."""
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
