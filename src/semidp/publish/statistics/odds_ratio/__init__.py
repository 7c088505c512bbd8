"""The private test of an odds ratio: of one 2×2 table, or common to strata.

`umpu` has the test and its distribution, `measured_ratio` draws U, holds the result and
computes power. `kind` has requests and results.
"""
