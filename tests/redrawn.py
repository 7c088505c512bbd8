"""Many releases of one plan: it is prepared once, and noise is drawn as often as a law needs."""

from semidp import Release, RunOptions
from semidp.promise import SeededRandomness
from semidp.publish.pipeline import Prepared, build_release, measure_prepared


def redrawn(prepared: Prepared, seed: int) -> Release:
    """Return what `run` would release with this seed."""
    options = RunOptions(randomness=SeededRandomness(seed))
    entry, measurements = measure_prepared(prepared, options, ledger=None)
    results = [
        request.publish(mechanism, measurement, prepared.scope, options.progress)
        for (request, mechanism), measurement in zip(
            prepared.calibrated_requests, measurements, strict=True
        )
    ]
    return build_release(Release, prepared, results, entry, options.written_as)
