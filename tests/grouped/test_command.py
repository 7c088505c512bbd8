"""``semidp release --group …``: the options, what they write, and how they refuse."""

import json
from pathlib import Path

import pytest

from semidp.cli import run
from semidp.present.release import Release


@pytest.fixture
def pupils(tmp_path: Path) -> str:
    rows = [
        f"{school},{sex},{score}"
        for school, n in (("n", 30), ("s", 20))
        for k in range(n)
        for sex, score in [("fm"[k % 2], k)]
    ]
    file = tmp_path / "pupils.csv"
    file.write_text("school,sex,score\n" + "\n".join(rows) + "\n")
    return str(file)


@pytest.fixture
def call(monkeypatch, capfd):
    """Run the command line in this process; return its exit code and all it printed."""
    monkeypatch.setenv("NO_COLOR", "1")

    def calling(*words: str) -> tuple[int, str]:
        capfd.readouterr()
        code = run(list(words))
        printed = capfd.readouterr()
        return code, printed.out + printed.err

    return calling


def test_means_by_school(call, pupils, tmp_path):
    out = tmp_path / "out"
    code, text = call(
        "release",
        pupils,
        "--group",
        "school",
        "--mean",
        "score",
        "--bounds",
        "score=0,40",
        "--mu",
        "1",
        "--out",
        str(out),
    )
    assert code == 0
    assert "exact      counts of school" in text
    assert "with noise mean of score by school: 2 groups" in text
    release = Release.load(out)
    (group,) = release.groups
    assert group.request.outcome.steps == 800_000
    assert release.guarantee.adjacency.a == 2
    assert release.private
    assert (
        (out / "mean-score.csv")
        .read_text()
        .startswith("school,count,mean,standard_error,lower,upper,noisy_steps\nn,30,")
    )
    assert "Published mean of score by school" in (out / "report.html").read_text()
    assert "mean of score" in call("show", str(out))[1]


def test_a_table_and_statistics_share_the_budget(call, pupils, tmp_path):
    code, text = call(
        *(
            "release",
            pupils,
            "--table",
            "school,sex",
            "--invariant",
            "school",
            "--invariant",
            "sex",
        ),
        *(
            "--group",
            "school",
            "--sum",
            "score",
            "--bounds",
            "score=0,40",
            "--set",
            "grid=score=80",
            "--rho",
            "1",
        ),
        *("--seed", "3", "--out", str(tmp_path / "out"), "--format", "json", "--quiet"),
    )
    assert code == 0
    document = json.loads(text)
    assert document["guarantee"] == {"kind": "zcdp", "rho": "1"}
    assert [entry["budget"]["rho"] for entry in (*document["tables"], *document["groups"])] == [
        0.5,
        0.5,
    ]
    assert document["groups"][0]["unit"] == 0.5


def test_a_rehearsal_draws_nothing(call, pupils):
    words = (
        "--mean",
        "score",
        "--bounds",
        "score=0,1",
        "--set",
        "grid=score=1",
        "--mu",
        "1",
        "--dry-run",
    )
    code, text = call("release", pupils, "--group", "school", *words)
    assert code == 0
    assert "rounded gaussian for the sums behind mean-score: scale 2 in each" in text
    assert "nothing was drawn or written" in text


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ["--group", "school", "--mean", "score"],
            "needs declared bounds, two numbers (--bounds score=0,100)",
        ),
        (["--group", "school"], "--group works only with --mean"),
        (
            ["--group=school", "--median=score", "--bounds=score=0,1", "--set=level=0.9"],
            "--median and --quantile take --set quantile_level=…",
        ),
        (
            ["--group", "school", "--proportion", "score"],
            "needs zeros and ones, and 'score' holds other values",
        ),
        (
            ["--group", "school", "--proportion", "score", "--bounds", "age=0,1"],
            "names 'age', and no statistic",
        ),
        (
            ["--group", "school", "--mean", "sex", "--bounds", "sex=0,1"],
            "outcome 'sex' has values that are not numbers",
        ),
        (["--group", "town", "--mean", "score", "--bounds", "score=0,1"], "no column 'town'"),
        (["--group", "school", "--mean", "score", "--bounds", "score=9,1"], "must be increasing"),
        ([], "say what to release"),
    ],
)
def test_refusals_are_one_sentence(call, pupils, tmp_path, words, reason):
    code, text = call("release", pupils, *words, "--mu", "1", "--out", str(tmp_path / "out"))
    assert code == 2
    assert reason in " ".join(text.split())
    assert not (tmp_path / "out").exists()
