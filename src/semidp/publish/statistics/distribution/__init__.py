"""The whole distribution of a private outcome by groups of exact size: shares, quantiles, a band,
at one cost.

`published` puts the noisy differences of halves together, and says what is released.
"""
