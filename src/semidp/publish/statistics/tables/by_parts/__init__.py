"""Tables that are released part by part: blocks of one measurement, and two ways to publish them.

All parts are measured alike: `cut_tables` says how a measurement falls into blocks, `part_tables`
counts and measures one part once, `table_steps` has the order of both ways.

- *Joint*: all blocks are put together and published as in one piece; each part holds its
  rows. So it is where a number depends on several parts, and for linked files.
- *Separate* (`separate`, `separate_fits`): each part is estimated
  and fitted by itself, under tables at the cut that are published first. So it is wherever that
  gives the same, and the only way for tables that no machine holds.
"""
