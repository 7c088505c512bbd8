"""The whole distribution of a private outcome by groups of exact size: shares, quantiles and a band
at one cost.

`published` assembles the noisy differences of halves into results.
"""
