"""Mechanisms: calibrated to a sensitivity space and a budget, each with the guarantee it satisfies.

Read `mechanism` first. Noise distributions live in `promise.noise`, the K-norm's geometry in
`knorm`. `publish.selection` chooses the mechanism of a release.
"""
