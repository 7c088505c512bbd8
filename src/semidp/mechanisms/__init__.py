"""Mechanisms: calibrated to a sensitivity space and a budget, each with its errors and the guarantee it satisfies."""

from semidp.mechanisms.base import Claim, Measurement, Mechanism, NoNoise

__all__ = ["Claim", "Measurement", "Mechanism", "NoNoise"]
