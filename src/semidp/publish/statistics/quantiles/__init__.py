"""Quantiles of a private outcome by groups of exact size.

`kind` says what is asked for, `published` what was chosen and what is released.
"""
