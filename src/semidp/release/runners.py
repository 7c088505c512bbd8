"""Where the parts of a release are carried out: in this process, in worker processes, or on a Spark cluster.

Spark may try a task again, or twice at once. Every attempt reads the measurement that the first one stored, so that
whichever finishes, the same numbers are published. Executors and driver share the folder that is written, and have
semidp installed.
"""

import json
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import product
from typing import Any

from semidp.engines import Source, open_source
from semidp.errors import DataError, InputError, SemidpError
from semidp.release.part_tasks import PartTask, carry_out
from semidp.release.partitions import Part

_TOTAL, _PART, _TASK = "semidp_total", "semidp_part", "semidp_task"
_SETTINGS = {"spark.sql.adaptive.coalescePartitions.enabled": "false"}


Runner = Callable[[Sequence[PartTask]], Iterator[Part]]
"""Carries out tasks, and yields the parts as they are done, in any order."""


def runner_for(source: Source, jobs: int) -> Runner:
    """Return where the parts of a source are carried out."""
    frame = source.spark_frame()
    if frame is not None:
        if jobs > 1:
            raise InputError("on Spark the executors carry out the parts: leave the number of processes out")
        return partial(_on_spark, frame, source.count)
    if jobs == 1:
        return lambda tasks: (_part_of(source, task) for task in tasks)
    if source.again is None:
        raise InputError("worker processes open the data themselves: give a file or an address, or use one process")
    return partial(_in_processes, source.again, jobs)


def _part_of(source: Source, task: PartTask) -> Part:
    return carry_out(task, None if task.values is None else source.only(task.values))


def _in_processes(again: Callable[[], Source], jobs: int, tasks: Sequence[PartTask]) -> Iterator[Part]:
    """Hand tasks out in their order to processes, each of which opens the source itself and has one thread."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    context = multiprocessing.get_context("spawn")  # a fork would copy threads that hold locks
    workers = max(1, min(jobs, len(tasks)))
    pool = ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(pickle.dumps(again),))
    try:
        for future in as_completed([pool.submit(_work, task) for task in tasks]):
            yield future.result()
    except BrokenProcessPool:
        raise InputError(
            "a worker process ended before its work: was it killed, or was there too little memory?"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_worker: dict[str, Source] = {}


def _start_worker(again: bytes) -> None:
    from semidp.engines import one_thread

    one_thread()
    _worker["source"] = pickle.loads(again)()


def _work(task: PartTask) -> Part:
    return _part_of(_worker["source"], task)


def _on_spark(frame: Any, count: str | None, tasks: Sequence[PartTask]) -> Iterator[Part]:
    """Group the records of a frame of Spark by part where they are, and carry out every part there."""
    if not tasks:
        return
    conf = frame.sparkSession.conf
    settings = {**_SETTINGS, "spark.sql.shuffle.partitions": str(len(tasks))}
    before = {key: conf.get(key) for key in settings}
    for key, value in settings.items():
        conf.set(key, value)
    try:
        rows = _collected(_parts(frame, count, tasks).collect)
    finally:
        for key, value in before.items():
            conf.set(key, value)
    for row in rows:
        document = json.loads(row["done"])
        if "error" in document:
            raise InputError(document["error"])
        yield Part.from_json(document)


def _parts(frame: Any, count: str | None, tasks: Sequence[PartTask]) -> Any:
    """Return a frame of Spark of how every task came out, for those columns that the tables need."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    session = frame.sparkSession
    features = (*tasks[0].schema.features, *tasks[0].declared)
    wanted = {name for feature in features for name in feature.names}
    columns = [name for name in frame.columns if name in wanted]
    keys = list(next((task.values for task in tasks if task.values is not None), {}))
    total = f.count(f.lit(1)) if count is None else f.sum(f.col(_quoted(count)).cast("bigint"))
    groups = frame.groupBy(*(f.col(_quoted(name)) for name in columns)).agg(total.alias(_TOTAL))
    fields = [t.StructField(f"semidp_key_{place}", frame.schema[name].dataType) for place, name in enumerate(keys)]
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
    parts = groups.join(f.broadcast(where), same).select(_PART, *(groups[_quoted(name)] for name in columns), _TOTAL)
    work = session.createDataFrame(
        [(number, bytearray(pickle.dumps(task))) for number, task in enumerate(tasks)],
        t.StructType([t.StructField(_PART, t.LongType()), t.StructField(_TASK, t.BinaryType())]),
    )
    return parts.groupBy(_PART).cogroup(work.groupBy(_PART)).applyInArrow(_work_there, f"{_PART} long, done string")


def _work_there(records: Any, task: Any) -> Any:
    """Carry out one part on an executor; what goes wrong is told in words that quote nothing."""
    import pyarrow

    asked: PartTask = pickle.loads(task.column(_TASK)[0].as_py())
    try:
        with open_source(records.drop_columns([_PART]), count=_TOTAL) if records.num_rows else nullcontext() as source:
            done = carry_out(asked, source).to_json()
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
