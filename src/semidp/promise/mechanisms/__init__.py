"""Mechanisms: calibrated to a sensitivity space and a budget, each with the guarantee it satisfies.

`mechanism` is the page to read first. Noise distributions live in `promise.noise`, the K-norm's
geometry in `knorm`. Which mechanism a release takes is in `publish.selection`.
"""
