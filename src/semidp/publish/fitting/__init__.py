"""Whole numbers under exact totals: the nonnegative table that is closest to a noisy one.

`tables` is the page to read first: one table, and units divided among sizes. `problem` holds the
arrays, `real` projects, `flows` solves exactly, `rounding` takes linear time or solves a program.

Several tables that must agree are fitted one after the other in `statistics.tables.fitting`;
members and units in `statistics.tables.linked_fitting`; parts of a release in
`statistics.tables.separate`.
"""
