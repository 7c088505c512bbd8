"""Data as offices keep them: headings over several rows, rows of totals, codes of missing values,
outcomes that some lack. What a refusal advises is tried, and works.
"""

import re
import shlex
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import semidp as sd
from tests.cli.conftest import Semidp, one_sentence

openpyxl = pytest.importorskip("openpyxl")

RECORDS = [[region, sex, ill, 5] for region in ("n", "s") for sex in "fm" for ill in ("y", "n")]
RELEASE = ("release", "data.xlsx", "--mu", "1", "--out", "out", "--count", "n", "--force", "-q")
SEXES = ("--table", "region,sex", "--levels", "sex=f,m")


def write_sheet(rows: list[list[Any]], merged: str = "") -> None:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    if merged:
        book.active.merge_cells(merged)
    book.save("data.xlsx")


def follow_advice(said: str) -> list[list[str]]:
    """Return the words that a refusal advises, one list for each choice."""
    advised = re.search(r"(?:give|rows out with) (.*?)(?:, or .*| in place of .*)?$", said)
    assert advised, said
    return [shlex.split(choice) for choice in re.split(r" or (?=--)", advised[1])]


# --- sheets ---------------------------------------------------------------------------------------


def test_a_merged_heading_comes_before_the_names_below_it(here: Semidp) -> None:
    write_sheet([["Place", None, "Ill", "n"], ["region", "sex", None, None], *RECORDS], "A1:B1")
    names = ("--exact", "Place region", "--table", "Place region,Ill", "--levels", "Ill=y,n")
    said = one_sentence(here(*RELEASE, *names))
    assert said.endswith("(--set header_rows=2)")
    assert here(*RELEASE, *names, "--set", "header_rows=2").code == 0
    release = sd.release(
        "data.xlsx", sd.table("Ill"), count="n", levels={"Ill": ["y", "n"]}, mu=1, header_rows=2
    )
    assert release.tables[0].counts.sum() == 40


def test_a_title_above_the_names_is_skipped(here: Semidp) -> None:
    write_sheet([["Regions in 2025"], ["region", "sex", "ill", "n"], *RECORDS], "A1:D1")
    words = (*RELEASE, *SEXES, "--exact", "region")
    assert "how many rows the header has" in one_sentence(here(*words))
    assert here(*words, "--set", "header_rows=2").code == 0


@pytest.mark.parametrize(
    "total",
    [
        ["Total", None, None, 40],
        ["Total", "Total", "Total", 40],
        ["n und s zusammen", "f", "y", 40],
    ],
)
def test_a_row_of_totals_is_refused_and_left_out_as_advised(here: Semidp, total: list[Any]) -> None:
    write_sheet([["region", "sex", "ill", "n"], *RECORDS, total])
    words = (*RELEASE, "--table", "region,sex", "--levels-from-data", "--exact", "region")
    for where in ([], ["--where", "ill <> 'x'"]):
        if where and total[2] is None:
            continue
        said = one_sentence(here(*words, *where))
        assert "count people twice" in said
        (advised,) = follow_advice(said)
        assert here(*words, *advised).code == 0
        exact = Path("out/exact-region.csv").read_text(encoding="utf-8")
        assert exact.split() == ["region,count", "n,20", "s,20"]


def test_a_name_that_only_holds_a_word_of_totals_is_no_total(here: Semidp) -> None:
    write_sheet([["region", "sex", "ill", "n"], *RECORDS, ["Totaldorf", "f", "y", 5]])
    words = (*RELEASE, "--table", "region,sex", "--levels-from-data", "--exact", "region")
    assert here(*words).code == 0


def test_levels_of_a_nested_feature_need_their_paths(here: Semidp) -> None:
    write_sheet([["region", "sex", "ill", "n"], *RECORDS])
    words = ("--nest", "region,sex", "--table", "sex,ill", "--levels", "sex=f,m")
    assert "declare their paths in --schema" in one_sentence(here(*RELEASE, *words))


