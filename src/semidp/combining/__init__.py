"""One best estimate from everything that was measured of the same records.

`Measurements` hold independent noisy sums of cells at the nodes of a tree of places, with their
variances; `estimate` returns an `Estimate` that knows every cell of every place and the variance of
every weighted sum.
"""

from semidp.combining.estimates import AreaSums, Estimate, Share, estimate
from semidp.combining.measurements import Among, CellSums, Measurements, Observed, Within
from semidp.combining.places import Places

__all__ = [
    "Among",
    "AreaSums",
    "CellSums",
    "Estimate",
    "Measurements",
    "Observed",
    "Places",
    "Share",
    "Within",
    "estimate",
]
