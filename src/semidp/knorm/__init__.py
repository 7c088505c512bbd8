"""The K-norm of hull(S_a), its certified unit ball, and uniform points of it.

A ball is a value with a norm and a sampler: `closed` (one published side, or two levels), `table` (both sides),
`explicit` (any list of vectors). Which budget it serves, and the grid it is published on, live in `mechanisms`.
"""

from semidp.knorm.closed import Ball, PairBall, RowsBall, second_moment
from semidp.knorm.draw import knorm_noise, noise_moment, published_noise
from semidp.knorm.explicit import ExplicitBall
from semidp.knorm.table import TableBall

__all__ = [
    "Ball",
    "ExplicitBall",
    "PairBall",
    "RowsBall",
    "TableBall",
    "knorm_noise",
    "noise_moment",
    "published_noise",
    "second_moment",
]
