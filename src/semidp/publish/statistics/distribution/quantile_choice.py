"""Quantiles read off a distribution, beside quantiles that are chosen: which of the two is better,
by public numbers.

Both are compared on an even group of typical size (`EvenGroup`), at the same budget: intervals by
the ranks that they reach, values without intervals by the steps that they are off on the mean. No
record is looked at.
"""

import math
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.sensitivity.distribution_space import MOST_STEPS, DistributionSpace, value_tree
from semidp.promise.spaces.dataspace import Dataspace
from semidp.publish.results.texts import error_text
from semidp.publish.statistics.distribution.distribution_estimates import (
    count_errors,
    difference_error,
    in_order,
)
from semidp.publish.statistics.distribution.request import Answers, DistributionRequest
from semidp.publish.statistics.outcomes.confidence import LEVEL
from semidp.publish.statistics.outcomes.groups import EvenGroup
from semidp.publish.statistics.outcomes.request import GroupedRequest
from semidp.publish.statistics.protocol.kinds import OtherAnswer
from semidp.publish.statistics.protocol.requests import Request

_DRAWS, _SEED = 200, 29  # simulated distributions of an even group, the same for everybody
# of the steps that chosen values are off, and steps: less is not told apart
_CLEARLY, _RESOLVED = 0.95, 0.01


def read_off(request: Request, mechanism: Mechanism) -> OtherAnswer | None:
    """Return the distribution that answers a request for quantiles, and whether it is better than
    choosing them.

    Parameters
    ----------
    request
        What is asked for; nothing else than quantiles has this alternative.
    mechanism
        What would choose them.
    """
    if not isinstance(request, GroupedRequest) or not request.asked_quantiles:
        return None
    named = request.answering_kind == DistributionRequest.key
    # A grid that is too fine for a distribution is refused only where one was asked for by name.
    if not named and (request.outcome.steps > MOST_STEPS or mechanism.space.is_zero):
        return None
    level = request.quantile_level
    reason = Answers.values if level is None else Answers.intervals
    rival = DistributionRequest(
        request.outcome,
        request.by,
        request.asked_quantiles,
        budget=request.budget,
        name=request.name,
        level=LEVEL if level is None else level,
        answers=Answers.asked if named else reason,
        answered=request.answered,
    )
    if mechanism.space.is_zero:
        return OtherAnswer(rival, False, "there is no record")
    public = mechanism.space.dataspace
    assert isinstance(public, Dataspace)
    space = rival.space(Scope(public, None, mechanism.space.adjacency))
    measuring = rival.calibrate(space)
    if level is not None:
        return _by_intervals(rival, measuring, level, request.rank_reach(mechanism))
    return _by_values(rival, measuring, request.steps_off(mechanism))


def _by_intervals(
    rival: DistributionRequest, measuring: Mechanism, level: Fraction, reach: float | None
) -> OtherAnswer | None:
    """Compare how many ranks intervals reach to each side."""
    if reach is None:
        return None
    # The law of the noise decides what is published; to choose, a normal one is near enough.
    wide = NormalDist().inv_cdf((1 + float(level)) / 2)
    half = wide * float(count_errors(measuring).mean())
    from_here, chosen = f"about ±{error_text(half)} ranks", f"±{error_text(reach)}"
    if half < reach:
        return OtherAnswer(
            rival, True, f"a distribution has intervals of {from_here}, chosen ones reach {chosen}"
        )
    return OtherAnswer(
        rival, False, f"selection has intervals of {chosen} ranks, a distribution {from_here}"
    )


def _by_values(
    rival: DistributionRequest, measuring: Mechanism, chosen: float | None
) -> OtherAnswer | None:
    """Compare how many steps values without intervals are off."""
    if chosen is None:
        return None
    assert isinstance(measuring.space, DistributionSpace)
    group = EvenGroup.typical(measuring.space.sizes, rival.outcome.steps)
    off = even_error(group, difference_error(measuring), rival.probabilities)
    where = f"where {group.size:,} records lie evenly on {group.steps:,} steps"
    ours, theirs = f"{error_text(off)} steps off", error_text(chosen)
    if off + _RESOLVED < _CLEARLY * chosen:
        return OtherAnswer(
            rival, True, f"a distribution is about {ours} {where}, chosen values {theirs}"
        )
    return OtherAnswer(
        rival,
        False,
        f"selection is about {theirs} steps off {where}, a distribution {error_text(off)}",
    )


@lru_cache(maxsize=64)
def even_error(group: EvenGroup, spread: float, probabilities: tuple[Fraction, ...]) -> float:
    """Return how many steps quantiles of a distribution are off on the mean in an even group, by
    simulation.

    Parameters
    ----------
    group
        How many records and steps there are.
    spread
        The standard deviation of the noise in one difference of halves.
    probabilities
        Which quantiles.

    Examples
    --------
    >>> # Μ = 1 and any two records
    >>> round(even_error(EvenGroup(400, 127), 8.0, (Fraction(1, 2),)), 1)
    1.6
    """
    tree = value_tree(group.steps + 1)
    drawn = np.random.default_rng(_SEED).normal(0, spread, (_DRAWS, tree.gaps))
    noise = tree.up_to(drawn, np.zeros(_DRAWS))
    counts = in_order(group.up_to[:-1] + noise, np.full(_DRAWS, group.size))
    distances = []
    for probability in probabilities:
        rank = group.rank(probability)
        places = (counts < rank).sum(axis=1)
        distances.append(float(np.abs(places - group.place(rank)).mean()))
    return math.fsum(distances) / len(distances)
