"""The K-norm of hull(S_a), its certified unit ball, and uniform points of it.

A ball is a value with a norm and a sampler. `polar` says what it answers and solves its linear
programs; `table` has balls of both sides of a table, `explicit` those of one side and of any list
of vectors; `placed_balls` finds the ball of a sensitivity space. Budgets live in
`promise.mechanisms`.
"""
