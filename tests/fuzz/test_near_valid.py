"""Valid plans, release folders and workbooks with one or two faults, so that most inputs get past
the first refusal.

An input that gets past the first check and makes one function call another for the first time is
kept, and gets a further fault later. No input may end with exit code 70, without end, or with more
memory than `MEMORY` on top.

One input in twenty is given to the command. The others are given to the functions that it calls:
what they raise must be one of its sentences.
"""

import contextlib
import copy
import functools
import json
import os
import random
import resource
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from semidp import Plan, RunOptions
from semidp.cli._program import _failure
from semidp.present.forecasts import rehearse
from semidp.publish import pipeline
from semidp.publish.sources.opening import Source, open_source
from tests.fuzz.faults import FaultyFolders, FaultyWorkbooks, Input, add_fault
from tests.fuzz.test_fuzz import RELEASES, TIMES, check, in_time, place

__all__ = ["place"]  # a fixture of the other file
pytestmark = pytest.mark.no_schema

INPUTS = int(100 * TIMES)
BY_COMMAND = 20  # one input in so many
MEMORY = 10**9
MOST_FAULTS = 2


def seeds(kind: str) -> Iterator[random.Random]:
    """Sources of faults: the same in every ``make test``, others in every ``make fuzz``."""
    base = random.SystemRandom().random() if "SEMIDP_FUZZ" in os.environ else 0.5
    for number in range(INPUTS):
        yield random.Random(f"{kind} {base} {number}")


class Calls:
    """Calls from one function of semidp to another, as far as they were seen."""

    def __init__(self) -> None:
        self.seen: set[tuple[CodeType, CodeType]] = set()

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        def follow(frame: FrameType, event: str, argument: Any) -> None:
            if frame.f_back is not None and "semidp" in frame.f_code.co_filename:
                self.seen.add((frame.f_back.f_code, frame.f_code))

        before = sys.gettrace()
        sys.settrace(follow)
        try:
            yield
        finally:
            sys.settrace(before)


def is_done(work: Callable[[], object]) -> bool:
    """Do what a command does; what it raises otherwise must be a sentence."""
    raised = None
    with in_time(work):
        try:
            work()
        except Exception as error:
            raised = error
    assert raised is None or _failure(raised) != 70, "".join(traceback.format_exception(raised))
    return raised is None


def try_all(
    kind: str,
    valid: list[Input],
    add: Callable[[Input, random.Random], Input],
    attempt: Callable[[Input, bool], bool],
) -> None:
    """Try every input of a kind; a fifth and more must get past the first check.

    An attempt is told whether to give its input to the command.
    """
    passed: Counter[bool] = Counter()
    kept, calls = list(valid), Calls()
    for whole in {whole.source: whole for whole in valid}.values():
        with calls.watch():
            assert attempt(whole, True), "what gets faults was right"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    for draw in seeds(kind):
        faulty = add(draw.choice(kept), draw)
        known = len(calls.seen)
        with calls.watch():
            is_past = attempt(faulty, passed.total() % BY_COMMAND == 0)
        passed[is_past] += 1
        # What was refused at once would be refused again, whatever else is wrong with it.
        if is_past and len(calls.seen) > known and faulty.faults < MOST_FAULTS:
            kept.append(faulty)
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert grown < MEMORY
    counts = {"inputs": passed.total(), "past the first": passed[True], "kept": len(kept)}
    seconds = round(time.process_time() - began)
    print(json.dumps({"kind": kind, **counts, "calls": len(calls.seen), "seconds": seconds}))
    assert passed[True] > passed.total() / 5


def test_plans_with_a_fault_or_two(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reached = []
    survey = pipeline.survey

    def surveyed(*arguments: Any, **options: Any) -> Any:
        reached.append(True)
        return survey(*arguments, **options)

    monkeypatch.setattr(pipeline, "survey", surveyed)
    plans = []
    for name in RELEASES:
        if name != "parts":
            plan = json.loads((place / name / "release.json").read_text())["plan"]
            plans.append(Input(name, {"plan": plan}))

    def add(whole: Input, draw: random.Random) -> Input:
        plan = copy.deepcopy(whole.files["plan"])
        add_fault(plan, draw)
        return Input(whole.source, {"plan": plan}, whole.faults + 1)

    def rehearse_plan(document: Any, opened: Source) -> None:
        plan = Plan.from_json(document)
        as_read = (plan.count, plan.where, plan.id, plan.most, plan.read_as)
        is_opened = as_read == (opened.count, opened.where, opened.id, opened.most, opened.read_as)
        rehearse(plan, opened if is_opened else "people.csv", RunOptions(), None).rows()

    def attempt(faulty: Input, by_command: bool) -> bool:
        reached.clear()
        if by_command:
            (place / "near.json").write_text(json.dumps(faulty.files["plan"]))
            code = check(["release", "people.csv", "--plan", "near.json", "--dry-run"])
            return bool(reached) or code == 0
        done = is_done(functools.partial(rehearse_plan, faulty.files["plan"], opened))
        return bool(reached) or done

    with open_source("people.csv") as opened:
        try_all("plans", plans, add, attempt)


def test_release_folders_with_a_fault_or_two(place: Path) -> None:
    folders = FaultyFolders(place)

    def attempt(faulty: Input, by_command: bool) -> bool:
        folders.write(faulty)
        if by_command:
            return check(["show", "near"]) in (0, 1)
        return is_done(folders.show)

    try_all("release folders", folders.valid, folders.add, attempt)


def test_workbooks_with_a_fault_or_two(place: Path) -> None:
    pytest.importorskip("openpyxl")
    workbooks = FaultyWorkbooks(place)
    words = ["--table", "sex,region", "--exact", "sex", "--levels-from-data", "--rho", "1"]

    def attempt(faulty: Input, by_command: bool) -> bool:
        workbooks.write(faulty)
        if by_command:
            return check(["release", "near.xlsx", *words, "--dry-run"]) == 0
        return is_done(workbooks.read)

    try_all("workbooks", workbooks.valid, workbooks.add, attempt)
