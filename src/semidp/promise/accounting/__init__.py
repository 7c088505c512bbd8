"""Accounting: conversions between ways of stating a guarantee, recorded queries, and the ledger.

Everything here adds up or restates guarantees; the curves themselves are in `promise.tradeoff`,
and what datasets they are about in `promise.guarantee`.
"""
