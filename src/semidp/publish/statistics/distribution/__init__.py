"""The whole distribution of a private outcome by groups of exact size: shares, quantiles, a band,
at one cost.

`value_tree` halves the values again and again, `distribution_space` bounds what one move costs,
`distribution_estimates` puts the noisy differences of halves together, `published` is what is
released.
"""
