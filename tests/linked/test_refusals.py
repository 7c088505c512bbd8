"""Every wrong combination about linked records: one sentence, exit code 2, nothing charged and
nothing written.
"""

import json
import shlex

import numpy as np
import pytest

from semidp.cli import run
from semidp.promise.accounting.ledger import Ledger
from semidp.promise.tradeoff.budget import Budget
from tests.linked.test_release import homes_and_persons

LINKED = "--units homes.csv --link home --protect member --most-members 6 --nest state,zone"
LEVELS = "--levels sex=f,m --bins age=0,18,65,120"
TABLES = "--table zone,sex,age --table units:zone,size"
GOOD = f"{LINKED} {TABLES} --exact units:zone {LEVELS}"
UNIT = GOOD.replace("--protect member", "--protect unit")
TYPED = f"{GOOD.replace('size', 'size,type')} --levels type=alone,family --set derived=type"
SPLIT = GOOD.replace(" --bins age=0,18,65,120", "").replace("zone,sex,age", "zone,sex")
QUARTERS = (
    f"{SPLIT.replace('zone,sex', 'zone,tenure,sex')} --levels tenure=own,rent --set least=0 --set"
    " quarters=tenure=rent"
)

# what is asked for, by what is said
ASKED = {
    "need --link": GOOD.replace("--link home ", ""),
    "need --protect": GOOD.replace("--protect member ", ""),
    "need --most-members": GOOD.replace("--most-members 6 ", ""),
    "a member or a unit, not 'home'": GOOD.replace("--protect member", "--protect home"),
    "is 0 or 1": f"{GOOD} --set least=2",
    "between 1 and 100": GOOD.replace("--most-members 6", "--most-members 101"),
    "lies between 1 and 100": GOOD.replace("--most-members 6", "--most-members 0"),
    "works only with --units": GOOD.replace("--units homes.csv ", "").replace(
        "--most-members 6 ", ""
    ),
    "count, where and id": f"{GOOD} --where 'age < 3'",
    "count, where and id are not supported": f"{GOOD} --count age",
    "--id and --units cannot be given together": f"{GOOD} --id home",
    "one table of members and one of units": (
        GOOD.replace("--table zone,sex,age ", "").replace(LEVELS, "")
    ),
    "at least one table of members": GOOD.replace("--table units:zone,size", ""),
    "worst-case or exchange": f"{GOOD} --adjacency 3",
    "linked records have the adjacency": f"{GOOD} --adjacency definition",
    "not a depth of a nested feature": f"{GOOD} --partition zone --out parts",
    "only tables are built": f"{GOOD} --group zone --mean age --bounds age=0,99",
    "only aggregates ask what a column holds": f"{GOOD} --read-as age=1.234,5",
    "structural zeros": f"{GOOD.replace(LEVELS, '')} --schema schema.toml",
    "asked for twice": f"{GOOD} --table units:zone,size",
    # promises that are not known
    "at most one exact total of members": f"{SPLIT} --exact state --exact tenure",
    "share a feature": f"{GOOD} --exact state,sex --exact zone",
    "two exact totals of members share": f"{GOOD} --exact sex,age --exact state,age",
    "are not known for whole units": f"{UNIT} --exact zone",
    "exact totals of units share": f"{UNIT} --exact units:zone,tenure --exact units:tenure,type",
    "exact totals of units are by their own": f"{GOOD} --exact units:size",
    "by their own features": f"{TYPED} --exact units:type",
    "publish them exactly": SPLIT.replace("--exact units:zone", "--levels-from-data"),
    "is derived from the members": f"{TYPED.replace('zone,sex,age', 'zone,age,sex,type')}",
    "'size' is derived": GOOD.replace("zone,sex,age", "zone,age,sex,size"),
    "by several features of units": (
        f"{SPLIT} --table units:tenure,size --table tenure --exact units:tenure --exact state"
    ),
    "no promise about a whole unit": QUARTERS.replace("--protect member", "--protect unit"),
    "declare least = 0 with quarters": QUARTERS.replace("--set least=0 ", ""),
    "in tables of members alone": QUARTERS.replace("units:zone,size", "units:zone,tenure,size"),
    "some table of members": (
        QUARTERS.replace("zone,tenure,sex", "zone,sex").replace("--levels tenure=own,rent ", "")
    ),
    "cannot be a kind of quarters": QUARTERS.replace(
        "--set quarters=tenure=rent", "--set quarters=tenure=castle"
    ),
    "all levels of 'tenure' but one": QUARTERS.replace("tenure=own,rent ", "tenure=own,rent,none "),
    "takes NAME=…, such as": QUARTERS.replace(
        "--set quarters=tenure=rent", "--set quarters=tenure"
    ),
    # names
    "there is no column 'colour'": GOOD.replace("units:zone,size", "units:zone,size,colour"),
    "members: there is no column 'house'": GOOD.replace("--link home", "--link house"),
    "members: there is no column 'type'": GOOD.replace("--link home", "--link type"),
    "units: there is no column 'age'": GOOD.replace("--link home", "--link age"),
    "there is no column 'typ'": f"{TYPED.replace('--set derived=type', '--set derived=typ')}",
    "are not public": TYPED.replace("--levels type=alone,family ", ""),
    "there is no file": GOOD.replace("homes.csv", "castles.csv"),
    "only at a database address": GOOD.replace("--units homes.csv", "--set units_from=homes"),
    "every number from the least to the most": f"{GOOD} --levels size=1,2,3,4,5+",
    # aggregates
    "needs the levels": f"{GOOD} --set 'aggregate=old=max(age)'",
    "aggregates nothing": (
        f"{GOOD.replace('size', 'size,old')} --levels old=1 --set 'aggregate=old=age'"
    ),
    "no order": f"{GOOD.replace('size', 'size,old')} --levels old=1 --set 'aggregate=old=first(age)'",
    "besides the link": (
        f"{GOOD.replace('size', 'size,old')} --levels old=1 --set 'aggregate=old=max(home)'"
    ),
    "'old' has values not among": (
        f"{GOOD.replace('size', 'size,old')} --levels old=1 --set 'aggregate=old=max(age)'"
        " --read-as age=integer"
    ),
    "(--read-as age=integer, decimal or text)": (
        f"{GOOD.replace('size', 'size,old')} --levels old=1 --set 'aggregate=old=max(age)'"
    ),
    "there is no column 'agee'": (
        f"{GOOD.replace('size', 'size,old')} --levels old=1 --set 'aggregate=old=max(age)'"
        " --read-as agee=integer"
    ),
    "computed here": (
        f"{GOOD.replace('size', 'size,type')} --levels type=1 --set 'aggregate=type=max(age)'"
    ),
    # budgets
    "units:tables do": f"{GOOD} --set share=homes=3",
    "keep one of them": f"{GOOD} --set share=tables=3 --target-error zone,sex,age=3",
    "no table that shares the budget": f"{GOOD} --target-error units:zone=3",
}
BUDGETS = {"leave one of them out": "", "no table that shares the budget": ""}

