"""One part of a release, carried out: what statistics do in it, and a folder that takes its place
when it is whole.

A task shares nothing with another but public values, so that tasks run anywhere and in any order.
Folders are written in the folder of the task's own run only: an attempt that outlives a run that
was discarded stores nothing in the next.
"""

import json
import secrets
import shutil
from pathlib import Path

from semidp.errors import InputError
from semidp.promise.documents import from_json
from semidp.promise.files import durable, rename
from semidp.promise.plain_reading import digest
from semidp.publish.sources.linked_records import LinkedSource
from semidp.publish.sources.opening import Source
from semidp.publish.statistics.parts import STATE, Part, PartTable, PartTask
from semidp.publish.unfinished import Unfinished

PART_DONE = "part.json"
"""The file, in the folder of a part, that says how it came out."""


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
    """Carry out one part from its own records, if there are any, and return what became of it."""
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
        # What is measured is stored once and read back for the fit, so that every attempt publishes
        # the same measurement.
        part = _write_part(task, source, attempt)
        (attempt / PART_DONE).write_text(json.dumps(part.to_json()), encoding="utf-8")
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
