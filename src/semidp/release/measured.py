"""What a release says of the mechanism that made a measurement: its noise, and what it would be said to give.

Both are functions of the mechanism alone, and so of public values.
"""

from dataclasses import dataclass
from fractions import Fraction

from semidp.mechanisms import LaplaceMechanism, Mechanism, NoNoise, naive_loss
from semidp.tradeoff import ZCDP, Gaussian, Tradeoff, approximate


@dataclass(frozen=True)
class Noise:
    """How a table was measured: the mechanism, its scale, what it claims, and the loss it was expected to cost.

    `expected_l2` is the root of the expected squared distance between the measurement and the truth; `naive_l2` is
    the same for ordinary differential privacy pushed to the same guarantee by group privacy.
    """

    mechanism: str
    scale: float
    claim: str
    expected_l2: float
    naive_l2: float | None

    @property
    def absent(self) -> bool:
        """Whether the exact totals fix everything, so that no noise was needed."""
        return self.mechanism == NoNoise.name


def described(mechanism: Mechanism) -> Noise:
    """Return what the report says of a mechanism, next to ordinary differential privacy by group privacy."""
    return Noise(
        mechanism=mechanism.name,
        scale=mechanism.scale,
        claim=mechanism.claim,
        expected_l2=mechanism.expected_l2,
        naive_l2=None if mechanism.space.is_zero else naive_loss(mechanism),
    )


def advertised(mechanism: Mechanism) -> Tradeoff | None:
    """Return what the same noise would be said to give for one record if the exact totals were forgotten.

    The noise that hides a move of squared length Δ2² at mu hides one record, of squared length 2, at ``mu √(2/Δ2²)``;
    Laplace noise at epsilon and Δ1 hides one record at ``2 epsilon/Δ1``.
    """
    space, tradeoff = mechanism.space, mechanism.tradeoff
    if space.is_zero:
        return None
    share = Fraction(space.naive.l2_squared, space.l2_squared)
    if isinstance(tradeoff, ZCDP):
        return ZCDP(tradeoff.rho * share)
    if isinstance(tradeoff, Gaussian):
        return Gaussian(tradeoff.mu_squared * share)
    epsilon = tradeoff.implied_epsilon()
    if isinstance(mechanism, LaplaceMechanism) and epsilon is not None:
        return approximate(epsilon * Fraction(space.naive.l1, space.l1))
    return None
