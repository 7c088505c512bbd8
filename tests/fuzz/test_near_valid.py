"""Valid plans, release folders and workbooks with one or two faults, so that most inputs get past
the first refusal.

A fault is small: a neighboring number, another name that occurs, a repeated or missing entry. After
a fault in a release folder its digests are right again, so that what is behind them is reached. An
input that gets past the first check and makes one function call another for the first time is kept,
and gets a further fault later. No input may end with exit code 70, without end, or with more memory
than `MEMORY` on top.

One input in twenty is given to the command. The others are given to the functions that it calls:
what they raise must be one of its sentences.
"""

import contextlib
import copy
import functools
import hashlib
import json
import os
import random
import re
import resource
import shutil
import sys
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from semidp import Plan, Release, RunOptions
from semidp.cli._program import _failure
from semidp.present.dry_run import rehearse
from semidp.publish import pipeline
from semidp.publish.recheck import recheck
from semidp.publish.release_files import read_release_document
from semidp.publish.sources.data_files import sheet_columns
from semidp.publish.sources.opening import Source, open_source
from tests.fuzz.test_fuzz import HOSTILE, RELEASES, TIMES, check, in_time, place, places

__all__ = ["place"]  # a fixture of the other file
pytestmark = pytest.mark.no_schema

INPUTS = int(100 * TIMES)
BY_COMMAND = 20  # one input in so many
MEMORY = 10**9
MOST_FAULTS = 2
NUMBER = re.compile(rb"\d+")


def seeds(kind: str) -> Iterator[random.Random]:
    """Sources of faults: the same in every ``make test``, others in every ``make fuzz``."""
    base = random.SystemRandom().random() if "SEMIDP_FUZZ" in os.environ else 0.5
    for number in range(INPUTS):
        yield random.Random(f"{kind} {base} {number}")


def add_fault(document: Any, draw: random.Random) -> None:
    """Change one value of a document, mostly into something like it."""
    every = list(places(document))
    path = draw.choice(every)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    value, other = inner[path[-1]], draw.choice(every)
    kind = draw.choice([0, 1, 2, 3, 4, 4, 4, 4])
    if kind == 0 and isinstance(inner, list):
        inner.insert(path[-1], copy.deepcopy(value))
    elif kind == 1:
        del inner[path[-1]]
    elif kind == 2:
        inner[path[-1]] = draw.choice(HOSTILE)
    elif kind == 3 and other[: len(path)] != path:
        inner[path[-1]] = copy.deepcopy(_get(document)(other))
    else:
        texts = [each for each in map(_get(document), every) if isinstance(each, str)]
        inner[path[-1]] = _nearby(value, texts, draw)


def _get(document: Any) -> Callable[[tuple[Any, ...]], Any]:
    return lambda path: functools.reduce(lambda inner, key: inner[key], path, document)


def _nearby(value: Any, texts: list[str], draw: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return draw.choice([value + 1, value - 1, -value, value * 10, value / 3, 0])
    if isinstance(value, str) and re.fullmatch(r"[\d./e-]+", value):
        return draw.choice(["1", "1/3", "2", "0.001", "1e-9", f"{value}0", f"-{value}", "0"])
    if isinstance(value, str):
        return draw.choice([*texts, value + "x"])
    return draw.choice([[value], {"value": value}, None])


@dataclass(frozen=True)
class Input:
    """Documents by name, some of them with faults: the files of a release, a plan, a workbook."""

    source: str
    files: dict[str, Any]
    faults: int = 0


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
    releases = []
    quick = sorted({*RELEASES} - {"parts"})
    for name in [*quick * 3, "parts"]:  # every part is a release of its own, which takes longer
        files: dict[str, Any] = {}
        for path in (place / name).rglob("*"):
            if path.is_file():
                files[str(path.relative_to(place / name))] = path.read_bytes()
        files["release.json"] = json.loads(files["release.json"])
        releases.append(Input(name, files))

    def add(whole: Input, draw: random.Random) -> Input:
        files = copy.deepcopy(whole.files)
        document = files["release.json"]
        tables = sorted(name for name in document["files"] if name.endswith(".csv"))
        if tables and draw.random() < 0.5:
            name = draw.choice(tables)
            files[name] = _change_number(files[name], draw)
            document["files"][name] = hashlib.sha256(files[name]).hexdigest()
        else:
            fixed = {name: document.pop(name) for name in ("files", "versions")}
            add_fault(document, draw)
            document |= fixed
        return Input(whole.source, files, whole.faults + 1)

    def attempt(faulty: Input, by_command: bool) -> bool:
        folder = place / "near"
        shutil.rmtree(folder, ignore_errors=True)
        for name, content in faulty.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            text = content if isinstance(content, bytes) else json.dumps(content).encode()
            (folder / name).write_bytes(text)
        if by_command:
            return check(["show", "near"]) in (0, 1)
        return is_done(lambda: recheck(Release.load(folder), read_release_document(folder)))

    try_all("release folders", releases, add, attempt)


def _change_number(content: bytes, draw: random.Random) -> bytes:
    found = draw.choice([*NUMBER.finditer(content), None])
    if found is None:
        return content
    put = draw.choice([b"0", b"7", b"", b"99999999999999999999", b"1.5", b"-1", b"x", b"1e9"])
    return content[: found.start()] + put + content[found.end() :]


def test_workbooks_with_a_fault_or_two(place: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for line in (place / "people.csv").read_text().splitlines():
        book.active.append(line.split(","))
    book.save(place / "people.xlsx")
    with zipfile.ZipFile(place / "people.xlsx") as whole:
        parts = {name: whole.read(name) for name in whole.namelist()}
    words = ["--table", "sex,region", "--exact", "sex", "--levels-from-data", "--rho", "1"]

    def add(whole: Input, draw: random.Random) -> Input:
        damaged = dict(whole.files)
        # most faults in what holds the cells
        name = draw.choice([*damaged, *([n for n in damaged if "sheet1" in n] * 6)])
        content, at = damaged[name], draw.randrange(1 + len(damaged[name]))
        put = draw.choice([b"", b"0", b"<", b"&", b"9", b"\xff", b"A1", b"<c/>"])
        damaged[name] = content[:at] + put + content[at + draw.randrange(3) :]
        return Input(whole.source, damaged, whole.faults + 1)

    def attempt(faulty: Input, by_command: bool) -> bool:
        with zipfile.ZipFile(place / "near.xlsx", "w", zipfile.ZIP_DEFLATED) as file:
            for name, content in faulty.files.items():
                file.writestr(name, content)
        if by_command:
            return check(["release", "near.xlsx", *words, "--dry-run"]) == 0
        return is_done(lambda: sheet_columns("near.xlsx"))

    try_all("workbooks", [Input("people.xlsx", parts)], add, attempt)
