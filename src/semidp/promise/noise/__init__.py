"""Noise that is exactly what the proof says, from the operating system's randomness.

Distributions are frozen values with exact parameters; randomness is an argument. How much noise a
guarantee needs is decided in `promise.mechanisms`; K-norm noise is in `promise.mechanisms.knorm`.
"""
