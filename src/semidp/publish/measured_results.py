"""Results as a function of a plan, exact totals, noisy measurements and the whole numbers that were
fitted to them: no data, no side effects.

`run` publishes what it has just measured, and a release that was loaded what its folder stores when
it is first asked for, so that both hold the same results.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.progress import Progress, silent
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.publish.plan import Plan
from semidp.publish.results.columns import StoredFiles
from semidp.publish.results.published_table import StoredFit
from semidp.publish.selection import with_exact_claim
from semidp.publish.statistics.parts import BY_PARTS, Partition
from semidp.publish.statistics.protocol.requests import Request, RequestMeasurement, require_budget
from semidp.publish.statistics.protocol.results import NOISY, Published
from semidp.publish.statistics.protocol.statistic import result_keys, result_readers


def calibrate_request(plan: Plan, request: Request, space: QuerySpace) -> Mechanism:
    """Return the mechanism that a plan asks for: with an exact claim where it wants those."""
    mechanism = request.calibrate(space)
    if plan.claim is None:
        return mechanism
    return with_exact_claim(mechanism, require_budget(request), request.mechanism)


def publish(
    plan: Plan,
    scope: Scope,
    measurements: Sequence[RequestMeasurement],
    counts: Sequence[Sequence[StoredFit]] | None = None,
    progress: Progress = silent,
) -> tuple[Published, ...]:
    """Return the results of all requests of a plan.

    Parameters
    ----------
    plan, scope
        What was asked for, and the exact totals with what follows from them.
    measurements
        What was measured of each request.
    counts
        The whole numbers of each request's tables, where they were fitted before: nothing is
        fitted again.
    progress
        Told what is going on.
    """
    stored: Sequence[Sequence[StoredFit]] = [()] * len(measurements) if counts is None else counts
    requests = zip(plan.requests, measurements, stored, strict=True)
    return tuple(
        measured.publish(request, scope, fits, progress) for request, measured, fits in requests
    )


def read_measurements(
    document: Mapping[str, Any],
    plan: Plan,
    scope: Scope,
    files: StoredFiles,
    partition: Partition | None,
) -> tuple[tuple[RequestMeasurement, ...], tuple[Sequence[StoredFit], ...]]:
    """Return what was measured of each request of a plan, and the whole numbers of its tables, from
    release.json and the files of a release.
    """
    readers = result_readers()
    left = [(key, entry) for key in result_keys() for entry in document.get(key, ())]
    measurements, counts = [], []
    for request in plan.requests:
        # Results of one kind may stand in two lists: in that of parts, and in that of what was not
        # cut.
        place = [entry["name"] for _, entry in left].index(request.name)
        key, entry = left.pop(place)
        if not isinstance(entry["private"], bool):
            raise ValueError("a measurement is private or not")
        if (key == BY_PARTS) and partition is None:
            raise ValueError("a result by parts has parts")
        fits: Sequence[StoredFit] = ()
        if key in readers:
            parts = partition if key == BY_PARTS else None
            measured, fits = readers[key](entry, request, plan.requests, parts, scope, files)
        else:
            measured = _read_statistic(plan, request, entry, scope, files)
        measurements.append(measured)
        counts.append(fits)
    if left:
        raise ValueError("a release has no more than its plan asks for")
    return tuple(measurements), tuple(counts)


def _read_statistic(
    plan: Plan,
    request: Request,
    entry: Mapping[str, Any],
    scope: Scope,
    files: Mapping[str, bytes],
) -> RequestMeasurement:
    """Read what was measured of a request for a statistic."""
    mechanism = calibrate_request(plan, request, request.measured_space(entry, scope))
    noisy = request.order_noisy(_read_noisy(request.files, files))
    if noisy.shape != tuple(mechanism.space.shape):
        raise ValueError("a measurement has as many numbers as its query")
    return RequestMeasurement(mechanism, mechanism.restore_measurement(noisy, entry["private"]))


def _read_noisy(names: Sequence[str], files: Mapping[str, bytes]) -> NDArray[np.int64]:
    """Read the noisy columns of the files of a request, row by row: the last ones of a file."""
    rows: list[list[int]] = []
    for name in names:
        header, *lines = csv.reader(io.StringIO(files[name].decode()))
        start = len(header)
        while start and header[start - 1].startswith(NOISY):
            start -= 1
        if start < len(header):
            rows += [[int(cell) for cell in line[start:]] for line in lines]
    return np.array(rows, dtype=np.int64)
