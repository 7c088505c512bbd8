"""What there is to audit in a plan or in a release: its mechanisms, calibrated again, and what is claimed of them.

Everything here is a function of public values: the plan, the published totals, and what the release says of itself.
"""

import time
from dataclasses import dataclass

from semidp.audit.attack import Draws
from semidp.audit.pairs import Pair
from semidp.audit.scores import Features
from semidp.mechanisms import Mechanism
from semidp.noise import Randomness
from semidp.release import Plan, Published, PublishedGroups, Release, Scope, mechanism_for
from semidp.tradeoff import Order, Tradeoff

MOST_SAMPLES = 1_000_000
"""Outputs for each table, unless asked for more or limited by time."""

_SECONDS = 45.0
_PILOT = (20, 2_000)
_FEWEST = 2_000
_SAME = 1e-9


@dataclass(frozen=True, eq=False)
class Subject:
    """One table of a plan or a release: its mechanism, the claim, and where the record contradicts itself.

    Parameters
    ----------
    name
        The name of the table in the plan.
    mechanism
        The mechanism, calibrated from the plan and the published totals.
    claim
        The tradeoff curve that is claimed for it.
    faults
        What the release says that its plan does not bear out, a sentence each.
    """

    name: str
    mechanism: Mechanism
    claim: Tradeoff
    faults: tuple[str, ...] = ()

    @property
    def fixed(self) -> bool:
        """Whether the published totals fix the table, so that there is nothing to attack."""
        return self.mechanism.space.is_zero


def of_plan(plan: Plan, scope: Scope) -> tuple[Subject, ...]:
    """Return the tables and groups of a plan under published totals."""
    mechanisms = ((request.name, mechanism_for(request, scope)) for request in plan.requests)
    return tuple(Subject(name, mechanism, mechanism.tradeoff) for name, mechanism in mechanisms)


def of_release(release: Release) -> tuple[Subject, ...]:
    """Return what a release measured, calibrated again from its plan and totals, with the claims that it records."""
    subjects = []
    parts: tuple[Published | PublishedGroups, ...] = (*release.tables, *release.groups)
    for again, table in zip(of_plan(release.plan, release.scope), parts, strict=True):
        claim, mechanism = table.guarantee.tradeoff, again.mechanism
        faults = []
        if table.noise.mechanism != mechanism.name:
            faults.append(f"it records the mechanism {table.noise.mechanism}, but its plan gives {mechanism.name}")
        elif table.noise.scale < mechanism.scale * (1 - _SAME):
            faults.append(
                f"it records noise of scale {table.noise.scale:.6g}, but its plan needs {mechanism.scale:.6g}"
            )
        if claim.compare(mechanism.tradeoff) not in (Order.EQUAL, Order.WEAKER):
            faults.append("it claims more privacy for this table than its plan gives")
        subjects.append(Subject(again.name, mechanism, claim, tuple(faults)))
    one, *others = (table.guarantee for table in parts)
    whole = one.compose(*others).tradeoff
    if release.guarantee.tradeoff.compare(whole) not in (Order.EQUAL, Order.WEAKER):
        first = subjects[0]
        fault = "it claims more privacy than its tables give together"
        subjects[0] = Subject(first.name, first.mechanism, first.claim, (*first.faults, fault))
    return tuple(subjects)


def affordable_samples(mechanism: Draws, pair: Pair, randomness: Randomness, seconds: float = _SECONDS) -> int:
    """Return how many samples of each table take about so long, at most a million: by drawing and scoring a few.

    >>> import numpy as np
    >>> from semidp.noise import SeededRandomness
    >>> pair = Pair([1, 0], [0, 1])
    >>> def silent(values, count, words):
    ...     return np.tile(values, (count, 1))
    >>> affordable_samples(silent, pair, SeededRandomness(1), seconds=3600)
    1000000
    """
    features, rate = Features(pair), 0.0
    for count in _PILOT:
        start = time.perf_counter()
        features(mechanism(pair.first, count, randomness))
        rate = (time.perf_counter() - start) / count
        if rate * count > seconds / 100:
            break
    # two tables, and every output is scored as drawn and with less noise
    return int(min(MOST_SAMPLES, max(_FEWEST, seconds / (4 * max(rate, 1e-9)))))
