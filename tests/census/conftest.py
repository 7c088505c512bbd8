"""A small state in the layout of the noisy measurement files, made by the generator of the
benchmarks.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from attrs import frozen

GENERATOR = Path(__file__).parents[2] / "benchmarks" / "simulated" / "noisy_measurements.py"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("simulated_noisy_measurements", GENERATOR)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


simulated = _load()


@frozen
class State:
    folder: Path
    codes: list[str]
    cells: np.ndarray


def small_state(folder: Path, state: str, seed: int, parts: tuple[str, ...] = ()) -> State:
    """Write a state of 2 counties, 4 tracts, 7 block groups and 40 blocks, whole or in two
    parts.
    """
    generator = np.random.default_rng(seed)
    codes = []
    for block in range(40):
        county, tract, group = 1 + 2 * (block % 2), 100 + block % 4, 1 + block % 3 % 2
        codes.append(f"{state}{county:03}{tract:06}{group}{block:03}")
    codes.sort()
    groups = generator.poisson(6, size=(len(codes), 2, 8)) * (
        generator.random((len(codes), 1, 1)) < 0.8
    )
    cells, possible = simulated.people_of(groups, generator)
    chosen = np.zeros(len(codes), dtype=int)
    if parts:
        chosen = np.arange(len(codes)) % 4 // 3
    for number, part in enumerate(parts or (f"0{state}",)):
        mine = np.flatnonzero(chosen == number)
        mine_codes = [codes[place] for place in mine]
        simulated.write_files(
            folder, mine_codes, cells[mine], possible[mine], seed=seed + number, part=part
        )
    return State(folder, codes, cells)


@pytest.fixture(scope="session")
def files(tmp_path_factory: Any) -> State:
    return small_state(tmp_path_factory.mktemp("noisy"), "15", 7)
