"""Accounting: recorded queries, what several releases spend together, and the ledger.

Everything here adds up guarantees; the curves themselves are in `promise.tradeoff`,
and what datasets they are about in `promise.guarantee`.
"""
