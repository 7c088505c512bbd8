"""The whole distribution of a private outcome by groups of exact size: shares, quantiles, a band,
at one cost.

`distribution_estimates` puts the noisy differences of halves together, `published` is what is
released.
"""
