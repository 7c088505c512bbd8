"""A statistic that semidp does not have, in a folder of its own: the sum of the places of all
records' levels.

Nothing outside this folder knows it. `kind` is what `semidp.publish.statistics.protocol.statistic.register` is given.
"""
