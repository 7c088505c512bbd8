"""A request that is not cut: measured and published in one piece, beside the parts of a release."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.promise.mechanisms.mechanism import Measurement, Mechanism
from semidp.promise.noise.randomness import Randomness
from semidp.promise.progress import Progress
from semidp.promise.scope import Scope
from semidp.publish.statistics.parts import Part
from semidp.publish.statistics.protocol.requests import Request
from semidp.publish.statistics.protocol.results import Published


class InOnePiece:
    """A request that has nothing to do in any part.

    Parameters
    ----------
    request, mechanism
        What is asked for, and its noise.
    scope
        What is public.
    values
        The confidential values of its query.
    """

    stems: Sequence[str] = ()
    is_fitted_jointly = False

    def __init__(
        self, request: Request, mechanism: Mechanism, scope: Scope, values: NDArray[np.int64]
    ) -> None:
        self.request = request
        self.mechanism = mechanism
        self.scope = scope
        self.values = values
        self._measured: Measurement | None = None

    def foreseen(self) -> list[str]:
        """Nothing is published otherwise than in a release without parts."""
        return []

    def add_noise(self, randomness: Randomness) -> NDArray[Any]:
        """Return the values with noise."""
        return self.mechanism.measure(self.values, randomness.part(self.request.name)).noisy

    def begin(self, noisy: NDArray[Any], private: bool) -> None:
        """Take what was measured."""
        self._measured = self.mechanism.restore_measurement(noisy, private)

    def settle(self, number: int, work: Path, progress: Progress) -> None:
        """No part needs anything of it."""

    def part_work(self, node: int) -> None:
        """Return nothing to do in a part."""

    def build_result(self, parts: Sequence[Part], work: Path, progress: Progress) -> Published:
        """Return what is published, as in a release without parts."""
        assert self._measured is not None, "published after it was measured"
        return self.request.publish(self.mechanism, self._measured, self.scope, progress)
