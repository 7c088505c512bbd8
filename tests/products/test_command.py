"""A product from the command line: shares, weights, objectives; nothing that was typed is dropped
silently.
"""

import json

import numpy as np
import pytest

from semidp import Release
from semidp.cli import run as semidp

LEVELS = {"sex": "fm", "age": "yio", "region": "nswe"}


@pytest.fixture
def said(tmp_path, capsys):
    """Run release on a small file; return what is printed, or the sentence that it fails with."""
    rng = np.random.default_rng(7)
    data = {
        name: [levels[i] for i in rng.integers(len(levels), size=300)]
        for name, levels in LEVELS.items()
    }
    data["pay"] = [str(i % 50) for i in range(300)]
    file = tmp_path / "people.csv"
    file.write_text(
        "\n".join([",".join(data), *map(",".join, zip(*data.values(), strict=True))]) + "\n"
    )

    def run(*words: object, code: int = 0) -> str:
        capsys.readouterr()
        fixed = ("--invariant", "sex", "--levels-from-data")
        assert semidp(["release", str(file), *fixed, *map(str, words)]) == code
        found = capsys.readouterr()
        if code == 2:
            assert found.out == ""
            assert len(found.err.strip().splitlines()) == 1
        return found.err if code == 2 else found.out

    return run


TWO = ("--table", "sex,age", "--table", "age,region")
MEAN = ("--group", "sex", "--mean", "pay", "--bounds", "pay=0,50")
DRY = ("--dry-run", "--format", "json")


def errors(text: str) -> dict[str, dict[str, float]]:
    return {table["name"]: table for table in json.loads(text)["products"][0]["tables"]}


def test_a_weight_of_4_about_halves_the_variance_of_a_table(said):
    even = errors(said(*TWO, "--mu", 1, *DRY))
    heavy = errors(said(*TWO, "--mu", 1, "--set", "weight=region,age=4", *DRY))
    share = (
        heavy["age-region"]["rms_standard_error"] / even["age-region"]["rms_standard_error"]
    ) ** 2
    assert 0.4 < share < 1
    assert heavy["sex-age"]["rms_standard_error"] > even["sex-age"]["rms_standard_error"]


def test_the_largest_error_is_smaller_where_it_is_the_objective(said):
    total = errors(said(*TWO, "--mu", 1, *DRY))
    largest = errors(said(*TWO, "--mu", 1, "--set", "objective=largest", *DRY))
    worst = [
        max(table["largest_standard_error"] for table in found.values())
        for found in (total, largest)
    ]
    assert worst[1] < worst[0]
    squares = [
        sum(t["cells"] * t["rms_standard_error"] ** 2 for t in found.values())
        for found in (total, largest)
    ]
    assert squares[0] < squares[1]


@pytest.mark.long
def test_how_the_budget_is_shared_with_other_statistics_is_stated_and_can_be_set(said, tmp_path):
    both = (*TWO, *MEAN)
    text = said(*both, "--rho", 1, "--out", tmp_path / "even")
    assert "budget     0.5-zCDP for 2 tables together" in text
    assert "budget     0.5-zCDP for mean-pay" in text
    page = (tmp_path / "even" / "report.html").read_text()
    assert "0.5-zCDP for 2 tables together" in page
    text = said(*both, "--rho", 1, "--set", "share=tables=3", "--dry-run")
    assert "budget     0.75-zCDP for 2 tables together" in text
    assert "budget     0.25-zCDP for mean-pay" in text
    text = said(
        *both, "--mu", 1, "--set", "share=mean-pay=1/3", "--set", "share=tables=1", "--dry-run"
    )
    assert "budget     μ = 0.866026 (Gaussian DP) for 2 tables together" in text
    assert "budget     μ = 0.5 (Gaussian DP) for mean-pay" in text
    document = json.loads(said(*both, "--rho", 1, "--set", "share=tables=3", *DRY))
    assert document["products"][0]["budget"]["rho"] == 0.75
    assert document["groups"][0]["budget"]["rho"] == 0.25
    assert document["budget"]["rho"] == 1


def test_pure_epsilon_is_table_by_table_and_says_so(said, tmp_path):
    text = said(*TWO, "--epsilon", 1, "--out", tmp_path / "pure")
    assert "2 tables were measured one by one, each with a budget of its own" in text
    assert "budget     pure 0.5-DP for sex-age" in text
    assert "measured one by one" in (tmp_path / "pure" / "report.html").read_text()
    assert len(Release.load(tmp_path / "pure").results) == 2


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((*TWO, "--mu", 1, "--set", "mechanism=gaussian"), "leave the mechanism out"),
        (
            (*TWO, "--mu", 1, "--set", "weight=sex,region=2"),
            "no table that shares the budget has these features",
        ),
        ((*TWO, "--mu", 1, "--set", "weight=sex,age=0"), "above 0"),
        (
            (*TWO, "--mu", 1, "--set", "weight=sex,age=2", "--set", "weight=age,sex=2"),
            "given twice",
        ),
        (
            (*TWO, "--epsilon", 1, "--set", "weight=sex,age=2"),
            "a weight is for tables that share one",
        ),
        (
            ("--table", "sex,age", "--mu", 1, "--set", "weight=sex,age=2"),
            "a weight is for tables that share one",
        ),
        (
            ("--table", "sex,age", "--mu", 1, "--set", "objective=largest"),
            "--set objective=… is for several tables",
        ),
        (
            (*TWO, "--epsilon", 1, "--set", "objective=largest"),
            "an objective is for several tables",
        ),
        ((*TWO, "--mu", 1, "--set", "objective=least"), "must be one of total, largest"),
        ((*TWO, "--mu", 1, "--set", "share=tables=2"), "tables has all of it here"),
        ((*TWO, "--mu", 1, "--set", "share=mean-pay=2"), "tables has all of it here"),
        ((*TWO, "--target-error", "sex,age=5", "--set", "objective=largest"), "keep one of them"),
        ((*MEAN, "--mu", 1, "--set", "fit=none"), "--set fit=… works only with --table"),
    ],
)
def test_what_cannot_be_meant_is_refused(said, tmp_path, words, reason):
    assert reason in said(*words, "--out", tmp_path / "out", code=2)
    assert not (tmp_path / "out").exists()


def test_a_plan_stands_for_itself(said, tmp_path, capsys):
    plan, file = tmp_path / "plan.toml", tmp_path / "people.csv"
    tables = (
        '[[table]]\nfeatures = ["sex", "age"]\n[[table]]\nfeatures = ["age", "region"]\nweight'
        " = 4\n"
    )
    plan.write_text(f"levels_from_data = true\n{tables}")
    alone = ["release", str(file), "--plan", str(plan), "--mu", "1", "--dry-run", "--quiet"]
    assert semidp(alone) == 0
    assert "age-region: standard error" in capsys.readouterr().out
    for words in (
        ("--set", "weight=sex,age=2"),
        ("--all-pairs", "sex,age"),
        ("--set", "share=tables=2"),
    ):
        assert semidp([*alone, *words]) == 2
        assert "--plan already says" in capsys.readouterr().err
