"""Tables of counts: one with its own budget, or several that share a budget and agree.

`request` has the requests, `published` the results, `fitting` the whole numbers of several tables.
Modules that begin with `linked` are about members and units of linked files.

By parts, all parts are measured in the same way: `cut_tables` divides a measurement into blocks,
`part_steps` counts and measures each part once, and has two ways to publish them. *Joint*: all
blocks are assembled and published as in one piece; each part holds its rows. This is used if a
number depends on several parts, and for linked files. *Separate* (`separate`): each part is
estimated and fitted by itself, under tables at the cut that are published first. This is used
whenever it gives the same result, and is the only way for tables too large for one machine.
"""
