"""Several releases of the same records as one: `releases_together` is the page to read first.

`combination` turns what releases measured into measurements with their noise, and answers from all
of it through the estimator of `publish.estimation`; `several_releases` is what every combination
answers. `residual_pool` averages residuals one by one: for linked members and units, and where
features are too many for one block (`residual_combination`). `combined_tables` is the published
result, `combination_check` computes it again.
"""
