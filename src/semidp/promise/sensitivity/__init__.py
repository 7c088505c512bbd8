"""Query spaces: how far two values of a query can be apart while everything published stays.

`query_space` is the page to read first, `table_spaces` the space of count tables. For the ball
`norms` chooses among `patterns` and `moves`; for exchanges the norms are in `exchange_tables`.
`probes` checks both with drawn exchanges. `projection` is the subspace of the noise.

`products` holds several tables measured together as `residuals`. What a residual costs is in
`costs`, for both adjacencies: `agreement` and `families` describe the moves, `joint_costs` bounds
all residuals together. `branches` cuts a product into parts. Modules that begin with `linked` have
the same of members and units.

`outcome_spaces` are sums of a private column by group; `rank_space`, `distribution_space`,
`answered_space` and `moments` are its quantiles, distributions, answers and regressions.
"""
