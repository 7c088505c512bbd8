"""Query spaces: how far apart two values of a query can be while everything published stays fixed.

Read `query_space` first, then `table_spaces`, the space of count tables. For the ball `norms`
chooses among `patterns` and `moves`; for exchanges the norms are in `exchange_tables`. `probes`
checks both with drawn exchanges. `orthogonal_parts` has the subspace of the noise, and residuals.

`products` holds several tables measured together as residuals. `costs` has the costs of residuals
for both adjacencies: `described_moves` and `families` describe the moves, `joint_costs` bounds all
residuals together. `linked_products` has the same of members and units.

`outcome_spaces` are sums of a private column by group; `distribution_space`, `answered_space` and
`moments` are its distributions, answers and regressions. Quantiles are in
`promise.mechanisms.exponential`.
"""
