"""Outputs of some seventy seeded plans, frozen: what they publish, and what they say.

A change of values needs a commit that says why; `golden_outputs` writes them anew.
"""

import difflib
import json

import pytest

from tests.golden.golden_outputs import FOLDER, is_same, run_scenario, stored
from tests.golden.scenarios import QUICK, SCENARIOS

PLANS = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.long) for name in SCENARIOS]


@pytest.mark.parametrize("name", PLANS)
def test_outputs_are_those_that_are_stored(name):
    values, words = run_scenario(name)
    expected_values, expected_words = stored(name)
    again = json.loads(json.dumps(values))
    assert again.keys() == expected_values.keys()
    for file, content in again.items():
        assert is_same(content, expected_values[file]), file
    difference = difflib.unified_diff(
        expected_words.splitlines(), words.splitlines(), "stored", "now", lineterm="", n=1
    )
    assert not [*difference]


def test_every_scenario_is_stored_and_nothing_else():
    names = {path.stem for path in FOLDER.iterdir()}
    assert names == {*SCENARIOS}
    assert len(SCENARIOS) >= 60
    assert len(QUICK) == 13


def test_other_noise_is_seen(monkeypatch):
    monkeypatch.setitem(SCENARIOS, "table-mu", SCENARIOS["table-mu"] + " --seed 2")
    values, _ = run_scenario("table-mu")
    expected, _ = stored("table-mu")
    changed = {file for file in expected if values[file] != expected[file]}
    assert {"r/table.csv", "r/measurements.csv", "r/release.json"} <= changed


def test_only_last_digits_may_differ():
    assert is_same([["b", "3.7366912717103333"]], [["b", "3.7366912717103300"]])
    assert is_same([".mu 0.5"], [".mu 0.50000001"])
    for other in ("3.73670", "4", "b", ""):
        assert not is_same([["b", "3.7366912717103333"]], [["b", other]]), other
    assert not is_same(["12"], ["13"])
    assert not is_same([".mu 0.5"], [".rho 0.5"])
    assert not is_same([["b"]], [["b", "1"]])