def test_codes_of_missing_values_are_pointed_out_and_declared(here: Semidp) -> None:
    rows = [["n", "f", "NA", 5], ["s", "m", -9, 5], *RECORDS]
    write_sheet([["region", "sex", "ill", "n"], *rows])
    words = (*RELEASE[:-1], "--exact", "region", "--table", "region,ill")
    said = here(*words, "--levels-from-data").err
    assert "A level of ill is called '-9'" in said
    assert "missing value, set na=-9,NA." in said
    codes = ("--levels", "ill=y,n", "--set", "na=NA,-9")
    assert "has missing values" in one_sentence(here(*words, *codes))
    done = here(*words, *codes, "--set", "null_level=ill=unknown")
    assert done.code == 0
    assert "is called" not in done.err
    # the same codes in a CSV file, a data frame, and in no level of a release
    lines = [",".join(map(str, row)) for row in [["region", "sex", "ill", "n"], *rows]]
    Path("data.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    frame = {"region": [*"nss"], "ill": ["y", "NA", "-9"], "n": [5, -9, 5]}
    for data, people in (("data.csv", 10), (frame, 5)):
        codes_kept = {} if people == 10 else {"where": "n IS NOT NULL"}
        with sd.open_source(data, count="n", na="NA,-9", **codes_kept) as source:
            levels = sd.Feature("ill", "yn", null_level="unknown")
            assert source.counts(sd.Schema([levels])).counts[-1] == people


# --- outcomes -------------------------------------------------------------------------------------

GROUPED = {
    "mean": ("--mean", "pay", "--bounds", "pay=0,9"),
    "share": ("--proportion", "died=Y"),
    "median": ("--median", "pay", "--bounds", "pay=0,9"),
    "distribution": ("--distribution", "pay", "--bounds", "pay=0,9"),
}
MODELS = {
    "linear": ("--regress", "pay", "--on", "ward", "--bounds", "pay=0,9"),
    "logistic": ("--logistic", "died=Y", "--on", "ward"),
}
QUICK = [("logistic",), ("share", "logistic")]
COMBINATIONS = [*combinations([*GROUPED, *MODELS], 1), *combinations([*GROUPED, *MODELS], 2)]


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(names, marks=[] if names in QUICK else pytest.mark.long)
        for names in COMBINATIONS
    ],
    ids="-".join,
)
def test_what_is_advised_about_missing_outcomes_works(here: Semidp, names: tuple[str, ...]) -> None:
    rows = [
        f"{'ab'[i % 2]},{'YN'[i % 3 % 2] if i % 5 else ''},{i % 9 if i % 7 else ''}"
        for i in range(90)
    ]
    Path("data.csv").write_text("ward,died,pay\n" + "\n".join(rows) + "\n", encoding="utf-8")
    words = ["release", "data.csv", "--mu", "1", "--out", "out", "--force", "-q"]
    words += ["--group", "ward"] if set(names) & {*GROUPED} else []
    for name in names:
        options = {**GROUPED, **MODELS}[name]
        for pair in zip(options[::2], options[1::2], strict=True):
            # two statistics of one column share its bounds, and two models their factors
            words += [] if " ".join(pair) in " ".join(words) else pair
    assert try_advice(here, words) > 0


def try_advice(here: Semidp, words: list[str]) -> int:
    """Follow every choice until the release is made; return how many were tried."""
    done = here(*words)
    if done.code == 0:
        return 0
    tried = 0
    for advised in follow_advice(one_sentence(done)):
        option, value = advised
        if option == "--where" and option in words:
            place = words.index(option) + 1
            value = f"({words[place]}) AND {value}"
            changed = [*words[:place], value, *words[place + 1 :]]
        else:
            changed = [*words, option, value]
        tried += 1 + try_advice(here, changed)
    return tried


def test_a_choice_that_does_not_suit_is_refused_with_one_that_works(here: Semidp) -> None:
    Path("data.csv").write_text("ward,died\n" + "a,Y\na,N\nb,\nb,Y\n" * 9, encoding="utf-8")
    words = ["release", "data.csv", "--mu", "1", "--out", "out", "--logistic", "died=Y"]
    words += ["--on", "ward", "--force", "-q"]
    for way in ("private", "exact"):
        said = one_sentence(here(*words, "--missing", f"died={way}"))
        assert f"missing values of 'died' cannot be {way} in" in said
        (advised,) = follow_advice(said)
        assert here(*words, *advised).code == 0


def test_a_value_that_nobody_can_have_is_questioned(here: Semidp) -> None:
    Path("data.csv").write_text("ward,died\n" + "a,Y\na,N\nb,N\nb,Y\n" * 9, encoding="utf-8")
    words = ["release", "data.csv", "--mu", "1", "--out", "out", "--group", "ward", "-q", "--force"]
    for known in (["--levels", "died=Y,N"], ["--exact", "died"]):
        said = one_sentence(here(*words, *known, "--proportion", "died=Yes"))
        assert said.startswith("semidp: 'Yes' is not a level of died")
        assert here(*words, *known, "--proportion", "died=Y").code == 0


def test_clipping_and_an_odd_count_are_mentioned_whatever_the_data_hold(here: Semidp) -> None:
    Path("data.csv").write_text("ward,age\n" + "a,20\nb,30\n" * 9, encoding="utf-8")
    words = ["release", "data.csv", "--mu", "1", "--out", "out", "--force", "--group", "ward"]
    done = here(*words, "--mean", "age", "--bounds", "age=0,120")
    assert "clipped    age to 0 … 120: a value outside counts as the nearest bound" in done.out
    done = here(*words[:-2], "--table", "ward", "--exact", "ward", "--count", "age")
    assert "The count column is 'age': each row stands for that many records." in done.err
