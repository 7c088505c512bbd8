"""What was measured of the nation: used where the states of the folder are all of it, one state in
memory at a time.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semidp.cli import run
from semidp.errors import DataError, InputError
from semidp.inference import (
    CensusTask,
    Measurements,
    Observed,
    Places,
    Share,
    estimate,
    estimate_areas,
    write_estimates,
)
from semidp.inference.area_estimates import nation_use
from semidp.inference.noisy_files import (
    SIZES,
    STATES,
    Areas,
    groups,
    read_nation,
    read_state,
)
from tests.census.conftest import simulated, small_state

CODES = ("15", "16", "17")


@pytest.fixture(scope="module")
def nation(tmp_path_factory: Any) -> Path:
    """Three states that are the whole nation, which was measured too."""
    folder: Path = tmp_path_factory.mktemp("nation")
    states = [small_state(folder, code, seed) for seed, code in enumerate(CODES, 31)]
    simulated.write_nation(folder, sum(state.cells.sum(axis=0) for state in states), seed=3)
    return folder


def all_at_once(folder: Path) -> tuple[Any, dict[str, slice]]:
    """The estimate of one tree of the nation and all its states, and where the blocks of each
    stand.
    """
    files = {code: read_state(folder, code) for code in CODES}
    trees = [files[code].measurements for code in CODES]
    depths = len(trees[0].places.counts)
    parents = [np.zeros(len(trees), dtype=int)]
    for depth in range(depths - 1):
        before = 0
        parts = []
        for tree in trees:
            parts.append(tree.places.parents[depth] + before)
            before += tree.places.counts[depth]
        parents.append(np.concatenate(parts))
    observed = list(read_nation(folder))
    possible = {}
    for depth in range(depths):
        starts = np.cumsum([0, *(tree.places.counts[depth] for tree in trees)])
        for tree, start in zip(trees, starts, strict=False):
            for one in tree.select_depth(depth):
                values = np.zeros((starts[-1], one.values.shape[1]))
                variance = np.full(starts[-1], np.inf)
                part = slice(start, start + len(one.values))
                values[part], variance[part] = one.values, one.variances(len(one.values))
                observed.append(Observed(one.query, depth + 1, values, variance))
        if depth:
            possible[depth + 1] = np.concatenate([tree.possible[depth] for tree in trees])
    blocks = {}
    for code, start, end in zip(CODES, starts, starts[1:], strict=False):
        blocks[code] = slice(int(start), int(end))
    return estimate(Measurements(Places(parents), SIZES, observed, possible)), blocks


@pytest.mark.long
def test_two_passes_are_one_tree_of_all_states(nation: Path, tmp_path: Path) -> None:
    """Districts within a state, across all states, and every place of a level."""
    weights = np.stack(list(groups().values()))
    rows = [(f"of {code}", f"{code}001", 1.0) for code in CODES]
    rows += [("across", f"{code}003", 0.5 + number) for number, code in enumerate(CODES)]
    task = CensusTask(nation, Areas(rows), ["State"], nation="all")
    answer = write_estimates(task, tmp_path / "out")
    assert answer is not None
    joint, blocks = all_at_once(nation)
    compared = 0
    for number, name in enumerate(answer.names):
        nodes, shares = [], []
        for area, code, weight in rows:
            if area == name:
                state = read_state(nation, code[:2])
                inside = np.char.startswith(state.blocks(), code)
                places = np.flatnonzero(inside) + blocks[code[:2]].start
                nodes.append(places)
                shares.append(np.full(len(places), weight))
        every = np.concatenate(nodes)
        share = Share(every, np.zeros_like(every), np.concatenate(shares))
        expected = joint.sums({6: share}, weights)
        assert answer.sums.values[number] == pytest.approx(expected.values[0], rel=1e-9, abs=1e-6)
        assert answer.sums.variances[number] == pytest.approx(
            expected.variances[0], rel=1e-9, abs=1e-9
        )
        compared += len(weights)
    assert compared == 4 * 21
    states = joint.sums({2: Share(np.arange(3), np.arange(3))}, weights)
    lines = (tmp_path / "out" / "state.csv").read_text().splitlines()[1:]
    numbers = np.array([line.split(",")[-3] for line in lines], dtype=float).reshape(3, 21)
    assert numbers == pytest.approx(states.standard_errors, abs=1e-6)
    document = json.loads((tmp_path / "out" / "estimates.json").read_text())
    assert document["nation"].startswith("used: the 3 states")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "areas.csv",
        "estimates.json",
        "state.csv",
    ]


def test_the_nation_takes_from_the_variance_of_a_state(nation: Path) -> None:
    """Three states of equal noise: what their sum says takes up to a third of the variance."""
    areas = Areas([("a", "15", 1.0)])
    alone = estimate_areas(CensusTask(nation, areas)).sums
    used = estimate_areas(CensusTask(nation, areas, nation="all")).sums
    assert (used.variances <= alone.variances * (1 + 1e-9)).all()
    detailed = list(groups()).index("adults, white")
    assert used.variances[0, detailed] < 0.97 * alone.variances[0, detailed]


@pytest.mark.long
def test_a_run_that_ended_early_reads_no_state_a_third_time(
    nation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import semidp.inference.area_estimates as module

    task = CensusTask(nation, Areas([("a", "15001", 1.0), ("a", "16001", 1.0)]), nation="all")
    whole = write_estimates(task, tmp_path / "whole")
    assert whole is not None
    reads: list[str] = []
    true = module.read_state

    def stopped(folder: str, state: str, total: int | None = None) -> Any:
        reads.append(state)
        if reads.count("16") == 2:
            raise KeyboardInterrupt
        return true(folder, state, total)

    with monkeypatch.context() as patch:
        patch.setattr(module, "read_state", stopped)
        with pytest.raises(KeyboardInterrupt):
            write_estimates(task, tmp_path / "out")
    # All states are read once for the nation, then those that are asked for. What each state says of
    # itself is kept, and so is the first state.
    assert reads == ["15", "16", "17", "15", "16"]
    again: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(
            module,
            "read_state",
            lambda folder, state, total=None: again.append(state) or true(folder, state, total),
        )
        resumed = write_estimates(task, tmp_path / "out", resume=True)
    assert again == ["16"]
    assert resumed is not None
    assert np.array_equal(resumed.sums.variances, whole.sums.variances)


def test_when_the_nation_is_used(nation: Path, tmp_path: Path) -> None:
    folder = str(nation)
    assert len(STATES) == 51
    some = nation_use(folder, "auto", CODES, CODES)
    assert not some[0]
    assert "the folder holds 3, and nothing is known of what the others add" in some[1]
    few = nation_use(folder, "auto", STATES, CODES)
    assert not few[0]
    assert "ask for 'all' to use it" in few[1]
    assert nation_use(folder, "auto", STATES, STATES) == (True, "used")
    assert nation_use(folder, "none", STATES, STATES)[0] is False
    small_state(tmp_path, "15", 3)
    assert nation_use(str(tmp_path), "auto", STATES, STATES)[0] is False
    with pytest.raises(InputError, match="no file of level US"):
        nation_use(str(tmp_path), "all", STATES, STATES)
    with pytest.raises(InputError, match="one of auto, all, none"):
        CensusTask(folder, levels=["State"], nation="some")


def test_the_command_says_whether_it_is_used(
    nation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    areas = tmp_path / "areas.csv"
    areas.write_text("name,geocode\na,15\n")
    words = ["census", "estimate", str(nation), "--areas", str(areas)]
    assert run(words) == 0
    assert "of the 51 states whose sum it is the folder holds 3" in capsys.readouterr().err
    assert run([*words, "--nation", "all"]) == 0
    assert "the 3 states of the folder are taken for all of it" in capsys.readouterr().err
    assert run([*words, "--nation", "some"]) == 2


def test_a_nation_with_another_exact_total_is_refused(tmp_path: Path) -> None:
    state = small_state(tmp_path, "15", 3)
    simulated.write_nation(tmp_path, 2 * state.cells.sum(axis=0), seed=3)
    task = CensusTask(tmp_path, Areas([("a", "15", 1.0)]), nation="all")
    with pytest.raises(InputError, match="contradict each other"):
        estimate_areas(task)


def test_a_nation_of_two_places_is_refused(tmp_path: Path) -> None:
    state = small_state(tmp_path, "15", 3)
    simulated.write_nation(tmp_path, state.cells.sum(axis=0), seed=3)
    below = tmp_path / "US.parquet" / "DPQuery" / "State=0US"
    total = np.zeros((1, 1))
    simulated.write_rows(below / "more", [(["1"], "more_dpq", (1, 1, 1, 1), total, 1.0)])
    with pytest.raises(DataError, match="one place"):
        read_nation(tmp_path)
