"""``semidp analyze``: its document for machines, its lines for people, its errors."""

import json
import math
import re
from importlib.resources import files
from pathlib import Path

import pytest

from semidp.cli import run

OCCUPATIONS = str(files("semidp") / "data" / "occupational_status.csv")
ADMISSIONS = str(files("semidp") / "data" / "ucb_admissions.csv")
BOTH = [
    "--table",
    "origin,destination",
    "--invariant",
    "origin",
    "--invariant",
    "destination",
    "--count",
    "count",
]
THREE = ["--table", "admit,gender,dept", "--count", "count"]
PAIRS = ["--invariant", "admit,gender", "--invariant", "gender,dept", "--invariant", "admit,dept"]


def document(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert run(["analyze", *words, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, OCCUPATIONS, *BOTH)
    assert found["schema_version"] == 1
    assert (found["n"], found["cells"]) == (3498, 64)
    assert found["invariants"] == [["origin"], ["destination"]]
    a = found["a"]
    assert (a["worst_case"], a["definition"], a["bound"]) == (3, 2, 3)
    assert "disjoint margins" in a["method"]
    space = found["sensitivity"]
    assert {"a": 3, "l1": 6, "linf": 1, "dimension": 49, "exact": True}.items() <= space.items()
    assert space["l2"] == pytest.approx(math.sqrt(6))
    assert found["naive"] == {"l1": 6, "l2": pytest.approx(3 * math.sqrt(2)), "linf": 3}
    witness = found["witness"]
    assert set(witness) == {"record", "wants", "others"}
    assert len(witness["others"]) == 2
    assert set(witness["record"]) == {"origin", "destination"}


def test_the_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["analyze", OCCUPATIONS, *BOTH]) == 0
    text = capsys.readouterr().out
    assert "3 in the worst case, 2 if the paper's definition is read literally" in text
    assert "Δ1 = 6, Δ2 = 2.449, Δ∞ = 1 (exact), dimension 49" in text
    assert text.count("also moves") == 2


@pytest.mark.parametrize(
    ("invariants", "a"),
    [
        (["--invariant", "admit", "--invariant", "gender", "--invariant", "dept"], 4),
        ([*PAIRS[:2], "--invariant", "dept"], 3),
    ],
)
def test_admissions(capsys: pytest.CaptureFixture[str], invariants: list[str], a: int) -> None:
    assert document(capsys, ADMISSIONS, *THREE, *invariants)["a"]["worst_case"] == a


def test_all_pairs_with_a_feature_of_two_levels_have_a_bound(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert document(capsys, ADMISSIONS, *THREE, *PAIRS)["a"]["bound"] == 5
    found = document(capsys, ADMISSIONS, *THREE, *PAIRS, "--a", "4", "--quiet")
    assert found["sensitivity"]["l2"] == pytest.approx(math.sqrt(8))
    assert found["warnings"]


def test_an_a_too_small_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["analyze", ADMISSIONS, *THREE, *PAIRS, "--a", "2", "--quiet"]) == 2
    assert "give a larger a" in capsys.readouterr().err


def test_an_a_below_the_worst_case_is_allowed_with_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert (
        run(["analyze", OCCUPATIONS, *BOTH, "--adjacency", "definition", "--format", "json"]) == 0
    )
    said = capsys.readouterr()
    assert "below the worst case" in said.err
    assert json.loads(said.out)["sensitivity"]["l2"] == 2


def test_a_fixed_table_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--table", "admit,dept", "--count", "count", "--invariant", "admit,dept"]
    assert document(capsys, ADMISSIONS, *words)["published_exactly"] is True
    assert run(["analyze", ADMISSIONS, *words]) == 0
    assert "everything in it is published exactly" in capsys.readouterr().out


def test_a_table_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["analyze", OCCUPATIONS]) == 2
    assert "--table" in capsys.readouterr().err


def test_mechanisms_go_by_the_names_that_a_release_takes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = document(capsys, OCCUPATIONS, *BOTH)["mechanisms"]
    assert {entry["name"] for entry in found} == {"gaussian", "laplace", "l2", "knorm", "lattice"}
    assert {"scale", "expected_l2", "claim", "law"} <= set(found[0])
    assert found[0]["budget"] == {"kind": "pure", "epsilon": 1, "delta": 0}
    given = document(capsys, OCCUPATIONS, *BOTH, "--epsilon", "1", "--delta", "1e-6")["mechanisms"]
    assert all(
        entry["budget"] == {"kind": "approximate", "epsilon": 1, "delta": 1e-6} for entry in given
    )


