"""The K-norm of hull(S_a), its certified unit ball, and uniform points of it.

A ball is a value with a norm and a sampler (`norm_ball`): `closed` (one published side, or two
levels), `table` (both sides), `explicit` (any list of vectors); `placed_balls` finds the ball of a
sensitivity space. Budgets live in `promise.mechanisms`.
"""
