"""Where the parts of a release are carried out: in this process, in worker processes, or on a Spark cluster.

Spark may try a task again, or twice at once. Every attempt reads the measurement that the first one stored, so that
whichever finishes, the same numbers are published. Executors and driver share the folder that is written, and have
semidp installed.
"""

import json
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

from semidp.engines import Source, open_source
from semidp.errors import DataError, InputError, SemidpError
from semidp.release.part_tasks import PartTask, carry_out
from semidp.release.partitions import Part

_TOTAL, _PART, _TASK = "semidp_total", "semidp_part", "semidp_task"
_SETTINGS = {"spark.sql.adaptive.coalescePartitions.enabled": "false"}


class Runner(Protocol):
    """Where tasks run."""

    def run(self, tasks: Sequence[PartTask]) -> Iterator[Part]:
        """Carry out tasks and yield the parts as they are done, in any order."""
        ...


@dataclass(frozen=True)
class InThisProcess:
    """One task after another, here."""

    source: Source

    def run(self, tasks: Sequence[PartTask]) -> Iterator[Part]:
        """Carry out tasks in their order."""
        for task in tasks:
            yield carry_out(task, None if task.values is None else self.source.only(task.values))


@dataclass(frozen=True)
class InProcesses:
    """Tasks in worker processes, each of which opens the source itself and has one thread.

    Parameters
    ----------
    again
        Opens the source.
    jobs
        How many processes.
    """

    again: Callable[[], Source]
    jobs: int

    def run(self, tasks: Sequence[PartTask]) -> Iterator[Part]:
        """Hand tasks out in their order."""
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor, as_completed
        from concurrent.futures.process import BrokenProcessPool

        context = multiprocessing.get_context("spawn")  # a fork would copy threads that hold locks
        jobs = max(1, min(self.jobs, len(tasks)))
        pool = ProcessPoolExecutor(jobs, context, initializer=_start_worker, initargs=(pickle.dumps(self.again),))
        try:
            for future in as_completed([pool.submit(_work, task) for task in tasks]):
                yield future.result()
        except BrokenProcessPool:
            raise InputError(
                "a worker process ended before its work: was it killed, or was there too little memory?"
            ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


_worker: dict[str, Any] = {}


def _start_worker(again: bytes) -> None:
    from semidp.engines import one_thread

    one_thread()
    _worker["source"] = pickle.loads(again)()


def _work(task: PartTask) -> Part:
    return carry_out(task, None if task.values is None else _worker["source"].only(task.values))


def runner_for(source: Source, jobs: int) -> Runner:
    """Return where the parts of a source are carried out."""
    frame = source.spark_frame()
    if frame is not None:
        if jobs > 1:
            raise InputError("on Spark the executors carry out the parts: leave the number of processes out")
        return OnSpark(frame, source.count)
    if jobs == 1:
        return InThisProcess(source)
    if source.again is None:
        raise InputError("worker processes open the data themselves: give a file or an address, or use one process")
    return InProcesses(source.again, jobs)


@dataclass(frozen=True)
class OnSpark:
    """Tasks as tasks of Spark.

    Parameters
    ----------
    frame
        The records, as Spark holds them.
    count
        The column of counts, if there is one.
    """

    frame: Any
    count: str | None

    def run(self, tasks: Sequence[PartTask]) -> Iterator[Part]:
        """Group the records by part where they are, and carry out every part there."""
        if not tasks:
            return
        session = self.frame.sparkSession
        settings = {**_SETTINGS, "spark.sql.shuffle.partitions": str(len(tasks))}
        before = {key: session.conf.get(key) for key in settings}
        for key, value in settings.items():
            session.conf.set(key, value)
        try:
            rows = _collected(self._parts(tasks).collect)
        finally:
            for key, value in before.items():
                session.conf.set(key, value)
        for row in rows:
            document = json.loads(row["done"])
            if "error" in document:
                raise InputError(document["error"])
            yield Part.from_json(document)

    def _parts(self, tasks: Sequence[PartTask]) -> Any:
        from pyspark.sql import functions as f
        from pyspark.sql import types as t

        session, columns = self.frame.sparkSession, self._columns(tasks)
        keys = list(next((task.values for task in tasks if task.values is not None), {}))
        total = f.count(f.lit(1)) if self.count is None else f.sum(f.col(_quoted(self.count)).cast("bigint"))
        groups = self.frame.groupBy(*(f.col(_quoted(name)) for name in columns)).agg(total.alias(_TOTAL))
        fields = [
            t.StructField(f"semidp_key_{place}", self.frame.schema[name].dataType) for place, name in enumerate(keys)
        ]
        rows = [
            (*values, number)
            for number, task in enumerate(tasks)
            if task.values is not None
            for values in product(*task.values.values())
        ]
        where = session.createDataFrame(rows, t.StructType([*fields, t.StructField(_PART, t.LongType())]))
        same = f.lit(True)
        for place, name in enumerate(keys):
            same = same & groups[_quoted(name)].eqNullSafe(where[f"semidp_key_{place}"])
        parts = groups.join(f.broadcast(where), same).select(
            _PART, *(groups[_quoted(name)] for name in columns), _TOTAL
        )
        work = session.createDataFrame(
            [(number, bytearray(pickle.dumps(task))) for number, task in enumerate(tasks)],
            t.StructType([t.StructField(_PART, t.LongType()), t.StructField(_TASK, t.BinaryType())]),
        )
        return parts.groupBy(_PART).cogroup(work.groupBy(_PART)).applyInArrow(_work_there, f"{_PART} long, done string")

    def _columns(self, tasks: Sequence[PartTask]) -> list[str]:
        """Return the columns that the tables need, of those that there are."""
        wanted = {
            name for task in tasks[:1] for feature in (*task.schema.features, *task.declared) for name in feature.names
        }
        return [name for name in self.frame.columns if name in wanted]


def _work_there(records: Any, task: Any) -> Any:
    """Carry out one part on an executor; what goes wrong is told in words that quote nothing."""
    import pyarrow

    asked: PartTask = pickle.loads(task.column(_TASK)[0].as_py())
    try:
        if records.num_rows:
            with open_source(records.drop_columns([_PART]), count=_TOTAL) as source:
                done = carry_out(asked, source).to_json()
        else:
            done = carry_out(asked, None).to_json()
    except SemidpError as error:
        done = {"error": str(error)}
    return pyarrow.table({_PART: task.column(_PART)[:1], "done": [json.dumps(done)]})


def _collected(collect: Any) -> Any:
    """Return what Spark collects; its own messages may quote data, and are dropped."""
    found: dict[str, Any] = {}

    def work() -> None:
        try:
            found["rows"] = collect()
        except Exception:  # told below, without its text
            found["failed"] = True

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join()
    if "rows" not in found:
        raise DataError("Spark could not carry out every part: an executor failed again and again, or lacks semidp")
    return found["rows"]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
