"""Sums, means and proportions of those who answered, where who answered is private, too.

``--missing COLUMN=private`` asks for them: a record without a value did not answer.
`answered_space` says how far the pairs (number who answered, sum of their values) can be apart,
`answered_estimates` what follows from noisy pairs; `request` says what is asked for, `published`
what is released.
"""
