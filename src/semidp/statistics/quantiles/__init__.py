"""Quantiles of a private outcome by groups of exact size.

`request` says what is asked for, `space` bounds how far ranks move, `mechanism` chooses, `estimates` holds what was
chosen, `published` what is released.
"""
