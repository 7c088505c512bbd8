"""Results as a function of a plan, exact totals and noisy measurements: no data, no side effects.

`run` publishes what it has just measured, and `Release.load` what a folder stores, so that both
hold the same results.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.progress import Progress, silent
from semidp.promise.sensitivity.query_space import QuerySpace
from semidp.publish.plan import Plan
from semidp.publish.selection import with_exact_claim
from semidp.publish.statistics.protocol.request_defaults import require_budget
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.protocol.results import NOISY, Published


def calibrate_request(plan: Plan, request: Request, space: QuerySpace) -> Mechanism:
    """Return the mechanism that a plan asks for: with an exact claim where it wants those."""
    mechanism = request.calibrate(space)
    if plan.claim is None:
        return mechanism
    return with_exact_claim(mechanism, require_budget(request), request.mechanism)


def publish(
    plan: Plan,
    scope: Scope,
    mechanisms: Sequence[Mechanism],
    measurements: Sequence[Measurement],
    progress: Progress = silent,
) -> tuple[Published, ...]:
    """Return the results of all requests of a plan.

    Parameters
    ----------
    plan, scope
        What was asked for, and what is public.
    mechanisms, measurements
        How each request was measured, and what came out.
    progress
        Told what is going on.
    """
    measured = zip(plan.requests, mechanisms, measurements, strict=True)
    return tuple(
        request.publish(mechanism, measurement, scope, progress)
        for request, mechanism, measurement in measured
    )


def publish_stored(
    plan: Plan,
    request: Request,
    entry: Mapping[str, Any],
    scope: Scope,
    files: Mapping[str, bytes],
) -> Published:
    """Publish the stored measurement of one request again.

    Parameters
    ----------
    plan, request, scope
        The plan, the request in it, and what is public.
    entry
        What release.json says of the measurement: whether its randomness was secure, and its query
        where the plan leaves a choice. Nothing else of it is read.
    files
        The files of the release.
    """
    if not isinstance(entry["private"], bool):
        raise ValueError("a measurement is private or not")
    mechanism = calibrate_request(plan, request, request.measured_space(entry, scope))
    noisy = request.order_noisy(_read_noisy(request.files, files))
    if noisy.shape != tuple(mechanism.space.shape):
        raise ValueError("a measurement has as many numbers as its query")
    measured = mechanism.restore_measurement(noisy, entry["private"])
    return request.publish(mechanism, measured, scope, silent)


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
