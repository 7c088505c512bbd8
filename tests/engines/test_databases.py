"""What only a real PostgreSQL or Spark can show: addresses, passwords, connections, and logs that
quote nothing.
"""

import contextlib
import datetime
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semidp.errors import DataError, InputError
from semidp.promise.schema.features import Feature
from semidp.promise.schema.outcome import Outcome
from semidp.promise.schema.schema import Schema
from semidp.publish.sources.opening import open_source

pytestmark = pytest.mark.services
quiet_spark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
SECRET = 7654321
SEX = Schema((Feature("sex", ("f", "m")),))
Refused = Callable[[BaseException, str], None]


@pytest.fixture
def people(postgres_address: str) -> str:
    """The address of a database with the tables people and clinic.people."""
    import psycopg

    with psycopg.connect(postgres_address, password=os.environ["SEMIDP_PASSWORD"]) as connection:
        connection.execute(
            "DROP TABLE IF EXISTS people; DROP SCHEMA IF EXISTS clinic CASCADE; CREATE SCHEMA"
            " clinic"
        )
        connection.execute("CREATE TABLE people AS SELECT 'f' AS sex FROM generate_series(1, 3)")
        connection.execute(
            "CREATE TABLE clinic.people AS SELECT 'm' AS sex FROM generate_series(1, 2)"
        )
    return postgres_address


def test_a_table_of_another_schema_is_named_with_it(people: str) -> None:
    for table, expected in (
        ("people", [3, 0]),
        ("clinic.people", [0, 2]),
        ("public.people", [3, 0]),
    ):
        with open_source(people, table=table) as source:
            assert source.counts(SEX).counts.tolist() == expected


def test_a_wrong_table_lists_the_tables(people: str, refused: Refused) -> None:
    with pytest.raises(InputError) as caught:
        open_source(people, table="persons")
    refused(caught.value, "there is no table 'persons' in this database; the tables are .*people")


def test_a_connection_is_closed_with_its_source(people: str) -> None:
    import psycopg

    with psycopg.connect(people, password=os.environ["SEMIDP_PASSWORD"], autocommit=True) as watch:

        def others() -> int:
            sql = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid"
                " <> pg_backend_pid()"
            )
            return int(watch.execute(sql).fetchall()[0][0])

        before = others()
        with open_source(people, table="people", where="sex = 'f'") as source:
            assert others() > before
            source.counts(SEX)
        with pytest.raises(InputError):
            open_source(people, table="nobody")
        for _ in range(200):  # the server's list lags behind
            if others() == before:
                break
            watch.execute("SELECT pg_sleep(0.02)")
        assert others() == before


