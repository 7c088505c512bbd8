"""Files and data frames through DuckDB: what is read as it stands, what is refused, and what is left behind."""

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semidp.engines import Outcome, open_source
from semidp.engines.duck import DuckRecords
from semidp.errors import DataError, InputError, MissingExtra, SchemaError
from semidp.tables import Feature, Schema, Table

SECRET = 7654321
SEX = Schema((Feature("sex", ("f", "m")),))
Refused = Callable[[BaseException, str], None]


def _csv(folder: Path, text: str, name: str = "people.csv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


words = st.text(st.characters(codec="utf-8", exclude_characters="\x00\r"), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(st.lists(words, min_size=1, max_size=20), st.sampled_from(",;\t|"))
def test_any_text_survives_a_csv_file(tmp_path_factory: pytest.TempPathFactory, texts: list[str], comma: str) -> None:
    quoted = ['"' + text.replace('"', '""') + '"' for text in texts]
    lines = [comma.join(["town", "sex"]), *(comma.join([text, "f"]) for text in quoted)]
    file = _csv(tmp_path_factory.mktemp("csv"), "\n".join(lines) + "\n")
    levels = tuple(dict.fromkeys(texts))
    schema = Schema((Feature("town", levels), Feature("sex", ("f", "m"))))
    with open_source(file) as source:
        expected = Table.from_frame({"town": np.array(texts, dtype=object), "sex": ["f"] * len(texts)}, schema)
        assert source.counts(schema) == expected
        assert set(source.levels("town")) == set(levels)


def test_csv_values_stay_the_text_they_are(tmp_path: Path) -> None:
    file = _csv(tmp_path, "code\n01\n1\n1.0\nTrue\n# 3\n 4\nNULL\nnan\n")
    with open_source(file) as source:
        assert set(source.levels("code")) == {"01", "1", "1.0", "True", "# 3", " 4", "NULL", "nan"}


def test_an_empty_csv_value_is_missing_quoted_or_not(tmp_path: Path, refused: Refused) -> None:
    file = _csv(tmp_path, 'sex,age\nf,1\n,2\n"",\n')
    with open_source(file) as source:
        schema = Schema((Feature("sex", ("f", "m"), null_level="?"), Feature("age", bins=(0, 2), null_level="?")))
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
        ("e.csv.gz", gzip.compress(b"sex,age\nf,1\nm,2\nm,3\n")),
        ("f.v2.csv", b'"sex","age, in years; or | so"\nf,1\nm,2\nm,3\n'),
        ("it's [1].csv", b"sex\nf\nm\nm\n"),
    ],
)
def test_ways_to_write_a_csv_file(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with open_source(tmp_path / name) as source:
        assert source.columns()[0] == "sex"
        assert source.counts(SEX).counts.tolist() == [1, 2]


def test_a_glob_reads_every_file_and_a_link_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in range(3):
        _csv(tmp_path, f"sex,age\nf,{part}\n", f"part-{part}.csv")
    (tmp_path / "link.csv").symlink_to("part-1.csv")
    monkeypatch.chdir(tmp_path)
    with open_source("part-*.csv") as source:
        assert source.counts(SEX).counts.tolist() == [3, 0]
    with open_source("link.csv") as source:
        assert source.counts(SEX).counts.tolist() == [1, 0]


def test_a_csv_file_with_a_header_only_has_no_records(tmp_path: Path) -> None:
    with open_source(_csv(tmp_path, "sex,age\n")) as source:
        assert source.counts(SEX).n == 0
        assert source.sums(SEX, Outcome("age", 0, 1, 5)).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("ragged.csv", f"sex,age\nf,1\nm,2,{SECRET}\n".encode(), "tabulated: a record could not be read|as CSV"),
        ("open.csv", f'sex,age\nf,1\n"m,{SECRET}\n'.encode(), "tabulated: a record could not be read|as CSV"),
        ("latin.csv", f"sex,age\nf,1\nm\xe9,{SECRET}\n".encode("latin-1"), "could not be read"),
        ("empty.csv", b"", "could not be read as CSV: check"),
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
    _csv(tmp_path, "sex\nf\n", "a.xlsx")
    pyarrow.parquet.write_table(pa.table({"sex": ["f"]}), tmp_path / "a.parquet")
    for data, message in (
        (tmp_path / "none.csv", r"there is no file .*none\.csv$"),
        (str(tmp_path / "none-*.csv"), r"there is no file .*none-\*\.csv$"),
        (tmp_path / "a.csv" / "below.csv", "there is no file"),
        (tmp_path, r"is a folder: name its files, as in '.*\*\.parquet'"),
        (tmp_path / "a.xlsx", r"does not say what it holds: end it in \.csv"),
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


def test_numbers_in_a_csv_file_compare_as_numbers_in_a_where(tmp_path: Path, refused: Refused) -> None:
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
        refused(caught.value, "the WHERE must be one condition")


def test_the_database_can_reach_nothing_else(tmp_path: Path) -> None:
    import duckdb

    file = _csv(tmp_path, "sex\nf\n")
    other = _csv(tmp_path, "sex\nm\n", "other.csv")
    records = DuckRecords.of_files(str(file), None)
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


def test_nothing_is_written_to_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.arange(300_000)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    with open_source({"id": numbers, "sex": np.array(["f", "m", "f"])[numbers % 3]}, id="id") as source:
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
            assert source.counts(Schema((Feature(name, levels, null_level="none"),))).counts.tolist() == [1, 1, 1]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.int64(), pa.float32(), pa.float64(), pa.string()])
