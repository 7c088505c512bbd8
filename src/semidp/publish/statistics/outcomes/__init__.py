"""What statistics of a private outcome share: requests, published columns, query spaces, intervals,
spread.
"""
