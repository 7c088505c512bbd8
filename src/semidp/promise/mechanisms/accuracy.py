"""How far off the cells of a table are, from its mechanism alone: before anything is drawn."""

import math

import numpy as np
from numpy.typing import NDArray

from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.mechanisms.residual_noise import ResidualMechanism

INTERVALS_BELOW = 10**6
"""Tables of so many cells and more are written without the ends of intervals."""

MOST_CELLS = 2**24
"""Beyond so many cells a mean stands for all of them: it needs no array."""


def cell_errors(mechanism: Mechanism, number: int = 0) -> dict[str, float]:
    """Return how far off the cells of a table are: standard errors, and the half-widths of 95%
    intervals.

    A mechanism on cells measures one table; one on residuals measures several, which are numbered.

    >>> from semidp.promise.mechanisms.selection import choose
    >>> from semidp.promise.mechanisms.examples import two_way
    >>> from semidp.promise.tradeoff.budget import Budget
    >>> errors = cell_errors(choose(two_way()[0], Budget.gdp(1)))
    >>> round(errors["standard_error"], 3), round(errors["half_width"], 3), list(errors)[-2:]
    (1.167, 2.333, ['narrowest', 'widest'])
    """
    if isinstance(mechanism, ResidualMechanism):
        # Each table is put together from the measured residuals.
        return table_errors(mechanism, number)
    unit = float(mechanism.space.unit)
    size = math.prod(mechanism.space.shape)
    if size > MOST_CELLS:
        root = mechanism.expected_l2 * unit / math.sqrt(size)
        return {"standard_error": root, "smallest": root, "largest": root}
    half_widths = mechanism.half_widths * unit if size < INTERVALS_BELOW else None
    return standard_spread(mechanism.standard_errors() * unit, half_widths)


def table_errors(mechanism: ResidualMechanism, number: int) -> dict[str, float]:
    """Return the same for one of the tables that share a budget."""
    errors = mechanism.table_errors(number)
    half_widths = mechanism.table_half_widths(number) if errors.size < INTERVALS_BELOW else None
    return standard_spread(errors, half_widths)


def standard_spread(
    errors: NDArray[np.float64], half_widths: NDArray[np.float64] | None
) -> dict[str, float]:
    """Root mean square, least and largest of the standard errors and of the half-widths of cells
    with noise.

    >>> standard_spread(np.array([3.0, 4.0, 0.0]), None)
    {'standard_error': 2.886751345948129, 'smallest': 3.0, 'largest': 4.0}
    """
    noisy = errors > 0
    numbers = _three(("standard_error", "smallest", "largest"), errors, noisy)
    if half_widths is not None:
        numbers |= _three(("half_width", "narrowest", "widest"), half_widths, noisy)
    return numbers


def _three(
    names: tuple[str, str, str], values: NDArray[np.float64], noisy: NDArray[np.bool_]
) -> dict[str, float]:
    mean, least, most = names
    square = float((values**2).mean()) if values.size else 0.0
    # Cells that exact totals fix have no noise, and would hide the least error of the others.
    least_value = float(values[noisy].min()) if noisy.any() else 0.0
    most_value = float(values[noisy].max()) if noisy.any() else 0.0
    return {mean: math.sqrt(square), least: least_value, most: most_value}
