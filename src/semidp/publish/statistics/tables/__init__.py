"""Tables of counts: one with a budget of its own, or several that share one and agree.

`request` says what is asked for, `published` what is released, `fitting` how several tables become
whole numbers. Modules that begin with `linked` have members and units of linked files. The folder
`by_parts` has what is released part by part.
"""
