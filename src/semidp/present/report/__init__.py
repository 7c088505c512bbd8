"""A release, explained: as a page for people who publish, as text for a terminal, as values for
machines.

Everything said here is computed from a `Release`, which holds nothing confidential. What a
statistic says of itself is in its folder of `publish.statistics`; here is what is said of the
release as a whole.
"""
