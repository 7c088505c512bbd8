"""The standard error of a weighted sum of cells, as inference computes it."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from semidp.inference.linear_estimates import weigh_mechanism
from semidp.promise import Mechanism


def error_of_sum(mechanism: Mechanism, weights: Mapping[int, ArrayLike]) -> float:
    """Return the standard error of one sum; weights go by the number of the table."""
    stacked = {table: np.asarray(cells, dtype=float)[None] for table, cells in weights.items()}
    return float(weigh_mechanism(mechanism, stacked).standard_errors[0])
