"""A release folder reads back the same, and one that was changed is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from semidp import Budget, Feature, InputError, Margin, Plan, Release, run
from semidp.cli import run as command
from semidp.present.report.report_page import html
from semidp.publish import TableRequest
from tests.release.conftest import Example

EXAMPLE = Example.named("hair_eye_color")


@pytest.fixture(scope="module")
def release() -> Release:
    tables = [
        TableRequest(["hair", "eye"], Budget.zcdp("1/2")),
        TableRequest(["hair", "sex"], Budget.pure(1), name="second"),
        TableRequest(["eye", "sex"], Budget.gdp("1/3"), fit="none", name="raw"),
        TableRequest(
            ["hair", "eye", "sex"], Budget.approximate(1, "1e-7"), mechanism="l2", name="study"
        ),
    ]
    return run(
        Plan(tables, [Margin(name) for name in EXAMPLE.features], count="count"), EXAMPLE.path
    )


@pytest.fixture
def folder(release: Release, tmp_path: Path) -> Path:
    release.save(tmp_path)
    return tmp_path


@pytest.mark.long
def test_it_reads_back_the_same(
    release: Release, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    again = Release.load(folder)
    assert again.plan == release.plan
    assert again.guarantee == release.guarantee
    assert again.scope == release.scope
    assert again.to_json() == release.to_json()
    for ours, theirs in zip(again.tables, release.tables, strict=True):
        assert ours.schema == theirs.schema
        for name in ("counts", "estimate", "standard_errors"):
            mine, other = getattr(ours, name), getattr(theirs, name)
            assert mine.dtype == other.dtype
            assert np.array_equal(mine, other), name
    assert len(again.results) > 0
    for ours, theirs in zip(again.results, release.results, strict=True):
        assert ours.noisy.dtype == theirs.noisy.dtype
        assert np.array_equal(ours.noisy, theirs.noisy)
    assert html(again) == html(release)
    copy = tmp_path_factory.mktemp("copy")
    again.save(copy)
    for file in folder.iterdir():
        assert (copy / file.name).read_bytes() == file.read_bytes()


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "file", ["table.csv", "measurements.csv", "second.csv", "raw-measurements.csv"]
)
def test_a_changed_table_is_refused(folder: Path, file: str) -> None:
    path = folder / file
    text = path.read_text()
    digit = text.rindex(next(character for character in reversed(text) if character.isdigit()))
    path.write_text(f"{text[:digit]}{(int(text[digit]) + 1) % 10}{text[digit + 1 :]}")
    with pytest.raises(InputError, match=rf"{file} was changed"):
        Release.load(folder)


def test_a_missing_table_is_refused(folder: Path) -> None:
    (folder / "table.csv").unlink()
    with pytest.raises(InputError, match="not a release"):
        Release.load(folder)


def changed(folder: Path, change: Callable[[dict], None]) -> None:
    document = json.loads((folder / "release.json").read_text())
    change(document)
    (folder / "release.json").write_text(json.dumps(document))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda d: d.update(schema_version=2), "another version"),
        (lambda d: d["versions"].update(semidp="0.2.0"), "another version"),
        (lambda d: d.pop("versions"), "not a release"),
        (lambda d: d.pop("guarantee"), "damaged"),
        (lambda d: d.pop("files"), "not a release"),
        (lambda d: d.update(files=[]), "not a release"),
        (lambda d: d["tables"][0].pop("noise"), "damaged"),
        (lambda d: d["a"].update(used=-1), "adjacency|damaged"),
        (lambda d: d.update(guarantee={"kind": "magic"}), "tradeoff|damaged"),
        (lambda d: d.update(dataspace=None), "damaged"),
        (lambda d: d.update(tables="all"), "damaged"),
    ],
)
def test_a_damaged_release_is_refused(
    folder: Path, change: Callable[[dict], None], expected: str
) -> None:
    changed(folder, change)
    with pytest.raises(InputError, match=expected):
        Release.load(folder)


def test_words_that_contradict_the_plan_are_found_by_show(folder: Path) -> None:
    """What release.json says beyond plan, totals and measurements is written and never read."""
    changed(folder, lambda d: d["tables"][0].update(features=["hair"]))
    assert command(["show", str(folder)]) == 1


def test_totals_that_contradict_the_table_are_refused(folder: Path) -> None:
    def one_more(document: dict) -> None:
        text = json.dumps(document["dataspace"])
        assert "[108, 127, 286, 71]" in text
        document["dataspace"] = json.loads(
            text.replace("[108, 127, 286, 71]", "[109, 127, 285, 71]")
        )

    changed(folder, one_more)
    with pytest.raises(InputError, match="'table' does not add up"):
        Release.load(folder)


@pytest.mark.parametrize(
    "content", [None, "", "{", "[]", "null", "1", '{"schema_version": 1, "files": {"../x": ""}}']
)
def test_what_is_not_a_release_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "release.json").write_text(content)
    with pytest.raises(InputError, match="not a release"):
        Release.load(tmp_path)
    with pytest.raises(InputError, match="not a release"):
        Release.load(tmp_path / "nowhere")


def test_a_copy_elsewhere_is_as_good(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    copy = tmp_path_factory.mktemp("elsewhere") / "copy"
    shutil.copytree(folder, copy)
    assert Release.load(str(copy)).to_json() == Release.load(folder).to_json()


def test_its_repr_holds_no_counts(release: Release) -> None:
    assert "array" not in repr(release.tables)


def test_save_writes_what_the_command_writes_and_load_reads_it(tmp_path: Path) -> None:
    people = tmp_path / "people.csv"
    people.write_text("sex,region\n" + "f,n\nm,s\nm,n\nf,s\n" * 5)
    words = ["--table", "sex,region", "--invariant", "sex", "--mu", "1", "--levels", "region=n,s"]
    assert (
        command(["release", str(people), *words, "--quiet", "--out", str(tmp_path / "by-command")])
        == 0
    )
    wanted = Plan(
        [TableRequest(["sex", "region"], Budget.gdp(1))],
        ["sex"],
        features=[Feature("region", ["n", "s"])],
    )
    done = run(wanted, people)
    done.save(str(tmp_path / "new" / "by-hand"))
    made = tmp_path / "new" / "by-hand"
    assert {file.name for file in made.iterdir()} == {
        file.name for file in (tmp_path / "by-command").iterdir()
    }
    assert (made / "report.html").read_text(encoding="utf-8") == done.report_html()
    assert Release.load(made).to_json() == done.to_json()
    # no scrap, no lock
    assert not [file for file in made.parent.iterdir() if file.name != "by-hand"]


def test_save_replaces_a_release_only_when_told_and_nothing_else_ever(
    release: Release, tmp_path: Path
) -> None:
    release.save(tmp_path / "release")
    with pytest.raises(InputError, match="already exists"):
        release.save(tmp_path / "release")
    release.save(tmp_path / "release", force=True)
    (tmp_path / "release" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds notes\.txt"):
        release.save(tmp_path / "release", force=True)
    assert (tmp_path / "release" / "notes.txt").read_text() == "mine"


def test_a_save_that_fails_leaves_nothing(
    release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> str:
        raise RuntimeError("no ink")

    monkeypatch.setattr(Release, "report_html", fail)
    with pytest.raises(RuntimeError):
        release.save(tmp_path / "release")
    assert not list(tmp_path.iterdir())
