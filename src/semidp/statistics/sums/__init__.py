"""Sums, means and proportions of a private outcome by groups of exact size.

`request` says what is asked for, `estimates` holds what was measured with its errors, `published` what is released.
"""
