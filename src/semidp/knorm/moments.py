"""The second moment of K-norm noise on tables with both margins published, known before anything is drawn.

A smooth fit to long Monte Carlo runs (`benchmarks/knorm.py` makes them) from 3 x 3 to 12 x 12 and 3 x 61.
"""

import math

# log(E||v||² / s) in powers of x = 1/rows and y = 1/columns: 1, x+y, xy, x²+y², xy(x+y), x³+y³, x²y²
_COEFFICIENTS = {
    2: (3.5942, -2.5101, -3.5195, 2.9962, 11.974, -2.6738, -34.1304),
    3: (3.9078, 1.8755, -22.5505, -5.7777, 18.4134, -2.361, 18.1407),
}


def table_moment(rows: int, columns: int, a: int) -> float:
    """Return E||v||² at epsilon = 1 for r x c tables under A_2 or A_3, three levels or more on both sides.

    The relative error is below one percent where it was measured, up to 121 free cells; beyond it is extrapolated.

    >>> round(table_moment(3, 3, a=2)), round(table_moment(4, 4, a=3))
    (47, 241)
    """
    x, y = 1 / rows, 1 / columns
    powers = (1.0, x + y, x * y, x * x + y * y, x * y * (x + y), x**3 + y**3, (x * y) ** 2)
    logarithm = sum(b * power for b, power in zip(_COEFFICIENTS[a], powers, strict=True))
    return (rows - 1) * (columns - 1) * math.exp(logarithm)
