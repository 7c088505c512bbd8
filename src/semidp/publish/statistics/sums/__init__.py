"""Sums, means and proportions of a private outcome by groups of exact size.

`kind` says what is asked for and released; what is measured is in
`publish.statistics.outcomes`.
"""
