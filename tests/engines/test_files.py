"""Files and data frames through DuckDB: what is read as it stands, what is refused, and what is
left behind.
"""

import contextlib
import gzip
import operator
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semidp.core.tables.counts import Table
from semidp.core.tables.features import Feature
from semidp.core.tables.schema import Schema
from semidp.errors import DataError, InputError, MissingExtra, SchemaError
from semidp.sources import duck_conditions, ibis_databases
from semidp.sources.contract import Outcome
from semidp.sources.duck_files import records_of_files
from semidp.sources.opening import open_source

SECRET = 7654321
SEX = Schema((Feature("sex", ("f", "m")),))
Refused = Callable[[BaseException, str], None]


def _csv(folder: Path, text: str, name: str = "people.csv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


words = st.text(st.characters(codec="utf-8", exclude_characters="\x00\r"), min_size=1, max_size=8)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.lists(words, min_size=1, max_size=20), st.sampled_from(",;\t|"))
def test_any_text_survives_a_csv_file(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], comma: str
) -> None:
    quoted = ['"' + text.replace('"', '""') + '"' for text in texts]
    lines = [comma.join(["town", "sex"]), *(comma.join([text, "f"]) for text in quoted)]
    file = _csv(tmp_path_factory.mktemp("csv"), "\n".join(lines) + "\n")
    levels = tuple(dict.fromkeys(texts))
    schema = Schema((Feature("town", levels), Feature("sex", ("f", "m"))))
    with open_source(file) as source:
        expected = Table.from_frame(
            {"town": np.array(texts, dtype=object), "sex": ["f"] * len(texts)}, schema
        )
        assert source.counts(schema) == expected
        assert set(source.levels("town")) == set(levels)


def test_csv_values_stay_the_text_they_are(tmp_path: Path) -> None:
    file = _csv(tmp_path, "code\n01\n1\n1.0\nTrue\n# 3\n 4\nNULL\nnan\n")
    with open_source(file) as source:
        assert set(source.levels("code")) == {"01", "1", "1.0", "True", "# 3", " 4", "NULL", "nan"}


