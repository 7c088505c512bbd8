"""The private test of an odds ratio: of one 2×2 table, or common to strata.

`umpu` is the test and its law, `measured_ratio` draws U, holds the result and plans ahead.
`kind` says what is asked for and released.
"""
