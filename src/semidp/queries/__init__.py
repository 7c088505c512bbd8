"""Query spaces: how far two values of a query can be apart while everything published stays.

`query_space` is the page to read first, `table_spaces` the space of count tables. `norms` chooses
among `patterns` and `moves`; `exchange_tables` has the norms of the other adjacency; `projection`
is the subspace of the noise. `products` holds several tables measured together as `residuals`,
whose prices are in `costs`; `branches` cuts a product into parts.
"""
