"""Tables of counts: one with a budget of its own, or several that share one and agree.

`request` says what is asked for, `published` what is released, `fitting` how several tables become
whole numbers. Modules that begin with `linked` have members and units of linked files.

Released part by part, all parts are measured alike: `cut_tables` says how a measurement falls into
blocks, `part_steps` counts and measures one part once, and has the order of two ways to publish
them. *Joint*: all blocks are put together and published as in one piece; each part holds its rows.
So it is where a number depends on several parts, and for linked files. *Separate* (`separate`):
each part is estimated and fitted by itself, under tables at the cut that are published first. So it
is wherever that gives the same, and the only way for tables that no machine holds.
"""
