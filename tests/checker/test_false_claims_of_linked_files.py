"""The false claims about linked files of the fourth review, made again on purpose, are false."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.checker.documents import feature, linked, margin, nested, write
from tests.checker.the_checker import check

# Documents of these tests have what the checker reads, and no more.
pytestmark = pytest.mark.no_schema

MUCH = "1000000"
SIZE = feature("size", ["1", "2", "3", "4"])
STATES = {"A": ["A1", "A2"], "B": ["B1", "B2"]}
PLACE = nested(["state", "county"], STATES)
AGE = nested(["group", "age"], {"g": ["g1", "g2"], "h": ["h1", "h2"]})
SEX, YEARS, TENURE = feature("sex", "fm"), feature("years", "ot"), feature("tenure", "rs")
FOUR, EIGHT = [40, 40, 40, 40], [20] * 8
BY_SIZE = {"size": MUCH}

FALSE: dict[str, tuple[dict[str, Any], str]] = {
    # whoever hands over sex keeps the age: cost 1 claimed, 4 true
    "1a": (
        linked(
            [SEX, AGE],
            [SIZE],
            [margin("sex,group", FOUR)],
            ("sex,age", "size"),
            ({"group,age": MUCH, "sex,group,age": "1"}, BY_SIZE),
            a=3,
            squared="1.01",
        ),
        "4",
    ),
    # the place moves for the person, the carrier and whoever makes room: 4 claimed, 5 true
    "1b": (
        linked(
            [PLACE, YEARS, SEX],
            [SIZE, PLACE],
            [margin("state,sex", FOUR)],
            ("county,years", "size"),
            (
                {
                    "years": MUCH,
                    "state,years": MUCH,
                    "state,county": MUCH,
                    "state,county,years": "4",
                },
                BY_SIZE,
            ),
            a=3,
            squared="1.01",
        ),
        "5",
    ),
    # two features of units in the block: 8 claimed, 9 true
    "1c": (
        linked(
            [PLACE, TENURE, SEX],
            [SIZE, PLACE, TENURE],
            [margin("state,tenure", FOUR), margin("sex", [80, 80])],
            ("county,sex", "size"),
            ({"state,county": MUCH, "state,sex": MUCH, "state,county,sex": "8"}, BY_SIZE),
            a=3,
            squared="1.01",
        ),
        "9",
    ),
    # noise for one unit that changes its tenure, and five are promised
    "3": (
        linked(
            [SEX],
            [TENURE, SIZE],
            [],
            ("sex", "tenure,size"),
            ({"sex": MUCH}, {"size": MUCH, "tenure": "2", "tenure,size": MUCH}),
            a=8,
            adjacency="worst-case",
            protect="unit",
            own=5,
            squared="1.01",
        ),
        "50",
    ),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", FALSE)
def test_a_false_claim_about_linked_files_is_false(name: str, tmp_path: Path) -> None:
    release, _ = FALSE[name]
    verdict, findings, _ = check.check_release(write(tmp_path / "r", release), 60)
    assert verdict == "false", check.to_json(verdict, findings)
    pair = json.loads(json.dumps(check.to_json(verdict, findings)))["pair"]
    kind = "units" if name == "3" else "schema"
    space = release["dataspace"]["units"] if kind == "units" else release["dataspace"]
    names = [each.get("nest", [each["name"]]) for each in space["schema"]["feature"]]
    for each in space["margins"]:
        sides = []
        for side in ("before", "after"):
            cells = [
                tuple(labels_of(names, record)[c] for c in each["features"])
                for record in pair[side]
            ]
            sides.append(Counter(cells))
        assert sides[0] == sides[1]


def test_sizes_are_no_features_of_units(tmp_path: Path) -> None:
    """Fewer units change a feature of their own than their size: a release that leaves sizes out of
    what is derived from members was confirmed with a third of the noise.
    """
    noise = ({"sex": MUCH}, {"size": "20"})
    town = {"adjacency": "worst-case", "protect": "unit", "own": 1, "squared": "1"}
    release = linked([SEX], [SIZE], [], ("sex", "size"), noise, a=4, **town)  # type: ignore[arg-type]
    release["dataspace"]["link"]["derived"] = []
    with pytest.raises(check.NotCovered, match="different promises"):
        check.check_release(write(tmp_path / "r", release), 0.1)


def labels_of(names: list[list[str]], record: list[list[str]]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for columns, leaf in zip(names, record, strict=True):
        labels |= dict(zip(columns, leaf, strict=True))
    return labels


@pytest.mark.parametrize("adjacency", ["exchange", "worst-case"])
def test_exact_totals_of_what_derives_from_members_are_not_covered(
    adjacency: str, tmp_path: Path
) -> None:
    """Not everybody can become everybody then; such claims were confirmed once."""
    zone = feature("zone", "NS")
    release = linked(
        [zone, SEX],
        [zone, SIZE],
        [margin("zone", [80, 80])],
        ("zone,sex", "size"),
        ({"sex": "100", "zone,sex": "100"}, {"size": "100"}),
        a=2,
        squared="9",
        adjacency=adjacency,
    )
    assert check.check_release(write(tmp_path / "r", release), 0.1)[0] == "confirmed"
    release["dataspace"]["units"]["margins"] = [margin("size", [10, 20, 10, 20])]
    release["plan"]["units"]["exact"] = [["size"]]
    with pytest.raises(check.NotCovered, match="such exact margins"):
        check.check_release(write(tmp_path / "r", release), 0.1)
