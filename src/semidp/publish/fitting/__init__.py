"""Integer fits under exact totals: the nonnegative table closest to a noisy one.

Read `tables` first: one table, and units divided among sizes. `real` holds the problem as arrays
and projects, `integer` solves exactly, in linear time or by a program.

Several tables that must agree, and those of parts, are fitted one after the other in
`statistics.tables.fitting`; members and units in `statistics.tables.linked_fitting`.
"""
