"""Addresses, extras, interrupts and the end of a source: what is imported, refused and closed."""

import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from attrs import define
from tests.engines.small_files import SECRET, Refused, written_csv

from semidp.errors import InputError, MissingExtra
from semidp.publish.sources import ibis as databases
from semidp.publish.sources.duck_files import records_of_files
from semidp.publish.sources.opening import open_source

UNUSED = ["ibis", "pandas", "polars", "pyarrow", "pyspark", "psycopg", "sqlglot"]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("code", "unused"),
    [
        ("import semidp.publish.sources", [*UNUSED, "duckdb"]),
        (
            (
                "from semidp import Feature, Schema, open_source\nwith open_source(FILE, where='age"
                " > 1', id='id') as source:\n    source.counts(Schema((Feature('sex',"
                " source.levels('sex')), Feature('age', bins=(0, 2, 'inf')))))\n"
            ),
            UNUSED,
        ),
    ],
)
def test_unused_backends_are_never_imported(tmp_path: Path, code: str, unused: list[str]) -> None:
    file = written_csv(tmp_path, "id,sex,age\n1,f,3\n2,m,4\n")
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


def test_an_interrupt_stays_an_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        def execute(self, sql: str) -> None:
            raise RuntimeError("Query interrupted")

    records = records_of_files(str(written_csv(tmp_path, "sex\nf\n")), None)
    monkeypatch.setattr(records, "_connection", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        records.occurrences("sex")


def test_a_source_can_be_closed_twice(tmp_path: Path) -> None:
    source = open_source(written_csv(tmp_path, "sex\nf\n"))
    source.close()
    source.close()


def test_an_ibis_value_that_is_no_table(refused: Refused) -> None:
    odd: Any = type("Column", (), {"__module__": "ibis.expr.types"})()
    with pytest.raises(InputError) as caught:
        open_source(odd)
    refused(caught.value, "an Ibis value was given that is not a table")


def test_a_database_that_does_not_answer_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite counts for ever; without the interruption this test would not end."""
    monkeypatch.setattr(databases, "_PATIENCE", 0.2)
    forever = (
        "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers) SELECT"
        " count(*) FROM numbers"
    )
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        database = Database("sqlite", connection)
        with pytest.raises(InputError, match="takes too long") as caught:
            databases.run_with_timeout(database, lambda: connection.execute(forever).fetchall())
        assert caught.value.__context__ is None
        with pytest.raises(sqlite3.OperationalError):
            databases.run_with_timeout(
                database, lambda: connection.execute("SELECT nothing").fetchall()
            )


@define
class Database:
    """What the engine knows of a connection."""

    name: str
    con: sqlite3.Connection
