"""Quantiles of a private outcome by groups of exact size.

`request` says what is asked for, `quantile_estimates` holds what was chosen, `published` what is
released.
"""
