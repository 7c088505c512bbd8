"""The same mechanism with another scale of its noise, for twins that believe in less noise."""

from fractions import Fraction
from typing import Any

from attrs import evolve

from semidp.promise.mechanisms.mechanism import Mechanism


def with_scale(mechanism: Mechanism, scale: float) -> Any:
    """The mechanism at another scale: every exact parameter grows by its power of it."""
    share = Fraction(scale) / Fraction(mechanism.scale)
    return evolve(
        mechanism,
        **{
            name: getattr(mechanism, name) * share**power
            for name, power in mechanism.scale_powers.items()
        },
    )
