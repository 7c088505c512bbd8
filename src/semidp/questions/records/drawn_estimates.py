"""Draws of what the estimates of a release leave open: its noise once more, by the law that it states.

The truth is the estimate less its noise. The noise has mean zero and a symmetric law, so that the estimate plus fresh
noise is a draw of the truth given the estimate, if nothing else is known of it (a flat prior). Nothing confidential is
read.
"""

from typing import TYPE_CHECKING

import numpy as np

from semidp.errors import Refused
from semidp.mechanisms.residual_noise import ResidualMechanism
from semidp.noise.randomness import Randomness
from semidp.questions.records.record_cells import Floats

if TYPE_CHECKING:
    from semidp.publishing.release import Release


def drawn_estimates(release: "Release", randomness: Randomness) -> dict[str, Floats]:
    """Return for each table its estimates with the noise of the release drawn once more.

    Tables that share a budget share their noise, so that the draw of one fits those of the others.

    Examples
    --------
    >>> import semidp
    >>> request = semidp.TableRequest(["sex", "region"], semidp.Budget.gdp(1))
    >>> plan = semidp.Plan([request], ["sex", "region"])
    >>> release = semidp.run(plan, {"sex": [*"fm"] * 9, "region": [*"nns"] * 6})
    >>> drawn = drawn_estimates(release, semidp.noise.SeededRandomness(1))["table"]
    >>> drawn.sum(axis=1).round(6).tolist()  # exact totals stay
    [9.0, 9.0]
    """
    shapes = {table.name: table.schema.shape for table in release.tables}
    drawn: dict[str, Floats] = {}
    for request, result in zip(release.plan.requests, release.results, strict=True):
        names = [name for name in result.named() if name in shapes]
        if not names:
            continue
        mechanism = result.drawn_by(result.recalibrated(request, release.scope))
        if mechanism is None:
            raise Refused(f"the noise of {', '.join(names)} is not what its plan needs: it cannot be drawn once more")
        if result.noise.absent:
            tables = [table.estimate for table in release.tables if table.name in names]
        else:
            zeros = np.zeros(mechanism.space.shape, dtype=np.int64)
            fresh = mechanism.measure_many(zeros, 1, randomness)[0]
            vector = mechanism.publish(np.asarray(result.noisy) + fresh)
            tables = mechanism.estimates(vector) if isinstance(mechanism, ResidualMechanism) else [vector]
        for name, table in zip(names, tables, strict=True):
            drawn[name] = np.asarray(table, dtype=np.float64).reshape(shapes[name])
    return drawn
