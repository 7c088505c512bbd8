"""The search: passes over all kinds of moves until the tables are as close as they get, or the time
is over.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from semidp.inference.records.record_moves import RecordMove
from semidp.inference.records.sweeps import RecordState, Sweep
from semidp.promise.progress import Progress, silent

SECONDS = 60.0
"""How long tables are approached, unless said otherwise."""

_PASSES = 10  # after which the distance is compared with the one before them
_WORTH = 0.02  # the share of the distance that so many passes must take away
_TASK = "swapping records"


class Ending(StrEnum):
    """Why a search ended.

    >>> Ending("time")
    <Ending.TIME: 'time'>
    """

    MATCHED = "matched"
    """Nothing had to be searched: the records have every published table."""
    SETTLED = "settled"
    """Ten more passes took away less than 2% of the squared distance."""
    TIME = "time"
    """The time was over."""
    INTERRUPTED = "interrupted"
    """Somebody asked to stop."""


@dataclass(frozen=True)
class Approach:
    """How a search is carried out.

    Parameters
    ----------
    sweep
        Compiled, or many pairs at once.
    seconds
        After which it ends.
    progress
        Told the distance after each pass.
    stop
        Asked after each kind of move whether to end.
    """

    sweep: Sweep
    seconds: float = SECONDS
    progress: Progress = silent
    stop: Callable[[], bool] = bool

    def run(self, state: RecordState, moves: list[RecordMove], draw: np.random.Generator) -> Ending:
        """Bring records as close to their tables as they get; every state on the way has the exact
        totals.
        """
        started = time.monotonic()
        before = state.goal.distance(state.slopes)
        passes = 0
        while moves:
            for number in draw.permutation(len(moves)):
                self.sweep(state, moves[number], draw)
                # Between two sweeps records are whole, so that this is the place to end.
                if self.stop():
                    return Ending.INTERRUPTED
                if time.monotonic() - started > self.seconds:
                    return Ending.TIME
            passes += 1
            share = state.goal.share(state.slopes)
            self.progress(
                f"{_TASK}: {share:.2f} standard errors", time.monotonic() - started, self.seconds
            )
            # One pass says little: the last moves are rare.
            if passes % _PASSES == 0:
                distance = state.goal.distance(state.slopes)
                if distance >= (1 - _WORTH) * before:
                    return Ending.SETTLED
                before = distance
        return Ending.SETTLED
