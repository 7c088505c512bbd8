"""Quantiles of a private outcome by groups of exact size.

`request` says what is asked for, `ranks` bounds how far ranks move, `exponential` chooses,
`quantile_estimates` holds what was chosen, `published` what is released.
"""
