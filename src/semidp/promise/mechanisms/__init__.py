"""Mechanisms: calibrated to a sensitivity space and a budget, each with its errors and the
guarantee it satisfies.

`mechanism` is the page to read first; `selection` picks by expected loss. Noise distributions live
in `promise.noise`, the K-norm's geometry in `knorm`.
"""
