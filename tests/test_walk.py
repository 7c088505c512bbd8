"""Every module that a release of one table enters, in order: docs/how_it_works.md, checked by a
profiler.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "how_it_works.md").read_text(encoding="utf-8")
HEADINGS = (
    "### Every module of one table",
    "### What `release.save` adds",
    "### What the command adds",
)
MOST = 45

WALKS = '''
import json, sys
from pathlib import Path
import pandas
import semidp as sd
from semidp.accounting.ledger import Ledger
from semidp.cli import run
from semidp.noise import SeededRandomness

entered = {}

def is_importing(frame):
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals["__name__"].startswith("semidp"):
            return True
        frame = frame.f_back
    return False

def note(frame, event, _):
    if event != "call":
        return
    module = frame.f_globals.get("__name__", "")
    if module in entered or not module.startswith("semidp"):
        return
    generated = frame.f_code.co_filename.startswith("<")
    if not generated and not is_importing(frame):
        entered[module] = None

def walked(action):
    """Return what an action returns, and the modules that it enters for the first time."""
    before = len(entered)
    sys.setprofile(note)
    try:
        value = action()
    finally:
        sys.setprofile(None)
    return value, [module.removeprefix("semidp.") for module in list(entered)[before:]]

rows = json.loads(sys.argv[1])
people = pandas.DataFrame({"sex": [row[0] for row in rows], "region": [row[1] for row in rows]})
people.to_csv("people.csv", index=False)
Ledger.create("privacy.json", sd.Budget.gdp(2))
table = sd.table("sex", "region")
words = SeededRandomness(int(sys.argv[2]))
release, first = walked(lambda: sd.release(people, table, exact=["sex", "region"], mu=1, randomness=words))
_, saved = walked(lambda: release.save("saved"))
code, commanded = walked(lambda: run(sys.argv[3:]))
assert code == 0
print(json.dumps([first, saved, commanded]))
'''
COMMAND = (
    "release people.csv --table sex,region --exact sex --exact region --mu 1 --ledger privacy.json"
    " --seed 1 --out done"
)
FIVE = ["fn", "fs", "mn", "ms", "fn"]
MANY = [f"{'fmm'[n % 3]}{'nswe'[n * n % 4 if n % 5 else n % 4]}" for n in range(400)]


def walks(folder: Path, rows: list[str], seed: int) -> list[list[str]]:
    """Return the modules that the release, its save and the command enter, each after the other, in
    a fresh process.
    """
    command = [sys.executable, "-c", WALKS, json.dumps(rows), str(seed), *COMMAND.split()]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lists: list[list[str]] = json.loads(done.stdout.splitlines()[-1])
    return lists


def listed(heading: str) -> list[str]:
    """Return the modules that the page lists under a heading."""
    section = PAGE.split(heading + "\n", 1)[1].split("\n#", 1)[0]
    return re.findall(r"^- `([\w.]+)`: ", section, flags=re.MULTILINE)


@pytest.mark.few(1)
@pytest.mark.parametrize(("rows", "seed"), [(FIVE, 1), (MANY, 2)], ids=["five", "many"])
def test_the_page_lists_every_module_that_one_table_enters(
    tmp_path: Path, rows: list[str], seed: int
) -> None:
    expected = [listed(heading) for heading in HEADINGS]
    assert walks(tmp_path, rows, seed) == expected
    assert 30 <= len(expected[0]) <= MOST


def test_a_module_is_listed_once_and_is_a_file() -> None:
    package = Path(__file__).parent.parent / "src" / "semidp"
    every = [module for heading in HEADINGS for module in listed(heading)]
    assert len(set(every)) == len(every)
    for module in every:
        path = package.joinpath(*module.split("."))
        assert path.with_suffix(".py").exists() or (path / "__init__.py").exists(), module
