"""Sums, means and proportions of those who answered, where who answered is private, too.

``--missing COLUMN=private`` asks for them: a record without a value did not answer.
`kind` says what follows from noisy pairs (number who answered, sum of their values), and what is
asked for and released.
"""
