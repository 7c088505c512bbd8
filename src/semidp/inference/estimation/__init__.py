"""One best estimate from all measurements of the same records.

`Measurements` hold independent noisy sums of cells at the nodes of a tree of places, with their
variances; `estimate` returns an `Estimate` that knows every cell of every place and the variance of
every weighted sum. Nothing here knows releases or privacy: ``semidp combine``, the check that
two releases are of the same records, and their joint guarantee are in `inference.combined`.
"""
