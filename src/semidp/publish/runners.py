"""Tasks of the parts of a release, and where they run: this process, worker processes, or a Spark
cluster.

Tasks share only public values, so they run anywhere and in any order. A task writes only into the
folder of its own run: an attempt that outlives a discarded run stores nothing in the next. Spark
may try a task again, or twice at once. Every attempt reads the measurement that the first one
stored, so whichever finishes, the same numbers are published. Executors and driver share the folder
that is written, and have semidp installed. A request that is not cut is measured and published in
one piece, next to the parts.
"""

import contextlib
import json
import os
import pickle
import secrets
import shutil
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import DataError, InputError, SemidpError
from semidp.promise.confidential import Confidential
from semidp.promise.documents import digest, from_json
from semidp.promise.files import rename
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.noise.randomness import Randomness
from semidp.promise.progress import Progress
from semidp.promise.system import die_with_parent, hide_interrupts, ignore_terminal
from semidp.publish.folders import Unfinished, durable
from semidp.publish.sources.linked_records import LinkedSource
from semidp.publish.sources.opening import Source, open_source
from semidp.publish.statistics.parts import STATE, Part, PartTable, PartTask
from semidp.publish.statistics.protocol.requests import (
    Published,
    Request,
    RequestMeasurement,
    StepsByParts,
)

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


PART_DONE = "part.json"
"""The file in the folder of a part that holds its outcome."""


def measured_before(task: PartTask) -> bool:
    """Whether all that a part measures is stored."""
    return all(work.is_measured(task) for work in task.requests)


