"""Synthetic records of a release: what they are put together from, how, and one answer from several
files of them.

`Release.records` and ``semidp synthesize`` ask for them.
"""
