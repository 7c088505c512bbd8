"""Conditions on records (`where`): columns compared as numbers, and what is refused."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.engines.small_files import SECRET, Refused, written_csv

from semidp.errors import DataError, InputError
from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema
from semidp.publish.sources.opening import open_source


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
            r"the WHERE must (be one condition|depend on the record alone, and .* (max|row_number)\(\))",
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
        rf"^the WHERE must depend on the record alone, and semidp does not know that of {named}\(\)",
    )


@pytest.mark.parametrize(
    "where",
    [
        "day < current_date",
        "day < current_timestamp",
        "current_user = word",
        "rowid = 1",
        "list_transform([age], x -> random())[1] < 1",
        "* IS NULL",
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
        "day <= DATE '2020-01-01' AND day = '2020-01-01' AND NOT day > TIMESTAMP '2020-01-01 00:00:01'",
        "WORD IN ('x', 'y') AND upper(word) LIKE 'X%' AND word NOT LIKE 'y' AND word || 'a' = 'xa'",
        (
            "coalesce(age, 0) BETWEEN 0 AND 1e3 AND NOT (age IS NULL) AND age % 2 = 1 AND -age < 0"
            " AND abs(age) = 1 AND greatest(age, 2) = 2"
        ),
        "CASE WHEN word = 'y' THEN false ELSE length(word) = 1 END",
        "age IS DISTINCT FROM 3 AND age IS NOT DISTINCT FROM 1 AND (age = 1) IS NOT FALSE",
        "CAST(age AS DOUBLE) / 2 = .5 AND substr(word, 1, 3) = 'x' AND trim(word) != 'y'",
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
