"""What is published exactly, the datasets that agree with it, and how many records must change
together.

`dataspace` holds `Margin` and `Dataspace`. `adjacency` says which datasets are compared,
`semi_adjacency` computes or bounds a(t), with `structure` for overlapping margins and
`listed_tables` for small spaces. `exchange_blocks` has the exchanges of the second kind of
adjacency, `protection` persons with several records, `linked` units and members.
"""
