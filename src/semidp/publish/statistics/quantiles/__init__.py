"""Quantiles of a private outcome by groups of exact size."""