def test_an_empty_csv_value_is_missing_quoted_or_not(tmp_path: Path, refused: Refused) -> None:
    file = _csv(tmp_path, 'sex,age\nf,1\n,2\n"",\n')
    with open_source(file) as source:
        schema = Schema(
            (
                Feature("sex", ("f", "m"), null_level="?"),
                Feature("age", bins=(0, 2), null_level="?"),
            )
        )
        assert source.counts(schema).counts.tolist() == [[1, 0, 0], [0, 0, 0], [0, 1, 1]]
        with pytest.raises(DataError) as caught:
            source.counts(SEX)
        refused(caught.value, "feature 'sex' has missing values")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b"sex,age\nf,1\nm,2\nm,3"),
        ("b.tsv", b"sex\tage\nf\t1\nm\t2\nm\t3\n"),
        ("c.txt", b"sex|age\r\nf|1\r\nm|2\r\nm|3\r\n"),
        ("d.CSV", b"\xef\xbb\xbfsex;age\nf;1\nm;2\nm;3\n"),
        ("e.csv.gz", gzip.compress(b"sex,age\nf,1\nm,2\nm,3\n", mtime=0)),
        ("f.v2.csv", b'"sex","age, in years; or | so"\nf,1\nm,2\nm,3\n'),
        ("it's [1].csv", b"sex\nf\nm\nm\n"),
    ],
)
def test_ways_to_write_a_csv_file(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with open_source(tmp_path / name) as source:
        assert source.columns()[0] == "sex"
        assert source.counts(SEX).counts.tolist() == [1, 2]


def test_a_glob_reads_every_file_and_a_link_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in range(3):
        _csv(tmp_path, f"sex,age\nf,{part}\n", f"part-{part}.csv")
    (tmp_path / "link.csv").symlink_to("part-1.csv")
    monkeypatch.chdir(tmp_path)
    with open_source("part-*.csv") as source:
        assert source.counts(SEX).counts.tolist() == [3, 0]
    with open_source("link.csv") as source:
        assert source.counts(SEX).counts.tolist() == [1, 0]


def test_a_file_without_records_is_refused_unless_it_is_expected(
    tmp_path: Path, refused: Refused
) -> None:
    _csv(tmp_path, "sex,age\n", "a.csv")
    _csv(tmp_path, "sex,age\nf,1\n", "b.csv")
    pyarrow.parquet.write_table(
        pa.table({"sex": pa.array([], pa.string())}), tmp_path / "a.parquet"
    )
    for data in (tmp_path / "a.csv", str(tmp_path / "*.csv"), tmp_path / "a.parquet"):
        with pytest.raises(DataError) as caught:
            open_source(data)
        refused(
            caught.value,
            r"a\.(csv|parquet) holds no record: check that it is whole, or allow empty files$",
        )
    with open_source(tmp_path / "a.csv", allow_empty=True) as source:
        assert source.counts(SEX).n == 0
        assert source.sums(SEX, Outcome("age", 0, 1, 5)).tolist() == [0, 0]
    with open_source(str(tmp_path / "*.csv"), allow_empty=True) as source:
        assert source.counts(SEX).counts.tolist() == [1, 0]
    # it is the file that must not be empty
    with open_source(tmp_path / "b.csv", where="age > 1") as source:
        assert source.counts(SEX).n == 0


def _parquet(path: Path, names: Sequence[str]) -> Path:
    pyarrow.parquet.write_table(
        pa.table([[{"x": 1, "X": 2}], *([["f"]] * len(names))], names=["s", *names]), path
    )
    return path


@pytest.mark.parametrize("names", [("sex", "sex"), ("sex", "Sex"), ("a", "a_1", "a")])
def test_two_columns_of_one_name_are_refused(
    tmp_path: Path, refused: Refused, names: tuple[str, ...]
) -> None:
    """DuckDB would name the second one anew, and a plan that means it would read the first."""
    import pandas as pd

    for data in (
        _csv(tmp_path, ",".join(names) + "\n" + ",".join(["f"] * len(names)) + "\n"),
        _parquet(tmp_path / "people.parquet", names),
        pa.table([["f"]] * len(names), names=list(names)),
        pd.DataFrame([["f"] * len(names)], columns=list(names)),
    ):
        with pytest.raises(DataError) as caught:
            open_source(data)
        refused(
            caught.value,
            "names two columns alike, capitals aside: give every column a name of its own",
        )
    with pytest.raises(DataError, match="names two columns alike"):
        open_source({"sex": ["f"], "SEX": ["m"]})


def test_columns_of_their_own_names_are_read(tmp_path: Path) -> None:
    names = ("sex", "sex_1", "É", "é", 'a "b"', "c,d")
    header = ",".join('"' + name.replace('"', '""') + '"' for name in names)
    for data, found in (
        (_csv(tmp_path, header + "\n" + ",".join("abcdef") + "\n"), names),
        (_csv(tmp_path, "sex, age \nf,1\n", "space.csv"), ("sex", "age")),
        (_parquet(tmp_path / "people.parquet", names), ("s", *names)),
        # what R and pandas write for row names
        (_csv(tmp_path, ",sex\n1,f\n", "index.csv"), ("column0", "sex")),
    ):
        with open_source(data) as source:
            assert source.columns() == found


def test_files_of_a_glob_have_one_header(tmp_path: Path, refused: Refused) -> None:
    _csv(tmp_path, "sex,age\nf,1\n", "a.csv")
    for other in ("age,sex\n1,f\n", "sex,age,town\nf,1,x\n", "sex;age\nf;1\n", "sex\nf\n"):
        _csv(tmp_path, other, "b.csv")
        with pytest.raises(DataError) as caught:
            open_source(str(tmp_path / "*.csv"))
        refused(
            caught.value, "have different headers: name files with the same columns in one order"
        )


def test_a_table_of_too_many_columns_is_refused(tmp_path: Path, refused: Refused) -> None:
    names = [f"c{number}" for number in range(100_000)]
    file = _csv(tmp_path, ",".join(names) + "\n" + ",".join("1" for _ in names) + "\n")
    for data in (file, {name: np.zeros(1) for name in names[:10_001]}):
        with pytest.raises(DataError) as caught:
            open_source(data)
        refused(caught.value, "has more than 10,000 columns: keep those that are needed")


def _partitioned(folder: Path) -> Path:
    for sex, region, other in (
        ("f", "n", "m"),
        ("m", "s%20w", "f"),
        ("m", "__HIVE_DEFAULT_PARTITION__", "m"),
    ):
        place = folder / f"Sex={sex}" / f"region={region}"
        place.mkdir(parents=True)
        _csv(place, f"sex,age\n{other},30\n")
        pyarrow.parquet.write_table(
            pa.table({"sex": [other], "age": [30]}), place / "people.parquet"
        )
    return folder


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_folder_names_are_data_only_where_asked_and_only_for_columns_that_files_lack(
    tmp_path: Path, kind: str, refused: Refused
) -> None:
    pattern = str(_partitioned(tmp_path / "year=2020") / "**" / f"*.{kind}")
    with open_source(pattern) as source:
        assert source.columns() == ("sex", "age")
        assert source.counts(SEX).counts.tolist() == [1, 2]
    with open_source(
        pattern, hive_partitions=True, where="region IS NULL OR region <> 'n' AND age > 20"
    ) as source:
        assert source.columns() == ("sex", "age", "year", "region")
        region = Feature("region", ("n", "s w"), null_level="?")
        assert source.counts(Schema((*SEX.features, region))).counts.tolist() == [
            [0, 1, 0],
            [0, 0, 1],
        ]
        assert source.levels("year") == ("2020",)
    _csv(tmp_path, "sex,age\nf,1\n")
    with pytest.raises(InputError) as caught:
        open_source(str(tmp_path / "**" / "*.csv"), hive_partitions=True)
    refused(caught.value, "folders of different partitions")


def test_a_file_that_exists_is_that_file_whatever_its_name(tmp_path: Path) -> None:
    for name, other in (
        ("a[1].csv", "a1.csv"),
        ("b*.csv", "bb.csv"),
        ("c?.csv", "cc.csv"),
        ("[d].csv", "d.csv"),
    ):
        _csv(tmp_path, "sex\nf\n", name)
        _csv(tmp_path, "sex\nm\n", other)
        with open_source(tmp_path / name) as source:
            assert source.counts(SEX).counts.tolist() == [1, 0]
    (tmp_path / "of [1]").mkdir()
    pyarrow.parquet.write_table(pa.table({"sex": ["f"]}), tmp_path / "of [1]" / "*.parquet")
    pyarrow.parquet.write_table(pa.table({"sex": ["f"]}), tmp_path / "of [1]" / "a.parquet")
    with open_source(tmp_path / "of [1]") as source:
        assert source.counts(SEX).counts.tolist() == [2, 0]


def test_a_folder_of_parquet_files_is_a_source(tmp_path: Path, refused: Refused) -> None:
    folder = tmp_path / "people"
    for part, sex in (
        ("a.parquet", "f"),
        ("x=1/b.pq", "m"),
        ("_delta/c.parquet", "m"),
        (".d.parquet", "m"),
    ):
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pa.table({"sex": [sex]}), folder / part)
    (folder / "_SUCCESS").touch()
    (folder / "notes.md").touch()
    for data in (folder, f"{folder}/"):
        with open_source(data) as source:
            assert source.columns() == ("sex",)
            assert source.counts(SEX).counts.tolist() == [1, 1]
    _csv(folder, "sex\nf\n")
    with pytest.raises(InputError) as caught:
        open_source(folder)
    refused(caught.value, "matches both CSV and Parquet files: name one kind")
    (folder / "release.json").touch()
    with pytest.raises(InputError) as caught:
        open_source(folder)
    refused(caught.value, "is a release, not data: name the records that it was made from")


