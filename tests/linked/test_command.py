"""`semidp release` of two linked sources: options, plans, dry runs, and sentences for what is
wrong.
"""

import json
import shlex

import pytest

from semidp.cli import run
from tests.linked.test_release import homes_and_persons

ASKED = (
    "--link home --protect member --most-members 6 --nest state,zone --table zone,sex,age --table"
    " units:zone,size,type --set derived=type --exact units:zone --levels sex=f,m --levels"
    " type=alone,family --bins age=0,18,65,120"
)


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, columns in zip(("persons", "homes"), homes_and_persons(), strict=True):
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def command(words, capsys):
    code = run(["release", "persons.csv", *shlex.split(words)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_a_release_says_that_both_kinds_agree(files, capsys):
    code, out, err = command(f"--units homes.csv {ASKED} --rho 1 --out release", capsys)
    assert code == 0, err
    assert "sizes times units is the number of members in 5 of 5 places" in out
    assert "does not protect" in err
    assert (files / "release" / "units-zone-size-type.csv").exists()
    document = json.loads((files / "release" / "release.json").read_text())
    assert document["plan"]["units"]["exact"] == [["zone"]]
    assert document["linked"][0]["agreeing"] == 5


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_dry_run_protects_units(files, capsys, form):
    """The most members of a unit are no number of records of a person."""
    whole = ASKED.replace("--protect member", "--protect unit")
    code, out, err = command(f"--units homes.csv {whole} --rho 1 --dry-run --format {form}", capsys)
    assert code == 0, err
    assert "units-zone-size-type" in out


def test_a_dry_run_and_a_plan(files, capsys):
    code, out, err = command(
        f"--units homes.csv {ASKED} --set weight=units:zone,size,type=2 --rho 1 --dry-run", capsys
    )
    assert code == 0, err
    assert "units-zone-size-type: standard error" in out
    assert "nothing was drawn" in out
    code, _, err = command(f"--units homes.csv {ASKED} --rho 1 --out first -q", capsys)
    assert code == 0, err
    plan = json.loads((files / "first" / "release.json").read_text())["plan"]
    (files / "plan.json").write_text(json.dumps(plan))
    code, out, err = command("--plan plan.json --units homes.csv --out second", capsys)
    assert code == 0, err
    code, _, err = command("--plan plan.json --out third", capsys)
    assert code == 2
    assert "--units FILE" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (ASKED.replace("--link home ", ""), "need --link"),
        (ASKED.replace("--protect member ", ""), "need --protect"),
        (ASKED.replace("--most-members 6 ", ""), "need --most-members"),
        (ASKED.replace("--protect member", "--protect home"), "a member or a unit"),
        (f"{ASKED} --set least=2", "0 or 1"),
        (f"{ASKED} --where age<3", "where"),
        (ASKED.replace("--table zone,sex,age", ""), "at least one table of members"),
        (f"{ASKED} --adjacency 3", "worst-case or exchange"),
        (f"{ASKED} --partition zone --out parts", "not a depth of a nested feature"),
        (f"{ASKED} --group zone --mean age --bounds age=0,99", "only tables are built"),
    ],
)
def test_what_is_wrong_is_one_sentence(files, capsys, words, said):
    code, _, err = command(f"--units homes.csv {words} --rho 1 --out release", capsys)
    assert code == 2
    assert said in err
    assert not (files / "release").exists()


def test_units_have_options_of_their_own(files, capsys):
    code, _, err = command("--link home --table sex --levels sex=f,m --rho 1 --out release", capsys)
    assert code == 2
    assert "works only with --units" in err
