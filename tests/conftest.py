"""What all tests share: laws have no deadline, since a busy machine breaks none, and draw the same
cases every time.

``pytest --hypothesis-profile explore`` draws new ones.

The operating system's words are replaced by words that follow from the name of the test. A test
that fails once in a hundred runs would otherwise fail for somebody who changed nothing. Tests of
the generator itself are marked ``system_randomness`` and keep the true one; so does every process
that a test starts.

Figures of reports are neither made nor drawn, since that takes longer than most releases here.
Tests that look at reports are marked ``pictures`` and draw them; so does every process that a test
starts.

Every release, plan and ledger that is written in a test is validated by our JSON Schemas, and so is
what the processes leave behind that a test starts. Tests that write what no schema knows are marked
``no_schema``.
"""

import gc
import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from semidp.present.report import report_page
from semidp.promise.noise.randomness import SystemRandomness, Words
from semidp.publish.statistics.tables import words as table_words
from tests.spec import json_schema

# Collecting garbage every 700 objects takes a twentieth of all time here.
gc.set_threshold(50_000, 20, 20)

settings.register_profile("explore", deadline=None)
# Laws are tried with fewer examples here than in `make test-long`.
EXAMPLES = int(os.environ.get("SEMIDP_EXAMPLES", "50"))
settings.register_profile("semidp", deadline=None, derandomize=True, max_examples=EXAMPLES)
settings.load_profile("semidp")

TRUE_WORDS = SystemRandomness.words
PICTURES = (
    (report_page, "svg"),
    (report_page, "tradeoff_plot"),
    (table_words, "loss_plot"),
)
"""What draws the figures of reports, where reports look for it."""
FOLDERS: list[Path] = []
"""Temporary folders that were made for this test and its fixtures."""
TRUE_PICTURES = [(module, name, getattr(module, name)) for module, name in PICTURES]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Seed the words of the operating system by the name of the test, before its fixtures draw
    any; leave the figures of reports out.
    """
    if item.get_closest_marker("pictures") is None:
        for module, name in PICTURES:
            setattr(module, name, lambda content: "<svg></svg>")
    if item.get_closest_marker("system_randomness") is not None:
        SystemRandomness.words = TRUE_WORDS  # type: ignore[method-assign]
        return
    digest = hashlib.sha256(item.nodeid.encode()).digest()
    bits = np.random.PCG64(int.from_bytes(digest[:8], "little"))

    def words(self: SystemRandomness, count: int) -> Words:
        return np.asarray(bits.random_raw(count), dtype=np.uint64)

    SystemRandomness.words = words  # type: ignore[method-assign]


def pytest_configure() -> None:
    """Validate what the software writes."""
    json_schema.watch_writers()
    json_schema.watch_processes()
    make_folder = pytest.TempPathFactory.mktemp

    def make(self: pytest.TempPathFactory, *words: Any, **more: Any) -> Path:
        FOLDERS.append(make_folder(self, *words, **more))
        return FOLDERS[-1]

    pytest.TempPathFactory.mktemp = make  # type: ignore[method-assign]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Give the words and the figures back, for what is not a test of this folder; fail where a
    file was written that our schemas do not allow, unless the test is marked ``no_schema``.
    """
    for module, name, draw in TRUE_PICTURES:
        setattr(module, name, draw)
    SystemRandomness.words = TRUE_WORDS  # type: ignore[method-assign]
    if json_schema.started:
        json_schema.validate_left(FOLDERS)
    json_schema.started.clear()
    FOLDERS.clear()
    wrong = json_schema.take_failures()
    assert not wrong or item.get_closest_marker("no_schema"), (
        f"a file that was written breaks its schema: {wrong[:3]}"
    )


def pytest_collection_finish() -> None:
    """Spare the garbage collector what stays: half a million objects of tests that were
    collected.
    """
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let the collector have everything back: libraries count what is left in the end."""
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the cases of a test marked ``few(n)`` but for n, spread evenly, to
    ``make test-long``; those that need a server are run with it alone.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        is_local = item.get_closest_marker("services") is None
        if is_local and item.get_closest_marker("few") is not None:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for several in cases.values():
        marker = several[0].get_closest_marker("few")
        assert marker is not None
        (kept,) = marker.args
        chosen = {round(place * (len(several) - 1) / max(kept - 1, 1)) for place in range(kept)}
        for place, item in enumerate(several):
            if place not in chosen:
                item.add_marker(pytest.mark.long)
