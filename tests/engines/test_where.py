"""Conditions on records (`where`): columns compared as numbers, and what is refused."""

import operator
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engines.small_files import SECRET, SEX, Refused, written_csv

from semidp.core.tables.features import Feature
from semidp.core.tables.schema import Schema
from semidp.errors import DataError, InputError
from semidp.sources import duck_conditions
from semidp.sources.opening import open_source


def test_numbers_in_a_csv_file_compare_as_numbers_in_a_where(
    tmp_path: Path, refused: Refused
) -> None:
    file = written_csv(tmp_path, "sex,age,zip,x\nf,9,01,1\nm,10,02,n/a\nf,11,01,\n")
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
    with open_source(written_csv(tmp_path, WIDE), where=where) as source:
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
        open_source(written_csv(tmp_path, WIDE), where=where)
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
    file = written_csv(tmp_path, "\n".join(["row,lo,hi", *lines]) + "\n")
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
    with open_source(written_csv(tmp_path, WIDE), where="lo < hi"):
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
    file = written_csv(tmp_path, "sex,age\nf,9\nm,10\n")
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
    outside = written_csv(tmp_path, f"age\n{SECRET}\n")
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
    file = written_csv(tmp_path, "word\n" + "b\n" * 3000)
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
