"""What the command prints, and how it ends, does not depend on which of two twins it reads."""

import contextlib
import csv
import io
import json
import os
import random
import re
import shlex

import pytest

from semidp.cli import run
from tests.twins.people import Pairs, World
from tests.twins.plans import FLAT, VALUES, draw_records, public_part

NAMES = (("sex",), ("ward",), ("kind",), ("y",), ("w",))
LEAVES = (FLAT["sex"], FLAT["ward"], FLAT["kind"], tuple(VALUES), (*VALUES[:4], (None,)))
LEVELS = {"sex": "f,m", "ward": "a,b,c", "kind": "p,q"}
ONE, BOTH, JOINT = (((1, 1),),), (((0, 1),), ((1, 1),)), (((0, 1), (1, 1)),)
COMMANDS = {
    "table": (BOTH, "--table sex,ward --exact sex --exact ward --mu 1"),
    "exchange": (JOINT, "--table sex,ward,kind --exact sex,ward --adjacency exchange --rho 1/2"),
    "condition": (ONE, "--where \"kind IN ('p', 'q')\" --table ward,sex --exact ward --epsilon 1"),
    "products": (BOTH, "--table sex,ward --table ward,kind --exact sex --exact ward --rho 1"),
    "median": (ONE, "--group ward --median y --bounds y=0,4 --set grid=y=4 --mu 1"),
    "missing": (ONE, "--group ward --mean w --bounds w=0,4 --missing w=private --mu 1"),
    "series": (
        BOTH,
        "--table sex,ward --exact sex --exact ward --mu 1 --ledger book.json --period 2026Q1",
    ),
    "refused outcome": (ONE, "--group ward --mean y --mu 1"),
    "refused missing": (ONE, "--group ward --mean w --bounds w=0,4 --mu 1"),
    "refused overlap": (
        BOTH,
        "--table sex,ward --exact sex,ward --exact ward,kind --adjacency exchange --mu 1",
    ),
}
GIVEN_AWAY = "disclosure data.csv --exact sex,ward --exact ward,kind --seconds 600"
QUICK = ("table", "median", "series", "refused outcome")
SERIES = "ledger book.json --mu 2 --series quarter --each-person 4 --exact sex --exact ward"


def listen(arguments):
    """The exit code of a command, and what it prints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    return code, out.getvalue(), err.getvalue()


def run_in(folder, world, records, command):
    """The dry run of a command in words and as JSON, then what it writes."""
    folder.mkdir()
    columns = world.rows(records)
    with (folder / "data.csv").open("w", newline="") as file:
        csv.writer(file).writerows([columns, *zip(*columns.values(), strict=True)])
    arguments = ["release", "data.csv", *shlex.split(command)]
    in_plan = ",".join(arguments).split(",")
    for name in (name for name in LEVELS if name in in_plan):
        arguments += ["--levels", f"{name}={LEVELS[name]}"]
    with contextlib.chdir(folder):
        if "--ledger" in command:
            listen(SERIES.split())
        rehearsals = [
            listen([*arguments, "--dry-run", *more]) for more in ([], ["--format", "json"])
        ]
        code, _, message = listen([*arguments, "--seed", "1", "--out", "r"])
        written = folder / "r" / "release.json"
        released = public_part(json.loads(written.read_text())) if code == 0 else message
        if "--ledger" in command:
            rehearsals.append(listen(["ledger", "book.json", "--format", "json"]))
        files = {path.name: "" for path in folder.rglob("*")}
        files |= {path.name: path.read_text() for path in folder.rglob("exact-*")}
    return rehearsals, code, released, files


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in COMMANDS],
)
def test_the_command_says_the_same_of_twins(name, tmp_path, monkeypatch):
    monkeypatch.setitem(os.environ, "COLUMNS", "100")
    blocks, command = COMMANDS[name]
    world, rng = World(NAMES, LEAVES, blocks), random.Random(1)
    records = draw_records(rng, world, 12)
    relation = "exchange" if "exchange" in command else "ball"
    pair = Pairs(world, records, relation, 2, rng).draw()
    one = run_in(tmp_path / "one", world, pair.first, command)
    assert one == run_in(tmp_path / "two", world, pair.second, command)
    assert one[1] == (2 if name.startswith("refused") else 0)
    other = draw_records(rng, World(NAMES, LEAVES, ()), 13)
    if not name.startswith("refused"):
        assert run_in(tmp_path / "other", world, other, command) != one


def test_disclosure_is_the_same_for_data_with_the_same_totals(tmp_path):
    """What exact totals give away follows from the totals: not from who is behind them."""
    blocks, rng = (((0, 1), (1, 1)), ((1, 1), (2, 1))), random.Random(2)
    world = World(NAMES[:3], LEAVES[:3], blocks)
    records, others = ([tuple(map(rng.choice, LEAVES[:3])) for _ in range(24)] for _ in range(2))
    walked = Pairs(world, records, "ball", 2, rng).walk(200)
    assert sorted(walked) != sorted(records)
    said = []
    for number, rows in enumerate((records, walked, others)):
        columns = world.rows(rows)
        (tmp_path / str(number)).mkdir()
        with contextlib.chdir(tmp_path / str(number)):
            with open("data.csv", "w", newline="") as file:
                csv.writer(file).writerows([columns, *zip(*columns.values(), strict=True)])
            levels = [f"--levels={name}={labels}" for name, labels in LEVELS.items()]
            arguments = [*GIVEN_AWAY.split(), *levels]
            said.append([listen(arguments), listen([*arguments, "--format", "json"])])
    assert said[0] == said[1] != said[2]
    assert said[0][0][0] == 0


APPROVED_PLAN = """\
invariants = ["sex", "ward"]

