"""One fixture, `engine`, that puts the same records into every store and opens them through
`open_source`.
"""

import csv
import datetime
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from semidp.promise.schema.features import value_text
from semidp.publish.sources.opening import Source, open_source

Columns = Mapping[str, Sequence[Any]]
ARROW = {
    str: pa.string(),
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    datetime.date: pa.date32(),
}
POSTGRES = {
    str: "text",
    bool: "boolean",
    int: "bigint",
    float: "double precision",
    datetime.date: "date",
}

# PySpark leaves a socket to the garbage collector after every query.
QUIET_SPARK = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
ENGINES = [
    "csv",
    "parquet",
    "pandas",
    "arrow",
    pytest.param(
        "ibis-duckdb",
        marks=[
            pytest.mark.services,
            pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning"),
        ],
    ),
    pytest.param("postgres", marks=pytest.mark.services),
    pytest.param("spark", marks=[pytest.mark.services, QUIET_SPARK]),
]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Source]]:
    """Yield a function that takes columns (a mapping of names to lists) and the options of
    `open_source`.
    """
    yield from open_engine(request.param, STORES[request.param](request, tmp_path))


def open_engine(store: str, put: Callable[[Columns], Any]) -> Iterator[Callable[..., Source]]:
    """Yield such a function for records that `put` stores, and close what it opened."""
    opened: list[Source] = []

    def open_records(columns: Columns, **options: Any) -> Source:
        data, place = put(columns)
        opened.append(open_source(data, **place, **options))
        return opened[-1]

    open_records.store = store  # type: ignore[attr-defined]
    yield open_records
    for source in opened:
        source.close()


def _kind(values: Sequence[Any]) -> type:
    kinds = {type(value) for value in values if value is not None}
    assert len(kinds) == 1
    return kinds.pop()


def _arrow(columns: Columns) -> pa.Table:
    # Not through pandas: Arrow would turn a NaN into a null, and it is the engine that must.
    return pa.table(
        {name: pa.array(values, ARROW[_kind(values)]) for name, values in columns.items()}
    )


def write_csv(path: Path, columns: Columns) -> None:
    """Write text as it is, quoted where it must be, and a missing value as nothing."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(
            zip(
                *([value_text(value) for value in values] for values in columns.values()),
                strict=True,
            )
        )


def _csv(
    request: pytest.FixtureRequest, folder: Path
) -> Callable[[Columns], tuple[Any, dict[str, str]]]:
    def put(columns: Columns) -> tuple[Any, dict[str, str]]:
        write_csv(folder / "records.csv", columns)
        return folder / "records.csv", {}

    return put


def _parquet(
    request: pytest.FixtureRequest, folder: Path
) -> Callable[[Columns], tuple[Any, dict[str, str]]]:
    def put(columns: Columns) -> tuple[Any, dict[str, str]]:
        table = _arrow(columns)
        middle = len(table) // 2
        pyarrow.parquet.write_table(table[:middle], folder / "records-1.parquet")
        pyarrow.parquet.write_table(table[middle:], folder / "records-2.parquet")
        return str(folder / "records-*.parquet"), {}

    return put


def _pandas(
    request: pytest.FixtureRequest, folder: Path
) -> Callable[[Columns], tuple[Any, dict[str, str]]]:
    return lambda columns: (_arrow(columns).to_pandas(), {})


def _as_arrow(
    request: pytest.FixtureRequest, folder: Path
) -> Callable[[Columns], tuple[Any, dict[str, str]]]:
    return lambda columns: (_arrow(columns), {})


def _ibis_duckdb(
    request: pytest.FixtureRequest, folder: Path
) -> Callable[[Columns], tuple[Any, dict[str, str]]]:
    import ibis

    connection = ibis.duckdb.connect()
    request.addfinalizer(connection.disconnect)
    return lambda columns: (connection.create_table(_name(), _arrow(columns)), {})


def _postgres(
    request: pytest.FixtureRequest, folder: Path
) -> Callable[[Columns], tuple[Any, dict[str, str]]]:
    import psycopg

    address = request.getfixturevalue("postgres_address")

    def put(columns: Columns) -> tuple[Any, dict[str, str]]:
        name = _name()
        kinds = [
            f"{_quoted(column)} {POSTGRES[_kind(values)]}" for column, values in columns.items()
        ]
        with psycopg.connect(address, password=os.environ["SEMIDP_PASSWORD"]) as connection:
            connection.execute(f"CREATE TABLE {name} ({', '.join(kinds)})")
            with connection.cursor().copy(f"COPY {name} FROM STDIN") as copy:
                for row in zip(*columns.values(), strict=True):
                    copy.write_row(row)
        return address, {"table": name}

    return put


def _spark(
    request: pytest.FixtureRequest, folder: Path
) -> Callable[[Columns], tuple[Any, dict[str, str]]]:
    session = request.getfixturevalue("spark_session")

    def put(columns: Columns) -> tuple[Any, dict[str, str]]:
        name = _name()
        session.createDataFrame(_arrow(columns)).createOrReplaceTempView(name)
        return "spark://local", {"table": name}

    return put


STORES = {
    "csv": _csv,
    "parquet": _parquet,
    "pandas": _pandas,
    "arrow": _as_arrow,
    "ibis-duckdb": _ibis_duckdb,
    "postgres": _postgres,
    "spark": _spark,
}


@pytest.fixture(scope="session")
def postgres_address() -> str:
    """The database that tests/services/run has started; its password is in SEMIDP_PASSWORD."""
    address = os.environ.get("SEMIDP_TEST_POSTGRES")
    if not address or "SEMIDP_PASSWORD" not in os.environ:
        pytest.fail("no PostgreSQL was started for this test: run tests/services/run")
    return address


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A local Spark cluster of two workers' worth of threads."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("semidp-tests")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def _name() -> str:
    return f"records_{secrets.token_hex(8)}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.fixture(scope="session")
def records() -> dict[str, list[Any]]:
    """Four hundred people with every kind of column; nulls in `region`, `age` and `dose`."""
    random = np.random.default_rng(20240607)
    n = 400
    ages = random.integers(0, 100, n)
    return {
        "id": [int(number) for number in random.permutation(n)],
        "sex": [("f", "m")[code] for code in random.integers(0, 2, n)],
        "region": [
            ("01", "1", 'O\'Brien, "west"', "naïve", None)[code]
            for code in random.integers(0, 5, n)
        ],
        "age": [None if code % 7 == 0 else int(code) for code in ages],
        "dose": [(0.5, 1.0, 2.0, None, float("nan"))[code] for code in random.integers(0, 5, n)],
        "paid": [bool(code) for code in random.integers(0, 2, n)],
        "day": [datetime.date(2020, 1, 1 + int(code)) for code in random.integers(0, 3, n)],
        "score": [float(value) for value in random.normal(50, 40, n)],
        "people": [int(code) for code in random.integers(0, 9, n)],
    }


SECRET = 7654321  # stands for what no message may show


@pytest.fixture
def refused() -> Callable[..., None]:
    """A function that checks an error's words, and that neither it nor what it carries along quotes
    data.
    """

    def check(error: BaseException, pattern: str) -> None:
        message = str(error)
        assert re.search(pattern, message), message
        assert "\n" not in message
        assert error.__cause__ is None
        seen: BaseException | None = error
        while seen is not None:
            assert str(SECRET) not in f"{seen!r} {seen}"
            seen = seen.__context__

    return check