def test_a_pipe_is_no_file(tmp_path: Path, refused: Refused) -> None:
    os.mkfifo(tmp_path / "people.csv")
    with pytest.raises(InputError) as caught:
        open_source(tmp_path / "people.csv")
    refused(
        caught.value, "is no regular file, and data are read more than once: copy them to a file"
    )


@pytest.mark.parametrize("change", ["rewritten", "replaced", "removed"])
def test_a_file_that_changes_between_two_questions_is_refused(
    tmp_path: Path, refused: Refused, change: str
) -> None:
    file = _csv(tmp_path, "sex,age\nf,1\n")
    with open_source(file) as source:
        assert source.counts(SEX).n == 1
        if change == "removed":
            file.unlink()
        else:
            other = file if change == "rewritten" else tmp_path / "new.csv"
            other.write_text("sex,age\nf,2\n", encoding="utf-8")
            os.utime(other, ns=(1, 1))  # a stamp that no clock gave the first one
            os.replace(other, file)
        with pytest.raises(DataError) as caught:
            source.sums(SEX, Outcome("age", 0, 10, 10))
        refused(caught.value, "changed while it was read|could not be tabulated")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "ragged.csv",
            f"sex,age\nf,1\nm,2,{SECRET}\n".encode(),
            "ragged.csv has records with more or fewer values",
        ),
        (
            "open.csv",
            f'sex,age\nf,1\n"m,{SECRET}\n'.encode(),
            "open.csv has a quote that is not closed",
        ),
        (
            "latin.csv",
            f"sex,age\nf,1\nm\xe9,{SECRET}\n".encode("latin-1"),
            "latin.csv holds text that is not UTF-8",
        ),
        ("empty.csv", b"", "empty.csv is empty: it needs a header"),
        ("half.parquet", b"PAR1" + str(SECRET).encode(), "could not be read as Parquet: check"),
    ],
)
def test_broken_files_are_refused_in_a_sentence(
    tmp_path: Path, refused: Refused, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as caught, open_source(tmp_path / name) as source:
        source.counts(SEX)
    refused(caught.value, message)


def test_files_that_are_not_there_or_not_data(tmp_path: Path, refused: Refused) -> None:
    _csv(tmp_path, "sex\nf\n", "a.csv")
    _csv(tmp_path, "sex\nf\n", "a.data")
    (tmp_path / "empty").mkdir()
    pyarrow.parquet.write_table(pa.table({"sex": ["f"]}), tmp_path / "a.parquet")
    for data, message in (
        (tmp_path / "none.csv", r"there is no file .*none\.csv$"),
        (str(tmp_path / "none-*.csv"), r"there is no file .*none-\*\.csv$"),
        (tmp_path / "a.csv" / "below.csv", "there is no file"),
        (
            tmp_path / "empty",
            r"the folder .* holds no Parquet file: name its files, as in '.*\*\.csv'",
        ),
        (f"{tmp_path}/e*", "matches the folder .*: name files, or one folder of Parquet files"),
        (tmp_path / "a.data", r"does not say what it holds: end it in \.csv"),
        (str(tmp_path / "a.[cp]*"), "matches both CSV and Parquet files"),
        ([1, 2], "a list cannot be read: give a path, a database address, a data frame"),
        (None, "a NoneType cannot be read"),
    ):
        with pytest.raises(InputError) as caught:
            open_source(data)
        refused(caught.value, message)
    with pytest.raises(InputError) as caught:
        open_source(tmp_path / "a.csv", table="people")
    refused(caught.value, "the table 'people' can be chosen only at a database address")


def test_numbers_in_a_csv_file_compare_as_numbers_in_a_where(
    tmp_path: Path, refused: Refused
) -> None:
    file = _csv(tmp_path, "sex,age,zip,x\nf,9,01,1\nm,10,02,n/a\nf,11,01,\n")
    for where, expected in (
        ("age >= 10", [1, 1]),
        ("age BETWEEN 9 AND 10.5", [1, 1]),
        ("zip = '01'", [2, 0]),
        ("zip LIKE '0%'", [2, 1]),
        ("CAST(age AS DOUBLE) > 9.5 AND zip LIKE '01'", [1, 0]),
        ("x = 'n/a' OR x IS NULL", [1, 1]),
    ):
        with open_source(file, where=where) as source:
            assert source.counts(SEX).counts.tolist() == expected
    for where in ("x + 1 > 2", "age", "age || 'x'"):
        with pytest.raises(InputError) as caught:
            open_source(file, where=where)
        refused(caught.value, r"the WHERE must be one condition.*convert text with CAST")


WIDE = (
    "row,lo,hi,code,short,mixed,dose,money,big,word,paid\n"
    'a,10,9,01,1,5,1.50,"1,200",12345678901234567890,x,True\n'
    "b,9,10,10,10,n/a,2,7,12345678901234567891,y,false\n"
    "c,5,60,02,01,7,-.5,8,1,z,TRUE\n"
    "d,,3,11,100,,,,2,,\n"
)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("where", "kept", "numbers"),
    [
        ("lo < hi", "bc", ["lo", "hi"]),
        ("LO < '9'", "c", ["lo"]),
        ("lo LIKE '1%' OR length(lo) = 2", "a", []),
        ("substr(lo, 1, 1) = '9'", "b", []),
        ("lo = '05'", "", []),
        ("lo = length(word) + 8", "b", ["lo"]),
        ("hi = substr(hi, 1, 1)", "ad", []),
        ("abs(lo) > 5 AND sqrt(hi) > 3", "b", ["lo", "hi"]),
        ("dose = 1.5", "a", ["dose"]),
        ("dose = '1.5'", "a", ["dose"]),
        ("CAST(dose AS VARCHAR) = '1.50'", "a", []),
        ("dose::DOUBLE < 0", "c", []),
        ("big = 12345678901234567890", "a", ["big"]),
        ("code < '03'", "ac", []),
        ("code BETWEEN '02' AND '10'", "bc", []),
        ("short = '01'", "c", []),
        ("mixed = '5' OR mixed = 'n/a'", "ab", []),
        ("coalesce(mixed, '') <> '5'", "bcd", []),
        ("CAST(short AS DOUBLE) < 2", "ac", []),
        ("TRY_CAST(mixed AS DOUBLE) > 5", "c", []),
        ("word < 'y'", "a", []),
        ("word = paid", "", []),
        ("paid", "ac", []),
        ("paid = 'true' AND lo > 9", "a", ["lo"]),
        ("paid = 'True'", "ac", []),
    ],
)
def test_columns_of_a_csv_file_are_numbers_where_every_value_is(
    tmp_path: Path, where: str, kept: str, numbers: list[str]
) -> None:
    with open_source(_csv(tmp_path, WIDE), where=where) as source:
        assert list(source.read_as_numbers) == numbers
        rows = source.counts(Schema([Feature("row", "abcd")])).counts
        assert "".join(name for name, count in zip("abcd", rows, strict=True) if count) == kept
        if "a" in kept:
            assert "1.50" in source.levels("dose")  # text as it is written


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("where", "named"),
    [
        ("mixed > 5", "mixed"),
        ("mixed = 5", "mixed"),
        ("lo < mixed", "mixed"),
        ("code < 3", "code"),
        ("code = 1", "code"),
        ("lo < code", "code"),
        ("short < '5'", "short"),
        ("short < code", "short"),
        ("money >= 7", "money"),
        ("greatest(lo, mixed) = '10'", "mixed"),
        ("hi > 1 AND word = 5", "word"),
    ],
)
def test_a_comparison_that_one_record_could_turn_is_refused(
    tmp_path: Path, refused: Refused, where: str, named: str
) -> None:
    """Were it text because of one record, that person would decide which others are kept."""
    with pytest.raises(DataError) as caught:
        open_source(_csv(tmp_path, WIDE), where=where)
    refused(
        caught.value,
        rf"^the WHERE compares '{named}', whose values are not all numbers .*CAST\({named} AS"
        r" DOUBLE\)",
    )
    assert "5" not in str(caught.value)


