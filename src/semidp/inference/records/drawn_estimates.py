"""Draws of what the estimates of a release leave open: its noise once more, by the law that it
states.

The truth is the estimate less its noise. The noise has mean zero and a symmetric law, so that the
estimate plus fresh noise is a draw of the truth given the estimate, if nothing else is known of it
(a flat prior). Nothing confidential is read.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import Refused
from semidp.inference.records.record_cells import Floats
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.mechanisms.shared_noise import SharedNoise
from semidp.promise.noise.randomness import Randomness

if TYPE_CHECKING:
    from semidp.publish.release_value import ReleaseValue


@dataclass(frozen=True, eq=False)
class MeasuredResult:
    """One result of a release: its tables, what was measured, and the noise of it.

    Parameters
    ----------
    shapes
        The shape of each table by its name.
    mechanism
        The noise that was drawn.
    noisy
        The measurement as it was drawn; None where there is no noise.
    estimates
        The published estimates.
    """

    shapes: dict[str, tuple[int, ...]]
    mechanism: Mechanism = field(repr=False)
    noisy: NDArray[Any] | None = field(repr=False)
    estimates: list[Floats] = field(repr=False)

    def draw(self, randomness: Randomness) -> dict[str, Floats]:
        """Return the estimates with the noise drawn once more."""
        tables = self.estimates
        if self.noisy is not None:
            zeros = np.zeros(self.mechanism.space.shape, dtype=np.int64)
            fresh = self.mechanism.measure_many(zeros, 1, randomness)[0]
            vector = self.mechanism.publish(self.noisy + fresh)
            tables = [vector]
            if isinstance(self.mechanism, SharedNoise):
                tables = self.mechanism.estimates(vector)
        drawn = {}
        for (name, shape), table in zip(self.shapes.items(), tables, strict=True):
            drawn[name] = np.asarray(table, dtype=np.float64).reshape(shape)
        return drawn


@dataclass(frozen=True, eq=False)
class EstimateDraws:
    """The law of what the estimates of a release leave open.

    Examples
    --------
    >>> import semidp
    >>> request = semidp.TableRequest(["sex", "region"], semidp.Budget.gdp(1))
    >>> plan = semidp.Plan([request], ["sex", "region"])
    >>> release = semidp.run(plan, {"sex": [*"fm"] * 9, "region": [*"nns"] * 6})
    >>> drawn = EstimateDraws.from_release(release).draw(semidp.promise.SeededRandomness(1))[
    ...     "table"
    ... ]
    >>> drawn.sum(axis=1).round(6).tolist()  # exact totals stay
    [9.0, 9.0]
    """

    results: tuple[MeasuredResult, ...]

    @classmethod
    def from_release(cls, release: "ReleaseValue") -> "EstimateDraws":
        """Read the noise of every table of a release."""
        tables = {table.name: table for table in release.tables}
        results = []
        for request, result in zip(release.plan.requests, release.results, strict=True):
            names = [name for name in result.columns_by_name() if name in tables]
            # Other statistics have no tables, and records do not know them.
            if not names:
                continue
            mechanism = result.sampling_mechanism(result.recalibrate(request, release.scope))
            if mechanism is None:
                raise Refused(
                    f"the noise of {', '.join(names)} is not what its plan needs: it is not drawn"
                    " once more"
                )
            shapes = {name: tables[name].schema.shape for name in names}
            estimates = [tables[name].estimate for name in names]
            noisy = None if result.noise.absent else np.asarray(result.noisy)
            results.append(MeasuredResult(shapes, mechanism, noisy, estimates))
        return cls(tuple(results))

    def draw(self, randomness: Randomness) -> dict[str, Floats]:
        """Return for each table its estimates with the noise of the release drawn once more.

        Tables that share a budget share their noise, so that the draw of one fits those of the
        others.
        """
        drawn: dict[str, Floats] = {}
        for result in self.results:
            drawn |= result.draw(randomness)
        return drawn
