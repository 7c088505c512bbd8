"""Noise with exactly the distribution of the proof, from the operating system's randomness.

Distributions are frozen values with exact parameters; randomness is an argument.
`promise.mechanisms` decides how much noise a guarantee needs; K-norm noise is in
`promise.mechanisms.knorm`.
"""