@pytest.mark.parametrize("bins", [(0, 3, 7), ("-inf", "2.5", 5), ("0.5", 3, "1e300"), ("-3", "6.999")])
def test_bins_are_the_same_whatever_the_column_is_stored_as(kind: Any, bins: tuple[Any, ...]) -> None:
    values = [1, 2, 3, 4, 5, 6, 7, 8, None, 3]
    schema = Schema((Feature("x", bins=bins, null_level="?"),))
    column = pa.array([None if value is None else str(value) for value in values]).cast(kind)
    expected = Table.from_frame({"x": np.array(values, dtype=object)}, schema)
    with open_source(pa.table({"x": column})) as source:
        assert source.counts(schema) == expected


def test_decimals_of_parquet_print_as_the_numbers_they_are(tmp_path: Path) -> None:
    from decimal import Decimal

    values = pa.array([Decimal("1.00"), Decimal("2.50"), None], pa.decimal128(5, 2))
    pyarrow.parquet.write_table(pa.table({"x": values, "list": [[1], [2], [3]]}), tmp_path / "a.parquet")
    with open_source(tmp_path / "a.parquet") as source:
        assert source.levels("x") == ("1", "2.5")
        assert source.counts(Schema((Feature("x", bins=(0, 2), null_level="?"),))).counts.tolist() == [1, 1, 1]
        with pytest.raises(SchemaError, match="column 'list' does not hold numbers, which bins need"):
            source.counts(Schema((Feature("list", bins=(0, 2)),)))


def test_a_column_with_too_many_values_is_no_feature(refused: Refused) -> None:
    with open_source({"name": np.arange(SECRET, SECRET + 10_001)}) as source, pytest.raises(DataError) as caught:
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


@pytest.mark.parametrize(
    ("code", "unused"),
    [
        ("import semidp.engines", [*UNUSED, "duckdb"]),
        (
            "from semidp.engines import open_source\n"
            "from semidp.tables import Feature, Schema\n"
            "with open_source(FILE, where='age > 1', id='id') as source:\n"
            "    source.counts(Schema((Feature('sex', source.levels('sex')), Feature('age', bins=(0, 2)))))\n",
            UNUSED,
        ),
    ],
)
def test_unused_backends_are_never_imported(tmp_path: Path, code: str, unused: list[str]) -> None:
    file = _csv(tmp_path, "id,sex,age\n1,f,3\n2,m,4\n")
    check = f"import sys\nFILE = {str(file)!r}\n{code}\nprint([name for name in {unused!r} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_addresses_hold_no_password_and_name_a_table(refused: Refused) -> None:
    for address, message in (
        (f"postgres://me:{SECRET}@host/db", "the database address holds a password: leave it out, and set SEMIDP_P"),
        (f"postgres://me@host/db?password={SECRET}", "the database address holds a password"),
        (f"postgres://host:{SECRET}/db", "the database address is malformed: write it as"),
        ("postgres://me@host/db", "a database address needs the name of a table"),
    ):
        with pytest.raises(InputError) as caught:
            open_source(address)
        refused(caught.value, message)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    monkeypatch.setitem(sys.modules, "ibis", None)
    for address, extra in (("postgres://me@host/db", "postgres"), ("spark://local", "spark"), ("mysql://h/d", "ibis")):
        with pytest.raises(MissingExtra) as caught:
            open_source(address, table="people")
        refused(caught.value, rf"pip install 'semidp\[{extra}\]'")


def test_a_file_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    file = _csv(tmp_path, "sex\nf\n")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as root, every file may be read
    with pytest.raises(InputError) as caught:
        open_source(file)
    refused(caught.value, "may not be read: check its permissions")


def test_an_interrupt_stays_an_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        def execute(self, sql: str) -> None:
            raise RuntimeError("Query interrupted")

    records = DuckRecords.of_files(str(_csv(tmp_path, "sex\nf\n")), None)
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
