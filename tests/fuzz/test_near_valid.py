"""Valid plans, release folders and workbooks with one or two faults, so that most inputs get past
the first refusal.

A fault is small: a neighboring number, another name that occurs, a repeated or missing entry. After
a fault in a release folder its digests are right again, so that what is behind them is reached. No
input may end with exit code 70, without end, or with more memory than `MEMORY` on top.
"""

import copy
import functools
import hashlib
import json
import os
import random
import re
import resource
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from semidp.publish import pipeline
from tests.fuzz.test_fuzz import HOSTILE, RELEASES, TIMES, check, place, places

__all__ = ["place"]  # a fixture of the other file
pytestmark = pytest.mark.pictures

INPUTS = int(100 * TIMES)
MEMORY = 10**9
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


def try_all(kind: str, attempt: Callable[[random.Random], bool]) -> None:
    """Try every input of a kind; a fifth and more must get past the first check."""
    passed: Counter[bool] = Counter()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for draw in seeds(kind):
        passed[attempt(draw)] += 1
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert grown < MEMORY
    print(json.dumps({"kind": kind, "inputs": passed.total(), "past the first": passed[True]}))
    assert passed[True] > passed.total() / 5


def test_plans_with_a_fault_or_two(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = []
    for name in RELEASES:
        if name != "parts":
            plans.append(json.loads((place / name / "release.json").read_text())["plan"])
    reached = []
    survey = pipeline.survey

    def surveyed(*arguments: Any, **options: Any) -> Any:
        reached.append(True)
        return survey(*arguments, **options)

    monkeypatch.setattr(pipeline, "survey", surveyed)

    def attempt(draw: random.Random) -> bool:
        plan = copy.deepcopy(draw.choice(plans))
        for _ in range(draw.choice([1, 1, 2])):
            add_fault(plan, draw)
        (place / "near.json").write_text(json.dumps(plan))
        reached.clear()
        code = check(["release", "people.csv", "--plan", "near.json", "--dry-run"])
        return bool(reached) or code == 0

    try_all("plans", attempt)


def test_release_folders_with_a_fault_or_two(place: Path) -> None:
    def attempt(draw: random.Random) -> bool:
        folder = place / "near"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(place / draw.choice(sorted(RELEASES)), folder)
        document = json.loads((folder / "release.json").read_text())
        stated = document.pop("files")
        versions = document.pop("versions")
        for _ in range(draw.choice([1, 1, 2])):
            tables = sorted(name for name in stated if name.endswith(".csv"))
            if tables and draw.random() < 0.5:
                _change_number(folder / draw.choice(tables), draw)
            else:
                add_fault(document, draw)
        document |= {"versions": versions, "files": _digests(folder, stated)}
        (folder / "release.json").write_text(json.dumps(document))
        return check(["show", "near"]) in (0, 1)

    try_all("release folders", attempt)


def _change_number(file: Path, draw: random.Random) -> None:
    content = file.read_bytes()
    found = draw.choice([*NUMBER.finditer(content)])
    put = draw.choice([b"0", b"7", b"", b"99999999999999999999", b"1.5", b"-1", b"x", b"1e9"])
    file.write_bytes(content[: found.start()] + put + content[found.end() :])


def _digests(folder: Path, names: dict[str, str]) -> dict[str, str]:
    found = {}
    for name in names:
        found[name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    return found


def test_workbooks_with_a_fault_or_two(place: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for line in (place / "people.csv").read_text().splitlines():
        book.active.append(line.split(","))
    book.save(place / "people.xlsx")
    with zipfile.ZipFile(place / "people.xlsx") as whole:
        parts = {name: whole.read(name) for name in whole.namelist()}
    words = ["--table", "sex,region", "--exact", "sex", "--levels-from-data", "--rho", "1"]

    def attempt(draw: random.Random) -> bool:
        damaged = dict(parts)
        for _ in range(draw.choice([1, 1, 2])):
            # most faults in what holds the cells
            name = draw.choice([*damaged, *([n for n in damaged if "sheet1" in n] * 6)])
            content, at = damaged[name], draw.randrange(len(damaged[name]))
            put = draw.choice([b"", b"0", b"<", b"&", b"9", b"\xff", b"A1", b"<c/>"])
            damaged[name] = content[:at] + put + content[at + draw.randrange(3) :]
        with zipfile.ZipFile(place / "near.xlsx", "w", zipfile.ZIP_DEFLATED) as file:
            for name, content in damaged.items():
                file.writestr(name, content)
        return check(["release", "near.xlsx", *words, "--dry-run"]) == 0

    try_all("workbooks", attempt)