whole = st.integers(-(10**18), 10**18) | st.integers(-12, 12)
real = st.floats(allow_nan=False, allow_infinity=False) | st.decimals(-20, 20, places=1).map(float)
OPERATORS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "<>": operator.ne,
}


@pytest.mark.long
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.lists(st.tuples(whole, whole), min_size=1, max_size=8)
    | st.lists(st.tuples(real, real), min_size=1, max_size=8),
    sign=st.sampled_from(sorted(OPERATORS)),
)
def test_any_two_columns_of_numbers_compare_as_they_do_in_python(
    tmp_path: Path, rows: list[tuple[float, float]], sign: str
) -> None:
    lines = [f"r{place},{low!r},{high!r}" for place, (low, high) in enumerate(rows)]
    file = _csv(tmp_path, "\n".join(["row,lo,hi", *lines]) + "\n")
    kept = [OPERATORS[sign](low, high) for low, high in rows]
    with open_source(file, where=f"lo {sign} hi") as source:
        schema = Schema([Feature("row", [f"r{place}" for place in range(len(rows))])])
        assert source.counts(schema).counts.astype(bool).tolist() == kept
        assert source.read_as_numbers == ("lo", "hi")


def test_only_the_columns_that_a_where_names_are_surveyed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    plain = duck_conditions.run_query

    def spied(connection: Any, sql: str, *others: Any) -> Any:
        asked.append(sql)
        return plain(connection, sql, *others)

    monkeypatch.setattr(duck_conditions, "run_query", spied)
    with open_source(_csv(tmp_path, WIDE), where="lo < hi"):
        surveys = [sql for sql in asked if "regexp_full_match" in sql]
    assert len(surveys) == 1
    assert set(re.findall(r'"(\w+)"', surveys[0])) == {"lo", "hi"}