def done_before(task: PartTask) -> Part | None:
    """Return a part that an earlier attempt finished."""
    try:
        part = Part.from_json(from_json((task.work / task.folder / PART_DONE).read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return part if (part.path, part.folder) == (task.path, task.folder) else None


def carry_out(task: PartTask, source: Source | LinkedSource | None) -> Part:
    """Run one part on its own records, if there are any, and return the outcome."""
    done = done_before(task)
    if done is not None:
        return done
    unfinished = Unfinished(task.work, task.run_name)
    unfinished.check()
    attempt = task.work / STATE / f"attempt-{secrets.token_hex(8)}"
    try:
        attempt.mkdir()  # and no folder above it: where those are gone, the run is over
        if task.only_measured:
            for work in task.requests:
                work.measure(task, source, attempt)
            return Part(task.path, task.folder, {}, ())
        # What is measured is stored once and read back for the fit, so every attempt publishes
        # the same measurement.
        part = _write_part(task, source, attempt)
        (attempt / PART_DONE).write_text(json.dumps(part.to_json()), encoding="utf-8", newline="\n")
        durable(attempt)
        unfinished.check()
        try:
            # One rename makes the part appear whole: whoever finds its folder may take it for done.
            rename(attempt, task.work / task.folder)
        except OSError:
            done = done_before(task)  # another attempt was first, with the same numbers
            if done is None:
                raise
            return done
        return part
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise InputError(
            f"the part {' · '.join(task.path)!r} could not be written: {reason}"
        ) from None
    finally:
        shutil.rmtree(attempt, ignore_errors=True)


def _write_part(task: PartTask, source: Source | LinkedSource | None, attempt: Path) -> Part:
    tables: list[PartTable] = []
    for work in task.requests:
        work.measure(task, source, attempt)
        tables += work.write(task, attempt)
    names = sorted(path.name for path in attempt.iterdir())
    return Part(
        task.path, task.folder, {name: digest(attempt / name) for name in names}, tuple(tables)
    )


_TOTAL, _PART, _TASK = "semidp_total", "semidp_part", "semidp_task"
_SETTINGS = {"spark.sql.adaptive.coalescePartitions.enabled": "false"}


Runner = Callable[[Sequence[PartTask]], Generator[Part, None, None]]
"""Runs tasks, and yields the parts as they finish, in any order; closing it ends all
work."""


def choose_runner(source: Source | LinkedSource, jobs: int) -> Runner:
    """Return the runner of the parts of a source: this process, worker processes, or a Spark
    cluster.
    """
    frame = source.spark_frame()
    if frame is not None:
        if jobs > 1:
            raise InputError(
                "on Spark the executors carry out the parts: leave the number of processes out"
            )
        assert isinstance(source, Source)
        return partial(_on_spark, frame, source.count)
    if jobs == 1:
        return lambda tasks: (_run_task(source, task) for task in tasks)
    if source.again is None:
        raise InputError(
            "worker processes open the data themselves: give a file or an address, or use one"
            " process"
        )
    return partial(_in_processes, source.again, jobs)


def _run_task(source: Source | LinkedSource | None, task: PartTask) -> Part:
    records = None if source is None or task.values is None else source.only(task.values)
    return carry_out(task, records)


def _reads(task: PartTask) -> bool:
    """Whether a task has to read records: else no worker opens them."""
    return task.values is not None and any(work.reads(task) for work in task.requests)


def _in_processes(
    again: Callable[[], Source | LinkedSource], jobs: int, tasks: Sequence[PartTask]
) -> Generator[Part, None, None]:
    """Hand tasks out in their order to processes, each of which opens the source itself and has one
    thread.

    The processes are killed when this ends, and end by themselves when this process does, however
    it ends. A kill loses nothing: what a task has stored is whole.
    """
    import multiprocessing
    from multiprocessing.connection import wait

    context = multiprocessing.get_context("spawn")  # a fork would copy threads that hold locks
    opener, waiting = pickle.dumps(again), deque(tasks)
    workers, busy = [], list["Connection"]()
    try:
        with hide_interrupts():
            for _ in range(min(jobs, len(tasks))):
                ours, theirs = context.Pipe()
                worker = context.Process(
                    target=_work, args=(opener, theirs, os.getpid()), daemon=True
                )
                worker.start()
                theirs.close()  # so that the end of the worker is the end of what it says
                workers.append(worker)
                busy.append(ours)
        for connection in busy:
            connection.send(waiting.popleft())
        while busy:
            ready = wait(busy)
            for connection in [one for one in busy if one in ready]:
                answer = connection.recv()
                if isinstance(answer, Exception):
                    raise answer
                if waiting:
                    connection.send(waiting.popleft())
                else:
                    busy.remove(connection)
                yield answer
    except (EOFError, BrokenPipeError, ConnectionResetError):
        raise InputError(
            "a worker process ended before its work: was it killed, or was there too little memory?"
        ) from None
    finally:
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join()


def _work(opener: bytes, tasks: "Connection", parent: int) -> None:
    """Carry out tasks in a process of its own, and send back what became of each."""
    from semidp.publish.sources.opening import one_thread

    _exit_after_parent(parent)
    one_thread()
    source: Source | LinkedSource | None = None
    with contextlib.suppress(EOFError):  # nothing is left to do
        while True:
            task = tasks.recv()
            answer: Part | Exception
            try:
                # To open linked sources is to join them, which rows that are fitted do not need.
                if source is None and _reads(task):
                    source = pickle.loads(opener)()
                answer = _run_task(source, task)
            except Exception as error:  # raised again where the tasks come from
                answer = error
            tasks.send(answer)


def _exit_after_parent(parent: int) -> None:
    """End this process when its parent has ended, even by a signal."""
    import multiprocessing

    ignore_terminal()
    die_with_parent()
    started_by = multiprocessing.parent_process()
    assert started_by is not None, "this runs in a worker process"

    def watch() -> None:
        started_by.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    if os.getppid() != parent:  # it ended before anything watched
        os._exit(1)


def _on_spark(
    frame: Any, count: str | None, tasks: Sequence[PartTask]
) -> Generator[Part, None, None]:
    """Group the records of a frame of Spark by part where they are, and carry out every part
    there.
    """
    if not tasks:
        return
    conf = frame.sparkSession.conf
    # Spark would put small partitions together, and many parts would wait for each other on one
    # executor. The session may be the caller's, so its own settings come back.
    settings = {**_SETTINGS, "spark.sql.shuffle.partitions": str(len(tasks))}
    before = {key: conf.get(key) for key in settings}
    for key, value in settings.items():
        conf.set(key, value)
    try:
        rows = _collect_quietly(_parts(frame, count, tasks).collect)
    finally:
        for key, value in before.items():
            conf.set(key, value)
    for row in rows:
        document = json.loads(row["done"])
        if "error" in document:
            raise InputError(document["error"])
        yield Part.from_json(document)


def _parts(frame: Any, count: str | None, tasks: Sequence[PartTask]) -> Any:
    """Return a frame of Spark of how every task came out, for those columns that the tables
    need.
    """
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    session = frame.sparkSession
    features = (*tasks[0].schema.features, *tasks[0].declared)
    part_columns = {name for feature in features for name in feature.names}
    columns = [name for name in frame.columns if name in part_columns]
    keys = list(next((task.values for task in tasks if task.values is not None), {}))
    # Grouped first, so cells with counts are sent to their part and not every record.
    total = f.count(f.lit(1)) if count is None else f.sum(f.col(_quote_name(count)).cast("bigint"))
    groups = frame.groupBy(*(f.col(_quote_name(name)) for name in columns)).agg(total.alias(_TOTAL))
    fields = [
        t.StructField(f"semidp_key_{place}", frame.schema[name].dataType)
        for place, name in enumerate(keys)
    ]
    rows = [
        (*values, number)
        for number, task in enumerate(tasks)
        if task.values is not None
        for values in product(*task.values.values())
    ]
    where = session.createDataFrame(
        rows, t.StructType([*fields, t.StructField(_PART, t.LongType())])
    )
    # A missing value may stand for a level. A plain = would drop its records from every part.
    same = f.lit(True)
    for place, name in enumerate(keys):
        same = same & groups[_quote_name(name)].eqNullSafe(where[f"semidp_key_{place}"])
    parts = groups.join(f.broadcast(where), same).select(
        _PART, *(groups[_quote_name(name)] for name in columns), _TOTAL
    )
    # A task meets its records by a cogroup, which keeps tasks without records: an empty part gets
    # noise like any other, or everybody would see that it is empty.
    work = session.createDataFrame(
        [(number, bytearray(pickle.dumps(task))) for number, task in enumerate(tasks)],
        t.StructType([t.StructField(_PART, t.LongType()), t.StructField(_TASK, t.BinaryType())]),
    )
    return (
        parts.groupBy(_PART)
        .cogroup(work.groupBy(_PART))
        .applyInArrow(_work_there, f"{_PART} long, done string")
    )


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
        done = {"error": error.message}
    return pyarrow.table({_PART: task.column(_PART)[:1], "done": [json.dumps(done)]})


def _collect_quietly(collect: Any) -> Any:
    """Return what Spark collects; its own messages may quote data, and are dropped."""
    answers: dict[str, Any] = {}

    def work() -> None:
        try:
            answers["rows"] = collect()
        except Exception:  # told below, without its text
            answers["failed"] = True

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join()
    if "rows" not in answers:
        raise DataError(
            "Spark could not carry out every part: an executor failed again and again, or lacks"
            " semidp"
        )
    return answers["rows"]


def _quote_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


class InOnePiece(StepsByParts):
    """A request that is one block: it has nothing to do in any part.

    Parameters
    ----------
    request, mechanism
        The request, and its noise.
    scope
        The public facts.
    values
        The confidential values of its query.
    key
        Separates its source of noise from those of parts; empty if there are none.
    """

    def __init__(
        self,
        request: Request,
        mechanism: Mechanism,
        scope: Scope,
        values: Confidential[NDArray[np.int64]],
        key: tuple[str, ...] = (),
    ) -> None:
        super().__init__(request, mechanism, values)
        self.scope = scope
        self.key = key
        # drawn in an earlier phase, where there was one
        self.noisy: NDArray[Any] | None = None
        self._measured: Measurement | None = None

    def add_noise(self, randomness: Randomness) -> NDArray[Any]:
        """Return the values with noise, drawn earlier or now."""
        if self.noisy is not None:
            return self.noisy
        source = randomness.part(*self.key) if self.key else randomness
        noisy: NDArray[Any] = self.mechanism.measure(self.values, source).noisy
        return noisy

    def begin(self, noisy: NDArray[Any], private: bool) -> None:
        """Take the measurement; the confidential values are no longer needed."""
        self.values = Confidential(np.zeros(0, np.int64))
        self._measured = self.mechanism.restore_measurement(noisy, private)

    def build_result(self, parts: Sequence[Part], work: Path, progress: Progress) -> Published:
        """Return what is published, as in a release without parts."""
        assert self._measured is not None, "published after it was measured"
        measured = RequestMeasurement(self.mechanism, self._measured)
        return measured.publish(self.request, self.scope, (), progress)
