"""Several releases of the same records as one: `releases_together` is the page to read first.

`tree_layout` says where the cells of all features stand for the estimator of `publish.estimation`,
`table_evidence` turns what a release measured into measurements with their noise, `combination`
answers from all of it, `combined_tables` is the published result, `combination_check` computes it
again.
`residual_pool` averages residuals one by one: for linked members and units (`linked_combination`),
and where features are too many for one block (`residual_combination`).
"""
