"""Sums, means and proportions of those who answered, where who answered is private, too.

``--missing COLUMN=private`` asks for them: a record without a value did not answer.
`answered_estimates` says what follows from noisy pairs (number who answered, sum of their values),
`kind` what is asked for and released.
"""