def test_a_folder_that_names_a_number_compares_as_one(tmp_path: Path) -> None:
    for year in (999, 2020):
        (tmp_path / f"year={year}").mkdir()
        (tmp_path / f"year={year}" / "a.csv").write_text(f"sex\n{'f' if year == 999 else 'm'}\n")
        pa.parquet.write_table(
            pa.table({"sex": ["f" if year == 999 else "m"]}),
            tmp_path / f"year={year}" / "a.parquet",
        )
    for kind in ("csv", "parquet"):
        with open_source(
            f"{tmp_path}/*/*.{kind}", hive_partitions=True, where="year < 2000"
        ) as source:
            assert source.levels("sex") == ("f",)
            assert source.read_as_numbers == ("year",)


def test_a_where_that_keeps_nothing_says_so(tmp_path: Path, refused: Refused) -> None:
    file = _csv(tmp_path, "sex,age\nf,9\nm,10\n")
    with open_source(file, where="sex = 'F'") as source:
        for ask in (lambda: source.levels("sex"), lambda: source.paths(["sex", "age"])):
            with pytest.raises(DataError) as caught:
                ask()
            refused(caught.value, "^the WHERE keeps no record: check its condition")


def test_a_where_may_depend_on_the_record_alone(tmp_path: Path, refused: Refused) -> None:
    """A comparison with other records would let one person decide who else is counted."""
    frame = {"age": np.array([1, 2, 3]), "word": np.array(["SUBQUERY", "WINDOW", "x"])}
    with open_source(frame, where="word IN ('SUBQUERY', 'WINDOW')") as source:
        assert source.counts(Schema((Feature("age", range(1, 4)),))).n == 2
    outside = _csv(tmp_path, f"age\n{SECRET}\n")
    for where in (
        "age > (SELECT min(age) FROM records)",
        "age IN (SELECT age FROM source)",
        "age = ANY (SELECT 1)",
        f"age < (SELECT max(age) FROM read_csv('{outside}'))",
        "age > row_number() OVER ()",
        "age > max(age)",
        "frame IS NOT NULL",
        "age > 1; SET lock_configuration = false",
    ):
        with pytest.raises(InputError) as caught:
            open_source(frame, where=where)
        refused(
            caught.value,
            r"the WHERE must (be one condition|depend on the record alone, and max\(\))",
        )


