"""SDMX files of a release: every number of its CSV files, under codes that their structure
explains. `tests/services/test_sdmx.py` reads them with sdmx1.
"""

import csv
import json
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

import semidp
from semidp.errors import InputError
from semidp.promise.documents import digest
from semidp.promise.noise.randomness import SeededRandomness, SystemRandomness
from semidp.publish.recheck import recheck
from tests.release.sdmx_example import COUNTIES, PEOPLE, sdmx_release

SPACE = "{http://www.sdmx.org/resources/sdmxml/schemas/v2_1/%s}"
STRUCTURE, COMMON = SPACE % "structure", SPACE % "common"
NUMBERS = {
    "table": {"estimate": "estimate", "count": "count"},
    "mean-score": {"mean": "mean", "count": "count"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    sdmx_release(tmp_path / "out", SystemRandomness())
    return tmp_path / "out"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def structure(folder: Path) -> ElementTree.Element:
    return ElementTree.parse(folder / "sdmx-structure.xml").getroot()


def code_names(folder: Path) -> dict[str, dict[str, tuple[str, str | None]]]:
    """The name and the parent of every code, by code list."""
    lists = {}
    for listed in structure(folder).iter(f"{STRUCTURE}Codelist"):
        codes = {}
        for code in listed.iter(f"{STRUCTURE}Code"):
            parent = code.find(f"{STRUCTURE}Parent/Ref")
            name = code.findtext(f"{COMMON}Name")
            assert name is not None
            codes[code.attrib["id"]] = name, None if parent is None else parent.attrib["id"]
        lists[listed.attrib["id"]] = codes
    return lists


def dimension_lists(folder: Path, flow: str) -> dict[str, str]:
    """The code list of every dimension of a data flow, in order."""
    for described in structure(folder).iter(f"{STRUCTURE}DataStructure"):
        if described.attrib["id"] == f"DSD_{flow}":
            return {
                one.attrib["id"]: one.find(f".//{STRUCTURE}Enumeration/Ref").attrib["id"]  # type: ignore[union-attr]
                for one in described.iter(f"{STRUCTURE}Dimension")
                if "position" in one.attrib
            }
    raise AssertionError(f"no data structure of {flow}")


def test_every_number_is_there_under_codes_that_the_structure_names(folder: Path) -> None:
    names = code_names(folder)
    checked = 0
    files = sorted(folder.glob("*.sdmx.csv"))
    assert [path.name.removesuffix(".sdmx.csv") for path in files] == [
        *("county-sex", "exact-region", "exact-sex", "mean-score", "proportion-sex=f"),
        "region-sex",
    ]
    for path in files:
        stem = path.name.removesuffix(".sdmx.csv")
        plain = rows(folder / f"{stem}.csv")
        observed = rows(path)
        flow = re.fullmatch(r"SEMIDP:([A-Z0-9_]+)\(1\.0\)", observed[0]["STRUCTURE_ID"])
        assert flow is not None
        lists = dimension_lists(folder, flow[1])
        assert list(lists)[-1] == "INDICATOR"
        seen = set()
        for row in observed:
            levels, place = [], tuple(row[dimension] for dimension in lists)
            assert place not in seen
            seen.add(place)
            for dimension, codes in list(lists.items())[:-1]:
                path_up, code = [], row[dimension]
                while code is not None:
                    assert re.fullmatch(r"[A-Za-z0-9_-]+", code)
                    name, code = names[codes][code]
                    path_up.append(name)
                levels += path_up[::-1]
            assert row["CONF_STATUS"] == "F"
            indicator = names[lists["INDICATOR"]][row["INDICATOR"]][0]
            (line,) = (
                one
                for one in plain
                if [one[key].replace("\x07", "�") for key in list(one)[: len(levels)]] == levels
            )
            assert float(row["OBS_VALUE"]) == float(line[indicator])
            is_estimate = "standard_error" in line and indicator != "count"
            if is_estimate:
                assert row["STANDARD_ERROR"] == line["standard_error"]
                ends = [line[key] for key in line if key.endswith(("lower", "estimate_low"))]
                assert not ends or row["LOWER"] in ends
            else:
                assert not row.get("STANDARD_ERROR")
            noisy = "estimate" in line or is_estimate
            assert row["OBS_STATUS"] == ("E" if noisy else "A")
            checked += 1
    # two numbers a row, but for exact totals
    assert checked == 2 * (8 + 4 + 2 + 2) + 2 + 2


def test_levels_that_ids_cannot_tell_apart_have_codes_of_their_own(folder: Path) -> None:
    counties = {
        name: (code, parent)
        for code, (name, parent) in code_names(folder)["CL_REGION"].items()
        if parent
    }
    assert counties["a e"] == ("north_a_e", "north")
    assert counties["a é"] == ("north_a_e_2", "north")
    assert {*counties} == {label.replace("\x07", "�") for _, label in COUNTIES}


def test_numbers_without_noise_are_exact_and_missing_ones_have_no_value(tmp_path: Path) -> None:
    release = semidp.release(
        {"sex": [*"ff"], "pay": [1.0, 2.0]},
        semidp.table("sex"),
        semidp.mean("pay", by="sex", bounds=(0, 9)),
        exact=["sex"],
        levels={"sex": [*"fm"]},
        mu=1,
    )
    release.save(tmp_path / "out", form="sdmx")
    table = rows(tmp_path / "out" / "table.sdmx.csv")
    assert {row["OBS_STATUS"] for row in table} == {"A"}
    means = {
        (row["SEX"], row["INDICATOR"]): (row["OBS_STATUS"], row["OBS_VALUE"])
        for row in rows(tmp_path / "out" / "mean-pay.sdmx.csv")
    }
    assert means["m", "count"] == ("A", "0.0")
    assert means["m", "mean"] == ("O", "")
    status, value = means["f", "mean"]
    assert status == "E"
    assert math.isfinite(float(value))


def test_a_changed_file_is_found(folder: Path) -> None:
    release = semidp.Release.load(folder)
    document = json.loads((folder / "release.json").read_text(encoding="utf-8"))
    assert recheck(release, document, folder).disagreements == ()
    for name, old, new in (
        ("exact-sex.sdmx.csv", ",A,F,", ",E,F,"),
        ("sdmx-structure.xml", "free for publication", "secret"),
    ):
        path = folder / name
        before = path.read_bytes()
        path.write_bytes(before.replace(old.encode(), new.encode()))
        with pytest.raises(InputError, match="was changed after"):
            semidp.Release.load(folder)
        # also where the list of files is changed to match
        changed = {**document, "files": {**document["files"], name: digest(path)}}
        (sentence,) = recheck(release, changed, folder).disagreements
        assert name in sentence
        path.write_bytes(before)


def test_what_is_not_private_is_not_for_publication(tmp_path: Path) -> None:
    sdmx_release(tmp_path / "out", SeededRandomness(1), agency="ESTAT.B1")
    assert {row["CONF_STATUS"] for row in rows(tmp_path / "out" / "exact-sex.sdmx.csv")} == {"N"}
    root = structure(tmp_path / "out")
    assert root.findtext(f".//{SPACE % 'message'}Test") == "true"
    assert {each.attrib["agencyID"] for each in root.iter(f"{STRUCTURE}Dataflow")} == {"ESTAT.B1"}


def test_the_period_of_the_data_is_a_dimension_of_time(folder: Path, tmp_path: Path) -> None:
    for period, written in (("2026Q3", "2026-Q3"), ("2026Q1..2026Q4", "2026-01-01/P12M")):
        place = tmp_path / written[:7]
        sdmx_release(place, SystemRandomness(), period=period)
        files = [*place.glob("*.sdmx.csv")]
        assert {row["TIME_PERIOD"] for path in files for row in rows(path)} == {written}
        listed = [*structure(place).iter(f"{STRUCTURE}DimensionList")]
        assert len(listed) == len(files) == 6
        for dimensions in listed:
            *others, time = dimensions
            assert time.tag == f"{STRUCTURE}TimeDimension"
            assert time.attrib == {"id": "TIME_PERIOD", "position": str(len(others) + 1)}
    # a release that names no period has none
    assert not [*structure(folder).iter(f"{STRUCTURE}TimeDimension")]
    assert "TIME_PERIOD" not in rows(folder / "exact-sex.sdmx.csv")[0]


def test_what_cannot_be_written_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    ledger = semidp.Ledger.create(tmp_path / "ledger.json", semidp.Budget.gdp(9))
    with pytest.raises(InputError, match="an SDMX agency is called by letters"):
        sdmx_release(tmp_path / "out", SystemRandomness(), agency="my office", ledger=ledger)
    with pytest.raises(InputError, match="SDMX files are written of a release in one piece"):
        sdmx_release(tmp_path / "out", SystemRandomness(), partition="region", ledger=ledger)
    assert ledger.account().charges == ()
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="give write='sdmx' too"):
        semidp.release(PEOPLE, semidp.table("sex"), mu=1, write="csv", agency="ESTAT")
    with pytest.raises(InputError, match="csv, parquet, xlsx or sdmx, not 'sdml'"):
        semidp.release(PEOPLE, semidp.table("sex"), levels_from_data=True, mu=1, write="sdml")