def test_a_password_reaches_no_message(
    people: str,
    refused: Refused,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    right = os.environ["SEMIDP_PASSWORD"]
    with open_source(people, table="people") as source:
        assert right not in repr(source) + repr(vars(source))
    wrong = f"{SECRET}@/:%#?"
    monkeypatch.setenv("SEMIDP_PASSWORD", wrong)
    with pytest.raises(InputError) as caught:
        open_source(people, table="people")
    refused(caught.value, "cannot open postgres://.*check the address")
    monkeypatch.setenv("SEMIDP_PASSWORD", right)
    with pytest.raises(InputError) as caught:
        open_source("postgres://semidp@127.0.0.1:1/nowhere", table="people")
    refused(caught.value, "cannot open postgres://semidp@127.0.0.1:1/nowhere")
    shown = "".join(capfd.readouterr())
    assert right not in shown
    assert str(SECRET) not in shown


def test_the_drivers_own_variable_serves_too(people: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", os.environ["SEMIDP_PASSWORD"])
    monkeypatch.delenv("SEMIDP_PASSWORD")
    with open_source(people, table="people") as source:
        assert source.counts(SEX).n == 3


def test_an_ibis_table_stays_open(people: str) -> None:
    import ibis

    connection = ibis.postgres.connect(
        **_parts(people), password=os.environ["SEMIDP_PASSWORD"], autocommit=True
    )
    try:
        selected = connection.table("people").mutate(region=ibis.literal("north"))
        schema = Schema((Feature("sex", ("f", "m")), Feature("region", ("north", "south"))))
        for where in (None, "region = 'north'"):
            with open_source(selected, where=where) as source:
                assert source.counts(schema).counts.tolist() == [[3, 0], [0, 0]]
        assert connection.table("people").count().to_pyarrow().as_py() == 3
    finally:
        connection.disconnect()


def test_what_is_read_from_postgresql_is_of_one_moment(people: str) -> None:
    """A record that is written between two questions is in neither answer, and nothing can be
    written by one.
    """
    import psycopg

    with (
        psycopg.connect(people, password=os.environ["SEMIDP_PASSWORD"], autocommit=True) as writer,
        open_source(people, table="people", where="sex = 'f'") as source,
    ):
        assert source.levels("sex") == ("f",)
        writer.execute("INSERT INTO people VALUES ('f'), ('f')")
        assert source.counts(SEX).n == 3
        assert writer.execute("SELECT count(*) FROM people").fetchall() == [(5,)]
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            source._records._table.get_backend().con.execute("CREATE TEMP TABLE x (y int)")
    with open_source(people, table="people") as source:
        assert source.counts(SEX).n == 5


def test_an_ibis_table_is_held_in_a_copy(people: str) -> None:
    import ibis
    import psycopg

    connection = ibis.postgres.connect(**_parts(people), password=os.environ["SEMIDP_PASSWORD"])
    try:
        with psycopg.connect(
            people, password=os.environ["SEMIDP_PASSWORD"], autocommit=True
        ) as writer:
            writer.execute("ALTER TABLE people ADD age int DEFAULT 1")
            source = open_source(connection.table("people"))
            source.hold(["sex", "age"])
            writer.execute("INSERT INTO people VALUES ('f', 1)")
            assert source.counts(SEX).n == 3
            assert source.sums(SEX, Outcome("age", 0, 1, 1)).tolist() == [3, 0]
            source.close()
        kept = connection.con.execute(
            "SELECT count(*) FROM pg_tables WHERE schemaname LIKE 'pg_temp%'"
        ).fetchall()
        assert kept == [(0,)]
    finally:
        connection.disconnect()


ELSEWHERE = [
    *("steady_word(sex) = 'f'", "generate_series(1, 2) = 1", "nextval('s') = 1", "rand(1) < 2"),
    *("public.any_word(sex) = 'f'", "sex OPERATOR(pg_catalog.=) 'f'", "ctid IS NOT NULL"),
    *("records IS NOT NULL", "sex = user", "sex = $1", "sex = ANY (SELECT 'f')", "sex ~ 'f'"),
    *("'2020-01-01' < 'now'::date", "date 'today' > '2020-01-01'", "E'n\\x6fw' = sex"),
    *("$$now$$ > '2020-01-01'", "day < current_date()", "uuid() <> sex", "\"coalesce\"(sex) = 'f'"),
    *("exists(array(1), x -> x > rand())", "any_word/* */(sex) = 'f'", "sex = 'f'; DROP TABLE x"),
]
"""Conditions that ask a database for something of its own."""


def test_a_database_is_asked_for_nothing_of_its_own(people: str, refused: Refused) -> None:
    for where in ELSEWHERE:
        with pytest.raises(InputError) as caught:
            open_source(people, table="people", where=where)
        refused(caught.value, "^the WHERE (must|casts to|holds a date)")


def test_text_is_in_one_order_whatever_the_database_says(people: str) -> None:
    import psycopg

    with psycopg.connect(people, password=os.environ["SEMIDP_PASSWORD"]) as connection:
        connection.execute("DROP TABLE IF EXISTS words")
        connection.execute('CREATE TABLE words (row text COLLATE "und-x-icu", word char(3))')
        connection.execute("INSERT INTO words VALUES ('a', 'x'), ('B', 'y'), ('ä', 'z')")
    for where, rows in (
        ("row < 'a'", ("B",)),
        ("row > 'z'", ("ä",)),
        ("word = 'x'", ("a",)),
        ("length(word) = 1 AND word LIKE '_'", ("B", "a", "ä")),
    ):
        with open_source(people, table="words", where=where) as source:
            assert source.levels("row") == rows


@pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")
def test_sqlite_compares_and_does_no_more(tmp_path: Path, refused: Refused) -> None:
    import sqlite3

    rows = [("f", 9, 0.0), ("m", 10, 2.5), ("f", None, None), ("F", 2**53 + 1, -1.0)]
    with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
        connection.execute("CREATE TABLE people (sex TEXT, age INTEGER, dose REAL)")
        connection.executemany("INSERT INTO people VALUES (?, ?, ?)", rows)
    address = f"sqlite://{tmp_path / 'a.db'}"
    for where, kept in (
        ("sex IN ('f', 'g') AND NOT sex = 'm'", "ff"),
        ("age < 10", "f"),
        ("age > 9007199254740992.5 OR dose = 0", "Ff"),
        ("age < 1e30 AND age > -1e30", "Ffm"),
        ("age IS NULL OR dose <= -1", "Ff"),
    ):
        with open_source(address, table="people", where=where) as source:
            source.hold(["sex"])
            counts = source.counts(Schema((Feature("sex", ("F", "f", "m")),))).counts.tolist()
            assert "".join(sex * n for sex, n in zip("Ffm", counts, strict=True)) == kept
    for where in ("lower(sex) = 'f'", "age % 2 = 1", "sex LIKE 'f'", "sex > 3"):
        with pytest.raises(InputError) as caught:
            open_source(address, table="people", where=where)
        refused(caught.value, "not known to mean the same in this database|this database cannot")
    with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
        connection.execute("INSERT INTO people VALUES ('m', 'old', 1)")
    with pytest.raises(DataError) as unfit:
        open_source(address, table="people", where="age > 3")
    refused(unfit.value, "not all its values are numbers")


SEXES = Schema((Feature("sex", ("F", "f", "m")),))
BY_NAME = Schema((*SEXES.features, Feature("name", ("a", "A", "b"))))
CARELESS = "CREATE TABLE people (sex {text} COLLATE {careless}, name {text} COLLATE {careless})"
PEOPLE = "INSERT INTO people VALUES ('F', 'a'), ('f', 'A'), ('f', 'b'), ('m', 'b')"


def _each_capital_counts(data: Any, refused: Refused, **place: Any) -> None:
    with open_source(data, **place) as source:
        assert source.levels("sex") == ("F", "f", "m")
        expected = [[1, 0, 0], [0, 1, 1], [0, 0, 1]]
        assert source.counts(SEXES).counts.tolist() == [1, 2, 1]
        alone, by_name = source.tables([SEXES, BY_NAME])
        assert (alone.counts.tolist(), by_name.counts.tolist()) == ([1, 2, 1], expected)
        assert source.only({"sex": ["f"]}).counts(SEXES).counts.tolist() == [0, 2, 0]
    for where, kept in (("sex = 'f'", 2), ("name IN ('a', 'b')", 3), ("name < 'a'", 1)):
        with open_source(data, where=where, **place) as source:
            assert source.counts(SEXES).n == kept
    with (
        pytest.raises(DataError) as caught,
        open_source(data, where="sex = 'm'", **place) as source,
    ):
        source.counts(Schema((Feature("sex", ("M", "f")),)))
    refused(caught.value, "has values not among its declared levels")


@pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")
def test_texts_are_equal_if_their_bytes_are_whatever_a_column_declares(
    tmp_path: Path, refused: Refused
) -> None:
    """Or one record would say which level all others have."""
    import sqlite3

    import duckdb
    import ibis

    with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
        connection.execute(CARELESS.format(text="TEXT", careless="NOCASE"))
        connection.execute(PEOPLE)
    _each_capital_counts(f"sqlite://{tmp_path / 'a.db'}", refused, table="people")
    with contextlib.closing(duckdb.connect(str(tmp_path / "a.duckdb"))) as connection:
        connection.execute(CARELESS.format(text="VARCHAR", careless="NOCASE"))
        connection.execute(PEOPLE)
    _each_capital_counts(f"duckdb://{tmp_path / 'a.duckdb'}", refused, table="people")
    in_memory = ibis.memtable({"sex": [*"Fffm"], "name": [*"aAbb"]})
    _each_capital_counts(in_memory, refused)


def test_texts_of_postgresql_are_equal_if_their_bytes_are(people: str, refused: Refused) -> None:
    import psycopg

    with psycopg.connect(people, password=os.environ["SEMIDP_PASSWORD"]) as connection:
        connection.execute("DROP TABLE IF EXISTS people; DROP COLLATION IF EXISTS careless")
        connection.execute(
            "CREATE COLLATION careless"
            " (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
        connection.execute(CARELESS.format(text="text", careless="careless"))
        connection.execute(PEOPLE)
    _each_capital_counts(people, refused, table="people")


@pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")
def test_a_database_that_takes_no_notice_of_capitals_is_refused(
    refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ibis

    people = ibis.duckdb.connect().create_table("people", {"sex": [*"Ff"], "age": [1, 2]})
    monkeypatch.setattr(type(people.get_backend()), "name", "mysql")
    with open_source(people) as source, pytest.raises(InputError) as caught:
        source.counts(SEXES)
    refused(caught.value, "mysql may take two texts for one, such as f and F")


@pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")
def test_a_number_of_sqlite_is_not_cut_to_a_whole_one(tmp_path: Path, refused: Refused) -> None:
    import sqlite3

    with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
        connection.execute("CREATE TABLE people (age INTEGER)")
        connection.execute("INSERT INTO people VALUES (4), (4.5), (5)")
    with open_source(f"sqlite://{tmp_path / 'a.db'}", table="people") as source:
        assert source.levels("age") == ("4", "4.5", "5")
        with pytest.raises(DataError) as caught:
            source.counts(Schema((Feature("age", ("4", "5")),)))
    refused(caught.value, "has values not among its declared levels")


@pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")
def test_a_database_in_a_file_is_read_in_memory_alone(tmp_path: Path, refused: Refused) -> None:
    """What DuckDB cannot hold it would write next to the file, and SQLite to a folder of all."""
    import sqlite3

    import duckdb

    with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
        connection.execute("CREATE TABLE people AS SELECT 'f' AS sex")
    with open_source(f"sqlite://{tmp_path / 'a.db'}", table="people") as source:
        database = source._records._table.get_backend().con
        assert database.execute("PRAGMA temp_store").fetchall() == [(2,)]

    with contextlib.closing(duckdb.connect(str(tmp_path / "a.duckdb"))) as connection:
        connection.execute(
            "CREATE TABLE people AS SELECT 'a person of the town, number ' || i AS name"
            " FROM range(500000) AS numbers (i)"
        )
    with open_source(f"duckdb://{tmp_path / 'a.duckdb'}", table="people") as source:
        database = source._records._table.get_backend().con
        database.execute("SET memory_limit = '30MB'")
        with pytest.raises(DataError) as caught:
            source._records.most_alike("name")
        assert sorted(os.listdir(tmp_path)) == ["a.db", "a.duckdb"]
    refused(caught.value, "could not be tabulated")


@quiet_spark
def test_spark_is_asked_for_nothing_of_its_own(spark_session: Any, refused: Refused) -> None:
    row = ("f'\\", datetime.date(2020, 1, 1))
    frame = spark_session.createDataFrame([row], ["sex", "day"])
    frame.createOrReplaceTempView("folk")
    for where in (
        "day = '2020-01-01' AND day < DATE '2020-01-02'",
        "sex = 'f''\\'",
        "sex LIKE '%\\'",
    ):
        with open_source("spark://local", table="folk", where=where) as source:
            assert len(source.levels("sex")) == 1
    for where in ELSEWHERE:
        with pytest.raises(InputError) as caught:
            open_source("spark://local", table="folk", where=where)
        refused(caught.value, "^the WHERE (must|casts to|holds a date)")


@quiet_spark
def test_folders_are_columns_on_spark_only_where_asked(
    spark_session: Any, tmp_path: Path, refused: Refused
) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    for code, sex in (("01", "f"), ("1", "m")):
        (tmp_path / "plain" / f"code={code}").mkdir(parents=True)
        pyarrow.parquet.write_table(
            pa.table({"sex": [sex]}), tmp_path / "plain" / f"code={code}" / "a.parquet"
        )
        (tmp_path / "odd" / f"sex={sex}").mkdir(parents=True)
        pyarrow.parquet.write_table(
            pa.table({"sex": ["f"]}), tmp_path / "odd" / f"sex={sex}" / "a.parquet"
        )
    with open_source("spark://local", table=str(tmp_path / "plain")) as source:
        assert source.columns() == ("sex",)
    with open_source(
        "spark://local", table=str(tmp_path / "plain"), hive_partitions=True
    ) as source:
        assert source.levels("code") == ("01", "1")
    with open_source("spark://local", table=str(tmp_path / "odd")) as source:
        assert source.counts(SEX).counts.tolist() == [2, 0]
    with pytest.raises(InputError) as caught:
        open_source("spark://local", table=str(tmp_path / "odd"), hive_partitions=True)
    refused(caught.value, "the files hold a column that their folders name too")
    with pytest.raises(InputError) as caught:
        open_source("spark://local", table="folk", hive_partitions=True)
    refused(caught.value, "only files lie in folders")


@pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")
def test_a_database_in_a_file(tmp_path: Path) -> None:
    import duckdb

    with duckdb.connect(str(tmp_path / "a.db")) as connection:
        connection.execute("CREATE TABLE people AS SELECT 'f' AS sex FROM range(3)")
    with open_source(f"duckdb://{tmp_path / 'a.db'}", table="people", where="sex = 'f'") as source:
        assert source.counts(SEX).counts.tolist() == [3, 0]
        # A worker of --jobs opens the same file meanwhile, in another process.
        opening = f"import duckdb; duckdb.connect({str(tmp_path / 'a.db')!r}, read_only=True)"
        subprocess.run([sys.executable, "-c", opening], check=True)
    address = f"duckdb://{tmp_path / 'none.db'}"
    with pytest.raises(InputError, match="cannot open"):
        open_source(address, table="people")
    assert not (tmp_path / "none.db").exists()


def test_sqlite_reads_tables_together_without_grouping_sets(tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("CREATE TABLE people (sex TEXT, age INTEGER)")
        connection.executemany(
            "INSERT INTO people VALUES (?, ?)", [("f", 1), ("m", 2), ("f", None)]
        )
    connection.close()
    age = Feature("age", ["1", "2"], null_level="?")
    with open_source(f"sqlite://{tmp_path / 'a.db'}", table="people") as source:
        tables = source.tables([SEX, Schema([*SEX.features, age]), Schema([age])])
    assert [table.counts.tolist() for table in tables] == [
        [2, 1],
        [[1, 0, 1], [0, 1, 0]],
        [1, 1, 1],
    ]


@quiet_spark
def test_spark_reads_parquet_files_by_their_path(
    spark_session: Any, tmp_path: Path, refused: Refused
) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    random = np.random.default_rng(5)
    sexes = np.array(["f", "m"])[random.integers(0, 2, 5000)]
    pyarrow.parquet.write_table(
        pa.table({"sex": sexes, "id": np.arange(5000)}), tmp_path / "people.parquet"
    )
    with (
        open_source("spark://local", table=str(tmp_path / "people.parquet"), id="id") as on_spark,
        open_source(tmp_path / "people.parquet", id="id") as on_duckdb,
    ):
        assert on_spark.counts(SEX) == on_duckdb.counts(SEX)
    with pytest.raises(InputError) as caught:
        open_source("spark://local", table=str(tmp_path / "none.parquet"))
    refused(caught.value, "Spark finds no Parquet files at")
    with pytest.raises(InputError) as caught:
        open_source("spark://local", table="nobody")
    refused(caught.value, "there is no table 'nobody'")


@quiet_spark
def test_spark_logs_no_value(
    spark_session: Any, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    spark_session.sql(f"CREATE OR REPLACE TEMP VIEW odd AS SELECT 'x{SECRET}' AS code, 'f' AS sex")
    with caplog.at_level(logging.DEBUG, logger="SQLQueryContextLogger"):
        for where in ("CAST(code AS INT) > 0", f"nothing > {SECRET}"):
            with (
                pytest.raises(InputError),
                open_source("spark://local", table="odd", where=where) as source,
            ):
                source.counts(SEX)
    shown = "".join(capfd.readouterr()) + caplog.text
    assert str(SECRET) not in shown


@quiet_spark
def test_spark_is_started_and_stopped_for_an_address(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In a process of its own: a session that was opened for the address ends with the source."""
    import subprocess
    import sys

    import pyarrow as pa
    import pyarrow.parquet

    pyarrow.parquet.write_table(pa.table({"sex": ["f", "m", "f"]}), tmp_path / "people.parquet")
    code = f"""
from semidp import Feature, InputError, Outcome, Schema, open_source
try:
    open_source("spark://local", table="nobody")
except InputError as error:
    print(error)
with open_source("spark://local", table={str(tmp_path / "people.parquet")!r}) as source:
    print(source.counts(Schema((Feature("sex", ("f", "m")),))).counts.tolist())
from pyspark.sql import SparkSession
print(SparkSession.getActiveSession())
"""
    scrap = tmp_path_factory.mktemp("scrap")
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(scrap)},
    )
    missing, counts, session = done.stdout.splitlines()
    assert missing == "there is no table 'nobody' in this database; it has no tables"
    assert (counts, session) == ("[2, 1]", "None")
    assert [path.name for path in tmp_path.iterdir()] == ["people.parquet"]
    for _ in range(100):  # Spark removes what it spilled a moment after the process has ended
        if not list(scrap.iterdir()):
            break
        time.sleep(0.1)
    assert not list(scrap.iterdir())


def _parts(address: str) -> dict[str, Any]:
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    return {
        "host": parts.hostname,
        "port": parts.port,
        "user": parts.username,
        "database": parts.path.lstrip("/"),
    }