DAY = {
    "day": np.array(["2020-01-01"], dtype="datetime64[us]"),
    "word": np.array(["x"]),
    "age": np.array([1]),
}


@pytest.mark.parametrize(
    ("where", "named"),
    [
        ("random() < 0.5", "random"),
        ("day < now()", "now"),
        ("day < get_current_timestamp()", "get_current_timestamp"),
        ("age(day) > INTERVAL 1 YEAR", "age"),
        ("day < current_localtimestamp()", "current_localtimestamp"),
        ("nextval('s') > 1", "nextval"),
        ("uuid()::VARCHAR < 'a'", "uuid"),
        ("getvariable('x') = 1", "getvariable"),
        ("current_setting('threads') = '1'", "current_setting"),
        ("sleep_ms(1) IS NULL", "sleep_ms"),
        ("nullif(age, 1) IS NULL", "nullif"),  # a macro, of which DuckDB declares nothing
        ("no_such_function(age)", "no_such_function"),
        ("age > 1 OR (CASE WHEN lower(word) = 'x' THEN random() END) < 0.5", "random"),
        ("json_serialize_plan('SELECT * FROM records') IS NULL", "json_serialize_plan"),
    ],
)
def test_a_where_calls_only_what_duckdb_declares_consistent(
    where: str, named: str, refused: Refused
) -> None:
    with pytest.raises(InputError) as caught:
        open_source(DAY, where=where)
    refused(
        caught.value,
        rf"^the WHERE must depend on the record alone, and {named}\(\) is not declared to: leave",
    )


@pytest.mark.parametrize(
    "where",
    [
        "day < current_date",
        "day < current_timestamp",
        "current_user = word",
        "rowid = 1",
        "list_transform([age], x -> random())[1] < 1",
        "COLUMNS(*) IS NULL",
        "age = $1",
        "age = #1",
        "main.random() < 1",
        "word.random() < 1",
        "age IN (FROM range(3))",
        "source.age = 1",
        "(" * 4000 + "age = 1" + ")" * 4000,
    ],
)
def test_a_where_is_made_of_columns_constants_and_functions(where: str, refused: Refused) -> None:
    with pytest.raises(InputError) as caught:
        open_source(DAY, where=where)
    refused(caught.value, "^the WHERE must be one condition on the columns of a record")


@pytest.mark.parametrize(
    "where",
    [
        "extract(year FROM day) = 2020 AND date_trunc('month', day) <= DATE '2020-01-01'",
        (
            "WORD IN ('x', 'y') AND upper(word) LIKE 'X%' AND word NOT LIKE 'y' AND word ILIKE 'X'"
            " AND word SIMILAR TO 'x'"
        ),
        (
            "coalesce(age, 0) BETWEEN 0 AND 1e3 AND NOT (age IS NULL) AND age % 2 = 1 AND -age < 0"
            " AND abs(age) = 1"
        ),
        "CASE WHEN try_cast(word AS INTEGER) IS NULL THEN length(word || 'x') = 2 ELSE false END",
        (
            "regexp_matches(word, '^x') AND greatest(age, 2) = 2 AND list_contains(['x'], word) AND"
            " repeat(word, 2) = 'xx'"
        ),
        (
            "age IS DISTINCT FROM 3 AND day + INTERVAL 1 DAY > day AND word[1] = 'x' AND"
            " strftime(day, '%Y') = '2020'"
        ),
    ],
)
def test_ordinary_conditions_are_kept(where: str) -> None:
    with open_source(DAY, where=where) as source:
        assert source.counts(Schema((Feature("word", ("x", "y")),))).counts.tolist() == [1, 0]