[[feature]]
name = "sex"
levels = ["f", "m"]

[[feature]]
name = "ward"
levels = ["a", "b", "c"]

[[table]]
features = ["sex", "ward"]
mu = "1"
"""


@pytest.mark.long
def test_approvals_cards_and_structures_are_the_same_for_twins(tmp_path, monkeypatch):
    """An approval that names exact totals lets both twins pass, and no other data. The card and
    the SDMX structure of a release tell them apart no better than its plan does.
    """
    monkeypatch.setenv("SEMIDP_SIGN_PASSWORD", "")
    world, rng = World(NAMES, LEAVES, BOTH), random.Random(1)
    records = draw_records(rng, world, 12)
    pair = Pairs(world, records, "ball", 2, rng).draw()
    others = draw_records(rng, World(NAMES, LEAVES, ()), 12)
    (tmp_path / "plan.toml").write_text(APPROVED_PLAN)
    columns = world.rows(pair.first)
    totals = []
    for name in ("sex", "ward"):
        counts = [f"{label},{columns[name].count(label)}" for label in LEVELS[name].split(",")]
        (tmp_path / f"{name}.csv").write_text("\n".join([f"{name},count", *counts]) + "\n")
        totals += ["--totals", f"{name}.csv"]
    said = []
    with contextlib.chdir(tmp_path):
        assert listen(["plan", "keys", "officer.key"])[0] == 0
        assert listen(["plan", "sign", "plan.toml", "--key", "officer.key", *totals])[0] == 0
        for number, rows in enumerate((pair.first, pair.second, others)):
            columns, out = world.rows(rows), f"r{number}"
            with open("data.csv", "w", newline="") as file:
                csv.writer(file).writerows([columns, *zip(*columns.values(), strict=True)])
            words = ["--plan", "plan.toml", "--approved", "officer.key.pub", "--write", "sdmx"]
            code, _, message = listen(["release", "data.csv", *words, "--out", out, "--quiet"])
            if code:
                said.append(message)
                continue
            card = listen(["show", out, "--card", "--format", "json"])[1]
            check = listen(["plan", "check", "plan.toml", "officer.key.pub", out])
            with open(f"{out}/sdmx-structure.xml") as file:
                structure = file.read()
            written = json.dumps([message, card, structure, check]).replace(out, "r")
            said.append(re.sub(r"\d{4}-\d\d-\d\dT[\d:+.Z]+", "now", written))
    assert said[0] == said[1]
    assert "approve" in said[2]
