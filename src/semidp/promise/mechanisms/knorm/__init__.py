"""The K-norm of hull(S_a), its certified unit ball, and uniform points of it.

A ball is a value with a norm and a sampler (`norm_ball`): `closed` (one published side, or two
levels), `table` (both sides), `explicit` (any list of vectors); `placed_balls` finds the ball of a
sensitivity space. Budgets live in `promise.mechanisms`.
"""

from semidp.promise.mechanisms.knorm.closed import PairBall, RowsBall
from semidp.promise.mechanisms.knorm.explicit import ExplicitBall
from semidp.promise.mechanisms.knorm.norm_ball import (
    NormBall,
    knorm_noise,
    noise_moment,
    second_moment,
)
from semidp.promise.mechanisms.knorm.placed_balls import PlacedBall, place_ball
from semidp.promise.mechanisms.knorm.table import MOST_FREE_CELLS, ExchangeBall, TableBall

__all__ = [
    "MOST_FREE_CELLS",
    "ExchangeBall",
    "ExplicitBall",
    "NormBall",
    "PairBall",
    "PlacedBall",
    "RowsBall",
    "TableBall",
    "knorm_noise",
    "noise_moment",
    "place_ball",
    "second_moment",
]
