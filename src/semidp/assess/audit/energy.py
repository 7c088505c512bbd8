"""Whether a mechanism draws as much noise as it states: the energy of its draws in fixed
directions.

The attack compares two tables, so that it says nothing of a cell in which they agree. Here every
published cell is looked at, and one direction that is chosen on draws which are not counted.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.noise.randomness import Randomness

Floats = NDArray[np.float64]

MOST_DRAWS = 50_000
"""More draws are not needed."""

LEAST_VARIANCE = 0.5
"""Cells with less are not looked at: such whole numbers need not have the variance of the law that
they stand for."""

FOURTH_MOMENT = 8.0
"""``E v⁴ / (E v²)²`` of noise v, at most, where its variance is at least `LEAST_VARIANCE`."""

_MOST_CELLS = 1_024
_CHUNK = 1 << 20  # numbers held at a time


@dataclass(frozen=True)
class Energy:
    """The direction in which the draws of a mechanism fall short of their stated variance by most.

    Parameters
    ----------
    direction
        What it is called.
    share
        The mean square of the draws in this direction, as a share of the variance that the
        mechanism states.
    least
        The share below which a mechanism that states its variance correctly falls with a
        probability of at most the error of the test, in any direction.
    directions
        How many directions were looked at.

    Examples
    --------
    >>> Energy("cell 1, 2", share=0.7, least=0.9, directions=9).convicts
    True
    """

    direction: str
    share: float
    least: float
    directions: int

    @property
    def convicts(self) -> bool:
        """Whether the mechanism draws less noise than it states."""
        return self.share < self.least

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain values."""
        return asdict(self)


def noise_energy(
    mechanism: Mechanism,
    values: NDArray[np.int64],
    draws: int,
    error: float,
    randomness: Randomness,
) -> Energy | None:
    """Compare the mean square of draws with the stated variance, in each published cell and in one
    chosen direction.

    Nonnegative X with mean m satisfy ``P(mean of n <= (1 - t) m) <= exp(-n t² m² / (2 E X²))``
    (Maurer 2003). Here X = v² for the noise v in a direction, and log-concave symmetric noise has
    ``E v⁴ <= 6 (E v²)²`` (Karlin, Proschan and Barlow 1961). For whole numbers of a variance of at
    least 1/2 it is taken as 8, which the discrete Laplace law attains (``6 + 1/variance``); the
    tests enumerate that and the other laws of single cells. A fifth of the draws chooses the
    direction of least energy, the others are counted; the error is split evenly over all
    directions.

    Parameters
    ----------
    mechanism
        The mechanism, which states a standard error for every weighted sum of published cells.
    values
        A table to measure.
    draws
        How many outputs to look at.
    error
        The largest probability of convicting a mechanism that draws what it states.
    randomness
        Where random words come from.

    Returns
    -------
    The direction that falls short by most, or None where no cell has a variance of at least
    1/2: such noise is comparable to the rounding of whole numbers. Of more than 1,024 cells, 1,024
    that are spread evenly are looked at.

    Examples
    --------
    >>> from semidp.promise.mechanisms.gaussian import RoundedGaussianMechanism
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> from semidp.promise.noise.randomness import SeededRandomness
    >>> from semidp.promise.tradeoff.budget import Budget
    >>> space, table = two_way()
    >>> honest = RoundedGaussianMechanism.calibrate(space, Budget.gdp(1))
    >>> energy = noise_energy(honest, table.counts, 10_000, 1e-3, SeededRandomness(1))
    >>> energy.convicts, energy.directions
    (False, 7)
    """
    stated = mechanism.standard_errors().ravel() ** 2
    noisy = np.flatnonzero(stated >= LEAST_VARIANCE)
    if not noisy.size:
        return None
    number = min(len(noisy), _MOST_CELLS)
    spaced = np.linspace(0, len(noisy) - 1, number).astype(int)
    cells = noisy[np.unique(spaced)]
    projected = []
    for cell in cells:
        unit = np.eye(1, values.size, cell).reshape(values.shape)
        projected.append(mechanism.space.project(unit).ravel())
    published = np.stack(projected)
    # A fifth of the draws chooses a direction; the others are counted, so that the bound holds for
    # it too.
    second_moments = _moments(mechanism, values, published, draws // 5, randomness)
    weights = _weakest(second_moments, published, cells)
    chosen = np.zeros(values.size)
    chosen[cells] = weights
    directions = np.vstack([published, weights @ published])
    chosen_error = mechanism.standard_error(chosen.reshape(values.shape))
    variances = np.append(stated[cells], chosen_error**2)
    counted = draws - draws // 5
    shares = np.diag(_moments(mechanism, values, directions, counted, randomness)) / variances
    worst = int(shares.argmin())
    # Maurer's bound with error/directions for each direction, solved for t
    log_error = math.log(len(shares) / error)
    short = math.sqrt(2 * FOURTH_MOMENT * log_error / counted)
    name = "the chosen direction"
    if worst < len(cells):
        name = _name(int(cells[worst]), values.shape)
    least = max(0.0, 1 - short)
    return Energy(name, float(shares[worst]), least, len(shares))


def _moments(
    mechanism: Mechanism,
    values: NDArray[np.int64],
    directions: Floats,
    draws: int,
    randomness: Randomness,
) -> Floats:
    """The mean products of the noise in these directions."""
    step = max(1, _CHUNK // values.size)
    total = np.zeros((len(directions), len(directions)))
    for start in range(0, draws, step):
        size = min(step, draws - start)
        outputs = mechanism.measure_many(values, size, randomness)
        noise = (outputs - values).reshape(size, -1)
        components = noise @ directions.T
        total += components.T @ components
    return total / draws


def _weakest(moments: Floats, published: Floats, cells: NDArray[np.intp]) -> Floats:
    """The weights w, of a sum of cells, with the least ``w'Mw / w'Pw``: energy beside that of equal
    noise.
    """
    # A generalised eigenvalue problem, on the range of P: outside it both forms vanish.
    sizes, basis = np.linalg.eigh(published[:, cells])
    positive = sizes > 1e-6
    inside = basis[:, positive] / np.sqrt(sizes[positive])
    _, vectors = np.linalg.eigh(inside.T @ moments @ inside)
    return np.asarray(inside @ vectors[:, 0])


def _name(cell: int, shape: tuple[int, ...]) -> str:
    places = [str(int(place) + 1) for place in np.unravel_index(cell, shape)]
    return "cell " + ", ".join(places)
