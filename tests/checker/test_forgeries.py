"""Forged folders: a result is gone from release.json and its file is there under another name, or
the document says something else than the files show. None is confirmed, and no honest one refused.
"""

import copy
import json
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from semidp.cli import run
from tests.checker.test_releases import carried_out, entries, verdict_of

Document = dict[str, Any]
Forgery = Callable[[Path, Document], bool]

FORGED = (
    *("two Laplace tables", "table and mean", "quantiles, epsilon", "private answers"),
    *("nested product", "linked members, rho", "odds ratio", "two-way"),
)
ALL_FORGED = (*FORGED, "microdata", "median", "distribution, exchange", "two sets of means")
LISTS = {"tables": "table", "groups": "group", "products": "table", "quantiles": "quantile"}


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return carried_out(tmp_path_factory.mktemp("forged"), FORGED)


def lower(value: Any) -> None:
    """State less wherever something is stated."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key in ("mu", "mu_squared", "rho", "epsilon") and not isinstance(each, dict):
                value[key] = str(Fraction(each) / 50) if isinstance(each, str) else each / 50
            elif key != "noise":
                lower(each)
    elif isinstance(value, list):
        for each in value:
            lower(each)


def remove_result(folder: Path, document: Document) -> list[Path]:
    """Take the last result out of the document, and return its files."""
    keys = [key for key in LISTS if document.get(key)]
    if sum(len(document[key]) for key in keys) < 2:
        return []
    gone = document[keys[-1]].pop()
    names = {gone["name"], *(table["name"] for table in gone.get("tables", []))}
    plan = document["plan"]
    asked = plan[LISTS[keys[-1]]]
    plan[LISTS[keys[-1]]] = [each for each in asked if each.get("name") not in names]
    return sorted(file for name in names for file in folder.glob(f"{name}*.csv"))


def rename_result(new: str) -> Forgery:
    """The file of a result that is gone has another name."""

    def forge(folder: Path, document: Document) -> bool:
        files = remove_result(folder, document)
        kept = next((each["name"] for key in LISTS for each in document.get(key, [])), "")
        for number, file in enumerate(files):
            to = folder / new.format(stem=file.stem, kept=kept, number=number)
            to.parent.mkdir(exist_ok=True)
            file.replace(to)
            document["files"].pop(file.name, None)
        return bool(files)

    forge.__name__ = f"renamed to {new}"
    return forge


def keep_workbook(folder: Path, document: Document) -> bool:
    files = remove_result(folder, document)
    for file in files:
        file.unlink()
        document["files"].pop(file.name, None)
    return bool(files) and (folder / "tables.xlsx").exists()


def repeat_a_result(folder: Path, document: Document) -> bool:
    """One of two results stands there twice, and the other not at all."""
    for key in LISTS:
        if len(document.get(key, [])) > 1:
            document[key][1] = copy.deepcopy(document[key][0])
            return True
    return False


def say_a_key_twice(folder: Path, document: Document) -> bool:
    document["TWICE"] = True
    return True


def hide_a_result_in_another(folder: Path, document: Document) -> bool:
    first = entries(document)[0]
    first["further"] = {"noise": copy.deepcopy(first["noise"])}
    return True


def take_another_law(folder: Path, document: Document) -> bool:
    """A choice is said to be a sum with noise, a table a choice, x11 a count."""
    for entry in entries(document):
        choice = "rate" in entry["noise"]
        law = "laplace" if choice else "permute and flip"
        entry["noise"] |= {"law": law, "mechanism": law, "scale": "1000", "rate": "1/1000"}
        entry.pop("residuals", None)
    lower(document)
    return "linked" not in document


def say_that_a_table_is_one_cell(folder: Path, document: Document) -> bool:
    noise = {"law": "canonical", "mechanism": "canonical", "moves": "9", "mu_squared": "1/100"}
    for entry in document["tables"]:
        entry["noise"] |= noise
        entry.pop("residuals", None)
    lower(document)
    return bool(document["tables"])


def ask_for_fewer_numbers(folder: Path, document: Document) -> bool:
    """One quantile where the file shows two, sums where it shows answers too, one group of two."""
    is_done = "answers" in document
    if is_done:
        document["groups"] += document.pop("answers")
        document["plan"]["group"] = document["plan"].pop("answered")
    for asked in document["plan"].get("quantile", []):
        is_done = is_done or len(asked["probabilities"]) > 1
        asked["probabilities"] = asked["probabilities"][:1]
    for asked in document["plan"].get("group", []):
        is_done, asked["by"] = True, [[]]
    lower(document)
    return is_done


def forget_the_units(folder: Path, document: Document) -> bool:
    """Tables of units stand in the result, and nothing about units in the public facts."""
    space, plan = document["dataspace"], document["plan"]
    if "link" not in space:
        return False
    for key in ("link", "units"):
        del space[key]
    for key in ("units", "unit_table"):
        del plan[key]
    document["a"] = {"used": 2, "kind": "ball"}
    for file in folder.glob("*-measurements.csv"):
        file.unlink()
    lower(document)
    return True


def change_a_total(folder: Path, document: Document) -> bool:
    """Everybody is in the first cell, so that nothing can move."""
    for margin in document["dataspace"]["margins"]:
        margin["counts"] = [sum(margin["counts"]), *([0] * (len(margin["counts"]) - 1))]
    return bool(document["dataspace"]["margins"])


def take_another_total(folder: Path, document: Document) -> bool:
    """The file shows a total that is not in the document."""
    for margin, asked in zip(
        document["dataspace"]["margins"], document["plan"]["invariants"], strict=True
    ):
        features = document["dataspace"]["schema"]["feature"]
        other = next((f for f in features if [f["name"]] != margin["features"]), None)
        if other is not None and "levels" in other:
            counts = [1] * (len(other["levels"]) - 1)
            margin["features"] = asked[:] = [other["name"]]
            margin["counts"] = [document["dataspace"]["n"] - sum(counts), *counts]
            return True
    return False


def name_a_feature_twice(folder: Path, document: Document) -> bool:
    features = document["dataspace"]["schema"]["feature"]
    features.append(copy.deepcopy(features[0]))
    return True


def plan_another_table(folder: Path, document: Document) -> bool:
    """The plan asks for the totals of one feature, where the result has a table."""
    for asked in document["plan"].get("table", []):
        if len(asked["features"]) > 1:
            asked["features"].pop()
            return True
    return False


def name_one_record_as_the_definition(folder: Path, document: Document) -> bool:
    if not document["dataspace"]["margins"] or "link" in document["dataspace"]:
        return False
    document["plan"]["adjacency"], document["a"]["used"] = "definition", 1
    lower(document)
    return True


FORGERIES: list[Forgery] = [
    *map(
        rename_result,
        (
            *("notes{number}.txt", "{stem}.parquet", "{stem}.tsv", "{stem}.json", "{stem}"),
            *("{stem}.CSV", ".{stem}.csv", "exact-{stem}.csv", "units-{stem}.csv"),
            *("{kept}-by-other{number}.csv", "{kept}-{number}.csv", "{kept}.parquet"),
            *("{kept}.sdmx.csv", "more/{kept}.csv", "{kept}-measurements.parquet", "data.csv.gz"),
        ),
    ),
    *(keep_workbook, repeat_a_result, say_a_key_twice, hide_a_result_in_another),
    *(take_another_law, say_that_a_table_is_one_cell, ask_for_fewer_numbers, forget_the_units),
    *(change_a_total, take_another_total, name_a_feature_twice, plan_another_table),
    name_one_record_as_the_definition,
]


def confirmed_forgeries(releases: dict[str, Path], to: Path) -> tuple[list[str], set[str]]:
    confirmed, tried = [], set()
    for name, folder in releases.items():
        for forge in FORGERIES:
            shutil.rmtree(to, ignore_errors=True)
            shutil.copytree(folder, to)
            document = json.loads((to / "release.json").read_text(encoding="utf-8"))
            if not forge(to, document):
                continue
            text = json.dumps(document)
            if document.pop("TWICE", False):
                stated = copy.deepcopy(document["guarantee"])
                lower(stated)
                text = f'{{"guarantee": {json.dumps(stated)}, {json.dumps(document)[1:]}'
            (to / "release.json").write_text(text, encoding="utf-8")
            tried.add(forge.__name__)
            if verdict_of(to, 0.01).startswith("confirmed"):
                confirmed.append(f"{name}: {forge.__name__}")
    return confirmed, tried


def test_forged_folders_are_not_confirmed(releases: dict[str, Path], tmp_path: Path) -> None:
    confirmed, tried = confirmed_forgeries(releases, tmp_path / "forged")
    assert confirmed == []
    assert {forge.__name__ for forge in FORGERIES} - tried == {"keep_workbook"}


@pytest.mark.long
def test_more_forged_folders_are_not_confirmed(tmp_path: Path) -> None:
    confirmed, _ = confirmed_forgeries(carried_out(tmp_path, ALL_FORGED), tmp_path / "forged")
    assert confirmed == []


def make_release(folder: Path, words: str) -> Path:
    """A release of forty people; its folder."""
    lines = [f"{'fm'[i % 2]},{'nsw'[i % 3]},{'xyz'[i % 5 % 3]},{i % 11}" for i in range(40)]
    data, plan = folder / "people.csv", folder / "plan.toml"
    data.write_text("\n".join(["sex,region,job,income", *lines]) + "\n")
    plan.write_text(
        'invariants = [["sex"]]\nlevels_from_data = true\nmu = 1\n'
        '[[table]]\nname = "exact-sex"\nfeatures = ["sex", "region"]\n'
    )
    out = str(folder / "r")
    named = [str(plan) if word == plan.name else word for word in words.split()]
    levels = [] if "--plan" in words else ["--levels-from-data"]
    assert run(["release", str(data), *named, *levels, "--quiet", "--out", out]) == 0
    return Path(out)


TWO_TABLES = "--table sex,region --table sex,job --exact sex --mu 1 --write"


@pytest.mark.parametrize(
    "words",
    [
        f"{TWO_TABLES} xlsx",
        f"{TWO_TABLES} sdmx",
        f"{TWO_TABLES} parquet",
        "--plan plan.toml",  # a result whose files are called like those of an exact total
        "--mean income --bounds income=0,10 --mu 1",
        "--group sex --group region --mean income --bounds income=0,10 --exact sex --exact region"
        " --rho 1 --set differences=true",
    ],
)
def test_honest_folders_are_confirmed(tmp_path: Path, words: str) -> None:
    assert verdict_of(make_release(tmp_path, words), 0.01) == "confirmed"


def test_what_file_browsers_leave_is_ignored_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_release(tmp_path, TWO_TABLES.removesuffix(" --write"))
    for name in (".DS_Store", "Thumbs.db", "Desktop.ini"):
        (folder / name).write_bytes(b"\0")
    assert verdict_of(folder, 0.01) == "confirmed"
    assert run(["show", str(folder)]) == 0
    assert ".DS_Store" not in capsys.readouterr().out
    for name in ("DS_Store", ".DS_Store.csv", "Thumbs.db/a"):
        shutil.copytree(folder, tmp_path / "more", dirs_exist_ok=True)
        (tmp_path / "more/Thumbs.db").unlink()
        (tmp_path / "more" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "more" / name).write_bytes(b"\0")
        assert verdict_of(tmp_path / "more", 0.01) == "unreadable", name
        shutil.rmtree(tmp_path / "more")
    document = json.loads((folder / "release.json").read_text(encoding="utf-8"))
    document["files"][".DS_Store"] = "0"  # then it is said to be a file of the release
    (folder / "release.json").write_text(json.dumps(document), encoding="utf-8")
    assert verdict_of(folder, 0.01) == "unreadable"


def test_a_workbook_shows_no_more_than_the_other_files(tmp_path: Path) -> None:
    words = "--table sex,region --group sex --mean income --bounds income=0,10 --exact sex"
    folder = make_release(tmp_path, f"{words} --mu 1 --write xlsx")
    assert verdict_of(folder, 0.01) == "confirmed"
    document = json.loads((folder / "release.json").read_text(encoding="utf-8"))
    assert keep_workbook(folder, document)
    (folder / "release.json").write_text(json.dumps(document), encoding="utf-8")
    assert verdict_of(folder, 0.01) == "unreadable"


def test_several_outcomes_below_one_exact_feature_are_not_covered(tmp_path: Path) -> None:
    """The second one was read as a free value, which moves less: it was confirmed at 0.86 of what
    is stated.
    """
    tree = '{ x = { "0" = ["0", "1"], "5" = ["5", "6"] }, y = { "2" = ["2", "3"] } }'
    (tmp_path / "schema.toml").write_text(
        '[[feature]]\nname = "sex"\nlevels = ["f", "m"]\n'
        f'[[feature]]\nname = "c"\nnest = ["a", "b", "c"]\ntree = {tree}\n'
    )
    rows = ["x,0,1", "x,5,6", "y,2,3", "y,2,2"]
    lines = [f"{'fm'[i % 2]},{rows[i % 4]}" for i in range(40)]
    (tmp_path / "people.csv").write_text("\n".join(["sex,a,b,c", *lines]) + "\n")
    words = "--group sex --mean b --mean c --bounds b=0,9 --bounds c=0,9 --exact sex --exact a"
    words += " --set grid=b=9 --set grid=c=9 --mu 1 --adjacency exchange --quiet --out"
    schema, out = str(tmp_path / "schema.toml"), str(tmp_path / "r")
    command = ["release", str(tmp_path / "people.csv"), "--schema", schema, *words.split(), out]
    assert run(command) == 0
    assert verdict_of(Path(out), 0.01) == "not covered"
