"""Noise that is exactly what the proof says, from the operating system's randomness.

Distributions are frozen values with exact parameters; randomness is an argument. How much noise a
guarantee needs is decided in `semidp.mechanisms`; K-norm noise is in `semidp.mechanisms.knorm`.
"""

from semidp.noise.canonical import CanonicalNoise, Normal, Recursive, Tulap
from semidp.noise.choice import ExponentialChoice, FlippedChoice
from semidp.noise.distributions import DiscreteGaussian, DiscreteLaplace, RoundedGaussian
from semidp.noise.lattice import LatticeGaussian, OneSidedLatticeGaussian
from semidp.noise.randomness import (
    Randomness,
    SeededRandomness,
    SystemRandomness,
    generator,
    uniforms,
)

__all__ = [
    "CanonicalNoise",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "ExponentialChoice",
    "FlippedChoice",
    "LatticeGaussian",
    "Normal",
    "OneSidedLatticeGaussian",
    "Randomness",
    "Recursive",
    "RoundedGaussian",
    "SeededRandomness",
    "SystemRandomness",
    "Tulap",
    "generator",
    "uniforms",
]
