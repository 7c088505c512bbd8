"""The private test of an odds ratio: of one 2×2 table, or common to strata.

`umpu` is the test, `hypergeometric` its law, `measured_ratio` draws U and holds the result.
`power_analysis` plans ahead.
"""