def test_a_where_of_any_length_is_not_read(refused: Refused) -> None:
    with pytest.raises(InputError) as caught:
        open_source(DAY, where=" OR ".join(["age = 1"] * 1000))
    refused(
        caught.value,
        "the WHERE has more than 10,000 characters: keep the records in a view or a file",
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("times", ["'b'", "word"])
def test_a_where_that_takes_for_ever_is_given_up(tmp_path: Path, times: str) -> None:
    """Whether the whole of it is a constant, or has to be decided for records; in a process that
    ends all the same.
    """
    file = _csv(tmp_path, "word\n" + "b\n" * 3000)
    code = f"""
import sys
from semidp.cli import main
from semidp.sources import duck_files
duck_files.PATIENCE = 0.5
where = "levenshtein(repeat({times}, 2000000), repeat({times}, 2000000)) > 1"
sys.argv = ["semidp", "release", {str(file)!r}, "--table", "word", "--invariant", "word", "--rho", "1"]
sys.argv += ["--dry-run", "--where", where]
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=280)
    assert done.returncode == 2
    sentence = (
        "the WHERE takes too long and was given up: write a condition that is quicker to decide"
    )
    assert done.stderr == f"semidp: {sentence}\n"


def test_the_database_can_reach_nothing_else(tmp_path: Path) -> None:
    import duckdb

    file = _csv(tmp_path, "sex\nf\n")
    other = _csv(tmp_path, "sex\nm\n", "other.csv")
    records = records_of_files(str(file), None)
    settings = "current_setting('temp_directory'), current_setting('enable_external_access')"
    assert records._rows(f"SELECT {settings}") == [("", False)]
    for sql in (
        f"SELECT * FROM read_csv('{other}')",
        f"COPY records TO '{tmp_path / 'copy.csv'}'",
        f"ATTACH '{tmp_path / 'new.db'}'",
        "INSTALL httpfs",
        "SET temp_directory = '/tmp'",
        "SET enable_external_access = true",
        "SELECT * FROM other",
    ):
        with pytest.raises(duckdb.Error):
            records._connection.execute(sql)
    records.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.csv", "people.csv"]


def test_nothing_is_written_to_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = np.arange(300_000)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    with open_source(
        {"id": numbers, "sex": np.array(["f", "m", "f"])[numbers % 3]}, id="id"
    ) as source:
        assert source.counts(SEX).counts.tolist() == [200_000, 100_000]
    assert list(tmp_path.rglob("*")) == [tmp_path / "work"]


def test_pandas_columns_of_every_kind() -> None:
    import pandas as pd

    frame = pd.DataFrame(
        {
            "kind": pd.Categorical(["a", None, "b"]),
            "grade": pd.Categorical([1, 2, None]),
            "when": pd.to_datetime(["2020-01-01 00:00", None, "2020-01-02 03:04"]),
            "whole": pd.array([1, None, 2], dtype="Int64"),
            "mixed": [1, "z", None],
            "flag": [True, None, False],
        }
    )
    expected = {
        "kind": ("a", "b"),
        "grade": ("1", "2"),
        "when": ("2020-01-01", "2020-01-02 03:04:00"),
        "whole": ("1", "2"),
        "mixed": ("1", "z"),
        "flag": ("false", "true"),
    }
    with open_source(frame) as source:
        assert {name: source.levels(name) for name in frame.columns} == expected
        for name, levels in expected.items():
            assert source.counts(
                Schema((Feature(name, levels, null_level="none"),))
            ).counts.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.uint64(), pa.int64(), pa.float32(), pa.float64(), pa.string()]
)
@pytest.mark.parametrize(
    "bins", [(0, 3, 7), ("-inf", "2.5", 5), ("0.5", 3, "1e300"), ("-3", "6.999")]
)
def test_bins_are_the_same_whatever_the_column_is_stored_as(
    kind: Any, bins: tuple[Any, ...]
) -> None:
    values = [1, 2, 3, 4, 5, 6, 7, 8, None, 3]
    schema = Schema((Feature("x", bins=bins, null_level="?"),))
    column = pa.array([None if value is None else str(value) for value in values]).cast(kind)
    expected = Table.from_frame({"x": np.array(values, dtype=object)}, schema)
    with open_source(pa.table({"x": column})) as source:
        assert source.counts(schema) == expected


def test_decimals_of_parquet_print_as_the_numbers_they_are(tmp_path: Path) -> None:
    from decimal import Decimal

    values = pa.array([Decimal("1.00"), Decimal("2.50"), None], pa.decimal128(5, 2))
    pyarrow.parquet.write_table(
        pa.table({"x": values, "list": [[1], [2], [3]]}), tmp_path / "a.parquet"
    )
    with open_source(tmp_path / "a.parquet") as source:
        assert source.levels("x") == ("1", "2.5")
        assert source.counts(
            Schema((Feature("x", bins=(0, 2), null_level="?"),))
        ).counts.tolist() == [1, 1, 1]
        with pytest.raises(
            SchemaError, match="column 'list' does not hold numbers, which bins need"
        ):
            source.counts(Schema((Feature("list", bins=(0, 2)),)))


def test_a_column_with_too_many_values_is_no_feature(refused: Refused) -> None:
    with (
        open_source({"name": np.arange(SECRET, SECRET + 10_001)}) as source,
        pytest.raises(DataError) as caught,
    ):
        source.levels("name")
    refused(caught.value, "column 'name' has more than 10,000 distinct values")


def test_totals_beyond_exact_arithmetic_are_refused(refused: Refused) -> None:
    counts = np.full(600, 2**53 - 1)
    with open_source({"sex": np.array(["f"] * 600), "people": counts}, count="people") as source:
        with pytest.raises(DataError) as caught:
            source.counts(SEX)
        refused(caught.value, "sum to more than 2")
        with pytest.raises(DataError) as caught:
            source.sums(SEX, Outcome("people", 0, 1, 2**32))
        refused(caught.value, "sum to more than 2")


def test_a_grid_has_at_least_one_step() -> None:
    for steps in (0, -1, True, 2**33, 1.5):
        with pytest.raises(InputError, match="must have from 1 to"):
            Outcome("score", 0, 1, steps)  # type: ignore[arg-type]


UNUSED = ["ibis", "pandas", "polars", "pyarrow", "pyspark", "psycopg", "sqlglot"]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("code", "unused"),
    [
        ("import semidp.sources", [*UNUSED, "duckdb"]),
        (
            (
                "from semidp import Feature, Schema, open_source\nwith open_source(FILE, where='age"
                " > 1', id='id') as source:\n    source.counts(Schema((Feature('sex',"
                " source.levels('sex')), Feature('age', bins=(0, 2)))))\n"
            ),
            UNUSED,
        ),
    ],
)
def test_unused_backends_are_never_imported(tmp_path: Path, code: str, unused: list[str]) -> None:
    file = _csv(tmp_path, "id,sex,age\n1,f,3\n2,m,4\n")
    check = (
        f"import sys\nFILE = {str(file)!r}\n{code}\nprint([name for name in {unused!r} if name in"
        " sys.modules])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == "[]"


def test_addresses_hold_no_password_and_name_a_table(refused: Refused) -> None:
    for address, message in (
        (
            f"postgres://me:{SECRET}@host/db",
            "the database address holds a password: leave it out, and set SEMIDP_P",
        ),
        (f"postgres://me@host/db?password={SECRET}", "the database address holds a password"),
        (f"postgres://host:{SECRET}/db", "the database address is malformed: write it as"),
        ("postgres://me@host/db", "a database address needs the name of a table"),
    ):
        with pytest.raises(InputError) as caught:
            open_source(address)
        refused(caught.value, message)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    monkeypatch.setitem(sys.modules, "ibis", None)
    for address, extra in (
        ("postgres://me@host/db", "postgres"),
        ("spark://local", "spark"),
        ("mysql://h/d", "ibis"),
    ):
        with pytest.raises(MissingExtra) as caught:
            open_source(address, table="people")
        refused(caught.value, rf"pip install 'semidp\[{extra}\]'")


def test_a_file_without_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    file = _csv(tmp_path, "sex\nf\n")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as root, every file may be read
    with pytest.raises(InputError) as caught:
        open_source(file)
    refused(caught.value, "may not be read: check its permissions")


def test_an_interrupt_stays_an_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        def execute(self, sql: str) -> None:
            raise RuntimeError("Query interrupted")

    records = records_of_files(str(_csv(tmp_path, "sex\nf\n")), None)
    monkeypatch.setattr(records, "_connection", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        records.occurrences("sex")


def test_a_source_can_be_closed_twice(tmp_path: Path) -> None:
    source = open_source(_csv(tmp_path, "sex\nf\n"))
    source.close()
    source.close()


def test_an_ibis_value_that_is_no_table(refused: Refused) -> None:
    odd: Any = type("Column", (), {"__module__": "ibis.expr.types"})()
    with pytest.raises(InputError) as caught:
        open_source(odd)
    refused(caught.value, "an Ibis value was given that is not a table")


def test_a_database_that_does_not_answer_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite counts for ever; without the interruption this test would not end."""
    monkeypatch.setattr(ibis_databases, "_PATIENCE", 0.2)
    forever = (
        "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers) SELECT"
        " count(*) FROM numbers"
    )
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        database = Database("sqlite", connection)
        with pytest.raises(InputError, match="takes too long") as caught:
            ibis_databases.bounded(database, lambda: connection.execute(forever).fetchall())
        assert caught.value.__context__ is None
        with pytest.raises(sqlite3.OperationalError):
            ibis_databases.bounded(
                database, lambda: connection.execute("SELECT nothing").fetchall()
            )


@dataclass
class Database:
    """What the engine knows of a connection."""

    name: str
    con: sqlite3.Connection
