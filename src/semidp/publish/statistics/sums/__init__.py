"""Sums, means and proportions of a private outcome by groups of exact size.

`request` says what is asked for, `published` what is released; what is measured is in
`publish.statistics.outcomes`.
"""
