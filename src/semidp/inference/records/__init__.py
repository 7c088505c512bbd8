"""Synthetic records of a release: their inputs, their construction, and one answer from several
files of them.

`Release.records` and ``semidp synthesize`` make them.
"""
