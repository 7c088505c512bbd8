"""The same plan on every engine gives the same release, bit for bit where the noise is seeded."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from semidp import Budget, Feature, Margin, Plan, Release, run
from semidp.cli import run as command
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish import TableRequest
from semidp.publish.sources.duck import DuckRecords
from semidp.publish.sources.opening import Source, open_source

PLAN = Plan(
    [
        TableRequest(["sex", "age"], Budget.zcdp("1/2"), name="ages"),
        TableRequest(
            ["region", "paid", "day"], Budget.zcdp("1/4"), mechanism="lattice", name="regions"
        ),
        TableRequest(["sex", "dose"], Budget.pure(1), fit="none", name="doses"),
    ],
    [Margin("sex"), Margin("region", "paid"), Margin("day")],
    [
        Feature("region", ["01", "1", 'O\'Brien, "west"', "naïve", "none"], null_level="none"),
        Feature("age", bins=[0, 18, 65, "inf"], null_level="unknown"),
        Feature("dose", ["0.5", "1", "2", "missing"], null_level="missing"),
    ],
    where="people <> 3",
    id="id",
)
Records = Mapping[str, Sequence[Any]]


def files_of(data: Any, folder: Path) -> dict[str, str]:
    """Release with a seed; return the files of the release, without the time of day."""
    release = run(PLAN, data, SeededRandomness(7))
    release.save(folder)
    files = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    document = {**json.loads(files["release.json"]), "created": None}
    at = release.created.replace("T", " ").removesuffix("+00:00")
    assert at in files["report.html"]
    return {
        **files,
        "release.json": json.dumps(document),
        "report.html": files["report.html"].replace(at, ""),
    }


@pytest.mark.few(2)
@pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")
def test_the_same_release_everywhere(
    engine: Callable[..., Source],
    records: Records,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    here, reference = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("reference")
    with open_source(frame_of(records), where=PLAN.where, id=PLAN.id) as source:
        expected = files_of(source, reference)
    found = files_of(engine(records, where=PLAN.where, id=PLAN.id), here)
    assert found == expected


def frame_of(records: Records) -> Any:
    import pandas as pd

    return pd.DataFrame(
        {name: pd.Series(list(values), dtype=object) for name, values in records.items()}
    ).convert_dtypes()


@pytest.mark.services
@pytest.mark.parametrize(
    "store",
    [
        "postgres",
        pytest.param(
            "spark",
            marks=pytest.mark.filterwarnings(
                "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
            ),
        ),
    ],
)
def test_the_command_line_on_a_database(
    request: pytest.FixtureRequest,
    records: Records,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    store: str,
) -> None:
    from tests.engines.conftest import STORES, write_csv

    kept = {name: records[name] for name in ("id", "sex", "paid", "people")}
    address, place = STORES[store](request, tmp_path)(kept)
    write_csv(tmp_path / "records.csv", kept)
    words = [
        "--table",
        "sex,paid",
        "--invariant",
        "sex",
        "--invariant",
        "paid",
        "--rho",
        "1",
        "--seed",
        "3",
    ]
    words += ["--where", "people <> 3", "--id", "id"]
    assert (
        command(
            [
                "release",
                str(address),
                "--from",
                place["table"],
                *words,
                "--out",
                str(tmp_path / "there"),
            ]
        )
        == 0
    )
    assert (
        command(["release", str(tmp_path / "records.csv"), *words, "--out", str(tmp_path / "here")])
        == 0
    )
    assert "NOT PRIVATE" in capsys.readouterr().out
    for name in ("table.csv", "measurements.csv"):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
    for path in (tmp_path / "there").iterdir():
        assert str(address) not in path.read_text(encoding="utf-8")


SPEND = (
    "--table",
    "sex,region",
    "--invariant",
    "sex",
    "--invariant",
    "region",
    "--rho",
    "1",
    "--seed",
    "3",
)


def said(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str]:
    capsys.readouterr()
    code = command([str(word) for word in words])
    return code, capsys.readouterr().err


def exact(folder: Path, feature: str) -> list[int]:
    """Return the published margin of a feature in a release."""
    counts: list[int] = Release.load(folder).scope.dataspace.value(Margin(feature)).counts.tolist()
    return counts


def test_the_command_line_asks_for_folders_and_for_empty_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for region, sexes in (("n", "fm"), ("s", "ffm")):
        (tmp_path / "sex=m" / f"region={region}").mkdir(parents=True)
        text = "sex\n" + "".join(f"{sex}\n" for sex in sexes)
        (tmp_path / "sex=m" / f"region={region}" / "people.csv").write_text(text)
    pattern = tmp_path / "**" / "*.csv"
    code, err = said(capsys, "release", pattern, *SPEND, "--out", tmp_path / "none")
    assert (code, err) == (2, "semidp: there is no column 'region'; the columns are sex\n")
    words = ("--set", "hive_partitions=true", "--out", tmp_path / "asked")
    assert said(capsys, "release", pattern, *SPEND, *words)[0] == 0
    assert exact(tmp_path / "asked", "sex") == [3, 2]  # not what the folder says
    assert exact(tmp_path / "asked", "region") == [2, 3]
    (tmp_path / "empty.csv").write_text("sex,region\n")
    words = ("--levels", "sex=f,m", "--levels", "region=n,s", "--dry-run")
    code, err = said(capsys, "release", tmp_path / "empty.csv", *SPEND, *words)
    assert code == 2
    assert "holds no record" in err
    assert (
        said(
            capsys, "release", tmp_path / "empty.csv", *SPEND, *words, "--set", "allow_empty=true"
        )[0]
        == 0
    )
    code, err = said(capsys, "analyze", tmp_path / "asked", "--table", "sex,region")
    assert code == 2
    assert "is a release, not data" in err


@pytest.mark.parametrize("words", [("true", "false"), ("True", "FALSE"), ("1", "0")])
def test_a_proportion_of_truth_values(
    tmp_path: Path, words: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    yes, no = words
    (tmp_path / "people.csv").write_text(
        "sex,paid\n" + f"f,{yes}\n" * 300 + f"f,{no}\n" * 100 + f"m,{no}\n" * 50
    )
    asked = (
        "--group",
        "sex",
        "--proportion",
        "paid",
        "--mu",
        "1000",
        "--seed",
        "1",
        "--out",
        tmp_path / "out",
    )
    assert said(capsys, "release", tmp_path / "people.csv", *asked)[0] == 0
    (part,) = Release.load(tmp_path / "out").groups[0].estimates
    assert part.values.round(2).tolist() == [0.75, 0.0]


def test_counts_and_sums_of_a_file_that_changes_between_them_are_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "people.csv"
    file.write_text("sex,score\n" + "f,1\nm,1\n" * 10)
    asked = DuckRecords.group_records

    def then_written(self: DuckRecords, *what: Any) -> Any:
        found = asked(self, *what)
        file.write_text("sex,score\n" + "f,1\n" * 40)
        return found

    monkeypatch.setattr(DuckRecords, "group_records", then_written)
    words = (
        "--group",
        "sex",
        "--mean",
        "score",
        "--bounds",
        "score=0,1",
        "--mu",
        "1",
        "--out",
        tmp_path / "out",
    )
    code, err = said(capsys, "release", file, *words)
    assert (code, err) == (
        2,
        "semidp: a file changed while it was read: read it again when nothing writes to it\n",
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("features", [40, 60, 64, 200])
def test_a_table_of_too_many_features_is_refused_before_it_is_counted(
    tmp_path: Path,
    features: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = [f"answer{number}" for number in range(features)]
    (tmp_path / "answers.csv").write_text(",".join(names) + "\n" + ",".join("1" * features) + "\n")
    monkeypatch.setattr(Source, "counts", lambda self, schema: pytest.fail("something was counted"))
    words = [word for name in names for word in ("--invariant", name, "--levels", f"{name}=0,1")]
    code, err = said(
        capsys,
        "release",
        tmp_path / "answers.csv",
        "--table",
        ",".join(names),
        *words,
        "--rho",
        "1",
        "--dry-run",
    )
    assert code == 2
    assert (
        err == "semidp: the table is too large: over 2,147,483,648 cells or 63 features; use fewer"
        " features\n"
    )


def test_a_pair_of_features_under_seventy_margins_is_released(tmp_path: Path) -> None:
    names = [f"answer{number}" for number in range(70)]
    rows = [[str((row >> number % 3) & 1) for number in range(70)] for row in range(12)]
    (tmp_path / "answers.csv").write_text("\n".join(map(",".join, [names, *rows])) + "\n")
    plan = Plan([TableRequest(names[:2], Budget.zcdp(1))], names)
    with open_source(tmp_path / "answers.csv") as source:
        (table,) = run(plan, source).tables
    assert table.counts.sum(axis=1).tolist() == [6, 6]
    assert table.counts.sum(axis=0).tolist() == [6, 6]
