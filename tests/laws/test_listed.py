"""The grid of docs/listed.md: how many structures were enumerated in each box, counted as they are
compared.
"""

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.linked.test_promises import SETTINGS
from tests.linked.test_unit_promise import TOWNS
from tests.linked.test_unit_statistics import STRUCTURES, check, drawn
from tests.linked.worlds import QUARTERS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "listed.md"
STATISTICS = ("tables", "residuals", "sums", "ranks", "distributions", "regressions", "missing")
ROWS = {
    "flat": ("nothing", "flat", "two", "one of two"),
    "nested": ("nested", "nested, finest", "nested and flat"),
    "joint": ("joint", "joint and free", "nested joint", "overlapping"),
    "zeros": ("zeros", "zeros and free", "zeros that tie"),
    "several records": tuple(STRUCTURES),
}
QUICK, LONG = 0, 1  # which number of a box, and the seed of what is drawn for it
# how many are drawn of each structure, and the most datasets of one
SIZES = dict.fromkeys(ROWS, ((4, 130), (24, 160))) | {"several records": ((1, 60), (3, 130))}
RANDOM_WORLDS = (20, 1_980)  # of linked members, in tests/laws/test_exchange_costs.py
RANDOM_TOWNS = 4 * 30  # in tests/linked/test_unit_promise.py


@cache
def read_page() -> dict[tuple[str, str, str], str]:
    """What each box says, by adjacency, row and column."""
    boxes = {}
    for relation in ("ball", "exchange"):
        section = PAGE.read_text().split(f"## {relation.capitalize()}\n")[1].split("\n## ")[0]
        rows = [line.strip("| ").split(" | ") for line in section.splitlines() if "|" in line]
        head, _, *body = rows
        for name, *cells in body:
            for statistic, cell in zip(head[1:], cells, strict=True):
                boxes[relation, name, statistic] = cell
    return boxes


def numbers_in(cell: str) -> list[int]:
    return [int(number.replace(",", "")) for number in re.findall(r"[\d,]+", cell)]


def compare(row: str, which: int) -> Counter:
    """Enumerate structures of a row; how many of them each box compared."""
    boxes: Counter = Counter()
    count, largest = SIZES[row][which]
    limits = (2, 3) if row == "several records" else (1,)
    for name in ROWS[row]:
        for hospital in drawn(name, which, count, largest, limits):
            seen: Counter = Counter()
            for relation in ("ball", "exchange"):
                check(hospital, relation, seen)
            boxes += Counter({box: 1 for box, compared in seen.items() if compared})
    return boxes


def check_row(row: str, which: int) -> None:
    boxes = compare(row, which)
    print(row, {box: count for box, count in boxes.items() if box[0] in STATISTICS})
    for (relation, name, statistic), cell in read_page().items():
        if name == row:
            assert numbers_in(cell)[which] == boxes[statistic, relation] > 0, (relation, statistic)
    # a smaller claim would be found out
    for relation in ("ball", "exchange"):
        assert boxes["sums attained", relation] + boxes["ranks attained", relation] > 4


@pytest.mark.few(3)
@pytest.mark.parametrize("row", ROWS)
def test_the_page_has_the_numbers_of_make_test(row: str) -> None:
    check_row(row, QUICK)


@pytest.mark.long
@pytest.mark.parametrize("row", ROWS)
def test_the_page_has_the_numbers_of_make_test_long(row: str) -> None:
    check_row(row, LONG)


def kept_cases(cases: int, few: int) -> list[int]:
    """Places of the cases that `make test` keeps of a test marked ``few`` (tests/conftest.py)."""
    return sorted({round(place * (cases - 1) / (few - 1)) for place in range(few)})


def test_the_page_has_the_numbers_of_linked_files() -> None:
    has_quarters = [QUARTERS in setting.own for setting in SETTINGS.values()]
    page = read_page()
    quick = [has_quarters[place] for place in kept_cases(len(SETTINGS), 3)]
    for relation, others in (("ball", (0, 0)), ("exchange", RANDOM_WORLDS)):
        for row, wanted, more in (("linked member", False, others), ("quarters", True, (0, 0))):
            kept = quick.count(wanted)
            left = has_quarters.count(wanted) - kept
            counts = [kept + more[QUICK], left + more[LONG]]
            assert numbers_in(page[relation, row, "residuals"]) == counts
        kept = len(kept_cases(len(TOWNS), 5))
        towns = [kept, len(TOWNS) - kept + RANDOM_TOWNS]
        assert numbers_in(page[relation, "linked unit", "residuals"]) == towns


def test_a_box_has_two_numbers_or_says_why_not() -> None:
    page = read_page()
    assert len(page) == 2 * 9 * len(STATISTICS)
    said = {cell for cell in page.values() if not re.fullmatch(r"[\d,]+ / [\d,]+", cell)}
    assert said == {"refused", "not enumerated", "as residuals"}


def test_every_test_that_the_page_names_exists() -> None:
    named = re.findall(r"tests/[\w/]+\.py", PAGE.read_text())
    assert len(set(named)) >= 10
    assert [name for name in named if not (ROOT / name).is_file()] == []
