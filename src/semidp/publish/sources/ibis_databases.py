"""Databases behind Ibis: connections, tables, and queries whose errors quote no data.

What is asked of them is in `ibis` and `ibis_conditions`.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from tempfile import TemporaryDirectory
from threading import Event, Timer
from typing import Any, TypeVar
from urllib.parse import SplitResult, quote

from semidp.errors import InputError, MissingExtra, SemidpError
from semidp.publish.sources.addresses import FILE_SCHEMES
from semidp.publish.sources.contract import (
    quietly,
)

# What PostgreSQL reads for one release, it reads as of one moment; and a WHERE takes an hour at
# most.
_PATIENCE = 3600.0

_EXTRAS = {"postgres": "postgres", "postgresql": "postgres", "spark": "spark"}

Result = TypeVar("Result")


def fetched_columns(query: Any, names: Sequence[str]) -> list[Sequence[Any]]:
    connection = query.get_backend()
    if connection.name != "postgres":
        table = run_with_timeout(connection, query.to_pyarrow)
        return [table.column(name).to_pylist() for name in names]
    # Not through Ibis, which declares a cursor that a failed query leaves open, and the transaction
    # with it.
    with connection.begin() as cursor:
        rows = cursor.execute(connection.compile(query)).fetchall()
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in names]


def connect_to(parts: SplitResult) -> tuple[Any, Callable[[], None]]:
    """Open the database and say how to close it."""
    extra = _EXTRAS.get(parts.scheme, "ibis")
    missing = MissingExtra(
        f"a {parts.scheme}:// address needs more packages: pip install 'semidp[{extra}]'"
    )
    try:
        import ibis
    except ImportError:
        raise missing from None
    place = f"{parts.scheme}://{parts.netloc}{parts.path}"
    failure = InputError(
        f"cannot open {place}: check the address, that its server runs and admits you, and the"
        " password in SEMIDP_PASSWORD"
    )

    def open_connection() -> tuple[Any, Callable[[], None]]:
        try:
            if parts.scheme == "spark":
                return _spark(parts)
            # Workers open the file beside this process, which DuckDB allows for reading alone.
            in_file = parts.scheme == "duckdb" and bool(parts.netloc or parts.path)
            how = {"read_only": True} if in_file else {}
            connection = ibis.connect(_with_password(parts), **how)
            return connection, connection.disconnect
        except ImportError:
            pass
        raise missing

    return run_quietly(open_connection, failure)


def _with_password(parts: SplitResult) -> str:
    password = os.environ.get("SEMIDP_PASSWORD")
    if not password or parts.scheme in FILE_SCHEMES:
        return parts.geturl()
    user, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}").geturl()


def _spark(parts: SplitResult) -> tuple[Any, Callable[[], None]]:
    """Open a Spark session, or join the one that this process already has."""
    import ibis
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return ibis.pyspark.connect(active), lambda: None
    local = parts.netloc == "local"
    builder = SparkSession.builder.master(
        "local[*]" if local else f"spark://{parts.netloc}"
    ).appName("semidp")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
    }
    with contextlib.ExitStack() as stack:
        # Spark makes a warehouse in the working folder otherwise, and listens on every interface
        if local:
            warehouse = stack.enter_context(
                TemporaryDirectory(prefix=".semidp-", ignore_cleanup_errors=True)
            )
            settings |= {"spark.sql.warehouse.dir": warehouse}
            # what its workers run is read now: they need semidp
            if "PYSPARK_PYTHON" not in os.environ:
                os.environ["PYSPARK_PYTHON"] = sys.executable
                stack.callback(os.environ.pop, "PYSPARK_PYTHON", None)
            settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        for key, value in settings.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        stack.callback(session.stop)
        return ibis.pyspark.connect(session), stack.pop_all().close


def names_files(parts: SplitResult, name: str) -> bool:
    return parts.scheme == "spark" and "/" in name


def table_called(connection: Any, parts: SplitResult, name: str, hive_partitions: bool) -> Any:
    if names_files(parts, name):
        none = InputError(f"Spark finds no Parquet files at {name}")
        files = run_quietly(lambda: connection.read_parquet(name, recursiveFileLookup="true"), none)
        return (
            run_quietly(lambda: _with_partitions(connection, name, files), none)
            if hive_partitions
            else files
        )
    place, _, last = name.rpartition(".")
    for attempt in (lambda: connection.table(name), lambda: connection.table(last, database=place)):
        with contextlib.suppress(InputError):
            return run_quietly(attempt, InputError("no such table"))
    none = InputError(f"there is no table {name!r} in this database")
    table_names: list[str] = sorted(run_quietly(connection.list_tables, none))
    legal = f"the tables are {', '.join(table_names)}" if table_names else "it has no tables"
    raise InputError(f"{none}; {legal}")


def _with_partitions(connection: Any, name: str, files: Any) -> Any:
    """Return Parquet files with the columns that the names of folders hold, as text; Spark prefers
    them to the files'.

    So a name that both have is refused.
    """
    settings, key = (
        connection._session.conf,
        "spark.sql.sources.partitionColumnTypeInference.enabled",
    )
    before = settings.get(key)
    settings.set(key, "false")
    try:
        frame = connection._session.read.parquet(name)
        table = connection.read_parquet(name)
    finally:
        settings.set(key, before)
    column_names = {column.lower() for column in files.columns}
    folders = {
        part.partition("=")[0].lower()
        for file in frame.inputFiles()
        for part in file.split("/")
        if "=" in part
    }
    if column_names & folders:
        raise InputError(
            "the files hold a column that their folders name too: read them without the partitions"
        )
    return table


def run_with_timeout(connection: Any, action: Callable[[], Result]) -> Result:
    """Return what `action` returns; interrupt a database that has not answered within an hour.

    PostgreSQL keeps time itself.
    """
    given_up = Event()

    def give_up() -> None:
        given_up.set()
        if connection.name == "pyspark":
            connection._session.sparkContext.cancelAllJobs()
        elif hasattr(connection.con, "interrupt"):
            connection.con.interrupt()

    timer = Timer(_PATIENCE, give_up)
    timer.daemon = True
    timer.start()
    try:
        return action()
    except Exception:
        if not given_up.is_set():
            raise
    finally:
        timer.cancel()
    raise InputError(
        "the WHERE takes too long and was given up: write a condition that is quicker to decide"
    )


def run_quietly(action: Callable[[], Result], failure: SemidpError) -> Result:
    """Do so quietly, and keep PySpark from logging the text of an error, which may quote data,
    before it raises it.
    """
    if "pyspark" not in sys.modules:
        return quietly(action, failure)
    from pyspark.logger import PySparkLogger

    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        return quietly(action, failure)
    finally:
        logger.disabled = before
