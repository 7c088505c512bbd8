"""Several releases of the same records as one: `releases_together` is the page to read first.

`several_releases` is what every combination answers. `combination` turns what releases measured
into measurements with their noise, in the order of a tree, and answers from all of it
through the estimator of `inference.estimation`. `residual_combination` averages residuals one by
one: for linked members and units, and where features are too many for one block.
`combined_distributions` does the same for distributions.
"""