PERSONS, HOMES = homes_and_persons()


SINGLES = [home for home in HOMES["home"] if (PERSONS["home"] == home).sum() == 1]
EMPTIED, FILLED = SINGLES[:2]


def _first(values, value):
    column = np.array(values, dtype=object)
    column[0] = value
    return column


# what is wrong with the records, by what is said
RECORDS = {
    "of a member names no unit": ("persons", {"home": _first(PERSONS["home"], "elsewhere")}),
    "names a unit twice": ("homes", {"home": _first(HOMES["home"], "h1")}),
    "missing values among the members": ("persons", {"home": _first(PERSONS["home"], "")}),
    "missing values among the units": ("homes", {"home": _first(HOMES["home"], "")}),
    "a unit has no member": (
        "persons",
        {"home": np.where(PERSONS["home"] == EMPTIED, FILLED, PERSONS["home"])},
    ),
    "more members than declared": (
        "persons",
        {"home": np.where(np.arange(len(PERSONS["home"])) < 9, "h5", PERSONS["home"])},
    ),
    "another 'zone' than its unit": ("persons", {"zone": ["A1"] * len(PERSONS["home"])}),
    "'type' has values not among": ("homes", {"type": _first(HOMES["type"], "castle")}),
    "'sex' has values not among": ("persons", {"sex": _first(PERSONS["sex"], "castle")}),
    "lies in more than one level of 'state'": ("homes", {"state": _first(HOMES["state"], "B")}),
}


def _write(path, columns):
    rows = zip(*(list(column) for column in columns.values()), strict=True)
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _write(tmp_path / "persons.csv", PERSONS)
    _write(tmp_path / "homes.csv", HOMES)
    (tmp_path / "schema.toml").write_text(
        '[[feature]]\nname = "sex"\nlevels = ["f", "m"]\n[[feature]]\nname = "age"\nbins = [0, 18,'
        ' 65, 120]\n[[structural_zero]]\nsex = "f"\nage = "0 to <18"\n'
    )
    Ledger.create(tmp_path / "ledger.json", Budget.zcdp(9))
    return tmp_path


def refused(words, folder, capsys):
    before = (folder / "ledger.json").read_text()
    capsys.readouterr()
    code = run(
        [
            "release",
            "persons.csv",
            *shlex.split(words),
            "--ledger",
            "ledger.json",
            "--out",
            "release",
        ]
    )
    printed = capsys.readouterr().err
    assert code == 2, printed
    (sentence,) = [line for line in printed.splitlines() if not line.startswith("warning")]
    assert not (folder / "release").exists()
    assert (folder / "ledger.json").read_text() == before
    assert json.loads(before)
    return sentence


@pytest.mark.few(1)
@pytest.mark.parametrize("said", ASKED)
def test_what_is_wrongly_asked_for_is_one_sentence(folder, capsys, said):
    budget = BUDGETS.get(said, "--rho 1")
    assert said in refused(f"{ASKED[said]} {budget}", folder, capsys)


@pytest.mark.parametrize("said", RECORDS)
def test_records_that_contradict_what_is_declared_are_one_sentence(folder, capsys, said):
    kind, columns = RECORDS[said]
    _write(folder / f"{kind}.csv", {**(PERSONS if kind == "persons" else HOMES), **columns})
    sentence = refused(f"{TYPED} --rho 1", folder, capsys)
    assert said in sentence
    # nobody is named, and nothing that a record holds
    assert not any(word in sentence for word in ("castle", "elsewhere", "h0", "h1", "h5"))


def test_so_many_wrong_combinations_are_tried():
    assert len(ASKED) + len(RECORDS) >= 65


@pytest.mark.long
def test_the_same_without_what_is_wrong_is_released(folder, capsys):
    """Else the sentences above could be about something else."""
    for number, words in enumerate((GOOD, UNIT, TYPED, QUARTERS, SPLIT)):
        asked = [*shlex.split(words), "--rho", "1", "--out", f"release-{number}"]
        assert run(["release", "persons.csv", *asked]) == 0, (words, capsys.readouterr().err)
