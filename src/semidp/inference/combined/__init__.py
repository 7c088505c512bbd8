"""Several releases of the same records as one. Read `releases_together` first.

`several_releases` is the interface of every combination. `combination` arranges the measurements of
releases in the order of a tree, and answers from all of them through the estimator of
`inference.estimation`. `residual_combination` averages residuals one by one: for linked members and
units, and if there are too many features for one block. `combined_distributions` does the same for
distributions.
"""
