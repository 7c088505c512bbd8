"""Accounting: recorded queries, what several releases spend together, and the ledger.

Everything here adds up guarantees; the curves are in `promise.tradeoff`, and the
datasets that they are about in `promise.guarantee`.
"""
