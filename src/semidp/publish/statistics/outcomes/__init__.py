"""The common parts of statistics of a private outcome: requests, published columns, intervals,
spread.
"""