def test_without_data_it_answers_from_public_totals(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text("sex,region\nf,n\nm,s\nm,n\nf,s\nm,s\n")
    Path("sexes.csv").write_text("sex,count\nf,2\nm,3\n")
    Path("regions.csv").write_text("region,count\nn,2\ns,3\n")
    words = ["--table", "sex,region", "--mu", "1"]
    both = ["--invariant", "sex", "--invariant", "region"]
    public = document(capsys, *words, "--totals", "sexes.csv", "--totals", "regions.csv")
    assert public == document(capsys, "people.csv", *words, *both)
    Path("schema.toml").write_text(
        '[[feature]]\nname = "sex"\nlevels = ["f", "m"]\n[[feature]]\nname = "region"\nlevels ='
        ' ["n", "s"]\n'
    )
    bound = document(capsys, "--schema", "schema.toml", *words, *both)
    assert (bound["n"], bound["totals"], bound["adjacency"]) == (
        None,
        "any",
        {"kind": "ball", "a": 3},
    )
    assert (
        bound["mechanisms"][0]["errors"]["standard_error"]
        >= public["mechanisms"][0]["errors"]["standard_error"]
    )
    assert bound["sensitivities"]["exchange"]["a"] == 3
    assert run(["analyze", "--schema", "schema.toml", *words, *both]) == 0
    assert "upper bounds for all of them" in capsys.readouterr().out


def test_its_document_feeds_guarantee(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = [
        "--levels",
        "sex=f,m",
        "--levels",
        "region=n,s,w",
        "--invariant",
        "sex",
        "--invariant",
        "region",
    ]
    assert run(["analyze", "--table", "sex,region", *words, "--format", "json"]) == 0
    file = tmp_path / "analysis.json"
    file.write_text(capsys.readouterr().out)
    assert run(["guarantee", "--rho", "1", "--analysis", str(file), "--format", "json"]) == 0
    fed = json.loads(capsys.readouterr().out)
    assert run(["guarantee", "--rho", "1", *words, "--format", "json"]) == 0
    asked = json.loads(capsys.readouterr().out)
    assert fed["a_from"].startswith("the analysis")
    assert {key: fed[key] for key in ("a", "rho", "epsilon_tight")} == {
        key: asked[key] for key in ("a", "rho", "epsilon_tight")
    }
    assert run(["guarantee", "--rho", "1", "--analysis", str(file), "--a", "2"]) == 2
    assert "give it alone" in capsys.readouterr().err
    file.write_text("{}")
    assert run(["guarantee", "--rho", "1", "--analysis", str(file)]) == 2
    assert "is not what `semidp analyze --format json` prints" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--table", "sex,region", "--levels", "sex=f,m"],
            "the levels of 'region' must be declared",
        ),
        ([OCCUPATIONS, *BOTH, "--totals", "x.csv"], "give DATA or --totals, not both"),
    ],
)
def test_what_is_missing_without_data(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert run(["analyze", *words]) == 2
    assert said in capsys.readouterr().err


def test_analyze_and_release_compare_with_ordinary_privacy_alike(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    times = []
    for words in (["analyze"], ["release", "--out", str(tmp_path / "out")]):
        assert run([*words, OCCUPATIONS, *BOTH, "--mu", "1"]) == 0
        said = re.search(
            r"[Oo]rdinary differential privacy has (\S+) times the error at the same guarantee",
            capsys.readouterr().out,
        )
        assert said is not None
        times.append(said[1])
    assert times[0] == times[1]


def test_the_error_of_a_cell_comes_before_the_distance_of_the_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = document(capsys, OCCUPATIONS, *BOTH, "--mu", "1")["mechanisms"][0]
    errors = found["errors"]
    assert errors["standard_error"] * 8 == pytest.approx(found["expected_l2"])  # 64 cells
    assert errors["half_width"] == pytest.approx(1.96 * errors["standard_error"], rel=2e-3)
    assert errors["smallest"] <= errors["standard_error"] <= errors["largest"]
    assert run(["analyze", OCCUPATIONS, *BOTH, "--mu", "1"]) == 0
    noise = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("noise"))
    assert noise.index("standard error") < noise.index("95% within") < noise.index("whole table")
    assert run(["release", OCCUPATIONS, *BOTH, "--mu", "1", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert said.index("standard error") < said.index("95% within") < said.index("whole table")
    assert run(["release", OCCUPATIONS, *BOTH, "--mu", "1", "--dry-run", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["tables"][0]["errors"] == errors
