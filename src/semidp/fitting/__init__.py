"""Whole numbers under exact totals: the nonnegative table that is closest to a noisy one.

`tables` is the page to read first. `problem` holds the arrays, `real` projects, `flows` solves
exactly, `rounding` takes linear time, `programs` does the rest.
"""
