"""Distributions of one outcome from several releases, as a combination of releases publishes
them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from attrs import evolve

from semidp.errors import InputError
from semidp.promise.guarantee import Guarantee, Scope
from semidp.promise.mechanisms.mechanism import Measurement
from semidp.promise.sensitivity.distribution_space import DistributionSpace
from semidp.promise.tradeoff.curves import approximate
from semidp.publish.statistics.distribution.pooling import (
    DifferencePool,
    MeasuredDifferences,
    PooledDistributions,
)
from semidp.publish.statistics.distribution.published import (
    PublishedDistribution,
    build_distribution_set,
)
from semidp.publish.statistics.distribution.request import DistributionRequest
from semidp.publish.statistics.protocol.results import Noise

_TELLING = 24  # so many numbers of one measurement are not drawn alike twice


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class CombinedDistribution(PublishedDistribution):
    """Distributions of an outcome by groups, from all releases that measured it with the same cuts.

    Parameters
    ----------
    releases
        How many releases measured it.
    sources
        What they published; none where it was read from a folder and is not computed again.
    """

    key: ClassVar[str] = "combined_distributions"

    releases: int
    sources: tuple[PublishedDistribution, ...] = field(default=(), repr=False)
    scope: Scope | None = field(default=None, repr=False)

    @cached_property
    def distributions(self) -> PooledDistributions:
        """The same distributions, of which every quantile and every share can be asked."""
        if self.scope is None:
            raise InputError("ask the combination itself: this one has no releases beside it")
        return _pool_differences(self.request, self.sources, self.scope)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the numbers in the CSV files, as plain values."""
        return {
            **super().to_json(),
            "releases": self.releases,
            "request": self.request.to_json(),
        }


def _fields(
    request: DistributionRequest, scope: Scope, claim: str, private: bool
) -> dict[str, Any]:
    """What every result has: noise of a law of its own, and a guarantee that is said of the release
    as a whole.
    """
    noise = Noise("combination", 0.0, claim, 0.0, None)
    # With delta = 1 nothing is claimed.
    nothing = Guarantee(scope.dataspace, scope.adjacency, approximate(0, 1))
    return {
        "name": request.name,
        "noise": noise,
        "guarantee": nothing,
        "advertised": None,
        "private": private,
    }


def combined_distribution(
    sources: Sequence[PublishedDistribution], scope: Scope
) -> CombinedDistribution | None:
    """Return the distributions of one outcome from several releases; None where exact totals fix
    one of them.

    Parameters
    ----------
    sources
        What the releases published of one outcome, with the same cuts.
    scope
        What all releases together publish exactly.
    """
    if any(one.noise.absent for one in sources):
        return None
    first = sources[0]
    blocks = dict.fromkeys(block for one in sources for block in one.request.by)
    probabilities = {number for one in sources for number in one.request.probabilities}
    lines = {line for one in sources for line in one.request.lines}
    level = min(one.request.level for one in sources)
    name = f"distribution-{first.request.outcome.column}"
    request = evolve(
        first.request,
        by=tuple(blocks),
        probabilities=sorted(probabilities),
        lines=sorted(lines),
        budget=None,
        level=level,
        answers=None,
        name=name,
    )
    pooled = _pool_differences(request, sources, scope)
    claims = {one.noise.claim for one in sources}
    claim = "exact" if claims <= {"exact"} else "ideal"
    private = all(one.private for one in sources)
    sets = [build_distribution_set(request, pooled, block) for block in request.by]
    stated = _fields(request, scope, claim, private)
    return CombinedDistribution(
        request=request,
        sets=tuple(sets),
        noisy=pooled.pool.differences.ravel(),
        releases=len(sources),
        sources=tuple(sources),
        scope=scope,
        **stated,
    )


def _pool_differences(
    request: DistributionRequest, sources: Sequence[PublishedDistribution], scope: Scope
) -> PooledDistributions:
    """Differences of all sources as one set of measurements; refuse the same one twice."""
    space = request.space(scope)
    assert isinstance(space, DistributionSpace)
    measured = []
    for one in sources:
        mechanism = one.distributions.mechanism
        measured.append(MeasuredDifferences(mechanism, np.asarray(one.noisy, dtype=np.int64)))
    for number, part in enumerate(measured):
        for other in measured[:number]:
            same = np.array_equal(part.noisy, other.noisy)
            if same and part.noisy.size >= _TELLING:
                raise InputError(
                    "the same measurement stands in two of these releases: name each release once"
                )
    pool = DifferencePool(space, tuple(measured))
    first = measured[0]
    private = all(one.private for one in sources)
    measurement = replace(_measurement(sources[0]), private=private)
    return PooledDistributions(first.mechanism, measurement, request.level, pool=pool)


def _measurement(source: PublishedDistribution) -> Measurement:
    return source.distributions.measurement
