"""Quantiles of a private outcome by groups of exact size: what is asked for, chosen and released."""
