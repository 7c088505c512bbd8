"""How confidence intervals are written beside published estimates, and read back.

The intervals themselves are computed in `grouped`; they follow from noisy values and exact counts.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.exact import number
from semidp.grouped import About, Intervals

COLUMNS = {About.noise: ("lower", "upper"), About.sampling: ("population_lower", "population_upper")}
"""What the ends of an interval are called in a file."""


def columns_of(intervals: Sequence[Intervals]) -> dict[str, NDArray[np.float64]]:
    """Return the columns that hold the ends of intervals."""
    pairs = [(COLUMNS[part.about], part) for part in intervals]
    return {name: end for names, part in pairs for name, end in zip(names, (part.lower, part.upper), strict=True)}


def stated(intervals: Sequence[Intervals]) -> list[dict[str, Any]]:
    """Return what intervals are about, as plain values; their ends are in files."""
    return [
        {
            "level": number(part.level),
            "about": str(part.about),
            "simultaneous": part.simultaneous,
            "columns": list(COLUMNS[part.about]),
        }
        for part in intervals
    ]


def read_intervals(
    entries: Sequence[Mapping[str, Any]],
    names: tuple[tuple[str, ...], ...],
    values: NDArray[np.float64],
    columns: NDArray[np.float64],
    level: Fraction,
) -> tuple[Intervals, ...]:
    """Return the intervals of which `stated` told, with the ends in the columns of a file, a row an estimate.

    An end that was written as nothing is open, unless there is no estimate.
    """
    return tuple(
        Intervals(
            names,
            values,
            _open(values, columns[:, 2 * position], -math.inf),
            _open(values, columns[:, 2 * position + 1], math.inf),
            level,
            About(entry["about"]),
            bool(entry["simultaneous"]),
        )
        for position, entry in enumerate(entries)
    )


def _open(values: NDArray[np.float64], ends: NDArray[np.float64], infinite: float) -> NDArray[np.float64]:
    return np.where(np.isnan(ends) & ~np.isnan(values), infinite, ends)
